//! Where the rows of a join's sides lie between the two passes of a join in partitions: chunks stay in device memory as far as
//! there is room, the others go to host memory, and to files when that is full and the user names a directory.
//!
//! The two kinds take turns in proportion to the room (Lutz et al., SIGMOD 2022, section 5.3): the same share of every pair of
//! partitions comes back across the link, which so is busy from the first pair to the last while pairs are joined. Chunks
//! leave on a stream of their own, while the next ones are read and partitioned; so of `n` bytes of which `s` are spilled the
//! first pass takes the time that the link needs for `n` in one direction, the second that for `s`: 2.3 s for two sides of
//! 32 GB all of which is spilled, at 55 GB/s.

use crate::codegen::JoinKeys;
use crate::device::{Event, StreamLease};
use crate::error::Result;
use crate::exec::frame::run::Run;
use crate::exec::frame::storage::Store;
use crate::exec::portions::chunks::{Chunk, moves_along};
use crate::exec::prepare::part_sizes::{ColumnShape, PartSize, side_parts};
use crate::graph::ResultId;

/// Chunks that lie on the device while a side is split: the rows of a stride, the same rows in partitions, those that leave,
/// and one to spare.
const CHUNKS_AT_WORK: u64 = 4;
/// Pairs of partitions that lie on the device while they are joined: one as it came and in finer partitions, the next one,
/// and what is made of them.
const PAIRS_AT_WORK: u64 = 4;
/// This share of the budget stays free for what the steps behind the join make.
const SHARE_FOR_OTHERS: u64 = 16;
/// A chunk stays where it is on the device with up to this share more room than rows; with more it is copied.
const SHARE_UNUSED: u64 = 8;

/// The chunks of a side on their way to where they stay.
pub(in crate::exec) struct Spill {
    /// The share that may stay on the device.
    share: f64,
    /// Bytes that stay there so far, …
    kept: u64,
    /// … of this many.
    seen: u64,
    /// Chunks leave on this stream.
    copies: StreamLease,
    /// One that is leaving, and when it will have left.
    leaving: Option<(Store, Event)>,
}

impl Spill {
    /// Does a chunk of `bytes` bytes stay on the device?
    fn keeps(&mut self, bytes: u64) -> bool {
        self.seen += bytes;
        let stays = (self.kept + bytes) as f64 <= self.share * self.seen as f64;
        if stays {
            self.kept += bytes;
        }
        stays
    }
}

impl Run<'_> {
    /// The share of two sides of `bytes` bytes in all that may stay on the device between the passes, when chunks have
    /// `chunk` bytes and there are `pairs` pairs of partitions.
    pub(in crate::exec) fn kept_share(&self, bytes: u64, chunk: u64, pairs: u64) -> f64 {
        let at_work = (CHUNKS_AT_WORK * chunk).max(PAIRS_AT_WORK * (bytes / pairs.max(1)));
        let others = self.frame.recycler.pool().budget() as u64 / SHARE_FOR_OTHERS;
        let room = self.frame.recycler.room().saturating_sub(at_work + others);
        room as f64 / bytes.max(1) as f64
    }

    /// Begin to put chunks where they stay, `share` of them on the device.
    pub(in crate::exec) fn begin_spill(&self, share: f64) -> Result<Spill> {
        Ok(Spill {
            share,
            kept: 0,
            seen: 0,
            copies: self.frame.runtime.lease_stream()?,
            leaving: None,
        })
    }

    /// Put a chunk of `rows` rows, which `made` has in partitions that begin at `offsets`, where it stays.
    pub(in crate::exec) fn put_away(
        &mut self,
        result: ResultId,
        (columns, keys): (&[ColumnShape], JoinKeys),
        (made, offsets): (Store, Vec<u32>),
        rows: u64,
        spill: &mut Spill,
    ) -> Result<Chunk> {
        let bits = offsets.len().saturating_sub(1).max(1).ilog2();
        let parts = side_parts(columns, keys, bits, rows);
        let bytes = Store::bytes_within(&parts)? as u64;
        let name = self.frame.name(result);
        let mut kept = Store::default();
        if spill.keeps(bytes) {
            if made.bytes() as u64 <= bytes + bytes / SHARE_UNUSED && !made.is_on_host() {
                return Ok(Chunk::here((made, offsets)));
            }
            kept.extend_on_device(parts, &mut self.frame.recycler, name)?;
            kept.copy_range(&made, 0..rows, 0, moves_along, self.frame.stream)?;
            made.release(&mut self.frame.recycler);
            return Ok(Chunk::here((kept, offsets)));
        }
        let (there, fits) = self.host_room(&parts, name)?;
        kept.join(there);
        if !fits {
            let moved: Vec<PartSize> = parts
                .iter()
                .filter(|part| moves_along(part.part))
                .copied()
                .collect();
            if let Some(file) = self.write_to_file(&made, &moved, &offsets)? {
                made.release(&mut self.frame.recycler);
                return Ok(file);
            }
            // Device memory may still have room; the error says what to set.
            kept.extend_on_device(parts, &mut self.frame.recycler, name)?;
        }
        let device = self.frame.runtime.device();
        let partitioned = device.record_event(self.frame.stream)?;
        device.wait_event(&spill.copies, &partitioned)?;
        kept.copy_range(&made, 0..rows, 0, moves_along, &spill.copies)?;
        let left = device.record_event(&spill.copies)?;
        if let Some(before) = spill.leaving.replace((made, left)) {
            self.has_left(before)?;
        }
        Ok(Chunk::here((kept, offsets)))
    }

    /// All chunks have been put away: what is queued from now on finds them there.
    pub(in crate::exec) fn end_spill(&mut self, spill: Spill) -> Result<()> {
        match spill.leaving {
            Some(last) => self.has_left(last),
            None => Ok(()),
        }
    }

    /// Use the memory of a chunk again once it has left.
    pub(in crate::exec) fn has_left(&mut self, (rows, left): (Store, Event)) -> Result<()> {
        self.frame
            .runtime
            .device()
            .wait_event(self.frame.stream, &left)?;
        rows.release(&mut self.frame.recycler);
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::device::emulated::EmulatedDevice;
    use crate::runtime::Runtime;

    #[test]
    fn chunks_that_stay_and_chunks_that_leave_take_turns() {
        let device = Arc::new(EmulatedDevice::open().unwrap());
        let runtime = Runtime::with_device(device, None).unwrap();
        let turns = |share: f64| -> String {
            let mut spill = Spill {
                share,
                kept: 0,
                seen: 0,
                copies: runtime.lease_stream().unwrap(),
                leaving: None,
            };
            let all = (0..12).map(|_| if spill.keeps(100) { 'd' } else { 'h' });
            all.collect()
        };
        assert_eq!(turns(0.0), "hhhhhhhhhhhh");
        assert_eq!(turns(1.0 / 3.0 + 1e-9), "hhdhhdhhdhhd");
        assert_eq!(turns(0.75), "hddd".repeat(3));
        assert_eq!(turns(1.0), "dddddddddddd");
        assert_eq!(turns(7.0), "dddddddddddd");
    }
}
