//! A worker: serves stages of other sessions' plans, on one device, to callers that know the secret.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use datafusion::config::ConfigOptions;
use datafusion::error::DataFusionError;
use datafusion::execution::SessionState;
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion_distributed::{
    DistributedExt, Worker as StageWorker, WorkerPlanRewriteEvent, WorkerPlanRewriteEventResponse,
    WorkerPlanRewriteHandler, WorkerQueryContext, WorkerSessionBuilder,
};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Status};
use warpline_planner::WarplineConfig;
use warpline_serve::{FolderStore, StartError, Tls};

use super::channel::{Channels, Peers, Security};
use super::secret::{HEADER, Secret};
use super::workers::{VERSION, Workers};
use super::{files, settings, stage};
use crate::device::{DEVICE_SETTING, Device, MEMORY_SETTING};
use crate::error::{Error, Result};
use crate::rule::WarplineRule;

/// Most bytes of one message of a caller, which is a stage's plan with the rows of its tables in memory.
const MOST_MESSAGE: usize = 256 << 20;

/// How long stages may go on when the worker stops.
const LAST_WORK: Duration = Duration::from_secs(30);

/// What a worker is started with.
#[derive(Debug, Clone)]
pub struct WorkerOptions {
    /// Where it listens; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Folders that plans may read; nothing else on this machine can be read.
    pub data: Vec<PathBuf>,
    /// The file of the secret that all nodes share; without one anybody who reaches the address is served.
    pub secret_file: Option<PathBuf>,
    /// Certificate chain and private key, PEM.
    pub tls: Option<(PathBuf, PathBuf)>,
    /// Certificates that those of other workers are checked with, PEM; the own chain when not given.
    pub tls_ca: Option<PathBuf>,
    /// Listen beyond loopback without a secret or without TLS, and send the secret in plain text.
    pub insecure: bool,
    /// Settings of `warpline.*` and `datafusion.*`. Those that come with a query win.
    pub settings: Vec<(String, String)>,
}

impl WorkerOptions {
    /// A worker that listens there, without files, secret and TLS.
    pub fn at(listen: SocketAddr) -> Self {
        Self {
            listen,
            data: vec![],
            secret_file: None,
            tls: None,
            tls_ca: None,
            insecure: false,
            settings: vec![],
        }
    }

    /// Refuses what others on the network could misuse.
    fn check(&self) -> Result<(), StartError> {
        if self.insecure || self.listen.ip().is_loopback() {
            return Ok(());
        }
        let (missing, remedy) = match (&self.secret_file, &self.tls) {
            (Some(_), Some(_)) => return Ok(()),
            (None, Some(_)) => ("it would run anybody's plans", "--secret-file FILE"),
            (Some(_), None) => (
                "what is sent could be read by others",
                "--tls-cert FILE and --tls-key FILE",
            ),
            (None, None) => (
                "it would run anybody's plans, and what is sent could be read by others",
                "--secret-file FILE, --tls-cert FILE and --tls-key FILE",
            ),
        };
        Err(StartError::Unsafe {
            address: self.listen,
            missing,
            remedy,
        })
    }
}

/// A running worker.
pub struct Worker {
    address: SocketAddr,
    tls: bool,
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Worker {
    /// Listens and serves until [`Self::stop`]. One device serves one worker: of several, start one for [`Device::each`].
    ///
    /// # Errors
    /// [`Error::Device`] for several devices;
    /// [`Error::Serve`] for an address that is reachable from elsewhere without a secret and TLS, and for files and ports that
    /// cannot be used; [`Error::Cluster`] for a secret that is none; [`Error::DataFusion`] for settings.
    pub async fn start(options: WorkerOptions, device: &Device) -> Result<Self> {
        let refused = |error: StartError| Error::Serve(error.to_string());
        if device.is_several() {
            let given = device.name();
            let text = format!(
                "a worker has one device, and {given} are several: start a worker for each"
            );
            return Err(Error::Device(text));
        }
        options.check().map_err(refused)?;
        let tls = options.tls.as_ref();
        let tls = tls.map(|(certificate, key)| Tls::read(certificate, key));
        let tls = tls.transpose().map_err(refused)?;
        let ca = options.tls_ca.as_deref();
        let ca = ca.or(options.tls.as_ref().map(|(certificate, _)| &**certificate));
        let security = Security::read(options.secret_file.as_deref(), ca, options.insecure)?;
        let secret = security.secret().cloned();
        let folders = FolderStore::open(&options.data).map_err(refused)?;
        let runtime = folders.runtime()?;
        let sessions = Sessions {
            settings: Settings::of(device, &options.settings)?,
            rule: Arc::new(WarplineRule::new(device)),
            channels: Channels::over_network(security),
            folders: Some(folders),
        };
        let worker = sessions.worker(device, runtime);

        let address = options.listen;
        let failed = |cause| refused(StartError::Listen { address, cause });
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let mut server = Server::builder();
        if let Some(tls) = &tls {
            server = server
                .tls_config(tls.of_grpc())
                .map_err(|error| refused(StartError::Tls(error.to_string())))?;
        }
        let service = worker.into_worker_server();
        let service = service.max_decoding_message_size(MOST_MESSAGE);
        let service = InterceptedService::new(service, move |request| let_in(&secret, request));
        let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
        let (stop, stopped) = oneshot::channel::<()>();
        let router = server.add_service(service);
        let task = tokio::spawn(async move {
            let stopped = async {
                // The sender lives as long as the worker.
                let _ = stopped.await;
            };
            if let Err(error) = router.serve_with_incoming_shutdown(incoming, stopped).await {
                log::error!("the worker ended: {error}");
            }
        });
        Ok(Self {
            address,
            tls: tls.is_some(),
            stop,
            task,
        })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The address as sessions name it.
    pub fn url(&self) -> String {
        let scheme = if self.tls { "https" } else { "http" };
        format!("{scheme}://{}", self.address)
    }

    /// Takes no more stages, and waits a while for those that run.
    pub async fn stop(self) {
        let Self { stop, mut task, .. } = self;
        // It may have ended by itself.
        let _ = stop.send(());
        if tokio::time::timeout(LAST_WORK, &mut task).await.is_err() {
            task.abort();
        }
    }
}

/// Refuses a request without the secret, before its body is read. Nothing behind the door sees the secret.
fn let_in(secret: &Option<Secret>, mut request: Request<()>) -> Result<Request<()>, Status> {
    if let Some(secret) = secret
        && !secret.is_in(request.metadata())
    {
        return Err(Status::unauthenticated(
            "the secret is missing or wrong: all nodes of a cluster have the same",
        ));
    }
    request.metadata_mut().remove(HEADER);
    Ok(request)
}

/// Workers of this process, one a device. They read what `runtime` reads.
pub(super) fn in_process(devices: &[Device], runtime: &Arc<RuntimeEnv>) -> Result<Workers> {
    let channels = Arc::new(Channels::default());
    let mut urls = Vec::new();
    let devices: Vec<Device> = devices.iter().flat_map(Device::each).collect();
    for (number, device) in devices.iter().enumerate() {
        let url = format!("http://worker-{number}.in-process");
        let sessions = Sessions {
            settings: Settings::of(device, &[])?,
            rule: Arc::new(WarplineRule::new(device)),
            channels: Arc::clone(&channels),
            folders: None,
        };
        let worker = sessions.worker(device, Arc::clone(runtime));
        let parsed = url::Url::parse(&url);
        let parsed = parsed.map_err(|error| Error::Cluster(format!("{url}: {error}")))?;
        channels.add_local(parsed, worker);
        urls.push(url);
    }
    Workers::at(&urls, channels)
}

/// The settings of the worker itself.
struct Settings {
    warpline: WarplineConfig,
    /// Those of DataFusion.
    others: Vec<(String, String)>,
}

impl Settings {
    /// The worker's settings, of which the device's are not among those that are given.
    fn of(device: &Device, given: &[(String, String)]) -> Result<Self> {
        let mut options = ConfigOptions::new();
        options.extensions.insert(device.config());
        for (name, value) in given {
            if name != DEVICE_SETTING && name != MEMORY_SETTING {
                options.set(name, value)?;
            }
        }
        let others = given
            .iter()
            .filter(|(name, _)| !name.starts_with("warpline."));
        Ok(Self {
            warpline: WarplineConfig::of(&options),
            others: others.cloned().collect(),
        })
    }

    fn apply(&self, options: &mut ConfigOptions) -> Result<(), DataFusionError> {
        options.extensions.insert(self.warpline.clone());
        let mut others = self.others.iter();
        others.try_for_each(|(name, value)| options.set(name, value))
    }
}

/// Makes the session of each stage.
struct Sessions {
    settings: Settings,
    rule: Arc<WarplineRule>,
    channels: Arc<Channels>,
    /// The files that plans may read; none for workers of the coordinator's process, which read what it reads.
    folders: Option<FolderStore>,
}

impl Sessions {
    fn worker(self, device: &Device, runtime: Arc<RuntimeEnv>) -> StageWorker {
        let version = format!("{VERSION}{}", device.name());
        StageWorker::from_session_builder(self)
            .with_runtime_env(runtime)
            .with_version(version)
    }

    fn state(&self, context: WorkerQueryContext) -> Result<SessionState, DataFusionError> {
        let WorkerQueryContext {
            mut builder,
            headers,
        } = context;
        let options = builder.config().get_or_insert_default().options_mut();
        self.settings.apply(options)?;
        settings::take_over(options, &headers)?;
        let placer = Placer {
            rule: Arc::clone(&self.rule),
            folders: self.folders.clone(),
        };
        Ok(builder
            .with_distributed_channel_resolver(Peers(Arc::clone(&self.channels)))
            .with_distributed_worker_plan_rewrite_handler(placer)
            .build())
    }
}

#[async_trait]
impl WorkerSessionBuilder for Sessions {
    async fn build_session_state(
        &self,
        context: WorkerQueryContext,
    ) -> Result<SessionState, DataFusionError> {
        self.state(context)
    }
}

/// Checks the plan of a stage, and places it on the device.
struct Placer {
    rule: Arc<WarplineRule>,
    folders: Option<FolderStore>,
}

impl WorkerPlanRewriteHandler for Placer {
    fn rewrite_worker_plan(
        &self,
        event: WorkerPlanRewriteEvent<'_>,
    ) -> Result<WorkerPlanRewriteEventResponse, DataFusionError> {
        if let Some(folders) = &self.folders {
            files::check(&event.plan, folders)?;
        }
        let options = event.session_config.options();
        let placed = stage::place(event.plan, &*self.rule, options)?;
        Ok(WorkerPlanRewriteEventResponse::new(placed))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[test]
    fn beyond_loopback_a_secret_and_tls_are_needed() {
        let at = |text: &str| WorkerOptions::at(text.parse().unwrap());
        assert!(at("127.0.0.1:0").check().is_ok());
        assert!(at("[::1]:0").check().is_ok());
        let open = at("0.0.0.0:7001");
        let message = open.check().unwrap_err().to_string();
        assert!(
            message.contains("--secret-file") && message.contains("--tls-cert"),
            "{message}"
        );
        let secret = WorkerOptions {
            secret_file: Some("secret".into()),
            ..open.clone()
        };
        let message = secret.check().unwrap_err().to_string();
        assert!(!message.contains("--secret-file") && message.contains("--tls-cert"));
        let both = WorkerOptions {
            tls: Some(("a".into(), "b".into())),
            ..secret
        };
        assert!(both.check().is_ok());
        let spelled = WorkerOptions {
            insecure: true,
            ..open
        };
        assert!(spelled.check().is_ok());
    }
}
