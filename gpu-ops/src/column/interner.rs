//! Numbers distinct strings in order of first appearance.

use std::hash::BuildHasher;

/// Empty slot of the hash table: no string has this number.
const EMPTY: u64 = u64::MAX;
/// Strings that are looked up together.
const BATCH: usize = 16;

/// A set of byte strings, each with a dense number; linear probing over a power of two.
pub(super) struct Interner {
    bytes: Vec<u8>,
    /// End of each string in `bytes`.
    ends: Vec<usize>,
    /// Hash of each string, so that growing does not hash again.
    hashes: Vec<u64>,
    /// Number in the low half, a part of the hash in the high half: most other strings are told apart without a look at them.
    slots: Vec<u64>,
    /// Keeps crafted data from turning probes into scans.
    seed: u64,
}

impl Interner {
    pub(super) fn new() -> Self {
        Self {
            bytes: Vec::new(),
            ends: Vec::new(),
            hashes: Vec::new(),
            slots: vec![EMPTY; 64],
            seed: std::hash::RandomState::new().hash_one(0u8) | 1,
        }
    }

    /// Strings that are known to differ, with their ends; none is looked up or added any more.
    pub(super) fn of_distinct(bytes: Vec<u8>, ends: Vec<usize>) -> Self {
        Self {
            bytes,
            ends,
            ..Self::new()
        }
    }

    /// Number of distinct strings.
    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    /// Are all strings ASCII?
    pub(super) fn is_ascii(&self) -> bool {
        self.bytes.is_ascii()
    }

    /// The string with this number.
    pub(super) fn value(&self, number: u32) -> &[u8] {
        let number = number as usize;
        let start = if number == 0 {
            0
        } else {
            self.ends[number - 1]
        };
        &self.bytes[start..self.ends[number]]
    }

    /// The number of `value`, new or known; `None` when 2^32 - 1 strings are already held.
    pub(super) fn intern(&mut self, value: &[u8]) -> Option<u32> {
        self.intern_hashed(value, self.hash(value))
    }

    /// The numbers of strings, in turn; `None` when 2^32 - 1 strings are already held.
    ///
    /// Of some strings at a time the hashes are computed and the slots read first: nothing of one waits for another, so that
    /// the processor waits for memory once and not for each.
    pub(super) fn intern_all<'v>(
        &mut self,
        values: impl Iterator<Item = &'v [u8]>,
        mut found: impl FnMut(u32),
    ) -> Option<()> {
        let mut values = values.fuse();
        let mut batch: [(&[u8], u64); BATCH] = [(&[], 0); BATCH];
        loop {
            let mut filled = 0;
            for (place, value) in batch.iter_mut().zip(&mut values) {
                *place = (value, self.hash(value));
                filled += 1;
            }
            let mask = self.slots.len() - 1;
            let mut touched = 0;
            for (_, hash) in &batch[..filled] {
                touched ^= self.slots[*hash as usize & mask];
            }
            // The values read are of no use, but the reads must take place.
            std::hint::black_box(touched);
            for (value, hash) in &batch[..filled] {
                found(self.intern_hashed(value, *hash)?);
            }
            if filled < BATCH {
                return Some(());
            }
        }
    }

    fn intern_hashed(&mut self, value: &[u8], hash: u64) -> Option<u32> {
        let mask = self.slots.len() - 1;
        let mut slot = hash as usize & mask;
        loop {
            let held = self.slots[slot];
            if held == EMPTY {
                break;
            }
            if held >> 32 == hash >> 32 && self.value(held as u32) == value {
                return Some(held as u32);
            }
            slot = (slot + 1) & mask;
        }
        let number = u32::try_from(self.len()).ok().filter(|n| *n != u32::MAX)?;
        self.bytes.extend_from_slice(value);
        self.ends.push(self.bytes.len());
        self.hashes.push(hash);
        self.slots[slot] = slot_of(number, hash);
        // At most half full.
        if self.len() * 2 > self.slots.len() {
            self.grow();
        }
        Some(number)
    }

    fn grow(&mut self) {
        let mask = self.slots.len() * 2 - 1;
        let mut slots = vec![EMPTY; mask + 1];
        for (number, hash) in self.hashes.iter().enumerate() {
            let mut slot = *hash as usize & mask;
            while slots[slot] != EMPTY {
                slot = (slot + 1) & mask;
            }
            slots[slot] = slot_of(number as u32, *hash);
        }
        self.slots = slots;
    }

    /// Multiply and fold, eight bytes at a time.
    fn hash(&self, value: &[u8]) -> u64 {
        let mut state = self.seed ^ value.len() as u64;
        let (words, tail) = value.as_chunks::<8>();
        for word in words {
            state = fold(state ^ u64::from_le_bytes(*word));
        }
        let mut last = [0u8; 8];
        last[..tail.len()].copy_from_slice(tail);
        fold(state ^ u64::from_le_bytes(last))
    }
}

fn slot_of(number: u32, hash: u64) -> u64 {
    hash >> 32 << 32 | u64::from(number)
}

/// High and low half of the product with an odd constant of no structure.
fn fold(value: u64) -> u64 {
    let product = u128::from(value) * 0xf39c_c060_5ced_c835_u128;
    (product as u64) ^ (product >> 64) as u64
}
