//! What settings may hold: names from a list, each of which stands for a way of doing things.

use std::fmt;
use std::str::FromStr;

use warpline_gpu::GpuError;
use warpline_gpu::graph::Balance;
use warpline_gpu::names::by_name;
use warpline_gpu::runtime::DeviceChoice;

use crate::choose::group::GroupAlgorithm;
use crate::choose::join::JoinAlgorithm;
use crate::error::PlannerError;

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

impl<A: FromStr> FromStr for Setting<A> {
    type Err = A::Err;

    fn from_str(text: &str) -> Result<Self, A::Err> {
        if text.trim().eq_ignore_ascii_case("auto") {
            return Ok(Self::Auto);
        }
        text.parse().map(Self::Force)
    }
}

/// The device that a session asks for, as a setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DeviceSetting(pub DeviceChoice);

impl fmt::Display for DeviceSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for DeviceSetting {
    type Err = GpuError;

    fn from_str(text: &str) -> Result<Self, GpuError> {
        text.parse().map(Self)
    }
}

/// The shape of kernels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PipelineShape {
    /// The planner's choice.
    #[default]
    Auto,
    /// A block takes a tile of rows, each of which yields at most one row; where rows have many matches, a pipeline
    /// ends and another goes over the pairs.
    Tile,
    /// Warps follow the matches of a row through the pipeline and share what there is to do.
    Tree,
}

impl fmt::Display for PipelineShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Auto => "auto",
            Self::Tile => "tile",
            Self::Tree => "tree",
        })
    }
}

impl FromStr for PipelineShape {
    type Err = PlannerError;

    fn from_str(text: &str) -> Result<Self, PlannerError> {
        let all = [Self::Auto, Self::Tile, Self::Tree];
        one_of(all, text, "warpline.pipeline", "auto, tile, tree")
    }
}

/// Whether indexes over whole tables are kept and joined with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum IndexJoins {
    /// Kept, and joined with where that is cheaper.
    #[default]
    Auto,
    /// Joined with wherever a table is joined by its columns.
    On,
    /// Neither.
    Off,
}

impl fmt::Display for IndexJoins {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Auto => "auto",
            Self::On => "on",
            Self::Off => "off",
        })
    }
}

impl FromStr for IndexJoins {
    type Err = PlannerError;

    fn from_str(text: &str) -> Result<Self, PlannerError> {
        let all = [Self::Auto, Self::On, Self::Off];
        one_of(all, text, "warpline.index_joins", "auto, on, off")
    }
}

/// The one of `all` that `text` names, as the value of a setting.
pub(crate) fn one_of<T: fmt::Display, const N: usize>(
    all: [T; N],
    text: &str,
    setting: &'static str,
    valid: &'static str,
) -> Result<T, PlannerError> {
    by_name(all, text).ok_or_else(|| PlannerError::Setting {
        setting,
        value: text.to_string(),
        valid,
    })
}
