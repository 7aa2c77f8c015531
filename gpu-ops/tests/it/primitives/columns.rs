//! Columns by row number, counts of digits, runs of equal keys.

use warpline_gpu::GpuError;
use warpline_gpu::primitives::{
    Digits, KeyDigits, Keys, RowCount, gather, histogram, run_lengths, scatter,
};

use super::{Machine, Numbers, SIZES, assert_untouched, machines};

/// `map` applied to values of a width, and undone when it is a permutation.
fn check_moves(machine: &Machine, map: &[u32], source_rows: usize, width: usize, rows: RowCount) {
    let label = format!("{}: {} values of {width} bytes", machine.name, map.len());
    let mut numbers = Numbers(9);
    let values: Vec<u8> = (0..source_rows * width)
        .map(|_| numbers.draw() as u8)
        .collect();
    let column = machine.upload(&values);
    let entries = machine.upload(map);
    let out = machine.space(map.len() * width);
    let back = machine.space(source_rows * width);
    let (runtime, stream) = (&machine.runtime, &machine.stream);
    unsafe {
        gather(
            runtime,
            stream,
            column.ptr(),
            entries.ptr(),
            out.ptr(),
            width as u32,
            rows,
        )
        .unwrap();
        scatter(
            runtime,
            stream,
            out.ptr(),
            entries.ptr(),
            back.ptr(),
            width as u32,
            rows,
        )
        .unwrap();
    }
    let mut expected = Vec::new();
    let mut expected_back = vec![0xA5; source_rows * width];
    for entry in map {
        let bytes = *entry as usize * width..(*entry as usize + 1) * width;
        expected.extend_from_slice(&values[bytes.clone()]);
        expected_back[bytes.clone()].copy_from_slice(&values[bytes]);
    }
    assert!(
        machine.read::<u8>(&out, expected.len()) == expected,
        "{label}"
    );
    assert!(
        machine.read::<u8>(&back, expected_back.len()) == expected_back,
        "{label}: back"
    );
    assert_untouched(machine, &out, expected.len());
    assert_untouched(machine, &back, expected_back.len());
}

#[test]
fn columns_of_every_size_and_width() {
    for machine in machines() {
        let mut numbers = Numbers(3);
        for rows in SIZES {
            let source_rows = rows / 2 + 3;
            let map: Vec<u32> = (0..rows)
                .map(|_| (numbers.draw() % source_rows as u64) as u32)
                .collect();
            let (counts, _kept) = machine.row_counts(rows as u64, rows as u64 + 5000);
            for width in [1, 2, 4, 8, 16] {
                for count in counts {
                    check_moves(&machine, &map, source_rows, width, count);
                }
            }
        }
    }
}

#[test]
fn digits_are_counted() {
    for machine in machines() {
        let mut numbers = Numbers(5);
        for rows in SIZES {
            let keys: Vec<u64> = (0..rows)
                .map(|i| if i % 3 == 0 { u64::MAX } else { numbers.draw() })
                .collect();
            let uploaded = machine.upload(&keys);
            for (width, per_key, digits, shift, bits) in [
                (4, 2, Digits::Key, 5, 8),
                (8, 1, Digits::Key, 57, 7),
                (8, 1, Digits::Hash, 0, 0),
            ] {
                // A key further, 4-byte keys are not aligned to 16 bytes any more.
                let skipped = usize::from(width == 4 && rows > 0);
                let count = rows * per_key - skipped;
                let out = machine.space(256 * 4);
                let from = Keys {
                    ptr: uploaded.ptr().offset(skipped as u64 * 4),
                    width,
                };
                unsafe {
                    let of = KeyDigits {
                        keys: from,
                        rows: RowCount::Known(count as u64),
                        digits,
                        shift,
                        bits,
                    };
                    histogram(&machine.runtime, &machine.stream, &of, out.ptr()).unwrap();
                }
                let words: Vec<u64> = if width == 8 {
                    keys.clone()
                } else {
                    keys.iter()
                        .flat_map(|k| [k & 0xffff_ffff, k >> 32])
                        .skip(skipped)
                        .collect()
                };
                let mut expected = vec![0u32; 256];
                for word in words {
                    let digit = if bits == 0 {
                        0
                    } else {
                        (word >> shift) & ((1 << bits) - 1)
                    };
                    expected[digit as usize] += 1;
                }
                assert_eq!(
                    machine.read::<u32>(&out, 256),
                    expected,
                    "{}: {rows}",
                    machine.name
                );
                assert_untouched(&machine, &out, 1024);
            }
        }
    }
}

/// The runs of `keys`, whose lowest `width` bytes count.
fn check_runs(machine: &Machine, keys: &[u128], width: usize, rows: RowCount) {
    let bytes: Vec<u8> = keys
        .iter()
        .flat_map(|k| k.to_le_bytes()[..width].to_vec())
        .collect();
    let uploaded = machine.upload(&bytes);
    let starts = machine.space((keys.len() + 1) * 4);
    let runs = machine.space(8);
    unsafe {
        let from = Keys {
            ptr: uploaded.ptr(),
            width: width as u32,
        };
        run_lengths(
            &machine.runtime,
            &machine.stream,
            from,
            rows,
            starts.ptr(),
            runs.ptr(),
        )
        .unwrap();
    }
    let key = |row: usize| &bytes[row * width..(row + 1) * width];
    let mut expected: Vec<u32> = (0..keys.len())
        .filter(|row| *row == 0 || key(*row) != key(*row - 1))
        .map(|row| row as u32)
        .collect();
    let label = format!("{}: {} keys of {width} bytes", machine.name, keys.len());
    assert_eq!(
        machine.read::<u64>(&runs, 1),
        [expected.len() as u64],
        "{label}"
    );
    expected.push(keys.len() as u32);
    assert!(
        machine.read::<u32>(&starts, expected.len()) == expected,
        "{label}"
    );
    assert_untouched(machine, &starts, expected.len() * 4);
    assert_untouched(machine, &runs, 8);
}

#[test]
fn runs_of_every_size_and_width() {
    for machine in machines() {
        let mut numbers = Numbers(6);
        for rows in SIZES {
            for (width, values) in [(4, 3), (8, u64::MAX), (16, 50), (4, 1)] {
                let mut keys: Vec<u128> = (0..rows)
                    .map(|_| u128::from(numbers.draw() % values) << (width * 8 - 64.min(width * 8)))
                    .collect();
                keys.sort_unstable();
                let (counts, _kept) = machine.row_counts(rows as u64, rows as u64 + 9000);
                for count in counts {
                    check_runs(&machine, &keys, width, count);
                }
            }
        }
    }
}

#[test]
fn widths_without_kernels_are_refused() {
    let machine = &machines()[0];
    let buffer = machine.space(64);
    let ptr = buffer.ptr();
    let (runtime, stream) = (&machine.runtime, &machine.stream);
    let rows = RowCount::Known(1);
    let keys = Keys { ptr, width: 2 };
    let digits = KeyDigits {
        keys,
        rows,
        digits: Digits::Key,
        shift: 0,
        bits: 8,
    };
    let errors = unsafe {
        [
            gather(runtime, stream, ptr, ptr, ptr, 3, rows).unwrap_err(),
            scatter(runtime, stream, ptr, ptr, ptr, 0, rows).unwrap_err(),
            run_lengths(runtime, stream, keys, rows, ptr, ptr).unwrap_err(),
            histogram(runtime, stream, &digits, ptr).unwrap_err(),
        ]
    };
    for error in errors {
        assert!(matches!(error, GpuError::Internal(_)), "{error}");
    }
}
