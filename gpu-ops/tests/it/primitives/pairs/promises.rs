//! What joins are told of their sides: promises of uniqueness are checked, and what cannot be is refused.

use warpline_gpu::GpuError;
use warpline_gpu::device::DevicePtr;
use warpline_gpu::primitives::{
    Keys, PairJoin, PairKind, PairList, Partitions, RowCount, Side, join_partitions, merge_join,
    partition_bits,
};

use super::{
    Asked, How, Machine, Uploaded, WIDTHS, assert_untouched, hashed, join, machines, none,
};

/// What a join of `build` with `probe` says about a promise that `build` has no equal keys.
fn reports_duplicates(
    machine: &Machine,
    build: &[u128],
    probe: &[u128],
    width: u32,
    how: How,
) -> bool {
    let sides =
        [(build, 0), (probe, 1)].map(|(keys, side)| Uploaded::new(machine, keys, width, how, side));
    let rows = [build, probe].map(|keys| RowCount::Known(keys.len() as u64));
    let build = sides[0].side(width, rows[0], false);
    let probe = sides[1].side(width, rows[1], false);
    let capacity = 20_000;
    let entries = machine.space(capacity * 4);
    let probes = machine.space(capacity * 4);
    let count = machine.word();
    let duplicate = machine.word();
    let list = PairList {
        entries: entries.ptr(),
        rows: probes.ptr(),
        capacity: capacity as u64,
        count: count.ptr(),
    };
    let asked = Asked {
        kind: PairKind::Inner,
        unique: true,
        marked: None,
        another_table: None,
    };
    join(machine, how, [&build, &probe], asked, &duplicate, &list);
    assert_untouched(machine, &entries, capacity * 4);
    assert_untouched(machine, &probes, capacity * 4);
    machine.read::<u64>(&duplicate, 1) == [1]
}

#[test]
fn promises_of_uniqueness_are_checked() {
    for machine in machines() {
        let plain = |numbers: &mut dyn Iterator<Item = u64>| -> Vec<u128> {
            numbers.map(u128::from).collect()
        };
        let absent = plain(&mut (0..50).map(|i| i * 16 + 4));
        for width in WIDTHS {
            let mut ways = vec![How::Partitioned(2), How::Sorted];
            if width < 16 {
                ways.push(How::Dense(2, 15));
                ways.extend(hashed(width, 2));
            }
            for how in ways {
                let label = format!("{}: {width} bytes, {how:?}", machine.name);
                for probe in [&absent[..0], &absent[..]] {
                    let report =
                        |build: &[u128]| reports_duplicates(&machine, build, probe, width, how);
                    // One pair of equal keys among many, in a partition of its own or not.
                    let mut keys = plain(&mut (0..3000).map(|i| i * 3 + 1));
                    assert!(!report(&keys), "{label}");
                    keys.push(40);
                    assert!(report(&keys), "{label}");
                    // Any number of rows may be without key, in partitions of several chunks too.
                    keys.pop();
                    keys.truncate(1000);
                    keys.extend(std::iter::repeat_n(none(width), 6000));
                    keys.extend([2, 3, 6, 9]);
                    assert!(!report(&keys), "{label}");
                    // The fellow is chunks away.
                    keys.push(19);
                    assert!(report(&keys), "{label}");
                }
                assert!(
                    reports_duplicates(&machine, &vec![5; 9000], &[5, 5], width, how),
                    "{label}"
                );
            }
        }
    }
}

#[test]
fn wrong_joins_are_refused() {
    let machine = &machines()[0];
    let side = |width, rows| Side {
        keys: Keys {
            ptr: DevicePtr(256),
            width,
        },
        hashed: false,
        rows: RowCount::Known(rows),
        numbers: None,
        places: rows,
        partitions: Partitions::side_by_side(DevicePtr(256)),
    };
    let list = PairList {
        entries: DevicePtr::NULL,
        rows: DevicePtr::NULL,
        capacity: 0,
        count: DevicePtr::NULL,
    };
    fn pairs_of<'a>(build: &'a Side, probe: &'a Side, list: &'a PairList) -> PairJoin<'a> {
        PairJoin {
            build,
            probe,
            kind: PairKind::Inner,
            unique: true,
            duplicate: DevicePtr::NULL,
            pairs: list,
            marks: None,
            another_table: None,
        }
    }
    let join = |build: Side, probe: Side, bits| unsafe {
        let (runtime, stream) = (&machine.runtime, &machine.stream);
        join_partitions(runtime, stream, &pairs_of(&build, &probe, &list), bits)
    };
    let merge = |build: Side, probe: Side| unsafe {
        let (runtime, stream) = (&machine.runtime, &machine.stream);
        merge_join(runtime, stream, &pairs_of(&build, &probe, &list))
    };
    assert!(matches!(
        join(side(4, 1), side(8, 1), 1),
        Err(GpuError::Internal(_))
    ));
    assert!(matches!(
        join(side(2, 1), side(2, 1), 1),
        Err(GpuError::Internal(_))
    ));
    assert!(matches!(
        join(side(4, 1), side(4, 1), 40),
        Err(GpuError::Internal(_))
    ));
    let hashed = Side {
        hashed: true,
        ..side(16, 1)
    };
    assert!(matches!(
        join(side(16, 1), hashed, 1),
        Err(GpuError::Internal(_))
    ));
    assert!(matches!(
        join(side(4, 1 << 32), side(4, 1), 1),
        Err(GpuError::Unsupported(_))
    ));
    assert!(matches!(
        merge(side(4, 1), side(16, 1)),
        Err(GpuError::Internal(_))
    ));
    assert!(matches!(
        merge(side(4, 1), side(4, 1 << 32)),
        Err(GpuError::Unsupported(_))
    ));
}

#[test]
fn partitions_fit_a_table() {
    let info = machines()[0].runtime.device().info().clone();
    for width in WIDTHS {
        let mut last = 0;
        for rows in [0, 1, 1000, 5000, 1 << 20, 1 << 27, 1 << 31] {
            let bits = partition_bits(rows, width, &info);
            assert!(
                bits >= last && rows >> bits <= 4096,
                "{rows} rows in 2^{bits}"
            );
            last = bits;
        }
        assert_eq!(partition_bits(1000, width, &info), 0);
        assert_eq!(partition_bits(1 << 27, width, &info), 16);
        // One pass as long as tables may be large.
        assert_eq!(partition_bits(1 << 20, width, &info), 8);
    }
}
