//! What a sort adds for window functions, once its rows are in order.

use crate::codegen::{Part, WindowFill};
use crate::error::{GpuError, Result};
use crate::exec::frame::run::Run;
use crate::exec::prepare::kernel::{PreparedSort, PreparedWindow};
use crate::exec::prepare::part_sizes::{BlockSizes, PartSize};
use crate::graph::WindowColumn;
use crate::primitives::{self, Frames, WindowNumbers};

impl Run<'_> {
    /// Fill the columns of a window, of the output of a sort that has `capacity` rows at most.
    pub(in crate::exec) fn window(
        &mut self,
        sort: &PreparedSort,
        window: &PreparedWindow,
        capacity: u64,
    ) -> Result<()> {
        let into = sort.into;
        let blocks = [BlockSizes {
            parts: vec![
                PartSize::new(Part::Partitions, 4, capacity + 1),
                PartSize::new(Part::Peers, 4, capacity + 1),
            ],
            fill: None,
            temporary: true,
        }];
        let frame = &mut self.frame;
        let purpose = frame.name(into);
        let store = frame.results[into].store.get_or_insert_default();
        store.extend(&blocks, &mut frame.recycler, frame.stream, purpose)?;
        let bound = frame.bound(window.marks.source);
        self.launch(&window.marks, bound, (0, capacity))?;

        let frame = &self.frame;
        let (runtime, stream, rows) = (frame.runtime, frame.stream, frame.count(into));
        let partitions = frame.address(into, Part::Partitions)?;
        let peers = frame.address(into, Part::Peers)?;
        // SAFETY: both have a word more than the result has room for rows.
        unsafe {
            primitives::exclusive_sum(runtime, stream, partitions, partitions, rows, false)?;
            primitives::exclusive_sum(runtime, stream, peers, peers, rows, false)?;
        }
        let mut numbers = WindowNumbers::default();
        for (i, fill) in window.fills.iter().enumerate() {
            let column = frame.address(into, Part::Column(window.first + i))?;
            match fill {
                WindowFill::Number(number) => {
                    let place = match number {
                        WindowColumn::Position => &mut numbers.position,
                        WindowColumn::PartitionStart => &mut numbers.partition_start,
                        WindowColumn::PartitionEnd => &mut numbers.partition_end,
                        WindowColumn::PeerStart => &mut numbers.peer_start,
                        WindowColumn::PeerEnd => &mut numbers.peer_end,
                        WindowColumn::DenseRank => &mut numbers.dense_rank,
                        WindowColumn::RunningCount(_)
                        | WindowColumn::Running(..)
                        | WindowColumn::Extreme(..)
                        | WindowColumn::Bound(_) => {
                            return Err(GpuError::Internal("a column that is no number".into()));
                        }
                    };
                    if !place.is_null() {
                        return Err(GpuError::Internal(
                            "a number that is asked for twice".into(),
                        ));
                    }
                    *place = column;
                }
                // Once numbers are known.
                WindowFill::Bound | WindowFill::Extreme(..) => {}
                WindowFill::Running(value, combine) => {
                    // SAFETY: the column has a value of this width a row, the sums were made above.
                    unsafe {
                        primitives::running(
                            runtime,
                            stream,
                            (*value, *combine),
                            column,
                            partitions,
                            rows,
                        )?;
                    }
                }
            }
        }
        // SAFETY: each column that is named has a word a row.
        unsafe {
            primitives::number_windows(runtime, stream, partitions, peers, numbers, rows)?;
        }
        if let Some(bounds) = &window.bounds {
            let bound = self.frame.bound(bounds.source);
            self.launch(bounds, bound, (0, capacity))?;
        }
        let mut extremes = 0;
        for (i, fill) in window.fills.iter().enumerate() {
            let WindowFill::Extreme(value, combine, edges) = fill else {
                continue;
            };
            let frame = &self.frame;
            let number = |column: usize| frame.address(into, Part::Column(window.first + column));
            let place = |wanted: WindowColumn| {
                let fills = window.fills.iter();
                let at = fills.enumerate().find_map(|(i, fill)| match fill {
                    WindowFill::Number(number) if *number == wanted => Some(i),
                    _ => None,
                });
                match at {
                    Some(at) => number(at),
                    None => Err(GpuError::Internal(format!("a frame without {wanted:?}"))),
                }
            };
            let frames = Frames {
                start: number(edges.0.column)?,
                start_plus: edges.0.plus,
                end: number(edges.1.column)?,
                end_plus: edges.1.plus,
                partition_start: place(WindowColumn::PartitionStart)?,
                partition_end: place(WindowColumn::PartitionEnd)?,
            };
            let column = number(i)?;
            // SAFETY: the columns have a value of this width, and a word each, a row.
            extremes += unsafe {
                primitives::frame_extremes(
                    frame.runtime,
                    frame.stream,
                    (*value, *combine),
                    column,
                    frames,
                    rows,
                )?
            };
        }
        // Two sums, two kernels of numbers, three a running value.
        let running = |fill: &&WindowFill| matches!(fill, WindowFill::Running(..));
        self.reports.kernels += extremes + 4 + 3 * window.fills.iter().filter(running).count();
        Ok(())
    }
}
