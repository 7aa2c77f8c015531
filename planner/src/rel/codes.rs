//! Which string columns of tables must come as dictionary codes.

use std::collections::HashSet;
use std::sync::Arc;

use warpline_gpu::expr::Expr;
use warpline_gpu::pipeline::AggregateFunction;

use super::expr::columns;
use super::{RelKind, RelRef, ScanTable};
use crate::translate::is_string;

/// Columns by table (its address) and position in the table.
pub type Coded = HashSet<(*const ScanTable, usize)>;

/// The string columns that `rel` groups, joins or orders by, or of which it takes extremes or counts distinct values.
pub fn coded(rel: &RelRef) -> Coded {
    let mut found = Coded::new();
    rel.for_each(&mut |rel| match &rel.kind {
        RelKind::Aggregate { input, aggregate } => {
            for key in &aggregate.keys {
                expression(input, key, &mut found);
            }
            for call in &aggregate.calls {
                let ordered = matches!(
                    call.function,
                    AggregateFunction::Min | AggregateFunction::Max
                );
                if let Some(argument) = call.argument.as_ref().filter(|_| ordered || call.distinct)
                {
                    expression(input, argument, &mut found);
                }
            }
        }
        RelKind::Join(join) => {
            for (l, r) in &join.on {
                expression(&join.left, l, &mut found);
                expression(&join.right, r, &mut found);
            }
        }
        RelKind::Sort { input, keys, .. } => {
            for key in keys {
                column(input, key.column, &mut found);
            }
        }
        _ => {}
    });
    found
}

fn expression(rel: &RelRef, expr: &Expr, found: &mut Coded) {
    if is_string(&expr.data_type) {
        for i in columns(expr) {
            column(rel, i, found);
        }
    }
}

/// Follow a column down to the tables that its values come from.
fn column(rel: &RelRef, index: usize, found: &mut Coded) {
    if !rel
        .columns
        .get(index)
        .is_some_and(|c| is_string(&c.data_type))
    {
        return;
    }
    match &rel.kind {
        RelKind::Scan { table, columns } => {
            found.insert((Arc::as_ptr(table), columns[index]));
        }
        RelKind::One => {}
        RelKind::Filter { input, .. } | RelKind::Sort { input, .. } => column(input, index, found),
        RelKind::Project { input, exprs } => {
            for i in columns(&exprs[index]) {
                column(input, i, found);
            }
        }
        RelKind::Join(join) => {
            let n = join.left.columns.len();
            if index < n {
                column(&join.left, index, found);
            } else {
                column(&join.right, index - n, found);
            }
        }
        RelKind::Aggregate { input, aggregate } => {
            let keys = aggregate.keys.len();
            let from = match aggregate.keys.get(index) {
                Some(key) => Some(key),
                None => aggregate.calls[index - keys].argument.as_ref(),
            };
            for i in from.map(columns).unwrap_or_default() {
                column(input, i, found);
            }
        }
        RelKind::Union(inputs) => {
            for input in inputs {
                column(input, index, found);
            }
        }
        RelKind::Scalar { input, subquery } => {
            let n = input.columns.len();
            if index < n {
                column(input, index, found);
            } else {
                column(subquery, index - n, found);
            }
        }
    }
}
