//! Constants that are written in Rust and in CUDA C++ are equal: the emulator compiles assertions of them.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use super::ir::program::{CLASSES, COUNTER_WORDS, QUEUE};
use super::kernel::stores::RESERVE_BYTES;
use crate::device::Device;
use crate::device::emulated::EmulatedDevice;
use crate::error::ArithmeticFault;

#[test]
fn constants_are_those_of_the_headers() {
    let mut source =
        String::from("#define WL_BLOCK_THREADS 256\n#define WL_ROWS 8\n#include \"simt.cuh\"\n");
    for (header, _) in warpline_cuda::headers() {
        // What the two machines have of their own comes with simt.cuh; pairs.cuh wants the width of its keys.
        if !matches!(*header, "simt_gpu.cuh" | "pairs.cuh") {
            source += &format!("#include \"{header}\"\n");
        }
    }
    let mut equal = |constant: &str, value: String| {
        source += &format!("static_assert({constant} == {value}, \"{constant}\");\n");
    };
    equal("sizeof(ReserveScratch)", RESERVE_BYTES.to_string());
    equal("WL_TREE_QUEUE", QUEUE.to_string());
    equal("WL_TREE_CLASSES", CLASSES.to_string());
    equal("sizeof(TreeCounters)", format!("{COUNTER_WORDS} * 4"));
    // Rows without an entry leave the device as Rust's largest number.
    equal("WL_NO_ENTRY", format!("{}u", u32::MAX));
    for (fault, name) in ArithmeticFault::ALL {
        equal(name, (fault as u32).to_string());
    }
    source += "struct Args { u64 rows; };\nWL_KERNEL(constants, Args, args) { (void)args; }\n";
    let device = EmulatedDevice::open().unwrap();
    device.compile("constants", &source).unwrap();
}

#[test]
fn fault_words_are_faults() {
    for (fault, _) in ArithmeticFault::ALL {
        assert_eq!(ArithmeticFault::of_word(fault as u64), Some(fault));
    }
    assert_eq!(ArithmeticFault::of_word(0), None);
}
