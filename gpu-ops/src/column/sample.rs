//! Some rows of a column, on the host: the share of a table's rows that conditions let pass is found by asking these.
//!
//! The same rows of all columns of a table are taken, so conditions on several columns are asked together.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, DictionaryArray, Float64Array, Int64Array, UInt32Array};
use arrow::compute::take;
use arrow::datatypes::UInt32Type;

use super::sketch::{SAMPLE, Sketch, sampled_rows};
use super::types::{ColumnStatistics, Dictionary};

/// Rows that are kept at most.
const ROWS: usize = 1 << 12;

/// The values that some rows of a column have.
#[derive(Debug, Clone)]
pub struct Sample {
    /// Rows of the column.
    rows: usize,
    values: ArrayRef,
}

impl Sample {
    /// Rows of the column that these are of. Samples of columns of as many rows are of the same rows.
    pub fn of_rows(&self) -> usize {
        self.rows
    }

    /// Are these all rows?
    pub fn is_complete(&self) -> bool {
        self.values.len() == self.rows
    }

    /// Of strings, one for each of [`kept_rows`]; `valid` tells which are not NULL.
    pub(super) fn of_strings(
        rows: usize,
        valid: impl Iterator<Item = bool>,
        strings: ArrayRef,
    ) -> Option<Self> {
        let place = |(place, valid): (u32, bool)| valid.then_some(place);
        let places: UInt32Array = (0u32..).zip(valid).map(place).collect();
        let values = DictionaryArray::<UInt32Type>::try_new(places, strings).ok()?;
        let values = Arc::new(values);
        Some(Self { rows, values })
    }

    /// Numbers as Int64 (decimals unscaled, days and ticks, 0 and 1 for Booleans) or Float64; strings in a
    /// dictionary with codes of 32 bits.
    pub fn values(&self) -> &ArrayRef {
        &self.values
    }
}

/// The values of the rows [`super::sketch::sampled_rows`] of a column, in their order, `None` where NULL.
#[derive(Debug)]
pub(super) struct SampledValues {
    /// Rows of the column.
    pub(super) rows: usize,
    pub(super) values: Vec<Option<i128>>,
}

impl SampledValues {
    /// Those that are not NULL.
    pub(super) fn valid(&self) -> Vec<i128> {
        self.values.iter().flatten().copied().collect()
    }

    /// What is kept of numbers; `None` when some are larger than 64 bits.
    pub(super) fn numbers(&self) -> Option<Sample> {
        let value = |value: &Option<i128>| match value {
            None => Some(None),
            Some(value) => i64::try_from(*value).ok().map(Some),
        };
        let values: Option<Int64Array> = self.kept()?.map(value).collect();
        self.sample(Arc::new(values?))
    }

    /// What is kept of floats of `width` bytes, of which the values are the bits.
    pub(super) fn floats(&self, width: u8) -> Option<Sample> {
        let value = |bits: i128| match width {
            4 => f64::from(f32::from_bits(bits as u32)),
            _ => f64::from_bits(bits as u64),
        };
        let values: Float64Array = self.kept()?.map(|bits| bits.map(value)).collect();
        self.sample(Arc::new(values))
    }

    /// What is kept of codes into a dictionary of these strings.
    pub(super) fn strings(&self, dictionary: &ArrayRef) -> Option<Sample> {
        let code = |code: &Option<i128>| code.and_then(|code| u32::try_from(code).ok());
        let codes: Vec<Option<u32>> = self.kept()?.map(code).collect();
        let mut used: Vec<u32> = codes.iter().flatten().copied().collect();
        used.sort_unstable();
        used.dedup();
        let place = |code: &Option<u32>| {
            let place = code.and_then(|code| used.binary_search(&code).ok());
            place.map(|place| place as u32)
        };
        let places: UInt32Array = codes.iter().map(place).collect();
        let values = take(dictionary, &UInt32Array::from(used), None).ok()?;
        let values = DictionaryArray::<UInt32Type>::try_new(places, values).ok()?;
        self.sample(Arc::new(values))
    }

    /// Every so many of them; `None` when some are missing.
    fn kept(&self) -> Option<impl Iterator<Item = &Option<i128>>> {
        let all = self.values.len() == self.rows.min(SAMPLE);
        all.then(|| self.values.iter().step_by(step(self.values.len())))
    }

    fn sample(&self, values: ArrayRef) -> Option<Sample> {
        let rows = self.rows;
        Some(Sample { rows, values })
    }
}

impl ColumnStatistics {
    /// What is known in brief of numbers, or of floats of so many bytes, once it is known whether they are unique.
    pub(super) fn note_numbers(
        &mut self,
        hashes: Sketch,
        sample: &SampledValues,
        float: Option<u8>,
    ) {
        self.sketch = Some(Arc::new(match self.unique {
            true => hashes,
            false => hashes.with_sample(sample.valid()),
        }));
        self.sample = match float {
            None => sample.numbers(),
            Some(width) => sample.floats(width),
        }
        .map(Arc::new);
    }

    /// What is known in brief of codes into a dictionary, once it is known whether they are unique.
    pub(super) fn note_strings(&mut self, sample: &SampledValues, dictionary: &Dictionary) {
        if !self.unique {
            let sketch = Sketch::default().with_sample(sample.valid());
            self.sketch = Some(Arc::new(sketch));
        }
        self.sample = sample.strings(&dictionary.values).map(Arc::new);
    }
}

/// The rows of a column of which values are kept.
pub(super) fn kept_rows(rows: usize) -> impl Iterator<Item = usize> {
    sampled_rows(rows, 0..rows).step_by(step(rows.min(SAMPLE)))
}

/// One row in so many is kept, of `sampled` ones.
fn step(sampled: usize) -> usize {
    sampled.div_ceil(ROWS).max(1)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use arrow::array::{ArrayAccessor, AsArray, StringArray};
    use arrow::datatypes::{Float64Type, Int64Type};

    use super::*;

    fn of(rows: usize, value: impl Fn(usize) -> Option<i128>) -> SampledValues {
        let values = (0..rows.min(SAMPLE)).map(value).collect();
        SampledValues { rows, values }
    }

    #[test]
    fn rows_are_kept_side_by_side() {
        for rows in [0, 1, ROWS, ROWS + 1, 3 * ROWS, SAMPLE, SAMPLE + 1, 1 << 40] {
            let numbers = of(rows, |i| (i % 3 == 1).then_some(i as i128));
            let numbers = numbers.numbers().unwrap();
            let floats = of(rows, |i| Some(i128::from((i as f64).to_bits())));
            let floats = floats.floats(8).unwrap();
            let words: ArrayRef = Arc::new(StringArray::from(vec!["a", "b", "c", "d"]));
            let strings = of(rows, |i| (i % 4 != 3).then_some((i % 4) as i128));
            let strings = strings.strings(&words).unwrap();
            assert!(numbers.values().len() <= ROWS, "{rows}");
            assert!(numbers.values().len() >= rows.min(ROWS / 2), "{rows}");
            assert_eq!(numbers.is_complete(), rows <= ROWS, "{rows}");
            let numbers = numbers.values().as_primitive::<Int64Type>();
            let floats = floats.values().as_primitive::<Float64Type>();
            let strings = strings.values().as_dictionary::<UInt32Type>();
            let strings = strings.downcast_dict::<StringArray>().unwrap();
            assert_eq!(numbers.len(), floats.len());
            assert_eq!(numbers.len(), strings.len());
            for (i, row) in floats.iter().enumerate() {
                let row = row.unwrap() as usize;
                let number = (row % 3 == 1).then_some(row as i64);
                assert_eq!(numbers.is_valid(i).then(|| numbers.value(i)), number);
                let string = ["a", "b", "c"].get(row % 4).copied();
                let keys = strings.keys();
                assert_eq!(keys.is_valid(i).then(|| strings.value(i)), string);
            }
        }
        // Rows that were not seen would stand beside others.
        let some = SampledValues {
            rows: 10,
            values: vec![Some(1); 9],
        };
        assert!(some.numbers().is_none() && some.floats(4).is_none());
        assert!(of(10, |_| Some(1 << 70)).numbers().is_none());
        assert!(of(10, |_| None).numbers().is_some());
    }
}
