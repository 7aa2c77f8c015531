//! Calls of an aggregation over rows some sides of which are groups.

use std::collections::BTreeSet;

use arrow::datatypes::DataType;
use datafusion::scalar::ScalarValue;
use warpline_gpu::expr::{BinaryOp, Expr, Node};
use warpline_gpu::pipeline::{AggregateCall, AggregateFunction};

use super::nulls::of_nulls;
use super::spine::{Branch, Side, Tree};
use crate::rel::JoinKind;
use crate::rel::expr::{all_of, binary, case, cast, columns, is_not_null, null, or_zero, renumber};
use crate::translate::is_string;

/// Sides, by their first columns, that a call does not allow to be grouped.
pub(super) type Culprits = BTreeSet<usize>;

/// What calls become, and the groups that they need.
pub(super) struct Calls<'a> {
    pub(super) branches: Vec<Branch<'a>>,
    pub(super) becomes: Vec<Becomes>,
    /// The spine's columns of which each group has one value.
    following: &'a BTreeSet<usize>,
    /// The next number that no column has.
    next: usize,
}

/// What a call becomes; expressions are over the spine's numbers.
pub(super) enum Becomes {
    /// A function of a value of each row.
    Value(AggregateFunction, Expr),
    /// The sum of a count of each row.
    Count(Expr),
    /// The quotient of the sums of two values of each row.
    Mean { sum: Expr, count: Expr },
    /// The call itself, which does not mind that rows are there less often.
    Same(AggregateCall),
}

impl<'a> Calls<'a> {
    /// No calls over rows that have `width` columns, those of `sides` among them.
    pub(super) fn new(width: usize, sides: &[&'a Side], following: &'a BTreeSet<usize>) -> Self {
        Self {
            branches: sides.iter().map(|side| Branch::new(side)).collect(),
            becomes: vec![],
            following,
            next: width,
        }
    }

    /// Takes a call in.
    ///
    /// # Errors
    /// The sides that it does not allow to be grouped.
    pub(super) fn add(&mut self, call: &AggregateCall) -> Result<(), Culprits> {
        let read: BTreeSet<usize> = call
            .argument
            .iter()
            .chain(&call.filter)
            .flat_map(columns)
            .collect();
        let grouped = |branch: &Branch<'_>| {
            let lacks = |column: &usize| branch.side.has(*column) && branch.key(*column).is_none();
            read.iter().any(lacks)
        };
        let of: Vec<usize> = (0..self.branches.len())
            .filter(|i| grouped(&self.branches[*i]))
            .collect();
        let becomes = match of[..] {
            [] => self.beside(call),
            [one] if read.iter().all(|c| self.branches[one].side.has(*c)) => self.within(one, call),
            _ => Err(self.starts(&of)),
        };
        self.becomes.push(becomes?);
        Ok(())
    }

    fn starts(&self, branches: &[usize]) -> Culprits {
        let start = |i: &usize| self.branches[*i].side.start;
        branches.iter().map(start).collect()
    }

    /// A call over what is left in the rows: each stands for as many as its groups have rows together.
    fn beside(&mut self, call: &AggregateCall) -> Result<Becomes, Culprits> {
        if !minds_repeats(call) {
            return Ok(Becomes::Same(call.clone()));
        }
        let all: Culprits = self.branches.iter().map(|b| b.side.start).collect();
        let weight = self.weight(None);
        let made = match call.function {
            AggregateFunction::Count => counted(call, weight).map(Becomes::Count),
            AggregateFunction::Sum => value(call)
                .and_then(|value| times(value, &weight))
                .map(|value| Becomes::Value(call.function, value)),
            AggregateFunction::Avg if call.return_type == DataType::Float64 => {
                let sum = value(call).and_then(|value| times(value, &weight));
                let count = counted(call, weight);
                sum.zip(count)
                    .map(|(sum, count)| Becomes::Mean { sum, count })
            }
            _ => None,
        };
        made.ok_or(all)
    }

    /// A call over columns of a branch: its groups have it, and each of them is there as often as the groups beside have rows.
    fn within(&mut self, branch: usize, call: &AggregateCall) -> Result<Becomes, Culprits> {
        use AggregateFunction::{Any, Avg, BitXor, Count, Sum};
        let side = self.branches[branch].side;
        let refused = self.starts(&[branch]);
        // Rows that no other asks for are computed as well.
        let faults = call
            .argument
            .iter()
            .chain(&call.filter)
            .any(Expr::may_fault);
        if faults || call.function == BitXor {
            return Err(refused);
        }
        let own = |e: &Option<Expr>| e.as_ref().map(|e| renumber(e, &|c| c - side.start));
        let call = AggregateCall {
            argument: own(&call.argument),
            filter: own(&call.filter),
            ..call.clone()
        };
        // All rows of a group have the same of the branch's.
        let mut asked = side.on.iter().flat_map(|(ours, _)| columns(ours));
        let one = asked.all(|column| self.following.contains(&column));
        let made = if !minds_repeats(&call) && !call.distinct {
            let value = self.partial(branch, &call);
            value.map(|value| Becomes::Value(call.function, value))
        } else if one && (call.distinct || call.function == Avg) {
            let value = self.partial(branch, &call);
            value.map(|value| Becomes::Value(Any, value))
        } else if call.distinct {
            None
        } else {
            let weight = self.weight(Some(branch));
            match call.function {
                Count => {
                    let count = self.partial(branch, &call);
                    count
                        .and_then(|count| times(count, &weight))
                        .map(Becomes::Count)
                }
                Sum => {
                    let sum = self.partial(branch, &call);
                    let sum = sum.and_then(|sum| times(sum, &weight));
                    sum.map(|sum| Becomes::Value(Sum, sum))
                }
                Avg if call.return_type == DataType::Float64 => {
                    let mut part = |function, return_type| {
                        let part = AggregateCall {
                            function,
                            return_type,
                            ..call.clone()
                        };
                        times(self.partial(branch, &part)?, &weight)
                    };
                    let sum = part(Sum, DataType::Float64);
                    let count = part(Count, DataType::Int64);
                    sum.zip(count)
                        .map(|(sum, count)| Becomes::Mean { sum, count })
                }
                _ => None,
            }
        };
        made.ok_or(refused)
    }

    /// What `call`, over a branch's own columns, is for the branch's rows that belong to a row; `None` where it is not known what
    /// it is for the NULLs of a row that has no match.
    fn partial(&mut self, branch: usize, call: &AggregateCall) -> Option<Expr> {
        let side = self.branches[branch].side;
        let part = self.asked(branch, call);
        if side.kind == JoinKind::Inner {
            return Some(part);
        }
        let unmatched = of_no_match(call, side)?;
        let is_zero = matches!(unmatched, ScalarValue::Int64(Some(0)));
        if call.function == AggregateFunction::Count && is_zero {
            return or_zero(part).ok();
        }
        if unmatched.is_null() {
            return Some(part);
        }
        if is_string(&part.data_type) {
            return None;
        }
        let matched = is_not_null(self.rows(branch));
        Some(case(matched, part, Expr::literal(unmatched)))
    }

    /// The product of the numbers of rows that the branches but `except` have for a row; `None` for one.
    fn weight(&mut self, except: Option<usize>) -> Option<Expr> {
        let others = (0..self.branches.len()).filter(|i| Some(*i) != except);
        let rows: Vec<Expr> = others
            .map(|i| {
                let rows = self.rows(i);
                if !rows.nullable {
                    return rows;
                }
                // NULLs stand beside a row without a match, once.
                let once = Expr::literal(ScalarValue::Int64(Some(1)));
                Expr {
                    nullable: false,
                    data_type: DataType::Int64,
                    node: Node::Coalesce(vec![rows, once]),
                }
            })
            .collect();
        rows.into_iter()
            .reduce(|a, b| binary(BinaryOp::Multiply, a, b, DataType::Int64))
    }

    /// The number of rows that a branch has for a row; NULL for a row without a match.
    fn rows(&mut self, branch: usize) -> Expr {
        let count = AggregateCall {
            function: AggregateFunction::Count,
            argument: None,
            filter: None,
            distinct: false,
            return_type: DataType::Int64,
            name: "count(*)".into(),
        };
        self.asked(branch, &count)
    }

    /// The column of a branch's groups that has `call`.
    fn asked(&mut self, branch: usize, call: &AggregateCall) -> Expr {
        let branch = &mut self.branches[branch];
        let number = branch.number_of(call).unwrap_or_else(|| {
            self.next += 1;
            branch.calls.push((self.next - 1, call.clone()));
            self.next - 1
        });
        let outer = branch.side.kind == JoinKind::Left;
        let nullable = outer || call.function != AggregateFunction::Count;
        Expr::column(number, call.return_type.clone(), nullable)
    }
}

impl Becomes {
    /// Its value for a group that is one row of `tree`; `None` for extremes of floats, which DataFusion seeks between the least and the
    /// greatest finite number: one infinite value has another minimum.
    pub(super) fn of_row(&self, tree: &Tree) -> Option<Expr> {
        use AggregateFunction::{Avg, Count, Max, Min, Sum};
        match self {
            Self::Value(Sum, value) => tree.over(value).map(from_zero),
            Self::Value(_, value) | Self::Count(value) => tree.over(value),
            Self::Mean { sum, count } => {
                let sum = tree.over(sum).map(from_zero)?;
                Some(quotient(sum, tree.over(count)?))
            }
            Self::Same(call) => match call.function {
                Count => tree.over(&counted(call, None)?),
                Sum | Avg => tree.over(&value(call)?).map(from_zero),
                Min | Max if call.return_type.is_floating() => None,
                _ => tree.over(&value(call)?),
            },
        }
    }

    /// The calls over groups of rows of `tree` that it is computed of.
    pub(super) fn of_group(&self, tree: &Tree, name: &str) -> Option<Vec<AggregateCall>> {
        let call = |function, value: &Expr| {
            Some(AggregateCall {
                function,
                argument: Some(tree.over(value)?),
                filter: None,
                distinct: false,
                return_type: value.data_type.clone(),
                name: name.into(),
            })
        };
        let sum = AggregateFunction::Sum;
        Some(match self {
            Self::Value(function, value) => vec![call(*function, value)?],
            Self::Count(count) => vec![call(sum, count)?],
            Self::Mean { sum: of, count } => vec![call(sum, of)?, call(sum, count)?],
            Self::Same(call) => {
                let over = |e: &Option<Expr>| match e {
                    Some(e) => tree.over(e).map(Some),
                    None => Some(None),
                };
                vec![AggregateCall {
                    argument: over(&call.argument)?,
                    filter: over(&call.filter)?,
                    ..call.clone()
                }]
            }
        })
    }

    /// Its value, given those of its calls.
    pub(super) fn of_parts(&self, parts: Vec<Expr>) -> Option<Expr> {
        let mut parts = parts.into_iter();
        let first = parts.next()?;
        match self {
            Self::Value(..) | Self::Same(_) => Some(first),
            // Without keys there may be no row.
            Self::Count(_) => or_zero(first).ok(),
            Self::Mean { .. } => Some(quotient(first, parts.next()?)),
        }
    }
}

/// Is the call another one where a row is there twice?
fn minds_repeats(call: &AggregateCall) -> bool {
    use AggregateFunction::{Avg, BitXor, Count, Sum};
    matches!(call.function, Count | Sum | Avg | BitXor) && !call.distinct
}

/// What the call adds for one row: its argument, in the type of the result, where its filter holds.
fn value(call: &AggregateCall) -> Option<Expr> {
    let mut value = call.argument.clone()?;
    if value.data_type != call.return_type {
        // The mean of one decimal has more digits than it.
        if call.function == AggregateFunction::Avg {
            return None;
        }
        value = cast(value, call.return_type.clone());
    }
    match &call.filter {
        None => Some(value),
        Some(filter) => {
            let nothing = null(&value.data_type).ok()?;
            Some(case(filter.clone(), value, nothing))
        }
    }
}

/// What the call counts for one row that stands for `weight` rows, or for one.
fn counted(call: &AggregateCall, weight: Option<Expr>) -> Option<Expr> {
    let weight = weight.unwrap_or_else(|| Expr::literal(ScalarValue::Int64(Some(1))));
    let argument = call.argument.clone().filter(|argument| argument.nullable);
    let known = argument.map(is_not_null);
    Some(match all_of(call.filter.clone().into_iter().chain(known)) {
        None => weight,
        Some(counts) => case(counts, weight, Expr::literal(ScalarValue::Int64(Some(0)))),
    })
}

/// `value` as often as `weight` says; `None` for types that have no such product.
fn times(value: Expr, weight: &Option<Expr>) -> Option<Expr> {
    let Some(weight) = weight.clone() else {
        return Some(value);
    };
    let data_type = value.data_type.clone();
    let weight = match &data_type {
        DataType::Int64 => weight,
        DataType::UInt64 | DataType::Float64 => cast(weight, data_type.clone()),
        DataType::Decimal128(..) => cast(weight, DataType::Decimal128(20, 0)),
        _ => return None,
    };
    Some(binary(BinaryOp::Multiply, value, weight, data_type))
}

/// A sum of one value: a float is added to zero, which has no sign.
fn from_zero(value: Expr) -> Expr {
    match ScalarValue::new_zero(&value.data_type) {
        Ok(zero) if value.data_type.is_floating() => {
            let data_type = value.data_type.clone();
            binary(BinaryOp::Add, value, Expr::literal(zero), data_type)
        }
        _ => value,
    }
}

/// A mean, NULL without values.
fn quotient(sum: Expr, count: Expr) -> Expr {
    binary(
        BinaryOp::Divide,
        sum,
        cast(count, DataType::Float64),
        DataType::Float64,
    )
}

/// What `call` is for the one row of NULLs beside a row without a match.
fn of_no_match(call: &AggregateCall, side: &Side) -> Option<ScalarValue> {
    let holds = match &call.filter {
        None => true,
        Some(filter) => of_nulls(filter, &side.rel)? == ScalarValue::from(true),
    };
    let nothing = ScalarValue::try_from(&call.return_type).ok()?;
    let value = match &call.argument {
        _ if !holds => nothing,
        None => ScalarValue::from(true),
        Some(argument) => of_nulls(argument, &side.rel)?,
    };
    match call.function {
        AggregateFunction::Count => Some(ScalarValue::from(i64::from(holds && !value.is_null()))),
        AggregateFunction::Avg if !value.is_null() && call.return_type != DataType::Float64 => None,
        // As in `Becomes::of_row`.
        AggregateFunction::Min | AggregateFunction::Max
            if !value.is_null() && call.return_type.is_floating() =>
        {
            None
        }
        _ => value.cast_to(&call.return_type).ok(),
    }
}
