//! Joins: which side is built, how it is probed, and what becomes of rows without a match.

use warpline_gpu::expr::Expr;
use warpline_gpu::graph::{Probe, ProbeKind, ResultColumn, Stage};

use super::build::Purpose;
use super::materialize::Pairing;
use super::{Columns, Lowerer, Open, absent, read_by, scope};
use crate::reason::Reason;
use crate::rel::expr::{as_column, substitute_all};
use crate::rel::{BuildSide, Join, JoinKind, RelRef};
use crate::stats::Proof;

/// One side of a join.
#[derive(Clone)]
pub(super) struct Side<'a> {
    pub(super) rel: &'a RelRef,
    pub(super) keys: Vec<Expr>,
    /// Columns that are needed above or by the residual condition.
    pub(super) needed: Columns,
    /// Where its columns begin among those of the join.
    pub(super) at: usize,
}

/// The sides of a join of which these columns are wanted.
pub(super) fn sides<'j>(join: &'j Join, needed: &Columns) -> (Side<'j>, Side<'j>) {
    let n = join.left.columns.len();
    let mut all: Columns = needed.clone();
    if join.kind == JoinKind::Mark {
        all.remove(&n);
    }
    all.extend(read_by(&join.residual));
    let left = Side {
        rel: &join.left,
        keys: join.on.iter().map(|(l, _)| l.clone()).collect(),
        needed: all.iter().copied().filter(|c| *c < n).collect(),
        at: 0,
    };
    let right = Side {
        rel: &join.right,
        keys: join.on.iter().map(|(_, r)| r.clone()).collect(),
        needed: all.iter().filter(|c| **c >= n).map(|c| c - n).collect(),
        at: n,
    };
    (left, right)
}

impl Lowerer<'_> {
    pub(super) fn join(
        &mut self,
        rel: &RelRef,
        join: &Join,
        needed: &Columns,
    ) -> Result<Open, Reason> {
        let (left, right) = sides(join, needed);
        if let Some(compared) = self.compared(rel, join, needed) {
            return self.compare_pairs(rel, &compared, needed);
        }
        match join.kind {
            JoinKind::Inner => match self.narrowed(rel, join, &left, &right) {
                Some(narrowed) => self.join(rel, &narrowed, needed),
                None => self.inner(rel, join, &left, &right),
            },
            JoinKind::Left => self.left(rel, join, &left, &right),
            JoinKind::Full => self.preserve_build(rel, join, &left, &right),
            JoinKind::Semi | JoinKind::Anti if self.left_is_smaller(join, &left, &right) => {
                self.mark_left(rel, join, &left, &right)
            }
            JoinKind::Semi => self.lookup(rel, join, &left, &right, ProbeKind::Semi),
            JoinKind::Anti => self.lookup(rel, join, &left, &right, ProbeKind::Anti),
            JoinKind::NullAwareAnti => {
                self.lookup(rel, join, &left, &right, ProbeKind::NullAwareAnti)
            }
            JoinKind::Mark => self.lookup(rel, join, &left, &right, ProbeKind::Mark),
        }
    }

    fn inner(
        &mut self,
        rel: &RelRef,
        join: &Join,
        left: &Side<'_>,
        right: &Side<'_>,
    ) -> Result<Open, Reason> {
        let build_left = match join.build {
            Some(side) => side == BuildSide::Left,
            None => self.build_cost(left, right) < self.build_cost(right, left),
        };
        let (probe, build) = if build_left {
            (right, left)
        } else {
            (left, right)
        };
        let purpose = Purpose {
            null_equal: join.null_equal,
            ..Purpose::default()
        };
        // A key of a match is known on both sides.
        let mut probe = probe.clone();
        let mut equal = Vec::new();
        for (theirs, ours) in build.keys.iter().zip(&probe.keys) {
            if let (Some(theirs), Some(ours)) = (as_column(theirs), as_column(ours))
                && build.rel.columns[theirs].data_type == probe.rel.columns[ours].data_type
                && build.needed.contains(&theirs)
            {
                equal.push((theirs, ours));
            }
        }
        probe.needed.extend(equal.iter().map(|(_, ours)| *ours));
        let known = |c: &usize| equal.iter().any(|(theirs, _)| theirs == c);
        let payload: Vec<usize> = build.needed.iter().copied().filter(|c| !known(c)).collect();
        let one = self.unique_beside(build, &probe);
        let build_keys: Columns = build.keys.iter().filter_map(as_column).collect();
        let set = payload.is_empty()
            && !build.keys.is_empty()
            && self
                .input
                .estimator
                .unique(build.rel, &build_keys, Proof::Certain);
        let pairing = Pairing {
            of: rel,
            build,
            probe: &probe,
            payload: &payload,
            unique: one || set,
            existence: set,
        };
        let mut algorithm = self.algorithm(&pairing);
        let mut reduced = None;
        if !join.null_equal
            && let Some((instead, rows)) = self.reduced(&pairing, &algorithm)
        {
            let keys = Side {
                needed: Columns::new(),
                ..probe.clone()
            };
            let known = Purpose {
                existence: true,
                ..Purpose::default()
            };
            reduced = Some((self.build(&keys, &[], known, false)?.0, rows));
            algorithm = instead;
        }
        let materialized = algorithm.materialized();
        let purpose = Purpose {
            // At most one match, of which nothing is wanted.
            existence: set,
            algorithm,
            reduced,
            ..purpose
        };
        let (index, unique) = self.build(build, &payload, purpose, one)?;
        let mut open = self.stream_side(&probe)?;
        let keys = substitute_all(&probe.keys, &open.columns)?;
        let found = self.found(index, false);
        let probed = Probe {
            index,
            keys,
            kind: if set {
                ProbeKind::Semi
            } else {
                ProbeKind::Inner
            },
            residual: vec![],
            mark_entries: false,
        };
        open = if (unique || set) && !materialized {
            let mut open = open;
            open.stages.push(Stage::Probe(probed));
            open
        } else {
            self.pairs(open, probed, &probe, materialized)?
        };
        self.beside(&mut open, join, (&probe, build), &payload, &found);
        for (theirs, ours) in equal {
            open.columns[build.at + theirs] = open.columns[probe.at + ours].clone();
        }
        let residual = substitute_all(&join.residual, &open.columns)?;
        open.filter(residual);
        Ok(open)
    }

    /// Give `open`, which has the columns of the probing side and now a payload behind its scope, the
    /// columns of the join.
    pub(super) fn beside(
        &self,
        open: &mut Open,
        join: &Join,
        (probe, build): (&Side<'_>, &Side<'_>),
        payload: &[usize],
        found: &[ResultColumn],
    ) {
        let mut columns: Vec<Expr> = join
            .left
            .columns
            .iter()
            .chain(&join.right.columns)
            .map(absent)
            .collect();
        for (i, expr) in open.columns.drain(..).enumerate() {
            columns[probe.at + i] = expr;
        }
        for (i, expr) in payload.iter().zip(scope(found, open.width)) {
            columns[build.at + i] = expr;
        }
        open.columns = columns;
        open.width += found.len();
    }
}
