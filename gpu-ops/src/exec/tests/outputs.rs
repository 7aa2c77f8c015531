//! Outputs that leave in chunks: all rows in order, memory that returns, copies that fail, memory that others need.

use std::sync::Arc;

use arrow::array::{AsArray, RecordBatch};
use arrow::compute::concat_batches;
use arrow::datatypes::UInt32Type;

use super::programs::filter;
use super::runs::BUDGET;
use super::{Case, numbers, schema, spec, u32_layout, values};
use crate::codegen::{ResultLayout, StepProgram};
use crate::device::faulty::Operation;
use crate::error::GpuError;
use crate::exec::frame::execute::execute;
use crate::exec::frame::results::Frame;
use crate::exec::output::chunks::{OutputChunks, chunk_rows};
use crate::exec::output::host::{Delivered, Host};
use crate::graph::ResultKind;

/// Rows of several chunks.
const ROWS: u32 = 300_000;

fn case() -> Case {
    Case::new(
        BUDGET,
        &[numbers(ROWS)],
        vec![spec("kept", ROWS.into(), ResultKind::Rows)],
        vec![ResultLayout::Rows(vec![u32_layout()])],
        vec![StepProgram::Pipeline(Box::new(filter(0, 0, 1, 1)))],
        0,
    )
}

fn rows_of(batches: &[RecordBatch]) -> usize {
    batches.iter().map(RecordBatch::num_rows).sum()
}

impl Case {
    fn delivered(&self) -> Delivered {
        let stream = self.runtime.lease_stream().unwrap();
        let deliver =
            |frame: &Frame<'_>, host: &Host| host.delivered(frame, &schema(), &self.runtime);
        let finished = execute(&self.runtime, &stream, &self.prepared, &deliver, false);
        finished.unwrap().output
    }

    fn chunks(&self) -> (Vec<RecordBatch>, Arc<OutputChunks>) {
        match self.delivered() {
            Delivered::Chunks(first, rest) => (first, rest),
            other => panic!("{other:?}"),
        }
    }

    fn in_use(&self) -> usize {
        self.runtime.pool().statistics().in_use
    }

    /// The rest of an output behind `first`, compared with all rows.
    #[track_caller]
    fn check_rest(&self, first: Vec<RecordBatch>, rest: &Arc<OutputChunks>) {
        let (mut batches, mut chunks) = (first, 1);
        while let Some(chunk) = rest.next() {
            batches.extend(chunk.decode().unwrap());
            chunks += 1;
        }
        assert!(chunks > 3, "{chunks} chunks");
        let all = concat_batches(&schema(), &batches).unwrap();
        assert_eq!(values(&all), (0..ROWS).collect::<Vec<_>>());
    }
}

#[test]
fn chunks_are_all_rows_and_the_last_one_frees_their_memory() {
    let case = case();
    let before = case.in_use();
    // Reading sizes, and without.
    for _ in 0..2 {
        let (first, rest) = case.chunks();
        assert_eq!(rows_of(&first), chunk_rows(1));
        assert_eq!(rest.rows(), ROWS as usize);
        assert!(case.in_use() >= before + 4 * ROWS as usize);
        case.check_rest(first, &rest);
        // Although somebody still has it.
        assert_eq!(case.in_use(), before);
        assert!(rest.next().is_none());
    }
}

#[test]
fn small_outputs_come_at_once() {
    let few = |divisor| {
        let case = Case::new(
            BUDGET,
            &[numbers(ROWS)],
            vec![spec("kept", ROWS.into(), ResultKind::Rows)],
            vec![ResultLayout::Rows(vec![u32_layout()])],
            vec![StepProgram::Pipeline(Box::new(filter(0, 0, divisor, 1)))],
            0,
        );
        case.delivered()
    };
    let Delivered::Batches(batches) = few(5) else {
        panic!("chunks of {} rows", few(5).rows());
    };
    assert_eq!(rows_of(&batches), ROWS as usize / 5);
    assert!(rows_of(&batches) <= chunk_rows(1));
}

#[test]
fn an_output_that_nobody_reads_to_its_end_frees_its_memory() {
    let case = case();
    let before = case.in_use();
    let (first, rest) = case.chunks();
    let second = rest.next().unwrap();
    drop((first, rest));
    // A chunk that was begun keeps what it copies.
    assert!(case.in_use() > before);
    let second = second.decode().unwrap();
    assert_eq!(case.in_use(), before);
    assert_eq!(rows_of(&second), chunk_rows(1));
}

#[test]
fn a_copy_that_fails_ends_the_output_and_the_next_run_is_right() {
    let case = case();
    let before = case.in_use();
    for operation in [Operation::CopyOnDevice, Operation::Synchronize] {
        let (_, rest) = case.chunks();
        assert!(rest.next().unwrap().decode().is_ok());
        case.device.fail(operation, 1);
        let error = rest.next().unwrap().decode().unwrap_err();
        assert!(matches!(error, GpuError::Device { .. }), "{error}");
        assert!(rest.next().is_none());
        assert_eq!(case.in_use(), before);
        let (first, rest) = case.chunks();
        case.check_rest(first, &rest);
    }
}

#[test]
fn without_page_locked_memory_chunks_are_copied_to_other_memory() {
    let case = case();
    case.runtime.set_host_memory(Some(1), 1).unwrap();
    let before = case.in_use();
    let (first, rest) = case.chunks();
    assert_eq!(rows_of(&first), chunk_rows(1));
    // Nor do they move there for others.
    assert!(
        case.runtime
            .pool()
            .allocate(BUDGET - before, "others")
            .is_err()
    );
    case.check_rest(first, &rest);
    assert_eq!(case.in_use(), before);
}

#[test]
fn rows_that_are_left_move_to_the_host_for_those_who_are_short() {
    let case = case();
    // Nothing else is kept.
    let before = case.in_use();
    let (first, rest) = case.chunks();
    let second = rest.next().unwrap();
    let others = BUDGET - case.in_use() + 1;
    // The chunk that was begun still needs the device's copy.
    assert!(case.runtime.pool().allocate(others, "others").is_err());
    let held = case.in_use();
    let second = second.decode().unwrap();
    assert!(case.in_use() < held);
    let buffer = case.runtime.pool().allocate(others, "others").unwrap();
    assert_eq!(case.in_use(), before + buffer.capacity());
    let column = second[0].column(0).as_primitive::<UInt32Type>();
    assert_eq!(column.len(), chunk_rows(1));
    let two = [first, second].concat();
    case.check_rest(two, &rest);
}
