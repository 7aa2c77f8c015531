//! Launches: runs the lanes of a grid in the order of a schedule until all have ended.

use std::ffi::c_void;
use std::time::Instant;

use super::abi::LaneHeader;
use super::config::{LaunchConfig, LaunchReport, MAX_SHARED_BYTES, Resident, Schedule};
use super::error::{EmulatorError, Result};
use super::lane::{self, Block, Lane, Random, State};
use super::module::Kernel;
use super::{Sanitizer, stack};

/// What fresh shared memory holds: a value that shows when it is used.
const POISON: u8 = 0xa5;
/// Bytes behind shared memory that must still be poison when the block ends.
const GUARD_BYTES: usize = 64;

/// Blocks in the order in which they start.
enum BlockOrder {
    Ascending(std::ops::Range<u32>),
    Descending(std::iter::Rev<std::ops::Range<u32>>),
    Listed(std::vec::IntoIter<u32>),
}

impl BlockOrder {
    fn new(schedule: Schedule, grid: u32, random: &mut Random) -> Self {
        match schedule {
            Schedule::Ascending => Self::Ascending(0..grid),
            Schedule::Descending => Self::Descending((0..grid).rev()),
            Schedule::Random(_) | Schedule::RandomYields(_) => {
                let mut ids: Vec<u32> = (0..grid).collect();
                for i in (1..ids.len()).rev() {
                    ids.swap(i, random.below(i as u32 + 1) as usize);
                }
                Self::Listed(ids.into_iter())
            }
        }
    }

    fn next(&mut self) -> Option<u32> {
        match self {
            Self::Ascending(ids) => ids.next(),
            Self::Descending(ids) => ids.next(),
            Self::Listed(ids) => ids.next(),
        }
    }
}

/// A place for a block: its lanes and its shared memory, with a guard behind unless AddressSanitizer watches.
pub(super) struct Slot {
    pub(super) block: *mut Block,
    shared: Box<[u128]>,
    pub(super) running: bool,
}

/// A running launch. Lives on the thread that launched.
pub(super) struct Launch<'a> {
    pub(super) kernel: &'a Kernel,
    pub(super) config: LaunchConfig,
    state: *mut State,
    pub(super) slots: Vec<Slot>,
    order: BlockOrder,
    random: Random,
    current: *mut *mut LaneHeader,
    guard: usize,
    stack_bytes: usize,
    pub(super) finished: u32,
    deadline: Option<Instant>,
    next_look: u64,
}

/// Run `kernel` to its end on this thread.
///
/// # Safety
/// As for [`Kernel::launch`].
pub(super) unsafe fn launch(
    kernel: &Kernel,
    config: LaunchConfig,
    arguments: &[u8],
    schedule: Schedule,
) -> Result<LaunchReport> {
    check(kernel, config, arguments)?;
    let started = Instant::now();
    let (seed, yields) = match schedule {
        Schedule::Ascending | Schedule::Descending => (0, false),
        Schedule::Random(seed) => (seed, false),
        Schedule::RandomYields(seed) => (seed, true),
    };
    let mut random = Random::new(seed);

    // Arguments are read in place by every lane; u128 aligns them as strictly as any struct needs.
    let mut storage = vec![0u128; arguments.len().div_ceil(16)];
    // SAFETY: the vector has at least as many bytes as the arguments, and they do not overlap.
    unsafe {
        std::ptr::copy_nonoverlapping(
            arguments.as_ptr(),
            storage.as_mut_ptr().cast::<u8>(),
            arguments.len(),
        )
    };
    let mut params = [storage.as_mut_ptr().cast::<c_void>()];
    let random_yields = yields.then(|| Random::new(!seed));
    let state = Box::into_raw(Box::new(State::new(
        kernel.entry(),
        params.as_mut_ptr(),
        config.idle_pauses,
        random_yields,
    )));

    let order = BlockOrder::new(schedule, config.grid, &mut random);
    let mut run = Launch {
        kernel,
        config,
        state,
        slots: Vec::new(),
        order,
        random,
        current: kernel.current_slot(),
        guard: if kernel.sanitizer() == Sanitizer::Address {
            0
        } else {
            GUARD_BYTES
        },
        stack_bytes: if kernel.sanitizer() == Sanitizer::None {
            stack::STACK_BYTES
        } else {
            stack::SANITIZER_STACK_BYTES
        },
        finished: 0,
        deadline: config.time_limit.map(|limit| started + limit),
        next_look: 0,
    };
    // SAFETY: the launch was just put together from live parts, and the caller vouches for the arguments.
    let result = unsafe { run.open_slots().and_then(|()| run.drive(schedule)) };
    // SAFETY: the slots are this launch's own and no lane runs any more.
    unsafe { run.close_slots(result.is_ok()) };
    // SAFETY: made by Box::into_raw above; the slots that pointed to it are gone.
    let state = unsafe { Box::from_raw(state) };
    result.map(|()| LaunchReport {
        lanes: u64::from(config.grid) * u64::from(config.block),
        switches: state.switches,
        pauses: state.pauses,
        meetings: state.meetings,
        elapsed: started.elapsed(),
    })
}

fn check(kernel: &Kernel, config: LaunchConfig, arguments: &[u8]) -> Result<()> {
    let bound = kernel.block_threads();
    let cause = if config.grid == 0 {
        "the grid has no blocks; launch at least one".to_owned()
    } else if config.block == 0 || config.block > 1024 {
        format!("a block has 1 to 1024 threads, not {}", config.block)
    } else if config.block > bound {
        format!(
            "a block of {} threads is more than its WL_BLOCK_THREADS, {bound}",
            config.block
        )
    } else if config.shared_bytes > MAX_SHARED_BYTES {
        format!(
            "{} bytes of shared memory are more than the {MAX_SHARED_BYTES} a block can have",
            config.shared_bytes
        )
    } else if arguments.len() != kernel.arguments_bytes() {
        format!(
            "{} bytes of arguments were given and its argument struct has {}; pass KernelArgs::as_bytes of that struct",
            arguments.len(),
            kernel.arguments_bytes()
        )
    } else {
        return Ok(());
    };
    Err(EmulatorError::InvalidLaunch {
        kernel: kernel.name().to_owned(),
        cause,
    })
}

impl Launch<'_> {
    /// Make room for the resident blocks and start the first ones.
    ///
    /// # Safety
    /// As for [`launch`].
    unsafe fn open_slots(&mut self) -> Result<()> {
        let count = match self.config.resident {
            Resident::All => self.config.grid,
            Resident::Blocks(blocks) => blocks.clamp(1, self.config.grid),
        } as usize;
        let block = self.config.block as usize;
        let lanes = count * block;
        let mut stacks = stack::take(lanes, self.stack_bytes)
            .map_err(|cause| EmulatorError::Stacks { lanes, cause })?
            .into_iter();
        for _ in 0..count {
            let stacks: Vec<_> = stacks.by_ref().take(block).collect();
            let words = (self.config.shared_bytes + self.guard).div_ceil(16);
            self.slots.push(Slot {
                block: Box::into_raw(Box::new(Block::new(self.state, stacks))),
                shared: vec![0u128; words].into_boxed_slice(),
                running: false,
            });
        }
        for slot in 0..count {
            // SAFETY: the slot was just opened.
            unsafe { self.start_next(slot) };
        }
        Ok(())
    }

    /// Start the next block in a slot whose block has ended; the slot rests when there is none.
    ///
    /// # Safety
    /// As for [`launch`]; no lane of the slot runs.
    unsafe fn start_next(&mut self, slot: usize) {
        let next = self.order.next();
        let slot = &mut self.slots[slot];
        slot.running = next.is_some();
        if let Some(id) = next {
            slot.shared.fill(u128::from_ne_bytes([POISON; 16]));
            let shared = slot.shared.as_mut_ptr().cast::<u8>();
            // SAFETY: the block and the state are this launch's own; no lane runs.
            unsafe {
                Block::start(
                    slot.block,
                    id,
                    self.config.grid,
                    shared,
                    self.config.shared_bytes as u64,
                )
            };
        }
    }

    /// Run lanes until all blocks have ended.
    ///
    /// # Safety
    /// As for [`launch`].
    unsafe fn drive(&mut self, schedule: Schedule) -> Result<()> {
        loop {
            // SAFETY: slots and lanes belong to this launch and this thread.
            let ran = unsafe {
                match schedule {
                    Schedule::Ascending => self.pass(false)?,
                    Schedule::Descending => self.pass(true)?,
                    Schedule::Random(_) | Schedule::RandomYields(_) => self.draw()?,
                }
            };
            if self.slots.iter().all(|slot| !slot.running) {
                return Ok(());
            }
            if !ran {
                // SAFETY: no lane runs.
                let waiting = unsafe { self.waiting() };
                return Err(EmulatorError::Deadlock {
                    kernel: self.kernel.name().to_owned(),
                    waiting,
                });
            }
        }
    }

    /// Give every warp a turn, in order. True if a lane ran.
    ///
    /// # Safety
    /// As for [`launch`].
    unsafe fn pass(&mut self, descending: bool) -> Result<bool> {
        let mut ran = false;
        let slots = self.slots.len();
        for s in 0..slots {
            let s = if descending { slots - 1 - s } else { s };
            if !self.slots[s].running {
                continue;
            }
            let block = self.slots[s].block;
            // SAFETY: the block is live, and `warps` is not resized while it is.
            let (warps, count) = unsafe { ((*block).warps.as_mut_ptr(), (*block).warps.len()) };
            for w in 0..count {
                let w = if descending { count - 1 - w } else { w };
                // SAFETY: w counts the warps; lanes are those of the warp.
                unsafe {
                    let warp = warps.add(w);
                    // A warp that only meets itself keeps its turn: its stacks are in the cache.
                    let mut turns = 0;
                    while (*warp).ready != 0 && turns < 16 {
                        turns += 1;
                        let mut rest = (*warp).ready;
                        while rest != 0 {
                            let index = if descending {
                                31 - rest.leading_zeros()
                            } else {
                                rest.trailing_zeros()
                            };
                            rest &= !(1 << index);
                            self.step((*block).lanes.as_mut_ptr().add(w * 32 + index as usize))?;
                        }
                        ran = true;
                    }
                }
            }
            // SAFETY: as above.
            unsafe { self.finish_if_done(s)? };
        }
        Ok(ran)
    }

    /// Run one lane drawn at random from those that can run. True if there was one.
    ///
    /// # Safety
    /// As for [`launch`].
    unsafe fn draw(&mut self) -> Result<bool> {
        let slots = self.slots.len();
        let warps = self.config.block.div_ceil(32) as usize;
        let start = self.random.below((slots * warps) as u32) as usize;
        for i in 0..slots * warps {
            let at = (start + i) % (slots * warps);
            let (s, w) = (at / warps, at % warps);
            if !self.slots[s].running {
                continue;
            }
            let block = self.slots[s].block;
            // SAFETY: the block is live, w counts its warps and the index names a lane that is ready.
            unsafe {
                let ready = (&(*block).warps)[w].ready;
                if ready == 0 {
                    continue;
                }
                let turn = self.random.below(32);
                let index = (ready.rotate_right(turn).trailing_zeros() + turn) & 31;
                self.step((*block).lanes.as_mut_ptr().add(w * 32 + index as usize))?;
                self.finish_if_done(s)?;
            }
            return Ok(true);
        }
        Ok(false)
    }

    /// Run a lane, and look whether the launch must end.
    ///
    /// # Safety
    /// `lane` is a lane of this launch that is ready.
    unsafe fn step(&mut self, lane: *mut Lane) -> Result<()> {
        // SAFETY: the caller vouches for the lane; this is the launch's thread.
        let (failure, switches) = unsafe {
            lane::run(lane, self.current);
            ((*self.state).failure, (*self.state).switches)
        };
        if let Some(failure) = failure {
            // SAFETY: the failure's lanes are this launch's.
            return Err(unsafe { self.explain(failure) });
        }
        if switches >= self.next_look {
            self.next_look = switches + (1 << 14);
            if self
                .deadline
                .is_some_and(|deadline| Instant::now() > deadline)
            {
                let limit = self.config.time_limit.unwrap_or_default();
                // SAFETY: no lane runs.
                return Err(unsafe {
                    self.livelock(format!("it ran for more than {} s", limit.as_secs_f64()))
                });
            }
        }
        Ok(())
    }

    /// Check a block that has ended and start the next in its slot.
    ///
    /// # Safety
    /// As for [`launch`]; no lane runs.
    unsafe fn finish_if_done(&mut self, slot: usize) -> Result<()> {
        // SAFETY: the block is live.
        if unsafe { (*self.slots[slot].block).live } != 0 {
            return Ok(());
        }
        let shared = &self.slots[slot].shared;
        // SAFETY: the bytes of the words, which are initialised.
        let bytes = unsafe {
            std::slice::from_raw_parts(shared.as_ptr().cast::<u8>(), size_of_val(&**shared))
        };
        if self.guard != 0
            && bytes[self.config.shared_bytes..]
                .iter()
                .any(|byte| *byte != POISON)
        {
            return Err(EmulatorError::SharedOverrun {
                kernel: self.kernel.name().to_owned(),
                // SAFETY: the block is live.
                block: unsafe { (*self.slots[slot].block).id },
                bytes: self.config.shared_bytes,
            });
        }
        self.finished += 1;
        // SAFETY: all lanes of the slot have exited.
        unsafe { self.start_next(slot) };
        Ok(())
    }

    /// Free the slots. After a failure under AddressSanitizer the stacks stay allocated: the sanitizer still
    /// holds parts of them for poisoned.
    ///
    /// # Safety
    /// No lane runs, and none will.
    unsafe fn close_slots(&mut self, clean: bool) {
        // SAFETY: the slot of this thread, which no lane reads any more.
        unsafe { *self.current = std::ptr::null_mut() };
        for slot in self.slots.drain(..) {
            // SAFETY: made by Box::into_raw in open_slots.
            let block = unsafe { Box::from_raw(slot.block) };
            let stacks = block.into_stacks();
            if !clean && self.kernel.sanitizer() == Sanitizer::Address {
                stacks.for_each(std::mem::forget);
            } else {
                stack::give_back(stacks, self.stack_bytes);
            }
        }
    }
}
