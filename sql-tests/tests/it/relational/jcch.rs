//! The 22 queries of JCC-H on skewed data, under each way of sharing work between warps.

use warpline_tpch::jcch::Bindings;
use warpline_tpch::tables::Dataset;
use warpline_tpch::{Benchmark, Scale};

use super::tpch::tables_of;
use crate::operators::support::check_all;

/// Five orders have 900 of the 18,000 lines each.
const SCALE: f64 = 0.003;

/// Queries that meet the oversized orders, the hot parts and the customers with most orders.
const SKEWED: [u8; 6] = [3, 5, 9, 13, 18, 21];

fn run(numbers: &[u8], bindings: &[(Bindings, &str)], settings: &[(&str, &str)]) {
    let scale = Scale::new(SCALE).expect("a scale");
    let fixture = tables_of(Dataset::jcch(scale).expect("data"), settings);
    for (bindings, seed) in bindings {
        let benchmark = Benchmark::Jcch {
            bindings: *bindings,
            seed: seed.parse().expect("a seed"),
        };
        let queries = benchmark.queries(numbers, scale).expect("queries");
        check_all(&fixture, queries.into_iter().map(|query| query.sql));
    }
}

fn skewed(settings: &[(&str, &str)]) {
    run(&SKEWED, &[(Bindings::Skewed, "1648967542")], settings);
}

#[test]
fn all_22_with_both_bindings() {
    let numbers: Vec<u8> = (1..=22).collect();
    // The normal parameters of the usual seed leave some answers empty; another one's fill them.
    let both = [(Bindings::Skewed, "1648967542"), (Bindings::Normal, "4")];
    run(&numbers, &both, &[]);
}

#[test]
fn trees_that_share_nothing() {
    skewed(&[("warpline.load_balance", "none")]);
}

#[test]
fn trees_that_share_large_ranges() {
    skewed(&[
        ("warpline.load_balance", "fws"),
        ("warpline.fws_threshold", "2"),
    ]);
}

#[test]
fn trees_that_fill_warps() {
    skewed(&[("warpline.load_balance", "nifs")]);
}

#[test]
fn trees_that_fill_warps_and_share() {
    skewed(&[("warpline.load_balance", "nifs_aws")]);
    skewed(&[
        ("warpline.load_balance", "nifs_aws"),
        ("warpline.materialization", "eager"),
    ]);
}
