//! What commands print: lines for programs on standard output, notes and errors on standard error.

use std::io::Write;

/// Prints a line on standard output; a reader that went away is no error.
pub(crate) fn print_line(line: &str) {
    let _ = writeln!(std::io::stdout(), "{line}");
}

/// Prints a line on standard error, beside what a program reads.
pub(crate) fn print_note(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// Prints an error as the one line that scripts look for.
pub(crate) fn print_error(message: &str) {
    let message = message
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .collect::<Vec<_>>()
        .join("; ");
    let _ = writeln!(std::io::stderr(), "warpline: error: {message}");
}
