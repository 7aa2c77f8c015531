//! Progress of a long statement on a terminal: elapsed time and device memory.
//!
//! The line is written by hand: a library's bar fills the line, and the `^C` that the terminal echoes would begin another
//! one, below what is to be erased.

use std::io::{IsTerminal, Write};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use warpline::{ByteSize, Device};

/// Statements that are done by then show nothing.
const PATIENCE: Duration = Duration::from_millis(700);
/// Between two looks.
const TICK: Duration = Duration::from_millis(250);
/// To the beginning of the line, which is erased.
pub(super) const ERASE: &str = "\r\x1b[K";

/// A line on standard error while it lives; none where that is no terminal.
pub(super) struct Progress(Option<(Sender<()>, JoinHandle<()>)>);

impl Progress {
    /// Begins to wait.
    pub(super) fn start(device: &Device) -> Self {
        let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        if dumb || !std::io::stderr().is_terminal() {
            return Self(None);
        }
        let device = device.clone();
        let (stop, stopped) = channel::<()>();
        let begin = Instant::now();
        let waits = move |time| stopped.recv_timeout(time) == Err(RecvTimeoutError::Timeout);
        let work = move || {
            if !waits(PATIENCE) {
                return;
            }
            loop {
                write(&format!("{ERASE}{}", state(&device, begin.elapsed())));
                if !waits(TICK) {
                    break;
                }
            }
            write(ERASE);
        };
        let thread = std::thread::Builder::new()
            .name("progress".into())
            .spawn(work);
        // Without a thread there is no progress to see, and nothing else is amiss.
        Self(thread.ok().map(|thread| (stop, thread)))
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some((stop, thread)) = self.0.take() {
            drop(stop);
            // The line is gone before anything else is printed.
            let _ = thread.join();
        }
    }
}

/// A terminal that went away is no error.
fn write(text: &str) {
    let mut terminal = std::io::stderr().lock();
    let _ = terminal
        .write_all(text.as_bytes())
        .and_then(|()| terminal.flush());
}

/// Short enough for a terminal of 80 columns.
fn state(device: &Device, elapsed: Duration) -> String {
    let seconds = elapsed.as_secs_f64();
    match device.memory() {
        None => format!("{seconds:.1} s on the CPU (Ctrl-C cancels) "),
        Some(memory) => format!(
            "{seconds:.1} s, {} of {} in use on the device, {} columns (Ctrl-C cancels) ",
            ByteSize(memory.in_use),
            ByteSize(memory.budget),
            memory.columns,
        ),
    }
}
