//! Which columns of a group tell which others: corrected where DataFusion takes too much for granted.
//!
//! DataFusion keeps with a plan which of its columns determine which (`FunctionalDependencies`), and leaves out of GROUP BY, ORDER BY and
//! DISTINCT what others determine. A join with `SELECT DISTINCT c FROM f` leaves `c` as a column that determines itself, in many rows;
//! of groups by `c, x` above that join DataFusion then says that `c` determines all of them. With that
//! `GROUP BY c, x ORDER BY c, x` is ordered by `c` alone, `DISTINCT c` keeps what is there twice, and groups by `c, x` of such groups are
//! groups by `c`. Rules of the optimizer that ask for dependencies see such plans with those that hold, and so does SQL above a
//! relation.

use std::cell::Cell;
use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNodeRecursion};
use datafusion::common::{Dependency, FunctionalDependence, FunctionalDependencies, Result};
use datafusion::logical_expr::planner::{
    PlannedRelation, RelationPlanner, RelationPlannerContext, RelationPlanning,
};
use datafusion::logical_expr::{Aggregate, LogicalPlan};
use datafusion::optimizer::OptimizerConfig;
use datafusion::sql::sqlparser::ast::TableFactor;

use crate::applied::Rule;

/// Is it the name of a rule that asks for them?
pub(crate) fn asks(name: &str) -> bool {
    [
        "eliminate_duplicated_expr",
        "eliminate_join",
        "optimize_projections",
        "replace_distinct_aggregate",
    ]
    .contains(&name)
}

/// Applies such a rule to a plan with the dependencies that hold.
pub(crate) fn told(
    rule: &Rule,
    plan: LogicalPlan,
    config: &dyn OptimizerConfig,
) -> Result<Transformed<LogicalPlan>> {
    // A rule for one node asks what its inputs know.
    let asks = match rule.apply_order() {
        Some(_) => plan.inputs().into_iter().any(has_dependencies),
        None => true,
    };
    let plan = match asks {
        true => corrected(plan)?,
        false => plan,
    };
    rule.rewrite(plan, config)
}

/// Gives SQL above a relation the dependencies that hold in it: `GROUP BY c` may read what `c` determines.
#[derive(Debug)]
pub struct RelationDependencies;

thread_local! {
    /// The relation that is planned next goes to DataFusion.
    static SEEN: Cell<bool> = const { Cell::new(false) };
}

impl RelationPlanner for RelationDependencies {
    fn plan_relation(
        &self,
        relation: TableFactor,
        context: &mut dyn RelationPlannerContext,
    ) -> Result<RelationPlanning> {
        if SEEN.take() {
            return Ok(RelationPlanning::Original(Box::new(relation)));
        }
        // This comes back to the lines above, with this relation, before any other one is planned.
        SEEN.set(true);
        let mut plan = context.plan(relation)?;
        if has_dependencies(&plan) {
            plan = corrected(plan)?;
        }
        Ok(RelationPlanning::Planned(Box::new(PlannedRelation {
            plan,
            alias: None,
        })))
    }
}

fn has_dependencies(plan: &LogicalPlan) -> bool {
    !plan.schema().functional_dependencies().is_empty()
}

/// The plan with the dependencies that hold.
fn corrected(plan: LogicalPlan) -> Result<LogicalPlan> {
    if !any_wrong(&plan)? {
        return Ok(plan);
    }
    let plan = plan.transform_up_with_subqueries(|node| {
        let node = node.recompute_schema()?;
        let LogicalPlan::Aggregate(mut aggregate) = node else {
            return Ok(Transformed::yes(node));
        };
        if let Some(holding) = holding(&aggregate) {
            let schema = aggregate.schema.as_ref().clone();
            aggregate.schema = Arc::new(schema.with_functional_dependencies(holding)?);
        }
        Ok(Transformed::yes(LogicalPlan::Aggregate(aggregate)))
    })?;
    Ok(plan.data)
}

fn any_wrong(plan: &LogicalPlan) -> Result<bool> {
    let mut wrong = false;
    plan.apply_with_subqueries(|node| {
        if let LogicalPlan::Aggregate(aggregate) = node {
            wrong |= holding(aggregate).is_some();
        }
        Ok(match wrong {
            true => TreeNodeRecursion::Stop,
            false => TreeNodeRecursion::Continue,
        })
    })?;
    Ok(wrong)
}

/// The dependencies of groups that hold; `None` where all do that they have.
fn holding(aggregate: &Aggregate) -> Option<FunctionalDependencies> {
    let input = aggregate.input.schema();
    let below = input.functional_dependencies();
    // Where a key is in one row it determines all of that, and all of its group.
    if below.iter().all(|known| known.mode == Dependency::Single) {
        return None;
    }
    let own = aggregate.schema.functional_dependencies();
    let groups: Vec<String> = aggregate
        .group_expr
        .iter()
        .map(|expr| expr.schema_name().to_string())
        .collect();
    let names = input.field_names();
    let named = |columns: &[usize], name: &String| columns.iter().any(|i| names[*i] == *name);
    let holds = |dependence: &FunctionalDependence| {
        let keys: Option<Vec<&String>> = dependence
            .source_indices
            .iter()
            .map(|i| groups.get(*i))
            .collect();
        let Some(keys) = keys else {
            return false;
        };
        keys.len() == groups.len()
            || below.iter().any(|known| {
                let same = known.source_indices.len() == keys.len()
                    && keys.iter().all(|key| named(&known.source_indices, key));
                let all = known.mode == Dependency::Single
                    || groups
                        .iter()
                        .all(|group| keys.contains(&group) || named(&known.target_indices, group));
                same && all
            })
    };
    if own.iter().all(holds) {
        return None;
    }
    let mut holding: Vec<_> = own.iter().filter(|known| holds(known)).cloned().collect();
    if holding.is_empty() {
        let fields = aggregate.schema.fields();
        // A key that is written twice is one column.
        let keys = fields.len().saturating_sub(aggregate.aggr_expr.len());
        let nullable = fields.iter().take(keys).any(|field| field.is_nullable());
        let keys = (0..keys).collect();
        let all = (0..fields.len()).collect();
        holding.push(FunctionalDependence::new(keys, all, nullable).with_mode(Dependency::Single));
    }
    Some(FunctionalDependencies::new(holding))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use datafusion::execution::SessionStateBuilder;
    use datafusion::prelude::SessionContext;

    use super::*;
    use crate::logical_rules::optimizer_rules;
    use crate::statements::tests::answer;

    #[tokio::test]
    async fn keys_of_one_side_do_not_determine_groups_of_a_join() {
        let state = SessionStateBuilder::new()
            .with_relation_planners(vec![Arc::new(RelationDependencies)])
            .with_optimizer_rules(optimizer_rules())
            .with_default_features()
            .build();
        let context = SessionContext::new_with_state(state);
        for create in [
            "CREATE TABLE f AS SELECT column1 AS c FROM (VALUES ('b'), ('a'), ('b'), ('a'))",
            "CREATE TABLE s AS SELECT column1 AS x, column2 AS c FROM (VALUES (3, 'a'), (1, 'a'), (2, 'a'), (9, 'b'), (7, 'b'))",
            "CREATE VIEW p AS SELECT d.c, s.x FROM s JOIN (SELECT DISTINCT c FROM f) d ON d.c = s.c",
            "CREATE TABLE k (id INT PRIMARY KEY, name TEXT) AS VALUES (1, 'one'), (2, 'two')",
            "CREATE TABLE l AS SELECT column1 AS id, column2 AS x FROM (VALUES (1, 5), (1, 4), (2, 3), (2, 8))",
        ] {
            answer(&context, create).await;
        }
        for (sql, expected) in [
            (
                "SELECT c, x, count(*) AS n FROM p GROUP BY c, x ORDER BY c, x",
                "VALUES ('a', 1, 1), ('a', 2, 1), ('a', 3, 1), ('b', 7, 1), ('b', 9, 1)",
            ),
            (
                "SELECT c, x, max(n) AS n FROM (SELECT c, x, count(*) AS n FROM p GROUP BY c, x) GROUP BY c, x ORDER BY c, x DESC",
                "VALUES ('a', 3, 1), ('a', 2, 1), ('a', 1, 1), ('b', 9, 1), ('b', 7, 1)",
            ),
            (
                "SELECT DISTINCT c, 0 AS x, 0 AS n FROM (SELECT c, x, count(*) AS n FROM p GROUP BY c, x) ORDER BY c",
                "VALUES ('a', 0, 0), ('b', 0, 0)",
            ),
            (
                "SELECT c, max(x) AS x, sum(n) AS n FROM (SELECT c, x, count(*) AS n FROM p GROUP BY c, x) GROUP BY c ORDER BY c",
                "VALUES ('a', 3, 3), ('b', 9, 2)",
            ),
            (
                "SELECT 'all' AS c, 0 AS x, count(*) AS n FROM (SELECT c, x, max(n) FROM (SELECT c, x, count(*) AS n FROM p GROUP BY c, x) GROUP BY c, x)",
                "VALUES ('all', 0, 5)",
            ),
            // Sums of sums of decimals would be of another type.
            (
                "SELECT c, count(DISTINCT x) AS x, sum(CAST(x AS DECIMAL(7, 2))) AS n FROM s GROUP BY c HAVING sum(CAST(x AS DECIMAL(7, 2))) > 10",
                "VALUES ('b', 2, CAST(16 AS DECIMAL(17, 2)))",
            ),
            // A cast is called what is cast.
            (
                "SELECT CAST(x AS SMALLINT) AS c, x, count(*) AS n FROM s GROUP BY x, CAST(x AS SMALLINT), -x, x HAVING x > 2 ORDER BY x",
                "VALUES (3, 3, 1), (7, 7, 1), (9, 9, 1)",
            ),
            // A primary key determines its own row alone.
            (
                "SELECT k.name AS c, l.x, count(*) AS n FROM k JOIN l ON k.id = l.id GROUP BY k.id, k.name, l.x ORDER BY k.id, l.x",
                "VALUES ('one', 4, 1), ('one', 5, 1), ('two', 3, 1), ('two', 8, 1)",
            ),
            (
                "SELECT k.name AS c, sum(l.x) AS x, count(*) AS n FROM k JOIN l ON k.id = l.id GROUP BY k.id ORDER BY k.id",
                "VALUES ('one', 9, 2), ('two', 11, 2)",
            ),
        ] {
            let expected =
                format!("SELECT column1 AS c, column2 AS x, column3 AS n FROM ({expected})");
            let found = answer(&context, sql).await;
            assert_eq!(found, answer(&context, &expected).await, "{sql}");
        }
    }
}
