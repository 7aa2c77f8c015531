//! Building blocks of steps: scanned columns, aggregations, and the placement of group states.

use std::fmt;

use arrow::datatypes::{DataType, FieldRef};

use crate::device::DeviceInfo;
use crate::expr::Expr;
use crate::tables::TableSource;

/// Columns of a resident table.
#[derive(Debug, Clone)]
pub struct ScanSource {
    /// The table.
    pub table: TableSource,
    /// Column `i` of the pipeline's scope is column `columns[i]` of the table.
    pub columns: Vec<usize>,
    /// Name and type of each column of the scope.
    pub fields: Vec<FieldRef>,
    /// Short name for EXPLAIN, e.g. `lineitem`.
    pub name: String,
    /// Columns of the scope whose strings must come as dictionary codes, whatever the number of distinct
    /// values, because the fragment compares, groups, joins or orders by them; by position in `columns`.
    /// Missing entries are false.
    pub needs_codes: Vec<bool>,
}

/// Grouped or ungrouped aggregation.
#[derive(Debug, Clone)]
pub struct Aggregate {
    /// Grouping expressions.
    pub keys: Vec<Expr>,
    /// Aggregate calls.
    pub calls: Vec<AggregateCall>,
}

/// One aggregate of a select list.
#[derive(Debug, Clone)]
pub struct AggregateCall {
    /// Which aggregate.
    pub function: AggregateFunction,
    /// Argument, already coerced; `None` for COUNT(*).
    pub argument: Option<Expr>,
    /// FILTER (WHERE …).
    pub filter: Option<Expr>,
    /// DISTINCT: each value of the argument counts once a group.
    pub distinct: bool,
    /// Logical type of the result.
    pub return_type: DataType,
    /// For EXPLAIN, e.g. `sum(l_quantity)`.
    pub name: String,
}

/// The aggregates that pipelines run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AggregateFunction {
    /// COUNT of rows or of non-null arguments; never NULL.
    Count,
    /// SUM: wraps for integers as DataFusion does; NULL without a non-null argument.
    Sum,
    /// MIN.
    Min,
    /// MAX.
    Max,
    /// AVG over Float64 or decimals.
    Avg,
    /// Any value of the group: the planner knows that all are equal (or all NULL). Over every type,
    /// strings without dictionary codes included.
    Any,
    /// BIT_AND of integers.
    BitAnd,
    /// BIT_OR of integers.
    BitOr,
    /// BIT_XOR of integers.
    BitXor,
}

impl AggregateFunction {
    /// SQL's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Count => "count",
            Self::Sum => "sum",
            Self::Min => "min",
            Self::Max => "max",
            Self::Avg => "avg",
            Self::Any => "any_value",
            Self::BitAnd => "bit_and",
            Self::BitOr => "bit_or",
            Self::BitXor => "bit_xor",
        }
    }
}

/// Where the aggregation states of a grouped sink live (Karnagel et al., DaMoN 2015).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GroupPlacement {
    /// One copy of every group's state a thread, for a handful of groups: in registers, or, when
    /// those would be many, in a column of shared memory a thread.
    Registers,
    /// One copy a block in shared memory, indexed by the dense group number.
    Shared,
    /// One array in device memory indexed by the dense group number.
    GlobalDense,
    /// An open-addressing table in device memory with `capacity` slots (a power of two); it grows
    /// and the pipeline is run again when it overflows.
    GlobalHash {
        /// Slots to begin with.
        capacity: u64,
    },
    /// Rows of a group are brought together by key first, or come so. Groups then lie one behind the other, as many as
    /// there are.
    Regrouped {
        /// How.
        how: Regroup,
        /// Hash bits by which rows are partitioned; 0 where they are not.
        bits: u32,
        /// Groups to make room for at first; more make it run again with more room.
        groups: u64,
    },
}

/// How rows are brought together by key: all but those of [`Regroup::Runs`] are written down first (Wu et al., SIGMOD 2025).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Regroup {
    /// A hash table numbers the groups; rows stay where they are (HGB).
    Number,
    /// Keys are sorted, arguments gathered from where they were (SGB-UR).
    SortKeys,
    /// Keys and arguments are sorted (SGB-TR).
    SortRows,
    /// A hash table numbers the groups, numbers and arguments are sorted (SGB-DE-TR).
    SortNumbers,
    /// Keys are partitioned by hash, arguments gathered (PGB-UR).
    PartitionKeys,
    /// Keys and arguments are partitioned by hash (PGB-TR).
    PartitionRows,
    /// Rows stay as they were written, with a hash of their keys, which may be of any width, and a hash table has the groups: of
    /// rows in parts, those of one part.
    Table,
    /// Rows come in the order of the key: a block adds up the groups of a tile and writes down those that lie in it whole.
    Runs,
}

impl Regroup {
    /// Are the groups numbered by a hash table before anything is added up?
    pub fn numbers(self) -> bool {
        matches!(self, Self::Number | Self::SortNumbers)
    }

    /// Is each group a run of sorted keys?
    pub fn sorts_keys(self) -> bool {
        matches!(self, Self::SortKeys | Self::SortRows)
    }

    /// Does a block take a partition?
    pub fn partitions(self) -> bool {
        matches!(self, Self::PartitionKeys | Self::PartitionRows)
    }

    /// Does a block write down groups that are its own, while those that others may have rows of meet in a table?
    pub fn has_strays(self) -> bool {
        self.partitions() || self == Self::Runs
    }

    /// Do arguments stay where they are, while keys move?
    pub fn gathers(self) -> bool {
        matches!(self, Self::SortKeys | Self::PartitionKeys)
    }

    /// The name in settings and plans.
    pub fn name(self) -> &'static str {
        match self {
            Self::Number => "hgb",
            Self::SortKeys => "sgb_ur",
            Self::SortRows => "sgb_tr",
            Self::SortNumbers => "sgb_de_tr",
            Self::PartitionKeys => "pgb_ur",
            Self::PartitionRows => "pgb_tr",
            Self::Table => "table of a part",
            Self::Runs => "runs",
        }
    }
}

impl fmt::Display for GroupPlacement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Registers => f.write_str("registers"),
            Self::Shared => f.write_str("shared"),
            Self::GlobalDense => f.write_str("global dense"),
            Self::GlobalHash { capacity } => write!(f, "global hash({capacity} slots)"),
            Self::Regrouped { how, bits: 0, .. } => f.write_str(how.name()),
            Self::Regrouped { how, bits, .. } => write!(f, "{}({bits} bits)", how.name()),
        }
    }
}

/// Device memory for a group-by, in bytes, where it is short.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GroupRoom {
    /// For the states of all groups.
    pub states: u64,
    /// For the rows of a part, where rows are aggregated in parts of all keys.
    pub part: u64,
}

/// What a placement is chosen from; all figures but the estimates are exact or upper bounds from resident statistics.
#[derive(Debug, Clone)]
pub struct GroupProfile {
    /// Rows of the scanned table.
    pub rows: u64,
    /// The planner's estimate of those that pass filters and joins and are aggregated.
    pub arriving: u64,
    /// Product of the key domains when every key is a small integer range or dictionary.
    pub dense_domain: Option<u64>,
    /// Upper bound of the number of groups.
    pub max_groups: u64,
    /// The planner's estimate of the number of groups.
    pub estimate: u64,
    /// Bytes of one group's state.
    pub state_bytes: usize,
    /// 32-bit registers one group's state takes in a thread.
    pub state_registers: usize,
    /// Bytes of the packed key as rows would be written down: 4, 8 or 16; more when none of these is enough.
    pub key_bytes: u32,
    /// 64-bit words of the packed key in a hash table.
    pub key_words: usize,
    /// Bytes of each distinct argument of the calls.
    pub payload: Vec<u32>,
    /// Atomic additions to a group's state a row; a sum of 128 bits counts as two.
    pub adds: u32,
    /// 64-bit words of a group's state that a row adds to; counts of 32 bits are not among them.
    pub words: u32,
    /// Cells of a group's state that a row reads and seldom writes: extremes, and that there was a row.
    pub tests: u32,
    /// Of those, cells that only tell whether a group has rows: where keys tell they are left out.
    pub telling: u32,
    /// Bytes of the strings that filters read of each row of the table: they take the place of states in the cache.
    pub text_bytes: u64,
    /// The rows are those of a bare scan: what is a column already need not be written down.
    pub in_place: bool,
    /// Some call takes each value once.
    pub distinct: bool,
    /// Rows come in the order of the key, most of them at least: what rests on it may cost time, no more.
    pub clustered: bool,
    /// All rows of a group follow each other, in one pass over a table that has them so.
    pub in_order: bool,
    /// The probability that two rows have equal keys, where the columns' samples tell.
    pub collisions: Option<f64>,
    /// Some group has so many of the rows that they queue at its state.
    pub hot: bool,
    /// Where memory is short: the room there is.
    pub room: Option<GroupRoom>,
    /// True when every state can be kept in registers.
    pub registers_possible: bool,
    /// True when the states have shared-memory atomics.
    pub shared_possible: bool,
}

/// Do up to `most` rows of so few groups queue at the groups' states in device memory? 2^27 additions to 256 places take 35 ms on
/// an H200, to 4096 places 3.8 ms; a table in front of them costs few rows next to nothing. How many rows are thought to come does not
/// count: behind joins with frequent keys there were 25 million, not a thousand.
pub fn rows_queue(most: u64, groups: u64) -> bool {
    const FEW_GROUPS: u64 = 2048;
    const ROWS_A_GROUP: u64 = 1024;
    groups <= FEW_GROUPS && most / groups.max(1) >= ROWS_A_GROUP
}

/// A chosen placement and why.
#[derive(Debug, Clone)]
pub struct PlacementChoice {
    /// Where states live.
    pub placement: GroupPlacement,
    /// One line for EXPLAIN.
    pub reason: String,
}

/// Decides placements; implemented by the planner, asked when the columns are resident.
pub trait PlacementPolicy: Send + Sync + fmt::Debug {
    /// Choose where the states of a grouped aggregation live.
    fn place_groups(&self, profile: &GroupProfile, device: &DeviceInfo) -> PlacementChoice;
}
