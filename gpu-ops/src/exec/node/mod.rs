//! The node of the physical plan that stands for a fragment: runs, retries, reports.
//!
//! `attempts` loads the columns and runs a fragment until there is memory for it (`ladder`, `room`); `overlap` begins while the largest
//! table is still being read; `replan` is what a run found out that the next plan must know.

pub(super) mod attempts;
pub(super) mod boxes;
pub(super) mod fragment;
pub(super) mod ladder;
pub(super) mod lines;
pub(super) mod overlap;
pub(super) mod report;
pub(super) mod room;
pub(super) mod shared;
pub(super) mod time_limit;

pub use boxes::{Entry, boxed};
pub use fragment::GpuFragmentExec;
pub use lines::indented;
pub use report::{
    DERIVED, FragmentOptions, FragmentReport, STEP_COUNTERS, SecondPlan, StepReport, TreeMetrics,
};
pub use shared::in_one_partition;
pub use time_limit::{TimeLimit, TimeLimitExec};
