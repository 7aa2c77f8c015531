//! Window functions.
//!
//! Aggregates over whole partitions are groups that are joined back. All others go over rows in the order of their partitions
//! ([`RelKind::Window`](crate::rel::RelKind::Window)): numbering functions are arithmetic on where a row lies; values of other
//! rows are looked up by their number; aggregates over frames are made of values that run through the partition.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::functions_aggregate::average::Avg;
use datafusion::functions_aggregate::count::Count;
use datafusion::functions_aggregate::min_max::{Max, Min};
use datafusion::functions_aggregate::sum::Sum;
use datafusion::functions_window::cume_dist::cume_dist_udwf;
use datafusion::functions_window::lead_lag::{lag_udwf, lead_udwf};
use datafusion::functions_window::nth_value::{first_value_udwf, last_value_udwf, nth_value_udwf};
use datafusion::functions_window::ntile::ntile_udwf;
use datafusion::functions_window::rank::{dense_rank_udwf, percent_rank_udwf, rank_udwf};
use datafusion::functions_window::row_number::row_number_udwf;
use datafusion::logical_expr::{WindowFrame, WindowFrameBound, WindowFrameUnits, WindowUDF};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;
use datafusion::physical_expr::expressions::Literal;
use datafusion::physical_expr::window::{
    PlainAggregateWindowExpr, SlidingAggregateWindowExpr, StandardWindowExpr, WindowExpr,
};
use datafusion::physical_plan::windows::WindowUDFExpr;
use datafusion::scalar::ScalarValue;
use warpline_gpu::expr::{BinaryOp, Expr};
use warpline_gpu::graph::{SortKey, Window, WindowColumn};
use warpline_gpu::primitives::RunningCombine;

use super::Converter;
use super::aggregate::{Grouping, calls, grouped};
use super::beside::with_groups;
use crate::reason::{Reason, refuse};
use crate::rel::expr::{all_of, as_column, binary, case, cast, null};
use crate::rel::{Join, JoinKind, Rel, RelRef};
use crate::translate::is_decimal;

/// `input` with a column for each window expression.
pub(super) fn windows(
    exprs: &[Arc<dyn WindowExpr>],
    input: RelRef,
    converter: &Converter,
) -> Result<RelRef, Reason> {
    let width = input.columns.len();
    let mut rows = input;
    let mut values: Vec<Option<(Expr, String)>> = vec![None; exprs.len()];
    for first in 0..exprs.len() {
        if values[first].is_some() {
            continue;
        }
        // Those over the same partitions in the same order share their work.
        let alike = |other: &usize| {
            let (a, b) = (&exprs[first], &exprs[*other]);
            let partitions = a.partition_by().len() == b.partition_by().len()
                && a.partition_by()
                    .iter()
                    .zip(b.partition_by())
                    .all(|(a, b)| a == b);
            partitions && a.order_by() == b.order_by() && is_whole(a) == is_whole(b)
        };
        let members: Vec<usize> = (first..exprs.len()).filter(alike).collect();
        let shared: Vec<&Arc<dyn WindowExpr>> = members.iter().map(|i| &exprs[*i]).collect();
        let (with, found) = match is_whole(&exprs[first]) {
            true => whole(&shared, rows, converter)?,
            false => ordered(&shared, rows, converter)?,
        };
        rows = with;
        for (member, value) in members.into_iter().zip(found) {
            let name = exprs[member].name().to_string();
            values[member] = Some((value, name));
        }
    }
    let own = (0..width).map(|i| (rows.column(i), rows.columns[i].name.clone()));
    let columns = own.chain(values.into_iter().flatten()).collect();
    Ok(Rel::project(Arc::clone(&rows), columns))
}

/// The aggregate function of an expression, if it is one.
fn aggregate_of(expr: &Arc<dyn WindowExpr>) -> Option<&AggregateFunctionExpr> {
    let any = expr.as_any();
    let plain = any.downcast_ref::<PlainAggregateWindowExpr>();
    let plain = plain.map(PlainAggregateWindowExpr::get_aggregate_expr);
    let sliding = || any.downcast_ref::<SlidingAggregateWindowExpr>();
    plain.or_else(|| sliding().map(SlidingAggregateWindowExpr::get_aggregate_expr))
}

/// Is it an aggregate whose frame is the partition, whatever the row?
fn is_whole(expr: &Arc<dyn WindowExpr>) -> bool {
    let frame = expr.get_window_frame();
    let all = frame.start_bound.is_unbounded() && frame.end_bound.is_unbounded();
    // Without an order all rows are peers.
    let peers = expr.order_by().is_empty() && frame.units != WindowFrameUnits::Rows;
    aggregate_of(expr).is_some() && (all || peers)
}

/// Aggregates over whole partitions.
fn whole(
    exprs: &[&Arc<dyn WindowExpr>],
    input: RelRef,
    converter: &Converter,
) -> Result<(RelRef, Vec<Expr>), Reason> {
    let aggregates = exprs.iter().filter_map(|expr| aggregate_of(expr).cloned());
    let aggregates: Vec<Arc<AggregateFunctionExpr>> = aggregates.map(Arc::new).collect();
    exprs.iter().try_for_each(|expr| check_filter(expr))?;
    let partition = exprs[0].partition_by();
    let (input, keys) = converter.translate_all(input, partition)?;
    let filters = vec![None; aggregates.len()];
    let calls = calls(&aggregates, &filters, &input)?;
    let names = (0..keys.len()).map(|i| format!("partition {i}")).collect();
    let grouping = Grouping { input, keys, names };
    let groups = grouped(&grouping, &calls)?;
    let (rows, columns) = with_groups(&grouping, groups);
    let values = columns.map(|i| rows.column(i)).collect();
    Ok((rows, values))
}

/// The filter of an aggregate in a window is no part of its interface.
fn check_filter(expr: &Arc<dyn WindowExpr>) -> Result<(), Reason> {
    match format!("{expr:?}").contains("filter: Some(") {
        true => refuse(format!("{} with a FILTER runs on the CPU", expr.name())),
        false => Ok(()),
    }
}

/// Functions over rows in an order.
fn ordered(
    exprs: &[&Arc<dyn WindowExpr>],
    input: RelRef,
    converter: &Converter,
) -> Result<(RelRef, Vec<Expr>), Reason> {
    let first = exprs[0];
    if first.order_by().is_empty() {
        return refuse(format!(
            "{} runs on the CPU: its window has no ORDER BY",
            first.name()
        ));
    }
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
struct Ordered {
    /// Rows with keys and arguments.
    input: RelRef,
    /// Their columns.
    width: usize,
    /// What the window adds.
    added: Vec<(WindowColumn, DataType)>,
    /// Where the arguments of functions lie among the columns.
    arguments: Vec<usize>,
    /// Row numbers, and the columns that are wanted of those rows.
    lookups: Vec<(Expr, Vec<usize>)>,
}

/// What a function comes to, made when all columns are known.
type Value = Box<dyn FnOnce(&Looked) -> Result<Expr, Reason>>;

/// Columns that were looked up: of lookup `.0` its column `.1`.
struct Looked {
    rows: RelRef,
    /// Where the columns of each lookup begin.
    starts: Vec<usize>,
}

impl Looked {
    fn column(&self, (lookup, column): (usize, usize)) -> Expr {
        self.rows.column(self.starts[lookup] + column)
    }
}

impl Ordered {
    /// A column that the window adds, the same for all that ask for it.
    fn added(&mut self, column: WindowColumn, data_type: DataType) -> Expr {
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

    fn number(&mut self, column: WindowColumn) -> Expr {
        self.added(column, DataType::Int64)
    }

    /// Where an argument lies, and it itself.
    fn argument(&self, number: usize) -> (usize, Expr) {
        let column = self.arguments[number];
        (column, self.input.column(column))
    }

    /// A column of the row whose number `row` is; NULL where that is NULL.
    fn look_up(&mut self, row: Expr, column: usize) -> (usize, usize) {
        let same = |(known, _): &(Expr, Vec<usize>)| crate::rel::expr::same(known, &row);
        let lookup = self.lookups.iter().position(same).unwrap_or_else(|| {
            self.lookups.push((row.clone(), Vec::new()));
            self.lookups.len() - 1
        });
        let columns = &mut self.lookups[lookup].1;
        let at = columns
            .iter()
            .position(|known| *known == column)
            .unwrap_or_else(|| {
                columns.push(column);
                columns.len() - 1
            });
        (lookup, at)
    }

    /// The rows with all columns, and the functions' values over them.
    fn finish(
        mut self,
        keys: Vec<SortKey>,
        partition: usize,
        values: Vec<Value>,
    ) -> Result<(RelRef, Vec<Expr>), Reason> {
        let position = match self.lookups.is_empty() {
            true => None,
            false => as_column(&self.number(WindowColumn::Position)),
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
            Window { partition, columns },
            added.collect(),
        );
        let mut looked = Looked {
            rows: Arc::clone(&window),
            starts: Vec::with_capacity(self.lookups.len()),
        };
        for (row, wanted) in self.lookups {
            let numbered = position.into_iter().chain(wanted);
            let numbered = numbered.map(|i| (window.column(i), window.columns[i].name.clone()));
            let others = Rel::project(Arc::clone(&window), numbered.collect());
            looked.starts.push(looked.rows.columns.len() + 1);
            looked.rows = Rel::join(Join {
                left: Arc::clone(&looked.rows),
                on: vec![(row, others.column(0))],
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

fn int(value: i64) -> Expr {
    Expr::literal(ScalarValue::Int64(Some(value)))
}

fn plus(left: Expr, right: Expr) -> Expr {
    binary(BinaryOp::Add, left, right, DataType::Int64)
}

fn minus(left: Expr, right: Expr) -> Expr {
    binary(BinaryOp::Subtract, left, right, DataType::Int64)
}

fn less(left: Expr, right: Expr) -> Expr {
    binary(BinaryOp::Lt, left, right, DataType::Boolean)
}

/// The greater of two numbers that are not NULL.
fn greatest(left: Expr, right: Expr) -> Expr {
    case(less(left.clone(), right.clone()), right, left)
}

fn least(left: Expr, right: Expr) -> Expr {
    case(less(left.clone(), right.clone()), left, right)
}

/// `value` where `condition` is true, else NULL.
fn only_if(condition: Expr, value: Expr) -> Result<Expr, Reason> {
    let nothing = null(&value.data_type)?;
    Ok(case(condition, value, nothing))
}

/// A function of a window, with where its arguments are among all.
#[derive(Debug)]
struct Function {
    kind: Kind,
    /// The first of its arguments.
    argument: usize,
    frame: Frame,
    data_type: DataType,
}

#[derive(Debug, Clone, PartialEq)]
enum Kind {
    RowNumber,
    Rank,
    DenseRank,
    PercentRank,
    CumeDist,
    Ntile(i64),
    /// The row so many before this one, or a value where there is none.
    Lag(i64, ScalarValue),
    FirstValue,
    LastValue,
    /// From 1.
    NthValue(i64),
    CountRows,
    Count,
    Sum,
    Average,
    Extreme(RunningCombine),
}

/// The rows of a frame: from the first to before the second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Frame {
    start: Bound,
    end: Bound,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Bound {
    /// The first, or the last row of the partition.
    Unbounded,
    /// Rows after this one, before it where negative.
    Rows(i64),
    /// The first, or the last of this row's peers.
    Peers,
}

impl Frame {
    fn of(frame: &WindowFrame) -> Result<Self, Reason> {
        let bound = |bound: &WindowFrameBound| -> Result<Bound, Reason> {
            let rows = |value: &ScalarValue| match value {
                ScalarValue::UInt64(Some(rows)) => i64::try_from(*rows).ok(),
                ScalarValue::Int64(rows) => *rows,
                _ => None,
            };
            let found = match (bound, frame.units) {
                (_, _) if bound.is_unbounded() => Some(Bound::Unbounded),
                (WindowFrameBound::CurrentRow, WindowFrameUnits::Rows) => Some(Bound::Rows(0)),
                (WindowFrameBound::CurrentRow, _) => Some(Bound::Peers),
                (WindowFrameBound::Preceding(value), WindowFrameUnits::Rows) => {
                    rows(value).map(|rows| Bound::Rows(-rows))
                }
                (WindowFrameBound::Following(value), WindowFrameUnits::Rows) => {
                    rows(value).map(Bound::Rows)
                }
                _ => None,
            };
            match found {
                Some(bound) => Ok(bound),
                None => refuse(format!("a window over {frame} runs on the CPU")),
            }
        };
        Ok(Self {
            start: bound(&frame.start_bound)?,
            end: bound(&frame.end_bound)?,
        })
    }

    /// The number of the first row.
    fn first(self, rows: &mut Ordered) -> Expr {
        let start = rows.number(WindowColumn::PartitionStart);
        match self.start {
            Bound::Unbounded => start,
            Bound::Peers => rows.number(WindowColumn::PeerStart),
            Bound::Rows(0) => rows.number(WindowColumn::Position),
            Bound::Rows(after) => {
                let row = plus(rows.number(WindowColumn::Position), int(after));
                greatest(row, start)
            }
        }
    }

    /// The number of the row behind the last.
    fn behind(self, rows: &mut Ordered) -> Expr {
        let end = rows.number(WindowColumn::PartitionEnd);
        match self.end {
            Bound::Unbounded => end,
            Bound::Peers => rows.number(WindowColumn::PeerEnd),
            Bound::Rows(0) => plus(rows.number(WindowColumn::Position), int(1)),
            Bound::Rows(after) => {
                let row = plus(rows.number(WindowColumn::Position), int(after + 1));
                least(row, end)
            }
        }
    }
}

/// Is it a built-in function? A user's function may bear the name of one.
fn is(function: &WindowUDF, built_in: &Arc<WindowUDF>) -> bool {
    function == built_in.as_ref()
}

impl Function {
    /// What the device makes of an expression; its arguments are added to `wanted`.
    fn of(
        expr: &Arc<dyn WindowExpr>,
        wanted: &mut Vec<Arc<dyn PhysicalExpr>>,
    ) -> Result<Self, Reason> {
        let keys = expr.partition_by().len() + expr.order_by().len();
        let argument = wanted.len() - keys;
        let data_type = expr.field()?.data_type().clone();
        if let Some(call) = aggregate_of(expr) {
            check_filter(expr)?;
            return Ok(Self {
                kind: aggregate_kind(call, wanted)?,
                argument,
                frame: Frame::of(expr.get_window_frame())?,
                data_type,
            });
        }
        let standard = expr.as_any().downcast_ref::<StandardWindowExpr>();
        let function = standard.and_then(|expr| {
            expr.get_standard_func_expr()
                .as_any()
                .downcast_ref::<WindowUDFExpr>()
        });
        let Some(function) = function else {
            return refuse(format!(
                "the window function {} runs on the CPU",
                expr.name()
            ));
        };
        // Neither is part of the interface.
        let described = format!("{function:?}");
        for unusual in ["is_reversed: true", "ignore_nulls: true"] {
            if described.contains(unusual) {
                return refuse(format!("{} with {unusual} runs on the CPU", expr.name()));
            }
        }
        let (kind, frame) = standard_kind(function, expr.get_window_frame(), wanted)?;
        Ok(Self {
            kind,
            argument,
            frame,
            data_type,
        })
    }

    /// What it comes to for each row.
    fn value(&self, rows: &mut Ordered) -> Result<Value, Reason> {
        let data_type = self.data_type.clone();
        let computed = match &self.kind {
            Kind::RowNumber => {
                let position = rows.number(WindowColumn::Position);
                let start = rows.number(WindowColumn::PartitionStart);
                plus(minus(position, start), int(1))
            }
            Kind::Rank => plus(peers_before(rows), int(1)),
            Kind::DenseRank => rows.number(WindowColumn::DenseRank),
            Kind::PercentRank => {
                let before = cast(peers_before(rows), DataType::Float64);
                let others = minus(partition_rows(rows), int(1));
                let share = quotient(before, cast(others.clone(), DataType::Float64));
                let zero = Expr::literal(ScalarValue::Float64(Some(0.0)));
                case(less(int(0), others), share, zero)
            }
            Kind::CumeDist => {
                let end = rows.number(WindowColumn::PeerEnd);
                let start = rows.number(WindowColumn::PartitionStart);
                let upto = cast(minus(end, start), DataType::Float64);
                let all = cast(partition_rows(rows), DataType::Float64);
                quotient(upto, all)
            }
            Kind::Ntile(tiles) => {
                let position = rows.number(WindowColumn::Position);
                let before = minus(position, rows.number(WindowColumn::PartitionStart));
                tile(before, partition_rows(rows), *tiles)
            }
            Kind::Lag(before, otherwise) => {
                let (column, of) = rows.argument(self.argument);
                let position = rows.number(WindowColumn::Position);
                let row = minus(position, int(*before));
                let inside = match *before < 0 {
                    true => less(row.clone(), rows.number(WindowColumn::PartitionEnd)),
                    false => {
                        let start = rows.number(WindowColumn::PartitionStart);
                        binary(BinaryOp::LtEq, start, row.clone(), DataType::Boolean)
                    }
                };
                let found = rows.look_up(only_if(inside.clone(), row)?, column);
                let otherwise = otherwise.cast_to(&of.data_type)?;
                return Ok(Box::new(move |looked| {
                    let value = looked.column(found);
                    Ok(match otherwise.is_null() {
                        true => value,
                        false => case(inside, value, Expr::literal(otherwise)),
                    })
                }));
            }
            Kind::FirstValue | Kind::LastValue | Kind::NthValue(_) => {
                let (column, _) = rows.argument(self.argument);
                let (first, behind) = (self.frame.first(rows), self.frame.behind(rows));
                let row = match self.kind {
                    Kind::LastValue => minus(behind.clone(), int(1)),
                    Kind::NthValue(n) => plus(first.clone(), int(n - 1)),
                    _ => first.clone(),
                };
                // Of an empty frame there is none.
                let bounds = [
                    less(row.clone(), behind),
                    binary(BinaryOp::LtEq, first, row.clone(), DataType::Boolean),
                ];
                let row = match all_of(bounds) {
                    Some(inside) => only_if(inside, row)?,
                    None => row,
                };
                let found = rows.look_up(row, column);
                return Ok(Box::new(move |looked| Ok(looked.column(found))));
            }
            Kind::CountRows => {
                let rows_of_frame = minus(self.frame.behind(rows), self.frame.first(rows));
                greatest(rows_of_frame, int(0))
            }
            Kind::Count | Kind::Sum | Kind::Average | Kind::Extreme(_) => {
                return self.running(rows);
            }
        };
        let computed = match computed.data_type == data_type {
            true => computed,
            false => cast(computed, data_type),
        };
        Ok(Box::new(move |_| Ok(computed)))
    }

    /// Aggregates over a frame, of values that run from the first row of the partition.
    fn running(&self, rows: &mut Ordered) -> Result<Value, Reason> {
        let (column, argument) = rows.argument(self.argument);
        let nullable = argument.nullable;
        let from_start = self.frame.start == Bound::Unbounded;
        let own_row = self.frame.end == Bound::Rows(0);
        let (first, behind) = (self.frame.first(rows), self.frame.behind(rows));
        let some = less(first.clone(), behind.clone());
        let last = only_if(some.clone(), minus(behind.clone(), int(1)))?;
        let start = rows.number(WindowColumn::PartitionStart);
        let inner = less(start, first.clone());
        let inner = all_of([some.clone(), inner]).unwrap_or_else(|| some.clone());
        let before = only_if(inner.clone(), minus(first.clone(), int(1)))?;
        // What runs up to the last row of the frame, without what runs up to its first.
        let mut over = |added: WindowColumn, data_type: DataType| -> Over {
            let own = rows.added(added, data_type);
            let at = as_column(&own).unwrap_or(usize::MAX);
            Over {
                upto: match own_row {
                    true => Place::Own(own),
                    false => Place::Looked(rows.look_up(last.clone(), at)),
                },
                before: (!from_start).then(|| rows.look_up(before.clone(), at)),
            }
        };
        let counted = nullable.then(|| over(WindowColumn::RunningCount(column), DataType::Int64));
        let value_type = match self.kind {
            Kind::Average => DataType::Float64,
            _ => self.data_type.clone(),
        };
        let value = match self.kind {
            Kind::Count => None,
            Kind::Extreme(_) if !from_start => {
                return refuse("least and greatest values of sliding windows run on the CPU");
            }
            Kind::Extreme(combine) => Some(over(
                WindowColumn::Running(combine, column),
                value_type.clone(),
            )),
            _ => Some(over(
                WindowColumn::Running(RunningCombine::Sum, column),
                value_type.clone(),
            )),
        };
        let (kind, data_type) = (self.kind.clone(), self.data_type.clone());
        let all = greatest(minus(behind, first), int(0));
        Ok(Box::new(move |looked| {
            let count = match counted {
                None => all,
                Some(over) => {
                    let count = over.difference(looked, &DataType::Int64, &inner);
                    case(some, count, int(0))
                }
            };
            let Some(value) = value else {
                return Ok(cast_unless(count, &data_type));
            };
            let value = value.difference(looked, &value_type, &inner);
            let value = match kind {
                Kind::Average => quotient(value, cast(count.clone(), DataType::Float64)),
                _ => value,
            };
            only_if(less(int(0), count), value)
        }))
    }
}

/// A running value at the end of a frame, and before its beginning.
struct Over {
    upto: Place,
    before: Option<(usize, usize)>,
}

enum Place {
    Own(Expr),
    Looked((usize, usize)),
}

impl Over {
    /// `inner`: there are rows of the partition before the frame.
    fn difference(self, looked: &Looked, data_type: &DataType, inner: &Expr) -> Expr {
        let upto = match self.upto {
            Place::Own(own) => own,
            Place::Looked(found) => looked.column(found),
        };
        match self.before {
            None => upto,
            Some(found) => {
                let before = looked.column(found);
                let without = binary(BinaryOp::Subtract, upto.clone(), before, data_type.clone());
                case(inner.clone(), without, upto)
            }
        }
    }
}

fn cast_unless(value: Expr, data_type: &DataType) -> Expr {
    match value.data_type == *data_type {
        true => value,
        false => cast(value, data_type.clone()),
    }
}

fn quotient(left: Expr, right: Expr) -> Expr {
    binary(BinaryOp::Divide, left, right, DataType::Float64)
}

/// Rows of the partition before this row's peers.
fn peers_before(rows: &mut Ordered) -> Expr {
    let peers = rows.number(WindowColumn::PeerStart);
    let start = rows.number(WindowColumn::PartitionStart);
    minus(peers, start)
}

fn partition_rows(rows: &mut Ordered) -> Expr {
    let end = rows.number(WindowColumn::PartitionEnd);
    let start = rows.number(WindowColumn::PartitionStart);
    minus(end, start)
}

/// The tile of a row with so many rows of its partition before it: the first ones have a row more where they do not divide evenly.
fn tile(before: Expr, all: Expr, tiles: i64) -> Expr {
    let whole = |op, left, right| binary(op, left, right, DataType::Int64);
    let rows = whole(BinaryOp::Divide, all.clone(), int(tiles));
    let larger = whole(BinaryOp::Modulo, all, int(tiles));
    let in_larger = whole(
        BinaryOp::Multiply,
        larger.clone(),
        plus(rows.clone(), int(1)),
    );
    let among_larger = whole(BinaryOp::Divide, before.clone(), plus(rows.clone(), int(1)));
    // Where tiles have no row but for the larger ones, all rows are among those.
    let behind = minus(before.clone(), in_larger.clone());
    let among_others = whole(BinaryOp::Divide, behind, greatest(rows, int(1)));
    let number = case(
        less(before, in_larger),
        among_larger,
        plus(larger, among_others),
    );
    plus(number, int(1))
}

/// An aggregate over frames; its argument is added to `wanted`.
fn aggregate_kind(
    call: &AggregateFunctionExpr,
    wanted: &mut Vec<Arc<dyn PhysicalExpr>>,
) -> Result<Kind, Reason> {
    let name = call.fun().name();
    let refused = || refuse(format!("{name} over a frame of rows runs on the CPU"));
    let arguments = call.expressions();
    let ([argument], false) = (arguments.as_slice(), call.is_distinct()) else {
        return refused();
    };
    let function = call.fun().inner();
    let return_type = call.field().data_type().clone();
    let kind = if function.is::<Count>() {
        let constant = argument.downcast_ref::<Literal>();
        match constant.is_some_and(|literal| !literal.value().is_null()) {
            true => return Ok(Kind::CountRows),
            false => Kind::Count,
        }
    } else if function.is::<Sum>() {
        match &return_type {
            DataType::Int64 | DataType::UInt64 | DataType::Float64 => Kind::Sum,
            other if is_decimal(other) => Kind::Sum,
            _ => return refused(),
        }
    } else if function.is::<Avg>() && return_type == DataType::Float64 {
        Kind::Average
    } else if function.is::<Min>() {
        Kind::Extreme(RunningCombine::Min)
    } else if function.is::<Max>() {
        Kind::Extreme(RunningCombine::Max)
    } else {
        return refused();
    };
    wanted.push(Arc::clone(argument));
    Ok(kind)
}

/// A function that is no aggregate; its argument is added to `wanted`.
fn standard_kind(
    expr: &WindowUDFExpr,
    frame: &WindowFrame,
    wanted: &mut Vec<Arc<dyn PhysicalExpr>>,
) -> Result<(Kind, Frame), Reason> {
    let function = expr.fun().as_ref();
    let whole = Frame {
        start: Bound::Unbounded,
        end: Bound::Unbounded,
    };
    let constant = |number: usize| -> Result<Option<ScalarValue>, Reason> {
        match expr.args().get(number) {
            None => Ok(None),
            Some(argument) => match argument.downcast_ref::<Literal>() {
                Some(literal) => Ok(Some(literal.value().clone())),
                None => refuse(format!(
                    "{} with an argument that is not constant runs on the CPU",
                    function.name()
                )),
            },
        }
    };
    let integer = |number: usize| -> Result<Option<i64>, Reason> {
        Ok(match constant(number)? {
            Some(value) => match value.cast_to(&DataType::Int64)? {
                ScalarValue::Int64(value) => value,
                _ => None,
            },
            None => None,
        })
    };
    for (built_in, kind) in [
        (row_number_udwf(), Kind::RowNumber),
        (rank_udwf(), Kind::Rank),
        (dense_rank_udwf(), Kind::DenseRank),
        (percent_rank_udwf(), Kind::PercentRank),
        (cume_dist_udwf(), Kind::CumeDist),
    ] {
        if is(function, &built_in) {
            return Ok((kind, whole));
        }
    }
    if is(function, &ntile_udwf()) {
        return match integer(0)?.filter(|tiles| *tiles > 0) {
            Some(tiles) => Ok((Kind::Ntile(tiles), whole)),
            None => refuse("ntile of no tiles runs on the CPU"),
        };
    }
    let Some(argument) = expr.args().first() else {
        return refuse(format!(
            "the window function {} runs on the CPU",
            function.name()
        ));
    };
    let (lag, lead) = (is(function, &lag_udwf()), is(function, &lead_udwf()));
    let kind = if lag || lead {
        let rows = integer(1)?.unwrap_or(1);
        let before = match (lag, rows.checked_neg()) {
            (true, _) => rows,
            (false, Some(before)) => before,
            (false, None) => return refuse("lead by 2^63 rows runs on the CPU"),
        };
        let otherwise = constant(2)?.unwrap_or(ScalarValue::Null);
        (Kind::Lag(before, otherwise), whole)
    } else if is(function, &first_value_udwf()) {
        (Kind::FirstValue, Frame::of(frame)?)
    } else if is(function, &last_value_udwf()) {
        (Kind::LastValue, Frame::of(frame)?)
    } else if is(function, &nth_value_udwf()) {
        match integer(1)?.filter(|n| *n > 0) {
            Some(n) => (Kind::NthValue(n), Frame::of(frame)?),
            None => return refuse("nth_value from the end runs on the CPU"),
        }
    } else {
        return refuse(format!(
            "the window function {} runs on the CPU",
            function.name()
        ));
    };
    wanted.push(Arc::clone(argument));
    Ok(kind)
}
