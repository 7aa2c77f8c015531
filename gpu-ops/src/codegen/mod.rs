//! From a pipeline and the encodings of its columns to one CUDA C++ kernel.
//!
//! Widths are decided here, not in the plan: every integer, decimal and date is computed in the
//! narrowest of 32, 64 and 128 bits that holds all values it can take, which is known from the
//! ranges of the resident columns ([`Range`]). Literals become kernel arguments ([`Arguments`]), so
//! the same query with other constants reuses the same kernel.
//!
//! # Layers
//! A folder a layer; each names those above it in this table, and none below. There is no circle of files. Words that kernels know as
//! well, such as how running values are combined, are those of `warpline_cuda::kernels`.
//!
//! | folder | |
//! |---|---|
//! | `ir` | data, and nothing that decides: ranges, values, argument slots, scopes, a pipeline as statements (`ir::pipeline`), layouts of results (`ir::results`), and the program that the executor reads (`ir::program`) |
//! | `value` | scalar expressions as statements for one row, by the methods of `Emitter` |
//! | `string` | expressions over strings, by dictionary code or over bytes |
//! | `key` | keys as packed codes; columns of tables that serve as keys or results as they are (zero-copy) |
//! | `kernel` | what the text of every kernel is written with, the methods of `KernelWriter`: arguments, shared memory, loads and stores of rows |
//! | `group`, `join`, `sort` | the operators, which do not know each other: what they settle before there is text (layouts, placements), and their part of a kernel's text |
//! | `pipeline` | from a pipeline of the graph to `ir`: source, stages, sink |
//! | `shape` | from `ir` to the text of a kernel: how blocks and warps go over rows (`tile`, `tree`, `partition`) |
//! | `build` | a graph and its tables to a [`Program`]: every pipeline through the two folders above |
//!
//! # A pipeline's way
//! `pipeline::sinks` turns a pipeline of the graph into an `EmittedPipeline`: statements, the scope, a sink with the layout of its
//! result. Every layout is final before the first text is written, since several pipelines may fill one result. Then
//! `shape::kernel` chooses the shape, and the shape asks the operators for the text of steps and sink. What is the same in every
//! kernel is a function in a header of `cuda-src/cuda`, and the text is a list of calls in the order of the plan; text is
//! made here where it depends on the columns or the accumulators of a query.
//!
//! # Where a new operator goes
//! A folder beside `group`, `join` and `sort`, with one file for what it settles and one for its text; a variant of
//! `EmittedStep` or `EmittedSink` (`ir::pipeline`) for what is settled, and of [`ResultLayout`] for what it leaves in memory; an arm in
//! `pipeline::stages` or `pipeline::sinks` that makes it and one in `shape::sinks` (or in each shape, for a step) that writes it. What
//! reads its result is a source: `pipeline::sources`. Its algorithm is a header in `cuda-src/cuda`; hash tables are policies of
//! `open_addressing.cuh`. A new shape is a file in `shape` and an arm in `shape::kernel`. `golden` has a kernel of each kind:
//! add one, and see in its diff what a change does.

mod build;
#[cfg(test)]
mod constants_tests;
#[cfg(test)]
mod golden;
mod group;
mod ir;
mod join;
mod kernel;
mod key;
mod pipeline;
mod shape;
mod sort;
mod string;
mod value;

pub use ir::accumulator::{Accumulator, StateKind};
pub use ir::aggregates::{AccumulatorPlan, CallPlan};
pub use ir::arguments::{Argument, Arguments};
pub use ir::key::KeyPlan;
pub use ir::layout::ColumnLayout;
pub use ir::program::{
    BorrowProgram, KernelProgram, Program, SortProgram, SourceRows, StepProgram, TreeLayout,
    WindowFill, WindowProgram,
};
pub use ir::range::Range;
pub use ir::results::{
    Borrowed, CONTROL_WORDS, CollectedLayout, ControlWord, FULL_SET, GroupsLayout, IndexLayout,
    JoinKeys, JoinedMatches, RangeEntries, RegroupedLayout, ResultLayout,
};
pub use ir::slot::{ColumnPart, Part, Slot};
pub use ir::state::LookupTable;
pub use ir::value::{CType, Meaning};
pub use kernel::writer::BLOCK_THREADS;
pub use string::packed::{pack, unpack_array};
pub use string::plan::bytes_supported;
pub use string::sought::Sought;
