//! Cardinality estimation: rows of a relation and statistics of its columns, from resident tables.
//!
//! Base figures (rows, ranges, NULLs, distinct values) are exact. Conditions on the columns of a table are asked of a sample of
//! its rows, together. Everything else assumes uniform values, independent columns and keys that find their partners (Selinger
//! et al., 1979, with the containment assumption for joins).

mod column;
mod groups;
mod overlap;
mod sampled;
mod selectivity;
mod unique;

pub use column::{ColumnEstimate, Estimate};
use column::{Origin, base, fewer, outer};
pub(crate) use column::{combinations, of_expr};
pub use unique::Proof;

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use warpline_gpu::column::ColumnStatistics;
use warpline_gpu::expr::Expr;
use warpline_gpu::pipeline::AggregateFunction;

use crate::choose::zipf;
use crate::config::IndexJoins;
use crate::rel::expr::{as_column, columns};
use crate::rel::walk::below_projections;
use crate::rel::{Join, JoinKind, Rel, RelKind, RelRef, ScanTable};

/// Minimum share of rows without a match, where all are estimated to have one.
const LEAST_UNMATCHED: f64 = 0.05;

/// Statistics of the tables of a fragment.
pub trait TableFacts {
    /// Rows of the table.
    fn rows(&self, table: &Arc<ScanTable>) -> f64;

    /// Statistics of a column, by its position in the table.
    fn column(&self, table: &Arc<ScanTable>, column: usize) -> Option<&ColumnStatistics>;
}

/// Possible keys for each row up to which an index is an array.
const SPARSE: f64 = 16.0;

/// Computes estimates, once for each relation.
pub struct Estimator<'a> {
    facts: &'a dyn TableFacts,
    /// Whether indexes over whole tables are kept.
    kept: IndexJoins,
    /// Upper bound of bytes of one of them.
    index_room: u64,
    /// By address; the relation is held so that its address stays its own.
    known: RefCell<HashMap<*const Rel, (RelRef, Arc<Estimate>)>>,
}

impl<'a> Estimator<'a> {
    /// Nothing is estimated yet.
    pub fn new(facts: &'a dyn TableFacts) -> Self {
        Self {
            facts,
            kept: IndexJoins::Off,
            index_room: u64::MAX,
            known: RefCell::default(),
        }
    }

    /// With indexes over whole tables that exist already or are built once for later queries, unless the setting is
    /// off; those of more than about `index_room` bytes are not kept.
    #[must_use]
    pub fn with_kept_indexes(self, kept: IndexJoins, index_room: u64) -> Self {
        Self {
            kept,
            index_room,
            ..self
        }
    }

    /// The cost of building an index over `rel` by `keys`, with `payload` bytes a row if they are known, when it is a
    /// kept one: nothing, or less than anything else where the setting forces kept indexes. `None` when it must be
    /// built, also where it would be too large to keep, whatever the setting.
    pub fn kept_cost(&self, rel: &RelRef, keys: &[Expr], payload: Option<f64>) -> Option<f64> {
        /// Below any sum of costs.
        const PREFERRED: f64 = -1e18;
        let cost = match self.kept {
            IndexJoins::Off => return None,
            IndexJoins::On => PREFERRED,
            IndexJoins::Auto => 0.0,
        };
        let fits = || self.index_bytes(rel, keys, payload) <= self.index_room as f64;
        (self.is_keyed_table(rel, keys) && fits()).then_some(cost)
    }

    /// Is `rel` a table whose indexes outlive the query, and are the keys columns of it?
    fn is_keyed_table(&self, rel: &RelRef, keys: &[Expr]) -> bool {
        matches!(&rel.kind, RelKind::Scan { table, .. } if table.source.input().is_none())
            && !keys.is_empty()
            && keys.iter().all(|key| as_column(key).is_some())
    }

    /// Is it cheaper to look the left rows of a semi or anti join up in an index over the whole right side, a table, that is kept, and to
    /// read what its conditions ask of all entries found, than to go over the table? Not where they are known by their key alone: a set
    /// serves those, if anything.
    pub fn asks_kept(&self, join: &Join) -> bool {
        /// Bytes that a random access moves.
        const SECTOR: f64 = 32.0;
        /// Bytes of a row that going over the table reads, with the index or the marks that this needs.
        const STREAMED: f64 = 8.0;
        /// One thread goes over the entries of a key, the others of its warp wait.
        const MOST_REPEATS: f64 = 16.0;
        /// Estimates are uncertain.
        const CLEARLY: f64 = 2.0;
        let rel = &join.right;
        let keys: Vec<Expr> = join.on.iter().map(|(_, key)| key.clone()).collect();
        let n = join.left.columns.len();
        let read: BTreeSet<usize> = join.residual.iter().flat_map(columns).collect();
        let mut read = read.range(n..).map(|column| column - n).peekable();
        if keys.is_empty() || join.null_equal || read.peek().is_none() {
            return false;
        }
        let repeats = self.repeats(rel, &keys);
        if repeats > MOST_REPEATS {
            return false;
        }
        let estimate = self.estimate(rel);
        let width = |column: usize| {
            let column = estimate.columns.get(column);
            column.map_or(8.0, ColumnEstimate::width)
        };
        let widths: Vec<f64> = read.map(width).collect();
        let bytes = widths.iter().sum();
        if self.kept_cost(rel, &keys, Some(bytes)).is_none() {
            return false;
        }
        let entries = widths.iter().map(|bytes| (bytes * repeats).max(SECTOR));
        let asked = self.rows(&join.left) * (SECTOR + entries.sum::<f64>());
        asked * CLEARLY < self.rows(rel) * STREAMED
    }

    /// Is the set of the keys that a whole table has, by one column, a bitmap that is kept?
    pub fn keeps_set(&self, rel: &RelRef, keys: &[Expr]) -> bool {
        let [key] = keys else {
            return false;
        };
        let Some((table, key)) = below_projections(rel, key) else {
            return false;
        };
        let fits = |possible: f64| {
            possible <= SPARSE * self.rows(table) && possible / 8.0 <= self.index_room as f64
        };
        self.kept != IndexJoins::Off
            && self.is_keyed_table(table, std::slice::from_ref(key))
            && self.possible_keys(table, key).is_some_and(fits)
    }

    /// How many values lie between the least and the greatest of a key, where these are known.
    fn possible_keys(&self, rel: &RelRef, key: &Expr) -> Option<f64> {
        let range = self.of_expr(rel, key).range;
        range.map(|(low, high)| high - low + 1.0)
    }

    /// Approximate bytes of an index over `rel` by the columns `keys`: an array over all possible keys where these
    /// are few, else a hash table, and entries with `payload` bytes.
    fn index_bytes(&self, rel: &RelRef, keys: &[Expr], payload: Option<f64>) -> f64 {
        /// Bytes of a key, and of an entry's columns where they are not known yet.
        const ENTRY: f64 = 8.0;
        /// A place by key or a number of an entry.
        const NUMBER: f64 = 4.0;
        let rows = self.rows(rel);
        let payload = payload.unwrap_or(ENTRY);
        let columns = keys.iter().filter_map(as_column).collect();
        let domain = match keys {
            [key] => self.possible_keys(rel, key),
            _ => None,
        };
        match domain.filter(|domain| *domain <= SPARSE * rows) {
            Some(domain) if self.unique(rel, &columns, Proof::Plausible) => domain * payload,
            // The table's rows are the entries.
            Some(domain) if self.is_in_order(rel, keys) => domain * NUMBER,
            Some(domain) => domain * NUMBER + rows * payload,
            None => {
                let slots = (2.0 * rows.max(1.0)).log2().ceil().exp2();
                slots * (ENTRY + NUMBER) + rows * (ENTRY + payload)
            }
        }
    }

    /// Are the rows of a table in the order of the only key?
    fn is_in_order(&self, rel: &RelRef, keys: &[Expr]) -> bool {
        let key = match keys {
            [key] => as_column(key),
            _ => None,
        };
        key.is_some_and(|column| self.clustered(rel, column))
    }

    /// Average number of rows with the key of a row: the matches of a probe with a key drawn from the rows. Much more
    /// than rows over distinct keys when some keys are frequent.
    pub fn repeats(&self, rel: &RelRef, keys: &[Expr]) -> f64 {
        let equal = keys.iter().map(|key| {
            let key = self.of_expr(rel, key);
            zipf::equal_keys(key.distinct, key.skew)
        });
        self.rows(rel) / equal.product::<f64>()
    }

    /// Do some keys have many times the rows that others have?
    pub fn has_frequent_keys(&self, rel: &RelRef, keys: &[Expr]) -> bool {
        /// Rows with the key of a row that is drawn, for each row with a key that is drawn.
        const MANY: f64 = 4.0;
        let mut keys = keys.iter().map(|key| self.of_expr(rel, key));
        keys.any(|key| key.distinct > MANY * zipf::equal_keys(key.distinct, key.skew))
    }

    /// The estimate for `rel`.
    pub fn estimate(&self, rel: &RelRef) -> Arc<Estimate> {
        let address = Arc::as_ptr(rel);
        if let Some((_, known)) = self.known.borrow().get(&address) {
            return Arc::clone(known);
        }
        let estimate = Arc::new(self.compute(rel));
        self.known
            .borrow_mut()
            .insert(address, (Arc::clone(rel), Arc::clone(&estimate)));
        estimate
    }

    /// Rows of `rel`.
    pub fn rows(&self, rel: &RelRef) -> f64 {
        self.estimate(rel).rows
    }

    /// Estimates for an expression over `rel`.
    pub fn of_expr(&self, rel: &RelRef, expr: &Expr) -> ColumnEstimate {
        of_expr(expr, &self.estimate(rel))
    }

    /// Rows of the largest table below `rel`.
    pub fn base_rows(&self, rel: &RelRef) -> f64 {
        let mut most: f64 = 0.0;
        rel.for_each(&mut |rel| {
            if let RelKind::Scan { table, .. } = &rel.kind {
                most = most.max(self.facts.rows(table));
            }
        });
        most
    }

    /// True when rows of `rel` arrive in the order of a column: its table is sorted by it, and only probes follow.
    pub fn clustered(&self, rel: &RelRef, column: usize) -> bool {
        match &rel.kind {
            RelKind::Scan { table, columns } => columns
                .get(column)
                .and_then(|c| self.facts.column(table, *c))
                .is_some_and(|s| s.sorted),
            RelKind::Filter { input, .. } | RelKind::Scalar { input, .. } => {
                column < input.columns.len() && self.clustered(input, column)
            }
            RelKind::Project { input, exprs } => exprs
                .get(column)
                .and_then(crate::rel::expr::as_column)
                .is_some_and(|c| self.clustered(input, c)),
            RelKind::Join(join) => {
                let n = join.left.columns.len();
                if column < n {
                    return self.clustered(&join.left, column);
                }
                // The build side's key is the probing side's.
                join.kind == JoinKind::Inner
                    && join.on.iter().any(|(l, r)| {
                        let (l, r) = (
                            crate::rel::expr::as_column(l),
                            crate::rel::expr::as_column(r),
                        );
                        r == Some(column - n) && l.is_some_and(|l| self.clustered(&join.left, l))
                    })
            }
            _ => false,
        }
    }

    fn compute(&self, rel: &RelRef) -> Estimate {
        match &rel.kind {
            RelKind::Scan { table, columns } => self.scan(rel, table, columns),
            RelKind::One => Estimate {
                rows: 1.0,
                columns: vec![],
            },
            RelKind::Filter { input, conjuncts } => {
                let share = self.passing(input, conjuncts);
                let input = self.estimate(input);
                let mut result = selectivity::of_all(conjuncts, &input).1;
                result.rows = (input.rows * share).max(1.0).min(input.rows);
                for origin in result.columns.iter_mut().flat_map(|c| &mut c.origin) {
                    // Rows of the table itself, which nothing has repeated.
                    if origin.rows >= input.rows {
                        origin.rows = result.rows;
                    }
                }
                fewer(&mut result, input.rows);
                result
            }
            RelKind::Project { input, exprs } => {
                let input = self.estimate(input);
                Estimate {
                    rows: input.rows,
                    columns: exprs.iter().map(|e| of_expr(e, &input)).collect(),
                }
            }
            RelKind::Join(join) => self.join(rel, join),
            RelKind::Aggregate { input, aggregate } => {
                let (keys, rows) = self.groups(input, &aggregate.keys);
                let input = self.estimate(input);
                let calls = aggregate.calls.iter().map(|call| {
                    let mut column = ColumnEstimate::unknown(rows);
                    if let Some(argument) = &call.argument {
                        use AggregateFunction::{Any, Max, Min};
                        if matches!(call.function, Any | Max | Min) {
                            column.range = of_expr(argument, &input).range;
                        }
                    }
                    let per_group = input.rows / rows.max(1.0);
                    if call.function == AggregateFunction::Count {
                        column.distinct = rows.min(counts(input.rows, per_group)).max(1.0);
                    }
                    column.mean = match (call.function, &call.argument) {
                        (AggregateFunction::Count, _) => Some(per_group),
                        (AggregateFunction::Sum, Some(argument)) => of_expr(argument, &input)
                            .range
                            .map(|(low, high)| per_group * (low + high) / 2.0),
                        _ => None,
                    };
                    column
                });
                // A single key occurs once.
                let keys = keys.iter().map(|key| ColumnEstimate { skew: 0.0, ..*key });
                let mut result = Estimate {
                    rows,
                    columns: keys.chain(calls).collect(),
                };
                fewer(&mut result, rows);
                result
            }
            RelKind::Sort {
                input, skip, fetch, ..
            } => {
                let input = self.estimate(input);
                let left = (input.rows - *skip as f64).max(0.0);
                let mut result = (*input).clone();
                result.rows = fetch.map_or(left, |fetch| left.min(fetch as f64));
                fewer(&mut result, input.rows);
                result
            }
            RelKind::Window {
                input,
                keys,
                window,
            } => {
                let input = self.estimate(input);
                let mut result = (*input).clone();
                if let Some(first) = window.first {
                    let partition = keys.iter().take(window.partition);
                    let partition = partition.filter_map(|key| input.columns.get(key.column));
                    let partition: Vec<_> = partition.copied().collect();
                    let partitions = combinations(&partition, input.rows);
                    result.rows = input.rows.min(partitions * first.most as f64);
                    fewer(&mut result, input.rows);
                }
                let added = ColumnEstimate::unknown(result.rows);
                result.columns.extend(window.columns.iter().map(|_| added));
                result
            }
            RelKind::Union(inputs) => {
                let inputs: Vec<_> = inputs.iter().map(|i| self.estimate(i)).collect();
                let rows = inputs.iter().map(|i| i.rows).sum();
                let columns = (0..rel.columns.len()).map(|c| {
                    let distinct: f64 = inputs.iter().map(|i| i.columns[c].distinct).sum();
                    let ranges: Option<Vec<_>> =
                        inputs.iter().map(|i| i.columns[c].range).collect();
                    ColumnEstimate {
                        distinct: distinct.min(rows),
                        range: ranges.and_then(|ranges| {
                            ranges
                                .into_iter()
                                .reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))
                        }),
                        nulls: 0.0,
                        mean: None,
                        origin: None,
                        skew: inputs.iter().map(|i| i.columns[c].skew).fold(0.0, f64::max),
                    }
                });
                Estimate {
                    rows,
                    columns: columns.collect(),
                }
            }
            RelKind::Scalar { input, subquery } => {
                let mut result = (*self.estimate(input)).clone();
                result.columns.extend(
                    subquery
                        .columns
                        .iter()
                        .map(|_| ColumnEstimate::unknown(1.0)),
                );
                result
            }
        }
    }

    fn scan(&self, rel: &RelRef, table: &Arc<ScanTable>, wanted: &[usize]) -> Estimate {
        let rows = self.facts.rows(table);
        let number = Arc::as_ptr(rel).addr();
        let columns = wanted
            .iter()
            .map(|i| match self.facts.column(table, *i) {
                None => ColumnEstimate::unknown(rows),
                Some(statistics) => base(statistics, rows),
            })
            .map(|column| ColumnEstimate {
                origin: Some(Origin { number, rows }),
                ..column
            })
            .collect();
        Estimate { rows, columns }
    }

    fn join(&self, rel: &RelRef, join: &Join) -> Estimate {
        let (left, right) = (self.estimate(&join.left), self.estimate(&join.right));
        let beside = |column: &ColumnEstimate| ColumnEstimate {
            origin: column.origin.map(|o| o.beside(Arc::as_ptr(rel).addr())),
            ..*column
        };
        let l: Vec<_> = join.on.iter().map(|(l, _)| of_expr(l, &left)).collect();
        let r: Vec<_> = join.on.iter().map(|(_, r)| of_expr(r, &right)).collect();
        let (dl, dr) = (
            combinations(&l, left.rows.max(1.0)),
            combinations(&r, right.rows.max(1.0)),
        );
        let both = || -> Vec<ColumnEstimate> {
            let right = right.columns.iter().map(beside);
            left.columns.iter().copied().chain(right).collect()
        };
        let joined = Estimate {
            rows: left.rows * right.rows,
            columns: both(),
        };
        let residual: f64 = join
            .residual
            .iter()
            .map(|e| selectivity::selectivity(e, &joined))
            .product();
        // One side's keys are taken to be among the other's, but for those that its table lacks.
        let (of_left, of_right) = self.shared_keys(join);
        let shared = if dl <= dr { of_left } else { of_right };
        let pairs = left.rows * right.rows / dl.max(dr).max(1.0) * residual * shared;
        // A left row has this many partners on average if it has any, so fewer rows have one.
        let per_key = (right.rows / dr.max(1.0)).max(1.0);
        let matched = (dr / dl.max(1.0)).min(1.0).min(of_left) * (residual * per_key).min(1.0);
        let matched = if join.on.is_empty() {
            (residual * right.rows).min(1.0)
        } else {
            matched
        };
        let unmatched = left.rows * (1.0 - matched).max(LEAST_UNMATCHED);
        let (rows, columns) = match join.kind {
            JoinKind::Inner => (pairs, both()),
            JoinKind::Left => {
                let rows = pairs.max(left.rows);
                (rows, outer(both(), left.columns.len().., unmatched / rows))
            }
            JoinKind::Full => {
                let rows = pairs.max(left.rows).max(right.rows);
                let columns = outer(both(), left.columns.len().., unmatched / rows);
                // No more than they are beyond the pairs.
                let others = (rows - left.rows).max(0.0);
                (rows, outer(columns, ..left.columns.len(), others / rows))
            }
            JoinKind::Semi => (left.rows * matched, left.columns.clone()),
            JoinKind::Anti | JoinKind::NullAwareAnti => (unmatched, left.columns.clone()),
            JoinKind::Mark => {
                let mut columns = left.columns.clone();
                columns.push(ColumnEstimate {
                    distinct: 2.0,
                    range: Some((0.0, 1.0)),
                    nulls: 0.0,
                    mean: None,
                    skew: 0.0,
                    origin: None,
                });
                (left.rows, columns)
            }
        };
        let mut result = Estimate {
            rows: rows.max(1.0),
            columns,
        };
        let n = left.columns.len();
        if matches!(join.kind, JoinKind::Inner | JoinKind::Semi) {
            for ((le, re), (ld, rd)) in join.on.iter().zip(l.iter().zip(&r)) {
                let least = ld.distinct.min(rd.distinct);
                for (expr, shift) in [(le, 0), (re, n)] {
                    let column = crate::rel::expr::as_column(expr).map(|c| c + shift);
                    if let Some(c) = column.and_then(|c| result.columns.get_mut(c)) {
                        c.distinct = c.distinct.min(least);
                        c.nulls = 0.0;
                    }
                }
            }
        }
        for column in &mut result.columns {
            column.distinct = column.distinct.min(result.rows).max(1.0);
        }
        result
    }
}

/// How many values the numbers of rows in groups have, of which there are so many on average: no more than that many groups of
/// different sizes have rows together, and seldom many times the average.
fn counts(rows: f64, average: f64) -> f64 {
    (2.0 * rows).sqrt().min(10.0 * average + 10.0)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests;
