//! `/metrics` for Prometheus, `/health`, and a page that shows device and queries. It needs nothing but itself.

use std::fmt::Write;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::get;
use axum::serve::Listener;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::auth::name_and_password;
use crate::registry::{CLASSES, Entry};
use crate::shared::Shared;

/// How long a handshake may take.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// Answers until the server stops.
pub(crate) async fn serve(server: Arc<Shared>, listener: TcpListener, tls: Option<TlsAcceptor>) {
    let router = Router::new()
        .route("/", get(page))
        .route("/metrics", get(metrics))
        .layer(middleware::from_fn_with_state(Arc::clone(&server), guard))
        .route("/health", get(health))
        .with_state(Arc::clone(&server));
    let stop = async move { server.stopping().await };
    let outcome = match tls {
        None => {
            axum::serve(listener, router)
                .with_graceful_shutdown(stop)
                .await
        }
        Some(acceptor) => {
            let listener = TlsListener { listener, acceptor };
            axum::serve(listener, router)
                .with_graceful_shutdown(stop)
                .await
        }
    };
    if let Err(error) = outcome {
        log::error!("the page ended: {error}");
    }
}

/// Connections over TLS. A handshake holds up those that come after, so it may not take long.
struct TlsListener {
    listener: TcpListener,
    acceptor: TlsAcceptor,
}

impl Listener for TlsListener {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        loop {
            let (stream, address) = Listener::accept(&mut self.listener).await;
            let handshake = self.acceptor.accept(stream);
            if let Ok(Ok(stream)) = tokio::time::timeout(HANDSHAKE, handshake).await {
                return (stream, address);
            }
        }
    }

    fn local_addr(&self) -> std::io::Result<Self::Addr> {
        self.listener.local_addr()
    }
}

/// Lets pass who has a user's password, where there are users; and of the browsers on this machine those that mean this page, and
/// not another one whose name leads here.
async fn guard(State(server): State<Arc<Shared>>, request: Request, next: Next) -> Response {
    let address = server.options.http;
    if address.is_some_and(|address| address.ip().is_loopback()) && !is_local(request.headers()) {
        return (StatusCode::FORBIDDEN, "ask for 127.0.0.1 or localhost\n").into_response();
    }
    if server.users.is_none() {
        return next.run(request).await;
    }
    let given = basic(request.headers());
    let checked = tokio::task::spawn_blocking(move || {
        let (name, password) = given?;
        server.users.as_ref()?.check(&name, &password)
    });
    match checked.await {
        Ok(Some(_)) => next.run(request).await,
        _ => (
            StatusCode::UNAUTHORIZED,
            [(header::WWW_AUTHENTICATE, "Basic realm=\"warpline\"")],
            "log in\n",
        )
            .into_response(),
    }
}

fn is_local(headers: &HeaderMap) -> bool {
    let host = headers
        .get(header::HOST)
        .and_then(|host| host.to_str().ok());
    let Some(host) = host else { return true };
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.chars().all(|c| c.is_ascii_digit()) => name,
        _ => host,
    };
    let loopback = |ip: std::net::Ipv4Addr| ip.is_loopback();
    matches!(name, "localhost" | "[::1]") || name.parse().is_ok_and(loopback)
}

fn basic(headers: &HeaderMap) -> Option<(String, String)> {
    let text = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    name_and_password(text.strip_prefix("Basic ")?)
}

/// 200 while queries are taken and the device works.
async fn health(State(server): State<Arc<Shared>>) -> (StatusCode, String) {
    let status = server.engine.status();
    if server.is_stopping() {
        return (StatusCode::SERVICE_UNAVAILABLE, "stopping\n".to_string());
    }
    match status.lost {
        Some(_) => (
            StatusCode::SERVICE_UNAVAILABLE,
            "the device is lost\n".to_string(),
        ),
        None => (StatusCode::OK, "ok\n".to_string()),
    }
}

async fn metrics(State(server): State<Arc<Shared>>) -> Response {
    let text = metrics_text(&server);
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], text).into_response()
}

fn metrics_text(server: &Shared) -> String {
    let mut text = String::new();
    let mut put = |name: &str, kind: &str, help: &str, value: f64| {
        // Writing to a text does not fail.
        let _ = write!(
            text,
            "# HELP warpline_{name} {help}\n# TYPE warpline_{name} {kind}\nwarpline_{name} {value}\n"
        );
    };
    let counters = &server.registry.counters;
    let of = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed) as f64;
    let (running, waiting) = server.admission.counts();
    put(
        "queries_total",
        "counter",
        "Queries that ended.",
        of(&counters.queries),
    );
    put(
        "query_errors_total",
        "counter",
        "Queries that ended with an error.",
        of(&counters.errors),
    );
    put(
        "queries_cancelled_total",
        "counter",
        "Queries that were stopped.",
        of(&counters.cancelled),
    );
    put(
        "rows_total",
        "counter",
        "Rows of answers.",
        of(&counters.rows),
    );
    put(
        "wait_seconds_total",
        "counter",
        "Time that queries waited for their turn.",
        of(&counters.waited_microseconds) / 1e6,
    );
    put(
        "queries_running",
        "gauge",
        "Queries that run.",
        running as f64,
    );
    put(
        "queries_waiting",
        "gauge",
        "Queries that wait for their turn.",
        waiting as f64,
    );
    put(
        "connections_total",
        "counter",
        "PostgreSQL connections so far.",
        of(&counters.connections),
    );
    put(
        "connections_open",
        "gauge",
        "PostgreSQL connections that are open.",
        of(&counters.open_connections),
    );
    put(
        "failed_logins_total",
        "counter",
        "Log-ins that failed.",
        of(&counters.failed_logins),
    );
    put(
        "uptime_seconds",
        "gauge",
        "Time since the start.",
        server.began.elapsed().as_secs_f64(),
    );
    let status = server.engine.status();
    put(
        "device_usable",
        "gauge",
        "1 if a device answers queries, 0 if the CPU does.",
        f64::from(u8::from(status.usable)),
    );
    put(
        "device_memory_budget_bytes",
        "gauge",
        "Device memory that may be used.",
        status.memory_budget as f64,
    );
    put(
        "device_memory_used_bytes",
        "gauge",
        "Device memory in use.",
        status.memory_used as f64,
    );
    put(
        "device_memory_peak_bytes",
        "gauge",
        "Most device memory in use so far.",
        status.memory_peak as f64,
    );
    put(
        "device_column_bytes",
        "gauge",
        "Device memory of columns kept for later queries.",
        status.column_bytes as f64,
    );
    for (name, count) in &status.counters {
        put(
            &format!("device_{name}_total"),
            "counter",
            "Of the device's memory.",
            *count as f64,
        );
    }
    let _ = write!(
        text,
        "# HELP warpline_query_seconds Time of queries, from the first step to the last row.\n\
         # TYPE warpline_query_seconds histogram\n"
    );
    let mut sum = 0;
    for (most, class) in CLASSES.iter().zip(&counters.classes) {
        sum += class.load(Ordering::Relaxed);
        let _ = writeln!(text, "warpline_query_seconds_bucket{{le=\"{most}\"}} {sum}");
    }
    let (count, seconds) = (of(&counters.queries), of(&counters.microseconds) / 1e6);
    let _ = write!(
        text,
        "warpline_query_seconds_bucket{{le=\"+Inf\"}} {count}\n\
         warpline_query_seconds_sum {seconds}\nwarpline_query_seconds_count {count}\n"
    );
    for table in &status.tables {
        let name = table
            .name
            .replace('\\', "\\\\")
            .replace('"', "\\\"")
            .replace('\n', " ");
        let _ = writeln!(
            text,
            "warpline_device_table_bytes{{table=\"{name}\"}} {}",
            table.bytes
        );
    }
    text
}

async fn page(State(server): State<Arc<Shared>>) -> Html<String> {
    Html(page_text(&server))
}

const STYLE: &str = "body{font:14px/1.45 system-ui,sans-serif;margin:2em auto;max-width:75em;padding:0 1em;color:#1c1c1c;\
background:#fff}h1{font-size:1.4em}h2{font-size:1.1em;margin-top:2em}table{border-collapse:collapse;width:100%}\
th,td{text-align:left;padding:.3em .8em .3em 0;border-bottom:1px solid #ddd;vertical-align:top}\
td.n,th.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}pre{white-space:pre-wrap;margin:.3em 0;\
font-size:12px}.bad{color:#a40000}meter{width:16em}\
@media(prefers-color-scheme:dark){body{color:#ddd;background:#181818}th,td{border-color:#444}.bad{color:#ff8a80}}";

fn page_text(server: &Shared) -> String {
    let status = server.engine.status();
    let (running, waiting) = server.admission.counts();
    let mut text = format!(
        "<!doctype html><html lang=en><meta charset=utf-8><meta http-equiv=refresh content=5>\
         <meta name=viewport content=\"width=device-width\"><title>{version}</title><style>{STYLE}</style>\
         <h1>{version}</h1><p>{device}, up {uptime}; {running} queries run, {waiting} wait; {connections} PostgreSQL connections\
         </p>",
        version = escaped(&server.engine.version()),
        device = escaped(&status.device),
        uptime = time(server.began.elapsed()),
        connections = server
            .registry
            .counters
            .open_connections
            .load(Ordering::Relaxed),
    );
    if let Some(lost) = &status.lost {
        let _ = write!(
            text,
            "<p class=bad>The device is lost: {}</p>",
            escaped(lost)
        );
    }
    text.push_str("<h2>Device memory</h2>");
    if status.memory_budget == 0 {
        text.push_str("<p>The CPU answers.</p>");
    } else {
        let _ = write!(
            text,
            "<p><meter max={budget} value={used}></meter> {} of {} in use, at most {} so far</p>",
            bytes(status.memory_used),
            bytes(status.memory_budget),
            bytes(status.memory_peak),
            budget = status.memory_budget,
            used = status.memory_used,
        );
        text.push_str("<table><tr><th>Table<th class=n>Columns<th class=n>Bytes");
        for table in &status.tables {
            let _ = write!(
                text,
                "<tr><td>{}<td class=n>{}<td class=n>{}",
                escaped(&table.name),
                table.columns,
                bytes(table.bytes)
            );
        }
        text.push_str("</table>");
    }
    text.push_str("<h2>Running</h2>");
    header_row(&mut text);
    for entry in server.registry.running() {
        let state = match entry.admitted.get() {
            Some(_) => "runs",
            None => "waits",
        };
        row(
            server,
            &mut text,
            &entry,
            entry.start.elapsed().as_secs_f64(),
            state,
        );
    }
    text.push_str("</table><h2>Recent</h2>");
    header_row(&mut text);
    for finished in server.registry.recent() {
        let state = match finished.outcome {
            "ok" => "ok".to_string(),
            code => format!(
                "<span class=bad>{code}</span> {}",
                escaped(&finished.message)
            ),
        };
        row(server, &mut text, &finished.entry, finished.seconds, &state);
    }
    text.push_str("</table></html>");
    text
}

fn header_row(text: &mut String) {
    text.push_str(
        "<table><tr><th class=n>Query<th>User<th class=n>Seconds<th class=n>Waited<th class=n>Rows<th>State<th>Statement",
    );
}

/// A query. `state` is HTML.
fn row(server: &Shared, text: &mut String, entry: &Entry, seconds: f64, state: &str) {
    let plan = entry.plan.get().map(|plan| server.engine.explain(plan));
    let plan = plan.map_or_else(String::new, |plan| {
        format!(
            "<details><summary>plan</summary><pre>{}</pre></details>",
            escaped(&plan)
        )
    });
    let _ = write!(
        text,
        "<tr><td class=n>{}<td>{}<br>{}<td class=n>{seconds:.3}<td class=n>{:.3}<td class=n>{}<td>{state}<td><pre>{}</pre>{plan}",
        entry.id,
        escaped(&entry.user),
        escaped(entry.protocol),
        entry.waited().as_secs_f64(),
        entry.rows.load(Ordering::Relaxed),
        escaped(&entry.sql),
    );
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
        .replace('\'', "&#39;")
}

fn bytes(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    match unit {
        0 => format!("{bytes} B"),
        _ => format!("{value:.1} {}", UNITS[unit]),
    }
}

fn time(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min", seconds / 60),
        _ => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_clients_is_no_markup() {
        assert_eq!(escaped("<b>'&\""), "&lt;b&gt;&#39;&amp;&quot;");
        assert_eq!(bytes(1536), "1.5 KiB");
        assert_eq!(time(Duration::from_secs(3700)), "1 h 1 min");
    }

    #[test]
    fn names_that_lead_here_are_told_apart() {
        let local = |host: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::HOST, host.parse().unwrap());
            is_local(&headers)
        };
        for host in [
            "localhost:80",
            "127.0.0.1:1",
            "127.0.0.1",
            "[::1]:9",
            "[::1]",
        ] {
            assert!(local(host), "{host}");
        }
        for host in ["evil.example:80", "127.0.0.1.evil.example", "10.0.0.1"] {
            assert!(!local(host), "{host}");
        }
    }
}
