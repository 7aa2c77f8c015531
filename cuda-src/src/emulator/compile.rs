//! From CUDA C++ to a shared library: the machine's compiler, and a cache of its results on disk.

use std::borrow::Cow;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::{env, fs, io};

use sha2::{Digest, Sha256};

use super::abi;
use super::disk;
use super::error::{EmulatorError, Result};
use super::module::Module;
use crate::headers;
use crate::tree_shaking::Library;

/// A sanitizer of the C++ compiler to build a module with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Sanitizer {
    /// None: the fast build.
    #[default]
    None,
    /// AddressSanitizer. Its runtime must be in the process from the start: set `LD_PRELOAD` to
    /// [`Emulator::address_sanitizer_runtime`] in a child process. A finding ends the process.
    Address,
    /// UndefinedBehaviorSanitizer: overflow, shifts, misalignment. A finding ends the process.
    Undefined,
}

/// How a source is compiled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompileOptions {
    /// 0 to 3, as the compiler's `-O`, but 1 is `-Og`.
    pub opt_level: u8,
    /// Sanitizer to build with.
    pub sanitizer: Sanitizer,
    /// Further headers, as (name in `#include "..."`, text); Warpline's own are always there.
    pub headers: Vec<(String, String)>,
    /// Macros to define, as (name, value).
    pub defines: Vec<(String, String)>,
}

impl Default for CompileOptions {
    fn default() -> Self {
        Self {
            opt_level: 1,
            sanitizer: Sanitizer::None,
            headers: Vec::new(),
            defines: Vec::new(),
        }
    }
}

/// Where the emulator finds its compiler and keeps compiled modules.
#[derive(Clone, Debug, Default)]
pub struct EmulatorOptions {
    /// The compiler's command; by default `CXX`, then the first of c++, g++ and clang++ that runs.
    pub compiler: Option<String>,
    /// The cache; by default `emulator` in `WARPLINE_CACHE_DIR`, or `warpline/emulator` in the user's cache folder.
    pub cache_dir: Option<PathBuf>,
    /// Bytes that the cache may take on disk, by default 2 GiB; beyond them the least recently used modules go.
    pub cache_bytes: Option<u64>,
}

/// The emulator: a C++ compiler and a cache of what it compiled.
#[derive(Clone, Debug)]
pub struct Emulator {
    command: Vec<String>,
    version: String,
    gnu: bool,
    cache_dir: PathBuf,
    cache_bytes: u64,
}

/// Modules that a process builds between two looks at the size of the cache.
const BUILDS_BETWEEN_TRIMS: u64 = 32;
/// Modules that this process has built.
static BUILDS: AtomicU64 = AtomicU64::new(0);

/// Ends every file of the cache, after the checksum of what is before it.
const TRAILER: &[u8; 8] = b"WLEMUL01";

impl Emulator {
    /// Find the compiler.
    ///
    /// # Errors
    /// [`EmulatorError::NoCompiler`] if none runs.
    pub fn open(options: EmulatorOptions) -> Result<Self> {
        let named = options
            .compiler
            .or_else(|| env::var("CXX").ok().filter(|cxx| !cxx.trim().is_empty()));
        let candidates = match named {
            Some(command) => vec![command],
            None => ["c++", "g++", "clang++"].map(str::to_owned).to_vec(),
        };
        for candidate in &candidates {
            let command: Vec<String> = candidate.split_whitespace().map(str::to_owned).collect();
            let Ok(output) = invocation(&command).arg("--version").output() else {
                continue;
            };
            if output.status.success() {
                let text = String::from_utf8_lossy(&output.stdout);
                let version = text.lines().next().unwrap_or_default().to_owned();
                let gnu = text.contains("Free Software Foundation");
                let cache_dir = options.cache_dir.unwrap_or_else(default_cache_dir);
                return Ok(Self {
                    command,
                    version,
                    gnu,
                    cache_dir,
                    cache_bytes: options.cache_bytes.unwrap_or(disk::DEFAULT_CACHE_BYTES),
                });
            }
        }
        Err(EmulatorError::NoCompiler {
            tried: candidates.join(", "),
        })
    }

    /// The compiler's name and version, as it prints them.
    pub fn compiler_version(&self) -> &str {
        &self.version
    }

    /// Compile CUDA C++ that includes `simt.cuh`, or load it from the cache. `name` appears in errors and as
    /// the file in reports of waiting lanes.
    ///
    /// # Errors
    /// [`EmulatorError::Compile`] with the compiler's diagnostics; [`EmulatorError::Io`] and
    /// [`EmulatorError::Load`] for trouble with files.
    pub fn compile(&self, name: &str, source: &str, options: &CompileOptions) -> Result<Module> {
        if options.sanitizer == Sanitizer::Address {
            self.require_address_sanitizer(name)?;
        }
        let flags = self.flags(options);
        let (text, path) = self.entry(name, source, options, &flags);
        if path.exists() && !intact(&path) {
            log::warn!("{} is broken; it is built again", path.display());
        } else if path.exists() {
            match Module::load(name, &path, options.sanitizer, true) {
                Ok(module) => {
                    disk::touch(&path);
                    return Ok(module);
                }
                Err(error) => log::warn!("rebuilding a cached module: {error}"),
            }
        }
        self.build(name, &text, options, &flags, &path)?;
        if BUILDS
            .fetch_add(1, Ordering::Relaxed)
            .is_multiple_of(BUILDS_BETWEEN_TRIMS)
        {
            disk::trim(&self.cache_dir, self.cache_bytes, &path);
        }
        Module::load(name, &path, options.sanitizer, false)
    }

    /// What a module is compiled from, and where it is kept.
    fn entry(
        &self,
        name: &str,
        source: &str,
        options: &CompileOptions,
        flags: &[String],
    ) -> (Text, PathBuf) {
        let name_in_source = name.replace(['"', '\\', '\n'], "_");
        let text = Text::of(&name_in_source, source, options);
        let key = self.key(&text, flags);
        (text, self.cache_dir.join(format!("{key}.so")))
    }

    /// For tests of what happens then: damage the cached module of a source, by changing a byte or, with `cut`, by losing
    /// the last one. False when there is none. The arguments are those of [`Self::compile`].
    pub fn damage_cached(
        &self,
        name: &str,
        source: &str,
        options: &CompileOptions,
        cut: bool,
    ) -> bool {
        let flags = self.flags(options);
        let (_, path) = self.entry(name, source, options, &flags);
        let damage = || -> io::Result<()> {
            let mut bytes = fs::read(&path)?;
            let middle = bytes.len() / 2;
            if cut {
                bytes.pop();
            } else if let Some(byte) = bytes.get_mut(middle) {
                *byte ^= 1;
            }
            // In the place of the file, whose pages other modules of this machine may have loaded.
            let mut file = tempfile::NamedTempFile::new_in(&self.cache_dir)?;
            io::Write::write_all(&mut file, &bytes)?;
            file.persist(&path).map_err(|error| error.error)?;
            Ok(())
        };
        damage().is_ok()
    }

    /// The shared library that a process must preload to run modules built with [`Sanitizer::Address`].
    ///
    /// # Errors
    /// [`EmulatorError::Load`] if the compiler has no such library.
    pub fn address_sanitizer_runtime(&self) -> Result<PathBuf> {
        let names: &[&str] = if self.gnu {
            &["libasan.so"]
        } else {
            &["libclang_rt.asan.so", "libclang_rt.asan-x86_64.so"]
        };
        for name in names {
            let output = self
                .compiler()
                .arg(format!("-print-file-name={name}"))
                .output();
            let printed =
                output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
            // Without the library the compiler prints the bare name.
            if let Ok(path) = printed.map(PathBuf::from)
                && path.is_absolute()
                && path.exists()
            {
                return Ok(path);
            }
        }
        Err(EmulatorError::Load {
            name: names[0].to_owned(),
            path: PathBuf::from(names[0]),
            cause: format!(
                "{} has no AddressSanitizer runtime; install it",
                self.version
            ),
        })
    }

    /// AddressSanitizer ends a process whose runtime comes too late, so refuse before.
    fn require_address_sanitizer(&self, name: &str) -> Result<()> {
        let process = libloading::os::unix::Library::this();
        // SAFETY: the symbol is only looked up, not used.
        let found = unsafe { process.get::<*const u8>(b"__asan_init\0") }.is_ok();
        if found {
            return Ok(());
        }
        let runtime = self.address_sanitizer_runtime()?;
        Err(EmulatorError::Load {
            name: name.to_owned(),
            path: runtime.clone(),
            cause: format!(
                "AddressSanitizer's runtime is not in this process; start it with LD_PRELOAD={}",
                runtime.display()
            ),
        })
    }

    fn compiler(&self) -> Command {
        invocation(&self.command)
    }

    fn flags(&self, options: &CompileOptions) -> Vec<String> {
        let mut flags: Vec<String> = [
            "-std=c++17",
            "-x",
            "c++",
            "-shared",
            "-fPIC",
            "-fvisibility=hidden",
            "-fno-exceptions",
            "-fno-rtti",
            // Kernels view memory as what they like, and floats must not be fused behind their back.
            "-fno-strict-aliasing",
            "-ffp-contract=off",
            "-fno-math-errno",
            // Big frames must hit the guard page, not jump over it.
            "-fstack-clash-protection",
            "-Wno-unknown-pragmas",
        ]
        .map(str::to_owned)
        .to_vec();
        flags.push(match options.opt_level {
            // Two thirds of the compilation that the other flags of this level take; kernels are small, and there are many.
            1 => "-Og".to_owned(),
            level => format!("-O{}", level.min(3)),
        });
        if self.needs_few_libraries(options) {
            flags.push("-nodefaultlibs".to_owned());
        }
        if cfg!(target_os = "linux") {
            flags.push("-Wl,-z,now".to_owned());
        }
        // Reading the current lane must not call a function. Compilers other than GNU's may not know the flag.
        if cfg!(target_arch = "x86_64") && self.gnu {
            flags.push("-mtls-dialect=gnu2".to_owned());
        }
        match options.sanitizer {
            Sanitizer::None => {}
            Sanitizer::Address => flags.extend(
                ["-fsanitize=address", "-g1", "-fno-omit-frame-pointer"].map(str::to_owned),
            ),
            Sanitizer::Undefined => flags.extend(
                [
                    "-fsanitize=undefined",
                    "-fno-sanitize-recover=undefined",
                    "-g1",
                    "-fno-omit-frame-pointer",
                ]
                .map(str::to_owned),
            ),
        }
        flags.extend(
            options
                .defines
                .iter()
                .map(|(name, value)| format!("-D{name}={value}")),
        );
        flags
    }

    /// Is it known what kernels need of the compiler's libraries? That of C++ takes the linker longer than the kernel does.
    fn needs_few_libraries(&self, options: &CompileOptions) -> bool {
        self.gnu && options.sanitizer == Sanitizer::None
    }

    /// Everything the result depends on, hashed.
    fn key(&self, text: &Text, flags: &[String]) -> String {
        let command = self.command.iter().chain(flags).map(String::as_str);
        let headers = text.headers.iter();
        let headers = headers.flat_map(|(name, header)| [name.as_ref(), header.as_ref()]);
        digest(
            [self.version.as_str()]
                .into_iter()
                .chain(command)
                .chain(headers)
                .chain([text.kernel.as_str()]),
        )
    }

    /// Compile and put the result into the cache, in one step as far as other processes can see.
    fn build(
        &self,
        name: &str,
        text: &Text,
        options: &CompileOptions,
        flags: &[String],
        path: &Path,
    ) -> Result<()> {
        fs::create_dir_all(&self.cache_dir).map_err(io_error("create", &self.cache_dir))?;
        let folder = tempfile::Builder::new()
            .prefix(".build-")
            .tempdir_in(&self.cache_dir)
            .map_err(io_error("create a folder in", &self.cache_dir))?;
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            fs::write(&path, text).map_err(io_error("write", &path))
        };
        for (name, header) in &text.headers {
            write(name, header)?;
        }
        write("kernel.cpp", &text.kernel)?;
        let libraries: &[&str] = match self.needs_few_libraries(options) {
            // Elementary functions, 128-bit division, memory.
            true => &["-lm", "-lgcc", "-lc"],
            false => &[],
        };
        let output = self
            .compiler()
            .args(flags)
            .args(["-I.", "-o", "kernel.so", "kernel.cpp"])
            .args(libraries)
            .current_dir(folder.path())
            .output()
            .map_err(io_error("run", Path::new(&self.command.join(" "))))?;
        if !output.status.success() {
            return Err(EmulatorError::Compile {
                compiler: self.command.join(" "),
                name: name.to_owned(),
                diagnostics: String::from_utf8_lossy(&output.stderr).into_owned(),
            });
        }
        let built = folder.path().join("kernel.so");
        let mut bytes = fs::read(&built).map_err(io_error("read", &built))?;
        let checksum = Sha256::digest(&bytes);
        bytes.extend_from_slice(&checksum);
        bytes.extend_from_slice(TRAILER);
        let finished = folder.path().join("finished.so");
        fs::write(&finished, bytes).map_err(io_error("write", &finished))?;
        fs::rename(&finished, path).map_err(io_error("write", path))
    }
}

/// What a module is compiled from.
struct Text {
    kernel: String,
    /// What the kernel includes, by name; of a kernel that includes none but Warpline's headers, what it uses of them is in its text.
    headers: Vec<(Cow<'static, str>, Cow<'static, str>)>,
}

impl Text {
    /// `name` stands for the source in messages.
    fn of(name: &str, source: &str, options: &CompileOptions) -> Self {
        // Another header may name what no kernel does, and so may a macro.
        let alone = options.headers.is_empty() && options.defines.is_empty();
        let alone = alone.then(|| LIBRARY.self_contained(name, source));
        if let Some(kernel) = alone.flatten() {
            return Self {
                kernel,
                headers: Vec::new(),
            };
        }
        let own = headers::headers().iter().chain(headers::emulator_headers());
        let own = own.map(|(name, header)| ((*name).into(), (*header).into()));
        let abi = (ABI_HEADER.into(), abi::header().into());
        let more = options.headers.iter();
        let more = more.map(|(name, header)| (name.clone().into(), header.clone().into()));
        Self {
            kernel: format!("#line 1 \"{name}\"\n{source}"),
            headers: own.chain([abi]).chain(more).collect(),
        }
    }
}

/// What `simt_emulator.cuh` includes of the emulator.
const ABI_HEADER: &str = "wl_abi.cuh";

/// What the emulator's compiler reads.
static LIBRARY: LazyLock<Library> = LazyLock::new(|| {
    let abi = abi::header();
    let files = headers::headers().iter().chain(headers::emulator_headers());
    Library::new(
        files.copied().chain([(ABI_HEADER, abi.as_str())]),
        &[headers::GPU_HEADER],
    )
});

/// A hash of parts of text, whose lengths keep neighbours apart.
fn digest<'a>(parts: impl IntoIterator<Item = &'a str>) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part.as_bytes());
    }
    let bytes = hash.finalize();
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A call of the compiler, whose command is in words.
fn invocation(words: &[String]) -> Command {
    let mut words = words.iter();
    let mut command = Command::new(words.next().map_or("c++", String::as_str));
    command.args(words).env("LC_ALL", "C");
    // A preloaded sanitizer runtime is for the modules, not for the compiler.
    command.env_remove("LD_PRELOAD");
    command
}

/// True if the file is one that `build` finished and nothing has changed since.
fn intact(path: &Path) -> bool {
    let Ok(bytes) = fs::read(path) else {
        return false;
    };
    let Some((rest, trailer)) = bytes.split_last_chunk::<8>() else {
        return false;
    };
    let Some((library, checksum)) = rest.split_last_chunk::<32>() else {
        return false;
    };
    trailer == TRAILER && Sha256::digest(library).as_slice() == checksum
}

fn io_error(operation: &'static str, path: &Path) -> impl FnOnce(io::Error) -> EmulatorError {
    let path = path.to_owned();
    move |source| EmulatorError::Io {
        operation,
        path,
        source,
    }
}

fn default_cache_dir() -> PathBuf {
    let set = |name: &str| {
        env::var_os(name)
            .filter(|value: &OsString| !value.is_empty())
            .map(PathBuf::from)
    };
    if let Some(folder) = set("WARPLINE_CACHE_DIR") {
        return folder.join("emulator");
    }
    set("XDG_CACHE_HOME")
        .or_else(|| set("HOME").map(|home| home.join(".cache")))
        .unwrap_or_else(env::temp_dir)
        .join("warpline")
        .join("emulator")
}
