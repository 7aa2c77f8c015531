//! Draws recursive queries: what can be reached from some values of a column by the pairs of values that a table has.

use super::{Ask, Draw, Leaf, leaves_of};
use crate::fuzz::query::{Body, Expr, Join, Query, Relation, Select, Source};
use crate::fuzz::value::Class;

impl Draw<'_> {
    /// A query that refers to itself by `name`. Of each value it keeps one row, and makes no others than a column has, so it ends.
    pub(super) fn steps(&mut self, name: &str) -> Option<Query> {
        let alias = self.alias();
        let begin = Relation::Named(self.random.one(self.tables).name.clone());
        let from = leaves_of(&begin, &alias, self.tables, &[]);
        let first = self.random.one(&from).clone();
        let class = first.expr.class;
        if matches!(class, Class::Float | Class::List) {
            return None;
        }
        let mut left = select(first.expr, vec![source(begin, alias, vec![])]);
        if self.random.chance(60) {
            left.filter.push(self.condition(1, &from));
        }

        let (known, alias) = (self.alias(), self.alias());
        let table = Relation::Named(self.random.one(self.tables).name.clone());
        let pairs = leaves_of(&table, &alias, self.tables, &[]);
        let alike = |leaf: &&Leaf| leaf.data_type == first.data_type;
        let to = pairs.iter().find(alike)?.expr.clone();
        let of_class = pairs.iter().filter(|leaf| leaf.expr.class == class);
        let of_class: Vec<&Leaf> = of_class.collect();
        let by = self.random.one(&of_class).expr.clone();
        let value = Expr::column(class, &known, "c0");
        let equal = Expr::call(Class::Bool, "({} = {})", vec![value, by]);
        let earlier = source(Relation::Named(name.into()), known, vec![]);
        let mut right = select(to, vec![earlier, source(table, alias, vec![equal])]);
        if self.random.chance(40) {
            right.filter.push(self.condition(1, &pairs));
        }
        if self.random.chance(15) {
            let ask = Ask {
                depth: 1,
                ..Ask::default()
            };
            right.filter.push(self.subquery_condition(&ask, &pairs));
        }
        Some(Query::of(Body::Set {
            operator: "UNION",
            left: Box::new(Query::of(Body::Select(Box::new(left)))),
            right: Box::new(Query::of(Body::Select(Box::new(right)))),
        }))
    }
}

fn source(relation: Relation, alias: String, on: Vec<Expr>) -> Source {
    Source {
        join: Join::Inner,
        relation,
        alias,
        on,
    }
}

fn select(item: Expr, sources: Vec<Source>) -> Select {
    Select {
        distinct: false,
        items: vec![item],
        sources,
        filter: vec![],
        group: None,
        rollup: false,
        having: vec![],
    }
}
