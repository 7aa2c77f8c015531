//! Typed scalar expressions over the columns of a pipeline, with DataFusion's semantics.
//!
//! The planner translates DataFusion's physical expressions into this form; the code generator
//! turns it into CUDA C++. Types are logical Arrow types: how wide a value is on the device is
//! decided at code generation, from the ranges of the resident columns.

mod calendar;
mod display;
mod evaluate;
mod faults;
mod math;
mod zone;

pub use calendar::{Calendar, DatePart, LocalSpan, Span};
pub use display::Named;
pub use evaluate::evaluate_strings;
pub(crate) use evaluate::{evaluate_batch, evaluate_fallible, one_null};
pub use faults::{is_fragile, is_same_ticks};
pub use math::MathFunction;
pub use zone::{Period, Zone};

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::scalar::ScalarValue;

/// One node of an expression tree with its logical type.
#[derive(Debug, Clone)]
pub struct Expr {
    /// What it computes.
    pub node: Node,
    /// Logical type of the value, exactly as DataFusion derives it.
    pub data_type: DataType,
    /// False only when the value can never be NULL.
    pub nullable: bool,
}

/// What an [`Expr`] computes. Operands have been coerced by DataFusion already.
#[derive(Debug, Clone)]
pub enum Node {
    /// Column of the pipeline's scope (see [`crate::pipeline::ScanSource::columns`]).
    Column(usize),
    /// A constant; becomes a kernel argument, never source text.
    Literal(ScalarValue),
    /// The number of the row in the source of its pipeline, from 0: what [`crate::graph::Source::Picked`] finds it by.
    RowNumber,
    /// Arithmetic, comparison or logic.
    Binary {
        /// The operator.
        op: BinaryOp,
        /// Left operand.
        left: Box<Expr>,
        /// Right operand.
        right: Box<Expr>,
    },
    /// Three-valued NOT.
    Not(Box<Expr>),
    /// Arithmetic negation.
    Negate(Box<Expr>),
    /// IS NULL; never NULL itself.
    IsNull(Box<Expr>),
    /// IS NOT NULL; never NULL itself.
    IsNotNull(Box<Expr>),
    /// CAST to the node's type; with `safe` a failed cast is NULL (TRY_CAST), otherwise a fault.
    Cast {
        /// The operand.
        value: Box<Expr>,
        /// TRY_CAST.
        safe: bool,
    },
    /// Searched CASE: the first branch whose condition is true, else `otherwise`, else NULL.
    Case {
        /// (condition, value) in order.
        branches: Vec<(Expr, Expr)>,
        /// ELSE.
        otherwise: Option<Box<Expr>>,
    },
    /// `value [NOT] IN (constants)` with SQL's NULL rules.
    InList {
        /// The tested value.
        value: Box<Expr>,
        /// Constants of the value's type; may hold NULLs.
        list: Vec<ScalarValue>,
        /// NOT IN.
        negated: bool,
    },
    /// The first argument that is not NULL.
    Coalesce(Vec<Expr>),
    /// A calendar field of a date, time or timestamp, as `date_part` returns it.
    DatePart {
        /// Which field.
        part: DatePart,
        /// A date, a time, or a timestamp without time zone.
        value: Box<Expr>,
    },
    /// A date, time or timestamp moved to another one of its type, or a timestamp of a zone made one of none, or the other way round.
    Calendar {
        /// How it is moved.
        function: Calendar,
        /// Date32, a time, or a timestamp.
        value: Box<Expr>,
    },
    /// A function of floats; every operand is a Float64 as the result is.
    Math {
        /// Which function.
        function: MathFunction,
        /// As many as [`MathFunction::arity`] says.
        arguments: Vec<Expr>,
    },
    /// Any deterministic expression over exactly one string column, evaluated by DataFusion once
    /// per distinct value (and once for NULL) and looked up by dictionary code on the device.
    /// This is how comparisons, IN, LIKE, substring, upper … on strings run.
    PerDistinct {
        /// Column of the pipeline's scope; a string column.
        column: usize,
        /// The expression, with the string column as its column 0.
        function: Arc<dyn PhysicalExpr>,
    },
    /// Any deterministic expression over values of which there are few, evaluated by DataFusion once per combination of
    /// them and looked up on the device: strings in dictionaries, Booleans, integers and dates of a small range.
    PerCombination {
        /// The values.
        inputs: Vec<Expr>,
        /// The expression, with input `i` as its column `i`.
        function: Arc<dyn PhysicalExpr>,
    },
}

/// Binary operators.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BinaryOp {
    /// `+`; wraps for integers, faults on 128-bit overflow for decimals.
    Add,
    /// `-`.
    Subtract,
    /// `*`.
    Multiply,
    /// `/`; truncates for integers and decimals, faults on zero.
    Divide,
    /// `%`.
    Modulo,
    /// `=`.
    Eq,
    /// `<>`.
    NotEq,
    /// `<`.
    Lt,
    /// `<=`.
    LtEq,
    /// `>`.
    Gt,
    /// `>=`.
    GtEq,
    /// Three-valued AND.
    And,
    /// Three-valued OR.
    Or,
    /// IS DISTINCT FROM.
    IsDistinctFrom,
    /// IS NOT DISTINCT FROM.
    IsNotDistinctFrom,
    /// `&`.
    BitAnd,
    /// `|`.
    BitOr,
    /// Bitwise exclusive or.
    BitXor,
    /// `>>` by a number of bits modulo the type's width; copies the sign.
    ShiftRight,
    /// `<<` by a number of bits modulo the type's width.
    ShiftLeft,
    /// Equal as CASE with a base expression, NULLIF and IN see it: as `=`, but the two zeros of floats differ.
    TotalEq,
    /// `<` in the total order of floats, where the zeros differ; for everything else as `<`.
    TotalLt,
}

impl Expr {
    /// A column reference.
    pub fn column(index: usize, data_type: DataType, nullable: bool) -> Self {
        Self {
            node: Node::Column(index),
            data_type,
            nullable,
        }
    }

    /// A constant.
    pub fn literal(value: ScalarValue) -> Self {
        Self {
            data_type: value.data_type(),
            nullable: value.is_null(),
            node: Node::Literal(value),
        }
    }

    /// The number of the row at hand in its source.
    pub fn row_number() -> Self {
        Self {
            node: Node::RowNumber,
            data_type: DataType::UInt64,
            nullable: false,
        }
    }

    /// Call `visit` with every column of the scope that the expression reads.
    pub fn for_each_column(&self, visit: &mut impl FnMut(usize)) {
        match &self.node {
            Node::Column(index) | Node::PerDistinct { column: index, .. } => visit(*index),
            Node::Literal(_) | Node::RowNumber => {}
            Node::Binary { left, right, .. } => {
                left.for_each_column(visit);
                right.for_each_column(visit);
            }
            Node::Not(e)
            | Node::Negate(e)
            | Node::IsNull(e)
            | Node::IsNotNull(e)
            | Node::Cast { value: e, .. }
            | Node::InList { value: e, .. }
            | Node::Calendar { value: e, .. }
            | Node::DatePart { value: e, .. } => e.for_each_column(visit),
            Node::Case {
                branches,
                otherwise,
            } => {
                for (when, then) in branches {
                    when.for_each_column(visit);
                    then.for_each_column(visit);
                }
                if let Some(e) = otherwise {
                    e.for_each_column(visit);
                }
            }
            Node::Coalesce(list)
            | Node::PerCombination { inputs: list, .. }
            | Node::Math {
                arguments: list, ..
            } => list.iter().for_each(|e| e.for_each_column(visit)),
        }
    }
}
