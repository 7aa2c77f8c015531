//! What a run saw: a line a case, counts at the end, and a file for each finding.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::oracle::{Expected, Failure, Placed, Verdict};
use super::render;
use super::shrink::Failing;
use super::table::Storage;
use crate::slt;

/// Counts over all queries of a run.
#[derive(Debug, Default)]
pub struct Summary {
    /// Cases that were run.
    pub cases: usize,
    queries: usize,
    device: usize,
    part: usize,
    cpu: usize,
    failed: usize,
    /// Why queries were not compared, or not run on the device in full, and how often.
    reasons: BTreeMap<String, usize>,
}

impl Summary {
    /// Counts a query; a letter for its case's line.
    pub fn count(&mut self, verdict: &Verdict) -> char {
        self.queries += 1;
        let (letter, reasons, why) = match verdict {
            Verdict::Agreed(Placed::Device) => {
                self.device += 1;
                ('D', &vec![], "")
            }
            Verdict::Agreed(Placed::Part(reasons)) => {
                self.part += 1;
                ('p', reasons, "in part: ")
            }
            Verdict::Agreed(Placed::Cpu(reasons)) => {
                self.cpu += 1;
                ('c', reasons, "not: ")
            }
            Verdict::Skipped(why, text) => {
                let head: String = text
                    .chars()
                    .take(90)
                    .filter(|c| !c.is_ascii_digit())
                    .collect();
                let head = head.lines().next().unwrap_or_default().to_string();
                self.reason(format!("not compared: {why}: {head}"));
                ('s', &vec![], "")
            }
            Verdict::Failed(_) => {
                self.failed += 1;
                ('F', &vec![], "")
            }
        };
        for reason in reasons {
            let short: String = reason
                .chars()
                .take(110)
                .filter(|c| !c.is_ascii_digit())
                .collect();
            self.reason(format!("{why}{short}"));
        }
        letter
    }

    fn reason(&mut self, text: String) {
        *self.reasons.entry(text).or_default() += 1;
    }

    /// Queries with another answer than plain DataFusion's.
    pub fn failed(&self) -> usize {
        self.failed
    }

    /// Queries that were compared and ran on the device in full.
    pub fn on_the_device(&self) -> usize {
        self.device
    }

    /// Queries, those not compared too.
    pub fn queries(&self) -> usize {
        self.queries
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let compared = self.device + self.part + self.cpu + self.failed;
        writeln!(
            f,
            "{} cases, {} queries, {compared} compared: {} on the device, {} in part, {} not, {} failed",
            self.cases, self.queries, self.device, self.part, self.cpu, self.failed
        )?;
        let mut reasons: Vec<_> = self.reasons.iter().collect();
        reasons.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
        for (reason, count) in reasons.into_iter().take(40) {
            writeln!(f, "{count:6} {reason}")?;
        }
        Ok(())
    }
}

/// A finding as a sqllogictest file, which fails for as long as its cause is there.
pub fn file(seed: u64, failure: &Failure, small: &Failing, expected: Option<&Expected>) -> String {
    let mut text = format!("# Found by `warpline-sql-tests fuzz --case {seed}`.\n");
    for line in failure.message.lines().take(40) {
        text.push_str(&format!("# {line}\n"));
    }
    for table in small.tables.iter().filter(|t| t.storage != Storage::Sql) {
        text.push_str(&format!(
            "# {} fails stored in another way only: {:?}\n",
            table.name, table.storage
        ));
    }
    for (key, value) in &small.settings {
        text.push_str(&format!("\nstatement ok\n{}\n", render::set(key, value)));
    }
    for table in &small.tables {
        text.push_str(&format!(
            "\nstatement ok\n{}\n",
            render::create_table(table)
        ));
    }
    let sql = render::query(&small.query);
    let Some(expected) = expected else {
        text.push_str(&format!("\nstatement ok\n{sql}\n"));
        return text;
    };
    let (answer, ordered) = (expected.answer().batch(), expected.is_in_one_order());
    let sort = if ordered { "" } else { " rowsort" };
    let types = slt::type_letters(&answer.schema());
    let mut rows = slt::text_rows(answer).unwrap_or_default();
    if !ordered {
        rows.sort();
    }
    text.push_str(&format!("\nquery {types}{sort}\n{sql}\n----\n"));
    for row in rows {
        text.push_str(&row.join(" "));
        text.push('\n');
    }
    text
}

/// Writes the file of a finding; where it is.
///
/// # Errors
/// When the folder or the file cannot be written.
pub fn write(folder: &Path, seed: u64, number: usize, text: &str) -> io::Result<PathBuf> {
    fs::create_dir_all(folder)?;
    let path = folder.join(format!("case-{seed}-{number}.slt"));
    fs::write(&path, text)?;
    Ok(path)
}
