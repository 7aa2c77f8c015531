//! Large inputs, made and checked on the device. On a GPU they show races that the emulator cannot, and
//! print times, which must stay within a factor of a plain copy's; in the emulator they are small.

use std::sync::Arc;

use warpline_cuda::{DevicePtr, KernelArgs, kernel_args};
use warpline_gpu::device::LaunchConfig;
use warpline_gpu::device::cuda::CudaDevice;
use warpline_gpu::device::emulated::EmulatedDevice;
use warpline_gpu::memory::DeviceBuffer;
use warpline_gpu::primitives::{
    HashTable, KeyedRows, RowCount, StringRows, build_dense_ranges, build_ranges, exclusive_sum,
    gather_strings, insert_unique, slots_for, sort_rows,
};
use warpline_gpu::runtime::Runtime;

use super::Machine;
use crate::support::wants_cuda;

kernel_args! {
    /// What the kernels below need, each its own part.
    struct CheckArgs {
        words: DevicePtr as "u64*",
        others: DevicePtr as "const u64*",
        order: DevicePtr as "const u32*",
        small: DevicePtr as "u32*",
        bits: DevicePtr as "u32*",
        wrong: DevicePtr as "u64*",
        modulus: u64,
        n: u64,
    }
}

const KERNELS: &str = r"
#define EACH(i, n) \
  for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += (u64)gridDim.x * blockDim.x)
WL_KERNEL(draw_words, CheckArgs, args) { EACH(i, args.n) args.words[i] = hash64(i * 3 + 1) % args.modulus; }
WL_KERNEL(draw_counts, CheckArgs, args) {
  EACH(i, args.n) args.small[i] = (u32)(hash64(i + 77) % args.modulus);
}
WL_KERNEL(number_words, CheckArgs, args) { EACH(i, args.n) args.words[i] = i * args.modulus; }
WL_KERNEL(check_sums, CheckArgs, args) {
  EACH(i, args.n) {
    if (args.words[i + 1] - args.words[i] != args.small[i]) atomicAdd(args.wrong, (u64)1);
  }
  if (blockIdx.x == 0 && threadIdx.x == 0 && args.words[0] != 0) atomicAdd(args.wrong, (u64)1);
}
// Each row once, keys ascending, equal keys in the order of rows.
WL_KERNEL(check_order, CheckArgs, args) {
  EACH(i, args.n) {
    const u32 row = args.order[i];
    bool fine = row < args.n && !wl_set_bit(args.bits, row);
    if (fine && i > 0 && args.order[i - 1] < args.n) {
      const u32 before = args.order[i - 1];
      const u64 a = args.words[before], b = args.words[row];
      const u64 c = args.others[before], d = args.others[row];
      fine = a < b || (a == b && (c < d || (c == d && before < row)));
    }
    if (!fine) atomicAdd(args.wrong, (u64)1);
  }
}
// `small` are the offsets of `modulus` slots, `others` their keys (null: their numbers), `order` the entries.
WL_KERNEL(check_ranges, CheckArgs, args) {
  EACH(slot, args.modulus) {
    for (u32 e = args.small[slot]; e < args.small[slot + 1]; ++e) {
      const u32 row = args.order[e];
      const u64 key = args.others == 0 ? slot : args.others[slot];
      if (row >= args.n || args.words[row] != key || wl_set_bit(args.bits, row)) atomicAdd(args.wrong, (u64)1);
    }
  }
  if (blockIdx.x == 0 && threadIdx.x == 0 && args.small[args.modulus] != args.n) atomicAdd(args.wrong, (u64)1);
}
// `small` are the entries of `modulus` slots, `others` their keys.
WL_KERNEL(check_entries, CheckArgs, args) {
  EACH(i, args.n) {
    const u64 slot = hash_find(args.others, args.modulus - 1, args.words[i]);
    if (slot == WL_NO_SLOT || args.small[slot] != i) atomicAdd(args.wrong, (u64)1);
  }
}
";

/// One device at one scale.
struct Scale {
    machine: Machine,
    large: bool,
}

fn scales() -> Vec<Scale> {
    let emulator: Arc<dyn warpline_gpu::device::Device> = Arc::new(EmulatedDevice::open().unwrap());
    let mut devices = vec![(emulator, false)];
    if wants_cuda() {
        devices.push((Arc::new(CudaDevice::open(0).unwrap()), true));
    }
    devices
        .into_iter()
        .map(|(device, large)| {
            let runtime = Runtime::with_device(device, None).unwrap();
            let stream = runtime.device().create_stream().unwrap();
            let name = runtime.device().info().name.clone();
            let machine = Machine {
                runtime,
                stream,
                name,
            };
            Scale { machine, large }
        })
        .collect()
}

impl Scale {
    /// So many on a GPU, few in the emulator.
    fn of(&self, rows: u64) -> u64 {
        if self.large { rows } else { rows.min(20_000) }
    }

    fn space(&self, count: u64, width: u64) -> DeviceBuffer {
        let bytes = (count * width) as usize;
        self.machine.runtime.pool().allocate(bytes, "test").unwrap()
    }

    fn run(&self, name: &str, args: &CheckArgs) {
        let source = format!("#include \"join.cuh\"\n{}{KERNELS}", CheckArgs::CUDA);
        let (kernel, _) = self.machine.runtime.kernel(name, &source).unwrap();
        let config = LaunchConfig {
            grid: if self.large { 1056 } else { 4 },
            block: 256,
            shared_bytes: 0,
        };
        let device = self.machine.runtime.device();
        unsafe { device.launch(&self.machine.stream, &kernel, config, args.as_bytes()) }.unwrap();
    }

    fn words(&self, n: u64, modulus: u64) -> DeviceBuffer {
        let words = self.space(n, 8);
        let args = CheckArgs {
            words: words.ptr(),
            modulus,
            n,
            ..blank()
        };
        self.run("draw_words", &args);
        words
    }

    /// Run a check; nothing may be wrong, and with `all_rows` every row was met.
    fn check(&self, name: &str, mut args: CheckArgs, all_rows: bool) {
        let wrong = self.machine.word();
        let bits = self.space(args.n.div_ceil(32), 4);
        bits.fill(&self.machine.stream, 0).unwrap();
        args.wrong = wrong.ptr();
        args.bits = bits.ptr();
        self.run(name, &args);
        let found = self.machine.read::<u64>(&wrong, 1)[0];
        assert_eq!(found, 0, "{}: {name} of {} rows", self.machine.name, args.n);
        if all_rows && !self.large {
            let set: u32 = self
                .machine
                .read::<u32>(&bits, args.n.div_ceil(32) as usize)
                .iter()
                .map(|word| word.count_ones())
                .sum();
            assert_eq!(u64::from(set), args.n, "{name}");
        }
    }

    /// Do `work`, on a GPU several times: the best time is printed with the share of a copy's speed that `bytes` in it are.
    fn time(&self, label: &str, bytes: u64, mut work: impl FnMut()) {
        work();
        if !self.large {
            return;
        }
        let (device, stream) = (self.machine.runtime.device(), &self.machine.stream);
        let mut best = f64::INFINITY;
        for _ in 0..5 {
            let start = device.record_event(stream).unwrap();
            work();
            let end = device.record_event(stream).unwrap();
            best = best.min(device.elapsed_ms(&start, &end).unwrap());
        }
        let reached = bytes as f64 / (best / 1e3);
        let of_copy = reached / self.machine.runtime.copy_bandwidth().unwrap();
        println!(
            "{label}: {best:.3} ms, {:.0} GB/s, {of_copy:.2} of a copy",
            reached / 1e9
        );
    }
}

fn blank() -> CheckArgs {
    CheckArgs {
        words: DevicePtr::NULL,
        others: DevicePtr::NULL,
        order: DevicePtr::NULL,
        small: DevicePtr::NULL,
        bits: DevicePtr::NULL,
        wrong: DevicePtr::NULL,
        modulus: 1,
        n: 0,
    }
}

#[test]
fn sums_of_many_counts() {
    for scale in scales() {
        let n = scale.of(1 << 28);
        let counts = scale.space(n, 4);
        let sums = scale.space(n + 1, 8);
        let args = CheckArgs {
            words: sums.ptr(),
            small: counts.ptr(),
            modulus: 1000,
            n,
            ..blank()
        };
        scale.run("draw_counts", &args);
        let (runtime, stream) = (&scale.machine.runtime, &scale.machine.stream);
        let rows = RowCount::Known(n);
        scale.time("u64 sums of 2^28 counts", n * 12, || unsafe {
            exclusive_sum(runtime, stream, counts.ptr(), sums.ptr(), rows, true).unwrap();
        });
        scale.check("check_sums", args, false);
    }
}

#[test]
fn orders_of_many_rows() {
    for scale in scales() {
        // Rows, bits of the major and the minor word, bytes moved.
        for (rows, major, minor, bytes) in [
            (100_000_000, 32, 0, 68),
            (100_000_000, 8, 0, 8 + 12),
            (20_000_000, 8, 40, 8 + 20 + 3 * 24 + 16 + 8 + 12 + 32),
        ] {
            let n = scale.of(rows);
            let words = [major, minor].map(|bits: u32| scale.words(n, 1 << bits));
            let pointers = [words[0].ptr(), words[1].ptr()];
            let order = scale.space(n, 4);
            let (runtime, stream) = (&scale.machine.runtime, &scale.machine.stream);
            let rows = RowCount::Known(n);
            let label = format!("order of {n} rows by {major} and {minor} bits");
            scale.time(&label, n * bytes, || unsafe {
                sort_rows(
                    runtime,
                    stream,
                    &pointers,
                    &[major, minor],
                    rows,
                    order.ptr(),
                )
                .unwrap();
            });
            let args = CheckArgs {
                words: words[0].ptr(),
                others: words[1].ptr(),
                order: order.ptr(),
                n,
                ..blank()
            };
            scale.check("check_order", args, true);
        }
    }
}

#[test]
fn few_rows_are_ordered_at_once() {
    for scale in scales() {
        for n in [4, 300, 2048] {
            let words = [scale.words(n, 7), scale.words(n, 1 << 40)];
            let pointers = [words[0].ptr(), words[1].ptr()];
            let order = scale.space(n, 4);
            let (runtime, stream) = (&scale.machine.runtime, &scale.machine.stream);
            let rows = RowCount::Known(n);
            scale.time(&format!("order of {n} rows"), 0, || unsafe {
                sort_rows(runtime, stream, &pointers, &[3, 40], rows, order.ptr()).unwrap();
            });
            let args = CheckArgs {
                words: words[0].ptr(),
                others: words[1].ptr(),
                order: order.ptr(),
                n,
                ..blank()
            };
            scale.check("check_order", args, true);
        }
    }
}

#[test]
fn ranges_of_many_rows() {
    for scale in scales() {
        // Few distinct keys make skew: the last case has 250,000 rows a key.
        for (rows, distinct) in [
            (100_000_000, 25_000_000),
            (10_000_000, 10_000_000),
            (1_000_000, 4),
        ] {
            let n = scale.of(rows);
            let distinct = distinct.min(n);
            let words = scale.words(n, distinct);
            let (runtime, stream) = (&scale.machine.runtime, &scale.machine.stream);
            let rows = RowCount::Known(n);
            let entries = scale.space(n, 4);
            let overflow = scale.machine.word();

            let slots = slots_for(distinct);
            let keys = scale.space(slots, 8);
            let offsets = scale.space(slots + 1, 4);
            let table = HashTable {
                slots,
                keys: keys.ptr(),
                states: DevicePtr::NULL,
            };
            let label = format!("hash ranges of {n} rows, {distinct} keys");
            scale.time(&label, n * 220, || unsafe {
                let (offsets, entries) = (offsets.ptr(), entries.ptr());
                let rows = KeyedRows {
                    words: &[words.ptr()],
                    rows,
                    table,
                    overflow: overflow.ptr(),
                };
                build_ranges(runtime, stream, &rows, offsets, entries).unwrap();
            });
            assert_eq!(scale.machine.read::<u64>(&overflow, 1), [0]);
            let mut args = CheckArgs {
                words: words.ptr(),
                others: keys.ptr(),
                order: entries.ptr(),
                small: offsets.ptr(),
                modulus: slots,
                n,
                ..blank()
            };
            scale.check("check_ranges", args, true);

            let label = format!("dense ranges of {n} rows, {distinct} keys");
            scale.time(&label, n * 130, || unsafe {
                let (word, offsets, entries) = (words.ptr(), offsets.ptr(), entries.ptr());
                build_dense_ranges(
                    runtime,
                    stream,
                    word,
                    rows,
                    distinct,
                    offsets,
                    Some(entries),
                )
                .unwrap();
            });
            args.others = DevicePtr::NULL;
            args.modulus = distinct;
            scale.check("check_ranges", args, true);
        }
    }
}

#[test]
fn many_unique_keys() {
    for scale in scales() {
        let n = scale.of(100_000_000);
        let words = scale.space(n, 8);
        let slots = slots_for(n);
        let (keys, entry) = (scale.space(slots, 8), scale.space(slots, 4));
        let mut args = CheckArgs {
            words: words.ptr(),
            others: keys.ptr(),
            small: entry.ptr(),
            modulus: 5,
            n,
            ..blank()
        };
        scale.run("number_words", &args);
        let (duplicate, overflow) = (scale.machine.word(), scale.machine.word());
        let table = HashTable {
            slots,
            keys: keys.ptr(),
            states: DevicePtr::NULL,
        };
        let (runtime, stream) = (&scale.machine.runtime, &scale.machine.stream);
        let rows = RowCount::Known(n);
        scale.time(&format!("{n} unique keys"), n * 136, || unsafe {
            let rows = KeyedRows {
                words: &[words.ptr()],
                rows,
                table,
                overflow: overflow.ptr(),
            };
            insert_unique(runtime, stream, &rows, entry.ptr(), duplicate.ptr()).unwrap();
        });
        assert_eq!(scale.machine.read::<u64>(&duplicate, 1), [0]);
        assert_eq!(scale.machine.read::<u64>(&overflow, 1), [0]);
        args.modulus = slots;
        scale.check("check_entries", args, false);
    }
}

#[test]
fn many_strings() {
    for scale in scales() {
        let (column_rows, n) = (scale.of(10_000_000), scale.of(10_000_000));
        let length = 25;
        let offsets = scale.space(column_rows + 1, 8);
        let args = CheckArgs {
            words: offsets.ptr(),
            modulus: length,
            n: column_rows + 1,
            ..blank()
        };
        scale.run("number_words", &args);
        // Any bytes.
        let data = scale.words((column_rows * length).div_ceil(8), u64::MAX);
        let ids = scale.words(n, column_rows);
        let (runtime, stream) = (&scale.machine.runtime, &scale.machine.stream);
        let mut gathered = None;
        scale.time(&format!("{n} strings of 25 bytes"), n * 170, || unsafe {
            let strings = StringRows {
                offsets: offsets.ptr(),
                data: data.ptr(),
                row_ids: ids.ptr(),
                id_width: 8,
                valid: None,
                rows: RowCount::Known(n),
            };
            gathered = Some(gather_strings(runtime, stream, &strings).unwrap());
        });
        let (found_offsets, found) = gathered.unwrap();
        assert_eq!(found.len() as u64, n * length);
        // A sample from both ends.
        let sample = 1000.min(n) as usize;
        let all: Vec<u8> = scale.machine.read(&data, data.len());
        for first in [0, n as usize - sample] {
            let ids: Vec<u64> = ids.download_values(stream, first * 8, sample).unwrap();
            let ends: Vec<u64> = found_offsets
                .download_values(stream, first * 8, sample + 1)
                .unwrap();
            let bytes: Vec<u8> = found
                .download_values(stream, first * length as usize, sample * length as usize)
                .unwrap();
            for (i, id) in ids.iter().enumerate() {
                assert_eq!(ends[i], (first + i) as u64 * length);
                let string = &bytes[i * length as usize..][..length as usize];
                let from = (*id * length) as usize;
                assert!(string == &all[from..from + length as usize], "string {i}");
            }
        }
    }
}
