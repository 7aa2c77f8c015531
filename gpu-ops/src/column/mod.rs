//! Device columns: Arrow columns in the narrowest exact encoding.
//!
//! A table is encoded batch by batch, in parallel, and a column is uploaded once its global range is known:
//!
//! 1. each reader feeds a [`ChunkEncoder`], which packs every batch with a frame of reference of its
//!    own and a dictionary of its own, so that host memory never holds the column at Arrow width;
//! 2. a [`ColumnAssembler`] takes the [`Segment`]s of all readers in row order, computes the range,
//!    width, base and sorted dictionary of the whole column, and re-encodes the chunks in parallel
//!    straight into the upload, to device memory or, where that has no room, to host memory ([`ColumnPools`]);
//!    Where the range is known before, from the metadata of files, or a dictionary is expected to be that of the first segment, an
//!    `PreallocatedColumn` re-encodes and uploads each segment while the next ones are read, and the assembler checks in the end that
//!    what was expected holds;
//! 3. [`decode`], [`decode_codes`] and [`Column::to_arrow`] lead back to the logical Arrow type.
//!
//! Lists, maps and calendar intervals are strings of bytes on the way ([`is_opaque`]).

mod append;
mod assemble;
mod build;
mod bytes;
mod chunk;
mod decode;
mod dictionary;
mod distinct;
mod facts;
mod interner;
mod native;
mod on_device;
mod on_device_bytes;
mod on_device_text;
mod opaque;
mod parallel;
mod pools;
mod preallocated;
mod rewrite;
mod sample;
mod sketch;
mod string_sort;
mod string_sorter;
mod text_dictionary;
mod texts;
mod types;
mod views;

use arrow::array::ArrayRef;

pub(crate) use append::Append;
pub use assemble::ColumnAssembler;
pub(crate) use build::distinct_strings;
pub use chunk::{ChunkEncoder, Segment};
pub(crate) use decode::as_logical;
pub use decode::{decode, decode_bytes, decode_codes};
pub use dictionary::{merge_dictionaries, translate_codes};
pub(crate) use distinct::mix;
pub(crate) use facts::FactsKernels;
pub use native::check_type;
pub use native::is_text;
pub(crate) use native::{is_binary, is_number, is_storable};
pub(crate) use on_device::{ChunkFacts, DeviceColumn, FinishKernels, Target};
pub(crate) use on_device_bytes::PlacedStrings;
pub(crate) use on_device_text::UsedStrings;
pub use opaque::is_opaque;
pub(crate) use opaque::{REFERENCE, stored};
pub(crate) use parallel::map;
pub use pools::{ColumnPools, ColumnRoom};
pub(crate) use preallocated::{Expectation, PreallocatedColumn, Written, order_of, range_of};
pub use sample::Sample;
pub use sketch::Sketch;
pub(crate) use sketch::{HASHES, SAMPLE};
pub(crate) use string_sorter::{DistinctStrings, SortedStrings, StringSorter};
pub(crate) use text_dictionary::TextKernels;
pub(crate) use texts::Texts;
pub use types::{Column, ColumnStatistics, Dictionary, Encoding};

use std::sync::Arc;

use crate::device::Stream;
use crate::error::Result;
use crate::memory::MemoryPool;

/// How string columns are laid out on the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum StringPolicy {
    /// Codes into a sorted dictionary, whatever its size.
    #[default]
    AlwaysDictionary,
    /// A dictionary while strings repeat at least twice on average, else offsets and bytes.
    Auto,
    /// Offsets and bytes.
    AlwaysBytes,
}

impl StringPolicy {
    /// Would the policy give these dictionary codes a dictionary by itself?
    pub(crate) fn keeps_codes(self, column: &Column) -> bool {
        let Some(distinct) = column.statistics.distinct else {
            return false;
        };
        match self {
            Self::AlwaysDictionary => true,
            Self::Auto => self.repeats(distinct, column.rows - column.statistics.null_count),
            Self::AlwaysBytes => false,
        }
    }

    /// `Auto`: do `valid` strings with so many distinct values repeat enough for a dictionary?
    fn repeats(self, distinct: usize, valid: usize) -> bool {
        self != Self::Auto || distinct <= valid.div_ceil(2).max(1)
    }
}

/// Encode one Arrow array and upload it; returns when the copies are queued and `array` may go.
///
/// # Errors
/// [`crate::GpuError::Unsupported`] for types and values without a device encoding,
/// [`crate::GpuError::OutOfDeviceMemory`], and [`crate::GpuError::Device`] from the copies.
pub fn encode(
    array: &ArrayRef,
    policy: StringPolicy,
    pool: &Arc<MemoryPool>,
    stream: &Stream,
) -> Result<Column> {
    let mut encoder = ChunkEncoder::new(array.data_type().clone(), policy)?;
    encoder.push(array)?;
    ColumnAssembler::new(array.data_type().clone(), policy, "column").finish(
        vec![encoder.finish()],
        pool,
        stream,
    )
}
