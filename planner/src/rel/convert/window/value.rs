//! What a function of a window comes to for each row, of the columns of the window and of rows that are looked up.

use arrow::datatypes::{DECIMAL128_MAX_PRECISION, DataType};
use datafusion::scalar::ScalarValue;
use warpline_gpu::expr::{BinaryOp, Expr};
use warpline_gpu::graph::WindowColumn;
use warpline_gpu::primitives::RunningCombine;

use super::frame::{Bound, Frame};
use super::function::{Function, Kind, runs_as};
use super::number::{cast_unless, greatest, int, less, minus, only_if, plus, quotient, tile};
use super::rows::{Looked, Ordered, Value};
use crate::reason::{Reason, refuse};
use crate::rel::convert::aggregate::{decimal_average, sums_in_128_bits};
use crate::rel::convert::moments::root;
use crate::rel::expr::{all_of, as_column, binary, case, cast, is_not_null};

impl Function {
    /// What it comes to for each row.
    pub(super) fn value(&self, rows: &mut Ordered) -> Result<Value, Reason> {
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
                if self.ignores_nulls && rows.argument(self.argument).1.nullable {
                    return self.known_before(*before, otherwise, rows);
                }
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
                let (column, argument) = rows.argument(self.argument);
                if self.ignores_nulls && argument.nullable {
                    return self.known_in_frame(rows);
                }
                let (first, behind) = (self.frame.first(rows)?, self.frame.behind(rows)?);
                let row = match self.kind {
                    Kind::LastValue => minus(behind.clone(), int(1)),
                    Kind::NthValue(n) if n < 0 => plus(behind.clone(), int(n)),
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
                let rows_of_frame = minus(self.frame.behind(rows)?, self.frame.first(rows)?);
                greatest(rows_of_frame, int(0))
            }
            Kind::Count
            | Kind::Sum
            | Kind::Average
            | Kind::DecimalAverage
            | Kind::Extreme(_)
            | Kind::Variance { .. } => return self.running(rows),
        };
        let computed = match computed.data_type == data_type {
            true => computed,
            false => cast(computed, data_type),
        };
        Ok(Box::new(move |_| Ok(computed)))
    }

    /// The value so many rows before this one, of those that have one.
    fn known_before(
        &self,
        before: i64,
        otherwise: &ScalarValue,
        rows: &mut Ordered,
    ) -> Result<Value, Reason> {
        let (column, argument) = rows.argument(self.argument);
        let upto = rows.number(WindowColumn::RunningCount(column));
        let number = match before > 0 {
            true => {
                let own = case(is_not_null(argument.clone()), int(1), int(0));
                minus(minus(upto, own), int(before - 1))
            }
            false => minus(upto, int(before)),
        };
        let found = rows.look_up_known(column, Box::new(move |_| Ok(number)));
        let otherwise = otherwise.cast_to(&argument.data_type)?;
        Ok(Box::new(move |looked| {
            let value = looked.column(found);
            Ok(match otherwise.is_null() {
                true => value,
                false => {
                    let known = is_not_null(value.clone());
                    case(known, value, Expr::literal(otherwise))
                }
            })
        }))
    }

    /// The first, last or nth value of a frame that is not NULL.
    fn known_in_frame(&self, rows: &mut Ordered) -> Result<Value, Reason> {
        let (column, _) = rows.argument(self.argument);
        let ends = Ends::of(&self.frame, rows)?;
        let counted = ends.over(WindowColumn::RunningCount(column), DataType::Int64, rows);
        let kind = self.kind.clone();
        let number = move |looked: &Looked| {
            let (upto, before) = counted.ends(looked);
            let before = match before {
                Some(before) => case(ends.inner, before, int(0)),
                None => int(0),
            };
            let number = match kind {
                Kind::LastValue => upto.clone(),
                Kind::NthValue(n) if n < 0 => plus(upto.clone(), int(n + 1)),
                Kind::NthValue(n) => plus(before.clone(), int(n)),
                _ => plus(before.clone(), int(1)),
            };
            let bounds = [
                ends.some,
                less(before, number.clone()),
                binary(BinaryOp::LtEq, number.clone(), upto, DataType::Boolean),
            ];
            match all_of(bounds) {
                Some(inside) => only_if(inside, number),
                None => Ok(number),
            }
        };
        let found = rows.look_up_known(column, Box::new(number));
        Ok(Box::new(move |looked| Ok(looked.column(found))))
    }

    /// Aggregates over a frame, of values that run from the first row of the partition.
    fn running(&self, rows: &mut Ordered) -> Result<Value, Reason> {
        let (column, argument) = rows.argument(self.argument);
        let ends = Ends::of(&self.frame, rows)?;
        let count = WindowColumn::RunningCount(column);
        let counted = argument
            .nullable
            .then(|| ends.over(count, DataType::Int64, rows));
        let value_type = match (&self.kind, &argument.data_type) {
            (Kind::Average, _) => DataType::Float64,
            (Kind::DecimalAverage, of @ DataType::Decimal128(_, scale)) if sums_in_128_bits(of) => {
                DataType::Decimal128(DECIMAL128_MAX_PRECISION, *scale)
            }
            (Kind::DecimalAverage, other) => {
                return refuse(format!("avg of {other} over a frame runs on the CPU"));
            }
            (Kind::Extreme(_), _) => {
                runs_as(&self.data_type).unwrap_or_else(|| self.data_type.clone())
            }
            (Kind::Variance { .. }, _) => DataType::Float64,
            _ => self.data_type.clone(),
        };
        let value = match self.kind {
            Kind::Count => None,
            Kind::Extreme(combine) if self.frame.start != Bound::Unbounded => {
                let edges = self.frame.edges(rows)?;
                let of = WindowColumn::Extreme(combine, column, edges);
                Some(Over::own(rows.added(of, value_type.clone())))
            }
            Kind::Variance { .. } => {
                let of = WindowColumn::Squares(column, self.frame.edges(rows)?);
                Some(Over::own(rows.added(of, value_type.clone())))
            }
            Kind::Extreme(combine) => {
                let of = WindowColumn::Running(combine, column);
                Some(ends.over(of, value_type.clone(), rows))
            }
            _ => {
                let of = WindowColumn::Running(RunningCombine::Sum, column);
                Some(ends.over(of, value_type.clone(), rows))
            }
        };
        let (kind, data_type) = (self.kind.clone(), self.data_type.clone());
        Ok(Box::new(move |looked| {
            let count = match counted {
                None => greatest(minus(ends.behind, ends.first), int(0)),
                Some(over) => {
                    let count = over.difference(looked, &DataType::Int64, &ends.inner);
                    case(ends.some, count, int(0))
                }
            };
            let Some(value) = value else {
                return Ok(cast_unless(count, &data_type));
            };
            let value = value.difference(looked, &value_type, &ends.inner);
            let value = match kind {
                Kind::Average => quotient(value, cast(count.clone(), DataType::Float64)),
                Kind::DecimalAverage => {
                    // Not where there is nothing to divide by.
                    decimal_average(value, greatest(count.clone(), int(1)), data_type)
                }
                Kind::Variance { sample, root } => {
                    return variance(value, count, sample, root);
                }
                _ => cast_unless(value, &data_type),
            };
            only_if(less(int(0), count), value)
        }))
    }
}

/// Where a frame begins and ends.
struct Ends {
    /// Its first row.
    first: Expr,
    /// The row behind its last.
    behind: Expr,
    /// It has rows.
    some: Expr,
    /// It has, and so has the partition before it.
    inner: Expr,
    /// Its last row, and the row before it, if there are such.
    last: Expr,
    before: Expr,
    from_start: bool,
    own_row: bool,
}

impl Ends {
    fn of(frame: &Frame, rows: &mut Ordered) -> Result<Self, Reason> {
        let (first, behind) = (frame.first(rows)?, frame.behind(rows)?);
        let some = less(first.clone(), behind.clone());
        let start = rows.number(WindowColumn::PartitionStart);
        let inner = less(start, first.clone());
        let inner = all_of([some.clone(), inner]).unwrap_or_else(|| some.clone());
        Ok(Self {
            last: only_if(some.clone(), minus(behind.clone(), int(1)))?,
            before: only_if(inner.clone(), minus(first.clone(), int(1)))?,
            from_start: frame.start == Bound::Unbounded,
            own_row: frame.end == Bound::Rows(0),
            first,
            behind,
            some,
            inner,
        })
    }

    /// What runs up to the last row of the frame, and up to the row before it.
    fn over(&self, added: WindowColumn, data_type: DataType, rows: &mut Ordered) -> Over {
        let own = rows.added(added, data_type);
        let at = as_column(&own).unwrap_or(usize::MAX);
        Over {
            upto: match self.own_row {
                true => Place::Own(own),
                false => Place::Looked(rows.look_up(self.last.clone(), at)),
            },
            before: (!self.from_start).then(|| rows.look_up(self.before.clone(), at)),
        }
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
    /// A value that is the frame's already.
    fn own(value: Expr) -> Self {
        Self {
            upto: Place::Own(value),
            before: None,
        }
    }

    /// Both, the second if the frame does not begin with the partition.
    fn ends(&self, looked: &Looked) -> (Expr, Option<Expr>) {
        let upto = match &self.upto {
            Place::Own(own) => own.clone(),
            Place::Looked(found) => looked.column(*found),
        };
        (upto, self.before.map(|found| looked.column(found)))
    }

    /// `inner`: there are rows of the partition before the frame.
    fn difference(self, looked: &Looked, data_type: &DataType, inner: &Expr) -> Expr {
        let (upto, before) = self.ends(looked);
        match before {
            None => upto,
            Some(before) => {
                let without = binary(BinaryOp::Subtract, upto.clone(), before, data_type.clone());
                case(inner.clone(), without, upto)
            }
        }
    }
}

/// A variance of so many values with this sum of squared differences from their mean, or its root.
fn variance(squares: Expr, count: Expr, sample: bool, of_root: bool) -> Result<Expr, Reason> {
    let less_one = i64::from(sample);
    let divisor = minus(count.clone(), int(less_one));
    let value = quotient(squares, cast(divisor, DataType::Float64));
    let value = if of_root { root(value) } else { value };
    only_if(less(int(less_one), count), value)
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
