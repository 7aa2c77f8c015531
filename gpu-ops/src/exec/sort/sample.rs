//! Keys that divide the rows of a sort into ranges: those of a sample, taken evenly of all places that the rows lie in.

use std::ops::Range;

use crate::codegen::Part;
use crate::error::{GpuError, Result};
use crate::exec::frame::run::Run;
use crate::exec::frame::storage::Store;
use crate::exec::portions::chunks::Chunk;
use crate::exec::prepare::kernel::PreparedSort;
use crate::memory::DeviceBuffer;
use crate::primitives::{self, RowCount};

/// Rows of a sample: enough for ranges of about equal size.
const ROWS: u64 = 1 << 13;
/// Most splitters: the ranges between them and their own have numbers of 8 bits.
const SPLITTERS: usize = 127;

/// Keys that divide rows into ranges, on the device.
pub(in crate::exec) struct Splitters {
    pub(in crate::exec) words: DeviceBuffer,
    pub(in crate::exec) count: u32,
}

/// Some rows of a sort while they are taken.
pub(in crate::exec) struct Sample {
    store: Store,
    /// Rows of the sample, of this many rows in all.
    most: u64,
    total: u64,
    /// Rows that were gone over, and those of them that were taken.
    before: u64,
    taken: u64,
}

impl Sample {
    /// How many of the next `rows` rows are taken: as many as all up to there have of the sample.
    fn wanted(&self, rows: u64) -> u64 {
        let upto = u128::from(self.before + rows) * u128::from(self.most);
        (upto / u128::from(self.total.max(1))) as u64 - self.taken
    }
}

impl Run<'_> {
    /// A sample of `total` rows, which are to be gone over next.
    pub(in crate::exec) fn begin_sample(
        &mut self,
        sort: &PreparedSort,
        total: u64,
    ) -> Result<Sample> {
        let most = total.min(ROWS).min(self.frame.piece_rows(sort.rows));
        Ok(Sample {
            store: self.frame.room_for_rows(sort.rows, most)?,
            most,
            total,
            before: 0,
            taken: 0,
        })
    }

    /// Take some of these rows of a store, evenly.
    pub(in crate::exec) fn add_to_sample(
        &mut self,
        sample: &mut Sample,
        store: &Store,
        rows: Range<u64>,
    ) -> Result<()> {
        let all = rows.end - rows.start;
        let count = sample.wanted(all);
        sample.before += all;
        if count == 0 {
            return Ok(());
        }
        let step = |i: u64| rows.start + all * i / count;
        let numbers: Vec<u32> = (0..count)
            .map(|i| u32::try_from(step(i)))
            .collect::<std::result::Result<_, _>>()
            .map_err(|_| GpuError::Unsupported("a sort of 2^32 rows".into()))?;
        let map =
            self.frame
                .runtime
                .working_memory(self.frame.stream, numbers.len() * 4, "a sample")?;
        map.upload_values(self.frame.stream, 0, &numbers)?;
        for size in sample.store.parts().collect::<Vec<_>>() {
            let unit = size.unit as u64;
            let to = sample.store.address(size.part);
            let (Some(from), Some(to)) = (store.address(size.part), to) else {
                return Err(GpuError::Internal("a sample without a part".into()));
            };
            let to = to.offset(sample.taken * unit);
            let count = RowCount::Known(count);
            // SAFETY: the numbers are those of rows of the store; the sample has room for as many as it is made for.
            unsafe {
                primitives::gather(
                    self.frame.runtime,
                    self.frame.stream,
                    from,
                    map.ptr(),
                    to,
                    size.unit as u32,
                    count,
                )?;
            }
        }
        sample.taken += count;
        Ok(())
    }

    /// Keys that divide the rows of chunks, `total` in all, into about as many ranges as parts may be told apart.
    pub(in crate::exec) fn splitters_of(
        &mut self,
        sort: &PreparedSort,
        chunks: &[Chunk],
        total: u64,
    ) -> Result<Splitters> {
        let all = 0..usize::MAX;
        self.splitters_within(sort, chunks, &all, total)
    }

    /// The same for the rows of some partitions of the chunks.
    pub(in crate::exec) fn splitters_within(
        &mut self,
        sort: &PreparedSort,
        chunks: &[Chunk],
        partitions: &Range<usize>,
        total: u64,
    ) -> Result<Splitters> {
        let mut sample = self.begin_sample(sort, total)?;
        for chunk in chunks {
            let rows = chunk.rows_of(partitions);
            let count = rows.end - rows.start;
            match chunk.store() {
                Some(store) => self.add_to_sample(&mut sample, store, rows)?,
                None if sample.wanted(count) == 0 => sample.before += count,
                None => {
                    // The rows of a chunk are as many as may lie on the device.
                    let here = self.frame.room_for_rows(sort.rows, count)?;
                    chunk.copy(rows, &here, 0, self.frame.stream)?;
                    self.add_to_sample(&mut sample, &here, 0..count)?;
                    here.release(&mut self.frame.recycler);
                }
            }
        }
        self.splitters(sort, sample)
    }

    /// The keys of a sample that divide its rows evenly.
    pub(in crate::exec) fn splitters(
        &mut self,
        sort: &PreparedSort,
        sample: Sample,
    ) -> Result<Splitters> {
        let most = sample.most;
        self.frame.stand_for(sort.rows, sample.store, most)?;
        self.frame.let_go(sort.into);
        self.key_words(sort, most)?;
        let keys = self.downloaded_keys(sort, most)?;
        self.frame.let_go(sort.rows);
        self.frame.let_go(sort.into);
        let words: Vec<u64> = chosen(keys).concat();
        let buffer =
            self.frame
                .runtime
                .working_memory(self.frame.stream, words.len() * 8, "splitters")?;
        buffer.upload_values(self.frame.stream, 0, &words)?;
        Ok(Splitters {
            words: buffer,
            count: (words.len() / sort.word_bits.len()) as u32,
        })
    }

    /// The key words of rows, row by row.
    fn downloaded_keys(&self, sort: &PreparedSort, rows: u64) -> Result<Vec<Vec<u64>>> {
        let mut keys = vec![Vec::with_capacity(sort.word_bits.len()); rows as usize];
        let store = self.frame.results[sort.into].store.as_ref();
        for (w, bits) in sort.word_bits.iter().enumerate() {
            let Some((buffer, at)) = store.and_then(|s| s.location(Part::KeyWord(w))) else {
                return Err(GpuError::Internal("a sample without keys".into()));
            };
            let mask = u64::MAX.checked_shr(64 - bits).unwrap_or(0);
            let words: Vec<u64> = buffer.download_values(self.frame.stream, at, rows as usize)?;
            for (key, word) in keys.iter_mut().zip(words) {
                key.push(word & mask);
            }
        }
        Ok(keys)
    }
}

/// Of the keys of a sample, some that divide them evenly, each once.
fn chosen(mut keys: Vec<Vec<u64>>) -> Vec<Vec<u64>> {
    keys.sort_unstable();
    let (count, wanted) = (keys.len(), SPLITTERS.min(keys.len()));
    let mut splitters: Vec<Vec<u64>> = (1..=wanted)
        .map(|i| keys[i * count / (wanted + 1)].clone())
        .collect();
    splitters.dedup();
    splitters
}
