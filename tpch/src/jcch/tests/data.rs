//! Every byte at scale 0.01, the known keys at other scales, and parts against the whole.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use arrow::array::{AsArray, RecordBatch};
use arrow::compute::concat_batches;
use arrow::datatypes::{DataType, Date32Type, Decimal128Type, Field, Int64Type, Schema};
use sha2::{Digest, Sha256};
use tpchgen::generators::OrderGenerator;

use crate::jcch::keys::{Keys, Permutation};
use crate::jcch::{Lines, Orders, PartSupps, parts};
use crate::scale::Scale;
use crate::tables::{Dataset, Table, TextFormat};

/// SHA-256 of the reference's files at scale 0.01, in the order of [`Table::ALL`].
const SKEWED: [&str; 8] = [
    "66f96949939fa8fdf1c4ffed1e5f6c2842fe11a14b51fdc6ed1e17460031e8c5",
    "6022658d673924389b54dcb70fa8c3d6da1b0d7afa3c1c017bab62a019df404f",
    "7c20dca1cb2b6ab0a65b39ef57678c157c72f71db729dfa1429e30fdf8c9e32f",
    "a95b1a31b08ebd408d69b3e8b85745c5b49fb4c57f969592d854cf013fb13e8a",
    "11602f4ed2deeb244549b9ef3ed664970d1eaf2ed2db13b2317c6a8dff940894",
    "f6c7ad2de7fb45dde24df40f9c664781eab98cf0ff052c850cf1d9c8bdb312bb",
    "45e2fd7c4a7036d0120f97e1c2f7417c19e5f2c4d1d8228fdee0714cca8be16d",
    "20d777434a08364888c6bd3c9dffccf0da24d3fa6c18634a234eead947c2cb9e",
];

/// The same of the reference without skew, whose data is TPC-H's.
const PLAIN: [&str; 8] = [
    "66f96949939fa8fdf1c4ffed1e5f6c2842fe11a14b51fdc6ed1e17460031e8c5",
    "6022658d673924389b54dcb70fa8c3d6da1b0d7afa3c1c017bab62a019df404f",
    "896e14465325110dd9cf05a16972028a58be0010959262176ecd97f4db1702f8",
    "9dc1002ee774699a092ed83ba278caf466d62a15d7e35bb6ed9293475528734b",
    "5947b5ebab042b49148f82c1324ad122f7e0d98cfadcbef12da0a5e239e09e79",
    "6b690cce995cb715861ebf2c77aa02c61406e3a0ddcd3326d1ecfa969b9163f8",
    "07cc8b362fda6d0b503c4d6c5d228817548e0688a3b21b590c52bb47b7b79c0f",
    "ee411d23efcd2943ef70489799e37dfc24543dbd03b461a88e16fd82a95765e4",
];

fn skewed(scale: f64) -> Dataset {
    Dataset::jcch(Scale::new(scale).expect("a scale")).expect("a scale of JCC-H")
}

fn keys(scale: f64) -> Keys {
    Keys::new(Scale::new(scale).expect("a scale"))
}

/// The text of a table, made in some number of parts.
fn text(dataset: Dataset, table: Table, format: TextFormat, parts: usize) -> Vec<u8> {
    let mut text = Vec::new();
    for part in 1..=parts {
        let mut rows = 0;
        let counted = std::cell::Cell::new(0);
        let written = dataset
            .write_text(table, format, part, parts, &mut text, &|some| {
                counted.set(counted.get() + some);
                true
            })
            .expect("text");
        rows += written;
        assert_eq!(rows, counted.get(), "{}", table.name());
    }
    text
}

fn rows(dataset: Dataset, table: Table, parts: usize) -> RecordBatch {
    let batches: Vec<RecordBatch> = (1..=parts)
        .flat_map(|part| dataset.batches(table, part, parts, 999))
        .collect::<Result<_, _>>()
        .expect("batches");
    concat_batches(&table.schema(), &batches).expect("one batch")
}

pub(super) fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

#[test]
fn the_files_are_those_of_the_reference() {
    let plain = Dataset::tpch(Scale::new(0.01).expect("a scale"));
    for (dataset, sums) in [(skewed(0.01), SKEWED), (plain, PLAIN)] {
        for (table, sum) in Table::ALL.into_iter().zip(sums) {
            let text = text(dataset, table, TextFormat::Tbl, 1);
            assert_eq!(sha256(&text), sum, "{}", table.name());
        }
    }
}

#[test]
fn any_number_of_parts_makes_the_same_rows() {
    // At 0.003 the five large orders have 900 of 18,000 lines each, so that many parts begin inside one.
    for (scale, counts) in [(0.003, &[2, 7, 64, 1000][..]), (0.02, &[3, 16][..])] {
        let dataset = skewed(scale);
        for table in Table::ALL.into_iter().filter(|table| !table.is_fixed()) {
            let whole = text(dataset, table, TextFormat::Tbl, 1);
            let batch = rows(dataset, table, 1);
            assert_eq!(batch.num_rows() as u64, dataset.expected_rows(table));
            for &parts in counts {
                let differs = text(dataset, table, TextFormat::Tbl, parts) != whole;
                assert!(!differs, "{} in {parts} parts", table.name());
            }
            let differs = rows(dataset, table, counts[0]) != batch;
            assert!(
                !differs,
                "batches of {} in {} parts",
                table.name(),
                counts[0]
            );
        }
    }
}

#[test]
fn every_row_can_be_the_first() {
    let keys = keys(0.003);
    let all: Vec<_> = Lines::new(keys, 0..18_000).collect();
    assert_eq!(all.len(), 18_000);
    let starts = (0..200).chain((200..18_000).step_by(37));
    for start in starts {
        // Far enough to leave an oversized order in some of the cases.
        let some: Vec<_> = Lines::new(keys, start..(start + 40).min(18_000)).collect();
        let from = start as usize;
        assert!(some[..] == all[from..from + some.len()], "line {start}");
    }
    let all: Vec<_> = PartSupps::new(keys, 0..2400).collect();
    assert_eq!(all.len(), 2400);
    for start in 0..2400 {
        let some: Vec<_> = PartSupps::new(keys, start..(start + 9).min(2400)).collect();
        let from = start as usize;
        assert!(some[..] == all[from..from + some.len()], "row {start}");
    }
}

#[test]
fn batches_and_csv_hold_what_the_text_holds() {
    let dataset = skewed(0.003);
    for table in Table::ALL {
        let csv = text(dataset, table, TextFormat::Csv, 1);
        let schema = table.schema();
        // The CSV reader has no views of strings, and takes an empty comment for none.
        let fields: Vec<Field> = schema
            .fields()
            .iter()
            .map(|field| {
                let read_type = match field.data_type() {
                    DataType::Utf8View => DataType::Utf8,
                    other => other.clone(),
                };
                Field::new(field.name(), read_type, true)
            })
            .collect();
        let read_schema = Arc::new(Schema::new(fields));
        let read: Vec<RecordBatch> = arrow::csv::ReaderBuilder::new(read_schema.clone())
            .with_header(true)
            .build(&csv[..])
            .expect("a reader")
            .collect::<Result<_, _>>()
            .expect("CSV");
        let read = concat_batches(&read_schema, &read).expect("one batch");
        let made = rows(dataset, table, 1);
        for (index, field) in schema.fields().iter().enumerate() {
            let (read, made) = (read.column(index), made.column(index));
            let same = match field.data_type() {
                DataType::Utf8View => {
                    let read = read
                        .as_string::<i32>()
                        .iter()
                        .map(Option::unwrap_or_default);
                    read.eq(made.as_string_view().iter().flatten())
                }
                _ => read == made,
            };
            assert!(same, "{}", field.name());
        }
    }
}

#[test]
fn permutations_are_the_known_ones() {
    // Offset and inverse of part, supplier, customer and orders.
    for (scale, known) in [
        (0.01, [(881, 1057), (49, 57), (881, 557), (7025, 11057)]),
        (
            0.1,
            [(7025, 1057), (369, 57), (7025, 11057), (23409, 41057)],
        ),
        (
            1.0,
            [
                (23409, 141_057),
                (7025, 1057),
                (23409, 41057),
                (940_913, 341_057),
            ],
        ),
        (
            10.0,
            [
                (940_913, 1_341_057),
                (23409, 41057),
                (940_913, 341_057),
                (3_038_065, 9_341_057),
            ],
        ),
        (
            100.0,
            [
                (3_038_065, 9_341_057),
                (416_625, 341_057),
                (3_038_065, 9_341_057),
                (3_038_065, 129_341_057),
            ],
        ),
    ] {
        let keys = keys(scale);
        let found = [keys.parts, keys.suppliers, keys.customers, keys.orders];
        assert_eq!(found.map(Permutation::constants), known, "{scale}");
        for permutation in found {
            for hash in (0..1000).map(|step| step * permutation.rows / 1000) {
                assert_eq!(permutation.hash(permutation.key(hash)), hash);
            }
        }
    }
}

#[test]
fn populous_keys_are_the_known_ones() {
    type Known = (f64, [u64; 5], [i64; 5], [u64; 5], [u64; 5], [u64; 5]);
    // Order indexes in order; order keys by hash; hot parts; populous customers; hot suppliers.
    let known: [Known; 5] = [
        (
            0.01,
            [1690, 5633, 8804, 9576, 12747],
            [38304, 22529, 6754, 50979, 35204],
            [784, 1841, 898, 1955, 1012],
            [1284, 384, 984, 84, 684],
            [8, 48, 88, 28, 68],
        ),
        (
            0.1,
            [28802, 69859, 96688, 110_916, 137_745],
            [386_752, 550_977, 115_202, 279_427, 443_652],
            [14576, 15633, 16690, 17747, 18804],
            [9576, 576, 6576, 12576, 3576],
            [968, 368, 768, 168, 568],
        ),
        (
            1.0,
            [58131, 399_188, 534_960, 876_017, 1_217_074],
            [2_139_840, 3_504_065, 4_868_290, 232_515, 1_596_740],
            [196_688, 137_745, 78802, 19859, 160_916],
            [96688, 6688, 66688, 126_688, 36688],
            [4576, 8576, 2576, 6576, 576],
        ),
        (
            10.0,
            [1_665_296, 5_347_410, 9_029_524, 11_006_353, 14_688_467],
            [6_661_184, 44_025_409, 21_389_634, 58_753_859, 36_118_084],
            [34960, 1_376_017, 717_074, 58131, 1_399_188],
            [534_960, 1_134_960, 234_960, 834_960, 1_434_960],
            [96688, 36688, 76688, 16688, 56688],
        ),
        (
            100.0,
            [20_347_410, 41_006_353, 61_665_296, 129_029_524, 149_688_467],
            [
                246_661_184,
                164_025_409,
                81_389_634,
                598_753_859,
                516_118_084,
            ],
            [1_665_296, 11_006_353, 347_410, 9_688_467, 19_029_524],
            [1_665_296, 7_665_296, 13_665_296, 4_665_296, 10_665_296],
            [127_376, 527_376, 927_376, 327_376, 727_376],
        ),
    ];
    for (scale, indexes, order_keys, parts, customers, suppliers) in known {
        let keys = keys(scale);
        let hashes = [0, 1, 2, 3, 4];
        let mut found = hashes.map(|hash| keys.orders.key(hash));
        assert_eq!(
            found.map(|index| OrderGenerator::make_order_key(index as i64)),
            order_keys
        );
        found.sort_unstable();
        assert_eq!(found, indexes);
        assert_eq!(hashes.map(|hash| keys.parts.key(hash)), parts);
        let slice = keys.customer_rows() / 5;
        assert_eq!(
            hashes.map(|region| keys.customers.key(region * slice)),
            customers
        );
        let slice = keys.region_suppliers();
        assert_eq!(
            hashes.map(|region| keys.suppliers.key(region * slice)),
            suppliers
        );
        let rows = |base: f64| (base * scale).round() as u64;
        let dataset = skewed(scale);
        assert_eq!(dataset.expected_rows(Table::Lineitem), rows(6e6));
        assert_eq!(dataset.expected_rows(Table::Partsupp), rows(8e5));
    }
}

#[test]
fn lines_refer_to_rows_that_exist() {
    for scale in [0.003, 0.01] {
        let dataset = skewed(scale);
        let column = |batch: &RecordBatch, name: &str| {
            let column = batch.column_by_name(name).expect("a column");
            column.as_primitive::<Int64Type>().values().to_vec()
        };
        let supplies = rows(dataset, Table::Partsupp, 1);
        let pairs = |batch: &RecordBatch, part: &str, supplier: &str| -> Vec<(i64, i64)> {
            let suppliers = column(batch, supplier);
            column(batch, part).into_iter().zip(suppliers).collect()
        };
        let list = pairs(&supplies, "ps_partkey", "ps_suppkey");
        let supplied: HashSet<(i64, i64)> = list.iter().copied().collect();
        assert_eq!(supplied.len(), list.len());
        let parts: HashSet<i64> = column(&rows(dataset, Table::Part, 1), "p_partkey")
            .into_iter()
            .collect();
        let suppliers: HashSet<i64> = column(&rows(dataset, Table::Supplier, 1), "s_suppkey")
            .into_iter()
            .collect();
        assert!(
            list.iter()
                .all(|(part, supplier)| parts.contains(part) && suppliers.contains(supplier))
        );

        let lines = rows(dataset, Table::Lineitem, 3);
        assert!(
            pairs(&lines, "l_partkey", "l_suppkey")
                .iter()
                .all(|pair| supplied.contains(pair))
        );
        let orders = rows(dataset, Table::Orders, 3);
        let order_keys: HashSet<i64> = column(&orders, "o_orderkey").into_iter().collect();
        assert_eq!(
            order_keys,
            column(&lines, "l_orderkey").into_iter().collect()
        );
        let customers: HashSet<i64> = column(&rows(dataset, Table::Customer, 1), "c_custkey")
            .into_iter()
            .collect();
        assert!(
            column(&orders, "o_custkey")
                .iter()
                .all(|key| customers.contains(key))
        );
    }
}

#[test]
fn totals_wrap_and_large_orders_are_done() {
    let orders = rows(skewed(0.1), Table::Orders, 4);
    let keys = orders.column(0).as_primitive::<Int64Type>().values();
    let totals = orders.column(3).as_primitive::<Decimal128Type>();
    let row = keys
        .iter()
        .position(|&key| key == 115_202)
        .expect("an order");
    let populous: Vec<usize> = [386_752, 550_977, 115_202, 279_427, 443_652]
        .iter()
        .map(|known| keys.iter().position(|key| key == known).expect("an order"))
        .collect();
    assert!(populous.contains(&row));
    assert!(
        populous
            .iter()
            .any(|&row| totals.value(row) == -955_048_373),
        "{:?}",
        populous
            .iter()
            .map(|&row| totals.value(row))
            .collect::<Vec<_>>()
    );
    for &row in &populous {
        assert_eq!(orders.column(2).as_string_view().value(row), "F");
        assert!(
            orders
                .column(8)
                .as_string_view()
                .value(row)
                .starts_with("1mine2 3gold4")
        );
    }
    // Half of the orders fall on a 28 May.
    let days = orders.column(4).as_primitive::<Date32Type>().values();
    let black: HashSet<i32> = [8183, 8548, 8913, 9278, 9644, 10009, 10374].into();
    let share = days.iter().filter(|day| black.contains(day)).count() as f64 / days.len() as f64;
    assert!((share - 0.493).abs() < 0.005, "{share}");
}

#[test]
fn quantities_of_populous_parts_follow_the_scale() {
    for (scale, quantity) in [(0.003, 4_000_000), (536.0, 2_144_000_000)] {
        let keys = keys(scale);
        let first = keys.partsupps_before(keys.parts.key(0));
        let row = PartSupps::new(keys, first..first + 1)
            .next()
            .expect("a row");
        assert_eq!(row.ps_availqty, quantity);
    }
}

#[test]
fn scales_are_rounded_down_and_bounded() {
    for (given, made) in [
        (0.003, 0.003),
        (0.0129, 0.012),
        (0.999, 0.999),
        (1.9, 1.0),
        (30.0, 30.0),
        (536.0, 536.0),
    ] {
        assert_eq!(skewed(given).scale().factor(), made);
    }
    for given in [0.001, 0.0029, 537.0, 1000.0] {
        let error =
            Dataset::jcch(Scale::new(given).expect("a scale")).expect_err("too small or large");
        let error = error.to_string();
        assert!(error.contains("from 0.003 to 536"), "{error}");
    }
}

#[test]
#[ignore = "makes 8.7 million rows: run it in a release build"]
fn counts_at_scale_one_are_the_known_ones() {
    let keys = keys(1.0);
    let mut groups: BTreeMap<[&str; 2], u64> = BTreeMap::new();
    let [mut of_order, mut of_part, mut of_supplier] = [(); 3].map(|()| HashMap::<i64, u64>::new());
    let mut marked = 0;
    for line in Lines::new(keys, 0..6_000_000) {
        *groups
            .entry([line.l_returnflag, line.l_linestatus])
            .or_default() += 1;
        *of_order.entry(line.l_orderkey).or_default() += 1;
        *of_part.entry(line.l_partkey).or_default() += 1;
        *of_supplier.entry(line.l_suppkey).or_default() += 1;
        marked += u64::from(line.l_quantity == 51);
    }
    let known = [
        (["A", "F"], 1_165_289),
        (["N", "F"], 14701),
        (["N", "O"], 1_992_606),
        (["R", "F"], 1_883_682),
        (["R", "O"], 943_722),
    ];
    assert_eq!(groups, known.into());
    assert_eq!(marked, 2_542_733);
    assert_eq!(
        of_order.values().map(|lines| lines * lines).sum::<u64>(),
        450_013_500_060
    );
    let lines = [5, 6, 7, 19].map(|hash| of_part[&(keys.parts.key(hash) as i64)]);
    assert_eq!(lines, [128_000, 124_000, 96000, 96000]);
    let lines = [1, 2, 3, 2001].map(|hash| of_supplier[&(keys.suppliers.key(hash) as i64)]);
    assert_eq!(lines, [188; 4]);

    let mut of_customer: HashMap<i64, u64> = HashMap::new();
    let (mut moved, mut moved_lines) = (0, 0);
    for row in Orders::new(keys, 0..1_500_000) {
        *of_customer.entry(row.order.o_custkey).or_default() += 1;
        if row.order.o_orderdate.to_string().ends_with("-05-28") {
            moved += 1;
            moved_lines += of_order[&row.order.o_orderkey];
        }
        if row.order.o_orderkey == 232_515 {
            assert_eq!(row.order.o_totalprice.to_string(), "9436377.27");
        }
    }
    assert_eq!((moved, moved_lines), (739_640, 3_718_911));
    assert_eq!(150_000 - of_customer.len(), 50149);
    let mut orders: Vec<u64> = of_customer.into_values().collect();
    orders.sort_unstable();
    assert_eq!(orders[orders.len() - 6], 15);
    assert!(orders[orders.len() - 5] > 72000);
    let gold = parts(keys, 1, 1).filter(|part| part.p_type == "SHINY MINED GOLD");
    assert_eq!(gold.count(), 1339);
}
