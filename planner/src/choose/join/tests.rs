//! Prices of joins: the paper's turning points, what must grow, what each leaf of the tree is reached by, settings.

use JoinAlgorithm::{Nphj, Perfect, PhjTr, PhjUr, SmjTr, SmjUr};

use super::*;
use crate::choose::papers::a100;
use crate::config::{JoinMode, named};

const M: f64 = (1u64 << 27) as f64;

/// 2^27 ⋈ 2^27, 4-byte keys, two 4-byte payload columns a side.
fn wide() -> JoinWorkload {
    JoinWorkload {
        build_rows: M,
        probe_rows: M,
        key_bytes: 4,
        key_domain: Some(1 << 27),
        build_payload: vec![4, 4],
        probe_payload: vec![4, 4],
        matches: M,
        build_unique: true,
        ..JoinWorkload::default()
    }
}

fn cost(w: &JoinWorkload, algorithm: JoinAlgorithm) -> f64 {
    price(w, algorithm, &Machine::h200()).unwrap().ms
}

#[test]
fn the_papers_turning_points_come_out_for_its_device() {
    // 104 M = 36 N + 12 M.
    let column: &[f64] = &[4.0];
    let turning = |passes: &[&[f64]], columns| turning_ratio(passes, columns, &a100());
    let one = turning(&[column, column], 1.0);
    assert!((one - 0.39).abs() < 0.005, "{one}");
    let two = turning(&[column, column], 2.0);
    assert!((two - 0.2).abs() < 0.01, "{two}");
    // All columns in one pass: the second adds 8 bytes a row and pass.
    let together = turning(&[&[4.0, 4.0]], 2.0);
    assert!((together - 0.087).abs() < 0.001, "{together}");
    assert_eq!(turning(&[column], 1.0), 0.0);
}

#[test]
fn the_prices_of_ur_and_tr_cross_where_the_paper_measured_it() {
    // Figure 12: two payload columns a side; TR is faster from a match ratio of 25 % on, and here, where one
    // pass moves both and row numbers are read again where pairs are found, from 5 %.
    let machine = a100();
    let faster = |ratio: f64| {
        let w = JoinWorkload {
            matches: M * ratio,
            ..wide()
        };
        let ms = |algorithm| price(&w, algorithm, &machine).unwrap().ms;
        ms(PhjTr) < ms(PhjUr)
    };
    assert!(faster(1.0) && faster(0.25) && !faster(0.04) && !faster(0.03));
}

#[test]
fn more_of_anything_never_costs_less() {
    let machine = Machine::h200();
    let base = JoinWorkload {
        build_rows: 1e6,
        probe_rows: 1e7,
        matches: 1e6,
        key_domain: Some(4_000_000),
        ..wide()
    };
    let grown: Vec<(&str, JoinWorkload)> = vec![
        (
            "build rows",
            JoinWorkload {
                build_rows: 3e6,
                ..base.clone()
            },
        ),
        (
            "probe rows",
            JoinWorkload {
                probe_rows: 3e7,
                ..base.clone()
            },
        ),
        (
            "matches",
            JoinWorkload {
                matches: 5e6,
                ..base.clone()
            },
        ),
        (
            "key",
            JoinWorkload {
                key_bytes: 8,
                ..base.clone()
            },
        ),
        (
            "wider keys",
            JoinWorkload {
                key_bytes: 16,
                ..base.clone()
            },
        ),
        (
            "domain",
            JoinWorkload {
                key_domain: Some(400_000_000),
                ..base.clone()
            },
        ),
        (
            "build column",
            JoinWorkload {
                build_payload: vec![4, 4, 4],
                ..base.clone()
            },
        ),
        (
            "build width",
            JoinWorkload {
                build_payload: vec![4, 8],
                ..base.clone()
            },
        ),
        (
            "probe column",
            JoinWorkload {
                probe_payload: vec![4, 4, 4],
                ..base.clone()
            },
        ),
        (
            "probe width",
            JoinWorkload {
                probe_payload: vec![4, 16],
                ..base.clone()
            },
        ),
        (
            "duplicates",
            JoinWorkload {
                build_unique: false,
                ..base.clone()
            },
        ),
        (
            "streams",
            JoinWorkload {
                probe_streams_from_scan: true,
                ..base.clone()
            },
        ),
    ];
    for (what, more) in grown {
        for algorithm in JoinAlgorithm::ALL {
            let (a, b) = (
                price(&base, algorithm, &machine),
                price(&more, algorithm, &machine),
            );
            let (a, b) = (a.unwrap().ms, b.unwrap().ms);
            assert!(b >= a, "{what}, {algorithm}: {a} to {b}");
        }
    }
    // Skew helps the algorithms that read at random, and never hurts.
    let skewed = JoinWorkload {
        skew: 1.5,
        build_rows: M,
        ..base.clone()
    };
    let uniform = JoinWorkload {
        build_rows: M,
        ..base.clone()
    };
    for algorithm in [Nphj, PhjUr, SmjUr] {
        assert!(
            cost(&skewed, algorithm) < cost(&uniform, algorithm),
            "{algorithm}"
        );
    }
    let ordered = JoinWorkload {
        probe_clustered: true,
        build_rows: M,
        ..base
    };
    assert!(cost(&ordered, Perfect) < cost(&uniform, Perfect));
    assert_eq!(cost(&ordered, PhjTr), cost(&uniform, PhjTr));
    let built = JoinWorkload {
        build_clustered: true,
        ..uniform.clone()
    };
    assert!(cost(&built, Perfect) < cost(&uniform, Perfect));
    assert_eq!(cost(&built, Nphj), cost(&uniform, Nphj));
}

#[test]
fn the_parts_of_a_price_are_the_price() {
    for algorithm in JoinAlgorithm::ALL {
        let price = price(&wide(), algorithm, &Machine::h200()).unwrap();
        let sum: f64 = price.parts.iter().map(|(_, ms)| ms).sum();
        assert!((sum - price.ms).abs() < 1e-9 && price.ms > 0.0, "{price}");
        assert!(
            price
                .parts
                .iter()
                .all(|(_, ms)| ms.is_finite() && *ms >= 0.0),
            "{price}"
        );
    }
}

#[test]
fn every_leaf_of_the_tree_is_reached_by_the_papers_workloads() {
    let leaf = |w: &JoinWorkload| {
        let leaf = decision_tree(w, &a100());
        (leaf.algorithms, leaf.path.join(", "))
    };
    let expect = |w: JoinWorkload, algorithms: &[JoinAlgorithm], path: &str| {
        assert_eq!(leaf(&w), (algorithms.to_vec(), path.to_string()), "{w:?}");
    };
    let small = JoinWorkload {
        build_rows: 1e5,
        key_domain: None,
        ..wide()
    };
    expect(small, &[Perfect, Nphj], "index in cache");
    let narrow = JoinWorkload {
        build_payload: vec![4],
        probe_payload: vec![],
        ..wide()
    };
    expect(
        narrow.clone(),
        &[PhjUr],
        "index beyond cache, narrow, uniform",
    );
    expect(
        JoinWorkload {
            skew: 1.25,
            ..narrow
        },
        &[PhjTr],
        "index beyond cache, narrow, skewed",
    );
    let few = JoinWorkload {
        matches: 0.03 * M,
        ..wide()
    };
    expect(
        few,
        &[PhjUr],
        "index beyond cache, wide, few matches, uniform",
    );
    let quarter = JoinWorkload {
        matches: 0.25 * M,
        ..wide()
    };
    assert_eq!(decision_tree(&quarter, &a100()).path[2], "many matches");
    expect(
        JoinWorkload {
            key_bytes: 8,
            ..wide()
        },
        &[PhjTr],
        "index beyond cache, wide, many matches, 8-byte",
    );
    expect(
        JoinWorkload {
            skew: 1.0,
            ..wide()
        },
        &[PhjTr, SmjUr],
        "index beyond cache, wide, many matches, 4-byte, skewed",
    );
    expect(
        wide(),
        &[PhjTr, SmjTr],
        "index beyond cache, wide, many matches, 4-byte, uniform, materialisation dominates",
    );
}

#[test]
fn large_joins_are_partitioned_and_small_ones_are_not() {
    let machine = Machine::h200();
    let auto = |w: &JoinWorkload| choose_join(JoinSetting::Auto, w, &machine);
    let large = auto(&wide());
    assert_eq!(large.algorithm, PhjTr, "{}", large.reason);
    let hot = auto(&JoinWorkload {
        build_rows: 1e4,
        key_domain: None,
        ..wide()
    });
    assert_eq!(hot.algorithm, Nphj, "{}", hot.reason);
    let dense = auto(&JoinWorkload {
        build_rows: 1e5,
        key_domain: Some(100_000),
        ..wide()
    });
    assert_eq!(dense.algorithm, Perfect, "{}", dense.reason);
    // A probing side in the order of the key reads its index in order.
    let ordered = auto(&JoinWorkload {
        probe_clustered: true,
        probe_streams_from_scan: true,
        probe_rows: 4.0 * M,
        matches: M,
        build_rows: M / 4.0,
        ..wide()
    });
    assert!(ordered.algorithm.is_index(), "{}", ordered.reason);
}

#[test]
fn an_index_is_left_only_for_a_clear_gain() {
    let machine = Machine::h200();
    for shift in 14..28 {
        for ratio in [0.03, 0.25, 1.0] {
            let rows = (1u64 << shift) as f64;
            let w = JoinWorkload {
                build_rows: rows,
                key_domain: Some(1 << shift),
                matches: M * ratio,
                probe_streams_from_scan: true,
                ..wide()
            };
            let decision = choose_join(JoinSetting::Auto, &w, &machine);
            let index = cost(&w, Perfect).min(cost(&w, Nphj));
            let join = [PhjUr, PhjTr, SmjUr, SmjTr]
                .into_iter()
                .map(|a| cost(&w, a))
                .fold(f64::INFINITY, f64::min);
            assert_eq!(
                !decision.algorithm.is_index(),
                join < LEAVE_INDEX * index || decision.price.ms < LEAVE_INDEX * index,
                "{}",
                decision.reason
            );
            let best = index.min(join);
            assert!(
                decision.price.ms <= best / LEAVE_INDEX * 1.0001,
                "{}",
                decision.reason
            );
        }
    }
}

#[test]
fn forced_algorithms_are_taken_where_possible_and_explained_where_not() {
    let machine = Machine::h200();
    for algorithm in JoinAlgorithm::ALL {
        let name = algorithm.name().to_uppercase();
        let setting = named::<JoinMode>("warpline.join", &name).unwrap().algorithm;
        assert_eq!(setting.to_string(), algorithm.name());
        let decision = choose_join(setting, &wide(), &machine);
        assert_eq!(decision.algorithm, algorithm);
        assert!(
            decision
                .reason
                .contains(&format!("warpline.join = {algorithm}"))
        );
        assert_eq!(decision.rivals.len(), JoinAlgorithm::ALL.len() - 1);
    }
    let refused = |algorithm, w: JoinWorkload, why: &str| {
        assert!(price(&w, algorithm, &machine).is_none());
        let decision = choose_join(JoinSetting::Force(algorithm), &w, &machine);
        assert_ne!(decision.algorithm, algorithm);
        assert!(
            decision.reason.contains("is impossible") && decision.reason.contains(why),
            "{}",
            decision.reason
        );
    };
    refused(
        Perfect,
        JoinWorkload {
            key_domain: None,
            ..wide()
        },
        "no small known range",
    );
    refused(
        Perfect,
        JoinWorkload {
            key_domain: Some(1 << 40),
            ..wide()
        },
        "a quarter",
    );
    refused(
        PhjTr,
        JoinWorkload {
            key_bytes: 24,
            ..wide()
        },
        "keys of 24 bytes",
    );
    refused(
        SmjUr,
        JoinWorkload {
            key_bytes: 0,
            ..wide()
        },
        "keys of 0 bytes",
    );
    refused(
        PhjUr,
        JoinWorkload {
            probe_rows: 5e9,
            ..wide()
        },
        "32 bits",
    );
    refused(
        PhjTr,
        JoinWorkload {
            probe_rows: 4e9,
            probe_payload: vec![16; 8],
            ..wide()
        },
        "half of device memory",
    );
    assert!(
        named::<JoinMode>("warpline.join", "fastest")
            .unwrap_err()
            .to_string()
            .contains("smj_tr")
    );
}

#[test]
fn plans_name_the_price_the_rivals_and_the_path() {
    let decision = choose_join(JoinSetting::Auto, &wide(), &Machine::h200());
    for part in [
        "transform",
        "nphj ",
        "smj_tr ",
        "tree: index beyond cache",
        "default constants",
    ] {
        assert!(
            decision.reason.contains(part),
            "{part}: {}",
            decision.reason
        );
    }
}

#[test]
fn what_has_no_room_is_priced_by_the_link() {
    let machine = Machine::h200();
    // Keys all over their range: 16 bytes a row and side, 4 GiB in all.
    let large = JoinWorkload {
        build_rows: M,
        probe_rows: M,
        key_bytes: 8,
        build_payload: vec![8],
        probe_payload: vec![8],
        matches: M,
        build_unique: true,
        room: Some(64.0 * 1024.0 * 1024.0 * 1024.0),
        ..JoinWorkload::default()
    };
    let with_room = |room: f64| JoinWorkload {
        room: Some(room),
        ..large.clone()
    };
    for algorithm in [Nphj, PhjTr, SmjTr] {
        let free = price(&large, algorithm, &machine).unwrap();
        assert_eq!(free.part("link"), 0.0, "{algorithm}");
        let state = state_bytes(&large, algorithm, &machine);
        let mut last = 0.0;
        for share in [0.9, 0.5, 0.25, 0.125] {
            let short = price(&with_room(state * share), algorithm, &machine).unwrap();
            assert!(short.part("link") > last, "{algorithm} {share}");
            last = short.part("link");
            assert!((short.ms - free.ms - last).abs() < 1e-6, "{algorithm}");
        }
    }
    // All of both sides but what stays: out and in again.
    let state = state_bytes(&large, PhjTr, &machine);
    let gone = price(&with_room(state / 4.0), PhjTr, &machine).unwrap();
    let bytes = 2.0 * (state - state / 4.0 * 0.7);
    assert!((gone.part("link") - bytes / machine.link * 1e3).abs() < 1e-6);
    // A small build side stays, and the large one streams past it; two large ones go in pairs of partitions.
    let auto = |w: &JoinWorkload| choose_join(JoinSetting::Auto, w, &machine);
    let streamed = auto(&JoinWorkload {
        build_rows: M / 64.0,
        probe_rows: 8.0 * M,
        matches: 8.0 * M,
        ..with_room(1e9)
    });
    assert_eq!(streamed.algorithm, Nphj, "{}", streamed.reason);
    let pairs = auto(&with_room(1e9));
    assert!(matches!(pairs.algorithm, PhjTr | PhjUr), "{}", pairs.reason);
    assert!(
        pairs.reason.contains("in pairs of partitions (triton)"),
        "{}",
        pairs.reason
    );
    assert!(!auto(&large).reason.contains("triton"));
}
