//! Failures at every allocation, and at copies, launches and compilations: each ends in the right answer or a clear error, and
//! the next query is right.

use warpline_sql_tests::{Expected, Fixture, every};

use super::{DEVICE_MEMORY_ALONE, SCALE, assert_right, left_in_use, memory, sql, tpch};

const INJECT: &str = "warpline.inject_failures";

/// Queries of different shapes, for what takes too long with all: groups, joins with a sort, a scalar subquery, an outer join,
/// NOT IN with DISTINCT, EXISTS with conditions.
const SOME: [u8; 6] = [1, 3, 11, 13, 16, 21];

/// Runs a query with failures by these rules, from nothing resident, and again; what was injected. The second run has no
/// failure when the rules are used up, and uses what the first one kept.
fn run_twice(
    fixture: &Fixture,
    expected: &Expected,
    rules: &str,
    mut check: impl FnMut(Result<warpline::QueryRun, String>),
) -> u64 {
    fixture.session().device().evict().expect("evicted");
    fixture.set(INJECT, rules);
    for _ in 0..2 {
        let outcome = fixture.run(&expected.sql);
        check(outcome.map_err(|error| error.strip_backtrace()));
    }
    fixture.session().injected_failures()
}

/// At each allocation of each query, one refusal: what is kept goes, or the run is repeated, and the device answers.
fn one_refusal_is_survived(numbers: std::ops::RangeInclusive<u8>) {
    let fixture = tpch(true, &[]);
    let mut injected = 0;
    let count = numbers.len() as u64;
    for number in numbers {
        let expected = fixture.expect(&sql(number));
        for nth in 1..1000 {
            let rules = format!("allocate:{nth}");
            let when = format!("Q{number} at scale {SCALE} with {rules}");
            let fired = run_twice(&fixture, &expected, &rules, |outcome| match outcome {
                Ok(run) => {
                    assert_right(&expected, &run, &when);
                    assert!(run.metrics.fallbacks.is_empty(), "{when}");
                }
                Err(error) => panic!("{when}: {error}"),
            });
            injected += fired;
            if fired == 0 {
                assert!(nth > 3, "{when}: too few allocations to be true");
                break;
            }
        }
    }
    fixture.set(INJECT, "");
    let ladder = memory(&fixture).ladder;
    assert!(ladder.evictions + ladder.repeats > 0 && injected > count * 4);
    assert_eq!(ladder.cpu_fallbacks, 0);
    assert_eq!(left_in_use(&fixture), 0);
}

#[test]
fn one_refused_allocation_is_survived_on_the_device() {
    one_refusal_is_survived(1..=12);
}

#[test]
fn one_refused_allocation_is_survived_on_the_device_too() {
    one_refusal_is_survived(13..=22);
}

#[test]
fn without_any_memory_the_cpu_answers_or_the_error_is_clear() {
    let relaxed = tpch(false, DEVICE_MEMORY_ALONE);
    let strict = tpch(true, DEVICE_MEMORY_ALONE);
    for number in SOME {
        let expected = relaxed.expect(&sql(number));
        // Refused from the n-th allocation on, and for as long as the query tries.
        for nth in (1..1000).step_by(every(4)) {
            let rules = format!("allocate:{nth}:1000000");
            let when = format!("Q{number} with {rules}");
            let mut fell_back = false;
            let fired = run_twice(&relaxed, &expected, &rules, |outcome| match outcome {
                Ok(run) => {
                    assert_right(&expected, &run, &when);
                    fell_back |= run.metrics.ladder.cpu_fallbacks > 0;
                    assert_eq!(
                        run.metrics.ladder.cpu_fallbacks > 0,
                        run.metrics
                            .fallbacks
                            .iter()
                            .any(|f| f.contains("out of device memory")),
                        "{when}: {:?}",
                        run.metrics
                    );
                }
                Err(error) => panic!("{when}: {error}"),
            });
            assert_eq!(fired > 0, fell_back, "{when}");
            if fired == 0 {
                break;
            }
            run_twice(&strict, &expected, &rules, |outcome| match outcome {
                Ok(run) => assert_right(&expected, &run, &when),
                Err(error) => assert!(
                    error.contains("require_gpu") && error.contains("out of device memory"),
                    "{when}: {error}"
                ),
            });
            strict.set(INJECT, "");
            let run = strict.run(&expected.sql).expect("the next query");
            assert_right(&expected, &run, &format!("after {when}"));
        }
        for fixture in [&relaxed, &strict] {
            fixture.set(INJECT, "");
            let run = fixture.run(&expected.sql).expect("the next query");
            assert_right(&expected, &run, "at the end");
            assert!(run.metrics.fallbacks.is_empty(), "{:?}", run.metrics);
        }
    }
    assert_eq!(left_in_use(&relaxed), 0);
    assert_eq!(left_in_use(&strict), 0);
}

#[test]
fn a_failed_copy_or_launch_is_answered_by_the_cpu() {
    let fixture = tpch(false, &[]);
    for number in SOME {
        let expected = fixture.expect(&sql(number));
        for (operation, step) in [
            ("launch", 3),
            ("upload", 4),
            ("download", 1),
            ("fill", 3),
            ("synchronize", 2),
        ] {
            for nth in (1..1000).step_by(every(step)) {
                let rules = format!("{operation}:{nth}");
                let when = format!("Q{number} with {rules}");
                let mut reasons = Vec::new();
                let fired = run_twice(&fixture, &expected, &rules, |outcome| match outcome {
                    Ok(run) => {
                        assert_right(&expected, &run, &when);
                        reasons.extend(run.metrics.fallbacks);
                    }
                    Err(error) => panic!("{when}: {error}"),
                });
                assert_eq!(fired, reasons.len() as u64, "{when}: {reasons:?}");
                if fired == 0 {
                    break;
                }
                assert!(reasons[0].contains("injected failure"), "{reasons:?}");
            }
        }
    }
    fixture.set(INJECT, "");
    assert_eq!(left_in_use(&fixture), 0);
}

/// Many batches of rows, of which the last column is fetched on its own: whichever copy fails, each row is there once.
#[test]
fn a_fallback_repeats_no_rows() {
    let fixture = tpch(false, &[]);
    let lines = "SELECT l_orderkey, l_linenumber, l_comment FROM lineitem, orders WHERE l_orderkey = o_orderkey";
    let expected = fixture.expect(lines);
    let run = fixture.run(lines).expect("an answer");
    assert_right(&expected, &run, "without failures");
    assert!(
        run.rows() > 6_000 && run.metrics.fallbacks.is_empty(),
        "{:?}",
        run.metrics
    );
    let mut failed = 0;
    for nth in 1..100 {
        let rules = format!("download:{nth}");
        let fired = run_twice(&fixture, &expected, &rules, |outcome| {
            assert_right(&expected, &outcome.expect("an answer"), &rules);
        });
        if fired == 0 {
            break;
        }
        failed += fired;
    }
    assert!(failed > 2, "{failed} copies");
}

#[test]
fn a_failed_compilation_is_answered_by_the_cpu_and_tried_again() {
    let mut all = 0;
    for nth in 1..100 {
        // Kernels are compiled once in a device's life.
        let fixture = tpch(false, &[]);
        let expected = fixture.expect(&sql(3));
        let rules = format!("compile:{nth}");
        fixture.set(INJECT, &rules);
        let run = fixture.run(&expected.sql).expect("an answer");
        assert_right(&expected, &run, &rules);
        let fired = fixture.session().injected_failures();
        let fallbacks = run.metrics.fallbacks.len() as u64;
        // It may have been a kernel compiled ahead of its use, which is tried again then.
        assert!(fallbacks <= fired, "{rules}: {fallbacks}");
        all += fallbacks;
        let run = fixture.run(&expected.sql).expect("an answer");
        assert_right(&expected, &run, &format!("after {rules}"));
        assert!(run.metrics.fallbacks.is_empty(), "{:?}", run.metrics);
        if fired == 0 {
            break;
        }
    }
    assert!(all > 3, "{all} compilations failed");
}

#[test]
fn a_damaged_kernel_in_the_cache_is_built_again() {
    for _ in 0..2 {
        let fixture = tpch(true, &[(INJECT, "cubin")]);
        let expected = fixture.expect(&sql(6));
        let run = fixture.run(&expected.sql).expect("an answer");
        assert_right(&expected, &run, "with damaged kernels");
        assert!(fixture.session().injected_failures() > 0);
    }
}

#[test]
fn random_failures_of_all_kinds_do_no_harm() {
    let fixture = tpch(false, &[]);
    let queries: Vec<Expected> = (1..=22).map(|n| fixture.expect(&sql(n))).collect();
    let (mut injected, mut fallbacks) = (0, 0);
    for seed in 1..=3 {
        let random = |operation: &str| format!("{operation}:random:{seed}:0.03");
        let rules = ["allocate", "copy", "launch", "fill", "device_allocate"].map(random);
        fixture.set(INJECT, &rules.join(","));
        for expected in &queries {
            match fixture.run(&expected.sql) {
                Ok(run) => {
                    assert_right(expected, &run, &rules.join(","));
                    fallbacks += run.metrics.fallbacks.len();
                }
                Err(error) => panic!("{error}\nquery: {}", expected.sql),
            }
        }
        injected += fixture.session().injected_failures();
    }
    assert!(injected > 20 && fallbacks > 0, "{injected} {fallbacks}");
    fixture.set(INJECT, "");
    for expected in &queries {
        let run = fixture.run(&expected.sql).expect("an answer");
        assert_right(expected, &run, "without failures");
        assert!(run.metrics.fallbacks.is_empty(), "{:?}", run.metrics);
    }
    assert_eq!(left_in_use(&fixture), 0);
}

#[test]
fn wrong_rules_are_refused() {
    let fixture = Fixture::relaxed();
    let outcome = fixture.run("SET warpline.inject_failures = 'memory:1'");
    let error = outcome.expect_err("no such rule").strip_backtrace();
    assert!(
        error.contains("inject_failures") && error.contains("allocate"),
        "{error}"
    );
    let run = fixture.run("SHOW warpline.inject_failures").expect("shown");
    assert_eq!(run.rows(), 1);
}
