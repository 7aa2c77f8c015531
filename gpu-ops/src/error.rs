//! The typed errors of the GPU side; each message names the cause and the remedy.

use datafusion::error::DataFusionError;

/// Result of anything that can fail on the device side.
pub type Result<T, E = GpuError> = std::result::Result<T, E>;

/// What can go wrong between a physical plan and its answer from a device.
#[derive(Debug, thiserror::Error)]
pub enum GpuError {
    /// No usable device of the kind that was asked for.
    #[error("device '{requested}' is not usable: {cause}; {remedy}")]
    DeviceUnavailable {
        /// What the user asked for, e.g. `cuda:0`.
        requested: String,
        /// Why it is not usable.
        cause: String,
        /// What to install or set.
        remedy: String,
    },
    /// The pool's budget or the device's memory does not hold the request.
    #[error(
        "out of device memory: {requested} bytes wanted for {purpose}, {in_use} of {budget} bytes in use; \
         raise warpline.device_memory or warpline.host_memory, set warpline.spill_directory, or query fewer columns at once"
    )]
    OutOfDeviceMemory {
        /// Bytes of the request that failed.
        requested: usize,
        /// What they were for.
        purpose: String,
        /// Bytes held when it failed.
        in_use: usize,
        /// The pool's budget in bytes.
        budget: usize,
    },
    /// What found no room in memory could not be put into a file either.
    #[error(
        "{path} could not be {action} for spilled rows: {cause}; make room there, or SET warpline.spill_directory to another \
         directory"
    )]
    Spill {
        /// What was tried: made, written, read.
        action: &'static str,
        /// The file or directory.
        path: String,
        /// The system's message.
        cause: String,
    },
    /// A kernel did not compile: a defect of Warpline or of the installed compiler.
    #[error("kernel '{kernel}' did not compile: {log}; please report this with the query")]
    Compile {
        /// The entry point or module.
        kernel: String,
        /// The compiler's log.
        log: String,
    },
    /// A driver or emulator call failed.
    #[error("{operation} failed on {device}: {cause}")]
    Device {
        /// The call, in words.
        operation: String,
        /// The device's name.
        device: String,
        /// The driver's or the emulator's message.
        cause: String,
    },
    /// The driver reported an error after which nothing works on the device's context, or the device is gone.
    #[error(
        "device {device} is lost: {cause}; SET warpline.device = '{device}' or a new session opens it again, restart the \
         program if it stays lost"
    )]
    DeviceLost {
        /// The device's name, e.g. `cuda:0`.
        device: String,
        /// The driver's message.
        cause: String,
    },
    /// The query took longer than it may.
    #[error(
        "the query was stopped after warpline.time_limit = {limit}; raise it, or SET warpline.time_limit = 0 for no limit"
    )]
    TimeLimit {
        /// The limit, with its unit.
        limit: String,
    },
    /// The query was stopped: its stream was dropped, or its time was over.
    #[error("the query was stopped")]
    Stopped,
    /// The kernel met a value for which SQL demands an error (division by zero, overflow, failed cast).
    #[error("{0} in an expression computed on the device")]
    Arithmetic(ArithmeticFault),
    /// The plan, a type or an encoding is outside what the device operators run.
    #[error("not supported on the device: {0}")]
    Unsupported(String),
    /// The device could, but the CPU is to answer.
    #[error("{0}")]
    LeftToCpu(String),
    /// Strings lie as bytes where the device computes with codes of a dictionary. The run is repeated over columns that have
    /// codes, so users see this only of columns that cannot have any.
    #[error("not supported on the device: {0}")]
    NeedsCodes(String),
    /// DataFusion or Arrow failed while data was read or converted.
    #[error(transparent)]
    DataFusion(#[from] DataFusionError),
    /// A build side that was assumed to have no two rows of equal keys has some; the run is repeated
    /// with a plan that knows it, so users never see this.
    #[error("the build side {0} has rows of equal keys")]
    DuplicateKeys(String),
    /// A table of groups was too small and could not be made larger where it is: rows that are gone were in it already, or
    /// there is no room. The run is repeated with a plan that knows it, so users never see this.
    #[error("the groups of {name} are more than {slots} slots hold")]
    GroupsOutgrown {
        /// The result.
        name: String,
        /// Slots that it had.
        slots: u64,
        /// Slots of the set of each DISTINCT call.
        distinct_slots: Vec<u64>,
        /// It was a set that was too small.
        full_sets: bool,
    },
    /// The columns as they lie on the device are not as the plan needs them: [`crate::graph::Policy::scans`] asks
    /// for others now. The run is repeated with those, so users never see this.
    #[error("the fragment's columns are needed in another encoding")]
    ReloadScans,
    /// A table that was read while kernels went over its first rows is not what its files said of it, or was not read to its end.
    /// The run is repeated over what was read, so users never see this.
    #[error("the table is not as was expected when the first of its rows had come")]
    NotAsExpected,
    /// A scalar subquery yielded more than one row.
    #[error("a scalar subquery returned more than one row")]
    ScalarSubqueryRows,
    /// A setting or option with a value that means nothing.
    #[error("'{value}' is not a value of {setting}; use {expected}")]
    InvalidSetting {
        /// The setting's name.
        setting: String,
        /// What it was set to.
        value: String,
        /// What it can be set to.
        expected: String,
    },
    /// A broken invariant of Warpline itself.
    #[error("internal error: {0}; please report this with the query")]
    Internal(String),
}

/// The error word's values; kernels and host agree on the numbers (`pipeline.cuh`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum ArithmeticFault {
    /// Integer or decimal division or remainder by zero.
    DivideByZero = 1,
    /// A checked operation left its type.
    Overflow = 2,
    /// A CAST met a value its target cannot hold.
    Cast = 3,
    /// An average of decimals has a sum that 128 bits may not hold: DataFusion has more for it.
    WideSum = 4,
    /// A function of floats met an operand for which it has no value.
    Domain = 5,
}

impl ArithmeticFault {
    /// All of them, with their names in `pipeline.cuh`.
    pub const ALL: [(Self, &'static str); 5] = [
        (Self::DivideByZero, "WL_FAULT_DIVIDE_BY_ZERO"),
        (Self::Overflow, "WL_FAULT_OVERFLOW"),
        (Self::Cast, "WL_FAULT_CAST"),
        (Self::WideSum, "WL_FAULT_WIDE_SUM"),
        (Self::Domain, "WL_FAULT_DOMAIN"),
    ];

    /// What a fault word says; `None`: nothing went wrong. The largest fault wins, whatever rows it is of.
    pub fn of_word(word: u64) -> Option<Self> {
        let last = Self::ALL.len() as u64;
        let place = word.min(last).checked_sub(1)?;
        Self::ALL.get(place as usize).map(|(fault, _)| *fault)
    }
}

impl std::fmt::Display for ArithmeticFault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::DivideByZero => "division by zero",
            Self::Overflow => "arithmetic overflow",
            Self::Cast => "a cast out of range",
            Self::WideSum => "an average over decimals whose sum can leave 128 bits",
            Self::Domain => "a function without a value for its operand (the root of a negative number, zero to a negative power)",
        })
    }
}

impl From<arrow::error::ArrowError> for GpuError {
    fn from(error: arrow::error::ArrowError) -> Self {
        Self::DataFusion(DataFusionError::from(error))
    }
}

impl From<GpuError> for DataFusionError {
    fn from(error: GpuError) -> Self {
        match error {
            GpuError::DataFusion(inner) => inner,
            other => DataFusionError::External(Box::new(other)),
        }
    }
}
