//! Tree-shaped pipelines: how their warps share work, and what a node of the tree carries.

use std::fmt;
use std::str::FromStr;

use crate::error::GpuError;
use crate::names::by_name;

/// How the warps of a tree-shaped pipeline balance their work (Themis, PVLDB 2024, sections 2.3, 5 and 6).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Balance {
    /// Not at all: a lane visits what its own rows yield, as nested loops do.
    None,
    /// Lanes of a warp share its nodes; ranges of more than a fixed number of nodes are cut and go to one queue of
    /// all warps.
    Fws,
    /// Lanes of a warp share its nodes: no-imbalance-first search.
    Nifs,
    /// The same, and busy warps give half of their work to idle ones: adaptive work sharing.
    #[default]
    NifsAws,
}

impl Balance {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::None, Self::Fws, Self::Nifs, Self::NifsAws];

    /// The name that settings and reports use.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Fws => "fws",
            Self::Nifs => "nifs",
            Self::NifsAws => "nifs_aws",
        }
    }

    /// Do warps take work from each other?
    pub fn shares(self) -> bool {
        matches!(self, Self::Fws | Self::NifsAws)
    }
}

impl fmt::Display for Balance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Balance {
    type Err = GpuError;

    fn from_str(text: &str) -> Result<Self, GpuError> {
        by_name(Self::ALL, text).ok_or_else(|| {
            unknown(
                "warpline.load_balance",
                text,
                "auto, none, fws, nifs, nifs_aws",
            )
        })
    }
}

/// When the values of columns that later levels need are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Materialization {
    /// When an operator needs them: a node carries the numbers of rows and entries.
    #[default]
    Lazy,
    /// When the row or entry is visited first: a node carries the values.
    Eager,
}

impl fmt::Display for Materialization {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Lazy => "lazy",
            Self::Eager => "eager",
        })
    }
}

impl FromStr for Materialization {
    type Err = GpuError;

    fn from_str(text: &str) -> Result<Self, GpuError> {
        by_name([Self::Lazy, Self::Eager], text)
            .ok_or_else(|| unknown("warpline.materialization", text, "lazy, eager"))
    }
}

/// The error of a text that names no value of a setting.
fn unknown(setting: &str, text: &str, expected: &str) -> GpuError {
    GpuError::InvalidSetting {
        setting: setting.into(),
        value: text.into(),
        expected: expected.into(),
    }
}

/// How the tree-shaped pipelines of a graph run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TreeOptions {
    /// Who shares what.
    pub balance: Balance,
    /// Nodes of a piece with [`Balance::Fws`].
    pub fws_threshold: u32,
    /// What nodes carry.
    pub materialization: Materialization,
    /// Count visits, idle lanes and busy cycles, for [`crate::exec::StepReport`].
    pub metrics: bool,
}

impl Default for TreeOptions {
    fn default() -> Self {
        Self {
            balance: Balance::default(),
            fws_threshold: 4096,
            materialization: Materialization::default(),
            metrics: false,
        }
    }
}
