//! Runs sqllogictest files on a session.
//!
//! Values print as DataFusion's own sqllogictest driver prints them where that matters here: NULL as `NULL`, an empty
//! string as `(empty)`, floats with at most 12 significant digits. Column types are checked: `I` integers, `R` floats
//! and decimals, `T` text, `B` booleans, `D` dates, `P` timestamps, `?` anything else.

use std::path::Path;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Float64Type, Schema};
use arrow::error::ArrowError;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use async_trait::async_trait;
use datafusion::error::DataFusionError;
use sqllogictest::{AsyncDB, ColumnType, DBOutput, Runner};
use warpline::WarplineSession;
use warpline_tpch::QueryEngine;

/// Runs a file; the session keeps what the file creates.
///
/// # Errors
/// The first record whose outcome is not the expected one, with its line.
pub async fn run_file(session: Arc<WarplineSession>, path: &Path) -> Result<(), String> {
    let mut runner = Runner::new(|| {
        let session = Arc::clone(&session);
        async move { Ok(Database(session)) }
    });
    runner.with_column_validator(sqllogictest::strict_column_validator);
    runner
        .run_file_async(path)
        .await
        .map_err(|error| error.display(false).to_string())
}

/// A session as sqllogictest sees a database.
struct Database(Arc<WarplineSession>);

/// Why a statement failed.
#[derive(Debug, thiserror::Error)]
enum StatementError {
    #[error("{0}")]
    DataFusion(#[from] DataFusionError),
    #[error("{0}")]
    Arrow(#[from] ArrowError),
    #[error("{0}")]
    Panicked(#[from] tokio::task::JoinError),
}

/// The letter that stands for a column's type.
#[derive(Debug, Clone, PartialEq, Eq)]
struct TypeLetter(char);

impl ColumnType for TypeLetter {
    fn from_char(value: char) -> Option<Self> {
        "IRTBDP?".contains(value).then_some(Self(value))
    }

    fn to_char(&self) -> char {
        self.0
    }
}

impl TypeLetter {
    fn of(data_type: &DataType) -> Self {
        Self(match data_type {
            DataType::Dictionary(_, values) => return Self::of(values),
            found if found.is_integer() => 'I',
            found if found.is_floating() || found.is_decimal() => 'R',
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => 'T',
            DataType::Boolean => 'B',
            DataType::Date32 | DataType::Date64 => 'D',
            DataType::Timestamp(_, _) => 'P',
            _ => '?',
        })
    }
}

/// The letters of all columns.
pub(crate) fn type_letters(schema: &Schema) -> String {
    let fields = schema.fields().iter();
    fields.map(|f| TypeLetter::of(f.data_type()).0).collect()
}

#[async_trait]
impl AsyncDB for Database {
    type Error = StatementError;
    type ColumnType = TypeLetter;

    async fn run(&mut self, sql: &str) -> Result<DBOutput<TypeLetter>, StatementError> {
        let session = Arc::clone(&self.0);
        let text = sql.to_string();
        // On a worker thread, whose stack is large.
        let answer = tokio::spawn(async move { session.run(&text).await }).await??;
        let types: Vec<TypeLetter> = answer
            .schema
            .fields()
            .iter()
            .map(|f| TypeLetter::of(f.data_type()))
            .collect();
        let mut rows = Vec::new();
        for batch in &answer.batches {
            rows.extend(text_rows(batch)?);
        }
        Ok(match types.is_empty() && rows.is_empty() {
            true => DBOutput::StatementComplete(0),
            false => DBOutput::Rows { types, rows },
        })
    }

    async fn shutdown(&mut self) {}

    fn engine_name(&self) -> &str {
        "warpline"
    }
}

/// The cells of a batch as they print.
pub(crate) fn text_rows(batch: &RecordBatch) -> Result<Vec<Vec<String>>, ArrowError> {
    let columns: Vec<Vec<String>> = batch
        .columns()
        .iter()
        .map(text_column)
        .collect::<Result<_, _>>()?;
    Ok((0..batch.num_rows())
        .map(|row| columns.iter().map(|column| column[row].clone()).collect())
        .collect())
}

fn text_column(column: &ArrayRef) -> Result<Vec<String>, ArrowError> {
    if column.data_type().is_floating() {
        let wide = cast(column, &DataType::Float64)?;
        return Ok(wide
            .as_primitive::<Float64Type>()
            .iter()
            .map(|value| value.map_or("NULL".to_string(), float_text))
            .collect());
    }
    let options = FormatOptions::default().with_null("NULL");
    let formatter = ArrayFormatter::try_new(column, &options)?;
    (0..column.len())
        .map(|row| {
            let text = formatter.value(row).try_to_string()?;
            Ok(if text.is_empty() {
                "(empty)".to_string()
            } else {
                text
            })
        })
        .collect()
}

/// Twelve significant digits, without zeros at the end: sums in another order print the same.
fn float_text(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return value
            .abs()
            .to_string()
            .replace("inf", if value < 0.0 { "-Infinity" } else { "Infinity" });
    }
    let rounded: f64 = format!("{value:.11e}").parse().unwrap_or(value);
    rounded.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_print_with_twelve_digits() {
        for (value, text) in [
            (0.1 + 0.2, "0.3"),
            (-0.0, "0"),
            (1e300, &format!("1{}", "0".repeat(300))),
            (f64::NAN, "NaN"),
            (f64::NEG_INFINITY, "-Infinity"),
            (123.456, "123.456"),
        ] {
            assert_eq!(float_text(value), text);
        }
    }
}
