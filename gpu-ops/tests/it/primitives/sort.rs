//! Orders of rows by key words.

use warpline_gpu::GpuError;
use warpline_gpu::device::DevicePtr;
use warpline_gpu::memory::DeviceBuffer;
use warpline_gpu::primitives::{RangeKeys, RowCount, number_ranges, sort_first_rows, sort_rows};

use super::{Machine, Numbers, SIZES, assert_untouched, machines};

/// The order that the device finds for `words` (columns) is the stable one.
fn check(machine: &Machine, words: &[Vec<u64>], bits: &[u32], rows: RowCount, used: usize) {
    let uploaded: Vec<DeviceBuffer> = words.iter().map(|w| machine.upload(w)).collect();
    let pointers: Vec<DevicePtr> = uploaded.iter().map(DeviceBuffer::ptr).collect();
    let order = machine.space(used * 4);
    unsafe {
        sort_rows(
            &machine.runtime,
            &machine.stream,
            &pointers,
            bits,
            rows,
            order.ptr(),
        )
        .unwrap();
    }
    let low = |word: u64, bits: u32| {
        if bits == 64 {
            word
        } else {
            word & ((1 << bits) - 1)
        }
    };
    let mut expected: Vec<u32> = (0..used as u32).collect();
    expected.sort_by_key(|row| -> Vec<u64> {
        words
            .iter()
            .zip(bits)
            .map(|(w, bits)| low(w[*row as usize], *bits))
            .collect()
    });
    let label = format!("{}: {used} rows by {bits:?} bits", machine.name);
    assert!(machine.read::<u32>(&order, used) == expected, "{label}");
    assert_untouched(machine, &order, used * 4);
}

#[test]
fn orders_of_every_size_and_width() {
    for machine in machines() {
        let mut numbers = Numbers(2);
        for rows in SIZES.into_iter().chain([2047, 2048, 2049, 9000]) {
            // A wide sort of many rows is slow in the emulator.
            let widths: &[u32] = match rows {
                40_000 => &[9],
                4095 => &[33],
                _ => &[1, 8, 17, 64],
            };
            for bits in widths {
                // Garbage above the used bits is ignored.
                let word: Vec<u64> = (0..rows).map(|_| numbers.draw()).collect();
                check(
                    &machine,
                    &[word],
                    &[*bits],
                    RowCount::Known(rows as u64),
                    rows,
                );
            }
        }
    }
}

#[test]
fn major_words_decide_first() {
    for machine in machines() {
        let mut numbers = Numbers(4);
        for rows in [1, 5, 100, 3000] {
            let words: Vec<Vec<u64>> = [3, 5, u64::MAX]
                .into_iter()
                .map(|modulus| (0..rows).map(|_| numbers.draw() % modulus).collect())
                .collect();
            let count = RowCount::Known(rows as u64);
            check(&machine, &words, &[2, 3, 12], count, rows);
            check(&machine, &words, &[2, 0, 40], count, rows);
            check(&machine, &words, &[0, 0, 0], count, rows);
            check(&machine, &[], &[], count, rows);
        }
    }
}

#[test]
fn equal_and_extreme_keys() {
    for machine in machines() {
        for rows in [100, 2500, 8193] {
            let count = RowCount::Known(rows as u64);
            for key in [0, u64::MAX] {
                check(&machine, &[vec![key; rows]], &[64], count, rows);
            }
            let ends = (0..rows as u64).map(|i| if i % 3 == 0 { u64::MAX } else { i % 2 });
            check(&machine, &[ends.collect()], &[64], count, rows);
            let falling = (0..rows as u64).rev();
            check(&machine, &[falling.collect()], &[14], count, rows);
        }
    }
}

#[test]
fn orders_of_a_number_of_rows_known_to_the_device() {
    for machine in machines() {
        let mut numbers = Numbers(9);
        let word: Vec<u64> = (0..10_000).map(|_| numbers.draw()).collect();
        for (rows, most) in [
            (0, 1000),
            (1, 1000),
            (700, 1000),
            (5000, 1000),
            (0, 10_000),
            (1, 10_000),
            (4096, 10_000),
            (5000, 10_000),
            (10_001, 10_000),
        ] {
            let ([_, device], _count) = machine.row_counts(rows, most);
            let used = rows.min(most) as usize;
            check(&machine, std::slice::from_ref(&word), &[11], device, used);
            check(&machine, &[], &[], device, used);
        }
    }
}

/// The first rows by `words`, and where there are as many as `most`, the stable order's.
fn check_first(
    machine: &Machine,
    words: &[Vec<u64>],
    bits: &[u32],
    rows: RowCount,
    used: usize,
    first: u64,
) {
    let uploaded: Vec<DeviceBuffer> = words.iter().map(|w| machine.upload(w)).collect();
    let pointers: Vec<DevicePtr> = uploaded.iter().map(DeviceBuffer::ptr).collect();
    let order = machine.space(rows.most() as usize * 4);
    unsafe {
        sort_first_rows(
            &machine.runtime,
            &machine.stream,
            &pointers,
            bits,
            rows,
            first,
            order.ptr(),
        )
        .unwrap();
    }
    let mut expected: Vec<u32> = (0..used as u32).collect();
    expected.sort_by_key(|row| -> Vec<u64> {
        let low = |(w, bits): (&Vec<u64>, &u32)| w[*row as usize] << (64 - bits) >> (64 - bits);
        words.iter().zip(bits).map(low).collect()
    });
    expected.truncate(first as usize);
    let found = machine.read::<u32>(&order, expected.len());
    assert!(
        found == expected,
        "{}: {first} of {used} rows by {bits:?} bits",
        machine.name
    );
}

#[test]
fn first_rows_of_many() {
    for machine in machines() {
        let mut numbers = Numbers(31);
        let lengths: [(usize, &[u64]); 6] = [
            (1, &[1, 512]),
            (33, &[1, 10]),
            (2048, &[512]),
            (2049, &[1, 100]),
            (4097, &[10, 512, 513]),
            (30_000, &[100]),
        ];
        for (rows, firsts) in lengths {
            let count = RowCount::Known(rows as u64);
            let random: Vec<u64> = (0..rows).map(|_| numbers.draw()).collect();
            let few: Vec<u64> = random.iter().map(|n| n % 3).collect();
            let falling: Vec<u64> = (0..rows as u64).rev().collect();
            let same = vec![u64::MAX; rows];
            let seldom: Vec<u64> = (0..rows as u64).map(|i| u64::from(i % 777 != 5)).collect();
            for &first in firsts {
                for words in [&random, &falling, &same] {
                    check_first(
                        &machine,
                        std::slice::from_ref(words),
                        &[64],
                        count,
                        rows,
                        first,
                    );
                }
                let words = [few.clone(), falling.clone()];
                check_first(&machine, &words, &[2, 20], count, rows, first);
                check_first(
                    &machine,
                    &[seldom.clone(), few.clone()],
                    &[1, 2],
                    count,
                    rows,
                    first,
                );
            }
        }
        // As many as the device says, of room for more.
        let word: Vec<u64> = (0..10_000).map(|_| numbers.draw()).collect();
        for rows in [0, 1, 700, 5000, 10_001] {
            let ([_, device], _count) = machine.row_counts(rows, 10_000);
            let used = rows.min(10_000) as usize;
            check_first(
                &machine,
                std::slice::from_ref(&word),
                &[11],
                device,
                used,
                20,
            );
        }
    }
}

#[test]
fn wrong_sorts_are_refused() {
    let machine = &machines()[0];
    let sort = |words: &[DevicePtr], bits: &[u32], rows: u64| unsafe {
        sort_rows(
            &machine.runtime,
            &machine.stream,
            words,
            bits,
            RowCount::Known(rows),
            DevicePtr::NULL,
        )
    };
    let word = [DevicePtr(256)];
    assert!(matches!(sort(&word, &[], 1), Err(GpuError::Internal(_))));
    assert!(matches!(sort(&word, &[65], 1), Err(GpuError::Internal(_))));
    assert!(matches!(
        sort(&word, &[8], 1 << 32),
        Err(GpuError::Unsupported(_))
    ));
}

/// The number of each row's range between `splitters`, which ascend.
fn check_ranges(machine: &Machine, words: &[Vec<u64>], bits: &[u32], splitters: &[Vec<u64>]) {
    let rows = words[0].len();
    let uploaded: Vec<DeviceBuffer> = words.iter().map(|w| machine.upload(w)).collect();
    let pointers: Vec<DevicePtr> = uploaded.iter().map(DeviceBuffer::ptr).collect();
    let keys = machine.upload(&splitters.concat());
    let ranges = machine.space(rows * 4);
    unsafe {
        let keys = RangeKeys {
            words: &pointers,
            bits,
            rows: RowCount::Known(rows as u64),
            splitters: keys.ptr(),
            count: splitters.len() as u32,
        };
        number_ranges(&machine.runtime, &machine.stream, &keys, ranges.ptr()).unwrap();
    }
    let mask = |word: u64, bits: u32| word & u64::MAX.checked_shr(64 - bits).unwrap_or(0);
    let expected: Vec<u32> = (0..rows)
        .map(|row| {
            let key: Vec<u64> = words
                .iter()
                .zip(bits)
                .map(|(w, b)| mask(w[row], *b))
                .collect();
            let below = splitters.iter().filter(|s| **s < key).count();
            (2 * below + usize::from(splitters.contains(&key))) as u32
        })
        .collect();
    let label = format!(
        "{}: {rows} rows, {} splitters",
        machine.name,
        splitters.len()
    );
    assert!(machine.read::<u32>(&ranges, rows) == expected, "{label}");
    assert_untouched(machine, &ranges, rows * 4);
}

#[test]
fn ranges_between_splitters() {
    for machine in machines() {
        let mut numbers = Numbers(6);
        for rows in [0, 1, 31, 32, 33, 1000, 5000] {
            for count in [0, 1, 2, 127] {
                // Garbage above the used bits is ignored; many rows have a splitter's key.
                let word: Vec<u64> = (0..rows).map(|_| numbers.draw()).collect();
                let splitters: Vec<Vec<u64>> = (0..count).map(|i| vec![i * 4]).collect();
                check_ranges(&machine, &[word], &[9], &splitters);
                let major: Vec<u64> = (0..rows).map(|_| numbers.draw() % 3).collect();
                let minor: Vec<u64> = (0..rows).map(|_| numbers.draw() % 60).collect();
                let splitters: Vec<Vec<u64>> = (0..count).map(|i| vec![i / 50, i % 50]).collect();
                check_ranges(&machine, &[major, minor], &[2, 64], &splitters);
            }
        }
    }
}
