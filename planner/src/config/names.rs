//! What settings may hold: names from a list, each of which stands for a way of doing things.

use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};

use warpline_gpu::GpuError;
use warpline_gpu::algorithm::{
    Balance, GroupAlgorithm, JoinAlgorithm, Materialization, PipelineShape,
};
use warpline_gpu::exec::ColdStart;
use warpline_gpu::names::by_name;
use warpline_gpu::parquet::ParquetReader;
use warpline_gpu::runtime::{DeviceChoice, MOST_DEVICES};

use crate::error::PlannerError;

/// A value that is written as one of some names, which are what it prints as.
pub trait Named: fmt::Display + Sized {
    /// All values, in the order in which errors list them.
    fn all() -> Vec<Self>;
}

/// The value of `setting` that `text` names.
///
/// # Errors
/// [`PlannerError::Setting`] with the names there are.
pub fn named<T: Named>(setting: &'static str, text: &str) -> Result<T, PlannerError> {
    by_name(T::all(), text).ok_or_else(|| {
        let names: Vec<String> = T::all().iter().map(T::to_string).collect();
        PlannerError::Setting {
            setting,
            value: text.to_string(),
            valid: names.join(", "),
        }
    })
}

/// The planner's choice, or one of the ways `A`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Setting<A> {
    /// By decision tree and prices.
    #[default]
    Auto,
    /// This way, wherever it is possible.
    Force(A),
}

/// How grouped aggregations are done.
pub type GroupSetting = Setting<GroupAlgorithm>;

/// How joins are done.
pub type JoinSetting = Setting<JoinAlgorithm>;

/// How the warps of tree-shaped pipelines share work. To force a way is to make a tree of every pipeline in which rows have
/// many matches.
pub type LoadBalance = Setting<Balance>;

impl<A: fmt::Display> fmt::Display for Setting<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Force(way) => way.fmt(f),
        }
    }
}

/// `auto`, and each of some ways.
fn auto_or<A>(ways: impl IntoIterator<Item = A>) -> Vec<Setting<A>> {
    let forced = ways.into_iter().map(Setting::Force);
    [Setting::Auto].into_iter().chain(forced).collect()
}

impl Named for GroupSetting {
    fn all() -> Vec<Self> {
        auto_or(GroupAlgorithm::ALL)
    }
}

impl Named for LoadBalance {
    fn all() -> Vec<Self> {
        auto_or(Balance::ALL)
    }
}

impl Named for ColdStart {
    fn all() -> Vec<Self> {
        Self::ALL.to_vec()
    }
}

impl Named for ParquetReader {
    fn all() -> Vec<Self> {
        Self::ALL.to_vec()
    }
}

impl Named for PipelineShape {
    fn all() -> Vec<Self> {
        Self::ALL.to_vec()
    }
}

impl Named for Materialization {
    fn all() -> Vec<Self> {
        Self::ALL.to_vec()
    }
}

/// `warpline.join`: how joins are done, and where.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct JoinMode {
    /// How.
    pub algorithm: JoinSetting,
    /// Both sides are partitioned in host memory first, then joined pair by pair.
    pub triton: bool,
}

impl JoinMode {
    /// For joins of sides that device memory does not hold.
    const TRITON: Self = Self {
        algorithm: Setting::Force(JoinAlgorithm::PhjTr),
        triton: true,
    };
}

impl From<JoinSetting> for JoinMode {
    fn from(algorithm: JoinSetting) -> Self {
        Self {
            algorithm,
            triton: false,
        }
    }
}

impl fmt::Display for JoinMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.triton {
            true => f.write_str("triton"),
            false => self.algorithm.fmt(f),
        }
    }
}

impl Named for JoinMode {
    fn all() -> Vec<Self> {
        let ways = auto_or(JoinAlgorithm::ALL).into_iter().map(Self::from);
        ways.chain([Self::TRITON]).collect()
    }
}

/// Something that is done by price, or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Switch {
    /// Where that is cheaper.
    #[default]
    Auto,
    /// Wherever it is possible.
    On,
    /// Nowhere.
    Off,
}

impl fmt::Display for Switch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Auto => "auto",
            Self::On => "on",
            Self::Off => "off",
        })
    }
}

impl Named for Switch {
    fn all() -> Vec<Self> {
        vec![Self::Auto, Self::On, Self::Off]
    }
}

/// Whether indexes over whole tables are kept and joined with.
pub type IndexJoins = Switch;

/// Whether columns are read for the first rows of an order alone.
pub type LateColumns = Switch;

/// Whether warps gather the rows that are left.
pub type LaneRefill = Switch;

/// How joins by ranges are done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RangeJoins {
    /// By price.
    #[default]
    Auto,
    /// One side is sorted, the other one searches it.
    Sorted,
    /// Each pair of rows with equal keys is tested.
    Pairs,
}

impl fmt::Display for RangeJoins {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Auto => "auto",
            Self::Sorted => "sorted",
            Self::Pairs => "pairs",
        })
    }
}

impl Named for RangeJoins {
    fn all() -> Vec<Self> {
        vec![Self::Auto, Self::Sorted, Self::Pairs]
    }
}

/// Whether rows that the CPU has computed go back to the device.
pub type Reentry = Switch;

/// Whether tables have columns for what no kernel computes of theirs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ComputedColumns {
    /// Where an operator would have to run on the CPU.
    #[default]
    Auto,
    /// Wherever possible.
    On,
    /// Nowhere.
    Off,
    /// Wherever possible, but for what is evaluated by combination: no setting, but what [`Self::Auto`] tries.
    Rest,
}

impl fmt::Display for ComputedColumns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Auto => "auto",
            Self::On => "on",
            Self::Off => "off",
            Self::Rest => "rest",
        })
    }
}

impl Named for ComputedColumns {
    fn all() -> Vec<Self> {
        vec![Self::Auto, Self::On, Self::Off]
    }
}

/// How many devices share a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Shards {
    /// All where one would take long, or does not hold the tables; else one.
    #[default]
    Auto,
    /// So many.
    Force(usize),
}

impl fmt::Display for Shards {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Force(devices) => devices.fmt(f),
        }
    }
}

impl FromStr for Shards {
    type Err = GpuError;

    fn from_str(text: &str) -> Result<Self, GpuError> {
        match (text.trim(), text.trim().parse()) {
            (auto, _) if auto.eq_ignore_ascii_case("auto") => Ok(Self::Auto),
            (_, Ok(devices)) if (1..=MOST_DEVICES).contains(&devices) => Ok(Self::Force(devices)),
            _ => Err(GpuError::InvalidSetting {
                setting: "warpline.shards".into(),
                value: text.into(),
                expected: format!("auto, or a number from 1 to {MOST_DEVICES}"),
            }),
        }
    }
}

/// What the devices that share a query do with each other's rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ShardPlan {
    /// Local where that is possible, else by price in stages or on one device.
    #[default]
    Auto,
    /// Each runs the query over its part of one table; only results meet.
    Local,
    /// Stages, between which rows go from device to device.
    Stages,
}

impl fmt::Display for ShardPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Auto => "auto",
            Self::Local => "local",
            Self::Stages => "stages",
        })
    }
}

impl Named for ShardPlan {
    fn all() -> Vec<Self> {
        vec![Self::Auto, Self::Local, Self::Stages]
    }
}

/// How often a device was set, in all sessions together.
static DEVICE_SET: AtomicU64 = AtomicU64::new(0);

/// The device that a session asks for, as a setting. Setting the same one again opens it again if it is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DeviceSetting {
    /// The device.
    pub choice: DeviceChoice,
    /// How often a device had been set, in all sessions together, when this one was; 0 for one that was never set.
    pub revision: u64,
}

impl From<DeviceChoice> for DeviceSetting {
    fn from(choice: DeviceChoice) -> Self {
        Self {
            choice,
            revision: 0,
        }
    }
}

impl fmt::Display for DeviceSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.choice.fmt(f)
    }
}

impl FromStr for DeviceSetting {
    type Err = GpuError;

    fn from_str(text: &str) -> Result<Self, GpuError> {
        let choice = text.parse()?;
        let revision = DEVICE_SET.fetch_add(1, Ordering::Relaxed) + 1;
        Ok(Self { choice, revision })
    }
}
