//! Prices of fragments that only filter, compute and limit rows, on the device and on the CPU.
//!
//! Joins, groups and sorts cost the CPU tens of nanoseconds a row, more than moving a row over the link: they always
//! go to the device. A filter or an expression costs the CPU a few nanoseconds, so the rows that remain decide: the
//! device scans at the speed of its memory, but returns every row of the answer.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use datafusion::scalar::ScalarValue;
use warpline_gpu::expr::{Expr, Node};
use warpline_gpu::machine::Machine;

use super::Price;
use super::price::ms;
use crate::rel::{Rel, RelKind, RelRef};
use crate::stats::Estimator;

/// A launch, the copy of its result, the stream's synchronisation and the overhead of plan nodes, in milliseconds:
/// the same as for [`crate::config::DEFAULT_MIN_ROWS`].
const RUN_MS: f64 = 0.1;
/// Making an Arrow value on the host from the copied bytes, in nanoseconds of one core.
pub(super) const RETURN_NS: f64 = 3.0;
/// Reading, encoding and copying a value into page-locked memory, in nanoseconds of one core.
pub(super) const ENCODE_NS: f64 = 5.0;
/// Decoding a value of a file, in nanoseconds of one core; batches in memory need none.
pub(super) const DECODE_NS: f64 = 4.0;
/// What decoding a string takes more.
const DECODE_STRING_NS: f64 = 36.0;
/// Opening files, reading their footers and starting tasks for them, in milliseconds.
const OPEN_MS: f64 = 1.0;
/// The cost of a row in a filter of DataFusion, in nanoseconds of one core: passing batches of 8,192 rows, making the
/// selection and copying the selected rows.
pub(super) const FILTER_NS: f64 = 8.0;
/// The cost of an operator on a value of a batch, in nanoseconds of one core: a pass over cached memory.
const OPERATOR_NS: f64 = 2.0;
/// The cost of a function of floats on a value.
const MATH_NS: f64 = 8.0;
/// The cost of an operator on a string: a comparison through offsets, or a search.
const STRING_NS: f64 = 40.0;
/// Queries that share the cost of loading a column. Tables are loaded to be queried again, and a column that is
/// scanned once is mostly scanned often; a query that would pay only after thousands of others stays on the CPU.
pub(super) const QUERIES: f64 = 10.0;

/// The input of a fragment from one table.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Traffic {
    /// Rows.
    pub(crate) rows: f64,
    /// Columns that are read.
    pub(crate) columns: f64,
    /// Columns of strings among them.
    pub(crate) strings: f64,
    /// Bytes of these columns in the device's encoding.
    pub(crate) bytes: f64,
    /// They are resident.
    pub(crate) resident: bool,
    /// They stay resident after the query.
    pub(crate) kept: bool,
    /// They come from files.
    pub(crate) files: bool,
    /// The device decodes these, where there are many rows.
    pub(crate) by_device: bool,
    /// The CPU computes them.
    pub(crate) input: bool,
}

/// The two prices of a fragment.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Prices {
    /// On the device.
    pub(crate) device: Price,
    /// On the CPU, in milliseconds.
    pub(crate) cpu: f64,
}

impl Prices {
    /// Is the device cheaper?
    pub(crate) fn pays(&self) -> bool {
        self.device.ms < self.cpu
    }
}

impl fmt::Display for Prices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} on the CPU, {} on the device",
            ms(self.cpu),
            self.device
        )
    }
}

/// The prices of `rel` over these tables, on a host with `cores`. `None` where it joins, groups or sorts: that always
/// goes to the device.
pub(crate) fn prices(
    rel: &RelRef,
    estimator: &Estimator<'_>,
    tables: &[Traffic],
    machine: &Machine,
    cores: usize,
) -> Option<Prices> {
    let mut substantial = false;
    rel.for_each(&mut |rel| {
        substantial |= matches!(
            rel.kind,
            RelKind::Join(_) | RelKind::Aggregate { .. } | RelKind::Window { .. }
        ) || matches!(&rel.kind, RelKind::Sort { keys, .. } if !keys.is_empty());
    });
    if substantial {
        return None;
    }
    let cores = cores.max(1) as f64;
    let sum = |of: &dyn Fn(&Traffic) -> f64| tables.iter().map(of).sum::<f64>();
    let bytes = sum(&|t| t.bytes);
    // What does not fit comes over the link with every query.
    let rate = match bytes <= machine.memory {
        true => machine.read,
        false => machine.link,
    };
    let load = |t: &Traffic| match t.resident {
        true => 0.0,
        false => {
            let once = t.rows * t.columns * ENCODE_NS * 1e-6 / cores + t.bytes / machine.link * 1e3;
            once / if t.kept { QUERIES } else { 1.0 }
        }
    };
    let rows = estimator.rows(rel);
    let width: f64 = rel.columns.iter().map(|c| bytes_of(&c.data_type)).sum();
    let returned =
        rows * width / machine.link * 1e3 + rows * rel.columns.len() as f64 * RETURN_NS * 1e-6;
    let mut device = Price::default()
        .with("run", RUN_MS)
        .with("scan", bytes / rate * 1e3);
    if tables.iter().any(|t| !t.resident) {
        device = device.with("load, shared by queries", sum(&load));
    }
    // A limit lets the CPU stop reading early.
    let read = share_read(rel, estimator);
    let decode = sum(&|t| match t.files {
        true => t.rows * (t.columns * DECODE_NS + t.strings * DECODE_STRING_NS),
        false => 0.0,
    });
    let open = match tables.iter().any(|t| t.files) {
        true => OPEN_MS,
        false => 0.0,
    };
    Some(Prices {
        device: device.with("rows back", returned),
        cpu: open + (decode * read + computing_all(rel, estimator)) * 1e-6 / cores,
    })
}

/// Bytes of a value of a type as it leaves the device; an estimate for strings.
pub(crate) fn bytes_of(data_type: &arrow::datatypes::DataType) -> f64 {
    const STRING: f64 = 24.0;
    data_type
        .primitive_width()
        .map_or(STRING, |bytes| bytes as f64)
}

/// The share of its input that a limit without an order reads.
pub(super) fn share_of_limit(rel: &RelRef, estimator: &Estimator<'_>) -> f64 {
    match &rel.kind {
        RelKind::Sort {
            input,
            skip,
            fetch: Some(fetch),
            ..
        } => {
            let wanted = skip.saturating_add(*fetch) as f64;
            (wanted / estimator.rows(input).max(1.0)).min(1.0)
        }
        _ => 1.0,
    }
}

/// The share of the tables below that a chain of operators reads.
fn share_read(rel: &RelRef, estimator: &Estimator<'_>) -> f64 {
    let below = match rel.inputs().as_slice() {
        [input] => share_read(input, estimator),
        _ => 1.0,
    };
    below * share_of_limit(rel, estimator)
}

/// Nanoseconds of one core for the computed columns of all rows.
pub(super) fn computing_all(rel: &RelRef, estimator: &Estimator<'_>) -> f64 {
    computing(rel, estimator, 1.0, &mut HashSet::new())
}

/// Nanoseconds of one core for the computed columns, where `share` of the rows remain; nothing for what has been `seen`.
fn computing(
    rel: &RelRef,
    estimator: &Estimator<'_>,
    share: f64,
    seen: &mut HashSet<*const Rel>,
) -> f64 {
    if !seen.insert(Arc::as_ptr(rel)) {
        return 0.0;
    }
    let share = share * share_of_limit(rel, estimator);
    let below: f64 = rel
        .inputs()
        .into_iter()
        .map(|input| computing(input, estimator, share, seen))
        .sum();
    let (input, exprs, each) = match &rel.kind {
        RelKind::Filter { input, conjuncts } => (input, conjuncts, FILTER_NS),
        RelKind::Project { input, exprs } => (input, exprs, 0.0),
        _ => return below,
    };
    let operators: f64 = exprs.iter().map(operators).sum();
    below + estimator.rows(input) * share * (each + operators)
}

/// Nanoseconds a row for the operators of an expression.
pub(super) fn operators(expr: &Expr) -> f64 {
    match &expr.node {
        Node::Column(_) | Node::Literal(_) | Node::RowNumber => 0.0,
        Node::PerDistinct { .. } => STRING_NS,
        Node::PerCombination { inputs, .. } => {
            STRING_NS + inputs.iter().map(operators).sum::<f64>()
        }
        Node::Not(e)
        | Node::Negate(e)
        | Node::Cast { value: e, .. }
        | Node::IsNull(e)
        | Node::IsNotNull(e)
        | Node::Calendar { value: e, .. }
        | Node::DatePart { value: e, .. } => OPERATOR_NS + operators(e),
        Node::InList { value, list, .. } => {
            let known = list.iter().filter(|v: &&ScalarValue| !v.is_null()).count();
            OPERATOR_NS * known.clamp(1, 4) as f64 + operators(value)
        }
        Node::Binary { left, right, .. } => OPERATOR_NS + operators(left) + operators(right),
        Node::Case {
            branches,
            otherwise,
        } => {
            let branches = branches
                .iter()
                .map(|(when, then)| OPERATOR_NS + operators(when) + operators(then));
            branches.sum::<f64>() + otherwise.as_deref().map_or(0.0, operators)
        }
        Node::Coalesce(list) => list.iter().map(|e| OPERATOR_NS + operators(e)).sum(),
        Node::Math { arguments, .. } => MATH_NS + arguments.iter().map(operators).sum::<f64>(),
    }
}
