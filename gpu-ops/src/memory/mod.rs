//! Device memory: one budgeted pool, buffers that return themselves, and the order of relief under pressure.
//!
//! All device memory comes from a [`MemoryPool`]. Budget is reserved before memory is used
//! ([`MemoryPool::reserve`], [`MemoryPool::allocate`]) and returned by `Drop`.
//!
//! [`Budget`] names what each purpose may take of it.
//!
//! # When a block is used again
//! A [`DeviceBuffer`] may be dropped while queued work still uses it. A returned block is handed out
//! again only after every stream of the device has passed the work that was queued when it was
//! returned (a [`crate::device::Fence`]); the pool checks without waiting, takes fresh memory instead
//! while the budget allows, and waits only as the last step before it asks for eviction. So the
//! rule for callers is short: queue the work, then drop the buffer.
//!
//! Where one stream orders all work with a block, the next buffer for that stream may have it at once
//! (`MemoryPool::allocate_for`): a loop that queues the same work again and again, with copies for the next turn under way on
//! another stream, needs no more memory than a turn or two, and never waits for these copies only to reuse its scratch.
//!
//! # Relief under pressure
//! When a reservation does not fit: free blocks go back to the device, then the
//! [`PressureHandler`] is asked to let go: outputs that are being read move to host memory, then indexes, columns
//! and lookup tables of kept plans go. Then the query waits for others that run
//! (`turns`), and at last [`crate::GpuError::OutOfDeviceMemory`] tells the caller to take the next rung of its ladder.

mod batch_files;
mod blocks;
mod budget;
mod buffer;
mod held;
mod kept;
mod ladder;
mod ledger;
mod machine;
mod pool;
mod spill_files;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod turn_tests;
mod turns;

pub(crate) use batch_files::{BatchFile, BatchWriter};
pub use blocks::MemoryStatistics;
pub(crate) use blocks::size_class;
pub use budget::Budget;
pub(crate) use budget::Free;
pub use buffer::{DeviceBuffer, DeviceValue};
pub(crate) use held::{Held, HeldList};
pub(crate) use kept::{KeptResult, KeptResults};
pub use ladder::LadderCounts;
pub use machine::memory_of_host;
pub(crate) use machine::memory_of_machine;
pub use pool::{MemoryPool, PressureHandler, Reservation};
pub use spill_files::SpillDirectory;
pub(crate) use spill_files::SpillFile;
pub use turns::Turn;
