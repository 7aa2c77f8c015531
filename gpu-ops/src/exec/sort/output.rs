//! Where the output of a sort in parts goes, range by range: to memory, of the host where it is large, or to a file when host
//! memory has no room for it and the user names a directory.
//!
//! A file takes the rows of a fragment as they leave it, as Arrow arrays: nothing of it comes back to the device, and whoever
//! reads the rows holds a range of them at a time.

use std::sync::Arc;

use arrow::compute::concat_batches;

use crate::error::{GpuError, Result};
use crate::exec::frame::run::Run;
use crate::exec::frame::storage::Store;
use crate::exec::output::host::Host;
use crate::exec::portions::loops::reads_of;
use crate::exec::portions::partitioned::Partitioned;
use crate::exec::prepare::kernel::PreparedSort;
use crate::exec::prepare::part_sizes::PartSize;
use crate::graph::ResultId;
use crate::memory::BatchWriter;

/// The output of a sort while it is written.
pub(in crate::exec) enum Output {
    Memory(Store),
    File(Box<BatchWriter>),
}

impl Run<'_> {
    /// A place for the output of a sort, even if ranges have to leave host memory for files.
    pub(in crate::exec) fn output_of(
        &mut self,
        sort: &PreparedSort,
        partitioned: &mut Partitioned,
    ) -> Result<Output> {
        let blocks =
            self.frame.prepared.shapes[sort.into].filling(&self.frame.results[sort.into].sizes);
        let parts: Vec<PartSize> = blocks.into_iter().flat_map(|block| block.parts).collect();
        let bytes = Store::bytes_within(&parts)?;
        let large = bytes as u64 > self.frame.part_room();
        let hopeless = large && bytes as u64 > self.frame.runtime.host_pool().budget().bytes();
        let name = self.frame.name(sort.into);
        let mut output = Store::default();
        while large
            && !hopeless
            && !output.extends_on_host(&parts, &mut self.frame.recycler, name)?
        {
            if !self.chunk_to_file(partitioned, true)? {
                break;
            }
        }
        if output.bytes() == 0 {
            if large && let Some(file) = self.output_file(sort.into)? {
                return Ok(Output::File(Box::new(file)));
            }
            output.extend_on_device(parts, &mut self.frame.recycler, name)?;
        }
        Ok(Output::Memory(output))
    }

    /// A file for rows that leave the fragment and that nobody else reads; `None` when the user names no directory.
    fn output_file(&self, into: ResultId) -> Result<Option<BatchWriter>> {
        let prepared = self.frame.prepared;
        let (graph, shapes) = (&prepared.graph, &prepared.shapes);
        let mut steps = prepared.steps.iter();
        let leaves = graph.output == into && !steps.any(|s| reads_of(s, shapes).contains(&into));
        match &prepared.spill {
            Some(directory) if leaves && BatchWriter::takes(&graph.schema) => {
                BatchWriter::create(directory, &graph.schema).map(Some)
            }
            _ => Ok(None),
        }
    }

    /// Append the first `rows` rows that the result has, as row `at` of all and those behind it.
    pub(in crate::exec) fn append_to_output(
        &mut self,
        into: ResultId,
        output: &mut Output,
        rows: u64,
        at: u64,
    ) -> Result<()> {
        match output {
            Output::Memory(output) => match &self.frame.results[into].store {
                Some(part) => output.copy_range(part, 0..rows, at, |_| true, self.frame.stream),
                None => Ok(()),
            },
            Output::File(file) => {
                let rows = usize::try_from(rows)
                    .map_err(|_| GpuError::Internal(format!("a range of {rows} rows")))?;
                let batches = Host::default().rows_as_batches(
                    &self.frame,
                    &self.frame.prepared.graph.schema,
                    rows,
                )?;
                // Each batch of a file has all strings that its rows may refer to.
                file.write(&concat_batches(
                    &self.frame.prepared.graph.schema,
                    &batches,
                )?)
            }
        }
    }

    /// All ranges have been appended.
    pub(in crate::exec) fn end_output(&mut self, into: ResultId, output: Output) -> Result<()> {
        match output {
            Output::Memory(store) => self.frame.results[into].store = Some(store),
            Output::File(file) => {
                let file = file.finish()?;
                self.frame.recycler.note_spilled(file.bytes());
                self.frame.written = Some(Arc::new(file));
            }
        }
        Ok(())
    }
}
