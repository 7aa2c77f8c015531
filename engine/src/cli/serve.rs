//! `warpline serve`: servers of the PostgreSQL protocol and of Flight SQL.

use std::io::{BufRead, IsTerminal, Write};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use std::time::Duration;

use warpline::serve::{self, Limits, ServeOptions, Server, StartError};
use warpline::{DeviceEngine, Error, Result, store_folder};

use super::args::ServeArguments;
use super::print::print_note;
use super::service::{print_fact, until_stopped};

/// Serves until it is told to stop, or adds a user.
pub(super) async fn run(arguments: ServeArguments) -> Result<ExitCode> {
    if let (Some(name), Some(path)) = (&arguments.add_user, &arguments.auth) {
        let password = password(name)?;
        serve::add_user(path, name, &password).map_err(refused)?;
        print_note(&format!("user '{name}' is in {}", path.display()));
        return Ok(ExitCode::SUCCESS);
    }
    let options = options(&arguments)?;
    let session = &arguments.session;
    let device = session.open_device()?;
    let mut engine = DeviceEngine::new(device.clone());
    #[cfg(feature = "cluster")]
    if let Some(cluster) = arguments.cluster.find().await? {
        engine = engine.cluster(&cluster);
    }
    for (key, value) in session.named_settings() {
        engine = engine.set(key, value);
    }
    let server = Server::start(options, Arc::new(engine))
        .await
        .map_err(refused)?;
    print_fact("device", &device.name());
    print_fact("tables", &listed(&server.tables()));
    let encrypted = arguments.tls_cert.is_some();
    let ports = [
        ("postgresql", "postgresql://", server.postgres()),
        (
            "flight",
            if encrypted { "grpc+tls://" } else { "grpc://" },
            server.flight(),
        ),
        (
            "page",
            if encrypted { "https://" } else { "http://" },
            server.http(),
        ),
    ];
    for (name, scheme, address) in ports {
        if let Some(address) = address {
            print_fact(name, &format!("{scheme}{address}"));
        }
    }
    until_stopped("running queries", server.stop()).await;
    Ok(ExitCode::SUCCESS)
}

fn refused(error: StartError) -> Error {
    Error::Serve(error.to_string())
}

fn options(arguments: &ServeArguments) -> Result<ServeOptions> {
    let seconds = Duration::from_secs;
    let (mut data, mut stores) = (Vec::new(), Vec::new());
    for folder in &arguments.data {
        match folder.to_str().filter(|text| text.contains("://")) {
            Some(location) => stores.push(store_folder(location)?),
            None => data.push(folder.clone()),
        }
    }
    let tls = arguments.tls_cert.clone().zip(arguments.tls_key.clone());
    Ok(ServeOptions {
        postgres: arguments.postgres,
        flight: arguments.flight,
        http: arguments.http,
        data,
        stores,
        auth: arguments.auth.clone(),
        tls,
        insecure: arguments.insecure,
        max_connections: arguments.max_connections,
        max_queries: arguments.max_queries.unwrap_or_else(serve::default_queries),
        max_queued: arguments.max_queued,
        queue_timeout: seconds(arguments.queue_timeout),
        send_timeout: seconds(arguments.send_timeout),
        drain_timeout: seconds(arguments.drain_timeout),
        limits: Limits {
            time: arguments.max_time.map(seconds),
            rows: arguments.max_rows,
            queries: arguments.max_user_queries,
        },
        query_log: arguments.query_log.clone(),
    })
}

fn listed(tables: &[&str]) -> String {
    match tables {
        [] => "none: give --data DIR|URL".to_string(),
        tables => tables.join(", "),
    }
}

/// Reads a password: at a terminal unseen, else a line.
fn password(name: &str) -> Result<String> {
    let input = std::io::stdin();
    let terminal = input.is_terminal();
    let echo = |setting: &str| {
        // Without it the password is seen, which the person notices.
        let _ = Command::new("stty")
            .arg(setting)
            .stdin(Stdio::inherit())
            .status();
    };
    if terminal {
        let _ = write!(std::io::stderr(), "password of {name}: ");
        echo("-echo");
    }
    let mut line = String::new();
    let read = input.lock().read_line(&mut line);
    if terminal {
        echo("echo");
        print_note("");
    }
    read.map_err(|error| Error::Serve(format!("the password cannot be read: {error}")))?;
    Ok(line.trim_end_matches(['\n', '\r']).to_string())
}
