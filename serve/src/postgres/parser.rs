//! Statements as clients of PostgreSQL write them, in the form that DataFusion plans.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, Statement, Value, ValueWithSpan, visit_expressions_mut,
};
use datafusion_postgres::datafusion_pg_catalog::sql::PostgresCompatibilityParser;

use crate::error::ServeError;
use crate::policy;

/// Columns of `pg_type` that name functions. PostgreSQL compares them with numbers of functions, of which 0 is none, and
/// shows them as names, of which `-` is none. The catalogue has the names.
const FUNCTIONS: [&str; 7] = [
    "typinput",
    "typoutput",
    "typreceive",
    "typsend",
    "typmodin",
    "typmodout",
    "typanalyze",
];

/// Parses what clients send.
#[derive(Default)]
pub(super) struct Parser(PostgresCompatibilityParser);

impl Parser {
    /// The statements of a text.
    ///
    /// # Errors
    /// A text that is no SQL.
    pub(super) fn parse(&self, sql: &str) -> Result<Vec<Statement>, ServeError> {
        let parsed = self.0.parse(sql);
        let mut statements = parsed.or_else(|error| {
            policy::check_text(sql)?;
            Err(ServeError::from(error))
        })?;
        for statement in &mut statements {
            let _ = visit_expressions_mut(statement, |expr| {
                name_no_function(expr);
                ControlFlow::<()>::Continue(())
            });
        }
        Ok(statements)
    }
}

/// `typreceive <> 0` is `typreceive <> '-'`.
fn name_no_function(expr: &mut Expr) {
    let Expr::BinaryOp {
        left,
        op: BinaryOperator::Eq | BinaryOperator::NotEq,
        right,
    } = expr
    else {
        return;
    };
    let name = match left.as_ref() {
        Expr::Identifier(name) => Some(name),
        Expr::CompoundIdentifier(names) => names.last(),
        _ => None,
    };
    if !name.is_some_and(|name| FUNCTIONS.contains(&name.value.as_str())) {
        return;
    }
    if let Expr::Value(ValueWithSpan { value, .. }) = right.as_mut()
        && matches!(value, Value::Number(number, _) if number == "0")
    {
        *value = Value::SingleQuotedString("-".into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn external_tables_are_refused_in_every_grammar() {
        for sql in [
            "CREATE EXTERNAL TABLE x STORED AS CSV LOCATION '/etc/passwd'",
            "create  unbounded external table x stored as csv location 'x'",
        ] {
            let refused = Parser::default().parse(sql).unwrap_err();
            assert_eq!(refused.code, "42501", "{sql}: {}", refused.message);
        }
        let wrong = Parser::default().parse("CREATE nonsense").unwrap_err();
        assert_eq!(wrong.code, "42601");
    }

    #[test]
    fn functions_of_types_are_compared_by_name() {
        let sql = "SELECT typreceive FROM pg_catalog.pg_type t \
                   WHERE (t.typreceive != 0 OR typsend = 0) AND typlen <> 0";
        let parsed = Parser::default().parse(sql).unwrap();
        let text = parsed[0].to_string();
        assert!(
            text.contains("t.typreceive <> '-' OR typsend = '-'"),
            "{text}"
        );
        assert!(text.contains("typlen <> 0"), "{text}");
    }
}
