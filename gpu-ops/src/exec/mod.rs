//! Running fragments: the DataFusion node, and what happens between a graph and its rows.
//!
//! 1. [`GpuFragmentExec`] is the node in the physical plan. It makes the columns resident that its
//!    [`crate::graph::Policy`] asks for, and has it plan and [`crate::codegen::Program`] generate for them.
//! 2. `prepared` has all kernels compiled in parallel (`compile`) and resolves the names of their arguments (`places`, `bind`). What comes
//!    out serves every later run over the same columns.
//! 3. `run` makes room for results (`provide`, `shapes`, `blocks`, `storage`), launches step after step (`launch`), finishes
//!    indexes and orders (`finish`), joins what lies in memory (`joined`), and keeps indexes over whole tables for later
//!    queries (`covering`); columns in host memory come in `strides`, joins that are too large in `parts`, whose sides
//!    `split` partitions and `spill` puts away, group-bys in `group_parts`, sorts in `sort_parts` by `sort_sample` into `sort_output`,
//!    these two with what lies in partitions (`spread`); `chunks` of rows may lie in files; `trees` gives tree-shaped
//!    kernels the memory that their warps share. A first run reads sizes between the steps (`control`) and repeats a
//!    kernel whose result had too little room; later runs know the sizes and wait for the device once, at the end.
//!    A table that is still read from files is gone over as its rows come (`early`).
//! 4. `execute` brings the output to the host, in one copy when it is small, and `decode` and `text` turn it into
//!    Arrow arrays of the plan's types.
//! 5. When memory runs out, `ladder` says what is tried next; when nothing is left, the CPU plan answers.
//!
//! # What memory can still end
//! A run that is refused memory climbs the ladder: columns and indexes kept for later queries go, the query runs alone, columns lie in
//! host memory, results as well, and what is too large comes in parts. What is refused after that ends the query: the CPU
//! answers, or under `require_gpu` the error does, which says what wanted the bytes and names the settings
//! (`warpline.device_memory`, `warpline.host_memory`, `warpline.spill_directory`).
//!
//! | what wants memory | where it goes when that is short | what has to find room in the end | what helps |
//! |---|---|---|---|
//! | columns of tables | host memory, in strides | all columns that the query reads, in host memory | `host_memory`, fewer columns |
//! | joins with an equality: inner, outer, semi, anti, mark | both sides in partitions of equal hash bits, in host memory and files; keys of more than 16 bytes and conditions beside the keys are compared on the pairs | the build rows of one key, and a partition (one of at most 256) | `device_memory`, for files `spill_directory` |
//! | the same where that is no way: `NOT IN`, keys that find more than four pairs for each row of the sides, keys of more than 16 bytes of which strings and floats alone have more or NULLs are equal | an index in host memory, accessed row by row | the index | `host_memory` |
//! | joins without an equality | the build side in host memory | the build side, and the pairs' rows | `host_memory` |
//! | groups, of keys of any width | rows in partitions of equal hash bits, in host memory and files | the rows of one key, and the groups of a part | `device_memory`, for files `spill_directory` |
//! | sorts | rows in ranges, in host memory and files; ranges of equal rows of any size | the output, in host memory; it goes to a file when it leaves the fragment so and has no dictionaries or nested types | `spill_directory` |
//! | sorts by more than 16 words of packed keys | host memory | all rows | `host_memory` |
//! | rows for later steps: what joins and unions write, and rows that several pipelines write for a sort | host memory | all of them | `host_memory` |
//! | output that is not sorted | host memory | all of it | `host_memory` |
//! | work at hand | nowhere | some strides and pieces, each of whole tiles of up to 8192 rows | `device_memory` |
//! | files | nowhere | what is spilled, compressed; the error ([`crate::GpuError::Spill`]) names the directory | another `spill_directory` |

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
mod needed;
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
mod sort_output;
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
pub use limit::{TimeLimit, TimeLimitExec};
pub use lines::indented;
pub use report::{FragmentOptions, FragmentReport, StepReport};
pub use rows::{DeviceRows, DeviceValues};
pub use trees::TreeMetrics;
