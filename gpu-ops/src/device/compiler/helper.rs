//! What a helper process does: compile what comes through its pipe until the pipe is closed.
//!
//! It ends with the process that asks, but for a kernel that it compiles then: the binary goes to the kernel cache, where the next
//! process finds it. Kernels that take longer than a short query would otherwise never be there.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufReader, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::OnceLock;

use super::super::cubin_cache::write_entry;
use super::super::nvrtc::{Headers, Job, Nvrtc};
use super::message::{Reply, Request};

/// First argument of a program that is to be a helper; the second is the process that asks.
pub const HELPER_ARGUMENT: &str = "--compile-kernels-for";

/// How far helpers stand back from others that want the cores: a tenth of a share.
const NICENESS: libc::c_int = 10;

/// Memory that a helper takes from the system at a time and keeps, in bytes. The compiler frees what a kernel took, and takes it again
/// for the next: to have it mapped each time is a twentieth of the time here, and more where many helpers do it at once.
#[cfg(target_env = "gnu")]
const KEPT_MEMORY: libc::c_int = 64 << 20;

/// Allocations of fewer bytes come out of that memory; the library takes no greater number.
#[cfg(target_env = "gnu")]
const MAPPED_ALLOCATION: libc::c_int = 32 << 20;

/// This program serves when it is started with [`HELPER_ARGUMENT`].
static SERVES: OnceLock<()> = OnceLock::new();

/// To be called first in `main`. In a process that was started to compile kernels, it does so to its end and returns true: `main`
/// ends then. In any other it returns false, and notes that copies of this program can be started for that.
pub fn serve_if_asked() -> bool {
    let mut arguments = std::env::args_os().skip(1);
    if arguments
        .next()
        .is_none_or(|first| first != HELPER_ARGUMENT)
    {
        let _ = SERVES.set(());
        return false;
    }
    match arguments.next().as_ref().and_then(process) {
        Some(parent) => serve_process(parent),
        None => log::debug!("the helper ends: no process is named"),
    }
    true
}

/// Compile kernels for the process `parent`, which must have started this one, to its end. For hosts that read the arguments of
/// helpers by themselves; see [`super::start_by`].
pub fn serve_process(parent: i32) {
    if let Err(error) = run(parent) {
        log::debug!("the helper ends: {error}");
    }
}

/// Has this program called [`serve_if_asked`]?
pub(super) fn this_program_serves() -> bool {
    SERVES.get().is_some()
}

fn process(text: &OsString) -> Option<libc::pid_t> {
    text.to_str()?.parse().ok()
}

/// The process that asks.
#[derive(Debug, Clone, Copy)]
struct Parent(libc::pid_t);

impl Parent {
    /// End at once when it does, or not.
    fn end_with(self, at_once: bool) {
        let signal = if at_once { libc::SIGKILL } else { 0 };
        // SAFETY: takes and changes nothing but this process's own state.
        unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, signal) };
    }

    fn is_gone(self) -> bool {
        // SAFETY: no arguments, and it cannot fail.
        unsafe { libc::getppid() != self.0 }
    }
}

/// Serve the process `parent`, and no longer than it lives.
fn run(parent: libc::pid_t) -> io::Result<()> {
    let parent = Parent(parent);
    parent.end_with(true);
    if parent.is_gone() {
        return Err(io::Error::other("the process that asked is gone"));
    }
    // SAFETY: nothing is open yet but the standard streams; what was inherited beyond them is of no use here.
    unsafe { libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, 0) };
    let input = io::stdin().as_fd().try_clone_to_owned()?;
    let output = io::stdout().as_fd().try_clone_to_owned()?;
    // Whoever needs the cores for an answer has them first, such as a CPU plan beside the device. Without it helpers work as well.
    // SAFETY: plain numbers.
    unsafe { libc::nice(NICENESS) };
    #[cfg(target_env = "gnu")]
    for (setting, bytes) in [
        (libc::M_TRIM_THRESHOLD, KEPT_MEMORY),
        (libc::M_TOP_PAD, KEPT_MEMORY),
        (libc::M_MMAP_THRESHOLD, MAPPED_ALLOCATION),
    ] {
        // A setting that is not taken leaves helpers as they were.
        // SAFETY: no other thread is there to allocate.
        unsafe { libc::mallopt(setting, bytes) };
    }
    // What a library prints is no message.
    // SAFETY: both are open: standard error is where this program's messages go to.
    if unsafe { libc::dup2(libc::STDERR_FILENO, libc::STDOUT_FILENO) } < 0 {
        return Err(io::Error::last_os_error());
    }
    let file = |descriptor: OwnedFd| File::from(descriptor);
    serve(BufReader::new(file(input)), file(output), |library| {
        let nvrtc = Nvrtc::open(library)?;
        Ok(OfProcess { nvrtc, parent })
    })
}

/// The library, on behalf of another process.
struct OfProcess {
    nvrtc: Nvrtc,
    parent: Parent,
}

/// What a helper compiles with.
pub(super) trait Compiler {
    /// Its release.
    fn version(&self) -> (u32, u32);

    /// The binary of a source, or the compiler's messages.
    fn compile(&self, job: &Job, headers: &Headers) -> Result<Vec<u8>, String>;

    /// Does nobody wait for it any more?
    fn is_alone(&self) -> bool;
}

impl Compiler for OfProcess {
    fn version(&self) -> (u32, u32) {
        self.nvrtc.version
    }

    fn compile(&self, job: &Job, headers: &Headers) -> Result<Vec<u8>, String> {
        self.parent.end_with(job.kept.is_none());
        let compiled = self.nvrtc.compile(job, headers);
        self.parent.end_with(true);
        compiled
    }

    fn is_alone(&self) -> bool {
        self.parent.is_gone()
    }
}

/// Answer requests until there are no more.
///
/// # Errors
/// [`io::Error`] when the other side is gone, or does not keep to the protocol.
pub(super) fn serve<C: Compiler>(
    mut input: impl Read,
    mut output: impl Write,
    open: impl Fn(&str) -> Result<C, String>,
) -> io::Result<()> {
    let mut ready = None;
    while let Some(request) = Request::read(&mut input)? {
        let reply = match (request, &ready) {
            (Request::Setup { library, headers }, _) => match open(&library) {
                Ok(compiler) => {
                    let (major, minor) = compiler.version();
                    ready = Some((compiler, headers));
                    Reply::Ready(major, minor)
                }
                Err(why) => Reply::Unable(why),
            },
            (Request::Compile(job), Some((compiler, headers))) => {
                let reply = match compiler.compile(&job, headers) {
                    Ok(binary) => Reply::Compiled(binary),
                    Err(log) => Reply::Refused(log),
                };
                // Others may hold the pipe open.
                let sent = match compiler.is_alone() {
                    true => Err(io::Error::from(io::ErrorKind::BrokenPipe)),
                    false => reply.write(&mut output),
                };
                if sent.is_err()
                    && let (Reply::Compiled(binary), Some(file)) = (&reply, &job.kept)
                {
                    write_entry(file, binary)?;
                }
                sent?;
                continue;
            }
            (Request::Compile(_), None) => Reply::Unable("nothing is set up".into()),
        };
        reply.write(&mut output)?;
    }
    Ok(())
}
