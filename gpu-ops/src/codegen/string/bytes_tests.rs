//! Functions on strings that lie as bytes against DataFusion's own evaluation.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fmt::Write as _;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, StringArray, StringViewArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Schema};
use datafusion::common::DFSchema;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::prelude::SessionContext;
use datafusion::scalar::ScalarValue;

use super::bytes::TextRef;
use super::packed::unpack_array;
use super::plan::bytes_supported;
use crate::codegen::ir::slot::{ColumnPart, Part, Slot};
use crate::codegen::ir::state::KernelState;
use crate::codegen::ir::value::{Meaning, Value};
use crate::codegen::value::scalar::Emitter;
use crate::column::{Encoding, StringPolicy, encode};
use crate::device::cuda::CudaDevice;
use crate::device::emulated::EmulatedDevice;
use crate::device::{Device, LaunchConfig, nvrtc};
use crate::memory::MemoryPool;

/// Everything that is promised, over a column `s`.
const FUNCTIONS: &[&str] = &[
    "s = 'special'",
    "s = ''",
    "s <> 'a longer constant with more than eight bytes'",
    "'größe' = s",
    "s < 'b'",
    "s <= 'special'",
    "s > 'größe und mehr'",
    "'m' >= s",
    "s >= ''",
    "s IN ('special', 'requests', '', 'größe', 'a_b', 'x%y', 'no such string of many bytes', 'b', 'c', 'd', 'e')",
    "s IN ('special', 'a', NULL)",
    "s NOT IN ('special', 'a')",
    "s NOT IN ('special', 'a', NULL)",
    "s LIKE '%special%requests%'",
    "s NOT LIKE '%special%requests%'",
    "s LIKE '%requests%'",
    "s LIKE 'special%'",
    "s LIKE '%requests'",
    "s LIKE 'a%a'",
    "s LIKE 'special%special'",
    "s LIKE '%'",
    "s LIKE '%%'",
    "s LIKE ''",
    "s LIKE 'special'",
    "s LIKE '_'",
    "s LIKE '__%'",
    "s LIKE '%_ö_%'",
    "s LIKE '%s_e%'",
    "s LIKE '_%_%_'",
    "s LIKE 'a%b%c%_'",
    "s LIKE '%\\%%'",
    "s LIKE '%\\_%'",
    "s LIKE '%\\\\%'",
    "s LIKE 'a\\'",
    "s LIKE '%\\a%'",
    "s LIKE '%aab%'",
    "s LIKE '%abcdefghi%'",
    "s LIKE '%ab%ab%ab%'",
    "s LIKE 'ab%ab%ab'",
    "s LIKE '%ö%'",
    "s ILIKE '%SPECIAL%'",
    "s ILIKE 'k%s'",
    "s ILIKE '%k%'",
    "s ILIKE '_K%'",
    "s NOT ILIKE 's%'",
    "s ILIKE 'special requests'",
    "s ILIKE '%i%'",
    "starts_with(s, 'spec')",
    "starts_with(s, '%')",
    "ends_with(s, 'sts')",
    "contains(s, 'al re')",
    "contains(s, '')",
    "strpos(s, 'e')",
    "strpos(s, '')",
    "strpos(s, 'requests')",
    "strpos(s, 'ß')",
    "character_length(s)",
    "length(s) > 5",
    "octet_length(s)",
    "3 <= octet_length(s)",
    "character_length(s) = octet_length(s)",
    "length(substr(s, 3))",
    "octet_length(substr(s, 2, 7))",
    "octet_length(left(s, 4))",
    "octet_length(left(s, -4))",
    "octet_length(right(s, 4))",
    "octet_length(right(s, -4))",
    "octet_length(left(right(s, 6), -2))",
    "octet_length(substr(substr(s, 2, 9), 3, 4))",
    "octet_length(substr(s, -2, 5))",
    "octet_length(substr(s, 0))",
    "octet_length(substr(s, 4, 0))",
    "substr(s, 1, 2)",
    "substr(s, 3, 3)",
    "left(s, 1)",
    "right(s, 3)",
    "right(left(s, 7), 2)",
    "substr(s, 1, 2) IN ('sp', 're', 'gr', '1', '')",
    "substr(s, 1, 2) NOT IN ('sp', 're', NULL)",
    "substr(s, 2, 5) = 'pecia'",
    "substr(s, 2) LIKE 'p%'",
    "substr(s, 1, 4) < 'm'",
    "strpos(substr(s, 3), 'e') > 2",
    "'x' || s = 'xspecial'",
    "s || '%' <> 'special%'",
    "'a' || s || 'b' IN ('aspecialb', 'ab', 'other')",
    "s LIKE '%e%' AND s NOT LIKE '%a%'",
    "s = 'special' OR length(s) < 3",
    "NOT (s LIKE '%e%')",
    "(s = 'special') IS NULL",
    "(s IN ('a', NULL)) IS NOT NULL",
    "CASE WHEN s LIKE '%special%' THEN 1 WHEN s = '' THEN 0 END",
    "CASE WHEN s LIKE '%special%' THEN true ELSE s > 'm' END",
    "CASE s WHEN 'special' THEN 10 WHEN 'a' THEN 20 ELSE length(s) END",
    "CASE WHEN s LIKE '%special%' THEN 'one' WHEN s < 'm' THEN 'two' ELSE 'three' END",
    "CASE WHEN s LIKE '%special%' THEN 'one' WHEN s < 'm' THEN 'a' END",
];

/// What must come as codes.
const REFUSED: &[&str] = &[
    "upper(s) = 'SPECIAL'",
    "lower(s)",
    "s ILIKE 'ö%'",
    "substr(s, 1, 4)",
    "reverse(s)",
    "'x' || s",
    "'x' || s < 'y'",
    "s ~ 'a.*b'",
    "replace(s, 'a', 'b')",
    "CASE WHEN s = 'a' THEN s ELSE 'b' END",
];

/// Random numbers of a fixed seed (xorshift).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % limit
    }
}

/// Strings of every length around the word size, made of what the patterns look for and of what nearly is.
fn strings(rows: usize, ascii: bool, nulls: bool) -> Vec<Option<String>> {
    let mut random = Random(rows as u64 * 2 + u64::from(ascii) + 77);
    let plain = [
        "special", "requests", " ", "a", "b", "c", "e", "s", "k", "K", "S", "aab", "ab", "%", "_",
        "\\", "SPECIAL", "abcdefgh", "i", "p", "r", "al", "\n", "\0", "A", "z", "~", "13",
        "specia", "request",
    ];
    let wide = [
        "ö",
        "größe",
        "ß",
        "\u{212a}",
        "\u{17f}",
        "İ",
        "\u{1f600}",
        "é",
        "\u{7ff}",
        "\u{ffff}",
        "ı",
    ];
    let mut all: Vec<Option<String>> = [
        "", "special", "a", "a_b", "x%y", "a\\", "abab", "ababab", "\0",
    ]
    .iter()
    .map(|text| Some(text.to_string()))
    .collect();
    if !ascii {
        all.extend(
            ["größe", "größe und mehr", "\u{212a}s", "ö", "\u{1f600}"].map(|t| Some(t.to_string())),
        );
    }
    while all.len() < rows {
        if nulls && random.below(9) == 0 {
            all.push(None);
            continue;
        }
        let mut text = String::new();
        for _ in 0..[0, 1, 1, 2, 3, 4, 5, 8, 12, 30][random.below(10)] {
            match ascii || random.below(4) > 0 {
                true => text.push_str(plain[random.below(plain.len())]),
                false => text.push_str(wide[random.below(wide.len())]),
            }
        }
        all.push(Some(text));
    }
    all
}

fn expression(sql: &str, data_type: &DataType) -> Arc<dyn PhysicalExpr> {
    let schema = Schema::new(vec![Field::new("s", data_type.clone(), true)]);
    let schema = DFSchema::try_from(schema).unwrap();
    let context = SessionContext::new();
    let expr = context.parse_sql_expr(sql, &schema).unwrap();
    context.create_physical_expr(expr, &schema).unwrap()
}

fn devices() -> Vec<Arc<dyn Device>> {
    let mut devices: Vec<Arc<dyn Device>> = vec![Arc::new(EmulatedDevice::open().unwrap())];
    if std::env::var("WARPLINE_TEST_DEVICE").is_ok_and(|name| name == "cuda") {
        devices.push(Arc::new(CudaDevice::open(0).unwrap()));
    }
    devices
}

/// The string column.
const DATA: Slot = Slot::Scan(0, ColumnPart::Data);
const OFFSETS: Slot = Slot::Scan(0, ColumnPart::Offsets);
const VALIDITY: Slot = Slot::Scan(0, ColumnPart::Validity);
/// Values, their validity, and the address of the number of rows.
const OUT: Slot = Slot::Result(0, Part::Column(0));
const KNOWN: Slot = Slot::Result(0, Part::Valid(0));
const ROWS: Slot = Slot::Result(0, Part::Numbers);

/// A kernel that puts the value of every function for every row into 128 bits and its validity into a byte.
struct Generated {
    source: String,
    state: KernelState,
    values: Vec<Value>,
}

fn generate(functions: &[Arc<dyn PhysicalExpr>], nullable: bool, ascii: bool) -> Generated {
    let mut state = KernelState::default();
    let data = state.arguments.pointer(DATA, "const u8*");
    let offsets = state.arguments.pointer(OFFSETS, "const u64*");
    let out = state.arguments.pointer(OUT, "i128*");
    let known = state.arguments.pointer(KNOWN, "u8*");
    let rows = state.arguments.pointer(ROWS, "const u64*");
    let bits = nullable.then(|| state.arguments.pointer(VALIDITY, "const u8*"));
    let mut emitter = Emitter::new(&[], &mut state);
    let mut values = Vec::new();
    for function in functions {
        let text = TextRef {
            data: data.clone(),
            begin: format!("{offsets}[k]"),
            end: format!("{offsets}[k + 1]"),
            valid: bits
                .as_ref()
                .map(|bits| emitter.bind_bool(format!("(({bits}[k / 8] >> (k % 8)) & 1) != 0"))),
            offsets: None,
            ascii,
        };
        values.push(
            emitter
                .text_function(text, function, &DataType::Utf8View)
                .unwrap(),
        );
    }
    let lines = std::mem::take(&mut emitter.lines);
    let count = functions.len();
    let mut body = String::new();
    for line in lines {
        let _ = writeln!(body, "    {line}");
    }
    for (i, value) in values.iter().enumerate() {
        let _ = writeln!(
            body,
            "    {out}[k * {count} + {i}] = (i128)({});",
            value.text
        );
        let _ = writeln!(
            body,
            "    {known}[k * {count} + {i}] = {};",
            value.valid_text()
        );
    }
    let source = format!(
        "#include \"simt.cuh\"\n#include \"pipeline.cuh\"\n{}\nWL_KERNEL(texts, Args, args) {{\n  \
         for (u64 k = (u64)blockIdx.x * blockDim.x + threadIdx.x; k < *{rows}; k += (u64)gridDim.x * blockDim.x) {{\n\
         {body}  }}\n}}\n",
        state.arguments.declaration("Args")
    );
    Generated {
        source,
        state,
        values,
    }
}

fn run(device: &Arc<dyn Device>, array: &ArrayRef, sql: &[&str], ascii: bool) {
    let pool = MemoryPool::new(Arc::clone(device), 256 << 20);
    let stream = device.create_stream().unwrap();
    let data_type = array.data_type();
    let functions: Vec<_> = sql.iter().map(|sql| expression(sql, data_type)).collect();
    let column = encode(array, StringPolicy::AlwaysBytes, &pool, &stream).unwrap();
    let Encoding::Bytes { offsets } = &column.encoding else {
        panic!("not bytes");
    };
    let generated = generate(&functions, column.validity.is_some(), ascii);
    let rows = array.len();
    let count = functions.len();
    let out = pool.allocate(rows * count * 16, "values").unwrap();
    let known = pool.allocate(rows * count, "validity").unwrap();
    let size = pool.allocate(8, "rows").unwrap();
    size.upload(&stream, 0, &(rows as u64).to_ne_bytes())
        .unwrap();
    let mut tables = Vec::new();
    for lookup in &generated.state.lookups {
        let buffer = pool.allocate(lookup.bytes.len(), "table").unwrap();
        buffer.upload(&stream, 0, &lookup.bytes).unwrap();
        tables.push(buffer);
    }
    let value = |slot| {
        let address = match slot {
            DATA => column.data.ptr(),
            OFFSETS => offsets.ptr(),
            VALIDITY => column.validity.as_ref()?.ptr(),
            OUT => out.ptr(),
            KNOWN => known.ptr(),
            ROWS => size.ptr(),
            Slot::Lookup(table) | Slot::List(table) => tables[table].ptr(),
            _ => return None,
        };
        Some(address.0)
    };
    let arguments = generated.state.arguments.bytes(value).unwrap();
    let (module, _) = device.compile("texts", &generated.source).unwrap();
    let kernel = device.kernel(&module, "texts").unwrap();
    let config = LaunchConfig {
        grid: 2,
        block: 64,
        shared_bytes: 0,
    };
    // SAFETY: the arguments are the addresses of buffers that live until the downloads below.
    unsafe { device.launch(&stream, &kernel, config, &arguments).unwrap() };
    let out = out
        .download_values::<u8>(&stream, 0, rows * count * 16)
        .unwrap();
    let known = known
        .download_values::<u8>(&stream, 0, rows * count)
        .unwrap();

    let schema = Schema::new(vec![Field::new("s", data_type.clone(), true)]);
    let batch = RecordBatch::try_new(Arc::new(schema), vec![Arc::clone(array)]).unwrap();
    for (i, (function, value)) in functions.iter().zip(&generated.values).enumerate() {
        let expected = function.evaluate(&batch).unwrap().into_array(rows).unwrap();
        let numbers: Vec<Option<i128>> = (0..rows)
            .map(|row| {
                let at = row * count + i;
                let bytes = out[at * 16..at * 16 + 16].try_into().unwrap();
                (known[at] != 0).then(|| i128::from_ne_bytes(bytes))
            })
            .collect();
        let range = value.range;
        assert!(
            numbers.iter().flatten().all(|n| range.contains(*n)),
            "{}: a value outside {range:?}",
            sql[i]
        );
        let actual: ArrayRef = match &value.meaning {
            Meaning::Packed { chars, bits } => {
                let numbers = numbers.iter().copied();
                unpack_array(numbers, *chars, *bits, expected.data_type()).unwrap()
            }
            Meaning::Code(dictionary) => {
                let codes: arrow::array::UInt32Array =
                    numbers.iter().map(|n| n.map(|n| n as u32)).collect();
                let texts = arrow::compute::take(&dictionary.values, &codes, None).unwrap();
                cast(&texts, expected.data_type()).unwrap()
            }
            _ if *expected.data_type() == DataType::Boolean => {
                let values = numbers.iter().map(|n| n.map(|n| n != 0));
                Arc::new(values.collect::<arrow::array::BooleanArray>())
            }
            _ => {
                let values = numbers.iter().map(|n| n.map(|n| n as i64));
                let values: ArrayRef = Arc::new(values.collect::<arrow::array::Int64Array>());
                cast(&values, expected.data_type()).unwrap()
            }
        };
        for row in 0..rows {
            let scalar = |array: &ArrayRef| ScalarValue::try_from_array(array, row).unwrap();
            assert_eq!(
                scalar(&actual),
                scalar(&expected),
                "{} of {:?} (row {row}, ascii {ascii})",
                sql[i],
                scalar(array)
            );
        }
    }
}

#[test]
fn every_function_equals_the_cpu() {
    for sql in FUNCTIONS {
        bytes_supported(&expression(sql, &DataType::Utf8View), &DataType::Utf8View)
            .unwrap_or_else(|e| panic!("{sql}: {e}"));
    }
    for device in devices() {
        for (ascii, nulls) in [(false, true), (false, false), (true, true)] {
            let texts = strings(700, ascii, nulls);
            let array: ArrayRef = Arc::new(StringViewArray::from_iter(
                texts.iter().map(Option::as_deref),
            ));
            run(&device, &array, FUNCTIONS, ascii);
        }
        let texts = strings(100, false, true);
        let array: ArrayRef = Arc::new(StringArray::from_iter(texts.iter().map(Option::as_deref)));
        run(&device, &array, FUNCTIONS, false);
    }
}

#[test]
fn what_needs_codes_is_refused_with_a_reason() {
    for sql in REFUSED {
        let refusal = bytes_supported(&expression(sql, &DataType::Utf8View), &DataType::Utf8View)
            .unwrap_err();
        assert!(refusal.contains("string"), "{sql}: {refusal}");
    }
}

#[test]
fn constants_are_no_part_of_the_source() {
    let source = |sql: &str| generate(&[expression(sql, &DataType::Utf8View)], true, false).source;
    assert_eq!(
        source("s LIKE '%special%requests%'"),
        source("s LIKE '%a%bcdefghijklmnop%'")
    );
    assert_eq!(
        source("substr(s, 1, 2) = 'ab'"),
        source("substr(s, 1, 2) = 'cd'")
    );
    assert_ne!(
        source("s LIKE '%special%requests%'"),
        source("s LIKE '%special%requests'")
    );
}

#[test]
fn kernels_over_strings_compile_for_the_gpu() {
    let required = std::env::var("WARPLINE_REQUIRE_NVRTC").is_ok_and(|value| value == "1");
    if let Err(error) = nvrtc::version() {
        assert!(!required, "{error}");
        println!("not run: {error}");
        return;
    }
    let functions: Vec<_> = FUNCTIONS
        .iter()
        .map(|sql| expression(sql, &DataType::Utf8View))
        .collect();
    for ascii in [false, true] {
        let generated = generate(&functions, true, ascii);
        nvrtc::compile("texts", &generated.source, (9, 0)).unwrap();
    }
}
