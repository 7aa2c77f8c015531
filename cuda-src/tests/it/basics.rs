//! Launching, compiling and the cache.

use warpline_cuda::emulator::{LaunchConfig, Schedule};
use warpline_cuda::{DevicePtr, kernel_args};

use crate::support::{compile, device, run};

kernel_args! {
    pub struct AddArgs {
        pub a: DevicePtr as "const u32*",
        pub b: DevicePtr as "const u32*",
        pub out: DevicePtr as "u32*",
        pub n: u64,
    }
}

const ADD: &str = r"
WL_KERNEL(vector_add, AddArgs, args) {
    u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < args.n) args.out[i] = args.a[i] + args.b[i];
}
";

#[test]
fn vector_add_under_every_schedule() {
    let kernel = compile("add.cu", &[AddArgs::CUDA], ADD)
        .kernel("vector_add")
        .unwrap();
    for schedule in Schedule::all(7) {
        let mut a: Vec<u32> = (0..1000).collect();
        let mut b: Vec<u32> = (0..1000).map(|x| x * 3).collect();
        let mut out = vec![0u32; 1000];
        let args = AddArgs {
            a: device(&mut a),
            b: device(&mut b),
            out: device(&mut out),
            n: 1000,
        };
        let report = run(&kernel, LaunchConfig::new(8, 128), &args, schedule).unwrap();
        assert_eq!(out, (0..1000).map(|x| x * 4).collect::<Vec<u32>>());
        assert_eq!(report.lanes, 1024);
    }
}
