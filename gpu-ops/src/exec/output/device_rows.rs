//! The rows of a run where they lie on the device.

use std::fmt;

use crate::codegen::{ColumnLayout, Part};
use crate::device::{DevicePtr, Stream};
use crate::error::{GpuError, Result};
use crate::exec::frame::results::Frame;
use crate::exec::output::host::Host;
use crate::runtime::Runtime;

/// What a fragment computed, before its memory is used again.
pub struct DeviceRows<'a> {
    /// The device.
    pub runtime: &'a Runtime,
    /// Work on the rows is to be queued here.
    pub stream: &'a Stream,
    /// Rows.
    pub rows: u64,
    /// The columns, in the order of the fragment's schema.
    pub columns: Vec<DeviceValues<'a>>,
}

/// A column of codes.
#[derive(Debug)]
pub struct DeviceValues<'a> {
    /// The first code.
    pub data: DevicePtr,
    /// What they are.
    pub layout: &'a ColumnLayout,
}

impl fmt::Debug for DeviceRows<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeviceRows")
            .field("rows", &self.rows)
            .field("columns", &self.columns)
            .finish_non_exhaustive()
    }
}

impl<'a> DeviceRows<'a> {
    pub(in crate::exec) fn of(frame: &'a Frame<'_>, host: &Host) -> Result<Self> {
        if frame.written.is_some() {
            return Err(GpuError::Unsupported(
                "rows in a file among rows that stay on the device".into(),
            ));
        }
        let columns = frame.prepared.output.iter().enumerate();
        let columns = columns.map(|(number, column)| {
            if column.text.is_some() || column.list.is_some() {
                return Err(GpuError::Unsupported(
                    "strings by row, or lists, among rows that stay on the device".into(),
                ));
            }
            let (buffer, offset) = frame.output_part(Part::Column(number))?;
            Ok(DeviceValues {
                data: buffer.ptr().offset(offset as u64),
                layout: &column.layout,
            })
        });
        Ok(Self {
            runtime: frame.runtime,
            stream: frame.stream,
            rows: host.rows(frame),
            columns: columns.collect::<Result<_>>()?,
        })
    }
}
