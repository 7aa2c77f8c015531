//! Expressions of a statement that others are put in the place of.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, Select, SelectItem, Statement, VisitMut, VisitorMut, visit_expressions_mut,
};

use crate::statements::syntax::{named, some};

/// Puts `other` in the place of each expression that it has one for, parts before what they are of; whether there were any.
pub(crate) fn replace(statement: &mut Statement, other: impl Fn(&Expr) -> Option<Expr>) -> bool {
    let mut changed = false;
    let _: ControlFlow<()> = visit_expressions_mut(statement, |expr| {
        if let Some(other) = other(expr) {
            *expr = other;
            changed = true;
        }
        ControlFlow::Continue(())
    });
    changed
}

/// The same; output columns are called as before.
pub(crate) fn replace_named(
    statement: &mut Statement,
    other: impl Fn(&Expr) -> Option<Expr>,
) -> bool {
    let mut names = Names { other: &other };
    let _: ControlFlow<()> = VisitMut::visit(statement, &mut names);
    replace(statement, other)
}

/// Names output columns of which a part will be another one.
struct Names<'a, F> {
    other: &'a F,
}

impl<F: Fn(&Expr) -> Option<Expr>> VisitorMut for Names<'_, F> {
    type Break = ();

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        for item in &mut select.projection {
            if let SelectItem::UnnamedExpr(expr) = item
                && some(expr, |part| (self.other)(part).is_some())
            {
                *item = named(expr.clone(), &expr.to_string());
            }
        }
        ControlFlow::Continue(())
    }
}
