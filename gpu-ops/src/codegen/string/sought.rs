//! A string sought in another one of the same row: LIKE with a pattern that is a column, `strpos`, `contains` and the like.
//!
//! Looked up by combination there would be as many entries as pairs of strings. Here the searched string is read where it lies, or in
//! a copy of its dictionary; what is sought is an entry of a dictionary, each of which goes to the device as a constant does (a pattern
//! as one of `text_like_coded`, `strings.cuh`). A join that compares all pairs of rows so reads some dozen bytes a pair.

use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::datatypes::{DataType, ToByteSlice};
use datafusion::physical_expr::expressions::{Column, LikeExpr};
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};

use super::bytes::{TextRef, words};
use super::plan::{Count, Token, cast_to_text, tokens};
use crate::codegen::ir::refusal::{needs_codes, unsupported};
use crate::codegen::ir::value::{CType, Meaning, Value};
use crate::codegen::value::scalar::Emitter;
use crate::column::{Dictionary, Texts, is_binary, is_text};
use crate::error::Result;
use crate::expr::Expr;

/// Up to so many combinations a look-up is less work, for the kernel as well: its table stays near.
const FEW_COMBINATIONS: usize = 1 << 16;

/// Bytes of a dictionary that is copied for a program.
const MOST_BYTES: usize = 1 << 30;

/// What is asked of a string.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Search {
    /// LIKE, and with `fold` ILIKE.
    Like {
        fold: bool,
        negated: bool,
    },
    Starts,
    Ends,
    Has,
    /// Position in characters from 1, or 0.
    Position(Count),
}

/// A function of two strings that seeks one in the other.
#[derive(Debug, PartialEq, Eq)]
pub struct Sought {
    search: Search,
    /// Which of the function's inputs is searched.
    whole: usize,
    /// Which is sought.
    part: usize,
}

impl Sought {
    /// What `function` seeks, with input `i` as its column `i`; `None` where it is another function.
    pub fn of(function: &Arc<dyn PhysicalExpr>, inputs: &[Expr]) -> Option<Self> {
        let (search, whole, part) = if let Some(like) = function.downcast_ref::<LikeExpr>() {
            let search = Search::Like {
                fold: like.case_insensitive(),
                negated: like.negated(),
            };
            (search, like.expr(), like.pattern())
        } else {
            let call = function.downcast_ref::<ScalarFunctionExpr>()?;
            let [whole, part] = call.args() else {
                return None;
            };
            let search = match call.name() {
                "starts_with" => Search::Starts,
                "ends_with" => Search::Ends,
                "contains" => Search::Has,
                "strpos" | "instr" | "position" => Search::Position(match call.return_type() {
                    DataType::Int32 => Count::Int32,
                    _ => Count::Int64,
                }),
                _ => return None,
            };
            (search, whole, part)
        };
        let text = |place: &usize| {
            let input = inputs.get(*place).map(|input| &input.data_type);
            input.is_some_and(|of| is_text(of) && !is_binary(of))
        };
        Some(Self {
            search,
            whole: column(whole).filter(text)?,
            part: column(part).filter(text)?,
        })
    }

    /// Can it be refused for what the strings are? Letters of other scripts than ASCII's have cases that kernels do not know.
    pub fn may_be_refused(&self) -> bool {
        matches!(self.search, Search::Like { fold: true, .. })
    }

    /// Which input may lie as bytes.
    pub fn searched(&self) -> usize {
        self.whole
    }
}

/// The column that `expr` is, as whatever type of strings.
fn column(expr: &Arc<dyn PhysicalExpr>) -> Option<usize> {
    if let Some(column) = expr.downcast_ref::<Column>() {
        return Some(column.index());
    }
    column(cast_to_text(expr)?)
}

impl Emitter<'_> {
    /// What `function` of the emitted `values` seeks, unless it is better looked up.
    pub(super) fn seeks(
        function: &Arc<dyn PhysicalExpr>,
        inputs: &[Expr],
        values: &[Value],
    ) -> Option<Sought> {
        let sought = Sought::of(function, inputs)?;
        let mut combinations = 1usize;
        for value in values {
            combinations = match &value.meaning {
                _ if value.is_null() => return None,
                Meaning::Code(dictionary) => combinations.saturating_mul(dictionary.len() + 1),
                _ => usize::MAX,
            };
        }
        (combinations > FEW_COMBINATIONS).then_some(sought)
    }

    /// Emit the search.
    pub(super) fn sought(&mut self, sought: &Sought, values: &[Value]) -> Result<Value> {
        let (whole, part) = (&values[sought.whole], &values[sought.part]);
        let Meaning::Code(parts) = &part.meaning else {
            return needs_codes("strings that are sought in others");
        };
        let text = match &whole.meaning {
            Meaning::Row(column) => self.text_of_row(whole, column),
            Meaning::Code(dictionary) => self.text_of_code(whole, dictionary)?,
            _ => return needs_codes("strings that are computed, and searched"),
        };
        let t = self.named_text(&text);
        let valid = self.both_valid(text.valid.as_deref(), part.valid.as_deref());
        let code = &part.text;
        let test = match sought.search {
            Search::Like { fold, negated } => {
                let table = self.table("const u64*", patterns(&parts.values, fold)?);
                let found = format!("text_like_coded<{fold}>({t}, {table}, (u32){code})");
                let found = self.bind_bool(found);
                return Ok(Value::boolean(self.negated(found, negated), valid));
            }
            Search::Starts => format!("text_starts({t}, {})", self.entry(parts, code)?),
            Search::Ends => format!("text_ends({t}, {})", self.entry(parts, code)?),
            Search::Has => {
                let constant = self.entry(parts, code)?;
                format!("text_find({t}, (i64){t}.b, {constant}) >= 0")
            }
            Search::Position(count) => {
                let constant = self.entry(parts, code)?;
                let at = format!("text_find({t}, (i64){t}.b, {constant})");
                let at = self.bind(CType::I64, at);
                let before = match text.ascii {
                    true => format!("{at} - (i64){t}.b"),
                    false => format!("text_characters({t}, (u64){at})"),
                };
                let place = format!("({at} < 0 ? 0 : {before} + 1)");
                return Ok(self.count(place, valid, count));
            }
        };
        Ok(Value::boolean(self.bind_bool(test), valid))
    }

    /// The words and the length of a code's string, as two arguments of a call.
    fn entry(&mut self, dictionary: &Dictionary, code: &str) -> Result<String> {
        let table = self.table("const u64*", constants(&dictionary.values)?);
        let mut head = |word: usize| {
            let text = format!("(i64)__ldg({table} + 2 * (u64){code} + {word})");
            self.bind(CType::I64, text)
        };
        let (begin, length) = (head(0), head(1));
        Ok(format!("{table} + {begin}, (u64){length}"))
    }

    /// The string of a code, in a copy of its dictionary; empty where the row at hand is not alive.
    fn text_of_code(&mut self, code: &Value, dictionary: &Arc<Dictionary>) -> Result<TextRef> {
        self.state.texts += 1;
        let strings = Texts::new(&dictionary.values)?;
        let mut bytes = Vec::new();
        let mut offsets = vec![0u64];
        for i in 0..strings.len() {
            bytes.extend_from_slice(strings.get(i));
            offsets.push(bytes.len() as u64);
        }
        check_size(bytes.len())?;
        // Code 0 is there without strings as well.
        offsets.resize(offsets.len().max(2), 0);
        let ascii = bytes.is_ascii();
        // Read by pairs of words.
        bytes.resize(bytes.len().next_multiple_of(16).max(16), 0);
        let data = self.table("const u8*", bytes);
        let offsets = self.table("const u64*", offsets.to_byte_slice().to_vec());
        Ok(self.text_in(code, data, &offsets, ascii))
    }
}

fn check_size(bytes: usize) -> Result<()> {
    match bytes <= MOST_BYTES {
        true => Ok(()),
        false => {
            unsupported("strings of more than 1 GiB that are sought, or searched, run on the CPU")
        }
    }
}

/// Strings of bytes as words, each given with its tag and its length: first two words for each, where its own begin (above the `shift`
/// lowest bits, which are the tag) and the length, then those of all.
fn in_words(strings: Vec<(u64, Vec<u8>, usize)>, shift: u32) -> Result<Vec<u8>> {
    // Code 0 is there without strings as well.
    let mut next = 2 * strings.len().max(1) as u64;
    let mut heads = Vec::with_capacity(16 * strings.len().max(1));
    let mut all = Vec::new();
    for (tag, bytes, length) in strings {
        heads.extend((next << shift | tag).to_ne_bytes());
        heads.extend((length as u64).to_ne_bytes());
        let words = words(&bytes);
        next += words.len() as u64 / 8;
        all.extend(words);
        check_size(all.len())?;
    }
    heads.resize(heads.len().max(16), 0);
    heads.extend(all);
    heads.resize(heads.len().max(24), 0);
    Ok(heads)
}

/// Each string as a constant of `strings.cuh`.
fn constants(strings: &ArrayRef) -> Result<Vec<u8>> {
    let strings = Texts::new(strings)?;
    let all = (0..strings.len()).map(|i| strings.get(i));
    in_words(all.map(|s| (0, s.to_vec(), s.len())).collect(), 0)
}

/// Each string as a pattern of `text_like_coded`.
fn patterns(strings: &ArrayRef, fold: bool) -> Result<Vec<u8>> {
    let strings = Texts::new(strings)?;
    let mut all = Vec::with_capacity(strings.len());
    for i in 0..strings.len() {
        let pattern = strings.get(i);
        if fold && !pattern.is_ascii() {
            return unsupported("ILIKE of patterns that are not ASCII runs on the CPU");
        }
        all.push(pattern_entry(&tokens(pattern, fold), fold));
    }
    in_words(all, 3)
}

/// `WL_LIKE_TOKENS` of `strings.cuh`; lesser kinds are plain text, with bit 0 for any text in front and bit 1 for any behind.
const TOKENS: u64 = 4;

/// The kind of a pattern, its bytes, and how many bytes or tokens they are.
fn pattern_entry(pattern: &[Token], fold: bool) -> (u64, Vec<u8>, usize) {
    let (first, rest) = match pattern {
        [Token::AnyText, rest @ ..] => (true, rest),
        rest => (false, rest),
    };
    let (last, middle) = match rest {
        [middle @ .., Token::AnyText] => (true, middle),
        // One alone stands for both.
        [] if first => (true, rest),
        middle => (false, middle),
    };
    let literal = middle.iter().map(|token| match token {
        Token::Byte(byte) => Some(*byte),
        _ => None,
    });
    match literal.collect::<Option<Vec<u8>>>() {
        Some(literal) if !fold => {
            let kind = u64::from(first) | u64::from(last) << 1;
            let length = literal.len();
            (kind, literal, length)
        }
        _ => {
            let tokens = pattern
                .iter()
                .flat_map(|token| token.number().to_ne_bytes());
            (TOKENS, tokens.collect(), pattern.len())
        }
    }
}
