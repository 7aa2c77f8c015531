//! `lag(x, 1, y)` and `lead`: what stands in for a row that is not there may be any expression, which DataFusion has for constants alone.

use datafusion::sql::sqlparser::ast::{
    Expr, Function, FunctionArg, FunctionArgExpr, FunctionArgumentClause, FunctionArguments,
    NullTreatment, Statement,
};

use crate::statements::replaced::replace_named;
use crate::statements::syntax::expression;
use crate::statements::syntax::{function_name, some};

/// Puts a CASE in the place of such calls; output columns are called as before. Whether there were any.
pub(crate) fn as_cases(statement: &mut Statement) -> bool {
    replace_named(statement, case)
}

/// What a call with such a default is.
fn case(expr: &Expr) -> Option<Expr> {
    let Expr::Function(call) = expr else {
        return None;
    };
    let FunctionArguments::List(list) = &call.args else {
        return None;
    };
    if !matches!(&*function_name(call)?, "lag" | "lead") || call.over.is_none() {
        return None;
    }
    let [
        FunctionArg::Unnamed(FunctionArgExpr::Expr(_)),
        FunctionArg::Unnamed(FunctionArgExpr::Expr(_)),
        FunctionArg::Unnamed(FunctionArgExpr::Expr(default)),
    ] = &list.args[..]
    else {
        return None;
    };
    let is_column = |part: &Expr| matches!(part, Expr::Identifier(_) | Expr::CompoundIdentifier(_));
    if !some(default, is_column) {
        return None;
    }
    let known_alone = |treatment: &NullTreatment| *treatment == NullTreatment::IgnoreNulls;
    let ignores_nulls = call.null_treatment.as_ref().is_some_and(known_alone)
        || list.clauses.iter().any(|clause| {
            matches!(clause, FunctionArgumentClause::IgnoreOrRespectNulls(treatment) if known_alone(treatment))
        });
    let with = |arguments: Vec<FunctionArg>| {
        let mut list = list.clone();
        list.args = arguments;
        let args = FunctionArguments::List(list);
        Function {
            args,
            ..call.clone()
        }
    };
    let value = with(list.args[..2].to_vec());
    let text = match ignores_nulls {
        // A row that is there has a value.
        true => format!("coalesce({value}, {default})"),
        false => {
            let one = FunctionArg::Unnamed(FunctionArgExpr::Expr(expression("1")?));
            let there = with(vec![one, list.args[1].clone()]);
            format!("CASE WHEN {there} IS NULL THEN {default} ELSE {value} END")
        }
    };
    expression(&text)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use crate::statements::tests::answer;
    use datafusion::prelude::SessionContext;

    #[tokio::test]
    async fn defaults_are_expressions() {
        let context = SessionContext::new();
        let create = "CREATE TABLE t AS SELECT column1 AS id, column2 AS v FROM (VALUES (1, 10), (2, NULL), (3, 30), (4, 40))";
        answer(&context, create).await;
        for (sql, expected) in [
            (
                "SELECT id, lag(v, 1, id * 2) OVER (ORDER BY id) AS x FROM t ORDER BY id",
                "VALUES (1, 2), (2, 10), (3, NULL), (4, 30)",
            ),
            (
                "SELECT id, LEAD(v, 2, t.id) OVER w AS x FROM t WINDOW w AS (ORDER BY id) ORDER BY id",
                "VALUES (1, 30), (2, 40), (3, 3), (4, 4)",
            ),
            (
                "SELECT id, lag(v, 1, id) IGNORE NULLS OVER (ORDER BY id) AS x FROM t ORDER BY id",
                "VALUES (1, 1), (2, 10), (3, 10), (4, 30)",
            ),
        ] {
            let expected = format!(
                "SELECT CAST(column1 AS BIGINT) AS id, CAST(column2 AS BIGINT) AS x FROM ({expected}) ORDER BY 1"
            );
            let found = answer(&context, sql).await;
            assert_eq!(found, answer(&context, &expected).await, "{sql}");
        }
        let sql = "SELECT lag(v, 1, id) OVER (ORDER BY id) FROM t";
        let plan = crate::statements::plan_text(&context.state(), sql).await;
        let plan = plan.unwrap();
        assert_eq!(
            plan.schema().field(0).name(),
            "lag(v, 1, id) OVER (ORDER BY id)"
        );
    }
}
