//! Warps that gather the rows which are left after some conditions and look-ups (`warpline.lane_refill`).

use arrow::datatypes::*;
use warpline_sql_tests::Fixture;

use crate::operators::support::{Nulls, check_all, drawn, primitive, row_numbers, strings};

/// More than threads of the emulator take several rows of each.
const ROWS: usize = 6000;

/// Rows `t` with keys of `k`, `l` and `u`, tables of which each has some of these: unique, repeated, nearly none.
fn tables(nulls: Nulls) -> Fixture {
    let words = ["", "a", "Bär", "日本語", "zz top"];
    let longs = [i64::MIN, -1, 0, 5, i64::MAX];
    let floats = [-1.5, -0.0, 0.0, 2.5];
    let keys = |least: i32, most: i32, seed| {
        let values: Vec<i32> = (least..most).collect();
        primitive::<Int32Type>(drawn(&values, ROWS, nulls, seed))
    };
    let t = [
        ("id", row_numbers(ROWS)),
        ("x", keys(0, 3000, 1)),
        ("y", keys(-50, 50, 2)),
        ("v", primitive::<Int64Type>(drawn(&longs, ROWS, nulls, 3))),
        (
            "f",
            primitive::<Float64Type>(drawn(&floats, ROWS, nulls, 4)),
        ),
        ("s", strings(drawn(&words, ROWS, nulls, 5))),
        ("c", primitive::<Int32Type>(vec![Some(7); ROWS])),
    ];
    Fixture::device()
        .table("t", t)
        .table_from(
            "k",
            "SELECT value::INT AS x, value * 3 AS p, 'p' || (value % 11) AS q, 9 AS one FROM generate_series(1, 300)",
        )
        .table_from(
            "l",
            "SELECT (value % 40)::INT AS y, value AS p FROM generate_series(1, 120)",
        )
        .table_from("u", "SELECT 17::INT AS x, -3::INT AS y")
        .table_from("none", "SELECT 1::INT AS x, 1 AS p WHERE false")
}

fn queries() -> Vec<String> {
    let mut queries: Vec<String> = Vec::new();
    // So many rows are left, of a table in order and of one that is not.
    for left in [0, 1, 31, 32, 33, 64, 500, ROWS] {
        for condition in [
            format!("t.id <= {left}"),
            format!("t.id % {} = 0", ROWS / left.max(1)),
        ] {
            queries.push(format!(
                "SELECT t.id, t.v, t.s, t.c, k.p, k.q, k.one FROM t JOIN k ON t.x = k.x WHERE {condition} ORDER BY t.id"
            ));
            queries.push(format!(
                "SELECT count(*) AS n, sum(t.v / 4) AS s, min(k.p) AS m, max(t.f) AS f FROM t JOIN k ON t.x = k.x WHERE {condition}"
            ));
            queries.push(format!(
                "SELECT t.id, l.p FROM t JOIN l ON t.y = l.y WHERE {condition} ORDER BY t.id, l.p"
            ));
        }
    }
    queries.extend(
        [
            // Every sink.
            "SELECT t.s, count(*) AS n, avg(t.f) AS a, sum(k.one) AS o FROM t JOIN k ON t.x = k.x GROUP BY t.s ORDER BY t.s",
            "SELECT t.id % 1000 AS g, count(t.v) AS n, max(k.q) AS q FROM t JOIN k ON t.x = k.x GROUP BY t.id % 1000 ORDER BY g",
            "SELECT t.v, t.f, count(DISTINCT t.y) AS n FROM t JOIN k ON t.x = k.x GROUP BY t.v, t.f ORDER BY t.v, t.f",
            "SELECT DISTINCT t.y FROM t JOIN k ON t.x = k.x ORDER BY t.y",
            "SELECT k.x, count(a.id) AS n FROM k JOIN (SELECT t.id, t.y, t.x FROM t JOIN u ON t.y = u.y) a ON a.x = k.x GROUP BY k.x ORDER BY k.x",
            "SELECT count(*) AS n FROM l JOIN (SELECT t.id, t.y FROM t JOIN k ON t.x = k.x WHERE t.f > 0) a ON a.y = l.y",
            "SELECT k.x FROM k WHERE EXISTS (SELECT 1 FROM t WHERE t.x = k.x AND t.f > 2) ORDER BY k.x",
            "SELECT k.x FROM k WHERE NOT EXISTS (SELECT 1 FROM t JOIN u ON t.y = u.y WHERE t.x = k.x) ORDER BY k.x",
            // Every kind of join on the way: before the rows are gathered, and behind.
            "SELECT t.id, k.p, k.one FROM t LEFT JOIN k ON t.x = k.x WHERE t.y = 3 ORDER BY t.id",
            "SELECT t.id, k.p, k.one, u.x FROM t LEFT JOIN k ON t.x = k.x JOIN u ON t.y = u.y ORDER BY t.id",
            "SELECT t.id, k.p, u.y FROM t JOIN u ON t.y = u.y LEFT JOIN k ON t.x = k.x ORDER BY t.id",
            "SELECT t.id FROM t WHERE t.x IN (SELECT x FROM k) AND t.y NOT IN (SELECT y FROM l) ORDER BY t.id",
            "SELECT t.id FROM t WHERE t.x NOT IN (SELECT x FROM k) AND t.y IN (SELECT y FROM u) ORDER BY t.id",
            "SELECT t.id FROM t WHERE EXISTS (SELECT 1 FROM k WHERE k.x = t.x AND k.p > t.id) ORDER BY t.id",
            "SELECT t.id FROM t WHERE (t.x IN (SELECT x FROM k) OR t.v = 5) AND t.y = -3 ORDER BY t.id",
            "SELECT t.id FROM t JOIN u ON t.y = u.y WHERE t.x IN (SELECT x FROM k) OR t.v = 5 ORDER BY t.id",
            "SELECT t.id, k.p, l2.p AS r FROM t JOIN k ON t.x = k.x JOIN k l2 ON t.y = l2.x WHERE t.s = 'Bär' ORDER BY t.id",
            "SELECT t.id, none.p FROM t LEFT JOIN none ON t.x = none.x WHERE t.y = 1 ORDER BY t.id",
            "SELECT t.id FROM t JOIN none ON t.x = none.x",
            // Strings, scalars, what fails for rows that are left out.
            "SELECT t.id FROM t JOIN k ON t.x = k.x WHERE t.s LIKE '%a%' AND k.q <> t.s ORDER BY t.id",
            "SELECT t.id, t.s || k.q AS w FROM t JOIN k ON t.x = k.x WHERE t.y > (SELECT max(y) FROM u) + 40 ORDER BY t.id",
            "SELECT t.id, 100 / (t.y - 3) AS z FROM t JOIN k ON t.x = k.x WHERE t.y > 10 ORDER BY t.id",
            "SELECT t.id FROM t JOIN k ON t.x = k.x UNION ALL SELECT t.id + 10000 FROM t JOIN u ON t.y = u.y ORDER BY 1",
            "SELECT t.id, t.v FROM t JOIN k ON t.x = k.x ORDER BY t.v DESC NULLS LAST, t.id LIMIT 7",
        ]
        .map(String::from),
    );
    queries
}

#[test]
fn rows_of_every_number_in_every_place() {
    for nulls in [Nulls::None, Nulls::Some, Nulls::All] {
        let fixture = tables(nulls);
        for setting in ["on", "auto"] {
            fixture.set("warpline.lane_refill", setting);
            check_all(&fixture, queries());
        }
    }
}

#[test]
fn joins_and_groups_by_every_algorithm() {
    let fixture = tables(Nulls::Some);
    fixture.set("warpline.lane_refill", "on");
    for join in ["perfect", "nphj", "phj_tr", "smj_ur"] {
        fixture.set("warpline.join", join);
        check_all(&fixture, queries());
    }
    fixture.set("warpline.join", "auto");
    for group_by in ["private", "shared", "global", "hgb", "sgb_tr", "pgb_tr"] {
        fixture.set("warpline.group_by", group_by);
        check_all(&fixture, queries());
    }
}

#[test]
fn where_few_rows_are_left() {
    let fixture = tables(Nulls::None);
    // An index over all of `t` would be asked for the few rows of `k`.
    fixture.set("warpline.index_joins", "off");
    let gathers = |sql: &str| {
        let plan = fixture.explain(&format!("ANALYZE VERBOSE {sql}"));
        plan.contains("warps gather the rows")
    };
    let few = "SELECT t.id, k.p FROM t JOIN k ON t.x = k.x WHERE k.x < 40";
    let many = "SELECT t.id, k.p FROM t JOIN k ON t.y = k.x";
    assert!(gathers(few));
    assert!(!gathers(many));
    assert!(!gathers("SELECT sum(v / 8) FROM t WHERE y = 1"));
    fixture.set("warpline.lane_refill", "off");
    assert!(!gathers(few));
    fixture.set("warpline.lane_refill", "on");
    assert!(gathers(many));
}
