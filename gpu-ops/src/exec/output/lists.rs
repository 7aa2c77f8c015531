//! Lists of values and strings made of them, for the rows of an output that refer to them.
//!
//! A reference names rows of a result that is still in device memory ([`crate::graph::OutputList`]). Only values that some row of the
//! output refers to come to the host: their numbers go to the device (4 bytes each), one gather a column brings them side by side.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, LargeStringBuilder, ListArray};
use arrow::buffer::{NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow::compute::{cast, concat};
use arrow::datatypes::DataType;

use crate::codegen::{ColumnLayout, Part};
use crate::column::map;
use crate::device::DevicePtr;
use crate::error::{GpuError, Result};
use crate::exec::frame::results::Frame;
use crate::exec::output::decode::{as_type, decode, numbers};
use crate::exec::output::text::{RowStrings, base_of};
use crate::exec::prepare::prepared::{ListValues, OutputColumn};
use crate::memory::DeviceBuffer;
use crate::primitives::{RowCount, gather};

/// Lists that are worth a thread.
const PART: usize = 1 << 13;
/// Bits of the number of the row behind the last, below that of the first.
const ROW_BITS: u32 = 32;

/// What the rows of an output refer to.
pub(super) struct References {
    /// Where the values of each row begin among those of all rows, and the end of the last.
    offsets: Vec<i32>,
    /// Rows of the result that has the values, in the order of the output's rows.
    values: Vec<u32>,
    nulls: Option<NullBuffer>,
}

impl References {
    /// Those of `rows` rows of a column with this layout; `valid` has a byte a row, 0 for NULL.
    ///
    /// # Errors
    /// [`GpuError::Unsupported`] for more than 2³¹ values.
    pub(super) fn of(
        layout: &ColumnLayout,
        codes: &[u8],
        valid: Option<&[u8]>,
        rows: usize,
    ) -> Result<Self> {
        let words = numbers(codes, layout)?;
        let known = |row: usize| valid.is_none_or(|valid| valid.get(row).is_some_and(|v| *v != 0));
        let mut offsets = Vec::with_capacity(rows + 1);
        let mut values = Vec::new();
        offsets.push(0);
        for (row, word) in words.iter().take(rows).enumerate() {
            if known(row) {
                values.extend((word >> ROW_BITS) as u32..*word as u32);
            }
            let end = i32::try_from(values.len());
            let end = end.map_err(|_| GpuError::Unsupported("lists of 2^31 values".into()))?;
            offsets.push(end);
        }
        let nulls: Option<NullBuffer> = valid.map(|_| (0..rows).map(known).collect());
        Ok(Self {
            offsets,
            values,
            nulls: nulls.filter(|nulls| nulls.null_count() > 0),
        })
    }

    /// The lists, or the strings made of them (`LargeUtf8`, whatever strings the output has). Waits for the device.
    ///
    /// # Errors
    /// [`GpuError::OutOfDeviceMemory`] for the gathered values, [`GpuError::Device`].
    pub(super) fn lists(self, list: &ListValues, frame: &Frame<'_>) -> Result<ArrayRef> {
        let values = self.gathered(list, frame)?;
        let schema = &frame.prepared.graph.schema;
        match (&list.of.delimiter, schema.field(list.of.output).data_type()) {
            (Some(delimiter), _) => self.joined(&values, delimiter),
            (None, DataType::List(field)) => {
                let values = as_type(values, field.data_type())?;
                let offsets = OffsetBuffer::new(ScalarBuffer::from(self.offsets));
                let lists = ListArray::try_new(Arc::clone(field), offsets, values, self.nulls)?;
                Ok(Arc::new(lists))
            }
            (None, other) => Err(GpuError::Internal(format!("a list as {other}"))),
        }
    }

    /// The values of all rows, one behind the other.
    fn gathered(&self, list: &ListValues, frame: &Frame<'_>) -> Result<ArrayRef> {
        let OutputColumn { layout, text, .. } = &list.value;
        let rows = self.values.len();
        let (runtime, stream) = (frame.runtime, frame.stream);
        let purpose = "values of lists";
        let map = runtime.working_memory(stream, (rows * 4).max(4), purpose)?;
        map.upload_values(stream, 0, &self.values)?;
        let brought = |part: Part, width: usize| -> Result<DeviceBuffer> {
            let out = runtime.working_memory(stream, (rows * width).max(width), purpose)?;
            let column: DevicePtr = frame.address(list.of.rows, part)?;
            let (map, to) = (map.ptr(), out.ptr());
            // SAFETY: the result is read to its end here, references name rows of it, the output has as many places.
            unsafe {
                let rows = RowCount::Known(rows as u64);
                gather(runtime, stream, column, map, to, width as u32, rows)?;
            }
            Ok(out)
        };
        let valid = match layout.nullable {
            true => Some(brought(Part::Valid(list.of.values), 1)?),
            false => None,
        };
        let codes = brought(Part::Column(list.of.values), layout.width.into())?;
        let known = match &valid {
            Some(valid) => Some(valid.download_values::<u8>(stream, 0, rows)?),
            None => None,
        };
        if let Some(base) = text {
            let flags = valid.as_ref().map(DeviceBuffer::ptr);
            return RowStrings {
                layout,
                base: &*base_of(base)?,
                numbers: (&codes, 0),
                valid: flags.zip(known.as_deref()),
                rows,
            }
            .gather(runtime, stream);
        }
        let bytes = rows * usize::from(layout.width);
        let codes = codes.download_values::<u8>(stream, 0, bytes)?;
        decode(layout, &codes, known.as_deref(), rows)
    }

    /// A string a row, of `values`, none of which is NULL, with `delimiter` between them.
    fn joined(&self, values: &ArrayRef, delimiter: &str) -> Result<ArrayRef> {
        let values = cast(values, &DataType::Utf8View)?;
        let rows = self.offsets.len() - 1;
        let parts = (0..rows.max(1)).step_by(PART);
        let parts: Vec<Range<usize>> = parts.map(|at| at..(at + PART).min(rows)).collect();
        let made = map(parts, |part| self.strings(&values, delimiter, part))?;
        match &made[..] {
            [all] => Ok(Arc::clone(all)),
            parts => Ok(concat(
                &parts.iter().map(|part| &**part).collect::<Vec<_>>(),
            )?),
        }
    }

    /// The strings of some rows.
    fn strings(&self, values: &ArrayRef, delimiter: &str, rows: Range<usize>) -> ArrayRef {
        let values = values.as_string_view();
        let mut made = LargeStringBuilder::with_capacity(rows.len(), 0);
        let mut text = String::new();
        for row in rows {
            if self.nulls.as_ref().is_some_and(|nulls| nulls.is_null(row)) {
                made.append_null();
                continue;
            }
            text.clear();
            for value in self.offsets[row]..self.offsets[row + 1] {
                if value > self.offsets[row] {
                    text.push_str(delimiter);
                }
                text.push_str(values.value(value as usize));
            }
            made.append_value(&text);
        }
        Arc::new(made.finish())
    }
}
