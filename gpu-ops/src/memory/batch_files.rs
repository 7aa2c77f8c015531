//! Files of record batches in the spill directory: the output of a sort that does not fit in memory.
//!
//! As other spilled rows they lie in an Arrow IPC file compressed with LZ4, which goes when nobody will read it any more.

use std::fmt;
use std::fs::File;
use std::io::{BufReader, BufWriter};

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, Schema};
use arrow::error::ArrowError;
use arrow::ipc::CompressionType;
use arrow::ipc::reader::FileReader;
use arrow::ipc::writer::{FileWriter, IpcWriteOptions};
use parking_lot::Mutex;

use super::spill_files::{SpillDirectory, SpillFile, spill};
use crate::error::Result;

/// A file that batches are appended to.
pub(crate) struct BatchWriter {
    file: SpillFile,
    writer: FileWriter<BufWriter<File>>,
    rows: usize,
    batches: usize,
}

impl BatchWriter {
    /// Can batches of these columns be written one by one? A file has one dictionary a column, batches may have one each.
    pub(crate) fn takes(schema: &Schema) -> bool {
        let plain = |data_type: &DataType| {
            !data_type.is_nested() && !matches!(data_type, DataType::Dictionary(..))
        };
        schema.fields().iter().all(|field| plain(field.data_type()))
    }

    /// A new file in a directory.
    ///
    /// # Errors
    /// [`crate::GpuError::Spill`] when it cannot be made.
    pub(crate) fn create(directory: &SpillDirectory, schema: &Schema) -> Result<Self> {
        let file = directory.create()?;
        let begin = || {
            let to = BufWriter::new(file.lock.try_clone()?);
            let lz4 = Some(CompressionType::LZ4_FRAME);
            let options = IpcWriteOptions::default().try_with_compression(lz4)?;
            FileWriter::try_new_with_options(to, schema, options)
        };
        let writer = begin().map_err(|error: ArrowError| spill("made", &file.path, &error))?;
        Ok(Self {
            file,
            writer,
            rows: 0,
            batches: 0,
        })
    }

    /// Append a batch.
    ///
    /// # Errors
    /// [`crate::GpuError::Spill`] when it cannot be written.
    pub(crate) fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        let written = self.writer.write(batch);
        written.map_err(|error| spill("written", &self.file.path, &error))?;
        self.rows += batch.num_rows();
        self.batches += 1;
        Ok(())
    }

    /// All batches have been written.
    ///
    /// # Errors
    /// [`crate::GpuError::Spill`] when they do not get to the file.
    pub(crate) fn finish(mut self) -> Result<BatchFile> {
        let mut end = || {
            self.writer.finish()?;
            FileReader::try_new(BufReader::new(File::open(&self.file.path)?), None)
        };
        let reader =
            end().map_err(|error: ArrowError| spill("written", &self.file.path, &error))?;
        Ok(BatchFile {
            file: self.file,
            reader: Mutex::new(reader),
            rows: self.rows,
            batches: self.batches,
        })
    }
}

/// Batches in a file, which goes with this.
pub(crate) struct BatchFile {
    file: SpillFile,
    reader: Mutex<FileReader<BufReader<File>>>,
    rows: usize,
    batches: usize,
}

impl BatchFile {
    /// Rows of all batches.
    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    /// Bytes on disk.
    pub(crate) fn bytes(&self) -> u64 {
        self.file.bytes()
    }

    /// A batch by its number, in the order in which they were written; `None` behind the last.
    ///
    /// # Errors
    /// [`crate::GpuError::Spill`] when the file cannot be read.
    pub(crate) fn batch(&self, number: usize) -> Result<Option<RecordBatch>> {
        if number >= self.batches {
            return Ok(None);
        }
        let failed = |error: ArrowError| spill("read", &self.file.path, &error);
        let mut reader = self.reader.lock();
        reader.set_index(number).map_err(failed)?;
        match reader.next() {
            Some(batch) => Ok(Some(batch.map_err(failed)?)),
            None => Err(spill("read", &self.file.path, &"it lacks a batch")),
        }
    }
}

impl fmt::Debug for BatchFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BatchFile")
            .field("file", &self.file)
            .field("rows", &self.rows)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for BatchWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BatchWriter")
            .field("file", &self.file)
            .field("rows", &self.rows)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, Int64Array, StringViewArray};

    use super::*;

    #[test]
    fn batches_come_back_and_their_file_goes() {
        let folder = tempfile::tempdir().unwrap();
        let directory = SpillDirectory::open(folder.path()).unwrap();
        let batch = |from: i64| {
            let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(from..from + 5));
            let texts = (from..from + 5).map(|i| (i % 2 == 0).then(|| format!("text {i} of many")));
            let texts: ArrayRef = Arc::new(StringViewArray::from_iter(texts));
            RecordBatch::try_from_iter_with_nullable([("n", numbers, false), ("t", texts, true)])
                .unwrap()
        };
        let schema = batch(0).schema();
        assert!(BatchWriter::takes(&schema));
        let mut writer = BatchWriter::create(&directory, &schema).unwrap();
        for from in [0, 100] {
            writer.write(&batch(from)).unwrap();
        }
        let file = writer.finish().unwrap();
        assert_eq!(file.rows(), 10);
        assert!(file.bytes() > 0);
        assert_eq!(file.batch(1).unwrap().unwrap(), batch(100));
        assert_eq!(file.batch(0).unwrap().unwrap(), batch(0));
        assert!(file.batch(2).unwrap().is_none());
        let files = || std::fs::read_dir(folder.path()).unwrap().count();
        assert_eq!(files(), 1);
        drop(file);
        assert_eq!(files(), 0);
        // What was begun goes as well.
        drop(BatchWriter::create(&directory, &schema).unwrap());
        assert_eq!(files(), 0);
    }

    #[test]
    fn dictionaries_are_not_written_batch_by_batch() {
        let data_type = DataType::Dictionary(DataType::Int32.into(), DataType::Utf8.into());
        let field = arrow::datatypes::Field::new("d", data_type, true);
        assert!(!BatchWriter::takes(&Schema::new(vec![field])));
    }
}
