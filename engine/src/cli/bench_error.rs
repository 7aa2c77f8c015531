//! Errors of benchmarks as the program has them.

use warpline::Error;

/// The error of a benchmark as the program tells it.
pub(super) fn told(error: warpline_bench::Error) -> Error {
    match error {
        warpline_bench::Error::Bench(message) => Error::Bench(message),
        warpline_bench::Error::Gpu(error) => Error::Gpu(error),
        warpline_bench::Error::DataFusion(error) => Error::DataFusion(error),
        warpline_bench::Error::Tpch(error) => Error::Tpch(error),
    }
}
