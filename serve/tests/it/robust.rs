//! Malformed packets, clients that go or do not read, too many of them, and a server that stops.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use bytes::{BufMut, BytesMut};
use datafusion::arrow::datatypes::DataType;
use datafusion::catalog::CatalogProviderList;
use datafusion::error::Result;
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::logical_expr::{ColumnarValue, Volatility, create_udf};
use datafusion::physical_plan::{ExecutionPlan, displayable};
use postgres_protocol::message::frontend;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use warpline_serve::{Engine, EngineSession, EngineStatus, ServeOptions, Server};

use crate::client::{Client, bind};
use crate::http::get;
use crate::{Data, HANG, LONG, Plain, start};

/// Bytes that are the same in each run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn bytes(&mut self, most: u64) -> Vec<u8> {
        let count = self.next() % most;
        (0..count).map(|_| self.next() as u8).collect()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn random_bytes_end_their_connection_only() {
    let data = Data::new();
    let server = start(data.options()).await;
    let address = server.postgres().unwrap();
    let mut random = Random(7);
    let mut good = Client::connect(address).await;
    for round in 0..60 {
        let mut client = match round % 2 {
            0 => Client::raw(address).await,
            _ => Client::connect(address).await,
        };
        let mut out = BytesMut::new();
        if round % 3 == 0 {
            // A message that is whole on the outside.
            let body = random.bytes(64);
            let tags = b"QPBEDSCHXpdcf";
            out.put_u8(tags[random.next() as usize % tags.len()]);
            out.put_u32(body.len() as u32 + 4);
            out.put_slice(&body);
        } else {
            out.put_slice(&random.bytes(200));
        }
        client.write(&out).await;
        for address in [server.flight(), server.http()] {
            let mut other = TcpStream::connect(address.unwrap()).await.unwrap();
            let _ = other.write_all(&random.bytes(200)).await;
        }
    }
    assert_eq!(good.rows("SELECT count(*) FROM numbers").await, [["1000"]]);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn malformed_messages_are_errors() {
    let data = Data::new();
    let server = start(data.options()).await;
    let address = server.postgres().unwrap();
    // More formats than columns, fewer values than parameters, a portal that is none.
    let mut client = Client::connect(address).await;
    let mut out = BytesMut::new();
    frontend::parse("", "SELECT 1, 2, 3", [], &mut out).unwrap();
    let empty: [Option<&str>; 0] = [];
    let none = |_: &Option<&str>, _: &mut BytesMut| Ok(postgres_protocol::IsNull::Yes);
    assert!(frontend::bind("", "", [], empty.iter(), none, [1i16, 1], &mut out).is_ok());
    frontend::describe(b'P', "", &mut out).unwrap();
    frontend::execute("", 0, &mut out).unwrap();
    frontend::sync(&mut out);
    client.write(&out).await;
    assert_eq!(client.answer().await.unwrap_err().0, "08P01");
    let mut out = BytesMut::new();
    frontend::execute("nothing", 0, &mut out).unwrap();
    frontend::sync(&mut out);
    client.write(&out).await;
    assert_eq!(client.answer().await.unwrap_err().0, "34000");
    let mut out = BytesMut::new();
    frontend::parse("", "SELECT $70000", [], &mut out).unwrap();
    bind(&[], &mut out);
    frontend::sync(&mut out);
    client.write(&out).await;
    assert!(client.answer().await.is_err());
    assert_eq!(client.rows("SELECT 1").await, [["1"]]);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn queries_of_clients_that_are_gone_stop() {
    let data = Data::new();
    let options = ServeOptions {
        max_queries: 1,
        ..data.options()
    };
    let server = start(options).await;
    let address = server.postgres().unwrap();
    let mut client = Client::connect(address).await;
    client.send(LONG).await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    drop(client);
    // There is one place, which the query of nobody must give back.
    let begun = Instant::now();
    let mut client = Client::connect(address).await;
    assert_eq!(client.rows("SELECT 1").await, [["1"]]);
    assert!(begun.elapsed() < HANG);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_does_not_read_is_let_go() {
    let data = Data::new();
    let options = ServeOptions {
        max_queries: 1,
        send_timeout: Duration::from_secs(1),
        ..data.options()
    };
    let server = start(options).await;
    let address = server.postgres().unwrap();
    let mut slow = Client::connect(address).await;
    slow.send("SELECT repeat('x', 1000) FROM generate_series(1, 1000000)")
        .await;
    let mut client = Client::connect(address).await;
    let begun = Instant::now();
    assert_eq!(client.rows("SELECT 1").await, [["1"]]);
    assert!(begun.elapsed() < HANG);
    drop(slow);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn too_many_connections_are_told() {
    let data = Data::new();
    let options = ServeOptions {
        max_connections: 2,
        ..data.options()
    };
    let server = start(options).await;
    let address = server.postgres().unwrap();
    let first = Client::connect(address).await;
    let _second = Client::connect(address).await;
    let refusal = Client::log_in(address, "x", "").await.err().unwrap();
    assert_eq!(refusal.0, "53300");
    drop(first);
    // The server has to notice that a client went away.
    let begun = Instant::now();
    while Client::log_in(address, "x", "").await.is_err() {
        assert!(begun.elapsed() < HANG);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_stops_lets_queries_end() {
    let data = Data::new();
    let server = start(ServeOptions {
        drain_timeout: Duration::from_secs(8),
        ..data.options()
    })
    .await;
    let address = server.postgres().unwrap();
    let (mut short, mut long, mut idle) = (
        Client::connect(address).await,
        Client::connect(address).await,
        Client::connect(address).await,
    );
    short
        .send("SELECT count(*) FROM generate_series(1, 300000)")
        .await;
    long.send(LONG).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    let begun = Instant::now();
    let stopped = tokio::spawn(server.stop());
    assert_eq!(idle.read().await.unwrap().refusal().0, "57P01");
    assert_eq!(short.answer().await.unwrap().rows.len(), 1);
    assert_eq!(long.answer().await.unwrap_err().0, "57P01");
    stopped.await.unwrap();
    assert!(begun.elapsed() < HANG);
    assert!(TcpStream::connect(address).await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn many_clients_at_once_get_their_own_answers() {
    let data = Data::new();
    let options = ServeOptions {
        max_queries: 3,
        ..data.options()
    };
    let server = start(options).await;
    let address = server.postgres().unwrap();
    let mut tasks = tokio::task::JoinSet::new();
    for client in 0..24 {
        tasks.spawn(async move {
            let mut connection = Client::connect(address).await;
            for round in 0..5 {
                let n = client * 10 + round + 1;
                let rows = connection
                    .rows(&format!("SELECT name FROM numbers WHERE n = {n}"))
                    .await;
                assert_eq!(rows, [[format!("name {n}")]]);
            }
        });
    }
    while let Some(task) = tasks.join_next().await {
        task.unwrap();
    }
    server.stop().await;
}

/// DataFusion with a function `hold`, which keeps its thread until it is let go.
#[derive(Default)]
struct Busy {
    held: Arc<AtomicUsize>,
    let_go: Arc<AtomicBool>,
    /// The catalogs of sessions that were opened.
    opened: Arc<Mutex<Vec<Weak<dyn CatalogProviderList>>>>,
}

#[async_trait]
impl Engine for Busy {
    async fn open(&self, runtime: Arc<RuntimeEnv>) -> Result<Arc<dyn EngineSession>> {
        let session = Plain.open(runtime).await?;
        let (held, let_go) = (Arc::clone(&self.held), Arc::clone(&self.let_go));
        let hold = move |values: &[ColumnarValue]| {
            held.fetch_add(1, Ordering::SeqCst);
            let begun = Instant::now();
            while !let_go.load(Ordering::SeqCst) {
                assert!(begun.elapsed() < HANG, "nobody was heard");
                std::thread::sleep(Duration::from_millis(1));
            }
            Ok(values[0].clone())
        };
        let int = DataType::Int64;
        let function = create_udf(
            "hold",
            vec![int.clone()],
            int,
            Volatility::Volatile,
            Arc::new(hold),
        );
        session.context().register_udf(function);
        let catalogs = Arc::downgrade(session.context().state().catalog_list());
        self.opened.lock().unwrap().push(catalogs);
        Ok(session)
    }

    async fn register_folder(&self, session: &dyn EngineSession, folder: &Path) -> Result<()> {
        Plain.register_folder(session, folder).await
    }

    fn client_settings(&self) -> &[&str] {
        Plain.client_settings()
    }

    fn version(&self) -> String {
        Plain.version()
    }

    fn status(&self) -> EngineStatus {
        Plain.status()
    }

    fn explain(&self, plan: &Arc<dyn ExecutionPlan>) -> String {
        displayable(plan.as_ref()).indent(false).to_string()
    }
}

/// As many threads as the test has hold still, and all that are not queries go on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queries_that_compute_without_a_pause_keep_nobody_from_being_heard() {
    let data = Data::new();
    let busy = Busy::default();
    let (held, let_go) = (Arc::clone(&busy.held), Arc::clone(&busy.let_go));
    let server = Server::start(data.options(), Arc::new(busy)).await.unwrap();
    let mut clients = Vec::new();
    for _ in 0..2 {
        let mut client = Client::connect(server.postgres().unwrap()).await;
        client.send("SELECT max(hold(n)) FROM numbers").await;
        clients.push(client);
    }
    let begun = Instant::now();
    while held.load(Ordering::SeqCst) < 2 {
        assert!(begun.elapsed() < HANG);
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let health = get(server.http().unwrap(), "/health", "Host: localhost\r\n").await;
    assert!(health.ends_with("ok\n"), "{health}");
    // So is somebody who comes only now.
    let another = Client::connect(server.postgres().unwrap()).await;
    let_go.store(true, Ordering::SeqCst);
    for mut client in clients {
        let answer = client.answer().await.unwrap();
        assert_eq!(crate::client::shown(answer.rows), [["1000"]]);
    }
    drop(another);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_of_a_session_stays_when_its_client_is_gone() {
    let data = Data::new();
    let busy = Busy::default();
    let opened = Arc::clone(&busy.opened);
    let living = || {
        let opened = opened.lock().unwrap();
        let living = opened.iter().filter(|session| session.strong_count() > 0);
        (living.count(), opened.len())
    };
    let server = Server::start(data.options(), Arc::new(busy)).await.unwrap();
    let (kept, before) = living();
    let statements = [
        "SELECT relname FROM pg_catalog.pg_class",
        "SELECT 1 / 0",
        "CREATE TABLE mine AS SELECT * FROM numbers",
        LONG,
    ];
    for sql in statements {
        let mut client = Client::connect(server.postgres().unwrap()).await;
        client.send(sql).await;
        if sql != LONG {
            // An error is an answer as well.
            let _ = client.answer().await;
        }
        assert!(living().0 > kept, "{sql}");
    }
    assert_eq!(living().1, before + statements.len());
    let begun = Instant::now();
    while living().0 > kept {
        assert!(begun.elapsed() < HANG, "{:?}", living());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    server.stop().await;
}
