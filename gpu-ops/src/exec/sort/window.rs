//! What a sort adds for window functions, once its rows are in order.

use crate::codegen::{ControlWord, Part, WindowFill};
use crate::error::{GpuError, Result};
use crate::exec::frame::control::Control;
use crate::exec::frame::run::Run;
use crate::exec::prepare::kernel::{PreparedSort, PreparedWindow};
use crate::exec::prepare::part_sizes::{BlockSizes, PartSize};
use crate::graph::{Edge, FirstRows, WindowColumn};
use crate::primitives::{self, Frames, OrderedKeys, WindowNumbers};

impl Run<'_> {
    /// Order `input` rows and leave out of the order all but the first of each partition. How many stay: exact where sizes are read,
    /// else an upper bound.
    pub(in crate::exec) fn order_first_rows(
        &mut self,
        sort: &PreparedSort,
        input: u64,
        first: FirstRows,
    ) -> Result<u64> {
        /// Bytes of the number of a row.
        const NUMBER: usize = 4;
        let bytes = usize::try_from(input)
            .ok()
            .and_then(|rows| rows.checked_mul(NUMBER));
        let bytes =
            bytes.ok_or_else(|| GpuError::Unsupported(format!("an order of {input} rows")))?;
        let (runtime, stream) = (self.frame.runtime, self.frame.stream);
        let order = runtime.working_memory(stream, bytes, "an order of all rows")?;
        self.order_rows_at(sort, input, u64::MAX, order.ptr())?;
        let words = self.words(sort)?;
        let into = self.frame.address(sort.into, Part::Order)?;
        let kept = self
            .frame
            .control
            .word_address(sort.into, ControlWord::Pairs);
        let keys = OrderedKeys {
            words: &words,
            partition: &sort.partition,
            order: order.ptr(),
            rows: self.input_rows(sort, input),
        };
        let first = (first.numbering, first.most);
        // SAFETY: words and both orders have an element a row of the input, and the control words live as long as the run.
        unsafe { primitives::first_of_partitions(runtime, stream, &keys, first, (into, kept))? };
        // Marks and two sums at most, and the rows themselves.
        self.reports.kernels += 5;
        if !self.frame.reads_sizes() {
            return Ok(input);
        }
        let words = self.frame.control.read(stream)?;
        Ok(Control::word(&words, sort.into, ControlWord::Pairs))
    }

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
                        | WindowColumn::Squares(..)
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
                WindowFill::Bound | WindowFill::Extreme(..) | WindowFill::Squares(_) => {}
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
        let mut framed = 0;
        for (i, fill) in window.fills.iter().enumerate() {
            let (WindowFill::Extreme(_, _, edges) | WindowFill::Squares(edges)) = fill else {
                continue;
            };
            let frames = self.frames(sort, window, edges)?;
            let frame = &self.frame;
            let (runtime, stream) = (frame.runtime, frame.stream);
            let column = frame.address(into, Part::Column(window.first + i))?;
            // SAFETY: the columns have a value of this width, and a word each, a row.
            framed += unsafe {
                match fill {
                    WindowFill::Extreme(value, combine, _) => {
                        let of = (*value, *combine);
                        primitives::frame_extremes(runtime, stream, of, column, frames, rows)?
                    }
                    _ => primitives::frame_squares(runtime, stream, column, frames, rows)?,
                }
            };
        }
        // Two sums, two kernels of numbers, three a running value.
        let running = |fill: &&WindowFill| matches!(fill, WindowFill::Running(..));
        self.reports.kernels += framed + 4 + 3 * window.fills.iter().filter(running).count();
        Ok(())
    }

    /// The frames between two edges, of numbers that were filled.
    fn frames(
        &self,
        sort: &PreparedSort,
        window: &PreparedWindow,
        edges: &(Edge, Edge),
    ) -> Result<Frames> {
        let number = |column: usize| {
            self.frame
                .address(sort.into, Part::Column(window.first + column))
        };
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
        Ok(Frames {
            start: number(edges.0.column)?,
            start_plus: edges.0.plus,
            end: number(edges.1.column)?,
            end_plus: edges.1.plus,
            partition_start: place(WindowColumn::PartitionStart)?,
            partition_end: place(WindowColumn::PartitionEnd)?,
        })
    }
}
