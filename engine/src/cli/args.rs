//! The arguments of the program.

#[cfg(feature = "serve")]
use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use datafusion_cli::print_format::PrintFormat;
use datafusion_cli::print_options::MaxRows;
use warpline::{ByteSize, DeviceChoice};
use warpline_tpch::files::FileFormat;
use warpline_tpch::jcch::{Bindings, Seed};
use warpline_tpch::queries;
use warpline_tpch::{Scale, TpchError};

use super::cluster::ClusterArguments;
use super::logging::parse_filter;
use super::session_args::SessionArguments;

/// SQL on Arrow data, on a GPU where there is one. Without a command: a SQL shell.
#[derive(Debug, Parser)]
#[command(name = "warpline", version = crate::environment::version(), args_conflicts_with_subcommands = true)]
pub(super) struct Arguments {
    #[command(subcommand)]
    pub(super) command: Option<Command>,
    /// What to log on standard error: a level, or MODULE=LEVEL, several with commas [default: RUST_LOG, else warn]
    #[arg(long, value_name = "FILTER", global = true, value_parser = parse_filter)]
    pub(super) log: Option<String>,
    #[command(flatten)]
    pub(super) shell: ShellArguments,
}

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Show which devices were found, or why one cannot be used
    Devices,
    /// Run the TPC-H benchmark, or generate its data as files
    Tpch(Box<TpchArguments>),
    /// Run the JCC-H benchmark, TPC-H with skewed data, or generate its data as files
    Jcch(Box<JcchArguments>),
    /// Run micro-benchmarks of the device, checked on the CPU; without a name: list them
    Bench(Box<BenchArguments>),
    /// Serve clients of PostgreSQL and Flight SQL
    #[cfg(feature = "serve")]
    Serve(Box<ServeArguments>),
    /// Run parts of other sessions' queries on this machine's device; sessions name their workers with --cluster
    #[cfg(feature = "cluster")]
    Worker(Box<super::cluster::WorkerArguments>),
    /// Run a query cold and hot, and write what host and device did when, for Perfetto and chrome://tracing
    Profile(Box<ProfileArguments>),
    /// Measure what accesses cost on the device; plans are priced with it from then on
    Calibrate(CalibrateArguments),
}

#[derive(Debug, Args)]
pub(super) struct CalibrateArguments {
    /// Device: auto, cuda, cuda:N or emulator [default: auto]
    #[arg(long, value_name = "DEVICE")]
    pub(super) device: Option<DeviceChoice>,
    /// Show the constants in use, and measure nothing
    #[arg(long)]
    pub(super) show: bool,
}

#[cfg(feature = "serve")]
#[derive(Debug, Args)]
pub(super) struct ServeArguments {
    /// Listen for clients of PostgreSQL, for example on 127.0.0.1:5432
    #[arg(long, value_name = "ADDRESS")]
    pub(super) postgres: Option<SocketAddr>,
    /// Listen for clients of Flight SQL, for example on 127.0.0.1:31337
    #[arg(long, value_name = "ADDRESS")]
    pub(super) flight: Option<SocketAddr>,
    /// Answer /metrics, /health and a page that shows device and queries, for example on 127.0.0.1:8080
    #[arg(long, value_name = "ADDRESS")]
    pub(super) http: Option<SocketAddr>,
    /// A folder, or a location such as s3://bucket/tables, whose files NAME.parquet (.csv, .json, .arrow) and folders NAME of such files
    /// are tables; repeatable. Clients reach no other files
    #[arg(long, value_name = "DIR|URL")]
    pub(super) data: Vec<PathBuf>,
    /// The file of users
    #[arg(long, value_name = "FILE")]
    pub(super) auth: Option<PathBuf>,
    /// Add a user to the file of --auth, or change the password, which is read from standard input; then exit
    #[arg(long, value_name = "NAME", requires = "auth")]
    pub(super) add_user: Option<String>,
    /// The server's certificate chain, PEM
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub(super) tls_cert: Option<PathBuf>,
    /// The private key of the certificate, PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub(super) tls_key: Option<PathBuf>,
    /// Listen beyond this machine without users or without TLS
    #[arg(long)]
    pub(super) insecure: bool,
    /// Most connections at a time, of each protocol
    #[arg(long, value_name = "N", default_value_t = 128)]
    pub(super) max_connections: usize,
    /// Most queries that run at a time; others wait, and those of who has fewest go first [default: twice as many as cores, at
    /// least 8]
    #[arg(long, value_name = "N")]
    pub(super) max_queries: Option<usize>,
    /// Most queries that wait
    #[arg(long, value_name = "N", default_value_t = 256)]
    pub(super) max_queued: usize,
    /// Most queries of one user that run at a time
    #[arg(long, value_name = "N")]
    pub(super) max_user_queries: Option<usize>,
    /// Most seconds that a query runs
    #[arg(long, value_name = "SECONDS")]
    pub(super) max_time: Option<u64>,
    /// Most rows of an answer
    #[arg(long, value_name = "N")]
    pub(super) max_rows: Option<u64>,
    /// Seconds that a query waits for its turn
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    pub(super) queue_timeout: u64,
    /// Seconds that a client may take to read what was sent
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    pub(super) send_timeout: u64,
    /// Seconds that queries may go on when the server stops
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    pub(super) drain_timeout: u64,
    /// Write each query to FILE as a line of JSON
    #[arg(long, value_name = "FILE")]
    pub(super) query_log: Option<PathBuf>,
    #[command(flatten)]
    pub(super) cluster: ClusterArguments,
    #[command(flatten)]
    pub(super) session: SessionArguments,
}

#[derive(Debug, Args)]
pub(super) struct ProfileArguments {
    /// The query: SQL, or with --tpch the number of one of TPC-H's, such as Q3
    #[arg(
        value_name = "QUERY",
        required_unless_present = "file",
        conflicts_with = "file"
    )]
    pub(super) query: Option<String>,
    /// Profile the last statement of a file, after the others have run
    #[arg(short, long, value_name = "FILE")]
    pub(super) file: Option<PathBuf>,
    /// Run the statements of a file before, which make the tables; repeatable
    #[arg(long, value_name = "FILE")]
    pub(super) setup: Vec<PathBuf>,
    /// Make the tables of TPC-H at this scale in memory before
    #[arg(long, value_name = "SCALE", allow_negative_numbers = true)]
    pub(super) tpch: Option<Scale>,
    /// Hot runs after the cold one
    #[arg(long, value_name = "N", default_value_t = 2)]
    pub(super) runs: usize,
    /// Write the trace to FILE
    #[arg(long, value_name = "FILE", default_value = "trace.json")]
    pub(super) output: PathBuf,
    #[command(flatten)]
    pub(super) session: SessionArguments,
}

#[derive(Debug, Args)]
pub(super) struct ShellArguments {
    /// Run SQL and exit; repeatable. After the files of --file
    #[arg(short, long, value_name = "SQL")]
    pub(super) command: Vec<String>,
    /// Run the statements of a file and exit; repeatable
    #[arg(short, long, value_name = "FILE")]
    pub(super) file: Vec<PathBuf>,
    /// How answers are printed
    #[arg(long, value_enum, default_value_t = PrintFormat::Automatic, hide_default_value = true)]
    pub(super) format: PrintFormat,
    /// Most rows that a table shows: a number, or inf
    #[arg(long, value_name = "ROWS", default_value = "40")]
    pub(super) maxrows: MaxRows,
    /// Print answers only, without row counts and times
    #[arg(short, long)]
    pub(super) quiet: bool,
    #[command(flatten)]
    pub(super) cluster: ClusterArguments,
    #[command(flatten)]
    pub(super) session: SessionArguments,
}

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(super) struct TpchArguments {
    #[command(subcommand)]
    pub(super) command: Option<DataCommand>,
    #[command(flatten)]
    pub(super) run: RunArguments,
}

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(super) struct JcchArguments {
    #[command(subcommand)]
    pub(super) command: Option<DataCommand>,
    /// Query for the values that are skewed, or for others: skewed or normal
    #[arg(long, default_value_t = Bindings::default())]
    pub(super) bindings: Bindings,
    /// Seed of the queries' parameters
    #[arg(long, value_name = "N", default_value_t = Seed::default(), allow_negative_numbers = true)]
    pub(super) seed: Seed,
    /// Show the parameters of each query, and run nothing
    #[arg(long)]
    pub(super) show_parameters: bool,
    #[command(flatten)]
    pub(super) run: RunArguments,
}

#[derive(Debug, Subcommand)]
pub(super) enum DataCommand {
    /// Write the tables as files: DIR/<table>/part-NNN.<format>
    Generate(GenerateArguments),
}

#[derive(Debug, Args)]
pub(super) struct RunArguments {
    /// Scale factor; 1 is about 1 GB [default: 1, or what the files of --data hold]
    #[arg(long, value_name = "F", allow_negative_numbers = true)]
    pub(super) scale: Option<Scale>,
    /// Read parquet files in DIR instead of generating data in memory
    #[arg(long, value_name = "DIR")]
    pub(super) data: Option<PathBuf>,
    /// Queries to run, for example 1,6 or 3-5 [default: all 22]
    #[arg(long, value_name = "LIST", value_parser = parse_queries, allow_negative_numbers = true)]
    query: Option<QueryList>,
    /// Compare each answer with DataFusion on the CPU [default: up to scale 1]
    #[arg(long, overrides_with = "no_verify")]
    verify: bool,
    /// Do not compare answers
    #[arg(long, overrides_with = "verify")]
    no_verify: bool,
    #[command(flatten)]
    pub(super) measure: MeasureArguments,
}

/// How queries are run, and what is told of it.
#[derive(Debug, Args)]
pub(super) struct MeasureArguments {
    /// Hot runs of each query after the cold one
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub(super) runs: usize,
    /// Runs of each query on DataFusion's CPU, to compare times with [default: the one that answers are compared with]
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    pub(super) cpu_runs: usize,
    /// Form of the report
    #[arg(long, value_enum, default_value_t = ReportFormat::Table)]
    pub(super) format: ReportFormat,
    /// Write the report to FILE instead of standard output
    #[arg(long, value_name = "FILE")]
    pub(super) output: Option<PathBuf>,
    /// Write a page with tables and charts to FILE as well: one HTML file that needs no network
    #[arg(long, value_name = "FILE")]
    pub(super) report: Option<PathBuf>,
    /// Show the differences to an earlier report, which `--format json` wrote
    #[arg(long, value_name = "OLD.json")]
    pub(super) compare: Option<PathBuf>,
    /// Write each answer to DIR/qNN.csv
    #[arg(long, value_name = "DIR")]
    pub(super) results: Option<PathBuf>,
    /// Write the text and the plan of each query, with what every part of it did, to DIR/qNN.txt
    #[arg(long, value_name = "DIR")]
    pub(super) plans: Option<PathBuf>,
    /// Count how evenly lanes and warps work; costs a little time
    #[arg(long)]
    pub(super) metrics: bool,
    #[command(flatten)]
    pub(super) cluster: ClusterArguments,
    #[command(flatten)]
    pub(super) session: SessionArguments,
}

impl RunArguments {
    /// The numbers of the queries to run.
    pub(super) fn queries(&self) -> Vec<u8> {
        match &self.query {
            Some(list) => list.0.clone(),
            None => (1..=22).collect(),
        }
    }

    /// Whether answers are compared.
    pub(super) fn verify(&self) -> Verify {
        match (self.verify, self.no_verify) {
            (true, _) => Verify::Always,
            (_, true) => Verify::Never,
            _ => Verify::Small,
        }
    }
}

/// Whether answers are compared with those of the CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verify {
    Always,
    Never,
    /// Up to a scale at which the CPU does not take long.
    Small,
}

impl Verify {
    pub(super) fn at(self, scale: f64) -> bool {
        self == Self::Always || (self == Self::Small && scale <= 1.0)
    }
}

/// The numbers of queries, as one value for clap.
#[derive(Debug, Clone)]
pub(super) struct QueryList(pub(super) Vec<u8>);

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum ReportFormat {
    /// Aligned columns
    Table,
    /// One JSON object
    Json,
}

#[derive(Debug, Subcommand)]
pub(super) enum BenchCommand {
    /// Run queries of your own over tables of your own
    Queries(Box<QueriesArguments>),
    /// Run queries from many sessions at once, which share a device and tables
    Clients(Box<ClientsArguments>),
    /// Write a table like ClickBench's hits, of 105 columns, to a folder of parquet files
    Hits(HitsArguments),
}

#[derive(Debug, Args)]
pub(super) struct HitsArguments {
    /// Rows; the original has 99,997,497
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    pub(super) rows: u64,
    /// Files [default: one for each million rows]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(super) files: Option<u32>,
    /// Which rows are drawn
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(super) seed: u64,
    /// The folder, which must not exist; its name is that of the table
    #[arg(long, value_name = "DIR")]
    pub(super) output: PathBuf,
}

#[derive(Debug, Args)]
pub(super) struct ClientsArguments {
    /// Sessions that run queries at once; several numbers are measured one after the other
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "1,4,8,64", value_parser = clap::value_parser!(u16).range(1..))]
    pub(super) clients: Vec<u16>,
    /// Seconds of each measurement, after all queries have run in every session
    #[arg(long, value_name = "SECONDS", default_value_t = 10.0, value_parser = parse_seconds)]
    pub(super) seconds: f64,
    /// The queries: a file of statements, or a folder of .sql files [default: those of TPC-H]
    #[arg(long, value_name = "DIR|FILE")]
    pub(super) queries: Option<PathBuf>,
    /// The tables: a folder with NAME.parquet (.csv, .json, .arrow), or a folder NAME of such files, for each [default:
    /// TPC-H's in memory]
    #[arg(long, value_name = "DIR")]
    pub(super) data: Option<PathBuf>,
    /// Scale of TPC-H's tables in memory [default: 1]
    #[arg(
        long,
        value_name = "F",
        conflicts_with = "queries",
        allow_negative_numbers = true
    )]
    pub(super) scale: Option<Scale>,
    /// Run the statements of a file before, which make tables or views; repeatable
    #[arg(long, value_name = "FILE", requires = "queries")]
    pub(super) setup: Vec<PathBuf>,
    /// Queries to run: numbers of TPC-H's, for example 1,6 or 3-5, else names [default: all]
    #[arg(long, value_name = "LIST")]
    pub(super) query: Option<String>,
    /// Run this query in a loop in one more session, and measure the others with and without it
    #[arg(long, value_name = "QUERY")]
    pub(super) heavy: Option<String>,
    /// Compare each answer with the query's first one; takes time of the cores
    #[arg(long)]
    pub(super) verify: bool,
    /// Form of the report
    #[arg(long, value_enum, default_value_t = ReportFormat::Table)]
    pub(super) format: ReportFormat,
    /// Write the report to FILE instead of standard output
    #[arg(long, value_name = "FILE")]
    pub(super) output: Option<PathBuf>,
    #[command(flatten)]
    pub(super) session: SessionArguments,
}

#[derive(Debug, Args)]
pub(super) struct QueriesArguments {
    /// The queries: a file of statements, or a folder of .sql files
    #[arg(long, value_name = "DIR|FILE")]
    pub(super) queries: PathBuf,
    /// The tables: a folder with NAME.parquet (.csv, .json, .arrow), or a folder NAME of such files, for each
    #[arg(long, value_name = "DIR")]
    pub(super) data: Option<PathBuf>,
    /// Run the statements of a file before, which make tables or views; repeatable
    #[arg(long, value_name = "FILE")]
    pub(super) setup: Vec<PathBuf>,
    /// Queries to run, by the names in the report, for example q3,q7 [default: all]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub(super) query: Vec<String>,
    /// Compare each answer with DataFusion on the CPU
    #[arg(long)]
    pub(super) verify: bool,
    #[command(flatten)]
    pub(super) measure: MeasureArguments,
}

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(super) struct BenchArguments {
    #[command(subcommand)]
    pub(super) command: Option<BenchCommand>,
    /// Which benchmark; without one they are listed
    #[arg(value_name = "NAME")]
    pub(super) benchmark: Option<String>,
    /// One of its sweeps; repeatable [default: all]
    #[arg(long, value_name = "SWEEP")]
    pub(super) sweep: Vec<String>,
    /// Rows of the largest inputs [default: 2^27, in the emulator 2^11]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..u64::from(u32::MAX)))]
    pub(super) rows: Option<u64>,
    /// Timed runs of each point, after one that is not counted
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub(super) runs: usize,
    /// Of `load-balance`: scale of the JCC-H data
    #[arg(long, value_name = "F", allow_negative_numbers = true)]
    pub(super) scale: Option<Scale>,
    /// Of `load-balance`: queries of JCC-H to run, for example 7-9 [default: all 22]
    #[arg(long, value_name = "LIST", value_parser = parse_queries, allow_negative_numbers = true)]
    pub(super) query: Option<QueryList>,
    /// Of `triton`: device memory that joins may take [default: 4GiB, in the emulator 256KiB]
    #[arg(long, value_name = "SIZE")]
    pub(super) budget: Option<ByteSize>,
    /// Of `triton`: whose memory tables and spilled rows lie in; `peer`: that of another device, of several that are opened
    #[arg(long, value_enum, default_value_t = SpillTo::Host)]
    pub(super) spill: SpillTo,
    /// Of `triton`: seconds for all runs of a point; a line that takes longer ends there
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) limit: u64,
    /// Of `choice`: workloads to draw
    #[arg(long, value_name = "N", default_value_t = 200)]
    pub(super) workloads: u64,
    /// Of `choice`: which workloads are drawn
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(super) seed: u64,
    /// Of `choice`: judge the model by the measurements in FILE, which `--format json` wrote, and measure nothing
    #[arg(long, value_name = "FILE")]
    pub(super) replay: Option<PathBuf>,
    /// Form of the report
    #[arg(long, value_enum, default_value_t = ChartFormat::Table)]
    pub(super) format: ChartFormat,
    /// Write the report to FILE instead of standard output
    #[arg(long, value_name = "FILE")]
    pub(super) output: Option<PathBuf>,
    /// Write a page with tables and charts to FILE as well: one HTML file that needs no network
    #[arg(long, value_name = "FILE")]
    pub(super) report: Option<PathBuf>,
    /// Show the differences to an earlier report, which `--format json` wrote
    #[arg(long, value_name = "OLD.json")]
    pub(super) compare: Option<PathBuf>,
    #[command(flatten)]
    pub(super) session: SessionArguments,
}

/// Whose memory has what a device has no room for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum SpillTo {
    Host,
    Peer,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum ChartFormat {
    /// Aligned columns
    Table,
    /// One JSON object
    Json,
    /// Charts: lines, or bars for queries
    Svg,
}

#[derive(Debug, Args)]
pub(super) struct GenerateArguments {
    /// Scale factor; 1 is about 1 GB of text, 6 million rows of lineitem
    #[arg(long, value_name = "F", allow_negative_numbers = true)]
    pub(super) scale: Scale,
    /// Directory to write to; it must be empty or not exist
    #[arg(long, value_name = "DIR")]
    pub(super) output: PathBuf,
    /// Format of the files: parquet, csv or tbl
    #[arg(long, default_value_t = FileFormat::Parquet)]
    pub(super) format: FileFormat,
}

fn parse_queries(text: &str) -> Result<QueryList, TpchError> {
    let queries = queries::parse_list(text)?;
    Ok(QueryList(
        queries.iter().map(|query| query.number).collect(),
    ))
}

fn parse_seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if seconds > 0.0 && seconds <= 86_400.0 => Ok(seconds),
        _ => Err("give seconds, more than 0 and no more than a day of them".to_string()),
    }
}
