//! Why the CPU decodes a chunk of a parquet file, and how many chunks were decoded where.

use std::collections::BTreeMap;
use std::fmt;

/// Which decoder reads parquet columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ParquetReader {
    /// The CPU's.
    Cpu,
    /// The device's, chunk by chunk, where it can.
    Device,
    /// On a GPU the device's, where it can and is expected to be sooner; the CPU's in the emulator.
    #[default]
    Auto,
}

impl ParquetReader {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Cpu, Self::Device, Self::Auto];
}

impl fmt::Display for ParquetReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cpu => "cpu",
            Self::Device => "device",
            Self::Auto => "auto",
        })
    }
}

/// Why the CPU decodes a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// The column's type is not decoded on the device.
    Type,
    /// The file's type of the column is not the table's, or the file lacks the column.
    Schema,
    /// The column is nested.
    Nested,
    /// A codec that is not taken.
    Codec,
    /// An encoding of values or levels that is not taken.
    Encoding,
    /// Strings that are not dictionary encoded.
    PlainStrings,
    /// Row groups do not tell the range of the column's values.
    NoRange,
    /// Row groups tell another range, or other NULLs, than their rows have.
    OtherRange,
    /// Values of more than 64 bits.
    Wide,
    /// Pages or their headers are malformed; the CPU's reader says how.
    Malformed,
    /// The files are not in the local file system, or not in whole row groups.
    Store,
    /// The file could not be read, or is encrypted.
    Unreadable,
    /// No memory for decoding on the device.
    Memory,
    /// The CPU is expected to be sooner.
    Price,
    /// The column is computed of others.
    Computed,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Type => "type",
            Self::Schema => "schema of the file",
            Self::Nested => "nested column",
            Self::Codec => "codec",
            Self::Encoding => "encoding",
            Self::PlainStrings => "strings without dictionary",
            Self::NoRange => "no statistics",
            Self::OtherRange => "statistics that do not hold",
            Self::Wide => "values beyond 64 bits",
            Self::Malformed => "malformed page",
            Self::Store => "not in local files",
            Self::Unreadable => "unreadable",
            Self::Memory => "no device memory",
            Self::Price => "sooner there",
            Self::Computed => "computed columns",
        })
    }
}

/// Column chunks by who decoded them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ChunkCounts {
    /// Decoded on the device.
    pub device: u64,
    /// Decoded by the CPU, by reason.
    pub cpu: BTreeMap<Reason, u64>,
}

impl ChunkCounts {
    /// So many more by the CPU.
    pub(crate) fn on_cpu(&mut self, reason: Reason, chunks: u64) {
        if chunks > 0 {
            *self.cpu.entry(reason).or_default() += chunks;
        }
    }

    /// All that the CPU decoded.
    pub fn by_cpu(&self) -> u64 {
        self.cpu.values().sum()
    }

    /// Was no chunk decoded where the device was asked to?
    pub fn is_empty(&self) -> bool {
        self.device == 0 && self.cpu.is_empty()
    }

    /// Add those of another load.
    pub(crate) fn add(&mut self, other: &Self) {
        self.device += other.device;
        for (reason, chunks) in &other.cpu {
            self.on_cpu(*reason, *chunks);
        }
    }
}

impl fmt::Display for ChunkCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} chunks on the device, {} on the CPU",
            self.device,
            self.by_cpu()
        )?;
        for (number, (reason, chunks)) in self.cpu.iter().enumerate() {
            let before = if number == 0 { ": " } else { ", " };
            write!(f, "{before}{chunks} {reason}")?;
        }
        Ok(())
    }
}
