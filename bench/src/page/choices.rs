//! The page of a run of the benchmark of choices.

use warpline_tpch::environment::Environment;

use super::html::{Cell, Figure, Page, Table, Tile, Tone};
use crate::chart::{Layout, LineChart, Series, significant};
use crate::micro::choice::{Case, Choices};

/// A loss beyond this stands out in the table.
const BAD: f64 = 0.15;

/// The choices as a page, with what they were made on, beside `earlier` ones if there are some.
pub fn choices(
    choices: &Choices,
    environment: Option<&Environment>,
    earlier: Option<&Choices>,
) -> String {
    let mut page = Page::new("bench choice");
    page.paragraph(&format!(
        "{} workloads drawn at random, on {}: each run by every algorithm that can and by the planner's choice",
        choices.cases.len(),
        choices.device
    ));
    let percent = |share: f64| format!("{:.1} %", share * 100.0);
    let (good, mean) = choices.quality();
    let mut tiles = vec![
        Tile::new(percent(good), "within 15 % of the fastest"),
        Tile::new(percent(mean), "mean loss"),
    ];
    if let Some(earlier) = earlier {
        let (good, mean) = earlier.quality();
        tiles.push(Tile::new(
            percent(good),
            format!("then, of {} workloads", earlier.cases.len()),
        ));
        tiles.push(Tile::new(percent(mean), "mean loss then"));
    }
    page.tiles(&tiles);
    page.heading("Losses");
    let sorted = |choices: &Choices| -> Vec<(f64, f64)> {
        let mut losses: Vec<f64> = choices.cases.iter().map(Case::loss).collect();
        losses.sort_by(|a, b| b.total_cmp(a));
        let share = |at: usize| 100.0 * (at as f64 + 1.0) / losses.len().max(1) as f64;
        losses
            .iter()
            .enumerate()
            .map(|(at, loss)| (share(at), loss * 100.0))
            .collect()
    };
    let chart = LineChart {
        title: String::new(),
        x: "% of the workloads, the worst first",
        unit: "%",
        logarithmic: false,
        series: vec![Series {
            name: "loss".into(),
            measured: sorted(choices),
            earlier: earlier.map(sorted).unwrap_or_default(),
            ..Series::default()
        }],
    };
    let layout = Layout::PAGE;
    page.figures(&[Figure {
        title: "Loss".into(),
        about: "time of the choice over the fastest, less one, in percent; dotted: then".into(),
        svg: chart
            .draw(layout)
            .scaling(layout.width, layout.height, "Losses, sorted"),
        legend: vec![],
    }]);
    page.heading("Workloads");
    let mut header = vec!["workload", "chosen", "ms", "fastest", "ms", "loss"];
    if earlier.is_some() {
        header.push("loss then");
    }
    let mut cases: Vec<&Case> = choices.cases.iter().collect();
    cases.sort_by(|a, b| b.loss().total_cmp(&a.loss()));
    let rows = cases.into_iter().map(|case| {
        let best = case.best();
        let loss = case.loss();
        let tone = if loss > BAD { Tone::Bad } else { Tone::Plain };
        let mut row: Vec<Cell> = vec![
            case.workload.to_string().into(),
            case.auto.algorithm.clone().into(),
            significant(case.auto.ms).into(),
            best.algorithm.clone().into(),
            significant(best.ms).into(),
            Cell::toned(percent(loss), tone),
        ];
        if let Some(earlier) = earlier {
            let same = earlier
                .cases
                .iter()
                .find(|old| old.workload == case.workload);
            row.push(same.map_or(Cell::default(), |old| percent(old.loss()).into()));
        }
        row
    });
    page.table(&Table {
        header: header.into_iter().map(String::from).collect(),
        rows: rows.collect(),
        ..Table::default()
    });
    if let Some(environment) = environment {
        page.environment(environment);
    }
    page.finish()
}
