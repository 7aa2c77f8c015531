//! Running fragments: the DataFusion node, and what happens between a graph and its rows.
//!
//! 1. [`GpuFragmentExec`] is the node in the physical plan. It makes the columns resident that its
//!    [`crate::graph::Policy`] asks for, and has it plan and [`crate::codegen::Program`] generate for them.
//! 2. `prepared` has all kernels compiled in parallel (`compile`) and resolves the names of their arguments (`places`, `bind`). What comes
//!    out serves every later run over the same columns.
//! 3. `run` makes room for results (`provide`, `shapes`, `blocks`, `storage`), launches step after step (`launch`), finishes
//!    indexes and orders (`finish`), joins what lies in memory (`joined`), and keeps indexes over whole tables for later
//!    queries (`covering`); columns in host memory come in `strides`, joins that are too large in `parts`, whose sides
//!    `split` partitions and `spill` puts away, group-bys in `group_parts`, sorts in `sort_parts` by `sort_sample`,
//!    these two with what lies in partitions (`spread`); `chunks` of rows may lie in files; `trees` gives tree-shaped
//!    kernels the memory that their warps share. A first run reads sizes between the steps (`control`) and repeats a
//!    kernel whose result had too little room; later runs know the sizes and wait for the device once, at the end.
//!    A table that is still read from files is gone over as its rows come (`early`).
//! 4. `execute` brings the output to the host, in one copy when it is small, and `decode` and `text` turn it into
//!    Arrow arrays of the plan's types.
//! 5. When memory runs out, `ladder` says what is tried next; when nothing is left, the CPU plan answers.

mod arrange;
mod attempts;
mod bind;
mod blocks;
mod boxes;
mod chunks;
mod collected;
mod compile;
mod control;
mod covering;
mod decode;
mod early;
mod execute;
mod finish;
mod found;
mod fragment;
mod group_parts;
mod head;
mod joined;
mod ladder;
mod launch;
mod limit;
mod lines;
mod loops;
mod part_sizes;
mod parts;
mod places;
mod prepared;
mod provide;
mod report;
mod room;
mod rows;
mod run;
mod shapes;
mod sort_parts;
mod sort_sample;
mod spill;
mod split;
mod spread;
mod storage;
mod strides;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
mod text;
mod trees;

pub use boxes::{Entry, boxed};
pub use fragment::{GpuFragmentExec, in_one_partition};
pub use ladder::LadderCounts;
pub use limit::{TimeLimit, TimeLimitExec};
pub use lines::indented;
pub use report::{FragmentOptions, FragmentReport, StepReport};
pub use rows::{DeviceRows, DeviceValues};
pub use trees::TreeMetrics;

pub(crate) use covering::CoveringIndexes;
