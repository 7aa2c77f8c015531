//! Host memory that is filled and then copied to the device: page-locked, or not.

use std::sync::Arc;

use crate::device::Stream;
use crate::error::Result;
use crate::memory::{DeviceBuffer, MemoryPool};

/// Classes of sizes per power of two: blocks of one task serve the next, though no two have as many bytes.
const CLASSES: usize = 8;

/// So many bytes, rounded up so that few sizes are asked of the pools.
pub(super) fn rounded(bytes: usize) -> usize {
    let step = (bytes.next_power_of_two() / CLASSES).max(256);
    bytes.next_multiple_of(step)
}

/// Host bytes whose copies a stream orders.
pub(super) enum Slab {
    Pinned(DeviceBuffer),
    Plain(Vec<u8>),
}

impl Slab {
    pub(super) fn new(bytes: usize, host: Option<&Arc<MemoryPool>>, stream: &Stream) -> Self {
        // Without page-locked memory the copy is slower.
        match host.map(|host| host.allocate(rounded(bytes.max(1)), "bytes of parquet files")) {
            Some(Ok(buffer)) => Self::Pinned(buffer.ordered_by(stream)),
            _ => Self::Plain(vec![0; bytes]),
        }
    }

    /// At least as many bytes as were asked for.
    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Pinned(buffer) => buffer.host_bytes_mut().unwrap_or_default(),
            Self::Plain(bytes) => bytes,
        }
    }

    /// Queue a copy of the first bytes, or wait for it.
    pub(super) fn copy_to(
        &self,
        stream: &Stream,
        target: &DeviceBuffer,
        at: usize,
        bytes: usize,
    ) -> Result<()> {
        match self {
            Self::Pinned(buffer) => target.copy_from(stream, at, buffer, 0, bytes),
            Self::Plain(all) => target.upload(stream, at, &all[..bytes]),
        }
    }
}
