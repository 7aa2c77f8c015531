//! Whose query runs next: at most so many at a time, and a free place goes to the user, and of that user to the session, that
//! has fewest of them.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::error::{Result, ServeError, state};

/// Who asks for a place.
#[derive(Debug, Clone)]
pub(crate) struct Asker {
    /// The user's name; the same for all where nobody logs in.
    pub(crate) user: Arc<str>,
    pub(crate) session: u64,
    /// Most queries of the user at a time.
    pub(crate) most: usize,
}

/// The places.
#[derive(Debug)]
pub(crate) struct Admission {
    most: usize,
    most_waiting: usize,
    patience: Duration,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    running: usize,
    by_user: HashMap<Arc<str>, usize>,
    by_session: HashMap<u64, usize>,
    /// In the order in which they came.
    waiting: Vec<Waiting>,
}

#[derive(Debug)]
struct Waiting {
    asker: Asker,
    turn: oneshot::Sender<Permit>,
}

impl Inner {
    fn of_user(&self, asker: &Asker) -> usize {
        self.by_user.get(&asker.user).copied().unwrap_or(0)
    }

    fn of_session(&self, asker: &Asker) -> usize {
        self.by_session.get(&asker.session).copied().unwrap_or(0)
    }

    fn may_run(&self, asker: &Asker) -> bool {
        self.of_user(asker) < asker.most
    }

    fn enter(&mut self, asker: &Asker) {
        self.running += 1;
        *self.by_user.entry(Arc::clone(&asker.user)).or_default() += 1;
        *self.by_session.entry(asker.session).or_default() += 1;
    }

    fn leave(&mut self, asker: &Asker) {
        self.running -= 1;
        if let Some(count) = self.by_user.get_mut(&asker.user) {
            *count -= 1;
            if *count == 0 {
                self.by_user.remove(&asker.user);
            }
        }
        if let Some(count) = self.by_session.get_mut(&asker.session) {
            *count -= 1;
            if *count == 0 {
                self.by_session.remove(&asker.session);
            }
        }
    }

    /// The one whose turn it is, taken out of those who wait.
    fn next(&mut self) -> Option<Waiting> {
        self.waiting.retain(|waiting| !waiting.turn.is_closed());
        let (at, _) = self
            .waiting
            .iter()
            .enumerate()
            .filter(|(_, waiting)| self.may_run(&waiting.asker))
            .min_by_key(|(at, waiting)| {
                let asker = &waiting.asker;
                (self.of_user(asker), self.of_session(asker), *at)
            })?;
        Some(self.waiting.remove(at))
    }
}

/// A place, given back when dropped.
#[derive(Debug)]
pub(crate) struct Permit {
    admission: Arc<Admission>,
    asker: Asker,
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.admission.inner.lock().leave(&self.asker);
        self.admission.give_out();
    }
}

impl Admission {
    pub(crate) fn new(most: usize, most_waiting: usize, patience: Duration) -> Arc<Self> {
        Arc::new(Self {
            most: most.max(1),
            most_waiting,
            patience,
            inner: Mutex::default(),
        })
    }

    /// Queries that run and that wait.
    pub(crate) fn counts(&self) -> (usize, usize) {
        let inner = self.inner.lock();
        (inner.running, inner.waiting.len())
    }

    /// Waits for a place.
    pub(crate) async fn enter(self: &Arc<Self>, asker: Asker) -> Result<Permit> {
        let turn = {
            let mut inner = self.inner.lock();
            let (turn, wait) = oneshot::channel();
            inner.waiting.retain(|waiting| !waiting.turn.is_closed());
            let full = inner.waiting.len() >= self.most_waiting;
            if full && (inner.running >= self.most || !inner.may_run(&asker)) {
                return Err(ServeError::new(
                    state::INSUFFICIENT_RESOURCES,
                    format!(
                        "{} queries wait already: try again later",
                        inner.waiting.len()
                    ),
                ));
            }
            inner.waiting.push(Waiting { asker, turn });
            wait
        };
        self.give_out();
        match tokio::time::timeout(self.patience, turn).await {
            Ok(Ok(permit)) => Ok(permit),
            _ => Err(ServeError::new(
                state::INSUFFICIENT_RESOURCES,
                format!(
                    "the query waited {} s for its turn: try again later",
                    self.patience.as_secs()
                ),
            )),
        }
    }

    /// Gives free places to those who wait.
    fn give_out(self: &Arc<Self>) {
        loop {
            let waiting = {
                let mut inner = self.inner.lock();
                if inner.running >= self.most {
                    return;
                }
                let Some(waiting) = inner.next() else { return };
                inner.enter(&waiting.asker);
                waiting
            };
            // Not under the lock: who has gone away in between gives the place back here.
            let permit = Permit {
                admission: Arc::clone(self),
                asker: waiting.asker,
            };
            drop(waiting.turn.send(permit));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asker(user: &str, session: u64) -> Asker {
        Asker {
            user: user.into(),
            session,
            most: 2,
        }
    }

    #[tokio::test]
    async fn a_heavy_user_does_not_starve_a_light_one() {
        let admission = Admission::new(2, 100, Duration::from_secs(5));
        let one = admission.enter(asker("heavy", 1)).await.unwrap();
        let two = admission.enter(asker("heavy", 2)).await.unwrap();
        let (send, mut receive) = tokio::sync::mpsc::unbounded_channel();
        for (at, (user, session)) in [("heavy", 3), ("light", 9)].into_iter().enumerate() {
            let (admission2, send) = (Arc::clone(&admission), send.clone());
            tokio::spawn(async move {
                let permit = admission2.enter(asker(user, session)).await.unwrap();
                send.send((user, permit)).unwrap();
            });
            while admission.counts().1 < at + 1 {
                tokio::task::yield_now().await;
            }
        }
        drop(one);
        let (user, permit) = receive.recv().await.unwrap();
        assert_eq!(user, "light");
        drop((permit, two));
        assert_eq!(receive.recv().await.unwrap().0, "heavy");
    }

    #[tokio::test]
    async fn users_have_their_own_limit_and_the_queue_has_one() {
        let admission = Admission::new(8, 1, Duration::from_millis(50));
        let permits = (
            admission.enter(asker("a", 1)).await.unwrap(),
            admission.enter(asker("a", 2)).await.unwrap(),
        );
        let (late, full) = tokio::join!(admission.enter(asker("a", 3)), async {
            tokio::task::yield_now().await;
            admission.enter(asker("a", 4)).await
        });
        assert_eq!(late.unwrap_err().code, "53000");
        assert_eq!(full.unwrap_err().code, "53000");
        assert!(admission.enter(asker("b", 5)).await.is_ok());
        drop(permits);
        assert!(admission.enter(asker("a", 3)).await.is_ok());
        assert_eq!(admission.counts().0, 0);
    }
}
