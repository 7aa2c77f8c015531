//! Columns of an input: loaded for its fragment, and not kept.

use std::sync::Arc;

use datafusion::execution::TaskContext;

use super::cache::TableCache;
use super::entries::wanted;
use super::input::InputRows;
use super::load::{ColumnRequest, LoadFor, LoadRequest, unexpected};
use super::loaded::LoadedTable;
use super::source::TableSource;
use super::units::Units;
use crate::column::ColumnRoom;
use crate::error::Result;

impl TableCache {
    /// Columns of an input on the device, which nobody else can ask for; as [`TableCache::get_or_load`].
    pub(crate) async fn load_input(
        &self,
        source: &TableSource,
        rows: &InputRows,
        request: ColumnRequest<'_>,
        room: &ColumnRoom,
        context: &Arc<TaskContext>,
        work: &LoadFor,
    ) -> Result<Arc<LoadedTable>> {
        let wanted = &wanted(source, request.columns, request.needs_codes)[..];
        let reads = source.fields.reads(request.columns)?;
        let units = Units::Stored(rows.partitions.concat(), reads);
        let request = LoadRequest {
            source,
            columns: wanted,
            room,
            ctx: context,
            work,
        };
        let loaded = self.load(request, units, None, None).await?;
        Ok(Arc::new(loaded.ok_or_else(unexpected)?))
    }
}
