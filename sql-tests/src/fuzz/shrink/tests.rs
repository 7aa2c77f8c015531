//! Shrinking against oracles that look at the text alone.

use std::time::Duration;

use super::*;
use crate::fuzz::case::Case;

fn shrunk(of: Failing, mut fails: impl FnMut(&Failing) -> bool) -> Failing {
    assert!(fails(&of), "it has to fail at first");
    let until = Instant::now() + Duration::from_secs(30);
    let mut asks = |failing: &Failing| fails(failing);
    let small = Shrinker::new(&mut asks, 100_000, until).shrink(of);
    assert!(fails(&small), "and at last");
    small
}

fn failing(wanted: impl Fn(&Failing) -> bool) -> Failing {
    (1..)
        .flat_map(|seed| {
            let case = Case::draw(seed);
            let tables = case.tables;
            let settings = case.settings.into_iter().next().unwrap_or_default();
            case.queries.into_iter().map(move |asked| Failing {
                tables: tables.clone(),
                settings: settings.clone(),
                query: asked.query,
            })
        })
        .find(wanted)
        .expect("there is one sooner or later")
}

fn sql(of: &Failing) -> String {
    render::query(&of.query)
}

#[test]
fn a_join_is_left_of_a_large_query() {
    let fails = |of: &Failing| sql(of).contains(" LEFT JOIN ");
    let large = failing(|of| fails(of) && sql(of).len() > 600);
    let small = shrunk(large, fails);
    assert!(sql(&small).len() < 100, "{}", sql(&small));
    assert!(small.tables.iter().all(|table| table.rows() == 0));
    assert!(small.settings.is_empty());
}

#[test]
fn what_a_failure_needs_stays() {
    let fails = |of: &Failing| {
        let text = sql(of);
        let rows: usize = of.tables.iter().map(Table::rows).sum();
        text.contains("sum(") && text.contains("GROUP BY") && rows >= 3
    };
    let large = failing(|of| fails(of) && sql(of).len() > 400);
    let small = shrunk(large, fails);
    assert!(sql(&small).len() < 120, "{}", sql(&small));
    let rows: usize = small.tables.iter().map(Table::rows).sum();
    assert_eq!(rows, 3);
}

#[test]
fn settings_and_storage_stay_when_they_matter() {
    let setting = "warpline.join";
    let fails = |of: &Failing| {
        let parquet = |table: &Table| matches!(table.storage, Storage::Parquet { .. });
        of.settings.iter().any(|(key, _)| key == setting) && of.tables.iter().any(parquet)
    };
    let large = failing(|of| fails(of) && of.settings.len() > 1);
    let small = shrunk(large, fails);
    assert_eq!(small.settings.len(), 1);
    assert_eq!(small.settings[0].0, setting);
}

#[test]
fn attempts_are_bounded() {
    let mut asked = 0;
    let mut fails = |_: &Failing| {
        asked += 1;
        true
    };
    let until = Instant::now() + Duration::from_secs(30);
    let large = failing(|of| of.tables.len() > 2);
    Shrinker::new(&mut fails, 5, until).shrink(large);
    assert_eq!(asked, 5);
}
