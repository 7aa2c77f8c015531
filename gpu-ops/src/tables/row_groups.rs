//! Layout of a table from parquet metadata: rows of each row group, and the range of each column of numbers.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef};
use arrow::compute::interleave;
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::ParquetSource;
use datafusion::datasource::physical_plan::parquet::metadata::DFParquetMetadata;
use datafusion::execution::TaskContext;
use datafusion::parquet::arrow::arrow_reader::statistics::StatisticsConverter;
use datafusion::parquet::file::metadata::{ParquetMetaData, RowGroupMetaData};
use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;
use futures::{StreamExt, TryStreamExt};

use super::files::{FileTable, as_source};
use crate::column::{Expectation, is_number, order_of, range_of};
use crate::error::{GpuError, Result};

/// Files whose metadata is asked for at a time.
const FILES_AT_ONCE: usize = 32;

/// A table in units of whole row groups, and what is expected of them. Files may claim anything: users of a layout
/// check what is read.
pub(super) struct Layout {
    /// In canonical order: one or more row groups each.
    pub(super) units: Vec<PartitionedFile>,
    /// By unit: its rows.
    pub(super) rows: Vec<usize>,
    /// By wanted column: what all row groups tell of it, or its type.
    pub(super) columns: Vec<Expectation>,
}

/// The order of row groups that do not overlap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    /// Each begins above the last number of the one before.
    Strict,
    /// Some may begin with it.
    Repeating,
}

/// Smallest and largest number so far, while all row groups have statistics.
#[derive(Clone, Copy)]
enum Range {
    Known(Option<(i128, i128)>),
    Unknown,
}

impl FileTable {
    /// The row groups of `files`, with the ranges of table columns `columns`; `None` where a layout does not help:
    /// for other formats than parquet, and for one unit.
    ///
    /// # Errors
    /// When metadata cannot be read. Reading the files says so with their names.
    pub(super) async fn layout(
        &self,
        files: &[PartitionedFile],
        columns: &[usize],
        ctx: &TaskContext,
    ) -> Result<Option<Layout>> {
        let Some(metadata) = self.metadata_of(files, ctx).await? else {
            return Ok(None);
        };
        let options = ctx.session_config().options();
        let least = options.optimizer.repartition_file_min_size.max(1) as u64;
        let mut layout = Layout {
            units: Vec::new(),
            rows: Vec::new(),
            columns: Vec::new(),
        };
        for (file, metadata) in files.iter().zip(&metadata) {
            let Some(units) = units_of(file, metadata.row_groups(), least) else {
                return Ok(None);
            };
            for (unit, rows) in units {
                layout.units.push(unit);
                layout.rows.push(rows);
            }
        }
        if layout.units.len() < 2 {
            return Ok(None);
        }
        for column in columns {
            layout.columns.push(self.expectation(*column, &metadata));
        }
        Ok(Some(layout))
    }

    /// What all row groups tell of a column.
    pub(super) fn expectation(&self, column: usize, files: &[Arc<ParquetMetaData>]) -> Expectation {
        let range = self.range(column, files);
        let order = range.and_then(|_| self.order(column, files));
        Expectation {
            range,
            whole: self.is_whole(column, files),
            sorted: order.is_some(),
            unique: order == Some(Order::Strict),
        }
    }

    /// The metadata of each of `files`; `None` where the table is not one of whole parquet files.
    ///
    /// # Errors
    /// When metadata cannot be read.
    pub(super) async fn metadata_of(
        &self,
        files: &[PartitionedFile],
        ctx: &TaskContext,
    ) -> Result<Option<Vec<Arc<ParquetMetaData>>>> {
        let source = as_source::<ParquetSource>(self.config.file_source());
        let Some(source) = source.filter(|_| self.splittable) else {
            return Ok(None);
        };
        let metadata = futures::stream::iter(files.to_vec())
            .map(|file| self.metadata(source, file, ctx))
            .buffered(FILES_AT_ONCE)
            .try_collect();
        Ok(Some(metadata.await?))
    }

    async fn metadata(
        &self,
        source: &ParquetSource,
        file: PartitionedFile,
        ctx: &TaskContext,
    ) -> Result<Arc<ParquetMetaData>> {
        if let Some(factory) = source.parquet_file_reader_factory() {
            let metrics = ExecutionPlanMetricsSet::new();
            let mut reader = factory.create_reader(0, file, None, &metrics)?;
            let metadata = reader.get_metadata(None).await;
            return metadata.map_err(|error| GpuError::DataFusion(error.into()));
        }
        let store = ctx
            .runtime_env()
            .object_store(&self.config.object_store_url)?;
        let cache = ctx.runtime_env().cache_manager.get_file_metadata_cache();
        let metadata = DFParquetMetadata::new(store.as_ref(), &file.object_meta)
            .with_file_metadata_cache(Some(cache));
        Ok(metadata.fetch_metadata().await?)
    }

    /// What a file tells of the values of a column.
    fn told<'a>(
        &'a self,
        column: usize,
        metadata: &'a ParquetMetaData,
    ) -> Option<StatisticsConverter<'a>> {
        let field = self.fields.schema().fields().get(column)?;
        let file = metadata.file_metadata().schema_descr();
        let converter = match self.fields.is_field(column) {
            true => {
                let leaf = self.fields.in_parquet(column, file)?;
                StatisticsConverter::from_column_index(leaf, field, file)
            }
            false => {
                let schema = self.config.file_source().table_schema().table_schema();
                StatisticsConverter::try_new(field.name(), schema, file)
            }
        };
        converter.ok()
    }

    /// The order of the row groups of a column of numbers, over all files; `None` when they overlap.
    fn order(&self, column: usize, files: &[Arc<ParquetMetaData>]) -> Option<Order> {
        let (mut order, mut before) = (Order::Strict, None);
        for metadata in files.iter().filter(|m| !m.row_groups().is_empty()) {
            let converter = self.told(column, metadata)?;
            let bounds = all_bounds(&converter, metadata.row_groups())?;
            let (first, last, strict) = order_of(&bounds).ok()??;
            if before.is_some_and(|before| before > first) {
                return None;
            }
            if !strict || before == Some(first) {
                order = Order::Repeating;
            }
            before = Some(last);
        }
        Some(order)
    }

    /// Does no file have a NULL in the column?
    fn is_whole(&self, column: usize, files: &[Arc<ParquetMetaData>]) -> bool {
        let Some(field) = self.fields.schema().fields().get(column) else {
            return false;
        };
        !field.is_nullable()
            || files.iter().all(|metadata| {
                let converter = self.told(column, metadata);
                converter.is_some_and(|converter| {
                    // Old files tell of no NULLs by telling nothing.
                    let converter = converter.with_missing_null_counts_as_zero(false);
                    without_nulls(&converter, metadata.row_groups())
                })
            })
    }

    /// The range of a column of numbers over all files.
    fn range(&self, column: usize, files: &[Arc<ParquetMetaData>]) -> Option<(i128, i128)> {
        let field = self.fields.schema().fields().get(column)?;
        if !is_number(field.data_type()) {
            return None;
        }
        let mut range = Range::Known(None);
        for metadata in files {
            let converter = self.told(column, metadata)?;
            range.add(&converter, metadata.row_groups());
        }
        match range {
            Range::Known(range) => range,
            Range::Unknown => None,
        }
    }
}

/// The smallest and largest values of all these row groups, each behind the smallest of its own.
fn all_bounds(
    converter: &StatisticsConverter<'_>,
    groups: &[RowGroupMetaData],
) -> Option<ArrayRef> {
    let mins = converter.row_group_mins(groups).ok()?;
    let maxes = converter.row_group_maxes(groups).ok()?;
    let pairs = (0..groups.len()).flat_map(|at| [(0, at), (1, at)]);
    interleave(&[&mins, &maxes], &pairs.collect::<Vec<_>>()).ok()
}

/// Do the statistics of all these row groups exclude NULLs?
fn without_nulls(converter: &StatisticsConverter<'_>, groups: &[RowGroupMetaData]) -> bool {
    let told = converter.row_group_null_counts(groups);
    told.is_ok_and(|nulls| {
        nulls.len() == groups.len() && nulls.iter().all(|nulls| nulls == Some(0))
    })
}

impl Range {
    /// What these row groups tell of it.
    fn add(&mut self, converter: &StatisticsConverter<'_>, groups: &[RowGroupMetaData]) {
        let Self::Known(all) = *self else {
            return;
        };
        *self = match bounds(converter, groups) {
            Some(new) => Self::Known(match (all, new) {
                (Some((min, max)), Some((low, high))) => Some((min.min(low), max.max(high))),
                (one, other) => one.or(other),
            }),
            None => Self::Unknown,
        };
    }
}

/// Smallest and largest value of some row groups, or that they have none; `None` when not all of them tell.
fn bounds(
    converter: &StatisticsConverter<'_>,
    groups: &[RowGroupMetaData],
) -> Option<Option<(i128, i128)>> {
    let mins = converter.row_group_mins(groups).ok()?;
    let maxes = converter.row_group_maxes(groups).ok()?;
    let nulls = converter.row_group_null_counts(groups).ok()?;
    for (at, group) in groups.iter().enumerate() {
        let told = mins.is_valid(at) && maxes.is_valid(at);
        let empty = nulls.is_valid(at) && i64::try_from(nulls.value(at)) == Ok(group.num_rows());
        if !told && !empty {
            return None;
        }
    }
    let (low, high) = (range_of(&mins).ok()?, range_of(&maxes).ok()?);
    Some(low.zip(high).map(|(low, high)| (low.0, high.1)))
}

/// Where readers of a range of bytes look for whether a row group lies in it; `None` when row groups are not contiguous.
pub(super) fn begins_of(file: &PartitionedFile, groups: &[RowGroupMetaData]) -> Option<Vec<i64>> {
    let size = i64::try_from(file.object_meta.size).ok()?;
    let begins = groups.iter().map(|group| {
        let column = group.columns().first()?;
        let dictionary = column.dictionary_page_offset();
        Some(dictionary.unwrap_or_else(|| column.data_page_offset()))
    });
    let begins = begins.collect::<Option<Vec<i64>>>()?;
    let ascend = begins.windows(2).all(|pair| pair[0] < pair[1]);
    let inside = begins.first().is_none_or(|begin| *begin >= 0)
        && begins.last().is_none_or(|begin| *begin < size);
    (ascend && inside).then_some(begins)
}

/// A file in units of whole row groups of at least `least` bytes, except the last, and the rows of each; `None` when
/// row groups are not contiguous.
fn units_of(
    file: &PartitionedFile,
    groups: &[RowGroupMetaData],
    least: u64,
) -> Option<Vec<(PartitionedFile, usize)>> {
    let size = i64::try_from(file.object_meta.size).ok()?;
    let begins = begins_of(file, groups)?;
    let mut units = Vec::new();
    let (mut from, mut bytes, mut rows) = (0, 0, 0usize);
    for (at, group) in groups.iter().enumerate() {
        rows = rows.checked_add(usize::try_from(group.num_rows()).ok()?)?;
        bytes += u64::try_from(group.compressed_size()).ok()?;
        let end = begins.get(at + 1).copied().unwrap_or(size);
        if bytes >= least || end == size {
            let unit = match (from, end) {
                (0, end) if end == size => file.clone(),
                (from, end) => file.clone().with_range(from, end),
            };
            units.push((unit, rows));
            (from, bytes, rows) = (end, 0, 0);
        }
    }
    Some(units)
}
