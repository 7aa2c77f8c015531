//! A fixed set of random cases, and what findings are written as.

use std::sync::Arc;
use std::time::Duration;

use datafusion::prelude::SessionContext;
use warpline::{DeviceChoice, WarplineSession};
use warpline_sql_tests::fuzz::case::Case;
use warpline_sql_tests::fuzz::oracle::{Failure, Kind, Oracle};
use warpline_sql_tests::fuzz::query::Query;
use warpline_sql_tests::fuzz::shrink::Failing;
use warpline_sql_tests::fuzz::table::Storage;
use warpline_sql_tests::fuzz::{render, report, run_cases};
use warpline_sql_tests::{slt, test_device};

/// The emulator compiles the kernels of a query in about half a second on a busy machine.
const CASES: usize = 16;

#[test]
fn a_fixed_set_of_cases() {
    let (summary, findings) = run_cases(test_device(), 18, CASES).expect("a device");
    println!("{summary}");
    assert!(findings.is_empty(), "{}", findings.join("\n\n"));
    // Queries that stay on the CPU test nothing.
    if test_device() != DeviceChoice::Cpu {
        let (device, all) = (summary.on_the_device(), summary.queries());
        assert!(device * 10 > all * 6, "{summary}");
    }
}

/// All small queries of some cases, over tables as SQL makes them.
fn small_queries(cases: u64) -> Vec<Failing> {
    let case = |seed| {
        let mut case = Case::draw(seed);
        for table in &mut case.tables {
            *table = table.with_rows(|row| row < 5);
            table.storage = Storage::Sql;
        }
        let tables = case.tables;
        let failing = move |query: Query| Failing {
            tables: tables.clone(),
            settings: vec![],
            query,
        };
        case.queries.into_iter().map(move |asked| failing(asked.query))
    };
    (0..cases).flat_map(case).collect()
}

#[test]
fn findings_are_files_that_pass_once_mended() {
    let oracle = Oracle::open(DeviceChoice::Cpu, Duration::from_secs(60)).expect("no device");
    let failure = Failure {
        kind: Kind::Answer,
        message: "expected 1 rows, found 2".into(),
    };
    let folder = tempfile::tempdir().expect("a folder");
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .thread_stack_size(32 << 20)
        .enable_all()
        .build()
        .expect("a runtime");
    let mut written = 0;
    for failing in small_queries(12) {
        // Any rows would do.
        if failing.query.limit.is_some() && failing.query.order.is_empty() {
            continue;
        }
        let opened = oracle.session(&failing.tables, &vec![]).expect("tables");
        let Ok(expected) = oracle.expect(&opened, &failing.query) else {
            continue;
        };
        let text = report::file(7, &failure, &failing, Some(&expected));
        let path = report::write(folder.path(), 7, written, &text).expect("a file");
        written += 1;
        let outcome = runtime.block_on(async {
            let builder = WarplineSession::builder().device(DeviceChoice::Cpu);
            let session = builder.open().await.map_err(|error| error.to_string())?;
            slt::run_file(Arc::new(session), &path).await
        });
        assert_eq!(outcome, Ok(()), "{text}");
    }
    assert!(written > 40, "{written}");
}

#[test]
fn datafusion_accepts_nearly_all_queries() {
    let oracle = Oracle::open(DeviceChoice::Cpu, Duration::from_secs(60)).expect("no device");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let queries = small_queries(40);
    let mut refused = Vec::new();
    for failing in &queries {
        let opened = oracle.session(&failing.tables, &vec![]).expect("tables");
        let context: &SessionContext = opened.reference();
        let sql = render::query(&failing.query);
        if let Err(error) = runtime.block_on(context.sql(&sql)) {
            refused.push(format!("{sql}: {}", error.strip_backtrace()));
        }
    }
    assert!(refused.len() * 50 < queries.len(), "{}", refused.join("\n"));
}
