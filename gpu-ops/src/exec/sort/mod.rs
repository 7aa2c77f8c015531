//! Sorts of more rows than device memory holds: in ranges of their keys, or keeping only the first rows.

pub(super) mod first;
pub(super) mod output;
pub(super) mod ranges;
pub(super) mod sample;
pub(super) mod window;
