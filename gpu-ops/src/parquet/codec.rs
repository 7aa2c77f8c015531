//! Pages decompressed on the host: string dictionaries of any codec, and all pages of codecs that the device lacks.

use std::io::Read;

use datafusion::parquet::basic::Compression;
use warpline_cuda::kernels::{PARQUET_LZ4_RAW, PARQUET_SNAPPY};

/// How the bytes of a chunk's pages are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Codec {
    None,
    Snappy,
    Lz4Raw,
    Zstd,
    Gzip,
    Brotli,
}

impl Codec {
    /// `None` for codecs that nothing here reads.
    pub(crate) fn of(compression: Compression) -> Option<Self> {
        Some(match compression {
            Compression::UNCOMPRESSED => Self::None,
            Compression::SNAPPY => Self::Snappy,
            Compression::LZ4_RAW => Self::Lz4Raw,
            Compression::ZSTD(_) => Self::Zstd,
            Compression::GZIP(_) => Self::Gzip,
            Compression::BROTLI(_) => Self::Brotli,
            _ => return None,
        })
    }

    /// The device's number of it: 0 for bytes as they are; `None` where the host decompresses.
    pub(crate) fn on_device(self) -> Option<u32> {
        match self {
            Self::None => Some(0),
            Self::Snappy => Some(PARQUET_SNAPPY),
            Self::Lz4Raw => Some(PARQUET_LZ4_RAW),
            Self::Zstd | Self::Gzip | Self::Brotli => None,
        }
    }

    /// Decompress all of `bytes` to exactly `out`; false when they are no such stream.
    pub(super) fn decompress(self, bytes: &[u8], out: &mut [u8]) -> bool {
        match self {
            Self::None => {
                let same = bytes.len() == out.len();
                if same {
                    out.copy_from_slice(bytes);
                }
                same
            }
            Self::Snappy => {
                let length = snap::raw::decompress_len(bytes);
                let decoded = |out| snap::raw::Decoder::new().decompress(bytes, out);
                length.is_ok_and(|l| l == out.len()) && decoded(out).is_ok()
            }
            Self::Lz4Raw => {
                let length = lz4_flex::block::decompress_into(bytes, out);
                length.is_ok_and(|length| length == out.len())
            }
            Self::Zstd => {
                let length = zstd::bulk::decompress_to_buffer(bytes, out);
                length.is_ok_and(|length| length == out.len())
            }
            Self::Gzip => filled(flate2::read::MultiGzDecoder::new(bytes), out),
            Self::Brotli => filled(brotli::Decompressor::new(bytes, 4096), out),
        }
    }
}

/// Does the stream fill `out`, and end there?
fn filled(mut stream: impl Read, out: &mut [u8]) -> bool {
    stream.read_exact(out).is_ok() && matches!(stream.read(&mut [0]), Ok(0))
}
