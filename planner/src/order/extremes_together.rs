//! Lets joins that ask for the extremes of keys of one table ([`super::extremes`]) ask the same groups.
//!
//! `EXISTS (… R … R.b <> L.a) AND NOT EXISTS (… R … R.b <> L.a AND c)` group the rows of `R` twice by the same key, and differ in the
//! rows alone that their extremes are taken of. Conditions become those of the calls, so that one pass over `R` makes one index:
//!
//! ```text
//! (L ⋉ γ(R; k; min(b))) ▷ γ(σ c R; k; min(b))   =   (L ⋉ G) ▷ G   with   G = γ(R; k; min(b), min(b) filter c)
//! ```
//!
//! each join with its own test. A group without rows that meet `c` has NULL extremes, with which no comparison is true: as good as
//! no group.

use std::sync::Arc;

use warpline_gpu::expr::Expr;
use warpline_gpu::pipeline::{Aggregate, AggregateCall};

use super::scanned::Scanned;
use crate::rel::expr::{all_of, all_same, columns, renumber, substitute};
use crate::rel::rewrite::is_same_table;
use crate::rel::{Join, JoinKind, Rel, RelKind, RelRef, ScanTable};

/// The rows of a table that meet conditions, and what is computed of them, over the table's columns.
struct Rows {
    table: Arc<ScanTable>,
    conjuncts: Vec<Expr>,
    values: Vec<Expr>,
}

/// The groups of such rows.
struct Groups {
    rows: Rows,
    aggregate: Aggregate,
}

/// `second` over `first`, its left side, with the same groups. Both are with groups by their keys, and what they test is not true
/// where an extreme is NULL. `None`: the groups are of different rows.
pub(super) fn together(second: &Join, first: &Join) -> Option<RelRef> {
    let kinds = |join: &Join| matches!(join.kind, JoinKind::Semi | JoinKind::Anti);
    if !kinds(first) || !kinds(second) || first.null_equal || second.null_equal {
        return None;
    }
    let ours = |join: &Join| -> Vec<Expr> { join.on.iter().map(|(key, _)| key.clone()).collect() };
    if !all_same(&ours(first), &ours(second)) {
        return None;
    }
    let (a, b) = (groups(&first.right)?, groups(&second.right)?);
    if !is_same_table(&a.rows.table, &b.rows.table)
        || !all_same(&a.aggregate.keys, &b.aggregate.keys)
    {
        return None;
    }
    let table = Arc::clone(&a.rows.table);
    let keys = a.aggregate.keys.clone();
    let mut calls = Vec::new();
    for of in [&a, &b] {
        for call in &of.aggregate.calls {
            calls.push(AggregateCall {
                filter: all_of(of.rows.conjuncts.iter().cloned()),
                ..call.clone()
            });
        }
    }
    // A call is asked of rows that another's conditions leave out.
    let of_calls = || {
        calls
            .iter()
            .flat_map(|call| call.argument.iter().chain(&call.filter))
    };
    if keys.iter().chain(of_calls()).any(Expr::may_fault) {
        return None;
    }
    // The columns of the table that are read.
    let mut read: Vec<usize> = keys.iter().chain(of_calls()).flat_map(columns).collect();
    read.sort_unstable();
    read.dedup();
    let place = |column: usize| read.binary_search(&column).unwrap_or(0);
    let placed = |expr: &Expr| renumber(expr, &place);
    let aggregate = Aggregate {
        keys: keys.iter().map(placed).collect(),
        calls: calls
            .iter()
            .map(|call| AggregateCall {
                argument: call.argument.as_ref().map(placed),
                filter: call.filter.as_ref().map(placed),
                ..call.clone()
            })
            .collect(),
    };
    let names: Vec<String> = (0..keys.len())
        .map(|i| format!("key{i}"))
        .chain(aggregate.calls.iter().map(|call| call.name.clone()))
        .collect();
    let right = Rel::aggregate(Rel::scan(table, read.clone()), aggregate, &names);

    // The second calls lie behind the first ones.
    let (rows, keys, calls) = (
        first.left.columns.len(),
        keys.len(),
        a.aggregate.calls.len(),
    );
    let behind = |column: usize| match column {
        column if column >= rows + keys => column + calls,
        column => column,
    };
    let with = |join: &Join, left: RelRef, residual: Vec<Expr>| {
        let on = ours(join).into_iter().enumerate();
        Rel::join(Join {
            left,
            kind: join.kind,
            on: on.map(|(i, key)| (key, right.column(i))).collect(),
            right: Arc::clone(&right),
            residual,
            null_equal: false,
            build: None,
        })
    };
    let joined = with(first, Arc::clone(&first.left), first.residual.clone());
    let residual = second.residual.iter().map(|e| renumber(e, &behind));
    Some(with(second, joined, residual.collect()))
}

/// The groups that `rel` is, of rows of a table.
fn groups(rel: &RelRef) -> Option<Groups> {
    let RelKind::Aggregate { input, aggregate } = &rel.kind else {
        return None;
    };
    let rows = rows(input)?;
    let over = |expr: &Expr| substitute(expr, &rows.values).ok();
    let keys = aggregate.keys.iter().map(over).collect::<Option<_>>()?;
    let calls = aggregate.calls.iter().map(|call| {
        let argument = match &call.argument {
            Some(argument) => Some(over(argument)?),
            None => None,
        };
        Some(AggregateCall {
            argument,
            ..call.clone()
        })
    });
    let calls: Vec<AggregateCall> = calls.collect::<Option<_>>()?;
    // Calls have conditions of their own only here.
    let plain = calls
        .iter()
        .all(|call| call.filter.is_none() && !call.distinct);
    plain.then_some(Groups {
        aggregate: Aggregate { keys, calls },
        rows,
    })
}

/// The rows of a scan, over the columns of its table.
fn rows(rel: &RelRef) -> Option<Rows> {
    let Scanned {
        scan,
        conjuncts,
        values,
    } = Scanned::of(rel)?;
    let RelKind::Scan { table, columns } = &scan.kind else {
        return None;
    };
    let of_table = |expr: &Expr| renumber(expr, &|column| columns[column]);
    Some(Rows {
        table: Arc::clone(table),
        conjuncts: conjuncts.iter().map(of_table).collect(),
        values: values.iter().map(of_table).collect(),
    })
}
