//! Semi, anti and mark joins.

use warpline_gpu::expr::Expr;
use warpline_gpu::graph::{Probe, ProbeKind, Sink, Source, Stage};

use super::build::{BuildSpec, MarkedBuild};
use super::materialize::{Algorithm, JoinRequest};
use super::side::Side;
use super::{Columns, Lowerer, OpenPipeline, read_by, scope, unused};
use crate::reason::Reason;
use crate::rel::expr::substitute_all;
use crate::rel::{Join, JoinKind, RelRef};

impl Lowerer<'_> {
    /// Semi, anti and mark joins that probe an index over the right side with each left row.
    pub(super) fn probe_right(
        &mut self,
        rel: &RelRef,
        join: &Join,
        left: &Side<'_>,
        right: &Side<'_>,
        kind: ProbeKind,
    ) -> Result<OpenPipeline, Reason> {
        let residual = &join.residual;
        let n = right.at;
        let payload: Vec<usize> = read_by(residual)
            .into_iter()
            .filter(|c| *c >= n)
            .map(|c| c - n)
            .collect();
        let one = self.is_unique_side(right, left);
        // The other kinds have rows of their own to keep, or nothing to pair.
        let algorithm = match kind {
            ProbeKind::Semi | ProbeKind::Anti => self.algorithm_by_keys(
                join,
                &JoinRequest {
                    of: rel,
                    build: right,
                    probe: left,
                    payload: &payload,
                    unique: one,
                    existence: true,
                },
            ),
            _ => Algorithm::default(),
        };
        let materialized = algorithm.materialized();
        let payload = match materialized || payload.is_empty() {
            true => payload,
            false => self.carried(right, payload),
        };
        let spec = BuildSpec {
            null_equal: join.null_equal,
            track_matches: false,
            existence: residual.is_empty() && right.order.is_none(),
            algorithm,
            reduced: None,
            streamed: None,
        };
        let (index, _) = self.build(right, &payload, spec, one)?;
        let mut open = self.stream_side(left)?;
        let mut probe = Probe {
            index,
            keys: substitute_all(&left.keys, &open.columns)?,
            band: left.band_over(&open)?,
            kind,
            residual: vec![],
            marks: vec![],
        };
        if materialized {
            return self.pairs(open, probe, left, true);
        }
        if !residual.is_empty() {
            let mut after = open.clone();
            let found = self.payload_columns(index, false);
            self.append_payload(&mut after, join, (left, right), &payload, &found);
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

    /// Are keys of a side repeated so often, or a tree forced, that a tree visits its entries?
    fn spreads(&self, side: &Side<'_>) -> bool {
        self.input.shape.spreads(self.repeats(side))
    }

    /// Average number of entries with the key of an entry.
    fn repeats(&self, side: &Side<'_>) -> f64 {
        self.input.estimator.repeats(side.rel, &side.keys)
    }

    /// Is it cheaper to build the left side of a semi or anti join and to let the right side mark it?
    pub(super) fn left_is_smaller(&self, join: &Join, left: &Side<'_>, right: &Side<'_>) -> bool {
        /// Inserting a row whose key repeats and marking it in a tree costs this many times a probe of a unique key
        /// (on an H200, 620 to 20 picoseconds); without a tree it is more.
        const OF_A_TREE: f64 = 32.0;
        let (l, r) = (
            self.input.estimator.rows(&join.left),
            self.input.estimator.rows(&join.right),
        );
        // A set of dense keys costs a bit an entry, rows with a payload a good deal more.
        let marks_many = !self.input.shape.follows_matches()
            && !self.is_unique_side(left, right)
            && self.input.shape.repeats_much(self.repeats(left))
            && self.is_unique_side(right, left);
        let factor = if marks_many {
            OF_A_TREE
        } else if !join.residual.is_empty() {
            1.0
        } else if join.on.len() == 1 {
            24.0
        } else {
            4.0
        };
        // A set of all keys of a table is there from the second time on.
        let kept = join.residual.is_empty()
            && !join.null_equal
            && right.order.is_none()
            && self.input.estimator.keeps_set(&join.right, &right.keys);
        let asked = right.order.is_none() && self.input.estimator.asks_kept(join);
        !join.on.is_empty() && l * factor < r && !kept && !asked
    }

    /// Semi and anti joins that build the smaller left side: the right side marks its entries.
    pub(super) fn mark_left(
        &mut self,
        rel: &RelRef,
        join: &Join,
        left: &Side<'_>,
        right: &Side<'_>,
    ) -> Result<OpenPipeline, Reason> {
        let mut streamed = None;
        if self.may_mark_again(left, right) {
            let open = self.stream_side(left)?;
            if let Some(rows) = self.mark_again(join, (left, right), &open)? {
                return Ok(rows);
            }
            streamed = Some(open);
        }
        let MarkedBuild {
            index,
            unique,
            materialized,
            payload,
        } = self.build_marked(rel, join, (left, right), (streamed, true))?;
        let mut marks = self.stream_side(right)?;
        let found = self.payload_columns(index, false);
        let keys = substitute_all(&right.keys, &marks.columns)?;
        let band = right.band_over(&marks)?;
        let mut after = marks.clone();
        self.append_payload(&mut after, join, (right, left), &payload, &found);
        let residual = substitute_all(&join.residual, &after.columns)?;
        let probe = Probe {
            index,
            keys,
            band,
            kind: ProbeKind::Semi,
            residual,
            marks: vec![vec![]],
        };
        if materialized {
            // Only the marks are read afterwards.
            let nothing = Side {
                needed: Columns::new(),
                ..right.clone()
            };
            self.pairs(marks, probe, &nothing, true)?;
        } else if !unique && self.spreads(left) {
            // One thread would go over all entries of a key: here they are shared by all.
            marks.stages.push(Stage::Expand(Probe {
                kind: ProbeKind::Inner,
                ..probe
            }));
            self.close(marks, Sink::Discard);
        } else {
            marks.stages.push(Stage::Probe(probe));
            self.close(marks, Sink::Discard);
        }
        let matched = join.kind == JoinKind::Semi;
        let mut columns: Vec<Expr> = left.rel.columns.iter().map(unused).collect();
        for (i, expr) in payload.iter().zip(scope(&found, 0)) {
            columns[*i] = expr;
        }
        Ok(OpenPipeline {
            source: Source::Entries(index, vec![matched]),
            stages: vec![],
            left: vec![],
            columns,
            width: found.len(),
        })
    }
}
