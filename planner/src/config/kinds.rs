//! What settings may hold: names from a list, each of which stands for a way of doing things.

use std::fmt;
use std::str::FromStr;

use warpline_gpu::GpuError;
use warpline_gpu::algorithm::{Balance, GroupAlgorithm, JoinAlgorithm, PipelineShape};
use warpline_gpu::names::by_name;
use warpline_gpu::runtime::DeviceChoice;

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

impl<A> Setting<A> {
    /// The planner's choice where `text` says so, else the way that `force` finds in it.
    fn parse<E>(text: &str, force: impl FnOnce(&str) -> Result<A, E>) -> Result<Self, E> {
        if text.trim().eq_ignore_ascii_case("auto") {
            return Ok(Self::Auto);
        }
        force(text).map(Self::Force)
    }
}

impl FromStr for GroupSetting {
    type Err = PlannerError;

    fn from_str(text: &str) -> Result<Self, PlannerError> {
        let valid = "auto, private, shared, global, hgb, sgb_ur, sgb_tr, sgb_de_tr, pgb_ur, pgb_tr";
        Self::parse(text, |text| {
            one_of(GroupAlgorithm::ALL, text, "warpline.group_by", valid)
        })
    }
}

impl FromStr for JoinSetting {
    type Err = PlannerError;

    fn from_str(text: &str) -> Result<Self, PlannerError> {
        let valid = "auto, perfect, nphj, phj_ur, phj_tr, smj_ur, smj_tr, triton";
        Self::parse(text, |text| {
            one_of(JoinAlgorithm::ALL, text, "warpline.join", valid)
        })
    }
}

impl FromStr for LoadBalance {
    type Err = GpuError;

    fn from_str(text: &str) -> Result<Self, GpuError> {
        Self::parse(text, str::parse)
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

/// The shape of kernels by its name.
pub(super) fn pipeline_shape(text: &str) -> Result<PipelineShape, PlannerError> {
    let valid = "auto, tile, tree";
    one_of(PipelineShape::ALL, text, "warpline.pipeline", valid)
}

/// The one of `all` that `text` names, as the value of a setting.
fn one_of<T: fmt::Display, const N: usize>(
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
