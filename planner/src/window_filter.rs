//! Aggregates over windows with a `FILTER`, as aggregates of values that are NULL where the filter does not hold.
//!
//! A physical window expression does not show its filter to others, and the encoding of plans for other machines leaves it out. So
//! it goes while the plan is logical: `sum(x) FILTER (WHERE p) OVER w` is `sum(CASE WHEN p THEN x END) OVER w`, for every
//! function that passes over NULL.

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, Result};
use datafusion::functions_aggregate::average::Avg;
use datafusion::functions_aggregate::bool_and_or::{BoolAnd, BoolOr};
use datafusion::functions_aggregate::count::Count;
use datafusion::functions_aggregate::min_max::{Max, Min};
use datafusion::functions_aggregate::stddev::{Stddev, StddevPop};
use datafusion::functions_aggregate::sum::Sum;
use datafusion::functions_aggregate::variance::{VariancePopulation, VarianceSample};
use datafusion::logical_expr::expr::WindowFunction;
use datafusion::logical_expr::{
    AggregateUDF, Expr, ExprSchemable, LogicalPlan, Window, WindowFunctionDefinition, when,
};
use datafusion::optimizer::AnalyzerRule;

/// Rewrites the filters of aggregates over windows. It comes after the types are known: last among the rules of the analyzer.
#[derive(Debug, Default)]
pub struct WindowFilters;

impl WindowFilters {
    /// The rule's name among those of the analyzer.
    pub const NAME: &'static str = "warpline_window_filters";
}

impl AnalyzerRule for WindowFilters {
    fn analyze(&self, plan: LogicalPlan, _config: &ConfigOptions) -> Result<LogicalPlan> {
        let rewritten = plan.transform_up_with_subqueries(|plan| match plan {
            LogicalPlan::Window(window) => rewritten(window),
            other => Ok(Transformed::no(other)),
        })?;
        Ok(rewritten.data)
    }

    fn name(&self) -> &str {
        Self::NAME
    }
}

fn rewritten(window: Window) -> Result<Transformed<LogicalPlan>> {
    let schema = window.input.schema();
    let mut changed = false;
    let mut exprs = Vec::with_capacity(window.window_expr.len());
    for expr in &window.window_expr {
        let without = without_filter(expr, schema)?;
        changed |= without.is_some();
        exprs.push(without.unwrap_or_else(|| expr.clone()));
    }
    if !changed {
        return Ok(Transformed::no(LogicalPlan::Window(window)));
    }
    let window = Window::try_new(exprs, window.input)?;
    Ok(Transformed::yes(LogicalPlan::Window(window)))
}

/// The expression under its own name with its filter in its argument; `None` where it has none, or where that is not the same.
fn without_filter(expr: &Expr, schema: &DFSchema) -> Result<Option<Expr>> {
    let call = match expr {
        Expr::Alias(alias) => alias.expr.as_ref(),
        expr => expr,
    };
    let Expr::WindowFunction(function) = call else {
        return Ok(None);
    };
    let WindowFunctionDefinition::AggregateUDF(aggregate) = &function.fun else {
        return Ok(None);
    };
    let (Some(filter), [argument]) = (&function.params.filter, &*function.params.args) else {
        return Ok(None);
    };
    // An argument that fails for a row fails the query, whether the filter holds there or not.
    if !passes_over_null(aggregate) || !never_fails(argument, schema)? {
        return Ok(None);
    }
    let argument = when(filter.as_ref().clone(), argument.clone()).end()?;
    let mut function = WindowFunction::clone(function);
    function.params.filter = None;
    function.params.args = vec![argument];
    let name = expr.schema_name().to_string();
    Ok(Some(Expr::WindowFunction(Box::new(function)).alias(name)))
}

fn passes_over_null(aggregate: &AggregateUDF) -> bool {
    let function = aggregate.inner();
    function.is::<Count>()
        || function.is::<Sum>()
        || function.is::<Avg>()
        || function.is::<Min>()
        || function.is::<Max>()
        || function.is::<BoolAnd>()
        || function.is::<BoolOr>()
        || function.is::<Stddev>()
        || function.is::<StddevPop>()
        || function.is::<VarianceSample>()
        || function.is::<VariancePopulation>()
}

/// A column, a constant, or a number of theirs as a float or a wider integer.
fn never_fails(argument: &Expr, schema: &DFSchema) -> Result<bool> {
    Ok(match argument {
        Expr::Column(_) | Expr::Literal(..) => true,
        Expr::Alias(alias) => never_fails(&alias.expr, schema)?,
        Expr::Cast(cast) => {
            let (from, to) = (cast.expr.get_type(schema)?, cast.field.data_type());
            let wider = from.is_numeric() && to.is_floating()
                || from.is_integer()
                    && to.is_integer()
                    && from.is_signed_integer() == to.is_signed_integer()
                    && from.primitive_width() <= to.primitive_width();
            wider && never_fails(&cast.expr, schema)?
        }
        _ => false,
    })
}
