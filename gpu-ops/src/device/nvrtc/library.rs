//! The NVRTC library: where it is found, its functions, one compilation by it.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::{Path, PathBuf};

use libloading::Library;

use super::NVRTC_VARIABLE;

/// Longest compiler log that goes into an error, in bytes.
const LOG_LIMIT: usize = 16 << 10;

type Program = *mut c_void;
type Status = c_int;

/// The functions of the library that are used. They stay valid because `_library` is never dropped.
pub(in crate::device) struct Nvrtc {
    _library: Library,
    pub(in crate::device) location: String,
    pub(in crate::device) version: (u32, u32),
    pub(super) supported: Vec<u32>,
    error_string: unsafe extern "C" fn(Status) -> *const c_char,
    create: unsafe extern "C" fn(
        *mut Program,
        *const c_char,
        *const c_char,
        c_int,
        *const *const c_char,
        *const *const c_char,
    ) -> Status,
    destroy: unsafe extern "C" fn(*mut Program) -> Status,
    compile: unsafe extern "C" fn(Program, c_int, *const *const c_char) -> Status,
    cubin_size: unsafe extern "C" fn(Program, *mut usize) -> Status,
    cubin: unsafe extern "C" fn(Program, *mut c_char) -> Status,
    log_size: unsafe extern "C" fn(Program, *mut usize) -> Status,
    log: unsafe extern "C" fn(Program, *mut c_char) -> Status,
}

/// One source, and how it is compiled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::device) struct Job {
    /// Stands for the source in the compiler's messages.
    pub(in crate::device) name: String,
    pub(in crate::device) source: String,
    /// All options, in order.
    pub(in crate::device) options: Vec<String>,
    /// The file in which the kernel cache will have the binary: for a helper whose process ends before it does.
    pub(in crate::device) kept: Option<PathBuf>,
}

/// What sources may include, by name.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(in crate::device) struct Headers(pub(in crate::device) Vec<(String, String)>);

impl Headers {
    /// Warpline's own.
    pub(in crate::device) fn own() -> Self {
        let headers = warpline_cuda::headers().iter();
        let headers = headers.map(|(name, text)| (name.to_string(), text.to_string()));
        Self(headers.collect())
    }
}

/// A program that is destroyed on every way out.
struct ProgramGuard<'a> {
    nvrtc: &'a Nvrtc,
    program: Program,
}

impl ProgramGuard<'_> {
    /// The compiler's messages, shortened.
    fn log(&self) -> String {
        let mut size = 0;
        // SAFETY: the program is live; `size` is written.
        if unsafe { (self.nvrtc.log_size)(self.program, &mut size) } != 0 || size == 0 {
            return String::from("the compiler left no log");
        }
        let mut bytes = vec![0_u8; size];
        // SAFETY: the buffer has the size that the library asked for.
        if unsafe { (self.nvrtc.log)(self.program, bytes.as_mut_ptr().cast()) } != 0 {
            return String::from("the compiler's log could not be read");
        }
        while bytes.last() == Some(&0) {
            bytes.pop();
        }
        let shortened = bytes.len() > LOG_LIMIT;
        bytes.truncate(LOG_LIMIT);
        let mut log = String::from_utf8_lossy(&bytes).trim_end().to_string();
        if shortened {
            log.push_str("\n[log shortened]");
        }
        log
    }

    /// The compiled binary.
    fn cubin(&self) -> Result<Vec<u8>, String> {
        let mut size = 0;
        // SAFETY: the program is live and compiled; `size` is written.
        let status = unsafe { (self.nvrtc.cubin_size)(self.program, &mut size) };
        if status != 0 || size == 0 {
            return Err(self.nvrtc.describe("nvrtcGetCUBINSize", status));
        }
        let mut cubin = vec![0_u8; size];
        // SAFETY: the buffer has the size that the library asked for.
        let status = unsafe { (self.nvrtc.cubin)(self.program, cubin.as_mut_ptr().cast()) };
        if status != 0 {
            return Err(self.nvrtc.describe("nvrtcGetCUBIN", status));
        }
        Ok(cubin)
    }
}

impl Drop for ProgramGuard<'_> {
    fn drop(&mut self) {
        if !self.program.is_null() {
            // SAFETY: the program came from `create` and is destroyed once.
            unsafe { (self.nvrtc.destroy)(&mut self.program) };
        }
    }
}

impl Nvrtc {
    /// The library at `location`: the path of its file, or a name that the loader knows.
    pub(in crate::device) fn open(location: &str) -> Result<Self, String> {
        if location.contains('/') {
            return load_file(Path::new(location));
        }
        // SAFETY: loading NVRTC runs its initialisers, which touch nothing of ours.
        let library = unsafe { Library::new(location) }.map_err(|error| error.to_string())?;
        Self::bind(library, location.to_string())
    }

    /// The cubin of a source, or what the compiler has against it.
    pub(in crate::device) fn compile(
        &self,
        job: &Job,
        headers: &Headers,
    ) -> Result<Vec<u8>, String> {
        let text =
            |what: &str| CString::new(what).map_err(|_| "the source holds a zero byte".to_string());
        let file_name = text(&format!("{}.cu", job.name))?;
        let source = text(&job.source)?;
        let mut names = Vec::with_capacity(headers.0.len());
        let mut texts = Vec::with_capacity(headers.0.len());
        for (header_name, header_text) in &headers.0 {
            names.push(text(header_name)?);
            texts.push(text(header_text)?);
        }
        let name_pointers: Vec<_> = names.iter().map(|name| name.as_ptr()).collect();
        let text_pointers: Vec<_> = texts.iter().map(|text| text.as_ptr()).collect();

        let mut program = ProgramGuard {
            nvrtc: self,
            program: std::ptr::null_mut(),
        };
        // SAFETY: all strings end in zero and outlive the call; the two arrays have `names.len()` entries.
        let status = unsafe {
            (self.create)(
                &mut program.program,
                source.as_ptr(),
                file_name.as_ptr(),
                names.len() as c_int,
                text_pointers.as_ptr(),
                name_pointers.as_ptr(),
            )
        };
        if status != 0 {
            return Err(self.describe("nvrtcCreateProgram", status));
        }
        let options = job.options.iter().map(|option| text(option));
        let options = options.collect::<Result<Vec<_>, _>>()?;
        let option_pointers: Vec<_> = options.iter().map(|option| option.as_ptr()).collect();
        // SAFETY: the program is live and the array has `options.len()` zero-terminated strings.
        let status = unsafe {
            (self.compile)(
                program.program,
                options.len() as c_int,
                option_pointers.as_ptr(),
            )
        };
        if status != 0 {
            let call = self.describe("nvrtcCompileProgram", status);
            return Err(format!("{call}\n{}", program.log()));
        }
        program.cubin()
    }

    /// A failed call in words.
    fn describe(&self, call: &str, status: Status) -> String {
        // SAFETY: the library returns a static, zero-terminated string for every status.
        let text = unsafe { (self.error_string)(status) };
        if text.is_null() {
            return format!("{call} failed with status {status}");
        }
        // SAFETY: not null and zero-terminated, see above.
        let text = unsafe { CStr::from_ptr(text) }.to_string_lossy();
        format!("{call} failed: {text}")
    }

    /// Resolve the functions of a loaded library and read its version.
    fn bind(library: Library, location: String) -> Result<Self, String> {
        /// One function by name.
        fn symbol<T: Copy>(library: &Library, name: &str) -> Result<T, String> {
            // SAFETY: every use below gives the type that nvrtc.h declares for the name.
            unsafe { library.get::<T>(name.as_bytes()) }
                .map(|symbol| *symbol)
                .map_err(|error| format!("{name} is missing: {error}"))
        }
        type GetVersion = unsafe extern "C" fn(*mut c_int, *mut c_int) -> Status;
        type GetInt = unsafe extern "C" fn(*mut c_int) -> Status;
        let get_version: GetVersion = symbol(&library, "nvrtcVersion")?;
        let get_count: GetInt = symbol(&library, "nvrtcGetNumSupportedArchs")?;
        let get_supported: GetInt = symbol(&library, "nvrtcGetSupportedArchs")?;
        let (mut major, mut minor, mut count) = (0, 0, 0);
        // SAFETY: both integers are written.
        let version_status = unsafe { get_version(&mut major, &mut minor) };
        // SAFETY: the count is written.
        let count_status = unsafe { get_count(&mut count) };
        if version_status != 0 || count_status != 0 {
            return Err(format!("{location}: the version could not be read"));
        }
        let mut supported = vec![0 as c_int; usize::try_from(count).unwrap_or(0)];
        // SAFETY: the array has as many entries as the library said it writes.
        if !supported.is_empty() && unsafe { get_supported(supported.as_mut_ptr()) } != 0 {
            return Err(format!(
                "{location}: the supported architectures could not be read"
            ));
        }
        Ok(Self {
            version: (major as u32, minor as u32),
            supported: supported.into_iter().map(|sm| sm as u32).collect(),
            error_string: symbol(&library, "nvrtcGetErrorString")?,
            create: symbol(&library, "nvrtcCreateProgram")?,
            destroy: symbol(&library, "nvrtcDestroyProgram")?,
            compile: symbol(&library, "nvrtcCompileProgram")?,
            cubin_size: symbol(&library, "nvrtcGetCUBINSize")?,
            cubin: symbol(&library, "nvrtcGetCUBIN")?,
            log_size: symbol(&library, "nvrtcGetProgramLogSize")?,
            log: symbol(&library, "nvrtcGetProgramLog")?,
            location,
            _library: library,
        })
    }
}

/// Look in all places; the first library that loads and binds wins.
pub(super) fn find() -> Result<Nvrtc, String> {
    if let Some(path) = std::env::var_os(NVRTC_VARIABLE) {
        // An explicit path is meant: no other library stands in for it.
        let path = PathBuf::from(path);
        return load_file(&path)
            .map_err(|error| format!("{NVRTC_VARIABLE}={}: {error}", path.display()));
    }
    let mut problems = Vec::new();
    for name in library_names() {
        // SAFETY: loading NVRTC runs its initialisers, which touch nothing of ours.
        match unsafe { Library::new(&name) } {
            Ok(library) => match Nvrtc::bind(library, name) {
                Ok(nvrtc) => return Ok(nvrtc),
                Err(problem) => problems.push(problem),
            },
            Err(_) => continue,
        }
    }
    for directory in toolkit_directories() {
        for name in library_names() {
            let path = directory.join(&name);
            if path.is_file() {
                match load_file(&path) {
                    Ok(nvrtc) => return Ok(nvrtc),
                    Err(problem) => problems.push(format!("{}: {problem}", path.display())),
                }
            }
        }
    }
    if problems.is_empty() {
        Err("libnvrtc.so was not found on the loader's path or in a CUDA toolkit".into())
    } else {
        Err(format!("NVRTC did not load: {}", problems.join("; ")))
    }
}

/// File names of the releases that are known to work, newest first, then the development link.
fn library_names() -> Vec<String> {
    let mut names: Vec<String> = (12..=14)
        .rev()
        .map(|major| format!("libnvrtc.so.{major}"))
        .collect();
    names.push("libnvrtc.so.11.2".into());
    names.push("libnvrtc.so".into());
    names
}

/// Library folders of installed toolkits.
fn toolkit_directories() -> Vec<PathBuf> {
    let mut roots: Vec<PathBuf> = ["CUDA_HOME", "CUDA_PATH"]
        .iter()
        .filter_map(std::env::var_os)
        .map(PathBuf::from)
        .collect();
    roots.push("/usr/local/cuda".into());
    let mut versioned: Vec<PathBuf> = std::fs::read_dir("/usr/local")
        .map(|entries| {
            entries
                .filter_map(|entry| entry.ok().map(|entry| entry.path()))
                .filter(|path| {
                    path.file_name()
                        .and_then(|name| name.to_str())
                        .is_some_and(|name| name.starts_with("cuda-"))
                })
                .collect()
        })
        .unwrap_or_default();
    versioned.sort();
    roots.extend(versioned.into_iter().rev());
    roots
        .into_iter()
        .flat_map(|root| {
            [
                root.join("lib64"),
                root.join("lib"),
                root.join("targets/x86_64-linux/lib"),
            ]
        })
        .collect()
}

/// Load the library at a path together with its builtins, which it opens by name from the loader's
/// path: a copy loaded beforehand from the same folder satisfies that.
fn load_file(path: &Path) -> Result<Nvrtc, String> {
    if !path.is_file() {
        return Err("no such file".into());
    }
    if let Some(directory) = path.parent() {
        let builtins = std::fs::read_dir(directory)
            .into_iter()
            .flatten()
            .filter_map(|entry| entry.ok())
            .map(|entry| entry.path())
            .filter(|path| {
                path.file_name()
                    .and_then(|name| name.to_str())
                    .is_some_and(|name| name.starts_with("libnvrtc-builtins.so"))
            });
        for builtin in builtins {
            // SAFETY: the builtins are data for NVRTC, without initialisers of consequence.
            if let Ok(library) = unsafe { Library::new(&builtin) } {
                // NVRTC refers to it for as long as the process runs.
                std::mem::forget(library);
            }
        }
    }
    // SAFETY: loading NVRTC runs its initialisers, which touch nothing of ours.
    let library = unsafe { Library::new(path) }.map_err(|error| error.to_string())?;
    Nvrtc::bind(library, path.display().to_string())
}

/// The file that the code at an address was loaded from.
pub(in crate::device) fn file_of(code: *const ()) -> Option<String> {
    let mut info = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: any address may be asked about; `info` is written where the answer is not 0.
    if unsafe { libc::dladdr(code.cast(), info.as_mut_ptr()) } == 0 {
        return None;
    }
    // SAFETY: zeroed, then written by the loader.
    let name = unsafe { info.assume_init() }.dli_fname;
    if name.is_null() {
        return None;
    }
    // SAFETY: the loader's own string, which ends in zero and stays while the file is loaded.
    let name = unsafe { CStr::from_ptr(name) };
    Some(name.to_str().ok()?.to_string())
}

impl Nvrtc {
    /// The library's file.
    pub(super) fn file(&self) -> Option<String> {
        file_of(self.create as *const ())
    }
}
