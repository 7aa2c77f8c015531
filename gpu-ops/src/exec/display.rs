//! Fragments as EXPLAIN shows them.

use std::fmt;
use std::sync::Arc;

use datafusion::physical_plan::DisplayFormatType;

use super::fragment::Inner;
use super::run::{all_codes, least_grid};
use crate::codegen::TilePlan;
use crate::expr::Expr;
use crate::pipeline::{Pipeline, Sink, Stage};

/// Write one fragment in the given style.
pub(super) fn fragment(
    inner: &Inner,
    format: DisplayFormatType,
    f: &mut fmt::Formatter<'_>,
) -> fmt::Result {
    let tree = matches!(format, DisplayFormatType::TreeRender);
    let device = &inner.runtime.device().info().name;
    if tree {
        writeln!(f, "device={device}")?;
    } else {
        write!(f, "GpuFragmentExec: device={device}")?;
    }
    for (number, pipeline) in inner.fragment.pipelines.iter().enumerate() {
        let text = describe(pipeline);
        if tree {
            writeln!(f, "pipeline {number}={text}")?;
        } else {
            write!(f, ", pipeline {number}=[{text}]")?;
        }
        if let Some(choice) = placement(inner, pipeline) {
            if tree {
                writeln!(f, "groups={choice}")?;
            } else {
                write!(f, ", groups={choice}")?;
            }
        }
    }
    Ok(())
}

fn list<'a>(items: impl Iterator<Item = &'a Expr>, pipeline: &Pipeline) -> String {
    let fields = &pipeline.source.fields;
    items
        .map(|e| e.named(fields).to_string())
        .collect::<Vec<_>>()
        .join(", ")
}

fn describe(pipeline: &Pipeline) -> String {
    let fields = &pipeline.source.fields;
    let columns = fields
        .iter()
        .map(|field| field.name().as_str())
        .collect::<Vec<_>>()
        .join(", ");
    let mut text = format!("scan {}({columns})", pipeline.source.name);
    for Stage::Filter(conjuncts) in &pipeline.stages {
        text += &format!(" -> filter({})", list(conjuncts.iter(), pipeline));
    }
    let Sink::Aggregate(aggregate) = &pipeline.sink;
    let calls = aggregate
        .calls
        .iter()
        .map(|c| c.name.as_str())
        .collect::<Vec<_>>()
        .join(", ");
    if aggregate.keys.is_empty() {
        text + &format!(" -> aggregate({calls})")
    } else {
        text + &format!(
            " -> aggregate(by {}: {calls})",
            list(aggregate.keys.iter(), pipeline)
        )
    }
}

/// Where the groups of a pipeline would live and why; known once its columns are resident.
fn placement(inner: &Inner, pipeline: &Pipeline) -> Option<String> {
    let Sink::Aggregate(aggregate) = &pipeline.sink;
    if aggregate.keys.is_empty() {
        return None;
    }
    let source = &pipeline.source;
    let codes = all_codes(source);
    let tables = inner.runtime.tables();
    let Some(table) = tables.peek(&source.table, &source.columns, &codes) else {
        return Some("chosen once the columns are resident".to_string());
    };
    let grid = least_grid(&inner.runtime);
    match TilePlan::new(pipeline, &table.columns, table.rows as u64, grid) {
        Ok(plan) => {
            let device = Arc::clone(inner.runtime.device());
            let choice = inner.policy.place_groups(&plan.profile, device.info());
            Some(format!("{} ({})", choice.placement, choice.reason))
        }
        Err(error) => Some(format!("on the CPU ({error})")),
    }
}
