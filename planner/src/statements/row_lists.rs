//! Lists and series of the rows beside them, with or without their places: `FROM t, generate_series(t.a, t.b) AS s(x)`,
//! `unnest(t.list) WITH ORDINALITY AS u(x, n)`, BigQuery's `UNNEST(list) AS x WITH OFFSET AS n`.
//!
//! DataFusion has table functions of constants alone, and lists without places. Both are lateral subqueries that take lists apart, one of
//! values and one of numbers.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, FunctionArg, FunctionArgExpr, Ident, Join, JoinConstraint, JoinOperator, LateralView,
    ObjectName, ObjectNamePart, Select, Statement, TableAlias, TableFactor, VisitMut, VisitorMut,
};

use crate::statements::syntax::{
    always, arguments, derived, function_name, lateral, normal, quoted, some,
};

/// Puts lateral subqueries in the place of such tables; whether there were any.
pub(crate) fn as_subqueries(statement: &mut Statement) -> bool {
    let mut lists = Lists { changed: false };
    let _: ControlFlow<()> = VisitMut::visit(statement, &mut lists);
    lists.changed
}

struct Lists {
    changed: bool,
}

impl VisitorMut for Lists {
    type Break = ();

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        if let Some(table) = select.from.last_mut()
            && let Some(joins) = select
                .lateral_views
                .iter()
                .map(view)
                .collect::<Option<Vec<_>>>()
            && !joins.is_empty()
        {
            table.joins.extend(joins);
            select.lateral_views.clear();
            self.changed = true;
        }
        ControlFlow::Continue(())
    }

    fn post_visit_table_factor(&mut self, table: &mut TableFactor) -> ControlFlow<()> {
        if let Some(subquery) = List::of(table).and_then(|list| list.taken_apart()) {
            *table = subquery;
            self.changed = true;
        }
        ControlFlow::Continue(())
    }
}

/// `LATERAL VIEW explode(list) v AS x`, Spark's and Hive's, as a join with the list.
fn view(view: &LateralView) -> Option<Join> {
    let Expr::Function(call) = &view.lateral_view else {
        return None;
    };
    let [list] = arguments(call)?[..] else {
        return None;
    };
    let outputs = match (&*function_name(call)?, &view.lateral_col_alias[..]) {
        ("explode", [value]) => format!("unnest({list}) AS {value}"),
        ("posexplode", [place, value]) => {
            let places = places(0, &format!("cardinality({list})"));
            format!("{places} AS {place}, unnest({list}) AS {value}")
        }
        _ => return None,
    };
    let query = format!("SELECT {outputs}");
    Some(Join {
        relation: lateral(derived(&query, &view.lateral_view_name.to_string())?),
        global: false,
        join_operator: match view.outer {
            true => JoinOperator::LeftOuter(always()),
            false => JoinOperator::CrossJoin(JoinConstraint::None),
        },
    })
}

/// The numbers of so many values, from the first one on.
fn places(first: i64, length: &str) -> String {
    let last = first - 1;
    format!("unnest(generate_series({first}, CAST({length} AS BIGINT) + {last}))")
}

/// What a table takes apart.
struct List<'a> {
    /// The lists, as expressions.
    lists: Vec<String>,
    /// What a column of them is called without a name.
    default: &'static str,
    /// Whether it is called so even where its table has a name.
    is_value: bool,
    alias: Option<&'a TableAlias>,
    /// The first number and the name of the column of places.
    places: Option<(i64, Ident)>,
    /// Whether columns of the rows beside it are in the lists.
    of_rows: bool,
}

impl<'a> List<'a> {
    fn of(table: &'a TableFactor) -> Option<Self> {
        match table {
            TableFactor::UNNEST {
                alias,
                array_exprs,
                with_offset,
                with_offset_alias,
                with_ordinality,
            } if *with_ordinality || *with_offset => Some(Self {
                places: Some(match with_ordinality {
                    true => (1, Ident::new("ordinality")),
                    false => (
                        0,
                        with_offset_alias
                            .clone()
                            .unwrap_or_else(|| Ident::new("offset")),
                    ),
                }),
                ..Self::of_lists(array_exprs.iter(), alias.as_ref())
            }),
            TableFactor::Table {
                name,
                alias,
                args: Some(arguments),
                with_ordinality,
                ..
            } => Self::function(name, &arguments.args, alias.as_ref(), *with_ordinality),
            // A list of the rows beside it that has no name of its own is called as its table.
            TableFactor::UNNEST {
                alias: Some(alias),
                array_exprs,
                ..
            } if alias.columns.is_empty()
                && array_exprs.len() == 1
                && array_exprs.iter().any(names_a_column) =>
            {
                Some(Self::of_lists(array_exprs.iter(), Some(alias)))
            }
            TableFactor::Function {
                name,
                args,
                alias,
                with_ordinality,
                ..
            } => Self::function(name, args, alias.as_ref(), *with_ordinality),
            _ => None,
        }
    }

    fn of_lists(lists: impl Iterator<Item = &'a Expr>, alias: Option<&'a TableAlias>) -> Self {
        let lists: Vec<&Expr> = lists.collect();
        Self {
            lists: lists.iter().map(ToString::to_string).collect(),
            default: "unnest",
            is_value: false,
            alias,
            places: None,
            of_rows: lists.iter().any(|list| names_a_column(list)),
        }
    }

    /// A call of a table function that takes lists apart or makes a series; `None` where DataFusion has it as it is.
    fn function(
        name: &ObjectName,
        arguments: &'a [FunctionArg],
        alias: Option<&'a TableAlias>,
        with_places: bool,
    ) -> Option<Self> {
        let [ObjectNamePart::Identifier(name)] = &name.0[..] else {
            return None;
        };
        let name = normal(name);
        let arguments = arguments.iter().map(|argument| match argument {
            FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(expr),
            _ => None,
        });
        let arguments: Vec<&Expr> = arguments.collect::<Option<_>>()?;
        let places = with_places.then(|| (1, Ident::new("ordinality")));
        let list = match &*name {
            "unnest" | "explode" | "flatten" => {
                let lists = Self::of_lists(arguments.into_iter(), alias);
                return Some(Self { places, ..lists });
            }
            // Snowflake's and SQL Server's parts of a text.
            "split_to_table" | "string_split" => "string_to_array",
            "regexp_split_to_table" => "regexp_split_to_array",
            "generate_series" | "range" => &name,
            _ => return None,
        };
        let of_rows = arguments.iter().any(|argument| names_a_column(argument));
        let is_own = matches!(list, "generate_series" | "range");
        let texts: Vec<String> = arguments.iter().map(ToString::to_string).collect();
        (of_rows || with_places || !is_own).then(|| Self {
            lists: vec![format!("{list}({})", texts.join(", "))],
            default: "value",
            is_value: !is_own,
            alias,
            places,
            of_rows,
        })
    }

    /// The subquery that takes the lists apart.
    fn taken_apart(&self) -> Option<TableFactor> {
        let Self { lists, alias, .. } = self;
        let table = alias.map_or_else(|| Ident::new(self.default), |alias| alias.name.clone());
        let names = alias.map(|alias| &alias.columns[..]).unwrap_or_default();
        // A single column is called as its table.
        let value = |at: usize| match (names.get(at), alias, lists.len()) {
            (Some(named), ..) => named.name.clone(),
            (None, Some(alias), 1) if !self.is_value => alias.name.clone(),
            _ if at == 0 => Ident::new(self.default),
            _ => quoted(&format!("{}_{at}", self.default)),
        };
        let mut outputs: Vec<String> = lists
            .iter()
            .enumerate()
            .map(|(at, list)| format!("unnest({list}) AS {}", value(at)))
            .collect();
        if let Some((first, name)) = &self.places {
            let lengths: Vec<String> = lists.iter().map(|l| format!("cardinality({l})")).collect();
            let length = match &lengths[..] {
                [length] => length.clone(),
                lengths => format!("greatest({})", lengths.join(", ")),
            };
            let name = names.get(lists.len()).map_or(name, |named| &named.name);
            outputs.push(format!("{} AS {name}", places(*first, &length)));
        }
        let query = format!("SELECT {}", outputs.join(", "));
        let subquery = derived(&query, &table.to_string())?;
        Some(match self.of_rows {
            true => lateral(subquery),
            false => subquery,
        })
    }
}

fn names_a_column(expr: &Expr) -> bool {
    some(expr, |part| {
        matches!(part, Expr::Identifier(_) | Expr::CompoundIdentifier(_))
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use datafusion::prelude::SessionContext;

    use crate::Decorrelation;
    use crate::statements::tests::answer;

    #[tokio::test]
    async fn lists_and_series_of_rows() {
        let context = SessionContext::new();
        context.add_analyzer_rule(Arc::new(Decorrelation));
        let create = "CREATE TABLE t AS SELECT column1 AS k, column2 AS a, column3 AS b, column4 AS l FROM (VALUES (1, 2, 4, [7, 8]), (2, 5, 5, [9]), (3, 6, 1, []))";
        answer(&context, create).await;
        for (written, meant) in [
            (
                "SELECT k, s.i FROM t, generate_series(t.a, t.b) AS s(i) ORDER BY k, i",
                "SELECT column1 AS k, column2 AS i FROM (VALUES (1, 2), (1, 3), (1, 4), (2, 5))",
            ),
            (
                "SELECT k, g FROM t CROSS JOIN LATERAL range(a, b + 1, 2) AS g ORDER BY k, g",
                "SELECT column1 AS k, column2 AS g FROM (VALUES (1, 2), (1, 4), (2, 5))",
            ),
            (
                "SELECT k, x, n FROM t CROSS JOIN unnest(t.l) WITH ORDINALITY AS u(x, n) ORDER BY k, n",
                "SELECT column1 AS k, column2 AS x, column3 AS n FROM (VALUES (1, 7, 1), (1, 8, 2), (2, 9, 1))",
            ),
            (
                "SELECT x, n FROM unnest(['a', 'b']) AS x WITH OFFSET AS n ORDER BY n",
                "SELECT column1 AS x, column2 AS n FROM (VALUES ('a', 0), ('b', 1))",
            ),
            (
                "SELECT v, n FROM generate_series(10, 30, 10) WITH ORDINALITY AS s(v, n) ORDER BY n",
                "SELECT column1 AS v, column2 AS n FROM (VALUES (10, 1), (20, 2), (30, 3))",
            ),
            (
                "SELECT k, u FROM t CROSS JOIN LATERAL unnest(t.l) AS u ORDER BY k, u",
                "SELECT column1 AS k, column2 AS u FROM (VALUES (1, 7), (1, 8), (2, 9))",
            ),
            (
                "SELECT k, u FROM t, unnest(l) AS u WHERE u > 7 ORDER BY k, u",
                "SELECT column1 AS k, column2 AS u FROM (VALUES (1, 8), (2, 9))",
            ),
            (
                "SELECT k, v.x FROM t LATERAL VIEW explode(l) v AS x ORDER BY k, x",
                "SELECT column1 AS k, column2 AS x FROM (VALUES (1, 7), (1, 8), (2, 9))",
            ),
            (
                "SELECT k, n, x FROM t LATERAL VIEW OUTER posexplode(l) v AS n, x WHERE k > 1 ORDER BY k, n",
                "SELECT column1 AS k, column2 AS n, column3 AS x FROM (VALUES (2, 0, 9), (3, NULL, NULL))",
            ),
            (
                "SELECT f.value AS part FROM (SELECT 'a|b' AS s) AS q, LATERAL split_to_table(q.s, '|') AS f ORDER BY part",
                "SELECT column1 AS part FROM (VALUES ('a'), ('b'))",
            ),
            (
                "SELECT sum(value) AS s FROM generate_series(1, 4)",
                "SELECT 10 AS s",
            ),
        ] {
            let found = answer(&context, written).await;
            assert_eq!(found, answer(&context, meant).await, "{written}");
        }
    }
}
