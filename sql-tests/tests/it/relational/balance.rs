//! How evenly lanes and warps work where a single row has nearly all matches.

use warpline_sql_tests::{Fixture, test_device};

/// Rows that one key has, of which a warp visits 32 at a time.
const HOT: usize = 1500;

/// Two tables of which six rows of the smaller meet all of the larger one's, two of them nearly all.
fn skewed() -> Fixture {
    let settings = [
        ("warpline.min_rows", "0"),
        ("warpline.join", "nphj"),
        ("warpline.index_joins", "on"),
        ("warpline.pipeline", "tree"),
        ("warpline.load_balance", "nifs_aws"),
        ("warpline.metrics", "true"),
    ];
    Fixture::open(test_device(), true, &settings)
        .table_from(
            "few",
            "SELECT value % 3 + 1 AS k, value AS v FROM generate_series(1, 6)",
        )
        .table_from(
            "many",
            &format!(
                "SELECT CASE WHEN value <= {HOT} THEN 2 ELSE value % 3 + 1 END AS k, value AS x \
                 FROM generate_series(1, {})",
                HOT + 60
            ),
        )
}

#[test]
fn the_matches_of_one_row_come_to_all_warps() {
    let sql = "SELECT f.v, count(*) AS n, sum(m.x + f.v) AS s FROM few f JOIN many m ON f.k = m.k GROUP BY f.v";
    let run = skewed().check(sql);
    let balance = run.metrics.balance.expect("a pipeline that counts");
    assert_eq!(balance.pipelines, 1);
    // Parts are whole visits: lanes idle where matches end, not for being shared.
    assert!(balance.iir < 0.03, "{balance:?}");
    // One warp that does everything alone is 32 times as busy as the mean in the emulator, and more on a GPU.
    assert!(balance.ilif >= 1.0 && balance.ilif < 8.0, "{balance:?}");
}
