//! Every kind of expression, and every refusal.

use arrow::datatypes::FieldRef;
use datafusion::common::{DFSchema, ToDFSchema};

use warpline_gpu::expr::DatePart;

use super::*;
use crate::WarplineConfig;
use crate::tests::{schema, session};

fn physical(sql: &str) -> Arc<dyn PhysicalExpr> {
    let context = session(None, WarplineConfig::default());
    let schema: DFSchema = schema().to_dfschema().unwrap();
    let expr = context.state().create_logical_expr(sql, &schema).unwrap();
    context.create_physical_expr(expr, &schema).unwrap()
}

fn translated(sql: &str) -> Result<(Expr, Vec<usize>), Reason> {
    let schema = schema();
    let mut scope = Scope::new(&schema);
    let expr = translate(&physical(sql), &mut scope)?;
    Ok((expr, scope.used().to_vec()))
}

/// The translation as text, with the names of its columns.
fn text(sql: &str) -> String {
    let (expr, used) = translated(sql).unwrap_or_else(|reason| panic!("{sql}: {reason}"));
    let fields: Vec<FieldRef> = used
        .iter()
        .map(|i| Arc::clone(&schema().fields()[*i]))
        .collect();
    expr.named(&fields).to_string()
}

fn reason(sql: &str) -> String {
    match translated(sql) {
        Ok((expr, _)) => panic!("{sql} was translated to {expr:?}"),
        Err(reason) => reason.to_string(),
    }
}

#[test]
fn arithmetic_and_comparisons_keep_types() {
    assert_eq!(text("a + 1"), "(CAST(a AS Int64) + 1)");
    assert_eq!(text("b * 2 - b / 3 % 5"), "((b * 2) - ((b / 3) % 5))");
    assert_eq!(text("f / 2.5"), "(f / 2.5)");
    assert_eq!(text("-b"), "-b");
    let (product, _) = translated("qty * price").unwrap();
    assert_eq!(product.data_type, DataType::Decimal128(31, 4));
    assert!(product.nullable);
    let (comparison, used) = translated("qty <= 24.00").unwrap();
    assert_eq!(
        (comparison.data_type, comparison.nullable, used),
        (DataType::Boolean, false, vec![2])
    );
    assert_eq!(text("day < date '1995-03-15'"), "(day < 1995-03-15)");
    assert_eq!(text("b IS DISTINCT FROM 4"), "(b IS DISTINCT FROM 4)");
    assert_eq!(text("b & 3 | 4"), "((b & 3) | 4)");
    assert_eq!(
        text("f > 1 AND (flag OR NOT flag)"),
        "((f > 1) AND (flag OR NOT flag))"
    );
}

#[test]
fn constants_are_folded() {
    assert_eq!(
        text("day <= date '1998-12-01' - interval '90' day"),
        "(day <= 1998-09-02)"
    );
    assert_eq!(text("b < 2 * 3 + 1"), "(b < 7)");
    assert_eq!(
        text("qty BETWEEN 0.06 - 0.01 AND 0.06 + 0.01"),
        "((qty >= 0.05) AND (qty <= 0.07))"
    );
    let (literal, used) = translated("length('abc') = 3").unwrap();
    assert!(matches!(literal.node, Node::Literal(_)) && used.is_empty());
}

#[test]
fn null_tests_conditionals_and_lists() {
    assert_eq!(text("b IS NULL"), "b IS NULL");
    assert_eq!(text("s IS NOT NULL"), "s IS NOT NULL");
    assert_eq!(
        text("CASE WHEN b > 1 THEN f ELSE 0.5 END"),
        "CASE WHEN (b > 1) THEN f ELSE 0.5 END"
    );
    assert_eq!(
        text("CASE b WHEN 1 THEN 10 WHEN 2 THEN 20 END"),
        "CASE WHEN (b = 1) THEN 10 WHEN (b = 2) THEN 20 END"
    );
    assert_eq!(text("b IN (1, 2, 3, 4, NULL)"), "b IN (1, 2, 3, 4, NULL)");
    assert_eq!(text("b NOT IN (1, 2, 3, 4)"), "b NOT IN (1, 2, 3, 4)");
    assert_eq!(
        text("nullif(b, 3)"),
        "CASE WHEN (b = 3) THEN NULL ELSE b END"
    );
    let (either, used) = translated("coalesce(b, 7)").unwrap();
    assert!(
        matches!(either.node, Node::Coalesce(_) | Node::Case { .. }),
        "{either:?}"
    );
    assert_eq!((used, either.nullable), (vec![1], false));
}

#[test]
fn casts_that_kernels_do() {
    assert_eq!(text("CAST(b AS INT)"), "CAST(b AS Int32)");
    assert_eq!(text("TRY_CAST(f AS BIGINT)"), "TRY_CAST(f AS Int64)");
    for sql in [
        "CAST(a AS DECIMAL(12, 3))",
        "CAST(qty AS DECIMAL(10, 1))",
        "CAST(qty AS BIGINT)",
        "CAST(qty AS DOUBLE)",
        "CAST(day AS TIMESTAMP)",
        "CAST(at AS DATE)",
        "CAST(flag AS INT)",
        "CAST(b AS BOOLEAN)",
        "CAST(b AS DOUBLE)",
    ] {
        let (expr, _) = translated(sql).unwrap_or_else(|reason| panic!("{sql}: {reason}"));
        assert!(
            matches!(expr.node, Node::Cast { safe: false, .. }),
            "{sql}: {expr:?}"
        );
    }
    for sql in [
        "CAST(f AS DECIMAL(10, -2))",
        "CAST(f AS VARCHAR)",
        "CAST(at AS VARCHAR)",
    ] {
        assert!(
            reason(sql).contains("runs on the CPU"),
            "{sql}: {}",
            reason(sql)
        );
    }
}

#[test]
fn calendar_fields() {
    for (name, part) in [
        ("year", DatePart::Year),
        ("QUARTER", DatePart::Quarter),
        ("month", DatePart::Month),
        ("day", DatePart::Day),
        ("dow", DatePart::DayOfWeek),
        ("doy", DatePart::DayOfYear),
        ("week", DatePart::Week),
        ("hour", DatePart::Hour),
        ("minutes", DatePart::Minute),
        ("sec", DatePart::Second),
    ] {
        let (expr, _) = translated(&format!("date_part('{name}', at)")).unwrap();
        assert!(
            matches!(expr.node, Node::DatePart { part: p, .. } if p == part),
            "{name}: {expr:?}"
        );
        assert_eq!(expr.data_type, DataType::Int32);
    }
    assert_eq!(text("extract(year FROM day)"), "date_part(year, day)");
    for (name, data_type) in [
        ("isodow", DataType::Int32),
        ("isoyear", DataType::Int32),
        ("msecs", DataType::Int32),
        ("microsecond", DataType::Int32),
        ("nanosecond", DataType::Int64),
        ("epoch", DataType::Float64),
    ] {
        let (expr, _) = translated(&format!("date_part('{name}', at)")).unwrap();
        assert!(matches!(expr.node, Node::DatePart { .. }), "{expr:?}");
        assert_eq!(expr.data_type, data_type);
    }
}

#[test]
fn expressions_over_one_string_column_are_evaluated_per_distinct_value() {
    for sql in [
        "s = 'name 1'",
        "s LIKE 'name%'",
        "s IN ('name 1', 'name 2', 'x', 'y')",
        "s > 'name 2' AND upper(s) <> 'NAME 3'",
        "substr(s, 1, 2)",
        "length(s)",
        "CAST(length(s) AS DECIMAL(5, 0))",
        "s ~ 'n.me'",
        "upper(s) || lower(s)",
        "CASE WHEN s LIKE '%1' THEN 1 ELSE 0 END",
        "coalesce(s, 'none')",
        "upper(s) IS NULL",
        "starts_with(s, 'n')",
    ] {
        let (expr, used) = translated(sql).unwrap_or_else(|reason| panic!("{sql}: {reason}"));
        assert_eq!(used, [8], "{sql}");
        let Node::PerDistinct {
            column: 0,
            function,
        } = &expr.node
        else {
            panic!("{sql}: {expr:?}")
        };
        let mut columns = Vec::new();
        function
            .apply(|e| {
                columns.extend(e.downcast_ref::<Column>().map(Column::index));
                Ok(TreeNodeRecursion::Continue)
            })
            .unwrap();
        assert!(
            !columns.is_empty() && columns.iter().all(|c| *c == 0),
            "{sql}: {function}"
        );
    }
}

#[test]
fn only_the_string_part_of_a_mixed_expression_is_looked_up() {
    let (expr, used) =
        translated("CASE WHEN s LIKE 'name 1%' THEN qty * price ELSE 0 END").unwrap();
    let Node::Case { branches, .. } = &expr.node else {
        panic!("{expr:?}")
    };
    assert!(
        matches!(branches[0].0.node, Node::PerDistinct { column: 0, .. }),
        "{expr:?}"
    );
    assert_eq!(used, [8, 2, 3]);
    let (both, used) = translated("s = 'a' OR u = 'b'").unwrap();
    let Node::Binary { left, right, .. } = &both.node else {
        panic!("{both:?}")
    };
    assert!(matches!(left.node, Node::PerDistinct { column: 0, .. }));
    assert!(matches!(right.node, Node::PerDistinct { column: 1, .. }));
    assert_eq!(used, [8, 9]);
    let (bare, _) = translated("s").unwrap();
    assert!(matches!(bare.node, Node::Column(0)));
}

#[test]
fn refusals_say_why() {
    for (sql, why) in [
        (
            "s || CAST(f AS VARCHAR) = 'ab'",
            "runs on the CPU outside string expressions",
        ),
        ("random() < f", "is volatile"),
        ("isnan(random())", "is volatile"),
        (
            "at + arrow_cast(b, 'Interval(YearMonth)') > at",
            "not constant",
        ),
        ("chr(CAST(f AS BIGINT)) = 'a'", "runs on the CPU"),
        (
            "concat(s, f) = 'ab'",
            "over more than one column runs on the CPU",
        ),
    ] {
        assert!(reason(sql).contains(why), "{sql}: {}", reason(sql));
    }
}

#[test]
fn checked_arithmetic_is_refused() {
    let schema = schema();
    let b = || Arc::new(Column::new("b", 1)) as Arc<dyn PhysicalExpr>;
    let plus = BinaryExpr::new(b(), datafusion::logical_expr::Operator::Plus, b());
    let checked: Arc<dyn PhysicalExpr> = Arc::new(plus.clone().with_fail_on_overflow(true));
    let refused = translate(&checked, &mut Scope::new(&schema)).unwrap_err();
    assert!(
        refused.as_str().contains("checks for overflow"),
        "{refused}"
    );
    let plain: Arc<dyn PhysicalExpr> = Arc::new(plus);
    assert!(translate(&plain, &mut Scope::new(&schema)).is_ok());
}

#[test]
fn huge_expressions_are_refused_not_expanded() {
    let schema = schema();
    let mut expr = Arc::new(Column::new("b", 1)) as Arc<dyn PhysicalExpr>;
    for _ in 0..40 {
        expr = Arc::new(BinaryExpr::new(
            Arc::clone(&expr),
            datafusion::logical_expr::Operator::Plus,
            expr,
        ));
    }
    let refused = translate(&expr, &mut Scope::new(&schema)).unwrap_err();
    assert!(refused.as_str().contains("too large"), "{refused}");
}

#[test]
fn faults_are_known() {
    for (sql, faults) in [
        ("b / 2 > 1", false),
        ("b / 0 > 1", true),
        ("b / -1 > 1", true),
        ("b % -1 = 0", true),
        ("b / a > 1", true),
        ("b % a = 0", true),
        ("f / 2.0 > 1", false),
        ("b + 1 > 2", false),
        ("qty * price > 1", true),
        ("CAST(b AS INT) = a + a", true),
        ("TRY_CAST(f AS INT) = 1", false),
        ("CAST(at AS DATE) = day", false),
        ("CAST(day AS TIMESTAMP) = at", false),
        ("CAST(a AS BIGINT) + 1 = b", false),
        ("s LIKE 'x%'", false),
        ("CASE WHEN a > 0 THEN b / 3 ELSE 0 END = 1", false),
        ("CASE WHEN a > 0 THEN b / a ELSE 0 END = 1", true),
    ] {
        let (expr, _) = translated(sql).unwrap_or_else(|reason| panic!("{sql}: {reason}"));
        assert_eq!(expr.may_fault(), faults, "{sql}: {expr:?}");
    }
}

#[test]
fn what_kernels_lack_is_looked_up_by_its_few_values() {
    for (sql, inputs) in [
        ("s || u", 2),
        ("concat(s, '-', u, a)", 3),
        ("CAST(b AS VARCHAR)", 1),
        ("to_char(day, '%Y')", 1),
        ("to_char(at, '%Y-%m') || s", 2),
        ("CAST(date_trunc('hour', at) AS VARCHAR)", 1),
        ("CAST(date_bin(interval '10' minute, at) AS VARCHAR)", 1),
        (
            "to_char(at, '%H') || to_char(date_trunc('week', at), '%F')",
            2,
        ),
        ("date_part('year', at) || s", 2),
        ("upper(s) || lower(s) || u", 2),
        ("CASE WHEN f > 1 THEN s ELSE u END || '.'", 1),
    ] {
        let (expr, _) = translated(sql).unwrap_or_else(|reason| panic!("{sql}: {reason}"));
        let Node::PerCombination { inputs: found, .. } = expr.node else {
            panic!("{sql}: {expr:?}");
        };
        assert_eq!(found.len(), inputs, "{sql}: {found:?}");
    }
    // Strings of any length are not made for combinations that no row may have.
    assert!(reason("repeat(s, b)").contains("runs on the CPU"));
    assert!(reason("s || f").contains("runs on the CPU"));
    // Parts of a second are many.
    assert!(reason("to_char(at, '%T%.3f')").contains("runs on the CPU"));
    // The fields of a lookup's inputs are its own.
    for sql in ["arrow_field(s)['name'] = 's'", "arrow_field(b)['nullable']"] {
        assert!(reason(sql).contains("runs on the CPU"), "{sql}");
    }
}

#[test]
fn moves_in_time() {
    assert_eq!(
        text("day + interval '1' month"),
        "+1 months, +0 ticks (day)"
    );
    assert_eq!(text("day - 7"), "-7 ticks (day)");
    assert_eq!(
        text("at - interval '1 day 1 nanosecond'"),
        "-86400000001 ticks (at)"
    );
    assert_eq!(
        text("date_trunc('minute', at)"),
        "bin of 60000000 ticks from 0 (at)"
    );
    assert_eq!(text("date_trunc('month', at)"), "start of the month(at)");
    assert_eq!(text("day - date '2000-01-01'"), "(day - 2000-01-01)");
}

#[test]
fn what_was_translated_is_datafusions_again() {
    let schema = schema();
    let translated = |expr: &Arc<dyn PhysicalExpr>| {
        let expr = translate(expr, &mut Scope::whole(&schema));
        expr.unwrap_or_else(|reason| panic!("{reason}"))
    };
    for sql in [
        "a + 1",
        "b * 2 - b / 3 % 5",
        "qty * price",
        "CASE WHEN a > 3 AND NOT flag THEN price ELSE qty END",
        "a IN (1, 2, NULL)",
        "b NOT IN (4, 5)",
        "s IS NULL OR u IS NOT NULL",
        "TRY_CAST(f AS INT)",
        "upper(s)",
        "length(u) + a",
        "s || u",
        "concat(s, a % 3)",
        "a IS DISTINCT FROM b",
        "a & 3 | 4",
    ] {
        let expr = translated(&physical(sql));
        let again = crate::rel::physical::physical(&expr, &schema);
        let again = again.unwrap_or_else(|| panic!("{sql}"));
        let (again, expr) = (translated(&again), format!("{expr:?}"));
        assert_eq!(format!("{again:?}"), expr, "{sql}");
    }
    let without = translated(&physical("date_trunc('month', at)"));
    assert!(crate::rel::physical::physical(&without, &schema).is_none());
}
