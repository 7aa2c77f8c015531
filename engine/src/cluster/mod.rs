//! Several machines: workers that run stages of plans on their devices, and sessions whose plans are cut into stages.
//!
//! `datafusion-distributed` cuts plans, moves rows and collects metrics; what is here adds devices, security and the workers that
//! are left when one is lost.
//!
//! ```text
//! session ──► planner      a plan in stages, or the local device's plan where there is nothing to distribute
//!               │ route     which worker runs which task: one that read the same files before
//!            workers       who is there; asked again before each query
//!               │ channel   secret, TLS, the settings of the query; names the worker in errors
//! ══════════════╪══════════ the network, or nothing for workers of the same process
//!            worker        callers without the secret are refused before anything is decoded
//!               │ settings  those of a query alone
//!               │ files     a plan reads what the worker was given, and writes nothing
//!            stage         the worker's device runs what it can of the stage
//! ```

mod channel;
mod files;
mod leaves;
pub(crate) mod planner;
mod route;
mod secret;
mod settings;
pub(crate) mod stage;
mod whole;
mod worker;
mod workers;

use std::path::PathBuf;
use std::sync::Arc;

use datafusion::execution::SessionStateBuilder;
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion_distributed::DistributedExt;
use url::Url;

use crate::device::Device;
use crate::error::Result;
use channel::{Channels, Security};
use workers::Workers;

pub use worker::{Worker, WorkerOptions};

/// The workers of a cluster, and what they want to see of a caller.
#[derive(Debug, Clone, Default)]
pub struct ClusterOptions {
    /// Where they listen: `http://HOST:PORT`, or `https://…` with TLS.
    pub workers: Vec<String>,
    /// The file of the secret that all nodes share.
    pub secret_file: Option<PathBuf>,
    /// Certificates that workers' certificates are checked with, PEM.
    pub tls_ca: Option<PathBuf>,
    /// Send the secret without TLS beyond this machine.
    pub insecure: bool,
}

/// Workers that sessions share. Clones are the same.
///
/// ```no_run
/// # async fn example() -> Result<(), warpline::Error> {
/// use warpline::{Cluster, ClusterOptions, WarplineSession};
///
/// let cluster = Cluster::connect(ClusterOptions {
///     workers: vec!["http://127.0.0.1:7001".into(), "http://127.0.0.1:7002".into()],
///     ..ClusterOptions::default()
/// })
/// .await?;
/// let session = WarplineSession::builder().cluster(&cluster).open().await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Cluster(Arc<Workers>);

impl Cluster {
    /// Finds the workers; those that do not answer are asked again before each query.
    ///
    /// # Errors
    /// [`crate::Error::Cluster`] when an address is none, the secret would go over a network in plain text, a worker refuses it or is
    /// of another version, or none answers.
    pub async fn connect(options: ClusterOptions) -> Result<Self> {
        let security = Security::read(
            options.secret_file.as_deref(),
            options.tls_ca.as_deref(),
            options.insecure,
        )?;
        let channels = Channels::over_network(security);
        let workers = Workers::at(&options.workers, channels)?;
        workers.find().await?;
        Ok(Self(Arc::new(workers)))
    }

    /// A worker for each of these devices, in this process and without sockets. They read what `runtime` reads.
    ///
    /// # Errors
    /// [`crate::Error::Cluster`] without devices.
    pub async fn in_process(devices: &[Device], runtime: &Arc<RuntimeEnv>) -> Result<Self> {
        let workers = worker::in_process(devices, runtime)?;
        workers.find().await?;
        Ok(Self(Arc::new(workers)))
    }

    /// The workers that answered last, and the device of each.
    pub fn workers(&self) -> Vec<(Url, String)> {
        self.0.up()
    }

    /// A session on the device whose plans are cut into stages where that pays.
    pub(crate) fn extend(
        &self,
        builder: SessionStateBuilder,
        device: &Device,
    ) -> SessionStateBuilder {
        let builder = builder
            .with_distributed_worker_resolver(workers::Resolver(Arc::clone(&self.0)))
            .with_distributed_channel_resolver(channel::Watched(Arc::clone(&self.0)))
            .with_distributed_route_tasks_handler(route::Router(Arc::clone(&self.0)));
        planner::extend(builder, device, &self.0)
    }
}
