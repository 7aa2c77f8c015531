//! Tells a person at a terminal that a statement still runs, for how long, and what the device holds meanwhile.

use std::io::IsTerminal;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use warpline::{ByteSize, Device};

/// Statements that are done by then show nothing.
const PATIENCE: Duration = Duration::from_millis(700);
/// Between two looks.
const TICK: Duration = Duration::from_millis(120);

/// A line on standard error while it lives; none where that is no terminal.
pub(super) struct Progress(Option<(Sender<()>, JoinHandle<()>)>);

impl Progress {
    /// Begins to wait.
    pub(super) fn start(device: &Device) -> Self {
        if !std::io::stderr().is_terminal() {
            return Self(None);
        }
        let device = device.clone();
        let (stop, stopped) = channel::<()>();
        let begin = Instant::now();
        let work = move || {
            if stopped.recv_timeout(PATIENCE) != Err(RecvTimeoutError::Timeout) {
                return;
            }
            let bar = ProgressBar::new_spinner();
            if let Ok(style) = ProgressStyle::with_template("{spinner} {msg}") {
                bar.set_style(style);
            }
            loop {
                bar.set_message(state(&device, begin.elapsed()));
                bar.tick();
                if stopped.recv_timeout(TICK) != Err(RecvTimeoutError::Timeout) {
                    break;
                }
            }
            bar.finish_and_clear();
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

fn state(device: &Device, elapsed: Duration) -> String {
    let seconds = elapsed.as_secs_f64();
    match device.memory() {
        None => format!("{seconds:.1} s on the CPU; Ctrl-C cancels"),
        Some(memory) => format!(
            "{seconds:.1} s; {} of {} device memory in use, {} columns, {} indexes; Ctrl-C cancels",
            ByteSize(memory.in_use),
            ByteSize(memory.budget),
            memory.columns,
            memory.indexes
        ),
    }
}
