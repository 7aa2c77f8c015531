//! UNION, INTERSECT and EXCEPT, each with and without ALL.

use super::tables::fixture;
use crate::operators::support::check_all;

#[test]
fn of_each_kind() {
    let fixture = fixture();
    let operators = [
        "UNION",
        "UNION ALL",
        "INTERSECT",
        "INTERSECT ALL",
        "EXCEPT",
        "EXCEPT ALL",
    ];
    for operator in operators {
        check_all(
            &fixture,
            [
                ("k", "l", "r"),
                ("s", "l", "r"),
                ("k, s", "l", "p"),
                ("z, b, d", "l", "r"),
                ("k", "l", "e"),
                ("k", "e", "l"),
                ("k, s", "n", "l"),
                ("w", "l", "r"),
            ]
            .map(|(columns, a, b)| {
                format!("SELECT {columns} FROM {a} {operator} SELECT {columns} FROM {b}")
            }),
        );
    }
}

#[test]
fn under_and_over_other_operators() {
    check_all(
        &fixture(),
        [
            "SELECT k, count(*) AS n FROM (SELECT k FROM l WHERE z > 2 UNION ALL SELECT k FROM r) GROUP BY k",
            "SELECT k, sum(x) AS s FROM (SELECT k, x FROM l UNION ALL SELECT u, x FROM p UNION ALL SELECT k, x FROM r) \
             GROUP BY k ORDER BY s DESC NULLS LAST, k LIMIT 5",
            "SELECT s FROM l UNION SELECT s FROM r UNION SELECT upper(s) FROM p ORDER BY s",
            "SELECT k, s FROM l EXCEPT SELECT k, s FROM r INTERSECT SELECT k, s FROM p",
            "SELECT a.k FROM (SELECT k FROM l INTERSECT SELECT k FROM r) a JOIN p ON a.k = p.u",
            "SELECT 'l' AS side, count(*) AS n FROM l UNION ALL SELECT 'r', count(*) FROM r",
            "SELECT id, k FROM l WHERE id < 5 UNION ALL SELECT id, k FROM l WHERE id < 5",
            "SELECT k FROM l WHERE k IN (SELECT k FROM r EXCEPT SELECT u FROM p)",
        ]
        .map(String::from),
    );
}
