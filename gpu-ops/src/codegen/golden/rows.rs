//! Kernels of scans, filters, strings and sorts.

use arrow::datatypes::DataType;
use datafusion::scalar::ScalarValue;

use super::case::Case;
use super::check;
use super::expressions::{below, binary, column, count, small, sum, text};
use super::table::{COMMENT, ID, MODE, PRICE, STATUS, WEIGHT};
use crate::expr::{BinaryOp, Expr};
use crate::graph::{ResultKind, Sort, SortKey, Source, Stage, Step};

#[test]
fn scan_filter_sum() {
    let mut case = Case::new();
    let heavy = below(WEIGHT, ScalarValue::Float64(Some(900.5)));
    let filter = Stage::Filter(vec![below(ID, ScalarValue::Int32(Some(500))), heavy]);
    let product = binary(
        BinaryOp::Multiply,
        column(PRICE),
        column(PRICE),
        DataType::Decimal128(25, 4),
    );
    let calls = vec![sum(product, DataType::Decimal128(35, 4)), count()];
    case.aggregate(vec![filter], vec![], calls);
    check("scan_filter_sum", case);
}

#[test]
fn strings_like() {
    let mut case = Case::new();
    let filter = Stage::Filter(vec![
        text(COMMENT, "s LIKE '%special%requests%'"),
        text(COMMENT, "starts_with(s, 'comment')"),
        text(MODE, "s LIKE '%AI%'"),
    ]);
    let columns = vec![column(ID), column(COMMENT), text(MODE, "upper(s)")];
    case.rows(Source::Scan(0), vec![filter], columns);
    check("strings_like", case);
}

#[test]
fn sort() {
    let mut case = Case::new();
    let columns = vec![column(STATUS), column(MODE), column(WEIGHT), column(ID)];
    let rows = case.rows(Source::Scan(0), vec![small(4000)], columns.clone());
    let into = case.result(ResultKind::Sorted, &columns);
    let key = |column, descending| SortKey {
        column,
        descending,
        nulls_first: descending,
    };
    case.steps.push(Step::Sort(Sort {
        rows,
        keys: vec![key(0, true), key(1, false), key(2, false)],
        skip: 10,
        fetch: Some(100),
        window: None,
        into,
    }));
    check("sort", case);
}

/// Keys and row numbers, their order, and the other columns of the rows at its head.
#[test]
fn first_rows_by_number() {
    let mut case = Case::new();
    let keys = vec![Expr::row_number(), column(WEIGHT)];
    let rows = case.rows(Source::Scan(0), vec![small(4000)], keys.clone());
    let by = case.result(ResultKind::Sorted, &keys[..1]);
    case.steps.push(Step::Sort(Sort {
        rows,
        keys: vec![SortKey {
            column: 1,
            descending: true,
            nulls_first: false,
        }],
        skip: 0,
        fetch: Some(10),
        window: None,
        into: by,
    }));
    let of = Box::new(Source::Scan(0));
    let columns = vec![column(ID), column(COMMENT), column(MODE), column(WEIGHT)];
    case.rows(Source::Picked { of, by }, vec![], columns);
    check("first_rows_by_number", case);
}
