//! The device of the papers, for tests: an A100 as §4.1 and §4.4 model it.

use warpline_gpu::machine::{Curve, Machine, Origin};

/// Sequential accesses at `B`, random ones at `B / 24` of the memory that they go to (L1 at 12 B, L2 at 4.5 B),
/// nothing for launches, rows and matching.
pub(super) fn a100() -> Machine {
    const B: f64 = 1555e9;
    const KIB: f64 = 1024.0;
    const MIB: f64 = KIB * KIB;
    let random = |bytes: f64| {
        let each = |speed: f64| bytes * 24.0 / (speed * B) * 1e12;
        let (l1, l2) = (192.0 * KIB, 40.0 * MIB);
        Curve::new([
            (l1, each(12.0)),
            (l1 + 1.0, each(4.5)),
            (l2, each(4.5)),
            (l2 + 1.0, each(1.0)),
        ])
    };
    let h200 = Machine::h200();
    Machine {
        device: "A100".into(),
        origin: Origin::Default,
        memory: 40e9,
        l2: 40.0 * MIB,
        shared: 164.0 * KIB,
        multiprocessors: 108.0,
        copy: B,
        read: B,
        launch: 0.0,
        gather: [random(4.0), random(8.0), random(12.0)],
        scatter: [random(4.0), random(8.0), random(16.0)],
        atomics: h200.atomics.scaled(4.2 / 1.5),
        inserts: h200.inserts.scaled(4.2 / 1.5),
        shared_atomics: h200.shared_atomics.scaled(1.5),
        partition_row: 0.0,
        partition_column: 0.0,
        partition_copy: B,
        match_row: 4.0,
        match_pair: 4.0,
        merge_row: 4.0,
        group_row: 6.0,
        run_row: 2.0,
        ..h200
    }
}
