//! The command line: its arguments, and what each command does.

mod answer;
mod args;
mod bench;
mod bench_error;
mod calibrate;
mod clients;
mod cluster;
mod editor;
mod generate;
mod hits;
mod inspect;
mod jcch;
mod leave;
mod logging;
mod measure;
mod output;
mod print;
mod profile;
mod progress;
mod queries;
mod rows;
mod script;
#[cfg(feature = "serve")]
mod serve;
#[cfg(feature = "serve")]
mod service;
mod session_args;
mod shell;
mod timing;
mod tpch;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Parser;

use args::{Arguments, Command, DataCommand};
pub(crate) use print::print_error;
use print::print_line;
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
