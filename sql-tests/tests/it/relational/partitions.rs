//! Fragments below operators that stay on the CPU and work on several partitions: joins that take the partitions of both sides
//! together or one by one, unions, groups, windows and merges.

use warpline_sql_tests::{Fixture, test_device};

use crate::operators::support::check_all;

/// The device has no arrays, and windows in no order stay with those above them.
fn fixture(partitions: &str, threshold: &str) -> Fixture {
    let fixture = Fixture::relaxed()
        .table_from(
            "t1",
            "SELECT value AS k, CAST(value % 7 AS DOUBLE) AS v, value % 5 AS m FROM generate_series(1, 600)",
        )
        .table_from("t2", "SELECT value AS k, value % 11 AS w FROM generate_series(1, 500)")
        .table_from("t3", "SELECT CAST(value AS DOUBLE) AS f FROM generate_series(1, 3)");
    for (key, value) in [
        ("datafusion.execution.target_partitions", partitions),
        (
            "datafusion.optimizer.hash_join_single_partition_threshold",
            threshold,
        ),
        (
            "datafusion.optimizer.hash_join_single_partition_threshold_rows",
            match threshold {
                "0" => "0",
                _ => "100",
            },
        ),
    ] {
        fixture.set(key, value);
    }
    fixture
}

fn queries() -> Vec<String> {
    // The key that partitions the rows of the first is projected away, that of the second is there.
    let gone = "(SELECT t1.v FROM t1 JOIN t2 ON t1.k = t2.k)";
    let kept = "(SELECT t1.k, t1.v, t2.w FROM t1 JOIN t2 ON t1.k = t2.k)";
    let groups = "(SELECT m, avg(v) AS v, count(*) AS n FROM t1 GROUP BY m)";
    let folded = "(SELECT avg(v) AS v FROM t1 GROUP BY m)";
    let mut queries = Vec::new();
    for rows in [gone, kept, groups, folded] {
        for join in ["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"] {
            queries.push(format!(
                "SELECT count(*) AS n, sum(x.v) AS s FROM t3 {join} {rows} x ON t3.f = x.v"
            ));
            queries.push(format!(
                "SELECT x.v, count(*) AS n FROM {rows} x {join} {gone} y ON x.v = y.v GROUP BY x.v"
            ));
        }
        queries.extend([
            format!("SELECT f FROM t3 WHERE f IN (SELECT v FROM {rows} x)"),
            format!("SELECT f FROM t3 WHERE f NOT IN (SELECT v FROM {rows} x)"),
            format!("SELECT v, count(*) AS n FROM {rows} x WHERE EXISTS (SELECT 1 FROM t3 WHERE t3.f = x.v) GROUP BY v"),
            format!("SELECT count(*) AS n FROM {rows} x JOIN t3 ON x.v < t3.f"),
            format!("SELECT count(*) AS n FROM {rows} x CROSS JOIN (SELECT array_length(array_agg(f)) AS f FROM t3) y"),
            format!("SELECT v, array_length(array_agg(v)) AS m FROM {rows} x GROUP BY v"),
            format!("SELECT v, n FROM (SELECT v, row_number() OVER (PARTITION BY v) AS n FROM {rows} x) WHERE n <= 2"),
            format!("SELECT array_length(array_agg(v)) AS m FROM (SELECT v FROM {rows} x UNION ALL SELECT f FROM t3)"),
            format!("SELECT v, array_length(array_agg(v)) AS m, count(*) AS n FROM (SELECT v FROM {rows} x UNION ALL SELECT v FROM {gone} y) GROUP BY v"),
            format!("SELECT sum(a.n) AS s FROM (SELECT v, count(*) AS n FROM {rows} x JOIN t3 ON x.v = t3.f GROUP BY v) a"),
        ]);
    }
    // Rows in partitions by a key that operators above still rely on.
    for join in ["JOIN", "LEFT JOIN", "FULL JOIN"] {
        queries.extend([
            format!("SELECT a.k, a.m, b.n FROM (SELECT k, array_length(array_agg(v)) AS m FROM {kept} x GROUP BY k) a {join} (SELECT k, count(*) AS n FROM t2 GROUP BY k) b ON a.k = b.k ORDER BY 1, 3 LIMIT 20"),
            format!("SELECT a.w, sum(b.n) AS s FROM {kept} a {join} (SELECT w, array_length(array_agg(k)) AS n FROM t2 GROUP BY w) b ON a.w = b.w GROUP BY a.w"),
        ]);
    }
    queries.extend(
        [
            "SELECT k, array_length(array_agg(v)) AS m FROM (SELECT k, v FROM t1 UNION ALL SELECT k, CAST(w AS DOUBLE) FROM t2) GROUP BY k ORDER BY k LIMIT 9",
            "SELECT k, array_length(array_agg(n)) AS m FROM (SELECT k, count(*) AS n FROM t1 GROUP BY k UNION ALL SELECT k, count(*) FROM t2 GROUP BY k) GROUP BY k ORDER BY k DESC LIMIT 9",
            "SELECT k, rank() OVER (PARTITION BY w ORDER BY v, k) AS r FROM (SELECT t1.k, t1.v, t2.w FROM t1 JOIN t2 ON t1.k = t2.k) ORDER BY r DESC, k LIMIT 9",
        ]
        .map(String::from),
    );
    queries
}

fn check(partitions: &str, threshold: &str) {
    check_all(&fixture(partitions, threshold), queries());
}

#[test]
fn of_two_partitions_with_small_sides_collected() {
    check("2", "1000");
}

#[test]
fn of_three_partitions_with_all_sides_partitioned() {
    check("3", "0");
}

#[test]
fn of_four_partitions_joined_by_sorting() {
    let fixture = fixture("4", "1000");
    fixture.set("datafusion.optimizer.prefer_hash_join", "false");
    check_all(&fixture, queries());
}

/// Files in a directory for each value of a column are partitions by that column, but not by its hash.
#[test]
fn of_directories_beside_fragments() {
    let folder = std::env::temp_dir().join(format!("warpline-directories-{}", std::process::id()));
    let fixture = Fixture::open(test_device(), false, &[("warpline.min_rows", "1000")]);
    let run = |sql: &str| {
        let made = async { fixture.session().context().sql(sql).await?.collect().await };
        if let Err(error) = fixture.block_on(made) {
            panic!("{error}\nstatement: {sql}");
        }
    };
    for (table, rows) in [("large", 3000), ("small", 300)] {
        let place = folder.join(table);
        let place = place.display();
        run(&format!(
            "COPY (SELECT value AS v, value % 3 AS p FROM generate_series(1, {rows})) TO '{place}/' \
             STORED AS PARQUET PARTITIONED BY (p)"
        ));
    }
    for (key, value) in [
        ("datafusion.execution.target_partitions", "3"),
        ("datafusion.optimizer.preserve_file_partitions", "1"),
        (
            "datafusion.optimizer.hash_join_single_partition_threshold",
            "0",
        ),
        (
            "datafusion.optimizer.hash_join_single_partition_threshold_rows",
            "0",
        ),
    ] {
        fixture.set(key, value);
    }
    for table in ["large", "small"] {
        let place = folder.join(table);
        run(&format!(
            "CREATE EXTERNAL TABLE {table} (v BIGINT) STORED AS PARQUET PARTITIONED BY (p INT) LOCATION '{}/'",
            place.display()
        ));
    }
    let sides = "(SELECT p, count(*) AS n FROM large GROUP BY p) x";
    let other = "(SELECT p, array_length(array_agg(v)) AS m FROM small GROUP BY p) y";
    let queries = ["JOIN", "LEFT JOIN", "FULL JOIN"].map(|join| {
        format!("SELECT x.p, n, y.p AS q, m FROM {sides} {join} {other} ON x.p = y.p ORDER BY 1, 3")
    });
    assert!(fixture.explain(&queries[0]).contains("GpuFragmentExec"));
    check_all(&fixture, queries);
    std::fs::remove_dir_all(&folder).expect("the folder goes");
}
