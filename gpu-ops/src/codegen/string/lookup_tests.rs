//! Strings of different dictionaries in one expression, on the emulator.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fmt::Write as _;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, StringViewArray};
use arrow::datatypes::DataType;
use datafusion::scalar::ScalarValue;

use crate::codegen::ir::scope::ScopeColumn;
use crate::codegen::ir::slot::{ColumnPart, Part, Slot};
use crate::codegen::ir::state::KernelState;
use crate::codegen::ir::value::Meaning;
use crate::codegen::value::scalar::Emitter;
use crate::column::{StringPolicy, encode};
use crate::device::emulated::EmulatedDevice;
use crate::device::{Device, LaunchConfig};
use crate::expr::{BinaryOp, Expr, Node};
use crate::memory::MemoryPool;

/// Where values go.
const OUT: Slot = Slot::Result(0, Part::Column(0));

fn text(index: usize) -> Expr {
    Expr::column(index, DataType::Utf8View, true)
}

fn node(node: Node, data_type: DataType) -> Expr {
    Expr {
        node,
        data_type,
        nullable: true,
    }
}

fn binary(op: BinaryOp, left: Expr, right: Expr) -> Expr {
    let (left, right) = (Box::new(left), Box::new(right));
    node(Node::Binary { op, left, right }, DataType::Boolean)
}

/// What each row's value is: NULL, a truth value as text, or a string.
fn run(expr: &Expr, arrays: &[ArrayRef]) -> Vec<Option<String>> {
    let device: Arc<dyn Device> = Arc::new(EmulatedDevice::open().unwrap());
    let pool = MemoryPool::new(Arc::clone(&device), 64 << 20);
    let stream = device.create_stream().unwrap();
    let rows = arrays[0].len();
    let columns: Vec<_> = arrays
        .iter()
        .map(|a| Arc::new(encode(a, StringPolicy::AlwaysDictionary, &pool, &stream).unwrap()))
        .collect();
    let scope: Vec<_> = columns.iter().map(ScopeColumn::resident).collect();
    let mut state = KernelState::default();
    let mut body = String::new();
    for i in 0..columns.len() {
        let codes = state
            .arguments
            .pointer(Slot::Scan(i, ColumnPart::Data), "const u8*");
        let bits = state
            .arguments
            .pointer(Slot::Scan(i, ColumnPart::Validity), "const u8*");
        let _ = writeln!(
            body,
            "const u8* c{i} = {codes}; const u64 n{i} = (u64){bits}[k / 8] << (k & ~7ull);"
        );
    }
    let out = state.arguments.pointer(OUT, "i64*");
    let mut emitter = Emitter::new(&scope, &mut state);
    let value = emitter.emit(expr).unwrap();
    for line in std::mem::take(&mut emitter.lines) {
        let _ = writeln!(body, "{line}");
    }
    let _ = writeln!(
        body,
        "{out}[k] = {} ? (i64){} : -1;",
        value.valid_text(),
        value.text
    );
    let source = format!(
        "#include \"simt.cuh\"\n#include \"pipeline.cuh\"\n{}\nWL_KERNEL(codes, Args, args) {{\n\
         const bool alive = true; u64 k = threadIdx.x; if (k < {rows}) {{\n{body}}}\n}}\n",
        state.arguments.declaration("Args")
    );
    let result = pool.allocate(rows * 8, "values").unwrap();
    let mut tables = Vec::new();
    for lookup in &state.lookups {
        let buffer = pool.allocate(lookup.bytes.len(), "table").unwrap();
        buffer.upload(&stream, 0, &lookup.bytes).unwrap();
        tables.push(buffer);
    }
    let bound = |slot| {
        let address = match slot {
            OUT => result.ptr(),
            Slot::Scan(i, ColumnPart::Data) => columns[i].data.ptr(),
            Slot::Scan(i, ColumnPart::Validity) => columns[i].validity.as_ref()?.ptr(),
            Slot::Lookup(table) | Slot::List(table) => tables[table].ptr(),
            _ => return None,
        };
        Some(address.0)
    };
    let arguments = state.arguments.bytes(bound).unwrap();
    let (module, _) = device.compile("codes", &source).unwrap();
    let kernel = device.kernel(&module, "codes").unwrap();
    let config = LaunchConfig {
        grid: 1,
        block: 64,
        shared_bytes: 0,
    };
    // SAFETY: the arguments are the addresses of buffers that live until the download below.
    unsafe { device.launch(&stream, &kernel, config, &arguments).unwrap() };
    let values = result.download_values::<i64>(&stream, 0, rows).unwrap();
    let show = |number: &i64| {
        (*number >= 0).then(|| match &value.meaning {
            Meaning::Code(dictionary) => {
                let texts = dictionary.values.as_string_view();
                texts.value(*number as usize).to_string()
            }
            _ => (*number != 0).to_string(),
        })
    };
    values.iter().map(show).collect()
}

#[test]
fn strings_of_different_columns_compare_and_mix() {
    let x = [
        "b",
        "a",
        "é",
        "",
        "long strings of more than twelve bytes",
        "z",
        "a",
    ]
    .map(Some);
    let y = [
        "a",
        "a",
        "e",
        "c",
        "long strings of more than twelve bytes",
        "zz",
        "q",
    ]
    .map(Some);
    let (mut x, mut y) = (x.to_vec(), y.to_vec());
    x.extend([None, Some("n"), None]);
    y.extend([Some("n"), None, None]);
    let array =
        |texts: &[Option<&str>]| -> ArrayRef { Arc::new(StringViewArray::from_iter(texts)) };
    let arrays = [array(&x), array(&y)];
    let pairs = || x.iter().zip(&y);
    let compared = |op: BinaryOp, same: &dyn Fn(&str, &str) -> bool| {
        let expected: Vec<_> = pairs()
            .map(|(a, b)| Some(same((*a)?, (*b)?).to_string()))
            .collect();
        assert_eq!(
            run(&binary(op, text(0), text(1)), &arrays),
            expected,
            "{op:?}"
        );
    };
    compared(BinaryOp::Eq, &|a, b| a == b);
    compared(BinaryOp::NotEq, &|a, b| a != b);
    compared(BinaryOp::Lt, &|a, b| a < b);
    compared(BinaryOp::GtEq, &|a, b| a >= b);

    let distinct = run(&binary(BinaryOp::IsDistinctFrom, text(0), text(1)), &arrays);
    let expected: Vec<_> = pairs().map(|(a, b)| Some((a != b).to_string())).collect();
    assert_eq!(distinct, expected);

    let own = |text: &&str| text.to_string();
    let coalesced = run(
        &node(Node::Coalesce(vec![text(0), text(1)]), DataType::Utf8View),
        &arrays,
    );
    let expected: Vec<_> = pairs()
        .map(|(a, b)| a.as_ref().or(b.as_ref()).map(own))
        .collect();
    assert_eq!(coalesced, expected);

    // CASE WHEN x < y THEN x WHEN x = y THEN 'same' ELSE y END
    let same = Expr::literal(ScalarValue::Utf8View(Some("same".into())));
    let case = Node::Case {
        branches: vec![
            (binary(BinaryOp::Lt, text(0), text(1)), text(0)),
            (binary(BinaryOp::Eq, text(0), text(1)), same),
        ],
        otherwise: Some(Box::new(text(1))),
    };
    let expected: Vec<_> = pairs()
        .map(|(a, b)| match (a, b) {
            (Some(a), Some(b)) if a < b => Some(own(a)),
            (Some(a), Some(b)) if a == b => Some("same".to_string()),
            _ => b.as_ref().map(own),
        })
        .collect();
    assert_eq!(run(&node(case, DataType::Utf8View), &arrays), expected);
}
