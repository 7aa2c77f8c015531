//! Facts about columns that were made on the device, found there: what [`super::distinct`] and [`super::sketch`] find out on
//! the host about values that pass by, bit for bit.

use arrow::datatypes::DataType;
use warpline_cuda::KernelArgs;
use warpline_cuda::kernels::ColumnFactsArgs;

use super::build::string_array;
use super::distinct::{Count, PRECISION, bitmap_span, estimate};
use super::native::value_type;
use super::sample::{Sample, SampledValues, kept_rows};
use super::sketch::{HASHES, Sketch, sampled_rows};
use super::types::{ColumnStatistics, Encoding};
use crate::device::{Device, DevicePtr, Kernel, LaunchConfig, Module, Stream};
use crate::error::Result;
use crate::memory::{DeviceBuffer, MemoryPool};
use std::sync::Arc;

/// Threads of a block.
const BLOCK: u32 = 256;
const WARP: u32 = 32;
/// Blocks of a multiprocessor.
const BLOCKS: u32 = 8;
/// Slots of the set of hashes.
const SLOTS: usize = HASHES * 8;
/// Words of a bitmap that blocks have for themselves, as the kernel knows.
const FEW_WORDS: u64 = 2048;
/// Times that the smallest hashes are looked for with another bound.
const TRIES: usize = 8;

/// The compiled kernels.
#[derive(Debug)]
pub(crate) struct FactsKernels {
    order: Kernel,
    values: Kernel,
    few_values: Kernel,
    bits: Kernel,
    registers: Kernel,
    hashes: Kernel,
    bitmap_hashes: Kernel,
    sample: Kernel,
    sample_bytes: Kernel,
}

impl FactsKernels {
    /// Those of the compiled module ([`warpline_cuda::kernels::column_facts`]).
    ///
    /// # Errors
    /// [`crate::GpuError::Device`].
    pub(crate) fn of(device: &dyn Device, module: &Module) -> Result<Self> {
        let kernel = |name: &str| device.kernel(module, name);
        Ok(Self {
            order: kernel("column_order")?,
            values: kernel("column_values")?,
            few_values: kernel("column_few_values")?,
            bits: kernel("column_bits")?,
            registers: kernel("column_registers")?,
            hashes: kernel("column_hashes")?,
            bitmap_hashes: kernel("column_bitmap_hashes")?,
            sample: kernel("column_sample")?,
            sample_bytes: kernel("column_sample_bytes")?,
        })
    }
}

/// The values of a column, a bit for each possible one from `least` on.
pub(super) struct Bitmap {
    bits: DeviceBuffer,
    words: u64,
    least: u64,
}

/// A finished column of codes of up to eight bytes, in device memory or where the device reaches it.
pub(super) struct Finished<'a> {
    pub(super) data: &'a DeviceBuffer,
    pub(super) validity: Option<&'a DeviceBuffer>,
    pub(super) rows: usize,
    pub(super) width: usize,
    pub(super) base: i64,
    pub(super) kernels: &'a FactsKernels,
    pub(super) pool: &'a Arc<MemoryPool>,
    pub(super) stream: &'a Stream,
}

impl Finished<'_> {
    fn args(&self) -> ColumnFactsArgs {
        ColumnFactsArgs {
            data: self.data.ptr(),
            validity: self.validity.map_or(DevicePtr::NULL, DeviceBuffer::ptr),
            out: DevicePtr::NULL,
            picked: DevicePtr::NULL,
            rows: self.rows as u64,
            base: self.base as u64,
            least: 0,
            span: 0,
            bound: 0,
            width: self.width as u32,
            precision: PRECISION,
        }
    }

    fn launch(&self, kernel: &Kernel, items: u64, args: &ColumnFactsArgs) -> Result<()> {
        self.launch_with(kernel, items, 0, args)
    }

    fn launch_with(
        &self,
        kernel: &Kernel,
        items: u64,
        shared_bytes: usize,
        args: &ColumnFactsArgs,
    ) -> Result<()> {
        let device = self.pool.device();
        let resident = device.info().multiprocessors.max(1) * BLOCKS;
        let needed = u32::try_from(items.div_ceil(BLOCK.into())).unwrap_or(u32::MAX);
        let config = LaunchConfig {
            grid: needed.clamp(1, resident),
            block: BLOCK,
            shared_bytes,
        };
        // SAFETY: the column's buffers have all rows, as their owner says; the output is what each caller below has
        // allocated for its kernel.
        unsafe { device.launch(self.stream, kernel, config, args.as_bytes()) }
    }

    /// Zeroed memory for what a kernel finds.
    fn scratch(&self, bytes: usize) -> Result<DeviceBuffer> {
        let purpose = "facts about a column";
        let buffer = self.pool.allocate_for(self.stream, bytes, purpose)?;
        let buffer = buffer.ordered_by(self.stream);
        buffer.fill(self.stream, 0)?;
        Ok(buffer)
    }

    /// Do the codes never descend, and do they all ascend? False both without rows and with NULLs.
    pub(super) fn order(&self) -> Result<(bool, bool)> {
        if self.rows == 0 || self.validity.is_some() {
            return Ok((false, false));
        }
        let out = self.scratch(4)?;
        let args = ColumnFactsArgs {
            out: out.ptr(),
            ..self.args()
        };
        self.launch(&self.kernels.order, self.rows as u64, &args)?;
        let found = out.download_values::<u32>(self.stream, 0, 1)?[0];
        Ok((found & 1 == 0, found == 0))
    }

    /// How many values differ, by the method that the host takes for a column whose values are expected in `range`, and which, as far
    /// as a bitmap tells.
    pub(super) fn count(&self, range: Option<(i128, i128)>) -> Result<(Count, Option<Bitmap>)> {
        let Some((least, span)) = bitmap_span(range, self.rows) else {
            let out = self.scratch(4 << PRECISION)?;
            let args = ColumnFactsArgs {
                out: out.ptr(),
                ..self.args()
            };
            self.launch(&self.kernels.registers, self.rows as u64, &args)?;
            let registers = out.download_values::<u32>(self.stream, 0, 1 << PRECISION)?;
            let registers: Vec<u8> = registers.into_iter().map(|rank| rank as u8).collect();
            let count = Count::Estimate(estimate(&registers).min(self.rows as u64));
            return Ok((count, None));
        };
        let words = span / 32 + 1;
        let bitmap = self.scratch(words as usize * 4)?;
        let args = ColumnFactsArgs {
            out: bitmap.ptr(),
            least: least as u64,
            span,
            ..self.args()
        };
        let rows = self.rows as u64;
        match words <= FEW_WORDS {
            true => self.launch_with(
                &self.kernels.few_values,
                rows,
                FEW_WORDS as usize * 4,
                &args,
            )?,
            false => self.launch(&self.kernels.values, rows, &args)?,
        }
        let out = self.scratch(8)?;
        let args = ColumnFactsArgs {
            data: bitmap.ptr(),
            out: out.ptr(),
            rows: words,
            ..self.args()
        };
        self.launch(&self.kernels.bits, words, &args)?;
        let count = out.download_values::<u64>(self.stream, 0, 1)?[0];
        let values = Bitmap {
            bits: bitmap,
            words,
            least: least as u64,
        };
        Ok((Count::Exact(count), Some(values)))
    }

    /// The smallest hashes of the values, of which about `distinct` differ: those of a bitmap, where there is one.
    pub(super) fn sketch(&self, distinct: u64, values: Option<&Bitmap>) -> Result<Sketch> {
        /// Hashes to expect below the bound: more than a sketch keeps, by six standard deviations.
        const EXPECTED: u128 = HASHES as u128 * 5 / 4;
        let mut complete = distinct <= 2 * HASHES as u64;
        let mut bound = match complete {
            true => u64::MAX,
            false => ((EXPECTED << 64) / u128::from(distinct)) as u64,
        };
        for _ in 0..TRIES {
            let set = self.scratch((SLOTS + 1) * 8)?;
            let args = ColumnFactsArgs {
                out: set.ptr(),
                span: SLOTS as u64 - 1,
                bound,
                ..self.args()
            };
            match values {
                None => self.launch(&self.kernels.hashes, self.rows as u64, &args)?,
                Some(values) => {
                    let args = ColumnFactsArgs {
                        data: values.bits.ptr(),
                        rows: values.words,
                        least: values.least,
                        ..args
                    };
                    self.launch(&self.kernels.bitmap_hashes, values.words, &args)?;
                }
            }
            let words = set.download_values::<u64>(self.stream, 0, SLOTS + 1)?;
            let hashes: Vec<u64> = words[..SLOTS].iter().copied().filter(|h| *h != 0).collect();
            // The number of distinct values was an estimate.
            if words[SLOTS] > 0 {
                (bound, complete) = (bound / 4, false);
            } else if !complete && hashes.len() < HASHES {
                complete = bound > u64::MAX / 4;
                bound = bound.saturating_mul(4);
            } else {
                return Ok(Sketch::of_hashes(hashes, complete));
            }
        }
        Ok(Sketch::default())
    }

    /// The values of the rows of a sample.
    pub(super) fn sample(&self) -> Result<SampledValues> {
        let rows: Vec<u64> = sampled_rows(self.rows, 0..self.rows)
            .map(|row| row as u64)
            .collect();
        let (codes, valid) = self.codes_of(&rows)?;
        let base = i128::from(self.base);
        let value = |(code, valid): (&u64, &bool)| valid.then(|| base + i128::from(*code));
        Ok(SampledValues {
            rows: self.rows,
            values: codes.iter().zip(&valid).map(value).collect(),
        })
    }

    /// The codes of these rows, and which of them are not NULL.
    fn codes_of(&self, rows: &[u64]) -> Result<(Vec<u64>, Vec<bool>)> {
        if rows.is_empty() {
            return Ok((Vec::new(), Vec::new()));
        }
        let count = rows.len();
        let picked = self.pool.allocate(count * 8, "facts about a column")?;
        picked.upload_values(self.stream, 0, rows)?;
        let out = self.scratch(count * 16)?;
        let args = ColumnFactsArgs {
            out: out.ptr(),
            picked: picked.ptr(),
            span: count as u64,
            ..self.args()
        };
        self.launch(&self.kernels.sample, count as u64, &args)?;
        let mut codes = out.download_values::<u64>(self.stream, 0, 2 * count)?;
        let valid = codes.split_off(count);
        Ok((codes, valid.into_iter().map(|valid| valid != 0).collect()))
    }
}

/// What is kept of strings that lie as bytes: `offsets` are the column's, as codes of eight bytes, with the validity of its rows. `None`
/// where they are very long.
pub(super) fn sample_strings(
    offsets: &Finished<'_>,
    bytes: &DeviceBuffer,
    data_type: &DataType,
) -> Result<Option<Sample>> {
    /// Bytes of strings that are kept at most.
    const MOST: u64 = 4 << 20;
    const PURPOSE: &str = "facts about a column";
    let ends = |row: usize| [row as u64, row as u64 + 1];
    let rows: Vec<u64> = kept_rows(offsets.rows).flat_map(ends).collect();
    let (ends, valid) = offsets.codes_of(&rows)?;
    let mut picked: Vec<u64> = ends.iter().step_by(2).copied().collect();
    let count = picked.len();
    let mut total = 0;
    for string in ends.as_chunks::<2>().0 {
        picked.push(total);
        total += string[1].saturating_sub(string[0]);
    }
    picked.push(total);
    if total > MOST {
        return Ok(None);
    }
    let places = offsets.pool.allocate(picked.len() * 8, PURPOSE)?;
    places.upload_values(offsets.stream, 0, &picked)?;
    let out = offsets.scratch(total.max(1) as usize)?;
    let args = ColumnFactsArgs {
        data: bytes.ptr(),
        out: out.ptr(),
        picked: places.ptr(),
        span: count as u64,
        ..offsets.args()
    };
    let kernel = &offsets.kernels.sample_bytes;
    offsets.launch(kernel, count as u64 * u64::from(WARP), &args)?;
    let text = out.download_values::<u8>(offsets.stream, 0, total as usize)?;
    let ends = picked[count..].iter().map(|place| *place as usize);
    let ends: Vec<usize> = ends.collect();
    let strings: Vec<&[u8]> = ends
        .windows(2)
        .map(|ends| &text[ends[0]..ends[1]])
        .collect();
    // What is no UTF-8 is an error of those who read it.
    let Ok(strings) = string_array(value_type(data_type), &strings, PURPOSE) else {
        return Ok(None);
    };
    let valid = valid.iter().step_by(2);
    Ok(Sample::of_strings(offsets.rows, valid.copied(), strings))
}

/// Order, distinct values, sketch and sample, as an assembler finds them of the same rows.
pub(super) fn finish_statistics(
    finished: &Finished<'_>,
    encoding: &Encoding,
    expected: Option<(i128, i128)>,
    statistics: &mut ColumnStatistics,
) -> Result<()> {
    let valid = finished.rows - statistics.null_count;
    match encoding {
        Encoding::Dictionary { dictionary, .. } => {
            statistics.note_strings(&finished.sample()?, dictionary);
            statistics.sorted = statistics.distinct > Some(0) && finished.order()?.0;
            return Ok(());
        }
        Encoding::Integer { .. } => {
            let (sorted, strict) = finished.order()?;
            (statistics.sorted, statistics.unique) = (sorted, strict);
        }
        _ => {}
    }
    let (counted, values) = match statistics.unique {
        true => (None, None),
        false => {
            let (count, values) = finished.count(expected)?;
            (Some(count), values)
        }
    };
    let distinct = match counted {
        None => {
            statistics.distinct = Some(valid);
            statistics.distinct_estimate = Some(valid as u64);
            valid as u64
        }
        Some(Count::Exact(count)) => {
            statistics.distinct = Some(count as usize);
            statistics.distinct_estimate = Some(count);
            statistics.unique = valid > 0 && count == valid as u64;
            count
        }
        Some(Count::Estimate(count)) => {
            statistics.distinct_estimate = Some(count);
            count
        }
    };
    let sketch = finished.sketch(distinct, values.as_ref())?;
    let width = match encoding {
        Encoding::Float { width } => Some(*width),
        _ => None,
    };
    statistics.note_numbers(sketch, &finished.sample()?, width);
    Ok(())
}
