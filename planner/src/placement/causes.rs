//! Reasons why operators stay on the CPU, root causes before consequences.

use std::cmp::Reverse;

use super::MAX_TAIL_ROWS;
use super::classify::{Classification, Kind};
use super::report::CpuOperator;
use crate::reason::{Rank, Reason};

/// An operator with a reason of its own, and its depth in the plan.
#[derive(Clone, Copy)]
struct Cause<'a> {
    operator: &'a str,
    reason: &'a Reason,
    depth: usize,
}

/// Every operator that stays on the CPU, equal ones counted together: first operators that the device does not run,
/// then those that it could run, then consequences; within each class the deepest first.
pub(super) fn cpu_operators(plan: &Classification) -> Vec<CpuOperator> {
    let mut found = Vec::new();
    let whole = cause(plan, 0);
    collect(plan, Position::default(), whole, &mut found);
    if !found.iter().any(|f| f.operator.fallback) && plan.table_rows {
        scans(plan, 0, &mut found);
    }
    found.sort_by_key(|f| (f.rank, Reverse(f.depth)));
    found.into_iter().map(|f| f.operator).collect()
}

/// What is said of the operators at the top of a fragment's input.
const CONTINUED: &str = "; the device goes on above it";

/// Where an operator is in the plan.
#[derive(Clone, Copy, Default)]
struct Position {
    depth: usize,
    /// Its rows go to the device, as they are.
    enters: bool,
    /// A fragment is above.
    below_fragment: bool,
}

/// A line of the report and its position.
struct Found {
    rank: Rank,
    depth: usize,
    operator: CpuOperator,
}

/// The deepest operator of `node` and below that is a root cause: one that the device does not run, else one that
/// does not pay.
fn cause(node: &Classification, depth: usize) -> Option<Cause<'_>> {
    let own = node.reason().map(|reason| Cause {
        operator: node.plan.name(),
        reason,
        depth,
    });
    let below = node.children.iter().map(|child| cause(child, depth + 1));
    let causes = below.chain([own]).flatten();
    causes
        .filter(|cause| cause.reason.rank() != Rank::Consequence)
        .min_by_key(|cause| (cause.reason.rank(), Reverse(cause.depth)))
}

fn collect(node: &Classification, at: Position, whole: Option<Cause<'_>>, found: &mut Vec<Found>) {
    let enters = match &node.kind {
        Kind::Fragment(..) => true,
        Kind::Plumbing => at.enters,
        _ => false,
    };
    let Position { depth, .. } = at;
    let below_fragment = at.below_fragment || matches!(node.kind, Kind::Fragment(..));
    for child in &node.children {
        let below = Position {
            depth: depth + 1,
            enters,
            below_fragment,
        };
        collect(child, below, whole, found);
    }
    let from_table = node.children.iter().any(|c| c.table_rows);
    let from_device = node.children.iter().any(|c| c.device_rows);
    let name = node.plan.name();
    let follows = |text: &str, cause: Option<Cause<'_>>| {
        let text = match cause {
            Some(cause) => format!("{text} ({}: {})", cause.operator, cause.reason),
            None => text.to_string(),
        };
        Reason::ranked(Rank::Consequence, text)
    };
    let mut add = |reason: &Reason, fallback: bool| {
        let entered;
        let reason = match at.enters {
            true => {
                entered = Reason::ranked(reason.rank(), format!("{reason}{CONTINUED}"));
                &entered
            }
            false => reason,
        };
        add(found, name, reason, depth, fallback);
    };
    let reason = match &node.kind {
        Kind::Scan(reason) if reason.rank() == Rank::Incapable => reason.clone(),
        Kind::Output(reason) => {
            let text = format!("computed at output, as rows leave the device ({reason})");
            return add(&Reason::ranked(Rank::Consequence, text), false);
        }
        Kind::Tail(reason) if from_device && !from_table => {
            let few = format!("over at most {MAX_TAIL_ROWS} rows that already left the device");
            let text = match reason {
                Some(reason) => format!("{few} ({reason})"),
                None => few,
            };
            let reason = Reason::ranked(Rank::Consequence, text);
            return add(&reason, false);
        }
        // Work on constants is the CPU's by itself, but not for the device.
        Kind::Heavy(Some(reason)) if at.below_fragment && !from_table && !from_device => {
            reason.clone()
        }
        Kind::Tail(reason) | Kind::Heavy(reason) if from_table || from_device => match reason {
            Some(reason) if reason.rank() == Rank::Consequence => follows(reason.as_str(), whole),
            Some(reason) => reason.clone(),
            None => {
                let below = node.children.iter().filter_map(|c| cause(c, depth + 1));
                let nearest = below.min_by_key(|c| (c.reason.rank(), Reverse(c.depth)));
                follows("its input comes from the CPU", nearest)
            }
        },
        _ => return,
    };
    add(&reason, true);
}

/// The scans whose rows reach the result unchanged.
fn scans(node: &Classification, depth: usize, found: &mut Vec<Found>) {
    if let Kind::Scan(reason) = &node.kind {
        add(found, node.plan.name(), reason, depth, true);
    }
    for child in &node.children {
        scans(child, depth + 1, found);
    }
}

fn add(found: &mut Vec<Found>, operator: &str, reason: &Reason, depth: usize, fallback: bool) {
    let same =
        |f: &&mut Found| f.operator.operator == operator && f.operator.reason == reason.as_str();
    if let Some(same) = found.iter_mut().find(same) {
        same.operator.count += 1;
        same.depth = same.depth.max(depth);
        return;
    }
    found.push(Found {
        rank: reason.rank(),
        depth,
        operator: CpuOperator {
            operator: operator.to_string(),
            reason: reason.to_string(),
            count: 1,
            fallback,
        },
    });
}
