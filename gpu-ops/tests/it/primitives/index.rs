//! Join indexes: tables, sets and ranges of entries.

use std::collections::{BTreeMap, BTreeSet};

use warpline_gpu::GpuError;
use warpline_gpu::device::DevicePtr;
use warpline_gpu::memory::DeviceBuffer;
use warpline_gpu::primitives::{
    HashTable, KeyedRows, RankedRanges, RowCount, WordKeys, build_dense_ranges, build_ranges,
    build_ranked_ranges, build_sorted, insert_set, insert_unique, rank_words, slots_for,
};

use super::{Machine, Numbers, SIZES, machines};

/// Key words column by column; a row whose first word is all ones has no key.
struct Keys {
    words: Vec<Vec<u64>>,
}

impl Keys {
    fn new(width: usize, rows: usize, mut word: impl FnMut(usize, usize) -> u64) -> Self {
        let words = (0..width)
            .map(|w| (0..rows).map(|row| word(row, w)).collect())
            .collect();
        Self { words }
    }

    fn rows(&self) -> usize {
        self.words[0].len()
    }

    fn key(&self, row: usize) -> Option<Vec<u64>> {
        let key: Vec<u64> = self.words.iter().map(|w| w[row]).collect();
        (key[0] != u64::MAX).then_some(key)
    }

    /// Rows by key, of the first `rows`.
    fn groups(&self, rows: usize) -> BTreeMap<Vec<u64>, BTreeSet<u32>> {
        let mut groups: BTreeMap<_, BTreeSet<u32>> = BTreeMap::new();
        for row in 0..rows {
            if let Some(key) = self.key(row) {
                groups.entry(key).or_default().insert(row as u32);
            }
        }
        groups
    }
}

/// A table on the device.
struct Table {
    width: usize,
    slots: u64,
    keys: DeviceBuffer,
    states: DeviceBuffer,
    overflow: DeviceBuffer,
    words: Vec<DeviceBuffer>,
}

impl Table {
    fn new(machine: &Machine, keys: &Keys, slots: u64) -> Self {
        let width = keys.words.len();
        Self {
            width,
            slots,
            keys: machine.space(slots as usize * width * 8),
            states: machine.space(slots as usize * 4),
            overflow: machine.word(),
            words: keys.words.iter().map(|w| machine.upload(w)).collect(),
        }
    }

    /// Rows to enter into it.
    fn rows<'a>(&self, words: &'a [DevicePtr], rows: RowCount) -> KeyedRows<'a> {
        KeyedRows {
            words,
            rows,
            table: self.table(),
            overflow: self.overflow.ptr(),
        }
    }

    fn table(&self) -> HashTable {
        HashTable {
            slots: self.slots,
            keys: self.keys.ptr(),
            states: if self.width == 1 {
                DevicePtr::NULL
            } else {
                self.states.ptr()
            },
        }
    }

    fn words(&self) -> Vec<DevicePtr> {
        self.words.iter().map(DeviceBuffer::ptr).collect()
    }

    fn overflowed(&self, machine: &Machine) -> bool {
        machine.read::<u64>(&self.overflow, 1)[0] != 0
    }

    /// The key of each occupied slot, every one of them where a look-up would find it.
    fn contents(&self, machine: &Machine) -> Vec<Option<Vec<u64>>> {
        let slots = self.slots as usize;
        let words: Vec<u64> = machine.read(&self.keys, slots * self.width);
        let states: Vec<u32> = machine.read(&self.states, slots);
        let slots: Vec<Option<Vec<u64>>> = (0..slots)
            .map(|slot| {
                let key = &words[slot * self.width..(slot + 1) * self.width];
                let occupied = if self.width == 1 {
                    key[0] != u64::MAX
                } else {
                    states[slot] == 2
                };
                occupied.then(|| key.to_vec())
            })
            .collect();
        for (slot, key) in slots.iter().enumerate() {
            let Some(key) = key else { continue };
            let mut at = key.iter().fold(0, |hash, w| hash64(hash ^ w)) as usize % slots.len();
            while at != slot {
                assert!(slots[at].as_ref().is_some_and(|other| other != key));
                at = (at + 1) % slots.len();
            }
        }
        slots
    }
}

fn hash64(mut x: u64) -> u64 {
    x ^= x >> 33;
    x = x.wrapping_mul(0xff51_afd7_ed55_8ccd);
    x ^= x >> 33;
    x = x.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    x ^ (x >> 33)
}

/// Check `build_ranges` and `insert_set` over the first `rows` rows.
fn check_ranges(machine: &Machine, keys: &Keys, count: RowCount, rows: usize) {
    let label = format!("{}: {rows} of {}", machine.name, keys.rows());
    let groups = keys.groups(rows);
    let table = Table::new(machine, keys, slots_for(count.most()));
    let offsets = machine.space((table.slots as usize + 1) * 4);
    let entries = machine.space(keys.rows() * 4);
    unsafe {
        build_ranges(
            &machine.runtime,
            &machine.stream,
            &table.rows(&table.words(), count),
            offsets.ptr(),
            entries.ptr(),
        )
        .unwrap();
    }
    assert!(!table.overflowed(machine), "{label}");
    let offsets: Vec<u32> = machine.read(&offsets, table.slots as usize + 1);
    let entries: Vec<u32> = machine.read(&entries, keys.rows());
    let mut found = BTreeMap::new();
    for (slot, key) in table.contents(machine).into_iter().enumerate() {
        let range = offsets[slot] as usize..offsets[slot + 1] as usize;
        match key {
            Some(key) => {
                let rows: BTreeSet<u32> = entries[range.clone()].iter().copied().collect();
                assert_eq!(rows.len(), range.len(), "{label}");
                assert!(found.insert(key, rows).is_none(), "{label}");
            }
            None => assert!(range.is_empty(), "{label}"),
        }
    }
    assert!(found == groups, "{label}");

    let table = Table::new(machine, keys, slots_for(groups.len() as u64));
    unsafe {
        insert_set(
            &machine.runtime,
            &machine.stream,
            &table.rows(&table.words(), count),
        )
        .unwrap();
    }
    assert!(!table.overflowed(machine), "{label}");
    let mut set: Vec<Vec<u64>> = table.contents(machine).into_iter().flatten().collect();
    set.sort();
    assert!(set.iter().eq(groups.keys()), "{label}");
}

#[test]
fn ranges_and_sets_of_every_size() {
    for machine in machines() {
        for width in [1, 2, 5] {
            for rows in SIZES.into_iter().filter(|r| *r < 10_000) {
                let mut numbers = Numbers(rows as u64);
                let domain = 1 + rows as u64 / 3;
                // Few values a word, so that keys repeat; some rows have no key.
                let draws: Vec<u64> = (0..rows).map(|_| numbers.draw() % domain).collect();
                let keys = Keys::new(width, rows, |row, w| match draws[row] {
                    d if d % 7 == 3 => u64::MAX,
                    d if w % 2 == 0 => d.wrapping_mul(0x1234_5678_9abc),
                    d => d % 5,
                });
                check_ranges(&machine, &keys, RowCount::Known(rows as u64), rows);
            }
        }
    }
}

#[test]
fn ranges_of_one_key_and_of_extreme_words() {
    for machine in machines() {
        for width in [1, 3] {
            let same = Keys::new(width, 5000, |_, _| 0);
            check_ranges(&machine, &same, RowCount::Known(5000), 5000);
            let none = Keys::new(width, 300, |_, _| u64::MAX);
            check_ranges(&machine, &none, RowCount::Known(300), 300);
            let extreme = Keys::new(width, 900, |row, w| match (row + w) % 3 {
                0 => 0,
                1 => u64::MAX - 1,
                // The mark of a row without a key in the first word; any other word may hold it.
                _ => u64::MAX,
            });
            check_ranges(&machine, &extreme, RowCount::Known(900), 900);
        }
    }
}

#[test]
fn skewed_keys_among_others() {
    for machine in machines() {
        let keys = Keys::new(
            1,
            20_000,
            |row, _| if row % 10 < 9 { 42 } else { row as u64 },
        );
        check_ranges(&machine, &keys, RowCount::Known(20_000), 20_000);
    }
}

#[test]
fn the_device_knows_the_rows() {
    for machine in machines() {
        let keys = Keys::new(2, 3000, |row, w| (row as u64 * 7919) >> w);
        for (rows, most) in [(0, 3000), (1, 3000), (1234, 3000), (9999, 3000), (5, 0)] {
            let (counts, _count) = machine.row_counts(rows, most);
            check_ranges(&machine, &keys, counts[1], rows.min(most) as usize);
        }
    }
}

/// Insert as unique keys; the duplicate word, and whether the table then has the right entries.
fn unique(machine: &Machine, keys: &Keys, slots: u64) -> (bool, bool) {
    let rows = keys.rows();
    let table = Table::new(machine, keys, slots);
    let entry = machine.space(slots as usize * 4);
    let duplicate = machine.word();
    unsafe {
        insert_unique(
            &machine.runtime,
            &machine.stream,
            &table.rows(&table.words(), RowCount::Known(rows as u64)),
            entry.ptr(),
            duplicate.ptr(),
        )
        .unwrap();
    }
    let overflow = table.overflowed(machine);
    let groups = keys.groups(rows);
    let entry: Vec<u32> = machine.read(&entry, slots as usize);
    let mut found = BTreeSet::new();
    for (slot, key) in table.contents(machine).into_iter().enumerate() {
        let Some(key) = key else { continue };
        assert!(groups[&key].contains(&entry[slot]), "{}", machine.name);
        found.insert(key);
    }
    assert!(overflow || found.iter().eq(groups.keys()));
    (machine.read::<u64>(&duplicate, 1)[0] != 0, overflow)
}

#[test]
fn unique_keys_and_a_single_duplicate() {
    for machine in machines() {
        for width in [1, 2] {
            for rows in [0, 1, 33, 3000] {
                let word = |row: usize, w: usize| (row as u64 + 1) << (20 * w);
                let keys = Keys::new(width, rows, word);
                let slots = slots_for(rows as u64);
                assert_eq!(unique(&machine, &keys, slots), (false, false));
                if rows > 1 {
                    let twice = Keys::new(width, rows, |row, w| word(row.max(1), w));
                    assert_eq!(unique(&machine, &twice, slots), (true, false));
                }
            }
            // Rows without a key are no duplicates of each other.
            let nulls = Keys::new(width, 100, |row, _| if row < 99 { u64::MAX } else { 5 });
            assert_eq!(unique(&machine, &nulls, 256), (false, false));
        }
    }
}

#[test]
fn a_full_table_says_so() {
    for machine in machines() {
        let full = Keys::new(1, 64, |row, _| row as u64);
        assert_eq!(unique(&machine, &full, 64), (false, false));
        let over = Keys::new(1, 65, |row, _| row as u64);
        assert_eq!(unique(&machine, &over, 64), (false, true));
    }
}

#[test]
fn dense_ranges() {
    for machine in machines() {
        let mut numbers = Numbers(1);
        for (rows, domain) in [
            (0usize, 10u64),
            (1, 1),
            (33, 1),
            (5000, 1),
            (5000, 7000),
            (20_000, 33),
        ] {
            // Words from the domain, a few beyond it, and rows without a key.
            let words: Vec<u64> = (0..rows)
                .map(|_| match numbers.draw() % (domain + 2) {
                    w if w == domain + 1 => u64::MAX,
                    w => w,
                })
                .collect();
            let (counts, _count) = machine.row_counts(rows as u64, rows as u64 + 100);
            for count in counts {
                let mut padded = words.clone();
                padded.resize(count.most() as usize, 0);
                let word = machine.upload(&padded);
                let offsets = machine.space((domain as usize + 1) * 4);
                let entries = machine.space(rows * 4);
                unsafe {
                    build_dense_ranges(
                        &machine.runtime,
                        &machine.stream,
                        word.ptr(),
                        count,
                        domain,
                        offsets.ptr(),
                        Some(entries.ptr()),
                    )
                    .unwrap();
                }
                let offsets: Vec<u32> = machine.read(&offsets, domain as usize + 1);
                let entries: Vec<u32> = machine.read(&entries, rows);
                for slot in 0..domain {
                    let range =
                        offsets[slot as usize] as usize..offsets[slot as usize + 1] as usize;
                    let mut found = entries[range].to_vec();
                    found.sort_unstable();
                    let expected = (0..rows as u32).filter(|r| words[*r as usize] == slot);
                    assert!(
                        expected.eq(found),
                        "{}: slot {slot} of {domain}",
                        machine.name
                    );
                }
            }
        }
    }
}

#[test]
fn ranges_of_rows_in_order() {
    for machine in machines() {
        for (rows, domain) in [(0u64, 10u64), (1, 1), (33, 3), (5000, 7000), (20_000, 33)] {
            // Every other key occurs.
            let words: Vec<u64> = (0..rows)
                .map(|row| row * domain / rows.max(1) / 2 * 2)
                .collect();
            let first = |key: u64| words.iter().filter(|word| **word < key).count() as u32;
            let word = machine.upload(&words);
            let offsets = machine.space((domain as usize + 1) * 4);
            unsafe {
                build_dense_ranges(
                    &machine.runtime,
                    &machine.stream,
                    word.ptr(),
                    RowCount::Known(rows),
                    domain,
                    offsets.ptr(),
                    None,
                )
                .unwrap();
            }
            let found: Vec<u32> = machine.read(&offsets, domain as usize + 1);
            let expected: Vec<u32> = (0..=domain).map(first).collect();
            assert_eq!(found, expected, "{}: {rows} of {domain}", machine.name);

            let ranks = machine.space(rank_words(domain) as usize * 8);
            let keys = rows.min(domain) as usize;
            let offsets = machine.space((keys + 1) * 4);
            let ranked = RankedRanges {
                domain,
                ranks: ranks.ptr(),
                offsets: offsets.ptr(),
                entries: None,
            };
            unsafe {
                build_ranked_ranges(
                    &machine.runtime,
                    &machine.stream,
                    word.ptr(),
                    RowCount::Known(rows),
                    ranked,
                )
                .unwrap();
            }
            let mut distinct = words.clone();
            distinct.dedup();
            let expected: Vec<u32> = distinct.iter().map(|key| first(*key)).collect();
            let found: Vec<u32> = machine.read(&offsets, expected.len());
            assert_eq!(found, expected, "{}: {rows} of {domain}", machine.name);
        }
    }
}

#[test]
fn ranked_ranges() {
    for machine in machines() {
        let mut numbers = Numbers(7);
        for (rows, domain, kinds) in [
            (0usize, 10u64, 1u64),
            (1, 1, 1),
            (33, 33, 1),
            (5000, 32, 32),
            (5000, 100_000, 900),
            (20_000, 3_000_001, 20_000),
        ] {
            // Some of the possible keys, a few beyond them, and rows without a key.
            let step = domain / kinds;
            let words: Vec<u64> = (0..rows)
                .map(|_| match numbers.draw() % (kinds + 2) {
                    w if w == kinds + 1 => u64::MAX,
                    w if w == kinds => domain + 5,
                    w => w * step,
                })
                .collect();
            let (counts, _count) = machine.row_counts(rows as u64, rows as u64 + 100);
            for count in counts {
                let mut padded = words.clone();
                padded.resize(count.most() as usize, 0);
                let word = machine.upload(&padded);
                let keys = count.most().min(domain) as usize;
                let ranks = machine.space(rank_words(domain) as usize * 8);
                let offsets = machine.space((keys + 1) * 4);
                let entries = machine.space(rows * 4);
                let ranked = RankedRanges {
                    domain,
                    ranks: ranks.ptr(),
                    offsets: offsets.ptr(),
                    entries: Some(entries.ptr()),
                };
                unsafe {
                    build_ranked_ranges(
                        &machine.runtime,
                        &machine.stream,
                        word.ptr(),
                        count,
                        ranked,
                    )
                    .unwrap();
                }
                let ranks: Vec<u64> = machine.read(&ranks, rank_words(domain) as usize);
                let offsets: Vec<u32> = machine.read(&offsets, keys + 1);
                let entries: Vec<u32> = machine.read(&entries, rows);
                let mut expected = BTreeMap::<u64, Vec<u32>>::new();
                for (row, word) in words.iter().enumerate().filter(|(_, w)| **w < domain) {
                    expected.entry(*word).or_default().push(row as u32);
                }
                let present: u32 = ranks.iter().map(|word| (*word as u32).count_ones()).sum();
                assert_eq!(present as usize, expected.len(), "{}", machine.name);
                for (number, (key, rows)) in expected.iter().enumerate() {
                    let word = ranks[*key as usize / 32];
                    let before = (word as u32) & ((1u32 << (key % 32)) - 1);
                    assert!((word >> (key % 32)) & 1 == 1, "{}: key {key}", machine.name);
                    assert_eq!((word >> 32) as usize + before.count_ones() as usize, number);
                    let range = offsets[number] as usize..offsets[number + 1] as usize;
                    let mut found = entries[range].to_vec();
                    found.sort_unstable();
                    assert_eq!(&found, rows, "{}: key {key} of {domain}", machine.name);
                }
            }
        }
    }
}

#[test]
fn sorted_entries_follow_their_keys() {
    for machine in machines() {
        for rows in SIZES.into_iter().filter(|r| *r < 10_000) {
            let mut numbers = Numbers(rows as u64);
            // A word of few values, one of bits that do not all count, and rows without a key, which come last.
            let keys = Keys::new(2, rows, |_, w| match (numbers.draw() % 9, w) {
                (0, 0) => u64::MAX,
                (d, 0) => d % 3,
                (d, _) => (d << 40) | (numbers.draw() % 7),
            });
            let words: Vec<DeviceBuffer> = keys.words.iter().map(|w| machine.upload(w)).collect();
            let words: Vec<DevicePtr> = words.iter().map(DeviceBuffer::ptr).collect();
            let sorted: Vec<DeviceBuffer> = (0..2).map(|_| machine.space(rows * 8)).collect();
            let to: Vec<DevicePtr> = sorted.iter().map(DeviceBuffer::ptr).collect();
            let entries = machine.space(rows * 4);
            let of = WordKeys {
                words: &words,
                bits: &[3, 64],
            };
            let known = RowCount::Known(rows as u64);
            // SAFETY: the words and what is made of them have an element a row.
            unsafe {
                build_sorted(
                    &machine.runtime,
                    &machine.stream,
                    of,
                    known,
                    (&to, entries.ptr()),
                )
                .unwrap();
            }
            let mut expected: Vec<u32> = (0..rows as u32).collect();
            let key = |row: u32| (keys.words[0][row as usize] & 7, keys.words[1][row as usize]);
            expected.sort_by_key(|row| (key(*row), *row));
            assert_eq!(machine.read::<u32>(&entries, rows), expected, "{rows} rows");
            for (w, sorted) in sorted.iter().enumerate() {
                let word = expected.iter().map(|row| keys.words[w][*row as usize]);
                assert_eq!(machine.read::<u64>(sorted, rows), word.collect::<Vec<_>>());
            }
        }
    }
}

#[test]
fn wrong_shapes_are_refused() {
    let machine = &machines()[0];
    let keys = Keys::new(2, 10, |row, _| row as u64);
    let table = Table::new(machine, &keys, 32);
    let set = |words: &[DevicePtr], rows: u64, shape: HashTable| unsafe {
        let rows = KeyedRows {
            table: shape,
            ..table.rows(words, RowCount::Known(rows))
        };
        insert_set(&machine.runtime, &machine.stream, &rows)
    };
    let (words, shape) = (table.words(), table.table());
    assert!(set(&words, 10, shape).is_ok());
    let odd = HashTable { slots: 33, ..shape };
    assert!(matches!(set(&words, 10, odd), Err(GpuError::Internal(_))));
    let stateless = HashTable {
        states: DevicePtr::NULL,
        ..shape
    };
    assert!(matches!(
        set(&words, 10, stateless),
        Err(GpuError::Internal(_))
    ));
    assert!(matches!(
        set(&words, 1 << 32, shape),
        Err(GpuError::Unsupported(_))
    ));
    assert!(matches!(set(&[], 10, shape), Err(GpuError::Unsupported(_))));
}
