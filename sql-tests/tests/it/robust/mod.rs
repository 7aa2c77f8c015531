//! What goes wrong leaves nothing behind: the answer is right or the error clear, the next query is right, memory returns.

mod cancel;
mod chunks;
mod failures;
mod files;
mod held;
mod leaks;
mod lost;
mod memory;
mod overlap;
mod race;
mod row_groups;
mod sessions;

use warpline::{DeviceMemory, QueryRun};
use warpline_sql_tests::{Expected, Fixture, test_device};
use warpline_tpch::{Scale, queries};

use crate::relational::tpch::with_tables;

/// Rows enough for all queries but a few to have an answer, few enough for thousands of runs in the emulator.
const SCALE: f64 = 0.001;

/// Settings under which nothing but device memory holds columns and results: then want of it leads to the CPU.
const DEVICE_MEMORY_ALONE: &[(&str, &str)] = &[("warpline.host_memory", "1")];

/// A session over TPC-H's tables on the device under test.
fn tpch(require_gpu: bool, settings: &[(&str, &str)]) -> Fixture {
    let settings: Vec<_> = settings
        .iter()
        .copied()
        .chain([("warpline.min_rows", "0")])
        .collect();
    let fixture = Fixture::open(test_device(), require_gpu, &settings);
    with_tables(fixture, Scale::new(SCALE).expect("a scale"))
}

/// A query of TPC-H.
fn sql(number: u8) -> String {
    queries::query(number).expect("a query").sql.to_string()
}

fn memory(fixture: &Fixture) -> DeviceMemory {
    fixture.session().device().memory().expect("a device")
}

/// Let go of all that is kept; what is still in use then is in bytes.
fn left_in_use(fixture: &Fixture) -> usize {
    fixture.session().clear_plan_cache();
    fixture
        .session()
        .device()
        .evict()
        .expect("a working device");
    memory(fixture).in_use
}

#[track_caller]
fn assert_right(expected: &Expected, run: &QueryRun, when: &str) {
    if let Some(difference) = expected.difference(run) {
        panic!("{when}: {difference}\nquery: {}", expected.sql);
    }
}
