//! Relations as an indented tree, for EXPLAIN and for tests.

use std::collections::{HashMap, HashSet};
use std::fmt::{self, Display, Formatter};
use std::sync::Arc;

use arrow::datatypes::{Field, FieldRef};
use warpline_gpu::expr::Expr;
use warpline_gpu::graph::SortKey;

use super::{Rel, RelKind, RelRef};

impl Display for Rel {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let mut shared = Shared::default();
        shared.find(self);
        shared.write_tree(self, 0, f)
    }
}

/// Relations with inputs that several others read: their tree is written once.
#[derive(Default)]
struct Shared {
    seen: HashSet<*const Rel>,
    /// By address, the number once it is written.
    numbers: HashMap<*const Rel, Option<usize>>,
    written: usize,
}

impl Shared {
    fn find(&mut self, rel: &Rel) {
        if !self.seen.insert(rel) {
            self.numbers.insert(rel, None);
            return;
        }
        for input in rel.inputs().into_iter().filter(|i| !i.inputs().is_empty()) {
            self.find(input);
        }
    }

    fn write_tree(&mut self, rel: &Rel, depth: usize, f: &mut Formatter<'_>) -> fmt::Result {
        if depth > 0 {
            writeln!(f)?;
        }
        write!(f, "{:indent$}", "", indent = 2 * depth)?;
        match self.numbers.get_mut(&std::ptr::from_ref(rel)) {
            Some(Some(number)) => return write!(f, "the rows of #{number}"),
            Some(number) => {
                self.written += 1;
                *number = Some(self.written);
                write!(f, "{} as #{}", line(rel), self.written)?;
            }
            None => f.write_str(&line(rel))?,
        }
        for input in rel.inputs() {
            self.write_tree(input, depth + 1, f)?;
        }
        Ok(())
    }
}

/// The operator alone.
pub fn line(rel: &Rel) -> String {
    match &rel.kind {
        RelKind::Scan { table, .. } => {
            let names: Vec<_> = rel.columns.iter().map(|c| c.name.as_str()).collect();
            format!("scan {}({})", table.source.name(), names.join(", "))
        }
        RelKind::One => "one row".into(),
        RelKind::Filter { input, conjuncts } => {
            format!("filter {}", list(conjuncts, &fields(&[input]), " AND "))
        }
        RelKind::Project { input, exprs } => {
            format!("project {}", list(exprs, &fields(&[input]), ", "))
        }
        RelKind::Join(join) => {
            let both = fields(&[&join.left, &join.right]);
            let (l, r) = (fields(&[&join.left]), fields(&[&join.right]));
            let on: Vec<_> = join
                .on
                .iter()
                .map(|(a, b)| format!("{} = {}", a.named(&l), b.named(&r)))
                .collect();
            let mut text = format!("{} join on ({})", join.kind, on.join(", "));
            if !join.residual.is_empty() {
                text += &format!(" if {}", list(&join.residual, &both, " AND "));
            }
            if join.null_equal {
                text += " null equal";
            }
            text
        }
        RelKind::Aggregate { input, aggregate } => {
            let scope = fields(&[input]);
            let calls: Vec<_> = aggregate.calls.iter().map(|c| c.name.as_str()).collect();
            format!(
                "aggregate by ({}): {}",
                list(&aggregate.keys, &scope, ", "),
                calls.join(", ")
            )
        }
        RelKind::Sort {
            keys, skip, fetch, ..
        } => {
            let keys: Vec<_> = keys
                .iter()
                .map(|k| {
                    let descending = if k.descending { " desc" } else { "" };
                    format!("{}{descending}", rel.columns[k.column].name)
                })
                .collect();
            let mut text = format!("sort ({})", keys.join(", "));
            if *skip > 0 {
                text += &format!(" skip {skip}");
            }
            if let Some(fetch) = fetch {
                text += &format!(" fetch {fetch}");
            }
            text
        }
        RelKind::Window { keys, window, .. } => {
            let name = |key: &SortKey| rel.columns[key.column].name.clone();
            let (partition, order) = keys.split_at(window.partition.min(keys.len()));
            let partition: Vec<String> = partition.iter().map(name).collect();
            let order: Vec<String> = order.iter().map(name).collect();
            let first = window.first.map(|first| format!(", rows of {first}"));
            format!(
                "window (partition {}, order {}{})",
                partition.join(", "),
                order.join(", "),
                first.unwrap_or_default()
            )
        }
        RelKind::Union(_) => "union".into(),
        RelKind::Scalar { .. } => "beside a scalar subquery".into(),
    }
}

fn list(exprs: &[Expr], scope: &[FieldRef], separator: &str) -> String {
    exprs
        .iter()
        .map(|e| e.named(scope).to_string())
        .collect::<Vec<_>>()
        .join(separator)
}

fn fields(inputs: &[&RelRef]) -> Vec<FieldRef> {
    inputs
        .iter()
        .flat_map(|input| &input.columns)
        .map(|c| Arc::new(Field::new(c.name.clone(), c.data_type.clone(), c.nullable)))
        .collect()
}
