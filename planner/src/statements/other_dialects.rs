//! What other systems write that DataFusion reads otherwise, or not: `SELECT TOP 5 …`, names of table functions in capitals, names of types
//! (`CAST(x AS INT64)`), `CONVERT(INT, x)`, and `DECODE(x, 1, 'a', 'b')`.

use std::ops::ControlFlow;

use datafusion::error::DataFusionError;
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, CreateTable, DataType, DateTimeField, DuplicateTreatment, ExactNumberInfo,
    Expr, FunctionArg, FunctionArgExpr, FunctionArguments, Ident, LimitClause, ObjectName,
    ObjectNamePart, Query, SetExpr, Statement, TableFactor, TimezoneInfo, UnaryOperator, Value,
    VisitMut, VisitorMut,
};

use crate::statements::replaced::replace;
use crate::statements::syntax::{arguments, expression, is_call, literal, normal, quoted, text};
use crate::statements::ties::quantity_of;

/// Puts such clauses and names as DataFusion knows them; whether there were any.
pub(crate) fn in_known_words(statement: &mut Statement) -> bool {
    let mut dialect = Dialect { changed: false };
    let _: ControlFlow<()> = VisitMut::visit(statement, &mut dialect);
    let values = replace(statement, |expr| {
        let known = converted(expr).or_else(|| decoded(expr));
        let known = known.or_else(|| by_bytes(expr)).or_else(|| of_all(expr));
        known.or_else(|| spelled(expr))
    });
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
        DataType::TinyText | DataType::MediumText | DataType::LongText => DataType::Text,
        DataType::Blob(_) | DataType::Binary(_) | DataType::Varbinary(_) | DataType::Bytes(_) => {
            DataType::Bytea
        }
        DataType::TinyBlob | DataType::MediumBlob | DataType::LongBlob => DataType::Bytea,
        DataType::MediumInt(_) => DataType::Int(None),
        DataType::UTinyInt => DataType::TinyIntUnsigned(None),
        DataType::USmallInt => DataType::SmallIntUnsigned(None),
        DataType::UBigInt => DataType::BigIntUnsigned(None),
        // As many digits as there are; 128 bits have one more.
        DataType::HugeInt | DataType::Int128 => {
            DataType::Decimal(ExactNumberInfo::PrecisionAndScale(38, 0))
        }
        DataType::TimestampNtz(digits) => DataType::Timestamp(*digits, TimezoneInfo::None),
        DataType::Custom(name, _) => return own_custom(name),
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

/// What a type is called here whose name is no keyword.
fn own_custom(name: &ObjectName) -> Option<DataType> {
    let [ObjectNamePart::Identifier(name)] = &name.0[..] else {
        return None;
    };
    let digits = match &*normal(name) {
        "uinteger" => return Some(DataType::IntUnsigned(None)),
        "timestamp_s" => 0,
        "timestamp_ms" => 3,
        "timestamp_us" => 6,
        "timestamp_ns" => 9,
        _ => return None,
    };
    Some(DataType::Timestamp(Some(digits), TimezoneInfo::None))
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

/// Operators, constants and parts of dates that DataFusion does not know.
fn spelled(expr: &Expr) -> Option<Expr> {
    match expr {
        // Bits that differ from those of all ones.
        Expr::UnaryOp {
            op: UnaryOperator::BitwiseNot,
            expr,
        } => Some(Expr::Nested(Box::new(Expr::BinaryOp {
            left: Box::new(Expr::Nested(expr.clone())),
            op: BinaryOperator::BitwiseXor,
            right: Box::new(expression("(-1)")?),
        }))),
        Expr::BinaryOp {
            left,
            op: BinaryOperator::DuckIntegerDivide,
            right,
        } => expression(&format!("div({left}, {right})")),
        Expr::Value(value) => match &value.value {
            Value::UnicodeStringLiteral(text) | Value::SingleQuotedRawStringLiteral(text) => {
                Some(literal(text.clone()))
            }
            _ => None,
        },
        Expr::Extract { field, expr, .. } => {
            let year = format!("extract(year FROM {expr})");
            expression(&match field {
                DateTimeField::Century => format!("CAST(ceil({year} / 100.0) AS INT)"),
                DateTimeField::Millennium | DateTimeField::Millenium => {
                    format!("CAST(ceil({year} / 1000.0) AS INT)")
                }
                DateTimeField::Decade => format!("CAST(floor({year} / 10.0) AS INT)"),
                _ => return None,
            })
        }
        // BigQuery's order, and units without quotes.
        Expr::Function(call) if is_call(expr, "date_trunc") => match arguments(call)?[..] {
            [moment, Expr::Identifier(unit)] if is_unit(unit) => {
                let unit = normal(unit);
                expression(&format!("date_trunc('{unit}', {moment})"))
            }
            _ => None,
        },
        // Weeks begin on Mondays.
        Expr::Function(call) if is_call(expr, "week") => match arguments(call)?[..] {
            [Expr::Identifier(day)] if normal(day) == "monday" => expression("week"),
            _ => None,
        },
        _ => None,
    }
}

/// Is it the name of a unit of time, in small or capital letters?
fn is_unit(name: &Ident) -> bool {
    const UNITS: [&str; 8] = [
        "year", "quarter", "month", "week", "day", "hour", "minute", "second",
    ];
    name.quote_style.is_none() && UNITS.contains(&&*normal(name))
}

/// `s COLLATE "C"`: texts are compared by their bytes here.
fn by_bytes(expr: &Expr) -> Option<Expr> {
    let Expr::Collate { expr, collation } = expr else {
        return None;
    };
    let [.., ObjectNamePart::Identifier(name)] = &collation.0[..] else {
        return None;
    };
    let is_own = ["c", "posix", "ucs_basic", "binary", "c.utf-8", "c.utf8"]
        .contains(&&*name.value.to_lowercase());
    is_own.then(|| Expr::clone(expr))
}

/// `COUNT(DISTINCT a, b)`: of rows of values, none of which is NULL.
fn of_all(expr: &Expr) -> Option<Expr> {
    let Expr::Function(call) = expr else {
        return None;
    };
    let FunctionArguments::List(list) = &call.args else {
        return None;
    };
    let distinct = list.duplicate_treatment == Some(DuplicateTreatment::Distinct);
    if !distinct || !is_call(expr, "count") {
        return None;
    }
    let values = arguments(call)?;
    if values.len() < 2 {
        return None;
    }
    let texts: Vec<String> = values.iter().map(|value| format!("({value})")).collect();
    let known: Vec<String> = texts.iter().map(|t| format!("{t} IS NOT NULL")).collect();
    let row = format!(
        "CASE WHEN {} THEN struct({}) END",
        known.join(" AND "),
        texts.join(", ")
    );
    let mut counted = call.clone();
    if let FunctionArguments::List(list) = &mut counted.args {
        list.args = vec![FunctionArg::Unnamed(FunctionArgExpr::Expr(expression(
            &row,
        )?))];
    }
    Some(Expr::Function(counted))
}

struct Dialect {
    changed: bool,
}

impl VisitorMut for Dialect {
    type Break = ();

    /// Tables made by statements live as long as the session here, as temporary ones do.
    fn pre_visit_statement(&mut self, statement: &mut Statement) -> ControlFlow<()> {
        if let Statement::CreateTable(CreateTable {
            temporary: temporary @ true,
            ..
        }) = statement
        {
            *temporary = false;
            self.changed = true;
        }
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        if let SetExpr::Select(select) = query.body.as_mut()
            && query.limit_clause.is_none()
            && query.fetch.is_none()
            && let Some(top) = &select.top
            && !top.with_ties
            && !top.percent
            && let Some(limit) = quantity_of(top)
        {
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

/// The table function that planning failed for want of.
pub(crate) fn missing(error: &DataFusionError) -> Option<String> {
    let DataFusionError::Plan(message) = error.find_root() else {
        return None;
    };
    let name = message.strip_prefix("table function '")?;
    let (name, _) = name.split_once('\'')?;
    Some(name.to_string())
}

/// Puts `FROM 'f.parquet'` in the place of `FROM read_parquet('f.parquet')`, DuckDB's functions for files of all kinds; whether there was one.
/// Sessions that do not let statements open files refuse both.
pub(crate) fn as_files(statement: &mut Statement, name: &str) -> bool {
    let is_reader = [
        "read_parquet",
        "parquet_scan",
        "read_csv",
        "read_csv_auto",
        "read_json",
        "read_json_auto",
    ]
    .contains(&&*name.to_lowercase());
    let mut files = Files {
        changed: false,
        name,
    };
    if is_reader {
        let _: ControlFlow<()> = VisitMut::visit(statement, &mut files);
    }
    files.changed
}

struct Files<'a> {
    name: &'a str,
    changed: bool,
}

impl VisitorMut for Files<'_> {
    type Break = ();

    fn pre_visit_table_factor(&mut self, table: &mut TableFactor) -> ControlFlow<()> {
        if let TableFactor::Table { name, args, .. } = table
            && let [ObjectNamePart::Identifier(own)] = &name.0[..]
            && own.value == self.name
            && let Some(arguments) = args
            && let [FunctionArg::Unnamed(FunctionArgExpr::Expr(file))] = &arguments.args[..]
            && let Some(file) = text(file)
        {
            *name = ObjectName::from(vec![quoted(file)]);
            *args = None;
            self.changed = true;
        }
        ControlFlow::Continue(())
    }
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
            && own.value != own.value.to_lowercase()
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
                "SELECT -7 // 2 AS a, 7 // 2 AS b, CAST(200 AS UTINYINT) AS c, CAST('x' AS BLOB) AS d, CAST(5 AS HUGEINT) AS e",
                "SELECT -3 AS a, 3 AS b, arrow_cast(200, 'UInt8') AS c, arrow_cast('x', 'Binary') AS d, CAST(5 AS DECIMAL(38, 0)) AS e",
            ),
            (
                "SELECT datediff('microsecond', DATE '2000-01-01', DATE '2000-01-02') AS a, datediff(dd, DATE '2000-01-01', DATE '2000-02-02') AS b, date_diff('days', DATE '2000-01-01', DATE '2000-01-02') AS c",
                "SELECT 86400000000 AS a, 32 AS b, 1 AS c",
            ),
            ("SELECT 1_000_000 AS a", "SELECT 1000000 AS a"),
            (
                "SELECT max(n) AS m FROM (SELECT TOP (3) value AS n FROM Range(1, 9) ORDER BY value) s",
                "SELECT 3 AS m",
            ),
            (
                "SELECT ~5 AS a, U&'\\00e9' AS b, extract(century FROM DATE '2001-01-01') AS c, extract(decade FROM DATE '2019-01-01') AS d",
                "SELECT -6 AS a, 'é' AS b, 21 AS c, 201 AS d",
            ),
            (
                r"SELECT r'a\d' AS a, DATE_TRUNC(DATE '2024-02-15', MONTH) AS b, DATE_TRUNC(DATE '2024-02-15', WEEK(MONDAY)) AS c",
                r"SELECT 'a\d' AS a, date_trunc('month', DATE '2024-02-15') AS b, date_trunc('week', DATE '2024-02-15') AS c",
            ),
            (
                r#"SELECT count(DISTINCT a, b) AS n, min(b COLLATE "C") AS b FROM (VALUES (1, 'x'), (1, 'x'), (1, 'y'), (2, NULL)) t(a, b)"#,
                "SELECT 2 AS n, 'x' AS b",
            ),
        ] {
            let found = answer(&context, written).await;
            assert_eq!(found, answer(&context, meant).await, "{written}");
        }
    }
}
