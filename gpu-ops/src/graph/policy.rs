//! Decisions of the planner at run time, once the statistics are exact.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use super::{Fingerprint, Graph};
use crate::algorithm::MaterializedJoin;
use crate::device::DeviceInfo;
use crate::error::Result;
use crate::pipeline::{PlacementPolicy, ScanSource};
use crate::tables::{LoadedTable, TableCache};

/// The data structure behind a build side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IndexKind {
    /// One place a possible key (Lutz et al., SIGMOD 2022): a bitmap says which keys exist, payload columns are
    /// addressed by key; for keys with duplicates, offset ranges are.
    Perfect,
    /// An open-addressing table in device memory (NPHJ); for keys with duplicates its
    /// slots hold offset ranges.
    Hash,
    /// The entries in the order of their keys and a value, by which a probe finds a range of them with two binary searches.
    Sorted,
    /// None: the entries lie in the order of their keys or of their keys' partitions, and every probing side is
    /// brought into the same order before the two are joined.
    Materialized(MaterializedJoin),
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
    /// As in [`super::Build`].
    pub prefer_hash: bool,
    /// The rows of a table, in the order of the key, are the entries.
    pub in_table: bool,
}

impl IndexProfile {
    /// Do so few of the possible keys occur that a perfect index with ranges of entries numbers those that do, by a bitmap with
    /// ranks? Two accesses lead to a range then where offsets of all keys take one, but those of a key that does not occur
    /// end at the first, and it is in a sixteenth of the bytes. Offsets that stay in the L2 cache are left.
    pub fn is_ranked(&self) -> bool {
        const IN_CACHE: u64 = 1 << 20;
        let keys = self.estimate.min(self.max_entries);
        let domain = self.domain.unwrap_or(0);
        !self.unique && !self.existence && domain > IN_CACHE && keys <= domain / 8
    }
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
        match self {
            Self::Perfect => f.write_str("perfect"),
            Self::Hash => f.write_str("nphj"),
            Self::Sorted => f.write_str("sorted"),
            Self::Materialized(join) => join.fmt(f),
        }
    }
}

/// What a first run of a fragment takes, about; times in milliseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct FirstRun {
    /// Making its columns resident.
    pub load: f64,
    /// Its kernels.
    pub kernels: f64,
    /// The same on the CPU, from files or batches to rows.
    pub cpu: f64,
}

/// A pipeline over a table whose warps could gather the rows that are left, and go on with 32 at a time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefillProfile {
    /// Rows of the table.
    pub rows: u64,
    /// Its stages, in order.
    pub stages: Vec<StageProfile>,
    /// Its sink gives rows places at the end of a result, for which the threads of a block wait for each other.
    pub reserves: bool,
}

/// One stage of a [`RefillProfile`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StageProfile {
    /// About so many rows are left behind it.
    pub left: u64,
    /// It looks rows up in an index.
    pub looks_up: bool,
}

/// The planner's side of a fragment: what it reads, and, once that is resident, what is done with it.
pub trait Policy: PlacementPolicy {
    /// The tables and columns to make resident. The answer can change: after [`Self::graph`] failed
    /// with [`crate::GpuError::ReloadScans`], string columns that were hoped not to need codes ask for them, and all do after
    /// [`Self::ask_for_codes`].
    fn scans(&self) -> &[ScanSource];

    /// Asks for codes of all string columns from now on; false where that changes nothing.
    fn ask_for_codes(&self) -> bool {
        false
    }

    /// The steps, chosen with the statistics of the resident tables (`tables[i]` belongs to `scans()[i]`).
    /// One table may still be coming: its statistics are what is expected of it then, and steps that rely on them are run again if
    /// it turns out otherwise.
    /// `duplicates` names the builds (as [`super::ResultSpec::name`]) whose assumed uniqueness a run has disproved. An index
    /// over a whole table is kept for later queries when it takes at most `index_room` bytes.
    ///
    /// # Errors
    /// [`crate::GpuError::Unsupported`] when the device cannot run the fragment over these tables,
    /// [`crate::GpuError::ReloadScans`] when it can over what [`Self::scans`] asks for from now on.
    fn graph(
        &self,
        tables: &[LoadedTable],
        duplicates: &HashSet<String>,
        index_room: u64,
    ) -> Result<Graph>;

    /// Why the CPU is to go on with what it has computed, now that the rows of each input are counted; `None` where the device is
    /// to have them. `tables` says what is resident.
    fn declines(&self, _inputs: &[usize], _tables: &TableCache) -> Option<String> {
        None
    }

    /// Choose the data structure of a build side.
    fn place_index(&self, profile: &IndexProfile, device: &DeviceInfo) -> IndexChoice;

    /// After how many stages the warps of a pipeline gather the rows that are left; `None` where they do not.
    fn refill(&self, _profile: &RefillProfile) -> Option<usize> {
        None
    }

    /// What a first run takes, by what is known before it; `None` where that is nothing.
    fn first_run(&self, _tables: &TableCache) -> Option<FirstRun> {
        None
    }

    /// What it computes of its scans' columns; `None` where no other one can be told to compute the same.
    fn fingerprint(&self) -> Option<Arc<Fingerprint>> {
        None
    }

    /// The fragment as operators, for EXPLAIN before the tables are resident.
    fn describe(&self) -> String;
}
