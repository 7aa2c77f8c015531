//! The rules of the analyzer, in their order: what a physical plan would hide, or not be made of.

use std::sync::Arc;

use datafusion::optimizer::AnalyzerRule;

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

/// Is it the name of a rule of the analyzer of ours?
pub fn is_name(name: &str) -> bool {
    [WindowFilters::NAME, StructNulls::NAME, Decorrelation::NAME].contains(&name)
}
