//! Aggregate calls as accumulators: what a group's state holds and how a row changes it.
//!
//! A group's state is a row of 64-bit words, zero at the start whatever the aggregate: sums and
//! counts begin at 0, and minima and maxima keep order-preserving unsigned keys of which 0 is the
//! smallest (`min_key`, `max_key` in `pipeline.cuh`). Equal accumulators are kept once, so
//! `SUM(x)`, `AVG(x)` and `COUNT(x)` share.

use arrow::datatypes::DataType;

use super::distinct::DistinctSets;
use super::operators::is_decimal;
use super::range::Range;
use super::scalar::{Emitter, unsupported};
use super::value::{CType, Meaning, Value};
use crate::error::{GpuError, Result};
use crate::pipeline::{AggregateCall, AggregateFunction};

/// What an accumulator keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StateKind {
    /// Number of rows; one word.
    Count,
    /// Sum modulo 2^64; one word.
    Sum64,
    /// Sum modulo 2^128; two words, low first.
    Sum128,
    /// Sum of floats; one word.
    SumFloat,
    /// Largest key; one word.
    Max,
    /// Largest complement of a key; one word.
    Min,
    /// Key of any value: all rows of a group have the same one, so it is stored and not compared.
    Any,
    /// Largest key of 128 bits; its two words, low first, and a lock.
    Max128,
    /// Largest complement of a key of 128 bits; the same.
    Min128,
}

impl StateKind {
    /// 64-bit words of state.
    pub fn words(self) -> usize {
        match self {
            Self::Sum128 => 2,
            Self::Max128 | Self::Min128 => 3,
            _ => 1,
        }
    }
}

/// One accumulator of every group.
#[derive(Debug, Clone)]
pub struct Accumulator {
    /// What it keeps.
    pub kind: StateKind,
    /// First of its words in the group's state.
    pub word: usize,
    /// C++ bool: does this row count?
    pub(super) condition: String,
    /// C++ value of this row: an integer for sums, a u64 key for minima and maxima.
    pub(super) value: String,
    /// Type in which one thread adds up its rows without overflow.
    pub(super) partial: CType,
}

/// How the result of one call is made from accumulators.
#[derive(Debug, Clone)]
pub struct CallPlan {
    /// The aggregate.
    pub function: AggregateFunction,
    /// Index of the accumulator with the sum, extreme or count.
    pub value: usize,
    /// Index of the accumulator that counts the rows that took part; a result over none is NULL.
    pub count: usize,
    /// Type of the argument, for decoding and for the scale of averages.
    pub argument_type: Option<DataType>,
    /// What an extreme stands for.
    pub meaning: Meaning,
    /// C++ type of the argument's values.
    pub c_type: CType,
    /// All values that the result can take, for integers (unscaled for decimals).
    pub range: Range,
    /// Logical type of the result.
    pub return_type: DataType,
}

/// Every accumulator and call of an aggregate sink.
#[derive(Debug, Clone, Default)]
pub struct AccumulatorPlan {
    /// Deduplicated accumulators.
    pub accumulators: Vec<Accumulator>,
    /// One plan a call, in order.
    pub calls: Vec<CallPlan>,
    /// 64-bit words of one group's state.
    pub words: usize,
    /// There are keys: MIN and MAX over floats follow DataFusion's grouped accumulators.
    pub grouped: bool,
}

impl AccumulatorPlan {
    fn add(&mut self, kind: StateKind, condition: String, value: String, partial: CType) -> usize {
        let same = |a: &Accumulator| a.kind == kind && a.condition == condition && a.value == value;
        if let Some(index) = self.accumulators.iter().position(same) {
            return index;
        }
        let word = self.words;
        self.words += kind.words();
        self.accumulators.push(Accumulator {
            kind,
            word,
            condition,
            value,
            partial,
        });
        self.accumulators.len() - 1
    }

    /// Count the rows for which `condition` (C++) holds. `thread_rows` bounds the rows one thread sees.
    pub(super) fn count(&mut self, condition: &str, thread_rows: u64) -> usize {
        let partial = if thread_rows <= i32::MAX as u64 {
            CType::I32
        } else {
            CType::I64
        };
        self.add(
            StateKind::Count,
            condition.to_string(),
            "1".to_string(),
            partial,
        )
    }

    /// Plan one call over the row at hand; `rows` bounds the rows of the whole input.
    pub(super) fn call(
        &mut self,
        emitter: &mut Emitter<'_>,
        call: &AggregateCall,
        rows: u64,
        thread_rows: u64,
        sets: &mut DistinctSets,
    ) -> Result<()> {
        let mut condition = "alive".to_string();
        if let Some(filter) = &call.filter {
            let value = emitter.emit(filter)?;
            let test = emitter.is_true(&value);
            condition = emitter.bind_bool(format!("alive && {test}"));
        }
        // Rows that the FILTER leaves out are not evaluated by DataFusion: they cannot fault.
        let guard = call.filter.is_some().then(|| condition.clone());
        let argument = call
            .argument
            .as_ref()
            .map(|argument| emitter.emit_guarded(argument, guard))
            .transpose()?;
        if let Some(valid) = argument.as_ref().and_then(|a| a.valid.clone()) {
            condition = emitter.bind_bool(format!("{condition} && {valid}"));
        }
        // Extremes do not care how often a value comes.
        let counts = matches!(
            call.function,
            AggregateFunction::Count | AggregateFunction::Sum | AggregateFunction::Avg
        );
        if let (true, true, Some(value), Some(expr)) =
            (call.distinct, counts, &argument, &call.argument)
        {
            condition = sets.first(emitter, value, &expr.data_type, &condition)?;
        }
        let count = self.count(&condition, thread_rows);
        let argument_type = call.argument.as_ref().map(|a| a.data_type.clone());
        let meaning = argument
            .as_ref()
            .map_or(Meaning::Number, |a| a.meaning.clone());
        let c_type = argument.as_ref().map_or(CType::I64, |a| a.c_type);
        let argument_range = argument.as_ref().map_or(Range::point(0), |a| a.range);
        let value = match (call.function, argument) {
            (AggregateFunction::Count, _) => count,
            (AggregateFunction::Sum | AggregateFunction::Avg, Some(v)) => {
                let argument_type = argument_type.as_ref().unwrap_or(&DataType::Null);
                let index = self.sum(&v, argument_type, condition, rows, thread_rows)?;
                // DataFusion averages wide decimals in 256 bits; a sum that may wrap at 128 will not do.
                let total = v.range.magnitude().checked_mul(u128::from(rows));
                if call.function == AggregateFunction::Avg
                    && self.accumulators[index].kind == StateKind::Sum128
                    && total.is_none_or(|t| t > i128::MAX as u128)
                {
                    return unsupported("AVG over decimals whose sum can leave 128 bits");
                }
                index
            }
            (AggregateFunction::Min, Some(v)) => {
                self.extreme(emitter, StateKind::Min, &v, condition)?
            }
            (AggregateFunction::Max, Some(v)) => {
                self.extreme(emitter, StateKind::Max, &v, condition)?
            }
            (AggregateFunction::Any, Some(v)) => {
                self.extreme(emitter, StateKind::Any, &v, condition)?
            }
            (function, None) => {
                return Err(GpuError::Internal(format!(
                    "{function:?} without an argument"
                )));
            }
        };
        let return_type = call.return_type.clone();
        let range = result_range(call.function, argument_range, &return_type, rows);
        self.calls.push(CallPlan {
            c_type,
            range,
            function: call.function,
            value,
            count,
            argument_type,
            meaning,
            return_type,
        });
        Ok(())
    }

    fn sum(
        &mut self,
        value: &Value,
        data_type: &DataType,
        condition: String,
        rows: u64,
        thread_rows: u64,
    ) -> Result<usize> {
        if matches!(value.c_type, CType::F32 | CType::F64) {
            let text = format!("(f64){}", value.text);
            return Ok(self.add(StateKind::SumFloat, condition, text, CType::F64));
        }
        let summable = data_type.is_integer() || is_decimal(data_type);
        if !summable || !value.c_type.is_integer() || !matches!(value.meaning, Meaning::Number) {
            return unsupported(format!("SUM over {data_type}"));
        }
        let magnitude = value.range.magnitude();
        let fits = |rows: u64, max: i128| {
            magnitude
                .checked_mul(u128::from(rows))
                .is_some_and(|total| total <= max as u128)
        };
        let kind = if is_decimal(data_type) && !fits(rows, i64::MAX.into()) {
            StateKind::Sum128
        } else {
            StateKind::Sum64
        };
        let partial = if fits(thread_rows, i32::MAX.into()) {
            CType::I32
        } else if kind == StateKind::Sum64 || fits(thread_rows, i64::MAX.into()) {
            CType::I64
        } else {
            CType::I128
        };
        Ok(self.add(kind, condition, value.text.clone(), partial))
    }

    /// MIN or MAX. Over floats DataFusion has two rules. Ungrouped, it takes the first or last value of the IEEE
    /// total order (arrow's `min` and `max`). Grouped, it starts from the largest or smallest finite value and any
    /// value takes the place of a NaN, so infinities alone become finite, NaN alone stays NaN, and next to other
    /// values NaN counts as if it came first (`PrimitiveGroupsAccumulator` of datafusion-functions-aggregate).
    fn extreme(
        &mut self,
        emitter: &mut Emitter<'_>,
        kind: StateKind,
        value: &Value,
        condition: String,
    ) -> Result<usize> {
        let number = match value.c_type {
            CType::I128 => {
                let (kind, function) = match kind {
                    StateKind::Min => (StateKind::Min128, "min_key128"),
                    _ => (StateKind::Max128, "max_key128"),
                };
                let key = format!("{function}({})", value.text);
                return Ok(self.add(kind, condition, key, CType::I128));
            }
            CType::F32 | CType::F64 => {
                let order = match (self.grouped, kind) {
                    (false, _) | (_, StateKind::Any) => "total_order",
                    (true, StateKind::Min) => "grouped_min_order",
                    (true, _) => "grouped_max_order",
                };
                format!("(i64){order}({})", value.text)
            }
            _ => format!("(i64){}", value.text),
        };
        let function = if kind == StateKind::Min {
            "min_key"
        } else {
            "max_key"
        };
        let key = format!("{function}({number})");
        // Keys are u64; the name of the variable is all that later statements need.
        let name = format!("key{}", emitter.state.variables);
        emitter.state.variables += 1;
        emitter.lines.push(format!("const u64 {name} = {key};"));
        Ok(self.add(kind, condition, name, CType::I64))
    }
}

/// The values that an aggregate over at most `rows` values of `argument` can have.
fn result_range(
    function: AggregateFunction,
    argument: Range,
    return_type: &DataType,
    rows: u64,
) -> Range {
    let rows = i128::from(rows);
    match function {
        AggregateFunction::Count => Range::new(0, rows),
        AggregateFunction::Min | AggregateFunction::Max | AggregateFunction::Any => argument,
        AggregateFunction::Sum | AggregateFunction::Avg => {
            let total = Range::new(0, rows).times(argument).unwrap_or(Range::FULL);
            let of_type = Range::of_type(return_type).unwrap_or(Range::FULL);
            // A sum that can leave its type wraps to any value of it.
            if total.within(of_type) {
                total
            } else {
                of_type
            }
        }
    }
}

impl Accumulator {
    /// 32-bit registers of one thread's partial result.
    pub(super) fn registers(&self) -> usize {
        self.partial.registers()
    }

    /// C++ type of one thread's partial result.
    pub(super) fn partial_type(&self) -> &'static str {
        match self.kind {
            StateKind::Min | StateKind::Max | StateKind::Any => "u64",
            StateKind::Min128 | StateKind::Max128 => "u128",
            _ => self.partial.name(),
        }
    }

    /// Statement: add this row to the thread's partial `target` when `hit` holds.
    pub(super) fn add_to_partial(&self, target: &str, hit: &str) -> String {
        let t = self.partial_type();
        match self.kind {
            StateKind::Min | StateKind::Max | StateKind::Any => {
                format!(
                    "{target} = max_u64({target}, {hit} ? {} : 0ull);",
                    self.value
                )
            }
            StateKind::Min128 | StateKind::Max128 => {
                format!(
                    "{target} = max_u128({target}, {hit} ? {} : (u128)0);",
                    self.value
                )
            }
            // Sums modulo 2^64 wrap: add as unsigned, which is defined.
            StateKind::Sum64 if self.partial == CType::I64 => {
                format!(
                    "{target} = (i64)((u64){target} + ({hit} ? (u64){} : 0ull));",
                    self.value
                )
            }
            StateKind::Sum128 if self.partial == CType::I128 => {
                format!(
                    "{target} = wrap_add({target}, {hit} ? (i128){} : (i128)0);",
                    self.value
                )
            }
            _ => format!("{target} += {hit} ? ({t}){} : ({t})0;", self.value),
        }
    }

    /// Statement: add `value` (of the partial type) to the words at `state`.
    pub(super) fn add_to_state(&self, state: &str, value: &str) -> String {
        let at = format!("{state} + {}", self.word);
        match self.kind {
            StateKind::Count | StateKind::Sum64 => format!("atomicAdd({at}, (u64)({value}));"),
            StateKind::Sum128 => format!("atomic_add_u128({at}, (u128)(i128)({value}));"),
            StateKind::SumFloat => format!("atomicAdd((f64*)({at}), {value});"),
            StateKind::Min | StateKind::Max => format!("atomicMax({at}, {value});"),
            StateKind::Any => format!("store_once({at}, {value});"),
            StateKind::Min128 | StateKind::Max128 => format!("atomic_max_u128({at}, {value});"),
        }
    }
}
