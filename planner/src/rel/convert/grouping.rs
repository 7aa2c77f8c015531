//! Rows and the keys that they are grouped by.

use std::sync::Arc;

use datafusion::physical_plan::aggregates::PhysicalGroupBy;
use warpline_gpu::expr::Expr;

use super::Converter;
use crate::reason::{Reason, refuse};
use crate::rel::RelRef;
use crate::translate::{is_string, is_value};

/// The rows of `input` with their keys.
pub(super) fn grouping(
    by: &PhysicalGroupBy,
    input: RelRef,
    converter: &Converter,
) -> Result<Grouping, Reason> {
    let keys: Vec<_> = by.expr().iter().map(|(key, _)| Arc::clone(key)).collect();
    let names: Vec<String> = by.expr().iter().map(|(_, name)| name.clone()).collect();
    let (input, keys) = converter.translate_all(input, &keys)?;
    for (key, name) in keys.iter().zip(&names) {
        check_key(key, name)?;
    }
    Ok(Grouping { input, keys, names })
}

/// Rows and what they are grouped by.
#[derive(Debug, Clone)]
pub(super) struct Grouping {
    /// Rows.
    pub(super) input: RelRef,
    /// Over the columns of the rows.
    pub(super) keys: Vec<Expr>,
    /// Names of the keys.
    pub(super) names: Vec<String>,
}

fn check_key(key: &Expr, name: &str) -> Result<(), Reason> {
    let data_type = &key.data_type;
    if is_string(data_type) || is_value(data_type) {
        return Ok(());
    }
    refuse(format!(
        "grouping by {name} of type {data_type} runs on the CPU"
    ))
}
