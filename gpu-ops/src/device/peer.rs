//! Memory of other devices that this one reaches: the first place for what its own has no room for, nearer than the host's.
//!
//! Kernels and copies of this device read and write it at its own address (CUDA: unified addresses, peer access over NVLink or
//! PCIe). The other devices' pools hand it out, out of what nobody has reserved: no column of theirs goes for it. What this
//! device has queued is known to this device alone, so a block goes back to its pool when that has ended.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use super::inner_work::work_of_inner;
use super::{
    CompileReport, Device, DeviceInfo, DevicePtr, Event, Fence, Kernel, LaunchConfig, Module,
    Stream,
};
use crate::error::{GpuError, Result};
use crate::memory::{DeviceBuffer, MemoryPool};

/// The share of a pool's budget that is left to its own device: one in so many.
const LEFT: u64 = 4;

/// The memory of the peers of a device.
pub struct PeerMemory {
    inner: Arc<dyn Device>,
    pools: Mutex<Vec<Arc<MemoryPool>>>,
    /// What their pools have handed out, by address.
    held: Mutex<HashMap<DevicePtr, DeviceBuffer>>,
}

impl PeerMemory {
    /// Of `inner`, which has no peers yet.
    pub fn new(inner: Arc<dyn Device>) -> Self {
        Self {
            inner,
            pools: Mutex::default(),
            held: Mutex::default(),
        }
    }

    /// The memory of another device, which this one reaches.
    pub fn add(&self, pool: &Arc<MemoryPool>) {
        self.pools.lock().push(Arc::clone(pool));
    }

    /// Whether there are any.
    pub fn is_empty(&self) -> bool {
        self.pools.lock().is_empty()
    }

    /// Is there a peer with room for `bytes` more?
    fn with_room(&self, bytes: usize) -> Option<Arc<MemoryPool>> {
        let pools = self.pools.lock();
        let usable = pools.iter().filter(|pool| pool.device().lost().is_none());
        let room = |pool: &MemoryPool| {
            let free = pool.free();
            free.bytes.saturating_sub(free.budget.bytes() / LEFT)
        };
        let most = usable.max_by_key(|pool| room(pool))?;
        (room(most) >= bytes as u64).then(|| Arc::clone(most))
    }
}

impl std::fmt::Debug for PeerMemory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let pools = self.pools.lock();
        let peers = pools.iter().map(|pool| pool.device().info().id.clone());
        f.debug_struct("PeerMemory")
            .field("of", &self.inner.info().id)
            .field("peers", &peers.collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}

impl Device for PeerMemory {
    work_of_inner!();

    fn free_memory(&self) -> Result<usize> {
        Err(GpuError::Internal(
            "free memory of peers is not the device's to tell".into(),
        ))
    }

    fn admit(&self, bytes: usize) -> Result<()> {
        self.inner.admit(bytes)
    }

    fn allocate(&self, bytes: usize) -> Result<DevicePtr> {
        let full = || GpuError::OutOfDeviceMemory {
            requested: bytes,
            purpose: format!("rows of {} on other devices", self.inner.info().id),
            in_use: 0,
            budget: 0,
        };
        let pool = self.with_room(bytes).ok_or_else(full)?;
        // Without a stream: no work of the other device uses it any more.
        let buffer = pool.allocate(bytes, "rows of another device")?;
        let address = buffer.ptr();
        self.held.lock().insert(address, buffer);
        Ok(address)
    }

    unsafe fn free(&self, ptr: DevicePtr, _bytes: usize) {
        // By the caller's promise no queued work of this device uses it; the other one has none with it.
        drop(self.held.lock().remove(&ptr));
    }

    fn is_peer_memory(&self) -> bool {
        true
    }

    unsafe fn copy_to_device(
        &self,
        stream: &Stream,
        source: &[u8],
        destination: DevicePtr,
    ) -> Result<()> {
        // SAFETY: the caller's promise is passed on; the device reaches the address.
        unsafe { self.inner.copy_to_device(stream, source, destination) }
    }

    unsafe fn copy_to_host(
        &self,
        stream: &Stream,
        source: DevicePtr,
        destination: &mut [u8],
    ) -> Result<()> {
        // SAFETY: as above.
        unsafe { self.inner.copy_to_host(stream, source, destination) }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::device::emulated::EmulatedDevice;

    fn pool(budget: usize) -> Arc<MemoryPool> {
        MemoryPool::new(Arc::new(EmulatedDevice::open().unwrap()), budget)
    }

    #[test]
    fn peers_give_what_they_have_free_and_get_it_back() {
        let own: Arc<dyn Device> = Arc::new(EmulatedDevice::open().unwrap());
        let peers = Arc::new(PeerMemory::new(Arc::clone(&own)));
        assert!(peers.is_empty());
        let reached = MemoryPool::new(Arc::clone(&peers) as Arc<dyn Device>, usize::MAX / 2);
        let full = |result: Result<DeviceBuffer>| {
            matches!(result, Err(GpuError::OutOfDeviceMemory { .. }))
        };
        assert!(full(reached.allocate(4096, "rows")));
        let (small, large) = (pool(1 << 20), pool(4 << 20));
        peers.add(&small);
        peers.add(&large);
        let stream = own.create_stream().unwrap();
        let rows = reached.allocate(2 << 20, "rows").unwrap();
        assert_eq!(large.statistics().in_use, 2 << 20);
        rows.upload(&stream, 0, &[7; 100]).unwrap();
        // A quarter of each is left alone.
        assert!(full(reached.allocate(2 << 20, "rows")));
        let more = reached.allocate(512 << 10, "rows").unwrap();
        let mut read = [0; 100];
        rows.download(&stream, 0, &mut read).unwrap();
        own.synchronize(&stream).unwrap();
        assert_eq!(read, [7; 100]);
        drop((rows, more));
        reached.trim().unwrap();
        assert_eq!(small.statistics().in_use + large.statistics().in_use, 0);
    }
}
