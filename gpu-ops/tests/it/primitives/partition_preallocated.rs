//! Radix partitions whose partitions have room of their own: the rows of each, and what comes of too little room.

use warpline_gpu::memory::DeviceBuffer;
use warpline_gpu::primitives::{
    Keys, Partitioning, Partitions, Payload, Rooms, RowCount, can_preallocate, largest_partitions,
    radix_partition_preallocated,
};

use super::partition::{Case, Column, columns, digit, keys_out, pack};
use super::{Machine, assert_untouched};

/// Most places that a case is tried with.
const MOST_PLACES: u64 = 1 << 16;

/// What [`radix_partition_preallocated`] makes of a case that keeps its keys, and [`largest_partitions`] of its offsets.
pub(super) fn check(machine: &Machine, case: &Case<'_>, count: RowCount) {
    let bits = case.bits.len() as u32;
    if !can_preallocate(case.payloads.len(), bits) || case.keys.is_empty() {
        return;
    }
    let label = format!(
        "{}, apart: {} keys of {} bytes, payloads {:?}, {:?} {:?}",
        machine.name,
        case.keys.len(),
        case.width,
        case.payloads,
        case.digits,
        case.bits
    );
    // Rows of each partition, and of each of the first pass: that of the upper half of the bits.
    let low = if bits > 8 { bits / 2 } else { 0 };
    let mut sizes = vec![0u32; 1 << bits];
    let mut first_sizes = vec![0u32; 1 << (bits - low)];
    for key in case.keys {
        let partition = digit(case, *key) as usize;
        sizes[partition] += 1;
        first_sizes[partition >> low] += 1;
    }
    let most = |sizes: &[u32]| sizes.iter().copied().max().unwrap_or(0);
    let rooms = Rooms {
        first: most(&first_sizes),
        last: most(&sizes),
    };
    assert_eq!(largest(machine, case, &sizes), rooms, "{label}");

    let places = |rooms: Rooms| u64::from(rooms.last) << bits;
    if places(rooms).max(u64::from(rooms.first) << (bits - low)) > MOST_PLACES {
        return;
    }
    fits(machine, case, count, rooms, &sizes, &label);
    let mut small = vec![Rooms {
        last: rooms.last - 1,
        ..rooms
    }];
    if low > 0 {
        small.push(Rooms {
            first: rooms.first - 1,
            ..rooms
        });
    }
    for rooms in small.into_iter().filter(|r| r.first > 0 && r.last > 0) {
        let made = make(machine, case, count, rooms);
        let (begins, ends) = (made.words(machine, 0), made.words(machine, 1 << bits));
        assert_eq!(made.overflow(machine), 1, "{label} {rooms:?}");
        assert!(begins == ends, "{label} {rooms:?}: rows in spite of all");
        made.nothing_outside(machine, case);
    }
}

/// The largest partitions of sizes, by their offsets.
fn largest(machine: &Machine, case: &Case<'_>, sizes: &[u32]) -> Rooms {
    let mut offsets = vec![0u32];
    for size in sizes {
        offsets.push(offsets[offsets.len() - 1] + size);
    }
    let (offsets, out) = (machine.upload(&offsets), machine.upload(&[0u32; 2]));
    let bits = case.bits.len() as u32;
    unsafe {
        largest_partitions(
            &machine.runtime,
            &machine.stream,
            case.width,
            case.digits,
            bits,
            offsets.ptr(),
            out.ptr(),
        )
        .unwrap();
    }
    let found: Vec<u32> = machine.read(&out, 2);
    Rooms {
        first: found[1],
        last: found[0],
    }
}

/// What a partition made.
struct MadeApart {
    keys: DeviceBuffer,
    columns: Vec<Column>,
    to: Vec<DeviceBuffer>,
    /// Begins, then ends.
    places: DeviceBuffer,
    overflow: DeviceBuffer,
    partitions: usize,
    all_places: usize,
}

impl MadeApart {
    /// So many words of the places, from `first` on.
    fn words(&self, machine: &Machine, first: usize) -> Vec<u32> {
        machine.read::<u32>(&self.places, 2 * self.partitions)[first..first + self.partitions]
            .to_vec()
    }

    fn overflow(&self, machine: &Machine) -> u64 {
        machine.read::<u64>(&self.overflow, 1)[0]
    }

    /// Nothing was written behind the places.
    fn nothing_outside(&self, machine: &Machine, case: &Case<'_>) {
        assert_untouched(machine, &self.keys, self.all_places * case.width as usize);
        for (column, to) in self.columns.iter().zip(&self.to) {
            assert_untouched(machine, to, self.all_places * column.width as usize);
        }
        assert_untouched(machine, &self.places, 2 * self.partitions * 4);
    }
}

fn make(machine: &Machine, case: &Case<'_>, count: RowCount, rooms: Rooms) -> MadeApart {
    let partitions = 1usize << case.bits.len();
    let all_places = partitions * rooms.last as usize;
    let key_bytes = pack(case.keys, case.width);
    let source = machine.upload(&key_bytes);
    let columns = columns(machine, case, 79);
    let space = |width: u32| machine.space(all_places * width as usize);
    let made = MadeApart {
        keys: space(case.width),
        to: columns.iter().map(|column| space(column.width)).collect(),
        places: machine.space(2 * partitions * 4),
        overflow: machine.upload(&[0u64]),
        columns,
        partitions,
        all_places,
    };
    let payloads: Vec<Payload> = (made.columns.iter().zip(&made.to))
        .map(|(column, to)| Payload {
            to: to.ptr(),
            ..column.payload()
        })
        .collect();
    let keys = Keys {
        ptr: source.ptr(),
        width: case.width,
    };
    let places = Partitions {
        begins: made.places.ptr(),
        ends: made.places.ptr().offset(partitions as u64 * 4),
    };
    let of = Partitioning {
        keys,
        to: made.keys.ptr(),
        payloads: &payloads,
        rows: count,
        digits: case.digits,
        bits: case.bits.clone(),
    };
    let (runtime, stream) = (&machine.runtime, &machine.stream);
    let overflow = made.overflow.ptr();
    unsafe { radix_partition_preallocated(runtime, stream, &of, rooms, places, overflow) }.unwrap();
    made
}

/// Room for the largest is enough: every partition has its rows, in any order.
fn fits(
    machine: &Machine,
    case: &Case<'_>,
    count: RowCount,
    rooms: Rooms,
    sizes: &[u32],
    label: &str,
) {
    let made = make(machine, case, count, rooms);
    assert_eq!(made.overflow(machine), 0, "{label}");
    let (begins, ends) = (made.words(machine, 0), made.words(machine, made.partitions));
    for (p, size) in sizes.iter().enumerate() {
        let begin = p as u32 * rooms.last;
        assert_eq!((begins[p], ends[p]), (begin, begin + size), "{label}: {p}");
    }
    let keys_out = keys_out(case);
    let mut before: Vec<(&[u8], u32)> = vec![(&keys_out, case.width)];
    before.extend(made.columns.iter().map(|c| (c.bytes.as_slice(), c.width)));
    let got_keys: Vec<u8> = machine.read(&made.keys, made.all_places * case.width as usize);
    let got: Vec<Vec<u8>> = (made.columns.iter().zip(&made.to))
        .map(|(column, to)| machine.read(to, made.all_places * column.width as usize))
        .collect();
    let mut after: Vec<(&[u8], u32)> = vec![(&got_keys, case.width)];
    after.extend(
        got.iter()
            .map(Vec::as_slice)
            .zip(made.columns.iter().map(|c| c.width)),
    );
    let row = |columns: &[(&[u8], u32)], at: usize| -> Vec<u8> {
        let cells = columns.iter().flat_map(|(bytes, width)| {
            let width = *width as usize;
            bytes[at * width..(at + 1) * width].iter().copied()
        });
        cells.collect()
    };
    let mut expected: Vec<(usize, Vec<u8>)> = (0..case.keys.len())
        .map(|at| (digit(case, case.keys[at]) as usize, row(&before, at)))
        .collect();
    expected.sort();
    let places = (0..made.partitions).flat_map(|p| (begins[p]..ends[p]).map(move |at| (p, at)));
    let mut found: Vec<(usize, Vec<u8>)> = places
        .map(|(p, at)| (p, row(&after, at as usize)))
        .collect();
    found.sort();
    assert!(found == expected, "{label}: rows");
    made.nothing_outside(machine, case);
}
