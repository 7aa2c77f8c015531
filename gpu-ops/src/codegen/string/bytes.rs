//! Expressions over a string that lies as bytes, as statements that call `strings.cuh`.
//!
//! The shape of a pattern (where it has gaps) is part of the kernel, its text is not: constants travel
//! as lookup tables and their lengths as arguments.

use std::sync::Arc;

use arrow::array::StringViewArray;
use arrow::datatypes::DataType;
use datafusion::physical_expr::PhysicalExpr;

use super::packed::{digit, most_chars, packed_range};
use super::plan::{Count, Plan, Text, Token};
use crate::codegen::ir::range::Range;
use crate::codegen::ir::refusal::{needs_codes, unsupported};
use crate::codegen::ir::slot::{ColumnPart, Slot};
use crate::codegen::ir::value::{CType, Meaning, Value};
use crate::codegen::value::scalar::Emitter;
use crate::column::{Column, Dictionary};
use crate::error::{GpuError, Result};
use crate::expr::{BinaryOp, Expr};

/// A string of a bytes column at one place of the generated text.
#[derive(Debug, Clone)]
pub(in crate::codegen) struct TextRef {
    /// C++ pointer to the column's bytes, `const u8*`.
    pub(in crate::codegen) data: String,
    /// C++ `u64`: where the string begins in them. Rows that do not matter (filtered out, past the end, without a
    /// partner) must give an empty string: nothing is read then.
    pub(in crate::codegen) begin: String,
    /// C++ `u64`: where it ends.
    pub(in crate::codegen) end: String,
    /// A C++ `bool` variable that is true when the string is not NULL; `None`: never NULL.
    pub(in crate::codegen) valid: Option<String>,
    /// C++ pointer to the offsets of the column's strings, where they are those of the scanned table's row at hand.
    pub(in crate::codegen) offsets: Option<String>,
    /// All strings of the column are known to be ASCII, so that characters are bytes.
    pub(in crate::codegen) ascii: bool,
}

/// Constants that a block looks for one behind the other at most; the kernel has the text of a search for each.
const MOST_PARTS: usize = 3;

impl TextRef {
    /// The string's column, where `text` is all of a string in the scanned table's row at hand.
    fn in_table(&self, text: &Text) -> Option<(&str, &str)> {
        let offsets = self.offsets.as_deref()?;
        matches!(text, Text::Whole).then_some((self.data.as_str(), offsets))
    }
}

impl Emitter<'_> {
    /// The string in row `row` (a value with [`Meaning::Row`]) of `column`, which lies as bytes; empty where the
    /// row at hand is not `alive`.
    pub(in crate::codegen) fn text_of_row(&mut self, row: &Value, column: &Arc<Column>) -> TextRef {
        self.state.texts += 1;
        // Strings of the row at hand come with its stride where the column is not on the device.
        let own = self.state.own_rows.get(&row.text).copied();
        let (data, offsets) = match own.filter(|_| column.is_in_host_memory()) {
            Some(index) => (
                Slot::Scan(index, ColumnPart::Data),
                Slot::Scan(index, ColumnPart::Offsets),
            ),
            None => {
                let base = self.state.bases.number(column);
                (
                    Slot::Base(base, ColumnPart::Data),
                    Slot::Base(base, ColumnPart::Offsets),
                )
            }
        };
        let arguments = &mut self.state.arguments;
        let data = arguments.pointer(data, "const u8*");
        let offsets = arguments.pointer(offsets, "const u64*");
        let text = self.text_in(row, data, &offsets, column.statistics.ascii);
        TextRef {
            offsets: own.map(|_| offsets),
            ..text
        }
    }

    /// The string whose number is the value `place` among strings that lie one behind the other from `data` on, as `offsets` tell; empty
    /// where the row at hand is not `alive`.
    pub(super) fn text_in(
        &mut self,
        place: &Value,
        data: String,
        offsets: &str,
        ascii: bool,
    ) -> TextRef {
        let reads = match &place.valid {
            None => "alive".to_string(),
            Some(valid) => format!("alive && {valid}"),
        };
        let reads = self.bind_bool(reads);
        let mut offset = |after: &str| {
            let text = format!(
                "{reads} ? (i64)__ldg({offsets} + {}{after}) : 0",
                place.text
            );
            let name = self.bind(CType::I64, text);
            format!("(u64){name}")
        };
        TextRef {
            data,
            begin: offset(""),
            end: offset(" + 1"),
            valid: place.valid.clone(),
            offsets: None,
            ascii,
        }
    }

    /// Emit `function`, an expression over one column of strings of this type (its column 0), for a string that lies as bytes.
    /// Booleans and integers come as such, short strings packed ([`Meaning::Packed`]), CASE over
    /// constant strings as codes of a dictionary of its own.
    ///
    /// # Errors
    /// [`GpuError::Unsupported`] for what [`crate::codegen::bytes_supported`] refuses.
    pub(in crate::codegen) fn text_function(
        &mut self,
        text: TextRef,
        function: &Arc<dyn PhysicalExpr>,
        data_type: &DataType,
    ) -> Result<Value> {
        let plan = Plan::over(function, data_type).map_err(GpuError::NeedsCodes)?;
        self.text_plan(&text, &plan)
    }

    fn text_plan(&mut self, whole: &TextRef, plan: &Plan) -> Result<Value> {
        let valid = whole.valid.clone();
        match plan {
            Plan::Constant(value) => self.emit(&Expr::literal(value.clone())),
            Plan::Text(text) => self.packed(whole, text),
            Plan::Compare(text, op, constant) => {
                let t = self.text_part(whole, text);
                let constant = self.constant(constant);
                let symbol = match op {
                    BinaryOp::Lt => "<",
                    BinaryOp::LtEq => "<=",
                    BinaryOp::Gt => ">",
                    _ => ">=",
                };
                let found = self.bind_bool(format!("text_compare({t}, {constant}) {symbol} 0"));
                Ok(Value::boolean(found, valid))
            }
            Plan::Member {
                text,
                list,
                has_null,
                negated,
            } => {
                let t = self.text_part(whole, text);
                let found = match &list[..] {
                    [] => "false".to_string(),
                    [one] => format!("text_equals({t}, {})", self.constant(one)),
                    many => self.member(&t, many),
                };
                let found = self.bind_bool(found);
                // Not found among constants with a NULL: unknown.
                let valid = match (valid, has_null) {
                    (valid, false) => valid,
                    (None, true) => Some(found.clone()),
                    (Some(v), true) => Some(self.bind_bool(format!("{v} && {found}"))),
                };
                Ok(Value::boolean(self.negated(found, *negated), valid))
            }
            Plan::Like {
                text,
                pattern,
                fold,
                negated,
            } => {
                let t = self.text_part(whole, text);
                let found = self.like(&t, whole.in_table(text), pattern, *fold);
                Ok(Value::boolean(self.negated(found, *negated), valid))
            }
            Plan::Position(text, constant, count) => {
                let t = self.text_part(whole, text);
                let length = self.length(constant.len() as u64);
                let from = format!("(i64){t}.b");
                let end = self.end_of(&t, whole.in_table(text), from, &[constant]);
                let call = match whole.ascii {
                    true => format!("({end} < 0 ? 0 : {end} - (i64)({t}.b + {length}) + 1)"),
                    false => {
                        format!("({end} < 0 ? 0 : text_characters({t}, (u64){end} - {length}) + 1)")
                    }
                };
                Ok(self.count(call, valid, *count))
            }
            Plan::Length(text, count) => {
                let t = self.text_part(whole, text);
                let call = match whole.ascii {
                    true => format!("text_bytes({t})"),
                    false => format!("text_length({t})"),
                };
                Ok(self.count(call, valid, *count))
            }
            Plan::Bytes(text, count) => {
                let t = self.text_part(whole, text);
                Ok(self.count(format!("text_bytes({t})"), valid, *count))
            }
            Plan::IsNull(operand, wanted) => {
                let valid = match &**operand {
                    Plan::Text(_) => valid,
                    other => self.text_plan(whole, other)?.valid,
                };
                let text = match (valid, wanted) {
                    (None, wanted) => (!wanted).to_string(),
                    (Some(valid), true) => self.bind_bool(format!("!{valid}")),
                    (Some(valid), false) => valid,
                };
                Ok(Value::boolean(text, None))
            }
            Plan::Not(operand) => {
                let value = self.text_plan(whole, operand)?;
                let text = self.bind_bool(format!("!{}", value.text));
                Ok(Value::boolean(text, value.valid))
            }
            Plan::Binary(op, left, right) => {
                let l = self.text_plan(whole, left)?;
                let r = self.text_plan(whole, right)?;
                match op {
                    BinaryOp::And | BinaryOp::Or => Ok(self.logic(*op, &l, &r)),
                    _ => self.comparison(*op, &l, &r),
                }
            }
            Plan::Case {
                branches,
                otherwise,
            } => {
                let mut tests = Vec::new();
                let mut values = Vec::new();
                for (when, then) in branches {
                    let when = self.text_plan(whole, when)?;
                    tests.push(self.is_true(&when));
                    values.push(self.text_plan(whole, then)?);
                }
                values.push(match otherwise {
                    Some(plan) => self.text_plan(whole, plan)?,
                    None => self.null(&DataType::Int32),
                });
                self.chosen(&tests, &values)
            }
            Plan::Label {
                branches,
                otherwise,
                strings,
            } => {
                let mut tests = Vec::new();
                for (when, _) in branches {
                    let when = self.text_plan(whole, when)?;
                    tests.push(self.is_true(&when));
                }
                let places = branches.iter().map(|(_, place)| *place).chain([*otherwise]);
                let values: Vec<Value> = places.map(|place| self.code(place)).collect();
                let mut value = self.chosen(&tests, &values)?;
                let values = Arc::new(StringViewArray::from_iter_values(strings));
                value.range = Range::new(0, strings.len().max(1) as i128 - 1);
                value.meaning = Meaning::Code(Arc::new(Dictionary { values }));
                Ok(value)
            }
        }
    }

    /// A constant code, or NULL.
    fn code(&mut self, place: Option<usize>) -> Value {
        match place {
            None => self.null(&DataType::Int32),
            Some(place) => {
                let text = self.integer(place as i128);
                Value {
                    text: self.bind(CType::I32, text),
                    c_type: CType::I32,
                    range: Range::point(place as i128),
                    valid: None,
                    meaning: Meaning::Number,
                }
            }
        }
    }

    /// The value of the first test that is true, else the last value; all booleans or all numbers.
    fn chosen(&mut self, tests: &[String], values: &[Value]) -> Result<Value> {
        let known = |value: &&Value| !value.is_null();
        let mut kinds = values.iter().filter(known).map(|value| value.c_type);
        let c_type = kinds.next().unwrap_or(CType::I32);
        let c_type = kinds.fold(c_type, CType::max);
        let mixed = |value: &Value| (value.c_type == CType::Bool) != (c_type == CType::Bool);
        if values.iter().filter(known).any(mixed) {
            return unsupported("CASE over values of different kinds");
        }
        let range = values.iter().filter(known).map(|value| value.range);
        let range = range.reduce(Range::union).unwrap_or(Range::point(0));
        let select = |parts: Vec<String>| {
            let (last, init) = parts.split_last().map_or(("", &[][..]), |(l, i)| (l, i));
            let pairs = tests.iter().zip(init).rev();
            pairs.fold(last.to_string(), |rest, (test, part)| {
                format!("({test} ? {part} : {rest})")
            })
        };
        let texts = values.iter().map(|v| self.widen(v, c_type)).collect();
        let text = self.bind(c_type, select(texts));
        let valid = match values.iter().any(|value| value.valid.is_some()) {
            true => {
                let parts = values.iter().map(|v| v.valid_text().to_string()).collect();
                Some(self.bind_bool(select(parts)))
            }
            false => None,
        };
        Ok(Value {
            text,
            c_type,
            range,
            valid,
            meaning: Meaning::Number,
        })
    }

    pub(super) fn negated(&mut self, found: String, negated: bool) -> String {
        match negated {
            true => self.bind_bool(format!("!{found}")),
            false => found,
        }
    }

    /// A number of characters or bytes.
    pub(super) fn count(&mut self, text: String, valid: Option<String>, count: Count) -> Value {
        let range = match count {
            Count::Int32 => Range::new(0, i32::MAX.into()),
            // Offsets into a device buffer are far below 2^46.
            Count::Int64 => Range::new(0, 1 << 46),
        };
        let c_type = CType::for_range(range);
        Value {
            text: self.bind(c_type, format!("({})({text})", c_type.name())),
            c_type,
            range,
            valid,
            meaning: Meaning::Number,
        }
    }

    /// A `Text` variable for a part of the string.
    fn text_part(&mut self, whole: &TextRef, part: &Text) -> String {
        let ascii = whole.ascii;
        let prefix = if ascii { "ascii" } else { "text" };
        let call = match part {
            Text::Whole => return self.named_text(whole),
            Text::Slice(inner, from, to) => {
                let inner = self.text_part(whole, inner);
                let to = to.map(|to| to.max(*from));
                let from = self.length(*from);
                let to = to.map_or("~0ull".to_string(), |to| self.length(to));
                format!("{prefix}_slice({inner}, {from}, {to})")
            }
            Text::Last(inner, n) => {
                let inner = self.text_part(whole, inner);
                format!("{prefix}_last({inner}, {})", self.length(*n))
            }
            Text::ButLast(inner, n) => {
                let inner = self.text_part(whole, inner);
                format!("{prefix}_but_last({inner}, {})", self.length(*n))
            }
        };
        self.bind_as("Text", call)
    }

    /// A `Text` variable for a string.
    pub(super) fn named_text(&mut self, text: &TextRef) -> String {
        let TextRef {
            data, begin, end, ..
        } = text;
        self.bind_as("Text", format!("text_at({data}, {begin}, {end})"))
    }

    /// A number of characters or bytes as a `u64` argument.
    fn length(&mut self, value: u64) -> String {
        let value = value.min(1 << 46);
        let text = self.integer(value.into());
        format!("(u64)({text})")
    }

    /// A constant's table and length, as two arguments of a call.
    fn constant(&mut self, bytes: &[u8]) -> String {
        let (table, length) = self.constant_parts(bytes);
        format!("{table}, {length}")
    }

    fn constant_parts(&mut self, bytes: &[u8]) -> (String, String) {
        let length = self.length(bytes.len() as u64);
        (self.table("const u64*", words(bytes)), length)
    }

    /// An `i64` variable: the byte after constants that follow each other in `t` at or after byte `from`, each as early as it
    /// can be, or -1. With the bytes and offsets of a table's strings, all threads of a block look for them, from their begin on.
    fn end_of(
        &mut self,
        t: &str,
        in_table: Option<(&str, &str)>,
        mut from: String,
        parts: &[&Vec<u8>],
    ) -> String {
        let parts: Vec<_> = parts.iter().map(|part| self.constant_parts(part)).collect();
        let together = parts.len().min(MOST_PARTS);
        let search = in_table.and_then(|(data, offsets)| {
            let parts = &parts[..together];
            self.state.search_together(data, offsets, parts)
        });
        let mut rest = &parts[..];
        if let Some(n) = search {
            let end = format!("shared.search{n}.ends[threadIdx.x * WL_ROWS + k]");
            let text =
                format!("together{n} ? text_found({t}, {end}) : text_after({t}, {from}, parts{n})");
            from = self.bind(CType::I64, text);
            rest = &parts[together..];
        }
        for (table, length) in rest {
            let text = format!("text_after({t}, {from}, {table}, {length})");
            from = self.bind(CType::I64, text);
        }
        from
    }

    /// Is `t` one of several constants?
    fn member(&mut self, t: &str, list: &[Vec<u8>]) -> String {
        let mut places = Vec::with_capacity(list.len() * 16);
        let mut texts = Vec::new();
        for constant in list {
            let first = list.len() * 2 + texts.len() / 8;
            places.extend((first as u64).to_ne_bytes());
            places.extend((constant.len() as u64).to_ne_bytes());
            texts.extend(words(constant));
        }
        places.extend(texts);
        let table = self.table("const u64*", places);
        let count = self.length(list.len() as u64);
        format!("text_in({t}, {table}, (u32){count})")
    }

    /// The boolean variable that says whether `t` matches the pattern.
    fn like(
        &mut self,
        t: &str,
        in_table: Option<(&str, &str)>,
        pattern: &[Token],
        fold: bool,
    ) -> String {
        if fold || pattern.contains(&Token::AnyChar) {
            let numbers = pattern
                .iter()
                .flat_map(|token| token.number().to_ne_bytes());
            let table = self.table("const u16*", words(&numbers.collect::<Vec<_>>()));
            let count = self.length(pattern.len() as u64);
            return self.bind_bool(format!("text_like<{fold}>({t}, {table}, (u32){count})"));
        }
        let mut parts: Vec<Vec<u8>> = vec![vec![]];
        for token in pattern {
            match (token, parts.last_mut()) {
                (Token::Byte(byte), Some(part)) => part.push(*byte),
                _ => parts.push(vec![]),
            }
        }
        let last = parts.len() - 1;
        if last == 0 {
            let constant = self.constant(&parts[0]);
            return self.bind_bool(format!("text_equals({t}, {constant})"));
        }
        let mut tests = Vec::new();
        let mut from = format!("(i64){t}.b");
        if !parts[0].is_empty() {
            let constant = self.constant(&parts[0]);
            let starts = self.bind_bool(format!("text_starts({t}, {constant})"));
            let length = self.length(parts[0].len() as u64);
            from = format!("({starts} ? (i64)({t}.b + {length}) : (i64)-1)");
            tests.push(starts);
        }
        let inner = parts[1..last].iter().filter(|part| !part.is_empty());
        let inner: Vec<&Vec<u8>> = inner.collect();
        if !inner.is_empty() {
            let in_table = in_table.filter(|_| parts[0].is_empty());
            from = self.end_of(t, in_table, from, &inner);
            tests = vec![format!("{from} >= 0")];
        }
        if !parts[last].is_empty() {
            let constant = self.constant(&parts[last]);
            let length = self.length(parts[last].len() as u64);
            // The end may not overlap what was matched before.
            if last > 1 || !parts[0].is_empty() {
                tests.push(format!("(u64){from} + {length} <= {t}.e"));
            }
            tests.push(format!("text_ends({t}, {constant})"));
        }
        match tests.is_empty() {
            true => "true".to_string(),
            false => self.bind_bool(tests.join(" && ")),
        }
    }

    /// A short part of the string as a number.
    fn packed(&mut self, whole: &TextRef, part: &Text) -> Result<Value> {
        let ascii = whole.ascii;
        let fits = |chars: &u64| *chars <= most_chars(ascii).into();
        let Some(chars) = part.most_chars().filter(fits) else {
            return needs_codes("long strings computed from strings that lie as bytes");
        };
        let chars = (chars as u8).max(1);
        let bits = digit(ascii).0;
        let t = self.text_part(whole, part);
        let range = packed_range(chars, ascii);
        let c_type = CType::for_range(range);
        let text = format!("({})text_pack<{chars}, {bits}>({t})", c_type.name());
        Ok(Value {
            text: self.bind(c_type, text),
            c_type,
            range,
            valid: whole.valid.clone(),
            meaning: Meaning::Packed { chars, bits },
        })
    }
}

/// The bytes in whole words, at least one.
pub(super) fn words(bytes: &[u8]) -> Vec<u8> {
    let mut words = bytes.to_vec();
    words.resize(bytes.len().next_multiple_of(8).max(8), 0);
    words
}
