//! Joins of partitioned and of sorted sides against nested maps on the host.

use std::collections::HashMap;

use warpline_gpu::GpuError;
use warpline_gpu::device::DevicePtr;
use warpline_gpu::memory::DeviceBuffer;
use warpline_gpu::primitives::{
    Keys, PairKind, PairList, Partitions, RowCount, Side, join_dense_partitions, join_partitions,
    merge_join, partition_bits,
};

use super::partition::{hash, pack};
use super::{Machine, Numbers, assert_untouched, machines};

/// What a side's rows look like, and how they are joined.
struct Case<'a> {
    build: &'a [u128],
    probe: &'a [u128],
    width: u32,
    kind: PairKind,
    unique: bool,
    numbers: bool,
    marks: bool,
    /// Room for pairs; as many as there are without.
    capacity: Option<usize>,
}

/// Partitioned joins by this many bits, or a merge join.
#[derive(Clone, Copy, Debug)]
enum How {
    Partitioned(u32),
    /// By bits of hashes, and the keys of these sides come as their hashes: the build side's, the probe side's.
    Hashed(u32, [bool; 2]),
    /// By the same bits, with keys of this many bits.
    Dense(u32, u32),
    Sorted,
}

const KINDS: [PairKind; 4] = [
    PairKind::Inner,
    PairKind::Left,
    PairKind::Semi,
    PairKind::Anti,
];
const WIDTHS: [u32; 3] = [4, 8, 16];

/// Ways for keys that come as hashes, where they can.
fn hashed(width: u32, bits: u32) -> Vec<How> {
    let sides: &[[bool; 2]] = match width {
        16 => &[],
        _ => &[[true, true], [true, false], [false, true]],
    };
    sides
        .iter()
        .map(|sides| How::Hashed(bits, *sides))
        .collect()
}

/// Row numbers in the order of their partitions, and the first place of each.
fn arranged(keys: &[u128], width: u32, how: How) -> (Vec<u32>, Vec<u32>) {
    let mut order: Vec<u32> = (0..keys.len() as u32).collect();
    let mut offsets = vec![0u32];
    match how {
        How::Sorted => order.sort_by_key(|row| keys[*row as usize]),
        How::Partitioned(bits) | How::Dense(bits, _) | How::Hashed(bits, _) => {
            let digits = |row: &u32| match how {
                How::Hashed(..) => hash(keys[*row as usize], width),
                _ => keys[*row as usize],
            };
            let partition = |row: &u32| digits(row) & ((1 << bits) - 1);
            order.sort_by_key(partition);
            for p in 0..1u128 << bits {
                offsets.push(order.partition_point(|row| partition(row) <= p) as u32);
            }
        }
    }
    (order, offsets)
}

struct Uploaded {
    keys: DeviceBuffer,
    numbers: DeviceBuffer,
    offsets: DeviceBuffer,
    order: Vec<u32>,
    hashed: bool,
}

impl Uploaded {
    /// Side 0 is the build side.
    fn new(machine: &Machine, keys: &[u128], width: u32, how: How, side: usize) -> Self {
        let (order, offsets) = arranged(keys, width, how);
        let hashed = matches!(how, How::Hashed(_, sides) if sides[side]);
        let lying = order.iter().map(|row| match keys[*row as usize] {
            key if hashed => hash(key, width),
            key => key,
        });
        Self {
            hashed,
            keys: machine.upload(&pack(&lying.collect::<Vec<_>>(), width)),
            numbers: machine.upload(&order),
            offsets: machine.upload(&offsets),
            order,
        }
    }

    fn side(&self, width: u32, rows: RowCount, numbers: bool) -> Side {
        Side {
            keys: Keys {
                ptr: self.keys.ptr(),
                width,
            },
            hashed: self.hashed,
            rows,
            numbers: numbers.then(|| self.numbers.ptr()),
            places: rows.most(),
            partitions: Partitions::side_by_side(self.offsets.ptr()),
        }
    }

    /// The number of a place.
    fn number(&self, place: usize, numbers: bool) -> u32 {
        if numbers {
            self.order[place]
        } else {
            place as u32
        }
    }
}

/// Pairs and marked build rows that the case has.
fn expected(case: &Case<'_>, build: &Uploaded, probe: &Uploaded) -> (Vec<(u32, u32)>, Vec<u32>) {
    let mut rows_of: HashMap<u128, Vec<u32>> = HashMap::new();
    let keyless = none(case.width);
    for (place, row) in build.order.iter().enumerate() {
        if case.build[*row as usize] == keyless {
            continue;
        }
        let number = build.number(place, case.numbers);
        rows_of
            .entry(case.build[*row as usize])
            .or_default()
            .push(number);
    }
    let mut pairs = Vec::new();
    let mut marks = Vec::new();
    for (place, row) in probe.order.iter().enumerate() {
        let number = probe.number(place, case.numbers);
        let matches = rows_of
            .get(&case.probe[*row as usize])
            .map_or(&[][..], Vec::as_slice);
        marks.extend(matches);
        match (case.kind, matches.is_empty()) {
            (PairKind::Inner | PairKind::Left, false) => {
                pairs.extend(matches.iter().map(|entry| (*entry, number)));
            }
            (PairKind::Left | PairKind::Anti, true) | (PairKind::Semi, false) => {
                pairs.push((u32::MAX, number));
            }
            _ => {}
        }
    }
    pairs.sort_unstable();
    marks.sort_unstable();
    marks.dedup();
    (pairs, marks)
}

fn check(machine: &Machine, case: &Case<'_>, how: How) {
    let label = format!(
        "{}: {how:?}, {} x {} rows of {} bytes, {:?}, unique {}, numbers {}, marks {}, room {:?}",
        machine.name,
        case.build.len(),
        case.probe.len(),
        case.width,
        case.kind,
        case.unique,
        case.numbers,
        case.marks,
        case.capacity
    );
    let build = Uploaded::new(machine, case.build, case.width, how, 0);
    let probe = Uploaded::new(machine, case.probe, case.width, how, 1);
    let (want, want_marks) = expected(case, &build, &probe);
    let capacity = case.capacity.unwrap_or(want.len());
    let entries = machine.space(capacity * 4);
    let rows = machine.space(capacity * 4);
    let count = machine.upload(&[77u64]);
    let words = case.build.len().div_ceil(32);
    let marks = machine.upload(&vec![0u32; words]);
    let list = PairList {
        entries: entries.ptr(),
        rows: rows.ptr(),
        capacity: capacity as u64,
        count: count.ptr(),
    };
    let build_rows = RowCount::Known(case.build.len() as u64);
    // The probe side's number of rows is the device's secret.
    let probe_rows = machine.upload(&[case.probe.len() as u64]);
    let build_side = build.side(case.width, build_rows, case.numbers);
    let probe_side = probe.side(
        case.width,
        RowCount::Device {
            count: probe_rows.ptr(),
            most: case.probe.len() as u64 + 100,
        },
        case.numbers,
    );
    let marked = case.marks.then(|| marks.ptr());
    let duplicate = machine.word();
    let (runtime, stream) = (&machine.runtime, &machine.stream);
    let (kind, unique) = (case.kind, case.unique);
    unsafe {
        match how {
            How::Partitioned(bits) | How::Hashed(bits, _) => join_partitions(
                runtime,
                stream,
                &build_side,
                &probe_side,
                bits,
                kind,
                unique,
                duplicate.ptr(),
                &list,
                marked,
            ),
            How::Dense(bits, key_bits) => join_dense_partitions(
                runtime,
                stream,
                &build_side,
                &probe_side,
                bits,
                key_bits,
                kind,
                unique,
                duplicate.ptr(),
                &list,
                marked,
            ),
            How::Sorted => merge_join(
                runtime,
                stream,
                &build_side,
                &probe_side,
                kind,
                unique,
                duplicate.ptr(),
                &list,
                marked,
            ),
        }
        .unwrap();
    }
    assert_eq!(
        machine.read::<u64>(&count, 1),
        [want.len() as u64],
        "{label}"
    );
    let written = capacity.min(want.len());
    let mut got: Vec<(u32, u32)> = machine
        .read::<u32>(&entries, written)
        .into_iter()
        .zip(machine.read::<u32>(&rows, written))
        .collect();
    got.sort_unstable();
    if written == want.len() {
        assert!(got == want, "{label}");
    } else {
        assert!(
            got.iter().all(|pair| want.binary_search(pair).is_ok()),
            "{label}"
        );
        let mut distinct = got.clone();
        distinct.dedup();
        assert_eq!(distinct.len(), got.len(), "{label}");
    }
    assert_untouched(machine, &entries, written * 4);
    assert_untouched(machine, &rows, written * 4);
    if case.marks {
        let bits: Vec<u32> = machine.read(&marks, words);
        let got: Vec<u32> = (0..case.build.len() as u32)
            .filter(|row| bits[*row as usize / 32] >> (row % 32) & 1 != 0)
            .collect();
        assert!(got == want_marks, "marks of {label}");
    }
}

/// What a build row without key has.
fn none(width: u32) -> u128 {
    u128::MAX >> (128 - 8 * width)
}

/// A key of `width` bytes out of a small number: the extremes are among them.
fn key(number: u64, width: u32) -> u128 {
    let most = none(width);
    match number {
        0 => most - 1,
        1 => 0,
        // Differs from others in the high half alone, too.
        _ => (u128::from(number / 2) << (8 * width - 20) | u128::from(number)) & most,
    }
}

fn keys(numbers: impl IntoIterator<Item = u64>, width: u32) -> Vec<u128> {
    numbers.into_iter().map(|n| key(n, width)).collect()
}

/// `count` different keys in a mixed order.
fn unique_keys(seed: u64, count: u64, step: u64, width: u32) -> Vec<u128> {
    let mut order: Vec<(u64, u64)> = (0..count)
        .map(|i| (Numbers(seed ^ i << 20).draw(), i * step))
        .collect();
    order.sort_unstable();
    keys(order.into_iter().map(|(_, n)| n), width)
}

#[test]
fn every_kind_width_and_side() {
    for machine in machines() {
        for width in WIDTHS {
            let mut numbers = Numbers(u64::from(width));
            for (build, probe) in [
                (0, 0),
                (0, 40),
                (40, 0),
                (1, 1),
                (31, 33),
                (32, 32),
                (33, 31),
                (700, 900),
            ] {
                let unique_build = unique_keys(3, build, 2, width);
                let doubled: Vec<u128> =
                    keys((0..build).map(|_| numbers.draw() % (build / 3 + 2)), width);
                let probed = keys((0..probe).map(|_| numbers.draw() % (build * 2 + 2)), width);
                for kind in KINDS {
                    let turn = build + u64::from(kind == PairKind::Left);
                    for unique in [true, false] {
                        let case = Case {
                            build: if unique { &unique_build } else { &doubled },
                            probe: &probed,
                            width,
                            kind,
                            unique,
                            numbers: turn.is_multiple_of(2),
                            marks: turn % 3 != 1,
                            capacity: None,
                        };
                        for how in [How::Partitioned(0), How::Partitioned(3), How::Sorted]
                            .into_iter()
                            .chain(hashed(width, 2))
                        {
                            check(&machine, &case, how);
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn arrays_instead_of_tables() {
    for machine in machines() {
        for width in [4, 8] {
            let plain = |n: u64| u128::from(n);
            let unique_build: Vec<u128> = (0..5000).map(|i| plain(i * 3 % 8192)).collect();
            let doubled: Vec<u128> = (0..5000).map(|i| plain(i * i % 4001)).collect();
            // Some are beyond every build key.
            let mut probe: Vec<u128> = (0..3000).map(|i| plain(i * 7 % 9000)).collect();
            probe.push(u128::MAX >> (128 - 8 * width));
            for kind in KINDS {
                for (build, unique) in [(&unique_build, true), (&doubled, false)] {
                    let case = Case {
                        build,
                        probe: &probe,
                        width,
                        kind,
                        unique,
                        numbers: width == 4,
                        marks: width == 8,
                        capacity: None,
                    };
                    check(&machine, &case, How::Dense(1, 13));
                    check(&machine, &case, How::Dense(6, 13));
                }
            }
        }
    }
}

#[test]
fn many_partitions_and_many_blocks() {
    for machine in machines().into_iter().take(4).skip(2) {
        for (width, numbers) in [(4, false), (8, true)] {
            let build = unique_keys(9, 12_000, 1, width);
            let probe = unique_keys(11, 15_000, 1, width);
            for kind in KINDS {
                let case = Case {
                    build: &build,
                    probe: &probe,
                    width,
                    kind,
                    unique: true,
                    numbers,
                    marks: false,
                    capacity: None,
                };
                check(&machine, &case, How::Partitioned(4));
                check(&machine, &case, How::Sorted);
                for how in hashed(width, 4) {
                    check(&machine, &case, how);
                }
            }
        }
    }
}

#[test]
fn skew_on_either_side() {
    for machine in machines().into_iter().skip(3) {
        for width in WIDTHS {
            // One key in most rows of a side; the partition of it is larger than a table, or than a task.
            let mut hot = keys((0..10_500).map(|i| if i % 50 < 1 { i } else { 7 }), width);
            hot.extend(keys([0, 1, 2, 3], width));
            // Rows without key on either side.
            hot.extend(std::iter::repeat_n(none(width), 700));
            let others = keys(
                (0..600).map(|i| if i % 200 == 3 { 7 } else { i * 5 }),
                width,
            );
            let distinct = unique_keys(5, 2000, 3, width);
            for kind in KINDS {
                for (build, probe, unique) in [
                    (&hot, &others, false),
                    (&others, &hot, false),
                    (&distinct, &hot, true),
                ] {
                    let case = Case {
                        build,
                        probe,
                        width,
                        kind,
                        unique,
                        numbers: width == 8,
                        marks: width != 16,
                        capacity: None,
                    };
                    check(&machine, &case, How::Partitioned(2));
                    check(&machine, &case, How::Sorted);
                    for how in hashed(width, 2) {
                        check(&machine, &case, how);
                    }
                }
            }
        }
    }
}

#[test]
fn one_key_in_all_rows() {
    for machine in machines().into_iter().skip(3) {
        let build = vec![key(5, 4); 10_000];
        let probe = vec![key(5, 4); 100];
        for (build, probe) in [(&build, &probe), (&probe, &build)] {
            for kind in KINDS {
                let case = Case {
                    build,
                    probe,
                    width: 4,
                    kind,
                    unique: false,
                    numbers: true,
                    marks: true,
                    capacity: None,
                };
                check(&machine, &case, How::Partitioned(1));
                check(&machine, &case, How::Sorted);
            }
        }
    }
}

#[test]
fn too_little_room_for_pairs() {
    for machine in machines().into_iter().skip(2) {
        let build = keys((0..3000).map(|i| i % 5), 8);
        let probe = keys((0..40).map(|i| i % 7), 8);
        let long = vec![key(3, 8); 9000];
        for (build, kind) in [
            (&build, PairKind::Left),
            (&build, PairKind::Anti),
            (&long, PairKind::Inner),
        ] {
            for capacity in [0, 1, 5000, 9001] {
                let case = Case {
                    build,
                    probe: &probe,
                    width: 8,
                    kind,
                    unique: false,
                    numbers: false,
                    marks: false,
                    capacity: Some(capacity),
                };
                check(&machine, &case, How::Partitioned(2));
                check(&machine, &case, How::Sorted);
            }
        }
    }
}

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
    let (runtime, stream) = (&machine.runtime, &machine.stream);
    let (kind, word) = (PairKind::Inner, duplicate.ptr());
    unsafe {
        match how {
            How::Sorted => merge_join(
                runtime, stream, &build, &probe, kind, true, word, &list, None,
            ),
            How::Partitioned(bits) | How::Hashed(bits, _) => join_partitions(
                runtime, stream, &build, &probe, bits, kind, true, word, &list, None,
            ),
            How::Dense(bits, key_bits) => join_dense_partitions(
                runtime, stream, &build, &probe, bits, key_bits, kind, true, word, &list, None,
            ),
        }
        .unwrap();
    }
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
    let join = |build: Side, probe: Side, bits| unsafe {
        let (runtime, stream) = (&machine.runtime, &machine.stream);
        join_partitions(
            runtime,
            stream,
            &build,
            &probe,
            bits,
            PairKind::Inner,
            true,
            DevicePtr::NULL,
            &list,
            None,
        )
    };
    let merge = |build: Side, probe: Side| unsafe {
        let (runtime, stream) = (&machine.runtime, &machine.stream);
        merge_join(
            runtime,
            stream,
            &build,
            &probe,
            PairKind::Inner,
            true,
            DevicePtr::NULL,
            &list,
            None,
        )
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
