//! Statements that Warpline adds to DataFusion's SQL: `PIN TABLE`, `UNPIN TABLE`, and `SHOW` of all settings with a prefix.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, RecordBatch, StringArray, UInt64Array};
use datafusion::common::TableReference;
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::tokenizer::{Token, Tokenizer};
use warpline_tpch::{QueryMetrics, QueryRun};

use crate::error::{Error, Result};
use crate::session::WarplineSession;

/// A statement that DataFusion does not know.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Statement {
    /// `PIN TABLE name`
    Pin(String),
    /// `UNPIN TABLE name`
    Unpin(String),
    /// `SHOW prefix.*`
    Show(String),
}

impl Statement {
    /// The statement that the text is; `None` for any other, which is DataFusion's to judge.
    fn parse(sql: &str) -> Option<Self> {
        let first = sql.split_whitespace().next()?;
        let may_be = |word: &str| first.eq_ignore_ascii_case(word) || first.starts_with(['-', '/']);
        if !["PIN", "UNPIN", "SHOW"].into_iter().any(may_be) {
            return None;
        }
        let tokens = Tokenizer::new(&GenericDialect {}, sql).tokenize().ok()?;
        // Comments count as white space.
        let mut tokens: Vec<Token> = tokens
            .into_iter()
            .filter(|token| !matches!(token, Token::Whitespace(_)))
            .collect();
        while tokens.last() == Some(&Token::SemiColon) {
            tokens.pop();
        }
        let word = |at: usize, wanted: &str| matches!(tokens.get(at), Some(Token::Word(word)) if word.value.eq_ignore_ascii_case(wanted));
        let text = |tokens: &[Token]| tokens.iter().map(ToString::to_string).collect::<String>();
        if word(0, "SHOW") {
            let prefix = match tokens[1..].split_last()? {
                (Token::Mul, [words @ .., Token::Period]) if is_name(words) => text(words),
                _ => return None,
            };
            return Some(Self::Show(prefix.to_ascii_lowercase()));
        }
        let name = tokens
            .get(2..)
            .filter(|name| word(1, "TABLE") && is_name(name))?;
        if word(0, "PIN") {
            return Some(Self::Pin(text(name)));
        }
        word(0, "UNPIN").then(|| Self::Unpin(text(name)))
    }
}

/// Whether [`WarplineSession::statement`] runs the text, which DataFusion's parser refuses.
pub fn is_own_statement(sql: &str) -> bool {
    Statement::parse(sql).is_some()
}

/// Words with points between them.
fn is_name(tokens: &[Token]) -> bool {
    let alternates = tokens.iter().enumerate().all(|(at, token)| match at % 2 {
        0 => matches!(token, Token::Word(_)),
        _ => *token == Token::Period,
    });
    alternates && tokens.len() % 2 == 1
}

impl WarplineSession {
    /// Runs `PIN TABLE name`, `UNPIN TABLE name` and `SHOW prefix.*`; `None` for any other statement, which DataFusion
    /// runs.
    ///
    /// A pinned table is loaded and stays in device memory until it is unpinned or the session ends; see
    /// [`crate::Device::pin`]. The answers tell its rows, columns and bytes. `SHOW warpline.*` answers the name, value and
    /// description of each setting.
    ///
    /// # Errors
    /// Those of [`crate::Device::pin`]; [`Error::NotPinned`] for a table that is not pinned,
    /// [`Error::NothingToPinIn`] when the CPU answers.
    pub async fn statement(&self, sql: &str) -> Result<Option<QueryRun>> {
        match Statement::parse(sql) {
            None => Ok(None),
            Some(Statement::Pin(name)) => Ok(Some(self.pin(&name).await?)),
            Some(Statement::Unpin(name)) => Ok(Some(self.unpin(&name)?)),
            Some(Statement::Show(prefix)) => {
                // The prefix consists of words, which may hold quotes.
                let prefix = prefix.replace('\'', "''");
                let sql = format!(
                    "SELECT name, value, description FROM information_schema.df_settings \
                     WHERE starts_with(name, '{prefix}.') ORDER BY name"
                );
                Ok(Some(self.settings(&sql).await?))
            }
        }
    }

    /// Settings are the context's, and answered by the CPU, whatever `warpline.require_gpu` says.
    async fn settings(&self, sql: &str) -> Result<QueryRun> {
        let frame = self.context().sql(sql).await?;
        let schema = Arc::clone(frame.schema().inner());
        let logical = frame.into_optimized_plan()?;
        // Planned without the placement rule: a table of settings has nothing to gain from a device.
        let state = self.reference().state();
        let plan = state
            .query_planner()
            .create_physical_plan(&logical, &state)
            .await?;
        let batches = datafusion::physical_plan::collect(plan, self.context().task_ctx()).await?;
        Ok(QueryRun {
            schema,
            batches,
            metrics: QueryMetrics::default(),
        })
    }

    async fn pin(&self, name: &str) -> Result<QueryRun> {
        let table = TableReference::parse_str(name);
        let key = self.full_name(&table);
        let pinned = self.device().pin(self.context(), table).await?;
        let pinned = pinned.ok_or_else(|| Error::NothingToPinIn {
            device: self.device().name(),
        })?;
        let answer = answer(vec![
            ("table", text(pinned.name())),
            ("rows", number(pinned.rows())),
            ("columns", number(pinned.columns())),
            ("bytes", number(pinned.bytes())),
            ("not_pinned", text(&pinned.skipped().join(", "))),
        ])?;
        self.pins().insert(key, pinned);
        Ok(answer)
    }

    fn unpin(&self, name: &str) -> Result<QueryRun> {
        let key = self.full_name(&TableReference::parse_str(name));
        let pinned = self.pins().remove(&key);
        let pinned = pinned.ok_or_else(|| Error::NotPinned {
            given: name.to_string(),
            pinned: self.pinned_tables().join(", "),
        })?;
        answer(vec![
            ("table", text(pinned.name())),
            ("bytes", number(pinned.bytes())),
        ])
    }

    /// The tables that `PIN TABLE` keeps in device memory, with catalog and schema.
    pub fn pinned_tables(&self) -> Vec<String> {
        self.pins().names()
    }

    fn full_name(&self, table: &TableReference) -> String {
        let config = self.context().copied_config();
        let catalog = &config.options().catalog;
        let table = table.clone();
        table
            .resolve(&catalog.default_catalog, &catalog.default_schema)
            .to_string()
    }
}

fn text(value: &str) -> ArrayRef {
    Arc::new(StringArray::from(vec![value]))
}

fn number(value: usize) -> ArrayRef {
    Arc::new(UInt64Array::from(vec![value as u64]))
}

/// One row.
fn answer(columns: Vec<(&str, ArrayRef)>) -> Result<QueryRun> {
    let batch =
        RecordBatch::try_from_iter(columns).map_err(datafusion::error::DataFusionError::from)?;
    Ok(QueryRun {
        schema: batch.schema(),
        batches: vec![batch],
        metrics: QueryMetrics::default(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_statements_are_found() {
        let parse = Statement::parse;
        assert_eq!(parse("PIN TABLE t"), Some(Statement::Pin("t".into())));
        assert_eq!(
            parse("-- why\n pin /* and */ table a.\"B c\".d ; "),
            Some(Statement::Pin("a.\"B c\".d".into()))
        );
        assert_eq!(parse("Unpin Table T"), Some(Statement::Unpin("T".into())));
        assert_eq!(
            parse("SHOW Warpline.*"),
            Some(Statement::Show("warpline".into()))
        );
        assert_eq!(
            parse("SHOW datafusion.execution.*;"),
            Some(Statement::Show("datafusion.execution".into()))
        );
    }

    #[test]
    fn the_rest_is_left_to_datafusion() {
        for sql in [
            "",
            "SELECT 1",
            "SHOW ALL",
            "SHOW warpline.join",
            "SHOW *",
            "SHOW .*",
            "SHOW a b.*",
            "PIN t",
            "PIN TABLE",
            "PIN TABLE a b",
            "PIN TABLE a.",
            "PIN TABLE 'a'",
            "UNPIN TABLE a, b",
            "-- PIN TABLE t",
            "PIN TABLE 'open",
        ] {
            assert_eq!(Statement::parse(sql), None, "{sql}");
        }
    }
}
