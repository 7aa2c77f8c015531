//! Random aggregations over random expressions, from a seed: the device must answer each as plain DataFusion does.
//!
//! `WARPLINE_TEST_SEED` and `WARPLINE_TEST_QUERIES` choose another seed and number of queries a test;
//! `WARPLINE_EXHAUSTIVE=1` asks for more.

use arrow::array::{Array, ArrayRef, RecordBatch};
use arrow::datatypes::*;
use std::sync::Arc;
use warpline_sql_tests::{Fixture, exhaustive, test_device};

use super::support::{
    Nulls, Random, booleans, drawn, primitive, row_numbers, string_views, strings,
};

const ROWS: usize = 2_500;
const QUERIES: u64 = 60;
/// So many where nothing is left out.
const MANY_QUERIES: u64 = 300;
const SEED: u64 = 20_240_229;

/// One table of every kind; `z…` columns cannot be NULL.
fn table(seed: u64) -> RecordBatch {
    let n = Nulls::Some;
    let decimal = |values: &[i128], precision, scale, nulls, seed| -> ArrayRef {
        let array = primitive::<Decimal128Type>(drawn(values, ROWS, nulls, seed));
        let builder = array.to_data().into_builder();
        let data = builder
            .data_type(DataType::Decimal128(precision, scale))
            .build();
        arrow::array::make_array(data.expect("the same layout"))
    };
    let words = ["", "a", "ab", "Bär", "zz top", "日本"];
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("id", row_numbers(ROWS)),
        (
            "i8",
            primitive::<Int8Type>(drawn(&[-128, -7, 0, 1, 5, 127], ROWS, n, seed)),
        ),
        (
            "i16",
            primitive::<Int16Type>(drawn(&[-300, -1, 0, 2, 1000], ROWS, n, seed + 1)),
        ),
        (
            "i32",
            primitive::<Int32Type>(drawn(
                &[i32::MIN, -9, 0, 4, 65_536, i32::MAX],
                ROWS,
                n,
                seed + 2,
            )),
        ),
        (
            "i64",
            primitive::<Int64Type>(drawn(&[-(1 << 40), -2, 0, 3, 1 << 50], ROWS, n, seed + 3)),
        ),
        (
            "u8",
            primitive::<UInt8Type>(drawn(&[0, 1, 9, 255], ROWS, n, seed + 4)),
        ),
        (
            "u32",
            primitive::<UInt32Type>(drawn(&[0, 6, u32::MAX], ROWS, n, seed + 5)),
        ),
        (
            "z32",
            primitive::<Int32Type>(drawn(&[-4, 0, 11, 70_000], ROWS, Nulls::None, seed + 6)),
        ),
        (
            "d2",
            decimal(
                &[-9_999_999, -50, 0, 149, 150, 1_234_567],
                9,
                2,
                n,
                seed + 7,
            ),
        ),
        (
            "d4",
            decimal(&[-12_345_678, 0, 1, 49_999, 50_000], 15, 4, n, seed + 8),
        ),
        (
            "zd",
            decimal(&[0, 5, 995, 10_000_000], 12, 2, Nulls::None, seed + 9),
        ),
        (
            "f64",
            primitive::<Float64Type>(drawn(&[-2.5, 0.0, 0.125, 3.0, 1e6], ROWS, n, seed + 10)),
        ),
        (
            "f32",
            primitive::<Float32Type>(drawn(&[-0.5, 0.0, 1.25, 80.0], ROWS, n, seed + 11)),
        ),
        ("b", booleans(drawn(&[true, false], ROWS, n, seed + 12))),
        (
            "zb",
            booleans(drawn(&[true, false], ROWS, Nulls::None, seed + 13)),
        ),
        (
            "dt",
            primitive::<Date32Type>(drawn(
                &[-700, -1, 0, 11_015, 11_016, 19_782],
                ROWS,
                n,
                seed + 14,
            )),
        ),
        (
            "zdt",
            primitive::<Date32Type>(drawn(
                &[9000, 9131, 9365, 9496],
                ROWS,
                Nulls::None,
                seed + 15,
            )),
        ),
        (
            "ts",
            primitive::<TimestampMicrosecondType>(drawn(
                &[-1, 0, 951_782_399_999_999, 1 << 50],
                ROWS,
                n,
                seed + 16,
            )),
        ),
        ("s", strings(drawn(&words, ROWS, n, seed + 17))),
        (
            "zs",
            string_views(drawn(&words, ROWS, Nulls::None, seed + 18)),
        ),
    ];
    let fields: Vec<_> = columns
        .iter()
        .map(|(name, array)| {
            Field::new(
                *name,
                array.data_type().clone(),
                !name.starts_with('z') && *name != "id",
            )
        })
        .collect();
    let arrays = columns.into_iter().map(|(_, array)| array).collect();
    RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays).expect("a table")
}

/// Writes SQL expressions of a wanted kind, ever simpler with depth.
struct Writer {
    random: Random,
}

impl Writer {
    fn one_of(&mut self, list: &[&str]) -> String {
        self.random.pick(list).to_string()
    }

    fn chance(&mut self, percent: usize) -> bool {
        self.random.below(100) < percent
    }

    fn integer(&mut self, depth: usize) -> String {
        if depth == 0 || self.chance(15) {
            return match self.random.below(4) {
                0 => self.one_of(&["0", "1", "-3", "7", "100", "123456789012"]),
                _ => self.one_of(&["i8", "i16", "i32", "i64", "u8", "u32", "z32", "id"]),
            };
        }
        let d = depth - 1;
        match self.random.below(13) {
            0 | 1 => format!("({} + {})", self.integer(d), self.integer(d)),
            2 => format!("({} - {})", self.integer(d), self.integer(d)),
            3 => format!("({} * {})", self.integer(d), self.integer(d)),
            4 => format!("({} / nullif({}, 0))", self.integer(d), self.integer(d)),
            5 => format!("({} % nullif({}, 0))", self.integer(d), self.integer(d)),
            6 => self.case(d, Self::integer),
            7 => format!("coalesce({}, {})", self.integer(d), self.integer(d)),
            8 => format!("nullif({}, {})", self.integer(d), self.integer(d)),
            9 => {
                let field = self.one_of(&["year", "quarter", "month", "day", "dow", "doy", "week"]);
                format!("date_part('{field}', {})", self.date(d))
            }
            10 => {
                let field = self.one_of(&["hour", "minute", "second", "year", "day"]);
                format!("date_part('{field}', ts)")
            }
            11 => format!("character_length({})", self.text()),
            _ => format!(
                "TRY_CAST({} AS {})",
                self.integer(d),
                self.random.pick(&["INT", "BIGINT", "SMALLINT"])
            ),
        }
    }

    fn decimal(&mut self, depth: usize) -> String {
        if depth == 0 || self.chance(20) {
            return match self.random.below(4) {
                0 => self.one_of(&[
                    "CAST(1 AS DECIMAL(3, 0))",
                    "CAST(0.05 AS DECIMAL(4, 2))",
                    "CAST(-12.3456 AS DECIMAL(9, 4))",
                ]),
                _ => self.one_of(&["d2", "d4", "zd"]),
            };
        }
        let d = depth - 1;
        match self.random.below(10) {
            0 | 1 => format!("({} + {})", self.decimal(d), self.decimal(d)),
            2 | 3 => format!("({} - {})", self.decimal(d), self.decimal(d)),
            4 => format!("({} * {})", self.decimal(0), self.decimal(0)),
            5 => format!("({} / nullif({}, 0))", self.decimal(0), self.decimal(0)),
            6 => self.case(d, Self::decimal),
            7 => format!("coalesce({}, {})", self.decimal(d), self.decimal(d)),
            8 => format!(
                "CAST({} AS DECIMAL(18, {}))",
                self.decimal(0),
                self.random.below(7)
            ),
            _ => format!("(-{})", self.decimal(d)),
        }
    }

    fn float(&mut self, depth: usize) -> String {
        if depth == 0 || self.chance(20) {
            return self.one_of(&[
                "f64",
                "f32",
                "0.5",
                "f64",
                "CAST(i16 AS DOUBLE)",
                "CAST(d2 AS DOUBLE)",
            ]);
        }
        let d = depth - 1;
        match self.random.below(7) {
            0 => format!("({} + {})", self.float(d), self.float(d)),
            1 => format!("({} - {})", self.float(d), self.float(d)),
            2 => format!("({} * {})", self.float(d), self.float(d)),
            3 => {
                // Not nullif: it lets the negative zero pass, and a minimum of infinities and NaN depends on the
                // order of rows in DataFusion.
                let divisor = self.float(d);
                format!(
                    "CASE WHEN {divisor} <> 0 THEN {} / {divisor} END",
                    self.float(d)
                )
            }
            4 => self.case(d, Self::float),
            5 => format!("coalesce({}, {})", self.float(d), self.float(d)),
            _ => format!("(-{})", self.float(d)),
        }
    }

    fn date(&mut self, depth: usize) -> String {
        if depth == 0 || self.chance(50) {
            return self.one_of(&["dt", "zdt", "dt", "DATE '2000-02-29'", "CAST(ts AS DATE)"]);
        }
        match self.random.below(2) {
            0 => self.case(depth - 1, Self::date),
            _ => format!(
                "coalesce({}, {})",
                self.date(depth - 1),
                self.date(depth - 1)
            ),
        }
    }

    /// Over one column, as strings must be.
    fn text(&mut self) -> String {
        let column = self.one_of(&["s", "zs"]);
        match self.random.below(6) {
            0 => format!("upper({column})"),
            1 => format!("substr({column}, 2, 1)"),
            2 => format!("coalesce({column}, 'null')"),
            3 => format!("concat({column}, 'x')"),
            _ => column,
        }
    }

    fn case(&mut self, depth: usize, value: fn(&mut Self, usize) -> String) -> String {
        let mut text = "CASE".to_string();
        for _ in 0..1 + self.random.below(2) {
            let condition = self.condition(depth);
            text += &format!(" WHEN {condition} THEN {}", value(self, depth));
        }
        if self.chance(60) {
            text += &format!(" ELSE {}", value(self, depth));
        }
        text + " END"
    }

    fn comparison(&mut self) -> String {
        self.one_of(&[
            "=",
            "<>",
            "<",
            "<=",
            ">",
            ">=",
            "IS DISTINCT FROM",
            "IS NOT DISTINCT FROM",
        ])
    }

    fn condition(&mut self, depth: usize) -> String {
        let d = depth.saturating_sub(1);
        if depth > 0 && self.chance(45) {
            return match self.random.below(4) {
                0 => format!("({} AND {})", self.condition(d), self.condition(d)),
                1 => format!("({} OR {})", self.condition(d), self.condition(d)),
                2 => format!("(NOT {})", self.condition(d)),
                _ => format!("({} IS NULL)", self.condition(d)),
            };
        }
        let op = self.comparison();
        match self.random.below(12) {
            0 => self.one_of(&["b", "zb", "(b IS TRUE)", "(NOT b)"]),
            1 | 2 => format!("({} {op} {})", self.integer(d), self.integer(d)),
            3 => format!("({} {op} {})", self.decimal(d), self.decimal(d)),
            4 => format!("({} {op} {})", self.float(d), self.float(d)),
            5 => format!("({} {op} {})", self.date(d), self.date(d)),
            6 => format!("({} {op} 'ab')", self.text()),
            7 => format!("({} LIKE '%a%')", self.text()),
            8 => format!(
                "({} BETWEEN {} AND {})",
                self.integer(d),
                self.integer(0),
                self.integer(0)
            ),
            9 => {
                let not = self.one_of(&["", "NOT "]);
                let list = self.one_of(&[
                    "0, 1, 5",
                    "-9, 4, NULL",
                    "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 255, 1000",
                    "999999",
                ]);
                format!("({} {not}IN ({list}))", self.integer(d))
            }
            10 => format!("({} IS NOT NULL)", self.decimal(d)),
            _ => format!("({} IN ('a', 'zz top', 'x'))", self.text()),
        }
    }

    fn key(&mut self) -> String {
        match self.random.below(9) {
            0 => self.condition(2),
            1 => self.date(1),
            2 | 3 => self.text(),
            4 => self.one_of(&["d2", "d4", "zd", "d2 + zd"]),
            5 => "id".into(),
            6 => self.one_of(&["i8", "i32", "z32", "u32", "i64", "ts"]),
            _ => format!("({} % 5)", self.integer(1)),
        }
    }

    fn call(&mut self) -> String {
        let call = match self.random.below(11) {
            0 => "count(*)".to_string(),
            1 => format!("count({})", self.condition(2)),
            2 | 3 => format!("sum({})", self.integer(3)),
            4 => format!("min({})", self.integer(2)),
            5 => format!("max({})", self.date(2)),
            6 => format!("sum({})", self.decimal(2)),
            7 => format!(
                "{}({})",
                self.random.pick(&["avg", "min", "max"]),
                self.decimal(1)
            ),
            8 => format!("{}({})", self.random.pick(&["min", "max"]), self.float(3)),
            9 => format!("{}({})", self.random.pick(&["min", "max"]), self.text()),
            _ => format!(
                "avg({})",
                self.random.pick(&["i8", "z32", "f64 * f64", "u8 + 1"])
            ),
        };
        if self.chance(25) {
            return format!("{call} FILTER (WHERE {})", self.condition(2));
        }
        call
    }

    fn query(&mut self) -> String {
        let keys: Vec<String> = (0..self.random.below(4)).map(|_| self.key()).collect();
        let calls: Vec<String> = (0..3 + self.random.below(6)).map(|_| self.call()).collect();
        let mut list: Vec<String> = keys
            .iter()
            .enumerate()
            .map(|(i, k)| format!("{k} AS k{i}"))
            .collect();
        list.extend(
            calls
                .iter()
                .enumerate()
                .map(|(i, c)| format!("{c} AS c{i}")),
        );
        let mut sql = format!("SELECT {} FROM t", list.join(", "));
        if self.chance(70) {
            sql += &format!(" WHERE {}", self.condition(3));
        }
        if !keys.is_empty() {
            let positions: Vec<_> = (1..=keys.len()).map(|i| i.to_string()).collect();
            sql += &format!(" GROUP BY {}", positions.join(", "));
        }
        sql
    }
}

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name)
        .ok()
        .and_then(|v| v.parse().ok())
        .unwrap_or(default)
}

/// Runs many queries with one placement of groups; most must run on the device, all must be right.
fn run(group_by: &str, salt: u64) {
    let seed = setting("WARPLINE_TEST_SEED", SEED) + salt;
    let usual = if exhaustive() { MANY_QUERIES } else { QUERIES };
    let count = setting("WARPLINE_TEST_QUERIES", usual);
    let settings = [("warpline.min_rows", "0"), ("warpline.group_by", group_by)];
    let fixture = Fixture::open(test_device(), false, &settings).batches("t", vec![table(seed)]);
    let (mut failures, mut refused, mut cpu) = (Vec::new(), Vec::new(), Vec::new());
    for number in 0..count {
        let mut writer = Writer {
            random: Random::new(seed.wrapping_mul(1_000_003) + number),
        };
        let sql = writer.query();
        match fixture.compare(&sql) {
            Ok(run) if run.metrics.kernels == 0 => {
                cpu.push(format!("{:?}: {sql}", run.metrics.fallbacks))
            }
            Ok(_) => {}
            Err(message) if message.contains("the reference failed") => {
                refused.push(format!("{message}: {sql}"))
            }
            Err(message) => {
                failures.push(format!("query {number} of seed {seed}: {sql}\n{message}"))
            }
        }
    }
    assert!(
        failures.is_empty(),
        "{} of {count} differ\n\n{}",
        failures.len(),
        failures.join("\n\n")
    );
    let unchecked = refused.len() + cpu.len();
    assert!(
        unchecked * 5 <= count as usize,
        "{unchecked} of {count} queries did not test the device\n{}\n{}",
        refused.join("\n"),
        cpu.join("\n")
    );
}

#[test]
fn with_the_chosen_placement() {
    run("auto", 0);
}

#[test]
fn with_groups_in_registers() {
    run("private", 1);
}

#[test]
fn with_groups_in_shared_memory() {
    run("shared", 2);
}

#[test]
fn with_groups_in_device_memory() {
    run("global", 3);
}
