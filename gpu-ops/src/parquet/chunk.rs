//! A column chunk to decode, and what becomes of it.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use super::codec::Codec;
use super::counts::Reason;
use crate::column::{ChunkFacts, Target};

/// How the values of a column lie in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ValueKind {
    /// A `PARQUET_KIND`.
    pub(crate) kind: u32,
    /// Bytes of a value; 0 of bits, and of strings that say how many they have.
    pub(crate) bytes: u32,
    /// The definition level of a value: how many fields around it, and itself, may be NULL. Smaller ones are those of NULLs.
    pub(crate) levels: u32,
    /// The least level of a row that is there: that of a value, or of a struct around it.
    pub(crate) present: u32,
    /// Are strings of characters, which have to be UTF-8?
    pub(crate) utf8: bool,
}

/// A column chunk to decode.
#[derive(Debug, Clone)]
pub(crate) struct ChunkTask {
    /// Its file.
    pub(crate) path: Arc<PathBuf>,
    /// Its bytes in the file.
    pub(crate) bytes: Range<u64>,
    pub(crate) codec: Codec,
    /// Bytes without compression, as the file's metadata says.
    pub(crate) uncompressed: u64,
    pub(crate) values: ValueKind,
    /// Its first row in the column.
    pub(crate) first_row: usize,
    pub(crate) rows: usize,
    pub(crate) target: Target,
}

/// What became of a chunk.
pub(crate) type Outcome = std::result::Result<ChunkFacts, Reason>;
