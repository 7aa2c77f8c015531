//! `SET`, `SHOW`, `RESET` and transactions: what PostgreSQL's clients say of their session.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::sql::sqlparser::ast::{ContextModifier, Ident, Reset, Set, Statement};

use crate::client::Client;
use crate::error::{Result, ServeError, state};
use crate::settings::{name_of, text_of};

/// A connection's parameters, by names in lower case.
pub(super) type Parameters = HashMap<String, String>;

/// Parameters that a client is told of after the log-in and when they change.
pub(super) const REPORTED: &[&str] = &[
    "application_name",
    "client_encoding",
    "DateStyle",
    "default_transaction_read_only",
    "in_hot_standby",
    "integer_datetimes",
    "IntervalStyle",
    "is_superuser",
    "server_encoding",
    "standard_conforming_strings",
    "TimeZone",
];

/// Parameters of PostgreSQL with their defaults, and whether a client may change them: those have a meaning here, or none that
/// a client could miss.
const PARAMETERS: &[(&str, &str, bool)] = &[
    ("application_name", "", true),
    ("bytea_output", "hex", true),
    ("client_encoding", "UTF8", true),
    ("client_min_messages", "notice", true),
    ("datestyle", "ISO, MDY", true),
    ("default_transaction_isolation", "read committed", true),
    ("default_transaction_read_only", "off", true),
    ("extra_float_digits", "1", true),
    ("geqo", "on", true),
    ("idle_in_transaction_session_timeout", "0", true),
    ("in_hot_standby", "off", false),
    ("integer_datetimes", "on", false),
    ("intervalstyle", "postgres", true),
    ("is_superuser", "off", false),
    ("jit", "off", true),
    ("lc_collate", "C", false),
    ("lc_ctype", "C", false),
    ("lc_messages", "C", true),
    ("lc_monetary", "C", true),
    ("lc_numeric", "C", true),
    ("lc_time", "C", true),
    ("lock_timeout", "0", true),
    ("max_identifier_length", "63", false),
    ("row_security", "off", true),
    ("search_path", "public", true),
    ("server_encoding", "UTF8", false),
    ("server_version", "16.6", false),
    ("server_version_num", "160006", false),
    ("standard_conforming_strings", "on", false),
    ("statement_timeout", "0", true),
    ("synchronous_commit", "on", true),
    ("timezone", "UTC", true),
    ("transaction_isolation", "read committed", true),
    ("transaction_read_only", "off", true),
    ("work_mem", "4MB", true),
    ("xmloption", "content", true),
];

/// The parameters of a connection, under names in lower case.
pub(super) fn normalise(parameters: &mut Parameters) {
    let named = std::mem::take(parameters);
    parameters.extend(
        named
            .into_iter()
            .map(|(name, value)| (name.to_lowercase(), value)),
    );
}

/// The value of one of PostgreSQL's parameters; `None` if it is none.
pub(super) fn value_of(parameters: &Parameters, name: &str) -> Option<String> {
    let name = name.to_lowercase();
    let (_, default, _) = PARAMETERS.iter().find(|(known, _, _)| *known == name)?;
    let value = parameters.get(&name).cloned();
    Some(value.unwrap_or_else(|| (*default).to_string()))
}

/// Applies what the client said when it connected.
pub(super) async fn apply_startup(client: &Arc<Client>, parameters: &mut Parameters) -> Result<()> {
    let mut given: Vec<(String, String)> = Vec::new();
    for (name, _, settable) in PARAMETERS {
        if *settable && let Some(value) = parameters.remove(*name) {
            given.push(((*name).to_string(), value));
        }
    }
    // `-c name=value`, and `--name=value`.
    let options = parameters.remove("options").unwrap_or_default();
    let mut words = options.split_whitespace();
    while let Some(word) = words.next() {
        let setting = match word.strip_prefix("-c") {
            Some("") => words.next(),
            Some(setting) => Some(setting),
            None => word.strip_prefix("--"),
        };
        if let Some((name, value)) = setting.and_then(|setting| setting.split_once('=')) {
            given.push((name.replace('-', "_"), value.to_string()));
        }
    }
    for (name, value) in given {
        set(client, parameters, &name, &value).await?;
    }
    Ok(())
}

/// Sets a parameter or a setting.
pub(super) async fn set(
    client: &Arc<Client>,
    parameters: &mut Parameters,
    name: &str,
    value: &str,
) -> Result<()> {
    let name = name.to_lowercase();
    let invalid = |why: &str| {
        ServeError::new(
            state::INVALID_PARAMETER_VALUE,
            format!("invalid value for parameter \"{name}\": \"{value}\"{why}"),
        )
    };
    match name.as_str() {
        "timezone" => client
            .set("datafusion.execution.time_zone", value)
            .await
            .map_err(|_| invalid(""))?,
        "statement_timeout" => client.set_statement_timeout(value)?,
        "client_encoding" => {
            // As PostgreSQL reads names of encodings; asyncpg sends 'utf-8' in quotes.
            let known = value.chars().filter(char::is_ascii_alphanumeric);
            let encoding = known.collect::<String>().to_ascii_lowercase();
            if !matches!(encoding.as_str(), "utf8" | "unicode" | "sqlascii" | "auto") {
                return Err(invalid(": this server speaks UTF8"));
            }
            parameters.insert(name, "UTF8".to_string());
            return Ok(());
        }
        "default_transaction_isolation" | "transaction_isolation" => {}
        _ if name.contains('.') => return client.set(&name, value).await,
        _ => match PARAMETERS.iter().find(|(known, _, _)| *known == name) {
            Some((_, _, true)) => {}
            Some(_) => {
                return Err(ServeError::new(
                    "55P02",
                    format!("parameter \"{name}\" cannot be changed"),
                ));
            }
            None => {
                return Err(ServeError::new(
                    state::UNDEFINED_OBJECT,
                    format!("unrecognized configuration parameter \"{name}\""),
                ));
            }
        },
    }
    parameters.insert(name, value.to_string());
    Ok(())
}

/// Runs `SET` and says which parameter it changed.
pub(super) async fn run_set(
    client: &Arc<Client>,
    parameters: &mut Parameters,
    statement: &Set,
) -> Result<Option<String>> {
    match statement {
        Set::SingleAssignment {
            variable,
            values,
            scope,
            ..
        } => {
            if *scope == Some(ContextModifier::Global) {
                return Err(ServeError::denied("clients set nothing for others"));
            }
            let name = name_of(variable);
            let values: Vec<String> = values.iter().map(text_of).collect();
            let value = values.join(", ");
            if value.eq_ignore_ascii_case("default") {
                reset(client, parameters, &name).await?;
            } else {
                set(client, parameters, &name, &value).await?;
            }
            Ok(Some(name))
        }
        Set::SetTimeZone { value, .. } => {
            let value = text_of(value);
            let value = match value.to_lowercase().as_str() {
                "default" | "local" => "UTC".to_string(),
                _ => value,
            };
            set(client, parameters, "timezone", &value).await?;
            Ok(Some("timezone".to_string()))
        }
        Set::SetNames { charset_name, .. } => {
            set(client, parameters, "client_encoding", &charset_name.value).await?;
            Ok(Some("client_encoding".to_string()))
        }
        // There is one isolation: a statement sees what its tables are when it begins.
        Set::SetTransaction { .. } | Set::SetSessionParam(_) | Set::SetNamesDefault {} => Ok(None),
        Set::SetRole {
            role_name: None, ..
        } => Ok(None),
        Set::SetRole { .. } | Set::SetSessionAuthorization(_) => {
            Err(ServeError::denied("permission denied to change the user"))
        }
        other => Err(ServeError::unsupported(&other.to_string())),
    }
}

/// Runs `RESET`.
pub(super) async fn run_reset(
    client: &Arc<Client>,
    parameters: &mut Parameters,
    what: &Reset,
) -> Result<()> {
    match what {
        Reset::ALL => {
            for (name, _, settable) in PARAMETERS {
                if *settable && parameters.contains_key(*name) {
                    reset(client, parameters, name).await?;
                }
            }
            Ok(())
        }
        Reset::ConfigurationParameter(name) => reset(client, parameters, &name_of(name)).await,
    }
}

async fn reset(client: &Arc<Client>, parameters: &mut Parameters, name: &str) -> Result<()> {
    let name = name.to_lowercase();
    if name.contains('.') {
        return Err(ServeError::unsupported(&format!(
            "RESET {name} (SET it to its default instead)"
        )));
    }
    let default = PARAMETERS.iter().find(|(known, _, _)| *known == name);
    let Some((_, default, _)) = default else {
        return set(client, parameters, &name, "").await;
    };
    set(client, parameters, &name, default).await?;
    parameters.remove(&name);
    Ok(())
}

/// The value that `SHOW` answers by itself, with the column's name; `None` where DataFusion answers.
pub(super) fn show(parameters: &Parameters, variable: &[Ident]) -> Option<(String, String)> {
    let words: Vec<String> = variable
        .iter()
        .map(|word| word.value.to_lowercase())
        .collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let name = match words.as_slice() {
        ["time", "zone"] => "timezone",
        ["transaction", "isolation", "level"] => "transaction_isolation",
        ["session", "authorization"] => "session_authorization",
        [name] => name,
        _ => return None,
    };
    if name == "session_authorization" {
        return Some((name.to_string(), parameters.get("user").cloned()?));
    }
    Some((name.to_string(), value_of(parameters, name)?))
}

/// The name under which a client is told that a parameter changed.
pub(super) fn reported(name: &str) -> Option<&'static str> {
    REPORTED
        .iter()
        .find(|reported| reported.eq_ignore_ascii_case(name))
        .copied()
}

/// A word of SQL as the tag of a command that changes nothing here.
pub(super) fn no_operation(statement: &Statement) -> Option<&'static str> {
    match statement {
        Statement::Savepoint { .. } => Some("SAVEPOINT"),
        Statement::ReleaseSavepoint { .. } => Some("RELEASE"),
        Statement::UNLISTEN { .. } => Some("UNLISTEN"),
        _ => None,
    }
}
