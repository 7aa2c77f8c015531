//! Columns whose rows a device decodes: each chunk of rows is written in its place by kernels, some by the host.
//!
//! Width and base of numbers follow from the range that is expected, as for [`super::preallocated`]; strings come as codes
//! in the dictionaries of chunks, which are merged at the end and translated on the device, or as bytes, of which a dictionary
//! is made at the end where they repeat. A column that is not what
//! was expected cannot be finished, and has to be read again.

use std::ops::Range;
use std::sync::Arc;

use arrow::datatypes::DataType;
use parking_lot::Mutex;
use warpline_cuda::KernelArgs;
use warpline_cuda::kernels::{ParquetNarrowArgs, ParquetValidityArgs};

use super::StringPolicy;
use super::assemble::Rows;
use super::chunk::{Codes, Segment, Values};
use super::facts::{FactsKernels, Finished, finish_statistics, sample_strings};
use super::native::{Native, Physical, frame, physical, unsigned_width};
use super::on_device_bytes::{PlacedStrings, concatenated};
use super::on_device_text::{Text, TextChunk, UsedStrings};
use super::pools::ColumnPools;
use super::preallocated::{Expectation, PreallocatedBuffer};
use super::string_sorter::StringSorter;
use super::text_dictionary::{Strings, TextKernels};
use super::types::{Column, ColumnStatistics, Encoding};
use crate::device::{DevicePtr, Kernel, LaunchConfig, Stream};
use crate::error::Result;
use crate::memory::DeviceBuffer;

/// The kernels that finish columns.
#[derive(Debug)]
pub(crate) struct FinishKernels {
    pub(crate) facts: FactsKernels,
    /// `parquet_narrow`.
    pub(crate) narrow: Kernel,
    /// `parquet_remap`.
    pub(crate) remap: Kernel,
    /// `parquet_validity`.
    pub(crate) validity: Kernel,
    /// `parquet_shift_ends`.
    pub(crate) shift: Kernel,
    pub(crate) texts: TextKernels,
}

/// Where a kernel writes the rows of a column.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Target {
    /// Codes, from row 0 on.
    pub(crate) data: DevicePtr,
    /// Validity, from row 0 on; null where no row may be NULL.
    pub(crate) validity: DevicePtr,
    /// Codes are values less this.
    pub(crate) base: i64,
    /// Bytes of a code; 0 of bits.
    pub(crate) width: u32,
}

/// What a chunk has beside its codes.
#[derive(Debug, Default)]
pub(crate) struct ChunkFacts {
    /// Least and greatest value, of integers.
    pub(crate) range: Option<(i64, i64)>,
    pub(crate) nulls: u64,
    /// Of strings that came as codes.
    pub(crate) strings: Option<UsedStrings>,
    /// Of strings that came as bytes.
    pub(crate) placed: Option<PlacedStrings>,
}

/// A column that is being decoded on a device.
pub(crate) struct DeviceColumn {
    pub(super) name: String,
    data_type: DataType,
    policy: StringPolicy,
    pub(super) rows: usize,
    expected: Expectation,
    kind: Kind,
    pub(super) place: PreallocatedBuffer,
    pub(super) validity: Option<PreallocatedBuffer>,
    pub(super) seen: Mutex<Seen>,
}

enum Kind {
    Integer {
        width: u8,
        base: i64,
    },
    Float {
        width: u8,
    },
    /// Codes of four bytes in the dictionaries of chunks.
    Text,
    /// Strings as they are: eight bytes a row of where they end, behind a first 0.
    Bytes,
    /// A bit a row.
    Bits,
}

#[derive(Default)]
pub(super) struct Seen {
    range: Option<(i128, i128)>,
    pub(super) nulls: u64,
    /// Rows that are in place.
    pub(super) rows: usize,
    /// Chunks that the device has decoded.
    decoded: u64,
    chunks: Vec<TextChunk>,
    /// First row and rows of each, in any order.
    pub(super) placed: Vec<(usize, usize, PlacedStrings)>,
    /// Something of it cannot be finished.
    pub(super) refused: bool,
}

impl DeviceColumn {
    /// Memory for `rows` rows; `None` when the expectation does not determine codes of at most eight bytes, or the type
    /// has none. `as_bytes`: strings come as bytes. Blocks while memory is short.
    ///
    /// # Errors
    /// [`GpuError::OutOfDeviceMemory`], [`GpuError::Device`].
    pub(crate) fn new(
        data_type: &DataType,
        policy: StringPolicy,
        name: &str,
        rows: usize,
        (mut expected, as_bytes): (Expectation, bool),
        home: &ColumnPools<'_>,
        stream: &Stream,
    ) -> Result<Option<Self>> {
        let kind = match physical(data_type)? {
            Physical::Float(width) => Kind::Float { width },
            Physical::Integer(native) if expected.range.is_none() && native != Native::U64 => {
                // Codes are made when all rows are there, of any values that have room in 64 bits until then.
                expected.range = Some((i64::MIN.into(), i64::MAX.into()));
                Kind::Integer { width: 8, base: 0 }
            }
            Physical::Integer(_) => {
                let (width, base) = frame(expected.range);
                let fits = expected.range.is_some_and(|(low, high)| {
                    i64::try_from(low).is_ok() && i64::try_from(high).is_ok()
                });
                let Some(base) = i64::try_from(base).ok().filter(|_| fits && width <= 8) else {
                    return Ok(None);
                };
                Kind::Integer { width, base }
            }
            Physical::Text if as_bytes => Kind::Bytes,
            Physical::Text if policy != StringPolicy::AlwaysBytes => Kind::Text,
            Physical::Bits => Kind::Bits,
            Physical::Text => return Ok(None),
        };
        let bytes = match kind {
            Kind::Bits => rows.div_ceil(32) * 4,
            Kind::Bytes => (rows + 1) * 8,
            _ => rows * kind.width(),
        };
        let place = PreallocatedBuffer::new(bytes, name, home, stream)?;
        if matches!(kind, Kind::Bits) {
            // Bits that are set are written.
            place.buffer().fill(stream, 0)?;
        }
        if matches!(kind, Kind::Bytes) {
            place.buffer().fill_range(stream, 0, 8, 0)?;
        }
        let validity = match expected.whole {
            true => None,
            false => {
                let bytes = rows.div_ceil(32) * 4;
                let bitmap = PreallocatedBuffer::new(bytes, name, home, stream)?;
                bitmap.buffer().fill(stream, 0)?;
                Some(bitmap)
            }
        };
        Ok(Some(Self {
            name: name.to_owned(),
            data_type: data_type.clone(),
            policy,
            rows,
            expected,
            kind,
            place,
            validity,
            seen: Mutex::default(),
        }))
    }

    /// Does it hold strings?
    pub(crate) fn is_text(&self) -> bool {
        matches!(self.kind, Kind::Text)
    }

    /// Do its strings come as bytes?
    pub(crate) fn is_bytes(&self) -> bool {
        matches!(self.kind, Kind::Bytes)
    }

    /// Chunks that the device has decoded so far.
    pub(crate) fn decoded(&self) -> u64 {
        self.seen.lock().decoded
    }

    /// Where kernels write.
    pub(crate) fn target(&self) -> Target {
        Target {
            data: self.place.buffer().ptr(),
            validity: match &self.validity {
                Some(bitmap) => bitmap.buffer().ptr(),
                None => DevicePtr::NULL,
            },
            base: match self.kind {
                Kind::Integer { base, .. } => base,
                _ => 0,
            },
            width: self.kind.width() as u32,
        }
    }

    /// The rows from `first` on are in place, written by kernels that have ended.
    ///
    /// # Errors
    /// [`GpuError::Unsupported`] for too many strings.
    pub(crate) fn note(&self, first: usize, rows: usize, facts: ChunkFacts) -> Result<()> {
        let chunk = match facts.strings {
            Some(strings) => Some(strings.chunk(first, rows)?),
            None => None,
        };
        let mut seen = self.seen.lock();
        seen.rows += rows;
        seen.decoded += 1;
        seen.nulls += facts.nulls;
        if let (Kind::Integer { .. } | Kind::Bits, Some((low, high))) = (&self.kind, facts.range) {
            seen.add_range((low.into(), high.into()));
        }
        seen.chunks.extend(chunk);
        seen.placed
            .extend(facts.placed.map(|placed| (first, rows, placed)));
        Ok(())
    }

    /// Write rows that the host has decoded. What does not go together with the others lets the column be refused at the end.
    ///
    /// # Errors
    /// [`GpuError::Device`] of the copies; [`GpuError::OutOfDeviceMemory`].
    pub(crate) fn place(
        &self,
        first: usize,
        segment: Segment,
        home: &ColumnPools<'_>,
        kernels: &FinishKernels,
        stream: &Stream,
    ) -> Result<()> {
        if self.is_bytes() {
            return self.place_bytes(first, &segment, home, kernels, stream);
        }
        let rows = segment.rows();
        let nulls: usize = segment.chunks.iter().map(|chunk| chunk.null_count).sum();
        let range = segment.chunks.iter().filter_map(|chunk| chunk.range);
        let range = range.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)));
        let within = |(low, high)| {
            self.expected
                .range
                .is_some_and(|r| r.0 <= low && high <= r.1)
        };
        let refused = (nulls > 0 && self.validity.is_none())
            || (matches!(self.kind, Kind::Integer { .. }) && !range.is_none_or(within))
            || first + rows > self.rows;
        let numbers = match &self.kind {
            Kind::Text => match numbers_of(&segment) {
                Some(numbers) => Some(numbers),
                None => {
                    self.seen.lock().refused = true;
                    return Ok(());
                }
            },
            _ => None,
        };
        if refused {
            self.seen.lock().refused = true;
            return Ok(());
        }
        {
            let segments = std::slice::from_ref(&segment);
            let base = self.target().base;
            let all = Rows::new(segments);
            let own = numbers.map(|count| vec![(0..count).collect::<Vec<u32>>()]);
            let width = self.kind.width();
            let at = first..first + rows;
            match self.kind {
                Kind::Bits => {
                    let mut bits = vec![0; rows.div_ceil(8)];
                    all.write_bits(0..bits.len(), &mut bits)?;
                    let buffer = self.place.buffer();
                    self.place_bits(at.clone(), buffer, Some(bits), home, kernels, stream)?;
                }
                _ => {
                    let own = own.as_ref();
                    self.place
                        .write(first, width, &all, own, base.into(), stream)?;
                }
            }
            self.place_validity(at, &all, nulls, home, kernels, stream)?;
        }
        let mut seen = self.seen.lock();
        seen.rows += rows;
        seen.nulls += nulls as u64;
        match (&self.kind, range) {
            (Kind::Integer { .. } | Kind::Bits, Some(range)) => seen.add_range(range),
            (Kind::Text, _) => seen.chunks.push(TextChunk {
                first,
                rows,
                numbers: (0..segment.interner.len() as u32).collect(),
                interner: segment.interner,
            }),
            _ => {}
        }
        Ok(())
    }

    /// Write which of these rows are NULL.
    pub(super) fn place_validity(
        &self,
        at: Range<usize>,
        all: &Rows<'_>,
        nulls: usize,
        home: &ColumnPools<'_>,
        kernels: &FinishKernels,
        stream: &Stream,
    ) -> Result<()> {
        let Some(validity) = &self.validity else {
            return Ok(());
        };
        let bits = (nulls > 0).then(|| {
            let mut bits = vec![0; at.len().div_ceil(8)];
            all.write_validity(0..bits.len(), &mut bits);
            bits
        });
        self.place_bits(at, validity.buffer(), bits, home, kernels, stream)
    }

    /// Set the bits of these rows in a bitmap of the column, all of them without `bits`.
    fn place_bits(
        &self,
        rows: Range<usize>,
        bitmap: &DeviceBuffer,
        bits: Option<Vec<u8>>,
        home: &ColumnPools<'_>,
        kernels: &FinishKernels,
        stream: &Stream,
    ) -> Result<()> {
        let bits = match bits {
            None => None,
            Some(bits) => {
                let buffer = home.device.allocate(bits.len().max(1), &self.name)?;
                buffer.upload(stream, 0, &bits)?;
                Some(buffer)
            }
        };
        let args = ParquetValidityArgs {
            bits: bits.as_ref().map_or(DevicePtr::NULL, DeviceBuffer::ptr),
            validity: bitmap.ptr(),
            first_row: rows.start as u64,
            rows: rows.len() as u64,
        };
        // SAFETY: the bitmap has a bit for every row of the column, and `bits` one for each of these.
        unsafe { launch(home, stream, &kernels.validity, rows.len(), &args) }
    }

    /// The column, once all chunks are in place; `None` when it differs from what was expected.
    ///
    /// # Errors
    /// [`GpuError::OutOfDeviceMemory`], [`GpuError::Device`]; [`GpuError::Unsupported`] when a dictionary outgrows its type.
    pub(crate) fn finish(
        self,
        home: &ColumnPools<'_>,
        kernels: &FinishKernels,
        sorter: Option<&dyn StringSorter>,
        stream: &Stream,
    ) -> Result<Option<Column>> {
        let seen = self.seen.into_inner();
        if seen.refused || seen.rows != self.rows {
            return Ok(None);
        }
        let validity = match seen.nulls > 0 {
            true => self.validity.map(PreallocatedBuffer::keep),
            false => None,
        };
        if seen.nulls > 0 && validity.is_none() {
            return Ok(None);
        }
        let mut statistics = ColumnStatistics {
            range: seen.range,
            null_count: seen.nulls as usize,
            ..ColumnStatistics::default()
        };
        let mut counted = self.expected.range;
        let mut placed = seen.placed;
        placed.sort_unstable_by_key(|(first, ..)| *first);
        let finished = |data, width, base| Finished {
            data,
            validity: validity.as_deref(),
            rows: self.rows,
            width,
            base,
            kernels: &kernels.facts,
            pool: home.device,
            stream,
        };
        let (encoding, data, base) = match self.kind {
            Kind::Bytes => {
                statistics.ascii = placed.iter().all(|(.., placed)| placed.ascii);
                let offsets = self.place.buffer();
                let data = concatenated(&self.name, offsets, placed, home, kernels, stream)?;
                let strings = Strings {
                    name: &self.name,
                    data_type: &self.data_type,
                    policy: self.policy,
                    rows: self.rows,
                    valid: self.rows - statistics.null_count,
                    offsets,
                    data: data.buffer(),
                    validity: validity.as_deref(),
                    kernels: &kernels.texts,
                    sorter,
                    home,
                    stream,
                };
                let Some((dictionary, codes)) = strings.dictionary()? else {
                    let offsets = finished(offsets, 8, 0);
                    let sample = sample_strings(&offsets, data.buffer(), &self.data_type)?;
                    statistics.sample = sample.map(Arc::new);
                    return Ok(Some(Column {
                        data_type: self.data_type,
                        rows: self.rows,
                        encoding: Encoding::Bytes {
                            offsets: self.place.keep(),
                        },
                        data: data.keep(),
                        validity,
                        statistics,
                    }));
                };
                let distinct = dictionary.len();
                dictionary_statistics(&mut statistics, distinct, strings.valid);
                let width = unsigned_width(distinct.saturating_sub(1) as u128);
                let dictionary = Arc::new(dictionary);
                (Encoding::Dictionary { width, dictionary }, codes, 0)
            }
            Kind::Integer { width, base } => {
                let within = |range: (i128, i128)| {
                    let expected = self.expected.range;
                    expected.is_some_and(|e| e.0 <= range.0 && range.1 <= e.1)
                };
                if !seen.range.is_none_or(within) {
                    return Ok(None);
                }
                let decoded = (width, i128::from(base));
                let (width, base) = frame(seen.range);
                let encoding = Encoding::Integer { width, base };
                let Ok(base) = i64::try_from(base) else {
                    return Ok(None);
                };
                if (width, i128::from(base)) == decoded {
                    (encoding, self.place.keep(), base)
                } else {
                    // The range was not known, or less wide than was said.
                    counted = seen.range;
                    let bytes = self.rows * usize::from(width);
                    let codes = PreallocatedBuffer::new(bytes, &self.name, home, stream)?;
                    let args = ParquetNarrowArgs {
                        codes: self.place.buffer().ptr(),
                        out: codes.buffer().ptr(),
                        validity: validity
                            .as_ref()
                            .map_or(DevicePtr::NULL, |bitmap| bitmap.ptr()),
                        rows: self.rows as u64,
                        shift: (decoded.1 as i64).wrapping_sub(base) as u64,
                        from_width: decoded.0.into(),
                        width: width.into(),
                    };
                    // SAFETY: both have a code for each row, and the bitmap a bit.
                    unsafe { launch(home, stream, &kernels.narrow, self.rows, &args)? };
                    (encoding, codes.keep(), base)
                }
            }
            Kind::Float { width } => (Encoding::Float { width }, self.place.keep(), 0),
            Kind::Bits => (Encoding::Bits, self.place.keep(), 0),
            Kind::Text => {
                let text = Text {
                    name: &self.name,
                    data_type: &self.data_type,
                    policy: self.policy,
                    rows: self.rows,
                    codes: self.place.buffer(),
                    validity: validity.as_deref(),
                };
                let valid = self.rows - statistics.null_count;
                let Some((dictionary, data)) =
                    text.translate(&seen.chunks, valid, home, kernels, stream)?
                else {
                    return Ok(None);
                };
                let distinct = dictionary.len();
                dictionary_statistics(&mut statistics, distinct, valid);
                statistics.ascii = seen.chunks.iter().all(|chunk| chunk.interner.is_ascii());
                let width = unsigned_width(distinct.saturating_sub(1) as u128);
                let dictionary = Arc::new(dictionary);
                (Encoding::Dictionary { width, dictionary }, data, 0)
            }
        };
        let width = match &encoding {
            Encoding::Integer { width, .. }
            | Encoding::Float { width }
            | Encoding::Dictionary { width, .. } => usize::from(*width),
            _ => 0,
        };
        let finished = finished(&data, width, base);
        let expected = match encoding {
            Encoding::Integer { .. } => counted,
            Encoding::Bits => seen.range,
            _ => None,
        };
        finish_statistics(&finished, &encoding, expected, &mut statistics)?;
        Ok(Some(Column {
            data_type: self.data_type,
            rows: self.rows,
            encoding,
            data,
            validity,
            statistics,
        }))
    }
}

/// What follows from the size of a dictionary.
pub(super) fn dictionary_statistics(
    statistics: &mut ColumnStatistics,
    distinct: usize,
    valid: usize,
) {
    statistics.range = (distinct > 0).then(|| (0, distinct as i128 - 1));
    statistics.distinct = Some(distinct);
    statistics.distinct_estimate = Some(distinct as u64);
    statistics.unique = distinct > 0 && distinct == valid;
}

impl Kind {
    fn width(&self) -> usize {
        match self {
            Self::Integer { width, .. } | Self::Float { width } => usize::from(*width),
            Self::Text => 4,
            Self::Bytes => 8,
            Self::Bits => 0,
        }
    }
}

impl Seen {
    fn add_range(&mut self, range: (i128, i128)) {
        self.range = Some(match self.range {
            Some(all) => (all.0.min(range.0), all.1.max(range.1)),
            None => range,
        });
    }
}

/// How many strings a segment has numbered; `None` when some lie as bytes.
fn numbers_of(segment: &Segment) -> Option<u32> {
    let numbered = |values: &Values| {
        matches!(
            values,
            Values::Dictionary(Codes::U8(_) | Codes::U16(_) | Codes::U32(_))
        )
    };
    let all = segment.chunks.iter().all(|chunk| numbered(&chunk.values));
    all.then(|| segment.interner.len() as u32)
}

/// Launch a kernel over so many rows.
///
/// # Safety
/// As [`crate::device::Device::launch`].
pub(super) unsafe fn launch(
    home: &ColumnPools<'_>,
    stream: &Stream,
    kernel: &Kernel,
    rows: usize,
    args: &impl KernelArgs,
) -> Result<()> {
    const BLOCK: u32 = warpline_cuda::kernels::PARQUET_THREADS;
    if rows == 0 {
        return Ok(());
    }
    let device = home.device.device();
    let resident = device.info().multiprocessors.max(1) * 16;
    let needed = u32::try_from(rows.div_ceil(BLOCK as usize)).unwrap_or(u32::MAX);
    let config = LaunchConfig {
        grid: needed.clamp(1, resident),
        block: BLOCK,
        shared_bytes: 0,
    };
    // SAFETY: passed on to the caller.
    unsafe { device.launch(stream, kernel, config, args.as_bytes()) }
}
