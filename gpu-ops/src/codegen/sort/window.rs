//! Windows over sorted rows: the kernel that marks where partitions and peers begin and writes the values that are to run, and
//! how the columns lie that come of it.
//!
//! One row a thread; the kernel reads the keys once (neighbours come from the cache) and each argument, and writes 8 bytes of
//! marks and 8 or 16 a running value.

use std::fmt::Write as _;

use arrow::datatypes::DataType;
use warpline_cuda::kernels::{RunningCombine, RunningValue};

use super::bounds::{argument, kernel_of};
use super::source::kernel;
use crate::codegen::ir::arguments::Arguments;
use crate::codegen::ir::layout::ColumnLayout;
use crate::codegen::ir::program::{WindowFill, WindowProgram};
use crate::codegen::ir::range::Range;
use crate::codegen::ir::refusal::unsupported;
use crate::codegen::ir::results::{CONTROL_WORDS, ControlWord};
use crate::codegen::ir::slot::{Part, Slot};
use crate::codegen::ir::value::Meaning;
use crate::codegen::kernel::writer::BLOCK_THREADS;
use crate::error::Result;
use crate::graph::{Sort, Window, WindowColumn};

/// The layout of the columns that a window adds to rows with these columns, of which there are at most `bound`.
pub(in crate::codegen) fn layouts(
    window: &Window,
    types: impl Iterator<Item = DataType>,
    columns: &[ColumnLayout],
    bound: u64,
) -> Result<Vec<ColumnLayout>> {
    let number = |width, base, range| ColumnLayout {
        data_type: DataType::Int64,
        width,
        float: false,
        base,
        range,
        meaning: Meaning::Number,
        nullable: false,
    };
    let mut layouts = Vec::with_capacity(window.columns.len());
    for (column, data_type) in window.columns.iter().zip(types) {
        layouts.push(match column {
            WindowColumn::RunningCount(_) => {
                number(8, i64::MIN.into(), Range::new(0, bound.into()))
            }
            WindowColumn::Running(combine, of) | WindowColumn::Extreme(combine, of, _) => {
                let of = argument(columns, *of)?;
                let (value, range) = running(of, &data_type, *combine, bound)?;
                ColumnLayout {
                    data_type,
                    width: value.width() as u8,
                    float: value == RunningValue::F64,
                    base: match value {
                        RunningValue::I64 => i64::MIN.into(),
                        RunningValue::I128 | RunningValue::F64 => 0,
                    },
                    range,
                    meaning: match combine {
                        RunningCombine::Sum => Meaning::Number,
                        _ => of.meaning.clone(),
                    },
                    nullable: false,
                }
            }
            WindowColumn::Squares(of, _) => {
                let of = argument(columns, *of)?;
                if !of.float || of.width != 8 {
                    return unsupported(format!("squared differences of {}", of.data_type));
                }
                ColumnLayout {
                    data_type,
                    width: 8,
                    float: true,
                    base: 0,
                    range: Range::FULL,
                    meaning: Meaning::Number,
                    nullable: false,
                }
            }
            _ => number(4, 0, Range::new(0, u32::MAX.into())),
        });
    }
    Ok(layouts)
}

/// In what values of a column run, and where they can get to.
fn running(
    of: &ColumnLayout,
    data_type: &DataType,
    combine: RunningCombine,
    bound: u64,
) -> Result<(RunningValue, Range)> {
    if of.float && of.width == 8 {
        return Ok((RunningValue::F64, Range::FULL));
    }
    if of.float || of.data_type == DataType::Boolean || matches!(of.meaning, Meaning::Row(_)) {
        return unsupported(format!("a running value of {}", of.data_type));
    }
    let longs = Range::new(i64::MIN.into(), i64::MAX.into());
    let range = match combine {
        RunningCombine::Min | RunningCombine::Max => of.range,
        RunningCombine::Sum => {
            let most = i128::from(bound);
            let far = |end: i128| end.saturating_mul(most);
            Range::new(far(of.range.min).min(0), far(of.range.max).max(0))
        }
    };
    if range.within(longs) {
        return Ok((RunningValue::I64, range));
    }
    match data_type {
        // Integers wrap around.
        DataType::Int64 => Ok((RunningValue::I64, longs)),
        DataType::Decimal128(..) => Ok((RunningValue::I128, range)),
        other => unsupported(format!("a running value of {other} beyond 64 bits")),
    }
}

/// What fills the columns from `first` on.
pub(super) fn program(
    sort: &Sort,
    window: &Window,
    columns: &[ColumnLayout],
    added: &[ColumnLayout],
) -> Result<WindowProgram> {
    let mut arguments = Arguments::default();
    let control = arguments.pointer(Slot::Control, "u64*");
    let bound = arguments.size(Slot::SourceRows);
    let into = sort.into;
    let (partition, order) = sort.keys.split_at(window.partition.min(sort.keys.len()));
    let mut differ = |keys: &[crate::graph::SortKey]| -> Result<String> {
        let mut tests = Vec::new();
        for key in keys {
            let layout = argument(columns, key.column)?;
            let data = Slot::Result(into, Part::Column(key.column));
            let data = arguments.pointer(data, layout.pointer());
            let value = |row: &str| match layout.float {
                true => format!("total_order({data}[{row}])"),
                false => format!("{data}[{row}]"),
            };
            tests.push(format!("{} != {}", value("row"), value("row - 1")));
            if layout.nullable {
                // NULLs have the same code.
                let valid = Slot::Result(into, Part::Valid(key.column));
                let valid = arguments.pointer(valid, "u8*");
                tests.push(format!("{valid}[row] != {valid}[row - 1]"));
            }
        }
        Ok(match tests.is_empty() {
            true => "false".to_string(),
            false => tests.join(" || "),
        })
    };
    let (begins, differs) = (differ(partition)?, differ(order)?);
    let partitions = arguments.pointer(Slot::Result(into, Part::Partitions), "u32*");
    let peers = arguments.pointer(Slot::Result(into, Part::Peers), "u32*");
    let mut body = format!(
        "    const bool begins = row == 0 || {begins};\n    {partitions}[row] = begins;\n    {peers}[row] = begins || {differs};\n"
    );
    let mut fills = Vec::with_capacity(window.columns.len());
    for (i, (column, layout)) in window.columns.iter().zip(added).enumerate() {
        let to = columns.len() + i;
        let (of, combine) = match column {
            WindowColumn::RunningCount(of) => (of, RunningCombine::Sum),
            WindowColumn::Running(combine, of) | WindowColumn::Extreme(combine, of, _) => {
                (of, *combine)
            }
            WindowColumn::Squares(of, _) => (of, RunningCombine::Sum),
            WindowColumn::Bound(_) => {
                fills.push(WindowFill::Bound);
                continue;
            }
            _ => {
                fills.push(WindowFill::Number(*column));
                continue;
            }
        };
        let from = argument(columns, *of)?;
        let value = match (layout.float, layout.width) {
            (true, _) => RunningValue::F64,
            (false, 16) => RunningValue::I128,
            (false, _) => RunningValue::I64,
        };
        let (c_type, pointer) = match value {
            RunningValue::F64 => ("f64", "f64*"),
            RunningValue::I128 => ("i128", "i128*"),
            RunningValue::I64 => ("i64", "u64*"),
        };
        let valid = from.nullable.then(|| {
            let valid = arguments.pointer(Slot::Result(into, Part::Valid(*of)), "u8*");
            format!("{valid}[row] != 0")
        });
        let text = if matches!(column, WindowColumn::RunningCount(_)) {
            valid.map_or("1".to_string(), |valid| format!("({valid} ? 1 : 0)"))
        } else if matches!(column, WindowColumn::Squares(..)) {
            let data = Slot::Result(into, Part::Column(*of));
            let data = arguments.pointer(data, from.pointer());
            let known = valid.unwrap_or_else(|| "true".to_string());
            format!("known_value({known}, {data}[row])")
        } else {
            let data = Slot::Result(into, Part::Column(*of));
            let data = arguments.pointer(data, from.pointer());
            let known = match from.float {
                true => format!("{data}[row]"),
                false => {
                    let wide = value == RunningValue::I128;
                    let base = arguments.literal(from.base, wide);
                    format!("(({c_type}){data}[row] + ({c_type}){base})")
                }
            };
            match valid {
                None => known,
                Some(valid) => {
                    let nothing = nothing(combine, value, from, &mut arguments);
                    format!("({valid} ? {known} : {nothing})")
                }
            }
        };
        let out = arguments.pointer(Slot::Result(into, Part::Column(to)), pointer);
        let _ = writeln!(body, "    {out}[row] = ({c_type}){text};");
        fills.push(match column {
            WindowColumn::Extreme(_, _, edges) => WindowFill::Extreme(value, combine, *edges),
            WindowColumn::Squares(_, edges) => WindowFill::Squares(*edges),
            _ => WindowFill::Running(value, combine),
        });
    }
    let text = format!(
        "  const u64 rows = min_u64({control}[{}], {bound});\n  \
         for (u64 row = (u64)blockIdx.x * {BLOCK_THREADS} + threadIdx.x; row < rows; row += (u64)gridDim.x * {BLOCK_THREADS}) {{\n\
         {body}  }}\n",
        into * CONTROL_WORDS + ControlWord::Count as usize,
    );
    Ok(WindowProgram {
        rows: window.first,
        marks: kernel("window_marks", sort, arguments, &text),
        bounds: kernel_of(sort, window, columns)?,
        first: columns.len(),
        fills,
    })
}

/// What a NULL adds: nothing. The end of the column's own range is neutral for an extreme, and no value beyond it gets in.
fn nothing(
    combine: RunningCombine,
    value: RunningValue,
    from: &ColumnLayout,
    arguments: &mut Arguments,
) -> String {
    let end = match combine {
        RunningCombine::Sum => return "0".to_string(),
        RunningCombine::Min if value == RunningValue::F64 => {
            return "f64_of_order((i64)(~0ull >> 1))".to_string();
        }
        RunningCombine::Max if value == RunningValue::F64 => {
            return "f64_of_order((i64)(1ull << 63))".to_string();
        }
        RunningCombine::Min => from.range.max,
        RunningCombine::Max => from.range.min,
    };
    let c_type = match value {
        RunningValue::I128 => "i128",
        _ => "i64",
    };
    format!(
        "({c_type}){}",
        arguments.literal(end, value == RunningValue::I128)
    )
}
