//! `warpline worker`, and the arguments that name the workers of a session.

#[cfg(feature = "cluster")]
use std::net::SocketAddr;
#[cfg(feature = "cluster")]
use std::path::PathBuf;
#[cfg(feature = "cluster")]
use std::process::ExitCode;

use clap::Args;
#[cfg(feature = "cluster")]
use futures::future::join_all;
#[cfg(feature = "cluster")]
use warpline::{Cluster, ClusterOptions, Error, Worker, WorkerOptions};
use warpline::{Result, WarplineSessionBuilder};

#[cfg(feature = "cluster")]
use super::service::{print_fact, until_stopped};
#[cfg(feature = "cluster")]
use super::session_args::SessionArguments;

/// The workers that answer the queries of a session together.
#[derive(Debug, Args)]
pub(super) struct ClusterArguments {
    /// Let these workers answer queries of files together: http://HOST:PORT or https://HOST:PORT, several with commas
    #[cfg(feature = "cluster")]
    #[arg(long, value_name = "URL,URL", value_delimiter = ',')]
    cluster: Vec<String>,
    /// The file of the secret that the workers want to see
    #[cfg(feature = "cluster")]
    #[arg(long, value_name = "FILE", requires = "cluster")]
    cluster_secret_file: Option<PathBuf>,
    /// Certificates that those of the workers are checked with, PEM
    #[cfg(feature = "cluster")]
    #[arg(long, value_name = "FILE", requires = "cluster")]
    cluster_ca: Option<PathBuf>,
    /// Send the secret without TLS beyond this machine
    #[cfg(feature = "cluster")]
    #[arg(long, requires = "cluster")]
    cluster_insecure: bool,
}

impl ClusterArguments {
    /// A session of `builder` with the workers.
    ///
    /// # Errors
    /// When they cannot be used, or none answers.
    pub(super) async fn join(
        &self,
        builder: WarplineSessionBuilder,
    ) -> Result<WarplineSessionBuilder> {
        #[cfg(feature = "cluster")]
        if let Some(cluster) = self.find().await? {
            return Ok(builder.cluster(&cluster));
        }
        Ok(builder)
    }

    /// The workers; none without `--cluster`.
    ///
    /// # Errors
    /// When they cannot be used, or none answers.
    #[cfg(feature = "cluster")]
    pub(super) async fn find(&self) -> Result<Option<Cluster>> {
        if self.cluster.is_empty() {
            return Ok(None);
        }
        let options = ClusterOptions {
            workers: self.cluster.clone(),
            secret_file: self.cluster_secret_file.clone(),
            tls_ca: self.cluster_ca.clone(),
            insecure: self.cluster_insecure,
        };
        Cluster::connect(options).await.map(Some)
    }
}

#[cfg(feature = "cluster")]
#[derive(Debug, Args)]
pub(super) struct WorkerArguments {
    /// Where sessions and other workers connect; with several devices, the others have the ports after this one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7700")]
    listen: SocketAddr,
    /// A folder whose files plans may read; repeatable. No other file of this machine can be read
    #[arg(long, value_name = "DIR")]
    data: Vec<PathBuf>,
    /// The file of the secret that callers must know: one word of at least 16 characters
    #[arg(long, value_name = "FILE")]
    secret_file: Option<PathBuf>,
    /// The worker's certificate chain, PEM
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// The private key of the certificate, PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Certificates that those of other workers are checked with, PEM [default: that of --tls-cert]
    #[arg(long, value_name = "FILE")]
    tls_ca: Option<PathBuf>,
    /// Listen beyond this machine without a secret or without TLS
    #[arg(long)]
    insecure: bool,
    #[command(flatten)]
    session: SessionArguments,
}

/// The port of one of several workers: the one that was given, and those after it; any, if any was asked for.
#[cfg(feature = "cluster")]
fn port(first: u16, number: u16) -> Result<u16> {
    let port = match first {
        0 => Some(0),
        first => first.checked_add(number),
    };
    port.ok_or_else(|| Error::Cluster(format!("there is no port {number} after {first}")))
}

/// Serves stages on each device until it is told to stop.
#[cfg(feature = "cluster")]
pub(super) async fn run(arguments: WorkerArguments) -> Result<ExitCode> {
    let session = &arguments.session;
    let device = session.open_device()?;
    let settings = session.named_settings().into_iter();
    let options = WorkerOptions {
        data: arguments.data,
        secret_file: arguments.secret_file,
        tls: arguments.tls_cert.zip(arguments.tls_key),
        tls_ca: arguments.tls_ca,
        insecure: arguments.insecure,
        settings: settings
            .map(|(name, value)| (name.to_string(), value.to_string()))
            .collect(),
        ..WorkerOptions::at(arguments.listen)
    };
    let mut workers = Vec::new();
    for (number, device) in (0..).zip(device.each()) {
        let mut options = options.clone();
        options
            .listen
            .set_port(port(arguments.listen.port(), number)?);
        let worker = Worker::start(options, &device).await?;
        print_fact("device", &device.name());
        print_fact("worker", &worker.url());
        workers.push(worker);
    }
    let stop = async {
        join_all(workers.into_iter().map(Worker::stop)).await;
    };
    until_stopped("running stages", stop).await;
    Ok(ExitCode::SUCCESS)
}
