//! Statements, sessions, parameters, cursors, COPY and cancellation over PostgreSQL's protocol.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::BytesMut;
use postgres_protocol::message::frontend;

use crate::client::{Client, shown};
use crate::{Data, HANG, LONG, start};

#[tokio::test(flavor = "multi_thread")]
async fn simple_queries_answer_rows_and_tags() {
    let data = Data::new();
    let server = start(data.options()).await;
    let mut client = Client::connect(server.postgres().unwrap()).await;
    let version = client
        .parameters
        .iter()
        .find(|(name, _)| name == "server_version");
    assert!(version.unwrap().1.starts_with("16."), "{version:?}");
    let rows = client
        .rows("SELECT n, half, name FROM numbers WHERE n < 4 ORDER BY n")
        .await;
    assert_eq!(
        rows,
        [
            ["1", "-", "name 1"],
            ["2", "1", "name 2"],
            ["3", "-", "name 3"]
        ]
    );
    let answer = client
        .query("SELECT 1 AS a; SELECT 'x' AS b, 2 AS c")
        .await
        .unwrap();
    assert_eq!(answer.tags, ["SELECT 1", "SELECT 1"]);
    let answer = client.query("").await.unwrap();
    assert!(answer.tags.is_empty());
    let rows = client
        .rows(
            "SELECT true, 1.5::double, 12.30::decimal(10,2), DATE '2024-02-29', \
             TIMESTAMP '2024-02-29 12:34:56', NULL, 'ä\"', ARRAY[1,2]",
        )
        .await;
    assert_eq!(
        rows,
        [[
            "t",
            "1.5",
            "12.30",
            "2024-02-29",
            "2024-02-29 12:34:56.000000",
            "-",
            "ä\"",
            "{1,2}"
        ]
        .map(str::to_string)]
    );
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_are_apart() {
    let data = Data::new();
    let server = start(data.options()).await;
    let address = server.postgres().unwrap();
    let (mut a, mut b) = (
        Client::connect(address).await,
        Client::connect(address).await,
    );
    let answer = a
        .query(
            "CREATE TEMPORARY TABLE t (x INT); INSERT INTO t VALUES (1), (2); SELECT sum(x) FROM t",
        )
        .await
        .unwrap();
    assert_eq!(answer.tags, ["CREATE TABLE", "INSERT 0 2", "SELECT 1"]);
    assert_eq!(shown(answer.rows), [["3"]]);
    assert_eq!(b.code("SELECT * FROM t").await, "42P01");
    a.query("SET TIME ZONE 'Europe/Berlin'; SET datafusion.execution.batch_size = 7")
        .await
        .unwrap();
    assert_eq!(a.rows("SHOW timezone").await, [["Europe/Berlin"]]);
    assert_eq!(b.rows("SHOW timezone").await, [["UTC"]]);
    assert_eq!(
        b.rows("SELECT value FROM information_schema.df_settings WHERE name = 'datafusion.execution.batch_size'")
            .await,
        [["8192"]]
    );
    // Dropped here, it is there for others.
    a.query("DROP TABLE numbers").await.unwrap();
    assert_eq!(b.rows("SELECT count(*) FROM numbers").await, [["1000"]]);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn prepared_statements_take_parameters() {
    let data = Data::new();
    let server = start(data.options()).await;
    let mut client = Client::connect(server.postgres().unwrap()).await;
    let sql = "SELECT n FROM numbers WHERE n > $1 AND name <> $2 ORDER BY n LIMIT $3";
    let answer = client
        .extended(sql, &[], &[Some("990"), Some("name 992"), Some("3")], 0)
        .await
        .unwrap();
    assert_eq!(shown(answer.rows), [["991"], ["993"], ["994"]]);
    assert_eq!(answer.tags, ["SELECT 3"]);
    // Types that the client names: 23 is int4, 1700 numeric, 1082 date, 25 text.
    let answer = client
        .extended(
            "SELECT n FROM numbers WHERE n * 1.00::decimal(10,2) = $1",
            &[23],
            &[Some("5")],
            0,
        )
        .await
        .unwrap();
    assert_eq!(shown(answer.rows), [["5"]]);
    let answer = client
        .extended(
            "SELECT 0.05::decimal(15,2) < $1, 0.05::decimal(15,2) BETWEEN $2 AND $3",
            &[1700, 1700, 1700],
            &[Some("0.055"), Some("0.045"), Some("0.054")],
            0,
        )
        .await
        .unwrap();
    assert_eq!(shown(answer.rows), [["t", "t"]]);
    let answer = client
        .extended(
            "SELECT DATE '2024-01-31' = $1, $2::text IS NULL",
            &[],
            &[Some("2024-01-31"), None],
            0,
        )
        .await
        .unwrap();
    assert_eq!(shown(answer.rows), [["t", "t"]]);
    for (sql, values, code) in [
        (sql, &[Some("x"), Some("y"), Some("1")][..], "22P02"),
        (sql, &[Some("1")][..], "08P01"),
        ("SELEC 1", &[][..], "42601"),
        ("SELECT 1; SELECT 2", &[][..], "42601"),
        ("SELECT nothing FROM numbers", &[][..], "42703"),
    ] {
        let refusal = client.extended(sql, &[], values, 0).await.unwrap_err();
        assert_eq!(refusal.0, code, "{sql}: {}", refusal.1);
    }
    assert_eq!(client.rows("SELECT 1").await, [["1"]]);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn portals_and_cursors_are_read_in_pieces() {
    let data = Data::new();
    let server = start(data.options()).await;
    let mut client = Client::connect(server.postgres().unwrap()).await;
    let sql = "SELECT n FROM numbers ORDER BY n";
    let answer = client.extended(sql, &[], &[], 10).await.unwrap();
    assert!(answer.suspended);
    assert_eq!(answer.rows.len(), 1000);
    assert_eq!(answer.tags, ["SELECT 990"]);
    client
        .query(&format!("BEGIN; DECLARE c CURSOR FOR {sql}"))
        .await
        .unwrap();
    for (fetch, count, first) in [
        ("FETCH 2 FROM c", 2, Some("1")),
        ("FETCH FORWARD 300 FROM c", 300, Some("3")),
        ("FETCH NEXT FROM c", 1, Some("303")),
        ("FETCH ALL FROM c", 697, Some("304")),
        ("FETCH 5 FROM c", 0, None),
    ] {
        let answer = client.query(fetch).await.unwrap();
        assert_eq!(answer.tags, [format!("FETCH {count}")]);
        let value = answer.rows.first().and_then(|row| row[0].as_deref());
        assert_eq!(value, first, "{fetch}");
        assert_eq!(answer.columns.len(), 1);
    }
    client.query("COMMIT").await.unwrap();
    assert_eq!(client.code("FETCH 1 FROM c").await, "34000");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_have_codes_and_transactions_end() {
    let data = Data::new();
    let server = start(data.options()).await;
    let mut client = Client::connect(server.postgres().unwrap()).await;
    for (sql, code) in [
        ("SELECT 1/0", "22012"),
        ("SELECT * FROM nowhere", "42P01"),
        ("SELECT nothing FROM numbers", "42703"),
        ("SELECT no_such_function(1)", "42883"),
        ("SELECT 'x'::int", "22P02"),
        ("SELEC 1", "42601"),
        ("SET no_such_parameter = 1", "42704"),
        ("SET client_encoding = 'LATIN1'", "22023"),
        ("CREATE DATABASE x", "0A000"),
    ] {
        assert_eq!(client.code(sql).await, code, "{sql}");
    }
    client.query("BEGIN").await.unwrap();
    assert_eq!(client.code("SELECT 1/0").await, "22012");
    assert_eq!(client.code("SELECT 1").await, "25P02");
    assert_eq!(client.query("COMMIT").await.unwrap().tags, ["ROLLBACK"]);
    assert_eq!(client.rows("SELECT 1").await, [["1"]]);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn copy_sends_text_csv_and_binary() {
    let data = Data::new();
    let server = start(data.options()).await;
    let mut client = Client::connect(server.postgres().unwrap()).await;
    let query = "(SELECT n, half, name FROM numbers WHERE n < 3 ORDER BY n)";
    let answer = client
        .query(&format!("COPY {query} TO STDOUT"))
        .await
        .unwrap();
    assert_eq!(answer.copied, b"1\t\\N\tname 1\n2\t1\tname 2\n");
    assert_eq!(answer.tags, ["COPY 2"]);
    let sql = format!("COPY {query} TO STDOUT WITH (FORMAT csv, HEADER true)");
    let answer = client.query(&sql).await.unwrap();
    assert_eq!(answer.copied, b"n,half,name\n1,,name 1\n2,1,name 2\n");
    let sql = "COPY (SELECT 7::int AS x) TO STDOUT (FORMAT binary)";
    let answer = client.query(sql).await.unwrap();
    assert!(answer.copied.starts_with(b"PGCOPY\n\xff\r\n\0"));
    assert!(
        answer
            .copied
            .ends_with(&[0, 1, 0, 0, 0, 4, 0, 0, 0, 7, 0xff, 0xff])
    );
    // The signature comes with the first row, as from PostgreSQL; each other row and the end on their own.
    for (rows, pieces) in [(0, vec![21]), (1, vec![29, 2]), (3, vec![29, 10, 10, 2])] {
        let sql = format!(
            "COPY (SELECT value::int FROM generate_series(1, {rows})) TO STDOUT (FORMAT binary)"
        );
        assert_eq!(client.query(&sql).await.unwrap().pieces, pieces);
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn cancel_and_timeouts_stop_queries() {
    let data = Data::new();
    let server = start(data.options()).await;
    let address = server.postgres().unwrap();
    let mut client = Client::connect(address).await;
    client.send(LONG).await;
    let stopped = Arc::new(AtomicBool::new(false));
    let canceller = tokio::spawn({
        let ((process, right), stopped) = (client.key, Arc::clone(&stopped));
        async move {
            // A wrong key stops nothing. The right one may come before the query has begun, and then stops nothing either.
            let mut key = (process, right ^ 1);
            while !stopped.load(Ordering::Relaxed) {
                tokio::time::sleep(Duration::from_millis(300)).await;
                let mut other = Client::raw(address).await;
                let mut out = BytesMut::new();
                frontend::cancel_request(key.0, key.1, &mut out);
                other.write(&out).await;
                assert!(other.read().await.is_none());
                key.1 = right;
            }
        }
    });
    let answer = tokio::time::timeout(HANG, client.answer()).await;
    assert_eq!(
        answer.expect("a cancelled query ends").unwrap_err().0,
        "57014"
    );
    stopped.store(true, Ordering::Relaxed);
    canceller.await.unwrap();
    client
        .query("SET statement_timeout = '500ms'")
        .await
        .unwrap();
    let (code, message) = client.query(LONG).await.unwrap_err();
    assert_eq!(code, "57014");
    assert!(message.contains("timeout"), "{message}");
    client.query("RESET statement_timeout").await.unwrap();
    assert_eq!(client.rows("SELECT 1").await, [["1"]]);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_catalog_is_that_of_postgresql() {
    let data = Data::new();
    let server = start(data.options()).await;
    let mut client = Client::connect(server.postgres().unwrap()).await;
    let rows = client
        .rows("SELECT relname FROM pg_catalog.pg_class WHERE relname = 'numbers'")
        .await;
    assert_eq!(rows, [["numbers"]]);
    let version = client.rows("SELECT version()").await;
    assert!(version[0][0].starts_with("PostgreSQL 16"), "{version:?}");
    assert_eq!(client.rows("SELECT current_schema()").await, [["public"]]);
    let rows = client
        .rows("SELECT column_name FROM information_schema.columns WHERE table_name = 'numbers' ORDER BY 1")
        .await;
    assert_eq!(rows, [["half"], ["n"], ["name"]]);
    server.stop().await;
}
