//! Prices of fragments over rows that the CPU has computed: what joins, groups and sorts above them cost the CPU, against taking
//! the rows to the device.
//!
//! Only operators with an input below them count: what is above tables alone goes to the device either way, and where it has to
//! be joined on the CPU with an input, its rows come back.

use warpline_gpu::machine::Machine;

use super::Price;
use super::rowwise::{
    DECODE_NS, FILTER_NS, Prices, QUERIES, RETURN_NS, Traffic, bytes_of, operators, share_of_limit,
};
use crate::rel::walk::Memo;
use crate::rel::{Join, RelKind, RelRef};
use crate::stats::Estimator;

/// Planning over the rows that have come, launches and the copy of the result, in milliseconds.
const RUN_MS: f64 = 1.0;
/// Keeping a value of an input until all rows have come, encoding and copying it, in nanoseconds of one core.
const ENTER_NS: f64 = 8.0;
/// The same for a string, of which a dictionary is made.
const ENTER_STRING_NS: f64 = 80.0;
/// Entering a row into the table of a join.
const BUILD_NS: f64 = 60.0;
/// Looking a row up in the table of a join.
const PROBE_NS: f64 = 15.0;
/// Copying a value into the rows of a join or a sort.
const COPY_NS: f64 = 3.0;
/// A pair of rows of a join without keys.
const PAIR_NS: f64 = 1.0;
/// Finding the group of a row.
const GROUP_NS: f64 = 25.0;
/// Updating one aggregate by a row.
const UPDATE_NS: f64 = 5.0;
/// Merging and emitting a group.
const EMIT_NS: f64 = 50.0;
/// A comparison in a sort.
const COMPARE_NS: f64 = 6.0;
/// A window function on a row of sorted partitions.
const WINDOW_NS: f64 = 20.0;
/// A row in each operator of the device, beyond reading its columns.
const DEVICE_ROW_NS: f64 = 0.05;

/// The prices of the operators of `rel` that are above inputs, on a host with `cores`.
pub(crate) fn prices(
    rel: &RelRef,
    estimator: &Estimator<'_>,
    tables: &[Traffic],
    machine: &Machine,
    cores: usize,
) -> Prices {
    let cores = cores.max(1) as f64;
    let mut above = Above {
        estimator,
        cpu_ns: 0.0,
        returned_ms: 0.0,
        rows: 0.0,
        machine,
        known: Memo::default(),
    };
    above.visit(rel, 1.0);
    let sum = |of: &dyn Fn(&Traffic) -> f64| tables.iter().map(of).sum::<f64>();
    let enter = sum(&|t| match t.input {
        true => {
            let values = (t.columns - t.strings) * ENTER_NS + t.strings * ENTER_STRING_NS;
            t.rows * values * 1e-6 / cores + t.bytes / machine.link * 1e3
        }
        false => 0.0,
    });
    let load = sum(&|t| match t.input || t.resident {
        true => 0.0,
        false => t.bytes / machine.link * 1e3 / if t.kept { QUERIES } else { 1.0 },
    });
    let rows = estimator.rows(rel);
    let bytes = sum(&|t| t.bytes);
    let device = Price::default()
        .with("run", RUN_MS)
        .with("inputs to the device", enter)
        .with("load, shared by queries", load)
        .with("scan", bytes / machine.read * 1e3)
        .with("operators", above.rows * DEVICE_ROW_NS * 1e-6)
        .with("rows back", back(rel, rows, machine));
    // Tables in files that only a fragment over inputs would keep on the device.
    let decode = sum(&|t| match t.files && !t.input {
        true => t.rows * t.columns * DECODE_NS,
        false => 0.0,
    });
    Prices {
        device,
        cpu: (above.cpu_ns + decode) * 1e-6 / cores + above.returned_ms,
    }
}

/// Milliseconds in which rows leave the device.
fn back(rel: &RelRef, rows: f64, machine: &Machine) -> f64 {
    let width: f64 = rel.columns.iter().map(|c| bytes_of(&c.data_type)).sum();
    rows * width / machine.link * 1e3 + rows * rel.columns.len() as f64 * RETURN_NS * 1e-6
}

/// What the operators above inputs cost.
struct Above<'a> {
    estimator: &'a Estimator<'a>,
    machine: &'a Machine,
    /// Nanoseconds of one core.
    cpu_ns: f64,
    /// Rows that fragments below would return to them.
    returned_ms: f64,
    /// Rows that they go over.
    rows: f64,
    /// Of what is counted already: is there an input in it?
    known: Memo<bool>,
}

impl Above<'_> {
    /// Is there an input in `rel`? If so, it is counted; the CPU stops when it has the `share` of the rows that is wanted.
    fn visit(&mut self, rel: &RelRef, share: f64) -> bool {
        if let Some(known) = self.known.get(rel) {
            return known;
        }
        let is_above = self.count(rel, share);
        self.known.insert(rel, is_above);
        is_above
    }

    fn count(&mut self, rel: &RelRef, share: f64) -> bool {
        if let RelKind::Scan { table, .. } = &rel.kind {
            return table.source.input().is_some();
        }
        let inputs = rel.inputs();
        let blocks = match &rel.kind {
            RelKind::Aggregate { .. } | RelKind::Window { .. } => true,
            RelKind::Sort { keys, .. } => !keys.is_empty(),
            _ => false,
        };
        let below = match blocks {
            true => 1.0,
            false => share * share_of_limit(rel, self.estimator),
        };
        let is_above = inputs.iter().map(|input| self.visit(input, below));
        let is_above: Vec<bool> = is_above.collect();
        if !is_above.contains(&true) {
            return false;
        }
        for (input, is_above) in inputs.iter().zip(is_above) {
            let rows = self.estimator.rows(input);
            self.rows += rows;
            if !is_above && is_substantial(input) {
                self.returned_ms += back(input, rows, self.machine);
            }
        }
        self.cpu_ns += self.work(rel) * share;
        true
    }

    /// Nanoseconds of one core for an operator.
    fn work(&self, rel: &RelRef) -> f64 {
        let rows = |rel: &RelRef| self.estimator.rows(rel);
        let expressions = |exprs: &[_]| exprs.iter().map(operators).sum::<f64>();
        let sorting = |rows: f64| rows * rows.max(2.0).log2() * COMPARE_NS;
        match &rel.kind {
            RelKind::Scan { .. } | RelKind::One | RelKind::Union(_) | RelKind::Scalar { .. } => 0.0,
            RelKind::Filter { input, conjuncts } => {
                rows(input) * (FILTER_NS + expressions(conjuncts))
            }
            RelKind::Project { input, exprs } => rows(input) * expressions(exprs),
            RelKind::Join(Join {
                left, right, on, ..
            }) => {
                let (left, right) = (rows(left), rows(right));
                let matching = match on.is_empty() {
                    true => left * right * PAIR_NS,
                    false => left.min(right) * BUILD_NS + left.max(right) * PROBE_NS,
                };
                matching + rows(rel) * rel.columns.len() as f64 * COPY_NS
            }
            RelKind::Aggregate { input, aggregate } => {
                let group = if aggregate.keys.is_empty() {
                    0.0
                } else {
                    GROUP_NS
                };
                let each = group + aggregate.calls.len() as f64 * UPDATE_NS;
                rows(input) * each + rows(rel) * EMIT_NS
            }
            // Of a limit the CPU keeps the first rows alone, or stops.
            RelKind::Sort {
                input,
                keys,
                fetch: Some(_),
                ..
            } => match keys.is_empty() {
                true => 0.0,
                false => rows(input) * COMPARE_NS,
            },
            RelKind::Sort { input, keys, .. } => match keys.is_empty() {
                true => 0.0,
                false => sorting(rows(input)) + rows(input) * rel.columns.len() as f64 * COPY_NS,
            },
            RelKind::Window { input, .. } => sorting(rows(input)) + rows(input) * WINDOW_NS,
        }
    }
}

/// Does the device run it, rather than read a table?
fn is_substantial(rel: &RelRef) -> bool {
    let mut found = false;
    rel.for_each(&mut |rel| {
        found |= matches!(
            rel.kind,
            RelKind::Join(_) | RelKind::Aggregate { .. } | RelKind::Window { .. }
        );
    });
    found
}
