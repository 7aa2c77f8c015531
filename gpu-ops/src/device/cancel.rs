//! The cancel flag that streams and kernels check.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use warpline_cuda::DevicePtr;

use crate::error::{GpuError, Result};

/// Where the kernels of a query look, and what they find there once it was stopped.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct StopPlace {
    /// Address of a word; null: nowhere.
    pub(crate) word: DevicePtr,
    /// Never 0.
    pub(crate) number: u64,
}

/// Tells kernels that run that their query was stopped.
pub(crate) trait StopSignal: fmt::Debug + Send + Sync {
    /// Where the kernels of the query with this number look.
    fn place(&self, query: u64) -> StopPlace;

    /// Tell the kernels of the query with this number.
    fn stop(&self, query: u64);
}

/// Whether the work of one query goes on.
#[derive(Debug)]
pub(crate) struct CancelFlag {
    /// Of the query.
    number: u64,
    stopped: AtomicBool,
    /// By which its kernels learn of it.
    signal: Option<Arc<dyn StopSignal>>,
}

impl CancelFlag {
    /// Of the query with this number, which goes on.
    pub(crate) fn new(number: u64, signal: Option<Arc<dyn StopSignal>>) -> Arc<Self> {
        Arc::new(Self {
            number,
            stopped: AtomicBool::new(false),
            signal,
        })
    }

    /// The number of the query.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Nothing more is queued from now on. Kernels on the device that could take long leave soon, and what they leave
    /// behind is worth nothing: the word by which they learn of it is written last, so that whoever reads what such a kernel
    /// left finds here that the query was stopped.
    pub(crate) fn stop(&self) {
        self.stopped.store(true, Ordering::SeqCst);
        if let Some(signal) = &self.signal {
            signal.stop(self.number);
        }
    }

    /// Where kernels look for whether to leave.
    pub(crate) fn stop_place(&self) -> StopPlace {
        let signal = self.signal.as_ref();
        signal.map_or_else(StopPlace::default, |signal| signal.place(self.number))
    }

    /// An error once it was stopped.
    ///
    /// # Errors
    /// [`GpuError::Stopped`].
    pub(crate) fn check(&self) -> Result<()> {
        match self.stopped.load(Ordering::SeqCst) {
            true => Err(GpuError::Stopped),
            false => Ok(()),
        }
    }
}
