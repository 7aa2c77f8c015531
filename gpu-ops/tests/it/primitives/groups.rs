//! Numbers of groups.

use std::collections::HashMap;

use warpline_gpu::primitives::{
    GroupNumbers, Keys, RowCount, TakenWords, count_groups, number_groups,
};

use super::{Machine, Numbers, SIZES, machines};

/// What one numbering found.
struct Found {
    numbers: Vec<u32>,
    count: u64,
    overflow: bool,
    dense: Vec<u8>,
}

fn number(machine: &Machine, keys: &[u128], width: u32, slots: u64, rows: RowCount) -> Found {
    let bytes: Vec<u8> = keys
        .iter()
        .flat_map(|key| key.to_le_bytes()[..width as usize].to_vec())
        .collect();
    let source = machine.upload(&bytes);
    let words = machine.upload(&[7u64, 0]);
    let states = machine.space(slots as usize * 4);
    let table = machine.space(slots as usize * width as usize);
    let ids = machine.space(slots as usize * 4);
    let dense = machine.space(slots as usize * width as usize);
    let out = machine.space(keys.len() * 4);
    let numbers = GroupNumbers {
        slots,
        states: states.ptr(),
        keys: table.ptr(),
        numbers: ids.ptr(),
        dense: dense.ptr(),
        room: slots,
        count: words.ptr(),
        overflow: words.ptr_at(8).unwrap(),
    };
    let key = Keys {
        ptr: source.ptr(),
        width,
    };
    // SAFETY: every buffer has the size that the function asks for.
    unsafe {
        number_groups(
            &machine.runtime,
            &machine.stream,
            key,
            rows,
            &numbers,
            out.ptr(),
        )
        .unwrap();
    }
    let words: Vec<u64> = words.download_values(&machine.stream, 0, 2).unwrap();
    let groups = words[0].min(slots) as usize;
    Found {
        numbers: out.download_values(&machine.stream, 0, keys.len()).unwrap(),
        count: words[0],
        overflow: words[1] != 0,
        dense: dense
            .download_values(&machine.stream, 0, groups * width as usize)
            .unwrap(),
    }
}

fn check(machine: &Machine, keys: &[u128], width: u32, slots: u64) {
    let label = format!("{}: {} keys of {width} bytes", machine.name, keys.len());
    let rows = RowCount::Known(keys.len() as u64);
    let found = number(machine, keys, width, slots, rows);
    assert!(!found.overflow, "{label}");
    let mut known: HashMap<u128, u32> = HashMap::new();
    for (key, number) in keys.iter().zip(&found.numbers) {
        assert_eq!(known.entry(*key).or_insert(*number), number, "{label}");
    }
    assert_eq!(found.count, known.len() as u64, "{label}");
    let mut taken: Vec<u32> = known.values().copied().collect();
    taken.sort_unstable();
    assert!(taken.into_iter().eq(0..known.len() as u32), "{label}");
    for (key, number) in known {
        let at = number as usize * width as usize;
        let kept = &found.dense[at..at + width as usize];
        assert_eq!(kept, &key.to_le_bytes()[..width as usize], "{label}");
    }
}

#[test]
fn equal_keys_get_equal_numbers_without_gaps() {
    for machine in machines() {
        for width in [4, 8, 16] {
            let most = u128::MAX >> (129 - width * 8);
            for rows in SIZES.into_iter().filter(|rows| *rows <= 4100) {
                let mut draw = Numbers(u64::from(width) + rows as u64);
                let any: Vec<u128> = (0..rows)
                    .map(|_| (u128::from(draw.draw()) << 64 | u128::from(draw.draw())) & most)
                    .collect();
                check(&machine, &any, width, 8192);
            }
            let skewed: Vec<u128> = (0..2000u128)
                .map(|i| if i % 5 == 0 { most - i % 7 } else { 3 })
                .collect();
            check(&machine, &skewed, width, 32);
            check(&machine, &[most; 700], width, 32);
            check(&machine, &[0; 65], width, 1);
        }
    }
}

#[test]
fn a_full_table_says_so_and_counts_on_the_device_hold() {
    for machine in machines() {
        let keys: Vec<u128> = (0..500).collect();
        let found = number(&machine, &keys, 4, 64, RowCount::Known(500));
        assert!(found.overflow, "{}", machine.name);

        let count = machine.upload(&[100u64]);
        let rows = RowCount::Device {
            count: count.ptr(),
            most: 500,
        };
        let found = number(&machine, &keys, 8, 1024, rows);
        assert_eq!(found.count, 100, "{}", machine.name);
        assert!(!found.overflow, "{}", machine.name);
    }
}

#[test]
fn taken_slots_are_counted() {
    for machine in machines() {
        for rows in SIZES {
            for (stride, width, offset) in [(4, 4, 0), (8, 8, 0), (16, 4, 12), (32, 8, 16)] {
                let taken = |slot: usize| slot.is_multiple_of(3) || slot + 1 == rows;
                let mut slots = vec![0u8; rows * stride];
                for slot in (0..rows).filter(|slot| taken(*slot)) {
                    // The highest byte alone counts as well.
                    let byte = if slot.is_multiple_of(2) { 0 } else { width - 1 };
                    slots[slot * stride + offset + byte] = 0x80;
                }
                // What is beside the words tells nothing.
                for slot in (0..rows).filter(|_| offset > 0) {
                    slots[slot * stride] = 1;
                }
                let slots = machine.upload(&slots);
                let count = machine.upload(&[5u64]);
                let words = TakenWords {
                    words: slots.ptr().offset(offset as u64),
                    stride: stride as u64,
                    width: width as u32,
                };
                let (runtime, stream) = (&machine.runtime, &machine.stream);
                // SAFETY: there are as many slots.
                unsafe {
                    count_groups(runtime, stream, words, rows as u64, count.ptr()).unwrap();
                }
                let found = machine.read::<u64>(&count, 1)[0] - 5;
                let label = format!("{}: {rows} slots of {stride} bytes", machine.name);
                assert_eq!(
                    found as usize,
                    (0..rows).filter(|s| taken(*s)).count(),
                    "{label}"
                );
            }
        }
    }
}
