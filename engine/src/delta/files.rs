//! The files of a version as a table of parquet files: partition columns are values of files, deletion vectors choices of their rows.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::SystemTime;

use datafusion::arrow::array::{AsArray, BooleanArray, RecordBatch};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};
use datafusion::catalog::Session;
use datafusion::common::stats::Precision;
use datafusion::common::{ColumnStatistics, DFSchema, Statistics, TableReference, project_schema};
use datafusion::datasource::file_format::FileFormat;
use datafusion::datasource::file_format::parquet::ParquetFormat;
use datafusion::datasource::listing::{ListingTableUrl, PartitionedFile};
use datafusion::datasource::physical_plan::parquet::ParquetRowSelection;
use datafusion::datasource::physical_plan::{FileGroup, FileScanConfigBuilder};
use datafusion::datasource::table_schema::TableSchema;
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::Expr;
use datafusion::object_store::ObjectMeta;
use datafusion::object_store::path::Path;
use datafusion::parquet::arrow::arrow_reader::RowSelection;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::empty::EmptyExec;
use datafusion::scalar::ScalarValue;
use deltalake_core::DeltaTable;
use deltalake_core::delta_datafusion::DeltaScanNext;
use deltalake_core::kernel::LogicalFileView;
use url::Url;
use warpline_gpu::tables::{ChosenRows, SealedScanExec};

use super::error::failed;

/// A column's name in files that is not its name in the table.
const PHYSICAL_NAME: &str = "delta.columnMapping.physicalName";

/// The files of a version, where nothing but parquet is needed to read them.
pub(super) struct VersionFiles {
    root: ListingTableUrl,
    /// Columns of the files, and behind them those of partitions.
    schema: TableSchema,
    /// Where a column of the version is in `schema`.
    position: Vec<usize>,
    files: Vec<PartitionedFile>,
    /// Has a file rows that are deleted?
    chosen: bool,
}

impl VersionFiles {
    /// The files of the table's loaded version; `None` if only the crate of Delta Lake can read them: columns have other names in the
    /// files, or files lie elsewhere.
    ///
    /// # Errors
    /// When the log is damaged, or a deletion vector cannot be read.
    pub(super) async fn of(
        session: &dyn Session,
        name: &TableReference,
        location: &str,
        table: &DeltaTable,
        provider: &DeltaScanNext,
        schema: &Schema,
    ) -> Result<Option<Self>> {
        let state = table.snapshot().map_err(|error| failed(location, error))?;
        let logged = state.snapshot().arrow_schema();
        let renamed = |field: &FieldRef| {
            let physical = field.metadata().get(PHYSICAL_NAME);
            physical.is_some_and(|physical| physical != field.name())
        };
        if logged.fields().iter().any(renamed) || state.table_config().column_mapping_mode.is_some()
        {
            return Ok(None);
        }
        let views: Vec<LogicalFileView> = state.log_data().iter().collect();
        if views.iter().any(|view| is_elsewhere(&view.path())) {
            return Ok(None);
        }
        let partitions = state.metadata().partition_columns().to_vec();
        let is_partition = |field: &FieldRef| partitions.contains(field.name());
        let (of_partitions, of_files): (Vec<FieldRef>, Vec<FieldRef>) =
            schema.fields().iter().cloned().partition(is_partition);
        let position = schema.fields().iter().map(|field| {
            let at = |fields: &[FieldRef]| fields.iter().position(|f| f.name() == field.name());
            at(&of_files).or_else(|| Some(of_files.len() + at(&of_partitions)?))
        });
        let position = position.collect::<Option<Vec<_>>>().unwrap_or_default();
        let root = ListingTableUrl::try_new(table.table_url().clone(), None)?;
        let mut version = Self {
            root,
            schema: TableSchema::builder(Arc::new(Schema::new(of_files)))
                .with_table_partition_cols(of_partitions)
                .build(),
            position,
            files: Vec::with_capacity(views.len()),
            chosen: false,
        };
        let deleted = views
            .iter()
            .any(|v| v.deletion_vector_descriptor().is_some());
        let mut kept = match deleted {
            true => kept_rows(session, provider).await?,
            false => HashMap::new(),
        };
        for view in &views {
            let file = version.file(view, location, &mut kept)?;
            version
                .files
                .push(file.with_table_reference(Some(name.clone())));
        }
        version.chosen = deleted;
        Ok(Some(version))
    }

    /// A file of the log.
    fn file(
        &self,
        view: &LogicalFileView,
        location: &str,
        kept: &mut HashMap<Path, RowSelection>,
    ) -> Result<PartitionedFile> {
        let damaged =
            |what: String| DataFusionError::Plan(format!("Delta table {location}: {what}"));
        let path = view.object_store_path();
        let path = Path::from_iter(self.root.prefix().parts().chain(path.parts()));
        let size = u64::try_from(view.size())
            .map_err(|_| damaged(format!("file {path} has size {}", view.size())))?;
        let logged = view.modification_datetime();
        let meta = ObjectMeta {
            last_modified: logged.map_err(|error| failed(location, error))?,
            location: path,
            size,
            e_tag: None,
            version: None,
        };
        let mut file = PartitionedFile::new_from_meta(self.as_on_disk(meta));
        let raw = view.partition_values_map();
        for field in self.schema.table_partition_cols() {
            let text = raw.get(field.name()).and_then(Option::as_deref);
            let value = partition_value(text, field);
            file.partition_values.push(value.map_err(|error| {
                let text = text.unwrap_or_default();
                damaged(format!("partition {}={text}: {error}", field.name()))
            })?);
        }
        let mut rows = records(view);
        if let Some(vector) = view.deletion_vector_descriptor() {
            let selection = kept.remove(file.path()).ok_or_else(|| {
                damaged(format!("the deletion vector of {} is missing", file.path()))
            })?;
            rows = rows.map(|_| selection.row_count());
            file = file
                .with_extension(ChosenRows(format!("{vector:?}").into()))
                .with_extension(ParquetRowSelection::new(selection));
        }
        file.statistics = Some(Arc::new(self.statistics(&file, rows)));
        Ok(file)
    }

    /// A local file with the time that the file system has: the log's is coarser, and what is known of files is known by their times.
    fn as_on_disk(&self, mut meta: ObjectMeta) -> ObjectMeta {
        if self.root.object_store().as_str() == "file:///"
            && let Ok(found) = std::fs::metadata(format!("/{}", meta.location))
            && found.len() == meta.size
            && let Ok(time) = found.modified()
        {
            meta.last_modified = <SystemTime as Into<_>>::into(time);
        }
        meta
    }

    /// What the log tells of a file: its rows, and which partition columns are NULL.
    fn statistics(&self, file: &PartitionedFile, rows: Option<usize>) -> Statistics {
        let rows = rows.map_or(Precision::Absent, Precision::Exact);
        let columns = self.schema.file_schema().fields().len();
        let mut column_statistics = vec![ColumnStatistics::new_unknown(); columns];
        column_statistics.extend(file.partition_values.iter().map(|value| ColumnStatistics {
            null_count: match value.is_null() {
                true => rows,
                false => Precision::Exact(0),
            },
            ..ColumnStatistics::new_unknown()
        }));
        let bytes = usize::try_from(file.object_meta.size).unwrap_or(usize::MAX);
        Statistics {
            num_rows: rows,
            total_byte_size: Precision::Inexact(bytes),
            column_statistics,
        }
    }

    /// A scan of some columns of the version. Filters of partition columns alone leave out files.
    ///
    /// # Errors
    /// When a filter does not fit the columns.
    pub(super) async fn scan(
        &self,
        session: &dyn Session,
        projection: &[usize],
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let projection: Vec<usize> = projection.iter().map(|at| self.position[*at]).collect();
        let table_schema = self.schema.table_schema();
        let files = self.chosen_files(session, filters)?;
        if files.is_empty() {
            let schema = project_schema(table_schema, Some(&projection))?;
            return Ok(Arc::new(EmptyExec::new(schema)));
        }
        let each = files.iter().filter_map(|file| file.statistics.as_deref());
        let statistics = Statistics::try_merge_iter(each, table_schema)?;
        let mut options = session.default_table_options().parquet;
        // Times of old writers are read as what the log says they are.
        options.global.coerce_int96 = Some("us".into());
        let format = ParquetFormat::default().with_options(options);
        let partitions = session.config().target_partitions();
        let source = format.file_source(self.schema.clone());
        let config = FileScanConfigBuilder::new(self.root.object_store(), source)
            .with_file_groups(FileGroup::new(files).split_files(partitions))
            .with_statistics(statistics)
            .with_projection_indices(Some(projection))?
            .with_limit(limit)
            .build();
        let scan = format.create_physical_plan(session, config).await?;
        Ok(match self.chosen {
            true => Arc::new(SealedScanExec::new(scan)),
            false => scan,
        })
    }

    /// The files whose partition values pass the filters of partition columns alone.
    fn chosen_files(
        &self,
        session: &dyn Session,
        filters: &[Expr],
    ) -> Result<Vec<PartitionedFile>> {
        let partitions = self.schema.table_partition_cols();
        let of_partitions = |filter: &&Expr| {
            let columns = filter.column_refs();
            let is_partition = |name: &str| partitions.iter().any(|field| field.name() == name);
            !columns.is_empty() && columns.iter().all(|column| is_partition(&column.name))
        };
        let filters: Vec<&Expr> = filters.iter().filter(of_partitions).collect();
        if filters.is_empty() || self.files.is_empty() {
            return Ok(self.files.clone());
        }
        let columns = (0..partitions.len()).map(|at| {
            let values = self
                .files
                .iter()
                .map(|file| file.partition_values[at].clone());
            ScalarValue::iter_to_array(values)
        });
        let schema: SchemaRef = Arc::new(Schema::new(partitions.clone()));
        let batch = RecordBatch::try_new(Arc::clone(&schema), columns.collect::<Result<_>>()?)?;
        let schema = DFSchema::try_from(schema)?;
        let mut keep = vec![true; self.files.len()];
        for filter in filters {
            let filter = session.create_physical_expr(filter.clone(), &schema)?;
            let passes = filter.evaluate(&batch)?.into_array(batch.num_rows())?;
            // What is no condition is judged where rows are.
            let Some(passes) = passes.as_boolean_opt() else {
                continue;
            };
            for (keep, passes) in keep.iter_mut().zip(passes) {
                *keep &= passes == Some(true);
            }
        }
        let files = self.files.iter().zip(keep);
        Ok(files
            .filter(|(_, keep)| *keep)
            .map(|(file, _)| file.clone())
            .collect())
    }
}

/// Does a file of the log lie outside of the table's folder? So do those of a shallow clone.
fn is_elsewhere(path: &str) -> bool {
    path.contains("://") || path.starts_with('/')
}

/// The rows that deletion vectors leave, by file.
async fn kept_rows(
    session: &dyn Session,
    provider: &DeltaScanNext,
) -> Result<HashMap<Path, RowSelection>> {
    let mut kept = HashMap::new();
    for vector in provider.deletion_vectors(session).await? {
        let url = Url::parse(&vector.filepath)
            .map_err(|error| DataFusionError::External(Box::new(error)))?;
        let mask = BooleanArray::from(vector.keep_mask);
        kept.insert(
            Path::from_url_path(url.path())
                .map_err(|error| DataFusionError::External(error.into()))?,
            RowSelection::from_filters(&[mask]),
        );
    }
    Ok(kept)
}

/// Rows of a file, those that are deleted included.
fn records(view: &LogicalFileView) -> Option<usize> {
    view.num_records().or_else(|| {
        let stats: serde_json::Value = serde_json::from_str(&view.stats()?).ok()?;
        usize::try_from(stats.get("numRecords")?.as_u64()?).ok()
    })
}

/// A value of the log, where an empty text is NULL.
fn partition_value(text: Option<&str>, field: &Field) -> Result<ScalarValue> {
    let of = |data_type: &DataType| match text {
        None | Some("") => ScalarValue::try_from(data_type),
        Some(text) => ScalarValue::try_from_string(text.to_string(), data_type),
    };
    match field.data_type() {
        DataType::Dictionary(key, value) => {
            Ok(ScalarValue::Dictionary(key.clone(), Box::new(of(value)?)))
        }
        plain => of(plain),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partition_values() {
        let field = |data_type| Field::new("p", data_type, true);
        let value = |text, data_type| partition_value(text, &field(data_type));
        let date = value(Some("2026-01-31"), DataType::Date32).expect("a date");
        assert_eq!(date, ScalarValue::Date32(Some(20_484)));
        let null = value(Some(""), DataType::Int64).expect("NULL");
        assert_eq!(null, ScalarValue::Int64(None));
        assert!(value(Some("x"), DataType::Int64).is_err());
        let wrapped = DataType::Dictionary(Box::new(DataType::UInt16), Box::new(DataType::Utf8));
        let text = value(Some("ü"), wrapped.clone()).expect("a text");
        assert_eq!(text.data_type(), wrapped);
        assert!(value(None, wrapped).expect("NULL").is_null());
    }
}
