//! The device functions of `join.cuh`, called from small kernels.

use std::collections::BTreeSet;

use warpline_cuda::{DevicePtr, KernelArgs, kernel_args};
use warpline_gpu::device::LaunchConfig;

use super::{Machine, Numbers, machines};

kernel_args! {
    /// What the kernels below need, each its own part.
    struct ProbeArgs {
        words: DevicePtr as "const u64*",
        bits: DevicePtr as "u32*",
        keys: DevicePtr as "u64*",
        states: DevicePtr as "u32*",
        out: DevicePtr as "u64*",
        counter: DevicePtr as "u64*",
        rows: u64,
        n: u64,
    }
}

const KERNELS: &str = r"
WL_KERNEL(set_bits, ProbeArgs, args) {
  for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < args.n; i += (u64)gridDim.x * blockDim.x) {
    const bool before = wl_set_bit(args.bits, args.words[i]);
    args.out[i] = before ? 1 : 0;
    if (!wl_bit(args.bits, args.words[i])) args.out[i] = 2;
  }
}
WL_KERNEL(new_narrow, ProbeArgs, args) {
  bool overflow = false;
  for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < args.n; i += (u64)gridDim.x * blockDim.x) {
    const u64 key[1] = {args.words[i]};
    args.out[i] = insert_new<1>(0, args.keys, args.rows - 1, key, (u32)args.rows, overflow) ? 1 : 0;
  }
  if (overflow) atomicAdd(args.counter, (u64)1);
}
WL_KERNEL(new_wide, ProbeArgs, args) {
  bool overflow = false;
  for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < args.n; i += (u64)gridDim.x * blockDim.x) {
    const u64 key[2] = {args.words[i], ~args.words[i]};
    args.out[i] = insert_new<2>(args.states, args.keys, args.rows - 1, key, (u32)args.rows, overflow) ? 1 : 0;
  }
  if (overflow) atomicAdd(args.counter, (u64)1);
}
WL_KERNEL(find_narrow, ProbeArgs, args) {
  for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < args.n; i += (u64)gridDim.x * blockDim.x) {
    const u64 slot = hash_find(args.keys, args.rows - 1, args.words[i]);
    args.out[i] = slot == WL_NO_SLOT ? WL_NO_SLOT : args.keys[slot];
  }
}
WL_KERNEL(find_wide, ProbeArgs, args) {
  for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < args.n; i += (u64)gridDim.x * blockDim.x) {
    const u64 key[2] = {args.words[i], ~args.words[i]};
    const u64 slot = hash_find_wide<2>(args.keys, args.states, args.rows - 1, key);
    args.out[i] = slot == WL_NO_SLOT ? WL_NO_SLOT : args.keys[slot * 2];
  }
}
// Eight consecutive pairs a thread; the second half of `out` is found without hints.
WL_KERNEL(parents, ProbeArgs, args) {
  for (u64 base = ((u64)blockIdx.x * blockDim.x + threadIdx.x) * 8; base < args.n;
       base += (u64)gridDim.x * blockDim.x * 8) {
    u64 parent = pair_parent(args.words, args.rows, base);
    for (u64 i = base; i < base + 8 && i < args.n; ++i) {
      parent = pair_parent_from(args.words, args.rows, i, parent);
      args.out[i] = parent;
      args.out[args.n + i] = pair_parent(args.words, args.rows, i);
    }
  }
}
// Row i is written words[i] times; by blocks, then by warps.
struct ReserveShared { ReserveScratch scratch; };
WL_KERNEL(reserve_blocks, ProbeArgs, args) {
  WL_SHARED(ReserveShared, shared);
  for (u64 base = (u64)blockIdx.x * blockDim.x; base < args.n; base += (u64)gridDim.x * blockDim.x) {
    const u64 i = base + threadIdx.x;
    const u32 mine = i < args.n ? (u32)args.words[i] : 0;
    const u64 at = block_reserve(mine, args.counter, shared.scratch);
    for (u32 k = 0; k < mine; ++k) args.out[at + k] = i;
  }
}
// Eight consecutive rows a thread; `counter` counts the threads that met a bit twice.
WL_KERNEL(set_runs, ProbeArgs, args) {
  const u64 first = ((u64)blockIdx.x * blockDim.x + threadIdx.x) * 8;
  BitRun run = {};
  for (u64 i = first; i < first + 8 && i < args.n; ++i) bit_run_set(run, args.bits, args.words[i]);
  bit_run_flush(run, args.bits);
  if (run.twice) atomicAdd(args.counter, (u64)1);
}
// Of eight consecutive rows a thread, those with odd words are kept.
WL_KERNEL(reserve_rows, ProbeArgs, args) {
  WL_SHARED(ReserveShared, shared);
  const u64 step = (u64)gridDim.x * blockDim.x * 8;
  for (u64 base = (u64)blockIdx.x * blockDim.x * 8; base < args.n; base += step) {
    const u64 first = base + threadIdx.x * 8;
    u32 live = 0;
    for (u32 k = 0; k < 8; ++k) live |= (u32)(first + k < args.n && (args.words[first + k] & 1) != 0) << k;
    u32 place[8];
    const u64 at = block_reserve_rows<8>(live, args.counter, shared.scratch, place);
    for (u32 k = 0; k < 8; ++k) if ((live >> k & 1) != 0) args.out[at + place[k]] = first + k;
  }
}
WL_KERNEL(reserve_warps, ProbeArgs, args) {
  for (u64 base = (u64)blockIdx.x * blockDim.x; base < args.n; base += (u64)gridDim.x * blockDim.x) {
    const u64 i = base + threadIdx.x;
    const u32 mine = i < args.n ? (u32)args.words[i] : 0;
    const u64 at = warp_reserve(mine, args.counter);
    for (u32 k = 0; k < mine; ++k) args.out[at + k] = i;
  }
}
";

// Row i's lanes with the same byte; odd words are not live.
const MATCH: &str = r"
WL_KERNEL(match_bytes, ProbeArgs, args) {
  for (u64 base = (u64)blockIdx.x * blockDim.x; base < args.n; base += (u64)gridDim.x * blockDim.x) {
    const u64 word = args.words[base + threadIdx.x];
    args.out[base + threadIdx.x] = match_byte((u32)(word >> 1), (word & 1) == 0);
  }
}
";

fn blank() -> ProbeArgs {
    ProbeArgs {
        words: DevicePtr::NULL,
        bits: DevicePtr::NULL,
        keys: DevicePtr::NULL,
        states: DevicePtr::NULL,
        out: DevicePtr::NULL,
        counter: DevicePtr::NULL,
        rows: 0,
        n: 0,
    }
}

fn run(machine: &Machine, name: &str, args: &ProbeArgs) {
    run_source(machine, name, args, "", KERNELS);
}

fn run_source(machine: &Machine, name: &str, args: &ProbeArgs, defines: &str, kernels: &str) {
    let args_text = ProbeArgs::CUDA;
    let source = format!("{defines}#include \"join.cuh\"\n{args_text}{kernels}");
    let (kernel, _) = machine.runtime.kernel(name, &source).unwrap();
    let config = LaunchConfig {
        grid: 3,
        block: 96,
        shared_bytes: 256,
    };
    let device = machine.runtime.device();
    unsafe { device.launch(&machine.stream, &kernel, config, args.as_bytes()) }.unwrap();
}

#[test]
fn one_lane_sets_each_bit() {
    for machine in machines() {
        let mut numbers = Numbers(5);
        let wanted: Vec<u64> = (0..3000).map(|_| numbers.draw() % 700).collect();
        let words = machine.upload(&wanted);
        let bits = machine.upload(&[0u32; 22]);
        let out = machine.space(3000 * 8);
        let args = ProbeArgs {
            words: words.ptr(),
            bits: bits.ptr(),
            out: out.ptr(),
            n: 3000,
            ..blank()
        };
        run(&machine, "set_bits", &args);
        let set: BTreeSet<u64> = wanted.iter().copied().collect();
        let first = machine.read::<u64>(&out, 3000);
        assert!(first.iter().all(|o| *o < 2));
        assert_eq!(first.iter().filter(|o| **o == 0).count(), set.len());
        let bits = machine.read::<u32>(&bits, 22);
        for i in 0..704 {
            let is_set = bits[i as usize / 32] >> (i % 32) & 1 == 1;
            assert_eq!(is_set, set.contains(&i), "{}: bit {i}", machine.name);
        }
    }
}

#[test]
fn one_lane_adds_each_key_and_all_find_it() {
    for machine in machines() {
        for wide in [false, true] {
            let mut numbers = Numbers(6);
            let added: Vec<u64> = (0..2000).map(|_| numbers.draw() % 600).collect();
            let words = machine.upload(&added);
            let keys = machine.upload(&vec![u64::MAX; 2048]);
            let states = machine.upload(&vec![0u32; 1024]);
            let (out, counter) = (machine.space(2000 * 8), machine.word());
            let args = ProbeArgs {
                words: words.ptr(),
                keys: keys.ptr(),
                states: states.ptr(),
                out: out.ptr(),
                counter: counter.ptr(),
                rows: 1024,
                n: 2000,
                ..blank()
            };
            run(
                &machine,
                if wide { "new_wide" } else { "new_narrow" },
                &args,
            );
            let set: BTreeSet<u64> = added.iter().copied().collect();
            let new = machine.read::<u64>(&out, 2000);
            assert_eq!(new.iter().sum::<u64>(), set.len() as u64);
            assert_eq!(machine.read::<u64>(&counter, 1), [0]);

            // Keys that are there, keys that are not, and no key.
            let mut sought: Vec<u64> = (0..1999).collect();
            sought.push(u64::MAX);
            words.upload_values(&machine.stream, 0, &sought).unwrap();
            run(
                &machine,
                if wide { "find_wide" } else { "find_narrow" },
                &args,
            );
            let found = machine.read::<u64>(&out, 2000);
            for (key, found) in sought.iter().zip(found) {
                let expected = if set.contains(key) { *key } else { u64::MAX };
                assert_eq!(found, expected, "{}: key {key}", machine.name);
            }
        }
    }
}

#[test]
fn a_full_set_overflows_and_look_ups_end() {
    for machine in machines() {
        for wide in [false, true] {
            let words = machine.upload(&(0..100u64).collect::<Vec<_>>());
            let keys = machine.upload(&vec![u64::MAX; 128]);
            let states = machine.upload(&vec![0u32; 64]);
            let (out, counter) = (machine.space(100 * 8), machine.word());
            let args = ProbeArgs {
                words: words.ptr(),
                keys: keys.ptr(),
                states: states.ptr(),
                out: out.ptr(),
                counter: counter.ptr(),
                rows: 64,
                n: 100,
                ..blank()
            };
            run(
                &machine,
                if wide { "new_wide" } else { "new_narrow" },
                &args,
            );
            assert_eq!(machine.read::<u64>(&out, 100).iter().sum::<u64>(), 64);
            assert_ne!(machine.read::<u64>(&counter, 1), [0]);
            run(
                &machine,
                if wide { "find_wide" } else { "find_narrow" },
                &args,
            );
            let found = machine.read::<u64>(&out, 100);
            assert_eq!(found.iter().filter(|f| **f != u64::MAX).count(), 64);
        }
    }
}

#[test]
fn pairs_find_their_rows() {
    let uneven: Vec<u64> = (0..500)
        .map(|i| if i % 100 == 50 { 700 } else { i % 3 })
        .collect();
    let empty_ends: Vec<u64> = [0, 0, 0, 9, 0, 0, 1, 0, 0].to_vec();
    let cases = [vec![1], vec![4000], vec![1; 300], uneven, empty_ends];
    for machine in machines() {
        for counts in &cases {
            let mut pairs = vec![0u64];
            let mut expected = Vec::new();
            for (row, count) in counts.iter().enumerate() {
                pairs.push(pairs[row] + count);
                expected.extend((0..*count).map(|_| row as u64));
            }
            let words = machine.upload(&pairs);
            let n = expected.len();
            let out = machine.space(2 * n * 8);
            let args = ProbeArgs {
                words: words.ptr(),
                out: out.ptr(),
                rows: counts.len() as u64,
                n: n as u64,
                ..blank()
            };
            run(&machine, "parents", &args);
            let found = machine.read::<u64>(&out, 2 * n);
            assert!(
                found[..n] == expected && found[n..] == expected,
                "{}",
                machine.name
            );
        }
    }
}

#[test]
fn reserved_places_are_disjoint() {
    for machine in machines() {
        let mut numbers = Numbers(8);
        for name in ["reserve_blocks", "reserve_warps"] {
            for n in [0usize, 1, 31, 33, 2000] {
                let counts: Vec<u64> = (0..n).map(|_| numbers.draw() % 9).collect();
                let total = counts.iter().sum::<u64>();
                let words = machine.upload(&counts);
                let out = machine.space(total as usize * 8);
                // The output has ten rows already.
                let counter = machine.upload(&[10u64]);
                let args = ProbeArgs {
                    words: words.ptr(),
                    out: DevicePtr(out.ptr().0.wrapping_sub(80)),
                    counter: counter.ptr(),
                    n: n as u64,
                    ..blank()
                };
                run(&machine, name, &args);
                assert_eq!(machine.read::<u64>(&counter, 1), [10 + total]);
                let mut rows = machine.read::<u64>(&out, total as usize);
                rows.sort_unstable();
                let expected = (0..n as u64).flat_map(|i| (0..counts[i as usize]).map(move |_| i));
                assert!(expected.eq(rows), "{}", machine.name);
            }
        }
    }
}

#[test]
fn runs_of_bits() {
    for machine in machines() {
        let mut numbers = Numbers(13);
        let ascending: Vec<u64> = (0..2000).map(|i| i / 2 * 3).collect();
        let scattered: Vec<u64> = (0..2000u64).map(|i| i * 7919 % 2003).collect();
        let repeated: Vec<u64> = (0..2000).map(|_| numbers.draw() % 900).collect();
        for (wanted, distinct) in [(ascending, false), (scattered, true), (repeated, false)] {
            let words = machine.upload(&wanted);
            let bits = machine.upload(&vec![0u32; 100]);
            let counter = machine.word();
            let args = ProbeArgs {
                words: words.ptr(),
                bits: bits.ptr(),
                counter: counter.ptr(),
                n: 2000,
                ..blank()
            };
            run(&machine, "set_runs", &args);
            let set: BTreeSet<u64> = wanted.iter().copied().collect();
            assert_eq!(set.len() == 2000, distinct);
            let found = machine.read::<u32>(&bits, 100);
            let is_set = |i: &u64| found[*i as usize / 32] >> (i % 32) & 1 == 1;
            assert!((0..3200).filter(is_set).eq(set), "{}", machine.name);
            assert_eq!(machine.read::<u64>(&counter, 1)[0] == 0, distinct);
        }
    }
}

#[test]
fn kept_rows_have_disjoint_places() {
    for machine in machines() {
        let mut numbers = Numbers(14);
        for n in [0, 1, 8, 255, 257, 5000] {
            for modulus in [1, 2, 50] {
                let drawn: Vec<u64> = (0..n)
                    .map(|_| u64::from(numbers.draw().is_multiple_of(modulus)))
                    .collect();
                let expected: Vec<u64> = (0..n).filter(|i| drawn[*i as usize] == 1).collect();
                let words = machine.upload(&drawn);
                let out = machine.space(expected.len() * 8);
                let counter = machine.word();
                let args = ProbeArgs {
                    words: words.ptr(),
                    out: out.ptr(),
                    counter: counter.ptr(),
                    n,
                    ..blank()
                };
                run(&machine, "reserve_rows", &args);
                let total = machine.read::<u64>(&counter, 1);
                assert_eq!(total, [expected.len() as u64]);
                let mut found = machine.read::<u64>(&out, expected.len());
                found.sort_unstable();
                assert!(found == expected, "{}", machine.name);
            }
        }
    }
}

#[test]
fn lanes_with_the_same_byte() {
    for machine in machines() {
        let mut numbers = Numbers(12);
        for range in [1, 4, 40, 512] {
            let drawn: Vec<u64> = (0..960).map(|_| numbers.draw() % range).collect();
            let words = machine.upload(&drawn);
            let expected: Vec<u64> = (0..960)
                .map(|i| {
                    let warp = &drawn[i / 32 * 32..][..32];
                    (0..32)
                        .filter(|lane| warp[*lane] == drawn[i])
                        .map(|lane| 1 << lane)
                        .sum()
                })
                .collect();
            for defines in ["", "#define WL_SHUFFLE_TREES\n"] {
                let out = machine.space(960 * 8);
                let args = ProbeArgs {
                    words: words.ptr(),
                    out: out.ptr(),
                    n: 960,
                    ..blank()
                };
                run_source(&machine, "match_bytes", &args, defines, MATCH);
                assert!(
                    machine.read::<u64>(&out, 960) == expected,
                    "{}",
                    machine.name
                );
            }
        }
    }
}
