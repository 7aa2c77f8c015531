//! A graph under construction, and the text of its kernels.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::sync::Arc;

use datafusion::physical_plan::empty::EmptyExec;

use super::table::{device, schema, table};
use crate::algorithm::Balance;
use crate::codegen::ir::program::{KernelProgram, Program, StepProgram};
use crate::device::emulated::EmulatedDevice;
use crate::device::{Device, DeviceInfo};
use crate::error::{GpuError, Result};
use crate::expr::Expr;
use crate::graph::{
    Build, Graph, IndexChoice, IndexKind, IndexProfile, Parts, Pipeline, Policy, Probe,
    RefillProfile, ResultColumn, ResultKind, ResultSpec, RowsLeft, Sink, Source, Stage, Step,
    TreeOptions,
};
use crate::pipeline::{
    Aggregate, AggregateCall, AggregateFunction, GroupPlacement, GroupProfile, PlacementChoice,
    PlacementPolicy, ScanSource,
};
use crate::tables::{LoadedTable, TableSource};

/// Always the same answers.
#[derive(Debug)]
struct Fixed {
    groups: GroupPlacement,
    index: IndexKind,
    refill: Option<usize>,
}

impl PlacementPolicy for Fixed {
    fn place_groups(&self, _: &GroupProfile, _: &DeviceInfo) -> PlacementChoice {
        PlacementChoice {
            placement: self.groups,
            reason: String::new(),
        }
    }
}

impl Policy for Fixed {
    fn scans(&self) -> &[ScanSource] {
        &[]
    }

    fn graph(&self, _: &[LoadedTable], _: &HashSet<String>, _: u64) -> Result<Graph> {
        Err(GpuError::Internal("no graph of its own".into()))
    }

    fn refill(&self, _: &RefillProfile) -> Option<usize> {
        self.refill
    }

    fn place_index(&self, profile: &IndexProfile, _: &DeviceInfo) -> IndexChoice {
        let perfect = self.index == IndexKind::Perfect && profile.domain.is_none();
        IndexChoice {
            kind: if perfect { IndexKind::Hash } else { self.index },
            reason: String::new(),
        }
    }

    fn describe(&self) -> String {
        String::new()
    }
}

/// A graph under construction over the one table.
pub(super) struct Case {
    pub(super) results: Vec<ResultSpec>,
    pub(super) steps: Vec<Step>,
    pub(super) balance: Balance,
    pub(super) groups: GroupPlacement,
    pub(super) index: IndexKind,
    /// After so many stages rows are gathered.
    pub(super) refill: Option<usize>,
    /// What groups must pass, which few are thought to.
    pub(super) having: Vec<Expr>,
}

impl Case {
    pub(super) fn new() -> Self {
        Self {
            results: vec![],
            steps: vec![],
            balance: Balance::NifsAws,
            groups: GroupPlacement::GlobalDense,
            index: IndexKind::Perfect,
            refill: None,
            having: vec![],
        }
    }

    pub(super) fn grouped(groups: GroupPlacement) -> Self {
        Self {
            groups,
            ..Self::new()
        }
    }

    pub(super) fn indexed(index: IndexKind) -> Self {
        Self {
            index,
            ..Self::new()
        }
    }

    pub(super) fn result(
        &mut self,
        kind: fn(Vec<ResultColumn>) -> ResultKind,
        columns: &[Expr],
    ) -> usize {
        let columns = columns
            .iter()
            .enumerate()
            .map(|(i, column)| ResultColumn {
                name: format!("x{i}"),
                data_type: column.data_type.clone(),
                nullable: column.nullable,
            })
            .collect();
        let id = self.results.len();
        self.results.push(ResultSpec {
            kind: kind(columns),
            estimate: 1000,
            input: 5000,
            enough: None,
            name: format!("result {id}"),
        });
        id
    }

    pub(super) fn step(&mut self, source: Source, stages: Vec<Stage>, sink: Sink) {
        let left = match (&source, stages.as_slice()) {
            (Source::Groups(_), [Stage::Filter(_)]) => vec![RowsLeft { stages: 1, rows: 1 }],
            _ => vec![],
        };
        self.steps.push(Step::Pipeline(Pipeline {
            source,
            stages,
            left,
            sink,
        }));
    }

    /// Rows of `source` after `stages`.
    pub(super) fn rows(&mut self, source: Source, stages: Vec<Stage>, columns: Vec<Expr>) -> usize {
        let into = self.result(ResultKind::Rows, &columns);
        self.step(source, stages, Sink::Rows { into, columns });
        into
    }

    /// Groups of the table's rows after `stages`, and their rows.
    pub(super) fn aggregate(
        &mut self,
        stages: Vec<Stage>,
        keys: Vec<Expr>,
        calls: Vec<AggregateCall>,
    ) {
        let mut columns = keys.clone();
        columns.extend(calls.iter().enumerate().map(|(i, call)| {
            let nullable = call.function != AggregateFunction::Count;
            Expr::column(keys.len() + i, call.return_type.clone(), nullable)
        }));
        let into = self.result(ResultKind::Groups, &columns);
        let aggregate = Aggregate { keys, calls };
        self.step(Source::Scan(0), stages, Sink::Aggregate { into, aggregate });
        let read = columns
            .iter()
            .enumerate()
            .map(|(i, c)| Expr::column(i, c.data_type.clone(), c.nullable))
            .collect();
        let having = std::mem::take(&mut self.having);
        let stages = match having.is_empty() {
            true => vec![],
            false => vec![Stage::Filter(having)],
        };
        self.rows(Source::Groups(into), stages, read);
    }

    /// An index of the table's rows by `keys`.
    pub(super) fn build(
        &mut self,
        keys: Vec<Expr>,
        payload: Vec<Expr>,
        options: fn(&mut Build),
    ) -> usize {
        let into = self.result(ResultKind::Index, &payload);
        let mut build = Build {
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
        };
        options(&mut build);
        self.step(Source::Scan(0), vec![], Sink::Build { into, build });
        into
    }

    /// The pairs of the table's rows with an index, and their rows.
    pub(super) fn pairs(&mut self, probe: Probe, columns: Vec<Expr>, pairs: Vec<Expr>) -> usize {
        let into = self.result(ResultKind::Matches, &columns);
        let sink = Sink::Matches {
            into,
            probe,
            columns,
        };
        self.step(Source::Scan(0), vec![], sink);
        self.rows(Source::Pairs(into), vec![], pairs)
    }

    /// Every kernel with its geometry; the last result is the output.
    pub(super) fn text(self) -> String {
        let emulator: Arc<dyn Device> = Arc::new(EmulatedDevice::open().unwrap());
        let empty: Arc<dyn datafusion::physical_plan::ExecutionPlan> =
            Arc::new(EmptyExec::new(schema()));
        let graph = Graph {
            scans: vec![ScanSource {
                table: TableSource::analyze(&empty).unwrap().source,
                columns: (0..schema().fields().len()).collect(),
                fields: schema().fields().iter().cloned().collect(),
                name: "sales".into(),
                needs_codes: vec![],
            }],
            output: self.results.len() - 1,
            results: self.results,
            steps: self.steps,
            schema: schema(),
            tree: TreeOptions {
                balance: self.balance,
                ..TreeOptions::default()
            },
            keep_indexes: false,
            parts: Parts::Never,
            group_room: None,
            lists: vec![],
        };
        let policy = Fixed {
            groups: self.groups,
            index: self.index,
            refill: self.refill,
        };
        let tables = [table(&emulator)];
        let mut device = device();
        if self.refill.is_some() {
            // The table is large for so small a device: threads take several rows.
            device.multiprocessors = 1;
            device.emulated = true;
        }
        let program = Program::new(&graph, &tables, &policy, &device).unwrap();
        let mut text = String::new();
        for step in &program.steps {
            match step {
                StepProgram::Pipeline(kernel) => write(&mut text, "", kernel),
                StepProgram::Sort(sort) => {
                    if let Some(keys) = &sort.keys {
                        write(&mut text, "keys of ", keys);
                    }
                    write(&mut text, "gather ", &sort.gather);
                }
                StepProgram::Borrow(borrow) => {
                    let _ = writeln!(text, "// {}: no kernel\n", borrow.label);
                }
            }
        }
        text
    }
}

fn write(text: &mut String, what: &str, kernel: &KernelProgram) {
    let _ = writeln!(
        text,
        "// {what}{}: {:?}, {} threads, {} rows a tile, {} bytes shared{}\n{}",
        kernel.label,
        kernel.source_rows,
        kernel.block_threads,
        kernel.tile_rows,
        kernel.shared_bytes,
        if kernel.in_place { ", in place" } else { "" },
        kernel.source
    );
}
