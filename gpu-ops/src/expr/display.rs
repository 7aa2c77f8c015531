//! Expressions as text for EXPLAIN, with the names of the pipeline's columns.

use std::fmt;

use arrow::datatypes::FieldRef;

use super::{BinaryOp, Expr, Node};

/// An expression together with the fields of its scope.
pub struct Named<'a> {
    expr: &'a Expr,
    fields: &'a [FieldRef],
}

impl Expr {
    /// The expression with column names from `fields`, for display.
    pub fn named<'a>(&'a self, fields: &'a [FieldRef]) -> Named<'a> {
        Named { expr: self, fields }
    }
}

impl BinaryOp {
    /// SQL's spelling.
    pub fn symbol(self) -> &'static str {
        match self {
            Self::Add => "+",
            Self::Subtract => "-",
            Self::Multiply => "*",
            Self::Divide => "/",
            Self::Modulo => "%",
            Self::Eq => "=",
            Self::NotEq => "<>",
            Self::Lt => "<",
            Self::LtEq => "<=",
            Self::Gt => ">",
            Self::GtEq => ">=",
            Self::And => "AND",
            Self::Or => "OR",
            Self::IsDistinctFrom => "IS DISTINCT FROM",
            Self::IsNotDistinctFrom => "IS NOT DISTINCT FROM",
            Self::BitAnd => "&",
            Self::BitOr => "|",
            Self::BitXor => "^",
            Self::ShiftRight => ">>",
            Self::ShiftLeft => "<<",
            Self::TotalEq => "IS",
            Self::TotalLt => "BEFORE",
        }
    }
}

impl Named<'_> {
    fn child<'b>(&'b self, expr: &'b Expr) -> Named<'b> {
        Named {
            expr,
            fields: self.fields,
        }
    }

    fn column(&self, index: usize) -> &str {
        self.fields.get(index).map_or("?", |f| f.name())
    }
}

impl fmt::Display for Named<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.expr.node {
            Node::Column(index) => f.write_str(self.column(*index)),
            Node::Literal(value) => write!(f, "{value}"),
            Node::RowNumber => f.write_str("row number"),
            Node::Binary { op, left, right } => {
                write!(
                    f,
                    "({} {} {})",
                    self.child(left),
                    op.symbol(),
                    self.child(right)
                )
            }
            Node::Not(e) => write!(f, "NOT {}", self.child(e)),
            Node::Negate(e) => write!(f, "-{}", self.child(e)),
            Node::IsNull(e) => write!(f, "{} IS NULL", self.child(e)),
            Node::IsNotNull(e) => write!(f, "{} IS NOT NULL", self.child(e)),
            Node::Cast { value, safe } => {
                let name = if *safe { "TRY_CAST" } else { "CAST" };
                write!(
                    f,
                    "{name}({} AS {})",
                    self.child(value),
                    self.expr.data_type
                )
            }
            Node::Case {
                branches,
                otherwise,
            } => {
                f.write_str("CASE")?;
                for (when, then) in branches {
                    write!(f, " WHEN {} THEN {}", self.child(when), self.child(then))?;
                }
                if let Some(e) = otherwise {
                    write!(f, " ELSE {}", self.child(e))?;
                }
                f.write_str(" END")
            }
            Node::InList {
                value,
                list,
                negated,
            } => {
                write!(
                    f,
                    "{}{} IN (",
                    self.child(value),
                    if *negated { " NOT" } else { "" }
                )?;
                for (i, item) in list.iter().enumerate() {
                    write!(f, "{}{item}", if i > 0 { ", " } else { "" })?;
                }
                f.write_str(")")
            }
            Node::Coalesce(list) => {
                f.write_str("coalesce(")?;
                for (i, e) in list.iter().enumerate() {
                    write!(f, "{}{}", if i > 0 { ", " } else { "" }, self.child(e))?;
                }
                f.write_str(")")
            }
            Node::Math {
                function,
                arguments,
            } => {
                write!(f, "{}(", function.name())?;
                for (i, e) in arguments.iter().enumerate() {
                    write!(f, "{}{}", if i > 0 { ", " } else { "" }, self.child(e))?;
                }
                f.write_str(")")
            }
            Node::Calendar { function, value } => {
                write!(f, "{function}({})", self.child(value))
            }
            Node::DatePart { part, value } => {
                write!(f, "date_part({}, {})", part.name(), self.child(value))
            }
            Node::PerCombination { inputs, function } => {
                f.write_str("per combination of ")?;
                for (i, e) in inputs.iter().enumerate() {
                    write!(f, "{}{}", if i > 0 { ", " } else { "" }, self.child(e))?;
                }
                write!(f, ": {function}")
            }
            Node::PerDistinct { column, function } => {
                write!(f, "per distinct {}: {function}", self.column(*column))
            }
        }
    }
}
