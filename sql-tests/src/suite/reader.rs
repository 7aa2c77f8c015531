//! A tolerant reader of sqllogictest files, in the dialects of SQLite's and DuckDB's runners.
//!
//! It looks for statements alone, and never fails: of what it does not know it skips the line. What files say of answers, and
//! whether they expect an error, is not looked at.

mod condition;
mod loops;
mod split;
#[cfg(test)]
mod tests;

use std::ops::ControlFlow;

use crate::comparison::Statement;

/// Most statements of a file: loops within loops grow fast.
const STATEMENTS: usize = 20_000;

/// Most passes of all loops of a file, with those that hold no statement.
const ALL_PASSES: usize = 20_000;

/// Loops within loops.
const DEPTH: usize = 8;

/// A line with its number in the file. Loops repeat lines, with their variable replaced.
#[derive(Debug, Clone)]
struct Line {
    number: u32,
    text: String,
}

impl Line {
    /// The first word, which says what the line is.
    fn directive(&self) -> &str {
        self.text.split_whitespace().next().unwrap_or_default()
    }
}

/// The statements of a file's text, with loops expanded.
pub(super) fn read(text: &str) -> Vec<Statement> {
    let lines: Vec<Line> = text
        .lines()
        .zip(1..)
        .map(|(text, number)| Line {
            number,
            text: text.to_string(),
        })
        .collect();
    let mut reader = Reader::default();
    let _: ControlFlow<()> = reader.block(&lines, 0);
    reader.statements
}

#[derive(Debug, Default)]
struct Reader {
    statements: Vec<Statement>,
    /// The loops around, with their variables' values.
    variables: Vec<(String, String)>,
    /// Between `mode skip` and `mode unskip`.
    skipping: bool,
    /// Passes of loops so far.
    passes: usize,
}

impl Reader {
    /// Reads the lines of a file or of one pass of a loop; breaks where the file ends early.
    fn block(&mut self, lines: &[Line], depth: usize) -> ControlFlow<()> {
        let mut at = 0;
        // What `onlyif` and `skipif` say of the next record.
        let mut wanted = true;
        while let Some(line) = lines.get(at) {
            at += 1;
            match line.directive() {
                "onlyif" => wanted &= condition::holds(&line.text, &self.variables),
                "skipif" => wanted &= !condition::holds(&line.text, &self.variables),
                "statement" | "query" => {
                    let end = at + blank(&lines[at..]);
                    if wanted && !self.skipping {
                        self.record(line.number, &lines[at..end])?;
                    }
                    at = end;
                    wanted = true;
                }
                "loop" | "foreach" | "concurrentloop" | "concurrentforeach" => {
                    let end = at + loops::end(&lines[at..]);
                    if wanted {
                        self.repeat(&line.text, &lines[at..end], depth)?;
                    }
                    at = end + 1;
                    wanted = true;
                }
                "mode" => match line.text.split_whitespace().nth(1) {
                    Some("skip") => self.skipping = true,
                    Some("unskip") => self.skipping = false,
                    _ => {}
                },
                "halt" if wanted && !self.skipping => return ControlFlow::Break(()),
                "" => {}
                text if text.starts_with('#') => {}
                _ => wanted = true,
            }
        }
        ControlFlow::Continue(())
    }

    /// The statements of one record: one as a rule, several with semicolons between them.
    fn record(&mut self, number: u32, lines: &[Line]) -> ControlFlow<()> {
        let sql = lines.iter().map(|line| line.text.as_str());
        let sql: Vec<&str> = sql.take_while(|line| line.trim_end() != "----").collect();
        for sql in split::statements(&sql.join("\n")) {
            if self.statements.len() == STATEMENTS {
                return ControlFlow::Break(());
            }
            self.statements.push(Statement {
                line: number,
                sql: sql.to_string(),
            });
        }
        ControlFlow::Continue(())
    }

    /// The body of a loop, pass by pass.
    fn repeat(&mut self, head: &str, body: &[Line], depth: usize) -> ControlFlow<()> {
        if depth == DEPTH {
            return ControlFlow::Continue(());
        }
        for pass in loops::passes(head) {
            self.passes += 1;
            if self.passes > ALL_PASSES {
                return ControlFlow::Break(());
            }
            let lines: Vec<Line> = body
                .iter()
                .map(|line| Line {
                    number: line.number,
                    text: loops::replaced(&line.text, &pass),
                })
                .collect();
            let outer = self.variables.len();
            self.variables.extend(pass);
            let flow = self.block(&lines, depth + 1);
            self.variables.truncate(outer);
            flow?;
        }
        ControlFlow::Continue(())
    }
}

/// Lines before the next empty one, or all.
fn blank(lines: &[Line]) -> usize {
    let found = lines.iter().position(|line| line.text.trim().is_empty());
    found.unwrap_or(lines.len())
}
