//! Join graphs: trees of inner joins flattened to relations, equivalence classes and conditions.

use std::collections::BTreeSet;
use std::sync::Arc;

use warpline_gpu::expr::{BinaryOp, Expr, Node};

use super::is_join_tree;
use crate::reason::Reason;
use crate::rel::convert::in_order;
use crate::rel::expr::{columns, one_zero, renumber, same, substitute, substitute_all};
use crate::rel::{Join, JoinKind, Rel, RelKind, RelRef};
use crate::translate::is_string;

/// A set of relations, bit `i` for relation `i`.
pub(super) type Set = u64;

/// A set of classes of a graph, bit `i` for class `i`.
pub(super) type Classes = u128;

/// Most relations of one graph.
pub(super) const MOST_LEAVES: usize = 48;

/// A join graph. Expressions refer to the columns of all relations, one after the other.
#[derive(Debug)]
pub(super) struct JoinGraph {
    pub(super) leaves: Vec<RelRef>,
    /// Where the columns of each relation begin.
    pub(super) starts: Vec<usize>,
    /// Number of columns of all relations.
    pub(super) width: usize,
    /// Expressions that are equal in every row, each over one relation.
    pub(super) classes: Vec<Vec<Expr>>,
    /// Conditions over several relations that are no such equality.
    pub(super) conditions: Vec<Expr>,
    /// Conditions that can fail: tested after all joins.
    pub(super) late: Vec<Expr>,
    /// Semi and anti joins.
    pub(super) semis: Vec<Semi>,
    /// The columns of the tree.
    pub(super) outputs: Vec<Expr>,
    /// Their names.
    pub(super) names: Vec<String>,
}

/// A semi or anti join. The right side of its residual conditions begins at [`JoinGraph::width`].
#[derive(Debug, Clone)]
pub(super) struct Semi {
    pub(super) kind: JoinKind,
    pub(super) right: RelRef,
    pub(super) on: Vec<(Expr, Expr)>,
    pub(super) residual: Vec<Expr>,
    pub(super) null_equal: bool,
}

/// A tree being flattened: outputs and conditions over the leaves so far.
#[derive(Default)]
struct Gathered {
    leaves: Vec<RelRef>,
    width: usize,
    /// With true for those of one relation alone, before any join, and for keys.
    conditions: Vec<(Expr, bool)>,
    /// Whether a key can fail that is computed of what joins leave: they have to come first.
    stays: bool,
    /// With the width at which the right side began when it was found.
    semis: Vec<(Semi, usize)>,
}

/// The join graph of `rel`, if it is a tree of inner joins that may come in any order.
pub(super) fn flatten(rel: &RelRef) -> Result<Option<JoinGraph>, Reason> {
    if !is_join_tree(rel) {
        return Ok(None);
    }
    let mut gathered = Gathered::default();
    let outputs = gathered.add(rel)?;
    if gathered.stays || gathered.leaves.len() > MOST_LEAVES {
        return Ok(None);
    }
    let mut starts = Vec::with_capacity(gathered.leaves.len());
    let mut width = 0;
    for leaf in &gathered.leaves {
        starts.push(width);
        width += leaf.columns.len();
    }
    let semis = gathered
        .semis
        .into_iter()
        .map(|(mut semi, began)| {
            let moved = |i: usize| if i >= began { i - began + width } else { i };
            semi.residual = semi.residual.iter().map(|e| renumber(e, &moved)).collect();
            semi
        })
        .collect();
    let mut graph = JoinGraph {
        leaves: gathered.leaves,
        starts,
        width,
        classes: Vec::new(),
        conditions: Vec::new(),
        late: Vec::new(),
        semis,
        outputs,
        names: rel.columns.iter().map(|c| c.name.clone()).collect(),
    };
    graph.sort_conditions(gathered.conditions);
    // More classes have no place in a set of them: the joins stay in the order in which they are written.
    Ok((graph.classes.len() <= Classes::BITS as usize).then_some(graph))
}

impl Gathered {
    /// Gather `rel`; its columns over all leaves.
    fn add(&mut self, rel: &RelRef) -> Result<Vec<Expr>, Reason> {
        match &rel.kind {
            RelKind::Join(join) if join.kind == JoinKind::Inner && !join.null_equal => {
                let mut outputs = self.add(&join.left)?;
                outputs.extend(self.add(&join.right)?);
                let n = join.left.columns.len();
                for (l, r) in &join.on {
                    let left = substitute(l, &outputs[..n])?;
                    let right = substitute(r, &outputs[n..])?;
                    let fails = |key: &Expr, of: &RelRef| key.may_fault() && is_join_tree(of);
                    self.stays |= fails(&left, &join.left) || fails(&right, &join.right);
                    // A relation's own key is computed of all its rows in any case.
                    self.conditions.push((equal(left, right), true));
                }
                for residual in &join.residual {
                    self.conditions
                        .push((substitute(residual, &outputs)?, false));
                }
                Ok(outputs)
            }
            RelKind::Join(join)
                if matches!(join.kind, JoinKind::Semi | JoinKind::Anti)
                    && is_join_tree(&join.left) =>
            {
                let outputs = self.add(&join.left)?;
                let began = usize::MAX / 2;
                let right = join.right.all_columns().into_iter();
                let mut both = outputs.clone();
                both.extend(right.map(|e| renumber(&e, &|i| began + i)));
                let semi = Semi {
                    kind: join.kind,
                    right: Arc::clone(&join.right),
                    on: join
                        .on
                        .iter()
                        .map(|(l, r)| Ok((substitute(l, &outputs)?, r.clone())))
                        .collect::<Result<_, Reason>>()?,
                    residual: substitute_all(&join.residual, &both)?,
                    null_equal: join.null_equal,
                };
                self.semis.push((semi, began));
                Ok(outputs)
            }
            // Below a join tree even projections and conditions of one relation are taken apart, so that
            // equal relations look equal.
            RelKind::Project { input, exprs } => {
                let outputs = self.add(input)?;
                substitute_all(exprs, &outputs)
            }
            RelKind::Filter { input, conjuncts } => {
                let alone = !is_join_tree(input);
                let outputs = self.add(input)?;
                let conjuncts = substitute_all(conjuncts, &outputs)?;
                self.conditions
                    .extend(conjuncts.into_iter().map(|c| (c, alone)));
                Ok(outputs)
            }
            _ => {
                let at = self.width;
                self.leaves.push(Arc::clone(rel));
                self.width += rel.columns.len();
                Ok(rel
                    .all_columns()
                    .iter()
                    .map(|e| renumber(e, &|i| at + i))
                    .collect())
            }
        }
    }
}

impl JoinGraph {
    /// The relations that `expr` reads.
    pub(super) fn set(&self, expr: &Expr) -> Set {
        columns(expr).into_iter().fold(0, |set, column| {
            if column < self.width {
                set | 1 << self.leaf_of(column)
            } else {
                set
            }
        })
    }

    /// The relation that a column belongs to.
    pub(super) fn leaf_of(&self, column: usize) -> usize {
        self.starts.partition_point(|start| *start <= column) - 1
    }

    /// `expr` over the columns of relation `leaf` alone.
    pub(super) fn local(&self, expr: &Expr, leaf: usize) -> Expr {
        let start = self.starts[leaf];
        renumber(expr, &|i| i - start)
    }

    /// Assign conditions to relations, to classes, or to the rest.
    fn sort_conditions(&mut self, conditions: Vec<(Expr, bool)>) {
        let mut into: Vec<Vec<Expr>> = vec![Vec::new(); self.leaves.len()];
        for (condition, alone) in conditions {
            let set = self.set(&condition);
            // What can fail must not see rows that a join would have dropped.
            if condition.may_fault() && !alone {
                self.late.push(condition);
                continue;
            }
            if set.count_ones() <= 1 {
                // A constant may as well be tested first of all.
                let leaf = if set == 0 {
                    0
                } else {
                    set.trailing_zeros() as usize
                };
                into[leaf].push(self.local(&condition, leaf));
                continue;
            }
            match self.equality(&condition) {
                Some((a, b)) => self.equate(a, b),
                None => self.conditions.push(condition),
            }
        }
        // Two members of one relation must be equal in it.
        for class in &mut self.classes {
            let mut kept: Vec<Expr> = Vec::new();
            for member in class.drain(..) {
                let leaf = leaf_in(&self.starts, &member);
                let twin = kept.iter().find(|k| leaf_in(&self.starts, k) == leaf);
                match (twin, leaf) {
                    (Some(twin), Some(leaf)) => {
                        let start = self.starts[leaf];
                        let condition = equal(twin.clone(), member);
                        into[leaf].push(renumber(&condition, &|i| i - start));
                    }
                    _ => kept.push(member),
                }
            }
            *class = kept;
        }
        for (leaf, conjuncts) in self.leaves.iter_mut().zip(into) {
            *leaf = filtered(leaf, conjuncts);
        }
    }

    /// The sides of an equality between two relations.
    fn equality(&self, condition: &Expr) -> Option<(Expr, Expr)> {
        let Node::Binary {
            op: BinaryOp::Eq,
            left,
            right,
        } = &condition.node
        else {
            return None;
        };
        let (l, r) = (&left.data_type, &right.data_type);
        let keys = l == r || is_string(l) && is_string(r);
        let (ls, rs) = (self.set(left), self.set(right));
        (keys && ls.count_ones() == 1 && rs.count_ones() == 1 && ls != rs)
            .then(|| (one_zero((**left).clone()), one_zero((**right).clone())))
    }

    /// `a` and `b` are equal in every row.
    pub(super) fn equate(&mut self, a: Expr, b: Expr) {
        match (self.class_of(&a), self.class_of(&b)) {
            (Some(i), Some(j)) if i != j => {
                let merged = self.classes.remove(i.max(j));
                self.classes[i.min(j)].extend(merged);
            }
            (Some(_), Some(_)) => {}
            (Some(i), None) => self.classes[i].push(b),
            (None, Some(j)) => self.classes[j].push(a),
            (None, None) => self.classes.push(vec![a, b]),
        }
    }

    /// The class that has `expr`.
    pub(super) fn class_of(&self, expr: &Expr) -> Option<usize> {
        let mut classes = self.classes.iter();
        classes.position(|class| class.iter().any(|member| same(member, expr)))
    }

    /// Columns read by anything but join keys and single relations.
    pub(super) fn read_outside(&self) -> BTreeSet<usize> {
        let semis = self
            .semis
            .iter()
            .flat_map(|s| s.on.iter().map(|(l, _)| l).chain(&s.residual));
        self.outputs
            .iter()
            .chain(&self.conditions)
            .chain(&self.late)
            .chain(semis)
            .flat_map(columns)
            .filter(|c| *c < self.width)
            .collect()
    }
}

fn leaf_in(starts: &[usize], expr: &Expr) -> Option<usize> {
    let first = columns(expr).into_iter().next()?;
    Some(starts.partition_point(|start| *start <= first) - 1)
}

/// `rel` with more conditions, next to those that it has.
pub(super) fn filtered(rel: &RelRef, mut conjuncts: Vec<Expr>) -> RelRef {
    if conjuncts.is_empty() {
        return Arc::clone(rel);
    }
    if let RelKind::Filter {
        input,
        conjuncts: before,
    } = &rel.kind
    {
        let mut all = before.clone();
        all.append(&mut conjuncts);
        return Rel::filter(Arc::clone(input), in_order(all));
    }
    Rel::filter(Arc::clone(rel), in_order(conjuncts))
}

/// `a = b`.
pub(super) fn equal(a: Expr, b: Expr) -> Expr {
    Expr {
        nullable: a.nullable || b.nullable,
        data_type: arrow::datatypes::DataType::Boolean,
        node: Node::Binary {
            op: BinaryOp::Eq,
            left: Box::new(a),
            right: Box::new(b),
        },
    }
}

impl Semi {
    /// The join of `left`, whose columns are those of the graph under the numbers that `to` gives.
    pub(super) fn over(&self, left: RelRef, width: usize, to: &impl Fn(usize) -> usize) -> RelRef {
        let n = left.columns.len();
        let moved = |i: usize| if i >= width { i - width + n } else { to(i) };
        Rel::join(Join {
            kind: self.kind,
            on: self
                .on
                .iter()
                .map(|(l, r)| (renumber(l, to), r.clone()))
                .collect(),
            residual: self.residual.iter().map(|e| renumber(e, &moved)).collect(),
            null_equal: self.null_equal,
            left,
            right: Arc::clone(&self.right),
            build: None,
        })
    }
}
