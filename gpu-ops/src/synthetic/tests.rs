//! Made tables on the emulator, against what the host computes from their values.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{Array, AsArray};
use arrow::datatypes::{Int32Type, Int64Type};

use super::*;
use crate::device::emulated::EmulatedDevice;

fn runtime() -> Arc<Runtime> {
    Runtime::with_device(Arc::new(EmulatedDevice::open().unwrap()), None).unwrap()
}

fn side(rows: u64, numbers: Numbers, keys: KeyKind) -> Side {
    Side {
        name: "t",
        rows,
        numbers,
        keys,
        prefix: "p",
        payload: vec![4, 8, 16],
        seed: 7,
    }
}

fn keys_of(made: &Made, runtime: &Runtime) -> Vec<i64> {
    let stream = runtime.lease_stream().unwrap();
    let array = made.table().columns()[0].to_arrow(&stream).unwrap();
    match array.data_type() {
        DataType::Int32 => {
            let values = array.as_primitive::<Int32Type>().values();
            values.iter().map(|v| i64::from(*v)).collect()
        }
        _ => array.as_primitive::<Int64Type>().values().to_vec(),
    }
}

#[test]
fn numbers_in_turn_come_equally_often_and_drawn_ones_by_their_exponent() {
    let runtime = runtime();
    let stream = runtime.lease_stream().unwrap();
    for kind in [KeyKind::Dense, KeyKind::Sparse, KeyKind::Wide] {
        let numbers = Numbers::InTurn {
            distinct: 50,
            stride: 3,
        };
        let made = make(&runtime, &stream, side(200, numbers, kind)).unwrap();
        let mut counts: HashMap<i64, usize> = HashMap::new();
        let keys = keys_of(&made, &runtime);
        for key in &keys {
            *counts.entry(*key).or_default() += 1;
        }
        assert!(
            counts.len() == 50 && counts.values().all(|n| *n == 4),
            "{kind:?}"
        );
        let statistics = &made.table().columns()[0].statistics;
        let (low, high) = statistics.range.unwrap();
        assert_eq!(low, (*keys.iter().min().unwrap()).into());
        assert_eq!(high, (*keys.iter().max().unwrap()).into());
        assert_eq!(statistics.distinct, Some(50));
        assert!(!statistics.unique);
        if kind == KeyKind::Dense {
            assert!(counts.keys().all(|k| k % 3 == 0 && *k < 150));
        }
        let numbers = Numbers::Drawn {
            values: 1000,
            exponent: 1.0,
        };
        let made = make(&runtime, &stream, side(5000, numbers, kind)).unwrap();
        let keys = keys_of(&made, &runtime);
        let mut counts: HashMap<i64, usize> = HashMap::new();
        for key in &keys {
            *counts.entry(*key).or_default() += 1;
        }
        // The most frequent of 1000 ranks has 1 / 7.49 of the draws.
        let most = *counts.values().max().unwrap() as f64 / 5000.0;
        assert!((most - 0.1336).abs() < 0.02, "{kind:?}: {most}");
        let statistics = &made.table().columns()[0].statistics;
        assert_eq!(statistics.distinct, Some(counts.len()));
        let collisions = statistics.sketch.as_ref().unwrap().collisions().unwrap();
        assert!((0.02..0.04).contains(&collisions), "{collisions}");
    }
}

#[test]
fn many_distinct_keys_are_estimated_as_loading_estimates_them() {
    let runtime = runtime();
    let stream = runtime.lease_stream().unwrap();
    let numbers = Numbers::Drawn {
        values: 20_000,
        exponent: 0.0,
    };
    let made = make(&runtime, &stream, side(20_000, numbers, KeyKind::Sparse)).unwrap();
    let mut keys = keys_of(&made, &runtime);
    keys.sort_unstable();
    keys.dedup();
    let column = &made.table().columns()[0];
    let estimate = column.statistics.distinct_estimate.unwrap() as f64;
    assert!(
        (estimate / keys.len() as f64 - 1.0).abs() < 0.12,
        "{estimate} {}",
        keys.len()
    );
    // The sketch is the one that a load of the same values makes.
    let array = column.to_arrow(&stream).unwrap();
    let policy = crate::column::StringPolicy::Auto;
    let loaded = crate::column::encode(&array, policy, runtime.pool(), &stream).unwrap();
    let (ours, theirs) = (column.statistics.sketch.as_ref(), loaded.statistics.sketch);
    assert_eq!(
        ours.unwrap().contained_in(theirs.as_ref().unwrap()),
        Some(1.0)
    );
    assert_eq!(theirs.unwrap().contained_in(ours.unwrap()), Some(1.0));
}

#[test]
fn unsuitable_tables_are_refused() {
    let runtime = runtime();
    let stream = runtime.lease_stream().unwrap();
    let numbers = Numbers::Drawn {
        values: 1 << 33,
        exponent: 0.0,
    };
    assert!(make(&runtime, &stream, side(10, numbers, KeyKind::Dense)).is_err());
    let mut odd = side(
        10,
        Numbers::InTurn {
            distinct: 10,
            stride: 1,
        },
        KeyKind::Dense,
    );
    odd.payload = vec![3];
    assert!(make(&runtime, &stream, odd).is_err());
}

#[test]
fn tables_of_few_rows_have_them() {
    let runtime = runtime();
    let stream = runtime.lease_stream().unwrap();
    for rows in [0, 1, 31, 32, 33, 257] {
        let numbers = Numbers::InTurn {
            distinct: rows,
            stride: 1,
        };
        let made = make(&runtime, &stream, side(rows, numbers, KeyKind::Dense)).unwrap();
        let mut keys = keys_of(&made, &runtime);
        keys.sort_unstable();
        assert_eq!(keys, (0..rows as i64).collect::<Vec<_>>());
        assert!(made.table().columns()[0].statistics.unique);
        let probe = Side {
            seed: 9,
            ..side(rows, numbers, KeyKind::Dense)
        };
        let probe = make(&runtime, &stream, probe).unwrap();
        let pairs = joined(&runtime, &stream, &made, &probe).unwrap();
        assert_eq!(pairs.rows, rows);
    }
}
