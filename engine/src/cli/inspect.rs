//! `\device` and `\memory`: the device's properties, and the contents of its memory.

use std::collections::BTreeMap;
use std::sync::Arc;

use datafusion::arrow::array::{Array, AsArray, RecordBatch, StringArray};
use datafusion::arrow::datatypes::{DataType, Field, Schema};
use datafusion::error::DataFusionError;
use warpline::{ByteSize, DeviceState, ResidentColumn, WarplineSession};

/// Characters of a line of a long text.
const LINE: usize = 64;

/// The device in lines of text.
pub(super) fn device(session: &WarplineSession) -> String {
    let environment = warpline::environment(session);
    let mut lines = vec![format!("device     {}", session.device().name())];
    for device in &environment.devices {
        let budget = ByteSize(usize::try_from(device.budget_bytes).unwrap_or(usize::MAX));
        lines.push(format!(
            "memory     {}: Warpline uses at most {budget}",
            device.id
        ));
    }
    if let Some(device) = &environment.device {
        let size = |bytes: u64| ByteSize(usize::try_from(bytes).unwrap_or(usize::MAX));
        lines.push(format!(
            "memory     {}, of which Warpline uses at most {}",
            size(device.memory_bytes),
            size(device.budget_bytes)
        ));
        if !device.compute_capability.is_empty() {
            lines.push(format!(
                "processor  {} multiprocessors, compute capability {}, L2 cache {}",
                device.multiprocessors,
                device.compute_capability,
                size(device.l2_bytes)
            ));
        }
        if let Some(bandwidth) = device.copy_gb_per_s {
            lines.push(format!(
                "bandwidth  {bandwidth:.0} GB/s of a plain copy, read + written"
            ));
        }
        let driver = match device.driver.as_str() {
            "" => String::new(),
            driver => format!("driver {driver}, "),
        };
        lines.push(format!("compiler   {driver}{}", device.compiler));
    } else {
        lines.push("Queries run on the CPU; `warpline devices` shows why.".into());
    }
    let host = &environment.host;
    lines.push(format!(
        "host       {} cores{}",
        host.cores,
        host.processor
            .as_ref()
            .map_or(String::new(), |name| format!(", {name}"))
    ));
    lines.push(format!(
        "versions   Warpline {} ({} build), DataFusion {}",
        environment.versions.warpline, environment.versions.build, environment.versions.datafusion
    ));
    lines.join("\n")
}

/// Sums over the columns of a table.
#[derive(Default)]
struct Sum {
    columns: usize,
    rows: usize,
    bytes: usize,
    host_bytes: usize,
    hits: u64,
    pinned: usize,
}

/// What the memory of each device holds: sums, then a line a table.
pub(super) fn memory(session: &WarplineSession) -> String {
    let states = session.device().states();
    let mut parts: Vec<String> = match states.as_slice() {
        [] => return "The CPU answers: there is no device memory.".into(),
        [only] => vec![memory_of(only)],
        several => {
            let named =
                |state: &DeviceState| format!("device    {}\n{}", state.name, memory_of(state));
            let each: Vec<String> = several.iter().map(named).collect();
            vec![each.join("\n\n")]
        }
    };
    let pinned = session.pinned_tables();
    if !pinned.is_empty() && states.iter().any(|state| !state.columns.is_empty()) {
        parts.push(format!("pinned    {}", pinned.join(", ")));
    }
    parts.join("\n")
}

fn memory_of(state: &DeviceState) -> String {
    let mut text = state.memory.to_string();
    let mut tables: BTreeMap<&str, Sum> = BTreeMap::new();
    for column in &state.columns {
        let sum = tables.entry(&column.table).or_default();
        sum.columns += 1;
        sum.rows = sum.rows.max(column.rows);
        sum.bytes += column.bytes;
        sum.host_bytes += column.host_bytes;
        sum.hits += column.hits;
        sum.pinned += usize::from(column.pinned);
    }
    if tables.is_empty() {
        return text;
    }
    let header = [
        "table", "columns", "rows", "device", "host", "uses", "pinned",
    ];
    let mut rows = vec![header.map(String::from).to_vec()];
    rows.extend(tables.into_iter().map(|(name, sum)| {
        vec![
            name.to_string(),
            sum.columns.to_string(),
            sum.rows.to_string(),
            ByteSize(sum.bytes).to_string(),
            ByteSize(sum.host_bytes).to_string(),
            sum.hits.to_string(),
            sum.pinned.to_string(),
        ]
    }));
    text.push_str("\n\n");
    text.push_str(&aligned(&rows, 1));
    text
}

/// A line a column that is kept, of one table or of all.
pub(super) fn columns(session: &WarplineSession, table: Option<&str>) -> String {
    let states = session.device().states();
    let several = states.len() > 1;
    let shown: Vec<(String, ResidentColumn)> = states
        .into_iter()
        .flat_map(|state| {
            let name = state.name;
            state
                .columns
                .into_iter()
                .map(move |column| (name.clone(), column))
        })
        .filter(|(_, column)| table.is_none_or(|table| column.table == table))
        .collect();
    if shown.is_empty() {
        return match table {
            Some(table) => format!("No column of '{table}' is kept; \\memory shows the tables."),
            None => "No columns are kept.".into(),
        };
    }
    let mut header = vec!["table", "column", "encoding"];
    header.extend(several.then_some("on"));
    header.extend(["rows", "device", "host", "uses", "pinned"]);
    let mut rows = vec![header.into_iter().map(String::from).collect::<Vec<_>>()];
    rows.extend(shown.into_iter().map(|(device, column)| {
        let mut row = vec![column.table, column.column, column.encoding];
        row.extend(several.then_some(device));
        row.extend([
            column.rows.to_string(),
            ByteSize(column.bytes).to_string(),
            ByteSize(column.host_bytes).to_string(),
            column.hits.to_string(),
            if column.pinned { "yes" } else { "" }.to_string(),
        ]);
        row
    }));
    aligned(&rows, if several { 4 } else { 3 })
}

/// Columns side by side, the first `words` of them to the left.
fn aligned(rows: &[Vec<String>], words: usize) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let lines = rows.iter().map(|row| {
        let cells = row.iter().zip(&widths).enumerate();
        let cells = cells.map(|(column, (cell, &width))| match column < words {
            true => format!("{cell:<width$}"),
            false => format!("{cell:>width$}"),
        });
        cells.collect::<Vec<_>>().join("  ").trim_end().to_string()
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// The batch with long texts on several lines.
pub(super) fn wrapped(batch: &RecordBatch) -> Result<RecordBatch, DataFusionError> {
    let mut fields = Vec::new();
    let mut columns = Vec::new();
    for (field, column) in batch.schema().fields().iter().zip(batch.columns()) {
        if *field.data_type() != DataType::Utf8 {
            fields.push(Arc::clone(field));
            columns.push(Arc::clone(column));
            continue;
        }
        let texts = column.as_string::<i32>().iter();
        let texts: StringArray = texts.map(|text| text.map(wrap)).collect();
        fields.push(Arc::new(Field::new(field.name(), DataType::Utf8, true)));
        columns.push(Arc::new(texts) as Arc<dyn Array>);
    }
    Ok(RecordBatch::try_new(
        Arc::new(Schema::new(fields)),
        columns,
    )?)
}

/// Breaks lines between words.
fn wrap(text: &str) -> String {
    let (mut out, mut length) = (String::new(), 0);
    for word in text.split_whitespace() {
        let more = word.chars().count();
        if length > 0 && length + 1 + more > LINE {
            out.push('\n');
            length = 0;
        } else if length > 0 {
            out.push(' ');
            length += 1;
        }
        out.push_str(word);
        length += more;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_have_short_lines_and_all_words() {
        let text = "word ".repeat(40) + &"x".repeat(100);
        let wrapped = wrap(&text);
        assert!(wrapped.lines().count() > 3);
        assert!(
            wrapped.lines().all(|l| l.len() <= LINE || !l.contains(' ')),
            "{wrapped}"
        );
        let words = |text: &str| {
            text.split_whitespace()
                .map(String::from)
                .collect::<Vec<_>>()
        };
        assert_eq!(words(&wrapped), words(&text));
        assert_eq!(wrap(""), "");
    }
}
