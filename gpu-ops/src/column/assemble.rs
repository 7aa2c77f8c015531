//! Turns the encoded segments of a column into one device column.

use std::ops::Range;
use std::sync::Arc;

use arrow::datatypes::DataType;
use arrow::util::bit_mask::set_bits;

use super::StringPolicy;
use super::build::{Merged, string_array};
use super::bytes::Strings;
use super::chunk::{Chunk, Codes, Segment, Values};
use super::distinct::{self, Count, value_at};
use super::home::{ColumnRoom, Home};
use super::native::{Physical, frame, physical, unsigned_width, value_type};
use super::sketch::{Sketch, sampled_rows};
use super::types::{Column, ColumnStatistics, Dictionary, Encoding};
use crate::device::Stream;
use crate::error::{GpuError, Result};
use crate::memory::MemoryPool;

/// Computes the global encoding of a column from its segments, re-encodes and uploads it.
pub struct ColumnAssembler {
    data_type: DataType,
    policy: StringPolicy,
    name: String,
}

/// A chunk at its place in the column.
pub(super) struct Placed<'a> {
    start: usize,
    pub(super) chunk: &'a Chunk,
    pub(super) segment: usize,
}

/// All chunks in row order.
pub(super) struct Rows<'a> {
    pub(super) placed: Vec<Placed<'a>>,
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
        let home = Home {
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
        home: &Home<'_>,
        segments: &[Segment],
        stream: &Stream,
    ) -> Result<Column> {
        let all = Rows::new(segments);
        let mut statistics = all.statistics();
        all.count_distinct(&mut statistics)?;
        let purpose = &self.name;
        let upload =
            |bytes: usize, fill: &Fill<'_>| home.upload(bytes, purpose, stream, fill).map(Arc::new);
        let (encoding, data) = match physical(&self.data_type)? {
            Physical::Bits => {
                let data = upload(all.rows.div_ceil(8), &|range, out| {
                    all.write_bits(range, out)
                })?;
                (Encoding::Bits, data)
            }
            Physical::Float(width) => {
                let size = usize::from(width);
                let data = upload(all.rows * size, &|range, out| {
                    all.write_codes(range, size, out, None, 0)
                })?;
                (Encoding::Float { width }, data)
            }
            Physical::Integer(_) => {
                let (width, base) = frame(statistics.range);
                let size = usize::from(width);
                let data = upload(all.rows * size, &|range, out| {
                    all.write_codes(range, size, out, None, base)
                })?;
                (Encoding::Integer { width, base }, data)
            }
            Physical::Text => {
                statistics.ascii = segments.iter().all(|segment| segment.ascii);
                match self.merge_dictionaries(segments, &all, &statistics)? {
                    Some((dictionary, remaps)) => {
                        let distinct = dictionary.len();
                        all.dictionary_statistics(&mut statistics, distinct, &remaps);
                        let width = unsigned_width(distinct.saturating_sub(1) as u128);
                        let size = usize::from(width);
                        let data = upload(all.rows * size, &|range, out| {
                            all.write_codes(range, size, out, Some(&remaps), 0)
                        })?;
                        let dictionary = Arc::new(dictionary);
                        (Encoding::Dictionary { width, dictionary }, data)
                    }
                    None => {
                        let strings = Strings::new(&all, segments)?;
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
        Ok(Column {
            data_type: self.data_type.clone(),
            rows: all.rows,
            encoding,
            data,
            validity,
            statistics,
        })
    }

    /// The sorted dictionary of the column, or `None` when it is to lie as bytes.
    fn merge_dictionaries(
        &self,
        segments: &[Segment],
        all: &Rows<'_>,
        statistics: &ColumnStatistics,
    ) -> Result<Option<(Dictionary, Remaps)>> {
        let is_bytes = |placed: &Placed<'_>| matches!(placed.chunk.values, Values::Bytes { .. });
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
    fn new(segments: &'a [Segment]) -> Self {
        let mut rows = 0;
        let mut placed = Vec::new();
        for (segment, chunks) in segments.iter().enumerate() {
            for chunk in &chunks.chunks {
                placed.push(Placed {
                    start: rows,
                    chunk,
                    segment,
                });
                rows += chunk.rows;
            }
        }
        Self { placed, rows }
    }

    /// What the chunks know together.
    fn statistics(&self) -> ColumnStatistics {
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
            distinct: None,
            distinct_estimate: None,
            ascii: false,
            sorted: !self.placed.is_empty() && ordered(false),
            unique: !self.placed.is_empty() && ordered(true),
            sketch: None,
        }
    }

    /// How many values of a number column differ, and which, in brief.
    fn count_distinct(&self, statistics: &mut ColumnStatistics) -> Result<()> {
        let valid = self.rows - statistics.null_count;
        let chunks = self.placed.iter().map(|placed| placed.chunk);
        // Strictly ascending values are unique.
        let counted = distinct::count(chunks, statistics.range, statistics.unique)?;
        if statistics.unique {
            statistics.distinct = Some(valid);
            statistics.distinct_estimate = Some(valid as u64);
        }
        let Some((count, sketch)) = counted else {
            return Ok(());
        };
        match count {
            _ if statistics.unique => {}
            Count::Exact(count) => {
                statistics.distinct = Some(count as usize);
                statistics.distinct_estimate = Some(count);
                statistics.unique = valid > 0 && count == valid as u64;
            }
            Count::Estimate(count) => statistics.distinct_estimate = Some(count),
        }
        let sketch = if statistics.unique {
            sketch
        } else {
            sketch.with_sample(self.sample(None))
        };
        statistics.sketch = Some(Arc::new(sketch));
        Ok(())
    }

    /// The values that are not null of a sample of rows; of dictionary codes by `remaps`.
    fn sample(&self, remaps: Option<&Remaps>) -> Vec<i128> {
        let mut placed = self.placed.iter().peekable();
        let mut values = Vec::new();
        for row in sampled_rows(self.rows) {
            while placed.peek().is_some_and(|p| row >= p.start + p.chunk.rows) {
                placed.next();
            }
            let Some(Placed {
                start,
                chunk,
                segment,
            }) = placed.peek()
            else {
                break;
            };
            let at = row - start;
            if !chunk.is_valid(at) {
                continue;
            }
            values.extend(match (value_at(chunk, at), remaps) {
                (Some(code), Some(remaps)) => usize::try_from(code)
                    .ok()
                    .and_then(|code| remaps.get(*segment)?.get(code))
                    .map(|code| i128::from(*code)),
                (value, _) => value,
            });
        }
        values
    }

    /// Facts that follow from the dictionary.
    fn dictionary_statistics(
        &self,
        statistics: &mut ColumnStatistics,
        distinct: usize,
        remaps: &Remaps,
    ) {
        statistics.range = (distinct > 0).then(|| (0, distinct as i128 - 1));
        statistics.distinct = Some(distinct);
        statistics.distinct_estimate = Some(distinct as u64);
        statistics.unique = distinct > 0 && distinct == self.rows - statistics.null_count;
        if !statistics.unique {
            let sample = Sketch::default().with_sample(self.sample(Some(remaps)));
            statistics.sketch = Some(Arc::new(sample));
        }
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
    fn write_codes(
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
                Values::Bits(_) | Values::Bytes { .. } => return Err(mixed("bits or bytes")),
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
    fn write_bits(&self, range: Range<usize>, out: &mut [u8]) -> Result<()> {
        for (position, rows, at) in self.overlapping(self.bit_rows(&range)) {
            let Values::Bits(bits) = &self.placed[position].chunk.values else {
                return Err(mixed("no bits"));
            };
            set_bits(out, bits, at, rows.start, rows.len());
        }
        Ok(())
    }

    /// Bytes `range` of the validity bitmap.
    fn write_validity(&self, range: Range<usize>, out: &mut [u8]) {
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

fn mixed(what: &str) -> GpuError {
    GpuError::Internal(format!("{what} in a column of another encoding"))
}

/// Write `bytes(value)` of each value, one after the other.
fn put<T: Copy, const W: usize>(values: &[T], out: &mut [u8], bytes: impl Fn(T) -> [u8; W]) {
    for (out, value) in out.as_chunks_mut::<W>().0.iter_mut().zip(values) {
        *out = bytes(*value);
    }
}

/// Write the low `width` bytes of `code(value)` of each value.
fn put_codes<T: Copy>(
    values: &[T],
    out: &mut [u8],
    width: usize,
    code: impl Fn(T) -> u64,
) -> Result<()> {
    match width {
        1 => put(values, out, |v| [code(v) as u8]),
        2 => put(values, out, |v| (code(v) as u16).to_le_bytes()),
        4 => put(values, out, |v| (code(v) as u32).to_le_bytes()),
        8 => put(values, out, |v| code(v).to_le_bytes()),
        other => return Err(mixed(&format!("a width of {other} bytes"))),
    }
    Ok(())
}

/// Move codes from the chunk's base to the column's.
fn write_integers(
    codes: &Codes,
    rows: Range<usize>,
    out: &mut [u8],
    width: usize,
    own: i128,
    base: i128,
) -> Result<()> {
    if width == 16 {
        match codes {
            Codes::U8(codes) => put(&codes[rows], out, |v| (own + i128::from(v)).to_le_bytes()),
            Codes::U16(codes) => put(&codes[rows], out, |v| (own + i128::from(v)).to_le_bytes()),
            Codes::U32(codes) => put(&codes[rows], out, |v| (own + i128::from(v)).to_le_bytes()),
            // Wraps on null rows only, which are cleared afterwards.
            Codes::U64(codes) => put(&codes[rows], out, |v| {
                own.wrapping_add(i128::from(v)).to_le_bytes()
            }),
            Codes::I128(codes) => put(&codes[rows], out, |v| v.to_le_bytes()),
        }
        return Ok(());
    }
    // Codes are relative to `base` modulo 2^64, and the column's range fits the width.
    let delta = own.wrapping_sub(base) as u64;
    match codes {
        Codes::U8(codes) => put_codes(&codes[rows], out, width, |v| delta.wrapping_add(v.into())),
        Codes::U16(codes) => put_codes(&codes[rows], out, width, |v| delta.wrapping_add(v.into())),
        Codes::U32(codes) => put_codes(&codes[rows], out, width, |v| delta.wrapping_add(v.into())),
        Codes::U64(codes) => put_codes(&codes[rows], out, width, |v| delta.wrapping_add(v)),
        Codes::I128(_) => Err(mixed("a chunk of 128 bits")),
    }
}

/// Replace a segment's numbers by the column's codes.
fn write_dictionary(
    codes: &Codes,
    rows: Range<usize>,
    out: &mut [u8],
    width: usize,
    remap: &[u32],
) -> Result<()> {
    // A segment of nulls alone has no strings; its codes are cleared afterwards.
    let code = |number: usize| u64::from(remap.get(number).copied().unwrap_or(0));
    match codes {
        Codes::U8(codes) => put_codes(&codes[rows], out, width, |v| code(v.into())),
        Codes::U16(codes) => put_codes(&codes[rows], out, width, |v| code(v.into())),
        Codes::U32(codes) => put_codes(&codes[rows], out, width, |v| code(v as usize)),
        Codes::U64(_) | Codes::I128(_) => Err(mixed("wide dictionary codes")),
    }
}
