//! One run of a prepared fragment: results at hand, launches, retries, and its end.

pub(super) mod arrange;
pub(super) mod control;
pub(super) mod execute;
pub(super) mod finish;
pub(super) mod head;
pub(super) mod kept_indexes;
pub(super) mod launch;
pub(super) mod provide;
pub(super) mod results;
pub(super) mod run;
pub(super) mod storage;
pub(super) mod trees;
