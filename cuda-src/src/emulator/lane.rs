//! Lanes, warps and blocks of a running launch, and the functions a lane calls when it waits.
//!
//! All of it runs on one thread. The scheduler and the lanes' calls work on the same memory in turn, so they
//! share raw pointers and never hold a reference across a switch. Code that runs on a lane's stack records a
//! [`Failure`] and switches out; it never panics, because there is nothing to unwind to.

use std::ffi::c_char;

use corosensei::{Coroutine, CoroutineResult, Yielder};

use super::abi::{Functions, LaneHeader, op};
use super::collective;
use super::stack::LaneStack;

pub(super) static FUNCTIONS: Functions = Functions {
    warp: on_warp,
    block: on_block,
    pause: on_pause,
    fail: on_fail,
};

/// A lane: what C++ sees of it, then what only the emulator sees.
#[repr(C)]
pub(super) struct Lane {
    pub(super) header: LaneHeader,
    pub(super) launch: *mut State,
    pub(super) block: *mut Block,
    pub(super) warp: *mut Warp,
    /// The lane's bit in the masks of its warp.
    pub(super) bit: u32,
    yielder: *const Yielder<(), ()>,
    coroutine: Option<Coroutine<(), (), (), LaneStack>>,
    stack: Option<LaneStack>,
}

/// Lanes that have come to one warp operation; they meet by operation, mask and place.
#[derive(Clone, Copy)]
struct WarpMeeting {
    op: u32,
    mask: u32,
    line: u32,
    file: *const c_char,
    arrived: u32,
}

/// Lanes that have come to one block operation.
struct BlockMeeting {
    op: u32,
    line: u32,
    file: *const c_char,
    arrived: u32,
}

/// A warp: which of its lanes exist, have not exited, and can run.
pub(super) struct Warp {
    pub(super) live: u32,
    pub(super) ready: u32,
    first: *mut Lane,
    meetings: Vec<WarpMeeting>,
}

/// A resident block.
pub(super) struct Block {
    pub(super) id: u32,
    pub(super) lanes: Vec<Lane>,
    pub(super) warps: Vec<Warp>,
    /// Lanes that have not exited.
    pub(super) live: u32,
    meetings: Vec<BlockMeeting>,
}

/// Why a launch ends early; put into words by the scheduler.
#[derive(Clone, Copy, Debug)]
pub(super) enum Failure {
    /// A warp operation whose mask leaves its caller out.
    MaskWithoutCaller(*mut Lane),
    /// A warp operation whose mask names lanes (given) that are not live.
    MaskNamesExited(*mut Lane, u32),
    /// A lane exited that the second waits for.
    ExitedWhileAwaited(*mut Lane, *mut Lane),
    /// A reduction of a block some of whose lanes have exited.
    BlockIncomplete(*mut Lane),
    /// `__trap`, a misaligned access or too little shared memory: see the lane's header.
    Reported(*mut Lane),
    /// Too many pauses without a change.
    NoProgress,
}

/// What all lanes of a launch share.
pub(super) struct State {
    pub(super) entry: unsafe extern "C" fn(*mut *mut std::ffi::c_void),
    pub(super) params: *mut *mut std::ffi::c_void,
    /// Changes of shared memory, meetings and exits so far.
    pub(super) progress: u64,
    pub(super) failure: Option<Failure>,
    pub(super) switches: u64,
    pub(super) pauses: u64,
    pub(super) meetings: u64,
    /// Weighted pauses since `progress` last changed, and the bound on them.
    idle: u64,
    idle_limit: u64,
    seen_progress: u64,
    /// `Some` when memory operations are points where lanes switch at random.
    random: Option<Random>,
}

/// Memory operations between two forced pauses when the schedule does not draw them.
const PLAIN_BUDGET: u32 = 1024;
/// Random schedules draw the operations to the next pause from 1 to this.
const RANDOM_BUDGET: u32 = 8;
/// What a spin_pause weighs against the bound on idle pauses; a poll under random pauses weighs 1.
const SPIN_WEIGHT: u64 = 64;

impl State {
    pub(super) fn new(
        entry: unsafe extern "C" fn(*mut *mut std::ffi::c_void),
        params: *mut *mut std::ffi::c_void,
        idle_pauses: u64,
        random: Option<Random>,
    ) -> Self {
        Self {
            entry,
            params,
            progress: 0,
            failure: None,
            switches: 0,
            pauses: 0,
            meetings: 0,
            idle: 0,
            idle_limit: idle_pauses.saturating_mul(SPIN_WEIGHT),
            seen_progress: 0,
            random,
        }
    }

    fn budget(&mut self) -> u32 {
        match &mut self.random {
            Some(random) => 1 + random.below(RANDOM_BUDGET),
            None => PLAIN_BUDGET,
        }
    }

    fn fail(&mut self, failure: Failure) {
        self.failure.get_or_insert(failure);
    }
}

/// A small generator of pseudo-random numbers (SplitMix64): schedules must repeat from their seed.
#[derive(Clone, Debug)]
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(super) fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ x >> 31
    }

    /// A number below `bound`.
    pub(super) fn below(&mut self, bound: u32) -> u32 {
        ((self.draw() >> 32).wrapping_mul(u64::from(bound)) >> 32) as u32
    }
}

impl Block {
    /// A slot for blocks of `stacks.len()` lanes.
    pub(super) fn new(launch: *mut State, stacks: Vec<LaneStack>) -> Self {
        let lanes = stacks
            .into_iter()
            .enumerate()
            .map(|(i, stack)| Lane {
                header: LaneHeader::EMPTY,
                launch,
                block: std::ptr::null_mut(),
                warp: std::ptr::null_mut(),
                bit: 1 << (i % 32),
                yielder: std::ptr::null(),
                coroutine: None,
                stack: Some(stack),
            })
            .collect::<Vec<_>>();
        let warps = (0..lanes.len().div_ceil(32))
            .map(|_| Warp {
                live: 0,
                ready: 0,
                first: std::ptr::null_mut(),
                meetings: Vec::with_capacity(32),
            })
            .collect();
        Self {
            id: 0,
            lanes,
            warps,
            live: 0,
            meetings: Vec::with_capacity(4),
        }
    }

    /// Start block `id` in this slot.
    ///
    /// # Safety
    /// `block` and the launch it was made with are live and stay in place; no lane of it is running.
    pub(super) unsafe fn start(
        block: *mut Self,
        id: u32,
        grid: u32,
        shared: *mut u8,
        shared_bytes: u64,
    ) {
        // SAFETY: the caller vouches for the block; no lane runs, so the references are unique.
        let this = unsafe { &mut *block };
        let count = this.lanes.len();
        this.id = id;
        this.live = count as u32;
        this.meetings.clear();
        let first = this.lanes.as_mut_ptr();
        let warps = this.warps.as_mut_ptr();
        for w in 0..this.warps.len() {
            let threads = (count - w * 32).min(32);
            let mask = if threads == 32 {
                u32::MAX
            } else {
                (1 << threads) - 1
            };
            // SAFETY: w counts the warps and w * 32 is below the number of lanes.
            unsafe {
                (*warps.add(w)).live = mask;
                (*warps.add(w)).ready = mask;
                (*warps.add(w)).first = first.add(w * 32);
                (*warps.add(w)).meetings.clear();
            }
        }
        for i in 0..count {
            // SAFETY: i counts the lanes; the launch is live.
            unsafe {
                let lane = first.add(i);
                let launch = (*lane).launch;
                (*lane).block = block;
                (*lane).warp = warps.add(i / 32);
                (*lane).header = LaneHeader {
                    thread_x: i as u32,
                    block_x: id,
                    block_dim_x: count as u32,
                    grid_dim_x: grid,
                    shared,
                    shared_bytes,
                    functions: &raw const FUNCTIONS,
                    progress: &raw mut (*launch).progress,
                    budget: (*launch).budget(),
                    ..LaneHeader::EMPTY
                };
            }
        }
    }

    /// The stacks of the slot's lanes; lanes that have not finished are abandoned where they are.
    pub(super) fn into_stacks(self) -> impl Iterator<Item = LaneStack> {
        // All of them are reset, however many stacks are taken: a lane that is dropped as it is would be unwound.
        let stacks: Vec<LaneStack> = self
            .lanes
            .into_iter()
            .filter_map(|mut lane| match lane.coroutine.take() {
                None => lane.stack.take(),
                Some(mut coroutine) => {
                    // SAFETY: the stack holds frames of C++ without destructors and of `Lane` calls that own
                    // nothing, so nothing is lost when it is not unwound.
                    unsafe { coroutine.force_reset() };
                    Some(coroutine.into_stack())
                }
            })
            .collect();
        stacks.into_iter()
    }
}

/// Run a lane that is ready until it waits, pauses or exits.
///
/// # Safety
/// `lane` is a live lane of a started block, this is the launch's thread, and `current` is the module's
/// slot for the current lane on this thread.
pub(super) unsafe fn run(lane: *mut Lane, current: *mut *mut LaneHeader) {
    // SAFETY: the caller vouches for the pointers. References end before the switch, except the one to the
    // coroutine itself, which no code on the lane's stack touches.
    unsafe {
        (*(*lane).warp).ready &= !(*lane).bit;
        let launch = (*lane).launch;
        (*launch).switches += 1;
        *current = lane.cast();
        let coroutine = match &mut (*lane).coroutine {
            Some(coroutine) => coroutine,
            empty => {
                let Some(stack) = (*lane).stack.take() else {
                    return;
                };
                empty.insert(Coroutine::with_stack(
                    stack,
                    move |yielder: &Yielder<(), ()>, ()| {
                        (*lane).yielder = yielder;
                        let launch = (*lane).launch;
                        ((*launch).entry)((*launch).params);
                    },
                ))
            }
        };
        if let CoroutineResult::Return(()) = coroutine.resume(()) {
            if let Some(coroutine) = (*lane).coroutine.take() {
                (*lane).stack = Some(coroutine.into_stack());
            }
            exit(lane);
        }
    }
}

/// Switch to the scheduler; returns when it runs the lane again.
///
/// # Safety
/// Called on the lane's own stack.
unsafe fn switch_out(lane: *mut Lane) {
    // SAFETY: the yielder lives at the bottom of the stack this runs on.
    unsafe { (*(*lane).yielder).suspend(()) };
}

/// A lane has returned from the kernel.
///
/// # Safety
/// As for [`run`], whose part it is.
unsafe fn exit(lane: *mut Lane) {
    // SAFETY: the caller vouches for the lane, which belongs to a live warp, block and launch.
    unsafe {
        let (launch, block, warp) = (&mut *(*lane).launch, (*lane).block, (*lane).warp);
        launch.progress = launch.progress.wrapping_add(1);
        (*warp).live &= !(*lane).bit;
        (*block).live -= 1;
        let bit = (*lane).bit;
        let waiting = (*warp)
            .meetings
            .iter()
            .find(|meeting| meeting.mask & bit != 0)
            .map(|m| m.arrived);
        if let Some(arrived) = waiting {
            let awaiting = (*warp).first.add(arrived.trailing_zeros() as usize & 31);
            launch.fail(Failure::ExitedWhileAwaited(lane, awaiting));
        }
        // Exited lanes count as arrived at a barrier.
        if let [meeting] = (*block).meetings.as_slice()
            && meeting.arrived == (*block).live
        {
            let operation = meeting.op;
            if is_barrier(operation) {
                (*block).meetings.clear();
                complete_block(block, operation, launch);
            } else {
                launch.fail(Failure::BlockIncomplete(lane));
            }
        }
    }
}

/// Plain barriers count exited lanes as arrived; the other block operations need every lane.
fn is_barrier(operation: u32) -> bool {
    matches!(
        operation,
        op::BARRIER | op::BARRIER_COUNT | op::BARRIER_AND | op::BARRIER_OR
    )
}

/// Compute a block operation that all live lanes have come to, and let them run.
///
/// # Safety
/// Every live lane of `block` waits in `operation`.
unsafe fn complete_block(block: *mut Block, operation: u32, launch: &mut State) {
    launch.progress = launch.progress.wrapping_add(1);
    launch.meetings += 1;
    // SAFETY: the caller vouches for the block; lanes are indexed within their number.
    unsafe {
        let count = (*block).lanes.len();
        let first = (*block).lanes.as_mut_ptr();
        let all_live = (*block).live as usize == count;
        let headers = (0..count).filter_map(move |i| {
            let lane = first.add(i);
            (all_live || (*(*lane).warp).live & (*lane).bit != 0).then(|| lane.cast::<LaneHeader>())
        });
        if operation != op::BARRIER {
            collective::block(operation, headers);
        }
        for warp in &mut (*block).warps {
            warp.ready = warp.live;
        }
    }
}

unsafe extern "C" fn on_warp(header: *mut LaneHeader) {
    let lane = header.cast::<Lane>();
    // SAFETY: C++ hands back the lane that runs, which is the first field of a Lane of a live launch.
    unsafe {
        let (launch, warp, bit) = ((*lane).launch, &mut *(*lane).warp, (*lane).bit);
        let LaneHeader {
            op,
            mask,
            line,
            file,
            ..
        } = (*lane).header;
        if mask & bit == 0 {
            (*launch).fail(Failure::MaskWithoutCaller(lane));
            return switch_out(lane);
        }
        if mask & !warp.live != 0 {
            (*launch).fail(Failure::MaskNamesExited(lane, mask & !warp.live));
            return switch_out(lane);
        }
        let same =
            |m: &WarpMeeting| m.op == op && m.mask == mask && m.line == line && m.file == file;
        let arrived = match warp.meetings.iter().position(same) {
            Some(at) => match warp.meetings.get_mut(at) {
                Some(meeting) if meeting.arrived | bit == mask => {
                    warp.meetings.swap_remove(at);
                    mask
                }
                Some(meeting) => {
                    meeting.arrived |= bit;
                    meeting.arrived
                }
                None => bit,
            },
            None => {
                if bit != mask {
                    warp.meetings.push(WarpMeeting {
                        op,
                        mask,
                        line,
                        file,
                        arrived: bit,
                    });
                }
                bit
            }
        };
        if arrived != mask {
            return switch_out(lane);
        }
        collective::warp(warp.first, op, mask);
        warp.ready |= mask & !bit;
        (*launch).progress = (*launch).progress.wrapping_add(1);
        (*launch).meetings += 1;
    }
}

unsafe extern "C" fn on_block(header: *mut LaneHeader) {
    let lane = header.cast::<Lane>();
    // SAFETY: as for `on_warp`.
    unsafe {
        let (launch, block) = ((*lane).launch, (*lane).block);
        let LaneHeader { op, line, file, .. } = (*lane).header;
        if !is_barrier(op) && (*block).live as usize != (*block).lanes.len() {
            (*launch).fail(Failure::BlockIncomplete(lane));
            return switch_out(lane);
        }
        let meetings = &mut (*block).meetings;
        let at = match meetings
            .iter()
            .position(|m| m.op == op && m.line == line && m.file == file)
        {
            Some(at) => at,
            None => {
                meetings.push(BlockMeeting {
                    op,
                    line,
                    file,
                    arrived: 0,
                });
                meetings.len() - 1
            }
        };
        let Some(meeting) = meetings.get_mut(at) else {
            return;
        };
        meeting.arrived += 1;
        if meeting.arrived < (*block).live {
            return switch_out(lane);
        }
        meetings.swap_remove(at);
        complete_block(block, op, &mut *launch);
        // The last to come goes on at once.
        (*(*lane).warp).ready &= !(*lane).bit;
    }
}

unsafe extern "C" fn on_pause(header: *mut LaneHeader) {
    let lane = header.cast::<Lane>();
    // SAFETY: as for `on_warp`.
    unsafe {
        let launch = &mut *(*lane).launch;
        launch.pauses += 1;
        (*lane).header.budget = launch.budget();
        if launch.progress == launch.seen_progress {
            let poll = (*lane).header.op == op::POLL && launch.random.is_some();
            launch.idle += if poll { 1 } else { SPIN_WEIGHT };
            if launch.idle > launch.idle_limit {
                launch.fail(Failure::NoProgress);
            }
        } else {
            launch.seen_progress = launch.progress;
            launch.idle = 0;
        }
        (*(*lane).warp).ready |= (*lane).bit;
        switch_out(lane);
    }
}

unsafe extern "C" fn on_fail(header: *mut LaneHeader) {
    let lane = header.cast::<Lane>();
    // SAFETY: as for `on_warp`. The scheduler ends the launch, so the lane never comes back.
    unsafe {
        (*(*lane).launch).fail(Failure::Reported(lane));
        loop {
            switch_out(lane);
        }
    }
}
