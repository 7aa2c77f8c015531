//! Draws queries over tables.
//!
//! What decides something (conditions, keys, sets) is exact, so that the answer does not depend on the order of rows; what is only
//! shown may be rounded.

mod expression;
pub(crate) mod forms;
mod recursion;
mod relation;
mod subquery;
mod window;

use arrow::datatypes::DataType;

use super::query::{Body, Expr, Key, Query, Relation, Select};
use super::table::{Table, Traits};
use super::value::Class;
use crate::Random;

/// A value that expressions can be made of.
#[derive(Debug, Clone)]
pub(crate) struct Leaf {
    pub(crate) expr: Expr,
    /// Of columns of tables only.
    pub(crate) data_type: Option<DataType>,
    /// The table's column.
    pub(crate) origin: Option<(usize, usize)>,
    /// The column that it was filled from.
    pub(crate) reference: Option<(usize, usize)>,
}

impl Leaf {
    pub(crate) fn of(expr: Expr) -> Self {
        Self {
            expr,
            data_type: None,
            origin: None,
            reference: None,
        }
    }
}

/// The columns of a relation under an alias. Common table expressions are looked up in `ctes`.
pub(crate) fn leaves_of(
    relation: &Relation,
    alias: &str,
    tables: &[Table],
    ctes: &[(String, Query)],
) -> Vec<Leaf> {
    let query = match relation {
        Relation::Derived(query) => query,
        Relation::Named(name) => match ctes.iter().find(|(cte, _)| cte == name) {
            Some((_, query)) => query,
            None => return columns_of(name, alias, tables),
        },
    };
    let columns = query.classes().into_iter().enumerate();
    columns
        .map(|(i, class)| {
            let mut expr = Expr::column(class, alias, &format!("c{i}"));
            expr.inexact = query.inexact(i);
            Leaf::of(expr)
        })
        .collect()
}

fn columns_of(name: &str, alias: &str, tables: &[Table]) -> Vec<Leaf> {
    let Some((t, table)) = tables.iter().enumerate().find(|(_, t)| t.name == name) else {
        return vec![];
    };
    let columns = table.columns.iter().enumerate();
    columns
        .map(|(c, column)| Leaf {
            expr: Expr::column(
                Class::of(&column.data_type),
                alias,
                &column.reference_in_sql(),
            ),
            data_type: Some(column.data_type.clone()),
            origin: Some((t, c)),
            reference: column.reference,
        })
        .collect()
}

/// The columns that `WHERE` of a query sees, but for those of queries around it.
pub(crate) fn visible(select: &Select, tables: &[Table], ctes: &[(String, Query)]) -> Vec<Leaf> {
    let mut leaves = Vec::new();
    for (i, source) in select.sources.iter().enumerate() {
        if i > 0 && !source.join.keeps_left() {
            leaves.clear();
        }
        if i == 0 || source.join.keeps_right() {
            leaves.extend(leaves_of(&source.relation, &source.alias, tables, ctes));
        }
    }
    leaves
}

/// What a query has to be like.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ask {
    /// How many queries may be inside one another.
    pub(crate) depth: usize,
    /// The classes of the output columns; any when not given.
    pub(crate) classes: Option<Vec<Class>>,
    /// Whether output columns must be exact.
    pub(crate) exact: bool,
    /// At most one row.
    pub(crate) single: bool,
    /// Columns of queries around it.
    pub(crate) outer: Vec<Leaf>,
}

/// Draws queries over some tables.
pub(crate) struct Draw<'a> {
    pub(crate) random: Random,
    pub(crate) tables: &'a [Table],
    pub(crate) traits: Traits,
    /// Whether expressions that can end in an error are drawn.
    pub(crate) faults: bool,
    ctes: Vec<(String, Query)>,
    aliases: usize,
}

impl<'a> Draw<'a> {
    pub(crate) fn new(random: Random, tables: &'a [Table], traits: Traits, faults: bool) -> Self {
        Self {
            random,
            tables,
            traits,
            faults,
            ctes: vec![],
            aliases: 0,
        }
    }

    /// A query.
    pub(crate) fn query(&mut self) -> Query {
        self.aliases = 0;
        self.ctes.clear();
        if self.random.chance(10) {
            let ask = Ask {
                depth: 1,
                ..Ask::default()
            };
            let steps = match self.random.chance(30) {
                true => self.steps("w0"),
                false => None,
            };
            let cte = steps.unwrap_or_else(|| self.nested(&ask));
            self.ctes.push(("w0".into(), cte));
        }
        let ask = Ask {
            depth: 2,
            ..Ask::default()
        };
        let mut query = self.rows(&ask, 14);
        query.ctes = self.ctes.clone();
        self.order(&mut query);
        query
    }

    /// A query in another one, whose rows are determined even when it has a limit.
    pub(crate) fn nested(&mut self, ask: &Ask) -> Query {
        let mut query = self.rows(ask, 8);
        let width = query.items().len();
        let exact = (0..width).all(|column| !query.inexact(column));
        if exact && !ask.single && self.random.chance(8) {
            self.total_order(&mut query);
            query.limit = Some(*self.random.one(&[1, 2, 5, 20]));
        }
        query
    }

    fn rows(&mut self, ask: &Ask, sets: usize) -> Query {
        if ask.depth > 0 && !ask.single && self.random.chance(sets) {
            return self.set(ask);
        }
        Query::of(Body::Select(Box::new(self.select(ask))))
    }

    fn set(&mut self, ask: &Ask) -> Query {
        let operator = *self.random.weighted(&[
            (5, "UNION ALL"),
            (3, "UNION"),
            (2, "INTERSECT"),
            (2, "EXCEPT"),
            (1, "INTERSECT ALL"),
            (1, "EXCEPT ALL"),
        ]);
        let mut ask = ask.clone();
        ask.depth -= 1;
        ask.exact |= operator != "UNION ALL";
        let left = self.rows(&ask, 5);
        ask.classes = Some(left.classes());
        let right = self.rows(&ask, 5);
        Query::of(Body::Set {
            operator,
            left: Box::new(left),
            right: Box::new(right),
        })
    }

    /// The order and the limit of a whole query.
    fn order(&mut self, query: &mut Query) {
        let width = query.items().len();
        let limit = Some(*self.random.one(&[0, 1, 2, 3, 10, 33, 1_000]));
        let exact: Vec<usize> = (0..width).filter(|&i| !query.inexact(i)).collect();
        match self.random.below(20) {
            0..9 => {}
            9..12 => self.total_order(query),
            12..16 if exact.len() == width => {
                self.total_order(query);
                query.limit = limit;
                if self.random.chance(25) {
                    query.offset = Some(*self.random.one(&[0, 1, 5, 40]));
                }
            }
            // Ties may be cut in any way.
            12..18 if !exact.is_empty() => {
                let column = *self.random.one(&exact);
                let key = self.key(column);
                query.order = vec![key];
                query.limit = limit;
            }
            _ => query.limit = limit,
        }
    }

    fn total_order(&mut self, query: &mut Query) {
        let mut columns: Vec<usize> = (0..query.items().len()).collect();
        for i in (1..columns.len()).rev() {
            columns.swap(i, self.random.below(i + 1));
        }
        query.order = columns.into_iter().map(|column| self.key(column)).collect();
    }

    fn key(&mut self, column: usize) -> Key {
        Key {
            column,
            descending: self.random.chance(40),
            nulls_first: *self.random.one(&[None, None, Some(true), Some(false)]),
        }
    }

    pub(crate) fn alias(&mut self) -> String {
        self.aliases += 1;
        format!("r{}", self.aliases)
    }
}
