//! The pages of a column chunk: a walk over their headers.

use std::ops::Range;

use warpline_cuda::kernels::PARQUET_LEVELS_PREFIXED;

use super::chunk_bytes::ChunkBytes;
use super::counts::Reason;
use super::thrift::{PageKind, page_header};

/// The format's numbers of encodings.
pub(crate) mod encoding {
    pub(crate) const PLAIN: u32 = 0;
    pub(crate) const PLAIN_DICTIONARY: u32 = 2;
    pub(crate) const RLE: u32 = 3;
    pub(crate) const DELTA_BINARY_PACKED: u32 = 5;
    pub(crate) const DELTA_LENGTH_BYTE_ARRAY: u32 = 6;
    pub(crate) const DELTA_BYTE_ARRAY: u32 = 7;
    pub(crate) const RLE_DICTIONARY: u32 = 8;
    pub(crate) const BYTE_STREAM_SPLIT: u32 = 9;
}

/// Most bytes of a page, and values of it: offsets and numbers on the device have 32 bits, a few of them to spare.
const MOST: u32 = 1 << 30;

/// A page of a chunk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Page {
    /// Its bytes in those of the chunk, without the header.
    pub(crate) bytes: Range<usize>,
    /// Bytes without compression.
    pub(crate) uncompressed: u32,
    /// Bytes in front that are never compressed.
    pub(crate) prefix: u32,
    /// Are the others compressed, if the chunk has a codec?
    pub(crate) compressed: bool,
    /// Values, NULLs included.
    pub(crate) values: u32,
    /// Of data: the number of the encoding, with one for both of dictionaries.
    pub(crate) encoding: u32,
    /// Of data: bytes of definition levels, or that their length stands in front.
    pub(crate) levels: u32,
}

/// The pages of a chunk.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Pages {
    pub(crate) dictionary: Option<Page>,
    /// In the order of their rows.
    pub(crate) data: Vec<Page>,
}

/// The pages in the bytes of a chunk of `rows` rows and `uncompressed` bytes without compression; `optional`: rows have
/// definition levels.
///
/// # Errors
/// Why the device cannot decode them.
pub(super) fn pages_of(
    bytes: ChunkBytes<'_>,
    rows: usize,
    uncompressed: u64,
    optional: bool,
) -> Result<Pages, Reason> {
    let mut pages = Pages::default();
    let (mut at, mut values) = (0, 0usize);
    while values < rows {
        let header = bytes.parse(at, page_header);
        let (header, used) = header.ok_or(Reason::Malformed)?;
        let begin = at + used;
        let end = begin.checked_add(header.compressed_bytes as usize);
        let end = end.filter(|end| *end <= bytes.len());
        at = end.ok_or(Reason::Malformed)?;
        // Room is made for what a page says.
        if u64::from(header.uncompressed_bytes) > uncompressed {
            return Err(Reason::Malformed);
        }
        let page = Page {
            bytes: begin..at,
            uncompressed: header.uncompressed_bytes,
            prefix: 0,
            compressed: true,
            values: 0,
            encoding: 0,
            levels: PARQUET_LEVELS_PREFIXED,
        };
        let page = match header.kind {
            PageKind::Other => continue,
            PageKind::Dictionary { values, encoding } => {
                let plain = [encoding::PLAIN, encoding::PLAIN_DICTIONARY].contains(&encoding);
                if !plain {
                    return Err(Reason::Encoding);
                }
                if pages.dictionary.is_some() || !pages.data.is_empty() {
                    return Err(Reason::Malformed);
                }
                pages.dictionary = Some(checked(Page { values, ..page })?);
                continue;
            }
            PageKind::Data {
                values,
                encoding,
                definition_encoding,
            } => {
                if optional && definition_encoding != encoding::RLE {
                    return Err(Reason::Encoding);
                }
                Page {
                    values,
                    encoding,
                    ..page
                }
            }
            PageKind::DataV2 {
                values,
                encoding,
                definition_bytes,
                repetition_bytes,
                compressed,
                ..
            } => {
                // Flat columns have no repetition levels, and required ones no levels at all.
                if repetition_bytes != 0 || (!optional && definition_bytes != 0) {
                    return Err(Reason::Malformed);
                }
                Page {
                    values,
                    encoding,
                    compressed,
                    prefix: definition_bytes,
                    levels: definition_bytes,
                    ..page
                }
            }
        };
        let encoding = match page.encoding {
            encoding::PLAIN_DICTIONARY => encoding::RLE_DICTIONARY,
            other => other,
        };
        if encoding == encoding::RLE_DICTIONARY && pages.dictionary.is_none() {
            return Err(Reason::Malformed);
        }
        values += page.values as usize;
        pages.data.push(checked(Page { encoding, ..page })?);
    }
    if values != rows {
        return Err(Reason::Malformed);
    }
    Ok(pages)
}

fn checked(page: Page) -> Result<Page, Reason> {
    let sane = page.uncompressed <= MOST
        && page.values <= MOST
        && page.prefix <= page.uncompressed
        && page.prefix as usize <= page.bytes.len()
        && page.bytes.len() <= MOST as usize;
    sane.then_some(page).ok_or(Reason::Malformed)
}
