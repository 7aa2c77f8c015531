//! Joins whose packed key is too wide to partition: join on some keys, test the rest on each pair. Outer, semi, anti
//! and mark joins continue in [`super::verify_pairs`].
//!
//! The keys with most distinct values are taken first, as many as fit, so that few pairs fail the test when keys
//! identify rows together (order and line, account and day). Where many would fail, the join keeps its hash table.

use arrow::datatypes::DataType;
use warpline_gpu::expr::{BinaryOp, Expr, Node};

use super::Lowerer;
use super::materialize::JoinRequest;
use super::side::Side;
use crate::choose::join::state_bytes;
use crate::config::JoinSetting;
use crate::rel::expr::renumber;
use crate::rel::{Join, RelRef};
use warpline_gpu::algorithm::JoinAlgorithm;

/// Bits of packed keys that can be partitioned: two words, less the codes reserved for NULL.
const MOST_BITS: u32 = 126;
/// Pairs that the taken keys may yield for each row of both sides together.
const MOST_PAIRS: f64 = 4.0;

impl Lowerer<'_> {
    /// The same inner join by fewer keys, where that is the way to run it in partitions.
    pub(super) fn wide_key_join(
        &self,
        rel: &RelRef,
        join: &Join,
        left: &Side<'_>,
        right: &Side<'_>,
    ) -> Option<Join> {
        let (build, probe) = match self.side_rows(left) < self.side_rows(right) {
            true => (left, right),
            false => (right, left),
        };
        let wide = !self.index_is_forced() && self.is_wide(left, right);
        (wide && self.exceeds_join_room(rel, build, probe))
            .then(|| self.join_on_some_keys(join, left, right))
            .flatten()
    }

    /// Does the setting force an index?
    pub(super) fn index_is_forced(&self) -> bool {
        matches!(self.input.join, JoinSetting::Force(how) if how.is_index())
    }

    /// Is the packed key too wide to partition?
    pub(super) fn is_wide(&self, left: &Side<'_>, right: &Side<'_>) -> bool {
        self.key_bits(left, right).iter().sum::<u32>() > MOST_BITS
    }

    /// Bits of each key: those of the side where it is wider.
    fn key_bits(&self, left: &Side<'_>, right: &Side<'_>) -> Vec<u32> {
        let of = |(l, r)| self.bits(left.rel, l).max(self.bits(right.rel, r));
        left.keys.iter().zip(&right.keys).map(of).collect()
    }

    fn side_rows(&self, side: &Side<'_>) -> f64 {
        self.input.estimator.rows(side.rel)
    }

    /// The join by as many keys as fit, with the others as residual conditions; for joins that yield all pairs.
    pub(super) fn join_on_some_keys(
        &self,
        join: &Join,
        left: &Side<'_>,
        right: &Side<'_>,
    ) -> Option<Join> {
        if join.null_equal || join.on.len() < 2 {
            return None;
        }
        let taken = self.keys_that_fit(join, left, right)?;
        let mut partitionable = join.clone();
        partitionable.on.clear();
        let n = join.left.columns.len();
        for (key, (l, r)) in join.on.iter().enumerate() {
            match taken.contains(&key) {
                true => partitionable.on.push((l.clone(), r.clone())),
                false => partitionable
                    .residual
                    .push(equal(l, &renumber(r, &|c| c + n))),
            }
        }
        Some(partitionable)
    }

    /// Does a hash table of the build side exceed the join's share of memory?
    pub(super) fn exceeds_join_room(
        &self,
        rel: &RelRef,
        build: &Side<'_>,
        probe: &Side<'_>,
    ) -> bool {
        let payload: Vec<usize> = build.needed.iter().copied().collect();
        let workload = self.workload(&JoinRequest {
            of: rel,
            build,
            probe,
            payload: &payload,
            unique: false,
            existence: false,
        });
        let state = state_bytes(&workload, JoinAlgorithm::Nphj, self.input.machine);
        state > self.input.join_room
    }

    /// The keys to join on, unless they would yield too many pairs.
    fn keys_that_fit(&self, join: &Join, left: &Side<'_>, right: &Side<'_>) -> Option<Vec<usize>> {
        let bits = self.key_bits(left, right);
        let estimator = self.input.estimator;
        let distinct = |key: usize| {
            let (l, r) = &join.on[key];
            let (l, r) = (
                estimator.of_expr(left.rel, l),
                estimator.of_expr(right.rel, r),
            );
            l.distinct.max(r.distinct).max(1.0)
        };
        let mut order: Vec<usize> = (0..join.on.len()).collect();
        // What cannot be verified on pairs has to be joined by.
        order.sort_by(|a, b| {
            let stays = |key: usize| !comparable(&join.on[key]);
            let by_values = distinct(*b).total_cmp(&distinct(*a));
            stays(*b).cmp(&stays(*a)).then(by_values)
        });
        let (mut taken, mut sum, mut values) = (Vec::new(), 0, 1.0);
        for key in order {
            if sum + bits[key] <= MOST_BITS {
                sum += bits[key];
                values *= distinct(key);
                taken.push(key);
            } else if !comparable(&join.on[key]) {
                return None;
            }
        }
        (!taken.is_empty() && self.few_pairs(left, right, values)).then_some(taken)
    }

    /// Do keys of so many distinct values yield few enough pairs to test each?
    fn few_pairs(&self, left: &Side<'_>, right: &Side<'_>, values: f64) -> bool {
        let (l, r) = (self.side_rows(left), self.side_rows(right));
        l * r / values.min(l.max(r)).max(1.0) <= MOST_PAIRS * (l + r)
    }

    /// The same for all keys of a join.
    pub(super) fn keys_are_selective(&self, left: &Side<'_>, right: &Side<'_>) -> bool {
        let estimator = self.input.estimator;
        let distinct = |side: &Side<'_>, key: &Expr| estimator.of_expr(side.rel, key).distinct;
        let keys = left.keys.iter().zip(&right.keys);
        let values = keys.map(|(l, r)| distinct(left, l).max(distinct(right, r)).max(1.0));
        self.few_pairs(left, right, values.product())
    }
}

/// Is equality of the encoded keys the same as `=` of their values?
fn comparable((left, right): &(Expr, Expr)) -> bool {
    let plain = |data_type: &DataType| {
        data_type.is_integer()
            || matches!(
                data_type,
                DataType::Decimal128(..)
                    | DataType::Date32
                    | DataType::Date64
                    | DataType::Timestamp(..)
            )
    };
    left.data_type == right.data_type && plain(&left.data_type)
}

fn equal(left: &Expr, right: &Expr) -> Expr {
    Expr {
        nullable: left.nullable || right.nullable,
        data_type: DataType::Boolean,
        node: Node::Binary {
            op: BinaryOp::Eq,
            left: Box::new(left.clone()),
            right: Box::new(right.clone()),
        },
    }
}
