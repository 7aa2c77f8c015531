//! Where kernels are compiled: NVRTC has one lock for a whole process, so it runs in several.
//!
//! In this order: helper processes, which are copies of a program that calls [`serve_if_asked`] (the one that
//! `WARPLINE_COMPILER` names, the command that the host gave by [`start_by`], this program, or a `warpline` beside it); copies of the library in this process, each with a lock
//! of its own; the library as it is, one source after the other. A way that turns out not to work is left for the next.

mod copies;
mod helper;
mod message;
mod pool;
mod process;

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use self::copies::{Copies, MOST_COPIES};
pub use self::helper::{HELPER_ARGUMENT, serve_if_asked, serve_process};
use self::pool::{Failure, Pool};
use self::process::Processes;
use super::nvrtc::{self, Job};
use crate::error::{GpuError, Result};

/// Environment variable with the program that helpers are copies of; `copies` or `thread`: none, but copies of the library in
/// this process, or the library as it is.
pub const COMPILER_VARIABLE: &str = "WARPLINE_COMPILER";

/// How long helpers wait for work before they are sent home.
const IDLE: Duration = Duration::from_secs(60);

/// Most workers, as set; 0: as many as there are cores.
static MOST: AtomicUsize = AtomicUsize::new(0);

/// Those of this process.
static COMPILERS: OnceLock<Compilers> = OnceLock::new();

/// How a host starts helpers that is no program of its own, such as an interpreter.
static COMMAND: OnceLock<HelperCommand> = OnceLock::new();

/// A program and its arguments; those of [`HELPER_ARGUMENT`] follow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HelperCommand {
    /// The file, by which the way is called.
    pub program: PathBuf,
    /// What comes before the arguments of helpers.
    pub arguments: Vec<OsString>,
}

impl From<PathBuf> for HelperCommand {
    fn from(program: PathBuf) -> Self {
        Self {
            program,
            arguments: vec![],
        }
    }
}

/// Helpers are started by this command, which has to read the two arguments that follow, [`HELPER_ARGUMENT`] and a number, and to
/// call [`serve_process`] with the number. The first call counts; it has no effect after the first kernel.
pub fn start_by(program: PathBuf, arguments: Vec<OsString>) {
    let _ = COMMAND.set(HelperCommand { program, arguments });
}

/// A way to compile kernels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Way {
    /// Processes of this program.
    Processes(PathBuf),
    /// Processes that the command starts which the host gave.
    Command(HelperCommand),
    /// Copies of the library.
    Copies,
    /// The library itself.
    Thread,
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counted = |count: usize, one: &str, many: &str| match count {
            1 => format!("one {one}"),
            count => format!("up to {count} {many}"),
        };
        match self {
            Self::Processes(program) => {
                let many = counted(most(), "process", "processes");
                write!(f, "{many} of {}", program.display())
            }
            Self::Command(command) => {
                let many = counted(most(), "process", "processes");
                write!(f, "{many} of {}", command.program.display())
            }
            Self::Copies => {
                let count = most().min(MOST_COPIES);
                write!(f, "{}", counted(count, "copy of NVRTC", "copies of NVRTC"))?;
                f.write_str(" in this process")
            }
            Self::Thread => f.write_str("one thread of this process"),
        }
    }
}

/// Workers that compile, by the ways that come into question.
pub struct Compilers {
    /// The process that they are of; one that was forked from it has the same pipes and may not use them.
    process: u32,
    /// Best first.
    ways: Vec<(Way, Pool)>,
    /// The first that has not failed.
    current: AtomicUsize,
}

/// Most workers at once.
fn most() -> usize {
    match MOST.load(Ordering::Relaxed) {
        0 => std::thread::available_parallelism().map_or(1, usize::from),
        most => most,
    }
}

/// At most so many kernels are compiled at once in this process; 0: as many as there are cores.
pub fn limit(kernels: usize) {
    if MOST.swap(kernels, Ordering::Relaxed) != kernels
        && let Some(compilers) = COMPILERS.get()
    {
        for (way, pool) in &compilers.ways {
            pool.set_most(way.most(most()));
        }
    }
}

impl Way {
    /// Most workers of `cores` ones.
    fn most(&self, cores: usize) -> usize {
        match self {
            Self::Processes(_) | Self::Command(_) => cores,
            Self::Copies => cores.min(MOST_COPIES),
            Self::Thread => 1,
        }
    }

    /// Those that come into question in this process, best first.
    fn all() -> Vec<Self> {
        let wanted = std::env::var_os(COMPILER_VARIABLE).filter(|value| !value.is_empty());
        match wanted.as_ref().and_then(|wanted| wanted.to_str()) {
            Some("thread") => return vec![],
            Some("copies") => return vec![Self::Copies],
            _ => {}
        }
        let command = match &wanted {
            Some(_) => None,
            None => COMMAND.get().cloned().map(Self::Command),
        };
        let programs = wanted.map_or_else(programs, |program| vec![program.into()]);
        let processes = programs.into_iter().map(Self::Processes);
        let processes = command.into_iter().chain(processes);
        processes.chain([Self::Copies]).collect()
    }
}

impl Compilers {
    /// Those of this process.
    ///
    /// # Errors
    /// [`GpuError::DeviceUnavailable`] without NVRTC.
    pub fn of_process() -> Result<&'static Self> {
        if let Some(compilers) = COMPILERS.get() {
            return Ok(compilers);
        }
        let found = Self::new(Way::all(), most())?;
        Ok(COMPILERS.get_or_init(|| found))
    }

    /// By these ways, best first, and by the library as it is where none works; at most `most` kernels at once.
    ///
    /// # Errors
    /// [`GpuError::DeviceUnavailable`] without NVRTC.
    pub fn new(ways: Vec<Way>, most: usize) -> Result<Self> {
        let version = nvrtc::version()?;
        let library = nvrtc::location()?;
        let pool = |way: Way| {
            let start: Box<dyn pool::Start> = match &way {
                Way::Processes(program) => Box::new(Processes {
                    command: program.clone().into(),
                    library: library.to_string(),
                    version,
                }),
                Way::Command(command) => Box::new(Processes {
                    command: command.clone(),
                    library: library.to_string(),
                    version,
                }),
                Way::Copies => Box::new(Copies {
                    library: nvrtc::file().unwrap_or_else(|| library.to_string()),
                }),
                Way::Thread => return None,
            };
            let pool = Pool::new(start, way.most(most));
            Some((way, pool))
        };
        Ok(Self {
            process: std::process::id(),
            ways: ways.into_iter().filter_map(pool).collect(),
            current: AtomicUsize::new(0),
        })
    }

    /// Compile CUDA C++ that may include Warpline's headers to a cubin for `architecture`. Waits for a worker where all have
    /// something to do. A helper process that outlives this one leaves the binary in the file `kept`, an entry of the kernel cache.
    ///
    /// # Errors
    /// [`GpuError::Compile`] with the compiler's log, [`GpuError::DeviceUnavailable`] without NVRTC.
    pub fn compile(
        &self,
        name: &str,
        source: &str,
        architecture: (u32, u32),
        kept: Option<&Path>,
    ) -> Result<Vec<u8>> {
        let run = |job: Job| {
            self.run(&Job {
                kept: kept.map(Path::to_path_buf),
                ..job
            })
        };
        nvrtc::compile_by(run, (name, source), architecture)
    }

    fn run(&self, job: &Job) -> Result<Vec<u8>> {
        let failed = |log: String| GpuError::Compile {
            kernel: job.name.clone(),
            log,
        };
        while let Some((at, _, pool)) = self.current() {
            match pool.compile(job) {
                Ok(outcome) => return outcome.map_err(failed),
                Err(Failure::NoWorker(why)) => self.leave(at, &why),
                // What ends other processes would end this one.
                Err(Failure::Lost(death)) if death.crashed => {
                    let cause = death.cause;
                    return Err(failed(format!("the compiler crashed twice: {cause}")));
                }
                Err(Failure::Lost(_)) => break,
            }
        }
        nvrtc::compile_here(job)
    }

    /// The way in which they compile. Starts a worker, to see whether it can be had.
    pub fn way(&self) -> Way {
        while let Some((at, way, pool)) = self.current() {
            match pool.try_start() {
                Ok(()) => return way.shown(),
                Err(why) => self.leave(at, &why),
            }
        }
        Way::Thread
    }

    /// Workers that there are at the moment.
    pub fn workers(&self) -> usize {
        self.ways.iter().map(|(_, pool)| pool.workers()).sum()
    }

    /// The first way that has not failed.
    fn current(&self) -> Option<(usize, &Way, &Pool)> {
        let at = self.current.load(Ordering::Relaxed);
        let usable = std::process::id() == self.process;
        let (way, pool) = self.ways.get(at).filter(|_| usable)?;
        Some((at, way, pool))
    }

    /// A way does not work.
    fn leave(&self, at: usize, why: &str) {
        let (current, order) = (&self.current, Ordering::Relaxed);
        if current.compare_exchange(at, at + 1, order, order).is_ok() {
            let next = self.ways.get(at + 1).map_or(&Way::Thread, |(way, _)| way);
            log::warn!("kernels are compiled by {next}, which takes longer: {why}");
        }
    }
}

impl fmt::Debug for Compilers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ways = self.ways.iter().map(|(way, _)| way);
        f.debug_list().entries(ways).finish()
    }
}

/// Programs that can be started as helpers: this one, if it serves, else those called `warpline` that lie beside it or beside the
/// library that this code is part of.
fn programs() -> Vec<PathBuf> {
    if helper::this_program_serves() {
        // The file that runs, also where another one has its name by now.
        return vec![PathBuf::from("/proc/self/exe")];
    }
    let mut programs = Vec::new();
    for file in [own_file(), std::env::current_exe().ok()] {
        let beside = file.and_then(|file| Some(file.parent()?.join("warpline")));
        if let Some(beside) = beside.filter(|beside| beside.is_file() && !programs.contains(beside))
        {
            programs.push(beside);
        }
    }
    programs
}

/// The file that this code was loaded from: a program, or a library of another one.
fn own_file() -> Option<PathBuf> {
    nvrtc::file_of(own_file as fn() -> Option<PathBuf> as *const ())
        .map(|file| Path::new(&file).into())
}

impl Way {
    /// With a program's own name.
    fn shown(&self) -> Self {
        match self {
            Self::Processes(program) if program.starts_with("/proc/self") => {
                let target = std::fs::read_link(program);
                Self::Processes(target.unwrap_or_else(|_| program.clone()))
            }
            other => other.clone(),
        }
    }
}

/// Send workers home that had nothing to do for a while; true while there are others.
fn retire_idle() -> bool {
    let Some(compilers) = COMPILERS.get() else {
        return true;
    };
    // Copies of the library stay: they are never unloaded.
    let processes = compilers.ways.iter();
    let processes = processes.filter(|(way, _)| matches!(way, Way::Processes(_) | Way::Command(_)));
    processes.fold(false, |left, (_, pool)| {
        pool.retire(IDLE);
        left || pool.workers() > 0
    })
}
