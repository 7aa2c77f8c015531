//! What a field of a kernel's argument struct stands for: code generation declares it, the executor binds it.

use std::fmt;

use crate::graph::ResultId;

/// A field of an argument struct that gets its value from the executor: an address, or a number of rows or slots.
///
/// A kernel names a field by [`fmt::Display`]; nobody reads the names back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Slot {
    /// `u64*`: [`crate::codegen::CONTROL_WORDS`] words a result ([`crate::codegen::ControlWord`]), then one fault word.
    Control,
    /// Rows of the scanned table, or the end of a stride of them; for other sources an upper bound (capacity, slots,
    /// domain).
    SourceRows,
    /// First row of the stride of a scanned table, a multiple of the rows of a tile; columns have addresses to which row
    /// numbers of the table are added.
    FirstRow,
    /// `u32*`: zeroed words of a tree-shaped kernel.
    Tree,
    /// `u32*`: what its warps give each other.
    TreeBuffers,
    /// `const u64*`: the word by which the kernel learns that its query was stopped.
    StopWord,
    /// What the word is then.
    StopNumber,
    /// Rows that a sort leaves out.
    Skip,
    /// Rows that a sort keeps.
    Fetch,
    /// Rows for which a `Rows`, `Matches` or hash `Index` result has room.
    Capacity(ResultId),
    /// Slots of a group table or a hash index (a power of two).
    TableSlots(ResultId),
    /// Listed pairs for which a `Matches` result has room.
    Pairs(ResultId),
    /// Slots of the set of DISTINCT call `.1` of the result that the kernel fills.
    DistinctSlots(ResultId, usize),
    /// Address of a part of a result.
    Result(ResultId, Part),
    /// Address of a buffer of column `.0` of the scanned table's scope.
    Scan(usize, ColumnPart),
    /// Address of a buffer of [`crate::codegen::Program::bases`]`[.0]`.
    Base(usize, ColumnPart),
    /// Address of lookup table `.0` of the kernel ([`crate::codegen::KernelProgram::lookups`]).
    Lookup(usize),
    /// The same of a lookup table that is a sorted list.
    List(usize),
}

/// One piece of memory of a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// Column `i`.
    Column(usize),
    /// Validity of column `i`, a byte a row.
    Valid(usize),
    /// Packed key word of every row of an index under construction or of a sort, `u64*`; of a side of a materialised join
    /// [`crate::codegen::JoinKeys`].
    KeyWord(usize),
    /// `u64*`: word `i` of the packed keys of a sorted index's entries, in their order.
    SortedWord(usize),
    /// Group states.
    State,
    /// Keys of slots.
    Keys,
    /// States of slots.
    States,
    /// `u32*`: bitmap of the existing keys of a perfect index.
    Bits,
    /// `u64*`: bitmap of the existing keys of a perfect index with ranks, by which they are numbered.
    Ranks,
    /// `u32*`: bitmap of the entries that are marked in set `i`.
    Marks(usize),
    /// `u32*`: entry of each slot of a unique hash index.
    Entry,
    /// `u32*`: begin of each range of entries by key code, number of the key or slot (one more than those).
    Offsets,
    /// `u32*`: entries in ranges.
    Entries,
    /// `u32*`: first place in the index's [`Part::Entries`] (or entry, without keys) of each `Matches` row; all ones: one pair
    /// without entry.
    Start,
    /// `u32*`: entries of each `Matches` row.
    Length,
    /// `u64*`: exclusive sum of the lengths (rows + 1).
    Pairs,
    /// `u32*`: row of each listed pair.
    PairRow,
    /// `u32*`: entry of each listed pair (all ones: none).
    PairEntry,
    /// `u32*`: the row behind each place of keys that have been partitioned or sorted.
    Numbers,
    /// `u32*`: number of each row's group, or of each slot's.
    Ids,
    /// Key of each group.
    GroupKeys,
    /// `u32*`: first row of each group.
    Starts,
    /// Keys of slots, where they are not those of groups.
    TableKeys,
    /// `u32*`: permutation of a sort.
    Order,
    /// `u32*`: which rows begin a partition, then partitions that begin before each row (rows + 1).
    Partitions,
    /// `u32*`: the same of peers.
    Peers,
    /// Keys of the set of DISTINCT call `i`.
    DistinctKeys(usize),
    /// Slot states of the set of DISTINCT call `i`.
    DistinctStates(usize),
}

impl Part {
    /// Does it move with the keys when they are partitioned or sorted?
    pub fn moves(self) -> bool {
        matches!(self, Self::Column(_) | Self::Valid(_) | Self::Numbers)
    }
}

/// A buffer of a resident column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ColumnPart {
    /// Codes, bits or bytes.
    Data,
    /// Validity bits.
    Validity,
    /// String offsets.
    Offsets,
}

impl ColumnPart {
    fn letter(self) -> char {
        match self {
            Self::Data => 'c',
            Self::Validity => 'n',
            Self::Offsets => 'o',
        }
    }
}

/// The name of the field in CUDA C++.
impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let part = match *self {
            Self::Control => return f.write_str("control"),
            Self::SourceRows => return f.write_str("rows"),
            Self::FirstRow => return f.write_str("first"),
            Self::Tree => return f.write_str("tree"),
            Self::TreeBuffers => return f.write_str("treebuffers"),
            Self::StopWord => return f.write_str("stopword"),
            Self::StopNumber => return f.write_str("stopnumber"),
            Self::Skip => return f.write_str("skip"),
            Self::Fetch => return f.write_str("fetch"),
            Self::Capacity(result) => return write!(f, "cap{result}"),
            Self::TableSlots(result) => return write!(f, "slots{result}"),
            Self::Pairs(result) => return write!(f, "pairs{result}"),
            Self::DistinctSlots(_, set) => return write!(f, "d{set}slots"),
            Self::Scan(column, part) => return write!(f, "{}{column}", part.letter()),
            Self::Base(base, part) => return write!(f, "base{base}{}", part.letter()),
            Self::Lookup(table) => return write!(f, "table{table}"),
            Self::List(table) => return write!(f, "list{table}"),
            // A kernel fills one result: the sets of another are none of its arguments.
            Self::Result(_, Part::DistinctKeys(set)) => return write!(f, "d{set}keys"),
            Self::Result(_, Part::DistinctStates(set)) => return write!(f, "d{set}states"),
            Self::Result(result, part) => {
                write!(f, "r{result}")?;
                part
            }
        };
        f.write_str(match part {
            Part::Column(i) => return write!(f, "c{i}"),
            Part::Valid(i) => return write!(f, "n{i}"),
            Part::KeyWord(i) => return write!(f, "k{i}"),
            Part::SortedWord(i) => return write!(f, "s{i}"),
            Part::State => "state",
            Part::Keys | Part::DistinctKeys(_) => "keys",
            Part::States | Part::DistinctStates(_) => "states",
            Part::Bits => "bits",
            Part::Ranks => "ranks",
            Part::Marks(0) => "marks",
            Part::Marks(set) => return write!(f, "marks{set}"),
            Part::Entry => "entry",
            Part::Offsets => "offsets",
            Part::Entries => "rows",
            Part::Start => "start",
            Part::Length => "len",
            Part::Pairs => "pairs",
            Part::PairRow => "pairrow",
            Part::PairEntry => "pairentry",
            Part::Numbers => "numbers",
            Part::Ids => "ids",
            Part::GroupKeys => "groupkeys",
            Part::Starts => "starts",
            Part::TableKeys => "tablekeys",
            Part::Order => "order",
            Part::Partitions => "partitions",
            Part::Peers => "peers",
        })
    }
}
