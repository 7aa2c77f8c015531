//! A range of device memory that returns itself to its pool.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use crate::device::{Device, DevicePtr, Stream};
use crate::error::{GpuError, Result};
use crate::memory::MemoryPool;
use crate::query::Query;

/// Plain values that host and device represent by the same little-endian bytes.
///
/// # Safety
/// Implementors have no padding, no invalid bit patterns and no pointers.
pub unsafe trait DeviceValue: Copy + Default + Send + Sync + 'static {}

macro_rules! device_values {
    ($($type:ty),*) => {
        $(
            // SAFETY: a primitive number: no padding, every bit pattern is valid.
            unsafe impl DeviceValue for $type {}
        )*
    };
}
device_values!(
    u8, u16, u32, u64, u128, i8, i16, i32, i64, i128, f32, f64, usize
);

/// The bytes of a slice of plain values.
fn as_bytes<T: DeviceValue>(values: &[T]) -> &[u8] {
    // SAFETY: `DeviceValue` has no padding, so all bytes are initialised; u8 has no alignment.
    unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), size_of_val(values)) }
}

/// The bytes of a slice of plain values, for writing.
fn as_bytes_mut<T: DeviceValue>(values: &mut [T]) -> &mut [u8] {
    // SAFETY: as above; every bit pattern written is a valid `T`.
    unsafe { std::slice::from_raw_parts_mut(values.as_mut_ptr().cast(), size_of_val(values)) }
}

/// A range of device memory from a [`MemoryPool`]; dropping it returns the memory.
///
/// The contents are not initialised. All lengths and offsets are in bytes. Like the memory itself,
/// the methods take `&self`: what several threads write to overlapping ranges at once is undetermined.
pub struct DeviceBuffer {
    pool: Arc<MemoryPool>,
    ptr: DevicePtr,
    len: usize,
    capacity: usize,
    /// For whom it was made.
    query: Option<Arc<Query>>,
    /// The stream that orders all work with it.
    stream: Option<Stream>,
}

impl DeviceBuffer {
    pub(super) fn new(pool: Arc<MemoryPool>, ptr: DevicePtr, len: usize, capacity: usize) -> Self {
        // What a query holds is device memory.
        let query = Query::current().filter(|_| !pool.device().is_host_memory());
        if let Some(query) = &query {
            query.charge(capacity);
        }
        Self {
            pool,
            ptr,
            len,
            capacity,
            query,
            stream: None,
        }
    }

    /// The same memory; when it is dropped, whoever allocates for `stream` ([`MemoryPool::allocate_for`]) may have it at once, and
    /// all others once the stream has been waited for.
    ///
    /// For memory that queued work uses on `stream` alone, or on other streams only before something that `stream` has
    /// been made to wait for.
    #[must_use]
    pub(crate) fn ordered_by(mut self, stream: &Stream) -> Self {
        self.stream = Some(stream.queue());
        self
    }

    /// Was it made for this query, and counts as its memory?
    pub(crate) fn is_of(&self, query: &Arc<Query>) -> bool {
        self.query.as_ref().is_some_and(|of| Arc::ptr_eq(of, query))
    }

    /// Length in bytes, as asked for.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True for a buffer of zero bytes, which has no device memory.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes of the budget this buffer holds: its length rounded up to the pool's size class.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Device address of the first byte; 256-byte aligned, null for an empty buffer.
    pub fn ptr(&self) -> DevicePtr {
        self.ptr
    }

    /// Device address `offset` bytes into the buffer; one past the end is allowed.
    ///
    /// # Errors
    /// [`GpuError::Internal`] when `offset` is past the end.
    pub fn ptr_at(&self, offset: usize) -> Result<DevicePtr> {
        self.check("address", offset, 0)?;
        Ok(DevicePtr(self.ptr.0 + offset as u64))
    }

    /// The device the memory is on.
    pub fn device(&self) -> &Arc<dyn Device> {
        self.pool.device()
    }

    /// Does it lie in host memory, which the device reaches across the link?
    pub fn is_host(&self) -> bool {
        self.device().is_host_memory()
    }

    /// The bytes of a buffer in host memory, for writing; `None` for one in device memory.
    ///
    /// Only of a buffer that no queued work uses: who borrows it exclusively has handed its address to nobody yet.
    pub fn host_bytes_mut(&mut self) -> Option<&mut [u8]> {
        if !self.is_host() || self.len == 0 {
            return None;
        }
        let bytes = std::ptr::with_exposed_provenance_mut(self.ptr.0 as usize);
        // SAFETY: `len` bytes of host memory that this buffer alone owns, initialised when the block was allocated; the
        // pool hands out a block again only after all queued work that used it.
        Some(unsafe { std::slice::from_raw_parts_mut(bytes, self.len) })
    }

    /// Some bytes of a buffer in host memory, for writing; `None` for one in device memory, and for a range that leaves it.
    ///
    /// # Safety
    /// As long as the answer lives, nobody else reads or writes these bytes, on the host or on the device.
    #[allow(
        clippy::mut_from_ref,
        reason = "threads write to parts of one buffer that do not overlap"
    )]
    pub(crate) unsafe fn host_range_mut(&self, range: Range<usize>) -> Option<&mut [u8]> {
        if !self.is_host() || range.start > range.end || range.end > self.len || self.len == 0 {
            return None;
        }
        let bytes = std::ptr::with_exposed_provenance_mut((self.ptr.0 as usize) + range.start);
        // SAFETY: host memory of this buffer, initialised when the block was allocated; the caller has it alone.
        Some(unsafe { std::slice::from_raw_parts_mut(bytes, range.len()) })
    }

    /// The pool the memory returns to.
    pub fn pool(&self) -> &Arc<MemoryPool> {
        &self.pool
    }

    /// Copy `source` to the buffer at `offset`; returns when `source` may be reused.
    ///
    /// # Errors
    /// [`GpuError::Internal`] when the range leaves the buffer, [`GpuError::Device`] from the driver.
    pub fn upload(&self, stream: &Stream, offset: usize, source: &[u8]) -> Result<()> {
        let destination = self.check("upload", offset, source.len())?;
        if source.is_empty() {
            return Ok(());
        }
        // SAFETY: the range was checked against the buffer, which is live while `self` is.
        unsafe { self.device().copy_to_device(stream, source, destination) }
    }

    /// [`DeviceBuffer::upload`] of plain values; `offset` is in bytes.
    ///
    /// # Errors
    /// As [`DeviceBuffer::upload`].
    pub fn upload_values<T: DeviceValue>(
        &self,
        stream: &Stream,
        offset: usize,
        values: &[T],
    ) -> Result<()> {
        self.upload(stream, offset, as_bytes(values))
    }

    /// Copy `destination.len()` bytes from `offset` to the host and wait for them.
    ///
    /// # Errors
    /// [`GpuError::Internal`] when the range leaves the buffer, [`GpuError::Device`] from the driver,
    /// also for work queued earlier on the stream.
    pub fn download(&self, stream: &Stream, offset: usize, destination: &mut [u8]) -> Result<()> {
        let source = self.check("download", offset, destination.len())?;
        if destination.is_empty() {
            return Ok(());
        }
        // SAFETY: the range was checked against the buffer, which is live while `self` is.
        unsafe { self.device().copy_to_host(stream, source, destination) }
    }

    /// `count` plain values from byte `offset`.
    ///
    /// # Errors
    /// As [`DeviceBuffer::download`].
    pub fn download_values<T: DeviceValue>(
        &self,
        stream: &Stream,
        offset: usize,
        count: usize,
    ) -> Result<Vec<T>> {
        let bytes = count.saturating_mul(size_of::<T>());
        self.check("download", offset, bytes)?;
        let mut values = vec![T::default(); count];
        self.download(stream, offset, as_bytes_mut(&mut values))?;
        Ok(values)
    }

    /// All whole values that the buffer holds.
    ///
    /// # Errors
    /// As [`DeviceBuffer::download`].
    pub fn download_vec<T: DeviceValue>(&self, stream: &Stream) -> Result<Vec<T>> {
        self.download_values(stream, 0, self.len / size_of::<T>())
    }

    /// Set every byte to `value`.
    ///
    /// # Errors
    /// [`GpuError::Device`] from the driver.
    pub fn fill(&self, stream: &Stream, value: u8) -> Result<()> {
        self.fill_range(stream, 0, self.len, value)
    }

    /// Set `bytes` bytes from `offset` to `value`.
    ///
    /// # Errors
    /// [`GpuError::Internal`] when the range leaves the buffer, [`GpuError::Device`] from the driver.
    pub fn fill_range(
        &self,
        stream: &Stream,
        offset: usize,
        bytes: usize,
        value: u8,
    ) -> Result<()> {
        let destination = self.check("fill", offset, bytes)?;
        if bytes == 0 {
            return Ok(());
        }
        // SAFETY: the range was checked against the buffer, which is live while `self` is.
        unsafe { self.device().fill(stream, destination, value, bytes) }
    }

    /// Copy `bytes` bytes from `source` at `source_offset` to this buffer at `offset`, on the device.
    ///
    /// # Errors
    /// [`GpuError::Internal`] when a range leaves its buffer, both are the same buffer or the
    /// buffers come from pools of different devices; [`GpuError::Device`] from the driver.
    pub fn copy_from(
        &self,
        stream: &Stream,
        offset: usize,
        source: &DeviceBuffer,
        source_offset: usize,
        bytes: usize,
    ) -> Result<()> {
        let destination = self.check("copy", offset, bytes)?;
        let from = source.check("copy", source_offset, bytes)?;
        if bytes == 0 {
            return Ok(());
        }
        // A device has a pool of its own memory, one of host memory, and one of its peers'.
        let kind = |buffer: &Self| (buffer.is_host(), buffer.device().is_peer_memory());
        let same_device = Arc::ptr_eq(&self.pool, &source.pool)
            || (kind(self) != kind(source) && self.device().info().id == source.device().info().id);
        if self.ptr == source.ptr || !same_device {
            return Err(GpuError::Internal(
                "a device copy needs two buffers of one device".into(),
            ));
        }
        if self.is_host() && source.is_host() {
            // The processor copies between two places of host memory, and does not wait for what is queued.
            self.device().synchronize(stream)?;
        }
        // SAFETY: both ranges were checked, both buffers are live, and two buffers never overlap.
        unsafe {
            self.device()
                .copy_on_device(stream, from, destination, bytes)
        }
    }

    /// The address of `[offset, offset + bytes)`, when the buffer holds it.
    fn check(&self, operation: &str, offset: usize, bytes: usize) -> Result<DevicePtr> {
        match offset.checked_add(bytes) {
            Some(end) if end <= self.len => Ok(DevicePtr(self.ptr.0 + offset as u64)),
            _ => Err(GpuError::Internal(format!(
                "{operation} of {bytes} bytes at offset {offset} leaves a device buffer of {} bytes",
                self.len
            ))),
        }
    }
}

impl Drop for DeviceBuffer {
    fn drop(&mut self) {
        if let Some(query) = &self.query {
            query.credit(self.capacity);
        }
        self.pool
            .give_back(self.ptr, self.capacity, self.stream.take());
    }
}

impl fmt::Debug for DeviceBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeviceBuffer")
            .field("device", &self.device().info().id)
            .field("ptr", &format_args!("{:#x}", self.ptr.0))
            .field("len", &self.len)
            .finish()
    }
}
