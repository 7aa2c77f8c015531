//! Several queries on one pool: who waits for whom, who is refused, who runs alone; and a budget that changes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::MemoryPool;
use super::tests::{FakeDevice, MIB, hoard_of, pool_of};
use crate::error::GpuError;
use crate::query::Query;

const LONG: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_millis(20);

fn pool_with(budget: usize, patience: Duration) -> Arc<MemoryPool> {
    let pool = pool_of(&FakeDevice::new(64 * MIB), budget);
    pool.set_patience(patience);
    pool
}

fn refused<T>(outcome: crate::Result<T>) -> bool {
    matches!(outcome, Err(GpuError::OutOfDeviceMemory { .. }))
}

#[test]
fn a_query_waits_for_memory_that_another_returns() {
    let pool = pool_with(8 * MIB, LONG);
    let (first, second) = (Query::begin(), Query::begin());
    let _turns = (pool.begin(&first).unwrap(), pool.begin(&second).unwrap());
    let held = pool.allocate(6 * MIB, "held").unwrap();
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| {
            let _entered = second.enter();
            pool.allocate(4 * MIB, "wanted").map(drop)
        });
        while second.waits() == 0 {
            std::thread::yield_now();
        }
        drop(held);
        waits.join().unwrap().unwrap();
    });
    assert_eq!((first.waits(), second.waits()), (0, 1));
    assert_eq!((second.peak(), pool.statistics().in_use), (4 * MIB, 0));
}

#[test]
fn nobody_waits_in_vain() {
    let pool = pool_with(4 * MIB, LONG);
    let (alone, other) = (Query::begin(), Query::begin());
    let _held = pool.allocate(4 * MIB, "held").unwrap();
    let begin = Instant::now();
    // Without a query, without a turn, without another query: nothing would come of waiting.
    assert!(refused(pool.allocate(MIB, "no query")));
    let _entered = alone.enter();
    assert!(refused(pool.allocate(MIB, "no turn")));
    let _turn = pool.begin(&alone).unwrap();
    assert!(refused(pool.allocate(MIB, "nobody else")));
    let _other = pool.begin(&other).unwrap();
    assert!(refused(pool.allocate(5 * MIB, "more than the budget")));
    assert!(begin.elapsed() < LONG / 2);
    assert_eq!(alone.waits(), 0);
}

#[test]
fn patience_ends() {
    let pool = pool_with(4 * MIB, SHORT);
    let (first, second) = (Query::begin(), Query::begin());
    let _turns = (pool.begin(&first).unwrap(), pool.begin(&second).unwrap());
    let _held = pool.allocate(4 * MIB, "held").unwrap();
    let _entered = second.enter();
    let begin = Instant::now();
    assert!(refused(pool.allocate(MIB, "wanted")));
    assert!(begin.elapsed() >= SHORT);
    second.stop();
    let outcome = pool.allocate(MIB, "wanted");
    assert!(matches!(outcome, Err(GpuError::Stopped)));
}

#[test]
fn when_all_wait_the_youngest_gives_way() {
    let pool = pool_with(8 * MIB, LONG);
    let queries = [Query::begin(), Query::begin(), Query::begin()];
    let begin = Instant::now();
    let barrier = std::sync::Barrier::new(queries.len());
    let outcomes = std::thread::scope(|scope| {
        let (pool, barrier) = (&pool, &barrier);
        let threads: Vec<_> = queries
            .iter()
            .map(|query| {
                scope.spawn(move || {
                    let turn = pool.begin(query).unwrap();
                    let _entered = query.enter();
                    let first = pool.allocate(2 * MIB, "first").unwrap();
                    barrier.wait();
                    // None has room for this beside what the others hold.
                    let second = pool.allocate(6 * MIB, "second");
                    let outcome = !refused(second);
                    drop((first, turn));
                    outcome
                })
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect::<Vec<bool>>()
    });
    // The two youngest give way one after the other; the oldest gets what it wants.
    assert_eq!(outcomes, [true, false, false]);
    assert!(begin.elapsed() < LONG / 2);
    assert_eq!(pool.statistics().in_use, 0);
    assert_eq!(pool.queries(), 0);
}

#[test]
fn a_query_runs_alone_and_others_come_after_it() {
    let pool = pool_with(8 * MIB, LONG);
    let queries = [Query::begin(), Query::begin(), Query::begin()];
    let first = pool.begin(&queries[0]).unwrap();
    std::thread::scope(|scope| {
        let alone = scope.spawn(|| pool.begin_alone(&queries[1]).unwrap().unwrap());
        // As soon as it waits, nobody else begins.
        while pool.try_begin(&queries[2]).is_some() {
            std::thread::yield_now();
        }
        assert!(!alone.is_finished());
        drop(first);
        let alone = alone.join().unwrap();
        assert_eq!(pool.queries(), 1);
        let later = scope.spawn(|| drop(pool.begin(&queries[2]).unwrap()));
        std::thread::sleep(SHORT);
        assert!(!later.is_finished());
        drop(alone);
        later.join().unwrap();
    });
    assert!(pool.try_begin(&queries[2]).is_some());
}

#[test]
fn who_wants_to_run_alone_gives_up() {
    let pool = pool_with(8 * MIB, SHORT);
    let queries = [Query::begin(), Query::begin(), Query::begin()];
    let _first = pool.begin(&queries[0]).unwrap();
    assert!(pool.begin_alone(&queries[1]).unwrap().is_none());
    // It holds nobody up any more.
    assert!(pool.try_begin(&queries[2]).is_some());
    queries[1].stop();
    let outcome = pool.begin_alone(&queries[1]);
    assert!(matches!(outcome, Err(GpuError::Stopped)));
    assert!(pool.try_begin(&queries[2]).is_some());
}

#[test]
fn a_smaller_budget_evicts_down_to_it() {
    let device = FakeDevice::new(64 * MIB);
    let pool = pool_of(&device, 16 * MIB);
    let hoard = hoard_of(&pool, 4);
    let held = pool.allocate(4 * MIB, "held").unwrap();
    pool.set_budget(8 * MIB).unwrap();
    assert_eq!(hoard.held(), 2);
    assert_eq!(
        (pool.statistics().in_use, device.live_bytes()),
        (8 * MIB, 8 * MIB)
    );
    // What a query holds stays; nothing is handed out before it is below.
    pool.set_budget(2 * MIB).unwrap();
    assert_eq!((hoard.held(), pool.statistics().in_use), (0, 4 * MIB));
    assert!(refused(pool.allocate(MIB, "over")));
    drop(held);
    drop(pool.allocate(2 * MIB, "fits").unwrap());
    assert!(device.live_bytes() <= 4 * MIB);
    pool.set_budget(32 * MIB).unwrap();
    drop(pool.allocate(30 * MIB, "large").unwrap());
}
