//! Joins one above the other as a list: what they start from, and the side that each of them adds.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use arrow::datatypes::DataType;
use warpline_gpu::expr::Expr;
use warpline_gpu::pipeline::{Aggregate, AggregateCall};

use crate::reason::Reason;
use crate::rel::expr::{as_column, columns, renumber, substitute, substitute_all};
use crate::rel::rewrite::same_call;
use crate::rel::{Join, JoinKind, Rel, RelKind, RelRef};

/// Joins and filters above a relation. Columns are numbered through: those of the base, then those of each side in turn; a mark
/// follows the columns of the side that it is of.
pub(super) struct Spine {
    base: RelRef,
    pub(super) steps: Vec<Step>,
    /// How many numbers are given.
    width: usize,
}

/// One operator of a spine; its expressions are over the spine's numbers.
pub(super) enum Step {
    Filter(Vec<Expr>),
    Join(Side),
}

/// A join by what it adds.
pub(super) struct Side {
    pub(super) rel: RelRef,
    pub(super) kind: JoinKind,
    /// Equal keys: over the spine, over the side by its own positions.
    pub(super) on: Vec<(Expr, Expr)>,
    pub(super) residual: Vec<Expr>,
    pub(super) null_equal: bool,
    /// The number of its first column.
    pub(super) start: usize,
}

impl Side {
    /// Is `column` of the spine one of its own?
    pub(super) fn has(&self, column: usize) -> bool {
        (self.start..self.mark()).contains(&column)
    }

    /// Its rows beside those of the spine, as the numbers' expressions.
    fn layout(&self) -> Vec<Expr> {
        let outer = self.kind == JoinKind::Left;
        let numbered = |(i, mut column): (usize, Expr)| {
            column = renumber(&column, &|_| self.start + i);
            column.nullable |= outer;
            column
        };
        self.rel
            .all_columns()
            .into_iter()
            .enumerate()
            .map(numbered)
            .collect()
    }

    /// The number of the column that says whether a row had a match.
    fn mark(&self) -> usize {
        self.start + self.rel.columns.len()
    }
}

/// A side that is grouped in place of its rows.
pub(super) struct Branch<'a> {
    pub(super) side: &'a Side,
    /// What its groups compute, over its own columns, and the spine's numbers of that.
    pub(super) calls: Vec<(usize, AggregateCall)>,
}

impl<'a> Branch<'a> {
    pub(super) fn new(side: &'a Side) -> Self {
        Self {
            side,
            calls: vec![],
        }
    }

    /// The groups by the keys of the join.
    fn groups(&self) -> RelRef {
        let rel = &self.side.rel;
        let keys: Vec<Expr> = self.side.on.iter().map(|(_, key)| key.clone()).collect();
        let named =
            |key: &Expr| as_column(key).map_or("key".into(), |c| rel.columns[c].name.clone());
        let names: Vec<String> = keys.iter().map(named).collect();
        let calls = self.calls.iter().map(|(_, call)| call.clone()).collect();
        Rel::aggregate(Arc::clone(rel), Aggregate { keys, calls }, &names)
    }

    /// The position among the groups' columns of column `column` of the spine, if it is a key.
    pub(super) fn key(&self, column: usize) -> Option<usize> {
        let own = column.checked_sub(self.side.start)?;
        let is_it = |(_, key): &(Expr, Expr)| as_column(key) == Some(own);
        self.side.on.iter().position(is_it)
    }

    /// The number of `call` where the groups compute it already.
    pub(super) fn number_of(&self, call: &AggregateCall) -> Option<usize> {
        let known = self.calls.iter().find(|(_, known)| same_call(known, call));
        known.map(|(number, _)| *number)
    }
}

/// A tree of a spine, and where the spine's columns are in it.
pub(super) struct Tree {
    pub(super) rel: RelRef,
    places: HashMap<usize, usize>,
}

impl Tree {
    /// A relation whose columns are numbered in place.
    pub(super) fn of(rel: &RelRef) -> Self {
        Self {
            rel: Arc::clone(rel),
            places: (0..rel.columns.len()).map(|c| (c, c)).collect(),
        }
    }

    /// Where column `column` of the spine is.
    pub(super) fn place(&self, column: usize) -> Option<usize> {
        self.places.get(&column).copied()
    }

    /// The columns of the spine in these places.
    pub(super) fn numbers(&self, places: &BTreeSet<usize>) -> BTreeSet<usize> {
        let there = self
            .places
            .iter()
            .filter(|(_, place)| places.contains(place));
        there.map(|(number, _)| *number).collect()
    }

    /// `expr` over the columns of the tree; `None` where it lacks one.
    pub(super) fn over(&self, expr: &Expr) -> Option<Expr> {
        let known = columns(expr).into_iter().all(|c| self.place(c).is_some());
        known.then(|| renumber(expr, &|c| self.place(c).unwrap_or(usize::MAX)))
    }

    /// The same of several.
    pub(super) fn all_over(&self, exprs: &[Expr]) -> Option<Vec<Expr>> {
        exprs.iter().map(|expr| self.over(expr)).collect()
    }
}

impl Spine {
    /// The joins that `rel` is, and its columns over the spine's numbers; `None` where it is no join.
    ///
    /// # Errors
    /// When an expression becomes too large for a kernel once projections are substituted into it.
    pub(super) fn of(rel: &RelRef) -> Result<Option<(Self, Vec<Expr>)>, Reason> {
        let mut spine = Self {
            base: Arc::clone(rel),
            steps: vec![],
            width: 0,
        };
        let layout = spine.climb(rel)?;
        let joins = spine.steps.iter().any(|s| matches!(s, Step::Join(_)));
        Ok(joins.then_some((spine, layout)))
    }

    /// How many numbers its columns have.
    pub(super) fn width(&self) -> usize {
        self.width
    }

    /// The joins among its steps.
    pub(super) fn sides(&self) -> impl Iterator<Item = &Side> {
        self.steps.iter().filter_map(|step| match step {
            Step::Join(side) => Some(side),
            Step::Filter(_) => None,
        })
    }

    fn climb(&mut self, rel: &RelRef) -> Result<Vec<Expr>, Reason> {
        match &rel.kind {
            RelKind::Filter { input, conjuncts } => {
                let layout = self.climb(input)?;
                let conjuncts = substitute_all(conjuncts, &layout)?;
                self.steps.push(Step::Filter(conjuncts));
                Ok(layout)
            }
            RelKind::Project { input, exprs } => substitute_all(exprs, &self.climb(input)?),
            RelKind::Join(join) if join.kind != JoinKind::Full => self.climb_join(join),
            _ => {
                self.base = Arc::clone(rel);
                self.width = rel.columns.len();
                Ok(rel.all_columns())
            }
        }
    }

    fn climb_join(&mut self, join: &Join) -> Result<Vec<Expr>, Reason> {
        // Pairs are the same from either side: the one with joins in it is the spine.
        let turned =
            join.kind == JoinKind::Inner && !has_joins(&join.left) && has_joins(&join.right);
        let (below, beside) = match turned {
            true => (&join.right, &join.left),
            false => (&join.left, &join.right),
        };
        let layout = self.climb(below)?;
        let on = join.on.iter().map(|(l, r)| {
            let (ours, theirs) = if turned { (r, l) } else { (l, r) };
            Ok((substitute(ours, &layout)?, theirs.clone()))
        });
        let mut side = Side {
            rel: Arc::clone(beside),
            kind: join.kind,
            on: on.collect::<Result<_, Reason>>()?,
            residual: vec![],
            null_equal: join.null_equal,
            start: self.width,
        };
        self.width = side.mark() + usize::from(join.kind == JoinKind::Mark);
        let beside = side.layout();
        let both = match turned {
            true => [beside, layout].concat(),
            false => [layout, beside].concat(),
        };
        side.residual = substitute_all(&join.residual, &both)?;
        let mut layout = both;
        if !join.kind.yields_right() {
            layout.truncate(join.left.columns.len());
        }
        if join.kind == JoinKind::Mark {
            layout.push(Expr::column(side.mark(), DataType::Boolean, false));
        }
        self.steps.push(Step::Join(side));
        Ok(layout)
    }

    /// The spine as a tree, in which groups stand for the sides that `branches` are of; `None` where something reads what they lack.
    pub(super) fn tree(&self, branches: &[Branch<'_>]) -> Option<Tree> {
        let mut tree = Tree::of(&self.base);
        for step in &self.steps {
            match step {
                Step::Filter(conjuncts) => {
                    tree.rel = Rel::filter(Arc::clone(&tree.rel), tree.all_over(conjuncts)?);
                }
                Step::Join(side) => {
                    let branch = branches.iter().find(|b| b.side.start == side.start);
                    tree = joined(tree, side, branch)?;
                }
            }
        }
        Some(tree)
    }
}

/// `tree` joined with `side`, or with the groups of it.
fn joined(mut tree: Tree, side: &Side, branch: Option<&Branch<'_>>) -> Option<Tree> {
    let right = branch.map_or_else(|| Arc::clone(&side.rel), Branch::groups);
    let keys = |(i, (ours, theirs)): (usize, &(Expr, Expr))| {
        let theirs = match branch {
            Some(_) => right.column(i),
            None => theirs.clone(),
        };
        Some((tree.over(ours)?, theirs))
    };
    let on = side.on.iter().enumerate().map(keys);
    let on = on.collect::<Option<_>>()?;
    let at = tree.rel.columns.len();
    let before = tree.places.clone();
    for column in side.start..side.mark() {
        let place = match branch {
            Some(branch) => branch.key(column),
            None => Some(column - side.start),
        };
        tree.places.extend(place.map(|place| (column, at + place)));
    }
    for (i, (number, _)) in branch
        .iter()
        .flat_map(|branch| branch.calls.iter().enumerate())
    {
        tree.places.insert(*number, at + side.on.len() + i);
    }
    let residual = tree.all_over(&side.residual)?;
    if !side.kind.yields_right() {
        tree.places = before;
    }
    if side.kind == JoinKind::Mark {
        tree.places.insert(side.mark(), at);
    }
    tree.rel = Rel::join(Join {
        left: tree.rel,
        right,
        kind: side.kind,
        on,
        residual,
        null_equal: side.null_equal,
        build: None,
    });
    Some(tree)
}

/// Is there a join below filters and projections?
fn has_joins(rel: &RelRef) -> bool {
    match &rel.kind {
        RelKind::Join(join) => join.kind.yields_right(),
        RelKind::Filter { input, .. } | RelKind::Project { input, .. } => has_joins(input),
        _ => false,
    }
}
