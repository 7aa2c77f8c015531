//! What fails, in the inputs and on the device; and rows that memory does not hold.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::functions::register_counted;
use super::{FACTS, ON, check_continued, fixture, with};

const JOINED: &str = "SELECT d.name, count(*) AS n, sum(x.w) AS s FROM (SELECT k, counted(v) AS w FROM facts) x \
                      JOIN dims d ON x.k = d.k GROUP BY d.name ORDER BY d.name";

#[test]
fn errors_of_inputs_are_the_querys() {
    let fixture = fixture();
    for sql in [
        "SELECT d.name, sum(x.w) AS s FROM (SELECT k, refuses_7(id) AS w FROM facts) x JOIN dims d ON x.k = d.k \
         GROUP BY d.name",
        "SELECT count(DISTINCT w) FROM (SELECT refuses_7(id) AS w FROM facts)",
    ] {
        let error = fixture.check_error(sql);
        assert!(error.contains("seven is refused here"), "{error}");
        assert!(!error.contains("internal"), "{error}");
    }
    check_continued(
        &fixture,
        "SELECT count(DISTINCT w) FROM (SELECT plus_one(id) AS w FROM facts)",
    );
}

#[test]
fn inputs_run_once_whatever_the_device_does() {
    let fixture = fixture();
    let calls = register_counted(&fixture);
    fixture.set("warpline.plan_cache", "false");
    let expected = fixture.expect(JOINED);
    let mut fallbacks = 0;
    for rules in [
        "",
        "allocate:1",
        "allocate:2",
        "allocate:5",
        "allocate:1:1000000",
        "allocate:4:1000000",
        "upload",
        "launch:1",
        "launch:2",
        "compile",
        "copy:1",
        "download",
    ] {
        fixture.session().device().evict().expect("evicted");
        fixture.set("warpline.inject_failures", rules);
        let before = calls.load(Ordering::SeqCst);
        let run = fixture.run(JOINED);
        let called = calls.load(Ordering::SeqCst) - before;
        fixture.set("warpline.inject_failures", "");
        let run = run.unwrap_or_else(|error| panic!("{rules}: {error}"));
        assert_eq!(expected.difference(&run), None, "{rules}");
        assert_eq!(called, FACTS as u64, "{rules}");
        fallbacks += run.metrics.ladder.cpu_fallbacks;
    }
    assert!(fallbacks > 3, "{fallbacks}");
}

#[test]
fn rows_beyond_memory_go_to_files_or_to_the_cpu() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().to_string_lossy().into_owned();
    let settings: Vec<_> = ON
        .iter()
        .copied()
        .chain([
            ("warpline.host_memory", "4096"),
            ("datafusion.execution.batch_size", "100"),
        ])
        .collect();
    let queries = [
        "SELECT d.name, count(*) AS n, sum(x.w) AS s, min(t) AS t FROM \
         (SELECT k, plus_one(v) AS w, opaque(s, id) AS t FROM facts) x JOIN dims d ON x.k = d.k GROUP BY d.name ORDER BY d.name",
        "SELECT w, count(*) AS n FROM (SELECT plus_one(v) AS w FROM facts) GROUP BY w ORDER BY w",
        "SELECT a.w, count(*) AS n FROM (SELECT plus_one(id) AS w FROM facts) a \
         JOIN (SELECT plus_one(v) AS w FROM facts) b ON a.w = b.w GROUP BY a.w ORDER BY 1",
    ];
    let alone = with(&settings);
    let calls = register_counted(&alone);
    for sql in queries {
        let run = alone.check(sql);
        let told = |reason: &String| {
            reason.contains("bytes of host memory") && reason.contains("spill_directory")
        };
        assert!(
            run.metrics.fallbacks.iter().any(told),
            "{:?}",
            run.metrics.fallbacks
        );
        let before = calls.load(Ordering::SeqCst);
        let counted = sql.replace("plus_one(v)", "counted(v)");
        alone.run(&counted).expect("an answer");
        assert_eq!(
            calls.load(Ordering::SeqCst) - before,
            FACTS as u64,
            "{counted}"
        );
    }
    let settings: Vec<_> = settings
        .into_iter()
        .chain([("warpline.spill_directory", path.as_str())])
        .collect();
    let spilling = with(&settings);
    for sql in queries {
        check_continued(&spilling, sql);
    }
    assert_eq!(
        std::fs::read_dir(folder.path()).expect("a folder").count(),
        0
    );
    // The device refuses: the CPU reads the files.
    spilling.set("warpline.inject_failures", "launch:1:1000000");
    for sql in queries {
        let run = spilling.check(sql);
        assert_eq!(run.metrics.ladder.cpu_fallbacks, 1, "{sql}");
    }
}

#[test]
fn queries_that_are_dropped_end_their_inputs() {
    let fixture = with(&[
        ("warpline.min_rows", "0"),
        ("warpline.reentry", "on"),
        ("datafusion.execution.batch_size", "50"),
    ]);
    let calls = register_counted(&fixture);
    let sql = "SELECT d.name, sum(x.w) AS s FROM (SELECT k, slow(counted(v)) AS w FROM facts) x \
               JOIN dims d ON x.k = d.k GROUP BY d.name";
    let run = fixture.run_within(sql, Duration::from_millis(150));
    assert!(run.is_none(), "it was to take longer");
    std::thread::sleep(Duration::from_millis(200));
    let at_rest = calls.load(Ordering::SeqCst);
    assert!(at_rest < FACTS as u64, "{at_rest}");
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(calls.load(Ordering::SeqCst), at_rest);
    fixture.set("warpline.time_limit", "100ms");
    let error = fixture.run(sql).expect_err("a limit").strip_backtrace();
    assert!(error.contains("warpline.time_limit"), "{error}");
    fixture.set("warpline.time_limit", "0");
    check_continued(
        &fixture,
        "SELECT count(DISTINCT w) FROM (SELECT plus_one(id) AS w FROM facts)",
    );
}

#[test]
fn the_cpu_finds_the_partitions_and_orders_that_it_was_planned_with() {
    let partitioned = [
        ("datafusion.execution.target_partitions", "3"),
        (
            "datafusion.optimizer.hash_join_single_partition_threshold",
            "0",
        ),
        (
            "datafusion.optimizer.hash_join_single_partition_threshold_rows",
            "0",
        ),
    ];
    for hash in ["true", "false"] {
        let settings: Vec<_> = ON
            .iter()
            .copied()
            .chain(partitioned)
            .chain([("datafusion.optimizer.prefer_hash_join", hash)])
            .collect();
        let fixture = with(&settings);
        fixture.set("warpline.plan_cache", "false");
        // The groups below the functions come from fragments, in one partition.
        let grouped = "SELECT a.k, a.n, b.m FROM \
                       (SELECT plus_one(k) AS k, n FROM (SELECT k, count(*) AS n FROM facts GROUP BY k)) a JOIN \
                       (SELECT plus_one(k) AS k, m FROM (SELECT k, sum(v) AS m FROM facts GROUP BY k)) b ON a.k = b.k \
                       ORDER BY 1";
        let plain = "SELECT a.w, count(*) AS n FROM (SELECT plus_one(id) AS w FROM facts) a \
                     LEFT JOIN (SELECT plus_one(v) AS w FROM facts) b ON a.w = b.w GROUP BY a.w ORDER BY 1";
        for sql in [grouped, plain] {
            check_continued(&fixture, sql);
            let mut fallbacks = 0;
            for nth in [1, 3, 5, 8, 12] {
                fixture.set("warpline.inject_failures", &format!("launch:{nth}:1000000"));
                fallbacks += fixture.check(sql).metrics.ladder.cpu_fallbacks;
            }
            fixture.set("warpline.inject_failures", "");
            assert!(fallbacks > 1, "{fallbacks}: {sql}");
        }
    }
}

#[test]
fn rows_are_written_where_they_are_wanted() {
    let fixture = fixture();
    let context = fixture.session().context();
    let sql = "SELECT d.part, count(*) AS n FROM (SELECT plus_one(k) AS k FROM facts) x JOIN dims d ON x.k = d.k GROUP BY d.part";
    let statements = [
        format!("CREATE TABLE made AS {sql}"),
        format!("INSERT INTO made {sql}"),
    ];
    for statement in &statements {
        let done = fixture.block_on(async { context.sql(statement).await?.collect().await });
        done.unwrap_or_else(|error| panic!("{error}\n{statement}"));
    }
    let twice = format!("SELECT part, n FROM made EXCEPT SELECT part, n FROM ({sql})");
    assert_eq!(fixture.check(&twice).rows(), 0);
    assert_eq!(fixture.check("SELECT * FROM made").rows(), 10);
}
