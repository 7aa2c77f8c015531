//! Semi and anti joins of the same rows with one table: a scan of the table marks for all of them.
//!
//! `EXISTS (… t …) AND NOT EXISTS (… t …)` by the same keys differ in their conditions alone. The index of the rows has a set of
//! marks for each; a second index of the rows that the first join leaves, and another scan, are spared.

use warpline_gpu::expr::Expr;
use warpline_gpu::graph::{Pipeline, Probe, ProbeKind, ResultId, Sink, Source, Stage, Step};

use super::side::Side;
use super::sideways::builder;
use super::{Lowerer, OpenPipeline, in_order, scope, unused};
use crate::reason::Reason;
use crate::rel::expr::{all_same, substitute_all};
use crate::rel::{Join, JoinKind, RelKind, RelRef};

/// Filters and one look-up of a pipeline that only marks.
struct Marking {
    step: usize,
    filters: Vec<Expr>,
    probe: Probe,
}

impl Lowerer<'_> {
    /// May the rows of `left` come from an index that a scan of the table of `right` marks?
    pub(super) fn may_mark_again(&self, left: &Side<'_>, right: &Side<'_>) -> bool {
        fn below(mut rel: &RelRef) -> &RelRef {
            loop {
                rel = match &rel.kind {
                    RelKind::Project { input, .. } | RelKind::Filter { input, .. } => input,
                    _ => return rel,
                }
            }
        }
        let marked = match &below(left.rel).kind {
            RelKind::Join(join) => matches!(join.kind, JoinKind::Semi | JoinKind::Anti),
            _ => false,
        };
        marked && matches!(below(right.rel).kind, RelKind::Scan { .. })
    }

    /// Where the rows of `open`, the left side of a semi or anti join, come from an index that a scan of the right side's table
    /// marks by the same keys, that scan marks for this join as well: its rows. `None`: the sides are others, or a condition can fail;
    /// nothing changed.
    pub(super) fn mark_again(
        &mut self,
        join: &Join,
        (left, right): (&Side<'_>, &Side<'_>),
        open: &OpenPipeline,
    ) -> Result<Option<OpenPipeline>, Reason> {
        let Source::Entries(index, marked) = &open.source else {
            return Ok(None);
        };
        let filtered = |stage: &Stage| matches!(stage, Stage::Filter(_));
        let built = builder(&self.steps, *index).map(|(_, build)| build);
        let Some(build) = built.filter(|build| {
            build.order.is_none() && build.join.is_none() && build.null_equal == join.null_equal
        }) else {
            return Ok(None);
        };
        let keys = substitute_all(&left.keys, &open.columns)?;
        let keys = substitute_all(&keys, &build.payload)?;
        if !all_same(&keys, &build.keys) || !open.stages.iter().all(filtered) {
            return Ok(None);
        }
        let marks = self.stream_side(right)?;
        let Some(mut marking) = self.marking(*index, &marks.source, marked.len()) else {
            return Ok(None);
        };
        let keys = substitute_all(&right.keys, &marks.columns)?;
        let Some(filters) = conjuncts_of(&marks.stages) else {
            return Ok(None);
        };
        if !all_same(&keys, &marking.probe.keys) {
            return Ok(None);
        }

        // The residual condition over the scan's columns and the entry's.
        let entry = scope(&self.payload_columns(*index, false), marks.width);
        let of = |side: &Side<'_>| side.rel.columns.iter().map(unused).collect::<Vec<_>>();
        let mut columns = [of(left), marks.columns].concat();
        for i in &left.needed {
            let value = std::slice::from_ref(&open.columns[*i]);
            columns[left.at + i] = substitute_all(value, &entry)?.remove(0);
        }
        let residual = substitute_all(&join.residual, &columns)?;

        let probe = &mut marking.probe;
        let first = std::mem::take(&mut probe.residual);
        // Other rows are tested than before: those that an earlier join leaves out as well, and of the table those alone that match.
        let tested = [&keys, &filters, &marking.filters, &first, &residual];
        if tested.into_iter().flatten().any(Expr::may_fault) {
            return Ok(None);
        }
        // Filters that both have stay in front, others are conditions of their sets.
        let (in_front, of_others, of_this) = match all_same(&filters, &marking.filters) {
            true => (filters, vec![], vec![]),
            false => (vec![], marking.filters, filters),
        };
        for set in &mut probe.marks {
            *set = in_order([&of_others, &first, &*set].map(Vec::clone).concat());
        }
        probe.marks.push(in_order([of_this, residual].concat()));
        let mut stages = Vec::new();
        if !in_front.is_empty() {
            stages.push(Stage::Filter(in_front));
        }
        stages.push(Stage::Probe(marking.probe));
        if let Some(Step::Pipeline(pipeline)) = self.steps.get_mut(marking.step) {
            pipeline.stages = stages;
            pipeline.left.clear();
        }
        for step in &mut self.steps {
            if let Step::Pipeline(pipeline) = step
                && let Sink::Build { into, build } = &mut pipeline.sink
                && into == index
            {
                build.mark_sets += 1;
            }
        }
        let mut marked = marked.clone();
        marked.push(join.kind == JoinKind::Semi);
        Ok(Some(OpenPipeline {
            source: Source::Entries(*index, marked),
            ..open.clone()
        }))
    }

    /// The pipeline from `source` that fills all `sets` sets of marks of an index and does nothing else.
    fn marking(&self, index: ResultId, source: &Source, sets: usize) -> Option<Marking> {
        self.steps.iter().enumerate().find_map(|(step, of)| {
            let Step::Pipeline(Pipeline {
                source: from,
                stages,
                sink: Sink::Discard,
                ..
            }) = of
            else {
                return None;
            };
            let (Stage::Probe(probe), before) = stages.split_last()? else {
                return None;
            };
            let alike = probe.index == index
                && probe.kind == ProbeKind::Semi
                && probe.marks.len() == sets
                && probe.band.is_none()
                && from == source;
            Some(Marking {
                step,
                filters: conjuncts_of(before).filter(|_| alike)?,
                probe: probe.clone(),
            })
        })
    }
}

/// The conditions of stages that are all filters.
fn conjuncts_of(stages: &[Stage]) -> Option<Vec<Expr>> {
    let mut all = Vec::new();
    for stage in stages {
        let Stage::Filter(conjuncts) = stage else {
            return None;
        };
        all.extend(conjuncts.iter().cloned());
    }
    Some(all)
}
