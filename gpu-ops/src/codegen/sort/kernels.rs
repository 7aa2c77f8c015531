//! Kernels of a sort: packed key words of every row, and the gather of the rows in order.
//!
//! Key words order as unsigned integers: a number is its stored code (which counts from the smallest value), a
//! float its total order with the sign bit flipped, and NULL one more or one less than all values. Descending keys count from the
//! largest code. Keys share words where they fit, so most orders need a single word of few bits.
//!
//! Both kernels go one row a thread; the keys kernel moves the key columns once and 8 bytes a word, the gather
//! reads 4 bytes a row in order and each column at random.

use std::fmt::Write as _;

use arrow::datatypes::DataType;

use super::source::kernel;
use crate::codegen::ir::arguments::Arguments;
use crate::codegen::ir::context::Known;
use crate::codegen::ir::layout::ColumnLayout;
use crate::codegen::ir::program::{KernelProgram, SortProgram};
use crate::codegen::ir::refusal::needs_codes;
use crate::codegen::ir::results::{CONTROL_WORDS, ControlWord, ResultLayout};
use crate::codegen::ir::slot::{Part, Slot};
use crate::codegen::ir::value::Meaning;
use crate::codegen::kernel::writer::BLOCK_THREADS;
use crate::error::{GpuError, Result};
use crate::graph::{Sort, SortKey};

/// Field of a key: an unsigned code of at most 64 bits.
struct KeyField {
    text: String,
    bits: u32,
    /// Of a key by which a window's partitions are told apart.
    partition: bool,
}

/// The kernels of `sort`, whose output has the first `kept` columns of its input, then those that a window adds.
pub(in crate::codegen) fn program(
    sort: &Sort,
    known: &[Option<Known>],
    kept: usize,
    added: &[ColumnLayout],
) -> Result<SortProgram> {
    let columns = match known
        .get(sort.rows)
        .and_then(Option::as_ref)
        .map(|k| &k.layout)
    {
        Some(ResultLayout::Rows(columns)) => columns,
        _ => return Err(GpuError::Internal("a sort of what is not rows".into())),
    };
    let (keys, word_bits, partition) = if sort.keys.is_empty() {
        (None, vec![], vec![])
    } else {
        let (kernel, bits, partition) = key_kernel(sort, columns)?;
        (Some(kernel), bits, partition)
    };
    Ok(SortProgram {
        rows: sort.rows,
        into: sort.into,
        keys,
        word_bits,
        partition,
        // The columns beyond the output's are there to order by.
        gather: gather_kernel(sort, &columns[..kept.min(columns.len())]),
        skip: sort.skip,
        fetch: sort.fetch,
        window: match &sort.window {
            Some(window) => Some(super::window::program(sort, window, columns, added)?),
            None => None,
        },
    })
}

/// The kernel, the bits of each word, and those of them that tell the partition of a window.
fn key_kernel(
    sort: &Sort,
    columns: &[ColumnLayout],
) -> Result<(KernelProgram, Vec<u32>, Vec<u64>)> {
    let mut arguments = Arguments::default();
    let mut body = String::new();
    let mut parts = Vec::new();
    for (number, key) in sort.keys.iter().enumerate() {
        let layout = columns
            .get(key.column)
            .ok_or_else(|| GpuError::Internal("a sort key that is no column".into()))?;
        key_parts(sort, key, layout, &mut arguments, &mut body, &mut parts)?;
        if sort.window.as_ref().is_some_and(|w| number < w.partition) {
            parts.iter_mut().for_each(|part| part.partition = true);
        }
    }
    // Major part first, packed from the top of each word downwards.
    let mut words: Vec<(Vec<&KeyField>, u32)> = Vec::new();
    for part in parts.iter().filter(|p| p.bits > 0) {
        match words.last_mut() {
            Some((list, used)) if *used + part.bits <= 64 => {
                list.push(part);
                *used += part.bits;
            }
            _ => words.push((vec![part], part.bits)),
        }
    }
    let mut partition = vec![0; words.len()];
    for (number, (list, used)) in words.iter().enumerate() {
        let mut shift = *used;
        let text: Vec<String> = list
            .iter()
            .map(|part| {
                shift -= part.bits;
                if part.partition {
                    partition[number] |= (u64::MAX >> (64 - part.bits)) << shift;
                }
                if shift == 0 {
                    part.text.clone()
                } else {
                    format!("({} << {shift})", part.text)
                }
            })
            .collect();
        let pointer = arguments.pointer(Slot::Result(sort.into, Part::KeyWord(number)), "u64*");
        let _ = writeln!(body, "    {pointer}[row] = {};", text.join(" | "));
    }
    let bits = words.iter().map(|(_, used)| *used).collect();
    let control = arguments.pointer(Slot::Control, "u64*");
    let bound = arguments.size(Slot::SourceRows);
    let text = format!(
        "  const u64 rows = min_u64({control}[{}], {bound});\n  \
         for (u64 row = (u64)blockIdx.x * {BLOCK_THREADS} + threadIdx.x; row < rows; row += (u64)gridDim.x * {BLOCK_THREADS}) {{\n\
         {body}  }}\n",
        sort.rows * CONTROL_WORDS + ControlWord::Count as usize,
    );
    Ok((kernel("sort_keys", sort, arguments, &text), bits, partition))
}

fn key_parts(
    sort: &Sort,
    key: &SortKey,
    layout: &ColumnLayout,
    arguments: &mut Arguments,
    body: &mut String,
    parts: &mut Vec<KeyField>,
) -> Result<()> {
    if matches!(layout.meaning, Meaning::Row(_)) {
        return needs_codes("an order by strings that are not dictionary encoded");
    }
    let (r, i) = (sort.rows, key.column);
    let data = arguments.pointer(Slot::Result(r, Part::Column(i)), layout.pointer());
    let value = format!("{data}[row]");
    // Codes as unsigned numbers, with how many bits each.
    let mut codes: Vec<(String, u32)> = if layout.float {
        if layout.width == 4 {
            vec![(
                format!("(u64)((u32)total_order({value}) ^ 0x80000000u)"),
                32,
            )]
        } else {
            vec![(
                format!("((u64)total_order({value}) ^ 0x8000000000000000ull)"),
                64,
            )]
        }
    } else if layout.width == 16 {
        vec![
            (
                format!("((u64)((u128){value} >> 64) ^ 0x8000000000000000ull)"),
                64,
            ),
            (format!("(u64){value}"), 64),
        ]
    } else {
        let largest = if layout.data_type == DataType::Boolean {
            1
        } else {
            layout.range.max.wrapping_sub(layout.base) as u128
        };
        vec![(format!("(u64){value}"), 128 - largest.leading_zeros())]
    };
    let valid = layout.nullable.then(|| {
        let pointer = arguments.pointer(Slot::Result(r, Part::Valid(i)), "u8*");
        let name = format!("valid{}", parts.len());
        let _ = writeln!(body, "    const bool {name} = {pointer}[row] != 0;");
        name
    });
    if let Some(valid) = &valid {
        // A bit of its own in front: NULLs before or after all values, whatever the direction.
        let bit = if key.nulls_first {
            valid.clone()
        } else {
            format!("!{valid}")
        };
        parts.push(KeyField {
            text: format!("(u64)({bit})"),
            bits: 1,
            partition: false,
        });
    }
    for (code, bits) in codes.drain(..) {
        let mut text = code;
        if key.descending {
            let mask = if bits >= 64 {
                u64::MAX
            } else {
                (1u64 << bits) - 1
            };
            text = format!("({mask}ull - {text})");
        }
        if let Some(valid) = &valid {
            text = format!("({valid} ? {text} : 0ull)");
        }
        parts.push(KeyField {
            text,
            bits,
            partition: false,
        });
    }
    Ok(())
}

fn gather_kernel(sort: &Sort, columns: &[ColumnLayout]) -> KernelProgram {
    let mut arguments = Arguments::default();
    let control = arguments.pointer(Slot::Control, "u64*");
    let (skip, fetch) = (arguments.size(Slot::Skip), arguments.size(Slot::Fetch));
    let bound = arguments.size(Slot::SourceRows);
    let mut body = String::new();
    let source = if sort.keys.is_empty() {
        format!("{skip} + row")
    } else {
        let order = arguments.pointer(Slot::Result(sort.into, Part::Order), "const u32*");
        format!("{order}[{skip} + row]")
    };
    let _ = writeln!(body, "    const u64 from = {source};");
    for (i, layout) in columns.iter().enumerate() {
        let t = layout.pointer();
        let from = arguments.pointer(Slot::Result(sort.rows, Part::Column(i)), t.as_str());
        let to = arguments.pointer(Slot::Result(sort.into, Part::Column(i)), t);
        let _ = writeln!(body, "    {to}[row] = {from}[from];");
        if layout.nullable {
            let from = arguments.pointer(Slot::Result(sort.rows, Part::Valid(i)), "u8*");
            let to = arguments.pointer(Slot::Result(sort.into, Part::Valid(i)), "u8*");
            let _ = writeln!(body, "    {to}[row] = {from}[from];");
        }
    }
    let count = |r: usize| r * CONTROL_WORDS + ControlWord::Count as usize;
    // Rows that a window leaves out are not among those in order.
    let ordered = match sort.window.as_ref().and_then(|window| window.first) {
        Some(_) => sort.into * CONTROL_WORDS + ControlWord::Pairs as usize,
        None => count(sort.rows),
    };
    let text = format!(
        "  const u64 all = min_u64({control}[{}], {bound});\n  \
         const u64 rows = min_u64(all > {skip} ? all - {skip} : 0ull, {fetch});\n  \
         if (blockIdx.x == 0 && threadIdx.x == 0) {control}[{}] = rows;\n  \
         for (u64 row = (u64)blockIdx.x * {BLOCK_THREADS} + threadIdx.x; row < rows; row += (u64)gridDim.x * {BLOCK_THREADS}) {{\n\
         {body}  }}\n",
        ordered,
        count(sort.into),
    );
    kernel("sort_gather", sort, arguments, &text)
}
