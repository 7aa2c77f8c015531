//! Resident tables: scans with an identity, loaded column by column and kept between queries.
//!
//! [`TableSource::analyze`] reduces a scan of a physical plan to the table behind it: predicates,
//! limits and projections that were pushed into the scan are taken off, so that what is cached is
//! always the whole column. [`TableCache::get_or_load`] makes columns resident, each once for all
//! sessions, and lets go of the least recently used ones under memory pressure, but for those of a [`PinnedTable`].
//!
//! Files are read by several readers at a time, in units. The units of parquet are whole row groups, whose metadata
//! determines their position in the columns (`row_groups`), so that a unit is encoded and copied while later ones are
//! decoded (`load`, `preallocated`), and kernels process the rows in place while others are read (`progress`).
//!
//! The fields of structs are columns of their own, behind those of the table (`struct_fields`), and so is what no kernel computes
//! of its columns (`computed`). The elements of lists are a table
//! beside it (`elements`).
//!
//! All columns of a table have one canonical row order, however the scan was split: files by path and ranges by
//! position, the batches of memory tables as the cache first saw them. Files that are added to a table of which columns are
//! resident come behind those that were there, so that its columns grow by the new rows (`grow`).

mod cache;
mod computed;
mod disk;
mod elements;
mod entries;
mod files;
mod grow;
mod input;
mod load;
mod load_elements;
mod load_input;
mod loaded;
mod memory;
mod migrate;
mod parquet;
mod parquet_chunks;
mod parquet_finish;
mod parquet_kernels;
mod parquet_lanes;
mod parquet_readers;
mod parquet_tasks;
mod pin;
mod preallocated;
mod progress;
mod read;
mod resident;
mod row_groups;
mod sealed;
mod source;
mod struct_fields;
mod units;
mod whole_files;

pub use cache::{ResidentColumn, TableCache};
pub use disk::unchanged_on_disk;
pub use input::InputExec;
pub(crate) use input::{InputRows, InputRowsExec, StoredBatch};
pub(crate) use load::{ColumnRequest, LoadFor};
pub use loaded::LoadedTable;
pub use pin::PinnedTable;
pub(crate) use progress::{LoadProgress, WithdrawOnDrop};
pub use resident::{ResidentExec, ResidentProvider, ResidentTable};
pub use sealed::{ChosenRows, SealedScanExec};
pub use source::{ScanAnalysis, TableSource};
pub use struct_fields::take_field;
pub use whole_files::whole_files;
