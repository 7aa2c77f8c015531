//! Recursive queries: each step's joins and groups over tables are a fragment, which reads the rows of the step before.

use warpline_sql_tests::Fixture;

use super::fixture;

/// Steps that read tables.
const QUERIES: [&str; 11] = [
    // A tree, from its root down, and from a leaf up.
    "WITH RECURSIVE below(id, depth) AS (SELECT id, 0 FROM tree WHERE up IS NULL UNION ALL \
     SELECT t.id, b.depth + 1 FROM tree t JOIN below b ON t.up = b.id) \
     SELECT depth, count(*) AS n, min(id) AS lo, max(id) AS hi FROM below GROUP BY depth",
    "WITH RECURSIVE above(id, up) AS (SELECT id, up FROM tree WHERE id = 900 UNION ALL \
     SELECT t.id, t.up FROM above a JOIN tree t ON t.id = a.up) SELECT id FROM above",
    // What can be reached in a graph with circles.
    "WITH RECURSIVE seen(id) AS (SELECT 3 AS id UNION SELECT e.target FROM edges e JOIN seen s ON e.source = s.id) \
     SELECT count(*) AS n, sum(id) AS s FROM seen",
    "WITH RECURSIVE near(id, far) AS (SELECT 3 AS id, 0 AS far UNION SELECT e.target, n.far + 1 FROM near n \
     JOIN edges e ON e.source = n.id WHERE n.far < 3 AND e.weight < 60) SELECT id, min(far) AS far FROM near GROUP BY id",
    // Groups in a step, a filter by a subquery, a semi and an anti join.
    "WITH RECURSIVE sums(id, total) AS (SELECT id, CAST(value AS BIGINT) FROM tree WHERE id = 1 UNION ALL \
     SELECT t.id, max(s.total + t.value) FROM tree t JOIN sums s ON t.up = s.id GROUP BY t.id) \
     SELECT max(total) AS most, count(*) AS n FROM sums",
    "WITH RECURSIVE low(id) AS (SELECT id FROM tree WHERE id < 4 UNION ALL SELECT t.id FROM tree t JOIN low l ON t.up = l.id \
     WHERE t.value < (SELECT avg(value) FROM tree)) SELECT id FROM low",
    "WITH RECURSIVE got(id) AS (SELECT 1 AS id UNION ALL SELECT t.id FROM tree t \
     JOIN (SELECT DISTINCT id FROM got) AS g ON t.up = g.id WHERE t.id < 400) SELECT count(*) AS n FROM got",
    "WITH RECURSIVE got(id) AS (SELECT 1 AS id UNION ALL SELECT t.id FROM tree t JOIN got s ON t.up = s.id \
     WHERE NOT EXISTS (SELECT 1 FROM edges e WHERE e.source = t.id AND e.weight > 80)) SELECT id FROM got",
    // Strings, NULLs and an outer join on the way.
    "WITH RECURSIVE path(id, name) AS (SELECT id, name FROM tree WHERE up IS NULL UNION ALL \
     SELECT t.id, coalesce(t.name, p.name, 'none') FROM tree t JOIN path p ON t.up = p.id) \
     SELECT name, count(*) AS n FROM path GROUP BY name",
    "WITH RECURSIVE walk(id, step) AS (SELECT 5 AS id, 0 AS step UNION ALL SELECT e.target, w.step + 1 FROM walk w \
     LEFT JOIN edges e ON e.source = w.id AND e.weight > 50 WHERE w.step < 3) SELECT step, count(id) AS n, count(*) AS m \
     FROM walk GROUP BY step",
    // Nothing to begin with.
    "WITH RECURSIVE none(id) AS (SELECT id FROM tree WHERE id < 0 UNION ALL SELECT t.id FROM tree t JOIN none n ON t.up = n.id) \
     SELECT count(*) AS n FROM none",
];

fn with_trees() -> Fixture {
    fixture()
        .table_from(
            "tree",
            "SELECT value AS id, CASE WHEN value > 1 THEN value / 3 + 1 - CASE value WHEN 2 THEN 0 ELSE value % 2 END END AS up, \
             value * 7 % 101 AS value, CASE value % 5 WHEN 0 THEN NULL ELSE 'größe ' || (value % 3) END AS name \
             FROM generate_series(1, 1200) t(value) WHERE value <> 4",
        )
        .table_from(
            "edges",
            "SELECT value % 300 AS source, value * 13 % 307 AS target, value % 100 AS weight \
             FROM generate_series(1, 2000) t(value)",
        )
}

#[test]
fn steps_over_tables() {
    let fixture = with_trees();
    let mut launched = 0;
    for sql in QUERIES {
        for _ in 0..2 {
            launched += usize::from(fixture.check(sql).metrics.kernels > 0);
        }
    }
    assert!(
        launched >= 2 * QUERIES.len() - 2,
        "{launched} of {} launched kernels",
        2 * QUERIES.len()
    );
}

/// Each step is an operator's run of its own: its rows are those of the step before, and of no other.
#[test]
fn a_step_is_a_fragment() {
    let fixture = with_trees();
    let plan = fixture.explain(QUERIES[0]);
    let recursion = plan.find("RecursiveQueryExec").expect("a recursive query");
    let step = plan[recursion..]
        .find("WorkTableExec")
        .expect("a working table");
    let fragments = plan[recursion..][..step].matches("GpuFragmentExec").count();
    assert_eq!(fragments, 2, "{plan}");
    // What each step did is told, of one run as of the next: the tree is seven deep.
    let steps: Vec<usize> = (0..2)
        .map(|_| fixture.check(QUERIES[0]).metrics.kernels as usize)
        .collect();
    assert!(
        steps.iter().all(|kernels| (8..80).contains(kernels)),
        "{steps:?}"
    );
    assert!(steps[1] <= steps[0], "{steps:?}");
}

/// What ends a query ends its steps.
#[test]
fn a_limit_ends_steps() {
    let fixture = with_trees();
    for limit in [1, 7, 40] {
        let sql = format!(
            "WITH RECURSIVE round(id, step) AS (SELECT 3 AS id, 0 AS step UNION ALL SELECT e.target, r.step + 1 FROM round r \
             JOIN edges e ON e.source = r.id AND e.weight = 4) SELECT count(*) AS n FROM (SELECT id FROM round LIMIT {limit})"
        );
        fixture.check(&sql);
    }
}
