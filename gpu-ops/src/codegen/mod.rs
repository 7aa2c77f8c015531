//! From a pipeline and the encodings of its columns to one CUDA C++ kernel.
//!
//! Widths are decided here, not in the plan: every integer, decimal and date is computed in the
//! narrowest of 32, 64 and 128 bits that holds all values it can take, which is known from the
//! ranges of the resident columns ([`Range`]). Literals become kernel arguments ([`Arguments`]), so
//! the same query with other constants reuses the same kernel.
//!
//! A layer a folder; each names those above it in this list, and none below:
//!
//! | folder | |
//! |---|---|
//! | `ir` | data of all others: ranges, values, argument slots, scopes, pipelines as statements ([`ir::pipeline`]), layouts of results, and the program that the executor reads ([`ir::program`]) |
//! | `value` | scalar expressions as statements for one row |
//! | `string` | expressions over strings, by dictionary code or over bytes |
//! | `key` | keys as packed codes; columns that serve as they are (zero-copy) |
//! | `kernel` | what the text of every kernel is written with: arguments, shared memory, loads and stores of rows |
//! | `group`, `join`, `sort` | the operators: what they settle before there is text (layouts, placements), and their part of a kernel's text |
//! | `pipeline` | from a pipeline of the graph to `ir`: source, stages, sink |
//! | `shape` | from `ir` to the text of a kernel: how blocks and warps go over rows (`tile`, `tree`, `partition`) |
//! | `build` | a graph and its tables to a [`Program`]: every pipeline through the two folders above |

mod build;
#[cfg(test)]
mod constants_tests;
#[cfg(test)]
mod golden_tests;
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
    Borrowed, CONTROL_WORDS, CollectedLayout, ControlWord, GroupsLayout, IndexLayout, JoinKeys,
    JoinedMatches, RegroupedLayout, ResultLayout,
};
pub use ir::slot::{ColumnPart, Part, Slot};
pub use ir::state::LookupTable;
pub use ir::value::{CType, Meaning};
pub use kernel::writer::BLOCK_THREADS;
pub use string::packed::{pack, unpack_array};
pub use string::plan::bytes_supported;
