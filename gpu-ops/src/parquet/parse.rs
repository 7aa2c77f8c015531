//! The pages of a chunk, as far as the host looks at them.

use warpline_cuda::kernels as k;

use super::chunk::{ChunkTask, ValueKind};
use super::chunk_bytes::ChunkBytes;
use super::codec::Codec;
use super::counts::Reason;
use super::pages::{Page, Pages, encoding, pages_of};

/// Strings one after the other, and the end of each.
pub(super) type DictionaryStrings = (Vec<u8>, Vec<usize>);

/// A chunk whose pages are known.
pub(super) struct Parsed {
    /// In the list of chunks.
    pub(super) number: usize,
    pub(super) pages: Pages,
    /// Where its bytes begin among those read.
    pub(super) begin: usize,
    pub(super) strings: Option<DictionaryStrings>,
}

/// The pages of a chunk that the device can decode, and the strings of its dictionary.
pub(super) fn parse(
    chunk: &ChunkTask,
    bytes: ChunkBytes<'_>,
) -> std::result::Result<(Pages, Option<DictionaryStrings>), Reason> {
    let pages = pages_of(
        bytes,
        chunk.rows,
        chunk.uncompressed,
        chunk.values.levels > 0,
    )?;
    let strings = chunk.values.kind == k::PARQUET_KIND_CODE;
    for page in &pages.data {
        if !takes(chunk.values, page.encoding) {
            return Err(match strings {
                true => Reason::PlainStrings,
                false => Reason::Encoding,
            });
        }
    }
    let Some(dictionary) = &pages.dictionary else {
        return Ok((pages, strings.then(Default::default)));
    };
    if !strings {
        let needed = u64::from(dictionary.values) * u64::from(chunk.values.bytes);
        let there = match (dictionary.compressed, chunk.codec) {
            (true, codec) if codec != Codec::None => dictionary.uncompressed as usize,
            _ => dictionary.bytes.len(),
        };
        return match needed <= there as u64 {
            true => Ok((pages, None)),
            false => Err(Reason::Malformed),
        };
    }
    let packed = bytes.range(dictionary.bytes.clone());
    let packed = packed.ok_or(Reason::Unreadable)?;
    let mut plain = vec![0; dictionary.uncompressed as usize];
    unpack(chunk.codec, &packed, dictionary, &mut plain)?;
    let strings = plain_strings(&plain, dictionary.values, chunk.values.utf8);
    let strings = strings.ok_or(Reason::Malformed)?;
    Ok((pages, Some(strings)))
}

/// Does the device decode values of this kind in this encoding?
fn takes(values: ValueKind, encoding: u32) -> bool {
    match (values.kind, encoding) {
        // Values are not looked at.
        (k::PARQUET_KIND_PRESENCE, _) => true,
        (k::PARQUET_KIND_CODE, encoding) => encoding == encoding::RLE_DICTIONARY,
        (k::PARQUET_KIND_BYTES, encoding) if values.bytes > 0 => {
            [encoding::PLAIN, encoding::RLE_DICTIONARY].contains(&encoding)
        }
        (
            k::PARQUET_KIND_BYTES,
            encoding::PLAIN
            | encoding::RLE_DICTIONARY
            | encoding::DELTA_LENGTH_BYTE_ARRAY
            | encoding::DELTA_BYTE_ARRAY,
        ) => true,
        (k::PARQUET_KIND_INT96, encoding) => {
            [encoding::PLAIN, encoding::RLE_DICTIONARY].contains(&encoding)
        }
        (k::PARQUET_KIND_BYTES, _) => false,
        (k::PARQUET_KIND_BIT, encoding) => [encoding::PLAIN, encoding::RLE].contains(&encoding),
        (_, encoding::PLAIN | encoding::RLE_DICTIONARY | encoding::BYTE_STREAM_SPLIT) => true,
        (k::PARQUET_KIND_I32 | k::PARQUET_KIND_U32 | k::PARQUET_KIND_I64, encoding) => {
            encoding == encoding::DELTA_BINARY_PACKED
        }
        _ => false,
    }
}

/// Decompress a page on the host.
pub(super) fn unpack(
    codec: Codec,
    bytes: &[u8],
    page: &Page,
    out: &mut [u8],
) -> std::result::Result<(), Reason> {
    let prefix = page.prefix as usize;
    let (levels, rest) = bytes.split_at(prefix);
    let (to_levels, to_rest) = out.split_at_mut(prefix);
    to_levels.copy_from_slice(levels);
    let codec = if page.compressed { codec } else { Codec::None };
    let nothing = rest.is_empty() && to_rest.is_empty();
    match nothing || codec.decompress(rest, to_rest) {
        true => Ok(()),
        false => Err(Reason::Malformed),
    }
}

/// The strings of a PLAIN page, one after the other, and the end of each; `None` when they are malformed, or no UTF-8 where they
/// have to be.
fn plain_strings(bytes: &[u8], count: u32, utf8: bool) -> Option<DictionaryStrings> {
    let mut all = Vec::with_capacity(bytes.len());
    let mut ends = Vec::with_capacity((count as usize).min(bytes.len() / 4));
    let mut rest = bytes;
    for _ in 0..count {
        let (length, after) = rest.split_first_chunk::<4>()?;
        let length = u32::from_le_bytes(*length) as usize;
        let text = after.get(..length)?;
        if utf8 {
            std::str::from_utf8(text).ok()?;
        }
        all.extend_from_slice(text);
        ends.push(all.len());
        rest = &after[length..];
    }
    Some((all, ends))
}
