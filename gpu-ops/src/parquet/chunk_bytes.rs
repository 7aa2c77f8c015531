//! Bytes of column chunks where the host looks at them: in memory, or still in their file.

use std::borrow::Cow;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;

use super::chunk::ChunkTask;

/// The bytes of a chunk.
#[derive(Clone, Copy)]
pub(super) enum ChunkBytes<'a> {
    Memory(&'a [u8]),
    /// From an offset of the file on, so many.
    File(&'a File, u64, usize),
}

impl<'a> ChunkBytes<'a> {
    pub(super) fn len(self) -> usize {
        match self {
            Self::Memory(bytes) => bytes.len(),
            Self::File(_, _, length) => length,
        }
    }

    /// Those of a range; `None` where they are not there.
    pub(super) fn range(self, range: Range<usize>) -> Option<Cow<'a, [u8]>> {
        match self {
            Self::Memory(bytes) => bytes.get(range).map(Cow::Borrowed),
            Self::File(file, begin, length) => {
                let wanted = range.end.checked_sub(range.start)?;
                let mut bytes = vec![0; (range.end <= length).then_some(wanted)?];
                let at = begin.checked_add(range.start as u64)?;
                file.read_exact_at(&mut bytes, at).ok()?;
                Some(bytes.into())
            }
        }
    }

    /// What `read` makes of the bytes from `at` on. Of a file it is shown a few, and more as long as it makes nothing of them.
    pub(super) fn parse<T>(self, at: usize, read: impl Fn(&[u8]) -> Option<T>) -> Option<T> {
        /// Most headers of pages take some ten bytes, those with statistics of strings more.
        const FEW: usize = 256;
        let left = self.len().checked_sub(at)?;
        let mut shown = match self {
            Self::Memory(_) => left,
            Self::File(..) => left.min(FEW),
        };
        loop {
            let bytes = self.range(at..at + shown)?;
            match read(&bytes) {
                None if shown < left => shown = left.min(shown * 16),
                made => return made,
            }
        }
    }
}

/// The files of some chunks, opened; the chunks are thought to lie one after the other.
pub(super) struct OpenFiles<'a> {
    chunks: &'a [ChunkTask],
    /// By chunk; `None` where it cannot be opened.
    files: Vec<Option<Arc<File>>>,
}

impl<'a> OpenFiles<'a> {
    pub(super) fn new(chunks: &'a [ChunkTask]) -> Self {
        let mut last: Option<(&Arc<PathBuf>, Option<Arc<File>>)> = None;
        let files = chunks.iter().map(|chunk| {
            let open = || match File::open(&*chunk.path) {
                Ok(file) => Some(Arc::new(file)),
                Err(error) => {
                    log::debug!("{}: {error}", chunk.path.display());
                    None
                }
            };
            let file = match &last {
                Some((path, file)) if **path == chunk.path => file.clone(),
                _ => open(),
            };
            last = Some((&chunk.path, file.clone()));
            file
        });
        Self {
            files: files.collect(),
            chunks,
        }
    }

    /// The bytes of a chunk in its file.
    pub(super) fn chunk(&self, number: usize) -> Option<ChunkBytes<'_>> {
        let range = &self.chunks.get(number)?.bytes;
        let length = usize::try_from(range.end.checked_sub(range.start)?).ok()?;
        let file = self.files.get(number)?.as_deref()?;
        Some(ChunkBytes::File(file, range.start, length))
    }

    /// Where each chunk begins among the bytes of all; `None` of those whose file is not open.
    pub(super) fn begins(&self) -> Vec<Option<usize>> {
        let mut at = 0;
        let chunks = self.chunks.iter().zip(&self.files);
        let begins = chunks.map(|(chunk, file)| {
            let begin = at;
            at += (chunk.bytes.end - chunk.bytes.start) as usize;
            file.as_ref().map(|_| begin)
        });
        begins.collect()
    }

    /// Read the bytes of all chunks from number `from` on into `out`; the numbers of the chunks that cannot be read.
    pub(super) fn read(&self, from: usize, out: &mut [u8]) -> Vec<usize> {
        let (mut at, end) = (0, from + out.len());
        let mut unreadable = Vec::new();
        for (number, (chunk, file)) in self.chunks.iter().zip(&self.files).enumerate() {
            let length = (chunk.bytes.end - chunk.bytes.start) as usize;
            let (first, last) = (from.max(at), end.min(at + length));
            if first < last {
                let offset = chunk.bytes.start + (first - at) as u64;
                let part = &mut out[first - from..last - from];
                let read = file.as_ref().map(|file| file.read_exact_at(part, offset));
                if let Some(Err(error)) = &read {
                    log::debug!("{}: {error}", chunk.path.display());
                }
                if !matches!(read, Some(Ok(()))) {
                    unreadable.push(number);
                }
            }
            at += length;
        }
        unreadable
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;
    use crate::column::Target;
    use crate::device::DevicePtr;
    use crate::parquet::{Codec, ValueKind};

    fn chunk(path: PathBuf, bytes: Range<u64>) -> ChunkTask {
        ChunkTask {
            path: Arc::new(path),
            bytes,
            codec: Codec::None,
            uncompressed: 0,
            values: ValueKind {
                kind: 0,
                bytes: 4,
                levels: 0,
                present: 0,
                utf8: true,
            },
            first_row: 0,
            rows: 0,
            target: Target {
                data: DevicePtr::NULL,
                validity: DevicePtr::NULL,
                base: 0,
                width: 4,
            },
        }
    }

    #[test]
    fn a_file_is_shown_as_far_as_needed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let content: Vec<u8> = (0..10_000u32).map(|i| (i % 251) as u8).collect();
        std::fs::write(&path, &content).unwrap();
        let chunks = [chunk(path, 100..9_000)];
        let files = OpenFiles::new(&chunks);
        let (file, memory) = (
            files.chunk(0).unwrap(),
            ChunkBytes::Memory(&content[100..9_000]),
        );
        for bytes in [file, memory] {
            assert_eq!(bytes.len(), 8_900);
            assert_eq!(*bytes.range(7..9).unwrap(), content[107..109]);
            assert!(bytes.range(8_899..8_901).is_none());
            for needed in [1, 256, 257, 5_000, 8_000] {
                let at = 900;
                let sum = |b: &[u8]| Some(b.get(..needed)?.iter().map(|b| u64::from(*b)).sum());
                let want: u64 = sum(&content[100 + at..]).unwrap();
                assert_eq!(bytes.parse(at, sum), Some(want));
            }
            assert_eq!(
                bytes.parse(900, |b| b.get(8_000).copied()),
                None,
                "beyond its end"
            );
            assert_eq!(bytes.parse(8_901, |_| Some(())), None);
            assert_eq!(bytes.parse(8_900, |b| Some(b.len())), Some(0));
        }
    }

    #[test]
    fn pieces_of_several_chunks_are_read_and_what_is_missing_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let [a, b] = ["a", "b"].map(|name| folder.path().join(name));
        std::fs::write(&a, [1, 2, 3, 4, 5]).unwrap();
        std::fs::write(&b, [6, 7, 8]).unwrap();
        let missing = folder.path().join("c");
        let chunks = [
            chunk(a.clone(), 1..4),
            chunk(a, 0..1),
            chunk(missing, 0..2),
            chunk(b.clone(), 0..3),
            chunk(b, 2..5),
        ];
        let files = OpenFiles::new(&chunks);
        assert_eq!(files.begins(), [Some(0), Some(3), None, Some(6), Some(9)]);
        assert!(files.chunk(2).is_none() && files.chunk(5).is_none());
        let mut out = [0; 4];
        assert!(files.read(0, &mut out).is_empty());
        assert_eq!(out, [2, 3, 4, 1]);
        let mut out = [0; 3];
        assert_eq!(files.read(5, &mut out), [2]);
        assert_eq!(out[1..], [6, 7]);
        // The last one is cut short.
        assert_eq!(files.read(8, &mut [0; 4]), [4]);
        assert!(files.read(12, &mut []).is_empty());
    }
}
