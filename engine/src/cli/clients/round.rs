//! One measurement: so many sessions run queries for so long.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use warpline::{Device, Error, Result, WarplineSession};
use warpline_tpch::{QueryRun, Task, TpchError};

use super::check::Checks;
use super::figures::{CpuTime, Figures, Samples};

/// Runs of each query in every session before anything is measured: one that learns sizes, one that uses them.
const WARM_UPS: usize = 2;

/// What is measured.
pub(super) struct Round<'a> {
    pub(super) sessions: &'a [Arc<WarplineSession>],
    pub(super) tasks: &'a Arc<Vec<Task>>,
    /// Runs in a loop beside the sessions, and is not counted.
    pub(super) heavy: Option<&'a (Arc<WarplineSession>, Task)>,
    pub(super) time: Duration,
    /// The answers to compare with.
    pub(super) checks: Option<Arc<Checks>>,
}

/// Runs every query in every session, and notes the first answers.
///
/// # Errors
/// What the first run of a query reports: nothing is measured then.
pub(super) async fn warm_up(
    sessions: &[Arc<WarplineSession>],
    tasks: &Arc<Vec<Task>>,
    heavy: Option<&(Arc<WarplineSession>, Task)>,
) -> Result<Checks> {
    let mut checks = Checks::default();
    // The first one alone: it loads the columns and compiles the kernels.
    for task in tasks.iter() {
        let run = sessions[0].query(&task.sql).await?;
        checks.note(&sessions[0], task, &run).await?;
    }
    if let Some((session, task)) = heavy {
        for _ in 0..WARM_UPS {
            session.query(&task.sql).await?;
        }
    }
    let mut all: JoinSet<Result<()>> = JoinSet::new();
    for session in sessions {
        let (session, tasks) = (Arc::clone(session), Arc::clone(tasks));
        all.spawn(async move {
            for task in tasks.iter().cycle().take(WARM_UPS * tasks.len()) {
                session.query(&task.sql).await?;
            }
            Ok(())
        });
    }
    while let Some(warm) = all.join_next().await {
        warm.map_err(lost)??;
    }
    Ok(checks)
}

impl Round<'_> {
    /// Runs it.
    ///
    /// # Errors
    /// When a session's task ends early. Errors of queries are counted.
    pub(super) async fn run(&self, device: &Device) -> Result<Figures> {
        let stop = Arc::new(AtomicBool::new(false));
        let mut beside = JoinSet::new();
        if let Some((session, task)) = self.heavy {
            let client = Client {
                session: Arc::clone(session),
                tasks: Arc::new(vec![task.clone()]),
                checks: None,
            };
            let stop = Arc::clone(&stop);
            beside.spawn(async move { client.run(0, || !stop.load(Ordering::Relaxed)).await });
        }
        let cpu = CpuTime::now();
        let start = Instant::now();
        let end = start + self.time;
        let mut all = JoinSet::new();
        for (number, session) in self.sessions.iter().enumerate() {
            let client = Client {
                session: Arc::clone(session),
                tasks: Arc::clone(self.tasks),
                checks: self.checks.clone(),
            };
            all.spawn(async move { client.run(number, || Instant::now() < end).await });
        }
        let mut samples = Samples::default();
        while let Some(client) = all.join_next().await {
            samples.add(client.map_err(lost)?);
        }
        let wall = start.elapsed();
        let cpu = cpu.zip(CpuTime::now()).map(|(before, now)| now - before);
        stop.store(true, Ordering::Relaxed);
        let mut heavy = None;
        while let Some(client) = beside.join_next().await {
            heavy = Some(client.map_err(lost)?);
        }
        Ok(Figures {
            clients: self.sessions.len(),
            wall,
            cpu_seconds: cpu,
            samples,
            streams: streams_of(device),
            heavy: self.heavy.map(|(_, task)| task.name.to_string()).zip(heavy),
        })
    }
}

/// One session and what it runs.
struct Client {
    session: Arc<WarplineSession>,
    tasks: Arc<Vec<Task>>,
    checks: Option<Arc<Checks>>,
}

impl Client {
    /// Runs the queries in the order of the client with this number, over and over.
    async fn run(self, number: usize, goes_on: impl Fn() -> bool) -> Samples {
        let mut samples = Samples::default();
        let order = order_of(number, self.tasks.len());
        for at in order.iter().cycle() {
            if !goes_on() {
                break;
            }
            let task = &self.tasks[*at];
            let start = Instant::now();
            let outcome = self.session.query(&task.sql).await;
            let latency = start.elapsed();
            match outcome {
                Ok(run) => {
                    samples.answered(latency, run.metrics.kernel_ms);
                    self.check(task, &run, &mut samples);
                }
                Err(error) => {
                    let message = error.to_string().replace('\n', " ");
                    samples.failed(format!("{}: {message}", task.name));
                }
            }
        }
        samples
    }

    fn check(&self, task: &Task, run: &QueryRun, samples: &mut Samples) {
        let Some(checks) = &self.checks else { return };
        if let Some(difference) = checks.difference(task, run) {
            samples.wrong(format!("{}: {difference}", task.name));
        }
    }
}

/// Each client begins with another query. Those that begin with the same one go on by another step, so that they do not run in
/// step with each other.
fn order_of(client: usize, queries: usize) -> Vec<usize> {
    let coprime = |step: &usize| gcd(*step, queries) == 1;
    let steps: Vec<usize> = (1..=queries).filter(coprime).collect();
    let step = steps[client / queries % steps.len()];
    (0..queries)
        .map(|turn| (client + turn * step) % queries)
        .collect()
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// Streams of the device that were made so far.
fn streams_of(device: &Device) -> usize {
    let runtime = device.runtime();
    runtime.map_or(0, |runtime| runtime.streams().made())
}

/// A task of the program that did not end.
fn lost(error: tokio::task::JoinError) -> Error {
    TpchError::Worker(error.to_string()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_have_orders_of_their_own() {
        for queries in [1, 2, 7, 21, 22] {
            let orders: Vec<_> = (0..64).map(|client| order_of(client, queries)).collect();
            for order in &orders {
                let mut sorted = order.clone();
                sorted.sort_unstable();
                assert_eq!(sorted, (0..queries).collect::<Vec<_>>());
            }
            if queries >= 21 {
                let mut different = orders.clone();
                different.sort();
                different.dedup();
                assert_eq!(different.len(), orders.len());
            }
        }
        assert_eq!(order_of(2, 3), [2, 0, 1]);
        assert_eq!(order_of(3, 3), [0, 2, 1]);
    }
}
