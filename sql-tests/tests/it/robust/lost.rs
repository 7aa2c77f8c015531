//! A device that is lost: the session goes on, on the CPU, until the device is opened again.

use warpline_sql_tests::{Fixture, test_device};

use super::{assert_right, memory, sql, tpch};

const INJECT: &str = "warpline.inject_failures";

fn open_again(fixture: &Fixture) {
    fixture.set(INJECT, "");
    fixture.set("warpline.device", &test_device().to_string());
}

#[test]
fn a_session_outlives_its_device() {
    let fixture = tpch(false, &[]);
    let queries = [1, 13, 18].map(|n| fixture.expect(&sql(n)));
    for nth in [1, 2, 5, 20, 40] {
        let rules = format!("lost:{nth}");
        fixture.set(INJECT, &rules);
        for expected in &queries {
            let run = fixture.run(&expected.sql).expect("an answer");
            assert_right(expected, &run, &rules);
        }
        let lost = memory(&fixture).lost.expect("the device is lost");
        assert!(lost.contains("injected failure"), "{lost}");
        for expected in &queries {
            let run = fixture.run(&expected.sql).expect("an answer");
            assert_right(expected, &run, "on the CPU");
            let [reason] = run.metrics.fallbacks.as_slice() else {
                panic!("{:?}", run.metrics);
            };
            assert!(
                reason.contains("is lost") && reason.contains("SET warpline.device"),
                "{reason}"
            );
        }
        open_again(&fixture);
        for expected in &queries {
            let run = fixture.run(&expected.sql).expect("an answer");
            assert_right(expected, &run, "on the device again");
            assert!(run.metrics.fallbacks.is_empty(), "{:?}", run.metrics);
        }
        assert_eq!(memory(&fixture).lost, None);
    }
}

#[test]
fn a_lost_device_is_a_clear_error_where_a_gpu_is_required() {
    let fixture = tpch(true, &[]);
    let expected = fixture.expect(&sql(6));
    fixture.set(INJECT, "lost:4");
    for _ in 0..2 {
        let error = fixture.run(&expected.sql).expect_err("lost");
        let error = error.strip_backtrace();
        assert!(
            error.contains("is lost") && error.contains("SET warpline.device"),
            "{error}"
        );
    }
    open_again(&fixture);
    let run = fixture.run(&expected.sql).expect("an answer");
    assert_right(&expected, &run, "on the device again");
}
