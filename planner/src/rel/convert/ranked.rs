//! Aggregates that are certain rows of a group in an order: medians, percentiles, first, last and nth values. Those that are all of them:
//! `array_agg` and `string_agg`. And DISTINCT arguments of aggregates that keep no sets of their own.
//!
//! Rows are sorted by the keys of the grouping, then by what the call orders by ([`RelKind::Window`](crate::rel::RelKind)),
//! so that each knows its place among the rows of its group. The call then picks the one or two rows whose places it names, and
//! everything else is computed of the same rows beside it. Rows that do not count (NULL, or left out by a filter) are
//! partitions of their own: places and numbers of rows come without them. Lists are references to the rows of such a partition until the
//! end of the fragment ([`warpline_gpu::graph::ListColumn`]).

use std::cell::Cell;
use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::functions_aggregate::approx_median::ApproxMedian;
use datafusion::functions_aggregate::approx_percentile_cont::ApproxPercentileCont;
use datafusion::functions_aggregate::array_agg::ArrayAgg;
use datafusion::functions_aggregate::first_last::{FirstValue, LastValue};
use datafusion::functions_aggregate::median::Median;
use datafusion::functions_aggregate::nth_value::NthValueAgg;
use datafusion::functions_aggregate::percentile_cont::PercentileCont;
use datafusion::functions_aggregate::string_agg::StringAgg;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;
use datafusion::physical_expr::expressions::Literal;
use datafusion::scalar::ScalarValue;
use warpline_gpu::expr::{BinaryOp, Expr, Node};
use warpline_gpu::graph::{ListColumn, SortKey, Window, WindowColumn, list_type};
use warpline_gpu::pipeline::{AggregateCall, AggregateFunction};

use super::aggregate::{self, Call};
use super::grouping::Grouping;
use crate::ordered_set;
use crate::reason::{Reason, refuse};
use crate::rel::expr::{all_of, as_column, binary, case, cast, is_not_null, is_true, same};
use crate::rel::{Rel, RelRef};
use crate::translate::{Scope, check_order, is_decimal, translate};

const FLOAT: DataType = DataType::Float64;

/// A call of such an aggregate.
#[derive(Debug, Clone)]
pub(super) struct RankedCall {
    /// Of whose values some are picked.
    value: Expr,
    /// What the value is cast to once it is picked, in whose order it is as well.
    data_type: DataType,
    /// What rows are ordered by, major key first.
    order: Vec<OrderKey>,
    /// Rows count for which this is true.
    counts: Option<Expr>,
    /// Each value counts once.
    distinct: bool,
    pick: Pick,
    name: String,
}

/// A key of an order.
#[derive(Debug, Clone)]
struct OrderKey {
    value: Expr,
    descending: bool,
    nulls_first: bool,
}

impl OrderKey {
    fn ascending(value: Expr) -> Self {
        Self {
            value,
            descending: false,
            nulls_first: false,
        }
    }
}

/// Which rows.
#[derive(Debug, Clone, PartialEq)]
enum Pick {
    /// The middle one, or half the sum of the two in the middle.
    Median,
    /// Where this share of the rows is before, between the two nearest rows.
    Percentile(f64),
    /// The first one up to which there is this share of the rows, itself among them.
    Discrete(f64),
    /// So many rows behind the first.
    FromStart(i64),
    /// So many rows before the last.
    FromEnd(i64),
    /// All of them, in a list with this number; as one string where there is something to stand between the values.
    All {
        list: usize,
        delimiter: Option<String>,
    },
}

/// Is it one that makes lists of rows, or strings of them?
pub(super) fn makes_list(call: &AggregateFunctionExpr) -> bool {
    let function = call.fun().inner();
    function.is::<ArrayAgg>() || function.is::<StringAgg>()
}

/// The call, if it is one.
pub(super) fn call(
    call: &AggregateFunctionExpr,
    filter: Option<&Arc<dyn PhysicalExpr>>,
    scope: &mut Scope<'_>,
    lists: &Cell<usize>,
) -> Result<Option<RankedCall>, Reason> {
    let Some(pick) = pick(call, lists)? else {
        return Ok(None);
    };
    let name = call.fun().name();
    let arguments = call.expressions();
    let Some(argument) = arguments.first() else {
        return refuse(format!("{name} without an argument runs on the CPU"));
    };
    let value = translate(argument, scope)?;
    let data_type = value.data_type.clone();
    let by_value = matches!(pick, Pick::Median | Pick::Percentile(_));
    let lists_all = matches!(pick, Pick::All { .. });
    if by_value {
        check_middle(&pick, &data_type, name)?;
    }
    let value = match by_value {
        true => without_cast(value),
        false => value,
    };
    let is_discrete = matches!(pick, Pick::Discrete(_));
    let unordered = is_discrete && call.order_bys().is_empty();
    let order: Vec<OrderKey> = match by_value || unordered {
        true => vec![OrderKey::ascending(value.clone())],
        false => call
            .order_bys()
            .iter()
            .map(|key| {
                // A list that is made backwards is turned round at its end.
                let turned = lists_all && call.is_reversed();
                let value = translate(&key.expr, scope)?;
                check_order(&value)?;
                Ok(OrderKey {
                    value,
                    descending: key.options.descending != turned,
                    nulls_first: key.options.nulls_first != turned,
                })
            })
            .collect::<Result<_, Reason>>()?,
    };
    if order.is_empty() && !lists_all {
        return refuse(format!(
            "{name} without ORDER BY runs on the CPU: which row comes first is not defined"
        ));
    }
    let approximate =
        call.fun().inner().is::<ApproxMedian>() || call.fun().inner().is::<ApproxPercentileCont>();
    if is_discrete {
        check_order(&value)?;
    }
    if call.is_distinct() && (!by_value && !lists_all || approximate) {
        return refuse(format!("{name}(DISTINCT …) runs on the CPU"));
    }
    let filter = filter.map(|filter| translate(filter, scope)).transpose()?;
    // All are evaluated for every row, those that a filter leaves out among them.
    let mut evaluated = order.iter().map(|key| &key.value).chain([&value]);
    let faults = evaluated.any(|value| value.may_fault());
    drop(evaluated);
    if filter.is_some() && faults {
        return refuse(format!(
            "{name} of an expression that can fail, with a filter, runs on the CPU"
        ));
    }
    let joins_text = matches!(&pick, Pick::All { delimiter, .. } if delimiter.is_some());
    let skips_nulls = by_value || is_discrete || joins_text || call.ignore_nulls();
    let known = (skips_nulls && value.nullable).then(|| is_not_null(value.clone()));
    let filter = filter.filter(|filter| !is_true(filter));
    Ok(Some(RankedCall {
        data_type,
        order,
        counts: all_of(filter.into_iter().chain(known)),
        distinct: call.is_distinct(),
        pick,
        name: call.human_display().unwrap_or(name).to_string(),
        value,
    }))
}

/// The rows that a function picks, if it is one of these.
fn pick(call: &AggregateFunctionExpr, lists: &Cell<usize>) -> Result<Option<Pick>, Reason> {
    let function = call.fun().inner();
    let name = call.fun().name();
    let arguments = call.expressions();
    let constant = |i: usize| -> Option<ScalarValue> {
        let literal = arguments.get(i)?.downcast_ref::<Literal>()?;
        Some(literal.value().clone())
    };
    Ok(Some(if function.is::<Median>() {
        Pick::Median
    } else if function.is::<ApproxMedian>() {
        Pick::Percentile(0.5)
    } else if function.is::<PercentileCont>() || function.is::<ApproxPercentileCont>() {
        let Some(ScalarValue::Float64(Some(share))) = constant(1) else {
            return refuse(format!(
                "{name} of a share that is not constant runs on the CPU"
            ));
        };
        if !(0.0..=1.0).contains(&share) {
            return refuse(format!("{name} of {share} runs on the CPU"));
        }
        // The device needs no centroids, but DataFusion refuses to have none.
        if function.is::<ApproxPercentileCont>()
            && arguments.len() > 2
            && !constant(2).is_some_and(|centroids| is_positive(&centroids))
        {
            return refuse(format!(
                "{name} with a number of centroids that is no positive constant runs on the CPU"
            ));
        }
        let descending = call.order_bys().first();
        Pick::Percentile(match descending.is_some_and(|key| key.options.descending) {
            true => 1.0 - share,
            false => share,
        })
    } else if ordered_set::is_percentile(call.fun()) {
        match constant(1) {
            Some(ScalarValue::Float64(Some(share))) if (0.0..=1.0).contains(&share) => {
                Pick::Discrete(share)
            }
            _ => return refuse(format!("{name} of such a share runs on the CPU")),
        }
    } else if function.is::<FirstValue>() {
        Pick::FromStart(0)
    } else if function.is::<LastValue>() {
        Pick::FromEnd(0)
    } else if function.is::<NthValueAgg>() {
        match constant(1) {
            Some(ScalarValue::Int64(Some(n))) if n != 0 && n != i64::MIN => {
                match (n > 0) != call.is_reversed() {
                    true => Pick::FromStart(n.abs() - 1),
                    false => Pick::FromEnd(n.abs() - 1),
                }
            }
            _ => return refuse(format!("{name} of such a number runs on the CPU")),
        }
    } else if function.is::<ArrayAgg>() {
        Pick::All {
            list: new_list(lists),
            delimiter: None,
        }
    } else if function.is::<StringAgg>() {
        let delimiter = constant(1).and_then(|text| Some(text.try_as_str()??.to_string()));
        let Some(delimiter) = delimiter else {
            return refuse(format!(
                "{name} with a delimiter that is no constant string runs on the CPU"
            ));
        };
        Pick::All {
            list: new_list(lists),
            delimiter: Some(delimiter),
        }
    } else {
        return Ok(None);
    }))
}

/// The number of one more list of the fragment.
fn new_list(lists: &Cell<usize>) -> usize {
    lists.replace(lists.get() + 1)
}

/// Is it a number above 0?
fn is_positive(value: &ScalarValue) -> bool {
    let number = value.cast_to(&DataType::Int64);
    value.data_type().is_integer() && matches!(number, Ok(ScalarValue::Int64(Some(1..))))
}

/// Can the device compute the middle of values of this type as DataFusion does?
fn check_middle(pick: &Pick, data_type: &DataType, name: &str) -> Result<(), Reason> {
    // Twice a value is still one of 128 bits.
    let fits = match data_type {
        DataType::Decimal32(precision, _) => *precision < 9,
        DataType::Decimal64(precision, _) => *precision < 18,
        DataType::Decimal128(precision, _) => *precision < 38,
        _ => false,
    };
    let supported = match data_type {
        DataType::Float32 | DataType::Float64 => true,
        other => *pick == Pick::Median && is_decimal(other) && fits,
    };
    match supported {
        true => Ok(()),
        false => refuse(format!("{name} of {data_type} runs on the CPU")),
    }
}

/// The integer in a cast to a float: both are in one order, and the integer takes less room.
fn without_cast(value: Expr) -> Expr {
    match value.node {
        Node::Cast { value: inner, .. }
            if value.data_type == FLOAT && inner.data_type.is_integer() =>
        {
            *inner
        }
        _ => value,
    }
}

/// The groups: keys, then what the calls compute, some of which are of these functions.
pub(super) fn grouped(grouping: &Grouping, calls: &[Call]) -> Result<RelRef, Reason> {
    let mut sorted = Sorted {
        rows: Arc::clone(&grouping.input),
        keys: grouping.keys.clone(),
        orders: Vec::new(),
    };
    let mut states: Vec<Call> = Vec::with_capacity(calls.len());
    let mut values: Vec<Value> = Vec::with_capacity(calls.len());
    // Rows that some call reads, where no other call reads more.
    let mut read: Option<Vec<Expr>> = Some(Vec::new());
    for call in calls {
        let first = states.len();
        match call {
            Call::Ranked(ranked) => {
                let picked = sorted.picked(ranked);
                if let Some(read) = &mut read {
                    read.extend(picked.read(&ranked.pick)?);
                }
                states.extend(picked.states(ranked)?.map(Call::Plain));
                values.push(Value::Ranked(ranked, first));
            }
            Call::Moment(moment) if moment.distinct => {
                read = None;
                let value = moment.arguments[0].clone();
                let mut moment = moment.clone();
                moment.counts = Some(sorted.distinct(&value, moment.counts.clone()));
                moment.distinct = false;
                states.push(Call::Moment(moment));
                values.push(Value::Other(first));
            }
            other => {
                read = None;
                states.push(other.clone());
                values.push(Value::Other(first));
            }
        }
    }
    let conjuncts = read.and_then(any_of).map_or(vec![], |read| vec![read]);
    let within = Grouping {
        input: Rel::filter(sorted.rows, conjuncts),
        ..grouping.clone()
    };
    let groups = aggregate::grouped(&within, &states)?;
    let first = grouping.keys.len();
    let keys = (0..first).map(|i| Ok((groups.column(i), grouping.names[i].clone())));
    let values = values.iter().map(|value| value.of(&groups, first));
    let columns = keys.chain(values).collect::<Result<Vec<_>, Reason>>()?;
    Ok(Rel::project(groups, columns))
}

/// Rows with their places in orders that calls asked for.
struct Sorted {
    rows: RelRef,
    /// What they are grouped by, over the first columns of the rows.
    keys: Vec<Expr>,
    orders: Vec<Order>,
}

/// An order of the rows, and where its window's columns begin among theirs.
struct Order {
    counts: Option<Expr>,
    by: Vec<OrderKey>,
    first: usize,
}

/// What a window adds to the rows.
const COLUMNS: [WindowColumn; 4] = [
    WindowColumn::Position,
    WindowColumn::PartitionStart,
    WindowColumn::PartitionEnd,
    WindowColumn::PeerStart,
];

impl Sorted {
    /// Where the columns of the window over this order begin.
    fn order(&mut self, counts: Option<&Expr>, by: &[OrderKey]) -> usize {
        let alike = |order: &&Order| {
            let equal = match (&order.counts, counts) {
                (Some(a), Some(b)) => same(a, b),
                (None, None) => true,
                _ => false,
            };
            equal
                && order.by.len() == by.len()
                && order.by.iter().zip(by).all(|(a, b)| {
                    same(&a.value, &b.value)
                        && (a.descending, a.nulls_first) == (b.descending, b.nulls_first)
                })
        };
        if let Some(known) = self.orders.iter().find(alike) {
            return known.first;
        }
        self.new_order(counts, by, None)
    }

    /// As [`Self::order`], anew; lists with a number are made of a value of its rows.
    fn new_order(
        &mut self,
        counts: Option<&Expr>,
        by: &[OrderKey],
        list: Option<(usize, &Expr)>,
    ) -> usize {
        let width = self.rows.columns.len();
        let mut columns: Vec<(Expr, String)> = (0..width)
            .map(|i| (self.rows.column(i), self.rows.columns[i].name.clone()))
            .collect();
        let mut place = |value: &Expr, name: &str| {
            as_column(value).unwrap_or_else(|| {
                columns.push((value.clone(), name.to_string()));
                columns.len() - 1
            })
        };
        let partition = self.keys.iter().chain(counts).cloned();
        let partition: Vec<OrderKey> = partition.map(OrderKey::ascending).collect();
        let mut sort: Vec<SortKey> = Vec::new();
        let mut partitions = 0;
        for (number, key) in partition.iter().chain(by).enumerate() {
            let column = place(&key.value, "ordered by");
            // What was ordered by before tells no more rows apart.
            if sort.iter().any(|known| known.column == column) {
                continue;
            }
            sort.push(SortKey {
                column,
                descending: key.descending,
                nulls_first: key.nulls_first,
            });
            partitions += usize::from(number < partition.len());
        }
        let list = list.map(|(id, value)| ListColumn {
            id,
            column: place(value, "listed"),
        });
        let input = match columns.len() == width {
            true => Arc::clone(&self.rows),
            false => Rel::project(Arc::clone(&self.rows), columns),
        };
        let first = input.columns.len();
        let window = Window {
            partition: partitions,
            columns: COLUMNS.to_vec(),
            first: None,
            lists: list.into_iter().collect(),
        };
        let added = COLUMNS.map(|column| (format!("{column:?}"), DataType::Int64));
        self.rows = Rel::window(input, sort, window, added.to_vec());
        self.orders.push(Order {
            counts: counts.cloned(),
            by: by.to_vec(),
            first,
        });
        first
    }

    /// The column that a window over an order added.
    fn added(&self, first: usize, column: WindowColumn) -> Expr {
        let at = COLUMNS.iter().position(|of| *of == column).unwrap_or(0);
        self.rows.column(first + at)
    }

    /// The condition under which rows count once for each value.
    fn distinct(&mut self, value: &Expr, counts: Option<Expr>) -> Expr {
        let first = self.order(counts.as_ref(), &[OrderKey::ascending(value.clone())]);
        let new = binary(
            BinaryOp::Eq,
            self.added(first, WindowColumn::Position),
            self.added(first, WindowColumn::PeerStart),
            DataType::Boolean,
        );
        all_of(counts.into_iter().chain([new.clone()])).unwrap_or(new)
    }

    /// Where the rows of a call are.
    fn picked(&mut self, call: &RankedCall) -> Picked {
        let counts = match call.distinct {
            true => Some(self.distinct(&call.value, call.counts.clone())),
            false => call.counts.clone(),
        };
        let first = match &call.pick {
            Pick::All { list, .. } => {
                self.new_order(counts.as_ref(), &call.order, Some((*list, &call.value)))
            }
            _ => self.order(counts.as_ref(), &call.order),
        };
        let start = self.added(first, WindowColumn::PartitionStart);
        let end = self.added(first, WindowColumn::PartitionEnd);
        let minus = |a: Expr, b: Expr| binary(BinaryOp::Subtract, a, b, DataType::Int64);
        Picked {
            place: minus(self.added(first, WindowColumn::Position), start.clone()),
            rows: minus(end.clone(), start.clone()),
            start,
            end,
            counts,
        }
    }
}

/// Where the rows of a call are.
struct Picked {
    /// The number of a row among those of its group that count.
    place: Expr,
    /// How many of these there are.
    rows: Expr,
    /// The first of them, and the row behind the last.
    start: Expr,
    end: Expr,
    counts: Option<Expr>,
}

impl Picked {
    /// The places of the rows that are picked: one, or the lower and the upper one.
    fn places(&self, pick: &Pick) -> Result<Vec<Expr>, Reason> {
        let less = |by: i64| {
            let by = Expr::literal(ScalarValue::Int64(Some(by)));
            binary(BinaryOp::Subtract, self.rows.clone(), by, DataType::Int64)
        };
        Ok(match *pick {
            Pick::Median => vec![half(less(1)), half(self.rows.clone())],
            Pick::Percentile(share) => {
                let (lower, _, between) = percentile(&self.rows, share);
                vec![lower.clone(), upper(lower, between)]
            }
            Pick::Discrete(share) => vec![discrete(&self.rows, share)],
            Pick::FromStart(n) => vec![Expr::literal(ScalarValue::Int64(Some(n)))],
            Pick::FromEnd(n) => vec![less(n.saturating_add(1))],
            // The first one tells of them.
            Pick::All { .. } => vec![Expr::literal(ScalarValue::Int64(Some(0)))],
        })
    }

    /// The conditions of the rows that the call reads, and of one row at least of each group.
    fn read(&self, pick: &Pick) -> Result<Vec<Expr>, Reason> {
        let zero = Expr::literal(ScalarValue::Int64(Some(0)));
        let places = self.places(pick)?.into_iter().chain([zero]);
        Ok(places.map(|place| self.is(place)).collect())
    }

    /// The first row and that behind the last one in one number.
    fn reference(&self) -> Expr {
        let half = Expr::literal(ScalarValue::Int64(Some(32)));
        let first = binary(
            BinaryOp::ShiftLeft,
            self.start.clone(),
            half,
            DataType::Int64,
        );
        binary(BinaryOp::BitOr, first, self.end.clone(), DataType::Int64)
    }

    fn is(&self, place: Expr) -> Expr {
        let own = self.place.clone();
        binary(BinaryOp::Eq, own, place, DataType::Boolean)
    }

    /// What is computed of rows: the picked values, then, where the value lies between two, the number of rows.
    fn states(&self, call: &RankedCall) -> Result<impl Iterator<Item = AggregateCall>, Reason> {
        let one = |argument: Expr, filter: Option<Expr>, what: &str| AggregateCall {
            return_type: argument.data_type.clone(),
            function: AggregateFunction::Any,
            argument: Some(argument),
            filter,
            distinct: false,
            name: format!("{what} of {}", call.name),
        };
        if let Pick::All { list, delimiter } = &call.pick {
            let of = list_type(*list, call.data_type.clone(), delimiter.as_deref());
            let argument = cast(self.reference(), of);
            return Ok(vec![one(argument, self.counts.clone(), "rows")].into_iter());
        }
        let mut states = Vec::with_capacity(3);
        for place in self.places(&call.pick)? {
            let filter = all_of(self.counts.iter().cloned().chain([self.is(place)]));
            states.push(one(call.value.clone(), filter, "row"));
        }
        if states.len() > 1 {
            states.push(one(self.rows.clone(), self.counts.clone(), "rows"));
        }
        Ok(states.into_iter())
    }
}

/// Half a number of rows, rounded down.
fn half(rows: Expr) -> Expr {
    let one = Expr::literal(ScalarValue::Int64(Some(1)));
    binary(BinaryOp::ShiftRight, rows, one, DataType::Int64)
}

/// Of so many rows, the place below that of a percentile, where the percentile is, and whether it is between two places.
fn percentile(rows: &Expr, share: f64) -> (Expr, Expr, Expr) {
    let one = Expr::literal(ScalarValue::Int64(Some(1)));
    let last = binary(BinaryOp::Subtract, rows.clone(), one, DataType::Int64);
    let share = Expr::literal(ScalarValue::Float64(Some(share)));
    let index = binary(BinaryOp::Multiply, share, cast(last, FLOAT), FLOAT);
    let lower = cast(index.clone(), DataType::Int64);
    let whole = cast(lower.clone(), FLOAT);
    let between = binary(BinaryOp::Lt, whole, index.clone(), DataType::Boolean);
    (lower, index, between)
}

/// Of so many rows, which are some, the place of the first one up to which there is this share of them.
fn discrete(rows: &Expr, share: f64) -> Expr {
    let number = |n: i64| Expr::literal(ScalarValue::Int64(Some(n)));
    if share == 0.0 {
        return number(0);
    }
    let share = Expr::literal(ScalarValue::Float64(Some(share)));
    let product = binary(BinaryOp::Multiply, share, cast(rows.clone(), FLOAT), FLOAT);
    let lower = cast(product.clone(), DataType::Int64);
    let whole = cast(lower.clone(), FLOAT);
    let between = binary(BinaryOp::Lt, whole, product, DataType::Boolean);
    let last = binary(
        BinaryOp::Subtract,
        lower.clone(),
        number(1),
        DataType::Int64,
    );
    // One more than are whole, counted from zero.
    case(between, lower, last)
}

/// The place above `lower`, where there is something between.
fn upper(lower: Expr, between: Expr) -> Expr {
    let one = Expr::literal(ScalarValue::Int64(Some(1)));
    let next = binary(BinaryOp::Add, lower.clone(), one, DataType::Int64);
    case(between, next, lower)
}

/// The disjunction of conditions; `None` of none.
fn any_of(conditions: Vec<Expr>) -> Option<Expr> {
    let mut different: Vec<Expr> = Vec::with_capacity(conditions.len());
    for condition in conditions {
        if !different.iter().any(|known| same(known, &condition)) {
            different.push(condition);
        }
    }
    different
        .into_iter()
        .reduce(|left, right| binary(BinaryOp::Or, left, right, DataType::Boolean))
}

/// A column of the groups, by where its states begin.
enum Value<'a> {
    Other(usize),
    Ranked(&'a RankedCall, usize),
}

impl Value<'_> {
    fn of(&self, groups: &RelRef, first: usize) -> Result<(Expr, String), Reason> {
        let column = |at: usize| groups.column(first + at);
        Ok(match self {
            Self::Other(at) => (column(*at), groups.columns[first + at].name.clone()),
            Self::Ranked(call, at) => {
                let value = |i: usize| match call.data_type == call.value.data_type {
                    true => column(at + i),
                    false => cast(column(at + i), call.data_type.clone()),
                };
                let value = match &call.pick {
                    Pick::All { .. } => column(*at),
                    Pick::Discrete(_) | Pick::FromStart(_) | Pick::FromEnd(_) => value(0),
                    Pick::Median => median(value(0), value(1), &column(at + 2))?,
                    Pick::Percentile(share) => {
                        interpolated(value(0), value(1), &column(at + 2), *share)
                    }
                };
                (value, call.name.clone())
            }
        })
    }
}

/// The median of `rows` values of which these are the two in the middle.
fn median(low: Expr, high: Expr, rows: &Expr) -> Result<Expr, Reason> {
    let data_type = high.data_type.clone();
    let two = match &data_type {
        DataType::Float32 => ScalarValue::Float32(Some(2.0)),
        DataType::Float64 => ScalarValue::Float64(Some(2.0)),
        // Digits behind the point stay as many as they are: the quotient is cut there.
        DataType::Decimal32(precision, _) => ScalarValue::Decimal32(Some(2), *precision, 0),
        DataType::Decimal64(precision, _) => ScalarValue::Decimal64(Some(2), *precision, 0),
        DataType::Decimal128(precision, _) => ScalarValue::Decimal128(Some(2), *precision, 0),
        other => return refuse(format!("a median of {other} runs on the CPU")),
    };
    let sum = binary(BinaryOp::Add, low, high.clone(), wider(&data_type));
    let mean = binary(BinaryOp::Divide, sum, Expr::literal(two), wider(&data_type));
    let mean = match mean.data_type == data_type {
        true => mean,
        false => cast(mean, data_type),
    };
    let one = Expr::literal(ScalarValue::Int64(Some(1)));
    let odd = binary(BinaryOp::BitAnd, rows.clone(), one.clone(), DataType::Int64);
    let odd = binary(BinaryOp::Eq, odd, one, DataType::Boolean);
    Ok(case(odd, high, mean))
}

/// The type of the sum of two values of a type.
fn wider(data_type: &DataType) -> DataType {
    match data_type {
        DataType::Decimal32(precision, scale) => DataType::Decimal32(precision + 1, *scale),
        DataType::Decimal64(precision, scale) => DataType::Decimal64(precision + 1, *scale),
        DataType::Decimal128(precision, scale) => DataType::Decimal128(precision + 1, *scale),
        other => other.clone(),
    }
}

/// The percentile of `rows` values between the two nearest, as DataFusion weighs them.
fn interpolated(low: Expr, high: Expr, rows: &Expr, share: f64) -> Expr {
    /// Weights have six digits.
    const PRECISION: f64 = 1_000_000.0;
    let data_type = low.data_type.clone();
    let float = |op, a, b| binary(op, a, b, FLOAT);
    let constant = |value: f64| Expr::literal(ScalarValue::Float64(Some(value)));
    let (lower, index, between) = percentile(rows, share);
    let fraction = float(BinaryOp::Subtract, index, cast(lower, FLOAT));
    let scaled = float(BinaryOp::Multiply, fraction, constant(PRECISION));
    let scaled = cast(cast(scaled, DataType::Int64), FLOAT);
    let weight = float(BinaryOp::Divide, scaled, constant(PRECISION));
    let wide = |value: Expr| match value.data_type == FLOAT {
        true => value,
        false => cast(value, FLOAT),
    };
    let (low_f, high_f) = (wide(low.clone()), wide(high));
    let step = float(BinaryOp::Subtract, high_f, low_f.clone());
    let step = float(BinaryOp::Multiply, step, weight);
    let value = float(BinaryOp::Add, low_f, step);
    let value = match value.data_type == data_type {
        true => value,
        false => cast(value, data_type),
    };
    case(between, value, low)
}
