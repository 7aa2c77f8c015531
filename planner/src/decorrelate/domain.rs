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
    Aggregate, Distinct, Expr, JoinType, LogicalPlan, Projection, lit, when,
};

use datafusion::scalar::ScalarValue;

use super::{Made, Names, Stop};

/// Columns of the rows around a subquery, which it refers to.
pub(super) struct Outer {
    /// The columns as the subquery names them.
    pub(super) columns: Vec<Column>,
    /// Whether none of them is ever NULL.
    pub(super) known: bool,
    types: Vec<DataType>,
    rows: Arc<LogicalPlan>,
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
            if data_type.is_nested() || data_type.is_null() {
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

    /// The distinct values, at least, and the columns that have them.
    ///
    /// # Errors
    /// [`Stop::Not`] where the rows would be others if they were asked for a second time.
    pub(super) fn domain(&self, names: &Names) -> Made<(LogicalPlan, Vec<Column>)> {
        let columns = self.columns.iter().cloned().map(Expr::Column).collect();
        let (source, exprs) = repeatable(&self.rows, columns)?.ok_or(Stop::Not)?;
        let (relation, values) = fresh(names, exprs.len());
        let exprs = exprs.into_iter().zip(&values);
        let exprs =
            exprs.map(|(expr, column)| expr.alias_qualified(Some(relation.clone()), &column.name));
        let projection = Projection::try_new(exprs.collect(), source)?;
        let groups = values.iter().cloned().map(Expr::Column).collect();
        let input = Arc::new(LogicalPlan::Projection(projection));
        let distinct = Aggregate::try_new(input, groups, vec![])?;
        Ok((LogicalPlan::Aggregate(distinct), values))
    }
}

/// New names for the values of so many outer columns.
pub(super) fn fresh(names: &Names, columns: usize) -> (TableReference, Vec<Column>) {
    let name = names.next("outer");
    let relation = TableReference::bare(name.as_str());
    let column = |number| Column::new(Some(relation.clone()), format!("{name}_{number}"));
    let values = (0..columns).map(column).collect();
    (relation, values)
}

/// A plan that has the values of `exprs` over `plan`, at least, and is the same each time that it runs: below limits, windows
/// and the like, which may choose among rows of the same order. `None` where there is none.
fn repeatable(
    plan: &Arc<LogicalPlan>,
    exprs: Vec<Expr>,
) -> Result<Option<(Arc<LogicalPlan>, Vec<Expr>)>> {
    if runs_the_same(plan)? {
        return Ok(Some((Arc::clone(plan), exprs)));
    }
    let below = match plan.as_ref() {
        LogicalPlan::Filter(filter) => &filter.input,
        LogicalPlan::Sort(sort) => &sort.input,
        LogicalPlan::Limit(limit) => &limit.input,
        LogicalPlan::Distinct(Distinct::All(input)) => input,
        LogicalPlan::Window(window) => &window.input,
        LogicalPlan::Projection(projection) => {
            let schema = &projection.schema;
            let mut inner = Vec::with_capacity(exprs.len());
            for expr in exprs {
                let Expr::Column(column) = &expr else {
                    return Ok(None);
                };
                let place = schema.index_of_column(column)?;
                match projection.expr[place].clone().unalias() {
                    Expr::Column(column) => inner.push(Expr::Column(column)),
                    _ => return Ok(None),
                }
            }
            return repeatable(&projection.input, inner);
        }
        LogicalPlan::SubqueryAlias(alias) => {
            let mut inner = Vec::with_capacity(exprs.len());
            for expr in exprs {
                let Expr::Column(column) = &expr else {
                    return Ok(None);
                };
                let place = alias.schema.index_of_column(column)?;
                let column = Column::from(alias.input.schema().qualified_field(place));
                inner.push(Expr::Column(column));
            }
            return repeatable(&alias.input, inner);
        }
        LogicalPlan::Join(join) => match join.join_type {
            JoinType::Inner
            | JoinType::LeftSemi
            | JoinType::LeftAnti
            | JoinType::LeftMark
            | JoinType::Left
                if of(&exprs, &join.left) =>
            {
                &join.left
            }
            JoinType::Inner | JoinType::Right if of(&exprs, &join.right) => &join.right,
            _ => return Ok(None),
        },
        _ => return Ok(None),
    };
    match of(&exprs, below) {
        true => repeatable(below, exprs),
        false => Ok(None),
    }
}

fn of(exprs: &[Expr], plan: &LogicalPlan) -> bool {
    let schema = plan.schema();
    let mut columns = exprs.iter().flat_map(Expr::column_refs);
    columns.all(|column| schema.has_column(column))
}

/// Whether a plan has the same rows each time that it runs: nothing in it is volatile, nor chooses among rows of the same order.
fn runs_the_same(plan: &LogicalPlan) -> Result<bool> {
    let mut same = true;
    plan.apply_with_subqueries(|node| {
        same &= match node {
            LogicalPlan::Limit(_)
            | LogicalPlan::Window(_)
            | LogicalPlan::Distinct(Distinct::On(_)) => false,
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
