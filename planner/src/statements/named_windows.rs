//! Windows that build on others: `OVER (w ORDER BY x)`, `WINDOW v AS (w ROWS 2 PRECEDING)`.
//!
//! DataFusion leaves out what they build on, and knows names in the outputs alone. Every window is spelled out where it is named.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, Ident, NamedWindowDefinition, NamedWindowExpr, Query, SetExpr, Statement, VisitMut,
    VisitorMut, WindowFrameBound, WindowSpec, WindowType,
};

use crate::statements::replaced::replace_named;
use crate::statements::syntax::{arguments, expression, function_name, normal};

/// Spells out the windows that are named; whether there were any.
pub(crate) fn spelled_out(statement: &mut Statement) -> bool {
    let mut queries = Queries { changed: false };
    let _: ControlFlow<()> = VisitMut::visit(statement, &mut queries);
    queries.changed
}

struct Queries {
    changed: bool,
}

impl VisitorMut for Queries {
    type Break = ();

    fn post_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        let SetExpr::Select(select) = query.body.as_mut() else {
            return ControlFlow::Continue(());
        };
        let definitions = std::mem::take(&mut select.named_window);
        let mut names = Names {
            definitions: &definitions,
            replaced: false,
            unknown: false,
        };
        let _: ControlFlow<()> = VisitMut::visit(select.as_mut(), &mut names);
        let _: ControlFlow<()> = VisitMut::visit(&mut query.order_by, &mut names);
        self.changed |= names.replaced;
        // DataFusion says which one is not defined.
        if names.unknown
            && let SetExpr::Select(select) = query.body.as_mut()
        {
            select.named_window = definitions;
        }
        ControlFlow::Continue(())
    }
}

/// Puts windows in the place of their names.
struct Names<'a> {
    definitions: &'a [NamedWindowDefinition],
    replaced: bool,
    unknown: bool,
}

impl VisitorMut for Names<'_> {
    type Break = ();

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        let Expr::Function(call) = expr else {
            return ControlFlow::Continue(());
        };
        let whole = match &call.over {
            Some(WindowType::NamedWindow(name)) => self.named(name, 0),
            Some(WindowType::WindowSpec(spec)) if spec.window_name.is_some() => self.whole(spec, 0),
            _ => return ControlFlow::Continue(()),
        };
        match whole {
            Some(whole) => {
                call.over = Some(WindowType::WindowSpec(whole));
                self.replaced = true;
            }
            None => self.unknown = true,
        }
        ControlFlow::Continue(())
    }
}

impl Names<'_> {
    /// The window of a name, found through `depth` others.
    fn named(&self, name: &Ident, depth: usize) -> Option<WindowSpec> {
        // A window that builds on itself has no end.
        if depth > self.definitions.len() {
            return None;
        }
        let mut definitions = self.definitions.iter();
        let NamedWindowDefinition(_, window) =
            definitions.find(|definition| normal(&definition.0) == normal(name))?;
        match window {
            NamedWindowExpr::NamedWindow(other) => self.named(other, depth + 1),
            NamedWindowExpr::WindowSpec(spec) => self.whole(spec, depth + 1),
        }
    }

    /// A window with what it builds on: its partitions, and its order where it has none of its own.
    fn whole(&self, spec: &WindowSpec, depth: usize) -> Option<WindowSpec> {
        let mut whole = spec.clone();
        if let Some(name) = whole.window_name.take() {
            let base = self.named(&name, depth)?;
            if whole.partition_by.is_empty() {
                whole.partition_by = base.partition_by;
            }
            if whole.order_by.is_empty() {
                whole.order_by = base.order_by;
            }
            whole.window_frame = whole.window_frame.or(base.window_frame);
        }
        Some(whole)
    }
}

/// Puts MIN and MAX in the place of BOOL_AND and BOOL_OR over frames whose beginning moves, which DataFusion does not have there; whether
/// there were any.
pub(crate) fn of_moving_frames(statement: &mut Statement) -> bool {
    replace_named(statement, |expr| {
        let Expr::Function(call) = expr else {
            return None;
        };
        let least = match &*function_name(call)? {
            "bool_and" | "every" => "min",
            "bool_or" => "max",
            _ => return None,
        };
        let Some(WindowType::WindowSpec(WindowSpec {
            window_frame: Some(frame),
            ..
        })) = &call.over
        else {
            return None;
        };
        if matches!(frame.start_bound, WindowFrameBound::Preceding(None)) {
            return None;
        }
        let [value] = arguments(call)?[..] else {
            return None;
        };
        let mut extreme = call.clone();
        let number = expression(&format!("{least}(CAST(({value}) AS INT))"))?;
        if let Expr::Function(number) = number {
            extreme.name = number.name;
            extreme.args = number.args;
        }
        expression(&format!("({extreme} = 1)"))
    })
}

#[cfg(test)]
mod tests {
    use datafusion::prelude::SessionContext;

    use crate::statements::tests::answer;

    #[tokio::test]
    async fn windows_build_on_others() {
        let context = SessionContext::new();
        let create = "CREATE TABLE t AS SELECT value AS id, value % 3 AS k, value * 7 % 5 AS v FROM generate_series(1, 20)";
        answer(&context, create).await;
        for (written, meant) in [
            (
                "SELECT id, rank() OVER (w ORDER BY v DESC) AS r, count(*) OVER w AS n FROM t WINDOW w AS (PARTITION BY k) ORDER BY id",
                "SELECT id, rank() OVER (PARTITION BY k ORDER BY v DESC) AS r, count(*) OVER (PARTITION BY k) AS n FROM t ORDER BY id",
            ),
            (
                "SELECT id, sum(v) OVER c AS s FROM t WINDOW a AS (PARTITION BY k), b AS (a ORDER BY id), c AS (b ROWS 1 PRECEDING) ORDER BY id",
                "SELECT id, sum(v) OVER (PARTITION BY k ORDER BY id ROWS 1 PRECEDING) AS s FROM t ORDER BY id",
            ),
            (
                "SELECT id FROM t WINDOW w AS (PARTITION BY k ORDER BY id) QUALIFY row_number() OVER w = 1 ORDER BY sum(v) OVER w, id",
                "SELECT id FROM (SELECT id, row_number() OVER (PARTITION BY k ORDER BY id) AS n, sum(v) OVER (PARTITION BY k ORDER BY id) AS s FROM t) AS q WHERE n = 1 ORDER BY s, id",
            ),
            (
                "SELECT id, bool_and(v > 0) OVER (ORDER BY id ROWS 2 PRECEDING) AS a, bool_or(v > 3) OVER (ORDER BY id ROWS 1 PRECEDING) AS o FROM t ORDER BY id",
                "SELECT id, min(v) OVER (ORDER BY id ROWS 2 PRECEDING) > 0 AS a, max(v) OVER (ORDER BY id ROWS 1 PRECEDING) > 3 AS o FROM t ORDER BY id",
            ),
        ] {
            let found = answer(&context, written).await;
            assert_eq!(found, answer(&context, meant).await, "{written}");
        }
    }
}
