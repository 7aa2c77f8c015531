//! Joins: indexes, probes, and matches that are joined once their rows are there.
//!
//! | | |
//! |---|---|
//! | `index`, `probe`, `matches` | settled before there is text: an index and its layout, the codes of a probe's keys, what is kept of probing rows |
//! | `entries`, `look_up`, `matches` | text: rows of an index, look-ups with residuals and marks, probing rows |

pub(in crate::codegen) mod entries;
pub(in crate::codegen) mod index;
pub(in crate::codegen) mod look_up;
pub(in crate::codegen) mod matches;
pub(in crate::codegen) mod probe;
