//! Window functions against plain DataFusion: numbers, other rows, frames, whole partitions.
//!
//! Orders are total where a function tells peers apart: which of them comes first is nobody's promise.

use arrow::array::AsArray;
use arrow::datatypes::{Float64Type, Int64Type};
use warpline_sql_tests::Fixture;

use super::tables::fixture;
use crate::operators::support::check_all;

const TABLES: [&str; 4] = ["l", "one", "e", "n"];

/// Orders in which no two rows are peers.
const TOTAL: [&str; 5] = [
    "ORDER BY id",
    "PARTITION BY z ORDER BY id DESC",
    "PARTITION BY s, b ORDER BY x DESC NULLS LAST, id",
    "PARTITION BY f ORDER BY w NULLS FIRST, d, id",
    "PARTITION BY k % 3, upper(s) ORDER BY z + id, id",
];

/// Orders with peers.
const PEERS: [&str; 4] = [
    "ORDER BY z",
    "PARTITION BY z ORDER BY s",
    "PARTITION BY b ORDER BY f DESC, k",
    "PARTITION BY w, x ORDER BY d NULLS FIRST",
];

fn each(orders: &[&str], functions: &[&str]) -> Vec<String> {
    let mut queries = Vec::new();
    for table in TABLES {
        for order in orders {
            let calls: Vec<String> = functions
                .iter()
                .enumerate()
                .map(|(i, function)| match function.split_once('|') {
                    Some((call, frame)) => format!("{call} OVER ({order} {frame}) AS v{i}"),
                    None => format!("{function} OVER ({order}) AS v{i}"),
                })
                .collect();
            queries.push(format!("SELECT id, {} FROM {table}", calls.join(", ")));
        }
    }
    queries
}

#[test]
fn numbers_of_rows() {
    let total = ["row_number()", "ntile(3)", "ntile(7)", "ntile(1000)"];
    check_all(&fixture(), each(&TOTAL, &total));
    let peers = ["rank()", "dense_rank()", "percent_rank()", "cume_dist()"];
    check_all(&fixture(), each(&PEERS, &peers));
    check_all(&fixture(), each(&TOTAL, &peers));
}

#[test]
fn other_rows() {
    let functions = [
        "lag(x)",
        "lead(x, 2)",
        "lag(k, 1, -7)",
        "lead(s)",
        "lag(f, 3, 0.5)",
        "lead(x, 9223372036854775807, 1)",
        "lead(x, -9223372036854775808, 2)",
        "lag(x, -9223372036854775808)",
        "nth_value(x, 9223372036854775807)",
        "ntile(9223372036854775807)",
        "lead(d, 0)",
        "first_value(s)",
        "last_value(x)",
        "nth_value(k, 2)",
        "last_value(b)|ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING",
        "first_value(w)|ROWS BETWEEN 2 PRECEDING AND 1 FOLLOWING",
        "nth_value(z, 3)|ROWS BETWEEN 1 FOLLOWING AND 4 FOLLOWING",
    ];
    check_all(&fixture(), each(&TOTAL, &functions));
}

#[test]
fn aggregates_from_the_first_row() {
    let functions = [
        "sum(x)", "count(*)", "count(k)", "avg(f)", "avg(z)", "sum(w)", "min(k)", "max(x)",
        "min(f)", "max(d)", "max(s)", "sum(f)",
    ];
    check_all(&fixture(), each(&PEERS, &functions));
    check_all(&fixture(), each(&TOTAL, &functions));
    let rows: Vec<String> = functions
        .iter()
        .map(|f| format!("{f}|ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW"))
        .collect();
    let rows: Vec<&str> = rows.iter().map(String::as_str).collect();
    check_all(&fixture(), each(&TOTAL, &rows));
}

#[test]
fn aggregates_over_sliding_frames() {
    let functions = [
        "sum(x)|ROWS BETWEEN 2 PRECEDING AND CURRENT ROW",
        "count(k)|ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING",
        "avg(f)|ROWS BETWEEN 3 PRECEDING AND 1 PRECEDING",
        "sum(w)|ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING",
        "count(*)|ROWS BETWEEN 2 FOLLOWING AND 5 FOLLOWING",
        "sum(f)|ROWS BETWEEN 100 PRECEDING AND 100 FOLLOWING",
        "max(k)|ROWS BETWEEN UNBOUNDED PRECEDING AND 2 FOLLOWING",
    ];
    check_all(&fixture(), each(&TOTAL, &functions));
}

#[test]
fn extremes_and_averages_of_sliding_frames() {
    let functions = [
        "min(x)|ROWS BETWEEN 2 PRECEDING AND CURRENT ROW",
        "max(f)|ROWS BETWEEN 3 PRECEDING AND 1 FOLLOWING",
        "max(s)|ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING",
        "min(w)|ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING",
        "max(d)|ROWS BETWEEN 100 PRECEDING AND 100 FOLLOWING",
        "min(k)|ROWS BETWEEN 2 FOLLOWING AND 5 FOLLOWING",
        "bool_and(b)|ROWS BETWEEN UNBOUNDED PRECEDING AND 1 FOLLOWING",
        "max(f::REAL)|ROWS BETWEEN 4 PRECEDING AND 1 FOLLOWING",
        "min(f::REAL)|ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW",
        "bool_or(b)|ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW",
        "avg(x)|ROWS BETWEEN 2 PRECEDING AND 1 FOLLOWING",
    ];
    check_all(&fixture(), each(&TOTAL, &functions));
}

/// DataFusion sorts once for both orders, and turns the functions of one of them round.
#[test]
fn orders_that_are_turned_round() {
    let functions = [
        "lag(x)",
        "lead(k, 2, -1)",
        "lag(s, 3)",
        "lag(f) IGNORE NULLS",
        "first_value(s)",
        "last_value(x)",
        "nth_value(k, 2)",
        "sum(z)",
        "max(x)",
        "last_value(w)|ROWS BETWEEN 2 PRECEDING AND 1 FOLLOWING",
        "nth_value(z, 3)|ROWS BETWEEN 1 FOLLOWING AND 4 FOLLOWING",
        "count(k)|ROWS BETWEEN 3 PRECEDING AND CURRENT ROW",
    ];
    let mut queries = Vec::new();
    for table in TABLES {
        for (partition, one, other) in [
            ("", "id", "id DESC"),
            ("PARTITION BY z", "id DESC", "id"),
            ("PARTITION BY s, b", "id", "id DESC"),
        ] {
            let calls = functions.iter().enumerate().map(|(number, function)| {
                let (call, frame) = function.split_once('|').unwrap_or((function, ""));
                format!("{call} OVER ({partition} ORDER BY {other} {frame}) AS c{number}")
            });
            let calls: Vec<String> = calls.collect();
            queries.push(format!(
                "SELECT id, row_number() OVER ({partition} ORDER BY {one}) AS a, {} FROM {table}",
                calls.join(", ")
            ));
        }
    }
    check_all(&fixture(), queries);
}

/// DataFusion subtracts from a running sum of squares what leaves a frame: of values of few digits that is right but for the last ones.
#[test]
fn variances_over_frames() {
    let frames = [
        ("var_samp(z)", "ROWS BETWEEN 2 PRECEDING AND CURRENT ROW"),
        ("var_pop(z + 3)", "ROWS BETWEEN 3 PRECEDING AND 1 FOLLOWING"),
        (
            "var_samp(b::INT)",
            "ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING",
        ),
        (
            "var_samp(k % 50)",
            "ROWS BETWEEN 20 PRECEDING AND 20 FOLLOWING",
        ),
        ("var_pop(z)", "ROWS BETWEEN 2 FOLLOWING AND 5 FOLLOWING"),
    ];
    let mut queries = Vec::new();
    for table in TABLES {
        for order in TOTAL {
            let calls = frames.iter().enumerate().map(|(i, (call, frame))| {
                format!("round({call} OVER ({order} {frame}), 6) + 0.0 AS v{i}")
            });
            let calls: Vec<String> = calls.collect();
            queries.push(format!("SELECT id, {} FROM {table}", calls.join(", ")));
        }
        queries.push(format!(
            "SELECT id, round(var_samp(z) OVER (PARTITION BY b ORDER BY k RANGE BETWEEN 3 PRECEDING AND 2 FOLLOWING), 6) + 0.0 AS v FROM {table}"
        ));
    }
    check_all(&fixture(), queries);
    let whole = ["stddev(k)", "var_pop(z)", "stddev_pop(f)", "stddev_samp(x)"];
    check_all(&fixture(), each(&PEERS, &whole));
    check_all(&fixture(), each(&TOTAL, &whole));
}

/// Values that lie close together and far from 0, of which differences of running sums keep nothing.
#[test]
fn variances_of_large_values() {
    let fixture = Fixture::device().table_from(
        "t",
        "SELECT value AS id, 1e9 + value % 2 AS v FROM generate_series(1, 3000) AS s(value)",
    );
    let run = fixture.run(
        "SELECT min(d) AS lo, max(d) AS hi, count(*) AS n FROM \
         (SELECT id, var_pop(v) OVER (ORDER BY id ROWS BETWEEN 99 PRECEDING AND CURRENT ROW) AS d FROM t) x WHERE id >= 100",
    );
    let batches = run.expect("an answer").batches;
    let bound = |column: usize| {
        batches[0]
            .column(column)
            .as_primitive::<Float64Type>()
            .value(0)
    };
    assert_eq!((bound(0), bound(1)), (0.25, 0.25));
    assert_eq!(
        batches[0].column(2).as_primitive::<Int64Type>().value(0),
        2901
    );
}

#[test]
fn groups_of_peers() {
    let functions = [
        "sum(x)|GROUPS BETWEEN 1 PRECEDING AND CURRENT ROW",
        "count(k)|GROUPS BETWEEN 1 FOLLOWING AND 2 FOLLOWING",
        "min(f)|GROUPS BETWEEN 2 PRECEDING AND 1 PRECEDING",
        "max(w)|GROUPS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING",
        "count(*)|GROUPS BETWEEN CURRENT ROW AND 1 FOLLOWING",
    ];
    check_all(&fixture(), each(&PEERS, &functions));
}

/// Distances in integers up to the ends of their types, decimals, dates and floats, NULLs first and last.
#[test]
fn ranges_of_values() {
    let frames = [
        ("PARTITION BY b ORDER BY k", "3 PRECEDING AND 2 FOLLOWING"),
        ("ORDER BY k DESC", "5 PRECEDING AND 1 PRECEDING"),
        (
            "PARTITION BY z ORDER BY w NULLS FIRST",
            "1 PRECEDING AND 1 FOLLOWING",
        ),
        (
            "PARTITION BY z ORDER BY w DESC NULLS LAST",
            "2 PRECEDING AND 1 PRECEDING",
        ),
        ("ORDER BY w", "1 FOLLOWING AND 2 FOLLOWING"),
        (
            "PARTITION BY s ORDER BY f",
            "0.25 PRECEDING AND CURRENT ROW",
        ),
        (
            "ORDER BY f DESC NULLS FIRST",
            "1.5 PRECEDING AND 4 FOLLOWING",
        ),
        ("PARTITION BY k ORDER BY x", "1 PRECEDING AND 5 FOLLOWING"),
        (
            "ORDER BY arrow_cast(z, 'UInt16')",
            "4 PRECEDING AND 2 PRECEDING",
        ),
        (
            "PARTITION BY b ORDER BY d",
            "INTERVAL '10' DAY PRECEDING AND INTERVAL '20000' DAY FOLLOWING",
        ),
        (
            "ORDER BY arrow_cast(d, 'Timestamp(s)') DESC",
            "INTERVAL '36' HOUR PRECEDING AND UNBOUNDED FOLLOWING",
        ),
    ];
    let queries = TABLES.iter().flat_map(|table| {
        frames.iter().map(move |(order, frame)| {
            let over = format!("OVER ({order} RANGE BETWEEN {frame})");
            format!("SELECT id, sum(x) {over} AS a, count(k) {over} AS b, max(w) {over} AS c FROM {table}")
        })
    });
    check_all(&fixture(), queries);
}

#[test]
fn values_that_are_not_null() {
    let functions = [
        "lag(k) IGNORE NULLS",
        "lag(x, 2, -1) IGNORE NULLS",
        "lead(s) IGNORE NULLS",
        "first_value(f) IGNORE NULLS",
        "last_value(x) IGNORE NULLS",
        "last_value(b) IGNORE NULLS|ROWS BETWEEN 3 PRECEDING AND 1 PRECEDING",
        "nth_value(w, 2) IGNORE NULLS|ROWS BETWEEN 2 PRECEDING AND 2 FOLLOWING",
        "nth_value(k, -2)|ROWS BETWEEN 4 PRECEDING AND CURRENT ROW",
        "nth_value(d, -1) IGNORE NULLS|ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING",
    ];
    check_all(&fixture(), each(&TOTAL[..3], &functions));
}

/// Ranks alone are the same without an order.
#[test]
fn ranks_without_an_order() {
    let queries = TABLES.iter().flat_map(|table| {
        ["", "PARTITION BY z", "PARTITION BY s, b"].map(|partition| {
            let over = format!("OVER ({partition})");
            format!(
                "SELECT id, rank() {over} AS a, dense_rank() {over} AS b, percent_rank() {over} AS c, cume_dist() {over} AS d \
                 FROM {table}"
            )
        })
    });
    check_all(&fixture(), queries);
}

#[test]
fn whole_partitions() {
    let mut queries = Vec::new();
    for table in TABLES {
        for partition in [
            "",
            "PARTITION BY z",
            "PARTITION BY s, b",
            "PARTITION BY k, w",
        ] {
            queries.push(format!(
                "SELECT id, sum(x) OVER ({partition}) AS a, count(*) OVER ({partition}) AS b, avg(x) OVER ({partition}) AS c, \
                 min(s) OVER ({partition}) AS d, count(k) OVER ({partition}) AS e, stddev(f) OVER ({partition}) AS g FROM {table}"
            ));
        }
        queries.push(format!(
            "SELECT id, sum(x) OVER (PARTITION BY z ORDER BY id ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING) AS a \
             FROM {table}"
        ));
    }
    check_all(&fixture(), queries);
}

#[test]
fn filters_of_aggregates() {
    let functions = [
        "sum(x) FILTER (WHERE b)",
        "count(*) FILTER (WHERE x > 3 OR s IS NULL)",
        "count(k) FILTER (WHERE NULL)",
        "avg(k) FILTER (WHERE s IS NOT NULL)",
        "avg(z) FILTER (WHERE f < 0.5)",
        "min(d) FILTER (WHERE z % 2 = 0)",
        "max(s) FILTER (WHERE b)|ROWS BETWEEN 2 PRECEDING AND CURRENT ROW",
        "sum(w) FILTER (WHERE NOT b)|ROWS BETWEEN 1 PRECEDING AND 3 FOLLOWING",
        "bool_or(b) FILTER (WHERE k > 1)|ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW",
    ];
    check_all(&fixture(), each(&TOTAL, &functions));
    let whole = [
        "sum(x) FILTER (WHERE b)",
        "count(DISTINCT x) FILTER (WHERE k > 0)",
        "stddev(x) FILTER (WHERE b)",
        "min(s) FILTER (WHERE x < 3)",
    ];
    check_all(&fixture(), each(&["", "PARTITION BY z"], &whole));
}

#[test]
fn several_windows_and_other_operators() {
    check_all(
        &fixture(),
        [
            "SELECT id, rank() OVER (PARTITION BY z ORDER BY s) AS a, rank() OVER (PARTITION BY s ORDER BY z) AS b,              sum(x) OVER (PARTITION BY b) AS c FROM l",
            "SELECT * FROM (SELECT z, s, rank() OVER (PARTITION BY z ORDER BY sum(x) DESC) AS r, sum(x) AS t              FROM l GROUP BY z, s) WHERE r <= 2",
            "SELECT z, s, sum(sum(x)) OVER (PARTITION BY z) AS a, sum(x) * 100 / sum(sum(x)) OVER (PARTITION BY z) AS b              FROM l WHERE x > 0 GROUP BY z, s",
            "SELECT l.id, r.id AS o, dense_rank() OVER (PARTITION BY l.k ORDER BY r.z) AS a FROM l JOIN r ON l.k = r.k",
            "SELECT a.id, a.n, b.n AS m FROM (SELECT id, u, row_number() OVER (ORDER BY id) AS n FROM l) a              JOIN (SELECT id, u, row_number() OVER (ORDER BY u, id) AS n FROM r) b ON a.n = b.n",
            "SELECT id, rank() OVER (ORDER BY n) AS a FROM (SELECT id, count(*) OVER (PARTITION BY k) AS n FROM l)",
            "SELECT z, s, grouping(z) + grouping(s) AS g, rank() OVER (PARTITION BY grouping(z) + grouping(s) ORDER BY sum(x) DESC) AS r              FROM l GROUP BY ROLLUP (z, s)",
            "SELECT id, row_number() OVER (ORDER BY id) AS n FROM l ORDER BY n DESC LIMIT 5",
            "SELECT count(*) AS n, sum(a) AS s FROM (SELECT lag(id) OVER (ORDER BY id) AS a FROM l)",
        ]
        .map(String::from),
    );
}

/// Many blocks; one partition that has nearly all rows, and many of one row.
#[test]
fn many_rows() {
    let fixture = fixture().table_from(
        "m",
        "SELECT value AS id, CASE WHEN value % 50 = 0 THEN value ELSE 0 END AS k, value * 7919 % 1000 AS v,          cast(value % 17 AS double) / 4 AS f FROM generate_series(1, 40000)",
    );
    check_all(
        &fixture,
        [
            "SELECT id, row_number() OVER (PARTITION BY k ORDER BY v, id) AS a, sum(v) OVER (PARTITION BY k ORDER BY v, id) AS b,              avg(f) OVER (PARTITION BY k ORDER BY id ROWS BETWEEN 10 PRECEDING AND CURRENT ROW) AS c FROM m",
            "SELECT id, rank() OVER (ORDER BY v) AS a, lag(v) OVER (ORDER BY id) AS b, sum(f) OVER (ORDER BY id) AS c,              max(v) OVER (ORDER BY id) AS d FROM m",
            "SELECT id, min(v) OVER (PARTITION BY k ORDER BY id ROWS BETWEEN 1000 PRECEDING AND 300 FOLLOWING) AS a, \
              max(f) OVER (ORDER BY v RANGE BETWEEN 5 PRECEDING AND 5 FOLLOWING) AS b, \
              last_value(nullif(v % 3, 1)) IGNORE NULLS OVER (PARTITION BY k ORDER BY id) AS c FROM m",
        ]
        .map(String::from),
    );
}

/// Each order is a window over the rows of the one before, which it reads several times.
#[test]
fn sliding_frames_in_many_orders() {
    let fixture = fixture();
    let keys = ["id", "u", "k, id", "s, id", "x DESC, id", "f DESC, u"];
    let select = |frame: &str, table: &str| {
        let calls = keys.iter().enumerate();
        let calls: Vec<String> = calls
            .map(|(i, key)| format!("sum(x) OVER (ORDER BY {key} {frame}) AS v{i}"))
            .collect();
        format!("SELECT id, {} FROM {table}", calls.join(", "))
    };
    let rows = "ROWS BETWEEN 2 PRECEDING AND 1 FOLLOWING";
    let groups = "GROUPS BETWEEN 1 PRECEDING AND 2 FOLLOWING";
    // Each window is made once, however often it is read.
    let plan = fixture.explain(&select(rows, "l"));
    let windows = plan.matches("window (partition").count();
    assert_eq!(windows, keys.len(), "{plan}");
    let queries = [(rows, "l"), (groups, "l"), (rows, "e"), (groups, "n")];
    check_all(&fixture, queries.map(|(frame, table)| select(frame, table)));
}

/// Groups that are joined back to rows with other groups.
#[test]
fn whole_partitions_of_many_keys() {
    let sums = ["z", "k", "s", "b", "w, z", "d"].map(|keys| {
        let name = keys.replace(", ", "_");
        format!("sum(x) OVER (PARTITION BY {keys}) AS by_{name}")
    });
    let sums = sums.join(", ");
    check_all(
        &fixture(),
        ["l", "n"].map(|table| format!("SELECT id, {sums} FROM {table}")),
    );
}
