//! The algorithms that a plan chooses between: joins, group-bys, kernel shapes, load balancing.

use std::fmt;

/// How two relations are joined by equality of keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum JoinAlgorithm {
    /// An array over all possible keys.
    Perfect,
    /// A hash table in device memory.
    Nphj,
    /// Partitioned hash join; payload gathered from where it was.
    PhjUr,
    /// Partitioned hash join; payload partitioned with the keys.
    PhjTr,
    /// Sort-merge join; payload gathered from where it was.
    SmjUr,
    /// Sort-merge join; payload sorted with the keys.
    SmjTr,
}

impl JoinAlgorithm {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Perfect,
        Self::Nphj,
        Self::PhjUr,
        Self::PhjTr,
        Self::SmjUr,
        Self::SmjTr,
    ];

    /// An index that the probing pipeline looks into, row by row?
    pub fn is_index(self) -> bool {
        matches!(self, Self::Perfect | Self::Nphj)
    }

    /// The name in settings and plans.
    pub fn name(self) -> &'static str {
        match self {
            Self::Perfect => "perfect",
            Self::Nphj => "nphj",
            Self::PhjUr => "phj_ur",
            Self::PhjTr => "phj_tr",
            Self::SmjUr => "smj_ur",
            Self::SmjTr => "smj_tr",
        }
    }
}

impl fmt::Display for JoinAlgorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// How two sides that lie in memory are joined (Wu et al., SIGMOD 2025, section 4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MaterializedJoin {
    /// Both sides are partitioned by the hash of their keys, with row numbers in place of the other columns; a
    /// hash table in shared memory a partition.
    PhjUr,
    /// The same, and the other columns are partitioned along.
    PhjTr,
    /// Both sides are sorted by their keys, with row numbers in place of the other columns, and merged.
    SmjUr,
    /// The same, and the other columns are sorted along.
    SmjTr,
}

impl MaterializedJoin {
    /// Are the sides sorted, not partitioned?
    pub fn sorts(self) -> bool {
        matches!(self, Self::SmjUr | Self::SmjTr)
    }

    /// Do the other columns move with the keys, so that what is read of them later lies close together?
    pub fn transforms(self) -> bool {
        matches!(self, Self::PhjTr | Self::SmjTr)
    }
}

impl fmt::Display for MaterializedJoin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::PhjUr => "phj_ur",
            Self::PhjTr => "phj_tr",
            Self::SmjUr => "smj_ur",
            Self::SmjTr => "smj_tr",
        })
    }
}

/// How rows are grouped and aggregated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum GroupAlgorithm {
    /// States in each thread's registers.
    Private,
    /// States in each block's shared memory.
    Shared,
    /// States in device memory.
    Global,
    /// Rows in the order of the key: groups of a tile in shared memory, written down one behind the other.
    Runs,
    /// Dense group numbers by a hash table, then dense states.
    Hgb,
    /// Sorted keys; payload gathered from where it was.
    SgbUr,
    /// Sorted keys and payload.
    SgbTr,
    /// Keys replaced by dense numbers, then sorted with the payload.
    SgbDeTr,
    /// Partitioned keys; payload gathered from where it was.
    PgbUr,
    /// Partitioned keys and payload.
    PgbTr,
}

impl GroupAlgorithm {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::Private,
        Self::Shared,
        Self::Global,
        Self::Runs,
        Self::Hgb,
        Self::SgbUr,
        Self::SgbTr,
        Self::SgbDeTr,
        Self::PgbUr,
        Self::PgbTr,
    ];

    /// Aggregated by the pipeline that yields the rows, without writing them down?
    pub fn is_fused(self) -> bool {
        matches!(
            self,
            Self::Private | Self::Shared | Self::Global | Self::Runs
        )
    }

    /// The name in settings and plans.
    pub fn name(self) -> &'static str {
        match self {
            Self::Private => "private",
            Self::Shared => "shared",
            Self::Global => "global",
            Self::Runs => "runs",
            Self::Hgb => "hgb",
            Self::SgbUr => "sgb_ur",
            Self::SgbTr => "sgb_tr",
            Self::SgbDeTr => "sgb_de_tr",
            Self::PgbUr => "pgb_ur",
            Self::PgbTr => "pgb_tr",
        }
    }
}

impl fmt::Display for GroupAlgorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The shape of kernels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PipelineShape {
    /// The planner's choice.
    #[default]
    Auto,
    /// A block takes a tile of rows, each of which yields at most one row; where rows have many matches, a pipeline
    /// ends and another goes over the pairs.
    Tile,
    /// Warps follow the matches of a row through the pipeline and share what there is to do.
    Tree,
}

impl PipelineShape {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Auto, Self::Tile, Self::Tree];
}

impl fmt::Display for PipelineShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Auto => "auto",
            Self::Tile => "tile",
            Self::Tree => "tree",
        })
    }
}

/// How the warps of a tree-shaped pipeline balance their work (Themis, PVLDB 2024, sections 2.3, 5 and 6).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Balance {
    /// Not at all: a lane visits what its own rows yield, as nested loops do.
    None,
    /// Lanes of a warp share its nodes; ranges of more than a fixed number of nodes are cut and go to one queue of
    /// all warps.
    Fws,
    /// Lanes of a warp share its nodes: no-imbalance-first search.
    Nifs,
    /// The same, and busy warps give half of their work to idle ones: adaptive work sharing.
    #[default]
    NifsAws,
}

impl Balance {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::None, Self::Fws, Self::Nifs, Self::NifsAws];

    /// The name that settings and reports use.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Fws => "fws",
            Self::Nifs => "nifs",
            Self::NifsAws => "nifs_aws",
        }
    }

    /// Do warps take work from each other?
    pub fn shares(self) -> bool {
        matches!(self, Self::Fws | Self::NifsAws)
    }
}

impl fmt::Display for Balance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// When the values of columns that later levels need are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Materialization {
    /// When an operator needs them: a node carries the numbers of rows and entries.
    #[default]
    Lazy,
    /// When the row or entry is visited first: a node carries the values.
    Eager,
}

impl Materialization {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Lazy, Self::Eager];
}

impl fmt::Display for Materialization {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Lazy => "lazy",
            Self::Eager => "eager",
        })
    }
}
