//! Tile or tree: the shape of the pipelines in which rows have many matches.
//!
//! Where an index is looked up and a row can have many matches, there are two ways on. *Tile*: the rows are written down
//! with the ranges of their matches, the lengths of the ranges are summed up, and a second pipeline goes over the
//! pairs, each of which finds its row by a binary search in the sums. *Tree*: the ranges stay in queues of warps, which
//! balance them ([`TreeOptions`]); nothing is written down. Both are even however skewed the matches are.

use warpline_gpu::graph::{Balance, Materialization, TreeOptions};

use crate::config::{LoadBalance, PipelineShape, WarplineConfig};

/// How pipelines with many matches a row are asked to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TreeChoice {
    /// The setting `warpline.pipeline`, or what `warpline.load_balance` makes of it.
    pub shape: PipelineShape,
    /// How those run that are trees.
    pub options: TreeOptions,
}

impl TreeChoice {
    /// What the settings ask for.
    pub fn of(config: &WarplineConfig) -> Self {
        let (shape, balance) = match (config.pipeline, config.load_balance) {
            // To balance the work of trees in one way is to want trees.
            (PipelineShape::Auto, LoadBalance::Force(balance)) => (PipelineShape::Tree, balance),
            (shape, LoadBalance::Force(balance)) => (shape, balance),
            (shape, LoadBalance::Auto) => (shape, Balance::default()),
        };
        Self {
            shape,
            options: TreeOptions {
                balance,
                fws_threshold: config.fws_threshold,
                materialization: if config.eager {
                    Materialization::Eager
                } else {
                    Materialization::Lazy
                },
                metrics: config.metrics,
            },
        }
    }

    /// Is a look-up that `rows` rows make and that yields `matches` rows to be part of a tree?
    pub fn is_tree(&self, rows: f64, matches: f64) -> bool {
        match self.shape {
            PipelineShape::Tile => false,
            PipelineShape::Tree => true,
            PipelineShape::Auto => auto(rows, matches),
        }
    }
}

fn auto(_rows: f64, _matches: f64) -> bool {
    false
}
