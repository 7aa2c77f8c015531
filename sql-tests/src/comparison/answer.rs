//! Whether an answer is the expected one.

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use warpline::QueryRun;
use warpline_tpch::verify::{self, Answer};

use super::plain::Expected;

/// Plans differ by design, and so do lists of settings, which has Warpline's.
pub(super) fn is_comparable(sql: &str) -> bool {
    let text = sql.trim_start().to_ascii_lowercase();
    !text.starts_with("explain") && !text.starts_with("show all") && !text.contains("df_settings")
}

/// How the answers differ: as multisets of rows, and in the order that the query asks for.
pub(super) fn difference(expected: &Expected, found: &QueryRun) -> Option<String> {
    // Row by row where the order is the same too.
    if let (Some(one), Some(other)) = (lines(&expected.batches), lines(&found.batches))
        && one == other
        && expected.schema.fields() == found.schema.fields()
    {
        return None;
    }
    let answer = |schema: &SchemaRef, batches: &[RecordBatch]| Answer::new(schema, batches);
    let ordering = &expected.ordering;
    match (
        answer(&expected.schema, &expected.batches),
        answer(&found.schema, &found.batches),
    ) {
        // A limit without an order: any of the rows will do.
        (Ok(expected), Ok(found)) if ordering.limit.is_some() && ordering.keys.is_empty() => {
            let rows = (expected.batch().num_rows(), found.batch().num_rows());
            (rows.0 != rows.1).then(|| format!("expected {} rows, found {}", rows.0, rows.1))
        }
        (Ok(expected), Ok(found)) => {
            verify::compare(&expected, &found, ordering).map(|d| d.to_string())
        }
        (Err(error), _) | (_, Err(error)) => Some(error.to_string()),
    }
}

/// Each row as text.
fn lines(batches: &[RecordBatch]) -> Option<Vec<String>> {
    let options = FormatOptions::default().with_null("NULL");
    let mut lines = Vec::new();
    for batch in batches {
        let columns = batch.columns().iter();
        let formatters: Result<Vec<_>, _> = columns
            .map(|column| ArrayFormatter::try_new(column, &options))
            .collect();
        let formatters = formatters.ok()?;
        for row in 0..batch.num_rows() {
            let cells = formatters
                .iter()
                .map(|formatter| formatter.value(row).try_to_string());
            lines.push(cells.collect::<Result<Vec<_>, _>>().ok()?.join("\u{1f}"));
        }
    }
    Some(lines)
}
