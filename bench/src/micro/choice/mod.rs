//! Quality of the planner's choices: random workloads, each run by every possible algorithm and by `auto`.
//!
//! `auto` is the planner's own choice, with the statistics that a load would have brought (see the benchmark `join`). The loss of a
//! workload is the time of `auto` over that of the fastest run, less one. Recorded measurements can be judged again with
//! another model: [`replayed`].

mod drawn;
mod replay;

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};
use warpline_planner::{GroupSetting, JoinSetting};

use self::drawn::key_kind;
pub use self::drawn::{Drawn, DrawnGroupBy, DrawnJoin, drawn};
pub use self::replay::replayed;
use super::answered::{Answered, Attempt};
use super::{Bench, group_by, join};
use crate::error::{Error, Result};

/// A choice this much slower than the fastest is as good as it.
const GOOD: f64 = 0.15;
/// Losers that are listed with their reasons.
const LISTED: usize = 40;

/// One run of a workload.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Ran {
    /// The algorithm.
    pub algorithm: String,
    /// Median milliseconds.
    pub ms: f64,
    /// What the model said.
    pub price: Option<f64>,
    /// Milliseconds by kind of work.
    pub phases: Vec<(String, f64)>,
    /// What the plan says of the choice.
    pub reason: String,
}

/// All runs of a workload.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Case {
    /// What was run.
    pub workload: Drawn,
    /// By the planner's choice.
    pub auto: Ran,
    /// By each algorithm that can.
    pub forced: Vec<Ran>,
}

impl Case {
    /// The fastest of the forced runs.
    pub fn best(&self) -> &Ran {
        let all = self.forced.iter();
        all.min_by(|a, b| a.ms.total_cmp(&b.ms))
            .unwrap_or(&self.auto)
    }

    /// Time of `auto` over the fastest, less one; never negative. What was forced to the same algorithm ran the same kernels:
    /// the shorter of the two times counts.
    pub fn loss(&self) -> f64 {
        let same = self
            .forced
            .iter()
            .filter(|ran| ran.algorithm == self.auto.algorithm);
        let ms = same.map(|ran| ran.ms).fold(self.auto.ms, f64::min);
        (ms / self.best().ms.max(1e-9) - 1.0).max(0.0)
    }

    /// Could this have been measured? Says what could not.
    fn check(&self) -> Result<(), String> {
        self.workload.check()?;
        for ran in self.forced.iter().chain([&self.auto]) {
            let time = |ms: f64| ms.is_finite() && ms >= 0.0;
            if !time(ran.ms) || !ran.price.is_none_or(time) {
                return Err(format!("{} took no time that there is", ran.algorithm));
            }
        }
        Ok(())
    }

    /// One line.
    pub fn to_line(&self) -> String {
        let best = self.best();
        format!(
            "{:<96} auto {:>9} {:>9.3}  best {:>9} {:>9.3}  {:>5.0} %",
            self.workload.to_string(),
            self.auto.algorithm,
            self.auto.ms,
            best.algorithm,
            best.ms,
            100.0 * self.loss()
        )
    }
}

/// What all cases come to.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Choices {
    /// The device.
    pub device: String,
    /// In the order in which they were drawn.
    pub cases: Vec<Case>,
}

impl Choices {
    /// The share of the cases that lose at most 15 %, and the mean loss.
    pub fn quality(&self) -> (f64, f64) {
        let cases = self.cases.len().max(1) as f64;
        let good = self.cases.iter().filter(|case| case.loss() <= GOOD).count() as f64;
        let sum: f64 = self.cases.iter().map(Case::loss).sum();
        (good / cases, sum / cases)
    }

    /// The share, the mean, and the losers with the reasons of their choices, worst first.
    pub fn to_table(&self) -> String {
        let (good, mean) = self.quality();
        let mut text = format!(
            "{} workloads on {}: {:.1} % within {:.0} % of the fastest, mean loss {:.1} %\n",
            self.cases.len(),
            self.device,
            100.0 * good,
            100.0 * GOOD,
            100.0 * mean
        );
        let mut losers: Vec<&Case> = self.cases.iter().filter(|c| c.loss() > GOOD).collect();
        losers.sort_by(|a, b| b.loss().total_cmp(&a.loss()));
        for case in losers.iter().take(LISTED) {
            let _ = writeln!(text, "{}\n    {}", case.to_line(), case.auto.reason);
            let others: Vec<String> = case
                .forced
                .iter()
                .map(|ran| match ran.price {
                    Some(price) => format!("{} {:.3} (priced {price:.3})", ran.algorithm, ran.ms),
                    None => format!("{} {:.3}", ran.algorithm, ran.ms),
                })
                .collect();
            let _ = writeln!(text, "    measured: {}", others.join(", "));
        }
        text
    }

    /// One JSON object.
    ///
    /// # Errors
    /// [`Error::Bench`] when a number has no form in JSON.
    pub fn to_json(&self) -> Result<String> {
        serde_json::to_string(self)
            .map_err(|error| Error::Bench(format!("the choices have no JSON form: {error}")))
    }

    /// What [`Self::to_json`] wrote.
    ///
    /// # Errors
    /// [`Error::Bench`] for any other text, with what is wrong in it.
    pub fn of_json(text: &str) -> Result<Self> {
        let wrong = |what: String| Error::Bench(format!("these are no recorded choices: {what}"));
        let choices: Self = serde_json::from_str(text).map_err(|error| wrong(error.to_string()))?;
        for (number, case) in choices.cases.iter().enumerate() {
            case.check()
                .map_err(|what| wrong(format!("cases[{number}]: {what}")))?;
        }
        Ok(choices)
    }
}

/// Draws and runs `workloads` workloads; `progress` sees each as it is done, as the last of those that there are.
///
/// # Errors
/// [`Error::Bench`] for a wrong result; [`Error::Gpu`] and [`Error::DataFusion`].
pub async fn run(
    bench: &Bench,
    workloads: u64,
    seed: u64,
    mut progress: impl FnMut(&Choices) -> Result<()>,
) -> Result<Choices> {
    let mut choices = Choices {
        device: bench.engine.device(),
        cases: Vec::new(),
    };
    for number in 0..workloads {
        let workload = drawn(seed, number, bench.rows());
        if let Some(case) = case(bench, workload).await? {
            choices.cases.push(case);
            progress(&choices)?;
        }
    }
    Ok(choices)
}

/// All runs of a workload; `None` when not even `auto` has room.
async fn case(bench: &Bench, workload: Drawn) -> Result<Option<Case>> {
    let mut runs = Vec::new();
    match &workload {
        Drawn::Join(drawn) => {
            let joining = join::Joining::new(
                bench,
                join::Workload {
                    build_rows: drawn.build_rows,
                    probe_rows: drawn.probe_rows,
                    distinct: drawn.distinct(),
                    times: drawn.times,
                    zipf: drawn.zipf,
                    keys: key_kind(&drawn.keys),
                    build_columns: drawn.build_columns.clone(),
                    probe_columns: drawn.probe_columns.clone(),
                },
            )
            .await?;
            for setting in join::settings(bench, JoinSetting::Auto) {
                runs.extend(ran(setting.to_string(), joining.run(bench, setting).await?));
            }
            joining.forget(bench)?;
            let setting = JoinSetting::Auto.to_string();
            bench.set("warpline.join", &setting).await?;
        }
        Drawn::GroupBy(drawn) => {
            let grouping = group_by::Grouping::new(
                bench,
                group_by::Workload {
                    rows: drawn.rows,
                    groups: drawn.groups,
                    zipf: drawn.zipf,
                    keys: key_kind(&drawn.keys),
                    payload: drawn.payload.clone(),
                    returned: drawn.returned(),
                },
            )
            .await?;
            for setting in group_by::settings(bench, GroupSetting::Auto) {
                runs.extend(ran(
                    setting.to_string(),
                    grouping.run(bench, setting).await?,
                ));
            }
            grouping.forget(bench)?;
            let setting = GroupSetting::Auto.to_string();
            bench.set("warpline.group_by", &setting).await?;
        }
    }
    let mut runs = runs.into_iter();
    Ok(runs
        .next()
        .filter(|(name, _)| name == "auto")
        .map(|(_, auto)| Case {
            workload,
            auto,
            forced: runs.map(|(_, ran)| ran).collect(),
        }))
}

/// The run of a setting, by its name.
fn ran(setting: String, attempt: Attempt) -> Option<(String, Ran)> {
    let Attempt::Done(Answered { timing, choice, .. }) = attempt else {
        return None;
    };
    let price = choice.price();
    // Of two indexes exact figures decide when code is generated.
    let index = ["perfect", "nphj"]
        .into_iter()
        .find(|index| choice.reason.contains(&format!(" is {index}: ")));
    let algorithm = match (setting.as_str(), index) {
        ("auto", Some(index)) => index.to_string(),
        ("auto", None) => choice.algorithm,
        (forced, _) => forced.to_string(),
    };
    let phases = timing.phases.iter();
    let ran = Ran {
        algorithm,
        ms: timing.ms,
        price,
        phases: phases
            .map(|(name, ms)| ((*name).to_string(), *ms))
            .collect(),
        reason: choice.reason,
    };
    Some((setting, ran))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use warpline_gpu::machine::Machine;

    use super::replay::matched;
    use super::*;

    #[test]
    fn workloads_repeat_from_their_seed_and_differ_otherwise() {
        let of = |seed| (0..50).map(|n| drawn(seed, n, 1 << 20)).collect::<Vec<_>>();
        assert_eq!(of(1), of(1));
        assert_ne!(of(1), of(2));
        let all = of(1);
        assert!(all.windows(2).all(|pair| pair[0] != pair[1]));
        let joins = all.iter().filter(|w| matches!(w, Drawn::Join(_))).count();
        assert_eq!(joins, 25);
        for workload in all {
            if let Drawn::GroupBy(drawn) = workload {
                assert!(drawn.rows < 1 << 20 && drawn.groups <= drawn.rows);
            }
        }
    }

    #[test]
    fn matched_shares_are_those_of_every_so_many_ranks() {
        for (values, times, zipf) in [
            (4096, 1, 1.0),
            (4096, 8, 0.0),
            (4096, 4, 0.5),
            (1 << 16, 32, 1.5),
        ] {
            let of = |rank: u64| ((1 + rank) as f64).powf(-zipf);
            let all: f64 = (0..values).map(of).sum();
            let found: f64 = (0..values / times).map(|key| of(key * times)).sum();
            let got = matched(values, times, zipf);
            assert!(
                (got / (found / all) - 1.0).abs() < 0.01,
                "{values} {times} {zipf}: {got}"
            );
        }
    }

    #[test]
    fn losses_are_shares_and_means() {
        let ran = |algorithm: &str, ms| Ran {
            algorithm: algorithm.into(),
            ms,
            price: Some(1.0),
            phases: vec![],
            reason: "because".into(),
        };
        let case = |auto| Case {
            workload: drawn(1, 0, 1 << 20),
            auto: ran("phj_tr", auto),
            forced: vec![ran("phj_tr", 2.0), ran("nphj", 1.0)],
        };
        let choices = Choices {
            device: "none".into(),
            cases: vec![case(0.9), case(1.1), case(2.0), case(1.0)],
        };
        let (good, mean) = choices.quality();
        assert!((good - 0.75).abs() < 1e-9 && (mean - 0.275).abs() < 1e-9);
        let text = choices.to_table();
        assert!(
            text.contains("75.0 % within 15 %") && text.contains("because"),
            "{text}"
        );
        let again = Choices::of_json(&choices.to_json().unwrap()).unwrap();
        assert_eq!(again.cases, choices.cases);
        assert!(Choices::of_json("{}").is_err());
        let replayed = replayed(&choices, &Machine::h200());
        assert_eq!(replayed.cases.len(), 4);
    }

    /// A record of one workload with a time for `auto`.
    fn record(workload: &str, ms: &str) -> String {
        format!(
            r#"{{"device": "d", "cases": [{{"workload": {workload}, "forced": [],
                "auto": {{"algorithm": "nphj", "ms": {ms}, "price": null, "phases": [], "reason": ""}}}}]}}"#
        )
    }

    #[test]
    fn records_made_by_hand_are_judged_or_refused() {
        let join = |field: &str, value: &str| {
            let mut fields = std::collections::BTreeMap::from([
                ("build_rows", "1000"),
                ("probe_rows", "9000"),
                ("repeats", "1"),
                ("times", "2"),
                ("zipf", "0.5"),
                ("keys", r#""dense""#),
                ("build_columns", "[4]"),
                ("probe_columns", "[4, 8]"),
            ]);
            fields.insert(field, value);
            let fields = fields
                .iter()
                .map(|(name, value)| format!(r#""{name}": {value}"#));
            let fields = fields.collect::<Vec<_>>().join(", ");
            record(&format!(r#"{{"kind": "join", {fields}}}"#), "1.5")
        };
        let group = |payload: &str, calls: &str, ms: &str| {
            let fields = format!(
                r#"{{"kind": "group_by", "rows": 100, "groups": 7, "zipf": 0, "keys": "wide",
                    "payload": {payload}, "calls": {calls}}}"#
            );
            record(&fields, ms)
        };
        for text in [
            join("times", "1"),
            join("build_rows", "1099511627776"),
            join("repeats", "1099511627776"),
            group("[4, 16]", r#"["count", "sum(1)", "min(0)"]"#, "0"),
            group("[]", "[]", "1e300"),
        ] {
            let choices = Choices::of_json(&text).unwrap();
            assert_eq!(replayed(&choices, &Machine::h200()).cases.len(), 1);
            assert!(choices.to_table().starts_with("1 workloads"));
        }
        for (text, what) in [
            (join("repeats", "0"), "cases[0]: repeats is 0"),
            (join("times", "0"), "times is 0"),
            (
                join("times", "18446744073709551615"),
                "times is 18446744073709551615",
            ),
            (join("build_rows", "0"), "build_rows is 0"),
            (join("probe_rows", "18446744073709551615"), "probe_rows is"),
            (join("zipf", "-1"), "zipf is -1"),
            (join("zipf", "1e300"), "zipf is"),
            (join("keys", r#""even""#), r#"keys are "even""#),
            (
                join("build_columns", "[0]"),
                "build_columns has a column of 0 bytes",
            ),
            (join("build_columns", "[-4]"), "expected u32"),
            (
                group("[4]", r#"["sum(1)"]"#, "1"),
                r#""sum(1)" is over a column"#,
            ),
            (group("[4]", r#"["avg(0)"]"#, "1"), r#""avg(0)" is none of"#),
            (group("[4]", r#"["sum(é)"]"#, "1"), r#""sum(é)" is none of"#),
            (group("[4]", "[]", "-1"), "nphj took no time that there is"),
            (group("[4]", "[]", "1e999"), "number out of range"),
        ] {
            let error = Choices::of_json(&text).unwrap_err().to_string();
            assert!(error.contains(what), "{error}");
        }
    }
}
