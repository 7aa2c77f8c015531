//! Two executors of one process, each with a device, against plain DataFusion.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use arrow_flight::flight_service_server::FlightServiceServer;
use ballista::prelude::SessionContextExt;
use ballista_core::BALLISTA_PROTOCOL_VERSION;
use ballista_core::ids::new_instance_id;
use ballista_core::registry::BallistaFunctionRegistry;
use ballista_core::serde::BallistaCodec;
use ballista_core::serde::protobuf::ExecutorRegistration;
use ballista_core::serde::protobuf::scheduler_grpc_client::SchedulerGrpcClient;
use ballista_core::serde::scheduler::{
    ExecutorOperatingSystemSpecification, ExecutorSpecification,
};
use ballista_core::utils::{GrpcServerConfig, create_grpc_server, default_session_builder};
use ballista_executor::execution_loop::poll_loop;
use ballista_executor::executor::Executor;
use ballista_executor::flight_service::BallistaFlightService;
use ballista_executor::health::ExecutorHealth;
use ballista_executor::metrics::LoggingMetricsCollector;
use ballista_scheduler::standalone::new_standalone_scheduler_with_builder;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::prelude::{ParquetReadOptions, SessionContext};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use warpline::{Device, DeviceChoice};
use warpline_ballista::{WarplineEngine, configured};
use warpline_tpch::files::FileFormat;
use warpline_tpch::jcch::{Bindings, Seed};
use warpline_tpch::runner::reference_answer;
use warpline_tpch::tables::{Dataset, Table};
use warpline_tpch::verify::{self, Answer};
use warpline_tpch::{Benchmark, Scale, files};

/// Windows, grouping sets, distinct aggregates, set operations, outer joins.
const MORE: [&str; 7] = [
    "SELECT o_custkey, o_orderkey, row_number() OVER (PARTITION BY o_custkey ORDER BY o_orderdate, o_orderkey) AS n, \
     sum(o_totalprice) OVER (PARTITION BY o_custkey ORDER BY o_orderdate, o_orderkey) AS s FROM orders ORDER BY 1, 2",
    "SELECT o_orderstatus, o_orderpriority, count(*) AS n, sum(o_totalprice) AS s FROM orders \
     GROUP BY GROUPING SETS ((o_orderstatus), (o_orderpriority), ()) ORDER BY 1, 2",
    "SELECT l_returnflag, l_shipmode, grouping(l_shipmode) AS g, avg(l_quantity) AS q FROM lineitem \
     GROUP BY ROLLUP (l_returnflag, l_shipmode) ORDER BY 1, 2, 3",
    "SELECT l_shipmode, count(DISTINCT l_partkey) AS p, count(DISTINCT l_suppkey) AS s, stddev(l_quantity) AS d FROM lineitem \
     GROUP BY l_shipmode ORDER BY 1",
    "SELECT c_custkey, c_name, o_orderkey FROM customer LEFT JOIN orders ON c_custkey = o_custkey AND o_totalprice > 300000 \
     ORDER BY 1, 3 LIMIT 200",
    "SELECT c_nationkey AS k FROM customer INTERSECT SELECT s_nationkey FROM supplier EXCEPT SELECT n_nationkey FROM nation \
     WHERE n_regionkey = 1 ORDER BY 1",
    "SELECT p_brand, count(*) AS n FROM part WHERE p_partkey NOT IN (SELECT ps_partkey FROM partsupp WHERE ps_availqty < 100) \
     GROUP BY p_brand HAVING count(*) > 1000000 ORDER BY 1",
];

/// How long a query may take before it counts as lost.
const PATIENCE: Duration = Duration::from_secs(120);

/// A scheduler, and executors with a device each.
struct Cluster {
    scheduler: SocketAddr,
    devices: Vec<Device>,
    /// Where executors write what others read.
    folders: Vec<TempDir>,
}

impl Cluster {
    async fn start(executors: usize) -> Self {
        let device = || Device::open(DeviceChoice::Emulator, None).expect("a device");
        let devices: Vec<Device> = (0..executors).map(|_| device()).collect();
        let config = configured(&devices[0]);
        let scheduler = new_standalone_scheduler_with_builder(
            Arc::new(default_session_builder),
            Arc::new(move || config.clone()),
            BallistaCodec::default(),
        );
        let mut cluster = Self {
            scheduler: scheduler.await.expect("a scheduler"),
            devices,
            folders: Vec::new(),
        };
        for device in &cluster.devices {
            let folder = tempfile::tempdir().expect("a folder");
            start_executor(cluster.scheduler, device, folder.path()).await;
            cluster.folders.push(folder);
        }
        cluster
    }

    /// A client's session, whose stages are placed whatever they cost: the tables are small.
    async fn session(&self) -> SessionContext {
        let config = configured(&self.devices[0])
            .with_target_partitions(4)
            .set_str("warpline.min_rows", "0")
            .set_str("warpline.reentry", "on");
        let state = default_session_builder(config).expect("a state");
        let url = format!("df://localhost:{}", self.scheduler.port());
        SessionContext::remote_with_state(&url, state)
            .await
            .expect("a session")
    }
}

async fn start_executor(scheduler: SocketAddr, device: &Device, folder: &Path) {
    const CORES: u32 = 2;
    let listener = TcpListener::bind("localhost:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let registration = ExecutorRegistration {
        id: new_instance_id(),
        host: Some("localhost".to_string()),
        port: address.port().into(),
        grpc_port: 0,
        specification: Some(ExecutorSpecification::default().with_vcores(CORES).into()),
        os_info: Some(ExecutorOperatingSystemSpecification::default().into()),
        ballista_protocol_version: BALLISTA_PROTOCOL_VERSION,
    };
    let config = configured(device);
    let runtime = Arc::default();
    let work_dir = folder.to_str().expect("a path");
    let executor = Executor::new(
        registration,
        work_dir,
        Arc::new(move |_| Ok(Arc::clone(&runtime))),
        Arc::new(move || config.clone()),
        Arc::new(BallistaFunctionRegistry::default()),
        Arc::new(LoggingMetricsCollector::default()),
        CORES as usize,
        Arc::new(WarplineEngine::new(device)),
    );
    let service = FlightServiceServer::new(BallistaFlightService::new(work_dir.to_string()));
    tokio::spawn(
        create_grpc_server(&GrpcServerConfig::default())
            .add_service(service)
            .serve_with_incoming(TcpListenerStream::new(listener)),
    );
    let url = format!("http://localhost:{}", scheduler.port());
    let client = loop {
        match SchedulerGrpcClient::connect(url.clone()).await {
            Ok(client) => break client,
            Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    };
    let codec = BallistaCodec::default();
    let health = ExecutorHealth::new();
    tokio::spawn(poll_loop(
        client,
        Arc::new(executor),
        codec,
        None,
        None,
        health,
    ));
}

/// The tables of a benchmark as files of a folder, each of the large ones in several files.
fn tables(folder: &Path, dataset: Dataset) -> PathBuf {
    let path = folder.join("tables");
    let go_on = AtomicBool::new(false);
    files::write_tables(&Table::ALL, dataset, FileFormat::Parquet, &path, 4, &go_on)
        .expect("files");
    path
}

async fn register(session: &SessionContext, tables: &Path) {
    for table in Table::ALL {
        let name = table.name();
        let path = tables.join(name);
        let path = path.to_str().expect("a path");
        let options = ParquetReadOptions::default();
        session
            .register_parquet(name, path, options)
            .await
            .expect("a table");
    }
}

/// A runtime whose threads have room for the deep plans of an unoptimised build.
fn run(test: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .thread_stack_size(16 << 20)
        .build()
        .expect("a runtime")
        .block_on(test);
}

/// A query's last statement that has rows, against plain DataFusion.
async fn check(session: &SessionContext, plain: &SessionContext, (sql, reference): (&str, &str)) {
    let reference = reference_answer(plain, reference).await;
    let (expected, ordering) = reference.unwrap_or_else(|e| panic!("{sql}: {e}"));
    let frame = session.sql(sql).await;
    let frame = frame.unwrap_or_else(|e| panic!("{sql}: {e}"));
    let schema = Arc::clone(frame.schema().inner());
    let rows = tokio::time::timeout(PATIENCE, frame.collect()).await;
    let rows = rows.unwrap_or_else(|_| panic!("no answer in {PATIENCE:?}: {sql}"));
    let rows: Vec<RecordBatch> = rows.unwrap_or_else(|e| panic!("{sql}: {e}"));
    let answer = Answer::new(&schema, &rows).expect("an answer");
    let difference = verify::compare(&expected, &answer, &ordering);
    assert!(difference.is_none(), "{sql}: {difference:?}");
}

/// The 22 queries of a benchmark and `more`, by two executors, whose devices both take part.
async fn check_all(benchmark: Benchmark, scale: f64, more: &[&str]) {
    let scale = Scale::new(scale).expect("a scale");
    let folder = tempfile::tempdir().expect("a folder");
    let tables = tables(folder.path(), benchmark.dataset(scale).expect("data"));
    let cluster = Cluster::start(2).await;
    let session = cluster.session().await;
    register(&session, &tables).await;
    let plain = SessionContext::new();
    register(&plain, &tables).await;
    let numbers: Vec<u8> = (1..=22).collect();
    let queries = benchmark.queries(&numbers, scale).expect("queries");
    for query in &queries {
        check(&session, &plain, (&query.sql, query.reference_sql())).await;
    }
    for sql in more {
        check(&session, &plain, (sql, sql)).await;
    }
    // Stages ran on both devices: each has columns of the files that it read.
    let kept = cluster.devices.iter();
    let kept: Vec<usize> = kept.map(|device| device.resident_columns().len()).collect();
    assert!(kept.iter().all(|columns| *columns > 0), "{kept:?}");
}

#[test]
fn two_executors_with_devices_answer_as_datafusion_does() {
    run(check_all(Benchmark::Tpch, 0.002, &MORE));
}

#[test]
fn two_executors_answer_over_skewed_tables() {
    let benchmark = Benchmark::Jcch {
        bindings: Bindings::Skewed,
        seed: Seed::default(),
    };
    run(check_all(benchmark, 0.003, &[]));
}
