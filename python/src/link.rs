//! From a connection, its queries and results to the session, until it is closed.

use std::sync::Arc;

use parking_lot::Mutex;
use pyo3::prelude::*;
use warpline::{Device, WarplineSession};

use crate::error::refused;
use crate::import::Imports;
use crate::runtime::forked;

/// An open session.
pub(crate) struct Open {
    pub(crate) session: WarplineSession,
    pub(crate) imports: Imports,
    /// Counts the connections of a shared device.
    pub(crate) _device: Arc<Device>,
}

/// A session until it is closed.
pub(crate) struct Link {
    open: Mutex<Option<Arc<Open>>>,
    /// Of which this is: a forked one has none of its threads.
    process: u32,
}

impl Link {
    /// Of this process.
    pub(crate) fn to(open: Open) -> Self {
        Self {
            open: Mutex::new(Some(Arc::new(open))),
            process: std::process::id(),
        }
    }

    /// The session, whosever process this is; `None` once it is closed.
    pub(crate) fn opened(&self) -> Option<Arc<Open>> {
        self.open.lock().clone()
    }

    /// The session, which ends once nobody uses it; `None` where it was closed before.
    pub(crate) fn close(&self) -> Option<Arc<Open>> {
        self.open.lock().take()
    }

    /// The session.
    ///
    /// # Errors
    /// When it is closed, or of another process.
    pub(crate) fn open(&self) -> PyResult<Arc<Open>> {
        if self.process != std::process::id() {
            return Err(forked());
        }
        self.opened().ok_or_else(|| {
            refused("the connection is closed: warpline.connect() opens another one")
        })
    }
}
