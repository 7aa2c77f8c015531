//! Relational algebra over device expressions: what a fragment computes, independent of algorithms.
//!
//! A [`Rel`] is made from a physical plan ([`convert`]), rewritten, put into a good order of joins
//! with the statistics of the resident tables, and lowered to a graph of pipelines. Expressions of
//! an operator refer to the columns of its input by position; those of a join to the columns of its
//! left input, then of its right.

pub mod anti_joins;
pub mod codes;
pub mod combinations;
pub mod convert;
pub mod display;
pub mod expr;
pub mod fingerprint;
pub mod first_rows;
pub mod physical;
pub mod rewrite;
pub mod unread;
pub mod walk;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use arrow::datatypes::{DataType, Schema};
use warpline_gpu::expr::Expr;
use warpline_gpu::graph::{ResultColumn, SortKey, Window};
use warpline_gpu::pipeline::Aggregate;
use warpline_gpu::tables::TableSource;

/// A shared relational expression.
pub type RelRef = Arc<Rel>;

/// A relation: an operator over its inputs, and the columns that it has.
#[derive(Clone)]
pub struct Rel {
    /// The operator.
    pub kind: RelKind,
    /// What it yields.
    pub columns: Vec<ResultColumn>,
}

/// A table that a fragment scans.
#[derive(Debug)]
pub struct ScanTable {
    /// The table.
    pub source: TableSource,
    /// Rows of the table, as far as the plan's statistics know.
    pub rows: Option<usize>,
}

/// The operators.
#[derive(Debug, Clone)]
pub enum RelKind {
    /// Columns of a table.
    Scan {
        /// The table.
        table: Arc<ScanTable>,
        /// Column `i` is column `columns[i]` of the table.
        columns: Vec<usize>,
    },
    /// One row without columns.
    One,
    /// The rows for which all conjuncts are true.
    Filter {
        /// Rows.
        input: RelRef,
        /// Conjuncts in evaluation order.
        conjuncts: Vec<Expr>,
    },
    /// Computed columns.
    Project {
        /// Rows.
        input: RelRef,
        /// One expression a column.
        exprs: Vec<Expr>,
    },
    /// A join of two inputs.
    Join(Join),
    /// Groups: the keys, then the calls. Without calls it is DISTINCT, without keys it yields one row.
    Aggregate {
        /// Rows.
        input: RelRef,
        /// Keys and calls.
        aggregate: Aggregate,
    },
    /// The first rows in an order; without keys, any rows.
    Sort {
        /// Rows.
        input: RelRef,
        /// Major key first.
        keys: Vec<SortKey>,
        /// Rows left out at the start.
        skip: u64,
        /// Most rows kept after that.
        fetch: Option<u64>,
    },
    /// The rows, and behind their columns where each lies in an order, in partitions.
    Window {
        /// Rows.
        input: RelRef,
        /// Partition, then order within it.
        keys: Vec<SortKey>,
        /// What is added.
        window: Window,
    },
    /// All rows of all inputs.
    Union(Vec<RelRef>),
    /// The columns of the one row of a subquery beside every row (NULLs when it has none).
    Scalar {
        /// Rows.
        input: RelRef,
        /// At most one row.
        subquery: RelRef,
    },
}

/// A join.
#[derive(Debug, Clone)]
pub struct Join {
    /// The preserved side of outer, semi, anti and mark joins.
    pub left: RelRef,
    /// The other side.
    pub right: RelRef,
    /// What a match means.
    pub kind: JoinKind,
    /// Equal keys: over the left, over the right.
    pub on: Vec<(Expr, Expr)>,
    /// Further conjuncts of the match, over left and right.
    pub residual: Vec<Expr>,
    /// NULL keys match NULL keys.
    pub null_equal: bool,
    /// For inner joins, the side to build, once that is decided.
    pub build: Option<BuildSide>,
}

/// The side of a join that is entered into an index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BuildSide {
    /// The left side.
    Left,
    /// The right side.
    Right,
}

/// The kinds of joins; right-handed ones have been swapped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum JoinKind {
    /// Pairs that match; without keys and residual the cross product.
    Inner,
    /// Pairs, and left rows without a match once with NULLs.
    Left,
    /// Pairs, and the rows of both sides without a match with NULLs.
    Full,
    /// Left rows with a match.
    Semi,
    /// Left rows without a match.
    Anti,
    /// `NOT IN`.
    NullAwareAnti,
    /// Left rows with a Boolean: have they a match?
    Mark,
}

impl JoinKind {
    /// True when the columns of the right side are part of the result.
    pub fn yields_right(self) -> bool {
        matches!(self, Self::Inner | Self::Left | Self::Full)
    }
}

impl Rel {
    /// Columns `columns` of a table.
    pub fn scan(table: Arc<ScanTable>, columns: Vec<usize>) -> RelRef {
        let fields = table.source.schema().fields();
        let described = columns
            .iter()
            .map(|i| ResultColumn {
                name: fields[*i].name().clone(),
                data_type: fields[*i].data_type().clone(),
                nullable: fields[*i].is_nullable(),
            })
            .collect();
        Arc::new(Self {
            kind: RelKind::Scan { table, columns },
            columns: described,
        })
    }

    /// One row without columns.
    pub fn one() -> RelRef {
        Arc::new(Self {
            kind: RelKind::One,
            columns: vec![],
        })
    }

    /// `input` filtered; `input` itself when there is nothing to test.
    pub fn filter(input: RelRef, conjuncts: Vec<Expr>) -> RelRef {
        if conjuncts.is_empty() {
            return input;
        }
        Arc::new(Self {
            columns: input.columns.clone(),
            kind: RelKind::Filter { input, conjuncts },
        })
    }

    /// Computed columns with their names.
    pub fn project(input: RelRef, exprs: Vec<(Expr, String)>) -> RelRef {
        let columns = exprs
            .iter()
            .map(|(expr, name)| ResultColumn {
                name: name.clone(),
                data_type: expr.data_type.clone(),
                nullable: expr.nullable,
            })
            .collect();
        let exprs = exprs.into_iter().map(|(expr, _)| expr).collect();
        Arc::new(Self {
            kind: RelKind::Project { input, exprs },
            columns,
        })
    }

    /// Some columns of `input`; `input` itself when it is all of them in place.
    pub fn select(input: RelRef, columns: &[usize]) -> RelRef {
        if columns.len() == input.columns.len() && columns.iter().enumerate().all(|(i, c)| i == *c)
        {
            return input;
        }
        let exprs = columns
            .iter()
            .map(|i| (input.column(*i), input.columns[*i].name.clone()))
            .collect();
        Self::project(input, exprs)
    }

    /// A join.
    pub fn join(join: Join) -> RelRef {
        let nullable = |columns: &[ResultColumn], outer: bool| -> Vec<ResultColumn> {
            columns
                .iter()
                .map(|c| ResultColumn {
                    nullable: c.nullable || outer,
                    ..c.clone()
                })
                .collect()
        };
        let mut columns = nullable(&join.left.columns, join.kind == JoinKind::Full);
        match join.kind {
            JoinKind::Inner => columns.extend(nullable(&join.right.columns, false)),
            JoinKind::Left | JoinKind::Full => {
                columns.extend(nullable(&join.right.columns, true));
            }
            JoinKind::Mark => columns.push(ResultColumn {
                name: "mark".into(),
                data_type: DataType::Boolean,
                nullable: false,
            }),
            JoinKind::Semi | JoinKind::Anti | JoinKind::NullAwareAnti => {}
        }
        Arc::new(Self {
            kind: RelKind::Join(join),
            columns,
        })
    }

    /// Groups; `names` are those of the keys.
    pub fn aggregate(input: RelRef, aggregate: Aggregate, names: &[String]) -> RelRef {
        let keys = aggregate
            .keys
            .iter()
            .zip(names)
            .map(|(key, name)| ResultColumn {
                name: name.clone(),
                data_type: key.data_type.clone(),
                nullable: key.nullable,
            });
        let calls = aggregate.calls.iter().map(|call| ResultColumn {
            name: call.name.clone(),
            data_type: call.return_type.clone(),
            nullable: call.function != warpline_gpu::pipeline::AggregateFunction::Count,
        });
        let columns = keys.chain(calls).collect();
        Arc::new(Self {
            kind: RelKind::Aggregate { input, aggregate },
            columns,
        })
    }

    /// An order, a limit or both.
    pub fn sort(input: RelRef, keys: Vec<SortKey>, skip: u64, fetch: Option<u64>) -> RelRef {
        Arc::new(Self {
            columns: input.columns.clone(),
            kind: RelKind::Sort {
                input,
                keys,
                skip,
                fetch,
            },
        })
    }

    /// Rows with the columns of a window, which have these names and types.
    pub fn window(
        input: RelRef,
        keys: Vec<SortKey>,
        window: Window,
        added: Vec<(String, DataType)>,
    ) -> RelRef {
        let added = added.into_iter().map(|(name, data_type)| ResultColumn {
            name,
            data_type,
            nullable: false,
        });
        Arc::new(Self {
            columns: input.columns.iter().cloned().chain(added).collect(),
            kind: RelKind::Window {
                input,
                keys,
                window,
            },
        })
    }

    /// All rows of at least one input; columns are those of the first, nullable where any is.
    pub fn union(inputs: Vec<RelRef>) -> RelRef {
        let mut columns = inputs.first().map_or(vec![], |r| r.columns.clone());
        for input in &inputs {
            for (column, other) in columns.iter_mut().zip(&input.columns) {
                column.nullable |= other.nullable;
            }
        }
        Arc::new(Self {
            kind: RelKind::Union(inputs),
            columns,
        })
    }

    /// `input` with the columns of a subquery's row.
    pub fn scalar(input: RelRef, subquery: RelRef) -> RelRef {
        let beside = subquery.columns.iter().map(|c| ResultColumn {
            nullable: true,
            ..c.clone()
        });
        let columns = input.columns.iter().cloned().chain(beside).collect();
        Arc::new(Self {
            kind: RelKind::Scalar { input, subquery },
            columns,
        })
    }

    /// A reference to column `index`.
    pub fn column(&self, index: usize) -> Expr {
        let column = &self.columns[index];
        Expr::column(index, column.data_type.clone(), column.nullable)
    }

    /// References to all columns in order.
    pub fn all_columns(&self) -> Vec<Expr> {
        (0..self.columns.len()).map(|i| self.column(i)).collect()
    }

    /// The inputs, left to right.
    pub fn inputs(&self) -> Vec<&RelRef> {
        match &self.kind {
            RelKind::Scan { .. } | RelKind::One => vec![],
            RelKind::Filter { input, .. }
            | RelKind::Project { input, .. }
            | RelKind::Aggregate { input, .. }
            | RelKind::Sort { input, .. }
            | RelKind::Window { input, .. } => vec![input],
            RelKind::Join(join) => vec![&join.left, &join.right],
            RelKind::Union(inputs) => inputs.iter().collect(),
            RelKind::Scalar { input, subquery } => vec![input, subquery],
        }
    }

    /// The columns as an Arrow schema, for DataFusion's expressions.
    pub fn schema(&self) -> Schema {
        Schema::new(
            self.columns
                .iter()
                .map(|c| {
                    arrow::datatypes::Field::new(c.name.clone(), c.data_type.clone(), c.nullable)
                })
                .collect::<Vec<_>>(),
        )
    }

    /// Name for people: the tables it is made of.
    pub fn label(&self) -> String {
        self.labelled(&mut HashMap::new())
    }

    /// The same; `known` has the labels of relations below.
    fn labelled(&self, known: &mut HashMap<*const Self, String>) -> String {
        let address: *const Self = self;
        if let Some(label) = known.get(&address) {
            return label.clone();
        }
        let mut of = |rel: &RelRef| rel.labelled(known);
        let label = match &self.kind {
            RelKind::Scan { table, .. } => table.source.name().to_string(),
            RelKind::One => "one row".into(),
            RelKind::Filter { input, .. }
            | RelKind::Project { input, .. }
            | RelKind::Sort { input, .. }
            | RelKind::Window { input, .. }
            | RelKind::Scalar { input, .. } => of(input),
            RelKind::Aggregate { input, .. } => format!("groups of {}", of(input)),
            RelKind::Join(join) if join.kind.yields_right() => {
                let (left, right) = (of(&join.left), of(&join.right));
                let tables = [left.as_str(), right.as_str()]
                    .iter()
                    .map(|label| label.matches(" ⋈ ").count() + 1)
                    .sum::<usize>();
                if tables <= 3 {
                    format!("{left} ⋈ {right}")
                } else {
                    // The first table stands for the rest.
                    let first = left.split(" ⋈ ").next().unwrap_or_default();
                    format!(
                        "{first} ⋈ … ⋈ {}",
                        right.rsplit(" ⋈ ").next().unwrap_or_default()
                    )
                }
            }
            RelKind::Join(join) => of(&join.left),
            RelKind::Union(inputs) => inputs.iter().map(of).collect::<Vec<_>>().join(" ∪ "),
        };
        known.insert(address, label.clone());
        label
    }
}

impl fmt::Debug for Rel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for JoinKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Inner => "inner",
            Self::Left => "left",
            Self::Full => "full",
            Self::Semi => "semi",
            Self::Anti => "anti",
            Self::NullAwareAnti => "null-aware anti",
            Self::Mark => "mark",
        })
    }
}
