//! Conjuncts of a filter as tests of the row at hand.

use super::scalar::Emitter;
use crate::codegen::ir::pipeline::Test;
use crate::codegen::ir::scope::{ScopeColumn, columns_of};
use crate::codegen::ir::state::KernelState;
use crate::codegen::ir::value::CType;
use crate::error::{GpuError, Result};
use crate::expr::Expr;

/// Adjacent conjuncts over the same columns are tested together.
pub(in crate::codegen) fn group_conjuncts(conjuncts: &[Expr]) -> Vec<Vec<&Expr>> {
    let mut groups: Vec<(Vec<usize>, Vec<&Expr>)> = Vec::new();
    for conjunct in conjuncts {
        let needs = columns_of([conjunct]);
        match groups.last_mut() {
            Some((have, list)) if needs.iter().all(|c| have.contains(c)) => list.push(conjunct),
            _ => groups.push((needs, vec![conjunct])),
        }
    }
    groups.into_iter().map(|(_, list)| list).collect()
}

/// The conjuncts as one test of the row at hand, a row of a tile, before which the block may search its strings.
pub(in crate::codegen) fn test_in_tile(
    conjuncts: &[&Expr],
    scope: &[ScopeColumn],
    state: &mut KernelState,
) -> Result<Test> {
    state.searches = Some(Vec::new());
    let test = test(conjuncts, scope, state);
    let searches = state.searches.take().unwrap_or_default();
    Ok(Test { searches, ..test? })
}

/// The conjuncts as one test of the row at hand.
pub(in crate::codegen) fn test(
    conjuncts: &[&Expr],
    scope: &[ScopeColumn],
    state: &mut KernelState,
) -> Result<Test> {
    let mut emitter = Emitter::new(scope, state);
    let mut tests = Vec::new();
    for conjunct in conjuncts {
        let value = emitter.emit(conjunct)?;
        if value.is_null() {
            tests.push("false".to_string());
            continue;
        }
        if value.c_type != CType::Bool {
            return Err(GpuError::Internal("a filter that is not boolean".into()));
        }
        tests.push(emitter.is_true(&value));
    }
    Ok(Test {
        columns: columns_of(conjuncts.iter().copied()),
        searches: Vec::new(),
        lines: emitter.lines,
        passes: if tests.is_empty() {
            "true".into()
        } else {
            tests.join(" && ")
        },
    })
}
