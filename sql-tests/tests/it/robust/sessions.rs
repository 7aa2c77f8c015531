//! Several sessions on one device at once.

use std::sync::Arc;

use datafusion::datasource::MemTable;
use warpline::{Device, WarplineSession};
use warpline_sql_tests::test_device;
use warpline_tpch::runner::reference_answer;
use warpline_tpch::tables::Table;
use warpline_tpch::verify::{self, Answer};
use warpline_tpch::{QueryEngine, Scale, generate};

use super::sql;

/// Sessions that share the device.
const SESSIONS: u8 = 8;

/// As many sessions on one device, over the same tables.
async fn sessions(device: &Device) -> Vec<WarplineSession> {
    let scale = Scale::new(0.01).expect("a scale");
    let tables: Vec<_> = generate::generate(&Table::ALL, scale, 2)
        .expect("data")
        .into_iter()
        .map(|made| {
            let table = MemTable::try_new(made.table.schema(), made.partitions).expect("a table");
            (made.table.name(), Arc::new(table))
        })
        .collect();
    let mut all = Vec::new();
    for _ in 0..SESSIONS {
        let session = WarplineSession::builder()
            .shared_device(device)
            .set("warpline.min_rows", "0")
            .open()
            .await
            .expect("a session");
        for (name, table) in &tables {
            let table = Arc::clone(table);
            session
                .context()
                .register_table(*name, table)
                .expect("registered");
        }
        all.push(session);
    }
    all
}

/// Runs `rounds` queries in each session at once; each session begins with another one. Returns how many parts fell back.
async fn run_all(sessions: &[Arc<WarplineSession>], rounds: u8) -> usize {
    let mut expected = Vec::new();
    for number in 1..=22 {
        let answer = reference_answer(sessions[0].reference(), &sql(number)).await;
        expected.push(answer.expect("the reference"));
    }
    let expected = Arc::new(expected);
    let mut tasks = tokio::task::JoinSet::new();
    for (number, session) in (0..SESSIONS).zip(sessions) {
        let (session, expected) = (Arc::clone(session), Arc::clone(&expected));
        tasks.spawn(async move {
            let mut fallbacks = 0;
            for round in 0..rounds {
                let query = (number * 5 + round) % 22 + 1;
                let run = session.run(&sql(query)).await;
                let run = run.unwrap_or_else(|error| panic!("Q{query}: {error}"));
                let found = Answer::new(&run.schema, &run.batches).expect("an answer");
                let (answer, ordering) = &expected[usize::from(query - 1)];
                if let Some(difference) = verify::compare(answer, &found, ordering) {
                    panic!("Q{query}: {difference}");
                }
                fallbacks += run.metrics.fallbacks.len();
            }
            fallbacks
        });
    }
    tasks.join_all().await.into_iter().sum()
}

fn on_threads(test: impl Future<Output = ()> + Send + 'static) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(4)
        .thread_stack_size(32 << 20)
        .enable_all()
        .build()
        .expect("a runtime");
    let task = runtime.spawn(test);
    runtime.block_on(task).expect("no panic");
}

#[test]
fn eight_sessions_share_a_device_and_its_budget() {
    on_threads(async {
        let device = Device::open(test_device(), None).expect("a device");
        let sessions: Vec<_> = sessions(&device).await.into_iter().map(Arc::new).collect();
        let fallbacks = run_all(&sessions, 3).await;
        assert_eq!(fallbacks, 0, "there is memory for all");
        let memory = device.memory().expect("memory");
        assert_eq!(memory.queries, 0);

        // Room for any one of them, not for all: they wait for each other, and some run alone.
        let mut most = 0;
        for number in [9, 18, 21] {
            let run = sessions[0].run(&sql(number)).await.expect("an answer");
            most = most.max(run.metrics.peak_device_bytes.expect("a peak"));
        }
        let budget = usize::try_from(most).expect("a size") * 3 / 2;
        let setting = budget.to_string();
        let outcome = sessions[0].set("warpline.device_memory", &setting).await;
        outcome.expect("set");
        sessions[0]
            .run("SELECT count(*) FROM region")
            .await
            .expect("an answer");
        assert_eq!(device.memory().expect("memory").budget, budget);
        run_all(&sessions, 3).await;
        let memory = device.memory().expect("memory");
        assert!(memory.in_use <= budget, "{memory:?}");
        assert!(memory.ladder.evictions > 0, "{memory:?}");
        assert_eq!(memory.queries, 0);
        for session in &sessions {
            session.clear_plan_cache();
        }
        device.evict().expect("evicted");
        assert_eq!(device.memory().expect("memory").in_use, 0);
    });
}
