//! Choice of the algorithm of each join: its workload from the estimates, and the effect of the choice on the graph.

use arrow::datatypes::DataType;
use warpline_gpu::algorithm::{JoinAlgorithm, MaterializedJoin};
use warpline_gpu::expr::Expr;

use super::Lowerer;
use super::side::Side;
use crate::choose::join::{JoinWorkload, choose_join, price, state_bytes};
use crate::config::JoinSetting;
use crate::rel::expr::as_column;
use crate::rel::{Join, RelKind, RelRef};
use crate::translate::is_string;

/// A hash table replaces a perfect index when its price is lower by this factor.
const CLEARLY: f64 = 0.8;

/// The chosen algorithm: `join` when both sides are materialised, an index otherwise.
#[derive(Debug, Clone, Default)]
pub(super) struct Algorithm {
    pub(super) join: Option<MaterializedJoin>,
    /// Of the two kinds of index, a hash table is clearly cheaper.
    pub(super) prefer_hash: bool,
    /// For EXPLAIN.
    pub(super) reason: String,
    /// Its state exceeds the join's share of device memory.
    pub(super) exceeds_room: bool,
    /// The price in milliseconds.
    ms: f64,
}

impl Algorithm {
    pub(super) fn materialized(&self) -> bool {
        self.join.is_some()
    }
}

/// A join to choose an algorithm for.
pub(super) struct JoinRequest<'a> {
    /// The join; its estimated rows are the pairs, or the rows that pass.
    pub(super) of: &'a RelRef,
    pub(super) build: &'a Side<'a>,
    pub(super) probe: &'a Side<'a>,
    /// Columns of the build side that consumers read.
    pub(super) payload: &'a [usize],
    /// The build keys are unique.
    pub(super) unique: bool,
    /// Only the existence of a match matters.
    pub(super) existence: bool,
}

impl Lowerer<'_> {
    /// Choose the algorithm of a join.
    pub(super) fn algorithm(&self, request: &JoinRequest<'_>) -> Algorithm {
        if let Some(order) = &request.build.order {
            return Algorithm {
                reason: order.reason.clone(),
                ..Algorithm::default()
            };
        }
        if request.build.keys.is_empty() {
            // Every row matches: there is nothing to partition or to sort by.
            return Algorithm::default();
        }
        let workload = self.workload(request);
        let payload = workload.build_payload.iter().map(|bytes| f64::from(*bytes));
        let kept = self
            .input
            .estimator
            .kept_cost(request.build.rel, &request.build.keys, Some(payload.sum()))
            .is_some();
        if kept && self.input.join == JoinSetting::Auto {
            return Algorithm {
                prefer_hash: false,
                join: None,
                reason: "kept for later queries".to_string(),
                exceeds_room: false,
                ms: 0.0,
            };
        }
        let decision = choose_join(self.input.join, &workload, self.input.machine);
        let perfect = decision
            .rivals
            .iter()
            .find_map(|(rival, ms)| ms.filter(|_| *rival == JoinAlgorithm::Perfect));
        Algorithm {
            prefer_hash: decision.algorithm == JoinAlgorithm::Nphj
                && perfect.is_none_or(|perfect| decision.price.ms < perfect * CLEARLY),
            join: match decision.algorithm {
                JoinAlgorithm::Perfect | JoinAlgorithm::Nphj => None,
                JoinAlgorithm::PhjUr => Some(MaterializedJoin::PhjUr),
                JoinAlgorithm::PhjTr => Some(MaterializedJoin::PhjTr),
                JoinAlgorithm::SmjUr => Some(MaterializedJoin::SmjUr),
                JoinAlgorithm::SmjTr => Some(MaterializedJoin::SmjTr),
            },
            exceeds_room: state_bytes(&workload, decision.algorithm, self.input.machine)
                > self.input.join_room,
            reason: decision.reason,
            ms: decision.price.ms,
        }
    }

    /// Reduce the build side by the probe keys: where few distinct keys probe many build rows, a bitmap of those keys
    /// filters the build side first, and a small index replaces a large materialised join. The algorithm for the
    /// remaining rows and how many they are; `None` where that does not pay.
    pub(super) fn reduced(
        &self,
        request: &JoinRequest<'_>,
        whole: &Algorithm,
    ) -> Option<(Algorithm, u64)> {
        /// At most this share of the build rows remains.
        const SHARE: f64 = 0.25;
        /// The reduction must be cheaper by this factor, since it depends on one more estimate.
        const LEAVE_WHOLE: f64 = 0.8;
        let (build, probe) = (request.build, request.probe);
        let ([theirs], [ours]) = (build.keys.as_slice(), probe.keys.as_slice()) else {
            return None;
        };
        let simple = |rel: &RelRef| match &rel.kind {
            RelKind::Scan { .. } => true,
            RelKind::Filter { input, .. } => matches!(input.kind, RelKind::Scan { .. }),
            _ => false,
        };
        let auto = matches!(self.input.join, JoinSetting::Auto);
        if !auto || !whole.materialized() || !simple(build.rel) || !simple(probe.rel) {
            return None;
        }
        let estimator = self.input.estimator;
        let machine = self.input.machine;
        let w = self.workload(request);
        let keys = estimator.of_expr(probe.rel, ours).distinct;
        let of = estimator.of_expr(build.rel, theirs).distinct.max(1.0);
        let rows = w.build_rows * (keys / of).min(1.0);
        let (low, high) = estimator.of_expr(probe.rel, ours).range?;
        let bitmap = (high - low + 1.0) / 8.0;
        if rows > w.build_rows * SHARE || bitmap > machine.l2 {
            return None;
        }
        // Keys that are there already are only looked at.
        let looked = (w.probe_rows + w.build_rows) * machine.gather(4.0, bitmap);
        let marked = keys * machine.atomics.at(bitmap);
        let filter = (looked + marked) * 1e-9
            + machine.stream(bitmap + w.probe_rows * f64::from(w.key_bytes))
            + machine.launches(3.0);
        let few = JoinWorkload {
            build_rows: rows,
            ..w
        };
        // The rows found are entered on the way: into the cheaper index.
        let index = JoinAlgorithm::ALL
            .into_iter()
            .filter(|algorithm| algorithm.is_index())
            .filter_map(|algorithm| Some((algorithm, price(&few, algorithm, machine)?.ms)))
            .min_by(|a, b| a.1.total_cmp(&b.1))?;
        let decision = choose_join(JoinSetting::Force(index.0), &few, machine);
        let ms = filter + decision.price.ms;
        if ms > whole.ms * LEAVE_WHOLE {
            return None;
        }
        let algorithm = Algorithm {
            prefer_hash: decision.algorithm == JoinAlgorithm::Nphj,
            join: None,
            reason: format!(
                "about {rows:.0} rows have a key that probes, found by a bitmap in {filter:.2} ms, then {}; with all rows {:.2} ms",
                decision.reason, whole.ms
            ),
            exceeds_room: false,
            ms,
        };
        Some((algorithm, rows.ceil() as u64))
    }

    /// Choose for a join that matches by keys alone. With a residual condition, outer and semi joins must test it
    /// while an entry is probed, so they use an index.
    pub(super) fn algorithm_by_keys(&self, join: &Join, request: &JoinRequest<'_>) -> Algorithm {
        if join.residual.is_empty() || request.build.order.is_some() {
            self.algorithm(request)
        } else {
            Algorithm::default()
        }
    }

    pub(super) fn workload(&self, request: &JoinRequest<'_>) -> JoinWorkload {
        let estimator = self.input.estimator;
        let (build, probe) = (request.build, request.probe);
        let bits: u32 = build.keys.iter().map(|key| self.bits(build.rel, key)).sum();
        let key_domain = build.keys.iter().try_fold(1_u64, |domain, key| {
            let (low, high) = estimator.of_expr(build.rel, key).range?;
            let values = high - low + 1.0;
            (values < 1e12).then(|| domain.checked_mul(values as u64))?
        });
        let width = |side: &Side<'_>, column: usize| {
            let of = &side.rel.columns[column];
            let expr = Expr::column(column, of.data_type.clone(), of.nullable);
            self.width(side.rel, &expr)
        };
        let clustered = |side: &Side<'_>| match side.keys.as_slice() {
            [key] => as_column(key).is_some_and(|c| estimator.clustered(side.rel, c)),
            _ => false,
        };
        JoinWorkload {
            build_rows: estimator.rows(build.rel),
            probe_rows: estimator.rows(probe.rel),
            // As code generation packs keys: in one word with two codes to spare, or in two.
            key_bytes: match bits {
                ..=31 => 4,
                32 if key_domain.is_some_and(|d| d < u64::from(u32::MAX)) => 4,
                32..=63 => 8,
                64..=126 => 16,
                _ => bits.div_ceil(8),
            },
            key_domain,
            build_payload: request.payload.iter().map(|c| width(build, *c)).collect(),
            probe_payload: probe.needed.iter().map(|c| width(probe, *c)).collect(),
            matches: estimator.rows(request.of),
            build_unique: request.unique,
            skew: estimator.skew(probe.rel, &probe.keys),
            existence: request.existence,
            // A bare scan is not written down: its columns are read where they are.
            probe_streams_from_scan: !matches!(probe.rel.kind, RelKind::Scan { .. }),
            build_in_place: matches!(build.rel.kind, RelKind::Scan { .. }),
            probe_clustered: clustered(probe),
            build_clustered: clustered(build),
            room: Some(self.input.join_room),
        }
    }

    /// Bytes that an expression's values take where they are written down.
    pub(super) fn width(&self, rel: &RelRef, expr: &Expr) -> u32 {
        match self.bits(rel, expr) {
            ..=8 => 1,
            9..=16 => 2,
            17..=32 => 4,
            33..=64 => 8,
            _ => 16,
        }
    }

    /// Bits of the codes of an expression's values.
    pub(super) fn bits(&self, rel: &RelRef, expr: &Expr) -> u32 {
        let of_type = match &expr.data_type {
            DataType::Boolean => 1,
            // A code or the number of the row that has the string.
            strings if is_string(strings) => 32,
            other => other.primitive_width().map_or(64, |bytes| bytes as u32 * 8),
        };
        match self.input.estimator.of_expr(rel, expr).range {
            Some((low, high)) if high >= low => {
                let values = high - low + 1.0;
                (values.log2().ceil().max(1.0) as u32).min(of_type)
            }
            _ => of_type,
        }
    }
}
