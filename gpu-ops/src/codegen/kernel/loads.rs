//! How a kernel reads the columns of its scope: vectors of rows, gathers by entry, and places of results.

use std::fmt::Write as _;

use super::writer::{KernelWriter, line};
use crate::codegen::ir::layout::ColumnLayout;
use crate::codegen::ir::results::{ControlWord, ResultLayout};
use crate::codegen::ir::scope::{Access, ScopeColumn, Shape};
use crate::codegen::ir::slot::{ColumnPart, Part, Slot};
use crate::column::Encoding;
use crate::graph::ResultId;

impl KernelWriter<'_> {
    /// Read columns that no earlier step has read.
    pub(in crate::codegen) fn load(&mut self, columns: &[usize]) {
        for &i in columns {
            if self.loaded.contains(&i) {
                continue;
            }
            self.loaded.push(i);
            let column = self.pipeline.scope[i].clone();
            match &column.access {
                Access::Scan => self.load_scan(i, &column),
                Access::Direct { result, column: of } => {
                    let Shape::Stored(layout) = &column.shape else {
                        continue;
                    };
                    self.declare(i, layout.storage(), layout.nullable);
                    if let Some(code) = self.not_stored(*result, *of) {
                        line!(
                            self,
                            "    WL_UNROLL for (u32 k = 0; k < WL_ROWS; ++k) c{i}[k] = {code};"
                        );
                        continue;
                    }
                    let data = self.column_pointer(*result, *of, layout);
                    line!(self, "    load_live({data} + row, live, c{i});");
                    if layout.nullable {
                        let valid = self.valid_pointer(*result, *of);
                        line!(self, "    n{i} = valid_rows<WL_ROWS>({valid} + row, live);");
                    }
                }
                Access::Gather {
                    result,
                    column: of,
                    entry,
                    mask,
                } => {
                    let Shape::Stored(layout) = &column.shape else {
                        continue;
                    };
                    self.declare(i, layout.storage(), column.nullable);
                    line!(self, "    if ((live & {mask}) != 0) {{");
                    line!(
                        self,
                        "      WL_UNROLL for (u32 k = 0; k < WL_ROWS; ++k) if ((live & {mask}) >> k & 1) {{"
                    );
                    let text = self.gather(
                        i,
                        layout,
                        *result,
                        *of,
                        &format!("{entry}[k]"),
                        column.nullable,
                    );
                    line!(self, "        {text}");
                    line!(self, "      }}\n    }}");
                }
                Access::Broadcast { result, column: of } => {
                    let Shape::Stored(layout) = &column.shape else {
                        continue;
                    };
                    self.declare(i, layout.storage(), true);
                    let count = self.control(*result, ControlWord::Count);
                    let text = self.gather(i, layout, *result, *of, "0", true);
                    line!(self, "    if (live != 0 && {count} != 0) {{");
                    line!(
                        self,
                        "      WL_UNROLL for (u32 k = 0; k < WL_ROWS; ++k) {{ {text} }}"
                    );
                    line!(self, "    }}");
                }
                Access::Lines(lines) => {
                    let Shape::Computed { c_type, .. } = &column.shape else {
                        continue;
                    };
                    self.declare(i, c_type.name(), column.nullable);
                    line!(
                        self,
                        "    if (live != 0) WL_UNROLL for (u32 k = 0; k < WL_ROWS; ++k) if ((live >> k) & 1) {{"
                    );
                    for text in lines {
                        let text = text
                            .replace("{c}", &format!("c{i}"))
                            .replace("{n}", &format!("n{i}"));
                        line!(self, "      {text}");
                    }
                    line!(self, "    }}");
                }
                Access::None => {}
            }
        }
    }

    fn declare(&mut self, i: usize, storage: &str, nullable: bool) {
        line!(self, "    {storage} c{i}[WL_ROWS] = {{}};");
        if nullable {
            line!(self, "    u32 n{i} = 0;");
        }
    }

    /// Statement: read entry `entry` of a result's column into `c{i}[k]`, `n{i}`.
    pub(in crate::codegen) fn gather(
        &mut self,
        i: usize,
        layout: &ColumnLayout,
        result: ResultId,
        column: usize,
        entry: &str,
        masked: bool,
    ) -> String {
        let mut text = match self.not_stored(result, column) {
            Some(code) => format!("c{i}[k] = {code};"),
            None => {
                let data = self.column_pointer(result, column, layout);
                format!("c{i}[k] = {data}[{entry}];")
            }
        };
        if layout.nullable {
            let valid = self.valid_pointer(result, column);
            let _ = write!(text, " n{i} |= (u32)({valid}[{entry}] != 0) << k;");
        } else if masked {
            let _ = write!(text, " n{i} |= 1u << k;");
        }
        text
    }

    /// C++ text of the code that all entries of an index have in a column, where that is not stored.
    fn not_stored(&self, result: ResultId, column: usize) -> Option<String> {
        let Some(ResultLayout::Index(index)) = self.known(result) else {
            return None;
        };
        let storage = index.columns.get(column)?.storage();
        Some(format!("({storage}){}ull", index.not_stored(column)?))
    }

    pub(in crate::codegen) fn column_pointer(
        &mut self,
        result: ResultId,
        column: usize,
        layout: &ColumnLayout,
    ) -> String {
        self.pointer(Slot::Result(result, Part::Column(column)), layout.pointer())
    }

    pub(in crate::codegen) fn valid_pointer(&mut self, result: ResultId, column: usize) -> String {
        self.pointer(Slot::Result(result, Part::Valid(column)), "u8*")
    }

    fn load_scan(&mut self, i: usize, column: &ScopeColumn) {
        let Shape::Resident(resident) = &column.shape else {
            return;
        };
        if resident.only_value().is_some() {
            return;
        }
        self.scan_columns.push(i);
        if resident.validity.is_some() {
            let name = self.pointer(Slot::Scan(i, ColumnPart::Validity), "const u8*");
            line!(
                self,
                "    u32 n{i} = 0; if (live != 0) n{i} = load_bits<WL_ROWS>({name}, row);"
            );
        }
        if matches!(resident.encoding, Encoding::Bits) {
            let name = self.pointer(Slot::Scan(i, ColumnPart::Data), "const u8*");
            line!(
                self,
                "    u32 c{i} = 0; if (live != 0) c{i} = load_bits<WL_ROWS>({name}, row);"
            );
        }
        // Strings by row are read where they are used.
        let Some(c_type) = storage_type(&resident.encoding) else {
            return;
        };
        let pointer = format!("const {c_type}*");
        let name = self.pointer(Slot::Scan(i, ColumnPart::Data), pointer);
        line!(self, "    {c_type} c{i}[WL_ROWS] = {{}};");
        line!(
            self,
            "    if (live != 0) load_vec_stream<{c_type}, WL_ROWS>({name} + row, c{i});"
        );
    }
}

/// C++ type of the codes of a resident column; `None` where they are bits, or bytes of strings.
pub(in crate::codegen) fn storage_type(encoding: &Encoding) -> Option<&'static str> {
    Some(match encoding {
        Encoding::Bits | Encoding::Bytes { .. } => return None,
        Encoding::Integer { width: 1, .. } | Encoding::Dictionary { width: 1, .. } => "u8",
        Encoding::Integer { width: 2, .. } | Encoding::Dictionary { width: 2, .. } => "u16",
        Encoding::Integer { width: 4, .. } | Encoding::Dictionary { .. } => "u32",
        Encoding::Integer { width: 16, .. } => "i128",
        Encoding::Integer { .. } => "u64",
        Encoding::Float { width: 4 } => "f32",
        Encoding::Float { .. } => "f64",
    })
}
