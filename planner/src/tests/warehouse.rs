//! A warehouse with ten tables of facts and dimensions, its statistics at a large scale, and the
//! graphs of queries over it.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, Field, Schema};
use datafusion::execution::SessionStateBuilder;
use datafusion::prelude::{ParquetReadOptions, SessionConfig, SessionContext};
use datafusion::scalar::ScalarValue;
use warpline_gpu::column::ColumnStatistics;

use crate::config::IndexJoins;
use crate::fragment::FragmentPlanner;
use crate::rel::ScanTable;
use crate::stats::TableFacts;

/// Tables: name, rows in the session, rows that statistics speak of, columns. A column is `name type [facts]`:
/// `u` unique and in order, `o` in order, `dN` N distinct values, `lo..hi` a range.
const TABLES: &[(&str, usize, f64, &[&str])] = &[
    (
        "region",
        5,
        5.0,
        &["r_regionkey i u 0..4", "r_name s d5 u", "r_comment s d5"],
    ),
    (
        "nation",
        25,
        25.0,
        &[
            "n_nationkey i u 0..24",
            "n_name s d25 u",
            "n_regionkey i 0..4",
            "n_comment s d25",
        ],
    ),
    (
        "supplier",
        10,
        1e6,
        &[
            "s_suppkey i u 1..1000000",
            "s_name s d1000000 u",
            "s_address s d1000000",
            "s_nationkey i 0..24",
            "s_phone s d1000000",
            "s_acctbal m -99999..999999",
            "s_comment s d1000000",
        ],
    ),
    (
        "customer",
        150,
        15e6,
        &[
            "c_custkey i u 1..15000000",
            "c_name s d15000000 u",
            "c_address s d15000000",
            "c_nationkey i 0..24",
            "c_phone s d15000000",
            "c_acctbal m -99999..999999",
            "c_mktsegment s d5",
            "c_comment s d15000000",
        ],
    ),
    (
        "part",
        200,
        20e6,
        &[
            "p_partkey i u 1..20000000",
            "p_name s d19000000",
            "p_mfgr s d5",
            "p_brand s d25",
            "p_type s d150",
            "p_size i 1..50",
            "p_container s d40",
            "p_retailprice m 90000..209900",
            "p_comment s d3000000",
        ],
    ),
    (
        "partsupp",
        800,
        80e6,
        &[
            "ps_partkey i o 1..20000000",
            "ps_suppkey i 1..1000000",
            "ps_availqty i 1..9999",
            "ps_supplycost m 100..100000",
            "ps_comment s d70000000",
        ],
    ),
    (
        "orders",
        1500,
        150e6,
        &[
            "o_orderkey i u 1..600000000",
            "o_custkey i 1..15000000",
            "o_orderstatus s d3",
            "o_totalprice m 80000..60000000",
            "o_orderdate d 8036..10440",
            "o_orderpriority s d5",
            "o_clerk s d100000",
            "o_shippriority i 0..0",
            "o_comment s d140000000",
        ],
    ),
    (
        "lineitem",
        6000,
        600e6,
        &[
            "l_orderkey i o d150000000 1..600000000",
            "l_partkey i 1..20000000",
            "l_suppkey i 1..1000000",
            "l_linenumber i 1..7",
            "l_quantity m 100..5000",
            "l_extendedprice m 90000..10494950",
            "l_discount m 0..10",
            "l_tax m 0..8",
            "l_returnflag s d3",
            "l_linestatus s d2",
            "l_shipdate d 8037..10561",
            "l_commitdate d 8066..10530",
            "l_receiptdate d 8038..10591",
            "l_shipinstruct s d4",
            "l_shipmode s d7",
            "l_comment s d300000000",
        ],
    ),
    (
        "ledger",
        90,
        134e6,
        &[
            "g_account i d134000000 1..134000000",
            "g_limit i 1..60000000",
            "g_balance i 1..60000000",
        ],
    ),
    (
        "posting",
        90,
        134e6,
        &[
            "t_account i d150000 1..134000000",
            "t_booked i 1..60000000",
            "t_amount i 1..60000000",
        ],
    ),
];

/// What is known of every column, by name.
pub(crate) struct Facts {
    rows: HashMap<String, f64>,
    columns: HashMap<String, ColumnStatistics>,
}

impl Facts {
    pub(crate) fn new() -> Self {
        let mut facts = Self {
            rows: HashMap::new(),
            columns: HashMap::new(),
        };
        for (_, _, rows, columns) in TABLES {
            for text in *columns {
                let mut words = text.split(' ');
                let name = words.next().unwrap().to_string();
                let kind = words.next().unwrap();
                let mut statistics = ColumnStatistics::default();
                for word in words {
                    if let Some((low, high)) = word.split_once("..") {
                        statistics.range = Some((low.parse().unwrap(), high.parse().unwrap()));
                    } else if let Some(distinct) = word.strip_prefix('d') {
                        statistics.distinct = Some(distinct.parse().unwrap());
                    } else {
                        statistics.sorted = true;
                        statistics.unique = word == "u";
                    }
                }
                if kind == "s" {
                    let distinct = statistics.distinct.unwrap() as i128;
                    statistics.range = Some((0, distinct - 1));
                }
                self::Facts::known(&mut facts, name, *rows, statistics);
            }
        }
        facts
    }

    fn known(&mut self, column: String, rows: f64, statistics: ColumnStatistics) {
        self.rows.insert(column.clone(), rows);
        self.columns.insert(column, statistics);
    }
}

impl TableFacts for Facts {
    fn rows(&self, table: &Arc<ScanTable>) -> f64 {
        self.rows[table.source.schema().field(0).name()]
    }

    fn column(&self, table: &Arc<ScanTable>, column: usize) -> Option<&ColumnStatistics> {
        self.columns.get(table.source.schema().field(column).name())
    }
}

/// A session with the tables, small, in files whose names are the tables'.
pub(crate) async fn session() -> SessionContext {
    static FILES: tokio::sync::OnceCell<tempfile::TempDir> = tokio::sync::OnceCell::const_new();
    let directory = FILES.get_or_init(write_tables).await.path().to_path_buf();
    let context = empty();
    for (table, ..) in TABLES {
        let path = directory.join(format!("{table}.parquet"));
        context
            .register_parquet(
                *table,
                path.to_str().unwrap(),
                ParquetReadOptions::default(),
            )
            .await
            .unwrap();
    }
    context
}

fn empty() -> SessionContext {
    let config = SessionConfig::new().with_target_partitions(1);
    let state = SessionStateBuilder::new()
        .with_default_features()
        .with_config(config)
        .build();
    SessionContext::new_with_state(state)
}

async fn write_tables() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let context = empty();
    for (table, rows, _, columns) in TABLES {
        let fields: Vec<Field> = columns
            .iter()
            .map(|text| {
                let mut words = text.split(' ');
                let name = words.next().unwrap();
                let data_type = match words.next().unwrap() {
                    "i" => DataType::Int64,
                    "s" => DataType::Utf8View,
                    "m" => DataType::Decimal128(15, 2),
                    _ => DataType::Date32,
                };
                Field::new(name, data_type, false)
            })
            .collect();
        let schema = Arc::new(Schema::new(fields));
        let arrays = schema
            .fields()
            .iter()
            .map(|f| {
                let value = ScalarValue::new_default(f.data_type()).unwrap();
                value.to_array_of_size(*rows).unwrap()
            })
            .collect();
        let batch = RecordBatch::try_new(Arc::clone(&schema), arrays).unwrap();
        let path = directory.path().join(format!("{table}.parquet"));
        let frame = context.read_batch(batch).unwrap();
        frame
            .write_parquet(path.to_str().unwrap(), Default::default(), None)
            .await
            .unwrap();
    }
    directory
}

/// The fragment that computes all of a query, with every index built for it.
pub(crate) async fn fragment(sql: &str) -> FragmentPlanner {
    fragment_with(sql, IndexJoins::Off).await
}

async fn fragment_with(sql: &str, index_joins: IndexJoins) -> FragmentPlanner {
    let plan = crate::tests::plan(&session().await, sql).await;
    let config = crate::WarplineConfig {
        index_joins,
        ..crate::WarplineConfig::default()
    };
    FragmentPlanner::try_new(&plan, &config).unwrap_or_else(|refusal| {
        panic!(
            "{sql}\n{}: {}\n{}",
            refusal.at.name(),
            refusal.reason,
            crate::tests::text(&plan)
        )
    })
}

/// The graph of a query as text.
pub(crate) async fn graph(sql: &str) -> String {
    graph_with(sql, IndexJoins::Off).await
}

/// The same with indexes over whole tables kept as `index_joins` says.
pub(crate) async fn graph_with(sql: &str, index_joins: IndexJoins) -> String {
    let planner = fragment_with(sql, index_joins).await;
    let graph = planner
        .graph_with(&Facts::new(), &HashSet::new())
        .unwrap_or_else(|reason| panic!("{sql}: {reason}"));
    super::check::check(&graph);
    graph.to_string()
}

/// Prints the graphs of the queries in the files that `WARPLINE_QUERIES` names.
#[tokio::test]
#[ignore = "prints, checks little; for looking at plans"]
async fn print_graphs() {
    let directory = std::env::var("WARPLINE_QUERIES").unwrap();
    let mut files: Vec<_> = std::fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    for file in files {
        let sql = std::fs::read_to_string(&file).unwrap();
        let planner = fragment(&sql).await;
        println!("=== {}\n{}\n", file.display(), planner.rel());
        println!("{}\n", graph(&sql).await);
    }
}
