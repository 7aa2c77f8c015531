//! What came of running statements on both sides.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use warpline::QueryRun;

use super::answer;
use super::plain::Expected;
use super::statement::{Failure, PassedOver, Statement};

/// Reasons, and refusals, that a summary lists.
const LISTED: usize = 40;

/// What came of running files.
#[derive(Debug, Default)]
pub struct Summary {
    /// Files that were run.
    pub files: usize,
    /// Statements and queries in them.
    pub statements: usize,
    /// Those that ask for rows.
    pub queries: usize,
    /// Those that the device alone ran.
    pub wholly: usize,
    /// Those of which a part ran on the device.
    pub partly: usize,
    /// Those that the CPU ran although a device is in use.
    pub on_cpu: usize,
    /// Those that have nothing for a device to do, such as definitions.
    pub without_work: usize,
    /// Those that neither side could run: errors that files expect, other dialects, data and functions that are not there.
    pub refused: usize,
    /// How plain DataFusion refused them, without what quotes the statement.
    pub refusals: BTreeMap<String, usize>,
    /// Those whose answers were not compared, and why.
    pub passed_over: BTreeMap<PassedOver, usize>,
    /// Those on which both sides do not agree.
    pub differences: Vec<Difference>,
    /// Why parts stayed on the CPU, and of how many statements.
    pub reasons: BTreeMap<String, usize>,
}

/// In what both sides do not agree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// The answers differ.
    Answer,
    /// Plain DataFusion answers, Warpline refuses.
    OnlyWarplineRefuses,
    /// Warpline panics, plain DataFusion does not.
    Panic,
    /// Plain DataFusion refuses, Warpline answers.
    OnlyDataFusionRefuses,
    /// Warpline takes longer than a statement may.
    OutOfTime,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Answer => "the answers differ",
            Self::OnlyWarplineRefuses => "only Warpline refuses it",
            Self::Panic => "only Warpline panics",
            Self::OnlyDataFusionRefuses => "only DataFusion refuses it",
            Self::OutOfTime => "only Warpline runs out of time",
        })
    }
}

/// A statement on which plain DataFusion and Warpline do not agree.
#[derive(Debug)]
pub struct Difference {
    /// The file, as it was given.
    pub file: PathBuf,
    /// The statement and its line.
    pub statement: Statement,
    /// In what they do not agree.
    pub kind: Kind,
    /// How the answers differ, or the error.
    pub what: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Statement { line, sql } = &self.statement;
        let (file, kind, what) = (self.file.display(), self.kind, &self.what);
        write!(f, "{file}:{line}: {kind}: {what}\n  {}", sql.trim())
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (files, statements, queries) = (self.files, self.statements, self.queries);
        writeln!(
            f,
            "{files} files, {statements} statements, {queries} of them queries"
        )?;
        for (count, what) in [
            (self.wholly, "ran wholly on the device"),
            (self.partly, "ran partly on the device"),
            (self.on_cpu, "ran on the CPU"),
            (self.without_work, "had nothing for a device to do"),
            (self.refused, "were refused by both sides"),
        ] {
            writeln!(f, "{count:>8}  {what}")?;
        }
        for (why, count) in &self.passed_over {
            writeln!(f, "{count:>8}  were passed over: {why}")?;
        }
        let mut kinds: BTreeMap<Kind, usize> = BTreeMap::new();
        for difference in &self.differences {
            *kinds.entry(difference.kind).or_default() += 1;
        }
        for (kind, count) in kinds {
            writeln!(f, "{count:>8}  do not agree: {kind}")?;
        }
        list(f, "why parts stayed on the CPU", &self.reasons)?;
        list(f, "how DataFusion refused statements", &self.refusals)
    }
}

/// The most frequent first.
fn list(f: &mut fmt::Formatter<'_>, title: &str, counts: &BTreeMap<String, usize>) -> fmt::Result {
    if counts.is_empty() {
        return Ok(());
    }
    writeln!(f, "{title}:")?;
    let mut counts: Vec<_> = counts.iter().collect();
    counts.sort_by(|a, b| b.1.cmp(a.1));
    for (what, count) in counts.iter().take(LISTED) {
        writeln!(f, "{count:>8}  {what}")?;
    }
    Ok(())
}

impl Summary {
    /// Statements of which a part ran on the device.
    pub fn on_device(&self) -> usize {
        self.wholly + self.partly
    }

    /// Adds what came of other files.
    pub fn add(&mut self, other: Self) {
        self.files += other.files;
        self.statements += other.statements;
        self.queries += other.queries;
        self.wholly += other.wholly;
        self.partly += other.partly;
        self.on_cpu += other.on_cpu;
        self.without_work += other.without_work;
        self.refused += other.refused;
        for (why, count) in other.passed_over {
            *self.passed_over.entry(why).or_default() += count;
        }
        for (reason, count) in other.reasons {
            *self.reasons.entry(reason).or_default() += count;
        }
        for (refusal, count) in other.refusals {
            *self.refusals.entry(refusal).or_default() += count;
        }
        self.differences.extend(other.differences);
    }

    fn count(&mut self, statement: &Statement) {
        self.statements += 1;
        self.queries += usize::from(statement.is_query());
    }

    pub(super) fn pass_over(&mut self, statement: &Statement, why: PassedOver) {
        self.count(statement);
        *self.passed_over.entry(why).or_default() += 1;
    }

    pub(super) fn compare(
        &mut self,
        file: &Path,
        statement: &Statement,
        expected: &Result<Expected, Failure>,
        found: Result<QueryRun, Failure>,
    ) {
        self.count(statement);
        if let Ok(run) = &found {
            let metrics = &run.metrics;
            *match (metrics.kernels > 0, metrics.fallbacks.is_empty()) {
                (true, true) => &mut self.wholly,
                (true, false) => &mut self.partly,
                (false, false) => &mut self.on_cpu,
                (false, true) => &mut self.without_work,
            } += 1;
            for reason in &metrics.fallbacks {
                *self.reasons.entry(without_count(reason)).or_default() += 1;
            }
        }
        let what = match (expected, found) {
            (_, Err(Failure::OutOfTime)) => Some((Kind::OutOfTime, String::new())),
            (Ok(_) | Err(Failure::Refused(_)), Err(Failure::Panicked(error))) => {
                Some((Kind::Panic, error))
            }
            (Ok(_), Err(Failure::Refused(error))) => Some((Kind::OnlyWarplineRefuses, error)),
            (Ok(_), Ok(_)) if !answer::is_comparable(&statement.sql) => None,
            (Ok(expected), Ok(run)) => match answer::difference(expected, &run) {
                Some(_) if expected.volatile => {
                    *self.passed_over.entry(PassedOver::Volatile).or_default() += 1;
                    None
                }
                what => what.map(|what| (Kind::Answer, what)),
            },
            (Err(Failure::Refused(error) | Failure::Panicked(error)), Ok(_)) => {
                Some((Kind::OnlyDataFusionRefuses, error.clone()))
            }
            (Err(failure), _) => {
                self.refused += 1;
                let how = match failure {
                    Failure::Refused(error) | Failure::Panicked(error) => without_quotes(error),
                    _ => String::new(),
                };
                *self.refusals.entry(how).or_default() += 1;
                None
            }
            (Ok(_), Err(Failure::PassedOver(_))) => None,
        };
        self.differences.extend(what.map(|(kind, what)| Difference {
            file: file.to_path_buf(),
            statement: statement.clone(),
            kind,
            what,
        }));
    }
}

/// `FilterExec x2: why` as `FilterExec: why`.
fn without_count(reason: &str) -> String {
    match reason.split_once(": ") {
        Some((operators, why)) => {
            let operator = operators.split(" x").next().unwrap_or(operators);
            format!("{operator}: {why}")
        }
        None => reason.to_string(),
    }
}

/// An error up to what it quotes of the statement.
fn without_quotes(error: &str) -> String {
    const LONGEST: usize = 80;
    let line = error.lines().next().unwrap_or_default();
    let text = line.split(['\'', '"', '`', '(']).next().unwrap_or(line);
    text.chars().take(LONGEST).collect::<String>().trim().into()
}
