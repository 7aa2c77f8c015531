//! The layouts of results, once the pipelines that fill them have been emitted.

use crate::codegen::ir::context::{Context, Known};
use crate::codegen::ir::layout::{ColumnLayout, layout_of};
use crate::codegen::ir::pipeline::EmittedSink;
use crate::codegen::ir::results::ResultLayout;
use crate::codegen::ir::value::Value;
use crate::error::{GpuError, Result};
use crate::graph::ResultId;

/// Record the layout of what the sink fills; rows that several pipelines append are settled by the last.
pub(in crate::codegen) fn settle(
    context: &mut Context<'_>,
    sink: &EmittedSink,
    bound: u64,
) -> Result<()> {
    let graph = context.graph;
    if let Some((into, borrowed)) = sink.borrowed() {
        let reason = borrowed.reason(&graph.results[into].name);
        context.choices.push(reason);
    }
    let types = |id: ResultId| graph.results[id].kind.columns();
    let layouts = |id: ResultId, values: &[Value]| -> Vec<ColumnLayout> {
        values
            .iter()
            .zip(types(id))
            .map(|(value, column)| layout_of(value, &column.data_type))
            .collect()
    };
    match sink {
        EmittedSink::Rows { into, values, .. } => {
            let mut new = layouts(*into, values);
            let mut total = bound;
            if let Some(Known {
                layout: ResultLayout::Rows(old),
                bound,
            }) = &context.known[*into]
            {
                new = old
                    .iter()
                    .zip(new)
                    .map(|(a, b)| crate::codegen::pipeline::union::layouts(a, &b))
                    .collect::<Result<_>>()?;
                total = total.saturating_add(*bound);
            }
            total = total.min(graph.results[*into].enough.unwrap_or(u64::MAX));
            context.known[*into] = Some(Known {
                layout: ResultLayout::Rows(new),
                bound: total,
            });
        }
        EmittedSink::Matches {
            into,
            joined,
            columns,
            borrowed,
            key_aliases,
            ..
        } => {
            let index = graph
                .probed_by(*into)
                .map(|probe| probe.index)
                .ok_or_else(|| GpuError::Internal("matches without a probe".into()))?;
            context.known[*into] = Some(Known {
                layout: ResultLayout::Matches {
                    columns: columns.clone(),
                    index,
                    joined: *joined,
                    borrowed: borrowed.clone(),
                    key_aliases: key_aliases.clone(),
                },
                bound,
            });
        }
        EmittedSink::Aggregate {
            into,
            layout,
            profile,
            ..
        } => {
            context.known[*into] = Some(Known {
                bound: if layout.keys.is_empty() {
                    1
                } else {
                    profile.max_groups.max(1)
                },
                layout: ResultLayout::Groups(layout.as_ref().clone()),
            });
        }
        EmittedSink::Build { into, layout, .. } => {
            context.known[*into] = Some(Known {
                layout: ResultLayout::Index(layout.as_ref().clone()),
                bound,
            });
        }
        EmittedSink::Collect { .. } | EmittedSink::Discard => {}
    }
    Ok(())
}
