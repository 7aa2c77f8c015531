//! Options of tree-shaped pipelines: load balancing, and what a node carries.

use crate::algorithm::{Balance, Materialization};

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
