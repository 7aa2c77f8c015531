//! Left and full joins.

use warpline_gpu::expr::Expr;
use warpline_gpu::graph::{Probe, ProbeKind, ResultColumn, ResultKind, Sink, Source, Stage};

use super::build::{BuildSpec, MarkedBuild};
use super::materialize::JoinRequest;
use super::side::Side;
use super::{Lowerer, OpenPipeline, unused};
use crate::reason::Reason;
use crate::rel::expr::{null, substitute_all};
use crate::rel::{Join, JoinKind, RelRef};

impl Lowerer<'_> {
    pub(super) fn left(
        &mut self,
        rel: &RelRef,
        join: &Join,
        left: &Side<'_>,
        right: &Side<'_>,
    ) -> Result<OpenPipeline, Reason> {
        let one = self.is_unique_side(right, left);
        if !one && (!join.residual.is_empty() || self.is_unique_side(left, right)) {
            return self.preserve_build(rel, join, left, right);
        }
        let payload: Vec<usize> = right.needed.iter().copied().collect();
        let algorithm = self.algorithm_by_keys(
            join,
            &JoinRequest {
                of: rel,
                build: right,
                probe: left,
                payload: &payload,
                unique: one,
                existence: false,
            },
        );
        let materialized = algorithm.materialized();
        let spec = BuildSpec {
            null_equal: join.null_equal,
            algorithm,
            ..BuildSpec::default()
        };
        let (index, unique) = self.build(right, &payload, spec, one)?;
        let open = self.stream_side(left)?;
        let keys = substitute_all(&left.keys, &open.columns)?;
        let band = left.band_over(&open)?;
        let found = self.payload_columns(index, true);
        let mut probe = Probe {
            index,
            keys,
            band,
            kind: ProbeKind::Left,
            residual: vec![],
            marks: vec![],
        };
        if unique && !materialized {
            let mut after = open.clone();
            self.append_payload(&mut after, join, (left, right), &payload, &found);
            probe.residual = substitute_all(&join.residual, &after.columns)?;
            after.stages.push(Stage::Probe(probe));
            return Ok(after);
        }
        let mut open = self.pairs(open, probe, left, materialized)?;
        self.append_payload(&mut open, join, (left, right), &payload, &found);
        Ok(open)
    }

    /// Outer joins that build the preserved left side: the right side probes and marks entries; unmarked entries
    /// follow. In a full join, right rows without a match follow too.
    pub(super) fn preserve_build(
        &mut self,
        rel: &RelRef,
        join: &Join,
        left: &Side<'_>,
        right: &Side<'_>,
    ) -> Result<OpenPipeline, Reason> {
        let MarkedBuild {
            index,
            unique,
            materialized,
            payload,
        } = self.build_marked(rel, join, (left, right), (None, false))?;
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
        let found = self.payload_columns(index, materialized && full);
        let probe = |open: &OpenPipeline, kind, marks: bool| -> Result<Probe, Reason> {
            Ok(Probe {
                index,
                keys: substitute_all(&right.keys, &open.columns)?,
                band: right.band_over(open)?,
                kind,
                residual: vec![],
                marks: if marks { vec![vec![]] } else { vec![] },
            })
        };
        let over_payload = |this: &Self, open: &OpenPipeline| -> Result<Vec<Expr>, Reason> {
            let mut after = open.clone();
            this.append_payload(&mut after, join, (right, left), &payload, &found);
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
            self.pairs(open, probed, right, true)?
        } else if unique {
            let mut probed = probe(&open, ProbeKind::Inner, true)?;
            probed.residual = over_payload(self, &open)?;
            let mut pairs = open;
            pairs.stages.push(Stage::Probe(probed));
            pairs
        } else {
            let probed = probe(&open, ProbeKind::Inner, false)?;
            self.pairs(open, probed, right, false)?
        };
        self.append_payload(&mut pairs, join, (right, left), &payload, &found);
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
        let unmatched = OpenPipeline::of_result(
            Source::Entries(index, vec![false]),
            &self.payload_columns(index, false),
        );
        let columns = wanted
            .iter()
            .map(|i| match payload.iter().position(|p| p == i) {
                Some(place) if *i < right.at => Ok(unmatched.columns[place].clone()),
                _ => null(&rel.columns[*i].data_type),
            })
            .collect::<Result<_, _>>()?;
        self.close(unmatched, Sink::Rows { into, columns });

        let mut result: Vec<Expr> = rel.columns.iter().map(unused).collect();
        for (place, i) in wanted.iter().enumerate() {
            let column = &rel.columns[*i];
            result[*i] = Expr::column(place, column.data_type.clone(), column.nullable);
        }
        Ok(OpenPipeline {
            source: Source::Rows(into),
            stages: vec![],
            left: vec![],
            columns: result,
            width: wanted.len(),
        })
    }
}
