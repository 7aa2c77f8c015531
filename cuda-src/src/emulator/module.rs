//! Compiled modules and their kernels.

use std::ffi::c_void;
use std::path::Path;
use std::sync::Arc;

use libloading::Library;

use super::Sanitizer;
use super::abi::{KernelInfo, LaneHeader};
use super::config::{LaunchConfig, LaunchReport, Schedule};
use super::error::{EmulatorError, Result};
use super::launch;

struct ModuleInner {
    name: String,
    library: Library,
    current_slot: unsafe extern "C" fn() -> *mut *mut LaneHeader,
    sanitizer: Sanitizer,
}

/// A compiled source, loaded into this process. Clones share it.
#[derive(Clone)]
pub struct Module {
    inner: Arc<ModuleInner>,
    cached: bool,
}

impl std::fmt::Debug for Module {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Module")
            .field("name", &self.inner.name)
            .field("cached", &self.cached)
            .finish()
    }
}

impl Module {
    /// Load the shared library at `path`.
    pub(super) fn load(
        name: &str,
        path: &Path,
        sanitizer: Sanitizer,
        cached: bool,
    ) -> Result<Self> {
        let error = |cause: libloading::Error| EmulatorError::Load {
            name: name.to_owned(),
            path: path.to_owned(),
            cause: cause.to_string(),
        };
        // SAFETY: the library is the emulator's own compilation (its checksum was compared) and has no
        // initialisers but the sanitizers'.
        let library = unsafe { Library::new(path) }.map_err(error)?;
        // SAFETY: simt_emulator.cuh defines the function with this type.
        let current_slot = unsafe { *library.get(b"wl_current_slot\0").map_err(error)? };
        let inner = Arc::new(ModuleInner {
            name: name.to_owned(),
            library,
            current_slot,
            sanitizer,
        });
        Ok(Self { inner, cached })
    }

    /// The name given at compilation.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// True when the compilation came from the cache on disk.
    pub fn cached(&self) -> bool {
        self.cached
    }

    /// The kernel that the source declares as `WL_KERNEL(name, ...)`.
    ///
    /// # Errors
    /// [`EmulatorError::UnknownKernel`] if it declares no such kernel.
    pub fn kernel(&self, name: &str) -> Result<Kernel> {
        let unknown = |_| EmulatorError::UnknownKernel {
            module: self.inner.name.clone(),
            kernel: name.to_owned(),
        };
        let mut info = KernelInfo::default();
        // SAFETY: WL_KERNEL defines both symbols with these types; they are used while the library is loaded,
        // because the kernel keeps the module.
        let entry = unsafe {
            let library = &self.inner.library;
            let describe: libloading::Symbol<'_, unsafe extern "C" fn(*mut KernelInfo)> = library
                .get(format!("{name}_wl_info\0").as_bytes())
                .map_err(unknown)?;
            describe(&raw mut info);
            *library
                .get(format!("{name}\0").as_bytes())
                .map_err(unknown)?
        };
        Ok(Kernel {
            module: self.clone(),
            name: name.into(),
            entry,
            info,
        })
    }
}

/// One kernel of a module, which it keeps loaded.
#[derive(Clone)]
pub struct Kernel {
    module: Module,
    name: Arc<str>,
    entry: unsafe extern "C" fn(*mut *mut c_void),
    info: KernelInfo,
}

impl std::fmt::Debug for Kernel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Kernel")
            .field("module", &self.module.inner.name)
            .field("name", &self.name)
            .finish()
    }
}

impl Kernel {
    /// The name in the source.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Size of the kernel's argument struct in bytes.
    pub fn arguments_bytes(&self) -> usize {
        self.info.arguments_bytes as usize
    }

    /// Most threads a block may have: the source's `WL_BLOCK_THREADS`.
    pub fn block_threads(&self) -> u32 {
        self.info.block_threads
    }

    /// Run the kernel to its end on the calling thread.
    ///
    /// `arguments` are the bytes of the kernel's one argument struct, as `KernelArgs::as_bytes` gives them.
    ///
    /// # Errors
    /// [`EmulatorError::InvalidLaunch`] before anything runs; after that [`EmulatorError::Deadlock`],
    /// [`EmulatorError::Livelock`], [`EmulatorError::Lane`] or [`EmulatorError::SharedOverrun`] for what the
    /// lanes did, with device memory left as they wrote it.
    ///
    /// # Safety
    /// Every address in the arguments is valid for what the kernel does with it until this returns, and
    /// nobody else writes there meanwhile. The kernel is native code: an index out of bounds is undefined
    /// behaviour (compile with [`Sanitizer::Address`] to find it).
    pub unsafe fn launch(
        &self,
        config: LaunchConfig,
        arguments: &[u8],
        schedule: Schedule,
    ) -> Result<LaunchReport> {
        // SAFETY: passed on to the caller.
        unsafe { launch::launch(self, config, arguments, schedule) }
    }

    pub(super) fn entry(&self) -> unsafe extern "C" fn(*mut *mut c_void) {
        self.entry
    }

    pub(super) fn sanitizer(&self) -> Sanitizer {
        self.module.inner.sanitizer
    }

    /// Where the module looks for the lane that runs on this thread.
    pub(super) fn current_slot(&self) -> *mut *mut LaneHeader {
        // SAFETY: returns the address of a thread-local variable of the loaded module.
        unsafe { (self.module.inner.current_slot)() }
    }
}
