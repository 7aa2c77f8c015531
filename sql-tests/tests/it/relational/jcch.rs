//! The 22 queries of JCC-H on skewed data, under each way of sharing work between warps.

use warpline_tpch::jcch::{Bindings, Seed};
use warpline_tpch::{Benchmark, Scale};

use super::tpch::tables_of;
use crate::operators::support::check_all;

/// Five orders have 900 of the 18,000 lines each.
const SCALE: f64 = 0.003;

fn all_22(settings: &[(&str, &str)]) {
    let scale = Scale::new(SCALE).expect("a scale");
    let of = |bindings, seed: &str| {
        let seed: Seed = seed.parse().expect("a seed");
        Benchmark::Jcch { bindings, seed }
    };
    let seed = Seed::default().to_string();
    let dataset = of(Bindings::Skewed, &seed).dataset(scale);
    let fixture = tables_of(dataset.expect("data"), settings);
    // The normal parameters of the usual seed leave some answers empty; another one's fill them.
    for benchmark in [of(Bindings::Skewed, &seed), of(Bindings::Normal, "4")] {
        let numbers: Vec<u8> = (1..=22).collect();
        let queries = benchmark.queries(&numbers, scale).expect("queries");
        check_all(&fixture, queries.into_iter().map(|query| query.sql));
    }
}

#[test]
fn all_22_by_default() {
    all_22(&[]);
}

#[test]
fn all_22_with_trees_that_share_nothing() {
    all_22(&[("warpline.load_balance", "none")]);
}

#[test]
fn all_22_with_trees_that_share_large_ranges() {
    all_22(&[
        ("warpline.load_balance", "fws"),
        ("warpline.fws_threshold", "2"),
    ]);
}

#[test]
fn all_22_with_trees_that_fill_warps() {
    all_22(&[("warpline.load_balance", "nifs")]);
}

#[test]
fn all_22_with_trees_that_fill_and_share() {
    all_22(&[("warpline.load_balance", "nifs_aws")]);
    all_22(&[
        ("warpline.load_balance", "nifs_aws"),
        ("warpline.materialization", "eager"),
    ]);
}
