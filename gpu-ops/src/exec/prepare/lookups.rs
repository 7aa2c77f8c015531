//! The lookup tables of a program's kernels: on the device from one run to the next, unless memory is short between them.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::codegen::{KernelProgram, LookupTable};
use crate::device::Stream;
use crate::error::Result;
use crate::memory::{DeviceBuffer, Held};
use crate::runtime::Runtime;

/// Lookup tables whose addresses kernels have.
#[derive(Debug)]
pub(in crate::exec) struct KeptLookups {
    /// `None` once they were given back.
    buffer: Mutex<Option<Arc<DeviceBuffer>>>,
}

/// Keeps lookup tables where they are while kernels run.
#[derive(Debug)]
pub(in crate::exec) struct UsedLookups {
    #[allow(dead_code, reason = "held, not read: kernels have its address")]
    buffer: Option<Arc<DeviceBuffer>>,
}

impl UsedLookups {
    /// Those of a program without any.
    pub(in crate::exec) fn none() -> Self {
        Self { buffer: None }
    }
}

impl KeptLookups {
    pub(in crate::exec) fn new(buffer: DeviceBuffer) -> Self {
        Self {
            buffer: Mutex::new(Some(Arc::new(buffer))),
        }
    }

    /// For a run; `None` once they were given back.
    pub(in crate::exec) fn for_use(&self) -> Option<UsedLookups> {
        let buffer = self.buffer.lock().clone();
        buffer.map(|buffer| UsedLookups {
            buffer: Some(buffer),
        })
    }

    /// Were they given back?
    pub(in crate::exec) fn are_gone(&self) -> bool {
        self.buffer.lock().is_none()
    }
}

impl Held for KeptLookups {
    fn bytes(&self) -> usize {
        let buffer = self.buffer.lock();
        let idle = buffer.as_ref().filter(|b| Arc::strong_count(b) == 1);
        idle.map_or(0, |buffer| buffer.len())
    }

    fn give_back(&self) -> usize {
        let idle = {
            let mut buffer = self.buffer.lock();
            match &*buffer {
                Some(kept) if Arc::strong_count(kept) == 1 => buffer.take(),
                _ => None,
            }
        };
        idle.map_or(0, |buffer| buffer.len())
    }
}

/// Lookup tables begin at multiples of this in their buffer.
const LOOKUP_ALIGNMENT: usize = 256;

/// All lookup tables in one buffer, and by kernel the offset of each.
pub(in crate::exec) fn upload_lookups(
    runtime: &Runtime,
    stream: &Stream,
    kernels: &[&KernelProgram],
) -> Result<(Option<DeviceBuffer>, Vec<Vec<usize>>)> {
    let mut bytes: Vec<u8> = Vec::new();
    let mut offsets = Vec::with_capacity(kernels.len());
    for kernel in kernels {
        let mut mine = Vec::with_capacity(kernel.lookups.len());
        for LookupTable { bytes: table } in &kernel.lookups {
            mine.push(bytes.len());
            bytes.extend_from_slice(table);
            // At least one unit: an empty table has an address as well.
            let end = (bytes.len() + 1).next_multiple_of(LOOKUP_ALIGNMENT);
            bytes.resize(end, 0);
        }
        offsets.push(mine);
    }
    if bytes.is_empty() {
        return Ok((None, offsets));
    }
    let buffer = runtime.pool().allocate(bytes.len(), "lookup tables")?;
    buffer.upload(stream, 0, &bytes)?;
    // Runs of other sessions read it on streams of their own.
    runtime.device().synchronize(stream)?;
    Ok((Some(buffer), offsets))
}
