//! Structs in plans: fields that are NULL because their struct is, and structs that are put together of fields.

mod field;
mod nulls;
mod whole;

use std::sync::Arc;

use datafusion::logical_expr::ScalarUDF;

pub(crate) use field::{around, field_of, reads_field};
pub use nulls::StructNulls;
pub(crate) use nulls::has_fields;
pub(crate) use whole::struct_of;

/// The function of this name, for those who decode plans.
pub fn function(name: &str) -> Option<Arc<ScalarUDF>> {
    [field_of(), struct_of()]
        .into_iter()
        .find(|function| function.name() == name)
}
