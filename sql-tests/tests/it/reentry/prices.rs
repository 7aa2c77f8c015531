//! Where rows go back to the device, and where they do not.

use super::{ON, is_above, with};

#[test]
fn small_inputs_and_tables_stay() {
    // By price: nothing here is worth a launch.
    let fixture = with(&[("warpline.min_rows", "0")]);
    for sql in [
        "SELECT d.name, count(*) AS n FROM (SELECT plus_one(k) AS k FROM facts) x JOIN dims d ON x.k = d.k GROUP BY d.name",
        "SELECT w, count(*) AS n FROM (SELECT plus_one(v) AS w FROM facts) GROUP BY w",
    ] {
        let plan = fixture.explain(sql);
        assert!(!is_above(&plan), "{plan}");
        fixture.check(sql);
    }
}

#[test]
fn a_large_table_joined_with_few_rows_goes_to_the_device() {
    let fixture = with(&[]).table_from(
        "large",
        "SELECT value AS id, value % 1000 AS k, value % 7 AS v FROM generate_series(1, 3000000) t(value)",
    );
    for (sql, above) in [
        (
            "SELECT x.name, sum(l.v) AS s FROM (SELECT plus_one(k) AS k, name FROM dims) x JOIN large l ON l.k = x.k \
             GROUP BY x.name",
            true,
        ),
        (
            "SELECT t.k, count(*) AS n FROM (VALUES (1), (2), (3)) AS t(k) JOIN large l ON l.k = t.k GROUP BY t.k",
            true,
        ),
        // Nothing is left to do but to return the rows.
        ("SELECT plus_one(k) FROM large", false),
        ("SELECT plus_one(k) FROM large LIMIT 10", false),
        (
            "SELECT plus_one(k) FROM dims UNION ALL SELECT k FROM large",
            false,
        ),
        ("SELECT sum(plus_one(k)) FROM dims", false),
    ] {
        let plan = fixture.explain(sql);
        assert_eq!(is_above(&plan), above, "{plan}\n{sql}");
    }
}

#[test]
fn where_a_gpu_is_required_nothing_goes_back() {
    let settings: Vec<_> = ON
        .iter()
        .copied()
        .chain([("warpline.require_gpu", "true")])
        .collect();
    let fixture = with(&settings);
    let sql = "SELECT d.name, count(*) AS n FROM (SELECT plus_one(k) AS k FROM facts) x JOIN dims d ON x.k = d.k \
               GROUP BY d.name";
    let error = fixture.run(sql).expect_err("refused").strip_backtrace();
    assert!(
        error.contains("require_gpu") && error.contains("plus_one"),
        "{error}"
    );
    assert!(!error.contains("goes on"), "{error}");
    fixture.set("warpline.require_gpu", "false");
    fixture.set("warpline.reentry", "off");
    let plan = fixture.explain(sql);
    assert!(!is_above(&plan), "{plan}");
    fixture.set("warpline.reentry", "on");
    let plan = fixture.explain(sql);
    assert!(is_above(&plan), "{plan}");
    let words: String = plan
        .chars()
        .filter(|c| !c.is_whitespace() && *c != '|')
        .collect();
    assert!(
        words.contains("plus_one") && words.contains("thedevicegoesonaboveit"),
        "{plan}"
    );
}

#[test]
fn constants_are_no_work_of_the_cpu() {
    let settings: Vec<_> = ON
        .iter()
        .copied()
        .chain([("warpline.require_gpu", "true")])
        .collect();
    let fixture = with(&settings);
    for sql in [
        "SELECT t.name, count(*) AS n FROM (VALUES (1, 'a'), (2, 'b')) AS t(k, name) JOIN facts f ON f.k = t.k + 1 \
         GROUP BY t.name ORDER BY 1",
        "SELECT k FROM facts WHERE v > 490 UNION ALL SELECT * FROM (VALUES (7), (NULL)) ORDER BY 1",
    ] {
        let run = fixture.check(sql);
        assert!(run.metrics.kernels > 0 && run.metrics.fallbacks.is_empty());
    }
    let recursive = "WITH RECURSIVE up(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM up WHERE n < 9) \
                     SELECT up.n, count(*) AS c FROM up JOIN facts f ON f.k = up.n GROUP BY up.n ORDER BY 1";
    let error = fixture
        .run(recursive)
        .expect_err("refused")
        .strip_backtrace();
    assert!(error.contains("require_gpu"), "{error}");
    fixture.set("warpline.require_gpu", "false");
    let run = fixture.check(recursive);
    let told = |reason: &String| reason.contains("RecursiveQueryExec");
    assert!(
        run.metrics.fallbacks.iter().any(told),
        "{:?}",
        run.metrics.fallbacks
    );
}
