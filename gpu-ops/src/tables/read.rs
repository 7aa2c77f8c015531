//! Loading of columns: files with known layouts unit by unit while others are decoded, other tables when all rows are
//! read.

use std::sync::Arc;

use arrow::datatypes::FieldRef;
use datafusion::common::runtime::SpawnedTask;
use datafusion::datasource::listing::PartitionedFile;

use super::cache::TableCache;
use super::entries::{Wanted, numbers};
use super::files::FileTable;
use super::load::{
    LoadFor, LoadRequest, Reader, WriteUnit, changed_meanwhile, stopped, unexpected,
};
use super::loaded::LoadedTable;
use super::preallocated::{PreallocatedTable, SharedPools, purpose};
use super::progress::Offer;
use super::row_groups::Layout;
use super::units::Units;
use crate::column::{Column, ColumnAssembler, StringPolicy, Written};
use crate::device::Stream;
use crate::error::{GpuError, Result};
use crate::query::Query;
use crate::trace::Work;

impl TableCache {
    /// Read files: on the device, where the setting says so and it can, else by the CPU.
    ///
    /// # Errors
    /// As [`TableCache::get_or_load`].
    pub(super) async fn load_files(
        &self,
        request: LoadRequest<'_>,
        table: &Arc<FileTable>,
        files: Vec<PartitionedFile>,
        offer: Option<Arc<Offer>>,
    ) -> Result<LoadedTable> {
        let LoadRequest {
            source, columns, ..
        } = request;
        if columns.is_empty() || !self.decodes(request.work.parquet) {
            return self.read_files(request, table, files, offer).await;
        }
        let Some(decoded) = self.decode_files(request, table, &files).await? else {
            return self.read_files(request, table, files, offer).await;
        };
        let missing = columns.iter().zip(&decoded.columns);
        let missing: Vec<Wanted> = missing
            .filter_map(|(column, found)| found.is_none().then_some(*column))
            .collect();
        let mut loaded = LoadedTable {
            rows: decoded.rows,
            ..LoadedTable::default()
        };
        let mut rest = Vec::new().into_iter();
        if !missing.is_empty() {
            // Kernels may start while these come, if they are all.
            let offer = offer.filter(|_| missing.len() == columns.len());
            let remaining = LoadRequest {
                columns: &missing,
                ..request
            };
            let read = self.read_files(remaining, table, files, offer).await?;
            if read.rows != decoded.rows {
                return Err(changed_meanwhile(source));
            }
            rest = read.columns.into_iter();
        }
        for column in decoded.columns {
            let column = column.or_else(|| rest.next());
            let missing = || GpuError::Internal("a column was not loaded".into());
            loaded.columns.push(column.ok_or_else(missing)?);
        }
        loaded.bytes_uploaded = bytes_on_device(&loaded.columns);
        loaded.columns_loaded = loaded.columns.len();
        loaded.chunks = decoded.counts;
        Ok(loaded)
    }

    /// How the strings of the columns lie.
    pub(super) fn policies(&self, columns: &[Wanted]) -> Vec<StringPolicy> {
        columns
            .iter()
            .map(|(_, codes)| match codes {
                true => StringPolicy::AlwaysDictionary,
                false => self.policy,
            })
            .collect()
    }

    /// Read files on the CPU: each row group is written at its final position while later ones are decoded, where the
    /// metadata determines it.
    async fn read_files(
        &self,
        request: LoadRequest<'_>,
        table: &Arc<FileTable>,
        files: Vec<PartitionedFile>,
        offer: Option<Arc<Offer>>,
    ) -> Result<LoadedTable> {
        let LoadRequest {
            source,
            columns,
            ctx,
            ..
        } = request;
        let wanted = numbers(columns);
        let look = {
            let (table, files) = (Arc::clone(table), files.clone());
            let (wanted, ctx) = (wanted.clone(), Arc::clone(ctx));
            // On its own: the reader of damaged metadata may panic.
            SpawnedTask::spawn(async move { table.layout(&files, &wanted, &ctx).await })
        };
        let looked = look.join().await.map_err(stopped).flatten();
        // Reading tells what is wrong, and with which file.
        let layout = looked.unwrap_or_else(|error| {
            log::debug!("{}: {error}", source.name());
            None
        });
        if let Some(layout) = layout {
            let units = table.scan(layout.units.clone(), &wanted)?;
            if let Some(loaded) = self.load(request, units, Some(layout), offer).await? {
                return Ok(loaded);
            }
            log::info!(
                "the metadata of {} does not tell what its files hold: reading it again",
                source.name()
            );
        }
        let units = table.scan(table.split(&files, ctx), &wanted)?;
        let loaded = self.load(request, units, None, None).await?;
        loaded.ok_or_else(unexpected)
    }

    /// Read, encode and upload, overlapped where there is a `layout`; `None` when the layout does not hold. The
    /// columns are offered before all of their rows are read.
    pub(super) async fn load(
        &self,
        request: LoadRequest<'_>,
        units: Units,
        layout: Option<Layout>,
        offer: Option<Arc<Offer>>,
    ) -> Result<Option<LoadedTable>> {
        let LoadRequest {
            source,
            columns,
            room,
            ctx,
            work,
        } = request;
        let fields: Vec<FieldRef> = columns
            .iter()
            .map(|(column, _)| Arc::clone(&source.schema().fields()[*column]))
            .collect();
        let policies = self.policies(columns);
        let types = fields.iter().map(|field| field.data_type().clone());
        let pools = SharedPools {
            device: Arc::clone(&self.pool),
            host: self.host.clone(),
            room: room.clone(),
        };
        let trace = self.traced.as_ref().and_then(|device| device.trace());
        let places = match layout {
            None => None,
            Some(layout) => {
                let (fields, policies) = (fields.clone(), policies.clone());
                let (pools, name) = (pools.clone(), source.name().to_owned());
                let made = blocking(work, move |stream| {
                    PreallocatedTable::new(&layout, &fields, &policies, &name, &pools, stream)
                });
                made.await?.map(Arc::new)
            }
        };
        let reader = Reader {
            units: Arc::new(units),
            encodings: types.zip(policies.iter().copied()).collect(),
            ctx: Arc::clone(ctx),
            write: places.as_ref().map(|places| {
                let (places, pools) = (Arc::clone(places), pools.clone());
                let (work, trace) = (work.clone(), trace.clone());
                let write: WriteUnit = Arc::new(move |unit| {
                    let LoadFor { stream, query, .. } = &work;
                    let _entered = query.as_ref().map(Query::enter);
                    let _span = trace
                        .as_ref()
                        .map(|trace| trace.thread(Work::Load, "encode"));
                    let laid = places.place(unit, &pools, stream)?;
                    if let Some(offer) = &offer {
                        let device = pools.device.device();
                        offer.note(unit.unit, laid, &places, device.as_ref(), stream)?;
                    }
                    Ok(laid != Written::Mismatch)
                });
                write
            }),
            trace: trace.clone(),
            query: work.query.as_ref().map_or(0, |query| query.number()),
        };
        let Some(packed) = reader.read().await? else {
            return Ok(None);
        };
        let rows = packed.rows;
        let name = source.name().to_owned();
        let preallocated = match places.map(Arc::into_inner) {
            None => fields.iter().map(|_| None).collect(),
            Some(Some(places)) => places.into_columns(),
            Some(None) => return Err(GpuError::Internal("a unit is still being placed".into())),
        };
        // Encoding and copying block.
        let uploaded = blocking(work, move |stream| {
            let _span = trace
                .as_ref()
                .map(|trace| trace.thread(Work::Load, "finish columns"));
            let home = pools.column_pools();
            let mut uploaded = Vec::with_capacity(fields.len());
            let described = fields
                .iter()
                .zip(policies)
                .zip(packed.columns)
                .zip(preallocated);
            for (((field, policy), segments), preallocated) in described {
                let purpose = purpose(field, &name);
                let assembler = ColumnAssembler::new(field.data_type().clone(), policy, purpose);
                match assembler.finish_preallocated(preallocated, &home, &segments, stream)? {
                    Some(column) => uploaded.push(Arc::new(column)),
                    None => return Ok(None),
                }
            }
            // Other sessions use the columns on streams of their own.
            pools.device.device().synchronize(stream)?;
            Ok(Some(uploaded))
        });
        let Some(uploaded) = uploaded.await? else {
            return Ok(None);
        };
        Ok(Some(LoadedTable {
            rows,
            bytes_uploaded: bytes_on_device(&uploaded),
            columns_loaded: uploaded.len(),
            columns: uploaded,
            ..LoadedTable::default()
        }))
    }
}

/// Bytes of columns in device memory.
fn bytes_on_device(columns: &[Arc<Column>]) -> usize {
    let buffers = columns.iter().flat_map(|column| column.buffers());
    let buffers = buffers.filter(|buffer| !buffer.is_host());
    buffers.map(|buffer| buffer.len()).sum()
}

/// Blocking steps of a load, on behalf of its query.
pub(super) async fn blocking<T: Send + 'static>(
    work: &LoadFor,
    steps: impl FnOnce(&Stream) -> Result<T> + Send + 'static,
) -> Result<T> {
    let LoadFor { stream, query, .. } = work.clone();
    let steps = tokio::task::spawn_blocking(move || {
        let _entered = query.as_ref().map(Query::enter);
        steps(&stream)
    });
    steps
        .await
        .map_err(|error| GpuError::Internal(format!("an upload stopped: {error}")))?
}
