//! Kernels of aggregations, for each place of groups.

use arrow::datatypes::DataType;
use datafusion::scalar::ScalarValue;

use super::case::Case;
use super::check;
use super::expressions::{binary, call, column, count, least_weight, probe, small, sum_of_prices};
use super::table::{CUSTOMER, HASH, ID, MODE, PRICE, STATUS};
use crate::expr::{BinaryOp, Expr};
use crate::graph::{ProbeKind, Stage};
use crate::pipeline::{AggregateCall, AggregateFunction, GroupPlacement, Regroup};

#[test]
fn group_dense() {
    let mut case = Case::grouped(GroupPlacement::GlobalDense);
    let calls = vec![sum_of_prices(), count(), least_weight()];
    case.aggregate(vec![small(4000)], vec![column(PRICE)], calls);
    check("group_dense", case);
}

/// Rows would queue at so few groups: they have states in shared memory.
#[test]
fn group_dense_few() {
    let mut case = Case::grouped(GroupPlacement::GlobalDense);
    let calls = vec![sum_of_prices(), least_weight()];
    case.aggregate(vec![small(4000)], vec![column(STATUS)], calls);
    check("group_dense_few", case);
}

#[test]
fn group_shared() {
    let mut case = Case::grouped(GroupPlacement::Shared);
    let keys = vec![column(STATUS), column(MODE)];
    case.aggregate(vec![], keys, vec![sum_of_prices(), count()]);
    check("group_shared", case);
}

#[test]
fn group_hash() {
    let mut case = Case::grouped(GroupPlacement::GlobalHash { capacity: 4096 });
    let modes = AggregateCall {
        distinct: true,
        ..call(
            AggregateFunction::Count,
            Some(column(MODE)),
            DataType::Int64,
        )
    };
    let calls = vec![sum_of_prices(), least_weight(), modes];
    case.aggregate(vec![small(4000)], vec![column(CUSTOMER)], calls);
    check("group_hash", case);
}

#[test]
fn wide_keys() {
    let mut case = Case::grouped(GroupPlacement::GlobalHash { capacity: 4096 });
    let keys = || vec![column(CUSTOMER), column(HASH), column(MODE)];
    let known = case.build(keys(), vec![], |build| build.existence = true);
    let semi = Stage::Probe(probe(known, ProbeKind::Semi, keys()));
    case.aggregate(vec![semi], keys(), vec![sum_of_prices()]);
    check("wide_keys", case);
}

#[test]
fn partition_groups() {
    let mut case = Case::grouped(GroupPlacement::Regrouped {
        how: Regroup::PartitionRows,
        bits: 6,
        groups: 1000,
    });
    let calls = vec![sum_of_prices(), count()];
    case.aggregate(vec![small(4000)], vec![column(CUSTOMER)], calls);
    check("partition_groups", case);
}

#[test]
fn group_runs() {
    let mut case = Case::grouped(GroupPlacement::Regrouped {
        how: Regroup::Runs,
        bits: 0,
        groups: 1000,
    });
    let calls = vec![sum_of_prices(), count(), least_weight()];
    case.aggregate(vec![small(4000)], vec![column(ID)], calls);
    check("group_runs", case);
}

#[test]
fn group_runs_kept() {
    let mut case = Case::grouped(GroupPlacement::Regrouped {
        how: Regroup::Runs,
        bits: 0,
        groups: 1000,
    });
    let least = Expr::column(2, DataType::Float64, true);
    let limit = Expr::literal(ScalarValue::Float64(Some(0.5)));
    case.having = vec![binary(BinaryOp::Lt, least, limit, DataType::Boolean)];
    let calls = vec![count(), least_weight()];
    case.aggregate(vec![small(4000)], vec![column(ID)], calls);
    check("group_runs_kept", case);
}

#[test]
fn collect_and_sort_keys() {
    let mut case = Case::grouped(GroupPlacement::Regrouped {
        how: Regroup::SortKeys,
        bits: 0,
        groups: 1000,
    });
    let calls = vec![sum_of_prices(), least_weight()];
    case.aggregate(vec![], vec![column(CUSTOMER)], calls);
    check("collect_and_sort_keys", case);
}

#[test]
fn collect_and_number() {
    let mut case = Case::grouped(GroupPlacement::Regrouped {
        how: Regroup::Number,
        bits: 0,
        groups: 1000,
    });
    let calls = vec![sum_of_prices(), count()];
    case.aggregate(vec![small(4000)], vec![column(HASH)], calls);
    check("collect_and_number", case);
}
