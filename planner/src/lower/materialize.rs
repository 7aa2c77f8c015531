//! Which algorithm a join gets: its workload from the estimates, and what the choice means for the graph.

use arrow::datatypes::DataType;
use warpline_gpu::expr::Expr;
use warpline_gpu::graph::MaterializedJoin;

use super::Lowerer;
use super::join::Side;
use crate::choose::join::{JoinAlgorithm, JoinWorkload, choose_join};
use crate::config::JoinSetting;
use crate::rel::expr::as_column;
use crate::rel::{Join, RelRef};

/// A hash table takes the place of a perfect index for a price this much lower.
const CLEARLY: f64 = 0.8;

/// The outcome of a choice: `join` when both sides are materialised, an index otherwise.
#[derive(Debug, Clone, Default)]
pub(super) struct Algorithm {
    pub(super) join: Option<MaterializedJoin>,
    /// Of the two indexes a hash table is clearly cheaper.
    pub(super) prefer_hash: bool,
    /// For EXPLAIN.
    pub(super) reason: String,
}

impl Algorithm {
    pub(super) fn materialized(&self) -> bool {
        self.join.is_some()
    }
}

/// What is to be joined.
pub(super) struct Pairing<'a> {
    /// The join: its rows are the pairs, or rows that go on, to expect.
    pub(super) of: &'a RelRef,
    pub(super) build: &'a Side<'a>,
    pub(super) probe: &'a Side<'a>,
    /// Columns wanted of the build side.
    pub(super) payload: &'a [usize],
    /// No two build rows have equal keys.
    pub(super) unique: bool,
    /// Only whether there is a match is wanted.
    pub(super) existence: bool,
}

impl Lowerer<'_> {
    /// Choose for one join.
    pub(super) fn algorithm(&self, pairing: &Pairing<'_>) -> Algorithm {
        if pairing.build.keys.is_empty() {
            // Every row matches: there is nothing to partition or to sort by.
            return Algorithm::default();
        }
        let kept = self
            .input
            .estimator
            .is_kept(pairing.build.rel, &pairing.build.keys);
        if kept && self.input.join == JoinSetting::Auto {
            return Algorithm {
                prefer_hash: false,
                join: None,
                reason: "kept for later queries".to_string(),
            };
        }
        let workload = self.workload(pairing);
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
            reason: decision.reason,
        }
    }

    /// Choose for a join whose keys alone say what matches. A residual condition must be tested where an entry is looked
    /// up, when rows without a match count too: such a join has an index.
    pub(super) fn algorithm_by_keys(&self, join: &Join, pairing: &Pairing<'_>) -> Algorithm {
        if join.residual.is_empty() {
            self.algorithm(pairing)
        } else {
            Algorithm::default()
        }
    }

    fn workload(&self, pairing: &Pairing<'_>) -> JoinWorkload {
        let estimator = self.input.estimator;
        let (build, probe) = (pairing.build, pairing.probe);
        let bits: u32 = build.keys.iter().map(|key| self.bits(build.rel, key)).sum();
        let key_domain = build.keys.iter().try_fold(1_u64, |domain, key| {
            let (low, high) = estimator.of_expr(build.rel, key).range?;
            let values = high - low + 1.0;
            (values < 1e12).then(|| domain.checked_mul(values as u64))?
        });
        let width = |side: &Side<'_>, column: usize| {
            let of = &side.rel.columns[column];
            let expr = Expr::column(column, of.data_type.clone(), of.nullable);
            match self.bits(side.rel, &expr) {
                ..=8 => 1,
                9..=16 => 2,
                17..=32 => 4,
                33..=64 => 8,
                _ => 16,
            }
        };
        let clustered = |side: &Side<'_>| match side.keys.as_slice() {
            [key] => as_column(key).is_some_and(|c| estimator.clustered(side.rel, c)),
            _ => false,
        };
        JoinWorkload {
            build_rows: estimator.rows(build.rel),
            probe_rows: estimator.rows(probe.rel),
            // As code generation packs keys: in one word with a bit or two to spare, or in two.
            key_bytes: match bits {
                ..=30 => 4,
                31..=63 => 8,
                64..=126 => 16,
                _ => bits.div_ceil(8),
            },
            key_domain,
            build_payload: pairing.payload.iter().map(|c| width(build, *c)).collect(),
            probe_payload: probe.needed.iter().map(|c| width(probe, *c)).collect(),
            matches: estimator.rows(pairing.of),
            build_unique: pairing.unique,
            skew: estimator.skew(probe.rel, &probe.keys),
            existence: pairing.existence,
            probe_streams_from_scan: true,
            probe_clustered: clustered(probe),
            build_clustered: clustered(build),
        }
    }

    /// Bits of the codes of an expression's values.
    fn bits(&self, rel: &RelRef, expr: &Expr) -> u32 {
        let of_type = match &expr.data_type {
            DataType::Boolean => 1,
            // A code or the number of the row that has the string.
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => 32,
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
