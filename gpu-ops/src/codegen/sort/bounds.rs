//! Frames with distances: the kernel that searches, for each row of a window, the row of its partition at a distance from it.
//!
//! One row a thread; a binary search a bound reads a key a step, the first steps of neighbours from the cache, and writes 4 bytes.

use std::fmt::Write as _;

use super::source::kernel;
use crate::codegen::ir::arguments::Arguments;
use crate::codegen::ir::layout::ColumnLayout;
use crate::codegen::ir::program::KernelProgram;
use crate::codegen::ir::range::Range;
use crate::codegen::ir::refusal::unsupported;
use crate::codegen::ir::results::{CONTROL_WORDS, ControlWord};
use crate::codegen::ir::slot::{Part, Slot};
use crate::codegen::kernel::writer::BLOCK_THREADS;
use crate::error::{GpuError, Result};
use crate::graph::{Distance, FrameBound, Sort, SortKey, Window, WindowColumn};

/// The kernel, if the window has such columns; `columns` are those of its rows.
pub(super) fn kernel_of(
    sort: &Sort,
    window: &Window,
    columns: &[ColumnLayout],
) -> Result<Option<KernelProgram>> {
    let bounds = window.columns.iter().enumerate();
    let bounds: Vec<(usize, FrameBound)> = bounds
        .filter_map(|(i, column)| match column {
            WindowColumn::Bound(bound) => Some((i, *bound)),
            _ => None,
        })
        .collect();
    if bounds.is_empty() {
        return Ok(None);
    }
    let mut arguments = Arguments::default();
    let into = sort.into;
    let number = |wanted: WindowColumn, arguments: &mut Arguments| -> Result<String> {
        let at = window.columns.iter().position(|column| *column == wanted);
        let at = at.ok_or_else(|| GpuError::Internal(format!("a bound without {wanted:?}")))?;
        let part = Part::Column(columns.len() + at);
        Ok(arguments.pointer(Slot::Result(into, part), "u32*"))
    };
    let control = arguments.pointer(Slot::Control, "u64*");
    let most = arguments.size(Slot::SourceRows);
    let start = number(WindowColumn::PartitionStart, &mut arguments)?;
    let end = number(WindowColumn::PartitionEnd, &mut arguments)?;
    let mut body = String::new();
    for (i, bound) in bounds {
        let out = Slot::Result(into, Part::Column(columns.len() + i));
        let out = arguments.pointer(out, "u32*");
        let search = match bound.distance {
            Distance::Groups(groups) => {
                let rank = number(WindowColumn::DenseRank, &mut arguments)?;
                by_group(&rank, groups, bound, &mut arguments)
            }
            _ => {
                let key = sort.keys.get(window.partition);
                let key = key.ok_or_else(|| GpuError::Internal("a distance by no key".into()))?;
                let layout = argument(columns, key.column)?;
                by_key(sort, (*key, layout), (bound, &start), &mut arguments)?
            }
        };
        let _ = write!(
            body,
            "    {{\n{search}      u64 low = {start}[row], high = {end}[row];\n      \
             while (low < high) {{\n        const u64 at = low + (high - low) / 2;\n        \
             if (before(at)) low = at + 1; else high = at;\n      }}\n      \
             if (past(low)) low = {edge}[row];\n      {out}[row] = (u32)low;\n    }}\n",
            edge = if bound.preceding { &start } else { &end },
        );
    }
    let text = format!(
        "  const u64 rows = min_u64({control}[{}], {most});\n  \
         for (u64 row = (u64)blockIdx.x * {BLOCK_THREADS} + threadIdx.x; row < rows; row += (u64)gridDim.x * {BLOCK_THREADS}) {{\n\
         {body}  }}\n",
        into * CONTROL_WORDS + ControlWord::Count as usize,
    );
    Ok(Some(kernel("window_bounds", sort, arguments, &text)))
}

/// The lambda `before` of a distance in groups of peers: does a row come before the bound?
fn by_group(rank: &str, groups: u64, bound: FrameBound, arguments: &mut Arguments) -> String {
    // More groups than rows are as many.
    let groups = i128::from(groups.min(u64::from(u32::MAX)));
    let distance = arguments.literal(groups, true);
    let (sign, test) = (
        if bound.preceding { '-' } else { '+' },
        if bound.end { "<=" } else { "<" },
    );
    format!(
        "      const auto past = [&](u64) {{ return false; }};\n      \
         const i64 target = (i64){rank}[row] {sign} (i64){distance};\n      \
         const auto before = [&](u64 at) {{ return (i64){rank}[at] {test} target; }};\n"
    )
}

/// The same of a distance in values of the key. Where the value at that distance is none of the key's type (`past`), DataFusion
/// takes the partition's edge, but for ends before the row; and as its bounds never go back, NULLs behind such a row have it too.
fn by_key(
    sort: &Sort,
    (key, layout): (SortKey, &ColumnLayout),
    (bound, start): (FrameBound, &str),
    arguments: &mut Arguments,
) -> Result<String> {
    let data = Slot::Result(sort.into, Part::Column(key.column));
    let data = arguments.pointer(data, layout.pointer());
    let adds = bound.preceding == key.descending;
    let sign = if adds { '+' } else { '-' };
    let (t, value, target, past) = match (bound.distance, layout.float) {
        (Distance::Float(bits), true) => {
            let distance = arguments.float(f64::from_bits(bits));
            let t = if layout.width == 4 { "f32" } else { "f64" };
            let own = format!("total_order({data}[row] {sign} ({t}){distance})");
            (
                "i64",
                format!("total_order({data}[at])"),
                own,
                "false".to_string(),
            )
        }
        (Distance::Number(distance), false) => {
            let Some(range) = Range::of_type(&layout.data_type) else {
                return unsupported(format!("a distance between values of {}", layout.data_type));
            };
            let base = arguments.literal(layout.base, true);
            let distance = arguments.literal(distance, true);
            let [least, most] = [range.min, range.max].map(|end| arguments.literal(end, true));
            let value = |row: &str| format!("((i128){data}[{row}] + (i128){base})");
            let moved = |row: &str| format!("{} {sign} (i128){distance}", value(row));
            let own = moved("row");
            let unsigned = range.min == 0 && !adds;
            let target = match unsigned {
                true => format!("({own} < 0 ? (i128)0 : {own})"),
                false => own,
            };
            let beyond =
                |target: &str| format!("({target} < (i128){least} || {target} > (i128){most})");
            let mut past = format!("known && {}", beyond("target"));
            if layout.nullable && !key.nulls_first && !bound.preceding && !bound.end {
                // The row before the NULLs, which begin where the search of one of them ends.
                let before = beyond(&format!("({})", moved("(low - 1)")));
                past = format!("known ? {past} : low > {start}[row] && {before}");
            }
            ("i128", value("at"), target, past)
        }
        _ => return unsupported("a distance that is none of the key"),
    };
    let valid = layout.nullable.then(|| {
        let valid = Slot::Result(sort.into, Part::Valid(key.column));
        arguments.pointer(valid, "u8*")
    });
    let test = match (key.descending, bound.end) {
        (false, true) => "<=",
        (false, false) => "<",
        (true, true) => ">=",
        (true, false) => ">",
    };
    let known = valid
        .as_ref()
        .map_or("true".to_string(), |valid| format!("{valid}[row] != 0"));
    let unknown = valid.map_or(String::new(), |valid| {
        format!(
            "if ({valid}[at] == 0) return known ? {first} : {end}; if (!known) return {last}; ",
            first = key.nulls_first,
            end = bound.end,
            last = !key.nulls_first,
        )
    });
    let edge = match bound.preceding && bound.end {
        true => "false".to_string(),
        false => past,
    };
    Ok(format!(
        "      const bool known = {known};\n      const {t} target = known ? ({t})({target}) : ({t})0;\n      \
         const auto past = [&](u64 low) -> bool {{ return {edge}; }};\n      \
         const auto before = [&](u64 at) -> bool {{ {unknown}return {value} {test} target; }};\n"
    ))
}

pub(super) fn argument(columns: &[ColumnLayout], of: usize) -> Result<&ColumnLayout> {
    columns
        .get(of)
        .ok_or_else(|| GpuError::Internal("a running value of no column".into()))
}
