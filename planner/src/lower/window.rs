//! Windows: rows in the order of their partitions, with numbers and running values behind their columns.

use std::sync::Arc;

use warpline_gpu::graph::{ResultId, ResultKind, Sort, Step};

use super::Lowerer;
use crate::reason::{Reason, refuse};
use crate::rel::{RelKind, RelRef};

impl Lowerer<'_> {
    /// The `Sorted` result of a window, made once.
    pub(super) fn window(&mut self, rel: &RelRef) -> Result<ResultId, Reason> {
        if let Some((_, id)) = self.shared.get(&Arc::as_ptr(rel)) {
            return Ok(*id);
        }
        let RelKind::Window {
            input,
            keys,
            window,
        } = &rel.kind
        else {
            return refuse("a window that is none");
        };
        // The order goes over rows of their own: a result in order is no input of a sort.
        let rows = self.unsorted_rows(input, None)?;
        let name = self.unique_name(format!("window of {}", input.label()));
        let estimate = self.rows(rel);
        let into = self.result(ResultKind::Sorted(rel.columns.clone()), estimate, name);
        self.steps.push(Step::Sort(Sort {
            rows,
            keys: keys.clone(),
            skip: 0,
            fetch: None,
            window: Some(window.clone()),
            into,
        }));
        self.has_lists(into, &window.lists)?;
        self.shared
            .insert(Arc::as_ptr(rel), (Arc::clone(rel), into));
        Ok(into)
    }
}
