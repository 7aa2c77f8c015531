//! The column chunks of parquet files that a device may decode, from the files' metadata; of others the reason why not.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use arrow::datatypes::{DataType, Schema, TimeUnit};
use datafusion::datasource::listing::PartitionedFile;
use datafusion::execution::TaskContext;
use datafusion::parquet::arrow::{parquet_column, parquet_to_arrow_schema};
use datafusion::parquet::basic::{Encoding, LogicalType, TimeUnit as FileUnit, Type};
use datafusion::parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData, RowGroupMetaData};
use datafusion::parquet::schema::types::ColumnDescriptor;
use warpline_cuda::kernels as k;

use super::disk::unchanged_on_disk;
use super::files::FileTable;
use super::row_groups::begins_of;
use crate::column::{Expectation, is_binary, is_text};
use crate::error::Result;
use crate::parquet::{ChunkSize, Codec, Reason, ValueKind, cpu_time};

/// Most bytes of a chunk.
const MOST_BYTES: u64 = 1 << 30;

/// A table of parquet files by row group.
pub(super) struct ParquetTable {
    /// In canonical order.
    pub(super) groups: Vec<RowGroup>,
    /// By wanted column.
    pub(super) columns: Vec<Expectation>,
    pub(super) rows: usize,
}

/// A row group.
pub(super) struct RowGroup {
    pub(super) path: Arc<PathBuf>,
    /// The file, restricted to this row group, for the CPU's reader.
    pub(super) unit: PartitionedFile,
    /// Its first row in the table.
    pub(super) first: usize,
    pub(super) rows: usize,
    /// By wanted column.
    pub(super) chunks: Vec<std::result::Result<ChunkSource, Reason>>,
}

/// A chunk that a device may decode.
#[derive(Debug, Clone)]
pub(super) struct ChunkSource {
    pub(super) bytes: std::ops::Range<u64>,
    pub(super) codec: Codec,
    pub(super) uncompressed: u64,
    pub(super) values: ValueKind,
}

impl ChunkSource {
    /// Bytes of device memory until it is decoded, about: itself with and without compression, a code or the place of a string and
    /// two bits a row, and what is told of its pages.
    pub(super) fn scratch(&self, rows: usize, as_bytes: bool) -> u64 {
        /// For some hundred pages.
        const PAGES: u64 = 64 << 10;
        let row = if as_bytes { 8 } else { 4 };
        let (rows, file) = (rows as u64, self.bytes.end - self.bytes.start);
        file + self.uncompressed + rows * row + rows / 4 + PAGES
    }

    /// What its price depends on.
    pub(super) fn size(&self, rows: usize) -> ChunkSize {
        ChunkSize {
            rows: rows as u64,
            compressed: self.bytes.end - self.bytes.start,
            uncompressed: self.uncompressed,
            codec: self.codec,
            plain_strings: self.values.kind == k::PARQUET_KIND_BYTES,
        }
    }
}

impl ParquetTable {
    /// How long a load of the columns that are not refused waits for kernels that are not there; `None`: until they are. From disk
    /// they come within this time; while they are compiled, what the CPU has decoded before is done sooner.
    pub(super) fn patience(&self, refused: &[Option<Reason>], threads: usize) -> Option<Duration> {
        const FROM_DISK: Duration = Duration::from_millis(50);
        const COMPILED: Duration = Duration::from_millis(700);
        let columns = refused.iter().enumerate().filter(|(_, r)| r.is_none());
        let times = columns.map(|(wanted, _)| cpu_time(&self.sizes(wanted), threads));
        let cpu: Duration = times.sum();
        (cpu < COMPILED).then_some(FROM_DISK)
    }

    /// What decides of the chunks of a column that the device can decode.
    pub(super) fn sizes(&self, wanted: usize) -> Vec<ChunkSize> {
        let sizes = self.groups.iter().filter_map(|group| {
            let chunk = group.chunks[wanted].as_ref().ok()?;
            Some(chunk.size(group.rows))
        });
        sizes.collect()
    }

    /// Do the strings of this column come as bytes: is any chunk of it not one of codes alone?
    pub(super) fn has_plain_strings(&self, wanted: usize) -> bool {
        let chunks = self.groups.iter().map(|group| &group.chunks[wanted]);
        let mut read = chunks.filter_map(|chunk| chunk.as_ref().ok());
        read.any(|chunk| chunk.values.kind == k::PARQUET_KIND_BYTES)
    }

    /// Bytes of a column without compression, as the files say.
    pub(super) fn uncompressed(&self, wanted: usize) -> u64 {
        let chunks = self.groups.iter().map(|group| &group.chunks[wanted]);
        let read = chunks.filter_map(|chunk| chunk.as_ref().ok());
        read.map(|chunk| chunk.uncompressed).sum()
    }
}

/// How values lie in a column whose strings come as bytes, or as codes.
pub(super) fn values_in(values: ValueKind, as_bytes: bool) -> ValueKind {
    match values.kind {
        k::PARQUET_KIND_CODE if as_bytes => ValueKind {
            kind: k::PARQUET_KIND_BYTES,
            ..values
        },
        _ => values,
    }
}

impl FileTable {
    /// The row groups of `files` and their chunks of table columns `columns`; `None` where that is no table of whole
    /// parquet files.
    ///
    /// # Errors
    /// When metadata cannot be read. Reading the files says so with their names.
    pub(super) async fn chunks(
        &self,
        files: &[PartitionedFile],
        columns: &[usize],
        ctx: &TaskContext,
    ) -> Result<Option<ParquetTable>> {
        let Some(metadata) = self.metadata_of(files, ctx).await? else {
            return Ok(None);
        };
        let local = self.config.object_store_url.as_str() == "file:///";
        let mut table = ParquetTable {
            groups: Vec::new(),
            columns: columns
                .iter()
                .map(|column| self.expectation(*column, &metadata))
                .collect(),
            rows: 0,
        };
        for (file, metadata) in files.iter().zip(&metadata) {
            let here = local && unchanged_on_disk(&file.object_meta);
            let path = Arc::new(PathBuf::from(format!("/{}", file.object_meta.location)));
            let Some(begins) = begins_of(file, metadata.row_groups()) else {
                return Ok(None);
            };
            let parquet = metadata.file_metadata();
            // Once a file: it is parsed from the file's own description of it.
            let own = parquet_to_arrow_schema(parquet.schema_descr(), parquet.key_value_metadata());
            let sources: Vec<_> = columns
                .iter()
                .map(|column| match &own {
                    Ok(own) => self.values(*column, metadata, own),
                    Err(_) => Err(Reason::Schema),
                })
                .collect();
            let size = i64::try_from(file.object_meta.size).unwrap_or(i64::MAX);
            for (at, group) in metadata.row_groups().iter().enumerate() {
                let Ok(rows) = usize::try_from(group.num_rows()) else {
                    return Ok(None);
                };
                let from = if at == 0 { 0 } else { begins[at] };
                let end = begins.get(at + 1).copied().unwrap_or(size);
                let chunk = |source: &std::result::Result<(usize, ValueKind), Reason>| {
                    let (leaf, values) = (*source)?;
                    match here {
                        true => chunk_of(group, leaf, values, file.object_meta.size),
                        false => Err(Reason::Store),
                    }
                };
                table.groups.push(RowGroup {
                    path: Arc::clone(&path),
                    unit: file.clone().with_range(from, end),
                    first: table.rows,
                    rows,
                    chunks: sources.iter().map(chunk).collect(),
                });
                table.rows += rows;
            }
        }
        Ok(Some(table))
    }

    /// The smallest of the file's columns that tells whether a struct is there, and how.
    fn presence(
        &self,
        column: usize,
        metadata: &ParquetMetaData,
    ) -> std::result::Result<(usize, ValueKind), Reason> {
        let file = metadata.file_metadata().schema_descr();
        let known = self.fields.presence_in_parquet(column, file);
        let (leaves, present) = known.ok_or(Reason::Nested)?;
        let bytes = |leaf: &usize| -> i64 {
            let groups = metadata.row_groups().iter();
            let chunks = groups.filter_map(|group| group.columns().get(*leaf));
            chunks.map(ColumnChunkMetaData::compressed_size).sum()
        };
        let leaf = leaves.into_iter().min_by_key(bytes).ok_or(Reason::Nested)?;
        let levels = file.column(leaf).max_def_level();
        let values = ValueKind {
            kind: k::PARQUET_KIND_PRESENCE,
            bytes: 0,
            levels: u32::try_from(levels).map_err(|_| Reason::Nested)?,
            present,
            utf8: false,
        };
        Ok((leaf, values))
    }

    /// The file's column for a table column, and how its values lie.
    fn values(
        &self,
        column: usize,
        metadata: &ParquetMetaData,
        own: &Schema,
    ) -> std::result::Result<(usize, ValueKind), Reason> {
        if self.config.expr_adapter_factory.is_some() {
            return Err(Reason::Schema);
        }
        let fields = self.fields.schema().fields();
        let field = fields.get(column).ok_or(Reason::Computed)?;
        let file = metadata.file_metadata();
        if self.fields.is_field(column) {
            let Some(names) = self.fields.names(column) else {
                return self.presence(column, metadata);
            };
            let leaf = self.fields.in_parquet(column, file.schema_descr());
            let leaf = leaf.ok_or(Reason::Schema)?;
            let own = within(own, names).ok_or(Reason::Schema)?;
            let descr = file.schema_descr().column(leaf);
            return values_of(field.data_type(), own, &descr).map(|values| (leaf, values));
        }
        let found = parquet_column(file.schema_descr(), own, field.name());
        let (leaf, own) = found.ok_or(match own.field_with_name(field.name()) {
            Ok(_) => Reason::Nested,
            Err(_) => Reason::Schema,
        })?;
        let descr = file.schema_descr().column(leaf);
        values_of(field.data_type(), own.data_type(), &descr).map(|values| (leaf, values))
    }
}

/// The type of the field that these names lead to, through structs, in the schema of a file.
fn within<'a>(schema: &'a Schema, names: &[String]) -> Option<&'a DataType> {
    let (column, fields) = names.split_first()?;
    let column = schema.field_with_name(column).ok()?.data_type();
    fields.iter().try_fold(column, |around, name| {
        let DataType::Struct(within) = around else {
            return None;
        };
        Some(within.find(name)?.1.data_type())
    })
}

/// How the values of a column of a file lie, if the device decodes them to the table's type.
fn values_of(
    table: &DataType,
    file: &DataType,
    descr: &ColumnDescriptor,
) -> std::result::Result<ValueKind, Reason> {
    if descr.max_rep_level() > 0 {
        return Err(Reason::Nested);
    }
    let levels = u32::try_from(descr.max_def_level()).map_err(|_| Reason::Nested)?;
    let of = |kind, bytes| {
        Ok(ValueKind {
            kind,
            bytes,
            levels,
            present: levels,
            utf8: !is_binary(table),
        })
    };
    let stored = descr.physical_type();
    // Some writers do not say that bytes are text (`binary_as_string`). They are checked for UTF-8 where the table's are.
    if is_text(table) && is_text(file) && stored == Type::BYTE_ARRAY {
        return of(k::PARQUET_KIND_CODE, 0);
    }
    if table != file {
        return Err(Reason::Schema);
    }
    use DataType as D;
    match (table, stored) {
        (D::Timestamp(unit, _), Type::INT64) if has_unit(descr, *unit) => {
            of(k::PARQUET_KIND_I64, 8)
        }
        // Nanoseconds of a day, and the day.
        (D::Timestamp(TimeUnit::Nanosecond, _), Type::INT96) => of(k::PARQUET_KIND_INT96, 12),
        (
            D::Int8 | D::Int16 | D::Int32 | D::Date32 | D::Time32(TimeUnit::Millisecond),
            Type::INT32,
        ) => of(k::PARQUET_KIND_I32, 4),
        (D::UInt8 | D::UInt16 | D::UInt32, Type::INT32) => of(k::PARQUET_KIND_U32, 4),
        (D::Int64 | D::UInt64 | D::Time64(_), Type::INT64) => of(k::PARQUET_KIND_I64, 8),
        (D::Decimal32(..) | D::Decimal64(..) | D::Decimal128(..), stored) => match stored {
            Type::INT32 => of(k::PARQUET_KIND_I32, 4),
            Type::INT64 => of(k::PARQUET_KIND_I64, 8),
            Type::FIXED_LEN_BYTE_ARRAY => match u32::try_from(descr.type_length()) {
                Ok(bytes @ 1..=16) => of(k::PARQUET_KIND_FIXED, bytes),
                _ => Err(Reason::Type),
            },
            _ => Err(Reason::Type),
        },
        (D::FixedSizeBinary(size @ 1..), Type::FIXED_LEN_BYTE_ARRAY) => {
            match u32::try_from(descr.type_length()) {
                Ok(bytes) if i64::from(bytes) == i64::from(*size) => {
                    of(k::PARQUET_KIND_BYTES, bytes)
                }
                _ => Err(Reason::Type),
            }
        }
        (D::Boolean, Type::BOOLEAN) => of(k::PARQUET_KIND_BIT, 0),
        (D::Float32, Type::FLOAT) => of(k::PARQUET_KIND_F32, 4),
        (D::Float64, Type::DOUBLE) => of(k::PARQUET_KIND_F64, 8),
        _ => Err(Reason::Type),
    }
}

/// Does the file say that its timestamps count this unit?
fn has_unit(descr: &ColumnDescriptor, unit: TimeUnit) -> bool {
    let Some(LogicalType::Timestamp(stored)) = descr.logical_type_ref() else {
        return false;
    };
    matches!(
        (unit, stored.unit),
        (TimeUnit::Millisecond, FileUnit::MILLIS)
            | (TimeUnit::Microsecond, FileUnit::MICROS)
            | (TimeUnit::Nanosecond, FileUnit::NANOS)
    )
}

/// The chunk of a row group in a file of so many bytes.
fn chunk_of(
    group: &RowGroupMetaData,
    leaf: usize,
    values: ValueKind,
    size: u64,
) -> std::result::Result<ChunkSource, Reason> {
    let chunk = group.columns().get(leaf).ok_or(Reason::Malformed)?;
    if chunk.crypto_metadata().is_some() || chunk.file_path().is_some() {
        return Err(Reason::Unreadable);
    }
    let codec = Codec::of(chunk.compression()).ok_or(Reason::Codec)?;
    let text = values.kind == k::PARQUET_KIND_CODE;
    let plain = text && !has_only_dictionary(chunk);
    let values = match plain {
        true => ValueKind {
            kind: k::PARQUET_KIND_BYTES,
            ..values
        },
        false => values,
    };
    let begin = chunk
        .dictionary_page_offset()
        .unwrap_or(chunk.data_page_offset());
    let begin = u64::try_from(begin).map_err(|_| Reason::Malformed)?;
    let length = u64::try_from(chunk.compressed_size()).map_err(|_| Reason::Malformed)?;
    let uncompressed = u64::try_from(chunk.uncompressed_size()).map_err(|_| Reason::Malformed)?;
    let end = begin.checked_add(length).filter(|end| *end <= size);
    let end = end.ok_or(Reason::Malformed)?;
    if length > MOST_BYTES
        || uncompressed > 2 * MOST_BYTES
        || chunk.num_values() != group.num_rows()
    {
        return Err(Reason::Malformed);
    }
    Ok(ChunkSource {
        bytes: begin..end,
        codec,
        uncompressed,
        values,
    })
}

/// May all data pages have codes of a dictionary?
fn has_only_dictionary(chunk: &ColumnChunkMetaData) -> bool {
    let told = chunk.page_encoding_stats_mask().is_none_or(|mask| {
        mask.is_only(Encoding::PLAIN_DICTIONARY) || mask.is_only(Encoding::RLE_DICTIONARY)
    });
    told && chunk.encodings().any(|encoding| {
        matches!(
            encoding,
            Encoding::PLAIN_DICTIONARY | Encoding::RLE_DICTIONARY
        )
    })
}
