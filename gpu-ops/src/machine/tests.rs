//! Curves between their points, and constants to disk and back.

use super::store::{parse, text};
use super::*;

#[test]
fn curves_are_straight_over_the_logarithm_and_flat_beyond_their_ends() {
    let curve = Curve::new([(16.0, 4.0), (4.0, 2.0), (64.0, 4.0)]);
    assert_eq!(curve.at(1.0), 2.0);
    assert_eq!(curve.at(4.0), 2.0);
    assert_eq!(curve.at(8.0), 3.0);
    assert_eq!(curve.at(16.0), 4.0);
    assert_eq!(curve.at(1e9), 4.0);
    assert_eq!(curve.scaled(2.0).at(8.0), 6.0);
    assert_eq!(Curve::default().at(8.0), 0.0);
    assert_eq!(
        Curve::new([(0.0, 1.0), (f64::NAN, 2.0), (2.0, f64::NAN)]),
        Curve::default()
    );
}

#[test]
fn constants_survive_the_disk_and_damaged_files_do_not() {
    let machine = Machine {
        device: "some \"device\"".into(),
        copy: 1.25e12,
        ..Machine::h200()
    };
    let written = text(&machine);
    let read = parse(&written).unwrap();
    assert_eq!(read.origin, Origin::Measured);
    assert_eq!(
        Machine {
            origin: Origin::Default,
            ..read
        },
        machine
    );
    assert!(parse("").is_none());
    assert!(parse(&written[..written.len() / 2]).is_none());
    assert!(parse(&written.replace("\"version\": 1", "\"version\": 0")).is_none());
    assert!(parse(&written.replace("\"copy\": 1250000000000.0", "\"copy\": -1")).is_none());
    assert!(parse(&written.replace("\"copy\": 1250000000000.0", "\"copy\": 0")).is_none());
    assert!(parse(&written.replace("match_row", "other")).is_none());
}

#[test]
fn wider_values_and_wider_passes_cost_more() {
    let m = Machine::h200();
    for bytes in [1e3, 1e6, 1e8, 1e10] {
        assert!(m.gather(4.0, bytes) <= m.gather(16.0, bytes) * 1.02);
        assert!(m.gather(32.0, bytes) >= 2.0 * m.gather(16.0, bytes));
    }
    let rows = (1u64 << 27) as f64;
    let narrow = m.partition(rows, 4.0, &[4.0], 16.0);
    // Two passes over 8 bytes a row, read and written, and one read of the keys, are 1.1 ms at copy speed.
    assert!((1.1..4.0).contains(&narrow), "{narrow}");
    assert!(m.partition(rows, 4.0, &[4.0], 8.0) < narrow);
    assert!(m.partition(rows, 8.0, &[4.0], 16.0) > narrow);
    assert!(m.partition(rows, 4.0, &[4.0, 4.0], 16.0) > narrow);
}

#[test]
fn a_device_with_slower_memory_and_a_smaller_cache_is_priced_by_these() {
    let h200 = Machine::h200();
    let device = |memory_bandwidth, l2_cache, multiprocessors| DeviceInfo {
        name: "another".into(),
        id: "cuda:0".into(),
        memory: 80 << 30,
        compute_capability: (9, 0),
        multiprocessors,
        memory_bandwidth,
        shared_memory_per_block: 227 << 10,
        shared_memory_per_multiprocessor: 228 << 10,
        l2_cache,
        driver: "13.0".into(),
        compiler: "NVRTC 13.0".into(),
        emulated: false,
    };
    let same = Machine::scaled_to(&device(4.917e12, 60 << 20, 132));
    assert_eq!(same.gather, h200.gather);
    assert_eq!((same.copy, same.match_row), (h200.copy, h200.match_row));
    // As an H100, of which these were measured: copies 3.00e12, random reads of 4 bytes in 8 GiB 31.8, additions in 16 MiB 11.1.
    let h100 = Machine::scaled_to(&device(3.352e12, 50 << 20, 132));
    let about = |a: f64, b: f64, by: f64| assert!((a / b - 1.0).abs() < by, "{a} {b}");
    about(h100.copy, 3.00e12, 0.05);
    about(h100.gather(4.0, 2f64.powi(33)), 31.8, 0.05);
    about(h100.scatter(8.0, 2f64.powi(33)), 75.1, 0.05);
    about(h100.atomics.at(256.0), 289.2, 0.05);
    about(h100.atomics.at(2f64.powi(24)), 11.1, 0.05);
    about(h100.atomics.at(2f64.powi(26)), 41.6, 0.15);
    assert_eq!(h100.group_row, h200.group_row);
    // Half the multiprocessors; the driver tells nothing of the memory.
    let half = Machine::scaled_to(&device(0.0, 60 << 20, 66));
    about(half.copy * 2.0, h200.copy, 1e-9);
    about(half.inserts.at(1e9), h200.inserts.at(1e9), 1e-9);
}
