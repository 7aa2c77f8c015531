//! Loads of parquet columns that the device decodes: tasks on all readers, chunks that go back to the CPU, columns
//! finished from both.

use std::sync::Arc;

use arrow::datatypes::FieldRef;
use datafusion::common::runtime::SpawnedTask;
use datafusion::datasource::listing::PartitionedFile;

use super::cache::TableCache;
use super::entries::numbers;
use super::files::FileTable;
use super::load::{LoadRequest, Reader, stopped};
use super::parquet_chunks::{ParquetTable, RowGroup};
use super::parquet_finish::{Finished, finish};
use super::parquet_readers::{Readers, Refused};
use super::parquet_tasks::{Coming, MOST_READERS, Slabs, scratch_of, tasks_of};
use super::preallocated::{SharedPools, purpose};
use super::read::blocking;
use crate::column::{Column, DeviceColumn, Segment, StringPolicy, is_text};
use crate::device::Stream;
use crate::error::Result;
use crate::parquet::{ChunkCounts, Decoder, ParquetReader, Reason, cpu_is_sooner};
use crate::trace::Work;

/// What a device made of the columns of a request.
pub(super) struct Decoded {
    pub(super) rows: usize,
    /// By wanted column; `None`: the CPU has to load it.
    pub(super) columns: Vec<Option<Arc<Column>>>,
    /// Of the columns that are there, and of those that are not the reasons.
    pub(super) counts: ChunkCounts,
}

impl TableCache {
    /// Parquet files are about to be read, by as many threads at most: what their first load needs comes meanwhile. Only where earlier
    /// processes have left kernels on disk: elsewhere a small table would have compilers busy for nothing.
    pub fn expect_parquet(&self, threads: usize) {
        let device = self.pool.device();
        if device.info().emulated || !device.has_kernels_on_disk() {
            return;
        }
        if !self.parquet.expect(device) {
            return;
        }
        let (lanes, host) = (Arc::clone(&self.lanes), self.host.clone());
        let prepare = move || {
            host.and_then(|host| lanes.prepare(threads.clamp(1, MOST_READERS), &host));
        };
        let thread = std::thread::Builder::new().name("warpline slabs".into());
        if let Err(error) = thread.spawn(prepare) {
            log::debug!("no thread starts: {error}");
        }
    }

    /// Does the device decode, by the setting?
    pub(super) fn decodes(&self, reader: ParquetReader) -> bool {
        match reader {
            ParquetReader::Cpu => false,
            ParquetReader::Device => true,
            // In the emulator every lane is a coroutine: a price there would say nothing of a device.
            ParquetReader::Auto => !self.pool.device().info().emulated,
        }
    }

    /// Why the CPU decodes each of these columns; `None` for those that the device decodes, most of their chunks at least.
    fn refusals(
        &self,
        table: &ParquetTable,
        columns: usize,
        reader: ParquetReader,
        threads: usize,
    ) -> Vec<Option<Reason>> {
        let of_metadata = |wanted: usize| {
            let chunks = table.groups.iter().map(|group| &group.chunks[wanted]);
            let reasons: Vec<Reason> = chunks.filter_map(|c| c.as_ref().err().copied()).collect();
            let most = reasons.len() * 2 > table.groups.len() || table.rows == 0;
            most.then(|| reasons.first().copied().unwrap_or(Reason::NoRange))
        };
        let mut refusals: Vec<Option<Reason>> = (0..columns).map(of_metadata).collect();
        if reader == ParquetReader::Auto {
            let open: Vec<usize> = (0..columns).filter(|c| refusals[*c].is_none()).collect();
            let sizes: Vec<_> = open.iter().map(|wanted| table.sizes(*wanted)).collect();
            let sooner = cpu_is_sooner(&sizes, threads, self.parquet.are_loaded());
            for (wanted, _) in open.into_iter().zip(sooner).filter(|(_, sooner)| *sooner) {
                refusals[wanted] = Some(Reason::Price);
            }
        }
        refusals
    }

    /// Decode the columns of parquet files on the device, as far as it can; `None` where it can none of them.
    ///
    /// # Errors
    /// As [`TableCache::get_or_load`].
    pub(super) async fn decode_files(
        &self,
        request: LoadRequest<'_>,
        table: &Arc<FileTable>,
        files: &[PartitionedFile],
    ) -> Result<Option<Decoded>> {
        let LoadRequest {
            source,
            columns,
            room,
            ctx,
            work,
        } = request;
        let wanted = numbers(columns);
        let look = {
            let (table, files) = (Arc::clone(table), files.to_vec());
            let (wanted, ctx) = (wanted.clone(), Arc::clone(ctx));
            // On its own: the reader of damaged metadata may panic.
            SpawnedTask::spawn(async move { table.chunks(&files, &wanted, &ctx).await })
        };
        let chunks = match look.join().await.map_err(stopped).flatten() {
            Ok(Some(chunks)) => Arc::new(chunks),
            Ok(None) => return Ok(None),
            Err(error) => {
                log::debug!("{}: {error}", source.name());
                return Ok(None);
            }
        };
        let mut counts = ChunkCounts::default();
        let fields: Vec<FieldRef> = wanted
            .iter()
            .map(|column| Arc::clone(&source.schema().fields()[*column]))
            .collect();
        let policies = self.policies(columns);
        let pools = SharedPools {
            device: Arc::clone(&self.pool),
            host: self.host.clone(),
            room: room.clone(),
        };
        let workers = ctx.session_config().target_partitions().max(1);
        let mut refused = self.refusals(&chunks, fields.len(), work.parquet, workers);
        let mut kernels = None;
        if refused.iter().any(Option::is_none) {
            let patience = match work.parquet {
                ParquetReader::Auto => chunks.patience(&refused, workers),
                _ => None,
            };
            let (own, device) = (Arc::clone(&self.parquet), Arc::clone(self.pool.device()));
            kernels = blocking(work, move |_| own.get(&device, patience)).await?;
        }
        let Some(kernels) = kernels else {
            refused.iter_mut().for_each(|reason| {
                reason.get_or_insert(Reason::Price);
            });
            for (wanted, reason) in refused.iter().enumerate() {
                refuse(
                    &chunks,
                    wanted,
                    reason.unwrap_or(Reason::NoRange),
                    &mut counts,
                );
            }
            return Ok(Some(Decoded {
                rows: chunks.rows,
                columns: fields.iter().map(|_| None).collect(),
                counts,
            }));
        };
        let trace = self.traced.as_ref().and_then(|device| device.trace());
        // Decode, in the place of each column.
        let decoding = {
            let (chunks, fields, policies) =
                (Arc::clone(&chunks), fields.clone(), policies.clone());
            let (pools, kernels, trace) = (pools.clone(), Arc::clone(&kernels), trace.clone());
            let (name, query) = (source.name().to_owned(), work.query.clone());
            let (sorter, lanes) = (work.sorter.clone(), Arc::clone(&self.lanes));
            move |stream: &Stream| {
                let mut counts = ChunkCounts::default();
                let columns = Request {
                    table: &chunks,
                    fields: &fields,
                    policies: &policies,
                    refused: &refused,
                    name: &name,
                    pools: &pools,
                };
                let coming = columns.begin(stream, &mut counts)?;
                if let Some(sorter) = &sorter
                    && coming.iter().any(|coming| coming.column.is_bytes())
                {
                    sorter.prepare();
                }
                let readers = workers.min(MOST_READERS);
                let tasks = tasks_of(&chunks, &coming, readers);
                // Other streams write where this one has made room.
                pools.device.device().synchronize(stream)?;
                let span = |name| Some(trace.as_ref()?.thread(Work::Load, name));
                let slabs = {
                    let _span = span("page-lock slabs");
                    Slabs::new(
                        &chunks,
                        &coming,
                        &tasks,
                        readers,
                        (&lanes, pools.host.as_ref()),
                    )
                };
                let scratch = {
                    let _span = span("memory of tasks");
                    scratch_of(&tasks, readers, &pools.device)
                };
                let decoder = Decoder {
                    pool: &pools.device,
                    host: pools.host.as_ref(),
                    slabs: slabs.own,
                    scratch,
                    kernels: &kernels,
                    trace,
                };
                let of = (&*chunks, coming.as_slice());
                let threads = Readers::new(of, &tasks, &decoder, slabs.lanes, readers, stream)?;
                let refused = threads.read(readers, query.as_ref())?;
                counts.device = coming.iter().map(|coming| coming.column.decoded()).sum();
                let mut refused = [refused_before(&chunks, &coming), refused].concat();
                refused.sort_unstable();
                Ok((coming, refused, counts))
            }
        };
        let (coming, refused, told) = blocking(work, decoding).await?;
        counts.add(&told);
        if coming.is_empty() {
            return Ok(Some(Decoded {
                rows: chunks.rows,
                columns: fields.iter().map(|_| None).collect(),
                counts,
            }));
        }
        // The chunks that the device refused, by column.
        let mut segments: Vec<(usize, usize, Segment)> = Vec::new();
        for share in refused.chunk_by(|a, b| a.column == b.column) {
            let at = coming[share[0].column].wanted;
            for refused in share {
                counts.on_cpu(refused.reason, 1);
            }
            let groups: Vec<&RowGroup> = share.iter().map(|r| &chunks.groups[r.group]).collect();
            let units = groups.iter().map(|group| group.unit.clone()).collect();
            let units = table.scan(units, &wanted[at..=at])?;
            let encoding = (fields[at].data_type().clone(), policies[at]);
            let reader = Reader {
                units: Arc::new(units),
                encodings: [encoding].into(),
                ctx: Arc::clone(ctx),
                write: None,
                trace: trace.clone(),
                query: work.query.as_ref().map_or(0, |query| query.number()),
            };
            let Some(packed) = reader.read().await? else {
                return Err(super::load::unexpected());
            };
            let read = packed.columns.into_iter().flatten();
            for (segment, group) in read.zip(groups) {
                if segment.rows() != group.rows {
                    return Ok(None);
                }
                segments.push((share[0].column, group.first, segment));
            }
        }
        let finishing = {
            let count = fields.len();
            let (query, sorter) = (work.query.clone(), work.sorter.clone());
            move |stream: &Stream| {
                let _span = trace
                    .as_ref()
                    .map(|trace| trace.thread(Work::Load, "finish columns"));
                let mut by_column: Vec<Vec<(usize, Segment)>> =
                    coming.iter().map(|_| Vec::new()).collect();
                for (column, first, segment) in segments {
                    by_column[column].push((first, segment));
                }
                let coming = coming.into_iter().zip(by_column).collect();
                let finished = finish(
                    coming,
                    &pools,
                    &kernels,
                    sorter.as_deref(),
                    stream,
                    query.as_ref(),
                )?;
                let mut columns: Vec<Option<Arc<Column>>> = (0..count).map(|_| None).collect();
                for Finished {
                    wanted,
                    decoded,
                    column,
                } in finished
                {
                    match column {
                        Ok(column) => columns[wanted] = Some(Arc::new(column)),
                        Err(reason) => {
                            // The CPU reads them again.
                            counts.device -= decoded;
                            counts.on_cpu(reason, decoded);
                        }
                    }
                }
                Ok((columns, counts))
            }
        };
        let (columns, counts) = blocking(work, finishing).await?;
        Ok(Some(Decoded {
            rows: chunks.rows,
            columns,
            counts,
        }))
    }
}

/// Count the chunks of a column that the CPU decodes, for this reason or those of their own.
fn refuse(table: &ParquetTable, wanted: usize, reason: Reason, counts: &mut ChunkCounts) {
    for group in &table.groups {
        let own = group.chunks[wanted].as_ref().err();
        counts.on_cpu(own.copied().unwrap_or(reason), 1);
    }
}

/// The columns of a request.
struct Request<'a> {
    table: &'a ParquetTable,
    fields: &'a [FieldRef],
    policies: &'a [StringPolicy],
    refused: &'a [Option<Reason>],
    /// The table's.
    name: &'a str,
    pools: &'a SharedPools,
}

impl Request<'_> {
    /// Room for the columns that are not refused; the chunks of others are counted.
    fn begin(&self, stream: &Stream, counts: &mut ChunkCounts) -> Result<Vec<Coming>> {
        let mut coming = Vec::new();
        for (wanted, field) in self.fields.iter().enumerate() {
            let expected = self.table.columns[wanted];
            if let Some(reason) = self.refused[wanted] {
                refuse(self.table, wanted, reason, counts);
                continue;
            }
            let policy = self.policies[wanted];
            let text = is_text(field.data_type());
            let as_bytes = text
                && (policy == StringPolicy::AlwaysBytes || self.table.has_plain_strings(wanted));
            // Strings are there twice before they are one column.
            let strings = 2 * self.table.uncompressed(wanted) + 8 * self.table.rows as u64;
            let budget = self.pools.device.statistics().budget as u64;
            if as_bytes && strings > budget / 2 {
                refuse(self.table, wanted, Reason::Memory, counts);
                continue;
            }
            let column = DeviceColumn::new(
                field.data_type(),
                self.policies[wanted],
                &purpose(field, self.name),
                self.table.rows,
                (expected, as_bytes),
                &self.pools.column_pools(),
                stream,
            )?;
            match column {
                Some(column) => coming.push(Coming { wanted, column }),
                None if expected.range.is_some() => {
                    refuse(self.table, wanted, Reason::Wide, counts);
                }
                None => refuse(self.table, wanted, Reason::NoRange, counts),
            }
        }
        Ok(coming)
    }
}

/// The chunks of these columns that the metadata refuses.
fn refused_before(table: &ParquetTable, coming: &[Coming]) -> Vec<Refused> {
    let mut refused = Vec::new();
    for (column, coming) in coming.iter().enumerate() {
        for (group, chunks) in table.groups.iter().enumerate() {
            if let Err(reason) = chunks.chunks[coming.wanted] {
                refused.push(Refused {
                    column,
                    group,
                    reason,
                });
            }
        }
    }
    refused
}
