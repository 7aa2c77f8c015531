//! Structs in the output of a query: the device delivers their fields, and they are put together as rows leave.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema};
use datafusion::common::metadata::FieldMetadata;
use datafusion::config::ConfigOptions;
use datafusion::error::Result;
use datafusion::functions::core::get_field;
use datafusion::physical_expr::expressions::{Column, IsNotNullExpr, Literal};
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::execution_plan::replace_children_if_necessary;
use datafusion::physical_plan::projection::{ProjectionExec, ProjectionExpr};
use datafusion::scalar::ScalarValue;

use super::outputs::wraps;
use crate::structs::{around, field_of, struct_of};

/// The plan with a projection to the fields of the structs that it yields, and one above that puts structs together of them;
/// `None` where it yields none.
pub(super) fn apart(plan: &Arc<dyn ExecutionPlan>) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    if let Some(input) = wraps(plan) {
        let below = apart(input)?;
        let around =
            below.map(|input| replace_children_if_necessary(Arc::clone(plan), vec![input]));
        return around.transpose();
    }
    let schema = plan.schema();
    let fields = schema.fields().iter();
    if !fields.clone().any(|f| is_struct(f.data_type())) {
        return Ok(None);
    }
    let mut parts = Parts {
        schema: &schema,
        options: Arc::default(),
        fields: Vec::new(),
    };
    let mut whole = Vec::new();
    for (at, field) in fields.enumerate() {
        let column: Arc<dyn PhysicalExpr> = Arc::new(Column::new(field.name(), at));
        let value = parts.value(column, field, field.name(), None)?;
        whole.push((value, field));
    }
    let below = ProjectionExec::try_new(parts.fields, Arc::clone(plan))?;
    let fields = below.schema();
    let options = Arc::default();
    let above = whole.into_iter().map(|(value, field)| {
        Ok(ProjectionExpr {
            expr: value.put_together(&fields, &options)?,
            alias: field.name().clone(),
        })
    });
    let above = above.collect::<Result<Vec<_>>>()?;
    let above: Arc<dyn ExecutionPlan> = Arc::new(ProjectionExec::try_new(above, Arc::new(below))?);
    // The rule must not change what the plan yields.
    Ok(Some(above).filter(|above| above.schema() == schema))
}

fn is_struct(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Struct(_))
}

/// A value of the output, by columns of the fields.
enum Value<'a> {
    Column(usize),
    Struct {
        field: &'a Field,
        fields: Vec<Value<'a>>,
        present: Option<usize>,
    },
}

/// The fields that the device delivers.
struct Parts<'a> {
    /// Of the plan that yields structs.
    schema: &'a Schema,
    options: Arc<ConfigOptions>,
    fields: Vec<ProjectionExpr>,
}

impl Parts<'_> {
    /// Notes what a value is made of. `present`: where the struct around it is.
    fn value<'f>(
        &mut self,
        expr: Arc<dyn PhysicalExpr>,
        field: &'f Field,
        name: &str,
        present: Option<usize>,
    ) -> Result<Value<'f>> {
        let DataType::Struct(within) = field.data_type() else {
            return Ok(Value::Column(self.add(expr, name.into())));
        };
        let present = match field.is_nullable() {
            true => {
                let present = Arc::new(IsNotNullExpr::new(Arc::clone(&expr)));
                Some(self.add(present, format!("{name} IS NOT NULL")))
            }
            false => present,
        };
        let fields = within.iter().map(|inner| {
            // What is never NULL within the struct may be NULL with it.
            let with_it = around(
                field.data_type(),
                field.is_nullable(),
                [inner.name().as_str()],
            );
            let function = match with_it {
                Some(_) => field_of(),
                None => get_field(),
            };
            let literal = Literal::new(ScalarValue::from(inner.name().as_str()));
            let value = ScalarFunctionExpr::try_new(
                function,
                vec![Arc::clone(&expr), Arc::new(literal)],
                self.schema,
                Arc::clone(&self.options),
            )?;
            let name = format!("{name}.{}", inner.name());
            self.value(Arc::new(value), inner, &name, present)
        });
        let fields = fields.collect::<Result<_>>()?;
        Ok(Value::Struct {
            field,
            fields,
            present,
        })
    }

    fn add(&mut self, expr: Arc<dyn PhysicalExpr>, alias: String) -> usize {
        self.fields.push(ProjectionExpr { expr, alias });
        self.fields.len() - 1
    }
}

impl Value<'_> {
    /// The value over the fields that `schema` has.
    fn put_together(
        &self,
        schema: &Schema,
        options: &Arc<ConfigOptions>,
    ) -> Result<Arc<dyn PhysicalExpr>> {
        let column = |at: usize| -> Arc<dyn PhysicalExpr> {
            Arc::new(Column::new(schema.field(at).name(), at))
        };
        let (field, fields, present) = match self {
            Self::Column(at) => return Ok(column(*at)),
            Self::Struct {
                field,
                fields,
                present,
            } => (field, fields, present),
        };
        let metadata = (!field.metadata().is_empty()).then(|| FieldMetadata::from(*field));
        let of_type = Literal::new_with_metadata(field.data_type().try_into()?, metadata);
        let mut arguments: Vec<Arc<dyn PhysicalExpr>> = vec![Arc::new(of_type)];
        for field in fields {
            arguments.push(field.put_together(schema, options)?);
        }
        arguments.extend(present.map(column));
        let value =
            ScalarFunctionExpr::try_new(struct_of(), arguments, schema, Arc::clone(options))?;
        Ok(Arc::new(value))
    }
}
