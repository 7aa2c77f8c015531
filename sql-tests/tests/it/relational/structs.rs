//! Fields of structs: in filters, keys, arguments and output, below and above joins, from memory and from parquet.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Float64Array, Int64Array, RecordBatch, StructArray};
use arrow::buffer::NullBuffer;
use arrow::datatypes::{DataType, Date32Type, Field, Int32Type, Int64Type};
use datafusion::parquet::basic::Compression;
use datafusion::parquet::file::properties::{WriterProperties, WriterVersion};
use warpline_sql_tests::{Fixture, Random, test_device};

use crate::operators::support::{
    Nulls, check_all, drawn, primitive, row_numbers, string_views, write_parquet,
};

const WORDS: [&str; 6] = [
    "",
    "a",
    "abc",
    "größe",
    "日本",
    "a longer word than fits a view",
];

/// Structs of these fields, a quarter of them NULL where there are NULLs. What is within a NULL is NULL as well.
fn of(fields: Vec<(&str, ArrayRef, bool)>, nulls: Nulls, seed: u64) -> ArrayRef {
    let rows = fields[0].1.len();
    let mut random = Random::new(seed);
    let is_there = |_| match nulls {
        Nulls::None => true,
        Nulls::Some => random.below(4) > 0,
        Nulls::All => false,
    };
    let there: Vec<bool> = (0..rows).map(is_there).collect();
    let (described, arrays): (Vec<_>, Vec<_>) = fields
        .into_iter()
        .map(|(name, array, nullable)| {
            let field = Field::new(name, array.data_type().clone(), nullable);
            let missing: Vec<bool> = there.iter().map(|there| !there && nullable).collect();
            let array = arrow::compute::nullif(&array, &missing.into()).expect("of one length");
            (field, array)
        })
        .unzip();
    let there = (nulls != Nulls::None).then(|| NullBuffer::from(there));
    Arc::new(StructArray::new(described.into(), arrays, there))
}

/// `s` may be NULL, as all of its fields but `k`; `r` is never; `a` is always.
fn columns(rows: usize, seed: u64) -> Vec<(&'static str, ArrayRef)> {
    let number = |from, nulls, seed| {
        let values: Vec<i32> = (from..from + 12).collect();
        primitive::<Int32Type>(drawn(&values, rows, nulls, seed))
    };
    let word = |nulls, seed| string_views(drawn(&WORDS, rows, nulls, seed));
    let far = primitive::<Int64Type>(drawn(
        &[i64::MIN, -1, 0, 7, i64::MAX],
        rows,
        Nulls::None,
        seed + 1,
    ));
    let days = primitive::<Date32Type>(drawn(&[0, 9_000, 20_000], rows, Nulls::Some, seed + 2));
    let mut random = Random::new(seed + 3);
    let ratio = Float64Array::from_iter_values((0..rows).map(|_| random.below(1000) as f64 / 8.0));
    let inner = of(
        vec![
            ("d", days, true),
            ("k", far, false),
            ("Word", word(Nulls::Some, seed + 4), true),
        ],
        Nulls::Some,
        seed + 5,
    );
    let outer = of(
        vec![
            ("i", number(-3, Nulls::Some, seed + 6), true),
            ("w", word(Nulls::None, seed + 7), true),
            ("n", inner, true),
            ("f", Arc::new(ratio), true),
        ],
        Nulls::Some,
        seed + 8,
    );
    let whole = of(
        vec![
            ("i", number(0, Nulls::None, seed + 9), false),
            ("w", word(Nulls::Some, seed + 10), true),
        ],
        Nulls::None,
        0,
    );
    let nothing = of(
        vec![("i", number(0, Nulls::Some, seed + 11), true)],
        Nulls::All,
        seed,
    );
    let group = Int64Array::from_iter_values((0..rows as i64).map(|row| row % 7));
    vec![
        ("id", row_numbers(rows)),
        ("g", Arc::new(group)),
        ("s", outer),
        ("r", whole),
        ("a", nothing),
    ]
}

/// What runs wholly on the device.
const QUERIES: [&str; 49] = [
    "SELECT id, s['i'] AS i, s['w'] AS w, s['n']['k'] AS k, r['i'] AS j FROM t",
    "SELECT id, s['n']['Word'] AS w FROM t WHERE s['i'] > 3",
    "SELECT id FROM t WHERE s['n']['k'] < 7 AND r['i'] <> 5 AND s['f'] < 60.5",
    "SELECT id FROM t WHERE s['w'] LIKE '%r%' OR s['n']['d'] = DATE '1994-08-23'",
    "SELECT count(*) AS n FROM t WHERE s['i'] IS NULL",
    "SELECT id FROM t WHERE s IS NULL",
    "SELECT id FROM t WHERE s['n'] IS NOT NULL AND s['n']['k'] = 0",
    "SELECT id, s IS NULL AS x, s['n'] IS NOT NULL AS y, r IS NOT NULL AS z, a IS NULL AS v FROM t",
    "SELECT s['w'] AS w, count(*) AS n, sum(s['i']) AS i, min(s['n']['d']) AS d FROM t GROUP BY s['w']",
    "SELECT s['i'] AS i, r['w'] AS w, avg(s['f']) AS f FROM t GROUP BY s['i'], r['w']",
    "SELECT count(s['i']) AS a, count(DISTINCT s['n']['Word']) AS b, max(s['w']) AS c FROM t",
    "SELECT a['i'] AS i, count(*) AS n FROM t GROUP BY a['i']",
    "SELECT DISTINCT s['n']['k'] AS k, r['i'] AS i FROM t",
    "SELECT g, sum(s['i']) FILTER (WHERE s['n']['k'] > 0) AS x FROM t GROUP BY g HAVING max(r['i']) > 3",
    "SELECT t.id, o.id AS other FROM t JOIN o ON t.s['i'] = o.r['i'] AND t.g = o.g",
    "SELECT t.id, o.s['w'] AS w, t.s['w'] AS v FROM t JOIN o ON t.id = o.id WHERE t.s['f'] > o.s['f'] - 50",
    "SELECT t.id, o.s['i'] AS i, o.s['n']['k'] AS k FROM t LEFT JOIN o ON t.id = o.id",
    "SELECT t.id, o.id AS other, t.r['i'] AS i FROM t FULL JOIN o ON t.id = o.id + 5",
    "SELECT id FROM t WHERE s['i'] IN (SELECT r['i'] FROM o)",
    "SELECT id FROM t WHERE s['w'] NOT IN (SELECT r['w'] FROM o WHERE r['w'] IS NOT NULL)",
    "SELECT id FROM t WHERE NOT EXISTS (SELECT 1 FROM o WHERE o.s['i'] = t.s['i'] AND o.id > t.id)",
    "SELECT id, s['i'] AS i FROM t WHERE s['i'] > (SELECT avg(r['i']) FROM o)",
    "SELECT id, s['w'] AS w, s['i'] AS i FROM t ORDER BY s['w'] DESC NULLS LAST, s['i'], id",
    "SELECT id FROM t ORDER BY s['n']['k'], id LIMIT 17",
    "SELECT id, row_number() OVER (PARTITION BY s['w'] ORDER BY s['i'], id) AS n, s['f'] AS f FROM t",
    "SELECT id, sum(s['i']) OVER (PARTITION BY g ORDER BY id) AS x, lag(r['w']) OVER (ORDER BY id) AS l FROM t",
    "SELECT x['i'] AS i, x['w'] AS w FROM (SELECT id, s AS x FROM t ORDER BY id LIMIT 9)",
    "SELECT x['i'] AS i FROM (SELECT s AS x FROM t UNION ALL SELECT s FROM o)",
    "SELECT x.s['n']['k'] AS k FROM (SELECT s, g, max(id) OVER (PARTITION BY g) AS m FROM t) x WHERE x.m > 3",
    "SELECT s['w'] AS w FROM t INTERSECT SELECT r['w'] FROM o",
    "SELECT s['i'] AS i FROM t EXCEPT SELECT r['i'] FROM o",
    "SELECT id, coalesce(s['i'], r['i']) AS c, CASE WHEN s IS NULL THEN 'none' ELSE s['w'] END AS w FROM t",
    "SELECT id, upper(s['w']) AS u, length(s['n']['Word']) AS l, s['i'] + r['i'] * 2 AS x FROM t",
    "SELECT date_trunc('year', s['n']['d']) AS y, count(*) AS n FROM t GROUP BY date_trunc('year', s['n']['d'])",
    "WITH q AS (SELECT s['w'] AS w, count(*) AS n FROM t GROUP BY s['w']) SELECT t.id, q.n FROM t JOIN q ON t.s['w'] = q.w",
    "SELECT g, array_agg(s['w'] ORDER BY id) AS l FROM t GROUP BY g",
    "SELECT t.id, q.x['w'] AS w FROM t JOIN (SELECT id, r AS x, s FROM o WHERE s['i'] > 0) q ON t.id = q.id",
    "SELECT t.id, u.id AS other FROM t JOIN o AS u ON upper(t.s['w']) = upper(u.s['w']) AND t.s['i'] + 1 = u.g",
    "SELECT id, (SELECT count(*) FROM o AS u WHERE u.s['w'] = t.s['w'] AND u.s['i'] > 2) AS n FROM t",
    "SELECT id FROM t WHERE s['i'] + 1 > (SELECT avg(u.s['i']) FROM o AS u WHERE u.s['w'] = t.s['w'])",
    "SELECT id, s['i'] AS i FROM t WHERE EXISTS (SELECT 1 FROM o AS u WHERE u.s['n']['k'] = t.s['n']['k'] AND u.id <> t.id)",
    "SELECT id FROM t WHERE s['i'] NOT IN (SELECT u.r['i'] FROM o AS u WHERE u.g = t.g AND u.r['w'] = t.r['w'])",
    "SELECT g, sum((SELECT max(u.r['i']) FROM o AS u WHERE u.g = t.r['i'])) AS x FROM t GROUP BY g",
    "SELECT t.id, u.id AS other FROM t JOIN o AS u ON t.g = u.g AND t.s['i'] < u.s['i'] AND t.s['n'] IS NOT NULL AND t.id < 90",
    "SELECT t.id, u.s['w'] AS w FROM o AS u RIGHT JOIN t ON t.s['i'] = u.s['i'] AND t.r['i'] > u.r['i'] AND t.id < 60",
    "SELECT g, stddev(s['f']) AS d, first_value(s['w'] ORDER BY s['i'], id) AS w, median(r['i']) AS m FROM t GROUP BY g",
    "SELECT s['w'] AS w, g, count(*) AS n, sum(r['i']) AS i FROM t GROUP BY ROLLUP (s['w'], g)",
    "SELECT id, sum(s['f']) OVER (PARTITION BY s['w']) AS f, max(s['n']['k']) OVER (PARTITION BY g) AS k FROM t",
    "SELECT count(*) AS n FROM t, o WHERE t.s['i'] = o.s['i'] AND t.s['n']['k'] = o.s['n']['k']",
];

/// Whole structs in the output, put together as rows leave.
const WHOLE: [&str; 14] = [
    "SELECT * FROM t",
    "SELECT s, id FROM t WHERE s['i'] > 3",
    "SELECT s['n'] AS n, r, id FROM t WHERE g = 2",
    "SELECT * FROM t ORDER BY s['w'], id LIMIT 21",
    "SELECT s FROM t ORDER BY id DESC LIMIT 5",
    "SELECT a, r AS x, r AS y FROM t WHERE id < 70",
    "SELECT t.id, o.s, o.r, t.s AS own FROM t LEFT JOIN o ON t.id = o.id",
    "SELECT t.s, o.s AS other, o.a, o.id FROM t FULL JOIN o ON t.id = o.id + 5",
    "SELECT t.id, o.s['n'] AS n FROM t JOIN o ON t.s['w'] = o.r['w'] AND t.g = o.g AND t.id < 200",
    "SELECT id, s, row_number() OVER (PARTITION BY g ORDER BY s['f'], id) AS n FROM t",
    "SELECT s, id FROM t UNION ALL SELECT s, id FROM o",
    "SELECT id, s FROM t WHERE EXISTS (SELECT 1 FROM o WHERE o.r['i'] = t.s['i'])",
    "SELECT t.id, s, (SELECT max(r['i']) FROM o) AS m FROM t",
    "SELECT q.s, q.n FROM (SELECT s, s['n'] AS n, g FROM t ORDER BY id LIMIT 40) q WHERE q.g <> 3",
];

fn queries() -> impl Iterator<Item = String> {
    QUERIES.iter().chain(&WHOLE).map(|sql| sql.to_string())
}

fn fixture(rows: usize) -> Fixture {
    let other = columns(rows, 31).into_iter();
    let other = other.map(|(name, array)| (name, array.slice(0, rows / 3)));
    Fixture::device()
        .table("t", columns(rows, 5))
        .table("o", other)
}

#[test]
fn fields_of_structs() {
    for rows in [1, 32, 33, 2_500] {
        check_all(&fixture(rows), queries());
    }
}

#[test]
fn no_rows() {
    let empty = |(name, array): (&'static str, ArrayRef)| (name, array.slice(0, 0));
    let fixture = Fixture::device()
        .table("t", columns(3, 1).into_iter().map(empty))
        .table("o", columns(3, 1).into_iter().map(empty));
    check_all(&fixture, queries());
}

/// What may be NULL itself is what it says, whatever is around it; what may not is NULL with its struct.
#[test]
fn values_below_a_null() {
    let numbers = || -> ArrayRef { Arc::new(Int64Array::from_iter_values(0..100)) };
    let inner = StructArray::new(
        vec![Field::new("k", DataType::Int64, false)].into(),
        vec![numbers()],
        None,
    );
    let hidden = StructArray::new(
        vec![
            Field::new("i", DataType::Int64, true),
            Field::new("k", DataType::Int64, false),
            Field::new("n", inner.data_type().clone(), false),
        ]
        .into(),
        vec![numbers(), numbers(), Arc::new(inner)],
        Some(NullBuffer::from_iter((0..100).map(|row| row % 3 != 0))),
    );
    let fixture = Fixture::device().table(
        "t",
        [
            ("id", row_numbers(100)),
            ("s", Arc::new(hidden) as ArrayRef),
        ],
    );
    fixture.check("SELECT id, s['i'] AS i, s['k'] AS k, s['n']['k'] AS n FROM t");
    fixture.check("SELECT id FROM t WHERE s['k'] IS NULL OR s['n']['k'] > 90");
    fixture.check("SELECT id, s['n'] AS n FROM t WHERE s['n'] IS NOT NULL");
    fixture.check("SELECT * FROM t WHERE id > 10");
    let run = fixture.run("SELECT count(s['k']) AS n, sum(s['n']['k']) AS x FROM t");
    let batches = run.expect("an answer").batches;
    let number = |at: usize| batches[0].column(at).as_primitive::<Int64Type>().value(0);
    let sum: i64 = (0..100).filter(|row| row % 3 != 0).sum();
    assert_eq!([number(0), number(1)], [66, sum]);
}

/// Pages of both versions, with and without dictionaries, in several row groups.
#[test]
fn fields_in_parquet_files() {
    let folder = tempfile::tempdir().expect("a folder");
    let columns = columns(3_000, 11).into_iter();
    let columns = columns.map(|(name, array)| (name, array, name != "r"));
    let batch = RecordBatch::try_from_iter_with_nullable(columns).expect("a batch");
    let plain = WriterProperties::builder()
        .set_dictionary_enabled(false)
        .set_max_row_group_row_count(Some(1_100));
    let second = WriterProperties::builder()
        .set_writer_version(WriterVersion::PARQUET_2_0)
        .set_compression(Compression::SNAPPY);
    let kinds = [
        ("dictionaries", WriterProperties::builder(), "off"),
        ("plain", plain, "on"),
        ("second", second, "on"),
    ];
    for (name, properties, late) in kinds {
        let path = folder.path().join(format!("{name}.parquet"));
        write_parquet(&path, &batch, properties.build());
        for filters in ["false", "true"] {
            let settings = [
                ("warpline.late_columns", late),
                ("warpline.parquet", "device"),
                ("datafusion.execution.parquet.pushdown_filters", filters),
            ];
            let fixture = Fixture::open(test_device(), true, &settings)
                .parquet("t", &path)
                .parquet("o", &path);
            fixture.set("warpline.min_rows", "0");
            check_all(&fixture, queries());
        }
    }
}
