//! What is done, step by step, when a fragment does not get the memory it asks for.
//!
//! The pool's own relief comes first, within the allocation: free blocks, columns and indexes kept for later queries, waiting
//! for other queries ([`crate::memory`]). What is refused after that ends the run, and the fragment takes the next [`Rung`]. A
//! run hands out rows only when it is over, so a rung never repeats rows that have left.

use crate::error::GpuError;
use crate::memory::LadderCounts;
use crate::query::Query;

/// The way on after a run that ended in an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::exec) enum Rung {
    /// Everything goes that is kept for later queries, those that run end, and the run is repeated, alone.
    Evict,
    /// The run is repeated as a variant that needs less memory: the `n`-th, from 0.
    OutOfCore(u32),
    /// The CPU answers, or the query ends in an error where a GPU is required.
    Cpu,
}

/// How far a fragment has climbed.
#[derive(Debug)]
pub(in crate::exec) struct Ladder {
    /// Variants that need less memory.
    variants: u32,
    repeats: u64,
    out_of_core: u32,
    cpu: u64,
}

impl Ladder {
    /// At its foot, with so many variants of a run that need less memory.
    pub(in crate::exec) fn new(variants: u32) -> Self {
        Self {
            variants,
            repeats: 0,
            out_of_core: 0,
            cpu: 0,
        }
    }

    /// The way on after a run that ended in this error. Want of memory alone is worth another run: other failures would
    /// happen again, or hide a defect.
    pub(in crate::exec) fn next(&mut self, error: &GpuError) -> Rung {
        if !matches!(error, GpuError::OutOfDeviceMemory { .. }) {
            return Rung::Cpu;
        }
        if self.repeats == 0 {
            self.repeats = 1;
            return Rung::Evict;
        }
        if self.out_of_core < self.variants {
            self.out_of_core += 1;
            return Rung::OutOfCore(self.out_of_core - 1);
        }
        Rung::Cpu
    }

    /// The CPU answers.
    pub(in crate::exec) fn leave(&mut self) {
        self.cpu = 1;
    }

    /// What was done for a query so far.
    pub(in crate::exec) fn counts(&self, query: &Query) -> LadderCounts {
        LadderCounts {
            waits: query.waits(),
            evictions: query.evictions(),
            repeats: self.repeats,
            out_of_core: u64::from(self.out_of_core),
            cpu: self.cpu,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_want_of_memory_is_worth_another_run() {
        let full = GpuError::OutOfDeviceMemory {
            requested: 1,
            purpose: "test".into(),
            in_use: 1,
            budget: 1,
        };
        let mut ladder = Ladder::new(2);
        let rungs: Vec<Rung> = (0..5).map(|_| ladder.next(&full)).collect();
        let expected = [
            Rung::Evict,
            Rung::OutOfCore(0),
            Rung::OutOfCore(1),
            Rung::Cpu,
            Rung::Cpu,
        ];
        assert_eq!(rungs, expected);
        let mut ladder = Ladder::new(0);
        assert_eq!(ladder.next(&GpuError::Stopped), Rung::Cpu);
        assert_eq!(ladder.next(&full), Rung::Evict);
        assert_eq!(ladder.next(&full), Rung::Cpu);
    }
}
