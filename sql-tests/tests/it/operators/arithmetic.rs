//! Integers that wrap, decimals that are exact or refuse, floats with all their special values.

use std::sync::Arc;

use arrow::array::{ArrayRef, Decimal128Array};
use arrow::datatypes::*;
use warpline_sql_tests::{Fixture, test_device};

use super::support::{
    Nulls, check_all, check_conditions, check_sums, check_values, drawn, primitive, row_numbers,
};

/// Every pair of `values`, and of each with NULL, as columns `a` and `b` beside the row number `id`.
fn pairs<T: ArrowPrimitiveType>(values: &[T::Native]) -> Vec<(&'static str, ArrayRef)> {
    let options: Vec<Option<T::Native>> = values.iter().copied().map(Some).chain([None]).collect();
    let a: Vec<_> = options
        .iter()
        .flat_map(|x| options.iter().map(move |_| *x))
        .collect();
    let b: Vec<_> = options
        .iter()
        .flat_map(|_| options.iter().copied())
        .collect();
    let rows = a.len();
    vec![
        ("id", row_numbers(rows)),
        ("a", primitive::<T>(a)),
        ("b", primitive::<T>(b)),
    ]
}

fn one_literal(data_type: &str) -> String {
    format!("arrow_cast(1, '{data_type}')")
}

#[test]
fn integers_wrap_at_the_bounds_of_their_type() {
    macro_rules! table {
        ($fixture:expr, $name:expr, $type:ty, [$($value:expr),*]) => {
            $fixture.table($name, pairs::<$type>(&[$($value),*]))
        };
    }
    let mut fixture = Fixture::device();
    fixture = table!(
        fixture,
        "Int8",
        Int8Type,
        [i8::MIN, i8::MIN + 1, -7, -1, 1, 2, 100, i8::MAX]
    );
    fixture = table!(
        fixture,
        "Int16",
        Int16Type,
        [i16::MIN, -7, -1, 1, 2, 300, i16::MAX]
    );
    fixture = table!(
        fixture,
        "Int32",
        Int32Type,
        [i32::MIN, -7, -1, 1, 2, 65_536, i32::MAX]
    );
    fixture = table!(
        fixture,
        "Int64",
        Int64Type,
        [i64::MIN, -7, -1, 1, 2, 1 << 32, i64::MAX]
    );
    fixture = table!(fixture, "UInt8", UInt8Type, [0, 1, 7, 128, u8::MAX]);
    fixture = table!(fixture, "UInt16", UInt16Type, [0, 1, 7, 1 << 15, u16::MAX]);
    fixture = table!(fixture, "UInt32", UInt32Type, [0, 1, 7, 1 << 31, u32::MAX]);
    fixture = table!(fixture, "UInt64", UInt64Type, [0, 1, 7, 1 << 63, u64::MAX]);
    let types = [
        "Int8", "Int16", "Int32", "Int64", "UInt8", "UInt16", "UInt32", "UInt64",
    ];
    for name in types {
        let one = one_literal(name);
        let mut values = vec![
            "a + b".to_string(),
            "a - b".into(),
            "a * b".into(),
            "(a + b) * (a - b)".into(),
            format!("a * a - b * b + {one}"),
            "a & b".into(),
            "a | b".into(),
            "a ^ b".into(),
            "a >> 3".into(),
        ];
        let mut conditions = [
            "a < b",
            "a <= b",
            "a = b",
            "a <> b",
            "a > b",
            "a >= b",
            "a + b > a",
        ]
        .map(String::from)
        .to_vec();
        conditions.push("a IS DISTINCT FROM b".into());
        conditions.push("a IS NOT DISTINCT FROM b".into());
        conditions.push("a BETWEEN b AND a + b".into());
        if name.starts_with('I') {
            values.push("-a".into());
            // No zero among the signed values: division, except of the smallest by -1, answers.
            let guarded = format!("CASE WHEN b <> -{one} THEN a");
            values.push(format!("{guarded} / b END"));
            values.push(format!("{guarded} % b END"));
        } else {
            values.push("CASE WHEN b > 0 THEN a / b END".into());
            values.push("CASE WHEN b > 0 THEN a % b END".into());
        }
        if name == "UInt64" {
            check_sums(&fixture, name, &values);
        } else {
            check_values(&fixture, name, &values);
        }
        check_conditions(&fixture, name, &conditions);
    }
    // Sums wrap as well. No average over both ends of the type: what is left after they cancel depends on the
    // order in which the floats are added.
    check_all(
        &fixture,
        [
            "SELECT sum(a) AS s, sum(a * b) AS p FROM Int64 WHERE id >= 0".into(),
            "SELECT avg(a) AS m, avg(b) AS n FROM Int64 WHERE a > 0 AND b < 0".into(),
            "SELECT sum(a) AS s, sum(a * b) AS p FROM UInt64 WHERE id >= 0".into(),
            "SELECT b, sum(a) AS s FROM Int32 GROUP BY b".into(),
            "SELECT a, b, count(*) AS n FROM Int16 GROUP BY a, b".into(),
        ],
    );
    // 2^64 values and NULL do not fit the word of a key: the device must say so, and the CPU answers.
    let sql = "SELECT b, sum(a) AS s FROM Int64 GROUP BY b";
    match fixture.compare(sql) {
        Ok(_) => {}
        Err(message) => {
            assert!(message.contains("span all of 64 bits"), "{message}");
            fixture
                .block_on(fixture.session().set("warpline.require_gpu", "false"))
                .expect("a setting");
            assert_eq!(fixture.check(sql).metrics.fallbacks.len(), 1);
        }
    }
}

#[test]
fn division_by_zero_and_of_the_smallest_value() {
    let fixture = Fixture::device()
        .table("t", pairs::<Int64Type>(&[i64::MIN, -1, 0, 5]))
        .table(
            "d",
            pairs::<Decimal128Type>(&[-100, 0, 2_500])
                .into_iter()
                .collect::<Vec<_>>(),
        );
    for sql in [
        "SELECT sum(a / b) AS s FROM t",
        "SELECT sum(a % b) AS s FROM t WHERE a > 0",
        "SELECT count(*) AS n FROM t WHERE 10 / b > 1",
        "SELECT b, max(a / b) AS s FROM t WHERE b <> 0 GROUP BY b",
        "SELECT sum(a / b) AS s FROM d",
        "SELECT a / b AS q, count(*) AS n FROM d GROUP BY a / b",
    ] {
        let message = fixture.check_error(sql);
        let named = message.to_lowercase();
        assert!(
            named.contains("zero") || named.contains("overflow"),
            "{sql}: {message}"
        );
    }
    check_all(
        &fixture,
        [
            // The smallest value divided by -1 fails; its remainder is 0.
            "SELECT id, min(a % b) AS r FROM t WHERE b <> 0 GROUP BY id",
            "SELECT id, min(a / b) AS q FROM t WHERE b > 0 GROUP BY id",
            // What CASE does not take does not fail.
            "SELECT sum(CASE WHEN b > 0 THEN a / b ELSE b END) AS s FROM t WHERE id >= 0",
            "SELECT sum(CASE WHEN b = 0 OR b = -1 THEN 0 WHEN a / b > 2 THEN a % b END) AS s FROM t WHERE id >= 0",
            "SELECT sum(a / nullif(b, 0)) AS s FROM t WHERE b <> -1 OR b IS NULL",
            "SELECT sum(a / b) AS s FROM t WHERE b > 0",
            // No row reaches the division.
            "SELECT sum(a / (b - b)) AS s FROM t WHERE a > 100",
            "SELECT count(*) AS n FROM t WHERE id < 0 AND 1 / (a - a) = 1",
        ]
        .map(String::from),
    );
    let relaxed = Fixture::open(
        warpline_sql_tests::test_device(),
        false,
        &[("warpline.min_rows", "0")],
    )
    .table("t", pairs::<Int64Type>(&[i64::MIN, -1, 0, 5]));
    let message = relaxed.check_error("SELECT sum(a / b) AS s FROM t WHERE b > -1");
    assert!(message.to_lowercase().contains("zero"), "{message}");
    // Whatever the device may meet on the way, the answer is the CPU's.
    relaxed.check("SELECT sum(a / b) FILTER (WHERE b > 0) AS s FROM t WHERE id >= 0");
}

fn decimals(precision: u8, scale: i8, values: &[i128]) -> ArrayRef {
    let options = values.iter().copied().map(Some).chain([None]);
    let array = Decimal128Array::from_iter(options);
    Arc::new(
        array
            .with_precision_and_scale(precision, scale)
            .expect("a decimal"),
    )
}

#[test]
fn decimals_of_different_scales() {
    let values = [
        0,
        1,
        -1,
        5,
        49,
        50,
        51,
        -50,
        99_999,
        -123_456,
        1_000_000,
        999_999_999,
    ];
    let rows = values.len() + 1;
    let mut turned = values;
    turned.rotate_left(5);
    let fixture = Fixture::device().table(
        "t",
        [
            ("id", row_numbers(rows)),
            ("p9s2", decimals(9, 2, &values)),
            ("p15s2", decimals(15, 2, &turned)),
            ("p18s6", decimals(18, 6, &values)),
            ("p20s0", decimals(20, 0, &turned)),
            ("p30s10", decimals(30, 10, &turned)),
            ("p12s4", decimals(12, 4, &values)),
        ],
    );
    let columns = ["p9s2", "p15s2", "p18s6", "p20s0", "p30s10", "p12s4"];
    let mut values = Vec::new();
    let mut conditions = Vec::new();
    for (i, a) in columns.iter().enumerate() {
        for b in &columns[i..] {
            values.push(format!("{a} + {b}"));
            values.push(format!("{a} - {b}"));
            values.push(format!("CASE WHEN {b} <> 0 THEN {a} / {b} END"));
            values.push(format!("CASE WHEN {b} <> 0 THEN {a} % {b} END"));
            if !(a.contains("30") && b.contains("30")) {
                values.push(format!("{a} * {b}"));
            }
            conditions.push(format!("{a} < {b}"));
            conditions.push(format!("{a} = {b}"));
        }
        values.push(format!("-{a}"));
        values.push(format!("{a} * (1 - {a})"));
        values.push(format!("{a} + 1"));
        conditions.push(format!("{a} >= 0.5"));
        conditions.push(format!("{a} IN (0, 0.01, 12345.6, 50)"));
    }
    check_sums(&fixture, "t", &values);
    check_conditions(&fixture, "t", &conditions);
    let calls: Vec<String> = columns
        .iter()
        .enumerate()
        .map(|(i, c)| {
            format!("sum({c}) AS s{i}, avg({c}) AS m{i}, min({c}) AS lo{i}, max({c}) AS hi{i}, sum({c} * 2) AS d{i}")
        })
        .collect();
    check_all(
        &fixture,
        [
            format!("SELECT {} FROM t WHERE id >= 0", calls.join(", ")),
            format!(
                "SELECT p9s2 > 0 AS g, {} FROM t GROUP BY p9s2 > 0",
                calls.join(", ")
            ),
        ],
    );
}

#[test]
fn decimals_of_38_digits() {
    let nines = 10i128.pow(38) - 1;
    let values = [nines, -nines, nines - 1, 10i128.pow(37), 1, 0, -1, 7];
    let fixture = Fixture::device().table(
        "t",
        [
            ("id", row_numbers(values.len() + 1)),
            ("a", decimals(38, 0, &values)),
            ("b", decimals(38, 10, &values)),
            ("c", decimals(38, 37, &values)),
        ],
    );
    check_sums(
        &fixture,
        "t",
        &["a", "b", "c", "-a", "-c", "a % 1000", "a - 1"],
    );
    check_conditions(
        &fixture,
        "t",
        &[
            "a > 0",
            "a = a",
            "b < 1",
            "c IS NULL",
            "a IN (CAST(1 AS DECIMAL(38, 0)), CAST('99999999999999999999999999999999999999' AS DECIMAL(38, 0)))",
            "b IS DISTINCT FROM CAST(0 AS DECIMAL(38, 10))",
        ],
    );
    check_all(
        &fixture,
        ["SELECT count(a) AS n, sum(a % 10) AS s FROM t WHERE a <> 7".to_string()],
    );
    for sql in [
        "SELECT sum(a * a) AS s FROM t",
        "SELECT sum(a * 10) AS s FROM t",
        "SELECT sum(a + b) AS s FROM t",
    ] {
        // Where the CPU refuses the overflow, so does the device; where it answers, they agree.
        if let Err(message) = fixture.compare(sql) {
            assert!(message.contains("the reference failed"), "{sql}: {message}");
            fixture.check_error(sql);
        }
    }
}

#[test]
fn narrow_decimals() {
    let a = drawn(&[-9_999_999, -1, 0, 1250, 9_999_999], 60, Nulls::Some, 3);
    let b = drawn(&[-3, -1, 1, 250], 60, Nulls::Some, 4);
    let view = |array: ArrayRef, data_type: DataType| {
        let data = array.to_data().into_builder().data_type(data_type).build();
        arrow::array::make_array(data.expect("the same layout"))
    };
    let wide = |values: &[Option<i32>]| values.iter().map(|v| v.map(i64::from)).collect();
    let fixture = Fixture::device()
        .table(
            "d32",
            [
                ("id", row_numbers(60)),
                (
                    "a",
                    view(
                        primitive::<Decimal32Type>(a.clone()),
                        DataType::Decimal32(7, 2),
                    ),
                ),
                (
                    "b",
                    view(
                        primitive::<Decimal32Type>(b.clone()),
                        DataType::Decimal32(5, 1),
                    ),
                ),
            ],
        )
        .table(
            "d64",
            [
                ("id", row_numbers(60)),
                (
                    "a",
                    view(
                        primitive::<Decimal64Type>(wide(&a)),
                        DataType::Decimal64(16, 2),
                    ),
                ),
                (
                    "b",
                    view(
                        primitive::<Decimal64Type>(wide(&b)),
                        DataType::Decimal64(12, 3),
                    ),
                ),
            ],
        );
    for table in ["d32", "d64"] {
        check_values(
            &fixture,
            table,
            &["a", "b", "a + b", "a - b", "-a", "b * b"],
        );
        check_sums(&fixture, table, &["a", "b"]);
        check_conditions(&fixture, table, &["a = b", "a < b", "a > a + b"]);
        check_all(
            &fixture,
            [
                format!(
                    "SELECT sum(a) AS s, avg(b) AS n, count(a) AS k FROM {table} WHERE id >= 0"
                ),
                format!(
                    "SELECT avg(a) AS m, max(a) AS hi FROM {table} WHERE a BETWEEN -1 AND 13 AND id >= 0"
                ),
                format!("SELECT b, sum(a) AS s, avg(b) AS m, max(a) AS hi FROM {table} GROUP BY b"),
            ],
        );
    }
    // An average has four more digits after the point than its argument: these leave the nine of the type.
    for sql in [
        "SELECT avg(a) AS m FROM d32 WHERE a > 99999 AND id >= 0",
        "SELECT id, avg(a) AS m FROM d32 GROUP BY id",
    ] {
        let message = fixture.check_error(sql);
        assert!(message.to_lowercase().contains("overflow"), "{message}");
    }
}

/// DataFusion's rule for MIN and MAX over floats, where its answer does not depend on the order of rows.
#[test]
fn extremes_of_floats() {
    let (nan, inf) = (f64::NAN, f64::INFINITY);
    let groups: [&[f64]; 8] = [
        &[inf],
        &[-inf, -inf],
        &[inf, -inf],
        &[nan, nan],
        &[-nan],
        &[1.0, inf, -2.5],
        &[-0.0, -0.0],
        &[f64::MAX, f64::MIN, f64::MIN_POSITIVE],
    ];
    let (mut keys, mut values) = (vec![], vec![]);
    for (key, group) in (0i32..).zip(groups) {
        keys.extend(group.iter().map(|_| Some(key)).chain([Some(key)]));
        values.extend(group.iter().map(|v| Some(*v)).chain([None]));
    }
    // A group of NULLs alone.
    keys.push(Some(-1));
    values.push(None);
    let narrow = values.iter().map(|v| v.map(|x| x as f32)).collect();
    let columns = [
        ("k", primitive::<Int32Type>(keys)),
        ("v", primitive::<Float64Type>(values)),
        ("w", primitive::<Float32Type>(narrow)),
    ];
    for placement in ["auto", "shared", "global"] {
        let fixture = Fixture::device().table("t", columns.clone());
        fixture
            .block_on(fixture.session().set("warpline.group_by", placement))
            .expect("a setting");
        let calls = "min(v) AS a, max(v) AS b, min(w) AS c, max(w) AS d";
        let mut queries = vec![format!("SELECT k, {calls} FROM t GROUP BY k")];
        if placement == "auto" {
            // Ungrouped, values go by the IEEE total order, wherever NaN stands.
            queries.push(format!("SELECT {calls} FROM t WHERE k > -1"));
            queries.extend((-1..8).map(|k| format!("SELECT {calls} FROM t WHERE k = {k}")));
        }
        check_all(&fixture, queries);
    }
}

#[test]
fn floats_and_their_special_values() {
    let f64s = [
        0.0,
        -0.0,
        1.0,
        -1.5,
        f64::NAN,
        -f64::NAN,
        f64::INFINITY,
        f64::NEG_INFINITY,
        f64::MIN_POSITIVE,
        f64::MAX,
        0.1,
    ];
    let f32s = f64s.map(|v| v as f32);
    let fixture = Fixture::device()
        .table("Float64", pairs::<Float64Type>(&f64s))
        .table("Float32", pairs::<Float32Type>(&f32s));
    for table in ["Float64", "Float32"] {
        // Not through a minimum: DataFusion's grouped MIN of infinity alone is the largest finite value.
        check_sums(
            &fixture,
            table,
            &[
                "a + b",
                "a - b",
                "a * b",
                "a / b",
                "-a",
                "a * 2 - b / 3",
                "CASE WHEN a > b THEN a ELSE b END",
            ],
        );
        check_conditions(
            &fixture,
            table,
            &[
                "a < b",
                "a <= b",
                "a = b",
                "a <> b",
                "a > b",
                "a >= b",
                "a IS DISTINCT FROM b",
                "a IS NOT DISTINCT FROM b",
                "a BETWEEN -1 AND b",
                "a = 0",
                "a = -0.0",
                "a IN (0, 1, 0.1)",
                "a NOT IN (0.0, 1, NULL)",
                "nullif(a, 0) IS NULL",
            ],
        );
        check_all(
            &fixture,
            [
                format!(
                    "SELECT min(a) AS lo, max(a) AS hi, count(a) AS n FROM {table} WHERE id >= 0"
                ),
                format!(
                    "SELECT min(a) AS lo, max(a) AS hi FROM {table} WHERE a > 0 AND a <> 'NaN'"
                ),
                format!(
                    "SELECT sum(a) AS s, avg(b) AS m FROM {table} WHERE a < 'Infinity' AND b = 0.5 * 2"
                ),
                format!("SELECT sum(a) AS s, avg(a) AS m FROM {table} WHERE id >= 0"),
                format!(
                    "SELECT a > 0 AS g, sum(b) AS s FROM {table} WHERE b = 1 OR b = -1.5 GROUP BY a > 0"
                ),
            ],
        );
    }
}

/// DataFusion adds such values up in 256 bits. The device has 128, and says so where the values at hand need more; what they
/// might come to does not matter.
#[test]
fn averages_of_wide_decimals_by_what_their_sums_come_to() {
    let fixture = Fixture::open(test_device(), false, &[("warpline.min_rows", "0")]).table_from(
        "t",
        "SELECT value AS id, CAST(value % 3 AS INT) AS g, \
         CAST(CAST('9900000000000000000000000000000000' AS DECIMAL(38, 0)) - value AS DECIMAL(38, 0)) AS x \
         FROM generate_series(1, 20000)",
    );
    for sql in [
        "SELECT avg(x) AS m FROM t WHERE id < 5000",
        "SELECT g, avg(x) AS m, count(x) AS n FROM t GROUP BY g",
        "SELECT g, avg(DISTINCT x) AS m, avg(-x) AS l FROM t GROUP BY g",
    ] {
        let run = fixture.check(sql);
        assert_eq!(run.metrics.fallbacks, Vec::<String>::new(), "{sql}");
    }
    for sql in [
        "SELECT avg(x) AS m FROM t",
        "SELECT avg(CASE WHEN g = 1 THEN -x ELSE x END) AS m FROM t",
    ] {
        let run = fixture.check(sql);
        let [reason] = run.metrics.fallbacks.as_slice() else {
            panic!("{sql}: {:?}", run.metrics.fallbacks);
        };
        assert!(reason.contains("sum can leave 128 bits"), "{reason}");
        // EXPLAIN ANALYZE says so as well.
        let analyzed = fixture.explain(&format!("ANALYZE {sql}"));
        assert!(analyzed.contains("on the CPU: an average"), "{analyzed}");
    }
}

/// Sums of groups over joins whose rows nobody can bound: their averages have room, since DataFusion's own are of 128 bits.
#[test]
fn averages_of_sums_over_joins() {
    let mut fixture = Fixture::device();
    for name in ["a", "b", "c", "d", "e", "f"] {
        let sql = "SELECT value % 40 AS k, CAST(value % 9 * 1111.11 AS DECIMAL(7, 2)) AS x FROM generate_series(1, 60)";
        fixture = fixture.table_from(name, sql);
    }
    check_all(
        &fixture,
        [
            "SELECT avg(s) AS m FROM (SELECT a.k, sum(a.x * b.x) AS s FROM a, b, c, d, e, f WHERE a.k = b.k AND b.k = c.k \
             AND c.k = d.k AND d.k = e.k AND e.k = f.k GROUP BY a.k)",
            "SELECT k % 3 AS g, avg(s) AS m, avg(s * 1000) AS n FROM (SELECT a.k, sum(a.x) AS s FROM a, b, c, d, e, f \
             WHERE a.k = b.k AND b.k = c.k AND c.k = d.k AND d.k = e.k AND e.k = f.k GROUP BY a.k) GROUP BY k % 3",
        ]
        .map(String::from),
    );
}

/// Plans have sums and counts for some of them; a value and a constant may leave their type.
#[test]
fn sums_of_values_and_constants() {
    let mut columns = vec![("id", row_numbers(1000))];
    let small = [i16::MIN, -3, 0, 7, i16::MAX];
    let large = [i64::MIN, -5, 0, 9, i64::MAX];
    let unsigned = [0, 1, 1 << 33, u64::MAX >> 1, u64::MAX];
    for (nulls, [s, l, u]) in [
        (Nulls::None, ["s_none", "l_none", "u_none"]),
        (Nulls::Some, ["s_some", "l_some", "u_some"]),
        (Nulls::All, ["s_all", "l_all", "u_all"]),
    ] {
        columns.push((s, primitive::<Int16Type>(drawn(&small, 1000, nulls, 77))));
        columns.push((l, primitive::<Int64Type>(drawn(&large, 1000, nulls, 78))));
        columns.push((
            u,
            primitive::<UInt64Type>(drawn(&unsigned, 1000, nulls, 79)),
        ));
    }
    let fixture = Fixture::device().table("t", columns);
    let mut queries = Vec::new();
    for nulls in Nulls::EACH.map(Nulls::suffix) {
        let calls = [
            format!("sum(s_{nulls})"),
            format!("sum(s_{nulls} + 1)"),
            format!("sum(2 + s_{nulls})"),
            format!("sum(s_{nulls} - 70000)"),
            format!("sum(s_{nulls} + 1) FILTER (WHERE id % 3 = 0)"),
            format!("sum(DISTINCT s_{nulls} + 1)"),
            format!("sum(arrow_cast(s_{nulls}, 'Int64') + 9223372036854775000)"),
            format!("sum(l_{nulls} + 1)"),
            format!("sum(u_{nulls} + arrow_cast(3, 'UInt64'))"),
            "sum(arrow_cast(id, 'UInt64') + arrow_cast(18446744073709550000, 'UInt64'))"
                .to_string(),
        ];
        let calls = calls.iter().enumerate();
        let calls: Vec<String> = calls.map(|(i, call)| format!("{call} AS v{i}")).collect();
        let calls = calls.join(", ");
        for rows in ["", " WHERE id < 0", " WHERE id = 5", " WHERE id < 33"] {
            queries.push(format!("SELECT {calls} FROM t{rows}"));
            queries.push(format!(
                "SELECT id % 7 AS g, {calls} FROM t{rows} GROUP BY id % 7"
            ));
        }
    }
    check_all(&fixture, queries);
}

/// Divisors that are never zero are not looked at, but the last block has rows that are not there.
#[test]
fn quotients_of_few_rows_by_what_is_never_zero() {
    let dividends = [
        i128::from(i64::MAX) * 1_000_000,
        -77_777,
        0,
        5,
        i64::MIN.into(),
    ];
    let wide = drawn(&dividends, 33, Nulls::Some, 5);
    let wide = Decimal128Array::from_iter(wide).with_precision_and_scale(30, 2);
    let wide = wide.expect("values of 30 digits");
    let fixture = Fixture::device().table(
        "t",
        vec![
            ("id", row_numbers(33)),
            ("a", Arc::new(wide) as ArrayRef),
            (
                "b",
                primitive::<Int32Type>(drawn(&[3, 7, -1, 1_000], 33, Nulls::None, 6)),
            ),
            (
                "c",
                primitive::<Int64Type>(drawn(&[i64::MIN, -9, 4, i64::MAX], 33, Nulls::None, 7)),
            ),
        ],
    );
    let queries = [
        "SELECT id, a / b AS q, a % b AS r, a / c AS w FROM t",
        "SELECT id, a / b AS q, a % c AS r FROM t WHERE id % 5 = 2",
        "SELECT id % 4 AS g, sum(a / b) AS s, avg(a) AS m, avg(a % b) AS r FROM t GROUP BY id % 4",
        "SELECT id, CAST(a AS BIGINT) AS n FROM t WHERE id % 3 = 1 AND a < 1000000000",
        "SELECT id, CAST(a AS DECIMAL(30, 0)) AS n, a / 3 AS t FROM t",
    ];
    check_all(&fixture, queries.map(String::from).to_vec());
}
