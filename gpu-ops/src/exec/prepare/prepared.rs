//! A fragment compiled for the columns at hand: everything that runs over the same columns share.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::codegen::{
    ColumnLayout, KernelProgram, Meaning, Part, Program, ResultLayout, Slot, SourceRows,
    StepProgram,
};
use crate::column::Column;
use crate::device::{DevicePtr, Stream};
use crate::error::{GpuError, Result};
use crate::exec::prepare::bind::{Builder, OverlapScan};
use crate::exec::prepare::builtins::Builtins;
use crate::exec::prepare::compile::compile;
use crate::exec::prepare::hints::Hint;
use crate::exec::prepare::kernel::{PreparedKernel, PreparedSort, PreparedStep, PreparedWindow};
use crate::exec::prepare::lookups::{KeptLookups, UsedLookups, upload_lookups};
use crate::exec::prepare::replan::ReplanFacts;
use crate::exec::prepare::shapes::Shape;
use crate::graph::{Graph, OutputList, ResultId, Stage, Step};
use crate::memory::SpillDirectory;
use crate::runtime::Runtime;
use crate::runtime::slots::Length;
use crate::tables::{LoadProgress, LoadedTable};

/// A compiled fragment. It refers to the resident columns by address but does not keep them: each
/// run holds them, and asks [`Prepared::fits`] first.
#[derive(Debug)]
pub(in crate::exec) struct Prepared {
    tables: Vec<TableIdentity>,
    /// The steps, for EXPLAIN, for names and for estimates.
    pub(in crate::exec) graph: Graph,
    /// What was known of it.
    pub(in crate::exec) facts: ReplanFacts,
    /// By result.
    pub(in crate::exec) shapes: Vec<Shape>,
    /// By result: what it has of a table.
    pub(in crate::exec) borrowed: Vec<Option<ZeroCopy>>,
    /// In launch order.
    pub(in crate::exec) steps: Vec<PreparedStep>,
    /// By step: the results that nothing reads after it.
    pub(in crate::exec) dead_after: Vec<Vec<ResultId>>,
    /// Columns of the output result.
    pub(in crate::exec) output: Vec<OutputColumn>,
    /// Results of at most one row.
    pub(in crate::exec) scalars: Vec<ResultId>,
    /// Chosen algorithms with their reasons.
    pub(in crate::exec) choices: Vec<String>,
    /// Bytes of the resident columns that the kernels read, each column once.
    pub(in crate::exec) bytes: usize,
    /// Of a table that was still coming.
    pub(in crate::exec) overlap: Option<Overlap>,
    /// What the last complete run found.
    pub(in crate::exec) hints: Mutex<Option<Arc<Vec<Hint>>>>,
    /// Sizes are read between steps although they are known: room that is exact for each step may be there where room for what
    /// an earlier run found is not.
    reads_sizes: AtomicBool,
    /// Tables of groups that were made as large as the groups found in them ask for had no room: they stay as they were.
    pub(in crate::exec) keeps_slots: AtomicBool,
    /// Microseconds on the device of the fastest complete run: others may have kept it busy meanwhile.
    fastest: AtomicU64,
    /// Bytes that the results of the last complete run of the fragment took, and one more; 0: none was complete.
    results_took: AtomicUsize,
    /// Takes the rows of joins for which host memory has no room.
    pub(in crate::exec) spill: Option<Arc<SpillDirectory>>,
    /// `None`: its kernels have none.
    lookups: Option<Arc<KeptLookups>>,
}

/// A table that is still coming.
#[derive(Debug)]
pub(in crate::exec) struct Overlap {
    pub(in crate::exec) arrival: Arc<LoadProgress>,
    /// Its rows.
    pub(in crate::exec) rows: u64,
}

/// Columns of a table that are parts of a result. As kernels do, it has their addresses without keeping them.
#[derive(Debug)]
pub(in crate::exec) struct ZeroCopy {
    /// Rows of the table, all of which the result has.
    pub(in crate::exec) rows: u64,
    /// Where they lie.
    pub(in crate::exec) parts: Vec<(Part, DevicePtr)>,
}

/// The columns of a table by identity. A weak reference keeps the address from being given to
/// another column, but does not keep the device memory.
#[derive(Debug)]
struct TableIdentity {
    rows: usize,
    columns: Vec<Weak<Column>>,
}

/// How a column of the output becomes an Arrow array.
#[derive(Debug)]
pub(in crate::exec) struct OutputColumn {
    /// Storage and meaning; strings by row have the meaning of a number.
    pub(in crate::exec) layout: ColumnLayout,
    /// Strings by row: the column with the strings.
    pub(in crate::exec) text: Option<Weak<Column>>,
    /// References to lists: where the values are.
    pub(in crate::exec) list: Option<Box<ListValues>>,
}

/// The values of lists: rows of a result.
#[derive(Debug)]
pub(in crate::exec) struct ListValues {
    pub(in crate::exec) of: OutputList,
    /// How one value becomes an element of an Arrow array.
    pub(in crate::exec) value: OutputColumn,
}

impl Prepared {
    /// Compile all kernels of `program`, in parallel, and upload its lookup tables.
    ///
    /// # Errors
    /// [`GpuError::Compile`]; [`GpuError::OutOfDeviceMemory`] for the lookup tables;
    /// [`GpuError::Internal`] when program and graph do not go together.
    pub(in crate::exec) fn new(
        mut graph: Graph,
        facts: ReplanFacts,
        program: Program,
        tables: &[Arc<LoadedTable>],
        overlap: Option<&OverlapScan>,
        runtime: &Arc<Runtime>,
        stream: &Stream,
    ) -> Result<Self> {
        graph.results.extend(program.hidden.iter().cloned());
        if program.results.len() != graph.results.len() || graph.scans.len() != tables.len() {
            return Err(GpuError::Internal(
                "a program and its graph differ in their results or tables".into(),
            ));
        }
        let kernels: Vec<&KernelProgram> = program.steps.iter().flat_map(kernels_of).collect();
        let output = output_columns(&graph, &program)?;
        let shapes: Vec<Shape> = program.results.iter().map(Shape::of).collect();
        let mut builtins = Builtins::default();
        builtins.of_shapes(&shapes, &graph, runtime.device().info());
        for step in &program.steps {
            if let StepProgram::Sort(sort) = step {
                let rows = graph.results.get(sort.rows).map_or(0, |r| r.estimate);
                let first = match (sort.fetch, &sort.window) {
                    (Some(fetch), None) => sort.skip.saturating_add(fetch),
                    _ => u64::MAX,
                };
                builtins.of_sort(&sort.word_bits, rows, first);
                if let Some(window) = &sort.window {
                    builtins.of_window(window);
                }
            }
        }
        for list in output.iter().filter_map(|column| column.list.as_ref()) {
            builtins.of_list(&list.value.layout);
        }
        if output.iter().any(OutputColumn::has_texts) {
            builtins.of_strings();
        }
        let compiled = compile(runtime, &kernels, builtins)?;
        let (lookups, offsets) = upload_lookups(runtime, stream, &kernels)?;
        let builder = Builder {
            program: &program,
            graph: &graph,
            shapes: &shapes,
            tables,
            overlap,
            runtime,
            lookups: lookups.as_ref(),
            offsets: &offsets,
        };
        let mut compiled = compiled.into_iter().enumerate();
        let mut next = |kernel: &KernelProgram| {
            let (number, handle) = compiled
                .next()
                .ok_or_else(|| GpuError::Internal("a kernel was not compiled".into()))?;
            builder.kernel(kernel, number, handle)
        };
        let mut steps = Vec::with_capacity(program.steps.len());
        for step in &program.steps {
            steps.push(match step {
                StepProgram::Pipeline(kernel) => PreparedStep::Pipeline(Box::new(next(kernel)?)),
                StepProgram::Sort(sort) => PreparedStep::Sort(Box::new(PreparedSort {
                    rows: sort.rows,
                    into: sort.into,
                    keys: sort.keys.as_ref().map(&mut next).transpose()?,
                    word_bits: sort.word_bits.clone(),
                    partition: sort.partition.clone(),
                    gather: next(&sort.gather)?,
                    skip: sort.skip,
                    fetch: sort.fetch,
                    window: match &sort.window {
                        None => None,
                        Some(window) => Some(PreparedWindow {
                            rows: window.rows,
                            marks: next(&window.marks)?,
                            bounds: window.bounds.as_ref().map(&mut next).transpose()?,
                            first: window.first,
                            fills: window.fills.clone(),
                        }),
                    },
                })),
                StepProgram::Borrow(step) => PreparedStep::Borrow {
                    into: step.into,
                    label: step.label.clone(),
                },
            });
        }
        Ok(Self {
            tables: tables.iter().map(|t| TableIdentity::of(t)).collect(),
            dead_after: dead_after(&steps, &shapes, &graph),
            choices: [
                program.choices.clone(),
                streamed_scans(&graph, tables.iter().map(AsRef::as_ref)),
                sorts_in_parts(&graph, &shapes),
            ]
            .concat(),
            shapes,
            output,
            scalars: scalars(&graph),
            bytes: bytes_read(&program, tables),
            borrowed: program
                .results
                .iter()
                .map(|layout| ZeroCopy::of(layout, tables))
                .collect::<Result<_>>()?,
            overlap: overlap.map(|overlap| Overlap {
                arrival: Arc::clone(&overlap.arrival),
                rows: tables.get(overlap.scan).map_or(0, |t| t.rows as u64),
            }),
            hints: Mutex::default(),
            reads_sizes: AtomicBool::new(false),
            keeps_slots: AtomicBool::new(false),
            fastest: AtomicU64::new(u64::MAX),
            results_took: AtomicUsize::new(0),
            steps,
            spill: None,
            lookups: lookups.map(|buffer| Arc::new(KeptLookups::new(buffer))),
            graph,
            facts,
        })
    }

    /// Its lookup tables, for a run; `None` once they were given back: it has to be prepared again.
    pub(in crate::exec) fn lookups_for_use(&self) -> Option<UsedLookups> {
        match &self.lookups {
            Some(kept) => kept.for_use(),
            None => Some(UsedLookups::none()),
        }
    }

    /// What may give its lookup tables back.
    pub(in crate::exec) fn kept_lookups(&self) -> Option<Weak<KeptLookups>> {
        self.lookups.as_ref().map(Arc::downgrade)
    }

    /// What the next run goes by, unless it is to read sizes between steps.
    pub(in crate::exec) fn known(&self) -> Option<Arc<Vec<Hint>>> {
        let known = self.hints.lock().clone();
        known.filter(|_| !self.reads_sizes.load(Ordering::Relaxed))
    }

    /// Has a run come to its end? Then the kernels of later ones are compiled.
    pub(in crate::exec) fn has_run(&self) -> bool {
        self.hints.lock().is_some()
    }

    /// A run by what an earlier one found got no room, although that one did: later ones read sizes between steps as it did.
    pub(in crate::exec) fn read_sizes(&self) {
        if self.has_run() {
            self.reads_sizes.store(true, Ordering::Relaxed);
        }
    }

    /// The results of the last complete run took so many bytes.
    pub(in crate::exec) fn expect_results(&self, took: Option<usize>) {
        let took = took.map_or(0, |bytes| bytes.saturating_add(1));
        self.results_took.store(took, Ordering::Relaxed);
    }

    /// A run that knew its sizes took so many milliseconds on the device.
    pub(in crate::exec) fn took(&self, milliseconds: f64) {
        let microseconds = (milliseconds * 1e3) as u64;
        self.fastest.fetch_min(microseconds, Ordering::Relaxed);
    }

    /// How long a run takes, by the fastest one so far.
    pub(in crate::exec) fn length(&self) -> Length {
        let fastest = self.fastest.load(Ordering::Relaxed);
        Length::of((fastest < u64::MAX).then(|| fastest as f64 / 1e3))
    }

    /// Bytes that the results of the last complete run took.
    pub(in crate::exec) fn results_took(&self) -> Option<usize> {
        self.results_took.load(Ordering::Relaxed).checked_sub(1)
    }

    /// Launch at most so many blocks of a generated kernel at once.
    pub(in crate::exec) fn limit_blocks(&mut self, most: u64) {
        for step in &mut self.steps {
            let kernels = match step {
                PreparedStep::Pipeline(kernel) => vec![kernel.as_mut()],
                PreparedStep::Borrow { .. } => vec![],
                PreparedStep::Sort(sort) => {
                    let window = sort.window.as_mut().into_iter();
                    let window =
                        window.flat_map(|w| [&mut w.marks].into_iter().chain(&mut w.bounds));
                    let kernels = sort.keys.as_mut().into_iter().chain([&mut sort.gather]);
                    kernels.chain(window).collect()
                }
            };
            for kernel in kernels {
                kernel.most_blocks = kernel.most_blocks.min(most);
            }
        }
    }

    /// The columns that it was made for, as far as they are still there.
    pub(in crate::exec) fn columns(&self) -> Vec<Arc<Column>> {
        let columns = self.tables.iter().flat_map(|table| &table.columns);
        columns.filter_map(Weak::upgrade).collect()
    }

    /// Are all columns still there that it was made for?
    pub(in crate::exec) fn is_complete(&self) -> bool {
        let mut columns = self.tables.iter().flat_map(|table| &table.columns);
        columns.all(|column| column.strong_count() > 0)
    }

    /// Was it made for exactly these columns, and are its lookup tables still there?
    pub(in crate::exec) fn fits(&self, tables: &[Arc<LoadedTable>]) -> bool {
        self.tables.len() == tables.len()
            && self.lookups.as_ref().is_none_or(|kept| !kept.are_gone())
            && self.tables.iter().zip(tables).all(|(mine, table)| {
                mine.rows == table.rows
                    && mine.columns.len() == table.columns.len()
                    && mine
                        .columns
                        .iter()
                        .zip(&table.columns)
                        .all(|(mine, column)| std::ptr::eq(mine.as_ptr(), Arc::as_ptr(column)))
            })
    }
}

impl ZeroCopy {
    /// What a result of this layout has of the tables.
    fn of(layout: &ResultLayout, tables: &[Arc<LoadedTable>]) -> Result<Option<Self>> {
        let Some(borrowed) = layout.borrowed() else {
            return Ok(None);
        };
        let table = tables
            .get(borrowed.scan)
            .ok_or_else(|| GpuError::Internal("rows borrowed from no table".into()))?;
        let columns = borrowed.columns.iter().enumerate();
        let columns = columns.map(|(column, of)| (Part::Column(column), *of));
        let parts = columns
            .chain([(Part::KeyWord(0), borrowed.key)])
            .filter_map(|(part, of)| Some((part, of?)))
            .map(|(part, of)| {
                let column = table.columns.get(of).ok_or_else(|| {
                    GpuError::Internal(format!("a borrowed column {of} that is not there"))
                })?;
                Ok((part, column.data.ptr()))
            })
            .collect::<Result<_>>()?;
        Ok(Some(Self {
            rows: table.rows as u64,
            parts,
        }))
    }
}

impl TableIdentity {
    fn of(table: &LoadedTable) -> Self {
        Self {
            rows: table.rows,
            columns: table.columns.iter().map(Arc::downgrade).collect(),
        }
    }
}

impl OutputColumn {
    fn new(layout: &ColumnLayout) -> Self {
        let text = match &layout.meaning {
            Meaning::Row(column) => Some(Arc::downgrade(column)),
            _ => None,
        };
        let mut layout = layout.clone();
        if text.is_some() {
            layout.meaning = Meaning::Number;
        }
        Self {
            layout,
            text,
            list: None,
        }
    }

    /// Are strings gathered for it?
    fn has_texts(&self) -> bool {
        self.text.is_some()
            || self
                .list
                .as_ref()
                .is_some_and(|list| list.value.has_texts())
    }
}

/// The columns of the output, with the values of lists among them.
fn output_columns(graph: &Graph, program: &Program) -> Result<Vec<OutputColumn>> {
    let columns_of = |result: ResultId| match program.results.get(result) {
        Some(ResultLayout::Rows(columns) | ResultLayout::Sorted(columns)) => Ok(columns),
        _ => Err(GpuError::Internal(
            "rows of a fragment's output that are none".into(),
        )),
    };
    let columns = columns_of(graph.output)?.iter();
    let mut output: Vec<OutputColumn> = columns.map(OutputColumn::new).collect();
    for list in &graph.lists {
        let missing = || GpuError::Internal("a list of no column".into());
        let values = columns_of(list.rows)?.get(list.values);
        let value = OutputColumn::new(values.ok_or_else(missing)?);
        let column = output.get_mut(list.output).ok_or_else(missing)?;
        column.list = Some(Box::new(ListValues {
            of: list.clone(),
            value,
        }));
    }
    Ok(output)
}

/// The kernels of a step in launch order.
fn kernels_of(step: &StepProgram) -> Vec<&KernelProgram> {
    match step {
        StepProgram::Pipeline(kernel) => vec![kernel],
        StepProgram::Sort(sort) => {
            let kernels = sort.keys.iter().chain([&sort.gather]);
            let window = sort.window.iter();
            let window = window.flat_map(|w| [&w.marks].into_iter().chain(&w.bounds));
            kernels.chain(window).collect()
        }
        StepProgram::Borrow(_) => vec![],
    }
}

/// Which columns of the scanned tables are not on the device, in words.
pub(in crate::exec) fn streamed_scans<'t>(
    graph: &Graph,
    tables: impl IntoIterator<Item = &'t LoadedTable>,
) -> Vec<String> {
    let scans = graph.scans.iter().zip(tables);
    let lines = scans.filter_map(|(scan, table)| {
        let away = table.columns.iter().filter(|c| c.is_in_host_memory());
        let (count, bytes) = away.fold((0, 0), |(n, sum), c| (n + 1, sum + c.bytes()));
        (count > 0).then(|| {
            format!(
                "{} is streamed: {count} of {} columns, {:.1} MB, lie in host memory for want of room",
                scan.name,
                table.columns.len(),
                bytes as f64 / 1e6
            )
        })
    });
    lines.collect()
}

/// Which sorts are thought to come in ranges, in words.
fn sorts_in_parts(graph: &Graph, shapes: &[Shape]) -> Vec<String> {
    let Some(room) = graph.group_room else {
        return vec![];
    };
    let sorts = graph.steps.iter().filter_map(|step| match step {
        Step::Sort(sort) if !sort.keys.is_empty() => Some(sort),
        _ => None,
    });
    let lines = sorts.filter_map(|sort| {
        let spec = graph.results.get(sort.rows)?;
        let row = shapes.get(sort.rows)?.row_bytes() as u64;
        let bytes = spec.estimate.saturating_mul(row);
        (bytes > room.part).then(|| {
            format!(
                "{} is sorted in parts of {} bytes: about {bytes} bytes of rows",
                spec.name, room.part
            )
        })
    });
    lines.collect()
}

/// By step: the results whose memory no later step uses.
fn dead_after(steps: &[PreparedStep], shapes: &[Shape], graph: &Graph) -> Vec<Vec<ResultId>> {
    // Read behind the last step.
    let read_later = |result: ResultId| {
        result == graph.output || graph.lists.iter().any(|list| list.rows == result)
    };
    let mut last = vec![None; shapes.len()];
    for (number, step) in steps.iter().enumerate() {
        let (kernels, named): (Vec<&PreparedKernel>, Vec<ResultId>) = match step {
            PreparedStep::Pipeline(kernel) => (vec![kernel], kernel.into.into_iter().collect()),
            PreparedStep::Sort(sort) => (
                sort.keys.iter().chain([&sort.gather]).collect(),
                vec![sort.rows, sort.into],
            ),
            PreparedStep::Borrow { into, .. } => (vec![], vec![*into]),
        };
        let used = kernels
            .iter()
            .flat_map(|k| k.template.slots())
            .filter_map(|slot| match slot {
                Slot::Result(result, _) => Some(result),
                _ => None,
            });
        // The rows of an index are joined in the step that materialises what probes it.
        let joined = named.iter().filter_map(|into| match shapes.get(*into) {
            Some(Shape::Matches(_, Some(join))) => Some(join.index),
            _ => None,
        });
        for result in used.chain(joined.collect::<Vec<_>>()).chain(named) {
            if let Some(last) = last.get_mut(result) {
                *last = Some(number);
            }
        }
    }
    let mut dead = vec![Vec::new(); steps.len()];
    for (result, last) in last.into_iter().enumerate() {
        if let Some(step) = last.filter(|_| !read_later(result)) {
            dead[step].push(result);
        }
    }
    dead
}

/// Results that `Stage::Scalar` reads.
fn scalars(graph: &Graph) -> Vec<ResultId> {
    let mut found = Vec::new();
    for step in &graph.steps {
        let Step::Pipeline(pipeline) = step else {
            continue;
        };
        found.extend(pipeline.stages.iter().filter_map(|stage| match stage {
            Stage::Scalar(result) => Some(*result),
            _ => None,
        }));
    }
    found.sort_unstable();
    found.dedup();
    found
}

/// Bytes of the scanned columns that kernels read and results borrow, each (table, column) once.
fn bytes_read(program: &Program, tables: &[Arc<LoadedTable>]) -> usize {
    let read = program
        .steps
        .iter()
        .flat_map(kernels_of)
        .flat_map(|kernel| {
            let scan = match kernel.source_rows {
                SourceRows::Scan(scan) => Some(scan),
                _ => None,
            };
            let columns = kernel.scan_columns.iter();
            columns.filter_map(move |column| Some((scan?, *column)))
        });
    let borrowed = program.results.iter().filter_map(ResultLayout::borrowed);
    let borrowed = borrowed.flat_map(|b| b.used().into_iter().map(|column| (b.scan, column)));
    let mut seen = HashSet::new();
    let mut bytes = 0;
    for (scan, column) in read.chain(borrowed) {
        let Some(column) = tables.get(scan).and_then(|t| t.columns.get(column)) else {
            continue;
        };
        if seen.insert(Arc::as_ptr(column)) {
            bytes += column.bytes();
        }
    }
    bytes
}
