//! Launches: how many lanes run, in which order, and how their waiting ends.

use std::ffi::c_void;
use std::time::{Duration, Instant};

use super::abi::{LaneHeader, describe, op};
use super::error::{EmulatorError, Result, WaitingGroup, WaitingReport};
use super::lane::{self, Block, Failure, Lane, Random, State};
use super::module::Kernel;
use super::{Sanitizer, stack};

/// Shared memory that a block can have on compute capability 9.0, in bytes.
pub const MAX_SHARED_BYTES: usize = 227 * 1024;

/// What fresh shared memory holds: a value that shows when it is used.
const POISON: u8 = 0xa5;
/// Bytes behind shared memory that must still be poison when the block ends.
const GUARD_BYTES: usize = 64;

/// The order in which lanes run. Every kernel should be right under all four.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Schedule {
    /// Blocks and lanes in ascending order, each lane until it waits. The fastest.
    Ascending,
    /// Blocks and lanes in descending order.
    Descending,
    /// Blocks start, and lanes run, in an order drawn from the seed.
    Random(u64),
    /// As `Random`, and lanes also switch around atomics and racing loads and stores.
    RandomYields(u64),
}

impl Schedule {
    /// One schedule of each kind, with `seed` for the random ones.
    pub const fn all(seed: u64) -> [Self; 4] {
        [
            Self::Ascending,
            Self::Descending,
            Self::Random(seed),
            Self::RandomYields(seed),
        ]
    }
}

/// How many blocks run interleaved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resident {
    /// At most this many (at least one); the next starts when one ends, as on a GPU with few processors.
    Blocks(u32),
    /// All of the grid, which kernels need that wait for blocks in any order (persistent kernels).
    All,
}

/// Shape of a launch and its bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaunchConfig {
    /// Number of blocks.
    pub grid: u32,
    /// Threads a block, 1 to 1024 and at most the kernel's `WL_BLOCK_THREADS`.
    pub block: u32,
    /// Dynamic shared memory a block, in bytes.
    pub shared_bytes: usize,
    /// Blocks that run interleaved.
    pub resident: Resident,
    /// `spin_pause` calls in a row, over all lanes, without any change of shared memory, meeting or exit,
    /// after which the launch is given up as a livelock.
    pub idle_pauses: u64,
    /// Wall time after which the launch is given up; looked at when lanes switch.
    pub time_limit: Option<Duration>,
}

impl LaunchConfig {
    /// `grid` blocks of `block` threads: no shared memory, four blocks resident, a million idle pauses.
    pub const fn new(grid: u32, block: u32) -> Self {
        Self {
            grid,
            block,
            shared_bytes: 0,
            resident: Resident::Blocks(4),
            idle_pauses: 1 << 20,
            time_limit: None,
        }
    }

    /// The same with `bytes` of shared memory a block.
    pub const fn with_shared(mut self, bytes: usize) -> Self {
        self.shared_bytes = bytes;
        self
    }

    /// The same with other residency.
    pub const fn with_resident(mut self, resident: Resident) -> Self {
        self.resident = resident;
        self
    }
}

/// What a launch did.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LaunchReport {
    /// Lanes that ran.
    pub lanes: u64,
    /// Times a lane was switched to.
    pub switches: u64,
    /// Times a lane let others run of its own accord or at a memory operation.
    pub pauses: u64,
    /// Barriers and warp operations that lanes met in.
    pub meetings: u64,
    /// Wall time.
    pub elapsed: Duration,
}

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
struct Slot {
    block: *mut Block,
    shared: Box<[u128]>,
    running: bool,
}

/// A running launch. Lives on the thread that launched.
struct Launch<'a> {
    kernel: &'a Kernel,
    config: LaunchConfig,
    state: *mut State,
    slots: Vec<Slot>,
    order: BlockOrder,
    random: Random,
    current: *mut *mut LaneHeader,
    guard: usize,
    stack_bytes: usize,
    finished: u32,
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
                block: Box::into_raw(Block::new(self.state, stacks)),
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

    /// Put a failure into words.
    ///
    /// # Safety
    /// The lanes it names belong to this launch; no lane runs.
    unsafe fn explain(&self, failure: Failure) -> EmulatorError {
        // SAFETY (of the whole function): the caller vouches for the lanes.
        let (lane, cause) = unsafe {
            match failure {
                Failure::NoProgress => {
                    let cause = format!(
                        "lanes paused {} times in a row and nothing changed",
                        self.config.idle_pauses
                    );
                    return self.livelock(cause);
                }
                Failure::MaskWithoutCaller(lane) => {
                    let header = &(*lane).header;
                    let cause = format!(
                        "calls {} with mask {:#010x}, which leaves itself out; name every lane that takes part",
                        describe(header.op),
                        header.mask
                    );
                    (lane, cause)
                }
                Failure::MaskNamesExited(lane, gone) => {
                    let header = &(*lane).header;
                    let cause = format!(
                        "calls {} with mask {:#010x}, but lanes {gone:#010x} of warp {} have exited or do not exist; \
                         keep all lanes of the mask in the kernel",
                        describe(header.op),
                        header.mask,
                        header.thread_x / 32
                    );
                    (lane, cause)
                }
                Failure::ExitedWhileAwaited(lane, awaiting) => {
                    let header = &(*awaiting).header;
                    let cause = format!(
                        "exited while thread {} waits for it in {} with mask {:#010x} at {}; \
                         keep all lanes of the mask in the kernel",
                        header.thread_x,
                        describe(header.op),
                        header.mask,
                        header.place()
                    );
                    (lane, cause)
                }
                Failure::BlockIncomplete(lane) => {
                    let cause =
                        "a block-wide reduction or scan ran after lanes of the block had exited; \
                                 keep all lanes in the kernel"
                            .to_owned();
                    (lane, cause)
                }
                Failure::Reported(lane) => {
                    let header = &(*lane).header;
                    let [first, second] = header.input;
                    let cause = match header.op {
                        op::MISALIGNED => {
                            format!(
                                "accesses address {first:#x} as {second} aligned bytes; align it to {second} bytes"
                            )
                        }
                        op::SHARED_TOO_SMALL => {
                            format!(
                                "views {first} bytes of shared memory of {second}; launch with at least {first} bytes"
                            )
                        }
                        _ => "stopped the kernel with __trap; see the condition there".to_owned(),
                    };
                    (lane, cause)
                }
            }
        };
        // SAFETY: as above; the module is loaded, so its file names are too.
        unsafe {
            EmulatorError::Lane {
                kernel: self.kernel.name().to_owned(),
                block: (*lane).header.block_x,
                thread: (*lane).header.thread_x,
                place: (*lane).header.place(),
                cause,
            }
        }
    }

    /// # Safety
    /// No lane runs.
    unsafe fn livelock(&self, cause: String) -> EmulatorError {
        // SAFETY: the caller vouches that no lane runs.
        let waiting = unsafe { self.waiting() };
        EmulatorError::Livelock {
            kernel: self.kernel.name().to_owned(),
            cause,
            waiting,
        }
    }

    /// Where the lanes are that have not exited, grouped by place.
    ///
    /// # Safety
    /// No lane runs.
    unsafe fn waiting(&self) -> WaitingReport {
        let mut report = WaitingReport {
            finished_blocks: self.finished,
            ..WaitingReport::default()
        };
        let running = self.slots.iter().filter(|slot| slot.running);
        for slot in running.clone() {
            // SAFETY: the block is live and no lane runs, so shared references are fine.
            let block = unsafe { &*slot.block };
            for (w, warp) in block.warps.iter().enumerate() {
                let start = report.groups.len();
                for lane in block.lanes.iter().skip(w * 32).take(32) {
                    if warp.live & lane.bit == 0 {
                        continue;
                    }
                    let header = &lane.header;
                    let spinning = warp.ready & lane.bit != 0;
                    let found = WaitingGroup {
                        block: block.id,
                        warp: w as u32,
                        lanes: lane.bit,
                        operation: describe(header.op),
                        mask: (!spinning && header.op >= op::SYNCWARP).then_some(header.mask),
                        spinning,
                        // SAFETY: the module is loaded, so its file names are too.
                        place: unsafe { header.place() },
                    };
                    let same = |g: &&mut WaitingGroup| {
                        g.operation == found.operation
                            && g.mask == found.mask
                            && g.spinning == found.spinning
                            && g.place == found.place
                    };
                    match report.groups[start..].iter_mut().find(same) {
                        Some(group) => group.lanes |= lane.bit,
                        None => report.groups.push(found),
                    }
                }
            }
        }
        report.unstarted_blocks = self.config.grid - self.finished - running.count() as u32;
        report
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
