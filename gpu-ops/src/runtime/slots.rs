//! Places on the device: how many queries run there at once, and who goes next.
//!
//! More queries at once than the device and the driver have queues for only get in each other's way: their kernels share the
//! memory's bandwidth, their threads the cores and the driver's locks. So as many run as `warpline.concurrency` says, and the
//! others wait here, before anything of theirs is queued.
//!
//! Short ones go first, in the order in which they came; how long one takes is what its last run took. None is passed by more than
//! [`MOST_PASSED`] others, and long ones leave a quarter of the places to short ones.

use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::error::Result;
use crate::query::Query;

/// Queries that came later and may go before one that waits.
const MOST_PASSED: usize = 16;
/// How often a waiting query looks whether it was stopped.
const GLANCE: Duration = Duration::from_millis(50);

/// How long a run takes, about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Length {
    /// Less than a millisecond.
    Short,
    /// Less than eight.
    Middle,
    /// More, or nobody knows.
    Long,
}

impl Length {
    /// Of a run whose last one took so many milliseconds on the device.
    pub(crate) fn of(last_ms: Option<f64>) -> Self {
        match last_ms {
            Some(ms) if ms < 1.0 => Self::Short,
            Some(ms) if ms < 8.0 => Self::Middle,
            _ => Self::Long,
        }
    }
}

/// The places of a device.
#[derive(Debug, Default)]
pub(crate) struct Slots {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    running: usize,
    /// Those of them that are long.
    long: usize,
    /// In the order in which they came.
    waiting: Vec<Waiting>,
    /// The number of the next that comes.
    next: u64,
}

#[derive(Debug)]
struct Waiting {
    number: u64,
    length: Length,
    /// It goes while fewer run.
    most: usize,
    /// Others that came later and went before it.
    passed: usize,
    /// Its thread sleeps here.
    called: Arc<Condvar>,
}

/// A place on the device, until it is dropped.
#[derive(Debug)]
pub(crate) struct Slot {
    slots: Arc<Slots>,
    length: Length,
    /// Time that was waited for it.
    pub(crate) waited: Duration,
}

/// Queries that run at once unless a setting says otherwise: no more than a device has hardware queues for, of which the driver
/// uses eight, and half as many as there are cores, since each has a thread that waits for the device.
pub(crate) fn default_places() -> usize {
    static PLACES: LazyLock<usize> = LazyLock::new(|| {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        (cores / 2).clamp(4, 8)
    });
    *PLACES
}

impl Slots {
    /// A place for a query, if there is one now and nobody is before it.
    pub(crate) fn try_take(self: &Arc<Self>, length: Length, most: usize) -> Option<Slot> {
        let mut state = self.state.lock();
        let number = state.come(length, most.max(1), &Arc::default());
        state.call();
        if state.waits(number) {
            state.waiting.retain(|other| other.number != number);
            return None;
        }
        Some(Slot {
            slots: Arc::clone(self),
            length,
            waited: Duration::ZERO,
        })
    }

    /// A place for a query, which goes while fewer than `most` run. Blocks until it is this one's turn.
    ///
    /// # Errors
    /// [`crate::GpuError::Stopped`] when the query is stopped meanwhile.
    pub(crate) fn take(
        self: &Arc<Self>,
        query: &Query,
        length: Length,
        most: usize,
    ) -> Result<Slot> {
        let begin = Instant::now();
        let called = Arc::new(Condvar::new());
        let mut state = self.state.lock();
        let number = state.come(length, most.max(1), &called);
        state.call();
        while state.waits(number) {
            if let Err(stopped) = query.check() {
                state.waiting.retain(|other| other.number != number);
                state.call();
                return Err(stopped);
            }
            called.wait_for(&mut state, GLANCE);
        }
        Ok(Slot {
            slots: Arc::clone(self),
            length,
            waited: begin.elapsed(),
        })
    }

    /// Queries that wait.
    pub(crate) fn waiting(&self) -> usize {
        self.state.lock().waiting.len()
    }
}

impl State {
    fn come(&mut self, length: Length, most: usize, called: &Arc<Condvar>) -> u64 {
        let number = self.next;
        self.next += 1;
        self.waiting.push(Waiting {
            number,
            length,
            most,
            passed: 0,
            called: Arc::clone(called),
        });
        number
    }

    fn waits(&self, number: u64) -> bool {
        self.waiting.iter().any(|other| other.number == number)
    }

    /// Let those go for whom there is a place.
    fn call(&mut self) {
        while let Some(at) = self.next_of() {
            let gone = self.waiting.remove(at);
            for passed in &mut self.waiting[..at] {
                passed.passed += 1;
            }
            self.running += 1;
            self.long += usize::from(gone.length == Length::Long);
            gone.called.notify_one();
        }
    }

    /// Who goes next, if anybody can.
    fn next_of(&self) -> Option<usize> {
        let below = |waiting: &&Waiting| self.running < waiting.most;
        let kept = |waiting: &Waiting| waiting.most - waiting.most / 4;
        let has_place = |waiting: &&Waiting| {
            below(waiting) && (waiting.length != Length::Long || self.long < kept(waiting))
        };
        // Whoever was passed often enough goes before all others, and where others have more places than it, these wait for it. The
        // places that long ones leave to short ones are not worth waiting for.
        let mut patient = self.waiting.iter().filter(|w| w.passed >= MOST_PASSED);
        let next = match patient.find(|w| has_place(w) || !below(w)) {
            Some(first) => Some(first).filter(has_place),
            None => {
                let able = self.waiting.iter().filter(has_place);
                able.min_by_key(|waiting| (waiting.length, waiting.number))
            }
        };
        let number = next?.number;
        self.waiting.iter().position(|w| w.number == number)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut state = self.slots.state.lock();
        state.running -= 1;
        state.long -= usize::from(self.length == Length::Long);
        state.call();
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::error::GpuError;

    /// Who goes when, one place becoming free at a time, all queries having come before: their numbers.
    fn order(lengths: &[Length], most: usize) -> Vec<u64> {
        let mut state = State::default();
        for length in lengths {
            state.come(*length, most, &Arc::default());
        }
        let mut order = Vec::new();
        while !state.waiting.is_empty() {
            let before: Vec<_> = state.waiting.iter().map(|w| (w.number, w.length)).collect();
            state.call();
            let gone = before.into_iter().filter(|(n, _)| !state.waits(*n));
            let gone: Vec<_> = gone.collect();
            assert!(state.running <= most);
            order.extend(gone.iter().map(|(number, _)| *number));
            for (_, length) in &gone {
                state.running -= 1;
                state.long -= usize::from(*length == Length::Long);
            }
        }
        order
    }

    #[test]
    fn equals_go_in_the_order_in_which_they_came() {
        for length in [Length::Short, Length::Middle, Length::Long] {
            assert_eq!(order(&[length; 5], 1), [0, 1, 2, 3, 4]);
        }
    }

    #[test]
    fn short_ones_go_first_and_nobody_is_passed_for_ever() {
        use Length::{Long, Middle, Short};
        assert_eq!(order(&[Long, Middle, Short, Short], 1), [2, 3, 1, 0]);
        let mut many = vec![Short; 40];
        many[0] = Long;
        let order = order(&many, 1);
        let place = order.iter().position(|number| *number == 0);
        assert_eq!(place, Some(MOST_PASSED));
    }

    #[test]
    fn long_ones_leave_places_to_short_ones() {
        let mut state = State::default();
        for _ in 0..10 {
            state.come(Length::Long, 8, &Arc::default());
        }
        state.call();
        assert_eq!((state.running, state.waiting.len()), (6, 4));
        state.come(Length::Short, 8, &Arc::default());
        state.come(Length::Middle, 8, &Arc::default());
        state.come(Length::Short, 8, &Arc::default());
        state.call();
        // Both places are taken by those that came first among the short.
        assert_eq!((state.running, state.long), (8, 6));
        let left: Vec<u64> = state.waiting.iter().map(|w| w.number).collect();
        assert_eq!(left, [6, 7, 8, 9, 11]);
        // A single place is nobody's alone.
        assert_eq!(order(&[Length::Long; 2], 1), [0, 1]);
    }

    #[test]
    fn who_was_passed_often_is_waited_for_by_those_who_have_more_places() {
        let mut state = State::default();
        for _ in 0..3 {
            state.come(Length::Short, 4, &Arc::default());
        }
        state.call();
        let low = state.come(Length::Short, 2, &Arc::default());
        for turn in 0..=MOST_PASSED {
            let other = state.come(Length::Short, 4, &Arc::default());
            state.call();
            assert_eq!(state.waits(other), turn == MOST_PASSED);
            state.running -= usize::from(turn < MOST_PASSED);
        }
        state.running -= 2;
        state.call();
        assert!(!state.waits(low));
    }

    #[test]
    fn a_place_is_free_again_and_who_is_stopped_waits_no_longer() {
        let slots = Arc::new(Slots::default());
        let query = Query::begin();
        let first = slots.take(&query, Length::Short, 1).unwrap();
        let stopped = Query::begin();
        let (waiting, later) = std::thread::scope(|scope| {
            let waits = |query: Arc<Query>| {
                let slots = Arc::clone(&slots);
                scope.spawn(move || slots.take(&query, Length::Short, 1))
            };
            let waiting = waits(Arc::clone(&stopped));
            while slots.waiting() < 1 {
                std::thread::yield_now();
            }
            let later = waits(Query::begin());
            while slots.waiting() < 2 {
                std::thread::yield_now();
            }
            stopped.stop();
            let waiting = waiting.join().unwrap();
            assert_eq!(slots.waiting(), 1);
            drop(first);
            (waiting, later.join().unwrap())
        });
        assert!(matches!(waiting, Err(GpuError::Stopped)));
        assert_eq!((slots.waiting(), slots.state.lock().running), (0, 1));
        drop(later.unwrap());
        assert_eq!(slots.state.lock().running, 0);
    }

    #[test]
    fn lengths_go_by_the_last_run() {
        let of: Vec<Length> = [Some(0.2), Some(3.0), Some(17.0), None]
            .map(Length::of)
            .to_vec();
        use Length::{Long, Middle, Short};
        assert_eq!(of, [Short, Middle, Long, Long]);
    }
}
