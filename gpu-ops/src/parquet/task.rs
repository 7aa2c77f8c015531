//! One task: some column chunks, from their files to scratch memory of the device.
//!
//! A task is begun, which reads the file and queues the copies. Its thread begins others while a batch of them ([`super::batch`]) is
//! decompressed, so that the device works on some tasks while the file system serves the next.

use std::sync::Arc;

use super::chunk::{ChunkTask, Outcome};
use super::chunk_bytes::{ChunkBytes, OpenFiles};
use super::counts::Reason;
use super::kernels::Kernels;
use super::lanes::Lanes;
use super::parse::{Parsed, parse};
use super::places::Places;
use super::plan::{BEHIND, Chunk, PAGE_ALIGNED, Plan, Room, Unpacked};
use super::scratch::Scratch;
use super::slab::Slab;
use crate::device::{Device, Event, Stream};
use crate::error::{GpuError, Result};
use crate::memory::MemoryPool;
use crate::trace::{HostSpan, Trace, Work};

/// Buffers of a task begin at multiples of this.
pub(super) const ALIGNED: usize = 256;

/// What tasks work with.
pub(crate) struct Decoder<'a> {
    pub(crate) pool: &'a Arc<MemoryPool>,
    /// Page-locked memory, where there is some.
    pub(crate) host: Option<&'a Arc<MemoryPool>>,
    /// Blocks of it that are there already, those with the smallest places first.
    pub(crate) slabs: Vec<Arc<Places>>,
    /// The same of the device's memory.
    pub(crate) scratch: Option<Arc<Places>>,
    pub(crate) kernels: &'a Kernels,
    pub(crate) trace: Option<Arc<Trace>>,
}

/// A task whose bytes are on their way to the device.
pub(crate) struct Begun {
    /// By chunk; `None` of those that are on their way.
    pub(super) outcomes: Vec<Option<Outcome>>,
    pub(super) copied: Option<Copied>,
}

/// What kernels are to work on.
pub(super) struct Copied {
    pub(super) parsed: Vec<Parsed>,
    /// By chunk of `parsed`: what is known without the device.
    pub(super) preliminary: Vec<Outcome>,
    /// Addresses in `scratch`.
    pub(super) plan: Plan,
    pub(super) scratch: Scratch,
    /// Their copies are queued.
    pub(super) slabs: Vec<Slab>,
    /// Behind all copies.
    pub(super) copies: Vec<Event>,
}

/// How the bytes of a task come to the device.
enum Way<'a> {
    /// They are read already; the slab stays with the task.
    Slab(Slab),
    /// They are read piece by piece. The host sees nothing but headers of pages and dictionaries of strings.
    Lanes(&'a OpenFiles<'a>, &'a mut Lanes),
}

impl Decoder<'_> {
    /// Read some chunks, and queue their copies: of those that the host does not decompress by way of `lanes`, of others on `copies`.
    ///
    /// # Errors
    /// [`GpuError::Device`], [`GpuError::Stopped`]. Files that cannot be read and memory that is short are outcomes.
    pub(crate) fn begin(
        &self,
        chunks: &[ChunkTask],
        copies: &Stream,
        lanes: &mut Lanes,
    ) -> Result<Begun> {
        copies.check()?;
        let mut begun = Begun {
            outcomes: chunks.iter().map(|_| None).collect(),
            copied: None,
        };
        let total: u64 = chunks.iter().map(|c| c.bytes.end - c.bytes.start).sum();
        let Ok(total) = usize::try_from(total) else {
            begun.fail(0..chunks.len(), Reason::Malformed);
            return Ok(begun);
        };
        let files = OpenFiles::new(chunks);
        let mut begins = files.begins();
        let by_lanes = lanes.are_there() && chunks.iter().all(|c| c.codec.on_device().is_some());
        let mut way = match by_lanes {
            true => Way::Lanes(&files, lanes),
            false => {
                let mut slab = self.slab(total, copies);
                let _span = self.reading(total);
                for number in files.read(0, &mut slab.bytes_mut()[..total]) {
                    begins[number] = None;
                }
                Way::Slab(slab)
            }
        };
        let mut parsed = Vec::with_capacity(chunks.len());
        {
            let _span = self.span("page headers");
            let read = match &mut way {
                Way::Slab(slab) => Some(&*slab.bytes_mut()),
                Way::Lanes(..) => None,
            };
            for (number, (chunk, begin)) in chunks.iter().zip(begins).enumerate() {
                let length = (chunk.bytes.end - chunk.bytes.start) as usize;
                let bytes = begin.and_then(|begin| match read {
                    Some(read) => Some(ChunkBytes::Memory(&read[begin..begin + length])),
                    None => files.chunk(number),
                });
                let (Some(begin), Some(bytes)) = (begin, bytes) else {
                    begun.fail([number], Reason::Unreadable);
                    continue;
                };
                match parse(chunk, bytes) {
                    Ok((pages, strings)) => parsed.push(Parsed {
                        number,
                        pages,
                        begin,
                        strings,
                    }),
                    Err(reason) => begun.fail([number], reason),
                }
            }
        }
        let numbers: Vec<usize> = parsed.iter().map(|parsed| parsed.number).collect();
        match self.copy(chunks, parsed, way, total, copies) {
            Err(GpuError::OutOfDeviceMemory { .. }) => begun.fail(numbers, Reason::Memory),
            other => begun.copied = other?,
        }
        Ok(begun)
    }

    pub(super) fn slab(&self, bytes: usize, stream: &Stream) -> Slab {
        Slab::new(bytes, &self.slabs, self.host, stream)
    }

    pub(super) fn span(&self, name: &str) -> Option<HostSpan> {
        let trace = self.trace.as_ref()?;
        Some(trace.thread(Work::Load, name))
    }

    fn reading(&self, bytes: usize) -> Option<HostSpan> {
        let mut span = self.span("read")?;
        span.number("bytes", bytes as u64);
        Some(span)
    }

    /// Queue the copies of the chunks whose pages are known; `None` where there are none.
    fn copy(
        &self,
        chunks: &[ChunkTask],
        parsed: Vec<Parsed>,
        mut way: Way<'_>,
        total: usize,
        copies: &Stream,
    ) -> Result<Option<Copied>> {
        if parsed.is_empty() {
            return Ok(None);
        }
        let mut room = Room::default();
        let raw = room.take(total + BEHIND, ALIGNED);
        let mut plan = Plan::default();
        let mut preliminary: Vec<Outcome> = Vec::with_capacity(parsed.len());
        // What the host decompresses lies in a slab of its own.
        let unpacked_bytes: usize = parsed
            .iter()
            .filter(|parsed| chunks[parsed.number].codec.on_device().is_none())
            .flat_map(|parsed| parsed.pages.dictionary.iter().chain(&parsed.pages.data))
            .map(|page| (page.uncompressed as usize + BEHIND).next_multiple_of(PAGE_ALIGNED))
            .sum();
        let unpacked = room.take(unpacked_bytes + BEHIND, ALIGNED);
        let mut second = (unpacked_bytes > 0).then(|| self.slab(unpacked_bytes, copies));
        {
            let _span = second.as_ref().and_then(|_| self.span("decompress"));
            let bytes = match &mut way {
                Way::Slab(slab) => Some(&*slab.bytes_mut()),
                Way::Lanes(..) => None,
            };
            let mut unpacked = Unpacked {
                at: unpacked,
                out: second.as_mut().map(Slab::bytes_mut),
                filled: 0,
            };
            for parsed in &parsed {
                let chunk = Chunk {
                    task: &chunks[parsed.number],
                    parsed,
                    bytes: bytes.map(|bytes| &bytes[parsed.begin..]),
                    raw: raw + parsed.begin,
                };
                preliminary.push(plan.add(&chunk, &mut unpacked, &mut room));
            }
        }
        let end = room.take(0, ALIGNED);
        let mut scratch = {
            let _span = self.span("memory of a task");
            Scratch::new(end, self.scratch.as_ref(), self.pool)?
        };
        let mut behind = Vec::new();
        let slab = match way {
            Way::Slab(mut slab) => {
                let (memory, base) = scratch.begin_use();
                slab.copy_to(copies, memory, base + raw, total)?;
                Some(slab)
            }
            Way::Lanes(files, lanes) => {
                let mut unreadable = Vec::new();
                let fill = |from, out: &mut [u8]| {
                    let _span = self.reading(out.len());
                    unreadable.extend(files.read(from, out));
                };
                behind = lanes.copy(total, fill, (&mut scratch, raw))?;
                // The device finds whatever was in the slab.
                for (parsed, outcome) in parsed.iter().zip(&mut preliminary) {
                    if unreadable.contains(&parsed.number) {
                        *outcome = Err(Reason::Unreadable);
                    }
                }
                None
            }
        };
        let (memory, base) = scratch.begin_use();
        if let Some(second) = &mut second {
            second.copy_to(copies, memory, base + unpacked, unpacked_bytes)?;
        }
        plan.locate(memory.ptr_at(base)?);
        let slabs: Vec<Slab> = [slab, second].into_iter().flatten().collect();
        if !slabs.is_empty() {
            let device: &dyn Device = self.pool.device().as_ref();
            behind.push(device.record_event(copies)?);
        }
        Ok(Some(Copied {
            parsed,
            preliminary,
            plan,
            scratch,
            slabs,
            copies: behind,
        }))
    }
}

impl Begun {
    /// Pages that kernels are to work on.
    pub(crate) fn pages(&self) -> usize {
        let copied = self.copied.as_ref();
        copied.map_or(0, |copied| copied.plan.pages.len())
    }

    fn fail(&mut self, chunks: impl IntoIterator<Item = usize>, reason: Reason) {
        for number in chunks {
            self.outcomes[number] = Some(Err(reason));
        }
    }
}
