//! Draws expressions and aggregates.

use super::forms::{FORMS, Form, Nature, Slot, constant};
use super::{Draw, Leaf};
use crate::fuzz::query::{Expr, Node};
use crate::fuzz::value::Class;

impl Draw<'_> {
    /// An expression of a class over `leaves`, ever simpler with depth.
    pub(crate) fn expr(
        &mut self,
        class: Class,
        depth: usize,
        exact: bool,
        leaves: &[Leaf],
    ) -> Expr {
        if depth == 0 || self.random.chance(25) {
            return self.leaf(class, exact, leaves);
        }
        let usable = |form: &&Form| {
            form.result.is_none_or(|result| result == class)
                && match form.nature {
                    Nature::Exact => true,
                    Nature::Inexact => !exact,
                    Nature::InexactAtExtremes => !exact || !self.traits.extremes,
                    Nature::Faulty => self.faults,
                }
        };
        let forms: Vec<(usize, &Form)> = FORMS
            .iter()
            .filter(usable)
            .map(|form| (form.weight, form))
            .collect();
        if forms.is_empty() {
            return self.leaf(class, exact, leaves);
        }
        let form = *self.random.weighted(&forms);
        let any = self.some_class(leaves);
        let operands = form
            .slots
            .iter()
            .map(|slot| match slot {
                Slot::Is(of) => self.expr(*of, depth - 1, exact, leaves),
                Slot::Same => self.expr(class, depth - 1, exact, leaves),
                Slot::Any => self.expr(any, depth - 1, exact, leaves),
                Slot::Constant => self.constant(any),
            })
            .collect();
        let mut expr = Expr::call(class, form.text, operands);
        expr.inexact |= form.nature == Nature::Inexact
            || form.nature == Nature::InexactAtExtremes && self.traits.extremes;
        expr
    }

    /// A column or a constant.
    pub(crate) fn leaf(&mut self, class: Class, exact: bool, leaves: &[Leaf]) -> Expr {
        let fitting: Vec<&Leaf> = leaves
            .iter()
            .filter(|leaf| leaf.expr.class == class && !(exact && leaf.expr.inexact))
            .collect();
        if fitting.is_empty() && self.random.chance(85) {
            let converted = self.converted(class, exact, leaves);
            return converted.unwrap_or_else(|| self.constant(class));
        }
        if fitting.is_empty() || self.random.chance(12) {
            return self.constant(class);
        }
        self.random.one(&fitting).expr.clone()
    }

    /// Something of a class that no leaf has, made of leaves of others.
    fn converted(&mut self, class: Class, exact: bool, leaves: &[Leaf]) -> Option<Expr> {
        let mut there: Vec<Class> = leaves
            .iter()
            .filter(|leaf| !(exact && leaf.expr.inexact))
            .map(|leaf| leaf.expr.class)
            .collect();
        there.sort();
        there.dedup();
        if there.is_empty() {
            return None;
        }
        let any = *self.random.one(&there);
        let usable = |form: &&Form| {
            form.result == Some(class)
                && (form.nature == Nature::Exact || form.nature == Nature::Inexact && !exact)
                && form.slots.iter().all(|slot| match slot {
                    Slot::Is(of) => there.contains(of),
                    Slot::Any | Slot::Constant => true,
                    Slot::Same => false,
                })
        };
        let forms: Vec<(usize, &Form)> = FORMS
            .iter()
            .filter(usable)
            .map(|form| (form.weight, form))
            .collect();
        if forms.is_empty() {
            return None;
        }
        let form = *self.random.weighted(&forms);
        let operands = form
            .slots
            .iter()
            .map(|slot| match slot {
                Slot::Is(of) => self.leaf(*of, exact, leaves),
                Slot::Same | Slot::Any => self.leaf(any, exact, leaves),
                Slot::Constant => self.constant(any),
            })
            .collect();
        let mut expr = Expr::call(class, form.text, operands);
        expr.inexact |= form.nature == Nature::Inexact;
        Some(expr)
    }

    pub(crate) fn constant(&mut self, class: Class) -> Expr {
        Expr::literal(class, constant(&mut self.random, class))
    }

    /// The class of one of the leaves.
    pub(crate) fn some_class(&mut self, leaves: &[Leaf]) -> Class {
        match leaves.is_empty() {
            true => Class::Int,
            false => self.random.one(leaves).expr.class,
        }
    }

    /// A condition.
    pub(crate) fn condition(&mut self, depth: usize, leaves: &[Leaf]) -> Expr {
        self.expr(Class::Bool, depth, true, leaves)
    }

    /// An aggregate of a class over `leaves`.
    pub(crate) fn aggregate(&mut self, class: Class, exact: bool, leaves: &[Leaf]) -> Expr {
        let of = self.some_class(leaves);
        // Minima of floats among NaN depend on the order of rows.
        let wild = self.traits.wild && class == Class::Float;
        let mut choices: Vec<(usize, (&'static str, Option<Class>))> = match class {
            Class::Int => vec![
                (3, ("count", None)),
                (4, ("count", Some(of))),
                (5, ("sum", Some(Class::Int))),
                (1, ("bit_and", Some(class))),
                (1, ("bit_or", Some(class))),
                (1, ("bit_xor", Some(class))),
            ],
            Class::Decimal => vec![
                (5, ("sum", Some(class))),
                (3, ("avg", Some(class))),
                (2, ("median", Some(class))),
            ],
            Class::Float if !exact && !self.traits.extremes => {
                vec![
                    (5, ("sum", Some(class))),
                    (3, ("avg", Some(class))),
                    (3, ("avg", Some(Class::Int))),
                    (2, ("median", Some(class))),
                    (1, ("var_pop", Some(Class::Int))),
                ]
            }
            Class::Float if !self.traits.extremes => vec![(5, ("sum", Some(class)))],
            Class::Bool => vec![
                (3, ("bool_and", Some(class))),
                (3, ("bool_or", Some(class))),
            ],
            Class::Text => vec![(2, ("string_agg", Some(class)))],
            Class::Float | Class::Bytes | Class::List | Class::Date | Class::Timestamp => vec![],
        };
        if !wild {
            choices.push((3, ("min", Some(class))));
            choices.push((3, ("max", Some(class))));
        }
        if choices.is_empty() {
            return self.constant(class);
        }
        let (function, argument) = *self.random.weighted(&choices);
        // DataFusion's groups take every value of bit_xor(DISTINCT).
        let distinct = argument.is_some() && function != "bit_xor" && self.random.chance(16);
        let argument = argument.map(|class| match self.random.chance(10) {
            true => self.constant(class),
            false => {
                let depth = *self.random.one(&[0, 0, 0, 1, 1, 2]);
                self.expr(class, depth, exact, leaves)
            }
        });
        // Where values lie close together and far from 0, DataFusion's one pass loses digits: of ids near 10^9 it keeps eight.
        let argument = argument.map(|value| match function {
            "var_pop" => Expr::call(value.class, "({} % 1000)", vec![value]),
            _ => value,
        });
        let filter = self.random.chance(14).then(|| self.condition(1, leaves));
        // A difference between sums cancels what they agree in.
        let rounded = matches!(
            (function, class),
            ("sum" | "avg" | "median" | "var_pop", Class::Float)
        );
        let inexact = argument.as_ref().is_some_and(|a| a.inexact)
            || rounded && (function != "sum" || self.traits.extremes || self.traits.wild);
        Expr {
            class,
            inexact,
            node: Node::Aggregate {
                function,
                distinct,
                argument: argument.map(Box::new),
                filter: filter.map(Box::new),
            },
        }
    }
}
