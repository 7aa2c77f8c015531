//! Planted differences are found, and what SQL leaves open is not one.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, Decimal128Array, DictionaryArray, Float64Array, Int64Array, RecordBatch, StringArray,
};
use arrow::datatypes::Int32Type;
use datafusion::prelude::SessionContext;

use super::*;

fn answer<const N: usize>(columns: [(&str, ArrayRef); N]) -> Answer {
    let columns = columns
        .into_iter()
        .map(|(name, column)| (name, column, true));
    let batch = RecordBatch::try_from_iter_with_nullable(columns).expect("a batch");
    Answer::new(&batch.schema(), &[batch]).expect("an answer")
}

fn ints(values: &[Option<i64>]) -> ArrayRef {
    Arc::new(Int64Array::from(values.to_vec()))
}

fn floats(values: &[f64]) -> ArrayRef {
    Arc::new(Float64Array::from(values.to_vec()))
}

fn ascending(column: usize) -> SortKey {
    SortKey {
        column,
        descending: false,
        nulls_first: false,
    }
}

fn unordered() -> Ordering {
    Ordering::default()
}

#[test]
fn equal_multisets_in_any_order_agree_without_order_by() {
    let left = answer([("a", ints(&[Some(1), None, Some(2), Some(1)]))]);
    let right = answer([("a", ints(&[Some(2), Some(1), Some(1), None]))]);
    assert_eq!(compare(&left, &right, &unordered()), None);
    // The same values, but another number of times.
    let wrong = answer([("a", ints(&[Some(2), Some(2), Some(1), None]))]);
    assert!(matches!(
        compare(&left, &wrong, &unordered()),
        Some(Difference::Row { .. })
    ));
}

#[test]
fn floats_agree_to_nine_digits_and_no_further() {
    let values = [1.0, f64::NAN, 0.0, f64::INFINITY, 1e300];
    let left = answer([("x", floats(&values))]);
    let close = answer([(
        "x",
        floats(&[
            1.0 + 1e-10,
            f64::NAN,
            -0.0,
            f64::INFINITY,
            1e300 * (1.0 - 1e-12),
        ]),
    )]);
    assert_eq!(compare(&left, &close, &unordered()), None);
    for (index, wrong) in [
        (0, 1.0 + 1e-8),
        (1, 0.0),
        (3, f64::NEG_INFINITY),
        (2, 1e-300),
    ] {
        let mut changed = values;
        changed[index] = wrong;
        let difference = compare(&left, &answer([("x", floats(&changed))]), &unordered());
        assert!(
            matches!(difference, Some(Difference::Row { ref column, .. }) if column == "x"),
            "{difference:?}"
        );
    }
}

#[test]
fn rounding_in_one_float_column_does_not_mix_up_rows() {
    let left = answer([("x", floats(&[1.0, 1.0])), ("y", floats(&[5.0, 6.0]))]);
    let right = answer([
        ("x", floats(&[1.0 + 1e-12, 1.0])),
        ("y", floats(&[5.0, 6.0])),
    ]);
    assert_eq!(compare(&left, &right, &unordered()), None);
}

#[test]
fn decimals_are_exact() {
    let decimal = |value: i128| -> ArrayRef {
        let array = Decimal128Array::from(vec![value])
            .with_precision_and_scale(38, 2)
            .expect("a decimal");
        Arc::new(array)
    };
    let left = answer([("d", decimal(123_456_789_012_345_678))]);
    let right = answer([("d", decimal(123_456_789_012_345_679))]);
    let text = compare(&left, &right, &unordered())
        .expect("a difference")
        .to_string();
    assert!(
        text.contains("1234567890123456.78") && text.contains("1234567890123456.79"),
        "{text}"
    );
}

#[test]
fn types_names_and_row_counts_count() {
    let left = answer([("a", ints(&[Some(1)]))]);
    let floats = answer([("a", floats(&[1.0]))]);
    assert!(matches!(
        compare(&left, &floats, &unordered()),
        Some(Difference::Schema { column: 1, .. })
    ));
    let renamed = answer([("b", ints(&[Some(1)]))]);
    assert!(matches!(
        compare(&left, &renamed, &unordered()),
        Some(Difference::Schema { column: 1, .. })
    ));
    let wider = answer([("a", ints(&[Some(1)])), ("b", ints(&[Some(1)]))]);
    assert!(matches!(
        compare(&left, &wider, &unordered()),
        Some(Difference::Schema { column: 2, .. })
    ));
    let longer = answer([("a", ints(&[Some(1), Some(1)]))]);
    assert_eq!(
        compare(&left, &longer, &unordered()),
        Some(Difference::RowCount {
            expected: 1,
            found: 2
        })
    );
}

#[test]
fn order_is_checked_as_far_as_keys_go() {
    let ordering = Ordering {
        keys: vec![ascending(0)],
        limit: None,
        sorted: true,
    };
    let left = answer([
        ("k", ints(&[Some(1), Some(1), Some(2)])),
        ("v", ints(&[Some(1), Some(2), Some(3)])),
    ]);
    let swapped_ties = answer([
        ("k", ints(&[Some(1), Some(1), Some(2)])),
        ("v", ints(&[Some(2), Some(1), Some(3)])),
    ]);
    assert_eq!(compare(&left, &swapped_ties, &ordering), None);
    let unsorted = answer([
        ("k", ints(&[Some(2), Some(1), Some(1)])),
        ("v", ints(&[Some(3), Some(2), Some(1)])),
    ]);
    assert!(matches!(
        compare(&left, &unsorted, &ordering),
        Some(Difference::Order { row: 2, .. })
    ));
    assert_eq!(compare(&left, &unsorted, &unordered()), None);
    // A reference out of its order asks for none.
    assert_eq!(compare(&unsorted, &unsorted, &ordering), None);
    assert_eq!(compare(&unsorted, &left, &ordering), None);
}

#[test]
fn null_and_direction_options_are_part_of_the_order() {
    let key = SortKey {
        column: 0,
        descending: true,
        nulls_first: true,
    };
    let ordering = Ordering {
        keys: vec![key],
        limit: None,
        sorted: true,
    };
    let right_order = answer([("k", ints(&[None, Some(3), Some(2)]))]);
    assert_eq!(compare(&right_order, &right_order, &ordering), None);
    let nulls_last = answer([("k", ints(&[Some(3), Some(2), None]))]);
    assert!(matches!(
        compare(&right_order, &nulls_last, &ordering),
        Some(Difference::Order { row: 3, .. })
    ));
}

#[test]
fn ties_at_a_limit_are_interchangeable_but_nothing_else_is() {
    let ordering = Ordering {
        keys: vec![ascending(0)],
        limit: Some(3),
        sorted: true,
    };
    let left = answer([
        ("k", ints(&[Some(1), Some(2), Some(2)])),
        ("v", ints(&[Some(1), Some(2), Some(3)])),
    ]);
    let other_tie = answer([
        ("k", ints(&[Some(1), Some(2), Some(2)])),
        ("v", ints(&[Some(1), Some(9), Some(3)])),
    ]);
    assert_eq!(compare(&left, &other_tie, &ordering), None);
    let other_key = answer([
        ("k", ints(&[Some(1), Some(2), Some(3)])),
        ("v", ints(&[Some(1), Some(2), Some(3)])),
    ]);
    assert!(compare(&left, &other_key, &ordering).is_some());
    let other_head = answer([
        ("k", ints(&[Some(1), Some(2), Some(2)])),
        ("v", ints(&[Some(7), Some(2), Some(3)])),
    ]);
    assert!(compare(&left, &other_head, &ordering).is_some());
    // Without the limit the same answer is wrong.
    assert!(
        compare(
            &left,
            &other_tie,
            &Ordering {
                limit: None,
                ..ordering
            }
        )
        .is_some()
    );
}

#[tokio::test]
async fn ties_by_a_column_that_is_not_shown_are_interchangeable_but_nothing_else_is() {
    let context = SessionContext::new();
    let table = RecordBatch::try_from_iter([
        ("k", ints(&[Some(1), Some(2), Some(2), Some(2), Some(3)])),
        (
            "v",
            ints(&[Some(10), Some(20), Some(21), Some(20), Some(30)]),
        ),
    ]);
    context
        .register_batch("t", table.expect("a table"))
        .expect("registered");
    let of = async |sql: &str| Candidates::of(&context, sql).await.expect(sql);
    let cut = of("SELECT v FROM t ORDER BY k LIMIT 3").await;
    let cut = cut.expect("an order that the answer does not show");
    let allowed = |values: &[i64]| {
        let values: Vec<_> = values.iter().copied().map(Some).collect();
        cut.allow(&answer([("v", ints(&values))]))
    };
    assert!(allowed(&[10, 20, 21]) && allowed(&[10, 20, 20]) && allowed(&[21, 10, 20]));
    // Without a row that is certain, a row too often, one behind the cut.
    assert!(!allowed(&[20, 20, 21]) && !allowed(&[10, 21, 21]) && !allowed(&[10, 20, 30]));
    for told in [
        "SELECT v FROM t ORDER BY k",
        "SELECT k, v FROM t ORDER BY k LIMIT 3",
        "SELECT v FROM t LIMIT 3",
        "SELECT v FROM t ORDER BY k LIMIT 9",
    ] {
        assert!(of(told).await.is_none(), "{told}");
    }
}

#[test]
fn a_limit_without_an_order_takes_any_rows() {
    let left = answer([("k", ints(&[Some(1), Some(2)]))]);
    let others = answer([("k", ints(&[Some(7), Some(8)]))]);
    let cut = |limit, sorted| Ordering {
        limit: Some(limit),
        sorted,
        ..Ordering::default()
    };
    assert_eq!(compare(&left, &others, &cut(2, false)), None);
    // All rows are there; the order is by a column that is not in the answer; a row is missing.
    assert!(compare(&left, &others, &cut(3, false)).is_some());
    assert!(compare(&left, &others, &cut(2, true)).is_some());
    let fewer = answer([("k", ints(&[Some(1)]))]);
    assert!(compare(&left, &fewer, &cut(2, false)).is_some());
}

#[test]
fn text_with_null_and_empty_and_dictionaries() {
    let text = |values: Vec<Option<&str>>| -> ArrayRef { Arc::new(StringArray::from(values)) };
    let left = answer([("s", text(vec![None, Some("")]))]);
    let right = answer([("s", text(vec![Some(""), Some("")]))]);
    assert!(compare(&left, &right, &unordered()).is_some());
    let coded = |values: Vec<&str>| -> ArrayRef {
        Arc::new(values.into_iter().collect::<DictionaryArray<Int32Type>>())
    };
    let left = answer([("s", coded(vec!["x", "y", "x"]))]);
    let right = answer([("s", coded(vec!["y", "x", "x"]))]);
    assert_eq!(compare(&left, &right, &unordered()), None);
}

#[test]
fn empty_answers_agree_when_their_types_do() {
    let empty = answer([("a", ints(&[]))]);
    assert_eq!(
        compare(
            &empty,
            &empty,
            &Ordering {
                keys: vec![ascending(0)],
                limit: Some(0),
                sorted: true,
            }
        ),
        None
    );
}
