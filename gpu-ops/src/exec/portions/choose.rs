//! Chooses the strategy of each step.

use crate::exec::frame::run::Run;
use crate::exec::portions::strategy::{Filling, Finishing, PortionOf, Sorting, StepPortions};
use crate::exec::prepare::kernel::{PreparedKernel, PreparedSort};
use crate::exec::prepare::shapes::Shape;
use crate::graph::ResultId;

impl Run<'_> {
    /// How a pipeline is to fill its result, by bounds and estimates.
    pub(in crate::exec) fn filling(&self, kernel: &PreparedKernel, into: ResultId) -> Filling {
        if self.comes_in_strides(kernel, into) {
            return Filling::ProbeStrides;
        }
        if self.pieces(kernel, into).is_some() {
            if self.grouping(into).is_some() {
                return Filling::CollectPieces;
            }
            if let Some(sort) = self.only_sort(into) {
                if !sort.word_bits.is_empty() && self.keeps_few(sort, into) {
                    return Filling::FirstOfPieces;
                }
                if sort.has_ranges() {
                    return Filling::WritePieces;
                }
            }
        }
        match self.splits_in_strides(kernel, into) {
            Some(bits) => Filling::SplitStrides(bits),
            None => Filling::InCore,
        }
    }

    /// What is to follow, by the exact number of rows.
    pub(in crate::exec) fn finishing(&self, into: ResultId) -> Finishing {
        if self.probes_split(into) {
            return Finishing::JoinPartitions;
        }
        let rows = self.frame.results[into].rows;
        match &self.frame.prepared.shapes[into] {
            Shape::Collected(_)
                if self.frame.exceeds_part(into, rows) && self.grouping(into).is_some() =>
            {
                Finishing::AggregateParts
            }
            Shape::Index(index) if self.can_split(into, index) => {
                let bits = self.split_bits(into, rows);
                bits.map_or(Finishing::InCore, Finishing::SplitIndex)
            }
            _ => Finishing::InCore,
        }
    }

    /// How rows are to be sorted, by their exact number.
    pub(in crate::exec) fn sorting(&self, sort: &PreparedSort) -> Sorting {
        let input = &self.frame.results[sort.rows];
        if input.heap.is_some() {
            Sorting::Pieces
        } else if !sort.has_ranges() || !self.frame.exceeds_part(sort.rows, input.rows) {
            Sorting::InCore
        } else if self.keeps_few_of(sort, input.rows) {
            Sorting::FirstOfPieces
        } else {
            Sorting::Ranges
        }
    }

    /// The step at hand goes by a strategy of these portions.
    pub(in crate::exec) fn note_strategy(&mut self, portions: Option<&'static str>) {
        if let Some(what) = portions {
            self.reports.portions.push(StepPortions {
                step: self.schedule.step,
                what,
                count: 0,
            });
        }
    }

    /// One more portion of the step at hand is done.
    pub(in crate::exec) fn count_portion(&mut self, of: PortionOf) {
        match of {
            PortionOf::Join => self.reports.join_parts += 1,
            PortionOf::Groups => self.reports.group_parts += 1,
            PortionOf::Sort => self.reports.sort_parts += 1,
            PortionOf::Input => {}
        }
        let step = self.schedule.step;
        let noted = self.reports.portions.iter_mut();
        if let Some(portions) = noted.rev().find(|portions| portions.step == step) {
            portions.count += 1;
        }
    }
}
