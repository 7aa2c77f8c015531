//! Parallel construction of the sorted dictionary of a column from the numbered strings of its segments.
//!
//! Every step is cut into even shares: the strings of all segments into ranges of values by sampled splitters, each of which is
//! sorted by a thread and numbers its distinct strings.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use arrow::array::{
    Array, ArrayRef, BinaryArray, FixedSizeBinaryArray, GenericByteViewArray, LargeBinaryArray,
    LargeStringArray, StringArray, make_view,
};
use arrow::buffer::{Buffer, OffsetBuffer, ScalarBuffer};
use arrow::compute::concat;
use arrow::datatypes::{BinaryViewType, ByteViewType, DataType, StringViewType};
use arrow::error::ArrowError;

use super::StringPolicy;
use super::chunk::{ChunkEncoder, Codes, Values};
use super::interner::Interner;
use super::native::value_type;
use super::parallel::{STRINGS_PER_THREAD, map, shares, threads};
use super::string_sort::{self, Entry};
use crate::error::{GpuError, Result};

/// Strings of a share that splitters are chosen from.
const SAMPLES: usize = 256;
/// Parts of the value range a thread, so that uneven ones even out.
const PARTS_PER_THREAD: usize = 4;
/// A share of a view array has one buffer, whose offsets have 32 bits.
const VIEW_BUFFER: usize = 1 << 30;

/// The distinct strings of a column in byte order, and where each segment's numbers went.
pub(super) struct Merged<'a> {
    pub(super) values: Vec<&'a [u8]>,
    segments: Vec<&'a Interner>,
    /// The strings of all segments in order, in ascending ranges of values.
    parts: Vec<Vec<Entry>>,
}

impl<'a> Merged<'a> {
    /// Sort and merge the strings of all segments.
    ///
    /// Host memory: 16 bytes a string of each segment, as many again while they are partitioned, and 16 a distinct string.
    ///
    /// # Errors
    /// [`GpuError::Internal`] when a thread panics.
    pub(super) fn new(segments: Vec<&'a Interner>) -> Result<Self> {
        let mut pieces = Vec::new();
        for (segment, interner) in segments.iter().enumerate() {
            let of_segment = shares(interner.len()).into_iter();
            pieces.extend(of_segment.map(|share| (segment as u32, share)));
        }
        let entries = |(segment, share): &(u32, Range<usize>)| {
            let segment = *segment;
            let numbers = share.start as u32..share.end as u32;
            numbers.map(move |number| Entry::new(segment, number))
        };
        let total: usize = segments.iter().map(|interner| interner.len()).sum();
        let parts = (total / STRINGS_PER_THREAD).clamp(1, threads() * PARTS_PER_THREAD);
        let splitters = splitters(parts, pieces.iter().map(entries), &segments);
        let split = map(pieces, |piece| {
            let mut parts: Vec<Vec<Entry>> = vec![Vec::new(); splitters.len() + 1];
            for entry in entries(&piece) {
                let text = entry.text(&segments);
                parts[splitters.partition_point(|splitter| *splitter <= text)].push(entry);
            }
            parts
        })?;
        let sorted = map((0..=splitters.len()).collect(), |part: usize| {
            let pieces: Vec<&[Entry]> = split.iter().map(|parts| &parts[part][..]).collect();
            let mut entries = pieces.concat();
            string_sort::sort(&mut entries, &segments);
            let distinct = entries.iter().filter(|entry| !entry.repeats());
            let values: Vec<&[u8]> = distinct.map(|entry| entry.text(&segments)).collect();
            (entries, values)
        })?;
        let (parts, values): (Vec<_>, Vec<_>) = sorted.into_iter().unzip();
        Ok(Self {
            values: values.concat(),
            segments,
            parts,
        })
    }

    /// By segment and local number: the position in `values`.
    ///
    /// # Errors
    /// [`GpuError::Internal`] when a thread panics.
    pub(super) fn remaps(&self) -> Result<Vec<Vec<u32>>> {
        let lengths = self.segments.iter().map(|interner| interner.len());
        let remaps: Vec<Vec<AtomicU32>> = map(lengths.collect(), |len: usize| {
            (0..len).map(|_| AtomicU32::new(0)).collect()
        })?;
        let mut first = 0;
        let mut parts = Vec::with_capacity(self.parts.len());
        for part in &self.parts {
            parts.push((first, part));
            first += part.iter().filter(|entry| !entry.repeats()).count() as u32;
        }
        map(parts, |(first, part): (u32, &Vec<Entry>)| {
            let mut after = first;
            for entry in part {
                after += u32::from(!entry.repeats());
                // Each place is written once, and read after the threads have ended.
                remaps[entry.segment as usize][entry.number as usize]
                    .store(after - 1, Ordering::Relaxed);
            }
        })?;
        let plain = |codes: Vec<AtomicU32>| codes.into_iter().map(AtomicU32::into_inner).collect();
        Ok(remaps.into_iter().map(plain).collect())
    }
}

/// Strings that cut the value range into about equal parts, ascending.
fn splitters<'a>(
    parts: usize,
    shares: impl Iterator<Item = impl ExactSizeIterator<Item = Entry>>,
    segments: &[&'a Interner],
) -> Vec<&'a [u8]> {
    if parts <= 1 {
        return Vec::new();
    }
    let mut samples: Vec<&[u8]> = Vec::new();
    for share in shares {
        let step = share.len().div_ceil(SAMPLES).max(1);
        samples.extend(share.step_by(step).map(|entry| entry.text(segments)));
    }
    samples.sort_unstable();
    let mut splitters: Vec<&[u8]> = (1..parts)
        .filter_map(|part| samples.get(samples.len() * part / parts).copied())
        .collect();
    splitters.dedup();
    splitters
}

/// The distinct non-null strings of an array in byte order, and the place of each row's among them (0 for NULL).
///
/// # Errors
/// [`GpuError::Unsupported`] when there are too many; [`GpuError::Internal`] when the array holds no strings.
pub(crate) fn distinct_strings(array: &ArrayRef) -> Result<(ArrayRef, Vec<i32>)> {
    let data_type = array.data_type();
    let segments = map(shares(array.len()), |share| {
        let policy = StringPolicy::AlwaysDictionary;
        let mut encoder = ChunkEncoder::new(data_type.clone(), policy)?;
        encoder.push(&array.slice(share.start, share.len()))?;
        Ok::<_, GpuError>(encoder.finish())
    })?;
    let segments = segments.into_iter().collect::<Result<Vec<_>>>()?;
    let merged = Merged::new(segments.iter().map(|segment| &segment.interner).collect())?;
    if i32::try_from(merged.values.len()).is_err() {
        return Err(GpuError::Unsupported(
            "more than 2^31 distinct strings".into(),
        ));
    }
    let remaps = merged.remaps()?;
    let mut codes = Vec::with_capacity(array.len());
    for (segment, remap) in segments.iter().zip(&remaps) {
        // A segment of nulls alone has no strings.
        let code = |number: usize| remap.get(number).copied().unwrap_or(0) as i32;
        for chunk in &segment.chunks {
            match &chunk.values {
                Values::Dictionary(Codes::U8(list)) => {
                    codes.extend(list.iter().map(|n| code((*n).into())))
                }
                Values::Dictionary(Codes::U16(list)) => {
                    codes.extend(list.iter().map(|n| code((*n).into())))
                }
                Values::Dictionary(Codes::U32(list)) => {
                    codes.extend(list.iter().map(|n| code(*n as usize)))
                }
                _ => return Err(GpuError::Internal("strings without numbers".into())),
            }
        }
    }
    let values = string_array(value_type(data_type), &merged.values, "computed strings")?;
    Ok((values, codes))
}

/// An Arrow array of a dictionary's strings.
///
/// # Errors
/// [`GpuError::Unsupported`] when the strings outgrow the type, or are not UTF-8 (`binary_as_string` lets them pass).
pub(super) fn string_array(data_type: &DataType, values: &[&[u8]], name: &str) -> Result<ArrayRef> {
    let invalid = |error| no_text(name, error);
    let total: usize = values.iter().map(|value| value.len()).sum();
    if matches!(data_type, DataType::Utf8 | DataType::Binary) {
        check_small(total, name)?;
    }
    let lengths = || values.iter().map(|value| value.len());
    let small_offsets = || OffsetBuffer::<i32>::from_lengths(lengths());
    let offsets = || OffsetBuffer::<i64>::from_lengths(lengths());
    Ok(match data_type {
        DataType::Utf8 => {
            let array = StringArray::try_new(small_offsets(), concatenated(values)?, None);
            Arc::new(array.map_err(invalid)?)
        }
        DataType::LargeUtf8 => {
            let array = LargeStringArray::try_new(offsets(), concatenated(values)?, None);
            Arc::new(array.map_err(invalid)?)
        }
        DataType::Utf8View => views::<StringViewType>(values, total, name)?,
        DataType::Binary => {
            let array = BinaryArray::try_new(small_offsets(), concatenated(values)?, None);
            Arc::new(array?)
        }
        DataType::LargeBinary => {
            let array = LargeBinaryArray::try_new(offsets(), concatenated(values)?, None);
            Arc::new(array?)
        }
        DataType::BinaryView => views::<BinaryViewType>(values, total, name)?,
        DataType::FixedSizeBinary(size) => fixed(*size, lengths(), || concatenated(values), name)?,
        other => return Err(GpuError::Internal(format!("{other} is no string type"))),
    })
}

/// An Arrow array of a dictionary's strings, which lie one after the other: `offsets` has where each begins, and the end of the
/// last.
///
/// # Errors
/// As [`string_array`]; [`GpuError::Internal`] for offsets that leave the bytes.
pub(super) fn sorted_array(
    data_type: &DataType,
    offsets: Vec<u64>,
    bytes: Vec<u8>,
    name: &str,
) -> Result<ArrayRef> {
    let ends_there = offsets.last() == Some(&(bytes.len() as u64));
    if !ends_there || !offsets.is_sorted() {
        return Err(GpuError::Internal(format!("{name}: a string lies outside")));
    }
    let invalid = |error| no_text(name, error);
    if matches!(data_type, DataType::Utf8 | DataType::Binary) {
        check_small(bytes.len(), name)?;
    }
    let small_ends = || OffsetBuffer::new(offsets.iter().map(|end| *end as i32).collect());
    let ends = || OffsetBuffer::new(offsets.iter().map(|end| *end as i64).collect());
    Ok(match data_type {
        DataType::Utf8 => {
            let array = StringArray::try_new(small_ends(), bytes.into(), None);
            Arc::new(array.map_err(invalid)?)
        }
        DataType::LargeUtf8 => {
            let array = LargeStringArray::try_new(ends(), bytes.into(), None);
            Arc::new(array.map_err(invalid)?)
        }
        DataType::Utf8View => views_of::<StringViewType>(&offsets, Buffer::from_vec(bytes), name)?,
        DataType::Binary => Arc::new(BinaryArray::try_new(small_ends(), bytes.into(), None)?),
        DataType::LargeBinary => Arc::new(LargeBinaryArray::try_new(ends(), bytes.into(), None)?),
        DataType::BinaryView => {
            views_of::<BinaryViewType>(&offsets, Buffer::from_vec(bytes), name)?
        }
        DataType::FixedSizeBinary(size) => {
            let lengths = offsets.windows(2).map(|ends| (ends[1] - ends[0]) as usize);
            fixed(*size, lengths, || Ok(Buffer::from_vec(bytes)), name)?
        }
        other => return Err(GpuError::Internal(format!("{other} is no string type"))),
    })
}

/// An array of strings of `size` bytes, which lie one after the other in what `bytes` makes.
///
/// # Errors
/// [`GpuError::Internal`] for another length.
fn fixed(
    size: i32,
    mut lengths: impl Iterator<Item = usize>,
    bytes: impl FnOnce() -> Result<Buffer>,
    name: &str,
) -> Result<ArrayRef> {
    if let Some(length) = lengths.find(|length| i32::try_from(*length) != Ok(size)) {
        return Err(GpuError::Internal(format!(
            "{name}: {length} bytes of a value that has {size}"
        )));
    }
    Ok(Arc::new(FixedSizeBinaryArray::try_new(
        size,
        bytes()?,
        None,
    )?))
}

/// # Errors
/// [`GpuError::Unsupported`] when so many bytes outgrow 32-bit offsets.
fn check_small(total: usize, name: &str) -> Result<()> {
    match i32::try_from(total) {
        Ok(_) => Ok(()),
        Err(_) => Err(GpuError::Unsupported(format!(
            "{name}: {total} bytes of distinct strings exceed 32-bit offsets; CAST to a large type or a view"
        ))),
    }
}

/// Strings that lie one after the other as views of these bytes, made and checked by all cores.
fn views_of<V: ByteViewType>(offsets: &[u64], bytes: Buffer, name: &str) -> Result<ArrayRef> {
    let len = offsets.len().saturating_sub(1);
    let cuts = buffers_of_views(offsets);
    let buffers = cuts.iter().map(|cut| {
        let (begin, end) = (offsets[cut.start] as usize, offsets[cut.end] as usize);
        bytes.slice_with_length(begin, end - begin)
    });
    let buffers: Vec<Buffer> = buffers.collect();
    let mut views = vec![0; len];
    let mut pieces = Vec::new();
    let mut rest = &mut views[..];
    for share in shares(len) {
        let (piece, after) = rest.split_at_mut(share.len());
        pieces.push((share, piece));
        rest = after;
    }
    let checked = map(pieces, |(share, views): (Range<usize>, &mut [u128])| {
        let text = &bytes[offsets[share.start] as usize..offsets[share.end] as usize];
        let invalid = |error: String| no_text(name, ArrowError::InvalidArgumentError(error));
        if V::IS_UTF8 {
            std::str::from_utf8(text).map_err(|error| invalid(error.to_string()))?;
        }
        let mut cut = cuts.partition_point(|cut| cut.end <= share.start);
        for (number, view) in share.zip(views) {
            while cuts[cut].end <= number {
                cut += 1;
            }
            let (from, to) = (offsets[number] as usize, offsets[number + 1] as usize);
            let value = &bytes[from..to];
            // All of the share is text: what begins with a character ends with one, where its neighbour begins.
            if V::IS_UTF8 && value.first().is_some_and(|byte| byte & 0xc0 == 0x80) {
                return Err(invalid("a string begins within a character".into()));
            }
            let at = from - offsets[cuts[cut].start] as usize;
            let at = u32::try_from(at).map_err(|_| too_long(name))?;
            u32::try_from(value.len()).map_err(|_| too_long(name))?;
            *view = make_view(value, cut as u32, at);
        }
        Ok(())
    })?;
    checked.into_iter().collect::<Result<()>>()?;
    let views = ScalarBuffer::from(views);
    // SAFETY: every view was made of the bytes that its place in its buffer has, and every string of text was found to be that. The
    // array's own check, by one core, takes as long as all that went before.
    let array = unsafe { GenericByteViewArray::<V>::new_unchecked(views, buffers, None) };
    Ok(Arc::new(array))
}

/// Strings whose bytes become a buffer, together as many as there is room for, since offsets of views have 32 bits.
fn buffers_of_views(offsets: &[u64]) -> Vec<Range<usize>> {
    let len = offsets.len().saturating_sub(1);
    let mut cuts = Vec::new();
    let mut first = 0;
    while first < len {
        let most = offsets[first] + VIEW_BUFFER as u64;
        let end = offsets.partition_point(|offset| *offset <= most) - 1;
        // A string larger than that has a buffer of its own.
        let next = end.clamp(first + 1, len);
        cuts.push(first..next);
        first = next;
    }
    cuts
}

fn too_long(name: &str) -> GpuError {
    GpuError::Unsupported(format!("{name}: strings too long for a dictionary"))
}

fn no_text(name: &str, error: ArrowError) -> GpuError {
    GpuError::Unsupported(format!("strings of {name} are not UTF-8: {error}"))
}

/// The strings one after the other, written by all cores.
fn concatenated(values: &[&[u8]]) -> Result<Buffer> {
    let shares = shares(values.len());
    let length = |share: &Range<usize>| values[share.clone()].iter().map(|value| value.len()).sum();
    let lengths: Vec<usize> = map(shares.clone(), |share| length(&share))?;
    let mut bytes = vec![0; lengths.iter().sum()];
    let mut pieces = Vec::with_capacity(shares.len());
    let mut rest = &mut bytes[..];
    for (share, length) in shares.into_iter().zip(lengths) {
        let (piece, after) = rest.split_at_mut(length);
        pieces.push((share, piece));
        rest = after;
    }
    map(pieces, |(share, piece): (Range<usize>, &mut [u8])| {
        let mut at = 0;
        for value in &values[share] {
            piece[at..at + value.len()].copy_from_slice(value);
            at += value.len();
        }
    })?;
    Ok(Buffer::from_vec(bytes))
}

/// The strings as views, written and checked by all cores.
fn views<V: ByteViewType>(values: &[&[u8]], total: usize, name: &str) -> Result<ArrayRef> {
    let parts = shares(values.len()).len().max(total / VIEW_BUFFER * 2);
    let len = values.len();
    let pieces = (0..parts).map(|part| len * part / parts..len * (part + 1) / parts);
    let parts = map(pieces.collect(), |share: Range<usize>| {
        let values = &values[share];
        // Up to twelve bytes lie in the view itself.
        let long = values.iter().filter(|value| value.len() > 12);
        let mut bytes: Vec<u8> = Vec::with_capacity(long.map(|value| value.len()).sum());
        let mut views = Vec::with_capacity(values.len());
        for value in values {
            let at = u32::try_from(bytes.len()).map_err(|_| too_long(name))?;
            views.push(make_view(value, 0, at));
            if value.len() > 12 {
                bytes.extend_from_slice(value);
            }
        }
        GenericByteViewArray::<V>::try_new(
            ScalarBuffer::from(views),
            vec![Buffer::from_vec(bytes)],
            None,
        )
        .map_err(|error| no_text(name, error))
    })?;
    let parts = parts.into_iter().collect::<Result<Vec<_>>>()?;
    let parts: Vec<&dyn Array> = parts.iter().map(|part| part as &dyn Array).collect();
    Ok(concat(&parts)?)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn laid_out(texts: &[String]) -> (Vec<u64>, Vec<u8>) {
        let mut offsets = vec![0];
        let mut bytes = Vec::new();
        for text in texts {
            bytes.extend_from_slice(text.as_bytes());
            offsets.push(bytes.len() as u64);
        }
        (offsets, bytes)
    }

    #[test]
    fn arrays_of_strings_that_lie_in_order_are_those_of_the_same_strings_apart() {
        // Several shares of threads; up to twelve bytes lie in a view.
        let texts: Vec<String> = (0..2 * STRINGS_PER_THREAD + 5)
            .map(|i| format!("{}größe {i:07}", "x".repeat(i % 23)))
            .chain([String::new()])
            .collect();
        let slices: Vec<&[u8]> = texts.iter().map(|text| text.as_bytes()).collect();
        for data_type in [
            DataType::Utf8,
            DataType::LargeUtf8,
            DataType::Utf8View,
            DataType::Binary,
            DataType::LargeBinary,
            DataType::BinaryView,
        ] {
            for count in [0, 1, 33, texts.len()] {
                let (offsets, bytes) = laid_out(&texts[..count]);
                let array = sorted_array(&data_type, offsets, bytes, "t").unwrap();
                let expected = string_array(&data_type, &slices[..count], "t").unwrap();
                assert_eq!(&array, &expected, "{data_type}, {count}");
            }
        }
    }

    #[test]
    fn buffers_of_views_hold_what_their_offsets_reach() {
        let large = VIEW_BUFFER as u64;
        let cuts = |offsets: &[u64]| -> Vec<(usize, usize)> {
            let cuts = buffers_of_views(offsets).into_iter();
            cuts.map(|cut| (cut.start, cut.end)).collect()
        };
        assert_eq!(cuts(&[]), []);
        assert_eq!(cuts(&[0]), []);
        assert_eq!(cuts(&[0, 0, large]), [(0, 2)]);
        assert_eq!(cuts(&[0, 1, large + 1, large + 1]), [(0, 1), (1, 3)]);
        // One that is larger, between others.
        let ends = [0, 5, 3 * large, 3 * large + 7, 3 * large + 7];
        assert_eq!(cuts(&ends), [(0, 1), (1, 2), (2, 4)]);
    }

    #[test]
    fn what_is_no_text_is_an_error() {
        for data_type in [DataType::Utf8, DataType::LargeUtf8, DataType::Utf8View] {
            let array = |offsets: &[u64], bytes: &[u8]| {
                sorted_array(&data_type, offsets.to_vec(), bytes.to_vec(), "t")
            };
            assert!(array(&[0, 1, 3], "aü".as_bytes()).is_ok());
            let error = array(&[0, 2, 3], "aü".as_bytes()).unwrap_err().to_string();
            assert!(error.contains("UTF-8"), "{error}");
            assert!(array(&[0, 2], &[b'a', 0xff]).is_err());
            // Offsets that go back or leave the bytes.
            assert!(array(&[0, 2, 1, 3], b"abc").is_err());
            assert!(array(&[0, 4], b"abc").is_err());
            assert!(array(&[], b"").is_err());
        }
        // A character across the border of two strings.
        let split = sorted_array(
            &DataType::Utf8View,
            vec![0, 2, 3],
            "aü".as_bytes().to_vec(),
            "t",
        );
        assert!(split.is_err());
        assert!(sorted_array(&DataType::Int64, vec![0], vec![], "t").is_err());
    }
}
