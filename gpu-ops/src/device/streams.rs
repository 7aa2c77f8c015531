//! Leases of a device's streams, which are reused.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use super::{Device, Stream};
use crate::error::Result;

/// The streams of a device that nobody uses at the moment, and the device that makes more.
pub struct Streams {
    device: Arc<dyn Device>,
    idle: Mutex<Vec<Stream>>,
    made: AtomicUsize,
}

impl Streams {
    /// None yet.
    pub(crate) fn new(device: Arc<dyn Device>) -> Arc<Self> {
        Arc::new(Self {
            device,
            idle: Mutex::default(),
            made: AtomicUsize::new(0),
        })
    }

    /// A stream of one's own, made by an earlier user where one is idle. What that user queued and nobody
    /// waited for comes first.
    ///
    /// # Errors
    /// [`crate::GpuError::Device`] when the device makes no stream.
    pub fn lease(self: &Arc<Self>) -> Result<StreamLease> {
        let kept = self.idle.lock().pop();
        let stream = match kept {
            Some(stream) => stream,
            None => {
                let stream = self.device.create_stream()?;
                self.made.fetch_add(1, Ordering::Relaxed);
                stream
            }
        };
        Ok(StreamLease {
            stream,
            streams: Arc::clone(self),
        })
    }

    /// Streams that were made so far: the most that were leased at one time.
    pub fn made(&self) -> usize {
        self.made.load(Ordering::Relaxed)
    }
}

impl fmt::Debug for Streams {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Streams")
            .field("device", &self.device.info().id)
            .finish_non_exhaustive()
    }
}

/// A stream that nobody else uses until it is dropped; then the next run has it.
pub struct StreamLease {
    stream: Stream,
    streams: Arc<Streams>,
}

impl Deref for StreamLease {
    type Target = Stream;

    fn deref(&self) -> &Stream {
        &self.stream
    }
}

impl Drop for StreamLease {
    fn drop(&mut self) {
        self.streams.idle.lock().push(self.stream.clone());
    }
}
