//! What all statements of one kernel share: its arguments, its lookup tables, the names given so far.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use super::arguments::Arguments;
use super::slot::Slot;
use crate::column::Column;

/// Bytes that are uploaded once; a kernel has their address as [`Slot::Lookup`] or [`Slot::List`].
#[derive(Debug, Clone)]
pub struct LookupTable {
    /// Little-endian entries.
    pub bytes: Vec<u8>,
}

/// What all statements of one kernel share.
#[derive(Debug, Default)]
pub(in crate::codegen) struct KernelState {
    /// The argument struct.
    pub(in crate::codegen) arguments: Arguments,
    /// Tables that go to the device with the launch.
    pub(in crate::codegen) lookups: Vec<LookupTable>,
    /// Number of variables named so far.
    pub(in crate::codegen) variables: usize,
    /// True once a statement may record a fault.
    pub(in crate::codegen) faults: bool,
    /// True once a statement walks the bytes of a string.
    pub(in crate::codegen) text: bool,
    /// True once a statement calls a function of floats.
    pub(in crate::codegen) math: bool,
    /// True once a statement calculates with days of the calendar.
    pub(in crate::codegen) calendar: bool,
    /// String columns referred to by row.
    pub(in crate::codegen) bases: Bases,
    /// Variables that hold the number of the scanned table's row at hand, and the scope column they were read as.
    pub(in crate::codegen) own_rows: HashMap<String, usize>,
    /// Literals and column bases that already are arguments, by value and width.
    pub(in crate::codegen) literals: HashMap<(i128, bool), String>,
}

impl KernelState {
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
        let bytes = codes.iter().flat_map(|code| code.to_ne_bytes()).collect();
        let pointer = self.table("const i32*", bytes);
        format!("__ldg({pointer} + {code})")
    }

    /// C++ texts of a pointer to sorted numbers and of how many there are.
    pub(in crate::codegen) fn sorted_list(&mut self, numbers: &[i64]) -> (String, String) {
        let slot = Slot::List(self.lookups.len());
        let bytes = numbers.iter().flat_map(|n| n.to_ne_bytes()).collect();
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
