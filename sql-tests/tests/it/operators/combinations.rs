//! Functions of several values of which there are few: strings that are made, casts to strings, dates and numbers by table.

use arrow::datatypes::*;
use warpline_sql_tests::Fixture;

use super::support::{
    Nulls, booleans, check_all, check_conditions, check_values, drawn, primitive, row_numbers,
    string_views, strings,
};

const WORDS: [&str; 9] = [
    "",
    "a",
    "Bär",
    "one",
    "two",
    "tWo words",
    "日本",
    "%_",
    "x-y",
];
const OTHERS: [&str; 5] = ["", "o", "three", "ß", "one"];

pub(super) fn table(rows: usize, nulls: Nulls) -> Fixture {
    let days = [-1, 0, 58, 59, 11_016, 11_017, 11_315];
    Fixture::device().table(
        "t",
        [
            ("id", row_numbers(rows)),
            ("a", strings(drawn(&WORDS, rows, nulls, 1))),
            ("b", string_views(drawn(&OTHERS, rows, nulls, 2))),
            (
                "i",
                primitive::<Int32Type>(drawn(&[-3, 0, 1, 2, 12], rows, nulls, 3)),
            ),
            (
                "n",
                primitive::<Int64Type>(drawn(&[90, 91, 97, 255], rows, nulls, 4)),
            ),
            (
                "u",
                primitive::<UInt8Type>(drawn(&[0, 7, 255], rows, nulls, 5)),
            ),
            ("d", primitive::<Date32Type>(drawn(&days, rows, nulls, 6))),
            ("f", booleans(drawn(&[true, false], rows, nulls, 7))),
        ],
    )
}

pub(super) const VALUES: [&str; 34] = [
    "a || b",
    "a || '-' || b || '!'",
    "concat(a, b)",
    "concat(a, '/', i, '/', f)",
    "concat_ws('+', a, b, CAST(n AS VARCHAR))",
    "upper(a || b)",
    "replace(a, b, 'Z')",
    "strpos(a, b)",
    "levenshtein(a, b)",
    "starts_with(a, b)",
    "repeat(a, 3) || b",
    "lpad(b, 5, a)",
    "substr(a, i, 2)",
    "left(a, i)",
    "split_part(a, ' ', 1) || b",
    "CASE WHEN i > 0 THEN a ELSE b END || '.'",
    "CASE WHEN i > 0 THEN a ELSE b || '.' END",
    "coalesce(a, b, 'none') || f",
    "nullif(a || b, 'oneo')",
    "CAST(i AS VARCHAR)",
    "CAST(n AS VARCHAR) || a",
    "CAST(d AS VARCHAR)",
    "CAST(u AS VARCHAR)",
    "CAST(f AS VARCHAR)",
    "to_char(d, '%Y-%m')",
    "to_char(d, '%d.%m.%y') || a",
    "to_hex(n)",
    "chr(n)",
    "date_part('year', d) || b",
    "make_date(2000, u % 12 + 1, u % 28 + 1)",
    "factorial(abs(i))",
    "gcd(i, n)",
    "lcm(i, n)",
    "regexp_replace(a, b, '<>')",
];

#[test]
fn values_of_few_combinations() {
    for nulls in Nulls::EACH {
        for rows in [1, 33, 400] {
            check_values(&table(rows, nulls), "t", &VALUES);
        }
    }
}

pub(super) const CONDITIONS: [&str; 11] = [
    "a || b LIKE '%o%'",
    "a LIKE b || '%'",
    "a ~ b",
    "CAST(i AS VARCHAR) LIKE '1%'",
    "CAST(d AS VARCHAR) LIKE '2000%'",
    "a || b IN ('one', 'ao', NULL)",
    "concat(a, b) = concat(b, a)",
    "upper(a) = upper(b)",
    "a || b < b || a",
    "length(a || b) > i",
    "f IS TRUE AND a || b <> ''",
];

#[test]
fn conditions_over_few_combinations() {
    check_conditions(&table(300, Nulls::Some), "t", &CONDITIONS);
}

#[test]
fn made_strings_are_keys() {
    check_all(
        &table(500, Nulls::Some),
        [
            "SELECT a || '-' || b AS k, count(*) AS c, sum(n) AS s FROM t GROUP BY a || '-' || b",
            "SELECT to_char(d, '%Y-%m') AS k, count(*) AS c FROM t GROUP BY 1",
            "SELECT l.id AS l, r.id AS r FROM t l JOIN t r ON l.a || l.b = r.b || r.a WHERE l.id < 40 AND r.id < 60",
            "SELECT count(DISTINCT concat(a, b, i)) AS c, min(concat(a, b)) AS lo, max(a || b) AS hi FROM t",
            "SELECT id, a || b AS k FROM t WHERE id < 100 ORDER BY a || b, id LIMIT 20",
            "SELECT id, concat(b, ':', CAST(i AS VARCHAR)) AS k FROM t WHERE n > 90",
            "SELECT k || '!' AS k, c FROM (SELECT a || b AS k, count(*) AS c FROM t GROUP BY 1)",
        ]
        .map(String::from),
    );
}

#[test]
fn tables_without_rows_have_no_combinations() {
    check_all(
        &table(0, Nulls::Some),
        [
            "SELECT count(a || b) AS c, max(concat(a, i)) AS hi FROM t",
            "SELECT a || b AS k, count(*) AS c FROM t GROUP BY 1",
        ]
        .map(String::from),
    );
}

/// What fails for a combination that no row has is for DataFusion to answer, and so is what has too many combinations.
#[test]
fn combinations_that_fail_and_those_that_are_too_many() {
    let many: Vec<Option<i32>> = (0..2_000).map(|i| Some(i * 1_000)).collect();
    let fixture = Fixture::relaxed().table(
        "t",
        [
            ("id", row_numbers(2_000)),
            ("wide", primitive::<Int32Type>(many)),
            ("s", strings(vec![Some("12"); 2_000])),
        ],
    );
    check_values(
        &fixture,
        "t",
        &[
            "CAST(wide AS VARCHAR) || s",
            "CASE WHEN id % 2 = 0 THEN CAST(s || (id % 7) AS INT) END",
            "make_date(2000, id % 12 + 1, id % 28 + 1)",
        ],
    );
    check_all(
        &fixture,
        ["SELECT CAST(sum(wide) AS VARCHAR) AS s FROM t".to_string()],
    );
}

/// Where there turn out to be too many combinations, the device runs what is around them.
#[test]
fn around_too_many_combinations_the_device_goes_on() {
    let many = |of: &str| -> Vec<String> { (0..2_000).map(|i| format!("{of}{i}")).collect() };
    let (a, b) = (many("a"), many("b"));
    let texts = |list: &[String]| strings(list.iter().map(|s| Some(s.as_str())).collect());
    let fixture = Fixture::device().table(
        "t",
        [
            ("id", row_numbers(2_000)),
            ("a", texts(&a)),
            ("b", texts(&b)),
        ],
    );
    let sql = "SELECT l.id AS id, l.a || ', ' || r.b AS k FROM t l JOIN t r ON l.id = r.id \
               WHERE r.id % 7 = 1 ORDER BY l.id LIMIT 10";
    // What was found out is remembered.
    for _ in 0..2 {
        fixture.check(sql);
    }
    check_all(
        &fixture,
        [
            "SELECT id, k || a AS k FROM (SELECT id, a || b AS k, a FROM t ORDER BY id LIMIT 5)"
                .to_string(),
        ],
    );
}
