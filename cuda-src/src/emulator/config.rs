//! Launch parameters: how many lanes run, in which order, within which bounds.

use std::time::Duration;

/// Shared memory that a block can have on compute capability 9.0, in bytes.
pub const MAX_SHARED_BYTES: usize = 227 * 1024;

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
    /// `grid` blocks of `block` threads: no shared memory, four blocks resident, four million idle pauses.
    pub const fn new(grid: u32, block: u32) -> Self {
        Self {
            grid,
            block,
            shared_bytes: 0,
            resident: Resident::Blocks(4),
            idle_pauses: 1 << 22,
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
