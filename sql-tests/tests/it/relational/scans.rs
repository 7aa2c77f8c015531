//! Scans of files: what only they know of a row.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray, StructArray};
use arrow::datatypes::{DataType, Field};
use datafusion::parquet::file::properties::WriterProperties;
use warpline_sql_tests::Fixture;

use crate::operators::support::write_parquet;

/// The name of a file and the numbers of its rows, which only its scan knows: in the output, in filters, in keys, beside structs.
#[test]
fn what_scans_of_files_know() {
    let folder = tempfile::tempdir().expect("a folder");
    let names = StructArray::from(vec![(
        Arc::new(Field::new("w", DataType::Utf8, true)),
        Arc::new(StringArray::from_iter_values(["a", "b", "c", "a", "e"])) as ArrayRef,
    )]);
    let batch = RecordBatch::try_from_iter([
        (
            "n",
            Arc::new(Int64Array::from_iter_values(10..15)) as ArrayRef,
        ),
        ("s", Arc::new(names) as ArrayRef),
    ])
    .expect("a batch");
    let properties = WriterProperties::builder().build();
    let path = folder.path().join("first.parquet");
    write_parquet(&path, &batch, properties);
    let fixture = Fixture::relaxed().parquet("t", &path);
    for sql in [
        "SELECT file_row_index() AS i, n FROM t",
        "SELECT n FROM t WHERE file_row_index() > 2",
        "SELECT n, input_file_name() LIKE '%first.parquet' AS x FROM t WHERE file_row_index() IN (1, 3)",
        "SELECT count(*) AS c FROM t WHERE input_file_name() LIKE '%first.parquet'",
        "SELECT s['w'] AS w, count(*) AS c FROM t WHERE file_row_index() < 4 GROUP BY s['w']",
        "SELECT input_file_name() LIKE '%second%' AS x, sum(n) AS s FROM t GROUP BY input_file_name()",
    ] {
        fixture.check(sql);
    }
}
