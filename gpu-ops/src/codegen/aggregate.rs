//! Aggregate calls as accumulators: what a group's state holds and how a row changes it.
//!
//! A group's state is a few cells of 4 or 8 bytes, zero at the start whatever the aggregate: sums and
//! counts begin at 0, and minima and maxima keep order-preserving unsigned codes of which 0 is the
//! smallest. Where the range of the values allows, codes count from the range's end in 4 bytes, and are
//! never 0: shared memory then holds twice the groups, its 32-bit atomics are native, and a cell that is
//! not 0 says that there was a value. Equal accumulators are kept once, so `SUM(x)`, `AVG(x)` and
//! `COUNT(x)` share.

use arrow::datatypes::DataType;

use super::distinct::DistinctSets;
use super::operators::is_decimal;
use super::range::Range;
use super::scalar::{Emitter, unsupported};
use super::scope::layout_of;
use super::value::{CType, Meaning, Value};
use crate::error::{GpuError, Result};
use crate::pipeline::{AggregateCall, AggregateFunction};

/// The condition of accumulators that every row of a group changes.
pub(super) const EVERY_ROW: &str = "alive";

/// What tells the groups that have rows from others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Existence {
    /// Something else than their states, or nothing must.
    Known,
    /// Their states, which blocks and threads may have of their own.
    OfCopies,
    /// Their states in device memory.
    OfPlaces,
}

/// What an accumulator keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StateKind {
    /// 1 once there was a row.
    Seen,
    /// Number of rows.
    Count,
    /// Sum modulo 2^64.
    Sum64,
    /// Sum modulo 2^128; two words: the low and the high half, or, with [`Accumulator::split`] bits `s`, a sum of the
    /// lowest s bits of all values and one of what is above them.
    Sum128,
    /// Sum of floats.
    SumFloat,
    /// Largest code.
    Max,
    /// Largest complement of a code.
    Min,
    /// Code of any value: all rows of a group have the same one, so it is stored and not compared.
    Any,
    /// Largest code of 128 bits; its two words, low first, and a lock.
    Max128,
    /// Largest complement of a code of 128 bits; the same.
    Min128,
}

/// One accumulator of every group.
#[derive(Debug, Clone)]
pub struct Accumulator {
    /// What it keeps.
    pub kind: StateKind,
    /// Its cell has 4 bytes; else 8, or the words that the kind says.
    pub narrow: bool,
    /// Extremes in 4 bytes: the value of code 1. Codes count up from it, those of minima down.
    pub base: i128,
    /// Of a sum of 128 bits whose two words are sums of their own, so that no carry passes between them: the bits of a
    /// value that the low one adds up. 0: they are halves of one number.
    pub split: u32,
    /// Of such a sum: its low word is not 0 once there was a row, because it adds up numbers from 1 to `2^split`.
    pub tells: bool,
    /// First byte in the group's state.
    pub offset: usize,
    /// C++ bool: does this row count?
    pub(super) condition: String,
    /// C++ value of this row: an integer for sums, an unsigned code for minima and maxima.
    pub(super) value: String,
    /// Type in which one thread adds up its rows without overflow.
    pub(super) partial: CType,
}

impl Accumulator {
    /// Atomic additions that a row costs, as prices count them.
    pub(super) fn adds(&self) -> u32 {
        match self.kind {
            StateKind::Count | StateKind::Sum64 | StateKind::SumFloat => 1,
            StateKind::Sum128 => 2,
            // Two words and a lock.
            StateKind::Max128 | StateKind::Min128 => 3,
            StateKind::Seen | StateKind::Max | StateKind::Min | StateKind::Any => 0,
        }
    }

    /// 64-bit words that a row adds to: in shared memory each is a loop of compare-and-swap.
    pub(super) fn words(&self) -> u32 {
        match self.kind {
            StateKind::Count | StateKind::Sum64 | StateKind::SumFloat => u32::from(!self.narrow),
            StateKind::Sum128 | StateKind::Max128 | StateKind::Min128 => 2,
            StateKind::Seen | StateKind::Max | StateKind::Min | StateKind::Any => 0,
        }
    }

    /// Cells that a row reads and seldom writes.
    pub(super) fn tests(&self) -> u32 {
        match self.kind {
            StateKind::Seen | StateKind::Max | StateKind::Min | StateKind::Any => 1,
            _ => 0,
        }
    }
}

/// How the result of one call is made from accumulators.
#[derive(Debug, Clone)]
pub struct CallPlan {
    /// The aggregate.
    pub function: AggregateFunction,
    /// Index of the accumulator with the sum, extreme or count.
    pub value: usize,
    /// Index of an accumulator that is not 0 when any row took part; over none the result is NULL. For averages it
    /// counts these rows. `None`: never NULL.
    pub count: Option<usize>,
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
    /// Bytes of one group's state.
    pub bytes: usize,
    /// There are keys: MIN and MAX over floats follow DataFusion's grouped accumulators.
    pub grouped: bool,
    /// The accumulator that is not 0 for groups that have rows, where nothing else tells.
    pub existence: Option<usize>,
    /// Each distinct argument and its bytes as a column would keep it.
    pub(super) arguments: Vec<(String, u32)>,
    /// Variables that hold codes: kind, number and name.
    codes: Vec<(StateKind, String, String)>,
}

impl AccumulatorPlan {
    fn add(&mut self, new: Accumulator) -> usize {
        let same = |a: &Accumulator| {
            a.kind == new.kind && a.condition == new.condition && a.value == new.value
        };
        if let Some(index) = self.accumulators.iter().position(same) {
            return index;
        }
        self.accumulators.push(new);
        self.accumulators.len() - 1
    }

    fn plain(&mut self, kind: StateKind, condition: &str, value: &str, partial: CType) -> usize {
        self.add(Accumulator {
            kind,
            narrow: kind == StateKind::Seen,
            base: 0,
            split: 0,
            tells: false,
            offset: 0,
            condition: condition.to_string(),
            value: value.to_string(),
            partial,
        })
    }

    /// Count the rows for which `condition` (C++) holds: `rows` at most, of which one thread sees `thread_rows`.
    fn count(&mut self, condition: &str, rows: u64, thread_rows: u64) -> usize {
        let partial = if thread_rows <= i32::MAX as u64 {
            CType::I32
        } else {
            CType::I64
        };
        let index = self.plain(StateKind::Count, condition, "1", partial);
        self.accumulators[index].narrow = rows <= u32::MAX.into();
        index
    }

    /// Note whether there is a row for which `condition` (C++) holds.
    pub(super) fn seen(&mut self, condition: &str) -> usize {
        self.plain(StateKind::Seen, condition, "1u", CType::I32)
    }

    /// The plan with places for all cells. What only says whether there was a row goes where another cell says the
    /// same.
    pub(super) fn finished(&self, existence: Existence) -> Self {
        let mut plan = self.clone();
        // What stands for the presence of rows with this condition.
        let stand_in = |seen: usize| -> usize {
            let condition = &self.accumulators[seen].condition;
            let says = |a: &Accumulator| {
                a.condition == *condition && (a.kind == StateKind::Count || a.is_code())
            };
            self.accumulators.iter().position(says).unwrap_or(seen)
        };
        for call in &mut plan.calls {
            if let Some(count) = call.count
                && self.accumulators[count].kind == StateKind::Seen
            {
                // A group has a row.
                let always = self.grouped && self.accumulators[count].condition == EVERY_ROW;
                call.count = (!always).then(|| stand_in(count));
            }
        }
        if existence != Existence::Known {
            let first = |a: &Accumulator| a.kind == StateKind::Seen && a.condition == EVERY_ROW;
            let seen = self.accumulators.iter().position(first);
            plan.existence = seen.map(stand_in);
            let split = |a: &Accumulator| a.split > 0 && a.condition == EVERY_ROW;
            // The states of a block are added to those behind them only where they are not 0.
            if existence == Existence::OfPlaces
                && plan.existence == seen
                && let Some(sum) = self.accumulators.iter().position(split)
            {
                plan.accumulators[sum].tells = true;
                plan.existence = Some(sum);
            }
        }
        // What nobody reads goes; the rest moves up.
        let used = |i: usize| {
            plan.existence == Some(i)
                || plan
                    .calls
                    .iter()
                    .any(|c| c.value == i || c.count == Some(i))
        };
        let kept: Vec<usize> = (0..plan.accumulators.len()).filter(|i| used(*i)).collect();
        let place = |i: usize| kept.iter().position(|k| *k == i).unwrap_or(0);
        for call in &mut plan.calls {
            call.value = place(call.value);
            call.count = call.count.map(place);
        }
        plan.existence = plan.existence.map(place);
        plan.accumulators = kept.iter().map(|i| plan.accumulators[*i].clone()).collect();
        // Cells of 8 bytes first, so that all are aligned.
        plan.bytes = 0;
        for narrow in [false, true] {
            for a in plan.accumulators.iter_mut().filter(|a| a.narrow == narrow) {
                a.offset = plan.bytes;
                plan.bytes += a.bytes();
            }
        }
        plan
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
        if let (Some(value), Some(expr)) = (&argument, &call.argument)
            && !self.arguments.iter().any(|(text, _)| *text == value.text)
        {
            let stored = layout_of(value, &expr.data_type);
            let bytes = u32::from(stored.width) + u32::from(stored.nullable);
            self.arguments.push((value.text.clone(), bytes));
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
        let argument_type = call.argument.as_ref().map(|a| a.data_type.clone());
        let meaning = argument
            .as_ref()
            .map_or(Meaning::Number, |a| a.meaning.clone());
        let c_type = argument.as_ref().map_or(CType::I64, |a| a.c_type);
        let argument_range = argument.as_ref().map_or(Range::point(0), |a| a.range);
        let count = match call.function {
            AggregateFunction::Count => None,
            AggregateFunction::Avg => Some(self.count(&condition, rows, thread_rows)),
            _ => Some(self.seen(&condition)),
        };
        let value = match (call.function, argument) {
            (AggregateFunction::Count, _) => self.count(&condition, rows, thread_rows),
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
            return Ok(self.plain(StateKind::SumFloat, &condition, &text, CType::F64));
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
        let index = self.plain(kind, &condition, &value.text, partial);
        // Sums of `rows` values of `low` bits fit 64 bits, and so do sums of what is above them.
        let low = rows.leading_zeros();
        let most = i128::from(i64::MAX) << low.min(60);
        if kind == StateKind::Sum128 && (8..=60).contains(&low) && fits(rows, most) {
            self.accumulators[index].split = low;
        }
        Ok(index)
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
        if value.c_type == CType::I128 {
            let (kind, function) = match kind {
                StateKind::Min => (StateKind::Min128, "min_key128"),
                _ => (StateKind::Max128, "max_key128"),
            };
            let code = format!("{function}({})", value.text);
            return Ok(self.plain(kind, &condition, &code, CType::I128));
        }
        let number = match value.c_type {
            CType::F32 | CType::F64 => {
                let order = match (self.grouped, kind) {
                    (false, _) | (_, StateKind::Any) => "total_order",
                    (true, StateKind::Min) => "grouped_min_order",
                    (true, _) => "grouped_max_order",
                };
                format!("{order}({})", value.text)
            }
            _ => value.text.clone(),
        };
        let range = match value.c_type {
            // The orders of groups' values leave the ends of the integers out, which belong to NaNs.
            CType::F32 if self.grouped && kind != StateKind::Any => {
                Some(Range::new(i128::from(i32::MIN) + 2, i32::MAX.into()))
            }
            CType::F32 | CType::F64 => None,
            _ => Some(value.range),
        };
        // Codes from 1 on.
        let narrow = range.filter(|r| r.size().is_some_and(|size| size < u32::MAX.into()));
        let base = narrow.map_or(0, |r| if kind == StateKind::Min { r.max } else { r.min });
        let code = match (narrow, kind) {
            (None, StateKind::Min) => format!("min_key((i64){number})"),
            (None, _) => format!("max_key((i64){number})"),
            // Modulo 2^32, in which the codes fit.
            (Some(_), StateKind::Min) => {
                format!("{}u - (u32){number}", (base as u32).wrapping_add(1))
            }
            (Some(_), _) => format!("(u32){number} - {}u", (base as u32).wrapping_sub(1)),
        };
        // The name of a variable is all that later statements need.
        let known = |(k, n, _): &&(StateKind, String, String)| *k == kind && *n == number;
        let name = match self.codes.iter().find(known) {
            Some((_, _, name)) => name.clone(),
            None => {
                let name = format!("key{}", emitter.state.variables);
                emitter.state.variables += 1;
                let t = if narrow.is_some() { "u32" } else { "u64" };
                emitter.lines.push(format!("const {t} {name} = {code};"));
                self.codes.push((kind, number, name.clone()));
                name
            }
        };
        Ok(self.add(Accumulator {
            kind,
            narrow: narrow.is_some(),
            base,
            split: 0,
            tells: false,
            offset: 0,
            condition,
            value: name,
            partial: CType::I64,
        }))
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
    /// Bytes of its cell.
    pub(super) fn bytes(&self) -> usize {
        match self.kind {
            _ if self.narrow => 4,
            StateKind::Sum128 => 16,
            StateKind::Max128 | StateKind::Min128 => 24,
            _ => 8,
        }
    }

    /// The cell is not 0 once there was a value.
    fn is_code(&self) -> bool {
        self.narrow && matches!(self.kind, StateKind::Min | StateKind::Max | StateKind::Any)
    }

    /// C++ type of the (first word of the) cell.
    pub(super) fn cell_type(&self) -> &'static str {
        match self.kind {
            _ if self.narrow => "u32",
            StateKind::SumFloat => "f64",
            _ => "u64",
        }
    }

    /// C++ text of a pointer to the cell in the state at `at` (`u8*`).
    pub(super) fn cell(&self, at: &str) -> String {
        format!("({}*)({at} + {})", self.cell_type(), self.offset)
    }

    /// 32-bit registers of one thread's partial result.
    pub(super) fn registers(&self) -> usize {
        match self.partial_type() {
            "u32" => 1,
            _ => self.partial.registers(),
        }
    }

    /// C++ type of one thread's partial result.
    pub(super) fn partial_type(&self) -> &'static str {
        match self.kind {
            StateKind::Seen => "u32",
            StateKind::Min | StateKind::Max | StateKind::Any if self.narrow => "u32",
            StateKind::Min | StateKind::Max | StateKind::Any => "u64",
            StateKind::Min128 | StateKind::Max128 => "u128",
            _ => self.partial.name(),
        }
    }

    /// Statement: add this row to the thread's partial `target` when `hit` holds.
    pub(super) fn add_to_partial(&self, target: &str, hit: &str) -> String {
        let t = self.partial_type();
        let value = &self.value;
        match self.kind {
            StateKind::Seen => format!("{target} |= {hit} ? 1u : 0u;"),
            StateKind::Min | StateKind::Max | StateKind::Any => {
                format!("{target} = max_{t}({target}, {hit} ? {value} : ({t})0);")
            }
            StateKind::Min128 | StateKind::Max128 => {
                format!("{target} = max_u128({target}, {hit} ? {value} : (u128)0);")
            }
            // Sums modulo 2^64 wrap: add as unsigned, which is defined.
            StateKind::Sum64 if self.partial == CType::I64 => {
                format!("{target} = (i64)((u64){target} + ({hit} ? (u64){value} : 0ull));")
            }
            StateKind::Sum128 if self.partial == CType::I128 => {
                format!("{target} = wrap_add({target}, {hit} ? (i128){value} : (i128)0);")
            }
            _ => format!("{target} += {hit} ? ({t}){value} : ({t})0;"),
        }
    }

    /// Statement: add `value` (of the partial type) to the cell that `cell` (C++) points to.
    pub(super) fn add_to_state(&self, cell: &str, value: &str) -> String {
        let t = self.cell_type();
        match self.kind {
            StateKind::Count | StateKind::Sum64 => format!("atomicAdd({cell}, ({t})({value}));"),
            StateKind::Sum128 if self.split > 0 => {
                format!(
                    "atomic_add_split<{}, {}>({cell}, (i128)({value}));",
                    self.split, self.tells
                )
            }
            StateKind::Sum128 => format!("atomic_add_u128({cell}, (u128)(i128)({value}));"),
            StateKind::SumFloat => format!("atomicAdd({cell}, {value});"),
            StateKind::Min | StateKind::Max => format!("raise({cell}, ({t}){value});"),
            StateKind::Any | StateKind::Seen => format!("store_once({cell}, ({t}){value});"),
            StateKind::Min128 | StateKind::Max128 => format!("atomic_max_u128({cell}, {value});"),
        }
    }

    /// [`Self::add_to_state`] for a cell in the block's shared memory.
    pub(super) fn add_to_block(&self, cell: &str, value: &str) -> String {
        let t = self.cell_type();
        match self.kind {
            StateKind::Min | StateKind::Max => format!("raise_block({cell}, ({t}){value});"),
            StateKind::Any | StateKind::Seen => format!("store_once_block({cell}, ({t}){value});"),
            _ => self.add_to_state(cell, value),
        }
    }

    /// C++ bool: [`Self::add_to_state`], and could this have been the first addition? `None` where it does not tell.
    pub(super) fn add_first(&self, cell: &str, value: &str) -> Option<String> {
        Some(match self.kind {
            StateKind::Sum64 => format!("atomicAdd({cell}, (u64)({value})) == 0"),
            StateKind::SumFloat => format!("atomicAdd({cell}, {value}) == 0"),
            StateKind::Sum128 if self.split == 0 => {
                format!("atomic_add_u128({cell}, (u128)(i128)({value})) == 0")
            }
            _ => return None,
        })
    }

    /// Statement: [`Self::add_to_state`] with a sum of rows, of which there was one. Where that changes nothing, it is left out.
    pub(super) fn add_rows_to_state(&self, cell: &str, value: &str) -> String {
        let add = self.add_to_state(cell, value);
        match self.tells {
            true => add,
            false => format!("if ({value} != 0) {{ {add} }}"),
        }
    }

    /// Statement: copy a cell to one that nobody else writes.
    pub(super) fn copy(&self, cell: &str, from: &str) -> String {
        match self.kind {
            StateKind::Sum128 | StateKind::Min128 | StateKind::Max128 => {
                format!("({cell})[0] = ({from})[0]; ({cell})[1] = ({from})[1];")
            }
            _ => format!("*({cell}) = *({from});"),
        }
    }

    /// C++ text of the cell's content as the number that [`Self::add_to_state`] takes, from a pointer to the cell.
    pub(super) fn content(&self, cell: &str) -> String {
        match self.kind {
            StateKind::Sum128 if self.split > 0 => {
                format!("split_sum<{}>({cell})", self.split)
            }
            StateKind::Sum128 | StateKind::Min128 | StateKind::Max128 => halves(cell),
            _ => format!("*({cell})"),
        }
    }

    /// C++ text of the value (or the order, for floats) that an extreme stands for, from a pointer to its cell.
    pub(super) fn extreme(&self, cell: &str) -> String {
        let content = self.content(cell);
        match self.kind {
            StateKind::Min if self.narrow => {
                // One more than the base, because codes count from 1.
                format!(
                    "(i64)({}ull - (u64){content})",
                    (self.base as u64).wrapping_add(1)
                )
            }
            _ if self.is_code() => {
                format!(
                    "(i64)({}ull + (u64){content})",
                    (self.base as u64).wrapping_sub(1)
                )
            }
            StateKind::Min => format!("value_of_min({content})"),
            StateKind::Min128 => format!("value_of_min128({content})"),
            StateKind::Max128 => format!("value_of_max128({content})"),
            _ => format!("value_of_max({content})"),
        }
    }
}

/// C++ text of the 128 bits in two words, the low one first.
pub(super) fn halves(cell: &str) -> String {
    format!("(((u128)({cell})[1] << 64) | (u128)({cell})[0])")
}
