//! Aggregations: accumulators, where group states live, what a row does to them, and how results come from them.
//!
//! | | |
//! |---|---|
//! | `placement`, `calls`, `distinct`, `sizes` | settled before there is text: keys, accumulators, sets, where states live and how much shared memory they take |
//! | `states`, `update`, `run_loop`, `partition`, `runs` | text: what threads and blocks begin and end with, what a row does, and rows that follow each other in a group, what a block does with a partition, and with a tile of rows in order |
//! | `kept` | groups that a filter drops at once are not written down |
//! | `finish` | groups as the rows of a later kernel |

pub(in crate::codegen) mod calls;
pub(in crate::codegen) mod distinct;
pub(in crate::codegen) mod finish;
pub(in crate::codegen) mod kept;
pub(in crate::codegen) mod partition;
pub(in crate::codegen) mod placement;
mod run_loop;
pub(in crate::codegen) mod runs;
pub(in crate::codegen) mod sizes;
pub(in crate::codegen) mod states;
pub(in crate::codegen) mod update;
