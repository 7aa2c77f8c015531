//! Several devices of one session: the answers of plain DataFusion, whoever fails, and what is shown of each.

use std::path::Path;

use datafusion::arrow::compute::concat_batches;
use datafusion::arrow::record_batch::RecordBatch;
use warpline::{
    Cluster, Device, DeviceChoice, Error, QueryRun, WarplineSession, Worker, WorkerOptions,
};
use warpline_gpu::device::faulty::FailurePlan;
use warpline_tpch::jcch::{Bindings, Seed};
use warpline_tpch::runner::reference_answer;
use warpline_tpch::tables::Table;
use warpline_tpch::verify::{self, Answer};
use warpline_tpch::{Benchmark, Scale, data, generate, queries};

use super::cluster::{explain, tables_of_files, text};
use super::{on_a_large_stack, run as program};

/// A session on devices of which both share whatever can be shared, in stages.
async fn session(device: &str) -> WarplineSession {
    sharing(device, "stages").await
}

/// A session on devices of which both share whatever can be shared, in this way.
async fn sharing(device: &str, shard_plan: &str) -> WarplineSession {
    WarplineSession::builder()
        .device(device.parse().expect("a device"))
        .set("warpline.shards", "2")
        .set("warpline.shard_plan", shard_plan)
        .set("warpline.min_rows", "0")
        .set("datafusion.execution.target_partitions", "2")
        // Tables of fewer rows than a batch are planned in one partition, and stay whole.
        .set("datafusion.execution.batch_size", "50")
        // Whatever it costs: the tables are small.
        .set("warpline.reentry", "on")
        .open()
        .await
        .expect("a session")
}

/// Small tables of the benchmark in memory, of several batches each.
async fn with_tables(session: &WarplineSession, benchmark: Benchmark, scale: f64) {
    let scale = Scale::new(scale).expect("a scale");
    let dataset = benchmark.dataset(scale).expect("tables");
    let mut tables = generate::generate(&Table::ALL, dataset, 2).expect("rows");
    for table in &mut tables {
        for batches in &mut table.partitions {
            *batches = in_pieces(batches);
        }
    }
    generate::register(session, tables).expect("tables");
}

/// The same rows in four batches or more, where there are as many.
fn in_pieces(batches: &[RecordBatch]) -> Vec<RecordBatch> {
    let mut pieces = Vec::new();
    for batch in batches {
        let rows = batch.num_rows().div_ceil(4).max(1);
        for start in (0..batch.num_rows()).step_by(rows) {
            let piece = batch.slice(start, rows.min(batch.num_rows() - start));
            // A table of its own, not a part of another's arrays.
            let own = concat_batches(&batch.schema(), [&piece]).expect("a batch");
            pieces.push(own);
        }
    }
    pieces
}

/// Runs a query, and compares it with plain DataFusion.
async fn check(session: &WarplineSession, sql: &str, when: &str) -> QueryRun {
    let answer = reference_answer(session.reference(), sql).await;
    let (expected, ordering) = answer.unwrap_or_else(|e| panic!("{when}: {e}"));
    let run = session.query(sql).await;
    let run = run.unwrap_or_else(|e| panic!("{when}: {e}"));
    same(&run, &expected, &ordering, when);
    run
}

#[track_caller]
fn same(run: &QueryRun, expected: &Answer, ordering: &verify::Ordering, when: &str) {
    let answer = Answer::new(&run.schema, &run.batches).expect("an answer");
    let difference = verify::compare(expected, &answer, ordering);
    assert!(difference.is_none(), "{when}: {difference:?}");
}

/// Of each query whether both devices ran kernels for it.
async fn all_queries(session: &WarplineSession, benchmark: Benchmark, scale: f64) -> Vec<bool> {
    let scale = Scale::new(scale).expect("a scale");
    let numbers: Vec<u8> = (1..=22).collect();
    let mut shared = Vec::new();
    for query in benchmark.queries(&numbers, scale).expect("queries") {
        let when = format!("{} Q{}", benchmark.name(), query.number);
        let (expected, ordering) = reference_answer(session.reference(), query.reference_sql())
            .await
            .unwrap_or_else(|e| panic!("{when}: {e}"));
        let run = session.query(&query.sql).await;
        let run = run.unwrap_or_else(|e| panic!("{when}: {e}"));
        same(&run, &expected, &ordering, &when);
        let devices = &run.metrics.devices;
        shared.push(devices.len() > 1 && devices.iter().all(|device| device.kernels > 0));
    }
    shared
}

#[test]
fn tpch_of_files_is_shared_by_two() {
    on_a_large_stack(async || {
        let folder = tempfile::tempdir().expect("a folder");
        let tables = tables_of_files(folder.path(), 0.002).await;
        let session = session("emulator:2").await;
        data::register(&session, &tables, &Table::ALL)
            .await
            .expect("tables");
        let shared = all_queries(&session, Benchmark::Tpch, 0.002).await;
        let count = shared.iter().filter(|shared| **shared).count();
        assert!(count >= 15, "{shared:?}");
        // Each device keeps the columns of its own files.
        let states = session.device().states();
        let names: Vec<&str> = states.iter().map(|state| state.name.as_str()).collect();
        assert_eq!(names, ["emulator:0", "emulator:1"]);
        let rows = |number: usize| {
            let columns = states[number].columns.iter();
            let columns = columns.filter(|column| column.column == "l_orderkey");
            columns.map(|column| column.rows).max().unwrap_or(0)
        };
        let all = session.query("SELECT count(*) AS n FROM lineitem").await;
        let all = text(&all.expect("a count"));
        assert!(rows(0) > 0 && rows(1) > 0);
        assert!(
            all.contains(&(rows(0) + rows(1)).to_string()),
            "{all}: {} {}",
            rows(0),
            rows(1)
        );
        assert!(states.iter().all(|state| state.memory.queries == 0));
    });
}

#[test]
fn jcch_of_tables_in_memory_is_shared_by_two() {
    on_a_large_stack(async || {
        let benchmark = Benchmark::Jcch {
            bindings: Bindings::Skewed,
            seed: Seed::default(),
        };
        let session = session("emulator:2").await;
        with_tables(&session, benchmark, 0.003).await;
        let shared = all_queries(&session, benchmark, 0.003).await;
        let count = shared.iter().filter(|shared| **shared).count();
        assert!(count >= 15, "{shared:?}");
    });
}

#[test]
fn tpch_of_files_is_dealt_out_to_two() {
    on_a_large_stack(async || {
        let folder = tempfile::tempdir().expect("a folder");
        let tables = tables_of_files(folder.path(), 0.002).await;
        let session = sharing("emulator:2", "local").await;
        data::register(&session, &tables, &Table::ALL)
            .await
            .expect("tables");
        let shared = all_queries(&session, Benchmark::Tpch, 0.002).await;
        let count = shared.iter().filter(|shared| **shared).count();
        assert!(count >= 17, "{shared:?}");
        // A plan of shards runs again, and so does what the devices have of it.
        let sql = &*queries::ALL[2].sql;
        check(&session, sql, "again").await;
        let again = check(&session, sql, "once more").await.metrics;
        assert!(again.plan_cached, "{again:?}");
        assert_eq!(
            (again.compile_ms, again.columns_loaded),
            (0.0, 0),
            "{again:?}"
        );
    });
}

#[test]
fn groups_of_clustered_files_are_whole_on_a_device() {
    on_a_large_stack(async || {
        let folder = tempfile::tempdir().expect("a folder");
        let session = sharing("emulator:2", "local").await;
        with_tables(&session, Benchmark::Tpch, 0.001).await;
        for (table, key) in [("lineitem", "l_orderkey"), ("orders", "o_orderkey")] {
            let files = folder.path().join(table);
            let files = files.display();
            for (number, (from, to)) in [(0, 1500), (1500, 3000), (3000, 4500), (4500, 6000)]
                .into_iter()
                .enumerate()
            {
                let sql = format!(
                    "COPY (SELECT * FROM {table} WHERE {key} > {from} AND {key} <= {to}) TO '{files}/{number}.parquet'"
                );
                session.query(&sql).await.expect("a file");
            }
            let sql = format!(
                "CREATE EXTERNAL TABLE {table}_by_key STORED AS PARQUET LOCATION '{files}/'"
            );
            session.query(&sql).await.expect("a table");
            let plain = session.reference();
            if !plain
                .table_exist(format!("{table}_by_key"))
                .expect("a name")
            {
                let frame = plain.sql(&sql).await.expect("a table");
                frame.collect().await.expect("a table");
            }
        }
        let from = "FROM lineitem_by_key JOIN orders_by_key ON l_orderkey = o_orderkey";
        let sql = &format!(
            "SELECT l_orderkey, o_orderdate, sum(l_extendedprice) AS s {from} GROUP BY 1, 2 ORDER BY s DESC, 1 LIMIT 10"
        );
        let run = check(&session, sql, "the first rows of groups").await;
        assert_eq!(run.metrics.devices.len(), 2);
        let plan = explain(&session, sql).await;
        for part in [
            "ShardsExec: [l_orderkey, ",
            "in 2 shards, beside it [o_orderkey, ",
            "on emulator:0, emulator:1",
            "device emulator:1: task 1",
        ] {
            assert!(plan.contains(part), "{part}: {plan}");
        }
        assert!(!plan.contains("AggregateExec"), "{plan}");
        let plan = explain(&session, &format!("ANALYZE {sql}")).await;
        assert_eq!(plan.matches("GpuFragmentExec").count(), 2, "{plan}");
        // Groups that meet, and joins that need the whole of the other table.
        for sql in [
            format!("SELECT o_orderpriority, count(*) AS n, sum(l_quantity) AS q {from} GROUP BY 1"),
            format!("SELECT l_orderkey, o_totalprice {from} WHERE l_quantity > 45"),
            "SELECT count(*) AS n FROM orders_by_key WHERE o_orderkey NOT IN (SELECT l_orderkey FROM lineitem_by_key \
             WHERE l_quantity > 40)"
                .to_string(),
            "SELECT o_orderkey, count(l_orderkey) AS n FROM orders_by_key LEFT JOIN lineitem_by_key \
             ON l_orderkey = o_orderkey AND l_quantity > 40 GROUP BY o_orderkey"
                .to_string(),
            "SELECT o_orderstatus, count(*) AS n FROM orders_by_key WHERE o_orderkey IN (SELECT l_orderkey FROM lineitem_by_key \
             GROUP BY l_orderkey HAVING sum(l_quantity) > 100) GROUP BY o_orderstatus"
                .to_string(),
            "SELECT a.l_orderkey, count(*) AS n FROM lineitem_by_key a JOIN lineitem_by_key b ON a.l_orderkey = b.l_partkey \
             GROUP BY a.l_orderkey"
                .to_string(),
        ] {
            check(&session, &sql, &sql).await;
        }
    });
}

#[test]
fn jcch_of_tables_in_memory_is_dealt_out_to_three() {
    on_a_large_stack(async || {
        let benchmark = Benchmark::Jcch {
            bindings: Bindings::Skewed,
            seed: Seed::default(),
        };
        let session = sharing("emulator:3", "local").await;
        session
            .set("warpline.shards", "3")
            .await
            .expect("a setting");
        with_tables(&session, benchmark, 0.003).await;
        let shared = all_queries(&session, benchmark, 0.003).await;
        let count = shared.iter().filter(|shared| **shared).count();
        assert!(count >= 15, "{shared:?}");
    });
}

/// Windows, grouping sets, outer, semi and anti joins, unions, distinct calls, orders with limits, and what is empty.
const QUERIES: &[&str] = &[
    "SELECT o_orderkey, row_number() OVER (PARTITION BY o_custkey ORDER BY o_orderkey) AS n FROM orders",
    "SELECT o_orderkey, rank() OVER (ORDER BY o_totalprice DESC, o_orderkey) AS n FROM orders",
    "SELECT o_orderkey, sum(o_totalprice) OVER (PARTITION BY o_orderstatus ORDER BY o_orderkey \
     ROWS BETWEEN 2 PRECEDING AND CURRENT ROW) AS s FROM orders",
    "SELECT l_returnflag, l_linestatus, sum(l_quantity) AS q, avg(l_discount) AS d, count(*) AS n FROM lineitem \
     GROUP BY ROLLUP (l_returnflag, l_linestatus)",
    "SELECT o_orderstatus, o_orderpriority, count(*) AS n, min(o_totalprice) AS m FROM orders \
     GROUP BY CUBE (o_orderstatus, o_orderpriority)",
    "SELECT o_orderstatus, o_shippriority, grouping(o_orderstatus) AS g, max(o_orderdate) AS d FROM orders \
     GROUP BY GROUPING SETS ((o_orderstatus), (o_shippriority), ())",
    "SELECT c_custkey, count(o_orderkey) AS n, sum(o_totalprice) AS s FROM customer LEFT JOIN orders \
     ON c_custkey = o_custkey GROUP BY c_custkey",
    "SELECT c_custkey, o_orderkey FROM customer FULL JOIN orders ON c_custkey = o_custkey AND o_orderkey % 3 = 0",
    "SELECT c_name FROM customer WHERE NOT EXISTS (SELECT 1 FROM orders WHERE o_custkey = c_custkey)",
    "SELECT count(*) AS n FROM customer WHERE c_custkey NOT IN (SELECT o_custkey FROM orders WHERE o_orderkey > 100)",
    "SELECT count(DISTINCT l_suppkey) AS n, count(DISTINCT l_shipmode) AS m, sum(DISTINCT l_linenumber) AS s FROM lineitem",
    "SELECT l_shipmode FROM lineitem UNION ALL SELECT o_orderpriority FROM orders",
    "SELECT o_custkey FROM orders INTERSECT SELECT c_custkey FROM customer WHERE c_acctbal > 0",
    "SELECT l_orderkey, l_linenumber, l_extendedprice FROM lineitem ORDER BY l_extendedprice DESC, l_orderkey, l_linenumber LIMIT 33",
    "SELECT n_name, r_name FROM nation, region WHERE n_regionkey = r_regionkey AND r_name LIKE 'A%'",
    "SELECT stddev(l_quantity) AS s, var_pop(l_tax) AS v, corr(l_tax, l_discount) AS c FROM lineitem",
    "SELECT l_shipmode, count(*) AS n FROM lineitem WHERE l_quantity < 0 GROUP BY l_shipmode",
    "SELECT sum(l_quantity) AS s, max(l_comment) AS c FROM lineitem WHERE l_orderkey < 0",
    "SELECT o_orderpriority, (SELECT avg(l_quantity) FROM lineitem) AS a FROM orders WHERE o_totalprice > \
     (SELECT avg(o_totalprice) FROM orders)",
    "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t WHERE n < 7) \
     SELECT n, count(*) AS c FROM t JOIN lineitem ON n = l_linenumber GROUP BY n",
    "SELECT count(*) AS n FROM generate_series(1, 100) AS t(v) JOIN nation ON v = n_nationkey",
];

#[test]
fn windows_grouping_sets_and_the_rest() {
    on_a_large_stack(async || {
        let session = session("emulator:2").await;
        with_tables(&session, Benchmark::Tpch, 0.001).await;
        for way in ["stages", "local", "auto"] {
            session
                .set("warpline.shard_plan", way)
                .await
                .expect("a setting");
            for sql in QUERIES {
                check(&session, sql, &format!("{way}: {sql}")).await;
            }
        }
        session
            .set("warpline.shard_plan", "stages")
            .await
            .expect("a setting");
        // Rows that are written come from both.
        let sql = "CREATE TABLE kept AS SELECT l_shipmode, count(*) AS n FROM lineitem GROUP BY l_shipmode";
        session.query(sql).await.expect("a table");
        check(&session, "SELECT * FROM kept", "written").await;
        // With one device fewer and more than there are.
        for device in ["emulator:3", "emulator"] {
            session
                .set("warpline.device", device)
                .await
                .expect("a setting");
            let sql = QUERIES[3];
            let run = check(&session, sql, device).await;
            let used = if device == "emulator" { 0 } else { 2 };
            assert_eq!(run.metrics.devices.len(), used, "{device}");
        }
    });
}

#[test]
fn what_is_planned_in_one_partition_stays_whole() {
    on_a_large_stack(async || {
        let session = session("emulator:2").await;
        with_tables(&session, Benchmark::Tpch, 0.001).await;
        for (partitions, batch) in [("1", "50"), ("2", "8192"), ("1", "8192")] {
            for (key, value) in [
                ("datafusion.execution.target_partitions", partitions),
                ("datafusion.execution.batch_size", batch),
            ] {
                session.set(key, value).await.expect("a setting");
            }
            for sql in QUERIES {
                let when = format!("{sql} in {partitions} partitions, batches of {batch} rows");
                check(&session, sql, &when).await;
            }
        }
    });
}

#[test]
fn later_runs_know_what_earlier_ones_found() {
    on_a_large_stack(async || {
        let session = session("emulator:2").await;
        with_tables(&session, Benchmark::Tpch, 0.001).await;
        for number in [1, 3, 6, 18] {
            let query = &queries::ALL[number - 1];
            let answer = reference_answer(session.reference(), query.reference_sql()).await;
            let (expected, ordering) = answer.expect("an answer");
            for (run, when) in ["the first", "the second", "the third"].iter().enumerate() {
                let when = format!("Q{number}: {when}");
                let done = session.query(&query.sql).await.expect(&when);
                same(&done, &expected, &ordering, &when);
                assert_eq!(done.metrics.devices.len(), 2, "{when}");
                // Rows that come from other devices may be encoded otherwise each time; those of tables are not.
                let compiled = done.metrics.compile_ms > 0.0;
                if number == 6 {
                    assert_eq!(compiled, run == 0, "{when}: {:?}", done.metrics);
                }
            }
        }
        // What was found of other rows does not count.
        let sql = &*queries::ALL[5].sql;
        let before = text(&check(&session, sql, "before").await);
        let insert = "INSERT INTO lineitem SELECT * FROM lineitem";
        session.query(insert).await.expect("twice the rows");
        let after = text(&check(&session, sql, "after").await);
        assert_ne!(before, after);
    });
}

#[test]
fn functions_of_the_session_run_in_stages() {
    use datafusion::arrow::datatypes::DataType;
    use datafusion::logical_expr::{ColumnarValue, Volatility, create_udf};
    on_a_large_stack(async || {
        let session = session("emulator:2").await;
        with_tables(&session, Benchmark::Tpch, 0.001).await;
        let same = |arguments: &[ColumnarValue]| Ok(arguments[0].clone());
        let types = vec![DataType::Utf8View];
        let function = create_udf(
            "unchanged",
            types,
            DataType::Utf8View,
            Volatility::Immutable,
            std::sync::Arc::new(same),
        );
        session.context().register_udf(function.clone());
        session.reference().register_udf(function);
        let sql = "SELECT unchanged(l_shipmode) AS m, count(*) AS n FROM lineitem GROUP BY 1";
        check(&session, sql, sql).await;
    });
}

/// Why parts of a query that a device was to run stayed on the CPU, but for their price: the tables are small.
fn failures(run: &QueryRun) -> Vec<&str> {
    let reasons = run.metrics.fallbacks.iter().map(String::as_str);
    reasons
        .filter(|reason| !reason.contains("costs more"))
        .collect()
}

/// Four queries of different shapes.
const SOME: [usize; 4] = [1, 3, 13, 16];

/// What changes a table does so when it is planned: it is planned once.
#[test]
fn statements_that_change_a_table_do_so_once() {
    on_a_large_stack(async || {
        for way in ["stages", "local", "auto"] {
            let session = sharing("emulator:2", way).await;
            let create =
                "CREATE TABLE t AS SELECT value AS k, value % 7 AS r FROM generate_series(1, 1000)";
            session.query(create).await.expect("a table");
            let count = async |sql: &str| {
                let run = session.query(sql).await.expect(sql);
                let text = text(&run);
                let digits: String = text.chars().filter(char::is_ascii_digit).collect();
                digits
                    .parse::<u64>()
                    .unwrap_or_else(|_| panic!("{sql}: {text}"))
            };
            assert_eq!(count("DELETE FROM t WHERE r = 3").await, 143, "{way}");
            assert_eq!(
                count("UPDATE t SET k = k + 1000 WHERE r = 1").await,
                143,
                "{way}"
            );
            explain(&session, "SELECT count(*) FROM t").await;
            assert_eq!(count("SELECT count(*) FROM t").await, 857, "{way}");
            let sum = "SELECT sum(k) FROM t WHERE r = 1";
            assert_eq!(
                count(sum).await,
                143 * 1000 + (0..143).map(|i| 1 + 7 * i).sum::<u64>()
            );
            assert_eq!(
                count("INSERT INTO t SELECT k, r FROM t").await,
                857,
                "{way}"
            );
            assert_eq!(count("SELECT count(*) FROM t").await, 1714, "{way}");
            assert_eq!(count("DELETE FROM t").await, 1714, "{way}");
            // What has no plan of its own is shown as on one device.
            let prepare = "PREPARE some AS SELECT count(*) AS n FROM t";
            session.query(prepare).await.expect("a statement");
            let shown = session.query("EXPLAIN EXECUTE some").await;
            assert!(text(&shown.expect(way)).contains("Execute"), "{way}");
        }
    });
}

/// The number behind a counter's name in the text of EXPLAIN ANALYZE.
fn counter(plan: &str, name: &str) -> f64 {
    let value = plan.split(&format!("{name}=")).nth(1).expect(name);
    let end = value.find([',', ']']).expect("an end");
    let (number, unit) = value[..end].split_once(' ').unwrap_or((&value[..end], ""));
    let unit = match unit {
        "K" => 1e3,
        "M" => 1e6,
        _ => 1.0,
    };
    number.parse::<f64>().expect("a number") * unit
}

/// What one device has no room for lies on the other one first, and goes back to it.
#[test]
fn the_memory_of_the_other_device_comes_before_the_hosts() {
    on_a_large_stack(async || {
        for (device, reaches) in [("emulator:2", true), ("emulator", false)] {
            let session = WarplineSession::builder()
                .device(device.parse().expect("a device"))
                .set("warpline.min_rows", "0")
                // All of a query runs on the first.
                .set("warpline.shards", "1")
                .set("warpline.join", "triton")
                .set("warpline.index_joins", "off")
                .set("warpline.device_memory", "768KiB")
                .open()
                .await
                .expect("a session");
            for (name, factor) in [("a", 7), ("b", 11)] {
                let sql = format!(
                    "CREATE TABLE {name} AS SELECT value * {factor} % 60000 * 1000000007 AS k, value * 1000003 AS v \
                     FROM generate_series(1, 60000)"
                );
                session.query(&sql).await.expect("a table");
            }
            let joined =
                "SELECT count(*) AS n, sum(a.v) AS x, sum(b.v) AS y FROM a JOIN b ON a.k = b.k";
            let grouped = "SELECT k, sum(v) AS s, min(v) AS m FROM a GROUP BY k";
            for sql in [joined, grouped, joined] {
                check(&session, sql, device).await;
                let plan = explain(&session, &format!("ANALYZE {sql}")).await;
                let on_peers = counter(&plan, "bytes_on_peers");
                assert!(on_peers == 0.0 || reaches, "{plan}");
                if sql == joined {
                    assert_eq!(on_peers > 0.0, reaches, "{plan}");
                    // The other device has not room for all.
                    assert!(counter(&plan, "bytes_spilled") > 0.0, "{plan}");
                }
                for runtime in session.device().runtimes() {
                    let peers = runtime.peer_pool().map(|pool| pool.statistics());
                    let held = peers.map(|peers| (peers.in_use, peers.cached));
                    assert_eq!(held.unwrap_or_default(), (0, 0), "{sql}");
                }
            }
            // Where tables have room and the rows of a join's sides have not, these are made stride by stride as well.
            let setting = "SET warpline.device_memory = '2304KiB'";
            session.query(setting).await.expect("a setting");
            check(&session, joined, device).await;
            let plan = explain(&session, &format!("ANALYZE {joined}")).await;
            assert!(counter(&plan, "join_parts") > 1.0, "{plan}");
            let [on_peers, spilled] =
                ["bytes_on_peers", "bytes_spilled"].map(|name| counter(&plan, name));
            assert_eq!(on_peers > 4.0 * spilled, reaches, "{plan}");
        }
    });
}

#[test]
fn failures_of_one_device_are_survived() {
    on_a_large_stack(async || failures_are_survived("stages").await);
}

#[test]
fn failures_of_one_device_of_shards_are_survived() {
    on_a_large_stack(async || failures_are_survived("local").await);
}

async fn failures_are_survived(shard_plan: &str) {
    let session = sharing("emulator:2", shard_plan).await;
    with_tables(&session, Benchmark::Tpch, 0.001).await;
    let runtimes = session.device().runtimes();
    let mut answers = Vec::new();
    for number in SOME {
        let query = &queries::ALL[number - 1];
        let answer = reference_answer(session.reference(), query.reference_sql()).await;
        answers.push((query, answer.expect("an answer")));
    }
    for (victim, runtime) in runtimes.iter().enumerate() {
        for rules in [
            "allocate:1",
            "allocate:3:1000",
            "copy:1",
            "upload:2",
            "download:1",
            "fill:1",
            "launch:1",
            "launch:3:1000",
            "compile:1:1000",
            "synchronize:1",
            "stream:1",
            "launch:random:7:0.5",
        ] {
            let mut injected = 0;
            for (query, (expected, ordering)) in &answers {
                let when = format!("Q{} with {rules} on device {victim}", query.number);
                session.device().evict().expect("evicted");
                let plan: FailurePlan = rules.parse().expect("rules");
                let plan = std::sync::Arc::new(plan);
                runtime.inject_failures(Some(std::sync::Arc::clone(&plan)));
                let run = session.query(&query.sql).await;
                let run = run.unwrap_or_else(|e| panic!("{when}: {e}"));
                runtime.inject_failures(None);
                same(&run, expected, ordering, &when);
                injected += plan.injected();
            }
            // Kernels may all be compiled, and streams and fills be there.
            let rare = ["compile", "stream", "fill", "copy"];
            assert!(
                injected > 0 || rare.iter().any(|rare| rules.starts_with(rare)),
                "{rules}"
            );
            let (query, (expected, ordering)) = &answers[0];
            let run = session.query(&query.sql).await.expect("the next query");
            same(&run, expected, ordering, "afterwards");
            assert_eq!(run.metrics.devices.len(), 2, "after {rules}");
            assert_eq!(failures(&run), [""; 0], "after {rules}");
        }
    }
    session.device().evict().expect("evicted");
    for state in session.device().states() {
        assert_eq!(state.memory.in_use, 0, "{}", state.name);
    }
}

#[test]
fn a_lost_device_is_left_out_and_comes_back() {
    on_a_large_stack(async || {
        for (victim, way) in [(0, "stages"), (1, "local")] {
            let session = sharing("emulator:3", way).await;
            session
                .set("warpline.shards", "3")
                .await
                .expect("a setting");
            with_tables(&session, Benchmark::Tpch, 0.001).await;
            let sql = &*queries::ALL[2].sql;
            let run = check(&session, sql, "before").await;
            assert_eq!(run.metrics.devices.len(), 3);
            let runtime = &session.device().runtimes()[victim];
            let plan: FailurePlan = "lost:1".parse().expect("rules");
            runtime.inject_failures(Some(std::sync::Arc::new(plan)));
            session.device().evict().expect("evicted");
            // The query that loses it has its answer from the others and the CPU.
            check(&session, sql, "meanwhile").await;
            let lost = format!("emulator:{victim}");
            assert!(runtime.lost().is_some(), "{lost}");
            let run = check(&session, sql, "with those that are left").await;
            let used: Vec<&str> = run.metrics.devices.iter().map(|d| &*d.device).collect();
            assert_eq!(used.len(), 2);
            assert!(!used.contains(&&*lost), "{used:?}");
            assert_eq!(failures(&run), [""; 0]);
            let plan = explain(&session, sql).await;
            assert!(plan.contains(&format!("device {lost}: lost")), "{plan}");
            // What is not shared goes to the first that is left.
            session
                .set("warpline.shards", "1")
                .await
                .expect("a setting");
            let run = check(&session, sql, "alone").await;
            assert!(run.metrics.kernels > 0 && run.metrics.devices.is_empty());
            session
                .set("warpline.shards", "3")
                .await
                .expect("a setting");
            session
                .set("warpline.device", "emulator:3")
                .await
                .expect("a setting");
            let run = check(&session, sql, "opened again").await;
            assert_eq!(run.metrics.devices.len(), 3);
        }
    });
}

#[test]
fn what_is_small_stays_on_one() {
    on_a_large_stack(async || {
        let session = session("emulator:2").await;
        with_tables(&session, Benchmark::Tpch, 0.001).await;
        let sql = &*queries::ALL[0].sql;
        let plan = explain(&session, sql).await;
        for part in [
            "NetworkShuffleExec",
            "device emulator:0: task 0",
            "device emulator:1: task 1",
        ] {
            assert!(plan.contains(part), "{part}: {plan}");
        }
        let plan = explain(&session, &format!("ANALYZE {sql}")).await;
        for part in [
            "device emulator:0: ",
            "device emulator:1: ",
            " kernels in ",
            "output_rows=",
        ] {
            assert!(plan.contains(part), "{part}: {plan}");
        }
        session
            .set("warpline.shards", "auto")
            .await
            .expect("a setting");
        let plan = explain(&session, sql).await;
        let why = "device emulator:0 of 2: sharing it gains nothing (warpline.shards = auto)";
        assert!(plan.contains(why) && !plan.contains("Network"), "{plan}");
        let run = check(&session, sql, "on one").await;
        assert!(run.metrics.devices.is_empty() && run.metrics.kernels > 0);
        // One does not hold it: all share it.
        session
            .set("warpline.device_memory", "256KiB")
            .await
            .expect("a setting");
        check(&session, sql, "a smaller budget").await;
        let plan = explain(&session, sql).await;
        assert!(plan.contains("NetworkShuffleExec"), "{plan}");
        for state in session.device().states() {
            assert_eq!(state.memory.budget, 256 << 10, "{}", state.name);
        }
        session
            .set("warpline.device_memory", "0")
            .await
            .expect("a setting");
        // A limit of time is the whole query's.
        session
            .set("warpline.shards", "2")
            .await
            .expect("a setting");
        session
            .set("warpline.time_limit", "1ms")
            .await
            .expect("a setting");
        let error = session.query(&queries::ALL[20].sql).await.map(drop);
        let error = error.expect_err("too late").to_string();
        assert!(error.contains("time_limit"), "{error}");
    });
}

#[tokio::test]
async fn devices_that_are_not_there_are_one_error() {
    for (given, part) in [
        ("cuda:0,0", "twice"),
        ("cuda:0,emulator", "one kind"),
        ("emulator:0", "emulator:1"),
        ("abacus,cuda:1", "cuda:all"),
    ] {
        let builder = WarplineSession::builder().set("warpline.device", given);
        let error = builder.open().await.map(drop).expect_err(given);
        assert!(matches!(error, Error::DeviceName { .. }), "{error}");
        assert!(error.to_string().contains(part), "{error}");
        program(&["--device", given, "-c", "SELECT 1"]).refuses_with(&[part]);
    }
    let missing: DeviceChoice = "cuda:62,63".parse().expect("a choice");
    let error = WarplineSession::builder().device(missing).open().await;
    let error = error.map(drop).expect_err("no such GPU").to_string();
    assert!(error.contains("cuda"), "{error}");
    // A session of one device does not become one of several.
    let session = WarplineSession::builder().device(DeviceChoice::Emulator);
    let session = session.open().await.expect("a session");
    session
        .set("warpline.device", "emulator:2")
        .await
        .expect("a setting");
    let error = session.query("SELECT 1").await.map(drop);
    let error = error.expect_err("several").to_string();
    assert!(error.contains("emulator:2 is several devices"), "{error}");
}

#[test]
fn a_worker_of_several_devices_is_one_each() {
    let listen = ["worker", "--listen", "127.0.0.1:65535"];
    // The second has no port.
    program(&[&listen[..], &["--device", "emulator:2"]].concat()).fails_with(&["65535"]);
    on_a_large_stack(async || {
        let devices = Device::open("emulator:2".parse().expect("a device"), None);
        let devices = devices.expect("emulators");
        let options = WorkerOptions::at("127.0.0.1:0".parse().expect("an address"));
        let error = Worker::start(options, &devices).await.map(drop);
        let error = error.expect_err("one device a worker").to_string();
        assert!(error.contains("emulator:0, emulator:1"), "{error}");
        let runtime = std::sync::Arc::default();
        let cluster = Cluster::in_process(std::slice::from_ref(&devices), &runtime).await;
        let cluster = cluster.expect("workers");
        let names: Vec<String> = cluster
            .workers()
            .into_iter()
            .map(|(_, name)| name)
            .collect();
        assert_eq!(names, ["emulator:0", "emulator:1"]);
        // Beside a cluster a session has one device.
        let builder = WarplineSession::builder().shared_device(&devices);
        let error = builder.cluster(&cluster).open().await.map(drop);
        let error = error.expect_err("several devices").to_string();
        assert!(error.contains("several devices"), "{error}");
    });
}

#[test]
fn the_shell_and_the_benchmark_name_each_device() {
    let folder = tempfile::tempdir().expect("a folder");
    let tables = folder.path().join("tables").display().to_string();
    let several = ["--device", "emulator:2", "--set", "warpline.shards=2"];
    program(&["tpch", "generate", "--scale", "0.001", "--output", &tables]).ok();
    let report = [
        "tpch",
        "--data",
        &tables,
        "--query",
        "1",
        "--runs",
        "1",
        "--verify",
        "--format",
        "json",
        "--set",
        "warpline.min_rows=0",
    ];
    let outcome = program(&[&report[..], &several].concat()).ok();
    let report: serde_json::Value = serde_json::from_str(&outcome.stdout).expect("JSON");
    let facts = report["environment"]["devices"]
        .as_array()
        .expect("devices");
    let ids: Vec<&str> = facts
        .iter()
        .filter_map(|device| device["id"].as_str())
        .collect();
    assert_eq!(ids, ["emulator:0", "emulator:1"]);
    assert_eq!(report["queries"][0]["verified"], true);
    let outcome = program(&[&["-c", "\\memory"][..], &several].concat()).ok();
    for part in ["emulator:0", "emulator:1", "in use"] {
        assert!(outcome.stdout.contains(part), "{}", outcome.stdout);
    }
    assert!(Path::new(&tables).exists());
}
