//! `COPY … TO STDOUT`: rows as text, CSV or PostgreSQL's binary form.

use std::fmt::Debug;
use std::sync::Arc;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use datafusion::sql::sqlparser::ast::{
    CopyLegacyCsvOption, CopyLegacyOption, CopyOption, CopySource, Statement,
};
use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::parser::Parser;
use datafusion_postgres::pgwire::api::portal::Format;
use datafusion_postgres::pgwire::api::results::{FieldInfo, Tag};
use datafusion_postgres::pgwire::error::{PgWireError, PgWireResult};
use datafusion_postgres::pgwire::messages::PgWireBackendMessage;
use datafusion_postgres::pgwire::messages::copy::{CopyData, CopyDone, CopyOutResponse};
use datafusion_postgres::pgwire::messages::data::DataRow;
use futures::{Sink, SinkExt};

use super::command::Parameters;
use super::rows::Encoder;
use super::statement::{Prepared, fields};
use crate::client::Client;
use crate::error::{Result, ServeError, state};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Text,
    Csv,
    Binary,
}

#[derive(Debug)]
struct Options {
    form: Form,
    delimiter: char,
    null: String,
    header: bool,
    quote: char,
    escape: char,
}

/// Bytes before the first row of the binary form: signature, flags, no extension.
const SIGNATURE: &[u8] = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0";

/// Runs the statement and sends its rows.
pub(super) async fn run<C>(
    client: &Arc<Client>,
    parameters: &Parameters,
    statement: &Statement,
    socket: &mut C,
) -> PgWireResult<Tag>
where
    C: Sink<PgWireBackendMessage> + Unpin + Send + Sync,
    C::Error: Debug,
    PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
{
    let Statement::Copy {
        source,
        options,
        legacy_options,
        ..
    } = statement
    else {
        return Err(ServeError::unsupported(&statement.to_string()).into());
    };
    let options = read_options(options, legacy_options)?;
    let query = match source {
        CopySource::Query(query) => Statement::Query(query.clone()),
        CopySource::Table {
            table_name,
            columns,
        } => {
            let columns: Vec<String> = columns.iter().map(ToString::to_string).collect();
            let columns = match columns.is_empty() {
                true => "*".to_string(),
                false => columns.join(", "),
            };
            let sql = format!("SELECT {columns} FROM {table_name}");
            let parsed = Parser::parse_sql(&PostgreSqlDialect {}, &sql);
            let mut parsed = parsed.map_err(ServeError::from)?;
            parsed
                .pop()
                .ok_or_else(|| ServeError::unsupported("COPY of nothing"))?
        }
    };
    let query = Prepared::new(client, parameters, query).await?;
    let Some(plan) = query.plan.clone() else {
        return Err(ServeError::unsupported(&query.sql).into());
    };
    let rows = client.start(&query.sql, query.work(plan)).await?;
    let format = match options.form {
        Form::Binary => Format::UnifiedBinary,
        Form::Text | Form::Csv => Format::UnifiedText,
    };
    let fields = fields(&rows.schema(), &format, parameters)?;
    let mut encoder = Encoder::new(rows, fields);
    let code = i16::from(options.form == Form::Binary);
    let columns = encoder.fields().len();
    let begin = CopyOutResponse::new(code as i8, columns as i16, vec![code; columns]);
    socket
        .feed(PgWireBackendMessage::CopyOutResponse(begin))
        .await?;
    // Clients rely on what PostgreSQL does: a message for each row, the signature in that of the first.
    let mut before = BytesMut::new();
    if options.form == Form::Binary {
        before.put_slice(SIGNATURE);
    } else if options.header {
        options.header(encoder.fields(), &mut before);
        socket.feed(data(before.split())).await?;
    }
    let mut sent = 0;
    loop {
        let piece = encoder.piece(usize::MAX).await?;
        if piece.is_empty() {
            break;
        }
        sent += piece.len();
        let lines = piece.into_iter().map(|row| {
            let mut line = before.split();
            line.unsplit(options.row(row));
            data(line)
        });
        encoder.feed(socket, lines).await?;
    }
    if options.form == Form::Binary {
        before.put_i16(-1);
        socket.feed(data(before)).await?;
    }
    socket
        .feed(PgWireBackendMessage::CopyDone(CopyDone::new()))
        .await?;
    Ok(Tag::new("COPY").with_rows(sent))
}

fn data(bytes: BytesMut) -> PgWireBackendMessage {
    PgWireBackendMessage::CopyData(CopyData::new(bytes.freeze()))
}

impl Options {
    fn header(&self, fields: &[FieldInfo], out: &mut BytesMut) {
        for (at, field) in fields.iter().enumerate() {
            self.value(at, Some(field.name().as_bytes()), out);
        }
        out.put_u8(b'\n');
    }

    /// A row as a line, or as a tuple of the binary form, which is that of the protocol.
    fn row(&self, row: DataRow) -> BytesMut {
        let mut out = BytesMut::with_capacity(row.data.len() + 8);
        if self.form == Form::Binary {
            out.put_i16(row.field_count);
            out.put_slice(&row.data);
            return out;
        }
        let mut values: Bytes = row.data.freeze();
        for at in 0..row.field_count as usize {
            let length = values.get_i32();
            match usize::try_from(length) {
                Ok(length) => self.value(at, Some(&values.split_to(length)), &mut out),
                Err(_) => self.value(at, None, &mut out),
            }
        }
        out.put_u8(b'\n');
        out
    }

    fn value(&self, at: usize, value: Option<&[u8]>, out: &mut BytesMut) {
        let mut delimiter = [0; 4];
        let delimiter = self.delimiter.encode_utf8(&mut delimiter).as_bytes();
        if at > 0 {
            out.put_slice(delimiter);
        }
        let Some(value) = value else {
            out.put_slice(self.null.as_bytes());
            return;
        };
        if self.form == Form::Csv {
            self.csv(value, delimiter, out);
            return;
        }
        for byte in value {
            match byte {
                b'\\' => out.put_slice(b"\\\\"),
                b'\n' => out.put_slice(b"\\n"),
                b'\r' => out.put_slice(b"\\r"),
                b'\t' => out.put_slice(b"\\t"),
                8 => out.put_slice(b"\\b"),
                11 => out.put_slice(b"\\v"),
                12 => out.put_slice(b"\\f"),
                byte if delimiter == [*byte] => out.put_slice(&[b'\\', *byte]),
                byte => out.put_u8(*byte),
            }
        }
    }

    fn csv(&self, value: &[u8], delimiter: &[u8], out: &mut BytesMut) {
        let (quote, escape) = (self.quote as u8, self.escape as u8);
        let special = |byte: &u8| {
            *byte == quote || *byte == b'\n' || *byte == b'\r' || delimiter.contains(byte)
        };
        // What reads like NULL or like the end of the data is no such thing.
        let quoted = value == self.null.as_bytes() || value == b"\\." || value.iter().any(special);
        if !quoted {
            out.put_slice(value);
            return;
        }
        out.put_u8(quote);
        for byte in value {
            if *byte == quote || *byte == escape {
                out.put_u8(escape);
            }
            out.put_u8(*byte);
        }
        out.put_u8(quote);
    }
}

fn read_options(options: &[CopyOption], legacy: &[CopyLegacyOption]) -> Result<Options> {
    let mut form = Form::Text;
    for option in options {
        if let CopyOption::Format(name) = option {
            form = match name.value.to_lowercase().as_str() {
                "text" => Form::Text,
                "csv" => Form::Csv,
                "binary" => Form::Binary,
                other => return Err(ServeError::unsupported(&format!("COPY format {other}"))),
            };
        }
    }
    for option in legacy {
        match option {
            CopyLegacyOption::Binary => form = Form::Binary,
            CopyLegacyOption::Csv(_) => form = Form::Csv,
            _ => {}
        }
    }
    let csv = form == Form::Csv;
    let mut read = Options {
        form,
        delimiter: if csv { ',' } else { '\t' },
        null: if csv { "" } else { "\\N" }.to_string(),
        header: false,
        quote: '"',
        escape: '"',
    };
    let mut escape = None;
    for option in options {
        match option {
            CopyOption::Format(_) | CopyOption::Freeze(_) => {}
            CopyOption::Delimiter(delimiter) => read.delimiter = *delimiter,
            CopyOption::Null(null) => read.null.clone_from(null),
            CopyOption::Header(header) => read.header = *header,
            CopyOption::Quote(quote) => read.quote = *quote,
            CopyOption::Escape(other) => escape = Some(*other),
            CopyOption::Encoding(name)
                if matches!(name.to_lowercase().as_str(), "utf8" | "utf-8") => {}
            other => return Err(ServeError::unsupported(&format!("COPY option {other}"))),
        }
    }
    for option in legacy {
        match option {
            CopyLegacyOption::Binary => {}
            CopyLegacyOption::Delimiter(delimiter) => read.delimiter = *delimiter,
            CopyLegacyOption::Null(null) => read.null.clone_from(null),
            CopyLegacyOption::Header => read.header = true,
            CopyLegacyOption::Csv(options) => {
                for option in options {
                    match option {
                        CopyLegacyCsvOption::Header => read.header = true,
                        CopyLegacyCsvOption::Quote(quote) => read.quote = *quote,
                        CopyLegacyCsvOption::Escape(other) => escape = Some(*other),
                        other => {
                            return Err(ServeError::unsupported(&format!("COPY option {other}")));
                        }
                    }
                }
            }
            other => return Err(ServeError::unsupported(&format!("COPY option {other}"))),
        }
    }
    read.escape = escape.unwrap_or(read.quote);
    let one_byte = [read.delimiter, read.quote, read.escape];
    if one_byte
        .iter()
        .any(|c| !c.is_ascii() || matches!(c, '\n' | '\r' | '\\'))
    {
        return Err(ServeError::new(
            state::INVALID_PARAMETER_VALUE,
            "COPY delimiter, quote and escape are single one-byte characters",
        ));
    }
    Ok(read)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(sql: &str) -> Options {
        let parsed = Parser::parse_sql(&PostgreSqlDialect {}, sql).unwrap();
        match &parsed[0] {
            Statement::Copy {
                options,
                legacy_options,
                ..
            } => read_options(options, legacy_options).unwrap(),
            other => panic!("{other}"),
        }
    }

    fn line(options: &Options, values: &[Option<&str>]) -> String {
        let mut row = BytesMut::new();
        for value in values {
            match value {
                Some(value) => {
                    row.put_i32(value.len() as i32);
                    row.put_slice(value.as_bytes());
                }
                None => row.put_i32(-1),
            }
        }
        let row = options.row(DataRow::new(row, values.len() as i16));
        String::from_utf8(row.to_vec()).unwrap()
    }

    #[test]
    fn values_are_escaped() {
        let values = [Some("a\tb\\"), None, Some(""), Some("x,\"y\"\n")];
        let text = options("COPY t TO STDOUT");
        assert_eq!(line(&text, &values), "a\\tb\\\\\t\\N\t\tx,\"y\"\\n\n");
        let csv = options("COPY t TO STDOUT WITH (FORMAT csv, HEADER)");
        assert!(csv.header);
        assert_eq!(line(&csv, &values), "a\tb\\,,\"\",\"x,\"\"y\"\"\n\"\n");
        let binary = options("COPY (SELECT 1) TO STDOUT (FORMAT binary)");
        assert_eq!(binary.form, Form::Binary);
    }
}
