//! Queries that are stopped: at every launch, by a dropped stream, by a time limit.

use std::time::{Duration, Instant};

use arrow::datatypes::Int64Type;
use datafusion::physical_plan::displayable;
use warpline::DeviceChoice;
use warpline_sql_tests::{Fixture, every, test_device};

use super::{assert_right, left_in_use, memory, sql, tpch};
use crate::operators::support::{Nulls, drawn, primitive, row_numbers};

const INJECT: &str = "warpline.inject_failures";

/// Waits until no query runs on the device, which must not take long.
#[track_caller]
pub(super) fn wait_until_idle(fixture: &Fixture) {
    let begin = Instant::now();
    // A turn ends with its query; the thread that works for it may be a launch behind.
    while memory(fixture).queries > 0 || left_in_use(fixture) > 0 {
        assert!(
            begin.elapsed() < Duration::from_secs(30),
            "{:?}",
            memory(fixture)
        );
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn a_query_stopped_at_any_launch_returns_its_memory() {
    let fixture = tpch(false, &[]);
    for number in [3, 13, 21] {
        let expected = fixture.expect(&sql(number));
        for nth in (1..1000).step_by(every(2)) {
            fixture.set(INJECT, &format!("stop:{nth}"));
            let mut stopped = 0;
            // The second run knows its sizes and queues everything at once.
            for _ in 0..2 {
                match fixture.run(&expected.sql) {
                    Ok(run) => assert_right(&expected, &run, &format!("Q{number}")),
                    Err(error) => {
                        stopped += 1;
                        let error = error.strip_backtrace();
                        assert!(error.contains("the query was stopped"), "{error}");
                    }
                }
            }
            assert_eq!(fixture.session().injected_failures(), stopped);
            assert_eq!(
                left_in_use(&fixture),
                0,
                "Q{number} stopped at launch {nth}"
            );
            if stopped == 0 {
                assert!(nth > 6, "Q{number} has {nth} launches only");
                break;
            }
        }
    }
}

#[test]
fn a_dropped_query_stops_and_returns_its_memory() {
    let fixture = tpch(true, &[]);
    let expected = fixture.expect(&sql(21));
    let mut dropped = 0;
    for microseconds in (0..12).map(|power| 500_u64 << power) {
        let time = Duration::from_micros(microseconds);
        match fixture.run_within(&expected.sql, time) {
            Some(run) => assert_right(&expected, &run.expect("an answer"), "in time"),
            None => dropped += 1,
        }
        wait_until_idle(&fixture);
    }
    assert!(dropped > 2, "only {dropped} were dropped");
    let run = fixture.run(&expected.sql).expect("an answer");
    assert_right(&expected, &run, "afterwards");
}

/// Kernels that would run for minutes: rows of one key joined with each other, in every shape of a kernel, and compared with each
/// other. They leave within a second or so.
#[test]
fn kernels_of_a_stopped_query_leave() {
    // Minutes for the device at hand.
    let rows = match test_device() {
        DeviceChoice::Emulator => 60_000,
        _ => 1_200_000,
    };
    // No pair passes, and nothing can be added up before the join.
    let join =
        "SELECT count(*) AS c FROM big x JOIN big y ON x.k = y.k WHERE x.id * 7 + y.id < x.k - 1";
    let exists = "SELECT count(*) AS c FROM big x WHERE EXISTS \
                  (SELECT 1 FROM big y WHERE y.k = x.k AND (x.id + y.id) % 7 = 9)";
    let shapes: [(&str, &[(&str, &str)]); 7] = [
        (join, &[("warpline.load_balance", "nifs_aws")]),
        (join, &[("warpline.load_balance", "fws")]),
        (join, &[("warpline.load_balance", "nifs")]),
        (join, &[("warpline.load_balance", "none")]),
        (
            join,
            &[
                ("warpline.materialization", "eager"),
                ("warpline.join", "nphj"),
            ],
        ),
        (join, &[("warpline.join", "phj_ur")]),
        (exists, &[]),
    ];
    let one_key = || primitive::<Int64Type>(drawn(&[3], rows, Nulls::None, 1));
    for (sql, settings) in shapes {
        let settings: Vec<_> = [("warpline.min_rows", "0")]
            .iter()
            .chain(settings)
            .copied()
            .collect();
        let fixture = Fixture::open(test_device(), true, &settings)
            .table("big", vec![("id", row_numbers(rows)), ("k", one_key())]);
        fixture.check("SELECT k, sum(id) AS s FROM big GROUP BY k");
        let begin = Instant::now();
        let run = fixture.run_within(sql, Duration::from_secs(5));
        assert!(
            run.is_none(),
            "{settings:?}: over after {:?}",
            begin.elapsed()
        );
        let dropped = Instant::now();
        wait_until_idle(&fixture);
        assert!(
            dropped.elapsed() < Duration::from_secs(30),
            "{settings:?}: {:?}",
            dropped.elapsed()
        );
        fixture.check("SELECT k, max(id) AS m FROM big GROUP BY k");
    }
}

#[test]
fn a_time_limit_stops_a_query() {
    let fixture = tpch(true, &[]);
    let expected = fixture.expect(&sql(9));
    fixture.set("warpline.time_limit", "1ms");
    let error = fixture.run(&expected.sql).expect_err("too long");
    let error = error.strip_backtrace();
    assert!(
        error.contains("warpline.time_limit = 1ms") && error.contains("SET warpline.time_limit"),
        "{error}"
    );
    wait_until_idle(&fixture);
    assert!(
        fixture
            .explain(&expected.sql)
            .contains("TimeLimitExec: limit=1ms")
    );
    fixture.set("warpline.time_limit", "10min");
    for _ in 0..2 {
        let run = fixture.run(&expected.sql).expect("in time");
        assert_right(&expected, &run, "with a long limit");
    }
    // The time of a plan that is used again begins anew.
    fixture.set("warpline.time_limit", "5s");
    fixture.run(&expected.sql).expect("in time");
    std::thread::sleep(Duration::from_secs(6));
    let run = fixture.run(&expected.sql).expect("in time again");
    assert!(run.metrics.plan_cached);
    fixture.set("warpline.time_limit", "0");
    let run = fixture.run(&expected.sql).expect("no limit");
    assert_right(&expected, &run, "with no limit");
    // On the CPU, too.
    let cpu = Fixture::cpu();
    cpu.set("warpline.time_limit", "20ms");
    let endless = "SELECT count(*) FROM generate_series(1, 1000000) a, generate_series(1, 1000000) b \
                   WHERE a.value + b.value = 0";
    let begin = Instant::now();
    let error = cpu.run(endless).expect_err("too long").strip_backtrace();
    assert!(error.contains("warpline.time_limit"), "{error}");
    assert!(begin.elapsed() < Duration::from_secs(60));
    // A statement that is done when it is planned is not told that it was stopped.
    cpu.set("warpline.time_limit", "1ms");
    for (statement, limited) in [
        ("SET warpline.time_limit = '1ms'", false),
        ("SELECT 1", true),
    ] {
        let plan = cpu.block_on(async {
            let frame = cpu.session().context().sql(statement).await;
            frame.expect("a plan").create_physical_plan().await
        });
        let plan = displayable(plan.expect("a plan").as_ref())
            .indent(false)
            .to_string();
        assert_eq!(
            plan.contains("TimeLimitExec"),
            limited,
            "{statement}: {plan}"
        );
    }
    let outcome = cpu.run("SET warpline.time_limit = 'soon'");
    let error = outcome.expect_err("no time").strip_backtrace();
    assert!(error.contains("10s"), "{error}");
}
