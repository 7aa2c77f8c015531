//! `regexp_split_to_array(text, pattern)`: what is between the matches of a regular expression.

use std::sync::{Arc, LazyLock};

use arrow::array::{ArrayRef, AsArray, ListBuilder, StringBuilder};
use arrow::datatypes::{DataType, Field};
use datafusion::common::{DataFusionError, Result, exec_err, plan_err};
use datafusion::functions::utils::make_scalar_function;
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use regex::Regex;

static FUNCTION: LazyLock<Arc<ScalarUDF>> =
    LazyLock::new(|| Arc::new(ScalarUDF::from(RegexpSplit::new())));

/// `regexp_split_to_array(text, pattern)`, as PostgreSQL has it: a match of no characters splits where there are some on both sides of it.
/// NULL where either is.
pub fn regexp_split() -> Arc<ScalarUDF> {
    Arc::clone(&FUNCTION)
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct RegexpSplit {
    signature: Signature,
}

impl RegexpSplit {
    fn new() -> Self {
        Self {
            signature: Signature::user_defined(Volatility::Immutable),
        }
    }
}

impl ScalarUDFImpl for RegexpSplit {
    fn name(&self) -> &str {
        "regexp_split_to_array"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arguments: &[DataType]) -> Result<Vec<DataType>> {
        let is_text = |data_type: &DataType| data_type.is_string() || data_type.is_null();
        match arguments {
            [_, _] if arguments.iter().all(is_text) => Ok(vec![DataType::Utf8; 2]),
            _ => plan_err!(
                "regexp_split_to_array takes a text and a pattern without flags, not {arguments:?}"
            ),
        }
    }

    fn return_type(&self, _arguments: &[DataType]) -> Result<DataType> {
        let item = Field::new_list_field(DataType::Utf8, true);
        Ok(DataType::List(Arc::new(item)))
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        make_scalar_function(lists, vec![])(&arguments.args)
    }
}

/// The parts, row by row.
fn lists(arguments: &[ArrayRef]) -> Result<ArrayRef> {
    let texts = arguments.iter().map(|array| array.as_string_opt::<i32>());
    let texts: Option<Vec<_>> = texts.collect();
    let Some([texts, patterns]) = texts.as_deref() else {
        return exec_err!("regexp_split_to_array takes two texts");
    };
    let mut lists = ListBuilder::new(StringBuilder::new());
    // Nearly always there is one pattern.
    let mut last: Option<(&str, Regex)> = None;
    for (text, pattern) in texts.iter().zip(patterns.iter()) {
        let (Some(text), Some(pattern)) = (text, pattern) else {
            lists.append_null();
            continue;
        };
        let regex = match last.take() {
            Some((known, regex)) if known == pattern => regex,
            _ => Regex::new(pattern).map_err(|error| {
                DataFusionError::Execution(format!("the regular expression '{pattern}': {error}"))
            })?,
        };
        for part in parts(text, &regex) {
            lists.values().append_value(part);
        }
        lists.append(true);
        last = Some((pattern, regex));
    }
    Ok(Arc::new(lists.finish()))
}

fn parts<'a>(text: &'a str, regex: &Regex) -> Vec<&'a str> {
    let mut parts = Vec::new();
    let mut start = 0;
    for found in regex.find_iter(text) {
        let splits = !found.is_empty() || (found.start() > start && found.end() < text.len());
        if splits {
            parts.push(&text[start..found.start()]);
            start = found.end();
        }
    }
    parts.push(&text[start..]);
    parts
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use datafusion::prelude::SessionContext;

    use crate::statements::plan_text;
    use crate::statements::tests::answer;

    #[tokio::test]
    async fn texts_are_split_as_postgresql_splits_them() {
        let context = SessionContext::new();
        for (written, meant) in [
            ("('a, b;c', '[,;] *')", "make_array('a', 'b', 'c')"),
            (
                "('the quick  fox', '\\s+')",
                "make_array('the', 'quick', 'fox')",
            ),
            ("('ñandú', '')", "make_array('ñ', 'a', 'n', 'd', 'ú')"),
            ("('ñandú', '\\s*')", "make_array('ñ', 'a', 'n', 'd', 'ú')"),
            ("(',a,', ',')", "make_array('', 'a', '')"),
            ("('', ',')", "make_array('')"),
            ("('none', 'x')", "make_array('none')"),
            ("(NULL, 'x')", "CAST(NULL AS VARCHAR[])"),
        ] {
            let sql = format!("SELECT regexp_split_to_array{written} AS x");
            let expected = answer(&context, &format!("SELECT {meant} AS x")).await;
            assert_eq!(answer(&context, &sql).await, expected, "{sql}");
        }
        for table in [
            "SELECT regexp_split_to_table('a1b22c', '[0-9]+') AS x ORDER BY x",
            "SELECT x FROM regexp_split_to_table('a1b22c', '[0-9]+') AS r(x) ORDER BY x",
        ] {
            let expected = answer(
                &context,
                "SELECT x FROM (VALUES ('a'), ('b'), ('c')) AS v(x) ORDER BY x",
            )
            .await;
            assert_eq!(answer(&context, table).await, expected, "{table}");
        }
        let wrong = "SELECT regexp_split_to_array('a', '(') AS x";
        let wrong = plan_text(&context.state(), wrong).await.unwrap();
        let wrong = context.execute_logical_plan(wrong).await.unwrap();
        let error = wrong.collect().await.unwrap_err().to_string();
        assert!(error.contains("the regular expression '('"), "{error}");
    }
}
