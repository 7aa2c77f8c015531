//! Lists, maps and calendar intervals: as keys, arguments of functions and output, from memory and from parquet.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, FixedSizeListArray, Float64Array, Int32Array, Int64Array,
    IntervalMonthDayNanoArray, ListArray, MapArray, RecordBatch, StringArray, StringViewArray,
    StructArray,
};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::compute::{cast, take};
use arrow::datatypes::{DataType, Field, Fields, Int64Type, IntervalMonthDayNano};
use datafusion::parquet::file::properties::{WriterProperties, WriterVersion};
use warpline_sql_tests::{Fixture, test_device};

use crate::operators::support::{
    Nulls, check_all, drawn, row_numbers, string_views, write_parquet,
};

/// Lists of numbers: none, none in them, NULLs in them, beginnings of one another.
fn numbers() -> ArrayRef {
    let lists: [Option<&[Option<i64>]>; 9] = [
        Some(&[]),
        Some(&[Some(1)]),
        Some(&[Some(1), Some(2)]),
        Some(&[Some(1), None]),
        Some(&[None]),
        Some(&[Some(i64::MIN), Some(0), Some(i64::MAX)]),
        Some(&[Some(2), Some(2), Some(1)]),
        None,
        Some(&[Some(7); 70]),
    ];
    let lists = lists.map(|list| list.map(|list| list.to_vec()));
    Arc::new(ListArray::from_iter_primitive::<Int64Type, _, _>(lists))
}

fn lengths(lengths: &[usize]) -> OffsetBuffer<i32> {
    OffsetBuffer::from_lengths(lengths.iter().copied())
}

fn list_of(values: ArrayRef, of: &[usize], nulls: Option<Vec<bool>>) -> ArrayRef {
    let item = Field::new_list_field(values.data_type().clone(), true);
    let nulls = nulls.map(NullBuffer::from);
    Arc::new(ListArray::new(Arc::new(item), lengths(of), values, nulls))
}

/// Lists of strings.
fn words() -> ArrayRef {
    let words = [
        Some("a"),
        Some("b"),
        Some(""),
        None,
        Some("größe, and no short one"),
        Some("日本語"),
        Some("a"),
        Some("ab"),
    ];
    let words: ArrayRef = Arc::new(StringViewArray::from_iter(words));
    list_of(
        words,
        &[2, 0, 1, 1, 2, 0, 2],
        Some(vec![true, true, true, true, true, false, true]),
    )
}

/// Lists of floats: both zeros, no numbers, infinity.
fn floats() -> ArrayRef {
    let floats = [0.0, -0.0, f64::NAN, f64::INFINITY, 1.5, -1.5];
    let floats: ArrayRef = Arc::new(Float64Array::from(floats.to_vec()));
    list_of(floats, &[1, 1, 1, 1, 2], None)
}

/// Three numbers each.
fn triples() -> ArrayRef {
    let values: Int32Array = (0..12).map(|i| (i % 5 != 4).then_some(i)).collect();
    let item = Arc::new(Field::new_list_field(DataType::Int32, true));
    let nulls = NullBuffer::from(vec![true, true, false, true]);
    Arc::new(FixedSizeListArray::new(
        item,
        3,
        Arc::new(values),
        Some(nulls),
    ))
}

fn pairs() -> StructArray {
    let fields: Fields = vec![
        Field::new("key", DataType::Utf8, false),
        Field::new("value", DataType::Int64, true),
    ]
    .into();
    let keys = StringArray::from(vec!["a", "b", "a", "c", "", "b"]);
    let values = Int64Array::from(vec![Some(1), None, Some(2), Some(3), Some(1), Some(1)]);
    StructArray::new(fields, vec![Arc::new(keys), Arc::new(values)], None)
}

fn maps() -> ArrayRef {
    let entries = pairs();
    let field = Field::new("entries", entries.data_type().clone(), false);
    let nulls = NullBuffer::from(vec![true, true, false, true, true]);
    let offsets = lengths(&[2, 0, 0, 1, 3]);
    Arc::new(MapArray::new(
        Arc::new(field),
        offsets,
        entries,
        Some(nulls),
        false,
    ))
}

fn structs() -> ArrayRef {
    list_of(
        Arc::new(pairs()),
        &[1, 0, 2, 3],
        Some(vec![true, true, true, true]),
    )
}

fn lists_of_lists() -> ArrayRef {
    list_of(
        numbers(),
        &[2, 0, 3, 1, 3],
        Some(vec![true, true, true, false, true]),
    )
}

/// Spans of months, days and parts of a day, which compare by none of them alone.
fn spans() -> ArrayRef {
    let spans = [
        (0, 0, 0),
        (1, 0, 0),
        (0, 30, 0),
        (-1, 2, -3),
        (0, 0, 86_400_000_000_000),
    ];
    let spans = spans.map(|(months, days, nanos)| IntervalMonthDayNano::new(months, days, nanos));
    Arc::new(IntervalMonthDayNanoArray::from(spans.to_vec()))
}

/// Rows of `values`, some more often than others.
fn few(values: &ArrayRef, rows: usize, nulls: Nulls, seed: u64) -> ArrayRef {
    let all: Vec<i32> = (0..values.len() as i32).collect();
    let places = Int32Array::from(drawn(&all, rows, nulls, seed));
    take(values, &places, None).expect("rows")
}

/// A list a row, no two of them alike.
fn unique(rows: usize) -> ArrayRef {
    let lists = (0..rows as i64).map(|row| match row % 31 {
        7 => None,
        _ => Some((0..row % 4).chain([row]).map(Some).collect::<Vec<_>>()),
    });
    Arc::new(ListArray::from_iter_primitive::<Int64Type, _, _>(lists))
}

fn columns(rows: usize, seed: u64) -> Vec<(&'static str, ArrayRef)> {
    let texts = ["a,b", "", "b", "a,,c", "größe,a", "x"];
    let n = Int64Array::from_iter_values((0..rows as i64).map(|row| row % 7));
    let large = few(&words(), rows, Nulls::None, seed + 2);
    let large_type = match large.data_type() {
        DataType::List(item) => DataType::LargeList(Arc::clone(item)),
        other => other.clone(),
    };
    vec![
        ("id", row_numbers(rows)),
        ("n", Arc::new(n)),
        ("l", few(&numbers(), rows, Nulls::Some, seed)),
        ("w", few(&words(), rows, Nulls::None, seed + 1)),
        ("g", cast(&large, &large_type).expect("large lists")),
        ("f", few(&floats(), rows, Nulls::None, seed + 3)),
        ("x", few(&triples(), rows, Nulls::None, seed + 4)),
        ("m", few(&maps(), rows, Nulls::Some, seed + 5)),
        ("p", few(&structs(), rows, Nulls::Some, seed + 6)),
        ("q", few(&lists_of_lists(), rows, Nulls::Some, seed + 7)),
        ("u", unique(rows)),
        ("a", few(&numbers(), rows, Nulls::All, seed)),
        (
            "s",
            string_views(drawn(&texts, rows, Nulls::Some, seed + 8)),
        ),
    ]
}

/// Tables `t` and `o`, which has a third of the rows.
pub(super) fn fixture(rows: usize) -> Fixture {
    let other = columns(rows, 5).into_iter();
    let other = other.map(|(name, array)| (name, array.slice(0, rows / 3)));
    Fixture::device()
        .table("t", columns(rows, 5))
        .table("o", other)
}

/// The same tables without rows.
pub(super) fn without_rows() -> Fixture {
    let empty = |(name, array): (&'static str, ArrayRef)| (name, array.slice(0, 0));
    Fixture::device()
        .table("t", columns(3, 1).into_iter().map(empty))
        .table("o", columns(3, 1).into_iter().map(empty))
}

/// What runs wholly on the device.
const QUERIES: [&str; 41] = [
    "SELECT * FROM t",
    "SELECT id, l, w, g, m FROM t WHERE n = 3",
    "SELECT id, u FROM t WHERE l IS NULL OR m IS NULL",
    "SELECT count(l) AS l, count(u) AS u, count(a) AS a, count(*) AS n FROM t",
    "SELECT id, array_length(l) AS a, cardinality(w) AS b, array_ndims(q) AS c, empty(g) AS d FROM t",
    "SELECT id, l[1] AS first, l[-1] AS last, w[2] AS second, q[1][2] AS deep FROM t",
    "SELECT any_value(l) AS a, any_value(l) IS NULL AS b, count(*) AS c FROM t GROUP BY l",
    "SELECT sum(l[1]) AS s, max(w[1]) AS m, min(array_length(u)) AS a FROM t WHERE array_length(l) > 1",
    "SELECT id FROM t WHERE array_has(l, 2) OR array_has(w, 'a')",
    "SELECT id FROM t WHERE array_has_any(w, make_array('b', 'ab')) AND NOT array_has_all(l, make_array(1))",
    "SELECT id FROM t WHERE array_has(l, n)",
    "SELECT array_to_string(l, '-') AS s, count(*) AS c FROM t GROUP BY array_to_string(l, '-')",
    "SELECT id, array_append(l, 7) AS a, array_sort(l) AS s, array_distinct(l) AS d, array_slice(l, 1, 2) AS p FROM t",
    "SELECT id, array_position(l, 2) AS p, array_max(l) AS m, l || make_array(3) AS c FROM t WHERE n < 3",
    "SELECT id, string_to_array(s, ',') AS parts FROM t",
    "SELECT string_to_array(s, ',')[1] AS first, count(*) AS c FROM t GROUP BY string_to_array(s, ',')[1]",
    "SELECT string_to_array(s, ',') AS parts, count(*) AS c FROM t GROUP BY string_to_array(s, ',')",
    "SELECT id, map_keys(m) AS k, map_values(m) AS v, m['a'] AS a FROM t",
    "SELECT sum(m['b']) AS s, count(*) AS c FROM t WHERE cardinality(m) > 0",
    "SELECT id, p[1]['key'] AS k FROM t WHERE p[2]['value'] > 1",
    "SELECT l, count(*) AS c, sum(n) AS s FROM t GROUP BY l",
    "SELECT w, g, n, count(*) AS c FROM t GROUP BY w, g, n",
    "SELECT f, x, count(*) AS c FROM t GROUP BY f, x",
    "SELECT a, count(a) AS c FROM t GROUP BY a",
    "SELECT u, count(*) AS c FROM t GROUP BY u",
    "SELECT DISTINCT p, q FROM t",
    "SELECT count(DISTINCT l) AS l, count(DISTINCT u) AS u, count(DISTINCT w) AS w FROM t",
    "SELECT id FROM t WHERE l = make_array(1, 2) OR w = make_array('a', 'b')",
    "SELECT id FROM t WHERE l <> make_array(1) AND l IS DISTINCT FROM make_array(1, NULL)",
    "SELECT id FROM t WHERE l < make_array(1, 2)",
    "SELECT id FROM t WHERE l = array_distinct(l)",
    "SELECT t.id, o.id AS other, o.w FROM t JOIN o ON t.u = o.u",
    "SELECT t.id, o.l, o.m FROM t LEFT JOIN o ON t.id = o.id + 3",
    "SELECT t.w, count(*) AS c FROM t JOIN o ON t.w = o.w AND t.n = o.n GROUP BY t.w",
    "SELECT id FROM t WHERE u IN (SELECT u FROM o WHERE n = 2)",
    "SELECT id, CASE WHEN n > 3 THEN l ELSE make_array(0) END AS c, coalesce(l, make_array(9, NULL)) AS o FROM t",
    "SELECT l AS x FROM t UNION ALL SELECT u FROM o UNION ALL SELECT make_array(3)",
    "SELECT l FROM t INTERSECT SELECT l FROM o",
    "SELECT u FROM t EXCEPT SELECT u FROM o",
    "SELECT id, row_number() OVER (PARTITION BY n ORDER BY id) AS r, lag(w) OVER (ORDER BY id) AS before FROM t",
    "SELECT n, array_agg(l ORDER BY id) AS l, first_value(w ORDER BY id) AS w FROM t GROUP BY n",
];

#[test]
fn lists_of_any_kind() {
    for rows in [1, 32, 33, 2_500] {
        check_all(&fixture(rows), QUERIES.map(String::from));
    }
}

/// Files of parquet have no intervals of all three parts.
#[test]
fn calendar_intervals() {
    for rows in [1, 33, 1_000] {
        let columns = |rows: usize, seed: u64| {
            let n = Int64Array::from_iter_values((0..rows as i64).map(|row| row % 7));
            [
                ("id", row_numbers(rows)),
                ("n", Arc::new(n) as ArrayRef),
                ("v", few(&spans(), rows, Nulls::Some, seed)),
            ]
        };
        let fixture = Fixture::device()
            .table("t", columns(rows, 1))
            .table("o", columns(rows / 3, 2));
        check_all(
            &fixture,
            [
            "SELECT v, count(*) AS c, sum(n) AS s FROM t GROUP BY v",
            "SELECT id, v, date_part('day', v) AS d FROM t WHERE v = INTERVAL '1 month' OR v = INTERVAL '30 days'",
            "SELECT id, v < INTERVAL '20 days' AS l, DATE '2024-01-31' + v AS d, -v AS m FROM t",
            "SELECT t.id, o.v FROM t JOIN o ON t.v = o.v AND t.n = o.n",
            ]
            .map(String::from),
        );
    }
}

#[test]
fn no_rows() {
    check_all(&without_rows(), QUERIES.map(String::from));
}

/// What orders lists is the CPU's, whatever is around it the device's.
#[test]
fn orders_are_those_of_the_cpu() {
    let fixture = fixture(500);
    fixture.set("warpline.require_gpu", "false");
    for sql in [
        "SELECT id, l FROM t ORDER BY l, id",
        "SELECT id, l FROM t ORDER BY l DESC NULLS LAST, id LIMIT 20",
        "SELECT min(l) AS lo, max(l) AS hi FROM t",
        "SELECT n, min(w) AS lo FROM t GROUP BY n",
        "SELECT id FROM t WHERE l < a OR l > u",
        "SELECT greatest(l, u) AS g FROM t",
        "SELECT id, rank() OVER (ORDER BY l) AS r FROM t",
        "SELECT id, max(l) OVER (ORDER BY id) AS m FROM t",
    ] {
        fixture.check(sql);
    }
}

#[test]
fn lists_of_parquet_files() {
    let folder = tempfile::tempdir().expect("a folder");
    let columns = columns(3_000, 11);
    let columns = columns
        .iter()
        .map(|(name, array)| (*name, array.clone(), true));
    let batch = RecordBatch::try_from_iter_with_nullable(columns).expect("a batch");
    let properties = WriterProperties::builder()
        .set_writer_version(WriterVersion::PARQUET_2_0)
        .set_max_row_group_row_count(Some(1_100));
    let path = folder.path().join("lists.parquet");
    write_parquet(&path, &batch, properties.build());
    for late in ["off", "on"] {
        let settings = [("warpline.late_columns", late)];
        let fixture = Fixture::open(test_device(), true, &settings)
            .parquet("t", &path)
            .parquet("o", &path);
        fixture.set("warpline.min_rows", "0");
        check_all(&fixture, QUERIES.map(String::from));
    }
}
