//! Frames: which rows a function is over, as numbers of the window.

use arrow::datatypes::DataType;
use datafusion::logical_expr::{WindowFrame, WindowFrameBound, WindowFrameUnits};
use datafusion::scalar::ScalarValue;
use warpline_gpu::expr::Expr;
use warpline_gpu::graph::{Distance, Edge, FrameBound, WindowColumn};

use super::number::{greatest, int, least, plus};
use super::rows::Ordered;
use crate::reason::{Reason, refuse};
use crate::rel::expr::as_column;
use crate::translate::{is_utc, nanoseconds_of};

/// The rows of a frame: from the first to before the second.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Frame {
    pub(super) start: Bound,
    pub(super) end: Bound,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Bound {
    /// The first, or the last row of the partition.
    Unbounded,
    /// Rows after this one, before it where negative.
    Rows(i64),
    /// The first, or the last of this row's peers.
    Peers,
    /// So many groups of peers before this row's, else behind it.
    Groups(u64, bool),
    /// So far before this row by the key of the order, else behind it.
    Range(ScalarValue, bool),
}

impl Frame {
    /// The whole partition.
    pub(super) const WHOLE: Self = Self {
        start: Bound::Unbounded,
        end: Bound::Unbounded,
    };

    pub(super) fn of(frame: &WindowFrame) -> Result<Self, Reason> {
        let bound = |bound: &WindowFrameBound| -> Result<Bound, Reason> {
            let rows = |value: &ScalarValue| match value {
                ScalarValue::UInt64(Some(rows)) => i64::try_from(*rows).ok(),
                ScalarValue::Int64(rows) => *rows,
                _ => None,
            };
            let (value, preceding) = match bound {
                _ if bound.is_unbounded() => return Ok(Bound::Unbounded),
                WindowFrameBound::CurrentRow => {
                    return Ok(match frame.units {
                        WindowFrameUnits::Rows => Bound::Rows(0),
                        _ => Bound::Peers,
                    });
                }
                WindowFrameBound::Preceding(value) => (value, true),
                WindowFrameBound::Following(value) => (value, false),
            };
            let found = match frame.units {
                WindowFrameUnits::Rows => rows(value).map(|rows| match preceding {
                    true => Bound::Rows(-rows),
                    false => Bound::Rows(rows),
                }),
                WindowFrameUnits::Groups => rows(value)
                    .and_then(|groups| u64::try_from(groups).ok())
                    .map(|groups| Bound::Groups(groups, preceding)),
                WindowFrameUnits::Range => Some(Bound::Range(value.clone(), preceding)),
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
    pub(super) fn first(&self, rows: &mut Ordered) -> Result<Expr, Reason> {
        let start = rows.number(WindowColumn::PartitionStart);
        Ok(match &self.start {
            Bound::Unbounded => start,
            Bound::Rows(0) => rows.number(WindowColumn::Position),
            Bound::Rows(after) => {
                let row = plus(rows.number(WindowColumn::Position), int(*after));
                greatest(row, start)
            }
            bound => bound.number(false, rows)?,
        })
    }

    /// The number of the row behind the last.
    pub(super) fn behind(&self, rows: &mut Ordered) -> Result<Expr, Reason> {
        let end = rows.number(WindowColumn::PartitionEnd);
        Ok(match &self.end {
            Bound::Unbounded => end,
            Bound::Rows(0) => plus(rows.number(WindowColumn::Position), int(1)),
            Bound::Rows(after) => {
                let row = plus(
                    rows.number(WindowColumn::Position),
                    int(after.saturating_add(1)),
                );
                least(row, end)
            }
            bound => bound.number(true, rows)?,
        })
    }

    /// The same as edges of the window, which lie within the partition.
    pub(super) fn edges(&self, rows: &mut Ordered) -> Result<(Edge, Edge), Reason> {
        rows.number(WindowColumn::PartitionStart);
        rows.number(WindowColumn::PartitionEnd);
        let mut edge = |bound: &Bound, end: bool| -> Result<Edge, Reason> {
            let (number, plus) = match bound {
                Bound::Rows(after) => {
                    let after = after.saturating_add(i64::from(end));
                    let far = i64::from(u32::MAX);
                    (rows.number(WindowColumn::Position), after.clamp(-far, far))
                }
                bound => (bound.number(end, rows)?, 0),
            };
            let column = as_column(&number).and_then(|column| column.checked_sub(rows.width));
            match column {
                Some(column) => Ok(Edge { column, plus }),
                None => refuse("a frame that ends at no row of its window"),
            }
        };
        Ok((edge(&self.start, false)?, edge(&self.end, true)?))
    }
}

impl Bound {
    /// The number of the row where a frame begins, or of that behind its `end`; of all bounds but rows.
    fn number(&self, end: bool, rows: &mut Ordered) -> Result<Expr, Reason> {
        let column = match (self, end) {
            (Self::Unbounded, false) => WindowColumn::PartitionStart,
            (Self::Unbounded, true) => WindowColumn::PartitionEnd,
            (Self::Peers, false) => WindowColumn::PeerStart,
            (Self::Peers, true) => WindowColumn::PeerEnd,
            (Self::Rows(_), _) => WindowColumn::Position,
            (Self::Groups(groups, preceding), _) => {
                rows.number(WindowColumn::DenseRank);
                WindowColumn::Bound(FrameBound {
                    distance: Distance::Groups(*groups),
                    preceding: *preceding,
                    end,
                })
            }
            (Self::Range(by, preceding), _) => {
                let key = rows.order_key.map(|key| &rows.input.columns[key.column]);
                let distance = key.and_then(|key| distance(by, &key.data_type));
                let Some(distance) = distance else {
                    return refuse(format!("a window over a RANGE of {by} runs on the CPU"));
                };
                WindowColumn::Bound(FrameBound {
                    distance,
                    preceding: *preceding,
                    end,
                })
            }
        };
        rows.number(WindowColumn::PartitionStart);
        rows.number(WindowColumn::PartitionEnd);
        Ok(rows.number(column))
    }
}

/// How far that is between values of a key of this type; `None` where values cannot be moved by it with integers or floats alone.
fn distance(by: &ScalarValue, key: &DataType) -> Option<Distance> {
    const DAY_SECONDS: i128 = 86_400;
    const SECOND_NANOS: i128 = 1_000_000_000;
    let number = match (key, by) {
        (DataType::Float64, ScalarValue::Float64(Some(by))) if *by >= 0.0 => {
            return Some(Distance::Float(by.to_bits()));
        }
        (DataType::Float32, ScalarValue::Float32(Some(by))) if *by >= 0.0 => {
            return Some(Distance::Float(f64::from(*by).to_bits()));
        }
        (_, ScalarValue::IntervalMonthDayNano(Some(by))) if by.months == 0 => {
            let days = i128::from(by.days);
            let nanos = days * DAY_SECONDS * SECOND_NANOS + i128::from(by.nanoseconds);
            let per_unit = match key {
                DataType::Date32 => DAY_SECONDS * SECOND_NANOS,
                // Days of a zone are not all as long.
                DataType::Timestamp(_, Some(_)) if days != 0 && !is_utc(key) => return None,
                DataType::Timestamp(unit, _) => nanoseconds_of(*unit).into(),
                _ => return None,
            };
            (nanos % per_unit == 0).then_some(nanos / per_unit)?
        }
        (DataType::Decimal128(p, s), ScalarValue::Decimal128(Some(by), _, scale)) => {
            (*p < 38 && s == scale).then_some(*by)?
        }
        (key, by) if key.is_integer() && by.data_type() == *key => {
            match by.cast_to(&DataType::Decimal128(38, 0)).ok()? {
                ScalarValue::Decimal128(by, ..) => by?,
                _ => return None,
            }
        }
        _ => return None,
    };
    (number >= 0).then_some(Distance::Number(number))
}
