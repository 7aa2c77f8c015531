//! Lowering of relational algebra to a graph of pipelines.
//!
//! Rows stream through filters, projections and probes of unique indexes. A pipeline ends where rows must wait for
//! all others: at the build side of a join, at groups, sorts and unions, and where a row can have many matches (they
//! are counted first, then enumerated).
//!
//! Projections are substituted into the expressions that read them, so only needed columns are ever materialised.

mod band;
mod build;
mod join;
mod lists;
mod marks;
mod materialize;
mod outer;
mod picked;
mod root;
mod semi;
mod side;
mod sideways;
mod verify_pairs;
mod wide_keys;
mod window;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use warpline_gpu::expr::Expr;
use warpline_gpu::graph::{
    Build, Graph, Parts, Pipeline, ResultColumn, ResultId, ResultKind, ResultSpec, RowsLeft, Sink,
    Sort, SortKey, Source, Stage, Step,
};
use warpline_gpu::machine::Machine;
use warpline_gpu::pipeline::{Aggregate, ScanSource};

use crate::choose::tree::TreeChoice;
use crate::config::{JoinSetting, LateColumns, RangeJoins};
use crate::reason::{Reason, refuse};
use crate::rel::convert::in_order;
use crate::rel::expr::{columns, substitute, substitute_all};
use crate::rel::{Rel, RelKind, RelRef};
use crate::stats::Estimator;
use picked::FirstOf;

/// Positions of columns.
type Columns = BTreeSet<usize>;

/// Maps column `i` of a `Scan` to the scan that serves it and the column of that scan.
type ScanColumn<'a> = dyn Fn(&RelKind, usize) -> Option<(usize, usize)> + 'a;

/// The input of lowering.
pub struct Lowering<'a> {
    /// The tables to scan.
    pub scans: &'a [ScanSource],
    /// Which scan serves a table, and the position of a column among the scan's.
    pub scan_column: &'a ScanColumn<'a>,
    /// Cardinalities.
    pub estimator: &'a Estimator<'a>,
    /// Builds that are known to have duplicate keys.
    pub duplicates: &'a HashSet<String>,
    /// The setting `warpline.join`.
    pub join: JoinSetting,
    /// The setting `warpline.range_joins`.
    pub range_joins: RangeJoins,
    /// The setting `warpline.late_columns`.
    pub late_columns: LateColumns,
    /// The device's constants, for prices.
    pub machine: &'a Machine,
    /// How rows with many matches are processed where an index is probed.
    pub shape: TreeChoice,
    /// Indexes over whole tables are kept.
    pub keep_indexes: bool,
    /// Whether materialised joins run in parts.
    pub parts: Parts,
    /// Device memory for the state of one join, in bytes.
    pub join_room: f64,
}

impl Lowering<'_> {
    /// The graph that computes `rel`, whose columns are those of `schema`.
    ///
    /// # Errors
    /// The [`Reason`] why there is none, e.g. an expression that becomes too large for a kernel once projections are
    /// substituted into it.
    pub fn graph(&self, rel: &RelRef, schema: SchemaRef) -> Result<Graph, Reason> {
        let mut lowerer = Lowerer::new(self, Vec::new());
        let mut output = lowerer.root(rel)?;
        let wider = lowerer.wider_builds();
        if !wider.is_empty() {
            lowerer = Lowerer::new(self, wider);
            output = lowerer.root(rel)?;
        }
        let lists = lowerer.output_lists(rel)?;
        let mut graph = Graph {
            scans: self.scans.to_vec(),
            results: lowerer.results,
            steps: lowerer.steps,
            output,
            schema,
            tree: self.shape.options,
            keep_indexes: self.keep_indexes,
            parts: match (self.parts, lowerer.exceeds_room) {
                _ if !lists.is_empty() => Parts::Never,
                (Parts::Never, true) => Parts::Large,
                (parts, _) => parts,
            },
            group_room: None,
            lists,
        };
        sideways::pass_filters(&mut graph);
        Ok(graph)
    }
}

/// The graph under construction.
struct Lowerer<'a> {
    input: &'a Lowering<'a>,
    results: Vec<ResultSpec>,
    steps: Vec<Step>,
    /// Relations that are computed already, by address; held so that no other relation takes the address.
    shared: HashMap<*const Rel, (RelRef, ResultId)>,
    /// Indexes that are built already.
    builds: Vec<build::Built>,
    /// What some of them carry beyond what a join asks for.
    wider: Vec<build::Wider>,
    /// Rows of windows of which lists are made: the number of a list, its rows, and their column with the values.
    lists: HashMap<usize, (ResultId, usize)>,
    /// How often each name is in use.
    names: HashMap<String, usize>,
    /// The state of some join exceeds its share of device memory.
    exceeds_room: bool,
}

/// A pipeline that has no sink yet.
#[derive(Debug, Clone)]
struct OpenPipeline {
    source: Source,
    stages: Vec<Stage>,
    /// Rows that are left on the way.
    left: Vec<RowsLeft>,
    /// Each column of the relation over the scope; columns that no consumer reads refer to nothing.
    columns: Vec<Expr>,
    /// Columns of the scope.
    width: usize,
}

impl OpenPipeline {
    /// All columns of a result, in its order.
    fn of_result(source: Source, columns: &[ResultColumn]) -> Self {
        Self {
            source,
            stages: vec![],
            left: vec![],
            columns: scope(columns, 0),
            width: columns.len(),
        }
    }

    /// Note that about so many rows come so far.
    fn note(&mut self, rows: u64) {
        let stages = self.stages.len();
        match self.left.last_mut() {
            Some(last) if last.stages == stages => last.rows = rows,
            _ if stages == 0 => {}
            _ => self.left.push(RowsLeft { stages, rows }),
        }
    }

    fn filter(&mut self, conjuncts: Vec<Expr>) {
        if conjuncts.is_empty() {
            return;
        }
        if let Some(Stage::Filter(before)) = self.stages.last_mut() {
            before.extend(conjuncts);
            *before = in_order(std::mem::take(before));
        } else {
            self.stages.push(Stage::Filter(in_order(conjuncts)));
        }
    }
}

/// References to columns whose scope begins at `at`.
fn scope(columns: &[ResultColumn], at: usize) -> Vec<Expr> {
    columns
        .iter()
        .enumerate()
        .map(|(i, c)| Expr::column(at + i, c.data_type.clone(), c.nullable))
        .collect()
}

/// Stands for a column that no consumer reads.
fn unused(column: &ResultColumn) -> Expr {
    Expr::column(usize::MAX, column.data_type.clone(), column.nullable)
}

fn read_by<'a>(exprs: impl IntoIterator<Item = &'a Expr>) -> Columns {
    exprs.into_iter().flat_map(columns).collect()
}

impl<'a> Lowerer<'a> {
    fn new(input: &'a Lowering<'a>, wider: Vec<build::Wider>) -> Self {
        Self {
            input,
            results: Vec::new(),
            steps: Vec::new(),
            shared: HashMap::new(),
            builds: Vec::new(),
            wider,
            lists: HashMap::new(),
            names: HashMap::new(),
            exceeds_room: false,
        }
    }
}

impl Lowerer<'_> {
    fn rows(&self, rel: &RelRef) -> u64 {
        self.input.estimator.rows(rel).min(1e18) as u64
    }

    fn result(&mut self, kind: ResultKind, estimate: u64, name: String) -> ResultId {
        self.result_of(estimate, kind, estimate, name)
    }

    /// A result of `estimate` rows, made from `input` rows.
    fn result_of(&mut self, input: u64, kind: ResultKind, estimate: u64, name: String) -> ResultId {
        self.results.push(ResultSpec {
            kind,
            estimate,
            input,
            enough: None,
            name,
        });
        self.results.len() - 1
    }

    /// `name`, made unique by a number.
    fn unique_name(&mut self, name: String) -> String {
        let count = self.names.entry(name.clone()).or_default();
        *count += 1;
        if *count == 1 {
            name
        } else {
            format!("{name} #{count}")
        }
    }

    fn close(&mut self, open: OpenPipeline, sink: Sink) {
        self.steps.push(Step::Pipeline(Pipeline {
            source: open.source,
            stages: open.stages,
            left: open.left,
            sink,
        }));
    }

    /// The pipeline that yields the rows of `rel` with the columns `needed`.
    fn stream(&mut self, rel: &RelRef, needed: &Columns) -> Result<OpenPipeline, Reason> {
        let mut open = self.stream_of(rel, needed)?;
        open.note(self.rows(rel));
        Ok(open)
    }

    fn stream_of(&mut self, rel: &RelRef, needed: &Columns) -> Result<OpenPipeline, Reason> {
        match &rel.kind {
            RelKind::Scan { columns, .. } => self.scan(rel, columns.len()),
            RelKind::One => Ok(OpenPipeline {
                source: Source::One,
                stages: vec![],
                left: vec![],
                columns: vec![],
                width: 0,
            }),
            RelKind::Filter { input, conjuncts } => {
                if let Some(banded) = self.filtered_band(rel, input, (conjuncts, needed)) {
                    return self.join_by_band(rel, &banded, needed);
                }
                let mut below = needed.clone();
                below.extend(read_by(conjuncts));
                let mut open = self.stream(input, &below)?;
                let conjuncts = substitute_all(conjuncts, &open.columns)?;
                open.filter(conjuncts);
                Ok(open)
            }
            RelKind::Project { input, exprs } => {
                let below = read_by(needed.iter().filter_map(|i| exprs.get(*i)));
                let mut open = self.stream(input, &below)?;
                open.columns = exprs
                    .iter()
                    .enumerate()
                    .map(|(i, e)| {
                        if needed.contains(&i) {
                            substitute(e, &open.columns)
                        } else {
                            Ok(unused(&rel.columns[i]))
                        }
                    })
                    .collect::<Result<_, _>>()?;
                Ok(open)
            }
            RelKind::Join(join) => self.join(rel, join, needed),
            RelKind::Aggregate { input, aggregate } => {
                let groups = self.aggregate(rel, input, aggregate)?;
                Ok(OpenPipeline::of_result(
                    Source::Groups(groups),
                    &rel.columns,
                ))
            }
            RelKind::Sort { .. } => {
                let sorted = self.sorted(rel)?;
                Ok(OpenPipeline::of_result(Source::Rows(sorted), &rel.columns))
            }
            RelKind::Window { .. } => {
                let rows = self.window(rel)?;
                Ok(OpenPipeline::of_result(Source::Rows(rows), &rel.columns))
            }
            RelKind::Union(_) => {
                let rows = self.materialize(rel)?;
                Ok(OpenPipeline::of_result(Source::Rows(rows), &rel.columns))
            }
            RelKind::Scalar { input, subquery } => {
                let width = input.columns.len();
                let below = needed.iter().copied().filter(|c| *c < width).collect();
                let row = self.materialize(subquery)?;
                let mut open = self.stream(input, &below)?;
                open.stages.push(Stage::Scalar(row));
                let beside: Vec<_> = rel.columns[width..].to_vec();
                open.columns.extend(scope(&beside, open.width));
                open.width += subquery.columns.len();
                Ok(open)
            }
        }
    }

    fn scan(&mut self, rel: &RelRef, width: usize) -> Result<OpenPipeline, Reason> {
        let mut number = None;
        let mut found = Vec::with_capacity(width);
        for i in 0..width {
            let Some((scan, place)) = (self.input.scan_column)(&rel.kind, i) else {
                return refuse("a table that the fragment does not scan");
            };
            number = Some(scan);
            let column = &rel.columns[i];
            found.push(Expr::column(
                place,
                column.data_type.clone(),
                column.nullable,
            ));
        }
        let scan = match number {
            Some(scan) => scan,
            // A table of which only the number of rows counts.
            None => match (self.input.scan_column)(&rel.kind, usize::MAX) {
                Some((scan, _)) => scan,
                None => return refuse("a table that the fragment does not scan"),
            },
        };
        Ok(OpenPipeline {
            source: Source::Scan(scan),
            stages: vec![],
            left: vec![],
            columns: found,
            width: self.input.scans[scan].columns.len(),
        })
    }

    fn aggregate(
        &mut self,
        rel: &RelRef,
        input: &RelRef,
        aggregate: &Aggregate,
    ) -> Result<ResultId, Reason> {
        if let Some((_, id)) = self.shared.get(&Arc::as_ptr(rel)) {
            return Ok(*id);
        }
        let arguments = aggregate
            .calls
            .iter()
            .flat_map(|c| c.argument.iter().chain(&c.filter));
        let needed = read_by(aggregate.keys.iter().chain(arguments));
        let open = self.stream(input, &needed)?;
        let within =
            |e: &Option<Expr>| e.as_ref().map(|e| substitute(e, &open.columns)).transpose();
        let keys = substitute_all(&aggregate.keys, &open.columns)?;
        let mut calls = Vec::with_capacity(aggregate.calls.len());
        for call in &aggregate.calls {
            let mut lowered = call.clone();
            lowered.argument = within(&call.argument)?;
            lowered.filter = within(&call.filter)?;
            calls.push(lowered);
        }
        let name = self.unique_name(rel.label());
        let estimate = self.rows(rel);
        let kind = ResultKind::Groups(rel.columns.clone());
        let into = self.result_of(self.rows(input), kind, estimate, name);
        self.close(
            open,
            Sink::Aggregate {
                into,
                aggregate: Aggregate { keys, calls },
            },
        );
        self.shared
            .insert(Arc::as_ptr(rel), (Arc::clone(rel), into));
        Ok(into)
    }

    /// All rows and columns of `rel` in a `Rows` or `Sorted` result, computed once.
    fn materialize(&mut self, rel: &RelRef) -> Result<ResultId, Reason> {
        if let Some((_, id)) = self.shared.get(&Arc::as_ptr(rel))
            && !matches!(rel.kind, RelKind::Aggregate { .. })
        {
            return Ok(*id);
        }
        if let RelKind::Sort { .. } = rel.kind {
            return self.sorted(rel);
        }
        let name = self.unique_name(rel.label());
        let estimate = self.rows(rel);
        let into = self.result(ResultKind::Rows(rel.columns.clone()), estimate, name);
        match &rel.kind {
            RelKind::Union(inputs) => {
                for input in inputs {
                    self.append(input, into)?;
                }
            }
            _ => self.append(rel, into)?,
        }
        if !matches!(rel.kind, RelKind::Aggregate { .. }) {
            self.shared
                .insert(Arc::as_ptr(rel), (Arc::clone(rel), into));
        }
        Ok(into)
    }

    /// Append all rows of `rel` to a `Rows` result.
    fn append(&mut self, rel: &RelRef, into: ResultId) -> Result<(), Reason> {
        // A union of unions appends to one result.
        if let RelKind::Union(inputs) = &rel.kind {
            return inputs.iter().try_for_each(|input| self.append(input, into));
        }
        let open = self.stream(rel, &(0..rel.columns.len()).collect())?;
        let columns = open.columns.clone();
        self.close(open, Sink::Rows { into, columns });
        Ok(())
    }

    fn sorted(&mut self, rel: &RelRef) -> Result<ResultId, Reason> {
        if let Some((_, id)) = self.shared.get(&Arc::as_ptr(rel)) {
            return Ok(*id);
        }
        let RelKind::Sort {
            input,
            keys,
            skip,
            fetch,
        } = &rel.kind
        else {
            return refuse("an order that is none");
        };
        if let Some(first) = FirstOf::new(keys, *skip, *fetch)
            && !self.shared.contains_key(&Arc::as_ptr(input))
            && let Some(into) = self.first_rows(input, &input.all_columns(), &rel.columns, first)?
        {
            self.shared
                .insert(Arc::as_ptr(rel), (Arc::clone(rel), into));
            return Ok(into);
        }
        let rows = self.unsorted_rows(input, enough(keys, *skip, *fetch))?;
        let name = self.unique_name(format!("sorted {}", rel.label()));
        let estimate = self.rows(rel);
        let into = self.result(ResultKind::Sorted(rel.columns.clone()), estimate, name);
        self.steps.push(Step::Sort(Sort {
            rows,
            keys: keys.clone(),
            skip: *skip,
            fetch: *fetch,
            window: None,
            into,
        }));
        self.shared
            .insert(Arc::as_ptr(rel), (Arc::clone(rel), into));
        Ok(into)
    }

    /// `rel`, or as many of its rows as are enough, in a `Rows` result, never in a `Sorted` one.
    fn unsorted_rows(&mut self, rel: &RelRef, enough: Option<u64>) -> Result<ResultId, Reason> {
        let made = self.shared.contains_key(&Arc::as_ptr(rel));
        if !matches!(rel.kind, RelKind::Sort { .. }) && (enough.is_none() || made) {
            return self.materialize(rel);
        }
        let name = self.unique_name(rel.label());
        let estimate = self.rows(rel);
        let into = self.result(ResultKind::Rows(rel.columns.clone()), estimate, name);
        self.is_enough(into, enough);
        // Not shared: another reader may want all rows.
        self.append(rel, into)?;
        Ok(into)
    }

    /// So many rows of a result are enough.
    fn is_enough(&mut self, result: ResultId, enough: Option<u64>) {
        let spec = &mut self.results[result];
        spec.enough = enough;
        spec.estimate = spec.estimate.min(enough.unwrap_or(u64::MAX));
    }
}

/// How many rows a limit reads, whichever they are; `None` when an order decides.
fn enough(keys: &[SortKey], skip: u64, fetch: Option<u64>) -> Option<u64> {
    let fetch = fetch.filter(|_| keys.is_empty())?;
    Some(skip.saturating_add(fetch))
}

/// A build that inserts rows by their keys.
fn keyed_build(keys: Vec<Expr>, payload: Vec<Expr>) -> Build {
    Build {
        keys,
        order: None,
        payload,
        unique: false,
        null_equal: false,
        mark_sets: 0,
        existence: false,
        join: None,
        prefer_hash: false,
        clustered: false,
        reason: String::new(),
    }
}
