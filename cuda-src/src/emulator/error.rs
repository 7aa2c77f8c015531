//! What can go wrong when the emulator compiles or runs a kernel.

use std::fmt;
use std::path::PathBuf;

/// Result of the emulator's functions.
pub type Result<T, E = EmulatorError> = std::result::Result<T, E>;

/// An error of the emulator; each names the cause and the remedy.
#[derive(Debug, thiserror::Error)]
pub enum EmulatorError {
    /// No C++ compiler was found.
    #[error(
        "the emulator needs a C++ compiler and found none (tried {tried}); \
         install g++ or clang++, or set CXX to the compiler to use"
    )]
    NoCompiler {
        /// The commands that were tried.
        tried: String,
    },
    /// The compiler refused the source.
    #[error("{compiler} refused {name}: correct the source\n{diagnostics}")]
    Compile {
        /// The compiler's command.
        compiler: String,
        /// The name the source was given.
        name: String,
        /// What the compiler wrote.
        diagnostics: String,
    },
    /// Files of a compilation could not be read or written.
    #[error(
        "cannot {operation} {path}: {source}; check the folder's permissions and free space, or set WARPLINE_CACHE_DIR"
    )]
    Io {
        /// What was tried, in words.
        operation: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// The compiled module could not be loaded.
    #[error("cannot load the compiled module {name}: {cause}; remove {path} and try again")]
    Load {
        /// The name the source was given.
        name: String,
        /// The shared library.
        path: PathBuf,
        /// The loader's message.
        cause: String,
    },
    /// The module has no such kernel.
    #[error("module {module} has no kernel '{kernel}'; declare it with WL_KERNEL({kernel}, ...)")]
    UnknownKernel {
        /// The module's name.
        module: String,
        /// The kernel asked for.
        kernel: String,
    },
    /// The launch cannot start as configured.
    #[error("kernel '{kernel}' cannot be launched: {cause}")]
    InvalidLaunch {
        /// The kernel's name.
        kernel: String,
        /// What is wrong, and what to use instead.
        cause: String,
    },
    /// Every lane that is left waits for another.
    #[error(
        "kernel '{kernel}' is deadlocked: make every named lane reach the operation, or leave it out of the mask\n{waiting}"
    )]
    Deadlock {
        /// The kernel's name.
        kernel: String,
        /// Who waits where.
        waiting: WaitingReport,
    },
    /// Lanes spin, but nothing changes that could end their waiting.
    #[error(
        "kernel '{kernel}' makes no progress ({cause}): if it needs all blocks running at once, \
         launch it with all blocks resident\n{waiting}"
    )]
    Livelock {
        /// The kernel's name.
        kernel: String,
        /// Which bound was passed.
        cause: String,
        /// Who spins or waits where.
        waiting: WaitingReport,
    },
    /// A lane broke a rule of the machine.
    #[error("kernel '{kernel}', block {block}, thread {thread}, at {place}: {cause}")]
    Lane {
        /// The kernel's name.
        kernel: String,
        /// The lane's block.
        block: u32,
        /// The lane's index in its block.
        thread: u32,
        /// `file:line`.
        place: String,
        /// What it did, and what is right.
        cause: String,
    },
    /// A block wrote behind its shared memory.
    #[error(
        "kernel '{kernel}', block {block}: wrote past its {bytes} bytes of shared memory; check indices or ask for more"
    )]
    SharedOverrun {
        /// The kernel's name.
        kernel: String,
        /// The block.
        block: u32,
        /// Shared memory of the launch.
        bytes: usize,
    },
    /// The machine gave no memory for lanes' stacks.
    #[error("no memory for the stacks of {lanes} lanes ({cause}); let fewer blocks be resident")]
    Stacks {
        /// Lanes that would run at once.
        lanes: usize,
        /// The system's error.
        cause: std::io::Error,
    },
}

/// One group of lanes that wait, or spin, at the same place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitingGroup {
    /// The block.
    pub block: u32,
    /// The warp within the block.
    pub warp: u32,
    /// The lanes of the warp, one bit each.
    pub lanes: u32,
    /// The operation, by its name in a kernel.
    pub operation: &'static str,
    /// The lanes that the operation waits for; `None` for block-wide operations and spinning.
    pub mask: Option<u32>,
    /// True for lanes that could run but only poll.
    pub spinning: bool,
    /// `file:line` of the operation.
    pub place: String,
}

/// The lanes that had not finished when a launch was given up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WaitingReport {
    /// Lanes by block, warp and place.
    pub groups: Vec<WaitingGroup>,
    /// Blocks that had finished.
    pub finished_blocks: u32,
    /// Blocks that had not started.
    pub unstarted_blocks: u32,
}

/// Groups printed before the rest is only counted.
const PRINTED_GROUPS: usize = 24;

impl fmt::Display for WaitingReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for group in self.groups.iter().take(PRINTED_GROUPS) {
            let verb = if group.spinning { "spin in" } else { "wait in" };
            write!(
                f,
                "  block {} warp {} lanes {:#010x} {verb} {} at {}",
                group.block, group.warp, group.lanes, group.operation, group.place
            )?;
            match group.mask {
                Some(mask) => writeln!(
                    f,
                    ", mask {mask:#010x}, missing {:#010x}",
                    mask & !group.lanes
                )?,
                None => writeln!(f)?,
            }
        }
        if self.groups.len() > PRINTED_GROUPS {
            writeln!(
                f,
                "  and {} more groups",
                self.groups.len() - PRINTED_GROUPS
            )?;
        }
        write!(
            f,
            "  {} blocks finished, {} not started",
            self.finished_blocks, self.unstarted_blocks
        )
    }
}
