//! From a pipeline and the encodings of its columns to one CUDA C++ kernel.
//!
//! Widths are decided here, not in the plan: every integer, decimal and date is computed in the
//! narrowest of 32, 64 and 128 bits that holds all values it can take, which is known from the
//! ranges of the resident columns ([`Range`]). Literals become kernel arguments ([`Arguments`]), so
//! the same query with other constants reuses the same kernel.

mod accumulator;
mod aggregate;
mod arguments;
mod borrow;
mod build;
mod calendar;
mod cast;
mod collect;
mod collect_wide;
#[cfg(test)]
mod constants_tests;
mod distinct;
mod emit;
mod emitted;
#[cfg(test)]
mod golden_tests;
mod group_rows;
mod group_sink;
mod group_sizes;
mod groups;
mod kernel;
mod keys;
mod levels;
mod loads;
mod lookup;
#[cfg(test)]
mod lookup_tests;
mod merge;
mod operators;
mod packed;
mod partition_sink;
mod probe;
mod program;
mod range;
mod scalar;
mod scope;
mod sink;
mod sinks;
mod slot;
mod sort;
mod sources;
mod strings;
mod strings_plan;
#[cfg(test)]
mod strings_tests;
mod thread_rows;
mod tree;
mod value;

pub use accumulator::{Accumulator, StateKind};
pub use aggregate::{AccumulatorPlan, CallPlan};
pub use arguments::{Argument, Arguments};
pub use borrow::Borrowed;
pub use kernel::BLOCK_THREADS;
pub use keys::KeyPlan;
pub use lookup::LookupTable;
pub use packed::{pack, unpack_array};
pub use program::{
    BorrowProgram, CONTROL_WORDS, CollectedLayout, ColumnLayout, ControlWord, GroupsLayout,
    IndexLayout, JoinKeys, JoinedMatches, KernelProgram, Program, RegroupedLayout, ResultLayout,
    SortProgram, SourceRows, StepProgram,
};
pub use range::Range;
pub use slot::{ColumnPart, Part, Slot};
pub use strings_plan::bytes_supported;
pub use tree::TreeLayout;
pub use value::{CType, Meaning};
