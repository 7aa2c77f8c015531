//! The eight tables: names, schemas, row counts and row generators, of TPC-H and JCC-H.

use std::fmt::Write as _;
use std::io::{self, Write};

use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatchReader;
use tpchgen::csv;
use tpchgen::generators as rows;
use tpchgen_arrow as columns;

use crate::error::TpchError;
use crate::jcch::{self, Keys};
use crate::scale::Scale;

/// One of the eight tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Table {
    /// 25 rows.
    Nation,
    /// 5 rows.
    Region,
    /// 200,000 rows per scale.
    Part,
    /// 10,000 rows per scale.
    Supplier,
    /// 800,000 rows per scale.
    Partsupp,
    /// 150,000 rows per scale.
    Customer,
    /// 1,500,000 rows per scale.
    Orders,
    /// About 6,000,000 rows per scale.
    Lineitem,
}

/// A text format of the generated rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TextFormat {
    /// Comma-separated with a header line; text that may hold a comma is quoted.
    Csv,
    /// dbgen's own: fields ended by `|`, no header.
    Tbl,
}

/// Calls `$body` with the row generator, the Arrow generator and the CSV formatter of a table.
macro_rules! with_generators {
    ($table:expr, |$rows:ident, $arrow:ident, $csv:ident| $body:expr) => {
        match $table {
            Table::Nation => with_generators!(@ NationGenerator, NationArrow, NationCsv, $rows, $arrow, $csv, $body),
            Table::Region => with_generators!(@ RegionGenerator, RegionArrow, RegionCsv, $rows, $arrow, $csv, $body),
            Table::Part => with_generators!(@ PartGenerator, PartArrow, PartCsv, $rows, $arrow, $csv, $body),
            Table::Supplier => with_generators!(@ SupplierGenerator, SupplierArrow, SupplierCsv, $rows, $arrow, $csv, $body),
            Table::Partsupp => with_generators!(@ PartSuppGenerator, PartSuppArrow, PartSuppCsv, $rows, $arrow, $csv, $body),
            Table::Customer => with_generators!(@ CustomerGenerator, CustomerArrow, CustomerCsv, $rows, $arrow, $csv, $body),
            Table::Orders => with_generators!(@ OrderGenerator, OrderArrow, OrderCsv, $rows, $arrow, $csv, $body),
            Table::Lineitem => with_generators!(@ LineItemGenerator, LineItemArrow, LineItemCsv, $rows, $arrow, $csv, $body),
        }
    };
    (@ $Rows:ident, $Arrow:ident, $Csv:ident, $rows:ident, $arrow:ident, $csv:ident, $body:expr) => {{
        #[allow(unused_imports)]
        use {columns::$Arrow as $arrow, csv::$Csv as $csv, rows::$Rows as $rows};
        $body
    }};
}

impl Table {
    /// All tables, small ones first.
    pub const ALL: [Self; 8] = [
        Self::Nation,
        Self::Region,
        Self::Part,
        Self::Supplier,
        Self::Partsupp,
        Self::Customer,
        Self::Orders,
        Self::Lineitem,
    ];

    /// The name in SQL and of the files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Nation => "nation",
            Self::Region => "region",
            Self::Part => "part",
            Self::Supplier => "supplier",
            Self::Partsupp => "partsupp",
            Self::Customer => "customer",
            Self::Orders => "orders",
            Self::Lineitem => "lineitem",
        }
    }

    /// Columns as they are generated: 64-bit keys, `Decimal128(15, 2)`, `Date32`, `Utf8View`, none nullable.
    pub fn schema(self) -> SchemaRef {
        with_generators!(self, |_Rows, ArrowRows, _Csv| ArrowRows::schema_ref())
    }

    /// Number of rows of TPC-H at a scale: exact, but for `lineitem`, where it is four per order (1 to 7, drawn at random).
    pub fn expected_rows(self, scale: Scale) -> u64 {
        let scaled = |base: f64| ((base * scale.factor()) as u64).max(1);
        match self {
            Self::Nation => 25,
            Self::Region => 5,
            Self::Part => scaled(200_000.0),
            Self::Supplier => scaled(10_000.0),
            Self::Partsupp => scaled(200_000.0) * 4,
            Self::Customer => scaled(150_000.0),
            Self::Orders => scaled(1_500_000.0),
            Self::Lineitem => scaled(1_500_000.0) * 4,
        }
    }

    /// Number of rows of JCC-H.
    pub(crate) fn rows_of(self, keys: &Keys) -> u64 {
        match self {
            Self::Nation => 25,
            Self::Region => 5,
            Self::Part => keys.part_rows(),
            Self::Supplier => keys.supplier_rows(),
            Self::Partsupp => keys.partsupps_before(keys.part_rows() + 1),
            Self::Customer => keys.customer_rows(),
            Self::Orders => keys.order_rows(),
            Self::Lineitem => keys.lines_before(keys.order_rows() + 1),
        }
    }

    /// True for `nation` and `region`, whose size does not depend on the scale and which come in one part.
    pub fn is_fixed(self) -> bool {
        matches!(self, Self::Nation | Self::Region)
    }
}

/// The tables of one benchmark at one scale.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Dataset {
    scale: Scale,
    /// What JCC-H's rows follow from; `None` for TPC-H.
    skewed: Option<Keys>,
}

impl From<Scale> for Dataset {
    fn from(scale: Scale) -> Self {
        Self::tpch(scale)
    }
}

impl Dataset {
    /// TPC-H's tables.
    pub fn tpch(scale: Scale) -> Self {
        Self {
            scale,
            skewed: None,
        }
    }

    /// JCC-H's tables, which are skewed. Its scales are whole numbers from 1 up and whole thousandths below; others are
    /// rounded down, and [`Self::scale`] says to what.
    ///
    /// # Errors
    /// [`TpchError::Scale`] unless the scale is 0.003 to 536.
    pub fn jcch(scale: Scale) -> Result<Self, TpchError> {
        let rounded = Keys::round_scale(scale.factor());
        if !(Keys::MIN_SCALE..=Keys::MAX_SCALE).contains(&rounded) {
            return Err(TpchError::Scale {
                given: scale.to_string(),
                min: Keys::MIN_SCALE,
                max: Keys::MAX_SCALE,
            });
        }
        let scale = Scale::new(rounded)?;
        Ok(Self {
            scale,
            skewed: Some(Keys::new(scale)),
        })
    }

    /// The scale of the tables.
    pub fn scale(self) -> Scale {
        self.scale
    }

    /// Number of rows of a table: exact, but for TPC-H's `lineitem`, where it is four per order (1 to 7, at random).
    pub fn expected_rows(self, table: Table) -> u64 {
        match &self.skewed {
            Some(keys) => table.rows_of(keys),
            None => table.expected_rows(self.scale),
        }
    }

    /// The rows of part `part` (from 1) of `parts` of a table as record batches of at most `batch_rows` rows.
    pub fn batches(
        self,
        table: Table,
        part: usize,
        parts: usize,
        batch_rows: usize,
    ) -> Box<dyn RecordBatchReader + Send> {
        let (part, parts) = (part as i32, parts as i32);
        let skewed = self
            .skewed
            .and_then(|keys| jcch::batches(keys, table, part, parts, batch_rows));
        if let Some(batches) = skewed {
            return batches;
        }
        with_generators!(table, |RowGenerator, ArrowRows, _Csv| Box::new(
            ArrowRows::new(RowGenerator::new(self.scale.factor(), part, parts))
                .with_batch_size(batch_rows)
        ))
    }

    /// Writes the rows of part `part` (from 1) of `parts` of a table as text; `on_rows` hears of each few thousand rows
    /// and may stop the work by returning false. Returns the number of rows written.
    ///
    /// # Errors
    /// Those of `out`, and [`io::ErrorKind::Interrupted`] when `on_rows` stopped the work.
    pub fn write_text(
        self,
        table: Table,
        format: TextFormat,
        part: usize,
        parts: usize,
        out: &mut dyn Write,
        on_rows: &dyn Fn(u64) -> bool,
    ) -> io::Result<u64> {
        let (part, parts) = (part as i32, parts as i32);
        let is_csv = format == TextFormat::Csv;
        // Writes the rows of an iterator, each formatted as itself or as what `$Csv` makes of it.
        macro_rules! write {
            ($rows:expr, $Csv:ty) => {
                write_rows(
                    $rows,
                    is_csv.then(<$Csv>::header),
                    |text, row| match is_csv {
                        true => writeln!(text, "{}", <$Csv>::new(row)),
                        false => writeln!(text, "{row}"),
                    },
                    out,
                    on_rows,
                )
            };
        }
        let share = |keys: &Keys| jcch::share(table.rows_of(keys), part, parts);
        match (self.skewed, table) {
            (Some(keys), Table::Part) => write!(jcch::parts(keys, part, parts), csv::PartCsv),
            (Some(keys), Table::Supplier) => {
                write!(jcch::suppliers(keys, part, parts), csv::SupplierCsv)
            }
            (Some(keys), Table::Customer) => {
                write!(jcch::customers(keys, part, parts), csv::CustomerCsv)
            }
            (Some(keys), Table::Partsupp) => {
                write!(jcch::PartSupps::new(keys, share(&keys)), csv::PartSuppCsv)
            }
            (Some(keys), Table::Orders) => write_rows(
                jcch::Orders::new(keys, share(&keys)),
                is_csv.then(csv::OrderCsv::header),
                |text, row| {
                    let comment = row.comment();
                    let row = rows::Order {
                        o_comment: &comment,
                        ..row.order
                    };
                    match is_csv {
                        true => writeln!(text, "{}", csv::OrderCsv::new(row)),
                        false => writeln!(text, "{row}"),
                    }
                },
                out,
                on_rows,
            ),
            (Some(keys), Table::Lineitem) => {
                write!(jcch::Lines::new(keys, share(&keys)), csv::LineItemCsv)
            }
            (_, _) => with_generators!(table, |RowGenerator, _Arrow, CsvRow| write!(
                RowGenerator::new(self.scale.factor(), part, parts).iter(),
                CsvRow
            )),
        }
    }
}

/// Writes rows as lines, after a header if there is one; `format` adds a row and its line end to a text.
fn write_rows<R>(
    rows: impl Iterator<Item = R>,
    header: Option<&str>,
    format: impl Fn(&mut String, R) -> std::fmt::Result,
    out: &mut dyn Write,
    on_rows: &dyn Fn(u64) -> bool,
) -> io::Result<u64> {
    // Rows are formatted into a buffer, so that `out` sees few large writes.
    const ROWS_PER_WRITE: u64 = 4096;
    let mut text = String::with_capacity(1 << 20);
    let mut written = 0;
    let mut pending = 0;
    let mut flush = |text: &mut String, pending: &mut u64| -> io::Result<()> {
        out.write_all(text.as_bytes())?;
        text.clear();
        if !on_rows(std::mem::take(pending)) {
            return Err(io::Error::new(io::ErrorKind::Interrupted, "stopped"));
        }
        Ok(())
    };
    if let Some(header) = header {
        text.push_str(header);
        text.push('\n');
    }
    for row in rows {
        // Formatting into a String does not fail.
        let _ = format(&mut text, row);
        written += 1;
        pending += 1;
        if pending == ROWS_PER_WRITE {
            flush(&mut text, &mut pending)?;
        }
    }
    flush(&mut text, &mut pending)?;
    Ok(written)
}
