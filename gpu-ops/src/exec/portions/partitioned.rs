//! Rows of a result in partitions: where they lie, and which partitions make a part.

use std::ops::Range;

use crate::device::{Event, StreamLease};
use crate::exec::frame::storage::Store;
use crate::exec::portions::chunks::Chunk;
use crate::primitives::{Digits, Keys};

/// Hash or key bits of partitions: one reading of the rows.
pub(in crate::exec) const BITS: u32 = 8;

/// A piece has whole vectors of every column.
pub(in crate::exec) const VECTOR: u64 = 1024;

/// Rows of a result in `2^bits` partitions, or all of them in the first one; those of a partition lie in several chunks.
pub(in crate::exec) struct Partitioned {
    pub(in crate::exec) bits: u32,
    pub(in crate::exec) chunks: Vec<Chunk>,
    pub(in crate::exec) leaving: Leaving,
}

/// Chunks that leave the device while the next piece comes.
#[derive(Default)]
pub(in crate::exec) struct Leaving {
    /// They go on this stream.
    pub(in crate::exec) stream: Option<StreamLease>,
    /// The last one, and when it will have left.
    pub(in crate::exec) last: Option<(Store, Event)>,
}

/// What rows are partitioned by.
pub(in crate::exec) struct PartitionBy {
    pub(in crate::exec) keys: Keys,
    pub(in crate::exec) digits: Digits,
    /// The lowest of the bits.
    pub(in crate::exec) shift: u32,
    /// The keys are a part of the rows and move with them.
    pub(in crate::exec) kept: bool,
}

/// Some partitions on their way to the device.
pub(in crate::exec) struct Staged {
    pub(in crate::exec) store: Store,
    pub(in crate::exec) rows: u64,
    pub(in crate::exec) come: Event,
}

impl Staged {
    /// How many rows come.
    pub(in crate::exec) fn rows(&self) -> u64 {
        self.rows
    }
}

/// None yet, in `2^BITS` partitions.
impl Default for Partitioned {
    fn default() -> Self {
        Self::of(BITS, vec![])
    }
}

impl Partitioned {
    /// Rows that lie in `2^bits` partitions.
    pub(in crate::exec) fn of(bits: u32, chunks: Vec<Chunk>) -> Self {
        Self {
            bits,
            chunks,
            leaving: Leaving::default(),
        }
    }

    /// How many partitions there are.
    pub(in crate::exec) fn count(&self) -> usize {
        1 << self.bits
    }

    /// Rows of one partition.
    pub(in crate::exec) fn rows_of_one(&self, partition: usize) -> u64 {
        self.rows_of(&(partition..partition + 1))
    }

    /// Rows of some partitions.
    pub(in crate::exec) fn rows_of(&self, partitions: &Range<usize>) -> u64 {
        let of = |chunk: &Chunk| chunk.rows_of(partitions);
        self.chunks.iter().map(of).map(|r| r.end - r.start).sum()
    }

    /// All rows.
    pub(in crate::exec) fn rows(&self) -> u64 {
        self.rows_of(&(0..self.count()))
    }

    /// Where the rows lie.
    pub(in crate::exec) fn chunks(&self) -> &[Chunk] {
        &self.chunks
    }

    /// The same, one after the other, to be let go of.
    pub(in crate::exec) fn into_chunks(self) -> Vec<Chunk> {
        self.chunks
    }

    /// Rows of the largest partition.
    pub(in crate::exec) fn largest(&self) -> u64 {
        let rows = (0..self.count()).map(|partition| self.rows_of_one(partition));
        rows.max().unwrap_or(0)
    }

    /// Neighbouring partitions together, as long as they have at most `most` rows; at least one part, and none without
    /// rows beside others.
    pub(in crate::exec) fn parts(&self, most: u64) -> Vec<Range<usize>> {
        let mut parts: Vec<(Range<usize>, u64)> = Vec::new();
        for partition in 0..self.count() {
            let one = partition..partition + 1;
            let rows = self.rows_of(&one);
            match parts.last_mut() {
                Some((part, sum)) if *sum + rows <= most || rows == 0 => {
                    part.end = one.end;
                    *sum += rows;
                }
                Some((part, sum)) if *sum == 0 => (*part, *sum) = (one, rows),
                _ => parts.push((one, rows)),
            }
        }
        parts.into_iter().map(|(part, _)| part).collect()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn rows_in(partitions: &[(usize, u32)]) -> Partitioned {
        let mut offsets = vec![0u32; (1 << BITS) + 1];
        for (partition, rows) in partitions {
            for offset in &mut offsets[partition + 1..] {
                *offset += rows;
            }
        }
        Partitioned::of(BITS, vec![Chunk::here((Store::default(), offsets))])
    }

    #[test]
    fn neighbouring_partitions_make_a_part() {
        let rows = rows_in(&[(0, 5), (1, 5), (3, 6), (200, 100), (201, 1)]);
        assert_eq!((rows.rows(), rows.largest()), (117, 100));
        let parts = rows.parts(10);
        let counts: Vec<u64> = parts.iter().map(|p| rows.rows_of(p)).collect();
        assert_eq!(counts, [10, 6, 100, 1]);
        assert_eq!(parts.last().unwrap().end, 256);
        assert_eq!(rows.parts(1000).len(), 1);
        // A part without rows stands alone only.
        assert_eq!(rows_in(&[]).parts(10).len(), 1);
        let late = rows_in(&[(255, 30)]);
        let counts: Vec<u64> = late.parts(10).iter().map(|p| late.rows_of(p)).collect();
        assert_eq!(counts, [30]);
    }
}
