//! Plans whose lower operators stay on the CPU, over rows of every kind.

use warpline_sql_tests::Fixture;

use super::{check_continued, fixture};

#[track_caller]
fn check_all(fixture: &Fixture, queries: &[&str]) {
    for sql in queries {
        check_continued(fixture, sql);
    }
}

#[test]
fn functions_below_joins_and_groups() {
    check_all(
        &fixture(),
        &[
            "SELECT d.name, count(*) AS n, sum(x.w) AS s FROM (SELECT k, plus_one(v) AS w FROM facts) x \
             JOIN dims d ON x.k = d.k GROUP BY d.name ORDER BY d.name",
            "SELECT w, count(*) AS n FROM (SELECT plus_one(v) AS w FROM facts) GROUP BY w ORDER BY n DESC, w LIMIT 7",
            "SELECT f.id, d.name FROM (SELECT id, plus_one(k) AS k FROM facts WHERE plus_one(v) > 100) f \
             JOIN dims d ON f.k = d.k ORDER BY f.id",
            "SELECT count(*), min(w), max(w) FROM (SELECT plus_one(v) AS w FROM facts WHERE opaque(s, id) = 'ä')",
            // Both sides, and the device below one of them.
            "SELECT a.w, b.n FROM (SELECT plus_one(k) AS w FROM dims) a \
             LEFT JOIN (SELECT plus_one(k) AS k, count(*) AS n FROM facts GROUP BY 1) b ON a.w = b.k ORDER BY 1, 2",
            "SELECT x.g, sum(x.n) AS n FROM (SELECT plus_one(k) % 10 AS g, n FROM \
             (SELECT k, count(*) AS n FROM facts GROUP BY k)) x GROUP BY x.g ORDER BY 1",
            "SELECT sum(v) OVER (PARTITION BY w ORDER BY id) AS s, id FROM (SELECT id, v, plus_one(k) AS w FROM facts) \
             ORDER BY id",
            // One input that is read twice.
            "WITH x AS (SELECT plus_one(k) AS k, v FROM facts) \
             SELECT a.k, count(*) AS n, count(c.k) AS m FROM x a JOIN dims b ON a.k = b.k LEFT JOIN x c ON c.k = a.v \
             GROUP BY a.k ORDER BY 1",
            "SELECT k FROM dims WHERE k IN (SELECT plus_one(k) FROM facts) ORDER BY k",
            "SELECT k FROM dims WHERE k NOT IN (SELECT plus_one(k) FROM facts WHERE k IS NOT NULL) ORDER BY k",
            "SELECT k FROM (SELECT plus_one(k) AS k FROM facts EXCEPT SELECT k FROM dims) ORDER BY k",
        ],
    );
}

#[test]
fn subqueries_beside_functions() {
    let fixture = fixture();
    // The subquery's value is known to the operators around it alone.
    for sql in [
        "SELECT a.k, count(*) AS n FROM (SELECT plus_one(k) AS k FROM facts WHERE v > (SELECT avg(v) FROM facts)) a \
         JOIN dims b ON a.k = b.k GROUP BY a.k ORDER BY 1",
        "SELECT a.k, count(*) AS n FROM (SELECT plus_one(k) AS k, v FROM facts) a JOIN dims b ON a.k = b.k \
         WHERE a.v > (SELECT avg(plus_one(v)) FROM facts) GROUP BY a.k ORDER BY 1",
    ] {
        fixture.check(sql);
    }
    check_continued(
        &fixture,
        "SELECT b.k, count(*) AS n FROM (SELECT plus_one(k) AS k FROM facts) a JOIN dims b ON a.k = b.k \
         WHERE b.part > (SELECT min(v) + 501 FROM facts) GROUP BY b.k ORDER BY 1",
    );
}

/// A limit ends what has no end of its own: a fragment would read it for ever.
#[test]
fn recursive_queries_end_with_who_reads_them() {
    let fixture = fixture();
    let up = "WITH RECURSIVE up(n) AS (SELECT CAST(1 AS BIGINT) UNION ALL SELECT n + 3 FROM up)";
    for sql in [
        format!("{up} SELECT n * 2 AS m FROM up LIMIT 20"),
        format!("{up} SELECT sum(n) AS s FROM (SELECT n FROM up LIMIT 50) l"),
    ] {
        fixture.check(&sql);
    }
}

#[test]
fn operators_below() {
    check_all(
        &fixture(),
        &[
            // Lists are made and unfolded again.
            "SELECT d.name, count(*) AS n FROM (SELECT k, unnest(ids) AS id FROM \
             (SELECT k, array_agg(id) AS ids FROM facts GROUP BY k)) x JOIN dims d ON x.k = d.k \
             JOIN facts f ON f.id = x.id GROUP BY d.name ORDER BY 1",
            "WITH RECURSIVE up(n) AS (SELECT 1 UNION ALL SELECT n + 3 FROM up WHERE n < 80) \
             SELECT d.name, sum(f.v) AS s FROM up JOIN dims d ON up.n = d.k JOIN facts f ON f.k = d.k \
             GROUP BY d.name ORDER BY 1",
            "SELECT t.text, sum(f.v) AS s FROM (VALUES (1, 'one'), (2, 'two'), (NULL, 'none'), (3, NULL)) AS t(k, text) \
             JOIN facts f ON f.k = t.k GROUP BY t.text ORDER BY 1",
            "SELECT t.k, f.n FROM (VALUES (5), (500)) AS t(k) \
             LEFT JOIN (SELECT k, count(*) AS n FROM facts GROUP BY k) f ON f.k = t.k ORDER BY 1",
        ],
    );
    let fixture = fixture();
    for sql in [
        "SELECT g.value, count(*) AS n FROM generate_series(1, 50) g JOIN facts f ON f.k = g.value \
         GROUP BY g.value ORDER BY 1",
        "SELECT g.value, count(*) AS n FROM (SELECT plus_one(value) AS value FROM generate_series(1, 50)) g \
         JOIN facts f ON f.k = g.value GROUP BY g.value ORDER BY 1",
    ] {
        let run = fixture.check(sql);
        assert!(run.metrics.kernels > 0, "{sql}");
    }
}

#[test]
fn rows_of_every_number() {
    let fixture = fixture();
    for rows in [0, 1, 2, 31, 32, 33, 4999] {
        check_all(
            &fixture,
            &[
                &format!(
                    "SELECT d.part, count(*) AS n, sum(x.w) AS s, min(x.t) AS t FROM \
                     (SELECT k, plus_one(v) AS w, opaque(s, id) AS t FROM facts WHERE plus_one(id) <= {rows} + 1) x \
                     JOIN dims d ON x.k = d.k GROUP BY d.part ORDER BY 1"
                ),
                &format!(
                    "SELECT count(*) AS n, sum(w) AS s FROM (SELECT plus_one(v) AS w FROM facts WHERE plus_one(id) <= {rows} + 1)"
                ),
            ],
        );
    }
    check_all(
        &fixture,
        &[
            "SELECT x.s, count(*) AS n FROM (SELECT plus_one(k) AS k, opaque(s, k) AS s FROM none) x GROUP BY x.s",
            "SELECT d.k, x.s FROM dims d LEFT JOIN (SELECT plus_one(k) AS k, opaque(s, k) AS s FROM none) x ON d.k = x.k \
             ORDER BY d.k",
        ],
    );
}

#[test]
fn values_of_every_kind() {
    let kinds = [
        "Boolean",
        "Int8",
        "Int16",
        "Int32",
        "Int64",
        "UInt8",
        "UInt16",
        "UInt32",
        "UInt64",
        "Float32",
        "Float64",
        "Date32",
        "Date64",
        "Timestamp(Second, None)",
        "Timestamp(Nanosecond, None)",
        "Timestamp(Millisecond, Some(\"+02:00\"))",
        "Time32(Second)",
        "Time64(Nanosecond)",
        "Decimal128(15, 2)",
        "Decimal128(38, 0)",
        "Utf8",
        "LargeUtf8",
        "Utf8View",
        "Dictionary(Int32, Utf8)",
    ];
    let fixture = fixture();
    for kind in kinds {
        let base = match kind {
            "Boolean" => "id % 2 = 0",
            "Date32" | "Date64" => "arrow_cast(CAST(id % 50 AS INT), 'Date32')",
            "Time32(Second)" => "arrow_cast(CAST(id % 50 AS INT), 'Time32(Second)')",
            "Time64(Nanosecond)" => "arrow_cast(id % 50, 'Time64(Nanosecond)')",
            _ => "id % 50",
        };
        let column = format!(
            "opaque(CASE WHEN id % 9 = 4 THEN NULL ELSE arrow_cast({base}, '{kind}') END, v)"
        );
        for sql in [
            format!(
                "SELECT c, count(*) AS n, count(c) AS m FROM (SELECT {column} AS c FROM facts) GROUP BY c ORDER BY c"
            ),
            format!(
                "SELECT id, c FROM (SELECT id, {column} AS c FROM facts WHERE id < 90) ORDER BY id DESC"
            ),
            // Throughout NULL.
            format!(
                "SELECT c, count(*) AS n FROM (SELECT {column} AS c FROM facts WHERE id % 9 = 4) GROUP BY c"
            ),
        ] {
            let run = fixture.check(&sql);
            let refused = run.metrics.kernels == 0;
            assert!(
                !refused,
                "{kind}: {:?}\n{sql}\n{}",
                run.metrics.fallbacks,
                fixture.explain(&sql)
            );
        }
    }
}

#[test]
fn names_that_are_there_twice() {
    check_all(
        &fixture(),
        &[
            "SELECT * FROM (SELECT plus_one(k) AS k, v FROM facts) a JOIN (SELECT plus_one(k) AS k, part FROM dims) b \
             ON a.k = b.k ORDER BY 1, 2, 3, 4",
            "SELECT a.w, b.w FROM (SELECT plus_one(k) AS w, id FROM facts) a \
             JOIN (SELECT plus_one(v) AS w, id FROM facts) b ON a.id = b.id ORDER BY 1, 2",
        ],
    );
}

#[test]
fn columns_that_the_device_cannot_hold() {
    let fixture = fixture();
    // The list goes no further than the function that takes it.
    check_continued(
        &fixture,
        "SELECT d.name, sum(x.n) AS n FROM (SELECT k, array_length(ids) AS n FROM \
         (SELECT k, array_agg(id) AS ids FROM facts GROUP BY k)) x JOIN dims d ON x.k = d.k GROUP BY d.name ORDER BY 1",
    );
    // It is in the answer: the CPU goes on.
    fixture.check(
        "SELECT d.k, array_sort(x.ids) AS ids FROM (SELECT k, array_agg(id) AS ids FROM facts GROUP BY k) x \
         JOIN dims d ON x.k = d.k ORDER BY d.k",
    );
}

#[test]
fn plans_run_with_other_data_and_parameters() {
    let fixture = fixture();
    let sql = "SELECT d.part, count(*) AS n FROM (SELECT plus_one(k) AS k FROM facts) x JOIN dims d ON x.k = d.k \
               GROUP BY d.part ORDER BY 1";
    let run = |sql: &str| {
        let both = [fixture.session().context(), fixture.session().reference()];
        for context in both {
            let done = fixture.block_on(async { context.sql(sql).await?.collect().await });
            done.unwrap_or_else(|error| panic!("{error}\n{sql}"));
        }
    };
    check_continued(&fixture, sql);
    // The two share their tables: one of them changes it.
    let insert = "INSERT INTO dims VALUES (17, 'new', 77), (90, 'other', 77)";
    let done = fixture.block_on(async {
        fixture
            .session()
            .context()
            .sql(insert)
            .await?
            .collect()
            .await
    });
    done.expect("inserted");
    check_continued(&fixture, sql);
    run(
        "PREPARE p(BIGINT) AS SELECT d.part, count(*) AS n FROM (SELECT plus_one(k) AS k FROM facts WHERE opaque(v, id) > $1) x \
         JOIN dims d ON x.k = d.k GROUP BY d.part ORDER BY 1",
    );
    for value in [-600, 0, 100, 9999] {
        fixture.check(&format!("EXECUTE p({value})"));
    }
}
