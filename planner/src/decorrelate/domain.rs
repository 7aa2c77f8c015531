//! The values that outer columns have: what a subquery that refers to them is asked for.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, ExprSchema, Result, TableReference};
use datafusion::functions::expr_fn::coalesce;
use datafusion::functions_aggregate::array_agg::ArrayAgg;
use datafusion::functions_aggregate::first_last::{FirstValue, LastValue};
use datafusion::functions_aggregate::nth_value::NthValueAgg;
use datafusion::functions_aggregate::string_agg::StringAgg;
use datafusion::logical_expr::{
    Aggregate, Distinct, Expr, JoinType, LogicalPlan, Projection, Window, lit, when,
};
use datafusion::scalar::ScalarValue;

use super::{Made, Names, Stop, columns, named};

/// Columns of the rows around a subquery, which it refers to.
pub(super) struct Outer {
    /// The columns as the subquery names them.
    pub(super) columns: Vec<Column>,
    /// Whether none of them is ever NULL.
    pub(super) known: bool,
    types: Vec<DataType>,
    rows: Arc<LogicalPlan>,
    /// Each of the rows is asked for, and not distinct values.
    row_by_row: bool,
}

impl Outer {
    /// The columns of `rows` that are among `free`, which a subquery over them refers to.
    pub(super) fn new(rows: &Arc<LogicalPlan>, free: Vec<Column>) -> Result<Self> {
        let schema = rows.schema();
        let columns: Vec<Column> = free
            .into_iter()
            .filter(|column| schema.has_column(column))
            .collect();
        let mut known = true;
        let mut types = Vec::with_capacity(columns.len());
        for column in &columns {
            let field = schema.field_from_column(column)?;
            known &= !field.is_nullable();
            types.push(field.data_type().clone());
        }
        Ok(Self {
            columns,
            known,
            types,
            rows: Arc::clone(rows),
            row_by_row: false,
        })
    }

    /// All columns of `rows`, for a subquery that is asked for each of the rows. Its rows come of one row around it each, so that it
    /// asks for these once.
    pub(super) fn row_by_row(rows: &Arc<LogicalPlan>) -> Result<Self> {
        Ok(Self {
            row_by_row: true,
            ..Self::new(rows, rows.schema().columns())?
        })
    }

    pub(super) fn data_type(&self, place: usize) -> &DataType {
        &self.types[place]
    }

    /// What a join says to find the same values on both sides, where NULL is the same as NULL unless none is there (`known`).
    ///
    /// DataFusion moves an equality beside the keys of a join that has NULL equal to NULL among these keys, where it then finds NULL
    /// equal as well. So no such join is made: NULL is a value of its own beside a key that stands for it.
    pub(super) fn same(
        &self,
        left: &[Column],
        right: &[Column],
        known: bool,
    ) -> Made<Vec<(Expr, Expr)>> {
        let mut on = Vec::with_capacity(left.len());
        for ((left, right), data_type) in left.iter().zip(right).zip(&self.types) {
            let sides = (Expr::Column(left.clone()), Expr::Column(right.clone()));
            if known || self.known {
                on.push(sides);
                continue;
            }
            let is_list = matches!(data_type, DataType::List(_) | DataType::LargeList(_));
            if data_type.is_nested() && !is_list || data_type.is_null() {
                return Err(Stop::Not);
            }
            let nothing = Expr::Literal(ScalarValue::new_default(data_type)?, None);
            let or_nothing = |side: &Expr| coalesce(vec![side.clone(), nothing.clone()]);
            let is_null = |side: Expr| when(side.is_null(), lit(1_i32)).otherwise(lit(0_i32));
            on.push((or_nothing(&sides.0), or_nothing(&sides.1)));
            on.push((is_null(sides.0)?, is_null(sides.1)?));
        }
        Ok(on)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.columns.is_empty()
    }

    /// Values that have all of the distinct ones among them, where the rows are the same when they are asked for once more.
    pub(super) fn again(&self, names: &Names) -> Made<Option<(LogicalPlan, Vec<Column>)>> {
        match repeatable(&self.rows, self.columns.clone(), names)? {
            Some((source, found)) => renamed(&source, found, names).map(Some),
            None => Ok(None),
        }
    }

    /// The distinct values, at least, and the columns that have them; the rows themselves where each is asked for.
    ///
    /// # Errors
    /// [`Stop::Not`] where the rows would be others if they were asked for a second time.
    pub(super) fn domain(&self, names: &Names) -> Made<(LogicalPlan, Vec<Column>)> {
        if self.row_by_row {
            return renamed(&self.rows, self.columns.clone(), names);
        }
        let source = repeatable(&self.rows, self.columns.clone(), names)?;
        let (source, found) = source.ok_or(Stop::Not)?;
        let (values, names) = renamed(&source, found, names)?;
        let distinct = Aggregate::try_new(Arc::new(values), columns(&names), vec![])?;
        Ok((LogicalPlan::Aggregate(distinct), names))
    }
}

/// Columns of a plan under new names, and the names.
fn renamed(
    plan: &Arc<LogicalPlan>,
    columns: Vec<Column>,
    names: &Names,
) -> Made<(LogicalPlan, Vec<Column>)> {
    let fresh = fresh(names, columns.len());
    let exprs = columns.into_iter().map(Expr::Column).zip(&fresh);
    let exprs = exprs.map(|(expr, name)| named(expr, name)).collect();
    let projection = Projection::try_new(exprs, Arc::clone(plan))?;
    Ok((LogicalPlan::Projection(projection), fresh))
}

/// New names for the values of so many outer columns.
pub(super) fn fresh(names: &Names, columns: usize) -> Vec<Column> {
    let name = names.next("outer");
    let relation = TableReference::bare(name.as_str());
    let column = |number| Column::new(Some(relation.clone()), format!("{name}_{number}"));
    (0..columns).map(column).collect()
}

/// A plan that has the values of columns of `plan`, at least, with what they are there, and is the same each time that it runs: below
/// limits, windows and the like, which may choose among rows of the same order. `None` where there is none.
fn repeatable(
    plan: &Arc<LogicalPlan>,
    columns: Vec<Column>,
    names: &Names,
) -> Result<Option<(Arc<LogicalPlan>, Vec<Column>)>> {
    if runs_the_same(plan, names)? {
        return Ok(Some((Arc::clone(plan), columns)));
    }
    let (below, columns) = match plan.as_ref() {
        LogicalPlan::Filter(filter) => (&filter.input, Some(columns)),
        LogicalPlan::Sort(sort) => (&sort.input, Some(columns)),
        LogicalPlan::Limit(limit) => (&limit.input, Some(columns)),
        LogicalPlan::Distinct(Distinct::All(input)) => (input, Some(columns)),
        LogicalPlan::Window(window) => (&window.input, Some(columns)),
        LogicalPlan::Projection(projection) => {
            let inner = |place: usize| match projection.expr[place].clone().unalias() {
                Expr::Column(column) => Some(column),
                _ => None,
            };
            (&projection.input, inner_columns(&columns, plan, inner)?)
        }
        LogicalPlan::SubqueryAlias(alias) => {
            let inner = |place| Some(Column::from(alias.input.schema().qualified_field(place)));
            (&alias.input, inner_columns(&columns, plan, inner)?)
        }
        LogicalPlan::Join(join) => match join.join_type {
            JoinType::Inner
            | JoinType::LeftSemi
            | JoinType::LeftAnti
            | JoinType::LeftMark
            | JoinType::Left
                if has_all(&join.left, &columns) =>
            {
                (&join.left, Some(columns))
            }
            JoinType::Inner | JoinType::Right => (&join.right, Some(columns)),
            _ => return Ok(None),
        },
        _ => return Ok(None),
    };
    match columns.filter(|columns| has_all(below, columns)) {
        Some(columns) => repeatable(below, columns, names),
        None => Ok(None),
    }
}

/// What columns of `plan` are in its input, by their places.
fn inner_columns(
    columns: &[Column],
    plan: &LogicalPlan,
    inner: impl Fn(usize) -> Option<Column>,
) -> Result<Option<Vec<Column>>> {
    let places = columns
        .iter()
        .map(|column| plan.schema().index_of_column(column));
    let places = places.collect::<Result<Vec<_>>>()?;
    Ok(places.into_iter().map(inner).collect())
}

fn has_all(plan: &LogicalPlan, columns: &[Column]) -> bool {
    columns
        .iter()
        .all(|column| plan.schema().has_column(column))
}

/// Whether a plan has the same rows each time that it runs: nothing in it is volatile, nor chooses among rows of the same order.
fn runs_the_same(plan: &LogicalPlan, names: &Names) -> Result<bool> {
    let mut same = true;
    plan.apply_with_subqueries(|node| {
        same &= match node {
            LogicalPlan::Limit(_) | LogicalPlan::Distinct(Distinct::On(_)) => false,
            LogicalPlan::Window(window) => are_running(window, names),
            LogicalPlan::Sort(sort) => sort.fetch.is_none(),
            LogicalPlan::Extension(_) | LogicalPlan::RecursiveQuery(_) => false,
            _ => true,
        };
        node.apply_expressions(|expr| {
            same &= !expr.is_volatile() && !expr.exists(|part| Ok(depends_on_order(part)))?;
            Ok(TreeNodeRecursion::Continue)
        })?;
        Ok(match same {
            true => TreeNodeRecursion::Continue,
            false => TreeNodeRecursion::Stop,
        })
    })?;
    Ok(same)
}

fn depends_on_order(expr: &Expr) -> bool {
    let Expr::AggregateFunction(call) = expr else {
        return false;
    };
    let function = call.func.inner();
    function.is::<FirstValue>()
        || function.is::<LastValue>()
        || function.is::<NthValueAgg>()
        || function.is::<ArrayAgg>()
        || function.is::<StringAgg>()
}

/// Are all windows running values of subqueries? Values around have the same ones each time, whichever of equal rows comes first.
fn are_running(window: &Window, names: &Names) -> bool {
    let is_one = |expr: &Expr| matches!(expr, Expr::Alias(alias) if names.is_running(&alias.name));
    window.window_expr.iter().all(is_one)
}
