//! Groups that samples show: combinations of values nearly all of which other rows of a sample have as well.

use std::collections::HashMap;

use warpline_gpu::expr::{Expr, Node};

use super::Estimator;
use super::column::{ColumnEstimate, combinations};
use super::sampled::{Sampled, of_one_scan};
use crate::rel::RelRef;

/// Of so few groups there is no need to know the number better.
const FEW: f64 = 64.0;

/// One row of a sample in so many may have values that no other has: else it tells too little of those that it lacks.
const ALONE: usize = 20;

impl Estimator<'_> {
    /// Estimates for the keys of groups over `rel`, and the number of groups.
    pub(super) fn groups(&self, rel: &RelRef, keys: &[Expr]) -> (Vec<ColumnEstimate>, f64) {
        let rows = self.rows(rel);
        let key = |key: &Expr| {
            let mut column = self.of_expr(rel, key);
            if column.distinct > FEW {
                let shown = self.shown(rel, std::slice::from_ref(key));
                column.distinct = column.distinct.min(shown.unwrap_or(f64::INFINITY));
            }
            column
        };
        let columns: Vec<_> = keys.iter().map(key).collect();
        if keys.is_empty() {
            return (columns, 1.0);
        }
        let mut groups = combinations(&columns, rows);
        if keys.len() > 1 && groups > FEW {
            groups = groups.min(self.shown(rel, keys).unwrap_or(f64::INFINITY));
        }
        (columns, groups)
    }

    /// The combinations of values of `keys`, which must be of one table; `None` where a sample of it cannot tell.
    fn shown(&self, rel: &RelRef, keys: &[Expr]) -> Option<f64> {
        let (scan, keys) = of_one_scan(rel, keys)?;
        if let [one] = &keys[..]
            && matches!(one.node, Node::Column(_))
        {
            // Statistics of all rows know better.
            return None;
        }
        self.sampled(scan)?.groups(&keys)
    }
}

impl Sampled<'_> {
    /// The combinations of values of `keys` in the table: those that the sample has, where those that one row alone has stand for more,
    /// as many as cannot be ruled out (GEE of Charikar et al., Towards Estimation Error Guarantees for Distinct Values, PODS 2000).
    /// `None` where many are alone.
    fn groups(&self, keys: &[Expr]) -> Option<f64> {
        let mut groups = vec![0u32; self.rows];
        for key in keys {
            let mut numbers = HashMap::new();
            for (group, value) in groups.iter_mut().zip(self.told_apart(key)?) {
                let next = numbers.len() as u32;
                // Zeros of both signs are one group, as NaNs are.
                let bits = match value.is_nan() {
                    true => f64::NAN.to_bits(),
                    false => (value + 0.0).to_bits(),
                };
                *group = *numbers.entry((*group, bits)).or_insert(next);
            }
        }
        let mut rows_of: HashMap<u32, usize> = HashMap::new();
        for group in groups {
            *rows_of.entry(group).or_default() += 1;
        }
        let alone = rows_of.values().filter(|rows| **rows == 1).count();
        let repeated = (rows_of.len() - alone) as f64;
        if self.complete {
            return Some(rows_of.len() as f64);
        }
        let share = self.rows as f64 / self.of_rows.max(1.0);
        (alone * ALONE <= self.rows).then(|| repeated + alone as f64 / share.sqrt())
    }
}
