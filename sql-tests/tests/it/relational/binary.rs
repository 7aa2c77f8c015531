//! Columns of bytes that need not be text: as filters, keys, arguments and output, from memory and from parquet.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, BinaryArray, FixedSizeBinaryArray, Int64Array, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::DataType;
use datafusion::parquet::basic::{Compression, Encoding};
use datafusion::parquet::file::properties::{WriterProperties, WriterVersion};
use warpline_sql_tests::{Fixture, Random, test_device};

use crate::operators::support::{Nulls, check_all, drawn, row_numbers, write_parquet};

/// Values of which many repeat: empty, not UTF-8, prefixes of one another, longer than a view holds.
const FEW: [&[u8]; 8] = [
    b"",
    b"\x00",
    b"\x00\x00",
    b"a",
    b"abc",
    b"\xff",
    b"\xc3\x28 is no text, and not short",
    "größe".as_bytes(),
];

/// Values that hardly repeat: hashes, so to speak.
fn unique(rows: usize, seed: u64, length: usize) -> Vec<Option<Vec<u8>>> {
    let mut random = Random::new(seed);
    let byte = |random: &mut Random| random.below(256) as u8;
    (0..rows)
        .map(|row| match row % 31 {
            7 => None,
            _ => Some((0..length).map(|_| byte(&mut random)).collect()),
        })
        .collect()
}

fn of(values: &[Option<Vec<u8>>]) -> ArrayRef {
    let values = values.iter().map(Option::as_deref);
    Arc::new(BinaryArray::from_iter(values))
}

fn few(rows: usize, nulls: Nulls, seed: u64) -> ArrayRef {
    Arc::new(BinaryArray::from_opt_vec(drawn(&FEW, rows, nulls, seed)))
}

fn fixed(values: &[Option<Vec<u8>>], size: i32) -> ArrayRef {
    let values = values.iter().map(Option::as_deref);
    let array = FixedSizeBinaryArray::try_from_sparse_iter_with_size(values, size);
    Arc::new(array.expect("values of one length"))
}

/// `b` repeats, `u` hardly does; `d` is `u` as an identifier of 16 bytes; `a` is NULL. `o` has some of the values.
fn columns(rows: usize, seed: u64) -> Vec<(&'static str, ArrayRef)> {
    let view = |array: ArrayRef| cast(&array, &DataType::BinaryView).expect("views");
    let numbers = Int64Array::from_iter_values((0..rows as i64).map(|row| row % 7));
    vec![
        ("id", row_numbers(rows)),
        ("n", Arc::new(numbers)),
        ("b", few(rows, Nulls::Some, seed)),
        ("w", view(few(rows, Nulls::None, seed + 1))),
        ("u", of(&unique(rows, seed, 20))),
        ("v", view(of(&unique(rows, seed, 20)))),
        ("d", fixed(&unique(rows, seed, 16), 16)),
        ("a", few(rows, Nulls::All, 3)),
    ]
}

fn fixture(rows: usize) -> Fixture {
    let other = columns(rows, 5).into_iter();
    let other = other.map(|(name, array)| (name, array.slice(0, rows / 3)));
    Fixture::device()
        .table("t", columns(rows, 5))
        .table("o", other)
}

/// What runs wholly on the device.
const QUERIES: [&str; 34] = [
    "SELECT * FROM t",
    "SELECT id, b, w FROM t WHERE b = X'616263'",
    "SELECT id, d FROM t WHERE b > X'00' AND w <= X'ff'",
    "SELECT id FROM t WHERE b IN (X'', X'ff', X'1234') OR w IN (X'00')",
    "SELECT id FROM t WHERE b NOT IN (X'', X'ff')",
    "SELECT count(*) AS n FROM t WHERE b IS NULL",
    "SELECT id FROM t WHERE b IS DISTINCT FROM w",
    "SELECT id FROM t WHERE b = w OR b < w",
    "SELECT id, encode(b, 'hex') AS h, character_length(encode(u, 'hex')) AS l FROM t",
    "SELECT encode(w, 'base64') AS h, count(*) AS n FROM t GROUP BY encode(w, 'base64')",
    "SELECT id, sha256(b) AS h FROM t WHERE n < 3",
    "SELECT b, count(*) AS n, sum(n) AS s FROM t GROUP BY b",
    "SELECT b, w, min(u) AS lo, max(v) AS hi FROM t GROUP BY b, w",
    "SELECT a, count(a) AS n, max(a) AS hi FROM t GROUP BY a",
    "SELECT count(DISTINCT b) AS x, count(DISTINCT u) AS y, count(DISTINCT d) AS z FROM t",
    "SELECT min(b) AS lo, max(w) AS hi, min(u) AS least, max(d) AS most FROM t",
    "SELECT DISTINCT w, n FROM t",
    "SELECT u, count(*) AS c FROM t GROUP BY u",
    "SELECT t.id, o.id AS other FROM t JOIN o ON t.u = o.u",
    "SELECT t.id, o.id AS other FROM t JOIN o ON t.u = o.v",
    "SELECT t.id, o.n FROM t LEFT JOIN o ON t.d = o.d",
    "SELECT t.b, count(*) AS c FROM t JOIN o ON t.b = o.b AND t.n = o.n GROUP BY t.b",
    "SELECT id FROM t WHERE d IN (SELECT d FROM o WHERE n = 2)",
    "SELECT id FROM t WHERE u NOT IN (SELECT u FROM o WHERE u IS NOT NULL)",
    "SELECT id FROM t WHERE NOT EXISTS (SELECT 1 FROM o WHERE o.d = t.d)",
    "SELECT id, b FROM t ORDER BY b DESC NULLS LAST, id",
    "SELECT id, u FROM t ORDER BY u, id LIMIT 17",
    "SELECT id, row_number() OVER (PARTITION BY b, d ORDER BY id) AS r FROM t",
    "SELECT id, lag(b) OVER (ORDER BY id) AS before, first_value(d) OVER (PARTITION BY n ORDER BY id) AS f FROM t",
    "SELECT id, CASE WHEN n > 3 THEN b ELSE X'07' END AS c, coalesce(nullif(b, X'00'), a) AS o FROM t",
    "SELECT b AS x FROM t UNION ALL SELECT u FROM o UNION ALL SELECT X'0a'",
    "SELECT b FROM t INTERSECT SELECT b FROM o",
    "SELECT u FROM t EXCEPT SELECT u FROM o",
    "SELECT n, array_agg(b ORDER BY id) AS l FROM t GROUP BY n",
];

#[test]
fn bytes_of_any_kind() {
    for rows in [1, 32, 33, 2_500] {
        check_all(&fixture(rows), QUERIES.map(String::from));
    }
}

#[test]
fn no_rows() {
    let empty = |(name, array): (&'static str, ArrayRef)| (name, array.slice(0, 0));
    let fixture = Fixture::device()
        .table("t", columns(3, 1).into_iter().map(empty))
        .table("o", columns(3, 1).into_iter().map(empty));
    check_all(&fixture, QUERIES.map(String::from));
}

/// What is made text of bytes has to be text: an error where it is none, on the device as elsewhere.
#[test]
fn bytes_as_text_and_text_as_bytes() {
    let texts = |values: [&'static str; 5]| -> ArrayRef {
        Arc::new(BinaryArray::from_iter_values(
            (0..200).map(|i| values[i % 5].as_bytes()),
        ))
    };
    let fixture = Fixture::device()
        .table(
            "t",
            [
                ("id", row_numbers(200)),
                ("b", texts(["", "a", "größe", "日本", "a b c"])),
                ("x", few(200, Nulls::Some, 9)),
            ],
        )
        .table_from(
            "s",
            "SELECT value AS id, 'text ' || (value % 9) AS t FROM generate_series(1, 100)",
        );
    check_all(
        &fixture,
        [
            "SELECT id, CAST(b AS VARCHAR) AS t FROM t",
            "SELECT id FROM t WHERE CAST(b AS VARCHAR) LIKE '%r%'",
            "SELECT CAST(b AS VARCHAR) AS t, count(*) AS n FROM t GROUP BY CAST(b AS VARCHAR)",
            "SELECT t, count(*) AS n FROM s WHERE CAST(t AS BYTEA) > X'7465787420' GROUP BY t",
            "SELECT DISTINCT CAST(t AS BYTEA) AS b FROM s",
        ]
        .map(String::from),
    );
    fixture.check_error("SELECT id FROM t WHERE CAST(x AS VARCHAR) LIKE 'a%'");
    fixture.check_error("SELECT id, CAST(x AS VARCHAR) AS t FROM t");
    // The session lives on.
    fixture.check("SELECT count(x) AS n FROM t");
}

/// Pages with and without dictionaries, of both versions.
#[test]
fn bytes_of_parquet_files() {
    let folder = tempfile::tempdir().expect("a folder");
    let rows = 3_000;
    let columns = columns(rows, 11);
    let batch = RecordBatch::try_from_iter_with_nullable(
        columns
            .iter()
            .map(|(name, array)| (*name, Arc::clone(array), true)),
    )
    .expect("a batch");
    let plain = WriterProperties::builder()
        .set_dictionary_enabled(false)
        .set_max_row_group_row_count(Some(1_100));
    let changes = WriterProperties::builder()
        .set_writer_version(WriterVersion::PARQUET_2_0)
        .set_dictionary_enabled(false)
        .set_column_encoding("u".into(), Encoding::DELTA_BYTE_ARRAY)
        .set_column_encoding("b".into(), Encoding::DELTA_LENGTH_BYTE_ARRAY)
        .set_compression(Compression::SNAPPY);
    let kinds = [
        ("dictionaries", WriterProperties::builder()),
        ("plain", plain),
        ("changes", changes),
    ];
    for (name, properties) in kinds {
        let path = folder.path().join(format!("{name}.parquet"));
        write_parquet(&path, &batch, properties.build());
        for late in ["off", "on"] {
            let settings = [
                ("warpline.late_columns", late),
                ("warpline.parquet", "device"),
            ];
            let fixture = Fixture::open(test_device(), true, &settings)
                .parquet("t", &path)
                .parquet("o", &path);
            fixture.set("warpline.min_rows", "0");
            check_all(&fixture, QUERIES.map(String::from));
        }
    }
}
