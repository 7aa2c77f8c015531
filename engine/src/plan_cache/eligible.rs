//! Eligibility for the plan cache: queries whose plan is deterministic, and plans that can run more than once.

use std::sync::Arc;

use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::datasource::memory::MemorySourceConfig;
use datafusion::datasource::source::DataSourceExec;
use datafusion::error::Result;
use datafusion::logical_expr::{Expr, LogicalPlan, Volatility};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::empty::EmptyExec;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::limit::{GlobalLimitExec, LocalLimitExec};
use datafusion::physical_plan::memory::LazyMemoryExec;
use datafusion::physical_plan::placeholder_row::PlaceholderRowExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::union::UnionExec;
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast;

use crate::fragments;

/// Is it a query, and not a statement that explains, changes or shows something?
pub(super) fn is_query(statement: &Statement) -> bool {
    matches!(statement, Statement::Statement(inner) if matches!(**inner, ast::Statement::Query(_)))
}

/// Does the statement have a plan that writes the rows of a query, or runs a prepared one? What goes to a location with a scheme
/// is not told: its store may have to be opened before.
pub(super) fn writes_rows(statement: &Statement) -> bool {
    match statement {
        Statement::CopyTo(copy) => !copy.target.contains("://"),
        Statement::Statement(inner) => matches!(
            **inner,
            ast::Statement::Insert(_)
                | ast::Statement::Update { .. }
                | ast::Statement::Delete(_)
                | ast::Statement::Execute { .. }
        ),
        _ => false,
    }
}

/// Does the statement make a table of the rows of a query?
pub(super) fn creates_table(statement: &Statement) -> bool {
    matches!(statement, Statement::Statement(inner)
        if matches!(&**inner, ast::Statement::CreateTable(create) if create.query.is_some()))
}

/// May the statement change tables, data or settings? Only those that cannot are told apart.
pub(super) fn changes_something(statement: &Statement) -> bool {
    let harmless = |inner: &ast::Statement| {
        matches!(
            inner,
            ast::Statement::ShowVariable { .. }
                | ast::Statement::ShowTables { .. }
                | ast::Statement::ShowColumns { .. }
                | ast::Statement::ShowFunctions { .. }
                | ast::Statement::ExplainTable { .. }
        )
    };
    match statement {
        Statement::Explain(_) => false,
        Statement::Statement(inner) => !harmless(inner),
        _ => true,
    }
}

/// Does the query only read tables, with functions whose value depends on their arguments, and perhaps on the moment at which the
/// query begins, which [`super::moments`] tells?
pub(super) fn is_repeatable(plan: &LogicalPlan) -> Result<bool> {
    let mut repeatable = true;
    plan.apply_with_subqueries(|node| {
        repeatable &= matches!(
            node,
            LogicalPlan::Projection(_)
                | LogicalPlan::Filter(_)
                | LogicalPlan::Window(_)
                | LogicalPlan::Aggregate(_)
                | LogicalPlan::Sort(_)
                | LogicalPlan::Join(_)
                | LogicalPlan::Union(_)
                | LogicalPlan::TableScan(_)
                | LogicalPlan::EmptyRelation(_)
                | LogicalPlan::Subquery(_)
                | LogicalPlan::SubqueryAlias(_)
                | LogicalPlan::Limit(_)
                | LogicalPlan::Values(_)
                | LogicalPlan::Distinct(_)
                | LogicalPlan::Unnest(_)
        );
        node.apply_expressions(|expr| {
            expr.apply(|part| {
                repeatable &= is_repeatable_node(part);
                Ok(TreeNodeRecursion::Continue)
            })
        })?;
        Ok(if repeatable {
            TreeNodeRecursion::Continue
        } else {
            TreeNodeRecursion::Stop
        })
    })?;
    Ok(repeatable)
}

/// Is it repeatable, and the same at every moment?
pub(super) fn is_timeless(plan: &LogicalPlan) -> Result<bool> {
    Ok(is_repeatable(plan)? && !super::moments::asks_the_time(plan)?)
}

fn is_repeatable_node(expr: &Expr) -> bool {
    match expr {
        Expr::ScalarFunction(call) => call.func.signature().volatility != Volatility::Volatile,
        Expr::AggregateFunction(call) => call.func.signature().volatility == Volatility::Immutable,
        Expr::ScalarVariable(..) | Expr::Placeholder(_) | Expr::HigherOrderFunction(_) => false,
        _ => true,
    }
}

/// Can the plan run again once its state is reset, and is it worth keeping?
///
/// What it reads, it reads on the device, or it reads nothing (statistics of tables told the answer); what is above passes rows on
/// without filters that operators hand each other at run time (DataFusion cannot reset those), which joins, aggregations and sorts
/// with a limit have. What several devices run side by side is planned without such filters.
pub(super) fn is_reusable(plan: &Arc<dyn ExecutionPlan>) -> bool {
    let mut reusable = true;
    let shards = has_shards(plan);
    let walked = plan.apply(|node| {
        if !fragments::is_fragment(node) {
            let plain = warpline_planner::is_report(node)
                || node.is::<ProjectionExec>()
                || node.is::<FilterExec>()
                || node.is::<CoalescePartitionsExec>()
                || node.is::<RepartitionExec>()
                || node.is::<SortPreservingMergeExec>()
                || node.is::<GlobalLimitExec>()
                || node.is::<LocalLimitExec>()
                || node.is::<UnionExec>()
                || node.is::<EmptyExec>()
                || node.is::<LazyMemoryExec>()
                || is_memory(node)
                || node.is::<PlaceholderRowExec>();
            let sort = node.downcast_ref::<SortExec>();
            let sort = sort.is_some_and(|sort| sort.fetch().is_none() || shards);
            let merge = node.is::<AggregateExec>() || node.name() == "ShardsExec";
            reusable &= plain || sort || (shards && merge);
        }
        Ok(TreeNodeRecursion::Continue)
    });
    walked.is_ok() && reusable
}

/// Does it read rows that are in memory? Those of VALUES are in the plan, those of tables are compared before it runs again.
fn is_memory(node: &Arc<dyn ExecutionPlan>) -> bool {
    node.downcast_ref::<DataSourceExec>().is_some_and(|source| {
        source
            .data_source()
            .downcast_ref::<MemorySourceConfig>()
            .is_some()
    })
}

/// Whether several devices run parts of the plan side by side.
fn has_shards(plan: &Arc<dyn ExecutionPlan>) -> bool {
    #[cfg(feature = "cluster")]
    return crate::devices::has_shards(plan);
    #[cfg(not(feature = "cluster"))]
    {
        let _ = plan;
        false
    }
}
