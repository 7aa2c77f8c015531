//! Inner joins by keys of more bytes than partitions are made by: where their hash table outgrows its room, some of the keys
//! are joined by, and the others compared on the pairs that these find.
//!
//! Those with most values are taken first, as many as fit: pairs that the others then leave out are few when keys name rows
//! together (order and line, account and day). Where they would be many, the hash table stays.

use arrow::datatypes::DataType;
use warpline_gpu::expr::{BinaryOp, Expr, Node};

use super::Lowerer;
use super::join::Side;
use super::materialize::Pairing;
use crate::choose::join::{JoinAlgorithm, state_bytes};
use crate::config::JoinSetting;
use crate::rel::expr::renumber;
use crate::rel::{Join, RelRef};

/// Bits of all keys that are partitioned: two words, less the codes that stand for no key.
const MOST_BITS: u32 = 126;
/// Pairs that the taken keys may find for each row of both sides together.
const MOST_PAIRS: f64 = 4.0;

impl Lowerer<'_> {
    /// The same inner join by fewer keys, where that is the way to do it in partitions.
    pub(super) fn narrowed(
        &self,
        rel: &RelRef,
        join: &Join,
        left: &Side<'_>,
        right: &Side<'_>,
    ) -> Option<Join> {
        let forced = matches!(self.input.join, JoinSetting::Force(how) if how.is_index());
        if join.null_equal || join.on.len() < 2 || forced {
            return None;
        }
        let bits: Vec<u32> = left
            .keys
            .iter()
            .zip(&right.keys)
            .map(|(l, r)| self.bits(left.rel, l).max(self.bits(right.rel, r)))
            .collect();
        if bits.iter().sum::<u32>() <= MOST_BITS || !self.outgrows(rel, left, right) {
            return None;
        }
        let taken = self.taken(join, left, right, &bits)?;
        let mut narrowed = join.clone();
        narrowed.on.clear();
        let n = join.left.columns.len();
        for (key, (l, r)) in join.on.iter().enumerate() {
            match taken.contains(&key) {
                true => narrowed.on.push((l.clone(), r.clone())),
                false => narrowed.residual.push(equal(l, &renumber(r, &|c| c + n))),
            }
        }
        Some(narrowed)
    }

    /// Does a hash table of the smaller side outgrow what a join may keep?
    fn outgrows(&self, rel: &RelRef, left: &Side<'_>, right: &Side<'_>) -> bool {
        let rows = |side: &Side<'_>| self.input.estimator.rows(side.rel);
        let (build, probe) = match rows(left) < rows(right) {
            true => (left, right),
            false => (right, left),
        };
        let payload: Vec<usize> = build.needed.iter().copied().collect();
        let workload = self.workload(&Pairing {
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

    /// The keys that are joined by, unless they would find too many pairs.
    fn taken(
        &self,
        join: &Join,
        left: &Side<'_>,
        right: &Side<'_>,
        bits: &[u32],
    ) -> Option<Vec<usize>> {
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
        // What cannot be compared on pairs has to be joined by.
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
        let (l, r) = (estimator.rows(left.rel), estimator.rows(right.rel));
        let pairs = l * r / values.min(l.max(r)).max(1.0);
        (!taken.is_empty() && pairs <= MOST_PAIRS * (l + r)).then_some(taken)
    }
}

/// Is equality of these keys what `=` says of their values?
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
