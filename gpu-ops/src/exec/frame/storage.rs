//! Memory of results: where their parts lie, and where it comes from and goes.

use std::ops::Range;
use std::sync::Arc;

use crate::codegen::Part;
use crate::device::{DevicePtr, Stream};
use crate::error::{GpuError, Result};
use crate::exec::prepare::part_sizes::{ALIGNMENT, BlockSizes, PartSize};
use crate::memory::{DeviceBuffer, MemoryPool};
use crate::primitives::ByteRun;

/// A part of a block in memory.
#[derive(Debug, Clone, Copy)]
struct Placed {
    size: PartSize,
    offset: usize,
}

/// One buffer with the parts in it.
#[derive(Debug, Clone)]
struct Block {
    buffer: Arc<DeviceBuffer>,
    parts: Vec<Placed>,
    temporary: bool,
    /// Other runs may use it, on streams of their own.
    shared: bool,
}

/// The memory of one result.
#[derive(Debug, Default)]
pub(in crate::exec) struct Store {
    blocks: Vec<Block>,
    /// Parts that are columns of a table, where no block has them.
    borrowed: Vec<(Part, DevicePtr)>,
}

/// A clone refers to the same memory, for another run; it is handed out again when nobody refers to it.
impl Clone for Store {
    fn clone(&self) -> Self {
        let shared = |block: &Block| Block {
            shared: true,
            ..block.clone()
        };
        Self {
            blocks: self.blocks.iter().map(shared).collect(),
            borrowed: self.borrowed.clone(),
        }
    }
}

/// Where the parts of a block lie, from `start` on; the second value is the end of the last.
fn place(parts: &[PartSize], start: usize) -> Result<(Vec<Placed>, usize)> {
    let mut end = start;
    let mut placed = Vec::with_capacity(parts.len());
    for size in parts {
        placed.push(Placed {
            size: *size,
            offset: end,
        });
        // No part is empty: kernels get an address they may load from even without rows.
        end = end
            .checked_add(size.bytes()?.max(ALIGNMENT))
            .ok_or_else(|| GpuError::Unsupported("a result of more than 2^63 bytes".into()))?;
    }
    Ok((placed, end))
}

impl Store {
    /// Address of a part, when the result has it.
    pub(in crate::exec) fn address(&self, part: Part) -> Option<DevicePtr> {
        let borrowed = || self.borrowed.iter().find(|(p, _)| *p == part);
        self.find(part)
            // In range by construction.
            .map(|(buffer, placed)| DevicePtr(buffer.ptr().0 + placed.offset as u64))
            .or_else(|| borrowed().map(|(_, address)| *address))
    }

    /// A result some parts of which lie in a table.
    pub(in crate::exec) fn borrowing(parts: &[(Part, DevicePtr)]) -> Self {
        Self {
            blocks: vec![],
            borrowed: parts.to_vec(),
        }
    }

    fn find(&self, part: Part) -> Option<(&Arc<DeviceBuffer>, &Placed)> {
        self.blocks.iter().find_map(|block| {
            let placed = block.parts.iter().find(|p| p.size.part == part)?;
            Some((&block.buffer, placed))
        })
    }

    /// The buffer that holds a part, and the part's first byte in it.
    pub(in crate::exec) fn location(&self, part: Part) -> Option<(&Arc<DeviceBuffer>, usize)> {
        self.find(part)
            .map(|(buffer, placed)| (buffer, placed.offset))
    }

    /// Parts that lie in a buffer made elsewhere, from byte `start` of it on.
    pub(in crate::exec) fn within(
        buffer: &Arc<DeviceBuffer>,
        parts: &[PartSize],
        start: usize,
    ) -> Result<Self> {
        let (parts, end) = place(parts, start)?;
        if end > buffer.len() {
            return Err(GpuError::Internal("a result leaves its buffer".into()));
        }
        Ok(Self {
            blocks: vec![Block {
                buffer: Arc::clone(buffer),
                parts,
                temporary: false,
                shared: false,
            }],
            borrowed: vec![],
        })
    }

    /// Bytes that [`Store::within`] takes, counted from a multiple of 256.
    pub(in crate::exec) fn bytes_within(parts: &[PartSize]) -> Result<usize> {
        Ok(place(parts, 0)?.1)
    }

    /// Add blocks.
    pub(in crate::exec) fn extend(
        &mut self,
        blocks: &[BlockSizes],
        recycler: &mut Recycler,
        stream: &Stream,
        purpose: &str,
    ) -> Result<()> {
        self.extend_by(blocks, recycler, Recycler::allocate, stream, purpose)
    }

    /// Add blocks of rows that are written and read one after the other.
    pub(in crate::exec) fn extend_rows(
        &mut self,
        blocks: &[BlockSizes],
        recycler: &mut Recycler,
        stream: &Stream,
        purpose: &str,
    ) -> Result<()> {
        self.extend_by(blocks, recycler, Recycler::allocate_rows, stream, purpose)
    }

    fn extend_by(
        &mut self,
        blocks: &[BlockSizes],
        recycler: &mut Recycler,
        allocate: impl Fn(&mut Recycler, usize, &str) -> Result<DeviceBuffer>,
        stream: &Stream,
        purpose: &str,
    ) -> Result<()> {
        for sizes in blocks {
            let (parts, bytes) = place(&sizes.parts, 0)?;
            let buffer = allocate(recycler, bytes, purpose)?;
            if let Some(value) = sizes.fill {
                buffer.fill_range(stream, 0, bytes, value)?;
            }
            self.blocks.push(Block {
                buffer: Arc::new(buffer),
                parts,
                temporary: sizes.temporary,
                shared: false,
            });
        }
        Ok(())
    }

    /// Add a block of parts in device memory, as long as that has room.
    pub(in crate::exec) fn extend_on_device(
        &mut self,
        parts: Vec<PartSize>,
        recycler: &mut Recycler,
        purpose: &str,
    ) -> Result<()> {
        let (parts, bytes) = place(&parts, 0)?;
        self.blocks.push(Block {
            buffer: Arc::new(recycler.allocate(bytes, purpose)?),
            parts,
            temporary: false,
            shared: false,
        });
        Ok(())
    }

    /// Add a block of parts in the memory of another device, unless there is none with room; tells whether.
    pub(in crate::exec) fn extends_on_peer(
        &mut self,
        parts: &[PartSize],
        recycler: &mut Recycler,
        purpose: &str,
    ) -> Result<bool> {
        let (parts, bytes) = place(parts, 0)?;
        let buffer = recycler.on_peer(bytes, purpose)?;
        Ok(self.takes(buffer, parts))
    }

    /// Add a block of parts in host memory, unless that may not be or has no room; tells whether.
    pub(in crate::exec) fn extends_on_host(
        &mut self,
        parts: &[PartSize],
        recycler: &mut Recycler,
        purpose: &str,
    ) -> Result<bool> {
        let (parts, bytes) = place(parts, 0)?;
        let buffer = recycler.on_host(bytes, purpose)?;
        Ok(self.takes(buffer, parts))
    }

    /// A buffer with parts of the run's own, if there is one; tells whether.
    fn takes(&mut self, buffer: Option<DeviceBuffer>, parts: Vec<Placed>) -> bool {
        let block = buffer.map(|buffer| Block {
            buffer: Arc::new(buffer),
            parts,
            temporary: false,
            shared: false,
        });
        let taken = block.is_some();
        self.blocks.extend(block);
        taken
    }

    /// Copy the first `rows` rows of every part that `self` and `old` have in common.
    pub(in crate::exec) fn copy_rows(&self, old: &Store, rows: u64, stream: &Stream) -> Result<()> {
        self.copy_range(old, 0..rows, 0, |_| true, stream)
    }

    /// Copy these rows of `old` to row `at` and those behind it, in every part that both have and `wanted` names.
    pub(in crate::exec) fn copy_range(
        &self,
        old: &Store,
        from: Range<u64>,
        at: u64,
        wanted: impl Fn(Part) -> bool,
        stream: &Stream,
    ) -> Result<()> {
        for (to, end, source, begin, bytes) in self.common(old, from, at, wanted) {
            to.copy_from(stream, end, source, begin, bytes)?;
        }
        Ok(())
    }

    /// The same as runs of bytes that somebody else copies, while both stores live.
    pub(in crate::exec) fn runs(
        &self,
        old: &Store,
        from: Range<u64>,
        at: u64,
        wanted: impl Fn(Part) -> bool,
    ) -> Result<Vec<ByteRun>> {
        let runs = self.common(old, from, at, wanted);
        runs.map(|(to, end, source, begin, bytes)| {
            // The last bytes are there as well.
            source.ptr_at(begin + bytes)?;
            to.ptr_at(end + bytes)?;
            Ok(ByteRun {
                from: source.ptr_at(begin)?,
                to: to.ptr_at(end)?,
                bytes: bytes as u64,
            })
        })
        .collect()
    }

    /// By part that both have and `wanted` names: a buffer and where in it these rows of `old` go, the buffer that has them
    /// and where, and their bytes.
    fn common<'s>(
        &'s self,
        old: &'s Store,
        from: Range<u64>,
        at: u64,
        wanted: impl Fn(Part) -> bool + 's,
    ) -> impl Iterator<Item = (&'s DeviceBuffer, usize, &'s DeviceBuffer, usize, usize)> + 's {
        let parts = self
            .blocks
            .iter()
            .flat_map(|block| block.parts.iter().map(|to| (block.buffer.as_ref(), to)));
        parts
            .filter(move |(_, to)| wanted(to.size.part))
            .filter_map(move |(buffer, to)| {
                let (source, part) = old.find(to.size.part)?;
                let there = part.size.rows.min(from.end).saturating_sub(from.start);
                let rows = there.min(to.size.rows.saturating_sub(at)) as usize;
                let unit = to.size.unit;
                let begin = part.offset + from.start as usize * unit;
                let end = to.offset + at as usize * unit;
                Some((buffer, end, source.as_ref(), begin, rows * unit))
            })
    }

    /// Add the blocks of another store.
    pub(in crate::exec) fn join(&mut self, other: Store) {
        self.blocks.extend(other.blocks);
    }

    /// Put the blocks of another store in the place of those that hold any part of it.
    pub(in crate::exec) fn replace(&mut self, other: Store, recycler: &mut Recycler) {
        let replaced = |block: &Block| {
            let has = |part: Part| other.find(part).is_some();
            block.parts.iter().any(|placed| has(placed.size.part))
        };
        let (gone, kept): (Vec<_>, Vec<_>) = self.blocks.drain(..).partition(replaced);
        self.blocks = kept;
        recycler.take_back(gone);
        self.join(other);
    }

    /// Let the temporary blocks go.
    pub(in crate::exec) fn drop_temporary(&mut self, recycler: &mut Recycler) {
        let (gone, kept) = self.blocks.drain(..).partition(|b| b.temporary);
        self.blocks = kept;
        let gone: Vec<Block> = gone;
        recycler.take_back(gone);
    }

    /// Bytes of its blocks.
    pub(in crate::exec) fn bytes(&self) -> usize {
        self.blocks.iter().map(|b| b.buffer.len()).sum()
    }

    /// Does nobody else refer to its blocks?
    pub(in crate::exec) fn is_idle(&self) -> bool {
        self.blocks
            .iter()
            .all(|block| Arc::strong_count(&block.buffer) == 1)
    }

    /// Every part of its blocks.
    pub(in crate::exec) fn parts(&self) -> impl Iterator<Item = PartSize> + '_ {
        let parts = self.blocks.iter().flat_map(|block| &block.parts);
        parts.map(|placed| placed.size)
    }

    /// Does any of it lie in host memory?
    pub(in crate::exec) fn is_on_host(&self) -> bool {
        self.blocks.iter().any(|b| b.buffer.is_host())
    }

    /// Does any of it lie in `buffer`?
    pub(in crate::exec) fn lies_in(&self, buffer: &Arc<DeviceBuffer>) -> bool {
        self.blocks.iter().any(|b| Arc::ptr_eq(&b.buffer, buffer))
    }

    /// Other runs may use its blocks from now on, on streams of their own.
    pub(in crate::exec) fn share(&mut self) {
        for block in &mut self.blocks {
            block.shared = true;
        }
    }

    /// Let everything go.
    pub(in crate::exec) fn release(self, recycler: &mut Recycler) {
        recycler.take_back(self.blocks);
    }
}

/// A buffer of a pool, if there is one and it has room.
fn room_in(
    pool: Option<&Arc<MemoryPool>>,
    stream: &Stream,
    bytes: usize,
    purpose: &str,
) -> Result<Option<DeviceBuffer>> {
    let Some(pool) = pool else {
        return Ok(None);
    };
    match pool.allocate_for(stream, bytes, purpose) {
        Err(GpuError::OutOfDeviceMemory { .. }) => Ok(None),
        buffer => buffer.map(Some),
    }
}

/// Where the blocks of a run come from, and go when no later step reads them: what is queued next may have their memory at
/// once, as the run's one stream keeps the order, and other streams wait for it before they touch what they are given.
pub(in crate::exec) struct Recycler {
    pool: Arc<MemoryPool>,
    stream: Stream,
    /// Host memory, for what the pool has no room for; `None`: that is an error.
    host: Option<Arc<MemoryPool>>,
    /// Memory of other devices, for rows that go before any go to the host.
    peers: Option<Arc<MemoryPool>>,
    /// Bytes that were taken of the host's, …
    spilled: u64,
    /// … and of other devices'.
    on_peers: u64,
}

impl Recycler {
    /// For a run on `stream`.
    pub(in crate::exec) fn new(pool: &Arc<MemoryPool>, stream: &Stream) -> Self {
        Self {
            pool: Arc::clone(pool),
            stream: stream.clone(),
            host: None,
            peers: None,
            spilled: 0,
            on_peers: 0,
        }
    }

    /// The same with host memory for what the pool has no room for, and before it for rows that of other devices.
    pub(in crate::exec) fn spilling_to(
        self,
        host: Arc<MemoryPool>,
        peers: Option<Arc<MemoryPool>>,
    ) -> Self {
        Self {
            host: Some(host),
            peers,
            ..self
        }
    }

    /// May it take host memory?
    pub(in crate::exec) fn spills(&self) -> bool {
        self.host.is_some()
    }

    /// Bytes that were taken of host memory.
    pub(in crate::exec) fn spilled(&self) -> u64 {
        self.spilled
    }

    /// Bytes that were taken of other devices' memory.
    pub(in crate::exec) fn on_peers(&self) -> u64 {
        self.on_peers
    }

    /// Bytes of device memory that there is still room for.
    pub(in crate::exec) fn room(&self) -> u64 {
        self.pool.available() as u64
    }

    /// The pool.
    pub(in crate::exec) fn pool(&self) -> &Arc<MemoryPool> {
        &self.pool
    }

    /// A buffer of at least `bytes` bytes.
    pub(in crate::exec) fn allocate(
        &mut self,
        bytes: usize,
        purpose: &str,
    ) -> Result<DeviceBuffer> {
        match self.pool.allocate_for(&self.stream, bytes, purpose) {
            Err(full @ GpuError::OutOfDeviceMemory { .. }) => {
                self.on_host(bytes, purpose)?.ok_or(full)
            }
            other => other,
        }
    }

    /// Is more than half of device memory free?
    pub(in crate::exec) fn has_plenty(&self) -> bool {
        self.pool.free().is_plenty()
    }

    /// Are more than three quarters?
    pub(in crate::exec) fn is_nearly_free(&self) -> bool {
        self.pool.free().is_nearly_all()
    }

    /// A buffer for rows: in host memory, where that may be, when it would take much of device memory.
    pub(in crate::exec) fn allocate_rows(
        &mut self,
        bytes: usize,
        purpose: &str,
    ) -> Result<DeviceBuffer> {
        if bytes as u64 > self.pool.budget().rows_on_device()
            && let Some(buffer) = self.on_host(bytes, purpose)?
        {
            return Ok(buffer);
        }
        self.allocate(bytes, purpose)
    }

    /// A buffer in another device's memory, unless that may not be or has no room.
    fn on_peer(&mut self, bytes: usize, purpose: &str) -> Result<Option<DeviceBuffer>> {
        let buffer = room_in(self.peers.as_ref(), &self.stream, bytes, purpose)?;
        if buffer.is_some() {
            self.on_peers += bytes as u64;
        }
        Ok(buffer)
    }

    /// A buffer in host memory, likewise.
    fn on_host(&mut self, bytes: usize, purpose: &str) -> Result<Option<DeviceBuffer>> {
        let buffer = room_in(self.host.as_ref(), &self.stream, bytes, purpose)?;
        if buffer.is_some() {
            self.spilled += bytes as u64;
        }
        Ok(buffer)
    }

    /// Count bytes that went to a file.
    pub(in crate::exec) fn note_spilled(&mut self, bytes: u64) {
        self.spilled += bytes;
    }

    /// Bytes that were taken of host memory go back unused.
    pub(in crate::exec) fn forget_spilled(&mut self, bytes: u64) {
        self.spilled = self.spilled.saturating_sub(bytes);
    }

    /// A buffer that this run alone has used goes back.
    pub(in crate::exec) fn take_buffer(&mut self, buffer: Arc<DeviceBuffer>) {
        if let Some(buffer) = Arc::into_inner(buffer) {
            drop(buffer.ordered_by(&self.stream));
        }
    }

    fn take_back(&mut self, blocks: Vec<Block>) {
        // What other runs may use goes back as it is: this run's stream does not know of theirs.
        let own = blocks.into_iter().filter(|block| !block.shared);
        for block in own {
            self.take_buffer(block.buffer);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::device::Device;
    use crate::device::emulated::EmulatedDevice;
    use crate::exec::prepare::part_sizes::ColumnShape;
    use crate::exec::prepare::shapes::{Shape, Sizes};

    #[test]
    fn dead_blocks_are_used_again_and_rows_move() {
        let device: Arc<dyn Device> = Arc::new(EmulatedDevice::open().unwrap());
        let stream = device.create_stream().unwrap();
        let pool = MemoryPool::new(device, 64 << 20);
        let mut recycler = Recycler::new(&pool, &stream);
        let shape = Shape::Rows(vec![ColumnShape {
            width: 4,
            nullable: true,
            key_alias: false,
        }]);
        let sizes = |capacity| Sizes {
            capacity,
            ..Default::default()
        };
        let make = |rows, recycler: &mut Recycler| {
            let mut store = Store::default();
            store
                .extend(&shape.filling(&sizes(rows)), recycler, &stream, "rows")
                .unwrap();
            store
        };
        let old = make(100, &mut recycler);
        let (buffer, offset) = old.location(Part::Column(0)).unwrap();
        let values: Vec<u32> = (0..100).collect();
        buffer.upload_values(&stream, offset, &values).unwrap();
        let (buffer, offset) = old.location(Part::Valid(0)).unwrap();
        buffer.upload(&stream, offset, &[7; 100]).unwrap();

        let new = make(1000, &mut recycler);
        new.copy_rows(&old, 60, &stream).unwrap();
        let (buffer, offset) = new.location(Part::Column(0)).unwrap();
        let moved: Vec<u32> = buffer.download_values(&stream, offset, 60).unwrap();
        assert_eq!(moved, values[..60]);
        let (buffer, offset) = new.location(Part::Valid(0)).unwrap();
        assert_eq!(
            buffer.download_values::<u8>(&stream, offset, 60).unwrap(),
            [7; 60]
        );
        assert_eq!(
            new.address(Part::Valid(0)).unwrap().0 - new.address(Part::Column(0)).unwrap().0,
            4096
        );
        assert!(new.address(Part::State).is_none());

        let address = old.address(Part::Column(0));
        old.release(&mut recycler);
        let again = make(100, &mut recycler);
        assert_eq!(again.address(Part::Column(0)), address);
        assert_eq!(pool.statistics().device_allocations, 2);
    }

    #[test]
    fn a_tight_budget_takes_dead_blocks_back() {
        let device: Arc<dyn Device> = Arc::new(EmulatedDevice::open().unwrap());
        let stream = device.create_stream().unwrap();
        let pool = MemoryPool::new(device, 1 << 20);
        let mut recycler = Recycler::new(&pool, &stream);
        let mut first = Store::default();
        let rows = vec![PartSize::new(Part::Numbers, 4, 150 << 10)];
        first
            .extend_on_device(rows, &mut recycler, "first")
            .unwrap();
        first.release(&mut recycler);
        assert_eq!(pool.statistics().in_use, 0);
        let second = recycler.allocate(900 << 10, "second").unwrap();
        assert!(second.len() >= 900 << 10);
        assert!(recycler.allocate(600 << 10, "third").is_err());
    }
}
