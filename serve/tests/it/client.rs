//! A client of PostgreSQL's protocol, as small as the tests need it.

use std::net::SocketAddr;

use bytes::{Buf, BytesMut};
use postgres_protocol::authentication::sasl::{ChannelBinding, ScramSha256};
use postgres_protocol::message::frontend;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;

pub(crate) trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}

pub(crate) struct Client {
    stream: Box<dyn Stream>,
    input: BytesMut,
    pub(crate) key: (i32, i32),
    pub(crate) parameters: Vec<(String, String)>,
}

/// A message of the server.
#[derive(Debug, Clone)]
pub(crate) struct Message {
    pub(crate) tag: u8,
    pub(crate) body: BytesMut,
}

/// What a statement answered.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) columns: Vec<(String, u32)>,
    pub(crate) rows: Vec<Vec<Option<String>>>,
    pub(crate) tags: Vec<String>,
    pub(crate) suspended: bool,
    pub(crate) copied: Vec<u8>,
    /// Bytes of each message of them.
    pub(crate) pieces: Vec<usize>,
}

/// The code and text of an error.
pub(crate) type Refusal = (String, String);

fn text(body: &mut BytesMut) -> String {
    let end = body.iter().position(|byte| *byte == 0).unwrap();
    let text = String::from_utf8(body.split_to(end).to_vec()).unwrap();
    body.advance(1);
    text
}

impl Message {
    pub(crate) fn refusal(&self) -> Refusal {
        let mut body = self.body.clone();
        let (mut code, mut message) = (String::new(), String::new());
        while body[0] != 0 {
            let field = body.get_u8();
            let value = text(&mut body);
            match field {
                b'C' => code = value,
                b'M' => message = value,
                _ => {}
            }
        }
        (code, message)
    }

    fn row(&self) -> Vec<Option<String>> {
        let mut body = self.body.clone();
        let count = body.get_i16();
        let value = |_| {
            let length = usize::try_from(body.get_i32()).ok()?;
            Some(String::from_utf8(body.split_to(length).to_vec()).unwrap())
        };
        (0..count).map(value).collect()
    }

    fn columns(&self) -> Vec<(String, u32)> {
        let mut body = self.body.clone();
        let count = body.get_i16();
        let column = |_| {
            let name = text(&mut body);
            body.advance(6);
            let kind = body.get_u32();
            body.advance(8);
            (name, kind)
        };
        (0..count).map(column).collect()
    }
}

impl Client {
    pub(crate) async fn connect(address: SocketAddr) -> Self {
        Self::log_in(address, "test", "").await.unwrap()
    }

    pub(crate) async fn raw(address: SocketAddr) -> Self {
        Self::over(Box::new(TcpStream::connect(address).await.unwrap()))
    }

    pub(crate) fn over(stream: Box<dyn Stream>) -> Self {
        Self {
            stream,
            input: BytesMut::new(),
            key: (0, 0),
            parameters: vec![],
        }
    }

    pub(crate) async fn log_in(
        address: SocketAddr,
        user: &str,
        password: &str,
    ) -> Result<Self, Refusal> {
        let mut client = Self::raw(address).await;
        client.start(user, password).await?;
        Ok(client)
    }

    pub(crate) async fn start(&mut self, user: &str, password: &str) -> Result<(), Refusal> {
        let mut out = BytesMut::new();
        frontend::startup_message([("user", user), ("database", "test")], &mut out).unwrap();
        self.write(&out).await;
        let mut scram = ScramSha256::new(password.as_bytes(), ChannelBinding::unsupported());
        loop {
            let Some(mut message) = self.read().await else {
                return Err(("closed".to_string(), String::new()));
            };
            match message.tag {
                b'R' => {
                    let mut out = BytesMut::new();
                    match message.body.get_i32() {
                        0 => {}
                        10 => {
                            let data = scram.message();
                            frontend::sasl_initial_response("SCRAM-SHA-256", data, &mut out)
                                .unwrap();
                        }
                        11 => {
                            scram.update(&message.body).unwrap();
                            frontend::sasl_response(scram.message(), &mut out).unwrap();
                        }
                        12 => scram.finish(&message.body).unwrap(),
                        other => panic!("authentication {other}"),
                    }
                    self.write(&out).await;
                }
                b'K' => self.key = (message.body.get_i32(), message.body.get_i32()),
                b'S' => {
                    let parameter = (text(&mut message.body), text(&mut message.body));
                    self.parameters.push(parameter);
                }
                b'Z' => return Ok(()),
                b'E' => return Err(message.refusal()),
                other => panic!("message {}", other as char),
            }
        }
    }

    pub(crate) async fn write(&mut self, bytes: &[u8]) {
        // The server may have closed the connection, which the next read tells.
        let _ = self.stream.write_all(bytes).await;
        let _ = self.stream.flush().await;
    }

    /// The next message; `None` when the connection is closed.
    pub(crate) async fn read(&mut self) -> Option<Message> {
        loop {
            if self.input.len() >= 5 {
                let length = (&self.input[1..5]).get_u32() as usize + 1;
                if self.input.len() >= length {
                    let mut body = self.input.split_to(length);
                    let tag = body.get_u8();
                    body.advance(4);
                    return Some(Message { tag, body });
                }
            }
            match self.stream.read_buf(&mut self.input).await {
                Ok(0) | Err(_) => return None,
                Ok(_) => {}
            }
        }
    }

    /// Reads until the server is ready; the first error counts.
    pub(crate) async fn answer(&mut self) -> Result<Answer, Refusal> {
        let mut answer = Answer::default();
        let mut refusal = None;
        loop {
            let Some(mut message) = self.read().await else {
                return Err(refusal.unwrap_or(("closed".to_string(), String::new())));
            };
            match message.tag {
                b'T' => answer.columns = message.columns(),
                b'D' => answer.rows.push(message.row()),
                b'C' => answer.tags.push(text(&mut message.body)),
                b's' => answer.suspended = true,
                b'd' => {
                    answer.copied.extend_from_slice(&message.body);
                    answer.pieces.push(message.body.len());
                }
                b'E' => {
                    refusal.get_or_insert(message.refusal());
                }
                b'Z' => return refusal.map_or(Ok(answer), Err),
                _ => {}
            }
        }
    }

    pub(crate) async fn send(&mut self, sql: &str) {
        let mut out = BytesMut::new();
        frontend::query(sql, &mut out).unwrap();
        self.write(&out).await;
    }

    pub(crate) async fn query(&mut self, sql: &str) -> Result<Answer, Refusal> {
        self.send(sql).await;
        self.answer().await
    }

    /// The rows of a query that succeeds, with `-` for NULL.
    pub(crate) async fn rows(&mut self, sql: &str) -> Vec<Vec<String>> {
        let answer = self.query(sql).await;
        shown(answer.unwrap_or_else(|e| panic!("{sql}: {e:?}")).rows)
    }

    /// The code of an error.
    pub(crate) async fn code(&mut self, sql: &str) -> String {
        match self.query(sql).await {
            Ok(answer) => panic!("{sql}: {answer:?}"),
            Err((code, _)) => code,
        }
    }

    /// An extended query: types of the parameters (0 is unknown), their values as text, most rows at a time.
    pub(crate) async fn extended(
        &mut self,
        sql: &str,
        types: &[u32],
        values: &[Option<&str>],
        most: i32,
    ) -> Result<Answer, Refusal> {
        let mut out = BytesMut::new();
        frontend::parse("", sql, types.iter().copied(), &mut out).unwrap();
        frontend::describe(b'S', "", &mut out).unwrap();
        bind(values, &mut out);
        frontend::describe(b'P', "", &mut out).unwrap();
        frontend::execute("", most, &mut out).unwrap();
        if most > 0 {
            frontend::execute("", 0, &mut out).unwrap();
        }
        frontend::sync(&mut out);
        self.write(&out).await;
        self.answer().await
    }
}

pub(crate) fn bind(values: &[Option<&str>], out: &mut BytesMut) {
    let outcome = frontend::bind(
        "",
        "",
        [0i16],
        values.iter(),
        |value, out: &mut BytesMut| match value {
            Some(value) => {
                out.extend_from_slice(value.as_bytes());
                Ok(postgres_protocol::IsNull::No)
            }
            None => Ok(postgres_protocol::IsNull::Yes),
        },
        [0i16],
        out,
    );
    assert!(outcome.is_ok());
}

pub(crate) fn shown(rows: Vec<Vec<Option<String>>>) -> Vec<Vec<String>> {
    let value = |value: Option<String>| value.unwrap_or_else(|| "-".to_string());
    rows.into_iter()
        .map(|row| row.into_iter().map(value).collect())
        .collect()
}
