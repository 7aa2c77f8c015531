//! Fields of structs as columns of their own: their numbers, and how they are taken out of batches.
//!
//! A table's columns have the numbers of its schema. Behind them come, for each column of structs in turn, whether the struct is
//! there, then its fields; a field that is a struct itself has a number, which stands for it and is never loaded, and then the same
//! (depth first). A field that may be NULL is what the array of it says, as for DataFusion, whatever is around it; one that may not is
//! NULL where the next struct around it is that may be.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, RecordBatch};
use arrow::buffer::NullBuffer;
use arrow::compute::nullif;
use arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};
use datafusion::error::DataFusionError;
use datafusion::parquet::basic::Repetition;
use datafusion::parquet::schema::types::SchemaDescriptor;
use datafusion::physical_expr::PhysicalExpr;

use super::computed::{ComputedColumn, ComputedColumns};

/// The columns of a table, and behind them the fields of its structs.
#[derive(Debug)]
pub(super) struct StructFields {
    /// All of them, by number.
    schema: SchemaRef,
    /// How many are the table's own.
    own: usize,
    /// Where the others are.
    paths: Vec<Path>,
    /// Columns that are computed of the table's own, behind all of these.
    computed: Arc<ComputedColumns>,
}

/// Where a field is in its table.
#[derive(Debug, Clone)]
struct Path {
    /// Column of the table.
    column: usize,
    /// Position of the field in the column's struct, of the field within that, and so on.
    fields: Vec<usize>,
    /// The column's name, and those of the fields.
    names: Vec<String>,
    /// May the column be NULL, and may the fields?
    nullable: Vec<bool>,
    /// Not the struct there, but whether it is there.
    is_presence: bool,
}

impl StructFields {
    /// The columns of a table with this schema.
    pub(super) fn of(schema: &SchemaRef) -> Self {
        let own = schema.fields().len();
        let mut all = Self {
            schema: Arc::clone(schema),
            own,
            paths: Vec::new(),
            computed: ComputedColumns::of(schema),
        };
        let mut fields: Vec<FieldRef> = schema.fields().to_vec();
        for (column, field) in schema.fields().iter().enumerate() {
            let path = Path {
                column,
                fields: Vec::new(),
                names: vec![field.name().clone()],
                nullable: vec![field.is_nullable()],
                is_presence: false,
            };
            all.add(&path, field, &mut fields);
        }
        if !all.paths.is_empty() {
            all.schema = Arc::new(Schema::new(fields));
        }
        all
    }

    /// The same of a table whose structs are left alone.
    pub(super) fn none(schema: &SchemaRef) -> Self {
        Self {
            schema: Arc::clone(schema),
            own: schema.fields().len(),
            paths: Vec::new(),
            computed: Arc::default(),
        }
    }

    /// Adds what is within the struct at `path`, if it is one.
    fn add(&mut self, path: &Path, field: &Field, all: &mut Vec<FieldRef>) {
        let DataType::Struct(within) = field.data_type() else {
            return;
        };
        let name = path.names.join(".");
        let presence = Field::new(format!("{name} IS NOT NULL"), DataType::Boolean, false);
        all.push(Arc::new(presence));
        self.paths.push(Path {
            is_presence: true,
            ..path.clone()
        });
        for (at, field) in within.iter().enumerate() {
            let mut path = path.clone();
            path.fields.push(at);
            path.names.push(field.name().clone());
            path.nullable.push(field.is_nullable());
            let described = field.as_ref().clone().with_name(path.names.join("."));
            let nullable = path.nullable.iter().any(|nullable| *nullable);
            all.push(Arc::new(described.with_nullable(nullable)));
            self.paths.push(path.clone());
            self.add(&path, field, all);
        }
    }

    /// All columns but those that are computed, by number.
    pub(super) fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// How many columns are the table's own.
    pub(super) fn own(&self) -> usize {
        self.own
    }

    /// Those that are computed of them.
    pub(super) fn computed(&self) -> &ComputedColumns {
        &self.computed
    }

    /// The name of a column, for people.
    pub(super) fn column_name(&self, column: usize) -> String {
        let fields = self.schema.fields();
        if let Some(field) = fields.get(column) {
            return field.name().clone();
        }
        let computed = self.computed.get(column - fields.len());
        computed.map_or_else(String::new, |computed| computed.name().to_string())
    }

    /// The number of the field that `names` lead to within a column of structs; `None` where they lead to none.
    pub(super) fn field(&self, column: usize, names: &[&str]) -> Option<usize> {
        self.number(column, names, false)
    }

    /// The number of whether the struct is there that `names` lead to.
    pub(super) fn presence(&self, column: usize, names: &[&str]) -> Option<usize> {
        self.number(column, names, true)
    }

    fn number(&self, column: usize, names: &[&str], is_presence: bool) -> Option<usize> {
        let (column, around) = match self.path(column) {
            Some(path) => (path.column, &path.names[1..]),
            None => (column, &[][..]),
        };
        let all = || {
            around
                .iter()
                .map(String::as_str)
                .chain(names.iter().copied())
        };
        // Of fields with one name the first is meant, as for DataFusion.
        let at = self.paths.iter().position(|path| {
            path.column == column
                && path.is_presence == is_presence
                && path.names[1..].iter().map(String::as_str).eq(all())
        });
        Some(self.own + at?)
    }

    fn path(&self, column: usize) -> Option<&Path> {
        self.paths.get(column.checked_sub(self.own)?)
    }

    /// Is the column a field within structs?
    pub(super) fn is_field(&self, column: usize) -> bool {
        self.path(column).is_some()
    }

    /// The names of the table's column and of the fields that lead to a column that is a field; `None` of other columns.
    pub(super) fn names(&self, column: usize) -> Option<&[String]> {
        let path = self.path(column)?;
        (!path.is_presence).then_some(&path.names)
    }

    /// The column of a parquet file that has this field; `None` for other columns, and where the file has none.
    pub(super) fn in_parquet(&self, column: usize, file: &SchemaDescriptor) -> Option<usize> {
        let names = self.names(column)?;
        file.columns()
            .iter()
            .position(|column| column.path().parts() == names && column.max_rep_level() == 0)
    }

    /// The columns of a parquet file within the struct that this column tells the presence of, and the definition level from which on
    /// it is there; `None` for other columns, and where the file has no such struct.
    pub(super) fn presence_in_parquet(
        &self,
        column: usize,
        file: &SchemaDescriptor,
    ) -> Option<(Vec<usize>, u32)> {
        let path = self.path(column).filter(|path| path.is_presence)?;
        let mut group = file.root_schema();
        let mut level = 0;
        for name in &path.names {
            if !group.is_group() {
                return None;
            }
            let mut within = group.get_fields().iter();
            group = within.find(|field| field.name() == name)?;
            match group.get_basic_info().repetition() {
                Repetition::OPTIONAL => level += 1,
                Repetition::REQUIRED => {}
                Repetition::REPEATED => return None,
            }
        }
        let leaves = file.columns().iter().enumerate().filter(|(_, leaf)| {
            leaf.max_rep_level() == 0 && leaf.path().parts().starts_with(&path.names)
        });
        Some((leaves.map(|(at, _)| at).collect(), level))
    }

    /// What is to be read of the table for these columns.
    ///
    /// # Errors
    /// Of DataFusion's rewriting, and for a column that there is not.
    pub(super) fn reads(&self, wanted: &[usize]) -> Result<Reads, DataFusionError> {
        let mut reads = Reads {
            columns: Vec::new(),
            takes: Vec::with_capacity(wanted.len()),
        };
        for wanted in wanted {
            if let Some(computed) = wanted.checked_sub(self.schema.fields().len()) {
                let column = self.computed.get(computed).ok_or_else(lacking)?;
                let places: Vec<usize> = column.reads.iter().map(|c| reads.place(*c)).collect();
                let over = column.over(&places)?;
                reads.takes.push(Take::Computed(column, over));
                continue;
            }
            let path = self.path(*wanted);
            let at = reads.place(path.map_or(*wanted, |path| path.column));
            reads.takes.push(Take::Field(TakeField {
                at,
                fields: path.map_or(Vec::new(), |path| path.fields.clone()),
                around: path.and_then(Path::around),
                is_presence: path.is_some_and(|path| path.is_presence),
            }));
        }
        Ok(reads)
    }
}

/// Columns of a table that are read, and what is taken out of them.
#[derive(Debug, Clone)]
pub(super) struct Reads {
    /// The table's own columns, each once.
    pub(super) columns: Vec<usize>,
    takes: Vec<Take>,
}

#[derive(Debug, Clone)]
enum Take {
    /// A column, or what is within it.
    Field(TakeField),
    /// What is computed of columns, with the expression over those that are read.
    Computed(Arc<ComputedColumn>, Arc<dyn PhysicalExpr>),
}

#[derive(Debug, Clone)]
struct TakeField {
    /// Position among the columns that are read.
    at: usize,
    fields: Vec<usize>,
    /// How many fields deep the struct is whose NULLs are its own, 0 for that of the column; itself counts.
    around: Option<usize>,
    is_presence: bool,
}

impl Path {
    /// How many fields deep what may be NULL is, itself or around it.
    fn around(&self) -> Option<usize> {
        self.nullable.iter().rposition(|nullable| *nullable)
    }
}

impl Reads {
    /// The position of a column of the table among those that are read.
    fn place(&mut self, column: usize) -> usize {
        let at = self.columns.iter().position(|c| *c == column);
        at.unwrap_or_else(|| {
            self.columns.push(column);
            self.columns.len() - 1
        })
    }

    /// The wanted columns out of a batch of those that are read.
    ///
    /// # Errors
    /// When the batch has other columns, or structs with other fields; [`DataFusionError::NotImplemented`] for what cannot be computed
    /// of a row.
    pub(super) fn take(&self, batch: &RecordBatch) -> Result<Vec<ArrayRef>, DataFusionError> {
        let takes = self.takes.iter().map(|take| match take {
            Take::Field(field) => field.of(batch),
            Take::Computed(column, expr) => column.evaluate(expr, batch),
        });
        takes.collect()
    }
}

impl TakeField {
    fn of(&self, batch: &RecordBatch) -> Result<ArrayRef, DataFusionError> {
        let column = batch.columns().get(self.at).ok_or_else(lacking)?;
        if !self.is_presence {
            return take_field(column, &self.fields, self.around);
        }
        let (array, around) = within(column, &self.fields, self.around)?;
        let own = (self.around == Some(self.fields.len())).then(|| array.nulls().cloned());
        let there = own.flatten().or(around);
        let there = there.map_or_else(
            || BooleanArray::from(vec![true; array.len()]),
            |there| BooleanArray::new(there.into_inner(), None),
        );
        Ok(Arc::new(there))
    }
}

/// The field of structs that is at these positions, one within the other. It is NULL as well where the struct is that lies
/// `around` positions deep.
///
/// # Errors
/// When there is no such field.
pub fn take_field(
    structs: &ArrayRef,
    fields: &[usize],
    around: Option<usize>,
) -> Result<ArrayRef, DataFusionError> {
    let (array, around) = within(structs, fields, around)?;
    let Some(around) = around.filter(|around| around.null_count() > 0) else {
        return Ok(array);
    };
    let missing = BooleanArray::new(!around.inner(), None);
    Ok(nullif(&array, &missing)?)
}

/// The field as it is, and where the struct is that lies `around` positions deep.
fn within(
    structs: &ArrayRef,
    fields: &[usize],
    around: Option<usize>,
) -> Result<(ArrayRef, Option<NullBuffer>), DataFusionError> {
    let mut array = Arc::clone(structs);
    let mut there = None;
    for (depth, field) in fields.iter().enumerate() {
        if around == Some(depth) {
            there = array.nulls().cloned();
        }
        let structs = array.as_struct_opt().ok_or_else(lacking)?;
        let within = structs.columns().get(*field).ok_or_else(lacking)?;
        array = Arc::clone(within);
    }
    Ok((array, there))
}

fn lacking() -> DataFusionError {
    let what = "a batch lacks a column, or a field of a struct, of its table";
    DataFusionError::Execution(what.into())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;
    use arrow::array::{Int32Array, StringArray, StructArray};

    fn batch() -> RecordBatch {
        let inner = StructArray::new(
            vec![Field::new("b", DataType::Utf8, false)].into(),
            vec![Arc::new(StringArray::from(vec!["p", "q", "r", "s"])) as ArrayRef],
            Some(NullBuffer::from(vec![true, true, false, true])),
        );
        let outer = StructArray::new(
            vec![
                Field::new("a", DataType::Int32, true),
                Field::new("t", inner.data_type().clone(), true),
            ]
            .into(),
            vec![
                Arc::new(Int32Array::from(vec![Some(1), None, Some(3), Some(4)])) as ArrayRef,
                Arc::new(inner),
            ],
            Some(NullBuffer::from(vec![true, true, true, false])),
        );
        let id = Arc::new(Int32Array::from(vec![7, 8, 9, 10])) as ArrayRef;
        RecordBatch::try_from_iter([("s", Arc::new(outer) as ArrayRef), ("id", id)]).unwrap()
    }

    #[test]
    fn fields_have_numbers_depth_first() {
        let batch = batch();
        let fields = StructFields::of(&batch.schema());
        let names = fields.schema().fields().iter().map(|f| f.name().as_str());
        let expected = [
            "s",
            "id",
            "s IS NOT NULL",
            "s.a",
            "s.t",
            "s.t IS NOT NULL",
            "s.t.b",
        ];
        assert_eq!(names.collect::<Vec<_>>(), expected);
        assert_eq!(fields.field(0, &["a"]), Some(3));
        assert_eq!(fields.field(0, &["t"]), Some(4));
        assert_eq!(fields.field(0, &["t", "b"]), Some(6));
        assert_eq!(fields.field(4, &["b"]), Some(6));
        assert_eq!(fields.field(1, &["a"]), None);
        assert_eq!(fields.presence(0, &[]), Some(2));
        assert_eq!(fields.presence(0, &["t"]), Some(5));
        assert_eq!(fields.presence(4, &[]), Some(5));
        // Strings that are never NULL in their struct, which may be.
        assert!(fields.schema().field(6).is_nullable());

        let reads = fields.reads(&[6, 1, 5, 3, 2]).unwrap();
        assert_eq!(reads.columns, [0, 1]);
        let taken = reads.take(&batch.project(&reads.columns).unwrap()).unwrap();
        let texts = StringArray::from(vec![Some("p"), Some("q"), None, Some("s")]);
        assert_eq!(taken[0].as_string::<i32>(), &texts);
        assert_eq!(taken[1].len(), 4);
        let there = BooleanArray::from(vec![true, true, false, true]);
        assert_eq!(taken[2].as_boolean(), &there);
        let numbers = Int32Array::from(vec![Some(1), None, Some(3), Some(4)]);
        assert_eq!(taken[3].as_primitive(), &numbers);
        let there = BooleanArray::from(vec![true, true, true, false]);
        assert_eq!(taken[4].as_boolean(), &there);
    }

    #[test]
    fn a_table_without_structs_has_its_own_columns_only() {
        let schema = Arc::new(Schema::new(vec![Field::new("a", DataType::Int32, true)]));
        let fields = StructFields::of(&schema);
        assert!(Arc::ptr_eq(fields.schema(), &schema));
        assert!(!fields.is_field(0) && fields.path(1).is_none());
    }
}
