//! Output files of reports, written atomically.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use warpline_tpch::{Result, TpchError};

/// A file that appears under its name only when it is complete.
pub(super) struct OutputFile {
    path: PathBuf,
    temporary: PathBuf,
    file: File,
}

impl OutputFile {
    pub(super) fn create(path: &Path) -> Result<Self> {
        if path.is_dir() {
            let error = std::io::Error::new(std::io::ErrorKind::IsADirectory, "it is a directory");
            return Err(TpchError::io("write", path, error));
        }
        let mut name = path.file_name().unwrap_or_default().to_os_string();
        name.push(format!(".{}.tmp", std::process::id()));
        let temporary = path.with_file_name(name);
        let file = File::create(&temporary).map_err(|error| TpchError::io("write", path, error))?;
        Ok(Self {
            path: path.to_path_buf(),
            temporary,
            file,
        })
    }

    pub(super) fn finish(mut self, text: &str) -> Result<()> {
        let written = self
            .file
            .write_all(text.as_bytes())
            .and_then(|()| fs::rename(&self.temporary, &self.path));
        written.map_err(|error| TpchError::io("write", &self.path, error))
    }
}

impl Drop for OutputFile {
    fn drop(&mut self) {
        // After `finish` there is nothing left under this name.
        let _ = fs::remove_file(&self.temporary);
    }
}
