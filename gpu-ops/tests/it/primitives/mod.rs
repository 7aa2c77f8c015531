//! Hand-written kernels against host code, under every schedule of the emulator and on a GPU when asked.

mod arrow;
mod calibrate;
mod columns;
mod groups;
mod index;
mod join;
mod large;
mod pairs;
mod partition;
mod partition_preallocated;
mod partition_unstable;
mod runs;
mod scan;
mod sort;
mod strings;
mod tables;
mod window;

use std::sync::Arc;

use warpline_cuda::emulator::Schedule;
use warpline_gpu::device::cuda::CudaDevice;
use warpline_gpu::device::emulated::{EmulatedDevice, EmulatedOptions};
use warpline_gpu::device::{Device, Stream};
use warpline_gpu::memory::{DeviceBuffer, DeviceValue};
use warpline_gpu::primitives::RowCount;
use warpline_gpu::runtime::Runtime;

use crate::support::{wants_cuda, wants_emulator};

/// A runtime and a stream of it.
pub(crate) struct Machine {
    pub(crate) runtime: Arc<Runtime>,
    pub(crate) stream: Stream,
    pub(crate) name: String,
}

/// The emulator under each schedule, and the GPU when the environment asks for it.
pub(crate) fn machines() -> Vec<Machine> {
    let schedules = [
        Schedule::Ascending,
        Schedule::Descending,
        Schedule::Random(7),
        Schedule::RandomYields(11),
    ];
    let mut devices: Vec<(String, Arc<dyn Device>)> = schedules
        .into_iter()
        .filter(|_| wants_emulator())
        .map(|schedule| {
            let environment = EmulatedOptions::from_environment().unwrap();
            let options = EmulatedOptions {
                schedule,
                // The same sources under every schedule: checking them once is enough.
                check_with_nvrtc: match schedule {
                    Schedule::Ascending => environment.check_with_nvrtc.min(1),
                    _ => 0,
                },
                ..environment
            };
            let device: Arc<dyn Device> = Arc::new(EmulatedDevice::with_options(options).unwrap());
            (format!("{schedule:?}"), device)
        })
        .collect();
    if wants_cuda() {
        devices.push(("cuda".into(), Arc::new(CudaDevice::open(0).unwrap())));
    }
    devices
        .into_iter()
        .map(|(name, device)| {
            let runtime = Runtime::with_device(device, Some(1 << 30)).unwrap();
            let stream = runtime.device().create_stream().unwrap();
            Machine {
                runtime,
                stream,
                name,
            }
        })
        .collect()
}

impl Machine {
    /// Device memory with `values`, at least one word, so that it has an address.
    pub(crate) fn upload<T: DeviceValue>(&self, values: &[T]) -> DeviceBuffer {
        let buffer = self.space(size_of_val(values));
        buffer.upload_values(&self.stream, 0, values).unwrap();
        buffer
    }

    /// Device memory of `bytes` bytes and a few more, filled with a pattern.
    pub(crate) fn space(&self, bytes: usize) -> DeviceBuffer {
        let buffer = self.runtime.pool().allocate(bytes + 64, "test").unwrap();
        buffer.fill(&self.stream, 0xA5).unwrap();
        buffer
    }

    /// A zeroed word.
    pub(crate) fn word(&self) -> DeviceBuffer {
        self.upload(&[0u64])
    }

    pub(crate) fn read<T: DeviceValue>(&self, buffer: &DeviceBuffer, count: usize) -> Vec<T> {
        buffer.download_values(&self.stream, 0, count).unwrap()
    }

    /// The same number of rows as the host and as the device knows it, the latter below its bound; the buffer
    /// keeps the number.
    pub(crate) fn row_counts(&self, rows: u64, most: u64) -> ([RowCount; 2], DeviceBuffer) {
        let count = self.upload(&[rows]);
        let device = RowCount::Device {
            count: count.ptr(),
            most,
        };
        ([RowCount::Known(rows), device], count)
    }
}

/// The bytes behind the first `used` of a buffer from [`Machine::space`] are untouched.
pub(crate) fn assert_untouched(machine: &Machine, buffer: &DeviceBuffer, used: usize) {
    let bytes: Vec<u8> = machine.read(buffer, buffer.len());
    assert!(
        bytes[used..].iter().all(|b| *b == 0xA5),
        "{}: written behind the end",
        machine.name
    );
}

/// Pseudo-random numbers that repeat from their seed (splitmix64).
pub(crate) struct Numbers(pub(crate) u64);

impl Numbers {
    pub(crate) fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }
}

/// Sizes around the edges of lanes, warps, blocks and tiles.
pub(crate) const SIZES: [usize; 11] = [0, 1, 2, 31, 32, 33, 255, 257, 4095, 4097, 40_000];
