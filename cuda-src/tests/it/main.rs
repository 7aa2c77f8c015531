//! The emulator and the headers, tried on small kernels under every schedule.

mod support;

mod basics;
mod collectives;
mod compile;
mod faults;
mod kernels;
mod memory;
mod sanitizers;
