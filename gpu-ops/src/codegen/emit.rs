//! A pipeline as statements: what each step computes, before any text of a kernel is written.
//!
//! Emission knows values, ranges and encodings; it asks the policy which data structure stands behind a
//! build or an aggregation, and it settles the layouts of results. [`super::kernel`] turns the outcome
//! into CUDA C++.

use super::borrow::{self, Borrowed};
use super::group_sizes;
use super::kernel::BLOCK_THREADS;
use super::keys::{dense_code, packed_words, probe_key};
use super::program::{
    CollectedLayout, ColumnLayout, GroupsLayout, IndexLayout, JoinedMatches, ResultLayout,
    SourceRows,
};
use super::scalar::{Emitter, KernelState};
use super::scope::{Access, Bases, ScopeColumn, Shape, layout_of};
use super::sinks::{aggregate_sink, build_sink, settle};
use super::sources;
use super::thread_rows::{held_rows, rows_a_thread};
use super::value::{CType, Value};
use crate::device::DeviceInfo;
use crate::error::{GpuError, Result};
use crate::expr::Expr;
use crate::graph::{
    Graph, IndexKind, Pipeline, Policy, Probe, ProbeKind, ResultId, ResultSpec, Sink, Source,
    Stage, Step, TreeOptions,
};

use crate::pipeline::{AggregateCall, GroupProfile};
use crate::tables::LoadedTable;

/// Threads of a block of a tree-shaped kernel: four warps, as in the paper.
const TREE_THREADS: u32 = 128;
/// Shared memory that its groups may take at most.
const TREE_GROUP_BYTES: usize = 24 << 10;

/// Rows of a thread that are written as vectors have this many bytes at most: they wait in registers.
const IN_PLACE_BYTES: u32 = 256;

/// What is known about a result once all that fills it has been emitted.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) layout: ResultLayout,
    /// Upper bound of its rows, groups or entries.
    pub(super) bound: u64,
}

/// What all pipelines of a program share during emission.
pub(super) struct Context<'a> {
    pub(super) graph: &'a Graph,
    pub(super) tables: &'a [LoadedTable],
    pub(super) policy: &'a dyn Policy,
    pub(super) device: &'a DeviceInfo,
    /// By result; `None` until it is complete.
    pub(super) known: Vec<Option<Known>>,
    pub(super) bases: Bases,
    pub(super) choices: Vec<String>,
    /// Results beyond those of the graph.
    pub(super) hidden: Vec<ResultSpec>,
}

impl Context<'_> {
    pub(super) fn known(&self, id: ResultId) -> Result<&Known> {
        self.known
            .get(id)
            .and_then(Option::as_ref)
            .ok_or_else(|| GpuError::Internal(format!("result {id} is read before it is complete")))
    }

    pub(super) fn index(&self, id: ResultId) -> Result<&IndexLayout> {
        match &self.known(id)?.layout {
            ResultLayout::Index(layout) => Ok(layout),
            _ => Err(GpuError::Internal(format!("result {id} is not an index"))),
        }
    }
}

/// A pipeline ready to be written.
pub(super) struct EmittedPipeline {
    pub(super) state: KernelState,
    pub(super) source_rows: SourceRows,
    /// Upper bound of the source's rows.
    pub(super) bound: u64,
    /// The kernel is tree-shaped, and how it runs then.
    pub(super) tree: Option<TreeOptions>,
    /// Rows that one thread handles at a time: 8, 4, 2 or 1.
    pub(super) thread_rows: u32,
    /// Threads of a block.
    pub(super) block_threads: u32,
    /// Statements before the first step, at the head of each tile; they may use `row` and change `live`.
    pub(super) prologue: Vec<String>,
    pub(super) scope: Vec<ScopeColumn>,
    pub(super) steps: Vec<EmittedStep>,
    /// Columns that the sink's statements read.
    pub(super) sink_columns: Vec<usize>,
    /// The sink's statements for one row.
    pub(super) sink_lines: Vec<String>,
    pub(super) sink: EmittedSink,
}

/// A condition that rows must meet.
pub(super) struct Test {
    pub(super) columns: Vec<usize>,
    pub(super) lines: Vec<String>,
    pub(super) passes: String,
}

/// One step of a pipeline.
pub(super) enum EmittedStep {
    Filter(Test),
    Probe(EmittedProbe),
    /// Every match of a row goes on: the kernel is tree-shaped.
    Expand(EmittedProbe),
}

/// A probe of an index.
pub(super) struct EmittedProbe {
    /// Number in the kernel, for the names of its variables: `e{p}` entries, `h{p}` mask of hits, `first{p}`, `length{p}` ranges.
    pub(super) number: usize,
    pub(super) index: ResultId,
    pub(super) kind: ProbeKind,
    /// Scope columns of the keys.
    pub(super) columns: Vec<usize>,
    pub(super) lines: Vec<String>,
    /// C++ bool: can the key be in the index?
    pub(super) possible: String,
    /// C++ bool: no key is NULL.
    pub(super) known: String,
    /// C++ u64s: the dense code of a perfect index, or the packed words.
    pub(super) codes: Vec<String>,
    /// A row has a range of entries, not at most one.
    pub(super) ranges: bool,
    pub(super) residual: Option<Test>,
    /// First scope column of the payload, and how many.
    pub(super) payload: (usize, usize),
    /// The payload where only the residual sees it: these columns are not in the pipeline's scope.
    pub(super) hidden: Vec<ScopeColumn>,
    pub(super) mark_entries: bool,
}

/// Where rows end.
pub(super) enum EmittedSink {
    Rows {
        into: ResultId,
        values: Vec<Value>,
        /// Every row of the source is a row of the result, with the same number.
        in_place: bool,
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
        twins: Vec<usize>,
    },
    Aggregate {
        into: ResultId,
        layout: Box<GroupsLayout>,
        profile: GroupProfile,
        /// Rows of one group follow each other.
        clustered: bool,
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
        layout: IndexLayout,
        /// C++ bool: the row has a key that can match.
        has_key: Option<String>,
        codes: Vec<String>,
        values: Vec<Value>,
        keep_without_key: bool,
    },
    Discard,
}

impl EmittedSink {
    /// What lies in the scanned table of the result that is filled.
    pub(super) fn borrowed(&self) -> Option<(ResultId, &Borrowed)> {
        let (into, borrowed) = match self {
            Self::Matches { into, borrowed, .. } => (into, borrowed),
            Self::Collect { into, layout, .. } => (into, &layout.borrowed),
            Self::Build { into, layout, .. } => (into, &layout.borrowed),
            Self::Rows { .. } | Self::Aggregate { .. } | Self::Discard => return None,
        };
        borrowed.as_ref().map(|borrowed| (*into, borrowed))
    }

    /// The same when there is nothing to write beside it.
    pub(super) fn borrows(&self) -> Option<(ResultId, &Borrowed)> {
        self.borrowed().filter(|(_, borrowed)| borrowed.whole())
    }
}

/// A pipeline up to its sink.
pub(super) struct Begun {
    pub(super) state: KernelState,
    pub(super) source_rows: SourceRows,
    /// Upper bound of the source's rows.
    pub(super) source_bound: u64,
    /// Upper bound of the rows.
    pub(super) bound: u64,
    pub(super) tree: Option<TreeOptions>,
    pub(super) prologue: Vec<String>,
    pub(super) scope: Vec<ScopeColumn>,
    pub(super) steps: Vec<EmittedStep>,
    /// Probes among the steps.
    pub(super) probes: usize,
    pub(super) thread_rows: u32,
    /// Rows that one thread sees at most.
    pub(super) rows_a_thread: u64,
}

impl Begun {
    /// The pipeline with its sink.
    pub(super) fn ended(
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
            prologue: self.prologue,
            scope: self.scope,
            steps: self.steps,
            sink_columns,
            sink_lines,
            sink,
        }
    }
}

/// Emit the source and the stages of a pipeline.
pub(super) fn begin(context: &mut Context<'_>, pipeline: &Pipeline) -> Result<Begun> {
    let mut state = KernelState::default();
    state.bases = context.bases.clone();
    let source = sources::source(context, &pipeline.source, &mut state)?;
    let mut scope = source.scope;
    let mut steps = Vec::new();
    let mut probes = 0;
    let mut loops = false;
    let mut bound = source.bound;
    let mut tree = None;
    for stage in &pipeline.stages {
        match stage {
            Stage::Filter(conjuncts) => {
                for group in group_conjuncts(conjuncts) {
                    steps.push(EmittedStep::Filter(test(&group, &scope, &mut state)?));
                }
            }
            Stage::Scalar(result) => scalar(context, *result, &mut scope)?,
            Stage::Probe(probe) => {
                let emitted = emit_probe(context, probe, probes, &mut scope, &mut state)?;
                loops |= emitted.ranges;
                probes += 1;
                steps.push(EmittedStep::Probe(emitted));
            }
            Stage::Expand(probe) => {
                let mut emitted = emit_probe(context, probe, probes, &mut scope, &mut state)?;
                if !matches!(probe.kind, ProbeKind::Inner | ProbeKind::Left)
                    || probe.kind == ProbeKind::Left && !probe.residual.is_empty()
                {
                    return Err(GpuError::Internal("an expansion by this probe".into()));
                }
                emitted.ranges = true;
                probes += 1;
                steps.push(EmittedStep::Expand(emitted));
                let matches = context.known(probe.index)?.bound.max(1);
                bound = bound.saturating_mul(matches);
                tree = Some(context.graph.tree);
            }
        }
    }
    // A loop over matches is unrolled once a row of the thread: one row keeps the kernel small and even.
    // Strings are walked one a thread as well: neighbouring threads then share the sectors they touch.
    // Look-ups wait for memory whether a thread has four rows or eight, and code for four is compiled in half the time.
    // The nodes of a tree come one at a time as well.
    let thread_rows = match (loops || state.text || tree.is_some(), probes > 0) {
        (true, _) => 1,
        (false, true) => source.thread_rows.min(4),
        (false, false) => source.thread_rows,
    };
    Ok(Begun {
        rows_a_thread: match tree {
            // Work moves between threads.
            Some(_) => bound,
            None => rows_a_thread(context, source.bound, thread_rows),
        },
        state,
        source_rows: source.rows,
        source_bound: source.bound,
        bound,
        tree,
        prologue: source.prologue,
        scope,
        steps,
        probes,
        thread_rows,
    })
}

/// Emit one pipeline.
pub(super) fn pipeline(context: &mut Context<'_>, pipeline: &Pipeline) -> Result<EmittedPipeline> {
    let mut begun = begin(context, pipeline)?;
    let bound = begun.bound;
    let (state, scope, steps) = (&mut begun.state, &mut begun.scope, &mut begun.steps);
    let mut sink_lines = Vec::new();
    let mut sink_columns = Vec::new();
    // Queues take shared memory as well: smaller blocks, and less for groups.
    let tree = begun.tree.is_some();
    let mut device = context.device.clone();
    if tree {
        device.shared_memory_per_block = device.shared_memory_per_block.min(TREE_GROUP_BYTES);
    }
    let mut block_threads = if tree { TREE_THREADS } else { BLOCK_THREADS };
    let sink = match &pipeline.sink {
        Sink::Rows { into, columns } => {
            let mut emitter = Emitter::new(scope, state);
            let values = emit_all(&mut emitter, columns)?;
            sink_lines = std::mem::take(&mut emitter.lines);
            sink_columns = columns_of(columns.iter());
            let widths = values.iter().zip(columns);
            let bytes = widths.map(|(v, c)| u32::from(layout_of(v, &c.data_type).width));
            let few = bytes.sum::<u32>() * begun.thread_rows <= IN_PLACE_BYTES;
            EmittedSink::Rows {
                into: *into,
                values,
                in_place: few && steps.is_empty() && keeps_all(context.graph, pipeline, *into),
            }
        }
        Sink::Matches {
            into,
            probe,
            columns,
        } => {
            let kept = scope.len();
            let mut emitted = emit_probe(context, probe, begun.probes, scope, state)?;
            let joined = context
                .index(probe.index)?
                .join_keys
                .map(|keys| JoinedMatches {
                    keys,
                    kind: probe.kind,
                    marks: probe.mark_entries,
                });
            // Whatever the index, pairs are enumerated from ranges.
            emitted.ranges = joined.is_none();
            scope.truncate(kept);
            emitted.payload = (kept, 0);
            let number = emitted.number;
            // Rows that cannot match are left out where they are not wanted.
            let possible = emitted.possible == "true";
            let left_out = matches!(probe.kind, ProbeKind::Inner | ProbeKind::Semi);
            let mut scan =
                borrow::bare_scan(begun.source_rows, steps.len()).filter(|_| borrow::lends(scope));
            let (mut key, mut twin_of) = (None, None);
            if let Some(JoinedMatches { keys, .. }) = joined {
                let plans = &context.index(probe.index)?.keys;
                let limit = (!possible).then(|| borrow::code_limit(&keys));
                key = borrow::lent_key(scope, &probe.keys, plans, keys.width, limit);
                // Rows that cannot match are left out where that is worth a copy of the others.
                let stay = possible
                    || !left_out
                    || key.is_some() && borrow::mostly_within(scope, &probe.keys, plans);
                scan = scan.filter(|_| stay);
                if (possible || left_out) && keys.join.transforms() {
                    twin_of = Some((plans, keys.width));
                }
            } else {
                scan = None;
            }
            key = key.filter(|_| scan.is_some());
            let mut emitter = Emitter::new(scope, state);
            let mut kept = borrow::keep(&mut emitter, columns, scan.is_some())?;
            sink_lines = std::mem::take(&mut emitter.lines);
            sink_columns = kept.read;
            let twins = match twin_of {
                Some((plans, width)) => {
                    borrow::twins(columns, &mut kept.layouts, &probe.keys, plans, width)
                }
                None => vec![],
            };
            let borrowed = scan.map(|scan| Borrowed {
                scan,
                key,
                columns: kept.borrowed,
            });
            if borrowed.as_ref().is_none_or(|b| b.key.is_none()) {
                steps.push(EmittedStep::Probe(emitted));
            }
            EmittedSink::Matches {
                into: *into,
                values: kept.values,
                probe: number,
                kind: probe.kind,
                joined,
                columns: kept.layouts,
                borrowed,
                twins,
            }
        }
        Sink::Aggregate { into, aggregate } => {
            let mut emitter = Emitter::new(scope, state);
            let in_place = borrow::bare_scan(begun.source_rows, steps.len())
                .is_some_and(|_| borrow::lends(scope));
            let sink = aggregate_sink(
                context,
                &mut emitter,
                *into,
                aggregate,
                &device,
                &pipeline.source,
                (bound, begun.rows_a_thread, in_place),
            )?;
            sink_lines = std::mem::take(&mut emitter.lines);
            if !tree {
                block_threads = group_sizes::block_threads(&sink, context.device);
            }
            sink_columns = columns_of(
                aggregate
                    .keys
                    .iter()
                    .chain(aggregate.calls.iter().flat_map(read_by_call)),
            );
            begun.thread_rows = held_rows(scope, &sink_columns, begun.thread_rows);
            sink
        }
        Sink::Build { into, build } => {
            let mut emitter = Emitter::new(scope, state);
            let scan =
                borrow::bare_scan(begun.source_rows, steps.len()).filter(|_| borrow::lends(scope));
            let (sink, read) = build_sink(context, &mut emitter, *into, build, bound, scan)?;
            sink_lines = std::mem::take(&mut emitter.lines);
            sink_columns = read;
            sink
        }
        Sink::Discard => EmittedSink::Discard,
    };
    settle(context, &sink, bound)?;
    Ok(begun.ended(sink, sink_lines, sink_columns, block_threads))
}

/// Is a pipeline without steps the only one that fills `into`, from a source that leaves out none of its rows?
fn keeps_all(graph: &Graph, pipeline: &Pipeline, into: ResultId) -> bool {
    let fills = |step: &&Step| matches!(step, Step::Pipeline(Pipeline { sink: Sink::Rows { into: of, .. }, .. }) if *of == into);
    let whole = match pipeline.source {
        Source::Scan(_) | Source::Rows(_) => true,
        Source::Pairs(_) => !graph.parts.allowed(),
        _ => false,
    };
    whole && graph.steps.iter().filter(fills).count() == 1
}

/// The expressions of a call.
pub(super) fn read_by_call(call: &AggregateCall) -> impl Iterator<Item = &Expr> {
    call.argument.iter().chain(&call.filter)
}

pub(super) fn emit_all(emitter: &mut Emitter<'_>, columns: &[Expr]) -> Result<Vec<Value>> {
    columns.iter().map(|column| emitter.emit(column)).collect()
}

/// Adjacent conjuncts over the same columns are tested together.
fn group_conjuncts(conjuncts: &[Expr]) -> Vec<Vec<&Expr>> {
    let mut groups: Vec<(Vec<usize>, Vec<&Expr>)> = Vec::new();
    for conjunct in conjuncts {
        let needs = columns_of([conjunct]);
        match groups.last_mut() {
            Some((have, list)) if needs.iter().all(|c| have.contains(c)) => list.push(conjunct),
            _ => groups.push((needs, vec![conjunct])),
        }
    }
    groups.into_iter().map(|(_, list)| list).collect()
}

/// Scope columns that the expressions read, ascending.
pub(super) fn columns_of<'e>(expressions: impl IntoIterator<Item = &'e Expr>) -> Vec<usize> {
    let mut needs = Vec::new();
    for expression in expressions {
        expression.for_each_column(&mut |c| needs.push(c));
    }
    needs.sort_unstable();
    needs.dedup();
    needs
}

/// The conjuncts as one test of the row at hand.
fn test(conjuncts: &[&Expr], scope: &[ScopeColumn], state: &mut KernelState) -> Result<Test> {
    let mut emitter = Emitter::new(scope, state);
    let mut tests = Vec::new();
    for conjunct in conjuncts {
        let value = emitter.emit(conjunct)?;
        if value.valid.as_deref() == Some("false") {
            tests.push("false".to_string());
            continue;
        }
        if value.c_type != CType::Bool {
            return Err(GpuError::Internal("a filter that is not boolean".into()));
        }
        tests.push(emitter.is_true(&value));
    }
    Ok(Test {
        columns: columns_of(conjuncts.iter().copied()),
        lines: emitter.lines,
        passes: if tests.is_empty() {
            "true".into()
        } else {
            tests.join(" && ")
        },
    })
}

/// Append the columns of a scalar subquery's result.
fn scalar(context: &Context<'_>, result: ResultId, scope: &mut Vec<ScopeColumn>) -> Result<()> {
    let ResultLayout::Rows(columns) = &context.known(result)?.layout else {
        return Err(GpuError::Internal(
            "a scalar subquery that is not rows".into(),
        ));
    };
    for (column, layout) in columns.iter().enumerate() {
        scope.push(ScopeColumn {
            shape: Shape::Stored(layout.clone()),
            access: Access::Broadcast { result, column },
            nullable: true,
        });
    }
    Ok(())
}

fn emit_probe(
    context: &Context<'_>,
    probe: &Probe,
    number: usize,
    scope: &mut Vec<ScopeColumn>,
    state: &mut KernelState,
) -> Result<EmittedProbe> {
    let layout = context.index(probe.index)?;
    if layout.keys.len() != probe.keys.len() {
        return Err(GpuError::Internal(
            "a probe with another number of keys than its index".into(),
        ));
    }
    let mut emitter = Emitter::new(scope, state);
    let mut possible = Vec::new();
    let mut known = Vec::new();
    let mut codes = Vec::new();
    for (key, built) in probe.keys.iter().zip(&layout.keys) {
        let value = emitter.emit(key)?;
        known.extend(value.valid.clone());
        let probing = probe_key(&mut emitter, value, built, layout.null_equal)?;
        possible.extend(probing.possible);
        codes.push(probing.code);
    }
    let lines = std::mem::take(&mut emitter.lines);
    let codes = match layout.kind {
        IndexKind::Perfect => vec![dense_code(&layout.keys, &codes)],
        IndexKind::Hash if layout.keys.is_empty() => vec![],
        IndexKind::Hash | IndexKind::Materialized(_) => {
            packed_words(&layout.keys, &codes, layout.key_words)
        }
    };
    let possible = if possible.is_empty() {
        "true".to_string()
    } else {
        possible.join(" && ")
    };
    let known = if known.is_empty() {
        "true".to_string()
    } else {
        known.join(" && ")
    };
    let columns = columns_of(&probe.keys);
    let existence_only = matches!(
        probe.kind,
        ProbeKind::Semi | ProbeKind::Anti | ProbeKind::Mark | ProbeKind::NullAwareAnti
    ) && probe.residual.is_empty()
        && !probe.mark_entries;
    let ranges = !layout.unique && !layout.existence && !existence_only;

    // The payload follows the scope while the residual is tested, and stays for Inner and Left.
    let first = scope.len();
    let mask = format!("h{number}");
    let outer = probe.kind == ProbeKind::Left;
    for (column, stored) in layout.columns.iter().enumerate() {
        scope.push(ScopeColumn {
            shape: Shape::Stored(stored.clone()),
            access: Access::Gather {
                result: probe.index,
                column,
                entry: format!("e{number}"),
                mask: mask.clone(),
            },
            nullable: stored.nullable || outer,
        });
    }
    let payload = (first, layout.columns.len());
    let residual = if probe.residual.is_empty() {
        None
    } else {
        let conjuncts: Vec<&Expr> = probe.residual.iter().collect();
        Some(test(&conjuncts, scope, state)?)
    };
    let mut hidden = Vec::new();
    match probe.kind {
        ProbeKind::Inner | ProbeKind::Left => {}
        ProbeKind::Mark => {
            hidden = scope.split_off(first);
            scope.push(ScopeColumn {
                shape: Shape::Mask(mask),
                access: Access::None,
                nullable: false,
            });
        }
        _ => hidden = scope.split_off(first),
    }
    Ok(EmittedProbe {
        hidden,
        number,
        index: probe.index,
        kind: probe.kind,
        columns,
        lines,
        possible,
        known,
        codes,
        ranges,
        residual,
        payload,
        mark_entries: probe.mark_entries,
    })
}
