//! Choice of the kernel shape, tile or tree, where a row can have many matches.
//!
//! *Tile*: rows are materialised with the ranges of their matches, prefix sums number the matches, and a second
//! pipeline runs over the pairs, each of which finds its row by binary search. *Tree*: the ranges stay in queues of
//! warps, which balance them ([`TreeOptions`]); nothing is materialised. Both are balanced however skewed the matches
//! are.
//!
//! On an H200 tiles win by a little: kernels of the 22 queries of JCC-H at scale 10 with skewed bindings take 19.5 ms with
//! them and 22.3 ms with trees (`nifs_aws`) for every such join (at scale 30 Q18 is faster so), whose queues in shared memory
//! cost more than pairs that are written and read once at 4 TB/s. So `auto` takes trees only where there are no pairs: to mark
//! the entries that meet a condition with a probing row. There one thread would go over all entries of a key, and a key with
//! half a million of them took 140 ms.

use warpline_gpu::algorithm::{Balance, PipelineShape};
use warpline_gpu::graph::TreeOptions;

use crate::config::{LoadBalance, WarplineConfig};

/// Average entries of a key, over entries, from which on a single thread should not visit them all.
const MANY_ENTRIES: f64 = 64.0;

/// The setting of pipelines in which a row has many matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TreeChoice {
    /// The setting `warpline.pipeline`, or the shape that `warpline.load_balance` implies.
    pub shape: PipelineShape,
    /// Options of trees.
    pub options: TreeOptions,
}

impl TreeChoice {
    /// The shape that the settings ask for.
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

    /// Should a tree follow the matches of a row, where pairs would do as well?
    pub fn follows_matches(&self) -> bool {
        self.shape == PipelineShape::Tree
    }

    /// Should a tree visit the entries of keys that repeat so often, where one thread would otherwise visit all
    /// entries of a key?
    pub fn spreads(&self, repeats: f64) -> bool {
        match self.shape {
            PipelineShape::Tile => false,
            PipelineShape::Tree => true,
            PipelineShape::Auto => self.repeats_much(repeats),
        }
    }

    /// Would one thread that visits all entries of a key delay the others?
    pub fn repeats_much(&self, repeats: f64) -> bool {
        repeats > MANY_ENTRIES
    }
}
