//! Columns preallocated before their table is read: each unit of rows is written at its final position while others
//! are decoded.
//!
//! The position of a unit and the width of its codes must be known before the unit is read. For numbers, the metadata
//! of files has the number of rows and the range of values; for repeating strings, the first unit provides a
//! dictionary. Both are expectations: every unit is checked against them, and the whole column at the end. A column
//! that differs is built again, so nothing depends on what files claim.
//!
//! Once a unit is written, the expected column can be used: kernels may process the rows in place while others are
//! read. Its properties are checked for each unit before its rows count, and at the end for the column.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow::array::{Array, ArrayRef};
use arrow::datatypes::DataType;
use parking_lot::Mutex;

use super::StringPolicy;
use super::assemble::Rows;
use super::build::string_array;
use super::chunk::{ChunkEncoder, Codes, Segment, Values};
use super::distinct::{Count, Counter, expected_distinct};
use super::native::{Physical, frame, physical, unsigned_width, value_type};
use super::pools::{ColumnPools, ColumnRoom};
use super::sketch::Sketch;
use super::types::{Column, ColumnStatistics, Dictionary, Encoding};
use crate::device::Stream;
use crate::error::Result;
use crate::memory::DeviceBuffer;

/// A dictionary of the first unit with more strings than this is not expected to be complete.
const MOST_STRINGS: usize = 1 << 12;
/// Bytes encoded before they are copied to device memory.
const WINDOW: usize = 8 << 20;

/// A column whose units are written at their final positions, in any order and on any threads.
pub(crate) struct PreallocatedColumn {
    name: String,
    data_type: DataType,
    /// Rows of the table.
    rows: usize,
    expected: Expectation,
    kind: Kind,
}

/// What is known of a column before any of its rows is read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Expectation {
    /// Of numbers: the range of those that are not NULL.
    pub(crate) range: Option<(i128, i128)>,
    /// No row is NULL.
    pub(crate) whole: bool,
    /// Of numbers: each unit begins at the largest value of the unit before, …
    pub(crate) sorted: bool,
    /// … or above it.
    pub(crate) unique: bool,
}

/// The outcome of writing a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Written {
    /// Its rows are in place, as expected.
    InPlace,
    /// Some property of the rows is only known at the end: the column is built then.
    AtEnd,
    /// It contradicts the expectation: the column cannot be finished.
    Mismatch,
}

enum Kind {
    Numbers(Box<Numbers>),
    Text(Mutex<Text>),
}

/// Integers or floats.
struct Numbers {
    encoding: Encoding,
    width: usize,
    base: i128,
    range: Option<(i128, i128)>,
    place: PreallocatedBuffer,
    counter: Counter,
    /// What shares of the rows have of the sample, behind the first row of each.
    sample: Mutex<Vec<(usize, Vec<Option<i128>>)>>,
    shown: Mutex<Shown>,
}

/// Properties of the rows in place.
struct Shown {
    rows: usize,
    range: Option<(i128, i128)>,
    /// All units are expected in order, and these are, …
    sorted: bool,
    /// … and repeat no value.
    unique: bool,
}

/// Strings.
enum Text {
    /// No unit has been read.
    Waiting,
    /// A unit provided this dictionary, and none since had another string.
    Known(Arc<KnownText>),
    /// Nothing is written before all units are read.
    Late,
}

struct KnownText {
    codes: HashMap<Vec<u8>, u32>,
    width: usize,
    place: PreallocatedBuffer,
    /// Rows written so far.
    laid: AtomicUsize,
}

/// Memory for the data of a whole column.
pub(super) struct PreallocatedBuffer {
    buffer: Arc<DeviceBuffer>,
    /// Its share of the room for columns, returned unless the buffer is kept.
    taken: Option<(ColumnRoom, usize)>,
}

impl Drop for PreallocatedBuffer {
    fn drop(&mut self) {
        if let Some((room, bytes)) = &self.taken {
            room.give(*bytes);
        }
    }
}

impl PreallocatedBuffer {
    pub(super) fn new(
        bytes: usize,
        name: &str,
        home: &ColumnPools<'_>,
        stream: &Stream,
    ) -> Result<Self> {
        let buffer = home.allocate(bytes, name, stream)?;
        let taken = home.host.is_some() && !buffer.is_host();
        Ok(Self {
            buffer: Arc::new(buffer),
            taken: taken.then(|| (home.room.clone(), bytes)),
        })
    }

    /// The memory.
    pub(super) fn buffer(&self) -> &DeviceBuffer {
        &self.buffer
    }

    /// The memory, for whoever has to keep it.
    pub(super) fn shared(&self) -> Arc<DeviceBuffer> {
        Arc::clone(&self.buffer)
    }

    /// The buffer, now the data of its column.
    pub(super) fn keep(mut self) -> Arc<DeviceBuffer> {
        self.taken = None;
        Arc::clone(&self.buffer)
    }

    /// Write the codes of `rows` from row `first` of the column.
    pub(super) fn write(
        &self,
        first: usize,
        width: usize,
        rows: &Rows<'_>,
        remaps: Option<&Vec<Vec<u32>>>,
        base: i128,
        stream: &Stream,
    ) -> Result<()> {
        stream.check()?;
        let (start, bytes) = (first * width, rows.len() * width);
        // SAFETY: the rows of the column are cut into shares, each of which is written once, by the thread that has it; kernels
        // that know the column's address before all of them are written read rows of shares alone that are.
        if let Some(out) = unsafe { self.buffer.host_range_mut(start..start + bytes) } {
            return rows.write_codes(0..bytes, width, out, remaps, base);
        }
        let mut window = vec![0; bytes.min(WINDOW)];
        for from in (0..bytes).step_by(WINDOW) {
            let to = (from + WINDOW).min(bytes);
            let out = &mut window[..to - from];
            rows.write_codes(from..to, width, out, remaps, base)?;
            self.buffer.upload(stream, start + from, out)?;
        }
        Ok(())
    }
}

/// A column after all units are read.
pub(super) enum Preallocated {
    /// Its data and encoding.
    Numbers {
        encoding: Encoding,
        data: Arc<DeviceBuffer>,
        count: Count,
        sketch: Sketch,
        sample: Vec<Option<i128>>,
    },
    /// Its codes and dictionary.
    Text {
        codes: HashMap<Vec<u8>, u32>,
        place: PreallocatedBuffer,
    },
    /// Nothing: the column is built without expectations.
    Nothing,
}

impl PreallocatedColumn {
    /// Memory for `rows` rows with these expectations; `None` when the column is better built at the end. Blocks
    /// while memory is short.
    ///
    /// Host memory until the column is finished: as [`Counter`] for numbers; strings keep what readers have encoded.
    ///
    /// # Errors
    /// [`crate::GpuError::OutOfDeviceMemory`]; [`crate::GpuError::Unsupported`] for types without a device encoding.
    pub(crate) fn new(
        data_type: &DataType,
        policy: StringPolicy,
        name: &str,
        rows: usize,
        expected: Expectation,
        home: &ColumnPools<'_>,
        stream: &Stream,
    ) -> Result<Option<Self>> {
        let range = expected.range;
        let numbers = |encoding: Encoding, width: u8, base: i128| -> Result<Kind> {
            let width = usize::from(width);
            let floats = matches!(encoding, Encoding::Float { .. });
            let range = range.filter(|_| !floats);
            Ok(Kind::Numbers(Box::new(Numbers {
                place: PreallocatedBuffer::new(rows * width, name, home, stream)?,
                counter: Counter::new(range, rows),
                sample: Mutex::default(),
                shown: Mutex::new(Shown {
                    rows: 0,
                    range: None,
                    sorted: expected.sorted,
                    unique: expected.unique,
                }),
                encoding,
                width,
                base,
                range,
            })))
        };
        let kind = match physical(data_type)? {
            Physical::Integer(_) if range.is_some() => {
                let (width, base) = frame(range);
                numbers(Encoding::Integer { width, base }, width, base)?
            }
            Physical::Float(width) => numbers(Encoding::Float { width }, width, 0)?,
            Physical::Text if policy != StringPolicy::AlwaysBytes => {
                Kind::Text(Mutex::new(Text::Waiting))
            }
            _ => return Ok(None),
        };
        Ok(Some(Self {
            name: name.to_owned(),
            data_type: data_type.clone(),
            rows,
            expected,
            kind,
        }))
    }

    /// Write the rows of a unit, which begin at row `first` of the table, and release its numbers.
    ///
    /// Each row may be written once. Blocks for the copies, and while memory is short.
    ///
    /// # Errors
    /// [`crate::GpuError::OutOfDeviceMemory`] of strings, [`crate::GpuError::Device`] of the copies, and
    /// [`crate::GpuError::Stopped`].
    pub(crate) fn place(
        &self,
        first: usize,
        segment: &mut Segment,
        home: &ColumnPools<'_>,
        stream: &Stream,
    ) -> Result<Written> {
        if first + segment.rows > self.rows {
            return Ok(Written::Mismatch);
        }
        // Validity is laid out at the end.
        let nulls = segment.chunks.iter().any(|chunk| chunk.null_count > 0);
        let laid = match &self.kind {
            Kind::Numbers(numbers) => numbers.place(self.rows, first, segment, stream)?,
            Kind::Text(text) => self.place_text(text, first, segment, home, stream)?,
        };
        Ok(match laid {
            Written::InPlace if nulls => Written::AtEnd,
            laid => laid,
        })
    }

    /// The expected column, over the memory in which its rows are written; `None` while too little is known.
    /// Statistics are extrapolated from the units in place. The final column must be compared with it
    /// ([`Column::keeps`]).
    ///
    /// # Errors
    /// [`crate::GpuError::Unsupported`] when a dictionary outgrows its Arrow type.
    pub(crate) fn expected(&self) -> Result<Option<Column>> {
        if !self.expected.whole {
            return Ok(None);
        }
        let (encoding, data, statistics) = match &self.kind {
            Kind::Numbers(numbers) => {
                let statistics = numbers.expected(self.rows);
                (numbers.encoding.clone(), &numbers.place, statistics)
            }
            Kind::Text(text) => {
                let Text::Known(known) = &*text.lock() else {
                    return Ok(None);
                };
                let known = Arc::clone(known);
                return self.expected_text(&known).map(Some);
            }
        };
        Ok(Some(self.column(encoding, data, statistics)))
    }

    fn expected_text(&self, known: &KnownText) -> Result<Column> {
        let mut values: Vec<&[u8]> = known.codes.keys().map(Vec::as_slice).collect();
        values.sort_unstable();
        let distinct = values.len();
        let statistics = ColumnStatistics {
            range: (distinct > 0).then(|| (0, distinct as i128 - 1)),
            distinct: Some(distinct),
            distinct_estimate: Some(distinct as u64),
            ascii: values.iter().all(|value| value.is_ascii()),
            ..ColumnStatistics::default()
        };
        let values = string_array(value_type(&self.data_type), &values, &self.name)?;
        let encoding = Encoding::Dictionary {
            width: known.width as u8,
            dictionary: Arc::new(Dictionary { values }),
        };
        Ok(self.column(encoding, &known.place, statistics))
    }

    fn column(
        &self,
        encoding: Encoding,
        place: &PreallocatedBuffer,
        statistics: ColumnStatistics,
    ) -> Column {
        Column {
            data_type: self.data_type.clone(),
            rows: self.rows,
            encoding,
            data: Arc::clone(&place.buffer),
            validity: None,
            statistics,
        }
    }

    fn place_text(
        &self,
        text: &Mutex<Text>,
        first: usize,
        segment: &Segment,
        home: &ColumnPools<'_>,
        stream: &Stream,
    ) -> Result<Written> {
        let known = {
            let mut state = text.lock();
            if matches!(*state, Text::Waiting) {
                *state = match KnownText::of(segment, self.rows) {
                    Some((codes, width)) => Text::Known(Arc::new(KnownText {
                        place: PreallocatedBuffer::new(
                            self.rows * width,
                            &self.name,
                            home,
                            stream,
                        )?,
                        codes,
                        width,
                        laid: AtomicUsize::new(0),
                    })),
                    None => Text::Late,
                };
            }
            match &*state {
                Text::Known(known) => Arc::clone(known),
                _ => return Ok(Written::AtEnd),
            }
        };
        let numbers = 0..segment.interner.len() as u32;
        let codes = numbers.map(|number| known.codes.get(segment.interner.value(number)).copied());
        let bytes = |chunk: &super::chunk::Chunk| matches!(chunk.values, Values::Bytes { .. });
        match codes.collect::<Option<Vec<u32>>>() {
            Some(remap) if !segment.chunks.iter().any(bytes) => {
                let rows = Rows::new(std::slice::from_ref(segment));
                known
                    .place
                    .write(first, known.width, &rows, Some(&vec![remap]), 0, stream)?;
                known.laid.fetch_add(rows.len(), Ordering::Relaxed);
                Ok(Written::InPlace)
            }
            _ => {
                *text.lock() = Text::Late;
                Ok(Written::AtEnd)
            }
        }
    }

    /// The final column, once every unit is written; `None` when it differs from the expectation.
    ///
    /// # Errors
    /// [`crate::GpuError::Internal`] when a thread panics.
    pub(super) fn finish(self, range: Option<(i128, i128)>) -> Result<Option<Preallocated>> {
        match self.kind {
            Kind::Numbers(numbers) => {
                if let Encoding::Integer { width, base } = numbers.encoding
                    && frame(range) != (width, base)
                {
                    return Ok(None);
                }
                let (count, sketch) = numbers.counter.finish()?;
                let mut sample = numbers.sample.into_inner();
                sample.sort_unstable_by_key(|(first, _)| *first);
                let sample = sample.into_iter().flat_map(|(_, share)| share).collect();
                Ok(Some(Preallocated::Numbers {
                    encoding: numbers.encoding,
                    data: numbers.place.keep(),
                    count,
                    sketch,
                    sample,
                }))
            }
            Kind::Text(text) => {
                let known = match text.into_inner() {
                    Text::Known(known) => Arc::into_inner(known),
                    _ => None,
                };
                let all = |known: &KnownText| known.laid.load(Ordering::Relaxed) == self.rows;
                Ok(Some(match known.filter(all) {
                    Some(known) => Preallocated::Text {
                        codes: known.codes,
                        place: known.place,
                    },
                    None => Preallocated::Nothing,
                }))
            }
        }
    }
}

impl Numbers {
    fn place(
        &self,
        all_rows: usize,
        first: usize,
        segment: &mut Segment,
        stream: &Stream,
    ) -> Result<Written> {
        let within =
            |(min, max): (i128, i128)| self.range.is_some_and(|r| r.0 <= min && max <= r.1);
        let integers = matches!(self.encoding, Encoding::Integer { .. });
        for chunk in &segment.chunks {
            if integers && !chunk.range.is_none_or(within) {
                return Ok(Written::Mismatch);
            }
        }
        {
            let rows = Rows::new(std::slice::from_ref(segment));
            self.place
                .write(first, self.width, &rows, None, self.base, stream)?;
            let sample = rows.sample_of(first, all_rows, None);
            self.sample.lock().push((first, sample));
            self.shown.lock().add(rows.len(), &rows.statistics());
        }
        self.counter.add(&segment.chunks.iter().collect::<Vec<_>>());
        for chunk in &mut segment.chunks {
            chunk.values = Values::Written;
        }
        Ok(Written::InPlace)
    }

    /// The expected statistics of a column of `rows` rows without NULLs.
    fn expected(&self, rows: usize) -> ColumnStatistics {
        let shown = self.shown.lock();
        let (sorted, unique) = (shown.sorted, shown.sorted && shown.unique);
        let span = |range: Option<(i128, i128)>| range.map(|(low, high)| high as f64 - low as f64);
        // Values that come close together are not those that come later.
        let clustered = match (span(shown.range), span(self.range)) {
            (Some(some), Some(all)) => some < all / 2.0,
            _ => false,
        };
        let seen = (self.counter.so_far(), shown.rows as u64);
        let distinct = expected_distinct(seen, rows as u64, sorted || clustered);
        let shares = self.sample.lock();
        let valid = shares.iter().flat_map(|(_, share)| share);
        let sample = valid.flatten().copied().collect();
        ColumnStatistics {
            range: self.range,
            distinct: unique.then_some(rows),
            distinct_estimate: Some(if unique { rows as u64 } else { distinct }),
            sorted,
            unique,
            sketch: (!unique).then(|| Arc::new(Sketch::default().with_sample(sample))),
            ..ColumnStatistics::default()
        }
    }
}

impl Shown {
    /// Another unit is in place.
    fn add(&mut self, rows: usize, share: &ColumnStatistics) {
        if rows == 0 {
            return;
        }
        self.rows += rows;
        self.range = match (self.range, share.range) {
            (Some(a), Some(b)) => Some((a.0.min(b.0), a.1.max(b.1))),
            (one, other) => one.or(other),
        };
        self.sorted &= share.sorted;
        self.unique &= share.unique;
    }
}

impl Column {
    /// Does the column match the expected one: same memory, same encoding, no expected property violated?
    pub(crate) fn keeps(&self, expected: &Self) -> bool {
        let encoded = match (&self.encoding, &expected.encoding) {
            (Encoding::Integer { width, base }, Encoding::Integer { width: w, base: b }) => {
                (width, base) == (w, b)
            }
            (Encoding::Float { width }, Encoding::Float { width: w }) => width == w,
            (
                Encoding::Dictionary { width, dictionary },
                Encoding::Dictionary {
                    width: w,
                    dictionary: d,
                },
            ) => width == w && *dictionary.values == *d.values,
            _ => false,
        };
        let (mine, said) = (&self.statistics, &expected.statistics);
        let within = match (mine.range, said.range) {
            (Some(mine), Some(said)) => said.0 <= mine.0 && mine.1 <= said.1,
            (mine, _) => mine.is_none(),
        };
        encoded
            && within
            && self.rows == expected.rows
            && Arc::ptr_eq(&self.data, &expected.data)
            && self.validity.is_none()
            && (mine.sorted || !said.sorted)
            && (mine.unique || !said.unique)
            && (mine.ascii || !said.ascii)
    }
}

impl KnownText {
    /// The sorted dictionary of a unit with the width of its codes, if it may be that of a column of `rows` rows.
    fn of(segment: &Segment, rows: usize) -> Option<(HashMap<Vec<u8>, u32>, usize)> {
        let few = segment.interner.len() <= MOST_STRINGS.min(rows / 2);
        let chunks = &segment.chunks;
        let numbered = |values: &Values| matches!(values, Values::Dictionary(codes) if !matches!(codes, Codes::U64(_)));
        if segment.interner.len() == 0 || !few || !chunks.iter().all(|c| numbered(&c.values)) {
            return None;
        }
        let mut values: Vec<&[u8]> = (0..segment.interner.len() as u32)
            .map(|number| segment.interner.value(number))
            .collect();
        values.sort_unstable();
        let width = usize::from(unsigned_width(values.len() as u128 - 1));
        let codes = values.into_iter().zip(0..);
        let codes = codes.map(|(value, code)| (value.to_vec(), code)).collect();
        Some((codes, width))
    }
}

/// The first and last of numbers that ascend and have no NULL, and whether they are all different.
///
/// # Errors
/// As [`range_of`].
pub(crate) fn order_of(array: &ArrayRef) -> Result<Option<(i128, i128, bool)>> {
    let mut encoder = ChunkEncoder::new(array.data_type().clone(), StringPolicy::AlwaysBytes)?;
    encoder.push(array)?;
    let segment = encoder.finish();
    Ok(match segment.chunks.as_slice() {
        [chunk] => chunk
            .ascending
            .map(|(first, last)| (first, last, chunk.strict)),
        _ => None,
    })
}

/// The smallest and largest number of an array without strings; `None` when it has none.
///
/// # Errors
/// [`crate::GpuError::Unsupported`] for types and values without a device encoding.
pub(crate) fn range_of(array: &ArrayRef) -> Result<Option<(i128, i128)>> {
    let mut encoder = ChunkEncoder::new(array.data_type().clone(), StringPolicy::AlwaysBytes)?;
    encoder.push(array)?;
    let segment = encoder.finish();
    Ok(segment.chunks.iter().find_map(|chunk| chunk.range))
}
