//! Checksums of answers, expected and actual.

use warpline_cuda::kernels::{
    SyntheticGroupsArgs, SyntheticJoinArgs, SyntheticStatesArgs, SyntheticSumArgs,
};

use super::{Made, over_rows};
use crate::column::mix;
use crate::device::Stream;
use crate::error::{GpuError, Result};
use crate::exec::DeviceRows;
use crate::memory::DeviceBuffer;
use crate::runtime::Runtime;

/// Rows of an answer, and the sum over them of a hash of their columns: equal for equal answers in any order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Outcome {
    /// Rows.
    pub rows: u64,
    /// The sum modulo 2^64.
    pub sum: u64,
}

impl Outcome {
    /// What one row of integers comes to.
    pub fn of_row(values: &[u64]) -> Self {
        Self {
            rows: 1,
            sum: values.iter().fold(0, |hash, value| mix(hash ^ value)),
        }
    }
}

/// What is returned of a group beside its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Returned {
    /// Its rows.
    Count,
    /// The least value of a payload column.
    Least(usize),
    /// The greatest value of a payload column.
    Greatest(usize),
    /// The sum of a payload column, modulo 2^64, or 2^128 of columns of 16 bytes.
    Sum(usize),
}

/// Four bits a column: the binary logarithm of its bytes.
fn packed(widths: &[u32]) -> u64 {
    widths
        .iter()
        .rev()
        .fold(0, |all, width| all << 4 | u64::from(width.trailing_zeros()))
}

fn words(runtime: &Runtime, stream: &Stream, values: &[u64]) -> Result<DeviceBuffer> {
    let buffer = runtime
        .pool()
        .allocate(values.len().max(1) * 8, "checks of answers")?;
    if !values.is_empty() {
        buffer.upload_values(stream, 0, values)?;
    }
    Ok(buffer)
}

fn outcome(stream: &Stream, sums: &DeviceBuffer) -> Result<Outcome> {
    match sums.download_values::<u64>(stream, 0, 2)?[..] {
        [rows, sum] => Ok(Outcome { rows, sum }),
        _ => Err(GpuError::Internal("a sum of other than two words".into())),
    }
}

/// What the rows of an answer come to, columns in their order.
///
/// # Errors
/// [`GpuError::OutOfDeviceMemory`], [`GpuError::Compile`] and [`GpuError::Device`]; [`GpuError::Unsupported`] for
/// columns of floats.
pub fn sum(answer: &DeviceRows<'_>) -> Result<Outcome> {
    let (runtime, stream) = (answer.runtime, answer.stream);
    let mut described = Vec::new();
    for column in &answer.columns {
        if column.layout.float {
            return Err(GpuError::Unsupported("sums over floats".into()));
        }
        let wide = wide(&column.layout.data_type);
        // Codes of less than 16 bytes have no high half: that of their value is 0.
        described.extend([
            column.data.0,
            column.layout.width.into(),
            column.layout.base as u64,
            u64::from(wide),
        ]);
    }
    let columns = words(runtime, stream, &described)?;
    let sums = words(runtime, stream, &[0, 0])?;
    let args = SyntheticSumArgs {
        columns: columns.ptr(),
        sums: sums.ptr(),
        column_count: answer.columns.len() as u64,
        rows: answer.rows,
    };
    // SAFETY: the columns have all rows, of the widths given, as long as the answer is borrowed; the stream is waited for
    // when the sums are read.
    unsafe { over_rows(runtime, stream, "synthetic_sum", answer.rows, &args)? };
    outcome(stream, &sums)
}

/// Do values have a high half that counts?
fn wide(data_type: &arrow::datatypes::DataType) -> bool {
    data_type.primitive_width() == Some(16)
}

/// What the pairs of equal keys come to: the key, the payload of `build`, the payload of `probe`. The keys of `build` are
/// numbers in turn.
///
/// # Errors
/// As [`sum`]; [`GpuError::Unsupported`] for a build side of drawn numbers.
pub fn joined(runtime: &Runtime, stream: &Stream, build: &Made, probe: &Made) -> Result<Outcome> {
    if build.bands.is_some() {
        return Err(GpuError::Unsupported(
            "a join whose build side has drawn keys".into(),
        ));
    }
    let sums = words(runtime, stream, &[0, 0])?;
    let code = probe.side.key_code();
    let args = SyntheticJoinArgs {
        build: build.numbers(),
        probe: probe.numbers(),
        sums: sums.ptr(),
        probe_rows: probe.side.rows,
        factor: code.factor,
        mask: code.mask,
        base: code.base as u64,
        build_widths: packed(&build.side.payload),
        probe_widths: packed(&probe.side.payload),
        build_columns: build.side.payload.len() as u32,
        probe_columns: probe.side.payload.len() as u32,
    };
    // SAFETY: the sums are two words, the bands live with the tables.
    unsafe { over_rows(runtime, stream, "synthetic_join", probe.side.rows, &args)? };
    outcome(stream, &sums)
}

/// Counts and states of the groups of a table by its key.
#[derive(Debug)]
pub struct Grouped<'a> {
    made: &'a Made,
    states: DeviceBuffer,
    groups: u64,
}

impl<'a> Grouped<'a> {
    /// Counts, and keeps for each payload column what `returned` asks for.
    ///
    /// # Errors
    /// As [`sum`]; [`GpuError::Unsupported`] for a table whose keys are not drawn.
    pub fn of(
        runtime: &Runtime,
        stream: &Stream,
        made: &'a Made,
        returned: &[Returned],
    ) -> Result<Self> {
        if made.bands.is_none() {
            return Err(GpuError::Unsupported(
                "groups of keys that are not drawn".into(),
            ));
        }
        let groups = made.side.range();
        let columns = made.side.payload.len();
        let bytes = groups as usize * (1 + 4 * columns) * 8;
        let states = runtime.pool().allocate(bytes, "checks of answers")?;
        states.fill(stream, 0)?;
        let extremes = |r: &Returned| matches!(r, Returned::Least(_) | Returned::Greatest(_));
        let totals = |r: &Returned| matches!(r, Returned::Sum(_));
        let args = SyntheticStatesArgs {
            numbers: made.numbers(),
            states: states.ptr(),
            rows: made.side.rows,
            widths: packed(&made.side.payload),
            columns: columns as u32,
            extremes: returned.iter().any(extremes).into(),
            totals: returned.iter().any(totals).into(),
            pad: 0,
        };
        // SAFETY: the states have room for all groups, whose numbers are below the range; the bands live with the table.
        unsafe { over_rows(runtime, stream, "synthetic_states", made.side.rows, &args)? };
        Ok(Self {
            made,
            states,
            groups,
        })
    }

    /// What the rows of an answer come to: the key, then `returned`.
    ///
    /// # Errors
    /// As [`sum`]; [`GpuError::Internal`] for payload columns that there are not.
    pub fn outcome(
        &self,
        runtime: &Runtime,
        stream: &Stream,
        returned: &[Returned],
    ) -> Result<Outcome> {
        let payload = &self.made.side.payload;
        let mut described = Vec::new();
        for result in returned {
            let (which, column) = match result {
                Returned::Count => (0, 0),
                Returned::Least(column) => (1, *column),
                Returned::Greatest(column) => (2, *column),
                Returned::Sum(column) => (3, *column),
            };
            let width = payload.get(column).copied().unwrap_or(0);
            if *result != Returned::Count && width == 0 {
                return Err(GpuError::Internal("a check of no payload column".into()));
            }
            let wide = which == 3 && width == 16;
            described.extend([which, column as u64, u64::from(wide)]);
        }
        let results = words(runtime, stream, &described)?;
        let sums = words(runtime, stream, &[0, 0])?;
        let code = self.made.side.key_code();
        let args = SyntheticGroupsArgs {
            states: self.states.ptr(),
            results: results.ptr(),
            sums: sums.ptr(),
            result_count: returned.len() as u64,
            groups: self.groups,
            factor: code.factor,
            mask: code.mask,
            base: code.base as u64,
            columns: payload.len() as u32,
            pad: 0,
        };
        // SAFETY: the states are those of the groups, the results three words each, the sums two.
        unsafe { over_rows(runtime, stream, "synthetic_groups", self.groups, &args)? };
        outcome(stream, &sums)
    }
}
