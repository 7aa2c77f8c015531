//! The node of the physical plan that stands for a fragment: runs, retries, reports.
//!
//! `attempts` loads the columns and runs a fragment until there is memory for it (`ladder`, `room`); `overlap` begins while the largest
//! table is still being read; `race` lets the CPU's plan run beside a first run; `flights` lets equal runs be one; `inputs` are the CPU plans below a fragment;
//! `threads` is where runs are done; `replan` is what a run found out that the next plan must know.

pub(super) mod attempts;
pub(super) mod boxes;
pub(super) mod device_side;
pub(super) mod exchange;
pub(super) mod flights;
pub(super) mod fragment;
pub(super) mod giving_way;
pub(super) mod inputs;
pub(super) mod ladder;
pub(super) mod lines;
pub(super) mod loads;
pub(super) mod overlap;
pub(super) mod race;
pub(super) mod report;
pub(super) mod room;
pub(super) mod shared;
pub(super) mod threads;
pub(super) mod time_limit;

pub use boxes::{Entry, boxed};
pub use exchange::{in_one_partition, in_partitions_of, is_computable};
pub use fragment::GpuFragmentExec;
pub use giving_way::{GivesWayExec, giving_way};
pub use inputs::over_inputs;
pub use lines::indented;
pub use report::{
    ColdStart, DERIVED, FragmentOptions, FragmentReport, STEP_COUNTERS, SecondPlan, StepReport,
    TreeMetrics,
};
pub use time_limit::{TimeLimit, TimeLimitExec};
