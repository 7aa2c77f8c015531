//! Zeroed page-locked host memory at addresses that the device has in common with the host.
//!
//! The driver makes such memory on one thread, which clears it page by page: 0.38 s for a GiB and 0.11 s to give it back
//! (`cuMemHostAlloc`, `cuMemFreeHost`, on the host of an H200, 16 cores). Large blocks are mapped here in place of that, in huge
//! pages where the system has them, touched by several threads, and only then locked: 0.04 s and 0.02 s, without huge pages 0.08 s
//! and 0.05 s.

use std::collections::HashMap;
use std::ffi::c_void;
use std::thread;

use cudarc::driver::sys;
use parking_lot::Mutex;

use super::context::Context;
use crate::error::{GpuError, Result};
use crate::memory::memory_of_machine;

/// Blocks of at least so many bytes are mapped: the cost of the others is that of the call.
const LEAST_MAPPED: usize = 16 << 20;
/// Bytes that a thread touches at least.
const LEAST_TOUCHED: usize = 8 << 20;
/// Mappings begin and end at multiples of this, the size of a huge page.
const HUGE_PAGE: usize = 2 << 20;
/// Bytes of the smallest pages that there are.
const PAGE: usize = 4096;
/// Memory that is left to others: beyond, a page that is touched may end a process instead of being refused.
const LEFT: usize = 1 << 30;

/// Blocks that were mapped, by their address: where the mapping begins and its bytes.
#[derive(Debug, Default)]
pub(super) struct HostMemory {
    mapped: Mutex<HashMap<u64, Mapping>>,
}

/// Private anonymous memory of this process.
#[derive(Debug)]
struct Mapping {
    begin: usize,
    bytes: usize,
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped by `Mapping::new` with these bytes; whoever owns the mapping says by dropping it that nobody uses it.
        if unsafe { libc::munmap(self.begin as *mut c_void, self.bytes) } != 0 {
            log::warn!(
                "unmapping {} bytes: {}",
                self.bytes,
                std::io::Error::last_os_error()
            );
        }
    }
}

impl Mapping {
    /// A mapping with room for `bytes` bytes from a multiple of [`HUGE_PAGE`] on; `None` when the system gives none.
    fn new(bytes: usize) -> Option<Self> {
        let bytes = bytes.checked_next_multiple_of(HUGE_PAGE)? + HUGE_PAGE;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new private mapping at an address of the system's choice.
        let begin = unsafe { libc::mmap(std::ptr::null_mut(), bytes, access, kind, -1, 0) };
        (begin != libc::MAP_FAILED).then_some(Self {
            begin: begin as usize,
            bytes,
        })
    }

    /// The block in it.
    fn block(&self) -> usize {
        self.begin.next_multiple_of(HUGE_PAGE)
    }

    /// Have the system find pages for the first `bytes` bytes of the block, which it clears, on several threads.
    fn touch(&self, bytes: usize) {
        let block = self.block();
        // SAFETY: within the mapping. Without huge pages it is only slower.
        unsafe { libc::madvise(block as *mut c_void, bytes, libc::MADV_HUGEPAGE) };
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let threads = (bytes / LEAST_TOUCHED).clamp(1, cores);
        let share = bytes.div_ceil(threads).next_multiple_of(HUGE_PAGE);
        thread::scope(|scope| {
            for first in (0..bytes).step_by(share) {
                scope.spawn(move || {
                    for at in (first..bytes.min(first + share)).step_by(PAGE) {
                        // SAFETY: within the mapping, which nobody else knows yet; threads touch pages of their own.
                        unsafe { ((block + at) as *mut u8).write_volatile(0) };
                    }
                });
            }
        });
    }
}

impl HostMemory {
    /// A block; `None` when the host gives no more.
    ///
    /// # Errors
    /// [`GpuError::Unsupported`] where host memory has other addresses on the device; [`GpuError::Device`] from the driver.
    pub(super) fn allocate(&self, context: &Context, bytes: usize) -> Result<Option<u64>> {
        context.bind()?;
        if bytes >= LEAST_MAPPED {
            let available = memory_of_machine("MemAvailable");
            if available.is_some_and(|available| available < bytes.saturating_add(LEFT)) {
                return Ok(None);
            }
            if let Some(address) = self.map(context, bytes)? {
                return Ok(Some(address));
            }
        }
        by_driver(context, bytes)
    }

    /// A block in a mapping of its own; `None` when the system or the driver refuses that, which may have other ways.
    fn map(&self, context: &Context, bytes: usize) -> Result<Option<u64>> {
        let Some(mapping) = Mapping::new(bytes) else {
            return Ok(None);
        };
        mapping.touch(bytes);
        let block = mapping.block() as *mut c_void;
        let flags = sys::CU_MEMHOSTREGISTER_PORTABLE | sys::CU_MEMHOSTREGISTER_DEVICEMAP;
        // SAFETY: the context is current; the block lies in a mapping that lives until it is unregistered.
        let status = unsafe { sys::cuMemHostRegister_v2(block, bytes, flags) };
        if let Err(error) = context.check(status, &format!("page-locking {bytes} bytes")) {
            log::debug!("{error}");
            return Ok(None);
        }
        match shared_address(context, block) {
            Ok(address) => {
                self.mapped.lock().insert(address, mapping);
                Ok(Some(address))
            }
            Err(error) => {
                // SAFETY: registered above, used by nobody.
                unsafe { sys::cuMemHostUnregister(block) };
                Err(error)
            }
        }
    }

    /// Give a block back.
    ///
    /// # Errors
    /// [`GpuError::Device`] from the driver: the block stays.
    ///
    /// # Safety
    /// The block came from [`Self::allocate`] of the same context, and nothing uses it.
    pub(super) unsafe fn free(&self, context: &Context, address: u64, bytes: usize) -> Result<()> {
        context.bind()?;
        let block = address as usize as *mut c_void;
        let mapping = self.mapped.lock().remove(&address);
        // SAFETY: the caller vouches.
        let status = unsafe {
            match &mapping {
                Some(_) => sys::cuMemHostUnregister(block),
                None => sys::cuMemFreeHost(block),
            }
        };
        let freed = context.check(
            status,
            &format!("freeing {bytes} bytes of page-locked memory"),
        );
        if freed.is_err() {
            // The device may still know it.
            std::mem::forget(mapping);
        }
        freed
    }
}

/// A block from the driver.
fn by_driver(context: &Context, bytes: usize) -> Result<Option<u64>> {
    let mut raw = std::ptr::null_mut();
    let flags = sys::CU_MEMHOSTALLOC_PORTABLE | sys::CU_MEMHOSTALLOC_DEVICEMAP;
    // SAFETY: the context is current; `raw` is written.
    match unsafe { sys::cuMemHostAlloc(&mut raw, bytes, flags) } {
        sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY => return Ok(None),
        status => {
            let what = format!("page-locking {bytes} bytes of host memory");
            context.check(status, &what)?;
        }
    }
    match shared_address(context, raw) {
        Ok(address) => {
            // SAFETY: the driver gave `bytes` writable bytes; zeroing initialises them.
            unsafe { std::ptr::write_bytes(raw.cast::<u8>(), 0, bytes) };
            Ok(Some(address))
        }
        Err(error) => {
            // SAFETY: allocated above, used by nobody.
            unsafe { sys::cuMemFreeHost(raw) };
            Err(error)
        }
    }
}

/// The address of page-locked memory, on the host and on the device.
fn shared_address(context: &Context, raw: *mut c_void) -> Result<u64> {
    let mut address = 0;
    // SAFETY: the memory is mapped for the device; `address` is written.
    let status = unsafe { sys::cuMemHostGetDevicePointer_v2(&mut address, raw, 0) };
    context.check(status, "finding host memory on the device")?;
    if address != raw as u64 {
        return Err(GpuError::Unsupported(
            "host memory at another address on the device: columns must fit in device memory"
                .into(),
        ));
    }
    Ok(address)
}
