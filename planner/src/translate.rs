//! Translation of DataFusion's physical expressions to device expressions, or the reason why not.
//!
//! Types and coercions are DataFusion's; nothing is re-derived. An expression over exactly one
//! string column becomes a [`Node::PerDistinct`], which DataFusion itself evaluates once per
//! distinct value, so every deterministic string function is supported. What kernels do not compute
//! over other columns that may have few values becomes a [`Node::PerCombination`].

mod arithmetic;
mod calendar;
mod cast;
mod combination;
mod conditional;
mod fields;
mod function;
mod math;
mod spans;
mod strings;

use std::sync::Arc;

use arrow::datatypes::{DataType, Schema};
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::physical_expr::expressions::{
    BinaryExpr, CaseExpr, CastExpr, Column, DynamicFilterPhysicalExpr, InListExpr, IsNotNullExpr,
    IsNullExpr, Literal, NegativeExpr, NotExpr, TryCastExpr,
};
use datafusion::physical_expr::scalar_subquery::ScalarSubqueryExpr;
use datafusion::physical_expr::{PhysicalExpr, PhysicalExprSimplifier, ScalarFunctionExpr};
use datafusion::physical_expr_common::physical_expr::{fmt_sql, is_volatile};
use warpline_gpu::column::{is_opaque, is_text};
use warpline_gpu::expr::{Expr, Node};
use warpline_gpu::graph::list_of;

use crate::reason::{Reason, refuse};

pub(crate) use calendar::{is_utc, nanoseconds_of};
pub(crate) use combination::{built_in, makes_any_length};
pub use fields::FieldColumns;
pub(crate) use fields::{Access, with_columns};
pub(crate) use strings::looks_beyond;

/// Most nodes of one expression: substituting projections can multiply them.
pub(crate) const MAX_NODES: usize = 4096;

/// The columns of a scan and which of them a pipeline reads.
#[derive(Debug)]
pub struct Scope<'a> {
    schema: &'a Schema,
    used: Vec<usize>,
    whole: bool,
    /// Expressions that may still be tried as lookups by combination.
    combining: usize,
    /// Columns of the schema that are fields of structs, or computed beforehand.
    fields: FieldColumns,
}

/// Most expressions that are tried as lookups by combination, with all that is below them, for one scope.
const MOST_COMBINED: usize = 256;

impl<'a> Scope<'a> {
    /// Nothing of `schema` is read yet.
    pub fn new(schema: &'a Schema) -> Self {
        Self {
            schema,
            used: Vec::new(),
            whole: false,
            combining: MOST_COMBINED,
            fields: FieldColumns::default(),
        }
    }

    /// All columns of `schema` in their places.
    pub fn whole(schema: &'a Schema) -> Self {
        Self {
            schema,
            used: (0..schema.fields().len()).collect(),
            whole: true,
            combining: MOST_COMBINED,
            fields: FieldColumns::default(),
        }
    }

    /// The same, in which lookups by combination are tried or not.
    #[must_use]
    pub fn combining(self, combines: bool) -> Self {
        Self {
            combining: if combines { MOST_COMBINED } else { 0 },
            ..self
        }
    }

    /// The same, some of whose columns are fields of structs, or computed beforehand.
    #[must_use]
    pub fn with_fields(self, fields: FieldColumns) -> Self {
        Self { fields, ..self }
    }

    /// Column `i` of the pipeline's scope is column `used()[i]` of the schema.
    pub fn used(&self) -> &[usize] {
        &self.used
    }

    /// Is another lookup by combination to be tried?
    fn may_combine(&mut self) -> bool {
        let left = self.combining > 0;
        self.combining = self.combining.saturating_sub(1);
        left
    }

    /// Position in the pipeline's scope of a column of the schema.
    fn position(&mut self, index: usize) -> usize {
        if self.whole {
            return index;
        }
        self.used
            .iter()
            .position(|used| *used == index)
            .unwrap_or_else(|| {
                self.used.push(index);
                self.used.len() - 1
            })
    }
}

/// Translate `expr`, whose columns are those of the scope's schema.
///
/// # Errors
/// The [`Reason`] why the expression stays on the CPU.
pub fn translate(expr: &Arc<dyn PhysicalExpr>, scope: &mut Scope<'_>) -> Result<Expr, Reason> {
    let nodes = count_nodes(expr);
    if nodes > MAX_NODES {
        return refuse(format!(
            "an expression of {nodes} nodes is too large for a kernel"
        ));
    }
    if is_volatile(expr) {
        return refuse(format!("{} is volatile", short(expr)));
    }
    reads_no_list(expr, scope.schema)?;
    let expr = &scope.fields.replaced(expr)?;
    // Folds constants and removes casts around columns that are compared with constants.
    let simple = PhysicalExprSimplifier::new(scope.schema).simplify(Arc::clone(expr))?;
    node(&simple, scope)
}

/// Lists are there at the end: nothing is computed of them on the device. Said before DataFusion looks at the types of what refers to them.
fn reads_no_list(expr: &Arc<dyn PhysicalExpr>, schema: &Schema) -> Result<(), Reason> {
    let is_list = |column: &Column| {
        let field = schema.fields().get(column.index());
        field.is_some_and(|field| list_of(field.data_type()).is_some())
    };
    let mut list = None;
    expr.apply(|e| {
        list = e
            .downcast_ref::<Column>()
            .filter(|column| is_list(column))
            .cloned();
        Ok(match list {
            Some(_) => TreeNodeRecursion::Stop,
            None => TreeNodeRecursion::Continue,
        })
    })?;
    match list {
        None => Ok(()),
        Some(column) => refuse(format!(
            "column {} is put together at the end: nothing is computed of it on the device",
            column.name()
        )),
    }
}

/// Translate one node of a simplified expression.
fn node(expr: &Arc<dyn PhysicalExpr>, scope: &mut Scope<'_>) -> Result<Expr, Reason> {
    if let Some(column) = expr.downcast_ref::<Column>() {
        return column_reference(column, scope);
    }
    if let Some(literal) = expr.downcast_ref::<Literal>() {
        return literal_value(literal);
    }
    if let Some(lookup) = strings::per_distinct(expr, scope)? {
        return Ok(lookup);
    }
    match computed(expr, scope) {
        Err(reason) => combination::per_combination(expr, scope)?.ok_or(reason),
        computed => computed,
    }
}

/// Translate one node that kernels compute.
fn computed(expr: &Arc<dyn PhysicalExpr>, scope: &mut Scope<'_>) -> Result<Expr, Reason> {
    let data_type = expr.data_type(scope.schema)?;
    let nullable = expr.nullable(scope.schema)?;
    let node = if let Some(e) = expr.downcast_ref::<BinaryExpr>() {
        arithmetic::binary(e, &data_type, scope)?
    } else if let Some(e) = expr.downcast_ref::<NotExpr>() {
        Node::Not(boxed(e.arg(), scope)?)
    } else if let Some(e) = expr.downcast_ref::<NegativeExpr>() {
        arithmetic::negate(e, scope)?
    } else if let Some(e) = expr.downcast_ref::<IsNullExpr>() {
        Node::IsNull(boxed(e.arg(), scope)?)
    } else if let Some(e) = expr.downcast_ref::<IsNotNullExpr>() {
        Node::IsNotNull(boxed(e.arg(), scope)?)
    } else if let Some(e) = expr.downcast_ref::<CastExpr>() {
        cast::cast(e.expr(), &data_type, e.cast_options().safe, scope)?
    } else if let Some(e) = expr.downcast_ref::<TryCastExpr>() {
        cast::cast(e.expr(), &data_type, true, scope)?
    } else if let Some(e) = expr.downcast_ref::<CaseExpr>() {
        conditional::case(e, &data_type, scope)?
    } else if let Some(e) = expr.downcast_ref::<InListExpr>() {
        conditional::in_list(e, scope)?
    } else if let Some(e) = expr.downcast_ref::<ScalarFunctionExpr>() {
        function::scalar_function(e, &data_type, scope)?
    } else if expr.is::<DynamicFilterPhysicalExpr>() {
        return refuse("a dynamic filter is applied by a FilterExec");
    } else if expr.is::<ScalarSubqueryExpr>() {
        return refuse("scalar subqueries in an expression run on the CPU");
    } else {
        return refuse(format!("{} is not a device expression", short(expr)));
    };
    value_type(&data_type, expr)?;
    Ok(Expr {
        node,
        data_type,
        nullable,
    })
}

fn boxed(expr: &Arc<dyn PhysicalExpr>, scope: &mut Scope<'_>) -> Result<Box<Expr>, Reason> {
    node(expr, scope).map(Box::new)
}

fn column_reference(column: &Column, scope: &mut Scope<'_>) -> Result<Expr, Reason> {
    let Some(field) = scope.schema.fields().get(column.index()) else {
        return refuse(format!("column {} is not one of the scan's", column.name()));
    };
    if !is_value(field.data_type()) && !is_string(field.data_type()) {
        return refuse(format!(
            "column {} is of type {}",
            column.name(),
            field.data_type()
        ));
    }
    let (data_type, nullable) = (field.data_type().clone(), field.is_nullable());
    Ok(Expr::column(
        scope.position(column.index()),
        data_type,
        nullable,
    ))
}

fn literal_value(literal: &Literal) -> Result<Expr, Reason> {
    let value = literal.value();
    let data_type = value.data_type();
    let null = value.is_null() && data_type == DataType::Null;
    if !is_value(&data_type) && !is_string(&data_type) && !null {
        return refuse(format!(
            "a constant of type {data_type} outside a string expression"
        ));
    }
    Ok(Expr::literal(value.clone()))
}

fn value_type(data_type: &DataType, expr: &Arc<dyn PhysicalExpr>) -> Result<(), Reason> {
    if is_value(data_type) || is_string(data_type) {
        return Ok(());
    }
    refuse(format!("{} is of type {data_type}", short(expr)))
}

/// Types that kernels compute with.
pub(crate) fn is_value(data_type: &DataType) -> bool {
    use DataType::*;
    data_type.is_integer()
        || is_decimal(data_type)
        || matches!(
            data_type,
            Boolean
                | Float32
                | Float64
                | Date32
                | Date64
                | Time32(_)
                | Time64(_)
                | Timestamp(..)
                | Duration(_)
        )
}

/// Types that have few values whatever they are made of.
pub(crate) fn short_type(data_type: &DataType) -> bool {
    use DataType::*;
    matches!(data_type, Boolean | Int8 | Int16 | UInt8 | UInt16)
}

/// Strings of characters or of bytes, plain or in a dictionary, and what lies as such: lists, maps, calendar intervals.
pub(crate) fn is_string(data_type: &DataType) -> bool {
    is_text(data_type)
}

/// Lists, maps and calendar intervals are equal or not on the device, and have no order there.
///
/// # Errors
/// When `value` is one.
pub(crate) fn check_order(value: &Expr) -> Result<(), Reason> {
    match is_opaque(&value.data_type) {
        true => refuse(format!(
            "an order of values of type {} is the CPU's",
            value.data_type
        )),
        false => Ok(()),
    }
}

/// Decimals of at most 128 bits.
pub(crate) fn is_decimal(data_type: &DataType) -> bool {
    matches!(
        data_type,
        DataType::Decimal32(..) | DataType::Decimal64(..) | DataType::Decimal128(..)
    )
}

/// The expression as SQL, cut to what fits a line.
pub(crate) fn short(expr: &Arc<dyn PhysicalExpr>) -> String {
    const MOST: usize = 60;
    let text = fmt_sql(expr.as_ref()).to_string();
    match text.char_indices().nth(MOST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

/// Nodes of an expression, counted no further than just beyond [`MAX_NODES`].
fn count_nodes(expr: &Arc<dyn PhysicalExpr>) -> usize {
    let mut nodes = 0;
    // The closure never fails, so neither does the walk.
    let _ = expr.apply(|_| {
        nodes += 1;
        Ok(if nodes > MAX_NODES {
            TreeNodeRecursion::Stop
        } else {
            TreeNodeRecursion::Continue
        })
    });
    nodes
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests;
