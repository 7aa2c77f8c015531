//! First runs beside the CPU: who is first answers, and an error of one side leaves the answer to the other.

use std::collections::HashSet;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use arrow::compute::concat_batches;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::{DataFusionError, Result as DataFusionResult};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::execution_plan::reset_plan_states;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties, collect,
};
use futures::{StreamExt, TryStreamExt};
use tokio::sync::watch;
use warpline_gpu::device::DeviceInfo;
use warpline_gpu::exec::{ColdStart, FragmentOptions, GpuFragmentExec, in_one_partition};
use warpline_gpu::graph::{FirstRun, Graph, IndexChoice, IndexProfile, Policy};
use warpline_gpu::pipeline::{GroupProfile, PlacementChoice, PlacementPolicy, ScanSource};
use warpline_gpu::tables::{LoadedTable, TableCache};
use warpline_gpu::{GpuError, Result};

use super::{any_size, plan, runtime, session};
use crate::fragment::FragmentPlanner;

/// What a side does once it may.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Then {
    Answers,
    Fails,
    Panics,
}

/// Holds the device up before it plans.
#[derive(Debug)]
struct Gated {
    inner: FragmentPlanner,
    open: Arc<(Mutex<bool>, Condvar)>,
    then: Then,
}

impl PlacementPolicy for Gated {
    fn place_groups(&self, profile: &GroupProfile, device: &DeviceInfo) -> PlacementChoice {
        self.inner.place_groups(profile, device)
    }
}

impl Policy for Gated {
    fn scans(&self) -> &[ScanSource] {
        self.inner.scans()
    }

    fn graph(
        &self,
        tables: &[LoadedTable],
        duplicates: &HashSet<String>,
        index_room: u64,
    ) -> Result<Graph> {
        let (open, changed) = &*self.open;
        let closed = |open: &mut bool| !*open;
        drop(changed.wait_while(open.lock().unwrap(), closed).unwrap());
        match self.then {
            Then::Answers => self.inner.graph(tables, duplicates, index_room),
            _ => Err(GpuError::Unsupported("the device has no answer".into())),
        }
    }

    fn place_index(&self, profile: &IndexProfile, device: &DeviceInfo) -> IndexChoice {
        self.inner.place_index(profile, device)
    }

    fn first_run(&self, tables: &TableCache) -> Option<FirstRun> {
        self.inner.first_run(tables)
    }

    fn describe(&self) -> String {
        self.inner.describe()
    }
}

/// Holds the CPU's plan up before its first row.
#[derive(Debug)]
struct GatedExec {
    inner: Arc<dyn ExecutionPlan>,
    open: watch::Receiver<bool>,
    then: Then,
    /// Streams that live.
    streams: Arc<AtomicUsize>,
    /// Batches that come before the gate.
    first: Vec<RecordBatch>,
}

impl DisplayAs for GatedExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("GatedExec")
    }
}

struct Lives(Arc<AtomicUsize>);

impl Drop for Lives {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl ExecutionPlan for GatedExec {
    fn name(&self) -> &str {
        "GatedExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.inner.properties()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![]
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> DataFusionResult<TreeNodeRecursion>,
    ) -> DataFusionResult<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(
        self: Arc<Self>,
        _: Vec<Arc<dyn ExecutionPlan>>,
    ) -> DataFusionResult<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> DataFusionResult<SendableRecordBatchStream> {
        let rows = reset_plan_states(Arc::clone(&self.inner))?.execute(partition, context)?;
        self.streams.fetch_add(1, Ordering::SeqCst);
        let lives = Lives(Arc::clone(&self.streams));
        let (mut open, then) = (self.open.clone(), self.then);
        let gated = async move {
            open.wait_for(|open| *open).await.unwrap();
            match then {
                Then::Answers => Ok(rows.inspect(move |_| {
                    let _goes_with_the_stream = &lives;
                })),
                Then::Fails => Err(DataFusionError::Execution("the CPU has no answer".into())),
                Then::Panics => panic!("the CPU's plan has a defect"),
            }
        };
        let first = futures::stream::iter(self.first.clone().into_iter().map(Ok));
        let rows = first.chain(futures::stream::once(gated).try_flatten());
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), rows)))
    }
}

/// A fragment both of whose sides wait for leave.
struct Race {
    node: Arc<dyn ExecutionPlan>,
    policy: Arc<Gated>,
    cpu: watch::Sender<bool>,
    cpu_streams: Arc<AtomicUsize>,
    context: Arc<TaskContext>,
    expected: RecordBatch,
}

const SQL: &str = "SELECT a, sum(b) AS s, count(*) AS n FROM t GROUP BY a ORDER BY a";

impl Race {
    async fn new(device: Then, cpu: Then, options: FragmentOptions) -> Self {
        Self::with_first(device, cpu, options, |_| vec![]).await
    }

    async fn with_first(
        device: Then,
        cpu: Then,
        options: FragmentOptions,
        first: impl FnOnce(&RecordBatch) -> Vec<RecordBatch>,
    ) -> Self {
        let session = session(None, any_size());
        let original = plan(&session, SQL).await;
        let context = session.task_ctx();
        let expected = collect(Arc::clone(&original), Arc::clone(&context)).await;
        let expected = concat_batches(&original.schema(), &expected.unwrap()).unwrap();
        let original = plan(&session, SQL).await;
        let inner = FragmentPlanner::try_new(&original, &any_size());
        let inner = inner.unwrap_or_else(|refusal| panic!("{}", refusal.reason));
        let policy = Arc::new(Gated {
            inner,
            open: Arc::default(),
            then: device,
        });
        let (sender, open) = watch::channel(false);
        let cpu_streams = Arc::<AtomicUsize>::default();
        let gated = Arc::new(GatedExec {
            inner: in_one_partition(original),
            open,
            then: cpu,
            streams: Arc::clone(&cpu_streams),
            first: first(&expected),
        });
        let node = GpuFragmentExec::try_new(
            Arc::clone(&policy) as Arc<dyn Policy>,
            gated,
            runtime(),
            options,
        );
        Self {
            node: Arc::new(node.unwrap()),
            policy,
            cpu: sender,
            cpu_streams,
            context,
            expected,
        }
    }

    fn let_device(&self) {
        let (open, changed) = &*self.policy.open;
        *open.lock().unwrap() = true;
        changed.notify_all();
    }

    fn let_cpu(&self) {
        self.cpu.send_replace(true);
    }

    async fn collect(&self) -> DataFusionResult<RecordBatch> {
        let run = collect(Arc::clone(&self.node), Arc::clone(&self.context));
        let run = tokio::time::timeout(Duration::from_secs(120), run);
        let batches = run.await.expect("it does not end")?;
        Ok(concat_batches(&self.node.schema(), &batches)?)
    }

    #[track_caller]
    fn report(&self) -> warpline_gpu::exec::FragmentReport {
        let node = self.node.downcast_ref::<GpuFragmentExec>();
        node.unwrap().report()
    }

    /// Nothing of the CPU's plan lives.
    async fn cpu_is_gone(&self) {
        for _ in 0..2000 {
            if self.cpu_streams.load(Ordering::SeqCst) == 0 {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("the CPU's plan goes on");
    }
}

fn racing() -> FragmentOptions {
    FragmentOptions {
        cold: ColdStart::Race,
        ..FragmentOptions::default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_cpu_answers_while_the_device_gets_ready() {
    let race = Race::new(Then::Answers, Then::Answers, racing()).await;
    race.let_cpu();
    assert_eq!(race.collect().await.unwrap(), race.expected);
    let report = race.report();
    assert_eq!((report.races, report.cpu_answers), (1, 1), "{report:?}");
    assert_eq!((report.kernels, report.fallback), (0, None));
    // EXPLAIN asks the planner as well, where others have loaded the table: it must not be held up any more.
    race.let_device();
    let shown = super::text(&race.node);
    assert!(shown.contains("first run: the CPU was first"), "{shown}");
    // What goes on finds its columns and kernels, and the next run has them.
    for _ in 0..2000 {
        let next = Arc::clone(&race.node).reset_state().unwrap();
        let race = Race {
            node: next,
            policy: Arc::clone(&race.policy),
            cpu: race.cpu.clone(),
            cpu_streams: Arc::clone(&race.cpu_streams),
            context: Arc::clone(&race.context),
            expected: race.expected.clone(),
        };
        assert_eq!(race.collect().await.unwrap(), race.expected);
        let report = race.report();
        if report.races == 0 {
            assert!(report.kernels > 0 && report.cpu_answers == 0, "{report:?}");
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("the device never got ready");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_device_answers_and_the_cpu_stops() {
    let race = Race::new(Then::Answers, Then::Answers, racing()).await;
    race.let_device();
    assert_eq!(race.collect().await.unwrap(), race.expected);
    let report = race.report();
    assert_eq!((report.races, report.cpu_answers), (1, 0), "{report:?}");
    assert!(report.kernels > 0);
    race.cpu_is_gone().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_fails_leaves_the_answer_to_the_other() {
    for then in [Then::Fails, Then::Panics] {
        let race = Race::new(Then::Answers, then, racing()).await;
        race.let_cpu();
        let run = race.collect();
        let device = async {
            race.cpu_is_gone().await;
            race.let_device();
        };
        let (rows, ()) = tokio::join!(run, device);
        assert_eq!(rows.unwrap(), race.expected);
        assert!(race.report().kernels > 0);
    }
    let race = Race::new(Then::Fails, Then::Answers, racing()).await;
    race.let_device();
    // Not before the device has failed, or the CPU may be first.
    let cpu = async {
        while race.report().fallback.is_none() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        race.let_cpu();
    };
    let (rows, ()) = tokio::join!(race.collect(), cpu);
    assert_eq!(rows.unwrap(), race.expected);
    let report = race.report();
    let fallback = report.fallback.expect("it is told");
    assert!(fallback.contains("the device has no answer"), "{fallback}");
    assert_eq!((report.races, report.cpu_answers), (1, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_device_that_failed_behind_the_cpu_is_waited_for() {
    let race = Race::new(Then::Fails, Then::Answers, racing()).await;
    race.let_cpu();
    assert_eq!(race.collect().await.unwrap(), race.expected);
    assert_eq!(race.report().cpu_answers, 1);
    race.let_device();
    for _ in 0..2000 {
        assert_eq!(race.collect().await.unwrap(), race.expected);
        let report = race.report();
        if report.races == 0 {
            assert!(report.fallback.is_some(), "{report:?}");
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("nobody is told why the device does not answer");
}

#[tokio::test(flavor = "multi_thread")]
async fn where_both_fail_the_cpu_says_why() {
    let race = Race::new(Then::Fails, Then::Fails, racing()).await;
    race.let_cpu();
    race.let_device();
    let error = race.collect().await.unwrap_err().to_string();
    assert!(error.contains("the CPU has no answer"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_race_that_nobody_waits_for_ends() {
    let race = Race::new(Then::Answers, Then::Answers, racing()).await;
    let mut rows = race.node.execute(0, Arc::clone(&race.context)).unwrap();
    let first = tokio::time::timeout(Duration::from_millis(50), rows.next()).await;
    assert!(first.is_err(), "both are held up");
    assert_eq!(race.cpu_streams.load(Ordering::SeqCst), 1);
    drop(rows);
    race.cpu_is_gone().await;
    race.let_device();
}

#[tokio::test(flavor = "multi_thread")]
async fn many_rows_of_the_cpu_are_not_held_back() {
    // More in all than is held, though it is one batch again and again.
    let many = |expected: &RecordBatch| {
        let schema = expected.schema();
        let wide: ArrayRef = Arc::new(Int64Array::from_iter_values(0..100_000));
        let columns = schema.fields().iter();
        let columns = columns.map(|field| arrow::compute::cast(&wide, field.data_type()).unwrap());
        let batch = RecordBatch::try_new(Arc::clone(&schema), columns.collect()).unwrap();
        vec![batch; 100]
    };
    let race = Race::with_first(Then::Answers, Then::Answers, racing(), many).await;
    let mut rows = race.node.execute(0, Arc::clone(&race.context)).unwrap();
    for _ in 0..100 {
        let batch = tokio::time::timeout(Duration::from_secs(60), rows.next()).await;
        assert_eq!(batch.unwrap().unwrap().unwrap().num_rows(), 100_000);
    }
    assert_eq!(race.report().cpu_answers, 1);
    race.let_cpu();
    let rest: Vec<_> = rows.try_collect().await.unwrap();
    assert_eq!(
        concat_batches(&race.node.schema(), &rest).unwrap(),
        race.expected
    );
    race.let_device();
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_races_where_that_is_ruled_out() {
    let require_gpu = FragmentOptions {
        require_gpu: true,
        ..racing()
    };
    let waits = FragmentOptions {
        cold: ColdStart::Wait,
        ..FragmentOptions::default()
    };
    // By itself the emulator has no times that say anything.
    for options in [require_gpu, waits, FragmentOptions::default()] {
        let race = Race::new(Then::Answers, Then::Answers, options).await;
        race.let_device();
        assert_eq!(race.collect().await.unwrap(), race.expected);
        assert_eq!(race.report().races, 0);
        assert_eq!(race.cpu_streams.load(Ordering::SeqCst), 0);
    }
}
