//! Sorts of which only the first rows are wanted: every piece of the rows leaves no more than those behind.

use crate::codegen::Part;
use crate::error::{GpuError, Result};
use crate::exec::frame::results::cut;
use crate::exec::frame::run::Run;
use crate::exec::frame::storage::Store;
use crate::exec::portions::strategy::PortionOf;
use crate::exec::prepare::kernel::{PreparedKernel, PreparedSort};
use crate::graph::ResultId;
use crate::primitives::{self, RowCount};

impl Run<'_> {
    /// Are the rows that a sort is to look at for its first ones, whatever comes, few beside those of a piece?
    pub(in crate::exec) fn keeps_few(&self, sort: &PreparedSort, rows: ResultId) -> bool {
        let wanted = sort.skip.saturating_add(sort.fetch.unwrap_or(u64::MAX));
        wanted <= self.frame.piece_rows(rows) / 2
    }

    /// The same where it has `count` rows.
    pub(in crate::exec) fn keeps_few_of(&self, sort: &PreparedSort, count: u64) -> bool {
        let wanted = sort.skip.saturating_add(cut(count, sort));
        wanted <= self.frame.piece_rows(sort.rows) / 2
    }

    /// Run a pipeline whose rows nobody reads but a sort that keeps few of them, piece by piece, and leave those few behind.
    pub(in crate::exec) fn keep_first(
        &mut self,
        kernel: &PreparedKernel,
        into: ResultId,
    ) -> Result<()> {
        let Some(sort) = self.only_sort(into) else {
            return Err(GpuError::Internal("first rows of no sort".into()));
        };
        self.schedule.in_parts = true;
        let mut first: Option<(Store, u64)> = None;
        self.over_pieces(kernel, into, |run, piece| {
            let rows = run.frame.results[into].rows;
            first = Some(run.first_of(sort, first.take(), piece, rows)?);
            Ok(())
        })?;
        let (store, rows) = first.unwrap_or_default();
        self.frame.stand_for(into, store, rows)?;
        self.frame.let_go(sort.into);
        Ok(())
    }

    /// Sort the first rows of those that lie together.
    pub(in crate::exec) fn sort_first(&mut self, sort: &PreparedSort) -> Result<()> {
        self.schedule.in_parts = true;
        let (input, rows, capacity) = self.input_of(sort)?;
        let fetch = cut(rows, sort);
        let most = self.frame.piece_rows(sort.rows);
        let mut first: Option<(Store, u64)> = None;
        for begin in (0..rows).step_by(most as usize) {
            let end = (begin + most).min(rows);
            self.frame.results[sort.rows].store = Some(input.clone());
            let piece = self.load_piece(sort.rows, begin..end)?;
            first = Some(self.first_of(sort, first, piece, end - begin)?);
        }
        let (store, kept) = first.unwrap_or_default();
        self.frame.stand_for(sort.rows, store, kept)?;
        self.frame.let_go(sort.into);
        self.sort_here(sort, (sort.skip, fetch))?;
        self.frame.let_go(sort.rows);
        self.frame.results[sort.rows].store = Some(input);
        self.sorted(sort, (rows, capacity), fetch)
    }

    /// Of the rows kept so far and those of a piece, the first ones of the order.
    fn first_of(
        &mut self,
        sort: &PreparedSort,
        kept: Option<(Store, u64)>,
        piece: Store,
        rows: u64,
    ) -> Result<(Store, u64)> {
        let (all, total) = match kept {
            Some((kept, before)) => {
                let all = self.frame.room_for_rows(sort.rows, before + rows)?;
                all.copy_range(&kept, 0..before, 0, |_| true, self.frame.stream)?;
                all.copy_range(&piece, 0..rows, before, |_| true, self.frame.stream)?;
                kept.release(&mut self.frame.recycler);
                piece.release(&mut self.frame.recycler);
                (all, before + rows)
            }
            None => (piece, rows),
        };
        self.count_portion(PortionOf::Sort);
        let wanted = sort.skip.saturating_add(sort.fetch.unwrap_or(u64::MAX));
        if total <= wanted {
            return Ok((all, total));
        }
        self.frame.stand_for(sort.rows, all, total)?;
        self.frame.let_go(sort.into);
        self.key_words(sort, total)?;
        self.order_rows(sort, total, wanted)?;
        let order = self.frame.address(sort.into, Part::Order)?;
        let first = self.frame.room_for_rows(sort.rows, wanted)?;
        for size in first.parts().collect::<Vec<_>>() {
            let from = self.frame.address(sort.rows, size.part)?;
            let to = first
                .address(size.part)
                .ok_or_else(|| GpuError::Internal("first rows without a part".into()))?;
            let count = RowCount::Known(wanted);
            // SAFETY: the order has the numbers of more rows than are wanted; the first rows have room for as many.
            unsafe {
                primitives::gather(
                    self.frame.runtime,
                    self.frame.stream,
                    from,
                    order,
                    to,
                    size.unit as u32,
                    count,
                )?;
            }
        }
        self.frame.let_go(sort.rows);
        self.frame.let_go(sort.into);
        Ok((first, wanted))
    }
}
