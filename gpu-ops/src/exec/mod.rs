//! Running fragments: the DataFusion node, and what happens between a graph and its rows.
//!
//! | folder | |
//! |---|---|
//! | `node` | [`GpuFragmentExec`], the node of the physical plan: loads columns, prepares, runs, climbs the `ladder` when memory is short, reports |
//! | `prepare` | kernels compiled in parallel, their arguments bound, the `shapes` of results and the blocks of memory that these ask for; what comes out serves every later run over the same columns |
//! | `frame` | one run: its `results` (one record each) with what they are made with, its schedule and its reports (`run`); room, launches, retries where room was short, the end of a pipeline |
//! | `portions` | how the rows of a step come: the `strategy`, chosen once (`choose`); where portions lie (`chunks`, `partitioned`, `strides`); the loop that runs a step over them while the next come (`each`), and the steps that run for each (`loops`) |
//! | `join`, `group`, `sort` | what follows a pipeline so that others can read its result, in core and by portions: an operator a folder |
//! | `output` | from the device to Arrow arrays of the plan's types: small outputs at once, large ones as codes (`rows`) that are decoded in chunks while earlier chunks are read |
//!
//! What knows nothing of a run lies below it: `prepare`, and of the other folders the files that only hold state. `frame::run` has
//! the state of one run; files of all folders add what it does. What equal runs share (`node::flights`) is
//! attached to the runtime, which knows nothing of it.
//!
//! # A step
//! A pipeline asks `choose::filling` how its result is filled: in core, or in pieces or strides that an operator takes as they come.
//! When all rows are there, `choose::finishing` says what follows by their exact number, for a sort `choose::sorting`. In core is the
//! case of one portion; where there are several, EXPLAIN ANALYZE shows them on the step's line. An operator that is to take
//! portions gets a variant there, and a function in its folder that runs them by `each::over_portions`.
//!
//! A first run reads sizes between the steps (`frame::control`) and repeats a kernel whose result had too little room; later runs know
//! the sizes, queue everything and wait for the device once, at the end. Rows are delivered after that wait, when nothing can be
//! repeated any more. When memory runs out, `node::ladder` says what is tried next; when nothing is left, the CPU plan answers.
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

mod frame;
mod group;
mod join;
mod node;
mod output;
mod portions;
mod prepare;
mod sort;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;

pub use node::{
    ColdStart, DERIVED, Entry, FragmentOptions, FragmentReport, GivesWayExec, GpuFragmentExec,
    STEP_COUNTERS, SecondPlan, StepReport, TimeLimit, TimeLimitExec, TreeMetrics, boxed,
    giving_way, in_one_partition, in_partitions_of, indented, is_computable, over_inputs,
};
pub use output::{DeviceRows, DeviceValues};
