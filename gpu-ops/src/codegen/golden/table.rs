//! The one table that golden kernels read, and the device that they are made for.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, Decimal128Array, Float64Array, Int32Array, Int64Array, StringViewArray,
};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};

use crate::column::{StringPolicy, encode};
use crate::device::{Device, DeviceInfo};
use crate::memory::MemoryPool;
use crate::tables::LoadedTable;

pub(super) const ROWS: i32 = 5000;

/// Columns of the one table.
pub(super) const ID: usize = 0;
pub(super) const STATUS: usize = 1;
pub(super) const CUSTOMER: usize = 2;
pub(super) const PRICE: usize = 3;
pub(super) const COMMENT: usize = 4;
pub(super) const MODE: usize = 5;
pub(super) const WEIGHT: usize = 6;
pub(super) const HASH: usize = 7;

pub(super) fn price_type() -> DataType {
    DataType::Decimal128(12, 2)
}

pub(super) fn schema() -> SchemaRef {
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
pub(super) fn table(device: &Arc<dyn Device>) -> LoadedTable {
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
        ..LoadedTable::default()
    }
}

/// A card of a size of its own, whatever runs the test.
pub(super) fn device() -> DeviceInfo {
    DeviceInfo {
        name: "golden".into(),
        id: "golden".into(),
        memory: 80 << 30,
        compute_capability: (9, 0),
        multiprocessors: 132,
        memory_bandwidth: 0.0,
        shared_memory_per_block: 227 << 10,
        shared_memory_per_multiprocessor: 228 << 10,
        l2_cache: 50 << 20,
        driver: String::new(),
        compiler: String::new(),
        emulated: false,
    }
}
