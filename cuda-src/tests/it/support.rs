//! What the tests share: an emulator, buffers of device memory, launches under every schedule.

use std::sync::OnceLock;
use std::time::Duration;

use warpline_cuda::emulator::{
    CompileOptions, Emulator, EmulatorError, EmulatorOptions, Kernel, LaunchConfig, LaunchReport,
    Module, Schedule,
};
use warpline_cuda::{DevicePtr, KernelArgs};

/// The emulator of this test process, with a cache that the build folder keeps.
pub(crate) fn emulator() -> &'static Emulator {
    static EMULATOR: OnceLock<Emulator> = OnceLock::new();
    EMULATOR.get_or_init(|| {
        let cache_dir = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("emulator-cache");
        Emulator::open(EmulatorOptions {
            cache_dir: Some(cache_dir),
            ..EmulatorOptions::default()
        })
        .unwrap()
    })
}

/// Compile a source that starts with the headers and the argument structs.
pub(crate) fn compile(name: &str, structs: &[&str], body: &str) -> Module {
    compile_with(name, structs, body, &CompileOptions::default())
}

pub(crate) fn compile_with(
    name: &str,
    structs: &[&str],
    body: &str,
    options: &CompileOptions,
) -> Module {
    emulator()
        .compile(name, &source(name, structs, body), options)
        .unwrap()
}

/// The source, in which lines count from the first line of `body`.
pub(crate) fn source(name: &str, structs: &[&str], body: &str) -> String {
    format!(
        "#include \"primitives.cuh\"\n{}\n#line 1 \"{name}\"\n{body}",
        structs.concat()
    )
}

/// The address of a slice that a kernel may write.
pub(crate) fn device<T>(data: &mut [T]) -> DevicePtr {
    DevicePtr(data.as_mut_ptr() as u64)
}

/// Launch with a bound on the wall time.
pub(crate) fn run(
    kernel: &Kernel,
    config: LaunchConfig,
    arguments: &impl KernelArgs,
    schedule: Schedule,
) -> Result<LaunchReport, EmulatorError> {
    let config = LaunchConfig {
        time_limit: Some(Duration::from_secs(30)),
        ..config
    };
    // SAFETY: the tests pass addresses of live buffers that are as long as their kernels expect.
    unsafe { kernel.launch(config, arguments.as_bytes(), schedule) }
}

/// Pseudo-random numbers that repeat from their seed (xorshift).
pub(crate) struct Numbers(u64);

impl Numbers {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn draw(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}
