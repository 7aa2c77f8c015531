//! Draws subqueries: `EXISTS`, `IN` and scalar ones, correlated by a comparison or not, as conditions and within them.

use super::{Ask, Draw, Leaf};
use crate::fuzz::query::{Body, Expr, Node, Query};
use crate::fuzz::value::Class;

impl Draw<'_> {
    /// A condition with a subquery; a plain one where queries are deep enough.
    pub(crate) fn subquery_condition(&mut self, ask: &Ask, leaves: &[Leaf]) -> Expr {
        if ask.depth == 0 {
            return self.condition(1, leaves);
        }
        let condition = self.subquery_test(ask, leaves);
        // Where it is not known, these tell.
        let form = *self.random.weighted(&[
            (16, "{}"),
            (2, "({} IS NOT TRUE)"),
            (2, "({} IS NULL)"),
            (1, "(NOT {})"),
            (1, "coalesce({}, TRUE)"),
        ]);
        match form {
            "{}" => condition,
            form => Expr::call(Class::Bool, form, vec![condition]),
        }
    }

    fn subquery_test(&mut self, ask: &Ask, leaves: &[Leaf]) -> Expr {
        let negated = self.random.chance(40);
        let outer = match self.random.chance(50) {
            true => leaves.to_vec(),
            false => vec![],
        };
        let inner = Ask {
            depth: ask.depth - 1,
            exact: true,
            outer,
            ..Ask::default()
        };
        let class = self.some_class(leaves);
        match self.random.below(3) {
            0 => {
                // Without a correlation it would be one value for all rows.
                let inner = Ask {
                    outer: leaves.to_vec(),
                    classes: Some(vec![class]),
                    ..inner
                };
                let query = self.plain(&inner);
                let other = self.with_fewer_conditions(&query);
                let first = condition(negated, None, Box::new(query));
                match other {
                    Some(other) => {
                        let negated = self.random.chance(60) != negated;
                        let second = condition(negated, None, Box::new(other));
                        Expr::call(Class::Bool, "({} AND {})", vec![first, second])
                    }
                    None => first,
                }
            }
            1 => {
                let inner = Ask {
                    classes: Some(vec![class]),
                    ..inner
                };
                let value = self.leaf(class, true, leaves);
                let query = match inner.outer.is_empty() || self.random.chance(40) {
                    true => self.nested(&inner),
                    false => self.plain(&inner),
                };
                condition(negated, Some(Box::new(value)), Box::new(query))
            }
            _ => {
                let value = self.leaf(class, true, leaves);
                let scalar = self.scalar(
                    class,
                    &Ask {
                        exact: true,
                        ..ask.clone()
                    },
                    leaves,
                );
                let form = *self
                    .random
                    .pick(&[&"({} = {})", &"({} < {})", &"({} >= {})"]);
                Expr::call(Class::Bool, form, vec![value, scalar])
            }
        }
    }

    /// A subquery of one row.
    pub(crate) fn scalar(&mut self, class: Class, ask: &Ask, leaves: &[Leaf]) -> Expr {
        let outer = match self.random.chance(40) {
            true => leaves.to_vec(),
            false => vec![],
        };
        let inner = Ask {
            depth: ask.depth.saturating_sub(1),
            classes: Some(vec![class]),
            exact: ask.exact,
            single: true,
            outer,
        };
        let query = self.plain(&inner);
        Expr {
            class,
            inexact: query.inexact(0),
            node: Node::Scalar(Box::new(query)),
        }
    }

    /// A `SELECT` alone, without set operations or limits.
    fn plain(&mut self, ask: &Ask) -> Query {
        Query::of(Body::Select(Box::new(self.select(ask))))
    }

    /// Now and then the same query without one of its conditions, but with the last one, which correlates it: two tests of one table.
    fn with_fewer_conditions(&mut self, query: &Query) -> Option<Query> {
        let mut other = query.clone();
        let Body::Select(select) = &mut other.body else {
            return None;
        };
        let others = select.filter.len().checked_sub(1)?;
        if others == 0 || !self.random.chance(60) {
            return None;
        }
        select.filter.remove(self.random.below(others));
        Some(other)
    }

    /// An equality between a column of a query around and one inside; now and then another comparison.
    pub(crate) fn correlation(&mut self, outer: &[Leaf], leaves: &[Leaf]) -> Option<Expr> {
        let share = if self.random.chance(12) { 100 } else { 0 };
        self.compared_columns(outer, leaves, share)
    }

    /// Now and then a second comparison beside that, of which rows lie on one side: the nearest of them, and totals up to a row.
    pub(crate) fn bound(&mut self, outer: &[Leaf], leaves: &[Leaf]) -> Option<Expr> {
        match self.random.chance(25) {
            true => self.compared_columns(outer, leaves, 90),
            false => None,
        }
    }

    /// A column of a query around compared with one inside, for equality in all but so many cases of a hundred.
    fn compared_columns(&mut self, outer: &[Leaf], leaves: &[Leaf], others: usize) -> Option<Expr> {
        let columns = |of: &[Leaf]| -> Vec<Leaf> {
            let plain = |leaf: &&Leaf| matches!(leaf.expr.node, Node::Column { .. });
            of.iter().filter(plain).cloned().collect()
        };
        let mut equality = self.equality(&columns(outer), &columns(leaves))?;
        if self.random.chance(others)
            && let Node::Call { form, .. } = &mut equality.node
            && form.as_str() == "({} = {})"
        {
            *form = (*self
                .random
                .one(&["({} < {})", "({} <= {})", "({} >= {})", "({} <> {})"]))
            .into();
        }
        Some(equality)
    }
}

fn condition(negated: bool, value: Option<Box<Expr>>, query: Box<Query>) -> Expr {
    Expr {
        class: Class::Bool,
        inexact: false,
        node: Node::Subquery {
            negated,
            value,
            query,
        },
    }
}
