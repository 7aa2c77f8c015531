//! Flight SQL with arrow-flight's own client.

use std::sync::Arc;
use std::time::Duration;

use arrow_flight::sql::client::FlightSqlServiceClient;
use arrow_flight::sql::{CommandGetDbSchemas, CommandGetTables, SqlInfo};
use datafusion::arrow::array::{AsArray, Int64Array, RecordBatch, StringArray};
use datafusion::arrow::datatypes::Int64Type;
use futures::TryStreamExt;
use tonic::Code;
use tonic::transport::{Channel, Endpoint};
use warpline_serve::Server;

use crate::{Data, LONG, start};

async fn connect(server: &Server) -> FlightSqlServiceClient<Channel> {
    let address = format!("http://{}", server.flight().unwrap());
    let channel = Endpoint::from_shared(address)
        .unwrap()
        .connect()
        .await
        .unwrap();
    FlightSqlServiceClient::new(channel)
}

/// All batches of a flight; its schema is that of the stream.
async fn fetch(
    client: &mut FlightSqlServiceClient<Channel>,
    flight: arrow_flight::FlightInfo,
) -> Vec<RecordBatch> {
    let told = flight.clone().try_decode_schema().unwrap();
    let ticket = flight.endpoint[0].ticket.clone().unwrap();
    let mut stream = client.do_get(ticket).await.unwrap();
    let mut batches = Vec::new();
    while let Some(batch) = stream.try_next().await.unwrap() {
        batches.push(batch);
    }
    assert_eq!(stream.schema().unwrap().as_ref(), &told);
    for batch in &batches {
        assert_eq!(batch.schema().as_ref(), &told);
    }
    batches
}

async fn query(client: &mut FlightSqlServiceClient<Channel>, sql: &str) -> Vec<RecordBatch> {
    let flight = client.execute(sql.to_string(), None).await.unwrap();
    fetch(client, flight).await
}

fn rows(batches: &[RecordBatch]) -> usize {
    batches.iter().map(RecordBatch::num_rows).sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn statements_and_updates_run() {
    let data = Data::new();
    let server = start(data.options()).await;
    let mut client = connect(&server).await;
    assert_eq!(
        rows(&query(&mut client, "SELECT * FROM numbers").await),
        1000
    );
    assert_eq!(
        rows(&query(&mut client, "SELECT n FROM numbers WHERE n < 0").await),
        0
    );
    query(&mut client, "SELECT NULL, arrow_cast('a', 'Utf8View'), arrow_cast('b', 'Dictionary(Int32, Utf8)'), [1], 1.5").await;
    let changed = client
        .execute_update("CREATE TABLE t (x BIGINT)".to_string(), None)
        .await;
    assert_eq!(changed.unwrap(), 0);
    let changed = client
        .execute_update("INSERT INTO t VALUES (1), (2)".to_string(), None)
        .await;
    assert_eq!(changed.unwrap(), 2);
    let sum = query(&mut client, "SELECT sum(x) AS s FROM t").await;
    assert_eq!(sum[0].column(0).as_primitive::<Int64Type>().value(0), 3);
    // Another connection, another session.
    let mut other = connect(&server).await;
    let error = other
        .execute("SELECT * FROM t".to_string(), None)
        .await
        .unwrap_err();
    assert!(error.to_string().contains("42P01"), "{error}");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn prepared_statements_take_rows_of_parameters() {
    let data = Data::new();
    let server = start(data.options()).await;
    let mut client = connect(&server).await;
    let sql = "SELECT n FROM numbers WHERE n > ? AND name <> ?".to_string();
    let mut statement = client.prepare(sql, None).await.unwrap();
    assert_eq!(statement.parameter_schema().unwrap().fields().len(), 2);
    let values = RecordBatch::try_from_iter([
        ("1", Arc::new(Int64Array::from(vec![990])) as _),
        ("2", Arc::new(StringArray::from(vec!["name 999"])) as _),
    ]);
    statement.set_parameters(values.unwrap()).unwrap();
    let flight = statement.execute().await.unwrap();
    assert_eq!(rows(&fetch(&mut client, flight).await), 9);
    statement.close().await.unwrap();
    client
        .execute_update("CREATE TABLE t (x BIGINT)".to_string(), None)
        .await
        .unwrap();
    let mut insert = client
        .prepare("INSERT INTO t VALUES ($1)".to_string(), None)
        .await
        .unwrap();
    let values = RecordBatch::try_from_iter([(
        "x",
        Arc::new(Int64Array::from(vec![Some(5), None, Some(7)])) as _,
    )]);
    insert.set_parameters(values.unwrap()).unwrap();
    assert_eq!(insert.execute_update().await.unwrap(), 3);
    let sum = query(&mut client, "SELECT sum(x), count(*) FROM t").await;
    assert_eq!(sum[0].column(0).as_primitive::<Int64Type>().value(0), 12);
    assert_eq!(sum[0].column(1).as_primitive::<Int64Type>().value(0), 3);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn catalogs_are_told() {
    let data = Data::new();
    let server = start(data.options()).await;
    let mut client = connect(&server).await;
    let flight = client.get_catalogs().await.unwrap();
    assert_eq!(rows(&fetch(&mut client, flight).await), 1);
    let schemas = CommandGetDbSchemas {
        catalog: None,
        db_schema_filter_pattern: Some("pub%".to_string()),
    };
    let flight = client.get_db_schemas(schemas).await.unwrap();
    assert_eq!(rows(&fetch(&mut client, flight).await), 1);
    let tables = CommandGetTables {
        catalog: None,
        db_schema_filter_pattern: None,
        table_name_filter_pattern: Some("num%".to_string()),
        table_types: vec![],
        include_schema: true,
    };
    let flight = client.get_tables(tables).await.unwrap();
    assert_eq!(rows(&fetch(&mut client, flight).await), 1);
    let flight = client.get_table_types().await.unwrap();
    assert_eq!(rows(&fetch(&mut client, flight).await), 2);
    let flight = client
        .get_sql_info(vec![SqlInfo::FlightSqlServerName])
        .await
        .unwrap();
    assert_eq!(rows(&fetch(&mut client, flight).await), 1);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn users_log_in_and_are_kept_from_the_host() {
    let data = Data::new();
    let server = start(data.with_users()).await;
    let mut client = connect(&server).await;
    let code = |error: arrow_flight::error::FlightError| error.to_string();
    let error = client
        .execute("SELECT 1".to_string(), None)
        .await
        .unwrap_err();
    assert!(code(error).contains("28000"));
    assert!(client.handshake("ada", "wrong").await.is_err());
    client.handshake("ada", "lovelace").await.unwrap();
    assert_eq!(rows(&query(&mut client, "SELECT 1").await), 1);
    for sql in [
        "SET datafusion.catalog.location = '/'",
        "COPY (SELECT 1) TO '/tmp/x.csv'",
        "CREATE EXTERNAL TABLE x STORED AS CSV LOCATION '/etc/passwd'",
        "INSERT INTO numbers VALUES (1, 2, 'x')",
    ] {
        let error = client
            .execute_update(sql.to_string(), None)
            .await
            .unwrap_err();
        let error = code(error);
        // This parser does not know tables of files at all.
        let refused = ["[42501]", "[42601]"];
        assert!(
            refused.iter().any(|code| error.contains(code)),
            "{sql}: {error}"
        );
    }
    let mut other = connect(&server).await;
    other.set_token("nobody's".to_string());
    assert!(other.execute("SELECT 1".to_string(), None).await.is_err());
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn queries_are_cancelled() {
    let data = Data::new();
    let server = start(data.options()).await;
    let mut client = connect(&server).await;
    let flight = client.execute(LONG.to_string(), None).await.unwrap();
    let ticket = flight.endpoint[0].ticket.clone().unwrap();
    let mut stream = client.do_get(ticket).await.unwrap();
    let mut second = client.clone();
    let cancel = tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(200)).await;
        let request = arrow_flight::CancelFlightInfoRequest { info: Some(flight) };
        let body = prost::Message::encode_to_vec(&request);
        let action = arrow_flight::Action::new("CancelFlightInfo", body);
        second.inner_mut().do_action(action).await.unwrap();
    });
    let outcome = tokio::time::timeout(crate::HANG, async {
        loop {
            match stream.try_next().await {
                Ok(Some(_)) => {}
                Ok(None) => panic!("it ended"),
                Err(error) => return error,
            }
        }
    });
    let error = outcome.await.expect("it stops");
    let arrow_flight::error::FlightError::Tonic(status) = &error else {
        panic!("{error}");
    };
    assert_eq!(status.code(), Code::Cancelled, "{status}");
    cancel.await.unwrap();
    server.stop().await;
}
