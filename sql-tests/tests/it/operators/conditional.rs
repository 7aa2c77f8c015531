//! CASE, IN, BETWEEN, COALESCE and NULLIF over numbers, dates and strings.

use arrow::datatypes::*;
use warpline_sql_tests::Fixture;

use super::support::{
    Nulls, check_conditions, check_sums, check_values, drawn, primitive, row_numbers, strings,
};

const ROWS: usize = 90;

fn fixture() -> Fixture {
    let wide = [-5_000_000_000_000, 0, 12_345, 99_999_999_999];
    Fixture::device().table(
        "t",
        [
            ("id", row_numbers(ROWS)),
            (
                "i",
                primitive::<Int32Type>(drawn(
                    &[-40, -1, 0, 1, 2, 3, 17, 100],
                    ROWS,
                    Nulls::Some,
                    1,
                )),
            ),
            (
                "j",
                primitive::<Int32Type>(drawn(&[-1, 0, 1, 2, 1 << 20], ROWS, Nulls::Some, 2)),
            ),
            (
                "b",
                primitive::<Int64Type>(drawn(
                    &[i64::MIN, -1, 0, 5, i64::MAX],
                    ROWS,
                    Nulls::Some,
                    3,
                )),
            ),
            (
                "u",
                primitive::<UInt64Type>(drawn(&[0, 3, u64::MAX], ROWS, Nulls::Some, 4)),
            ),
            (
                "f",
                primitive::<Float64Type>(drawn(&[-0.5, 0.0, 2.5, 1e9], ROWS, Nulls::Some, 5)),
            ),
            (
                "n",
                primitive::<Int16Type>(drawn(&[4, 5], ROWS, Nulls::None, 6)),
            ),
            (
                "d",
                primitive::<Date32Type>(drawn(&[-400, 0, 11_016, 19_782], ROWS, Nulls::Some, 7)),
            ),
            (
                "x",
                primitive::<Decimal128Type>(drawn(&wide, ROWS, Nulls::Some, 8)),
            ),
            (
                "s",
                strings(drawn(&["", "a", "b", "É"], ROWS, Nulls::Some, 9)),
            ),
        ],
    )
}

#[test]
fn case_in_its_forms() {
    let fixture = fixture();
    check_values(
        &fixture,
        "t",
        &[
            "CASE WHEN i > 0 THEN i END",
            "CASE WHEN i > 0 THEN i ELSE j END",
            "CASE WHEN i > 0 THEN i WHEN j > 0 THEN j ELSE NULL END",
            "CASE WHEN i > 0 THEN NULL ELSE 5 END",
            "CASE i WHEN 1 THEN 10 WHEN 2 THEN 20 WHEN j THEN 30 END",
            "CASE i WHEN NULL THEN 10 ELSE 20 END",
            "CASE WHEN s = 'a' THEN i WHEN s IS NULL THEN -1 ELSE 0 END",
            "CASE s WHEN 'a' THEN 1 WHEN '' THEN 2 END",
            "CASE WHEN d < DATE '1980-01-01' THEN d ELSE DATE '2000-02-29' END",
            "CASE WHEN f > 0 THEN f / 2 ELSE -f END",
            "CASE WHEN i > 0 THEN 1 ELSE 5000000000 END",
            "CASE WHEN i IS NULL THEN f WHEN f > 1 THEN 1 ELSE i END",
            "CASE WHEN CASE WHEN i > j THEN i = 1 ELSE j = 1 END THEN 1 ELSE 0 END",
            "CASE WHEN b > 0 THEN b WHEN b < 0 THEN -b ELSE i END",
            "CASE WHEN i = 0 THEN 0 ELSE 100 / i END",
            "CASE WHEN f > 0 THEN f WHEN f = 0 THEN 7.5 END",
            "CASE f WHEN 0 THEN 1 WHEN 2.5 THEN 2 ELSE 3 END",
            "CASE WHEN s LIKE 'a%' THEN 'is a' WHEN s = 'b' THEN s ELSE upper(s) END",
        ],
    );
    check_sums(
        &fixture,
        "t",
        &[
            "CASE WHEN i > 0 THEN x ELSE 0 END",
            "CASE WHEN s = 'b' THEN x * (1 - x) END",
            "CASE WHEN u > 3 THEN u ELSE 1 END",
        ],
    );
}

#[test]
fn in_lists_short_long_and_out_of_range() {
    let long: Vec<String> = (-3..60).map(|i| (i * 3 - 1).to_string()).collect();
    let long = long.join(", ");
    let fixture = fixture();
    check_conditions(
        &fixture,
        "t",
        &[
            "i IN (1)".to_string(),
            "i IN (1, 2, 3)".into(),
            "i NOT IN (1, 2, 3)".into(),
            "i IN (1, NULL)".into(),
            "i NOT IN (1, NULL)".into(),
            "i IN (NULL)".into(),
            "i IN (5000000000, -5000000000, 17)".into(),
            "i IN (1000, 2000, 3000, 4000)".into(),
            "i NOT IN (1000, 2000, 3000, 4000)".into(),
            "n NOT IN (4, 5)".into(),
            format!("i IN ({long})"),
            format!("i NOT IN ({long})"),
            format!("i NOT IN ({long}, NULL)"),
            format!("n IN ({long}, NULL)"),
            format!("b IN ({long})"),
            "u IN (0, 3, 18446744073709551615)".into(),
            format!("i + j IN ({long})"),
            "b IN (-9223372036854775808, 9223372036854775807)".into(),
            "f IN (0, 2.5, 3)".into(),
            "d IN (DATE '1970-01-01', DATE '2000-02-29')".into(),
            "x IN (0, 123.45, 12345)".into(),
            "s IN ('a', 'b')".into(),
            "s NOT IN ('a', NULL)".into(),
            "s IN ('É', '', 'nowhere')".into(),
            "i BETWEEN 0 AND 3".into(),
            "i NOT BETWEEN 0 AND 3".into(),
            "i BETWEEN j AND 100".into(),
            "i BETWEEN 3 AND 0".into(),
            "f BETWEEN 0 AND 1e9".into(),
            "d BETWEEN DATE '1960-01-01' AND DATE '2001-01-01'".into(),
            "s BETWEEN 'a' AND 'b'".into(),
        ],
    );
}

#[test]
fn coalesce_and_nullif() {
    let fixture = fixture();
    check_values(
        &fixture,
        "t",
        &[
            "coalesce(i, j)",
            "coalesce(i, j, 7)",
            "coalesce(n, i)",
            "coalesce(i, NULL, n)",
            "coalesce(NULL, i)",
            "coalesce(i, b)",
            "coalesce(f, i)",
            "coalesce(d, DATE '1999-12-31')",
            "coalesce(s, 'none')",
            "coalesce(i + j, i, j) * 2",
            "coalesce(nullif(i, 1), 50 / nullif(j, 0))",
            "nullif(i, j)",
            "nullif(i, 0)",
            "nullif(j, NULL)",
            "nullif(s, '')",
            "nullif(f, 0)",
            "nullif(d, DATE '1970-01-01')",
        ],
    );
    check_sums(
        &fixture,
        "t",
        &["coalesce(x, 0)", "coalesce(x, i)", "nullif(x, 0)"],
    );
}
