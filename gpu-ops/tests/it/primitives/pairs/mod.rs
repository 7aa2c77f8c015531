//! Joins of partitioned and of sorted sides against nested maps on the host: the sides, and what a join makes of them.

mod promises;
mod rows;

use std::cell::Cell;
use std::collections::HashMap;

use warpline_gpu::device::DevicePtr;
use warpline_gpu::memory::DeviceBuffer;
use warpline_gpu::primitives::{
    Keys, PairJoin, PairKind, PairList, Partitions, RowCount, Side, join_dense_partitions,
    join_partitions, merge_join,
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

/// What a join is asked for.
struct Asked<'a> {
    kind: PairKind,
    unique: bool,
    marked: Option<DevicePtr>,
    another_table: Option<&'a Cell<bool>>,
}

/// Join sides, build and probe, that lie as `how` says.
fn join(
    machine: &Machine,
    how: How,
    [build, probe]: [&Side; 2],
    asked: Asked<'_>,
    duplicate: &DeviceBuffer,
    list: &PairList,
) {
    let (runtime, stream) = (&machine.runtime, &machine.stream);
    let Asked {
        kind,
        unique,
        marked,
        another_table,
    } = asked;
    let of = PairJoin {
        build,
        probe,
        kind,
        unique,
        duplicate: duplicate.ptr(),
        pairs: list,
        marks: marked,
        another_table,
    };
    unsafe {
        match how {
            How::Partitioned(bits) | How::Hashed(bits, _) => {
                join_partitions(runtime, stream, &of, bits)
            }
            How::Dense(bits, key_bits) => {
                join_dense_partitions(runtime, stream, &of, bits, key_bits)
            }
            How::Sorted => merge_join(runtime, stream, &of),
        }
    }
    .unwrap();
}

fn check(machine: &Machine, case: &Case<'_>, how: How) {
    check_with(machine, case, how, None);
}

/// The same with any table.
fn check_with(machine: &Machine, case: &Case<'_>, how: How, another_table: Option<&Cell<bool>>) {
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
    let asked = Asked {
        kind: case.kind,
        unique: case.unique,
        marked,
        another_table,
    };
    join(
        machine,
        how,
        [&build_side, &probe_side],
        asked,
        &duplicate,
        &list,
    );
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
