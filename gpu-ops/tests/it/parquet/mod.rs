//! Parquet columns that the device decodes: bit for bit those that the CPU's reader makes.
//!
//! `WARPLINE_EXHAUSTIVE=1` tries every combination of codec, version, encoding, page size and NULLs.

mod corpus;
mod damaged;
mod files;
mod strings;
mod structs;

use std::path::Path;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef};
use datafusion::parquet::basic::{Compression, Encoding, GzipLevel, ZstdLevel};
use datafusion::parquet::data_type::{Int96, Int96Type};
use datafusion::parquet::file::properties::WriterProperties;
use datafusion::parquet::file::writer::SerializedFileWriter;
use datafusion::parquet::schema::parser::parse_message_type;
use datafusion::prelude::*;
use warpline_gpu::column::{Column, Encoding as Lies};
use warpline_gpu::device::pinned::PinnedMemory;
use warpline_gpu::device::{Device, Stream};
use warpline_gpu::memory::MemoryPool;
use warpline_gpu::parquet::{ChunkCounts, ParquetReader, Reason};
use warpline_gpu::tables::{LoadedTable, TableCache, TableSource};

use crate::support::devices;
use files::{Nulls, Written, batch, write};

/// Every combination, where few are tried otherwise?
fn exhaustive() -> bool {
    std::env::var("WARPLINE_EXHAUSTIVE").is_ok_and(|value| value == "1")
}

/// What loads files on a device.
struct Setup {
    /// One for each reader, so that neither finds the columns of the other.
    caches: [TableCache; 2],
    stream: Stream,
    executor: tokio::runtime::Runtime,
    /// Are bytes taken for text?
    binary_as_string: bool,
}

impl Setup {
    fn new(device: &Arc<dyn Device>) -> Self {
        let pool = MemoryPool::new(Arc::clone(device), 256 << 20);
        let pinned = Arc::new(PinnedMemory::new(Arc::clone(device)));
        let host = MemoryPool::new(pinned, 256 << 20);
        let cache = || TableCache::new(Arc::clone(&pool)).with_host_memory(Arc::clone(&host));
        Self {
            caches: [cache(), cache()],
            stream: device.create_stream().unwrap(),
            executor: tokio::runtime::Builder::new_multi_thread()
                .worker_threads(2)
                .enable_all()
                .build()
                .unwrap(),
            binary_as_string: true,
        }
    }

    /// All columns of a folder or file, read from it.
    fn load(&self, path: &Path, reader: ParquetReader) -> warpline_gpu::Result<Arc<LoadedTable>> {
        self.executor.block_on(async {
            let mut config = SessionConfig::new().with_target_partitions(2);
            config.options_mut().optimizer.repartition_file_min_size = 1;
            config.options_mut().execution.parquet.binary_as_string = self.binary_as_string;
            let ctx = SessionContext::new_with_config(config);
            let options = ParquetReadOptions::default();
            let path = path.to_str().unwrap();
            ctx.register_parquet("t", path, options).await?;
            let mut plan = ctx.table("t").await?.create_physical_plan().await?;
            while let Some(child) = plan.children().first().map(|child| Arc::clone(child)) {
                plan = child;
            }
            let source = TableSource::analyze(&plan)?.source;
            let fields = source.schema().fields();
            let columns: Vec<usize> = (0..fields.len())
                .filter(|at| warpline_gpu::column::check_type(fields[*at].data_type()).is_ok())
                .collect();
            let cache = &self.caches[usize::from(reader == ParquetReader::Device)];
            cache.clear();
            let ctx = ctx.task_ctx();
            cache
                .get_decoded(&source, &columns, &[], reader, ctx, &self.stream)
                .await
        })
    }

    /// Both readers' columns are the same; answers who decoded the device's.
    fn compare(&self, path: &Path, what: &str) -> ChunkCounts {
        let cpu = self.load(path, ParquetReader::Cpu).unwrap();
        let device = self.load(path, ParquetReader::Device).unwrap();
        self.same(&cpu, &device, what);
        device.chunks.clone()
    }

    fn same(&self, cpu: &LoadedTable, device: &LoadedTable, what: &str) {
        assert_eq!(cpu.rows, device.rows, "{what}");
        assert_eq!(cpu.columns.len(), device.columns.len(), "{what}");
        for (at, (cpu, device)) in cpu.columns.iter().zip(&device.columns).enumerate() {
            let what = format!("{what}: column {at}, {}", cpu.data_type);
            let arrays: [ArrayRef; 2] =
                [cpu, device].map(|column| column.to_arrow(&self.stream).unwrap());
            assert_eq!(arrays[0].to_data(), arrays[1].to_data(), "{what}");
            assert_eq!(shape(cpu), shape(device), "{what}");
            assert_eq!(
                format!("{:?}", cpu.statistics),
                format!("{:?}", device.statistics),
                "{what}"
            );
            let bytes = [cpu, device].map(|column| self.bytes(column));
            assert!(bytes[0] == bytes[1], "{what}: other bytes on the device");
        }
    }

    /// Codes and validity.
    fn bytes(&self, column: &Column) -> Vec<u8> {
        let codes = match &column.encoding {
            Lies::Integer { width, .. }
            | Lies::Float { width }
            | Lies::Dictionary { width, .. } => column.rows * usize::from(*width),
            Lies::Bits => column.rows.div_ceil(8),
            Lies::Bytes { .. } => 0,
        };
        let mut all = column
            .data
            .download_values::<u8>(&self.stream, 0, codes)
            .unwrap();
        if let Some(validity) = &column.validity {
            let bits = column.rows.div_ceil(8);
            all.extend(
                validity
                    .download_values::<u8>(&self.stream, 0, bits)
                    .unwrap(),
            );
        }
        all
    }
}

fn shape(column: &Column) -> String {
    match &column.encoding {
        Lies::Dictionary { width, dictionary } => format!("{width} {:?}", dictionary.values),
        Lies::Bytes { .. } => "bytes".into(),
        other => format!("{other:?}"),
    }
}

/// A file that the device decodes wholly but for chunks with these reasons.
fn check(setup: &Setup, written: &Written, nulls: Nulls, rows: usize, allowed: &[Reason]) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.parquet");
    let what = format!("{written:?}, {nulls:?}, {rows} rows");
    write(&path, &batch(rows, nulls), written);
    let counts = setup.compare(&path, &what);
    for (reason, chunks) in &counts.cpu {
        assert!(
            allowed.contains(reason),
            "{what}: {chunks} chunks, {reason}"
        );
    }
    if rows > 0 {
        assert!(counts.device > 0, "{what}: {counts}");
    }
}

fn codecs() -> [Compression; 4] {
    [
        Compression::UNCOMPRESSED,
        Compression::SNAPPY,
        Compression::LZ4_RAW,
        Compression::ZSTD(ZstdLevel::default()),
    ]
}

/// What a file of the test batch has that the device does not take: differences of numbers as bytes where the
/// combination writes such, codes of strings that hardly repeat, wide decimals, and numbers without sign whose range nobody knows.
const ALLOWED: [Reason; 4] = [
    Reason::Encoding,
    Reason::PlainStrings,
    Reason::NoRange,
    Reason::Wide,
];

#[test]
fn dictionaries_and_plain_pages_of_every_codec_and_version() {
    for device in devices() {
        let setup = Setup::new(&device);
        for (number, codec) in codecs().into_iter().enumerate() {
            for version in [1, 2] {
                let nulls = Nulls::ALL[(number + version) % 3];
                let written = Written {
                    codec,
                    version,
                    page_rows: 100 + number * 77,
                    ..Written::default()
                };
                check(&setup, &written, nulls, 700, &ALLOWED);
            }
        }
    }
}

#[test]
fn every_encoding_with_and_without_nulls() {
    for device in devices() {
        let setup = Setup::new(&device);
        for (number, encoding) in [
            Encoding::PLAIN,
            Encoding::DELTA_BINARY_PACKED,
            Encoding::BYTE_STREAM_SPLIT,
            Encoding::DELTA_LENGTH_BYTE_ARRAY,
            Encoding::DELTA_BYTE_ARRAY,
        ]
        .into_iter()
        .enumerate()
        {
            for nulls in [Nulls::None, Nulls::Some] {
                let written = Written {
                    codec: codecs()[number % 3],
                    version: 1 + number % 2,
                    encoding: Some(encoding),
                    page_rows: 333,
                    ..Written::default()
                };
                check(&setup, &written, nulls, 900, &ALLOWED);
            }
        }
    }
}

#[test]
fn pages_of_one_row_and_rows_at_the_edges_of_words() {
    for device in devices() {
        let setup = Setup::new(&device);
        for (rows, page_rows) in [
            (0, 10),
            (1, 1),
            (5, 1),
            (31, 31),
            (32, 32),
            (33, 32),
            (129, 64),
        ] {
            let written = Written {
                page_rows,
                ..Written::default()
            };
            for nulls in [Nulls::None, Nulls::Some] {
                check(&setup, &written, nulls, rows, &ALLOWED);
            }
        }
    }
}

#[test]
fn chunks_that_begin_with_a_dictionary_and_go_on_without() {
    for device in devices() {
        let setup = Setup::new(&device);
        for version in [1, 2] {
            let written = Written {
                version,
                page_rows: 100,
                dictionary_bytes: 300,
                ..Written::default()
            };
            check(&setup, &written, Nulls::Some, 1500, &ALLOWED);
        }
    }
}

#[test]
fn several_files_and_row_groups_make_one_column() {
    for device in devices() {
        let setup = Setup::new(&device);
        let folder = tempfile::tempdir().unwrap();
        for (name, rows, group, codec) in [
            ("b.parquet", 1000, 300, Compression::SNAPPY),
            ("a.parquet", 77, 20, Compression::GZIP(GzipLevel::default())),
            ("c.parquet", 500, 500, Compression::UNCOMPRESSED),
        ] {
            let written = Written {
                codec,
                group_rows: group,
                page_rows: 64,
                ..Written::default()
            };
            write(
                &folder.path().join(name),
                &batch(rows, Nulls::Some),
                &written,
            );
        }
        let counts = setup.compare(folder.path(), "a folder");
        assert!(counts.device > 20, "{counts}");
    }
}

#[test]
fn long_runs_and_wide_codes() {
    for device in devices() {
        let setup = Setup::new(&device);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.parquet");
        for (version, nulls) in [(1, Nulls::None), (2, Nulls::Some)] {
            let written = Written {
                version,
                page_rows: 4000,
                group_rows: 9000,
                ..Written::default()
            };
            write(&path, &files::runs(9_500, nulls), &written);
            let counts = setup.compare(&path, "runs");
            assert_eq!(counts.by_cpu(), 0, "{counts}");
        }
    }
}

#[test]
fn ranges_that_no_statistics_tell_are_found() {
    for device in devices() {
        let setup = Setup::new(&device);
        for nulls in Nulls::ALL {
            let written = Written {
                statistics: false,
                group_rows: 130,
                ..Written::default()
            };
            check(&setup, &written, nulls, 300, &ALLOWED);
        }
    }
}

/// Timestamps of 96 bits, by dictionary or not, among them NULLs and days far away.
#[test]
fn timestamps_of_96_bits() {
    let schema = "message table { required int96 all; optional int96 some; }";
    let schema = Arc::new(parse_message_type(schema).unwrap());
    for device in devices() {
        let setup = Setup::new(&device);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.parquet");
        for (dictionary, codec) in [(true, Compression::SNAPPY), (false, Compression::LZ4_RAW)] {
            for rows in [1, 33, 700] {
                let value = |row: usize| {
                    let nanos = row as u64 % 50 * 1_000_003;
                    let day = [2_440_588, 2_459_000, 2_400_000, 2_440_587][row % 4];
                    let mut value = Int96::new();
                    value.set_data(nanos as u32, (nanos >> 32) as u32, day);
                    value
                };
                let properties = WriterProperties::builder()
                    .set_compression(codec)
                    .set_dictionary_enabled(dictionary)
                    .set_data_page_row_count_limit(100)
                    .set_write_batch_size(100);
                let file = std::fs::File::create(&path).unwrap();
                let properties = Arc::new(properties.build());
                let mut writer =
                    SerializedFileWriter::new(file, Arc::clone(&schema), properties).unwrap();
                let mut group = writer.next_row_group().unwrap();
                for optional in [false, true] {
                    let mut column = group.next_column().unwrap().unwrap();
                    let levels: Vec<i16> = (0..rows).map(|row| i16::from(row % 5 != 2)).collect();
                    let valid = |row: &usize| !optional || levels[*row] == 1;
                    let values: Vec<Int96> = (0..rows).filter(valid).map(value).collect();
                    let levels = optional.then_some(&levels[..]);
                    let typed = column.typed::<Int96Type>();
                    typed.write_batch(&values, levels, None).unwrap();
                    column.close().unwrap();
                }
                group.close().unwrap();
                writer.close().unwrap();
                let counts = setup.compare(&path, &format!("{rows} rows"));
                assert_eq!(counts.by_cpu(), 0, "{counts}");
            }
        }
    }
}

#[test]
fn every_combination() {
    if !exhaustive() {
        return;
    }
    let encodings = [
        None,
        Some(Encoding::PLAIN),
        Some(Encoding::DELTA_BINARY_PACKED),
        Some(Encoding::BYTE_STREAM_SPLIT),
        Some(Encoding::DELTA_LENGTH_BYTE_ARRAY),
        Some(Encoding::DELTA_BYTE_ARRAY),
    ];
    for device in devices() {
        let setup = Setup::new(&device);
        let more = [
            Compression::GZIP(GzipLevel::default()),
            Compression::BROTLI(Default::default()),
        ];
        for codec in codecs().into_iter().chain(more) {
            for version in [1, 2] {
                for encoding in encodings {
                    for nulls in Nulls::ALL {
                        for (page_rows, dictionary_bytes) in
                            [(1, 1 << 20), (7, 200), (300, 1 << 20), (5000, 2000)]
                        {
                            let written = Written {
                                codec,
                                version,
                                encoding,
                                page_rows,
                                dictionary_bytes,
                                group_rows: 1200,
                                statistics: true,
                            };
                            check(&setup, &written, nulls, 2000, &ALLOWED);
                        }
                    }
                }
            }
        }
    }
}
