//! One task: some column chunks of a row group, from the file to their places on the device.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use warpline_cuda::KernelArgs;
use warpline_cuda::kernels::{
    PARQUET_KIND_CODE, PARQUET_NO_DATA, ParquetArgs, ParquetChunk, ParquetPage, ParquetResult,
};

use super::codec::Codec;
use super::counts::Reason;
use super::kernels::Kernels;
use super::pages::{Page, Pages, encoding, pages_of};
use crate::column::{ChunkFacts, Target, UsedStrings};
use crate::device::{Device, DevicePtr, Stream};
use crate::error::{GpuError, Result};
use crate::memory::{DeviceBuffer, MemoryPool};
use crate::trace::{Trace, Work};

/// What a task has of the file, unless one chunk has more.
pub(crate) const TASK_BYTES: u64 = 32 << 20;
/// Buffers of a task begin at multiples of this.
const ALIGNED: usize = 256;
/// Kernels read so far behind a page.
const BEHIND: usize = 32;
/// Pages begin at multiples of this where they are decompressed to.
const PAGE_ALIGNED: usize = 16;
/// No page has this number.
const NO_PAGE: u32 = u32::MAX;
/// What `decode_page` reports of values and NULLs for which there is no room.
const ERROR_WIDE: u32 = 6;
const ERROR_NULLS: u32 = 7;

/// How the values of a column lie in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ValueKind {
    /// A `PARQUET_KIND`.
    pub(crate) kind: u32,
    /// Bytes of a value; 0 of strings and bits.
    pub(crate) bytes: u32,
    /// Do values have definition levels?
    pub(crate) optional: bool,
}

/// A column chunk to decode.
#[derive(Debug, Clone)]
pub(crate) struct ChunkTask {
    /// Its bytes in the file.
    pub(crate) bytes: Range<u64>,
    pub(crate) codec: Codec,
    /// Bytes without compression, as the file's metadata says.
    pub(crate) uncompressed: u64,
    pub(crate) values: ValueKind,
    /// Its first row in the column.
    pub(crate) first_row: usize,
    pub(crate) rows: usize,
    pub(crate) target: Target,
}

/// What tasks work with.
pub(crate) struct Decoder<'a> {
    pub(crate) pool: &'a Arc<MemoryPool>,
    /// Page-locked memory, where there is some.
    pub(crate) host: Option<&'a Arc<MemoryPool>>,
    pub(crate) kernels: &'a Kernels,
    pub(crate) trace: Option<Arc<Trace>>,
}

/// What became of a chunk.
pub(crate) type Outcome = std::result::Result<ChunkFacts, Reason>;

/// Host bytes that are copied to the device: page-locked, or not.
enum Slab {
    Pinned(DeviceBuffer),
    Plain(Vec<u8>),
}

impl Slab {
    fn new(bytes: usize, host: Option<&Arc<MemoryPool>>) -> Self {
        // Without page-locked memory the copy is slower.
        match host.map(|host| host.allocate(bytes.max(1), "bytes of parquet files")) {
            Some(Ok(buffer)) => Self::Pinned(buffer),
            _ => Self::Plain(vec![0; bytes]),
        }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Pinned(buffer) => buffer.host_bytes_mut().unwrap_or_default(),
            Self::Plain(bytes) => bytes,
        }
    }

    /// Queue a copy of all bytes, or wait for it.
    fn copy_to(
        &self,
        stream: &Stream,
        target: &DeviceBuffer,
        at: usize,
        bytes: usize,
    ) -> Result<()> {
        match self {
            Self::Pinned(buffer) => target.copy_from(stream, at, buffer, 0, bytes),
            Self::Plain(all) => target.upload(stream, at, &all[..bytes]),
        }
    }
}

/// A chunk whose pages are known.
struct Parsed {
    /// In the list of chunks.
    number: usize,
    pages: Pages,
    /// Where its bytes begin among those read.
    begin: usize,
    strings: Option<(Vec<u8>, Vec<usize>)>,
}

/// Offsets in the one buffer on the device that a task has.
#[derive(Default)]
struct Room {
    end: usize,
}

impl Room {
    fn take(&mut self, bytes: usize, align: usize) -> usize {
        let begin = self.end.next_multiple_of(align);
        self.end = begin + bytes;
        begin
    }
}

impl Decoder<'_> {
    /// Read, copy and decode some chunks of a file, and wait for it.
    ///
    /// # Errors
    /// [`GpuError::Device`], [`GpuError::Stopped`]. Files that cannot be read and memory that is short are outcomes.
    pub(crate) fn run(
        &self,
        file: &File,
        chunks: &[ChunkTask],
        stream: &Stream,
    ) -> Result<Vec<Outcome>> {
        let all = |reason: Reason| chunks.iter().map(|_| Err(reason)).collect();
        stream.check()?;
        let total: u64 = chunks.iter().map(|c| c.bytes.end - c.bytes.start).sum();
        let Ok(total) = usize::try_from(total) else {
            return Ok(all(Reason::Malformed));
        };
        let mut slab = Slab::new(total, self.host);
        let begins = {
            let _span = self.span("read");
            match read(file, chunks, slab.bytes_mut()) {
                Ok(begins) => begins,
                Err(error) => {
                    log::debug!("{error}");
                    return Ok(all(Reason::Unreadable));
                }
            }
        };
        let mut outcomes: Vec<Option<Outcome>> = chunks.iter().map(|_| None).collect();
        let mut parsed = Vec::with_capacity(chunks.len());
        {
            let _span = self.span("page headers");
            let bytes = &*slab.bytes_mut();
            for (number, (chunk, begin)) in chunks.iter().zip(begins).enumerate() {
                let length = (chunk.bytes.end - chunk.bytes.start) as usize;
                match parse(chunk, &bytes[begin..begin + length]) {
                    Ok((pages, strings)) => parsed.push(Parsed {
                        number,
                        pages,
                        begin,
                        strings,
                    }),
                    Err(reason) => outcomes[number] = Some(Err(reason)),
                }
            }
        }
        let decoded = match self.decode(chunks, &mut parsed, slab, total, stream) {
            Err(GpuError::OutOfDeviceMemory { .. }) => {
                parsed.iter().map(|_| Err(Reason::Memory)).collect()
            }
            other => other?,
        };
        for (parsed, outcome) in parsed.iter().zip(decoded) {
            outcomes[parsed.number] = Some(outcome);
        }
        Ok(outcomes
            .into_iter()
            .map(|outcome| outcome.unwrap_or(Err(Reason::Malformed)))
            .collect())
    }

    fn span(&self, name: &str) -> Option<crate::trace::HostSpan> {
        let trace = self.trace.as_ref()?;
        Some(trace.thread(Work::Load, name))
    }

    /// Copy and decode the chunks whose pages are known.
    fn decode(
        &self,
        chunks: &[ChunkTask],
        parsed: &mut [Parsed],
        mut slab: Slab,
        total: usize,
        stream: &Stream,
    ) -> Result<Vec<Outcome>> {
        if parsed.is_empty() {
            return Ok(Vec::new());
        }
        let mut room = Room::default();
        let raw = room.take(total + BEHIND, ALIGNED);
        let mut plan = Plan::default();
        let mut outcomes: Vec<Outcome> = Vec::with_capacity(parsed.len());
        // What the host decompresses lies in a slab of its own.
        let unpacked_bytes: usize = parsed
            .iter()
            .filter(|parsed| chunks[parsed.number].codec.on_device().is_none())
            .flat_map(|parsed| parsed.pages.dictionary.iter().chain(&parsed.pages.data))
            .map(|page| (page.uncompressed as usize + BEHIND).next_multiple_of(PAGE_ALIGNED))
            .sum();
        let unpacked = room.take(unpacked_bytes + BEHIND, ALIGNED);
        let mut second = (unpacked_bytes > 0).then(|| Slab::new(unpacked_bytes, self.host));
        {
            let _span = second.as_ref().and_then(|_| self.span("decompress"));
            let bytes = &*slab.bytes_mut();
            let mut unpacked = Unpacked {
                at: unpacked,
                out: second.as_mut().map(Slab::bytes_mut),
                filled: 0,
            };
            for parsed in &*parsed {
                let chunk = Chunk {
                    task: &chunks[parsed.number],
                    parsed,
                    bytes: &bytes[parsed.begin..],
                    raw: raw + parsed.begin,
                };
                outcomes.push(plan.add(&chunk, &mut unpacked, &mut room));
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
        let memory = self.pool.allocate(end.max(1), "pages of parquet files")?;
        slab.copy_to(stream, &memory, raw, total)?;
        if let Some(second) = &second {
            second.copy_to(stream, &memory, unpacked, unpacked_bytes)?;
        }
        plan.locate(memory.ptr());
        memory.upload(stream, pages_at, &bytes_of(&plan.pages))?;
        memory.upload(stream, chunks_at, &bytes_of(&plan.chunks))?;
        memory.fill_range(stream, results_at, end - results_at, 0)?;
        let args = ParquetArgs {
            pages: memory.ptr_at(pages_at)?,
            chunks: memory.ptr_at(chunks_at)?,
            results: memory.ptr_at(results_at)?,
            page_count: plan.pages.len() as u64,
        };
        let device: &dyn Device = self.pool.device().as_ref();
        // SAFETY: the plan's pages lie in `memory`, which outlives the copy of the results; the columns have all rows
        // of the chunks, as the caller vouches by their targets.
        unsafe {
            if plan.pages.iter().any(|page| page.codec != 0) {
                self.kernels.decompress(device, stream, &args)?;
            }
            self.kernels.decode(device, stream, &args)?;
        }
        let mut told = vec![0u8; end - results_at];
        memory.download(stream, results_at, &mut told)?;
        let results: Vec<(i64, i64, u32, u32)> = told
            .chunks_exact(size_of::<ParquetResult>())
            .take(plan.pages.len())
            .map(result)
            .collect();
        for (at, (parsed, outcome)) in parsed.iter_mut().zip(&mut outcomes).enumerate() {
            let Some((pages, used)) = plan.ranges.get(at).cloned().flatten() else {
                continue;
            };
            if let Ok(facts) = outcome {
                let found = facts_of(&plan.pages[pages.clone()], &results[pages]);
                *outcome = found.map(|found| {
                    *facts = found;
                    std::mem::take(facts)
                });
            }
            if let (Ok(facts), Some((bytes, ends)), Some(used)) =
                (&mut *outcome, parsed.strings.take(), used)
            {
                let (begin, words) = plan.used[used];
                let words = &told[begin - results_at..begin - results_at + words * 4];
                let words = words.as_chunks::<4>().0.iter();
                facts.strings = Some(UsedStrings {
                    bytes,
                    ends,
                    used: words.map(|word| u32::from_le_bytes(*word)).collect(),
                });
            }
        }
        Ok(outcomes)
    }
}

/// A chunk to plan.
struct Chunk<'a> {
    task: &'a ChunkTask,
    parsed: &'a Parsed,
    /// As they are in the file, …
    bytes: &'a [u8],
    /// … and where they come to lie in the task's buffer.
    raw: usize,
}

/// Pages of all chunks that the host decompresses.
struct Unpacked<'a> {
    /// Where they come to lie in the task's buffer.
    at: usize,
    /// Their bytes on the host; `None` where the device decompresses.
    out: Option<&'a mut [u8]>,
    /// Bytes so far.
    filled: usize,
}

/// The range of a chunk's pages in the list, and the number of its bitmap of strings in use.
type PlannedChunk = Option<(Range<usize>, Option<usize>)>;

/// Pages and chunks as kernels read them; addresses are offsets until they are located.
#[derive(Default)]
struct Plan {
    pages: Vec<ParquetPage>,
    chunks: Vec<ParquetChunk>,
    /// Offset and words of each bitmap; the offset is known at the end.
    used: Vec<(usize, usize)>,
    ranges: Vec<PlannedChunk>,
}

/// An offset that is no address yet; null where there is none.
fn offset(at: usize) -> DevicePtr {
    DevicePtr(at as u64 + 1)
}

impl Plan {
    /// Add a chunk; the outcome is preliminary.
    fn add(&mut self, of: &Chunk<'_>, unpacked: &mut Unpacked<'_>, room: &mut Room) -> Outcome {
        let (chunk, parsed) = (of.task, of.parsed);
        let number = self.chunks.len() as u32;
        let first_page = self.pages.len();
        let strings = chunk.values.kind == PARQUET_KIND_CODE;
        let mut add_page = |page: &Page, data: bool, first_row: usize| {
            let length = page.bytes.len();
            let device_codec = match page.compressed {
                true => chunk.codec.on_device(),
                false => Some(0),
            };
            let (source, source_bytes, body, codec) = match device_codec {
                Some(0) => {
                    // A page of another length than it says is found out by the kernel.
                    let at = of.raw + page.bytes.start;
                    (at, length, at, 0)
                }
                Some(codec) => {
                    let at = of.raw + page.bytes.start;
                    let body = room.take(page.uncompressed as usize + BEHIND, PAGE_ALIGNED);
                    (at, length, body, codec)
                }
                None => {
                    let out = unpacked.out.as_deref_mut().ok_or(Reason::Malformed)?;
                    let end = unpacked.filled + page.uncompressed as usize;
                    let target = out.get_mut(unpacked.filled..end).ok_or(Reason::Malformed)?;
                    unpack(chunk.codec, &of.bytes[page.bytes.clone()], page, target)?;
                    let at = unpacked.at + unpacked.filled;
                    unpacked.filled = (end + BEHIND).next_multiple_of(PAGE_ALIGNED);
                    (at, page.uncompressed as usize, at, 0)
                }
            };
            let body_bytes = match codec {
                0 => source_bytes as u32,
                _ => page.uncompressed,
            };
            let values = page.values as usize;
            let dense = match page.encoding {
                _ if !data => None,
                encoding::RLE_DICTIONARY | encoding::RLE => Some(4 * values),
                encoding::DELTA_BINARY_PACKED => Some(8 * values),
                _ => None,
            };
            let words = (data && chunk.values.optional).then(|| values.div_ceil(32) * 8);
            let mut scratch = |bytes: Option<usize>| match bytes {
                Some(bytes) => offset(room.take(bytes, PAGE_ALIGNED)),
                None => DevicePtr::NULL,
            };
            self.pages.push(ParquetPage {
                source: offset(source),
                body: offset(body),
                dense: scratch(dense),
                words: scratch(words),
                first_row: first_row as u64,
                source_bytes: source_bytes as u32,
                body_bytes,
                prefix: page.prefix,
                codec,
                rows: if data { page.values } else { 0 },
                chunk: number,
                encoding: if data { page.encoding } else { PARQUET_NO_DATA },
                levels: page.levels,
            });
            Ok((offset(body), self.pages.len() as u32 - 1))
        };
        let planned = (|| {
            let mut dictionary = (DevicePtr::NULL, NO_PAGE);
            if let Some(page) = parsed.pages.dictionary.as_ref().filter(|_| !strings) {
                dictionary = add_page(page, false, 0)?;
            }
            let mut row = chunk.first_row;
            for page in &parsed.pages.data {
                add_page(page, true, row)?;
                row += page.values as usize;
            }
            Ok(dictionary)
        })();
        let dictionary = match planned {
            Ok(dictionary) => dictionary,
            Err(reason) => {
                // Kernels go over its other pages for nothing, and write where the host does later.
                self.pages.truncate(first_page);
                self.ranges.push(None);
                return Err(reason);
            }
        };
        let dictionary_values = match &parsed.strings {
            Some((_, ends)) => ends.len() as u32,
            None => parsed.pages.dictionary.as_ref().map_or(0, |p| p.values),
        };
        let used = strings.then(|| {
            self.used
                .push((0, (dictionary_values as usize).div_ceil(32).max(1)));
            self.used.len() - 1
        });
        self.chunks.push(ParquetChunk {
            dictionary: dictionary.0,
            data: chunk.target.data,
            validity: chunk.target.validity,
            used: used.map_or(DevicePtr::NULL, |used| DevicePtr(used as u64)),
            base: chunk.target.base,
            dictionary_values,
            dictionary_page: dictionary.1,
            kind: chunk.values.kind,
            type_bytes: chunk.values.bytes,
            width: chunk.target.width,
            optional: chunk.values.optional.into(),
        });
        self.ranges.push(Some((first_page..self.pages.len(), used)));
        Ok(ChunkFacts::default())
    }

    /// Make addresses of offsets in the buffer that begins at `base`.
    fn locate(&mut self, base: DevicePtr) {
        let at = |offset: &mut DevicePtr| {
            if !offset.is_null() {
                *offset = base.offset(offset.0 - 1);
            }
        };
        for page in &mut self.pages {
            at(&mut page.source);
            at(&mut page.body);
            at(&mut page.dense);
            at(&mut page.words);
        }
        for chunk in &mut self.chunks {
            at(&mut chunk.dictionary);
            if chunk.kind == PARQUET_KIND_CODE {
                let (begin, _) = self.used[chunk.used.0 as usize];
                chunk.used = base.offset(begin as u64);
            }
        }
    }
}

/// The bytes of the chunks one after the other, and where each begins.
fn read(file: &File, chunks: &[ChunkTask], out: &mut [u8]) -> std::io::Result<Vec<usize>> {
    let mut begins = Vec::with_capacity(chunks.len());
    let mut at = 0;
    for chunk in chunks {
        let length = (chunk.bytes.end - chunk.bytes.start) as usize;
        file.read_exact_at(&mut out[at..at + length], chunk.bytes.start)?;
        begins.push(at);
        at += length;
    }
    Ok(begins)
}

/// The pages of a chunk that the device can decode, and the strings of its dictionary.
#[allow(clippy::type_complexity, reason = "bytes and ends of strings")]
fn parse(
    chunk: &ChunkTask,
    bytes: &[u8],
) -> std::result::Result<(Pages, Option<(Vec<u8>, Vec<usize>)>), Reason> {
    let pages = pages_of(bytes, chunk.rows, chunk.uncompressed, chunk.values.optional)?;
    let strings = chunk.values.kind == PARQUET_KIND_CODE;
    for page in &pages.data {
        if !takes(chunk.values, page.encoding) {
            return Err(match strings {
                true => Reason::PlainStrings,
                false => Reason::Encoding,
            });
        }
    }
    let Some(dictionary) = &pages.dictionary else {
        return Ok((pages, strings.then(Default::default)));
    };
    if !strings {
        let needed = u64::from(dictionary.values) * u64::from(chunk.values.bytes);
        let there = match (dictionary.compressed, chunk.codec) {
            (true, codec) if codec != Codec::None => dictionary.uncompressed as usize,
            _ => dictionary.bytes.len(),
        };
        return match needed <= there as u64 {
            true => Ok((pages, None)),
            false => Err(Reason::Malformed),
        };
    }
    let mut plain = vec![0; dictionary.uncompressed as usize];
    unpack(
        chunk.codec,
        &bytes[dictionary.bytes.clone()],
        dictionary,
        &mut plain,
    )?;
    let strings = plain_strings(&plain, dictionary.values).ok_or(Reason::Malformed)?;
    Ok((pages, Some(strings)))
}

/// Does the device decode values of this kind in this encoding?
fn takes(values: ValueKind, encoding: u32) -> bool {
    use warpline_cuda::kernels as k;
    match (values.kind, encoding) {
        (k::PARQUET_KIND_CODE, encoding) => encoding == encoding::RLE_DICTIONARY,
        (k::PARQUET_KIND_BIT, encoding) => [encoding::PLAIN, encoding::RLE].contains(&encoding),
        (_, encoding::PLAIN | encoding::RLE_DICTIONARY | encoding::BYTE_STREAM_SPLIT) => true,
        (k::PARQUET_KIND_I32 | k::PARQUET_KIND_U32 | k::PARQUET_KIND_I64, encoding) => {
            encoding == encoding::DELTA_BINARY_PACKED
        }
        _ => false,
    }
}

/// Decompress a page on the host.
fn unpack(
    codec: Codec,
    bytes: &[u8],
    page: &Page,
    out: &mut [u8],
) -> std::result::Result<(), Reason> {
    let prefix = page.prefix as usize;
    let (levels, rest) = bytes.split_at(prefix);
    let (to_levels, to_rest) = out.split_at_mut(prefix);
    to_levels.copy_from_slice(levels);
    let codec = if page.compressed { codec } else { Codec::None };
    let nothing = rest.is_empty() && to_rest.is_empty();
    match nothing || codec.decompress(rest, to_rest) {
        true => Ok(()),
        false => Err(Reason::Malformed),
    }
}

/// The strings of a PLAIN page, one after the other, and the end of each; `None` when they are malformed or no UTF-8.
fn plain_strings(bytes: &[u8], count: u32) -> Option<(Vec<u8>, Vec<usize>)> {
    let mut all = Vec::with_capacity(bytes.len());
    let mut ends = Vec::with_capacity((count as usize).min(bytes.len() / 4));
    let mut rest = bytes;
    for _ in 0..count {
        let (length, after) = rest.split_first_chunk::<4>()?;
        let length = u32::from_le_bytes(*length) as usize;
        let text = after.get(..length)?;
        std::str::from_utf8(text).ok()?;
        all.extend_from_slice(text);
        ends.push(all.len());
        rest = &after[length..];
    }
    Some((all, ends))
}

/// The bytes of structs, one after the other.
fn bytes_of<T: KernelArgs>(values: &[T]) -> Vec<u8> {
    values
        .iter()
        .flat_map(|value| value.as_bytes())
        .copied()
        .collect()
}

/// Least, greatest, NULLs and error of a result.
fn result(bytes: &[u8]) -> (i64, i64, u32, u32) {
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
fn facts_of(pages: &[ParquetPage], results: &[(i64, i64, u32, u32)]) -> Outcome {
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
