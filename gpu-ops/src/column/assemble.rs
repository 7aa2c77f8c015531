//! Assembly of one device column from the encoded segments of its readers.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use arrow::datatypes::DataType;
use arrow::util::bit_mask::set_bits;

use super::StringPolicy;
use super::build::{Merged, string_array};
use super::bytes::Strings;
use super::chunk::{Chunk, Codes, Segment, Values};
use super::distinct::{self, Count, value_at};
use super::native::{Physical, frame, physical, unsigned_width, value_type};
use super::pools::{ColumnPools, ColumnRoom};
use super::preallocated::{Preallocated, PreallocatedBuffer, PreallocatedColumn};
use super::rewrite::{mixed, put, write_dictionary, write_integers};
use super::sample::{Sample, SampledValues, kept_rows};
use super::sketch::{Sketch, sampled_rows};
use super::texts::Texts;
use super::types::{Column, ColumnStatistics, Dictionary, Encoding};
use crate::device::Stream;
use crate::error::{GpuError, Result};
use crate::memory::{DeviceBuffer, MemoryPool};

/// Computes the global encoding of a column from its segments, re-encodes and uploads it.
pub struct ColumnAssembler {
    data_type: DataType,
    policy: StringPolicy,
    name: String,
}

/// A chunk and its position in the column.
pub(super) struct PositionedChunk<'a> {
    pub(super) start: usize,
    pub(super) chunk: &'a Chunk,
    pub(super) segment: usize,
}

/// All chunks in row order.
pub(super) struct Rows<'a> {
    pub(super) placed: Vec<PositionedChunk<'a>>,
    rows: usize,
}

/// Writes a range of a buffer's bytes.
type Fill<'f> = dyn Fn(Range<usize>, &mut [u8]) -> Result<()> + Sync + 'f;

/// Global codes by segment and local number.
type Remaps = Vec<Vec<u32>>;

impl ColumnAssembler {
    /// An assembler for a column of `data_type`; `name` appears in errors about memory.
    pub fn new(data_type: DataType, policy: StringPolicy, name: impl Into<String>) -> Self {
        Self {
            data_type,
            policy,
            name: name.into(),
        }
    }

    /// Upload the rows of `segments`, in their order, as one column.
    ///
    /// Blocks for the encoding, on all cores, and for the copies. Returns once the segments are
    /// not needed any more; work queued on `stream` afterwards sees the column.
    ///
    /// # Errors
    /// [`GpuError::OutOfDeviceMemory`] and [`GpuError::Device`] of the upload;
    /// [`GpuError::Unsupported`] when a dictionary outgrows its Arrow type.
    pub fn finish(
        &self,
        segments: Vec<Segment>,
        pool: &Arc<MemoryPool>,
        stream: &Stream,
    ) -> Result<Column> {
        let home = ColumnPools {
            device: pool,
            host: None,
            room: &ColumnRoom::unlimited(),
        };
        self.finish_in(&home, &segments, stream)
    }

    /// [`ColumnAssembler::finish`] with buffers wherever `home` has room.
    ///
    /// # Errors
    /// As [`ColumnAssembler::finish`].
    pub fn finish_in(
        &self,
        home: &ColumnPools<'_>,
        segments: &[Segment],
        stream: &Stream,
    ) -> Result<Column> {
        let column = self.finish_preallocated(None, home, segments, stream)?;
        column.ok_or_else(|| mixed("values that were laid out before"))
    }

    /// [`ColumnAssembler::finish_in`] of a column of which shares were laid in their place as they came. `None` when it is not
    /// what was expected, and its segments have been let go of: then it has to be read again.
    ///
    /// # Errors
    /// As [`ColumnAssembler::finish`].
    pub(crate) fn finish_preallocated(
        &self,
        preallocated: Option<PreallocatedColumn>,
        home: &ColumnPools<'_>,
        segments: &[Segment],
        stream: &Stream,
    ) -> Result<Option<Column>> {
        let all = Rows::new(segments);
        let mut statistics = all.statistics();
        let preallocated = match preallocated {
            None => Preallocated::Nothing,
            Some(preallocated) => match preallocated.finish(statistics.range)? {
                None => return Ok(None),
                Some(preallocated) => preallocated,
            },
        };
        let (laid, text) = match preallocated {
            Preallocated::Numbers {
                encoding,
                data,
                count,
                sketch,
                sample,
            } => {
                let float = match &encoding {
                    Encoding::Float { width } => Some(*width),
                    _ => None,
                };
                let sample = SampledValues {
                    rows: all.rows,
                    values: sample,
                };
                all.note_distinct(&mut statistics, count, sketch, &sample, float);
                (Some((encoding, data)), None)
            }
            Preallocated::Text { codes, place } => (None, Some((codes, place))),
            Preallocated::Nothing => {
                all.count_distinct(&mut statistics)?;
                (None, None)
            }
        };
        let purpose = &self.name;
        let upload =
            |bytes: usize, fill: &Fill<'_>| home.upload(bytes, purpose, stream, fill).map(Arc::new);
        let (encoding, data) = match (laid, physical(&self.data_type)?) {
            (Some(laid), _) => laid,
            (None, Physical::Bits) => {
                let data = upload(all.rows.div_ceil(8), &|range, out| {
                    all.write_bits(range, out)
                })?;
                (Encoding::Bits, data)
            }
            (None, Physical::Float(width)) => {
                let size = usize::from(width);
                let data = upload(all.rows * size, &|range, out| {
                    all.write_codes(range, size, out, None, 0)
                })?;
                (Encoding::Float { width }, data)
            }
            (None, Physical::Integer(_)) => {
                let (width, base) = frame(statistics.range);
                let size = usize::from(width);
                let data = upload(all.rows * size, &|range, out| {
                    all.write_codes(range, size, out, None, base)
                })?;
                (Encoding::Integer { width, base }, data)
            }
            (None, Physical::Text) => {
                statistics.ascii = segments.iter().all(|segment| segment.ascii);
                match self.merge_dictionaries(segments, &all, &statistics)? {
                    Some((dictionary, remaps)) => {
                        let distinct = dictionary.len();
                        all.dictionary_statistics(&mut statistics, &dictionary, &remaps);
                        let width = unsigned_width(distinct.saturating_sub(1) as u128);
                        let size = usize::from(width);
                        let data = match text_in_place(text, &dictionary)? {
                            Some(data) => data,
                            None => upload(all.rows * size, &|range, out| {
                                all.write_codes(range, size, out, Some(&remaps), 0)
                            })?,
                        };
                        let dictionary = Arc::new(dictionary);
                        (Encoding::Dictionary { width, dictionary }, data)
                    }
                    None => {
                        drop(text);
                        let strings = Strings::new(&all, segments)?;
                        statistics.sample = all.sample_strings(&strings, &self.data_type);
                        let offsets = upload((all.rows + 1) * 8, &|range, out| {
                            strings.write_offsets(range, out);
                            Ok(())
                        })?;
                        let data = upload(strings.total, &|range, out| {
                            strings.write_bytes(range, out);
                            Ok(())
                        })?;
                        (Encoding::Bytes { offsets }, data)
                    }
                }
            }
        };
        let validity = if statistics.null_count > 0 {
            let bytes = all.rows.div_ceil(8);
            Some(upload(bytes, &|range, out| {
                all.write_validity(range, out);
                Ok(())
            })?)
        } else {
            None
        };
        Ok(Some(Column {
            data_type: self.data_type.clone(),
            rows: all.rows,
            encoding,
            data,
            validity,
            statistics,
        }))
    }

    /// The sorted dictionary of the column, or `None` when it is to lie as bytes.
    fn merge_dictionaries(
        &self,
        segments: &[Segment],
        all: &Rows<'_>,
        statistics: &ColumnStatistics,
    ) -> Result<Option<(Dictionary, Remaps)>> {
        let is_bytes =
            |placed: &PositionedChunk<'_>| matches!(placed.chunk.values, Values::Bytes { .. });
        if self.policy == StringPolicy::AlwaysBytes || all.placed.iter().any(is_bytes) {
            return Ok(None);
        }
        let merged = Merged::new(segments.iter().map(|segment| &segment.interner).collect())?;
        let valid = all.rows - statistics.null_count;
        if !self.policy.repeats(merged.values.len(), valid) {
            return Ok(None);
        }
        if u32::try_from(merged.values.len()).is_err() {
            return Err(GpuError::Unsupported(format!(
                "{} with more than 4294967295 distinct strings",
                self.name
            )));
        }
        let remaps = merged.remaps()?;
        let values = string_array(value_type(&self.data_type), &merged.values, &self.name)?;
        Ok(Some((Dictionary { values }, remaps)))
    }
}

impl<'a> Rows<'a> {
    pub(super) fn new(segments: &'a [Segment]) -> Self {
        let mut rows = 0;
        let mut placed = Vec::new();
        for (segment, chunks) in segments.iter().enumerate() {
            for chunk in &chunks.chunks {
                placed.push(PositionedChunk {
                    start: rows,
                    chunk,
                    segment,
                });
                rows += chunk.rows;
            }
        }
        Self { placed, rows }
    }

    /// Number of rows.
    pub(super) fn len(&self) -> usize {
        self.rows
    }

    /// What the chunks know together.
    pub(super) fn statistics(&self) -> ColumnStatistics {
        let chunks = || self.placed.iter().map(|placed| placed.chunk);
        let range = chunks()
            .filter_map(|chunk| chunk.range)
            .reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)));
        let ordered = |strict: bool| {
            let mut previous: Option<i128> = None;
            chunks().all(|chunk| {
                let Some((first, last)) = chunk.ascending else {
                    return false;
                };
                let fits = previous.is_none_or(|p| if strict { p < first } else { p <= first });
                previous = Some(last);
                fits && (!strict || chunk.strict)
            })
        };
        ColumnStatistics {
            range,
            null_count: chunks().map(|chunk| chunk.null_count).sum(),
            sorted: !self.placed.is_empty() && ordered(false),
            unique: !self.placed.is_empty() && ordered(true),
            ..ColumnStatistics::default()
        }
    }

    /// How many values of a number column differ, and which, in brief.
    fn count_distinct(&self, statistics: &mut ColumnStatistics) -> Result<()> {
        let chunks = self.placed.iter().map(|placed| placed.chunk);
        // Strictly ascending values are unique.
        match distinct::count(chunks, statistics.range, statistics.unique)? {
            Some((count, sketch)) => {
                let float = |placed: &PositionedChunk<'_>| match &placed.chunk.values {
                    Values::Float4(_) => Some(4),
                    Values::Float8(_) => Some(8),
                    _ => None,
                };
                let float = self.placed.iter().find_map(float);
                self.note_distinct(statistics, count, sketch, &self.sample(None), float);
            }
            None if statistics.unique => self.note_unique(statistics),
            None => {}
        }
        Ok(())
    }

    fn note_unique(&self, statistics: &mut ColumnStatistics) {
        let valid = self.rows - statistics.null_count;
        statistics.distinct = Some(valid);
        statistics.distinct_estimate = Some(valid as u64);
    }

    /// The same where the values have been counted; `sample` are those of a sample of rows, floats of so many bytes or none.
    fn note_distinct(
        &self,
        statistics: &mut ColumnStatistics,
        count: Count,
        sketch: Sketch,
        sample: &SampledValues,
        float: Option<u8>,
    ) {
        let valid = self.rows - statistics.null_count;
        match count {
            _ if statistics.unique => self.note_unique(statistics),
            Count::Exact(count) => {
                statistics.distinct = Some(count as usize);
                statistics.distinct_estimate = Some(count);
                statistics.unique = valid > 0 && count == valid as u64;
            }
            Count::Estimate(count) => statistics.distinct_estimate = Some(count),
        }
        statistics.note_numbers(sketch, sample, float);
    }

    /// The values of a sample of rows; of dictionary codes by `remaps`.
    fn sample(&self, remaps: Option<&Remaps>) -> SampledValues {
        SampledValues {
            rows: self.rows,
            values: self.sample_of(0, self.rows, remaps),
        }
    }

    /// What rows that begin at row `first` have of the sample of a column of `total` rows.
    pub(super) fn sample_of(
        &self,
        first: usize,
        total: usize,
        remaps: Option<&Remaps>,
    ) -> Vec<Option<i128>> {
        let mut placed = self.placed.iter().peekable();
        let mut values = Vec::new();
        for row in sampled_rows(total, first..first + self.rows) {
            let row = row - first;
            while placed.peek().is_some_and(|p| row >= p.start + p.chunk.rows) {
                placed.next();
            }
            let Some(PositionedChunk {
                start,
                chunk,
                segment,
            }) = placed.peek()
            else {
                break;
            };
            let at = row - start;
            if !chunk.is_valid(at) {
                values.push(None);
                continue;
            }
            values.push(match (value_at(chunk, at), remaps) {
                (Some(code), Some(remaps)) => usize::try_from(code)
                    .ok()
                    .and_then(|code| remaps.get(*segment)?.get(code))
                    .map(|code| i128::from(*code)),
                (value, _) => value,
            });
        }
        values
    }

    /// What is kept of strings that lie as bytes.
    fn sample_strings(&self, strings: &Strings<'_>, data_type: &DataType) -> Option<Arc<Sample>> {
        let rows = strings.of_rows(kept_rows(self.rows));
        let values: Vec<&[u8]> = rows.iter().map(|row| row.unwrap_or_default()).collect();
        // What is no UTF-8 is an error of those who read it.
        let values = string_array(value_type(data_type), &values, "a sample of strings").ok()?;
        let valid = rows.iter().map(Option::is_some);
        Sample::of_strings(self.rows, valid, values).map(Arc::new)
    }

    /// Facts that follow from the dictionary.
    fn dictionary_statistics(
        &self,
        statistics: &mut ColumnStatistics,
        dictionary: &Dictionary,
        remaps: &Remaps,
    ) {
        let distinct = dictionary.len();
        statistics.range = (distinct > 0).then(|| (0, distinct as i128 - 1));
        statistics.distinct = Some(distinct);
        statistics.distinct_estimate = Some(distinct as u64);
        statistics.unique = distinct > 0 && distinct == self.rows - statistics.null_count;
        statistics.note_strings(&self.sample(Some(remaps)), dictionary);
        let mut previous = 0;
        statistics.sorted = distinct > 0
            && statistics.null_count == 0
            && self.placed.iter().all(|placed| {
                let remap = &remaps[placed.segment];
                let mut ascends = |code: usize| {
                    let code = remap[code];
                    let ascends = previous <= code;
                    previous = code;
                    ascends
                };
                match &placed.chunk.values {
                    Values::Dictionary(Codes::U8(codes)) => {
                        codes.iter().all(|code| ascends(usize::from(*code)))
                    }
                    Values::Dictionary(Codes::U16(codes)) => {
                        codes.iter().all(|code| ascends(usize::from(*code)))
                    }
                    Values::Dictionary(Codes::U32(codes)) => {
                        codes.iter().all(|code| ascends(*code as usize))
                    }
                    _ => false,
                }
            });
    }

    /// Each chunk that overlaps `rows`: its position, its rows, and where they start in `rows`.
    pub(super) fn overlapping(
        &self,
        rows: Range<usize>,
    ) -> impl Iterator<Item = (usize, Range<usize>, usize)> {
        let first = self
            .placed
            .partition_point(|placed| placed.start + placed.chunk.rows <= rows.start);
        self.placed[first..]
            .iter()
            .enumerate()
            .take_while(move |(_, placed)| placed.start < rows.end)
            .map(move |(position, placed)| {
                let start = rows.start.max(placed.start);
                let end = rows.end.min(placed.start + placed.chunk.rows);
                (
                    first + position,
                    start - placed.start..end - placed.start,
                    start - rows.start,
                )
            })
    }

    /// Bytes `range` of the column's codes of `width` bytes.
    pub(super) fn write_codes(
        &self,
        range: Range<usize>,
        width: usize,
        out: &mut [u8],
        remaps: Option<&Remaps>,
        base: i128,
    ) -> Result<()> {
        for (position, rows, at) in self.overlapping(range.start / width..range.end / width) {
            let placed = &self.placed[position];
            let chunk = placed.chunk;
            let out = &mut out[at * width..(at + rows.len()) * width];
            match &chunk.values {
                Values::Integer { base: own, codes } => {
                    write_integers(codes, rows.clone(), out, width, *own, base)?;
                }
                Values::Dictionary(codes) => {
                    let remap = remaps.and_then(|remaps| remaps.get(placed.segment));
                    let remap = remap.ok_or_else(|| mixed("a dictionary chunk"))?;
                    write_dictionary(codes, rows.clone(), out, width, remap)?;
                }
                Values::Float4(values) => put(&values[rows.clone()], out, |v| v.to_le_bytes()),
                Values::Float8(values) => put(&values[rows.clone()], out, |v| v.to_le_bytes()),
                Values::Bits(_) | Values::Bytes { .. } | Values::Written => {
                    return Err(mixed("bits or bytes"));
                }
            }
            if chunk.null_count > 0 {
                for (out, row) in out.chunks_exact_mut(width).zip(rows) {
                    if !chunk.is_valid(row) {
                        out.fill(0);
                    }
                }
            }
        }
        Ok(())
    }

    /// Bytes `range` of a boolean column.
    pub(super) fn write_bits(&self, range: Range<usize>, out: &mut [u8]) -> Result<()> {
        for (position, rows, at) in self.overlapping(self.bit_rows(&range)) {
            let Values::Bits(bits) = &self.placed[position].chunk.values else {
                return Err(mixed("no bits"));
            };
            set_bits(out, bits, at, rows.start, rows.len());
        }
        Ok(())
    }

    /// Bytes `range` of the validity bitmap.
    pub(super) fn write_validity(&self, range: Range<usize>, out: &mut [u8]) {
        const ONES: [u8; 64] = [0xff; 64];
        for (position, rows, at) in self.overlapping(self.bit_rows(&range)) {
            match &self.placed[position].chunk.validity {
                Some(bits) => {
                    set_bits(out, bits, at, rows.start, rows.len());
                }
                None => {
                    for done in (0..rows.len()).step_by(8 * ONES.len()) {
                        let count = (rows.len() - done).min(8 * ONES.len());
                        set_bits(out, &ONES, at + done, 0, count);
                    }
                }
            }
        }
    }

    /// The rows whose bits lie in the bytes `range`.
    fn bit_rows(&self, range: &Range<usize>) -> Range<usize> {
        range.start * 8..self.rows.min(range.end * 8)
    }
}

/// The codes that were laid out before, if they are those of this dictionary.
fn text_in_place(
    text: Option<(HashMap<Vec<u8>, u32>, PreallocatedBuffer)>,
    dictionary: &Dictionary,
) -> Result<Option<Arc<DeviceBuffer>>> {
    let Some((codes, place)) = text else {
        return Ok(None);
    };
    let texts = Texts::new(&*dictionary.values)?;
    // Codes are numbers in the order of the strings: the same strings have the same codes.
    let same =
        codes.len() == texts.len() && (0..texts.len()).all(|i| codes.contains_key(texts.get(i)));
    Ok(same.then(|| place.keep()))
}
