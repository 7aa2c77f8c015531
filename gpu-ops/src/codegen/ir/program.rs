//! A fragment compiled for concrete columns: kernels in launch order and the layout of every result.
//!
//! This is the contract between code generation, which writes it, and the executor, which
//! allocates what the layouts say, binds the slots of each kernel's [`Arguments`] ([`crate::codegen::Slot`]) and launches. Where the text
//! below names a field, such as `r{r}k0`, it is as slots are written in CUDA C++.

use std::sync::Arc;

use warpline_cuda::kernels::{RunningCombine, RunningValue};

use super::arguments::Arguments;
use super::results::ResultLayout;
use super::state::LookupTable;
use crate::algorithm::Balance;
use crate::column::Column;
use crate::graph::{Edge, FirstRows, ResultId, ResultSpec, WindowColumn};

/// A compiled fragment.
#[derive(Debug)]
pub struct Program {
    /// By [`ResultId`].
    pub results: Vec<ResultLayout>,
    /// In launch order.
    pub steps: Vec<StepProgram>,
    /// String columns that results refer to by row ([`crate::codegen::Meaning::Row`]).
    pub bases: Vec<Arc<Column>>,
    /// Chosen algorithms with their reasons, for reports.
    pub choices: Vec<String>,
    /// Results that the graph does not have; they follow its own.
    pub hidden: Vec<ResultSpec>,
}

/// One step.
#[derive(Debug)]
pub enum StepProgram {
    /// A pipeline. When its sink is a hash or a non-unique index, the executor finishes the index
    /// from the key words afterwards; when it is `Matches`, it sums up the counts.
    Pipeline(Box<KernelProgram>),
    /// Keys, sort, gather.
    Sort(Box<SortProgram>),
    /// A result that is columns of a table as they are ([`ResultLayout::borrowed`]).
    Borrow(BorrowProgram),
}

/// A step without a kernel: a result gets its rows from a table.
#[derive(Debug, Clone)]
pub struct BorrowProgram {
    /// The result.
    pub into: ResultId,
    /// As [`KernelProgram::label`].
    pub label: String,
}

/// One generated kernel.
#[derive(Debug, Clone)]
pub struct KernelProgram {
    /// CUDA C++.
    pub source: String,
    /// Entry point.
    pub entry: &'static str,
    /// The argument struct.
    pub arguments: Arguments,
    /// Uploaded once and passed by number.
    pub lookups: Vec<LookupTable>,
    /// Dynamic shared memory a block, in bytes.
    pub shared_bytes: usize,
    /// Where rows come from.
    pub source_rows: SourceRows,
    /// Threads of a block.
    pub block_threads: u32,
    /// Rows that a block takes at a time.
    pub tile_rows: u64,
    /// What a tree-shaped kernel asks of its launch: zeroed words `tree`, and `treebuffers`.
    pub tree: Option<TreeLayout>,
    /// The result that the sink fills; `None` for [`crate::graph::Sink::Discard`].
    pub into: Option<ResultId>,
    /// Rows of the result lie at the numbers that they have in the source, and its count is the end of those gone over.
    pub in_place: bool,
    /// Columns of the scanned table's scope that the kernel reads, for the count of bytes.
    pub scan_columns: Vec<usize>,
    /// Short text for profiles and EXPLAIN ANALYZE.
    pub label: String,
}

/// How many rows a kernel goes over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SourceRows {
    /// All rows of table `scan`.
    Scan(usize),
    /// The rows of a `Rows`, `Sorted` or `Index` (hash) result: its count, at most its capacity.
    Rows(ResultId),
    /// The slots of a `Groups` result, occupied or not.
    Slots(ResultId),
    /// Every possible key of a perfect index.
    Domain(ResultId),
    /// The pairs of a `Matches` result: the last of its `pairs`, or as many as are listed.
    Pairs(ResultId),
    /// Rows of a table, or of the slots of groups, whose numbers are the first column of a `Sorted` result: as many as that has.
    Picked {
        /// The table.
        scan: Option<usize>,
        /// The numbers.
        by: ResultId,
    },
    /// Exactly one.
    One,
}

/// A sort: `keys` writes the packed key words `r{into}k{w}` of every row, the executor sorts
/// row numbers by them into `r{into}order` (stable, word 0 major, unsigned ascending), cuts off `skip` and
/// `fetch`, and `gather` copies the columns of `rows` in that order.
#[derive(Debug)]
pub struct SortProgram {
    /// The input.
    pub rows: ResultId,
    /// The output.
    pub into: ResultId,
    /// Absent when there is nothing to order by.
    pub keys: Option<KernelProgram>,
    /// Bits in use of each key word, major word first, counted from bit 0.
    pub word_bits: Vec<u32>,
    /// Bits of each key word that tell the partition of a window.
    pub partition: Vec<u64>,
    /// `r{into}order[skip + i]` is the input row of output row `i`; `skip` is the size argument `skip`,
    /// the number of output rows `fetch`.
    pub gather: KernelProgram,
    /// Rows left out.
    pub skip: u64,
    /// Most rows kept.
    pub fetch: Option<u64>,
    /// What the output has beyond the columns of the input.
    pub window: Option<WindowProgram>,
}

/// The columns that a sort adds for window functions.
#[derive(Debug, Clone)]
pub struct WindowProgram {
    /// Only these rows of each partition are in the output.
    pub rows: Option<FirstRows>,
    /// Marks the rows of the output that begin a partition and peers, and writes values that are to run where their columns lie.
    pub marks: KernelProgram,
    /// Finds rows at a distance from each row, once it is known where its partition lies.
    pub bounds: Option<KernelProgram>,
    /// The first column that is added.
    pub first: usize,
    /// What each gets.
    pub fills: Vec<WindowFill>,
}

/// What a column of a window gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WindowFill {
    /// Numbers of rows.
    Number(WindowColumn),
    /// Rows that the kernel of the bounds finds.
    Bound,
    /// Values that are there run.
    Running(RunningValue, RunningCombine),
    /// Of values that are there, the least or greatest between two edges.
    Extreme(RunningValue, RunningCombine, (Edge, Edge)),
    /// Of floats that are there, the sum of squared differences from the mean between two edges.
    Squares((Edge, Edge)),
}

/// Entries of a warp's queue of one level, as in `tree.cuh`.
pub(in crate::codegen) const QUEUE: u64 = 64;

/// Classes of workload sizes a level, as in `tree_share.cuh`.
pub(in crate::codegen) const CLASSES: u64 = 64;

/// Words of `TreeCounters` of `tree_share.cuh`.
pub(in crate::codegen) const COUNTER_WORDS: u64 = 128;

/// Pieces that the queue of all warps has room for, with a fixed granularity.
pub(in crate::codegen) const ROOM: u64 = 1 << 14;

/// What a tree-shaped kernel asks of its launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TreeLayout {
    /// Levels of nodes.
    pub levels: u64,
    /// Words of the largest entry of a queue.
    pub entry_words: u64,
    /// Who shares what.
    pub balance: Balance,
    /// It counts.
    pub metrics: bool,
}

impl TreeLayout {
    /// Words to zero before a launch of `warps` warps.
    pub fn words(&self, warps: u64) -> u64 {
        let turns = if self.balance == Balance::Fws {
            ROOM
        } else {
            0
        };
        COUNTER_WORDS
            + self.levels * CLASSES
            + 2 * warps.div_ceil(4096)
            + 2 * warps.div_ceil(64)
            + warps
            + turns
    }

    /// Words for what warps give each other.
    pub fn buffer_words(&self, warps: u64) -> u64 {
        match self.balance {
            Balance::None | Balance::Nifs => 1,
            Balance::NifsAws => warps * QUEUE * self.entry_words,
            Balance::Fws => warps * QUEUE * self.entry_words + ROOM * (self.entry_words + 1),
        }
    }
}
