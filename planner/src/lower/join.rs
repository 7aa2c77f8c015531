//! Joins: which side is built, how it is probed, and what becomes of rows without a match.

use warpline_gpu::expr::Expr;
use warpline_gpu::graph::{Probe, ProbeKind, ResultColumn, Stage};

use super::build::BuildSpec;
use super::materialize::JoinRequest;
use super::side::{Side, sides};
use super::{Columns, Lowerer, OpenPipeline, scope, unused};
use crate::reason::Reason;
use crate::rel::expr::{as_column, substitute_all};
use crate::rel::{BuildSide, Join, JoinKind, RelRef};
use crate::stats::Proof;

impl Lowerer<'_> {
    pub(super) fn join(
        &mut self,
        rel: &RelRef,
        join: &Join,
        needed: &Columns,
    ) -> Result<OpenPipeline, Reason> {
        let (left, right) = sides(join, needed);
        if let Some(verified) = self.verified_join(rel, join, needed) {
            return self.verify_pairs(rel, &verified, needed);
        }
        if let Some(banded) = self.banded_join(rel, join, needed) {
            return self.join_by_band(rel, &banded, needed);
        }
        match join.kind {
            JoinKind::Inner => match self.wide_key_join(rel, join, &left, &right) {
                Some(partitionable) => self.join(rel, &partitionable, needed),
                None => self.inner(rel, join, &left, &right),
            },
            JoinKind::Left => self.left(rel, join, &left, &right),
            JoinKind::Full => self.preserve_build(rel, join, &left, &right),
            JoinKind::Semi | JoinKind::Anti if self.left_is_smaller(join, &left, &right) => {
                self.mark_left(rel, join, &left, &right)
            }
            JoinKind::Semi => self.probe_right(rel, join, &left, &right, ProbeKind::Semi),
            JoinKind::Anti => self.probe_right(rel, join, &left, &right, ProbeKind::Anti),
            JoinKind::NullAwareAnti => {
                self.probe_right(rel, join, &left, &right, ProbeKind::NullAwareAnti)
            }
            JoinKind::Mark => self.probe_right(rel, join, &left, &right, ProbeKind::Mark),
        }
    }

    pub(super) fn inner(
        &mut self,
        rel: &RelRef,
        join: &Join,
        left: &Side<'_>,
        right: &Side<'_>,
    ) -> Result<OpenPipeline, Reason> {
        let build_left = match join.build {
            Some(side) => side == BuildSide::Left,
            None => self.build_cost(left, right) < self.build_cost(right, left),
        };
        let (probe, build) = if build_left {
            (right, left)
        } else {
            (left, right)
        };
        let spec = BuildSpec {
            null_equal: join.null_equal,
            ..BuildSpec::default()
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
        let one = self.is_unique_side(build, &probe);
        let build_keys: Columns = build.keys.iter().filter_map(as_column).collect();
        let set = payload.is_empty()
            && !build.keys.is_empty()
            && build.order.is_none()
            && self
                .input
                .estimator
                .unique(build.rel, &build_keys, Proof::Certain);
        let request = JoinRequest {
            of: rel,
            build,
            probe: &probe,
            payload: &payload,
            unique: one || set,
            existence: set,
        };
        let mut algorithm = self.algorithm(&request);
        let mut reduced = None;
        if !join.null_equal
            && let Some((instead, rows)) = self.reduced(&request, &algorithm)
        {
            let keys = Side {
                needed: Columns::new(),
                ..probe.clone()
            };
            let known = BuildSpec {
                existence: true,
                ..BuildSpec::default()
            };
            reduced = Some((self.build(&keys, &[], known, false)?.0, rows));
            algorithm = instead;
        }
        let materialized = algorithm.materialized();
        let payload = match materialized || set || reduced.is_some() {
            true => payload,
            false => self.carried(build, payload),
        };
        let spec = BuildSpec {
            // At most one match, of which nothing is wanted.
            existence: set,
            algorithm,
            reduced,
            ..spec
        };
        let (index, unique) = self.build(build, &payload, spec, one)?;
        let mut open = self.stream_side(&probe)?;
        let keys = substitute_all(&probe.keys, &open.columns)?;
        let band = probe.band_over(&open)?;
        let found = self.payload_columns(index, false);
        let probed = Probe {
            index,
            keys,
            band,
            kind: if set {
                ProbeKind::Semi
            } else {
                ProbeKind::Inner
            },
            residual: vec![],
            marks: vec![],
        };
        open = if (unique || set) && !materialized {
            let mut open = open;
            open.stages.push(Stage::Probe(probed));
            open
        } else {
            self.pairs(open, probed, &probe, materialized)?
        };
        self.append_payload(&mut open, join, (&probe, build), &payload, &found);
        for (theirs, ours) in equal {
            open.columns[build.at + theirs] = open.columns[probe.at + ours].clone();
        }
        let residual = substitute_all(&join.residual, &open.columns)?;
        open.filter(residual);
        Ok(open)
    }

    /// Turn the columns of `open`, those of the probe side, into the columns of the join, with the payload of the
    /// build side appended to the scope.
    pub(super) fn append_payload(
        &self,
        open: &mut OpenPipeline,
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
            .map(unused)
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
