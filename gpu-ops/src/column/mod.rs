//! Device columns: Arrow columns in the narrowest exact encoding.

mod types;

pub use types::{Column, ColumnStatistics, Dictionary, Encoding};
