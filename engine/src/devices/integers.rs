//! Values of statistics as integers.

use datafusion::common::ScalarValue;

/// The number that a value is kept as; `None` for floats, strings and others.
pub(super) fn integer(value: &ScalarValue) -> Option<i128> {
    Some(match value {
        ScalarValue::Decimal32(Some(v), ..) => (*v).into(),
        ScalarValue::Decimal64(Some(v), ..) => (*v).into(),
        ScalarValue::Decimal128(Some(v), ..) => *v,
        ScalarValue::Date32(Some(v)) | ScalarValue::Int32(Some(v)) => (*v).into(),
        ScalarValue::Date64(Some(v)) | ScalarValue::Int64(Some(v)) => (*v).into(),
        ScalarValue::Int16(Some(v)) => (*v).into(),
        ScalarValue::Int8(Some(v)) => (*v).into(),
        ScalarValue::UInt64(Some(v)) => (*v).into(),
        ScalarValue::UInt32(Some(v)) => (*v).into(),
        ScalarValue::UInt16(Some(v)) => (*v).into(),
        ScalarValue::UInt8(Some(v)) => (*v).into(),
        ScalarValue::TimestampSecond(Some(v), _)
        | ScalarValue::TimestampMillisecond(Some(v), _)
        | ScalarValue::TimestampMicrosecond(Some(v), _)
        | ScalarValue::TimestampNanosecond(Some(v), _) => (*v).into(),
        _ => return None,
    })
}
