//! What columns ask of the device that sorts their strings.

use crate::device::{DevicePtr, Stream};
use crate::error::Result;
use crate::memory::DeviceBuffer;

/// Strings of a column of which no two are the same.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DistinctStrings {
    /// `u64*`: where each string of the column begins, and the end of the last.
    pub(crate) offsets: DevicePtr,
    /// Their bytes, padded as those of every column.
    pub(crate) data: DevicePtr,
    /// `u32*`: the rows of the strings.
    pub(crate) rows: DevicePtr,
    /// How many.
    pub(crate) count: u64,
}

/// Strings in the order of their bytes.
#[derive(Debug)]
pub(crate) struct SortedStrings {
    /// `u32`: the place of each string.
    pub(crate) ranks: DeviceBuffer,
    /// `u64`: where the string at each place begins, and the end of the last.
    pub(crate) offsets: DeviceBuffer,
    /// Their bytes.
    pub(crate) bytes: DeviceBuffer,
}

/// Sorts strings where they lie.
pub(crate) trait StringSorter: Send + Sync {
    /// Strings will be sorted soon: compile what that takes, without anybody waiting.
    fn prepare(&self);

    /// The strings in order; `None` where the host is better at it: they begin too much alike.
    ///
    /// # Errors
    /// [`crate::GpuError::OutOfDeviceMemory`], [`crate::GpuError::Compile`], [`crate::GpuError::Device`].
    ///
    /// # Safety
    /// The column is live and every row of `strings` is one of its rows; no two of them have the same string.
    unsafe fn sorted(
        &self,
        stream: &Stream,
        strings: &DistinctStrings,
    ) -> Result<Option<SortedStrings>>;
}
