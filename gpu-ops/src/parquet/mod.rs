//! Flat parquet columns decoded on the device, in the place and the narrow encoding that the column keeps.
//!
//! # Stages
//!
//! A task is some column chunks: at most 32 MiB of file, 128 where pages are large, or one chunk that has more. For each task a thread of the host
//!
//! | stage | where | bytes moved, of a chunk of `c` compressed, `u` uncompressed bytes and `n` rows of `w` bytes |
//! |---|---|---|
//! | headers | a thread a task, `pread` of a few bytes each: `thrift`, `pages` | some 30 bytes a page |
//! | read | the same thread, `pread` into page-locked slabs of 2 MiB in turn (`lanes`) | `c` from the page cache or disk |
//! | strings of dictionaries | the same thread: decompressed (`codec`), checked as UTF-8 where they are text | the dictionary page |
//! | Zstd and gzip | the same thread, from a slab with the whole task into another | `c` read, `u` written; `u` are copied then |
//! | copy | copy engine, on streams that all threads share | `c` over the link |
//! | tables of pages | the thread that launches a batch: what has been read by then (`batch`) | 72 bytes a page over the link |
//! | decompress | device, a warp a page of the batch (`parquet_decompress`) | `c` read, `u` written, copies read again from L2 |
//! | decode and encode | device, a block a page (`parquet_decode`) | `u` read, `4 n` or `8 n` of scratch for codes and deltas, `w n` written, `n / 8` of validity |
//! | strings as bytes | device, a block a page (`parquet_strings`), once their bytes are summed up on the host | the strings twice, 8 bytes a value and a row |
//! | dictionary of them | device (`column_texts`), which sorts one of each kind where there are many (`string_order`) | the strings twice, 12 bytes a row at random; some 600 bytes a string and round of the sort; what differs over the link |
//! | codes of strings | device, once all dictionaries are known (`parquet_remap`) | `4 n` read, `w n` written |
//! | statistics | device, over the finished column ([`crate::column`]) | `w n` read twice, 128 KiB or a bit a possible value of scratch |
//!
//! The slabs of all loads are one block, page-locked once; the scratch of a load's tasks is another (`places`), from the pool, which
//! keeps it for the next load. A slab is filled again once it is copied: it does not wait for the device to decode. Nothing but
//! page headers and string dictionaries is looked at on the host. The link is the stage that should decide: everything on the device
//! reads or writes a few bytes for each that is copied. Threads read on while the device works on batches of what they have read: a warp takes milliseconds for a page, longer than a
//! thread to read many, so what counts is how many pages are decompressed at a time.
//!
//! # What decides about a column
//!
//! Width and base of a number column follow from the range that the row groups' statistics tell, as when the CPU decodes;
//! every page reports the range it has met, and a column whose values leave it is read again by the CPU; without statistics, or where
//! they say more than there is, codes are made narrower when all rows are there. The kernels decode; what
//! planning needs (order, distinct values, sketch, sample) comes from the finished column, by kernels that compute what
//! [`crate::column`] computes on the host, bit for bit. Where all chunks of a string column are dictionary
//! encoded throughout, the codes of the file go to a scratch column, the strings in use (a bitmap by dictionary) are merged and
//! sorted on the host as for any load, and the codes are translated on the device; they are never expanded. Else the strings
//! of every chunk go to room of its own as they are, and behind each other when all are there; where they repeat, or a query
//! needs codes, rows are entered into a table by their strings and get the rank of their own among those that differ.
//!
//! # The way back to the CPU
//!
//! With `auto` a column that the CPU decodes before a device would have begun stays there (`price`). A chunk that has anything else (a type, codec or encoding not taken, a malformed page, values beyond 64
//! bits, a store that is not the local file system) has a [`Reason`]. The CPU's reader decodes it, its rows go to their
//! place in the same column, and the chunk is counted with its reason. Where most chunks of a column have one, the column
//! is read by the CPU as if there were no device. Every page is checked against its bounds on the device as well: it
//! reports an error, and the chunk goes to the CPU, whose reader says what is wrong.

mod batch;
mod chunk;
mod chunk_bytes;
mod codec;
mod counts;
mod kernels;
mod lanes;
mod pages;
mod parse;
mod places;
mod plan;
mod price;
mod scratch;
mod slab;
mod task;
mod thrift;

pub(crate) use batch::Batch;
pub(crate) use chunk::{ChunkTask, ValueKind};
pub(crate) use codec::Codec;
pub use counts::{ChunkCounts, ParquetReader, Reason};
pub(crate) use kernels::Kernels;
pub(crate) use lanes::{LANE_BYTES, Lanes};
pub(crate) use places::{Place, Places};
pub(crate) use price::{ChunkSize, cpu_is_sooner, cpu_time};
pub(crate) use task::{Begun, Decoder};
