//! Workers that compile, started when they are needed: as many as there are callers, up to a limit.

use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};

use super::super::nvrtc::Job;

/// The binary of a source, or the compiler's messages.
pub(super) type Outcome = Result<Vec<u8>, String>;

/// Compiles one source at a time.
pub(super) trait Worker: Send {
    /// # Errors
    /// [`Death`] when it is of no use any more.
    fn compile(&mut self, job: &Job) -> Result<Outcome, Death>;
}

/// How a worker ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Death {
    /// For people.
    pub(super) cause: String,
    /// By a fault of its own, as a compiler's defect makes one.
    pub(super) crashed: bool,
}

/// Makes workers.
pub(super) trait Start: Send + Sync {
    /// # Errors
    /// Why there is none.
    fn start(&self) -> Result<Box<dyn Worker>, String>;
}

/// Why a pool did not compile a source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Failure {
    /// No worker can be had.
    NoWorker(String),
    /// Two workers ended over it.
    Lost(Death),
}

/// The workers of one kind.
pub(super) struct Pool {
    start: Box<dyn Start>,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    /// Each with when it was used last, the latest at the end.
    idle: Vec<(Box<dyn Worker>, Instant)>,
    /// Workers that compile, and those that are being started.
    busy: usize,
    most: usize,
    /// Why there will be none.
    broken: Option<String>,
}

impl Pool {
    /// No workers yet, later at most `most`.
    pub(super) fn new(start: Box<dyn Start>, most: usize) -> Self {
        Self {
            start,
            state: Mutex::new(State {
                idle: Vec::new(),
                busy: 0,
                most: most.max(1),
                broken: None,
            }),
            changed: Condvar::new(),
        }
    }

    /// At most so many workers from now on; those that compile come to their end.
    pub(super) fn set_most(&self, most: usize) {
        let mut state = self.state.lock();
        state.most = most.max(1);
        let keep = state.most.saturating_sub(state.busy);
        let surplus = state.idle.len().saturating_sub(keep);
        let dropped: Vec<_> = state.idle.drain(..surplus).collect();
        drop(state);
        self.changed.notify_all();
        drop(dropped);
    }

    /// Workers that there are.
    pub(super) fn workers(&self) -> usize {
        let state = self.state.lock();
        state.idle.len() + state.busy
    }

    /// Let go of workers that had nothing to do for `long`.
    pub(super) fn retire(&self, long: Duration) {
        let mut state = self.state.lock();
        let young = |(_, used): &(Box<dyn Worker>, Instant)| used.elapsed() < long;
        let old = state.idle.iter().take_while(|idle| !young(idle)).count();
        let dropped: Vec<_> = state.idle.drain(..old).collect();
        drop(state);
        drop(dropped);
    }

    /// Make sure that there is a worker.
    ///
    /// # Errors
    /// Why there is none.
    pub(super) fn try_start(&self) -> Result<(), String> {
        let worker = self.take(false)?;
        self.give_back(worker);
        Ok(())
    }

    /// Compile a source by a worker that is free, or gets free. Where the worker ends over it, another one tries.
    ///
    /// # Errors
    /// [`Failure`]: then somebody else has to do it.
    pub(super) fn compile(&self, job: &Job) -> Result<Outcome, Failure> {
        let mut deaths = Vec::new();
        // One that was idle may have been gone for long: the second is new.
        for fresh in [false, true] {
            let mut worker = self.take(fresh).map_err(Failure::NoWorker)?;
            match worker.compile(job) {
                Ok(outcome) => {
                    self.give_back(worker);
                    return Ok(outcome);
                }
                Err(death) => {
                    log::info!("a compiler of kernels ended: {}", death.cause);
                    drop(worker);
                    self.forget();
                    deaths.push(death);
                }
            }
        }
        let crashed = deaths.iter().all(|death| death.crashed);
        let cause = deaths.pop().map_or_else(String::new, |death| death.cause);
        Err(Failure::Lost(Death { cause, crashed }))
    }

    /// A worker of one's own; `fresh`: that has compiled nothing yet.
    fn take(&self, fresh: bool) -> Result<Box<dyn Worker>, String> {
        let mut state = self.state.lock();
        loop {
            if let Some(why) = &state.broken {
                return Err(why.clone());
            }
            match state.idle.pop() {
                Some((worker, _)) if !fresh => {
                    state.busy += 1;
                    return Ok(worker);
                }
                // Its place is what counts.
                Some((worker, _)) => MutexGuard::unlocked(&mut state, || drop(worker)),
                None => {}
            }
            if state.busy + state.idle.len() >= state.most {
                self.changed.wait(&mut state);
                continue;
            }
            state.busy += 1;
            let started = MutexGuard::unlocked(&mut state, || self.start.start());
            match started {
                Ok(worker) => return Ok(worker),
                Err(why) => {
                    state.busy -= 1;
                    match state.busy + state.idle.len() {
                        0 => state.broken = Some(why),
                        // The system gives no more of them.
                        others => state.most = others,
                    }
                    self.changed.notify_all();
                }
            }
        }
    }

    fn give_back(&self, worker: Box<dyn Worker>) {
        let mut state = self.state.lock();
        state.busy -= 1;
        let surplus = match state.busy + state.idle.len() < state.most {
            true => {
                state.idle.push((worker, Instant::now()));
                None
            }
            false => Some(worker),
        };
        drop(state);
        self.changed.notify_one();
        drop(surplus);
    }

    /// A worker that was taken is gone.
    fn forget(&self) {
        self.state.lock().busy -= 1;
        self.changed.notify_one();
    }
}

#[cfg(test)]
mod tests;
