//! Outer, semi, anti and mark joins that test a condition on each pair: residual conditions, or keys too wide to
//! partition.
//!
//! An index tests such a condition while an entry is probed. Where the index exceeds its share of memory, both sides
//! are joined by the keys, in parts if need be; the condition is tested on the pairs, and pairs that pass mark the
//! entries of the left side. A full join does the same again for the right side.

use datafusion::common::ScalarValue;
use warpline_gpu::expr::Expr;
use warpline_gpu::graph::{
    Probe, ProbeKind, ResultColumn, ResultId, ResultKind, Sink, Source, Stage,
};

use super::build::BuildSpec;
use super::materialize::{Algorithm, JoinRequest};
use super::side::{Side, sides};
use super::{Columns, Lowerer, OpenPipeline, unused};
use crate::reason::Reason;
use crate::rel::expr::{null, substitute_all};
use crate::rel::{Join, JoinKind, RelRef};

/// A join that verifies pairs, and the algorithm that finds them.
pub(super) struct VerifiedJoin {
    /// The join by keys that can be partitioned.
    join: Join,
    algorithm: Algorithm,
}

impl Lowerer<'_> {
    /// The join as one that verifies pairs, where that is the way to run it in parts.
    pub(super) fn verified_join(
        &self,
        rel: &RelRef,
        join: &Join,
        needed: &Columns,
    ) -> Option<VerifiedJoin> {
        let (left, right) = sides(join, needed);
        let wide = self.is_wide(&left, &right);
        let by_keys_alone = join.residual.is_empty() && !wide;
        if by_keys_alone || join.on.is_empty() || self.index_is_forced() {
            return None;
        }
        let looks_up_right = match join.kind {
            JoinKind::Inner | JoinKind::NullAwareAnti => return None,
            JoinKind::Left => self.is_unique_side(&right, &left),
            JoinKind::Full => false,
            JoinKind::Semi | JoinKind::Anti => !self.left_is_smaller(join, &left, &right),
            JoinKind::Mark => true,
        };
        let (build, probe) = match looks_up_right {
            true => (&right, &left),
            false => (&left, &right),
        };
        if !self.input.parts.allowed() && !self.exceeds_join_room(rel, build, probe) {
            return None;
        }
        let join = match wide {
            true => self.join_on_some_keys(join, &left, &right)?,
            false => self
                .keys_are_selective(&left, &right)
                .then(|| join.clone())?,
        };
        let (left, right) = sides(&join, needed);
        let payload: Vec<usize> = left.needed.iter().copied().collect();
        let algorithm = self.algorithm(&JoinRequest {
            of: rel,
            build: &left,
            probe: &right,
            payload: &payload,
            unique: false,
            existence: false,
        });
        // What is sorted does not come in parts.
        let in_parts = algorithm.join.is_some_and(|join| !join.sorts());
        in_parts.then_some(VerifiedJoin { join, algorithm })
    }

    /// The rows of a join that verifies pairs.
    pub(super) fn verify_pairs(
        &mut self,
        rel: &RelRef,
        verified: &VerifiedJoin,
        needed: &Columns,
    ) -> Result<OpenPipeline, Reason> {
        let join = &verified.join;
        let (left, right) = sides(join, needed);
        match join.kind {
            JoinKind::Left | JoinKind::Full => {
                let (into, wanted) = self.wanted_rows(rel, needed);
                let index = self.join_and_mark(verified, (&left, &right), Some((into, &wanted)))?;
                self.unmatched(rel, index, &left, (into, &wanted))?;
                if join.kind == JoinKind::Full {
                    let index = self.join_and_mark(verified, (&right, &left), None)?;
                    self.unmatched(rel, index, &right, (into, &wanted))?;
                }
                Ok(self.rows_of(rel, into, &wanted))
            }
            JoinKind::Mark => {
                let n = join.left.columns.len();
                let columns: Columns = needed.iter().copied().chain([n]).collect();
                let (into, wanted) = self.wanted_rows(rel, &columns);
                let index = self.join_and_mark(verified, (&left, &right), None)?;
                for matched in [true, false] {
                    let entries = self.entries(index, matched, &left);
                    let value = |i: &usize| match *i == n {
                        true => Expr::literal(ScalarValue::Boolean(Some(matched))),
                        false => entries.columns[*i].clone(),
                    };
                    let columns = wanted.iter().map(value).collect();
                    self.close(entries, Sink::Rows { into, columns });
                }
                Ok(self.rows_of(rel, into, &wanted))
            }
            _ => {
                let index = self.join_and_mark(verified, (&left, &right), None)?;
                Ok(self.entries(index, join.kind == JoinKind::Semi, &left))
            }
        }
    }

    /// A result for these columns of a join.
    fn wanted_rows(&mut self, rel: &RelRef, needed: &Columns) -> (ResultId, Vec<usize>) {
        let wanted: Vec<usize> = needed.iter().copied().collect();
        let columns: Vec<ResultColumn> = wanted.iter().map(|i| rel.columns[*i].clone()).collect();
        let name = self.unique_name(rel.label());
        let into = self.result(ResultKind::Rows(columns), self.rows(rel), name);
        (into, wanted)
    }

    /// The rows of such a result.
    fn rows_of(&self, rel: &RelRef, into: ResultId, wanted: &[usize]) -> OpenPipeline {
        let mut columns: Vec<Expr> = rel.columns.iter().map(unused).collect();
        for (place, i) in wanted.iter().enumerate() {
            let column = &rel.columns[*i];
            columns[*i] = Expr::column(place, column.data_type.clone(), column.nullable);
        }
        OpenPipeline {
            source: Source::Rows(into),
            stages: vec![],
            left: vec![],
            columns,
            width: wanted.len(),
        }
    }

    /// Join two sides and mark the rows of the first that have a match; the pairs go to the result, if there is one.
    fn join_and_mark(
        &mut self,
        verified: &VerifiedJoin,
        (kept, other): (&Side<'_>, &Side<'_>),
        into: Option<(ResultId, &[usize])>,
    ) -> Result<ResultId, Reason> {
        let join = &verified.join;
        let spec = BuildSpec {
            null_equal: join.null_equal,
            track_matches: true,
            existence: false,
            algorithm: verified.algorithm.clone(),
            reduced: None,
            streamed: None,
        };
        let payload: Vec<usize> = kept.needed.iter().copied().collect();
        let (index, _) = self.build(kept, &payload, spec, false)?;
        let open = self.stream_side(other)?;
        let probe = Probe {
            index,
            keys: substitute_all(&other.keys, &open.columns)?,
            band: None,
            kind: ProbeKind::Inner,
            residual: vec![],
            marks: vec![],
        };
        let mut pairs = self.pairs(open, probe, other, true)?;
        let found = self.payload_columns(index, false);
        self.append_payload(&mut pairs, join, (other, kept), &payload, &found);
        let conditions = substitute_all(&join.residual, &pairs.columns)?;
        pairs.filter(conditions);
        pairs.stages.push(Stage::Mark(index));
        let sink = match into {
            Some((into, wanted)) => Sink::Rows {
                into,
                columns: wanted.iter().map(|i| pairs.columns[*i].clone()).collect(),
            },
            None => Sink::Discard,
        };
        self.close(pairs, sink);
        Ok(index)
    }

    /// The rows of a side that are marked, or those that are not.
    fn entries(&self, index: ResultId, matched: bool, side: &Side<'_>) -> OpenPipeline {
        let found = self.payload_columns(index, false);
        let mut open = OpenPipeline::of_result(Source::Entries(index, vec![matched]), &found);
        let mut columns: Vec<Expr> = side.rel.columns.iter().map(unused).collect();
        for (i, value) in side.needed.iter().zip(open.columns) {
            columns[*i] = value;
        }
        open.columns = columns;
        open
    }

    /// Append the rows of a side without a match, with NULLs for the other side.
    fn unmatched(
        &mut self,
        rel: &RelRef,
        index: ResultId,
        side: &Side<'_>,
        (into, wanted): (ResultId, &[usize]),
    ) -> Result<(), Reason> {
        let entries = self.entries(index, false, side);
        let of_side = side.at..side.at + side.rel.columns.len();
        let columns = wanted
            .iter()
            .map(|i| match of_side.contains(i) {
                true => Ok(entries.columns[i - side.at].clone()),
                false => null(&rel.columns[*i].data_type),
            })
            .collect::<Result<_, _>>()?;
        self.close(entries, Sink::Rows { into, columns });
        Ok(())
    }
}
