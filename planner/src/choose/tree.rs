//! Tile or tree: the shape of the pipelines in which rows have many matches.
//!
//! Where an index is looked up and a row can have many matches, there are two ways on. *Tile*: the rows are written down
//! with the ranges of their matches, the lengths of the ranges are summed up, and a second pipeline goes over the
//! pairs, each of which finds its row by a binary search in the sums. *Tree*: the ranges stay in queues of warps, which
//! balance them ([`TreeOptions`]); nothing is written down. Both are even however skewed the matches are.
//!
//! On an H200 tiles win by a little: kernels of the 22 queries of JCC-H at scale 10 with skewed bindings take 19.5 ms with
//! them and 22.3 ms with trees (`nifs_aws`) for every such join (at scale 30 Q18 is faster so), whose queues in shared memory
//! cost more than pairs that are written and read once at 4 TB/s. So `auto` takes trees only where there are no pairs: to mark
//! the entries that meet a condition with a probing row. There one thread would go over all entries of a key, and a key with
//! half a million of them took 140 ms.

use warpline_gpu::algorithm::{Balance, PipelineShape};
use warpline_gpu::graph::TreeOptions;

use crate::config::{LoadBalance, WarplineConfig};

/// Entries of a key, on average over entries, that a thread had better not go over alone.
const MANY_ENTRIES: f64 = 64.0;

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
                materialization: config.materialization,
                metrics: config.metrics,
            },
        }
    }

    /// Are the matches of a row to be followed in a tree, where going over pairs would do as well?
    pub fn follows_matches(&self) -> bool {
        self.shape == PipelineShape::Tree
    }

    /// Are entries of which a key has `repeats`, on average over entries, to be gone over in a tree, where one thread
    /// would go over all of a key?
    pub fn spreads(&self, repeats: f64) -> bool {
        match self.shape {
            PipelineShape::Tile => false,
            PipelineShape::Tree => true,
            PipelineShape::Auto => self.repeats_much(repeats),
        }
    }

    /// Would one thread that goes over all entries of a key hold up the others?
    pub fn repeats_much(&self, repeats: f64) -> bool {
        repeats > MANY_ENTRIES
    }
}
