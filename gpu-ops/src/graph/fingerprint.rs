//! What a fragment computes, as a value that two fragments can be compared by.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use datafusion::physical_expr::PhysicalExpr;
use datafusion::scalar::ScalarValue;

use crate::expr::{Expr, Node};

/// What a fragment computes of the columns of its scans: of equal ones the answers over the same columns are equal.
///
/// The structure is text. Constants and functions of DataFusion's are beside it, by their own equality: texts of strings
/// may look like structure, and functions of two sessions may have one name.
#[derive(Debug, Default)]
pub struct Fingerprint {
    text: String,
    constants: Vec<ScalarValue>,
    functions: Vec<Arc<dyn PhysicalExpr>>,
    hash: u64,
}

impl PartialEq for Fingerprint {
    fn eq(&self, other: &Self) -> bool {
        self.hash == other.hash
            && self.text == other.text
            && self.constants == other.constants
            && self.functions == other.functions
    }
}

impl Fingerprint {
    /// Add a piece of structure: a word, or a value whose `Debug` form has no two readings.
    pub fn word(&mut self, word: impl AsRef<str>) {
        self.text.push_str(word.as_ref());
        self.text.push(' ');
    }

    /// Add expressions.
    pub fn exprs<'e>(&mut self, exprs: impl IntoIterator<Item = &'e Expr>) {
        self.word("[");
        for expr in exprs {
            self.expr(expr);
        }
        self.word("]");
    }

    /// Add an expression.
    pub fn expr(&mut self, expr: &Expr) {
        self.word(format!("({:?} {}", expr.data_type, expr.nullable));
        match &expr.node {
            Node::Column(column) => self.word(format!("column {column}")),
            Node::Literal(value) => self.constant(value),
            Node::RowNumber => self.word("row"),
            Node::Binary { op, left, right } => {
                self.word(format!("{op:?}"));
                self.expr(left);
                self.expr(right);
            }
            Node::Not(value) => self.unary("not", value),
            Node::Negate(value) => self.unary("negate", value),
            Node::IsNull(value) => self.unary("null", value),
            Node::IsNotNull(value) => self.unary("not_null", value),
            Node::Cast { value, safe } => self.unary(&format!("cast {safe}"), value),
            Node::Case {
                branches,
                otherwise,
            } => {
                self.word("case");
                self.exprs(branches.iter().flat_map(|(when, then)| [when, then]));
                self.exprs(otherwise.as_deref());
            }
            Node::InList {
                value,
                list,
                negated,
            } => {
                self.unary(&format!("in {negated} {}", list.len()), value);
                list.iter().for_each(|value| self.constant(value));
            }
            Node::Coalesce(list) => {
                self.word("coalesce");
                self.exprs(list);
            }
            Node::DatePart { part, value } => self.unary(&format!("{part:?}"), value),
            Node::Calendar { function, value } => self.unary(&format!("{function:?}"), value),
            Node::Math {
                function,
                arguments,
            } => {
                self.word(format!("{function:?}"));
                self.exprs(arguments);
            }
            Node::PerDistinct { column, function } => {
                self.word(format!("distinct {column}"));
                self.functions.push(Arc::clone(function));
            }
            Node::PerCombination { inputs, function } => {
                self.word("combination");
                self.exprs(inputs);
                self.functions.push(Arc::clone(function));
            }
        }
        self.word(")");
    }

    fn unary(&mut self, word: &str, value: &Expr) {
        self.word(word);
        self.expr(value);
    }

    fn constant(&mut self, value: &ScalarValue) {
        self.word(format!("constant {:?}", value.data_type()));
        self.constants.push(value.clone());
    }

    /// No more is added.
    #[must_use]
    pub fn finished(mut self) -> Self {
        let mut hasher = DefaultHasher::new();
        self.text.hash(&mut hasher);
        self.constants.hash(&mut hasher);
        self.hash = hasher.finish();
        self
    }
}
