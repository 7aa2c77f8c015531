//! Compiled kernels in memory: each source is compiled at most once, for all callers.

use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use parking_lot::Mutex;

use super::Runtime;
use crate::device::{CompileReport, Kernel, Module};
use crate::error::{GpuError, Result};

/// Compiled modules kept in memory; beyond that the least recently used go.
const MOST_MODULES: usize = 1024;

/// A module being compiled or compiled.
#[derive(Default)]
struct ModuleSlot {
    module: Option<Module>,
    kernels: HashMap<String, Kernel>,
}

/// How far the kernel of a hand-written module is; see [`Runtime::builtin_stage`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum BuiltinStage {
    /// Nobody has asked for it.
    Unknown,
    /// Somebody has, and it is being compiled.
    Coming,
    /// It can be launched.
    Ready,
}

/// A slot and when it was last asked for.
pub(super) struct ModuleEntry {
    slot: Arc<Mutex<ModuleSlot>>,
    used: u64,
}

impl Runtime {
    /// The kernel `name` of `source`, compiled at most once: from memory, else from the cache on
    /// disk, else by the compiler. Sessions that ask for the same source at once wait for one
    /// compilation.
    ///
    /// The report's time is what this call spent; `cached` is true unless the compiler ran.
    ///
    /// # Errors
    /// [`GpuError::Compile`] with the compiler's log, [`GpuError::Device`] when it does not load.
    pub fn kernel(&self, name: &str, source: &str) -> Result<(Kernel, CompileReport)> {
        let start = Instant::now();
        let slot = self.module_slot(source);
        let mut slot = slot.lock();
        let mut cached = true;
        if slot.module.is_none() {
            dump(name, source);
            let (module, report) = self.device.compile(name, source)?;
            cached = report.cached;
            slot.module = Some(module);
        }
        let kernel = match (slot.kernels.get(name), &slot.module) {
            (Some(kernel), _) => kernel.clone(),
            (None, Some(module)) => {
                let kernel = self.device.kernel(module, name)?;
                slot.kernels.insert(name.into(), kernel.clone());
                kernel
            }
            (None, None) => {
                return Err(GpuError::Internal(format!("kernel '{name}' was lost")));
            }
        };
        let milliseconds = start.elapsed().as_secs_f64() * 1e3;
        self.module_times.note(milliseconds);
        Ok((
            kernel,
            CompileReport {
                milliseconds,
                cached,
            },
        ))
    }

    /// The kernel `name` of a hand-written module, whose variants (compile-time constants) have numbers.
    /// `source` is made only when the kernel is asked for the first time.
    ///
    /// # Errors
    /// As [`Runtime::kernel`].
    pub fn builtin(
        &self,
        name: &'static str,
        variant: usize,
        source: impl FnOnce() -> String,
    ) -> Result<Kernel> {
        let key = (name, variant);
        if let Some(kernel) = self.builtin.lock().entry(key).or_default() {
            return Ok(kernel.clone());
        }
        let made = self.kernel(name, &source());
        let mut builtin = self.builtin.lock();
        match made {
            Ok((kernel, _)) => {
                builtin.insert(key, Some(kernel.clone()));
                Ok(kernel)
            }
            Err(error) => {
                // Others who asked at the same time may have got it.
                if builtin.get(&key).is_some_and(Option::is_none) {
                    builtin.remove(&key);
                }
                Err(error)
            }
        }
    }

    /// How far [`Runtime::builtin`] is with a kernel.
    pub(crate) fn builtin_stage(&self, name: &'static str, variant: usize) -> BuiltinStage {
        match self.builtin.lock().get(&(name, variant)) {
            None => BuiltinStage::Unknown,
            Some(None) => BuiltinStage::Coming,
            Some(Some(_)) => BuiltinStage::Ready,
        }
    }

    /// The slot of a source; the least recently used others go when there are too many.
    fn module_slot(&self, source: &str) -> Arc<Mutex<ModuleSlot>> {
        let now = self.clock.fetch_add(1, Ordering::Relaxed);
        let mut modules = self.modules.lock();
        if let Some(entry) = modules.get_mut(source) {
            entry.used = now;
            return Arc::clone(&entry.slot);
        }
        if modules.len() >= MOST_MODULES {
            let oldest = modules
                .iter()
                .min_by_key(|(_, entry)| entry.used)
                .map(|(source, _)| source.clone());
            if let Some(oldest) = oldest {
                modules.remove(&oldest);
            }
        }
        let slot = Arc::<Mutex<ModuleSlot>>::default();
        let entry = ModuleEntry {
            slot: Arc::clone(&slot),
            used: now,
        };
        modules.insert(source.into(), entry);
        slot
    }
}

/// Write a kernel's source to the folder that `WARPLINE_DUMP_KERNELS` names, and that is made where there is none, for
/// reading, for `ptxas -v` and for profilers.
fn dump(name: &str, source: &str) {
    let Some(folder) = std::env::var_os("WARPLINE_DUMP_KERNELS") else {
        return;
    };
    let mut hasher = std::hash::DefaultHasher::new();
    source.hash(&mut hasher);
    let path = std::path::Path::new(&folder).join(format!("{name}-{:016x}.cu", hasher.finish()));
    let written = std::fs::create_dir_all(&folder).and_then(|()| std::fs::write(&path, source));
    if let Err(error) = written {
        log::warn!("the kernel was not written to {}: {error}", path.display());
    }
}
