//! The order of different strings.

use warpline_cuda::kernels::{self, STRING_HEAD_BYTES, StringOrderArgs};

use super::sort::sort_rows;
use super::{RowCount, check_numbered, exclusive_sum, launch, one_each, scratch, to_usize};
use crate::column::{DistinctStrings, SortedStrings};
use crate::device::{DevicePtr, Stream};
use crate::error::Result;
use crate::memory::DeviceBuffer;
use crate::primitives::{StringRows, gather_strings};
use crate::runtime::Runtime;

/// Rounds after which strings that still agree are left to somebody else: half a kilobyte in common.
const MOST_ROUNDS: u64 = 64;

/// What is not told apart yet.
struct Tied {
    /// The string of each item, …
    items: DeviceBuffer,
    /// … the places that they have between them …
    places: DeviceBuffer,
    /// … and the group of each.
    groups: DeviceBuffer,
    count: u64,
    /// Bits of a group's number.
    group_bits: u32,
}

/// The strings in byte order.
///
/// In rounds of eight bytes: each sorts the strings that agreed in all before it. A round of 15 million strings that all
/// go on takes 13 passes of a radix sort, some 4 ms on an H100; one of a few takes the time of some 40 launches. Waits for the
/// device once a round. `None` where strings agree in their first 512 bytes.
///
/// # Errors
/// [`crate::GpuError::OutOfDeviceMemory`] for up to 100 bytes a string of scratch, [`crate::GpuError::Unsupported`] beyond
/// 2^32 - 2 strings, [`crate::GpuError::Compile`] and [`crate::GpuError::Device`].
///
/// # Safety
/// The column is live and every row of `strings` is one of its rows; no two of them have the same string.
pub(crate) unsafe fn sort_strings(
    runtime: &Runtime,
    stream: &Stream,
    strings: &DistinctStrings,
) -> Result<Option<SortedStrings>> {
    let count = strings.count;
    check_numbered("a sort with strings", count)?;
    let purpose = "a sort of strings";
    let order = scratch(runtime, stream, count, 4, purpose)?;
    let sorting = Sorting {
        runtime,
        stream,
        args: StringOrderArgs {
            offsets: strings.offsets,
            data: strings.data,
            rows: strings.rows,
            order: order.ptr(),
            ..StringOrderArgs::default()
        },
    };
    let mut tied = None;
    for round in 0.. {
        // SAFETY: passed on to the caller; what is tied comes from the round before.
        tied = match unsafe { sorting.round(tied, count, round * STRING_HEAD_BYTES)? } {
            None => break,
            Some(_) if round + 1 == MOST_ROUNDS => return Ok(None),
            more => more,
        };
    }
    let ranks = scratch(runtime, stream, count, 4, purpose)?;
    let ordered = scratch(runtime, stream, count, 4, purpose)?;
    let args = StringOrderArgs {
        ranks: ranks.ptr(),
        ordered: ordered.ptr(),
        count,
        ..sorting.args
    };
    // SAFETY: all have a word a string, and every string is at one place of the order.
    unsafe { sorting.launch("string_ranks", &args)? };
    let rows = StringRows {
        offsets: strings.offsets,
        data: strings.data,
        row_ids: ordered.ptr(),
        id_width: 4,
        valid: None,
        rows: RowCount::Known(count),
    };
    // SAFETY: the rows are the caller's, in another order.
    let (offsets, bytes) = unsafe { gather_strings(runtime, stream, &rows)? };
    Ok(Some(SortedStrings {
        ranks,
        offsets,
        bytes,
    }))
}

/// Bits of the words that a round sorts by, the group's number first.
pub(crate) fn string_sort_bits(group_bits: u32) -> [u32; 3] {
    [
        group_bits,
        STRING_HEAD_BYTES as u32 * 8,
        u64::BITS - STRING_HEAD_BYTES.leading_zeros(),
    ]
}

struct Sorting<'a> {
    runtime: &'a Runtime,
    stream: &'a Stream,
    args: StringOrderArgs,
}

impl Sorting<'_> {
    /// Sort what is tied, all at first, by the bytes behind the first `skip`; what is tied then.
    ///
    /// # Safety
    /// As [`sort_strings`]; `tied` is of the round before.
    unsafe fn round(&self, tied: Option<Tied>, all: u64, skip: u64) -> Result<Option<Tied>> {
        let count = tied.as_ref().map_or(all, |tied| tied.count);
        let scratch = |width: u64| {
            let purpose = "a sort of strings";
            scratch(
                self.runtime,
                self.stream,
                count.saturating_add(1),
                width,
                purpose,
            )
        };
        let of = |part: fn(&Tied) -> &DeviceBuffer| {
            tied.as_ref()
                .map_or(DevicePtr::NULL, |tied| part(tied).ptr())
        };
        let (heads, rests, sorted) = (scratch(8)?, scratch(8)?, scratch(4)?);
        let (marks, begins) = (scratch(4)?, scratch(4)?);
        let mut args = StringOrderArgs {
            items: of(|tied| &tied.items),
            places: of(|tied| &tied.places),
            groups: of(|tied| &tied.groups),
            heads: heads.ptr(),
            rests: rests.ptr(),
            sorted: sorted.ptr(),
            tied: marks.ptr(),
            begins: begins.ptr(),
            count,
            skip,
            ..self.args
        };
        let group_bits = tied.as_ref().map_or(0, |tied| tied.group_bits);
        let words = [args.groups, args.heads, args.rests];
        let bits = string_sort_bits(group_bits);
        let rows = RowCount::Known(count);
        // SAFETY: every buffer has an element an item, the marks one more; items and places are strings and places of the order.
        unsafe {
            self.launch("string_heads", &args)?;
            sort_rows(self.runtime, self.stream, &words, &bits, rows, args.sorted)?;
            self.launch("string_ties", &args)?;
            for sums in [args.tied, args.begins] {
                exclusive_sum(self.runtime, self.stream, sums, sums, rows, false)?;
            }
        }
        let total = |sums: &DeviceBuffer| -> Result<u64> {
            let last = sums.download_values::<u32>(self.stream, to_usize(count)? * 4, 1)?;
            Ok(last.first().copied().unwrap_or(0).into())
        };
        let (left, groups) = (total(&marks)?, total(&begins)?);
        if left == 0 {
            return Ok(None);
        }
        let next = Tied {
            items: scratch(4)?,
            places: scratch(4)?,
            groups: scratch(8)?,
            count: left,
            group_bits: 64 - groups.saturating_sub(1).leading_zeros(),
        };
        args.next_items = next.items.ptr();
        args.next_places = next.places.ptr();
        args.next_groups = next.groups.ptr();
        // SAFETY: there are no more that are tied than items.
        unsafe { self.launch("string_tied", &args)? };
        Ok(Some(next))
    }

    /// # Safety
    /// As [`launch`].
    unsafe fn launch(&self, name: &'static str, args: &StringOrderArgs) -> Result<()> {
        let kernel = self.runtime.builtin(name, 0, kernels::string_order)?;
        let config = one_each(self.runtime, args.count);
        // SAFETY: passed on to the caller.
        unsafe { launch(self.runtime, self.stream, &kernel, config, args) }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Arc;

    use super::*;
    use crate::device::emulated::EmulatedDevice;

    /// Sorts strings; the ranks, and the strings in order. `None` where they agree for too long.
    fn sorted(texts: &[Vec<u8>]) -> Option<(Vec<u32>, Vec<Vec<u8>>)> {
        let device = Arc::new(EmulatedDevice::open().unwrap());
        let runtime = Runtime::with_device(device, Some(64 << 20)).unwrap();
        let stream = runtime.device().create_stream().unwrap();
        // Rows of the column that are not asked for, and rows in another order than the strings.
        let rows: Vec<u32> = (0..texts.len() as u32)
            .rev()
            .map(|row| 2 * row + 1)
            .collect();
        let mut offsets = vec![0];
        let mut bytes = Vec::new();
        for text in texts.iter().rev() {
            bytes.extend_from_slice(b"other");
            offsets.push(bytes.len() as u64);
            bytes.extend_from_slice(text);
            offsets.push(bytes.len() as u64);
        }
        let upload = |bytes: &[u8]| {
            let buffer = runtime
                .pool()
                .allocate(bytes.len() + 256, "a test")
                .unwrap();
            buffer.upload(&stream, 0, bytes).unwrap();
            buffer
        };
        let words: Vec<u8> = offsets.iter().flat_map(|at| at.to_le_bytes()).collect();
        let numbers: Vec<u8> = rows.iter().flat_map(|row| row.to_le_bytes()).collect();
        let (offsets, data, rows) = (upload(&words), upload(&bytes), upload(&numbers));
        let strings = DistinctStrings {
            offsets: offsets.ptr(),
            data: data.ptr(),
            rows: rows.ptr(),
            count: texts.len() as u64,
        };
        // SAFETY: the buffers hold the column, whose odd rows are different strings.
        let sorted = unsafe { sort_strings(&runtime, &stream, &strings).unwrap()? };
        let count = texts.len();
        let ranks = sorted
            .ranks
            .download_values::<u32>(&stream, 0, count)
            .unwrap();
        let ends = sorted
            .offsets
            .download_values::<u64>(&stream, 0, count + 1)
            .unwrap();
        let total = ends[count] as usize;
        let bytes = sorted
            .bytes
            .download_values::<u8>(&stream, 0, total)
            .unwrap();
        let texts = ends
            .windows(2)
            .map(|ends| bytes[ends[0] as usize..ends[1] as usize].to_vec());
        Some((ranks, texts.collect()))
    }

    fn check(texts: impl IntoIterator<Item = Vec<u8>>) {
        // Different ones, in an order that is not theirs.
        let expected: BTreeSet<Vec<u8>> = texts.into_iter().collect();
        let expected: Vec<Vec<u8>> = expected.into_iter().collect();
        let mut texts: Vec<(usize, &Vec<u8>)> = expected.iter().enumerate().collect();
        texts.sort_by_key(|(rank, _)| (rank * 7919) % 1009);
        let given: Vec<Vec<u8>> = texts.iter().map(|(_, text)| text.to_vec()).collect();
        let (ranks, ordered) = sorted(&given).unwrap();
        assert_eq!(ordered, expected);
        let wanted: Vec<u32> = texts.iter().map(|(rank, _)| *rank as u32).collect();
        assert_eq!(ranks, wanted);
    }

    #[test]
    fn strings_of_all_shapes_are_sorted() {
        for count in [1, 31, 32, 33, 3000] {
            check((0..count).map(|i| format!("{}", i * 37 % 4001).into_bytes()));
            check(
                (0..count)
                    .map(|i| format!("https://größe.example/{:09}/日本", i * 31).into_bytes()),
            );
        }
        // One begins another, with and without zeros behind it: what is missing is less than a zero.
        check((0..80).map(|length| vec![0; length]));
        check((0..80).map(|length| vec![0xff; length]));
        check(
            (0..60).flat_map(|length| {
                [0, 1, 0xff].map(|last| [vec![b'a'; length], vec![last]].concat())
            }),
        );
        // Some differ at once, others in the last byte of half a kilobyte.
        check((0..200).map(|i| match i % 2 {
            0 => format!("{i}").into_bytes(),
            _ => format!("{}{i:03}", "x".repeat(500)).into_bytes(),
        }));
    }

    #[test]
    fn strings_that_agree_for_long_are_left_to_the_host() {
        let long = |i: usize| format!("{}{i}", "x".repeat(512)).into_bytes();
        assert!(sorted(&[long(1), long(2), b"short".to_vec()]).is_none());
        assert!(sorted(&[long(1), b"short".to_vec()]).is_some());
    }
}
