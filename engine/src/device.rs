//! The device of a session: opening, calibration, memory.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;
use warpline_gpu::GpuError;
use warpline_gpu::calibrate::calibrate;
use warpline_gpu::device::DevicePtr;
use warpline_gpu::device::compiler::limit;
use warpline_gpu::device::probe;
use warpline_gpu::machine;
pub use warpline_gpu::runtime::DeviceChoice;
use warpline_gpu::runtime::{Runtime, RuntimeOptions};
use warpline_planner::config::Failures;
use warpline_planner::{ByteSize, GpuPlacement, WarplineConfig};

use crate::error::{Error, Result};
use crate::memory::{DeviceMemory, DeviceState, ResidentColumn};

/// The setting that names the device.
pub(crate) const DEVICE_SETTING: &str = "warpline.device";
/// The setting that bounds its memory pool, in bytes; 0 is no bound.
pub(crate) const MEMORY_SETTING: &str = "warpline.device_memory";

/// An open device, several that answer queries together, or the CPU. Clones share it.
///
/// `SET warpline.device = …` opens another one with the next query; running queries keep the old one.
#[derive(Clone)]
pub struct Device(Arc<Mutex<Opened>>);

/// Settings of a session at its last plan: changes of other sessions to a shared device stay until this session
/// changes its own.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) memory: Option<usize>,
    pub(crate) host_memory: Option<usize>,
    pub(crate) compile_processes: usize,
    pub(crate) failures: Failures,
}

/// What is open.
struct Opened {
    options: RuntimeOptions,
    /// The devices; none when the CPU answers.
    members: Arc<[Member]>,
    /// The rule of the CPU.
    cpu: Arc<GpuPlacement>,
    /// How often the device had been set, in all sessions, when it was opened.
    device_set: u64,
}

/// An open device, and the rule that places plans on it.
#[derive(Clone)]
pub(crate) struct Member {
    pub(crate) runtime: Arc<Runtime>,
    pub(crate) placement: Arc<GpuPlacement>,
}

impl Member {
    fn of(runtime: Arc<Runtime>) -> Self {
        let placement = Arc::new(GpuPlacement::new(Some(Arc::clone(&runtime))));
        Self { runtime, placement }
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.runtime.lost().is_some()
    }

    /// `cuda:0`, `emulator:1`.
    pub(crate) fn id(&self) -> &str {
        &self.runtime.device().info().id
    }
}

impl Opened {
    fn open(options: RuntimeOptions) -> Result<Self> {
        let runtimes =
            Runtime::open_all(options).map_err(|error| Error::Device(error.to_string()))?;
        Ok(Self {
            options,
            members: runtimes.into_iter().map(Member::of).collect(),
            cpu: Arc::new(GpuPlacement::new(None)),
            device_set: 0,
        })
    }

    fn is_lost(&self) -> bool {
        self.members.iter().any(Member::is_lost)
    }

    /// The device of queries that are not shared out: the first that is not lost.
    fn first(&self) -> Option<&Member> {
        let usable = self.members.iter().find(|member| !member.is_lost());
        usable.or_else(|| self.members.first())
    }

    fn placement(&self) -> Arc<GpuPlacement> {
        let first = self.first().map(|member| &member.placement);
        Arc::clone(first.unwrap_or(&self.cpu))
    }
}

impl Device {
    /// Opens a device, or several; `memory` limits the pool of each, which otherwise takes all free memory but a reserve. With
    /// `auto` and no usable GPU, and with `cpu`, DataFusion answers.
    ///
    /// Open one and share it: each has memory, resident columns and compiled kernels of its own.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use warpline::{Device, DeviceChoice};
    ///
    /// let device = Device::open(DeviceChoice::Auto, Some("16GiB".parse()?))?;
    /// if !device.is_in_use() {
    ///     // Why each device that was looked for is not usable.
    ///     eprintln!("{}", warpline::device_reports().join("\n"));
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::Device`] when a device that was named cannot be used; it says why and what to install.
    pub fn open(choice: DeviceChoice, memory: Option<ByteSize>) -> Result<Self> {
        let options = RuntimeOptions {
            device: choice,
            device_memory: memory.map(|size| size.0),
            host_memory: None,
        };
        Ok(Self(Arc::new(Mutex::new(Opened::open(options)?))))
    }

    /// Whether a device is in use, and not the CPU alone.
    pub fn is_in_use(&self) -> bool {
        !self.0.lock().members.is_empty()
    }

    /// Whether it was opened as several devices.
    pub fn is_several(&self) -> bool {
        self.0.lock().options.device.is_several()
    }

    /// The devices one by one, for those who use one each, such as workers: what they open and keep is shared with this one.
    pub fn each(&self) -> Vec<Self> {
        let opened = self.0.lock();
        let single = |member: &Member| {
            let info = member.runtime.device().info();
            let mut options = opened.options;
            options.device = match info.emulated {
                true => DeviceChoice::Emulator,
                // It was named so when it was opened.
                false => info.id.parse().unwrap_or(options.device),
            };
            let members = Arc::new([member.clone()]);
            Self(Arc::new(Mutex::new(Opened {
                options,
                members,
                cpu: Arc::clone(&opened.cpu),
                device_set: 0,
            })))
        };
        match opened.options.device.is_several() {
            true => opened.members.iter().map(single).collect(),
            false => vec![self.clone()],
        }
    }

    /// The devices as they are open now.
    pub(crate) fn members(&self) -> Arc<[Member]> {
        Arc::clone(&self.0.lock().members)
    }

    /// The device itself, for work below SQL such as micro-benchmarks; of several the first that is not lost; `None` when the
    /// CPU answers.
    pub fn runtime(&self) -> Option<Arc<Runtime>> {
        let opened = self.0.lock();
        Some(Arc::clone(&opened.first()?.runtime))
    }

    /// Copies bytes that lie at an address of the device, of whichever library, once all work that is queued there has ended.
    ///
    /// # Safety
    /// So many bytes of live memory lie there, which the device reaches.
    ///
    /// # Errors
    /// [`Error::Device`] when the CPU answers, [`Error::Gpu`] when the copy or earlier work failed.
    pub unsafe fn copy_from(&self, address: u64, into: &mut [u8]) -> Result<()> {
        let runtime = self.runtime().ok_or_else(|| {
            Error::Device(
                "the rows lie on a GPU and the CPU answers here: connect to the GPU, or copy them to the host before".into(),
            )
        })?;
        runtime.device().settle()?;
        let stream = runtime.lease_stream()?;
        // SAFETY: as the caller says.
        unsafe {
            let device = runtime.device();
            device.copy_to_host(&stream, DevicePtr(address), into)?;
        }
        Ok(())
    }

    /// All devices; none when the CPU answers.
    pub fn runtimes(&self) -> Vec<Arc<Runtime>> {
        let members = self.members();
        members
            .iter()
            .map(|member| Arc::clone(&member.runtime))
            .collect()
    }

    /// The device in words: `NVIDIA H200 (cuda:0)`, `emulator`, `cpu`; of several `NVIDIA H200 (cuda:0), NVIDIA H200 (cuda:1)`.
    pub fn name(&self) -> String {
        let members = self.members();
        let names: Vec<String> = members.iter().map(|m| name_of(&m.runtime)).collect();
        match names.is_empty() {
            true => "cpu".to_string(),
            false => names.join(", "),
        }
    }

    /// Bytes per second, read plus written, of a plain copy on the device, measured at the first call; of several on the
    /// first; `None` when the CPU answers or the copy fails.
    pub fn copy_bandwidth(&self) -> Option<f64> {
        let measured = self.runtime()?.copy_bandwidth();
        measured
            .inspect_err(|error| log::warn!("the copy bandwidth is unknown: {error}"))
            .ok()
    }

    /// The device's cost constants as text; of several those of the first; `None` when the CPU answers.
    pub fn constants(&self) -> Option<String> {
        Some(self.runtime()?.machine().to_string())
    }

    /// Measures the constants and stores them on disk for later sessions, for all devices of this name. Returns the
    /// constants as text, and the file. The emulator's are measured but not stored: its times mean nothing.
    ///
    /// # Errors
    /// [`Error::NothingToMeasure`] when the CPU answers, [`Error::Device`] for several devices, when a measurement fails or the
    /// file cannot be written.
    pub fn calibrate(&self) -> Result<(String, Option<PathBuf>)> {
        let failed = |error: GpuError| Error::Device(error.to_string());
        if self.is_several() {
            let given = self.name();
            let text = format!("{given} are several devices: calibrate one of each name");
            return Err(Error::Device(text));
        }
        let runtime = self.runtime().ok_or(Error::NothingToMeasure)?;
        let machine = calibrate(&runtime).map_err(failed)?;
        let info = runtime.device().info();
        let path = if info.emulated {
            None
        } else {
            Some(machine::save(&machine, info).map_err(failed)?)
        };
        Ok((machine.to_string(), path))
    }

    /// The state of the device's memory, and what was done when it was short; of several their sum ([`Self::states`] has each);
    /// `None` when the CPU answers.
    pub fn memory(&self) -> Option<DeviceMemory> {
        let members = self.members();
        let memories = members
            .iter()
            .map(|member| DeviceMemory::of(&member.runtime));
        memories.reduce(DeviceMemory::plus)
    }

    /// The name and the state of each device; none when the CPU answers.
    pub fn states(&self) -> Vec<DeviceState> {
        let members = self.members();
        members
            .iter()
            .map(|m| DeviceState::of(name_of(&m.runtime), &m.runtime))
            .collect()
    }

    /// The cached columns, by table and name, with their encodings, of several devices one after the other; none when the CPU
    /// answers.
    pub fn resident_columns(&self) -> Vec<ResidentColumn> {
        let columns = self.runtimes().into_iter();
        columns
            .flat_map(|runtime| runtime.tables().resident())
            .collect()
    }

    /// Evicts all cached columns and indexes that no query uses, from all devices; returns their bytes.
    ///
    /// # Errors
    /// [`Error::Gpu`] when earlier work on a device failed.
    pub fn evict(&self) -> Result<usize> {
        let mut evicted = 0;
        for member in self.members().iter() {
            evicted += member.runtime.evict()?;
        }
        Ok(evicted)
    }

    /// The rule for the device that the settings name, of several for the first that is not lost. Opens the device if it is
    /// another one, or if it was lost and the setting was set since; applies the limits of memory and the failures if the
    /// session of `seen` changed them.
    pub(crate) fn placement_for(
        &self,
        settings: &WarplineConfig,
        seen: &Mutex<Seen>,
    ) -> Result<Arc<GpuPlacement>> {
        let memory = (settings.device_memory > 0).then_some(settings.device_memory);
        let host_memory = (settings.host_memory > 0).then_some(settings.host_memory);
        let mut seen = seen.lock();
        let mut opened = self.0.lock();
        let again = opened.is_lost() && settings.device.revision > opened.device_set;
        let mut failures_changed = seen.failures != settings.inject_failures;
        if opened.options.device != settings.device.choice || again {
            opened.device_set = settings.device.revision;
            let mut options = opened.options;
            options.device = settings.device.choice;
            options.device_memory = memory;
            options.host_memory = host_memory;
            // When it does not open, the old one stays.
            *opened = Opened {
                device_set: settings.device.revision,
                ..Opened::open(options)?
            };
            failures_changed = true;
        } else if seen.memory != memory && opened.options.device_memory != memory {
            for member in opened.members.iter() {
                member.runtime.set_device_memory(memory)?;
            }
            opened.options.device_memory = memory;
        }
        if seen.host_memory != host_memory && opened.options.host_memory != host_memory {
            for member in opened.members.iter() {
                let parts = opened.members.len();
                member.runtime.set_host_memory(host_memory, parts)?;
            }
            opened.options.host_memory = host_memory;
        }
        if failures_changed {
            for member in opened.members.iter() {
                let plan = settings.inject_failures.plan().cloned();
                member.runtime.inject_failures(plan);
            }
        }
        if seen.compile_processes != settings.compile_processes {
            limit(settings.compile_processes);
        }
        seen.memory = memory;
        seen.host_memory = host_memory;
        seen.compile_processes = settings.compile_processes;
        seen.failures = settings.inject_failures.clone();
        Ok(opened.placement())
    }

    /// The rule for the open device.
    pub(crate) fn placement(&self) -> Arc<GpuPlacement> {
        self.0.lock().placement()
    }

    /// The settings under `warpline.*` of a session on the open device: its name and memory limits, and defaults for
    /// all others.
    pub fn config(&self) -> WarplineConfig {
        let options = self.0.lock().options;
        let mut settings = WarplineConfig::default();
        settings.device = options.device.into();
        settings.device_memory = options.device_memory.unwrap_or(0);
        settings.host_memory = options.host_memory.unwrap_or(0);
        settings
    }
}

/// A device in words.
pub(crate) fn name_of(runtime: &Runtime) -> String {
    let info = runtime.device().info();
    if info.name == info.id || info.emulated {
        info.id.clone()
    } else {
        format!("{} ({})", info.name, info.id)
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Device").field(&self.name()).finish()
    }
}

/// One line for each kind of device: what it is, or why it cannot be used and what to install.
pub fn device_reports() -> Vec<String> {
    let mut lines: Vec<String> = probe::probe().iter().map(ToString::to_string).collect();
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get);
    lines.push(format!(
        "{:<9} usable (DataFusion {}, {cores} cores)",
        "cpu",
        datafusion::DATAFUSION_VERSION
    ));
    lines
}
