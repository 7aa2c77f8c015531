//! A client: one session with its settings and tables, whichever protocol it speaks.

use std::sync::{Arc, Weak};
use std::time::Duration;

use datafusion::common::TableReference;
use datafusion::logical_expr::{LogicalPlan, SetVariable, Statement as PlannedStatement};
use datafusion::prelude::SessionContext;
use parking_lot::Mutex;

use crate::admission::Asker;
use crate::auth::{self, User};
use crate::engine::EngineSession;
use crate::error::{Result, ServeError, state};
use crate::options::Limits;
use crate::registry::{Entry, Stop};
use crate::shared::Shared;

/// One client's session.
pub(crate) struct Client {
    pub(crate) server: Arc<Shared>,
    pub(crate) session: Arc<dyn EngineSession>,
    pub(crate) user: Option<Arc<User>>,
    pub(crate) limits: Limits,
    pub(crate) peer: String,
    pub(crate) protocol: &'static str,
    /// The query that runs or ran last.
    pub(crate) current: Mutex<Option<Weak<Entry>>>,
    statement_timeout: Mutex<Option<Duration>>,
    id: u64,
}

impl Client {
    /// Opens a session for somebody who is known.
    pub(crate) async fn open(
        server: &Arc<Shared>,
        user: Option<Arc<User>>,
        peer: String,
        protocol: &'static str,
    ) -> Result<Arc<Self>> {
        let session = server.engine.open(Arc::clone(&server.runtime)).await?;
        let context = session.context();
        for (name, table) in &server.tables {
            context.register_table(TableReference::bare(name.as_str()), Arc::clone(table))?;
        }
        session.has_tables_of_all(&server.providers());
        let limits = match &user {
            Some(user) => user.limits,
            None => server.options.limits,
        };
        Ok(Arc::new(Self {
            server: Arc::clone(server),
            session,
            user,
            limits,
            peer,
            protocol,
            current: Mutex::default(),
            statement_timeout: Mutex::default(),
            id: server.next_session(),
        }))
    }

    pub(crate) fn context(&self) -> &SessionContext {
        self.session.context()
    }

    pub(crate) fn user_name(&self) -> Arc<str> {
        match &self.user {
            Some(user) => user.name.as_str().into(),
            None => "anonymous".into(),
        }
    }

    pub(crate) fn asker(&self) -> Asker {
        Asker {
            user: self.user_name(),
            session: self.id,
            most: self.limits.queries.unwrap_or(usize::MAX),
        }
    }

    /// Stops the query that runs, if there is one.
    pub(crate) fn cancel(&self, why: Stop) {
        let entry = self.current.lock().as_ref().and_then(Weak::upgrade);
        if let Some(entry) = entry {
            entry.cancel(why);
        }
    }

    pub(crate) fn statement_timeout(&self) -> Option<Duration> {
        *self.statement_timeout.lock()
    }

    /// `SET statement_timeout`; 0 is no limit, but the user's.
    pub(crate) fn set_statement_timeout(&self, value: &str) -> Result<()> {
        let time = auth::duration(value)
            .map_err(|cause| ServeError::new(state::INVALID_PARAMETER_VALUE, cause))?;
        *self.statement_timeout.lock() = Some(time).filter(|time| !time.is_zero());
        Ok(())
    }

    /// Whether clients may change the setting.
    pub(crate) fn may_set(&self, name: &str) -> bool {
        SETTINGS.contains(&name) || self.server.engine.client_settings().contains(&name)
    }

    /// Changes a setting of `datafusion.*` or of the engine, if it is for clients.
    pub(crate) async fn set(&self, name: &str, value: &str) -> Result<()> {
        if !self.may_set(name) {
            let known = self
                .context()
                .copied_config()
                .options()
                .entries()
                .iter()
                .any(|entry| entry.key == name);
            return Err(match known {
                true => ServeError::denied(format!(
                    "permission denied to set parameter \"{name}\": it is the server's"
                )),
                false => ServeError::new(
                    state::UNDEFINED_OBJECT,
                    format!("unrecognized configuration parameter \"{name}\""),
                ),
            });
        }
        let set = PlannedStatement::SetVariable(SetVariable {
            variable: name.to_string(),
            value: value.to_string(),
        });
        let outcome = self
            .context()
            .execute_logical_plan(LogicalPlan::Statement(set))
            .await;
        outcome.map(drop).map_err(|error| {
            let message = ServeError::from(error).message;
            ServeError::new(state::INVALID_PARAMETER_VALUE, message)
        })
    }
}

/// DataFusion's settings that reach nothing but a client's own statements.
const SETTINGS: &[&str] = &[
    "datafusion.execution.time_zone",
    "datafusion.explain.analyze_level",
    "datafusion.explain.format",
    "datafusion.explain.logical_plan_only",
    "datafusion.explain.physical_plan_only",
    "datafusion.explain.show_schema",
    "datafusion.explain.show_sizes",
    "datafusion.explain.show_statistics",
    "datafusion.explain.tree_maximum_render_width",
    "datafusion.sql_parser.default_null_ordering",
    "datafusion.sql_parser.enable_ident_normalization",
    "datafusion.sql_parser.parse_float_as_decimal",
    "datafusion.sql_parser.support_varchar_with_length",
];
