//! The order that a query requires of its answer, and whether an answer obeys it.

use std::ops::Range;

use arrow::array::{DynComparator, RecordBatch, make_comparator};
use arrow::compute::SortOptions;
use arrow::error::ArrowError;
use datafusion::common::Column;
use datafusion::logical_expr::expr::Sort as SortExpr;
use datafusion::logical_expr::{Expr, FetchType, LogicalPlan};

/// The order that a query asks for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ordering {
    /// The leading `ORDER BY` keys that are columns of the answer.
    pub keys: Vec<SortKey>,
    /// The `LIMIT`.
    pub limit: Option<usize>,
    /// Whether there is an `ORDER BY`, be it by columns that are not in the answer.
    pub sorted: bool,
}

/// One key of an `ORDER BY`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SortKey {
    /// Position of the column in the answer.
    pub column: usize,
    /// `DESC`.
    pub descending: bool,
    /// `NULLS FIRST`.
    pub nulls_first: bool,
}

/// Reads the order of a query's answer off its logical plan, as SQL was translated, before any optimisation.
///
/// Keys that are not columns of the answer end the list: what follows them only orders ties that cannot be seen.
pub fn ordering_of(plan: &LogicalPlan) -> Ordering {
    let mut ordering = Ordering::default();
    let mut node = plan;
    loop {
        match node {
            LogicalPlan::Limit(limit) => {
                if ordering.limit.is_none() {
                    ordering.limit = match limit.get_fetch_type() {
                        Ok(FetchType::Literal(fetch)) => fetch,
                        _ => None,
                    };
                }
                node = &limit.input;
            }
            // Hidden sort keys are projected away above the sort; its columns keep their names.
            LogicalPlan::Projection(projection) => node = &projection.input,
            LogicalPlan::Sort(sort) => {
                ordering.sorted = true;
                ordering.limit = ordering.limit.or(sort.fetch);
                ordering.keys = sort
                    .expr
                    .iter()
                    .map_while(|key| resolve(plan, key))
                    .collect();
                return ordering;
            }
            _ => return ordering,
        }
    }
}

fn resolve(plan: &LogicalPlan, key: &SortExpr) -> Option<SortKey> {
    let column: &Column = match &key.expr {
        Expr::Column(column) => column,
        _ => return None,
    };
    let schema = plan.schema();
    // The output column must be the very column, not another of the same name.
    let position = schema.maybe_index_of_column(column)?;
    Some(SortKey {
        column: position,
        descending: !key.asc,
        nulls_first: key.nulls_first,
    })
}

/// Compares two rows of a batch by all keys.
struct RowOrder(Vec<DynComparator>);

impl RowOrder {
    fn new(batch: &RecordBatch, keys: &[SortKey]) -> Result<Self, ArrowError> {
        let comparators = keys.iter().map(|key| {
            let column = batch.column(key.column);
            let options = SortOptions {
                descending: key.descending,
                nulls_first: key.nulls_first,
            };
            make_comparator(column, column, options)
        });
        comparators.collect::<Result<_, _>>().map(Self)
    }

    fn compare(&self, a: usize, b: usize) -> std::cmp::Ordering {
        let orders = self.0.iter().map(|compare| compare(a, b));
        orders
            .into_iter()
            .find(|order| order.is_ne())
            .unwrap_or(std::cmp::Ordering::Equal)
    }
}

/// The first row that sorts before the one above it.
pub(super) fn first_unsorted(
    batch: &RecordBatch,
    keys: &[SortKey],
) -> Result<Option<usize>, ArrowError> {
    let order = RowOrder::new(batch, keys)?;
    Ok((1..batch.num_rows()).find(|&row| order.compare(row - 1, row).is_gt()))
}

/// Have two rows of a sorted batch the same keys?
pub(super) fn has_ties(batch: &RecordBatch, keys: &[SortKey]) -> Result<bool, ArrowError> {
    let order = RowOrder::new(batch, keys)?;
    Ok((1..batch.num_rows()).any(|row| order.compare(row - 1, row).is_eq()))
}

/// The rows of a sorted batch that have the keys of `row`.
pub(super) fn rows_of_tie(
    batch: &RecordBatch,
    keys: &[SortKey],
    row: usize,
) -> Result<Range<usize>, ArrowError> {
    let order = RowOrder::new(batch, keys)?;
    let ties = |other: &usize| order.compare(row, *other).is_eq();
    let before = (0..row).rev().take_while(ties).count();
    let behind = (row + 1..batch.num_rows()).take_while(ties).count();
    Ok(row - before..row + 1 + behind)
}

/// Number of rows of a sorted batch before those that have the keys of the last row.
pub(super) fn rows_before_last_tie(
    batch: &RecordBatch,
    keys: &[SortKey],
) -> Result<usize, ArrowError> {
    let last = batch.num_rows().saturating_sub(1);
    rows_of_tie(batch, keys, last).map(|tie| tie.start)
}
