//! Headers of parquet pages, read from Thrift's compact protocol.
//!
//! Every read is checked: damaged bytes yield `None`. Fields that are not asked for are skipped, nested ones up to
//! [`MOST_NESTED`] levels.

/// Structures, lists and maps within each other.
const MOST_NESTED: usize = 16;

/// What kind of page follows, and what it says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PageKind {
    /// Version 1.
    Data {
        values: u32,
        encoding: u32,
        definition_encoding: u32,
    },
    /// Version 2.
    DataV2 {
        values: u32,
        nulls: u32,
        encoding: u32,
        definition_bytes: u32,
        repetition_bytes: u32,
        compressed: bool,
    },
    Dictionary {
        values: u32,
        encoding: u32,
    },
    /// A kind that readers pass over.
    Other,
}

/// The header of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PageHeader {
    pub(super) uncompressed_bytes: u32,
    pub(super) compressed_bytes: u32,
    pub(super) kind: PageKind,
}

/// Kinds of values in the compact protocol.
mod wire {
    pub(super) const TRUE: u8 = 1;
    pub(super) const FALSE: u8 = 2;
    pub(super) const BYTE: u8 = 3;
    pub(super) const I16: u8 = 4;
    pub(super) const I32: u8 = 5;
    pub(super) const I64: u8 = 6;
    pub(super) const DOUBLE: u8 = 7;
    pub(super) const BINARY: u8 = 8;
    pub(super) const LIST: u8 = 9;
    pub(super) const SET: u8 = 10;
    pub(super) const MAP: u8 = 11;
    pub(super) const STRUCT: u8 = 12;
}

/// The header that begins `bytes`, and the bytes that it takes; `None` when these are no header.
pub(super) fn page_header(bytes: &[u8]) -> Option<(PageHeader, usize)> {
    let mut reader = Reader { bytes, at: 0 };
    let (mut kind, mut uncompressed, mut compressed) = (None, None, None);
    let (mut data, mut dictionary, mut data_v2) = (None, None, None);
    reader.fields(|reader, field, wire| {
        match field {
            1 => kind = Some(reader.i32(wire)?),
            2 => uncompressed = Some(reader.size(wire)?),
            3 => compressed = Some(reader.size(wire)?),
            5 => data = Some(reader.data(wire)?),
            7 => dictionary = Some(reader.dictionary(wire)?),
            8 => data_v2 = Some(reader.data_v2(wire)?),
            _ => reader.skip(wire, 0)?,
        }
        Some(())
    })?;
    let kind = match kind? {
        0 => data?,
        2 => dictionary?,
        3 => data_v2?,
        _ => PageKind::Other,
    };
    let header = PageHeader {
        uncompressed_bytes: uncompressed?,
        compressed_bytes: compressed?,
        kind,
    };
    Some((header, reader.at))
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn byte(&mut self) -> Option<u8> {
        let byte = *self.bytes.get(self.at)?;
        self.at += 1;
        Some(byte)
    }

    fn advance(&mut self, bytes: u64) -> Option<()> {
        let left = (self.bytes.len() - self.at) as u64;
        self.at += usize::try_from(bytes).ok().filter(|_| bytes <= left)?;
        Some(())
    }

    fn varint(&mut self) -> Option<u64> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }

    fn i64(&mut self) -> Option<i64> {
        let value = self.varint()?;
        Some((value >> 1) as i64 ^ -((value & 1) as i64))
    }

    fn i32(&mut self, wire: u8) -> Option<i32> {
        if wire != wire::I32 {
            return None;
        }
        self.i64()?.try_into().ok()
    }

    /// A number that is not negative.
    fn size(&mut self, wire: u8) -> Option<u32> {
        self.i32(wire)?.try_into().ok()
    }

    /// Visit the fields of a structure; `visit` reads the value of each.
    fn fields(&mut self, mut visit: impl FnMut(&mut Self, i64, u8) -> Option<()>) -> Option<()> {
        let mut field = 0i64;
        loop {
            let head = self.byte()?;
            if head == 0 {
                return Some(());
            }
            let wire = head & 0x0f;
            field = match head >> 4 {
                0 => self.i64()?,
                delta => field.checked_add(i64::from(delta))?,
            };
            visit(self, field, wire)?;
        }
    }

    fn skip(&mut self, wire: u8, nested: usize) -> Option<()> {
        if nested > MOST_NESTED {
            return None;
        }
        match wire {
            // Booleans as fields are their own kind.
            wire::TRUE | wire::FALSE => Some(()),
            wire::BYTE => self.advance(1),
            wire::I16 | wire::I32 | wire::I64 => self.varint().map(|_| ()),
            wire::DOUBLE => self.advance(8),
            wire::BINARY => {
                let bytes = self.varint()?;
                self.advance(bytes)
            }
            wire::LIST | wire::SET => {
                let head = self.byte()?;
                let count = match head >> 4 {
                    15 => self.varint()?,
                    count => u64::from(count),
                };
                for _ in 0..count {
                    self.skip_element(head & 0x0f, nested + 1)?;
                }
                Some(())
            }
            wire::MAP => {
                let count = self.varint()?;
                if count == 0 {
                    return Some(());
                }
                let kinds = self.byte()?;
                for _ in 0..count {
                    self.skip_element(kinds >> 4, nested + 1)?;
                    self.skip_element(kinds & 0x0f, nested + 1)?;
                }
                Some(())
            }
            wire::STRUCT => self.fields(|reader, _, wire| reader.skip(wire, nested + 1)),
            _ => None,
        }
    }

    /// Booleans in lists take a byte.
    fn skip_element(&mut self, wire: u8, nested: usize) -> Option<()> {
        match wire {
            wire::TRUE | wire::FALSE => self.advance(1),
            wire => self.skip(wire, nested),
        }
    }

    fn data(&mut self, wire: u8) -> Option<PageKind> {
        let (mut values, mut encoding, mut definition) = (None, None, None);
        self.structure(wire, |reader, field, wire| {
            match field {
                1 => values = Some(reader.size(wire)?),
                2 => encoding = Some(reader.size(wire)?),
                3 => definition = Some(reader.size(wire)?),
                _ => reader.skip(wire, 1)?,
            }
            Some(())
        })?;
        Some(PageKind::Data {
            values: values?,
            encoding: encoding?,
            definition_encoding: definition?,
        })
    }

    fn dictionary(&mut self, wire: u8) -> Option<PageKind> {
        let (mut values, mut encoding) = (None, None);
        self.structure(wire, |reader, field, wire| {
            match field {
                1 => values = Some(reader.size(wire)?),
                2 => encoding = Some(reader.size(wire)?),
                _ => reader.skip(wire, 1)?,
            }
            Some(())
        })?;
        Some(PageKind::Dictionary {
            values: values?,
            encoding: encoding?,
        })
    }

    fn data_v2(&mut self, wire: u8) -> Option<PageKind> {
        let (mut values, mut nulls, mut encoding) = (None, None, None);
        let (mut definition, mut repetition, mut compressed) = (None, None, true);
        self.structure(wire, |reader, field, wire| {
            match field {
                1 => values = Some(reader.size(wire)?),
                2 => nulls = Some(reader.size(wire)?),
                4 => encoding = Some(reader.size(wire)?),
                5 => definition = Some(reader.size(wire)?),
                6 => repetition = Some(reader.size(wire)?),
                7 => match wire {
                    wire::TRUE => compressed = true,
                    wire::FALSE => compressed = false,
                    _ => return None,
                },
                _ => reader.skip(wire, 1)?,
            }
            Some(())
        })?;
        Some(PageKind::DataV2 {
            values: values?,
            nulls: nulls?,
            encoding: encoding?,
            definition_bytes: definition?,
            repetition_bytes: repetition?,
            compressed,
        })
    }

    fn structure(
        &mut self,
        wire: u8,
        visit: impl FnMut(&mut Self, i64, u8) -> Option<()>,
    ) -> Option<()> {
        if wire != wire::STRUCT {
            return None;
        }
        self.fields(visit)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    /// A data page of 300 values, with statistics that are skipped and a field from the future.
    const HEADER: &[u8] = &[
        0x15, 0x00, // type: data page
        0x15, 0x80, 0x10, // 1024 bytes
        0x15, 0xc8, 0x01, // 100 compressed
        0x2c, // data page header
        0x15, 0xd8, 0x04, // 300 values
        0x15, 0x10, // RLE_DICTIONARY
        0x15, 0x06, // RLE
        0x15, 0x06, // RLE
        0x1c, 0x18, 0x02, b'a', b'b', 0x29, 0x15, 0x02, 0x00, // statistics with a list
        0x00, // end of data page header
        0x11, // field 6: true
        0x00, // end
        0xff, // bytes of the page
    ];

    #[test]
    fn a_header_is_read_and_what_is_not_known_is_skipped() {
        let (header, used) = page_header(HEADER).unwrap();
        assert_eq!(used, HEADER.len() - 1);
        assert_eq!(
            header,
            PageHeader {
                uncompressed_bytes: 1024,
                compressed_bytes: 100,
                kind: PageKind::Data {
                    values: 300,
                    encoding: 8,
                    definition_encoding: 3,
                },
            }
        );
    }

    #[test]
    fn damaged_headers_are_none_and_never_panic() {
        for end in 0..HEADER.len() - 1 {
            assert_eq!(page_header(&HEADER[..end]), None, "cut at {end}");
        }
        for at in 0..HEADER.len() {
            for value in 0..=255 {
                let mut bytes = HEADER.to_vec();
                bytes[at] = value;
                page_header(&bytes);
            }
        }
        // Structures within each other without end.
        assert_eq!(page_header(&[0x9c; 1 << 16]), None);
        assert_eq!(page_header(&[0x99; 1 << 16]), None);
    }
}
