//! Columns of tables that operators above come to ask for: each operator between passes them on, beside what it yields already.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::scalar::ScalarValue;
use warpline_gpu::column::is_opaque;
use warpline_gpu::expr::Expr;
use warpline_gpu::pipeline::{Aggregate, AggregateCall, AggregateFunction};

use super::super::expr::{as_column, case, is_not_null, renumber};
use super::super::{Join, JoinKind, Rel, RelKind, RelRef, ScanTable};

/// What is looked for: a column that a table has in place of some of a relation's columns.
pub(super) trait Target: Sized {
    /// The columns of the relation.
    fn columns(&self) -> Vec<usize>;

    /// The same in place of the columns of a relation below, or of a table.
    fn at(&self, columns: &[usize]) -> Option<Self>;

    /// The same in place of the columns of `input`, of which its columns are these expressions.
    fn through(&self, exprs: &[&Expr], _input: &RelRef) -> Option<Self> {
        let columns: Option<Vec<usize>> = exprs.iter().map(|e| as_column(e)).collect();
        self.at(&columns?)
    }

    /// Is it the same wherever its columns have the same values?
    fn is_of_values(&self) -> bool;

    /// Can it be found below this relation?
    fn may_be_of(&self, rel: &RelRef) -> bool;

    /// The table with the column, and the column's number, in place of columns of the table.
    fn of_table(&self, table: &Arc<ScanTable>) -> Option<(Arc<ScanTable>, usize)>;

    /// What takes its place where the columns are these expressions, which are not all columns.
    fn of_constants(&self, exprs: &[&Expr]) -> Option<Expr>;

    /// What it is where a row has no match, so that all its columns are NULL; `None` where it cannot be found then.
    fn of_no_match(&self) -> Option<ScalarValue>;

    /// What the column is called.
    fn name(&self) -> String;
}

/// `rel` with the target as a column of it, the last one unless it had it before; and which.
pub(super) fn reach(rel: &RelRef, target: &impl Target) -> Option<(RelRef, usize)> {
    if !target.may_be_of(rel) {
        return None;
    }
    let width = rel.columns.len();
    match &rel.kind {
        RelKind::Scan { table, columns } => {
            let of_table: Option<Vec<usize>> = target
                .columns()
                .iter()
                .map(|column| columns.get(*column).copied())
                .collect();
            let (table, wanted) = target.at(&of_table?)?.of_table(table)?;
            let mut columns = columns.clone();
            let at = columns.iter().position(|c| *c == wanted);
            let at = at.unwrap_or_else(|| {
                columns.push(wanted);
                width
            });
            Some((Rel::scan(table, columns), at))
        }
        RelKind::Filter { input, conjuncts } => {
            let (input, at) = reach(input, target)?;
            Some((Rel::filter(input, conjuncts.clone()), at))
        }
        RelKind::Sort {
            input,
            keys,
            skip,
            fetch,
        } => {
            let (input, at) = reach(input, target)?;
            Some((Rel::sort(input, keys.clone(), *skip, *fetch), at))
        }
        RelKind::Project { input, exprs } => {
            let passed = target.columns();
            let passed = passed.iter().map(|column| exprs.get(*column));
            let passed: Vec<&Expr> = passed.collect::<Option<_>>()?;
            let (input, added) = match target.through(&passed, input) {
                Some(target) => {
                    let (input, at) = reach(input, &target)?;
                    let added = input.column(at);
                    (input, added)
                }
                None => (Arc::clone(input), target.of_constants(&passed)?),
            };
            let names = rel.columns.iter().map(|column| column.name.clone());
            let mut named: Vec<_> = exprs.iter().cloned().zip(names).collect();
            let had = as_column(&added)
                .and_then(|added| exprs.iter().position(|e| as_column(e) == Some(added)));
            let at = had.unwrap_or_else(|| {
                named.push((added, target.name()));
                width
            });
            Some((Rel::project(input, named), at))
        }
        RelKind::Join(join) => of_join(rel, join, target),
        RelKind::Scalar { input, subquery } => {
            let left = input.columns.len();
            let (input, at) = reach_left(input, target)?;
            let added = input.columns.len() - left;
            let with = Rel::scalar(input, Arc::clone(subquery));
            Some(behind(&with, left, added, width, at))
        }
        RelKind::Window {
            input,
            keys,
            window,
        } => {
            let left = input.columns.len();
            let (input, at) = reach_left(input, target)?;
            let added = input.columns.len() - left;
            let own = rel.columns[left..].iter();
            let own = own.map(|column| (column.name.clone(), column.data_type.clone()));
            let with = Rel::window(input, keys.clone(), window.clone(), own.collect());
            Some(behind(&with, left, added, width, at))
        }
        RelKind::Union(inputs) => {
            let with = inputs.iter().map(|input| {
                let (with, at) = reach(input, target)?;
                let columns: Vec<usize> = (0..width).chain([at]).collect();
                Some(Rel::select(with, &columns))
            });
            Some((Rel::union(with.collect::<Option<_>>()?), width))
        }
        RelKind::Aggregate { input, aggregate } => of_groups(rel, input, aggregate, target),
        RelKind::One => None,
    }
}

/// What is made of keys of groups: any value of a group's rows, in all of which it is the same.
fn of_groups(
    rel: &RelRef,
    input: &RelRef,
    aggregate: &Aggregate,
    target: &impl Target,
) -> Option<(RelRef, usize)> {
    let keys = target.columns();
    let keys = keys.iter().map(|column| aggregate.keys.get(*column));
    let keys: Vec<&Expr> = keys.collect::<Option<_>>()?;
    // The two zeros of floats are one group.
    let differ = keys.iter().any(|key| key.data_type.is_floating());
    if differ || !target.is_of_values() {
        return None;
    }
    let (input, at) = reach(input, &target.through(&keys, input)?)?;
    let value = input.column(at);
    if is_opaque(&value.data_type) || value.data_type == DataType::Boolean {
        return None;
    }
    let mut aggregate = aggregate.clone();
    aggregate.calls.push(AggregateCall {
        function: AggregateFunction::Min,
        return_type: value.data_type.clone(),
        argument: Some(value),
        filter: None,
        distinct: false,
        name: target.name(),
    });
    let names = rel.columns.iter().map(|column| column.name.clone());
    let names: Vec<String> = names.take(aggregate.keys.len()).collect();
    Some((Rel::aggregate(input, aggregate, &names), rel.columns.len()))
}

/// [`reach`] of columns that are all those of `input`, to which others were added.
fn reach_left(input: &RelRef, target: &impl Target) -> Option<(RelRef, usize)> {
    let left = input.columns.len();
    let own = target.columns().iter().all(|column| *column < left);
    own.then(|| reach(input, target))?
}

fn of_join(rel: &RelRef, join: &Join, target: &impl Target) -> Option<(RelRef, usize)> {
    let (left, width) = (join.left.columns.len(), rel.columns.len());
    let columns = target.columns();
    let on_left = columns.iter().all(|column| *column < left);
    let padded = match on_left {
        true => join.kind == JoinKind::Full,
        false => matches!(join.kind, JoinKind::Left | JoinKind::Full),
    };
    let missing = match padded {
        true => Some(target.of_no_match()?).filter(|missing| !missing.is_null()),
        false => None,
    };
    let (side, at) = if on_left {
        reach(&join.left, target)?
    } else {
        if !join.kind.yields_right() {
            return None;
        }
        let columns = columns.iter().map(|column| column.checked_sub(left));
        let columns: Vec<usize> = columns.collect::<Option<_>>()?;
        reach(&join.right, &target.at(&columns)?)?
    };
    // A column that is NULL where there is no match, and nowhere else.
    let (side, tells) = match (&missing, side.columns[at].nullable) {
        (Some(_), true) => with_truth(side),
        _ => (side, at),
    };
    let (with, at, tells) = if on_left {
        let added = side.columns.len() - left;
        let moved = |column: usize| {
            if column < left {
                column
            } else {
                column + added
            }
        };
        let residual = join.residual.iter().map(|e| renumber(e, &moved)).collect();
        let with = Rel::join(Join {
            left: side,
            residual,
            ..join.clone()
        });
        let (with, at) = behind(&with, left, added, width, at);
        let tells = if tells < left {
            tells
        } else {
            tells - left + width
        };
        (with, at, tells)
    } else {
        let with = Rel::join(Join {
            right: side,
            ..join.clone()
        });
        (with, left + at, left + tells)
    };
    match missing {
        None => Some((with, at)),
        Some(missing) => {
            let there = is_not_null(with.column(tells));
            let value = case(there, with.column(at), Expr::literal(missing));
            let names = with.columns.iter().map(|column| column.name.clone());
            let mut named: Vec<_> = with.all_columns().into_iter().zip(names).collect();
            named.push((value, with.columns[at].name.clone()));
            let at = with.columns.len();
            Some((Rel::project(with, named), at))
        }
    }
}

/// `rel` with a column that is true in each row, and which.
fn with_truth(rel: RelRef) -> (RelRef, usize) {
    let names = rel.columns.iter().map(|column| column.name.clone());
    let mut named: Vec<_> = rel.all_columns().into_iter().zip(names).collect();
    named.push((Expr::literal(ScalarValue::from(true)), "match".into()));
    let at = rel.columns.len();
    (Rel::project(rel, named), at)
}

/// `with` is a relation of `width` columns that has `added` more behind the first `left`: the same with these at its end.
fn behind(with: &RelRef, left: usize, added: usize, width: usize, at: usize) -> (RelRef, usize) {
    let columns = (0..left).chain(left + added..width + added);
    let columns: Vec<usize> = columns.chain(left..left + added).collect();
    let at = if at < left { at } else { at - left + width };
    (Rel::select(Arc::clone(with), &columns), at)
}
