//! Values around and rows below in one plan, and windows over its order.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::Column;
use datafusion::logical_expr::expr::{Sort as SortExpr, WindowFunction, WindowFunctionParams};
use datafusion::logical_expr::{
    Expr, ExprSchemable, JoinType, LogicalPlan, Projection, Union, Window, WindowFrame,
    WindowFrameBound, WindowFrameUnits, WindowFunctionDefinition, lit,
};
use datafusion::scalar::ScalarValue;

use super::super::domain::fresh;
use super::super::push::{Push, Pushed, joined};
use super::super::{Made, Stop, columns, named};
use super::meeting::{Meeting, Range};

/// Values around and rows below in one plan.
pub(super) struct Merged {
    pub(super) plan: LogicalPlan,
    /// The outer values; NULL in rows below.
    pub(super) values: Vec<Column>,
    /// What both have of the keys.
    pub(super) keys: Vec<Column>,
    /// What they are ordered by.
    pub(super) order: Column,
    /// 0 for a row below, 1 for a value around.
    pub(super) side: Column,
    /// What was asked for of the rows below; NULL in values around.
    pub(super) payload: Vec<Column>,
}

/// The outer values in a plan, and whether none of them is NULL.
pub(super) struct Values {
    pub(super) columns: Vec<Column>,
    pub(super) known: bool,
}

impl Push<'_> {
    /// The values around and the rows below, these with `payload`, of all keys that both have.
    pub(super) fn merged(
        &self,
        meeting: &Meeting,
        range: &Range,
        payload: Vec<Expr>,
    ) -> Made<Merged> {
        let (domain, values) = self.outer.domain(self.names)?;
        let mut around = Vec::with_capacity(meeting.keys.len() + 1);
        for (_, key) in &meeting.keys {
            around.push(self.bound(key, &values)?);
        }
        around.push(self.bound(&range.around, &values)?);

        // Few values around ask few of the rows: those of other keys need no place in the order.
        let mut rows = meeting.rows.clone();
        if !meeting.keys.is_empty()
            && let Some((asking, values)) = self.outer.again(self.names)?
        {
            let asked = fresh(self.names, meeting.keys.len());
            let mut keys = Vec::with_capacity(asked.len());
            for ((_, key), name) in meeting.keys.iter().zip(&asked) {
                keys.push(named(self.bound(key, &values)?, name));
            }
            let keys = Projection::try_new(keys, Arc::new(asking))?;
            let keys = LogicalPlan::Projection(keys);
            let on = meeting.keys.iter().map(|(below, _)| below.clone());
            let on = on.zip(columns(&asked)).collect();
            rows = joined(Arc::new(rows), Arc::new(keys), JoinType::LeftSemi, on, None)?;
        }

        let nothing = |data_type: &DataType| -> Made<Expr> {
            Ok(Expr::Literal(ScalarValue::try_from(data_type)?, None))
        };
        let mut of_values = columns(&values);
        of_values.extend(around);
        of_values.push(lit(1_i32));
        let mut of_rows = Vec::with_capacity(of_values.len() + payload.len());
        for place in 0..values.len() {
            of_rows.push(nothing(self.outer.data_type(place))?);
        }
        of_rows.extend(meeting.keys.iter().map(|(below, _)| below.clone()));
        of_rows.push(range.below.clone());
        of_rows.push(lit(0_i32));
        for expr in payload {
            of_values.push(nothing(&expr.get_type(rows.schema())?)?);
            of_rows.push(expr);
        }
        let names = fresh(self.names, of_rows.len());
        let side = |exprs: Vec<Expr>, input: LogicalPlan| -> Made<Arc<LogicalPlan>> {
            let exprs = exprs.into_iter().zip(&names);
            let exprs = exprs.map(|(expr, name)| named(expr, name)).collect();
            let projection = Projection::try_new(exprs, Arc::new(input))?;
            Ok(Arc::new(LogicalPlan::Projection(projection)))
        };
        let inputs = vec![side(of_values, domain)?, side(of_rows, rows)?];
        let plan = LogicalPlan::Union(Union::try_new_with_loose_types(inputs)?);
        let mut all = plan.schema().columns().into_iter();
        Ok(Merged {
            values: all.by_ref().take(values.len()).collect(),
            keys: all.by_ref().take(meeting.keys.len()).collect(),
            order: all.next().ok_or(Stop::Not)?,
            side: all.next().ok_or(Stop::Not)?,
            payload: all.collect(),
            plan,
        })
    }

    /// The merged rows with what windows have of them, under these names, and these columns.
    pub(super) fn windowed(
        &self,
        merged: &Merged,
        calls: Vec<WindowFunction>,
        names: Vec<String>,
    ) -> Made<(LogicalPlan, Vec<Column>)> {
        let calls = calls.into_iter().zip(&names);
        let calls = calls.map(|(call, name)| Expr::WindowFunction(Box::new(call)).alias(name));
        let window = Window::try_new(calls.collect(), Arc::new(merged.plan.clone()))?;
        let results = names.into_iter().map(Column::new_unqualified).collect();
        Ok((LogicalPlan::Window(window), results))
    }

    /// The outputs beside the values that they are of.
    pub(super) fn answered(
        &self,
        of: &Values,
        plan: LogicalPlan,
        outputs: Vec<Expr>,
    ) -> Made<Pushed> {
        let values = fresh(self.names, of.columns.len());
        let mut exprs = outputs;
        let beside = columns(&of.columns).into_iter().zip(&values);
        exprs.extend(beside.map(|(value, name)| named(value, name)));
        let projection = Projection::try_new(exprs, Arc::new(plan))?;
        Ok(Pushed {
            plan: LogicalPlan::Projection(projection),
            values,
            known: of.known,
        })
    }
}

impl Merged {
    pub(super) fn is_around(&self) -> Expr {
        Expr::Column(self.side.clone()).eq(lit(1_i32))
    }

    /// A function of the rows that `range` chooses of each value around: those up to it in the order.
    pub(super) fn before(
        &self,
        function: WindowFunctionDefinition,
        args: Vec<Expr>,
        range: &Range,
        ties: Vec<SortExpr>,
    ) -> WindowFunction {
        let order = Expr::Column(self.order.clone()).sort(range.is_up_to(), false);
        let side = Expr::Column(self.side.clone()).sort(range.is_inclusive(), false);
        let mut order_by = vec![order, side];
        order_by.extend(ties);
        WindowFunction {
            fun: function,
            params: WindowFunctionParams {
                args,
                partition_by: columns(&self.keys),
                order_by,
                window_frame: WindowFrame::new_bounds(
                    WindowFrameUnits::Rows,
                    WindowFrameBound::Preceding(ScalarValue::UInt64(None)),
                    WindowFrameBound::CurrentRow,
                ),
                filter: None,
                null_treatment: None,
                distinct: false,
            },
        }
    }
}
