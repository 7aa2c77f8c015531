//! What runs answer, first and again, with enough room and without.

use std::sync::Arc;

use arrow::array::{ArrayRef, StringArray, StringViewArray, UInt32Array};
use arrow::datatypes::{DataType, Field, Schema};

use super::programs::{build, copy, count, filter, groups, matches, pairs, row_numbers, sort};
use super::{Case, numbers, spec, u32_layout, values};
use crate::codegen::{
    AccumulatorPlan, CONTROL_WORDS, ColumnLayout, GroupsLayout, IndexLayout, Meaning, Program,
    RangeEntries, ResultLayout, StepProgram,
};
use crate::column::{StringPolicy, encode};
use crate::error::{ArithmeticFault, GpuError};
use crate::exec::frame::execute::execute;
use crate::exec::frame::results::Frame;
use crate::exec::output::host::Host;
use crate::exec::prepare::prepared::Prepared;
use crate::graph::{Graph, IndexKind, ResultKind};
use crate::pipeline::GroupPlacement;
use crate::tables::LoadedTable;

pub(super) const BUDGET: usize = 64 << 20;

fn rows_layout() -> ResultLayout {
    ResultLayout::Rows(vec![u32_layout()])
}

fn index(kind: IndexKind, unique: bool) -> ResultLayout {
    ResultLayout::Index(IndexLayout {
        join_keys: None,
        kind,
        domain: 100,
        ranked: false,
        key_words: 1,
        keys: vec![],
        order: None,
        null_equal: false,
        unique,
        existence: false,
        mark_sets: 0,
        columns: vec![u32_layout()],
        entries: RangeEntries::Listed,
        borrowed: None,
    })
}

#[test]
fn rows_pass_a_filter() {
    let case = Case::new(
        BUDGET,
        &[numbers(70_000)],
        vec![spec("kept", 10, ResultKind::Rows)],
        vec![rows_layout()],
        vec![StepProgram::Pipeline(Box::new(filter(0, 0, 1000, 1)))],
        0,
    );
    let expected: Vec<u32> = (0..70).map(|i| i * 1000).collect();
    case.check_twice(&expected);
    let finished = case.run().unwrap();
    assert_eq!(finished.kernels, 1);
    assert_eq!(finished.steps.len(), 1);
    assert_eq!(finished.steps[0].rows, Some(70));
    assert_eq!(case.prepared.bytes, 70_001 * 4);
    let hints = case.prepared.hints.lock().clone().unwrap();
    assert_eq!(hints[0].rows, 70);
}

#[test]
fn no_rows_and_empty_tables() {
    let case = Case::new(
        BUDGET,
        &[Arc::new(UInt32Array::from(Vec::<u32>::new()))],
        vec![
            spec("first", 10, ResultKind::Rows),
            spec("second", 10, ResultKind::Rows),
        ],
        vec![rows_layout(), rows_layout()],
        vec![
            StepProgram::Pipeline(Box::new(filter(0, 0, 1000, 1))),
            StepProgram::Pipeline(Box::new(copy(0, 1, 1))),
        ],
        1,
    );
    case.check_twice(&[]);
}

/// More rows come out than went in, so that no first attempt has room.
#[test]
fn rows_beyond_the_first_attempt_get_exact_room() {
    let case = Case::new(
        BUDGET,
        &[numbers(70_000)],
        vec![
            spec("many", 10, ResultKind::Rows),
            spec("copied", 10, ResultKind::Rows),
        ],
        vec![rows_layout(), rows_layout()],
        vec![
            StepProgram::Pipeline(Box::new(filter(0, 0, 1, 5))),
            StepProgram::Pipeline(Box::new(copy(0, 1, 5))),
        ],
        1,
    );
    let expected: Vec<u32> = (0..70_000).flat_map(|i| [i + 5; 5]).collect();
    assert_eq!(values(&case.run().unwrap().output), expected);
    let again = case.run().unwrap();
    assert!(!again.reads_sizes);
    assert_eq!(again.kernels, 2);
    assert_eq!(values(&again.output), expected);
}

/// Three pipelines append to one result; the second and third have too little room.
#[test]
fn appended_rows_survive_the_growth_of_their_result() {
    let case = Case::new(
        BUDGET,
        &[numbers(3000), numbers(5000)],
        vec![spec("union", 10, ResultKind::Rows)],
        vec![rows_layout()],
        vec![
            StepProgram::Pipeline(Box::new(filter(0, 0, 1, 1))),
            StepProgram::Pipeline(Box::new(filter(1, 0, 5, 40))),
            StepProgram::Pipeline(Box::new(filter(0, 0, 2, 30))),
        ],
        0,
    );
    let mut expected: Vec<u32> = (0..3000).collect();
    expected.extend((0..5000).step_by(5).flat_map(|i| [i; 40]));
    expected.extend((0..3000).step_by(2).flat_map(|i| [i; 30]));
    expected.sort_unstable();
    case.check_twice(&expected);
}

#[test]
fn hints_that_no_longer_hold_are_dropped() {
    let case = Case::new(
        BUDGET,
        &[numbers(70_000)],
        vec![
            spec("first", 10, ResultKind::Rows),
            spec("second", 10, ResultKind::Rows),
        ],
        vec![rows_layout(), rows_layout()],
        vec![
            StepProgram::Pipeline(Box::new(filter(0, 0, 7, 1))),
            StepProgram::Pipeline(Box::new(copy(0, 1, 0))),
        ],
        1,
    );
    let expected: Vec<u32> = (0..70_000).step_by(7).collect();
    case.check_twice(&expected);
    for result in [0, 1] {
        let mut hints = case.prepared.hints.lock();
        let mut wrong = hints.as_deref().unwrap().clone();
        wrong[result].rows /= 3;
        *hints = Some(Arc::new(wrong));
        drop(hints);
        let finished = case.run().unwrap();
        assert!(finished.reads_sizes);
        assert_eq!(values(&finished.output), expected);
        case.check_fast(&expected);
    }
}

impl Case {
    /// The next run reads no sizes.
    fn check_fast(&self, expected: &[u32]) {
        let finished = self.run().unwrap();
        assert!(!finished.reads_sizes);
        assert_eq!(values(&finished.output), expected);
    }
}

fn group_case(slots: u64, modulus: u32) -> Case {
    let layout = ResultLayout::Groups(GroupsLayout {
        keys: vec![],
        key_words: 1,
        aggregates: AccumulatorPlan::default(),
        placement: GroupPlacement::GlobalHash { capacity: slots },
        slots,
        stride: 8,
        key_bytes: 0,
        key_offset: 0,
        regrouped: None,
        collected: None,
        front: 0,
        distinct_words: vec![],
    });
    Case::new(
        BUDGET,
        &[numbers(20_000)],
        vec![
            spec("groups", 10, ResultKind::Groups),
            spec("counts", 10, ResultKind::Rows),
        ],
        vec![layout, rows_layout()],
        vec![
            StepProgram::Pipeline(Box::new(count(0, 0, modulus))),
            StepProgram::Pipeline(Box::new(groups(0, 1))),
        ],
        1,
    )
}

#[test]
fn a_group_table_grows_until_all_groups_fit() {
    let case = group_case(16, 500);
    let mut expected = vec![40; 500];
    // The value that keeps the column wide.
    expected[(u32::MAX % 500) as usize] += 1;
    expected.sort_unstable();
    case.check_twice(&expected);
    let hints = case.prepared.hints.lock().clone().unwrap();
    assert!(hints[0].slots >= 512, "{hints:?}");
}

pub(super) fn join_case(kind: IndexKind, unique: bool, modulus: u32) -> Case {
    Case::new(
        BUDGET,
        &[numbers(1000), numbers(200)],
        vec![
            spec("build side", 10, ResultKind::Index),
            spec("matches", 10, ResultKind::Matches),
            spec("pairs", 10, ResultKind::Rows),
        ],
        vec![
            index(kind, unique),
            ResultLayout::Matches {
                columns: vec![u32_layout()],
                joined: None,
                borrowed: None,
                key_aliases: vec![],
                index: 0,
            },
            rows_layout(),
        ],
        vec![
            StepProgram::Pipeline(Box::new(build(0, 0, modulus))),
            StepProgram::Pipeline(Box::new(matches(1, 1, 0, 100, kind == IndexKind::Hash))),
            StepProgram::Pipeline(Box::new(pairs(1, 0, 2))),
        ],
        2,
    )
}

/// Ten entries a key, probed with all hundred keys: more pairs than probing rows.
#[test]
fn pairs_of_both_kinds_of_index() {
    let expected: Vec<u32> = (0..1000).collect();
    for kind in [IndexKind::Perfect, IndexKind::Hash] {
        join_case(kind, false, 100).check_twice(&expected);
    }
}

#[test]
fn one_key_with_all_entries() {
    let expected: Vec<u32> = (0..1000).collect();
    for kind in [IndexKind::Perfect, IndexKind::Hash] {
        join_case(kind, false, 1).check_twice(&expected);
    }
}

#[test]
fn duplicates_in_a_unique_index_are_reported() {
    let case = Case::new(
        BUDGET,
        &[numbers(1000)],
        vec![
            spec("build side", 10, ResultKind::Index),
            spec("rows", 10, ResultKind::Rows),
        ],
        vec![index(IndexKind::Hash, true), rows_layout()],
        vec![
            StepProgram::Pipeline(Box::new(build(0, 0, 999))),
            StepProgram::Pipeline(Box::new(filter(0, 1, 1, 1))),
        ],
        1,
    );
    match case.run() {
        Err(GpuError::DuplicateKeys(name)) => assert_eq!(name, "build side"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn faults_are_errors() {
    let mut step = filter(0, 0, 1, 1);
    // The fault word follows the words of the one result.
    let marked = format!(
        "  if (first == 0) atomicMax(args.control + {CONTROL_WORDS}, (u64)2);\n  for (u64 i = first"
    );
    step.source = step.source.replacen("  for (u64 i = first", &marked, 1);
    let case = Case::new(
        BUDGET,
        &[numbers(10)],
        vec![spec("rows", 10, ResultKind::Rows)],
        vec![rows_layout()],
        vec![StepProgram::Pipeline(Box::new(step))],
        0,
    );
    for _ in 0..2 {
        let error = case.run().unwrap_err();
        assert!(matches!(
            error,
            GpuError::Arithmetic(ArithmeticFault::Overflow)
        ));
    }
}

/// Results that are dead make room for later ones.
#[test]
fn a_chain_of_results_needs_the_room_of_few() {
    let (specs, layouts): (Vec<_>, Vec<_>) = (0..6)
        .map(|_| (spec("link", 100_000, ResultKind::Rows), rows_layout()))
        .unzip();
    let mut steps = vec![StepProgram::Pipeline(Box::new(filter(0, 0, 1, 1)))];
    steps.extend((1..6).map(|r| StepProgram::Pipeline(Box::new(copy(r - 1, r, 1)))));
    let case = Case::new(BUDGET, &[numbers(100_000)], specs, layouts, steps, 5);
    let expected: Vec<u32> = (5..100_005).collect();
    case.check_twice(&expected);
    let peak = case.runtime.pool().statistics().peak;
    // The column, and three results of 100,000 to 112,500 rows.
    assert!(peak < 4 * 450_000 + (1 << 19), "{peak}");
}

#[test]
fn other_columns_are_noticed() {
    let case = Case::new(
        BUDGET,
        &[numbers(10)],
        vec![spec("rows", 10, ResultKind::Rows)],
        vec![rows_layout()],
        vec![StepProgram::Pipeline(Box::new(filter(0, 0, 1, 1)))],
        0,
    );
    assert!(case.prepared.fits(&case.tables));
    let column: ArrayRef = Arc::new(UInt32Array::from_iter_values((0..10).chain([u32::MAX])));
    let other = super::table(&case.runtime, &[column]);
    assert!(!case.prepared.fits(&[other]));
    // The prepared fragment does not hold the column.
    assert_eq!(Arc::strong_count(&case.tables[0].columns[0]), 1);
}

#[test]
fn sorts_skip_and_fetch() {
    // The last has few rows, which take the way of small sorts.
    for (rows, skip, fetch) in [
        (5000, 0, None),
        (5000, 100, Some(1000)),
        (5000, 4990, Some(1000)),
        (5000, 6000, None),
        (300, 7, Some(11)),
    ] {
        let case = Case::new(
            BUDGET,
            &[numbers(rows)],
            vec![
                spec("rows", 10, ResultKind::Rows),
                spec("sorted", 10, ResultKind::Sorted),
                spec("again", 10, ResultKind::Rows),
            ],
            vec![
                rows_layout(),
                ResultLayout::Sorted(vec![u32_layout()]),
                rows_layout(),
            ],
            vec![
                StepProgram::Pipeline(Box::new(filter(0, 0, 1, 1))),
                StepProgram::Sort(Box::new(sort(0, 1, skip, fetch))),
                StepProgram::Pipeline(Box::new(copy(1, 2, 0))),
            ],
            1,
        );
        let expected: Vec<u32> = (0..rows)
            .rev()
            .skip(skip as usize)
            .take(fetch.unwrap_or(u64::MAX) as usize)
            .collect();
        for reads_sizes in [true, false] {
            let finished = case.run().unwrap();
            assert_eq!(finished.reads_sizes, reads_sizes);
            let column = finished.output.column(0);
            let column = column.as_any().downcast_ref::<UInt32Array>().unwrap();
            assert_eq!(column.values(), &expected[..], "{rows} {skip} {fetch:?}");
        }
        let hints = case.prepared.hints.lock().clone().unwrap();
        assert_eq!(hints[2].rows, expected.len() as u64);
    }
}

#[test]
fn strings_by_row_are_fetched() {
    let strings: Vec<String> = (0..1000).map(|i| format!("Zeile {i}, ärgerlich")).collect();
    let column: ArrayRef = Arc::new(StringArray::from(strings.clone()));
    let (runtime, _) = super::runtime(BUDGET);
    let stream = runtime.lease_stream().unwrap();
    let policy = StringPolicy::AlwaysBytes;
    let column = Arc::new(encode(&column, policy, runtime.pool(), &stream).unwrap());
    let tables = vec![Arc::new(LoadedTable {
        rows: 1000,
        columns: vec![Arc::clone(&column)],
        load_ms: 0.0,
        bytes_uploaded: 0,
        columns_loaded: 1,
        ..LoadedTable::default()
    })];
    let layout = ColumnLayout {
        data_type: DataType::Utf8,
        nullable: true,
        meaning: Meaning::Row(Arc::clone(&column)),
        ..u32_layout()
    };
    let field = Field::new("x", DataType::Utf8View, true);
    let schema = Arc::new(Schema::new(vec![field]));
    let graph = Graph {
        scans: vec![super::no_scan()],
        results: vec![spec("strings", 10, ResultKind::Rows)],
        steps: vec![],
        output: 0,
        schema: Arc::clone(&schema),
        tree: crate::graph::TreeOptions::default(),
        keep_indexes: false,
        parts: crate::graph::Parts::Never,
        group_room: None,
        lists: vec![],
    };
    let program = Program {
        hidden: vec![],
        results: vec![ResultLayout::Rows(vec![layout])],
        steps: vec![StepProgram::Pipeline(Box::new(row_numbers(0, 0)))],
        bases: vec![column],
        choices: vec![],
    };
    let known = Default::default();
    let prepared = Prepared::new(graph, known, program, &tables, None, &runtime, &stream).unwrap();
    // Only the table holds the column now: it can be evicted between runs.
    assert_eq!(Arc::strong_count(&tables[0].columns[0]), 1);
    let expected: Vec<Option<&str>> = strings
        .iter()
        .enumerate()
        .map(|(i, s)| (i % 3 == 0).then_some(s.as_str()))
        .collect();
    let expected = StringViewArray::from(expected);
    for _ in 0..2 {
        let to_host = |frame: &Frame<'_>, host: &Host| host.batch(frame, &schema);
        let finished = execute(&runtime, &stream, &prepared, &to_host, false).unwrap();
        assert_eq!(finished.output.column(0).as_ref(), &expected);
        assert!(finished.steps.is_empty());
    }
}
