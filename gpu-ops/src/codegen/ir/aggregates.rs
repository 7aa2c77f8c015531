//! Every accumulator and call of an aggregation: what a group's state holds, and how results come from it.

use arrow::datatypes::DataType;

use super::accumulator::{Accumulator, EVERY_ROW, StateKind};
use super::range::Range;
use super::value::{CType, Meaning};
use crate::pipeline::AggregateFunction;

/// What tells the groups that have rows from others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::codegen) enum Existence {
    /// Something else than their states, or nothing must.
    Known,
    /// Their states, which blocks and threads may have of their own.
    OfCopies,
    /// Their states in device memory.
    OfPlaces,
}

/// How the result of one call is made from accumulators.
#[derive(Debug, Clone)]
pub struct CallPlan {
    /// The aggregate.
    pub function: AggregateFunction,
    /// Index of the accumulator with the sum, extreme or count.
    pub value: usize,
    /// Index of an accumulator that is not 0 when any row took part; over none the result is NULL. For averages it
    /// counts these rows. `None`: never NULL.
    pub count: Option<usize>,
    /// Averages alone, where the sum might leave 128 bits: index of the accumulator with the sum of all magnitudes, as a float.
    pub magnitude: Option<usize>,
    /// Type of the argument, for decoding and for the scale of averages.
    pub argument_type: Option<DataType>,
    /// What an extreme stands for.
    pub meaning: Meaning,
    /// C++ type of the argument's values.
    pub c_type: CType,
    /// All values that the result can take, for integers (unscaled for decimals).
    pub range: Range,
    /// Logical type of the result.
    pub return_type: DataType,
}

/// Every accumulator and call of an aggregate sink.
#[derive(Debug, Clone, Default)]
pub struct AccumulatorPlan {
    /// Deduplicated accumulators.
    pub accumulators: Vec<Accumulator>,
    /// One plan a call, in order.
    pub calls: Vec<CallPlan>,
    /// Bytes of one group's state.
    pub bytes: usize,
    /// There are keys: MIN and MAX over floats follow DataFusion's grouped accumulators.
    pub grouped: bool,
    /// The accumulator that is not 0 for groups that have rows, where nothing else tells.
    pub existence: Option<usize>,
    /// Each distinct argument and its bytes as a column would keep it.
    pub(in crate::codegen) arguments: Vec<(String, u32)>,
    /// Variables that hold codes: kind, number and name.
    pub(in crate::codegen) codes: Vec<(StateKind, String, String)>,
}

impl AccumulatorPlan {
    /// The plan with places for all cells. What only says whether there was a row goes where another cell says the
    /// same.
    pub(in crate::codegen) fn finished(&self, existence: Existence) -> Self {
        let mut plan = self.clone();
        // What stands for the presence of rows with this condition.
        let stand_in = |seen: usize| -> usize {
            let condition = &self.accumulators[seen].condition;
            let says = |a: &Accumulator| {
                a.condition == *condition
                    && (a.kind == StateKind::Count || a.is_code() || a.one_sign)
            };
            self.accumulators.iter().position(says).unwrap_or(seen)
        };
        for call in &mut plan.calls {
            if let Some(count) = call.count
                && self.accumulators[count].kind == StateKind::Seen
            {
                // A group has a row.
                let always = self.grouped && self.accumulators[count].condition == EVERY_ROW;
                call.count = (!always).then(|| stand_in(count));
            }
        }
        if existence != Existence::Known {
            let first = |a: &Accumulator| a.kind == StateKind::Seen && a.condition == EVERY_ROW;
            let seen = self.accumulators.iter().position(first);
            plan.existence = seen.map(stand_in);
            let split = |a: &Accumulator| a.split > 0 && a.condition == EVERY_ROW;
            // The states of a block are added to those behind them only where they are not 0.
            if existence == Existence::OfPlaces
                && plan.existence == seen
                && let Some(sum) = self.accumulators.iter().position(split)
            {
                plan.accumulators[sum].tells = true;
                plan.existence = Some(sum);
            }
        }
        // What nobody reads goes; the rest moves up.
        let used = |i: usize| {
            plan.existence == Some(i)
                || plan
                    .calls
                    .iter()
                    .any(|c| c.value == i || c.count == Some(i) || c.magnitude == Some(i))
        };
        let kept: Vec<usize> = (0..plan.accumulators.len()).filter(|i| used(*i)).collect();
        let place = |i: usize| kept.iter().position(|k| *k == i).unwrap_or(0);
        for call in &mut plan.calls {
            call.value = place(call.value);
            call.count = call.count.map(place);
            call.magnitude = call.magnitude.map(place);
        }
        plan.existence = plan.existence.map(place);
        plan.accumulators = kept.iter().map(|i| plan.accumulators[*i].clone()).collect();
        // Cells of 8 bytes first, so that all are aligned.
        plan.bytes = 0;
        for narrow in [false, true] {
            for a in plan.accumulators.iter_mut().filter(|a| a.narrow == narrow) {
                a.offset = plan.bytes;
                plan.bytes += a.bytes();
            }
        }
        plan
    }
}
