//! What the pipelines of a program share while they are turned into statements.

use super::results::{IndexLayout, ResultLayout};
use super::state::Bases;
use crate::codegen::string::evaluated::Evaluated;
use crate::device::DeviceInfo;
use crate::error::{GpuError, Result};
use crate::graph::{Graph, Policy, ResultId, ResultSpec};
use crate::tables::LoadedTable;

/// What is known about a result once all that fills it has been emitted.
#[derive(Debug)]
pub(in crate::codegen) struct Known {
    pub(in crate::codegen) layout: ResultLayout,
    /// Upper bound of its rows, groups or entries.
    pub(in crate::codegen) bound: u64,
}

/// What all pipelines of a program share during emission.
pub(in crate::codegen) struct Context<'a> {
    pub(in crate::codegen) graph: &'a Graph,
    pub(in crate::codegen) tables: &'a [LoadedTable],
    pub(in crate::codegen) policy: &'a dyn Policy,
    pub(in crate::codegen) device: &'a DeviceInfo,
    /// By result; `None` until it is complete.
    pub(in crate::codegen) known: Vec<Option<Known>>,
    pub(in crate::codegen) bases: Bases,
    pub(in crate::codegen) evaluated: Evaluated,
    pub(in crate::codegen) choices: Vec<String>,
    /// Results beyond those of the graph.
    pub(in crate::codegen) hidden: Vec<ResultSpec>,
}

impl Context<'_> {
    pub(in crate::codegen) fn known(&self, id: ResultId) -> Result<&Known> {
        self.known
            .get(id)
            .and_then(Option::as_ref)
            .ok_or_else(|| GpuError::Internal(format!("result {id} is read before it is complete")))
    }

    pub(in crate::codegen) fn index(&self, id: ResultId) -> Result<&IndexLayout> {
        match &self.known(id)?.layout {
            ResultLayout::Index(layout) => Ok(layout),
            _ => Err(GpuError::Internal(format!("result {id} is not an index"))),
        }
    }
}
