//! The rules of logical plans: what a physical plan would hide, or not be made of.

use std::collections::HashSet;
use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, Result};
use datafusion::functions::core::file_row_index::FileRowIndexFunc;
use datafusion::functions::core::input_file_name::InputFileNameFunc;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{Expr, LogicalPlan};
use datafusion::optimizer::{AnalyzerRule, Optimizer, OptimizerConfig};

use crate::applied::{Applied, Rule};
use crate::dependencies;
use crate::kept_conditions::KeptConditions;
use crate::{
    AggregateOrders, Decorrelation, Durations, Minutes, Multisets, StructNulls, SubqueryNulls,
    WindowFilters,
};

/// The rules of a session with a device. They come behind DataFusion's own.
pub fn rules() -> [Arc<dyn AnalyzerRule + Send + Sync>; 8] {
    let [sets, orders, minutes, durations, fields, subqueries, nulls] = rules_of_answers();
    let filters = Arc::new(WindowFilters);
    [
        filters, sets, orders, minutes, durations, fields, subqueries, nulls,
    ]
}

/// Those among them that decide what is answered: where DataFusion refuses, or answers what SQL does not say.
pub fn rules_of_answers() -> [Arc<dyn AnalyzerRule + Send + Sync>; 7] {
    [
        Arc::new(Multisets),
        Arc::new(AggregateOrders),
        Arc::new(Minutes),
        Arc::new(Durations),
        Arc::new(StructNulls),
        Arc::new(Decorrelation),
        Arc::new(SubqueryNulls),
    ]
}

/// DataFusion's rules of the optimizer. Those that take leaves of expressions out, down to their table, do so for what only the scan
/// of a file knows, its name and the numbers of its rows. Fields of structs stay where they are: some queries have no plan otherwise
/// (`No field named "upper(__datafusion_extracted_2)"`), and fragments find the fields there. Those that ask which columns determine others
/// are told what holds ([`crate::dependencies`]), the one that joins in another order loses no condition ([`crate::kept_conditions`]), the one
/// that drops group keys which others determine leaves alone what it cannot name, and the one that groups by what is distinct what would be of
/// another type.
pub fn optimizer_rules() -> Vec<Rule> {
    let rules = Optimizer::new().rules.into_iter();
    rules
        .map(|rule| -> Rule {
            let by = match rule.name() {
                "extract_leaf_expressions" | "push_down_leaf_projections" => where_files_are_asked,
                "eliminate_cross_join" => return Arc::new(KeptConditions { rule }),
                "eliminate_group_by_constant" => where_keys_have_names,
                "single_distinct_aggregation_to_group_by" => where_types_stay,
                name if dependencies::asks(name) => dependencies::told,
                _ => return rule,
            };
            Arc::new(Applied { rule, by })
        })
        .collect()
}

/// To plans that ask for what only the scan of a file knows.
fn where_files_are_asked(
    rule: &Rule,
    plan: LogicalPlan,
    config: &dyn OptimizerConfig,
) -> Result<Transformed<LogicalPlan>> {
    let asked = match rule.apply_order() {
        // It goes through the plan itself.
        None => any_node(&plan)?,
        Some(_) => asks_for_files(&plan)?,
    };
    match asked {
        true => rule.rewrite(plan, config),
        false => Ok(Transformed::no(plan)),
    }
}

/// The rule that drops group keys which others determine, to aggregations whose columns have names of their own: a cast is called what is
/// cast, and the projection that computes the key again may not have `a` and `CAST(a AS BIGINT)` beside each other.
fn where_keys_have_names(
    rule: &Rule,
    plan: LogicalPlan,
    config: &dyn OptimizerConfig,
) -> Result<Transformed<LogicalPlan>> {
    if let LogicalPlan::Aggregate(aggregate) = &plan
        && let keys = &aggregate.group_expr
        // Columns are never dropped.
        && keys.iter().any(|key| !matches!(key, Expr::Column(_)))
    {
        let mut names = HashSet::new();
        let mut columns = keys.iter().chain(&aggregate.aggr_expr);
        if !columns.all(|column| names.insert(column.schema_name().to_string())) {
            return Ok(Transformed::no(plan));
        }
    }
    rule.rewrite(plan, config)
}

/// The rule that groups twice for the sake of one DISTINCT, where all columns keep their types: the sum of sums of decimals has ten digits more
/// than the sum, and what was to be compared with that no longer can be.
fn where_types_stay(
    rule: &Rule,
    plan: LogicalPlan,
    config: &dyn OptimizerConfig,
) -> Result<Transformed<LogicalPlan>> {
    let before = match &plan {
        LogicalPlan::Aggregate(aggregate) if aggregate.aggr_expr.iter().any(is_distinct) => {
            aggregate.clone()
        }
        _ => return rule.rewrite(plan, config),
    };
    let rewritten = rule.rewrite(plan, config)?;
    let fields = rewritten.data.schema().fields().iter();
    let same = fields
        .zip(before.schema.fields())
        .all(|(new, old)| new.data_type() == old.data_type());
    Ok(match same {
        true => rewritten,
        false => Transformed::no(LogicalPlan::Aggregate(before)),
    })
}

fn is_distinct(call: &Expr) -> bool {
    matches!(call, Expr::AggregateFunction(call) if call.params.distinct)
}

fn any_node(plan: &LogicalPlan) -> Result<bool> {
    let mut asks = false;
    plan.apply_with_subqueries(|node| {
        asks |= asks_for_files(node)?;
        Ok(match asks {
            true => TreeNodeRecursion::Stop,
            false => TreeNodeRecursion::Continue,
        })
    })?;
    Ok(asks)
}

fn asks_for_files(node: &LogicalPlan) -> Result<bool> {
    any_part(node, &|part| {
        let Expr::ScalarFunction(call) = part else {
            return false;
        };
        let function = call.func.inner();
        function.is::<FileRowIndexFunc>() || function.is::<InputFileNameFunc>()
    })
}

/// A plan, of the expressions of which `change` makes others, part by part, where there is a part that `concerns` it. It is given what the
/// columns of a part are of. Outputs are called as before.
///
/// # Errors
/// What DataFusion reports of a plan that does not fit together.
pub(crate) fn with_parts(
    plan: LogicalPlan,
    concerns: impl Fn(&Expr) -> bool,
    change: impl Fn(Expr, &DFSchema) -> Transformed<Expr>,
) -> Result<LogicalPlan> {
    let rewritten = plan.transform_up_with_subqueries(|node| {
        if !any_part(&node, &concerns)? {
            return Ok(Transformed::no(node));
        }
        let schema = merge_schema(&node.inputs());
        let names = NamePreserver::new(&node);
        node.map_expressions(|expr| {
            let name = names.save(&expr);
            let rewritten = expr.transform_up(|part| Ok(change(part, &schema)))?;
            Ok(rewritten.update_data(|expr| name.restore(expr)))
        })
    })?;
    Ok(rewritten.data)
}

/// Whether `found` holds for some part of a node's expressions.
fn any_part(node: &LogicalPlan, found: &impl Fn(&Expr) -> bool) -> Result<bool> {
    let mut any = false;
    node.apply_expressions(|expr| {
        any |= expr.exists(|part| Ok(found(part)))?;
        Ok(match any {
            true => TreeNodeRecursion::Stop,
            false => TreeNodeRecursion::Continue,
        })
    })?;
    Ok(any)
}

/// Is it the name of a rule of the analyzer of ours?
pub fn is_name(name: &str) -> bool {
    rules().iter().any(|rule| rule.name() == name)
}
