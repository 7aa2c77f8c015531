//! Plans that the sessions of a server share: those over the tables that all of them have.
//!
//! A plan that one session made is right for another if that has the same settings, plans by the same rules, and the names in the
//! text stand for the same tables and functions there. Sessions are opened alike, so rules are compared with those that the session
//! began with, settings by their values, and tables and functions by identity.

use std::sync::Arc;

use datafusion::catalog::TableProvider;
use datafusion::config::ConfigOptions;
use datafusion::execution::context::SessionState;
use datafusion::prelude::SessionContext;
use parking_lot::Mutex;

use super::shelf::Shelf;
use super::snapshot::Snapshot;
use super::tables::Tables;

/// Most plans of one source that wait: sessions that ask the same at a time each need one of their own.
const IDLE_PLANS: usize = 64;

/// Most sets of settings whose plans are kept.
const SHELVES: usize = 16;

/// The plans of all sessions of one server.
#[derive(Debug, Default)]
pub(crate) struct CommonPlans {
    /// By settings; the one that was asked for last is the last.
    shelves: Mutex<Vec<(Arc<str>, Arc<Shelf>)>>,
}

impl CommonPlans {
    fn shelf(&self, settings: &str) -> Arc<Shelf> {
        let mut shelves = self.shelves.lock();
        let at = shelves.iter().position(|(known, _)| **known == *settings);
        let found = match at {
            Some(at) => shelves.remove(at),
            None => (settings.into(), Shelf::new(IDLE_PLANS)),
        };
        let shelf = Arc::clone(&found.1);
        shelves.push(found);
        let least = match shelves.len() > SHELVES {
            true => Some(shelves.remove(0)),
            false => None,
        };
        drop(shelves);
        drop(least);
        shelf
    }
}

/// A session's part in the plans of all.
#[derive(Debug)]
pub(super) struct Membership {
    plans: Arc<CommonPlans>,
    tables: Vec<Arc<dyn TableProvider>>,
    /// What the session was when it was opened.
    opening: Snapshot,
}

impl Membership {
    pub(super) fn new(
        plans: &Arc<CommonPlans>,
        tables: &[Arc<dyn TableProvider>],
        context: &SessionContext,
    ) -> Self {
        Self {
            plans: Arc::clone(plans),
            tables: tables.to_vec(),
            opening: Snapshot::new(&context.state_ref().read()),
        }
    }

    /// The plans of sessions with the settings of this one; `None` if it plans by other rules than it began with.
    pub(super) fn shelf(&self, state: &SessionState) -> Option<Arc<Shelf>> {
        let same = self.opening.has_rules_of(state);
        same.then(|| self.plans.shelf(&values(state.config_options())))
    }

    /// Whether all sessions have the tables and functions of a query. What is added to a session that was opened is its own.
    pub(super) fn may_share(&self, tables: &Tables) -> bool {
        let has = |table: &_| self.tables.iter().any(|known| Arc::ptr_eq(known, table));
        tables.are_all(has) && tables.have_functions_of(&self.opening.state)
    }
}

/// All settings with their values.
fn values(options: &ConfigOptions) -> String {
    let mut lines: Vec<String> = options
        .entries()
        .into_iter()
        .map(|entry| format!("{}={:?}", entry.key, entry.value))
        .collect();
    lines.sort_unstable();
    lines.join("\n")
}
