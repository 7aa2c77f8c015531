//! Launches of generated kernels: their arguments, strides of columns in host memory, and repeats until what comes out has
//! room.

use std::ops::Range;
use std::time::Instant;

use crate::codegen::{ControlWord, Slot};
use crate::device::LaunchConfig;
use crate::error::{GpuError, Result};
use crate::exec::frame::control::Control;
use crate::exec::frame::run::{Cut, MOST_ATTEMPTS, Run};
use crate::exec::frame::trees::{TreeMemory, blocks_of};
use crate::exec::portions::strides::{Scan, Span};
use crate::exec::prepare::kernel::PreparedKernel;
use crate::graph::ResultId;
use crate::tables::LoadProgress;
use crate::trace::Work;

impl Run<'_> {
    pub(in crate::exec) fn launch(
        &mut self,
        kernel: &PreparedKernel,
        rows: u64,
        cut: Cut,
    ) -> Result<()> {
        self.launch_over(kernel, &Span::whole(kernel, rows), cut)
    }

    fn launch_over(
        &mut self,
        kernel: &PreparedKernel,
        span: &Span,
        (skip, fetch): Cut,
    ) -> Result<()> {
        let complete = self.await_rows(kernel, span.end)?;
        self.reports.early_strides += u64::from(!complete);
        let blocks = blocks_of(kernel, span.rows());
        let tree = match &kernel.tree {
            Some(layout) => Some(TreeMemory::new(
                kernel,
                *layout,
                blocks,
                &mut self.frame.recycler,
                self.frame.stream,
            )?),
            None => None,
        };
        let stop = self.frame.stream.stop_place();
        let arguments = kernel.template.bytes(span.addresses(), |slot| match slot {
            Slot::Tree => tree.as_ref().map(TreeMemory::words),
            Slot::TreeBuffers => tree.as_ref().map(TreeMemory::buffers),
            Slot::StopWord => Some(stop.word.0),
            Slot::StopNumber => Some(stop.number),
            Slot::Control => Some(self.frame.control.address().0),
            Slot::SourceRows => Some(span.end),
            Slot::FirstRow => Some(span.first),
            Slot::Skip => Some(skip),
            Slot::Fetch => Some(fetch),
            Slot::Capacity(result) => {
                let first = self.first_place(kernel, span, result);
                self.frame
                    .results
                    .get(result)
                    .map(|r| r.sizes.capacity.saturating_add(first))
            }
            Slot::TableSlots(result) => self.frame.results.get(result).map(|r| r.sizes.slots),
            Slot::Pairs(result) => self.frame.results.get(result).map(|r| r.sizes.pairs),
            Slot::DistinctSlots(result, set) => {
                let sizes = &self.frame.results.get(result)?.sizes;
                sizes.distinct_slots.get(set).copied()
            }
            Slot::Result(result, part) => {
                let first = self.first_place(kernel, span, result);
                let address = self.frame.find(result, part)?.0;
                // The rows' own numbers bring a wrapped address back.
                Some(match first {
                    0 => address,
                    _ => address.wrapping_sub(first * self.frame.unit(result, part)?),
                })
            }
            // Bound already: no run changes them.
            Slot::Scan(..) | Slot::Base(..) | Slot::Lookup(_) | Slot::List(_) => None,
        })?;
        let config = LaunchConfig {
            grid: u32::try_from(blocks).unwrap_or(u32::MAX),
            block: kernel.block_threads,
            shared_bytes: kernel.shared_bytes,
        };
        self.reports.kernels += 1;
        // Held while the kernel runs, and for what it counts.
        if let Some(memory) = tree {
            // The strides of a step do not add up: of the last one there are counts.
            self.reports
                .trees
                .retain(|(step, _)| *step != self.schedule.step);
            self.reports.trees.push((self.schedule.step, memory));
        }
        // SAFETY: the bytes were laid out for this kernel; what they point to are results of this run with
        // the sizes that their layouts ask for, and columns and tables that the caller of the run holds. The
        // pool and the recycler hand out memory again only behind this launch.
        unsafe {
            self.frame.runtime.device().launch(
                self.frame.stream,
                &kernel.kernel,
                config,
                &arguments,
            )
        }
    }

    /// The number of the first row that a result has room for: of pieces that a kernel writes in place, that of the piece.
    fn first_place(&self, kernel: &PreparedKernel, span: &Span, result: ResultId) -> u64 {
        match kernel.in_place && kernel.into == Some(result) && self.schedule.piecewise {
            true => span.first,
            false => 0,
        }
    }

    /// The scan of a kernel whose columns come in strides.
    pub(in crate::exec) fn scan<'k>(&self, kernel: &'k PreparedKernel) -> Option<Scan<'k>> {
        let streamed = !kernel.streamed.is_empty();
        self.frame
            .strides
            .as_ref()
            .filter(|_| streamed)?
            .scan(kernel)
    }

    /// The scan of a kernel that goes over its source stride by stride: the columns, or the rows of the table, come so.
    fn in_turn<'k>(&self, kernel: &'k PreparedKernel) -> Option<Scan<'k>> {
        self.scan(kernel).or_else(|| kernel.coming())
    }

    /// Launch over one stride, whose bytes and those of the next ones are fetched where they lie in host memory; without a
    /// scan, over all rows.
    fn launch_stride(
        &mut self,
        kernel: &PreparedKernel,
        rows: u64,
        scan: Option<&mut Scan<'_>>,
        number: u64,
    ) -> Result<()> {
        let Some(scan) = scan else {
            return self.launch(kernel, rows, (0, 0));
        };
        let (first, end) = scan.bounds(number);
        if scan.is_in_place() {
            return self.launch_over(kernel, &Span::some(kernel, first..end), (0, 0));
        }
        self.await_rows(kernel, end)?;
        let Some(strides) = &mut self.frame.strides else {
            return Err(GpuError::Internal("strides without memory".into()));
        };
        let span = strides.fetch(scan, number, self.frame.runtime, self.frame.stream)?;
        self.launch_over(kernel, &span, (0, 0))?;
        match &mut self.frame.strides {
            Some(strides) => strides.done(number, self.frame.runtime, self.frame.stream),
            None => Ok(()),
        }
    }

    /// Launch over all rows, waiting for nothing.
    pub(in crate::exec) fn launch_all(&mut self, kernel: &PreparedKernel, rows: u64) -> Result<()> {
        let mut scan = self.in_turn(kernel);
        let strides = scan.as_ref().map_or(1, Scan::count);
        for number in 0..strides {
            self.launch_stride(kernel, rows, scan.as_mut(), number)?;
        }
        Ok(())
    }

    /// Launch until there is room for what comes out; `before` rows are there already. Of a scan in strides, a stride
    /// whose rows find no room is repeated; where groups find none, all are.
    pub(in crate::exec) fn attempt(
        &mut self,
        kernel: &PreparedKernel,
        into: ResultId,
        rows: u64,
        before: u64,
    ) -> Result<()> {
        let shape = &self.frame.prepared.shapes[into];
        let mut scan = self.in_turn(kernel);
        let strides = scan.as_ref().map_or(1, Scan::count);
        let (mut number, mut before) = (0, before);
        let mut attempts = 0;
        while attempts < MOST_ATTEMPTS {
            self.launch_stride(kernel, rows, scan.as_mut(), number)?;
            let words = self.frame.control.read(self.frame.stream)?;
            if Control::word(&words, into, ControlWord::Overflow) != 0 {
                self.frame.check_growth(into)?;
                self.frame.grow_groups(into)?;
                if let Some(scan) = &mut scan {
                    scan.restart();
                }
                number = 0;
                attempts += 1;
                continue;
            }
            let count = Control::word(&words, into, ControlWord::Count);
            if shape.appends() && count > self.frame.results[into].sizes.capacity {
                // As many rows of every stride as of those so far.
                let all = (count / (number + 1)).saturating_mul(strides);
                self.frame.make_room(into, count, all.max(count), before)?;
                self.frame
                    .control
                    .set(self.frame.stream, into, ControlWord::Count, before)?;
                attempts += 1;
                continue;
            }
            number += 1;
            if number < strides {
                before = count;
                continue;
            }
            if !shape.appends() {
                self.frame.results[into].rows = self.frame.results[into].sizes.capacity;
                return self.frame.check_unique(&words, into);
            }
            self.frame.results[into].rows = count;
            return Ok(());
        }
        Err(self.frame.hopeless(into))
    }

    /// Launch over some rows of a table; what comes of them, as there are at most so many, finds room.
    pub(in crate::exec) fn fill_rows(
        &mut self,
        kernel: &PreparedKernel,
        into: ResultId,
        rows: Range<u64>,
    ) -> Result<()> {
        self.launch_over(kernel, &Span::some(kernel, rows), (0, 0))?;
        self.check_filled(kernel, into)
    }

    /// Launch over one stride whose rows, as there are at most so many, find room.
    pub(in crate::exec) fn fill_stride(
        &mut self,
        kernel: &PreparedKernel,
        into: ResultId,
        scan: Option<&mut Scan<'_>>,
        number: u64,
    ) -> Result<()> {
        self.launch_stride(kernel, self.frame.bound(kernel.source), scan, number)?;
        self.check_filled(kernel, into)
    }

    /// How many rows a launch made, for which there must have been room.
    fn check_filled(&mut self, kernel: &PreparedKernel, into: ResultId) -> Result<()> {
        let words = self.frame.control.read(self.frame.stream)?;
        self.frame.results[into].rows = match kernel.in_place && self.schedule.piecewise {
            // All rows of the piece; the count is the number of the row behind them.
            true => self.frame.results[into].sizes.capacity,
            false => Control::word(&words, into, ControlWord::Count),
        };
        if self.frame.results[into].rows > self.frame.results[into].sizes.capacity {
            return Err(GpuError::Internal(format!(
                "a stride gave {} more rows than it has",
                self.frame.name(into)
            )));
        }
        Ok(())
    }

    /// Wait until all rows before row `end` of the table that a kernel goes over have come. False when others are still to come.
    pub(in crate::exec) fn await_rows(
        &mut self,
        kernel: &PreparedKernel,
        end: u64,
    ) -> Result<bool> {
        match &kernel.arrival {
            None => Ok(true),
            Some(arrival) => self.await_arrival(arrival, end),
        }
    }

    /// Wait until all tables have come.
    pub(in crate::exec) fn await_tables(&mut self) -> Result<()> {
        match &self.frame.prepared.early {
            None => Ok(()),
            Some(early) => self.await_arrival(&early.arrival, early.rows).map(|_| ()),
        }
    }

    fn await_arrival(&mut self, arrival: &LoadProgress, end: u64) -> Result<bool> {
        let begin = Instant::now();
        let trace = self.frame.runtime.trace().filter(|_| !arrival.has(end));
        let _waits = trace.map(|trace| trace.thread(Work::Wait, "rows to come"));
        let device = self.frame.runtime.device();
        let complete = arrival.wait(end, device.as_ref(), self.frame.stream)?;
        self.reports.waited += begin.elapsed();
        Ok(complete)
    }
}
