//! Checks that a graph keeps the contract: scopes, types, order of steps.

use warpline_gpu::expr::{Expr, Node};
use warpline_gpu::graph::{Graph, ProbeKind, ResultKind, Sink, Source, Stage, Step};

/// Panics where the graph breaks its contract.
pub(crate) fn check(graph: &Graph) {
    let mut complete = vec![false; graph.results.len()];
    let names: std::collections::HashSet<_> = graph.results.iter().map(|r| &r.name).collect();
    assert_eq!(
        names.len(),
        graph.results.len(),
        "names are distinct\n{graph}"
    );
    for step in &graph.steps {
        let line = graph.describe_step(step);
        let read = |id: usize| {
            assert!(
                complete[id],
                "{line}: {id} is read before it is made\n{graph}"
            )
        };
        let into = match step {
            Step::Sort(sort) => {
                read(sort.rows);
                assert!(
                    matches!(graph.results[sort.rows].kind, ResultKind::Rows(_)),
                    "{line}"
                );
                let rows = graph.results[sort.rows].kind.columns();
                let sorted = graph.results[sort.into].kind.columns();
                assert!(sort.keys.iter().all(|k| k.column < rows.len()), "{line}");
                let added = sort.window.as_ref().map_or(0, |w| w.columns.len());
                assert!(sorted.len() <= rows.len() + added, "{line}");
                for (a, b) in sorted.iter().zip(rows) {
                    assert_eq!(a.data_type, b.data_type, "{line}");
                }
                Some(sort.into)
            }
            Step::Pipeline(p) => {
                match &p.source {
                    Source::Scan(_) | Source::One => {}
                    Source::Picked { of, by } => {
                        read(*by);
                        assert!(matches!(**of, Source::Scan(_)), "{line}");
                        let numbers = graph.results[*by].kind.columns();
                        assert_eq!(
                            numbers[0].data_type,
                            arrow::datatypes::DataType::UInt64,
                            "{line}"
                        );
                        let drops = |stage: &Stage| matches!(stage, Stage::Filter(_));
                        assert!(!p.stages.iter().any(drops), "{line}");
                    }
                    Source::Rows(id)
                    | Source::Groups(id)
                    | Source::Pairs(id)
                    | Source::Entries(id, _) => read(*id),
                }
                for (i, stage) in p.stages.iter().enumerate() {
                    let scope: Vec<_> =
                        graph.scope(p, i).into_iter().map(|c| c.data_type).collect();
                    match stage {
                        Stage::Filter(conjuncts) => {
                            assert!(!conjuncts.is_empty(), "{line}");
                            expressions(conjuncts, &scope, &line);
                        }
                        Stage::Scalar(id) => read(*id),
                        Stage::Mark(id) => {
                            read(*id);
                            assert_eq!(built(graph, *id).mark_sets, 1, "{line}");
                        }
                        Stage::Probe(probe) | Stage::Expand(probe) => {
                            read(probe.index);
                            expressions(&probe.keys, &scope, &line);
                            let mut both = scope.clone();
                            both.extend(
                                graph.results[probe.index]
                                    .kind
                                    .columns()
                                    .iter()
                                    .map(|c| c.data_type.clone()),
                            );
                            expressions(&probe.residual, &both, &line);
                            let build = built(graph, probe.index);
                            assert_eq!(build.keys.len(), probe.keys.len(), "{line}");
                            if matches!(stage, Stage::Probe(_))
                                && matches!(probe.kind, ProbeKind::Inner | ProbeKind::Left)
                            {
                                assert!(build.unique, "{line}");
                            }
                            for marks in &probe.marks {
                                expressions(marks, &both, &line);
                            }
                            assert!(probe.marks.len() <= build.mark_sets, "{line}");
                            assert!(!build.existence || probe.residual.is_empty(), "{line}");
                        }
                    }
                }
                let scope: Vec<_> = graph
                    .scope(p, p.stages.len())
                    .into_iter()
                    .map(|c| c.data_type)
                    .collect();
                match &p.sink {
                    Sink::Rows { into, columns } => {
                        expressions(columns, &scope, &line);
                        typed(
                            columns,
                            graph.results[*into]
                                .kind
                                .columns()
                                .iter()
                                .map(|c| &c.data_type),
                            &line,
                        );
                        Some(*into)
                    }
                    Sink::Aggregate { into, aggregate } => {
                        expressions(&aggregate.keys, &scope, &line);
                        for call in &aggregate.calls {
                            expressions(call.argument.as_slice(), &scope, &line);
                            expressions(call.filter.as_slice(), &scope, &line);
                        }
                        let columns = graph.results[*into].kind.columns();
                        assert_eq!(
                            columns.len(),
                            aggregate.keys.len() + aggregate.calls.len(),
                            "{line}"
                        );
                        typed(
                            &aggregate.keys,
                            columns
                                .iter()
                                .take(aggregate.keys.len())
                                .map(|c| &c.data_type),
                            &line,
                        );
                        Some(*into)
                    }
                    Sink::Build { into, build } => {
                        expressions(&build.keys, &scope, &line);
                        expressions(&build.payload, &scope, &line);
                        typed(
                            &build.payload,
                            graph.results[*into]
                                .kind
                                .columns()
                                .iter()
                                .map(|c| &c.data_type),
                            &line,
                        );
                        assert!(!build.existence || build.payload.is_empty(), "{line}");
                        Some(*into)
                    }
                    Sink::Matches {
                        into,
                        probe,
                        columns,
                    } => {
                        read(probe.index);
                        expressions(&probe.keys, &scope, &line);
                        expressions(columns, &scope, &line);
                        assert!(
                            probe.residual.is_empty() && probe.marks.iter().all(Vec::is_empty),
                            "{line}"
                        );
                        Some(*into)
                    }
                    Sink::Discard => None,
                }
            }
        };
        if let Some(into) = into {
            complete[into] = true;
        }
    }
    assert!(complete[graph.output], "{graph}");
    let output = graph.results[graph.output].kind.columns();
    assert_eq!(output.len(), graph.schema.fields().len(), "{graph}");
    for (column, field) in output.iter().zip(graph.schema.fields()) {
        assert_eq!(&column.data_type, field.data_type(), "{graph}");
    }
}

fn built(graph: &Graph, index: usize) -> &warpline_gpu::graph::Build {
    graph
        .steps
        .iter()
        .find_map(|step| match step {
            Step::Pipeline(p) => match &p.sink {
                Sink::Build { into, build } if *into == index => Some(build),
                _ => None,
            },
            Step::Sort(_) => None,
        })
        .unwrap()
}

fn typed<'a>(
    exprs: &[Expr],
    types: impl ExactSizeIterator<Item = &'a arrow::datatypes::DataType>,
    line: &str,
) {
    assert_eq!(exprs.len(), types.len(), "{line}");
    for (expr, data_type) in exprs.iter().zip(types) {
        assert_eq!(&expr.data_type, data_type, "{line}");
    }
}

fn expressions(exprs: &[Expr], scope: &[arrow::datatypes::DataType], line: &str) {
    for expr in exprs {
        expr.for_each_column(&mut |i| {
            assert!(i < scope.len(), "{line}: column {i} of {}", scope.len())
        });
        columns_typed(expr, scope, line);
    }
}

fn columns_typed(expr: &Expr, scope: &[arrow::datatypes::DataType], line: &str) {
    if let Node::Column(i) = expr.node {
        assert_eq!(expr.data_type, scope[i], "{line}");
    }
    for child in crate::rel::expr::children(expr) {
        columns_typed(child, scope, line);
    }
}
