//! Indexes that stay on the device between queries: those over all rows of a resident table.
//!
//! An index whose keys and payload are columns of a table, without a condition on its rows, is the same for every query
//! that asks for it. It is kept beside the table's columns when a query has built it, and the next query finds it made
//! (the prebuilt indexes on primary and foreign keys of Themis, PVLDB 2024, section 8.1). Memory that is needed otherwise is
//! taken back, the index that was used least recently first.

use std::sync::{Arc, Weak};

use crate::codegen::RangeEntries;
use crate::column::Column;
use crate::exec::prepare::shapes::{IndexShape, Shape};
use crate::expr::{Expr, Node};
use crate::graph::{Build, Graph, Pipeline, ResultId, Sink, Source, Step};
use crate::tables::LoadedTable;

/// What makes two indexes the same.
#[derive(Debug, Clone)]
pub(in crate::exec) struct Covering {
    keys: Vec<Weak<Column>>,
    payload: Vec<Weak<Column>>,
    null_equal: bool,
    shape: IndexShape,
}

impl Covering {
    /// What the index `into` of `graph` covers; `None` when it is not made of all rows of a table as they are.
    pub(in crate::exec) fn of(
        graph: &Graph,
        into: ResultId,
        tables: &[Arc<LoadedTable>],
        shape: &Shape,
    ) -> Option<Self> {
        if !graph.keep_indexes {
            return None;
        }
        let Shape::Index(shape) = shape else {
            return None;
        };
        let mut builders = graph.steps.iter().filter_map(|step| match step {
            Step::Pipeline(Pipeline {
                source,
                stages,
                sink:
                    Sink::Build {
                        into: result,
                        build,
                    },
                ..
            }) if *result == into => Some((source, stages, build)),
            _ => None,
        });
        let (Some((Source::Scan(scan), stages, build)), None) = (builders.next(), builders.next())
        else {
            return None;
        };
        let Build {
            keys,
            order: None,
            payload,
            null_equal,
            mark_sets: 0,
            join: None,
            ..
        } = build
        else {
            return None;
        };
        let kept = |scan: usize| {
            graph
                .scans
                .get(scan)
                .is_some_and(|s| s.table.input().is_none())
        };
        if !stages.is_empty() || keys.is_empty() || !kept(*scan) {
            return None;
        }
        let table = tables.get(*scan)?;
        let columns = |exprs: &[Expr]| -> Option<Vec<Weak<Column>>> {
            let column = |expr: &Expr| match &expr.node {
                Node::Column(i) => table.columns.get(*i).map(Arc::downgrade),
                _ => None,
            };
            exprs.iter().map(column).collect()
        };
        let payload = match shape.entries {
            // Whatever a query reads of them.
            RangeEntries::InTable => vec![],
            _ => columns(payload)?,
        };
        Some(Self {
            keys: columns(keys)?,
            payload,
            null_equal: *null_equal,
            shape: shape.clone(),
        })
    }

    pub(in crate::exec) fn is(&self, other: &Self) -> bool {
        let same = |a: &[Weak<Column>], b: &[Weak<Column>]| {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.ptr_eq(b))
        };
        self.null_equal == other.null_equal
            && self.shape == other.shape
            && same(&self.keys, &other.keys)
            && same(&self.payload, &other.payload)
    }

    /// Are all of its columns resident still?
    pub(in crate::exec) fn lives(&self) -> bool {
        let mut columns = self.keys.iter().chain(&self.payload);
        columns.all(|column| column.strong_count() > 0)
    }
}
