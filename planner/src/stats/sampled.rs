//! Conditions asked of the rows of a sample: the share of a table's rows for which they are true, together.
//!
//! All columns of a table have values of the same rows in their samples, so columns that depend on each other, skewed
//! ones and patterns in strings need no assumption. Values are taken as floats, which is exact enough to count rows.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, UInt32Array};
use datafusion::arrow::compute::{cast, take};
use datafusion::arrow::datatypes::{DataType, Float64Type, Int64Type, UInt32Type};
use datafusion::physical_expr::PhysicalExpr;
use warpline_gpu::column::Sample;
use warpline_gpu::expr::{BinaryOp, Expr, MathFunction, Node, evaluate_strings};
use warpline_gpu::graph::ResultColumn;

use super::Estimator;
use super::column::ticks_a_day;
use super::selectivity::{self, number};
use crate::rel::expr::{columns, renumber, substitute_all};
use crate::rel::{JoinKind, Rel, RelKind, RelRef};
use crate::translate::is_string;

/// Fewer rows of a sample tell too little of a share.
const ENOUGH: usize = 16;

/// A value a row; NaN for NULL. Booleans are 0 and 1.
type Values = Vec<f64>;

impl Estimator<'_> {
    /// The share of `rel` for which all of `conjuncts` are true: together, as samples of tables tell, those whose columns are of one
    /// table, and independently of each other those of several.
    pub(super) fn passing(&self, rel: &RelRef, conjuncts: &[Expr]) -> f64 {
        let mut unknown = Vec::new();
        let mut tables: Vec<(&Rel, Vec<(usize, Expr)>)> = Vec::new();
        for (number, conjunct) in conjuncts.iter().enumerate() {
            let of_scan = of_one_scan(rel, std::slice::from_ref(conjunct));
            let Some((scan, Some(conjunct))) = of_scan.map(|(scan, mut one)| (scan, one.pop()))
            else {
                unknown.push(number);
                continue;
            };
            match tables
                .iter_mut()
                .find(|(table, _)| std::ptr::eq(*table, scan))
            {
                Some((_, conjuncts)) => conjuncts.push((number, conjunct)),
                None => tables.push((scan, vec![(number, conjunct)])),
            }
        }
        let input = self.estimate(rel);
        let alone = |number: usize| selectivity::selectivity(&conjuncts[number], &input);
        let mut share = 1.0;
        for (scan, conjuncts) in tables {
            match self.sampled(scan) {
                Some(sampled) => share *= sampled.share(&conjuncts, &mut unknown, alone),
                None => unknown.extend(conjuncts.iter().map(|(number, _)| number)),
            }
        }
        unknown.sort_unstable();
        let unknown = unknown.into_iter().map(|number| &conjuncts[number]);
        share * selectivity::of_all(unknown, &input).0
    }

    /// The samples of a table that is scanned.
    pub(super) fn sampled<'b>(&'b self, rel: &'b Rel) -> Option<Sampled<'b>> {
        let RelKind::Scan { table, columns } = &rel.kind else {
            return None;
        };
        let sample = |(number, column): (&usize, &'b ResultColumn)| {
            let sample = self.facts.column(table, *number)?.sample.as_ref()?;
            Some((&**sample, &column.data_type))
        };
        let samples = columns.iter().zip(&rel.columns).map(sample);
        Sampled::new(self.facts.rows(table), samples)
    }
}

/// The samples of a table's columns that a relation reads.
pub(super) struct Sampled<'a> {
    /// By column, with its type.
    columns: Vec<Option<(&'a Sample, &'a DataType)>>,
    /// Rows of the sample.
    pub(super) rows: usize,
    /// Rows of the table.
    pub(super) of_rows: f64,
    /// Whether these are the same.
    pub(super) complete: bool,
}

impl<'a> Sampled<'a> {
    /// Those of a table of `rows` rows, where all that there are have the same ones; `None` without any.
    fn new(
        rows: f64,
        columns: impl Iterator<Item = Option<(&'a Sample, &'a DataType)>>,
    ) -> Option<Self> {
        let columns: Vec<_> = columns.collect();
        let (first, _) = columns.iter().flatten().next()?;
        let (kept, complete) = (first.values().len(), first.is_complete());
        let same = |(column, _): &(&Sample, _)| {
            column.of_rows() as f64 == rows && column.values().len() == kept
        };
        (kept > 0 && columns.iter().flatten().all(same)).then_some(Self {
            columns,
            rows: kept,
            of_rows: rows,
            complete,
        })
    }

    /// The share of rows for which all of `conjuncts` are true, but for those that the sample cannot tell, which are added to
    /// `unknown` by their number. `alone` estimates the share of one that too few rows of the sample meet.
    fn share(
        &self,
        conjuncts: &[(usize, Expr)],
        unknown: &mut Vec<usize>,
        alone: impl Fn(usize) -> f64,
    ) -> f64 {
        let mut known = Vec::new();
        for (number, conjunct) in conjuncts {
            match self.passing(conjunct) {
                None => unknown.push(*number),
                Some(passing) => known.push((*number, count(&passing), passing)),
            }
        }
        // Those that let many pass first: what is left is enough to ask the next one of.
        known.sort_by_key(|(_, passing, _)| Reverse(*passing));
        let all = self.rows as f64;
        let mut left = vec![true; self.rows];
        let mut share = 1.0;
        for (number, found, passing) in &known {
            for (left, passes) in left.iter_mut().zip(passing) {
                *left &= *passes;
            }
            let together = count(&left);
            let found = *found as f64;
            let expected = || believed(alone(*number), found, all);
            share = match together {
                _ if self.complete => together as f64 / all,
                _ if together >= ENOUGH && known.len() == 1 => expected(),
                _ if together >= ENOUGH => together as f64 / all,
                // Of the rows that meet the rarest condition, a few show how many meet the others.
                0 => (share * expected()).min(1.0 / all),
                _ => expected() * (together as f64 / found),
            };
        }
        share
    }

    /// The rows for which a condition is true; `None` when the sample cannot tell.
    fn passing(&self, condition: &Expr) -> Option<Vec<bool>> {
        let values = self.values(condition)?;
        Some(values.into_iter().map(is_true).collect())
    }

    fn values(&self, expr: &Expr) -> Option<Values> {
        match &expr.node {
            Node::Column(column) => self.column(*column),
            Node::Literal(value) => {
                let null = value.is_null().then_some(f64::NAN);
                let value = null.or_else(|| number(value))?;
                Some(vec![value; self.rows])
            }
            Node::Binary { op, left, right } => {
                let (left, right) = (self.values(left)?, self.values(right)?);
                let real = expr.data_type.is_floating();
                let both = left.into_iter().zip(right);
                both.map(|(a, b)| binary(*op, a, b, real)).collect()
            }
            Node::Not(e) => self.each(e, |v| 1.0 - v),
            Node::Negate(e) => self.each(e, |v| -v),
            Node::IsNull(e) => self.each(e, |v| truth(v.is_nan())),
            Node::IsNotNull(e) => self.each(e, |v| truth(!v.is_nan())),
            Node::Cast { value, .. } => {
                let factor = factor(&value.data_type, &expr.data_type)?;
                let whole = !expr.data_type.is_floating();
                self.each(value, |v| match whole {
                    true => (v * factor).trunc(),
                    false => v * factor,
                })
            }
            Node::InList {
                value,
                list,
                negated,
            } => {
                let listed: Vec<f64> = list.iter().filter_map(number).collect();
                if listed.len() < list.len() {
                    return None;
                }
                self.each(value, |v| match v.is_nan() {
                    true => v,
                    false => truth(listed.contains(&v) != *negated),
                })
            }
            Node::Case {
                branches,
                otherwise,
            } => {
                let mut result = match otherwise {
                    None => vec![f64::NAN; self.rows],
                    Some(otherwise) => self.values(otherwise)?,
                };
                for (condition, value) in branches.iter().rev() {
                    let (taken, values) = (self.passing(condition)?, self.values(value)?);
                    let places = result.iter_mut().zip(taken).zip(values);
                    for ((place, _), value) in places.filter(|((_, taken), _)| *taken) {
                        *place = value;
                    }
                }
                Some(result)
            }
            Node::Coalesce(parts) => {
                let parts: Option<Vec<Values>> = parts.iter().map(|e| self.values(e)).collect();
                let first = |a: f64, b: f64| if a.is_nan() { b } else { a };
                parts?.into_iter().reduce(|one, other| {
                    let both = one.into_iter().zip(other);
                    both.map(|(a, b)| first(a, b)).collect()
                })
            }
            Node::PerDistinct { column, function } => {
                floats(&cast(&self.per_string(*column, function)?, &DataType::Float64).ok()?)
            }
            Node::Math {
                function,
                arguments,
            } => {
                let arguments: Option<Vec<Values>> =
                    arguments.iter().map(|e| self.values(e)).collect();
                let arguments = arguments?;
                let of = |row: usize| {
                    let arguments: Vec<f64> = arguments.iter().map(|values| values[row]).collect();
                    math(*function, &arguments)
                };
                (0..self.rows).map(of).collect()
            }
            _ => None,
        }
    }

    /// Numbers that are equal where the values of `expr` are, for those that are strings as well.
    pub(super) fn told_apart(&self, expr: &Expr) -> Option<Values> {
        if !is_string(&expr.data_type) {
            return self.values(expr);
        }
        match &expr.node {
            Node::Column(column) => {
                let (sample, _) = self.of(*column)?;
                let strings = sample.values().as_dictionary_opt::<UInt32Type>()?;
                let number = |key: Option<u32>| key.map_or(f64::NAN, f64::from);
                Some(strings.keys().iter().map(number).collect())
            }
            Node::PerDistinct { column, function } => {
                let strings = cast(&self.per_string(*column, function)?, &DataType::Utf8).ok()?;
                let mut numbers = HashMap::new();
                let mut number = |string: Option<&str>| match string {
                    None => f64::NAN,
                    Some(string) => {
                        let next = numbers.len() as f64;
                        *numbers.entry(string.to_string()).or_insert(next)
                    }
                };
                let strings = strings.as_string::<i32>();
                Some(strings.iter().map(&mut number).collect())
            }
            _ => None,
        }
    }

    fn of(&self, column: usize) -> Option<(&'a Sample, &'a DataType)> {
        *self.columns.get(column)?
    }

    fn each(&self, expr: &Expr, function: impl Fn(f64) -> f64) -> Option<Values> {
        let values = self.values(expr)?;
        Some(values.into_iter().map(function).collect())
    }

    fn column(&self, column: usize) -> Option<Values> {
        floats(self.of(column)?.0.values())
    }

    /// What a function of strings makes of the rows' strings, called once for each that the sample has and once for NULL.
    fn per_string(&self, column: usize, function: &Arc<dyn PhysicalExpr>) -> Option<ArrayRef> {
        let (sample, data_type) = self.of(column)?;
        let strings = sample.values().as_dictionary_opt::<UInt32Type>()?;
        let found = evaluate_strings(function, strings.values(), data_type).ok()?;
        // NULL's is the last.
        let null = found.len().checked_sub(1)? as u32;
        let places = strings.keys().iter().map(|key| key.unwrap_or(null));
        take(&found, &UInt32Array::from_iter_values(places), None).ok()
    }
}

/// An estimate of a share where it goes with `found` of `all` rows of a sample, else what these say: ranges of evenly spread values are
/// known without error, which the sample's rows are not.
fn believed(estimate: f64, found: f64, all: f64) -> f64 {
    let likely = match found < ENOUGH as f64 {
        true => found / 3.0..=2.0 * (found + 1.0),
        // Two standard errors.
        false => {
            let error = 2.0 * (found * (1.0 - found / all)).sqrt();
            found - error..=found + error
        }
    };
    match likely.contains(&(estimate * all)) {
        true => estimate,
        false => found.max(0.5) / all,
    }
}

/// The scan whose rows all columns of expressions over `rel` are of, and the expressions over it; `None` where a column is computed of
/// others than the scan's, or NULL in rows without a match.
pub(super) fn of_one_scan<'a>(rel: &'a Rel, exprs: &[Expr]) -> Option<(&'a Rel, Vec<Expr>)> {
    match &rel.kind {
        RelKind::Scan { .. } => {
            let constant = exprs.iter().all(|expr| columns(expr).is_empty());
            (!constant).then(|| (rel, exprs.to_vec()))
        }
        RelKind::Filter { input, .. } | RelKind::Sort { input, .. } => of_one_scan(input, exprs),
        RelKind::Project {
            input,
            exprs: computed,
        } => of_one_scan(input, &substitute_all(exprs, computed).ok()?),
        RelKind::Join(join) => {
            let n = join.left.columns.len();
            let read: BTreeSet<usize> = exprs.iter().flat_map(columns).collect();
            let (first, last) = (*read.first()?, *read.last()?);
            match join.kind {
                JoinKind::Full => None,
                _ if last < n => of_one_scan(&join.left, exprs),
                JoinKind::Inner if first >= n => {
                    let of_right = |expr| renumber(expr, &|column| column - n);
                    of_one_scan(&join.right, &exprs.iter().map(of_right).collect::<Vec<_>>())
                }
                _ => None,
            }
        }
        _ => None,
    }
}

fn count(passing: &[bool]) -> usize {
    passing.iter().filter(|passes| **passes).count()
}

fn is_true(value: f64) -> bool {
    value != 0.0 && !value.is_nan()
}

fn truth(value: bool) -> f64 {
    f64::from(u8::from(value))
}

/// What an array has, as floats.
fn floats(values: &ArrayRef) -> Option<Values> {
    let null = f64::NAN;
    if let Some(values) = values.as_primitive_opt::<Int64Type>() {
        let value = |value: Option<i64>| value.map_or(null, |value| value as f64);
        return Some(values.iter().map(value).collect());
    }
    let values = values.as_primitive_opt::<Float64Type>()?;
    Some(values.iter().map(|value| value.unwrap_or(null)).collect())
}

/// What an operator makes of two values of one type, `real` for floats; `None` when unknown here.
fn binary(op: BinaryOp, a: f64, b: f64, real: bool) -> Option<f64> {
    let known = !a.is_nan() && !b.is_nan();
    let compared = |result: bool| if known { truth(result) } else { f64::NAN };
    Some(match op {
        BinaryOp::Add => a + b,
        BinaryOp::Subtract => a - b,
        BinaryOp::Multiply => a * b,
        BinaryOp::Divide if b == 0.0 => f64::NAN,
        BinaryOp::Divide if real => a / b,
        BinaryOp::Divide => (a / b).trunc(),
        BinaryOp::Modulo => a % b,
        BinaryOp::Eq => compared(a == b),
        BinaryOp::NotEq => compared(a != b),
        BinaryOp::Lt | BinaryOp::TotalLt => compared(a < b),
        BinaryOp::LtEq => compared(a <= b),
        BinaryOp::Gt => compared(a > b),
        BinaryOp::GtEq => compared(a >= b),
        BinaryOp::And if a == 0.0 || b == 0.0 => 0.0,
        BinaryOp::And => a * b,
        BinaryOp::Or if is_true(a) || is_true(b) => 1.0,
        BinaryOp::Or => a + b,
        BinaryOp::IsNotDistinctFrom => truth(a == b || (a.is_nan() && b.is_nan())),
        BinaryOp::IsDistinctFrom => truth(a != b && known || a.is_nan() != b.is_nan()),
        _ => return None,
    })
}

/// What a function makes of floats; `None` when unknown here. NULL is NaN, as what is undefined.
fn math(function: MathFunction, arguments: &[f64]) -> Option<f64> {
    // Digits behind the point are a power of ten by now.
    Some(match (function, arguments) {
        (MathFunction::Abs, [x]) => x.abs(),
        (MathFunction::Ceil, [x]) => x.ceil(),
        (MathFunction::Exp, [x]) => x.exp(),
        (MathFunction::Floor, [x]) => x.floor(),
        (MathFunction::Ln, [x]) => x.ln(),
        (MathFunction::Log10, [x]) => x.log10(),
        (MathFunction::Log2, [x]) => x.log2(),
        (MathFunction::Power, [x, y]) => x.powf(*y),
        (MathFunction::Round, [x, scale]) => (x * scale).round() / scale,
        (MathFunction::Signum, [x]) if *x == 0.0 => 0.0,
        (MathFunction::Signum, [x]) => x.signum(),
        (MathFunction::Sqrt, [x]) => x.sqrt(),
        (MathFunction::Trunc, [x, scale]) => (x * scale).trunc() / scale,
        _ => return None,
    })
}

/// What a cast multiplies numbers or times by; `None` where it does anything else.
fn factor(from: &DataType, to: &DataType) -> Option<f64> {
    let ((from_time, from), (to_time, to)) = (unit(from)?, unit(to)?);
    (from_time == to_time).then(|| from / to)
}

/// Whether a type is of points in time, and what 1 in the device's values of it stands for: of a number, or days.
fn unit(data_type: &DataType) -> Option<(bool, f64)> {
    Some(match data_type {
        DataType::Date32 => (true, 1.0),
        DataType::Date64 => (true, 1.0 / 86_400_000.0),
        DataType::Timestamp(..) => (true, 1.0 / ticks_a_day(data_type)),
        DataType::Boolean => (false, 1.0),
        other if other.is_decimal() => (false, 0.1f64.powi(scale(other).into())),
        other if other.is_integer() || other.is_floating() => (false, 1.0),
        _ => return None,
    })
}

fn scale(decimal: &DataType) -> i8 {
    match decimal {
        DataType::Decimal32(_, scale)
        | DataType::Decimal64(_, scale)
        | DataType::Decimal128(_, scale)
        | DataType::Decimal256(_, scale) => *scale,
        _ => 0,
    }
}
