//! Queries as trees, so that they can be taken apart again.

use super::value::Class;

/// A query: rows, their order, and how many of them.
#[derive(Debug, Clone, PartialEq)]
pub struct Query {
    /// Common table expressions.
    pub ctes: Vec<(String, Query)>,
    /// Where the rows come from.
    pub body: Body,
    /// Output columns to order by.
    pub order: Vec<Key>,
    /// `LIMIT`.
    pub limit: Option<usize>,
    /// `OFFSET`.
    pub offset: Option<usize>,
}

/// The rows of a query.
#[derive(Debug, Clone, PartialEq)]
pub enum Body {
    /// `SELECT …`
    Select(Box<Select>),
    /// Two queries and `UNION ALL` or the like between them.
    Set {
        /// The words between them.
        operator: &'static str,
        /// The first one, whose names the columns bear.
        left: Box<Query>,
        /// The second one.
        right: Box<Query>,
    },
}

/// A key of `ORDER BY`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Key {
    /// Position of the output column, from 0.
    pub column: usize,
    /// `DESC`.
    pub descending: bool,
    /// `NULLS FIRST` or `LAST`; the default of the direction when not given.
    pub nulls_first: Option<bool>,
}

/// `SELECT` to `HAVING`. Output columns are called `c0`, `c1` and so on.
#[derive(Debug, Clone, PartialEq)]
pub struct Select {
    /// `DISTINCT`.
    pub distinct: bool,
    /// The output columns.
    pub items: Vec<Expr>,
    /// What is joined; nothing for a query without `FROM`.
    pub sources: Vec<Source>,
    /// Conditions that all must hold.
    pub filter: Vec<Expr>,
    /// Grouping keys; empty for one group of all rows, `None` without aggregation.
    pub group: Option<Vec<Expr>>,
    /// `ROLLUP` of the keys.
    pub rollup: bool,
    /// Conditions on groups.
    pub having: Vec<Expr>,
}

/// Something in `FROM`.
#[derive(Debug, Clone, PartialEq)]
pub struct Source {
    /// How it is joined to what comes before; of no meaning for the first.
    pub join: Join,
    /// What it is.
    pub relation: Relation,
    /// Its name in the query, used nowhere else in it.
    pub alias: String,
    /// Join conditions that all must hold.
    pub on: Vec<Expr>,
}

/// A table or a query.
#[derive(Debug, Clone, PartialEq)]
pub enum Relation {
    /// A table or a common table expression.
    Named(String),
    /// A query in parentheses.
    Derived(Box<Query>),
}

/// Kinds of joins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Join {
    Inner,
    Left,
    Right,
    Full,
    LeftSemi,
    LeftAnti,
    RightSemi,
    RightAnti,
    Cross,
}

impl Join {
    /// The words between the sides.
    pub fn words(self) -> &'static str {
        match self {
            Self::Inner => "JOIN",
            Self::Left => "LEFT JOIN",
            Self::Right => "RIGHT JOIN",
            Self::Full => "FULL JOIN",
            Self::LeftSemi => "LEFT SEMI JOIN",
            Self::LeftAnti => "LEFT ANTI JOIN",
            Self::RightSemi => "RIGHT SEMI JOIN",
            Self::RightAnti => "RIGHT ANTI JOIN",
            Self::Cross => "CROSS JOIN",
        }
    }

    /// Whether columns of what comes before can be used after it.
    pub fn keeps_left(self) -> bool {
        !matches!(self, Self::RightSemi | Self::RightAnti)
    }

    /// Whether columns of what is joined can be used after it.
    pub fn keeps_right(self) -> bool {
        !matches!(self, Self::LeftSemi | Self::LeftAnti)
    }
}

/// An expression.
#[derive(Debug, Clone, PartialEq)]
pub struct Expr {
    /// What it is about.
    pub class: Class,
    /// Whether its value depends on the order in which floats were summed, or on the machine's rounding: then it may be an
    /// answer, which is compared with a tolerance, but decides nothing.
    pub inexact: bool,
    /// What it is.
    pub node: Node,
}

/// Kinds of expressions.
#[derive(Debug, Clone, PartialEq)]
pub enum Node {
    /// A column of a source.
    Column {
        /// The source's alias.
        relation: String,
        /// The column's name.
        name: String,
    },
    /// A constant, as SQL.
    Literal(String),
    /// SQL in which each `{}` stands for an operand.
    Call {
        /// The text around the operands.
        form: String,
        /// The operands.
        operands: Vec<Expr>,
    },
    /// An aggregate.
    Aggregate {
        /// The function.
        function: &'static str,
        /// `DISTINCT`.
        distinct: bool,
        /// The argument; `*` when there is none.
        argument: Option<Box<Expr>>,
        /// `FILTER (WHERE …)`.
        filter: Option<Box<Expr>>,
    },
    /// `EXISTS (…)`; or `value IN (…)` when there is a value.
    Subquery {
        /// `NOT`.
        negated: bool,
        /// What is looked for.
        value: Option<Box<Expr>>,
        /// Where.
        query: Box<Query>,
    },
    /// The value of a query of one row.
    Scalar(Box<Query>),
}

impl Expr {
    /// A constant.
    pub fn literal(class: Class, text: impl Into<String>) -> Self {
        Self {
            class,
            inexact: false,
            node: Node::Literal(text.into()),
        }
    }

    /// A column of a source.
    pub fn column(class: Class, relation: &str, name: &str) -> Self {
        Self {
            class,
            inexact: false,
            node: Node::Column {
                relation: relation.into(),
                name: name.into(),
            },
        }
    }

    /// SQL around operands; inexact if one of them is.
    pub fn call(class: Class, form: impl Into<String>, operands: Vec<Self>) -> Self {
        Self {
            class,
            inexact: operands.iter().any(|operand| operand.inexact),
            node: Node::Call {
                form: form.into(),
                operands,
            },
        }
    }

    /// Expressions directly below, not those of subqueries.
    pub fn children(&self) -> Vec<&Self> {
        match &self.node {
            Node::Column { .. } | Node::Literal(_) | Node::Scalar(_) => vec![],
            Node::Call { operands, .. } => operands.iter().collect(),
            Node::Aggregate {
                argument, filter, ..
            } => argument.iter().chain(filter).map(|e| &**e).collect(),
            Node::Subquery { value, .. } => value.iter().map(|e| &**e).collect(),
        }
    }

    /// The same, to change.
    pub fn children_mut(&mut self) -> Vec<&mut Self> {
        match &mut self.node {
            Node::Column { .. } | Node::Literal(_) | Node::Scalar(_) => vec![],
            Node::Call { operands, .. } => operands.iter_mut().collect(),
            Node::Aggregate {
                argument, filter, ..
            } => argument
                .iter_mut()
                .chain(filter)
                .map(|e| &mut **e)
                .collect(),
            Node::Subquery { value, .. } => value.iter_mut().map(|e| &mut **e).collect(),
        }
    }

    /// The query in it, if it is a subquery.
    pub fn query(&self) -> Option<&Query> {
        match &self.node {
            Node::Subquery { query, .. } | Node::Scalar(query) => Some(query),
            _ => None,
        }
    }

    /// The same, to change.
    pub fn query_mut(&mut self) -> Option<&mut Query> {
        match &mut self.node {
            Node::Subquery { query, .. } | Node::Scalar(query) => Some(query),
            _ => None,
        }
    }

    /// Whether `test` holds for it or anything below, subqueries left out.
    pub fn any(&self, test: &impl Fn(&Self) -> bool) -> bool {
        test(self) || self.children().into_iter().any(|child| child.any(test))
    }

    /// Calls `change` for it and everything below, subqueries left out.
    pub fn each_mut(&mut self, change: &mut impl FnMut(&mut Self)) {
        change(self);
        for child in self.children_mut() {
            child.each_mut(change);
        }
    }

    /// Whether there is an aggregate in it.
    pub fn has_aggregate(&self) -> bool {
        self.any(&|e| matches!(e.node, Node::Aggregate { .. }))
    }

    /// Whether there is a window function in it.
    pub fn has_window(&self) -> bool {
        self.any(&|e| matches!(&e.node, Node::Call { form, .. } if form.contains(" OVER (")))
    }

    /// Whether there is a subquery in it.
    pub fn has_query(&self) -> bool {
        self.any(&|e| e.query().is_some())
    }
}

impl Select {
    /// All expressions, those of join conditions too.
    pub fn expressions(&self) -> impl Iterator<Item = &Expr> {
        self.items
            .iter()
            .chain(self.sources.iter().flat_map(|source| &source.on))
            .chain(&self.filter)
            .chain(self.group.iter().flatten())
            .chain(&self.having)
    }

    /// The same, to change.
    pub fn expressions_mut(&mut self) -> impl Iterator<Item = &mut Expr> {
        self.items
            .iter_mut()
            .chain(self.sources.iter_mut().flat_map(|source| &mut source.on))
            .chain(&mut self.filter)
            .chain(self.group.iter_mut().flatten())
            .chain(&mut self.having)
    }
}

impl Query {
    /// A query without an order.
    pub fn of(body: Body) -> Self {
        Self {
            ctes: vec![],
            body,
            order: vec![],
            limit: None,
            offset: None,
        }
    }

    /// The output columns: of a set operation those of its first query.
    pub fn items(&self) -> &[Expr] {
        match &self.body {
            Body::Select(select) => &select.items,
            Body::Set { left, .. } => left.items(),
        }
    }

    /// Whether it reads what is called `name`.
    pub fn refers_to(&self, name: &str) -> bool {
        match &self.body {
            Body::Select(select) => select.sources.iter().any(|source| match &source.relation {
                Relation::Named(named) => named == name,
                Relation::Derived(query) => query.refers_to(name),
            }),
            Body::Set { left, right, .. } => left.refers_to(name) || right.refers_to(name),
        }
    }

    /// Classes of the output columns.
    pub fn classes(&self) -> Vec<Class> {
        self.items().iter().map(|item| item.class).collect()
    }

    /// Whether an output column is inexact in any of the queries that make it.
    pub fn inexact(&self, column: usize) -> bool {
        match &self.body {
            Body::Select(select) => select.items.get(column).is_some_and(|item| item.inexact),
            Body::Set { left, right, .. } => left.inexact(column) || right.inexact(column),
        }
    }
}
