//! DataFusion's pushdown of filters through physical plans, where operators tell their columns apart.
//!
//! DataFusion 55.2 finds the column of a filter below an operator by its name. Where two columns have one name (`a.id` and `b.id`
//! above a join) the filter comes to the wrong one, and rows are lost: a condition on `coalesce(b.name, '')` above an outer join,
//! the limit of an order by one of them. Its rule runs here on those parts of a plan in which no operator has such columns.

use std::collections::HashSet;
use std::sync::Arc;

use datafusion::config::ConfigOptions;
use datafusion::error::Result;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_optimizer::optimizer::PhysicalOptimizer;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::execution_plan::replace_children_if_necessary;

use crate::float_limits::WithoutFloats;

/// DataFusion's rules for physical plans, with the pushdown of filters and the first groups of an order where they are right.
pub fn physical_rules() -> Vec<Arc<dyn PhysicalOptimizerRule + Send + Sync>> {
    let rules = PhysicalOptimizer::new().rules.into_iter();
    rules
        .map(|rule| -> Arc<dyn PhysicalOptimizerRule + Send + Sync> {
            match rule.name() {
                name if name.starts_with("FilterPushdown") => Arc::new(WhereNamesDiffer { rule }),
                WithoutFloats::NAME => Arc::new(WithoutFloats { rule }),
                _ => rule,
            }
        })
        .collect()
}

/// A rule for those parts of a plan in which no operator has two columns of one name.
#[derive(Debug)]
struct WhereNamesDiffer {
    rule: Arc<dyn PhysicalOptimizerRule + Send + Sync>,
}

impl PhysicalOptimizerRule for WhereNamesDiffer {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        options: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(match self.below(plan, options)? {
            Part::Whole(plan) => self.rule.optimize(plan, options)?,
            Part::Done(plan) => plan,
        })
    }

    fn name(&self) -> &str {
        self.rule.name()
    }

    fn schema_check(&self) -> bool {
        self.rule.schema_check()
    }
}

/// A plan on the way up.
enum Part {
    /// No operator of it has two columns of one name: the rule waits for the whole of such a part.
    Whole(Arc<dyn ExecutionPlan>),
    /// One has, and the rule ran on all parts below that it may.
    Done(Arc<dyn ExecutionPlan>),
}

impl WhereNamesDiffer {
    fn below(&self, plan: Arc<dyn ExecutionPlan>, options: &ConfigOptions) -> Result<Part> {
        let children = plan.children().into_iter();
        let children = children.map(|child| self.below(Arc::clone(child), options));
        let children = children.collect::<Result<Vec<_>>>()?;
        let whole = |part: &Part| matches!(part, Part::Whole(_));
        if names_differ(&plan) && children.iter().all(whole) {
            return Ok(Part::Whole(plan));
        }
        let children = children.into_iter().map(|part| match part {
            Part::Whole(part) => self.rule.optimize(part, options),
            Part::Done(part) => Ok(part),
        });
        let children = children.collect::<Result<Vec<_>>>()?;
        replace_children_if_necessary(plan, children).map(Part::Done)
    }
}

/// Has the operator no two columns of one name?
fn names_differ(plan: &Arc<dyn ExecutionPlan>) -> bool {
    let schema = plan.schema();
    let names: HashSet<_> = schema.fields().iter().map(|field| field.name()).collect();
    names.len() == schema.fields().len()
}
