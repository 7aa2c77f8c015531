//! What other systems write that DataFusion reads otherwise, or not: `SELECT TOP 5 …`, names of table functions in capitals, names of types
//! (`CAST(x AS INT64)`), `CONVERT(INT, x)`, and `DECODE(x, 1, 'a', 'b')`.

use std::ops::ControlFlow;

use datafusion::error::DataFusionError;
use datafusion::sql::sqlparser::ast::{
    DataType, Expr, Ident, LimitClause, ObjectNamePart, Query, SetExpr, Statement, TableFactor,
    TimezoneInfo, TopQuantity, VisitMut, VisitorMut,
};

use crate::replaced::replace;
use crate::syntax::{arguments, expression, is_call, number};

/// Puts such clauses and names as DataFusion knows them; whether there were any.
pub(crate) fn in_known_words(statement: &mut Statement) -> bool {
    let mut dialect = Dialect { changed: false };
    let _: ControlFlow<()> = VisitMut::visit(statement, &mut dialect);
    let values = replace(statement, |expr| converted(expr).or_else(|| decoded(expr)));
    dialect.changed | values
}

/// A cast to a type by its name here.
fn converted(expr: &Expr) -> Option<Expr> {
    match expr {
        Expr::Cast { data_type, .. } => {
            let own = own_type(data_type)?;
            let mut cast = expr.clone();
            if let Expr::Cast { data_type, .. } = &mut cast {
                *data_type = own;
            }
            Some(cast)
        }
        Expr::Convert {
            is_try,
            expr,
            data_type: Some(data_type),
            charset: None,
            styles,
            ..
        } if styles.is_empty() => {
            let data_type = own_type(data_type).unwrap_or_else(|| data_type.clone());
            let cast = if *is_try { "TRY_CAST" } else { "CAST" };
            expression(&format!("{cast}({expr} AS {data_type})"))
        }
        _ => None,
    }
}

/// What a type is called here; `None` where it is called so.
fn own_type(data_type: &DataType) -> Option<DataType> {
    Some(match data_type {
        DataType::Nvarchar(length) => DataType::Varchar(*length),
        DataType::Uuid | DataType::Clob(_) | DataType::JSON | DataType::JSONB => DataType::Text,
        DataType::Int16 => DataType::SmallInt(None),
        DataType::Int32 => DataType::Int(None),
        DataType::Int64 | DataType::Signed | DataType::SignedInteger => DataType::BigInt(None),
        DataType::UInt8 => DataType::TinyIntUnsigned(None),
        DataType::UInt16 => DataType::SmallIntUnsigned(None),
        DataType::UInt32 => DataType::IntUnsigned(None),
        DataType::UInt64 | DataType::Unsigned | DataType::UnsignedInteger => {
            DataType::BigIntUnsigned(None)
        }
        DataType::Float32 => DataType::Real,
        DataType::Float64 => DataType::DoublePrecision,
        DataType::Datetime(digits) => DataType::Timestamp(*digits, TimezoneInfo::None),
        _ => return None,
    })
}

/// `DECODE(x, a, 1, b, 2, 3)`: the value behind the first that equals `x`, NULL as a value, or the last one. With two arguments it
/// is of bytes.
fn decoded(expr: &Expr) -> Option<Expr> {
    let Expr::Function(call) = expr else {
        return None;
    };
    if !is_call(expr, "decode") {
        return None;
    }
    let arguments = arguments(call)?;
    let (value, [_, _, ..]) = arguments.split_first()? else {
        return None;
    };
    let cases = arguments[1..].chunks(2).map(|case| match case {
        [is, then] => format!("WHEN ({value}) IS NOT DISTINCT FROM ({is}) THEN {then}"),
        otherwise => otherwise
            .iter()
            .map(|other| format!("ELSE {other}"))
            .collect(),
    });
    let cases: Vec<String> = cases.collect();
    expression(&format!("CASE {} END", cases.join(" ")))
}

struct Dialect {
    changed: bool,
}

impl VisitorMut for Dialect {
    type Break = ();

    fn post_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        if let SetExpr::Select(select) = query.body.as_mut()
            && query.limit_clause.is_none()
            && query.fetch.is_none()
            && let Some(top) = &select.top
            && !top.with_ties
            && !top.percent
            && let Some(quantity) = &top.quantity
        {
            let limit = match quantity {
                TopQuantity::Expr(expr) => expr.clone(),
                TopQuantity::Constant(rows) => number(rows),
            };
            query.limit_clause = Some(LimitClause::LimitOffset {
                limit: Some(limit),
                offset: None,
                limit_by: vec![],
            });
            select.top = None;
            self.changed = true;
        }
        ControlFlow::Continue(())
    }
}

/// The table function that planning failed for want of, where small letters are another name.
pub(crate) fn missing(error: &DataFusionError) -> Option<String> {
    let DataFusionError::Plan(message) = error.find_root() else {
        return None;
    };
    let name = message.strip_prefix("table function '")?;
    let (name, _) = name.split_once('\'')?;
    (name != name.to_lowercase()).then(|| name.to_string())
}

/// Puts the name of a table function in small letters: DataFusion compares it letter by letter. Whether there was one.
pub(crate) fn in_small_letters(statement: &mut Statement, name: &str) -> bool {
    let mut names = Names {
        name,
        changed: false,
    };
    let _: ControlFlow<()> = VisitMut::visit(statement, &mut names);
    names.changed
}

struct Names<'a> {
    name: &'a str,
    changed: bool,
}

impl VisitorMut for Names<'_> {
    type Break = ();

    fn pre_visit_table_factor(&mut self, table: &mut TableFactor) -> ControlFlow<()> {
        if let TableFactor::Table {
            name,
            args: Some(_),
            ..
        }
        | TableFactor::Function { name, .. } = table
            && let [ObjectNamePart::Identifier(own)] = &mut name.0[..]
            && own.quote_style.is_none()
            && own.value == self.name
        {
            *own = Ident::new(own.value.to_lowercase());
            self.changed = true;
        }
        ControlFlow::Continue(())
    }
}

#[cfg(test)]
mod tests {
    use datafusion::prelude::SessionContext;

    use crate::statements::tests::answer;

    #[tokio::test]
    async fn clauses_and_names_of_others() {
        let context = SessionContext::new();
        for (written, meant) in [
            (
                "SELECT TOP 2 value AS v FROM GENERATE_SERIES(1, 5) ORDER BY v DESC",
                "SELECT value AS v FROM generate_series(1, 5) ORDER BY v DESC LIMIT 2",
            ),
            (
                "SELECT CAST(7.9 AS INT64) AS a, CONVERT('3', SIGNED) AS b, CAST(1 AS NVARCHAR(5)) AS c, CAST(2 AS FLOAT64) / 4 AS d",
                "SELECT CAST(7.9 AS BIGINT) AS a, CAST('3' AS BIGINT) AS b, CAST(1 AS VARCHAR(5)) AS c, CAST(2 AS DOUBLE) / 4 AS d",
            ),
            (
                "SELECT decode(value, 1, 'one', NULL, 'none', 'more') AS a, DECODE(value, 2, 'two') AS b, decode(encode('x', 'hex'), 'hex') AS c FROM generate_series(1, 2)",
                "SELECT CASE value WHEN 1 THEN 'one' ELSE 'more' END AS a, CASE value WHEN 2 THEN 'two' END AS b, arrow_cast('x', 'Binary') AS c FROM generate_series(1, 2)",
            ),
            (
                "SELECT max(n) AS m FROM (SELECT TOP (3) value AS n FROM Range(1, 9) ORDER BY value) s",
                "SELECT 3 AS m",
            ),
        ] {
            let found = answer(&context, written).await;
            assert_eq!(found, answer(&context, meant).await, "{written}");
        }
    }
}
