//! Sideways information passing: filters of a build side are applied to the probe side.
//!
//! A build with several keys is a hash table, and most probes that miss it cost a random access each. Where one of
//! its keys was itself probed in a small set while the build was made, as in
//!
//! ```text
//! index(partkey, suppkey) := scan partsupp | probe part*(partkey) on (ps_partkey) | build (ps_partkey, ps_suppkey)
//! rows                    := scan lineitem | probe index on (l_partkey, l_suppkey)
//! ```
//!
//! the probe side tests the same set first: `semi part* on (l_partkey)`. It drops only rows that the probe would
//! drop, and for a dense key it is a bitmap that mostly stays in the cache.

use warpline_gpu::expr::{Expr, Node};
use warpline_gpu::graph::{
    Build, Graph, Pipeline, Probe, ProbeKind, ResultId, Sink, Source, Stage, Step,
};

/// Insert semi probes before probes that they make cheaper.
pub(super) fn pass_filters(graph: &mut Graph) {
    let mut changed = Vec::new();
    for (at, step) in graph.steps.iter().enumerate() {
        let Step::Pipeline(pipeline) = step else {
            continue;
        };
        let mut stages = Vec::with_capacity(pipeline.stages.len());
        // By stage, how many there are once it is among them.
        let mut places = Vec::with_capacity(pipeline.stages.len());
        for stage in &pipeline.stages {
            if let Stage::Probe(probe) | Stage::Expand(probe) = stage {
                stages.extend(filters(graph, at, probe).into_iter().map(Stage::Probe));
            }
            stages.push(stage.clone());
            places.push(stages.len());
        }
        if let Sink::Matches { probe, .. } = &pipeline.sink {
            stages.extend(filters(graph, at, probe).into_iter().map(Stage::Probe));
        }
        if stages.len() > pipeline.stages.len() {
            changed.push((at, stages, places));
        }
    }
    for (at, stages, places) in changed {
        if let Step::Pipeline(pipeline) = &mut graph.steps[at] {
            pipeline.stages = stages;
            for left in &mut pipeline.left {
                left.stages = places[left.stages - 1];
            }
        }
    }
}

/// The sets that the rows of `probe`, in step `at`, can be tested against first.
fn filters(graph: &Graph, at: usize, probe: &Probe) -> Vec<Probe> {
    let drops_misses = matches!(probe.kind, ProbeKind::Inner | ProbeKind::Semi);
    if !drops_misses || probe.keys.len() < 2 {
        return vec![];
    }
    let Some((pipeline, build)) = builder(&graph.steps[..at], probe.index) else {
        return vec![];
    };
    // NULL keys would match NULL keys, which a set without them does not have.
    if build.null_equal || build.keys.len() != probe.keys.len() {
        return vec![];
    }
    let mut found = Vec::new();
    for stage in &pipeline.stages {
        let Stage::Probe(set) = stage else { continue };
        let keeps_matches = matches!(set.kind, ProbeKind::Inner | ProbeKind::Semi);
        let ([key], true) = (set.keys.as_slice(), keeps_matches) else {
            continue;
        };
        let plain =
            set.residual.is_empty() && set.marks.is_empty() && is_selective(graph, at, set.index);
        let Some(column) = column(key).filter(|_| plain) else {
            continue;
        };
        let place = build
            .keys
            .iter()
            .position(|k| self::column(k) == Some(column));
        let Some(probing) = place.and_then(|place| probe.keys.get(place)) else {
            continue;
        };
        if probing.data_type == key.data_type {
            found.push(Probe {
                index: set.index,
                band: None,
                keys: vec![probing.clone()],
                kind: ProbeKind::Semi,
                residual: vec![],
                marks: vec![],
            });
        }
    }
    found
}

fn column(expr: &Expr) -> Option<usize> {
    match expr.node {
        Node::Column(index) => Some(index),
        _ => None,
    }
}

/// The pipeline of `steps` that builds `index`.
pub(super) fn builder(steps: &[Step], index: ResultId) -> Option<(&Pipeline, &Build)> {
    steps.iter().find_map(|step| match step {
        Step::Pipeline(pipeline) => match &pipeline.sink {
            Sink::Build { into, build } if *into == index => Some((pipeline, build)),
            _ => None,
        },
        Step::Sort(_) => None,
    })
}

/// Is the set a proper subset of its table, by a condition or by a probe of such a set?
fn is_selective(graph: &Graph, at: usize, index: ResultId) -> bool {
    builder(&graph.steps[..at], index).is_some_and(|(pipeline, _)| {
        !matches!(pipeline.source, Source::Scan(_))
            || pipeline.stages.iter().any(|stage| match stage {
                Stage::Filter(_) => true,
                Stage::Probe(probe) | Stage::Expand(probe) => {
                    matches!(probe.kind, ProbeKind::Inner | ProbeKind::Semi)
                        && is_selective(graph, at, probe.index)
                }
                Stage::Scalar(_) | Stage::Mark(_) => false,
            })
    })
}
