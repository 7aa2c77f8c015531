//! What all statements of one kernel share: its arguments, its lookup tables, the names given so far.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use arrow::datatypes::ToByteSlice;

use super::arguments::Arguments;
use super::slot::Slot;
use crate::codegen::string::evaluated::Evaluated;
use crate::column::Column;

/// Bytes that are uploaded once; a kernel has their address as [`Slot::Lookup`] or [`Slot::List`].
#[derive(Debug, Clone)]
pub struct LookupTable {
    /// Little-endian entries.
    pub bytes: Vec<u8>,
}

/// A search of constants, one behind the other, in the strings of a tile's rows: `block_text_after` (`text_search.cuh`).
/// Statements for a row find its outcome in `together{n}`, `parts{n}` and `shared.search{n}`.
#[derive(Debug, Clone)]
pub(in crate::codegen) struct BlockSearch {
    /// Number in the kernel.
    pub(in crate::codegen) number: usize,
    /// C++ pointers to the column's bytes and offsets, to which row numbers of the table are added.
    pub(in crate::codegen) data: String,
    pub(in crate::codegen) offsets: String,
    /// C++ texts of each constant's table and length.
    pub(in crate::codegen) parts: Vec<(String, String)>,
}

/// Searches of a kernel at most; each takes shared memory, and reads the strings again.
pub(in crate::codegen) const MOST_SEARCHES: usize = 3;

/// What all statements of one kernel share.
#[derive(Debug, Default)]
pub(in crate::codegen) struct KernelState {
    /// The argument struct.
    pub(in crate::codegen) arguments: Arguments,
    /// Upper bound of the source's rows.
    pub(in crate::codegen) source_bound: u64,
    /// Tables that go to the device with the launch.
    pub(in crate::codegen) lookups: Vec<LookupTable>,
    /// Number of variables named so far.
    pub(in crate::codegen) variables: usize,
    /// True once a statement may record a fault.
    pub(in crate::codegen) faults: bool,
    /// Strings whose bytes some statement reads.
    pub(in crate::codegen) texts: usize,
    /// Some: the statements at hand are for rows of a tile, before which a block may search strings; what it is to search.
    pub(in crate::codegen) searches: Option<Vec<BlockSearch>>,
    /// Searches so far, those of earlier statements included.
    pub(in crate::codegen) searched: usize,
    /// True once a statement calls a function of floats.
    pub(in crate::codegen) math: bool,
    /// True once a statement calculates with days of the calendar.
    pub(in crate::codegen) calendar: bool,
    /// String columns referred to by row.
    pub(in crate::codegen) bases: Bases,
    /// Expressions over dictionaries that are evaluated.
    pub(in crate::codegen) evaluated: Evaluated,
    /// Variables that hold the number of the scanned table's row at hand, and the scope column they were read as.
    pub(in crate::codegen) own_rows: HashMap<String, usize>,
    /// Literals and column bases that already are arguments, by value and width.
    pub(in crate::codegen) literals: HashMap<(i128, bool), String>,
    /// The same of floats, by their bits.
    pub(in crate::codegen) floats: HashMap<u64, String>,
}

impl KernelState {
    /// Number of a search by the block before the statements at hand, where there can be one more.
    pub(in crate::codegen) fn search_together(
        &mut self,
        data: &str,
        offsets: &str,
        parts: &[(String, String)],
    ) -> Option<usize> {
        let searches = self.searches.as_mut()?;
        if self.searched == MOST_SEARCHES {
            return None;
        }
        let number = self.searched;
        self.searched += 1;
        searches.push(BlockSearch {
            number,
            data: data.to_string(),
            offsets: offsets.to_string(),
            parts: parts.to_vec(),
        });
        Some(number)
    }

    /// C++ text of a pointer to a lookup table of these bytes.
    pub(in crate::codegen) fn table(&mut self, c_type: &'static str, bytes: Vec<u8>) -> String {
        let slot = Slot::Lookup(self.lookups.len());
        self.lookups.push(LookupTable { bytes });
        self.arguments.pointer(slot, c_type)
    }

    /// C++ text of what `codes` has for a dictionary code; rows without a string have code 0, even of an empty dictionary,
    /// and `absent` is what that leads to.
    pub(in crate::codegen) fn recoded(
        &mut self,
        code: &str,
        mut codes: Vec<i32>,
        absent: i32,
    ) -> String {
        codes.resize(codes.len().max(1), absent);
        let pointer = self.table("const i32*", codes.to_byte_slice().to_vec());
        format!("__ldg({pointer} + {code})")
    }

    /// C++ texts of a pointer to sorted numbers and of how many there are.
    pub(in crate::codegen) fn sorted_list(&mut self, numbers: &[i64]) -> (String, String) {
        let slot = Slot::List(self.lookups.len());
        let bytes = numbers.to_byte_slice().to_vec();
        self.lookups.push(LookupTable { bytes });
        let pointer = self.arguments.pointer(slot, "const i64*");
        let length = numbers.len() as i64;
        (
            pointer,
            self.arguments.named_integer(&format!("{slot}_len"), length),
        )
    }
}

/// String columns that values refer to by row; one list for all kernels of a program.
#[derive(Debug, Clone, Default)]
pub(in crate::codegen) struct Bases(Rc<RefCell<Vec<Arc<Column>>>>);

impl Bases {
    /// Number of `column`, for [`crate::codegen::Slot::Base`].
    pub(in crate::codegen) fn number(&self, column: &Arc<Column>) -> usize {
        let mut list = self.0.borrow_mut();
        match list.iter().position(|c| Arc::ptr_eq(c, column)) {
            Some(number) => number,
            None => {
                list.push(Arc::clone(column));
                list.len() - 1
            }
        }
    }

    /// All of them, in order.
    pub(in crate::codegen) fn into_columns(self) -> Vec<Arc<Column>> {
        self.0.borrow().clone()
    }
}
