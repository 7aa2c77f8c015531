//! What expressions read of columns of structs: accesses, and columns in their place.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::physical_expr::expressions::{Column, IsNotNullExpr, IsNullExpr, Literal, NotExpr};
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};

use crate::reason::Reason;
use crate::structs::reads_field;

/// What an expression reads of a column of structs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Access<'a> {
    /// The column.
    pub(crate) column: usize,
    /// The names that lead to it.
    pub(crate) names: &'a [&'a str],
    /// Not a field, but whether the struct is there.
    pub(crate) presence: bool,
}

/// `expr` with accesses to fields of structs as the columns that `find` gives for them.
///
/// # Errors
/// Of DataFusion's rewriting.
pub(crate) fn with_columns(
    expr: &Arc<dyn PhysicalExpr>,
    find: &mut dyn FnMut(Access<'_>) -> Option<(String, usize)>,
) -> Result<Arc<dyn PhysicalExpr>, Reason> {
    let replaced = Arc::clone(expr).transform_down(|e| {
        let (read, is_test, is_negated) = if let Some(test) = e.downcast_ref::<IsNotNullExpr>() {
            (test.arg(), true, false)
        } else if let Some(test) = e.downcast_ref::<IsNullExpr>() {
            (test.arg(), true, true)
        } else {
            (&e, false, false)
        };
        let mut names = Vec::new();
        let Some(column) = accessed(read, &mut names) else {
            return Ok(Transformed::no(e));
        };
        let mut column_of = |presence| {
            let access = Access {
                column: column.index(),
                names: &names,
                presence,
            };
            let (name, at) = find(access)?;
            Some(Arc::new(Column::new(&name, at)) as Arc<dyn PhysicalExpr>)
        };
        // The test of a field that is no struct is one of its own column.
        let found = match is_test {
            true => column_of(true).map(|there| match is_negated {
                true => Arc::new(NotExpr::new(there)) as _,
                false => there,
            }),
            false if names.is_empty() => None,
            false => column_of(false),
        };
        Ok(match found {
            Some(found) => Transformed::new(found, true, TreeNodeRecursion::Jump),
            None => Transformed::no(e),
        })
    })?;
    Ok(replaced.data)
}

/// The column that `expr` is a field of, and the names that lead there; the column itself with none.
fn accessed<'e>(expr: &'e Arc<dyn PhysicalExpr>, names: &mut Vec<&'e str>) -> Option<&'e Column> {
    if let Some(column) = expr.downcast_ref::<Column>() {
        return Some(column);
    }
    let call = expr.downcast_ref::<ScalarFunctionExpr>()?;
    if !reads_field(call.fun()) {
        return None;
    }
    let (base, path) = call.args().split_first()?;
    let column = accessed(base, names)?;
    for name in path {
        let name = name.downcast_ref::<Literal>()?.value();
        names.push(name.try_as_str().flatten()?);
    }
    Some(column)
}

/// Columns that have what is read of structs, and what expressions come to that are computed beforehand.
#[derive(Debug, Clone, Default)]
pub struct FieldColumns {
    fields: Vec<FieldColumn>,
    /// Each with its column.
    computed: Vec<(Arc<dyn PhysicalExpr>, Column)>,
}

#[derive(Debug, Clone)]
struct FieldColumn {
    column: usize,
    names: Vec<String>,
    presence: bool,
    name: String,
    at: usize,
}

impl FieldColumns {
    /// Column `at` of this name has what is accessed.
    pub(crate) fn add(&mut self, access: Access<'_>, name: &str, at: usize) {
        if self.find(access).is_none() {
            self.fields.push(FieldColumn {
                column: access.column,
                names: access.names.iter().map(ToString::to_string).collect(),
                presence: access.presence,
                name: name.into(),
                at,
            });
        }
    }

    /// Column `at` of this name has what `expr` comes to, in which fields of structs are columns already.
    pub(crate) fn add_computed(&mut self, expr: &Arc<dyn PhysicalExpr>, name: &str, at: usize) {
        self.computed
            .push((Arc::clone(expr), Column::new(name, at)));
    }

    fn find(&self, access: Access<'_>) -> Option<(String, usize)> {
        let found = self.fields.iter().find(|found| {
            found.column == access.column
                && found.presence == access.presence
                && found
                    .names
                    .iter()
                    .map(String::as_str)
                    .eq(access.names.iter().copied())
        });
        found.map(|found| (found.name.clone(), found.at))
    }

    /// `expr` with these columns.
    pub(crate) fn replaced(
        &self,
        expr: &Arc<dyn PhysicalExpr>,
    ) -> Result<Arc<dyn PhysicalExpr>, Reason> {
        let expr = match self.fields.is_empty() {
            true => Arc::clone(expr),
            false => with_columns(expr, &mut |access| self.find(access))?,
        };
        if self.computed.is_empty() {
            return Ok(expr);
        }
        let replaced = expr.transform_down(|e| {
            let found = self.computed.iter().find(|(computed, _)| computed.eq(&e));
            Ok(match found {
                Some((_, column)) => {
                    let column = Arc::new(column.clone());
                    Transformed::new(column as _, true, TreeNodeRecursion::Jump)
                }
                None => Transformed::no(e),
            })
        })?;
        Ok(replaced.data)
    }
}
