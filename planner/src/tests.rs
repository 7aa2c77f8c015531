//! What the tests of this crate share: sessions over small tables, and the settings themselves.

mod check;
mod functions;
mod phases;
mod plans;
mod race;
mod warehouse;

use std::sync::{Arc, OnceLock};

use arrow::array::{
    ArrayRef, BinaryViewArray, BooleanArray, Date32Array, Decimal128Array, Float64Array,
    Int32Array, Int64Array, Int64Builder, ListArray, MapBuilder, RecordBatch, StringBuilder,
    StringViewArray, TimestampMicrosecondArray,
};
use arrow::datatypes::{DataType, Field, Int64Type, Schema, SchemaRef, TimeUnit};
use datafusion::datasource::MemTable;
use datafusion::execution::SessionStateBuilder;
use datafusion::physical_plan::{ExecutionPlan, displayable};
use datafusion::prelude::{SessionConfig, SessionContext};
use warpline_gpu::runtime::{DeviceChoice, Runtime, RuntimeOptions};

use crate::{GpuPlacement, WarplineConfig};

/// Rows of table `t`.
pub(crate) const ROWS: usize = 40;

pub(crate) fn schema() -> SchemaRef {
    let money = DataType::Decimal128(15, 2);
    Arc::new(Schema::new(vec![
        Field::new("a", DataType::Int32, false),
        Field::new("b", DataType::Int64, true),
        Field::new("qty", money.clone(), false),
        Field::new("price", money, true),
        Field::new("f", DataType::Float64, true),
        Field::new("day", DataType::Date32, false),
        Field::new("at", DataType::Timestamp(TimeUnit::Microsecond, None), true),
        Field::new("flag", DataType::Boolean, true),
        Field::new("s", DataType::Utf8View, true),
        Field::new("u", DataType::Utf8View, false),
        Field::new("x", DataType::BinaryView, true),
        Field::new_list("l", Field::new_list_field(DataType::Int64, true), true),
        Field::new_map(
            "m",
            "entries",
            Field::new("keys", DataType::Utf8, false),
            Field::new("values", DataType::Int64, true),
            false,
            true,
        ),
    ]))
}

/// Lists of up to three numbers.
fn lists(rows: i64) -> ArrayRef {
    let lists = (0..rows).map(|i| (i % 7 != 0).then(|| (0..i % 4).map(Some).collect::<Vec<_>>()));
    Arc::new(ListArray::from_iter_primitive::<Int64Type, _, _>(lists))
}

/// Maps of one key or none.
fn maps(rows: i64) -> ArrayRef {
    let mut maps = MapBuilder::new(None, StringBuilder::new(), Int64Builder::new());
    for row in 0..rows {
        if row % 3 != 0 {
            maps.keys().append_value(["a", "b"][row as usize % 2]);
            maps.values().append_value(row % 5);
        }
        maps.append(row % 11 != 0).unwrap();
    }
    Arc::new(maps.finish())
}

fn batch() -> RecordBatch {
    let n = ROWS as i64;
    let money = |step: i64| {
        let values = (0..n).map(|i| i128::from(i * step + 100));
        Decimal128Array::from_iter_values(values)
            .with_precision_and_scale(15, 2)
            .unwrap()
    };
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int32Array::from_iter_values((0..n).map(|i| (i % 7) as i32))),
        Arc::new(Int64Array::from_iter(
            (0..n).map(|i| (i % 5 != 0).then_some(i * 1000)),
        )),
        Arc::new(money(100)),
        Arc::new(money(333)),
        Arc::new(Float64Array::from_iter(
            (0..n).map(|i| (i % 9 != 0).then_some(i as f64 / 3.0)),
        )),
        Arc::new(Date32Array::from_iter_values(
            (0..n).map(|i| 8000 + 30 * i as i32),
        )),
        Arc::new(TimestampMicrosecondArray::from_iter(
            (0..n).map(|i| Some(i * 1_000_000_007)),
        )),
        Arc::new(BooleanArray::from_iter(
            (0..n).map(|i| (i % 3 != 0).then_some(i % 2 == 0)),
        )),
        Arc::new(StringViewArray::from_iter(
            (0..n).map(|i| (i % 8 != 0).then(|| format!("name {}", i % 4))),
        )),
        Arc::new(StringViewArray::from_iter_values(
            (0..n).map(|i| if i % 2 == 0 { "even" } else { "odd" }),
        )),
        Arc::new(BinaryViewArray::from_iter(
            (0..n).map(|i| (i % 9 != 0).then_some([i as u8, 0xff])),
        )),
        lists(n),
        maps(n),
    ];
    RecordBatch::try_new(schema(), columns).unwrap()
}

/// One emulated device for all tests.
pub(crate) fn runtime() -> Arc<Runtime> {
    static RUNTIME: OnceLock<Arc<Runtime>> = OnceLock::new();
    let open = || {
        let options = RuntimeOptions {
            device: DeviceChoice::Emulator,
            device_memory: Some(256 << 20),
            ..RuntimeOptions::default()
        };
        Runtime::open(options).unwrap().unwrap()
    };
    Arc::clone(RUNTIME.get_or_init(open))
}

/// A session with tables `t` and `other` of two partitions each and, if `rule`, our rule.
pub(crate) fn session(rule: Option<GpuPlacement>, config: WarplineConfig) -> SessionContext {
    let session = SessionConfig::new()
        .with_target_partitions(4)
        .with_information_schema(true)
        .with_option_extension(config);
    let mut builder = SessionStateBuilder::new()
        .with_default_features()
        .with_config(session);
    if let Some(rule) = rule {
        builder = builder.with_physical_optimizer_rule(Arc::new(rule));
    }
    let context = SessionContext::new_with_state(builder.build());
    for name in ["t", "other"] {
        let (all, half) = (batch(), ROWS / 2);
        let partitions = vec![vec![all.slice(0, half)], vec![all.slice(half, ROWS - half)]];
        context
            .register_table(
                name,
                Arc::new(MemTable::try_new(schema(), partitions).unwrap()),
            )
            .unwrap();
    }
    context
}

/// Settings under which small tables go to the device.
pub(crate) fn any_size() -> WarplineConfig {
    WarplineConfig {
        min_rows: 0,
        ..WarplineConfig::default()
    }
}

/// A session whose rule has the emulator.
pub(crate) fn placed(config: WarplineConfig) -> SessionContext {
    session(Some(GpuPlacement::new(Some(runtime()))), config)
}

pub(crate) async fn plan(context: &SessionContext, sql: &str) -> Arc<dyn ExecutionPlan> {
    context
        .sql(sql)
        .await
        .unwrap()
        .create_physical_plan()
        .await
        .unwrap()
}

pub(crate) fn text(plan: &Arc<dyn ExecutionPlan>) -> String {
    displayable(plan.as_ref()).indent(false).to_string()
}

async fn show(context: &SessionContext, name: &str) -> String {
    let batches = context
        .sql(&format!("SHOW {name}"))
        .await
        .unwrap()
        .collect()
        .await
        .unwrap();
    let value = batches[0].column_by_name("value").unwrap();
    arrow::util::display::array_value_to_string(value, 0).unwrap()
}

#[tokio::test]
async fn settings_are_set_shown_and_validated() {
    let context = session(None, WarplineConfig::default());
    assert_eq!(show(&context, "warpline.min_rows").await, "10000");
    assert_eq!(show(&context, "warpline.device").await, "auto");
    for (name, value) in [
        ("warpline.min_rows", "7"),
        ("warpline.require_gpu", "true"),
        ("warpline.device", "cuda:3"),
        ("warpline.group_by", "sgb_de_tr"),
        ("warpline.group_by", "shared"),
        ("warpline.join", "phj_tr"),
        ("warpline.join", "nphj"),
        ("warpline.pipeline", "tile"),
        ("warpline.device_memory", "1048576"),
    ] {
        context
            .sql(&format!("SET {name} = '{value}'"))
            .await
            .unwrap()
            .collect()
            .await
            .unwrap();
        assert_eq!(show(&context, name).await, value);
    }
    let config = WarplineConfig::of(context.state().config().options());
    assert_eq!((config.min_rows, config.require_gpu), (7, true));
    assert_eq!(config.device.choice, DeviceChoice::Cuda(Some(3)));
    assert_eq!(
        config.group_by,
        crate::GroupSetting::Force(crate::GroupAlgorithm::Shared)
    );
    assert_eq!(config.effective_min_rows(), 0);

    for (statement, hint) in [
        (
            "SET warpline.group_by = 'fastest'",
            "auto, private, shared, global",
        ),
        ("SET warpline.join = 'merge'", "auto, perfect, nphj"),
        ("SET warpline.pipeline = 'bush'", "auto, tile, tree"),
        (
            "SET warpline.load_balance = 'fair'",
            "auto, none, fws, nifs, nifs_aws",
        ),
        ("SET warpline.fws_threshold = 0", "positive whole numbers"),
        ("SET warpline.materialization = 'late'", "lazy, eager"),
        ("SET warpline.index_joins = 'yes'", "auto, on, off"),
        ("SET warpline.metrics = 'some'", "true, false"),
        (
            "SET warpline.device = 'tpu'",
            "one of auto, cpu, emulator, emulator:N",
        ),
        ("SET warpline.min_rows = 'few'", "whole numbers"),
        ("SET warpline.require_gpu = 'perhaps'", "true, false"),
        (
            "SET warpline.nonsense = 1",
            "the settings are warpline.device, ",
        ),
    ] {
        let error = match context.sql(statement).await {
            Ok(frame) => frame.collect().await.unwrap_err(),
            Err(error) => error,
        };
        assert!(error.to_string().contains(hint), "{statement}: {error}");
    }
    // A refused value leaves the setting as it was.
    assert_eq!(show(&context, "warpline.group_by").await, "shared");
}
