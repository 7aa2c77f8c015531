//! What is known of columns, and what expressions over them and dropped rows make of it.

use std::slice::SliceIndex;

use arrow::datatypes::{DataType, TimeUnit};
use warpline_gpu::column::ColumnStatistics;
use warpline_gpu::expr::{BinaryOp, Calendar, DatePart, Expr, LocalSpan, Node, Span};

use super::selectivity::number;
use crate::choose::zipf;
use crate::rel::expr::columns;

/// Estimates for one relation.
#[derive(Debug, Clone)]
pub struct Estimate {
    /// Rows.
    pub rows: f64,
    /// By column.
    pub columns: Vec<ColumnEstimate>,
}

/// Estimates for one column.
#[derive(Debug, Clone, Copy)]
pub struct ColumnEstimate {
    /// Distinct values that are not NULL.
    pub distinct: f64,
    /// Smallest and largest value: integers, unscaled decimals, days …
    pub range: Option<(f64, f64)>,
    /// Share of NULLs.
    pub nulls: f64,
    /// Mean, for sums and counts of groups.
    pub mean: Option<f64>,
    /// Zipf exponent of value frequencies; 0 for uniform.
    pub skew: f64,
    /// The rows that its values are of.
    pub origin: Option<Origin>,
}

/// Rows of a table before joins repeated them: columns of one origin have no more combinations of values than it has rows, as the
/// names and brands of a dimension in a fact table's rows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Origin {
    /// Which.
    pub number: usize,
    /// How many.
    pub rows: f64,
}

impl Origin {
    /// The same rows on the build side of a join: they meet themselves there as others.
    pub(super) fn beside(self, join: usize) -> Self {
        let number = self.number.rotate_left(21) ^ join;
        Self { number, ..self }
    }
}

impl ColumnEstimate {
    /// Bytes of a value on the device.
    pub fn width(&self) -> f64 {
        match self.range {
            None => 8.0,
            Some((low, high)) => {
                let span = high - low;
                if span < 256.0 {
                    1.0
                } else if span < 65536.0 {
                    2.0
                } else if span < 4.3e9 {
                    4.0
                } else {
                    8.0
                }
            }
        }
    }

    pub(super) fn unknown(rows: f64) -> Self {
        Self {
            distinct: rows.max(1.0),
            range: None,
            nulls: 0.0,
            mean: None,
            skew: 0.0,
            origin: None,
        }
    }
}

/// Columns of which those at `places` are NULL in a further share of the rows: those without a match.
pub(super) fn outer(
    mut columns: Vec<ColumnEstimate>,
    places: impl SliceIndex<[ColumnEstimate], Output = [ColumnEstimate]>,
    unmatched: f64,
) -> Vec<ColumnEstimate> {
    let unmatched = unmatched.clamp(0.0, 1.0);
    for column in columns.get_mut(places).unwrap_or_default() {
        column.nulls = unmatched + (1.0 - unmatched) * column.nulls;
    }
    columns
}

/// Estimates for a column of a resident table of `rows` rows.
pub(super) fn base(statistics: &ColumnStatistics, rows: f64) -> ColumnEstimate {
    let values = (rows - statistics.null_count as f64).max(0.0);
    let range = statistics
        .range
        .map(|(low, high)| (low as f64, high as f64));
    let span = range.map_or(f64::INFINITY, |(low, high)| high - low + 1.0);
    let distinct = match statistics.distinct {
        Some(distinct) => distinct as f64,
        None if statistics.unique => values,
        None => match statistics.distinct_estimate {
            // Within what the estimate may be wrong by, no value repeats.
            Some(estimate) if (estimate as f64) < 0.95 * values => estimate as f64,
            _ => values,
        }
        .min(span),
    };
    ColumnEstimate {
        distinct: distinct.max(1.0),
        range,
        nulls: statistics.null_count as f64 / rows.max(1.0),
        mean: None,
        skew: skew_of(statistics, distinct.max(1.0)),
        origin: None,
    }
}

/// Estimates for an expression over `input`.
pub(crate) fn of_expr(expr: &Expr, input: &Estimate) -> ColumnEstimate {
    let unknown = ColumnEstimate::unknown(input.rows);
    match &expr.node {
        Node::Column(i) => input.columns.get(*i).copied().unwrap_or(unknown),
        Node::Literal(_) => ColumnEstimate {
            distinct: 1.0,
            ..unknown
        },
        Node::Cast { value, .. } => ColumnEstimate {
            range: None,
            ..of_expr(value, input)
        },
        Node::DatePart { part, value } => {
            let of = of_expr(value, input);
            let days = of.range.map_or(f64::INFINITY, |(low, high)| high - low);
            let distinct = match part {
                DatePart::Year | DatePart::IsoYear => (days / 365.0).ceil() + 1.0,
                DatePart::Quarter => 4.0,
                DatePart::Month | DatePart::Hour => 24.0,
                DatePart::Day | DatePart::DayOfWeek | DatePart::IsoDayOfWeek => 31.0,
                DatePart::DayOfYear => 366.0,
                DatePart::Week => 53.0,
                DatePart::Minute | DatePart::Second => 60.0,
                DatePart::Millisecond
                | DatePart::Microsecond
                | DatePart::Nanosecond
                | DatePart::Epoch => of.distinct,
            };
            ColumnEstimate {
                distinct: distinct.min(of.distinct),
                range: None,
                nulls: of.nulls,
                mean: None,
                skew: 0.0,
                origin: of.origin,
            }
        }
        Node::Calendar { function, value } => {
            let of = of_expr(value, input);
            let ticks = of.range.map_or(f64::INFINITY, |(low, high)| high - low);
            let span = match function {
                Calendar::Shift { .. } => 1.0,
                Calendar::Bin { stride, .. } => *stride as f64,
                Calendar::Truncate(span) => days(*span) * ticks_a_day(&expr.data_type),
                Calendar::Local(_) | Calendar::Moment { .. } => 1.0,
                Calendar::LocalStart { span, .. } => {
                    let days = match span {
                        LocalSpan::Hour => 1.0 / 24.0,
                        LocalSpan::Day => 1.0,
                        LocalSpan::Calendar(span) => days(*span),
                    };
                    days * ticks_a_day(&expr.data_type)
                }
            };
            ColumnEstimate {
                distinct: ((ticks / span).ceil() + 1.0).min(of.distinct),
                range: None,
                nulls: of.nulls,
                mean: None,
                skew: 0.0,
                origin: of.origin,
            }
        }
        _ => {
            let parts: Vec<_> = columns(expr)
                .into_iter()
                .filter_map(|i| input.columns.get(i).copied())
                .collect();
            let most = combinations(&parts, input.rows).min(values_of(expr, input));
            // What is made of columns of the same rows tells these no further apart.
            let origins = parts.split_first();
            let origin = origins.and_then(|(first, others)| {
                let same = |other: &ColumnEstimate| other.origin == first.origin;
                first.origin.filter(|_| others.iter().all(same))
            });
            ColumnEstimate {
                distinct: most,
                origin,
                ..unknown
            }
        }
    }
}

/// Most values that an expression has, whatever its columns are.
fn values_of(expr: &Expr, input: &Estimate) -> f64 {
    match &expr.node {
        _ if expr.data_type == DataType::Boolean => 2.0,
        Node::Case {
            branches,
            otherwise,
        } => {
            let values = branches.iter().map(|(_, value)| value);
            values
                .chain(otherwise.as_deref())
                .map(|value| of_expr(value, input).distinct)
                .sum()
        }
        Node::Binary {
            op: BinaryOp::Modulo,
            right,
            ..
        } if expr.data_type.is_integer() => match &right.node {
            // Rests have the sign of what is divided, which is seldom both.
            Node::Literal(value) => number(value).map_or(f64::INFINITY, |of| of.abs().max(1.0)),
            _ => f64::INFINITY,
        },
        _ => f64::INFINITY,
    }
}

/// Days of a span, about.
fn days(span: Span) -> f64 {
    match span {
        Span::Week => 7.0,
        Span::Month => 30.0,
        Span::Quarter => 91.0,
        Span::Year => 365.0,
    }
}

/// Ticks of a day of a timestamp.
pub(super) fn ticks_a_day(data_type: &DataType) -> f64 {
    let second = match data_type {
        DataType::Timestamp(TimeUnit::Second, _) => 1.0,
        DataType::Timestamp(TimeUnit::Millisecond, _) => 1e3,
        DataType::Timestamp(TimeUnit::Microsecond, _) => 1e6,
        _ => 1e9,
    };
    86_400.0 * second
}

/// Distinct combinations of values in `rows` rows.
pub(crate) fn combinations(columns: &[ColumnEstimate], rows: f64) -> f64 {
    let values = |c: &ColumnEstimate| c.distinct + if c.nulls > 0.0 { 1.0 } else { 0.0 };
    if let [one] = columns {
        // Those of the rows at hand already.
        return values(one).min(rows.max(1.0));
    }
    let mut product = 1.0;
    let mut origins: Vec<(Origin, f64)> = Vec::new();
    for column in columns {
        let Some(origin) = column.origin else {
            product *= values(column);
            continue;
        };
        let same = |(other, _): &&mut (Origin, f64)| other.number == origin.number;
        match origins.iter_mut().find(same) {
            Some((_, together)) => *together *= values(column),
            None => origins.push((origin, values(column))),
        }
    }
    // One more than rows: those that an outer join found no match for.
    for (origin, together) in origins {
        product *= together.min(origin.rows + 1.0);
    }
    drawn(product, rows)
}

/// Distinct values among `rows` drawn from `distinct` (Cardenas).
fn drawn(distinct: f64, rows: f64) -> f64 {
    if distinct <= 1.0 || rows <= 0.0 {
        return distinct.max(1.0);
    }
    if rows / distinct > 20.0 {
        return distinct;
    }
    // (1 - 1/d)^n = exp(n ln(1 - 1/d)); for large d that is -n/d.
    let hit = distinct * -((rows * (-1.0 / distinct).ln_1p()).exp_m1());
    hit.max(1.0).min(rows.max(1.0))
}

/// Reduce distinct counts after rows have been dropped from `before`.
pub(super) fn fewer(estimate: &mut Estimate, before: f64) {
    let rows = estimate.rows.max(1.0);
    for column in &mut estimate.columns {
        // As many as n of N rows show when each value fills N/d of them.
        let per_value = (before / column.distinct).max(1.0);
        let kept = (rows / before.max(1.0)).min(1.0);
        let shown = column.distinct * (1.0 - (1.0 - kept).powf(per_value));
        column.distinct = shown.min(rows).max(1.0);
    }
}

/// The Zipf exponent of a column of `distinct` values of which two rows are equal with this probability.
fn skew_of(statistics: &ColumnStatistics, distinct: f64) -> f64 {
    statistics
        .sketch
        .as_ref()
        .and_then(|sketch| sketch.collisions())
        .map_or(0.0, |collisions| zipf::exponent(distinct, collisions))
}
