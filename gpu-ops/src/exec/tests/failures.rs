//! Whatever fails, the run ends in an error or in the right answer, and the next one is right.

use std::cell::Cell;

use super::runs::join_case;
use super::{Case, values};
use crate::device::faulty::Operation;
use crate::error::GpuError;
use crate::graph::IndexKind;

/// Let the first, second, … call of something fail until a run has fewer calls than that. `calm` takes a failure
/// back and tells whether it was still to come.
fn each_failure(
    case: &Case,
    expected: &[u32],
    reads_sizes: bool,
    fail: impl Fn(u64),
    calm: impl Fn() -> bool,
) {
    for nth in 1..200 {
        if reads_sizes {
            *case.prepared.hints.lock() = None;
        } else {
            assert_eq!(values(&case.run().unwrap().output), expected);
        }
        fail(nth);
        let outcome = case.run();
        let pending = calm();
        match outcome {
            // Where memory could be found in another way, a refusal is no failure.
            Ok(finished) => assert_eq!(values(&finished.output), expected),
            Err(GpuError::OutOfDeviceMemory { .. } | GpuError::Device { .. }) => assert!(!pending),
            Err(other) => panic!("{other}"),
        }
        if pending {
            assert!(nth > 2, "nothing failed");
            return;
        }
        assert_eq!(values(&case.run().unwrap().output), expected);
    }
    panic!("every run failed");
}

#[test]
fn a_failed_call_leaves_the_next_run_right() {
    let expected: Vec<u32> = (0..1000).collect();
    let case = join_case(IndexKind::Hash, false, 100);
    for operation in [Operation::Launch, Operation::Fill] {
        for reads_sizes in [true, false] {
            let fail = |nth| case.device.fail(operation, nth);
            each_failure(&case, &expected, reads_sizes, fail, || {
                case.device.clear(operation)
            });
        }
    }
    // A run that knows its sizes reads once.
    let fail = |nth| case.device.fail(Operation::CopyToHost, nth);
    each_failure(&case, &expected, true, fail, || {
        case.device.clear(Operation::CopyToHost)
    });
    fail(1);
    assert!(case.run().is_err());
    assert_eq!(values(&case.run().unwrap().output), expected);
}

#[test]
fn a_refused_allocation_leaves_the_next_run_right() {
    let expected: Vec<u32> = (0..1000).collect();
    let case = join_case(IndexKind::Hash, false, 100);
    let pool = case.runtime.pool();
    for reads_sizes in [true, false] {
        let refusals = Cell::new(0);
        let fail = |nth| {
            refusals.set(pool.statistics().refusals);
            pool.fail_allocation(nth);
        };
        let calm = || {
            let pending = pool.statistics().refusals == refusals.get();
            pool.fail_allocation(u64::MAX / 2);
            pending
        };
        each_failure(&case, &expected, reads_sizes, fail, calm);
    }
}
