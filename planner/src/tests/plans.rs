//! Plans worth running: orders of joins, reductions, sharing, and the shape of every kind of join.

use warpline_gpu::graph::Policy;

use super::warehouse::{fragment, graph, graph_with, session};
use crate::config::IndexJoins;
use crate::fragment::{FragmentPlanner, InputRows};

/// The step whose text has all of `parts`.
fn step<'a>(graph: &'a str, parts: &[&str]) -> &'a str {
    graph
        .lines()
        .find(|line| parts.iter().all(|part| line.contains(part)))
        .unwrap_or_else(|| panic!("no step with {parts:?} in\n{graph}"))
}

/// Positions of `parts` in a text, which must ascend.
fn in_order(text: &str, parts: &[&str]) {
    let mut from = 0;
    for part in parts {
        match text[from..].find(part) {
            Some(at) => from += at + part.len(),
            None => panic!("{part} not found, or not after those before it, in\n{text}"),
        }
    }
}

#[tokio::test]
async fn the_largest_table_probes_and_dimensions_are_built() {
    // Written in the worst order.
    let graph = graph(
        "SELECT n_name, sum(l_extendedprice) FROM nation, lineitem, supplier \
         WHERE l_suppkey = s_suppkey AND s_nationkey = n_nationkey AND n_name = 'PERU' GROUP BY n_name",
    )
    .await;
    step(&graph, &["scan nation", "filter", "build"]);
    step(
        &graph,
        &["scan supplier", "on (s_nationkey)", "build", "(s_suppkey)"],
    );
    step(&graph, &["scan lineitem", "on (l_suppkey)", "aggregate by"]);
    assert_eq!(graph.matches(":= scan").count(), 3, "{graph}");
}

#[tokio::test]
async fn selective_probes_come_first() {
    let graph = graph(
        "SELECT count(*) FROM lineitem, orders, part, supplier WHERE l_orderkey = o_orderkey AND l_partkey = p_partkey \
         AND l_suppkey = s_suppkey AND p_brand = 'A' AND p_size = 7 AND s_acctbal > 0 AND o_orderstatus <> 'P'",
    )
    .await;
    let probing = step(&graph, &["scan lineitem"]);
    in_order(probing, &["(l_partkey)", "(l_suppkey)"]);
}

#[tokio::test]
async fn equalities_carry_over() {
    // customer and nation are joined though the text only says so of supplier.
    let graph = graph(
        "SELECT count(*) FROM lineitem, orders, customer, supplier, nation WHERE l_orderkey = o_orderkey AND \
         o_custkey = c_custkey AND l_suppkey = s_suppkey AND c_nationkey = s_nationkey AND s_nationkey = n_nationkey \
         AND n_name = 'PERU'",
    )
    .await;
    step(&graph, &["scan customer", "on (c_nationkey)", "build"]);
}

#[tokio::test]
async fn duplicates_on_both_sides_become_pairs() {
    let graph = graph(
        "SELECT count(*) FROM partsupp a JOIN lineitem b ON a.ps_suppkey = b.l_suppkey AND a.ps_availqty < b.l_quantity",
    )
    .await;
    let matches = step(&graph, &["matches probe"]);
    assert!(
        matches.contains("scan lineitem") || matches.contains("scan partsupp"),
        "{graph}"
    );
    let pairs = step(&graph, &[":= pairs"]);
    assert!(pairs.contains("filter"), "{graph}");
}

/// A cast that can fail keeps no key from being one.
#[tokio::test]
async fn keys_that_can_fail_are_keys() {
    for sql in [
        "SELECT count(*) FROM partsupp JOIN lineitem ON ps_availqty = CAST(l_quantity AS INT)",
        "SELECT count(*) FROM orders JOIN customer ON c_custkey = o_custkey JOIN partsupp ON ps_availqty = CAST(o_totalprice AS INT)",
        "SELECT count(*) FROM orders JOIN lineitem ON o_orderdate = CAST(CAST(l_shipdate AS TIMESTAMP) AS DATE)",
    ] {
        let graph = graph(sql).await;
        assert!(!graph.contains("on () "), "{graph}");
        assert!(!graph.contains("filter (ps_availqty"), "{graph}");
    }
}

#[tokio::test]
async fn more_than_ten_tables_are_ordered_greedily() {
    let joins: String = (0..12)
        .map(|i| format!(" JOIN nation n{i} ON n{i}.n_nationkey = c.c_nationkey"))
        .collect();
    let graph = graph(&format!("SELECT count(*) FROM customer c{joins}")).await;
    step(&graph, &["scan customer", "aggregate"]);
    assert!(!graph.contains("matches"), "{graph}");
}

#[tokio::test]
async fn groups_are_reduced_to_the_keys_that_are_asked_for() {
    let graph = graph(
        "SELECT sum(l_extendedprice) FROM lineitem, part WHERE p_partkey = l_partkey AND p_brand = 'A' \
         AND l_quantity < (SELECT 0.2 * avg(l_quantity) FROM lineitem WHERE l_partkey = p_partkey)",
    )
    .await;
    let groups = step(&graph, &["scan lineitem", "aggregate by l_partkey"]);
    assert!(groups.contains("semi part"), "{graph}");
}

#[tokio::test]
async fn keys_that_follow_from_others_are_carried_along() {
    let graph = graph(
        "SELECT o_orderkey, o_orderdate, o_shippriority, sum(l_quantity) FROM orders, lineitem \
         WHERE o_orderkey = l_orderkey AND o_orderdate < date '1995-01-01' \
         GROUP BY o_orderkey, o_orderdate, o_shippriority",
    )
    .await;
    let groups = step(&graph, &["aggregate by l_orderkey:"]);
    assert!(groups.contains("any_value(o_orderdate)"), "{graph}");
    // Neither column of a table without a known key determines the other.
    let graph = super::warehouse::graph(
        "SELECT ps_partkey, ps_suppkey, count(*) FROM partsupp GROUP BY ps_partkey, ps_suppkey",
    )
    .await;
    step(&graph, &["aggregate by ps_partkey, ps_suppkey:"]);
}

#[tokio::test]
async fn tables_that_only_carry_values_are_joined_to_the_groups() {
    let graph = graph(
        "SELECT c_custkey, c_name, n_name, sum(l_quantity) FROM customer, orders, lineitem, nation \
         WHERE c_custkey = o_custkey AND o_orderkey = l_orderkey AND c_nationkey = n_nationkey AND l_returnflag = 'R' \
         GROUP BY c_custkey, c_name, n_name",
    )
    .await;
    let groups = step(&graph, &["aggregate by o_custkey"]);
    assert!(
        !groups.contains("c_name") && !groups.contains("customer"),
        "{graph}"
    );
    step(&graph, &["groups groups of", "c_name"]);
}

#[tokio::test]
async fn counts_over_an_outer_join_are_counted_before_it() {
    let graph = graph(
        "SELECT c_custkey, count(o_orderkey) FROM customer LEFT JOIN orders ON c_custkey = o_custkey \
         AND o_orderpriority <> 'X' GROUP BY c_custkey",
    )
    .await;
    step(&graph, &["scan orders", "aggregate by o_custkey: count"]);
    // As many customers as groups are partitioned with them; the counts of those without are made 0 behind the join.
    step(&graph, &["scan customer", "outer probe"]);
    assert!(graph.contains("coalesce("), "{graph}");
    // count(*) counts the row without an order too.
    let graph = super::warehouse::graph(
        "SELECT c_custkey, count(*) FROM customer LEFT JOIN orders ON c_custkey = o_custkey GROUP BY c_custkey",
    )
    .await;
    assert!(graph.contains("coalesce("), "{graph}");
}

#[tokio::test]
async fn sides_that_multiply_each_other_are_grouped_first() {
    let calls = "count(DISTINCT ps_suppkey) AS a, sum(ps_availqty) AS b, sum(l_quantity) AS c, count(*) AS d, max(p_size) AS e";
    let from = "part LEFT JOIN partsupp ON p_partkey = ps_partkey LEFT JOIN lineitem ON p_partkey = l_partkey";
    let graph = graph(&format!(
        "SELECT p_partkey, p_name, {calls} FROM {from} GROUP BY p_partkey, p_name"
    ))
    .await;
    step(&graph, &["scan lineitem", "aggregate by l_partkey"]);
    step(&graph, &["scan partsupp", "aggregate by ps_partkey"]);
    assert!(!graph.contains("aggregate by p_"), "{graph}");
    // What is asked of both sides at once needs each pair.
    let graph = super::warehouse::graph(&format!(
        "SELECT p_partkey, sum(l_quantity * ps_availqty) FROM {from} GROUP BY p_partkey"
    ))
    .await;
    assert!(!graph.contains("aggregate by ps_partkey"), "{graph}");
}

#[tokio::test]
async fn semi_joins_that_alone_relate_tables_are_joins() {
    let graph = graph(
        "SELECT count(*) FROM part, supplier WHERE p_size > 3 AND s_acctbal > 0 \
         AND EXISTS (SELECT 1 FROM lineitem WHERE l_partkey = p_partkey AND l_suppkey = s_suppkey)",
    )
    .await;
    step(
        &graph,
        &["scan lineitem", "aggregate by l_partkey, l_suppkey"],
    );
}

#[tokio::test]
async fn equal_parts_are_computed_once() {
    let graph = graph(
        "WITH r AS (SELECT l_suppkey AS k, sum(l_quantity) AS q FROM lineitem WHERE l_tax > 0.02 GROUP BY l_suppkey) \
         SELECT s_name, q FROM supplier, r WHERE s_suppkey = k AND q = (SELECT max(q) FROM r)",
    )
    .await;
    assert_eq!(graph.matches("scan lineitem").count(), 1, "{graph}");
}

#[tokio::test]
async fn small_preserved_sides_are_built_and_marked() {
    let graph = graph(
        "SELECT s_name FROM supplier, nation WHERE s_nationkey = n_nationkey AND n_name = 'PERU' AND EXISTS \
         (SELECT 1 FROM lineitem WHERE l_suppkey = s_suppkey AND l_quantity > s_acctbal)",
    )
    .await;
    step(&graph, &["build", "tracking"]);
    step(&graph, &["marks := scan lineitem", "marking | discard"]);
    step(&graph, &[":= matched"]);
}

#[tokio::test]
async fn sets_stand_for_sides_of_which_nothing_is_read() {
    let graph = graph(
        "SELECT count(*) FROM orders WHERE o_custkey IN (SELECT c_custkey FROM customer WHERE c_mktsegment = 'A')",
    )
    .await;
    step(&graph, &["scan customer", "build set (c_custkey)"]);
    step(&graph, &["scan orders", "semi customer"]);
    let graph = super::warehouse::graph(
        "SELECT count(*) FROM orders, customer WHERE o_custkey = c_custkey AND c_mktsegment = 'A'",
    )
    .await;
    step(&graph, &["scan customer", "build set (c_custkey)"]);
}

#[tokio::test]
async fn wrong_guesses_of_uniqueness_are_learned_from() {
    let sql = "SELECT sum(ps_supplycost) FROM lineitem, partsupp WHERE l_partkey = ps_partkey AND l_suppkey = ps_suppkey";
    let planner = fragment(sql).await;
    let facts = super::warehouse::Facts::new();
    let first = planner.graph_with(&facts, &Default::default()).unwrap();
    let text = first.to_string();
    step(&text, &["scan partsupp", "build unique"]);
    let index = first
        .results
        .iter()
        .find(|r| r.name.starts_with("partsupp("))
        .unwrap();
    let duplicates = std::collections::HashSet::from([index.name.clone()]);
    let second = planner.graph_with(&facts, &duplicates).unwrap();
    super::check::check(&second);
    assert!(!second.to_string().contains("build unique"), "{second}");
}

/// Every kind of join and operator keeps the contract of graphs, which `graph` checks.
#[tokio::test]
async fn every_operator_has_a_graph() {
    for sql in [
        "SELECT * FROM nation FULL JOIN region ON n_nationkey = r_regionkey",
        "SELECT * FROM nation FULL JOIN region ON n_regionkey = r_regionkey AND n_nationkey > r_regionkey",
        "SELECT * FROM nation LEFT JOIN region ON n_regionkey = r_regionkey AND n_nationkey > r_regionkey",
        "SELECT * FROM region LEFT JOIN nation ON n_regionkey = r_regionkey AND n_nationkey > r_regionkey",
        "SELECT * FROM region RIGHT JOIN nation ON n_regionkey = r_regionkey",
        "SELECT * FROM region CROSS JOIN nation",
        "SELECT * FROM region JOIN nation ON r_regionkey < n_regionkey",
        "SELECT * FROM region LEFT JOIN nation ON r_regionkey < n_regionkey",
        "SELECT n_name FROM nation WHERE n_regionkey NOT IN (SELECT r_regionkey FROM region)",
        "SELECT n_name FROM nation WHERE NOT EXISTS (SELECT 1 FROM region WHERE r_regionkey = n_regionkey AND r_name <> 'A')",
        "SELECT n_name FROM nation WHERE n_regionkey = 1 OR n_nationkey IN (SELECT r_regionkey FROM region)",
        "SELECT n_name FROM nation INTERSECT SELECT r_name FROM region",
        "SELECT n_name FROM nation EXCEPT SELECT r_name FROM region",
        "SELECT n_name FROM nation UNION ALL SELECT r_name FROM region ORDER BY 1 DESC LIMIT 3 OFFSET 2",
        "SELECT n_name FROM nation UNION SELECT r_name FROM region",
        "SELECT DISTINCT n_regionkey FROM nation",
        "SELECT count(DISTINCT n_regionkey), sum(DISTINCT n_regionkey), count(*) FILTER (WHERE n_nationkey > 3) FROM nation",
        "SELECT n_regionkey FROM nation ORDER BY n_nationkey + 1, n_name DESC NULLS LAST",
        "SELECT (SELECT max(r_regionkey) FROM region), n_name FROM nation ORDER BY n_nationkey % 7 LIMIT 4",
        "SELECT n_name FROM nation LIMIT 3",
        "SELECT count(*) FROM (SELECT n_name FROM nation LIMIT 3)",
        "SELECT a.n_name, b.n_name FROM nation a, nation b WHERE a.n_nationkey = b.n_regionkey AND a.n_name LIKE 'A%'",
        "SELECT r_name, n_name FROM region LEFT JOIN (SELECT * FROM nation WHERE n_name > 'M') ON r_regionkey = n_regionkey \
         WHERE n_name IS NULL OR r_name < 'M'",
        "SELECT sum(n_nationkey) OVER_ALL FROM nation, region",
        "SELECT o_custkey, sum(o_totalprice) AS s FROM orders GROUP BY o_custkey HAVING sum(o_totalprice) > \
         (SELECT avg(o_totalprice) FROM orders) ORDER BY s DESC, o_custkey LIMIT 10",
    ] {
        graph(sql).await;
    }
}

#[tokio::test]
async fn orders_hold_to_the_end() {
    // A projection above the sort, and a sort key that is not put out.
    let planner =
        fragment("SELECT n_name FROM nation ORDER BY n_regionkey, n_nationkey DESC").await;
    let graph = planner
        .graph_with(&super::warehouse::Facts::new(), &Default::default())
        .unwrap();
    let last = graph.steps.last().unwrap();
    assert!(
        matches!(last, warpline_gpu::graph::Step::Sort(_)),
        "{graph}"
    );
    assert_eq!(graph.results[graph.output].kind.columns().len(), 1);
}

#[tokio::test]
async fn refusals_name_the_operator_in_the_way() {
    for (sql, operator, why) in [
        (
            "SELECT n_name, row_number() OVER () FROM nation",
            "WindowAggExec",
            "its window has no ORDER BY",
        ),
        (
            "SELECT first_value(n_nationkey) FROM nation",
            "AggregateExec",
            "first_value without ORDER BY runs on the CPU",
        ),
        (
            "SELECT n_regionkey, n_name, first_value(n_name) FROM nation GROUP BY n_regionkey, n_name",
            "AggregateExec",
            "first_value without ORDER BY runs on the CPU",
        ),
        ("SELECT random() FROM nation", "", "volatile"),
        (
            "SELECT n_nationkey, repeat('x', n_nationkey) FROM nation",
            "",
            "repeat",
        ),
    ] {
        let plan = crate::tests::plan(&session().await, sql).await;
        match FragmentPlanner::try_new(&plan, &crate::WarplineConfig::default()) {
            Ok(planner) => panic!("{sql} became\n{}", planner.rel()),
            Err(refusal) => {
                assert!(
                    refusal.at.name().contains(operator),
                    "{sql}: {}",
                    refusal.at.name()
                );
                assert!(
                    refusal.reason.as_str().contains(why),
                    "{sql}: {}",
                    refusal.reason
                );
            }
        }
    }
}

#[tokio::test]
async fn comparisons_with_many_rows_a_key_are_asked_of_extremes() {
    let exists = |key: &str| {
        format!(
            "SELECT count(*) FROM part p WHERE EXISTS \
             (SELECT 1 FROM part q WHERE q.{key} = p.{key} AND q.p_retailprice <> p.p_retailprice)"
        )
    };
    // 400,000 rows a size: the smallest and the largest price of each are enough.
    let many = graph(&exists("p_size")).await;
    step(&many, &["aggregate by", "min(", "max("]);
    step(&many, &["if (", "OR"]);
    // Hardly two rows a name: they are gone over.
    let few = graph(&exists("p_name")).await;
    assert!(!few.contains("max("), "{few}");
    // Two of them of one table ask the same groups.
    let and_not = "AND NOT EXISTS (SELECT 1 FROM part r WHERE r.p_size = p.p_size AND r.p_retailprice <> p.p_retailprice \
                   AND r.p_brand = 'Brand#12')";
    let both = graph(&format!("{} {and_not}", exists("p_size"))).await;
    step(&both, &["aggregate by", "min(", "max(", "filter"]);
    assert_eq!(both.matches("aggregate by").count(), 1, "{both}");
    assert_eq!(both.matches("build unique").count(), 1, "{both}");
}

#[tokio::test]
async fn few_rows_ask_an_index_over_the_whole_table() {
    let sql = "SELECT sum(l_extendedprice) FROM part, lineitem \
               WHERE l_partkey = p_partkey AND p_brand = 'Brand#12' AND p_container = 'JUMBO BOX' AND p_size = 7";
    // Without one, all rows of the large table ask the few.
    let built = graph(sql).await;
    step(&built, &["scan lineitem", "on (l_partkey)"]);
    // One that is kept is asked by the few, and the large table is not read.
    let kept = graph_with(sql, IndexJoins::Auto).await;
    step(&kept, &["scan lineitem", "build (l_partkey)"]);
    step(&kept, &["scan part", "probe lineitem(l_partkey)"]);
}

#[tokio::test]
async fn few_keys_of_groups_ask_an_index_over_the_whole_table() {
    let sql = |part: &str| {
        format!(
            "SELECT sum(l_extendedprice) FROM lineitem, {part} AS p \
             WHERE p_partkey = l_partkey AND p_brand = 'Brand#23' AND p_container = 'MED BOX' \
             AND l_quantity < (SELECT 0.2 * avg(l_quantity) FROM lineitem WHERE l_partkey = p_partkey)"
        )
    };
    let reduced = graph(&sql("part")).await;
    step(
        &reduced,
        &["scan lineitem", "semi", "aggregate by l_partkey"],
    );
    let kept = graph_with(&sql("part"), IndexJoins::Auto).await;
    step(&kept, &["pairs", "aggregate by", "avg(l_quantity)"]);
    // One index serves both joins, and no other row of the large table is read.
    step(
        &kept,
        &[
            "scan lineitem",
            "build (l_partkey) with (l_quantity, l_extendedprice)",
        ],
    );
    assert_eq!(kept.matches("scan lineitem").count(), 1, "{kept}");
    // Keys that may repeat would add up a row several times.
    let repeated = "(SELECT p_size AS p_partkey, p_brand, p_container FROM part)";
    let kept = graph_with(&sql(repeated), IndexJoins::Auto).await;
    step(&kept, &["scan lineitem", "semi", "aggregate by l_partkey"]);
}

#[tokio::test]
async fn few_probing_keys_reduce_a_large_build() {
    let graph = graph(
        "SELECT g_account, g_limit, g_balance, t_booked, t_amount FROM ledger, posting WHERE g_account = t_account",
    )
    .await;
    let keys = step(&graph, &["scan posting", "build set (t_account)"]);
    let keys = keys.split(' ').next().unwrap();
    let semi = format!("semi {keys} on (g_account)");
    step(&graph, &["scan ledger", &semi, "build"]);
    step(&graph, &["scan posting", "(t_account)", "rows ("]);
}

/// Codes are asked for where they are needed; whoever finds that too few can ask for all, once.
#[tokio::test]
async fn codes_of_all_strings_can_be_asked_for() {
    use warpline_gpu::graph::Policy;

    let planner =
        fragment("SELECT c_name, c_address FROM customer WHERE c_acctbal > 0 ORDER BY c_name")
            .await;
    let codes = |planner: &FragmentPlanner| {
        planner.scans()[0]
            .needs_codes
            .iter()
            .filter(|c| **c)
            .count()
    };
    assert_eq!(codes(&planner), 1);
    assert!(planner.ask_for_codes());
    assert_eq!(codes(&planner), 2);
    assert!(!planner.ask_for_codes());
}

#[tokio::test]
async fn left_joins_of_which_rows_without_a_match_are_wanted_are_anti_joins() {
    let graph = graph(
        "SELECT o_orderpriority, count(*) FROM orders LEFT JOIN lineitem ON o_orderkey = l_orderkey AND l_quantity > 30 \
         WHERE l_orderkey IS NULL AND o_orderdate > DATE '1998-01-01' GROUP BY o_orderpriority",
    )
    .await;
    assert!(
        graph.contains("anti ") || graph.contains("unmarked"),
        "{graph}"
    );
    assert!(!graph.contains("outer probe"), "{graph}");
    // A value of another column may be NULL in a match.
    let graph = self::graph(
        "SELECT count(*) FROM orders LEFT JOIN (SELECT l_orderkey, nullif(l_quantity, 30) q FROM lineitem) ON o_orderkey = l_orderkey \
         WHERE q IS NULL",
    )
    .await;
    assert!(graph.contains("NULL"), "{graph}");
}

/// Windows over sliding frames in `n` orders: each reads its rows three times.
fn sliding(n: usize) -> String {
    let sums = (0..n).map(|i| {
        let frame = "ROWS BETWEEN 2 PRECEDING AND 1 FOLLOWING";
        format!("sum(l_quantity) OVER (ORDER BY l_orderkey + {i}, l_linenumber {frame}) AS s{i}")
    });
    let sums: Vec<String> = sums.collect();
    format!("SELECT {} FROM lineitem", sums.join(", "))
}

#[tokio::test]
async fn windows_in_many_orders_are_planned_once_each() {
    const MANY: usize = 24;
    let mut sizes = Vec::new();
    for windows in [MANY / 2, MANY] {
        let planner = fragment(&sliding(windows)).await;
        let mut visits = 0;
        planner.rel().for_each(&mut |_| visits += 1);
        let text = planner.rel().to_string();
        let steps = graph(&sliding(windows)).await;
        sizes.push([visits, text.lines().count(), steps.matches(":=").count()]);
        assert_eq!(text.matches("window (").count(), windows, "{text}");
        assert_eq!(steps.matches(":= sort").count(), windows, "{steps}");
        assert_eq!(planner.rel().label(), "lineitem ⋈ … ⋈ lineitem");
        let again = fragment(&sliding(windows)).await;
        assert_eq!(planner.fingerprint(), again.fingerprint());
        let one_less = fragment(&sliding(windows - 1)).await;
        assert_ne!(planner.fingerprint(), one_less.fingerprint());
        planner.reentry_prices(None, 8, InputRows::Times(1.0));
    }
    // Twice the windows are not more than twice the relations, lines and steps.
    for (half, all) in sizes[0].into_iter().zip(sizes[1]) {
        assert!(all <= 2 * half, "{sizes:?}");
    }
}
