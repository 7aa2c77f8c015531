//! What no kernel computes of the columns of one table: a column of the table itself, which DataFusion computes once for all of its
//! rows when it is loaded.
//!
//! Operators go on with that column as with any other. It is worth the price where an expression is wanted of a good part of the table's
//! rows, and above all the next time.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions, new_null_array};
use arrow::datatypes::{Field, FieldRef, Schema};
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::{Operator, Volatility};
use datafusion::physical_expr::expressions::{
    BinaryExpr, CaseExpr, CastExpr, Column, DynamicFilterPhysicalExpr, InListExpr, IsNotNullExpr,
    IsNullExpr, NegativeExpr, NotExpr, TryCastExpr,
};
use datafusion::physical_expr::scalar_subquery::ScalarSubqueryExpr;
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use datafusion::physical_expr_common::physical_expr::{fmt_sql, is_volatile};
use datafusion::scalar::ScalarValue;
use warpline_gpu::expr::Expr;

use super::reach::{Target, reach};
use crate::fragment::NoFacts;
use crate::reason::Reason;
use crate::rel::physical::{over, physical};
use crate::rel::{RelRef, ScanTable};
use crate::stats::Estimator;
use crate::translate::{
    FieldColumns, Scope, built_in, is_string, is_value, looks_beyond, makes_any_length, translate,
};

/// An expression is computed of all rows of a table where it is wanted of at least one in so many, by estimate.
const MOST_UNUSED: f64 = 16.0;

/// Whether what is evaluated once per combination of values, and looked up, becomes a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Combines {
    /// It does not.
    First,
    /// It does where it can, and is looked up elsewhere.
    Last,
    /// It does; nothing is looked up.
    Never,
}

/// `rel` with columns for what kernels do not compute of `exprs`, and `columns` with these.
///
/// # Errors
/// Of DataFusion's rewriting.
pub(super) fn beside(
    rel: RelRef,
    exprs: &[Arc<dyn PhysicalExpr>],
    columns: &mut FieldColumns,
    combines: Combines,
) -> Result<RelRef, Reason> {
    let mut state = State {
        rel,
        columns: columns.clone(),
        combines,
    };
    for expr in exprs {
        if let Some((_, with)) = state.without_refused(expr)? {
            state = with;
        }
    }
    *columns = state.columns;
    Ok(state.rel)
}

/// A relation and the columns that it has for expressions.
#[derive(Clone)]
struct State {
    rel: RelRef,
    columns: FieldColumns,
    combines: Combines,
}

/// An expression, and the relation whose columns it is over.
type Rewritten = (Arc<dyn PhysicalExpr>, State);

impl State {
    /// `expr` with columns for what is refused of it, and the relation with these; `None` where something of it is refused whatever is
    /// done.
    fn without_refused(&self, expr: &Arc<dyn PhysicalExpr>) -> Result<Option<Rewritten>, Reason> {
        if expr.is::<Column>() || collect_columns(expr).is_empty() {
            return Ok(Some((Arc::clone(expr), self.clone())));
        }
        let as_it_is = || Ok(Some((self.columns.replaced(expr)?, self.clone())));
        if self.runs(expr, self.combines == Combines::First)? {
            return as_it_is();
        }
        // The device goes on above what only compares or calculates.
        let within = is_within_kernels(expr);
        if within && let Some(found) = self.without_refused_parts(expr)? {
            return Ok(Some(found));
        }
        if let Some(found) = self.with(expr)? {
            return Ok(Some(found));
        }
        if !within && let Some(found) = self.without_refused_parts(expr)? {
            return Ok(Some(found));
        }
        match self.combines == Combines::Last && self.runs(expr, true)? {
            true => as_it_is(),
            false => Ok(None),
        }
    }

    /// The same of the expressions that `expr` is made of, unless it is refused nevertheless.
    fn without_refused_parts(
        &self,
        expr: &Arc<dyn PhysicalExpr>,
    ) -> Result<Option<Rewritten>, Reason> {
        let mut state = self.clone();
        let mut parts = Vec::new();
        for part in expr.children() {
            let Some((part, with)) = state.without_refused(part)? else {
                return Ok(None);
            };
            parts.push(part);
            state = with;
        }
        let whole = Arc::clone(expr).with_new_children(parts)?;
        let combines = self.combines == Combines::First;
        Ok(state.runs(&whole, combines)?.then_some((whole, state)))
    }

    /// Does the device compute the expression, where it looks up what is evaluated by combination or not?
    fn runs(&self, expr: &Arc<dyn PhysicalExpr>, combines: bool) -> Result<bool, Reason> {
        let schema = self.rel.schema();
        let scope = Scope::whole(&schema).with_fields(self.columns.clone());
        Ok(translate(expr, &mut scope.combining(combines)).is_ok())
    }

    /// The relation with a column for the whole of `expr`, and the column.
    fn with(&self, expr: &Arc<dyn PhysicalExpr>) -> Result<Option<Rewritten>, Reason> {
        let schema = self.rel.schema();
        let Ok(data_type) = expr.data_type(&schema) else {
            return Ok(None);
        };
        if !is_value(&data_type) && !is_string(&data_type) || !is_of_values(expr) {
            return Ok(None);
        }
        let rows = Estimator::new(&NoFacts).rows(&self.rel);
        let target = Computed::of(expr, &schema, rows);
        let Some((rel, at)) = target.and_then(|target| reach(&self.rel, &target)) else {
            return Ok(None);
        };
        let name = rel.columns[at].name.clone();
        let mut columns = self.columns.clone();
        columns.add_computed(expr, &name, at);
        let column = Arc::new(Column::new(&name, at)) as _;
        Ok(Some((
            column,
            Self {
                rel,
                columns,
                combines: self.combines,
            },
        )))
    }
}

/// An expression that is wanted of a relation, or of a table.
struct Computed {
    /// Over columns of its own.
    expr: Arc<dyn PhysicalExpr>,
    /// These, which are …
    schema: Arc<Schema>,
    /// … of the relation.
    columns: Vec<usize>,
    /// Of how many rows it is wanted.
    rows: f64,
}

impl Computed {
    /// `expr`, which is over columns of a relation, of so many rows; `None` where it reads none.
    fn of(expr: &Arc<dyn PhysicalExpr>, schema: &Schema, rows: f64) -> Option<Self> {
        let columns: BTreeSet<usize> = collect_columns(expr).iter().map(Column::index).collect();
        let columns: Vec<usize> = columns.into_iter().collect();
        let own = |column: &Column| columns.binary_search(&column.index()).ok();
        let numbered = Arc::clone(expr).transform_up(|e| {
            let place = e
                .downcast_ref::<Column>()
                .and_then(|c| Some((c.name(), own(c)?)));
            Ok(match place {
                Some((name, place)) => Transformed::yes(Arc::new(Column::new(name, place)) as _),
                None => Transformed::no(e),
            })
        });
        Some(Self {
            expr: numbered.ok()?.data,
            schema: Arc::new(schema.project(&columns).ok()?),
            rows,
            columns,
        })
        .filter(|computed| !computed.columns.is_empty())
    }
}

impl Target for Computed {
    fn columns(&self) -> Vec<usize> {
        self.columns.clone()
    }

    fn at(&self, columns: &[usize]) -> Option<Self> {
        Some(Self {
            expr: Arc::clone(&self.expr),
            schema: Arc::clone(&self.schema),
            columns: columns.to_vec(),
            rows: self.rows,
        })
    }

    /// What is computed on the way is part of it.
    fn through(&self, exprs: &[&Expr], input: &RelRef) -> Option<Self> {
        let schema = input.schema();
        let values = exprs.iter().map(|expr| physical(expr, &schema));
        let whole = over(&self.expr, &values.collect::<Option<Vec<_>>>()?)?;
        Self::of(&whole, &schema, self.rows)
    }

    fn is_of_values(&self) -> bool {
        true
    }

    fn may_be_of(&self, rel: &RelRef) -> bool {
        self.columns
            .iter()
            .all(|column| *column < rel.columns.len())
    }

    fn of_table(&self, table: &Arc<ScanTable>) -> Option<(Arc<ScanTable>, usize)> {
        let all = table.rows.unwrap_or(0) as f64;
        if self.rows * MOST_UNUSED < all {
            return None;
        }
        // The table's names: whoever asks for the same finds it.
        let fields = table.source.schema().fields();
        let named = Arc::clone(&self.expr).transform_up(|e| {
            let own = e.downcast_ref::<Column>();
            let number = own.and_then(|own| self.columns.get(own.index()));
            let found = number.and_then(|number| Some((*number, fields.get(*number)?)));
            Ok(match found {
                Some((number, field)) => {
                    Transformed::yes(Arc::new(Column::new(field.name(), number)) as _)
                }
                None => Transformed::no(e),
            })
        });
        let (source, column) = table.source.with_computed(&named.ok()?.data)?;
        let rows = table.rows;
        Some((Arc::new(ScanTable { source, rows }), column))
    }

    fn of_constants(&self, exprs: &[&Expr]) -> Option<Expr> {
        let none = Arc::new(Schema::empty());
        let values = exprs.iter().map(|expr| physical(expr, &none));
        let whole = over(&self.expr, &values.collect::<Option<Vec<_>>>()?)?;
        of_row(&whole, &none, vec![]).map(Expr::literal)
    }

    fn of_no_match(&self) -> Option<ScalarValue> {
        let fields = self.schema.fields().iter();
        let fields: Vec<FieldRef> = fields
            .map(|field| Arc::new(Field::clone(field).with_nullable(true)))
            .collect();
        let nulls = fields.iter().map(|f| new_null_array(f.data_type(), 1));
        let nulls = nulls.collect();
        of_row(&self.expr, &Arc::new(Schema::new(fields)), nulls)
    }

    fn name(&self) -> String {
        fmt_sql(self.expr.as_ref()).to_string()
    }
}

/// The value of an expression for one row.
fn of_row(
    expr: &Arc<dyn PhysicalExpr>,
    schema: &Arc<Schema>,
    values: Vec<ArrayRef>,
) -> Option<ScalarValue> {
    let one = RecordBatchOptions::new().with_row_count(Some(1));
    let row = RecordBatch::try_new_with_options(Arc::clone(schema), values, &one);
    let value = expr.evaluate(&row.ok()?).ok()?.into_array(1).ok()?;
    ScalarValue::try_from_array(&value, 0).ok()
}

/// Kernels compare, calculate and choose: what they do not do of it are its operands.
fn is_within_kernels(expr: &Arc<dyn PhysicalExpr>) -> bool {
    if let Some(binary) = expr.downcast_ref::<BinaryExpr>() {
        return !matches!(binary.op(), Operator::StringConcat);
    }
    let cast = expr.downcast_ref::<CastExpr>().map(CastExpr::cast_type);
    let cast = cast.or_else(|| {
        expr.downcast_ref::<TryCastExpr>()
            .map(TryCastExpr::cast_type)
    });
    cast.is_some_and(is_value)
        || expr.is::<NotExpr>()
        || expr.is::<NegativeExpr>()
        || expr.is::<IsNullExpr>()
        || expr.is::<IsNotNullExpr>()
        || expr.is::<InListExpr>()
        || expr.is::<CaseExpr>()
}

/// Is the value of a row made of that row alone, the same each time, by functions whose price is known?
fn is_of_values(expr: &Arc<dyn PhysicalExpr>) -> bool {
    let mut known = !is_volatile(expr);
    // The closure never fails, so neither does the walk.
    let _ = expr.apply(|e| {
        known &= !e.is::<DynamicFilterPhysicalExpr>()
            && !e.is::<ScalarSubqueryExpr>()
            && !makes_any_length(e)
            && !looks_beyond(e)
            && e.downcast_ref::<ScalarFunctionExpr>().is_none_or(|call| {
                let immutable = call.fun().signature().volatility == Volatility::Immutable;
                immutable && built_in(call.fun()).is_some()
            });
        Ok(match known {
            true => TreeNodeRecursion::Continue,
            false => TreeNodeRecursion::Stop,
        })
    });
    known
}
