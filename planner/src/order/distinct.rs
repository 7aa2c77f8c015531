//! DISTINCT calls over many values: groups by key and value first, then by key, with partial states of the other calls.
//!
//! A group-by with a DISTINCT call looks each row up in a set of (key, value), a hash table that has room for a value a row. Where
//! there are many values, that is a random access to memory a row, far from any cache. Grouping by key and value instead may
//! partition the rows; what the other calls computed of each value's rows is then brought together for each key:
//!
//! ```text
//! γ(R; k; count(DISTINCT x), sum(y))   =   γ(γ(R; k, x; s = sum(y)); k; count(x), sum(s))
//! ```
//!
//! The price decides.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::ScalarValue;
use warpline_gpu::expr::{BinaryOp, Expr, Node};
use warpline_gpu::machine::Machine;
use warpline_gpu::pipeline::{Aggregate, AggregateCall, AggregateFunction};

use crate::choose::group::{GroupWorkload, choose_group};
use crate::config::GroupSetting;
use crate::rel::expr::{binary, cast, same};
use crate::rel::{Rel, RelKind, RelRef};
use crate::stats::{ColumnEstimate, Estimator};

/// Sets are replaced when that is cheaper by this factor, since it depends on one more estimate.
const CLEARLY: f64 = 0.8;

/// `rel` with such groups taken in two steps where that is cheaper.
pub(super) fn in_two_steps(rel: &RelRef, estimator: &Estimator<'_>, machine: &Machine) -> RelRef {
    let inputs = rel.inputs().into_iter();
    let inputs = inputs.map(|input| in_two_steps(input, estimator, machine));
    let rel = rel.with_inputs(inputs.collect());
    let RelKind::Aggregate { input, aggregate } = &rel.kind else {
        return rel;
    };
    match TwoSteps::of(input, aggregate) {
        Some(steps) if steps.pay(aggregate, estimator, machine) => steps.groups(&rel, aggregate),
        _ => rel,
    }
}

/// An aggregation by keys and values.
struct TwoSteps {
    by_value: RelRef,
    /// For each call, where its partial states begin behind the keys; that of a DISTINCT call is the value.
    states: Vec<usize>,
}

impl TwoSteps {
    /// The first step, if all DISTINCT calls are of one value and the others have partial states.
    fn of(input: &RelRef, aggregate: &Aggregate) -> Option<Self> {
        let mut distinct = aggregate.calls.iter().filter(|call| call.distinct);
        let value = distinct.next()?.argument.as_ref()?;
        let alike = |call: &AggregateCall| {
            call.filter.is_none() && call.argument.as_ref().is_some_and(|of| same(of, value))
        };
        // Sets tell the zeros of floats apart, groups do not.
        if !aggregate
            .calls
            .iter()
            .filter(|call| call.distinct)
            .all(alike)
            || value.data_type.is_floating()
        {
            return None;
        }
        let mut calls: Vec<AggregateCall> = Vec::new();
        let mut states = Vec::with_capacity(aggregate.calls.len());
        for call in &aggregate.calls {
            if call.distinct {
                states.push(aggregate.keys.len());
                continue;
            }
            // Without keys, extremes of floats follow another rule than those of groups.
            let extreme = matches!(
                call.function,
                AggregateFunction::Min | AggregateFunction::Max
            );
            if extreme && aggregate.keys.is_empty() && call.return_type.is_floating() {
                return None;
            }
            states.push(aggregate.keys.len() + 1 + calls.len());
            calls.extend(partial(call)?);
        }
        let keys: Vec<Expr> = aggregate.keys.iter().chain([value]).cloned().collect();
        let names: Vec<String> = (0..keys.len()).map(|i| format!("key{i}")).collect();
        let by_value = Rel::aggregate(Arc::clone(input), Aggregate { keys, calls }, &names);
        Some(Self { by_value, states })
    }

    /// Is it clearly cheaper than sets?
    fn pay(&self, aggregate: &Aggregate, estimator: &Estimator<'_>, machine: &Machine) -> bool {
        let RelKind::Aggregate {
            input,
            aggregate: inner,
        } = &self.by_value.kind
        else {
            return false;
        };
        let rows = estimator.rows(input);
        let columns: Vec<ColumnEstimate> = inner
            .keys
            .iter()
            .map(|key| estimator.of_expr(input, key))
            .collect();
        let values = estimator.rows(&self.by_value);
        let groups = crate::stats::combinations(&columns[..aggregate.keys.len()], rows);
        let workload = |rows: f64, groups: f64, keys: &[ColumnEstimate], calls: usize| {
            let bits: f64 = keys.iter().map(bits).sum();
            let key_bytes = match bits as u32 {
                0..32 => 4,
                32..64 => 8,
                _ => 16,
            };
            GroupWorkload {
                rows,
                most_rows: rows,
                groups,
                key_bytes,
                key_words: key_bytes.div_ceil(8),
                dense_domain: (bits < 32.0).then(|| bits.exp2() as u64),
                state_bytes: 8 * calls.max(1) as u32,
                payload: vec![4; calls],
                ..GroupWorkload::default()
            }
        };
        let price = |w: &GroupWorkload| choose_group(GroupSetting::Auto, w, machine).price.ms;
        let by_key = &columns[..aggregate.keys.len()];
        let calls = aggregate.calls.len();
        let direct = match by_key.is_empty() {
            true => 0.0,
            false => price(&workload(rows, groups, by_key, calls)),
        };
        // A slot a row, half as many again free, of the words of the key and its state.
        let slot = f64::from(workload(rows, values, &columns, 0).key_bytes.max(8)) + 4.0;
        let room = rows * 1.5 * slot;
        let looked_up = rows * 2.0 * machine.gather(8.0, room) * 1e-9;
        let sets = machine.stream(room) + looked_up;
        let first = price(&workload(rows, values, &columns, inner.calls.len()));
        let second = match by_key.is_empty() {
            true => machine.stream(values * slot),
            false => price(&workload(values, groups, by_key, calls)),
        };
        first + second < (direct + sets) * CLEARLY
    }

    /// The groups of both steps, with the columns of `rel`.
    fn groups(&self, rel: &RelRef, aggregate: &Aggregate) -> RelRef {
        let keys = aggregate.keys.len();
        let mut calls = Vec::new();
        let mut places = Vec::with_capacity(aggregate.calls.len());
        for (call, at) in aggregate.calls.iter().zip(&self.states) {
            places.push(keys + calls.len());
            let of =
                |state: usize, function: AggregateFunction, return_type: DataType| AggregateCall {
                    function,
                    argument: Some(self.by_value.column(at + state)),
                    filter: None,
                    distinct: false,
                    return_type,
                    name: call.name.clone(),
                };
            match (call.distinct, call.function) {
                (true, function) => calls.push(of(0, function, call.return_type.clone())),
                (false, AggregateFunction::Avg) => {
                    calls.push(of(0, AggregateFunction::Sum, DataType::Float64));
                    calls.push(of(1, AggregateFunction::Sum, DataType::Int64));
                }
                (false, AggregateFunction::Count) => {
                    calls.push(of(0, AggregateFunction::Sum, DataType::Int64));
                }
                (false, function) => calls.push(of(0, function, call.return_type.clone())),
            }
        }
        let names: Vec<String> = rel.columns[..keys].iter().map(|c| c.name.clone()).collect();
        let outer = Aggregate {
            keys: (0..keys).map(|i| self.by_value.column(i)).collect(),
            calls,
        };
        let groups = Rel::aggregate(Arc::clone(&self.by_value), outer, &names);
        let value = |call: &AggregateCall, at: usize| match (call.distinct, call.function) {
            (false, AggregateFunction::Count) => or_zero(groups.column(at)),
            (false, AggregateFunction::Avg) => {
                let rows = cast(groups.column(at + 1), DataType::Float64);
                binary(BinaryOp::Divide, groups.column(at), rows, DataType::Float64)
            }
            _ => groups.column(at),
        };
        let values = aggregate.calls.iter().zip(places);
        let values = values.map(|(call, at)| value(call, at));
        let columns = (0..keys).map(|i| groups.column(i)).chain(values);
        let names = rel.columns.iter().map(|column| column.name.clone());
        Rel::project(Arc::clone(&groups), columns.zip(names).collect())
    }
}

/// What a call computes of the rows of a value, if that can be brought together.
fn partial(call: &AggregateCall) -> Option<Vec<AggregateCall>> {
    match call.function {
        AggregateFunction::Avg if call.return_type != DataType::Float64 => None,
        AggregateFunction::Avg => Some(vec![
            AggregateCall {
                function: AggregateFunction::Sum,
                ..call.clone()
            },
            AggregateCall {
                function: AggregateFunction::Count,
                return_type: DataType::Int64,
                ..call.clone()
            },
        ]),
        _ => Some(vec![call.clone()]),
    }
}

/// Bits of a key as it is packed.
fn bits(key: &ColumnEstimate) -> f64 {
    let values = match key.range {
        Some((least, most)) => most - least + 2.0,
        None => key.distinct + 1.0,
    };
    values.max(2.0).log2().ceil()
}

/// A count, zero where there was no row at all.
fn or_zero(count: Expr) -> Expr {
    let zero = Expr::literal(ScalarValue::Int64(Some(0)));
    Expr {
        data_type: DataType::Int64,
        nullable: false,
        node: Node::Coalesce(vec![count, zero]),
    }
}
