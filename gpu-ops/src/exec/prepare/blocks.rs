//! The blocks of memory that a result is filled in, and what an index is finished in.

use crate::codegen::{Part, RangeEntries};
use crate::exec::prepare::part_sizes::{
    BlockSizes, PartSize, bitmap, column_parts, key_part, sorted_parts,
};
use crate::exec::prepare::shapes::{Shape, Sizes};
use crate::primitives::{rank_words, slots_for};

impl Shape {
    /// What must be there before the pipeline runs.
    pub(in crate::exec) fn filling(&self, sizes: &Sizes) -> Vec<BlockSizes> {
        let rows = sizes.capacity;
        let plain = |parts| BlockSizes {
            parts,
            fill: None,
            temporary: false,
        };
        let filled = |parts, value| BlockSizes {
            parts,
            fill: Some(value),
            temporary: false,
        };
        match self {
            Self::Rows(columns) | Self::Sorted(columns) => {
                vec![plain(column_parts(columns, rows))]
            }
            Self::Matches(columns, Some(join)) => {
                let keys = key_part(join.matches.keys, rows);
                vec![plain(column_parts(columns, rows)), plain(vec![keys])]
            }
            Self::Matches(columns, None) => {
                let mut parts = column_parts(columns, rows);
                parts.push(PartSize::new(Part::Start, 4, rows));
                parts.push(PartSize::new(Part::Length, 4, rows));
                parts.push(PartSize::new(Part::Pairs, 8, rows + 1));
                vec![plain(parts)]
            }
            Self::Collected(collected) => {
                let width = collected.key_bytes as usize;
                let keys = PartSize::new(Part::KeyWord(0), width, rows);
                vec![
                    plain(column_parts(&collected.columns, rows)),
                    plain(vec![keys]),
                ]
            }
            Self::Groups {
                slot_bytes,
                key_words,
                distinct_words,
                regrouped,
                ..
            } => {
                let slots = match regrouped {
                    Some(_) => rows,
                    None => sizes.slots,
                };
                let state = PartSize::new(Part::State, *slot_bytes, slots);
                let mut zeros = Vec::new();
                let mut blocks = Vec::new();
                let strays = regrouped.filter(|of| of.how.has_strays());
                match strays {
                    // Written as a whole, or cleared by who finds the group first (`numbered_state`).
                    Some(_) => blocks.push(plain(vec![state])),
                    None => zeros.push(state),
                }
                if let Some(of) = strays {
                    let width = of.key_bytes as usize;
                    blocks.push(plain(vec![PartSize::new(Part::Keys, width, rows)]));
                    blocks.push(BlockSizes {
                        parts: vec![
                            PartSize::new(Part::TableKeys, width, sizes.slots),
                            PartSize::new(Part::Ids, 4, sizes.slots),
                        ],
                        fill: None,
                        temporary: true,
                    });
                    blocks.push(BlockSizes {
                        parts: vec![PartSize::new(Part::States, 4, sizes.slots)],
                        fill: Some(0),
                        temporary: true,
                    });
                }
                if *key_words > 0 {
                    let keys = vec![PartSize::new(Part::Keys, key_words * 8, slots)];
                    blocks.push(filled(keys, 0xFF));
                }
                if *key_words > 0 {
                    zeros.push(PartSize::new(Part::States, 4, slots));
                }
                if !zeros.is_empty() {
                    blocks.push(filled(zeros, 0));
                }
                for (call, (words, slots)) in
                    distinct_words.iter().zip(&sizes.distinct_slots).enumerate()
                {
                    blocks.push(BlockSizes {
                        parts: vec![PartSize::new(Part::DistinctKeys(call), words * 8, *slots)],
                        fill: Some(0xFF),
                        temporary: true,
                    });
                    if *words > 1 {
                        blocks.push(BlockSizes {
                            parts: vec![PartSize::new(Part::DistinctStates(call), 4, *slots)],
                            fill: Some(0),
                            temporary: true,
                        });
                    }
                }
                blocks
            }
            Self::Index(index) => {
                let mut blocks = Vec::new();
                let rows = if index.appends() { rows } else { index.domain };
                if !index.columns.is_empty() {
                    // The order of the table's rows is not the last where entries are clustered.
                    blocks.push(BlockSizes {
                        parts: column_parts(&index.columns, rows),
                        fill: None,
                        temporary: index.entries == RangeEntries::Gathered,
                    });
                }
                if let Some(keys) = index.join {
                    blocks.push(plain(vec![key_part(keys, rows)]));
                }
                if index.stored_words() > 0 {
                    let words = (0..index.stored_words())
                        .map(|w| PartSize::new(Part::KeyWord(w), 8, rows))
                        .collect();
                    blocks.push(BlockSizes {
                        parts: words,
                        fill: None,
                        temporary: true,
                    });
                }
                let mut zeros = Vec::new();
                if !index.appends() {
                    zeros.push(bitmap(Part::Bits, index.domain));
                }
                zeros.extend((0..index.mark_sets).map(|set| bitmap(Part::Marks(set), rows)));
                if !zeros.is_empty() {
                    blocks.push(filled(zeros, 0));
                }
                blocks
            }
        }
    }

    /// What an index gets once its rows are known; the primitives clear it.
    pub(in crate::exec) fn finishing(&self, sizes: &Sizes) -> Vec<BlockSizes> {
        let Self::Index(index) = self else {
            return vec![];
        };
        let mut blocks = Vec::new();
        let plain = |parts| BlockSizes {
            parts,
            ..Default::default()
        };
        if index.is_sorted() {
            return vec![plain(sorted_parts(index.key_words, sizes.capacity))];
        }
        let slots = if index.is_hash() {
            let words = index.key_words;
            let mut parts = vec![PartSize::new(Part::Keys, words * 8, sizes.slots)];
            if words > 1 {
                parts.push(PartSize::new(Part::States, 4, sizes.slots));
            }
            if index.unique && !index.existence {
                parts.push(PartSize::new(Part::Entry, 4, sizes.slots));
            }
            blocks.push(plain(parts));
            sizes.slots
        } else if index.ranked {
            let words = rank_words(index.domain);
            blocks.push(plain(vec![PartSize::new(Part::Ranks, 8, words)]));
            sizes.capacity.min(index.domain)
        } else {
            index.domain
        };
        if index.has_ranges() {
            let offsets = PartSize::new(Part::Offsets, 4, slots + 1);
            let entries = PartSize::new(Part::Entries, 4, sizes.capacity);
            match index.entries {
                RangeEntries::Listed => blocks.push(plain(vec![offsets, entries])),
                RangeEntries::InTable => blocks.push(plain(vec![offsets])),
                RangeEntries::Gathered => {
                    blocks.push(plain(vec![offsets]));
                    blocks.push(BlockSizes {
                        parts: vec![entries],
                        // Rows without a key leave places at the end, which name a row all the same.
                        fill: Some(0),
                        temporary: true,
                    });
                    if !index.columns.is_empty() {
                        blocks.push(plain(column_parts(&index.columns, sizes.capacity)));
                    }
                }
            }
        }
        blocks
    }
}

/// Slots for a first attempt at the sets of DISTINCT calls over at most `rows` rows in about `groups` groups: enough
/// for every row where all of them take at most `room` bytes then.
pub(in crate::exec) fn slots_of_sets(
    words: &[usize],
    rows: u64,
    groups: u64,
    room: u64,
) -> Vec<u64> {
    let share = room / words.len().max(1) as u64;
    words
        .iter()
        .map(|words| {
            let all = slots_for(rows);
            if all.saturating_mul(*words as u64 * 8 + 4) <= share {
                all
            } else {
                slots_for(rows.min(groups.saturating_mul(2).max(1 << 22)))
            }
        })
        .collect()
}
