//! The workers of a cluster: who answers, who is lost. They are asked before a query is planned, so one that comes back is used again.

use std::sync::Arc;
use std::time::{Duration, Instant};

use datafusion::error::DataFusionError;
use datafusion_distributed::{GetWorkerInfoRequest, WorkerResolver};
use futures::future::join_all;
use parking_lot::Mutex;
use url::Url;

use super::channel::{Channels, name};
use crate::error::{Error, Result};

/// How long what was found holds.
const FRESH: Duration = Duration::from_secs(1);

/// How long a worker may take to say that it is there.
const PATIENCE: Duration = Duration::from_secs(3);

/// What the answer of a worker of this version begins with; its device follows.
pub(super) const VERSION: &str = concat!("warpline ", env!("CARGO_PKG_VERSION"), "; ");

/// The workers that sessions share.
pub(super) struct Workers {
    members: Vec<Member>,
    channels: Arc<Channels>,
    /// When they were asked last; none when there is a doubt.
    asked: Mutex<Option<Instant>>,
}

struct Member {
    url: Url,
    state: Mutex<State>,
}

enum State {
    Up { device: String },
    Lost { cause: String },
}

/// What a worker said, or why it said nothing.
enum Answer {
    Here(String),
    Lost(String),
    /// It is there, and will not do.
    Refused(String),
}

impl Workers {
    /// Workers at these addresses, of which nothing is known yet.
    ///
    /// # Errors
    /// An address that is none or must not be used, one that is given twice, or none at all.
    pub(super) fn at(addresses: &[String], channels: Arc<Channels>) -> Result<Self> {
        let mut members: Vec<Member> = Vec::new();
        for address in addresses {
            let url = Url::parse(address.trim()).map_err(|error| {
                Error::Cluster(format!(
                    "'{address}' is not the address of a worker ({error}): give http://HOST:PORT or https://HOST:PORT"
                ))
            })?;
            channels.check(&url)?;
            if members.iter().any(|member| member.url == url) {
                let twice = format!("worker {} is given twice", name(&url));
                return Err(Error::Cluster(twice));
            }
            let cause = "not asked yet".to_string();
            let state = Mutex::new(State::Lost { cause });
            members.push(Member { url, state });
        }
        if members.is_empty() {
            return Err(Error::Cluster("a cluster has at least one worker".into()));
        }
        Ok(Self {
            members,
            channels,
            asked: Mutex::new(None),
        })
    }

    pub(super) fn channels(&self) -> &Channels {
        &self.channels
    }

    /// Those that answered, and the device of each.
    pub(super) fn up(&self) -> Vec<(Url, String)> {
        let up = self.members.iter().filter_map(|member| {
            let State::Up { device } = &*member.state.lock() else {
                return None;
            };
            Some((member.url.clone(), device.clone()))
        });
        up.collect()
    }

    /// Those that did not, and why.
    pub(super) fn down(&self) -> Vec<(Url, String)> {
        let down = self.members.iter().filter_map(|member| {
            let State::Lost { cause } = &*member.state.lock() else {
                return None;
            };
            Some((member.url.clone(), cause.clone()))
        });
        down.collect()
    }

    /// Asks all, for the first time.
    ///
    /// # Errors
    /// Those of [`Self::ask`]; that none answers.
    pub(super) async fn find(&self) -> Result<()> {
        self.ask().await?;
        if self.up().is_empty() {
            let down = self.down().into_iter();
            let down = down.map(|(url, cause)| format!("{}: {cause}", name(&url)));
            return Err(Error::Cluster(format!(
                "no worker answers: {}; `warpline worker` starts one",
                down.collect::<Vec<_>>().join("; ")
            )));
        }
        Ok(())
    }

    /// Asks all who is there, unless that was done just now.
    ///
    /// # Errors
    /// A worker that refuses this caller, or is of another version: that does not pass by itself.
    pub(super) async fn ask(&self) -> Result<()> {
        {
            let mut asked = self.asked.lock();
            if asked.is_some_and(|at| at.elapsed() < FRESH) {
                return Ok(());
            }
            *asked = Some(Instant::now());
        }
        let answers = self.members.iter().map(|member| self.answer(&member.url));
        let answers = join_all(answers).await;
        for (member, answer) in self.members.iter().zip(answers) {
            match answer {
                Answer::Here(device) => {
                    let mut state = member.state.lock();
                    if let State::Lost { .. } = &*state {
                        log::info!("worker {} is there: {device}", name(&member.url));
                    }
                    *state = State::Up { device };
                }
                Answer::Lost(cause) => self.lost(&member.url, &cause),
                Answer::Refused(cause) => {
                    self.lost(&member.url, &cause);
                    self.doubt();
                    return Err(Error::Cluster(cause));
                }
            }
        }
        Ok(())
    }

    async fn answer(&self, url: &Url) -> Answer {
        let mut client = match self.channels.client(url, None) {
            Ok(client) => client,
            Err(error) => return Answer::Lost(error.to_string()),
        };
        let asked = client.get_worker_info(GetWorkerInfoRequest {});
        let version = match tokio::time::timeout(PATIENCE, asked).await {
            Err(_) => return Answer::Lost("it does not answer".into()),
            Ok(Err(DataFusionError::Execution(cause))) if cause.contains("refuses") => {
                return Answer::Refused(cause);
            }
            Ok(Err(error)) => return Answer::Lost(error.to_string()),
            Ok(Ok(answer)) => answer.version,
        };
        match version.strip_prefix(VERSION) {
            Some(device) => Answer::Here(device.to_string()),
            None => Answer::Refused(format!(
                "worker {} is another version ('{version}'): coordinator and workers must be the same",
                name(url)
            )),
        }
    }

    /// Notes that a worker went away.
    pub(super) fn lost(&self, url: &Url, cause: &str) {
        let Some(member) = self.members.iter().find(|member| member.url == *url) else {
            return;
        };
        let mut state = member.state.lock();
        if let State::Up { .. } = &*state {
            log::warn!("worker {} is lost: {cause}", name(url));
        }
        *state = State::Lost {
            cause: cause.to_string(),
        };
    }

    /// Asks again before the next query, however soon that comes.
    pub(super) fn doubt(&self) {
        *self.asked.lock() = None;
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.channels.forget_local();
    }
}

/// Tells the distributed planner which workers there are.
pub(super) struct Resolver(pub(super) Arc<Workers>);

impl WorkerResolver for Resolver {
    fn get_urls(&self) -> Result<Vec<Url>, DataFusionError> {
        Ok(self.0.up().into_iter().map(|(url, _)| url).collect())
    }
}
