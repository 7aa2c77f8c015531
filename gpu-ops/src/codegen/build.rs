//! From a graph and the resident columns it reads to a program: layouts, then kernels.

use super::ir::context::{Context, Known};
use super::ir::pipeline::{EmittedPipeline, EmittedSink};
use super::ir::program::{BorrowProgram, Program, StepProgram};
use super::ir::results::ResultLayout;
use super::ir::state::Bases;
use super::pipeline::collected;
use super::pipeline::sinks;
use super::shape::kernel;
use super::sort::{kernels, window};
use super::string::evaluated::Evaluated;
use crate::device::DeviceInfo;
use crate::error::{GpuError, Result};
use crate::graph::{Graph, Policy, Sort, Step};
use crate::tables::LoadedTable;

/// A step between emission and text.
enum Emitted {
    Pipeline(Box<EmittedPipeline>, String),
    Sort(Sort),
}

impl Program {
    /// Compile `graph` for the columns of `tables` (`tables[i]` belongs to `graph.scans[i]`).
    ///
    /// # Errors
    /// [`GpuError::Unsupported`] when an encoding or a range is outside what kernels run.
    pub fn new(
        graph: &Graph,
        tables: &[LoadedTable],
        policy: &dyn Policy,
        device: &DeviceInfo,
    ) -> Result<Self> {
        let mut context = Context {
            graph,
            tables,
            policy,
            device,
            known: graph.results.iter().map(|_| None).collect(),
            bases: Bases::default(),
            evaluated: Evaluated::default(),
            choices: Vec::new(),
            hidden: Vec::new(),
        };
        let mut emitted = Vec::with_capacity(graph.steps.len());
        for step in &graph.steps {
            let step = match step {
                Step::Pipeline(pipeline) => {
                    let mut plan = sinks::pipeline(&mut context, pipeline)?;
                    let label = label(graph, &plan);
                    if collected::is_wanted(&plan) {
                        let (rows, groups) = collected::pipelines(&mut context, pipeline, plan)?;
                        let collect = label.replacen("groups", "rows of", 1);
                        emitted.push(Emitted::Pipeline(Box::new(rows), collect));
                        plan = groups;
                    }
                    Emitted::Pipeline(Box::new(plan), label)
                }
                Step::Sort(sort) => {
                    settle_sort(&mut context, sort)?;
                    Emitted::Sort(sort.clone())
                }
            };
            emitted.push(step);
        }
        // Only now is every layout final: rows may have been appended by several pipelines.
        let known = context.known;
        let mut choices = context.choices;
        let mut steps = Vec::with_capacity(emitted.len());
        for step in emitted {
            steps.push(match step {
                Emitted::Pipeline(mut plan, label) => match plan.sink.borrows() {
                    Some((into, _)) => StepProgram::Borrow(BorrowProgram { into, label }),
                    None => {
                        if let Some(behind) = plan.refill {
                            let all = plan.steps.len();
                            choices.push(format!(
                                "{label}: warps gather the rows that are left behind {behind} of {all} steps"
                            ));
                        }
                        StepProgram::Pipeline(Box::new(kernel::write(&mut plan, &known, label)?))
                    }
                },
                Emitted::Sort(sort) => {
                    let all = graph.results[sort.into].kind.columns().len();
                    let kept = all
                        - sort
                            .window
                            .as_ref()
                            .map_or(0, |window| window.columns.len());
                    let sorted = known.get(sort.into).and_then(Option::as_ref);
                    let added = match sorted.map(|known| &known.layout) {
                        Some(ResultLayout::Sorted(columns)) => columns.get(kept..).unwrap_or(&[]),
                        _ => &[],
                    };
                    StepProgram::Sort(Box::new(kernels::program(&sort, &known, kept, added)?))
                }
            });
        }
        let results = known
            .into_iter()
            .enumerate()
            .map(|(id, known)| {
                known
                    .map(|k| k.layout)
                    .ok_or_else(|| GpuError::Internal(format!("nothing makes result {id}")))
            })
            .collect::<Result<Vec<_>>>()?;
        Ok(Self {
            results,
            steps,
            bases: context.bases.into_columns(),
            choices,
            hidden: context.hidden,
        })
    }
}

fn settle_sort(context: &mut Context<'_>, sort: &Sort) -> Result<()> {
    let known = context.known(sort.rows)?;
    let ResultLayout::Rows(columns) = &known.layout else {
        return Err(GpuError::Internal("a sort of what is not rows".into()));
    };
    let described = context.graph.results[sort.into].kind.columns();
    let bound = known.bound.min(sort.fetch.unwrap_or(u64::MAX));
    let layout = match &sort.window {
        None => columns.iter().take(described.len()).cloned().collect(),
        Some(window) => {
            let types = described.iter().skip(columns.len());
            let types = types.map(|column| column.data_type.clone());
            let added = window::layouts(window, types, columns, bound)?;
            [columns.clone(), added].concat()
        }
    };
    let layout = ResultLayout::Sorted(layout);
    context.known[sort.into] = Some(Known { layout, bound });
    Ok(())
}

fn label(graph: &Graph, plan: &EmittedPipeline) -> String {
    let (verb, into) = match &plan.sink {
        EmittedSink::Rows { into, .. } => ("rows", Some(*into)),
        EmittedSink::Matches { into, .. } => ("matches", Some(*into)),
        EmittedSink::Aggregate { into, .. } => ("groups", Some(*into)),
        EmittedSink::Collect { .. } => ("rows", None),
        EmittedSink::Build { into, .. } => ("index", Some(*into)),
        EmittedSink::Discard => ("marks", None),
    };
    match into {
        Some(id) => format!("{verb} {}", graph.results[id].name),
        None => verb.to_string(),
    }
}
