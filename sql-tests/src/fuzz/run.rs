//! The command: runs cases until a time or a number of them, shrinks what fails and writes it down.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use warpline::DeviceChoice;

use super::case::{Case, Settings};
use super::oracle::{Expected, Failure, Kind, Opened, Oracle, Verdict};
use super::query::Query;
use super::report::{self, Summary};
use super::shrink::{Failing, Shrinker};
use crate::Random;
use crate::cut::Cut;

/// What the command takes.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The number that determines all cases; drawn from the clock when not given.
    #[arg(long)]
    seed: Option<u64>,
    /// How long to go on.
    #[arg(long, default_value_t = 1.0)]
    minutes: f64,
    /// Most cases.
    #[arg(long)]
    cases: Option<usize>,
    /// One case again, by the number that it was printed with; several with commas.
    #[arg(long, value_delimiter = ',')]
    case: Vec<u64>,
    /// The device to compare: emulator, cuda, cuda:N or cpu.
    #[arg(long, default_value = "emulator")]
    device: String,
    /// A setting for all cases; it wins over what they draw.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    settings: Vec<String>,
    /// Where files of findings go.
    #[arg(long, default_value = "fuzz-findings")]
    out: PathBuf,
    /// Seconds that a query may take on the device.
    #[arg(long, default_value_t = 300)]
    time_limit: u64,
    /// Seconds that may be spent to make a finding small; 0 leaves it as it is.
    #[arg(long, default_value_t = 240)]
    shrink: u64,
    /// Compare plans without one of the optimizer's rules, each in turn, and no device.
    #[arg(long)]
    rules: bool,
    /// Print each query before it runs.
    #[arg(long)]
    verbose: bool,
    /// Print cases, a table or query a line, and run nothing.
    #[arg(long)]
    dry_run: bool,
}

/// Runs the command; the exit status says whether all was equal.
pub fn run(arguments: &Arguments) -> ExitCode {
    match try_run(arguments) {
        Ok(summary) => {
            println!("{summary}");
            match summary.failed() {
                0 => ExitCode::SUCCESS,
                _ => ExitCode::FAILURE,
            }
        }
        Err(message) => {
            eprintln!("error: {message}");
            ExitCode::from(2)
        }
    }
}

fn try_run(arguments: &Arguments) -> Result<Summary, String> {
    let choice: DeviceChoice = match arguments.rules {
        true => DeviceChoice::Cpu,
        false => (arguments.device.parse()).map_err(|error| format!("--device: {error}"))?,
    };
    let mut forced = Settings::new();
    for setting in &arguments.settings {
        let pair = setting.split_once('=');
        let (key, value) = pair.ok_or_else(|| format!("--set {setting}: not KEY=VALUE"))?;
        forced.push((key.to_string(), value.to_string()));
    }
    if arguments.dry_run {
        print_cases(arguments);
        return Ok(Summary::default());
    }
    let oracle = Oracle::open(choice, Duration::from_secs(arguments.time_limit))?;
    let clock = || {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        now.map_or(1, |time| time.as_secs())
    };
    let seed = arguments.seed.unwrap_or_else(clock);
    println!("seed {seed}, device {choice}");
    let end = Instant::now() + Duration::from_secs_f64(arguments.minutes.max(0.0) * 60.0);
    let mut random = Random::new(seed);
    let mut fuzzer = Fuzzer {
        oracle,
        rules: arguments.rules,
        forced,
        out: Some(arguments.out.clone()),
        shrink: Duration::from_secs(arguments.shrink),
        verbose: arguments.verbose,
        summary: Summary::default(),
        findings: vec![],
    };
    match arguments.case.is_empty() {
        false => {
            for case in &arguments.case {
                fuzzer.case(&Case::draw(*case))?;
            }
        }
        true => {
            let most = arguments.cases.unwrap_or(usize::MAX);
            while fuzzer.summary.cases < most && Instant::now() < end {
                // Short enough to be typed.
                fuzzer.case(&Case::draw(random.next() >> 24))?;
            }
        }
    }
    fuzzer.oracle.end();
    Ok(fuzzer.summary)
}

fn print_cases(arguments: &Arguments) {
    let mut random = Random::new(arguments.seed.unwrap_or(1));
    let drawn = (0..arguments.cases.unwrap_or(10)).map(|_| random.next() >> 24);
    let cases = match arguments.case.is_empty() {
        true => drawn.collect(),
        false => arguments.case.clone(),
    };
    for (number, seed) in cases.into_iter().enumerate() {
        let case = Case::draw(seed);
        println!("{number} case {seed}: {:?}", case.settings);
        for table in &case.tables {
            let columns = table.columns.iter();
            let types =
                columns.map(|column| format!("{} {}", column.reference_in_sql(), column.data_type));
            let types: Vec<String> = types.collect();
            println!(
                "{number} {} rows {} {:?}: {}",
                table.name,
                table.rows(),
                table.storage,
                types.join(", ")
            );
        }
        for asked in &case.queries {
            for query in std::iter::once(&asked.query).chain(&asked.forms) {
                println!("{number} {}", super::render::query(query));
            }
        }
    }
}

/// Runs the cases of a seed and returns the findings, in words, without making them small; for tests.
///
/// # Errors
/// A device that does not open.
pub fn run_cases(
    choice: DeviceChoice,
    seed: u64,
    cases: usize,
) -> Result<(Summary, Vec<String>), String> {
    let mut fuzzer = Fuzzer {
        oracle: Oracle::open(choice, Duration::from_secs(300))?,
        rules: false,
        forced: vec![],
        out: None,
        shrink: Duration::ZERO,
        verbose: false,
        summary: Summary::default(),
        findings: vec![],
    };
    let mut random = Random::new(seed);
    for _ in 0..cases {
        fuzzer.case(&Case::draw(random.next() >> 24))?;
    }
    fuzzer.oracle.end();
    Ok((fuzzer.summary, fuzzer.findings))
}

/// Another way to run a query.
#[derive(Debug, Clone, Copy)]
enum Again {
    /// Its aggregations are cut between their phases.
    Cut,
    /// Its rows stay on the device.
    OnDevice,
}

struct Fuzzer {
    oracle: Oracle,
    /// Whether plans without rules are compared.
    rules: bool,
    forced: Settings,
    out: Option<PathBuf>,
    shrink: Duration,
    verbose: bool,
    summary: Summary,
    findings: Vec<String>,
}

impl Fuzzer {
    /// All queries of a case in all of its sessions.
    fn case(&mut self, case: &Case) -> Result<(), String> {
        let start = Instant::now();
        let mut line = String::new();
        self.summary.cases += 1;
        for settings in &case.settings {
            let settings = self.with_forced(settings);
            let opened = match self.oracle.session(&case.tables, &settings) {
                Ok(opened) => opened,
                Err(message) => {
                    println!("case {}: {message}; {settings:?}", case.seed);
                    line.push('!');
                    continue;
                }
            };
            for asked in &case.queries {
                let expected = self.oracle.expect(&opened, &asked.query);
                for (i, query) in std::iter::once(&asked.query)
                    .chain(&asked.forms)
                    .enumerate()
                {
                    if self.verbose {
                        println!("{};", super::render::query(query));
                    }
                    let verdict = match &expected {
                        // Other forms have the same answer, if plain DataFusion agrees.
                        Ok(expected)
                            if i > 0 && self.oracle.contradicts(&opened, query, expected) =>
                        {
                            Verdict::Skipped("plain DataFusion contradicts itself", String::new())
                        }
                        Ok(expected) => self.judge(&opened, query, expected),
                        Err(verdict) => verdict.clone(),
                    };
                    let hangs = matches!(&verdict, Verdict::Failed(f) if f.kind == Kind::Hang);
                    let verdict =
                        self.checked(case, &settings, query, expected.as_ref().ok(), verdict);
                    line.push(self.summary.count(&verdict));
                    if let Verdict::Failed(failure) = &verdict {
                        self.found(case, &settings, query, expected.as_ref().ok(), failure);
                    }
                    if hangs {
                        self.oracle.renew()?;
                        println!("case {}: {line}, left after a hang", case.seed);
                        return Ok(());
                    }
                }
            }
            if !self.rules {
                line.push(self.again(case, &settings, &opened, Again::Cut));
                line.push(self.again(case, &settings, &opened, Again::OnDevice));
            }
            line.push(' ');
        }
        let seconds = start.elapsed().as_secs_f64();
        println!("case {}: {line} {seconds:.1} s", case.seed);
        Ok(())
    }

    fn judge(&self, opened: &Opened, query: &Query, expected: &Expected) -> Verdict {
        match self.rules {
            true => self.oracle.judge_rules(opened, query, expected),
            false => self.oracle.judge(opened, query, expected),
        }
    }

    /// How something fails and what was expected; `None` when it does not, or nothing can be said.
    fn outcome(&self, of: &Failing) -> Option<(Failure, Expected)> {
        let opened = self.oracle.session(&of.tables, &of.settings).ok()?;
        let expected = self.oracle.expect(&opened, &of.query).ok()?;
        match self.judge(&opened, &of.query, &expected) {
            Verdict::Failed(failure) => Some((failure, expected)),
            _ => None,
        }
    }

    /// One query of the case once more, in another way.
    fn again(&mut self, case: &Case, settings: &Settings, opened: &Opened, how: Again) -> char {
        let mut random = Random::new(case.seed);
        let query = &case.queries[random.below(case.queries.len())].query;
        let cut = Cut::EACH[random.below(Cut::EACH.len())];
        let Ok(expected) = self.oracle.expect(opened, query) else {
            return ' ';
        };
        let failure = match how {
            Again::Cut => self.oracle.judge_cut(opened, query, &expected, cut),
            Again::OnDevice => self.oracle.judge_on_device(opened, query, &expected),
        };
        let Some(failure) = failure else {
            return ' ';
        };
        let whole = Failing {
            tables: case.tables.clone(),
            settings: settings.clone(),
            query: query.clone(),
        };
        // As it is: made small, it would be another query's whole plan.
        let text = report::file(case.seed, &failure, &whole, Some(&expected));
        println!("FOUND in case {}, {how:?}\n{text}", case.seed);
        self.findings.push(text);
        self.summary.count(&Verdict::Failed(failure))
    }

    fn with_forced(&self, settings: &Settings) -> Settings {
        let forced = |key: &String| self.forced.iter().any(|(name, _)| name == key);
        let mut all: Settings = settings.clone();
        all.retain(|(key, _)| !forced(key));
        all.extend(self.forced.iter().cloned());
        all
    }

    /// A failure that is plain DataFusion's own is none.
    fn checked(
        &self,
        case: &Case,
        settings: &Settings,
        query: &Query,
        expected: Option<&Expected>,
        verdict: Verdict,
    ) -> Verdict {
        let Verdict::Failed(failure) = &verdict else {
            return verdict;
        };
        if case.faults && super::oracle::is_fault(&failure.message) {
            return Verdict::Skipped("an error of values", failure.message.clone());
        }
        let other = settings
            .iter()
            .any(|(key, _)| key.starts_with("datafusion."));
        if failure.kind == Kind::Answer
            && other
            && let Some(expected) = expected
            && let Ok(plain) = self.oracle.session(&case.tables, &vec![])
            && (query.limit.is_none() || !query.order.is_empty())
            && self.oracle.contradicts(&plain, query, expected)
        {
            return Verdict::Skipped("plain DataFusion contradicts itself", String::new());
        }
        verdict
    }

    fn found(
        &mut self,
        case: &Case,
        settings: &Settings,
        query: &Query,
        expected: Option<&Expected>,
        failure: &Failure,
    ) {
        let number = self.findings.len();
        println!(
            "FOUND in case {}: {:?}\n{}",
            case.seed,
            failure.kind,
            failure.message.lines().next().unwrap_or_default()
        );
        let whole = Failing {
            tables: case.tables.clone(),
            settings: settings.clone(),
            query: query.clone(),
        };
        let mut last = (failure.clone(), expected.cloned());
        let mut fails = |candidate: &Failing| {
            let Some(found) = self.outcome(candidate) else {
                return false;
            };
            let same = found.0.kind == failure.kind;
            if same {
                last = (found.0, Some(found.1));
            }
            same
        };
        let small = match self.shrink.is_zero() || failure.kind == Kind::Hang {
            true => whole,
            false => Shrinker::new(&mut fails, 1_000, Instant::now() + self.shrink).shrink(whole),
        };
        let text = report::file(case.seed, &last.0, &small, last.1.as_ref());
        println!("{text}");
        if let Some(out) = &self.out {
            match report::write(out, case.seed, number, &text) {
                Ok(path) => println!("written to {}", path.display()),
                Err(error) => println!("{}: {error}", out.display()),
            }
        }
        self.findings.push(text);
    }
}
