//! Flight SQL: statements, prepared statements with parameters, catalogs; batches go out as they come.
//!
//! - [`session`]: who asks, and the session that goes with it
//! - [`statement`]: from text to a statement with the schema of its stream
//! - [`stream`]: batches on their way, and updates
//! - [`info`]: catalogs, tables, and what the server tells of itself

mod info;
mod service;
mod session;
mod statement;
mod stream;

use std::sync::Arc;

use arrow_flight::flight_service_server::FlightServiceServer;
use tokio::net::TcpListener;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic::{Code, Status};

use self::service::Service;
use crate::error::{ServeError, StartError, state};
use crate::shared::Shared;
use crate::tls::Tls;

/// Most bytes of a message from a client: parameters and statements.
const MOST_MESSAGE: usize = 16 << 20;

/// A server, ready to run until `shared` stops.
pub(crate) fn serve(
    server: Arc<Shared>,
    listener: TcpListener,
    tls: Option<&Tls>,
) -> Result<impl Future<Output = ()> + Send + 'static, StartError> {
    let mut builder = Server::builder();
    if let Some(tls) = tls {
        builder = builder
            .tls_config(tls.of_grpc())
            .map_err(|error| StartError::Tls(error.to_string()))?;
    }
    let service = Service::new(Arc::clone(&server)).map_err(ServeError::from);
    let service = service.map_err(|error| StartError::Tls(error.message))?;
    let service = FlightServiceServer::new(service).max_decoding_message_size(MOST_MESSAGE);
    let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
    let router = builder.add_service(service);
    Ok(async move {
        let stopping = Arc::clone(&server);
        let stop = async move { stopping.stopping().await };
        if let Err(error) = router.serve_with_incoming_shutdown(incoming, stop).await {
            log::error!("Flight SQL ended: {error}");
        }
    })
}

impl From<ServeError> for Status {
    fn from(error: ServeError) -> Self {
        let code = match error.code {
            state::INSUFFICIENT_PRIVILEGE => Code::PermissionDenied,
            state::INVALID_AUTHORIZATION | state::INVALID_PASSWORD => Code::Unauthenticated,
            state::QUERY_CANCELED if error.message.contains("time") => Code::DeadlineExceeded,
            state::QUERY_CANCELED => Code::Cancelled,
            state::FEATURE_NOT_SUPPORTED => Code::Unimplemented,
            state::UNDEFINED_TABLE | state::UNDEFINED_FILE => Code::NotFound,
            state::DUPLICATE_TABLE => Code::AlreadyExists,
            state::INSUFFICIENT_RESOURCES
            | state::OUT_OF_MEMORY
            | state::TOO_MANY_CONNECTIONS
            | state::LIMIT_EXCEEDED => Code::ResourceExhausted,
            state::ADMIN_SHUTDOWN | state::CONNECTION_FAILURE => Code::Unavailable,
            state::INTERNAL_ERROR => Code::Internal,
            _ => Code::InvalidArgument,
        };
        Self::new(code, format!("[{}] {}", error.code, error.message))
    }
}
