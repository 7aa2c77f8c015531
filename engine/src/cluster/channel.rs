//! Connections to workers: TLS, the secret, the settings of a query, and errors that name the worker.

use std::collections::HashMap;
use std::error::Error as _;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use async_trait::async_trait;
use datafusion::arrow::array::RecordBatch;
use datafusion::error::DataFusionError;
use datafusion::execution::TaskContext;
use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;
use datafusion_distributed::grpc::{BoxCloneSyncChannel, create_worker_client};
use datafusion_distributed::{
    ChannelResolver, CoordinatorToWorkerMsg, ExecuteTaskRequest, GetWorkerInfoRequest,
    GetWorkerInfoResponse, MaybeEncoded, SetPlanRequest, Worker, WorkerChannel,
    WorkerToCoordinatorMsg,
};
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};
use parking_lot::Mutex;
use tonic::body::Body;
use tonic::codegen::Service;
use tonic::codegen::http::{HeaderMap, Request, Response};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint};
use tonic::{Code, Status};
use url::{Host, Url};
use warpline_serve::install_provider;

use super::secret::{HEADER, Secret};
use super::settings;
use super::workers::Workers;
use crate::error::{Error, Result};

/// How long a connection may take to open.
const CONNECT: Duration = Duration::from_secs(5);

/// How often a worker that is silent is asked whether it is there, and how long it may take to answer.
const ALIVE: Duration = Duration::from_secs(10);

/// What a caller shows, and what it wants to see.
#[derive(Debug, Default)]
pub(super) struct Security {
    secret: Option<Secret>,
    ca: Option<Certificate>,
    insecure: bool,
}

impl Security {
    pub(super) fn read(secret: Option<&Path>, ca: Option<&Path>, insecure: bool) -> Result<Self> {
        let read = |path: &Path| {
            let pem = fs::read(path);
            pem.map(Certificate::from_pem)
                .map_err(|error| Error::Cluster(format!("{}: {error}", path.display())))
        };
        Ok(Self {
            secret: secret.map(Secret::read).transpose()?,
            ca: ca.map(read).transpose()?,
            insecure,
        })
    }

    pub(super) fn secret(&self) -> Option<&Secret> {
        self.secret.as_ref()
    }

    /// How a worker is reached.
    fn endpoint(&self, url: &Url) -> Result<Endpoint> {
        let refused = |cause: &str| Error::Cluster(format!("worker {}: {cause}", name(url)));
        let endpoint = Endpoint::from_shared(url.to_string())
            .map_err(|_| {
                refused("the address is none: give http://HOST:PORT or https://HOST:PORT")
            })?
            .connect_timeout(CONNECT)
            .tcp_nodelay(true)
            .http2_keep_alive_interval(ALIVE)
            .keep_alive_timeout(ALIVE)
            .keep_alive_while_idle(true);
        match (url.scheme(), &self.ca) {
            ("https", Some(ca)) => {
                install_provider();
                let tls = ClientTlsConfig::new().ca_certificate(ca.clone());
                endpoint
                    .tls_config(tls)
                    .map_err(|error| refused(&told(&error)))
            }
            ("https", None) => Err(refused(
                "its certificate cannot be checked: name a file of certificates to trust",
            )),
            ("http", _) if self.secret.is_some() && !self.insecure && !is_local(url) => {
                Err(refused(
                    "the secret would go there in plain text: use https, or say that this network is safe (insecure)",
                ))
            }
            ("http", _) => Ok(endpoint),
            _ => Err(refused("give http://HOST:PORT or https://HOST:PORT")),
        }
    }
}

/// Whether an address is of this machine alone.
fn is_local(url: &Url) -> bool {
    match url.host() {
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        Some(Host::Domain(domain)) => domain == "localhost",
        None => false,
    }
}

/// The address of a worker as users write it.
pub(super) fn name(url: &Url) -> &str {
    url.as_str().trim_end_matches('/')
}

/// An error with its causes.
fn told(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = error.source();
    }
    text
}

/// Open connections, each made when it is needed first.
#[derive(Default)]
pub(super) struct Channels {
    security: Security,
    open: Mutex<HashMap<Url, BoxCloneSyncChannel>>,
    /// Workers of this process.
    local: Mutex<HashMap<Url, Worker>>,
}

impl Channels {
    pub(super) fn over_network(security: Security) -> Arc<Self> {
        Arc::new(Self {
            security,
            ..Self::default()
        })
    }

    /// Refuses an address that cannot be one, or must not be used as this caller would.
    pub(super) fn check(&self, url: &Url) -> Result<()> {
        self.security.endpoint(url).map(drop)
    }

    pub(super) fn add_local(&self, url: Url, worker: Worker) {
        self.local.lock().insert(url, worker);
    }

    /// Workers of this process hold these connections, and would live for ever.
    pub(super) fn forget_local(&self) {
        self.local.lock().clear();
    }

    fn channel(&self, url: &Url) -> Result<BoxCloneSyncChannel> {
        let mut open = self.open.lock();
        if let Some(channel) = open.get(url) {
            return Ok(channel.clone());
        }
        let channel = BoxCloneSyncChannel::new(Authorized {
            channel: self.security.endpoint(url)?.connect_lazy(),
            secret: self.security.secret.clone(),
        });
        open.insert(url.clone(), channel.clone());
        Ok(channel)
    }

    /// A client of a worker. What is seen of the worker is told to `workers`.
    pub(super) fn client(
        &self,
        url: &Url,
        workers: Option<Arc<Workers>>,
    ) -> Result<Box<dyn WorkerChannel>, DataFusionError> {
        let local = self.local.lock().get(url).cloned();
        let inner = match local {
            Some(worker) => Box::new(Local(worker)),
            None => {
                let channel = self.channel(url);
                let channel = channel.map_err(|e| DataFusionError::Execution(e.to_string()))?;
                create_worker_client(channel)
            }
        };
        let to = Named {
            url: url.clone(),
            workers,
        };
        Ok(Box::new(ToWorker { to, inner }))
    }
}

/// The connections of a worker to others.
pub(super) struct Peers(pub(super) Arc<Channels>);

#[async_trait]
impl ChannelResolver for Peers {
    async fn get_worker_client_for_url(
        &self,
        url: &Url,
    ) -> Result<Box<dyn WorkerChannel>, DataFusionError> {
        self.0.client(url, None)
    }
}

/// The connections of a session, which notices lost workers.
pub(super) struct Watched(pub(super) Arc<Workers>);

#[async_trait]
impl ChannelResolver for Watched {
    async fn get_worker_client_for_url(
        &self,
        url: &Url,
    ) -> Result<Box<dyn WorkerChannel>, DataFusionError> {
        self.0.channels().client(url, Some(Arc::clone(&self.0)))
    }
}

/// Adds the secret to each request.
#[derive(Clone)]
struct Authorized {
    channel: Channel,
    secret: Option<Secret>,
}

impl Service<Request<Body>> for Authorized {
    type Response = Response<Body>;
    type Error = tonic::transport::Error;
    type Future = <Channel as Service<Request<Body>>>::Future;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Service::poll_ready(&mut self.channel, context)
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        if let Some(secret) = &self.secret {
            request.headers_mut().insert(HEADER, secret.header());
        }
        Service::call(&mut self.channel, request)
    }
}

/// A worker of this process. Plans go to it as bytes, since tasks of one stage must not share operators.
struct Local(Worker);

#[async_trait]
impl WorkerChannel for Local {
    async fn coordinator_channel(
        &mut self,
        headers: HeaderMap,
        mut request: SetPlanRequest,
        stream: BoxStream<'static, CoordinatorToWorkerMsg>,
        _metrics: ExecutionPlanMetricsSet,
        context: &Arc<TaskContext>,
    ) -> Result<BoxStream<'static, Result<WorkerToCoordinatorMsg, DataFusionError>>, DataFusionError>
    {
        request.plan = MaybeEncoded::Encoded(request.plan.encode(context)?);
        let stream = stream.map(Ok).boxed();
        self.0.coordinator_channel(headers, request, stream).await
    }

    async fn execute_task(
        &mut self,
        _headers: HeaderMap,
        request: ExecuteTaskRequest,
        _metrics: ExecutionPlanMetricsSet,
        _context: &Arc<TaskContext>,
    ) -> Result<Vec<BoxStream<'static, Result<RecordBatch, DataFusionError>>>, DataFusionError>
    {
        let (streams, _) = self.0.execute_task(request).await?;
        Ok(streams.into_iter().map(|stream| stream.boxed()).collect())
    }

    async fn get_worker_info(
        &mut self,
        _request: GetWorkerInfoRequest,
    ) -> Result<GetWorkerInfoResponse, DataFusionError> {
        let version = self.0.version().to_string();
        Ok(GetWorkerInfoResponse { version })
    }
}

/// Sends the settings of the query along, and names the worker in errors of the connection.
struct ToWorker {
    to: Named,
    inner: Box<dyn WorkerChannel>,
}

#[async_trait]
impl WorkerChannel for ToWorker {
    async fn coordinator_channel(
        &mut self,
        mut headers: HeaderMap,
        request: SetPlanRequest,
        stream: BoxStream<'static, CoordinatorToWorkerMsg>,
        metrics: ExecutionPlanMetricsSet,
        context: &Arc<TaskContext>,
    ) -> Result<BoxStream<'static, Result<WorkerToCoordinatorMsg, DataFusionError>>, DataFusionError>
    {
        headers.extend(settings::headers(context.session_config().options())?);
        let opened = self
            .inner
            .coordinator_channel(headers, request, stream, metrics, context)
            .await;
        let to = self.to.clone();
        match opened {
            Ok(stream) => Ok(stream.map_err(move |error| to.told(error)).boxed()),
            Err(error) => Err(to.told(error)),
        }
    }

    async fn execute_task(
        &mut self,
        headers: HeaderMap,
        request: ExecuteTaskRequest,
        metrics: ExecutionPlanMetricsSet,
        context: &Arc<TaskContext>,
    ) -> Result<Vec<BoxStream<'static, Result<RecordBatch, DataFusionError>>>, DataFusionError>
    {
        let opened = self
            .inner
            .execute_task(headers, request, metrics, context)
            .await;
        let streams = opened.map_err(|error| self.to.told(error))?;
        let named = streams.into_iter().map(|stream| {
            let to = self.to.clone();
            stream.map_err(move |error| to.told(error)).boxed()
        });
        Ok(named.collect())
    }

    async fn get_worker_info(
        &mut self,
        request: GetWorkerInfoRequest,
    ) -> Result<GetWorkerInfoResponse, DataFusionError> {
        let answer = self.inner.get_worker_info(request).await;
        answer.map_err(|error| self.to.told(error))
    }
}

/// The worker at the other end.
#[derive(Clone)]
struct Named {
    url: Url,
    workers: Option<Arc<Workers>>,
}

impl Named {
    /// The error, and whose it is where the connection or the worker's door is the cause.
    fn told(&self, error: DataFusionError) -> DataFusionError {
        if let Some(workers) = &self.workers {
            // Another worker may have lost it.
            workers.doubt();
        }
        let Some(status) = status_of(&error) else {
            return error;
        };
        let worker = name(&self.url);
        let text = match status.code() {
            Code::Unauthenticated => {
                format!("worker {worker} refuses the call: {}", status.message())
            }
            code if code == Code::Unavailable || status.source().is_some() => {
                let cause = told(status);
                if let Some(workers) = &self.workers {
                    workers.lost(&self.url, &cause);
                }
                format!(
                    "worker {worker} is lost ({cause}); later queries run on those that are left"
                )
            }
            _ => format!("worker {worker}: {}", status.message()),
        };
        DataFusionError::Execution(text)
    }
}

/// What the transport says. Errors of the worker itself come as what they were.
fn status_of(error: &DataFusionError) -> Option<&Status> {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = cause {
        if let Some(status) = error.downcast_ref::<Status>() {
            return Some(status);
        }
        cause = error.source();
    }
    None
}
