//! String columns that must be loaded as dictionary codes.
//!
//! Functions of one string column that the device runs on its bytes ([`bytes_supported`]) need none, and the
//! short strings that some of them return can be grouped and ordered as they are; nor do strings in which others are sought
//! ([`Sought`]). Everything else that looks into strings does: keys of joins, groups and orders, comparisons between columns, values of CASE.

use std::collections::HashSet;
use std::sync::Arc;

use warpline_gpu::codegen::{Sought, bytes_supported};
use warpline_gpu::expr::{Expr, Node};
use warpline_gpu::graph::WindowColumn;
use warpline_gpu::pipeline::AggregateFunction;

use super::expr::{as_column, columns};
use super::{Rel, RelKind, RelRef, ScanTable};
use crate::translate::is_string;

/// Columns by table (its address) and position in the table.
pub type Coded = HashSet<(*const ScanTable, usize)>;

/// The use of a string.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Use {
    /// As a grouping or sort key: a short string that a function returns will do.
    Order,
    /// Codes of a dictionary.
    Codes,
}

/// What is found.
#[derive(Default)]
struct Found {
    coded: Coded,
    /// Columns that were followed, by the address of their relation.
    seen: HashSet<(*const Rel, usize, Use)>,
}

/// The string columns of tables of which `rel` needs codes.
///
/// With `hopeful`, grouping keys beside a key that is no string do not count: they may turn out to follow from
/// it, and a column of few distinct strings has codes anyway.
pub fn coded(rel: &RelRef, hopeful: bool) -> Coded {
    let mut found = Found::default();
    rel.for_each(&mut |rel| match &rel.kind {
        RelKind::Scan { .. } | RelKind::One | RelKind::Scalar { .. } => {}
        RelKind::Filter { input, conjuncts } => all(&[input], conjuncts, &mut found),
        RelKind::Project { input, exprs } => all(&[input], exprs, &mut found),
        RelKind::Aggregate { input, aggregate } => {
            let number = |key: &Expr| as_column(key).is_some() && !is_string(&key.data_type);
            let follow = hopeful && aggregate.keys.iter().any(number);
            for key in &aggregate.keys {
                match follow && as_column(key).is_some() {
                    true => {}
                    false => value(&[input], key, Use::Order, &mut found),
                }
            }
            for call in &aggregate.calls {
                let ordered = matches!(
                    call.function,
                    AggregateFunction::Min | AggregateFunction::Max
                );
                if let Some(argument) = &call.argument {
                    match ordered || call.distinct {
                        true => value(&[input], argument, Use::Order, &mut found),
                        false => inside(&[input], argument, &mut found),
                    }
                }
                all(&[input], &call.filter, &mut found);
            }
        }
        RelKind::Join(join) => {
            for (l, r) in &join.on {
                value(&[&join.left], l, Use::Codes, &mut found);
                value(&[&join.right], r, Use::Codes, &mut found);
            }
            all(&[&join.left, &join.right], &join.residual, &mut found);
        }
        RelKind::Sort { input, keys, .. } => {
            for key in keys {
                column(&[input], key.column, Use::Order, &mut found);
            }
        }
        RelKind::Window {
            input,
            keys,
            window,
        } => {
            for key in keys {
                column(&[input], key.column, Use::Order, &mut found);
            }
            for added in &window.columns {
                if let WindowColumn::Running(_, of) | WindowColumn::Extreme(_, of, _) = added {
                    column(&[input], *of, Use::Codes, &mut found);
                }
            }
        }
        RelKind::Union(inputs) => {
            for index in 0..rel.columns.len() {
                for input in inputs {
                    column(&[input], index, Use::Codes, &mut found);
                }
            }
        }
    });
    found.coded
}

fn all<'e>(inputs: &[&RelRef], exprs: impl IntoIterator<Item = &'e Expr>, found: &mut Found) {
    for expr in exprs {
        inside(inputs, expr, found);
    }
}

/// What the operators inside of `expr`, over the columns of `inputs` one after the other, need; its own value is
/// only handed on.
fn inside(inputs: &[&RelRef], expr: &Expr, found: &mut Found) {
    match &expr.node {
        Node::Column(_) | Node::Literal(_) | Node::RowNumber => {}
        Node::PerDistinct {
            column: i,
            function,
        } => {
            let lies_as_bytes = || {
                let (rel, at) = resolve(inputs, *i)?;
                bytes_supported(function, &rel.columns.get(at)?.data_type).ok()
            };
            if lies_as_bytes().is_none() || is_computed(inputs, *i) {
                column(inputs, *i, Use::Codes, found);
            }
        }
        // Validity is known of any string.
        Node::IsNull(operand) | Node::IsNotNull(operand) => inside(inputs, operand, found),
        Node::Binary { left, right, .. } => {
            operand(inputs, left, found);
            operand(inputs, right, found);
        }
        Node::Not(e)
        | Node::Negate(e)
        | Node::Cast { value: e, .. }
        | Node::InList { value: e, .. }
        | Node::Calendar { value: e, .. }
        | Node::DatePart { value: e, .. } => operand(inputs, e, found),
        Node::Case {
            branches,
            otherwise,
        } => {
            for (when, then) in branches {
                inside(inputs, when, found);
                operand(inputs, then, found);
            }
            if let Some(otherwise) = otherwise {
                operand(inputs, otherwise, found);
            }
        }
        Node::PerCombination {
            inputs: list,
            function,
        } => {
            let searched = Sought::of(function, list).map(|sought| sought.searched());
            for (place, e) in list.iter().enumerate() {
                let lies_as_bytes = Some(place) == searched
                    && as_column(e).is_some_and(|i| !is_computed(inputs, i));
                if !lies_as_bytes {
                    operand(inputs, e, found);
                }
            }
        }
        Node::Coalesce(list)
        | Node::Math {
            arguments: list, ..
        } => list.iter().for_each(|e| operand(inputs, e, found)),
    }
}

/// An operand whose value is looked into.
fn operand(inputs: &[&RelRef], expr: &Expr, found: &mut Found) {
    match is_string(&expr.data_type) {
        true => value(inputs, expr, Use::Codes, found),
        false => inside(inputs, expr, found),
    }
}

/// An expression whose value is used so.
fn value(inputs: &[&RelRef], expr: &Expr, wanted: Use, found: &mut Found) {
    inside(inputs, expr, found);
    let packed = matches!(&expr.node, Node::PerDistinct { .. }) && wanted == Use::Order;
    if is_string(&expr.data_type) && !packed {
        for i in columns(expr) {
            column(inputs, i, Use::Codes, found);
        }
    }
}

/// Is the column of `inputs` computed, rather than one of a table?
fn is_computed(inputs: &[&RelRef], index: usize) -> bool {
    let Some((rel, index)) = resolve(inputs, index) else {
        return true;
    };
    match &rel.kind {
        RelKind::Scan { .. } => false,
        RelKind::One | RelKind::Union(_) => true,
        RelKind::Filter { input, .. } | RelKind::Sort { input, .. } => is_computed(&[input], index),
        RelKind::Window { input, .. } => {
            index >= input.columns.len() || is_computed(&[input], index)
        }
        RelKind::Project { input, exprs } => match exprs.get(index).map(|expr| &expr.node) {
            Some(Node::Column(i)) => is_computed(&[input], *i),
            _ => true,
        },
        RelKind::Join(join) => is_computed(&[&join.left, &join.right], index),
        RelKind::Scalar { input, subquery } => is_computed(&[input, subquery], index),
        RelKind::Aggregate { input, aggregate } => {
            let keys = aggregate.keys.len();
            let from = match aggregate.keys.get(index) {
                Some(key) => Some(key),
                None => aggregate
                    .calls
                    .get(index - keys)
                    .and_then(|call| call.argument.as_ref()),
            };
            match from.map(|expr| &expr.node) {
                Some(Node::Column(i)) => is_computed(&[input], *i),
                _ => true,
            }
        }
    }
}

/// Which of the inputs column `index` of all of them belongs to, and which it is there.
fn resolve<'r>(inputs: &[&'r RelRef], mut index: usize) -> Option<(&'r RelRef, usize)> {
    for input in inputs {
        match index.checked_sub(input.columns.len()) {
            None => return Some((input, index)),
            Some(rest) => index = rest,
        }
    }
    None
}

/// Follow a column down to the tables that its values come from.
fn column(inputs: &[&RelRef], index: usize, wanted: Use, found: &mut Found) {
    let Some((rel, index)) = resolve(inputs, index) else {
        return;
    };
    let described = rel.columns.get(index);
    if !described.is_some_and(|c| is_string(&c.data_type)) {
        return;
    }
    if !found.seen.insert((Arc::as_ptr(rel), index, wanted)) {
        return;
    }
    match &rel.kind {
        RelKind::Scan { table, columns } => {
            found.coded.insert((Arc::as_ptr(table), columns[index]));
        }
        RelKind::One => {}
        RelKind::Filter { input, .. } | RelKind::Sort { input, .. } => {
            column(&[input], index, wanted, found);
        }
        RelKind::Window { input, window, .. } => match index.checked_sub(input.columns.len()) {
            None => column(&[input], index, wanted, found),
            Some(added) => {
                if let Some(WindowColumn::Running(_, of)) = window.columns.get(added) {
                    column(&[input], *of, wanted, found);
                }
            }
        },
        RelKind::Project { input, exprs } => computed(input, &exprs[index], wanted, found),
        RelKind::Join(join) => column(&[&join.left, &join.right], index, wanted, found),
        RelKind::Aggregate { input, aggregate } => {
            let keys = aggregate.keys.len();
            let from = match aggregate.keys.get(index) {
                Some(key) => Some(key),
                None => aggregate.calls[index - keys].argument.as_ref(),
            };
            if let Some(expr) = from {
                computed(input, expr, wanted, found);
            }
        }
        RelKind::Union(inputs) => {
            for input in inputs {
                column(&[input], index, wanted, found);
            }
        }
        RelKind::Scalar { input, subquery } => column(&[input, subquery], index, wanted, found),
    }
}

/// A column that is `expr` over `input`.
fn computed(input: &RelRef, expr: &Expr, wanted: Use, found: &mut Found) {
    match &expr.node {
        Node::Column(i) => column(&[input], *i, wanted, found),
        _ => value(&[input], expr, wanted, found),
    }
}
