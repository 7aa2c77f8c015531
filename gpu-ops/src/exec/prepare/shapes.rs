//! The layouts of results as far as memory goes; [`crate::exec::prepare::blocks`] says what memory they ask for.

use crate::codegen::{
    ColumnLayout, IndexLayout, JoinKeys, JoinedMatches, Part, RangeEntries, RegroupedLayout,
    ResultLayout,
};
use crate::exec::prepare::join_bits::JoinBits;
use crate::exec::prepare::part_sizes::{ColumnShape, PartSize, column_parts, offsets_part};
use crate::graph::{IndexKind, ResultId};
use crate::pipeline::Regroup;
use crate::primitives::Rooms;

/// A result's layout as far as memory goes. Unlike [`ResultLayout`] it holds no resident column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::exec) enum Shape {
    /// Columns of a `Rows` result.
    Rows(Vec<ColumnShape>),
    /// Columns of a `Sorted` result.
    Sorted(Vec<ColumnShape>),
    /// Columns of a `Matches` result, and how it is joined when its pairs are listed.
    Matches(Vec<ColumnShape>, Option<JoinShape>),
    /// Rows with packed keys that are brought together by key.
    Collected(CollectedShape),
    /// Aggregation states.
    Groups {
        /// Slots to begin with.
        slots: u64,
        /// Bytes of a slot.
        slot_bytes: usize,
        /// Words of a key that lies beside the slots of a hash table; 0 when it lies in them or there is none.
        key_words: usize,
        /// It is a hash table, which can be made larger.
        hashed: bool,
        /// Where a slot of a hash table has its key, and how many bytes of it.
        key_at: (usize, usize),
        /// Groups of collected rows, without gaps.
        regrouped: Option<RegroupedLayout>,
        /// The collected rows that a hash table is made of: it has room for all groups that there can be.
        collected: Option<ResultId>,
        /// Words of a key in the set of each DISTINCT call.
        distinct_words: Vec<usize>,
    },
    /// A join index.
    Index(IndexShape),
}

/// How a `Matches` result is joined with its index once its rows are there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::exec) struct JoinShape {
    pub(in crate::exec) index: ResultId,
    pub(in crate::exec) matches: JoinedMatches,
}

/// Collected rows as far as memory goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::exec) struct CollectedShape {
    pub(in crate::exec) columns: Vec<ColumnShape>,
    pub(in crate::exec) key_bytes: u32,
    pub(in crate::exec) key_bits: u32,
    pub(in crate::exec) how: Regroup,
    pub(in crate::exec) bits: u32,
    pub(in crate::exec) slots: u64,
}

impl Shape {
    /// Are the groups of a table of so many slots counted where sizes are read? Those of a hash table of its own that takes a good
    /// part of the cache.
    pub(in crate::exec) fn counts_groups(&self, slots: u64) -> bool {
        const WORTH: u64 = 4 << 20;
        match self {
            Self::Groups {
                hashed: true,
                regrouped: None,
                collected: None,
                slot_bytes,
                ..
            } => slots.saturating_mul(*slot_bytes as u64) >= WORTH,
            _ => false,
        }
    }
}

impl CollectedShape {
    /// Parts of the rows once they have been brought together by key, and what tells their groups.
    pub(in crate::exec) fn arranged_parts(&self, rows: u64) -> Vec<PartSize> {
        let keys = PartSize::new(Part::KeyWord(0), self.key_bytes as usize, rows);
        let mut parts = match self.how {
            Regroup::Number => vec![PartSize::new(Part::Ids, 4, rows)],
            // Of rows in order nothing is collected.
            Regroup::Table | Regroup::Runs => vec![],
            Regroup::SortNumbers => {
                let mut parts = column_parts(&self.columns, rows);
                parts.push(PartSize::new(Part::Ids, 4, rows));
                parts
            }
            Regroup::SortRows | Regroup::PartitionRows => {
                let mut parts = column_parts(&self.columns, rows);
                parts.push(keys);
                parts
            }
            Regroup::SortKeys | Regroup::PartitionKeys => {
                vec![PartSize::new(Part::Numbers, 4, rows), keys]
            }
        };
        if self.how.sorts_keys() {
            parts.push(PartSize::new(Part::Starts, 4, rows + 1));
        } else if self.how.partitions() {
            parts.push(offsets_part(self.bits));
        }
        parts
    }

    /// Parts of the table that numbers groups, and of the groups' keys, which stay.
    pub(in crate::exec) fn table_parts(&self, slots: u64) -> [Vec<PartSize>; 2] {
        let width = self.key_bytes as usize;
        [
            vec![
                PartSize::new(Part::States, 4, slots),
                PartSize::new(Part::TableKeys, width, slots),
                PartSize::new(Part::Ids, 4, slots),
            ],
            vec![PartSize::new(Part::GroupKeys, width, slots)],
        ]
    }
}

/// An index's layout as far as memory goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::exec) struct IndexShape {
    pub(in crate::exec) kind: IndexKind,
    /// Of an index whose rows are joined in memory.
    pub(in crate::exec) join: Option<JoinKeys>,
    pub(in crate::exec) domain: u64,
    pub(in crate::exec) ranked: bool,
    pub(in crate::exec) key_words: usize,
    pub(in crate::exec) unique: bool,
    pub(in crate::exec) existence: bool,
    pub(in crate::exec) mark_sets: usize,
    /// Bits of the words by which entries are sorted; none where they are not.
    pub(in crate::exec) order_bits: Vec<u32>,
    pub(in crate::exec) columns: Vec<ColumnShape>,
    /// How the entries of ranges lie.
    pub(in crate::exec) entries: RangeEntries,
}

/// Rows and slots that a result has room for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::exec) struct Sizes {
    /// Rows.
    pub(in crate::exec) capacity: u64,
    /// Slots of its hash table.
    pub(in crate::exec) slots: u64,
    /// Listed pairs.
    pub(in crate::exec) pairs: u64,
    /// Hash bits by which its rows are partitioned.
    pub(in crate::exec) bits: JoinBits,
    /// Rows that each partition has room for, where partitions lie apart.
    pub(in crate::exec) rooms: Option<Rooms>,
    /// Slots of the set of each DISTINCT call.
    pub(in crate::exec) distinct_slots: Vec<u64>,
}

fn shapes(columns: &[ColumnLayout]) -> Vec<ColumnShape> {
    columns
        .iter()
        .map(|c| ColumnShape {
            width: usize::from(c.width),
            nullable: c.nullable,
            key_alias: false,
        })
        .collect()
}

/// The columns of an index, those that are not stored without a width.
fn stored(index: &IndexLayout) -> Vec<ColumnShape> {
    if index.entries == RangeEntries::InTable {
        return vec![];
    }
    let mut columns = shapes(&index.columns);
    for (i, column) in columns.iter_mut().enumerate() {
        if index.not_stored(i).is_some() {
            column.width = 0;
        }
    }
    columns
}

impl IndexShape {
    /// Rows are appended to it in no order, as far as there is room; else they are addressed by key.
    pub(in crate::exec) fn appends(&self) -> bool {
        self.key_words == 0 || self.kind != IndexKind::Perfect || !(self.unique || self.existence)
    }

    /// It has offset ranges of entries.
    pub(in crate::exec) fn has_ranges(&self) -> bool {
        self.key_words > 0
            && !self.unique
            && !self.existence
            && !self.is_sorted()
            && self.join.is_none()
    }

    /// Its entries are sorted by their key words.
    pub(in crate::exec) fn is_sorted(&self) -> bool {
        self.kind == IndexKind::Sorted
    }

    /// It has a hash table.
    pub(in crate::exec) fn is_hash(&self) -> bool {
        self.key_words > 0 && self.kind == IndexKind::Hash
    }

    /// Words of the packed key that the pipeline writes for every row.
    pub(in crate::exec) fn stored_words(&self) -> usize {
        if self.appends() && self.join.is_none() {
            self.key_words
        } else {
            0
        }
    }
}

impl Shape {
    /// The shape of a layout.
    pub(in crate::exec) fn of(layout: &ResultLayout) -> Self {
        match layout {
            ResultLayout::Rows(columns) => Self::Rows(shapes(columns)),
            ResultLayout::Sorted(columns) => Self::Sorted(shapes(columns)),
            ResultLayout::Matches {
                columns,
                index,
                joined,
                key_aliases,
                ..
            } => {
                let index = *index;
                let join = joined.map(|matches| JoinShape { index, matches });
                let mut columns = shapes(columns);
                for (i, column) in columns.iter_mut().enumerate() {
                    column.key_alias = key_aliases.contains(&i);
                }
                Self::Matches(columns, join)
            }
            ResultLayout::Groups(groups) => {
                let apart = groups.hashed() && groups.key_bytes == 0;
                Self::Groups {
                    slots: groups.slots.max(1),
                    slot_bytes: groups.stride,
                    key_words: if apart { groups.key_words } else { 0 },
                    hashed: groups.hashed(),
                    key_at: (groups.key_offset, groups.key_bytes),
                    regrouped: groups.regrouped,
                    collected: groups.collected,
                    distinct_words: groups.distinct_words.clone(),
                }
            }
            ResultLayout::Collected(rows) => Self::Collected(CollectedShape {
                columns: shapes(&rows.columns),
                key_bytes: rows.key_bytes,
                key_bits: rows.key_bits,
                how: rows.how,
                bits: rows.bits,
                slots: rows.slots,
            }),
            ResultLayout::Index(index) => Self::Index(IndexShape {
                kind: index.kind,
                join: index.join_keys,
                domain: index.domain,
                ranked: index.ranked,
                key_words: index.key_words,
                unique: index.unique,
                existence: index.existence,
                mark_sets: index.mark_sets,
                order_bits: match &index.order {
                    Some(order) => order.bits.clone(),
                    None => vec![],
                },
                columns: stored(index),
                entries: index.entries,
            }),
        }
    }

    /// Is this part the packed keys?
    pub(in crate::exec) fn is_key_alias(&self, part: Part) -> bool {
        match (self, part) {
            (Self::Matches(columns, _), Part::Column(i)) => {
                columns.get(i).is_some_and(|c| c.key_alias)
            }
            _ => false,
        }
    }

    /// Does the pipeline append rows, as far as there is room for them?
    pub(in crate::exec) fn appends(&self) -> bool {
        match self {
            Self::Rows(_) | Self::Sorted(_) | Self::Matches(..) | Self::Collected(_) => true,
            Self::Groups { regrouped, .. } => regrouped.is_some(),
            Self::Index(index) => index.appends(),
        }
    }

    /// Whatever comes, there is room for it.
    pub(in crate::exec) fn never_overflows(&self) -> bool {
        match self {
            Self::Groups {
                hashed,
                regrouped,
                distinct_words,
                ..
            } => !hashed && regrouped.is_none() && distinct_words.is_empty(),
            _ => false,
        }
    }

    /// Are its rows read one after the other, or brought into another order first?
    pub(in crate::exec) fn is_read_in_order(&self) -> bool {
        match self {
            Self::Rows(_) | Self::Sorted(_) | Self::Matches(..) | Self::Collected(_) => true,
            Self::Index(index) => index.join.is_some(),
            Self::Groups { .. } => false,
        }
    }

    /// Are rows counted in 32 bits?
    pub(in crate::exec) fn numbers_rows(&self) -> bool {
        matches!(
            self,
            Self::Index(_) | Self::Sorted(_) | Self::Matches(_, Some(_)) | Self::Collected(_)
        )
    }

    /// Is [`crate::codegen::ControlWord::Pairs`] a number that room was made for: of listed pairs, or of the groups of
    /// collected rows?
    pub(in crate::exec) fn lists_pairs(&self) -> bool {
        match self {
            Self::Matches(_, join) => join.is_some(),
            Self::Collected(rows) => !rows.how.partitions() && rows.how != Regroup::Table,
            _ => false,
        }
    }

    /// Bytes of one appended row, everything that grows with the rows included.
    pub(in crate::exec) fn row_bytes(&self) -> usize {
        let columns = |columns: &[ColumnShape]| columns.iter().map(ColumnShape::row_bytes).sum();
        match self {
            Self::Rows(c) | Self::Sorted(c) => columns(c),
            // Start, length, sum.
            Self::Matches(c, None) => columns(c) + 16,
            Self::Matches(c, Some(join)) => columns(c) + join.matches.keys.width as usize,
            Self::Collected(rows) => columns(&rows.columns) + rows.key_bytes as usize,
            Self::Groups { .. } => 0,
            Self::Index(index) => {
                let key = index.join.map_or(0, |keys| keys.width as usize);
                columns(&index.columns) + index.stored_words() * 8 + key
            }
        }
    }
}
