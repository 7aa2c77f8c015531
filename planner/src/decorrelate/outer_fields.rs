//! Fields of structs of the rows around a subquery, as columns of those rows.
//!
//! A subquery that reads `t.s['w']` of an outer row refers to all of the struct, by which no join is made. Here the outer rows get
//! the field as a column, and the subquery refers to that.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, Result};
use datafusion::logical_expr::expr::{Exists, InSubquery, SetComparison};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan, Projection, Subquery};

use super::Names;
use super::scope::{bound, has_subqueries};
use crate::structs::{has_fields, reads_field};

/// An operator whose subqueries refer to fields of its rows as to columns.
pub(super) fn node(plan: LogicalPlan, names: &Names) -> Result<Transformed<LogicalPlan>> {
    let inputs = plan.inputs();
    let [input] = inputs.as_slice() else {
        return Ok(Transformed::no(plan));
    };
    if !has_subqueries(&plan)? || !has_fields(&plan)? {
        return Ok(Transformed::no(plan));
    }
    let input = Arc::new(LogicalPlan::clone(input));
    let mut fields = Fields {
        input: &input,
        names,
        found: Vec::new(),
    };
    let saved = NamePreserver::new(&plan);
    let rewritten = plan.clone().map_expressions(|expr| {
        let name = saved.save(&expr);
        let rewritten = fields.in_subqueries(expr)?;
        Ok(rewritten.update_data(|expr| name.restore(expr)))
    })?;
    if fields.found.is_empty() {
        return Ok(Transformed::no(plan));
    }
    let own = input.schema().columns().into_iter().map(Expr::Column);
    let added = fields.found.iter();
    let added = added.map(|(field, name)| field.clone().alias(name.name.clone()));
    let exprs = own.chain(added).collect();
    let with = Projection::try_new(exprs, Arc::clone(&input))?;
    let expressions = rewritten.data.expressions();
    let new = rewritten
        .data
        .with_new_exprs(expressions, vec![LogicalPlan::Projection(with)])?;
    // Filters and sorts yield what they get.
    let columns = plan.schema().columns();
    let new = match new.schema().fields().len() == columns.len() {
        true => new,
        false => {
            let columns = columns.into_iter().map(Expr::Column).collect();
            LogicalPlan::Projection(Projection::try_new(columns, Arc::new(new))?)
        }
    };
    Ok(Transformed::yes(new))
}

/// Fields that subqueries read of the rows of `input`.
struct Fields<'a> {
    input: &'a LogicalPlan,
    names: &'a Names,
    /// Each over these rows, with the column that it becomes.
    found: Vec<(Expr, Column)>,
}

impl Fields<'_> {
    /// An expression whose subqueries refer to columns.
    fn in_subqueries(&mut self, expr: Expr) -> Result<Transformed<Expr>> {
        expr.transform_up(|part| {
            let mut changed = false;
            let mut within = |subquery: Subquery| -> Result<Subquery> {
                let plan = self.in_plan(Arc::unwrap_or_clone(Arc::clone(&subquery.subquery)))?;
                if !plan.transformed {
                    return Ok(subquery);
                }
                changed = true;
                Ok(Subquery {
                    outer_ref_columns: plan.data.all_out_ref_exprs(),
                    subquery: Arc::new(plan.data),
                    ..subquery
                })
            };
            let new = match part {
                Expr::ScalarSubquery(subquery) => Expr::ScalarSubquery(within(subquery)?),
                Expr::Exists(exists) => Expr::Exists(Exists {
                    subquery: within(exists.subquery)?,
                    ..exists
                }),
                Expr::InSubquery(among) => Expr::InSubquery(InSubquery {
                    subquery: within(among.subquery)?,
                    ..among
                }),
                Expr::SetComparison(compared) => Expr::SetComparison(SetComparison {
                    subquery: within(compared.subquery)?,
                    ..compared
                }),
                other => return Ok(Transformed::no(other)),
            };
            Ok(Transformed::new_transformed(new, changed))
        })
    }

    /// The plan of a subquery that refers to columns.
    fn in_plan(&mut self, plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
        plan.transform_up(|node| {
            let saved = NamePreserver::new(&node);
            let rewritten = node.map_expressions(|expr| {
                let name = saved.save(&expr);
                let here = expr.transform_down(|part| self.column(part))?;
                let rewritten = here.transform_data(|expr| self.in_subqueries(expr))?;
                Ok(rewritten.update_data(|expr| name.restore(expr)))
            })?;
            match rewritten.transformed {
                true => rewritten.map_data(LogicalPlan::recompute_schema),
                false => Ok(rewritten),
            }
        })
    }

    /// The column for a field of the outer rows.
    fn column(&mut self, expr: Expr) -> Result<Transformed<Expr>> {
        let Some(outer) = outer_of(&expr) else {
            return Ok(Transformed::no(expr));
        };
        let schema = self.input.schema();
        if !schema.has_column(outer) {
            return Ok(Transformed::no(expr));
        }
        let outer = [outer.clone()];
        let bound = bound(expr, &outer, &outer)?;
        let (_, field) = bound.to_field(schema)?;
        let known = self.found.iter().find(|(field, _)| *field == bound);
        let name = match known {
            Some((_, name)) => name.clone(),
            None => {
                let name = Column::new_unqualified(self.names.next("field"));
                self.found.push((bound, name.clone()));
                name
            }
        };
        let field = Arc::new(field.as_ref().clone().with_name(&name.name));
        Ok(Transformed::yes(Expr::OuterReferenceColumn(field, name)))
    }
}

/// The column of an outer row that the expression is a field of.
fn outer_of(expr: &Expr) -> Option<&Column> {
    let Expr::ScalarFunction(call) = expr else {
        return None;
    };
    let (base, names) = call.args.split_first()?;
    let named = names.iter().all(|name| matches!(name, Expr::Literal(..)));
    if !reads_field(&call.func) || !named {
        return None;
    }
    match base {
        Expr::OuterReferenceColumn(_, column) => Some(column),
        inner => outer_of(inner),
    }
}
