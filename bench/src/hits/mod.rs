//! `hits`, a table of visits of web pages with the 105 columns and types of ClickBench's, made of random numbers.
//!
//! What queries notice is like in the original: few users and pages in many rows and most in few, values that depend on the user or the
//! page, addresses and titles of which a fifth is distinct, search phrases in 13 of 100 rows, columns that are nearly always 0 or
//! empty, rows nearly in the order of time. Strings are UTF-8, moments are seconds since 1970 as 64-bit numbers, `EventDate` days
//! as 16-bit ones, as in the published files.

mod columns;
mod values;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use datafusion::arrow::array::{
    ArrayRef, Int16Array, Int32Array, Int64Array, StringBuilder, UInt16Array,
};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::error::DataFusionError;
use datafusion::parquet::arrow::ArrowWriter;
use datafusion::parquet::basic::Compression;
use datafusion::parquet::file::properties::WriterProperties;
use warpline_tpch::TpchError;

use crate::error::{Error, Result};
use columns::{COLUMNS, Kind, Width};
use values::{Row, Rows};

/// Rows that are made at a time.
const BATCH: u64 = 32_768;

/// The table of a size. The same size and seed are the same rows, however many files they are in.
#[derive(Debug, Clone, Copy)]
pub struct Hits {
    /// Rows.
    pub rows: u64,
    /// Which table of this size.
    pub seed: u64,
}

impl Hits {
    /// Its schema.
    pub fn schema() -> SchemaRef {
        Arc::new(columns::schema())
    }

    /// Some of its rows.
    ///
    /// # Errors
    /// When a batch cannot hold them.
    pub fn batch(&self, from: u64, count: u64) -> Result<RecordBatch> {
        let of = Rows {
            rows: self.rows,
            seed: self.seed,
        };
        let rows: Vec<Row> = (from..from + count).map(|row| of.row(row)).collect();
        let columns = COLUMNS.iter().enumerate();
        let columns = columns.map(|(at, (_, width, kind))| column(of, &rows, at, *width, *kind));
        let batch = RecordBatch::try_new(Self::schema(), columns.collect());
        batch.map_err(|error| DataFusionError::from(error).into())
    }

    /// Writes it as `files` parquet files to a folder that is not there yet, by so many threads; returns their bytes.
    ///
    /// # Errors
    /// [`TpchError::Io`] where a file cannot be written, or is there; [`Error::Bench`] when `cancel` was set. What was written stays.
    pub fn write(
        &self,
        folder: &Path,
        files: usize,
        threads: usize,
        cancel: &AtomicBool,
    ) -> Result<u64> {
        let io = |what, path: &Path, error| Error::from(TpchError::io(what, path, error));
        if let Some(parent) = folder.parent() {
            fs::create_dir_all(parent).map_err(|e| io("create directory", parent, e))?;
        }
        fs::create_dir(folder).map_err(|e| io("create directory", folder, e))?;
        let files = files.max(1);
        let (next, bytes) = (AtomicUsize::new(0), AtomicU64::new(0));
        let work = || -> Result<()> {
            loop {
                let file = next.fetch_add(1, Ordering::Relaxed);
                if file >= files {
                    return Ok(());
                }
                let path = folder.join(format!("part-{file:05}.parquet"));
                self.write_file(&path, file as u64, files as u64, cancel)?;
                let size = fs::metadata(&path).map_err(|e| io("read the size of", &path, e))?;
                bytes.fetch_add(size.len(), Ordering::Relaxed);
            }
        };
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..threads.clamp(1, files))
                .map(|_| scope.spawn(work))
                .collect();
            let mut outcome = Ok(());
            for worker in workers {
                let ended = worker
                    .join()
                    .unwrap_or_else(|_| Err(Error::Bench("a thread that made rows broke".into())));
                outcome = outcome.and(ended);
            }
            outcome
        })?;
        Ok(bytes.into_inner())
    }

    fn write_file(&self, path: &PathBuf, file: u64, files: u64, cancel: &AtomicBool) -> Result<()> {
        let damaged = |error| Error::from(DataFusionError::from(error));
        let place = |file: u64| {
            let row = u128::from(self.rows) * u128::from(file) / u128::from(files);
            row as u64
        };
        let created = File::create_new(path);
        let created = created.map_err(|error| TpchError::io("create", path, error))?;
        let properties = WriterProperties::builder()
            .set_compression(Compression::SNAPPY)
            .build();
        let mut writer =
            ArrowWriter::try_new(created, Self::schema(), Some(properties)).map_err(damaged)?;
        let (mut from, to) = (place(file), place(file + 1));
        while from < to {
            if cancel.load(Ordering::Relaxed) {
                return Err(Error::Bench("stopped".into()));
            }
            let count = BATCH.min(to - from);
            writer.write(&self.batch(from, count)?).map_err(damaged)?;
            from += count;
        }
        writer.close().map_err(damaged)?;
        Ok(())
    }
}

fn column(of: Rows, rows: &[Row], at: usize, width: Width, kind: Kind) -> ArrayRef {
    let numbers = rows.iter().map(|row| of.number(row, at, kind));
    match width {
        Width::I16 => Arc::new(numbers.map(|n| n as i16).collect::<Int16Array>()),
        Width::U16 => Arc::new(numbers.map(|n| n as u16).collect::<UInt16Array>()),
        Width::I32 => Arc::new(numbers.map(|n| n as i32).collect::<Int32Array>()),
        Width::I64 => Arc::new(numbers.collect::<Int64Array>()),
        Width::Text => {
            let mut texts = StringBuilder::with_capacity(rows.len(), rows.len() * 16);
            let mut text = String::new();
            for row in rows {
                of.text(row, at, kind, &mut text);
                texts.append_value(&text);
            }
            Arc::new(texts.finish())
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use std::collections::HashSet;

    use datafusion::arrow::array::{Array, AsArray};
    use datafusion::arrow::compute::concat_batches;
    use datafusion::arrow::datatypes::{Int16Type, Int64Type};
    use datafusion::prelude::{ParquetReadOptions, SessionContext};

    use super::*;

    const HITS: Hits = Hits {
        rows: 20_000,
        seed: 1,
    };

    fn distinct(batch: &RecordBatch, column: &str) -> usize {
        let texts = batch.column_by_name(column).unwrap().as_string::<i32>();
        texts.iter().collect::<HashSet<_>>().len()
    }

    #[test]
    fn rows_do_not_depend_on_where_a_batch_begins() {
        let whole = HITS.batch(0, 500).unwrap();
        let parts = [HITS.batch(0, 123).unwrap(), HITS.batch(123, 377).unwrap()];
        assert_eq!(whole, concat_batches(&whole.schema(), &parts).unwrap());
        let other = Hits { seed: 2, ..HITS };
        assert_ne!(whole, other.batch(0, 500).unwrap());
        assert_eq!(HITS.batch(0, 0).unwrap().num_rows(), 0);
    }

    #[test]
    fn values_are_skewed_as_in_the_original() {
        let rows = HITS.batch(0, HITS.rows).unwrap();
        let share = |column: &str| distinct(&rows, column) as f64 / HITS.rows as f64;
        for (column, least, most) in [("URL", 0.12, 0.35), ("Title", 0.05, 0.3)] {
            let share = share(column);
            assert!((least..most).contains(&share), "{column}: {share}");
        }
        let phrases = rows.column_by_name("SearchPhrase").unwrap();
        let phrases = phrases.as_string::<i32>();
        let empty = (0..phrases.len()).filter(|i| phrases.value(*i).is_empty());
        let empty = empty.count() as f64 / HITS.rows as f64;
        assert!((0.8..0.95).contains(&empty), "{empty}");
        let users = rows.column_by_name("UserID").unwrap();
        let users = users.as_primitive::<Int64Type>().values();
        let users = users.iter().collect::<HashSet<_>>().len() as f64 / HITS.rows as f64;
        assert!((0.1..0.3).contains(&users), "{users}");
        let engine = rows.column_by_name("AdvEngineID").unwrap();
        let engine = engine.as_primitive::<Int16Type>().values();
        assert!(engine.iter().all(|v| (0..20).contains(v)));
        assert!(engine.iter().any(|v| *v > 0));
    }

    #[tokio::test]
    async fn files_hold_all_rows() {
        let folder = tempfile::tempdir().unwrap();
        let hits = folder.path().join("data/hits");
        let bytes = HITS.write(&hits, 3, 2, &AtomicBool::new(false)).unwrap();
        assert!(bytes > 100_000);
        let context = SessionContext::new();
        let options = ParquetReadOptions::default();
        let path = hits.to_str().unwrap();
        context
            .register_parquet("hits", path, options)
            .await
            .unwrap();
        let sql = r#"SELECT count(*), count(DISTINCT "WatchID"), max("EventDate") - min("EventDate") FROM hits"#;
        let batches = context.sql(sql).await.unwrap().collect().await.unwrap();
        let text = format!("{:?}", batches[0].columns());
        assert!(
            text.matches("20000").count() == 2 && text.contains("31") | text.contains("30"),
            "{text}"
        );
        // What is there is not written over.
        assert!(HITS.write(&hits, 3, 2, &AtomicBool::new(false)).is_err());
        let stopped = HITS.write(&folder.path().join("other"), 1, 1, &AtomicBool::new(true));
        assert!(stopped.is_err());
    }
}
