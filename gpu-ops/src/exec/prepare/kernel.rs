//! The steps of a fragment, their kernels ready to be launched.

use std::sync::Arc;

use crate::codegen::{Slot, TreeLayout, WindowFill};
use crate::device::Kernel;
use crate::exec::prepare::covering::Covering;
use crate::exec::prepare::places::Template;
use crate::exec::prepare::streamed::StreamedPart;
use crate::graph::{FirstRows, ResultId};
use crate::primitives::MOST_SORT_WORDS;
use crate::tables::LoadProgress;

/// Strides of a table that comes while kernels go over it, if it has rows for so many: what is left to do when the last row has
/// come is one of them.
const STRIDES: u64 = 16;

/// One step.
#[derive(Debug)]
pub(in crate::exec) enum PreparedStep {
    /// One kernel.
    Pipeline(Box<PreparedKernel>),
    /// Keys, order, gather.
    Sort(Box<PreparedSort>),
    /// A result that needs no kernel.
    Borrow {
        /// The result.
        into: ResultId,
        /// For profiles.
        label: String,
    },
}

/// A sort.
#[derive(Debug)]
pub(in crate::exec) struct PreparedSort {
    pub(in crate::exec) rows: ResultId,
    pub(in crate::exec) into: ResultId,
    pub(in crate::exec) keys: Option<PreparedKernel>,
    pub(in crate::exec) word_bits: Vec<u32>,
    /// Bits of each key word that tell the partition of a window.
    pub(in crate::exec) partition: Vec<u64>,
    pub(in crate::exec) gather: PreparedKernel,
    pub(in crate::exec) skip: u64,
    pub(in crate::exec) fetch: Option<u64>,
    pub(in crate::exec) window: Option<PreparedWindow>,
}

/// The columns that a sort adds for window functions.
#[derive(Debug)]
pub(in crate::exec) struct PreparedWindow {
    /// Only these rows stay.
    pub(in crate::exec) rows: Option<FirstRows>,
    pub(in crate::exec) marks: PreparedKernel,
    pub(in crate::exec) bounds: Option<PreparedKernel>,
    pub(in crate::exec) first: usize,
    pub(in crate::exec) fills: Vec<WindowFill>,
}

/// A kernel ready to be launched.
#[derive(Debug)]
pub(in crate::exec) struct PreparedKernel {
    pub(in crate::exec) kernel: Kernel,
    pub(in crate::exec) template: Template,
    pub(in crate::exec) shared_bytes: usize,
    pub(in crate::exec) block_threads: u32,
    /// Blocks that the device holds at once.
    pub(in crate::exec) most_blocks: u64,
    /// Rows of one tile.
    pub(in crate::exec) tile_rows: u64,
    /// Parts of the scanned columns that lie in host memory; its rows come in strides then.
    pub(in crate::exec) streamed: Vec<StreamedPart>,
    /// Of a tree-shaped kernel.
    pub(in crate::exec) tree: Option<TreeLayout>,
    /// Rows of the table that it goes over are still to come.
    pub(in crate::exec) arrival: Option<Arc<LoadProgress>>,
    /// It fills an index that may be there already.
    pub(in crate::exec) covering: Option<Covering>,
    /// Rows of its result lie where they have their numbers in the source.
    pub(in crate::exec) in_place: bool,
    pub(in crate::exec) source: PreparedSource,
    pub(in crate::exec) into: Option<ResultId>,
    pub(in crate::exec) label: String,
}

/// Where the rows of a kernel come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::exec) enum PreparedSource {
    /// This many.
    Exactly(u64),
    /// Rows of a result.
    Rows(ResultId),
    /// Slots of a result.
    Slots(ResultId),
    /// Pairs of a result.
    Pairs(ResultId),
}

impl PreparedSort {
    /// Can ranges of its keys be told apart, and sorted one by one?
    pub(in crate::exec) fn has_ranges(&self) -> bool {
        self.window.is_none() && (1..=MOST_SORT_WORDS).contains(&self.word_bits.len())
    }
}

impl PreparedStep {
    /// The result that the step fills.
    pub(in crate::exec) fn into(&self) -> Option<ResultId> {
        match self {
            Self::Pipeline(kernel) => kernel.into,
            Self::Sort(sort) => Some(sort.into),
            Self::Borrow { into, .. } => Some(*into),
        }
    }

    /// Short text for profiles.
    pub(in crate::exec) fn label(&self) -> &str {
        match self {
            Self::Pipeline(kernel) => &kernel.label,
            Self::Sort(sort) => &sort.gather.label,
            Self::Borrow { label, .. } => label,
        }
    }
}

impl PreparedKernel {
    /// Rows of its table.
    pub(in crate::exec) fn source_rows(&self) -> u64 {
        match self.source {
            PreparedSource::Exactly(rows) => rows,
            _ => 0,
        }
    }

    /// Strides begin at multiples of this many rows: whole tiles, whole bytes of bitmaps, whole vectors.
    pub(in crate::exec) fn stride_rows(&self) -> u64 {
        const VECTORS: u64 = 1024;
        match self.tile_rows >= VECTORS {
            true => self.tile_rows,
            // The least common multiple.
            false => {
                self.tile_rows * (VECTORS >> self.tile_rows.trailing_zeros().min(VECTORS.ilog2()))
            }
        }
    }

    /// Rows of a stride of a table of `rows` rows that is still coming.
    pub(in crate::exec) fn early_stride(&self, rows: u64) -> u64 {
        rows.div_ceil(STRIDES)
            .next_multiple_of(self.stride_rows())
            .max(1)
    }

    /// May it be launched over some rows of its source?
    pub(in crate::exec) fn goes_in_strides(&self) -> bool {
        let mut slots = self.template.slots();
        slots.any(|slot| slot == Slot::FirstRow)
    }
}
