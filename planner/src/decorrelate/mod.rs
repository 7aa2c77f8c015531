//! Subqueries that refer to the rows around them, and subqueries in expressions, as joins.
//!
//! DataFusion makes joins of the correlated subqueries of many forms; others it refuses, and some it answers with rows that SQL
//! does not have (`NOT IN` where there are NULLs, under `OR` or with a condition on the row around; EXISTS of an aggregation; a
//! limit with an offset). [`Decorrelation`] takes what is left: any correlated subquery, lateral joins, and EXISTS, IN, ANY and ALL in
//! any expression, whatever operators the subquery has. What DataFusion does well stays as it is.
//!
//! A subquery becomes one plan for all rows around it by the method of Neumann and Kemper, "Unnesting Arbitrary
//! Queries" (BTW 2015). This plan is joined to these rows, and a scalar, EXISTS or IN is
//! an expression of the joined columns.

mod domain;
mod joins;
mod last_known;
mod native;
mod one_row;
mod ordered;
mod outer_fields;
mod place;
mod push;
mod row_wise;
mod scope;
mod values;

use std::cell::{Cell, RefCell};
use std::collections::HashSet;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DataFusionError, NullEquality, Result};
use datafusion::logical_expr::{BinaryExpr, Expr, Join, LogicalPlan, Operator};
use datafusion::optimizer::AnalyzerRule;

pub use last_known::{NAME as LAST_KNOWN, last_known};
pub use one_row::{NAME as ONE_ROW, one_row};

/// The rule of the analyzer that makes joins of subqueries. It comes after the types are known.
#[derive(Debug, Default)]
pub struct Decorrelation;

impl Decorrelation {
    /// The rule's name among those of the analyzer.
    pub const NAME: &'static str = "warpline_decorrelation";
}

impl AnalyzerRule for Decorrelation {
    fn analyze(&self, plan: LogicalPlan, _config: &ConfigOptions) -> Result<LogicalPlan> {
        if !has_subqueries(&plan)? {
            return Ok(plan);
        }
        let names = Names::default();
        let fields = plan.transform_up_with_subqueries(|node| outer_fields::node(node, &names))?;
        let rewritten = fields.transform_data(|plan| {
            plan.transform_up_with_subqueries(|node| place::node(node, &names))
        })?;
        if !rewritten.transformed {
            return Ok(rewritten.data);
        }
        // What was joined may be NULL where it was not before.
        let typed = rewritten
            .data
            .transform_up_with_subqueries(|node| node.recompute_schema().map(Transformed::yes))?;
        Ok(typed.data)
    }

    fn name(&self) -> &str {
        Self::NAME
    }
}

fn has_subqueries(plan: &LogicalPlan) -> Result<bool> {
    let mut found = false;
    plan.apply(|node| {
        found |= matches!(node, LogicalPlan::Subquery(_)) || scope::has_subqueries(node)?;
        Ok(match found {
            true => TreeNodeRecursion::Stop,
            false => TreeNodeRecursion::Continue,
        })
    })?;
    Ok(found)
}

/// Names that no column or table has.
#[derive(Debug, Default)]
struct Names {
    last: Cell<usize>,
    /// Those of running values of subqueries ([`ordered`]).
    running: RefCell<HashSet<String>>,
}

impl Names {
    fn next(&self, of: &str) -> String {
        let number = self.last.get() + 1;
        self.last.set(number);
        format!("__{of}_{number}")
    }

    /// For a running value, which [`Self::is_running`] tells from the windows of a query.
    fn next_running(&self) -> String {
        let name = self.next("running");
        self.running.borrow_mut().insert(name.clone());
        name
    }

    fn is_running(&self, name: &str) -> bool {
        self.running.borrow().contains(name)
    }
}

/// Why a subquery stays as it is.
enum Stop {
    /// This is not done here; DataFusion says what it cannot do.
    Not,
    Failed(DataFusionError),
}

type Made<T> = std::result::Result<T, Stop>;

impl From<DataFusionError> for Stop {
    fn from(error: DataFusionError) -> Self {
        Self::Failed(error)
    }
}

/// The condition that a pair of keys of a join is.
fn equal(join: &Join, (left, right): &(Expr, Expr)) -> Expr {
    let op = match join.null_equality {
        NullEquality::NullEqualsNothing => Operator::Eq,
        NullEquality::NullEqualsNull => Operator::IsNotDistinctFrom,
    };
    let (left, right) = (Box::new(left.clone()), Box::new(right.clone()));
    Expr::BinaryExpr(BinaryExpr::new(left, op, right))
}

/// An expression under the name of a column.
fn named(expr: Expr, column: &Column) -> Expr {
    expr.alias_qualified(column.relation.clone(), &column.name)
}

/// Columns as expressions.
fn columns(columns: &[Column]) -> Vec<Expr> {
    columns.iter().cloned().map(Expr::Column).collect()
}
