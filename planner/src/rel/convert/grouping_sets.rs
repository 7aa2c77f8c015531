//! GROUPING SETS, ROLLUP and CUBE: one grouping a set, coarser ones from the groups of finer ones where the calls allow that.
//!
//! DataFusion's rows: all keys, NULL where the set lacks them; the number of the set, whose low bits say which keys are
//! lacking and whose high bits tell equal sets apart; the calls.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::datatypes::{DECIMAL128_MAX_PRECISION, DataType};
use datafusion::scalar::ScalarValue;
use warpline_gpu::expr::{BinaryOp, Expr};
use warpline_gpu::pipeline::{Aggregate, AggregateCall, AggregateFunction};

use super::aggregate::{self, Call, decimal_average, sums_in_128_bits};
use super::grouping::Grouping;
use crate::reason::{Reason, refuse};
use crate::rel::expr::{binary, case, cast, is_not_null, null};
use crate::rel::{Rel, RelRef};

/// Most sets of one grouping: each is a pipeline of its own.
const MOST_SETS: usize = 64;

/// The groups of all sets. A set has true for each key that it lacks.
pub(super) fn grouped(
    grouping: &Grouping,
    sets: &[Vec<bool>],
    number: &DataType,
    calls: &[Call],
) -> Result<RelRef, Reason> {
    if sets.len() > MOST_SETS {
        return refuse(format!(
            "{} grouping sets run on the CPU, at most {MOST_SETS} on the device",
            sets.len()
        ));
    }
    let states: Option<Vec<State>> = calls.iter().map(State::of).collect();
    // Finer sets first, so that coarser ones find them.
    let mut order: Vec<&Vec<bool>> = sets.iter().collect();
    order.sort_by_key(|set| lacking(set));
    order.dedup();
    let mut made: Vec<(&Vec<bool>, RelRef)> = Vec::with_capacity(order.len());
    for set in order {
        if made.iter().any(|(other, _)| *other == set) {
            continue;
        }
        let groups = match &states {
            None => aggregate::grouped(&within(grouping, set), calls)?,
            Some(states) => {
                let finer = |(other, _): &&(&Vec<bool>, RelRef)| {
                    other
                        .iter()
                        .zip(set)
                        .all(|(theirs, ours)| *ours || !*theirs)
                };
                // The one with the fewest keys has the fewest groups.
                match made
                    .iter()
                    .filter(finer)
                    .max_by_key(|(set, _)| lacking(set))
                {
                    Some((finer, groups)) => merged(groups, finer, set, states),
                    None => first(grouping, set, states),
                }
            }
        };
        made.push((set, groups));
    }
    let mut seen: HashMap<&Vec<bool>, u64> = HashMap::new();
    let mut rows = Vec::with_capacity(sets.len());
    for set in sets {
        let Some((_, groups)) = made.iter().find(|(other, _)| *other == set) else {
            continue;
        };
        let ordinal = seen.entry(set).or_default();
        let lacked = set
            .iter()
            .fold(0u64, |bits, lacks| bits << 1 | u64::from(*lacks));
        let id = lacked | ordinal.checked_shl(set.len() as u32).unwrap_or(0);
        *ordinal += 1;
        let id = ScalarValue::UInt64(Some(id)).cast_to(number)?;
        rows.push(rows_of(
            grouping,
            groups,
            set,
            id,
            calls,
            states.as_deref(),
        )?);
    }
    Ok(match rows.len() {
        1 => rows.remove(0),
        _ => Rel::union(rows),
    })
}

/// Keys that a set lacks.
fn lacking(set: &[bool]) -> usize {
    set.iter().filter(|lacks| **lacks).count()
}

/// The grouping by the keys that the set has.
fn within(grouping: &Grouping, set: &[bool]) -> Grouping {
    let kept = |i: &usize| !set[*i];
    let places: Vec<usize> = (0..set.len()).filter(kept).collect();
    Grouping {
        input: Arc::clone(&grouping.input),
        keys: places.iter().map(|i| grouping.keys[*i].clone()).collect(),
        names: places.iter().map(|i| grouping.names[*i].clone()).collect(),
    }
}

/// A call whose value for a group comes from those of the group's parts.
#[derive(Debug)]
struct State {
    /// What is computed of rows; [`merging`] has what is computed of each of these then.
    of_rows: Vec<AggregateCall>,
    kind: Kind,
    /// Of the call's value.
    data_type: DataType,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Plain,
    Truth,
    /// 0 of no rows.
    Count,
    /// A sum over a count.
    Average,
    /// The same of decimals.
    DecimalAverage,
}

impl State {
    fn of(call: &Call) -> Option<Self> {
        let (call, kind) = match call {
            Call::Plain(call) => (call, Kind::Plain),
            Call::Cast(call, DataType::Boolean) => (call, Kind::Truth),
            Call::Cast(..) | Call::Moment(_) | Call::Ranked(_) => return None,
        };
        if call.distinct {
            return None;
        }
        let one = |kind| Self {
            of_rows: vec![call.clone()],
            kind,
            data_type: call.return_type.clone(),
        };
        Some(match call.function {
            AggregateFunction::Count => one(Kind::Count),
            AggregateFunction::Sum
            | AggregateFunction::Min
            | AggregateFunction::Max
            | AggregateFunction::Any
            | AggregateFunction::BitAnd
            | AggregateFunction::BitOr
            | AggregateFunction::BitXor => one(kind),
            AggregateFunction::Avg if call.return_type == DataType::Float64 => Self {
                of_rows: vec![
                    AggregateCall {
                        function: AggregateFunction::Sum,
                        ..call.clone()
                    },
                    AggregateCall {
                        function: AggregateFunction::Count,
                        return_type: DataType::Int64,
                        ..call.clone()
                    },
                ],
                kind: Kind::Average,
                data_type: call.return_type.clone(),
            },
            AggregateFunction::Avg => {
                let argument = call.argument.as_ref()?;
                let DataType::Decimal128(_, scale) = argument.data_type else {
                    return None;
                };
                // DataFusion has wider sums of wider values.
                if !sums_in_128_bits(&argument.data_type) {
                    return None;
                }
                Self {
                    of_rows: vec![
                        AggregateCall {
                            function: AggregateFunction::Sum,
                            return_type: DataType::Decimal128(DECIMAL128_MAX_PRECISION, scale),
                            ..call.clone()
                        },
                        AggregateCall {
                            function: AggregateFunction::Count,
                            return_type: DataType::Int64,
                            ..call.clone()
                        },
                    ],
                    kind: Kind::DecimalAverage,
                    data_type: call.return_type.clone(),
                }
            }
        })
    }

    /// The call's value, of columns from `at` on.
    fn value(&self, groups: &RelRef, at: usize) -> Expr {
        let column = |i: usize| groups.column(at + i);
        let zero = || Expr::literal(ScalarValue::Int64(Some(0)));
        match self.kind {
            Kind::Plain => column(0),
            Kind::Truth => cast(column(0), DataType::Boolean),
            Kind::Count if column(0).nullable => case(is_not_null(column(0)), column(0), zero()),
            Kind::Count => column(0),
            Kind::Average => {
                let count = cast(column(1), DataType::Float64);
                binary(BinaryOp::Divide, column(0), count, DataType::Float64)
            }
            Kind::DecimalAverage => decimal_average(column(0), column(1), self.data_type.clone()),
        }
    }
}

/// What brings together what a function computed of parts of a group.
fn merging(function: AggregateFunction) -> AggregateFunction {
    match function {
        AggregateFunction::Count => AggregateFunction::Sum,
        other => other,
    }
}

/// The states of a set's groups, of rows.
fn first(grouping: &Grouping, set: &[bool], states: &[State]) -> RelRef {
    let Grouping { input, keys, names } = within(grouping, set);
    let calls = states.iter().flat_map(|state| state.of_rows.clone());
    let calls = calls.collect();
    Rel::aggregate(input, Aggregate { keys, calls }, &names)
}

/// The states of a set's groups, of those of a finer set.
fn merged(groups: &RelRef, finer: &[bool], set: &[bool], states: &[State]) -> RelRef {
    let had: Vec<usize> = (0..set.len()).filter(|i| !finer[*i]).collect();
    let kept: Vec<usize> = (0..had.len()).filter(|i| !set[had[*i]]).collect();
    let keys = kept.iter().map(|i| groups.column(*i)).collect();
    let names: Vec<String> = kept
        .iter()
        .map(|i| groups.columns[*i].name.clone())
        .collect();
    let parts = states.iter().flat_map(|state| &state.of_rows);
    let calls = parts.enumerate().map(|(i, call)| AggregateCall {
        function: merging(call.function),
        argument: Some(groups.column(had.len() + i)),
        filter: None,
        ..call.clone()
    });
    let calls = calls.collect();
    Rel::aggregate(Arc::clone(groups), Aggregate { keys, calls }, &names)
}

/// The rows of a set: all keys, its number, the calls.
fn rows_of(
    grouping: &Grouping,
    groups: &RelRef,
    set: &[bool],
    number: ScalarValue,
    calls: &[Call],
    states: Option<&[State]>,
) -> Result<RelRef, Reason> {
    let mut exprs = Vec::with_capacity(set.len() + 1 + calls.len());
    let mut at = 0;
    for ((key, name), lacks) in grouping.keys.iter().zip(&grouping.names).zip(set) {
        let key = match lacks {
            true => null(&key.data_type)?,
            false => {
                at += 1;
                groups.column(at - 1)
            }
        };
        exprs.push((key, name.clone()));
    }
    exprs.push((Expr::literal(number), "__grouping_id".to_string()));
    for i in 0..calls.len() {
        let name = groups.columns[at].name.clone();
        match states {
            None => {
                exprs.push((groups.column(at), name));
                at += 1;
            }
            Some(states) => {
                exprs.push((states[i].value(groups, at), name));
                at += states[i].of_rows.len();
            }
        }
    }
    Ok(Rel::project(Arc::clone(groups), exprs))
}
