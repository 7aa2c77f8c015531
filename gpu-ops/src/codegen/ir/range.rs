//! Exact intervals of integer values, the ground on which widths are chosen.

use arrow::datatypes::DataType;

/// A closed interval of integers (unscaled for decimals, days for dates …).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    /// Smallest value.
    pub min: i128,
    /// Largest value.
    pub max: i128,
}

impl Range {
    /// Every value of 128 bits.
    pub const FULL: Self = Self {
        min: i128::MIN,
        max: i128::MAX,
    };

    /// `[min, max]`, in either order.
    pub fn new(a: i128, b: i128) -> Self {
        Self {
            min: a.min(b),
            max: a.max(b),
        }
    }

    /// One value.
    pub fn point(value: i128) -> Self {
        Self {
            min: value,
            max: value,
        }
    }

    /// The smallest interval that holds both.
    pub fn union(self, other: Self) -> Self {
        Self {
            min: self.min.min(other.min),
            max: self.max.max(other.max),
        }
    }

    /// True when every value of `self` lies in `other`.
    pub fn within(self, other: Self) -> bool {
        other.min <= self.min && self.max <= other.max
    }

    /// True when `value` lies in the interval.
    pub fn contains(self, value: i128) -> bool {
        self.min <= value && value <= self.max
    }

    /// Number of values, if it fits 64 bits.
    pub fn size(self) -> Option<u64> {
        let span = self.max.checked_sub(self.min)?;
        u64::try_from(span.checked_add(1)?).ok()
    }

    /// Largest magnitude.
    pub fn magnitude(self) -> u128 {
        self.min.unsigned_abs().max(self.max.unsigned_abs())
    }

    /// Sum, `None` when it can leave 128 bits.
    pub fn plus(self, other: Self) -> Option<Self> {
        Some(Self {
            min: self.min.checked_add(other.min)?,
            max: self.max.checked_add(other.max)?,
        })
    }

    /// Difference, `None` when it can leave 128 bits.
    pub fn minus(self, other: Self) -> Option<Self> {
        Some(Self {
            min: self.min.checked_sub(other.max)?,
            max: self.max.checked_sub(other.min)?,
        })
    }

    /// Product, `None` when it can leave 128 bits.
    pub fn times(self, other: Self) -> Option<Self> {
        let corners = [
            self.min.checked_mul(other.min)?,
            self.min.checked_mul(other.max)?,
            self.max.checked_mul(other.min)?,
            self.max.checked_mul(other.max)?,
        ];
        let min = corners.iter().copied().min()?;
        let max = corners.iter().copied().max()?;
        Some(Self { min, max })
    }

    /// Quotient truncated toward zero by any non-zero divisor: never larger in magnitude than the
    /// dividend, except for the smallest value by -1, which faults.
    pub fn divide(self, divisor: Self) -> Self {
        let largest = i128::try_from(self.magnitude()).unwrap_or(i128::MAX);
        if divisor.min == divisor.max && divisor.min > 0 {
            return Self {
                min: self.min / divisor.min,
                max: self.max / divisor.min,
            };
        }
        let negative_possible = self.min < 0 || divisor.min < 0;
        let positive_possible = self.max > 0 || divisor.min < 0;
        Self {
            min: if negative_possible { -largest } else { 0 },
            max: if positive_possible { largest } else { 0 },
        }
    }

    /// Values of an integer type, of the native integer of a decimal, or of a date or timestamp.
    pub fn of_type(data_type: &DataType) -> Option<Self> {
        use DataType::*;
        Some(match data_type {
            Boolean => Self::new(0, 1),
            Int8 => Self::new(i8::MIN.into(), i8::MAX.into()),
            Int16 => Self::new(i16::MIN.into(), i16::MAX.into()),
            Int32 | Date32 | Time32(_) | Decimal32(..) => {
                Self::new(i32::MIN.into(), i32::MAX.into())
            }
            Int64 | Date64 | Time64(_) | Timestamp(..) | Duration(_) | Decimal64(..) => {
                Self::new(i64::MIN.into(), i64::MAX.into())
            }
            UInt8 => Self::new(0, u8::MAX.into()),
            UInt16 => Self::new(0, u16::MAX.into()),
            UInt32 => Self::new(0, u32::MAX.into()),
            UInt64 => Self::new(0, u64::MAX.into()),
            Decimal128(..) => Self::FULL,
            _ => return None,
        })
    }

    /// Values of a decimal of `precision` digits (at most 38).
    pub fn of_precision(precision: u8) -> Self {
        let bound = 10i128
            .checked_pow(u32::from(precision))
            .map_or(i128::MAX, |p| p - 1);
        Self {
            min: -bound,
            max: bound,
        }
    }
}
