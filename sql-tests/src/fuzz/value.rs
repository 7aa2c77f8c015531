//! Types of columns, and values of them.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, BinaryArray, BooleanArray, Decimal128Array, ListBuilder, PrimitiveArray, StringArray,
    StringBuilder, TimestampMicrosecondArray, TimestampMillisecondArray, TimestampNanosecondArray,
    TimestampSecondArray,
};
use arrow::compute::cast;
use arrow::datatypes::{
    ArrowPrimitiveType, DataType, Date32Type, Date64Type, Float32Type, Float64Type, Int8Type,
    Int16Type, Int32Type, Int64Type, TimeUnit, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow::error::ArrowError;

use crate::Random;

/// What an expression is about; types of a class compare with one another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Class {
    /// Integers of any width.
    Int,
    /// Decimals of any precision.
    Decimal,
    /// Floats.
    Float,
    /// Truth values.
    Bool,
    /// Strings, plain or in dictionaries.
    Text,
    /// Strings of bytes that need not be text.
    Bytes,
    /// Lists of strings.
    List,
    /// Dates.
    Date,
    /// Points in time.
    Timestamp,
}

impl Class {
    /// All.
    pub const ALL: [Self; 9] = [
        Self::Int,
        Self::Decimal,
        Self::Float,
        Self::Bool,
        Self::Text,
        Self::Bytes,
        Self::List,
        Self::Date,
        Self::Timestamp,
    ];

    /// The class of a column's type.
    pub fn of(data_type: &DataType) -> Self {
        match data_type {
            DataType::Boolean => Self::Bool,
            DataType::Float32 | DataType::Float64 => Self::Float,
            DataType::Date32 | DataType::Date64 => Self::Date,
            DataType::Timestamp(..) => Self::Timestamp,
            DataType::Binary | DataType::LargeBinary | DataType::BinaryView => Self::Bytes,
            DataType::List(_) => Self::List,
            integer if integer.is_integer() => Self::Int,
            decimal if decimal.is_decimal() => Self::Decimal,
            _ => Self::Text,
        }
    }
}

/// A cell of a column, as far from Arrow's types as it can be: shrinking and printing know no widths.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// NULL.
    Null,
    /// A truth value.
    Bool(bool),
    /// An integer, the digits of a decimal, days or units of time.
    Int(i128),
    /// A float.
    Float(f64),
    /// A string; of bytes, see [`bytes`]; the list of its characters.
    Text(String),
}

/// Words of which the first often repeat: the empty one, prefixes of another, wildcards, more than a view holds inline.
const WORDS: [&str; 12] = [
    "one",
    "two",
    "three",
    "",
    "a",
    "ab",
    "Bär",
    "日本",
    "a%b_c",
    "zz top and some more words",
    " blank ",
    "ONE",
];

/// A type, the frequent ones more often.
pub fn draw_type(random: &mut Random) -> DataType {
    let dictionary =
        |keys: DataType| DataType::Dictionary(Box::new(keys), Box::new(DataType::Utf8));
    let units = [
        TimeUnit::Second,
        TimeUnit::Millisecond,
        TimeUnit::Microsecond,
        TimeUnit::Nanosecond,
    ];
    let unit = *random.one(&units);
    let zone: Option<Arc<str>> = match random.below(12) {
        0 => Some("UTC".into()),
        1 => Some("+02:00".into()),
        _ => None,
    };
    let kinds = [
        (14, DataType::Int32),
        (14, DataType::Int64),
        (4, DataType::Int8),
        (4, DataType::Int16),
        (3, DataType::UInt8),
        (2, DataType::UInt16),
        (3, DataType::UInt32),
        (4, DataType::UInt64),
        (3, DataType::Float32),
        (8, DataType::Float64),
        (4, DataType::Decimal128(5, 2)),
        (6, DataType::Decimal128(15, 2)),
        (2, DataType::Decimal128(18, 0)),
        (2, DataType::Decimal128(38, 4)),
        (8, DataType::Boolean),
        (12, DataType::Utf8),
        (3, DataType::LargeUtf8),
        (5, DataType::Utf8View),
        (4, dictionary(DataType::Int32)),
        (2, dictionary(DataType::UInt16)),
        (4, DataType::Binary),
        (2, DataType::BinaryView),
        (5, DataType::new_list(DataType::Utf8, true)),
        (8, DataType::Date32),
        (2, DataType::Date64),
        (7, DataType::Timestamp(unit, zone)),
    ];
    random.weighted(&kinds).clone()
}

/// The `index`-th value of a type: equal numbers are equal values of all types of a class, where they fit.
pub fn nth(data_type: &DataType, index: i64) -> Value {
    let index = i128::from(index);
    match data_type {
        DataType::Boolean => Value::Bool(index % 2 == 1),
        DataType::Int8 => Value::Int((index + 126) % 256 - 128),
        DataType::UInt8 => Value::Int(index % 256),
        integer if integer.is_unsigned_integer() => Value::Int(index),
        integer if integer.is_integer() => Value::Int(index - 2),
        // Sums of eighths are exact in any order.
        DataType::Float32 | DataType::Float64 => Value::Float((index - 2) as f64 / 8.0),
        DataType::Decimal128(5, _) => Value::Int((index - 2) * 25 % 100_000),
        DataType::Decimal128(_, scale) => {
            Value::Int((index - 2) * 25 * 10_i128.pow((*scale).max(0) as u32) / 100)
        }
        // Around the leap day of 2000.
        DataType::Date32 => Value::Int(11_010 + index * 3),
        DataType::Date64 => Value::Int((11_010 + index * 3) * 86_400_000),
        DataType::Timestamp(unit, _) => {
            Value::Int((951_782_395 + index * 4_321) * i128::from(ticks(*unit)))
        }
        _ => Value::Text(match WORDS.get(index as usize) {
            Some(word) => (*word).to_string(),
            None => format!("word {index}"),
        }),
    }
}

fn ticks(unit: TimeUnit) -> i64 {
    match unit {
        TimeUnit::Second => 1,
        TimeUnit::Millisecond => 1_000,
        TimeUnit::Microsecond => 1_000_000,
        TimeUnit::Nanosecond => 1_000_000_000,
    }
}

/// Values at the ends of a type's range; none where there are no such.
pub fn extremes(data_type: &DataType) -> Vec<Value> {
    let ints = |low: i128, high: i128| vec![Value::Int(low), Value::Int(high)];
    match data_type {
        DataType::Int8 => ints(i8::MIN.into(), i8::MAX.into()),
        DataType::Int16 => ints(i16::MIN.into(), i16::MAX.into()),
        DataType::Int32 => ints(i32::MIN.into(), i32::MAX.into()),
        DataType::Int64 => ints(i64::MIN.into(), i64::MAX.into()),
        DataType::UInt8 => ints(0, u8::MAX.into()),
        DataType::UInt16 => ints(0, u16::MAX.into()),
        DataType::UInt32 => ints(0, u32::MAX.into()),
        DataType::UInt64 => ints(0, u64::MAX.into()),
        DataType::Decimal128(precision, _) => {
            let most = 10_i128.pow(u32::from(*precision)) - 1;
            ints(-most, most)
        }
        DataType::Date32 => ints(-719_162, 2_932_896),
        DataType::Timestamp(TimeUnit::Second, _) => ints(-62_135_596_800, 253_402_300_799),
        DataType::Timestamp(TimeUnit::Nanosecond, _) => {
            ints(-9_223_372_036_000_000_000, 9_223_372_036_000_000_000)
        }
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => {
            vec![
                Value::Text("x".repeat(300)),
                Value::Text("\u{10FFFF}".into()),
            ]
        }
        _ => vec![],
    }
}

/// Floats that are no numbers, and the zero whose sign shows only in a division.
pub const WILD: [f64; 4] = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -0.0];

/// The values as an array of the type.
///
/// # Errors
/// When a value does not fit.
pub fn array(data_type: &DataType, values: &[Value]) -> Result<ArrayRef, ArrowError> {
    Ok(match data_type {
        DataType::Boolean => Arc::new(BooleanArray::from_iter(values.iter().map(|v| match v {
            Value::Bool(b) => Some(*b),
            _ => None,
        }))),
        DataType::Int8 => ints::<Int8Type>(values, |i| i as i8),
        DataType::Int16 => ints::<Int16Type>(values, |i| i as i16),
        DataType::Int32 => ints::<Int32Type>(values, |i| i as i32),
        DataType::Int64 => ints::<Int64Type>(values, |i| i as i64),
        DataType::UInt8 => ints::<UInt8Type>(values, |i| i as u8),
        DataType::UInt16 => ints::<UInt16Type>(values, |i| i as u16),
        DataType::UInt32 => ints::<UInt32Type>(values, |i| i as u32),
        DataType::UInt64 => ints::<UInt64Type>(values, |i| i as u64),
        DataType::Date32 => ints::<Date32Type>(values, |i| i as i32),
        DataType::Date64 => ints::<Date64Type>(values, |i| i as i64),
        DataType::Float32 => floats::<Float32Type>(values, |f| f as f32),
        DataType::Float64 => floats::<Float64Type>(values, |f| f),
        DataType::Decimal128(precision, scale) => Arc::new(
            Decimal128Array::from_iter(values.iter().map(int))
                .with_precision_and_scale(*precision, *scale)?,
        ),
        DataType::Timestamp(unit, zone) => {
            let ticks = values.iter().map(|value| int(value).map(|i| i as i64));
            match unit {
                TimeUnit::Second => {
                    Arc::new(TimestampSecondArray::from_iter(ticks).with_timezone_opt(zone.clone()))
                }
                TimeUnit::Millisecond => Arc::new(
                    TimestampMillisecondArray::from_iter(ticks).with_timezone_opt(zone.clone()),
                ),
                TimeUnit::Microsecond => Arc::new(
                    TimestampMicrosecondArray::from_iter(ticks).with_timezone_opt(zone.clone()),
                ),
                TimeUnit::Nanosecond => Arc::new(
                    TimestampNanosecondArray::from_iter(ticks).with_timezone_opt(zone.clone()),
                ),
            }
        }
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView => {
            let bytes = values.iter().map(|value| match value {
                Value::Text(text) => Some(bytes(text)),
                _ => None,
            });
            cast(&BinaryArray::from_iter(bytes), data_type)?
        }
        DataType::List(_) => {
            let mut lists = ListBuilder::new(StringBuilder::new());
            for value in values {
                if let Value::Text(text) = value {
                    let characters = text.chars().map(|c| Some(c.to_string()));
                    lists.append_value(characters);
                } else {
                    lists.append_null();
                }
            }
            Arc::new(lists.finish())
        }
        text => {
            let strings = StringArray::from_iter(values.iter().map(|value| match value {
                Value::Text(text) => Some(text.as_str()),
                _ => None,
            }));
            cast(&strings, text)?
        }
    })
}

/// The bytes that stand for a string in columns of bytes: those with an `o` are no text.
pub fn bytes(text: &str) -> Vec<u8> {
    let byte = |byte: u8| if byte == b'o' { 0xff } else { byte };
    text.bytes().map(byte).collect()
}

fn int(value: &Value) -> Option<i128> {
    match value {
        Value::Int(i) => Some(*i),
        _ => None,
    }
}

fn ints<T: ArrowPrimitiveType>(values: &[Value], narrow: fn(i128) -> T::Native) -> ArrayRef {
    let cells = values.iter().map(|value| int(value).map(narrow));
    Arc::new(PrimitiveArray::<T>::from_iter(cells))
}

fn floats<T: ArrowPrimitiveType>(values: &[Value], narrow: fn(f64) -> T::Native) -> ArrayRef {
    let cells = values.iter().map(|value| match value {
        Value::Float(f) => Some(narrow(*f)),
        _ => None,
    });
    Arc::new(PrimitiveArray::<T>::from_iter(cells))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_fit_the_types_they_are_drawn_for() {
        let mut random = Random::new(1);
        for _ in 0..300 {
            let data_type = draw_type(&mut random);
            let mut values: Vec<Value> = (0..300).map(|i| nth(&data_type, i)).collect();
            values.extend(extremes(&data_type));
            values.push(Value::Null);
            let array = array(&data_type, &values).expect("an array");
            assert_eq!(array.data_type(), &data_type);
            assert_eq!(array.null_count(), 1, "{data_type}");
        }
    }
}
