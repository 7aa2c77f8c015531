//! `warpline jcch`: TPC-H's commands on skewed data, with parameters that a seed draws.

use std::process::ExitCode;

use warpline::Result;
use warpline_tpch::jcch::Binding;
use warpline_tpch::{Benchmark, Scale};

use super::args::{DataCommand, JcchArguments};
use super::print::print_line;
use super::{generate, tpch};

/// Runs the benchmark, generates its data, or shows the parameters.
pub(super) async fn run(arguments: JcchArguments) -> Result<ExitCode> {
    let JcchArguments {
        command,
        bindings,
        seed,
        show_parameters,
        run,
    } = arguments;
    let benchmark = Benchmark::Jcch { bindings, seed };
    if let Some(DataCommand::Generate(arguments)) = command {
        return generate::run(benchmark, arguments).await;
    }
    if !show_parameters {
        return tpch::run(benchmark, run).await;
    }
    let binding = Binding {
        bindings,
        seed,
        scale: benchmark
            .dataset(run.scale.map_or_else(|| Scale::new(1.0), Ok)?)?
            .scale(),
    };
    for number in run.queries() {
        print_line(&format!(
            "{number}\t{}",
            binding.parameters(number).join("\t")
        ));
    }
    Ok(ExitCode::SUCCESS)
}
