//! Sorts of more rows than device memory holds: range by range, or the first rows of every piece.

use super::counter;
use super::support::{BUDGET, ROWS, check_parts, fixture};

#[track_caller]
fn check(queries: &[&str], tables: &[usize]) {
    check_parts("sort_parts", queries, tables);
}

#[test]
fn every_kind_of_key_in_ranges() {
    check(
        &[
            "SELECT id, l, w FROM {t} ORDER BY l DESC, id",
            "SELECT id, t, f FROM {t} ORDER BY t NULLS FIRST, id DESC",
            "SELECT id, w, k, b, s FROM {t} ORDER BY w, s DESC NULLS LAST, id",
        ],
        &ROWS,
    );
}

/// One key that nearly all rows have, none but NULLs, rows that are in order already, and the other way round.
#[test]
fn ranges_of_uneven_keys() {
    check(
        &[
            "SELECT one, m FROM {t} ORDER BY one, m",
            "SELECT one, k FROM {t} ORDER BY one",
            "SELECT nothing, id FROM {t} ORDER BY nothing, z, id",
            "SELECT id, f FROM {t} ORDER BY id",
            "SELECT id, f FROM {t} ORDER BY f DESC, id DESC",
        ],
        &[33, 40_000],
    );
}

#[test]
fn some_of_the_rows() {
    check(
        &[
            "SELECT id, m FROM {t} ORDER BY m, id LIMIT 7",
            "SELECT id, s FROM {t} WHERE k > 2 ORDER BY w DESC, id LIMIT 30 OFFSET 11",
            "SELECT id, m FROM {t} ORDER BY m DESC, id LIMIT 20000 OFFSET 9000",
            "SELECT m, id FROM {t} ORDER BY m, id OFFSET 31000",
            "SELECT id, m FROM (SELECT id, m FROM {t} UNION ALL SELECT m, id FROM {t}) u ORDER BY m, id LIMIT 9",
        ],
        &[0, 1, 33, 40_000],
    );
}

/// Groups and joins in parts write the rows.
#[test]
fn rows_of_other_parts() {
    check(
        &[
            "SELECT id, b, sum(m) AS s FROM {t} GROUP BY id, b ORDER BY s DESC, id",
            "SELECT x.id, y.m, y.f FROM {t} x JOIN {t} y ON x.id = y.id ORDER BY y.m, x.id",
        ],
        &[33, 40_000],
    );
}

#[test]
fn few_rows_are_sorted_at_once() {
    let fixture = fixture(BUDGET, &[]);
    let sql = "SELECT k, count(*) AS c, sum(w) AS s FROM t40000 GROUP BY k ORDER BY k";
    fixture.check(sql);
    assert_eq!(counter(&fixture, sql, "sort_parts"), 0);
}

#[test]
fn a_plan_says_that_rows_are_sorted_in_parts() {
    let fixture = fixture(BUDGET, &[]);
    let sql = "SELECT id, w, t FROM t40000 ORDER BY w, id";
    fixture.check(sql);
    let plan = fixture.explain(&format!("ANALYZE {sql}"));
    assert!(plan.contains("is sorted in parts of"), "{plan}");
    // The step's line says how its rows came.
    assert!(plan.contains("portions: ranges of keys"), "{plan}");
    assert!(counter(&fixture, sql, "bytes_spilled") > 0);
}
