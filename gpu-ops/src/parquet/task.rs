//! One task: some column chunks, from their files to their places on the device.
//!
//! A task is begun, which reads the file and queues everything for the device, and finished, which waits. Between the two
//! its thread begins others, so that the device decompresses one task while the file system serves the next.

use std::ops::Range;
use std::sync::Arc;

use warpline_cuda::kernels::{
    PARQUET_KIND_BYTES, PARQUET_NO_DATA, ParquetArgs, ParquetChunk, ParquetPage, ParquetPlace,
    ParquetPlaceArgs, ParquetResult,
};

use super::chunk::{ChunkTask, Outcome};
use super::chunk_bytes::{ChunkBytes, OpenFiles};
use super::counts::Reason;
use super::kernels::Kernels;
use super::lanes::Lanes;
use super::parse::{Parsed, parse};
use super::places::Places;
use super::plan::{BEHIND, Chunk, PAGE_ALIGNED, Plan, Room, Unpacked, write_structs};
use super::scratch::Scratch;
use super::slab::Slab;
use crate::column::{ChunkFacts, PlacedStrings, UsedStrings};
use crate::device::{Device, DevicePtr, Stream};
use crate::error::{GpuError, Result};
use crate::memory::MemoryPool;
use crate::trace::{HostSpan, Trace, Work};

/// Buffers of a task begin at multiples of this.
const ALIGNED: usize = 256;
/// What `decode_page` reports of values and NULLs for which there is no room.
const ERROR_WIDE: u32 = 6;
const ERROR_NULLS: u32 = 7;

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

/// A task whose work is queued on a stream.
pub(crate) struct Begun {
    /// By chunk; `None` of those that are queued.
    outcomes: Vec<Option<Outcome>>,
    queued: Option<Queued>,
}

/// What the device works on.
struct Queued {
    parsed: Vec<Parsed>,
    /// By chunk of `parsed`: what is known without the device.
    preliminary: Vec<Outcome>,
    plan: Plan,
    scratch: Scratch,
    /// Addresses in `scratch`.
    args: ParquetArgs,
    /// Their copies are queued.
    slabs: Vec<Slab>,
    /// Where in `scratch` the kernels report, and the end of it.
    reports: Range<usize>,
}

/// How the bytes of a task come to the device.
enum Way<'a> {
    /// They are read already; the slab stays with the task.
    Slab(Slab),
    /// They are read piece by piece. The host sees nothing but headers of pages and dictionaries of strings.
    Lanes(&'a OpenFiles<'a>, &'a mut Lanes),
}

impl Decoder<'_> {
    /// Read some chunks, and queue their copies and kernels. Those that the host does not decompress come by way of `lanes`.
    ///
    /// # Errors
    /// [`GpuError::Device`], [`GpuError::Stopped`]. Files that cannot be read and memory that is short are outcomes.
    pub(crate) fn begin(
        &self,
        chunks: &[ChunkTask],
        stream: &Stream,
        lanes: &mut Lanes,
    ) -> Result<Begun> {
        stream.check()?;
        let mut begun = Begun {
            outcomes: chunks.iter().map(|_| None).collect(),
            queued: None,
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
                let mut slab = self.slab(total, stream);
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
        match self.queue(chunks, parsed, way, total, stream) {
            Err(GpuError::OutOfDeviceMemory { .. }) => begun.fail(numbers, Reason::Memory),
            other => begun.queued = other?,
        }
        Ok(begun)
    }

    fn slab(&self, bytes: usize, stream: &Stream) -> Slab {
        Slab::new(bytes, &self.slabs, self.host, stream)
    }

    fn span(&self, name: &str) -> Option<HostSpan> {
        let trace = self.trace.as_ref()?;
        Some(trace.thread(Work::Load, name))
    }

    fn reading(&self, bytes: usize) -> Option<HostSpan> {
        let mut span = self.span("read")?;
        span.number("bytes", bytes as u64);
        Some(span)
    }

    /// Queue the copies and kernels of the chunks whose pages are known; `None` where there are none.
    fn queue(
        &self,
        chunks: &[ChunkTask],
        parsed: Vec<Parsed>,
        mut way: Way<'_>,
        total: usize,
        stream: &Stream,
    ) -> Result<Option<Queued>> {
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
        let mut second = (unpacked_bytes > 0).then(|| self.slab(unpacked_bytes, stream));
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
        let pages_at = room.take(plan.pages.len() * size_of::<ParquetPage>(), ALIGNED);
        let chunks_at = room.take(plan.chunks.len() * size_of::<ParquetChunk>(), ALIGNED);
        // What kernels want zeroed lies together.
        let results_at = room.take(plan.pages.len() * size_of::<ParquetResult>(), ALIGNED);
        for (used, words) in plan.used.iter_mut() {
            *used = room.take(*words * 4, 4);
        }
        let end = room.take(0, ALIGNED);
        let mut scratch = {
            let _span = self.span("memory of a task");
            Scratch::new(end, self.scratch.as_ref(), self.pool, stream)?
        };
        let slab = match way {
            Way::Slab(mut slab) => {
                let (memory, base) = scratch.begin_use();
                slab.copy_to(stream, memory, base + raw, total)?;
                Some(slab)
            }
            Way::Lanes(files, lanes) => {
                let mut unreadable = Vec::new();
                let fill = |from, out: &mut [u8]| {
                    let _span = self.reading(out.len());
                    unreadable.extend(files.read(from, out));
                };
                lanes.copy(total, fill, stream, (&mut scratch, raw))?;
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
            second.copy_to(stream, memory, base + unpacked, unpacked_bytes)?;
        }
        plan.locate(memory.ptr_at(base)?);
        // Pageable memory would have to wait for the copies before it.
        let mut tables = self.slab(results_at - pages_at, stream);
        let (pages, rest) = tables.bytes_mut().split_at_mut(chunks_at - pages_at);
        write_structs(&plan.pages, pages);
        write_structs(&plan.chunks, rest);
        tables.copy_to(stream, memory, base + pages_at, results_at - pages_at)?;
        memory.fill_range(stream, base + results_at, end - results_at, 0)?;
        let args = ParquetArgs {
            pages: memory.ptr_at(base + pages_at)?,
            chunks: memory.ptr_at(base + chunks_at)?,
            results: memory.ptr_at(base + results_at)?,
            page_count: plan.pages.len() as u64,
        };
        let device: &dyn Device = self.pool.device().as_ref();
        // SAFETY: the plan's pages lie in `scratch`, which outlives the copy of the results or is ordered by the stream; the
        // columns have all rows of the chunks, as the caller vouches by their targets.
        unsafe {
            if plan.pages.iter().any(|page| page.codec != 0) {
                self.kernels.decompress(device, stream, &args)?;
            }
            let texts = plan.chunks.iter().any(|c| c.kind == PARQUET_KIND_BYTES);
            self.kernels.decode(device, stream, &args, texts)?;
        }
        let slabs = [slab, second, Some(tables)];
        Ok(Some(Queued {
            parsed,
            preliminary,
            plan,
            scratch,
            slabs: slabs.into_iter().flatten().collect(),
            args,
            reports: results_at..end,
        }))
    }

    /// Wait for a task that was begun on this stream.
    ///
    /// # Errors
    /// [`GpuError::Device`], [`GpuError::Stopped`].
    pub(crate) fn finish(&self, begun: Begun, stream: &Stream) -> Result<Vec<Outcome>> {
        let Begun {
            mut outcomes,
            queued,
        } = begun;
        if let Some(queued) = queued {
            let _span = self.span("wait for pages");
            let numbers: Vec<usize> = queued.parsed.iter().map(|p| p.number).collect();
            for (number, outcome) in numbers.into_iter().zip(queued.outcomes(self, stream)?) {
                outcomes[number] = Some(outcome);
            }
        }
        let known = outcomes.into_iter();
        Ok(known
            .map(|outcome| outcome.unwrap_or(Err(Reason::Malformed)))
            .collect())
    }
}

impl Begun {
    fn fail(&mut self, chunks: impl IntoIterator<Item = usize>, reason: Reason) {
        for number in chunks {
            self.outcomes[number] = Some(Err(reason));
        }
    }
}

impl Queued {
    /// What the kernels report, by chunk, once strings are in their place.
    fn outcomes(mut self, decoder: &Decoder<'_>, stream: &Stream) -> Result<Vec<Outcome>> {
        let (told, results) = self.told(stream)?;
        let mut outcomes = std::mem::take(&mut self.preliminary);
        for (at, (parsed, outcome)) in self.parsed.iter_mut().zip(&mut outcomes).enumerate() {
            let Some((pages, used)) = self.plan.ranges.get(at).cloned().flatten() else {
                continue;
            };
            if let Ok(facts) = outcome {
                let found = facts_of(&self.plan.pages[pages.clone()], &results[pages]);
                *outcome = found.map(|found| {
                    *facts = found;
                    std::mem::take(facts)
                });
            }
            if let (Ok(facts), Some((bytes, ends)), Some(used)) =
                (&mut *outcome, parsed.strings.take(), used)
            {
                let (begin, words) = self.plan.used[used];
                let begin = begin - self.reports.start;
                let words = told[begin..begin + words * 4].as_chunks::<4>().0.iter();
                facts.strings = Some(UsedStrings {
                    bytes,
                    ends,
                    used: words.map(|word| u32::from_le_bytes(*word)).collect(),
                });
            }
        }
        let texts = self.plan.chunks.iter();
        if texts.into_iter().any(|c| c.kind == PARQUET_KIND_BYTES) {
            self.place_strings(&results, &mut outcomes, decoder, stream)?;
        }
        self.scratch.end_use();
        self.slabs.iter_mut().for_each(Slab::end_use);
        Ok(outcomes)
    }

    /// All that was reported, and the results of pages among it.
    fn told(&self, stream: &Stream) -> Result<(Vec<u8>, Vec<PageResult>)> {
        let mut told = vec![0u8; self.reports.len()];
        let (memory, base) = self.scratch.within();
        memory.download(stream, base + self.reports.start, &mut told)?;
        let results = told.chunks_exact(size_of::<ParquetResult>());
        let results = results.take(self.plan.pages.len()).map(result).collect();
        Ok((told, results))
    }

    /// Copy the strings of chunks that lie as bytes to room of their own, now that their bytes are known.
    fn place_strings(
        &self,
        results: &[PageResult],
        outcomes: &mut [Outcome],
        decoder: &Decoder<'_>,
        stream: &Stream,
    ) -> Result<()> {
        /// A chunk whose strings take more of the device's memory than this share is left to the CPU.
        const MOST_SHARE: u64 = 8;
        let pool = decoder.pool;
        let most = pool.statistics().budget as u64 / MOST_SHARE;
        let nowhere = ParquetPlace {
            out: DevicePtr::NULL,
            begin: 0,
        };
        let mut places = vec![nowhere; self.plan.pages.len()];
        let mut rooms = Vec::new();
        for (at, outcome) in outcomes.iter_mut().enumerate() {
            let planned = self.plan.ranges.get(at).cloned().flatten();
            let Some((pages, _)) = planned.filter(|_| outcome.is_ok()) else {
                continue;
            };
            let page = self.plan.pages.get(pages.start);
            let chunk = page.and_then(|page| self.plan.chunks.get(page.chunk as usize));
            if chunk.is_none_or(|chunk| chunk.kind != PARQUET_KIND_BYTES) {
                continue;
            }
            let mut length = 0u64;
            for number in pages.clone() {
                if self.plan.pages[number].encoding != PARQUET_NO_DATA {
                    places[number].begin = length;
                    length = length.saturating_add(results[number].1 as u64);
                }
            }
            let room = match usize::try_from(length).ok().filter(|_| length <= most) {
                Some(bytes) => {
                    pool.allocate_for(stream, bytes + BEHIND, "strings of parquet files")
                }
                None => Err(GpuError::OutOfDeviceMemory {
                    requested: usize::MAX,
                    purpose: String::new(),
                    in_use: 0,
                    budget: 0,
                }),
            };
            match room {
                Ok(room) => {
                    for number in pages.clone() {
                        if self.plan.pages[number].encoding != PARQUET_NO_DATA {
                            places[number].out = room.ptr();
                        }
                    }
                    rooms.push((at, pages, room, length as usize));
                }
                Err(GpuError::OutOfDeviceMemory { .. }) => *outcome = Err(Reason::Memory),
                Err(error) => return Err(error),
            }
        }
        if rooms.is_empty() {
            return Ok(());
        }
        let bytes = places.len() * size_of::<ParquetPlace>();
        let mut table = vec![0; bytes];
        write_structs(&places, &mut table);
        let purpose = "places of strings";
        let memory = pool
            .allocate_for(stream, bytes, purpose)?
            .ordered_by(stream);
        memory.upload(stream, 0, &table)?;
        let args = ParquetPlaceArgs {
            pages: self.args.pages,
            chunks: self.args.chunks,
            results: self.args.results,
            places: memory.ptr(),
            page_count: self.args.page_count,
        };
        // SAFETY: the pages lie in `self.scratch`, as when they were decoded; every room has the bytes that their results tell.
        unsafe {
            let device: &dyn Device = pool.device().as_ref();
            decoder.kernels.place_strings(device, stream, &args)?;
        }
        let (_, results) = self.told(stream)?;
        for (at, pages, bytes, length) in rooms {
            let results = pages
                .clone()
                .map(|page| (&self.plan.pages[page], results[page]));
            let results = results.filter(|(page, _)| page.encoding != PARQUET_NO_DATA);
            let (mut ascii, mut malformed) = (true, false);
            results.for_each(|(_, (high, _, _, error))| {
                ascii &= high == 0;
                malformed |= error != 0;
            });
            match &mut outcomes[at] {
                outcome if malformed => *outcome = Err(Reason::Malformed),
                Ok(facts) => {
                    facts.range = None;
                    facts.placed = Some(PlacedStrings {
                        bytes,
                        length,
                        ascii,
                    });
                }
                Err(_) => {}
            }
        }
        Ok(())
    }
}

/// Least and greatest value, NULLs and error of a page.
type PageResult = (i64, i64, u32, u32);

/// Least, greatest, NULLs and error of a result.
fn result(bytes: &[u8]) -> PageResult {
    let word = |at: usize| {
        let mut word = [0; 8];
        word.copy_from_slice(&bytes[at..at + 8]);
        u64::from_le_bytes(word)
    };
    let last = word(16);
    (
        word(0) as i64,
        word(8) as i64,
        last as u32,
        (last >> 32) as u32,
    )
}

/// What all pages of a chunk found together.
fn facts_of(pages: &[ParquetPage], results: &[PageResult]) -> Outcome {
    let mut facts = ChunkFacts::default();
    for (page, (least, greatest, nulls, error)) in pages.iter().zip(results) {
        match *error {
            0 => {}
            ERROR_WIDE => return Err(Reason::Wide),
            ERROR_NULLS => return Err(Reason::OtherRange),
            _ => return Err(Reason::Malformed),
        }
        facts.nulls += u64::from(*nulls);
        // Dictionaries have no rows.
        if page.encoding != PARQUET_NO_DATA && least <= greatest {
            facts.range = Some(match facts.range {
                Some((low, high)) => (low.min(*least), high.max(*greatest)),
                None => (*least, *greatest),
            });
        }
    }
    Ok(facts)
}
