//! Rows of a run that go to host memory, or to files when that has no room and the user names a directory.

use crate::codegen::Part;
use crate::error::{GpuError, Result};
use crate::exec::frame::run::Run;
use crate::exec::frame::storage::Store;
use crate::exec::portions::chunks::{Chunk, moves_along};
use crate::exec::prepare::part_sizes::PartSize;

impl Run<'_> {
    /// Write rows that lie in `made` to a file, these parts of them, and wait until they are there; `None` when the user names
    /// no directory.
    ///
    /// # Errors
    /// [`GpuError::Spill`] when it cannot be written, [`GpuError::Device`].
    pub(in crate::exec) fn write_to_file(
        &mut self,
        made: &Store,
        parts: &[PartSize],
        offsets: &[u32],
    ) -> Result<Option<Chunk>> {
        let prepared = self.frame.prepared;
        let Some(directory) = &prepared.spill else {
            return Ok(None);
        };
        let mut columns = Vec::with_capacity(parts.len());
        let mut bytes = 0;
        for part in parts {
            let Some((buffer, start)) = made.location(part.part) else {
                return Err(lost(part.part));
            };
            let mut values = vec![0; part.rows as usize * part.unit];
            buffer.download(self.frame.stream, start, &mut values)?;
            bytes += values.len() as u64;
            columns.push((part.unit, values));
        }
        let ranges = offsets.windows(2).map(|w| w[0] as usize..w[1] as usize);
        let file = directory.write(columns, ranges)?;
        log::debug!("{bytes} bytes of rows went to {} of a file", file.bytes());
        self.frame.recycler.note_spilled(bytes);
        Ok(Some(Chunk::in_file(file, parts.to_vec(), offsets.to_vec())))
    }

    /// A block of another device's memory or of the host's for these parts, if there is room for it; where files take what the host
    /// has no room for, some is left to results.
    pub(in crate::exec) fn host_room(
        &mut self,
        parts: &[PartSize],
        purpose: &str,
    ) -> Result<(Store, bool)> {
        let mut store = Store::default();
        if store.extends_on_peer(parts, &mut self.frame.recycler, purpose)? {
            return Ok((store, true));
        }
        if !store.extends_on_host(parts, &mut self.frame.recycler, purpose)? {
            return Ok((store, false));
        }
        let pool = self.frame.runtime.host_pool();
        if self.frame.prepared.spill.is_some() && pool.free().bytes < pool.budget().beside_files() {
            self.frame.recycler.forget_spilled(store.bytes() as u64);
            store.release(&mut self.frame.recycler);
            return Ok((Store::default(), false));
        }
        Ok((store, true))
    }

    /// The same rows in a file; `None` when the user names no directory.
    pub(in crate::exec) fn chunk_as_file(&mut self, chunk: &Chunk) -> Result<Option<Chunk>> {
        let Some(store) = chunk.store() else {
            return Ok(None);
        };
        let rows = chunk.offsets().last().copied().map_or(0, u64::from);
        let parts: Vec<PartSize> = store
            .parts()
            .filter(|part| moves_along(part.part))
            .map(|part| PartSize { rows, ..part })
            .collect();
        self.write_to_file(store, &parts, chunk.offsets())
    }
}

fn lost(part: Part) -> GpuError {
    GpuError::Internal(format!("a chunk without {part:?}"))
}
