//! Warpline's CUDA C++ and the emulator that runs it on the CPU.
//!
//! # One source, two machines
//!
//! A kernel is CUDA C++ that includes `simt.cuh` (and `primitives.cuh`, …) and nothing else. Two compilers read
//! it: NVRTC, for the GPU, and the machine's C++ compiler, for the [`emulator`]. `simt.cuh` is the only file
//! that knows which one is at work. The emulator runs every lane as a coroutine with a stack of its own and
//! switches between lanes where CUDA's lanes can wait for each other, so the whole of a kernel, with its
//! barriers, shuffles, atomics and spin loops, runs in a test on any machine, under sanitizers too.
//!
//! It is a test device. It finds wrong indices, missing barriers, deadlocks, races at atomics, misaligned
//! accesses, undefined behaviour of C++. It cannot find missing fences (it is sequentially consistent), races
//! between plain loads and stores that no atomic separates, or anything about speed; and it never fuses a
//! multiplication with an addition.
//!
//! # The contract
//!
//! - Integers and floats are `i8 … i128`, `u8 … u128`, `f32`, `f64`.
//! - `WL_KERNEL(name, Args, args) { … }` declares a kernel with one struct argument. The struct comes from
//!   [`kernel_args!`], which declares it for both languages and lets C++ check the layout.
//! - `WL_SHARED(Type, name);` views the block's dynamic shared memory as one struct. `__shared__` variables do
//!   not exist in the emulator, where they would be shared between blocks.
//! - Launches are one-dimensional. A source may define `WL_BLOCK_THREADS` (256 by default) and `WL_MIN_BLOCKS`
//!   before the include; they become launch bounds.
//! - Functions are `WL_DEVICE`. CUDA's names mean what they mean in CUDA, and there are no overloads that CUDA
//!   lacks: barriers, `__syncwarp`, shuffles, votes, `__match_any_sync`, `__reduce_*_sync`, atomics, bit and
//!   multiplication intrinsics, elementary functions.
//! - `load_relaxed`, `load_acquire`, `store_relaxed`, `store_release` are for words that lanes race for. A loop
//!   that waits reads through them or through an atomic, and calls `spin_pause(ns)` each round.
//! - Masks name live lanes only; a lane never exits while another waits for it. CUDA leaves this undefined or
//!   forgives it, the emulator does not.
//! - `load_vec`, `load_vec_stream` and `store_vec` move consecutive values in accesses of up to 16 bytes.
//! - `join.cuh` has bitmaps, look-ups in join indexes, pairs of a many-to-many join, places in an output that grows.
//! - `primitives.cuh` has sums, minima, maxima and scans of warps and blocks, `atomic_add_u128`, `hash64`.
//!
//! # Running a kernel in the emulator
//!
//! ```
//! use warpline_cuda::emulator::{CompileOptions, Emulator, EmulatorOptions, LaunchConfig, Schedule};
//! use warpline_cuda::{DevicePtr, KernelArgs, kernel_args};
//!
//! kernel_args! {
//!     pub struct IotaArgs {
//!         pub out: DevicePtr as "u32*",
//!         pub count: u64,
//!     }
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let source = format!(
//!     "#include \"simt.cuh\"\n{}{}",
//!     IotaArgs::CUDA,
//!     "WL_KERNEL(iota, IotaArgs, args) {
//!          u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x;
//!          if (i < args.count) args.out[i] = (u32)i;
//!      }"
//! );
//! # let cache = tempfile::tempdir()?;
//! # let options = EmulatorOptions { cache_dir: Some(cache.path().to_owned()), ..Default::default() };
//! # let _ = EmulatorOptions::default();
//! let emulator = Emulator::open(options)?;
//! let kernel = emulator.compile("iota.cu", &source, &CompileOptions::default())?.kernel("iota")?;
//! let mut out = vec![0u32; 1000];
//! let args = IotaArgs { out: DevicePtr(out.as_mut_ptr() as u64), count: 1000 };
//! for schedule in Schedule::all(42) {
//!     // SAFETY: `out` has `count` elements and nobody else uses it meanwhile.
//!     unsafe { kernel.launch(LaunchConfig::new(4, 256), args.as_bytes(), schedule)? };
//!     assert!(out.iter().enumerate().all(|(i, v)| i == *v as usize));
//! }
//! # Ok(())
//! # }
//! ```
//!
//! Run a kernel under all four [`Schedule`](emulator::Schedule)s: ascending order hides a missing `__syncwarp`,
//! and only random yields show a value published before it is complete. A schedule repeats from its seed.
//!
//! # A kernel hangs: reading the report
//!
//! A launch that cannot end is an error, not a hang. Lanes that all wait are a
//! [`Deadlock`](emulator::EmulatorError::Deadlock):
//!
//! ```text
//! kernel 'probe' is deadlocked: make every named lane reach the operation, or leave it out of the mask
//!   block 0 warp 0 lanes 0x55555555 wait in __shfl_sync at probe.cu:41, mask 0xffffffff, missing 0xaaaaaaaa
//!   block 0 warp 0 lanes 0xaaaaaaaa wait in __syncthreads at probe.cu:58
//! ```
//!
//! The even lanes of warp 0 called a shuffle that names all 32 lanes; the odd lanes went around it and wait at
//! a barrier. Lanes meet if they come to the same operation with the same mask at the same place in the
//! source, so two lines of one block in `__syncthreads` mean a barrier in divergent code. Inside
//! `primitives.cuh` the place is the caller's.
//!
//! Lanes that spin without anything changing are a [`Livelock`](emulator::EmulatorError::Livelock). If blocks
//! have not started, the kernel waits for a block that is not resident: launch it with
//! [`Resident::All`](emulator::Resident::All), or hand out work by ticket. A loop that spins without any call
//! of the header cannot be interrupted.
//!
//! A crash is found with [`Sanitizer::Address`](emulator::Sanitizer::Address) or
//! [`Sanitizer::Undefined`](emulator::Sanitizer::Undefined). The sanitizers end the process, so run them in a
//! child process, the first with its runtime in `LD_PRELOAD`.

mod args;
pub mod emulator;
mod headers;
pub mod kernels;
mod tree_shaking;

pub use args::{__private, DevicePtr, KernelArgs, KernelField};
pub use headers::{
    JOIN_HEADER, PIPELINE_HEADER, PRIMITIVES_HEADER, SIMT_HEADER, STRINGS_HEADER, headers,
};
pub use tree_shaking::self_contained;
