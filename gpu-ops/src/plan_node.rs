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

/// The methods of an `ExecutionPlan` that has the rows, partitions and order of its field `input`.
#[macro_export]
macro_rules! rows_of_input {
    () => {
        fn properties(&self) -> &::std::sync::Arc<::datafusion::physical_plan::PlanProperties> {
            self.input.properties()
        }

        fn maintains_input_order(&self) -> Vec<bool> {
            vec![true]
        }

        fn benefits_from_input_partitioning(&self) -> Vec<bool> {
            vec![false]
        }

        fn children(
            &self,
        ) -> Vec<&::std::sync::Arc<dyn ::datafusion::physical_plan::ExecutionPlan>> {
            vec![&self.input]
        }

        $crate::no_expressions!();

        fn child_stats_requests(
            &self,
            partition: Option<usize>,
        ) -> Vec<::datafusion::physical_plan::ChildStats> {
            vec![::datafusion::physical_plan::ChildStats::At(partition)]
        }

        fn statistics_from_inputs(
            &self,
            inputs: &[::std::sync::Arc<::datafusion::common::Statistics>],
            _: &::datafusion::physical_plan::StatisticsArgs,
        ) -> ::datafusion::error::Result<::std::sync::Arc<::datafusion::common::Statistics>> {
            match inputs {
                [input] => Ok(::std::sync::Arc::clone(input)),
                _ => Ok(::std::sync::Arc::new(
                    ::datafusion::common::Statistics::new_unknown(&self.schema()),
                )),
            }
        }

        fn cardinality_effect(
            &self,
        ) -> ::datafusion::physical_plan::execution_plan::CardinalityEffect {
            ::datafusion::physical_plan::execution_plan::CardinalityEffect::Equal
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
