//! What a measurement of many sessions gave: rates, latencies, and what the host and the device had to do.

use std::time::Duration;

use serde_json::{Value, json};

/// Ticks a second of the times in `/proc/self/stat`: the same on every Linux.
const TICKS: f64 = 100.0;

/// What the clients saw.
#[derive(Debug, Default)]
pub(super) struct Samples {
    /// Of each answered query, in milliseconds.
    latencies: Vec<f64>,
    kernel_ms: f64,
    errors: u64,
    wrong: u64,
    /// The first that went wrong, in words.
    first: Option<String>,
}

impl Samples {
    pub(super) fn answered(&mut self, latency: Duration, kernel_ms: f64) {
        self.latencies.push(latency.as_secs_f64() * 1e3);
        self.kernel_ms += kernel_ms;
    }

    pub(super) fn failed(&mut self, message: String) {
        self.errors += 1;
        self.first.get_or_insert(message);
    }

    pub(super) fn wrong(&mut self, message: String) {
        self.wrong += 1;
        self.first.get_or_insert(message);
    }

    pub(super) fn add(&mut self, other: Self) {
        self.latencies.extend(other.latencies);
        self.kernel_ms += other.kernel_ms;
        self.errors += other.errors;
        self.wrong += other.wrong;
        self.first = self.first.take().or(other.first);
    }

    /// Latencies at some shares of the queries, and the largest.
    fn quantiles(&self) -> Quantiles {
        let mut sorted = self.latencies.clone();
        sorted.sort_by(f64::total_cmp);
        let at = |share: f64| {
            let rank = (share * sorted.len() as f64).ceil() as usize;
            sorted.get(rank.saturating_sub(1)).copied()
        };
        Quantiles {
            p50: at(0.5),
            p95: at(0.95),
            p99: at(0.99),
            max: sorted.last().copied(),
        }
    }
}

/// In milliseconds; none when no query was answered.
struct Quantiles {
    p50: Option<f64>,
    p95: Option<f64>,
    p99: Option<f64>,
    max: Option<f64>,
}

/// One measurement.
#[derive(Debug)]
pub(super) struct Figures {
    pub(super) clients: usize,
    pub(super) wall: Duration,
    /// Of all threads of the process.
    pub(super) cpu_seconds: Option<f64>,
    pub(super) samples: Samples,
    /// Made by the device so far.
    pub(super) streams: usize,
    /// The query that ran beside, by name, and its runs.
    pub(super) heavy: Option<(String, Samples)>,
}

impl Figures {
    /// Did every query answer, and rightly?
    pub(super) fn passed(&self) -> bool {
        let heavy = self.heavy.as_ref().map(|(_, samples)| samples);
        let failed = |samples: &Samples| samples.errors + samples.wrong > 0;
        !std::iter::once(&self.samples).chain(heavy).any(failed)
    }

    fn queries_per_second(&self) -> f64 {
        self.samples.latencies.len() as f64 / self.wall.as_secs_f64()
    }

    /// Time in kernels over wall time: streams run beside each other, so it may be above 1.
    fn kernel_share(&self) -> f64 {
        self.samples.kernel_ms / 1e3 / self.wall.as_secs_f64()
    }

    /// Cores of the host that were busy.
    fn cores(&self) -> Option<f64> {
        Some(self.cpu_seconds? / self.wall.as_secs_f64())
    }

    /// `64` or `16 + Q21`.
    fn name(&self) -> String {
        match &self.heavy {
            None => self.clients.to_string(),
            Some((name, _)) => format!("{} + {name}", self.clients),
        }
    }

    fn first_failure(&self) -> Option<&str> {
        let heavy = self.heavy.as_ref().and_then(|(_, s)| s.first.as_deref());
        self.samples.first.as_deref().or(heavy)
    }

    /// For those who wait.
    pub(super) fn to_line(&self) -> String {
        format!(
            "{} clients: {:.1} queries/s",
            self.name(),
            self.queries_per_second()
        )
    }

    pub(super) fn to_json(&self) -> Value {
        let quantiles = self.samples.quantiles();
        let heavy = self.heavy.as_ref().map(|(name, samples)| {
            json!({
                "query": name,
                "queries": samples.latencies.len(),
                "errors": samples.errors,
                "p50_ms": samples.quantiles().p50,
                "max_ms": samples.quantiles().max,
            })
        });
        json!({
            "clients": self.clients,
            "seconds": self.wall.as_secs_f64(),
            "queries": self.samples.latencies.len(),
            "queries_per_second": self.queries_per_second(),
            "p50_ms": quantiles.p50,
            "p95_ms": quantiles.p95,
            "p99_ms": quantiles.p99,
            "max_ms": quantiles.max,
            "errors": self.samples.errors,
            "wrong": self.samples.wrong,
            "first_failure": self.first_failure(),
            "kernel_share": self.kernel_share(),
            "cores": self.cores(),
            "streams": self.streams,
            "heavy": heavy,
        })
    }
}

/// All measurements, with the words for what failed below.
pub(super) fn to_table(measured: &[Figures]) -> String {
    const TITLES: [&str; 11] = [
        "clients",
        "queries/s",
        "p50 ms",
        "p95 ms",
        "p99 ms",
        "max ms",
        "errors",
        "wrong",
        "kernels/time",
        "cores",
        "streams",
    ];
    let ms = |value: Option<f64>| value.map_or("-".to_string(), |ms| format!("{ms:.2}"));
    let mut rows = vec![TITLES.map(str::to_string).to_vec()];
    for figures in measured {
        let quantiles = figures.samples.quantiles();
        rows.push(vec![
            figures.name(),
            format!("{:.1}", figures.queries_per_second()),
            ms(quantiles.p50),
            ms(quantiles.p95),
            ms(quantiles.p99),
            ms(quantiles.max),
            figures.samples.errors.to_string(),
            figures.samples.wrong.to_string(),
            format!("{:.2}", figures.kernel_share()),
            figures
                .cores()
                .map_or("-".to_string(), |cores| format!("{cores:.1}")),
            figures.streams.to_string(),
        ]);
    }
    let widths: Vec<usize> = (0..TITLES.len())
        .map(|at| rows.iter().map(|row| row[at].len()).max().unwrap_or(0))
        .collect();
    let mut text = String::new();
    for row in &rows {
        let cells = row.iter().zip(&widths);
        let line: Vec<String> = cells
            .map(|(cell, width)| format!("{cell:>width$}"))
            .collect();
        text.push_str(line.join("  ").trim_end());
        text.push('\n');
    }
    for figures in measured {
        if let Some((name, samples)) = &figures.heavy {
            text.push_str(&format!(
                "{name} beside {} clients: {} runs, median {} ms\n",
                figures.clients,
                samples.latencies.len(),
                ms(samples.quantiles().p50)
            ));
        }
    }
    for figures in measured {
        if let Some(first) = figures.first_failure() {
            text.push_str(&format!("{} clients: {first}\n", figures.name()));
        }
    }
    text
}

/// Seconds that all threads of this process have computed so far.
pub(super) struct CpuTime;

impl CpuTime {
    /// None where the system does not tell.
    pub(super) fn now() -> Option<f64> {
        let text = std::fs::read_to_string("/proc/self/stat").ok()?;
        // The name of the program is in brackets, and may hold anything.
        let after = text.rsplit_once(')')?.1;
        let mut fields = after.split_whitespace().skip(11);
        let mut ticks = || fields.next()?.parse::<f64>().ok();
        Some((ticks()? + ticks()?) / TICKS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(latencies: &[f64]) -> Figures {
        let mut samples = Samples::default();
        for ms in latencies {
            samples.answered(Duration::from_secs_f64(ms / 1e3), 0.5);
        }
        Figures {
            clients: 4,
            wall: Duration::from_secs(2),
            cpu_seconds: Some(3.0),
            samples,
            streams: 5,
            heavy: None,
        }
    }

    #[test]
    fn quantiles_are_latencies_that_were_seen() {
        let of = |count: u32| {
            let latencies: Vec<f64> = (1..=count).rev().map(f64::from).collect();
            figures(&latencies).samples.quantiles()
        };
        let hundred = of(100);
        let close = |value: Option<f64>, ms: f64| value.is_some_and(|v| (v - ms).abs() < 1e-6);
        assert!(close(hundred.p50, 50.0) && close(hundred.p95, 95.0));
        assert!(close(hundred.p99, 99.0) && close(hundred.max, 100.0));
        let one = of(1);
        assert!(close(one.p50, 1.0) && close(one.p99, 1.0));
        assert!(of(0).p99.is_none());
    }

    #[test]
    fn what_failed_is_told() {
        let mut measured = figures(&[1.0, 2.0, 3.0, 4.0]);
        assert!(measured.passed());
        let json = measured.to_json();
        assert_eq!(json["queries_per_second"], 2.0);
        assert_eq!(json["kernel_share"], 1e-3);
        assert_eq!(json["cores"], 1.5);
        let mut other = Samples::default();
        other.wrong("Q3: row 1 differs".into());
        other.failed("Q4: no memory".into());
        measured.samples.add(other);
        assert!(!measured.passed());
        let table = to_table(&[measured]);
        assert!(table.contains("4 clients: Q3: row 1 differs\n"), "{table}");
        assert!(table.starts_with("clients  queries/s"), "{table}");
    }

    #[test]
    fn the_process_has_computed() {
        if cfg!(target_os = "linux") {
            assert!(CpuTime::now().is_some());
        }
    }
}
