//! Streaming row output for programs: csv, tsv, json and nd-json.

use std::io::{self, Write};

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::csv;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::error::ArrowError;
use datafusion::arrow::json;
use datafusion::arrow::json::writer::{JsonArray, LineDelimited};
use datafusion_cli::print_format::PrintFormat;

/// Rows that are text at a time: a batch may hold a whole answer.
const ROWS_AT_ONCE: usize = 8192;

/// Why rows were not written.
#[derive(Debug)]
pub(super) enum WriteError {
    /// The format has no form for them.
    Format(ArrowError),
    /// The output took no more.
    Output(io::Error),
}

impl From<ArrowError> for WriteError {
    fn from(error: ArrowError) -> Self {
        Self::Format(error)
    }
}

enum Encoder {
    /// Values between delimiters, below a line of names.
    Separated(u8),
    Array(json::Writer<Vec<u8>, JsonArray>),
    Lines(json::Writer<Vec<u8>, LineDelimited>),
}

/// Writes one answer, which is whole only after [`Self::finish`].
pub(super) struct RowWriter<W: Write> {
    encoder: Encoder,
    schema: SchemaRef,
    output: W,
    begun: bool,
    finished: bool,
    rows: usize,
}

impl<W: Write> RowWriter<W> {
    /// Text between commas, but for the formats that have another form.
    pub(super) fn new(format: PrintFormat, schema: SchemaRef, output: W) -> Self {
        // Every object has every key.
        let json = json::WriterBuilder::new().with_explicit_nulls(true);
        let encoder = match format {
            PrintFormat::Tsv => Encoder::Separated(b'\t'),
            PrintFormat::Json => Encoder::Array(json.build(Vec::new())),
            PrintFormat::NdJson => Encoder::Lines(json.build(Vec::new())),
            PrintFormat::Csv | PrintFormat::Table | PrintFormat::Automatic => {
                Encoder::Separated(b',')
            }
        };
        Self {
            encoder,
            schema,
            output,
            begun: false,
            finished: false,
            rows: 0,
        }
    }

    /// Writes rows; what came before them is on its way already.
    pub(super) fn write(&mut self, batch: &RecordBatch) -> Result<(), WriteError> {
        for start in (0..batch.num_rows()).step_by(ROWS_AT_ONCE) {
            let rows = ROWS_AT_ONCE.min(batch.num_rows() - start);
            self.write_slice(&batch.slice(start, rows))?;
            self.rows += rows;
        }
        Ok(())
    }

    fn write_slice(&mut self, batch: &RecordBatch) -> Result<(), WriteError> {
        let mut text = Vec::new();
        match &mut self.encoder {
            Encoder::Separated(delimiter) => {
                let writer = csv::WriterBuilder::new()
                    .with_delimiter(*delimiter)
                    .with_header(!self.begun);
                writer.build(&mut text).write(batch)?;
            }
            Encoder::Array(writer) => {
                writer.write(batch)?;
                std::mem::swap(&mut text, writer.get_mut());
            }
            Encoder::Lines(writer) => {
                writer.write(batch)?;
                std::mem::swap(&mut text, writer.get_mut());
            }
        }
        self.begun = true;
        self.output.write_all(&text).map_err(WriteError::Output)
    }

    /// Ends the answer, and tells how many rows it had. Statements without columns, such as `SET`, leave no trace.
    pub(super) fn finish(mut self) -> Result<usize, WriteError> {
        if !self.schema.fields().is_empty() {
            if let Encoder::Separated(_) = self.encoder
                && !self.begun
            {
                self.write_slice(&RecordBatch::new_empty(self.schema.clone()))?;
            }
            if let Encoder::Array(writer) = &mut self.encoder {
                writer.finish()?;
                let mut text = std::mem::take(writer.get_mut());
                text.push(b'\n');
                self.finished = true;
                self.output.write_all(&text).map_err(WriteError::Output)?;
            }
        }
        self.finished = true;
        self.output.flush().map_err(WriteError::Output)?;
        Ok(self.rows)
    }
}

impl<W: Write> Drop for RowWriter<W> {
    fn drop(&mut self) {
        // An array that was cut off keeps its end open, but the next answer begins on a line of its own.
        if let Encoder::Array(_) = self.encoder
            && self.begun
            && !self.finished
        {
            let _ = self.output.write_all(b"\n");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use datafusion::arrow::array::{
        ArrayRef, BinaryArray, Decimal128Array, Float64Array, Int64Array, ListArray, StringArray,
    };
    use datafusion::arrow::datatypes::{Int64Type, Schema};

    use super::*;

    const FORMATS: [PrintFormat; 4] = [
        PrintFormat::Csv,
        PrintFormat::Tsv,
        PrintFormat::Json,
        PrintFormat::NdJson,
    ];

    fn batch(columns: Vec<(&str, ArrayRef)>) -> RecordBatch {
        RecordBatch::try_from_iter_with_nullable(
            columns
                .into_iter()
                .map(|(name, column)| (name, column, true)),
        )
        .expect("a batch")
    }

    fn numbers(count: i64) -> RecordBatch {
        batch(vec![(
            "n",
            Arc::new(Int64Array::from_iter_values(0..count)),
        )])
    }

    fn written(format: PrintFormat, schema: SchemaRef, batches: &[RecordBatch]) -> String {
        let mut text = Vec::new();
        let mut writer = RowWriter::new(format, schema, &mut text);
        for batch in batches {
            writer.write(batch).expect("written");
        }
        let rows = writer.finish().expect("written");
        assert_eq!(
            rows,
            batches.iter().map(RecordBatch::num_rows).sum::<usize>()
        );
        String::from_utf8(text).expect("text")
    }

    #[test]
    fn batches_are_parts_of_one_answer() {
        let answer = |format| {
            let schema = numbers(0).schema();
            written(
                format,
                schema,
                &[numbers(0), numbers(2), numbers(0), numbers(1)],
            )
        };
        assert_eq!(answer(PrintFormat::Csv), "n\n0\n1\n0\n");
        assert_eq!(answer(PrintFormat::Tsv), "n\n0\n1\n0\n");
        assert_eq!(
            answer(PrintFormat::Json),
            "[{\"n\":0},{\"n\":1},{\"n\":0}]\n"
        );
        assert_eq!(
            answer(PrintFormat::NdJson),
            "{\"n\":0}\n{\"n\":1}\n{\"n\":0}\n"
        );
    }

    #[test]
    fn a_batch_of_any_size_is_written_in_parts() {
        for rows in [
            ROWS_AT_ONCE - 1,
            ROWS_AT_ONCE,
            ROWS_AT_ONCE + 1,
            3 * ROWS_AT_ONCE + 5,
        ] {
            let batch = numbers(rows as i64);
            let csv: String = (0..rows).map(|row| format!("{row}\n")).collect();
            let parts = std::slice::from_ref(&batch);
            assert_eq!(
                written(PrintFormat::Csv, batch.schema(), parts),
                format!("n\n{csv}")
            );
            let json = written(PrintFormat::Json, batch.schema(), parts);
            let json: serde_json::Value = serde_json::from_str(&json).expect("one array");
            let json = json.as_array().expect("one array");
            assert_eq!(json.len(), rows);
            assert!(json.iter().enumerate().all(|(at, row)| row["n"] == at));
        }
    }

    #[test]
    fn empty_answers_have_names_and_statements_have_nothing() {
        let empty =
            |schema: &SchemaRef| FORMATS.map(|format| written(format, Arc::clone(schema), &[]));
        assert_eq!(empty(&numbers(0).schema()), ["n\n", "n\n", "[]\n", ""]);
        assert_eq!(empty(&Arc::new(Schema::empty())), ["", "", "", ""]);
    }

    #[test]
    fn values_keep_their_meaning() {
        let batch = batch(vec![
            (
                "a b",
                Arc::new(StringArray::from(vec![
                    Some("x,\"y\"\n\tz"),
                    None,
                    Some("ü"),
                ])),
            ),
            (
                "bytes",
                Arc::new(BinaryArray::from_opt_vec(vec![
                    Some(&[0, 255]),
                    None,
                    Some(b""),
                ])),
            ),
            (
                "f",
                Arc::new(Float64Array::from(vec![Some(0.1), None, Some(f64::NAN)])),
            ),
            (
                "d",
                Arc::new(
                    Decimal128Array::from(vec![Some(-5), None, Some(123_456)])
                        .with_precision_and_scale(10, 2)
                        .expect("a decimal"),
                ),
            ),
        ]);
        let text = |format| written(format, batch.schema(), std::slice::from_ref(&batch));
        assert_eq!(
            text(PrintFormat::Csv),
            "a b,bytes,f,d\n\"x,\"\"y\"\"\n\tz\",00ff,0.1,-0.05\n,,,\nü,,NaN,1234.56\n"
        );
        assert_eq!(
            text(PrintFormat::Tsv),
            "a b\tbytes\tf\td\n\"x,\"\"y\"\"\n\tz\"\t00ff\t0.1\t-0.05\n\t\t\t\nü\t\tNaN\t1234.56\n"
        );
        assert_eq!(
            text(PrintFormat::NdJson),
            "{\"a b\":\"x,\\\"y\\\"\\n\\tz\",\"bytes\":\"00ff\",\"f\":0.1,\"d\":-0.05}\n\
             {\"a b\":null,\"bytes\":null,\"f\":null,\"d\":null}\n\
             {\"a b\":\"ü\",\"bytes\":\"\",\"f\":null,\"d\":1234.56}\n"
        );
    }

    #[test]
    fn lists_are_json_and_nothing_that_csv_has() {
        let lists = ListArray::from_iter_primitive::<Int64Type, _, _>(vec![
            Some(vec![Some(1), None]),
            None,
            Some(vec![]),
        ]);
        let batch = batch(vec![("l", Arc::new(lists))]);
        let text = written(
            PrintFormat::Json,
            batch.schema(),
            std::slice::from_ref(&batch),
        );
        assert_eq!(text, "[{\"l\":[1,null]},{\"l\":null},{\"l\":[]}]\n");
        // Not even the names are written, whether there are rows or not.
        for rows in [0, 3] {
            let mut text = Vec::new();
            let mut writer = RowWriter::new(PrintFormat::Csv, batch.schema(), &mut text);
            let refused = writer
                .write(&batch.slice(0, rows))
                .and_then(|()| writer.finish().map(|_| ()))
                .expect_err("csv has no lists");
            assert!(matches!(refused, WriteError::Format(_)), "{refused:?}");
            assert!(text.is_empty());
        }
    }

    #[test]
    fn what_is_cut_off_does_not_look_whole() {
        let cut = |format| {
            let mut text = Vec::new();
            let mut writer = RowWriter::new(format, numbers(0).schema(), &mut text);
            writer.write(&numbers(2)).expect("written");
            drop(writer);
            String::from_utf8(text).expect("text")
        };
        assert_eq!(cut(PrintFormat::Json), "[{\"n\":0},{\"n\":1}\n");
        assert_eq!(cut(PrintFormat::Csv), "n\n0\n1\n");
    }

    /// A file on a disk with room for so many bytes.
    struct Full(usize);

    impl Write for Full {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 = self
                .0
                .checked_sub(bytes.len())
                .ok_or(io::ErrorKind::StorageFull)?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_full_disk_is_told() {
        for format in FORMATS {
            let mut writer = RowWriter::new(format, numbers(0).schema(), Full(100_000));
            let error = writer.write(&numbers(100_000)).expect_err("it is full");
            assert!(
                matches!(&error, WriteError::Output(cause) if cause.kind() == io::ErrorKind::StorageFull),
                "{error:?}"
            );
        }
    }
}
