//! Plans that go to other sessions as bytes: with a device there, without one, and beside other extensions' codecs.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use arrow::array::{Int64Array, RecordBatch};
use arrow::datatypes::DataType;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::TaskContext;
use datafusion::logical_expr::{ColumnarValue, ScalarUDF, Volatility, create_udf};
use datafusion::physical_plan::{ExecutionPlan, collect, displayable};
use datafusion::prelude::{SessionConfig, SessionContext};
use datafusion_proto::bytes::{
    physical_plan_from_bytes_with_proto_converter, physical_plan_to_bytes_with_proto_converter,
};
use datafusion_proto::physical_plan::{
    DeduplicatingProtoConverter, DefaultPhysicalProtoConverter, PhysicalExtensionCodec,
    PhysicalProtoConverterExtension,
};
use warpline::{Device, DeviceChoice, WarplineCodec, WarplineExt, WarplineSession, metrics_of};
use warpline_tpch::files::FileFormat;
use warpline_tpch::runner::reference_answer;
use warpline_tpch::tables::Table;
use warpline_tpch::verify::{self, Answer};
use warpline_tpch::{Scale, data, files, queries};

use super::on_a_large_stack;

fn device(choice: DeviceChoice) -> Device {
    Device::open(choice, None).expect("a device")
}

/// A session elsewhere: no tables, as those of a worker.
fn worker(device: &Device) -> SessionContext {
    let config = SessionConfig::new().with_target_partitions(3);
    SessionContext::new_with_config(config).with_warpline(device)
}

fn send(
    plan: &Arc<dyn ExecutionPlan>,
    sender: &WarplineCodec,
    receiver: &WarplineCodec,
    context: &TaskContext,
    converter: &dyn PhysicalProtoConverterExtension,
) -> Result<Arc<dyn ExecutionPlan>> {
    let bytes = physical_plan_to_bytes_with_proto_converter(Arc::clone(plan), sender, converter)?;
    physical_plan_from_bytes_with_proto_converter(&bytes, context, receiver, converter)
}

fn text(plan: &Arc<dyn ExecutionPlan>) -> String {
    displayable(plan.as_ref()).indent(false).to_string()
}

async fn physical(context: &SessionContext, sql: &str) -> Arc<dyn ExecutionPlan> {
    let frame = context
        .sql(sql)
        .await
        .unwrap_or_else(|e| panic!("{sql}: {e}"));
    frame
        .create_physical_plan()
        .await
        .unwrap_or_else(|e| panic!("{sql}: {e}"))
}

#[test]
fn tpch_answers_are_the_same_elsewhere() {
    on_a_large_stack(async || {
        let folder = tempfile::tempdir().expect("a folder");
        let scale = Scale::new(0.01).expect("a scale");
        let (format, go_on) = (FileFormat::Parquet, AtomicBool::new(false));
        let path = folder.path().join("tables");
        files::write_tables(&Table::ALL, scale, format, &path, 2, &go_on).expect("files");
        let session = WarplineSession::builder()
            .device(DeviceChoice::Emulator)
            .set("warpline.min_rows", "0")
            .set("warpline.join", "nphj")
            .set("warpline.time_limit", "1h");
        let session = session.open().await.expect("a session");
        data::register(&session, &path, &Table::ALL)
            .await
            .expect("tables");
        let sender = WarplineCodec::new(session.device());
        let (gpu, cpu) = (device(DeviceChoice::Emulator), device(DeviceChoice::Cpu));
        let (one, other) = (
            DefaultPhysicalProtoConverter {},
            DeduplicatingProtoConverter {},
        );
        for query in queries::ALL.iter() {
            let sql = &query.sql;
            let (expected, ordering) = reference_answer(session.reference(), query.reference_sql())
                .await
                .unwrap_or_else(|e| panic!("Q{}: {e}", query.number));
            let plan = physical(session.context(), sql).await;
            assert!(text(&plan).contains("GpuFragmentExec"), "{}", text(&plan));
            let receivers: [(&Device, &dyn PhysicalProtoConverterExtension); 3] =
                [(&gpu, &one), (&cpu, &one), (&cpu, &other)];
            for (device, converter) in receivers {
                let context = worker(device);
                let codec = WarplineCodec::new(device);
                let arrived = send(&plan, &sender, &codec, &context.task_ctx(), converter)
                    .unwrap_or_else(|e| panic!("Q{} on {}: {e}", query.number, device.name()));
                let shown = text(&arrived);
                assert!(shown.starts_with("TimeLimitExec: limit=1h"), "{shown}");
                assert_eq!(arrived.schema(), plan.schema());
                let batches = collect(Arc::clone(&arrived), context.task_ctx())
                    .await
                    .unwrap_or_else(|e| panic!("Q{} on {}: {e}", query.number, device.name()));
                let answer = Answer::new(&arrived.schema(), &batches).expect("an answer");
                let difference = verify::compare(&expected, &answer, &ordering);
                assert!(
                    difference.is_none(),
                    "Q{} on {}: {difference:?}",
                    query.number,
                    device.name()
                );
                let metrics = metrics_of(&arrived);
                assert_eq!(metrics.kernels > 0, device.is_in_use(), "{shown}");
                assert_eq!(
                    shown.contains("GpuFragmentExec"),
                    device.is_in_use(),
                    "{shown}"
                );
                assert_eq!(
                    shown.contains("PlacementReportExec"),
                    device.is_in_use(),
                    "{shown}"
                );
                assert_eq!(metrics.fallbacks, Vec::<String>::new(), "Q{}", query.number);
            }
        }
    });
}

/// A session with `t`: 20,000 rows of `k` below 9 and `v`.
fn filled(device: &Device) -> SessionContext {
    let context = SessionContext::new().with_warpline(device);
    let k = Int64Array::from_iter_values((0..20_000).map(|i| i % 9));
    let v = Int64Array::from_iter_values((0..20_000).map(|i| i * 7 % 1_000));
    let columns = [("k", Arc::new(k) as _), ("v", Arc::new(v) as _)];
    let batch = RecordBatch::try_from_iter(columns).expect("a batch");
    context.register_batch("t", batch).expect("a table");
    context
}

/// The lines of the report on placement: its own, and those of its entries, which are further in than any node below.
fn report(plan: &str) -> Vec<String> {
    let mut lines = plan.lines();
    let own = lines.next();
    let entries = lines.take_while(|line| line.starts_with("        "));
    own.into_iter().chain(entries).map(str::to_owned).collect()
}

#[test]
fn parts_that_stay_on_the_cpu_go_along_with_their_reasons() {
    on_a_large_stack(async || {
        let (gpu, cpu) = (device(DeviceChoice::Emulator), device(DeviceChoice::Cpu));
        let home = filled(&gpu);
        let converter = DefaultPhysicalProtoConverter {};
        for sql in [
            "SELECT k, n, array_length(array_agg(n) OVER (PARTITION BY n % 2)) AS r FROM \
             (SELECT k, count(*) AS n, sum(v) AS s FROM t GROUP BY k) ORDER BY k",
            "SELECT x.k, x.n, y.m FROM (SELECT k, avg(v) AS n FROM t GROUP BY k) x \
             JOIN (SELECT k, array_length(array_agg(v)) AS m FROM t GROUP BY k) y ON x.k = y.k \
             WHERE y.m > 9 ORDER BY 1",
        ] {
            let expected = home
                .sql(sql)
                .await
                .expect("a plan")
                .collect()
                .await
                .expect("rows");
            let plan = physical(&home, sql).await;
            let reasons = report(&text(&plan));
            assert!(
                reasons.iter().any(|line| ["on the CPU", "put together"]
                    .iter()
                    .any(|why| line.contains(why))),
                "{reasons:?}"
            );
            for receiver in [&gpu, &cpu] {
                let context = worker(receiver);
                let (from, to) = (WarplineCodec::new(&gpu), WarplineCodec::new(receiver));
                let arrived = send(&plan, &from, &to, &context.task_ctx(), &converter).expect(sql);
                let answer = collect(Arc::clone(&arrived), context.task_ctx())
                    .await
                    .expect(sql);
                let rows = |batches: &[RecordBatch]| {
                    let text = arrow::util::pretty::pretty_format_batches(batches);
                    text.expect("text").to_string()
                };
                assert_eq!(rows(&answer), rows(&expected));
                let same_report = report(&text(&arrived)) == reasons;
                assert_eq!(same_report, receiver.is_in_use(), "{}", text(&arrived));
            }
        }
    });
}

/// That a subquery has one row is checked by a function that other sessions do not have registered.
#[test]
fn subqueries_of_several_rows_are_errors_elsewhere() {
    on_a_large_stack(async || {
        let (gpu, cpu) = (device(DeviceChoice::Emulator), device(DeviceChoice::Cpu));
        let home = filled(&gpu);
        let converter = DefaultPhysicalProtoConverter {};
        let groups = "(SELECT k, count(*) AS n FROM t GROUP BY k) a";
        let one = "SELECT w.c FROM (VALUES (1, 10), (2, 20)) AS w(k, c) WHERE w.k = a.k";
        let many = "SELECT b.v FROM t b WHERE b.k = a.k AND b.v = 7";
        for (subquery, fails) in [(one, false), (many, true)] {
            let sql = format!("SELECT a.k, ({subquery}) AS c FROM {groups} ORDER BY a.k");
            let plan = physical(&home, &sql).await;
            for receiver in [&gpu, &cpu] {
                let context = worker(receiver);
                let (from, to) = (WarplineCodec::new(&gpu), WarplineCodec::new(receiver));
                let arrived = send(&plan, &from, &to, &context.task_ctx(), &converter);
                let arrived = arrived.expect(subquery);
                // All of the second one runs in the fragment, where there is a device.
                let wanted = match fails && receiver.is_in_use() {
                    true => "GpuFragmentExec",
                    false => "warpline_one_row",
                };
                assert!(text(&arrived).contains(wanted), "{}", text(&arrived));
                match collect(arrived, context.task_ctx()).await {
                    Ok(rows) => {
                        assert!(!fails, "{subquery} has several rows");
                        let rows = arrow::util::pretty::pretty_format_batches(&rows);
                        let rows = rows.expect("text").to_string();
                        assert!(rows.contains("| 2 | 20 |"), "{rows}");
                    }
                    Err(error) => {
                        let message = error.to_string();
                        assert!(fails && message.contains("more than one row"), "{message}");
                    }
                }
            }
        }
    });
}

/// The nearest row is found by a window function that other sessions do not have registered.
#[test]
fn nearest_rows_are_found_elsewhere() {
    on_a_large_stack(async || {
        let (gpu, cpu) = (device(DeviceChoice::Emulator), device(DeviceChoice::Cpu));
        let home = filled(&gpu);
        let converter = DefaultPhysicalProtoConverter {};
        let sql = "SELECT w.k, (SELECT b.v FROM t b WHERE b.v <= w.k ORDER BY b.v DESC, b.k LIMIT 1) AS c \
                   FROM (VALUES (1), (5), (NULL)) AS w(k) ORDER BY w.k";
        let plan = physical(&home, sql).await;
        let mut answers = Vec::new();
        for receiver in [&gpu, &cpu] {
            let context = worker(receiver);
            let (from, to) = (WarplineCodec::new(&gpu), WarplineCodec::new(receiver));
            let arrived = send(&plan, &from, &to, &context.task_ctx(), &converter);
            let arrived = arrived.expect("a plan");
            if !receiver.is_in_use() {
                let text = text(&arrived);
                assert!(text.contains("wdw=[__nearest"), "{text}");
            }
            let rows = collect(arrived, context.task_ctx()).await.expect("rows");
            let rows = arrow::util::pretty::pretty_format_batches(&rows);
            answers.push(rows.expect("text").to_string());
        }
        assert_eq!(answers[0], answers[1]);
    });
}

#[test]
fn a_required_gpu_is_required_elsewhere() {
    on_a_large_stack(async || {
        let (gpu, cpu) = (device(DeviceChoice::Emulator), device(DeviceChoice::Cpu));
        let home = filled(&gpu);
        home.sql("SET warpline.require_gpu = true")
            .await
            .expect("set");
        let plan = physical(&home, "SELECT k, count(*) AS n FROM t GROUP BY k").await;
        let converter = DefaultPhysicalProtoConverter {};
        let (from, to) = (WarplineCodec::new(&gpu), WarplineCodec::new(&cpu));
        let context = worker(&cpu);
        let error = send(&plan, &from, &to, &context.task_ctx(), &converter).expect_err("no GPU");
        assert!(
            error.to_string().contains("the session has no device"),
            "{error}"
        );
        let context = worker(&gpu);
        let arrived = send(&plan, &from, &from, &context.task_ctx(), &converter).expect("a plan");
        assert!(text(&arrived).contains("GpuFragmentExec"));
    });
}

#[test]
fn windows_that_would_arrive_changed_are_not_sent() {
    on_a_large_stack(async || {
        let gpu = device(DeviceChoice::Emulator);
        let home = filled(&gpu);
        let codec = WarplineCodec::new(&gpu);
        let (context, converter) = (worker(&gpu), DefaultPhysicalProtoConverter {});
        let sent = async |columns: &str| {
            let plan = physical(&home, &format!("SELECT k, v, {columns} FROM t")).await;
            let shown = text(&plan);
            (
                shown,
                send(&plan, &codec, &codec, &context.task_ctx(), &converter),
            )
        };
        let (_, plain) = sent("sum(v) OVER (PARTITION BY k ORDER BY v) AS a").await;
        plain.expect("a plan");
        // One on the device, one on the CPU.
        for (columns, operator, what) in [
            (
                "last_value(nullif(v, 3)) IGNORE NULLS OVER (PARTITION BY k ORDER BY v) AS a",
                "GpuFragmentExec",
                "IGNORE NULLS",
            ),
            (
                "array_agg(v) FILTER (WHERE v < 3) OVER (PARTITION BY k ORDER BY v) AS a",
                "BoundedWindowAggExec",
                "FILTER",
            ),
        ] {
            let (shown, refused) = sent(columns).await;
            assert!(shown.contains(operator), "{shown}");
            let message = refused.map(drop).expect_err("changed").to_string();
            assert!(
                message.contains(what) && message.contains("another machine"),
                "{message}"
            );
        }
    });
}

#[test]
fn damaged_bytes_are_an_error() {
    let codec = WarplineCodec::new(&device(DeviceChoice::Cpu));
    let context = SessionContext::new().task_ctx();
    let converter = DefaultPhysicalProtoConverter {};
    // Not protobuf; a report without its input; a fragment whose plan is not one; a node of a later version.
    for bytes in [
        &[0xff, 0x01][..],
        &[0x12, 0x00],
        &[0x0a, 0x03, 0x0a, 0x01, 0xff],
        &[0x4a, 0x00],
    ] {
        let error = codec
            .try_decode(bytes, &[], &context, &converter)
            .expect_err("damaged");
        assert!(matches!(error, DataFusionError::Plan(_)), "{error}");
    }
}

/// The codec of another extension, which sends a function with a number in it.
#[derive(Debug)]
struct Factors;

fn multiplied(factor: u8) -> ScalarUDF {
    multiplied_as(factor, Volatility::Immutable)
}

fn multiplied_as(factor: u8, volatility: Volatility) -> ScalarUDF {
    let multiply = move |arguments: &[ColumnarValue]| {
        let arrays = ColumnarValue::values_to_arrays(arguments)?;
        let factor = Int64Array::new_scalar(i64::from(factor));
        let product = arrow::compute::kernels::numeric::mul(&arrays[0], &factor)?;
        Ok(ColumnarValue::Array(product))
    };
    let types = vec![DataType::Int64];
    create_udf(
        &format!("times_{factor}"),
        types,
        DataType::Int64,
        volatility,
        Arc::new(multiply),
    )
}

impl PhysicalExtensionCodec for Factors {
    fn try_decode(
        &self,
        _: &[u8],
        _: &[Arc<dyn ExecutionPlan>],
        _: &TaskContext,
        _: &dyn PhysicalProtoConverterExtension,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Err(DataFusionError::NotImplemented("no nodes".into()))
    }

    fn try_encode(
        &self,
        _: Arc<dyn ExecutionPlan>,
        _: &mut Vec<u8>,
        _: &dyn PhysicalProtoConverterExtension,
    ) -> Result<()> {
        Err(DataFusionError::NotImplemented("no nodes".into()))
    }

    fn try_encode_udf(&self, node: &ScalarUDF, buf: &mut Vec<u8>) -> Result<()> {
        let factor = node
            .name()
            .strip_prefix("times_")
            .and_then(|f| f.parse().ok());
        buf.extend::<Option<u8>>(factor);
        Ok(())
    }

    fn try_decode_udf(&self, _: &str, buf: &[u8]) -> Result<Arc<ScalarUDF>> {
        Ok(Arc::new(multiplied(buf[0])))
    }
}

#[test]
fn functions_of_others_go_through_their_codec() {
    on_a_large_stack(async || {
        let gpu = device(DeviceChoice::Emulator);
        let home = filled(&gpu);
        home.register_udf(multiplied(3));
        let sql = "SELECT times_3(n) AS n FROM (SELECT k, count(*) AS n FROM t GROUP BY k) ORDER BY n DESC LIMIT 1";
        let plan = physical(&home, sql).await;
        assert!(text(&plan).contains("GpuFragmentExec"), "{}", text(&plan));
        let codec = WarplineCodec::new(&gpu).with_codec(Arc::new(Factors));
        let context = worker(&gpu);
        let converter = DefaultPhysicalProtoConverter {};
        let arrived = send(&plan, &codec, &codec, &context.task_ctx(), &converter).expect("a plan");
        let rows = collect(Arc::clone(&arrived), context.task_ctx())
            .await
            .expect("rows");
        let text = arrow::util::pretty::pretty_format_batches(&rows)
            .expect("text")
            .to_string();
        assert!(text.contains("| 6669 |"), "{text}");
        assert!(metrics_of(&arrived).kernels > 0);
        // The other side does not know the function.
        let alone = WarplineCodec::new(&gpu);
        assert!(send(&plan, &codec, &alone, &context.task_ctx(), &converter).is_err());
    });
}

#[test]
fn inputs_of_fragments_travel_with_them() {
    on_a_large_stack(async || {
        let (gpu, cpu) = (device(DeviceChoice::Emulator), device(DeviceChoice::Cpu));
        let home = filled(&gpu);
        // Volatile, so that nobody evaluates it once per distinct value.
        home.register_udf(multiplied_as(3, Volatility::Volatile));
        home.sql("SET warpline.reentry = 'on'").await.expect("set");
        let sql = "SELECT a.k, count(*) AS n FROM (SELECT times_3(k) AS k FROM t) a JOIN t b ON a.k = b.k GROUP BY a.k \
                   ORDER BY a.k";
        let plan = physical(&home, sql).await;
        let shown = text(&plan);
        assert!(shown.contains("the device goes on above it"), "{shown}");
        let rows = |batches: &[RecordBatch]| {
            let text = arrow::util::pretty::pretty_format_batches(batches);
            text.expect("text").to_string()
        };
        let here = collect(Arc::clone(&plan), home.task_ctx()).await;
        let here = rows(&here.expect("rows"));
        assert!(here.lines().count() > 4, "{here}");
        let codec = |device: &Device| WarplineCodec::new(device).with_codec(Arc::new(Factors));
        let converter = DefaultPhysicalProtoConverter {};
        for receiver in [&gpu, &cpu] {
            let context = worker(receiver);
            let (from, to) = (codec(&gpu), codec(receiver));
            let arrived = send(&plan, &from, &to, &context.task_ctx(), &converter).expect("a plan");
            let shown = text(&arrived);
            assert_eq!(
                shown.contains("GpuFragmentExec"),
                receiver.is_in_use(),
                "{shown}"
            );
            assert!(shown.contains("times_3"), "{shown}");
            assert!(!shown.contains("InputExec"), "{shown}");
            let there = collect(Arc::clone(&arrived), context.task_ctx()).await;
            assert_eq!(rows(&there.expect("rows")), here);
            assert_eq!(metrics_of(&arrived).kernels > 0, receiver.is_in_use());
        }
    });
}
