//! Draws `SELECT`: joins, groups and output columns.

use super::{Ask, Draw, Leaf, leaves_of};
use crate::fuzz::query::{Expr, Join, Node, Relation, Select, Source};
use crate::fuzz::value::Class;

impl Draw<'_> {
    pub(crate) fn select(&mut self, ask: &Ask) -> Select {
        let mut sources = Vec::new();
        let mut leaves: Vec<Leaf> = Vec::new();
        let top = ask.depth >= 2;
        let count = match top {
            true => *self
                .random
                .weighted(&[(30, 1), (34, 2), (20, 3), (8, 4), (5, 5), (3, 6)]),
            false => *self.random.weighted(&[(60, 1), (30, 2), (10, 3)]),
        };
        for i in 0..count {
            let source = self.source(ask, &mut leaves, i == 0);
            sources.push(source);
        }
        let mut filter = Vec::new();
        for _ in 0..*self.random.weighted(&[(40, 0), (45, 1), (15, 2)]) {
            let condition = match self.random.chance(18) {
                true => self.subquery_condition(ask, &leaves),
                false => {
                    let depth = *self.random.one(&[1, 1, 2, 3]);
                    self.condition(depth, &leaves)
                }
            };
            filter.push(condition);
        }
        if !ask.outer.is_empty()
            && let Some(condition) = self.correlation(&ask.outer, &leaves)
        {
            filter.push(condition);
            filter.extend(self.bound(&ask.outer, &leaves));
        }
        let classes = match &ask.classes {
            Some(classes) => classes.clone(),
            None => (0..1 + self.random.below(4))
                .map(|_| self.some_class(&leaves))
                .collect(),
        };
        let distinct = !ask.single && self.random.chance(8);
        let exact = ask.exact || distinct;
        if ask.single || self.random.chance(48) {
            return self.grouped(ask, sources, filter, &leaves, &classes, distinct);
        }
        let items = classes
            .iter()
            .map(|class| {
                if ask.depth > 0 && self.random.chance(4) {
                    return self.scalar(*class, ask, &leaves);
                }
                if self.random.chance(6)
                    && let Some(window) = self.windowed(*class, &leaves)
                {
                    return window;
                }
                let depth = *self.random.one(&[0, 0, 0, 0, 1, 1, 2]);
                self.expr(*class, depth, exact, &leaves)
            })
            .collect();
        Select {
            distinct,
            items,
            sources,
            filter,
            group: None,
            rollup: false,
            having: vec![],
        }
    }

    fn grouped(
        &mut self,
        ask: &Ask,
        sources: Vec<Source>,
        filter: Vec<Expr>,
        leaves: &[Leaf],
        classes: &[Class],
        distinct: bool,
    ) -> Select {
        let exact = ask.exact || distinct;
        let count = match ask.single {
            true => 0,
            false => *self.random.weighted(&[(15, 0), (45, 1), (30, 2), (10, 3)]),
        };
        let keys: Vec<Expr> = (0..count)
            .map(|_| match self.random.below(30) {
                0 => Expr::literal(Class::Int, "CAST(8 AS BIGINT)"),
                1..5 => {
                    let class = self.some_class(leaves);
                    let expr = self.expr(class, 1, true, leaves);
                    self.not_a_position(expr)
                }
                _ => {
                    let class = self.some_class(leaves);
                    let expr = self.leaf(class, true, leaves);
                    self.not_a_position(expr)
                }
            })
            .collect();
        // Outputs are made of keys, and of aggregates as they are needed.
        let of_keys: Vec<Leaf> = keys.iter().cloned().map(Leaf::of).collect();
        let items = classes
            .iter()
            .map(|class| {
                let key = of_keys.iter().any(|leaf| leaf.expr.class == *class);
                match key && self.random.chance(50) {
                    true => self.leaf(*class, exact, &of_keys),
                    false if self.random.chance(80) => self.aggregate(*class, exact, leaves),
                    false => {
                        let mut of = of_keys.clone();
                        for class in [*class, *class, Class::Int] {
                            of.push(Leaf::of(self.aggregate(class, exact, leaves)));
                        }
                        self.expr(*class, 1, exact, &of)
                    }
                }
            })
            .collect();
        let mut having = Vec::new();
        if !ask.single && self.random.chance(18) {
            let mut of = of_keys;
            for _ in 0..2 {
                let class = self.some_class(leaves);
                of.push(Leaf::of(self.aggregate(class, true, leaves)));
            }
            of.retain(|leaf| !leaf.expr.inexact);
            having.push(self.condition(1, &of));
        }
        Select {
            distinct,
            items,
            sources,
            filter,
            // DataFusion takes a constant key for constant in the rows that lack it, too.
            rollup: !keys.is_empty()
                && self.random.chance(12)
                && !keys.iter().any(|key| matches!(key.node, Node::Literal(_))),
            group: Some(keys),
            having,
        }
    }

    /// A number alone would be the position of an output column.
    fn not_a_position(&mut self, key: Expr) -> Expr {
        let text = super::super::render::expr(&key);
        match text.parse::<i64>() {
            Ok(_) => Expr::literal(key.class, format!("CAST({text} AS BIGINT)")),
            Err(_) => key,
        }
    }

    /// The next relation in `FROM`; `leaves` become the columns seen after it.
    fn source(&mut self, ask: &Ask, leaves: &mut Vec<Leaf>, first: bool) -> Source {
        let alias = self.alias();
        let relation = match () {
            () if ask.depth > 0 && self.random.chance(13) => {
                let inner = Ask {
                    depth: ask.depth - 1,
                    ..Ask::default()
                };
                Relation::Derived(Box::new(self.nested(&inner)))
            }
            () if !self.ctes.is_empty() && self.random.chance(50) => {
                Relation::Named(self.ctes[0].0.clone())
            }
            () => Relation::Named(self.random.one(self.tables).name.clone()),
        };
        let right = leaves_of(&relation, &alias, self.tables, &self.ctes);
        if first {
            *leaves = right;
            return Source {
                join: Join::Inner,
                relation,
                alias,
                on: vec![],
            };
        }
        let mut join = *self.random.weighted(&[
            (50, Join::Inner),
            (17, Join::Left),
            (6, Join::Right),
            (6, Join::Full),
            (5, Join::LeftSemi),
            (5, Join::LeftAnti),
            (2, Join::RightSemi),
            (2, Join::RightAnti),
            (3, Join::Cross),
        ]);
        let mut on = Vec::new();
        if join != Join::Cross {
            let keys = *self.random.weighted(&[(9, 0), (74, 1), (17, 2)]);
            for _ in 0..keys {
                on.extend(self.equality(leaves, &right));
            }
            if self.random.chance(12) {
                on.extend(self.band(leaves, &right));
            }
            if on.is_empty() || self.random.chance(14) {
                let both: Vec<Leaf> = leaves.iter().chain(&right).cloned().collect();
                on.push(self.condition(1, &both));
            }
            if on.is_empty() {
                join = Join::Cross;
            }
        }
        if !join.keeps_left() {
            leaves.clear();
        }
        if join.keeps_right() {
            leaves.extend(right);
        }
        Source {
            join,
            relation,
            alias,
            on,
        }
    }

    /// A comparison of columns of two sides, or one with two columns of the other side or around one.
    fn band(&mut self, left: &[Leaf], right: &[Leaf]) -> Option<Expr> {
        let swapped = self.random.chance(50);
        let (one, other) = match swapped {
            true => (right, left),
            false => (left, right),
        };
        if one.is_empty() {
            return None;
        }
        let value = self.random.one(one).expr.clone();
        let class = value.class;
        let ends: Vec<Expr> = other
            .iter()
            .filter(|leaf| leaf.expr.class == class && !leaf.expr.inexact)
            .map(|leaf| leaf.expr.clone())
            .collect();
        if ends.is_empty() || value.inexact || class == Class::Bool {
            return None;
        }
        let (a, b) = (
            self.random.one(&ends).clone(),
            self.random.one(&ends).clone(),
        );
        let around = match class {
            Class::Int => "({} BETWEEN {} - 2 AND {} + 3)",
            Class::Date => "({} BETWEEN {} - INTERVAL '20 days' AND {} + INTERVAL '1 month')",
            _ => "({} BETWEEN {} AND {})",
        };
        let forms = [
            "({} < {})",
            "({} >= {})",
            "({} BETWEEN {} AND {})",
            "({} > {} AND {} >= {})",
            around,
        ];
        let form = *self.random.one(&forms);
        let operands = match form.matches("{}").count() {
            2 => vec![value, a],
            4 => vec![value.clone(), a, b, value],
            _ => vec![value, a.clone(), if form == around { a } else { b }],
        };
        Some(Expr::call(Class::Bool, form, operands))
    }

    /// An equality between columns of two sides, more likely of those that belong together.
    pub(crate) fn equality(&mut self, left: &[Leaf], right: &[Leaf]) -> Option<Expr> {
        let mut pairs = Vec::new();
        for a in left {
            for b in right {
                if a.expr.class != b.expr.class || a.expr.inexact || b.expr.inexact {
                    continue;
                }
                let refers = |a: &Leaf, b: &Leaf| a.reference.is_some() && a.reference == b.origin;
                let weight = match (a.expr.class, a.data_type == b.data_type) {
                    _ if refers(a, b) || refers(b, a) => 40,
                    (Class::Bool | Class::Float, _) => 1,
                    (_, true) => 6,
                    (_, false) => 3,
                };
                pairs.push((weight, (a.expr.clone(), b.expr.clone())));
            }
        }
        if pairs.is_empty() {
            return None;
        }
        let (mut a, mut b) = self.random.weighted(&pairs).clone();
        if self.random.chance(8) {
            let form = match a.class {
                Class::Int => "({} + 1)",
                Class::Text => "upper({})",
                _ => "coalesce({}, {})",
            };
            let operands = vec![a.clone(); form.matches("{}").count()];
            a = Expr::call(a.class, form, operands);
        }
        if self.random.chance(30) {
            std::mem::swap(&mut a, &mut b);
        }
        let form = match self.random.chance(6) {
            true => "({} IS NOT DISTINCT FROM {})",
            false => "({} = {})",
        };
        Some(Expr::call(Class::Bool, form, vec![a, b]))
    }
}
