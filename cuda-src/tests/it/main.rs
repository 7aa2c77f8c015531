//! The emulator and the headers, tried on small kernels under every schedule.

mod support;

mod basics;
