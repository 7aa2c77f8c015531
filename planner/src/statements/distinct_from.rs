//! `a IS DISTINCT FROM b AND c`: the parser takes all that follows for the other side, where SQL ends it before AND and OR.

use datafusion::sql::sqlparser::ast::{BinaryOperator, Expr, Statement};

use crate::statements::replaced::replace;

/// Ends such comparisons before AND and OR, in parentheses; whether there was one. What stands around them is still as it was
/// read: the text of the statement has to be read again.
pub(crate) fn end_before_and(statement: &mut Statement) -> bool {
    replace(statement, ended)
}

/// Makes a comparison of its sides.
type Comparison = fn(Box<Expr>, Box<Expr>) -> Expr;

/// A comparison that has taken too much, in parentheses before the rest.
fn ended(expr: &Expr) -> Option<Expr> {
    let (left, right, make): (_, _, Comparison) = match expr {
        Expr::IsDistinctFrom(left, right) => (left, right, Expr::IsDistinctFrom),
        Expr::IsNotDistinctFrom(left, right) => (left, right, Expr::IsNotDistinctFrom),
        _ => return None,
    };
    let mut all = right.as_ref().clone();
    let mut first = &mut all;
    let mut is_longer = false;
    while let Expr::BinaryOp {
        left,
        op: BinaryOperator::And | BinaryOperator::Or | BinaryOperator::Xor,
        ..
    } = first
    {
        first = left;
        is_longer = true;
    }
    let compared = make(left.clone(), Box::new(first.clone()));
    *first = Expr::Nested(Box::new(compared));
    is_longer.then_some(all)
}

#[cfg(test)]
mod tests {
    use crate::statements::tests::answer;
    use datafusion::prelude::SessionContext;

    #[tokio::test]
    async fn comparisons_end_before_and() {
        let context = SessionContext::new();
        for (written, meant) in [
            (
                "true IS DISTINCT FROM true AND false",
                "(true IS DISTINCT FROM true) AND false",
            ),
            (
                "false AND 1 IS DISTINCT FROM 2 OR true",
                "(false AND (1 IS DISTINCT FROM 2)) OR true",
            ),
            (
                "1 IS NOT DISTINCT FROM 1 AND 2 IS DISTINCT FROM 2 OR 3 = 3",
                "((1 IS NOT DISTINCT FROM 1) AND (2 IS DISTINCT FROM 2)) OR 3 = 3",
            ),
            (
                "true IS DISTINCT FROM (true AND false)",
                "(true IS DISTINCT FROM (true AND false))",
            ),
        ] {
            let found = answer(&context, &format!("SELECT {written} AS b")).await;
            let expected = answer(&context, &format!("SELECT {meant} AS b")).await;
            assert_eq!(found, expected, "{written}");
        }
    }
}
