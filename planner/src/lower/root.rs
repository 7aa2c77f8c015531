//! The last steps of a fragment: its rows with the columns of its schema, in its order.

use std::sync::Arc;

use warpline_gpu::expr::Expr;
use warpline_gpu::graph::{ResultColumn, ResultId, ResultKind, Sink, Sort, SortKey, Source, Step};

use super::picked::FirstOf;
use super::{Lowerer, enough, read_by};
use crate::reason::Reason;
use crate::rel::expr::{as_column, substitute_all};
use crate::rel::{RelKind, RelRef};

impl Lowerer<'_> {
    /// The result that holds all of `rel`.
    pub(super) fn root(&mut self, rel: &RelRef) -> Result<ResultId, Reason> {
        // Nothing keeps an order through a pipeline, so projections above it move below.
        let mut top = Arc::clone(rel);
        let mut exprs = rel.all_columns();
        while let RelKind::Project {
            input,
            exprs: computed,
        } = &top.kind
        {
            exprs = substitute_all(&exprs, computed)?;
            top = Arc::clone(input);
        }
        if let RelKind::Sort {
            input,
            keys,
            skip,
            fetch,
        } = &top.kind
        {
            return self.ordered(rel, &top, (input, keys), exprs, (*skip, *fetch));
        }
        self.output(rel, &top, exprs, rel.columns.clone(), None)
    }

    /// `exprs` over `below`, or over as many of its rows as are enough, in a `Rows` result.
    fn output(
        &mut self,
        rel: &RelRef,
        below: &RelRef,
        exprs: Vec<Expr>,
        columns: Vec<ResultColumn>,
        enough: Option<u64>,
    ) -> Result<ResultId, Reason> {
        let in_place = exprs.len() == below.columns.len()
            && exprs
                .iter()
                .enumerate()
                .all(|(i, e)| as_column(e) == Some(i));
        if in_place && matches!(below.kind, RelKind::Union(_)) {
            return self.unsorted_rows(below, enough);
        }
        let open = self.stream(below, &read_by(&exprs))?;
        let written = substitute_all(&exprs, &open.columns)?;
        // Rows of a result that has just these columns need no copy.
        if let (Source::Rows(id), true) = (&open.source, open.stages.is_empty())
            && self.results[*id].kind.columns().len() == written.len()
            && matches!(self.results[*id].kind, ResultKind::Rows(_))
            && written
                .iter()
                .enumerate()
                .all(|(i, e)| as_column(e) == Some(i))
        {
            return Ok(*id);
        }
        let estimate = self.rows(rel);
        let name = self.unique_name("output".into());
        let into = self.result(ResultKind::Rows(columns), estimate, name);
        self.is_enough(into, enough);
        self.close(
            open,
            Sink::Rows {
                into,
                columns: written,
            },
        );
        Ok(into)
    }

    /// A projection over a sort: projected columns and sort keys become rows, which are sorted.
    fn ordered(
        &mut self,
        rel: &RelRef,
        sort: &RelRef,
        (input, keys): (&RelRef, &[SortKey]),
        mut exprs: Vec<Expr>,
        (skip, fetch): (u64, Option<u64>),
    ) -> Result<ResultId, Reason> {
        let mut columns = rel.columns.clone();
        let mut placed = Vec::with_capacity(keys.len());
        for key in keys {
            let at = exprs
                .iter()
                .position(|e| as_column(e) == Some(key.column))
                .unwrap_or_else(|| {
                    exprs.push(sort.column(key.column));
                    columns.push(sort.columns[key.column].clone());
                    exprs.len() - 1
                });
            placed.push(SortKey { column: at, ..*key });
        }
        if let Some(first) = FirstOf::new(&placed, skip, fetch)
            && let Some(rows) = self.first_rows(input, &exprs, &rel.columns, first)?
        {
            return Ok(rows);
        }
        // What the sort reads is its input, before rows are cut off.
        let rows = self.output(input, input, exprs, columns, enough(keys, skip, fetch))?;
        let estimate = self.rows(sort);
        let name = self.unique_name("sorted output".into());
        let into = self.result(ResultKind::Sorted(rel.columns.clone()), estimate, name);
        self.steps.push(Step::Sort(Sort {
            rows,
            keys: placed,
            skip,
            fetch,
            window: None,
            into,
        }));
        Ok(into)
    }
}
