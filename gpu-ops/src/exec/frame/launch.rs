//! Launches of generated kernels: their arguments, strides of columns in host memory, and repeats until what comes out has
//! room.

use std::time::Instant;

use crate::codegen::{ControlWord, FULL_SET, Slot};
use crate::device::LaunchConfig;
use crate::error::{GpuError, Result};
use crate::exec::frame::control::Control;
use crate::exec::frame::run::{Cut, MOST_ATTEMPTS, Run};
use crate::exec::frame::trees::{TreeMemory, blocks_of};
use crate::exec::portions::each::{Turn, over_portions};
use crate::exec::portions::strides::{Scan, Span, Stride};
use crate::exec::prepare::kernel::{PreparedKernel, PreparedSource};
use crate::exec::prepare::shapes::Shape;
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

    /// The strides in which a kernel goes over a table whose rows are too many for a side of a join, wherever its columns lie; `None`
    /// where one is all.
    pub(in crate::exec) fn side_strides<'k>(
        &self,
        kernel: &'k PreparedKernel,
        into: ResultId,
    ) -> Option<Scan<'k>> {
        let in_place = || match kernel.source {
            PreparedSource::Exactly(all) if kernel.goes_in_strides() => {
                let least = kernel.stride_rows();
                let rows = self.frame.side_stride_rows(into) / least * least;
                Some(Scan::in_place(all, rows.max(least)))
            }
            _ => None,
        };
        let scan = self.scan(kernel).or_else(in_place)?;
        (scan.count() > 1).then_some(scan)
    }

    /// The scan by which a kernel goes over `rows` rows: in strides where its columns, or the rows of the table, come so.
    fn in_turn<'k>(&self, kernel: &'k PreparedKernel, rows: u64) -> Scan<'k> {
        let coming = || kernel.coming();
        let scan = self.scan(kernel).or_else(coming);
        scan.unwrap_or_else(|| Scan::whole(rows))
    }

    /// Run `each` over the strides of a scan; the next ones come meanwhile, as far as there are slots and their rows have come.
    pub(in crate::exec) fn over_strides(
        &mut self,
        kernel: &PreparedKernel,
        scan: Scan<'_>,
        mut each: impl FnMut(&mut Self, &Stride) -> Result<Turn<()>>,
    ) -> Result<()> {
        let copied = self.frame.strides.as_ref();
        let depth = match copied.filter(|_| !scan.is_in_place()) {
            Some(strides) => strides.depth(),
            None => 0,
        };
        over_portions(
            self,
            (scan.count(), depth),
            |run, number, ahead| run.stage_stride(kernel, &scan, number, ahead),
            |run, number, stride| {
                let Some(stride) = stride else {
                    return Err(GpuError::Internal(format!("stride {number} did not come")));
                };
                if let Some(come) = &stride.come {
                    let device = run.frame.runtime.device();
                    device.wait_event(run.frame.stream, come)?;
                }
                Ok(match each(run, &stride)? {
                    Turn::Next => Turn::Next,
                    Turn::Again(()) => Turn::Again(stride),
                    Turn::Restart => Turn::Restart,
                })
            },
        )
    }

    /// Queue the copies of a stride where its columns lie in host memory; one that is to come `ahead` of its turn comes if all of
    /// its rows have.
    fn stage_stride(
        &mut self,
        kernel: &PreparedKernel,
        scan: &Scan<'_>,
        number: u64,
        ahead: bool,
    ) -> Result<Option<Stride>> {
        let (first, end) = scan.bounds(number);
        if scan.is_in_place() {
            return Ok(Some(Stride {
                number,
                span: Span::some(kernel, first..end),
                come: None,
            }));
        }
        if ahead && !scan.has_come(number) {
            return Ok(None);
        }
        self.await_rows(kernel, end)?;
        let Some(strides) = &mut self.frame.strides else {
            return Err(GpuError::Internal("strides without memory".into()));
        };
        let device = self.frame.runtime.device();
        strides.stage(scan, number, device.as_ref()).map(Some)
    }

    /// Launch over one stride, which has come for what is queued from now on.
    pub(in crate::exec) fn launch_stride(
        &mut self,
        kernel: &PreparedKernel,
        stride: &Stride,
    ) -> Result<()> {
        self.launch_over(kernel, &stride.span, (0, 0))?;
        match &mut self.frame.strides {
            Some(strides) if stride.come.is_some() => {
                strides.done(stride.number, self.frame.runtime, self.frame.stream)
            }
            _ => Ok(()),
        }
    }

    /// Launch over all rows, waiting for nothing.
    pub(in crate::exec) fn launch_all(&mut self, kernel: &PreparedKernel, rows: u64) -> Result<()> {
        let scan = self.in_turn(kernel, rows);
        self.over_strides(kernel, scan, |run, stride| {
            run.launch_stride(kernel, stride)?;
            Ok(Turn::Next)
        })
    }

    /// Launch until there is room for what comes out; `before` rows are there already. Of a scan in strides, a stride
    /// whose rows find no room is repeated; where groups find none, all are.
    pub(in crate::exec) fn attempt(
        &mut self,
        kernel: &PreparedKernel,
        into: ResultId,
        rows: u64,
        mut before: u64,
    ) -> Result<()> {
        let shape = &self.frame.prepared.shapes[into];
        // Rows of a stride have been added to groups of earlier ones: these begin anew with it.
        let anew = matches!(shape, Shape::Groups { .. });
        let scan = self.in_turn(kernel, rows);
        let strides = scan.count();
        let mut attempts = 0;
        self.over_strides(kernel, scan, |run, stride| {
            if attempts == MOST_ATTEMPTS {
                return Err(run.frame.hopeless(into));
            }
            run.launch_stride(kernel, stride)?;
            let frame = &mut run.frame;
            let words = frame.control.read(frame.stream)?;
            let overflow = Control::word(&words, into, ControlWord::Overflow);
            if overflow != 0 {
                let full_sets = overflow == FULL_SET;
                frame.check_growth(into, full_sets)?;
                frame.grow_groups(into, full_sets)?;
                attempts += 1;
                return Ok(Turn::Restart);
            }
            let count = Control::word(&words, into, ControlWord::Count);
            let done = stride.number + 1;
            if shape.appends() && count > frame.results[into].sizes.capacity {
                // As many rows of every stride as of those so far.
                let all = (count / done).saturating_mul(strides);
                if anew {
                    frame.check_growth(into, false)?;
                    before = 0;
                }
                frame.make_room(into, count, all.max(count), before)?;
                let (control, stream) = (&frame.control, frame.stream);
                control.set(stream, into, ControlWord::Count, before)?;
                attempts += 1;
                return Ok(match anew {
                    true => Turn::Restart,
                    false => Turn::Again(()),
                });
            }
            before = count;
            if done == strides {
                let result = &mut frame.results[into];
                result.rows = match shape.appends() {
                    true => count,
                    false => result.sizes.capacity,
                };
                if !shape.appends() {
                    frame.check_unique(&words, into)?;
                }
                frame.count_groups(into)?;
            }
            Ok(Turn::Next)
        })
    }

    /// Launch over one stride whose rows, as there are at most so many, find room.
    pub(in crate::exec) fn fill_stride(
        &mut self,
        kernel: &PreparedKernel,
        into: ResultId,
        stride: &Stride,
    ) -> Result<()> {
        self.schedule.piecewise = true;
        let filled = self.launch_stride(kernel, stride);
        let filled = filled.and_then(|()| self.check_filled(kernel, into));
        self.schedule.piecewise = false;
        filled
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
        match &self.frame.prepared.overlap {
            None => Ok(()),
            Some(overlap) => self
                .await_arrival(&overlap.arrival, overlap.rows)
                .map(|_| ()),
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
