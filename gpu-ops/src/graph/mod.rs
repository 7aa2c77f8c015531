//! Fragments as data: a graph of steps from resident tables to the fragment's rows.
//!
//! A fragment of a physical plan is cut at its blocking operators into [`Step`]s. Most are
//! [`Pipeline`]s, each of which becomes one generated kernel: rows come from a [`Source`], pass
//! [`Stage`]s that keep each row or drop it and append columns to its scope, and end in a
//! [`Sink`] that fills a *result*. Later steps read results: as rows, as groups, or by probing.
//!
//! Logical types only: how values lie in memory is decided at code generation, from the ranges of
//! the resident columns, which are carried through every step. Which data structure stands behind
//! a [`Build`] or an [`Aggregate`] is decided there as well, by a [`Policy`] that is asked with
//! exact figures. A result never leaves the device but for the last one.
//!
//! # Scope
//! Expressions refer to columns by their place in the scope: first the columns of the source, then
//! those that the stages append, in order.

mod band;
mod display;
mod fingerprint;
mod lists;
mod policy;
mod tree;
mod window;

use arrow::datatypes::{DataType, FieldRef, SchemaRef};

pub use band::{Band, Bound};
pub use fingerprint::Fingerprint;
pub use lists::{ListColumn, OutputList, list_of, list_type};
pub use policy::{
    FirstRun, IndexChoice, IndexKind, IndexProfile, Policy, RefillProfile, StageProfile,
};
pub use tree::TreeOptions;
pub use warpline_cuda::kernels::Numbering;
pub use window::{Distance, Edge, FirstRows, FrameBound, Window, WindowColumn};

use crate::algorithm::MaterializedJoin;
use crate::expr::Expr;
use crate::pipeline::{Aggregate, GroupRoom, ScanSource};

/// Number of a result: index into [`Graph::results`].
pub type ResultId = usize;

/// What a fragment does.
#[derive(Debug, Clone)]
pub struct Graph {
    /// The tables it reads; [`Source::Scan`] refers to them by index.
    pub scans: Vec<ScanSource>,
    /// What the steps produce.
    pub results: Vec<ResultSpec>,
    /// In an order in which whatever a step reads is complete before it. Several steps may append
    /// to one [`ResultKind::Rows`] (UNION ALL); none reads it before the last of them.
    pub steps: Vec<Step>,
    /// The result, a [`ResultKind::Rows`] or [`ResultKind::Sorted`], that holds the fragment's rows:
    /// its columns are those of `schema`, in order.
    pub output: ResultId,
    /// Schema of the fragment's rows, equal to that of the plan it stands for.
    pub schema: SchemaRef,
    /// How pipelines with a [`Stage::Expand`] run.
    pub tree: TreeOptions,
    /// Indexes over all rows of a table stay on the device for later queries, and those of earlier ones are used.
    pub keep_indexes: bool,
    /// Whether pairs of a join may come in parts.
    pub parts: Parts,
    /// Room for the states of groups, past which rows are aggregated in parts; `None`: states may take what they need.
    pub group_room: Option<GroupRoom>,
    /// Columns of the output that refer to lists, in order: results they refer to have all of their rows in device memory.
    pub lists: Vec<OutputList>,
}

/// Are joins in memory done in parts, a pair of partitions or a stride of the probing side at a time? What reads their pairs
/// appends to its result then, and results may lie in host memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Parts {
    /// At once.
    #[default]
    Never,
    /// Where the sides are too large for device memory.
    Large,
    /// Wherever that is possible.
    Always,
}

impl Parts {
    /// May there be parts?
    pub fn allowed(self) -> bool {
        self != Self::Never
    }
}

/// A column of a result.
#[derive(Debug, Clone)]
pub struct ResultColumn {
    /// For EXPLAIN.
    pub name: String,
    /// Logical type.
    pub data_type: DataType,
    /// False only when no row can hold NULL.
    pub nullable: bool,
}

/// What a result is, and how large it is thought to become.
#[derive(Debug, Clone)]
pub struct ResultSpec {
    /// Its shape.
    pub kind: ResultKind,
    /// The planner's estimate of its rows (groups, entries); sizes first attempts and is shown by EXPLAIN.
    pub estimate: u64,
    /// The planner's estimate of the rows that it is made of: those that an aggregation goes over, after filters and joins.
    pub input: u64,
    /// Rows of a `Rows` result that are enough for those who read it: a pipeline may leave out all others.
    pub enough: Option<u64>,
    /// Short name for EXPLAIN, e.g. `orders ⋈ customer`.
    pub name: String,
}

/// The shapes of results.
#[derive(Debug, Clone)]
pub enum ResultKind {
    /// Rows in columns, in no order.
    Rows(Vec<ResultColumn>),
    /// Groups with their aggregation states; made by [`Sink::Aggregate`], read by [`Source::Groups`].
    Groups(Vec<ResultColumn>),
    /// Rows found by key; made by [`Sink::Build`]. The columns are the payload.
    Index(Vec<ResultColumn>),
    /// Rows with the range of index entries that each matches; made by [`Sink::Matches`], read by
    /// [`Source::Pairs`]. The columns are those of the probing rows alone.
    Matches(Vec<ResultColumn>),
    /// A `Rows` result in order; made by [`Step::Sort`]. It has the first columns of its input, as many as
    /// are listed here: columns beyond these are there to order by. With a [`Window`] it has all of them, then the window's.
    Sorted(Vec<ResultColumn>),
}

impl ResultKind {
    /// The columns, whatever the shape.
    pub fn columns(&self) -> &[ResultColumn] {
        match self {
            Self::Rows(c)
            | Self::Groups(c)
            | Self::Index(c)
            | Self::Matches(c)
            | Self::Sorted(c) => c,
        }
    }
}

/// One blocking step.
#[derive(Debug, Clone)]
pub enum Step {
    /// One generated kernel.
    Pipeline(Pipeline),
    /// Orders rows, or cuts them off without ordering them (no keys).
    Sort(Sort),
}

/// A source, what happens to each row, and a sink.
#[derive(Debug, Clone)]
pub struct Pipeline {
    /// Where rows come from.
    pub source: Source,
    /// Row-wise steps in order.
    pub stages: Vec<Stage>,
    /// How many rows are thought to be left on the way, in order; of some stages nothing may be known.
    pub left: Vec<RowsLeft>,
    /// Where rows end.
    pub sink: Sink,
}

/// The planner's estimate of the rows that are left after the first stages of a pipeline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RowsLeft {
    /// After so many stages.
    pub stages: usize,
    /// So many rows.
    pub rows: u64,
}

/// Where the rows of a pipeline come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// Rows of a resident table ([`Graph::scans`]); scope: [`ScanSource::columns`].
    Scan(usize),
    /// Rows of a `Rows` or `Sorted` result; scope: its columns.
    Rows(ResultId),
    /// Groups of a `Groups` result; scope: its columns (keys, then finished calls). An ungrouped
    /// aggregation has exactly one.
    Groups(ResultId),
    /// Every pair of a `Matches` result; scope: its columns, then the payload of the index that was
    /// probed (none for `Semi` and `Anti`). Rows of an outer probe without a match come once, with a payload of NULLs.
    Pairs(ResultId),
    /// Entries of an index that some probe marked (`true`) or none did (`false`), in each of its first sets of marks; scope: the
    /// payload.
    Entries(ResultId, Vec<bool>),
    /// Rows of another source, a scan or groups, that were left out of a narrow result so far: those whose numbers
    /// ([`crate::expr::Node::RowNumber`]) are the first column of `by`, a `Sorted` result, in its order. Stages drop none of them.
    /// Scope: that of the other source.
    Picked {
        /// The other source.
        of: Box<Source>,
        /// The numbers.
        by: ResultId,
    },
    /// One row without columns.
    One,
}

/// One row-wise step.
#[derive(Debug, Clone)]
pub enum Stage {
    /// Keep the rows for which every conjunct is true. Conjuncts are in evaluation order.
    Filter(Vec<Expr>),
    /// Look up the row's key in an index. At most one row goes on.
    Probe(Probe),
    /// Look up the row's key in an index; every match goes on, with the entry's payload appended. `Inner`, or `Left` without
    /// a residual condition, whose rows without a match go on once. Makes the pipeline tree-shaped.
    Expand(Probe),
    /// Mark the index entry of each pair ([`Source::Pairs`] of an `Inner` or `Left` probe) that came so far, for
    /// [`Source::Entries`]: conditions on pairs have been tested before. The index is the one that was probed, and has a set of
    /// marks.
    Mark(ResultId),
    /// Append the columns of a `Rows` result of at most one row (NULLs when it has none). More rows
    /// fail the query as DataFusion does for a scalar subquery.
    Scalar(ResultId),
}

/// A look-up of keys in an index.
#[derive(Debug, Clone)]
pub struct Probe {
    /// The index.
    pub index: ResultId,
    /// One expression a key, of the types of [`Build::keys`] (dictionaries and widths may differ).
    pub keys: Vec<Expr>,
    /// Only entries of this range of values match: exactly where the index has an order ([`Build::order`]).
    pub band: Option<Box<Band>>,
    /// What a match means.
    pub kind: ProbeKind,
    /// A match counts only when all of these are true; over the scope followed by the payload.
    /// With `Inner` and `Left` in a stage the index must be unique.
    pub residual: Vec<Expr>,
    /// Sets of marks on the index entries that match (see [`Source::Entries`]): an entry gets a mark in each set all of whose
    /// conditions, over the scope followed by the payload, are true; none mark always. With a [`Sink::Matches`] there is one set at
    /// most, without conditions.
    pub marks: Vec<Vec<Expr>>,
}

/// What the matches of a probe mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProbeKind {
    /// Rows with a match go on; the payload is appended. In a stage the index is unique.
    Inner,
    /// All rows go on; the payload is appended, NULL without a match. In a stage the index is unique.
    Left,
    /// Rows with a match go on.
    Semi,
    /// Rows without a match go on.
    Anti,
    /// `NOT IN`: rows without a match go on, but none when an entry's key is NULL, and no row with
    /// a NULL key unless the index is empty. One key, no residual.
    NullAwareAnti,
    /// All rows go on; a Boolean that is never NULL is appended: has the row a match?
    Mark,
}

impl ProbeKind {
    /// Do the columns of an entry follow those of the row?
    pub fn appends_payload(self) -> bool {
        matches!(self, Self::Inner | Self::Left)
    }
}

/// Where the rows of a pipeline end.
#[derive(Debug, Clone)]
pub enum Sink {
    /// Append to a `Rows` result.
    Rows {
        /// The result.
        into: ResultId,
        /// One expression a column.
        columns: Vec<Expr>,
    },
    /// Ungrouped (`keys` empty) or grouped aggregation into a `Groups` result.
    Aggregate {
        /// The result.
        into: ResultId,
        /// Keys and calls.
        aggregate: Aggregate,
    },
    /// Enter rows into an `Index` result.
    Build {
        /// The result.
        into: ResultId,
        /// Keys and payload.
        build: Build,
    },
    /// Probe an index of any number of matches a row, for [`Source::Pairs`].
    Matches {
        /// The result.
        into: ResultId,
        /// `Inner`, `Left`, `Semi` or `Anti` (the rows themselves, each at most once), without residual.
        probe: Probe,
        /// The columns of the row to keep.
        columns: Vec<Expr>,
    },
    /// Nothing but the marks of the stages' probes.
    Discard,
}

/// The build side of a join.
#[derive(Debug, Clone)]
pub struct Build {
    /// One expression a key; none for a cross join, where every entry matches every row.
    pub keys: Vec<Expr>,
    /// Entries of equal keys lie in the order of this value, and rows in which it is NULL match nothing: each probe asks for a
    /// range of it ([`Probe::band`]). Neither unique nor a set then.
    pub order: Option<Expr>,
    /// What probes append.
    pub payload: Vec<Expr>,
    /// No two entries have equal keys. An assumption: a duplicate ends the run with
    /// [`crate::GpuError::DuplicateKeys`], and the planner plans again knowing it.
    pub unique: bool,
    /// Rows with a NULL key match NULL keys (otherwise they match nothing, and are entered only where entries have marks).
    pub null_equal: bool,
    /// Sets of marks that entries have, for [`Source::Entries`].
    pub mark_sets: usize,
    /// No probe needs the payload or the number of entries of a key: a set is enough.
    pub existence: bool,
    /// Rather than looking keys up, join both sides in memory; every probe is then a [`Sink::Matches`]. Keys
    /// that are too wide for that are looked up in an index all the same.
    pub join: Option<MaterializedJoin>,
    /// An index that takes much memory is to be a hash table even where the keys have a range.
    pub prefer_hash: bool,
    /// Of all rows of a table, and kept for later queries: where keys repeat, entries of one key are to lie side by side, with what
    /// probes append of them. To bring them together costs more than one query gains.
    pub clustered: bool,
    /// Why that, or why an index: one line for EXPLAIN; may be empty.
    pub reason: String,
}

/// Orders the rows of a result.
#[derive(Debug, Clone)]
pub struct Sort {
    /// A `Rows` result.
    pub rows: ResultId,
    /// Major key first; columns of `rows`. Strings must have dictionary codes.
    pub keys: Vec<SortKey>,
    /// Rows left out at the start.
    pub skip: u64,
    /// Most rows kept after that.
    pub fetch: Option<u64>,
    /// Columns that are added for window functions, which go over all rows: nothing is left out then.
    pub window: Option<Window>,
    /// The `Sorted` result.
    pub into: ResultId,
}

/// One key of an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SortKey {
    /// Column of the rows.
    pub column: usize,
    /// Largest first.
    pub descending: bool,
    /// NULLs before all values.
    pub nulls_first: bool,
}

impl Graph {
    /// Names and types of the scope that `source` begins with.
    pub fn source_columns(&self, source: &Source) -> Vec<ResultColumn> {
        let of_result = |id: ResultId| self.results[id].kind.columns().to_vec();
        match source {
            Source::Scan(scan) => self.scans[*scan]
                .fields
                .iter()
                .map(|f: &FieldRef| ResultColumn {
                    name: f.name().clone(),
                    data_type: f.data_type().clone(),
                    nullable: f.is_nullable(),
                })
                .collect(),
            Source::Rows(id) | Source::Groups(id) | Source::Entries(id, _) => of_result(*id),
            Source::Pairs(id) => {
                let mut columns = of_result(*id);
                if let Some(probe) = self.probed_by(*id).filter(|p| p.kind.appends_payload()) {
                    columns.extend(of_result(probe.index).into_iter().map(|mut c| {
                        c.nullable |= probe.kind == ProbeKind::Left;
                        c
                    }));
                }
                columns
            }
            Source::Picked { of, .. } => self.source_columns(of),
            Source::One => vec![],
        }
    }

    /// The probe that the `Matches` result was made with.
    pub fn probed_by(&self, matches: ResultId) -> Option<&Probe> {
        self.steps.iter().find_map(|step| match step {
            Step::Pipeline(Pipeline {
                sink: Sink::Matches { into, probe, .. },
                ..
            }) if *into == matches => Some(probe),
            _ => None,
        })
    }

    /// The one pipeline that reads `result` as its source, if nothing else has anything of it.
    pub fn only_reader(&self, result: ResultId) -> Option<&Pipeline> {
        let reads = |source: &Source| match source {
            Source::Rows(id) | Source::Groups(id) | Source::Pairs(id) | Source::Entries(id, _) => {
                *id == result
            }
            Source::Scan(_) | Source::Picked { .. } | Source::One => false,
        };
        let mut readers = Vec::new();
        for step in &self.steps {
            match step {
                Step::Pipeline(pipeline) => {
                    if let Source::Picked { of, by } = &pipeline.source
                        && (reads(of) || *by == result)
                    {
                        return None;
                    }
                    let looked_up = |stage: &Stage| match stage {
                        Stage::Scalar(id) | Stage::Mark(id) => *id == result,
                        Stage::Probe(probe) | Stage::Expand(probe) => probe.index == result,
                        Stage::Filter(_) => false,
                    };
                    if pipeline.stages.iter().any(looked_up) {
                        return None;
                    }
                    if reads(&pipeline.source) {
                        readers.push(pipeline);
                    }
                }
                Step::Sort(sort) if sort.rows == result => return None,
                Step::Sort(_) => {}
            }
        }
        match readers.as_slice() {
            [reader] if self.output != result => Some(reader),
            _ => None,
        }
    }

    /// The scope of `pipeline` after its first `stages` stages.
    pub fn scope(&self, pipeline: &Pipeline, stages: usize) -> Vec<ResultColumn> {
        let mut scope = self.source_columns(&pipeline.source);
        for stage in &pipeline.stages[..stages] {
            match stage {
                Stage::Filter(_) | Stage::Mark(_) => {}
                Stage::Scalar(id) => scope.extend(self.results[*id].kind.columns().iter().map(
                    |c| ResultColumn {
                        nullable: true,
                        ..c.clone()
                    },
                )),
                Stage::Probe(probe) | Stage::Expand(probe) => match probe.kind {
                    ProbeKind::Inner => {
                        scope.extend_from_slice(self.results[probe.index].kind.columns())
                    }
                    ProbeKind::Left => {
                        scope.extend(self.results[probe.index].kind.columns().iter().map(|c| {
                            ResultColumn {
                                nullable: true,
                                ..c.clone()
                            }
                        }));
                    }
                    ProbeKind::Mark => scope.push(ResultColumn {
                        name: "mark".into(),
                        data_type: DataType::Boolean,
                        nullable: false,
                    }),
                    ProbeKind::Semi | ProbeKind::Anti | ProbeKind::NullAwareAnti => {}
                },
            }
        }
        scope
    }
}
