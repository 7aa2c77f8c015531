//! What the planner decides once the figures are known.

use std::collections::HashSet;
use std::fmt;

use super::{Graph, ResultId};
use crate::device::DeviceInfo;
use crate::error::Result;
use crate::pipeline::{PlacementPolicy, ScanSource};
use crate::tables::LoadedTable;

/// The data structure behind a build side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IndexKind {
    /// One place a possible key (SEEDS E6): a bitmap says which keys exist, payload columns are
    /// addressed by key; for keys with duplicates, offset ranges are.
    Perfect,
    /// An open-addressing table in device memory (NPHJ, SEEDS A5); for keys with duplicates its
    /// slots hold offset ranges (B1).
    Hash,
}

/// What an index is chosen from.
#[derive(Debug, Clone)]
pub struct IndexProfile {
    /// Number of possible keys, when all are integers (or codes) of a moderate range.
    pub domain: Option<u64>,
    /// Upper bound of the entries.
    pub max_entries: u64,
    /// The planner's estimate of the entries.
    pub estimate: u64,
    /// Bytes of one entry's payload.
    pub payload_bytes: usize,
    /// Words of a packed key.
    pub key_words: usize,
    /// As in [`super::Build`].
    pub unique: bool,
    /// As in [`super::Build`].
    pub existence: bool,
}

/// A chosen index and why.
#[derive(Debug, Clone)]
pub struct IndexChoice {
    /// Which.
    pub kind: IndexKind,
    /// One line for EXPLAIN.
    pub reason: String,
}

impl fmt::Display for IndexKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Perfect => "perfect",
            Self::Hash => "nphj",
        })
    }
}

/// The planner's side of a fragment: what it reads, and, once that is resident, what is done with it.
pub trait Policy: PlacementPolicy {
    /// The tables and columns to make resident. The answer can change once: after [`Self::graph`] failed
    /// with [`crate::GpuError::ReloadScans`], string columns that were hoped not to need codes ask for them.
    fn scans(&self) -> &[ScanSource];

    /// The steps, chosen with the statistics of the resident tables (`tables[i]` belongs to `scans()[i]`).
    /// `duplicates` names the builds (as [`super::ResultSpec::name`]) whose assumed uniqueness a run has disproved.
    ///
    /// # Errors
    /// [`crate::GpuError::Unsupported`] when the device cannot run the fragment over these tables,
    /// [`crate::GpuError::ReloadScans`] when it can over what [`Self::scans`] asks for from now on.
    fn graph(&self, tables: &[LoadedTable], duplicates: &HashSet<String>) -> Result<Graph>;

    /// Choose the data structure of a build side.
    fn place_index(&self, profile: &IndexProfile, device: &DeviceInfo) -> IndexChoice;

    /// The fragment as operators, for EXPLAIN before the tables are resident.
    fn describe(&self) -> String;
}
