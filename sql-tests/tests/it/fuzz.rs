//! A fixed set of random cases, and what findings are written as.

use std::sync::Arc;
use std::time::Duration;

use datafusion::prelude::SessionContext;
use warpline::{DeviceChoice, WarplineSession};
use warpline_sql_tests::fuzz::case::Case;
use warpline_sql_tests::fuzz::oracle::{Failure, Kind, Oracle};
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

/// Some cases over small tables, as SQL makes them.
fn small_cases(cases: u64) -> Vec<Case> {
    let small = |seed| {
        let mut case = Case::draw(seed);
        for table in &mut case.tables {
            *table = table.with_rows(|row| row < 5);
            table.storage = Storage::Sql;
        }
        case
    };
    (0..cases).map(small).collect()
}

/// Plans of random queries nest deeply; tasks have a larger stack than the thread of a test.
fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .thread_stack_size(32 << 20)
        .enable_all()
        .build()
        .expect("a runtime")
}

#[test]
fn findings_are_files_that_pass_once_mended() {
    let oracle = Oracle::open(DeviceChoice::Cpu, Duration::from_secs(60)).expect("no device");
    let failure = Failure {
        kind: Kind::Answer,
        message: "expected 1 rows, found 2".into(),
    };
    let folder = tempfile::tempdir().expect("a folder");
    let runtime = runtime();
    let mut written = 0;
    for case in small_cases(10) {
        let opened = oracle.session(&case.tables, &vec![]).expect("tables");
        for asked in case.queries {
            let Ok(expected) = oracle.expect(&opened, &asked.query) else {
                continue;
            };
            // Others would do, unless the order says which: those with the keys of the last row may have been cut off.
            let rows = expected.answer().batch().num_rows();
            if asked.query.limit == Some(rows) || asked.query.offset.is_some() {
                continue;
            }
            let failing = Failing {
                tables: case.tables.clone(),
                settings: vec![],
                query: asked.query,
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
    }
    assert!(written > 30, "{written}");
}

#[test]
fn datafusion_accepts_nearly_all_queries() {
    let oracle = Oracle::open(DeviceChoice::Cpu, Duration::from_secs(60)).expect("no device");
    let runtime = runtime();
    let (mut queries, mut refused) = (0, Vec::new());
    for case in small_cases(40) {
        let opened = oracle.session(&case.tables, &vec![]).expect("tables");
        let context: &SessionContext = opened.reference();
        for asked in &case.queries {
            queries += 1;
            let sql = render::query(&asked.query);
            let (context, text) = (context.clone(), sql.clone());
            let planned = runtime.spawn(async move { context.sql(&text).await.map(|_| ()) });
            if let Err(error) = runtime.block_on(planned).expect("no panic") {
                refused.push(format!("{sql}: {}", error.strip_backtrace()));
            }
        }
    }
    assert!(refused.len() * 50 < queries, "{}", refused.join("\n"));
}
