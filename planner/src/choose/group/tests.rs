//! Prices of group-bys: the paper's Table 2 and turning points, what must grow, the tree's leaves, settings.

use GroupAlgorithm::{Global, Hgb, PgbTr, PgbUr, Private, Runs, SgbDeTr, SgbTr, Shared};

use super::*;
use crate::choose::papers::a100;
use crate::config::named;

const N: f64 = (1u64 << 28) as f64;

/// 2^28 rows, two maxima of 4-byte columns, 4-byte keys of an unknown range.
fn maxima(groups: f64) -> GroupWorkload {
    GroupWorkload {
        rows: N,
        groups,
        key_bytes: 4,
        key_words: 1,
        state_bytes: 8,
        tests: 2,
        payload: vec![4, 4],
        ..GroupWorkload::default()
    }
}

#[test]
fn table_2_comes_out_for_the_papers_device() {
    // The paper sorts each column with the keys; so many columns pay off at so many groups. Its table has one more
    // between 2^15 and 2^23 groups of 4-byte keys than its equation gives with its constants.
    let pays = |log2: f64, key: f64, columns: usize| {
        let one: &[f64] = &[4.0];
        let sorts = vec![one; columns];
        encoding_saves(N, 2f64.powf(log2), key, 8.0 * key, &sorts, &a100()) > 0.0
    };
    let least = |log2: f64, key: f64| (1..=32).find(|p| pays(log2, key, *p)).unwrap();
    for (log2, columns) in [
        (0.0, 1),
        (8.0, 1),
        (14.0, 1),
        (15.0, 2),
        (16.0, 2),
        (17.0, 4),
        (22.0, 4),
        (23.0, 13),
        (24.0, 14),
    ] {
        assert_eq!(least(log2, 4.0), columns, "4-byte keys, 2^{log2} groups");
    }
    for (log2, columns) in [
        (0.0, 1),
        (16.0, 1),
        (21.0, 1),
        (22.0, 3),
        (24.0, 3),
        (27.0, 4),
    ] {
        assert_eq!(least(log2, 8.0), columns, "8-byte keys, 2^{log2} groups");
    }
}

#[test]
fn sorting_along_pays_from_some_groups_on() {
    // §4.1.3: 68 N against (4 min(24, g) + 8) N, so from 16 groups on for columns sorted one by one.
    let machine = a100();
    let first = (1..=64)
        .find(|g| {
            let w = GroupWorkload {
                payload: vec![4],
                ..maxima(f64::from(*g))
            };
            let model = Model {
                w: &w,
                machine: &machine,
            };
            let moved = machine.partition(N, 4.0, &[4.0], 32.0);
            let share = model.unclustered();
            let random = N * machine.gather(4.0, 4.0 * N) * 1e-9;
            let gathered = share * random + (1.0 - share) * machine.stream(4.0 * N);
            moved < machine.stream(8.0 * N) + gathered
        })
        .unwrap();
    assert!((14..=18).contains(&first), "{first}");
}

#[test]
fn more_of_anything_never_costs_less() {
    let machine = Machine::h200();
    let base = GroupWorkload {
        in_order: true,
        dense_domain: Some(4),
        ..maxima(4.0)
    };
    let base = GroupWorkload { rows: 1e7, ..base };
    for (what, more) in [
        (
            "rows",
            GroupWorkload {
                rows: 2e7,
                ..base.clone()
            },
        ),
        (
            "updates",
            GroupWorkload {
                tests: 4,
                state_bytes: 16,
                ..base.clone()
            },
        ),
        (
            "column",
            GroupWorkload {
                payload: vec![4, 4, 4],
                ..base.clone()
            },
        ),
        (
            "order",
            GroupWorkload {
                must_sort: true,
                ..base.clone()
            },
        ),
    ] {
        for algorithm in GroupAlgorithm::ALL {
            let (a, b) = (
                price(&base, algorithm, &machine),
                price(&more, algorithm, &machine),
            );
            let (a, b) = (a.unwrap().ms, b.unwrap().ms);
            assert!(b >= a, "{what}, {algorithm}: {a} to {b}");
        }
    }
    // Beyond contention, more groups cost the tables more.
    for algorithm in [Global, Hgb, SgbDeTr, PgbTr, PgbUr] {
        let ms = |log2: i32| {
            price(&maxima(2f64.powi(log2)), algorithm, &machine)
                .unwrap()
                .ms
        };
        // More groups of a partition have larger blocks, whose threads hide more of each other's waits.
        let larger_blocks = matches!(algorithm, PgbTr | PgbUr);
        assert!(
            ms(26) >= ms(22) && (ms(22) >= ms(18) || larger_blocks),
            "{algorithm}: {} {} {}",
            ms(18),
            ms(22),
            ms(26)
        );
    }
    for algorithm in GroupAlgorithm::ALL {
        let Some(price) = price(&maxima(1e6), algorithm, &machine) else {
            continue;
        };
        let sum: f64 = price.parts.iter().map(|(_, ms)| ms).sum();
        assert!(
            (sum - price.ms).abs() < 1e-9 && price.ms.is_finite(),
            "{price}"
        );
    }
}

#[test]
fn the_tree_is_figure_21() {
    let leaf = |w: &GroupWorkload| {
        let leaf = decision_tree(w, &a100());
        (leaf.algorithms, leaf.path.join(", "))
    };
    let expect = |w: GroupWorkload, algorithms: &[GroupAlgorithm], path: &str| {
        assert_eq!(leaf(&w), (algorithms.to_vec(), path.to_string()), "{w:?}");
    };
    let any = "more than a handful of groups, any order";
    expect(
        maxima(1000.0),
        &[Hgb],
        &format!("{any}, states fit shared memory"),
    );
    expect(
        GroupWorkload {
            dense_domain: Some(1000),
            ..maxima(1000.0)
        },
        &[Shared, Hgb],
        &format!("{any}, states fit shared memory"),
    );
    expect(
        GroupWorkload {
            dense_domain: Some(6),
            ..maxima(6.0)
        },
        &[Private],
        "a handful of groups",
    );
    let many = 2f64.powi(24);
    expect(
        maxima(many),
        &[PgbTr],
        &format!("{any}, states beyond shared memory, uniform"),
    );
    expect(
        GroupWorkload {
            skew: 1.5,
            ..maxima(many)
        },
        &[SgbTr],
        &format!("{any}, states beyond shared memory, skewed, keys sort as fast"),
    );
    expect(
        GroupWorkload {
            must_sort: true,
            ..maxima(100.0)
        },
        &[SgbDeTr],
        "more than a handful of groups, order by the keys, numbers sort faster",
    );
}

#[test]
fn few_groups_stay_fused_and_many_are_partitioned() {
    let machine = Machine::h200();
    let auto = |w: &GroupWorkload| choose_group(GroupSetting::Auto, w, &machine);
    let few = auto(&GroupWorkload {
        dense_domain: Some(4),
        ..maxima(4.0)
    });
    assert!(few.algorithm.is_fused(), "{}", few.reason);
    let many = auto(&maxima(2f64.powi(26)));
    assert_eq!(many.algorithm, PgbTr, "{}", many.reason);
    // Few sparse groups find a table in shared memory, …
    let hashed = auto(&maxima(256.0));
    assert_eq!(hashed.algorithm, Global, "{}", hashed.reason);
    // … and so do few dense groups of very many rows, which would queue at states in device memory.
    let ms = |hashed| {
        let w = GroupWorkload {
            dense_domain: Some(256),
            hashed,
            ..maxima(256.0)
        };
        price(&w, Global, &machine).unwrap().ms
    };
    assert!(ms(false) <= ms(true), "{} {}", ms(false), ms(true));
    assert!(
        hashed
            .reason
            .contains("tree: more than a handful of groups, any order, states fit shared memory")
    );
}

#[test]
fn skew_is_contention_where_states_are_few_and_hot() {
    let machine = Machine::h200();
    let ms = |algorithm, skew| {
        price(
            &GroupWorkload {
                skew,
                adds: 2,
                words: 2,
                tests: 0,
                ..maxima(65536.0)
            },
            algorithm,
            &machine,
        )
        .unwrap()
        .ms
    };
    assert!(ms(Global, 1.5) > 2.0 * ms(Global, 0.0));
    // In front of them, counts of 32 bits do not queue; words of 64 bits take turns in a warp.
    let in_front = |words| {
        let hot = GroupWorkload {
            skew: 1.5,
            hot: true,
            adds: 2,
            words,
            ..maxima(65536.0)
        };
        price(&hot, Global, &machine).unwrap().ms
    };
    assert!(in_front(0) < ms(Global, 0.0), "{}", in_front(0));
    assert!(in_front(2) > 2.0 * in_front(0), "{}", in_front(2));
    assert!(in_front(2) < 0.5 * ms(Global, 1.5), "{}", in_front(2));
    assert!(ms(PgbTr, 1.5) > 2.0 * ms(PgbTr, 0.0));
    // Warps add up the runs of sorted rows: nothing queues.
    assert!(ms(SgbTr, 1.5) <= ms(SgbTr, 0.0));
}

#[test]
fn forced_algorithms_are_taken_where_possible_and_explained_where_not() {
    let machine = Machine::h200();
    let w = GroupWorkload {
        dense_domain: Some(8),
        in_order: true,
        ..maxima(8.0)
    };
    for algorithm in GroupAlgorithm::ALL {
        let setting = named::<GroupSetting>("warpline.group_by", algorithm.name()).unwrap();
        assert_eq!(setting.to_string(), algorithm.name());
        let decision = choose_group(setting, &w, &machine);
        assert_eq!(decision.algorithm, algorithm);
        assert!(
            decision
                .reason
                .contains(&format!("warpline.group_by = {algorithm}"))
        );
    }
    let refused = |algorithm, w: GroupWorkload, why: &str| {
        assert!(price(&w, algorithm, &machine).is_none());
        let decision = choose_group(GroupSetting::Force(algorithm), &w, &machine);
        assert_ne!(decision.algorithm, algorithm);
        assert!(
            decision.reason.contains("is impossible") && decision.reason.contains(why),
            "{}",
            decision.reason
        );
    };
    refused(Runs, maxima(8.0), "in the order of a single key");
    refused(Private, maxima(4.0), "without a small known domain");
    refused(
        Private,
        GroupWorkload {
            dense_domain: Some(17),
            ..maxima(17.0)
        },
        "17 possible groups",
    );
    refused(
        Private,
        GroupWorkload {
            dense_domain: Some(16),
            state_bytes: 64,
            ..maxima(16.0)
        },
        "registers",
    );
    refused(
        Shared,
        GroupWorkload {
            dense_domain: Some(1 << 20),
            ..maxima(9.0)
        },
        "shared memory of a block",
    );
    refused(
        SgbTr,
        GroupWorkload {
            key_bytes: 32,
            ..maxima(9.0)
        },
        "keys of 32 bytes",
    );
    refused(
        PgbUr,
        GroupWorkload {
            rows: 5e9,
            ..maxima(9.0)
        },
        "32 bits",
    );
    assert!(
        named::<GroupSetting>("warpline.group_by", "fastest")
            .unwrap_err()
            .to_string()
            .contains("sgb_de_tr")
    );
}

#[test]
fn fuller_tables_of_buckets_leave_more_keys_without_a_slot() {
    assert!(super::model::overflowing(0.01) < 1e-4);
    let half = super::model::overflowing(0.5);
    assert!((0.03..0.05).contains(&half), "{half}");
    // Poisson with mean 4: E[max(0, X - 4)] / 4.
    let full = super::model::overflowing(1.0);
    assert!((0.19..0.2).contains(&full), "{full}");
}
