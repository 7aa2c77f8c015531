//! Cost of joins on the device, in bytes of memory traffic.
//!
//! A random access beyond the L2 cache moves one sector of 32 bytes; one in the cache costs about as much as four
//! streamed bytes, one in a multiprocessor's own as about one. A perfect index tests a bit first, and only existing
//! keys read their payload; a hash table reads the key and then the payload. Probes in key order read both sequentially.
//! Rows that reach a probe have its keys read first, which those that an earlier one dropped are spared.

use crate::rel::RelRef;
use crate::rel::expr::as_column;
use crate::stats::Estimator;
use warpline_gpu::expr::Expr;

/// The L2 cache, less the share of streaming data.
const CACHE: f64 = 40e6;
/// Bytes of a sector.
const SECTOR: f64 = 32.0;
/// An access in the cache.
const CACHED: f64 = 4.0;
/// What a multiprocessor's own cache holds beside streaming data, and an access there.
const NEAR: f64 = 160e3;
const NEAR_ACCESS: f64 = 1.0;
/// A probe in key order, whatever it reads: 380 million of a bitmap of 75 MB took 1.2 ms on an H100 with their keys, 380 million
/// in no order of one of 125 KB 0.8.
const IN_ORDER: f64 = 3.0;
/// What an atomic insertion into a table in memory costs beyond the access.
const INSERTION: f64 = 32.0;
/// A perfect index may be this many times larger than its keys justify.
const TIMES_HASH: f64 = 16.0;

/// An index that could be built over a relation.
#[derive(Debug, Clone, Copy)]
pub(super) struct Index {
    rows: f64,
    /// Bytes in which a key is looked for.
    keys: f64,
    /// Bytes of all payload.
    payload: f64,
    perfect: bool,
    unique: bool,
    /// Bytes of a probing row's keys.
    asked: f64,
    /// Rows come in the order of the key.
    in_order: bool,
    /// The cost of building it when it is kept already.
    kept: Option<f64>,
}

impl Index {
    /// Over `rel` by `keys`, with `payload` bytes an entry.
    pub(super) fn new(
        estimator: &Estimator<'_>,
        rel: &RelRef,
        keys: &[Expr],
        payload: f64,
        unique: bool,
    ) -> Self {
        let estimate = estimator.estimate(rel);
        let rows = estimate.rows;
        let slots = (2.0 * rows).max(1024.0);
        let hash = slots * 12.0;
        let domain = match keys {
            [key] => estimator
                .of_expr(rel, key)
                .range
                .map(|(low, high)| high - low + 1.0),
            _ => None,
        };
        let perfect = domain.filter(|domain| {
            domain / 8.0 + domain * payload <= (64e6f64).max(TIMES_HASH * (hash + rows * payload))
        });
        let in_order =
            matches!(keys, [key] if as_column(key).is_some_and(|c| estimator.clustered(rel, c)));
        let kept = estimator.kept_cost(rel, keys, Some(payload));
        let asked = keys.iter().map(|key| estimator.of_expr(rel, key).width());
        let asked = asked.sum();
        match perfect {
            Some(domain) => Self {
                rows,
                keys: domain / 8.0 + if unique { 0.0 } else { 4.0 * domain },
                payload: if unique { domain } else { rows } * payload,
                perfect: true,
                unique,
                asked,
                in_order,
                kept,
            },
            None => Self {
                rows,
                keys: hash,
                payload: rows * payload,
                perfect: false,
                unique,
                asked,
                in_order,
                kept,
            },
        }
    }

    /// Filling it.
    pub(super) fn build(&self) -> f64 {
        if let Some(kept) = self.kept {
            return kept;
        }
        let entry = if self.rows > 0.0 {
            self.payload / self.rows.max(1.0)
        } else {
            0.0
        };
        let clear = self.keys;
        let writes = if self.perfect {
            let scattered = access(self.keys)
                + if entry > 0.0 {
                    access(self.payload)
                } else {
                    0.0
                };
            self.rows
                * if self.in_order {
                    entry.min(SECTOR) + 1.0
                } else {
                    scattered
                }
        } else {
            self.rows * (access(self.keys) + INSERTION + 2.0 * (entry + 8.0))
        };
        let ranges = if self.unique { 0.0 } else { self.rows * 48.0 };
        clear + writes + ranges
    }

    /// Probing it with `rows` rows of which the share `hits` finds something; `in_order` when they come in
    /// the order of the key.
    pub(super) fn probe(&self, rows: f64, hits: f64, in_order: bool) -> f64 {
        let hits = hits.clamp(0.0, 1.0);
        let (key, payload) = if in_order && self.perfect {
            let a_row = |bytes: f64| (bytes / rows.max(1.0)).min(access(bytes));
            (a_row(self.keys).max(IN_ORDER), a_row(self.payload))
        } else {
            (access(self.keys), access(self.payload))
        };
        let payload = if self.payload > 0.0 { payload } else { 0.0 };
        rows * (self.asked + key + hits * payload)
    }

    /// Enumerating `pairs` matches of `rows` rows that keep `bytes` each.
    pub(super) fn expand(&self, rows: f64, pairs: f64, bytes: f64) -> f64 {
        if self.unique {
            return 0.0;
        }
        // Entries of a key lie side by side in an index that is kept.
        let entry = match self.kept {
            None => SECTOR,
            Some(_) => SECTOR.min(self.payload / self.rows.max(1.0)),
        };
        // Only rows with a match are kept.
        rows.min(pairs) * 2.0 * (bytes + 16.0) + pairs * (entry + bytes)
    }
}

/// A random access into `bytes`.
fn access(bytes: f64) -> f64 {
    if bytes <= NEAR {
        return NEAR_ACCESS;
    }
    if bytes <= CACHE {
        return CACHED;
    }
    let missed = 1.0 - CACHE / bytes;
    CACHED + missed * (SECTOR - CACHED)
}
