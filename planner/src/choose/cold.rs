//! What a first run takes, on the device and on the CPU: rough figures that tell milliseconds from seconds.

use warpline_gpu::graph::FirstRun;
use warpline_gpu::machine::Machine;

use super::rowwise::{DECODE_NS, ENCODE_NS, Traffic, computing_all};
use crate::rel::{RelKind, RelRef};
use crate::stats::Estimator;

/// The load of a table whose columns the device decodes, in milliseconds: footers, page-locked memory, the last page, what is told of
/// each column.
const LOAD_MS: f64 = 15.0;
/// Decoding a value on the device, in nanoseconds: TPC-H's tables at scale 100 take 0.17 with reading and copying.
const DEVICE_DECODE_NS: f64 = 0.2;
/// Bytes that a core reads from cached files in a second.
const CORE_READS: f64 = 3e9;

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
    let load = tables.iter().filter(|t| !t.resident);
    let load = load.map(|table| load_ms(table, machine, cores));
    let mut kernels = 1.0_f64;
    let mut cpu = tables.iter().map(decode_ns).sum::<f64>() + computing_all(rel, estimator);
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
        // The sum of nothing is a negative zero.
        load: 0.0 + load.sum::<f64>(),
        kernels,
        cpu: cpu * 1e-6 / cores,
    }
}

/// Decoding the files of a table, in nanoseconds of one core.
fn decode_ns(table: &Traffic) -> f64 {
    match table.files {
        true => table.rows * table.columns * DECODE_NS,
        false => 0.0,
    }
}

/// Making a table resident, in milliseconds.
fn load_ms(table: &Traffic, machine: &Machine, cores: f64) -> f64 {
    let values = table.rows * table.columns;
    let copy = |rate: f64| table.bytes / rate * 1e3;
    let on_cpu = (values * ENCODE_NS + decode_ns(table)) * 1e-6 / cores;
    let by_cpu = on_cpu + copy(machine.link);
    if !table.by_device {
        return by_cpu;
    }
    let decoding = values * DEVICE_DECODE_NS * 1e-6;
    // What the CPU decodes sooner it decodes.
    by_cpu.min(LOAD_MS + decoding + copy(machine.link.min(cores * CORE_READS)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_that_decodes_loads_large_tables_sooner() {
        let table = |rows: f64, by_device: bool| Traffic {
            rows,
            columns: 4.0,
            strings: 1.0,
            bytes: rows * 16.0,
            resident: false,
            kept: true,
            files: true,
            by_device,
            input: false,
        };
        let machine = Machine::h200();
        let ms = |rows, by_device| load_ms(&table(rows, by_device), &machine, 16.0);
        assert_eq!(ms(1e5, true), ms(1e5, false));
        assert!(ms(1e8, true) < 0.6 * ms(1e8, false));
        let few_cores = |by_device| load_ms(&table(1e8, by_device), &machine, 1.0);
        assert!(few_cores(true) > ms(1e8, true));
        assert!(few_cores(true) < few_cores(false));
    }
}
