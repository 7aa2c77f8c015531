//! Expressions that kernels lack, over values of which there are few: evaluated once per combination of them.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use arrow::datatypes::{DataType, Field, Schema, TimeUnit};
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::functions::datetime::date_part::DatePartFunc;
use datafusion::logical_expr::ScalarUDF;
use datafusion::physical_expr::expressions::{BinaryExpr, Column, DynamicFilterPhysicalExpr};
use datafusion::physical_expr::scalar_subquery::ScalarSubqueryExpr;
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use warpline_gpu::expr::{Expr, Node};

use super::spans::{self, Spans, cut_to_formats};
use super::strings::{is_result, looks_beyond, reads_below_null};
use super::{Scope, is_string, node};
use crate::interval_product::interval_product;
use crate::reason::Reason;

/// Most inputs of one expression.
const MOST_INPUTS: usize = 8;

/// `expr`, which no kernel computes, as a lookup by its inputs, when each of them may have few values. How many there are
/// is known when the columns are on the device.
///
/// Inputs are conditions, strings, calendar fields and times cut to spans as far as kernels compute them, since these have few values
/// whatever they are made of, and columns elsewhere.
pub(super) fn per_combination(
    expr: &Arc<dyn PhysicalExpr>,
    scope: &mut Scope<'_>,
) -> Result<Option<Expr>, Reason> {
    let data_type = expr.data_type(scope.schema)?;
    let sums = expr.downcast_ref::<BinaryExpr>();
    let sums = sums.is_some_and(|e| data_type.is_numeric() && e.op().is_numerical_operators());
    if sums || !is_result(&data_type) || !scope.may_combine() {
        return Ok(None);
    }
    let cut = &cut_to_formats(expr, scope.schema)?;
    let mut inputs: Vec<(Arc<dyn PhysicalExpr>, Expr, Option<Spans>)> = Vec::new();
    let mut possible = true;
    let function = Arc::clone(cut).transform_down(|e| {
        possible &= !e.is::<DynamicFilterPhysicalExpr>()
            && !e.is::<ScalarSubqueryExpr>()
            && !makes_any_length(&e)
            && !looks_beyond(&e)
            && !is_of_others(&e);
        if !possible || !reads_columns(&e) {
            return Ok(Transformed::new(e, false, TreeNodeRecursion::Jump));
        }
        let place = match inputs.iter().position(|(known, ..)| known.eq(&e)) {
            Some(place) => place,
            None => {
                let Some((input, spans)) = input(&e, cut, scope) else {
                    possible &= !e.is::<Column>();
                    return Ok(Transformed::no(e));
                };
                inputs.push((Arc::clone(&e), input, spans));
                inputs.len() - 1
            }
        };
        let column = Column::new(&format!("input{place}"), place);
        let value = match &inputs[place].2 {
            Some(spans) => spans.begin(column),
            None => Arc::new(column) as _,
        };
        Ok(Transformed::new(value, true, TreeNodeRecursion::Jump))
    })?;
    if !possible || inputs.is_empty() || inputs.len() > MOST_INPUTS {
        return Ok(None);
    }
    let nullable = expr.nullable(scope.schema)?;
    let inputs: Vec<Expr> = inputs.into_iter().map(|(_, input, _)| input).collect();
    // What does not take its operands as columns finds out here.
    let fields: Vec<Field> = inputs
        .iter()
        .enumerate()
        .map(|(i, e)| Field::new(format!("input{i}"), e.data_type.clone(), true))
        .collect();
    let function = function.data;
    if function.data_type(&Schema::new(fields)).ok().as_ref() != Some(&data_type) {
        return Ok(None);
    }
    Ok(Some(Expr {
        node: Node::PerCombination { inputs, function },
        data_type,
        nullable,
    }))
}

/// `e` as an input of `whole`, and how it is had from that where it is not the same.
fn input(
    e: &Arc<dyn PhysicalExpr>,
    whole: &Arc<dyn PhysicalExpr>,
    scope: &mut Scope<'_>,
) -> Option<(Expr, Option<Spans>)> {
    let data_type = e.data_type(scope.schema).ok()?;
    if let Some(column) = e.downcast_ref::<Column>() {
        let field = scope.schema.fields().get(column.index())?;
        let few = may_be_few(&data_type) && !reads_below_null(field);
        let input = node(e, scope).ok().filter(|_| few)?;
        return Some((input, None));
    }
    if let Some((number, spans)) = spans::number(e, scope) {
        return Some((number, Some(spans)));
    }
    let field = e
        .downcast_ref::<ScalarFunctionExpr>()
        .is_some_and(|function| function.fun().inner().is::<DatePartFunc>());
    let few = field || data_type == DataType::Boolean || is_string(&data_type);
    if !few || Arc::ptr_eq(e, whole) {
        return None;
    }
    Some((node(e, scope).ok()?, None))
}

/// May a column of the type have few values? Strings do where they repeat, integers where their range is small.
fn may_be_few(data_type: &DataType) -> bool {
    match data_type {
        DataType::Boolean
        | DataType::Date32
        | DataType::Time32(TimeUnit::Second)
        | DataType::Timestamp(TimeUnit::Second, _) => true,
        DataType::Decimal32(precision, _)
        | DataType::Decimal64(precision, _)
        | DataType::Decimal128(precision, _) => *precision <= 9,
        other => other.is_integer() || is_string(other),
    }
}

/// Does the function make strings as long as a column says? Those of combinations that no row has may be too long for memory.
pub(crate) fn makes_any_length(expr: &Arc<dyn PhysicalExpr>) -> bool {
    expr.downcast_ref::<ScalarFunctionExpr>()
        .is_some_and(|function| {
            matches!(function.name(), "repeat" | "lpad" | "rpad")
                && function.args().get(1).is_some_and(reads_columns)
        })
}

/// Functions of lists that look at nothing but the list of the row at hand. Others may take the lists of many rows as one, and be wrong
/// for all where those of a combination that no row has do not go together.
const ROW_BY_ROW: [&str; 18] = [
    "array_append",
    "array_concat",
    "array_element",
    "array_except",
    "array_has",
    "array_has_all",
    "array_has_any",
    "array_intersect",
    "array_position",
    "array_positions",
    "array_prepend",
    "array_remove",
    "array_remove_all",
    "array_replace",
    "array_slice",
    "array_to_string",
    "array_union",
    "make_array",
];

/// Of what DataFusion's own functions are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BuiltIn {
    /// Simple values.
    Values,
    /// Lists and maps.
    Lists,
}

/// What a function of DataFusion's own, or of ours, is of; `None` for one of others, whatever its name.
pub(crate) fn built_in(function: &ScalarUDF) -> Option<BuiltIn> {
    type Known = HashMap<String, (Arc<ScalarUDF>, BuiltIn)>;
    static OWN: LazyLock<Known> = LazyLock::new(|| {
        let named = |function: Arc<ScalarUDF>, of| (function.name().to_string(), (function, of));
        let own = datafusion::functions::all_default_functions().into_iter();
        let of_lists = datafusion::functions_nested::all_default_nested_functions().into_iter();
        own.map(|function| named(function, BuiltIn::Values))
            .chain(of_lists.map(|function| named(function, BuiltIn::Lists)))
            .chain([named(interval_product(), BuiltIn::Values)])
            .collect()
    });
    let (own, of) = OWN.get(function.name())?;
    (**own == *function).then_some(*of)
}

/// A function that is not DataFusion's own: what it costs or does for values that no row has, nobody knows.
fn is_of_others(expr: &Arc<dyn PhysicalExpr>) -> bool {
    let function = expr.downcast_ref::<ScalarFunctionExpr>();
    function.is_some_and(|function| match built_in(function.fun()) {
        None => true,
        Some(BuiltIn::Values) => false,
        Some(BuiltIn::Lists) => !ROW_BY_ROW.contains(&function.fun().name()),
    })
}

fn reads_columns(expr: &Arc<dyn PhysicalExpr>) -> bool {
    // The closure never fails, so neither does the search.
    expr.exists(|e| Ok(e.is::<Column>())).unwrap_or(true)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use arrow::array::{ArrayRef, Int64Array, ListArray, RecordBatch, StringArray};
    use arrow::compute::{concat_batches, take_record_batch};
    use arrow::datatypes::Int64Type;
    use datafusion::prelude::SessionContext;

    use super::*;

    fn call(function: &str) -> &'static str {
        match function {
            "array_append" => "array_append(l, n)",
            "array_concat" => "array_concat(l, m)",
            "array_element" => "array_element(l, n)",
            "array_except" => "array_except(l, m)",
            "array_has" => "array_has(l, n)",
            "array_has_all" => "array_has_all(l, m)",
            "array_has_any" => "array_has_any(l, m)",
            "array_intersect" => "array_intersect(l, m)",
            "array_position" => "array_position(l, n)",
            "array_positions" => "array_positions(l, n)",
            "array_prepend" => "array_prepend(n, l)",
            "array_remove" => "array_remove(l, n)",
            "array_remove_all" => "array_remove_all(l, n)",
            "array_replace" => "array_replace(l, n, 7)",
            "array_slice" => "array_slice(l, n, n + 1)",
            "array_to_string" => "array_to_string(l, s)",
            "array_union" => "array_union(l, m)",
            "make_array" => "make_array(n, n + 1)",
            other => panic!("no call of {other}"),
        }
    }

    /// Each function answers for a row alone, and for rows in any order, what it answers for it among others.
    #[tokio::test]
    async fn functions_of_lists_see_one_row() {
        let some = |list: &[i64]| Some(list.iter().copied().map(Some).collect::<Vec<_>>());
        let lists = [
            some(&[1, 2, 3, 2]),
            None,
            some(&[]),
            Some(vec![None, Some(2)]),
            some(&[2]),
            some(&[5, 4, 3, 2, 1]),
        ];
        let others = [
            some(&[2, 3]),
            some(&[1]),
            some(&[2]),
            None,
            some(&[]),
            some(&[9, 1]),
        ];
        let columns: [(&str, ArrayRef); 4] = [
            (
                "l",
                Arc::new(ListArray::from_iter_primitive::<Int64Type, _, _>(lists)),
            ),
            (
                "m",
                Arc::new(ListArray::from_iter_primitive::<Int64Type, _, _>(others)),
            ),
            (
                "n",
                Arc::new(Int64Array::from_iter([
                    Some(2),
                    Some(1),
                    None,
                    Some(2),
                    Some(-1),
                    Some(3),
                ])),
            ),
            (
                "s",
                Arc::new(StringArray::from_iter([
                    Some(","),
                    Some(""),
                    Some("x"),
                    None,
                    Some("-"),
                    Some("ß"),
                ])),
            ),
        ];
        let rows = RecordBatch::try_from_iter(columns).unwrap();
        for function in ROW_BY_ROW {
            let answer = async |rows: RecordBatch| {
                let context = SessionContext::new();
                context.register_batch("t", rows.clone()).unwrap();
                let query = format!("SELECT {} FROM t", call(function));
                let answer = context.sql(&query).await.unwrap().collect().await.unwrap();
                concat_batches(&answer[0].schema(), &answer).unwrap()
            };
            let all = answer(rows.clone()).await;
            for order in [
                vec![5, 4, 3, 2, 1, 0],
                vec![3, 3, 0],
                vec![0],
                vec![1],
                vec![2],
                vec![4],
            ] {
                let order = arrow::array::UInt32Array::from(order);
                let some = answer(take_record_batch(&rows, &order).unwrap()).await;
                let expected = take_record_batch(&all, &order).unwrap();
                assert_eq!(some, expected, "{function} over rows {order:?}");
            }
        }
    }
}
