//! The placement of group states at and around every limit.

use super::*;

fn h200() -> DeviceInfo {
    DeviceInfo {
        name: "test".into(),
        id: "cuda:0".into(),
        memory: 139 << 30,
        compute_capability: (9, 0),
        multiprocessors: 132,
        memory_bandwidth: 4.917e12,
        shared_memory_per_block: 227 << 10,
        shared_memory_per_multiprocessor: 228 << 10,
        l2_cache: 50 << 20,
        driver: String::new(),
        compiler: String::new(),
        emulated: false,
    }
}

fn profile(domain: Option<u64>) -> GroupProfile {
    GroupProfile {
        rows: 6_000_000,
        arriving: 6_000_000,
        dense_domain: domain,
        max_groups: domain.unwrap_or(6_000_000),
        estimate: domain.unwrap_or(6_000_000),
        state_bytes: 64,
        state_registers: 12,
        key_bytes: 4,
        key_words: 1,
        payload: vec![4, 8],
        adds: 2,
        words: 2,
        tests: 1,
        telling: 0,
        text_bytes: 0,
        in_place: false,
        distinct: false,
        clustered: false,
        in_order: false,
        collisions: None,
        hot: false,
        room: None,
        registers_possible: true,
        shared_possible: true,
    }
}

fn place(profile: &GroupProfile) -> GroupPlacement {
    let on = On {
        device: &h200(),
        machine: &Machine::h200(),
    };
    automatic(profile, on).placement
}

#[test]
fn few_groups_live_in_registers_until_their_states_do_not_fit() {
    assert_eq!(place(&profile(Some(8))), GroupPlacement::Registers);
    assert_eq!(place(&profile(Some(9))), GroupPlacement::Shared);
    let heavy = GroupProfile {
        state_registers: 13,
        ..profile(Some(8))
    };
    assert_eq!(place(&heavy), GroupPlacement::Shared);
    let impossible = GroupProfile {
        registers_possible: false,
        ..profile(Some(2))
    };
    assert_eq!(place(&impossible), GroupPlacement::Shared);
}

#[test]
fn few_rows_of_a_large_table_are_added_up_in_shared_memory() {
    let on = On {
        device: &h200(),
        machine: &Machine::h200(),
    };
    let of = |rows, arriving, state_registers| GroupProfile {
        rows,
        arriving,
        state_registers,
        state_bytes: 16,
        ..profile(Some(4))
    };
    let place = |profile: &GroupProfile| priced(profile, on).placement;
    let (rows, few) = (640_000_000, 40_000_000);
    assert_eq!(place(&of(rows, rows, 3)), GroupPlacement::Registers);
    assert_eq!(place(&of(rows, few + 1, 3)), GroupPlacement::Registers);
    assert_eq!(place(&of(rows, few, 3)), GroupPlacement::Shared);
    // Few registers are in nobody's way.
    assert_eq!(place(&of(rows, few, 1)), GroupPlacement::Registers);
    let impossible = GroupProfile {
        shared_possible: false,
        ..of(rows, few, 3)
    };
    assert_eq!(place(&impossible), GroupPlacement::Registers);
}

#[test]
fn shared_memory_must_hold_two_blocks() {
    // 114 KiB a block of 64-byte states.
    let few_rows = |domain| GroupProfile {
        rows: 100_000,
        ..profile(Some(domain))
    };
    assert_eq!(place(&few_rows(114 * 16)), GroupPlacement::Shared);
    assert_eq!(place(&few_rows(114 * 16 + 1)), GroupPlacement::GlobalDense);
    // One block may have it all where each group has many rows.
    assert_eq!(place(&profile(Some(227 * 16))), GroupPlacement::Shared);
    assert_eq!(
        place(&profile(Some(227 * 16 + 1))),
        GroupPlacement::GlobalDense
    );
    let impossible = GroupProfile {
        shared_possible: false,
        ..profile(Some(100))
    };
    assert_eq!(place(&impossible), GroupPlacement::GlobalDense);
}

#[test]
fn dense_arrays_end_at_their_byte_and_row_limits() {
    // 64 MiB always; beyond, as long as a hash table for the expected groups would not be far smaller.
    let few = |domain: u64, estimate: u64| GroupProfile {
        estimate,
        ..profile(Some(domain))
    };
    assert_eq!(place(&few(1 << 20, 1)), GroupPlacement::GlobalDense);
    assert!(matches!(
        place(&few((1 << 20) + 1, 1)),
        GroupPlacement::GlobalHash { .. }
    ));
    assert_eq!(place(&few(1 << 22, 1 << 20)), GroupPlacement::GlobalDense);
    assert!(matches!(
        place(&few(1 << 22, 1 << 17)),
        GroupPlacement::GlobalHash { .. }
    ));
    let few_rows = GroupProfile {
        rows: 100,
        ..profile(Some(1 << 16))
    };
    assert_eq!(place(&few_rows), GroupPlacement::GlobalDense);
    let sparse = GroupProfile {
        rows: 100,
        ..profile(Some((1 << 16) + 1))
    };
    assert_eq!(
        place(&sparse),
        GroupPlacement::GlobalHash { capacity: 1024 }
    );
}

#[test]
fn hash_tables_begin_less_than_half_full() {
    for groups in [1, 511, 512, 513, 1_000_000] {
        let p = GroupProfile {
            max_groups: groups,
            ..profile(None)
        };
        let GroupPlacement::GlobalHash { capacity } = place(&p) else {
            panic!("not a hash table")
        };
        assert!(capacity.is_power_of_two());
        assert!(
            groups * 2 <= capacity,
            "{groups} groups in {capacity} slots"
        );
    }
    // A loose bound does not count: room for a quarter more than the estimate.
    let loose = GroupProfile {
        max_groups: u64::MAX,
        rows: u64::MAX,
        estimate: 1_000_000,
        ..profile(None)
    };
    assert_eq!(
        place(&loose),
        GroupPlacement::GlobalHash { capacity: 1 << 22 }
    );
    // Nor does an estimate beyond what memory holds.
    let huge = GroupProfile {
        estimate: u64::MAX,
        ..loose
    };
    let GroupPlacement::GlobalHash { capacity } = place(&huge) else {
        panic!("not a hash table")
    };
    assert!(capacity * 80 <= h200().memory as u64 / 2, "{capacity}");
}

#[test]
fn a_forced_placement_is_taken_where_it_is_possible_and_explained_where_not() {
    let force = |group_by, p: &GroupProfile| {
        CostedPolicy {
            group_by: GroupSetting::Force(group_by),
            ..CostedPolicy::default()
        }
        .place_groups(p, &h200())
    };
    assert_eq!(
        force(GroupAlgorithm::Shared, &profile(Some(4))).placement,
        GroupPlacement::Shared
    );
    assert_eq!(
        force(GroupAlgorithm::Global, &profile(Some(4))).placement,
        GroupPlacement::GlobalDense
    );
    assert_eq!(
        force(GroupAlgorithm::Private, &profile(Some(13))).placement,
        GroupPlacement::Registers
    );
    let refused = force(GroupAlgorithm::Private, &profile(Some(1000)));
    assert_eq!(refused.placement, GroupPlacement::Shared);
    assert!(
        refused
            .reason
            .contains("private is impossible (1000 possible groups"),
        "{}",
        refused.reason
    );
    let few = GroupProfile {
        rows: 1000,
        max_groups: 1000,
        estimate: 1000,
        ..profile(None)
    };
    let unknown = force(GroupAlgorithm::Shared, &few);
    assert!(matches!(
        unknown.placement,
        GroupPlacement::GlobalHash { .. }
    ));
    assert!(
        unknown.reason.contains("without a small known domain"),
        "{}",
        unknown.reason
    );
}

#[test]
fn rows_are_written_down_and_regrouped_when_that_is_clearly_cheaper() {
    let choose = |p: &GroupProfile| CostedPolicy::default().place_groups(p, &h200());
    let rows = 1 << 28;
    let many = GroupProfile {
        rows,
        max_groups: rows,
        estimate: 1 << 26,
        state_bytes: 8,
        payload: vec![4, 4],
        ..profile(None)
    };
    let choice = choose(&many);
    let GroupPlacement::Regrouped { how, bits, groups } = choice.placement else {
        panic!("{}: {}", choice.placement, choice.reason)
    };
    assert_eq!((how, bits), (Regroup::PartitionRows, 16));
    assert!(groups >= 1 << 26);
    for part in [
        "transform",
        "global ",
        "sgb_de_tr ",
        "tree: more than",
        "default constants",
    ] {
        assert!(choice.reason.contains(part), "{part}: {}", choice.reason);
    }
    // Where it is not, the pipeline aggregates as it does without prices.
    for domain in [3, 8, 100, 1000, 10_000] {
        let few = GroupProfile {
            rows,
            arriving: rows,
            state_bytes: 8,
            state_registers: 2,
            payload: vec![4, 4],
            ..profile(Some(domain))
        };
        let choice = choose(&few);
        assert_eq!(choice.placement, place(&few), "{}", choice.reason);
    }
    // A key that cannot be written down stays where it is.
    let wide = GroupProfile {
        key_bytes: 24,
        ..many
    };
    let choice = choose(&wide);
    assert!(
        matches!(choice.placement, GroupPlacement::GlobalHash { .. }),
        "{}",
        choice.reason
    );
}

#[test]
fn the_limit_of_device_memory_counts_and_not_the_card() {
    let dense = |memory: f64| {
        let machine = Machine {
            memory,
            ..Machine::h200()
        };
        let on = On {
            device: &h200(),
            machine: &machine,
        };
        // A million groups of four million possible ones.
        let few = GroupProfile {
            estimate: 1_000_000,
            ..profile(Some(4_000_000))
        };
        automatic(&few, on).placement
    };
    // 256 MB of states, where a hash table begins with 200.
    assert_eq!(dense(16e9), GroupPlacement::GlobalDense);
    let GroupPlacement::GlobalHash { capacity } = dense(1e9) else {
        panic!("dense groups beyond a quarter of the limit");
    };
    assert!(capacity * 80 <= 1_000_000_000 / 2, "{capacity}");
}
