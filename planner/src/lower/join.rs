//! Joins: which side is built, how it is probed, and what becomes of rows without a match.

use std::sync::Arc;

use warpline_gpu::expr::Expr;
use warpline_gpu::graph::{
    MaterializedJoin, Probe, ProbeKind, ResultColumn, ResultId, ResultKind, Sink, Source, Stage,
};

use super::materialize::{Algorithm, Pairing};
use super::{Columns, Lowerer, Open, absent, entered, read_by, scope};
use crate::reason::Reason;
use crate::rel::expr::{as_column, null, same, substitute_all};
use crate::rel::{BuildSide, Join, JoinKind, RelKind, RelRef};
use crate::stats::Proof;

/// An index that has been built, and from what.
#[derive(Debug)]
pub(super) struct Built {
    rel: RelRef,
    keys: Vec<Expr>,
    payload: Vec<usize>,
    null_equal: bool,
    existence: bool,
    join: Option<MaterializedJoin>,
    id: ResultId,
    unique: bool,
}

/// What an index is built for.
#[derive(Debug, Clone, Default)]
struct Purpose {
    null_equal: bool,
    track_matches: bool,
    existence: bool,
    algorithm: Algorithm,
}

/// One side of a join.
#[derive(Clone)]
pub(super) struct Side<'a> {
    pub(super) rel: &'a RelRef,
    pub(super) keys: Vec<Expr>,
    /// Columns that are needed above or by the residual condition.
    pub(super) needed: Columns,
    /// Where its columns begin among those of the join.
    at: usize,
}

impl Lowerer<'_> {
    pub(super) fn join(
        &mut self,
        rel: &RelRef,
        join: &Join,
        needed: &Columns,
    ) -> Result<Open, Reason> {
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
        match join.kind {
            JoinKind::Inner => self.inner(rel, join, &left, &right),
            JoinKind::Left => self.left(rel, join, &left, &right),
            JoinKind::Full => self.preserve_build(rel, join, &left, &right),
            JoinKind::Semi | JoinKind::Anti if self.left_is_smaller(join) => {
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
        let algorithm = self.algorithm(&Pairing {
            build,
            probe: &probe,
            payload: &payload,
            matches: self.input.estimator.rows(rel),
            unique: one || set,
            existence: set,
        });
        let materialized = algorithm.materialized();
        let purpose = Purpose {
            // At most one match, of which nothing is wanted.
            existence: set,
            algorithm,
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
            self.pairs(open, probed, &probe)?
        };
        self.beside(&mut open, join, (&probe, build), &payload, &found);
        for (theirs, ours) in equal {
            open.columns[build.at + theirs] = open.columns[probe.at + ours].clone();
        }
        let residual = substitute_all(&join.residual, &open.columns)?;
        open.filter(residual);
        Ok(open)
    }

    /// What it costs to build `build` and to probe it with `probe`, in units of a row streamed.
    fn build_cost(&self, build: &Side<'_>, probe: &Side<'_>) -> f64 {
        let rows = self.input.estimator.rows(build.rel);
        let probing = self.input.estimator.rows(probe.rel);
        if self.unique_beside(build, probe) {
            4.0 * rows + probing
        } else {
            8.0 * rows + 4.0 * probing
        }
    }

    fn assumed_unique(&self, side: &Side<'_>) -> bool {
        let keys: Columns = side.keys.iter().filter_map(as_column).collect();
        !self.disproved(side)
            && self
                .input
                .estimator
                .unique(side.rel, &keys, Proof::Plausible)
    }

    /// As [`Self::assumed_unique`], in doubt about the side whose tables are larger: it refers to the other.
    fn unique_beside(&self, side: &Side<'_>, other: &Side<'_>) -> bool {
        if side.keys.is_empty() || !self.assumed_unique(side) {
            return false;
        }
        let estimator = self.input.estimator;
        let keys: Columns = side.keys.iter().filter_map(as_column).collect();
        estimator.unique(side.rel, &keys, Proof::Certain)
            || !self.assumed_unique(other)
            || estimator.base_rows(side.rel) < estimator.base_rows(other.rel)
    }

    /// Has a run seen equal keys in a build of this name? Builds of one name share the verdict.
    fn disproved(&self, side: &Side<'_>) -> bool {
        let name = build_name(side);
        self.input.duplicates.iter().any(|seen| {
            seen.strip_prefix(&name)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with(" #"))
        })
    }

    fn stream_side(&mut self, side: &Side<'_>) -> Result<Open, Reason> {
        let mut needed = side.needed.clone();
        needed.extend(read_by(&side.keys));
        self.stream(side.rel, &needed)
    }

    /// An index over a side; true when it is taken to be unique.
    fn build(
        &mut self,
        side: &Side<'_>,
        payload: &[usize],
        purpose: Purpose,
        one: bool,
    ) -> Result<(ResultId, bool), Reason> {
        let reusable = self.builds.iter().find(|b| {
            !purpose.track_matches
                && std::ptr::eq(Arc::as_ptr(&b.rel), Arc::as_ptr(side.rel))
                && b.null_equal == purpose.null_equal
                && b.existence == purpose.existence
                && b.join == purpose.algorithm.join
                && b.payload == payload
                && b.keys.len() == side.keys.len()
                && b.keys.iter().zip(&side.keys).all(|(a, b)| same(a, b))
        });
        if let Some(built) = reusable {
            return Ok((built.id, built.unique));
        }
        let mut needed: Columns = payload.iter().copied().collect();
        needed.extend(read_by(&side.keys));
        let open = self.stream(side.rel, &needed)?;
        let name = self.unique_name(build_name(side));
        let unique = !purpose.existence && one;
        let columns: Vec<ResultColumn> = payload
            .iter()
            .map(|i| side.rel.columns[*i].clone())
            .collect();
        let keys = substitute_all(&side.keys, &open.columns)?;
        let values = payload.iter().map(|i| open.columns[*i].clone()).collect();
        let estimate = self.rows(side.rel);
        let into = self.result(ResultKind::Index(columns), estimate, name);
        let mut build = entered(keys, values);
        build.unique = unique;
        build.null_equal = purpose.null_equal;
        build.track_matches = purpose.track_matches;
        build.existence = purpose.existence;
        build.join = purpose.algorithm.join;
        build.reason = purpose.algorithm.reason;
        self.close(open, Sink::Build { into, build });
        if !purpose.track_matches {
            self.builds.push(Built {
                rel: Arc::clone(side.rel),
                keys: side.keys.clone(),
                payload: payload.to_vec(),
                null_equal: purpose.null_equal,
                existence: purpose.existence,
                join: purpose.algorithm.join,
                id: into,
                unique,
            });
        }
        Ok((into, unique))
    }

    /// The columns that a probe of `index` appends.
    fn found(&self, index: ResultId, outer: bool) -> Vec<ResultColumn> {
        self.results[index]
            .kind
            .columns()
            .iter()
            .map(|c| ResultColumn {
                nullable: c.nullable || outer,
                ..c.clone()
            })
            .collect()
    }

    /// End `open` at a probe with many matches and go on with the pairs.
    fn pairs(&mut self, open: Open, probe: Probe, side: &Side<'_>) -> Result<Open, Reason> {
        let kept: Vec<usize> = side.needed.iter().copied().collect();
        let columns: Vec<ResultColumn> =
            kept.iter().map(|i| side.rel.columns[*i].clone()).collect();
        let values = kept.iter().map(|i| open.columns[*i].clone()).collect();
        let estimate = self.rows(side.rel);
        let name = self.unique_name(format!(
            "{} with matches in {}",
            side.rel.label(),
            self.results[probe.index].name
        ));
        let into = self.result(ResultKind::Matches(columns), estimate, name);
        self.close(
            open,
            Sink::Matches {
                into,
                probe,
                columns: values,
            },
        );
        let mut found: Vec<Expr> = side.rel.columns.iter().map(absent).collect();
        for (place, i) in kept.iter().enumerate() {
            let column = &side.rel.columns[*i];
            found[*i] = Expr::column(place, column.data_type.clone(), column.nullable);
        }
        Ok(Open {
            source: Source::Pairs(into),
            stages: vec![],
            columns: found,
            width: kept.len(),
        })
    }

    /// Give `open`, which has the columns of the probing side and now a payload behind its scope, the
    /// columns of the join.
    fn beside(
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

    fn left(
        &mut self,
        rel: &RelRef,
        join: &Join,
        left: &Side<'_>,
        right: &Side<'_>,
    ) -> Result<Open, Reason> {
        let one = self.unique_beside(right, left);
        if !one && (!join.residual.is_empty() || self.unique_beside(left, right)) {
            return self.preserve_build(rel, join, left, right);
        }
        let payload: Vec<usize> = right.needed.iter().copied().collect();
        let algorithm = if join.residual.is_empty() {
            self.algorithm(&Pairing {
                build: right,
                probe: left,
                payload: &payload,
                matches: self.input.estimator.rows(rel),
                unique: one,
                existence: false,
            })
        } else {
            Algorithm::default()
        };
        let materialized = algorithm.materialized();
        let purpose = Purpose {
            null_equal: join.null_equal,
            algorithm,
            ..Purpose::default()
        };
        let (index, unique) = self.build(right, &payload, purpose, one)?;
        let open = self.stream_side(left)?;
        let keys = substitute_all(&left.keys, &open.columns)?;
        let found = self.found(index, true);
        let mut probe = Probe {
            index,
            keys,
            kind: ProbeKind::Left,
            residual: vec![],
            mark_entries: false,
        };
        if unique && !materialized {
            let mut after = open.clone();
            self.beside(&mut after, join, (left, right), &payload, &found);
            probe.residual = substitute_all(&join.residual, &after.columns)?;
            after.stages.push(Stage::Probe(probe));
            return Ok(after);
        }
        let mut open = self.pairs(open, probe, left)?;
        self.beside(&mut open, join, (left, right), &payload, &found);
        Ok(open)
    }

    /// Outer joins whose preserved left side is built: the right side probes and marks, and entries
    /// without a mark follow. For a full join, right rows without a match follow too.
    fn preserve_build(
        &mut self,
        rel: &RelRef,
        join: &Join,
        left: &Side<'_>,
        right: &Side<'_>,
    ) -> Result<Open, Reason> {
        let payload: Vec<usize> = left.needed.iter().copied().collect();
        let one = self.unique_beside(left, right);
        let algorithm = if join.residual.is_empty() {
            self.algorithm(&Pairing {
                build: left,
                probe: right,
                payload: &payload,
                matches: self.input.estimator.rows(rel),
                unique: one,
                existence: false,
            })
        } else {
            Algorithm::default()
        };
        let materialized = algorithm.materialized();
        let purpose = Purpose {
            null_equal: join.null_equal,
            track_matches: true,
            existence: false,
            algorithm,
        };
        let (index, unique) = self.build(left, &payload, purpose, one)?;
        let full = join.kind == JoinKind::Full;
        let wanted: Vec<usize> = left
            .needed
            .iter()
            .copied()
            .chain(right.needed.iter().map(|i| right.at + i))
            .collect();
        let columns: Vec<ResultColumn> = wanted.iter().map(|i| rel.columns[*i].clone()).collect();
        let name = self.unique_name(rel.label());
        let estimate = self.rows(rel);
        let into = self.result(ResultKind::Rows(columns.clone()), estimate, name);
        let found = self.found(index, materialized && full);
        let probe = |open: &Open, kind, mark_entries| -> Result<Probe, Reason> {
            Ok(Probe {
                index,
                keys: substitute_all(&right.keys, &open.columns)?,
                kind,
                residual: vec![],
                mark_entries,
            })
        };
        let over_payload = |this: &Self, open: &Open| -> Result<Vec<Expr>, Reason> {
            let mut after = open.clone();
            this.beside(&mut after, join, (right, left), &payload, &found);
            substitute_all(&join.residual, &after.columns)
        };

        // Pairs.
        let open = self.stream_side(right)?;
        let mut pairs = if materialized {
            // Marks are set on the way, and for a full join the right rows without a match are among the pairs.
            let kind = if full {
                ProbeKind::Left
            } else {
                ProbeKind::Inner
            };
            let probed = probe(&open, kind, true)?;
            self.pairs(open, probed, right)?
        } else if unique {
            let mut probed = probe(&open, ProbeKind::Inner, true)?;
            probed.residual = over_payload(self, &open)?;
            let mut pairs = open;
            pairs.stages.push(Stage::Probe(probed));
            pairs
        } else {
            let probed = probe(&open, ProbeKind::Inner, false)?;
            self.pairs(open, probed, right)?
        };
        self.beside(&mut pairs, join, (right, left), &payload, &found);
        if !unique && !materialized {
            let residual = substitute_all(&join.residual, &pairs.columns)?;
            pairs.filter(residual);
        }
        let columns = wanted.iter().map(|i| pairs.columns[*i].clone()).collect();
        self.close(pairs, Sink::Rows { into, columns });

        // Marks, where pairs could not set them; and right rows without a match.
        if !unique && !materialized {
            let mut marks = self.stream_side(right)?;
            let mut probed = probe(&marks, ProbeKind::Semi, true)?;
            probed.residual = over_payload(self, &marks)?;
            marks.stages.push(Stage::Probe(probed));
            self.close(marks, Sink::Discard);
        }
        if full && !materialized {
            let mut rest = self.stream_side(right)?;
            let mut probed = probe(&rest, ProbeKind::Anti, false)?;
            probed.residual = over_payload(self, &rest)?;
            rest.stages.push(Stage::Probe(probed));
            let columns = wanted
                .iter()
                .map(|i| {
                    if *i < right.at {
                        null(&rel.columns[*i].data_type)
                    } else {
                        Ok(rest.columns[i - right.at].clone())
                    }
                })
                .collect::<Result<_, _>>()?;
            self.close(rest, Sink::Rows { into, columns });
        }

        // Left rows without a match.
        let unmatched = Open::of_result(Source::Entries(index, false), &self.found(index, false));
        let columns = wanted
            .iter()
            .map(|i| match payload.iter().position(|p| p == i) {
                Some(place) if *i < right.at => Ok(unmatched.columns[place].clone()),
                _ => null(&rel.columns[*i].data_type),
            })
            .collect::<Result<_, _>>()?;
        self.close(unmatched, Sink::Rows { into, columns });

        let mut result: Vec<Expr> = rel.columns.iter().map(absent).collect();
        for (place, i) in wanted.iter().enumerate() {
            let column = &rel.columns[*i];
            result[*i] = Expr::column(place, column.data_type.clone(), column.nullable);
        }
        Ok(Open {
            source: Source::Rows(into),
            stages: vec![],
            columns: result,
            width: wanted.len(),
        })
    }

    /// Semi, anti and mark joins: look each left row up in an index over the right side.
    fn lookup(
        &mut self,
        rel: &RelRef,
        join: &Join,
        left: &Side<'_>,
        right: &Side<'_>,
        kind: ProbeKind,
    ) -> Result<Open, Reason> {
        let residual = &join.residual;
        let n = right.at;
        let payload: Vec<usize> = read_by(residual)
            .into_iter()
            .filter(|c| *c >= n)
            .map(|c| c - n)
            .collect();
        let one = self.unique_beside(right, left);
        let algorithm = if residual.is_empty() && matches!(kind, ProbeKind::Semi | ProbeKind::Anti)
        {
            self.algorithm(&Pairing {
                build: right,
                probe: left,
                payload: &payload,
                matches: self.input.estimator.rows(rel),
                unique: one,
                existence: true,
            })
        } else {
            Algorithm::default()
        };
        let materialized = algorithm.materialized();
        let purpose = Purpose {
            null_equal: join.null_equal,
            track_matches: false,
            existence: residual.is_empty(),
            algorithm,
        };
        let (index, _) = self.build(right, &payload, purpose, one)?;
        let mut open = self.stream_side(left)?;
        let mut probe = Probe {
            index,
            keys: substitute_all(&left.keys, &open.columns)?,
            kind,
            residual: vec![],
            mark_entries: false,
        };
        if materialized {
            return self.pairs(open, probe, left);
        }
        if !residual.is_empty() {
            let mut after = open.clone();
            let found = self.found(index, false);
            self.beside(&mut after, join, (left, right), &payload, &found);
            probe.residual = substitute_all(residual, &after.columns)?;
        }
        open.stages.push(Stage::Probe(probe));
        if kind == ProbeKind::Mark {
            let mark = arrow::datatypes::DataType::Boolean;
            open.columns.push(Expr::column(open.width, mark, false));
            open.width += 1;
        }
        Ok(open)
    }

    /// Is it cheaper to enter the left rows of a semi or anti join and to let the right ones mark them?
    fn left_is_smaller(&self, join: &Join) -> bool {
        let (l, r) = (
            self.input.estimator.rows(&join.left),
            self.input.estimator.rows(&join.right),
        );
        // A set of dense keys costs a bit an entry, rows with a payload a good deal more.
        let factor = if !join.residual.is_empty() {
            1.0
        } else if join.on.len() == 1 {
            24.0
        } else {
            4.0
        };
        !join.on.is_empty() && l * factor < r
    }

    /// Semi and anti joins from the small left side: the right side marks its entries.
    fn mark_left(
        &mut self,
        rel: &RelRef,
        join: &Join,
        left: &Side<'_>,
        right: &Side<'_>,
    ) -> Result<Open, Reason> {
        let payload: Vec<usize> = left.needed.iter().copied().collect();
        let one = self.unique_beside(left, right);
        let algorithm = if join.residual.is_empty() {
            self.algorithm(&Pairing {
                build: left,
                probe: right,
                payload: &payload,
                matches: self.input.estimator.rows(rel),
                unique: one,
                existence: true,
            })
        } else {
            Algorithm::default()
        };
        let materialized = algorithm.materialized();
        let purpose = Purpose {
            null_equal: join.null_equal,
            track_matches: true,
            existence: false,
            algorithm,
        };
        let (index, _) = self.build(left, &payload, purpose, one)?;
        let mut marks = self.stream_side(right)?;
        let found = self.found(index, false);
        let keys = substitute_all(&right.keys, &marks.columns)?;
        let mut after = marks.clone();
        self.beside(&mut after, join, (right, left), &payload, &found);
        let residual = substitute_all(&join.residual, &after.columns)?;
        let probe = Probe {
            index,
            keys,
            kind: ProbeKind::Semi,
            residual,
            mark_entries: true,
        };
        if materialized {
            // Only the marks are read afterwards.
            let nothing = Side {
                needed: Columns::new(),
                ..right.clone()
            };
            self.pairs(marks, probe, &nothing)?;
        } else {
            marks.stages.push(Stage::Probe(probe));
            self.close(marks, Sink::Discard);
        }
        let matched = join.kind == JoinKind::Semi;
        let mut columns: Vec<Expr> = left.rel.columns.iter().map(absent).collect();
        for (i, expr) in payload.iter().zip(scope(&found, 0)) {
            columns[*i] = expr;
        }
        Ok(Open {
            source: Source::Entries(index, matched),
            stages: vec![],
            columns,
            width: found.len(),
        })
    }
}

/// Names a build by what it holds and by its keys.
fn build_name(side: &Side<'_>) -> String {
    let keys: Vec<_> = side
        .keys
        .iter()
        .map(|key| match as_column(key) {
            Some(i) => side.rel.columns[i].name.clone(),
            None => "expression".into(),
        })
        .collect();
    let filtered = if matches!(side.rel.kind, RelKind::Scan { .. }) {
        ""
    } else {
        "*"
    };
    format!("{}{filtered}({})", side.rel.label(), keys.join(", "))
}
