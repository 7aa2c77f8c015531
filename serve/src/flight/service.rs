//! The calls of Flight SQL.

use std::pin::Pin;
use std::sync::Arc;

use arrow_flight::flight_service_server::FlightService;
use arrow_flight::sql::metadata::SqlInfoData;
use arrow_flight::sql::server::{FlightSqlService, PeekableFlightDataStream};
use arrow_flight::sql::{
    ActionCancelQueryRequest, ActionCancelQueryResult, ActionClosePreparedStatementRequest,
    ActionCreatePreparedStatementRequest, ActionCreatePreparedStatementResult, Any,
    CommandGetCatalogs, CommandGetDbSchemas, CommandGetSqlInfo, CommandGetTableTypes,
    CommandGetTables, CommandPreparedStatementQuery, CommandPreparedStatementUpdate,
    CommandStatementQuery, CommandStatementUpdate, DoPutPreparedStatementResult, ProstMessageExt,
    SqlInfo, TicketStatementQuery,
};
use arrow_flight::{
    Action, CancelFlightInfoRequest, CancelFlightInfoResult, CancelStatus, FlightDescriptor,
    FlightEndpoint, FlightInfo, HandshakeRequest, HandshakeResponse, IpcMessage, SchemaAsIpc,
    Ticket,
};
use bytes::Bytes;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::Schema;
use datafusion::arrow::error::ArrowError;
use datafusion::arrow::ipc::writer::IpcWriteOptions;
use futures::{Stream, stream};
use prost::Message;
use tonic::{Request, Response, Status, Streaming};

use super::info;
use super::session::{Session, Sessions};
use super::statement::Statement;
use super::stream::{self as rows, Answer};
use crate::error::{Result, ServeError, state};
use crate::registry::Stop;
use crate::shared::Shared;

const CANCEL_FLIGHT_INFO: &str = "CancelFlightInfo";

/// Flight SQL over the sessions of a server.
pub(super) struct Service {
    sessions: Sessions,
    info: SqlInfoData,
}

type Call<T> = Result<Response<T>, Status>;

impl Service {
    pub(super) fn new(server: Arc<Shared>) -> Result<Self, ArrowError> {
        Ok(Self {
            info: info::server(&server.engine.version())?,
            sessions: Sessions::new(server),
        })
    }

    /// The session of a request; none while the server stops.
    fn session<T>(
        &self,
        request: &Request<T>,
    ) -> impl Future<Output = Result<Arc<Session>, Status>> + Send + '_ {
        // Not the request itself, whose body threads may not share.
        let (metadata, peer) = (request.metadata().clone(), request.remote_addr());
        async move {
            if self.sessions.server().is_stopping() {
                return Err(ServeError::from(Stop::Shutdown).into());
            }
            self.sessions.find(&metadata, peer).await
        }
    }

    /// Where to get what has the ticket.
    fn flight(
        descriptor: FlightDescriptor,
        schema: &Schema,
        ticket: &impl ProstMessageExt,
    ) -> Call<FlightInfo> {
        let ticket = Ticket::new(ticket.as_any().encode_to_vec());
        let flight = FlightInfo::new()
            .try_with_schema(schema)
            .map_err(ServeError::from)?
            .with_endpoint(FlightEndpoint::new().with_ticket(ticket))
            .with_descriptor(descriptor);
        Ok(Response::new(flight))
    }

    /// What the ticket of a flight says which statement it is.
    fn handle_of(flight: &FlightInfo) -> Option<String> {
        let ticket = flight.endpoint.first()?.ticket.as_ref()?;
        let message = Any::decode(&*ticket.ticket).ok()?;
        if let Ok(Some(ticket)) = message.unpack::<TicketStatementQuery>() {
            return text(&ticket.statement_handle).ok();
        }
        let ticket = message.unpack::<CommandPreparedStatementQuery>().ok()??;
        text(&ticket.prepared_statement_handle).ok()
    }

    fn cancel(session: &Session, flight: &FlightInfo) -> bool {
        let entry = Self::handle_of(flight).and_then(|handle| session.running(&handle));
        if let Some(entry) = &entry {
            entry.cancel(Stop::Asked);
        }
        entry.is_some()
    }
}

fn text(handle: &Bytes) -> Result<String, Status> {
    String::from_utf8(handle.to_vec())
        .map_err(|_| Status::invalid_argument("that is no handle of a statement"))
}

fn whole(batch: Result<RecordBatch>) -> Call<Answer> {
    Ok(Response::new(rows::whole(batch?)))
}

fn ipc(schema: &Schema) -> Result<Bytes, Status> {
    let options = IpcWriteOptions::default();
    let message = IpcMessage::try_from(SchemaAsIpc::new(schema, &options));
    Ok(message.map_err(ServeError::from)?.0)
}

#[tonic::async_trait]
impl FlightSqlService for Service {
    type FlightService = Self;

    async fn do_handshake(
        &self,
        request: Request<Streaming<HandshakeRequest>>,
    ) -> Call<Pin<Box<dyn Stream<Item = Result<HandshakeResponse, Status>> + Send>>> {
        let token = self.sessions.log_in(request.metadata()).await?;
        let answer = HandshakeResponse {
            protocol_version: 0,
            payload: token.clone().unwrap_or_default().into(),
        };
        let answer: Pin<Box<dyn Stream<Item = _> + Send>> = Box::pin(stream::iter([Ok(answer)]));
        let mut response = Response::new(answer);
        if let Some(token) = token {
            let value = format!("Bearer {token}").parse();
            let value = value.map_err(|_| Status::internal("the token has no text"))?;
            response.metadata_mut().insert("authorization", value);
        }
        Ok(response)
    }

    async fn get_flight_info_statement(
        &self,
        query: CommandStatementQuery,
        request: Request<FlightDescriptor>,
    ) -> Call<FlightInfo> {
        let session = self.session(&request).await?;
        let statement = Arc::new(Statement::new(&session.client, &query.query).await?);
        let schema = Arc::clone(&statement.schema);
        let ticket = TicketStatementQuery {
            statement_handle: session.keep(statement).into(),
        };
        Self::flight(request.into_inner(), &schema, &ticket)
    }

    async fn get_flight_info_prepared_statement(
        &self,
        query: CommandPreparedStatementQuery,
        request: Request<FlightDescriptor>,
    ) -> Call<FlightInfo> {
        let session = self.session(&request).await?;
        let statement = session.find(&text(&query.prepared_statement_handle)?)?;
        Self::flight(request.into_inner(), &statement.schema, &query)
    }

    async fn get_flight_info_catalogs(
        &self,
        query: CommandGetCatalogs,
        request: Request<FlightDescriptor>,
    ) -> Call<FlightInfo> {
        self.session(&request).await?;
        let schema = query.into_builder().schema();
        Self::flight(request.into_inner(), &schema, &query)
    }

    async fn get_flight_info_schemas(
        &self,
        query: CommandGetDbSchemas,
        request: Request<FlightDescriptor>,
    ) -> Call<FlightInfo> {
        self.session(&request).await?;
        let schema = query.clone().into_builder().schema();
        Self::flight(request.into_inner(), &schema, &query)
    }

    async fn get_flight_info_tables(
        &self,
        query: CommandGetTables,
        request: Request<FlightDescriptor>,
    ) -> Call<FlightInfo> {
        self.session(&request).await?;
        let schema = query.clone().into_builder().schema();
        Self::flight(request.into_inner(), &schema, &query)
    }

    async fn get_flight_info_table_types(
        &self,
        query: CommandGetTableTypes,
        request: Request<FlightDescriptor>,
    ) -> Call<FlightInfo> {
        self.session(&request).await?;
        let schema = query.into_builder().schema();
        Self::flight(request.into_inner(), &schema, &query)
    }

    async fn get_flight_info_sql_info(
        &self,
        query: CommandGetSqlInfo,
        request: Request<FlightDescriptor>,
    ) -> Call<FlightInfo> {
        self.session(&request).await?;
        let schema = query.clone().into_builder(&self.info).schema();
        Self::flight(request.into_inner(), &schema, &query)
    }

    async fn do_get_statement(
        &self,
        ticket: TicketStatementQuery,
        request: Request<Ticket>,
    ) -> Call<Answer> {
        let session = self.session(&request).await?;
        let handle = text(&ticket.statement_handle)?;
        let statement = session.find(&handle)?;
        // A ticket is used once.
        session.forget(&handle);
        let answer = rows::answer(&session, &handle, &statement).await?;
        Ok(Response::new(answer))
    }

    async fn do_get_prepared_statement(
        &self,
        query: CommandPreparedStatementQuery,
        request: Request<Ticket>,
    ) -> Call<Answer> {
        let session = self.session(&request).await?;
        let handle = text(&query.prepared_statement_handle)?;
        let statement = session.find(&handle)?;
        let answer = rows::answer(&session, &handle, &statement).await?;
        Ok(Response::new(answer))
    }

    async fn do_get_catalogs(
        &self,
        query: CommandGetCatalogs,
        request: Request<Ticket>,
    ) -> Call<Answer> {
        let session = self.session(&request).await?;
        whole(info::catalogs(session.client.context(), query))
    }

    async fn do_get_schemas(
        &self,
        query: CommandGetDbSchemas,
        request: Request<Ticket>,
    ) -> Call<Answer> {
        let session = self.session(&request).await?;
        whole(info::schemas(session.client.context(), query))
    }

    async fn do_get_tables(
        &self,
        query: CommandGetTables,
        request: Request<Ticket>,
    ) -> Call<Answer> {
        let session = self.session(&request).await?;
        whole(info::tables(session.client.context(), query).await)
    }

    async fn do_get_table_types(
        &self,
        query: CommandGetTableTypes,
        request: Request<Ticket>,
    ) -> Call<Answer> {
        self.session(&request).await?;
        whole(info::table_types(query))
    }

    async fn do_get_sql_info(
        &self,
        query: CommandGetSqlInfo,
        request: Request<Ticket>,
    ) -> Call<Answer> {
        self.session(&request).await?;
        let batch = query.into_builder(&self.info).build();
        whole(batch.map_err(|error| ServeError::new(state::INTERNAL_ERROR, error.to_string())))
    }

    async fn do_put_statement_update(
        &self,
        command: CommandStatementUpdate,
        request: Request<PeekableFlightDataStream>,
    ) -> Result<i64, Status> {
        let session = self.session(&request).await?;
        let statement = Arc::new(Statement::new(&session.client, &command.query).await?);
        rows::update(&session, "", &statement).await
    }

    async fn do_put_prepared_statement_query(
        &self,
        query: CommandPreparedStatementQuery,
        request: Request<PeekableFlightDataStream>,
    ) -> Result<DoPutPreparedStatementResult, Status> {
        let session = self.session(&request).await?;
        let statement = session.find(&text(&query.prepared_statement_handle)?)?;
        statement.bind(request.into_inner()).await?;
        Ok(DoPutPreparedStatementResult {
            prepared_statement_handle: Some(query.prepared_statement_handle),
        })
    }

    async fn do_put_prepared_statement_update(
        &self,
        query: CommandPreparedStatementUpdate,
        request: Request<PeekableFlightDataStream>,
    ) -> Result<i64, Status> {
        let session = self.session(&request).await?;
        let handle = text(&query.prepared_statement_handle)?;
        let statement = session.find(&handle)?;
        statement.bind(request.into_inner()).await?;
        rows::update(&session, &handle, &statement).await
    }

    async fn do_action_create_prepared_statement(
        &self,
        query: ActionCreatePreparedStatementRequest,
        request: Request<Action>,
    ) -> Result<ActionCreatePreparedStatementResult, Status> {
        let session = self.session(&request).await?;
        let statement = Arc::new(Statement::new(&session.client, &query.query).await?);
        let (dataset, parameters) = (ipc(&statement.schema)?, ipc(&statement.parameters)?);
        Ok(ActionCreatePreparedStatementResult {
            prepared_statement_handle: session.keep(statement).into(),
            dataset_schema: dataset,
            parameter_schema: parameters,
        })
    }

    async fn do_action_close_prepared_statement(
        &self,
        query: ActionClosePreparedStatementRequest,
        request: Request<Action>,
    ) -> Result<(), Status> {
        let session = self.session(&request).await?;
        session.forget(&text(&query.prepared_statement_handle)?);
        Ok(())
    }

    async fn do_action_cancel_query(
        &self,
        query: ActionCancelQueryRequest,
        request: Request<Action>,
    ) -> Result<ActionCancelQueryResult, Status> {
        let session = self.session(&request).await?;
        let flight = FlightInfo::decode(&*query.info)
            .map_err(|error| Status::invalid_argument(error.to_string()))?;
        let result = match Self::cancel(&session, &flight) {
            // The same numbers as those of the older call's own type, which is not public.
            true => CancelStatus::Cancelling,
            false => CancelStatus::NotCancellable,
        };
        Ok(ActionCancelQueryResult {
            result: result as i32,
        })
    }

    async fn do_action_fallback(
        &self,
        request: Request<Action>,
    ) -> Call<<Self as FlightService>::DoActionStream> {
        let session = self.session(&request).await?;
        let action = request.into_inner();
        if action.r#type != CANCEL_FLIGHT_INFO {
            return Err(Status::unimplemented(format!(
                "there is no action '{}'",
                action.r#type
            )));
        }
        let query = CancelFlightInfoRequest::decode(&*action.body)
            .map_err(|error| Status::invalid_argument(error.to_string()))?;
        let found = query
            .info
            .is_some_and(|flight| Self::cancel(&session, &flight));
        let status = match found {
            true => CancelStatus::Cancelling,
            false => CancelStatus::NotCancellable,
        };
        let result = arrow_flight::Result {
            body: CancelFlightInfoResult::new(status).encode_to_vec().into(),
        };
        Ok(Response::new(Box::pin(stream::iter([Ok(result)]))))
    }

    async fn register_sql_info(&self, _: i32, _: &SqlInfo) {}
}
