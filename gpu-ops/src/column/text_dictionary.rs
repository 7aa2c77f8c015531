//! The dictionary of a column of strings that lie as bytes on a device, built there: rows are entered into a table by their
//! strings, one string of each kind is sorted, by the device where there are many, and every row gets the rank of its own.

use std::hash::BuildHasher;
use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::datatypes::DataType;
use warpline_cuda::KernelArgs;
use warpline_cuda::kernels::{ColumnTextArgs, GatherStringsArgs};

use super::StringPolicy;
use super::build::{Merged, sorted_array, string_array};
use super::distinct::{PRECISION, estimate};
use super::interner::Interner;
use super::native::{unsigned_width, value_type};
use super::pools::ColumnPools;
use super::preallocated::PreallocatedBuffer;
use super::string_sorter::{DistinctStrings, SortedStrings, StringSorter};
use super::types::Dictionary;
use crate::device::{Device, DevicePtr, Kernel, LaunchConfig, Module, Stream};
use crate::error::{GpuError, Result};
use crate::memory::DeviceBuffer;

/// Threads of a block.
const BLOCK: u32 = 256;
/// Blocks of a multiprocessor.
const BLOCKS: u32 = 8;
/// Fewest slots of a table.
const LEAST_SLOTS: usize = 1 << 10;
/// Fewer strings are sorted by the host, which takes no longer than the device waits for it. Builds for tests have columns of their
/// size sorted on the device.
const LEAST_SORTED: usize = if cfg!(debug_assertions) {
    1 << 8
} else {
    1 << 16
};
/// Estimates of how many strings differ are off by less than a tenth.
const OFF: f64 = 0.1;

/// The compiled kernels.
#[derive(Debug)]
pub(crate) struct TextKernels {
    registers: Kernel,
    slots: Kernel,
    number: Kernel,
    codes: Kernel,
    lengths: Kernel,
    copy: Kernel,
}

impl TextKernels {
    /// Those of the compiled modules ([`warpline_cuda::kernels::column_texts`], [`warpline_cuda::kernels::strings_gather`]).
    ///
    /// # Errors
    /// [`GpuError::Device`].
    pub(crate) fn of(device: &dyn Device, texts: &Module, gather: &Module) -> Result<Self> {
        Ok(Self {
            registers: device.kernel(texts, "text_registers")?,
            slots: device.kernel(texts, "text_slots")?,
            number: device.kernel(texts, "text_number")?,
            codes: device.kernel(texts, "text_codes")?,
            lengths: device.kernel(gather, "string_lengths")?,
            copy: device.kernel(gather, "copy_strings")?,
        })
    }
}

/// A finished column of strings as bytes.
pub(super) struct Strings<'a> {
    pub(super) name: &'a str,
    pub(super) data_type: &'a DataType,
    pub(super) policy: StringPolicy,
    pub(super) rows: usize,
    /// Rows that are not NULL.
    pub(super) valid: usize,
    pub(super) offsets: &'a DeviceBuffer,
    pub(super) data: &'a DeviceBuffer,
    pub(super) validity: Option<&'a DeviceBuffer>,
    pub(super) kernels: &'a TextKernels,
    /// Sorts many of them.
    pub(super) sorter: Option<&'a dyn StringSorter>,
    pub(super) home: &'a ColumnPools<'a>,
    pub(super) stream: &'a Stream,
}

/// A table of all strings: a slot for each that differs.
struct Table {
    /// The slot of each row, …
    codes: DeviceBuffer,
    /// … the number of each slot, …
    numbers: DeviceBuffer,
    /// … and a row of each number.
    picked: DeviceBuffer,
    count: usize,
}

impl Strings<'_> {
    /// The sorted dictionary and the codes in it; `None` where the policy wants bytes.
    ///
    /// # Errors
    /// [`GpuError::OutOfDeviceMemory`], [`GpuError::Device`]; [`GpuError::Unsupported`] when the dictionary outgrows its type.
    pub(super) fn dictionary(&self) -> Result<Option<(Dictionary, Arc<DeviceBuffer>)>> {
        let rows = u32::try_from(self.rows)
            .ok()
            .filter(|rows| *rows < u32::MAX);
        if self.policy == StringPolicy::AlwaysBytes || rows.is_none() {
            return Ok(None);
        }
        let likely = self.estimate()?;
        let least = (likely as f64 * (1.0 - OFF)) as usize;
        if !self.policy.repeats(least, self.valid) {
            return Ok(None);
        }
        let table = self.table(likely)?;
        if !self.policy.repeats(table.count, self.valid) {
            return Ok(None);
        }
        let (values, ranks) = match self.sorted(&table)? {
            Some(sorted) => sorted,
            None => self.sorted_by_host(&table)?,
        };
        let width = usize::from(unsigned_width(values.len().saturating_sub(1) as u128));
        let out = PreallocatedBuffer::new(self.rows * width, self.name, self.home, self.stream)?;
        let args = ColumnTextArgs {
            codes: table.codes.ptr(),
            numbers: table.numbers.ptr(),
            ranks: ranks.ptr(),
            out: out.buffer().ptr(),
            width: width as u32,
            ..self.args()
        };
        self.launch(&self.kernels.codes, self.rows as u64, &args)?;
        Ok(Some((Dictionary { values }, out.keep())))
    }

    /// The strings of a table in order, and the place of each number among them, by the device; `None` where the host is better at
    /// it, or the device has no room for it.
    fn sorted(&self, table: &Table) -> Result<Option<(ArrayRef, DeviceBuffer)>> {
        let Some(sorter) = self.sorter.filter(|_| table.count >= LEAST_SORTED) else {
            return Ok(None);
        };
        let strings = DistinctStrings {
            offsets: self.offsets.ptr(),
            data: self.data.ptr(),
            rows: table.picked.ptr(),
            count: table.count as u64,
        };
        // SAFETY: the column is held by the caller; the rows are those that the table has picked, one of each string.
        let sorted = match unsafe { sorter.sorted(self.stream, &strings) } {
            Err(GpuError::OutOfDeviceMemory { .. }) => return Ok(None),
            sorted => sorted?,
        };
        let Some(SortedStrings {
            ranks,
            offsets,
            bytes,
        }) = sorted
        else {
            return Ok(None);
        };
        let offsets = offsets.download_values::<u64>(self.stream, 0, table.count + 1)?;
        let total = offsets.last().copied().unwrap_or(0) as usize;
        let bytes = bytes.download_values::<u8>(self.stream, 0, total)?;
        let values = sorted_array(value_type(self.data_type), offsets, bytes, self.name)?;
        Ok(Some((values, ranks)))
    }

    /// The same by the host.
    fn sorted_by_host(&self, table: &Table) -> Result<(ArrayRef, DeviceBuffer)> {
        let distinct = self.interned(&table.picked, table.count)?;
        let merged = Merged::new(vec![&distinct])?;
        let remaps = merged.remaps()?;
        let ranks = self.scratch(table.count.max(1) * 4)?;
        let remap = remaps.first().map_or(&[][..], Vec::as_slice);
        ranks.upload_values(self.stream, 0, remap)?;
        let values = string_array(value_type(self.data_type), &merged.values, self.name)?;
        Ok((values, ranks))
    }

    /// About how many strings differ.
    fn estimate(&self) -> Result<usize> {
        let counts = self.zeroed(4 << PRECISION)?;
        let args = ColumnTextArgs {
            counts: counts.ptr(),
            ..self.args()
        };
        self.launch(&self.kernels.registers, self.rows as u64, &args)?;
        let registers = counts.download_values::<u32>(self.stream, 0, 1 << PRECISION)?;
        let registers: Vec<u8> = registers.into_iter().map(|rank| rank as u8).collect();
        Ok((estimate(&registers) as usize).min(self.valid))
    }

    /// A table of strings of which about so many differ.
    fn table(&self, likely: usize) -> Result<Table> {
        let codes = self.scratch(self.rows * 4)?;
        let most = (2 * self.valid).next_power_of_two().max(LEAST_SLOTS);
        let mut slots = ((likely as f64 * 2.0 * (1.0 + OFF)) as usize).next_power_of_two();
        loop {
            slots = slots.clamp(LEAST_SLOTS, most);
            let buffer = self.zeroed(slots * 8)?;
            let counts = self.zeroed(8)?;
            let args = ColumnTextArgs {
                slots: buffer.ptr(),
                slot_mask: slots as u64 - 1,
                counts: counts.ptr(),
                codes: codes.ptr(),
                ..self.args()
            };
            self.launch(&self.kernels.slots, self.rows as u64, &args)?;
            let full = counts.download_values::<u32>(self.stream, 4, 1)?[0] > 0;
            if !full {
                return self.numbered(codes, &buffer, slots);
            }
            if slots == most {
                return Err(GpuError::Internal("a table of strings is full".into()));
            }
            slots *= 4;
        }
    }

    /// Number the slots in use.
    fn numbered(&self, codes: DeviceBuffer, slots: &DeviceBuffer, count: usize) -> Result<Table> {
        let numbers = self.scratch(count * 4)?;
        // No more than rows have a string.
        let picked = self.scratch(self.valid.min(count) * 4)?;
        let counts = self.zeroed(8)?;
        let args = ColumnTextArgs {
            slots: slots.ptr(),
            slot_mask: count as u64 - 1,
            counts: counts.ptr(),
            numbers: numbers.ptr(),
            picked: picked.ptr(),
            ..self.args()
        };
        self.launch(&self.kernels.number, count as u64, &args)?;
        let count = counts.download_values::<u32>(self.stream, 0, 1)?[0] as usize;
        Ok(Table {
            codes,
            numbers,
            picked,
            count,
        })
    }

    /// The strings of these rows, on the host.
    fn interned(&self, picked: &DeviceBuffer, count: usize) -> Result<Interner> {
        let lengths = self.scratch(count.max(1) * 4)?;
        let mut args = GatherStringsArgs {
            offsets: self.offsets.ptr(),
            data: self.data.ptr(),
            ids: picked.ptr(),
            valid: DevicePtr::NULL,
            lengths: lengths.ptr(),
            out_offsets: DevicePtr::NULL,
            out: DevicePtr::NULL,
            count: DevicePtr::NULL,
            most: count as u64,
            id_width: 4,
            lanes_log2: 0,
        };
        self.launch(&self.kernels.lengths, count as u64, &args)?;
        let lengths = lengths.download_values::<u32>(self.stream, 0, count)?;
        let mut end = 0;
        let ends = lengths.into_iter().map(|length| {
            end += length as usize;
            end
        });
        let ends: Vec<usize> = ends.collect();
        let total = ends.last().copied().unwrap_or(0);
        let begins = [0].iter().chain(&ends).map(|end| *end as u64);
        let begins: Vec<u64> = begins.collect();
        let out_offsets = self.scratch(begins.len() * 8)?;
        out_offsets.upload_values(self.stream, 0, &begins)?;
        // Words at the end are written whole only inside of strings.
        let out = self.scratch(total.max(1))?;
        let words = (total / count.max(1) / 8 + 1).next_power_of_two();
        args.out_offsets = out_offsets.ptr();
        args.out = out.ptr();
        args.lanes_log2 = words.ilog2().min(5);
        let lanes = (count as u64) << args.lanes_log2;
        self.launch(&self.kernels.copy, lanes, &args)?;
        let bytes = out.download_values::<u8>(self.stream, 0, total)?;
        Ok(Interner::of_distinct(bytes, ends))
    }

    fn args(&self) -> ColumnTextArgs {
        ColumnTextArgs {
            offsets: self.offsets.ptr(),
            data: self.data.ptr(),
            validity: self.validity.map_or(DevicePtr::NULL, DeviceBuffer::ptr),
            slots: DevicePtr::NULL,
            counts: DevicePtr::NULL,
            codes: DevicePtr::NULL,
            numbers: DevicePtr::NULL,
            picked: DevicePtr::NULL,
            ranks: DevicePtr::NULL,
            out: DevicePtr::NULL,
            rows: self.rows as u64,
            slot_mask: 0,
            seed: seed(),
            width: 0,
            precision: PRECISION,
        }
    }

    fn scratch(&self, bytes: usize) -> Result<DeviceBuffer> {
        let purpose = "a dictionary of strings";
        let buffer = self
            .home
            .device
            .allocate_for(self.stream, bytes.max(4), purpose)?;
        Ok(buffer.ordered_by(self.stream))
    }

    fn zeroed(&self, bytes: usize) -> Result<DeviceBuffer> {
        let buffer = self.scratch(bytes)?;
        buffer.fill(self.stream, 0)?;
        Ok(buffer)
    }

    fn launch(&self, kernel: &Kernel, items: u64, args: &impl KernelArgs) -> Result<()> {
        if items == 0 {
            return Ok(());
        }
        let device = self.home.device.device();
        let resident = device.info().multiprocessors.max(1) * BLOCKS;
        let needed = u32::try_from(items.div_ceil(BLOCK.into())).unwrap_or(u32::MAX);
        let config = LaunchConfig {
            grid: needed.clamp(1, resident),
            block: BLOCK,
            shared_bytes: 0,
        };
        // SAFETY: the column's buffers have all rows, as their owner says; the others are what the callers above have allocated
        // for the kernel, and live until the stream has been waited for or are ordered by it.
        unsafe { device.launch(self.stream, kernel, config, args.as_bytes()) }
    }
}

/// A number that files cannot know: the same in all of the process, since tables of one column are compared.
fn seed() -> u64 {
    static SEED: std::sync::OnceLock<u64> = std::sync::OnceLock::new();
    *SEED.get_or_init(|| std::hash::RandomState::new().hash_one(1u8))
}
