//! The same answers under each setting that forces a choice.

use warpline_sql_tests::{Fixture, test_device};

use super::groups::CALLS;
use super::joins::CONDITIONS;
use super::tables::with_tables;
use crate::operators::support::check_all;

fn under(settings: &[(&str, &str)]) -> Fixture {
    with_tables(Fixture::open(test_device(), true, settings))
}

fn joins(value: &str) {
    joins_under(&[("warpline.join", value)]);
}

fn joins_under(settings: &[(&str, &str)]) {
    let fixture = under(settings);
    for kind in [
        "JOIN",
        "LEFT JOIN",
        "LEFT SEMI JOIN",
        "LEFT ANTI JOIN",
        "FULL JOIN",
    ] {
        let columns = match kind {
            "LEFT SEMI JOIN" | "LEFT ANTI JOIN" => "count(*) AS n, sum(a.id) AS i",
            _ => "count(*) AS n, sum(a.id) AS i, sum(b.id) AS j, min(b.s) AS s",
        };
        check_all(
            &fixture,
            CONDITIONS
                .map(|condition| format!("SELECT {columns} FROM l a {kind} r b ON {condition}")),
        );
    }
}

/// Trees that look keys up in an index, under each way to balance their work.
fn trees(balance: &str, more: &[(&str, &str)]) {
    let mut settings = vec![
        ("warpline.join", "nphj"),
        ("warpline.load_balance", balance),
    ];
    settings.extend(more);
    joins_under(&settings);
}

#[test]
fn trees_without_balance() {
    trees("none", &[]);
}

#[test]
fn trees_of_fixed_granularity() {
    trees("fws", &[("warpline.fws_threshold", "3")]);
}

#[test]
fn trees_balanced_within_warps() {
    trees("nifs", &[]);
    trees("nifs", &[("warpline.materialization", "eager")]);
}

#[test]
fn trees_balanced_between_warps() {
    trees("nifs_aws", &[("warpline.metrics", "true")]);
    trees("nifs_aws", &[("warpline.materialization", "eager")]);
}

#[test]
fn joins_with_perfect_indexes() {
    joins("perfect");
}

#[test]
fn joins_with_hash_indexes() {
    joins("nphj");
}

#[test]
fn joins_of_partitions_and_row_numbers() {
    joins("phj_ur");
}

#[test]
fn joins_of_partitioned_rows() {
    joins("phj_tr");
}

#[test]
fn joins_of_sorted_row_numbers() {
    joins("smj_ur");
}

#[test]
fn joins_of_sorted_rows() {
    joins("smj_tr");
}

fn groups(value: &str) {
    let fixture = under(&[("warpline.group_by", value)]);
    check_all(
        &fixture,
        ["z", "k", "s", "b, z", "k, s", "d, x", "w, s, x"]
            .map(|keys| format!("SELECT {keys}, {CALLS}, count(DISTINCT u) AS t FROM l GROUP BY {keys}"))
            .into_iter()
            .chain([
                "SELECT r.s, a.z, count(*) AS n, sum(a.x) AS t FROM l a JOIN r ON a.k = r.k GROUP BY r.s, a.z".into(),
                "SELECT n, count(*) AS m FROM (SELECT k, count(*) AS n FROM l GROUP BY k) GROUP BY n".into(),
                format!("SELECT {CALLS} FROM l"),
            ]),
    );
}

#[test]
fn groups_in_private_states() {
    groups("private");
}

#[test]
fn groups_in_shared_memory() {
    groups("shared");
}

#[test]
fn groups_in_device_memory() {
    groups("global");
}

#[test]
fn groups_numbered_by_a_hash_table() {
    groups("hgb");
}

#[test]
fn groups_of_sorted_keys() {
    groups("sgb_ur");
}

#[test]
fn groups_of_sorted_rows() {
    groups("sgb_tr");
}

#[test]
fn groups_of_sorted_numbers() {
    groups("sgb_de_tr");
}

#[test]
fn groups_of_partitioned_keys() {
    groups("pgb_ur");
}

#[test]
fn groups_of_partitioned_rows() {
    groups("pgb_tr");
}

/// Nobody knows how often a computed key occurs: with many rows a group, blocks have a table in front of the states in device memory.
#[test]
fn groups_by_what_is_computed_of_many_rows() {
    let fixture = Fixture::open(test_device(), true, &[("warpline.group_by", "global")]).table_from(
        "m",
        "SELECT value AS v, CASE WHEN value % 3 > 0 THEN 'hot' ELSE concat('s', value * 7919 % 40) END AS s, \
         CASE WHEN value % 13 = 0 THEN NULL ELSE value % 4 END AS k FROM generate_series(1, 30000)",
    );
    check_all(
        &fixture,
        [
            "SELECT upper(s) AS u, count(*) AS n, sum(v) AS t, min(s) AS a, max(v) AS b FROM m GROUP BY upper(s)",
            "SELECT k + 1 AS q, count(k) AS n, avg(v) AS a FROM m WHERE v % 2 = 0 GROUP BY k + 1",
            "SELECT k * 3 AS q, upper(s) AS u, count(*) AS n, min(v) AS a FROM m GROUP BY k * 3, upper(s)",
        ]
        .map(String::from),
    );
}
