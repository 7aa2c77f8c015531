//! The page of a run of TPC-H or JCC-H.

use warpline_tpch::MemoryLadder;
use warpline_tpch::compare::{Earlier, change, geometric_mean};
use warpline_tpch::environment::Environment;
use warpline_tpch::report::{QueryReport, Report};

use super::html::{Cell, Figure, Page, Table, Tile, Tone, swatch};
use crate::chart::{COLOURS, Mark, Shape, dots, ratios, shares, significant};

/// Changes of less than this much, in either direction, are what a clock repeats.
const NOTEWORTHY: f64 = 0.03;

const HOT: Mark = Mark {
    name: "hot",
    shape: Shape::Disc,
    colour: COLOURS[0],
};
const COLD: Mark = Mark {
    name: "cold",
    shape: Shape::Ring,
    colour: COLOURS[1],
};
const FLOOR: Mark = Mark {
    name: "floor",
    shape: Shape::Tick,
    colour: COLOURS[2],
};
const CPU: Mark = Mark {
    name: "CPU",
    shape: Shape::Square,
    colour: COLOURS[3],
};

/// The report as a page, beside an `earlier` one if there is one.
pub fn tpch(report: &Report, earlier: Option<&Earlier>) -> String {
    let mut page = Page::new(report.heading(" at "));
    let date = report.environment.as_ref().and_then(Environment::date);
    let mut about = report.device.clone();
    if let Some((bindings, seed)) = report.bindings.zip(report.seed) {
        about.push_str(&format!(", {bindings} bindings of seed {seed}"));
    }
    if let Some(date) = date {
        about.push_str(&format!(", {date} UTC"));
    }
    page.paragraph(&about);
    if report.environment.as_ref().is_some_and(|e| {
        let emulated = e.device.as_ref().is_some_and(|device| device.emulated);
        emulated || e.versions.build == "debug"
    }) {
        page.warning("In the emulator, or compiled without optimisation: the times mean nothing.");
    }
    page.tiles(&tiles(report, earlier));
    page.heading("Charts");
    page.figures(&figures(report, earlier));
    page.wide(|page| {
    page.heading("Queries");
    page.table(&queries(report, earlier));
    page.paragraph(
        "Times are milliseconds. Cold is the first run, hot the median of the later ones; both count from SQL text to the \
         last Arrow batch on the host. The floor is the time in which a plain copy on the device moves the bytes that the \
         query must read. Load, plan and compile belong to the cold run, kernels to the last hot one. CPU is plain \
         DataFusion over the same tables on the same machine: the run that answers were compared with, unless more were \
         asked for.",
    );
    });
    notes(&mut page, report);
    if let Some(earlier) = earlier {
        page.earlier("Then", earlier.date(), &earlier.differences(report));
    }
    if let Some(environment) = &report.environment {
        page.environment(environment);
    }
    page.finish()
}

fn tiles(report: &Report, earlier: Option<&Earlier>) -> Vec<Tile> {
    let queries = &report.queries;
    let good = queries.iter().filter(|query| query.succeeded()).count();
    let verified = queries.iter().filter(|q| q.verified == Some(true)).count();
    let on_device = queries
        .iter()
        .filter(|q| q.fallbacks.is_empty() && q.bytes.is_some());
    let mut tiles = vec![
        Tile::new(format!("{good} of {}", queries.len()), "queries succeeded"),
        Tile::new(verified.to_string(), "answers verified"),
        Tile::new(on_device.count().to_string(), "wholly on the device"),
        Tile::new(
            format!("{} ms", significant(report.total_hot_ms)),
            "hot, all together",
        ),
    ];
    let cold = queries.iter().filter_map(|query| query.cold_ms);
    if let Some(cold) = cold.reduce(|sum, ms| sum + ms) {
        tiles.push(Tile::new(
            format!("{} ms", significant(cold)),
            "cold, all together",
        ));
    }
    if let Some(mean) = geometric_mean(queries.iter().filter_map(QueryReport::over_floor)) {
        tiles.push(Tile::new(significant(mean), "hot / floor, geometric mean"));
    }
    let both = queries
        .iter()
        .filter(|q| q.speedup().is_some())
        .filter_map(|q| Some((q.cpu_median_ms?, q.hot_median_ms?)));
    let (cpu, hot) = both.fold((0.0, 0.0), |sum, ms| (sum.0 + ms.0, sum.1 + ms.1));
    if hot > 0.0 {
        tiles.push(Tile::new(
            format!("{}×", significant(cpu / hot)),
            format!("DataFusion on the CPU: {} ms", significant(cpu)),
        ));
    }
    if let Some(earlier) = earlier {
        let pairs = earlier.pairs(report);
        if let Some(mean) = geometric_mean(pairs.iter().map(|(_, then, now)| now / then)) {
            let (then, now) = pairs
                .iter()
                .fold((0.0, 0.0), |sum, pair| (sum.0 + pair.1, sum.1 + pair.2));
            tiles.push(Tile::new(
                change(1.0, mean),
                format!(
                    "against then, geometric mean of {} queries: {} ms, now {} ms",
                    pairs.len(),
                    significant(then),
                    significant(now)
                ),
            ));
        }
    }
    tiles
}

fn name(query: &QueryReport) -> String {
    query.query.to_string()
}

fn figures(report: &Report, earlier: Option<&Earlier>) -> Vec<Figure> {
    let queries = &report.queries;
    let marks = [CPU, COLD, FLOOR, HOT];
    let times = queries.iter().map(|q| {
        let times = vec![q.cpu_median_ms, q.cold_ms, q.floor_ms, q.hot_median_ms];
        (name(q), times)
    });
    let times: Vec<_> = times.collect();
    let known = |number: usize| times.iter().any(|(_, times)| times[number].is_some());
    let keys = marks
        .iter()
        .enumerate()
        .filter(|(number, _)| known(*number));
    let mut figures = vec![Figure {
        title: "Hot and cold".into(),
        about: "milliseconds, logarithmic".into(),
        svg: dots(&times, &marks, "Times of each query"),
        legend: keys
            .map(|(_, mark)| (mark.key(), mark.name.to_string()))
            .collect(),
    }];
    let of = |ratio: &dyn Fn(&QueryReport) -> Option<f64>| -> Vec<(String, Option<f64>)> {
        queries.iter().map(|q| (name(q), ratio(q))).collect()
    };
    let has_any = |rows: &[(String, Option<f64>)]| rows.iter().any(|(_, ratio)| ratio.is_some());
    let floor = of(&QueryReport::over_floor);
    if has_any(&floor) {
        figures.push(Figure {
            title: "Ratio to the floor".into(),
            about: "hot median / time of a plain copy of the bytes read, logarithmic".into(),
            svg: ratios(&floor, "Hot time over floor of each query"),
            legend: vec![],
        });
    }
    figures.push(phases(
        queries,
        "Cold run by phase",
        "share of the first run; its milliseconds behind",
        &["load", "plan", "compile", "run"],
        |q| {
            let [load, plan, compile] = [q.load_ms?, q.plan_ms?, q.compile_ms?];
            let run = (q.cold_ms? - load - plan - compile).max(0.0);
            Some(vec![load, plan, compile, run])
        },
    ));
    figures.push(phases(
        queries,
        "Hot run by phase",
        "share of the median; its milliseconds behind",
        &["plan", "kernels", "the rest"],
        |q| {
            // Parts are those of the last run, which may be a little longer than the median.
            let plan = q.hot_plan_ms?;
            let kernels = q.kernel_ms.unwrap_or(0.0);
            let rest = (q.hot_median_ms? - plan - kernels).max(0.0);
            Some(vec![plan, kernels, rest])
        },
    ));
    let speedups = of(&QueryReport::speedup);
    if has_any(&speedups) {
        figures.push(Figure {
            title: "Speedup over the CPU".into(),
            about: "DataFusion on the CPU / hot median, logarithmic".into(),
            svg: ratios(
                &speedups,
                "Speedup of each query over DataFusion on the CPU",
            ),
            legend: vec![],
        });
    }
    if let Some(earlier) = earlier {
        let pairs = earlier.pairs(report);
        let ratio = |q: &QueryReport| {
            let pair = pairs.iter().find(|pair| pair.0 == q.query)?;
            (pair.2 > 0.0).then(|| pair.1 / pair.2)
        };
        figures.push(Figure {
            title: "Speedup over then".into(),
            about: "hot median of the earlier report / of this one, logarithmic".into(),
            svg: ratios(&of(&ratio), "Speedup of each query over the earlier report"),
            legend: vec![],
        });
    }
    figures
}

fn phases(
    queries: &[QueryReport],
    title: &str,
    about: &str,
    parts: &[&str],
    times: impl Fn(&QueryReport) -> Option<Vec<f64>>,
) -> Figure {
    let rows: Vec<(String, Vec<f64>)> = queries
        .iter()
        .map(|q| (name(q), times(q).unwrap_or_default()))
        .collect();
    let keys = parts.iter().zip(COLOURS);
    Figure {
        title: title.into(),
        about: about.into(),
        svg: shares(&rows, parts, title),
        legend: keys
            .map(|(part, colour)| (swatch(colour), (*part).to_string()))
            .collect(),
    }
}

fn queries(report: &Report, earlier: Option<&Earlier>) -> Table {
    let cpu = report.queries.iter().any(|q| q.cpu_median_ms.is_some());
    let mut header = vec![
        "query",
        "rows",
        "right",
        "cold",
        "hot",
        "floor",
        "hot / floor",
    ];
    if cpu {
        header.extend(["CPU", "speedup"]);
    }
    if earlier.is_some() {
        header.extend(["then", "change"]);
    }
    header.extend([
        "load",
        "plan",
        "compile",
        "hot plan",
        "in kernels",
        "kernels",
        "MB read",
        "peak MB",
        "on the CPU",
    ]);
    let rows = report.queries.iter().map(|q| {
        let time = |ms: Option<f64>| Cell::from(ms.map_or("-".to_string(), significant));
        let megabytes = |bytes: Option<u64>| time(bytes.map(|bytes| bytes as f64 / 1e6));
        let count =
            |count: Option<u64>| Cell::from(count.map_or("-".to_string(), |n| n.to_string()));
        let tone = match (q.succeeded(), q.verified) {
            (false, _) => Tone::Bad,
            (true, Some(true)) => Tone::Good,
            (true, _) => Tone::Plain,
        };
        let mut row = vec![
            Cell::from(name(q)),
            count(q.rows.map(|rows| rows as u64)),
            Cell::toned(q.outcome(), tone),
            time(q.cold_ms),
            time(q.hot_median_ms),
            time(q.floor_ms),
            time(q.over_floor()),
        ];
        if cpu {
            row.extend([time(q.cpu_median_ms), time(q.speedup())]);
        }
        if let Some(earlier) = earlier {
            let then = earlier.hot_ms(&q.query);
            row.push(time(then));
            let both = then.zip(q.hot_median_ms).filter(|_| q.succeeded());
            row.push(both.map_or(Cell::from("-"), |(then, now)| changed(then, now)));
        }
        row.extend([
            time(q.load_ms),
            time(q.plan_ms),
            time(q.compile_ms),
            time(q.hot_plan_ms),
            time(q.kernel_ms),
            count(q.kernels),
            megabytes(q.bytes),
            megabytes(q.peak_device_bytes),
            Cell::from(match q.fallbacks.len() {
                0 => "-".to_string(),
                parts => format!("{parts} parts"),
            }),
        ]);
        row
    });
    let rows: Vec<Vec<Cell>> = rows.collect();
    let mut footer = vec![Cell::default(); header.len()];
    footer[0] = "total".into();
    // None, where no query has a value, and not a sum of nothing.
    let mut total = |column: &str, sum: Option<f64>| {
        if let Some(at) = header.iter().position(|name| *name == column) {
            footer[at] = sum.map_or("-".to_string(), significant).into();
        }
    };
    let sum = |of: &dyn Fn(&QueryReport) -> Option<f64>| {
        let values = report.queries.iter().filter_map(of);
        values.reduce(|sum, value| sum + value)
    };
    total("cold", sum(&|q| q.cold_ms));
    total("hot", Some(report.total_hot_ms));
    total("floor", sum(&|q| q.floor_ms));
    total("CPU", sum(&|q| q.cpu_median_ms));
    if let Some(earlier) = earlier {
        total("then", sum(&|q| earlier.hot_ms(&q.query)));
    }
    Table {
        header: header.into_iter().map(String::from).collect(),
        rows,
        footer,
        words: false,
    }
}

/// A change of a time, good or bad where it is one.
pub(super) fn changed(then: f64, now: f64) -> Cell {
    let tone = match now / then {
        ratio if ratio < 1.0 - NOTEWORTHY => Tone::Good,
        ratio if ratio > 1.0 + NOTEWORTHY => Tone::Bad,
        _ => Tone::Plain,
    };
    Cell::toned(change(then, now), tone)
}

/// What failed, what stayed on the CPU and what was done for want of memory.
fn notes(page: &mut Page, report: &Report) {
    let mut rows: Vec<Vec<Cell>> = Vec::new();
    for query in &report.queries {
        let mut note = |tone, words: String| {
            rows.push(vec![Cell::from(name(query)), Cell::toned(words, tone)]);
        };
        if let Some(error) = &query.error {
            note(Tone::Bad, format!("failed: {error}"));
        }
        for fallback in &query.fallbacks {
            note(Tone::Plain, format!("on the CPU: {fallback}"));
        }
        let [streamed, spilled] = [query.bytes_streamed, query.bytes_spilled]
            .map(|bytes| significant(bytes.unwrap_or(0) as f64 / 1e6));
        if query.bytes_streamed.is_some_and(|b| b > 0) || query.bytes_spilled.is_some_and(|b| b > 0)
        {
            note(
                Tone::Plain,
                format!("larger than device memory: {streamed} MB streamed, {spilled} MB spilled"),
            );
        }
        let ladder = &query.ladder;
        if *ladder != MemoryLadder::default() {
            note(
                Tone::Plain,
                format!(
                    "short of device memory: {} evictions, {} waits, {} repeated runs, {} out of core, {} on the CPU",
                    ladder.evictions,
                    ladder.memory_waits,
                    ladder.repeats,
                    ladder.out_of_core,
                    ladder.cpu_fallbacks
                ),
            );
        }
        if let Some(balance) = &query.balance {
            note(
                Tone::Plain,
                format!(
                    "{} tree-shaped pipelines: idle lanes (IIR) {:.1} %, busiest warp over mean (ILIF) {:.2}",
                    balance.pipelines,
                    balance.iir * 100.0,
                    balance.ilif
                ),
            );
        }
    }
    if !rows.is_empty() {
        page.heading("Notes");
        page.table(&Table {
            rows,
            words: true,
            ..Table::default()
        });
    }
}
