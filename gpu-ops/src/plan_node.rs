//! Methods that plan nodes of every crate write alike.

use std::sync::Arc;

use datafusion::error::{DataFusionError, Result};
use datafusion::physical_plan::ExecutionPlan;

/// `ExecutionPlan::apply_expressions` of a node that shows DataFusion's rules no expressions: it has none, or they are not
/// DataFusion's.
#[macro_export]
macro_rules! no_expressions {
    () => {
        fn apply_expressions(
            &self,
            _visit: &mut dyn FnMut(
                &::std::sync::Arc<dyn ::datafusion::physical_plan::PhysicalExpr>,
            ) -> ::datafusion::error::Result<
                ::datafusion::common::tree_node::TreeNodeRecursion,
            >,
        ) -> ::datafusion::error::Result<::datafusion::common::tree_node::TreeNodeRecursion> {
            Ok(::datafusion::common::tree_node::TreeNodeRecursion::Continue)
        }
    };
}

/// `node` with other children, which is itself: it is a leaf.
///
/// # Errors
/// [`DataFusionError::Internal`] where there are some.
pub fn leaf(
    node: Arc<dyn ExecutionPlan>,
    children: &[Arc<dyn ExecutionPlan>],
) -> Result<Arc<dyn ExecutionPlan>> {
    match children {
        [] => Ok(node),
        _ => Err(DataFusionError::Internal(format!(
            "{} has no children",
            node.name()
        ))),
    }
}

/// The child of the node `name`, which has one.
///
/// # Errors
/// [`DataFusionError::Internal`] where there are none or several.
pub fn only_child(
    name: &str,
    children: Vec<Arc<dyn ExecutionPlan>>,
) -> Result<Arc<dyn ExecutionPlan>> {
    let [child] = <[_; 1]>::try_from(children).map_err(|children| {
        let count = children.len();
        DataFusionError::Internal(format!("{name} has one child, not {count}"))
    })?;
    Ok(child)
}
