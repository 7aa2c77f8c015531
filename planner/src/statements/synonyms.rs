//! Functions that other systems have under names that DataFusion lacks, as what they are there.
//!
//! They are looked at where DataFusion says that it has no such function: a user's function of the name comes first.

use std::ops::ControlFlow;

use datafusion::error::DataFusionError;
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, Function, FunctionArgumentClause, FunctionArgumentList,
    FunctionArguments, Statement, Value, VisitMut, VisitorMut,
};

use crate::statements::clickhouse::CLICKHOUSE;
use crate::statements::replaced::replace_named;
use crate::statements::syntax::{arguments, expression, is_call, literal, normal, text};

/// The first argument where the second is greatest, and where it is least.
const AT_MOST: &str =
    "first_value(CASE WHEN $2 IS NOT NULL THEN $1 END ORDER BY $2 DESC NULLS LAST)";
const AT_LEAST: &str =
    "first_value(CASE WHEN $2 IS NOT NULL THEN $1 END ORDER BY $2 ASC NULLS LAST)";

/// The same of the rows whose value is not NULL.
pub(crate) const KNOWN_AT_MOST: &str = "first_value(CASE WHEN $2 IS NOT NULL THEN $1 END ORDER BY CASE WHEN $1 IS NOT NULL THEN $2 END DESC NULLS LAST)";
pub(crate) const KNOWN_AT_LEAST: &str = "first_value(CASE WHEN $2 IS NOT NULL THEN $1 END ORDER BY CASE WHEN $1 IS NOT NULL THEN $2 END ASC NULLS LAST)";

/// One of two values, by a condition.
const IF_ELSE: &str = "CASE WHEN $1 THEN $2 ELSE $3 END";

/// All that a regular expression matches first.
const WHOLE_MATCH: &str = "(regexp_match($1, concat('(', $2, ')')))[1]";

/// How many borders of units there are between two moments.
const DIFFERENCE: &str = "CASE lower($1) \
         WHEN 'day' THEN CAST($3 AS DATE) - CAST($2 AS DATE) \
         WHEN 'week' THEN (CAST(date_trunc('week', CAST($3 AS TIMESTAMP)) AS DATE) - CAST(date_trunc('week', CAST($2 AS TIMESTAMP)) AS DATE)) / 7 \
         WHEN 'month' THEN CAST((date_part('year', $3) - date_part('year', $2)) * 12 + date_part('month', $3) - date_part('month', $2) AS BIGINT) \
         WHEN 'quarter' THEN CAST((date_part('year', $3) - date_part('year', $2)) * 4 + date_part('quarter', $3) - date_part('quarter', $2) AS BIGINT) \
         WHEN 'year' THEN CAST(date_part('year', $3) - date_part('year', $2) AS BIGINT) \
         WHEN 'hour' THEN CAST((date_part('epoch', date_trunc('hour', CAST($3 AS TIMESTAMP))) - date_part('epoch', date_trunc('hour', CAST($2 AS TIMESTAMP)))) / 3600 AS BIGINT) \
         WHEN 'minute' THEN CAST((date_part('epoch', date_trunc('minute', CAST($3 AS TIMESTAMP))) - date_part('epoch', date_trunc('minute', CAST($2 AS TIMESTAMP)))) / 60 AS BIGINT) \
         WHEN 'second' THEN CAST(date_part('epoch', date_trunc('second', CAST($3 AS TIMESTAMP))) - date_part('epoch', date_trunc('second', CAST($2 AS TIMESTAMP))) AS BIGINT) \
         WHEN 'millisecond' THEN CAST(date_trunc('millisecond', CAST($3 AS TIMESTAMP)) AS BIGINT) / 1000000 - CAST(date_trunc('millisecond', CAST($2 AS TIMESTAMP)) AS BIGINT) / 1000000 \
         WHEN 'microsecond' THEN CAST(date_trunc('microsecond', CAST($3 AS TIMESTAMP)) AS BIGINT) / 1000 - CAST(date_trunc('microsecond', CAST($2 AS TIMESTAMP)) AS BIGINT) / 1000 \
         END";

/// A name, how many arguments, and what it is of these. `DISTINCT`, `FILTER`, `OVER` and an order are those of the call.
pub(crate) type Synonym = (&'static str, usize, &'static str);

/// All of them.
pub(crate) fn all() -> impl Iterator<Item = &'static Synonym> {
    SYNONYMS.iter().chain(&CLICKHOUSE)
}

/// Those of other systems than ClickHouse.
const SYNONYMS: [Synonym; 92] = [
    ("add_months", 2, "$1 + $2 * INTERVAL '1 month'"),
    ("age", 1, "age(CAST(current_date() AS TIMESTAMP), $1)"),
    ("approx_count_distinct", 1, "approx_distinct($1)"),
    ("approx_percentile", 2, "approx_percentile_cont($1, $2)"),
    ("approx_quantile", 2, "approx_percentile_cont($1, $2)"),
    ("arg_max", 2, KNOWN_AT_MOST),
    ("arg_min", 2, KNOWN_AT_LEAST),
    ("array_size", 1, "array_length($1)"),
    ("ceiling", 1, "ceil($1)"),
    ("charindex", 2, "strpos($2, $1)"),
    ("count_if", 1, "count(CASE WHEN $1 THEN 1 END)"),
    ("countif", 1, "count(CASE WHEN $1 THEN 1 END)"),
    ("date", 1, "CAST($1 AS DATE)"),
    ("date_add", 2, "$1 + $2"),
    ("date_diff", 3, DIFFERENCE),
    ("date_sub", 2, "$1 - $2"),
    ("datediff", 2, "CAST($1 AS DATE) - CAST($2 AS DATE)"),
    ("datediff", 3, DIFFERENCE),
    ("datetime_diff", 3, DIFFERENCE),
    ("day", 1, "date_part('day', $1)"),
    ("dayname", 1, "to_char($1, '%A')"),
    ("dayofmonth", 1, "date_part('day', $1)"),
    ("dayofweek", 1, "date_part('dow', $1)"),
    ("dayofyear", 1, "date_part('doy', $1)"),
    ("div", 2, "($1 - $1 % $2) / $2"),
    ("div0", 2, "CASE WHEN $2 = 0 THEN 0 ELSE $1 / $2 END"),
    ("endswith", 2, "ends_with($1, $2)"),
    ("epoch", 1, "date_part('epoch', $1)"),
    ("every", 1, "bool_and($1)"),
    ("first", 1, "first_value($1)"),
    ("gen_random_uuid", 0, "uuid()"),
    (
        "generate_date_array",
        2,
        "generate_series($1, $2, INTERVAL '1 day')",
    ),
    ("generate_date_array", 3, "generate_series($1, $2, $3)"),
    ("getdate", 0, "now()"),
    ("group_concat", 1, "string_agg($1, ',')"),
    ("group_concat", 2, "string_agg($1, $2)"),
    ("hour", 1, "date_part('hour', $1)"),
    ("if", 3, IF_ELSE),
    ("iff", 3, IF_ELSE),
    ("iif", 3, IF_ELSE),
    ("isnull", 1, "$1 IS NULL"),
    ("isnull", 2, "coalesce($1, $2)"),
    ("last", 1, "last_value($1)"),
    (
        "last_day",
        1,
        "CAST(date_trunc('month', $1) + INTERVAL '1 month' - INTERVAL '1 day' AS DATE)",
    ),
    ("lcase", 1, "lower($1)"),
    ("len", 1, "character_length($1)"),
    ("listagg", 1, "string_agg($1, '')"),
    ("listagg", 2, "string_agg($1, $2)"),
    ("locate", 2, "strpos($2, $1)"),
    ("max_by", 2, AT_MOST),
    ("mid", 3, "substr($1, $2, $3)"),
    ("min_by", 2, AT_LEAST),
    ("minute", 1, "date_part('minute', $1)"),
    ("mod", 2, "$1 % $2"),
    ("month", 1, "date_part('month', $1)"),
    ("monthname", 1, "to_char($1, '%B')"),
    ("nullifzero", 1, "nullif($1, 0)"),
    ("percentile_approx", 2, "approx_percentile_cont($1, $2)"),
    ("quantile_cont", 2, "percentile_cont($1, $2)"),
    ("quarter", 1, "date_part('quarter', $1)"),
    ("regexp_contains", 2, "regexp_like($1, $2)"),
    ("regexp_extract", 2, WHOLE_MATCH),
    (
        "regexp_extract",
        3,
        "CASE WHEN $3 = 0 THEN (regexp_match($1, concat('(', $2, ')')))[1] ELSE (regexp_match($1, $2))[$3] END",
    ),
    (
        "regexp_split_to_table",
        2,
        "unnest(regexp_split_to_array($1, $2))",
    ),
    ("regexp_substr", 2, WHOLE_MATCH),
    ("replicate", 2, "repeat($1, $2)"),
    ("safe_divide", 2, "$1 / nullif($2, 0)"),
    ("second", 1, "date_part('second', $1)"),
    ("sign", 1, "signum($1)"),
    ("space", 1, "repeat(' ', $1)"),
    ("split", 2, "string_to_array($1, $2)"),
    ("square", 1, "$1 * $1"),
    ("splitpart", 3, "split_part($1, $2, $3)"),
    ("startswith", 2, "starts_with($1, $2)"),
    ("str_split", 2, "string_to_array($1, $2)"),
    ("strftime", 2, "to_char($1, $2)"),
    ("string_agg", 1, "string_agg($1, ',')"),
    ("string_split", 2, "string_to_array($1, $2)"),
    ("strlen", 1, "character_length($1)"),
    ("time_bucket", 2, "date_bin($1, $2)"),
    ("timestamp_diff", 3, DIFFERENCE),
    ("to_varchar", 1, "CAST($1 AS VARCHAR)"),
    ("ucase", 1, "upper($1)"),
    (
        "unix_timestamp",
        1,
        "CAST(date_part('epoch', $1) AS BIGINT)",
    ),
    ("variance", 1, "var_samp($1)"),
    ("variance_pop", 1, "var_pop($1)"),
    ("variance_samp", 1, "var_samp($1)"),
    ("week", 1, "date_part('week', $1)"),
    ("weekofyear", 1, "date_part('week', $1)"),
    (
        "width_bucket",
        4,
        "CASE WHEN $2 < $3 AND $1 < $2 OR $2 > $3 AND $1 > $2 THEN 0 \
         WHEN $2 < $3 AND $1 >= $3 OR $2 > $3 AND $1 <= $3 THEN CAST($4 AS INT) + 1 \
         ELSE CAST(floor((CAST($1 AS DOUBLE) - CAST($2 AS DOUBLE)) * $4 / (CAST($3 AS DOUBLE) - CAST($2 AS DOUBLE))) AS INT) + 1 END",
    ),
    ("year", 1, "date_part('year', $1)"),
    ("zeroifnull", 1, "coalesce($1, 0)"),
];

/// The function that planning failed for want of.
pub(crate) fn unknown(error: &DataFusionError) -> Option<String> {
    let DataFusionError::Plan(message) = error.find_root() else {
        return None;
    };
    let (name, _) = message
        .strip_prefix("Invalid function '")?
        .split_once('\'')?;
    Some(name.to_lowercase())
}

/// The name of the function that DataFusion says it has for other arguments alone, in small letters.
pub(crate) fn mismatched(error: &DataFusionError) -> Option<String> {
    let message = error.find_root().strip_backtrace();
    let (_, call) =
        message.split_once("No function matches the given name and argument types '")?;
    let (name, _) = call.split_once('(')?;
    Some(name.to_lowercase())
}

/// Puts the years and months of `age(a, b)` as differences of years and months, which need no interval; whether there were any.
pub(crate) fn parts_of_ages(statement: &mut Statement) -> bool {
    replace_named(statement, |expr| {
        let (part, age) = match expr {
            Expr::Extract { field, expr, .. } => (field.to_string().to_lowercase(), expr.as_ref()),
            Expr::Function(call) if is_call(expr, "date_part") => match arguments(call)?[..] {
                [part, age] => (text(part)?.to_lowercase(), age),
                _ => return None,
            },
            _ => return None,
        };
        let Expr::Function(call) = age else {
            return None;
        };
        if !is_call(age, "age") {
            return None;
        }
        let of_time = |expr: &Expr| format!("CAST(({expr}) AS TIMESTAMP)");
        let today = || "CAST(current_date() AS TIMESTAMP)".to_string();
        let (later, earlier) = match arguments(call)?[..] {
            [later, earlier] => (of_time(later), of_time(earlier)),
            [earlier] => (today(), of_time(earlier)),
            _ => return None,
        };
        let months = format!(
            "CASE WHEN {later} >= {earlier} THEN {} ELSE -{} END",
            full_months(&later, &earlier),
            full_months(&earlier, &later)
        );
        let text = match &*part {
            "year" => format!("CAST(({months}) / 12 AS INT)"),
            "month" => format!("CAST(({months}) % 12 AS INT)"),
            _ => return None,
        };
        expression(&text)
    })
}

/// The months from a time to one that is not before it, none of them in part.
fn full_months(later: &str, earlier: &str) -> String {
    format!(
        "((date_part('year', {later}) - date_part('year', {earlier})) * 12 + date_part('month', {later}) - date_part('month', {earlier}) \
         - CASE WHEN {later} - date_trunc('month', {later}) < {earlier} - date_trunc('month', {earlier}) THEN 1 ELSE 0 END)"
    )
}

/// Puts what the function is in the place of its calls; output columns are called as before. Whether there were any.
pub(crate) fn replace(statement: &mut Statement, name: &str) -> bool {
    replace_named(statement, |expr| match expr {
        Expr::Function(call) if is_call(expr, name) => other(call, name),
        _ => None,
    })
}

/// What a call is; `None` where it has other arguments than are known, or clauses that have no place there.
fn other(call: &Function, name: &str) -> Option<Expr> {
    let FunctionArguments::List(list) = &call.args else {
        return None;
    };
    let arguments = arguments(call)?.into_iter().cloned();
    let mut arguments: Vec<Expr> = arguments.collect();
    if let Some(moved) = moved_by_unit(name, &arguments) {
        return Some(moved);
    }
    // BigQuery's order: what is later, what is earlier, and the unit.
    if let ("date_diff" | "timestamp_diff" | "datetime_diff", [later, _, unit]) =
        (name, &mut arguments[..])
        && matches!(unit, Expr::Identifier(_))
    {
        std::mem::swap(later, unit);
    }
    if let ("date_diff" | "datediff" | "timestamp_diff" | "datetime_diff", [unit, _, _]) =
        (name, &mut arguments[..])
    {
        let name = unit_of(unit).filter(|unit| DIFFERENCE.contains(&format!("WHEN '{unit}'")))?;
        *unit = literal(name);
    }
    let (.., text) = all().find(|(known, count, _)| *known == name && *count == arguments.len())?;
    let mut other = expression(text)?;
    let _: ControlFlow<()> = VisitMut::visit(&mut other, &mut Arguments(&arguments));
    let plain = list.duplicate_treatment.is_none()
        && list.clauses.is_empty()
        && call.within_group.is_empty()
        && call.filter.is_none()
        && call.over.is_none()
        && call.null_treatment.is_none();
    match &mut other {
        _ if plain => {}
        Expr::Function(function) => with_clauses(function, call, list)?,
        _ => return None,
    }
    Some(other)
}

/// `dateadd(day, 7, d)`: the unit is a word or a text.
fn moved_by_unit(name: &str, arguments: &[Expr]) -> Option<Expr> {
    let [unit, number, moment] = arguments else {
        return None;
    };
    let unit = match name {
        "dateadd" | "date_add" | "timestampadd" => unit_of(unit)?,
        _ => return None,
    };
    let text = match number.to_string() {
        constant if constant.parse::<i64>().is_ok() => format!("INTERVAL '{constant} {unit}'"),
        number => format!("({number}) * INTERVAL '1 {unit}'"),
    };
    expression(&format!("({moment}) + {text}"))
}

/// Units of time that are cut short.
const SHORT_UNITS: [(&str, &[&str]); 9] = [
    ("year", &["yy", "yyyy"]),
    ("quarter", &["qq", "q"]),
    ("month", &["mm", "mon"]),
    ("week", &["wk", "ww"]),
    ("day", &["dd", "d"]),
    ("hour", &["hh", "h"]),
    ("minute", &["mi", "min", "n"]),
    ("second", &["ss", "s", "sec"]),
    ("millisecond", &["ms"]),
];

/// A unit of time that is written as a name or as a text, also of many or cut short.
fn unit_of(expr: &Expr) -> Option<String> {
    let name = match expr {
        Expr::Identifier(name) => normal(name).into_owned(),
        constant => text(constant)?.to_lowercase(),
    };
    if !name.bytes().all(|b| b.is_ascii_alphabetic()) {
        return None;
    }
    let short = SHORT_UNITS.iter().find(|(_, of)| of.contains(&&*name));
    let one = name.strip_suffix('s').filter(|one| one.len() > 2);
    Some(match (short, one) {
        (Some((unit, _)), _) => (*unit).to_string(),
        (None, Some(one)) => one.to_string(),
        (None, None) => name,
    })
}

/// Puts the time in the place of a name that stands for it elsewhere; whether there was one.
pub(crate) fn replace_name(statement: &mut Statement, name: &str) -> bool {
    let text = match name {
        "localtimestamp" => "CAST(now() AS TIMESTAMP)",
        "sysdate" => "now()",
        _ => return false,
    };
    replace_named(statement, |expr| match expr {
        Expr::Identifier(own) if own.quote_style.is_none() && normal(own) == name => {
            expression(text)
        }
        // A word that the parser knows is a call without arguments.
        Expr::Function(call)
            if matches!(call.args, FunctionArguments::None) && is_call(expr, name) =>
        {
            expression(text)
        }
        _ => None,
    })
}

/// `function` with all that `call` says beside its arguments; an order of groups is one of the arguments.
fn with_clauses(
    function: &mut Function,
    call: &Function,
    list: &FunctionArgumentList,
) -> Option<()> {
    let FunctionArguments::List(arguments) = &mut function.args else {
        return None;
    };
    if list.duplicate_treatment.is_some() {
        arguments.duplicate_treatment = list.duplicate_treatment;
    }
    arguments.clauses.extend(list.clauses.iter().cloned());
    if !call.within_group.is_empty() {
        let order = FunctionArgumentClause::OrderBy(call.within_group.clone());
        arguments.clauses.push(order);
    }
    function.filter = match (function.filter.take(), call.filter.clone()) {
        (Some(own), Some(of_call)) => Some(Box::new(Expr::BinaryOp {
            left: own,
            op: BinaryOperator::And,
            right: Box::new(Expr::Nested(of_call)),
        })),
        (own, of_call) => of_call.or(own),
    };
    function.over = call.over.clone();
    function.null_treatment = call.null_treatment;
    Some(())
}

/// Puts arguments in the place of `$1` and so on.
struct Arguments<'a>(&'a [Expr]);

impl VisitorMut for Arguments<'_> {
    type Break = ();

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if let Expr::Value(value) = expr
            && let Value::Placeholder(name) = &value.value
            && let Some(number) = name.strip_prefix('$')
            && let Some(place) = number.parse::<usize>().ok().and_then(|n| n.checked_sub(1))
            && let Some(argument) = self.0.get(place)
        {
            *expr = match argument {
                Expr::BinaryOp { .. } | Expr::UnaryOp { .. } | Expr::Between { .. } => {
                    Expr::Nested(Box::new(argument.clone()))
                }
                other => other.clone(),
            };
        }
        ControlFlow::Continue(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use datafusion::prelude::SessionContext;

    use super::*;
    use crate::statements;
    use crate::statements::tests::answer;

    /// Arguments of the type that a function takes, as many as that or more; `None` where no two calls yield the same.
    fn examples(name: &str, count: usize) -> Option<&'static [&'static str]> {
        Some(match name {
            "gen_random_uuid" | "getdate" | "now64" => return None,
            "add_months" => &["d", "2"],
            "approx_percentile" | "approx_quantile" | "percentile_approx" | "quantile_cont" => {
                &["n", "0.5"]
            }
            "array_size" => &["make_array(n, n)"],
            "date_add" | "date_sub" => &["d", "INTERVAL '3 days'"],
            "datediff" if count == 3 => &["'month'", "d", "TIMESTAMP '2024-03-01'"],
            "div0" | "safe_divide" => &["n", "(n - 3)"],
            "startswith" | "endswith" => &["s", "'b'"],
            "nullifzero" | "square" => &["n"],
            "if" | "iff" | "iif" => &["b", "n", "0"],
            "count_if" | "countif" | "every" => &["b"],
            "charindex" | "locate" => &["'b'", "s"],
            "mid" => &["s", "2", "2"],
            "mod" | "div" => &["n", "3"],
            "isnull" | "zeroifnull" | "sign" | "ceiling" => &["n", "7"],
            "space" => &["abs(n)"],
            "regexp_split_to_table" => &["s", "'ñ'"],
            "adddays" | "addhours" | "addminutes" | "addmonths" | "addweeks" | "addyears"
            | "subtractdays" | "subtractmonths" | "subtractweeks" | "subtractyears" => &["d", "n"],
            "argmax" | "argmin" => &["s", "n"],
            "arraydistinct" | "arrayjoin" => &["make_array(n, 3, n)"],
            "arraystringconcat" => &["make_array(s, 'x')", "'-'"],
            "avgif" | "maxif" | "minif" | "sumif" => &["n", "b"],
            "grouparray" | "groupuniqarray" => &["n"],
            "has" => &["make_array(n, 3)", "3"],
            "notempty" | "lengthutf8" | "lowerutf8" | "upperutf8" => &["s"],
            "match" | "endswithutf8" => &["s", "'b'"],
            "replaceall" | "replaceregexpall" | "replaceregexpone" => &["s", "'ñ'", "'n'"],
            "splitbychar" | "splitbystring" => &["'ñ'", "s"],
            "stddevpop" | "stddevsamp" | "tofloat32" | "tofloat64" | "toint8" | "toint16"
            | "toint32" | "toint64" => &["n"],
            "todatetime64" => &["d", "3"],
            "splitpart" => &["s", "'ñ'", "1"],
            "arg_max" | "arg_min" | "max_by" | "min_by" => &["s", "n"],
            "date_diff" | "timestamp_diff" | "datetime_diff" => {
                &["'month'", "d", "TIMESTAMP '2024-03-01'"]
            }
            "datediff" => &["DATE '2024-03-01'", "d"],
            "width_bucket" => &["n", "-4", "4", "4"],
            "replicate" => &["s", "2"],
            "strftime" => &["d", "'%Y %j'"],
            "variance" | "variance_pop" | "variance_samp" | "first" | "last" => &["n"],
            "approx_count_distinct" | "lcase" | "len" | "strlen" | "ucase" => &["s"],
            "regexp_extract" | "regexp_substr" => &["s", "'[a-n](ñ*)'", "1"],
            "str_split" | "string_split" | "split" | "regexp_contains" => &["s", "'ñ'"],
            "generate_date_array" => &[
                "DATE '2024-02-01'",
                "DATE '2024-02-09'",
                "INTERVAL '3 days'",
            ],
            "time_bucket" => &["INTERVAL '1 day'", "d"],
            "group_concat" | "listagg" | "string_agg" => &["s", "'-'"],
            _ => &["d"],
        })
    }

    #[tokio::test]
    async fn every_synonym_is_what_it_says() {
        let context = SessionContext::new();
        let create = "CREATE TABLE t AS SELECT column1 AS d, column2 AS s, column3 AS n, column4 AS b FROM \
                      (VALUES (TIMESTAMP '2024-02-10 11:12:13', 'añb', 3, true), \
                      (TIMESTAMP '1999-12-31 23:59:59', 'b', -4, false), (NULL, NULL, NULL, NULL))";
        answer(&context, create).await;
        for &(name, count, text) in all() {
            let Some(arguments) = examples(name, count) else {
                continue;
            };
            let arguments = &arguments[..count];
            let mut written = text.to_string();
            for (place, argument) in arguments.iter().enumerate() {
                written = written.replace(&format!("${}", place + 1), argument);
            }
            let call = format!("{name}({})", arguments.join(", "));
            let found = answer(&context, &format!("SELECT {call} AS x FROM t")).await;
            let expected = answer(&context, &format!("SELECT {written} AS x FROM t")).await;
            assert_eq!(found, expected, "{call}");
        }
    }

    #[tokio::test]
    async fn filters_of_calls_and_of_what_they_are_hold_both() {
        let context = SessionContext::new();
        let table = "(VALUES (1, true), (1, true), (2, false), (NULL, true)) AS t(n, b)";
        for (written, meant) in [
            ("groupArray(n)", "make_array(1, 1, 2)"),
            ("groupArray(n) FILTER (WHERE b)", "make_array(1, 1)"),
            ("groupUniqArray(n) FILTER (WHERE b)", "make_array(1)"),
            ("uniqExact(n) FILTER (WHERE b)", "1"),
            ("uniqExact(n)", "2"),
        ] {
            let sql = format!("SELECT {written} AS x FROM {table}");
            let expected = answer(&context, &format!("SELECT {meant} AS x")).await;
            assert_eq!(answer(&context, &sql).await, expected, "{sql}");
        }
    }

    #[tokio::test]
    async fn units_are_words_or_texts() {
        let context = SessionContext::new();
        for (written, meant) in [
            ("dateadd(day, 7, DATE '2024-02-10')", "DATE '2024-02-17'"),
            (
                "dateadd('month', -1, DATE '2024-03-31')",
                "DATE '2024-02-29'",
            ),
            (
                "DATE_ADD(HOUR, 1 + 1, TIMESTAMP '2024-02-10 23:00:00')",
                "TIMESTAMP '2024-02-11 01:00:00'",
            ),
            ("datediff(week, DATE '2024-02-10', DATE '2024-02-12')", "1"),
            ("DATE_DIFF(DATE '2024-02-12', DATE '2024-02-10', DAY)", "2"),
            (
                "DATE '2024-02-10' < add_months(DATE '2024-02-10', 1)",
                "true",
            ),
            ("sysdate IS NOT NULL AND localtimestamp IS NOT NULL", "true"),
        ] {
            let found = answer(&context, &format!("SELECT {written} AS x")).await;
            assert_eq!(
                found,
                answer(&context, &format!("SELECT {meant} AS x")).await,
                "{written}"
            );
        }
    }

    #[tokio::test]
    async fn calls_keep_their_clauses_and_names() {
        let context = SessionContext::new();
        answer(
            &context,
            "CREATE TABLE t AS VALUES (1, 'b'), (1, 'a'), (2, 'c')",
        )
        .await;
        for (sql, expected) in [
            (
                "SELECT column1, listagg(column2, '+') WITHIN GROUP (ORDER BY column2 DESC) AS l FROM t GROUP BY column1 ORDER BY 1",
                "SELECT column1, string_agg(column2, '+' ORDER BY column2 DESC) AS l FROM t GROUP BY column1 ORDER BY 1",
            ),
            (
                "SELECT variance(DISTINCT column1) FILTER (WHERE column2 <> 'c') AS v FROM t",
                "SELECT var_samp(DISTINCT column1) FILTER (WHERE column2 <> 'c') AS v FROM t",
            ),
            (
                "SELECT countif(column1 = 1) OVER (PARTITION BY column1) AS c FROM t ORDER BY 1",
                "SELECT count(CASE WHEN column1 = 1 THEN 1 END) OVER (PARTITION BY column1) AS c FROM t ORDER BY 1",
            ),
            (
                "SELECT mod(mod(7, 4) + column1, 2) AS m, ucase(lcase(column2)) AS u FROM t WHERE len(column2) = 1 ORDER BY u",
                "SELECT ((7 % 4) + column1) % 2 AS m, upper(lower(column2)) AS u FROM t WHERE character_length(column2) = 1 ORDER BY u",
            ),
        ] {
            let found = answer(&context, sql).await;
            assert_eq!(found, answer(&context, expected).await, "{sql}");
        }
        let sql =
            "SELECT Year(DATE '2024-03-01'), ucase('x') FROM t GROUP BY year(DATE '2024-03-01')";
        let plan = statements::plan_text(&context.state(), sql).await.unwrap();
        let names: Vec<_> = plan
            .schema()
            .fields()
            .iter()
            .map(|f| f.name().clone())
            .collect();
        assert_eq!(names, ["Year(DATE '2024-03-01')", "ucase('x')"]);
        for wrong in [
            "SELECT year(1, 2, 3)",
            "SELECT nowhere(1)",
            "SELECT iff(true, 1, 2) OVER () FROM t",
        ] {
            let error = statements::plan_text(&context.state(), wrong)
                .await
                .unwrap_err();
            assert!(error.to_string().contains("Invalid function"), "{error}");
        }
    }
}
