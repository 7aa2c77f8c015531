//! Catalogs, schemas, tables, and what the server tells of itself.

use arrow_flight::error::FlightError;
use arrow_flight::sql::metadata::{SqlInfoData, SqlInfoDataBuilder};
use arrow_flight::sql::{
    CommandGetCatalogs, CommandGetDbSchemas, CommandGetTableTypes, CommandGetTables, SqlInfo,
    SqlSupportedTransaction,
};
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::Schema;
use datafusion::arrow::error::ArrowError;
use datafusion::logical_expr::TableType;
use datafusion::prelude::SessionContext;

use super::statement::wire_schema;
use crate::error::{Result, ServeError};

/// What `GetSqlInfo` answers.
pub(super) fn server(version: &str) -> Result<SqlInfoData, ArrowError> {
    let mut info = SqlInfoDataBuilder::new();
    let (name, number) = version.split_once(' ').unwrap_or((version, ""));
    info.append(SqlInfo::FlightSqlServerName, name);
    info.append(SqlInfo::FlightSqlServerVersion, number);
    info.append(SqlInfo::FlightSqlServerArrowVersion, "1.3");
    info.append(SqlInfo::FlightSqlServerReadOnly, false);
    info.append(SqlInfo::FlightSqlServerSql, true);
    info.append(SqlInfo::FlightSqlServerSubstrait, false);
    info.append(
        SqlInfo::FlightSqlServerTransaction,
        SqlSupportedTransaction::None as i32,
    );
    info.append(SqlInfo::FlightSqlServerCancel, true);
    info.append(SqlInfo::FlightSqlServerStatementTimeout, 0i32);
    info.append(SqlInfo::FlightSqlServerTransactionTimeout, 0i32);
    info.append(SqlInfo::SqlIdentifierQuoteChar, "\"");
    info.append(SqlInfo::SqlDdlCatalog, false);
    info.append(SqlInfo::SqlDdlSchema, true);
    info.append(SqlInfo::SqlDdlTable, true);
    info.build().map_err(arrow)
}

fn arrow(error: FlightError) -> ArrowError {
    ArrowError::ExternalError(Box::new(error))
}

fn flight(error: FlightError) -> ServeError {
    arrow(error).into()
}

fn catalogs_of(context: &SessionContext) -> Vec<String> {
    let mut names = context.catalog_names();
    names.sort();
    names
}

pub(super) fn catalogs(context: &SessionContext, query: CommandGetCatalogs) -> Result<RecordBatch> {
    let mut builder = query.into_builder();
    for catalog in catalogs_of(context) {
        builder.append(catalog);
    }
    builder.build().map_err(flight)
}

pub(super) fn schemas(context: &SessionContext, query: CommandGetDbSchemas) -> Result<RecordBatch> {
    let mut builder = query.into_builder();
    for name in catalogs_of(context) {
        if let Some(catalog) = context.catalog(&name) {
            for schema in catalog.schema_names() {
                builder.append(&name, schema);
            }
        }
    }
    builder.build().map_err(flight)
}

pub(super) async fn tables(
    context: &SessionContext,
    query: CommandGetTables,
) -> Result<RecordBatch> {
    let with_schema = query.include_schema;
    let mut builder = query.into_builder();
    for name in catalogs_of(context) {
        let Some(catalog) = context.catalog(&name) else {
            continue;
        };
        for schema_name in catalog.schema_names() {
            let Some(schema) = catalog.schema(&schema_name) else {
                continue;
            };
            for table_name in schema.table_names() {
                let Some(table) = schema.table(&table_name).await? else {
                    continue;
                };
                let kind = match table.table_type() {
                    TableType::View => "VIEW",
                    _ => "TABLE",
                };
                let columns = match with_schema {
                    true => wire_schema(&table.schema()),
                    false => Schema::empty().into(),
                };
                builder
                    .append(&name, &schema_name, &table_name, kind, &columns)
                    .map_err(flight)?;
            }
        }
    }
    builder.build().map_err(flight)
}

pub(super) fn table_types(query: CommandGetTableTypes) -> Result<RecordBatch> {
    let mut builder = query.into_builder();
    for kind in ["TABLE", "VIEW"] {
        builder.append(kind);
    }
    builder.build().map_err(flight)
}
