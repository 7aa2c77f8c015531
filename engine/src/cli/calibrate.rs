//! `warpline calibrate`: measures and stores the device's cost constants.

use std::process::ExitCode;

use warpline::{Device, DeviceChoice, Error, Result};

use super::args::CalibrateArguments;
use super::print::print_line;

/// Measures and keeps the constants, or shows those in use.
pub(super) fn run(arguments: &CalibrateArguments) -> Result<ExitCode> {
    let device = Device::open(arguments.device.unwrap_or(DeviceChoice::Auto), None)?;
    if arguments.show {
        let constants = device
            .constants()
            .ok_or_else(|| Error::Device("the CPU answers: there are no constants".into()))?;
        print_line(constants.trim_end());
        return Ok(ExitCode::SUCCESS);
    }
    let (constants, path) = device.calibrate()?;
    print_line(constants.trim_end());
    match path {
        Some(path) => print_line(&format!("kept in {}", path.display())),
        None => print_line("not kept: the emulator's times mean nothing"),
    }
    Ok(ExitCode::SUCCESS)
}
