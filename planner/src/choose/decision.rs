//! The choice among the algorithms that a decision tree proposes, by price.

use std::fmt;

use warpline_gpu::machine::Machine;

use super::price::{Price, ms};

/// Another algorithm must be cheaper by this factor than the tree's proposal.
pub(super) const LEAVE_TREE: f64 = 0.95;

/// A leaf of a decision tree: its algorithms, and the answers on the path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leaf<A> {
    /// The algorithms to price.
    pub algorithms: Vec<A>,
    /// Answers from the root on.
    pub path: Vec<&'static str>,
}

impl<A: fmt::Display> fmt::Display for Leaf<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<String> = self.algorithms.iter().map(A::to_string).collect();
        write!(f, "tree: {}: {}", self.path.join(", "), names.join(" or "))
    }
}

/// The chosen algorithm and the prices of all.
#[derive(Debug, Clone, PartialEq)]
pub struct Decision<A> {
    /// The algorithm.
    pub algorithm: A,
    /// Its price.
    pub price: Price,
    /// All other algorithms with their prices; `None` for those that are impossible.
    pub rivals: Vec<(A, Option<f64>)>,
    /// One line for EXPLAIN: the algorithm and its price, the rivals with theirs, the path through the tree or the setting.
    pub reason: String,
}

/// Algorithms with their prices; `None` for those that are impossible.
pub(super) type Priced<A> = [(A, Option<Price>)];

/// Price each algorithm.
pub(super) fn priced<A: Copy>(
    algorithms: impl IntoIterator<Item = A>,
    price: impl Fn(A) -> Option<Price>,
) -> Vec<(A, Option<Price>)> {
    algorithms
        .into_iter()
        .map(|algorithm| (algorithm, price(algorithm)))
        .collect()
}

/// The cheapest of those that `of` admits, and its milliseconds.
pub(super) fn cheapest<A: Copy>(priced: &Priced<A>, of: &dyn Fn(A) -> bool) -> Option<(A, f64)> {
    priced
        .iter()
        .filter(|(algorithm, _)| of(*algorithm))
        .filter_map(|(algorithm, price)| Some((*algorithm, price.as_ref()?.ms)))
        .min_by(|a, b| a.1.total_cmp(&b.1))
}

/// The choice of `algorithm` for the reason `why`, with its rivals.
pub(super) fn decision<A: Copy + PartialEq + fmt::Display>(
    algorithm: A,
    priced: &Priced<A>,
    why: &str,
    machine: &Machine,
) -> Decision<A> {
    let price = priced
        .iter()
        .find(|(a, _)| *a == algorithm)
        .and_then(|(_, price)| price.clone())
        .unwrap_or_default();
    let rivals: Vec<(A, Option<f64>)> = priced
        .iter()
        .filter(|(a, _)| *a != algorithm)
        .map(|(a, price)| (*a, price.as_ref().map(|p| p.ms)))
        .collect();
    let others = rivals
        .iter()
        .map(|(a, price)| match price {
            Some(price) => format!("{a} {}", ms(*price)),
            None => format!("{a} impossible"),
        })
        .collect::<Vec<_>>()
        .join(", ");
    let reason = format!(
        "{algorithm} {price}; {others}; {why}; {}",
        super::constants(machine)
    );
    Decision {
        algorithm,
        price,
        rivals,
        reason,
    }
}
