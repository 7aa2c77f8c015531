//! Migration of columns between device and host memory: eviction, demotion for other needs of a query, promotion.

use std::sync::Arc;

use super::cache::TableCache;
use super::entries::{ColumnKey, Resident, TableKey, Wanted};
use super::loaded::LoadedTable;
use crate::column::{Column, ColumnRoom};
use crate::device::Stream;
use crate::error::{GpuError, Result};
use crate::memory::PressureHandler;

/// A column taken out of the cache, where it was, and what it freed, in bytes.
type Taken = (TableKey, ColumnKey, Resident, usize);

impl TableCache {
    /// Take columns out that nobody uses, least recently used first, until they make `bytes` bytes as `size` counts them.
    pub(super) fn take_idle(&self, bytes: usize, size: impl Fn(&Column) -> usize) -> Vec<Taken> {
        let mut state = self.state.lock();
        let mut idle: Vec<(u64, TableKey, ColumnKey)> = Vec::new();
        for (key, table) in &state.tables {
            for (at, resident) in &table.columns {
                if is_idle(&resident.column) && size(&resident.column) > 0 {
                    idle.push((resident.last_used, key.clone(), *at));
                }
            }
        }
        idle.sort_by_key(|(last_used, _, at)| (*last_used, *at));
        let mut taken = Vec::new();
        let mut freed = 0usize;
        for (_, key, at) in idle {
            if freed >= bytes {
                break;
            }
            let table = state.tables.get_mut(&key);
            if let Some(resident) = table.and_then(|table| table.columns.remove(&at)) {
                let bytes = size(&resident.column);
                freed += bytes;
                taken.push((key, at, resident, bytes));
            }
        }
        taken
    }

    /// Bytes of device memory of columns that nobody uses.
    pub(crate) fn idle_bytes(&self) -> usize {
        let state = self.state.lock();
        let columns = state.tables.values().flat_map(|t| t.columns.values());
        let idle = columns.filter(|resident| is_idle(&resident.column));
        idle.map(|resident| resident.column.budget_bytes(false))
            .sum()
    }

    /// Let go of about `bytes` bytes of host memory; returns how many there were.
    pub(crate) fn release_host(&self, bytes: usize) -> usize {
        let taken = self.take_idle(bytes, |column| column.budget_bytes(true));
        taken.iter().map(|(_, _, _, bytes)| bytes).sum()
    }

    /// Keep evicted columns in host memory, as far as it has room without evicting others.
    fn demote(&self, taken: Vec<Taken>) {
        let Some(host) = &self.host else {
            return;
        };
        let stream = match self.pool.device().create_stream() {
            Ok(stream) => stream,
            Err(error) => {
                log::warn!("evicted columns are not kept in host memory: {error}");
                return;
            }
        };
        for (key, at, resident, bytes) in taken {
            if bytes > host.available() {
                continue;
            }
            match resident.column.moved_to(host, &stream) {
                Ok(column) => {
                    let mut state = self.state.lock();
                    if let Some(table) = state.tables.get_mut(&key) {
                        table.columns.entry(at).or_insert(Resident {
                            column: Arc::new(column),
                            ..resident
                        });
                    }
                }
                Err(error) => log::warn!("an evicted column is not kept in host memory: {error}"),
            }
        }
    }

    /// Do columns of a query lie elsewhere than its room says?
    pub(super) fn misplaced(&self, table: &LoadedTable, room: &ColumnRoom) -> bool {
        if self.host.is_none() {
            return false;
        }
        let columns = || table.columns.iter();
        let resident = columns().filter(|column| !room.holds(column));
        let resident = resident.map(|column| column.budget_bytes(false)).sum();
        // With all of them in device memory and room for them, nothing is to be done.
        columns().any(|column| column.is_in_host_memory()) || !room.take(resident)
    }

    /// Move the columns that were found to where `room` wants them, unless they are pinned; tells which have moved.
    ///
    /// # Errors
    /// [`GpuError::OutOfDeviceMemory`] when a column must leave device memory and host memory has no room for it;
    /// [`GpuError::Device`] from the copies.
    pub(super) fn settle(
        &self,
        columns: &mut [Option<Arc<Column>>],
        pinned: &[bool],
        room: &ColumnRoom,
        stream: &Stream,
    ) -> Result<Vec<usize>> {
        let Some(host) = &self.host else {
            return Ok(vec![]);
        };
        let mut moved: Vec<usize> = Vec::new();
        let mut seen: Vec<(Arc<Column>, Arc<Column>)> = Vec::new();
        // Those that lie in device memory first: room is not made for others by pushing them out.
        let mut order: Vec<usize> = (0..columns.len()).collect();
        order.sort_by_key(|index| columns[*index].as_ref().map(|c| c.is_in_host_memory()));
        for index in order {
            let found = &mut columns[index];
            let Some(column) = found.clone() else {
                continue;
            };
            // The same column twice.
            if let Some((_, now)) = seen.iter().find(|(before, _)| Arc::ptr_eq(before, &column)) {
                *found = Some(Arc::clone(now));
                continue;
            }
            seen.push((Arc::clone(&column), Arc::clone(&column)));
            let bytes = column.budget_bytes(false) + column.budget_bytes(true);
            let fits = room.holds(&column) || room.take(bytes);
            if pinned.get(index) == Some(&true) {
                continue;
            }
            let (on_host, all_on_host) =
                (column.is_in_host_memory(), column.budget_bytes(false) == 0);
            let target = if fits && on_host {
                // Columns that were not used as recently make room.
                &self.pool
            } else if !fits && !all_on_host {
                host
            } else {
                continue;
            };
            match column.moved_to(target, stream) {
                Ok(there) => {
                    let there = Arc::new(there);
                    if let Some((_, now)) = seen.last_mut() {
                        *now = Arc::clone(&there);
                    }
                    *found = Some(there);
                    moved.push(index);
                }
                // It may stay where it is: kernels reach it there.
                Err(GpuError::OutOfDeviceMemory { .. }) if on_host => {}
                Err(other) => return Err(other),
            }
        }
        Ok(moved)
    }

    /// Note that the columns with these places in the request have moved.
    pub(super) fn replace(
        &self,
        key: &TableKey,
        wanted: &[Wanted],
        columns: &[Option<Arc<Column>>],
        moved: &[usize],
    ) {
        let mut state = self.state.lock();
        let Some(table) = state.tables.get_mut(key) else {
            return;
        };
        for index in moved {
            let (Some(wanted), Some(Some(column))) = (wanted.get(*index), columns.get(*index))
            else {
                continue;
            };
            if let Some(at) = table.column_key(*wanted)
                && let Some(resident) = table.columns.get_mut(&at)
            {
                resident.column = Arc::clone(column);
            }
        }
    }
}

impl PressureHandler for TableCache {
    fn release(&self, bytes: usize) -> usize {
        let taken = self.take_idle(bytes, |column| column.budget_bytes(false));
        let freed = taken.iter().map(|(_, _, _, bytes)| bytes).sum();
        // Without the cache's lock; what does not move returns to the pool here.
        self.demote(taken);
        freed
    }
}

/// Does nobody but the cache hold the column or its buffers?
fn is_idle(column: &Arc<Column>) -> bool {
    let mut buffers = column.buffers();
    Arc::strong_count(column) == 1 && buffers.all(|buffer| Arc::strong_count(buffer) == 1)
}
