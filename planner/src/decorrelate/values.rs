//! What a subquery is as a value: columns of a plan that is joined to the rows around it.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, Spans, TableReference};
use datafusion::functions_aggregate::expr_fn::{count, first_value, max, min};
use datafusion::logical_expr::{
    Aggregate, Distinct, Expr, ExprSchemable, FetchType, JoinType, Limit, LogicalPlan, Operator,
    Projection, SkipType, Subquery, SubqueryAlias, lit, when,
};
use datafusion::scalar::ScalarValue;

use super::domain::Outer;
use super::one_row::checked;
use super::push::{Push, Pushed, filtered, joined};
use super::scope::{bound, free};
use super::{Made, Names, Stop, columns, named};

/// Rows, and subqueries over them that are being joined to them.
pub(super) struct Rows<'a> {
    /// The rows before anything was joined.
    original: Arc<LogicalPlan>,
    /// The same rows with the columns of the joined subqueries behind theirs.
    pub(super) plan: Arc<LogicalPlan>,
    names: &'a Names,
}

impl<'a> Rows<'a> {
    pub(super) fn new(plan: Arc<LogicalPlan>, names: &'a Names) -> Self {
        Self {
            original: Arc::clone(&plan),
            plan,
            names,
        }
    }

    /// Whether something was joined.
    pub(super) fn grew(&self) -> bool {
        !Arc::ptr_eq(&self.original, &self.plan)
    }

    /// An expression over the rows as a column of them.
    pub(super) fn computed(&mut self, expr: Expr) -> Made<Expr> {
        if let Expr::Column(_) = expr {
            return Ok(expr);
        }
        let name = self.fresh();
        let mut exprs = columns(&self.plan.schema().columns());
        exprs.push(named(expr, &name));
        let projection = Projection::try_new(exprs, Arc::clone(&self.plan))?;
        self.plan = Arc::new(LogicalPlan::Projection(projection));
        Ok(Expr::Column(name))
    }

    fn outer(&self, subquery: &LogicalPlan) -> Made<Outer> {
        Ok(Outer::new(&self.original, free(subquery)?)?)
    }

    /// The rows of a subquery for those around it.
    fn push(&mut self, subquery: &LogicalPlan, outer: &Outer) -> Made<Pushed> {
        // It refers to nothing here, but it may to what is further out, for which this becomes a part of a subquery.
        if outer.is_empty() {
            return Ok(Pushed {
                plan: subquery.clone(),
                values: vec![],
                known: true,
            });
        }
        Push {
            outer,
            names: self.names,
        }
        .push(subquery)
    }

    fn fresh(&mut self) -> Column {
        let name = self.names.next("subquery");
        Column::new(Some(TableReference::bare(name.as_str())), name)
    }

    /// Joins a plan that has values of outer columns.
    fn join(
        &mut self,
        right: LogicalPlan,
        join_type: JoinType,
        outer: &Outer,
        of: &Pushed,
    ) -> Made<()> {
        let on = outer.same(&outer.columns, &of.values, of.known)?;
        let left = Arc::clone(&self.plan);
        self.plan = Arc::new(joined(left, Arc::new(right), join_type, on, None)?);
        Ok(())
    }

    /// The value of a subquery that has one row at most; NULL where it has none.
    pub(super) fn scalar(&mut self, subquery: &LogicalPlan) -> Made<Expr> {
        let outer = self.outer(subquery)?;
        if !outer.is_empty()
            && let Some(value) = self.aggregate(subquery, &outer)?
        {
            return Ok(value);
        }
        let pushed = self.push(subquery, &outer)?;
        let value = Expr::Column(head(subquery)?);
        let name = self.fresh();
        let input = Arc::new(pushed.plan.clone());
        let mut exprs = columns(&pushed.values);
        if has_one_row(subquery)? {
            exprs.push(named(value, &name));
            let right = LogicalPlan::Projection(Projection::try_new(exprs, input)?);
            self.join(right, JoinType::Left, &outer, &pushed)?;
            return Ok(Expr::Column(name));
        }
        let counted = self.fresh();
        let data_type = value.get_type(input.schema())?;
        let value = match data_type.is_nested() {
            true => first_value(value, vec![]),
            false => min(value),
        };
        let calls = vec![named(value, &name), named(count(lit(1_i64)), &counted)];
        let right = aggregated(input, exprs, calls)?;
        self.join(right, JoinType::Left, &outer, &pushed)?;
        Ok(checked(Expr::Column(name), Expr::Column(counted)))
    }

    /// The value of a subquery that aggregates all its rows: what it is of no rows is known here, where there is nothing to join.
    fn aggregate(&mut self, subquery: &LogicalPlan, outer: &Outer) -> Made<Option<Expr>> {
        let mut value = Expr::Column(head(subquery)?);
        let mut plan = subquery;
        let aggregate = loop {
            match plan {
                LogicalPlan::Projection(projection) => {
                    value = inlined(value, projection)?;
                    plan = &projection.input;
                }
                LogicalPlan::Aggregate(aggregate) if aggregate.group_expr.is_empty() => {
                    break aggregate;
                }
                _ => return Ok(None),
            }
        };
        if value.is_volatile() {
            return Ok(None);
        }
        let mut push = Push {
            outer,
            names: self.names,
        };
        let grouped = push.grouped(aggregate)?;
        let (pushed, defaults) = push.marked(grouped, aggregate)?;
        // Under names of their own: the rows around may have columns of these names.
        let own = aggregate.schema.columns();
        let mut exprs = columns(&pushed.values);
        let mut renamed = Vec::with_capacity(own.len());
        for column in pushed.plan.schema().columns() {
            if pushed.values.contains(&column) {
                continue;
            }
            let name = self.fresh();
            exprs.push(named(Expr::Column(column.clone()), &name));
            renamed.push((column, name));
        }
        let to_new = |expr: Expr| replaced(expr, |column| new_name(&renamed, column));
        let input = Arc::new(pushed.plan.clone());
        let right = LogicalPlan::Projection(Projection::try_new(exprs, input)?);
        self.join(right, JoinType::Left, outer, &pushed)?;
        let defaults = defaults.into_iter().map(|expr| to_new(expr.unalias()));
        let defaults = defaults.collect::<Made<Vec<_>>>()?;
        let value = replaced(value, |column| {
            let place = own.iter().position(|known| known == column)?;
            Some(defaults[place].clone())
        })?;
        Ok(Some(bound(value, &outer.columns, &outer.columns)?))
    }

    /// Keeps the rows for which a subquery has rows, or those for which it has none.
    pub(super) fn keep_existing(&mut self, subquery: &LogicalPlan, negated: bool) -> Made<()> {
        let outer = self.outer(subquery)?;
        if always_has_rows(subquery) {
            if negated {
                self.plan = Arc::new(filtered(self.plan.as_ref().clone(), lit(false))?);
            }
            return Ok(());
        }
        let pushed = self.push(stripped(subquery)?, &outer)?;
        let join_type = match negated {
            true => JoinType::LeftAnti,
            false => JoinType::LeftSemi,
        };
        let right = only(&pushed, vec![])?;
        self.join(right, join_type, &outer, &pushed)
    }

    /// Whether a subquery has rows.
    pub(super) fn exists(&mut self, subquery: &LogicalPlan, negated: bool) -> Made<Expr> {
        if always_has_rows(subquery) {
            return Ok(lit(!negated));
        }
        let outer = self.outer(subquery)?;
        let subquery = stripped(subquery)?;
        if free(subquery)?.is_empty() {
            let first = LogicalPlan::Limit(Limit {
                skip: None,
                fetch: Some(Box::new(lit(1_i64))),
                input: Arc::new(subquery.clone()),
            });
            let rows = alone(&Arc::new(first), count(lit(1_i64)))?;
            let some = rows.gt(lit(0_i64));
            return Ok(if negated { !some } else { some });
        }
        let pushed = self.push(subquery, &outer)?;
        let found = self.marked(&pushed, &outer, None)?;
        Ok(if negated { !found } else { found })
    }

    /// Keeps the rows for which a subquery has a value that equals `value`.
    pub(super) fn keep_among(&mut self, value: &Expr, subquery: &LogicalPlan) -> Made<()> {
        let outer = self.outer(subquery)?;
        let (pushed, found) = self.listed(subquery, &outer)?;
        let right = only(&pushed, vec![found.1])?;
        let mut on = vec![(value.clone(), Expr::Column(found.0))];
        on.extend(outer.same(&outer.columns, &pushed.values, pushed.known)?);
        let left = Arc::clone(&self.plan);
        self.plan = Arc::new(joined(left, Arc::new(right), JoinType::LeftSemi, on, None)?);
        Ok(())
    }

    /// Whether a value of a subquery compares with `value` so: true, false, or NULL where none does but one may.
    pub(super) fn any(&mut self, value: &Expr, op: Operator, subquery: &LogicalPlan) -> Made<Expr> {
        if value.is_volatile() {
            return Err(Stop::Not);
        }
        let outer = self.outer(subquery)?;
        let schema = self.plan.schema();
        let (data_type, nullable) = (value.get_type(schema)?, value.nullable(schema)?);
        let (pushed, found) = self.listed(subquery, &outer)?;
        let found_nullable = found.1.nullable(pushed.plan.schema())?;
        let hits = match op {
            Operator::Eq => self.marked(&pushed, &outer, Some((value.clone(), &found)))?,
            Operator::NotEq | Operator::Lt | Operator::LtEq | Operator::Gt | Operator::GtEq
                if !data_type.is_nested() =>
            {
                Expr::Literal(ScalarValue::Boolean(None), None)
            }
            _ => return Err(Stop::Not),
        };
        if op == Operator::Eq && !nullable && !found_nullable {
            return Ok(hits);
        }
        // How many values there are, how many are not NULL, and the least and the greatest.
        let of = found.1.clone().unalias();
        let calls = [
            count(lit(1_i64)),
            count(of.clone()),
            min(of.clone()),
            max(of),
        ];
        let calls = match op {
            Operator::Eq => &calls[..2],
            _ => &calls[..],
        };
        let mut facts = Vec::with_capacity(calls.len());
        let input = Arc::new(pushed.plan.clone());
        if free(subquery)?.is_empty() {
            for call in calls {
                facts.push(alone(&input, call.clone())?);
            }
        } else {
            let mut under_names = Vec::with_capacity(calls.len());
            for call in calls {
                let name = self.fresh();
                under_names.push(named(call.clone(), &name));
                facts.push(Expr::Column(name));
            }
            let right = aggregated(input, columns(&pushed.values), under_names)?;
            self.join(right, JoinType::Left, &outer, &pushed)?;
        }
        let [all, known, extremes @ ..] = &*facts else {
            return Err(Stop::Not);
        };
        let hits = match (op, extremes) {
            (Operator::Eq, _) => hits,
            (Operator::NotEq, [least, greatest]) => {
                let other = value.clone().not_eq(least.clone());
                other.or(value.clone().not_eq(greatest.clone()))
            }
            (Operator::Lt, [_, greatest]) => value.clone().lt(greatest.clone()),
            (Operator::LtEq, [_, greatest]) => value.clone().lt_eq(greatest.clone()),
            (Operator::Gt, [least, _]) => value.clone().gt(least.clone()),
            (Operator::GtEq, [least, _]) => value.clone().gt_eq(least.clone()),
            _ => return Err(Stop::Not),
        };
        let none = all.clone().is_null().or(all.clone().eq(lit(0_i64)));
        let may = value.clone().is_null().or(known.clone().lt(all.clone()));
        let unknown = Expr::Literal(ScalarValue::Boolean(None), None);
        Ok(when(hits, lit(true))
            .when(none, lit(false))
            .when(may, unknown)
            .otherwise(lit(false))?)
    }

    /// The rows of a subquery, and its value: the name, and the expression under that name.
    fn listed(&mut self, subquery: &LogicalPlan, outer: &Outer) -> Made<(Pushed, (Column, Expr))> {
        let pushed = self.push(subquery, outer)?;
        let value = Expr::Column(head(subquery)?);
        let name = self.fresh();
        let value = named(value, &name);
        Ok((pushed, (name, value)))
    }

    /// Whether a row has a partner: by the outer values, and where `value` is given, by its equality with that of the subquery.
    fn marked(
        &mut self,
        pushed: &Pushed,
        outer: &Outer,
        value: Option<(Expr, &(Column, Expr))>,
    ) -> Made<Expr> {
        let mut exprs: Vec<Expr> = value.iter().map(|(_, (_, expr))| expr.clone()).collect();
        if exprs.is_empty() && pushed.values.is_empty() {
            exprs.push(lit(true).alias(self.names.next("any")));
        }
        let right = only(pushed, exprs)?;
        // The mark has the name of the right side.
        let name = TableReference::bare(self.names.next("mark"));
        let right = SubqueryAlias::try_new(Arc::new(right), name.clone())?;
        let renamed = |column: &Column| Column::new(Some(name.clone()), column.name.clone());
        let values: Vec<Column> = pushed.values.iter().map(renamed).collect();
        let equal = value.map(|(value, (column, _))| (value, Expr::Column(renamed(column))));
        let mut on = outer.same(&outer.columns, &values, pushed.known)?;
        on.extend(equal);
        let left = Arc::clone(&self.plan);
        let right = Arc::new(LogicalPlan::SubqueryAlias(right));
        self.plan = Arc::new(joined(left, right, JoinType::LeftMark, on, None)?);
        Ok(Expr::Column(Column::new(Some(name), "mark")))
    }
}

/// `exprs` and the outer values.
fn only(pushed: &Pushed, mut exprs: Vec<Expr>) -> Made<LogicalPlan> {
    exprs.extend(columns(&pushed.values));
    let input = Arc::new(pushed.plan.clone());
    Ok(LogicalPlan::Projection(Projection::try_new(exprs, input)?))
}

fn aggregated(input: Arc<LogicalPlan>, groups: Vec<Expr>, calls: Vec<Expr>) -> Made<LogicalPlan> {
    let aggregate = Aggregate::try_new(input, groups, calls)?;
    Ok(LogicalPlan::Aggregate(aggregate))
}

/// An aggregate of rows that do not depend on those around: a subquery of its own.
fn alone(input: &Arc<LogicalPlan>, call: Expr) -> Made<Expr> {
    let plan = aggregated(Arc::clone(input), vec![], vec![call])?;
    let outer_ref_columns = plan.all_out_ref_exprs();
    Ok(Expr::ScalarSubquery(Subquery {
        subquery: Arc::new(plan),
        outer_ref_columns,
        spans: Spans::new(),
    }))
}

/// The first column of a subquery.
fn head(subquery: &LogicalPlan) -> Made<Column> {
    let column = subquery.schema().columns().into_iter().next();
    column.ok_or(Stop::Not)
}

/// An expression over a projection as one over its input.
fn inlined(expr: Expr, projection: &Projection) -> Made<Expr> {
    let columns = projection.schema.columns();
    replaced(expr, |column| {
        let place = columns.iter().position(|known| known == column)?;
        Some(projection.expr[place].clone().unalias())
    })
}

pub(super) fn replaced(expr: Expr, to: impl Fn(&Column) -> Option<Expr>) -> Made<Expr> {
    let rewritten = expr.transform_up(|part| {
        let found = match &part {
            Expr::Column(column) => to(column),
            _ => None,
        };
        Ok(match found {
            Some(other) => Transformed::yes(other),
            None => Transformed::no(part),
        })
    })?;
    Ok(rewritten.data)
}

fn new_name(renamed: &[(Column, Column)], column: &Column) -> Option<Expr> {
    let (_, new) = renamed.iter().find(|(old, _)| old == column)?;
    Some(Expr::Column(new.clone()))
}

/// Whether a subquery has one row at most, whatever the outer values are.
fn has_one_row(plan: &LogicalPlan) -> Made<bool> {
    Ok(match plan {
        LogicalPlan::Projection(projection) => has_one_row(&projection.input)?,
        LogicalPlan::SubqueryAlias(alias) => has_one_row(&alias.input)?,
        LogicalPlan::Sort(sort) => sort.fetch == Some(1) || has_one_row(&sort.input)?,
        LogicalPlan::Filter(filter) => has_one_row(&filter.input)?,
        LogicalPlan::Distinct(Distinct::All(input)) => has_one_row(input)?,
        LogicalPlan::Aggregate(aggregate) => aggregate.group_expr.is_empty(),
        LogicalPlan::EmptyRelation(_) => true,
        LogicalPlan::Limit(limit) => {
            let one = matches!(limit.get_fetch_type()?, FetchType::Literal(Some(0 | 1)));
            one || has_one_row(&limit.input)?
        }
        _ => false,
    })
}

/// A subquery of which only the number of rows matters, and of that only whether it is 0, without what does not change that.
fn stripped(plan: &LogicalPlan) -> Made<&LogicalPlan> {
    match plan {
        LogicalPlan::Projection(projection) => stripped(&projection.input),
        LogicalPlan::SubqueryAlias(alias) => stripped(&alias.input),
        LogicalPlan::Distinct(Distinct::All(input)) => stripped(input),
        LogicalPlan::Sort(sort) if sort.fetch != Some(0) => stripped(&sort.input),
        LogicalPlan::Limit(limit) => match (limit.get_skip_type()?, limit.get_fetch_type()?) {
            (SkipType::Literal(0), FetchType::Literal(fetch)) if fetch != Some(0) => {
                stripped(&limit.input)
            }
            _ => Ok(plan),
        },
        _ => Ok(plan),
    }
}

/// An aggregate of all rows is a row, also of none.
fn always_has_rows(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Projection(projection) => always_has_rows(&projection.input),
        LogicalPlan::SubqueryAlias(alias) => always_has_rows(&alias.input),
        LogicalPlan::Sort(sort) => sort.fetch != Some(0) && always_has_rows(&sort.input),
        LogicalPlan::Aggregate(aggregate) => aggregate.group_expr.is_empty(),
        _ => false,
    }
}
