//! Blocks of the pool: their size classes, free lists, and those that queued work may still use.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use super::ledger::Ledger;
use crate::device::{Device, DevicePtr, Fence, Stream};
use crate::error::Result;

/// Smallest block and alignment of every block, in bytes.
const ALIGNMENT: usize = 256;
/// From this size on blocks are multiples of it: the granularity of device pages.
const PAGE: usize = 2 << 20;
/// Classes per power of two below a page, and the share of a large block that reuse may waste.
const STEPS: usize = 8;
/// A block serves a request of this fraction of it where others would have to go back to the driver.
const WIDEST: usize = 4;
/// And the share of the free budget that such a block may waste.
const SPARED: usize = 4;

/// Counters of a pool at one moment. Sizes are in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MemoryStatistics {
    /// The most that buffers, reservations and free blocks may hold together.
    pub budget: usize,
    /// Held by buffers and reservations.
    pub in_use: usize,
    /// Free blocks kept for the next allocation.
    pub cached: usize,
    /// Largest `in_use` so far.
    pub peak: usize,
    /// Buffers handed out.
    pub allocations: u64,
    /// Allocations that had to ask the device.
    pub device_allocations: u64,
    /// Times the pressure handler was asked.
    pub pressure_calls: u64,
    /// What pressure handlers said they let go of.
    pub released_under_pressure: u64,
    /// Reservations refused with [`crate::GpuError::OutOfDeviceMemory`].
    pub refusals: u64,
}

/// Free blocks, and blocks that queued work may still use.
#[derive(Default)]
pub(super) struct Blocks {
    ready: FreeBlocks,
    /// Returned since the last fence was taken.
    pub(super) returned: Vec<Returned>,
    /// Returned before `fence` was taken.
    fenced: Vec<Returned>,
    fence: Option<Fence>,
}

/// Blocks that nobody uses.
#[derive(Default)]
struct FreeBlocks {
    /// By size, those of one size in the order in which they came.
    by_size: BTreeMap<usize, Vec<FreeBlock>>,
    /// How many have come so far.
    came: u64,
}

/// A free block.
struct FreeBlock {
    ptr: DevicePtr,
    /// Of two, the one with the larger number was used later.
    came: u64,
}

impl FreeBlocks {
    fn add(&mut self, ptr: DevicePtr, size: usize) {
        self.came += 1;
        let came = self.came;
        let list = self.by_size.entry(size).or_default();
        list.push(FreeBlock { ptr, came });
    }

    /// The size of the smallest one of these sizes.
    fn smallest(&self, sizes: RangeInclusive<usize>) -> Option<usize> {
        self.by_size.range(sizes).next().map(|(size, _)| *size)
    }

    /// The size of the one that was used least recently.
    fn oldest(&self) -> Option<usize> {
        let oldest = |list: &[FreeBlock]| list.first().map(|block| block.came);
        let size = self.by_size.iter().min_by_key(|(_, list)| oldest(list));
        size.map(|(size, _)| *size)
    }

    /// Take the block of a size that `which` takes from its list.
    fn take(
        &mut self,
        size: usize,
        which: impl Fn(&mut Vec<FreeBlock>) -> Option<FreeBlock>,
    ) -> Option<DevicePtr> {
        let list = self.by_size.get_mut(&size)?;
        let block = which(list)?;
        if list.is_empty() {
            self.by_size.remove(&size);
        }
        Some(block.ptr)
    }
}

/// A block that queued work may still use.
pub(super) struct Returned {
    ptr: DevicePtr,
    size: usize,
    /// The stream that orders that work, when one does.
    after: Option<After>,
}

/// A point in a stream.
struct After {
    stream: Stream,
    /// The number of its newest work then.
    work: u64,
}

impl Returned {
    /// `stream`, if any, orders the work that uses the block.
    pub(super) fn new(
        ptr: DevicePtr,
        size: usize,
        stream: Option<Stream>,
        device: &dyn Device,
    ) -> Self {
        let after = stream.map(|stream| After {
            work: device.newest(&stream),
            stream,
        });
        Self { ptr, size, after }
    }

    /// Is the work that used it known to have ended?
    pub(super) fn is_free(&self, device: &dyn Device) -> bool {
        let after = self.after.as_ref();
        after.is_some_and(|after| device.has_ended(&after.stream, after.work))
    }

    /// Does this stream order the work that used it?
    fn is_ordered_by(&self, stream: &Stream) -> bool {
        self.after
            .as_ref()
            .is_some_and(|after| after.stream.is(stream))
    }
}

/// What the pool's lock guards.
#[derive(Default)]
pub(super) struct State {
    pub(super) statistics: MemoryStatistics,
    pub(super) blocks: Blocks,
    pub(super) ledger: Ledger,
    /// Failure injection: the allocation with this number (from 1) fails.
    pub(super) fail_at: Option<u64>,
}

/// Bytes of the block that serves a request: at most one eighth more below a page, then whole pages.
pub(crate) fn size_class(bytes: usize) -> usize {
    if bytes == 0 {
        return 0;
    }
    if bytes >= PAGE {
        return bytes.checked_next_multiple_of(PAGE).unwrap_or(usize::MAX);
    }
    if bytes <= ALIGNMENT {
        return ALIGNMENT;
    }
    let step = (bytes.next_power_of_two() / 2 / STEPS).max(ALIGNMENT);
    bytes.next_multiple_of(step)
}

/// Sizes of blocks that may serve a request of a class.
fn fitting(class: usize) -> RangeInclusive<usize> {
    let slack = if class >= PAGE { class / STEPS } else { 0 };
    class..=class.saturating_add(slack)
}

impl Blocks {
    pub(super) fn add_ready(&mut self, ptr: DevicePtr, size: usize) {
        self.ready.add(ptr, size);
    }

    /// Take the free block that was used least recently; its size comes with it.
    pub(super) fn take_oldest(&mut self) -> Option<(DevicePtr, usize)> {
        let size = self.ready.oldest()?;
        let first = |list: &mut Vec<FreeBlock>| Some(list.remove(0));
        Some((self.ready.take(size, first)?, size))
    }

    /// Move the blocks whose streams are known to have ended their work to the free lists.
    fn sweep(&mut self, device: &dyn Device) {
        for list in [&mut self.returned, &mut self.fenced] {
            for block in list.extract_if(.., |block| block.is_free(device)) {
                self.ready.add(block.ptr, block.size);
            }
        }
    }

    /// Move returned blocks whose fence has passed to the free lists. A fence is an event in every stream that works: it is for
    /// blocks of which no stream tells that they are free.
    pub(super) fn collect(&mut self, device: &dyn Device, wait: bool) -> Result<()> {
        self.sweep(device);
        // Twice: blocks returned after the outstanding fence need one of their own.
        for _ in 0..2 {
            if self.fence.is_none() && !self.returned.is_empty() {
                self.fence = Some(device.fence()?);
                self.fenced = std::mem::take(&mut self.returned);
            }
            let Some(fence) = &self.fence else {
                return Ok(());
            };
            if !device.fence_passed(fence, wait)? {
                return Ok(());
            }
            self.fence = None;
            for block in std::mem::take(&mut self.fenced) {
                self.add_ready(block.ptr, block.size);
            }
        }
        Ok(())
    }
}

impl State {
    /// A block that is there, without asking the driver: one that `stream` orders, a free one, or one whose stream was waited for.
    pub(super) fn take(
        &mut self,
        class: usize,
        stream: Option<&Stream>,
        device: &dyn Device,
    ) -> Option<(DevicePtr, usize)> {
        if let Some(block) = stream.and_then(|stream| self.take_ordered(class, stream)) {
            return Some(block);
        }
        if let Some(block) = self.take_ready(class) {
            return Some(block);
        }
        self.blocks.sweep(device);
        self.take_ready(class)
    }

    /// A free block of `class` bytes or a little more; its reserved bytes become its real size.
    pub(super) fn take_ready(&mut self, class: usize) -> Option<(DevicePtr, usize)> {
        self.take_within(class, fitting(class))
    }

    /// A free block of up to four times as much, for when the driver would have to take blocks back to give another: that takes milliseconds,
    /// in every run of a query where columns fill the memory. What is lent beyond the request is a quarter of what the budget has left at
    /// most: later requests are not to be refused for it.
    pub(super) fn take_wide(&mut self, class: usize) -> Option<(DevicePtr, usize)> {
        let room = self
            .statistics
            .budget
            .saturating_sub(self.statistics.in_use);
        let most = class.saturating_add(room / SPARED);
        self.take_within(class, class..=most.min(class.saturating_mul(WIDEST)))
    }

    /// The smallest free block of these sizes.
    fn take_within(
        &mut self,
        class: usize,
        sizes: RangeInclusive<usize>,
    ) -> Option<(DevicePtr, usize)> {
        let size = self.blocks.ready.smallest(sizes)?;
        self.use_again(class, size)?;
        Some((self.blocks.ready.take(size, Vec::pop)?, size))
    }

    /// The same of the blocks that queued work may still use, when a stream orders all of it.
    fn take_ordered(&mut self, class: usize, stream: &Stream) -> Option<(DevicePtr, usize)> {
        let Blocks {
            returned, fenced, ..
        } = &self.blocks;
        let sizes = fitting(class);
        let fits = |block: &&Returned| sizes.contains(&block.size) && block.is_ordered_by(stream);
        let candidates = returned.iter().chain(fenced).filter(fits);
        let block = candidates.min_by_key(|block| block.size)?;
        let (ptr, size) = (block.ptr, block.size);
        self.use_again(class, size)?;
        for list in [&mut self.blocks.returned, &mut self.blocks.fenced] {
            list.retain(|other| other.ptr != ptr);
        }
        Some((ptr, size))
    }

    /// Count a cached block of `size` bytes as used for `class` bytes that are reserved, if the budget allows.
    fn use_again(&mut self, class: usize, size: usize) -> Option<()> {
        let in_use = self.statistics.in_use - class + size;
        if in_use > self.statistics.budget {
            return None;
        }
        self.statistics.cached -= size;
        self.statistics.in_use = in_use;
        self.statistics.peak = self.statistics.peak.max(in_use);
        Some(())
    }
}
