//! The devices of a session as workers of its process: which there are, which task runs where, and how plans and rows get there.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use async_trait::async_trait;
use datafusion::arrow::array::RecordBatch;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::config::ConfigOptions;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::execution::{SessionState, TaskContext};
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;
use datafusion_distributed::{
    ChannelResolver, CoordinatorToWorkerMsg, DistributedExt, ExecuteTaskRequest,
    GetWorkerInfoRequest, GetWorkerInfoResponse, MaybeEncoded, RouteTasksEvent,
    RouteTasksEventResponse, RouteTasksHandler, SetPlanRequest, Worker, WorkerChannel,
    WorkerPlanRewriteEvent, WorkerPlanRewriteEventResponse, WorkerPlanRewriteHandler,
    WorkerQueryContext, WorkerResolver, WorkerSessionBuilder, WorkerToCoordinatorMsg,
};
use futures::StreamExt;
use futures::stream::BoxStream;
use parking_lot::Mutex;
use tonic::codegen::http::{HeaderMap, HeaderValue};
use url::Url;
use warpline_gpu::exec::TimeLimit;
use warpline_planner::{Shards, WarplineConfig};

use super::handed;
use super::price::too_many_cross;
use super::run::{DevicesExec, Stages};
use super::shards::Deal;
use crate::cluster::planner::Sites;
use crate::cluster::stage;
use crate::device::{Device, Member, name_of};
use crate::fragments::StageOnDevice;
use crate::rule::WarplineRule;

/// The header with the number of what a stage takes along.
const HANDED: &str = "x-warpline-handed";

/// The devices of a session.
pub(super) struct Devices {
    device: Device,
    rule: Arc<WarplineRule>,
    runtime: Arc<RuntimeEnv>,
    open: Mutex<Open>,
    /// What stages take along, until their sessions are made.
    handed: Mutex<HashMap<u64, Handed>>,
    next: AtomicU64,
    deal: Deal,
}

/// The devices as they were last seen, with a worker each.
#[derive(Default)]
struct Open {
    members: Option<Arc<[Member]>>,
    /// How often the devices were others.
    generation: u64,
    urls: Vec<Url>,
    /// Those of the generation before as well: its queries may run.
    workers: HashMap<Url, (u64, Worker)>,
}

/// What a stage takes along from its query.
#[derive(Clone)]
struct Handed {
    options: Arc<ConfigOptions>,
    stages: Option<Arc<Stages>>,
    /// The number of the stage, and of the task in it.
    task: (usize, usize),
}

/// A device that can run stages, and the address of its worker.
struct Site {
    url: Url,
    member: Member,
}

impl Devices {
    pub(super) fn new(
        device: &Device,
        rule: Arc<WarplineRule>,
        runtime: &Arc<RuntimeEnv>,
    ) -> Arc<Self> {
        Arc::new(Self {
            device: device.clone(),
            rule,
            runtime: Arc::clone(runtime),
            open: Mutex::default(),
            handed: Mutex::default(),
            next: AtomicU64::new(0),
            deal: Deal::default(),
        })
    }

    /// All devices, with their workers.
    fn all(self: &Arc<Self>) -> Result<Vec<Site>> {
        let members = self.device.members();
        let mut open = self.open.lock();
        let same = open
            .members
            .as_ref()
            .is_some_and(|known| Arc::ptr_eq(known, &members));
        if !same {
            open.generation += 1;
            let generation = open.generation;
            open.workers.retain(|_, (made, _)| *made + 1 >= generation);
            open.urls.clear();
            for (number, member) in members.iter().enumerate() {
                let address = format!("http://device-{number}.{generation}.in-process");
                let url = Url::parse(&address).map_err(|error| {
                    DataFusionError::Internal(format!("the address {address}: {error}"))
                })?;
                let sessions = Sessions {
                    devices: Arc::downgrade(self),
                    member: member.clone(),
                };
                let worker = Worker::from_session_builder(sessions)
                    .with_runtime_env(Arc::clone(&self.runtime));
                open.workers.insert(url.clone(), (generation, worker));
                open.urls.push(url);
            }
            open.members = Some(Arc::clone(&members));
        }
        let sites = open.urls.iter().cloned().zip(members.iter().cloned());
        Ok(sites.map(|(url, member)| Site { url, member }).collect())
    }

    /// Those that are not lost; all, if all are: then the CPU answers for them.
    fn usable(self: &Arc<Self>) -> Result<Vec<Site>> {
        let all = self.all()?;
        let any = all.iter().any(|site| !site.member.is_lost());
        let usable = all
            .into_iter()
            .filter(|site| !any || !site.member.is_lost());
        Ok(usable.collect())
    }

    fn client(self: &Arc<Self>, url: &Url) -> Result<Box<dyn WorkerChannel>> {
        let worker = self
            .open
            .lock()
            .workers
            .get(url)
            .map(|(_, worker)| worker.clone());
        let worker = worker.ok_or_else(|| {
            let text = "the devices were others when the query began: run it again";
            DataFusionError::Execution(text.to_string())
        })?;
        Ok(Box::new(Inside {
            worker,
            devices: Arc::clone(self),
        }))
    }
}

/// Whether a query can be cut into stages: a recursive one runs the same operators again and again.
fn is_cuttable(logical: &LogicalPlan) -> Result<bool> {
    let mut cuttable = true;
    logical.apply_with_subqueries(|node| {
        cuttable &= !matches!(node, LogicalPlan::RecursiveQuery(_));
        Ok(match cuttable {
            true => TreeNodeRecursion::Continue,
            false => TreeNodeRecursion::Stop,
        })
    })?;
    Ok(cuttable)
}

#[async_trait]
impl Sites for Arc<Devices> {
    async fn ask(&self, logical: &LogicalPlan, options: &ConfigOptions) -> Result<bool> {
        // Opens what the settings name.
        self.rule.placement(options)?;
        let several = self.usable()?.len() > 1;
        let shards = WarplineConfig::of(options).shards;
        Ok(several && shards != Shards::Force(1) && is_cuttable(logical)?)
    }

    fn deals(&self) -> bool {
        true
    }

    fn dealt(
        &self,
        plan: &Arc<dyn ExecutionPlan>,
        options: &ConfigOptions,
    ) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        let sites = self.usable()?.into_iter();
        let members: Vec<Member> = sites.map(|site| site.member).collect();
        self.deal.dealt(plan, &members, options)
    }

    fn finished(&self, plan: Arc<dyn ExecutionPlan>) -> Arc<dyn ExecutionPlan> {
        Arc::new(DevicesExec::new(plan))
    }

    fn declines(
        &self,
        plan: &Arc<dyn ExecutionPlan>,
        options: &ConfigOptions,
    ) -> Result<Option<String>> {
        match WarplineConfig::of(options).shards {
            Shards::Auto => too_many_cross(plan),
            Shards::Force(_) => Ok(None),
        }
    }

    fn places(&self) -> String {
        let members = self.device.members();
        let lines = members.iter().enumerate().map(|(number, member)| {
            let name = name_of(&member.runtime);
            match member.runtime.lost() {
                None => format!("device {name}: task {number} of each stage\n"),
                Some(cause) => format!("device {name}: lost, {cause}\n"),
            }
        });
        lines.collect()
    }

    fn alone(&self, options: &ConfigOptions) -> Option<String> {
        let members = self.device.members();
        let used = members.iter().find(|member| !member.is_lost())?;
        (members.len() > 1).then(|| {
            let shards = WarplineConfig::of(options).shards;
            let count = members.len();
            let cause = match shards {
                Shards::Auto => "sharing it gains nothing",
                Shards::Force(1) => "as is set",
                Shards::Force(_) => "no table can be shared out",
            };
            format!(
                "device {} of {count}: {cause} (warpline.shards = {shards})",
                used.id()
            )
        })
    }
}

/// Tells the distributed planner which devices there are, and how to reach them.
pub(super) struct Resolver(pub(super) Arc<Devices>);

impl WorkerResolver for Resolver {
    fn get_urls(&self) -> Result<Vec<Url>> {
        Ok(self.0.usable()?.into_iter().map(|site| site.url).collect())
    }
}

#[async_trait]
impl ChannelResolver for Resolver {
    async fn get_worker_client_for_url(&self, url: &Url) -> Result<Box<dyn WorkerChannel>> {
        self.0.client(url)
    }
}

/// How a device reaches others. The session of a query lives as long as the query.
struct Peers(Weak<Devices>);

#[async_trait]
impl ChannelResolver for Peers {
    async fn get_worker_client_for_url(&self, url: &Url) -> Result<Box<dyn WorkerChannel>> {
        alive(&self.0)?.client(url)
    }
}

fn alive(devices: &Weak<Devices>) -> Result<Arc<Devices>> {
    devices.upgrade().ok_or_else(|| {
        DataFusionError::Execution("the session of the query was closed".to_string())
    })
}

/// Task by task to device by device, so that a device reads the same part of a table in each query.
pub(super) struct Router(pub(super) Arc<Devices>);

impl RouteTasksHandler for Router {
    fn handle(&self, event: RouteTasksEvent) -> Option<Result<RouteTasksEventResponse>> {
        let urls = self.0.usable().and_then(|sites| {
            let of_task = |task: usize| match sites.get(task % sites.len().max(1)) {
                Some(site) => Ok(site.url.clone()),
                None => Err(DataFusionError::Execution("there is no device".to_string())),
            };
            (0..event.task_count).map(of_task).collect()
        });
        Some(urls.map(RouteTasksEventResponse::new))
    }
}

/// The worker of a device.
struct Inside {
    worker: Worker,
    devices: Arc<Devices>,
}

#[async_trait]
impl WorkerChannel for Inside {
    async fn coordinator_channel(
        &mut self,
        mut headers: HeaderMap,
        mut request: SetPlanRequest,
        stream: BoxStream<'static, CoordinatorToWorkerMsg>,
        _metrics: ExecutionPlanMetricsSet,
        context: &Arc<TaskContext>,
    ) -> Result<BoxStream<'static, Result<WorkerToCoordinatorMsg>>> {
        if let MaybeEncoded::Decoded(plan) = request.plan {
            request.plan = MaybeEncoded::Decoded(handed::own(plan)?);
        }
        let config = context.session_config();
        let handed = Handed {
            options: Arc::clone(config.options()),
            stages: config.get_extension(),
            task: (request.task_key.stage_id, request.task_key.task_number),
        };
        let number = self.devices.next.fetch_add(1, Ordering::Relaxed);
        headers.insert(HANDED, HeaderValue::from(number));
        self.devices.handed.lock().insert(number, handed);
        let _taken = Taken(&self.devices, number);
        let stream = stream.map(Ok).boxed();
        self.worker
            .coordinator_channel(headers, request, stream)
            .await
    }

    async fn execute_task(
        &mut self,
        _headers: HeaderMap,
        request: ExecuteTaskRequest,
        _metrics: ExecutionPlanMetricsSet,
        _context: &Arc<TaskContext>,
    ) -> Result<Vec<BoxStream<'static, Result<RecordBatch>>>> {
        let (streams, _) = self.worker.execute_task(request).await?;
        Ok(streams.into_iter().map(|stream| stream.boxed()).collect())
    }

    async fn get_worker_info(
        &mut self,
        _request: GetWorkerInfoRequest,
    ) -> Result<GetWorkerInfoResponse> {
        let version = self.worker.version().to_string();
        Ok(GetWorkerInfoResponse { version })
    }
}

/// Forgets what was handed over when the session of the stage is made, or will not be.
struct Taken<'a>(&'a Devices, u64);

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        self.0.handed.lock().remove(&self.1);
    }
}

/// Makes the session of each stage on a device: with the settings of the query.
struct Sessions {
    devices: Weak<Devices>,
    member: Member,
}

impl Sessions {
    fn state(&self, context: WorkerQueryContext) -> Result<SessionState> {
        let WorkerQueryContext {
            mut builder,
            headers,
        } = context;
        let number = headers.get(HANDED).and_then(|value| value.to_str().ok());
        let number: Option<u64> = number.and_then(|number| number.parse().ok());
        let devices = alive(&self.devices)?;
        let handed = number.and_then(|number| devices.handed.lock().get(&number).cloned());
        let handed = handed.ok_or_else(|| {
            DataFusionError::Internal("a stage came without its query".to_string())
        })?;
        let options = builder.config().get_or_insert_default().options_mut();
        *options = ConfigOptions::clone(&handed.options);
        if let Some(settings) = options.extensions.get_mut::<WarplineConfig>() {
            // The query as a whole has it.
            settings.time_limit = TimeLimit::default();
        }
        let placer = Placer {
            member: self.member.clone(),
            stages: handed.stages,
            task: handed.task,
        };
        Ok(builder
            .with_distributed_channel_resolver(Peers(Weak::clone(&self.devices)))
            .with_distributed_worker_plan_rewrite_handler(placer)
            .build())
    }
}

#[async_trait]
impl WorkerSessionBuilder for Sessions {
    async fn build_session_state(&self, context: WorkerQueryContext) -> Result<SessionState> {
        self.state(context)
    }
}

/// Places a stage on its device.
struct Placer {
    member: Member,
    stages: Option<Arc<Stages>>,
    task: (usize, usize),
}

impl WorkerPlanRewriteHandler for Placer {
    fn rewrite_worker_plan(
        &self,
        event: WorkerPlanRewriteEvent<'_>,
    ) -> Result<WorkerPlanRewriteEventResponse> {
        let options = event.session_config.options();
        let plan = stage::place(event.plan, &*self.member.placement, options)?;
        if let (Some(stages), Some(placed)) = (&self.stages, stage::placed(&plan)) {
            stages.add(StageOnDevice {
                device: self.member.id().to_string(),
                task: self.task,
                plan: placed,
            });
        }
        Ok(WorkerPlanRewriteEventResponse::new(plan))
    }
}
