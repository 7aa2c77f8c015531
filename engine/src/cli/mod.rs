//! The command line: its arguments, and what each command does.

mod answer;
mod args;
mod bench;
mod calibrate;
mod clients;
mod cluster;
mod editor;
mod generate;
mod inspect;
mod jcch;
mod logging;
mod measure;
mod output;
mod profile;
mod progress;
mod queries;
mod rows;
mod script;
#[cfg(feature = "serve")]
mod serve;
#[cfg(feature = "serve")]
mod service;
mod shell;
mod timing;
mod tpch;

use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

use clap::Parser;

use args::{Arguments, Command, DataCommand};
use warpline_tpch::Benchmark;

/// Reads the arguments, of which the first is the program's name, and runs the command.
///
/// # Errors
/// What the command reports; [`print_error`] shows it.
pub(crate) async fn run(arguments: Vec<OsString>) -> warpline::Result<ExitCode> {
    let arguments = match Arguments::try_parse_from(arguments) {
        Ok(arguments) => arguments,
        // Help and the version come this way, too. A reader that went away is no error.
        Err(told) => {
            let _ = told.print();
            return Ok(ExitCode::from(u8::try_from(told.exit_code()).unwrap_or(1)));
        }
    };
    logging::start(arguments.log.as_deref());
    match arguments.command {
        None => shell::run(arguments.shell).await,
        Some(Command::Devices) => {
            for line in warpline::device_reports() {
                print_line(&line);
            }
            Ok(ExitCode::SUCCESS)
        }
        #[cfg(feature = "serve")]
        Some(Command::Serve(arguments)) => serve::run(*arguments).await,
        #[cfg(feature = "cluster")]
        Some(Command::Worker(arguments)) => cluster::run(*arguments).await,
        Some(Command::Profile(arguments)) => profile::run(*arguments).await,
        Some(Command::Bench(arguments)) => bench::run(*arguments).await,
        Some(Command::Calibrate(arguments)) => calibrate::run(&arguments),
        Some(Command::Tpch(tpch)) => match tpch.command {
            None => tpch::run(Benchmark::Tpch, tpch.run).await,
            Some(DataCommand::Generate(arguments)) => {
                generate::run(Benchmark::Tpch, arguments).await
            }
        },
        Some(Command::Jcch(jcch)) => jcch::run(*jcch).await,
    }
}

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
