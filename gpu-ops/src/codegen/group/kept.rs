//! Groups that the first filter behind an aggregation drops (HAVING), which a block that has all of a group's rows does not
//! write down.
//!
//! Only rows in the order of the key tell a block that a group is complete: those of [`super::runs`]. The filter stays where it is,
//! since groups at the edges of tiles come to it, and is asked twice of those that are written.

use std::fmt::Write as _;

use arrow::datatypes::DataType;

use super::finish::held_group;
use super::states::Groups;
use crate::codegen::ir::context::Context;
use crate::codegen::ir::pipeline::{KeptGroups, Test};
use crate::codegen::ir::results::{ControlWord, GroupsLayout, RegroupedLayout};
use crate::codegen::ir::scope::columns_of;
use crate::codegen::ir::state::KernelState;
use crate::codegen::kernel::stores::RESERVE_BYTES;
use crate::codegen::kernel::writer::{KernelWriter, line};
use crate::codegen::value::filter::{group_conjuncts, test};
use crate::error::Result;
use crate::expr::Expr;
use crate::graph::{Graph, Pipeline, ResultId, Source, Stage};

/// The tests that the groups `into` must pass to be of use to anybody, if their only reader begins with some and is thought to drop
/// a quarter of them at least.
pub(in crate::codegen) fn kept_groups(
    context: &Context<'_>,
    into: ResultId,
    layout: &GroupsLayout,
    state: &mut KernelState,
) -> Result<Option<KeptGroups>> {
    let Some(of) = layout.regrouped else {
        return Ok(None);
    };
    let Some(conjuncts) = having(context.graph, into) else {
        return Ok(None);
    };
    let scope = held_group(layout, ("run_key", of.key_bytes), "group", state)?;
    let tests: Vec<Test> = group_conjuncts(conjuncts)
        .iter()
        .map(|group| test(group, &scope, state))
        .collect::<Result<_>>()?;
    Ok(Some(KeptGroups { scope, tests }))
}

/// The conjuncts that the only reader of the groups `of` begins with, where few groups pass.
fn having(graph: &Graph, of: ResultId) -> Option<&[Expr]> {
    let reader = graph.only_reader(of)?;
    let (Source::Groups(_), Some(Stage::Filter(conjuncts))) =
        (&reader.source, reader.stages.first())
    else {
        return None;
    };
    let columns = graph.results[of].kind.columns();
    // Strings are long to test, and nothing here is worth that.
    let short = columns_of(conjuncts.iter())
        .into_iter()
        .all(|i| columns.get(i).is_some_and(|c| !is_text(&c.data_type)));
    (short && drops_many(graph, reader, of)).then_some(conjuncts.as_slice())
}

/// Are at most three quarters of the groups thought to be left after the first stage?
fn drops_many(graph: &Graph, reader: &Pipeline, of: ResultId) -> bool {
    let left = reader.left.iter().find(|left| left.stages >= 1);
    left.is_some_and(|left| left.rows <= graph.results[of].estimate / 4 * 3)
}

fn is_text(data_type: &DataType) -> bool {
    data_type.is_string() || data_type.is_binary()
}

impl KernelWriter<'_> {
    /// Shared memory for the places of the groups that are kept.
    pub(super) fn begin_kept(&mut self) {
        self.share("ReserveScratch reserve", RESERVE_BYTES);
    }

    /// Test the groups that the block has whole: `kept` gets a bit for each of the thread's that passes, and `first_kept` the place of
    /// the first. A block without such groups, of which there are many where a filter is sharp, has one barrier here.
    pub(super) fn keep_runs(&mut self, groups: &Groups, of: RegroupedLayout, kept: KeptGroups) {
        let KeptGroups { scope, tests } = kept;
        let accumulators = groups.plan().accumulators.clone();
        let (window, stride, threads) = (of.window, groups.layout.stride, groups.threads);
        let t = of.key_type();
        line!(self, "    u32 kept = 0;");
        line!(
            self,
            "    WL_NO_UNROLL for (u32 j = 0; j * {threads}u < (runs < {window}u ? runs : {window}u); ++j) {{"
        );
        line!(self, "      constexpr u32 WL_ROWS = 1;");
        line!(self, "      const u32 g = j * {threads}u + threadIdx.x;");
        line!(
            self,
            "      u32 live = g != 0 && g + 1 < runs && g < {window}u ? 1u : 0u;"
        );
        line!(self, "      {t} run_key = 0;");
        line!(self, "      alignas(16) u8 group[{stride}];");
        line!(self, "      if (live != 0) {{");
        line!(self, "        run_key = shared.run_keys[g];");
        line!(self, "        u8* const at = group;");
        for (i, a) in accumulators.iter().enumerate() {
            let store = a.copy(&a.cell("at"), &groups.array_cell(i, "g"));
            line!(self, "        {store}");
        }
        line!(self, "      }}");
        // The groups' columns have numbers of their own.
        let of_rows = std::mem::replace(&mut self.pipeline.scope, scope);
        let loaded = std::mem::take(&mut self.loaded);
        for test in &tests {
            self.filter(test, "live");
        }
        self.loaded = loaded;
        self.pipeline.scope = of_rows;
        line!(self, "      kept |= live << j;\n    }}");
        let count = self.control(groups.into, ControlWord::Count);
        line!(self, "    u64 first_kept = 0;");
        line!(
            self,
            "    if (__syncthreads_or(kept != 0)) first_kept = block_reserve((u32)__popc(kept), &{count}, shared.reserve);"
        );
    }
}
