//! Aggregations by their phases: those that are together become one grouping, others run apart.

use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::AggregateExec;

use super::aggregate::{calls, grouped};
use super::grouping::grouping;
use super::ranked::makes_list;
use super::states::{self, Phase};
use super::{Converter, grouping_sets};
use crate::reason::{Reason, refuse};
use crate::rel::RelRef;

/// The groups of `root` over `input`, the rows below its phases.
pub(super) fn aggregate(
    root: &AggregateExec,
    input: RelRef,
    converter: &Converter,
) -> Result<RelRef, Reason> {
    let raw = match Phase::of(root, &converter.inputs) {
        Phase::Whole(raw) => raw,
        Phase::Apart(root) => return states::phase(root, input, converter),
    };
    let by = raw.group_expr();
    let mut grouping = grouping(by, input, converter)?;
    let calls = calls(
        raw.aggr_expr(),
        raw.filter_expr(),
        &mut grouping.input,
        converter,
    )?;
    if by.has_grouping_set() {
        if let Some(call) = raw.aggr_expr().iter().find(|call| makes_list(call)) {
            return refuse(format!(
                "{} in several groupings runs on the CPU",
                call.fun().name()
            ));
        }
        let number = raw.schema();
        let number = number.field(grouping.keys.len()).data_type().clone();
        return grouping_sets::grouped(&grouping, by.groups(), &number, &calls);
    }
    grouped(&grouping, &calls)
}
