//! The parameters of a statement: `$1`, `$2` and so on.

use datafusion::arrow::datatypes::DataType;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::{Expr, LogicalPlan};

use crate::error::{Result, ServeError, state};

/// Most parameters of a statement; PostgreSQL's protocol counts them in 16 bits.
const MOST_PARAMETERS: usize = u16::MAX as usize;

/// The types of `$1`, `$2`, …, as far as the plan tells.
pub(crate) fn parameter_types(plan: &LogicalPlan) -> Result<Vec<Option<DataType>>> {
    let mut types: Vec<Option<DataType>> = Vec::new();
    let mut note = |id: &str, data_type: Option<DataType>| {
        let number = id.trim_start_matches('$').parse::<usize>().ok();
        let Some(at) = number.filter(|at| (1..=MOST_PARAMETERS).contains(at)) else {
            return Err(ServeError::new(
                state::SYNTAX_ERROR,
                format!("'{id}' is no parameter: they are $1, $2 and so on"),
            ));
        };
        if types.len() < at {
            types.resize(at, None);
        }
        if types[at - 1].is_none() {
            types[at - 1] = data_type;
        }
        Ok(())
    };
    for (id, data_type) in plan.get_parameter_types()? {
        note(&id, data_type)?;
    }
    // What is cast has the type to which it is cast.
    let mut casts = Vec::new();
    plan.apply_with_subqueries(|node| {
        // Numbers of rows are integers, which the planner does not say.
        if let LogicalPlan::Limit(limit) = node {
            for rows in [&limit.skip, &limit.fetch].into_iter().flatten() {
                if let Expr::Placeholder(placeholder) = rows.as_ref() {
                    casts.push((placeholder.id.clone(), DataType::Int64));
                }
            }
        }
        node.apply_expressions(|expression| {
            expression.apply(|expression| {
                if let Expr::Cast(cast) = expression
                    && let Expr::Placeholder(placeholder) = cast.expr.as_ref()
                {
                    casts.push((placeholder.id.clone(), cast.field.data_type().clone()));
                }
                Ok(TreeNodeRecursion::Continue)
            })
        })
    })?;
    for (id, data_type) in casts {
        note(&id, Some(data_type))?;
    }
    Ok(types)
}
