//! How results lie in memory: the parts that the executor allocates and kernels read and write.

use warpline_cuda::kernels::unsigned;

use super::aggregates::{AccumulatorPlan, Existence};
use super::key::KeyPlan;
use super::layout::ColumnLayout;
use crate::algorithm::MaterializedJoin;
use crate::graph::{IndexKind, ProbeKind, ResultId};
use crate::pipeline::{GroupPlacement, Regroup};

/// Control words of each result.
pub const CONTROL_WORDS: usize = 5;

/// What [`ControlWord::Overflow`] says where a set of a DISTINCT call was too full. Where its table was as well, it says either.
pub const FULL_SET: u64 = 2;

/// What the control words of a result say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ControlWord {
    /// Rows, entries or pairs that there are, whether or not there was room for them.
    Count = 0,
    /// Non-zero: a group table was too full, or, where it is [`FULL_SET`], the set of a DISTINCT call; run again with more slots.
    Overflow = 1,
    /// Non-zero: a build assumed to be unique is not.
    Duplicate = 2,
    /// Non-zero: an entry's key was NULL.
    NullKey = 3,
    /// Pairs of a `Matches` result of a materialised join, whether or not there was room for them.
    Pairs = 4,
}

/// How a result lies in memory.
#[derive(Debug)]
pub enum ResultLayout {
    /// Columns of `cap` rows.
    Rows(Vec<ColumnLayout>),
    /// The same, in order.
    Sorted(Vec<ColumnLayout>),
    /// Columns of `cap` rows, with `start` and `pairs`.
    Matches {
        /// The kept columns of the probing rows.
        columns: Vec<ColumnLayout>,
        /// The probed index.
        index: ResultId,
        /// What is joined once the rows are there; `None`: ranges of entries have been looked up.
        joined: Option<JoinedMatches>,
        /// Rows lie where the scanned table has them.
        borrowed: Option<Borrowed>,
        /// Columns whose codes are the packed keys: they have no memory of their own, `r{r}k0` is theirs.
        key_aliases: Vec<usize>,
    },
    /// Rows with packed keys, brought together by key.
    Collected(CollectedLayout),
    /// Aggregation states.
    Groups(GroupsLayout),
    /// A join index.
    Index(IndexLayout),
}

impl ResultLayout {
    /// What lies in a scanned table; parts that do are not allocated: `r{r}k0` and `r{r}c{i}` are its columns.
    pub fn borrowed(&self) -> Option<&Borrowed> {
        match self {
            Self::Matches { borrowed, .. } => borrowed.as_ref(),
            Self::Collected(rows) => rows.borrowed.as_ref(),
            Self::Index(index) => index.borrowed.as_ref(),
            Self::Rows(_) | Self::Sorted(_) | Self::Groups(_) => None,
        }
    }
}

/// Rows whose packed keys and arguments have been written down for an aggregation; in a result that the graph does not
/// have, behind those that it has. The executor brings them together by key as `how` says:
///
/// | | |
/// |---|---|
/// | numbers | `r{r}ids` `u32*`: the number of each row's group; `r{r}groupkeys`: the key of each group |
/// | sorts keys | `r{r}starts` `u32*`: the first row of each group |
/// | partitions | `r{r}offsets` `u32*`: the first row of each partition, and the number of rows |
/// | gathers | `r{r}numbers` `u32*`: the row behind each key |
///
/// The number of groups, where it is known before they are aggregated, is [`ControlWord::Pairs`].
#[derive(Debug, Clone)]
pub struct CollectedLayout {
    /// Arguments.
    pub columns: Vec<ColumnLayout>,
    /// Bytes of a packed key in `r{r}k0`: 4, 8 or 16.
    pub key_bytes: u32,
    /// Bits in use of a packed key; fewer than it has.
    pub key_bits: u32,
    /// How rows are brought together.
    pub how: Regroup,
    /// Hash bits by which they are partitioned.
    pub bits: u32,
    /// Slots of the table that numbers groups, at first.
    pub slots: u64,
    /// Rows lie where the scanned table has them.
    pub borrowed: Option<Borrowed>,
}

impl CollectedLayout {
    /// C++ type of a packed key.
    pub(in crate::codegen) fn key_type(&self) -> &'static str {
        unsigned(self.key_bytes)
    }

    /// C++ type of a pointer to packed keys.
    pub(in crate::codegen) fn key_pointer(&self) -> String {
        format!("{}*", unsigned(self.key_bytes))
    }
}

/// Groups whose rows have been collected, or come in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RegroupedLayout {
    /// The collected rows; `None`: rows that come in order are not collected.
    pub rows: Option<ResultId>,
    /// As theirs.
    pub how: Regroup,
    /// As theirs.
    pub key_bytes: u32,
    /// As theirs.
    pub bits: u32,
    /// Groups of lower numbers that each block keeps in shared memory, slots of its table for a partition, or runs of a tile
    /// that it has room for.
    pub window: u64,
    /// Of rows in order: those of a tile.
    pub tile_rows: u64,
}

impl RegroupedLayout {
    /// C++ type of a packed key.
    pub(in crate::codegen) fn key_type(&self) -> &'static str {
        unsigned(self.key_bytes)
    }

    /// C++ type of a pointer to packed keys.
    pub(in crate::codegen) fn key_pointer(&self) -> String {
        format!("{}*", self.key_type())
    }
}

/// Where groups live: `r{r}state` holds `slots` states of `stride` bytes, zero at first but for those that blocks write as a whole
/// ([`Regroup::has_strays`]). In a hash table a key of one word lies in its slot behind the state, increased by one, so that 0
/// is a free slot; longer keys lie apart: `r{r}keys` `slots * key_words` words of 0xFF bytes, `r{r}states` `slots` zeroed u32.
#[derive(Debug, Clone)]
pub struct GroupsLayout {
    /// Packed keys; empty for an ungrouped aggregate.
    pub keys: Vec<KeyPlan>,
    /// Words of a packed key.
    pub key_words: usize,
    /// States and calls.
    pub aggregates: AccumulatorPlan,
    /// Where.
    pub placement: GroupPlacement,
    /// Slots to begin with.
    pub slots: u64,
    /// Bytes from one state to the next.
    pub stride: usize,
    /// Bytes of a key in its slot, 4 or 8; 0 when it is not there.
    pub key_bytes: usize,
    /// First byte of the key in its slot.
    pub key_offset: usize,
    /// Slots of a table in each block's shared memory that holds frequent keys, in front of that in device memory; 0: none.
    pub front: u64,
    /// Groups of collected rows, or of rows in order: there are `cap{r}` states, of which [`ControlWord::Count`] are groups,
    /// without gaps. Those of partitions and of rows in order have keys `r{r}keys`, of 4, 8 or 16 bytes, and for groups that
    /// are not a block's own a table of `slots{r}` slots: `r{r}states` (`u32`, zeroed), `r{r}tablekeys`, `r{r}ids` (`u32`).
    pub regrouped: Option<RegroupedLayout>,
    /// The collected rows that a hash table of these groups is made of.
    pub collected: Option<ResultId>,
    /// DISTINCT arguments: one set a call, each an extra hash table named `d{n}keys`, `d{n}states`, `d{n}slots`
    /// with this many words a key. Its overflow is the result's.
    pub distinct_words: Vec<usize>,
}

impl GroupsLayout {
    /// The layout of groups by `keys`, packed into `key_words` words, with the accumulators of `aggregates`.
    pub(in crate::codegen) fn new(
        keys: Vec<KeyPlan>,
        key_words: usize,
        aggregates: &AccumulatorPlan,
        (placement, slots): (GroupPlacement, u64),
        distinct_words: Vec<usize>,
    ) -> Self {
        let hashed = !keys.is_empty() && matches!(placement, GroupPlacement::GlobalHash { .. });
        let aggregates = aggregates.finished(match placement {
            _ if keys.is_empty() || hashed => Existence::Known,
            GroupPlacement::GlobalDense => Existence::OfPlaces,
            _ => Existence::OfCopies,
        });
        let bits: u32 = keys.iter().map(|k| k.bits).sum();
        let key_bytes = match (hashed, key_words) {
            // One more than the largest code must fit.
            (true, 1) if bits < 32 => 4,
            (true, 1) => 8,
            _ => 0,
        };
        let key_offset = aggregates.bytes.next_multiple_of(key_bytes.max(1));
        let used = (key_offset + key_bytes).max(1);
        let stride = stride(used);
        Self {
            keys,
            key_words,
            aggregates,
            placement,
            slots,
            stride,
            key_bytes,
            key_offset,
            regrouped: None,
            collected: None,
            front: 0,
            distinct_words,
        }
    }

    /// The same for groups of collected rows.
    pub(in crate::codegen) fn regrouped(
        keys: Vec<KeyPlan>,
        key_words: usize,
        aggregates: &AccumulatorPlan,
        placement: (GroupPlacement, u64),
        regrouped: RegroupedLayout,
        distinct_words: Vec<usize>,
    ) -> Self {
        // Every state belongs to a group: nothing must tell which do.
        let exists = AccumulatorPlan::finished(aggregates, Existence::Known);
        let mut layout = Self::new(keys, key_words, aggregates, placement, distinct_words);
        layout.stride = stride(exists.bytes.max(1));
        layout.aggregates = exists;
        layout.regrouped = Some(regrouped);
        layout
    }

    /// Is there a hash table?
    pub fn hashed(&self) -> bool {
        self.key_words > 0 && matches!(self.placement, GroupPlacement::GlobalHash { .. })
    }

    /// C++ type of a key in its slot.
    pub(in crate::codegen) fn key_type(&self) -> &'static str {
        if self.key_bytes == 4 { "u32" } else { "u64" }
    }
}

/// Bytes from one state of `used` bytes to the next. A state is read in whole sectors: it should not lie in more of them
/// than it must.
fn stride(used: usize) -> usize {
    match used {
        0..=16 => used.next_power_of_two().max(4),
        17..=32 => 32,
        _ => used.next_multiple_of(16),
    }
}

/// The key of every row of a side of a materialised join: `r{r}k0`, unsigned integers of `width` bytes.
///
/// Keys of entries and of rows are codes below `2^bits`. The key of an entry that matches nothing is all ones, that of
/// a probing row that matches nothing one less.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JoinKeys {
    /// How the sides are joined.
    pub join: MaterializedJoin,
    /// 4, 8 or 16.
    pub width: u32,
    /// Bits of a code; fewer than the width has.
    pub bits: u32,
}

impl JoinKeys {
    /// The C++ type of a key.
    pub(in crate::codegen) fn c_type(&self) -> &'static str {
        unsigned(self.width)
    }

    /// The C++ type of a pointer to keys.
    pub(in crate::codegen) fn pointer(&self) -> String {
        format!("{}*", unsigned(self.width))
    }

    /// C++ text of the key, from the text of its packed words.
    pub(in crate::codegen) fn packed(&self, words: &[String]) -> String {
        match words {
            [high, low] => format!("((u128)({high}) << 64 | (u128)({low}))"),
            _ => format!("({})({})", self.c_type(), words.join(" | ")),
        }
    }
}

/// A `Matches` result that is joined with its index when its rows are there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JoinedMatches {
    /// As those of the index.
    pub keys: JoinKeys,
    /// `Inner`, `Left`, `Semi` or `Anti`.
    pub kind: ProbeKind,
    /// Set `r{index}marks` for entries with a match.
    pub marks: bool,
}

/// How the entries of an index with ranges lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RangeEntries {
    /// In any order: `r{r}rows` lists those of each range.
    #[default]
    Listed,
    /// Clustered: payload has been brought into the order of ranges, so that entries of a key are neighbours.
    Gathered,
    /// Clustered as the table is, whose rows are in the order of their keys: it has all of the payload, and the index has ranges alone.
    InTable,
}

/// A join index.
#[derive(Debug, Clone)]
pub struct IndexLayout {
    /// Perfect, hash, or rows to be joined in memory.
    pub kind: IndexKind,
    /// Of rows to be joined in memory.
    pub join_keys: Option<JoinKeys>,
    /// Perfect: number of possible keys. `r{r}bits` has one bit for each, zeroed.
    pub domain: u64,
    /// Perfect with ranges of entries: few of the possible keys occur. `r{r}ranks` numbers them, and ranges go by number.
    pub ranked: bool,
    /// Words of a packed key (`r{r}k{w}`); 0 for a cross join. A first word of all ones: the row has a NULL
    /// key and is not to be entered (it is there for its marks).
    pub key_words: usize,
    /// How each key is coded.
    pub keys: Vec<KeyPlan>,
    /// Sorted: the value by which entries of equal keys are ordered, which has a part in the packed key.
    pub order: Option<OrderLayout>,
    /// A key that can be NULL has a code for it, and NULL equals NULL.
    pub null_equal: bool,
    /// No duplicates; a perfect unique index is complete after its pipeline, its payload columns have
    /// `domain` rows, addressed by key code.
    pub unique: bool,
    /// The set of keys is enough: no payload, no entries.
    pub existence: bool,
    /// So many sets of marks, `r{r}marks`, `r{r}marks1`, …: one bit an entry (perfect unique or existence: a key), zeroed.
    pub mark_sets: usize,
    /// Payload, addressed by entry (perfect unique: by key code).
    pub columns: Vec<ColumnLayout>,
    /// How the entries of ranges lie.
    pub entries: RangeEntries,
    /// Rows to be joined in memory lie where the scanned table has them.
    pub borrowed: Option<Borrowed>,
}

impl IndexLayout {
    /// Does `r{r}rows` list the entries of each range? Else a range is of the entries themselves.
    pub(in crate::codegen) fn is_listed(&self) -> bool {
        (!self.keys.is_empty() || self.order.is_some())
            && !self.unique
            && self.entries == RangeEntries::Listed
    }

    /// A perfect index that is complete once its pipeline has run.
    pub fn is_direct(&self) -> bool {
        self.kind == IndexKind::Perfect && (self.unique || self.existence)
    }

    /// The code of a column of one value, of which a place for each possible key would tell nothing: it is not stored.
    pub fn not_stored(&self, column: usize) -> Option<i128> {
        let column = self.columns.get(column).filter(|_| self.is_direct())?;
        column.only_code()
    }
}

/// By what the entries of a sorted index are ordered: the words of their keys, then the code of a value, which lies in the last
/// bits of the key's word where there is room. `r{r}s{w}` are those words in order, `r{r}rows` the entry behind each.
#[derive(Debug, Clone)]
pub struct OrderLayout {
    /// How the value is coded.
    pub value: KeyPlan,
    /// Bits of each word that count, the major word first.
    pub bits: Vec<u32>,
    /// Words of the packed keys alone.
    pub(in crate::codegen) key_words: usize,
    /// The value's code has a part in the one word of the keys.
    pub(in crate::codegen) shares: bool,
    /// A word in front of the value's tells rows without a key.
    pub(in crate::codegen) tells: bool,
}

impl OrderLayout {
    /// The order of entries by keys whose words have so many bits, then by `value`; `without_key`: there are rows without a key.
    pub(in crate::codegen) fn new(key_bits: Vec<u32>, value: KeyPlan, without_key: bool) -> Self {
        /// Of a first word: none is the mark of a row without key.
        const MOST: u32 = 63;
        let tells = without_key && key_bits.is_empty() && value.bits > MOST;
        let shares = matches!(key_bits[..], [bits] if bits + value.bits <= MOST);
        let key_words = key_bits.len();
        let mut bits = key_bits;
        if shares {
            bits[0] += value.bits;
        } else {
            bits.extend(tells.then_some(0));
            match value.is_wide() {
                true => bits.extend([value.bits - 64, 64]),
                false => bits.push(value.bits),
            }
        }
        if without_key {
            // The mark comes behind all keys.
            bits[0] += 1;
        }
        Self {
            value,
            bits,
            key_words,
            shares,
            tells,
        }
    }

    /// C++ text of the words, from those of the keys and the value's code.
    pub(in crate::codegen) fn words(&self, keys: &[String], code: &str) -> Vec<String> {
        let mut words = keys.to_vec();
        if self.shares {
            return vec![format!(
                "(({}) << {} | {code})",
                words.join(""),
                self.value.bits
            )];
        }
        words.extend(self.tells.then(|| "0ull".to_string()));
        match self.value.is_wide() {
            true => words.extend([format!("(u64)({code} >> 64)"), format!("(u64)({code})")]),
            false => words.push(code.to_string()),
        }
        words
    }
}

/// Where the rows of a result are those of a table, in the table's order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Borrowed {
    /// Number of the scan.
    pub scan: usize,
    /// The table's column whose codes are the packed keys; `None`: keys are written.
    pub key: Option<usize>,
    /// By column of the result: the table's column that stands for it; `None`: it is written.
    pub columns: Vec<Option<usize>>,
}

impl Borrowed {
    /// Is nothing left to be written?
    pub(in crate::codegen) fn whole(&self) -> bool {
        self.key.is_some() && self.columns.iter().all(Option::is_some)
    }

    /// The table's columns that stand for something.
    pub fn used(&self) -> Vec<usize> {
        let columns = self.columns.iter().copied();
        columns.chain([self.key]).flatten().collect()
    }

    /// For EXPLAIN: what becomes of the result `name`.
    pub(in crate::codegen) fn reason(&self, name: &str) -> String {
        let in_table = self.columns.iter().flatten().count() + usize::from(self.key.is_some());
        let all = self.columns.len() + 1;
        format!("{name} stays in its table: {in_table} of {all} columns and keys are read there")
    }

    /// Is this column of the result one of the table's?
    pub(in crate::codegen) fn has(&self, column: usize) -> bool {
        self.columns.get(column).is_some_and(Option::is_some)
    }
}
