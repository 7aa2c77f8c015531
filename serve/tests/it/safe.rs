//! What clients must not be able to do, and what a server refuses to start with.

use std::sync::Arc;

use bytes::BytesMut;
use postgres_protocol::message::frontend;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};
use warpline_serve::{Limits, ServeOptions, Server};

use crate::client::Client;
use crate::{Data, Plain, start};

const CERTIFICATE: &str = include_str!("certificate.pem");
const KEY: &str = include_str!("key.pem");

#[tokio::test(flavor = "multi_thread")]
async fn passwords_are_checked() {
    let data = Data::new();
    let server = start(data.with_users()).await;
    let address = server.postgres().unwrap();
    let mut client = Client::log_in(address, "ada", "lovelace").await.unwrap();
    assert_eq!(client.rows("SELECT 1").await, [["1"]]);
    for (user, password) in [("ada", "byron"), ("eve", "lovelace"), ("", ""), ("ada", "")] {
        let refusal = Client::log_in(address, user, password).await.err().unwrap();
        assert_eq!(refusal.0, "28P01", "{user}: {refusal:?}");
        assert!(!refusal.1.contains(password) || password.is_empty());
    }
    // A query in place of a log-in, and after one that failed.
    let mut out = BytesMut::new();
    frontend::startup_message([("user", "ada")], &mut out).unwrap();
    frontend::query("SELECT 1", &mut out).unwrap();
    frontend::query("SELECT 1", &mut out).unwrap();
    let mut client = Client::raw(address).await;
    client.write(&out).await;
    let mut tags = Vec::new();
    while let Some(message) = client.read().await {
        tags.push(message.tag as char);
    }
    assert!(!tags.contains(&'D') && tags.contains(&'E'), "{tags:?}");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_folders_of_the_server_are_reached() {
    let data = Data::new();
    let server = start(data.options()).await;
    let mut client = Client::connect(server.postgres().unwrap()).await;
    let secret = data.path("secret.csv").display().to_string();
    let out = data.path("data/out.csv").display().to_string();
    let up = data.path("data/../secret.csv").display().to_string();
    for sql in [
        format!("CREATE EXTERNAL TABLE x STORED AS CSV LOCATION '{secret}'"),
        format!("CREATE EXTERNAL TABLE x STORED AS CSV LOCATION '{up}'"),
        "CREATE EXTERNAL TABLE x STORED AS PARQUET LOCATION 's3://bucket/x'".to_string(),
        format!("SELECT * FROM '{secret}'"),
        format!("SELECT * FROM \"{secret}\""),
        format!("SELECT * FROM \"{up}\""),
        "SELECT * FROM 'https://example.com/x.parquet'".to_string(),
        format!("COPY (SELECT 1) TO '{out}'"),
        format!("COPY numbers TO '{out}'"),
        format!("COPY numbers FROM '{secret}'"),
        "COPY (SELECT 1) TO PROGRAM 'sh'".to_string(),
        "INSERT INTO numbers VALUES (1, 2, 'x')".to_string(),
        "EXPLAIN ANALYZE INSERT INTO numbers VALUES (1, 2, 'x')".to_string(),
        "PREPARE p AS INSERT INTO numbers VALUES (1, 2, 'x')".to_string(),
        "DELETE FROM numbers".to_string(),
        "CREATE FUNCTION f() RETURNS INT AS 'x' LANGUAGE c".to_string(),
    ] {
        let code = client.code(&sql).await;
        assert!(
            matches!(code.as_str(), "42501" | "42601" | "42P01" | "0A000"),
            "{sql}: {code}"
        );
    }
    assert!(!data.path("data/out.csv").exists());
    assert_eq!(
        client.rows("SELECT count(*) FROM numbers").await,
        [["1000"]]
    );
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn settings_of_the_host_are_not_the_clients() {
    let data = Data::new();
    let server = start(data.options()).await;
    let mut client = Client::connect(server.postgres().unwrap()).await;
    for name in [
        "datafusion.runtime.memory_limit",
        "datafusion.runtime.temp_directory",
        "datafusion.execution.target_partitions",
        "datafusion.execution.parquet.pushdown_filters",
        "datafusion.catalog.location",
        "datafusion.sql_parser.recursion_limit",
        "DataFusion.Catalog.Location",
        "\"datafusion.catalog.location\"",
    ] {
        for sql in [format!("SET {name} = '1'"), format!("SET {name} TO '1'")] {
            let code = client.code(&sql).await;
            assert!(matches!(code.as_str(), "42501" | "42704"), "{sql}: {code}");
        }
        let extended = client
            .extended(&format!("SET {name} = '1'"), &[], &[], 0)
            .await;
        assert!(extended.is_err(), "{name}");
    }
    assert_eq!(
        client.code("SET datafusion.catalog.location = '/'").await,
        "42501"
    );
    assert_eq!(
        client
            .code("PREPARE p AS SET datafusion.catalog.location = '/'")
            .await
            .len(),
        5
    );
    assert_eq!(client.code("SET ROLE admin").await, "42501");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_of_users_hold() {
    let data = Data::new();
    let options = ServeOptions {
        limits: Limits {
            rows: Some(100),
            time: Some(std::time::Duration::from_millis(500)),
            queries: None,
        },
        ..data.options()
    };
    let server = start(options).await;
    let mut client = Client::connect(server.postgres().unwrap()).await;
    assert_eq!(client.code("SELECT * FROM numbers").await, "54000");
    assert_eq!(
        client
            .query("SELECT * FROM numbers LIMIT 100")
            .await
            .unwrap()
            .rows
            .len(),
        100
    );
    // A client's own limit shortens the server's, and lengthens nothing.
    client.query("SET statement_timeout = '1h'").await.unwrap();
    assert_eq!(client.code(crate::LONG).await, "57014");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tls_is_all_or_nothing() {
    let data = Data::new();
    let [certificate, key] =
        [("certificate.pem", CERTIFICATE), ("key.pem", KEY)].map(|(name, text)| {
            let path = data.path(name);
            std::fs::write(&path, text).unwrap();
            path
        });
    let options = ServeOptions {
        tls: Some((certificate.clone(), key.clone())),
        ..data.with_users()
    };
    for broken in [
        (data.path("secret.csv"), key.clone()),
        (certificate.clone(), data.path("secret.csv")),
        (certificate.clone(), data.path("none")),
        (key.clone(), certificate.clone()),
    ] {
        let broken = ServeOptions {
            tls: Some(broken),
            ..options.clone()
        };
        assert!(Server::start(broken, Arc::new(Plain)).await.is_err());
    }
    let server = start(options).await;
    let address = server.postgres().unwrap();
    let refusal = Client::log_in(address, "ada", "lovelace")
        .await
        .err()
        .unwrap();
    assert_eq!(refusal.0, "28000", "{refusal:?}");
    let mut stream = TcpStream::connect(address).await.unwrap();
    let mut out = BytesMut::new();
    frontend::ssl_request(&mut out);
    stream.write_all(&out).await.unwrap();
    assert_eq!(stream.read_u8().await.unwrap(), b'S');
    let mut roots = RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_file(&certificate).unwrap())
        .unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from("localhost").unwrap();
    let stream = TlsConnector::from(Arc::new(config))
        .connect(name, stream)
        .await
        .unwrap();
    let mut client = Client::over(Box::new(stream));
    client.start("ada", "lovelace").await.unwrap();
    assert_eq!(
        client.rows("SELECT count(*) FROM numbers").await,
        [["1000"]]
    );
    server.stop().await;
}
