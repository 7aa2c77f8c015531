//! Spill files: partitions that fit neither in device nor in host memory, in a directory that the user names.
//!
//! A file is an Arrow IPC file compressed with LZ4, with one record batch a partition, so that partitions are read by
//! themselves. It lives as long as its [`SpillFile`], also when a query fails. What a process that crashed has left behind is
//! removed when a directory is first used: names tell the process, and files of those that run are locked as well.

use std::collections::HashMap;
use std::fmt;
use std::fs::{self, File};
use std::io::{BufReader, BufWriter};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Weak};

use arrow::array::{Array, ArrayRef, FixedSizeBinaryArray, RecordBatch, RecordBatchOptions};
use arrow::buffer::Buffer;
use arrow::datatypes::{DataType, Field, Schema};
use arrow::error::ArrowError;
use arrow::ipc::CompressionType;
use arrow::ipc::reader::FileReader;
use arrow::ipc::writer::{FileWriter, IpcWriteOptions};
use parking_lot::Mutex;

use crate::error::{GpuError, Result};

/// Names are `warpline-<process>-<number>.spill`.
const PREFIX: &str = "warpline-";
const SUFFIX: &str = ".spill";

/// Directories in use, by path.
static OPEN: LazyLock<Mutex<HashMap<PathBuf, Weak<SpillDirectory>>>> =
    LazyLock::new(Mutex::default);
/// Numbers of files.
static NEXT: AtomicU64 = AtomicU64::new(0);

/// A directory for spilled rows.
#[derive(Debug)]
pub struct SpillDirectory {
    path: PathBuf,
}

impl SpillDirectory {
    /// The directory at `path`, which is made if it is not there. Its first user in a process removes the files of processes
    /// that are gone.
    ///
    /// # Errors
    /// [`GpuError::Spill`] when it cannot be made or read.
    pub fn open(path: &Path) -> Result<Arc<Self>> {
        let failed = |action| move |error: std::io::Error| spill(action, path, &error);
        fs::create_dir_all(path).map_err(failed("made"))?;
        let path = &path.canonicalize().map_err(failed("read"))?;
        let mut open = OPEN.lock();
        if let Some(directory) = open.get(path).and_then(Weak::upgrade) {
            return Ok(directory);
        }
        for entry in fs::read_dir(path).map_err(failed("read"))? {
            let file = entry.map_err(failed("read"))?.path();
            if is_left_over(&file) {
                log::info!("{} was left over: removed", file.display());
                remove(&file);
            }
        }
        let directory = Arc::new(Self { path: path.clone() });
        open.insert(path.clone(), Arc::downgrade(&directory));
        Ok(directory)
    }

    /// Writes `rows` rows to a file of their own: columns of values of some bytes each, and where the partitions begin and end.
    ///
    /// # Errors
    /// [`GpuError::Spill`] when the file cannot be written; nothing stays of it.
    pub(crate) fn write(
        &self,
        columns: Vec<(usize, Vec<u8>)>,
        partitions: impl Iterator<Item = Range<usize>>,
    ) -> Result<SpillFile> {
        let mut made = self.create()?;
        match made.fill(columns, partitions) {
            Ok(reader) => {
                made.reader = Some(Mutex::new(reader));
                Ok(made)
            }
            Err(error) => Err(spill("written", &made.path, &error)),
        }
    }

    /// An empty file, which goes with what is returned.
    pub(super) fn create(&self) -> Result<SpillFile> {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("{PREFIX}{}-{number}{SUFFIX}", std::process::id());
        let path = self.path.join(name);
        let file = File::create_new(&path).map_err(|error| spill("made", &path, &error))?;
        // From here on it is removed, whatever happens.
        let made = SpillFile {
            path,
            lock: file,
            reader: None,
        };
        made.lock
            .lock()
            .map_err(|error| spill("made", &made.path, &error))?;
        Ok(made)
    }
}

/// Rows in a file, which goes with this.
pub(crate) struct SpillFile {
    pub(super) path: PathBuf,
    /// Locked, which tells other processes that it is in use.
    pub(super) lock: File,
    reader: Option<Mutex<FileReader<BufReader<File>>>>,
}

impl SpillFile {
    fn fill(
        &self,
        columns: Vec<(usize, Vec<u8>)>,
        partitions: impl Iterator<Item = Range<usize>>,
    ) -> Result<FileReader<BufReader<File>>, ArrowError> {
        let mut fields = Vec::new();
        let mut values = Vec::new();
        for (number, (unit, bytes)) in columns.into_iter().enumerate() {
            let width = i32::try_from(unit)
                .map_err(|_| ArrowError::InvalidArgumentError(format!("values of {unit} bytes")))?;
            let data_type = DataType::FixedSizeBinary(width);
            fields.push(Field::new(format!("c{number}"), data_type, false));
            values.push((unit, width, Buffer::from_vec(bytes)));
        }
        let schema = Arc::new(Schema::new(fields));
        let compressed =
            IpcWriteOptions::default().try_with_compression(Some(CompressionType::LZ4_FRAME))?;
        let to = BufWriter::new(&self.lock);
        let mut writer = FileWriter::try_new_with_options(to, &schema, compressed)?;
        for rows in partitions {
            let count = rows.end - rows.start;
            let columns = values.iter().map(|(unit, width, bytes)| {
                let bytes = bytes.slice_with_length(rows.start * unit, count * unit);
                let array = FixedSizeBinaryArray::try_new(*width, bytes, None)?;
                Ok(Arc::new(array) as ArrayRef)
            });
            let columns = columns.collect::<Result<Vec<_>, ArrowError>>()?;
            let options = RecordBatchOptions::new().with_row_count(Some(count));
            let schema = Arc::clone(&schema);
            writer.write(&RecordBatch::try_new_with_options(
                schema, columns, &options,
            )?)?;
        }
        writer.finish()?;
        writer.into_inner()?;
        FileReader::try_new(BufReader::new(File::open(&self.path)?), None)
    }

    /// The columns of a partition, their values one behind the other.
    ///
    /// # Errors
    /// [`GpuError::Spill`] when the file cannot be read.
    pub(crate) fn read(&self, partition: usize) -> Result<Vec<Buffer>> {
        let failed = |error: ArrowError| spill("read", &self.path, &error);
        let missing = || spill("read", &self.path, &"it lacks a partition");
        let mut reader = self.reader.as_ref().ok_or_else(missing)?.lock();
        reader.set_index(partition).map_err(failed)?;
        let batch = reader.next().ok_or_else(missing)?.map_err(failed)?;
        let columns = batch.columns().iter().map(|column| {
            let values = column.as_any().downcast_ref::<FixedSizeBinaryArray>();
            let values = values.ok_or_else(missing)?;
            Ok(values.values().clone())
        });
        columns.collect()
    }

    /// Bytes on disk.
    pub(crate) fn bytes(&self) -> u64 {
        self.lock.metadata().map_or(0, |metadata| metadata.len())
    }
}

impl fmt::Debug for SpillFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SpillFile").field(&self.path).finish()
    }
}

impl Drop for SpillFile {
    fn drop(&mut self) {
        remove(&self.path);
    }
}

pub(super) fn spill(action: &'static str, path: &Path, cause: &dyn fmt::Display) -> GpuError {
    GpuError::Spill {
        action,
        path: path.display().to_string(),
        cause: cause.to_string(),
    }
}

fn remove(path: &Path) {
    if let Err(error) = fs::remove_file(path) {
        log::warn!("{} was not removed: {error}", path.display());
    }
}

/// Is this a file of ours whose process is gone?
fn is_left_over(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    let process = name
        .and_then(|name| {
            name.strip_prefix(PREFIX)?
                .strip_suffix(SUFFIX)?
                .split_once('-')
        })
        .and_then(|(process, _)| process.parse::<u32>().ok());
    let Some(process) = process else {
        return false;
    };
    // A process of another container has a number that means something else here, but a lock on its file.
    let gone = !Path::new(&format!("/proc/{process}")).exists() && Path::new("/proc/self").exists();
    gone && File::open(path).is_ok_and(|file| file.try_lock().is_ok())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn files(path: &Path) -> Vec<String> {
        let entries = fs::read_dir(path).unwrap();
        let names = entries.map(|e| e.unwrap().file_name().into_string().unwrap());
        names.collect()
    }

    #[test]
    fn partitions_come_back_alone_and_files_go_with_their_rows() {
        let folder = tempfile::tempdir().unwrap();
        let directory = SpillDirectory::open(&folder.path().join("new/deep")).unwrap();
        let keys: Vec<u8> = (0..100u64).flat_map(u64::to_le_bytes).collect();
        let flags: Vec<u8> = (0..100).collect();
        let partitions = [0..40, 40..40, 40..100];
        let columns = vec![(8, keys.clone()), (1, flags.clone())];
        let file = directory
            .write(columns, partitions.iter().cloned())
            .unwrap();
        assert!(file.bytes() > 0);
        for number in [2, 0, 1, 2] {
            let columns = file.read(number).unwrap();
            let rows = partitions[number].clone();
            assert_eq!(columns[0].as_slice(), &keys[rows.start * 8..rows.end * 8]);
            assert_eq!(columns[1].as_slice(), &flags[rows]);
        }
        assert!(file.read(3).is_err());
        let path = folder.path().join("new/deep");
        assert_eq!(files(&path).len(), 1);
        drop(file);
        assert!(files(&path).is_empty());
    }

    #[test]
    fn what_crashed_processes_left_is_removed_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        let mine = format!("{PREFIX}{}-7{SUFFIX}", std::process::id());
        // No process has the greatest number.
        let gone = format!("{PREFIX}{}-1{SUFFIX}", u32::MAX);
        let locked = format!("{PREFIX}{}-2{SUFFIX}", u32::MAX);
        let others = ["data.arrow", "warpline-notes.spill", "warpline-x-1.spill"];
        for name in others
            .iter()
            .copied()
            .chain([mine.as_str(), &gone, &locked])
        {
            fs::write(path.join(name), "rows").unwrap();
        }
        let held = File::open(path.join(&locked)).unwrap();
        held.lock().unwrap();
        let _directory = SpillDirectory::open(path).unwrap();
        let left = files(path);
        assert!(!left.contains(&gone), "{left:?}");
        assert_eq!(left.len(), others.len() + 2, "{left:?}");
    }

    #[test]
    fn errors_name_the_path_and_the_setting() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "no directory").unwrap();
        let error = SpillDirectory::open(&file).unwrap_err().to_string();
        assert!(
            error.contains("file") && error.contains("warpline.spill_directory"),
            "{error}"
        );
    }
}
