//! Stacks of lanes, kept between launches.

use std::io;

use corosensei::stack::{DefaultStack, Stack, StackPointer};
use parking_lot::Mutex;

/// Stack of a lane in bytes.
pub(super) const STACK_BYTES: usize = 64 * 1024;

/// Stack of a lane in a module built with a sanitizer, whose reports need room.
pub(super) const SANITIZER_STACK_BYTES: usize = 512 * 1024;

/// Idle stacks of [`STACK_BYTES`] kept for the next launch: as many as a few large launches at a time need, so that none maps
/// memory anew. 512 MiB of addresses at most, of which only used pages count, and two of the 65,530 mappings a process may
/// have for each.
const KEPT: usize = 8192;

/// Stacks start at this many different places within a page. Lanes that wait together touch the same depth
/// of their stacks; page-aligned stacks would all compete for the same few sets of the first-level cache.
const COLOURS: usize = 32;
const COLOUR_BYTES: usize = 128;

static IDLE: Mutex<Vec<DefaultStack>> = Mutex::new(Vec::new());

/// One lane's stack: memory with a guard page, of which the topmost bytes may be left out.
pub(super) struct LaneStack {
    memory: DefaultStack,
    base: StackPointer,
}

// SAFETY: base lies within the memory, a multiple of 16 bytes (and at most one page) below its top, and the
// limit is the memory's own.
unsafe impl Stack for LaneStack {
    fn base(&self) -> StackPointer {
        self.base
    }

    fn limit(&self) -> StackPointer {
        self.memory.limit()
    }
}

/// `count` stacks of `bytes` bytes each.
pub(super) fn take(count: usize, bytes: usize) -> io::Result<Vec<LaneStack>> {
    let mut memory = Vec::with_capacity(count);
    if bytes == STACK_BYTES {
        let mut idle = IDLE.lock();
        let rest = idle.len().saturating_sub(count);
        memory.extend(idle.drain(rest..));
    }
    while memory.len() < count {
        memory.push(DefaultStack::new(bytes)?);
    }
    Ok(memory
        .into_iter()
        .enumerate()
        .map(|(i, memory)| {
            let top = memory.base();
            let base = StackPointer::new(top.get() - (i % COLOURS) * COLOUR_BYTES).unwrap_or(top);
            LaneStack { memory, base }
        })
        .collect())
}

/// Give stacks back that no lane uses any more.
pub(super) fn give_back(stacks: impl Iterator<Item = LaneStack>, bytes: usize) {
    if bytes != STACK_BYTES {
        return;
    }
    let mut idle = IDLE.lock();
    for stack in stacks {
        if idle.len() < KEPT {
            idle.push(stack.memory);
        }
    }
}
