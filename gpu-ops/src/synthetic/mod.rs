//! Tables made on the device from row numbers, and sums that show whether an answer over them is right.
//!
//! A [`Side`] says what its rows are: each of some numbers in turn, or numbers drawn with a Zipf distribution. A row's
//! key is made of its number, its payload of its number and the row's copy (in turn) or of the row itself (drawn), by
//! mixing bits. So the rows that a join pairs, and the rows of a group, are known without joining or grouping, and
//! [`joined`] and [`Grouped`] add up a hash of every row of the answer in any order; [`sum`] does the same over the rows that
//! a fragment computed. Everything runs on the device: 2^27 rows take milliseconds.
//!
//! The columns have the encoding and the statistics that loading them would have brought, up to this: the least and
//! greatest value, whether values are unique, and, from the smallest hashes, how many are distinct (to 3 %).

mod checks;
mod zipf;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;

use std::sync::Arc;

use arrow::datatypes::DataType;
use warpline_cuda::kernels::{self, SyntheticColumnArgs, SyntheticNumbers, SyntheticSketchArgs};

pub use checks::{Grouped, Outcome, Returned, joined, sum};

use crate::column::{Column, ColumnStatistics, Encoding, HASHES, SAMPLE, Sketch};
use crate::device::{DevicePtr, LaunchConfig, Stream};
use crate::error::{GpuError, Result};
use crate::memory::DeviceBuffer;
use crate::primitives::launch;
use crate::runtime::Runtime;
use crate::tables::ResidentTable;

/// Most payload columns of a table.
pub const MOST_COLUMNS: usize = 12;

/// What the keys of rows are made of.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Numbers {
    /// The numbers 0, `stride`, 2 `stride` … in no order: `distinct` of them, each as often as rows allow.
    InTurn {
        /// Different numbers.
        distinct: u64,
        /// From one number to the next.
        stride: u64,
    },
    /// Each row draws one of `values` numbers; the i-th most frequent with a probability like i^-exponent.
    Drawn {
        /// Different numbers.
        values: u64,
        /// 0 for a uniform distribution.
        exponent: f64,
    },
}

/// How keys lie in their range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyKind {
    /// `INT`: the numbers themselves.
    Dense,
    /// `INT`: all over the type's range.
    Sparse,
    /// `BIGINT`: all over the positive half of the type's range.
    Wide,
}

/// One table: a key `k`, and payload columns `{prefix}0`, `{prefix}1`, …
#[derive(Debug, Clone, PartialEq)]
pub struct Side {
    /// Name of the table, for people.
    pub name: &'static str,
    /// Rows, below 2^32.
    pub rows: u64,
    /// What keys are made of.
    pub numbers: Numbers,
    /// How keys lie.
    pub keys: KeyKind,
    /// Prefix of the payload columns' names.
    pub prefix: &'static str,
    /// Bytes of each payload column: 4 (`INT`), 8 (`BIGINT`) or 16 (`DECIMAL(38, 0)`), at most [`MOST_COLUMNS`].
    pub payload: Vec<u32>,
    /// Makes other tables.
    pub seed: u64,
}

/// How a number becomes a key's code and value.
#[derive(Debug, Clone, Copy)]
struct KeyCode {
    factor: u64,
    mask: u64,
    base: i64,
    width: u32,
}

impl Side {
    /// Numbers are below this.
    fn range(&self) -> u64 {
        match self.numbers {
            Numbers::InTurn { distinct, stride } => distinct.max(1).saturating_mul(stride.max(1)),
            Numbers::Drawn { values, .. } => values.max(1),
        }
    }

    /// The code of a key; alike for all tables that join, whatever their range.
    fn key_code(&self) -> KeyCode {
        match self.keys {
            KeyKind::Dense => {
                let (width, base) = match self.range() {
                    0..=0x100 => (1, 0),
                    0x101..=0x1_0000 => (2, 0),
                    0x1_0001..=0x8000_0000 => (4, 0),
                    // Numbers fill the type from its least value on.
                    _ => (4, i64::from(i32::MIN)),
                };
                KeyCode {
                    factor: 1,
                    mask: u64::MAX,
                    base,
                    width,
                }
            }
            KeyKind::Sparse => KeyCode {
                factor: 0x9e37_79b1,
                mask: u64::from(u32::MAX),
                base: i64::from(i32::MIN),
                width: 4,
            },
            KeyKind::Wide => KeyCode {
                factor: 0x9e37_79b9_7f4a_7c15,
                mask: u64::MAX >> 1,
                base: 0,
                width: 8,
            },
        }
    }

    fn check(&self) -> Result<()> {
        let widths = self.payload.iter().all(|w| matches!(w, 4 | 8 | 16));
        let dense = self.keys != KeyKind::Wide && self.range() > 1 << 32;
        let exponent = match self.numbers {
            Numbers::Drawn { exponent, .. } => exponent,
            Numbers::InTurn { .. } => 0.0,
        };
        if !widths
            || dense
            || self.payload.len() > MOST_COLUMNS
            || self.rows > u64::from(u32::MAX)
            || self.range() > 1 << 32
            || !(0.0..=8.0).contains(&exponent)
        {
            return Err(GpuError::Unsupported(format!(
                "a made table of {} rows, numbers below {}, {} payload columns",
                self.rows,
                self.range(),
                self.payload.len()
            )));
        }
        Ok(())
    }
}

/// A table on the device, and what it takes to check answers over it.
#[derive(Debug)]
pub struct Made {
    side: Side,
    table: Arc<ResidentTable>,
    bands: Option<DeviceBuffer>,
}

impl Made {
    /// The table.
    pub fn table(&self) -> &Arc<ResidentTable> {
        &self.table
    }

    /// What it was made of.
    pub fn side(&self) -> &Side {
        &self.side
    }

    fn numbers(&self) -> SyntheticNumbers {
        numbers(&self.side, self.bands.as_ref())
    }
}

fn numbers(side: &Side, bands: Option<&DeviceBuffer>) -> SyntheticNumbers {
    let (range, distinct, stride) = match side.numbers {
        Numbers::InTurn { distinct, stride } => (side.rows.max(1), distinct.max(1), stride.max(1)),
        Numbers::Drawn { values, .. } => (values.max(1), 1, 1),
    };
    SyntheticNumbers {
        bands: bands.map_or(DevicePtr::NULL, DeviceBuffer::ptr),
        band_count: bands.map_or(0, |bands| bands.len() as u64 / 16 - 1),
        range,
        distinct,
        stride,
        seed: side.seed,
    }
}

/// Makes a table.
///
/// # Errors
/// [`GpuError::Unsupported`] for what [`Side`] excludes; [`GpuError::OutOfDeviceMemory`], [`GpuError::Compile`] and
/// [`GpuError::Device`].
pub fn make(runtime: &Arc<Runtime>, stream: &Stream, side: Side) -> Result<Made> {
    side.check()?;
    let bands = match side.numbers {
        Numbers::InTurn { .. } => None,
        Numbers::Drawn { values, exponent } => {
            let bands = zipf::bands(values.max(1), exponent);
            let buffer = runtime.pool().allocate(bands.len() * 8, "made tables")?;
            buffer.upload_values(stream, 0, &bands)?;
            Some(buffer)
        }
    };
    let maker = Maker {
        runtime,
        stream,
        side: &side,
        numbers: numbers(&side, bands.as_ref()),
    };
    let mut columns = vec![("k".to_string(), maker.keys()?)];
    for (number, width) in side.payload.iter().enumerate() {
        columns.push((
            format!("{}{number}", side.prefix),
            maker.payload(number as u32, *width)?,
        ));
    }
    runtime.device().synchronize(stream)?;
    let table = {
        let (pool, streams) = (Arc::clone(runtime.pool()), Arc::clone(runtime.streams()));
        ResidentTable::try_new(pool, streams, side.name, columns)?
    };
    Ok(Made {
        side,
        table: Arc::new(table),
        bands,
    })
}

struct Maker<'a> {
    runtime: &'a Runtime,
    stream: &'a Stream,
    side: &'a Side,
    numbers: SyntheticNumbers,
}

impl Maker<'_> {
    fn keys(&self) -> Result<Column> {
        let code = self.side.key_code();
        let data = self.column(u32::MAX, code)?;
        let data_type = match self.side.keys {
            KeyKind::Wide => DataType::Int64,
            KeyKind::Dense | KeyKind::Sparse => DataType::Int32,
        };
        let distinct = match self.side.numbers {
            Numbers::InTurn { distinct, .. } => Some(distinct.min(self.side.rows)),
            Numbers::Drawn { .. } => None,
        };
        let unique = distinct.is_some_and(|distinct| distinct == self.side.rows);
        let statistics = ColumnStatistics {
            unique,
            ..self.statistics(&data, code, distinct)?
        };
        Ok(self.wrapped(data, data_type, code, statistics))
    }

    fn payload(&self, number: u32, width: u32) -> Result<Column> {
        let code = KeyCode {
            factor: 1,
            mask: u64::MAX,
            base: 0,
            width,
        };
        let data = self.column(number, code)?;
        let data_type = match width {
            4 => DataType::Int32,
            8 => DataType::Int64,
            _ => DataType::Decimal128(38, 0),
        };
        let statistics = match width {
            16 => ColumnStatistics {
                // As wide as the values are made.
                range: Some((0, i128::from(u64::MAX) << 16)),
                ..ColumnStatistics::default()
            },
            // Random bits are nearly all distinct; nothing is chosen by payload.
            _ => ColumnStatistics {
                range: Some((0, (1 << (8 * width - 1)) - 1)),
                ..ColumnStatistics::default()
            },
        };
        Ok(self.wrapped(data, data_type, code, statistics))
    }

    fn wrapped(
        &self,
        data: DeviceBuffer,
        data_type: DataType,
        code: KeyCode,
        statistics: ColumnStatistics,
    ) -> Column {
        Column {
            data_type,
            rows: self.side.rows as usize,
            encoding: Encoding::Integer {
                width: code.width as u8,
                base: code.base.into(),
            },
            data: Arc::new(data),
            validity: None,
            statistics,
        }
    }

    /// The codes, padded with zeros as columns are.
    fn column(&self, column: u32, code: KeyCode) -> Result<DeviceBuffer> {
        const PADDING: usize = 256;
        let bytes = self.side.rows as usize * code.width as usize;
        let padded = bytes.next_multiple_of(PADDING).max(PADDING);
        let buffer = self.runtime.pool().allocate(padded, "made tables")?;
        let tail = padded - bytes;
        buffer.fill_range(self.stream, bytes, tail, 0)?;
        let args = SyntheticColumnArgs {
            numbers: self.numbers,
            out: buffer.ptr(),
            rows: self.side.rows,
            factor: code.factor,
            mask: code.mask,
            column,
            width: code.width,
        };
        // SAFETY: the buffer has room for all rows; the bands live as long as the caller holds them, which waits for the
        // stream.
        unsafe {
            over_rows(
                self.runtime,
                self.stream,
                "synthetic_column",
                self.side.rows,
                &args,
            )?
        };
        Ok(buffer)
    }

    /// What loading would have found out about keys.
    fn statistics(
        &self,
        data: &DeviceBuffer,
        code: KeyCode,
        known: Option<u64>,
    ) -> Result<ColumnStatistics> {
        /// Hashes to expect below the bound: more than a sketch keeps, by six standard deviations.
        const EXPECTED: u64 = HASHES as u64 * 5 / 4;
        const SLOTS: usize = HASHES * 8;
        let rows = self.side.rows;
        let expected = known.unwrap_or_else(|| match self.side.numbers {
            Numbers::Drawn { values, exponent } => zipf::distinct(values, exponent, rows),
            Numbers::InTurn { distinct, .. } => distinct,
        });
        let complete = expected <= 2 * HASHES as u64;
        let bound = if complete {
            u64::MAX
        } else {
            ((u128::from(EXPECTED) << 64) / u128::from(expected)) as u64
        };
        let set = self
            .runtime
            .pool()
            .allocate((SLOTS + 2) * 8, "made tables")?;
        let mut start = vec![0u64; SLOTS + 2];
        start[SLOTS] = u64::MAX;
        set.upload_values(self.stream, 0, &start)?;
        let args = SyntheticSketchArgs {
            data: data.ptr(),
            slots: set.ptr(),
            ends: set.ptr().offset(SLOTS as u64 * 8),
            rows,
            base: code.base as u64,
            bound,
            mask: SLOTS as u64 - 1,
            width: code.width.into(),
        };
        // SAFETY: the set has as many slots as its mask says and two words behind; the data has all rows.
        unsafe { over_rows(self.runtime, self.stream, "synthetic_sketch", rows, &args)? };
        let words: Vec<u64> = set.download_values(self.stream, 0, SLOTS + 2)?;
        let hashes: Vec<u64> = words[..SLOTS].iter().copied().filter(|h| *h != 0).collect();
        let found = hashes.len() as u64;
        let estimate = match (known, complete) {
            (Some(distinct), _) => distinct,
            (None, true) => found,
            (None, false) => {
                ((u128::from(found) << 64) / u128::from(bound)).min(rows.into()) as u64
            }
        };
        let value = |word: u64| i128::from(code.base) + i128::from(word);
        let sample = (rows as usize).min(SAMPLE);
        let sampled = self.sample(data, code, sample)?;
        let sketch = Sketch::of_hashes(hashes, complete).with_sample(sampled);
        Ok(ColumnStatistics {
            range: (rows > 0).then(|| (value(words[SLOTS]), value(words[SLOTS + 1]))),
            distinct: (known.is_some() || complete).then_some(estimate as usize),
            distinct_estimate: Some(estimate),
            sketch: Some(Arc::new(sketch)),
            ..ColumnStatistics::default()
        })
    }

    /// The first rows, which are as random as any.
    fn sample(&self, data: &DeviceBuffer, code: KeyCode, rows: usize) -> Result<Vec<i128>> {
        let stream = self.stream;
        Ok(match code.width {
            1 => widened(data.download_values::<u8>(stream, 0, rows)?),
            2 => widened(data.download_values::<u16>(stream, 0, rows)?),
            4 => widened(data.download_values::<u32>(stream, 0, rows)?),
            _ => widened(data.download_values::<u64>(stream, 0, rows)?),
        })
    }
}

fn widened<T: Into<i128>>(values: Vec<T>) -> Vec<i128> {
    values.into_iter().map(Into::into).collect()
}

/// Launch a kernel of the module over `rows` rows.
///
/// # Safety
/// As [`launch`]: the addresses in `args` are live, and have the room that the kernel needs.
unsafe fn over_rows(
    runtime: &Runtime,
    stream: &Stream,
    name: &'static str,
    rows: u64,
    args: &impl warpline_cuda::KernelArgs,
) -> Result<()> {
    const BLOCK: u32 = 256;
    const BLOCKS: u32 = 8;
    let kernel = runtime.builtin(name, 0, kernels::synthetic)?;
    let resident = runtime.device().info().multiprocessors.max(1) * BLOCKS;
    let needed = u32::try_from(rows.div_ceil(BLOCK.into())).unwrap_or(u32::MAX);
    let config = LaunchConfig {
        grid: resident.min(needed.max(1)),
        block: BLOCK,
        shared_bytes: 0,
    };
    // SAFETY: the caller vouches for the addresses.
    unsafe { launch(runtime, stream, &kernel, config, args) }
}
