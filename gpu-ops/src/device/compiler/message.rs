//! Messages between this process and a helper that compiles: a kind and byte strings, each with its length in front.

use std::io::{self, Read, Write};

use super::super::nvrtc::{Headers, Job};

/// What a frame begins with; the last digit is the version of this protocol.
const MAGIC: [u8; 4] = *b"WLC2";

/// Most byte strings of a frame, and most bytes of one: more is no message.
const MOST_FIELDS: u32 = 4096;
const MOST_BYTES: u64 = 1 << 30;

/// What a helper is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Request {
    /// The first: the library to load and what sources include.
    Setup { library: String, headers: Headers },
    /// One source.
    Compile(Job),
}

/// What it answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Reply {
    /// It has loaded the library, of this version.
    Ready(u32, u32),
    /// It cannot compile anything.
    Unable(String),
    /// The binary.
    Compiled(Vec<u8>),
    /// What the compiler has against the source.
    Refused(String),
}

/// A kind and its byte strings.
struct Frame {
    kind: u8,
    fields: Vec<Vec<u8>>,
}

fn malformed(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("no message: {what}"))
}

fn write_frame(output: &mut impl Write, kind: u8, fields: &[&[u8]]) -> io::Result<()> {
    let count = u32::try_from(fields.len()).map_err(|_| malformed("too many fields"))?;
    let mut head = Vec::with_capacity(9 + 8 * fields.len());
    head.extend(MAGIC);
    head.push(kind);
    head.extend(count.to_le_bytes());
    for field in fields {
        head.extend((field.len() as u64).to_le_bytes());
    }
    output.write_all(&head)?;
    for field in fields {
        output.write_all(field)?;
    }
    output.flush()
}

/// The next frame; `None` where the other side has closed its end between two.
fn read_frame(input: &mut impl Read) -> io::Result<Option<Frame>> {
    let mut magic = [0; MAGIC.len()];
    let mut got = 0;
    while got < magic.len() {
        match input.read(&mut magic[got..]) {
            Ok(0) if got == 0 => return Ok(None),
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(more) => got += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    if magic != MAGIC {
        return Err(malformed("another protocol"));
    }
    let mut head = [0; 5];
    input.read_exact(&mut head)?;
    let [kind, count @ ..] = head;
    let count = u32::from_le_bytes(count);
    if count > MOST_FIELDS {
        return Err(malformed("too many fields"));
    }
    let mut lengths = Vec::with_capacity(count as usize);
    let mut sum = 0_u64;
    for _ in 0..count {
        let mut length = [0; 8];
        input.read_exact(&mut length)?;
        let length = u64::from_le_bytes(length);
        sum = sum.saturating_add(length);
        if sum > MOST_BYTES {
            return Err(malformed("too many bytes"));
        }
        lengths.push(length);
    }
    let mut fields = Vec::with_capacity(lengths.len());
    for length in lengths {
        // Grows with what comes, not with what was announced.
        let mut field = Vec::new();
        input.by_ref().take(length).read_to_end(&mut field)?;
        if field.len() as u64 != length {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        fields.push(field);
    }
    Ok(Some(Frame { kind, fields }))
}

fn text(bytes: Vec<u8>) -> io::Result<String> {
    String::from_utf8(bytes).map_err(|_| malformed("text that is not UTF-8"))
}

fn texts(fields: Vec<Vec<u8>>) -> io::Result<Vec<String>> {
    fields.into_iter().map(text).collect()
}

impl Request {
    const SETUP: u8 = 1;
    const COMPILE: u8 = 2;

    /// # Errors
    /// [`io::Error`] when the helper is gone.
    pub(super) fn write(&self, output: &mut impl Write) -> io::Result<()> {
        match self {
            Self::Setup { library, headers } => {
                let mut fields = vec![library.as_bytes()];
                for (name, text) in &headers.0 {
                    fields.extend([name.as_bytes(), text.as_bytes()]);
                }
                write_frame(output, Self::SETUP, &fields)
            }
            Self::Compile(job) => write_job(job, output),
        }
    }

    /// The next request; `None` when there are no more.
    ///
    /// # Errors
    /// [`io::Error`] when what comes is no request.
    pub(super) fn read(input: &mut impl Read) -> io::Result<Option<Self>> {
        let Some(frame) = read_frame(input)? else {
            return Ok(None);
        };
        let mut fields = texts(frame.fields)?.into_iter();
        let mut next = || fields.next().ok_or_else(|| malformed("a field is missing"));
        let request = match frame.kind {
            Self::SETUP => {
                let library = next()?;
                let mut headers = Vec::new();
                while let Some(name) = fields.next() {
                    let text = fields.next();
                    headers.push((name, text.ok_or_else(|| malformed("a header is missing"))?));
                }
                Self::Setup {
                    library,
                    headers: Headers(headers),
                }
            }
            Self::COMPILE => Self::Compile(Job {
                name: next()?,
                source: next()?,
                kept: Some(next()?)
                    .filter(|path| !path.is_empty())
                    .map(Into::into),
                options: fields.collect(),
            }),
            _ => return Err(malformed("an unknown request")),
        };
        Ok(Some(request))
    }
}

/// Ask for a job without a copy of its source.
///
/// # Errors
/// [`io::Error`] when the helper is gone.
fn write_job(job: &Job, output: &mut impl Write) -> io::Result<()> {
    // A path that is no UTF-8 is nothing that a helper writes.
    let kept = job.kept.as_ref().and_then(|path| path.to_str());
    let kept = kept.unwrap_or_default().as_bytes();
    let mut fields = vec![job.name.as_bytes(), job.source.as_bytes(), kept];
    fields.extend(job.options.iter().map(String::as_bytes));
    write_frame(output, Request::COMPILE, &fields)
}

/// Asks for a job and waits for the outcome.
///
/// # Errors
/// [`io::Error`] when the helper is gone or says something else.
pub(super) fn ask(
    job: &Job,
    input: &mut impl Write,
    output: &mut impl Read,
) -> io::Result<Result<Vec<u8>, String>> {
    write_job(job, input)?;
    match Reply::read(output)? {
        Reply::Compiled(binary) => Ok(Ok(binary)),
        Reply::Refused(log) => Ok(Err(log)),
        Reply::Unable(why) => Err(io::Error::other(why)),
        Reply::Ready(..) => Err(malformed("an answer to nothing")),
    }
}

impl Reply {
    const READY: u8 = 65;
    const UNABLE: u8 = 66;
    const COMPILED: u8 = 67;
    const REFUSED: u8 = 68;

    /// # Errors
    /// [`io::Error`] when nobody waits for it any more.
    pub(super) fn write(&self, output: &mut impl Write) -> io::Result<()> {
        match self {
            Self::Ready(major, minor) => {
                let (major, minor) = (major.to_le_bytes(), minor.to_le_bytes());
                write_frame(output, Self::READY, &[&major, &minor])
            }
            Self::Unable(why) => write_frame(output, Self::UNABLE, &[why.as_bytes()]),
            Self::Compiled(binary) => write_frame(output, Self::COMPILED, &[binary]),
            Self::Refused(log) => write_frame(output, Self::REFUSED, &[log.as_bytes()]),
        }
    }

    /// The reply.
    ///
    /// # Errors
    /// [`io::Error`] when none comes, or what comes is none.
    pub(super) fn read(input: &mut impl Read) -> io::Result<Self> {
        let frame = read_frame(input)?.ok_or(io::ErrorKind::UnexpectedEof)?;
        let mut fields = frame.fields.into_iter();
        let mut next = || fields.next().ok_or_else(|| malformed("a field is missing"));
        let number = |bytes: Vec<u8>| {
            let bytes = bytes.try_into().map_err(|_| malformed("no number"))?;
            Ok::<_, io::Error>(u32::from_le_bytes(bytes))
        };
        Ok(match frame.kind {
            Self::READY => Self::Ready(number(next()?)?, number(next()?)?),
            Self::UNABLE => Self::Unable(text(next()?)?),
            Self::COMPILED => Self::Compiled(next()?),
            Self::REFUSED => Self::Refused(text(next()?)?),
            _ => return Err(malformed("an unknown reply")),
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn requests() -> Vec<Request> {
        let job = |options: &[&str]| {
            Request::Compile(Job {
                name: "k".into(),
                source: "int ö;\n\0".into(),
                options: options.iter().map(ToString::to_string).collect(),
                kept: options
                    .first()
                    .map(|name| format!("/kept/{name}.cubin").into()),
            })
        };
        let setup = |headers: &[(&str, &str)]| Request::Setup {
            library: "/lib/libnvrtc.so".into(),
            headers: Headers(
                headers
                    .iter()
                    .map(|(name, text)| (name.to_string(), text.to_string()))
                    .collect(),
            ),
        };
        vec![
            setup(&[]),
            setup(&[("a.cuh", ""), ("b.cuh", "x")]),
            job(&[]),
            job(&["-a", ""]),
        ]
    }

    fn replies() -> Vec<Reply> {
        vec![
            Reply::Ready(13, 0),
            Reply::Unable("no such file".into()),
            Reply::Compiled(vec![]),
            Reply::Compiled((0..=255).collect()),
            Reply::Refused("line 1\nline 2".into()),
        ]
    }

    #[test]
    fn messages_come_as_they_went() {
        let mut bytes = Vec::new();
        for request in requests() {
            request.write(&mut bytes).unwrap();
        }
        let mut input = bytes.as_slice();
        for request in requests() {
            assert_eq!(Request::read(&mut input).unwrap(), Some(request));
        }
        assert_eq!(Request::read(&mut input).unwrap(), None);
        for reply in replies() {
            let mut bytes = Vec::new();
            reply.write(&mut bytes).unwrap();
            assert_eq!(Reply::read(&mut bytes.as_slice()).unwrap(), reply);
        }
    }

    #[test]
    fn what_is_cut_or_changed_is_an_error_or_another_message() {
        for reply in replies() {
            let mut bytes = Vec::new();
            reply.write(&mut bytes).unwrap();
            for length in 0..bytes.len() {
                assert!(Reply::read(&mut &bytes[..length]).is_err(), "{length}");
            }
            for position in 0..bytes.len() {
                for bit in 0..8 {
                    let mut changed = bytes.clone();
                    changed[position] ^= 1 << bit;
                    // Neither a panic nor an allocation of what a wrong length says.
                    let _ = Reply::read(&mut changed.as_slice());
                    let _ = Request::read(&mut changed.as_slice());
                }
            }
        }
        let mut huge = MAGIC.to_vec();
        huge.push(Reply::COMPILED);
        huge.extend(1_u32.to_le_bytes());
        huge.extend(u64::MAX.to_le_bytes());
        assert!(Reply::read(&mut huge.as_slice()).is_err());
        assert!(Request::read(&mut b"echo".as_slice()).is_err());
    }
}
