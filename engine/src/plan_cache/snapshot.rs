//! Snapshot of the session state that plans depend on, except tables.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use datafusion::execution::TaskContext;
use datafusion::execution::context::SessionState;

/// A session's state at one time. It keeps all that it is compared by alive, so equal addresses mean the same object.
pub(super) struct Snapshot {
    /// The state.
    pub(super) state: SessionState,
    /// What plans of this state run in.
    pub(super) task: Arc<TaskContext>,
}

impl Snapshot {
    pub(super) fn new(state: &SessionState) -> Self {
        Self {
            state: state.clone(),
            task: state.task_ctx(),
        }
    }

    /// Would `state` plan every query as this one does?
    ///
    /// Settings are compared by their address: DataFusion copies them before a change, because this snapshot holds them.
    pub(super) fn is_of(&self, state: &SessionState) -> bool {
        let old = &self.state;
        Arc::ptr_eq(old.config_options(), state.config_options())
            && self.has_rules_of(state)
            && same_map(old.scalar_functions(), state.scalar_functions())
            && same_map(old.higher_order_functions(), state.higher_order_functions())
            && same_map(old.aggregate_functions(), state.aggregate_functions())
            && same_map(old.window_functions(), state.window_functions())
            && same_map(old.table_functions(), state.table_functions())
    }

    /// Does `state` plan by the same rules? Settings and functions may be others.
    pub(super) fn has_rules_of(&self, state: &SessionState) -> bool {
        let old = &self.state;
        Arc::ptr_eq(old.runtime_env(), state.runtime_env())
            && Arc::ptr_eq(old.catalog_list(), state.catalog_list())
            && Arc::ptr_eq(old.query_planner(), state.query_planner())
            && same_list(old.optimizers(), state.optimizers())
            && same_list(old.physical_optimizers(), state.physical_optimizers())
            && same_list(&old.analyzer().rules, &state.analyzer().rules)
            && same_list(old.expr_planners(), state.expr_planners())
            && same_list(old.relation_planners(), state.relation_planners())
    }
}

fn same_list<T: ?Sized>(old: &[Arc<T>], new: &[Arc<T>]) -> bool {
    old.len() == new.len() && old.iter().zip(new).all(|(a, b)| Arc::ptr_eq(a, b))
}

/// The maps are copies of each other unless something was registered, and a copy has the order of its original. Should
/// it ever not, the maps count as different: plans are made anew, nothing worse.
fn same_map<T: ?Sized>(old: &HashMap<String, Arc<T>>, new: &HashMap<String, Arc<T>>) -> bool {
    old.len() == new.len()
        && old
            .iter()
            .zip(new)
            .all(|(a, b)| Arc::ptr_eq(a.1, b.1) && a.0 == b.0)
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Snapshot")
            .field("session", &self.state.session_id())
            .finish_non_exhaustive()
    }
}
