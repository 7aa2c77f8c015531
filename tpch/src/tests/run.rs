//! The runner and its report: right answers, planted faults, the shape of the JSON.

use serde_json::Value;

use super::{Fault, TestEngine, on_large_stack, small};
use crate::queries::{self, Query};
use crate::report::Report;
use crate::runner::{RunOptions, run};
use crate::verify::{self, SortKey};
use crate::{Benchmark, QueryName, Subject, Task};

fn options(queries: &[Query]) -> RunOptions {
    RunOptions {
        subject: Subject::benchmark(Benchmark::Tpch, small()),
        queries: queries.iter().cloned().map(Task::from).collect(),
        runs: 2,
        verify: true,
        cpu_runs: 0,
        results: None,
        plans: None,
    }
}

async fn report_of(engine: &TestEngine, queries: &[Query]) -> Report {
    run(engine, &options(queries), |_| {})
        .await
        .expect("a report")
}

#[test]
fn all_queries_run_and_verify() {
    on_large_stack(async {
        let all: Vec<Query> = queries::ALL.clone();
        let engine = TestEngine::with_tables(&all);
        let mut heard = Vec::new();
        let report = run(&engine, &options(&all), |query| {
            heard.push(query.query.clone())
        })
        .await
        .expect("a report");
        for query in &report.queries {
            assert_eq!(
                query.verified,
                Some(true),
                "{}: {:?}",
                query.query,
                query.error
            );
            assert_eq!(query.hot_ms.len(), 2);
        }
        assert_eq!(heard, (1..=22).map(QueryName::Number).collect::<Vec<_>>());
        assert!(report.passed(true));
        let rows = |number: usize| report.queries[number - 1].rows;
        assert_eq!(
            (rows(1), rows(6), rows(5), rows(22)),
            (Some(4), Some(1), Some(5), Some(7))
        );
        let sum: f64 = report
            .queries
            .iter()
            .filter_map(|query| query.hot_median_ms)
            .sum();
        assert!((report.total_hot_ms - sum).abs() < 0.1);
    });
}

#[test]
fn the_json_has_the_documented_keys() {
    on_large_stack(async {
        let list = queries::parse_list("6").expect("a list");
        let engine = TestEngine::with_tables(&list);
        let report = report_of(&engine, &list).await;
        let json: Value =
            serde_json::from_str(&report.to_json().expect("JSON")).expect("an object");
        for key in ["device", "scale", "total_hot_ms", "queries"] {
            assert!(!json[key].is_null(), "{key}");
        }
        let query = json["queries"][0].as_object().expect("an object");
        for key in [
            "query",
            "rows",
            "verified",
            "fallbacks",
            "load_ms",
            "columns_loaded",
            "columns_grown",
            "parquet_chunks_device",
            "parquet_chunks_cpu",
            "plan_ms",
            "hot_plan_ms",
            "plan_cached",
            "compile_ms",
            "cold_ms",
            "hot_ms",
            "hot_median_ms",
            "cpu_ms",
            "cpu_median_ms",
            "bytes",
            "floor_ms",
            "peak_device_bytes",
            "bytes_streamed",
            "bytes_spilled",
            "ladder",
            "error",
        ] {
            assert!(query.contains_key(key), "{key}");
        }
        assert_eq!(query["query"], 6);
        assert_eq!(query["verified"], true);
        assert_eq!(query["error"], Value::Null);
        // 1 MB at 1 GB/s.
        assert_eq!(query["floor_ms"], 1.0);
        assert_eq!(query["ladder"]["evictions"], 0);
        assert_eq!(query["bytes_streamed"], 600_000);
        assert_eq!(query["bytes_spilled"], 40_000);
        let table = report.to_table();
        let link = "Q6: 0.6 MB came over the link, 0.0 MB of results lay in host memory";
        assert!(table.contains(link), "{table}");
        assert_eq!(query["hot_ms"].as_array().expect("an array").len(), 2);
    });
}

#[test]
fn a_fault_in_one_query_is_found_and_spares_the_others() {
    on_large_stack(async {
        let list = queries::parse_list("1,4,6,12,13,22").expect("a list");
        let engine = TestEngine::with_tables(&list)
            .fault(1, Fault::WrongValue)
            .fault(4, Fault::LostRowWhenHot)
            .fault(12, Fault::Error)
            .fault(13, Fault::Panic)
            .fault(22, Fault::Fallback);
        let report = report_of(&engine, &list).await;
        let query = |number: u8| {
            report
                .queries
                .iter()
                .find(|query| query.query == number.into())
                .expect("a query")
        };
        let error = |number: u8| query(number).error.clone().unwrap_or_default();

        assert_eq!(query(1).verified, Some(false));
        assert!(error(1).contains("count_order"), "{}", error(1));
        assert_eq!(query(4).verified, Some(false));
        assert!(
            error(4).contains("expected 5 rows, found 4"),
            "{}",
            error(4)
        );
        assert_eq!(query(6).verified, Some(true));
        assert!(query(6).succeeded());
        assert_eq!((query(12).verified, query(12).rows), (None, None));
        assert!(error(12).contains("planted"), "{}", error(12));
        assert!(error(13).contains("panicked: planted"), "{}", error(13));
        assert!(query(22).succeeded());

        assert!(!report.passed(false));
        let hot: f64 = [6, 22]
            .iter()
            .filter_map(|&number| query(number).hot_median_ms)
            .sum();
        assert!((report.total_hot_ms - hot).abs() < 0.01);
        let table = report.to_table();
        assert!(
            table.contains("2 of 6 queries succeeded, 2 verified"),
            "{table}"
        );
        assert!(table.contains("Q22 on the CPU: planted"), "{table}");
    });
}

#[test]
fn a_fallback_fails_only_where_a_gpu_is_required() {
    on_large_stack(async {
        let list = queries::parse_list("6").expect("a list");
        let engine = TestEngine::with_tables(&list).fault(6, Fault::Fallback);
        let report = report_of(&engine, &list).await;
        assert!(report.passed(false));
        assert!(!report.passed(true));
    });
}

#[test]
fn answers_and_plans_are_written() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("answers");
    on_large_stack(async move {
        let list = queries::parse_list("4").expect("a list");
        let engine = TestEngine::with_tables(&list);
        let options = RunOptions {
            results: Some(path.clone()),
            plans: Some(path.clone()),
            runs: 0,
            verify: false,
            ..options(&list)
        };
        let report = run(&engine, &options, |_| {}).await.expect("a report");
        assert_eq!(
            (report.queries[0].verified, report.queries[0].hot_median_ms),
            (None, None)
        );
        let text = std::fs::read_to_string(path.join("q04.csv")).expect("a file");
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "o_orderpriority,order_count");
        assert_eq!(lines.len(), 6);
        let text = std::fs::read_to_string(path.join("q04.txt")).expect("a file");
        assert!(text.starts_with("SELECT"), "{text}");
        assert!(
            text.contains("AggregateExec") && text.contains("metrics="),
            "{text}"
        );
        drop(directory);
    });
}

#[test]
fn the_order_of_answers_is_read_off_the_plan() {
    on_large_stack(async {
        let list = queries::parse_list("1-22").expect("a list");
        let engine = TestEngine::with_tables(&list);
        let keys = |number: u8| {
            let context = engine.context.clone();
            async move {
                let frame = context
                    .sql(&queries::query(number).expect("a query").sql)
                    .await
                    .expect("a plan");
                verify::ordering_of(frame.logical_plan())
            }
        };
        let key = |column, descending| SortKey {
            column,
            descending,
            nulls_first: descending,
        };
        let third = keys(3).await;
        assert_eq!(third.keys, [key(1, true), key(2, false)]);
        assert_eq!(third.limit, Some(10));
        let second = keys(2).await;
        assert_eq!(
            second.keys,
            [key(0, true), key(2, false), key(1, false), key(3, false)]
        );
        assert_eq!(keys(6).await, verify::Ordering::default());
        assert_eq!(keys(18).await.limit, Some(100));
        assert_eq!(keys(13).await.keys, [key(1, true), key(0, true)]);
    });
}
