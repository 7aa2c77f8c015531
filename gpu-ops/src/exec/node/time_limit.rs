//! The node above a plan whose time is limited: when it is over, the plan's streams are dropped and the query is an error.

use std::fmt;
use std::pin::Pin;
use std::str::FromStr;
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::error::Result;
use datafusion::execution::{RecordBatchStream, SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan};
use futures::Stream;
use parking_lot::Mutex;

use crate::error::GpuError;
use crate::plan_node::only_child;

/// How long a query may run; no limit by default.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TimeLimit(pub Option<Duration>);

/// Units of time, each with its milliseconds; the first that fits is printed.
const UNITS: [(&str, u64); 4] = [("h", 3_600_000), ("min", 60_000), ("s", 1_000), ("ms", 1)];

impl fmt::Display for TimeLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(limit) = self.0 else {
            return f.write_str("0");
        };
        let milliseconds = u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
        let whole = |(_, unit): &&(&str, u64)| milliseconds.is_multiple_of(*unit);
        let (name, unit) = UNITS.iter().find(whole).unwrap_or(&("ms", 1));
        write!(f, "{}{name}", milliseconds / unit)
    }
}

impl FromStr for TimeLimit {
    type Err = GpuError;

    fn from_str(text: &str) -> Result<Self, GpuError> {
        let trimmed = text.trim().to_ascii_lowercase();
        let unit_start = trimmed
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(trimmed.len());
        let (number, unit) = trimmed.split_at(unit_start);
        let unit = match unit.trim() {
            "" => Some(1_000),
            name => UNITS.iter().find(|(n, _)| *n == name).map(|(_, u)| *u),
        };
        let milliseconds = number.parse::<f64>().ok().zip(unit);
        match milliseconds.map(|(number, unit)| number * unit as f64) {
            Some(0.0) => Ok(Self(None)),
            // A year and more is no limit that anybody means.
            Some(ms) if (1.0..3.2e10).contains(&ms) => {
                Ok(Self(Some(Duration::from_millis(ms as u64))))
            }
            _ => Err(GpuError::InvalidSetting {
                setting: "warpline.time_limit".into(),
                value: text.to_string(),
                expected: "a time such as 500ms, 10s, 5min or 1h, of at least a millisecond, or 0 for none".into(),
            }),
        }
    }
}

/// Passes the rows of its input on until a time is over, counted from when the first of its streams was opened.
#[derive(Debug)]
pub struct TimeLimitExec {
    input: Arc<dyn ExecutionPlan>,
    limit: Duration,
    /// When the run at hand ends.
    end: Mutex<Option<Instant>>,
}

impl TimeLimitExec {
    /// Let `input` run for at most `limit`.
    pub fn new(input: Arc<dyn ExecutionPlan>, limit: Duration) -> Self {
        Self {
            input,
            limit,
            end: Mutex::new(None),
        }
    }

    /// How long the input may run.
    pub fn limit(&self) -> Duration {
        self.limit
    }
}

impl DisplayAs for TimeLimitExec {
    fn fmt_as(&self, format: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let limit = TimeLimit(Some(self.limit));
        match format {
            DisplayFormatType::TreeRender => writeln!(f, "limit={limit}"),
            _ => write!(f, "TimeLimitExec: limit={limit}"),
        }
    }
}

impl ExecutionPlan for TimeLimitExec {
    fn name(&self) -> &str {
        "TimeLimitExec"
    }

    crate::rows_of_input!();

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let input = only_child(self.name(), children)?;
        Ok(Arc::new(Self::new(input, self.limit)))
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let now = Instant::now();
        let end = *self.end.lock().get_or_insert(now + self.limit);
        let input = self.input.execute(partition, context)?;
        Ok(Box::pin(LimitedStream {
            schema: input.schema(),
            input: Some(input),
            alarm: Alarm::at(end),
            limit: self.limit,
        }))
    }
}

struct LimitedStream {
    schema: SchemaRef,
    /// Gone when the time is over: with it goes whatever it had begun.
    input: Option<SendableRecordBatchStream>,
    alarm: Alarm,
    limit: Duration,
}

impl Stream for LimitedStream {
    type Item = Result<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.input.is_none() {
            return Poll::Ready(None);
        }
        if self.alarm.is_over(context.waker()) {
            self.input = None;
            let limit = TimeLimit(Some(self.limit)).to_string();
            return Poll::Ready(Some(Err(GpuError::TimeLimit { limit }.into())));
        }
        match &mut self.input {
            Some(input) => input.as_mut().poll_next(context),
            None => Poll::Ready(None),
        }
    }
}

impl RecordBatchStream for LimitedStream {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
}

/// Wakes a task at a time, from a thread of its own: the runtime that a plan runs on may have no timer.
struct Alarm {
    end: Instant,
    waker: Arc<Mutex<Option<Waker>>>,
    /// Dropped with the alarm, which ends the thread. `None`: there was no thread to have, and the time is looked at whenever
    /// rows come.
    _thread: Option<mpsc::Sender<()>>,
}

impl Alarm {
    fn at(end: Instant) -> Self {
        let waker = Arc::<Mutex<Option<Waker>>>::default();
        let (sender, receiver) = mpsc::channel::<()>();
        let wakes = Arc::clone(&waker);
        let thread = std::thread::Builder::new()
            .name("warpline-time-limit".into())
            .spawn(move || {
                let time = end.saturating_duration_since(Instant::now());
                if receiver.recv_timeout(time) == Err(mpsc::RecvTimeoutError::Timeout) {
                    // Under the lock, so that a waker that comes at this moment finds the time over.
                    if let Some(waker) = wakes.lock().take() {
                        waker.wake();
                    }
                }
            });
        if let Err(error) = &thread {
            log::warn!("warpline.time_limit has no thread of its own: {error}");
        }
        Self {
            end,
            waker,
            _thread: thread.is_ok().then_some(sender),
        }
    }

    /// Is the time over? If not, this task is woken when it is.
    fn is_over(&self, waker: &Waker) -> bool {
        *self.waker.lock() = Some(waker.clone());
        Instant::now() >= self.end
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units() {
        for (text, milliseconds, shown) in [
            ("10s", 10_000, "10s"),
            (" 500 ms", 500, "500ms"),
            ("1.5min", 90_000, "90s"),
            ("2", 2_000, "2s"),
            ("2h", 7_200_000, "2h"),
        ] {
            let limit: TimeLimit = text.parse().unwrap();
            assert_eq!(limit.0, Some(Duration::from_millis(milliseconds)), "{text}");
            assert_eq!(limit.to_string(), shown);
        }
        for none in ["0", "0s", "0.0ms"] {
            let limit: TimeLimit = none.parse().unwrap();
            assert_eq!((limit.0, limit.to_string().as_str()), (None, "0"));
        }
        for wrong in ["", "s", "-1s", "10 days", "0.1ms", "1e3", "99999999h"] {
            let error = wrong.parse::<TimeLimit>().unwrap_err().to_string();
            assert!(error.contains("5min"), "{error}");
        }
    }

    #[test]
    fn an_alarm_wakes_at_its_time_and_ends_early() {
        let woken = Arc::new(Woken(mpsc::channel().0.into()));
        let (sender, receiver) = mpsc::channel();
        *woken.0.lock() = sender;
        let waker = Waker::from(Arc::clone(&woken));
        let alarm = Alarm::at(Instant::now() + Duration::from_millis(20));
        assert!(!alarm.is_over(&waker));
        receiver.recv_timeout(Duration::from_secs(60)).unwrap();
        assert!(alarm.is_over(&waker));

        let alarm = Alarm::at(Instant::now() + Duration::from_secs(3600));
        assert!(!alarm.is_over(&waker));
        let thread = Arc::downgrade(&alarm.waker);
        drop(alarm);
        let begin = Instant::now();
        while thread.strong_count() > 0 {
            assert!(
                begin.elapsed() < Duration::from_secs(60),
                "the thread stayed"
            );
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    struct Woken(Mutex<mpsc::Sender<()>>);

    impl std::task::Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.lock().send(()).unwrap();
        }
    }
}
