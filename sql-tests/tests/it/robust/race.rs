//! First runs beside the CPU (`warpline.cold = race`): whoever is first, answers are right and nothing stays behind.

use std::time::Duration;

use super::cancel::wait_until_idle;
use super::{assert_right, left_in_use, sql, tpch};

const RACE: (&str, &str) = ("warpline.cold", "race");

#[test]
fn whoever_is_first_is_right_and_the_device_gets_ready() {
    let fixture = tpch(false, &[RACE]);
    for number in [1, 3, 6, 13, 16, 18, 21] {
        let expected = fixture.expect(&sql(number));
        let mut hot = None;
        for run in 0..3000 {
            let run_of = fixture.run(&expected.sql).expect("an answer");
            let when = format!("Q{number}, run {run}");
            assert_right(&expected, &run_of, &when);
            let metrics = &run_of.metrics;
            assert!(metrics.fallbacks.is_empty(), "{when}: {metrics:?}");
            assert!(metrics.cpu_answers <= metrics.races, "{when}: {metrics:?}");
            if run == 0 {
                assert!(metrics.races > 0, "{when}: {metrics:?}");
            }
            if metrics.races == 0 {
                assert!(metrics.kernels > 0, "{when}: {metrics:?}");
                hot = Some(run);
                break;
            }
            // The device goes on for the next run.
            std::thread::sleep(Duration::from_millis(20));
        }
        assert!(hot.is_some(), "Q{number} is never hot");
    }
    wait_until_idle(&fixture);
    assert_eq!(left_in_use(&fixture), 0);
}

#[test]
fn failures_and_dropped_queries_during_a_race_leave_nothing() {
    let fixture = tpch(false, &[RACE]);
    let expected = fixture.expect(&sql(3));
    for rule in ["copy:3", "launch:2", "allocate:5", "compile:1", "stop:1"] {
        fixture.session().clear_plan_cache();
        wait_until_idle(&fixture);
        fixture.set("warpline.inject_failures", rule);
        let run = fixture.run(&expected.sql).expect("the CPU has an answer");
        assert_right(&expected, &run, rule);
        wait_until_idle(&fixture);
        fixture.set("warpline.inject_failures", "");
    }
    for microseconds in [200, 2_000, 20_000] {
        fixture.session().clear_plan_cache();
        let time = Duration::from_micros(microseconds);
        if let Some(run) = fixture.run_within(&expected.sql, time) {
            assert_right(&expected, &run.expect("an answer"), "in time");
        }
        wait_until_idle(&fixture);
    }
    assert_eq!(left_in_use(&fixture), 0);
}

#[test]
fn where_a_gpu_is_required_nobody_races() {
    let fixture = tpch(true, &[RACE]);
    let expected = fixture.expect(&sql(6));
    let run = fixture.run(&expected.sql).expect("an answer");
    assert_right(&expected, &run, "Q6");
    assert_eq!((run.metrics.races, run.metrics.cpu_answers), (0, 0));
    assert!(run.metrics.kernels > 0);
}
