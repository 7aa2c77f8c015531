//! Pages and chunks as kernels read them, and where each lies in the buffer of its task.

use std::ops::Range;

use warpline_cuda::KernelArgs;
use warpline_cuda::kernels::{
    PARQUET_KIND_BYTES, PARQUET_KIND_CODE, PARQUET_NO_DATA, ParquetChunk, ParquetPage,
};

use super::chunk::{ChunkTask, Outcome};
use super::counts::Reason;
use super::pages::{Page, encoding};
use super::parse::{Parsed, unpack};
use crate::column::ChunkFacts;
use crate::device::DevicePtr;

/// Kernels read so far behind a page.
pub(super) const BEHIND: usize = 32;
/// Pages begin at multiples of this where they are decompressed to.
pub(super) const PAGE_ALIGNED: usize = 16;
/// No page has this number.
const NO_PAGE: u32 = u32::MAX;

/// Offsets in the one buffer on the device that a task has.
#[derive(Default)]
pub(super) struct Room {
    pub(super) end: usize,
}

impl Room {
    pub(super) fn take(&mut self, bytes: usize, align: usize) -> usize {
        let begin = self.end.next_multiple_of(align);
        self.end = begin + bytes;
        begin
    }
}

/// A chunk to plan.
pub(super) struct Chunk<'a> {
    pub(super) task: &'a ChunkTask,
    pub(super) parsed: &'a Parsed,
    /// As they are in the file, where the host has them, …
    pub(super) bytes: Option<&'a [u8]>,
    /// … and where they come to lie in the task's buffer.
    pub(super) raw: usize,
}

/// Pages of all chunks that the host decompresses.
pub(super) struct Unpacked<'a> {
    /// Where they come to lie in the task's buffer.
    pub(super) at: usize,
    /// Their bytes on the host; `None` where the device decompresses.
    pub(super) out: Option<&'a mut [u8]>,
    /// Bytes so far.
    pub(super) filled: usize,
}

/// The range of a chunk's pages in the list, and the number of its bitmap of strings in use.
pub(super) type PlannedChunk = Option<(Range<usize>, Option<usize>)>;

/// Pages and chunks as kernels read them; addresses are offsets until they are located.
#[derive(Default)]
pub(super) struct Plan {
    pub(super) pages: Vec<ParquetPage>,
    pub(super) chunks: Vec<ParquetChunk>,
    /// Offset and words of each bitmap; the offset is known at the end.
    pub(super) used: Vec<(usize, usize)>,
    pub(super) ranges: Vec<PlannedChunk>,
}

/// An offset that is no address yet; null where there is none.
fn offset(at: usize) -> DevicePtr {
    DevicePtr(at as u64 + 1)
}

impl Plan {
    /// Add a chunk; the outcome is preliminary.
    pub(super) fn add(
        &mut self,
        of: &Chunk<'_>,
        unpacked: &mut Unpacked<'_>,
        room: &mut Room,
    ) -> Outcome {
        let (chunk, parsed) = (of.task, of.parsed);
        let number = self.chunks.len() as u32;
        let first_page = self.pages.len();
        let strings = chunk.values.kind == PARQUET_KIND_CODE;
        let texts = chunk.values.kind == PARQUET_KIND_BYTES;
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
                    let packed = of.bytes.ok_or(Reason::Malformed)?;
                    unpack(chunk.codec, &packed[page.bytes.clone()], page, target)?;
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
                encoding::DELTA_BYTE_ARRAY => Some(16 * values),
                _ if texts => Some(8 * values),
                _ if !data => None,
                encoding::RLE_DICTIONARY | encoding::RLE => Some(4 * values),
                encoding::DELTA_BINARY_PACKED => Some(8 * values),
                _ => None,
            };
            let words = (data && chunk.values.levels > 0).then(|| values.div_ceil(32) * 8);
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
            let number = self.pages.len() as u32 - 1;
            let dense = self.pages.last().map_or(DevicePtr::NULL, |page| page.dense);
            Ok((offset(body), number, dense))
        };
        let planned = (|| {
            let mut dictionary = (DevicePtr::NULL, NO_PAGE, DevicePtr::NULL);
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
            used: used.map_or(dictionary.2, |used| DevicePtr(used as u64)),
            base: chunk.target.base,
            dictionary_values,
            dictionary_page: dictionary.1,
            kind: chunk.values.kind,
            type_bytes: chunk.values.bytes,
            width: chunk.target.width,
            levels: chunk.values.levels,
            utf8: chunk.values.utf8.into(),
            present: chunk.values.present,
        });
        self.ranges.push(Some((first_page..self.pages.len(), used)));
        Ok(ChunkFacts::default())
    }

    /// Make addresses of offsets in the buffer that begins at `base`, but for those of bitmaps.
    pub(super) fn locate(&mut self, base: DevicePtr) {
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
            if chunk.kind != PARQUET_KIND_CODE {
                at(&mut chunk.used);
            }
        }
    }

    /// Make addresses of the numbers of bitmaps, whose offsets are those in the buffer that begins at `base`.
    pub(super) fn locate_used(&mut self, base: DevicePtr) {
        let of_strings = self.chunks.iter_mut();
        for chunk in of_strings.filter(|chunk| chunk.kind == PARQUET_KIND_CODE) {
            let (begin, _) = self.used[chunk.used.0 as usize];
            chunk.used = base.offset(begin as u64);
        }
    }

    /// Add the pages and chunks of another plan, whose addresses are known but for those of bitmaps.
    pub(super) fn append(&mut self, mut other: Self) {
        let (pages, chunks, used) = (self.pages.len(), self.chunks.len(), self.used.len());
        for page in &mut other.pages {
            page.chunk += chunks as u32;
        }
        for chunk in &mut other.chunks {
            if chunk.dictionary_page != NO_PAGE {
                chunk.dictionary_page += pages as u32;
            }
            if chunk.kind == PARQUET_KIND_CODE {
                chunk.used = DevicePtr(chunk.used.0 + used as u64);
            }
        }
        self.pages.append(&mut other.pages);
        self.chunks.append(&mut other.chunks);
        self.used.append(&mut other.used);
        let moved = other.ranges.into_iter().map(|planned| {
            let (range, bitmap) = planned?;
            let range = range.start + pages..range.end + pages;
            Some((range, bitmap.map(|bitmap| bitmap + used)))
        });
        self.ranges.extend(moved);
    }
}

/// Write the bytes of structs to the front of `out`.
pub(super) fn write_structs<T: KernelArgs>(values: &[T], out: &mut [u8]) {
    for (value, out) in values.iter().zip(out.chunks_exact_mut(size_of::<T>())) {
        out.copy_from_slice(value.as_bytes());
    }
}
