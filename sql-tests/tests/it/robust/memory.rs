//! The budget: set while the session runs, kept to, reported.

use super::{DEVICE_MEMORY_ALONE, assert_right, left_in_use, memory, sql, tpch};

#[test]
fn the_budget_changes_while_the_session_runs() {
    let fixture = tpch(false, DEVICE_MEMORY_ALONE);
    let expected = fixture.expect(&sql(9));
    let run = fixture.run(&expected.sql).expect("an answer");
    assert_right(&expected, &run, "with all memory");
    let before = memory(&fixture);
    assert!(before.in_use > 0 && before.columns > 0, "{before:?}");
    let peak = run.metrics.peak_device_bytes.expect("a peak");
    assert!(peak >= before.column_bytes as u64, "{peak} {before:?}");

    // Half of what the columns take: some go with the next query, which does not fit any more or drops others for what it needs.
    let half = before.column_bytes / 2;
    fixture.set("warpline.device_memory", &format!("{half}"));
    let run = fixture
        .run("SELECT count(*) FROM region")
        .expect("an answer");
    assert_eq!(run.rows(), 1);
    let after = memory(&fixture);
    assert_eq!(after.budget, half);
    assert!(
        after.in_use <= half && after.columns < before.columns,
        "{after:?}"
    );
    let run = fixture.run(&expected.sql).expect("an answer");
    assert_right(&expected, &run, "with half of the memory");
    assert!(memory(&fixture).in_use <= half);

    fixture.set("warpline.device_memory", "1 KiB");
    let run = fixture.run(&expected.sql).expect("an answer");
    assert_right(&expected, &run, "with a kilobyte");
    assert_eq!(run.metrics.fallbacks.len(), 1, "{:?}", run.metrics);
    assert!(run.metrics.fallbacks[0].contains("out of device memory"));
    assert_eq!(run.metrics.ladder.cpu_fallbacks, 1);
    assert_eq!(run.metrics.ladder.repeats, 1);

    fixture.set("warpline.device_memory", "0");
    let run = fixture.run(&expected.sql).expect("an answer");
    assert_right(&expected, &run, "with all memory again");
    assert!(run.metrics.fallbacks.is_empty(), "{:?}", run.metrics);
    let total = memory(&fixture).ladder;
    assert!(total.cpu_fallbacks >= 1 && total.repeats >= 1, "{total:?}");
    assert_eq!(left_in_use(&fixture), 0);

    let wrong = fixture.run("SET warpline.device_memory = 'plenty'");
    let error = wrong.expect_err("no size").strip_backtrace();
    assert!(error.contains("16GiB"), "{error}");
}

#[test]
fn every_query_is_right_within_any_budget() {
    let fixture = tpch(false, DEVICE_MEMORY_ALONE);
    let queries: Vec<_> = (1..=22).map(|n| fixture.expect(&sql(n))).collect();
    let mut most = 0;
    for expected in &queries {
        let run = fixture.run(&expected.sql).expect("an answer");
        most = most.max(run.metrics.peak_device_bytes.expect("a peak"));
    }
    let mut on_device = Vec::new();
    for share in [2, 5, 10] {
        let budget = usize::try_from(most).expect("a size") / share;
        fixture.set("warpline.device_memory", &budget.to_string());
        let mut answered = 0;
        for expected in &queries {
            let run = fixture.run(&expected.sql).expect("an answer");
            assert_right(expected, &run, &format!("with {budget} bytes"));
            let peak = run.metrics.peak_device_bytes.expect("a peak");
            assert!(peak <= budget as u64, "{peak} of {budget}");
            answered += usize::from(run.metrics.fallbacks.is_empty());
            assert!(memory(&fixture).in_use <= budget);
        }
        on_device.push(answered);
    }
    assert!(on_device[0] > 0, "{on_device:?}");
    assert_eq!(left_in_use(&fixture), 0);
}

#[test]
fn reports_show_the_peak_and_the_ladder() {
    let fixture = tpch(false, DEVICE_MEMORY_ALONE);
    let analyze = format!("EXPLAIN ANALYZE {}", sql(6));
    let text = |fixture: &warpline_sql_tests::Fixture| {
        let run = fixture.run(&analyze).expect("an answer");
        let text = arrow::util::pretty::pretty_format_batches(&run.batches);
        text.expect("text").to_string()
    };
    let all = text(&fixture);
    assert!(all.contains("peak_device_bytes="), "{all}");
    assert!(!all.contains("cpu_fallbacks"), "{all}");
    fixture.set("warpline.device_memory", "1KiB");
    let none = text(&fixture);
    for counter in ["cpu_fallbacks=1", "repeats=1"] {
        assert!(none.contains(counter), "{none}");
    }
    let shown = memory(&fixture).to_string();
    assert!(
        shown.contains("of 1.0 KiB") && shown.contains("1 on the CPU"),
        "{shown}"
    );
}
