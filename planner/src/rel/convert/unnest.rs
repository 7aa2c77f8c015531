//! Lists taken apart: a join with the elements of all lists that a table's column has.
//!
//! `unnest` of a list that is a column of a table, or computed of one column of strings or lists, yields the rows that a join by
//! the list yields with a table of each list's elements ([`warpline_gpu::tables::TableSource::elements`]). A list of values of the row,
//! `make_array(a, b)`, is never made: each row is beside the numbers of its elements, which choose the value.

use std::sync::{Arc, LazyLock};

use arrow::array::{Array, Int32Array, RecordBatch};
use arrow::datatypes::DataType;
use datafusion::common::NullHandling;
use datafusion::datasource::memory::MemorySourceConfig;
use datafusion::error::Result as DataFusionResult;
use datafusion::functions_nested::make_array::MakeArray;
use datafusion::physical_expr::expressions::Literal;
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::unnest::UnnestExec;
use datafusion::scalar::ScalarValue;
use warpline_gpu::expr::{BinaryOp, Expr, Node};
use warpline_gpu::tables::TableSource;

use super::super::expr::binary;
use super::super::{Join, JoinKind, Rel, RelKind, RelRef, ScanTable};
use super::{Inputs, exchange, join};
use crate::reason::{Reason, refuse};

/// What a list is made of that a node takes apart.
pub(super) struct ListOfValues<'a> {
    /// The projection below the node, which makes the list.
    pub(super) projection: &'a ProjectionExec,
    /// Which of its columns is the list.
    column: usize,
    /// The values of the list.
    values: Vec<Arc<dyn PhysicalExpr>>,
}

/// Takes the node a list of values of each row apart?
pub(super) fn list_of_values<'a>(
    plan: &'a Arc<dyn ExecutionPlan>,
    inputs: &Inputs,
) -> Option<ListOfValues<'a>> {
    let exec = plan.downcast_ref::<UnnestExec>()?;
    let ([list], []) = (exec.list_column_indices(), exec.struct_column_indices()) else {
        return None;
    };
    let column = list.index_in_input_schema;
    let [mut below] = plan.children()[..] else {
        return None;
    };
    while let Some(input) = exchange(below).filter(|_| !inputs.contains(below)) {
        below = input;
    }
    let projection = below.downcast_ref::<ProjectionExec>()?;
    let values = values_of(&projection.expr().get(column)?.expr)?;
    let few = (1..=MOST_VALUES as usize).contains(&values.len());
    (list.depth == 1 && few && !inputs.contains(below)).then_some(ListOfValues {
        projection,
        column,
        values,
    })
}

/// The values that a list is made of, where that is told.
fn values_of(list: &Arc<dyn PhysicalExpr>) -> Option<Vec<Arc<dyn PhysicalExpr>>> {
    if let Some(call) = list.downcast_ref::<ScalarFunctionExpr>() {
        let is_list = call.fun().inner().is::<MakeArray>();
        return is_list.then(|| call.args().to_vec());
    }
    let ScalarValue::List(list) = list.downcast_ref::<Literal>()?.value() else {
        return None;
    };
    if list.is_null(0) {
        return None;
    }
    let values = list.value(0);
    let value = |at| {
        let value = ScalarValue::try_from_array(&values, at).ok()?;
        Some(Arc::new(Literal::new(value)) as Arc<dyn PhysicalExpr>)
    };
    (0..values.len()).map(value).collect()
}

impl ListOfValues<'_> {
    /// What is computed of the rows below the projection: its other columns, then the values.
    pub(super) fn expressions(&self) -> Vec<Arc<dyn PhysicalExpr>> {
        let columns = self.projection.expr().iter().enumerate();
        let others = columns.filter(|(at, _)| *at != self.column);
        let others = others.map(|(_, of)| &of.expr);
        others.chain(&self.values).cloned().collect()
    }

    /// The rows of the node, which yields columns of `names`. `exprs` are the expressions over `input`.
    pub(super) fn rows(
        &self,
        input: RelRef,
        exprs: Vec<Expr>,
        names: impl Iterator<Item = String>,
    ) -> Result<RelRef, Reason> {
        let mut others = exprs;
        let values = others.split_off(others.len() - self.values.len());
        let data_type = values[0].data_type.clone();
        if values.iter().any(|value| value.data_type != data_type) {
            return refuse("a list of values of several types is taken apart on the CPU");
        }
        let number = input.columns.len();
        let rows = join::cross(&input, &numbers(values.len())?);
        let number = rows.column(number);
        let nullable = values.iter().any(|value| value.nullable);
        let mut branches = Vec::with_capacity(values.len());
        for (value, at) in values.into_iter().zip(0_i32..) {
            let at = Expr::literal(ScalarValue::from(at));
            let is_this = binary(BinaryOp::Eq, number.clone(), at, DataType::Boolean);
            branches.push((is_this, value));
        }
        let otherwise = branches.pop().map(|(_, last)| Box::new(last));
        let value = match (branches.is_empty(), otherwise) {
            (true, Some(only)) => *only,
            (_, otherwise) => Expr {
                node: Node::Case {
                    branches,
                    otherwise,
                },
                data_type,
                nullable,
            },
        };
        let mut columns = others;
        columns.insert(self.column, value);
        Ok(Rel::project(rows, columns.into_iter().zip(names).collect()))
    }
}

/// Most values of a list that is made of values of a row.
const MOST_VALUES: i32 = 64;

/// A table of the numbers below `end`.
fn numbers(end: usize) -> Result<RelRef, Reason> {
    /// One for all, so that its column is there the next time.
    static ALL: LazyLock<DataFusionResult<Arc<dyn ExecutionPlan>>> = LazyLock::new(|| {
        let numbers = Arc::new(Int32Array::from_iter_values(0..MOST_VALUES));
        let numbers = RecordBatch::try_from_iter([("number", numbers as _)])?;
        let schema = numbers.schema();
        let all = MemorySourceConfig::try_new_exec(&[vec![numbers]], schema, None)?;
        Ok(all)
    });
    let all = ALL
        .as_ref()
        .map_err(|error| Reason::new(error.to_string()))?;
    let all = TableSource::analyze(all).map_err(|error| Reason::new(error.to_string()))?;
    let table = ScanTable {
        source: all.source,
        rows: Some(MOST_VALUES as usize),
    };
    let all = Rel::scan(Arc::new(table), vec![0]);
    let end = Expr::literal(ScalarValue::from(end as i32));
    let below = binary(BinaryOp::Lt, all.column(0), end, DataType::Boolean);
    Ok(Rel::filter(all, vec![below]))
}

/// The rows of `input` with the elements of one of its columns in the place of its lists.
pub(super) fn unnest(exec: &UnnestExec, input: &RelRef) -> Result<RelRef, Reason> {
    let ([list], []) = (exec.list_column_indices(), exec.struct_column_indices()) else {
        return refuse("more than one list is taken apart on the CPU");
    };
    if list.depth != 1 {
        return refuse("lists within lists are taken apart on the CPU");
    }
    let kind = match exec.options().null_handling {
        NullHandling::Drop => JoinKind::Inner,
        NullHandling::PreserveAndExpandEmpty => JoinKind::Left,
        NullHandling::Preserve => return refuse("a row for each list that is NULL is the CPU's"),
    };
    let column = list.index_in_input_schema;
    let Some(elements) = elements(input, column) else {
        return refuse("lists that are no column of a table are taken apart on the CPU");
    };
    let width = input.columns.len();
    let elements = Rel::scan(Arc::new(elements), vec![0, 1]);
    let joined = Rel::join(Join {
        on: vec![(input.column(column), elements.column(0))],
        left: Arc::clone(input),
        right: elements,
        kind,
        residual: vec![],
        null_equal: false,
        build: None,
    });
    let in_place = |at: usize| if at == column { width + 1 } else { at };
    let columns = (0..width).map(in_place);
    let schema = exec.schema();
    let names = schema.fields().iter().map(|field| field.name().clone());
    let columns = columns.map(|at| joined.column(at)).zip(names).collect();
    Ok(Rel::project(joined, columns))
}

/// The elements of the lists that a column of `rel` has.
fn elements(rel: &RelRef, column: usize) -> Option<ScanTable> {
    let (source, rows, column, list) = origin(rel, column)?;
    Some(ScanTable {
        source: source.elements(column, list)?,
        rows,
    })
}

/// The table, about how many rows it has, and the column of it that a column of `rel` is computed of, and by what.
type Origin<'a> = (
    &'a TableSource,
    Option<usize>,
    usize,
    Option<Arc<dyn PhysicalExpr>>,
);

/// Where the values of a column come from: all of them are made of values of one column of a table, or NULL.
fn origin(rel: &RelRef, column: usize) -> Option<Origin<'_>> {
    match &rel.kind {
        RelKind::Scan { table, columns } => {
            let column = *columns.get(column)?;
            Some((&table.source, table.rows, column, None))
        }
        RelKind::Filter { input, .. } | RelKind::Sort { input, .. } => origin(input, column),
        RelKind::Project { input, exprs } => match &exprs.get(column)?.node {
            Node::Column(at) => origin(input, *at),
            Node::PerDistinct { column, function } => match origin(input, *column)? {
                (source, rows, column, None) => {
                    Some((source, rows, column, Some(Arc::clone(function))))
                }
                _ => None,
            },
            _ => None,
        },
        RelKind::Join(join) => match column.checked_sub(join.left.columns.len()) {
            None => origin(&join.left, column),
            Some(column) if join.kind.yields_right() => origin(&join.right, column),
            Some(_) => None,
        },
        RelKind::Scalar { input, .. } | RelKind::Window { input, .. } => {
            (column < input.columns.len()).then(|| origin(input, column))?
        }
        RelKind::Aggregate { input, aggregate } => match &aggregate.keys.get(column)?.node {
            Node::Column(at) => origin(input, *at),
            _ => None,
        },
        RelKind::Union(_) | RelKind::One => None,
    }
}
