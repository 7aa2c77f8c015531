//! The `warpline-sql-tests` program: random queries and other engines' test suites, on a device and on plain DataFusion.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use warpline_sql_tests::{fuzz, suite};

/// Find queries that Warpline and plain DataFusion answer differently.
#[derive(Debug, Parser)]
#[command(name = "warpline-sql-tests", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Draw tables and queries at random.
    Fuzz(fuzz::Arguments),
    /// Run the statements of sqllogictest files of other engines.
    Suite(suite::Arguments),
}

fn main() -> ExitCode {
    // Kernels are compiled by copies of this program: threads that compile in this one would go on while it ends, and crash.
    if warpline::serve_compiler_if_asked() {
        return ExitCode::SUCCESS;
    }
    match Arguments::parse().command {
        Command::Fuzz(arguments) => fuzz::run(&arguments),
        Command::Suite(arguments) => suite::run(&arguments),
    }
}
