//! From text to a statement with its plan, its parameters and its columns.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Schema};
use datafusion::common::ParamValues;
use datafusion::logical_expr::LogicalPlan;
use datafusion::scalar::ScalarValue;
use datafusion::sql::sqlparser::ast::Statement;
use datafusion_postgres::arrow_pg::datatypes::df::deserialize_parameters_with_server_types;
use datafusion_postgres::arrow_pg::datatypes::{arrow_schema_to_pg_fields, into_pg_type};
use datafusion_postgres::pgwire::api::Type;
use datafusion_postgres::pgwire::api::portal::{Format, Portal};
use datafusion_postgres::pgwire::api::results::{FieldInfo, Tag};
use datafusion_postgres::pgwire::error::PgWireResult;
use datafusion_postgres::pgwire::types::format::FormatOptions;

use super::command::{self, Parameters};
use crate::client::Client;
use crate::error::{Result, ServeError, state};
use crate::parameters::parameter_types;
use crate::policy;
use crate::query::Work;

/// A statement that is known to be allowed.
#[derive(Debug)]
pub(crate) struct Prepared {
    pub(super) sql: String,
    pub(super) ast: Statement,
    /// Of statements that DataFusion runs.
    pub(super) plan: Option<LogicalPlan>,
    /// The types of the parameters, as far as the plan tells.
    inferred: Vec<Option<DataType>>,
    /// As what the client is told of them.
    pub(super) parameters: Vec<Type>,
}

impl Prepared {
    /// Plans a statement.
    pub(super) async fn new(
        client: &Arc<Client>,
        parameters: &Parameters,
        ast: Statement,
    ) -> Result<Self> {
        policy::check(&ast)?;
        let sql = ast.to_string();
        let plan = match &ast {
            Statement::ShowVariable { variable } => match command::show(parameters, variable) {
                Some((name, value)) => Some(shown(client, &name, &value).await?),
                None => Some(policy::planned(client, &ast).await?),
            },
            Statement::Set(_)
            | Statement::Reset(_)
            | Statement::StartTransaction { .. }
            | Statement::Commit { .. }
            | Statement::Rollback { .. }
            | Statement::Savepoint { .. }
            | Statement::ReleaseSavepoint { .. }
            | Statement::UNLISTEN { .. }
            | Statement::Discard { .. }
            | Statement::Declare { .. }
            | Statement::Fetch { .. }
            | Statement::Close { .. }
            | Statement::Copy { .. } => None,
            _ => Some(policy::planned(client, &ast).await?),
        };
        let inferred = match &plan {
            Some(plan) => parameter_types(plan)?,
            None => vec![],
        };
        let parameters = inferred
            .iter()
            .map(|inferred| match inferred {
                Some(inferred) => into_pg_type(inferred).unwrap_or(Type::UNKNOWN),
                None => Type::UNKNOWN,
            })
            .collect();
        Ok(Self {
            sql,
            ast,
            plan,
            inferred,
            parameters,
        })
    }

    /// The work of a statement without parameters.
    pub(super) fn work(&self, plan: LogicalPlan) -> Work {
        match (&self.ast, self.inferred.is_empty()) {
            (Statement::Query(_) | Statement::Explain { .. }, true) => {
                Work::Text(self.sql.clone(), Box::new(plan))
            }
            _ => Work::Plan(Box::new(plan)),
        }
    }

    /// The plan with the values of the parameters in their places.
    pub(super) fn bound(&self, portal: &Portal<Arc<Self>>) -> PgWireResult<Option<LogicalPlan>> {
        let Some(plan) = &self.plan else {
            return Ok(None);
        };
        if self.inferred.is_empty() {
            return Ok(Some(plan.clone()));
        }
        if portal.parameter_len() < self.inferred.len() {
            return Err(ServeError::new(
                state::PROTOCOL_VIOLATION,
                format!(
                    "bind message supplies {} parameters, but the statement needs {}",
                    portal.parameter_len(),
                    self.inferred.len()
                ),
            )
            .into());
        }
        // The client's own types count; where it gave none, it was told these. Decimals keep the digits that they have.
        let given = &portal.statement.parameter_types;
        let is_given = |at: usize| given.get(at).is_some_and(Option::is_some);
        let targets: Vec<Option<&DataType>> = self
            .inferred
            .iter()
            .enumerate()
            .map(|(at, inferred)| match inferred {
                Some(DataType::Decimal128(..) | DataType::Decimal256(..)) => None,
                inferred if !is_given(at) => inferred.as_ref(),
                _ => None,
            })
            .collect();
        let told: Vec<Option<&Type>> = self.parameters.iter().map(Some).collect();
        let values = deserialize_parameters_with_server_types(portal, &targets, &told)?;
        let values = match values {
            ParamValues::List(list) => list
                .into_iter()
                .enumerate()
                .map(|(at, value)| {
                    let inferred = self.inferred.get(at).and_then(Option::as_ref);
                    fitting(value.value, inferred)
                })
                .collect::<Result<Vec<_>>>()?,
            ParamValues::Map(_) => vec![],
        };
        let plan = plan.clone().replace_params_with_values(&values.into());
        Ok(Some(plan.map_err(ServeError::from)?))
    }

    /// The columns of its rows; `None` if it answers none.
    pub(super) fn columns(
        &self,
        plan: Option<&LogicalPlan>,
        format: &Format,
    ) -> PgWireResult<Option<Vec<FieldInfo>>> {
        match plan.or(self.plan.as_ref()) {
            Some(plan) if answers(plan) => {
                let schema = plan.schema().as_arrow();
                Ok(Some(fields(schema, format, &Parameters::new())?))
            }
            _ => Ok(None),
        }
    }

    /// The tag of a command that answered no rows but their number.
    pub(super) fn tag(&self, count: Option<usize>) -> Tag {
        let count = count.unwrap_or(0);
        match &self.ast {
            Statement::Insert(_) => Tag::new("INSERT").with_oid(0).with_rows(count),
            Statement::Update(_) => Tag::new("UPDATE").with_rows(count),
            Statement::Delete(_) => Tag::new("DELETE").with_rows(count),
            other => {
                let mut words = self.sql.split_whitespace().map(str::to_uppercase);
                let first = words.next().unwrap_or_default();
                let kind = words.find(|word| matches!(word.as_str(), "TABLE" | "VIEW" | "SCHEMA"));
                match (other, kind) {
                    (Statement::Prepare { .. } | Statement::Deallocate { .. }, _) | (_, None) => {
                        Tag::new(&first)
                    }
                    (_, Some(kind)) => Tag::new(&format!("{first} {kind}")),
                }
            }
        }
    }
}

/// Whether a plan answers rows of its own.
pub(super) fn answers(plan: &LogicalPlan) -> bool {
    !matches!(
        plan,
        LogicalPlan::Ddl(_)
            | LogicalPlan::Dml(_)
            | LogicalPlan::Copy(_)
            | LogicalPlan::Statement(_)
    )
}

/// Columns as the protocol has them.
pub(super) fn fields(
    schema: &Schema,
    format: &Format,
    parameters: &Parameters,
) -> PgWireResult<Vec<FieldInfo>> {
    if let Format::Individual(formats) = format
        && formats.len() != schema.fields().len()
    {
        return Err(ServeError::new(
            state::PROTOCOL_VIOLATION,
            format!(
                "bind message has {} result formats but the query has {} columns",
                formats.len(),
                schema.fields().len()
            ),
        )
        .into());
    }
    let options = Arc::new(FormatOptions::from_client_metadata(parameters));
    arrow_schema_to_pg_fields(schema, format, Some(options))
}

async fn shown(client: &Arc<Client>, name: &str, value: &str) -> Result<LogicalPlan> {
    let (name, value) = (name.replace('"', "\"\""), value.replace('\'', "''"));
    let sql = format!("SELECT '{value}' AS \"{name}\"");
    Ok(client.context().state().create_logical_plan(&sql).await?)
}

/// A value in the type that the plan wants. Numbers stay what they are: DataFusion finds the type for both sides, and a cast could
/// cut off digits.
fn fitting(value: ScalarValue, inferred: Option<&DataType>) -> Result<ScalarValue> {
    // 0.055 has three digits after the point, and so three in all at least.
    let value = match value {
        ScalarValue::Decimal128(digits, precision, scale) => {
            let least = u8::try_from(scale).unwrap_or(0).max(1);
            ScalarValue::Decimal128(digits, precision.max(least), scale)
        }
        other => other,
    };
    match inferred {
        Some(wanted) if value.is_null() => Ok(ScalarValue::try_from(wanted)?),
        Some(wanted)
            if value.data_type() != *wanted
                && !(value.data_type().is_numeric() && wanted.is_numeric()) =>
        {
            Ok(value.cast_to(wanted)?)
        }
        _ => Ok(value),
    }
}
