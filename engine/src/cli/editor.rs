//! Line editing: datafusion-cli's helper, extended by Warpline's own statements.

use std::borrow::Cow;

use datafusion::common::config::Dialect;
use datafusion_cli::helper::CliHelper;
use rustyline::completion::{Completer, Pair};
use rustyline::highlight::{CmdKind, Highlighter};
use rustyline::hint::Hinter;
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{Context, Helper, Result};
use warpline::is_own_statement;

use super::script::{Item, Script};

/// Highlights, completes and judges what is typed.
pub(super) struct ShellHelper(CliHelper);

impl ShellHelper {
    pub(super) fn new(dialect: &Dialect, color: bool) -> Self {
        Self(CliHelper::new(dialect, color))
    }

    pub(super) fn set_dialect(&mut self, dialect: &Dialect) {
        self.0.set_dialect(dialect);
    }

    pub(super) fn reset_hint(&self) {
        self.0.reset_hint();
    }
}

/// Whether the text is complete and has a statement that DataFusion's parser would refuse though it runs.
fn has_own_statement(text: &str) -> bool {
    let mut script = Script::default();
    let items: Vec<Item> = text.lines().flat_map(|line| script.line(line)).collect();
    let own = |item: &Item| matches!(item, Item::Sql(sql) if is_own_statement(sql));
    script.end().is_none() && items.iter().any(own)
}

impl Validator for ShellHelper {
    fn validate(&self, context: &mut ValidationContext<'_>) -> Result<ValidationResult> {
        if has_own_statement(context.input()) {
            self.0.reset_hint();
            return Ok(ValidationResult::Valid(None));
        }
        self.0.validate(context)
    }
}

impl Highlighter for ShellHelper {
    fn highlight<'l>(&self, line: &'l str, pos: usize) -> Cow<'l, str> {
        self.0.highlight(line, pos)
    }

    fn highlight_char(&self, line: &str, pos: usize, kind: CmdKind) -> bool {
        self.0.highlight_char(line, pos, kind)
    }

    fn highlight_hint<'h>(&self, hint: &'h str) -> Cow<'h, str> {
        self.0.highlight_hint(hint)
    }
}

impl Hinter for ShellHelper {
    type Hint = String;

    fn hint(&self, line: &str, pos: usize, context: &Context<'_>) -> Option<String> {
        self.0.hint(line, pos, context)
    }
}

impl Completer for ShellHelper {
    type Candidate = Pair;

    fn complete(
        &self,
        line: &str,
        pos: usize,
        context: &Context<'_>,
    ) -> Result<(usize, Vec<Pair>)> {
        self.0.complete(line, pos, context)
    }
}

impl Helper for ShellHelper {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_statements_are_complete_with_their_semicolon() {
        assert!(has_own_statement("PIN TABLE t;"));
        assert!(has_own_statement("SELECT 1;\nSHOW\n warpline.*;"));
        assert!(!has_own_statement("PIN TABLE t"));
        assert!(!has_own_statement("PIN TABLE t; SELECT"));
        assert!(!has_own_statement("SELECT 'PIN TABLE t;';"));
    }
}
