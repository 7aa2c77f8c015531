//! Parallel construction of the sorted dictionary of a column from the numbered strings of its segments.
//!
//! Every step is cut into even shares: the numbers of each segment into runs that are sorted apart (runs that
//! ascend already are only read), the value range into parts by sampled splitters that are merged
//! apart, the codes of each run found by a merge of its own.

use std::sync::Arc;

use arrow::array::{ArrayRef, LargeStringArray, StringArray, StringViewArray, make_view};
use arrow::buffer::{Buffer, OffsetBuffer, ScalarBuffer};
use arrow::datatypes::DataType;

use super::StringPolicy;
use super::chunk::{ChunkEncoder, Codes, Values};
use super::dictionary::{STRINGS_PER_THREAD, gallop, shares};
use super::interner::Interner;
use super::native::value_type;
use super::parallel::{map, threads};
use crate::error::{GpuError, Result};

/// Strings of a run that splitters are chosen from.
const SAMPLES: usize = 256;
/// Parts of the value range a thread, so that uneven ones even out.
const PARTS_PER_THREAD: usize = 4;
/// A share of a view array has one buffer, whose offsets have 32 bits.
const VIEW_BUFFER: usize = 1 << 30;

/// Ascending numbers of one segment.
struct Run {
    segment: usize,
    numbers: Vec<u32>,
}

/// The distinct strings of a column in byte order, and where each segment's numbers went.
pub(super) struct Merged<'a> {
    pub(super) values: Vec<&'a [u8]>,
    segments: Vec<&'a Interner>,
    runs: Vec<Run>,
}

impl<'a> Merged<'a> {
    /// Sort and merge the strings of all segments.
    ///
    /// Host memory: 16 bytes a string of each segment, and as many again during the merge.
    ///
    /// # Errors
    /// [`GpuError::Internal`] when a thread panics.
    pub(super) fn new(segments: Vec<&'a Interner>) -> Result<Self> {
        let mut pieces = Vec::new();
        for (segment, interner) in segments.iter().enumerate() {
            pieces.extend(
                shares(interner.len())
                    .into_iter()
                    .map(|share| (segment, share)),
            );
        }
        let runs = map(pieces, |(segment, share)| {
            let numbers = share.start as u32..share.end as u32;
            Run {
                segment,
                numbers: sorted(segments[segment], numbers.collect()),
            }
        })?;
        let text = |run: &Run, i: usize| segments[run.segment].value(run.numbers[i]);

        let total: usize = runs.iter().map(|run| run.numbers.len()).sum();
        let parts = (total / STRINGS_PER_THREAD).clamp(1, threads() * PARTS_PER_THREAD);
        let mut samples: Vec<&[u8]> = Vec::new();
        if parts > 1 {
            for run in &runs {
                let step = run.numbers.len().div_ceil(SAMPLES).max(1);
                samples.extend((0..run.numbers.len()).step_by(step).map(|i| text(run, i)));
            }
            samples.sort_unstable();
        }
        let splitters: Vec<&[u8]> = (1..parts)
            .filter_map(|part| samples.get(samples.len() * part / parts).copied())
            .collect();
        // Where each run is cut: before every splitter, and at its end.
        let cuts = map(runs.iter().collect(), |run: &Run| {
            let numbers = &run.numbers;
            let before = |splitter: &&[u8]| {
                numbers.partition_point(|n| segments[run.segment].value(*n) < *splitter)
            };
            let mut cuts: Vec<usize> = splitters.iter().map(before).collect();
            cuts.push(numbers.len());
            cuts
        })?;
        let merged = map((0..=splitters.len()).collect(), |part: usize| {
            let lists = runs.iter().zip(&cuts).map(|(run, cuts)| {
                let start = if part == 0 { 0 } else { cuts[part - 1] };
                (start..cuts[part]).map(|i| text(run, i)).collect()
            });
            merge_distinct(lists.filter(|list: &Vec<&[u8]>| !list.is_empty()).collect())
        })?;
        Ok(Self {
            values: merged.concat(),
            segments,
            runs,
        })
    }

    /// By segment and local number: the position in `values`.
    ///
    /// # Errors
    /// [`GpuError::Internal`] when a thread panics.
    pub(super) fn remaps(&self) -> Result<Vec<Vec<u32>>> {
        let values = &self.values;
        let codes = map(self.runs.iter().collect(), |run: &Run| {
            let mut at = 0;
            let mut codes = Vec::with_capacity(run.numbers.len());
            for number in &run.numbers {
                let value = self.segments[run.segment].value(*number);
                at = gallop(at, values.len(), |i| values[i] < value);
                codes.push(at as u32);
            }
            codes
        })?;
        let mut by_segment: Vec<Vec<(&Run, Vec<u32>)>> =
            self.segments.iter().map(|_| Vec::new()).collect();
        for (run, codes) in self.runs.iter().zip(codes) {
            by_segment[run.segment].push((run, codes));
        }
        let sized: Vec<_> = self.segments.iter().zip(by_segment).collect();
        map(sized, |(interner, runs)| {
            let mut remap = vec![0; interner.len()];
            for (run, codes) in runs {
                for (number, code) in run.numbers.iter().zip(codes) {
                    remap[*number as usize] = code;
                }
            }
            remap
        })
    }
}

/// The numbers in the byte order of their strings.
///
/// Strings of one column tend to begin alike, so what is compared first are the eight bytes after
/// all that they have in common, as one integer.
fn sorted(interner: &Interner, numbers: Vec<u32>) -> Vec<u32> {
    if numbers.is_sorted_by(|a, b| interner.value(*a) <= interner.value(*b)) {
        return numbers;
    }
    let first = numbers.first().map_or(&[][..], |n| interner.value(*n));
    let common = numbers.iter().fold(first.len(), |common, n| {
        let value = interner.value(*n);
        let same = value.iter().zip(&first[..common]);
        same.take_while(|(a, b)| a == b).count()
    });
    let mut keyed: Vec<(u64, u32)> = numbers
        .iter()
        .map(|n| {
            let rest = &interner.value(*n)[common..];
            let mut head = [0; 8];
            let len = rest.len().min(8);
            head[..len].copy_from_slice(&rest[..len]);
            (u64::from_be_bytes(head), *n)
        })
        .collect();
    keyed.sort_unstable_by(|(head, a), (other, b)| {
        head.cmp(other)
            .then_with(|| interner.value(*a).cmp(interner.value(*b)))
    });
    keyed.into_iter().map(|(_, n)| n).collect()
}

/// Union of ascending lists, merged in pairs.
fn merge_distinct(mut lists: Vec<Vec<&[u8]>>) -> Vec<&[u8]> {
    while lists.len() > 1 {
        let mut rest = lists.into_iter();
        let mut merged = Vec::new();
        while let Some(first) = rest.next() {
            merged.push(match rest.next() {
                Some(second) => merge_two(first, second),
                None => first,
            });
        }
        lists = merged;
    }
    lists.pop().unwrap_or_default()
}

fn merge_two<'a>(first: Vec<&'a [u8]>, second: Vec<&'a [u8]>) -> Vec<&'a [u8]> {
    // Segments of sorted data follow one another.
    if let (Some(last), Some(next)) = (first.last(), second.first())
        && last < next
    {
        let mut both = first;
        both.extend_from_slice(&second);
        return both;
    }
    let mut merged = Vec::with_capacity(first.len().max(second.len()));
    let (mut i, mut j) = (0, 0);
    while i < first.len() && j < second.len() {
        let order = first[i].cmp(second[j]);
        merged.push(if order.is_le() { first[i] } else { second[j] });
        i += usize::from(order.is_le());
        j += usize::from(order.is_ge());
    }
    merged.extend_from_slice(&first[i..]);
    merged.extend_from_slice(&second[j..]);
    merged
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
/// [`GpuError::Unsupported`] when the strings outgrow the type; [`GpuError::Internal`] when they are not UTF-8.
pub(super) fn string_array(data_type: &DataType, values: &[&[u8]], name: &str) -> Result<ArrayRef> {
    let invalid = |error| GpuError::Internal(format!("strings of {name} are not UTF-8: {error}"));
    let total: usize = values.iter().map(|value| value.len()).sum();
    if *data_type == DataType::Utf8 && i32::try_from(total).is_err() {
        return Err(GpuError::Unsupported(format!(
            "{name}: {total} bytes of distinct strings exceed Utf8; CAST to LargeUtf8 or Utf8View"
        )));
    }
    let offsets = || OffsetBuffer::<i64>::from_lengths(values.iter().map(|value| value.len()));
    Ok(match data_type {
        DataType::Utf8 => {
            let ends = OffsetBuffer::<i32>::from_lengths(values.iter().map(|value| value.len()));
            let array = StringArray::try_new(ends, concatenated(values)?, None);
            Arc::new(array.map_err(invalid)?)
        }
        DataType::LargeUtf8 => {
            let array = LargeStringArray::try_new(offsets(), concatenated(values)?, None);
            Arc::new(array.map_err(invalid)?)
        }
        DataType::Utf8View => Arc::new(views(values, total, name)?),
        other => return Err(GpuError::Internal(format!("{other} is no string type"))),
    })
}

fn concatenated(values: &[&[u8]]) -> Result<Buffer> {
    let parts = map(shares(values.len()), |share| values[share].concat())?;
    Ok(Buffer::from_vec(parts.concat()))
}

fn views(values: &[&[u8]], total: usize, name: &str) -> Result<StringViewArray> {
    let parts = shares(values.len()).len().max(total / VIEW_BUFFER * 2);
    let len = values.len();
    let pieces = (0..parts).map(|part| (part, len * part / parts..len * (part + 1) / parts));
    let parts = map(
        pieces.collect(),
        |(part, share): (usize, std::ops::Range<usize>)| {
            let mut views = Vec::with_capacity(share.len());
            let mut bytes: Vec<u8> = Vec::new();
            for value in &values[share] {
                let at = u32::try_from(bytes.len()).map_err(|_| {
                    GpuError::Unsupported(format!("{name}: strings too long for a dictionary"))
                })?;
                // Up to twelve bytes lie in the view itself.
                views.push(make_view(value, part as u32, at));
                if value.len() > 12 {
                    bytes.extend_from_slice(value);
                }
            }
            Ok::<_, GpuError>((views, bytes))
        },
    )?;
    let mut all = Vec::with_capacity(len);
    let mut buffers = Vec::with_capacity(parts.len());
    for part in parts {
        let (views, bytes) = part?;
        all.extend_from_slice(&views);
        buffers.push(Buffer::from_vec(bytes));
    }
    StringViewArray::try_new(ScalarBuffer::from(all), buffers, None)
        .map_err(|error| GpuError::Internal(format!("strings of {name} are not UTF-8: {error}")))
}
