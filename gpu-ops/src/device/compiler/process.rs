//! Helper processes: programs that serve through their standard input and output.
//!
//! A helper ends when its input is closed, and by a signal of the system when the thread that started it ends, once it has compiled
//! what it is about. So one thread starts all of them, and lives as long as this process.

use std::io::{self, BufReader};
use std::os::fd::AsRawFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::{LazyLock, mpsc};
use std::time::{Duration, Instant};

use super::super::nvrtc::{Headers, Job};
use super::HelperCommand;
use super::helper::HELPER_ARGUMENT;
use super::message::{Reply, Request, ask};
use super::pool::{Death, Outcome, Start, Worker};

/// How long a helper that has just been started may take to answer.
const PATIENCE: Duration = Duration::from_secs(20);

/// Starts helpers by one command.
pub(super) struct Processes {
    pub(super) command: HelperCommand,
    /// NVRTC, for the helper to load, and its release here.
    pub(super) library: String,
    pub(super) version: (u32, u32),
}

impl Start for Processes {
    fn start(&self) -> Result<Box<dyn Worker>, String> {
        let failed = |error: String| format!("{}: {error}", self.command.program.display());
        let mut helper = Helper::start(&self.command).map_err(|error| failed(error.to_string()))?;
        let setup = Request::Setup {
            library: self.library.clone(),
            headers: Headers::own(),
        };
        match helper.set_up(&setup) {
            Ok(Reply::Ready(major, minor)) if (major, minor) == self.version => {
                Ok(Box::new(helper))
            }
            Ok(Reply::Ready(major, minor)) => Err(failed(format!(
                "it loads NVRTC {major}.{minor}, not {}.{}",
                self.version.0, self.version.1
            ))),
            Ok(Reply::Unable(why)) => Err(failed(why)),
            Ok(_) => Err(failed("it answers something else".into())),
            Err(error) => Err(failed(format!("it does not serve: {error}"))),
        }
    }
}

/// A helper process; killed and waited for when it is dropped.
struct Helper {
    process: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Helper {
    fn start(command: &HelperCommand) -> io::Result<Self> {
        let mut process = spawn(command)?;
        match (process.stdin.take(), process.stdout.take()) {
            (Some(input), Some(output)) => Ok(Self {
                process,
                input,
                output: BufReader::new(output),
            }),
            _ => Err(io::Error::other("no pipes")),
        }
    }

    /// The answer to the first request; a program that is no helper may give none for ever.
    fn set_up(&mut self, setup: &Request) -> io::Result<Reply> {
        // More than a pipe holds: what does not read would block this thread.
        set_blocking(&self.input, false)?;
        let end = Instant::now() + PATIENCE;
        setup.write(&mut Patient {
            input: &mut self.input,
            end,
        })?;
        set_blocking(&self.input, true)?;
        wait_for(self.output.get_ref(), libc::POLLIN, end)?;
        Reply::read(&mut self.output)
    }
}

impl Worker for Helper {
    fn compile(&mut self, job: &Job) -> Result<Outcome, Death> {
        ask(job, &mut self.input, &mut self.output).map_err(|error| {
            // One that has ended by itself is not changed by this.
            let _ = self.process.kill();
            match self.process.wait() {
                Ok(status) => Death {
                    cause: format!("{error} ({status})"),
                    crashed: by_fault(status),
                },
                Err(_) => Death {
                    cause: error.to_string(),
                    crashed: false,
                },
            }
        })
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        let _ = self.process.kill();
        // No zombie stays; a second wait is answered at once.
        let _ = self.process.wait();
    }
}

/// Did a process end by a signal that its own code raises?
fn by_fault(status: ExitStatus) -> bool {
    let faults = [
        libc::SIGSEGV,
        libc::SIGBUS,
        libc::SIGILL,
        libc::SIGFPE,
        libc::SIGABRT,
    ];
    status
        .signal()
        .is_some_and(|signal| faults.contains(&signal))
}

/// A pipe that does not block, waited for until a time.
struct Patient<'a> {
    input: &'a mut ChildStdin,
    end: Instant,
}

impl io::Write for Patient<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            match self.input.write(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    wait_for(self.input, libc::POLLOUT, self.end)?;
                }
                other => return other,
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn set_blocking(pipe: &impl AsRawFd, blocking: bool) -> io::Result<()> {
    let mut other = libc::c_int::from(!blocking);
    // SAFETY: the descriptor is open; the call reads one integer.
    match unsafe { libc::ioctl(pipe.as_raw_fd(), libc::FIONBIO, &mut other) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Wait until a pipe is ready, or its other end is closed.
fn wait_for(pipe: &impl AsRawFd, events: libc::c_short, end: Instant) -> io::Result<()> {
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let mut poll = libc::pollfd {
            fd: pipe.as_raw_fd(),
            events,
            revents: 0,
        };
        // Rounded up: the call waits for whole milliseconds.
        let milliseconds = left.as_nanos().div_ceil(1_000_000);
        let milliseconds = libc::c_int::try_from(milliseconds).unwrap_or(libc::c_int::MAX);
        // SAFETY: one entry, which lives during the call.
        match unsafe { libc::poll(&mut poll, 1, milliseconds) } {
            0 => return Err(io::ErrorKind::TimedOut.into()),
            ready if ready > 0 => return Ok(()),
            _ => {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
        }
    }
}

/// A command to be run, and who waits for it.
type Wanted = (HelperCommand, mpsc::Sender<io::Result<Child>>);

/// A process of the program, started by the thread that starts them all.
fn spawn(command: &HelperCommand) -> io::Result<Child> {
    static STARTER: LazyLock<Option<mpsc::Sender<Wanted>>> = LazyLock::new(|| {
        let (sender, wanted) = mpsc::channel();
        let thread = std::thread::Builder::new().name("warpline compilers".into());
        match thread.spawn(move || starter(&wanted)) {
            Ok(_) => Some(sender),
            Err(error) => {
                log::debug!("no thread starts helpers: {error}");
                None
            }
        }
    });
    let gone = || io::Error::other("no thread starts it");
    let (sender, answer) = mpsc::channel();
    let starter = STARTER.as_ref().ok_or_else(gone)?;
    starter
        .send((command.clone(), sender))
        .map_err(|_| gone())?;
    answer.recv().map_err(|_| gone())?
}

/// Starts helpers, and sends those home that have had nothing to do for a while.
fn starter(wanted: &mpsc::Receiver<Wanted>) {
    let mut any = false;
    loop {
        let next = match any {
            true => wanted.recv_timeout(super::IDLE / 2),
            false => wanted.recv().map_err(Into::into),
        };
        match next {
            Ok((command, answer)) => {
                any = true;
                // Who does not wait for it any more has it dropped.
                let _ = answer.send(start(&command));
            }
            Err(mpsc::RecvTimeoutError::Timeout) => any = super::retire_idle(),
            Err(mpsc::RecvTimeoutError::Disconnected) => return,
        }
    }
}

fn start(command: &HelperCommand) -> io::Result<Child> {
    Command::new(&command.program)
        .args(&command.arguments)
        .arg(HELPER_ARGUMENT)
        .arg(std::process::id().to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        // Ctrl-C at a terminal is for the shell, not for its helpers.
        .process_group(0)
        .spawn()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn processes(program: &str) -> Processes {
        Processes {
            command: PathBuf::from(program).into(),
            library: "libnvrtc.so".into(),
            version: (13, 0),
        }
    }

    #[test]
    fn programs_that_do_not_serve_are_named() {
        // One that is not there, one that ends at once, one that says what it hears.
        for program in ["/nonexistent/warpline", "/bin/true", "/bin/cat"] {
            let error = processes(program).start().err().unwrap();
            assert!(error.starts_with(program), "{error}");
        }
    }

    #[test]
    fn a_helper_that_is_dropped_is_gone() {
        let helper = Helper::start(&PathBuf::from("/bin/cat").into()).unwrap();
        let process = PathBuf::from(format!("/proc/{}", helper.process.id()));
        drop(helper);
        assert!(!process.exists(), "it lives, or nobody waited for it");
    }

    #[test]
    fn a_pipe_that_stays_silent_is_waited_for_no_longer_than_told() {
        let (reader, _writer) = std::io::pipe().unwrap();
        let end = Instant::now() + Duration::from_millis(20);
        let error = wait_for(&reader, libc::POLLIN, end).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(Instant::now() >= end);
    }

    #[test]
    fn faults_are_told_from_kills() {
        assert!(by_fault(ExitStatus::from_raw(libc::SIGSEGV)));
        assert!(!by_fault(ExitStatus::from_raw(libc::SIGKILL)));
        assert!(!by_fault(ExitStatus::from_raw(1 << 8)));
    }
}
