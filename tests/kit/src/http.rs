//! A small blocking HTTP client that opens one connection for each request and follows no redirect.

use crate::https::Connection;
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

/// Limit of one read; longer than any test's command.
const READ: Duration = crate::LONG;

/// A client of one server.
#[derive(Debug, Clone)]
pub struct Http {
    /// The server's address, usually 127.0.0.1.
    pub address: Ipv4Addr,
    /// The server's port.
    pub port: u16,
    /// The API key, sent as a Bearer token; `None` sends none.
    pub key: Option<String>,
    /// Headers that every request carries.
    pub headers: Vec<(String, String)>,
    /// The certificates that the client accepts; `None` speaks plain HTTP.
    pub tls: Option<Arc<rustls::ClientConfig>>,
}

/// A response with its whole body.
#[derive(Debug, Clone)]
pub struct Reply {
    /// Status code of the answer.
    pub status: u16,
    /// Header names in lower case, with their values.
    pub headers: Vec<(String, String)>,
    /// The body, without transfer framing.
    pub body: Vec<u8>,
}

/// A server-sent event, with its data parsed as JSON.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// The event's name; `message` when it has none.
    pub name: String,
    /// The data lines, joined by line feeds.
    pub data: String,
    /// The event's id; empty when it has none.
    pub id: String,
}

impl Http {
    /// Creates a client of the server on `port` of 127.0.0.1.
    #[must_use]
    pub fn new(port: u16, key: Option<&str>) -> Self {
        let address = Ipv4Addr::LOCALHOST;
        Self { address, port, key: key.map(str::to_owned), headers: Vec::new(), tls: None }
    }

    /// Returns a client of the server at another address, with the same port.
    #[must_use]
    pub fn at(&self, address: Ipv4Addr) -> Self {
        Self { address, ..self.clone() }
    }

    /// Returns a client that also sends this header with every request.
    #[must_use]
    pub fn with(&self, name: &str, value: &str) -> Self {
        let mut other = self.clone();
        other.headers.push((name.to_owned(), value.to_owned()));
        other
    }

    /// Opens a TCP connection to the server.
    ///
    /// # Panics
    /// When nothing listens on the port.
    #[must_use]
    pub fn connect(&self) -> TcpStream {
        self.try_connect().expect("the server accepts")
    }

    pub(crate) fn try_connect(&self) -> std::io::Result<TcpStream> {
        let stream = TcpStream::connect(SocketAddr::from((self.address, self.port)))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(READ))?;
        stream.set_write_timeout(Some(READ))?;
        Ok(stream)
    }

    /// Sends a request and reads the whole answer.
    ///
    /// # Errors
    /// When the connection is refused, the answer is cut off, or it arrives too late.
    pub fn try_send(
        &self,
        method: &str,
        path: &str,
        body: Option<&[u8]>,
    ) -> std::io::Result<Reply> {
        let mut stream = self.try_open(method, path, body)?;
        let mut whole = Vec::new();
        stream.body.read_to_end(&mut whole)?;
        Ok(Reply { status: stream.status, headers: stream.headers, body: whole })
    }

    /// Sends a request to a server that must answer.
    ///
    /// # Panics
    /// When there is no complete answer.
    #[track_caller]
    pub fn send(&self, method: &str, path: &str, body: Option<&[u8]>) -> Reply {
        match self.try_send(method, path, body) {
            Ok(reply) => reply,
            Err(error) => panic!("{method} {path}: {error}"),
        }
    }

    /// Sends a request and reads the head of the answer.
    ///
    /// # Errors
    /// As for `try_send`.
    pub fn try_open(
        &self,
        method: &str,
        path: &str,
        body: Option<&[u8]>,
    ) -> std::io::Result<Stream> {
        let mut head = format!("{method} {path} HTTP/1.1\r\nconnection: close\r\n");
        let mut put = |name: &str, value: &str| head.push_str(&format!("{name}: {value}\r\n"));
        let own = |name: &str| self.headers.iter().any(|(own, _)| own.eq_ignore_ascii_case(name));
        if !own("host") {
            put("host", &format!("{}:{}", self.address, self.port));
        }
        if let Some(key) = &self.key {
            put("authorization", &format!("Bearer {key}"));
        }
        self.headers.iter().for_each(|(name, value)| put(name, value));
        if let Some(body) = body {
            put("content-length", &body.len().to_string());
            if !own("content-type") {
                put("content-type", "application/json");
            }
        }
        head.push_str("\r\n");
        let mut stream = self.open()?;
        stream.write_all(head.as_bytes())?;
        // A server may answer and close before it has read all of a body that it refuses.
        let sent = stream.write_all(body.unwrap_or_default());
        Stream::read(stream).or_else(|error| sent.and(Err(error)))
    }

    /// Sends a GET request.
    #[track_caller]
    pub fn get(&self, path: &str) -> Reply {
        self.send("GET", path, None)
    }

    /// Sends a POST request with a JSON body.
    #[track_caller]
    pub fn post(&self, path: &str, body: &Value) -> Reply {
        self.send("POST", path, Some(body.to_string().as_bytes()))
    }

    /// Sends a PATCH request with a JSON body.
    #[track_caller]
    pub fn patch(&self, path: &str, body: &Value) -> Reply {
        self.send("PATCH", path, Some(body.to_string().as_bytes()))
    }

    /// Sends a DELETE request.
    #[track_caller]
    pub fn delete(&self, path: &str) -> Reply {
        self.send("DELETE", path, None)
    }

    /// Sends a POST request whose answer is a stream of server-sent events.
    ///
    /// # Panics
    /// When there is no answer.
    #[track_caller]
    #[must_use]
    pub fn events(&self, path: &str, body: &Value) -> Stream {
        let asked = self.with("accept", "text/event-stream");
        asked.try_open("POST", path, Some(body.to_string().as_bytes())).expect("an answer")
    }

    /// Sends raw bytes and reads until the server closes the connection or sends nothing for
    /// `quiet`.
    #[must_use]
    pub fn raw(&self, bytes: &[u8], quiet: Duration) -> Vec<u8> {
        let mut stream = self.connect();
        let _ = stream.write_all(bytes);
        let _ = stream.set_read_timeout(Some(quiet));
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        answer
    }
}

impl Http {
    /// Sends raw bytes and returns the status line of the first answer; empty when the server
    /// closes the connection without one.
    #[must_use]
    pub fn raw_status(&self, bytes: &[u8]) -> String {
        let mut stream = self.connect();
        let _ = stream.write_all(bytes);
        let mut line = Vec::new();
        let _ = BufReader::new(stream).read_until(b'\n', &mut line);
        String::from_utf8_lossy(&line).trim_end().to_owned()
    }
}

impl Reply {
    /// The value of a header, by its lower-case name.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(own, _)| own == name).map(|(_, value)| value.as_str())
    }

    /// The body as text; invalid UTF-8 is replaced.
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The body as JSON; null when it is not JSON.
    #[must_use]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or(Value::Null)
    }

    /// The error code of an error answer.
    #[must_use]
    pub fn error(&self) -> String {
        self.json()["error"].as_str().unwrap_or_default().to_owned()
    }

    /// Returns the reply when its status is `status`.
    ///
    /// # Panics
    /// With status and body when the status differs.
    #[track_caller]
    pub fn expect(self, status: u16) -> Self {
        assert_eq!(self.status, status, "{}", self.text());
        self
    }
}

/// An answer whose body is read as it arrives.
#[derive(Debug)]
pub struct Stream {
    /// Status code of the answer.
    pub status: u16,
    /// Header names in lower case, with their values.
    pub headers: Vec<(String, String)>,
    /// The body, without transfer framing.
    pub body: BufReader<Body>,
}

impl Stream {
    fn read(stream: Connection) -> std::io::Result<Self> {
        let bad = || std::io::Error::from(std::io::ErrorKind::InvalidData);
        let mut from = BufReader::new(stream);
        let first = line(&mut from)?;
        let status = first.split(' ').nth(1).and_then(|code| code.parse().ok()).ok_or_else(bad)?;
        let mut headers = Vec::new();
        loop {
            let line = line(&mut from)?;
            if line.is_empty() {
                break;
            }
            let (name, value) = line.split_once(':').ok_or_else(bad)?;
            headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
        let find = |name: &str| headers.iter().find(|(own, _)| own == name).map(|(_, v)| v);
        let chunked = find("transfer-encoding").is_some_and(|value| value == "chunked");
        let left = match find("content-length").and_then(|value| value.parse().ok()) {
            _ if chunked => 0,
            _ if status == 204 || status == 304 => 0,
            Some(length) => length,
            None => u64::MAX,
        };
        let body = BufReader::new(Body { from, chunked, left, ended: false });
        Ok(Self { status, headers, body })
    }

    /// Reads the next event; `None` at the end or when the stream was cut off.
    pub fn event(&mut self) -> Option<Event> {
        let mut event = Event { name: "message".into(), data: String::new(), id: String::new() };
        let mut any = false;
        loop {
            let mut text = String::new();
            if !matches!(self.body.read_line(&mut text), Ok(1..)) {
                return None;
            }
            let text = text.trim_end_matches(['\n', '\r']);
            match text.split_once(':') {
                _ if text.is_empty() && any => return Some(event),
                Some(("event", name)) => event.name = name.trim_start().to_owned(),
                Some(("id", id)) => event.id = id.trim_start().to_owned(),
                Some(("data", data)) => {
                    if any && !event.data.is_empty() {
                        event.data.push('\n');
                    }
                    event.data.push_str(data.strip_prefix(' ').unwrap_or(data));
                    any = true;
                }
                _ => {}
            }
        }
    }
}

fn line(from: &mut impl BufRead) -> std::io::Result<String> {
    let mut text = String::new();
    if from.read_line(&mut text)? == 0 {
        return Err(std::io::ErrorKind::UnexpectedEof.into());
    }
    Ok(text.trim_end_matches(['\n', '\r']).to_owned())
}

/// Reads a body without its transfer framing; a body that is cut off is an error.
#[derive(Debug)]
pub struct Body {
    from: BufReader<Connection>,
    chunked: bool,
    left: u64,
    ended: bool,
}

impl Read for Body {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        if self.chunked && self.left == 0 && !self.ended {
            let size = line(&mut self.from)?;
            let size = size.split(';').next().unwrap_or_default();
            self.left = u64::from_str_radix(size, 16)
                .map_err(|_| std::io::Error::from(std::io::ErrorKind::InvalidData))?;
            if self.left == 0 {
                while !line(&mut self.from)?.is_empty() {}
                self.ended = true;
            }
        }
        if self.left == 0 || self.ended {
            return Ok(0);
        }
        let most = usize::try_from(self.left).unwrap_or(usize::MAX).min(buffer.len());
        let count = self.from.read(&mut buffer[..most])?;
        if count == 0 && self.left != u64::MAX {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        if self.left != u64::MAX {
            self.left -= count as u64;
        }
        if self.chunked && self.left == 0 {
            line(&mut self.from)?;
        }
        Ok(count)
    }
}
