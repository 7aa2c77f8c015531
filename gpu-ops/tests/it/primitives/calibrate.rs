//! The kernels that measure a device do what they are timed for, and the figures make sense of any device.

use std::collections::BTreeSet;

use warpline_cuda::KernelArgs;
use warpline_cuda::kernels::{self, CalibrateArgs};
use warpline_gpu::calibrate::{Extent, calibrate_over};
use warpline_gpu::device::LaunchConfig;
use warpline_gpu::machine::Origin;
use warpline_gpu::memory::DeviceBuffer;

use super::{Machine, machines};

/// The place of an access, as `calibrate.cu` has it.
fn place(i: u32, seed: u32, mask: u32) -> u32 {
    let mut x = i.wrapping_add(seed);
    x = (x ^ (x >> 16)).wrapping_mul(0x85eb_ca6b);
    x = (x ^ (x >> 13)).wrapping_mul(0xc2b2_ae35);
    (x ^ (x >> 16)) & mask
}

const SEED: u32 = 77;

/// Runs a kernel; what was added to the sums.
fn run(
    machine: &Machine,
    name: &'static str,
    data: &DeviceBuffer,
    accesses: u64,
    mask: u32,
    grid: u32,
    shared: usize,
) -> u64 {
    let sums = machine.upload(&[0u64; 256]);
    let device = machine.runtime.device();
    let kernel = machine
        .runtime
        .builtin(name, 0, kernels::calibrate)
        .unwrap();
    let config = LaunchConfig {
        grid,
        block: 256,
        shared_bytes: shared,
    };
    let args = CalibrateArgs {
        data: data.ptr(),
        sums: sums.ptr(),
        accesses,
        mask,
        seed: SEED,
    };
    // SAFETY: the data are as large as each test makes them for its mask.
    unsafe {
        device
            .launch(&machine.stream, &kernel, config, args.as_bytes())
            .unwrap();
    }
    let sums: Vec<u64> = machine.read(&sums, 256);
    sums.into_iter().fold(0, u64::wrapping_add)
}

#[test]
fn every_kernel_visits_every_access_once() {
    for machine in machines() {
        for (accesses, mask, grid) in [
            (0u64, 0u32, 1u32),
            (1, 0, 1),
            (31, 7, 1),
            (257, 63, 1),
            (4500, 1023, 2),
            (5000, 1, 3),
        ] {
            let places: Vec<u32> = (0..accesses as u32).map(|i| place(i, SEED, mask)).collect();
            let name = format!("{}: {accesses} over {}", machine.name, mask + 1);
            let values: Vec<u64> = (0..2 * (u64::from(mask) + 1)).map(|i| i * i + 3).collect();
            let data = machine.upload(&values);
            let narrow = |p: u32| {
                let word = values[p as usize / 2];
                if p.is_multiple_of(2) {
                    word & 0xFFFF_FFFF
                } else {
                    word >> 32
                }
            };
            let expected: u64 = places.iter().map(|p| narrow(*p)).sum();
            let got = run(
                &machine,
                "calibrate_gather4",
                &data,
                accesses,
                mask,
                grid,
                0,
            );
            assert_eq!(got, expected, "{name}");
            let expected: u64 = places.iter().map(|p| values[*p as usize]).sum();
            let got = run(
                &machine,
                "calibrate_gather8",
                &data,
                accesses,
                mask,
                grid,
                0,
            );
            assert_eq!(got, expected, "{name}");
            let both = |p: &u32| values[2 * *p as usize] + values[2 * *p as usize + 1];
            let expected: u64 = places.iter().map(both).sum();
            let got = run(
                &machine,
                "calibrate_gather16",
                &data,
                accesses,
                mask,
                grid,
                0,
            );
            assert_eq!(got, expected, "{name}");

            let counters = machine.upload(&vec![0u32; mask as usize + 1]);
            run(
                &machine,
                "calibrate_atomics",
                &counters,
                accesses,
                mask,
                grid,
                0,
            );
            let counts: Vec<u32> = machine.read(&counters, mask as usize + 1);
            for (p, count) in counts.iter().enumerate() {
                let expected = places.iter().filter(|q| **q as usize == p).count();
                assert_eq!(*count as usize, expected, "{name}");
            }

            let slots = machine.upload(&vec![0u64; mask as usize + 1]);
            let taken = run(
                &machine,
                "calibrate_inserts",
                &slots,
                accesses,
                mask,
                grid,
                0,
            );
            let distinct: BTreeSet<u32> = places.iter().copied().collect();
            assert_eq!(taken, accesses - distinct.len() as u64, "{name}");

            for (kernel, width) in [
                ("calibrate_scatter4", 4),
                ("calibrate_scatter8", 8),
                ("calibrate_scatter16", 16),
            ] {
                let places_bytes = (mask as usize + 1) * width;
                let target = machine.upload(&vec![0u32; places_bytes / 4]);
                run(&machine, kernel, &target, accesses, mask, grid, 0);
                let words: Vec<u32> = machine.read(&target, places_bytes / 4);
                for (p, value) in words.chunks(width / 4).enumerate() {
                    let last = value[0];
                    if distinct.contains(&(p as u32)) {
                        assert_eq!(place(last - 1, SEED, mask) as usize, p, "{name}");
                    } else {
                        assert_eq!(last, 0, "{name}");
                    }
                }
            }

            let keys = machine.upload(&vec![0u32; accesses as usize + 1]);
            run(&machine, "calibrate_keys", &keys, accesses, mask, grid, 0);
            let keys: Vec<u32> = machine.read(&keys, accesses as usize);
            for (i, key) in keys.iter().enumerate() {
                assert_eq!(*key, place(i as u32, SEED, u32::MAX), "{name}");
            }

            for (kernel, width) in [("calibrate_shared4", 4), ("calibrate_shared8", 8)] {
                let shared = (mask as usize + 1) * width;
                let got = run(&machine, kernel, &data, accesses, mask, grid, shared.max(8));
                assert_eq!(got, accesses, "{name}");
            }

            let expected: u64 = places.iter().map(|p| u64::from(*p)).sum();
            let got = run(
                &machine,
                "calibrate_registers",
                &data,
                accesses,
                mask,
                grid,
                0,
            );
            assert_eq!(got, expected, "{name}");
        }
        for words in [0u64, 1, 33, 3000] {
            let values: Vec<u64> = (0..2 * words + 2).map(|i| i * 7 + 1).collect();
            let data = machine.upload(&values);
            let got = run(&machine, "calibrate_read", &data, words, 0, 2, 0);
            let expected: u64 = values[..2 * words as usize].iter().sum();
            assert_eq!(got, expected, "{}: {words} reads", machine.name);
        }
    }
}

#[test]
fn a_measured_machine_has_every_figure() {
    for machine in machines().into_iter().take(1) {
        let extent = Extent {
            accesses: 1 << 10,
            bytes: 1 << 13,
        };
        let measured = calibrate_over(&machine.runtime, extent).unwrap();
        assert_eq!(measured.origin, Origin::Measured);
        assert_eq!(measured.device, machine.runtime.device().info().name);
        for figure in [
            measured.copy,
            measured.read,
            measured.link,
            measured.launch,
            measured.register_update,
            measured.partition_copy,
            measured.match_row,
        ] {
            assert!(figure.is_finite() && figure > 0.0, "{measured}");
        }
        let curves = measured.gather.iter().chain(&measured.scatter).chain([
            &measured.atomics,
            &measured.inserts,
            &measured.shared_atomics,
            &measured.shared_wide_atomics,
        ]);
        for curve in curves {
            assert!(!curve.points().is_empty());
            assert!(curve.points().iter().all(|(x, y)| *x > 0.0 && *y > 0.0));
        }
        let text = measured.to_string();
        assert!(text.contains("(measured)") && text.contains("random reads of 16 bytes"));
        // Nothing of it stays allocated.
        let pool = machine.runtime.pool();
        assert_eq!(pool.available() as u64, pool.budget().bytes());
    }
}
