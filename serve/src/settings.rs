//! `SET`, where it means the same in all protocols.

use std::sync::Arc;

use datafusion::sql::sqlparser::ast::{ContextModifier, Expr, ObjectName, Set, Value};

use crate::client::Client;
use crate::error::{Result, ServeError, state};

/// Runs `SET`.
pub(crate) async fn set(client: &Arc<Client>, statement: &Set) -> Result<()> {
    match statement {
        Set::SingleAssignment {
            scope,
            variable,
            values,
            ..
        } if *scope != Some(ContextModifier::Global) => {
            let values: Vec<String> = values.iter().map(text_of).collect();
            let (name, value) = (name_of(variable).to_lowercase(), values.join(", "));
            match name.as_str() {
                "statement_timeout" => client.set_statement_timeout(&value),
                "timezone" => client.set("datafusion.execution.time_zone", &value).await,
                _ => client.set(&name, &value).await,
            }
        }
        Set::SetTimeZone { value, .. } => {
            let value = text_of(value);
            client.set("datafusion.execution.time_zone", &value).await
        }
        other => Err(ServeError::new(
            state::FEATURE_NOT_SUPPORTED,
            format!("{other} is not supported"),
        )),
    }
}

pub(crate) fn name_of(name: &ObjectName) -> String {
    let parts = name.0.iter().map(|part| match part.as_ident() {
        Some(ident) => ident.value.clone(),
        None => part.to_string(),
    });
    parts.collect::<Vec<_>>().join(".")
}

/// A value without its quotes.
pub(crate) fn text_of(value: &Expr) -> String {
    match value {
        Expr::Value(value) => match &value.value {
            Value::Number(number, _) => number.to_string(),
            Value::Boolean(value) => value.to_string(),
            Value::SingleQuotedString(text) | Value::DoubleQuotedString(text) => text.clone(),
            other => other.to_string(),
        },
        Expr::Identifier(ident) => ident.value.clone(),
        other => other.to_string(),
    }
}
