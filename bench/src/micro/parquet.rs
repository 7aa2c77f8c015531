//! Loads of parquet columns that the device decodes, by encoding and codec, stage by stage.
//!
//! Every point writes a file of one column, loads it with both readers, compares the columns, and times loads by the device.
//! The stages of a load overlap where there are several row groups: their times are sums over threads and streams, and add
//! up to more than the whole. What decides: `read` and `wait` are divided among the threads, and the larger share of the two says
//! whether files or the device are waited for; `finish` comes on top of both.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use datafusion::arrow::array::{
    ArrayRef, Decimal128Array, Float64Array, Int32Array, Int64Array, RecordBatch, StringArray,
};
use datafusion::error::DataFusionError;
use datafusion::parquet::arrow::ArrowWriter;
use datafusion::parquet::basic::{Compression, Encoding, ZstdLevel};
use datafusion::parquet::file::properties::{WriterProperties, WriterVersion};
use datafusion::prelude::{ParquetReadOptions, SessionContext};
use futures::FutureExt;
use warpline_gpu::parquet::ParquetReader;
use warpline_gpu::tables::{LoadedTable, TableSource};
use warpline_gpu::trace::Work;

use super::data::mix;
use super::{Bench, Benchmark, Emit, Point, Spacing, Sweep, Timing, median, wrong};
use crate::error::{Error, Result};

/// Loads of parquet files.
pub(super) const BENCHMARK: Benchmark = Benchmark {
    name: "parquet",
    about: "loads of parquet columns that the device decodes",
    sweeps: &[
        Sweep {
            name: "codecs",
            about: "codecs of pages, by encoding; bytes are those of the values without encoding",
            x: "codec (0 none, 1 Snappy, 2 LZ4, 3 Zstd)",
            spacing: Spacing::Steps,
            run: |bench, emit| codecs(bench, emit).boxed(),
        },
        Sweep {
            name: "pages",
            about: "rows of a page; 64-bit integers and strings, Snappy",
            x: "rows",
            spacing: Spacing::Factors,
            run: |bench, emit| pages(bench, emit).boxed(),
        },
        Sweep {
            name: "readers",
            about: "the device's decoder and the CPU's on the same files, Snappy",
            x: "reader (0 device, 1 CPU)",
            spacing: Spacing::Steps,
            run: |bench, emit| readers(bench, emit).boxed(),
        },
    ],
};

/// Rows of a file, unless a number of rows is asked for: a share of the rows of other benchmarks, since files are written.
const SHARE: u64 = 8;
/// Rows of a row group.
const GROUP: usize = 1 << 20;

fn all_codecs() -> [Compression; 4] {
    [
        Compression::UNCOMPRESSED,
        Compression::SNAPPY,
        Compression::LZ4_RAW,
        Compression::ZSTD(ZstdLevel::default()),
    ]
}

/// A column, and how its values are encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Values {
    /// 64-bit integers of a moderate range, by dictionary.
    IntegerCodes,
    /// 64-bit integers as they are.
    Integers,
    /// 64-bit integers that ascend, as differences.
    Deltas,
    /// Decimals of 15 digits in 64 bits.
    Decimals,
    /// Floats, byte by byte.
    SplitFloats,
    /// Days, by dictionary.
    Days,
    /// Strings, by dictionary.
    Texts,
    /// Strings that all differ, as they are.
    Comments,
    /// Strings of which each comes some ten times, as they are.
    Repeated,
}

impl Values {
    const ALL: [Self; 9] = [
        Self::IntegerCodes,
        Self::Integers,
        Self::Deltas,
        Self::Decimals,
        Self::SplitFloats,
        Self::Days,
        Self::Texts,
        Self::Comments,
        Self::Repeated,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::IntegerCodes => "int64 dictionary",
            Self::Integers => "int64 plain",
            Self::Deltas => "int64 delta",
            Self::Decimals => "decimal(15,2) plain",
            Self::SplitFloats => "double split",
            Self::Days => "int32 dictionary",
            Self::Texts => "string dictionary",
            Self::Comments => "string plain, distinct",
            Self::Repeated => "string plain, repeating",
        }
    }

    fn encoding(self) -> Option<Encoding> {
        match self {
            Self::IntegerCodes | Self::Days | Self::Texts => None,
            Self::Integers | Self::Decimals | Self::Comments | Self::Repeated => {
                Some(Encoding::PLAIN)
            }
            Self::Deltas => Some(Encoding::DELTA_BINARY_PACKED),
            Self::SplitFloats => Some(Encoding::BYTE_STREAM_SPLIT),
        }
    }

    /// Bytes of a value without encoding.
    fn bytes(self) -> u64 {
        match self {
            Self::Days => 4,
            Self::Texts => 12,
            Self::Comments | Self::Repeated => 48,
            _ => 8,
        }
    }

    fn array(self, rows: std::ops::Range<u64>) -> Result<ArrayRef> {
        let numbers = |below: u64| rows.clone().map(move |row| (mix(row) % below) as i64);
        Ok(match self {
            Self::IntegerCodes => Arc::new(Int64Array::from_iter_values(numbers(2_000))),
            Self::Integers => Arc::new(Int64Array::from_iter_values(numbers(1 << 40))),
            Self::Deltas => Arc::new(Int64Array::from_iter_values(
                rows.map(|row| row as i64 * 4 + (mix(row) % 4) as i64),
            )),
            Self::Decimals => {
                let values = numbers(10_000_000).map(i128::from);
                let values = Decimal128Array::from_iter_values(values);
                let values = values.with_precision_and_scale(15, 2);
                Arc::new(values.map_err(DataFusionError::from)?)
            }
            Self::SplitFloats => Arc::new(Float64Array::from_iter_values(
                numbers(1 << 20).map(|value| value as f64 / 64.0),
            )),
            Self::Days => Arc::new(Int32Array::from_iter_values(
                numbers(2_526).map(|day| day as i32 + 8_000),
            )),
            Self::Texts => Arc::new(StringArray::from_iter_values(
                numbers(500).map(|value| format!("value {value:06}")),
            )),
            Self::Comments => Arc::new(StringArray::from_iter_values(rows.map(comment))),
            Self::Repeated => {
                let values = rows.clone().map(|row| mix(row) % (1 << 17));
                Arc::new(StringArray::from_iter_values(values.map(comment)))
            }
        })
    }
}

/// Words and a number, 48 bytes, that compress to about a half.
fn comment(number: u64) -> String {
    const WORDS: [&str; 8] = [
        "quick ", "final ", "ironic", "pended", "carefu", "furiou", "deposi", "requst",
    ];
    let word = |at: u64| WORDS[(mix(number ^ at << 40) % 8) as usize];
    format!(
        "{:012}{}{}{}{}{}{}",
        number,
        word(1),
        word(2),
        word(3),
        word(4),
        word(5),
        word(6)
    )
}

/// A folder that is deleted in the end.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Result<Self> {
        let name = format!("warpline-bench-parquet-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).map_err(|error| failed(&path, &error))?;
        Ok(Self(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            log::debug!("{}: {error}", self.0.display());
        }
    }
}

fn failed(path: &Path, error: &dyn std::fmt::Display) -> Error {
    Error::Bench(format!("{}: {error}", path.display()))
}

fn rows(bench: &Bench) -> u64 {
    match bench.emulated() {
        true => bench.rows(),
        false => bench.rows() / SHARE,
    }
}

async fn codecs(bench: &Bench, emit: &mut Emit<'_>) -> Result<()> {
    for values in bench.some(&Values::ALL) {
        for (number, codec) in all_codecs().into_iter().enumerate() {
            let (timing, bytes) =
                point(bench, values, codec, 20_000, ParquetReader::Device).await?;
            let series = values.name();
            let predicted = bytes as f64 / link(bench) * 1e3;
            let point = Point::new(
                series,
                number as f64,
                rows(bench),
                plain(bench, values),
                timing,
            );
            emit(point.predicted(predicted))?;
        }
    }
    Ok(())
}

async fn pages(bench: &Bench, emit: &mut Emit<'_>) -> Result<()> {
    for values in [
        Values::IntegerCodes,
        Values::Integers,
        Values::Texts,
        Values::Comments,
    ] {
        for page in bench.some(&[1_000, 5_000, 20_000, 100_000, 1_000_000]) {
            let codec = Compression::SNAPPY;
            let (timing, bytes) = point(bench, values, codec, page, ParquetReader::Device).await?;
            let predicted = bytes as f64 / link(bench) * 1e3;
            let point = Point::new(
                values.name(),
                page as f64,
                rows(bench),
                plain(bench, values),
                timing,
            );
            emit(point.predicted(predicted))?;
        }
    }
    Ok(())
}

async fn readers(bench: &Bench, emit: &mut Emit<'_>) -> Result<()> {
    for values in bench.some(&Values::ALL) {
        for (number, reader) in [ParquetReader::Device, ParquetReader::Cpu]
            .into_iter()
            .enumerate()
        {
            let (timing, _) = point(bench, values, Compression::SNAPPY, 20_000, reader).await?;
            let x = number as f64;
            emit(Point::new(
                values.name(),
                x,
                rows(bench),
                plain(bench, values),
                timing,
            ))?;
        }
    }
    Ok(())
}

fn plain(bench: &Bench, values: Values) -> u64 {
    rows(bench) * values.bytes()
}

/// Bytes a second over the link to the host, which the model takes for what decides.
fn link(bench: &Bench) -> f64 {
    bench.machine().link
}

/// The median of timed loads of a file, and the bytes of the file.
async fn point(
    bench: &Bench,
    values: Values,
    codec: Compression,
    page: usize,
    reader: ParquetReader,
) -> Result<(Timing, u64)> {
    let folder = Folder::new()?;
    let path = folder.0.join("column.parquet");
    write(&path, values, codec, page, rows(bench)).map_err(|error| failed(&path, &error))?;
    let size = std::fs::metadata(&path).map_err(|error| failed(&path, &error))?;
    let ctx = SessionContext::new_with_config(bench.context().copied_config());
    let name = path.to_string_lossy();
    ctx.register_parquet("t", &*name, ParquetReadOptions::default())
        .await?;
    let mut plan = ctx.table("t").await?.create_physical_plan().await?;
    while let Some(child) = plan.children().first().map(|child| Arc::clone(child)) {
        plan = child;
    }
    let source = TableSource::analyze(&plan)?.source;
    let (mut stages, mut wholes) = (Stages::default(), Vec::new());
    let expected = load(bench, &ctx, &source, ParquetReader::Cpu).await?;
    for run in 0..=bench.runs() {
        let begin = Instant::now();
        let loaded = load(bench, &ctx, &source, reader).await?;
        let whole = begin.elapsed().as_secs_f64() * 1e3;
        match run {
            // Compiles the kernels and fills the pools.
            0 => same(bench, &expected, &loaded, values)?,
            _ => wholes.push(whole),
        }
    }
    if reader == ParquetReader::Device {
        // Traces cost some time, so this run is not counted.
        let trace = bench.runtime().start_trace()?;
        let loaded = load(bench, &ctx, &source, reader).await?;
        bench.runtime().stop_trace();
        stages.add(&trace)?;
        if loaded.chunks.by_cpu() > 0 {
            log::warn!("{}: {}", values.name(), loaded.chunks);
        }
    }
    let timing = Timing {
        phases: stages.0,
        ms: median(wholes),
    };
    Ok((timing, size.len()))
}

/// Milliseconds by stage.
#[derive(Default)]
struct Stages(Vec<(&'static str, f64)>);

impl Stages {
    fn add(&mut self, trace: &Arc<warpline_gpu::trace::Trace>) -> Result<()> {
        /// `wait`: threads for the device; `finish`: one column after the other or several at a time, once all pages are
        /// decoded, with `place`, `dictionary` and `facts` in it.
        const STAGES: [&str; 10] = [
            "read",
            "headers",
            "copy",
            "decompress",
            "decode",
            "place",
            "wait",
            "dictionary",
            "facts",
            "finish",
        ];
        let mut times = [0.0; STAGES.len()];
        let (spans, _) = trace.spans()?;
        for span in spans {
            let stage = match span.name.as_str() {
                "read" => 0,
                "page headers" => 1,
                "decompress" | "parquet_decompress" => 3,
                "parquet_decode" | "parquet_index_strings" => 4,
                "parquet_place_strings" | "parquet_shift_ends" | "parquet_remap" => 5,
                "wait for pages" => 6,
                name if name.starts_with("text_") => 7,
                "string_lengths" | "copy_strings" => 7,
                name if name.starts_with("column_") => 8,
                "finish columns" => 9,
                _ if span.work == Work::Copy => 2,
                _ => continue,
            };
            times[stage] += span.duration_us / 1e3;
        }
        self.0 = STAGES.into_iter().zip(times).collect();
        Ok(())
    }
}

/// The column, read from the file.
async fn load(
    bench: &Bench,
    ctx: &SessionContext,
    source: &TableSource,
    reader: ParquetReader,
) -> Result<Arc<LoadedTable>> {
    let tables = bench.runtime().tables();
    let stream = bench.runtime().lease_stream()?;
    let loaded = tables
        .get_decoded(source, &[0], &[], reader, ctx.task_ctx(), &stream)
        .await?;
    // The next load is to read it again, also while this one is held.
    tables.forget(source);
    Ok(loaded)
}

fn same(bench: &Bench, expected: &LoadedTable, loaded: &LoadedTable, values: Values) -> Result<()> {
    let stream = bench.runtime().lease_stream()?;
    for (expected, loaded) in expected.columns.iter().zip(&loaded.columns) {
        let (expected, loaded) = (expected.to_arrow(&stream)?, loaded.to_arrow(&stream)?);
        if expected.to_data() != loaded.to_data() {
            return Err(wrong(values.name()));
        }
    }
    Ok(())
}

fn write(
    path: &Path,
    values: Values,
    codec: Compression,
    page: usize,
    rows: u64,
) -> std::result::Result<(), Error> {
    let io = |error: &dyn std::fmt::Display| failed(path, error);
    let mut properties = WriterProperties::builder()
        .set_compression(codec)
        .set_writer_version(WriterVersion::PARQUET_1_0)
        .set_data_page_row_count_limit(page)
        .set_data_page_size_limit(usize::MAX)
        .set_write_batch_size(page.min(1024))
        .set_max_row_group_row_count(Some(GROUP));
    if let Some(encoding) = values.encoding() {
        properties = properties
            .set_dictionary_enabled(false)
            .set_encoding(encoding);
    }
    let empty = RecordBatch::try_from_iter([("x", values.array(0..0)?)]);
    let schema = empty.map_err(|error| io(&error))?.schema();
    let file = File::create(path).map_err(|error| io(&error))?;
    let writer = ArrowWriter::try_new(file, schema, Some(properties.build()));
    let mut writer = writer.map_err(|error| io(&error))?;
    for first in (0..rows).step_by(GROUP) {
        let end = rows.min(first + GROUP as u64);
        let batch = RecordBatch::try_from_iter([("x", values.array(first..end)?)]);
        let batch = batch.map_err(|error| io(&error))?;
        writer.write(&batch).map_err(|error| io(&error))?;
    }
    writer.close().map_err(|error| io(&error))?;
    Ok(())
}
