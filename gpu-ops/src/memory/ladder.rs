//! Counts of what was done when memory was short.

/// How often queries took which way when memory was short.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LadderCounts {
    /// Allocations that waited for other queries to return memory.
    pub waits: u64,
    /// Times that columns or indexes kept for later queries were let go of.
    pub evictions: u64,
    /// Runs that were repeated after everything kept had gone and other queries had ended.
    pub repeats: u64,
    /// Runs that were repeated as a variant that needs less device memory.
    pub out_of_core: u64,
    /// Fragments that the CPU answered after all, for want of memory or any other failure.
    pub cpu: u64,
}

impl LadderCounts {
    /// These and those.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            waits: self.waits + other.waits,
            evictions: self.evictions + other.evictions,
            repeats: self.repeats + other.repeats,
            out_of_core: self.out_of_core + other.out_of_core,
            cpu: self.cpu + other.cpu,
        }
    }

    /// Each with its name, for reports.
    pub fn named(&self) -> [(&'static str, u64); 5] {
        [
            ("memory_waits", self.waits),
            ("evictions", self.evictions),
            ("repeats", self.repeats),
            ("out_of_core", self.out_of_core),
            ("cpu_fallbacks", self.cpu),
        ]
    }
}
