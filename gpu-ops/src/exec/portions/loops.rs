//! Steps that run once for each part of a join's rows, where the rows of all parts together are too many: which, and running
//! them.
//!
//! A join in memory pairs all probing rows at once, and a later step goes over the pairs. Where that is more than there is
//! room for, the rows come in parts, and the steps that read what becomes of a part run before the next part replaces it.
//! Their sinks collect the rows of all parts.

use std::collections::HashSet;

use crate::codegen::Slot;
use crate::error::{GpuError, Result};
use crate::exec::frame::run::Run;
use crate::exec::prepare::kernel::{PreparedKernel, PreparedSource, PreparedStep};
use crate::exec::prepare::prepared::Prepared;
use crate::exec::prepare::shapes::Shape;
use crate::graph::ResultId;

/// Steps around the one that makes the rows of a part, which is not among them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::exec) struct Loop {
    /// They come later but read nothing of a part: to run before the first one.
    pub(in crate::exec) before: Vec<usize>,
    /// To run for each part, in this order.
    pub(in crate::exec) inside: Vec<usize>,
    /// Results that are made anew for each part.
    pub(in crate::exec) replaced: Vec<ResultId>,
}

impl Loop {
    /// The loop over parts of `replaced`, results that step `maker` or one inside the loop makes anew for each part; `None` when a step needs both
    /// a part and what becomes of all of them.
    pub(in crate::exec) fn over(
        prepared: &Prepared,
        maker: usize,
        replaced: &[ResultId],
    ) -> Option<Self> {
        let reads: Vec<HashSet<ResultId>> = prepared
            .steps
            .iter()
            .map(|step| reads_of(step, &prepared.shapes))
            .collect();
        let of_part = |step: usize| replaced.iter().any(|result| reads[step].contains(result));
        let last = (maker + 1..prepared.steps.len()).rfind(|step| of_part(*step))?;
        let tracks = |result: &ResultId| match prepared.shapes.get(*result) {
            Some(Shape::Index(index)) => index.mark_sets > 0,
            _ => false,
        };
        // Complete only after the last part: what the loop writes and marks.
        let mut late: HashSet<ResultId> = HashSet::new();
        let marked: HashSet<ResultId> = reads[maker].iter().copied().filter(tracks).collect();
        let mut plan = Self {
            before: vec![],
            inside: vec![],
            replaced: replaced.to_vec(),
        };
        for (step, read) in reads.iter().enumerate().take(last + 1).skip(maker + 1) {
            let needs_all = read.intersection(&late).next().is_some();
            if of_part(step) {
                if needs_all || !matches!(prepared.steps[step], PreparedStep::Pipeline(_)) {
                    return None;
                }
                plan.inside.push(step);
                // What is made anew for each part is complete with it.
                let into = PreparedStep::into(&prepared.steps[step]);
                late.extend(into.filter(|result| !replaced.contains(result)));
                let inside = |result: &ResultId| tracks(result) && !replaced.contains(result);
                late.extend(read.iter().copied().filter(inside));
                late.retain(|result| !marked.contains(result));
            } else if needs_all || read.intersection(&marked).next().is_some() {
                late.extend(PreparedStep::into(&prepared.steps[step]));
            } else {
                plan.before.push(step);
            }
        }
        Some(plan)
    }
}

/// The results that a step reads or marks, other than the one that it fills.
pub(in crate::exec) fn reads_of(step: &PreparedStep, shapes: &[Shape]) -> HashSet<ResultId> {
    let mut reads = HashSet::new();
    let kernels: Vec<&PreparedKernel> = match step {
        PreparedStep::Pipeline(kernel) => vec![kernel],
        PreparedStep::Sort(sort) => {
            reads.insert(sort.rows);
            sort.keys.iter().chain([&sort.gather]).collect()
        }
        PreparedStep::Borrow { .. } => vec![],
    };
    for kernel in kernels {
        reads.extend(kernel.template.slots().filter_map(|slot| match slot {
            Slot::Result(result, _)
            | Slot::Capacity(result)
            | Slot::TableSlots(result)
            | Slot::Pairs(result)
            | Slot::DistinctSlots(result, _) => Some(result),
            _ => None,
        }));
        reads.extend(match kernel.source {
            PreparedSource::Rows(result)
            | PreparedSource::Slots(result)
            | PreparedSource::Pairs(result) => Some(result),
            PreparedSource::Exactly(_) => None,
        });
    }
    if let Some(into) = step.into() {
        reads.remove(&into);
        if let Some(Shape::Matches(_, Some(join))) = shapes.get(into) {
            reads.insert(join.index);
        }
    }
    reads
}

impl Run<'_> {
    /// Run what comes before the first part.
    pub(in crate::exec) fn begin_loop(&mut self, replaced: &[ResultId]) -> Result<Loop> {
        let plan = Loop::over(self.frame.prepared, self.schedule.step, replaced)
            .ok_or_else(|| GpuError::Internal("a join in parts that does not go".into()))?;
        self.schedule.in_parts = true;
        for step in &plan.before {
            self.run_step(*step)?;
            self.schedule.ran.push(*step);
        }
        Ok(plan)
    }

    /// Run the steps that read a part.
    pub(in crate::exec) fn run_inside(&mut self, plan: &Loop) -> Result<()> {
        self.run_inside_but(plan, &[])
    }

    /// The same but for these.
    pub(in crate::exec) fn run_inside_but(
        &mut self,
        plan: &Loop,
        left_out: &[usize],
    ) -> Result<()> {
        for step in plan.inside.iter().filter(|s| !left_out.contains(s)) {
            if let PreparedStep::Pipeline(kernel) = &self.frame.prepared.steps[*step] {
                self.fill_result(kernel)?;
                if let Some(into) = kernel.into {
                    self.frame.results[into].added = !plan.replaced.contains(&into);
                }
            }
        }
        Ok(())
    }

    /// All parts have been read: their sinks are complete.
    pub(in crate::exec) fn end_loop(&mut self, plan: &Loop) -> Result<()> {
        self.schedule.ran.extend(&plan.inside);
        let outer = self.schedule.step;
        let mut finished: Vec<ResultId> = Vec::new();
        for step in &plan.inside {
            let Some(result) = PreparedStep::into(&self.frame.prepared.steps[*step]) else {
                continue;
            };
            if finished.contains(&result) {
                continue;
            }
            finished.push(result);
            self.schedule.step = *step;
            if !plan.replaced.contains(&result) {
                self.complete(result)?;
            }
        }
        self.schedule.step = outer;
        Ok(())
    }
}
