//! Growth of tables of files: when files were added to a table of which columns are resident, the rows of these files alone are
//! read, and columns of all rows are made of both ([`crate::column::Append`] tells which can be).
//!
//! A table grows out of another state of it whose files are all among its own, unchanged, and come first in the order of its rows.
//! That order is therefore no property of the files: what was there first comes first, whatever the new files are called. A file that
//! was rewritten, or is gone, is in no state of the table any more, and nothing grows out of one that has it. Where queries read
//! other parts of one table, as shares of it on several devices, a file may come before those that were read before: if a column of
//! these is sorted, which is worth more than a load, nothing grows.
//!
//! Old columns stay until memory is short, and are the first to go then, since a scan of fewer files, for which conditions on partitions
//! are enough, may still ask for them. Those that nobody has asked for by the next growth go with it. What finds no memory is loaded
//! whole, when the old columns can make room.

use std::cell::RefCell;
use std::sync::Arc;

use datafusion::datasource::listing::PartitionedFile;

use super::cache::TableCache;
use super::entries::{Anchor, ColumnKey, Found, State, TableKey, Wanted, is_pinned, missing_of};
use super::files::{FileKey, FileTable};
use super::load::{LoadRequest, changed_meanwhile};
use super::loaded::LoadedTable;
use super::preallocated::{SharedPools, purpose};
use super::read::blocking;
use crate::column::{Append, Column, ColumnRoom, Encoding};
use crate::error::{GpuError, Result};
use crate::parquet::Kernels;

/// A state of a table with fewer files, and those of its columns that may grow.
struct Base {
    key: TableKey,
    files: usize,
    rows: usize,
    columns: Vec<Growing>,
}

/// A column that may grow.
struct Growing {
    wanted: Wanted,
    /// Where it is in the base.
    at: ColumnKey,
    /// Do its strings have a dictionary, so that those of the new rows need one?
    codes: bool,
}

impl TableCache {
    /// Makes those columns of a request that were not found of ones with fewer files, as far as there are any, adds them to what was
    /// found, and tells how many there are and what was read for them. `files`: all of the table, in the order of its rows.
    ///
    /// # Errors
    /// Those of reading the new files, and of copies and kernels; never that memory is short.
    pub(super) async fn grow(
        &self,
        request: LoadRequest<'_>,
        table: &Arc<FileTable>,
        key: &TableKey,
        found: &mut Found,
        files: &[PartitionedFile],
    ) -> Result<LoadedTable> {
        let missing = missing_of(request.columns, &found.columns);
        let none = LoadedTable::default();
        let (TableKey::Files(own), Anchor::Files { order, .. }) = (key, &found.anchor) else {
            return Ok(none);
        };
        let Some(base) = self.state.lock().base_of(own, order, &missing) else {
            return Ok(none);
        };
        let columns: Vec<Wanted> = base.columns.iter().map(|c| (c.wanted.0, c.codes)).collect();
        let unlimited = ColumnRoom::unlimited();
        let tail = LoadRequest {
            columns: &columns,
            // For as long as it takes to put them behind the others.
            room: &unlimited,
            ..request
        };
        let added = files[base.files..].to_vec();
        let tail = match self.load_files(tail, table, added, None).await {
            Err(error) if is_for_want_of_memory(&error) => return Ok(none),
            tail => tail?,
        };
        let rows = base.rows + tail.rows;
        if found.rows.is_some_and(|known| known != rows)
            || table.current(request.ctx).await?.1 != *own
        {
            self.state.lock().tables.remove(key);
            return Err(changed_meanwhile(request.source));
        }
        let kernels = {
            let (own, device) = (Arc::clone(&self.parquet), Arc::clone(self.pool.device()));
            blocking(request.work, move |_| own.get(&device, None)).await?
        };
        let Some(kernels) = kernels else {
            return Ok(none);
        };
        let mut grown = LoadedTable {
            rows,
            bytes_uploaded: tail.bytes_uploaded,
            chunks: tail.chunks,
            ..none
        };
        let mut made: Vec<Wanted> = Vec::new();
        for (growing, new) in base.columns.iter().zip(tail.columns) {
            // Memory may have been made by letting go of it.
            let Some(old) = self.state.lock().column_of(&base.key, growing.at) else {
                continue;
            };
            if request.room.holds(&old) {
                // A query that had room for it has it for what comes instead.
                request.room.give(old.budget_bytes(false));
            }
            if let Some(column) = self
                .appended(request, growing.wanted, old, new, &kernels)
                .await?
            {
                made.push(growing.wanted);
                grown.columns.push(column);
                self.state.lock().outgrow(&base.key, growing.at);
            }
        }
        self.insert(key, request.source, &found.anchor, &made, &grown);
        self.state.lock().drop_outgrown(own, &base.key);
        for (wanted, found) in request.columns.iter().zip(&mut found.columns) {
            if let Some(at) = made.iter().position(|column| column == wanted) {
                *found = Some(Arc::clone(&grown.columns[at]));
            }
        }
        found.rows = Some(rows);
        grown.columns_grown = std::mem::take(&mut grown.columns).len();
        Ok(grown)
    }

    /// A column with new rows; `None` where it has to be loaded whole.
    async fn appended(
        &self,
        request: LoadRequest<'_>,
        wanted: Wanted,
        old: Arc<Column>,
        new: Arc<Column>,
        kernels: &Arc<Kernels>,
    ) -> Result<Option<Arc<Column>>> {
        let LoadRequest {
            source, room, work, ..
        } = request;
        let pools = SharedPools {
            device: Arc::clone(&self.pool),
            host: self.host.clone(),
            room: room.clone(),
        };
        let name = purpose(&source.schema().fields()[wanted.0], source.name());
        let policy = self.policies(&[wanted])[0];
        let kernels = Arc::clone(kernels);
        let column = blocking(work, move |stream| {
            let append = Append {
                name: &name,
                policy,
                home: &pools.column_pools(),
                kernels: &kernels.finish,
                stream,
                held: RefCell::default(),
            };
            let column = append.append(&old, &new);
            // Other sessions use the column on streams of their own, and both parts may go.
            pools.device.device().synchronize(stream)?;
            column
        });
        match column.await {
            Ok(column) => Ok(column.map(Arc::new)),
            Err(error) if is_for_want_of_memory(&error) => {
                log::info!("{error}: loading the column whole");
                Ok(None)
            }
            // Whether all rows together have another form, the load of all of them tells.
            Err(GpuError::Unsupported(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

fn is_for_want_of_memory(error: &GpuError) -> bool {
    matches!(error, GpuError::OutOfDeviceMemory { .. })
}

impl State {
    /// The order of the rows of a new table that lets columns of a known one grow; of several the one with most files.
    pub(super) fn order_behind_known(&self, key: &FileKey) -> Option<Vec<usize>> {
        let known = self.tables.iter().filter_map(|(other, table)| {
            let (TableKey::Files(other), Anchor::Files { order, .. }) = (other, &table.anchor)
            else {
                return None;
            };
            table.rows.filter(|_| !table.columns.is_empty())?;
            let order = key.order_behind(other, order)?;
            let loses_order = table.has_sorted() && key.precedes_known(&order, other.len());
            (!loses_order).then_some((other.len(), order))
        });
        known
            .max_by_key(|(files, _)| *files)
            .map(|(_, order)| order)
    }

    /// The table whose columns can grow to those of `key` with this order of rows: of several the one with most of them.
    fn base_of(&self, key: &FileKey, order: &[usize], missing: &[Wanted]) -> Option<Base> {
        let bases = self.tables.iter().filter_map(|(other, table)| {
            let (TableKey::Files(files), Anchor::Files { order: first, .. }) =
                (other, &table.anchor)
            else {
                return None;
            };
            let rows = table.rows?;
            if !key.begins_with(order, files, first) {
                return None;
            }
            let columns = missing.iter().filter_map(|wanted| {
                let at = table.column_key(*wanted)?;
                let column = &table.columns.get(&at)?.column;
                column.may_grow().then(|| Growing {
                    wanted: *wanted,
                    at,
                    codes: matches!(column.encoding, Encoding::Dictionary { .. }),
                })
            });
            let base = Base {
                key: other.clone(),
                files: first.len(),
                rows,
                columns: columns.collect(),
            };
            (!base.columns.is_empty()).then_some(base)
        });
        bases.max_by_key(|base| (base.columns.len(), base.files))
    }

    fn column_of(&self, key: &TableKey, at: ColumnKey) -> Option<Arc<Column>> {
        let resident = self.tables.get(key)?.columns.get(&at)?;
        Some(Arc::clone(&resident.column))
    }

    /// A column has grown: it is the first to go.
    fn outgrow(&mut self, key: &TableKey, at: ColumnKey) {
        if let Some(table) = self.tables.get_mut(key) {
            table.is_outgrown = true;
            if let Some(resident) = table.columns.get_mut(&at) {
                resident.last_used = 0;
            }
        }
    }

    /// Let go of columns that have grown before `base` did and that nobody has asked for since.
    fn drop_outgrown(&mut self, key: &FileKey, base: &TableKey) {
        self.tables.retain(|other, table| {
            let (TableKey::Files(files), Anchor::Files { order, .. }) = (other, &table.anchor)
            else {
                return true;
            };
            if other == base || !table.is_outgrown || key.order_behind(files, order).is_none() {
                return true;
            }
            let columns = &mut table.columns;
            columns.retain(|_, column| column.last_used > 0 || is_pinned(&column.pin));
            !columns.is_empty()
        });
    }
}
