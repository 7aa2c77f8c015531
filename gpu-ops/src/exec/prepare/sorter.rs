//! Sorts of the strings of columns by the kernels of a runtime.

use std::sync::Arc;

use crate::column::{DistinctStrings, SortedStrings, StringSorter};
use crate::device::Stream;
use crate::error::Result;
use crate::exec::prepare::builtins::Builtins;
use crate::exec::prepare::compile::ahead;
use crate::primitives::sort_strings;
use crate::runtime::Runtime;

/// The sorter of a runtime's columns.
pub(in crate::exec) struct DeviceSorter(Arc<Runtime>);

impl DeviceSorter {
    pub(in crate::exec) fn of(runtime: &Arc<Runtime>) -> Self {
        Self(Arc::clone(runtime))
    }
}

impl StringSorter for DeviceSorter {
    fn prepare(&self) {
        ahead(&self.0, Builtins::of_string_sort());
    }

    unsafe fn sorted(
        &self,
        stream: &Stream,
        strings: &DistinctStrings,
    ) -> Result<Option<SortedStrings>> {
        // SAFETY: passed on to the caller.
        unsafe { sort_strings(&self.0, stream, strings) }
    }
}
