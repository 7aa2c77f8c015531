//! What a first run takes, on the device and on the CPU: rough figures that tell milliseconds from seconds.

use warpline_gpu::graph::FirstRun;
use warpline_gpu::machine::Machine;

use super::rowwise::{DECODE_NS, ENCODE_NS, Traffic, computing_all};
use crate::rel::{RelKind, RelRef};
use crate::stats::Estimator;

/// A row of either side of a join on the CPU, in nanoseconds of one core: hashing, the table, the joined row.
const JOIN_NS: f64 = 40.0;
/// A row that is grouped.
const GROUP_NS: f64 = 40.0;
/// A row that is sorted, for each doubling of the rows.
const SORT_NS: f64 = 6.0;

/// A first run of `rel` over these tables, on a host with `cores`.
pub(crate) fn first_run(
    rel: &RelRef,
    estimator: &Estimator<'_>,
    tables: &[Traffic],
    machine: &Machine,
    cores: usize,
) -> FirstRun {
    let cores = cores.max(1) as f64;
    let values = |t: &Traffic| t.rows * t.columns;
    let decode = |t: &Traffic| if t.files { values(t) * DECODE_NS } else { 0.0 };
    let load = tables
        .iter()
        .filter(|t| !t.resident)
        .map(|t| (values(t) * ENCODE_NS + decode(t)) * 1e-6 / cores + t.bytes / machine.link * 1e3);
    let mut kernels = 1.0_f64;
    let mut cpu = tables.iter().map(decode).sum::<f64>() + computing_all(rel, estimator);
    rel.for_each(&mut |rel| {
        let inputs = rel.inputs();
        let rows: f64 = inputs.iter().map(|input| estimator.rows(input)).sum();
        let (made, each) = match &rel.kind {
            RelKind::Join(_) => (1.0, JOIN_NS),
            RelKind::Aggregate { .. } => (2.0, GROUP_NS),
            RelKind::Sort { keys, .. } if keys.is_empty() => (0.0, 0.0),
            RelKind::Sort { .. } | RelKind::Window { .. } => (2.0, SORT_NS * rows.max(2.0).log2()),
            _ => (0.0, 0.0),
        };
        kernels += made;
        cpu += rows * each;
    });
    FirstRun {
        load: load.sum(),
        kernels,
        cpu: cpu * 1e-6 / cores,
    }
}
