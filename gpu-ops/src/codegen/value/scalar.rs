//! Scalar expressions as C++ statements: columns, literals, CASE, IN.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::new_empty_array;
use arrow::datatypes::DataType;
use datafusion::scalar::ScalarValue;

use crate::codegen::ir::range::Range;
use crate::codegen::ir::refusal::{needs_codes, unsupported};
use crate::codegen::ir::scope::ScopeColumn;
use crate::codegen::ir::state::KernelState;
use crate::codegen::ir::value::{CType, Meaning, Value};
use crate::column::{Dictionary, is_opaque, is_text};
use crate::error::{GpuError, Result};
use crate::expr::{Expr, Node};

/// Statements evaluated for one row; equal subexpressions are computed once.
pub(in crate::codegen) struct Emitter<'a> {
    pub(in crate::codegen) columns: &'a [ScopeColumn],
    pub(in crate::codegen) state: &'a mut KernelState,
    /// Finished statements.
    pub(in crate::codegen) lines: Vec<String>,
    /// Text of a computed expression -> its variable.
    memo: HashMap<String, String>,
    /// A C++ bool that must hold for a fault to count (the branch of a CASE).
    guard: Option<String>,
}

impl<'a> Emitter<'a> {
    pub(in crate::codegen) fn new(columns: &'a [ScopeColumn], state: &'a mut KernelState) -> Self {
        Self {
            columns,
            state,
            lines: Vec::new(),
            memo: HashMap::new(),
            guard: None,
        }
    }

    /// Leave out the statements so far: nothing will read their variables.
    pub(in crate::codegen) fn forget(&mut self) {
        self.lines.clear();
        self.memo.clear();
    }

    /// Name the value of `text`, or find the variable that already holds it.
    pub(in crate::codegen) fn bind(&mut self, c_type: CType, text: String) -> String {
        self.bind_as(c_type.name(), text)
    }

    /// The same of a value of a C++ type by its name.
    pub(in crate::codegen) fn bind_as(&mut self, c_type: &str, text: String) -> String {
        let key = format!("{c_type} {text}");
        if let Some(name) = self.memo.get(&key) {
            return name.clone();
        }
        let name = format!("v{}", self.state.variables);
        self.state.variables += 1;
        self.lines.push(format!("const {c_type} {name} = {text};"));
        self.memo.insert(key, name.clone());
        name
    }

    pub(in crate::codegen) fn bind_bool(&mut self, text: String) -> String {
        self.bind(CType::Bool, text)
    }

    /// The C++ text of an integer constant, as a kernel argument.
    pub(in crate::codegen) fn integer(&mut self, value: i128) -> String {
        let c_type = CType::for_range(Range::point(value));
        let wide = c_type == CType::I128;
        let arguments = &mut self.state.arguments;
        let text = self
            .state
            .literals
            .entry((value, wide))
            .or_insert_with(|| arguments.literal(value, wide))
            .clone();
        if c_type == CType::I32 {
            format!("(i32){text}")
        } else {
            text
        }
    }

    /// The C++ text of a float constant, as a kernel argument.
    pub(in crate::codegen) fn float(&mut self, value: f64) -> String {
        let arguments = &mut self.state.arguments;
        let known = self.state.floats.entry(value.to_bits());
        known.or_insert_with(|| arguments.float(value)).clone()
    }

    /// Record `fault` (a name of `pipeline.cuh`) for this row when `condition` holds.
    pub(in crate::codegen) fn fault(&mut self, condition: &str, valid: Option<&str>, fault: &str) {
        self.state.faults = true;
        let mut tests = vec!["alive".to_string()];
        tests.extend(self.guard.clone());
        tests.extend(valid.map(str::to_string));
        tests.push(format!("({condition})"));
        let line = format!("if ({}) fault = {fault};", tests.join(" && "));
        if !self.lines.contains(&line) {
            self.lines.push(line);
        }
    }

    /// Emit `expr` where only rows with `guard` (a C++ bool) may fault.
    pub(in crate::codegen) fn emit_guarded(
        &mut self,
        expr: &Expr,
        guard: Option<String>,
    ) -> Result<Value> {
        let outer = std::mem::replace(&mut self.guard, guard);
        let value = self.emit(expr);
        self.guard = outer;
        value
    }

    /// `a && b` over optional validity variables.
    pub(in crate::codegen) fn both_valid(
        &mut self,
        a: Option<&str>,
        b: Option<&str>,
    ) -> Option<String> {
        match (a, b) {
            (None, None) => None,
            (Some(v), None) | (None, Some(v)) => Some(v.to_string()),
            (Some(a), Some(b)) if a == b => Some(a.to_string()),
            (Some(a), Some(b)) => Some(self.bind_bool(format!("{a} && {b}"))),
        }
    }

    /// Widen an integer value.
    pub(in crate::codegen) fn widen(&self, value: &Value, to: CType) -> String {
        if value.c_type == to {
            value.text.clone()
        } else {
            format!("({}){}", to.name(), value.text)
        }
    }

    /// A C++ bool that is true when the condition is true (not false, not NULL).
    pub(in crate::codegen) fn is_true(&mut self, condition: &Value) -> String {
        match &condition.valid {
            None => condition.text.clone(),
            Some(valid) => {
                let text = format!("{valid} && {}", condition.text);
                self.bind_bool(text)
            }
        }
    }

    /// Emit an expression.
    pub(in crate::codegen) fn emit(&mut self, expr: &Expr) -> Result<Value> {
        let others = std::mem::take(&mut self.state.faults);
        let value = self.emit_node(expr);
        // Plans are made with the rule; code that faults beyond it would fail for rows that nobody asked for.
        debug_assert!(!self.state.faults || expr.may_fault(), "{expr:?}");
        self.state.faults |= others;
        value
    }

    fn emit_node(&mut self, expr: &Expr) -> Result<Value> {
        match &expr.node {
            Node::Column(index) => self.column(*index),
            Node::Literal(value) => self.literal(value),
            Node::RowNumber => Ok(self.row_number()),
            Node::Binary { op, left, right } => self.binary(*op, left, right, &expr.data_type),
            Node::Not(operand) => {
                let value = self.emit(operand)?;
                let text = self.bind_bool(format!("!{}", value.text));
                Ok(Value::boolean(text, value.valid))
            }
            Node::Negate(operand) => self.negate(operand, &expr.data_type),
            Node::IsNull(operand) => {
                let value = self.emit(operand)?;
                let text = match &value.valid {
                    None => "false".to_string(),
                    Some(valid) => self.bind_bool(format!("!{valid}")),
                };
                Ok(Value::boolean(text, None))
            }
            Node::IsNotNull(operand) => {
                let value = self.emit(operand)?;
                Ok(Value::boolean(value.valid_text().to_string(), None))
            }
            Node::Cast { value, safe } => self.cast(value, &expr.data_type, *safe),
            Node::Case {
                branches,
                otherwise,
            } => self.case(branches, otherwise.as_deref(), &expr.data_type),
            Node::InList {
                value,
                list,
                negated,
            } => self.in_list(value, list, *negated),
            Node::Coalesce(list) => self.coalesce(list, &expr.data_type),
            Node::DatePart { part, value } => self.date_part(*part, value),
            Node::Calendar { function, value } => self.moved(*function, value),
            Node::Math {
                function,
                arguments,
            } => self.math(*function, arguments),
            Node::PerDistinct { column, function } => self.per_distinct(*column, function),
            Node::PerCombination { inputs, function } => self.per_combination(inputs, function),
        }
    }

    /// The number of the row at hand in the kernel's source.
    fn row_number(&mut self) -> Value {
        let range = Range::new(0, i128::from(self.state.source_bound.max(1) - 1));
        let c_type = CType::for_range(range);
        Value {
            text: self.bind(c_type, format!("({})(row + k)", c_type.name())),
            c_type,
            range,
            valid: None,
            meaning: Meaning::Number,
        }
    }

    /// NULL as a value of a given type; a string is a code of a dictionary without strings.
    pub(in crate::codegen) fn null(&mut self, data_type: &DataType) -> Value {
        let (c_type, text) = match data_type {
            DataType::Boolean => (CType::Bool, "false"),
            DataType::Float32 => (CType::F32, "0.0f"),
            DataType::Float64 => (CType::F64, "0.0"),
            _ => (CType::I32, "0"),
        };
        let meaning = if is_text(data_type) {
            let values = new_empty_array(&text_type(data_type));
            Meaning::Code(Arc::new(Dictionary { values }))
        } else {
            Meaning::Number
        };
        Value {
            text: text.to_string(),
            c_type,
            range: Range::point(0),
            valid: Some("false".to_string()),
            meaning,
        }
    }

    fn literal(&mut self, value: &ScalarValue) -> Result<Value> {
        if value.is_null() {
            return Ok(self.null(&value.data_type()));
        }
        match value {
            ScalarValue::Boolean(Some(b)) => {
                // Part of the kernel's shape: a constant condition folds away.
                Ok(Value::boolean(b.to_string(), None))
            }
            ScalarValue::Float64(Some(f)) => {
                let text = self.float(*f);
                let text = self.bind(CType::F64, text);
                Ok(Value {
                    text,
                    c_type: CType::F64,
                    range: Range::FULL,
                    valid: None,
                    meaning: Meaning::Number,
                })
            }
            ScalarValue::Float32(Some(f)) => {
                let text = self.float(f64::from(*f));
                let text = self.bind(CType::F32, format!("(f32){text}"));
                Ok(Value {
                    text,
                    c_type: CType::F32,
                    range: Range::FULL,
                    valid: None,
                    meaning: Meaning::Number,
                })
            }
            other => match integer_of(other) {
                Some(number) => {
                    let range = Range::point(number);
                    let c_type = CType::for_range(range);
                    let text = self.integer(number);
                    let text = self.bind(c_type, text);
                    Ok(Value {
                        text,
                        c_type,
                        range,
                        valid: None,
                        meaning: Meaning::Number,
                    })
                }
                None if is_text(&other.data_type()) => self.string_constant(other),
                None => unsupported(format!("a constant of type {}", other.data_type())),
            },
        }
    }

    /// Bring the values of CASE branches or COALESCE arguments, not all of them NULL literals, to one type.
    fn unify(&mut self, values: &[Value]) -> Result<(CType, Range, Meaning)> {
        let mut meaning: Option<Meaning> = None;
        let mut range: Option<Range> = None;
        let mut c_type: Option<CType> = None;
        for value in values {
            if value.is_null() {
                continue; // A NULL literal fits any type.
            }
            range = Some(range.map_or(value.range, |r| r.union(value.range)));
            c_type = Some(match c_type {
                None => value.c_type,
                Some(c) if c == value.c_type || (c.is_integer() && value.c_type.is_integer()) => {
                    c.max(value.c_type)
                }
                Some(_) => return Err(GpuError::Internal("branches of different kinds".into())),
            });
            meaning = Some(match (meaning, &value.meaning) {
                (None, m) => m.clone(),
                (Some(Meaning::Number), Meaning::Number) => Meaning::Number,
                (Some(Meaning::Code(a)), Meaning::Code(b)) if Arc::ptr_eq(&a, b) => {
                    Meaning::Code(a)
                }
                _ => return needs_codes("CASE or COALESCE over strings of different columns"),
            });
        }
        Ok((
            c_type.unwrap_or(CType::I32),
            range.unwrap_or(Range::point(0)),
            meaning.unwrap_or(Meaning::Number),
        ))
    }

    fn case(
        &mut self,
        branches: &[(Expr, Expr)],
        otherwise: Option<&Expr>,
        data_type: &DataType,
    ) -> Result<Value> {
        let outer = self.guard.clone();
        let mut tests = Vec::new();
        let mut values = Vec::new();
        let mut remaining = outer.clone();
        for (when, then) in branches {
            self.guard = remaining.clone();
            let condition = self.emit(when)?;
            let test = self.is_true(&condition);
            let taken = match &remaining {
                None => test.clone(),
                Some(r) => self.bind_bool(format!("{r} && {test}")),
            };
            self.guard = Some(taken);
            values.push(self.emit(then)?);
            let passed = match &remaining {
                None => format!("!{test}"),
                Some(r) => format!("{r} && !{test}"),
            };
            remaining = Some(self.bind_bool(passed));
            tests.push(test);
        }
        self.guard = remaining;
        values.push(match otherwise {
            Some(e) => self.emit(e)?,
            None => self.null(data_type),
        });
        self.guard = outer;

        if values.iter().all(Value::is_null) {
            return Ok(self.null(data_type));
        }
        let values = self.one_dictionary(values)?;
        let (c_type, range, meaning) = self.unify(&values)?;
        let select = |parts: Vec<String>| {
            let last = parts.len() - 1;
            let mut text = parts[last].clone();
            for (test, part) in tests.iter().zip(&parts[..last]).rev() {
                text = format!("({test} ? {part} : {text})");
            }
            text
        };
        let texts = values.iter().map(|v| self.widen(v, c_type)).collect();
        let text = self.bind(c_type, select(texts));
        let valid = if values.iter().any(|v| v.valid.is_some()) {
            let parts = values.iter().map(|v| v.valid_text().to_string()).collect();
            Some(self.bind_bool(select(parts)))
        } else {
            None
        };
        Ok(Value {
            text,
            c_type,
            range,
            valid,
            meaning,
        })
    }

    fn coalesce(&mut self, list: &[Expr], data_type: &DataType) -> Result<Value> {
        let values = list
            .iter()
            .map(|e| self.emit(e))
            .collect::<Result<Vec<_>>>()?;
        if values.iter().all(Value::is_null) {
            return Ok(self.null(data_type));
        }
        let values = self.one_dictionary(values)?;
        let (c_type, range, meaning) = self.unify(&values)?;
        let Some((last, init)) = values.split_last() else {
            return Err(GpuError::Internal("COALESCE without arguments".into()));
        };
        let mut text = self.widen(last, c_type);
        let mut valid = last.valid.clone();
        for value in init.iter().rev() {
            match &value.valid {
                None => {
                    text = self.widen(value, c_type);
                    valid = None;
                }
                Some(v) => {
                    text = format!("({v} ? {} : {text})", self.widen(value, c_type));
                    valid = valid.map(|rest| format!("({v} || {rest})"));
                }
            }
        }
        let text = self.bind(c_type, text);
        let valid = valid.map(|v| self.bind_bool(v));
        Ok(Value {
            text,
            c_type,
            range,
            valid,
            meaning,
        })
    }

    fn in_list(&mut self, value: &Expr, list: &[ScalarValue], negated: bool) -> Result<Value> {
        let value = self.emit(value)?;
        let has_null = list.iter().any(ScalarValue::is_null);
        let mut tests = Vec::new();
        if value.c_type.is_integer() {
            let mut wanted = Vec::new();
            for item in list.iter().filter(|i| !i.is_null()) {
                match integer_of(item) {
                    // Constants outside the value's range never match.
                    Some(n) if value.range.contains(n) => wanted.push(n),
                    Some(_) => {}
                    None => return unsupported(format!("IN over {}", item.data_type())),
                }
            }
            wanted.sort_unstable();
            wanted.dedup();
            const INLINE: usize = 8;
            if wanted.len() > INLINE && value.c_type != CType::I128 {
                let numbers: Vec<i64> = wanted.iter().map(|n| *n as i64).collect();
                let (pointer, length) = self.state.sorted_list(&numbers);
                tests.push(format!(
                    "contains_sorted({pointer}, (u32){length}, (i64){})",
                    value.text
                ));
            } else {
                for n in wanted {
                    let constant = self.integer(n);
                    tests.push(format!("{} == {constant}", value.text));
                }
            }
        } else if matches!(value.c_type, CType::F32 | CType::F64) {
            for item in list.iter().filter(|i| !i.is_null()) {
                let constant = self.literal(item)?;
                tests.push(format!(
                    "total_order({}) == total_order({})",
                    value.text, constant.text
                ));
            }
        } else {
            for item in list.iter().filter(|i| !i.is_null()) {
                let constant = self.literal(item)?;
                tests.push(format!("{} == {}", value.text, constant.text));
            }
        }
        let found = if tests.is_empty() {
            "false".to_string()
        } else {
            tests.join(" || ")
        };
        let found = self.bind_bool(found);
        // Not found among constants with a NULL: unknown.
        let valid = match (&value.valid, has_null) {
            (valid, false) => valid.clone(),
            (None, true) => Some(found.clone()),
            (Some(v), true) => Some(self.bind_bool(format!("{v} && {found}"))),
        };
        let text = if negated {
            self.bind_bool(format!("!{found}"))
        } else {
            found
        };
        Ok(Value::boolean(text, valid))
    }
}

/// The integer behind an integer, decimal, date or timestamp constant.
pub(in crate::codegen) fn integer_of(value: &ScalarValue) -> Option<i128> {
    use ScalarValue::*;
    Some(match value {
        Int8(Some(v)) => (*v).into(),
        Int16(Some(v)) => (*v).into(),
        Int32(Some(v)) | Date32(Some(v)) | Time32Second(Some(v)) | Time32Millisecond(Some(v)) => {
            (*v).into()
        }
        Int64(Some(v))
        | Date64(Some(v))
        | Time64Microsecond(Some(v))
        | Time64Nanosecond(Some(v))
        | TimestampSecond(Some(v), _)
        | TimestampMillisecond(Some(v), _)
        | TimestampMicrosecond(Some(v), _)
        | TimestampNanosecond(Some(v), _)
        | DurationSecond(Some(v))
        | DurationMillisecond(Some(v))
        | DurationMicrosecond(Some(v))
        | DurationNanosecond(Some(v)) => (*v).into(),
        UInt8(Some(v)) => (*v).into(),
        UInt16(Some(v)) => (*v).into(),
        UInt32(Some(v)) => (*v).into(),
        UInt64(Some(v)) => (*v).into(),
        Decimal32(Some(v), ..) => (*v).into(),
        Decimal64(Some(v), ..) => (*v).into(),
        Decimal128(Some(v), ..) => *v,
        _ => return None,
    })
}

/// The type of a dictionary of strings of `data_type`.
pub(in crate::codegen) fn text_type(data_type: &DataType) -> DataType {
    match data_type {
        DataType::Dictionary(_, value) => text_type(value),
        opaque if is_opaque(opaque) => DataType::LargeBinary,
        other if is_text(other) => other.clone(),
        _ => DataType::Utf8View,
    }
}
