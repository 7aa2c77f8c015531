//! The emulator and the headers, tried on small kernels under every schedule.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

mod basics;
mod collectives;
mod compile;
mod faults;
mod kernels;
mod memory;
mod sanitizers;
mod strings;
