//! Draws window functions whose values do not depend on which of several peers comes first.

use super::{Draw, Leaf};
use crate::fuzz::query::Expr;
use crate::fuzz::value::Class;

/// What a `{}` stands for: the argument, or a key.
#[derive(Clone, Copy)]
enum Of {
    Argument,
    Key,
}

use Of::{Argument, Key};

/// Functions of integers.
const NUMBERS: &[(&str, &[Of])] = &[
    (
        "CAST(rank() OVER (PARTITION BY {} ORDER BY {}) AS BIGINT)",
        &[Key, Key],
    ),
    (
        "CAST(rank() OVER (ORDER BY {} DESC, {}) AS BIGINT)",
        &[Key, Key],
    ),
    (
        "CAST(dense_rank() OVER (PARTITION BY {} ORDER BY {} NULLS FIRST) AS BIGINT)",
        &[Key, Key],
    ),
    ("count(*) OVER (PARTITION BY {}, {})", &[Key, Key]),
    ("count({}) OVER (ORDER BY {})", &[Argument, Key]),
    (
        "count({}) OVER (PARTITION BY {} ORDER BY {} RANGE BETWEEN 2 PRECEDING AND 1 FOLLOWING)",
        &[Argument, Key, Argument],
    ),
    (
        "count({}) FILTER (WHERE {} IS NOT NULL) OVER (PARTITION BY {})",
        &[Argument, Key, Key],
    ),
    (
        "count(*) OVER (ORDER BY {} DESC NULLS LAST GROUPS BETWEEN 1 PRECEDING AND 2 FOLLOWING)",
        &[Key],
    ),
];

/// Functions of the class of their argument.
const VALUES: &[(&str, &[Of])] = &[
    ("max({}) OVER (PARTITION BY {})", &[Argument, Key]),
    ("min({}) OVER (ORDER BY {} DESC)", &[Argument, Key]),
    (
        "max({}) OVER (PARTITION BY {} ORDER BY {})",
        &[Argument, Key, Key],
    ),
    (
        "min({}) OVER (PARTITION BY {} ORDER BY {} GROUPS BETWEEN 1 PRECEDING AND 1 FOLLOWING)",
        &[Argument, Key, Key],
    ),
    (
        "max({}) OVER (ORDER BY {}, {} GROUPS BETWEEN CURRENT ROW AND 3 FOLLOWING)",
        &[Argument, Key, Key],
    ),
];

/// Sums.
const SUMS: &[(&str, &[Of])] = &[
    ("sum({}) OVER ()", &[Argument]),
    (
        "sum({}) FILTER (WHERE {} = {}) OVER (ORDER BY {})",
        &[Argument, Argument, Argument, Key],
    ),
    ("sum({}) OVER (PARTITION BY {})", &[Argument, Key]),
    (
        "sum({}) OVER (PARTITION BY {} ORDER BY {})",
        &[Argument, Key, Key],
    ),
];

impl Draw<'_> {
    /// A window function of a class over `leaves`; `None` for classes that have none here.
    pub(crate) fn windowed(&mut self, class: Class, leaves: &[Leaf]) -> Option<Expr> {
        let mut forms: Vec<&(&str, &[Of])> = VALUES.iter().collect();
        match class {
            Class::Int => forms.extend(NUMBERS.iter().chain(SUMS)),
            Class::Decimal => forms.extend(SUMS),
            // Sums of floats depend on the order, extremes among NaN as well.
            Class::Float => return None,
            _ => {}
        }
        let (form, slots) = **self.random.one(&forms);
        let operands = slots
            .iter()
            .map(|slot| match slot {
                Argument => {
                    let depth = *self.random.one(&[0, 0, 1]);
                    self.expr(class, depth, true, leaves)
                }
                Key => {
                    let class = self.some_class(leaves);
                    self.leaf(class, true, leaves)
                }
            })
            .collect();
        Some(Expr::call(class, form, operands))
    }
}
