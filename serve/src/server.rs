//! A server: checks that it is safe to start, opens the ports, and drains queries when it stops.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use datafusion::catalog::TableProvider;
use datafusion::error::DataFusionError;
use datafusion::execution::runtime_env::RuntimeEnv;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

use crate::admission::Admission;
use crate::auth::Users;
use crate::engine::Engine;
use crate::error::StartError;
use crate::options::ServeOptions;
use crate::registry::{Registry, Stop};
use crate::remote::{self, StoreFolder};
use crate::shared::Shared;
use crate::store::FolderStore;
use crate::threads::QueryThreads;
use crate::tls::Tls;
use crate::{flight, http, postgres};

/// How long queries that were told to stop may take for it.
const LAST_WORK: Duration = Duration::from_secs(5);

/// How often a server that stops looks whether queries still run.
const LOOK: Duration = Duration::from_millis(20);

/// How long connections without queries may take to end.
const GOODBYE: Duration = Duration::from_secs(1);

/// A running server.
pub struct Server {
    shared: Arc<Shared>,
    stop: watch::Sender<bool>,
    tasks: JoinSet<()>,
    postgres: Option<SocketAddr>,
    flight: Option<SocketAddr>,
    http: Option<SocketAddr>,
}

impl Server {
    /// Opens the ports and serves until [`Self::stop`].
    ///
    /// # Errors
    /// [`StartError`]: an address that is reachable from elsewhere without users and TLS, files that cannot be used, ports that
    /// are taken.
    pub async fn start(options: ServeOptions, engine: Arc<dyn Engine>) -> Result<Self, StartError> {
        check_addresses(&options)?;
        let users = options.auth.as_deref();
        let users = users
            .map(|path| Users::read(path, options.limits))
            .transpose()?;
        let tls = options.tls.as_ref();
        let tls = tls
            .map(|(certificate, key)| Tls::read(certificate, key))
            .transpose()?;
        let files = FolderStore::open(&options.data)?;
        let data = |error: DataFusionError| StartError::Data(Box::new(error));
        let runtime = files.runtime().map_err(data)?;
        remote::register(&runtime, &options.stores);
        let tables = tables(&*engine, &runtime, files.folders(), &options.stores);
        let tables = tables.await.map_err(data)?;
        let (stop, stopping) = watch::channel(false);
        let shared = Arc::new(Shared {
            registry: Registry::new(options.query_log.as_deref())?,
            admission: Admission::new(
                options.max_queries,
                options.max_queued,
                options.queue_timeout,
            ),
            threads: QueryThreads::start().map_err(StartError::Threads)?,
            connections: Arc::new(Semaphore::new(options.max_connections)),
            began: Instant::now(),
            sessions: AtomicU64::new(1),
            options,
            engine,
            runtime,
            tables,
            users,
            stopping,
        });
        let mut tasks = JoinSet::new();
        let mut postgres = None;
        if let Some(address) = shared.options.postgres {
            let (listener, address) = listen(address).await?;
            postgres = Some(address);
            let acceptor = tls.as_ref().map(|tls| tls.acceptor(&[b"postgresql"]));
            let acceptor = acceptor.transpose()?;
            tasks.spawn(postgres::serve(Arc::clone(&shared), listener, acceptor));
        }
        let mut flight = None;
        if let Some(address) = shared.options.flight {
            let (listener, address) = listen(address).await?;
            flight = Some(address);
            let serve = flight::serve(Arc::clone(&shared), listener, tls.as_ref());
            tasks.spawn(serve?);
        }
        let mut http = None;
        if let Some(address) = shared.options.http {
            let (listener, address) = listen(address).await?;
            http = Some(address);
            let acceptor = tls.as_ref().map(|tls| tls.acceptor(&[b"http/1.1"]));
            let acceptor = acceptor.transpose()?;
            tasks.spawn(http::serve(Arc::clone(&shared), listener, acceptor));
        }
        Ok(Self {
            shared,
            stop,
            tasks,
            postgres,
            flight,
            http,
        })
    }

    /// Where PostgreSQL clients connect.
    pub fn postgres(&self) -> Option<SocketAddr> {
        self.postgres
    }

    /// Where Flight SQL clients connect.
    pub fn flight(&self) -> Option<SocketAddr> {
        self.flight
    }

    /// Where the page is.
    pub fn http(&self) -> Option<SocketAddr> {
        self.http
    }

    /// The names of the tables that all clients see.
    pub fn tables(&self) -> Vec<&str> {
        let tables = self.shared.tables.iter();
        tables.map(|(name, _)| name.as_str()).collect()
    }

    /// Takes no more connections and queries, waits for those that run, and stops them when that takes too long.
    pub async fn stop(mut self) {
        self.stop.send_replace(true);
        let registry = &self.shared.registry;
        let tasks = &mut self.tasks;
        let all = async {
            // Clients of Flight SQL may hold their connections open for as long as they like.
            while !registry.running().is_empty() {
                tokio::time::sleep(LOOK).await;
            }
            let rest = async { while tasks.join_next().await.is_some() {} };
            let _ = tokio::time::timeout(GOODBYE, rest).await;
        };
        tokio::pin!(all);
        let patience = self.shared.options.drain_timeout;
        if tokio::time::timeout(patience, &mut all).await.is_err() {
            self.shared.registry.cancel_all(Stop::Shutdown);
            if tokio::time::timeout(LAST_WORK, all).await.is_err() {
                log::warn!("queries that were told to stop went on; the server ends all the same");
            }
        }
    }
}

/// Refuses what others on the network could misuse.
fn check_addresses(options: &ServeOptions) -> Result<(), StartError> {
    if options.postgres.is_none() && options.flight.is_none() {
        return Err(StartError::Nothing);
    }
    if options.insecure {
        return Ok(());
    }
    let addresses = [options.postgres, options.flight, options.http];
    for address in addresses.into_iter().flatten() {
        if address.ip().is_loopback() {
            continue;
        }
        let (missing, remedy) = match (&options.auth, &options.tls) {
            (Some(_), Some(_)) => continue,
            (None, Some(_)) => ("nobody would be asked for a password", "--auth FILE"),
            (Some(_), None) => (
                "what is sent could be read by others",
                "--tls-cert FILE and --tls-key FILE",
            ),
            (None, None) => (
                "nobody would be asked for a password, and what is sent could be read by others",
                "--auth FILE, --tls-cert FILE and --tls-key FILE",
            ),
        };
        return Err(StartError::Unsafe {
            address,
            missing,
            remedy,
        });
    }
    Ok(())
}

async fn listen(address: SocketAddr) -> Result<(TcpListener, SocketAddr), StartError> {
    let failed = |cause| StartError::Listen { address, cause };
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    Ok((listener, address))
}

/// The tables of all folders.
async fn tables(
    engine: &dyn Engine,
    runtime: &Arc<RuntimeEnv>,
    folders: &[std::path::PathBuf],
    stores: &[StoreFolder],
) -> datafusion::error::Result<Vec<(String, Arc<dyn TableProvider>)>> {
    let session = engine.open(Arc::clone(runtime)).await?;
    for folder in folders {
        engine.register_folder(&*session, folder).await?;
    }
    for folder in stores {
        engine
            .register_location(&*session, &folder.location)
            .await?;
    }
    let context = session.context();
    let config = context.copied_config();
    let names = &config.options().catalog;
    let schema = context
        .catalog(&names.default_catalog)
        .and_then(|catalog| catalog.schema(&names.default_schema));
    let mut tables = Vec::new();
    if let Some(schema) = schema {
        let mut names = schema.table_names();
        names.sort();
        for name in names {
            if let Some(table) = schema.table(&name).await? {
                tables.push((name, table));
            }
        }
    }
    Ok(tables)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beyond_loopback_users_and_tls_are_needed() {
        let at = |text: &str| ServeOptions {
            postgres: Some(text.parse().unwrap()),
            ..ServeOptions::default()
        };
        assert!(check_addresses(&at("127.0.0.1:0")).is_ok());
        assert!(check_addresses(&at("[::1]:0")).is_ok());
        let open = at("0.0.0.0:5432");
        let message = check_addresses(&open).unwrap_err().to_string();
        assert!(
            message.contains("--auth") && message.contains("--tls-cert"),
            "{message}"
        );
        let users = ServeOptions {
            auth: Some("users".into()),
            ..open.clone()
        };
        let message = check_addresses(&users).unwrap_err().to_string();
        assert!(
            !message.contains("--auth") && message.contains("--tls-cert"),
            "{message}"
        );
        let both = ServeOptions {
            tls: Some(("a".into(), "b".into())),
            ..users.clone()
        };
        assert!(check_addresses(&both).is_ok());
        let spelled = ServeOptions {
            insecure: true,
            ..open
        };
        assert!(check_addresses(&spelled).is_ok());
        assert!(check_addresses(&ServeOptions::default()).is_err());
    }
}
