//! Counters of the relief ladder: what was done when memory was short.

use crate::counters::counters;

counters! {
    /// How often queries took which way when memory was short.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub struct LadderCounts {
        /// Allocations that waited for other queries to return memory.
        waits: u64 = "memory_waits", "allocations", sum, json "memory_waits";
        /// Evictions of columns and indexes kept for later queries.
        evictions: u64 = "evictions", "evictions", sum, json "evictions";
        /// Runs repeated after everything kept was evicted and other queries had ended.
        repeats: u64 = "repeats", "runs", sum, json "repeats";
        /// Runs repeated as a variant that needs less device memory.
        out_of_core: u64 = "out_of_core", "runs", sum, json "out_of_core";
        /// Fragments that the CPU answered after all, for want of memory or after any other failure.
        cpu: u64 = "cpu_fallbacks", "fragments", sum, json "cpu_fallbacks";
    }
}
