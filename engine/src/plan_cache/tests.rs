//! Plans that sessions share, and plans of statements whose parameters have values.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, AsArray, Int64Array, RecordBatch, StringArray};
use datafusion::arrow::datatypes::{DataType, Int64Type};
use datafusion::catalog::TableProvider;
use datafusion::common::ParamValues;
use datafusion::datasource::MemTable;
use datafusion::logical_expr::{ColumnarValue, Volatility, create_udf};
use datafusion::physical_plan::collect;
use datafusion::scalar::ScalarValue;

use super::CommonPlans;
use crate::{Device, DeviceChoice, WarplineSession};

const SUM: &str = "SELECT sum(abs(a)) AS s FROM t WHERE a < 10";

fn table(values: &[i64]) -> Arc<dyn TableProvider> {
    let numbers: ArrayRef = Arc::new(Int64Array::from(values.to_vec()));
    let names = values.iter().map(|value| format!("'{value}\"), Utf8(\"x"));
    let names: ArrayRef = Arc::new(StringArray::from_iter_values(names));
    let batch = RecordBatch::try_from_iter([("a", numbers), ("name", names)]).unwrap();
    Arc::new(MemTable::try_new(batch.schema(), vec![vec![batch]]).unwrap())
}

/// Sessions over one device that have one table `t`.
struct Server {
    device: Device,
    plans: Arc<CommonPlans>,
    table: Arc<dyn TableProvider>,
}

impl Server {
    fn new() -> Self {
        Self {
            device: Device::open(DeviceChoice::Emulator, None).unwrap(),
            plans: Arc::default(),
            table: table(&[1, -2, 3, 40]),
        }
    }

    async fn session(&self) -> WarplineSession {
        let session = WarplineSession::builder().shared_device(&self.device);
        let session = session.set("warpline.min_rows", "0").open().await.unwrap();
        let context = session.context();
        context
            .register_table("t", Arc::clone(&self.table))
            .unwrap();
        let tables = [Arc::clone(&self.table)];
        session.plans().share(&self.plans, &tables, context);
        session
    }
}

/// The number that a query answers, and whether its plan was there.
async fn ask(session: &WarplineSession, sql: &str) -> (i64, bool) {
    let run = session.query(sql).await.unwrap();
    (number(&run.batches), run.metrics.plan_cached)
}

fn number(batches: &[RecordBatch]) -> i64 {
    let batch = batches.iter().find(|batch| batch.num_rows() > 0).unwrap();
    batch.column(0).as_primitive::<Int64Type>().value(0)
}

/// The same of a text with parameters.
async fn ask_with(
    session: &WarplineSession,
    sql: &str,
    values: impl IntoIterator<Item = ScalarValue>,
) -> (i64, bool) {
    let plan = session.context().state().create_logical_plan(sql).await;
    let values = values.into_iter().map(Into::into).collect();
    let plan = plan.unwrap().with_param_values(ParamValues::List(values));
    let query = session.prepare_plan(sql, plan.unwrap()).await.unwrap();
    let batches = collect(Arc::clone(query.plan()), Arc::clone(query.task())).await;
    (number(&batches.unwrap()), query.finish().plan_cached)
}

#[tokio::test]
async fn sessions_that_are_alike_share_plans() {
    let server = Server::new();
    let (one, other) = (server.session().await, server.session().await);
    assert_eq!(ask(&one, SUM).await, (6, false));
    assert_eq!(ask(&other, SUM).await, (6, true));
    // Also with one that is opened when the others are gone, and not with one that has plans for itself.
    drop((one, other));
    let late = server.session().await;
    assert_eq!(ask(&late, SUM).await, (6, true));
    assert_eq!(late.plan_cache_stats().entries, 1);
    late.clear_plan_cache();
    assert_eq!(ask(&late, SUM).await, (6, true), "others may want it");
    let alone = WarplineSession::builder().shared_device(&server.device);
    let alone = alone.open().await.unwrap();
    let own = Arc::clone(&server.table);
    alone.context().register_table("t", own).unwrap();
    assert_eq!(ask(&alone, SUM).await, (6, false));
}

#[tokio::test]
async fn a_plan_that_is_kept_is_found_without_planning() {
    let server = Server::new();
    let (one, other) = (server.session().await, server.session().await);
    let kept = async |session: &WarplineSession| {
        let kept = session.plans().kept(session.context(), SUM).await;
        kept.unwrap()
    };
    assert!(kept(&one).await.is_none());
    assert_eq!(ask(&one, SUM).await, (6, false));
    let found = kept(&other).await.unwrap();
    assert!(found.cached);
    assert!(kept(&one).await.is_none(), "it runs elsewhere");
    let plan = Arc::clone(&found.plan);
    let batches = collect(plan, Arc::clone(&found.task)).await.unwrap();
    assert_eq!(number(&batches), 6);
    other.plans().finished(found, true);
    other.context().deregister_table("t").unwrap();
    let own = table(&[5, 6]);
    other.context().register_table("t", own).unwrap();
    assert!(
        kept(&other).await.is_none(),
        "the name stands for another table"
    );
    assert!(kept(&one).await.is_some());
}

#[tokio::test]
async fn a_table_of_a_session_is_its_own() {
    let server = Server::new();
    let (one, other) = (server.session().await, server.session().await);
    other.context().deregister_table("t").unwrap();
    let own = table(&[5, 6]);
    other.context().register_table("t", own).unwrap();
    assert_eq!(ask(&one, SUM).await, (6, false));
    assert_eq!(ask(&other, SUM).await, (11, false));
    assert_eq!(ask(&other, SUM).await, (11, true));
    assert_eq!(ask(&one, SUM).await, (6, true));
    // A plan is equal to that over another table of the name.
    let below = "SELECT sum(a) AS s FROM t WHERE a < $1";
    let ten = || [ScalarValue::from(10_i64)];
    assert_eq!(ask_with(&one, below, ten()).await, (2, false));
    assert_eq!(ask_with(&other, below, ten()).await, (11, false));
    assert_eq!(ask_with(&one, below, ten()).await, (2, true));
}

#[tokio::test]
async fn other_settings_and_functions_are_other_plans() {
    let server = Server::new();
    let (one, other) = (server.session().await, server.session().await);
    ask(&one, SUM).await;
    other.set("warpline.group_by", "hgb").await.unwrap();
    assert_eq!(ask(&other, SUM).await, (6, false));
    let zero = create_udf(
        "abs",
        vec![DataType::Int64],
        DataType::Int64,
        Volatility::Immutable,
        Arc::new(|_: &[ColumnarValue]| Ok(ColumnarValue::Scalar(ScalarValue::from(7_i64)))),
    );
    let third = server.session().await;
    third.context().register_udf(zero);
    assert_eq!(ask(&third, SUM).await, (21, false));
    assert_eq!(ask(&one, SUM).await, (6, true));
    let fourth = server.session().await;
    assert_eq!(ask(&fourth, SUM).await, (6, true));
}

#[tokio::test]
async fn changed_data_is_planned_anew_for_all() {
    let server = Server::new();
    let (one, other) = (server.session().await, server.session().await);
    assert_eq!(ask(&one, SUM).await, (6, false));
    one.query("INSERT INTO t VALUES (9, 'nine')").await.unwrap();
    assert_eq!(ask(&other, SUM).await, (15, false));
    assert_eq!(ask(&one, SUM).await, (15, true));
}

#[tokio::test]
async fn as_many_plans_are_kept_as_run_at_a_time() {
    let server = Server::new();
    let mut sessions = Vec::new();
    for _ in 0..6 {
        sessions.push(server.session().await);
    }
    for round in 0..2 {
        // All are taken before the first comes back.
        let mut queries = Vec::new();
        for session in &sessions {
            queries.push(session.prepare(SUM).await.unwrap().unwrap());
        }
        for query in queries {
            assert_eq!(query.is_cached(), round > 0);
            let run = collect(Arc::clone(query.plan()), Arc::clone(query.task()));
            assert_eq!(number(&run.await.unwrap()), 6);
            query.finish();
        }
    }
}

#[tokio::test]
async fn a_plan_is_for_the_values_of_its_parameters() {
    let server = Server::new();
    let (one, other) = (server.session().await, server.session().await);
    let sql = "SELECT sum(a) AS s FROM t WHERE a < $1";
    let below = |value: i64| [ScalarValue::from(value)];
    assert_eq!(ask_with(&one, sql, below(3)).await, (-1, false));
    assert_eq!(ask_with(&one, sql, below(3)).await, (-1, true));
    assert_eq!(ask_with(&other, sql, below(3)).await, (-1, true));
    assert_eq!(ask_with(&other, sql, below(4)).await, (2, false));
    assert_eq!(
        ask_with(&one, sql, [ScalarValue::Int8(Some(3))]).await.0,
        -1
    );
    // Texts that look like two values are one.
    let names = "SELECT count(*) AS n FROM t WHERE name IN ($1, $2)";
    let texts = |a: &str, b: &str| [ScalarValue::from(a), ScalarValue::from(b)];
    let both = texts("'1\"), Utf8(\"x", "y");
    assert_eq!(ask_with(&one, names, both).await, (1, false));
    let split = texts("'1", "x\"), Utf8(\"y");
    assert_eq!(ask_with(&one, names, split).await, (0, false));
}

#[tokio::test]
async fn what_lives_for_one_query_is_not_kept_for_the_next() {
    let server = Server::new();
    let session = server.session().await;
    let context = session.context();
    let own = table(&[5, 6]);
    let frame = context.read_table(Arc::clone(&own)).unwrap();
    let plan = frame.logical_plan().clone();
    for _ in 0..2 {
        let query = session.prepare_plan("", plan.clone()).await.unwrap();
        assert!(!query.is_cached());
        let batches = collect(Arc::clone(query.plan()), Arc::clone(query.task())).await;
        assert_eq!(number(&batches.unwrap()), 5);
        query.finish();
    }
    drop((frame, plan));
    assert_eq!(session.plan_cache_stats().entries, 0);
    // Nor one that has no longer the name that it had when the statement was planned.
    let sql = "SELECT sum(a) AS s FROM t WHERE a < 10";
    let planned = context.state().create_logical_plan(sql).await.unwrap();
    context.deregister_table("t").unwrap();
    context.register_table("t", own).unwrap();
    for _ in 0..2 {
        let query = session.prepare_plan(sql, planned.clone()).await.unwrap();
        assert!(!query.is_cached());
        let batches = collect(Arc::clone(query.plan()), Arc::clone(query.task())).await;
        assert_eq!(number(&batches.unwrap()), 2);
        query.finish();
    }
}
