//! Workers: the same answers as one process, and what callers may not do. Workers of this process, over sockets, and as programs.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use datafusion::arrow::util::pretty::pretty_format_batches;
use datafusion::execution::runtime_env::RuntimeEnv;
use tempfile::TempDir;
use warpline::{
    Cluster, ClusterOptions, Device, DeviceChoice, QueryRun, WarplineSession, Worker, WorkerOptions,
};
use warpline_tpch::files::FileFormat;
use warpline_tpch::runner::reference_answer;
use warpline_tpch::tables::Table;
use warpline_tpch::verify::{self, Answer};
use warpline_tpch::{Scale, data, files, queries};

use super::{kernel_cache, on_a_large_stack, run as program};

const SECRET: &str = "correct-horse-battery-staple";

fn device(choice: DeviceChoice) -> Device {
    Device::open(choice, None).expect("a device")
}

/// The tables of TPC-H as files of a folder.
fn tables(folder: &Path, scale: f64) -> PathBuf {
    let scale = Scale::new(scale).expect("a scale");
    let path = folder.join("tables");
    let go_on = AtomicBool::new(false);
    files::write_tables(&Table::ALL, scale, FileFormat::Parquet, &path, 2, &go_on).expect("files");
    path
}

/// The same, each of the large ones in several files.
pub(super) async fn tables_of_files(folder: &Path, scale: f64) -> PathBuf {
    let whole = tables(folder, scale);
    let path = folder.join("files");
    let session = WarplineSession::builder()
        .device(DeviceChoice::Cpu)
        .set("datafusion.execution.batch_size", "100")
        .open()
        .await
        .expect("a session");
    let registered = data::register(&session, &whole, &Table::ALL).await;
    registered.expect("tables");
    for table in Table::ALL {
        let name = table.name();
        let folder = path.join(name);
        let sql = format!("COPY {name} TO '{}/' STORED AS PARQUET", folder.display());
        session.query(&sql).await.expect(&sql);
        if matches!(table, Table::Lineitem | Table::Orders) {
            let files = fs::read_dir(&folder).expect("a folder").count();
            assert!(files >= 3, "{name}: {files}");
        }
    }
    path
}

fn file(folder: &Path, name: &str, text: &str) -> PathBuf {
    let path = folder.join(name);
    fs::write(&path, text).expect("a file");
    path
}

/// Workers of this process, one a device.
async fn in_process(devices: &[Device]) -> Cluster {
    let runtime = Arc::new(RuntimeEnv::default());
    let cluster = Cluster::in_process(devices, &runtime).await;
    cluster.expect("workers")
}

/// A folder with the tables, and with the file of a secret.
fn with_secret(scale: f64) -> (TempDir, PathBuf, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let tables = tables(folder.path(), scale);
    let secret = file(folder.path(), "secret", SECRET);
    (folder, tables, secret)
}

/// A session that distributes even small files; its own device is the CPU.
async fn session(cluster: &Cluster, tables: &Path) -> WarplineSession {
    let session = WarplineSession::builder()
        .device(DeviceChoice::Cpu)
        .cluster(cluster)
        .set("datafusion.execution.target_partitions", "2")
        .set("distributed.file_scan_config_bytes_per_partition", "4096")
        .set("warpline.min_rows", "0")
        // Whatever it costs: the tables are small.
        .set("warpline.reentry", "on")
        .open()
        .await
        .expect("a session");
    data::register(&session, tables, &Table::ALL)
        .await
        .expect("tables");
    session
}

pub(super) fn text(run: &QueryRun) -> String {
    pretty_format_batches(&run.batches)
        .expect("a table")
        .to_string()
}

/// What plain DataFusion answers.
pub(super) async fn by_datafusion(session: &WarplineSession, sql: &str) -> String {
    let frame = session.reference().sql(sql).await.expect("a plan");
    let batches = frame.collect().await.expect("rows");
    pretty_format_batches(&batches)
        .expect("a table")
        .to_string()
}

pub(super) async fn explain(session: &WarplineSession, sql: &str) -> String {
    let run = session.query(&format!("EXPLAIN {sql}")).await;
    text(&run.expect("a plan"))
}

/// Runs all 22 queries, and compares each with plain DataFusion.
async fn all_queries(session: &WarplineSession) {
    for query in queries::ALL.iter() {
        let (expected, ordering) = reference_answer(session.reference(), query.reference_sql())
            .await
            .unwrap_or_else(|e| panic!("Q{}: {e}", query.number));
        let run = session
            .query(&query.sql)
            .await
            .unwrap_or_else(|e| panic!("Q{}: {e}", query.number));
        let answer = Answer::new(&run.schema, &run.batches).expect("an answer");
        let difference = verify::compare(&expected, &answer, &ordering);
        assert!(difference.is_none(), "Q{}: {difference:?}", query.number);
    }
}

async fn tpch_in_process(choice: DeviceChoice) {
    let folder = tempfile::tempdir().expect("a folder");
    let tables = match choice {
        DeviceChoice::Cpu => tables(folder.path(), 0.002),
        // Devices take whole files.
        _ => tables_of_files(folder.path(), 0.002).await,
    };
    let devices: Vec<Device> = (0..3).map(|_| device(choice)).collect();
    let cluster = in_process(&devices).await;
    assert_eq!(cluster.workers().len(), 3);
    let session = session(&cluster, &tables).await;
    let plan = explain(&session, &queries::ALL[2].sql).await;
    assert!(
        plan.contains("NetworkShuffleExec") && plan.contains("tasks=3"),
        "{plan}"
    );
    all_queries(&session).await;
    // Every worker's device has columns of the files that it read.
    let kept = devices.iter().map(|device| device.resident_columns().len());
    let kept: Vec<usize> = kept.collect();
    match choice {
        DeviceChoice::Cpu => assert_eq!(kept, [0; 3]),
        _ => assert!(kept.iter().all(|columns| *columns > 0), "{kept:?}"),
    }
}

#[test]
fn tpch_on_three_workers_of_this_process() {
    on_a_large_stack(|| tpch_in_process(DeviceChoice::Cpu));
}

#[test]
fn tpch_on_three_workers_with_devices() {
    on_a_large_stack(|| tpch_in_process(DeviceChoice::Emulator));
}

#[test]
fn metrics_of_placed_stages_come_back() {
    on_a_large_stack(async || {
        let folder = tempfile::tempdir().expect("a folder");
        let tables = tables_of_files(folder.path(), 0.002).await;
        let devices: Vec<Device> = (0..2).map(|_| device(DeviceChoice::Emulator)).collect();
        let session = session(&in_process(&devices).await, &tables).await;
        for query in [3, 5, 13, 18] {
            let sql = format!("ANALYZE {}", queries::ALL[query - 1].sql);
            let plan = explain(&session, &sql).await;
            for part in ["DistributedExec", "Stage 1", "output_rows="] {
                assert!(plan.contains(part), "Q{query}: {plan}");
            }
        }
        // A join below the exchange runs on the device of each worker, which counts its kernels.
        let sql = "ANALYZE SELECT o_orderkey, n_name FROM orders JOIN customer ON o_custkey = c_custkey \
                   JOIN nation ON c_nationkey = n_nationkey WHERE o_orderkey % 7 = 0";
        let plan = explain(&session, sql).await;
        assert!(plan.contains("kernels="), "{plan}");
    });
}

#[test]
fn what_is_not_distributed_runs_here() {
    on_a_large_stack(async || {
        let folder = tempfile::tempdir().expect("a folder");
        let tables = tables(folder.path(), 0.001);
        let cluster = in_process(&[device(DeviceChoice::Cpu)]).await;
        let session = WarplineSession::builder()
            .device(DeviceChoice::Emulator)
            .cluster(&cluster)
            .set("warpline.min_rows", "0");
        let session = session.open().await.expect("a session");
        data::register(&session, &tables, &Table::ALL)
            .await
            .expect("tables");
        session
            .query("CREATE TABLE t AS SELECT value AS v FROM generate_series(1, 100)")
            .await
            .expect("a table");
        let sql = "SELECT sum(v) AS s FROM t";
        let plan = explain(&session, sql).await;
        assert!(
            plan.contains("GpuFragmentExec") && !plan.contains("Network"),
            "{plan}"
        );
        let run = session.query(sql).await.expect("an answer");
        assert!(text(&run).contains("5050"));
        assert!(run.metrics.kernels > 0);
        let small = "SELECT count(*) FROM nation";
        let plan = explain(&session, small).await;
        assert!(!plan.contains("Network"), "{plan}");
    });
}

#[test]
fn windows_that_would_arrive_changed_run_here() {
    on_a_large_stack(async || {
        let folder = tempfile::tempdir().expect("a folder");
        let tables = tables_of_files(folder.path(), 0.002).await;
        let devices: Vec<Device> = (0..3).map(|_| device(DeviceChoice::Cpu)).collect();
        let session = session(&in_process(&devices).await, &tables).await;
        let over = "OVER (PARTITION BY o_custkey ORDER BY o_orderdate, o_orderkey)";
        let back = "OVER (PARTITION BY o_custkey ORDER BY o_orderdate DESC, o_orderkey DESC)";
        let status = "nullif(o_orderstatus, 'F')";
        let of = |columns: String| {
            format!("SELECT o_orderkey, {columns} FROM orders ORDER BY o_orderkey")
        };
        // What passes over NULL needs no filter.
        for columns in [
            format!("row_number() {over} AS a, sum(o_orderkey) {over} AS b"),
            "count(*) FILTER (WHERE o_totalprice > 100000) OVER (PARTITION BY o_custkey) AS a"
                .to_string(),
            format!("sum(o_orderkey) FILTER (WHERE o_orderkey % 3 = 0) {over} AS a"),
        ] {
            let sql = of(columns);
            let run = session.query(&sql).await.expect(&sql);
            assert_eq!(text(&run), by_datafusion(&session, &sql).await, "{sql}");
            let plan = explain(&session, &sql).await;
            assert!(plan.contains("Network"), "{plan}");
        }
        for (columns, lost) in [
            (
                format!("array_agg(o_orderkey) FILTER (WHERE o_orderkey % 3 = 0) {over} AS a"),
                "the FILTER",
            ),
            (
                format!("last_value({status}) IGNORE NULLS {over} AS a"),
                "IGNORE NULLS",
            ),
            (
                format!("lead(o_orderkey, 2) {over} AS a, lag(o_orderkey) {back} AS b"),
                "the direction",
            ),
        ] {
            let sql = of(columns);
            let run = session.query(&sql).await.expect(&sql);
            assert_eq!(text(&run), by_datafusion(&session, &sql).await, "{sql}");
            let plan = explain(&session, &sql).await;
            assert!(
                plan.contains("not distributed: ") && plan.contains(lost),
                "{plan}"
            );
        }
    });
}

/// Two workers over sockets of this machine, with a secret and one folder.
async fn over_sockets(secret: &Path, data: &Path, tls: Option<(&Path, &Path)>) -> Vec<Worker> {
    let mut workers = Vec::new();
    for _ in 0..2 {
        let options = WorkerOptions {
            data: vec![data.to_path_buf()],
            secret_file: Some(secret.to_path_buf()),
            tls: tls.map(|(certificate, key)| (certificate.to_path_buf(), key.to_path_buf())),
            ..WorkerOptions::at("127.0.0.1:0".parse().expect("an address"))
        };
        let worker = Worker::start(options, &device(DeviceChoice::Cpu)).await;
        workers.push(worker.expect("a worker"));
    }
    workers
}

fn options(urls: Vec<String>, secret: Option<&Path>) -> ClusterOptions {
    ClusterOptions {
        workers: urls,
        secret_file: secret.map(Path::to_path_buf),
        ..ClusterOptions::default()
    }
}

#[test]
fn callers_reach_nothing_that_they_were_not_given() {
    on_a_large_stack(async || {
        let (folder, tables, secret) = with_secret(0.002);
        let folder = folder.path();
        let workers = over_sockets(&secret, &tables, None).await;
        let urls: Vec<String> = workers.iter().map(Worker::url).collect();

        let wrong = file(folder, "wrong", "correct-horse-battery-stable");
        for secret in [None, Some(wrong.as_path())] {
            let refused = Cluster::connect(options(urls.clone(), secret)).await;
            let message = refused.map(drop).expect_err("no entry").to_string();
            assert!(
                message.contains("secret") && message.contains(&urls[0]),
                "{message}"
            );
            assert!(!message.contains("horse"), "{message}");
        }
        let cluster = Cluster::connect(options(urls.clone(), Some(&secret))).await;
        let cluster = cluster.expect("workers");
        let session = session(&cluster, &tables).await;
        let sql = "SELECT l_shipmode, count(*) AS n FROM lineitem GROUP BY l_shipmode ORDER BY 1";
        let expected = by_datafusion(&session, sql).await;
        let run = session.query(sql).await.expect("an answer");
        assert_eq!(text(&run), expected);
        let plan = explain(&session, sql).await;
        assert!(plan.contains(&format!("worker {}: cpu", urls[1])), "{plan}");

        // The coordinator can read it, and the workers may not.
        let outside = folder.join("outside");
        fs::create_dir(&outside).expect("a folder");
        let part = fs::read_dir(tables.join("lineitem")).expect("files").next();
        let part = part.expect("one").expect("a file").path();
        fs::copy(part, outside.join("part.parquet")).expect("a copy");
        let location = outside.display();
        session
            .query(&format!(
                "CREATE EXTERNAL TABLE o STORED AS PARQUET LOCATION '{location}'"
            ))
            .await
            .expect("a table");
        let sql = "SELECT l_shipmode, count(*) FROM o GROUP BY l_shipmode";
        let refused = session.query(sql).await.map(drop);
        let message = refused.expect_err("no access").to_string();
        assert!(
            message.contains("outside/part.parquet") && message.contains("--data"),
            "{message}"
        );

        // A setting of the query arrives: an hour's count differs by the zone.
        let sql = "SELECT DISTINCT to_char(to_timestamp(l_orderkey * 0), '%H') AS h FROM lineitem";
        for zone in ["+00:00", "+05:00"] {
            session
                .set("datafusion.execution.time_zone", zone)
                .await
                .expect("a setting");
            let expected = by_datafusion(&session, sql).await;
            let run = session.query(sql).await.expect("an answer");
            assert_eq!(text(&run), expected, "{zone}");
        }
        for worker in workers {
            worker.stop().await;
        }
    });
}

#[test]
fn tls_is_checked_on_both_sides() {
    on_a_large_stack(async || {
        let (_folder, tables, secret) = with_secret(0.001);
        let pem = Path::new(env!("CARGO_MANIFEST_DIR")).join("../serve/tests/it");
        let (certificate, key) = (pem.join("certificate.pem"), pem.join("key.pem"));
        let workers = over_sockets(&secret, &tables, Some((&certificate, &key))).await;
        let url = |worker: &Worker| format!("https://localhost:{}", worker.address().port());
        let urls: Vec<String> = workers.iter().map(url).collect();
        let unchecked = Cluster::connect(options(urls.clone(), Some(&secret))).await;
        let message = unchecked.map(drop).expect_err("no trust").to_string();
        assert!(message.contains("certificate"), "{message}");
        let trusting = ClusterOptions {
            tls_ca: Some(certificate),
            ..options(urls, Some(&secret))
        };
        let cluster = Cluster::connect(trusting).await.expect("workers");
        let session = session(&cluster, &tables).await;
        // Rows go from worker to worker.
        let sql = "SELECT count(*) AS n FROM orders JOIN lineitem ON o_orderkey = l_orderkey";
        let run = session.query(sql).await.expect("an answer");
        let expected = by_datafusion(&session, sql).await;
        assert_eq!(text(&run), expected);
    });
}

/// A worker as a program.
struct Started {
    child: Child,
    url: String,
}

impl Started {
    fn new(data: &Path, secret: &Path, listen: &str) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_warpline"))
            .args(["worker", "--device", "cpu", "--listen", listen])
            .arg("--data")
            .arg(data)
            .arg("--secret-file")
            .arg(secret)
            .env("WARPLINE_CACHE_DIR", kernel_cache())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let lines = BufReader::new(child.stdout.take().expect("its output")).lines();
        let url = lines
            .map_while(Result::ok)
            .find_map(|line| Some(line.strip_prefix("worker ")?.trim().to_string()));
        let url = url.expect("an address");
        Self { child, url }
    }

    fn kill(&mut self) {
        self.child.kill().expect("it ends");
        self.child.wait().expect("it ended");
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_lost_worker_is_named_and_the_others_go_on() {
    on_a_large_stack(async || {
        let (_folder, tables, secret) = with_secret(0.002);
        let start = |listen: &str| Started::new(&tables, &secret, listen);
        let mut workers: Vec<Started> = (0..3).map(|_| start("127.0.0.1:0")).collect();
        let urls: Vec<String> = workers.iter().map(|worker| worker.url.clone()).collect();
        let cluster = Cluster::connect(options(urls.clone(), Some(&secret))).await;
        let cluster = cluster.expect("workers");
        let session = session(&cluster, &tables).await;
        let sql =
            "SELECT count(*) AS n FROM lineitem a JOIN lineitem b ON a.l_orderkey = b.l_orderkey";
        let run = session.query(sql).await.expect("an answer");
        let expected = text(&run);

        // Planned for three, run when one is gone.
        let query = session
            .prepare(sql)
            .await
            .expect("a plan")
            .expect("a query");
        workers[1].kill();
        let mut stream = query.stream().expect("a stream");
        let mut outcome = Ok(());
        while let Some(batch) = futures::StreamExt::next(&mut stream).await {
            outcome = outcome.and(batch.map(drop));
        }
        let message = outcome.expect_err("a lost worker").to_string();
        assert!(
            message.contains(&urls[1]) && message.contains("lost"),
            "{message}"
        );
        drop(stream);
        drop(query);

        let run = session.query(sql).await.expect("an answer of two");
        assert_eq!(text(&run), expected);
        assert_eq!(cluster.workers().len(), 2);
        let plan = explain(&session, sql).await;
        assert!(
            plan.contains(&format!("worker {}: lost", urls[1])),
            "{plan}"
        );

        // One that comes back is used again.
        let listen = urls[1].trim_start_matches("http://").to_string();
        workers[1] = start(&listen);
        tokio::time::sleep(std::time::Duration::from_millis(1100)).await;
        let run = session.query(sql).await.expect("an answer of three");
        assert_eq!(text(&run), expected);
        assert_eq!(cluster.workers().len(), 3);
    });
}

#[test]
fn the_shell_and_the_benchmark_use_workers() {
    let (_folder, tables, secret) = with_secret(0.002);
    let workers: Vec<Started> = (0..2)
        .map(|_| Started::new(&tables, &secret, "127.0.0.1:0"))
        .collect();
    let urls: Vec<&str> = workers.iter().map(|worker| worker.url.as_str()).collect();
    let (urls, secret) = (urls.join(","), secret.display().to_string());
    let tables = tables.display().to_string();
    let cluster = ["--cluster", &urls, "--cluster-secret-file", &secret];
    let small = [
        "--set",
        "distributed.file_scan_config_bytes_per_partition=4096",
    ];
    let sql = format!("EXPLAIN SELECT l_shipmode, count(*) FROM '{tables}/lineitem' GROUP BY 1");
    let shell = [&cluster[..], &small, &["--device", "cpu", "-c", &sql]].concat();
    let outcome = program(&shell).ok();
    assert!(
        outcome.stdout.contains("NetworkShuffleExec"),
        "{}",
        outcome.stdout
    );
    let tpch = [
        "tpch", "--data", &tables, "--query", "1,6,14", "--runs", "1", "--verify",
    ];
    let tpch = [&tpch[..], &cluster, &small, &["--device", "cpu"]].concat();
    program(&tpch).ok();
    program(&["--cluster", &urls, "-c", "SELECT 1"]).fails_with(&["secret"]);
}

#[test]
fn a_worker_that_others_could_misuse_does_not_start() {
    let folder = tempfile::tempdir().expect("a folder");
    let short = file(folder.path(), "short", "short").display().to_string();
    let open = ["worker", "--device", "cpu", "--listen", "0.0.0.0:0"];
    program(&open).fails_with(&["--secret-file", "--tls-cert", "--insecure"]);
    let local = ["worker", "--device", "cpu", "--listen", "127.0.0.1:0"];
    program(&[&local[..], &["--secret-file", &short]].concat()).fails_with(&["16"]);
    program(&[&local[..], &["--data", "nowhere"]].concat()).fails_with(&["nowhere"]);
    program(&["--cluster", "http://127.0.0.1:9", "-c", "SELECT 1"])
        .fails_with(&["no worker answers"]);
    program(&["--cluster", "ftp://here", "-c", "SELECT 1"]).fails_with(&["http://HOST:PORT"]);
}
