//! The pool: who gets a block within the budget, and relief under pressure.

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::blocks::{MemoryStatistics, Returned, State, size_class};
use super::turns::{Parked, Turn, Turns};
use crate::device::{Device, DevicePtr, Stream};
use crate::error::{GpuError, Result};
use crate::memory::{Budget, DeviceBuffer, Free};
use crate::query::Query;

/// Something that holds device memory it can do without, e.g. the cache of resident tables.
pub trait PressureHandler: Send + Sync {
    /// Let go of about `bytes` bytes; returns the bytes let go of, 0 when there is nothing left to give.
    ///
    /// Called without the pool's lock, from the thread that allocates: a handler must not wait for
    /// a lock that is held while allocating.
    fn release(&self, bytes: usize) -> usize;
}

/// The one source of device memory of a device.
pub struct MemoryPool {
    device: Arc<dyn Device>,
    state: Mutex<State>,
    turns: Arc<Turns>,
    pressure: Mutex<Option<Weak<dyn PressureHandler>>>,
}

impl MemoryPool {
    /// A pool over `device` with a budget in bytes.
    pub fn new(device: Arc<dyn Device>, budget: usize) -> Arc<Self> {
        let state = State {
            statistics: MemoryStatistics {
                budget,
                ..Default::default()
            },
            ..Default::default()
        };
        Arc::new(Self {
            device,
            state: Mutex::new(state),
            turns: Turns::new(),
            pressure: Mutex::new(None),
        })
    }

    /// The device the memory is on.
    pub fn device(&self) -> &Arc<dyn Device> {
        &self.device
    }

    /// The budget.
    pub fn budget(&self) -> Budget {
        Budget::of(self.state.lock().statistics.budget as u64)
    }

    /// What of the budget a reservation could get without pressure.
    pub(crate) fn free(&self) -> Free {
        let statistics = self.statistics();
        Free {
            bytes: statistics.budget.saturating_sub(statistics.in_use) as u64,
            budget: Budget::of(statistics.budget as u64),
        }
    }

    /// Change the budget. What is over a smaller one and can be spared goes at once, as under pressure; what running
    /// queries hold beyond it stays until they end, and nothing is handed out before.
    ///
    /// # Errors
    /// [`GpuError::Device`] when earlier work on the device failed; the budget is changed all the same.
    pub fn set_budget(&self, budget: usize) -> Result<()> {
        self.state.lock().statistics.budget = budget;
        loop {
            let over = {
                let state = self.state.lock();
                state.statistics.in_use.saturating_sub(budget)
            };
            if over == 0 || !self.ask_for_relief(over) {
                break;
            }
        }
        let mut state = self.state.lock();
        let room = budget.saturating_sub(state.statistics.in_use);
        self.release_free_blocks(&mut state, room)?;
        drop(state);
        self.turns.returned();
        Ok(())
    }

    /// Bytes a reservation could get without pressure.
    pub fn available(&self) -> usize {
        let statistics = self.statistics();
        statistics.budget.saturating_sub(statistics.in_use)
    }

    /// A query begins to use the pool, until the turn is dropped; `None` while another one runs alone.
    pub fn try_begin(&self, query: &Query) -> Option<Turn> {
        self.turns.try_begin(query)
    }

    /// A query begins to use the pool. Blocks while another one runs alone, for a bounded time.
    ///
    /// # Errors
    /// [`GpuError::Stopped`] when the query is stopped meanwhile.
    pub fn begin(&self, query: &Query) -> Result<Turn> {
        self.turns.begin(query)
    }

    /// A query begins to use the pool while no other does. Blocks until those that run have ended, for a bounded time: `None`
    /// when they have not.
    ///
    /// # Errors
    /// [`GpuError::Stopped`] when the query is stopped meanwhile.
    pub fn begin_alone(&self, query: &Query) -> Result<Option<Turn>> {
        self.turns.begin_alone(query)
    }

    /// The query waits for something else than memory, and returns none, until the value is dropped.
    pub(crate) fn park(&self, query: &Query) -> Parked {
        self.turns.park(query)
    }

    /// Queries that use the pool now.
    pub fn queries(&self) -> usize {
        self.turns.running()
    }

    /// How long a query waits for memory, or for others to end, at most.
    pub fn set_patience(&self, patience: Duration) {
        self.turns.set_patience(patience);
    }

    /// The counters now.
    pub fn statistics(&self) -> MemoryStatistics {
        self.state.lock().statistics
    }

    /// Who is asked to let go of memory before a reservation is refused.
    pub fn set_pressure_handler(&self, handler: Weak<dyn PressureHandler>) {
        *self.pressure.lock() = Some(handler);
    }

    /// For tests of failure paths: the `nth` allocation from now (1 = the next) fails once with
    /// [`GpuError::OutOfDeviceMemory`].
    pub fn fail_allocation(&self, nth: u64) {
        let mut state = self.state.lock();
        state.fail_at = Some(state.statistics.allocations + nth);
    }

    /// Set budget aside for buffers to come.
    ///
    /// `purpose` names the user in the error, e.g. `column l_quantity`.
    ///
    /// # Errors
    /// [`GpuError::OutOfDeviceMemory`] when the budget does not hold it, also after eviction.
    pub fn reserve(self: &Arc<Self>, bytes: usize, purpose: &str) -> Result<Reservation> {
        let bytes = size_class(bytes);
        self.reserve_class(bytes, purpose)?;
        Ok(Reservation {
            pool: Arc::clone(self),
            bytes,
            purpose: purpose.into(),
        })
    }

    /// A buffer of `bytes` bytes, not initialised. Zero bytes are allowed and take no memory.
    ///
    /// `purpose` names the user in the error, e.g. `column l_quantity`.
    ///
    /// # Errors
    /// [`GpuError::OutOfDeviceMemory`] when budget or device do not hold it, also after eviction.
    pub fn allocate(self: &Arc<Self>, bytes: usize, purpose: &str) -> Result<DeviceBuffer> {
        self.allocate_on(None, bytes, purpose)
    }

    /// A buffer of `bytes` bytes for work on `stream`, which other streams touch only once they wait for what is on
    /// `stream` by then. So it may get memory that earlier work of `stream` still uses: what follows comes behind that, and
    /// nobody has to look whether other streams have ended ([`DeviceBuffer::ordered_by`]).
    ///
    /// # Errors
    /// As [`MemoryPool::allocate`].
    pub(crate) fn allocate_for(
        self: &Arc<Self>,
        stream: &Stream,
        bytes: usize,
        purpose: &str,
    ) -> Result<DeviceBuffer> {
        self.allocate_on(Some(stream), bytes, purpose)
    }

    /// A buffer out of the free blocks, which takes the lock once and asks nobody; else by way of a reservation.
    fn allocate_on(
        self: &Arc<Self>,
        stream: Option<&Stream>,
        bytes: usize,
        purpose: &str,
    ) -> Result<DeviceBuffer> {
        let class = size_class(bytes);
        let purpose: Arc<str> = purpose.into();
        let admission = self.device.admit(class);
        if admission.is_ok()
            && let Some((ptr, capacity)) = self.take_at_once(class, stream, &purpose)
        {
            return Ok(DeviceBuffer::new(Arc::clone(self), ptr, bytes, capacity));
        }
        self.reserve_admitted(class, &purpose, admission)?;
        let mut reservation = Reservation {
            pool: Arc::clone(self),
            bytes: class,
            purpose,
        };
        reservation.allocate_for(stream, bytes)
    }

    /// A block that is free, within the budget; `None` where anything else is to be done for it.
    fn take_at_once(
        &self,
        class: usize,
        stream: Option<&Stream>,
        purpose: &Arc<str>,
    ) -> Option<(DevicePtr, usize)> {
        let mut state = self.state.lock();
        let wanted = state.statistics.in_use.checked_add(class)?;
        if wanted > state.statistics.budget
            || state.fail_at == Some(state.statistics.allocations + 1)
        {
            return None;
        }
        state.statistics.in_use = wanted;
        let block = match class {
            0 => Some((DevicePtr(0), 0)),
            _ => state.take(class, stream, self.device.as_ref()),
        };
        let Some((ptr, size)) = block else {
            state.statistics.in_use -= class;
            return None;
        };
        state.statistics.allocations += 1;
        if size > 0 {
            state.ledger.enter(ptr, purpose, size);
        }
        Some((ptr, size))
    }

    /// Give every free block back to the device; waits for queued work that may still use one.
    ///
    /// # Errors
    /// [`GpuError::Device`] when earlier work on the device failed.
    pub fn trim(&self) -> Result<()> {
        self.release_free_blocks(&mut self.state.lock(), 0)
    }

    /// Take `bytes` of the budget, evicting and waiting for others when it must.
    fn reserve_class(&self, bytes: usize, purpose: &str) -> Result<()> {
        self.reserve_admitted(bytes, purpose, self.device.admit(bytes))
    }

    /// The same when the device was asked already, and answered this.
    fn reserve_admitted(&self, bytes: usize, purpose: &str, first: Result<()>) -> Result<()> {
        let mut first = Some(first);
        let mut patience = None;
        loop {
            let admission = first.take().unwrap_or_else(|| self.device.admit(bytes));
            let short = match admission {
                Err(GpuError::OutOfDeviceMemory { .. }) => bytes,
                Err(other) => return Err(other),
                Ok(()) => {
                    let mut state = self.state.lock();
                    let budget = state.statistics.budget;
                    let wanted = state.statistics.in_use.saturating_add(bytes);
                    if wanted <= budget {
                        state.statistics.in_use = wanted;
                        state.statistics.peak = state.statistics.peak.max(wanted);
                        return Ok(());
                    }
                    // A request over the whole budget would evict everything in vain.
                    if bytes > budget {
                        drop(state);
                        return Err(self.refuse(bytes, purpose));
                    }
                    wanted - budget
                }
            };
            if !self.ask_for_relief(short) && !self.wait(&mut patience)? {
                return Err(self.refuse(bytes, purpose));
            }
        }
    }

    /// Wait for other queries to return memory; false when that is over or vain.
    fn wait(&self, patience: &mut Option<Instant>) -> Result<bool> {
        match Query::current() {
            Some(query) => self.turns.wait(&query, patience),
            None => Ok(false),
        }
    }

    /// Ask the pressure handler for `bytes`; true when it let go of anything.
    fn ask_for_relief(&self, bytes: usize) -> bool {
        let handler = self.pressure.lock().as_ref().and_then(Weak::upgrade);
        let Some(handler) = handler else {
            return false;
        };
        let released = handler.release(bytes);
        let mut state = self.state.lock();
        state.statistics.pressure_calls += 1;
        state.statistics.released_under_pressure += released as u64;
        drop(state);
        if released > 0
            && let Some(query) = Query::current()
        {
            query.count_eviction();
        }
        released > 0
    }

    fn refuse(&self, requested: usize, purpose: &str) -> GpuError {
        let mut state = self.state.lock();
        state.statistics.refusals += 1;
        log::debug!(
            "{requested} bytes are refused for {purpose} beside {}",
            state.ledger
        );
        GpuError::OutOfDeviceMemory {
            requested,
            purpose: purpose.into(),
            in_use: state.statistics.in_use,
            budget: state.statistics.budget,
        }
    }

    /// A block for `class` bytes of budget that are already reserved; returns its real size, for
    /// which the budget is adjusted.
    fn take_block(
        &self,
        class: usize,
        stream: Option<&Stream>,
        purpose: &str,
    ) -> Result<(DevicePtr, usize)> {
        {
            let mut state = self.state.lock();
            state.statistics.allocations += 1;
            if state.fail_at == Some(state.statistics.allocations) {
                state.fail_at = None;
                drop(state);
                return Err(self.refuse(class, purpose));
            }
            if class == 0 {
                return Ok((DevicePtr(0), 0));
            }
            if let Some(block) = state.take(class, stream, self.device.as_ref()) {
                return Ok(block);
            }
            state.blocks.collect(self.device.as_ref(), false)?;
            if let Some((ptr, size)) = state.take_ready(class) {
                return Ok((ptr, size));
            }
        }
        loop {
            {
                let mut state = self.state.lock();
                let statistics = &state.statistics;
                let room = statistics.budget.saturating_sub(statistics.in_use);
                if state.statistics.cached > room {
                    if let Some(block) = state.take_wide(class) {
                        return Ok(block);
                    }
                    self.release_free_blocks(&mut state, room)?;
                }
                let mut allocated = self.device.allocate(class);
                if matches!(allocated, Err(GpuError::OutOfDeviceMemory { .. }))
                    && state.statistics.cached > 0
                {
                    // The device holds less than the budget promised: other programs use it too.
                    self.release_free_blocks(&mut state, 0)?;
                    allocated = self.device.allocate(class);
                }
                match allocated {
                    Ok(ptr) => {
                        state.statistics.device_allocations += 1;
                        return Ok((ptr, class));
                    }
                    Err(GpuError::OutOfDeviceMemory { .. }) => {}
                    Err(other) => return Err(other),
                }
            }
            if !self.ask_for_relief(class) {
                return Err(self.refuse(class, purpose));
            }
            // What was let go of lies in the free lists; the next turn hands it to the device.
            self.trim()?;
        }
    }

    /// Give free blocks back to the device, those first that were not used for longest, until at most `keep` bytes are cached.
    fn release_free_blocks(&self, state: &mut State, keep: usize) -> Result<()> {
        state.blocks.collect(self.device.as_ref(), true)?;
        while state.statistics.cached > keep {
            let Some((ptr, size)) = state.blocks.take_oldest() else {
                break;
            };
            state.statistics.cached -= size;
            // SAFETY: the block came from `allocate`, its fence has passed and no buffer owns it.
            unsafe { self.device.free(ptr, size) };
        }
        Ok(())
    }

    /// A dropped buffer's block comes back; `stream`, if any, orders the work with it.
    pub(super) fn give_back(&self, ptr: DevicePtr, capacity: usize, stream: Option<Stream>) {
        if capacity == 0 {
            return;
        }
        let block = Returned::new(ptr, capacity, stream, self.device.as_ref());
        let free = block.is_free(self.device.as_ref());
        let mut state = self.state.lock();
        state.statistics.in_use -= capacity;
        state.statistics.cached += capacity;
        state.ledger.strike(ptr);
        match free {
            true => state.blocks.add_ready(ptr, capacity),
            false => state.blocks.returned.push(block),
        }
        drop(state);
        self.turns.returned();
    }

    /// A reservation's budget comes back.
    fn release_reservation(&self, bytes: usize) {
        self.state.lock().statistics.in_use -= bytes;
        self.turns.returned();
    }
}

impl Drop for MemoryPool {
    fn drop(&mut self) {
        let mut state = std::mem::take(self.state.get_mut());
        if let Err(error) = self.release_free_blocks(&mut state, 0) {
            // A lost context owns nothing any more; the driver frees its memory with it.
            log::warn!("device memory was not returned block by block: {error}");
        }
    }
}

impl fmt::Debug for MemoryPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryPool")
            .field("device", &self.device.info().id)
            .field("statistics", &self.statistics())
            .finish()
    }
}

/// Budget set aside, not yet memory; dropping it returns what is left.
#[derive(Debug)]
pub struct Reservation {
    pool: Arc<MemoryPool>,
    bytes: usize,
    purpose: Arc<str>,
}

impl Reservation {
    /// Bytes still set aside.
    pub fn remaining(&self) -> usize {
        self.bytes
    }

    /// A buffer of `bytes` bytes out of this reservation. Sizes are rounded up to size classes, by
    /// at most an eighth or to whole 2 MiB pages; what the reservation lacks for that is taken
    /// from the budget.
    ///
    /// # Errors
    /// [`GpuError::OutOfDeviceMemory`] when the rest of the budget or the device do not hold it.
    pub fn allocate(&mut self, bytes: usize) -> Result<DeviceBuffer> {
        self.allocate_for(None, bytes)
    }

    /// The same for work on a stream.
    fn allocate_for(&mut self, stream: Option<&Stream>, bytes: usize) -> Result<DeviceBuffer> {
        let class = size_class(bytes);
        if class > self.bytes {
            self.pool.reserve_class(class - self.bytes, &self.purpose)?;
            self.bytes = class;
        }
        let (ptr, capacity) = self.pool.take_block(class, stream, &self.purpose)?;
        self.bytes -= class;
        if capacity > 0 {
            let mut state = self.pool.state.lock();
            state.ledger.enter(ptr, &self.purpose, capacity);
        }
        Ok(DeviceBuffer::new(
            Arc::clone(&self.pool),
            ptr,
            bytes,
            capacity,
        ))
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.pool.release_reservation(self.bytes);
        }
    }
}
