//! What the emulator and `simt_emulator.cuh` share: the operations a lane asks for and the lane struct.

use std::ffi::{CStr, c_char};
use std::fmt::Write as _;
use std::mem::offset_of;

macro_rules! operations {
    ($( $(#[$meta:meta])* $name:ident = $value:literal, $text:literal; )+) => {
        /// The operations by number, as the generated header names them.
        #[allow(dead_code, reason = "some are only named by the header")]
        pub(super) mod op {
            $( $(#[$meta])* pub(in super::super) const $name: u32 = $value; )+
        }

        const OPERATIONS: &[(&str, u32)] = &[ $( (stringify!($name), $value) ),+ ];

        /// The operation in words, for reports.
        pub(super) fn describe(operation: u32) -> &'static str {
            match operation {
                $( $value => $text, )+
                _ => "an unknown operation",
            }
        }
    };
}

operations! {
    /// Waiting for the block.
    BARRIER = 0, "__syncthreads";
    BARRIER_COUNT = 1, "__syncthreads_count";
    BARRIER_AND = 2, "__syncthreads_and";
    BARRIER_OR = 3, "__syncthreads_or";
    BLOCK_SUM = 4, "block_sum";
    BLOCK_SUM_F64 = 5, "block_sum";
    BLOCK_MIN = 6, "block_min";
    BLOCK_MAX = 7, "block_max";
    BLOCK_SCAN = 8, "block_scan_exclusive_sum";
    /// Waiting for lanes of the warp.
    SYNCWARP = 16, "__syncwarp";
    SHFL = 17, "__shfl_sync";
    SHFL_UP = 18, "__shfl_up_sync";
    SHFL_DOWN = 19, "__shfl_down_sync";
    SHFL_XOR = 20, "__shfl_xor_sync";
    BALLOT = 21, "a warp vote";
    MATCH_ANY = 22, "__match_any_sync";
    WARP_SUM = 23, "a warp sum";
    WARP_SUM_F64 = 24, "a warp sum";
    WARP_MIN = 25, "a warp minimum";
    WARP_MAX = 26, "a warp maximum";
    WARP_AND = 27, "__reduce_and_sync";
    WARP_OR = 28, "__reduce_or_sync";
    WARP_XOR = 29, "__reduce_xor_sync";
    WARP_SCAN = 30, "warp_scan_exclusive_sum";
    /// Letting others run.
    SPIN = 40, "spin_pause";
    POLL = 41, "a load or atomic";
    /// Errors.
    TRAP = 50, "__trap";
    MISALIGNED = 51, "a vector access";
    SHARED_TOO_SMALL = 52, "WL_SHARED";
}

/// One lane, as C++ sees it. The emulator owns it and fills the first fields at the start of a block.
#[repr(C)]
#[derive(Debug)]
pub(super) struct LaneHeader {
    pub(super) thread_x: u32,
    pub(super) block_x: u32,
    pub(super) block_dim_x: u32,
    pub(super) grid_dim_x: u32,
    pub(super) shared: *mut u8,
    pub(super) shared_bytes: u64,
    pub(super) functions: *const Functions,
    pub(super) progress: *mut u64,
    /// Memory operations until the next forced pause; 0 would mean 2^32.
    pub(super) budget: u32,
    pub(super) op: u32,
    pub(super) mask: u32,
    pub(super) line: u32,
    pub(super) file: *const c_char,
    pub(super) input: [u64; 2],
    pub(super) extra: u64,
    pub(super) out: [u64; 2],
}

impl LaneHeader {
    pub(super) const EMPTY: Self = Self {
        thread_x: 0,
        block_x: 0,
        block_dim_x: 0,
        grid_dim_x: 0,
        shared: std::ptr::null_mut(),
        shared_bytes: 0,
        functions: std::ptr::null(),
        progress: std::ptr::null_mut(),
        budget: 1,
        op: 0,
        mask: 0,
        line: 0,
        file: std::ptr::null(),
        input: [0; 2],
        extra: 0,
        out: [0; 2],
    };

    /// The operands as one 128-bit value.
    pub(super) fn wide(&self) -> u128 {
        u128::from(self.input[1]) << 64 | u128::from(self.input[0])
    }

    pub(super) fn set_wide(&mut self, value: u128) {
        self.out = [value as u64, (value >> 64) as u64];
    }

    /// `file:line` of the operation the lane is in.
    ///
    /// # Safety
    /// `file` is null or a C string of a module that is still loaded.
    pub(super) unsafe fn place(&self) -> String {
        if self.file.is_null() {
            return "the start of the kernel".to_owned();
        }
        // SAFETY: the caller vouches for the string.
        let file = unsafe { CStr::from_ptr(self.file) }.to_string_lossy();
        format!("{file}:{}", self.line)
    }
}

/// What a lane calls when it waits. Called on the lane's stack: these functions never panic.
#[repr(C)]
pub(super) struct Functions {
    pub(super) warp: unsafe extern "C" fn(*mut LaneHeader),
    pub(super) block: unsafe extern "C" fn(*mut LaneHeader),
    pub(super) pause: unsafe extern "C" fn(*mut LaneHeader),
    pub(super) fail: unsafe extern "C" fn(*mut LaneHeader),
}

/// What `name_wl_info` reports about the kernel `name`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct KernelInfo {
    pub(super) arguments_bytes: u32,
    pub(super) block_threads: u32,
}

/// The text of `wl_abi.cuh`: operation numbers, and assertions that C++ lays the lane out as Rust does.
pub(super) fn header() -> String {
    let mut text = String::from("#pragma once\nenum wl_op : u32 {\n");
    for (name, value) in OPERATIONS {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "    WL_OP_{name} = {value},");
    }
    text.push_str("};\n#define WL_ABI_ASSERTS \\\n");
    let _ = writeln!(
        text,
        "    static_assert(sizeof(wl_lane) == {}, \"wl_lane differs from Rust\"); \\",
        size_of::<LaneHeader>()
    );
    let offsets = [
        ("thread_x", offset_of!(LaneHeader, thread_x)),
        ("block_x", offset_of!(LaneHeader, block_x)),
        ("block_dim_x", offset_of!(LaneHeader, block_dim_x)),
        ("grid_dim_x", offset_of!(LaneHeader, grid_dim_x)),
        ("shared", offset_of!(LaneHeader, shared)),
        ("shared_bytes", offset_of!(LaneHeader, shared_bytes)),
        ("functions", offset_of!(LaneHeader, functions)),
        ("progress", offset_of!(LaneHeader, progress)),
        ("budget", offset_of!(LaneHeader, budget)),
        ("op", offset_of!(LaneHeader, op)),
        ("mask", offset_of!(LaneHeader, mask)),
        ("line", offset_of!(LaneHeader, line)),
        ("file", offset_of!(LaneHeader, file)),
        ("in", offset_of!(LaneHeader, input)),
        ("extra", offset_of!(LaneHeader, extra)),
        ("out", offset_of!(LaneHeader, out)),
    ];
    for (field, offset) in offsets {
        let _ = writeln!(
            text,
            "    static_assert(__builtin_offsetof(wl_lane, {field}) == {offset}, \"wl_lane::{field} differs from Rust\"); \\"
        );
    }
    let _ = writeln!(
        text,
        "    static_assert(sizeof(wl_functions) == {}, \"wl_functions differs from Rust\");",
        size_of::<Functions>()
    );
    text
}
