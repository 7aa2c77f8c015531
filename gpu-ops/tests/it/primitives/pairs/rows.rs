//! Pairs of every kind and width, of skewed sides and of keys that repeat, in any room for pairs.

use std::cell::Cell;

use warpline_gpu::primitives::{
    PairKind, PartitionJoin, another_table_serves, compile_partition_join,
};

use super::{
    Case, How, KINDS, WIDTHS, check, check_with, hashed, key, keys, machines, none, unique_keys,
};
use crate::primitives::Numbers;

#[test]
fn every_kind_width_and_side() {
    for machine in machines() {
        for width in WIDTHS {
            let mut numbers = Numbers(u64::from(width));
            for (build, probe) in [
                (0, 0),
                (0, 40),
                (40, 0),
                (1, 1),
                (31, 33),
                (32, 32),
                (33, 31),
                (700, 900),
            ] {
                let unique_build = unique_keys(3, build, 2, width);
                let doubled: Vec<u128> =
                    keys((0..build).map(|_| numbers.draw() % (build / 3 + 2)), width);
                let probed = keys((0..probe).map(|_| numbers.draw() % (build * 2 + 2)), width);
                for kind in KINDS {
                    let turn = build + u64::from(kind == PairKind::Left);
                    for unique in [true, false] {
                        let case = Case {
                            build: if unique { &unique_build } else { &doubled },
                            probe: &probed,
                            width,
                            kind,
                            unique,
                            numbers: turn.is_multiple_of(2),
                            marks: turn % 3 != 1,
                            capacity: None,
                        };
                        for how in [How::Partitioned(0), How::Partitioned(3), How::Sorted]
                            .into_iter()
                            .chain(hashed(width, 2))
                        {
                            check(&machine, &case, how);
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn arrays_instead_of_tables() {
    for machine in machines() {
        for width in [4, 8] {
            let plain = |n: u64| u128::from(n);
            let unique_build: Vec<u128> = (0..5000).map(|i| plain(i * 3 % 8192)).collect();
            let doubled: Vec<u128> = (0..5000).map(|i| plain(i * i % 4001)).collect();
            // Some are beyond every build key.
            let mut probe: Vec<u128> = (0..3000).map(|i| plain(i * 7 % 9000)).collect();
            probe.push(u128::MAX >> (128 - 8 * width));
            for kind in KINDS {
                for (build, unique) in [(&unique_build, true), (&doubled, false)] {
                    let case = Case {
                        build,
                        probe: &probe,
                        width,
                        kind,
                        unique,
                        numbers: width == 4,
                        marks: width == 8,
                        capacity: None,
                    };
                    check(&machine, &case, How::Dense(1, 13));
                    check(&machine, &case, How::Dense(6, 13));
                }
            }
        }
    }
}

#[test]
fn many_partitions_and_many_blocks() {
    for machine in machines().into_iter().take(4).skip(2) {
        for (width, numbers) in [(4, false), (8, true)] {
            let build = unique_keys(9, 12_000, 1, width);
            let probe = unique_keys(11, 15_000, 1, width);
            for kind in KINDS {
                let case = Case {
                    build: &build,
                    probe: &probe,
                    width,
                    kind,
                    unique: true,
                    numbers,
                    marks: false,
                    capacity: None,
                };
                check(&machine, &case, How::Partitioned(4));
                check(&machine, &case, How::Sorted);
                for how in hashed(width, 4) {
                    check(&machine, &case, how);
                }
            }
        }
    }
}

#[test]
fn skew_on_either_side() {
    for machine in machines().into_iter().skip(3) {
        for width in WIDTHS {
            // One key in most rows of a side; the partition of it is larger than a table, or than a task.
            let mut hot = keys((0..10_500).map(|i| if i % 50 < 1 { i } else { 7 }), width);
            hot.extend(keys([0, 1, 2, 3], width));
            // Rows without key on either side.
            hot.extend(std::iter::repeat_n(none(width), 700));
            let others = keys(
                (0..600).map(|i| if i % 200 == 3 { 7 } else { i * 5 }),
                width,
            );
            let distinct = unique_keys(5, 2000, 3, width);
            for kind in KINDS {
                for (build, probe, unique) in [
                    (&hot, &others, false),
                    (&others, &hot, false),
                    (&distinct, &hot, true),
                ] {
                    let case = Case {
                        build,
                        probe,
                        width,
                        kind,
                        unique,
                        numbers: width == 8,
                        marks: width != 16,
                        capacity: None,
                    };
                    check(&machine, &case, How::Partitioned(2));
                    check(&machine, &case, How::Sorted);
                    for how in hashed(width, 2) {
                        check(&machine, &case, how);
                    }
                }
            }
        }
    }
}

#[test]
fn one_key_in_all_rows() {
    for machine in machines().into_iter().skip(3) {
        let build = vec![key(5, 4); 10_000];
        let probe = vec![key(5, 4); 100];
        for (build, probe) in [(&build, &probe), (&probe, &build)] {
            for kind in KINDS {
                let case = Case {
                    build,
                    probe,
                    width: 4,
                    kind,
                    unique: false,
                    numbers: true,
                    marks: true,
                    capacity: None,
                };
                check(&machine, &case, How::Partitioned(1));
                check(&machine, &case, How::Sorted);
            }
        }
    }
}

#[test]
fn too_little_room_for_pairs() {
    for machine in machines().into_iter().skip(2) {
        let build = keys((0..3000).map(|i| i % 5), 8);
        let probe = keys((0..40).map(|i| i % 7), 8);
        let long = vec![key(3, 8); 9000];
        for (build, kind) in [
            (&build, PairKind::Left),
            (&build, PairKind::Anti),
            (&long, PairKind::Inner),
        ] {
            for capacity in [0, 1, 5000, 9001] {
                let case = Case {
                    build,
                    probe: &probe,
                    width: 8,
                    kind,
                    unique: false,
                    numbers: false,
                    marks: false,
                    capacity: Some(capacity),
                };
                check(&machine, &case, How::Partitioned(2));
                check(&machine, &case, How::Sorted);
            }
        }
    }
}

#[test]
fn a_table_of_another_size_serves_until_the_best_is_compiled() {
    const ROWS: u64 = 5000;
    for machine in machines() {
        let build = unique_keys(17, ROWS, 2, 8);
        let doubled: Vec<u128> = keys((0..ROWS).map(|row| row * row % 1709), 8);
        let probe = keys((0..6000).map(|row| row * 7 % 11_000), 8);
        let joins = |build_rows, unique| PartitionJoin {
            key_width: 8,
            unique,
            numbers: true,
            hashed: [false; 2],
            build_rows,
            bits: 0,
            key_bits: None,
        };
        let compile = |join: PartitionJoin| {
            compile_partition_join(&machine.runtime, join, "phj_join").unwrap();
        };
        let check_rows = |rows: usize, another: bool| {
            for kind in KINDS {
                for unique in [true, false] {
                    let case = Case {
                        build: if unique {
                            &build[..rows]
                        } else {
                            &doubled[..rows]
                        },
                        probe: &probe[..rows],
                        width: 8,
                        kind,
                        unique,
                        numbers: true,
                        marks: kind == PairKind::Left,
                        capacity: None,
                    };
                    let served = Cell::new(false);
                    check_with(&machine, &case, How::Partitioned(0), Some(&served));
                    assert_eq!(served.get(), another, "{}: {kind:?}", machine.name);
                }
            }
        };
        // Few rows have one task, and nothing but it is asked for; many have more.
        let check_all = |another: bool| {
            check_rows(100, false);
            check_rows(ROWS as usize, another);
        };
        for unique in [true, false] {
            assert!(!another_table_serves(&machine.runtime, joins(ROWS, unique)));
            compile(joins(1000, unique));
            assert!(another_table_serves(&machine.runtime, joins(ROWS, unique)));
        }
        check_all(true);
        for unique in [true, false] {
            compile(joins(ROWS, unique));
            assert!(!another_table_serves(&machine.runtime, joins(ROWS, unique)));
        }
        check_all(false);
    }
}
