//! Clauses that DataFusion's parser reads and its planner leaves out, so that the answer would be that of another statement: they are put
//! in words that it heeds, or refused.

use std::ops::ControlFlow;

use datafusion::common::not_impl_err;
use datafusion::error::Result;
use datafusion::execution::SessionState;
use datafusion::sql::parser::{CopyToSource, Statement as DfStatement};
use datafusion::sql::sqlparser::ast::{
    ColumnOption, DuplicateTreatment, Expr, Function, FunctionArguments, GroupByExpr,
    GroupByWithModifier, JoinConstraint, JoinOperator, ObjectName, OrderByKind, Query, Select,
    SelectFlavor, SelectItem, Statement, TableFactor, TableSample, TableSampleKind,
    TableSampleUnit, TableWithJoins, Visit, VisitMut, Visitor, VisitorMut,
    WildcardAdditionalOptions,
};

use crate::statements::same_names;
use crate::statements::syntax::{always, both, derived, function_name, lateral, of_output};

/// Puts such clauses in other words: `FROM t` without SELECT, `PREWHERE`, `GROUP BY … WITH ROLLUP` and `CUBE`, `TABLESAMPLE`; and joins by
/// other names: `CROSS APPLY`, `OUTER APPLY`, `SEMI JOIN`, `ANTI JOIN`, `STRAIGHT_JOIN`, `CROSS JOIN … ON`. Whether there were any.
pub(crate) fn heeded(statement: &mut Statement) -> bool {
    let mut clauses = Clauses { changed: false };
    let _: ControlFlow<()> = VisitMut::visit(statement, &mut clauses);
    clauses.changed
}

struct Clauses {
    changed: bool,
}

impl VisitorMut for Clauses {
    type Break = ();

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        if select.flavor == SelectFlavor::FromFirstNoSelect && select.projection.is_empty() {
            let all = SelectItem::Wildcard(WildcardAdditionalOptions::default());
            select.projection.push(all);
            self.changed = true;
        }
        if let Some(first) = select.prewhere.take() {
            select.selection = Some(match select.selection.take() {
                Some(then) => both(first, then),
                None => first,
            });
            self.changed = true;
        }
        if let Some(groups) = groups(&select.group_by, &select.projection) {
            select.group_by = groups;
            self.changed = true;
        }
        for table in &mut select.from {
            self.changed |= known_joins(table);
        }
        ControlFlow::Continue(())
    }

    fn post_visit_table_factor(&mut self, table: &mut TableFactor) -> ControlFlow<()> {
        if let TableFactor::NestedJoin {
            table_with_joins, ..
        } = table
        {
            self.changed |= known_joins(table_with_joins);
        }
        if let Some(sampled) = sampled(table) {
            *table = sampled;
            self.changed = true;
        }
        ControlFlow::Continue(())
    }
}

/// What `GROUP BY a, b WITH ROLLUP` is: `GROUP BY ROLLUP (a, b)`. Numbers of outputs are put as what these are.
fn groups(groups: &GroupByExpr, outputs: &[SelectItem]) -> Option<GroupByExpr> {
    let GroupByExpr::Expressions(keys, modifiers) = groups else {
        return None;
    };
    let keys = keys.iter();
    let keys = keys.map(|key| of_output(key, outputs).unwrap_or(key).clone());
    let sets = match &modifiers[..] {
        [GroupByWithModifier::Rollup] => Expr::Rollup(keys.map(|key| vec![key]).collect()),
        [GroupByWithModifier::Cube] => Expr::Cube(keys.map(|key| vec![key]).collect()),
        [GroupByWithModifier::GroupingSets(sets)] => sets.clone(),
        _ => return None,
    };
    Some(GroupByExpr::Expressions(vec![sets], vec![]))
}

/// Puts joins that have other names as the ones they are; whether there were any.
fn known_joins(table: &mut TableWithJoins) -> bool {
    let mut changed = false;
    for join in &mut table.joins {
        if let Some((known, sees_others)) = known_join(&join.join_operator) {
            join.join_operator = known;
            if sees_others {
                join.relation = lateral(join.relation.clone());
            }
            changed = true;
        }
    }
    changed
}

/// The join that another name stands for, and whether its table sees those to the left of it.
fn known_join(join: &JoinOperator) -> Option<(JoinOperator, bool)> {
    let known = match join {
        JoinOperator::CrossApply => JoinOperator::CrossJoin(JoinConstraint::None),
        JoinOperator::OuterApply => JoinOperator::LeftOuter(always()),
        JoinOperator::Semi(constraint) => JoinOperator::LeftSemi(constraint.clone()),
        JoinOperator::Anti(constraint) => JoinOperator::LeftAnti(constraint.clone()),
        JoinOperator::CrossJoin(constraint) | JoinOperator::StraightJoin(constraint)
            if !matches!(constraint, JoinConstraint::None) =>
        {
            JoinOperator::Inner(constraint.clone())
        }
        JoinOperator::StraightJoin(JoinConstraint::None) => {
            JoinOperator::CrossJoin(JoinConstraint::None)
        }
        _ => return None,
    };
    let sees_others = matches!(join, JoinOperator::CrossApply | JoinOperator::OuterApply);
    Some((known, sees_others))
}

/// What a sample of a table is: rows that chance picks one by one, or the first ones. `None` for those with a seed or of buckets.
fn sampled(table: &TableFactor) -> Option<TableFactor> {
    let (TableFactor::Table { sample, alias, .. } | TableFactor::Derived { sample, alias, .. }) =
        table
    else {
        return None;
    };
    let (TableSampleKind::BeforeTableAlias(sample) | TableSampleKind::AfterTableAlias(sample)) =
        sample.as_ref()?;
    let TableSample {
        quantity: Some(quantity),
        seed: None,
        bucket: None,
        offset: None,
        ..
    } = sample.as_ref()
    else {
        return None;
    };
    let mut all = table.clone();
    let name = match &mut all {
        TableFactor::Table {
            sample,
            alias: own,
            name,
            ..
        } => {
            *sample = None;
            *own = None;
            last_part(name)
        }
        TableFactor::Derived {
            sample, alias: own, ..
        } => {
            *sample = None;
            *own = None;
            None
        }
        _ => return None,
    };
    let value = &quantity.value;
    let picked = match quantity.unit {
        Some(TableSampleUnit::Rows) => format!("LIMIT {value}"),
        _ => format!("WHERE random() * 100 < {value}"),
    };
    let from = match &all {
        TableFactor::Derived { .. } => format!("{all} AS __all"),
        _ => all.to_string(),
    };
    let alias = alias.as_ref().map(ToString::to_string).or(name);
    let query = format!("SELECT * FROM {from} {picked}");
    derived(&query, &alias.unwrap_or_else(|| "__sample".to_string()))
}

fn last_part(name: &ObjectName) -> Option<String> {
    name.0.last().map(ToString::to_string)
}

/// Refuses the clauses that are left out and were not put in other words.
///
/// # Errors
/// What there is, and what may be written for it.
pub(crate) fn refuse(state: &SessionState, statement: &DfStatement) -> Result<()> {
    let statement = match statement {
        DfStatement::Statement(statement) => statement.as_ref(),
        DfStatement::Explain(explain) => return refuse(state, &explain.statement),
        DfStatement::CopyTo(copy) => match &copy.source {
            CopyToSource::Query(query) => &Statement::Query(query.clone()),
            CopyToSource::Relation(_) => return Ok(()),
        },
        _ => return Ok(()),
    };
    let mut left_out = LeftOut { state };
    match Visit::visit(statement, &mut left_out) {
        ControlFlow::Break(what) => not_impl_err!("{what}"),
        ControlFlow::Continue(()) => Ok(()),
    }
}

struct LeftOut<'a> {
    state: &'a SessionState,
}

/// Ends the search with what is left out.
fn refused(what: impl ToString) -> ControlFlow<String> {
    ControlFlow::Break(what.to_string())
}

impl Visitor for LeftOut<'_> {
    type Break = String;

    fn pre_visit_statement(&mut self, statement: &Statement) -> ControlFlow<String> {
        match statement {
            Statement::Delete(delete) if delete.limit.is_some() => {
                refused("DELETE with LIMIT: name the rows in WHERE")
            }
            Statement::CreateTable(create) => {
                let options = create.columns.iter().flat_map(|column| &column.options);
                match options
                    .map(|option| &option.option)
                    .find(|o| is_left_out(o))
                {
                    Some(option) => refused(format_args!("{option} of a column")),
                    None => ControlFlow::Continue(()),
                }
            }
            _ => ControlFlow::Continue(()),
        }
    }

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<String> {
        if let Some(clause) = &query.for_clause {
            return refused(format_args!(
                "{clause}: choose the format of answers where they are read"
            ));
        }
        if let Some(clause) = &query.format_clause {
            return refused(format_args!(
                "{clause}: choose the format of answers where they are read"
            ));
        }
        if query.settings.is_some() {
            return refused("SETTINGS in a query: use SET");
        }
        let filled = query
            .order_by
            .as_ref()
            .is_some_and(|order| match &order.kind {
                OrderByKind::Expressions(keys) => keys.iter().any(|key| key.with_fill.is_some()),
                OrderByKind::All(_) => false,
            });
        match filled {
            true => refused("ORDER BY … WITH FILL: join with generate_series"),
            false => ControlFlow::Continue(()),
        }
    }

    fn pre_visit_select(&mut self, select: &Select) -> ControlFlow<String> {
        if !select.connect_by.is_empty() {
            return refused("CONNECT BY: write WITH RECURSIVE");
        }
        if select.value_table_mode.is_some() {
            return refused("SELECT AS STRUCT and SELECT AS VALUE: use named_struct");
        }
        let picked = |item: &SelectItem| match item {
            SelectItem::Wildcard(options) | SelectItem::QualifiedWildcard(_, options) => {
                options.opt_ilike.is_some()
            }
            _ => false,
        };
        if select.projection.iter().any(picked) {
            return refused("ILIKE behind *: name the columns, or EXCLUDE others");
        }
        if let Some(name) = same_names::repeated(select) {
            return refused(format_args!(
                "Two tables that are called {name}: give one another alias"
            ));
        }
        let (GroupByExpr::All(modifiers) | GroupByExpr::Expressions(_, modifiers)) =
            &select.group_by;
        match modifiers.first() {
            Some(modifier) => refused(format_args!("{modifier} here: write GROUPING SETS")),
            None => ControlFlow::Continue(()),
        }
    }

    fn pre_visit_table_factor(&mut self, table: &TableFactor) -> ControlFlow<String> {
        match table {
            TableFactor::Table {
                sample: Some(sample),
                ..
            }
            | TableFactor::Derived {
                sample: Some(sample),
                ..
            } => {
                let (TableSampleKind::BeforeTableAlias(sample)
                | TableSampleKind::AfterTableAlias(sample)) = sample;
                refused(format_args!(
                    "A sample as in `{sample}`: there are samples of percents and ROWS, without a seed or buckets"
                ))
            }
            TableFactor::Table {
                version: Some(version),
                ..
            } => refused(format_args!("A version of a table, as in `{version}`")),
            TableFactor::Table { partitions, .. } if !partitions.is_empty() => {
                refused("PARTITION of a table: name its rows in WHERE")
            }
            TableFactor::Table {
                json_path: Some(_), ..
            } => refused("A path behind a table"),
            TableFactor::Table {
                with_ordinality: true,
                ..
            }
            | TableFactor::Function {
                with_ordinality: true,
                ..
            } => refused("WITH ORDINALITY of this table: use row_number()"),
            _ => ControlFlow::Continue(()),
        }
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<String> {
        match expr {
            Expr::Function(call) => match self.unheeded(call) {
                Some(clause) => refused(format_args!("{clause} in a call of {}", call.name)),
                None => ControlFlow::Continue(()),
            },
            _ => ControlFlow::Continue(()),
        }
    }
}

/// Whether an option of a column changes what its values are, or how they compare, and is left out.
fn is_left_out(option: &ColumnOption) -> bool {
    match option {
        // These compare strings by their bytes, as all are compared here.
        ColumnOption::Collation(name) => {
            let name = last_part(name).unwrap_or_default();
            let name = name.trim_matches('"').to_lowercase();
            !["c", "posix", "ucs_basic", "binary", "default"].contains(&&*name)
        }
        ColumnOption::Generated { .. }
        | ColumnOption::Identity(_)
        | ColumnOption::Materialized(_)
        | ColumnOption::Ephemeral(_)
        | ColumnOption::Alias(_)
        | ColumnOption::OnUpdate(_)
        | ColumnOption::DialectSpecific(_) => true,
        _ => false,
    }
}

/// Functions that see rows one by one or by their window, for which DataFusion leaves DISTINCT out.
const WINDOW_FUNCTIONS: [&str; 11] = [
    "row_number",
    "rank",
    "dense_rank",
    "percent_rank",
    "cume_dist",
    "ntile",
    "lag",
    "lead",
    "first_value",
    "last_value",
    "nth_value",
];

impl LeftOut<'_> {
    /// The clause of a call that has no say in what DataFusion answers.
    fn unheeded(&self, call: &Function) -> Option<&'static str> {
        if !matches!(call.parameters, FunctionArguments::None) {
            return Some("A second list of arguments");
        }
        let name = function_name(call)?;
        let distinct = matches!(&call.args, FunctionArguments::List(list)
            if list.duplicate_treatment == Some(DuplicateTreatment::Distinct));
        let of_window = call.over.is_some() && WINDOW_FUNCTIONS.contains(&&*name);
        if distinct && of_window {
            return Some("DISTINCT");
        }
        let is_scalar = self.state.scalar_functions().contains_key(&*name)
            && !self.state.aggregate_functions().contains_key(&*name)
            && !self.state.window_functions().contains_key(&*name);
        match is_scalar {
            true if distinct => Some("DISTINCT"),
            true if call.filter.is_some() => Some("FILTER"),
            true if !call.within_group.is_empty() => Some("WITHIN GROUP"),
            _ => None,
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use std::sync::Arc;

    use datafusion::prelude::SessionContext;

    use crate::Decorrelation;
    use crate::statements::{plan_text, tests::answer};

    async fn table() -> SessionContext {
        let context = SessionContext::new();
        context.add_analyzer_rule(Arc::new(Decorrelation));
        let create = "CREATE TABLE t AS SELECT column1 AS a, column2 AS b, column3 AS x FROM (VALUES (1, 'p', 5), (1, 'q', 7), (2, 'p', 1), (2, 'p', 2), (3, 'r', 9))";
        answer(&context, create).await;
        context
    }

    #[tokio::test]
    async fn clauses_in_other_words() {
        let context = table().await;
        for (written, meant) in [
            (
                "SELECT a, b, sum(x) AS s FROM t GROUP BY 1, b WITH ROLLUP ORDER BY a, b",
                "SELECT a, b, sum(x) AS s FROM t GROUP BY ROLLUP (a, b) ORDER BY a, b",
            ),
            (
                "SELECT a, b, count(*) AS n FROM t GROUP BY a, b WITH CUBE ORDER BY a, b",
                "SELECT a, b, count(*) AS n FROM t GROUP BY CUBE (a, b) ORDER BY a, b",
            ),
            (
                "SELECT sum(x) AS s FROM t PREWHERE a < 3 WHERE x > 1 OR b = 'r'",
                "SELECT sum(x) AS s FROM t WHERE a < 3 AND (x > 1 OR b = 'r')",
            ),
            ("FROM t", "SELECT * FROM t"),
            (
                "SELECT count(*) AS n FROM (FROM t) s WHERE x > 5",
                "SELECT 2 AS n",
            ),
            (
                "SELECT count(*) AS n FROM t TABLESAMPLE BERNOULLI (100)",
                "SELECT 5 AS n",
            ),
            (
                "SELECT count(t.x) AS n FROM t TABLESAMPLE (3 ROWS)",
                "SELECT 3 AS n",
            ),
            (
                "SELECT count(*) AS n FROM (SELECT * FROM t) AS s TABLESAMPLE SYSTEM (0)",
                "SELECT 0 AS n",
            ),
            (
                "SELECT t.a, m.h FROM t CROSS APPLY (SELECT max(x) AS h FROM t AS o WHERE o.a < t.a) m WHERE t.x < 3 ORDER BY t.x",
                "SELECT column1 AS a, column2 AS h FROM (VALUES (2, 7), (2, 7))",
            ),
            (
                "SELECT t.a, m.x FROM t OUTER APPLY (SELECT o.x FROM t AS o WHERE o.x = t.x + 2) m ORDER BY t.x",
                "SELECT column1 AS a, column2 AS x FROM (VALUES (2, NULL), (2, NULL), (1, 7), (1, 9), (3, NULL))",
            ),
            (
                "SELECT count(*) AS n FROM t SEMI JOIN t AS o ON t.a = o.a + 1",
                "SELECT 3 AS n",
            ),
        ] {
            let found = answer(&context, written).await;
            assert_eq!(found, answer(&context, meant).await, "{written}");
        }
    }

    #[tokio::test]
    async fn what_has_no_other_words_is_refused() {
        let context = table().await;
        for (sql, named) in [
            ("DELETE FROM t WHERE a = 1 LIMIT 1", "LIMIT"),
            ("CREATE TABLE u (s TEXT COLLATE nocase)", "COLLATE"),
            (
                "CREATE TABLE u (a INT, b INT GENERATED ALWAYS AS (a * 2) STORED)",
                "GENERATED",
            ),
            ("SELECT * ILIKE 'a%' FROM t", "ILIKE"),
            ("SELECT a, count(*) FROM t GROUP BY a WITH TOTALS", "TOTALS"),
            (
                "SELECT a FROM t START WITH a = 1 CONNECT BY PRIOR a = x",
                "CONNECT BY",
            ),
            (
                "SELECT a FROM t TABLESAMPLE BERNOULLI (10) REPEATABLE (7)",
                "sample",
            ),
            ("SELECT a FROM t FORMAT JSON", "FORMAT"),
            ("SELECT a FROM t SETTINGS max_threads = 1", "SETTINGS"),
            ("SELECT a FROM t FOR JSON AUTO", "FOR JSON"),
            ("SELECT a FROM t PARTITION (p)", "PARTITION"),
            (
                "SELECT lag(DISTINCT x) OVER (ORDER BY x) FROM t",
                "DISTINCT",
            ),
            ("SELECT abs(x) FILTER (WHERE a > 1) FROM t", "FILTER"),
            ("SELECT abs(DISTINCT x) FROM t", "DISTINCT"),
            (
                "EXPLAIN SELECT a FROM (SELECT a FROM t GROUP BY a WITH TOTALS) s",
                "TOTALS",
            ),
            (
                "COPY (SELECT a FROM t SETTINGS max_threads = 1) TO 'x.parquet'",
                "SETTINGS",
            ),
        ] {
            let error = plan_text(&context.state(), sql).await.unwrap_err();
            assert!(error.to_string().contains(named), "{sql}: {error}");
        }
    }
}
