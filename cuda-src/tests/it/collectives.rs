//! Every waiting function of the headers against a scalar model, by block size and schedule, with the
//! primitives both as one meeting and as the shuffle trees the GPU runs.

use warpline_cuda::emulator::{CompileOptions, Kernel, LaunchConfig, Schedule};
use warpline_cuda::{DevicePtr, kernel_args};

use crate::support::{Numbers, compile_with, device, run};

kernel_args! {
    pub struct CollectiveArgs {
        pub input: DevicePtr as "const u64*",
        /// Two words a thread.
        pub out: DevicePtr as "u64*",
        pub operation: u32,
        pub operand: u32,
    }
}

const BODY: &str = r"
struct Scratch {
    BlockScratch<u32> s_u32;
    BlockScratch<i32> s_i32;
    BlockScratch<u64> s_u64;
    BlockScratch<i64> s_i64;
    BlockScratch<f64> s_f64;
    BlockScratch<i128> s_i128;
    BlockScratch<u128> s_u128;
};

WL_DEVICE i128 spread(u64 v) { return (i128)(i64)v * 0x123456789abcdefll; }

WL_KERNEL(collective, CollectiveArgs, args) {
    WL_SHARED(Scratch, shared);
    u64 thread = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    u64 v = args.input[thread];
    u32 lane = lane_id();
    u32 all = WL_FULL_MASK;
    // Three groups of lanes whose masks interleave.
    u32 third = 0;
    for (u32 i = lane % 3; i < 32; i += 3) third |= 1u << i;
    i128 r = 0;
    switch (args.operation) {
        case 0: r = __shfl_sync(all, v, (int)args.operand); break;
        case 1: r = __shfl_sync(all, (u32)v, (int)(lane * 7 + args.operand), 8); break;
        case 2: r = __shfl_up_sync(all, (i32)v, args.operand, 16); break;
        case 3: r = __shfl_down_sync(all, (i64)v, args.operand); break;
        case 4: r = __shfl_xor_sync(all, v, (int)args.operand, 16); break;
        case 5: r = __ballot_sync(third, v & 1); break;
        case 6: r = __any_sync(third, v % 64 == 0) * 2 + __all_sync(third, v % 8 != 0); break;
        case 7: r = __match_any_sync(all, (u32)(v % 5)); break;
        case 8: r = __match_any_sync(third, v % 3); break;
        case 9: r = __reduce_add_sync(third, (u32)v); break;
        case 10: r = __reduce_add_sync(third, (i32)v); break;
        case 11: r = __reduce_min_sync(third, (u32)v); break;
        case 12: r = __reduce_min_sync(third, (i32)v); break;
        case 13: r = __reduce_max_sync(third, (u32)v); break;
        case 14: r = __reduce_max_sync(third, (i32)v); break;
        case 15: r = __reduce_and_sync(third, (u32)v | 1u); break;
        case 16: r = __reduce_or_sync(third, (u32)v & 0xff00u); break;
        case 17: r = __reduce_xor_sync(third, (u32)v); break;
        case 18: r = warp_sum((u32)v); break;
        case 19: r = warp_sum((i32)v); break;
        case 20: r = warp_sum((i64)v); break;
        case 21: r = warp_sum(v); break;
        case 22: r = warp_sum(spread(v)); break;
        case 23: r = (i128)warp_sum((u128)spread(v)); break;
        case 24: r = __double_as_longlong(warp_sum((f64)v * 0.1)); break;
        case 25: r = warp_min((i32)v); break;
        case 26: r = warp_max((u32)v); break;
        case 27: r = warp_min((i64)v); break;
        case 28: r = warp_max(v); break;
        case 29: r = warp_min(spread(v)); break;
        case 30: r = warp_max(spread(v)); break;
        case 31: r = warp_scan_exclusive_sum((u32)v); break;
        case 32: r = warp_scan_exclusive_sum(v); break;
        case 33: r = block_sum((u32)v, shared.s_u32); break;
        case 34: r = block_sum((i32)v, shared.s_i32); break;
        case 35: r = block_sum((i64)v, shared.s_i64); break;
        case 36: r = block_sum(v, shared.s_u64); break;
        case 37: r = block_sum(spread(v), shared.s_i128); break;
        case 38: r = (i128)block_sum((u128)spread(v), shared.s_u128); break;
        case 39: r = __double_as_longlong(block_sum((f64)v * 0.1, shared.s_f64)); break;
        case 40: r = block_min((i32)v, shared.s_i32); break;
        case 41: r = block_max((i64)v, shared.s_i64); break;
        case 42: r = block_min(v, shared.s_u64); break;
        case 43: r = block_max(spread(v), shared.s_i128); break;
        case 44: {
            u32 total, again;
            u32 before = block_scan_exclusive_sum((u32)v, shared.s_u32, total);
            // The scratch may be used again at once.
            r = (u32)(before + 3 * total + 5 * block_scan_exclusive_sum(1u, shared.s_u32, again));
            break;
        }
        case 45: {
            u64 total;
            r = block_scan_exclusive_sum(v, shared.s_u64, total);
            r += (i128)total << 64;
            break;
        }
        case 46: r = __syncthreads_count(v & 1); break;
        case 47: r = __syncthreads_and(v % 64 != 0) * 2 + __syncthreads_or(v % 64 == 0); break;
        case 48: {
            // Exchange through memory with nothing but __syncwarp to order it.
            u64* words = shared.s_u64.partial;
            for (u32 turn = 0; turn < 32; ++turn) {
                if (warp_id() == 0 && lane == turn) words[lane] = v + (turn == 0 ? 0 : words[turn - 1]);
                __syncwarp();
            }
            __syncthreads();
            r = words[31];
            break;
        }
    }
    args.out[2 * thread] = (u64)r;
    args.out[2 * thread + 1] = (u64)((u128)r >> 64);
}
";

const OPERATIONS: u32 = 49;

fn spread(v: u64) -> i128 {
    i128::from(v as i64) * 0x0123_4567_89ab_cdef
}

/// The sum in the order of a butterfly of shuffles.
fn butterfly(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    let mut step = values.len() / 2;
    while step > 0 {
        values = (0..values.len())
            .map(|i| values[i] + values[i ^ step])
            .collect();
        step /= 2;
    }
    values[0]
}

/// What thread `i` of the block with these inputs must get.
fn expected(operation: u32, operand: u32, block: &[u64], i: usize) -> i128 {
    let lane = i % 32;
    let warp = &block[i - lane..i - lane + 32];
    let v = warp[lane];
    let operand = operand as usize;
    let third: Vec<(usize, u64)> = warp
        .iter()
        .copied()
        .enumerate()
        .filter(|(j, _)| j % 3 == lane % 3)
        .collect();
    let thirds = || third.iter().map(|(_, v)| *v);
    let mask = |lanes: &mut dyn Iterator<Item = usize>| lanes.fold(0i128, |mask, j| mask | 1 << j);
    let f64_bits = |x: f64| i128::from(x.to_bits() as i64);
    let tenths = |values: &[u64]| values.iter().map(|v| *v as f64 * 0.1).collect::<Vec<_>>();
    let u32s = |values: &[u64]| values.iter().fold(0u32, |a, v| a.wrapping_add(*v as u32));
    let i32s = |values: &[u64]| values.iter().fold(0i32, |a, v| a.wrapping_add(*v as i32));
    let u64s = |values: &[u64]| values.iter().fold(0u64, |a, v| a.wrapping_add(*v));
    let wide = |values: &[u64]| values.iter().fold(0i128, |a, v| a.wrapping_add(spread(*v)));
    match operation {
        0 => warp[operand % 32].into(),
        1 => i128::from(warp[(lane & !7) | ((lane * 7 + operand) & 7)] as u32),
        2 => (warp[if lane % 16 >= operand {
            lane - operand
        } else {
            lane
        }] as i32)
            .into(),
        3 => (warp[if lane + operand < 32 {
            lane + operand
        } else {
            lane
        }] as i64)
            .into(),
        4 => warp[if lane ^ operand <= (lane | 15) {
            lane ^ operand
        } else {
            lane
        }]
        .into(),
        5 => mask(&mut third.iter().filter(|(_, v)| v & 1 == 1).map(|(j, _)| *j)),
        6 => {
            i128::from(thirds().any(|v| v % 64 == 0)) * 2 + i128::from(thirds().all(|v| v % 8 != 0))
        }
        7 => mask(&mut (0..32).filter(|j| warp[*j] % 5 == v % 5)),
        8 => mask(
            &mut third
                .iter()
                .filter(|(_, x)| x % 3 == v % 3)
                .map(|(j, _)| *j),
        ),
        9 => thirds().fold(0u32, |a, v| a.wrapping_add(v as u32)).into(),
        10 => thirds().fold(0i32, |a, v| a.wrapping_add(v as i32)).into(),
        11 => thirds().map(|v| v as u32).min().unwrap().into(),
        12 => thirds().map(|v| v as i32).min().unwrap().into(),
        13 => thirds().map(|v| v as u32).max().unwrap().into(),
        14 => thirds().map(|v| v as i32).max().unwrap().into(),
        15 => thirds().fold(u32::MAX, |a, v| a & (v as u32 | 1)).into(),
        16 => thirds().fold(0, |a, v| a | v as u32 & 0xff00).into(),
        17 => thirds().fold(0, |a, v| a ^ v as u32).into(),
        18 => u32s(warp).into(),
        19 => i32s(warp).into(),
        20 => (u64s(warp) as i64).into(),
        21 => u64s(warp).into(),
        22 | 23 => wide(warp),
        24 => f64_bits(butterfly(&tenths(warp))),
        25 => warp.iter().map(|v| *v as i32).min().unwrap().into(),
        26 => warp.iter().map(|v| *v as u32).max().unwrap().into(),
        27 => warp.iter().map(|v| *v as i64).min().unwrap().into(),
        28 => warp.iter().copied().max().unwrap().into(),
        29 => warp.iter().map(|v| spread(*v)).min().unwrap(),
        30 => warp.iter().map(|v| spread(*v)).max().unwrap(),
        31 => u32s(&warp[..lane]).into(),
        32 => u64s(&warp[..lane]).into(),
        33 => u32s(block).into(),
        34 => i32s(block).into(),
        35 => (u64s(block) as i64).into(),
        36 => u64s(block).into(),
        37 | 38 => wide(block),
        39 => {
            let mut warps: Vec<f64> = block
                .chunks(32)
                .map(|warp| butterfly(&tenths(warp)))
                .collect();
            warps.resize(32, 0.0);
            f64_bits(butterfly(&warps))
        }
        40 => block.iter().map(|v| *v as i32).min().unwrap().into(),
        41 => block.iter().map(|v| *v as i64).max().unwrap().into(),
        42 => block.iter().copied().min().unwrap().into(),
        43 => block.iter().map(|v| spread(*v)).max().unwrap(),
        44 => {
            let sum = u32s(&block[..i])
                .wrapping_add(3u32.wrapping_mul(u32s(block)))
                .wrapping_add(5 * i as u32);
            sum.into()
        }
        45 => ((u128::from(u64s(block)) << 64) + u128::from(u64s(&block[..i]))) as i128,
        46 => block.iter().filter(|v| *v & 1 == 1).count() as i128,
        47 => {
            i128::from(block.iter().all(|v| v % 64 != 0)) * 2
                + i128::from(block.iter().any(|v| v % 64 == 0))
        }
        48 => u64s(&block[..32]).into(),
        _ => unreachable!(),
    }
}

fn check(kernel: &Kernel, schedule: Schedule) {
    let mut numbers = Numbers::new(11);
    for block in [32usize, 64, 256] {
        let grid = 3;
        let mut input: Vec<u64> = (0..grid * block).map(|_| numbers.draw()).collect();
        for operation in 0..OPERATIONS {
            let operand = numbers.draw() as u32 % 20;
            let mut out = vec![0u64; 2 * input.len()];
            let args = CollectiveArgs {
                input: device(&mut input),
                out: device(&mut out),
                operation,
                operand,
            };
            let config = LaunchConfig::new(grid as u32, block as u32).with_shared(4096);
            run(kernel, config, &args, schedule).unwrap();
            for (b, values) in input.chunks(block).enumerate() {
                for i in 0..block {
                    let at = 2 * (b * block + i);
                    let got = (u128::from(out[at + 1]) << 64 | u128::from(out[at])) as i128;
                    let want = expected(operation, operand, values, i);
                    assert_eq!(
                        got, want,
                        "operation {operation}, operand {operand}, block {b} of {block} threads, thread {i}, {schedule:?}"
                    );
                }
            }
        }
    }
}

#[test]
fn waiting_functions_follow_the_model() {
    let module = compile_with(
        "collectives.cu",
        &[CollectiveArgs::CUDA],
        BODY,
        &CompileOptions::default(),
    );
    let kernel = module.kernel("collective").unwrap();
    for schedule in Schedule::all(5) {
        check(&kernel, schedule);
    }
}

#[test]
fn shuffle_trees_follow_the_same_model() {
    let options = CompileOptions {
        defines: vec![("WL_SHUFFLE_TREES".to_owned(), "1".to_owned())],
        ..CompileOptions::default()
    };
    let module = compile_with("trees.cu", &[CollectiveArgs::CUDA], BODY, &options);
    let kernel = module.kernel("collective").unwrap();
    for schedule in Schedule::all(6) {
        check(&kernel, schedule);
    }
}
