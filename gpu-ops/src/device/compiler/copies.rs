//! Copies of the library in this process: each has a lock of its own.

use std::mem::ManuallyDrop;
use std::path::Path;

use super::super::nvrtc::{Headers, Job, Nvrtc};
use super::pool::{Death, Outcome, Start, Worker};

/// Most copies; each takes some of what there is for the variables of threads, which ends the process when it is used up.
pub(super) const MOST_COPIES: usize = 4;

/// Loads copies of one library file.
pub(super) struct Copies {
    pub(super) library: String,
}

impl Start for Copies {
    fn start(&self) -> Result<Box<dyn Worker>, String> {
        let failed = |error: std::io::Error| format!("a copy of {}: {error}", self.library);
        let source = Path::new(&self.library);
        // Beside the original, the loader would take it for the same.
        let folder = tempfile::Builder::new().prefix("warpline-nvrtc-").tempdir();
        let folder = folder.map_err(failed)?;
        let copy = folder.path().join("libnvrtc-copy.so");
        std::fs::copy(source, &copy).map_err(failed)?;
        let nvrtc = Nvrtc::open(&copy.to_string_lossy())?;
        // What is loaded stays although the file goes.
        Ok(Box::new(Copy {
            nvrtc: ManuallyDrop::new(nvrtc),
            headers: Headers::own(),
        }))
    }
}

struct Copy {
    /// Never unloaded: it has variables of threads that go on.
    nvrtc: ManuallyDrop<Nvrtc>,
    headers: Headers,
}

impl Worker for Copy {
    fn compile(&mut self, job: &Job) -> Result<Outcome, Death> {
        Ok(self.nvrtc.compile(job, &self.headers))
    }
}
