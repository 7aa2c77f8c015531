//! The pieces of a page: tiles, figures, tables, and what it all ran on.

use std::fmt::Write as _;

use warpline_planner::ByteSize;
use warpline_tpch::environment::{DeviceFacts, Environment};

use crate::chart::escaped;

const STYLE: &str = include_str!("style.css");

/// A page that grows by sections. Text is escaped where it is taken.
#[derive(Debug)]
pub(super) struct Page {
    title: String,
    body: String,
}

/// A number worth seeing first.
#[derive(Debug)]
pub(super) struct Tile {
    pub(super) value: String,
    pub(super) label: String,
}

impl Tile {
    pub(super) fn new(value: impl Into<String>, label: impl Into<String>) -> Self {
        Self {
            value: value.into(),
            label: label.into(),
        }
    }
}

/// A chart with its heading and legend.
#[derive(Debug)]
pub(super) struct Figure {
    pub(super) title: String,
    /// Below the heading: unit, scale.
    pub(super) about: String,
    /// A drawing, as [`crate::chart`] makes it.
    pub(super) svg: String,
    /// A key, as HTML, and what it means.
    pub(super) legend: Vec<(String, String)>,
}

/// What a table's cell looks like.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Tone {
    #[default]
    Plain,
    Good,
    Bad,
}

/// A table's cell.
#[derive(Debug, Clone, Default)]
pub(super) struct Cell {
    text: String,
    tone: Tone,
}

impl Cell {
    pub(super) fn toned(text: impl Into<String>, tone: Tone) -> Self {
        Self {
            text: text.into(),
            tone,
        }
    }
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self::toned(text, Tone::Plain)
    }
}

/// Rows below a header; the first column names them.
#[derive(Debug, Default)]
pub(super) struct Table {
    pub(super) header: Vec<String>,
    pub(super) rows: Vec<Vec<Cell>>,
    /// Sums; empty for none.
    pub(super) footer: Vec<Cell>,
    /// Cells hold words, which wrap.
    pub(super) words: bool,
}

impl Page {
    pub(super) fn new(title: impl Into<String>) -> Self {
        let title = title.into();
        let body = format!("<h1>{}</h1>\n", escaped(&title));
        Self { title, body }
    }

    pub(super) fn heading(&mut self, words: &str) {
        let _ = writeln!(self.body, "<h2>{}</h2>", escaped(words));
    }

    pub(super) fn paragraph(&mut self, words: &str) {
        let _ = writeln!(self.body, "<p class=\"faint\">{}</p>", escaped(words));
    }

    /// What `then` is: a report of `date`, and what makes the two incomparable.
    pub(super) fn earlier(&mut self, then: &str, date: Option<&str>, differences: &[String]) {
        let of = date.map_or(String::new(), |date| format!(" of {date} UTC"));
        let but = match differences {
            [] => String::new(),
            some => format!(", which is no like for like: {}", some.join(", ")),
        };
        self.paragraph(&format!("{then} is an earlier report{of}{but}."));
    }

    pub(super) fn warning(&mut self, words: &str) {
        let _ = writeln!(self.body, "<p class=\"bad\">{}</p>", escaped(words));
    }

    pub(super) fn tiles(&mut self, tiles: &[Tile]) {
        self.body.push_str("<div class=\"tiles\">\n");
        for tile in tiles {
            let _ = writeln!(
                self.body,
                "<div><b>{}</b><span>{}</span></div>",
                escaped(&tile.value),
                escaped(&tile.label)
            );
        }
        self.body.push_str("</div>\n");
    }

    pub(super) fn figures(&mut self, figures: &[Figure]) {
        self.body.push_str("<div class=\"charts\">\n");
        for figure in figures {
            let _ = write!(
                self.body,
                "<figure><figcaption>{}<small>{}</small></figcaption>\n{}",
                escaped(&figure.title),
                escaped(&figure.about),
                figure.svg
            );
            if !figure.legend.is_empty() {
                self.body.push_str("<ul class=\"legend\">");
                for (key, meaning) in &figure.legend {
                    let _ = write!(self.body, "<li>{key}{}</li>", escaped(meaning));
                }
                self.body.push_str("</ul>\n");
            }
            self.body.push_str("</figure>\n");
        }
        self.body.push_str("</div>\n");
    }

    /// What `fill` adds has a sheet of paper of its own that lies on its side: a table of many columns fits.
    pub(super) fn wide(&mut self, fill: impl FnOnce(&mut Self)) {
        self.body.push_str("<section class=\"wide\">\n");
        fill(self);
        self.body.push_str("</section>\n");
    }

    pub(super) fn table(&mut self, table: &Table) {
        self.body.push_str("<div class=\"scroll\">");
        self.body.push_str(&table.html());
        self.body.push_str("</div>\n");
    }

    /// A table that opens when it is asked for.
    pub(super) fn folded(&mut self, summary: &str, table: &Table) {
        let _ = writeln!(
            self.body,
            "<details><summary>{}</summary><div class=\"scroll\">{}</div></details>",
            escaped(summary),
            table.html()
        );
    }

    /// The machine, the versions and the settings.
    pub(super) fn environment(&mut self, environment: &Environment) {
        self.heading("Machine, versions, settings");
        let mut facts: Vec<(&str, String)> = Vec::new();
        let host = &environment.host;
        let mut machine = vec![host.system.clone(), format!("{} cores", host.cores)];
        machine.extend(host.processor.clone());
        machine.extend(
            host.memory_bytes
                .map(|bytes| format!("{} memory", size(bytes))),
        );
        match &environment.device {
            Some(device) => facts.push(("device", device_facts(device))),
            None => facts.push(("device", "none: the CPU answers".to_string())),
        }
        facts.push(("machine", machine.join(", ")));
        let versions = &environment.versions;
        facts.push((
            "versions",
            format!(
                "Warpline {} ({} build), DataFusion {}",
                versions.warpline, versions.build, versions.datafusion
            ),
        ));
        facts.push(("date", format!("{} UTC", environment.date)));
        if !environment.command.is_empty() {
            facts.push((
                "command",
                format!("warpline {}", environment.command.join(" ")),
            ));
        }
        let setting = |name: &str, value: &str| format!("{name} = {value}");
        let changed: Vec<String> = environment
            .settings
            .iter()
            .filter(|s| s.changed)
            .map(|s| setting(&s.name, &s.value))
            .collect();
        facts.push((
            "settings",
            match changed.is_empty() {
                true => "all by default".to_string(),
                false => format!("{}; others by default", changed.join(", ")),
            },
        ));
        let words = |rows: Vec<Vec<Cell>>| Table {
            rows,
            words: true,
            ..Table::default()
        };
        let facts = facts
            .into_iter()
            .map(|(name, fact)| vec![name.into(), fact.into()]);
        self.table(&words(facts.collect()));
        let all = environment.settings.iter();
        let all = all.map(|s| vec![s.name.clone().into(), s.value.clone().into()]);
        self.folded("All settings", &words(all.collect()));
    }

    pub(super) fn finish(self) -> String {
        format!(
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <title>{}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n{}\
             <footer>Made by Warpline.</footer>\n</body>\n</html>\n",
            escaped(&self.title),
            self.body
        )
    }
}

impl Table {
    fn html(&self) -> String {
        let mut out = match self.words {
            true => "<table class=\"words-left\">\n".to_string(),
            false => "<table>\n".to_string(),
        };
        if !self.header.is_empty() {
            out.push_str("<thead><tr>");
            for name in &self.header {
                let _ = write!(out, "<th scope=\"col\">{}</th>", escaped(name));
            }
            out.push_str("</tr></thead>\n");
        }
        out.push_str("<tbody>\n");
        for row in &self.rows {
            out.push_str(&row_html(row));
        }
        out.push_str("</tbody>\n");
        if !self.footer.is_empty() {
            let _ = writeln!(out, "<tfoot>{}</tfoot>", row_html(&self.footer).trim_end());
        }
        out.push_str("</table>");
        out
    }
}

fn row_html(row: &[Cell]) -> String {
    let mut out = "<tr>".to_string();
    for (column, cell) in row.iter().enumerate() {
        let class = match cell.tone {
            Tone::Plain => "",
            Tone::Good => " class=\"good\"",
            Tone::Bad => " class=\"bad\"",
        };
        let text = escaped(&cell.text);
        let _ = match column {
            0 => write!(out, "<th scope=\"row\"{class}>{text}</th>"),
            _ => write!(out, "<td{class}>{text}</td>"),
        };
    }
    out.push_str("</tr>\n");
    out
}

/// A key of a legend: a square of the colour.
pub(super) fn swatch(colour: &str) -> String {
    format!("<i style=\"background:{colour}\"></i>")
}

fn size(bytes: u64) -> String {
    ByteSize(usize::try_from(bytes).unwrap_or(usize::MAX)).to_string()
}

fn device_facts(device: &DeviceFacts) -> String {
    let mut facts = vec![match device.name == device.id {
        true => device.name.clone(),
        false => format!("{} ({})", device.name, device.id),
    }];
    facts.push(format!("{} memory", size(device.memory_bytes)));
    facts.push(format!(
        "{} of it in use at most",
        size(device.budget_bytes)
    ));
    if !device.compute_capability.is_empty() {
        facts.push(format!("compute capability {}", device.compute_capability));
        facts.push(format!("{} multiprocessors", device.multiprocessors));
        facts.push(format!("{} L2", size(device.l2_bytes)));
    }
    if let Some(bandwidth) = device.copy_gb_per_s {
        facts.push(format!("plain copy {bandwidth:.0} GB/s read + written"));
    }
    if !device.driver.is_empty() {
        facts.push(format!("driver {}", device.driver));
    }
    if !device.compiler.is_empty() {
        facts.push(device.compiler.clone());
    }
    facts.join(", ")
}
