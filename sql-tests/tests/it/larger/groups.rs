//! Group-bys whose states are larger than device memory: rows come in parts that have all rows of their groups.

use arrow::datatypes::Int64Type;
use warpline_sql_tests::{Fixture, test_device};

use super::counter;
use super::support::{BUDGET, ROWS, check_parts, fixture};
use crate::operators::support::primitive;

#[track_caller]
fn check(queries: &[&str], tables: &[usize]) {
    check_parts("group_parts", queries, tables);
}

#[test]
fn every_aggregate_in_parts() {
    check(
        &[
            "SELECT l, count(*) AS a, count(k) AS b, sum(w) AS c, min(f) AS d, max(id) AS e, avg(f) AS g, min(s) AS h, \
             sum(id) FILTER (WHERE b) AS i, count(*) FILTER (WHERE b IS NULL) AS j, max(w) AS m FROM {t} GROUP BY l",
            "SELECT m, count(DISTINCT k) AS d, sum(DISTINCT id) AS e, min(t) AS t FROM {t} GROUP BY m",
        ],
        &ROWS,
    );
}

#[test]
fn every_kind_of_key_in_parts() {
    check(
        &[
            "SELECT m, b, sum(id) AS s FROM {t} GROUP BY m, b",
            "SELECT w, count(*) AS c, min(id) AS i FROM {t} GROUP BY w",
            "SELECT t, count(*) AS c, max(f) AS f FROM {t} GROUP BY t",
            "SELECT f, m, nothing, count(l) AS c FROM {t} GROUP BY f, m, nothing",
            "SELECT DISTINCT l, m FROM {t}",
        ],
        &ROWS,
    );
}

/// More bytes than partitions are made by: a hash stands for them until their part is aggregated.
#[test]
fn wide_keys_in_parts() {
    check(
        &[
            "SELECT l, m, w, count(*) AS c, sum(id) AS s, min(t) AS t FROM {t} GROUP BY l, m, w",
            "SELECT w, f, s, l, avg(k) AS a, max(w) AS m, count(*) FILTER (WHERE b) AS c FROM {t} GROUP BY w, f, s, l",
            "SELECT DISTINCT nothing, t, m, l, w, b FROM {t}",
            "SELECT m, w, one, count(DISTINCT k) AS d, sum(DISTINCT id) AS e FROM {t} WHERE k > 3 GROUP BY m, w, one",
            "SELECT c, count(*) AS n, max(s) AS s FROM (SELECT m, w, l, count(*) AS c, sum(id) AS s FROM {t} GROUP BY m, w, l) g GROUP BY c",
            "SELECT m, w, l, sum(id) AS s FROM {t} GROUP BY m, w, l ORDER BY s DESC NULLS LAST, m, w, l LIMIT 17",
        ],
        &[0, 1, 33, 40_000],
    );
}

#[test]
fn skewed_keys_in_parts() {
    check(
        &[
            "SELECT one, count(*) AS c, sum(m) AS s, min(w) AS w FROM {t} GROUP BY one",
            "SELECT z, m, count(*) AS c, max(l) AS l FROM {t} GROUP BY z, m",
        ],
        &[33, 40_000],
    );
}

#[test]
fn what_reads_the_groups_reads_all_parts() {
    check(
        &[
            "SELECT l, sum(id) AS s FROM {t} GROUP BY l HAVING sum(id) > 70000",
            "SELECT c, count(*) AS n, max(s) AS s FROM (SELECT m, count(*) AS c, sum(id) AS s FROM {t} GROUP BY m) g GROUP BY c",
            "SELECT l, sum(id) AS s, count(*) AS c FROM {t} GROUP BY l ORDER BY s DESC NULLS LAST, l LIMIT 17",
            "SELECT x.id, g.c FROM {t} x JOIN (SELECT m, count(*) AS c, max(id) AS i FROM {t} GROUP BY m) g ON g.i = x.id WHERE g.c > 3",
            "SELECT s, sum(c) AS c, count(*) AS n FROM (SELECT m, s, count(*) AS c FROM {t} GROUP BY m, s) g GROUP BY s",
            "SELECT i, max(c) AS c FROM (SELECT m, k, max(id) AS i, count(*) AS c FROM {t} WHERE k > 3 GROUP BY m, k) g GROUP BY i",
        ],
        &[0, 33, 3000, 40_000],
    );
}

#[test]
fn few_groups_stay_in_their_table() {
    let fixture = fixture(BUDGET, &[]);
    for sql in [
        "SELECT k, count(*) AS c, sum(m) AS s FROM t40000 GROUP BY k",
        "SELECT z, s, max(w) AS w FROM t40000 GROUP BY z, s",
    ] {
        fixture.check(sql);
        assert_eq!(counter(&fixture, sql, "group_parts"), 0, "{sql}");
    }
}

#[test]
fn a_plan_says_that_groups_come_in_parts() {
    let fixture = fixture(BUDGET, &[]);
    let sql = "SELECT l, m, sum(w) AS s FROM t40000 GROUP BY l, m";
    fixture.check(sql);
    let plan = fixture.explain(&format!("ANALYZE {sql}"));
    assert!(plan.contains("rows in parts of"), "{plan}");
    // The step's line says how its rows came.
    assert!(plan.contains("portions: parts of all keys"), "{plan}");
    assert!(counter(&fixture, sql, "bytes_spilled") > 0);
}

/// Rows of a join come in parts as well: a table of groups that overflows must not lose those of earlier parts.
#[test]
fn groups_of_joined_parts_outgrow_their_table() {
    let fixture = fixture("64MiB", &[("warpline.join", "triton")]);
    let sql = "SELECT x.l % 5 + y.id * 3 AS g, count(*) AS c, count(DISTINCT x.id) AS d \
               FROM t40000 x JOIN t40000 y ON x.m = y.m GROUP BY x.l % 5 + y.id * 3";
    for _ in 0..2 {
        fixture.check(sql);
    }
    assert!(counter(&fixture, sql, "join_parts") > 1);
}

/// Pairs of a join in portions outgrow the sets, not the one row that all are counted in.
#[test]
fn distinct_values_of_all_rows_in_parts() {
    const KEYS: i64 = 20_000;
    let cycle = |rows: i64, length: i64| {
        primitive::<Int64Type>((0..rows).map(|i| Some(i % length)).collect())
    };
    for kib in [1792usize, 2048, 2560] {
        let budget = (kib << 10).to_string();
        let fixture = Fixture::open(test_device(), true, &[("warpline.device_memory", &budget)])
            .table(
                "a",
                vec![("ka", cycle(300_000, KEYS)), ("x", cycle(300_000, 70_001))],
            )
            .table(
                "b",
                vec![("kb", cycle(100_000, KEYS)), ("y", cycle(100_000, 2001))],
            );
        let sql = "SELECT count(DISTINCT x) AS x, count(DISTINCT y) AS y FROM a JOIN b ON ka = kb";
        for run in 0..2 {
            if let Err(message) = fixture.compare(sql) {
                panic!("{kib} KiB, run {run}: {message}");
            }
        }
    }
}
