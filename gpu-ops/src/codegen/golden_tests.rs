//! The text of generated kernels against golden files: what a change does to them shows in its diff.
//!
//! `WARPLINE_BLESS=1` rewrites the files. A file has all kernels of one small graph, in launch order, each below its
//! launch geometry. Fixed tables and a fixed device: nothing in the text depends on the machine.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::HashSet;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{
    ArrayRef, Decimal128Array, Float64Array, Int32Array, Int64Array, StringViewArray,
};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::common::DFSchema;
use datafusion::physical_plan::empty::EmptyExec;
use datafusion::prelude::SessionContext;
use datafusion::scalar::ScalarValue;

use super::ir::program::{KernelProgram, Program, StepProgram};
use crate::algorithm::{Balance, MaterializedJoin};
use crate::column::{StringPolicy, encode};
use crate::device::emulated::EmulatedDevice;
use crate::device::{Device, DeviceInfo};
use crate::error::{GpuError, Result};
use crate::expr::{BinaryOp, Expr, Node};
use crate::graph::{
    Build, Graph, IndexChoice, IndexKind, IndexProfile, Parts, Pipeline, Policy, Probe, ProbeKind,
    ResultColumn, ResultKind, ResultSpec, Sink, Sort, SortKey, Source, Stage, Step, TreeOptions,
};
use crate::memory::MemoryPool;
use crate::pipeline::{
    Aggregate, AggregateCall, AggregateFunction, GroupPlacement, GroupProfile, PlacementChoice,
    PlacementPolicy, Regroup, ScanSource,
};
use crate::tables::{LoadedTable, TableSource};

const ROWS: i32 = 5000;

/// Columns of the one table.
const ID: usize = 0;
const STATUS: usize = 1;
const CUSTOMER: usize = 2;
const PRICE: usize = 3;
const COMMENT: usize = 4;
const MODE: usize = 5;
const WEIGHT: usize = 6;
const HASH: usize = 7;

fn price_type() -> DataType {
    DataType::Decimal128(12, 2)
}

fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("id", DataType::Int32, false),
        Field::new("status", DataType::Int32, true),
        Field::new("customer", DataType::Int64, false),
        Field::new("price", price_type(), false),
        Field::new("comment", DataType::Utf8View, true),
        Field::new("mode", DataType::Utf8View, false),
        Field::new("weight", DataType::Float64, true),
        Field::new("hash", DataType::Int64, false),
    ]))
}

/// Unique, few with NULLs, spread over 2^40, decimals, bytes, codes, floats with NULLs, all 64 bits.
fn table(device: &Arc<dyn Device>) -> LoadedTable {
    let pool = MemoryPool::new(Arc::clone(device), 64 << 20);
    let stream = device.create_stream().unwrap();
    let numbers = || (0..ROWS).map(i64::from);
    let price = Decimal128Array::from_iter_values(numbers().map(|i| i128::from(i * 37 % 100_000)));
    let comment = (0..ROWS).map(|i| (i % 11 > 0).then(|| format!("comment {i}")));
    let columns: [(ArrayRef, StringPolicy); 8] = [
        (
            Arc::new(Int32Array::from_iter_values(0..ROWS)),
            StringPolicy::Auto,
        ),
        (
            Arc::new(Int32Array::from_iter(
                (0..ROWS).map(|i| (i % 10 > 0).then_some(i % 10)),
            )),
            StringPolicy::Auto,
        ),
        (
            Arc::new(Int64Array::from_iter_values(
                numbers().map(|i| (i % 700) << 30),
            )),
            StringPolicy::Auto,
        ),
        (
            Arc::new(price.with_precision_and_scale(12, 2).unwrap()),
            StringPolicy::Auto,
        ),
        (
            Arc::new(StringViewArray::from_iter(comment)),
            StringPolicy::AlwaysBytes,
        ),
        (
            Arc::new(StringViewArray::from_iter_values(
                (0..ROWS).map(|i| ["AIR", "MAIL", "SHIP"][i as usize % 3]),
            )),
            StringPolicy::AlwaysDictionary,
        ),
        (
            Arc::new(Float64Array::from_iter(
                numbers().map(|i| (i % 5 > 0).then_some(i as f64 / 3.0)),
            )),
            StringPolicy::Auto,
        ),
        (
            Arc::new(Int64Array::from_iter_values(
                numbers().map(|i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15_u64 as i64)),
            )),
            StringPolicy::Auto,
        ),
    ];
    LoadedTable {
        rows: ROWS as usize,
        columns: columns
            .iter()
            .map(|(array, policy)| Arc::new(encode(array, *policy, &pool, &stream).unwrap()))
            .collect(),
        load_ms: 0.0,
        bytes_uploaded: 0,
        columns_loaded: columns.len(),
    }
}

/// A card of a size of its own, whatever runs the test.
fn device() -> DeviceInfo {
    DeviceInfo {
        name: "golden".into(),
        id: "golden".into(),
        memory: 80 << 30,
        compute_capability: (9, 0),
        multiprocessors: 132,
        shared_memory_per_block: 227 << 10,
        shared_memory_per_multiprocessor: 228 << 10,
        l2_cache: 50 << 20,
        driver: String::new(),
        compiler: String::new(),
        emulated: false,
    }
}

/// Always the same answers.
#[derive(Debug)]
struct Fixed {
    groups: GroupPlacement,
    index: IndexKind,
}

impl PlacementPolicy for Fixed {
    fn place_groups(&self, _: &GroupProfile, _: &DeviceInfo) -> PlacementChoice {
        PlacementChoice {
            placement: self.groups,
            reason: String::new(),
        }
    }
}

impl Policy for Fixed {
    fn scans(&self) -> &[ScanSource] {
        &[]
    }

    fn graph(&self, _: &[LoadedTable], _: &HashSet<String>, _: u64) -> Result<Graph> {
        Err(GpuError::Internal("no graph of its own".into()))
    }

    fn place_index(&self, profile: &IndexProfile, _: &DeviceInfo) -> IndexChoice {
        let perfect = self.index == IndexKind::Perfect && profile.domain.is_none();
        IndexChoice {
            kind: if perfect { IndexKind::Hash } else { self.index },
            reason: String::new(),
        }
    }

    fn describe(&self) -> String {
        String::new()
    }
}

/// A graph under construction over the one table.
struct Case {
    results: Vec<ResultSpec>,
    steps: Vec<Step>,
    balance: Balance,
    groups: GroupPlacement,
    index: IndexKind,
}

impl Case {
    fn new() -> Self {
        Self {
            results: vec![],
            steps: vec![],
            balance: Balance::NifsAws,
            groups: GroupPlacement::GlobalDense,
            index: IndexKind::Perfect,
        }
    }

    fn grouped(groups: GroupPlacement) -> Self {
        Self {
            groups,
            ..Self::new()
        }
    }

    fn indexed(index: IndexKind) -> Self {
        Self {
            index,
            ..Self::new()
        }
    }

    fn result(&mut self, kind: fn(Vec<ResultColumn>) -> ResultKind, columns: &[Expr]) -> usize {
        let columns = columns
            .iter()
            .enumerate()
            .map(|(i, column)| ResultColumn {
                name: format!("x{i}"),
                data_type: column.data_type.clone(),
                nullable: column.nullable,
            })
            .collect();
        let id = self.results.len();
        self.results.push(ResultSpec {
            kind: kind(columns),
            estimate: 1000,
            input: 5000,
            name: format!("result {id}"),
        });
        id
    }

    fn step(&mut self, source: Source, stages: Vec<Stage>, sink: Sink) {
        self.steps.push(Step::Pipeline(Pipeline {
            source,
            stages,
            sink,
        }));
    }

    /// Rows of `source` after `stages`.
    fn rows(&mut self, source: Source, stages: Vec<Stage>, columns: Vec<Expr>) -> usize {
        let into = self.result(ResultKind::Rows, &columns);
        self.step(source, stages, Sink::Rows { into, columns });
        into
    }

    /// Groups of the table's rows after `stages`, and their rows.
    fn aggregate(&mut self, stages: Vec<Stage>, keys: Vec<Expr>, calls: Vec<AggregateCall>) {
        let mut columns = keys.clone();
        columns.extend(calls.iter().enumerate().map(|(i, call)| {
            let nullable = call.function != AggregateFunction::Count;
            Expr::column(keys.len() + i, call.return_type.clone(), nullable)
        }));
        let into = self.result(ResultKind::Groups, &columns);
        let aggregate = Aggregate { keys, calls };
        self.step(Source::Scan(0), stages, Sink::Aggregate { into, aggregate });
        let read = columns
            .iter()
            .enumerate()
            .map(|(i, c)| Expr::column(i, c.data_type.clone(), c.nullable))
            .collect();
        self.rows(Source::Groups(into), vec![], read);
    }

    /// An index of the table's rows by `keys`.
    fn build(&mut self, keys: Vec<Expr>, payload: Vec<Expr>, options: fn(&mut Build)) -> usize {
        let into = self.result(ResultKind::Index, &payload);
        let mut build = Build {
            keys,
            payload,
            unique: false,
            null_equal: false,
            track_matches: false,
            existence: false,
            join: None,
            prefer_hash: false,
            reason: String::new(),
        };
        options(&mut build);
        self.step(Source::Scan(0), vec![], Sink::Build { into, build });
        into
    }

    /// The pairs of the table's rows with an index, and their rows.
    fn pairs(&mut self, probe: Probe, columns: Vec<Expr>, pairs: Vec<Expr>) -> usize {
        let into = self.result(ResultKind::Matches, &columns);
        let sink = Sink::Matches {
            into,
            probe,
            columns,
        };
        self.step(Source::Scan(0), vec![], sink);
        self.rows(Source::Pairs(into), vec![], pairs)
    }

    /// Every kernel with its geometry; the last result is the output.
    fn text(self) -> String {
        let emulator: Arc<dyn Device> = Arc::new(EmulatedDevice::open().unwrap());
        let empty: Arc<dyn datafusion::physical_plan::ExecutionPlan> =
            Arc::new(EmptyExec::new(schema()));
        let graph = Graph {
            scans: vec![ScanSource {
                table: TableSource::analyze(&empty).unwrap().source,
                columns: (0..schema().fields().len()).collect(),
                fields: schema().fields().iter().cloned().collect(),
                name: "sales".into(),
                needs_codes: vec![],
            }],
            output: self.results.len() - 1,
            results: self.results,
            steps: self.steps,
            schema: schema(),
            tree: TreeOptions {
                balance: self.balance,
                ..TreeOptions::default()
            },
            keep_indexes: false,
            parts: Parts::Never,
            group_room: None,
        };
        let policy = Fixed {
            groups: self.groups,
            index: self.index,
        };
        let tables = [table(&emulator)];
        let program = Program::new(&graph, &tables, &policy, &device()).unwrap();
        let mut text = String::new();
        for step in &program.steps {
            match step {
                StepProgram::Pipeline(kernel) => write(&mut text, "", kernel),
                StepProgram::Sort(sort) => {
                    if let Some(keys) = &sort.keys {
                        write(&mut text, "keys of ", keys);
                    }
                    write(&mut text, "gather ", &sort.gather);
                }
                StepProgram::Borrow(borrow) => {
                    let _ = writeln!(text, "// {}: no kernel\n", borrow.label);
                }
            }
        }
        text
    }
}

fn write(text: &mut String, what: &str, kernel: &KernelProgram) {
    let _ = writeln!(
        text,
        "// {what}{}: {:?}, {} threads, {} rows a tile, {} bytes shared{}\n{}",
        kernel.label,
        kernel.source_rows,
        kernel.block_threads,
        kernel.tile_rows,
        kernel.shared_bytes,
        if kernel.in_place { ", in place" } else { "" },
        kernel.source
    );
}

/// Column of the table.
fn column(index: usize) -> Expr {
    let schema = schema();
    let field = schema.field(index);
    Expr::column(index, field.data_type().clone(), field.is_nullable())
}

/// Column of a later scope that is like a column of the table.
fn like(place: usize, index: usize, nullable: bool) -> Expr {
    Expr::column(place, column(index).data_type, nullable)
}

fn binary(op: BinaryOp, left: Expr, right: Expr, data_type: DataType) -> Expr {
    Expr {
        nullable: left.nullable || right.nullable,
        node: Node::Binary {
            op,
            left: Box::new(left),
            right: Box::new(right),
        },
        data_type,
    }
}

fn below(index: usize, value: ScalarValue) -> Expr {
    let literal = Expr::literal(value);
    binary(BinaryOp::Lt, column(index), literal, DataType::Boolean)
}

fn small(limit: i32) -> Stage {
    Stage::Filter(vec![below(ID, ScalarValue::Int32(Some(limit)))])
}

/// A function of one string column.
fn text(index: usize, sql: &str) -> Expr {
    let field = Field::new("s", DataType::Utf8View, true);
    let schema = DFSchema::try_from(Schema::new(vec![field])).unwrap();
    let context = SessionContext::new();
    let expr = context.parse_sql_expr(sql, &schema).unwrap();
    let function = context.create_physical_expr(expr, &schema).unwrap();
    Expr {
        data_type: function.data_type(schema.as_arrow()).unwrap(),
        nullable: true,
        node: Node::PerDistinct {
            column: index,
            function,
        },
    }
}

fn call(
    function: AggregateFunction,
    argument: Option<Expr>,
    return_type: DataType,
) -> AggregateCall {
    AggregateCall {
        function,
        argument,
        filter: None,
        distinct: false,
        return_type,
        name: function.name().into(),
    }
}

fn count() -> AggregateCall {
    call(AggregateFunction::Count, None, DataType::Int64)
}

fn sum(argument: Expr, return_type: DataType) -> AggregateCall {
    call(AggregateFunction::Sum, Some(argument), return_type)
}

fn sum_of_prices() -> AggregateCall {
    sum(column(PRICE), DataType::Decimal128(22, 2))
}

fn least_weight() -> AggregateCall {
    let weight = Some(column(WEIGHT));
    call(AggregateFunction::Min, weight, DataType::Float64)
}

fn probe(index: usize, kind: ProbeKind, keys: Vec<Expr>) -> Probe {
    Probe {
        index,
        keys,
        kind,
        residual: vec![],
        mark_entries: false,
    }
}

/// Compares with the golden file `name`, or rewrites it.
fn check(name: &str, case: Case) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("src/codegen/golden")
        .join(name)
        .with_extension("cu");
    let text = case.text();
    if std::env::var_os("WARPLINE_BLESS").is_some_and(|value| value == "1") {
        std::fs::write(&path, text).unwrap();
        return;
    }
    let golden = std::fs::read_to_string(&path).unwrap_or_default();
    if text == golden {
        return;
    }
    let lines = text.lines().zip(golden.lines());
    let first = lines.take_while(|(new, old)| new == old).count();
    panic!(
        "{} is no longer what is generated, from line {} on:\n  golden: {}\n  now:    {}\n\
         Is that intended? WARPLINE_BLESS=1 rewrites golden files; the diff then shows every change.",
        path.display(),
        first + 1,
        golden.lines().nth(first).unwrap_or("(the end)"),
        text.lines().nth(first).unwrap_or("(the end)"),
    );
}

#[test]
fn scan_filter_sum() {
    let mut case = Case::new();
    let heavy = below(WEIGHT, ScalarValue::Float64(Some(900.5)));
    let filter = Stage::Filter(vec![below(ID, ScalarValue::Int32(Some(500))), heavy]);
    let product = binary(
        BinaryOp::Multiply,
        column(PRICE),
        column(PRICE),
        DataType::Decimal128(25, 4),
    );
    let calls = vec![sum(product, DataType::Decimal128(35, 4)), count()];
    case.aggregate(vec![filter], vec![], calls);
    check("scan_filter_sum", case);
}

#[test]
fn group_dense() {
    let mut case = Case::grouped(GroupPlacement::GlobalDense);
    let calls = vec![sum_of_prices(), count(), least_weight()];
    case.aggregate(vec![small(4000)], vec![column(STATUS)], calls);
    check("group_dense", case);
}

#[test]
fn group_shared() {
    let mut case = Case::grouped(GroupPlacement::Shared);
    let keys = vec![column(STATUS), column(MODE)];
    case.aggregate(vec![], keys, vec![sum_of_prices(), count()]);
    check("group_shared", case);
}

#[test]
fn group_hash() {
    let mut case = Case::grouped(GroupPlacement::GlobalHash { capacity: 4096 });
    let modes = AggregateCall {
        distinct: true,
        ..call(
            AggregateFunction::Count,
            Some(column(MODE)),
            DataType::Int64,
        )
    };
    let calls = vec![sum_of_prices(), least_weight(), modes];
    case.aggregate(vec![small(4000)], vec![column(CUSTOMER)], calls);
    check("group_hash", case);
}

#[test]
fn wide_keys() {
    let mut case = Case::grouped(GroupPlacement::GlobalHash { capacity: 4096 });
    let keys = || vec![column(CUSTOMER), column(HASH), column(MODE)];
    let known = case.build(keys(), vec![], |build| build.existence = true);
    let semi = Stage::Probe(probe(known, ProbeKind::Semi, keys()));
    case.aggregate(vec![semi], keys(), vec![sum_of_prices()]);
    check("wide_keys", case);
}

#[test]
fn partition_groups() {
    let mut case = Case::grouped(GroupPlacement::Regrouped {
        how: Regroup::PartitionRows,
        bits: 6,
        groups: 1000,
    });
    let calls = vec![sum_of_prices(), count()];
    case.aggregate(vec![small(4000)], vec![column(CUSTOMER)], calls);
    check("partition_groups", case);
}

#[test]
fn collect_and_sort_keys() {
    let mut case = Case::grouped(GroupPlacement::Regrouped {
        how: Regroup::SortKeys,
        bits: 0,
        groups: 1000,
    });
    let calls = vec![sum_of_prices(), least_weight()];
    case.aggregate(vec![], vec![column(CUSTOMER)], calls);
    check("collect_and_sort_keys", case);
}

#[test]
fn collect_and_number() {
    let mut case = Case::grouped(GroupPlacement::Regrouped {
        how: Regroup::Number,
        bits: 0,
        groups: 1000,
    });
    let calls = vec![sum_of_prices(), count()];
    case.aggregate(vec![small(4000)], vec![column(HASH)], calls);
    check("collect_and_number", case);
}

#[test]
fn join_array() {
    let mut case = Case::indexed(IndexKind::Perfect);
    let payload = vec![column(PRICE), column(STATUS)];
    let index = case.build(vec![column(ID)], payload, |build| build.unique = true);
    let dearer = binary(
        BinaryOp::Lt,
        column(PRICE),
        like(8, PRICE, false),
        DataType::Boolean,
    );
    let probe = Probe {
        residual: vec![dearer],
        ..probe(index, ProbeKind::Inner, vec![column(STATUS)])
    };
    let columns = vec![column(ID), like(8, PRICE, false), like(9, STATUS, true)];
    let stages = vec![small(4000), Stage::Probe(probe)];
    case.rows(Source::Scan(0), stages, columns);
    check("join_array", case);
}

#[test]
fn join_hash() {
    let mut case = Case::indexed(IndexKind::Hash);
    let keys = || vec![column(HASH)];
    let unique = case.build(keys(), vec![column(PRICE)], |build| build.unique = true);
    let many = case.build(vec![column(CUSTOMER)], vec![column(MODE)], |_| {});
    let look_up = Stage::Probe(probe(unique, ProbeKind::Left, keys()));
    let columns = vec![column(ID), like(8, PRICE, true)];
    case.rows(Source::Scan(0), vec![look_up], columns);
    let pairs = vec![like(0, ID, false), like(1, MODE, false)];
    let matches = probe(many, ProbeKind::Inner, vec![column(CUSTOMER)]);
    case.pairs(matches, vec![column(ID)], pairs);
    check("join_hash", case);
}

#[test]
fn semi_anti_outer() {
    let mut case = Case::indexed(IndexKind::Perfect);
    let known = case.build(vec![column(ID)], vec![], |build| build.existence = true);
    let full = case.build(vec![column(ID)], vec![column(PRICE)], |build| {
        build.unique = true;
        build.track_matches = true;
    });
    let status = || vec![column(STATUS)];
    let outer = Probe {
        mark_entries: true,
        ..probe(full, ProbeKind::Left, status())
    };
    let stages = vec![
        Stage::Probe(probe(known, ProbeKind::Semi, status())),
        Stage::Probe(probe(known, ProbeKind::Anti, vec![column(CUSTOMER)])),
        Stage::Probe(probe(known, ProbeKind::Mark, vec![column(PRICE)])),
        Stage::Probe(outer),
    ];
    let mark = Expr::column(8, DataType::Boolean, false);
    let columns = vec![column(ID), mark, like(9, PRICE, true)];
    case.rows(Source::Scan(0), stages, columns);
    let unmatched = Source::Entries(full, false);
    case.rows(unmatched, vec![], vec![like(0, PRICE, false)]);
    check("semi_anti_outer", case);
}

#[test]
fn join_partitioned() {
    let join = MaterializedJoin::PhjTr;
    let mut case = Case::indexed(IndexKind::Materialized(join));
    let payload = vec![column(PRICE), column(STATUS)];
    let index = case.build(vec![column(CUSTOMER)], payload, |build| {
        build.join = Some(MaterializedJoin::PhjTr);
    });
    let matches = probe(index, ProbeKind::Inner, vec![column(HASH)]);
    let pairs = vec![
        like(0, ID, false),
        like(1, PRICE, false),
        like(2, STATUS, true),
    ];
    case.pairs(matches, vec![column(ID)], pairs);
    check("join_partitioned", case);
}

fn tree(balance: Balance) -> Case {
    let mut case = Case {
        balance,
        ..Case::indexed(IndexKind::Perfect)
    };
    let by_status = case.build(vec![column(STATUS)], vec![column(CUSTOMER)], |_| {});
    let by_customer = case.build(vec![column(CUSTOMER)], vec![column(PRICE)], |_| {});
    let stages = vec![
        small(4000),
        Stage::Expand(probe(by_status, ProbeKind::Inner, vec![column(STATUS)])),
        Stage::Expand(probe(
            by_customer,
            ProbeKind::Left,
            vec![like(8, CUSTOMER, false)],
        )),
    ];
    let prices = sum(like(9, PRICE, true), DataType::Decimal128(22, 2));
    case.aggregate(stages, vec![], vec![prices, count()]);
    case
}

#[test]
fn tree_adaptive_sharing() {
    check("tree_adaptive_sharing", tree(Balance::NifsAws));
}

#[test]
fn tree_fixed_pieces() {
    check("tree_fixed_pieces", tree(Balance::Fws));
}

#[test]
fn sort() {
    let mut case = Case::new();
    let columns = vec![column(STATUS), column(MODE), column(WEIGHT), column(ID)];
    let rows = case.rows(Source::Scan(0), vec![small(4000)], columns.clone());
    let into = case.result(ResultKind::Sorted, &columns);
    let key = |column, descending| SortKey {
        column,
        descending,
        nulls_first: descending,
    };
    case.steps.push(Step::Sort(Sort {
        rows,
        keys: vec![key(0, true), key(1, false), key(2, false)],
        skip: 10,
        fetch: Some(100),
        window: None,
        into,
    }));
    check("sort", case);
}

#[test]
fn strings_like() {
    let mut case = Case::new();
    let filter = Stage::Filter(vec![
        text(COMMENT, "s LIKE '%special%requests%'"),
        text(COMMENT, "starts_with(s, 'comment')"),
        text(MODE, "s LIKE '%AI%'"),
    ]);
    let columns = vec![column(ID), column(COMMENT), text(MODE, "upper(s)")];
    case.rows(Source::Scan(0), vec![filter], columns);
    check("strings_like", case);
}
