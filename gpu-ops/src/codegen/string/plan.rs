//! What an expression over one string column asks of strings that lie as bytes, or why it cannot be asked.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::tree_node::TreeNode;
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::expressions::{
    BinaryExpr, CaseExpr, CastExpr, Column, InListExpr, IsNotNullExpr, IsNullExpr, LikeExpr,
    Literal, NotExpr, TryCastExpr,
};
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use datafusion::scalar::ScalarValue;

use crate::column::{is_binary, is_opaque, is_text};
use crate::expr::BinaryOp;

/// Why an expression needs dictionary codes, in words for EXPLAIN.
pub(in crate::codegen) type Refusal = String;

/// A part of the string, in characters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::codegen) enum Text {
    /// The string.
    Whole,
    /// Characters `from..to`, counted from 0; without `to` all that follow.
    Slice(Box<Text>, u64, Option<u64>),
    /// The last characters.
    Last(Box<Text>, u64),
    /// All but the last characters.
    ButLast(Box<Text>, u64),
}

/// A string between constants.
struct Joined {
    before: Vec<u8>,
    text: Text,
    after: Vec<u8>,
}

/// Type of a number of characters or bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::codegen) enum Count {
    Int32,
    Int64,
}

/// Element of a pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::codegen) enum Token {
    Byte(u8),
    /// `_`
    AnyChar,
    /// `%`
    AnyText,
}

impl Token {
    /// Its number for `text_like` (`strings.cuh`).
    pub(in crate::codegen) fn number(self) -> u16 {
        match self {
            Self::Byte(byte) => byte.into(),
            Self::AnyChar => 256,
            Self::AnyText => 257,
        }
    }
}

/// A computation over the string whose value is no string, save [`Plan::Text`].
#[derive(Debug, Clone, PartialEq)]
pub(in crate::codegen) enum Plan {
    /// Never a string.
    Constant(ScalarValue),
    /// A part of the string itself.
    Text(Text),
    /// Order against a constant: `<`, `<=`, `>` or `>=`.
    Compare(Text, BinaryOp, Vec<u8>),
    /// Is the text one of these, which ascend and are distinct?
    Member {
        text: Text,
        list: Vec<Vec<u8>>,
        /// A NULL among the constants: not found means unknown.
        has_null: bool,
        negated: bool,
    },
    /// LIKE, and with `fold` ILIKE, whose letters are lower case.
    Like {
        text: Text,
        pattern: Vec<Token>,
        fold: bool,
        negated: bool,
    },
    /// Position of a constant in characters from 1, or 0; `Count` is the type of the result.
    Position(Text, Vec<u8>, Count),
    /// Characters.
    Length(Text, Count),
    /// Bytes.
    Bytes(Text, Count),
    IsNull(Box<Plan>, bool),
    Not(Box<Plan>),
    /// AND, OR and comparisons of integers.
    Binary(BinaryOp, Box<Plan>, Box<Plan>),
    Case {
        branches: Vec<(Plan, Plan)>,
        otherwise: Option<Box<Plan>>,
    },
    /// CASE with constant strings for values: their positions among `strings`, which ascend.
    Label {
        branches: Vec<(Plan, Option<usize>)>,
        otherwise: Option<usize>,
        strings: Vec<String>,
    },
}

/// Can `function`, an expression over one column of strings of this type (its column 0), run on strings that lie as bytes?
/// Otherwise that column must come as dictionary codes.
///
/// # Errors
/// What is in the way, for EXPLAIN.
pub fn bytes_supported(
    function: &Arc<dyn PhysicalExpr>,
    data_type: &DataType,
) -> Result<(), String> {
    Plan::over(function, data_type)?.check_values()
}

impl Text {
    /// The most characters it can have.
    pub(in crate::codegen) fn most_chars(&self) -> Option<u64> {
        match self {
            Self::Whole => None,
            Self::Slice(text, from, to) => {
                let own = to.map(|to| to.saturating_sub(*from));
                match (own, text.most_chars()) {
                    (Some(a), Some(b)) => Some(a.min(b)),
                    (a, b) => a.or(b),
                }
            }
            Self::Last(text, n) => Some(text.most_chars().map_or(*n, |most| most.min(*n))),
            Self::ButLast(text, n) => text.most_chars().map(|most| most.saturating_sub(*n)),
        }
    }

    fn new(expr: &Arc<dyn PhysicalExpr>) -> Result<Self, Refusal> {
        if expr.is::<Column>() {
            return Ok(Self::Whole);
        }
        if let Some(inner) = text_cast(expr) {
            return Self::new(inner);
        }
        let Some(function) = expr.downcast_ref::<ScalarFunctionExpr>() else {
            return Err(format!("{expr} is computed once per distinct string"));
        };
        let args = function.args();
        let refused = || format!("{expr} is computed once per distinct string");
        let number = |i: usize| args.get(i).and_then(integer).ok_or_else(refused);
        let text = || match args.first() {
            Some(first) => Self::new(first).map(Box::new),
            None => Err(refused()),
        };
        match (function.name(), args.len()) {
            ("substr" | "substring", 2 | 3) => {
                // Position 1 is the first character; positions before it count against the length.
                let start = number(1)?.checked_sub(1).ok_or_else(refused)?;
                let to = match args.len() {
                    2 => None,
                    _ => match number(2)? {
                        count @ 0.. => Some(start.saturating_add(count).max(0) as u64),
                        _ => return Err(refused()),
                    },
                };
                Ok(Self::Slice(text()?, start.max(0) as u64, to))
            }
            ("left", 2) => match number(1)? {
                n @ 0.. => Ok(Self::Slice(text()?, 0, Some(n as u64))),
                n => Ok(Self::ButLast(text()?, n.unsigned_abs())),
            },
            ("right", 2) => match number(1)? {
                n @ 0.. => Ok(Self::Last(text()?, n as u64)),
                // DataFusion's own answer to the number that has no positive twin.
                i64::MIN => Ok(Self::Slice(text()?, 0, Some(0))),
                n => Ok(Self::Slice(text()?, n.unsigned_abs(), None)),
            },
            _ => Err(refused()),
        }
    }
}

impl Joined {
    fn new(expr: &Arc<dyn PhysicalExpr>) -> Result<Self, Refusal> {
        if let Some(inner) = text_cast(expr) {
            return Self::new(inner);
        }
        if let Some(binary) = expr.downcast_ref::<BinaryExpr>()
            && *binary.op() == Operator::StringConcat
        {
            if let Some(constant) = string(binary.left()) {
                let mut joined = Self::new(binary.right())?;
                joined.before.splice(0..0, constant);
                return Ok(joined);
            }
            if let Some(constant) = string(binary.right()) {
                let mut joined = Self::new(binary.left())?;
                joined.after.extend(constant);
                return Ok(joined);
            }
        }
        Ok(Self {
            before: vec![],
            text: Text::new(expr)?,
            after: vec![],
        })
    }

    /// What the text has to be for the whole to be `constant`, if it can.
    fn strip<'c>(&self, constant: &'c [u8]) -> Option<&'c [u8]> {
        constant
            .strip_prefix(&self.before[..])?
            .strip_suffix(&self.after[..])
    }

    fn plain(self) -> Result<Text, Refusal> {
        if self.before.is_empty() && self.after.is_empty() {
            Ok(self.text)
        } else {
            Err("a concatenation is compared once per distinct string".into())
        }
    }
}

impl Plan {
    /// Understand an expression over column 0, which is of this type.
    pub(in crate::codegen) fn over(
        expr: &Arc<dyn PhysicalExpr>,
        data_type: &DataType,
    ) -> Result<Self, Refusal> {
        if is_opaque(data_type) {
            return Err(format!("{expr} is computed once per distinct value"));
        }
        let plan = Self::new(expr)?;
        // Binary values have no characters, and what is made text of them may be none.
        let as_text = || expr.exists(|e| Ok(text_cast(e).is_some())).unwrap_or(true);
        if is_binary(data_type) && (plan.reads_characters() || as_text()) {
            return Err(format!("{expr} is computed once per distinct string"));
        }
        Ok(plan)
    }

    /// Does it look at anything but whole strings and their bytes?
    fn reads_characters(&self) -> bool {
        match self {
            Self::Constant(_) => false,
            Self::Text(text)
            | Self::Compare(text, ..)
            | Self::Member { text, .. }
            | Self::Bytes(text, _) => *text != Text::Whole,
            Self::Like { .. } | Self::Position(..) | Self::Length(..) => true,
            Self::IsNull(plan, _) | Self::Not(plan) => plan.reads_characters(),
            Self::Binary(_, left, right) => left.reads_characters() || right.reads_characters(),
            Self::Case {
                branches,
                otherwise,
            } => {
                let plans = branches.iter().flat_map(|(when, then)| [when, then]);
                plans
                    .chain(otherwise.as_deref())
                    .any(Self::reads_characters)
            }
            Self::Label { branches, .. } => {
                branches.iter().any(|(when, _)| when.reads_characters())
            }
        }
    }

    /// Understand an expression over column 0, which is text.
    fn new(expr: &Arc<dyn PhysicalExpr>) -> Result<Self, Refusal> {
        let refused = || format!("{expr} is computed once per distinct string");
        if let Some(value) = constant(expr) {
            let plain = value.data_type().is_integer() || value.data_type() == DataType::Boolean;
            return match plain {
                true => Ok(Self::Constant(value)),
                false => Err(refused()),
            };
        }
        if let Some(not) = expr.downcast_ref::<NotExpr>() {
            return Ok(Self::Not(Box::new(Self::new(not.arg())?)));
        }
        if let Some(test) = expr.downcast_ref::<IsNullExpr>() {
            return Ok(Self::IsNull(Box::new(Self::new(test.arg())?), true));
        }
        if let Some(test) = expr.downcast_ref::<IsNotNullExpr>() {
            return Ok(Self::IsNull(Box::new(Self::new(test.arg())?), false));
        }
        if let Some(like) = expr.downcast_ref::<LikeExpr>() {
            let pattern = string(like.pattern()).ok_or_else(refused)?;
            let fold = like.case_insensitive();
            if fold && !pattern.is_ascii() {
                return Err(refused());
            }
            return Ok(Self::Like {
                text: Text::new(like.expr())?,
                pattern: tokens(&pattern, fold),
                fold,
                negated: like.negated(),
            });
        }
        if let Some(list) = expr.downcast_ref::<InListExpr>() {
            return Self::in_list(list).map_err(|cause| cause.unwrap_or_else(refused));
        }
        if let Some(binary) = expr.downcast_ref::<BinaryExpr>() {
            return Self::binary(binary, refused);
        }
        if let Some(cast) = expr.downcast_ref::<CastExpr>()
            && *cast.cast_type() == DataType::Int64
        {
            // Every number of characters or bytes fits.
            let plan = Self::new(cast.expr())?;
            return if plan.is_integer() {
                Ok(plan)
            } else {
                Err(refused())
            };
        }
        if let Some(case) = expr.downcast_ref::<CaseExpr>() {
            return Self::case(case, refused);
        }
        if let Some(function) = expr.downcast_ref::<ScalarFunctionExpr>() {
            return Self::function(function, expr);
        }
        Text::new(expr).map(Self::Text)
    }

    fn in_list(list: &InListExpr) -> Result<Self, Option<Refusal>> {
        let joined = Joined::new(list.expr()).map_err(Some)?;
        let mut wanted = Vec::new();
        let mut has_null = false;
        for item in list.list() {
            match constant(item) {
                Some(value) if value.is_null() => has_null = true,
                _ => wanted.push(string(item).ok_or(None)?),
            }
        }
        Ok(Self::member(&joined, wanted, has_null, list.negated()))
    }

    fn member(joined: &Joined, wanted: Vec<Vec<u8>>, has_null: bool, negated: bool) -> Self {
        let stripped = wanted.iter().filter_map(|constant| joined.strip(constant));
        let mut list: Vec<Vec<u8>> = stripped.map(<[u8]>::to_vec).collect();
        list.sort_unstable();
        list.dedup();
        Self::Member {
            text: joined.text.clone(),
            list,
            has_null,
            negated,
        }
    }

    fn binary(binary: &BinaryExpr, refused: impl Fn() -> Refusal) -> Result<Self, Refusal> {
        let (left, right) = (binary.left(), binary.right());
        let op = match binary.op() {
            Operator::And => BinaryOp::And,
            Operator::Or => BinaryOp::Or,
            Operator::Eq => BinaryOp::Eq,
            Operator::NotEq => BinaryOp::NotEq,
            Operator::Lt => BinaryOp::Lt,
            Operator::LtEq => BinaryOp::LtEq,
            Operator::Gt => BinaryOp::Gt,
            Operator::GtEq => BinaryOp::GtEq,
            _ => return Err(refused()),
        };
        let (side, constant, op) = match (string(left), string(right)) {
            (_, Some(constant)) => (left, constant, op),
            (Some(constant), None) => (right, constant, mirrored(op)),
            (None, None) => {
                let (left, right) = (Self::new(left)?, Self::new(right)?);
                let logic = matches!(op, BinaryOp::And | BinaryOp::Or);
                let numbers = left.is_integer() && right.is_integer();
                if !logic && !numbers {
                    return Err(refused());
                }
                return Ok(Self::Binary(op, Box::new(left), Box::new(right)));
            }
        };
        let joined = Joined::new(side)?;
        match op {
            BinaryOp::Eq => Ok(Self::member(&joined, vec![constant], false, false)),
            BinaryOp::NotEq => Ok(Self::member(&joined, vec![constant], false, true)),
            BinaryOp::And | BinaryOp::Or => Err(refused()),
            _ => Ok(Self::Compare(joined.plain()?, op, constant)),
        }
    }

    fn case(case: &CaseExpr, refused: impl Fn() -> Refusal) -> Result<Self, Refusal> {
        let base = case.expr().map(Joined::new).transpose()?;
        let mut conditions = Vec::new();
        for (when, _) in case.when_then_expr() {
            conditions.push(match &base {
                None => Self::new(when)?,
                Some(joined) => {
                    let constant = string(when).ok_or_else(&refused)?;
                    Self::member(joined, vec![constant], false, false)
                }
            });
        }
        let values: Vec<_> = case.when_then_expr().iter().map(|(_, then)| then).collect();
        let texts: Option<Vec<_>> = values
            .iter()
            .copied()
            .chain(case.else_expr())
            .map(label)
            .collect();
        if let Some(texts) = texts
            && texts.iter().any(Option::is_some)
        {
            let mut strings: Vec<String> = texts.iter().flatten().cloned().collect();
            strings.sort_unstable();
            strings.dedup();
            let place = |text: &Option<String>| {
                let text = text.as_ref()?;
                strings.binary_search(text).ok()
            };
            let mut places: Vec<Option<usize>> = texts.iter().map(place).collect();
            let otherwise = case.else_expr().and_then(|_| places.pop()).flatten();
            return Ok(Self::Label {
                branches: conditions.into_iter().zip(places).collect(),
                otherwise,
                strings,
            });
        }
        let values = values.into_iter().map(Self::new);
        let values = values.collect::<Result<Vec<_>, _>>()?;
        let otherwise = case.else_expr().map(Self::new).transpose()?;
        if values
            .iter()
            .chain(&otherwise)
            .any(|v| matches!(v, Self::Text(_)))
        {
            return Err(refused());
        }
        Ok(Self::Case {
            branches: conditions.into_iter().zip(values).collect(),
            otherwise: otherwise.map(Box::new),
        })
    }

    fn function(
        function: &ScalarFunctionExpr,
        expr: &Arc<dyn PhysicalExpr>,
    ) -> Result<Self, Refusal> {
        let refused = || format!("{expr} is computed once per distinct string");
        let args = function.args();
        let text = || match args.first() {
            Some(first) => Text::new(first),
            None => Err(refused()),
        };
        let constant = || args.get(1).and_then(string).ok_or_else(refused);
        let like = |before: bool, after: bool| {
            let mut pattern = Vec::new();
            pattern.extend(before.then_some(Token::AnyText));
            pattern.extend(constant()?.into_iter().map(Token::Byte));
            pattern.extend(after.then_some(Token::AnyText));
            Ok(Self::Like {
                text: text()?,
                pattern,
                fold: false,
                negated: false,
            })
        };
        let count = match function.return_type() {
            DataType::Int32 => Count::Int32,
            _ => Count::Int64,
        };
        match (function.name(), args.len()) {
            ("starts_with", 2) => like(false, true),
            ("ends_with", 2) => like(true, false),
            ("contains", 2) => like(true, true),
            ("strpos" | "instr" | "position", 2) => Ok(Self::Position(text()?, constant()?, count)),
            ("character_length" | "char_length" | "length", 1) => Ok(Self::Length(text()?, count)),
            ("octet_length", 1) => Ok(Self::Bytes(text()?, count)),
            _ => Text::new(expr).map(Self::Text),
        }
    }

    fn is_integer(&self) -> bool {
        match self {
            Self::Position(..) | Self::Length(..) | Self::Bytes(..) => true,
            Self::Constant(value) => value.data_type().is_integer(),
            _ => false,
        }
    }

    /// A string as result must fit a packed one, whatever its characters.
    fn check_values(&self) -> Result<(), Refusal> {
        match self {
            Self::Text(text) => {
                // Any three characters fit a key word, see `packed.rs`.
                match text.most_chars() {
                    Some(0..=3) => Ok(()),
                    _ => Err("a string of more than three characters is a result".into()),
                }
            }
            _ => Ok(()),
        }
    }
}

fn mirrored(op: BinaryOp) -> BinaryOp {
    match op {
        BinaryOp::Lt => BinaryOp::Gt,
        BinaryOp::LtEq => BinaryOp::GtEq,
        BinaryOp::Gt => BinaryOp::Lt,
        BinaryOp::GtEq => BinaryOp::LtEq,
        other => other,
    }
}

/// The operand of a cast from one string type to another.
fn text_cast(expr: &Arc<dyn PhysicalExpr>) -> Option<&Arc<dyn PhysicalExpr>> {
    // Only strings are under it: the expression has one column, and that holds strings.
    cast_to_text(expr).filter(|inner| Joined::new(inner).is_ok())
}

/// The operand of a cast to strings of characters.
pub(super) fn cast_to_text(expr: &Arc<dyn PhysicalExpr>) -> Option<&Arc<dyn PhysicalExpr>> {
    let (inner, to) = match (
        expr.downcast_ref::<CastExpr>(),
        expr.downcast_ref::<TryCastExpr>(),
    ) {
        (Some(cast), _) => (cast.expr(), cast.cast_type()),
        (_, Some(cast)) => (cast.expr(), cast.cast_type()),
        _ => return None,
    };
    (is_text(to) && !is_binary(to)).then_some(inner)
}

/// A literal, or one that is cast.
fn constant(expr: &Arc<dyn PhysicalExpr>) -> Option<ScalarValue> {
    if let Some(literal) = expr.downcast_ref::<Literal>() {
        return Some(literal.value().clone());
    }
    let cast = expr.downcast_ref::<CastExpr>()?;
    constant(cast.expr())?.cast_to(cast.cast_type()).ok()
}

/// The bytes of a constant string that is not NULL.
fn string(expr: &Arc<dyn PhysicalExpr>) -> Option<Vec<u8>> {
    bytes_of(&constant(expr)?).map(<[u8]>::to_vec)
}

/// The bytes of a string, of characters or of bytes, that is not NULL.
fn bytes_of(value: &ScalarValue) -> Option<&[u8]> {
    match value {
        ScalarValue::Binary(bytes)
        | ScalarValue::LargeBinary(bytes)
        | ScalarValue::BinaryView(bytes)
        | ScalarValue::FixedSizeBinary(_, bytes) => bytes.as_deref(),
        text => text.try_as_str().flatten().map(str::as_bytes),
    }
}

/// A constant string or NULL as the value of a CASE.
fn label(expr: &Arc<dyn PhysicalExpr>) -> Option<Option<String>> {
    let value = constant(expr)?;
    if value.is_null() {
        return Some(None);
    }
    value
        .try_as_str()
        .flatten()
        .map(|text| Some(text.to_string()))
}

fn integer(expr: &Arc<dyn PhysicalExpr>) -> Option<i64> {
    match constant(expr)? {
        ScalarValue::Int64(value) => value,
        ScalarValue::Int32(value) => value.map(i64::from),
        _ => None,
    }
}

/// A LIKE pattern: a backslash takes the next character literally, and itself at the end.
pub(in crate::codegen) fn tokens(pattern: &[u8], fold: bool) -> Vec<Token> {
    let mut tokens = Vec::with_capacity(pattern.len());
    let mut bytes = pattern.iter().copied();
    while let Some(byte) = bytes.next() {
        let token = match byte {
            b'%' => Token::AnyText,
            b'_' => Token::AnyChar,
            b'\\' => Token::Byte(bytes.next().unwrap_or(b'\\')),
            other => Token::Byte(other),
        };
        tokens.push(match token {
            Token::Byte(byte) if fold => Token::Byte(byte.to_ascii_lowercase()),
            other => other,
        });
    }
    tokens.dedup_by(|a, b| *a == Token::AnyText && *b == Token::AnyText);
    tokens
}
