//! Logging to standard error: warnings, or what `--log` or `RUST_LOG` selects.

use std::io::{IsTerminal, Write};
use std::time::Instant;

use env_filter::{Builder, Filter};
use log::{Log, Metadata, Record};

use super::progress::ERASE;

/// What is shown where nobody asks for something else.
const DEFAULT: &str = "warn";

/// Writes a line for each record that a filter lets through.
struct Lines {
    filter: Filter,
    begun: Instant,
    /// Whether another line may stand there half-written: progress, which is drawn again below.
    terminal: bool,
}

impl Log for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        self.filter.enabled(metadata)
    }

    fn log(&self, record: &Record<'_>) {
        if !self.filter.matches(record) {
            return;
        }
        let erase = if self.terminal { ERASE } else { "" };
        let seconds = self.begun.elapsed().as_secs_f64();
        let (level, target) = (record.level(), record.target());
        // In one piece, so that lines of several threads do not mix. A reader that went away is no error.
        let line = format!(
            "{erase}[{seconds:.3} s {level} {target}] {}\n",
            record.args()
        );
        let _ = std::io::stderr().write_all(line.as_bytes());
    }

    fn flush(&self) {}
}

/// Checks the filter of `--log`.
pub(super) fn parse_filter(text: &str) -> Result<String, String> {
    match Builder::new().try_parse(text) {
        Ok(_) => Ok(text.to_string()),
        Err(error) => Err(format!(
            "{error}; give a level (off, error, warn, info, debug or trace), or MODULE=LEVEL, several with commas"
        )),
    }
}

/// Shows what `asked` says, else `RUST_LOG`, else warnings, from now on.
pub(super) fn start(asked: Option<&str>) {
    let variable = std::env::var("RUST_LOG")
        .ok()
        .filter(|text| !text.is_empty());
    let mut builder = Builder::new();
    let mut refused = None;
    match (asked, &variable) {
        (Some(filter), _) => {
            builder.parse(filter);
        }
        (None, Some(filter)) => {
            // It may be meant for another program.
            if let Err(error) = builder.try_parse(filter) {
                refused = Some(error);
                builder = Builder::new();
                builder.parse(DEFAULT);
            }
        }
        (None, None) => {
            builder.parse(DEFAULT);
        }
    }
    let filter = builder.build();
    let most = filter.filter();
    let lines = Lines {
        filter,
        begun: Instant::now(),
        terminal: std::io::stderr().is_terminal(),
    };
    // Fails where there is a logger already, which goes on then.
    if log::set_boxed_logger(Box::new(lines)).is_ok() {
        log::set_max_level(most);
    }
    if let Some(error) = refused {
        log::warn!("RUST_LOG is not used: {error}");
    }
}
