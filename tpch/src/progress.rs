//! A progress bar over rows on standard error; invisible when that is not a terminal.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A bar that counts rows and knows how many to expect.
pub(crate) struct RowProgress(ProgressBar);

impl RowProgress {
    /// Starts a bar; `verb` is what happens to the rows, such as "Generating".
    pub(crate) fn start(verb: &'static str, expected_rows: u64) -> Self {
        // indicatif draws nothing on a target that is not a terminal.
        let bar = ProgressBar::with_draw_target(
            Some(expected_rows),
            ProgressDrawTarget::stderr_with_hz(10),
        );
        let template = "{msg} [{bar:40}] {human_pos}/{human_len} rows ({per_sec}, {eta} left)";
        bar.set_style(ProgressStyle::with_template(template).map_or_else(
            |_| ProgressStyle::default_bar(),
            |s| s.progress_chars("=> "),
        ));
        bar.set_message(verb);
        Self(bar)
    }

    /// Counts rows that are done; called from any thread.
    pub(crate) fn add(&self, rows: u64) {
        self.0.inc(rows);
    }
}

impl Drop for RowProgress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
