//! Expressions over one string column: evaluated once per distinct value.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field};
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::physical_expr::expressions::{
    Column, DynamicFilterPhysicalExpr, IsNotNullExpr, IsNullExpr,
};
use datafusion::physical_expr::scalar_subquery::ScalarSubqueryExpr;
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use warpline_gpu::expr::{Expr, Node};

use super::{Scope, is_decimal, is_string};
use crate::reason::Reason;

/// `expr` as a lookup by dictionary code, when it reads one string column and nothing else.
///
/// The caller goes from the root down, so the first expression that qualifies is maximal; volatile
/// expressions were refused before.
pub(super) fn per_distinct(
    expr: &Arc<dyn PhysicalExpr>,
    scope: &mut Scope<'_>,
) -> Result<Option<Expr>, Reason> {
    let Some(index) = only_column(expr) else {
        return Ok(None);
    };
    let is_string_column = scope
        .schema
        .fields()
        .get(index)
        .is_some_and(|f| is_string(f.data_type()) && !reads_below_null(f));
    let data_type = expr.data_type(scope.schema)?;
    if !is_string_column || !is_result(&data_type) || is_null_test(expr) {
        return Ok(None);
    }
    let nullable = expr.nullable(scope.schema)?;
    let function = Arc::clone(expr)
        .transform_up(|e| {
            Ok(match e.downcast_ref::<Column>() {
                Some(column) => Transformed::yes(Arc::new(Column::new(column.name(), 0)) as _),
                None => Transformed::no(e),
            })
        })?
        .data;
    let column = scope.position(index);
    Ok(Some(Expr {
        node: Node::PerDistinct { column, function },
        data_type,
        nullable,
    }))
}

/// The one column that the expression reads, however often; `None` for none, several, or values
/// that only running operators or the schema know.
fn only_column(expr: &Arc<dyn PhysicalExpr>) -> Option<usize> {
    let mut found: Option<usize> = None;
    let mut single = true;
    // The closure never fails, so neither does the walk.
    let _ = expr.apply(|e| {
        if let Some(column) = e.downcast_ref::<Column>() {
            single &= *found.get_or_insert(column.index()) == column.index();
        }
        single &= !e.is::<DynamicFilterPhysicalExpr>()
            && !e.is::<ScalarSubqueryExpr>()
            && !looks_beyond(e);
        Ok(if single {
            TreeNodeRecursion::Continue
        } else {
            TreeNodeRecursion::Stop
        })
    });
    found.filter(|_| single)
}

/// Does the function see more than the values of its row, so that it may answer otherwise over the inputs of a lookup?
pub(crate) fn looks_beyond(expr: &Arc<dyn PhysicalExpr>) -> bool {
    let Some(function) = expr.downcast_ref::<ScalarFunctionExpr>() else {
        return false;
    };
    match function.name() {
        // They answer what their argument's field says beside its type.
        "arrow_field" | "arrow_metadata" => true,
        // It takes the lists of all rows as one.
        "map" => true,
        _ => false,
    }
}

/// DataFusion's functions of lists of one length read what lies below a NULL, which a lookup's input does not have.
pub(super) fn reads_below_null(field: &Field) -> bool {
    field.is_nullable() && matches!(field.data_type(), DataType::FixedSizeList(..))
}

/// Types that a lookup table holds.
pub(super) fn is_result(data_type: &DataType) -> bool {
    data_type.is_integer()
        || is_decimal(data_type)
        || is_string(data_type)
        || matches!(
            data_type,
            DataType::Boolean
                | DataType::Float32
                | DataType::Float64
                | DataType::Date32
                | DataType::Date64
                | DataType::Timestamp(..)
        )
}

/// `column IS [NOT] NULL` needs the validity bits alone.
fn is_null_test(expr: &Arc<dyn PhysicalExpr>) -> bool {
    let operand = match (
        expr.downcast_ref::<IsNullExpr>(),
        expr.downcast_ref::<IsNotNullExpr>(),
    ) {
        (Some(e), _) => e.arg(),
        (_, Some(e)) => e.arg(),
        _ => return false,
    };
    operand.is::<Column>()
}
