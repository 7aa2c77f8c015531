//! Stable radix partitions of keys with payload columns.

use std::ops::Range;

use warpline_cuda::KernelArgs;
use warpline_cuda::kernels::{PartitionPassArgs, PartitionShape};
use warpline_gpu::GpuError;
use warpline_gpu::device::{DevicePtr, LaunchConfig};
use warpline_gpu::memory::DeviceBuffer;
use warpline_gpu::primitives::{
    Digits, Keys, Partitioning, Payload, RowCount, keeps_hashes, radix_partition,
    radix_partition_unstable,
};

use super::{
    Machine, Numbers, SIZES, assert_untouched, machines, partition_preallocated, partition_unstable,
};

/// What is partitioned by what.
#[derive(Clone)]
pub(super) struct Case<'a> {
    pub(super) keys: &'a [u128],
    pub(super) width: u32,
    /// Widths of payload columns; 0 stands for the row numbers.
    pub(super) payloads: &'a [u32],
    pub(super) digits: Digits,
    pub(super) bits: Range<u32>,
    keep_keys: bool,
}

/// Little-endian bytes of the lowest `width` bytes of each value.
pub(super) fn pack(values: &[u128], width: u32) -> Vec<u8> {
    values
        .iter()
        .flat_map(|v| v.to_le_bytes()[..width as usize].to_vec())
        .collect()
}

fn hash64(mut x: u64) -> u64 {
    x ^= x >> 33;
    x = x.wrapping_mul(0xff51_afd7_ed55_8ccd);
    x ^= x >> 33;
    x = x.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    x ^ (x >> 33)
}

fn hash32(mut x: u32) -> u32 {
    x ^= x >> 16;
    x = x.wrapping_mul(0x85eb_ca6b);
    x ^= x >> 13;
    x = x.wrapping_mul(0xc2b2_ae35);
    x ^ (x >> 16)
}

/// The hash of a key of `width` bytes.
pub(super) fn hash(key: u128, width: u32) -> u128 {
    match width {
        4 => hash32(key as u32).into(),
        8 => hash64(key as u64).into(),
        _ => hash64(hash64(key as u64) ^ (key >> 64) as u64).into(),
    }
}

/// Keys as they come out of a partition in any order.
pub(super) fn keys_out(case: &Case<'_>) -> Vec<u8> {
    let out = |key: &u128| match case.digits {
        Digits::KeptHash => hash(*key, case.width),
        Digits::Key | Digits::Hash => *key,
    };
    pack(&case.keys.iter().map(out).collect::<Vec<_>>(), case.width)
}

/// The partition of a key.
pub(super) fn digit(case: &Case<'_>, key: u128) -> u128 {
    let word = match (case.digits, case.width) {
        (Digits::Key, 16) => key,
        (Digits::Key, width) => key & ((1 << (width * 8)) - 1),
        (Digits::Hash | Digits::KeptHash, width) => hash(key, width),
    };
    match case.bits.len() {
        128 => word,
        length => (word >> case.bits.start) & ((1 << length) - 1),
    }
}

/// A payload column: what it has, where that lies (nowhere for row numbers), and where it goes.
pub(super) struct Column {
    pub(super) bytes: Vec<u8>,
    from: Option<DeviceBuffer>,
    pub(super) to: DeviceBuffer,
    pub(super) width: u32,
}

impl Column {
    pub(super) fn payload(&self) -> Payload {
        Payload {
            from: self.from.as_ref().map(DeviceBuffer::ptr),
            to: self.to.ptr(),
            width: self.width,
        }
    }
}

/// The payload columns of a case, drawn by `seed`.
pub(super) fn columns(machine: &Machine, case: &Case<'_>, seed: u64) -> Vec<Column> {
    let rows = case.keys.len();
    let mut numbers = Numbers(seed);
    let mut column = |width: u32| {
        let (values, width): (Vec<u128>, u32) = if width == 0 {
            ((0..rows as u128).collect(), 4)
        } else {
            let mut draw = || u128::from(numbers.draw()) << 64 | u128::from(numbers.draw());
            ((0..rows).map(|_| draw()).collect(), width)
        };
        (pack(&values, width), width)
    };
    let of = |width: &u32| {
        let (bytes, stored) = column(*width);
        Column {
            from: (*width != 0).then(|| machine.upload(&bytes)),
            to: machine.space(bytes.len()),
            width: stored,
            bytes,
        }
    };
    case.payloads.iter().map(of).collect()
}

fn check(machine: &Machine, case: &Case<'_>, count: RowCount) {
    let rows = case.keys.len();
    let mut order: Vec<usize> = (0..rows).collect();
    order.sort_by_key(|row| digit(case, case.keys[*row]));
    let label = format!(
        "{}: {rows} keys of {} bytes, payloads {:?}, {:?} {:?}",
        machine.name, case.width, case.payloads, case.digits, case.bits
    );

    let key_bytes = pack(case.keys, case.width);
    let source = machine.upload(&key_bytes);
    let target = machine.space(key_bytes.len());
    let columns = columns(machine, case, 77);
    let payloads: Vec<Payload> = columns.iter().map(Column::payload).collect();
    let with_offsets = case.keep_keys && case.bits.len() <= 12;
    let partitions = 1usize << if with_offsets { case.bits.len() } else { 0 };
    let offsets = machine.space((partitions + 1) * 4);
    let of = Partitioning {
        keys: Keys {
            ptr: source.ptr(),
            width: case.width,
        },
        to: match case.keep_keys {
            true => target.ptr(),
            false => DevicePtr::NULL,
        },
        payloads: &payloads,
        rows: count,
        digits: case.digits,
        bits: case.bits.clone(),
    };
    let places = with_offsets.then(|| offsets.ptr());
    unsafe { radix_partition(&machine.runtime, &machine.stream, &of, places) }.unwrap();

    let ordered = |bytes: &[u8], width: u32| -> Vec<u8> {
        let width = width as usize;
        order
            .iter()
            .flat_map(|row| bytes[row * width..(row + 1) * width].to_vec())
            .collect()
    };
    if case.keep_keys {
        let got: Vec<u8> = machine.read(&target, key_bytes.len());
        assert!(got == ordered(&key_bytes, case.width), "{label}: keys");
        assert_untouched(machine, &target, key_bytes.len());
    } else {
        assert_untouched(machine, &target, 0);
    }
    assert!(
        machine.read::<u8>(&source, key_bytes.len()) == key_bytes,
        "{label}: the source"
    );
    for (number, column) in columns.iter().enumerate() {
        let (bytes, to) = (&column.bytes, &column.to);
        let got: Vec<u8> = machine.read(to, bytes.len());
        assert!(
            got == ordered(bytes, column.width),
            "{label}: payload {number}"
        );
        assert_untouched(machine, to, bytes.len());
    }
    if with_offsets {
        let expected: Vec<u32> = (0..=partitions as u128)
            .map(|p| order.partition_point(|row| digit(case, case.keys[*row]) < p) as u32)
            .collect();
        assert!(
            machine.read::<u32>(&offsets, partitions + 1) == expected,
            "{label}: offsets"
        );
        assert_untouched(machine, &offsets, (partitions + 1) * 4);
    }
    if case.keep_keys && case.bits.len() <= 17 {
        partition_unstable::check(machine, case, count);
        partition_preallocated::check(machine, case, count);
        let bits = case.bits.len() as u32;
        if case.digits == Digits::Hash && keeps_hashes(case.width, case.payloads.len(), bits) {
            let mut kept = case.clone();
            kept.digits = Digits::KeptHash;
            partition_unstable::check(machine, &kept, count);
            partition_preallocated::check(machine, &kept, count);
        }
    }
}

fn random(numbers: &mut Numbers, rows: usize) -> Vec<u128> {
    (0..rows)
        .map(|_| u128::from(numbers.draw()) << 64 | u128::from(numbers.draw()))
        .collect()
}

#[test]
fn every_size_and_key_width() {
    for machine in machines() {
        let mut numbers = Numbers(1);
        for rows in SIZES {
            let keys = random(&mut numbers, rows);
            let shapes: &[(u32, &[u32], Digits, Range<u32>)] = &[
                (4, &[0], Digits::Key, 3..11),
                (8, &[0], Digits::Hash, 0..11),
                (4, &[0, 4], Digits::Hash, 2..13),
                (8, &[], Digits::Hash, 7..12),
                (16, &[4], Digits::Key, 60..68),
            ];
            for (width, payloads, digits, bits) in shapes {
                // Wide keys of many rows are slow in the emulator.
                if rows > 5000 && *width != 4 {
                    continue;
                }
                let case = Case {
                    keys: &keys,
                    width: *width,
                    payloads,
                    digits: *digits,
                    bits: bits.clone(),
                    keep_keys: true,
                };
                check(&machine, &case, RowCount::Known(rows as u64));
            }
        }
    }
}

#[test]
fn payloads_of_every_width() {
    for machine in machines() {
        let mut numbers = Numbers(2);
        let keys = random(&mut numbers, 3000);
        let shapes: &[(u32, &[u32])] = &[
            (4, &[]),
            (4, &[4, 4]),
            (4, &[1, 2, 8, 16, 1, 0]),
            (8, &[8, 8]),
            (16, &[16, 2]),
            // More than one group.
            (4, &[4, 1, 1, 1, 1, 2, 2, 8, 0, 4]),
        ];
        for (width, payloads) in shapes {
            let case = Case {
                keys: &keys,
                width: *width,
                payloads,
                digits: Digits::Key,
                bits: 0..10,
                keep_keys: true,
            };
            check(&machine, &case, RowCount::Known(3000));
        }
    }
}

#[test]
fn whole_keys_are_sorted() {
    for machine in machines() {
        let mut numbers = Numbers(3);
        let keys = random(&mut numbers, 700);
        for (width, digits, keep_keys) in [
            (4, Digits::Key, true),
            (8, Digits::Key, false),
            (16, Digits::Key, true),
            (16, Digits::Hash, false),
        ] {
            let bits = match digits {
                Digits::Key => width * 8,
                Digits::Hash | Digits::KeptHash => 64,
            };
            for rows in [0, 700] {
                let case = Case {
                    keys: &keys[..rows],
                    width,
                    payloads: &[0],
                    digits,
                    bits: 0..bits,
                    keep_keys,
                };
                check(&machine, &case, RowCount::Known(rows as u64));
            }
        }
    }
}

#[test]
fn skew_duplicates_and_extremes() {
    for machine in machines() {
        let mut numbers = Numbers(4);
        let mut draw = |rows: usize, f: &dyn Fn(u64) -> u128| -> Vec<u128> {
            (0..rows).map(|_| f(numbers.draw())).collect()
        };
        let inputs = [
            draw(20_000, &|_| 7),
            draw(10_000, &|x| if x % 10 == 0 { u128::from(x) } else { 0xff }),
            draw(10_000, &|x| u128::from(x % 3)),
            draw(5000, &|x| if x % 2 == 0 { u128::MAX } else { 0 }),
        ];
        for keys in &inputs {
            let case = Case {
                keys,
                width: 4,
                payloads: &[0],
                digits: Digits::Key,
                bits: 0..9,
                keep_keys: true,
            };
            check(&machine, &case, RowCount::Known(keys.len() as u64));
        }
    }
}

#[test]
fn rows_that_the_device_counts_and_no_bits() {
    for machine in machines() {
        let mut numbers = Numbers(5);
        for rows in [0, 33, 1000] {
            let keys = random(&mut numbers, rows);
            for bits in [0..0, 5..6, 0..8] {
                let (counts, _kept) = machine.row_counts(rows as u64, rows as u64 + 12_000);
                for count in counts {
                    let case = Case {
                        keys: &keys,
                        width: 4,
                        payloads: &[0, 8],
                        digits: Digits::Key,
                        bits: bits.clone(),
                        keep_keys: true,
                    };
                    check(&machine, &case, count);
                }
            }
        }
    }
}

/// From 2^30 rows on, a tile's words have 8 bytes: the pass that is compiled for it, on fewer rows.
#[test]
fn passes_for_very_many_rows() {
    for machine in machines() {
        let shape = PartitionShape {
            key_width: 4,
            hashed: false,
            wide_states: true,
            widths: &[4],
        };
        let mut numbers = Numbers(6);
        let rows = 3 * shape.tile() as usize + 100;
        let keys: Vec<u32> = (0..rows).map(|_| numbers.draw() as u32).collect();
        let mut counts = vec![0u32; 256];
        for key in &keys {
            counts[(key >> 4 & 255) as usize] += 1;
        }
        let source = machine.upload(&keys);
        let histogram = machine.upload(&counts);
        let states = machine.upload(&vec![0u64; 4 * 256]);
        let ticket = machine.word();
        let (target, order) = (machine.space(rows * 4), machine.space(rows * 4));
        let mut args = PartitionPassArgs {
            keys_in: source.ptr(),
            keys_out: target.ptr(),
            from: [DevicePtr::NULL; 8],
            to: [DevicePtr::NULL; 8],
            histogram: histogram.ptr(),
            states: states.ptr(),
            ticket: ticket.ptr(),
            count: DevicePtr::NULL,
            most: rows as u64,
            shift: 4,
            mask: 255,
        };
        args.to[0] = order.ptr();
        let config = LaunchConfig {
            grid: 4,
            block: shape.threads(),
            shared_bytes: shape.shared_bytes(),
        };
        let (kernel, _) = machine
            .runtime
            .kernel("partition_pass", &shape.source())
            .unwrap();
        let device = machine.runtime.device();
        unsafe {
            device
                .launch(&machine.stream, &kernel, config, args.as_bytes())
                .unwrap()
        };
        let mut expected: Vec<u32> = (0..rows as u32).collect();
        expected.sort_by_key(|row| keys[*row as usize] >> 4 & 255);
        assert!(
            machine.read::<u32>(&order, rows) == expected,
            "{}",
            machine.name
        );
        let moved: Vec<u32> = expected.iter().map(|row| keys[*row as usize]).collect();
        assert!(
            machine.read::<u32>(&target, rows) == moved,
            "{}",
            machine.name
        );
        assert_untouched(&machine, &order, rows * 4);
    }
}

#[test]
fn what_does_not_exist_is_refused() {
    let machine = &machines()[0];
    let buffer = machine.space(64);
    let keys = |width| Keys {
        ptr: buffer.ptr(),
        width,
    };
    let run = |keys: Keys, payload: Payload, rows: u64, bits: Range<u32>| {
        let of = Partitioning {
            keys,
            to: buffer.ptr(),
            payloads: &[payload],
            rows: RowCount::Known(rows),
            digits: Digits::Key,
            bits,
        };
        unsafe { radix_partition(&machine.runtime, &machine.stream, &of, None) }
    };
    let payload = |width, from| Payload {
        from,
        to: buffer.ptr(),
        width,
    };
    let some = Some(buffer.ptr());
    for (keys, payload, bits) in [
        (keys(3), payload(4, some), 0..8),
        (keys(4), payload(3, some), 0..8),
        (keys(4), payload(8, None), 0..8),
        (keys(4), payload(4, some), 0..33),
    ] {
        let error = run(keys, payload, 1, bits).unwrap_err();
        assert!(matches!(error, GpuError::Internal(_)), "{error}");
    }
    let error = run(keys(4), payload(4, some), u64::from(u32::MAX), 0..8).unwrap_err();
    assert!(matches!(error, GpuError::Unsupported(_)), "{error}");
    // Hashes stand for keys of up to 8 bytes, and only in any order.
    let kept = |width, offsets: Option<DevicePtr>| {
        let of = Partitioning {
            keys: keys(width),
            to: buffer.ptr(),
            payloads: &[],
            rows: RowCount::Known(1),
            digits: Digits::KeptHash,
            bits: 0..1,
        };
        unsafe { radix_partition_unstable(&machine.runtime, &machine.stream, &of, offsets) }
    };
    for (width, offsets) in [(16, some), (8, None)] {
        let error = kept(width, offsets).unwrap_err();
        assert!(matches!(error, GpuError::Internal(_)), "{error}");
    }
}
