//! Graphs as text for EXPLAIN: one line a step.
//!
//! ```text
//! customer*(c_custkey) := scan customer | filter (c_mktsegment = 'X') | build unique (c_custkey) set
//! groups of orders := scan orders | semi customer*(c_custkey) on (o_custkey) | aggregate by o_orderdate: count(*)
//! ```

use std::fmt::{self, Display, Formatter};
use std::sync::Arc;

use arrow::datatypes::{Field, FieldRef};

use super::{
    Band, Bound, Build, Graph, Pipeline, Probe, ProbeKind, ResultColumn, ResultId, Sink, SortKey,
    Source, Stage, Step,
};
use crate::expr::Expr;

impl Display for Graph {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for (number, step) in self.steps.iter().enumerate() {
            if number > 0 {
                writeln!(f)?;
            }
            f.write_str(&self.describe_step(step))?;
        }
        Ok(())
    }
}

impl Graph {
    /// One step as a line of text.
    pub fn describe_step(&self, step: &Step) -> String {
        match step {
            Step::Pipeline(pipeline) => self.describe_pipeline(pipeline),
            Step::Sort(sort) => {
                let columns = fields(self.results[sort.rows].kind.columns());
                let mut text = format!(
                    "{} := sort {}",
                    self.results[sort.into].name, self.results[sort.rows].name
                );
                if !sort.keys.is_empty() {
                    let keys: Vec<_> = sort.keys.iter().map(|k| order(k, &columns)).collect();
                    text += &format!(" by {}", keys.join(", "));
                }
                if sort.skip > 0 {
                    text += &format!(" skip {}", sort.skip);
                }
                if let Some(fetch) = sort.fetch {
                    text += &format!(" fetch {fetch}");
                }
                if let Some(window) = &sort.window {
                    let results = self.results[sort.into].kind.columns().iter();
                    let added = results
                        .skip(columns.len())
                        .map(|column| column.name.clone());
                    let added: Vec<String> = added.collect();
                    text += &format!(
                        " in partitions by the first {}: {}",
                        window.partition,
                        added.join(", ")
                    );
                    if let Some(first) = &window.first {
                        text += &format!("; of each the rows of {first}");
                    }
                    let lists = window
                        .lists
                        .iter()
                        .filter_map(|list| columns.get(list.column));
                    let lists: Vec<&str> = lists.map(|of| of.name().as_str()).collect();
                    if !lists.is_empty() {
                        text += &format!("; lists of {}", lists.join(", "));
                    }
                }
                text
            }
        }
    }

    fn describe_pipeline(&self, pipeline: &Pipeline) -> String {
        let into = match &pipeline.sink {
            Sink::Rows { into, .. }
            | Sink::Aggregate { into, .. }
            | Sink::Build { into, .. }
            | Sink::Matches { into, .. } => Some(*into),
            Sink::Discard => None,
        };
        let target = into.map_or("marks".to_string(), |into| {
            let result = &self.results[into];
            format!("{} ~{}", result.name, result.estimate)
        });
        let mut text = format!("{target} := {}", self.describe_source(&pipeline.source));
        for (i, stage) in pipeline.stages.iter().enumerate() {
            let scope = fields(&self.scope(pipeline, i));
            text += " | ";
            text += &match stage {
                Stage::Filter(conjuncts) => {
                    let conjuncts: Vec<_> = conjuncts
                        .iter()
                        .map(|e| e.named(&scope).to_string())
                        .collect();
                    format!("filter {}", conjuncts.join(" AND "))
                }
                Stage::Probe(probe) => self.describe_probe(probe, &scope),
                Stage::Expand(probe) => format!("all of {}", self.describe_probe(probe, &scope)),
                Stage::Mark(id) => format!("mark {}", self.results[*id].name),
                Stage::Scalar(id) => format!("beside {}", self.results[*id].name),
            };
        }
        let scope = fields(&self.scope(pipeline, pipeline.stages.len()));
        text + " | " + &self.describe_sink(&pipeline.sink, &scope)
    }

    fn describe_source(&self, source: &Source) -> String {
        let name = |id: &ResultId| self.results[*id].name.as_str();
        match source {
            Source::Scan(scan) => format!("scan {}", self.scans[*scan].name),
            Source::Rows(id) => format!("rows {}", name(id)),
            Source::Groups(id) => format!("groups {}", name(id)),
            Source::Pairs(id) => format!("pairs {}", name(id)),
            Source::Entries(id, marked) => {
                let sets = marked.iter().map(|marked| match marked {
                    true => "matched ",
                    false => "unmatched ",
                });
                sets.collect::<String>() + name(id)
            }
            Source::Picked { of, by } => {
                format!("{} picked by {}", self.describe_source(of), name(by))
            }
            Source::One => "one row".into(),
        }
    }

    fn describe_probe(&self, probe: &Probe, scope: &[FieldRef]) -> String {
        let kind = match probe.kind {
            ProbeKind::Inner => "probe",
            ProbeKind::Left => "outer probe",
            ProbeKind::Semi => "semi",
            ProbeKind::Anti => "anti",
            ProbeKind::NullAwareAnti => "not in",
            ProbeKind::Mark => "mark",
        };
        let mut text = format!(
            "{kind} {} on ({})",
            self.results[probe.index].name,
            list(&probe.keys, scope)
        );
        if let Some(band) = &probe.band {
            text += &describe_band(band, scope);
        }
        let mut both = scope.to_vec();
        both.extend(fields(self.results[probe.index].kind.columns()));
        if !probe.residual.is_empty() {
            text += &format!(" if ({})", list(&probe.residual, &both));
        }
        for (set, conditions) in probe.marks.iter().enumerate() {
            text += if set == 0 { " marking" } else { ", again" };
            if !conditions.is_empty() {
                text += &format!(" if ({})", list(conditions, &both));
            }
        }
        text
    }

    fn describe_sink(&self, sink: &Sink, scope: &[FieldRef]) -> String {
        match sink {
            Sink::Rows { columns, .. } => format!("rows ({})", list(columns, scope)),
            Sink::Aggregate { aggregate, .. } => {
                let calls: Vec<_> = aggregate
                    .calls
                    .iter()
                    .map(|call| {
                        let argument = call
                            .argument
                            .as_ref()
                            .map_or("*".to_string(), |e| e.named(scope).to_string());
                        let distinct = if call.distinct { "distinct " } else { "" };
                        let filter = call
                            .filter
                            .as_ref()
                            .map_or(String::new(), |e| format!(" filter {}", e.named(scope)));
                        format!("{}({distinct}{argument}){filter}", call.function.name())
                    })
                    .collect();
                let mut text = "aggregate".to_string();
                if !aggregate.keys.is_empty() {
                    text += &format!(" by {}", list(&aggregate.keys, scope));
                }
                if !calls.is_empty() {
                    text += &format!(": {}", calls.join(", "));
                }
                text
            }
            Sink::Build { build, .. } => describe_build(build, scope),
            Sink::Matches { probe, columns, .. } => format!(
                "matches {} keeping ({})",
                self.describe_probe(probe, scope),
                list(columns, scope)
            ),
            Sink::Discard => "discard".into(),
        }
    }
}

fn describe_band(band: &Band, scope: &[FieldRef]) -> String {
    let end = |bound: &Option<Bound>, sign: &str| {
        let bound = bound.as_ref()?;
        let equal = if bound.inclusive { "=" } else { "" };
        Some(format!(" {sign}{equal} {}", bound.value.named(scope)))
    };
    let ends = [end(&band.lower, ">"), end(&band.upper, "<")];
    let ends: Vec<String> = ends.into_iter().flatten().collect();
    format!(", value{}", ends.join(" and"))
}

fn describe_build(build: &Build, scope: &[FieldRef]) -> String {
    let mut text = "build".to_string();
    if build.unique {
        text += " unique";
    }
    if build.existence {
        text += " set";
    }
    text += &format!(" ({})", list(&build.keys, scope));
    if let Some(order) = &build.order {
        text += &format!(" sorted by {}", order.named(scope));
    }
    if !build.payload.is_empty() {
        text += &format!(" with ({})", list(&build.payload, scope));
    }
    if build.null_equal {
        text += " null equal";
    }
    if build.mark_sets > 0 {
        text += " tracking";
    }
    if let Some(join) = &build.join {
        text += &format!(" for {join}");
    }
    text
}

fn list(exprs: &[Expr], scope: &[FieldRef]) -> String {
    exprs
        .iter()
        .map(|e| e.named(scope).to_string())
        .collect::<Vec<_>>()
        .join(", ")
}

fn order(key: &SortKey, columns: &[FieldRef]) -> String {
    let name = columns.get(key.column).map_or("?", |f| f.name());
    let descending = if key.descending { " desc" } else { "" };
    let nulls = match (key.nulls_first, key.descending) {
        (true, false) => " nulls first",
        (false, true) => " nulls last",
        _ => "",
    };
    format!("{name}{descending}{nulls}")
}

fn fields(columns: &[ResultColumn]) -> Vec<FieldRef> {
    columns
        .iter()
        .map(|c| Arc::new(Field::new(c.name.clone(), c.data_type.clone(), c.nullable)))
        .collect()
}
