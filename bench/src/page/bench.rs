//! The page of a run of micro-benchmarks.

use warpline_tpch::compare::{change, geometric_mean};

use super::html::{Cell, Figure, Page, Table, Tile, swatch};
use super::tpch::changed;
use crate::chart::{COLOURS, Layout, shares, short, significant};
use crate::micro::chart::Chart;
use crate::micro::{EarlierReport, Report, SweepReport};

/// Points of a chart of phases: more make a chart that nobody reads.
const MOST_PHASED: usize = 40;

/// The report as a page, beside an `earlier` one if there is one.
pub fn bench(report: &Report, earlier: Option<&EarlierReport>) -> String {
    let mut page = Page::new(format!("bench {}", report.benchmark));
    page.paragraph(report.title().trim());
    let environment = report.environment.as_ref();
    if environment.is_some_and(|e| e.device.as_ref().is_some_and(|device| device.emulated)) {
        page.warning("In the emulator: the times mean nothing.");
    }
    let points: usize = report.sweeps.iter().map(|sweep| sweep.points.len()).sum();
    let mut tiles = vec![
        Tile::new(points.to_string(), "points, each result checked on the CPU"),
        Tile::new(
            format!("{:.0} GB/s", report.copy_gb_per_s),
            "plain copy, read + written",
        ),
    ];
    let all = report.sweeps.iter().flat_map(|sweep| &sweep.points);
    let predicted = all.filter_map(|p| Some(p.predicted_ms? / p.ms));
    if let Some(mean) = geometric_mean(predicted) {
        tiles.push(Tile::new(
            significant(mean),
            "predicted / measured, geometric mean",
        ));
    }
    let ratios = earlier
        .map(|earlier| earlier.ratios(report))
        .unwrap_or_default();
    if let Some(mean) = geometric_mean(ratios.into_iter()) {
        tiles.push(Tile::new(change(1.0, mean), "against then, geometric mean"));
    }
    page.tiles(&tiles);
    if let Some(earlier) = earlier {
        page.earlier(
            "Then, dotted,",
            earlier.date(),
            &earlier.differences(report),
        );
    }
    for sweep in &report.sweeps {
        page.heading(&format!("{}: {}", sweep.sweep, sweep.about));
        page.figures(&figures(sweep, earlier));
        page.folded(
            &format!("The {} points", sweep.points.len()),
            &points_of(sweep, earlier),
        );
    }
    page.paragraph(
        "Times are medians in milliseconds between device events; dashed lines are what the planner's cost model predicts. \
         GB/s are bytes that must be read and written, whatever the algorithm's detours, over the time.",
    );
    if let Some(environment) = environment {
        page.environment(environment);
    }
    page.finish()
}

fn figures(sweep: &SweepReport, earlier: Option<&EarlierReport>) -> Vec<Figure> {
    let mut chart = Chart::of(sweep, String::new());
    if let Some(earlier) = earlier {
        chart.earlier(|series| earlier.series(sweep.sweep, series));
    }
    let layout = Layout::PAGE;
    let names = chart.series().into_iter().map(String::from);
    let mut figures = vec![Figure {
        title: "Time".into(),
        about: format!("milliseconds over {}", sweep.x),
        legend: names
            .enumerate()
            .map(|(number, name)| (swatch(COLOURS[number % COLOURS.len()]), name))
            .collect(),
        svg: chart
            .draw(layout)
            .scaling(layout.width, chart.height(layout), sweep.about),
    }];
    let parts = sweep.phases();
    if parts.is_empty() {
        return figures;
    }
    let mut series: Vec<&str> = Vec::new();
    for point in &sweep.points {
        if !series.contains(&point.series.as_str()) {
            series.push(&point.series);
        }
    }
    for name in series {
        let of = sweep.points.iter().filter(|point| point.series == name);
        let rows: Vec<(String, Vec<f64>)> = of
            .take(MOST_PHASED)
            .map(|point| {
                let time = |part: &&str| {
                    let times = point.phases.iter().filter(|(phase, _)| phase == part);
                    times.map(|(_, ms)| ms).sum()
                };
                (short(point.x), parts.iter().map(time).collect())
            })
            .collect();
        // A series lacks the phases of other algorithms.
        let used: Vec<usize> = (0..parts.len())
            .filter(|part| rows.iter().any(|(_, times)| times[*part] > 0.0))
            .collect();
        let keys = used.iter().map(|part| {
            let colour = COLOURS[part % COLOURS.len()];
            (swatch(colour), parts[*part].to_string())
        });
        figures.push(Figure {
            title: format!("{name} by phase"),
            about: format!("share of the time over {}; milliseconds behind", sweep.x),
            legend: keys.collect(),
            svg: shares(&rows, &parts, &format!("{name} by phase")),
        });
    }
    figures
}

fn points_of(sweep: &SweepReport, earlier: Option<&EarlierReport>) -> Table {
    let phases = sweep.phases();
    let mut header: Vec<String> = vec![
        "series".into(),
        sweep.x.into(),
        "ms".into(),
        "predicted".into(),
    ];
    if earlier.is_some() {
        header.extend(["then".into(), "change".into()]);
    }
    header.extend(phases.iter().map(|phase| (*phase).to_string()));
    header.extend(["MB", "GB/s", "of copy", "chosen"].map(String::from));
    let rows = sweep.points.iter().map(|point| {
        let time = |ms: Option<f64>| Cell::from(ms.map_or(String::new(), significant));
        let mut row: Vec<Cell> = vec![
            point.series.clone().into(),
            short(point.x).into(),
            time(Some(point.ms)),
            time(point.predicted_ms),
        ];
        if let Some(earlier) = earlier {
            let then = earlier.ms(sweep.sweep, &point.series, point.x);
            row.push(time(then));
            row.push(then.map_or(Cell::default(), |then| changed(then, point.ms)));
        }
        row.extend(phases.iter().map(|name| {
            let found = point.phases.iter().find(|(phase, _)| phase == name);
            time(found.map(|(_, ms)| *ms))
        }));
        row.extend([
            significant(point.bytes as f64 / 1e6).into(),
            significant(point.gb_per_s).into(),
            format!("{:.2}", point.of_copy).into(),
            point.algorithm.clone().unwrap_or_default().into(),
        ]);
        row
    });
    Table {
        rows: rows.collect(),
        header,
        ..Table::default()
    }
}
