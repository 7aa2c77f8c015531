//! Tables of a case: their columns, cells, and how they are stored.

use std::fs::{self, File};
use std::path::Path;
use std::sync::Arc;

use arrow::array::{Array, RecordBatch, StructArray};
use arrow::buffer::NullBuffer;
use arrow::datatypes::{DataType, Field, Schema};
use arrow::error::ArrowError;
use datafusion::datasource::MemTable;
use datafusion::error::DataFusionError;
use datafusion::parquet::arrow::ArrowWriter;
use datafusion::parquet::basic::Compression;
use datafusion::parquet::file::properties::{EnabledStatistics, WriterProperties};
use datafusion::prelude::ParquetReadOptions;
use warpline::WarplineSession;

use super::value::{Value, array, extremes, nth};
use crate::Random;

/// Column of a table.
#[derive(Debug, Clone, PartialEq)]
pub struct Column {
    /// Its name.
    pub name: String,
    /// Its Arrow type.
    pub data_type: DataType,
    /// Whether the schema allows NULL.
    pub nullable: bool,
    /// The cells.
    pub values: Vec<Value>,
    /// Table and column that its values were taken from.
    pub reference: Option<(usize, usize)>,
    /// Is it a field of the table's column of structs, which is NULL where all of its fields are and may be?
    pub within: bool,
}

/// The name of a table's column of structs.
pub const STRUCTS: &str = "s";

impl Column {
    /// What refers to it in SQL.
    pub fn reference_in_sql(&self) -> String {
        match self.within {
            true => format!("{STRUCTS}['{}']", self.name),
            false => self.name.clone(),
        }
    }
}

/// A table and all of its rows.
#[derive(Debug, Clone, PartialEq)]
pub struct Table {
    /// Its name.
    pub name: String,
    /// At least one column; all have the same length.
    pub columns: Vec<Column>,
    /// Where the rows lie.
    pub storage: Storage,
}

/// Where the rows of a table lie.
#[derive(Debug, Clone, PartialEq)]
pub enum Storage {
    /// `CREATE TABLE … AS`, run on the session under test, as in the files that findings are written to.
    Sql,
    /// In memory.
    Memory {
        /// Rows of a batch.
        batch: usize,
        /// Partitions that the batches are dealt to.
        partitions: usize,
    },
    /// In parquet files.
    Parquet {
        /// Rows of a row group.
        row_group: usize,
        /// Files that the rows are dealt to.
        files: usize,
        /// Whether chunks begin as dictionaries.
        dictionary: bool,
        /// 0 none, 1 for chunks, 2 for pages as well.
        statistics: u8,
        /// Whether pages are compressed.
        compressed: bool,
    },
}

impl Table {
    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.columns.first().map_or(0, |column| column.values.len())
    }

    /// Number of cells, as a measure of how large the table is to a reader.
    pub fn cells(&self) -> usize {
        self.rows() * self.columns.len()
    }

    /// The rows whose numbers `keep` accepts.
    #[must_use]
    pub fn with_rows(&self, keep: impl Fn(usize) -> bool) -> Self {
        let mut table = self.clone();
        for column in &mut table.columns {
            let mut row = 0;
            column.values.retain(|_| {
                row += 1;
                keep(row - 1)
            });
        }
        table
    }

    fn batch(&self) -> Result<RecordBatch, ArrowError> {
        let (mut fields, mut arrays) = (Vec::new(), Vec::new());
        let (mut inner, mut within) = (Vec::new(), Vec::new());
        for column in &self.columns {
            let field = Field::new(&column.name, column.data_type.clone(), column.nullable);
            let array = array(&column.data_type, &column.values)?;
            match column.within {
                true => {
                    inner.push(field);
                    within.push(array);
                }
                false => {
                    fields.push(field);
                    arrays.push(array);
                }
            }
        }
        if !within.is_empty() {
            let nullable = inner.iter().all(Field::is_nullable);
            let there = nullable.then(|| {
                (0..self.rows())
                    .map(|row| within.iter().any(|array| array.is_valid(row)))
                    .collect::<NullBuffer>()
            });
            let structs = StructArray::try_new(inner.into(), within, there)?;
            fields.push(Field::new(STRUCTS, structs.data_type().clone(), nullable));
            arrays.push(Arc::new(structs));
        }
        RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays)
    }

    /// Makes the table known to a session; `folder` is for files.
    ///
    /// # Errors
    /// What the session or the file system reports.
    pub async fn register(
        &self,
        session: &WarplineSession,
        folder: &Path,
    ) -> Result<(), DataFusionError> {
        match &self.storage {
            Storage::Sql => {
                use warpline_tpch::QueryEngine as _;
                session.run(&super::render::create_table(self)).await?;
            }
            Storage::Memory { batch, partitions } => {
                let rows = self.batch()?;
                let mut parts = vec![Vec::new(); (*partitions).max(1)];
                for (i, start) in (0..rows.num_rows()).step_by((*batch).max(1)).enumerate() {
                    let length = (*batch).min(rows.num_rows() - start);
                    let part = i % parts.len();
                    parts[part].push(rows.slice(start, length));
                }
                let table = MemTable::try_new(rows.schema(), parts)?;
                session
                    .context()
                    .register_table(&self.name, Arc::new(table))?;
            }
            Storage::Parquet { files, .. } => {
                let folder = folder.join(&self.name);
                fs::create_dir_all(&folder)?;
                let rows = self.batch()?;
                let step = rows.num_rows().div_ceil((*files).max(1)).max(1);
                let starts = (0..rows.num_rows().max(1)).step_by(step);
                for (i, start) in starts.enumerate() {
                    let part = rows.slice(start, step.min(rows.num_rows() - start));
                    self.write(&part, &folder.join(format!("{i}.parquet")))?;
                }
                let location = folder.to_string_lossy();
                let options = ParquetReadOptions::default();
                let context = session.context();
                context
                    .register_parquet(&self.name, location, options)
                    .await?;
            }
        }
        Ok(())
    }

    fn write(&self, rows: &RecordBatch, path: &Path) -> Result<(), DataFusionError> {
        let Storage::Parquet {
            row_group,
            dictionary,
            statistics,
            compressed,
            ..
        } = self.storage
        else {
            return Ok(());
        };
        let properties = WriterProperties::builder()
            .set_max_row_group_row_count(Some(row_group.max(1)))
            .set_dictionary_enabled(dictionary)
            .set_statistics_enabled(match statistics {
                0 => EnabledStatistics::None,
                1 => EnabledStatistics::Chunk,
                _ => EnabledStatistics::Page,
            })
            .set_compression(match compressed {
                true => Compression::SNAPPY,
                false => Compression::UNCOMPRESSED,
            })
            .build();
        let file = File::create(path)?;
        let mut writer = ArrowWriter::try_new(file, rows.schema(), Some(properties))?;
        writer.write(rows)?;
        writer.close()?;
        Ok(())
    }
}

/// What the tables of a case have in common.
#[derive(Debug, Clone, Copy, Default)]
pub struct Traits {
    /// Values at the ends of ranges: sums of them as floats depend on their order.
    pub extremes: bool,
    /// NaN, infinities and the negative zero.
    pub wild: bool,
}

/// Some tables; later ones may refer to earlier ones.
pub fn draw_tables(random: &mut Random, traits: Traits) -> Vec<Table> {
    let count = *random.weighted(&[(2, 1), (4, 2), (5, 3), (2, 4)]);
    let mut tables: Vec<Table> = Vec::new();
    for number in 0..count {
        // Joins of several large tables take the emulator minutes.
        let large = tables.iter().any(|table| table.rows() > 500);
        let rows = match random.below(100) {
            0..7 => 0,
            7..23 => 1,
            23..33 => 2,
            33..55 => 3 + random.below(8),
            55..70 => 31 + random.below(3),
            70..91 => 34 + random.below(200),
            _ if large => 100,
            _ => 600 + random.below(3_400),
        };
        let table = draw_table(random, traits, &tables, number, rows);
        tables.push(table);
    }
    tables
}

fn draw_table(
    random: &mut Random,
    traits: Traits,
    tables: &[Table],
    number: usize,
    rows: usize,
) -> Table {
    let mut columns = Vec::new();
    if random.chance(60) {
        columns.push(draw_key(random, rows));
    }
    let references: Vec<(usize, usize)> = tables
        .iter()
        .enumerate()
        .flat_map(|(t, table)| (0..table.columns.len()).map(move |c| (t, c)))
        .collect();
    let wanted = 2 + random.below(5);
    while columns.len() < wanted {
        let name = ["a", "b", "c", "d", "e", "f", "g"][columns.len()].to_string();
        let column = match references.is_empty() || random.chance(65) {
            true => draw_column(random, traits, name, rows),
            false => {
                let (t, c) = *random.one(&references);
                draw_reference(random, &tables[t].columns[c], (t, c), name, rows)
            }
        };
        columns.push(column);
    }
    if random.chance(25) {
        for column in columns.iter_mut().skip(1) {
            column.within = random.chance(60);
        }
    }
    Table {
        name: format!("t{number}"),
        columns,
        storage: draw_storage(random, rows),
    }
}

fn draw_storage(random: &mut Random, rows: usize) -> Storage {
    match random.below(10) {
        0..4 => Storage::Memory {
            batch: rows.max(1),
            partitions: 1,
        },
        4..7 => Storage::Memory {
            batch: 1 + random.below(rows.max(1)),
            partitions: 1 + random.below(3),
        },
        _ => Storage::Parquet {
            row_group: match random.chance(50) {
                true => rows.max(1),
                false => 1 + rows / (1 + random.below(5)),
            },
            files: 1 + random.below(2),
            dictionary: random.chance(70),
            statistics: *random.one(&[0, 1, 2, 2]),
            compressed: random.chance(40),
        },
    }
}

/// A column of unique numbers, in order or not.
fn draw_key(random: &mut Random, rows: usize) -> Column {
    let data_type = random
        .one(&[DataType::Int32, DataType::Int64, DataType::Int64])
        .clone();
    let first = *random.one(&[2, 3, 102, 1_000_000_002]);
    let step = *random.one(&[1, 1, 1, 3, 1_000]);
    let mut values: Vec<Value> = (0..rows as i64)
        .map(|row| nth(&data_type, first + row * step))
        .collect();
    if random.chance(40) {
        shuffle(random, &mut values);
    }
    Column {
        name: "id".into(),
        data_type,
        nullable: random.chance(50),
        values,
        reference: None,
        within: false,
    }
}

/// A column with a distribution of its own.
fn draw_column(random: &mut Random, traits: Traits, name: String, rows: usize) -> Column {
    let data_type = super::value::draw_type(random);
    let first = random.below(4) as i64;
    let distinct = *random.weighted(&[(2, 1), (3, 2), (4, 4), (5, 10), (2, 40), (2, 1_000)]);
    let shape = random.below(10);
    let ends = if traits.extremes {
        extremes(&data_type)
    } else {
        vec![]
    };
    let wild = traits.wild && data_type.is_floating();
    let mut values: Vec<Value> = (0..rows)
        .map(|row| match shape {
            0 => nth(&data_type, first + row as i64),
            1 => nth(&data_type, first + (row * distinct / rows) as i64),
            // Half of the rows have one value, a quarter the next.
            2 => nth(
                &data_type,
                first + i64::from(random.next().trailing_zeros() % 16),
            ),
            _ if !ends.is_empty() && random.chance(10) => random.one(&ends).clone(),
            _ if wild && random.chance(15) => Value::Float(*random.one(&super::value::WILD)),
            _ => nth(&data_type, first + random.below(distinct) as i64),
        })
        .collect();
    let nulls = *random.weighted(&[(10, 0), (6, 10), (4, 50), (1, 100)]);
    for value in &mut values {
        if random.chance(nulls) {
            *value = Value::Null;
        }
    }
    finished(random, name, data_type, values, None)
}

/// A column of values of another one: all from there, or some that are not there, or NULL.
fn draw_reference(
    random: &mut Random,
    to: &Column,
    reference: (usize, usize),
    name: String,
    rows: usize,
) -> Column {
    let holds = random.chance(60);
    let nulls = *random.one(&[0, 0, 15, 40]);
    let values = (0..rows)
        .map(|_| match () {
            () if random.chance(nulls) => Value::Null,
            () if to.values.is_empty() || !holds && random.chance(30) => {
                nth(&to.data_type, random.below(60) as i64)
            }
            () => random.one(&to.values).clone(),
        })
        .collect();
    finished(random, name, to.data_type.clone(), values, Some(reference))
}

fn finished(
    random: &mut Random,
    name: String,
    data_type: DataType,
    values: Vec<Value>,
    reference: Option<(usize, usize)>,
) -> Column {
    let nulls = values.contains(&Value::Null);
    Column {
        name,
        data_type,
        nullable: nulls || random.chance(60),
        values,
        reference,
        within: false,
    }
}

fn shuffle(random: &mut Random, values: &mut [Value]) {
    for i in (1..values.len()).rev() {
        values.swap(i, random.below(i + 1));
    }
}
