//! Queries by the hundred leave the device's memory as it was.

use super::{assert_right, left_in_use, memory, sql, tpch};

#[test]
fn five_hundred_queries_leave_memory_where_it_started() {
    let fixture = tpch(true, &[]);
    let queries: Vec<_> = (1..=22).map(|n| fixture.expect(&sql(n))).collect();
    let round = |check: bool| {
        for expected in &queries {
            let run = fixture.run(&expected.sql).expect("an answer");
            if check {
                assert_right(expected, &run, "in a round");
            }
        }
        memory(&fixture).in_use
    };
    // The first round loads columns and builds indexes, the second finds all there is to keep.
    round(true);
    let start = round(true);
    for number in 2..23 {
        let in_use = round(number == 22);
        assert_eq!(in_use, start, "after {} queries", (number + 1) * 22);
    }
    let cached = memory(&fixture).cached;
    // Without the cache of plans every query is planned, prepared and compiled anew.
    fixture.set("warpline.plan_cache", "false");
    let start = round(false);
    for _ in 0..2 {
        assert_eq!(round(false), start);
    }
    assert!(
        memory(&fixture).cached <= cached.max(1) * 2,
        "free blocks pile up"
    );
    assert!(memory(&fixture).queries == 0);
    assert_eq!(left_in_use(&fixture), 0);
}
