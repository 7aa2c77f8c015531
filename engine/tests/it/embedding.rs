//! Warpline in sessions of others: their tables, stores, functions and rules beside it, on an emulated device.

use std::sync::Arc;

use arrow::array::{Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, SchemaRef};
use arrow::util::pretty::pretty_format_batches;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::utils::take_function_args;
use datafusion::config::ConfigOptions;
use datafusion::error::Result;
use datafusion::execution::object_store::ObjectStoreUrl;
use datafusion::execution::{SendableRecordBatchStream, SessionStateBuilder, TaskContext};
use datafusion::functions_aggregate::min_max::MinAccumulator;
use datafusion::logical_expr::{
    AccumulatorFactoryFunction, ColumnarValue, Volatility, create_udaf, create_udf,
};
use datafusion::object_store::ObjectStoreExt;
use datafusion::object_store::memory::InMemory;
use datafusion::object_store::path::Path;
use datafusion::parquet::arrow::ArrowWriter;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_optimizer::optimizer::PhysicalOptimizer;
use datafusion::physical_plan::joins::HashJoinExec;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties, displayable,
};
use datafusion::prelude::{ParquetReadOptions, SessionConfig, SessionContext};
use warpline::{ByteSize, Device, DeviceChoice, Error, WarplineConfig, WarplineExt, WarplineRule};

fn emulator() -> Device {
    Device::open(DeviceChoice::Emulator, None).expect("the emulator")
}

/// A session with `t`: 3,000 rows of `k` below 7, `v`, and `s` with five strings. Small tables go to the device as well.
async fn filled(context: SessionContext) -> SessionContext {
    context.register_batch("t", rows(0)).expect("a table");
    set(&context, "warpline.min_rows", "0").await;
    context
}

fn rows(offset: i64) -> RecordBatch {
    let k = Int64Array::from_iter((0..3_000).map(|i| (i % 11 != 0).then_some(i % 7)));
    let v = Int64Array::from_iter_values((0..3_000).map(|i| i + offset));
    let s = StringArray::from_iter_values((0..3_000).map(|i| format!("name {}", i % 5)));
    RecordBatch::try_from_iter_with_nullable([
        ("k", Arc::new(k) as _, true),
        ("v", Arc::new(v) as _, true),
        ("s", Arc::new(s) as _, true),
    ])
    .expect("a batch")
}

async fn set(context: &SessionContext, key: &str, value: &str) {
    let statement = format!("SET {key} = '{value}'");
    // Plain DataFusion has no settings of Warpline's.
    let outcome = context.sql(&statement).await;
    let known = context
        .copied_config()
        .options()
        .extensions
        .get::<WarplineConfig>()
        .is_some();
    assert_eq!(outcome.is_ok(), known, "{statement}");
}

async fn answer(context: &SessionContext, sql: &str) -> String {
    let frame = context
        .sql(sql)
        .await
        .unwrap_or_else(|e| panic!("{sql}: {e}"));
    let batches = frame
        .collect()
        .await
        .unwrap_or_else(|e| panic!("{sql}: {e}"));
    pretty_format_batches(&batches).expect("text").to_string()
}

async fn physical(context: &SessionContext, sql: &str) -> Arc<dyn ExecutionPlan> {
    let frame = context
        .sql(sql)
        .await
        .unwrap_or_else(|e| panic!("{sql}: {e}"));
    let plan = frame.create_physical_plan().await;
    plan.unwrap_or_else(|e| panic!("{sql}: {e}"))
}

fn shown(plan: &Arc<dyn ExecutionPlan>) -> String {
    displayable(plan.as_ref()).indent(false).to_string()
}

async fn plan(context: &SessionContext, sql: &str) -> String {
    shown(&physical(context, sql).await)
}

const GROUPS: &str = "SELECT k, count(*) AS n, sum(v) AS v FROM t GROUP BY k ORDER BY k";

#[tokio::test]
async fn a_context_is_extended_where_it_stands() {
    let plain = filled(SessionContext::new().enable_url_table()).await;
    let expected = answer(&plain, GROUPS).await;
    let clone = plain.clone();
    let id = plain.session_id();
    let batch_size = plain.copied_config().batch_size();
    let device = emulator();
    // The second call replaces what the first added.
    let context = plain.with_warpline(&device).with_warpline(&device);
    set(&context, "warpline.min_rows", "0").await;
    for context in [&context, &clone] {
        assert!(plan(context, GROUPS).await.contains("GpuFragmentExec"));
        assert_eq!(answer(context, GROUPS).await, expected);
        assert_eq!(context.session_id(), id);
        assert_eq!(context.state().session_id(), id);
        assert_eq!(context.copied_config().batch_size(), batch_size);
        let rules = context.state().physical_optimizers().to_vec();
        let names: Vec<_> = rules.iter().map(|rule| rule.name()).collect();
        assert_eq!(
            names.iter().filter(|n| **n == WarplineRule::NAME).count(),
            1
        );
        assert_eq!(names.last(), Some(&WarplineRule::NAME));
    }
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("numbers.csv");
    std::fs::write(&file, "a,b\n1,2\n3,4\n").expect("a file");
    let sql = format!("SELECT sum(a) AS a FROM '{}'", file.display());
    assert!(answer(&context, &sql).await.contains("| 4 |"));
}

#[tokio::test]
async fn a_session_can_be_assembled_by_hand() {
    let device = emulator();
    let mut rules = PhysicalOptimizer::default().rules;
    rules.push(Arc::new(WarplineRule::new(&device)));
    let builder = || SessionStateBuilder::new().with_default_features();
    // Without settings the device is used as it is open, not as the default settings say.
    let state = builder()
        .with_physical_optimizer_rules(rules.clone())
        .build();
    let context = SessionContext::new_with_state(state);
    let ones = Int64Array::from_iter_values((0..20_000).map(|_| 1));
    let batch = RecordBatch::try_from_iter([("one", Arc::new(ones) as _)]).expect("a batch");
    context.register_batch("ones", batch).expect("a table");
    let sql = "SELECT one, count(*) AS n FROM ones GROUP BY one";
    assert!(plan(&context, sql).await.contains("device=emulator"));
    assert!(answer(&context, sql).await.contains("| 1   | 20000 |"));

    let config = SessionConfig::new().with_option_extension(device.config());
    let state = builder()
        .with_config(config)
        .with_physical_optimizer_rules(rules)
        .build();
    let context = filled(SessionContext::new_with_state(state)).await;
    assert!(plan(&context, GROUPS).await.contains("device=emulator"));
}

#[tokio::test]
async fn any_object_store_is_read() {
    let store = Arc::new(InMemory::new());
    let url = ObjectStoreUrl::parse("memory://bucket").expect("a URL");
    let plain = SessionContext::new();
    let context = SessionContext::new().with_warpline(&emulator());
    set(&context, "warpline.min_rows", "0").await;
    for context in [&plain, &context] {
        context.register_object_store(url.as_ref(), Arc::clone(&store) as _);
    }
    let path = Path::from("folder/t.parquet");
    let mut answers = Vec::new();
    for offset in [0, 1_000] {
        store
            .put(&path, parquet(&rows(offset)).into())
            .await
            .expect("an object");
        for context in [&plain, &context] {
            let _ = context.deregister_table("t");
            context
                .register_parquet(
                    "t",
                    "memory://bucket/folder/",
                    ParquetReadOptions::default(),
                )
                .await
                .expect("a table");
        }
        assert!(plan(&context, GROUPS).await.contains("GpuFragmentExec"));
        let expected = answer(&plain, GROUPS).await;
        // The second answer comes from resident columns.
        for _ in 0..2 {
            assert_eq!(answer(&context, GROUPS).await, expected);
        }
        answers.push(expected);
    }
    assert_ne!(answers[0], answers[1]);
}

fn parquet(batch: &RecordBatch) -> Vec<u8> {
    let mut writer = ArrowWriter::try_new(Vec::new(), batch.schema(), None).expect("a writer");
    writer.write(batch).expect("rows");
    writer.into_inner().expect("a file")
}

/// Doubles its argument.
fn twice(arguments: &[ColumnarValue]) -> Result<ColumnarValue> {
    let arrays = ColumnarValue::values_to_arrays(arguments)?;
    let [values] = take_function_args("twice", arrays)?;
    let doubled = arrow::compute::kernels::numeric::add(&values, &values)?;
    Ok(ColumnarValue::Array(doubled))
}

#[tokio::test]
async fn functions_of_others_stay_with_them() {
    let plain = filled(SessionContext::new()).await;
    let context = filled(SessionContext::new().with_warpline(&emulator())).await;
    for context in [&plain, &context] {
        // Functions and aggregates by the names of built-in ones, which the device must not take for those.
        for name in ["twice", "date_part"] {
            let types = vec![DataType::Int64];
            let udf = create_udf(
                name,
                types,
                DataType::Int64,
                Volatility::Immutable,
                Arc::new(twice),
            );
            context.register_udf(udf);
        }
        let minimum: AccumulatorFactoryFunction =
            Arc::new(|_| Ok(Box::new(MinAccumulator::try_new(&DataType::Int64)?)));
        let state = Arc::new(vec![DataType::Int64]);
        for name in ["smallest", "sum"] {
            let types = vec![DataType::Int64];
            let result = Arc::new(DataType::Int64);
            let (minimum, state) = (Arc::clone(&minimum), Arc::clone(&state));
            context.register_udaf(create_udaf(
                name,
                types,
                result,
                Volatility::Immutable,
                minimum,
                state,
            ));
        }
    }
    for (sql, reason) in [
        ("SELECT max(twice(v)) AS m FROM t", "the function twice"),
        (
            "SELECT k, max(date_part(v)) AS m FROM t GROUP BY k ORDER BY k",
            "the function date_part",
        ),
        (
            "SELECT k, smallest(v) AS m FROM t GROUP BY k ORDER BY k",
            "smallest is not a device aggregate",
        ),
        (
            "SELECT k, sum(v) AS m FROM t GROUP BY k ORDER BY k",
            "sum is not a device aggregate",
        ),
    ] {
        let shown = plan(&context, sql).await;
        assert!(shown.contains(reason), "{sql}\n{shown}");
        assert_eq!(
            answer(&context, sql).await,
            answer(&plain, sql).await,
            "{sql}"
        );
    }
    // What lies below them does not.
    let sql = "SELECT twice(n) AS n FROM (SELECT k, count(*) AS n FROM t GROUP BY k) ORDER BY n";
    let shown = plan(&context, sql).await;
    assert!(shown.contains("GpuFragmentExec"), "{shown}");
    assert_eq!(answer(&context, sql).await, answer(&plain, sql).await);
}

/// An operator of somebody else's that passes its input on.
#[derive(Debug)]
struct TeeExec(Arc<dyn ExecutionPlan>);

impl DisplayAs for TeeExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TeeExec")
    }
}

impl ExecutionPlan for TeeExec {
    fn name(&self) -> &str {
        "TeeExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.0.properties()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.0]
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(Arc::new(Self(children.remove(0))))
    }

    fn schema(&self) -> SchemaRef {
        self.0.schema()
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        self.0.execute(partition, context)
    }
}

/// A rule that puts a [`TeeExec`] above every hash join.
#[derive(Debug)]
struct Tee;

impl PhysicalOptimizerRule for Tee {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let above_joins = |node: Arc<dyn ExecutionPlan>| {
            Ok(match node.is::<HashJoinExec>() {
                true => Transformed::yes(Arc::new(TeeExec(node)) as Arc<dyn ExecutionPlan>),
                false => Transformed::no(node),
            })
        };
        Ok(plan.transform_up(above_joins)?.data)
    }

    fn name(&self) -> &str {
        "tee"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

#[tokio::test]
async fn operators_and_rules_of_others_stay_in_the_plan() {
    let sql = "SELECT a.k, count(*) AS n FROM t a JOIN t b ON a.v = b.v WHERE b.s <> 'name 3' GROUP BY a.k ORDER BY a.k";
    let plain = filled(SessionContext::new()).await;
    let expected = answer(&plain, sql).await;
    let builder = || SessionStateBuilder::new().with_default_features();
    let device = emulator();
    let before = builder()
        .with_physical_optimizer_rule(Arc::new(Tee))
        .with_warpline(&device);
    let after = builder()
        .with_warpline(&device)
        .with_physical_optimizer_rule(Arc::new(Tee));

    let context = filled(SessionContext::new_with_state(before.build())).await;
    let whole = physical(&context, sql).await;
    let text = shown(&whole);
    assert!(text.contains("TeeExec: not a device operator"), "{text}");
    // The join below runs on the device, what is above does not.
    let mut tee = None;
    whole
        .apply(|node| {
            tee = tee
                .take()
                .or_else(|| node.is::<TeeExec>().then(|| Arc::clone(node)));
            Ok(TreeNodeRecursion::Continue)
        })
        .expect("a walk");
    let below = shown(&tee.expect("the operator"));
    assert!(below.contains("GpuFragmentExec"), "{below}");
    assert_eq!(text.matches("GpuFragmentExec").count(), 1, "{text}");
    assert_eq!(answer(&context, sql).await, expected);

    // A rule that comes after sees no join any more.
    let context = filled(SessionContext::new_with_state(after.build())).await;
    let text = plan(&context, sql).await;
    assert!(
        !text.contains("TeeExec") && text.contains("cpu=[]"),
        "{text}"
    );
    assert_eq!(answer(&context, sql).await, expected);
}

#[tokio::test]
async fn pinned_tables_make_no_room_for_others() {
    // t takes some 12 KB on the device, big 400 KB; the pool holds one big column beside t, not two.
    let device =
        Device::open(DeviceChoice::Emulator, Some(ByteSize(1 << 20))).expect("the emulator");
    let context = filled(SessionContext::new().with_warpline(&device)).await;
    let big = |seed: i64| {
        let values =
            Int64Array::from_iter_values((0..50_000).map(|i| (i * 2_654_435_761 + seed) << 20));
        RecordBatch::try_from_iter([("x", Arc::new(values) as _)]).expect("a batch")
    };
    context.register_batch("one", big(1)).expect("a table");
    context.register_batch("two", big(2)).expect("a table");

    let pinned = device
        .pin(&context, "t")
        .await
        .expect("pinned")
        .expect("a device");
    assert_eq!(
        (pinned.name(), pinned.rows(), pinned.columns()),
        ("t", 3_000, 3)
    );
    assert!(pinned.bytes() > 3_000 && pinned.skipped().is_empty());
    let kept = || device.memory().expect("memory").column_bytes;
    // Others come and go.
    for table in ["one", "two", "one"] {
        answer(&context, &format!("SELECT max(x) AS x FROM {table}")).await;
    }
    device.evict().expect("evicted");
    assert_eq!(kept(), pinned.bytes());
    let again = device
        .pin(&context, "t")
        .await
        .expect("pinned")
        .expect("a device");
    drop(pinned);
    device.evict().expect("evicted");
    assert_eq!(kept(), again.bytes());
    drop(again);
    device.evict().expect("evicted");
    assert_eq!(kept(), 0);

    let columns = (0..8).map(|i| (format!("x{i}"), Arc::clone(big(i).column(0))));
    let wide = RecordBatch::try_from_iter(columns).expect("a batch");
    context.register_batch("wide", wide).expect("a table");
    let error = device.pin(&context, "wide").await.expect_err("too large");
    assert!(
        error.to_string().contains("out of device memory"),
        "{error}"
    );
    let error = device.pin(&context, "nothing").await.expect_err("no table");
    assert!(matches!(error, Error::DataFusion(_)), "{error}");
    context
        .sql("CREATE VIEW v AS SELECT k FROM t WHERE k > 3")
        .await
        .expect("a view");
    let error = device.pin(&context, "v").await.expect_err("a view");
    assert!(error.to_string().contains("cannot be pinned"), "{error}");
    let cpu = Device::open(DeviceChoice::Cpu, None).expect("the CPU");
    assert!(
        cpu.pin(&context, "t")
            .await
            .expect("nothing to do")
            .is_none()
    );
}
