//! The benchmark to run, TPC-H or JCC-H: its data, queries and name.

use crate::error::Result;
use crate::jcch::{Binding, Bindings, Seed};
use crate::queries::{self, Query};
use crate::scale::Scale;
use crate::tables::{Dataset, Table};

/// TPC-H, or JCC-H with some parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Benchmark {
    /// TPC-H with the parameters of its validation run.
    #[default]
    Tpch,
    /// JCC-H: the same tables with skew.
    Jcch {
        /// Whether the queries ask for what is skewed.
        bindings: Bindings,
        /// Which parameters they have.
        seed: Seed,
    },
}

impl Benchmark {
    /// The name that people know.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tpch => "TPC-H",
            Self::Jcch { .. } => "JCC-H",
        }
    }

    /// The name of its command.
    pub fn command(self) -> &'static str {
        match self {
            Self::Tpch => "tpch",
            Self::Jcch { .. } => "jcch",
        }
    }

    /// The bindings and the seed of its queries; `None` for TPC-H, whose parameters are fixed.
    pub fn bindings(self) -> Option<(Bindings, Seed)> {
        match self {
            Self::Tpch => None,
            Self::Jcch { bindings, seed } => Some((bindings, seed)),
        }
    }

    /// Its tables.
    ///
    /// # Errors
    /// [`crate::TpchError::Scale`] when it does not exist at this scale.
    pub fn dataset(self, scale: Scale) -> Result<Dataset> {
        match self {
            Self::Tpch => Ok(Dataset::tpch(scale)),
            Self::Jcch { .. } => Dataset::jcch(scale),
        }
    }

    /// The queries with these numbers.
    ///
    /// # Errors
    /// Those of [`queries::query`] and [`Binding::query`].
    pub fn queries(self, numbers: &[u8], scale: Scale) -> Result<Vec<Query>> {
        let query = |number: &u8| match self {
            Self::Tpch => queries::query(*number).cloned(),
            Self::Jcch { bindings, seed } => {
                let binding = Binding {
                    bindings,
                    seed,
                    scale,
                };
                binding.query(*number)
            }
        };
        numbers.iter().map(query).collect()
    }

    /// Rows of a table at scale 1; `None` when they do not follow the scale.
    pub(crate) fn rows_at_one(self, table: Table) -> Option<f64> {
        match table {
            Table::Nation | Table::Region => None,
            // Of TPC-H, the number is random; this is the one at scale 1.
            Table::Lineitem if self == Self::Tpch => Some(6_001_215.0),
            Table::Lineitem => Some(6_000_000.0),
            Table::Orders => Some(1_500_000.0),
            Table::Customer => Some(150_000.0),
            Table::Partsupp => Some(800_000.0),
            Table::Supplier => Some(10_000.0),
            Table::Part => Some(200_000.0),
        }
    }
}
