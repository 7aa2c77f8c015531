//! Servers over plain DataFusion, and clients that talk to them over sockets.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod client;
mod flight;
mod http;
mod postgres;
mod robust;
mod safe;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use datafusion::error::Result;
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::physical_plan::{ExecutionPlan, displayable};
use datafusion::prelude::{CsvReadOptions, SessionConfig, SessionContext};
use warpline_serve::{Engine, EngineSession, EngineStatus, Planned, ServeOptions, Server};

/// DataFusion, and no device.
struct Plain;

struct PlainSession(SessionContext);

#[async_trait]
impl Engine for Plain {
    async fn open(&self, runtime: Arc<RuntimeEnv>) -> Result<Arc<dyn EngineSession>> {
        let config = SessionConfig::new()
            .with_information_schema(true)
            .with_target_partitions(2);
        let context = SessionContext::new_with_config_rt(config, runtime);
        Ok(Arc::new(PlainSession(context)))
    }

    async fn register_folder(&self, session: &dyn EngineSession, folder: &Path) -> Result<()> {
        let path = folder.join("numbers.csv");
        let options = CsvReadOptions::new();
        let context = session.context();
        context
            .register_csv("numbers", path.to_string_lossy(), options)
            .await
    }

    fn client_settings(&self) -> &[&str] {
        &["datafusion.execution.batch_size"]
    }

    fn version(&self) -> String {
        "Test 1.0".to_string()
    }

    fn status(&self) -> EngineStatus {
        EngineStatus {
            device: "none".to_string(),
            ..EngineStatus::default()
        }
    }

    fn explain(&self, plan: &Arc<dyn ExecutionPlan>) -> String {
        displayable(plan.as_ref()).indent(false).to_string()
    }
}

#[async_trait]
impl EngineSession for PlainSession {
    fn context(&self) -> &SessionContext {
        &self.0
    }

    async fn plan(self: Arc<Self>, _: &str) -> Result<Option<Planned>> {
        Ok(None)
    }
}

/// A folder with `numbers.csv`: `n` from 1 to 1,000, `half` that is NULL for odd ones, `name`.
struct Data(tempfile::TempDir);

impl Data {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut text = "n,half,name\n".to_string();
        for n in 1..=1000 {
            let half = if n % 2 == 0 {
                (n / 2).to_string()
            } else {
                String::new()
            };
            text.push_str(&format!("{n},{half},name {n}\n"));
        }
        std::fs::create_dir(folder.path().join("data")).unwrap();
        std::fs::write(folder.path().join("data/numbers.csv"), text).unwrap();
        std::fs::write(folder.path().join("secret.csv"), "a\n1\n").unwrap();
        Self(folder)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Both protocols and the page on free ports of loopback.
    fn options(&self) -> ServeOptions {
        let free = "127.0.0.1:0".parse().ok();
        ServeOptions {
            postgres: free,
            flight: free,
            http: free,
            data: vec![self.path("data")],
            drain_timeout: Duration::from_secs(5),
            ..ServeOptions::default()
        }
    }

    /// The same with user `ada`, whose password is `lovelace`.
    fn with_users(&self) -> ServeOptions {
        let path = self.path("users");
        warpline_serve::add_user(&path, "ada", "lovelace").unwrap();
        ServeOptions {
            auth: Some(path),
            ..self.options()
        }
    }
}

async fn start(options: ServeOptions) -> Server {
    Server::start(options, Arc::new(Plain)).await.unwrap()
}

/// What is not done by then never will be.
const HANG: Duration = Duration::from_secs(60);

/// A query that runs for hours.
const LONG: &str =
    "SELECT count(*) FROM generate_series(1, 1000000000) a, generate_series(1, 1000000) b";
