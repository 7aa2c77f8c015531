//! The PostgreSQL protocol, over `pgwire`: a task for each connection, a session for each client.
//!
//! - [`startup`]: how clients log in
//! - [`catalog`]: `pg_catalog` in each session
//! - [`statement`]: from text to a statement with its plan, parameters and columns
//! - [`messages`]: what clients send in simple and extended queries
//! - [`session`]: a connection, and how statements run there
//! - [`rows`]: batches as rows, a piece at a time
//! - [`command`]: `SET`, `SHOW`, transactions
//! - [`cursor`]: `DECLARE`, `FETCH`, `CLOSE`
//! - [`copy`]: `COPY … TO STDOUT`

mod catalog;
mod command;
mod common;
mod copy;
mod cursor;
mod messages;
mod parser;
mod rows;
mod session;
mod startup;
mod statement;

use std::net::SocketAddr;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use datafusion_postgres::pgwire::api::{ClientInfo, NoopHandler, PgWireConnectionState};
use datafusion_postgres::pgwire::error::{ErrorInfo, PgWireError};
use datafusion_postgres::pgwire::messages::{PgWireBackendMessage, PgWireFrontendMessage};
use datafusion_postgres::pgwire::tokio::server::{
    MaybeTls, PgWireMessageServerCodec, negotiate_tls, process_error, process_message,
};
use futures::{FutureExt, SinkExt, StreamExt};
use tokio::io::Interest;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_util::codec::Framed;

use self::common::Common;
use self::session::Handler;
use self::statement::Prepared;
use crate::error::{ServeError, state};
use crate::registry::{Stop, add};
use crate::shared::Shared;

/// How long a log-in may take.
const LOGIN: Duration = Duration::from_secs(30);

/// How often a connection with a running query is looked at, whether the client is still there.
const LOOK: Duration = Duration::from_millis(250);

type Socket = Framed<MaybeTls, PgWireMessageServerCodec<Arc<Prepared>>>;

/// Accepts connections until the server stops, then waits for those that are open.
pub(crate) async fn serve(server: Arc<Shared>, listener: TcpListener, tls: Option<TlsAcceptor>) {
    let common = Arc::new(Common::default());
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = server.stopping() => break,
            // Ended connections are forgotten as they end.
            Some(_) = connections.join_next(), if !connections.is_empty() => continue,
        };
        match accepted {
            Ok((stream, address)) => {
                let shared = (Arc::clone(&server), Arc::clone(&common));
                let connection = connection(shared, stream, address, tls.clone());
                connections.spawn(connection);
            }
            Err(error) => {
                // No more file descriptors, for example: some will be free again.
                log::warn!("a connection was not accepted: {error}");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
    drop(listener);
    while connections.join_next().await.is_some() {}
}

async fn connection(
    (server, common): (Arc<Shared>, Arc<Common>),
    stream: TcpStream,
    address: SocketAddr,
    tls: Option<TlsAcceptor>,
) {
    let counters = &server.registry.counters;
    add(&counters.connections, 1);
    counters
        .open_connections
        .fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    // Taken here, so that whoever is refused can be told after the handshake.
    let place = Arc::clone(&server.connections).try_acquire_owned().ok();
    let shared = (Arc::clone(&server), common);
    let handler = Handler::new(shared, address, place.is_some(), tls.is_some());
    if let Err(error) = talk(&server, stream, tls, &handler).await {
        log::debug!("connection from {address}: {error}");
    }
    handler.close();
    drop(place);
    counters
        .open_connections
        .fetch_sub(1, std::sync::atomic::Ordering::Relaxed);
}

async fn talk(
    server: &Arc<Shared>,
    stream: TcpStream,
    tls: Option<TlsAcceptor>,
    handler: &Handler,
) -> std::io::Result<()> {
    let (stream, second) = twice(stream)?;
    let late = tokio::time::sleep(LOGIN);
    tokio::pin!(late);
    let negotiated = tokio::select! {
        () = &mut late => return Ok(()),
        negotiated = AssertUnwindSafe(negotiate_tls(stream, tls)).catch_unwind() => negotiated,
    };
    let Ok(Some(mut socket)): Result<Option<Socket>, _> = negotiated.unwrap_or(Ok(None)) else {
        return Ok(());
    };
    loop {
        let knows = handler.is_known();
        // Between the messages of an extended query a connection is not idle.
        let idle = matches!(socket.state(), PgWireConnectionState::ReadyForQuery);
        let message = tokio::select! {
            biased;
            () = &mut late, if !knows => return Ok(()),
            () = server.stopping(), if idle => {
                return send_error(server, &mut socket, Stop::Shutdown.into()).await;
            }
            message = AssertUnwindSafe(socket.next()).catch_unwind() => message,
        };
        let message = match message {
            Ok(None) => return Ok(()),
            Ok(Some(Ok(PgWireFrontendMessage::Terminate(_)))) => return Ok(()),
            Ok(Some(Ok(message))) => message,
            // What cannot be decoded: nothing after it can be trusted.
            Ok(Some(Err(_))) | Err(_) => {
                let error = ServeError::fatal(state::PROTOCOL_VIOLATION, "malformed message");
                return send_error(server, &mut socket, error).await;
            }
        };
        let extended = match socket.state() {
            PgWireConnectionState::CopyInProgress(extended) => extended,
            _ => message.is_extended_query(),
        };
        let handlers = Arc::new(handler.clone());
        let outcome = {
            let work = process_message(
                message,
                &mut socket,
                Arc::clone(&handlers),
                Arc::clone(&handlers),
                Arc::clone(&handlers),
                Arc::new(NoopHandler),
                handlers,
            );
            tokio::select! {
                outcome = AssertUnwindSafe(work).catch_unwind() => outcome,
                () = watch(&second, handler) => unreachable!("it watches until the work is done"),
            }
        };
        let error = match outcome {
            Ok(Ok(())) => continue,
            Ok(Err(error)) => error,
            Err(panic) => wire_error(ServeError::panicked(panic.as_ref())),
        };
        let mut info = ErrorInfo::from(error);
        if !handler.is_known() {
            // Whatever went wrong in a log-in ends it: pgwire would go on to queries.
            info.severity = "FATAL".to_string();
        }
        info.severity_nonlocalized = Some(info.severity.clone());
        let fatal = info.is_fatal();
        let error = PgWireError::UserError(Box::new(info));
        let send = process_error(&mut socket, error, extended);
        tokio::time::timeout(server.options.send_timeout, send)
            .await
            .unwrap_or(Ok(()))?;
        if fatal {
            return Ok(());
        }
    }
}

async fn send_error(
    server: &Shared,
    socket: &mut Socket,
    error: ServeError,
) -> std::io::Result<()> {
    let info = ErrorInfo::from(wire_error(error));
    let send = socket.send(PgWireBackendMessage::ErrorResponse(info.into()));
    tokio::time::timeout(server.options.send_timeout, send)
        .await
        .unwrap_or(Ok(()))
}

/// The socket, and a second handle of it that sees when the client closes it while nobody reads.
fn twice(stream: TcpStream) -> std::io::Result<(TcpStream, TcpStream)> {
    let stream = stream.into_std()?;
    let second = stream.try_clone()?;
    Ok((TcpStream::from_std(stream)?, TcpStream::from_std(second)?))
}

/// Stops the query when the client is gone.
async fn watch(second: &TcpStream, handler: &Handler) {
    loop {
        tokio::time::sleep(LOOK).await;
        match second.ready(Interest::READABLE).await {
            Ok(ready) if !ready.is_read_closed() => {}
            _ => {
                handler.cancel(Stop::Gone);
                std::future::pending::<()>().await;
            }
        }
    }
}

/// An error as the protocol has it.
fn wire_error(error: ServeError) -> PgWireError {
    let severity = if error.fatal { "FATAL" } else { "ERROR" };
    let mut info = ErrorInfo::new(severity.to_string(), error.code.to_string(), error.message);
    info.severity_nonlocalized = Some(severity.to_string());
    PgWireError::UserError(Box::new(info))
}

impl From<ServeError> for PgWireError {
    fn from(error: ServeError) -> Self {
        wire_error(error)
    }
}
