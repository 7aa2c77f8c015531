//! Elements of lists: loaded from the dictionary of the column that has the lists.

use std::sync::Arc;

use datafusion::execution::TaskContext;

use super::cache::TableCache;
use super::elements::ElementsOf;
use super::load::{ColumnRequest, LoadFor};
use super::loaded::LoadedTable;
use crate::column::{ColumnRoom, Dictionary, Encoding};
use crate::error::{GpuError, Result};

impl TableCache {
    /// The dictionary of the column whose elements these are; the column is made resident.
    ///
    /// # Errors
    /// As [`TableCache::get_or_load`].
    pub(super) async fn dictionary_of(
        &self,
        elements: &ElementsOf,
        room: &ColumnRoom,
        ctx: &Arc<TaskContext>,
        work: &LoadFor,
    ) -> Result<Arc<Dictionary>> {
        let request = ColumnRequest {
            columns: &[elements.column],
            needs_codes: &[true],
        };
        let loaded = self.get_arriving(&elements.of, request, room, None, ctx, work);
        // The column may be of elements as well.
        let loaded = Box::pin(loaded).await?;
        first_dictionary(&loaded)
            .ok_or_else(|| GpuError::Internal("strings came without codes".into()))
    }

    /// The same where the column is resident.
    pub(super) fn resident_dictionary_of(&self, elements: &ElementsOf) -> Option<Arc<Dictionary>> {
        let loaded = self.peek(&elements.of, &[elements.column], &[true])?;
        first_dictionary(&loaded)
    }
}

fn first_dictionary(table: &LoadedTable) -> Option<Arc<Dictionary>> {
    match &table.columns.first()?.encoding {
        Encoding::Dictionary { dictionary, .. } => Some(Arc::clone(dictionary)),
        _ => None,
    }
}
