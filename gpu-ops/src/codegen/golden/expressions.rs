//! Expressions, aggregates and probes of golden kernels.

use arrow::datatypes::{DataType, Field, Schema};
use datafusion::common::DFSchema;
use datafusion::prelude::SessionContext;
use datafusion::scalar::ScalarValue;

use super::table::{ID, PRICE, WEIGHT, schema};
use crate::expr::{BinaryOp, Expr, Node};
use crate::graph::{Probe, ProbeKind, Stage};
use crate::pipeline::{AggregateCall, AggregateFunction};

/// Column of the table.
pub(super) fn column(index: usize) -> Expr {
    let schema = schema();
    let field = schema.field(index);
    Expr::column(index, field.data_type().clone(), field.is_nullable())
}

/// Column of a later scope that is like a column of the table.
pub(super) fn like(place: usize, index: usize, nullable: bool) -> Expr {
    Expr::column(place, column(index).data_type, nullable)
}

pub(super) fn binary(op: BinaryOp, left: Expr, right: Expr, data_type: DataType) -> Expr {
    Expr {
        nullable: left.nullable || right.nullable,
        node: Node::Binary {
            op,
            left: Box::new(left),
            right: Box::new(right),
        },
        data_type,
    }
}

pub(super) fn below(index: usize, value: ScalarValue) -> Expr {
    let literal = Expr::literal(value);
    binary(BinaryOp::Lt, column(index), literal, DataType::Boolean)
}

pub(super) fn small(limit: i32) -> Stage {
    Stage::Filter(vec![below(ID, ScalarValue::Int32(Some(limit)))])
}

/// A function of one string column.
pub(super) fn text(index: usize, sql: &str) -> Expr {
    let field = Field::new("s", DataType::Utf8View, true);
    let schema = DFSchema::try_from(Schema::new(vec![field])).unwrap();
    let context = SessionContext::new();
    let expr = context.parse_sql_expr(sql, &schema).unwrap();
    let function = context.create_physical_expr(expr, &schema).unwrap();
    Expr {
        data_type: function.data_type(schema.as_arrow()).unwrap(),
        nullable: true,
        node: Node::PerDistinct {
            column: index,
            function,
        },
    }
}

pub(super) fn call(
    function: AggregateFunction,
    argument: Option<Expr>,
    return_type: DataType,
) -> AggregateCall {
    AggregateCall {
        function,
        argument,
        filter: None,
        distinct: false,
        return_type,
        name: function.name().into(),
    }
}

pub(super) fn count() -> AggregateCall {
    call(AggregateFunction::Count, None, DataType::Int64)
}

pub(super) fn sum(argument: Expr, return_type: DataType) -> AggregateCall {
    call(AggregateFunction::Sum, Some(argument), return_type)
}

pub(super) fn sum_of_prices() -> AggregateCall {
    sum(column(PRICE), DataType::Decimal128(22, 2))
}

pub(super) fn least_weight() -> AggregateCall {
    let weight = Some(column(WEIGHT));
    call(AggregateFunction::Min, weight, DataType::Float64)
}

pub(super) fn probe(index: usize, kind: ProbeKind, keys: Vec<Expr>) -> Probe {
    Probe {
        band: None,
        index,
        keys,
        kind,
        residual: vec![],
        marks: vec![],
    }
}
