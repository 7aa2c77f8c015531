//! Pipelines between graph and text: what emission settles for each, and what kernels are written from.

use super::layout::ColumnLayout;
use super::program::SourceRows;
use super::results::{Borrowed, CollectedLayout, GroupsLayout, IndexLayout, JoinedMatches};
use super::scope::ScopeColumn;
use super::state::{BlockSearch, KernelState};
use super::value::Value;
use crate::graph::{ProbeKind, ResultId, TreeOptions};
use crate::pipeline::GroupProfile;

/// A pipeline ready to be written.
pub(in crate::codegen) struct EmittedPipeline {
    pub(in crate::codegen) state: KernelState,
    pub(in crate::codegen) source_rows: SourceRows,
    /// Upper bound of the source's rows.
    pub(in crate::codegen) bound: u64,
    /// The kernel is tree-shaped, and how it runs then.
    pub(in crate::codegen) tree: Option<TreeOptions>,
    /// Rows that one thread handles at a time: 8, 4, 2 or 1.
    pub(in crate::codegen) thread_rows: u32,
    /// Threads of a block.
    pub(in crate::codegen) block_threads: u32,
    /// Warps gather the rows that are left after so many steps, and go on with one a thread.
    pub(in crate::codegen) refill: Option<usize>,
    /// The rows at hand have places at the end of the result: `reserved + slot` (C++).
    pub(in crate::codegen) reserved: bool,
    /// Statements before the first step, at the head of each tile; they may use `row` and change `live`.
    pub(in crate::codegen) prologue: Vec<String>,
    pub(in crate::codegen) scope: Vec<ScopeColumn>,
    pub(in crate::codegen) steps: Vec<EmittedStep>,
    /// Columns that the sink's statements read.
    pub(in crate::codegen) sink_columns: Vec<usize>,
    /// What all threads of the block do before the sink's statements.
    pub(in crate::codegen) sink_searches: Vec<BlockSearch>,
    /// The sink's statements for one row.
    pub(in crate::codegen) sink_lines: Vec<String>,
    pub(in crate::codegen) sink: EmittedSink,
}

impl EmittedPipeline {
    /// Are some statements for one row, and others for as many as a thread holds?
    pub(in crate::codegen) fn rows_vary(&self) -> bool {
        self.refill.is_some() || self.sink.kept_groups().is_some()
    }

    /// Do the warps of a block come to the sink at different times?
    pub(in crate::codegen) fn warps_alone(&self) -> bool {
        self.tree.is_some() || self.refill.is_some()
    }
}

/// Tests that groups must pass to be of use, over their keys and finished calls.
#[derive(Clone)]
pub(in crate::codegen) struct KeptGroups {
    /// The columns of a group that a thread holds.
    pub(in crate::codegen) scope: Vec<ScopeColumn>,
    pub(in crate::codegen) tests: Vec<Test>,
}

/// A condition that rows must meet.
#[derive(Clone)]
pub(in crate::codegen) struct Test {
    pub(in crate::codegen) columns: Vec<usize>,
    /// What all threads of the block do before.
    pub(in crate::codegen) searches: Vec<BlockSearch>,
    pub(in crate::codegen) lines: Vec<String>,
    pub(in crate::codegen) passes: String,
}

/// One step of a pipeline.
pub(in crate::codegen) enum EmittedStep {
    Filter(Test),
    Probe(EmittedProbe),
    /// Every match of a row goes on: the kernel is tree-shaped.
    Expand(EmittedProbe),
    /// The entries of the pairs at hand are marked in this index.
    Mark(ResultId),
}

/// A probe of an index.
pub(in crate::codegen) struct EmittedProbe {
    /// Number in the kernel, for the names of its variables: `e{p}` entries, `h{p}` mask of hits, `first{p}`, `length{p}` ranges.
    pub(in crate::codegen) number: usize,
    pub(in crate::codegen) index: ResultId,
    pub(in crate::codegen) kind: ProbeKind,
    /// Scope columns of the keys.
    pub(in crate::codegen) columns: Vec<usize>,
    pub(in crate::codegen) lines: Vec<String>,
    /// C++ bool: can the key be in the index?
    pub(in crate::codegen) possible: String,
    /// C++ bool: no key is NULL.
    pub(in crate::codegen) known: String,
    /// C++ u64s: the dense code of a perfect index, or the packed words.
    pub(in crate::codegen) codes: Vec<String>,
    /// Sorted: the words of the last entry that may match; `codes` are those of the first.
    pub(in crate::codegen) last: Vec<String>,
    /// A row has a range of entries, not at most one.
    pub(in crate::codegen) ranges: bool,
    pub(in crate::codegen) residual: Option<Test>,
    /// First scope column of the payload, and how many.
    pub(in crate::codegen) payload: (usize, usize),
    /// The payload where only the residual sees it: these columns are not in the pipeline's scope.
    pub(in crate::codegen) hidden: Vec<ScopeColumn>,
    /// What an entry that matches gets a mark for, for each set; `None`: always.
    pub(in crate::codegen) marks: Vec<Option<Test>>,
}

/// Where rows end.
pub(in crate::codegen) enum EmittedSink {
    Rows {
        into: ResultId,
        values: Vec<Value>,
        /// Every row of the source is a row of the result, with the same number.
        in_place: bool,
        /// So many rows are enough (a C++ u64): the others are left out.
        enough: Option<String>,
    },
    Matches {
        into: ResultId,
        values: Vec<Value>,
        probe: usize,
        kind: ProbeKind,
        /// Nothing is looked up: the keys are stored.
        joined: Option<JoinedMatches>,
        /// By value.
        columns: Vec<ColumnLayout>,
        /// Rows stay where the scanned table has them.
        borrowed: Option<Borrowed>,
        /// Columns that are the key.
        key_aliases: Vec<usize>,
    },
    Aggregate {
        into: ResultId,
        layout: Box<GroupsLayout>,
        profile: GroupProfile,
        /// Rows of one group follow each other.
        clustered: bool,
        /// The first statements of the sink, which are all that the keys need.
        key_lines: usize,
        /// Groups that the kernel has whole are tested before they are written down.
        kept: Option<KeptGroups>,
    },
    /// Rows that are brought together by key before they are aggregated.
    Collect {
        into: ResultId,
        layout: Box<CollectedLayout>,
        /// C++ text of the packed key.
        key: String,
        values: Vec<Value>,
    },
    Build {
        into: ResultId,
        layout: Box<IndexLayout>,
        /// C++ bool: the row has a key that can match.
        has_key: Option<String>,
        codes: Vec<String>,
        values: Vec<Value>,
        keep_without_key: bool,
    },
    Discard,
}

impl EmittedStep {
    /// May it leave a row out?
    pub(in crate::codegen) fn drops(&self) -> bool {
        match self {
            Self::Probe(probe) => !matches!(probe.kind, ProbeKind::Left | ProbeKind::Mark),
            Self::Filter(_) | Self::Expand(_) => true,
            Self::Mark(_) => false,
        }
    }
}

impl EmittedSink {
    /// What groups are tested by before they are written down.
    pub(in crate::codegen) fn kept_groups(&self) -> Option<&KeptGroups> {
        match self {
            Self::Aggregate { kept, .. } => kept.as_ref(),
            _ => None,
        }
    }

    /// The result at whose end every row that comes gets a place.
    pub(in crate::codegen) fn appends_all(&self) -> Option<ResultId> {
        let (into, all) = match self {
            Self::Rows {
                into,
                in_place,
                enough,
                ..
            } => (into, !in_place && enough.is_none()),
            Self::Collect { into, .. } => (into, true),
            Self::Build {
                into,
                layout,
                has_key,
                keep_without_key,
                ..
            } => (
                into,
                !layout.is_direct() && (has_key.is_none() || *keep_without_key),
            ),
            Self::Matches { .. } | Self::Aggregate { .. } | Self::Discard => return None,
        };
        all.then_some(*into)
    }

    /// What lies in the scanned table of the result that is filled.
    pub(in crate::codegen) fn borrowed(&self) -> Option<(ResultId, &Borrowed)> {
        let (into, borrowed) = match self {
            Self::Matches { into, borrowed, .. } => (into, borrowed),
            Self::Collect { into, layout, .. } => (into, &layout.borrowed),
            Self::Build { into, layout, .. } => (into, &layout.borrowed),
            Self::Rows { .. } | Self::Aggregate { .. } | Self::Discard => return None,
        };
        borrowed.as_ref().map(|borrowed| (*into, borrowed))
    }

    /// The same when there is nothing to write beside it.
    pub(in crate::codegen) fn borrows(&self) -> Option<(ResultId, &Borrowed)> {
        self.borrowed().filter(|(_, borrowed)| borrowed.whole())
    }
}

/// What the sink does with one row.
pub(in crate::codegen) struct SinkStatements {
    pub(in crate::codegen) lines: Vec<String>,
    /// Scope columns that they read.
    pub(in crate::codegen) columns: Vec<usize>,
}

/// A pipeline up to its sink.
pub(in crate::codegen) struct Begun {
    pub(in crate::codegen) state: KernelState,
    pub(in crate::codegen) source_rows: SourceRows,
    /// Upper bound of the source's rows.
    pub(in crate::codegen) source_bound: u64,
    /// Upper bound of the rows.
    pub(in crate::codegen) bound: u64,
    pub(in crate::codegen) tree: Option<TreeOptions>,
    pub(in crate::codegen) prologue: Vec<String>,
    pub(in crate::codegen) scope: Vec<ScopeColumn>,
    pub(in crate::codegen) steps: Vec<EmittedStep>,
    /// Probes among the steps.
    pub(in crate::codegen) probes: usize,
    /// As in [`EmittedPipeline`].
    pub(in crate::codegen) refill: Option<usize>,
    pub(in crate::codegen) thread_rows: u32,
    /// Rows that one thread sees at most.
    pub(in crate::codegen) rows_a_thread: u64,
}

impl Begun {
    /// The pipeline with its sink.
    pub(in crate::codegen) fn ended(
        self,
        sink: EmittedSink,
        sink_lines: Vec<String>,
        sink_columns: Vec<usize>,
        block_threads: u32,
    ) -> EmittedPipeline {
        EmittedPipeline {
            state: self.state,
            source_rows: self.source_rows,
            bound: self.source_bound,
            tree: self.tree,
            thread_rows: self.thread_rows,
            block_threads,
            refill: self.refill,
            reserved: false,
            prologue: self.prologue,
            scope: self.scope,
            steps: self.steps,
            sink_columns,
            sink_searches: Vec::new(),
            sink_lines,
            sink,
        }
    }
}

/// A source, emitted.
pub(in crate::codegen) struct EmittedSource {
    pub(in crate::codegen) rows: SourceRows,
    /// Upper bound of the rows.
    pub(in crate::codegen) bound: u64,
    /// Rows that one thread handles at a time.
    pub(in crate::codegen) thread_rows: u32,
    /// Statements at the head of each tile.
    pub(in crate::codegen) prologue: Vec<String>,
    pub(in crate::codegen) scope: Vec<ScopeColumn>,
}
