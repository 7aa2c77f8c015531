//! The 22 queries of TPC-H under each setting, and other queries over the same tables.

use std::sync::Arc;

use datafusion::datasource::MemTable;
use warpline_sql_tests::{Fixture, test_device};
use warpline_tpch::tables::{Dataset, Table};
use warpline_tpch::{Scale, generate, queries};

use crate::operators::support::check_all;

/// Small enough for every setting to take seconds in the emulator; all queries but a few have rows.
const SCALE: f64 = 0.001;

fn tables(scale: f64, settings: &[(&str, &str)]) -> Fixture {
    tables_of(Scale::new(scale).expect("a scale"), settings)
}

/// A session that has the tables of a benchmark.
pub(crate) fn tables_of(dataset: impl Into<Dataset>, settings: &[(&str, &str)]) -> Fixture {
    with_tables(Fixture::open(test_device(), true, settings), dataset)
}

/// Adds the tables of a benchmark.
pub(crate) fn with_tables(mut fixture: Fixture, dataset: impl Into<Dataset>) -> Fixture {
    for table in generate::generate(&Table::ALL, dataset, 2).expect("data") {
        // As generated: columns are not nullable here, unlike in the other tests.
        let schema = table.table.schema();
        let provider = MemTable::try_new(schema, table.partitions).expect("a table");
        fixture = fixture.provider(table.table.name(), Arc::new(provider));
    }
    fixture
}

fn all_22(settings: &[(&str, &str)]) {
    let fixture = tables(SCALE, settings);
    let list = queries::ALL.iter().map(|query| query.sql.to_string());
    check_all(&fixture, list);
}

#[test]
fn all_22_by_default() {
    all_22(&[]);
}

#[test]
fn all_22_with_trees() {
    for balance in ["none", "fws", "nifs", "nifs_aws"] {
        all_22(&[
            ("warpline.load_balance", balance),
            ("warpline.fws_threshold", "2"),
        ]);
    }
    all_22(&[
        ("warpline.load_balance", "nifs_aws"),
        ("warpline.materialization", "eager"),
    ]);
}

#[test]
fn all_22_with_perfect_indexes() {
    all_22(&[("warpline.join", "perfect")]);
}

#[test]
fn all_22_with_hash_indexes() {
    all_22(&[("warpline.join", "nphj")]);
}

#[test]
fn all_22_with_partitioned_joins() {
    all_22(&[("warpline.join", "phj_ur")]);
    all_22(&[("warpline.join", "phj_tr")]);
}

#[test]
fn all_22_with_merge_joins() {
    all_22(&[("warpline.join", "smj_ur")]);
    all_22(&[("warpline.join", "smj_tr")]);
}

#[test]
fn all_22_with_private_groups() {
    all_22(&[("warpline.group_by", "private")]);
}

#[test]
fn all_22_with_shared_groups() {
    all_22(&[("warpline.group_by", "shared")]);
}

#[test]
fn all_22_with_global_groups() {
    all_22(&[("warpline.group_by", "global")]);
}

#[test]
fn all_22_with_groups_by_hgb() {
    all_22(&[("warpline.group_by", "hgb")]);
}

#[test]
fn all_22_with_groups_by_sgb_ur() {
    all_22(&[("warpline.group_by", "sgb_ur")]);
}

#[test]
fn all_22_with_groups_by_sgb_tr() {
    all_22(&[("warpline.group_by", "sgb_tr")]);
}

#[test]
fn all_22_with_groups_by_sgb_de_tr() {
    all_22(&[("warpline.group_by", "sgb_de_tr")]);
}

#[test]
fn all_22_with_groups_by_pgb_ur() {
    all_22(&[("warpline.group_by", "pgb_ur")]);
}

#[test]
fn all_22_with_groups_by_pgb_tr() {
    all_22(&[("warpline.group_by", "pgb_tr")]);
}

/// Replaces each text, which must occur.
fn with_parameters(number: u8, changes: &[(&str, &str)]) -> String {
    let query = queries::query(number).expect("a query");
    let mut sql = query.sql.to_string();
    for (from, to) in changes {
        assert!(sql.contains(from), "Q{number} has no {from}: {sql}");
        sql = sql.replace(from, to);
    }
    sql
}

#[test]
fn other_parameters() {
    let fixture = tables(0.002, &[]);
    check_all(
        &fixture,
        [
            with_parameters(1, &[("'90'", "'700'")]),
            with_parameters(
                3,
                &[("BUILDING", "MACHINERY"), ("1995-03-15", "1994-11-02")],
            ),
            with_parameters(5, &[("ASIA", "AMERICA"), ("1994-01-01", "1996-01-01")]),
            with_parameters(
                6,
                &[("1994-01-01", "1997-01-01"), ("0.06", "0.03"), ("24", "40")],
            ),
            with_parameters(7, &[("FRANCE", "CHINA"), ("GERMANY", "INDIA")]),
            with_parameters(10, &[("1993-10-01", "1995-02-01")]),
            with_parameters(12, &[("MAIL", "TRUCK"), ("SHIP", "REG AIR")]),
            with_parameters(13, &[("special", "express"), ("requests", "deposits")]),
            with_parameters(14, &[("1995-09-01", "1993-03-01")]),
            with_parameters(18, &[("300", "150")]),
            with_parameters(21, &[("SAUDI ARABIA", "JAPAN")]),
        ],
    );
}

/// Queries that nobody tuned for: self joins, joins off the keys, outer joins, sets, skew.
#[test]
fn other_queries() {
    let fixture = tables(SCALE, &[]);
    check_all(
        &fixture,
        [
            // Orders of one customer in the same month.
            "SELECT count(*) AS n, min(a.o_totalprice + b.o_totalprice) AS t FROM orders a JOIN orders b \
             ON a.o_custkey = b.o_custkey AND a.o_orderkey < b.o_orderkey \
             WHERE b.o_orderdate >= a.o_orderdate \
             AND date_part('year', a.o_orderdate) * 12 + date_part('month', a.o_orderdate) \
             = date_part('year', b.o_orderdate) * 12 + date_part('month', b.o_orderdate)",
            // Suppliers and customers of one nation: a join of many with many.
            "SELECT n_name, count(*) AS pairs, sum(c_acctbal - s_acctbal) AS d FROM supplier, customer, nation \
             WHERE s_nationkey = c_nationkey AND n_nationkey = s_nationkey GROUP BY n_name ORDER BY pairs DESC, n_name",
            // Lineitems shipped on the day of some order.
            "SELECT l_shipmode, count(*) AS n FROM lineitem WHERE l_shipdate IN \
             (SELECT o_orderdate FROM orders WHERE o_orderpriority = '1-URGENT') GROUP BY l_shipmode ORDER BY l_shipmode",
            // Nations without suppliers in stock of a part, with all their counts.
            "SELECT n_name, count(s_suppkey) AS s, count(DISTINCT p_brand) AS b FROM nation \
             LEFT JOIN supplier ON s_nationkey = n_nationkey AND s_acctbal > 5000 \
             LEFT JOIN partsupp ON ps_suppkey = s_suppkey LEFT JOIN part ON p_partkey = ps_partkey AND p_size < 10 \
             GROUP BY n_name ORDER BY n_name",
            // Customers who bought the cheapest part of some brand.
            "SELECT c_custkey, c_name FROM customer WHERE EXISTS (SELECT 1 FROM orders, lineitem, part \
             WHERE o_custkey = c_custkey AND l_orderkey = o_orderkey AND p_partkey = l_partkey AND p_retailprice = \
             (SELECT min(p_retailprice) FROM part)) ORDER BY c_custkey",
            // Every part with its best and worst offer, and those never ordered.
            "SELECT p_partkey, min(ps_supplycost) AS lo, max(ps_supplycost) AS hi, count(l_orderkey) AS n FROM part \
             JOIN partsupp ON ps_partkey = p_partkey LEFT JOIN lineitem ON l_partkey = ps_partkey AND l_suppkey = ps_suppkey \
             AND l_returnflag = 'R' GROUP BY p_partkey HAVING count(l_orderkey) < 3 ORDER BY p_partkey LIMIT 40",
            // A chain of five with the filters at both ends, grouped by a pair of strings.
            "SELECT r_name, p_mfgr, sum(l_extendedprice * (1 - l_discount)) AS v, avg(l_quantity) AS q FROM region, nation, \
             supplier, lineitem, part WHERE r_regionkey = n_regionkey AND n_nationkey = s_nationkey \
             AND s_suppkey = l_suppkey AND l_partkey = p_partkey AND p_container LIKE 'SM%' AND r_name <> 'ASIA' \
             GROUP BY r_name, p_mfgr ORDER BY v DESC, r_name, p_mfgr",
            // The latest line of each order, and what came before it.
            "SELECT count(*) AS n, sum(a.l_quantity) AS q FROM lineitem a JOIN (SELECT l_orderkey AS k, max(l_shipdate) AS d \
             FROM lineitem GROUP BY l_orderkey) b ON a.l_orderkey = b.k AND a.l_shipdate = b.d",
            // Sets of keys.
            "SELECT count(*) AS n FROM (SELECT c_nationkey AS k FROM customer EXCEPT SELECT s_nationkey FROM supplier \
             UNION ALL SELECT n_nationkey FROM nation WHERE n_name LIKE '%A')",
            "SELECT o_custkey FROM orders WHERE o_orderstatus = 'P' INTERSECT SELECT o_custkey FROM orders \
             WHERE o_orderstatus = 'F' ORDER BY o_custkey DESC LIMIT 20",
            // No order twice, whichever way it is asked.
            "SELECT count(*) AS n FROM orders WHERE o_custkey NOT IN (SELECT c_custkey FROM customer WHERE c_acctbal < 0) \
             AND (o_orderpriority IN ('1-URGENT', '2-HIGH') OR EXISTS (SELECT 1 FROM lineitem WHERE l_orderkey = o_orderkey \
             AND l_quantity > 49))",
            // Half a year by month and mode, with a share of the whole.
            "SELECT date_part('month', l_shipdate) AS m, l_shipmode, count(*) AS n, \
             sum(l_extendedprice) / (SELECT sum(l_extendedprice) FROM lineitem) AS part FROM lineitem \
             WHERE l_shipdate >= DATE '1995-01-01' AND l_shipdate < DATE '1995-07-01' \
             GROUP BY date_part('month', l_shipdate), l_shipmode ORDER BY m, l_shipmode",
            // Comments: texts that do not repeat, as filter, key and output.
            "SELECT o_orderkey, o_comment FROM orders WHERE o_comment LIKE '%final%' AND length(o_comment) < 40 \
             ORDER BY o_comment, o_orderkey LIMIT 25",
            "SELECT upper(substr(c_comment, 1, 3)) AS p, count(*) AS n, max(c_phone) AS t FROM customer \
             GROUP BY upper(substr(c_comment, 1, 3)) HAVING count(*) > 2 ORDER BY n DESC, p LIMIT 10",
        ]
        .map(String::from),
    );
}
