//! Kernels of tree-shaped pipelines, for each way to share work.

use arrow::datatypes::DataType;

use super::case::Case;
use super::check;
use super::expressions::{column, count, like, probe, small, sum};
use super::table::{CUSTOMER, PRICE, STATUS};
use crate::algorithm::Balance;
use crate::graph::{IndexKind, ProbeKind, Stage};

fn tree(balance: Balance) -> Case {
    let mut case = Case {
        balance,
        ..Case::indexed(IndexKind::Perfect)
    };
    let by_status = case.build(vec![column(STATUS)], vec![column(CUSTOMER)], |_| {});
    let by_customer = case.build(vec![column(CUSTOMER)], vec![column(PRICE)], |_| {});
    let stages = vec![
        small(4000),
        Stage::Expand(probe(by_status, ProbeKind::Inner, vec![column(STATUS)])),
        Stage::Expand(probe(
            by_customer,
            ProbeKind::Left,
            vec![like(8, CUSTOMER, false)],
        )),
    ];
    let prices = sum(like(9, PRICE, true), DataType::Decimal128(22, 2));
    case.aggregate(stages, vec![], vec![prices, count()]);
    case
}

#[test]
fn tree_adaptive_sharing() {
    check("tree_adaptive_sharing", tree(Balance::NifsAws));
}

#[test]
fn tree_fixed_pieces() {
    check("tree_fixed_pieces", tree(Balance::Fws));
}
