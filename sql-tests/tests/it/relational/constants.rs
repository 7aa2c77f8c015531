//! Columns of one value, which kernels do not read, and counts of columns without NULL, which are counts of rows.

use arrow::datatypes::*;
use warpline_sql_tests::Fixture;

use crate::operators::support::{Nulls, check_all, drawn, primitive, row_numbers, strings};

/// Rows of `name`: one value in each of the columns c, f, s, b and m, which are NULL here and there if `nulls` says so.
fn rows(fixture: Fixture, name: &str, rows: usize, nulls: Nulls) -> Fixture {
    let seed = rows as u64;
    let keys: Vec<i32> = (0..(rows as i32 / 2).max(1)).collect();
    fixture.table(
        name,
        [
            ("id", row_numbers(rows)),
            (
                "k",
                primitive::<Int32Type>(drawn(&keys, rows, Nulls::None, seed)),
            ),
            (
                "c",
                primitive::<Int32Type>(drawn(&[-70_000], rows, nulls, seed + 1)),
            ),
            (
                "m",
                primitive::<Int64Type>(drawn(&[i64::MIN], rows, nulls, seed + 2)),
            ),
            (
                "f",
                primitive::<Float64Type>(drawn(&[0.5], rows, nulls, seed + 3)),
            ),
            (
                "d",
                primitive::<Date32Type>(drawn(&[9000], rows, nulls, seed + 4)),
            ),
            ("s", strings(drawn(&["Straße"], rows, nulls, seed + 5))),
        ],
    )
}

fn queries(t: &str) -> Vec<String> {
    let mut queries = Vec::new();
    for join in ["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"] {
        queries.push(format!(
            "SELECT a.id, a.c, b.c AS x, b.m, b.f, b.d, b.s FROM {t} a {join} {t} b ON a.k = b.id ORDER BY a.id, b.id"
        ));
        queries.push(format!(
            "SELECT b.s, b.c, count(a.id) AS n, count(b.m) AS m, min(b.d) AS d FROM {t} a {join} {t} b ON a.k = b.id + 1 \
             GROUP BY b.s, b.c ORDER BY b.s, b.c"
        ));
    }
    queries.extend(
        [
            "SELECT c, m, f, d, s, id FROM {t} ORDER BY c, s, id",
            "SELECT c + 1 AS c, m / 2 AS m, f * 2 AS f, upper(s) AS s FROM {t} WHERE c < 0 AND s LIKE 'S%' ORDER BY id",
            "SELECT id FROM {t} WHERE c > 0 OR s = 'x' OR m IS NULL ORDER BY id",
            "SELECT k, count(id) AS n, count(c) AS c, count(s) AS s, sum(c) AS t, max(m) AS m FROM {t} GROUP BY k ORDER BY k",
            "SELECT c, s, count(*) AS n, count(DISTINCT m) AS m FROM {t} GROUP BY c, s ORDER BY c, s",
            "SELECT count(c) AS c, count(id) AS n, sum(m / 1000000) AS m, avg(f) AS f, min(s) AS s FROM {t}",
            "SELECT a.id FROM {t} a WHERE EXISTS (SELECT 1 FROM {t} b WHERE a.k = b.id AND b.c < a.id) ORDER BY a.id",
            "SELECT a.id FROM {t} a WHERE NOT EXISTS (SELECT 1 FROM {t} b WHERE a.c = b.c AND a.id = b.k) ORDER BY a.id",
            "SELECT a.id, b.m FROM {t} a JOIN {t} b ON a.c = b.c AND a.id = b.id WHERE a.k < 9 ORDER BY a.id",
            "SELECT c, id FROM {t} UNION ALL SELECT id, c FROM {t} ORDER BY 1, 2",
        ]
        .map(|sql| sql.replace("{t}", t)),
    );
    queries
}

#[test]
fn windows_over_columns_of_one_value() {
    let fixture = rows(Fixture::device(), "t", 1000, Nulls::None);
    let fixture = rows(fixture, "one", 1, Nulls::None);
    for t in ["t", "one"] {
        check_all(
            &fixture,
            [
                format!(
                    "SELECT id, c, sum(c) OVER (PARTITION BY k ORDER BY id) AS w FROM {t} ORDER BY id"
                ),
                format!(
                    "SELECT id, rank() OVER (PARTITION BY c ORDER BY k, id) AS r, lag(m) OVER (ORDER BY d, id) AS l FROM {t} ORDER BY id"
                ),
            ],
        );
    }
}

#[test]
fn columns_of_one_value() {
    let mut fixture = Fixture::device();
    let sizes = [0, 1, 31, 32, 33, 5000];
    for size in sizes {
        fixture = rows(fixture, &format!("full{size}"), size, Nulls::None);
        fixture = rows(fixture, &format!("some{size}"), size, Nulls::Some);
    }
    fixture = rows(fixture, "none100", 100, Nulls::All);
    for settings in [
        ("warpline.join", "auto"),
        ("warpline.join", "perfect"),
        ("warpline.join", "phj_tr"),
        ("warpline.group_by", "pgb_tr"),
        ("warpline.group_by", "hgb"),
        ("warpline.materialization", "eager"),
    ] {
        if settings.1 == "eager" {
            fixture.set("warpline.pipeline", "tree");
        }
        fixture.set(settings.0, settings.1);
        // Around warps algorithms differ little.
        let whole = settings == ("warpline.join", "auto");
        for size in sizes.into_iter().filter(|size| whole || *size > 32) {
            check_all(&fixture, queries(&format!("full{size}")));
            check_all(&fixture, queries(&format!("some{size}")));
        }
        check_all(&fixture, queries("none100"));
        fixture.set("warpline.join", "auto");
        fixture.set("warpline.group_by", "auto");
    }
}
