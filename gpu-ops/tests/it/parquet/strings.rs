//! Strings that lie as bytes: long ones, many that repeat, damaged ones.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, BinaryArray, FixedSizeBinaryArray, RecordBatch, StringArray, StringViewArray,
};
use datafusion::parquet::basic::{Compression, Encoding};
use warpline_gpu::column::Encoding as Lies;
use warpline_gpu::parquet::ParquetReader;

use super::files::{Written, write};
use super::{Setup, exhaustive};
use crate::support::devices;

const ENCODINGS: [Encoding; 3] = [
    Encoding::PLAIN,
    Encoding::DELTA_LENGTH_BYTE_ARRAY,
    Encoding::DELTA_BYTE_ARRAY,
];

/// Columns `text`, whose name lets any encoding serve, and `word`.
fn texts(rows: usize, of: impl Fn(usize) -> Option<String>) -> RecordBatch {
    let views: ArrayRef = Arc::new(StringViewArray::from_iter((0..rows).map(&of)));
    let strings: ArrayRef = Arc::new(StringArray::from_iter((0..rows).map(&of)));
    RecordBatch::try_from_iter_with_nullable([("text", views, true), ("word", strings, true)])
        .unwrap()
}

fn compare(rows: usize, written: &Written, what: &str, of: impl Fn(usize) -> Option<String>) {
    for device in devices() {
        let setup = Setup::new(&device);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.parquet");
        write(&path, &texts(rows, &of), written);
        let counts = setup.compare(&path, what);
        assert_eq!(counts.by_cpu(), 0, "{what}: {counts}");
    }
}

fn encoded(encoding: Encoding) -> Written {
    Written {
        encoding: Some(encoding),
        page_rows: 130,
        group_rows: 1000,
        ..Written::default()
    }
}

#[test]
fn lengths_at_the_edges_of_words_and_windows() {
    let lengths = [
        0, 1, 3, 4, 5, 31, 63, 64, 65, 127, 128, 4080, 4088, 4091, 4092, 4093, 4096, 9000,
    ];
    for encoding in ENCODINGS {
        for shift in 0..4 {
            let written = encoded(encoding);
            compare(60, &written, &format!("{encoding:?}, {shift}"), |row| {
                let length = lengths[row * 7 % lengths.len()] + row % 4 * shift;
                let text: String = (0..length)
                    .map(|i| (b'a' + (i * row % 26) as u8) as char)
                    .collect();
                Some(text)
            });
        }
    }
}

#[test]
fn strings_that_repeat_get_a_dictionary_and_others_do_not() {
    for encoding in ENCODINGS {
        for (values, nulls) in [
            (1, false),
            (7, true),
            (900, false),
            (1100, true),
            (3000, false),
        ] {
            let what = format!("{encoding:?}, {values} values");
            compare(2100, &encoded(encoding), &what, |row| {
                let null = nulls && row % 9 == 4;
                (!null).then(|| format!("straße {} of many", row * 7919 % values))
            });
        }
    }
}

/// Pages of one tag after another: repeats of every distance, over literals of every length.
#[test]
fn compressed_streams_of_all_shapes() {
    let codecs = [Compression::SNAPPY, Compression::LZ4_RAW];
    let letters = |seed: usize, length: usize| -> String {
        let letter =
            |i: usize| (b' ' + ((i * i + seed * 31 + i * seed) * 2_654_435_761 % 94) as u8) as char;
        (0..length).map(letter).collect()
    };
    for codec in codecs {
        for page_rows in [1, 33, 1000] {
            let written = Written {
                codec,
                page_rows,
                ..encoded(Encoding::PLAIN)
            };
            // A unit of every length, repeated to lengths around what a tag, a lane and a look at the stream hold.
            let what = format!("{codec}, pages of {page_rows}: repeats");
            compare(140, &written, &what, |row| {
                let (unit, length) = (row % 70 + 1, [3, 8, 31, 64, 65, 200, 700][row % 7]);
                Some(letters(row, unit).repeat(length / unit + 1)[..length].to_string())
            });
            let what = format!("{codec}, pages of {page_rows}: literals");
            compare(140, &written, &what, |row| {
                let near = letters(row / 2, 12);
                Some(format!(
                    "{}{near}{}",
                    letters(row, row % 71),
                    letters(row + 7, row * row % 300)
                ))
            });
        }
    }
}

#[test]
fn nulls_alone_empty_strings_and_long_common_beginnings() {
    for encoding in ENCODINGS {
        let what = format!("{encoding:?}");
        compare(300, &encoded(encoding), &what, |_| None);
        compare(300, &encoded(encoding), &what, |_| Some(String::new()));
        compare(300, &encoded(encoding), &what, |row| {
            (row % 5 != 2).then(|| "x".repeat(row) + &"ß".repeat(row % 3))
        });
    }
}

#[test]
fn columns_without_dictionary_lie_as_bytes() {
    for device in devices() {
        let setup = Setup::new(&device);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.parquet");
        let batch = texts(500, |row| Some(format!("value {row}")));
        write(&path, &batch, &encoded(Encoding::PLAIN));
        let loaded = setup.load(&path, ParquetReader::Device).unwrap();
        for column in &loaded.columns {
            assert!(matches!(column.encoding, Lies::Bytes { .. }));
            assert!(column.statistics.ascii);
        }
    }
}

/// Writers that do not say that bytes are text, and a reader who takes them for it (`binary_as_string`).
#[test]
fn bytes_that_are_taken_for_text() {
    let of = |row: usize, values: usize| (row % 11 != 5).then(|| format!("käse {}", row % values));
    let dictionary = Written {
        page_rows: 130,
        group_rows: 1000,
        ..Written::default()
    };
    let plain = ENCODINGS.into_iter().map(encoded);
    let plain = plain.flat_map(|written| [(written.clone(), 7), (written, 3000)]);
    // The CPU reads dictionaries that hardly repeat.
    let all: Vec<(Written, usize)> = plain.chain([(dictionary, 7)]).collect();
    for device in devices() {
        let setup = Setup::new(&device);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.parquet");
        for (written, values) in &all {
            let rows = (0..2100).map(|row| of(row, *values));
            let bytes: ArrayRef = Arc::new(BinaryArray::from_iter(rows));
            let batch = RecordBatch::try_from_iter_with_nullable([("text", bytes, true)]);
            write(&path, &batch.unwrap(), written);
            let what = format!("{written:?}, {values} values");
            let counts = setup.compare(&path, &what);
            assert_eq!(counts.by_cpu(), 0, "{what}: {counts}");
            assert!(counts.device > 0, "{what}");
        }
        let broken: ArrayRef = Arc::new(BinaryArray::from_iter_values([&b"a"[..], b"\xff"]));
        let batch = RecordBatch::try_from_iter_with_nullable([("text", broken, true)]);
        let batch = batch.unwrap();
        for written in [encoded(Encoding::PLAIN), Written::default()] {
            write(&path, &batch, &written);
            // DataFusion's reader lets them pass.
            let loaded = setup.load(&path, ParquetReader::Device);
            assert!(loaded.is_ok_and(|table| table.chunks.device == 0));
        }
    }
}

/// Columns of bytes, which need not be text: of any length, and of one.
#[test]
fn bytes_that_are_taken_for_bytes() {
    let bytes = |row: usize, values: usize| -> Option<Vec<u8>> {
        let number = row * 7919 % values;
        (row % 11 != 5).then(|| {
            (0..number % 41)
                .map(|i| (number * 31 + i * 7) as u8)
                .collect()
        })
    };
    let id = |row: usize, values: usize| -> Option<[u8; 16]> {
        let number = (row * 7919 % values) as u128;
        (row % 13 != 5).then(|| {
            number
                .wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c834)
                .to_le_bytes()
        })
    };
    let dictionary = Written {
        page_rows: 130,
        group_rows: 1000,
        ..Written::default()
    };
    let plain = ENCODINGS.into_iter().map(encoded);
    for device in devices() {
        let mut setup = Setup::new(&device);
        setup.binary_as_string = false;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.parquet");
        for written in plain.clone().chain([dictionary.clone()]) {
            for values in [1, 7, 3000] {
                let rows = (0..2100).map(|row| bytes(row, values));
                let texts: ArrayRef = Arc::new(BinaryArray::from_iter(rows));
                let rows = (0..2100).map(|row| id(row, values));
                let ids = FixedSizeBinaryArray::try_from_sparse_iter_with_size(rows, 16).unwrap();
                let columns = [
                    ("text", texts, true),
                    ("id", Arc::new(ids) as ArrayRef, true),
                ];
                let batch = RecordBatch::try_from_iter_with_nullable(columns).unwrap();
                write(&path, &batch, &written);
                let what = format!("{written:?}, {values} values");
                let counts = setup.compare(&path, &what);
                assert!(counts.device > 0, "{what}");
                // The CPU reads dictionaries of strings that hardly repeat.
                let few = written.encoding.is_some() || values < 3000;
                assert!(!few || counts.by_cpu() == 0, "{what}: {counts}");
            }
        }
    }
}

/// Bytes that are no UTF-8, at any place of a string.
#[test]
fn bytes_that_are_no_text_are_errors_as_the_cpus() {
    let broken: [&[u8]; 12] = [
        b"\x80",
        b"\xc0\x80",
        b"\xc3",
        b"\xe0\x80\x80",
        b"\xed\xa0\x80",
        b"\xf0\x80\x80\x80",
        b"\xf4\x90\x80\x80",
        b"\xf5\x80\x80\x80",
        b"\xe2\x82",
        b"\xf0\x9f\x98",
        b"\xff",
        b"\xc3\xa4\xa4",
    ];
    // Characters that are some, of every length.
    let sound = [
        "ä",
        "€",
        "😀",
        "\u{7ff}",
        "\u{800}",
        "\u{ffff}",
        "\u{10ffff}",
        "\u{d7ff}",
    ];
    let marker = "MARKER";
    for device in devices() {
        let setup = Setup::new(&device);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.parquet");
        for encoding in ENCODINGS {
            let written = Written {
                codec: Compression::UNCOMPRESSED,
                ..encoded(encoding)
            };
            for (number, filling) in sound.into_iter().enumerate() {
                let batch = texts(40, |row| Some(filling.repeat(row % 40 + number)));
                write(&path, &batch, &written);
                setup.compare(&path, filling);
            }
            let some = if exhaustive() { broken.len() } else { 12 };
            for bytes in &broken[..some] {
                let batch = texts(40, |row| match row {
                    17 => Some(format!("{marker}{}", "-".repeat(100))),
                    _ => Some(format!("{row}")),
                });
                write(&path, &batch, &written);
                let mut file = std::fs::read(&path).unwrap();
                let at = file
                    .windows(6)
                    .position(|w| w == marker.as_bytes())
                    .unwrap();
                file[at..at + 6].copy_from_slice(b"abcdef");
                file[at..at + bytes.len()].copy_from_slice(bytes);
                std::fs::write(&path, &file).unwrap();
                assert!(setup.load(&path, ParquetReader::Cpu).is_err(), "{bytes:?}");
                assert!(
                    setup.load(&path, ParquetReader::Device).is_err(),
                    "{bytes:?}"
                );
            }
        }
    }
}
