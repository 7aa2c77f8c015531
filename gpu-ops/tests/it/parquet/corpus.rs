//! Files of others: every parquet file in the folder that `PARQUET_TEST_DATA` names, such as `data` and `bad_data` of
//! <https://github.com/apache/parquet-testing>.

use std::path::{Path, PathBuf};

use warpline_gpu::parquet::ParquetReader;

use super::Setup;
use crate::support::devices;

fn parquet_files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            parquet_files(&path, found);
        } else if path
            .extension()
            .is_some_and(|extension| extension == "parquet")
        {
            found.push(path);
        }
    }
}

#[test]
fn files_of_others_are_read_as_the_cpu_reads_them() {
    let Some(folder) = std::env::var_os("PARQUET_TEST_DATA") else {
        eprintln!("skipped: PARQUET_TEST_DATA names no folder of parquet files");
        return;
    };
    let mut files = Vec::new();
    parquet_files(Path::new(&folder), &mut files);
    files.sort_unstable();
    for device in devices() {
        let setup = Setup::new(&device);
        for path in &files {
            let name = path.file_name().unwrap().to_string_lossy();
            let cpu = setup.load(path, ParquetReader::Cpu);
            let device = setup.load(path, ParquetReader::Device);
            match (cpu, device) {
                (Ok(cpu), Ok(device)) => {
                    setup.same(&cpu, &device, &name);
                    eprintln!("{name}: {}", device.chunks);
                }
                (Err(error), Err(_)) => eprintln!("{name}: {error}"),
                (Ok(_), Err(error)) => panic!("{name}: {error}"),
                (Err(error), Ok(_)) => eprintln!("{name}: the CPU's reader alone fails: {error}"),
            }
        }
    }
}
