//! Atomics, racing loads and stores, vector accesses, hashes and integer intrinsics against scalar models.

use warpline_cuda::emulator::{EmulatorError, LaunchConfig, Schedule};
use warpline_cuda::{DevicePtr, kernel_args};

use crate::support::{Numbers, compile, device, run};

kernel_args! {
    pub struct AtomicArgs {
        pub input: DevicePtr as "const u64*",
        pub cells: DevicePtr as "u64*",
        pub n: u64,
    }
}

const ATOMICS: &str = r"
WL_KERNEL(atomics, AtomicArgs, args) {
    u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= args.n) return;
    u64 v = args.input[i];
    u64* c = args.cells;
    atomicAdd((i32*)&c[0], (i32)v);
    atomicAdd((u32*)&c[1], (u32)v);
    atomicAdd(&c[2], v);
    atomicAdd((f32*)&c[3], (f32)(v % 16));
    atomicAdd((f64*)&c[4], (f64)(v % 16));
    atomicMin((i32*)&c[5], (i32)v);
    atomicMin((u32*)&c[6], (u32)v);
    atomicMin((i64*)&c[7], (i64)v);
    atomicMin(&c[8], v);
    atomicMax((i32*)&c[9], (i32)v);
    atomicMax((u32*)&c[10], (u32)v);
    atomicMax((i64*)&c[11], (i64)v);
    atomicMax(&c[12], v);
    atomicOr((u32*)&c[13], 1u << (v % 32));
    atomicOr(&c[14], (u64)1 << (v % 64));
    atomicAnd((u32*)&c[15], ~(1u << (v % 32)));
    atomicAnd(&c[16], ~((u64)1 << (v % 64)));
    atomicXor((u32*)&c[17], (u32)v);
    atomicXor(&c[18], v);
    atomicSub((u32*)&c[19], (u32)v);
    // A counter that a compare-and-swap loop increments.
    u64 seen = load_relaxed(&c[20]);
    while (true) {
        u64 before = atomicCAS(&c[20], seen, seen + 1);
        if (before == seen) break;
        seen = before;
    }
    // Exchange hands every value on exactly once: the sum of what comes back and what stays is the sum of all.
    atomicAdd(&c[21], atomicExch(&c[22], v));
    atomic_add_u128(&c[24], (u128)v * v);
}
";

#[test]
fn atomics_follow_the_model() {
    let kernel = compile("atomics.cu", &[AtomicArgs::CUDA], ATOMICS)
        .kernel("atomics")
        .unwrap();
    let mut numbers = Numbers::new(3);
    let mut input: Vec<u64> = (0..900).map(|_| numbers.draw()).collect();
    let low = |x: u32| u64::from(x);
    let mut want = [0u64; 26];
    let mut start = [0u64; 26];
    (start[5], start[6], start[7], start[8]) =
        (i32::MAX as u64, u32::MAX.into(), i64::MAX as u64, u64::MAX);
    (start[9], start[11]) = (low(i32::MIN as u32), i64::MIN as u64);
    (start[15], start[16]) = (u32::MAX.into(), u64::MAX);
    let sum = input.iter().fold(0u64, |a, v| a.wrapping_add(*v));
    want[0] = low(sum as u32);
    want[1] = low(sum as u32);
    want[2] = sum;
    let small: u64 = input.iter().map(|v| v % 16).sum();
    want[3] = low((small as f32).to_bits());
    want[4] = (small as f64).to_bits();
    want[5] = low(input.iter().map(|v| *v as i32).min().unwrap() as u32);
    want[6] = low(input.iter().map(|v| *v as u32).min().unwrap());
    want[7] = input.iter().map(|v| *v as i64).min().unwrap() as u64;
    want[8] = *input.iter().min().unwrap();
    want[9] = low(input.iter().map(|v| *v as i32).max().unwrap() as u32);
    want[10] = low(input.iter().map(|v| *v as u32).max().unwrap());
    want[11] = input.iter().map(|v| *v as i64).max().unwrap() as u64;
    want[12] = *input.iter().max().unwrap();
    want[13] = low(input.iter().fold(0u32, |a, v| a | 1 << (v % 32)));
    want[14] = input.iter().fold(0u64, |a, v| a | 1 << (v % 64));
    want[15] = low(!(want[13] as u32));
    want[16] = !want[14];
    want[17] = low(input.iter().fold(0u32, |a, v| a ^ *v as u32));
    want[18] = input.iter().fold(0u64, |a, v| a ^ *v);
    want[19] = low((sum as u32).wrapping_neg());
    want[20] = input.len() as u64;
    let wide = input.iter().fold(u128::MAX, |a, v| {
        a.wrapping_add(u128::from(*v) * u128::from(*v))
    });
    (want[24], want[25]) = (wide as u64, (wide >> 64) as u64);
    (start[24], start[25]) = (u64::MAX, u64::MAX);
    for schedule in Schedule::all(17) {
        let mut cells = start;
        let args = AtomicArgs {
            input: device(&mut input),
            cells: device(&mut cells),
            n: 900,
        };
        run(&kernel, LaunchConfig::new(8, 128), &args, schedule).unwrap();
        assert_eq!(cells[21].wrapping_add(cells[22]), sum, "{schedule:?}");
        (cells[21], cells[22]) = (0, 0);
        assert_eq!(cells, want, "{schedule:?}");
    }
}

kernel_args! {
    pub struct VectorArgs {
        pub input: DevicePtr as "const u8*",
        pub out: DevicePtr as "u8*",
        pub threads: u64,
    }
}

#[test]
fn vector_accesses_move_every_byte() {
    for (element, n) in [
        ("u8", 1),
        ("u8", 3),
        ("u8", 16),
        ("u16", 5),
        ("u32", 2),
        ("u32", 8),
        ("u64", 3),
        ("i128", 2),
    ] {
        let name = format!("vector_{element}_{n}.cu");
        let body = format!(
            "WL_KERNEL(copy, VectorArgs, args) {{
                 u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x;
                 if (i >= args.threads) return;
                 {element} a[{n}], b[{n}];
                 load_vec((const {element}*)args.input + i * {n}, a);
                 load_vec_stream((const {element}*)args.input + i * {n}, b);
                 for (int j = 0; j < {n}; ++j) if (a[j] != b[j]) __trap();
                 store_vec(({element}*)args.out + i * {n}, a);
             }}"
        );
        let kernel = compile(&name, &[VectorArgs::CUDA], &body)
            .kernel("copy")
            .unwrap();
        let mut numbers = Numbers::new(n);
        let mut input: Vec<u128> = (0..200)
            .map(|_| u128::from(numbers.draw()) << 64 | u128::from(numbers.draw()))
            .collect();
        let mut out = vec![0u128; 200];
        let bytes = match element {
            "u8" => 1,
            "u16" => 2,
            "u32" => 4,
            "u64" => 8,
            _ => 16,
        } * n;
        let threads = 3200 / bytes;
        let args = VectorArgs {
            input: device(&mut input),
            out: device(&mut out),
            threads,
        };
        run(
            &kernel,
            LaunchConfig::new(threads.div_ceil(64) as u32, 64),
            &args,
            Schedule::Descending,
        )
        .unwrap();
        let copied = (threads * bytes) as usize;
        let view = |words: &[u128]| {
            words
                .iter()
                .flat_map(|word| word.to_ne_bytes())
                .take(copied)
                .collect::<Vec<_>>()
        };
        assert_eq!(view(&input), view(&out), "{name}");
    }
}

#[test]
fn a_misaligned_vector_access_is_an_error_with_its_place() {
    let body = "
        WL_KERNEL(misaligned, VectorArgs, args) {
            u32 v[4];
            load_vec((const u32*)(args.input + 4 * threadIdx.x), v);
            args.out[threadIdx.x] = (u8)v[0];
        }";
    let kernel = compile("misaligned.cu", &[VectorArgs::CUDA], body)
        .kernel("misaligned")
        .unwrap();
    let (mut input, mut out) = (vec![0u128; 64], vec![0u8; 64]);
    let args = VectorArgs {
        input: device(&mut input),
        out: device(&mut out),
        threads: 32,
    };
    let error = run(
        &kernel,
        LaunchConfig::new(1, 32),
        &args,
        Schedule::Ascending,
    )
    .unwrap_err();
    match error {
        EmulatorError::Lane {
            thread,
            cause,
            place,
            ..
        } => {
            assert_eq!(place, "misaligned.cu:4");
            assert_eq!(thread, 1, "thread 0 is aligned");
            assert!(cause.contains("align it to 16 bytes"), "{cause}");
        }
        other => panic!("{other}"),
    }
}

kernel_args! {
    pub struct IntrinsicArgs {
        pub input: DevicePtr as "const u64*",
        pub out: DevicePtr as "u64*",
    }
}

const INTRINSICS: &str = r"
WL_KERNEL(intrinsics, IntrinsicArgs, args) {
    u64 v = args.input[threadIdx.x], w = hash64(v);
    u64* out = args.out + 16 * threadIdx.x;
    out[0] = (u64)(__popc((u32)v) + 100 * __popcll(v));
    out[1] = (u64)(__ffs((int)v) + 100 * __ffsll((i64)v));
    out[2] = (u64)(__clz((int)v) + 100 * __clzll((i64)v));
    out[3] = __brev((u32)v);
    out[4] = __brevll(v);
    out[5] = __umul64hi(v, w);
    out[6] = (u64)__mul64hi((i64)v, (i64)w);
    out[7] = __umulhi((u32)v, (u32)w);
    out[8] = (u64)(i64)__mulhi((i32)v, (i32)w);
    out[9] = (u64)__double_as_longlong(min((f64)v, (f64)w));
    out[10] = w;
    out[11] = hash32((u32)v);
    out[12] = (u64)(i64)min((i32)v, (i32)w);
    out[13] = max(v, w);
    out[14] = (u64)__double_as_longlong(floor(sqrt((f64)v)) + fmod((f64)v, 7.0));
    out[15] = (u64)isnan(__longlong_as_double((i64)v));
}
";

#[test]
fn intrinsics_follow_the_model() {
    let kernel = compile("intrinsics.cu", &[IntrinsicArgs::CUDA], INTRINSICS)
        .kernel("intrinsics")
        .unwrap();
    let mut numbers = Numbers::new(23);
    let mut input: Vec<u64> = (0..250).map(|_| numbers.draw()).collect();
    input.extend([0, 1, u64::MAX, 1 << 63, f64::NAN.to_bits(), 1 << 32]);
    let mut out = vec![0u64; 16 * 256];
    let args = IntrinsicArgs {
        input: device(&mut input),
        out: device(&mut out),
    };
    run(
        &kernel,
        LaunchConfig::new(1, 256),
        &args,
        Schedule::Ascending,
    )
    .unwrap();
    let murmur64 = |mut x: u64| {
        x = (x ^ x >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
        x = (x ^ x >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
        x ^ x >> 33
    };
    let murmur32 = |mut x: u32| {
        x = (x ^ x >> 16).wrapping_mul(0x85eb_ca6b);
        x = (x ^ x >> 13).wrapping_mul(0xc2b2_ae35);
        x ^ x >> 16
    };
    let first_set = |x: u64| {
        if x == 0 {
            0
        } else {
            u64::from(x.trailing_zeros()) + 1
        }
    };
    for (v, got) in input.iter().copied().zip(out.chunks(16)) {
        let (low, w) = (v as u32, murmur64(v));
        let want = [
            u64::from(low.count_ones() + 100 * v.count_ones()),
            first_set(low.into()) + 100 * first_set(v),
            u64::from(low.leading_zeros() + 100 * v.leading_zeros()),
            low.reverse_bits().into(),
            v.reverse_bits(),
            ((u128::from(v) * u128::from(w)) >> 64) as u64,
            ((i128::from(v as i64) * i128::from(w as i64)) >> 64) as u64,
            (u64::from(low) * u64::from(w as u32)) >> 32,
            ((i64::from(v as i32) * i64::from(w as i32)) >> 32) as u64,
            (v as f64).min(w as f64).to_bits(),
            w,
            murmur32(low).into(),
            i64::from((v as i32).min(w as i32)) as u64,
            v.max(w),
            ((v as f64).sqrt().floor() + v as f64 % 7.0).to_bits(),
            f64::from_bits(v).is_nan().into(),
        ];
        assert_eq!(got, want, "of {v:#x}");
    }
}
