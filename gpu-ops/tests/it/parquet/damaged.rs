//! Files with damaged bytes: errors, or the answers of the CPU's reader, and never a crash.

use std::fs;

use datafusion::parquet::basic::{Compression, Encoding};
use warpline_gpu::GpuError;
use warpline_gpu::parquet::ParquetReader;

use super::files::{Nulls, Written, batch, runs, write};
use super::{Setup, exhaustive};
use crate::support::devices;

/// Numbers that look random.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.0 >> 33) as usize % end
    }
}

#[test]
fn damaged_pages_are_errors_or_what_the_cpu_reads() {
    let tries = if exhaustive() { 1000 } else { 12 };
    for device in devices() {
        let setup = Setup::new(&device);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.parquet");
        let mut numbers = Numbers(17);
        let (mut alike, mut errors) = (0, 0);
        let codecs = [
            Compression::UNCOMPRESSED,
            Compression::SNAPPY,
            Compression::LZ4_RAW,
        ];
        let encodings = [
            None,
            Some(Encoding::PLAIN),
            Some(Encoding::DELTA_LENGTH_BYTE_ARRAY),
            Some(Encoding::DELTA_BYTE_ARRAY),
        ];
        let ways = codecs.into_iter().flat_map(|c| encodings.map(|e| (c, e)));
        for (number, (codec, encoding)) in ways.enumerate() {
            let written = Written {
                codec,
                encoding,
                version: 1 + number % 2,
                page_rows: 200,
                group_rows: 400,
                ..Written::default()
            };
            let rows = match encoding {
                None => runs(800, Nulls::Some),
                Some(_) => batch(800, Nulls::Some).project(&[17, 18, 19]).unwrap(),
            };
            write(&path, &rows, &written);
            let whole = fs::read(&path).unwrap();
            // Behind the pages is the metadata, which the parquet crate reads for both.
            let tail = u32::from_le_bytes(whole[whole.len() - 8..][..4].try_into().unwrap());
            let pages = whole.len() - 8 - tail as usize;
            for case in 0..tries {
                let mut bytes = whole.clone();
                for _ in 0..1 + numbers.below(3) {
                    let at = 4 + numbers.below(pages - 4);
                    bytes[at] = match numbers.below(3) {
                        0 => 0xff,
                        1 => 0,
                        _ => numbers.below(256) as u8,
                    };
                }
                let path = folder.path().join(format!("{number}-{case}.parquet"));
                fs::write(&path, &bytes).unwrap();
                let cpu = setup.load(&path, ParquetReader::Cpu);
                let device = setup.load(&path, ParquetReader::Device);
                match (cpu, device) {
                    (Ok(cpu), Ok(device)) => {
                        setup.same(&cpu, &device, &format!("{codec:?}, case {case}"));
                        alike += 1;
                    }
                    // Kernels end, whatever they read.
                    (_, Err(GpuError::Device { cause, .. })) => panic!("{cause}"),
                    (_, Err(_)) => errors += 1,
                    // The CPU's reader refuses what has no meaning for the rows, such as bytes between pages.
                    (Err(_), Ok(_)) => {}
                }
                fs::remove_file(&path).unwrap();
            }
        }
        assert!(alike > 0 && errors > 0, "{alike} alike, {errors} errors");
    }
}

#[test]
fn files_that_are_cut_off_are_errors() {
    for device in devices() {
        let setup = Setup::new(&device);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.parquet");
        write(&path, &runs(300, Nulls::None), &Written::default());
        let whole = fs::read(&path).unwrap();
        fs::write(&path, &whole[whole.len() / 2..]).unwrap();
        assert!(setup.load(&path, ParquetReader::Device).is_err());
    }
}
