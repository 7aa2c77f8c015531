//! Constants that are written in Rust and in CUDA C++ are equal: the emulator compiles assertions of them.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use super::ir::program::{CLASSES, COUNTER_WORDS, QUEUE};
use super::kernel::stores::RESERVE_BYTES;
use crate::device::Device;
use crate::device::emulated::EmulatedDevice;

#[test]
fn constants_are_those_of_the_headers() {
    let source = format!(
        "#define WL_BLOCK_THREADS 256\n#define WL_ROWS 8\n\
         #include \"simt.cuh\"\n#include \"primitives.cuh\"\n#include \"pipeline.cuh\"\n#include \"join.cuh\"\n\
         #include \"group.cuh\"\n#include \"strings.cuh\"\n#include \"stop.cuh\"\n#include \"tree.cuh\"\n\
         #include \"tree_share.cuh\"\n\
         static_assert(sizeof(ReserveScratch) == {RESERVE_BYTES}, \"bytes of ReserveScratch\");\n\
         static_assert(WL_TREE_QUEUE == {QUEUE}, \"entries of a queue\");\n\
         static_assert(WL_TREE_CLASSES == {CLASSES}, \"classes of workload sizes\");\n\
         static_assert(sizeof(TreeCounters) == {COUNTER_WORDS} * 4, \"words of TreeCounters\");\n\
         struct Args {{ u64 rows; }};\nWL_KERNEL(constants, Args, args) {{ (void)args; }}\n"
    );
    let device = EmulatedDevice::open().unwrap();
    device.compile("constants", &source).unwrap();
}
