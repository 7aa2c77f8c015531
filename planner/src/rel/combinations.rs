//! Lookups by combination whose inputs are results of aggregates or windows: these may have any value, so that they run on
//! the CPU, over what the device has aggregated.

use std::collections::HashMap;
use std::sync::Arc;

use warpline_gpu::codegen::Sought;
use warpline_gpu::expr::{Expr, Node};
use warpline_gpu::pipeline::AggregateFunction;

use super::expr::{children, columns};
use super::{Rel, RelKind, RelRef};
use crate::reason::{Reason, refuse};
use crate::translate::{is_string, short_type};

/// By the address of a relation and a column: are its values those of a table?
type Known = HashMap<(*const Rel, usize), bool>;

/// Refuses a relation with a lookup by combination that has no hope of few combinations, or, unless `allowed`, with any but those that
/// need none of few: one string that is sought in another.
///
/// # Errors
/// The reason for the first of them.
pub fn check(rel: &RelRef, allowed: bool) -> Result<(), Reason> {
    let mut outcome = Ok(());
    let mut known = Known::new();
    rel.for_each(&mut |rel| {
        let inputs = rel.inputs();
        let mut expressions: Vec<&Expr> = Vec::new();
        match &rel.kind {
            RelKind::Filter { conjuncts, .. } => expressions.extend(conjuncts),
            RelKind::Project { exprs, .. } => expressions.extend(exprs),
            RelKind::Aggregate { aggregate, .. } => {
                expressions.extend(&aggregate.keys);
                for call in &aggregate.calls {
                    expressions.extend(call.argument.iter().chain(&call.filter));
                }
            }
            RelKind::Join(join) => expressions.extend(&join.residual),
            _ => {}
        }
        for expr in expressions {
            if outcome.is_ok() {
                outcome = few(expr, &inputs, allowed, &mut known);
            }
        }
        if let RelKind::Join(join) = &rel.kind {
            for (left, right) in &join.on {
                if outcome.is_ok() {
                    outcome = few(left, &[&join.left], allowed, &mut known)
                        .and_then(|()| few(right, &[&join.right], allowed, &mut known));
                }
            }
        }
    });
    outcome
}

/// Can the lookups in `expr`, over the columns of `inputs` one after the other, have few combinations?
fn few(expr: &Expr, inputs: &[&RelRef], allowed: bool, known: &mut Known) -> Result<(), Reason> {
    if let Node::PerCombination {
        inputs: values,
        function,
    } = &expr.node
    {
        let sought = Sought::of(function, values).is_some_and(|sought| !sought.may_be_refused());
        if !allowed && !sought {
            return refuse(format!("{function} runs on the CPU"));
        }
        for value in values {
            let any = matches!(value.node, Node::DatePart { .. })
                || is_string(&value.data_type)
                || short_type(&value.data_type);
            if !any
                && !columns(value)
                    .iter()
                    .all(|i| is_of_table(inputs, *i, known))
            {
                return refuse(format!(
                    "{function} over results of aggregates runs on the CPU"
                ));
            }
        }
    }
    children(expr)
        .into_iter()
        .try_for_each(|e| few(e, inputs, allowed, known))
}

/// Are the values of column `index` of `inputs` those of a table?
fn is_of_table(inputs: &[&RelRef], mut index: usize, known: &mut Known) -> bool {
    let mut found = None;
    for input in inputs {
        match index.checked_sub(input.columns.len()) {
            None => {
                found = Some(*input);
                break;
            }
            Some(rest) => index = rest,
        }
    }
    let Some(rel) = found else {
        return false;
    };
    if let Some(known) = known.get(&(Arc::as_ptr(rel), index)) {
        return *known;
    }
    let of_table = is_of_table_below(rel, index, known);
    known.insert((Arc::as_ptr(rel), index), of_table);
    of_table
}

/// The same for column `index` of `rel`, by its inputs.
fn is_of_table_below(rel: &RelRef, index: usize, known: &mut Known) -> bool {
    let mut of = |inputs: &[&RelRef], index: usize| is_of_table(inputs, index, known);
    match &rel.kind {
        RelKind::Scan { .. } | RelKind::One => true,
        RelKind::Filter { input, .. } | RelKind::Sort { input, .. } => of(&[input], index),
        RelKind::Union(inputs) => inputs.iter().all(|input| of(&[input], index)),
        RelKind::Window { input, .. } => index < input.columns.len() && of(&[input], index),
        RelKind::Project { input, exprs } => exprs
            .get(index)
            .is_some_and(|expr| computed(expr, input, &mut of)),
        RelKind::Join(join) => of(&[&join.left, &join.right], index),
        RelKind::Scalar { input, subquery } => of(&[input, subquery], index),
        RelKind::Aggregate { input, aggregate } => {
            let keys = aggregate.keys.len();
            match aggregate.keys.get(index) {
                Some(key) => computed(key, input, &mut of),
                None => aggregate.calls.get(index - keys).is_some_and(|call| {
                    let kept = matches!(
                        call.function,
                        AggregateFunction::Min | AggregateFunction::Max
                    );
                    kept && call
                        .argument
                        .as_ref()
                        .is_some_and(|e| computed(e, input, &mut of))
                }),
            }
        }
    }
}

/// Are the values of an expression over `input` computed of those of a table alone?
fn computed(expr: &Expr, input: &RelRef, of: &mut impl FnMut(&[&RelRef], usize) -> bool) -> bool {
    columns(expr).into_iter().all(|i| of(&[input], i))
}
