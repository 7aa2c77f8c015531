//! What the results of a fragment are thought to take of device memory at their height: memory for anything else is taken beside
//! that, so that results find the room that their plan was made for.

use crate::exec::prepare::part_sizes::BlockSizes;
use crate::exec::prepare::prepared::Prepared;
use crate::exec::prepare::shapes::{Shape, Sizes};
use crate::memory::size_class;

impl Prepared {
    /// Bytes that results hold at one time at most: what the last complete run held, or else what tables have by their plan and rows
    /// by their estimate.
    pub(in crate::exec) fn results_bytes(&self) -> u64 {
        match self.results_took() {
            Some(took) => took as u64,
            None => self.planned_bytes(),
        }
    }

    /// By the plan: each result from the step that makes it to the last one that uses it.
    fn planned_bytes(&self) -> u64 {
        let mut live = vec![0u64; self.shapes.len()];
        let mut most = 0;
        for (step, dead) in self.steps.iter().zip(&self.dead_after) {
            if let Some(into) = step.into() {
                let rows = self.graph.results[into].estimate;
                live[into] = match (&self.borrowed[into], &self.shapes[into]) {
                    // Its ranges are its own.
                    (Some(_), Shape::Index(index)) if index.join.is_none() => {
                        self.shapes[into].planned_bytes(rows)
                    }
                    (Some(_), _) => 0,
                    (None, shape) => shape.planned_bytes(rows),
                };
            }
            most = most.max(live.iter().sum());
            for result in dead {
                live[*result] = 0;
            }
        }
        most
    }
}

impl Shape {
    /// Bytes of the result with about so many rows.
    fn planned_bytes(&self, rows: u64) -> u64 {
        let sizes = Sizes {
            capacity: rows,
            slots: match self {
                Self::Groups {
                    slots,
                    regrouped: None,
                    collected: None,
                    ..
                } => *slots,
                _ => 0,
            },
            ..Sizes::default()
        };
        let bytes = |block: &BlockSizes| -> u64 {
            let parts = block.parts.iter();
            let bytes: usize = parts.map(|part| part.bytes().unwrap_or(0)).sum();
            size_class(bytes) as u64
        };
        self.filling(&sizes).iter().map(bytes).sum()
    }
}
