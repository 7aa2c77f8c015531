//! The rules of logical plans: what a physical plan would hide, or not be made of.

use std::sync::Arc;

use datafusion::optimizer::{AnalyzerRule, Optimizer, OptimizerRule};

use crate::{Decorrelation, StructNulls, WindowFilters};

/// The rules of a session with a device. They come behind DataFusion's own.
pub fn rules() -> [Arc<dyn AnalyzerRule + Send + Sync>; 3] {
    let [fields, subqueries] = rules_of_answers();
    [Arc::new(WindowFilters), fields, subqueries]
}

/// Those among them that decide what is answered: where DataFusion refuses, or answers what SQL does not say.
pub fn rules_of_answers() -> [Arc<dyn AnalyzerRule + Send + Sync>; 2] {
    [Arc::new(StructNulls), Arc::new(Decorrelation)]
}

/// DataFusion's rules of the optimizer but those that take fields of structs out below joins and aliases: some queries have no
/// plan with them (`No field named "upper(__datafusion_extracted_2)"`), and fragments find the fields where they are.
pub fn optimizer_rules() -> Vec<Arc<dyn OptimizerRule + Send + Sync>> {
    const LEFT_OUT: [&str; 2] = ["extract_leaf_expressions", "push_down_leaf_projections"];
    let mut rules = Optimizer::new().rules;
    rules.retain(|rule| !LEFT_OUT.contains(&rule.name()));
    rules
}

/// Is it the name of a rule of the analyzer of ours?
pub fn is_name(name: &str) -> bool {
    [WindowFilters::NAME, StructNulls::NAME, Decorrelation::NAME].contains(&name)
}
