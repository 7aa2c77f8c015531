//! NVRTC, NVIDIA's runtime compiler, loaded when it is first needed: CUDA C++ to a cubin, with or without a GPU.
//!
//! The library is looked for in `WARPLINE_NVRTC` (the path of the library file), then by name on the
//! loader's path, then in `CUDA_HOME`, `CUDA_PATH` and `/usr/local/cuda*`.

mod library;

use std::sync::{LazyLock, OnceLock};

pub(super) use library::{Headers, Job, Nvrtc, file_of};

use super::cubin_cache::CacheKey;
use crate::error::{GpuError, Result};

/// Environment variable with the path of the NVRTC library file.
pub const NVRTC_VARIABLE: &str = "WARPLINE_NVRTC";

/// Environment variable with further compiler options, separated by spaces; cubins are cached apart for each. With
/// `--generate-line-info`, which profilers and sanitizers need to name lines, binaries are two to three times as large.
pub const NVRTC_OPTIONS_VARIABLE: &str = "WARPLINE_NVRTC_OPTIONS";

/// Compiler options besides the architecture. No contraction to fused multiply-adds: a product that overflows must
/// overflow, as it does on the CPU.
const OPTIONS: [&str; 4] = [
    "--std=c++17",
    "--device-int128",
    "--fmad=false",
    // Lambdas over numbers of levels have no place for an annotation.
    "--device-as-default-execution-space",
];

/// The release from which on the compiler is asked to leave out what no kernel of ours uses: types and functions of the CUDA
/// runtime, textures. That is a twentieth of the time that a kernel takes to compile.
const KNOWS_MINIMAL: (u32, u32) = (13, 0);

/// What to do when the library is missing.
pub(super) const REMEDY: &str = "install the CUDA toolkit's NVRTC (or `pip install nvidia-cuda-nvrtc`) and, when it is not on the \
     loader's path, set WARPLINE_NVRTC to the path of libnvrtc.so";

/// The library, loaded once a process; the error says where was looked.
pub(super) fn library() -> Result<&'static Nvrtc> {
    static LIBRARY: OnceLock<Result<Nvrtc, String>> = OnceLock::new();
    LIBRARY
        .get_or_init(library::find)
        .as_ref()
        .map_err(|cause| GpuError::DeviceUnavailable {
            requested: "nvrtc".into(),
            cause: cause.clone(),
            remedy: REMEDY.into(),
        })
}

/// Version of the installed NVRTC, e.g. (13, 0).
///
/// # Errors
/// [`GpuError::DeviceUnavailable`] when the library is not found.
pub fn version() -> Result<(u32, u32)> {
    library().map(|nvrtc| nvrtc.version)
}

/// Where the library was found: a path, or a name that the loader resolved.
///
/// # Errors
/// [`GpuError::DeviceUnavailable`] when the library is not found.
pub fn location() -> Result<&'static str> {
    library().map(|nvrtc| nvrtc.location.as_str())
}

/// The file that the library was loaded from, where the system tells.
pub(super) fn file() -> Option<String> {
    library().ok()?.file()
}

/// The architecture to compile for on a device of this compute capability: its own, or the highest
/// of the same major version that the compiler knows. Such code runs on the device.
///
/// # Errors
/// [`GpuError::DeviceUnavailable`] when the library is missing or knows no such architecture.
pub fn architecture_for(capability: (u32, u32)) -> Result<(u32, u32)> {
    let nvrtc = library()?;
    nvrtc
        .supported
        .iter()
        .map(|&sm| (sm / 10, sm % 10))
        .filter(|&(major, minor)| major == capability.0 && minor <= capability.1)
        .max()
        .ok_or_else(|| GpuError::DeviceUnavailable {
            requested: format!("sm_{}{}", capability.0, capability.1),
            cause: format!(
                "NVRTC {}.{} does not compile for compute capability {}.{}",
                nvrtc.version.0, nvrtc.version.1, capability.0, capability.1
            ),
            remedy: "install an NVRTC release that supports this GPU".into(),
        })
}

/// The key of what `compiler` makes of a source for an architecture: everything that determines it.
pub(super) fn cache_key(source: &str, compiler: &str, architecture: (u32, u32)) -> CacheKey {
    // A fifth of a megabyte that does not change.
    static HEADERS: LazyLock<CacheKey> = LazyLock::new(|| {
        let headers = warpline_cuda::headers().iter();
        CacheKey::new(headers.flat_map(|(name, text)| [*name, *text]))
    });
    let options = options(architecture);
    CacheKey::new(
        [source, compiler, HEADERS.as_str()]
            .into_iter()
            .chain(options.iter().map(String::as_str)),
    )
}

/// [`cache_key`] of what [`compile`] makes, which no change of a header touches that the source has no part of. It takes longer to tell.
pub(super) fn short_key(source: &str, compiler: &str, architecture: (u32, u32)) -> CacheKey {
    let short = warpline_cuda::self_contained(source);
    // A source that includes anything else is its own text: NVRTC refuses it, since it is given no other headers.
    let options = options(architecture);
    let options = options.iter().map(String::as_str);
    CacheKey::new([short.as_str(), compiler].into_iter().chain(options))
}

/// All options for an architecture, in order.
fn options(architecture: (u32, u32)) -> Vec<String> {
    let mut options = vec![format!(
        "--gpu-architecture=sm_{}{}",
        architecture.0, architecture.1
    )];
    options.extend(OPTIONS.iter().map(|option| option.to_string()));
    if library().is_ok_and(|nvrtc| nvrtc.version >= KNOWS_MINIMAL) {
        options.push("--minimal".to_string());
    }
    if let Ok(more) = std::env::var(NVRTC_OPTIONS_VARIABLE) {
        options.extend(more.split_whitespace().map(str::to_string));
    }
    options
}

/// What compiles `source` for `architecture`, read with all that it includes.
fn whole_job(name: &str, source: &str, architecture: (u32, u32)) -> Job {
    Job {
        name: name.into(),
        source: source.into(),
        options: options(architecture),
        kept: None,
    }
}

/// What compiles `source` for `architecture`, of which no more is read than it needs.
fn short_job(name: &str, source: &str, architecture: (u32, u32)) -> Job {
    Job {
        source: warpline_cuda::self_contained(source),
        ..whole_job(name, source, architecture)
    }
}

/// The cubin of `source` for `architecture`, as `compile` makes it of a job. A source that is refused is compiled again with all
/// that it includes: then the compiler's log names the headers' lines, and what was left out is known not to be missing.
///
/// # Errors
/// What `compile` reports.
pub(super) fn compile_by(
    compile: impl Fn(Job) -> Result<Vec<u8>>,
    (name, source): (&str, &str),
    architecture: (u32, u32),
) -> Result<Vec<u8>> {
    let short = match compile(short_job(name, source, architecture)) {
        Err(GpuError::Compile { log, .. }) => log,
        other => return other,
    };
    let whole = compile(whole_job(name, source, architecture))?;
    log::warn!("kernel '{name}' compiles only with all of its headers: {short}");
    Ok(whole)
}

/// Compile CUDA C++ that may include Warpline's headers to a cubin for `architecture`, e.g. (9, 0), by the library in this process.
/// Needs no GPU. `name` stands for the source in the compiler's messages. No more of the headers is read than the source uses, and a
/// source that is refused is not tried with all of them: tests tell by this that nothing is left out that is needed.
///
/// # Errors
/// [`GpuError::Compile`] with the compiler's log, [`GpuError::DeviceUnavailable`] without NVRTC.
pub fn compile(name: &str, source: &str, architecture: (u32, u32)) -> Result<Vec<u8>> {
    compile_here(&short_job(name, source, architecture))
}

/// [`compile`] with all of the headers that the source includes.
///
/// # Errors
/// As [`compile`].
pub fn compile_whole(name: &str, source: &str, architecture: (u32, u32)) -> Result<Vec<u8>> {
    compile_here(&whole_job(name, source, architecture))
}

/// Compile a job by the library in this process.
///
/// # Errors
/// As [`compile`].
pub(super) fn compile_here(job: &Job) -> Result<Vec<u8>> {
    // A fifth of a megabyte that does not change.
    static HEADERS: LazyLock<Headers> = LazyLock::new(Headers::own);
    let compiled = library()?.compile(job, &HEADERS);
    compiled.map_err(|log| GpuError::Compile {
        kernel: job.name.clone(),
        log,
    })
}
