//! Joins whose earlier run found out how large partitions are: nothing is counted, where that takes little more memory.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int32Array};
use datafusion::physical_plan::{ExecutionPlan, collect};
use warpline_sql_tests::{Fixture, test_device};

use crate::operators::support::{Nulls, check_all, drawn, row_numbers, strings};

const ROWS: usize = 20_000;

/// `u`: every value once; `s`: almost all rows one value; `t`: strings.
fn columns(salt: u64) -> Vec<(&'static str, ArrayRef)> {
    let unique = (0..ROWS).map(|i| ((i * 7919) % ROWS) as i32 * 3);
    let skewed = (0..ROWS).map(|i| if i % 16 == 0 { i as i32 } else { 9 });
    let words = ["", "a", "Bär", "日本語"];
    vec![
        ("id", row_numbers(ROWS)),
        ("u", Arc::new(Int32Array::from_iter_values(unique))),
        ("s", Arc::new(Int32Array::from_iter_values(skewed))),
        ("t", strings(drawn(&words, ROWS, Nulls::Some, salt))),
    ]
}

/// What a counter of all operators of a plan says.
fn counted(plan: &Arc<dyn ExecutionPlan>, name: &str) -> usize {
    let mine = plan.metrics().and_then(|metrics| metrics.sum_by_name(name));
    let below = plan
        .children()
        .into_iter()
        .map(|child| counted(child, name));
    mine.map_or(0, |value| value.as_usize()) + below.sum::<usize>()
}

/// Sides that lay apart in each of three runs of one plan.
fn sides_apart(fixture: &Fixture, sql: &str) -> Vec<usize> {
    let context = fixture.session().context();
    fixture.block_on(async {
        let frame = context.sql(sql).await.expect("a plan");
        let plan = frame.create_physical_plan().await.expect("a plan");
        let mut sums = vec![0];
        for _ in 0..3 {
            let run = collect(Arc::clone(&plan), context.task_ctx()).await;
            run.expect("an answer");
            sums.push(counted(&plan, "sides_apart"));
        }
        sums.windows(2).map(|pair| pair[1] - pair[0]).collect()
    })
}

fn joins(algorithm: &str) {
    let settings = [("warpline.join", algorithm)];
    let fixture = Fixture::open(test_device(), true, &settings)
        .table("a", columns(1))
        .table("b", columns(2));
    let all = "count(*) AS n, sum(a.id) AS i, sum(b.id) AS j, min(b.t) AS t";
    // Sides that lie apart in the end: of skewed keys one partition has most rows, and a full join marks rows of its build
    // side.
    for (kind, on, apart) in [
        ("JOIN", "a.u = b.u", 2),
        ("LEFT JOIN", "a.u = b.u + 3", 2),
        ("JOIN", "a.s = b.u", 1),
        ("FULL JOIN", "a.u = b.u + 3", 1),
    ] {
        let sql = format!("SELECT {all} FROM a {kind} b ON {on}");
        check_all(&fixture, [sql.clone(), sql.clone(), sql.clone()]);
        assert_eq!(sides_apart(&fixture, &sql), [0, apart, apart], "{sql}");
    }
    for kind in ["SEMI", "ANTI"] {
        let sql = format!(
            "SELECT count(*) AS n, sum(id) AS i FROM a LEFT {kind} JOIN b ON a.u = b.u * 2"
        );
        check_all(&fixture, [sql.clone(), sql]);
    }
}

#[test]
fn partitions_of_row_numbers() {
    joins("phj_ur");
}

#[test]
fn partitions_of_rows() {
    joins("phj_tr");
}
