//! Metrics, health and the page.

use std::net::SocketAddr;

use base64::Engine as _;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::client::Client;
use crate::{Data, start};

pub(crate) async fn get(address: SocketAddr, path: &str, headers: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nConnection: close\r\n{headers}\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    text
}

#[tokio::test(flavor = "multi_thread")]
async fn queries_are_seen_and_counted() {
    let data = Data::new();
    let server = start(data.options()).await;
    let mut client = Client::connect(server.postgres().unwrap()).await;
    client
        .rows("SELECT '<script>' AS x, count(*) FROM numbers")
        .await;
    client.code("SELECT 1/0").await;
    let address = server.http().unwrap();
    let host = "Host: localhost\r\n";
    assert!(get(address, "/health", host).await.ends_with("ok\n"));
    let metrics = get(address, "/metrics", host).await;
    for line in [
        "warpline_queries_total 2",
        "warpline_query_errors_total 1",
        "warpline_connections_open 1",
        "warpline_query_seconds_count 2",
    ] {
        assert!(metrics.contains(line), "{line}: {metrics}");
    }
    let page = get(address, "/", host).await;
    assert!(
        page.contains("&lt;script&gt;") && !page.contains("<script>"),
        "{page}"
    );
    assert!(
        page.contains("22012") && page.contains("CsvSource") | page.contains("DataSource"),
        "{page}"
    );
    assert!(
        get(address, "/", "Host: evil.example\r\n")
            .await
            .starts_with("HTTP/1.1 403")
    );
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_asks_for_a_password_where_there_are_users() {
    let data = Data::new();
    let server = start(data.with_users()).await;
    let address = server.http().unwrap();
    let as_user = |user: &str| {
        let encoded = base64::engine::general_purpose::STANDARD.encode(user);
        format!("Host: localhost\r\nAuthorization: Basic {encoded}\r\n")
    };
    let status = |text: String| text.split(' ').nth(1).unwrap_or_default().to_string();
    assert_eq!(
        status(get(address, "/", "Host: localhost\r\n").await),
        "401"
    );
    assert_eq!(
        status(get(address, "/metrics", &as_user("ada:wrong")).await),
        "401"
    );
    assert_eq!(
        status(get(address, "/", &as_user("ada:lovelace")).await),
        "200"
    );
    assert_eq!(
        status(get(address, "/health", "Host: localhost\r\n").await),
        "200"
    );
    server.stop().await;
}
