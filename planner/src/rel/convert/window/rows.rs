//! Rows in the order of a window: the columns that its functions ask for, and values of other rows.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::window::WindowExpr;
use warpline_gpu::expr::Expr;
use warpline_gpu::graph::{SortKey, Window, WindowColumn};

use super::function::Function;
use crate::reason::Reason;
use crate::rel::convert::Converter;
use crate::rel::expr::{as_column, is_not_null};
use crate::rel::{Join, JoinKind, Rel, RelRef};
use crate::translate::check_order;

/// Functions over rows in an order.
pub(super) fn ordered(
    exprs: &[&Arc<dyn WindowExpr>],
    input: RelRef,
    converter: &Converter,
) -> Result<(RelRef, Vec<Expr>), Reason> {
    let first = exprs[0];
    let width = input.columns.len();
    // Keys and arguments become columns, whatever they are.
    let mut wanted: Vec<Arc<dyn PhysicalExpr>> = first.partition_by().to_vec();
    wanted.extend(first.order_by().iter().map(|key| Arc::clone(&key.expr)));
    let keys = wanted.len();
    let functions: Vec<Function> = exprs
        .iter()
        .map(|expr| Function::of(expr, &mut wanted))
        .collect::<Result<_, _>>()?;
    let (input, translated) = converter.translate_all(input, &wanted)?;
    let mut columns: Vec<(Expr, String)> = (0..width)
        .map(|i| (input.column(i), input.columns[i].name.clone()))
        .collect();
    let mut places = Vec::with_capacity(translated.len());
    for (number, expr) in translated.into_iter().enumerate() {
        if (first.partition_by().len()..keys).contains(&number) {
            check_order(&expr)?;
        }
        places.push(match as_column(&expr) {
            Some(column) if column < width => column,
            _ => {
                columns.push((expr, format!("of window {number}")));
                columns.len() - 1
            }
        });
    }
    let input = match columns.len() == width && input.columns.len() == width {
        true => input,
        false => Rel::project(input, columns),
    };
    let partition = first.partition_by().len();
    let mut sort: Vec<SortKey> = Vec::with_capacity(keys);
    let mut partitions = 0;
    for (number, column) in places[..keys].iter().enumerate() {
        // What was ordered by before tells no more rows apart.
        if sort.iter().any(|key| key.column == *column) {
            continue;
        }
        let options = number
            .checked_sub(partition)
            .and_then(|i| first.order_by().get(i))
            .map(|key| key.options);
        sort.push(SortKey {
            column: *column,
            descending: options.is_some_and(|options| options.descending),
            nulls_first: options.is_some_and(|options| options.nulls_first),
        });
        partitions += usize::from(number < partition);
    }
    let mut ordered = Ordered {
        width: input.columns.len(),
        order_key: sort.get(partitions).copied(),
        input,
        added: Vec::new(),
        arguments: places[keys..].to_vec(),
        lookups: Vec::new(),
    };
    let values: Vec<Value> = functions
        .iter()
        .map(|function| function.value(&mut ordered))
        .collect::<Result<_, _>>()?;
    ordered.finish(sort, partitions, values)
}

/// Rows of a window while its functions say what they need of it.
pub(super) struct Ordered {
    /// Rows with keys and arguments.
    pub(super) input: RelRef,
    /// Their columns.
    pub(super) width: usize,
    /// What the window adds.
    added: Vec<(WindowColumn, DataType)>,
    /// Where the arguments of functions lie among the columns.
    arguments: Vec<usize>,
    /// The first key of the order behind the partition.
    pub(super) order_key: Option<SortKey>,
    lookups: Vec<Lookup>,
}

/// Rows that are looked up, and the columns that are wanted of them.
struct Lookup {
    by: By,
    columns: Vec<usize>,
}

/// By what a row is found.
enum By {
    /// Its number.
    Row(Expr),
    /// The number among those rows of the own partition whose column is not NULL, from 1; made of what was looked up before.
    Known(usize, Value),
}

/// What a function comes to, made when the columns are known that it needs.
pub(super) type Value = Box<dyn FnOnce(&Looked) -> Result<Expr, Reason>>;

/// Columns that were looked up: of lookup `.0` its column `.1`.
pub(super) struct Looked {
    rows: RelRef,
    /// Where the columns of each lookup begin.
    starts: Vec<usize>,
}

impl Looked {
    pub(super) fn column(&self, (lookup, column): (usize, usize)) -> Expr {
        self.rows.column(self.starts[lookup] + column)
    }
}

impl Ordered {
    /// A column that the window adds, the same for all that ask for it.
    pub(super) fn added(&mut self, column: WindowColumn, data_type: DataType) -> Expr {
        let found = self
            .added
            .iter()
            .position(|(known, of)| *known == column && *of == data_type);
        let at = found.unwrap_or_else(|| {
            self.added.push((column, data_type.clone()));
            self.added.len() - 1
        });
        Expr::column(self.width + at, data_type, false)
    }

    pub(super) fn number(&mut self, column: WindowColumn) -> Expr {
        self.added(column, DataType::Int64)
    }

    /// Where an argument lies, and it itself.
    pub(super) fn argument(&self, number: usize) -> (usize, Expr) {
        let column = self.arguments[number];
        (column, self.input.column(column))
    }

    /// A column of the row whose number `row` is; NULL where that is NULL.
    pub(super) fn look_up(&mut self, row: Expr, column: usize) -> (usize, usize) {
        let same = |lookup: &Lookup| match &lookup.by {
            By::Row(known) => crate::rel::expr::same(known, &row),
            By::Known(..) => false,
        };
        let lookup = self.lookups.iter().position(same).unwrap_or_else(|| {
            self.lookups.push(Lookup {
                by: By::Row(row.clone()),
                columns: Vec::new(),
            });
            self.lookups.len() - 1
        });
        let columns = &mut self.lookups[lookup].columns;
        let at = columns
            .iter()
            .position(|known| *known == column)
            .unwrap_or_else(|| {
                columns.push(column);
                columns.len() - 1
            });
        (lookup, at)
    }

    /// A column of the row that has this number among those of the partition whose column is not NULL; NULL where that is NULL, or
    /// there is none.
    pub(super) fn look_up_known(&mut self, column: usize, number: Value) -> (usize, usize) {
        self.number(WindowColumn::PartitionStart);
        self.number(WindowColumn::RunningCount(column));
        self.lookups.push(Lookup {
            by: By::Known(column, number),
            columns: vec![column],
        });
        (self.lookups.len() - 1, 0)
    }

    /// The rows with all columns, and the functions' values over them.
    fn finish(
        mut self,
        keys: Vec<SortKey>,
        partition: usize,
        values: Vec<Value>,
    ) -> Result<(RelRef, Vec<Expr>), Reason> {
        let by_row = |lookup: &Lookup| matches!(lookup.by, By::Row(_));
        let position = match self.lookups.iter().any(by_row) {
            true => as_column(&self.number(WindowColumn::Position)),
            false => None,
        };
        if self.added.is_empty() {
            self.number(WindowColumn::Position);
        }
        let columns = self.added.iter().map(|(column, _)| *column).collect();
        let added = self.added.iter().enumerate();
        let added = added.map(|(i, (_, data_type))| (format!("window {i}"), data_type.clone()));
        let window = Rel::window(
            self.input,
            keys,
            Window {
                partition,
                columns,
                first: None,
                lists: vec![],
            },
            added.collect(),
        );
        let mut looked = Looked {
            rows: Arc::clone(&window),
            starts: Vec::with_capacity(self.lookups.len()),
        };
        for lookup in self.lookups {
            let (rows, keys) = match lookup.by {
                By::Row(row) => {
                    let key = position.into_iter().map(|at| (row.clone(), at));
                    (Arc::clone(&window), key.collect::<Vec<_>>())
                }
                By::Known(column, number) => {
                    let of = |added: WindowColumn| {
                        let found = self.added.iter().position(|(known, _)| *known == added);
                        self.width + found.unwrap_or(usize::MAX - self.width)
                    };
                    let start = of(WindowColumn::PartitionStart);
                    let count = of(WindowColumn::RunningCount(column));
                    let known = vec![is_not_null(window.column(column))];
                    let number = number(&looked)?;
                    let keys = vec![(window.column(start), start), (number, count)];
                    (Rel::filter(Arc::clone(&window), known), keys)
                }
            };
            let columns = keys.iter().map(|(_, at)| *at).chain(lookup.columns);
            let columns = columns.map(|i| (rows.column(i), rows.columns[i].name.clone()));
            let others = Rel::project(Arc::clone(&rows), columns.collect());
            looked.starts.push(looked.rows.columns.len() + keys.len());
            let keys = keys.into_iter().enumerate();
            looked.rows = Rel::join(Join {
                left: Arc::clone(&looked.rows),
                on: keys.map(|(i, (key, _))| (key, others.column(i))).collect(),
                right: others,
                kind: JoinKind::Left,
                residual: vec![],
                null_equal: false,
                build: None,
            });
        }
        let values = values.into_iter().map(|value| value(&looked));
        let values = values.collect::<Result<_, _>>()?;
        Ok((looked.rows, values))
    }
}
