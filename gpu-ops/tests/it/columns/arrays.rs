//! Arrays of every type with random values of a fixed seed.

use std::sync::Arc;

use arrow::array::*;
use arrow::buffer::NullBuffer;
use arrow::compute::cast;
use arrow::datatypes::*;

/// Random numbers of a fixed seed (xorshift).
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub(super) fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Nulls {
    None,
    Some,
    All,
}

fn integer_types() -> Vec<DataType> {
    let mut types = vec![
        DataType::Int8,
        DataType::Int16,
        DataType::Int32,
        DataType::Int64,
        DataType::UInt8,
        DataType::UInt16,
        DataType::UInt32,
        DataType::UInt64,
        DataType::Date32,
        DataType::Date64,
        DataType::Time32(TimeUnit::Second),
        DataType::Time32(TimeUnit::Millisecond),
        DataType::Time64(TimeUnit::Microsecond),
        DataType::Time64(TimeUnit::Nanosecond),
        DataType::Decimal32(9, 2),
        DataType::Decimal64(18, -3),
        DataType::Decimal128(38, 10),
        DataType::Decimal256(76, 4),
    ];
    for unit in [
        TimeUnit::Second,
        TimeUnit::Millisecond,
        TimeUnit::Microsecond,
        TimeUnit::Nanosecond,
    ] {
        types.push(DataType::Timestamp(unit, None));
        types.push(DataType::Timestamp(unit, Some("+02:00".into())));
        types.push(DataType::Duration(unit));
    }
    types
}

pub(super) fn all_types() -> Vec<DataType> {
    let mut types = integer_types();
    types.extend([DataType::Boolean, DataType::Float32, DataType::Float64]);
    types.extend([DataType::Utf8, DataType::LargeUtf8, DataType::Utf8View]);
    types.extend([
        DataType::Binary,
        DataType::LargeBinary,
        DataType::BinaryView,
        DataType::FixedSizeBinary(5),
    ]);
    for key in [DataType::Int8, DataType::UInt16, DataType::Int64] {
        for value in [
            DataType::Utf8,
            DataType::Utf8View,
            DataType::Binary,
            DataType::Int32,
        ] {
            types.push(DataType::Dictionary(Box::new(key.clone()), Box::new(value)));
        }
    }
    types
}

/// `raw` as values of `data_type`, which has the same representation.
fn retype(raw: ArrayRef, data_type: &DataType) -> ArrayRef {
    let data = raw.to_data().into_builder().data_type(data_type.clone());
    make_array(data.build().unwrap())
}

/// An array of random values: of a random spread around a random value for integers, of a few or
/// many distinct ones for strings. Null rows hold values too.
pub(super) fn random_array(
    data_type: &DataType,
    rows: usize,
    nulls: Nulls,
    random: &mut Random,
) -> ArrayRef {
    let validity: Option<NullBuffer> = match nulls {
        Nulls::None => None,
        Nulls::Some => Some((0..rows).map(|_| random.below(3) > 0).collect()),
        Nulls::All => Some(NullBuffer::new_null(rows)),
    };
    let origin = random.next() as i64;
    let spread = [1, 200, 60_000, 1 << 31, u64::MAX][random.below(5) as usize];
    let integers: Vec<i64> = (0..rows)
        .map(|_| origin.wrapping_add(random.below(spread) as i64))
        .collect();
    macro_rules! primitive {
        ($array:ty, $native:ty) => {{
            let values: Vec<$native> = integers.iter().map(|v| *v as $native).collect();
            let array: ArrayRef = Arc::new(<$array>::new(values.into(), validity));
            retype(array, data_type)
        }};
    }
    match data_type {
        DataType::Int8 => primitive!(Int8Array, i8),
        DataType::Int16 => primitive!(Int16Array, i16),
        DataType::Int32 | DataType::Date32 | DataType::Time32(_) | DataType::Decimal32(_, _) => {
            primitive!(Int32Array, i32)
        }
        DataType::UInt8 => primitive!(UInt8Array, u8),
        DataType::UInt16 => primitive!(UInt16Array, u16),
        DataType::UInt32 => primitive!(UInt32Array, u32),
        DataType::UInt64 => primitive!(UInt64Array, u64),
        DataType::Decimal128(_, _) => {
            let scale = if random.below(2) == 0 {
                1
            } else {
                i128::from(u64::MAX)
            };
            let values: Vec<i128> = integers.iter().map(|v| i128::from(*v) * scale).collect();
            retype(
                Arc::new(Decimal128Array::new(values.into(), validity)),
                data_type,
            )
        }
        DataType::Decimal256(_, _) => {
            let values: Vec<i256> = integers.iter().map(|v| i256::from(*v)).collect();
            retype(
                Arc::new(Decimal256Array::new(values.into(), validity)),
                data_type,
            )
        }
        DataType::Float32 => {
            let values: Vec<f32> = integers.iter().map(|v| *v as f32 / 7.0).collect();
            Arc::new(Float32Array::new(values.into(), validity))
        }
        DataType::Float64 => {
            let values: Vec<f64> = integers.iter().map(|v| *v as f64 / 7.0).collect();
            Arc::new(Float64Array::new(values.into(), validity))
        }
        DataType::Boolean => {
            let values = integers.iter().map(|v| v & 1 == 1).collect();
            Arc::new(BooleanArray::new(values, validity))
        }
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => {
            let distinct = [1, 3, 300, 70_000][random.below(4) as usize];
            cast(&random_strings(rows, distinct, validity, random), data_type).unwrap()
        }
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView => {
            let distinct = [1, 3, 300, 70_000][random.below(4) as usize];
            cast(&random_bytes(rows, distinct, validity, random), data_type).unwrap()
        }
        DataType::FixedSizeBinary(_) => {
            let distinct = [1, 3, 300, 70_000][random.below(4) as usize];
            let values = (0..rows).flat_map(|_| {
                let number = random.below(distinct);
                number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()[..5].to_vec()
            });
            Arc::new(FixedSizeBinaryArray::new(5, values.collect(), validity))
        }
        DataType::Dictionary(_, value) if **value == DataType::Binary => {
            cast(&random_bytes(rows, 60, validity, random), data_type).unwrap()
        }
        DataType::Dictionary(_, value) if **value == DataType::Int32 => {
            let values: Vec<i32> = (0..rows).map(|_| 1000 - random.below(50) as i32).collect();
            let array: ArrayRef = Arc::new(Int32Array::new(values.into(), validity));
            cast(&array, data_type).unwrap()
        }
        DataType::Dictionary(_, _) => {
            cast(&random_strings(rows, 60, validity, random), data_type).unwrap()
        }
        _ => primitive!(Int64Array, i64),
    }
}

/// Some of them are no text.
fn random_bytes(
    rows: usize,
    distinct: u64,
    validity: Option<NullBuffer>,
    random: &mut Random,
) -> ArrayRef {
    let texts = random_strings(rows, distinct, validity, random);
    let bytes = texts.as_string::<i32>().iter().map(|text| {
        let byte = |byte: u8| if byte == b'3' { 0xff } else { byte };
        text.map(|text| text.bytes().map(byte).collect::<Vec<u8>>())
    });
    Arc::new(BinaryArray::from_iter(bytes))
}

fn random_strings(
    rows: usize,
    distinct: u64,
    validity: Option<NullBuffer>,
    random: &mut Random,
) -> ArrayRef {
    let texts = (0..rows).map(|row| {
        let number = random.below(distinct);
        let valid = validity.as_ref().is_none_or(|nulls| nulls.is_valid(row));
        valid.then(|| match number % 5 {
            0 if number == 0 => String::new(),
            1 => format!("é–{number}"),
            2 => format!("\u{1f600}{number} a text that is longer than an inline view"),
            3 => format!("{number:07}"),
            _ => "x".repeat(number as usize % 40),
        })
    });
    Arc::new(StringArray::from_iter(texts))
}
