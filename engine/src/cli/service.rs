//! What programs that serve others have in common: the device they open, and how they stop.

use warpline::{Device, DeviceChoice, Error, Result};

use super::print::{print_line, print_note};
use super::session_args::SessionArguments;

impl SessionArguments {
    /// The device of these choices.
    ///
    /// # Errors
    /// When it cannot be opened, or is the CPU under `--require-gpu`.
    pub(super) fn open_device(&self) -> Result<Device> {
        let choice = self.device.unwrap_or(DeviceChoice::Auto);
        let device = Device::open(choice, self.device_memory())?;
        if self.require_gpu && !device.is_in_use() {
            return Err(Error::NoGpu {
                device: device.name(),
            });
        }
        Ok(device)
    }
}

/// Says what runs: a word, and where or what it is.
pub(super) fn print_fact(name: &str, fact: &str) {
    print_line(&format!("{name:<11} {fact}"));
}

/// Waits for Ctrl-C or SIGTERM, then for `stop`, which lets `work` end first; a second signal cuts that short.
pub(super) async fn until_stopped(work: &str, stop: impl Future<Output = ()>) {
    signal().await;
    print_note(&format!(
        "stopping: {work} end first; once more, and they do not"
    ));
    tokio::select! {
        () = stop => {}
        () = signal() => {}
    }
}

/// Waits for Ctrl-C or SIGTERM.
async fn signal() {
    let terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate());
    let terminated = async {
        match terminate {
            Ok(mut terminate) => {
                terminate.recv().await;
            }
            Err(error) => {
                log::warn!("SIGTERM ends the program at once: {error}");
                std::future::pending::<()>().await;
            }
        }
    };
    tokio::select! {
        _ = tokio::signal::ctrl_c() => {}
        () = terminated => {}
    }
}
