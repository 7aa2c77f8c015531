//! Lists of values: which rows the references of an output mean.

use std::collections::hash_map::Entry;

use warpline_gpu::graph::{ListColumn, OutputList, ResultId, list_of};

use super::Lowerer;
use crate::reason::{Reason, refuse};
use crate::rel::RelRef;

impl Lowerer<'_> {
    /// `rows` are those of a window that lists are made of.
    pub(super) fn has_lists(&mut self, rows: ResultId, lists: &[ListColumn]) -> Result<(), Reason> {
        for list in lists {
            match self.lists.entry(list.id) {
                Entry::Vacant(place) => {
                    place.insert((rows, list.column));
                }
                // A rewrite may have left other rows in one of the two.
                Entry::Occupied(_) => return refuse("lists of rows that are made twice"),
            }
        }
        Ok(())
    }

    /// The columns of the output that refer to lists.
    pub(super) fn output_lists(&self, rel: &RelRef) -> Result<Vec<OutputList>, Reason> {
        let mut lists = Vec::new();
        for (output, column) in rel.columns.iter().enumerate() {
            let Some((id, delimiter)) = list_of(&column.data_type) else {
                continue;
            };
            let Some((rows, values)) = self.lists.get(&id).copied() else {
                return refuse("lists of rows that are made elsewhere");
            };
            lists.push(OutputList {
                output,
                rows,
                values,
                delimiter: delimiter.map(str::to_string),
            });
        }
        Ok(lists)
    }
}
