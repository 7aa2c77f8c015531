//! Memory pools of columns: device memory while there is room, else host memory.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::parallel::{allocate_padded, upload_with};
use super::types::{Column, Encoding};
use crate::device::Stream;
use crate::error::{GpuError, Result};
use crate::memory::{DeviceBuffer, MemoryPool};

/// Device memory that the columns of one query may take; columns beyond it are in host memory. Clones share the room.
#[derive(Debug, Clone)]
pub struct ColumnRoom {
    left: Arc<AtomicUsize>,
    /// Columns in device memory that are counted already.
    held: Arc<[Arc<Column>]>,
}

impl ColumnRoom {
    /// No limit but the pool's.
    pub fn unlimited() -> Self {
        Self::of(usize::MAX)
    }

    /// So many bytes.
    pub fn of(bytes: usize) -> Self {
        Self {
            left: Arc::new(AtomicUsize::new(bytes)),
            held: Arc::new([]),
        }
    }

    /// Room of `bytes` bytes, of which `columns` in device memory are counted first, in this order, as far as they
    /// fit: they stay, and no other column takes their room. Other columns are admitted while all take at most `most`
    /// bytes together.
    pub(crate) fn holding(
        bytes: usize,
        columns: impl IntoIterator<Item = Arc<Column>>,
        most: usize,
    ) -> Self {
        let mut held: Vec<Arc<Column>> = Vec::new();
        let mut taken = 0;
        for column in columns {
            let size = column.budget_bytes(false);
            let known = held.iter().any(|other| Arc::ptr_eq(other, &column));
            if !known && !column.is_in_host_memory() && taken + size <= bytes {
                taken += size;
                held.push(column);
            }
        }
        Self {
            left: Arc::new(AtomicUsize::new(bytes.min(most).saturating_sub(taken))),
            held: held.into(),
        }
    }

    /// Is this column counted already?
    pub(crate) fn holds(&self, column: &Arc<Column>) -> bool {
        self.held.iter().any(|held| Arc::ptr_eq(held, column))
    }

    /// Take `bytes` bytes; false, without effect, when fewer are left.
    pub(crate) fn take(&self, bytes: usize) -> bool {
        let order = Ordering::Relaxed;
        let taken = |left: usize| left.checked_sub(bytes);
        self.left.fetch_update(order, order, taken).is_ok()
    }

    /// Return `bytes` bytes that were taken.
    pub(crate) fn give(&self, bytes: usize) {
        let order = Ordering::Relaxed;
        let given = |left: usize| Some(left.saturating_add(bytes));
        // Never refused.
        let _ = self.left.fetch_update(order, order, given);
    }
}

/// The pools for columns, and the room in device memory.
pub struct ColumnPools<'a> {
    /// Device memory.
    pub device: &'a Arc<MemoryPool>,
    /// Host memory that the device can access; `None`: columns that do not fit in device memory are an error.
    pub host: Option<&'a Arc<MemoryPool>>,
    /// The room in device memory.
    pub room: &'a ColumnRoom,
}

impl ColumnPools<'_> {
    /// A buffer of `bytes` bytes to be filled, zeroed behind them up to the padding.
    pub(super) fn allocate(
        &self,
        bytes: usize,
        purpose: &str,
        stream: &Stream,
    ) -> Result<DeviceBuffer> {
        let Some(host) = self.host else {
            return allocate_padded(bytes, purpose, self.device, stream);
        };
        if self.room.take(bytes) {
            match allocate_padded(bytes, purpose, self.device, stream) {
                Err(GpuError::OutOfDeviceMemory { .. }) => self.room.give(bytes),
                other => return other,
            }
        }
        allocate_padded(bytes, &on_host(purpose), host, stream)
    }

    /// A filled buffer, as [`upload_with`].
    pub(super) fn upload(
        &self,
        bytes: usize,
        purpose: &str,
        stream: &Stream,
        fill: impl Fn(Range<usize>, &mut [u8]) -> Result<()> + Sync,
    ) -> Result<DeviceBuffer> {
        let Some(host) = self.host else {
            return upload_with(bytes, purpose, self.device, stream, fill);
        };
        if self.room.take(bytes) {
            match upload_with(bytes, purpose, self.device, stream, &fill) {
                Err(GpuError::OutOfDeviceMemory { .. }) => {}
                other => return other,
            }
        }
        upload_with(bytes, &on_host(purpose), host, stream, fill)
    }
}

fn on_host(purpose: &str) -> String {
    format!("{purpose}, in host memory (warpline.host_memory)")
}

impl Column {
    /// Is any of it in host memory?
    pub fn is_in_host_memory(&self) -> bool {
        self.buffers().any(|buffer| buffer.is_host())
    }

    /// Bytes charged to the budget of device memory, or of host memory.
    pub(crate) fn budget_bytes(&self, host: bool) -> usize {
        let mine = self.buffers().filter(|buffer| buffer.is_host() == host);
        mine.map(|buffer| buffer.capacity()).sum()
    }

    /// A copy with all buffers in `pool`; buffers already there are shared. Waits for the copies.
    ///
    /// # Errors
    /// [`GpuError::OutOfDeviceMemory`] when the pool does not hold it; [`GpuError::Device`] from the copies.
    pub(crate) fn moved_to(&self, pool: &Arc<MemoryPool>, stream: &Stream) -> Result<Self> {
        let host = pool.device().is_host_memory();
        let moved = |buffer: &Arc<DeviceBuffer>| -> Result<Arc<DeviceBuffer>> {
            if buffer.is_host() == host {
                return Ok(Arc::clone(buffer));
            }
            let copy = pool.allocate(buffer.len(), "a column that moves")?;
            copy.copy_from(stream, 0, buffer, 0, buffer.len())?;
            Ok(Arc::new(copy))
        };
        let column = Self {
            data: moved(&self.data)?,
            validity: self.validity.as_ref().map(moved).transpose()?,
            encoding: match &self.encoding {
                Encoding::Bytes { offsets } => Encoding::Bytes {
                    offsets: moved(offsets)?,
                },
                other => other.clone(),
            },
            ..self.clone()
        };
        pool.device().synchronize(stream)?;
        Ok(column)
    }
}
