//! The build side of a join: an index, or rows for a partitioned or sort-merge join, and the pairs that a probe
//! yields.

use std::sync::Arc;

use warpline_gpu::algorithm::MaterializedJoin;
use warpline_gpu::expr::Expr;
use warpline_gpu::graph::{
    Probe, ProbeKind, ResultColumn, ResultId, ResultKind, Sink, Source, Stage,
};

use super::materialize::{Algorithm, JoinRequest};
use super::side::Side;
use super::{Columns, Lowerer, OpenPipeline, keyed_build, read_by, unused};
use crate::reason::Reason;
use crate::rel::expr::{all_same, as_column, same, substitute, substitute_all};
use crate::rel::{Join, RelKind, RelRef};
use crate::stats::{ColumnEstimate, Proof};

/// An index that the graph has already, and what it was built from: joins of equal build sides share it.
#[derive(Debug)]
pub(super) struct Built {
    rel: RelRef,
    keys: Vec<Expr>,
    order: Option<Expr>,
    payload: Vec<usize>,
    null_equal: bool,
    existence: bool,
    join: Option<MaterializedJoin>,
    reduced: Option<(ResultId, u64)>,
    id: ResultId,
    unique: bool,
}

/// Columns that joins with one relation by the same keys ask for together: one index has them all.
#[derive(Debug)]
pub(super) struct Wider {
    rel: RelRef,
    keys: Vec<Expr>,
    payload: Vec<usize>,
}

impl Wider {
    fn is_of(&self, rel: &RelRef, keys: &[Expr]) -> bool {
        Arc::ptr_eq(&self.rel, rel) && all_same(&self.keys, keys)
    }
}

/// How an index is built.
#[derive(Debug, Clone, Default)]
pub(super) struct BuildSpec {
    pub(super) null_equal: bool,
    pub(super) track_matches: bool,
    pub(super) existence: bool,
    pub(super) algorithm: Algorithm,
    /// Only rows with a key in this set are inserted, about so many.
    pub(super) reduced: Option<(ResultId, u64)>,
    /// Its rows, where they are streamed already.
    pub(super) streamed: Option<OpenPipeline>,
}

/// A build side whose entries the probe side marks.
#[derive(Debug)]
pub(super) struct MarkedBuild {
    pub(super) index: ResultId,
    /// No two entries have equal keys.
    pub(super) unique: bool,
    /// Joined by partitions or by sorting, not by an index.
    pub(super) materialized: bool,
    /// The columns of the side that entries carry.
    pub(super) payload: Vec<usize>,
}

impl Lowerer<'_> {
    /// The cost of building `build` and probing it with `probe`, in units of a streamed row.
    pub(super) fn build_cost(&self, build: &Side<'_>, probe: &Side<'_>) -> f64 {
        let estimator = self.input.estimator;
        let rows = estimator
            .kept_cost(build.rel, &build.keys, None)
            .unwrap_or_else(|| estimator.rows(build.rel));
        let probing = self.input.estimator.rows(probe.rel);
        if self.is_unique_side(build, probe) {
            4.0 * rows + probing
        } else {
            8.0 * rows + 4.0 * probing
        }
    }

    /// Does an index over the side with such a payload stay for later queries?
    fn is_kept(&self, side: &Side<'_>, payload: &[usize]) -> bool {
        let estimator = self.input.estimator;
        let estimate = estimator.estimate(side.rel);
        let columns = payload.iter().filter_map(|i| estimate.columns.get(*i));
        let bytes = columns.map(ColumnEstimate::width).sum();
        let kept = estimator.kept_cost(side.rel, &side.keys, Some(bytes));
        side.order.is_none() && kept.is_some()
    }

    fn assumed_unique(&self, side: &Side<'_>) -> bool {
        let keys: Columns = side.keys.iter().filter_map(as_column).collect();
        !self.disproved(side)
            && self
                .input
                .estimator
                .unique(side.rel, &keys, Proof::Plausible)
    }

    /// As [`Self::assumed_unique`]; if both sides could be unique, the one over smaller tables is, since foreign keys
    /// are in the larger.
    pub(super) fn is_unique_side(&self, side: &Side<'_>, other: &Side<'_>) -> bool {
        if side.keys.is_empty() || side.order.is_some() || !self.assumed_unique(side) {
            return false;
        }
        let estimator = self.input.estimator;
        let keys: Columns = side.keys.iter().filter_map(as_column).collect();
        estimator.unique(side.rel, &keys, Proof::Certain)
            || !self.assumed_unique(other)
            || estimator.base_rows(side.rel) < estimator.base_rows(other.rel)
    }

    /// Has a run found duplicate keys in a build of this name? Builds of one name share the verdict.
    fn disproved(&self, side: &Side<'_>) -> bool {
        let name = build_name(side);
        self.input.duplicates.iter().any(|seen| {
            seen.strip_prefix(&name)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with(" #"))
        })
    }

    pub(super) fn stream_side(&mut self, side: &Side<'_>) -> Result<OpenPipeline, Reason> {
        let mut needed = side.needed.clone();
        needed.extend(read_by(side.evaluated()));
        self.stream(side.rel, &needed)
    }

    /// Build the left side, which may be `streamed` already, with a mark for each entry, which the right side sets; with `existence`
    /// only the marks are needed.
    pub(super) fn build_marked(
        &mut self,
        rel: &RelRef,
        join: &Join,
        (left, right): (&Side<'_>, &Side<'_>),
        (streamed, existence): (Option<OpenPipeline>, bool),
    ) -> Result<MarkedBuild, Reason> {
        let payload: Vec<usize> = left.needed.iter().copied().collect();
        let one = self.is_unique_side(left, right);
        let algorithm = self.algorithm_by_keys(
            join,
            &JoinRequest {
                of: rel,
                build: left,
                probe: right,
                payload: &payload,
                unique: one,
                existence,
            },
        );
        let materialized = algorithm.materialized();
        let spec = BuildSpec {
            null_equal: join.null_equal,
            track_matches: true,
            algorithm,
            streamed,
            ..BuildSpec::default()
        };
        let (index, unique) = self.build(left, &payload, spec, one)?;
        Ok(MarkedBuild {
            index,
            unique,
            materialized,
            payload,
        })
    }

    /// An index over a side; true when its keys are assumed unique.
    pub(super) fn build(
        &mut self,
        side: &Side<'_>,
        payload: &[usize],
        spec: BuildSpec,
        one: bool,
    ) -> Result<(ResultId, bool), Reason> {
        self.exceeds_room |= spec.algorithm.exceeds_room;
        let order = side.order.as_ref().map(|order| &order.value);
        let reusable = self.builds.iter().find(|b| {
            !spec.track_matches
                && std::ptr::eq(Arc::as_ptr(&b.rel), Arc::as_ptr(side.rel))
                && b.null_equal == spec.null_equal
                && b.existence == spec.existence
                && b.join == spec.algorithm.join
                && b.reduced == spec.reduced
                && b.payload == payload
                && b.order.is_some() == order.is_some()
                && b.order.iter().zip(order).all(|(a, b)| same(a, b))
                && all_same(&b.keys, &side.keys)
        });
        if let Some(built) = reusable {
            return Ok((built.id, built.unique));
        }
        let mut needed: Columns = payload.iter().copied().collect();
        needed.extend(read_by(side.evaluated()));
        let mut open = match spec.streamed {
            Some(open) => open,
            None => self.stream(side.rel, &needed)?,
        };
        if let Some((index, _)) = spec.reduced {
            open.stages.push(Stage::Probe(Probe {
                index,
                keys: substitute_all(&side.keys, &open.columns)?,
                band: None,
                kind: ProbeKind::Semi,
                residual: vec![],
                marks: vec![],
            }));
        }
        let name = self.unique_name(build_name(side));
        let unique = !spec.existence && one;
        let columns: Vec<ResultColumn> = payload
            .iter()
            .map(|i| side.rel.columns[*i].clone())
            .collect();
        let keys = substitute_all(&side.keys, &open.columns)?;
        let over = |value| substitute(value, &open.columns);
        let order_value = order.map(over).transpose()?;
        let values = payload.iter().map(|i| open.columns[*i].clone()).collect();
        let estimate = match spec.reduced {
            Some((_, rows)) => rows,
            None => self.rows(side.rel),
        };
        let into = self.result(ResultKind::Index(columns), estimate, name);
        let mut build = keyed_build(keys, values);
        build.order = order_value;
        build.unique = unique;
        build.null_equal = spec.null_equal;
        build.mark_sets = usize::from(spec.track_matches);
        build.existence = spec.existence;
        build.join = spec.algorithm.join;
        build.prefer_hash = spec.algorithm.prefer_hash;
        build.clustered = self.is_kept(side, payload);
        build.reason = spec.algorithm.reason;
        self.close(open, Sink::Build { into, build });
        if !spec.track_matches {
            self.builds.push(Built {
                rel: Arc::clone(side.rel),
                keys: side.keys.clone(),
                order: order.cloned(),
                payload: payload.to_vec(),
                null_equal: spec.null_equal,
                existence: spec.existence,
                join: spec.algorithm.join,
                reduced: spec.reduced,
                id: into,
                unique,
            });
        }
        Ok((into, unique))
    }

    /// What indexes have to carry to be one in place of several, which differ in their columns alone.
    pub(super) fn wider_builds(&self) -> Vec<Wider> {
        let mut found: Vec<(Wider, bool)> = Vec::new();
        for built in self.builds.iter().filter(|built| self.may_be_wider(built)) {
            let known = found
                .iter_mut()
                .find(|(wider, _)| wider.is_of(&built.rel, &built.keys));
            match known {
                Some((wider, differs)) => {
                    *differs |= wider.payload != built.payload;
                    wider.payload.extend(&built.payload);
                    wider.payload.sort_unstable();
                    wider.payload.dedup();
                }
                None => {
                    let wider = Wider {
                        rel: Arc::clone(&built.rel),
                        keys: built.keys.clone(),
                        payload: built.payload.clone(),
                    };
                    found.push((wider, false));
                }
            }
        }
        found.retain(|(_, differs)| *differs);
        found.into_iter().map(|(wider, _)| wider).collect()
    }

    /// Is it an index of all rows with columns, such as any join can ask for its own?
    fn may_be_wider(&self, built: &Built) -> bool {
        let plain = built.order.is_none() && built.join.is_none() && built.reduced.is_none();
        plain && !built.existence
    }

    /// The columns that an index over a side carries of which a join asks for `payload`.
    pub(super) fn carried(&self, side: &Side<'_>, payload: Vec<usize>) -> Vec<usize> {
        let has_all = |wider: &&Wider| payload.iter().all(|i| wider.payload.contains(i));
        let mut wider = self.wider.iter().filter(has_all);
        match wider.find(|wider| side.order.is_none() && wider.is_of(side.rel, &side.keys)) {
            Some(wider) => wider.payload.clone(),
            None => payload,
        }
    }

    /// The columns that a probe of `index` appends: its payload.
    pub(super) fn payload_columns(&self, index: ResultId, outer: bool) -> Vec<ResultColumn> {
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

    /// Continue with every match of a probe: in the same pipeline, which becomes a tree, or in a new pipeline over
    /// the materialised pairs. `joined`: both sides are materialised anyway.
    pub(super) fn pairs(
        &mut self,
        mut open: OpenPipeline,
        probe: Probe,
        side: &Side<'_>,
        joined: bool,
    ) -> Result<OpenPipeline, Reason> {
        if !joined && self.input.shape.follows_matches() {
            open.stages.push(Stage::Expand(probe));
            return Ok(open);
        }
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
        let mut found: Vec<Expr> = side.rel.columns.iter().map(unused).collect();
        for (place, i) in kept.iter().enumerate() {
            let column = &side.rel.columns[*i];
            found[*i] = Expr::column(place, column.data_type.clone(), column.nullable);
        }
        Ok(OpenPipeline {
            source: Source::Pairs(into),
            stages: vec![],
            left: vec![],
            columns: found,
            width: kept.len(),
        })
    }
}

/// Names a build after its relation and keys.
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
