//! The rule that lets fields of structs be NULL because the struct is.
//!
//! `s['k']` of a field that is never NULL within its struct is, in DataFusion, what happens to lie below a struct that is NULL: a zero,
//! or nothing. In SQL it is NULL. [`StructNulls`] puts a function that says so in the place of `get_field`, for the device and
//! for the CPU. Fields that may be NULL themselves are left alone: they are where their struct is.

use arrow::datatypes::DataType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, Result};
use datafusion::functions::core::getfield::GetFieldFunc;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan};
use datafusion::optimizer::AnalyzerRule;

use super::field::{around, field_of, reads_field};

/// The rule of the analyzer. It comes after the types are known.
#[derive(Debug, Default)]
pub struct StructNulls;

impl StructNulls {
    /// The rule's name among those of the analyzer.
    pub const NAME: &'static str = "warpline_struct_nulls";
}

impl AnalyzerRule for StructNulls {
    fn analyze(&self, plan: LogicalPlan, _config: &ConfigOptions) -> Result<LogicalPlan> {
        if !has_fields(&plan)? {
            return Ok(plan);
        }
        Ok(plan.transform_up_with_subqueries(node)?.data)
    }

    fn name(&self) -> &str {
        Self::NAME
    }
}

fn is_field(expr: &Expr) -> bool {
    matches!(expr, Expr::ScalarFunction(call) if call.func.inner().is::<GetFieldFunc>())
}

/// Reads any expression of the plan or its subqueries a field of a struct?
pub(crate) fn has_fields(plan: &LogicalPlan) -> Result<bool> {
    let mut found = false;
    plan.apply_with_subqueries(|node| {
        node.apply_expressions(|expr| {
            found |= expr.exists(|part| {
                Ok(matches!(part, Expr::ScalarFunction(call) if reads_field(&call.func)))
            })?;
            Ok(TreeNodeRecursion::Continue)
        })?;
        Ok(match found {
            true => TreeNodeRecursion::Stop,
            false => TreeNodeRecursion::Continue,
        })
    })?;
    Ok(found)
}

fn node(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let inputs = merge_schema(&plan.inputs());
    let names = NamePreserver::new(&plan);
    let rewritten = plan.map_expressions(|expr| {
        let name = names.save(&expr);
        let with_nulls = expr.transform_down(|part| with_nulls(part, &inputs))?;
        Ok(with_nulls.update_data(|expr| name.restore(expr)))
    })?;
    match rewritten.transformed {
        true => rewritten.map_data(LogicalPlan::recompute_schema),
        false => Ok(rewritten),
    }
}

/// A field by the function that knows of the struct's NULLs, where it needs that.
fn with_nulls(expr: Expr, inputs: &DFSchema) -> Result<Transformed<Expr>> {
    if !is_field(&expr) {
        return Ok(Transformed::no(expr));
    }
    let mut arguments = Vec::new();
    let base = base_of(&expr, &mut arguments);
    let (data_type, nullable) = (base.get_type(inputs)?, base.nullable(inputs)?);
    if !reads_below_null(&data_type, nullable, &arguments) {
        // An argument may itself be a field of something else.
        return Ok(Transformed::no(expr));
    }
    let base = base
        .clone()
        .transform_down(|part| with_nulls(part, inputs))?;
    let value = field_of().call([vec![base.data], arguments].concat());
    Ok(Transformed::new(value, true, TreeNodeRecursion::Jump))
}

/// What fields are taken out of, and the arguments that name them.
fn base_of<'e>(expr: &'e Expr, names: &mut Vec<Expr>) -> &'e Expr {
    if let Expr::ScalarFunction(call) = expr
        && is_field(expr)
        && let Some((base, path)) = call.args.split_first()
    {
        let base = base_of(base, names);
        names.extend(path.iter().cloned());
        return base;
    }
    expr
}

fn reads_below_null(data_type: &DataType, nullable: bool, names: &[Expr]) -> bool {
    let names = names.iter().map(|name| match name {
        Expr::Literal(name, _) => name.try_as_str().flatten(),
        _ => None,
    });
    let names: Option<Vec<&str>> = names.collect();
    names.is_some_and(|names| around(data_type, nullable, names).is_some())
}
