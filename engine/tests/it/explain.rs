//! EXPLAIN in each of DataFusion's formats, over plans with parts on the device and on the CPU.

use super::{Outcome, run};

/// A join that groups and sorts, and a window function, which stays on the CPU; names are not plain ASCII.
const SETUP: &str = "CREATE TABLE kunden AS SELECT value AS k, value % 5 AS \"größe\" FROM generate_series(1, 200); \
     CREATE TABLE orders AS SELECT value AS o, value % 200 AS k, value % 9 AS p FROM generate_series(1, 3000)";
const QUERY: &str = "SELECT \"größe\", count(*) AS n, row_number() OVER () AS r FROM orders \
     JOIN kunden ON orders.k = kunden.k WHERE p < 5 GROUP BY \"größe\" ORDER BY n LIMIT 3";

fn emulated(statements: &[&str]) -> Outcome {
    let mut arguments = vec![
        "--device",
        "emulator",
        "--set",
        "warpline.min_rows=0",
        "--format",
        "csv",
        "-q",
        "-c",
        SETUP,
    ];
    for statement in statements {
        arguments.extend(["-c", statement]);
    }
    run(&arguments)
}

#[test]
fn every_format_works_before_and_after_columns_are_resident() {
    let formats = [
        "FORMAT TREE",
        "FORMAT INDENT",
        "FORMAT PGJSON",
        "FORMAT GRAPHVIZ",
        "VERBOSE",
        "ANALYZE",
        "ANALYZE VERBOSE",
    ];
    for format in formats {
        // A name that is not ASCII breaks the boxes of DataFusion's own nodes above the device's.
        let [setup, query] = [SETUP, QUERY].map(|sql| sql.replace("größe", "size"));
        let plain = format!("EXPLAIN {format} {query}");
        let outcome = run(&[
            "--device",
            "emulator",
            "--set",
            "warpline.min_rows=0",
            "--format",
            "csv",
            "-q",
            "-c",
            &setup,
            "-c",
            &plain,
            "-c",
            &query,
            "-c",
            &plain,
        ])
        .ok();
        let plans = outcome.stdout.matches("plan_type,plan").count();
        assert_eq!(plans, 2, "{format}: {}", outcome.stdout);
    }
}

#[test]
fn indented_plans_have_a_line_for_each_pipeline_and_choice() {
    let query = "SELECT \"größe\", count(*) AS n FROM orders JOIN kunden ON orders.k = kunden.k GROUP BY \"größe\"";
    let plain = format!("EXPLAIN {query}");
    let first = emulated(&[&plain]).ok().stdout;
    let hint = "(algorithms are chosen when the columns are on the device";
    assert_eq!(first.matches(hint).count(), 1, "{first}");
    let later = emulated(&[query, &plain]).ok().stdout;
    assert!(!later.contains(hint), "{later}");
    let begins = |start: &str| later.lines().any(|line| line.starts_with(start));
    for start in [
        "  GpuFragmentExec: device=emulator",
        "        memory table(k) ~200 := scan",
        "        groups of ",
        "        output",
        "        index ",
    ] {
        assert!(begins(start), "no {start}: {later}");
    }
    let longest = later.lines().map(|line| line.chars().count()).max();
    assert!(longest < Some(140), "{longest:?}: {later}");
}

#[test]
fn trees_have_pipelines_choices_prices_and_reasons() {
    let query = "SELECT \"größe\", count(*) AS n FROM orders JOIN kunden ON orders.k = kunden.k GROUP BY \"größe\"";
    let tree = format!("EXPLAIN FORMAT TREE {query}");
    let outcome = emulated(&[
        query,
        &tree,
        "SET datafusion.explain.format = 'tree'",
        &format!("EXPLAIN {query}"),
    ]);
    let text = outcome.ok().stdout;
    assert_eq!(text.matches("GpuFragmentExec").count(), 2, "{text}");
    let first = text.find(" 01 ").expect("a pipeline");
    let choice = text.find("choice 01:").expect("a choice");
    assert!(
        text.find("00 device") < Some(first) && first < choice,
        "{text}"
    );
    // Milliseconds of what was chosen.
    let choices = &text[choice..];
    assert!(choices.contains(" 0."), "{choices}");

    let window = emulated(&[&format!(
        "EXPLAIN FORMAT TREE {}",
        QUERY.replace("\"größe\"", "p")
    )]);
    let text = window.ok().stdout;
    assert!(
        text.contains("on the CPU") && text.contains("Window"),
        "{text}"
    );
}

/// The operator that the device really does not run, not one of those above it that follow.
#[test]
fn the_cause_is_named_in_every_form() {
    let groups = "SELECT p, k, first_value(o) FROM orders WHERE o > (SELECT avg(o) FROM orders) GROUP BY p, k ORDER BY 1, 2 LIMIT 3";
    let cases = [
        (
            "SELECT first_value(o) FROM orders LIMIT 5",
            "AggregateExec: first_value without ORDER BY runs on the CPU",
        ),
        (
            "SELECT sum(character_length(repeat('x', o % 3))) AS a FROM orders ORDER BY 1 LIMIT 2",
            "AggregateExec: the function character_length",
        ),
        (
            groups,
            "AggregateExec: first_value without ORDER BY runs on the CPU",
        ),
    ];
    for (query, cause) in cases {
        let emulated = |statements: &[&str]| {
            let mut arguments = vec![
                "--device",
                "emulator",
                "--set",
                "warpline.min_rows=0",
                "-c",
                SETUP,
            ];
            statements
                .iter()
                .for_each(|sql| arguments.extend(["-c", sql]));
            run(&arguments)
        };
        let answered = emulated(&[query]).ok();
        let said = format!("{}{}", answered.stdout, answered.stderr);
        let line = said
            .lines()
            .rfind(|line| line.starts_with("Answered on"))
            .expect(&said);
        let since = [
            format!("on the CPU, since {cause}"),
            format!("and the CPU ({cause}"),
        ];
        assert!(since.iter().any(|text| line.contains(text)), "{line}");
        for require in ["false", "true"] {
            let set = format!("SET warpline.require_gpu = {require}");
            let explain = format!("EXPLAIN FORMAT INDENT {query}");
            let shown = emulated(&[&set, &explain]).ok().stdout;
            let reasons = shown.split_once("cpu=[").expect(&shown).1;
            let first = reasons.trim_start_matches(|c: char| c.is_whitespace() || c == '|');
            assert!(first.starts_with(cause), "{shown}");
            assert_eq!(
                shown.contains("refused by warpline.require_gpu"),
                require == "true",
                "{shown}"
            );
        }
    }
}
