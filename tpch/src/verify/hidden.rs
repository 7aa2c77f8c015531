//! Answers cut off by `LIMIT` in an order by columns that they do not show: which rows may be in them.
//!
//! Rows that tie at the cut are interchangeable, and the answer does not show which tie. The rows before the cut and all that tie
//! with it are found by running the query without its limit and with the columns of its order.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::Schema;
use datafusion::common::Column;
use datafusion::error::Result;
use datafusion::logical_expr::{Expr, FetchType, LogicalPlan, SkipType};
use datafusion::prelude::{DataFrame, SessionContext};

use super::order::{SortKey, rows_of_tie};
use super::{Answer, cell_text};

/// The rows that an answer must have, and those of which it has the rest.
#[derive(Debug, Clone)]
pub struct Candidates {
    certain: RecordBatch,
    tied: RecordBatch,
}

impl Candidates {
    /// Those of a query on plain DataFusion; `None` where all of its order is in the answer, or there is no limit.
    ///
    /// # Errors
    /// What DataFusion reports for the query.
    pub async fn of(reference: &SessionContext, sql: &str) -> Result<Option<Self>> {
        let (state, plan) = reference.sql(sql).await?.into_parts();
        let LogicalPlan::Limit(limit) = &plan else {
            return Ok(None);
        };
        let fetch = match (limit.get_fetch_type()?, limit.get_skip_type()?) {
            (FetchType::Literal(Some(fetch)), SkipType::Literal(0)) if fetch > 0 => fetch,
            _ => return Ok(None),
        };
        let LogicalPlan::Projection(shown) = limit.input.as_ref() else {
            return Ok(None);
        };
        let LogicalPlan::Sort(sort) = shown.input.as_ref() else {
            return Ok(None);
        };
        let place = |column: &Column| sort.input.schema().maybe_index_of_column(column);
        let column = |expr: &Expr| match expr {
            Expr::Column(column) => place(column),
            _ => None,
        };
        let visible: Option<Vec<usize>> = shown.expr.iter().map(column).collect();
        let keys: Option<Vec<SortKey>> = sort
            .expr
            .iter()
            .map(|key| {
                Some(SortKey {
                    column: column(&key.expr)?,
                    descending: !key.asc,
                    nulls_first: key.nulls_first,
                })
            })
            .collect();
        let (Some(visible), Some(keys)) = (visible, keys) else {
            return Ok(None);
        };
        let mut all = sort.clone();
        all.fetch = None;
        let schema: Arc<Schema> = Arc::new(all.input.schema().as_arrow().clone());
        let batches = DataFrame::new(state, LogicalPlan::Sort(all))
            .collect()
            .await?;
        let rows = arrow::compute::concat_batches(&schema, &batches)?;
        if rows.num_rows() <= fetch {
            return Ok(None);
        }
        let tie = rows_of_tie(&rows, &keys, fetch - 1)?;
        let rows = rows.project(&visible)?;
        Ok(Some(Self {
            certain: rows.slice(0, tie.start),
            tied: rows.slice(tie.start, tie.len()),
        }))
    }

    /// Has an answer of as many rows as the limit all that are certain, and of the others none that does not tie? Floats must be equal to
    /// the last digit.
    pub fn allow(&self, answer: &Answer) -> bool {
        let mut found = counted(answer.batch());
        for (row, count) in counted(&self.certain) {
            match found.get_mut(&row) {
                Some(left) if *left >= count => *left -= count,
                _ => return false,
            }
        }
        let tied = counted(&self.tied);
        found
            .iter()
            .all(|(row, count)| *count == 0 || tied.get(row).is_some_and(|there| there >= count))
    }
}

/// How often each row occurs.
fn counted(rows: &RecordBatch) -> HashMap<Vec<String>, usize> {
    let mut counts = HashMap::new();
    for row in 0..rows.num_rows() {
        let columns = rows.columns().iter();
        let cells = columns.map(|column| cell_text(column, row)).collect();
        *counts.entry(cells).or_default() += 1;
    }
    counts
}
