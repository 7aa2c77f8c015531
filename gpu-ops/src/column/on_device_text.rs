//! String columns whose rows came as codes of chunks' dictionaries: one dictionary of all, and the codes in it.

use std::sync::Arc;

use arrow::datatypes::DataType;
use warpline_cuda::KernelArgs;
use warpline_cuda::kernels::{ParquetRemapArgs, ParquetSpan};

use super::StringPolicy;
use super::build::{Merged, string_array};
use super::interner::Interner;
use super::native::{unsigned_width, value_type};
use super::on_device::{FinishKernels, launch};
use super::pools::ColumnPools;
use super::preallocated::PreallocatedBuffer;
use super::types::Dictionary;
use crate::device::{DevicePtr, Stream};
use crate::error::{GpuError, Result};
use crate::memory::DeviceBuffer;

/// The dictionary of a chunk, of which some strings are in use.
#[derive(Debug)]
pub(crate) struct UsedStrings {
    /// One after the other.
    pub(crate) bytes: Vec<u8>,
    /// End of each.
    pub(crate) ends: Vec<usize>,
    /// A bit each.
    pub(crate) used: Vec<u32>,
}

/// The strings of a chunk, and the place among them of each code that its rows have.
pub(super) struct TextChunk {
    pub(super) first: usize,
    pub(super) rows: usize,
    pub(super) interner: Interner,
    pub(super) numbers: Vec<u32>,
}

impl UsedStrings {
    /// Interned, those in use.
    pub(super) fn chunk(self, first: usize, rows: usize) -> Result<TextChunk> {
        let mut interner = Interner::new();
        let mut numbers = vec![0; self.ends.len()];
        let mut begin = 0;
        for (code, end) in self.ends.iter().enumerate() {
            let value = &self.bytes[begin..*end];
            begin = *end;
            let used = self
                .used
                .get(code / 32)
                .is_some_and(|word| word >> (code % 32) & 1 == 1);
            if used {
                numbers[code] = interner.intern(value).ok_or_else(|| {
                    GpuError::Unsupported(
                        "a dictionary of more than 4294967294 distinct strings".into(),
                    )
                })?;
            }
        }
        Ok(TextChunk {
            first,
            rows,
            interner,
            numbers,
        })
    }
}

/// A string column before its codes are those of one dictionary.
pub(super) struct Text<'a> {
    pub(super) name: &'a str,
    pub(super) data_type: &'a DataType,
    pub(super) policy: StringPolicy,
    pub(super) rows: usize,
    pub(super) codes: &'a DeviceBuffer,
    pub(super) validity: Option<&'a DeviceBuffer>,
}

impl Text<'_> {
    /// The sorted dictionary, and the codes in it; `None` where the policy wants bytes.
    pub(super) fn translate(
        &self,
        chunks: &[TextChunk],
        valid: usize,
        home: &ColumnPools<'_>,
        kernels: &FinishKernels,
        stream: &Stream,
    ) -> Result<Option<(Dictionary, Arc<DeviceBuffer>)>> {
        let merged = Merged::new(chunks.iter().map(|chunk| &chunk.interner).collect())?;
        if !self.policy.repeats(merged.values.len(), valid) {
            return Ok(None);
        }
        let width = usize::from(unsigned_width(merged.values.len().saturating_sub(1) as u128));
        let remaps = merged.remaps()?;
        let values = string_array(value_type(self.data_type), &merged.values, self.name)?;
        let data = PreallocatedBuffer::new(self.rows * width, self.name, home, stream)?;
        // One table for all chunks: a copy for each would cost as much as all of them.
        let mut codes: Vec<u32> = Vec::new();
        let mut spans: Vec<ParquetSpan> = Vec::with_capacity(chunks.len());
        for (chunk, remap) in chunks.iter().zip(&remaps) {
            spans.push(ParquetSpan {
                first: chunk.first as u64,
                end: (chunk.first + chunk.rows) as u64,
                remap: codes.len() as u64,
            });
            let numbers = chunk.numbers.iter();
            codes.extend(numbers.map(|number| remap.get(*number as usize).copied().unwrap_or(0)));
        }
        spans.sort_unstable_by_key(|span| span.first);
        let table = home.device.allocate(codes.len().max(1) * 4, self.name)?;
        table.upload_values(stream, 0, &codes)?;
        let spans_table = spans_table(&spans, home, stream)?;
        let args = ParquetRemapArgs {
            codes: self.codes.ptr(),
            remap: table.ptr(),
            spans: spans_table.ptr(),
            out: data.buffer().ptr(),
            validity: self.validity.map_or(DevicePtr::NULL, DeviceBuffer::ptr),
            rows: self.rows as u64,
            span_count: spans.len() as u32,
            width: width as u32,
        };
        // SAFETY: codes and output have all rows of the column; codes of rows that are not NULL are below the number of their
        // chunk's strings, which the kernels that wrote them have checked.
        unsafe { launch(home, stream, &kernels.remap, self.rows, &args)? };
        Ok(Some((Dictionary { values }, data.keep())))
    }
}

/// The spans, in device memory.
///
/// # Errors
/// [`GpuError::OutOfDeviceMemory`] and [`GpuError::Device`].
pub(super) fn spans_table(
    spans: &[ParquetSpan],
    home: &ColumnPools<'_>,
    stream: &Stream,
) -> Result<DeviceBuffer> {
    let bytes: Vec<u8> = spans
        .iter()
        .flat_map(|span| span.as_bytes().to_vec())
        .collect();
    let table = home
        .device
        .allocate(bytes.len().max(1), "chunks of a column")?;
    table.upload(stream, 0, &bytes)?;
    Ok(table)
}
