//! `percentile_disc(p) WITHIN GROUP (ORDER BY x)` and `mode() WITHIN GROUP (ORDER BY x)`, which DataFusion lacks.

use std::sync::{Arc, LazyLock};

use arrow::array::{Array, ArrayRef, AsArray, ListArray, RecordBatch, new_empty_array};
use arrow::buffer::OffsetBuffer;
use arrow::compute::{SortOptions, concat, filter, is_not_null, partition, sort};
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::{Result, exec_err, plan_err};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::format_state_name;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, ColumnarValue, Signature, Volatility,
};
use datafusion::scalar::ScalarValue;

static PERCENTILE: LazyLock<Arc<AggregateUDF>> =
    LazyLock::new(|| Arc::new(AggregateUDF::from(OrderedSet::new(Pick::Percentile))));
static MODE: LazyLock<Arc<AggregateUDF>> =
    LazyLock::new(|| Arc::new(AggregateUDF::from(OrderedSet::new(Pick::Mode))));

/// The function of this name: `percentile_disc` or `mode`.
///
/// `percentile_disc(p) WITHIN GROUP (ORDER BY x)`, or `percentile_disc(x, p)`, is the first value in the order up to which there is a share of
/// at least `p` of the values that are not NULL. `mode() WITHIN GROUP (ORDER BY x)`, or `mode(x)`, is the value that is there most often, of
/// several the first in the order. Both are NULL where there is no value (ISO/IEC 9075-2, 10.9; `mode` as PostgreSQL has it).
pub fn function(name: &str) -> Option<Arc<AggregateUDF>> {
    functions()
        .into_iter()
        .find(|function| function.name() == name)
}

/// Both of them.
pub fn functions() -> [Arc<AggregateUDF>; 2] {
    [Arc::clone(&PERCENTILE), Arc::clone(&MODE)]
}

/// Is it `percentile_disc`?
pub(crate) fn is_percentile(function: &AggregateUDF) -> bool {
    function == PERCENTILE.as_ref()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Pick {
    Percentile,
    Mode,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct OrderedSet {
    pick: Pick,
    signature: Signature,
}

impl OrderedSet {
    fn new(pick: Pick) -> Self {
        let signature = Signature::user_defined(Volatility::Immutable);
        Self { pick, signature }
    }
}

impl AggregateUDFImpl for OrderedSet {
    fn name(&self) -> &str {
        match self.pick {
            Pick::Percentile => "percentile_disc",
            Pick::Mode => "mode",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arguments: &[DataType]) -> Result<Vec<DataType>> {
        match (self.pick, arguments) {
            (Pick::Percentile, [value, share]) if share.is_numeric() => {
                Ok(vec![plain(value), DataType::Float64])
            }
            (Pick::Mode, [value]) => Ok(vec![plain(value)]),
            (Pick::Percentile, _) => plan_err!(
                "percentile_disc takes a share: percentile_disc(0.5) WITHIN GROUP (ORDER BY x)"
            ),
            (Pick::Mode, _) => {
                plan_err!("mode takes one value: mode() WITHIN GROUP (ORDER BY x)")
            }
        }
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        match arguments.first() {
            Some(value) => Ok(value.clone()),
            None => plan_err!("{} takes a value", self.name()),
        }
    }

    fn state_fields(&self, arguments: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        let value = arguments.return_field.data_type().clone();
        let values = DataType::List(Arc::new(Field::new_list_field(value, true)));
        let name = format_state_name(arguments.name, "values");
        Ok(vec![Arc::new(Field::new(name, values, true))])
    }

    fn accumulator(&self, arguments: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        let share = match self.pick {
            Pick::Percentile => Some(share(&arguments)?),
            Pick::Mode => None,
        };
        let descending = arguments
            .order_bys
            .first()
            .is_some_and(|key| key.options.descending);
        Ok(Box::new(Values {
            data_type: arguments.return_field.data_type().clone(),
            values: vec![],
            share,
            descending,
            distinct: arguments.is_distinct,
        }))
    }

    fn supports_within_group_clause(&self) -> bool {
        true
    }
}

/// The type of values that dictionaries are of.
fn plain(data_type: &DataType) -> DataType {
    match data_type {
        DataType::Dictionary(_, value) => value.as_ref().clone(),
        other => other.clone(),
    }
}

/// The share of a percentile, from 0 to 1.
fn share(arguments: &AccumulatorArgs) -> Result<f64> {
    let share = arguments.exprs.get(1).and_then(|share| {
        let empty = RecordBatch::new_empty(Arc::new(arguments.schema.clone()));
        match share.evaluate(&empty).ok()? {
            ColumnarValue::Scalar(ScalarValue::Float64(share)) => share,
            _ => None,
        }
    });
    match share {
        Some(share) if (0.0..=1.0).contains(&share) => Ok(share),
        Some(share) => plan_err!("percentile_disc takes a share from 0 to 1, not {share}"),
        None => plan_err!("percentile_disc takes a share that is constant"),
    }
}

/// All values of a group that are not NULL.
#[derive(Debug)]
struct Values {
    data_type: DataType,
    values: Vec<ArrayRef>,
    /// That of a percentile.
    share: Option<f64>,
    descending: bool,
    distinct: bool,
}

impl Values {
    fn all(&self) -> Result<ArrayRef> {
        let values: Vec<&dyn Array> = self.values.iter().map(AsRef::as_ref).collect();
        match &values[..] {
            [] => Ok(new_empty_array(&self.data_type)),
            values => Ok(concat(values)?),
        }
    }

    fn add(&mut self, values: &ArrayRef) -> Result<()> {
        let known = match values.null_count() {
            0 => Arc::clone(values),
            _ => filter(values, &is_not_null(values)?)?,
        };
        if !known.is_empty() {
            self.values.push(known);
        }
        Ok(())
    }
}

impl Accumulator for Values {
    fn update_batch(&mut self, arguments: &[ArrayRef]) -> Result<()> {
        match arguments.first() {
            Some(values) => self.add(values),
            None => exec_err!("there is no value"),
        }
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let Some(lists) = states.first().and_then(|state| state.as_list_opt::<i32>()) else {
            return exec_err!("a state is no list of values");
        };
        for list in lists.iter().flatten() {
            self.add(&list)?;
        }
        Ok(())
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let values = self.all()?;
        let field = Arc::new(Field::new_list_field(self.data_type.clone(), true));
        let offsets = OffsetBuffer::<i32>::from_lengths([values.len()]);
        let list = ListArray::try_new(field, offsets, values, None)?;
        Ok(vec![ScalarValue::List(Arc::new(list))])
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let values = self.all()?;
        if values.is_empty() {
            return ScalarValue::try_from(&self.data_type);
        }
        let options = SortOptions {
            descending: self.descending,
            nulls_first: false,
        };
        let sorted = sort(&values, Some(options))?;
        let runs = partition(&[Arc::clone(&sorted)])?.ranges();
        let place = match (self.share, self.distinct) {
            (Some(share), false) => place(share, sorted.len()),
            (Some(share), true) => runs[place(share, runs.len())].start,
            (None, _) => {
                let mut most = 0..0;
                for run in runs {
                    if run.len() > most.len() {
                        most = run;
                    }
                }
                most.start
            }
        };
        ScalarValue::try_from_array(&sorted, place)
    }

    fn size(&self) -> usize {
        let values = self
            .values
            .iter()
            .map(|array| array.get_array_memory_size());
        size_of_val(self) + values.sum::<usize>()
    }
}

/// The place of a percentile among so many values, which are some.
fn place(share: f64, values: usize) -> usize {
    ((share * values as f64).ceil() as usize).clamp(1, values) - 1
}

#[cfg(test)]
mod tests {
    use datafusion::prelude::SessionContext;

    use crate::statements::tests::answer;

    #[tokio::test]
    async fn values_of_the_order() {
        let context = SessionContext::new();
        let create = "CREATE TABLE t AS SELECT column1 AS k, column2 AS x, column3 AS s FROM (VALUES (1, 4, 'b'), (1, 1, 'a'), (1, 4, 'a'), (1, 9, 'b'), (1, NULL, NULL), (2, NULL, 'z'), (3, 7, NULL))";
        answer(&context, create).await;
        for (written, meant) in [
            (
                "SELECT k, percentile_disc(0.5) WITHIN GROUP (ORDER BY x) AS a, percentile_disc(0) WITHIN GROUP (ORDER BY x) AS b, percentile_disc(0.75) WITHIN GROUP (ORDER BY x DESC) AS c, percentile_disc(x, 1.0) AS d FROM t GROUP BY k ORDER BY k",
                "SELECT column1 AS k, column2 AS a, column3 AS b, column4 AS c, column5 AS d FROM (VALUES (1, 4, 1, 4, 9), (2, NULL, NULL, NULL, NULL), (3, 7, 7, 7, 7))",
            ),
            (
                "SELECT k, mode() WITHIN GROUP (ORDER BY s) AS a, mode() WITHIN GROUP (ORDER BY s DESC) AS b, mode(x) AS c, mode(x) FILTER (WHERE x < 4) AS d FROM t GROUP BY k ORDER BY k",
                "SELECT column1 AS k, column2 AS a, column3 AS b, column4 AS c, column5 AS d FROM (VALUES (1, 'a', 'b', 4, 1), (2, 'z', 'z', NULL, NULL), (3, NULL, NULL, 7, NULL))",
            ),
        ] {
            let found = answer(&context, written).await;
            assert_eq!(found, answer(&context, meant).await, "{written}");
        }
    }
}
