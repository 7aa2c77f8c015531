//! A dependent join, pushed down to where the rows below depend on nothing.
//!
//! Neumann and Kemper, "Unnesting Arbitrary Queries" (BTW 2015): a subquery that refers to columns of the rows around it is asked
//! for all distinct values of these columns at once. Every operator of it does its work for each of them, by having them among
//! its columns: groups and windows are formed within them, joins compare them. Where nothing below refers to them, they are joined
//! with what is there; or, section 3.3, are columns of it, where conditions say that these equal them.

use std::sync::Arc;

use datafusion::common::{Column, ExprSchema, NullEquality, TableReference};
use datafusion::functions_nested::expr_fn::make_array;
use datafusion::functions_window::row_number::row_number_udwf;
use datafusion::logical_expr::expr::{Case, Sort as SortExpr, WindowFunction};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::{conjunction, split_conjunction};
use datafusion::logical_expr::{
    Aggregate, Distinct, DistinctOn, Expr, ExprSchemable, FetchType, Filter, Join, JoinConstraint,
    JoinType, Limit, LogicalPlan, LogicalPlanBuilder, Operator, Projection, SkipType,
    SubqueryAlias, Union, Values, Window, WindowFunctionDefinition, lit, when,
};
use datafusion::scalar::ScalarValue;

use super::domain::{Outer, fresh};
use super::scope::{bound, has_outer, refers, sides};
use super::{Made, Names, Stop, columns, equal, named};

/// A plan that has the rows of a subquery for many rows around it.
pub(super) struct Pushed {
    /// It has the columns of the subquery, under their names, and more.
    pub(super) plan: LogicalPlan,
    /// The columns that say of which outer values a row is, as [`Outer::columns`].
    pub(super) values: Vec<Column>,
    /// Whether none of these is NULL.
    pub(super) known: bool,
}

/// The rows of a subquery for the values of `outer`. Of values that no row around has, there may be rows as well.
pub(super) struct Push<'a> {
    pub(super) outer: &'a Outer,
    pub(super) names: &'a Names,
}

impl Push<'_> {
    pub(super) fn push(&mut self, plan: &LogicalPlan) -> Made<Pushed> {
        if let LogicalPlan::Subquery(subquery) = plan {
            return self.push(&subquery.subquery);
        }
        if !refers(plan, &self.outer.columns)? {
            return self.beside(plan);
        }
        match plan {
            LogicalPlan::Projection(projection) => self.projection(projection),
            LogicalPlan::Filter(filter) => self.filter(filter),
            LogicalPlan::SubqueryAlias(alias) => {
                let pushed = self.push(&alias.input)?;
                self.renamed(pushed, alias.input.schema().columns(), plan)
            }
            LogicalPlan::Aggregate(aggregate) => self.aggregate(aggregate),
            LogicalPlan::Distinct(Distinct::All(input)) => {
                let pushed = self.push(input)?;
                let exact = exact(pushed, plan)?;
                let plan = LogicalPlan::Distinct(Distinct::All(Arc::new(exact.plan)));
                Ok(Pushed { plan, ..exact })
            }
            LogicalPlan::Distinct(Distinct::On(on)) => self.distinct_on(on),
            // The order of rows says nothing unless a limit follows, which looks for it.
            LogicalPlan::Sort(sort) => match sort.fetch {
                None => self.push(&sort.input),
                Some(fetch) => self.limited(&sort.expr, &sort.input, 0, Some(fetch)),
            },
            LogicalPlan::Limit(limit) => self.limit(limit),
            LogicalPlan::Window(window) => self.window(window),
            LogicalPlan::Join(join) => self.join(join),
            LogicalPlan::Union(union) => self.union(union),
            LogicalPlan::Values(values) => self.rows(values),
            LogicalPlan::Unnest(unnest) => {
                let pushed = self.push(&unnest.input)?;
                let plan = LogicalPlanBuilder::from(pushed.plan)
                    .unnest_columns_with_options(
                        unnest.exec_columns.clone(),
                        unnest.options.clone(),
                    )?
                    .build()?;
                Ok(Pushed { plan, ..pushed })
            }
            _ => Err(Stop::Not),
        }
    }

    /// An expression with what it refers to of the rows around, under its old name.
    fn own(&self, node: &LogicalPlan, expr: &Expr, values: &[Column]) -> Made<Expr> {
        let name = NamePreserver::new(node).save(expr);
        Ok(name.restore(self.bound(expr, values)?))
    }

    pub(super) fn bound(&self, expr: &Expr, values: &[Column]) -> Made<Expr> {
        Ok(bound(expr.clone(), &self.outer.columns, values)?)
    }

    fn all_own(&self, node: &LogicalPlan, exprs: &[Expr], values: &[Column]) -> Made<Vec<Expr>> {
        let own = exprs.iter().map(|expr| self.own(node, expr, values));
        own.collect()
    }

    fn sorts(&self, sorts: &[SortExpr], values: &[Column]) -> Made<Vec<SortExpr>> {
        let bound = sorts.iter().map(|sort| {
            let expr = self.bound(&sort.expr, values)?;
            Ok(SortExpr {
                expr,
                ..sort.clone()
            })
        });
        bound.collect()
    }

    /// Rows that do not depend: the same ones for all values.
    fn beside(&mut self, plan: &LogicalPlan) -> Made<Pushed> {
        let (domain, values) = self.outer.domain(self.names)?;
        let plan = match plan {
            LogicalPlan::EmptyRelation(empty)
                if empty.produce_one_row && empty.schema.fields().is_empty() =>
            {
                domain
            }
            plan => {
                let (domain, plan) = (Arc::new(domain), Arc::new(plan.clone()));
                joined(domain, plan, JoinType::Inner, vec![], None)?
            }
        };
        let known = self.outer.known;
        Ok(Pushed {
            plan,
            values,
            known,
        })
    }

    fn projection(&mut self, projection: &Projection) -> Made<Pushed> {
        let pushed = self.push(&projection.input)?;
        let node = LogicalPlan::Projection(projection.clone());
        let mut exprs = self.all_own(&node, &projection.expr, &pushed.values)?;
        exprs.extend(columns(&pushed.values));
        let projection = Projection::try_new(exprs, Arc::new(pushed.plan))?;
        let plan = LogicalPlan::Projection(projection);
        Ok(Pushed { plan, ..pushed })
    }

    fn filter(&mut self, filter: &Filter) -> Made<Pushed> {
        let below = refers(&filter.input, &self.outer.columns)?;
        if !below && let Some(pushed) = self.keyed(filter)? {
            return Ok(pushed);
        }
        let pushed = self.push(&filter.input)?;
        let known = pushed.known || self.none_is_null(&filter.predicate);
        let predicate = self.bound(&filter.predicate, &pushed.values)?;
        let plan = filtered(pushed.plan, predicate)?;
        Ok(Pushed {
            plan,
            values: pushed.values,
            known,
        })
    }

    /// Whether comparisons leave no row for an outer value that is NULL.
    fn none_is_null(&self, predicate: &Expr) -> bool {
        let conditions = split_conjunction(predicate);
        let compared = |column: &Column| {
            conditions.iter().any(|condition| match condition {
                Expr::BinaryExpr(binary) => {
                    let sides = [&binary.left, &binary.right];
                    compares(binary.op) && sides.iter().any(|side| is_outer(side, column))
                }
                _ => false,
            })
        };
        self.outer.columns.iter().all(compared)
    }

    /// The rows of a filter that says for every outer value which column equals it.
    fn keyed(&mut self, filter: &Filter) -> Made<Option<Pushed>> {
        let outer = &self.outer.columns;
        let (mut own, mut others) = (Vec::new(), Vec::new());
        let mut keys: Vec<Option<Expr>> = vec![None; outer.len()];
        for condition in split_conjunction(&filter.predicate) {
            if !has_outer(condition, outer)? {
                own.push(condition.clone());
                continue;
            }
            match key(condition, outer) {
                Some((place, expr))
                    if keys[place].is_none() && self.is_of_type(&expr, &filter.input, place)? =>
                {
                    keys[place] = Some(expr);
                }
                _ => others.push(condition.clone()),
            }
        }
        let Some(keys) = keys.into_iter().collect::<Option<Vec<_>>>() else {
            return Ok(None);
        };
        let mut input = filter.input.as_ref().clone();
        if let Some(own) = conjunction(own) {
            input = filtered(input, own)?;
        }
        let values = fresh(self.names, keys.len());
        let mut exprs = columns(&input.schema().columns());
        exprs.extend(
            keys.into_iter()
                .zip(&values)
                .map(|(key, value)| named(key, value)),
        );
        let plan = LogicalPlan::Projection(Projection::try_new(exprs, Arc::new(input))?);
        let known = values
            .iter()
            .cloned()
            .map(|column| Expr::Column(column).is_not_null());
        let mut conditions: Vec<Expr> = known.collect();
        for other in others {
            conditions.push(self.bound(&other, &values)?);
        }
        let plan = match conjunction(conditions) {
            Some(condition) => filtered(plan, condition)?,
            None => plan,
        };
        Ok(Some(Pushed {
            plan,
            values,
            known: true,
        }))
    }

    fn is_of_type(&self, expr: &Expr, input: &LogicalPlan, place: usize) -> Made<bool> {
        let data_type = self.outer.data_type(place);
        Ok(!expr.is_volatile() && expr.get_type(input.schema())? == *data_type)
    }

    fn aggregate(&mut self, aggregate: &Aggregate) -> Made<Pushed> {
        let grouped = self.grouped(aggregate)?;
        if !aggregate.group_expr.is_empty() {
            return Ok(grouped);
        }
        // Without groups there is a row for all values, also for those that have no rows.
        let (domain, values) = self.outer.domain(self.names)?;
        let (found, defaults) = self.marked(grouped, aggregate)?;
        let on = self.outer.same(&values, &found.values, found.known)?;
        let found = Arc::new(found.plan);
        let plan = joined(Arc::new(domain), found, JoinType::Left, on, None)?;
        let mut exprs = columns(&values);
        exprs.extend(defaults);
        let projection = Projection::try_new(exprs, Arc::new(plan))?;
        Ok(Pushed {
            plan: LogicalPlan::Projection(projection),
            values,
            known: self.outer.known,
        })
    }

    /// An aggregation within the values, without those that have no rows.
    pub(super) fn grouped(&mut self, aggregate: &Aggregate) -> Made<Pushed> {
        if let [Expr::GroupingSet(_)] = &*aggregate.group_expr {
            return Err(Stop::Not);
        }
        if let Some(running) = self.running(aggregate)? {
            return Ok(running);
        }
        let pushed = self.push(&aggregate.input)?;
        let node = LogicalPlan::Aggregate(aggregate.clone());
        let mut groups = columns(&pushed.values);
        groups.extend(self.all_own(&node, &aggregate.group_expr, &pushed.values)?);
        let calls = self.all_own(&node, &aggregate.aggr_expr, &pushed.values)?;
        let plan = Aggregate::try_new(Arc::new(pushed.plan), groups, calls)?;
        Ok(Pushed {
            plan: LogicalPlan::Aggregate(plan),
            ..pushed
        })
    }

    /// Adds a column to an aggregation without groups that says that its row is there; beside it, what its columns are behind
    /// a join that puts NULL where it is not.
    pub(super) fn marked(
        &mut self,
        grouped: Pushed,
        aggregate: &Aggregate,
    ) -> Made<(Pushed, Vec<Expr>)> {
        let name = self.names.next("found");
        let marker = Column::new(Some(TableReference::bare(name.as_str())), name);
        let fields = aggregate.schema.iter().map(Column::from);
        let mut defaults = Vec::with_capacity(aggregate.aggr_expr.len());
        let mut exprs = columns(&grouped.values);
        for (column, call) in fields.zip(&aggregate.aggr_expr) {
            let value = Expr::Column(column.clone());
            exprs.push(value.clone());
            let of_nothing = of_nothing(call, aggregate)?;
            defaults.push(match of_nothing.is_null() {
                true => value,
                false => {
                    let nothing = Expr::Column(marker.clone()).is_null();
                    let of_nothing = Expr::Literal(of_nothing, None);
                    let mut chosen = when(nothing, of_nothing);
                    chosen
                        .otherwise(value)?
                        .alias_qualified(column.relation, column.name)
                }
            });
        }
        exprs.push(named(lit(true), &marker));
        let projection = Projection::try_new(exprs, Arc::new(grouped.plan))?;
        let plan = LogicalPlan::Projection(projection);
        Ok((Pushed { plan, ..grouped }, defaults))
    }

    fn distinct_on(&mut self, distinct: &DistinctOn) -> Made<Pushed> {
        let pushed = self.push(&distinct.input)?;
        let values = &pushed.values;
        let node = LogicalPlan::Distinct(Distinct::On(distinct.clone()));
        let mut on = columns(values);
        for expr in &distinct.on_expr {
            on.push(self.bound(expr, values)?);
        }
        let mut select = self.all_own(&node, &distinct.select_expr, values)?;
        select.extend(columns(values));
        let sort = match &distinct.sort_expr {
            None => None,
            Some(sorts) => {
                let first = columns(values)
                    .into_iter()
                    .map(|expr| expr.sort(true, false));
                let mut all: Vec<SortExpr> = first.collect();
                all.extend(self.sorts(sorts, values)?);
                Some(all)
            }
        };
        let on = DistinctOn::try_new(on, select, sort, Arc::new(pushed.plan))?;
        Ok(Pushed {
            plan: LogicalPlan::Distinct(Distinct::On(on)),
            values: pushed.values,
            known: pushed.known,
        })
    }

    fn limit(&mut self, limit: &Limit) -> Made<Pushed> {
        let (SkipType::Literal(skip), FetchType::Literal(fetch)) =
            (limit.get_skip_type()?, limit.get_fetch_type()?)
        else {
            return Err(Stop::Not);
        };
        match limit.input.as_ref() {
            LogicalPlan::Sort(sort) if sort.fetch.is_none() => {
                self.limited(&sort.expr, &sort.input, skip, fetch)
            }
            // The columns of a projection may be less than what its rows are ordered by.
            LogicalPlan::Projection(projection) if matches!(&*projection.input, LogicalPlan::Sort(sort) if sort.fetch.is_none()) =>
            {
                let limit = Limit {
                    skip: limit.skip.clone(),
                    fetch: limit.fetch.clone(),
                    input: Arc::clone(&projection.input),
                };
                let projection = Projection::try_new(
                    projection.expr.clone(),
                    Arc::new(LogicalPlan::Limit(limit)),
                )?;
                self.projection(&projection)
            }
            input => self.limited(&[], input, skip, fetch),
        }
    }

    /// The first rows of each value, by their number.
    fn limited(
        &mut self,
        sorts: &[SortExpr],
        input: &LogicalPlan,
        skip: usize,
        fetch: Option<usize>,
    ) -> Made<Pushed> {
        if (skip, fetch) == (0, Some(1))
            && let Some(nearest) = self.nearest(sorts, input)?
        {
            return Ok(nearest);
        }
        let pushed = self.push(input)?;
        let mut call = WindowFunction::new(
            WindowFunctionDefinition::WindowUDF(row_number_udwf()),
            vec![],
        );
        call.params.partition_by = columns(&pushed.values);
        call.params.order_by = match sorts {
            [] => some_order(input, &pushed.values),
            sorts => self.sorts(sorts, &pushed.values)?,
        };
        let name = self.names.next("row");
        let call = Expr::WindowFunction(Box::new(call)).alias(&name);
        let window = Window::try_new(vec![call], Arc::new(pushed.plan))?;
        let number = Expr::Column(Column::new_unqualified(name));
        let mut within = number.clone().gt(lit(skip as u64));
        if let Some(fetch) = fetch {
            within = within.and(number.lt_eq(lit(skip.saturating_add(fetch) as u64)));
        }
        let plan = filtered(LogicalPlan::Window(window), within)?;
        Ok(Pushed {
            plan,
            values: pushed.values,
            known: pushed.known,
        })
    }

    fn window(&mut self, window: &Window) -> Made<Pushed> {
        let pushed = self.push(&window.input)?;
        let node = LogicalPlan::Window(window.clone());
        let mut calls = Vec::with_capacity(window.window_expr.len());
        for expr in &window.window_expr {
            let name = NamePreserver::new(&node).save(expr);
            let Expr::WindowFunction(mut call) = self.bound(expr, &pushed.values)?.unalias() else {
                return Err(Stop::Not);
            };
            let within = columns(&pushed.values);
            call.params.partition_by.splice(0..0, within);
            calls.push(name.restore(Expr::WindowFunction(call)));
        }
        let window = Window::try_new(calls, Arc::new(pushed.plan))?;
        Ok(Pushed {
            plan: LogicalPlan::Window(window),
            values: pushed.values,
            known: pushed.known,
        })
    }

    fn join(&mut self, join: &Join) -> Made<Pushed> {
        if join.null_aware {
            return Err(Stop::Not);
        }
        let outer = &self.outer.columns;
        let (left, right) = (refers(&join.left, outer)?, refers(&join.right, outer)?);
        // The side all rows of which stay has the values.
        let (left, right) = match join.join_type {
            JoinType::Inner => (left || !right, right),
            JoinType::Left | JoinType::LeftSemi | JoinType::LeftAnti | JoinType::LeftMark => {
                (true, right)
            }
            JoinType::Right => (left, true),
            _ => return Err(Stop::Not),
        };
        let (mut sides, mut plans) = (Vec::new(), Vec::new());
        for (number, (side, depends)) in [(&join.left, left), (&join.right, right)]
            .into_iter()
            .enumerate()
        {
            if !depends {
                plans.push(Arc::clone(side));
                continue;
            }
            let mut pushed = self.push(side)?;
            if number == 1 && join.join_type == JoinType::LeftMark {
                pushed = under_one_name(pushed, side)?;
            }
            plans.push(Arc::new(pushed.plan));
            sides.push((pushed.values, pushed.known));
        }
        let (Some(right_plan), Some(left_plan)) = (plans.pop(), plans.pop()) else {
            return Err(Stop::Not);
        };
        let stays = match join.join_type {
            JoinType::Right => sides.len() - 1,
            _ => 0,
        };
        let (values, known) = sides[stays].clone();
        let (mut on, mut conditions) = (Vec::new(), Vec::new());
        for pair in &join.on {
            match has_outer(&pair.0, outer)? || has_outer(&pair.1, outer)? {
                false => on.push(pair.clone()),
                true => conditions.push(self.bound(&equal(join, pair), &values)?),
            }
        }
        if let Some(filter) = &join.filter {
            conditions.push(self.bound(filter, &values)?);
        }
        if let [(left, left_known), (right, right_known)] = &*sides {
            match join.null_equality {
                NullEquality::NullEqualsNull => on.extend(pairs(left, right)),
                NullEquality::NullEqualsNothing => {
                    let known = *left_known || *right_known;
                    on.extend(self.outer.same(left, right, known)?);
                }
            }
        }
        let join = Join::try_new(
            left_plan,
            right_plan,
            on,
            conjunction(conditions),
            join.join_type,
            JoinConstraint::On,
            join.null_equality,
            false,
        )?;
        Ok(Pushed {
            plan: LogicalPlan::Join(join),
            values,
            known,
        })
    }

    fn union(&mut self, union: &Union) -> Made<Pushed> {
        let mut inputs = Vec::with_capacity(union.inputs.len());
        let mut known = true;
        let mut values = Vec::new();
        for input in &union.inputs {
            let pushed = exact(self.push(input)?, input)?;
            known &= pushed.known;
            values = pushed.values;
            inputs.push(Arc::new(pushed.plan));
        }
        let plan = LogicalPlan::Union(Union::try_new_with_loose_types(inputs)?);
        let mut fields = plan.schema().columns();
        let values = fields.split_off(fields.len() - values.len());
        let pushed = Pushed {
            plan,
            values,
            known,
        };
        self.renamed(pushed, fields, &LogicalPlan::Union(union.clone()))
    }

    /// VALUES of outer columns: each outer value beside the numbers of the rows, which choose.
    fn rows(&mut self, rows: &Values) -> Made<Pushed> {
        let (domain, values) = self.outer.domain(self.names)?;
        let mut exprs = Vec::with_capacity(rows.schema.fields().len() + values.len());
        let number = Column::from_name(self.names.next("row"));
        for (at, column) in rows.schema.columns().into_iter().enumerate() {
            let data_type = rows.schema.field_from_column(&column)?.data_type();
            let of_column = rows.values.iter().map(|row| {
                let expr = self.bound(&row[at], &values)?;
                Ok(expr.cast_to(data_type, domain.schema())?)
            });
            let expr = chosen(&number, of_column.collect::<Made<_>>()?)?;
            exprs.push(expr.alias_qualified(column.relation, column.name));
        }
        exprs.extend(columns(&values));
        let input = match rows.values.len() {
            1 => domain,
            rows => {
                let numbers = (0..rows as i32).map(lit).collect();
                let numbers = make_array(numbers).alias(&number.name);
                let numbers = columns(&values).into_iter().chain([numbers]);
                LogicalPlanBuilder::from(domain)
                    .project(numbers)?
                    .unnest_column(number)?
                    .build()?
            }
        };
        let plan = LogicalPlan::Projection(Projection::try_new(exprs, Arc::new(input))?);
        let known = self.outer.known;
        Ok(Pushed {
            plan,
            values,
            known,
        })
    }

    /// The columns `from` under the names that they have in `to`, and the values under new ones.
    fn renamed(&mut self, pushed: Pushed, from: Vec<Column>, to: &LogicalPlan) -> Made<Pushed> {
        let values = fresh(self.names, pushed.values.len());
        let from = from.into_iter().chain(pushed.values);
        let to = to.schema().columns().into_iter().chain(values.clone());
        let exprs = from.map(Expr::Column).zip(to);
        let exprs = exprs.map(|(from, to)| named(from, &to)).collect();
        let projection = Projection::try_new(exprs, Arc::new(pushed.plan))?;
        Ok(Pushed {
            plan: LogicalPlan::Projection(projection),
            values,
            known: pushed.known,
        })
    }
}

/// The one of the expressions that has the number, from 0.
fn chosen(number: &Column, exprs: Vec<Expr>) -> Made<Expr> {
    let mut exprs = exprs;
    let last = exprs.pop().ok_or(Stop::Not)?;
    let cases = exprs.into_iter().zip(0_i32..).map(|(expr, at)| {
        let is_this = Expr::Column(number.clone()).eq(lit(at));
        (Box::new(is_this), Box::new(expr))
    });
    let cases: Vec<_> = cases.collect();
    Ok(match cases.is_empty() {
        true => last,
        false => Expr::Case(Case::new(None, cases, Some(Box::new(last)))),
    })
}

/// The columns of `of` and the values, and no more.
fn exact(pushed: Pushed, of: &LogicalPlan) -> Made<Pushed> {
    let mut exprs = columns(&of.schema().columns());
    exprs.extend(columns(&pushed.values));
    let projection = Projection::try_new(exprs, Arc::new(pushed.plan))?;
    let plan = LogicalPlan::Projection(projection);
    Ok(Pushed { plan, ..pushed })
}

/// An order for a limit without one: by few columns, so that the same rows come each time, or else by none.
fn some_order(plan: &LogicalPlan, values: &[Column]) -> Vec<SortExpr> {
    const FEW: usize = 4;
    let schema = plan.schema();
    let few = schema.fields().len() <= FEW;
    let by = match few
        && schema
            .fields()
            .iter()
            .all(|field| !field.data_type().is_nested())
    {
        true => columns(&schema.columns()),
        false => columns(values),
    };
    by.into_iter().map(|expr| expr.sort(true, false)).collect()
}

/// As [`exact`], all columns under the name of the table that `of` has: the mark of a join has the name of its right side.
fn under_one_name(pushed: Pushed, of: &LogicalPlan) -> Made<Pushed> {
    let exact = exact(pushed, of)?;
    let (Some(name), _) = of.schema().qualified_field(0) else {
        return Err(Stop::Not);
    };
    let named = |column: Column| Column::new(Some(name.clone()), column.name);
    let plan = SubqueryAlias::try_new(Arc::new(exact.plan), name.clone())?;
    Ok(Pushed {
        plan: LogicalPlan::SubqueryAlias(plan),
        values: exact.values.into_iter().map(named).collect(),
        known: exact.known,
    })
}

/// An outer column, by its place, and what of the rows below equals it.
fn key(condition: &Expr, outer: &[Column]) -> Option<(usize, Expr)> {
    let (left, right) = sides(condition)?;
    [(left, right), (right, left)]
        .into_iter()
        .find_map(|(side, other)| {
            let Expr::OuterReferenceColumn(_, column) = side else {
                return None;
            };
            let place = outer.iter().position(|known| known == column)?;
            let below = !other.contains_outer() && other.any_column_refs();
            below.then(|| (place, other.clone()))
        })
}

/// An outer column, also as another type: NULL where it is.
pub(super) fn is_outer(expr: &Expr, column: &Column) -> bool {
    match expr {
        Expr::OuterReferenceColumn(_, known) => known == column,
        Expr::Cast(cast) => is_outer(&cast.expr, column),
        _ => false,
    }
}

/// A comparison that is NULL where a side of it is.
fn compares(op: Operator) -> bool {
    use Operator::{Eq, Gt, GtEq, Lt, LtEq, NotEq};
    matches!(op, Eq | NotEq | Lt | LtEq | Gt | GtEq)
}

/// What an aggregate is of no rows.
fn of_nothing(call: &Expr, aggregate: &Aggregate) -> Made<ScalarValue> {
    let data_type = call.get_type(aggregate.input.schema())?;
    match call.clone().unalias() {
        Expr::AggregateFunction(call) => Ok(call.func.default_value(&data_type)?),
        _ => Err(Stop::Not),
    }
}

fn pairs(left: &[Column], right: &[Column]) -> Vec<(Expr, Expr)> {
    columns(left).into_iter().zip(columns(right)).collect()
}

pub(super) fn filtered(plan: LogicalPlan, predicate: Expr) -> Made<LogicalPlan> {
    let filter = Filter::try_new(predicate, Arc::new(plan))?;
    Ok(LogicalPlan::Filter(filter))
}

/// A join on what [`Outer::same`] has, and on a condition.
pub(super) fn joined(
    left: Arc<LogicalPlan>,
    right: Arc<LogicalPlan>,
    join_type: JoinType,
    on: Vec<(Expr, Expr)>,
    condition: Option<Expr>,
) -> Made<LogicalPlan> {
    let join = Join::try_new(
        left,
        right,
        on,
        condition,
        join_type,
        JoinConstraint::On,
        NullEquality::NullEqualsNothing,
        false,
    )?;
    Ok(LogicalPlan::Join(join))
}
