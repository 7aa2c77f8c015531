//! Some tasks whose bytes are copied, decompressed and decoded by one launch of each kernel.
//!
//! A warp has a page, and takes milliseconds for it: what fills the device are pages, thousands at a time. Kernels of different
//! streams run beside each other only where the hardware has a queue for each, which is 8 by default and serves copies as well. So
//! few batches with many pages run at a time, and not a kernel a task.

use std::ops::Range;

use warpline_cuda::kernels::{
    PARQUET_KIND_BYTES, PARQUET_NO_DATA, ParquetArgs, ParquetChunk, ParquetPage, ParquetPlace,
    ParquetPlaceArgs, ParquetResult,
};

use super::chunk::Outcome;
use super::counts::Reason;
use super::parse::DictionaryStrings;
use super::plan::{BEHIND, Plan, Room, write_structs};
use super::scratch::Scratch;
use super::slab::Slab;
use super::task::{ALIGNED, Begun, Decoder};
use crate::column::{ChunkFacts, PlacedStrings, UsedStrings};
use crate::device::{Device, DevicePtr, Event, Stream};
use crate::error::{GpuError, Result};

/// What `decode_page` reports of values and NULLs for which there is no room.
const ERROR_WIDE: u32 = 6;
const ERROR_NULLS: u32 = 7;

/// Tasks whose kernels are queued on a stream.
pub(crate) struct Batch {
    /// By task and chunk; `None` of those that are queued.
    outcomes: Vec<Vec<Option<Outcome>>>,
    queued: Option<Box<Queued>>,
}

/// What the device works on.
struct Queued {
    /// Of each chunk the number of its task and its own there.
    numbers: Vec<(usize, usize)>,
    /// By chunk: the strings of its dictionary.
    strings: Vec<Option<DictionaryStrings>>,
    /// By chunk: what is known without the device.
    preliminary: Vec<Outcome>,
    /// Pages and chunks of all tasks.
    plan: Plan,
    scratch: Vec<Scratch>,
    /// What kernels are told of pages, and what they report.
    tables: Scratch,
    /// Addresses in `tables`.
    args: ParquetArgs,
    /// Their copies are queued.
    slabs: Vec<Slab>,
    /// Where in `tables` the kernels report, and the end of it.
    reports: Range<usize>,
    /// Behind the kernels.
    end: Event,
}

impl Decoder<'_> {
    /// Queue the kernels of tasks, once their bytes are there.
    ///
    /// # Errors
    /// [`GpuError::Device`], [`GpuError::Stopped`]. Memory that is short is an outcome.
    pub(crate) fn launch(&self, tasks: Vec<Begun>, stream: &Stream) -> Result<Batch> {
        stream.check()?;
        let mut outcomes = Vec::with_capacity(tasks.len());
        let (mut numbers, mut strings, mut preliminary) = (Vec::new(), Vec::new(), Vec::new());
        let (mut scratch, mut slabs) = (Vec::new(), Vec::new());
        let mut plan = Plan::default();
        let device: &dyn Device = self.pool.device().as_ref();
        for (task, begun) in tasks.into_iter().enumerate() {
            outcomes.push(begun.outcomes);
            let Some(copied) = begun.copied else { continue };
            for copies in &copied.copies {
                device.wait_event(stream, copies)?;
            }
            for parsed in copied.parsed {
                numbers.push((task, parsed.number));
                strings.push(parsed.strings);
            }
            preliminary.extend(copied.preliminary);
            plan.append(copied.plan);
            scratch.push(copied.scratch);
            slabs.extend(copied.slabs);
        }
        let mut batch = Batch {
            outcomes,
            queued: None,
        };
        if numbers.is_empty() {
            return Ok(batch);
        }
        let mut room = Room::default();
        let pages_at = room.take(plan.pages.len() * size_of::<ParquetPage>(), ALIGNED);
        let chunks_at = room.take(plan.chunks.len() * size_of::<ParquetChunk>(), ALIGNED);
        // What kernels want zeroed lies together.
        let results_at = room.take(plan.pages.len() * size_of::<ParquetResult>(), ALIGNED);
        for (used, words) in plan.used.iter_mut() {
            *used = room.take(*words * 4, 4);
        }
        let end = room.take(0, ALIGNED);
        let mut tables = match Scratch::new(end, None, self.pool) {
            Err(GpuError::OutOfDeviceMemory { .. }) => {
                for (task, number) in numbers {
                    batch.outcomes[task][number] = Some(Err(Reason::Memory));
                }
                return Ok(batch);
            }
            tables => tables?,
        };
        let (memory, base) = tables.begin_use();
        plan.locate_used(memory.ptr_at(base)?);
        // Pageable memory would have to wait for the copies before it.
        let mut slab = self.slab(results_at - pages_at, stream);
        let (pages, rest) = slab.bytes_mut().split_at_mut(chunks_at - pages_at);
        write_structs(&plan.pages, pages);
        write_structs(&plan.chunks, rest);
        slab.copy_to(stream, memory, base + pages_at, results_at - pages_at)?;
        memory.fill_range(stream, base + results_at, end - results_at, 0)?;
        let args = ParquetArgs {
            pages: memory.ptr_at(base + pages_at)?,
            chunks: memory.ptr_at(base + chunks_at)?,
            results: memory.ptr_at(base + results_at)?,
            page_count: plan.pages.len() as u64,
        };
        slabs.push(slab);
        // SAFETY: the plan's pages lie in `scratch`, which outlives the copy of the results, or is not given to others before all
        // streams have passed the kernels; the columns have all rows of the chunks, as the caller vouches by their targets.
        unsafe {
            if plan.pages.iter().any(|page| page.codec != 0) {
                self.kernels.decompress(device, stream, &args)?;
            }
            let texts = plan.chunks.iter().any(|c| c.kind == PARQUET_KIND_BYTES);
            self.kernels.decode(device, stream, &args, texts)?;
        }
        batch.queued = Some(Box::new(Queued {
            numbers,
            strings,
            preliminary,
            plan,
            scratch,
            tables,
            args,
            slabs,
            reports: results_at..end,
            end: device.record_event(stream)?,
        }));
        Ok(batch)
    }

    /// Has the device done its part of a batch, but for strings?
    ///
    /// # Errors
    /// [`GpuError::Device`].
    pub(crate) fn has_ended(&self, batch: &Batch) -> Result<bool> {
        match &batch.queued {
            Some(queued) => self.pool.device().event_passed(&queued.end, false),
            None => Ok(true),
        }
    }

    /// Wait for a batch that was launched on this stream; the outcomes by task and chunk.
    ///
    /// # Errors
    /// [`GpuError::Device`], [`GpuError::Stopped`].
    pub(crate) fn finish(&self, batch: Batch, stream: &Stream) -> Result<Vec<Vec<Outcome>>> {
        let Batch {
            mut outcomes,
            queued,
        } = batch;
        if let Some(mut queued) = queued {
            let _span = self.span("wait for pages");
            let numbers = std::mem::take(&mut queued.numbers);
            for ((task, number), outcome) in numbers.into_iter().zip(queued.outcomes(self, stream)?)
            {
                outcomes[task][number] = Some(outcome);
            }
        }
        let known = |task: Vec<Option<Outcome>>| {
            let outcomes = task.into_iter();
            outcomes.map(|known| known.unwrap_or(Err(Reason::Malformed)))
        };
        Ok(outcomes
            .into_iter()
            .map(|task| known(task).collect())
            .collect())
    }
}

impl Queued {
    /// What the kernels report, by chunk, once strings are in their place.
    fn outcomes(
        mut self: Box<Self>,
        decoder: &Decoder<'_>,
        stream: &Stream,
    ) -> Result<Vec<Outcome>> {
        let (told, results) = self.told(stream)?;
        let mut outcomes = std::mem::take(&mut self.preliminary);
        for (at, (strings, outcome)) in self.strings.iter_mut().zip(&mut outcomes).enumerate() {
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
                (&mut *outcome, strings.take(), used)
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
        self.scratch.iter_mut().for_each(Scratch::end_use);
        self.tables.end_use();
        self.slabs.iter_mut().for_each(Slab::end_use);
        Ok(outcomes)
    }

    /// All that was reported, and the results of pages among it.
    fn told(&self, stream: &Stream) -> Result<(Vec<u8>, Vec<PageResult>)> {
        let mut told = vec![0u8; self.reports.len()];
        let (memory, base) = self.tables.within();
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
