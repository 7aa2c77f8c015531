//! Strings that repeat and strings that do not: comparisons, patterns and functions, as filters, keys and output.

use std::sync::Arc;

use arrow::array::{ArrayRef, StringArray, StringViewArray};
use arrow::datatypes::Int32Type;
use warpline_sql_tests::{Fixture, test_device};

use crate::operators::support::{Nulls, Random, check_all, drawn, primitive, row_numbers};

const ROWS: usize = 3_000;

/// Words in a random order, so that hardly two texts are equal; some are NULL, empty or very long.
fn texts(seed: u64) -> Vec<Option<String>> {
    const WORDS: [&str; 12] = [
        "special",
        "requests",
        "pending",
        "Ünïcode",
        "日本語",
        "forest",
        "green",
        "%",
        "_",
        "100%",
        "a_b",
        "😀",
    ];
    let mut random = Random::new(seed);
    (0..ROWS)
        .map(|row| match row % 97 {
            0 => None,
            1 => Some(String::new()),
            2 => Some("long ".repeat(500 + row)),
            _ => {
                let words = 1 + random.below(6);
                let list: Vec<&str> = (0..words).map(|_| random.pick(&WORDS)).collect();
                Some(format!("{} {row}", list.join(" ")))
            }
        })
        .collect()
}

/// `t` is text that hardly repeats, `v` the same as views, `c` repeats; `o` is another table to join with.
fn fixture() -> Fixture {
    let unique = texts(1);
    let colours = ["red", "green", "Grün", "", "blue", "dark blue", "日本"];
    let t: ArrayRef = Arc::new(StringArray::from(unique.clone()));
    let v: ArrayRef = Arc::new(StringViewArray::from(
        unique.iter().map(Option::as_deref).collect::<Vec<_>>(),
    ));
    let c: ArrayRef = Arc::new(StringArray::from(drawn(&colours, ROWS, Nulls::Some, 2)));
    let other: ArrayRef = Arc::new(StringArray::from(
        texts(1)
            .into_iter()
            .skip(1000)
            .take(500)
            .collect::<Vec<_>>(),
    ));
    Fixture::device()
        .table(
            "t",
            [
                ("id", row_numbers(ROWS)),
                ("t", t),
                ("v", v),
                ("c", c),
                (
                    "k",
                    primitive::<Int32Type>(drawn(&[1, 2, 3], ROWS, Nulls::Some, 3)),
                ),
            ],
        )
        .table("o", [("id", row_numbers(500)), ("t", other)])
}

const PATTERNS: [&str; 22] = [
    "",
    "%",
    "_",
    "__",
    "a%",
    "%a",
    "%a%",
    "special%",
    "%special%requests%",
    "%green%forest%",
    "%ö%",
    "日本%",
    "_本%",
    "%😀%",
    "%\\%%",
    "100\\%%",
    "%a\\_b%",
    "s_ecial %",
    "%e%e%e%",
    "red",
    "%blue",
    "long long %",
];

#[test]
fn patterns() {
    let fixture = fixture();
    let quoted = |pattern: &str| pattern.replace('\'', "''");
    for (column, operator) in [
        ("t", "LIKE"),
        ("t", "NOT LIKE"),
        ("v", "LIKE"),
        ("t", "ILIKE"),
        ("c", "LIKE"),
        ("c", "NOT ILIKE"),
    ] {
        let calls: Vec<String> = PATTERNS
            .iter()
            .enumerate()
            .map(|(i, p)| {
                format!(
                    "count(*) FILTER (WHERE {column} {operator} '{}') AS p{i}",
                    quoted(p)
                )
            })
            .collect();
        check_all(
            &fixture,
            calls
                .chunks(6)
                .map(|calls| format!("SELECT {} FROM t", calls.join(", ")))
                .chain([
                    format!("SELECT id FROM t WHERE {column} {operator} '%e%n%'"),
                    format!("SELECT k, count(*) AS n FROM t WHERE {column} {operator} '%a%' AND k > 1 GROUP BY k"),
                ]),
        );
    }
}

#[test]
fn comparisons() {
    let fixture = fixture();
    for column in ["t", "v", "c"] {
        check_all(
            &fixture,
            [
                format!("SELECT id FROM t WHERE {column} = 'green'"),
                format!("SELECT count(*) AS n FROM t WHERE {column} <> 'red' AND {column} >= 'g'"),
                format!("SELECT count(*) AS n FROM t WHERE {column} BETWEEN 'a' AND 'forest z'"),
                format!(
                    "SELECT count(*) AS n FROM t WHERE {column} IN ('red', '', 'nothing', 'green', NULL)"
                ),
                format!("SELECT count(*) AS n FROM t WHERE {column} NOT IN ('red', '')"),
                format!("SELECT count(*) AS n FROM t WHERE {column} IS NULL OR {column} = ''"),
                format!("SELECT count(*) AS n FROM t WHERE {column} IS DISTINCT FROM 'blue'"),
                format!("SELECT count(*) AS n FROM t WHERE starts_with({column}, 'gr')"),
                format!(
                    "SELECT min({column}) AS lo, max({column}) AS hi, count({column}) AS n FROM t WHERE k = 2"
                ),
            ],
        );
    }
    check_all(
        &fixture,
        [
            "SELECT count(*) AS n FROM t WHERE t = v",
            "SELECT count(*) AS n FROM t WHERE t < c",
            "SELECT id FROM t WHERE t > v OR t = c",
        ]
        .map(String::from),
    );
}

#[test]
fn functions_in_the_output() {
    check_all(
        &fixture(),
        [
            "SELECT id, t, v, c FROM t WHERE id % 7 = 3",
            "SELECT id, upper(t) AS a, lower(v) AS b, upper(c) AS c FROM t WHERE id < 300",
            "SELECT id, substr(t, 3, 5) AS a, substr(v, 2) AS b, substr(c, 1, 2) AS c FROM t WHERE id < 300",
            "SELECT id, substr(t, 0, 3) AS a, substr(t, -2, 5) AS b, substr(t, 4000, 3) AS c FROM t WHERE id < 200",
            "SELECT id, character_length(t) AS a, octet_length(v) AS b, length(c) AS c FROM t",
            "SELECT id, t || '-' || c AS a, concat(c, k, t) AS b FROM t WHERE id < 300",
            "SELECT id, coalesce(c, t, 'none') AS a, CASE WHEN k = 1 THEN t WHEN k = 2 THEN c ELSE 'k' END AS b FROM t WHERE id < 300",
            "SELECT id, trim(t) AS a, replace(c, 'e', '') AS b, reverse(c) AS c, left(t, 4) AS d FROM t WHERE id < 300",
        ]
        .map(String::from),
    );
}

#[test]
fn keys_of_groups_joins_and_orders() {
    check_all(
        &fixture(),
        [
            "SELECT c, count(*) AS n, max(t) AS hi FROM t GROUP BY c",
            "SELECT t, count(*) AS n FROM t GROUP BY t",
            "SELECT substr(t, 1, 4) AS p, c, count(*) AS n FROM t GROUP BY substr(t, 1, 4), c",
            "SELECT count(DISTINCT t) AS a, count(DISTINCT c) AS b, count(DISTINCT substr(v, 2, 3)) AS d FROM t",
            "SELECT t.id AS i, o.id AS j FROM t JOIN o ON t.t = o.t",
            "SELECT t.id AS i, o.id AS j, o.t FROM t RIGHT JOIN o ON t.v = o.t AND t.k = 1",
            "SELECT id FROM t WHERE t NOT IN (SELECT t FROM o WHERE t IS NOT NULL)",
            "SELECT id FROM o WHERE EXISTS (SELECT 1 FROM t WHERE t.t = o.t AND t.id < 1200)",
            "SELECT t, id FROM t ORDER BY t DESC NULLS LAST, id LIMIT 50",
            "SELECT c, t FROM t ORDER BY c NULLS FIRST, t, id",
            "SELECT DISTINCT upper(c) AS c FROM t UNION SELECT t FROM o",
            "SELECT t FROM t INTERSECT SELECT t FROM o",
        ]
        .map(String::from),
    );
}

/// Rows of several pipelines in one result: what an outer join adds has NULL for strings that lie as bytes.
#[test]
fn strings_beside_rows_that_have_none() {
    let fixture = fixture();
    check_all(
        &fixture,
        [
            "SELECT a.t, b.v AS w FROM t a FULL JOIN (SELECT id + 1000 AS id, t, v FROM t) b ON a.id = b.id",
            "SELECT a.t, b.v AS w FROM t a FULL JOIN t b ON a.id = b.id + 2000 AND a.id > b.id",
            "SELECT v, count(*) AS n FROM (SELECT b.v FROM t a FULL JOIN (SELECT id + 1000 AS id, t, v FROM t) b ON a.id = b.id) \
             GROUP BY v ORDER BY v LIMIT 9",
            "SELECT a.t FROM t a FULL JOIN (SELECT id + 1000 AS id FROM t) b ON a.id = b.id UNION ALL SELECT NULL \
             UNION ALL SELECT v FROM t WHERE id < 9",
            "SELECT NULL AS s, id FROM t UNION ALL SELECT v, id FROM t",
            "SELECT CAST(NULL AS VARCHAR) AS s, count(*) AS n FROM t GROUP BY 1",
            "SELECT s, count(*) AS n FROM (SELECT NULL AS s FROM t UNION ALL SELECT CAST(NULL AS VARCHAR) FROM t) GROUP BY s",
            "SELECT id, CAST(NULL AS VARCHAR) AS s FROM t ORDER BY s, id LIMIT 3",
        ]
        .map(String::from),
    );
}

/// Many strings that repeat, plain in files: the device decodes them, and sorts those that differ.
#[test]
fn dictionaries_of_files_are_sorted_by_the_device() {
    let settings = [("warpline.parquet", "device"), ("warpline.min_rows", "0")];
    let fixture = Fixture::open(test_device(), true, &settings);
    let folder = std::env::temp_dir().join(format!("warpline-sorted-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    // Three times each; some agree in more bytes than the device compares.
    for (name, text) in [
        (
            "urls",
            "'https://größe.example/' || CASE WHEN n % 5 = 0 THEN NULL ELSE n END || repeat('-x', n % 9)",
        ),
        ("alike", "repeat('y', 600) || n"),
    ] {
        let file = folder.join(format!("{name}.parquet"));
        let rows = format!(
            "SELECT {text} AS s, n FROM (SELECT value % 1500 AS n FROM generate_series(1, 4500))"
        );
        let copy = format!(
            "COPY ({rows}) TO '{}' STORED AS PARQUET OPTIONS ('format.dictionary_enabled' 'false')",
            file.display()
        );
        let made = fixture.block_on(async {
            let frame = fixture.session().reference().sql(&copy).await?;
            frame.collect().await
        });
        made.expect("a file");
        let table = format!(
            "CREATE EXTERNAL TABLE {name} STORED AS PARQUET LOCATION '{}'",
            file.display()
        );
        fixture.run(&table).expect("a table");
        for query in [
            "SELECT s, count(*) AS c, sum(n) AS n FROM t GROUP BY s ORDER BY s",
            "SELECT min(s) AS a, max(s) AS z, count(DISTINCT s) AS d FROM t WHERE s > 'https://größe.example/2' OR s > 'yy'",
            "SELECT n, s FROM t WHERE s LIKE '%99%' ORDER BY s DESC, n LIMIT 40",
            "SELECT length(s) AS l, count(*) AS c FROM t GROUP BY 1 ORDER BY 1",
        ] {
            fixture.check(&query.replace("FROM t", &format!("FROM {name}")));
        }
    }
    let _ = std::fs::remove_dir_all(&folder);
}
