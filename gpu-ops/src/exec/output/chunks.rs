//! Large outputs: chunk by chunk from where they lie to Arrow arrays, while their readers read.
//!
//! The rows stay where the run left them, in device memory or in host memory, until their chunk is asked for: a chunk is copied
//! and decoded while the one before is read, so that an output takes no more host memory than a few chunks of it do. What it
//! holds of device memory stays reserved until the last chunk is copied or nobody reads any more. Where others are short of
//! it, the rows that are left move to page-locked host memory, if that has room ([`Held`]).

use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Weak};

use arrow::array::{ArrayRef, RecordBatch};
use arrow::buffer::Buffer;
use arrow::compute::concat;
use arrow::datatypes::SchemaRef;
use parking_lot::Mutex;

use crate::codegen::{ColumnLayout, Part};
use crate::column::Column;
use crate::device::{Stream, StreamLease};
use crate::error::{GpuError, Result};
use crate::exec::frame::results::Frame;
use crate::exec::output::rows::{HostColumn, HostRows, host_bytes};
use crate::exec::output::text::{RowStrings, base_of};
use crate::memory::{DeviceBuffer, Held};
use crate::runtime::Runtime;

/// Values of a chunk: enough for several threads and for copies at the speed of the link, little beside a large output. Builds
/// for tests have smaller ones, so that outputs of their size come in several.
const CHUNK_VALUES: usize = if cfg!(debug_assertions) {
    1 << 16
} else {
    1 << 22
};
/// Chunks have a multiple of so many rows.
const CHUNK_STEP: usize = 8192;
/// Copies of parts begin at multiples of this.
const ALIGNMENT: usize = 256;

/// Rows of a chunk of so many columns.
pub(in crate::exec) fn chunk_rows(columns: usize) -> usize {
    (CHUNK_VALUES / columns.max(1)).next_multiple_of(CHUNK_STEP)
}

/// An output that is read in chunks.
pub(in crate::exec) struct OutputChunks {
    schema: SchemaRef,
    rows: usize,
    /// One for each field of the schema.
    columns: Vec<ChunkColumn>,
    left: Mutex<Left>,
    runtime: Arc<Runtime>,
    /// Copies go here, one chunk at a time.
    stream: Mutex<StreamLease>,
}

/// What is known of a column wherever its rows lie.
struct ChunkColumn {
    layout: ColumnLayout,
    /// Strings by row: the column that has them.
    text: Option<Arc<Column>>,
}

/// What has not been asked for.
struct Left {
    /// The first row of it.
    at: usize,
    /// `None`: nothing is left.
    places: Option<Arc<Places>>,
}

/// Where rows lie, from one of them on.
struct Places {
    first: usize,
    columns: Vec<ColumnPlaces>,
}

struct ColumnPlaces {
    codes: Place,
    /// A byte a row, 0 for NULL; where the layout is nullable.
    valid: Option<Place>,
}

/// A part of a column in a buffer.
#[derive(Clone)]
struct Place {
    buffer: Arc<DeviceBuffer>,
    /// The first byte of the first row.
    offset: usize,
    /// Bytes of a row.
    unit: usize,
}

/// Some rows of a part.
struct Piece {
    buffer: Arc<DeviceBuffer>,
    offset: usize,
    bytes: usize,
}

impl Place {
    /// Of these rows, counted from the first that is there.
    fn piece(&self, rows: &Range<usize>) -> Piece {
        Piece {
            buffer: Arc::clone(&self.buffer),
            offset: self.offset + rows.start * self.unit,
            bytes: rows.len() * self.unit,
        }
    }
}

impl Places {
    fn parts(&self) -> impl Iterator<Item = &Place> {
        let parts = self.columns.iter();
        parts.flat_map(|column| std::iter::once(&column.codes).chain(&column.valid))
    }

    /// The buffers of device memory, each once.
    fn device_buffers(&self) -> Vec<&Arc<DeviceBuffer>> {
        let mut buffers: Vec<&Arc<DeviceBuffer>> = Vec::new();
        for part in self.parts().filter(|part| !part.buffer.is_host()) {
            if !buffers.iter().any(|known| Arc::ptr_eq(known, &part.buffer)) {
                buffers.push(&part.buffer);
            }
        }
        buffers
    }

    fn device_bytes(&self) -> usize {
        let buffers = self.device_buffers().into_iter();
        buffers.map(|buffer| buffer.capacity()).sum()
    }
}

/// Rows that were asked for.
pub(in crate::exec) struct Chunk {
    of: Arc<OutputChunks>,
    places: Arc<Places>,
    rows: Range<usize>,
}

impl OutputChunks {
    /// The first `rows` rows of the output of a run that is over.
    ///
    /// # Errors
    /// [`GpuError::Device`] when there is no stream for the copies, [`GpuError::Internal`] for an output without its columns.
    pub(in crate::exec) fn new(
        frame: &Frame<'_>,
        schema: &SchemaRef,
        rows: usize,
        runtime: &Arc<Runtime>,
    ) -> Result<Arc<Self>> {
        let mut columns = Vec::new();
        let mut places = Vec::new();
        for (index, column) in frame.prepared.output.iter().enumerate() {
            let place = |part: Part, unit: usize| -> Result<Place> {
                let (buffer, offset) = frame.output_part(part)?;
                let buffer = Arc::clone(buffer);
                Ok(Place {
                    buffer,
                    offset,
                    unit,
                })
            };
            let layout = column.layout.clone();
            places.push(ColumnPlaces {
                codes: place(Part::Column(index), layout.width.into())?,
                valid: match layout.nullable {
                    true => Some(place(Part::Valid(index), 1)?),
                    false => None,
                },
            });
            let text = column.text.as_ref().map(base_of).transpose()?;
            columns.push(ChunkColumn { layout, text });
        }
        // What the run wrote to host memory is there from now on.
        runtime.device().synchronize(frame.stream)?;
        let places = Places {
            first: 0,
            columns: places,
        };
        let chunks = Arc::new(Self {
            schema: Arc::clone(schema),
            rows,
            columns,
            left: Mutex::new(Left {
                at: 0,
                places: Some(Arc::new(places)),
            }),
            runtime: Arc::clone(runtime),
            stream: Mutex::new(runtime.lease_stream()?),
        });
        let held: Weak<Self> = Arc::downgrade(&chunks);
        runtime.outputs().add(held);
        Ok(chunks)
    }

    /// All rows.
    pub(in crate::exec) fn rows(&self) -> usize {
        self.rows
    }

    /// The next chunk, in order; `None` behind the last.
    pub(in crate::exec) fn next(self: &Arc<Self>) -> Option<Chunk> {
        let mut left = self.left.lock();
        let places = Arc::clone(left.places.as_ref()?);
        let end = self.rows.min(left.at + chunk_rows(self.columns.len()));
        let rows = left.at..end;
        left.at = end;
        if end == self.rows {
            left.places = None;
        }
        Some(Chunk {
            of: Arc::clone(self),
            places,
            rows,
        })
    }

    /// Copies of pieces in page-locked memory, and where in it each begins; `None` where that has no room.
    fn on_host(
        &self,
        stream: &Stream,
        pieces: &[Piece],
    ) -> Result<Option<(Arc<DeviceBuffer>, Vec<usize>)>> {
        let mut starts = Vec::with_capacity(pieces.len());
        let mut end = 0;
        for piece in pieces {
            starts.push(end);
            end += piece.bytes.next_multiple_of(ALIGNMENT);
        }
        let pool = self.runtime.host_pool();
        // Columns that are kept there are worth more.
        if end > pool.available() {
            return Ok(None);
        }
        let room = match pool.allocate_for(stream, end, "rows on their way to the host") {
            Err(GpuError::OutOfDeviceMemory { .. }) => return Ok(None),
            room => Arc::new(room?.ordered_by(stream)),
        };
        for (piece, at) in pieces.iter().zip(&starts) {
            room.copy_from(stream, *at, &piece.buffer, piece.offset, piece.bytes)?;
        }
        self.runtime.device().synchronize(stream)?;
        Ok(Some((room, starts)))
    }

    /// The bytes of pieces on the host, from where they lie there or copied.
    fn bytes(&self, stream: &Stream, pieces: Vec<Piece>) -> Result<Vec<Buffer>> {
        let (here, away): (Vec<_>, Vec<_>) = pieces
            .into_iter()
            .enumerate()
            .partition(|(_, piece)| piece.buffer.is_host());
        let mut bytes = Vec::with_capacity(here.len() + away.len());
        let lost = || GpuError::Internal("an output that leaves its memory".into());
        // SAFETY: nothing writes to the output of a run that is over, nor to a copy of it that was waited for.
        let of = |buffer: &Arc<DeviceBuffer>, at: usize, bytes: usize| unsafe {
            host_bytes(buffer, at, bytes).ok_or_else(lost)
        };
        for (number, piece) in here {
            bytes.push((number, of(&piece.buffer, piece.offset, piece.bytes)?));
        }
        let (numbers, away): (Vec<usize>, Vec<Piece>) = away.into_iter().unzip();
        let copies = match away.is_empty() {
            true => None,
            false => self.on_host(stream, &away)?,
        };
        for (at, (number, piece)) in numbers.into_iter().zip(away).enumerate() {
            let copied = match &copies {
                Some((room, starts)) => of(room, starts[at], piece.bytes)?,
                None => {
                    let (buffer, offset) = (&piece.buffer, piece.offset);
                    let values = buffer.download_values::<u8>(stream, offset, piece.bytes)?;
                    Buffer::from_vec(values)
                }
            };
            bytes.push((number, copied));
        }
        bytes.sort_by_key(|(number, _)| *number);
        Ok(bytes.into_iter().map(|(_, bytes)| bytes).collect())
    }
}

impl Chunk {
    /// The rows as Arrow arrays of the schema's types. Waits for the copy, and for that of the chunk before.
    ///
    /// # Errors
    /// Those of the copy, after which nothing is left of the output; [`GpuError::Internal`] for codes that no layout makes.
    pub(in crate::exec) fn decode(self) -> Result<Vec<RecordBatch>> {
        let rows = {
            let stream = self.of.stream.lock();
            self.copy(&stream)
        };
        if rows.is_err() {
            self.of.left.lock().places = None;
        }
        // The memory of the last chunk is free before its rows are decoded.
        drop(self.places);
        rows?.decode()
    }

    fn copy(&self, stream: &Stream) -> Result<HostRows> {
        let first = self.places.first;
        let rows = self.rows.start - first..self.rows.end - first;
        let columns = || self.of.columns.iter().zip(&self.places.columns);
        let mut pieces = Vec::new();
        for (column, places) in columns() {
            pieces.extend(places.valid.as_ref().map(|valid| valid.piece(&rows)));
            if column.text.is_none() {
                pieces.push(places.codes.piece(&rows));
            }
        }
        let mut bytes = self.of.bytes(stream, pieces)?.into_iter();
        let mut next = || {
            let missing = || GpuError::Internal("a column without bytes".into());
            bytes.next().ok_or_else(missing)
        };
        let mut copied = Vec::with_capacity(self.of.columns.len());
        for (column, places) in columns() {
            let valid = match &places.valid {
                Some(_) => Some(next()?),
                None => None,
            };
            copied.push(match &column.text {
                Some(base) => {
                    let strings = Strings {
                        column,
                        places,
                        base,
                        valid: valid.as_deref(),
                        first: rows.start,
                    };
                    HostColumn::Array(strings.gather(&self.of, stream, rows.clone())?)
                }
                None => HostColumn::Codes {
                    layout: column.layout.clone(),
                    codes: next()?,
                    valid,
                },
            });
        }
        Ok(HostRows {
            schema: Arc::clone(&self.of.schema),
            rows: rows.len(),
            columns: copied,
        })
    }
}

/// A column of strings by row in one chunk.
struct Strings<'a> {
    column: &'a ChunkColumn,
    places: &'a ColumnPlaces,
    base: &'a Column,
    /// A byte a row of the chunk, …
    valid: Option<&'a [u8]>,
    /// … whose first row is this one.
    first: usize,
}

impl Strings<'_> {
    /// The strings of some of its rows: at a time as many as there is memory for.
    fn gather(&self, of: &OutputChunks, stream: &Stream, rows: Range<usize>) -> Result<ArrayRef> {
        let piece = |place: &Place| place.piece(&rows);
        let (numbers, valid) = (
            piece(&self.places.codes),
            self.places.valid.as_ref().map(piece),
        );
        let within = rows.start - self.first..rows.end - self.first;
        let gathered = RowStrings {
            layout: &self.column.layout,
            base: self.base,
            numbers: (&numbers.buffer, numbers.offset),
            valid: match (&valid, self.valid.and_then(|valid| valid.get(within))) {
                (Some(piece), Some(bytes)) => Some((piece.buffer.ptr_at(piece.offset)?, bytes)),
                _ => None,
            },
            rows: rows.len(),
        }
        .gather(&of.runtime, stream);
        match gathered {
            Err(GpuError::OutOfDeviceMemory { .. }) if rows.len() > CHUNK_STEP => {
                let middle = rows.start + (rows.len() / 2).next_multiple_of(CHUNK_STEP);
                let halves = [
                    self.gather(of, stream, rows.start..middle)?,
                    self.gather(of, stream, middle..rows.end)?,
                ];
                Ok(concat(&[halves[0].as_ref(), halves[1].as_ref()])?)
            }
            gathered => gathered,
        }
    }
}

impl Held for OutputChunks {
    fn bytes(&self) -> usize {
        let places = self.left.lock().places.clone();
        places.map_or(0, |places| places.device_bytes())
    }

    fn give_back(&self) -> usize {
        // While a chunk is copied its memory is in use, and its reader may be the one who is short.
        let Some(stream) = self.stream.try_lock() else {
            return 0;
        };
        let (at, places) = {
            let left = self.left.lock();
            (left.at, left.places.clone())
        };
        let Some(places) = places else {
            return 0;
        };
        let bytes = places.device_bytes();
        if bytes == 0 {
            return 0;
        }
        let rows = at - places.first..self.rows - places.first;
        let pieces: Vec<Piece> = places.parts().map(|part| part.piece(&rows)).collect();
        let (room, starts) = match self.on_host(&stream, &pieces) {
            Ok(Some(copies)) => copies,
            Ok(None) => return 0,
            Err(error) => {
                log::debug!("an output stays in device memory: {error}");
                return 0;
            }
        };
        let mut starts = starts.into_iter();
        let mut moved = |place: &Place| Place {
            buffer: Arc::clone(&room),
            offset: starts.next().unwrap_or(0),
            unit: place.unit,
        };
        let columns = places.columns.iter().map(|column| ColumnPlaces {
            codes: moved(&column.codes),
            valid: column.valid.as_ref().map(&mut moved),
        });
        let columns = columns.collect();
        let mut left = self.left.lock();
        // Unless the last chunk was asked for meanwhile.
        if left.places.is_some() {
            let places = Places { first: at, columns };
            left.places = Some(Arc::new(places));
        }
        log::info!("{bytes} bytes of an output that is being read moved to host memory");
        bytes
    }
}

impl fmt::Debug for OutputChunks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OutputChunks")
            .field("schema", &self.schema)
            .field("rows", &self.rows)
            .finish_non_exhaustive()
    }
}
