//! The arguments of kernels that no run changes: addresses of lookup tables and of columns on the device, and what each kernel
//! goes over.

use std::cell::RefCell;
use std::sync::Arc;

use crate::codegen::{ColumnPart, KernelProgram, Program, ResultLayout, Slot, SourceRows};
use crate::column::Encoding;
use crate::device::Kernel;
use crate::error::{GpuError, Result};
use crate::exec::prepare::covering::Covering;
use crate::exec::prepare::kernel::{PreparedKernel, PreparedSource};
use crate::exec::prepare::places::{Field, Template};
use crate::exec::prepare::shapes::Shape;
use crate::exec::prepare::streamed::StreamedPart;
use crate::graph::Graph;
use crate::memory::DeviceBuffer;
use crate::runtime::Runtime;
use crate::tables::{LoadProgress, LoadedTable};

/// The scan whose table is still coming.
#[derive(Debug, Clone)]
pub(in crate::exec) struct OverlapScan {
    /// Its number.
    pub(in crate::exec) scan: usize,
    pub(in crate::exec) arrival: Arc<LoadProgress>,
}

/// What the kernels of one program have in common.
pub(in crate::exec) struct Builder<'a> {
    pub(in crate::exec) program: &'a Program,
    pub(in crate::exec) graph: &'a Graph,
    pub(in crate::exec) shapes: &'a [Shape],
    pub(in crate::exec) tables: &'a [Arc<LoadedTable>],
    pub(in crate::exec) overlap: Option<&'a OverlapScan>,
    pub(in crate::exec) runtime: &'a Runtime,
    pub(in crate::exec) lookups: Option<&'a DeviceBuffer>,
    pub(in crate::exec) offsets: &'a [Vec<usize>],
}

impl Builder<'_> {
    /// A kernel with its arguments, which is the `number`-th of the program.
    pub(in crate::exec) fn kernel(
        &self,
        kernel: &KernelProgram,
        number: usize,
        handle: Kernel,
    ) -> Result<PreparedKernel> {
        let streamed = RefCell::default();
        let template = Template::new(&kernel.arguments, |slot| {
            self.resolve(kernel, number, slot, &streamed)
        })?;
        let source = match kernel.source_rows {
            SourceRows::Scan(scan) => {
                let table = self.tables.get(scan).ok_or_else(|| {
                    GpuError::Internal(format!("a kernel scans a table {scan} of none"))
                })?;
                PreparedSource::Exactly(table.rows as u64)
            }
            SourceRows::Rows(result) | SourceRows::Picked { by: result, .. } => {
                PreparedSource::Rows(result)
            }
            SourceRows::Slots(result) => PreparedSource::Slots(result),
            SourceRows::Pairs(result) => PreparedSource::Pairs(result),
            SourceRows::Domain(result) => match self.program.results.get(result) {
                Some(ResultLayout::Index(index)) => PreparedSource::Exactly(index.domain),
                _ => return Err(GpuError::Internal("a domain of no index".into())),
            },
            SourceRows::One => PreparedSource::Exactly(1),
        };
        let arrival = match (self.overlap, kernel.source_rows) {
            (Some(overlap), SourceRows::Scan(scan)) if scan == overlap.scan => {
                Some(Arc::clone(&overlap.arrival))
            }
            _ => None,
        };
        // Columns that are not in the cache yet are nobody's but this run's.
        let covering = kernel.into.filter(|_| arrival.is_none());
        let device = self.runtime.device();
        let resident =
            device.blocks_per_multiprocessor(&handle, kernel.block_threads, kernel.shared_bytes)?;
        let multiprocessors = u64::from(device.info().multiprocessors).max(1);
        Ok(PreparedKernel {
            kernel: handle,
            template,
            shared_bytes: kernel.shared_bytes,
            block_threads: kernel.block_threads,
            most_blocks: u64::from(resident.max(1)) * multiprocessors,
            tile_rows: kernel.tile_rows.max(1),
            tree: kernel.tree,
            in_place: kernel.in_place,
            streamed: streamed.into_inner(),
            arrival,
            covering: covering.and_then(|into| {
                Covering::of(self.graph, into, self.tables, self.shapes.get(into)?)
            }),
            source,
            into: kernel.into,
            label: kernel.label.clone(),
        })
    }

    /// Addresses of what all runs share, and places of columns that come in strides, which are added to `streamed`.
    fn resolve(
        &self,
        kernel: &KernelProgram,
        number: usize,
        slot: Slot,
        streamed: &RefCell<Vec<StreamedPart>>,
    ) -> Result<Option<Field>> {
        let (column, part, scanned) = match slot {
            Slot::Control
            | Slot::SourceRows
            | Slot::FirstRow
            | Slot::Tree
            | Slot::TreeBuffers
            | Slot::StopWord
            | Slot::StopNumber
            | Slot::Skip
            | Slot::Fetch
            | Slot::Capacity(_)
            | Slot::TableSlots(_)
            | Slot::Pairs(_)
            | Slot::DistinctSlots(..)
            | Slot::Result(..) => return Ok(Some(Field::Slot(slot))),
            Slot::Lookup(table) | Slot::List(table) => {
                let offset = self.offsets.get(number).and_then(|o| o.get(table).copied());
                return match (self.lookups, offset) {
                    (Some(buffer), Some(offset)) => {
                        Ok(Some(Field::Constant(buffer.ptr_at(offset)?.0)))
                    }
                    _ => Ok(None),
                };
            }
            Slot::Scan(index, part) => {
                let (scan, scanned) = match kernel.source_rows {
                    SourceRows::Scan(scan) => (Some(scan), true),
                    // Rows here and there: read where they lie, be it in host memory.
                    SourceRows::Picked { scan, .. } => (scan, false),
                    _ => (None, false),
                };
                let table = scan.and_then(|scan| self.tables.get(scan));
                let column = table.and_then(|table| table.columns.get(index));
                (column, part, scanned)
            }
            Slot::Base(base, part) => (self.program.bases.get(base), part, false),
        };
        let Some(column) = column else {
            return Ok(None);
        };
        let buffer = match part {
            ColumnPart::Data => Some(&column.data),
            ColumnPart::Validity => column.validity.as_ref(),
            ColumnPart::Offsets => match &column.encoding {
                Encoding::Bytes { offsets } => Some(offsets),
                _ => None,
            },
        };
        let Some(buffer) = buffer else {
            return Ok(None);
        };
        match StreamedPart::of(column, part).filter(|_| scanned) {
            Some(part) => {
                let mut streamed = streamed.borrow_mut();
                streamed.push(part);
                Ok(Some(Field::Streamed(streamed.len() - 1)))
            }
            None => Ok(Some(Field::Constant(buffer.ptr().0))),
        }
    }
}
