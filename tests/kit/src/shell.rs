//! A client of the shell protocol: its frames over a WebSocket, in text or binary form.

use crate::{Http, LONG, SOON};
use serde_json::{Map, Value, json};
use std::io::ErrorKind;
use std::net::TcpStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tungstenite::client::IntoClientRequest;
use tungstenite::handshake::HandshakeRole;
use tungstenite::handshake::client::Request;
use tungstenite::{Error, HandshakeError, Message, WebSocket};

/// What the server sent.
#[derive(Debug, Clone, PartialEq)]
pub enum Frame {
    /// A text frame, parsed as JSON.
    Text(Value),
    /// A binary frame, decoded.
    Data {
        /// The stream: 1 for standard output, 2 for standard error.
        stream: u8,
        /// Offset of the first byte in its stream.
        offset: u64,
        /// The command's id; empty for background jobs.
        id: String,
        /// The output as the program wrote it.
        bytes: Vec<u8>,
    },
    /// The close code of the server.
    Close(u16),
}

/// The `start` frame of a command.
#[derive(Debug, Clone, Default)]
pub struct Start(Map<String, Value>);

impl Start {
    /// Creates a frame for a command text.
    #[must_use]
    pub fn new(text: &str) -> Self {
        Self::default().with("command", text)
    }

    /// Sets another field of the frame.
    #[must_use]
    pub fn with(mut self, field: &str, value: impl Into<Value>) -> Self {
        self.0.insert(field.to_owned(), value.into());
        self
    }
}

/// How a command ended, and everything that arrived until then.
#[derive(Debug, Clone, Default)]
pub struct Outcome {
    /// The command's standard output.
    pub out: Vec<u8>,
    /// The command's standard error.
    pub err: Vec<u8>,
    /// The exit code; `None` when no `shell_exit` arrived.
    pub code: Option<i64>,
    /// The whole `shell_exit` frame of the command.
    pub exit: Value,
    /// The error frame, when the command was refused.
    pub refused: Value,
    /// The `shell_closed` frame, when it arrived first.
    pub closed: Value,
    /// The number of output frames.
    pub frames: usize,
    /// The number of bytes that `shell_gap` reported as missing.
    pub gap: u64,
}

impl Outcome {
    /// Standard output as text.
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.out).into_owned()
    }

    /// Standard error as text.
    #[must_use]
    pub fn errors(&self) -> String {
        String::from_utf8_lossy(&self.err).into_owned()
    }

    /// Checks that the command wrote exactly `out` and ended with `code`.
    ///
    /// # Panics
    /// With the whole outcome otherwise.
    #[track_caller]
    pub fn is(&self, out: &str, code: i64) {
        let said = (self.text(), self.code);
        assert!(said.0 == out && said.1 == Some(code), "wanted {out:?} {code}, got {self:?}");
    }
}

/// One WebSocket of a shell.
#[derive(Debug)]
pub struct Shell {
    socket: WebSocket<TcpStream>,
    /// The `Isolet-Shell` header of the upgrade response.
    pub id: String,
    /// Output that belongs to no command: stream and bytes.
    pub background: Vec<(u8, Vec<u8>)>,
    /// The `shell_closed` frame, once it arrived.
    pub closed: Option<Value>,
    /// Every other frame that did not concern the awaited command.
    pub others: Vec<Frame>,
}

impl Shell {
    /// Opens the WebSocket.
    ///
    /// # Errors
    /// The status of a refusal; 0 without an answer.
    pub fn open(http: &Http, path: &str) -> Result<Self, u16> {
        let (socket, answer) = upgrade(http, path)?;
        let id = answer.headers().get("isolet-shell").and_then(|value| value.to_str().ok());
        let id = id.unwrap_or_default().to_owned();
        let background = Vec::new();
        let others = Vec::new();
        Ok(Self { socket, id, background, closed: None, others })
    }

    /// Sends a text frame.
    ///
    /// # Errors
    /// When the socket is closed or does not accept more.
    pub fn try_send(&mut self, frame: &Value) -> Result<(), Error> {
        self.socket.send(Message::text(frame.to_string()))
    }

    /// Sends a text frame to a server that must accept it.
    ///
    /// # Panics
    /// When it does not.
    #[track_caller]
    pub fn send(&mut self, frame: &Value) {
        self.try_send(frame).expect("the socket takes a frame");
    }

    /// Sends any message.
    ///
    /// # Errors
    /// As for `try_send`.
    pub fn send_message(&mut self, message: Message) -> Result<(), Error> {
        self.socket.send(message)
    }

    /// The underlying TCP stream, to write what no client should.
    pub fn stream(&mut self) -> &mut TcpStream {
        self.socket.get_mut()
    }

    /// The next frame; `None` when none arrives in time.
    pub fn next(&mut self, within: Duration) -> Option<Frame> {
        let end = Instant::now() + within;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            let _ = self.socket.get_ref().set_read_timeout(Some(left));
            match self.socket.read() {
                Ok(Message::Text(text)) => {
                    let value = serde_json::from_str(&text).expect("text frames are JSON");
                    return Some(Frame::Text(value));
                }
                Ok(Message::Binary(bytes)) => return Some(data(&bytes)),
                Ok(Message::Close(close)) => {
                    return Some(Frame::Close(close.map_or(1005, |close| close.code.into())));
                }
                Ok(_) => {}
                Err(Error::Io(error))
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                Err(_) => return Some(Frame::Close(1006)),
            }
        }
    }

    /// Starts a command and returns its id.
    #[track_caller]
    pub fn start(&mut self, start: Start) -> String {
        // A client that reconnects must not reuse an id.
        static COUNT: AtomicU64 = AtomicU64::new(1);
        let mut frame = start.0;
        let id = format!("c{}", COUNT.fetch_add(1, Ordering::Relaxed));
        frame.insert("type".into(), "shell_run".into());
        let id = frame.entry("id").or_insert(id.into()).as_str().unwrap_or_default().to_owned();
        self.send(&Value::Object(frame));
        id
    }

    /// Runs a command to its end.
    ///
    /// # Panics
    /// When nothing arrives for [`SOON`], or the command does not end within [`LONG`].
    #[track_caller]
    pub fn run(&mut self, text: &str) -> Outcome {
        self.run_with(Start::new(text))
    }

    /// Runs a command with further fields to its end.
    ///
    /// # Panics
    /// As for `run`.
    #[track_caller]
    pub fn run_with(&mut self, start: Start) -> Outcome {
        let id = self.start(start);
        self.finish(&id)
    }

    /// Waits until a command or its socket has ended.
    ///
    /// # Panics
    /// As for `run`.
    #[track_caller]
    pub fn finish(&mut self, id: &str) -> Outcome {
        let mut outcome = Outcome::default();
        self.follow(id, &mut outcome, |_| false);
        outcome
    }

    /// Reads frames of a command until `enough` holds or the command ends.
    ///
    /// # Panics
    /// As for `run`.
    #[track_caller]
    pub fn follow(
        &mut self,
        id: &str,
        outcome: &mut Outcome,
        mut enough: impl FnMut(&Outcome) -> bool,
    ) {
        let end = Instant::now() + LONG;
        while !enough(outcome) {
            assert!(Instant::now() < end, "command {id} goes on after {LONG:?}");
            let Some(frame) = self.next(SOON) else {
                panic!("nothing of command {id} for {SOON:?}, so far {outcome:?}")
            };
            if matches!(frame, Frame::Close(_)) {
                self.others.push(frame);
                return;
            }
            if self.take(id, outcome, frame) {
                return;
            }
        }
    }

    /// Adds one frame to the outcome; true when the command has ended.
    fn take(&mut self, id: &str, outcome: &mut Outcome, frame: Frame) -> bool {
        let (stream, of, bytes) = match &frame {
            Frame::Data { stream, id, bytes, .. } => (*stream, id.clone(), bytes.clone()),
            Frame::Text(value) => {
                let of = value["id"].as_str().unwrap_or_default().to_owned();
                let data = value["data"].as_str().unwrap_or_default().as_bytes().to_vec();
                match value["type"].as_str() {
                    Some("shell_out") => (1, of, data),
                    Some("shell_err") => (2, of, data),
                    Some("shell_exit") if of == id => {
                        outcome.code = value["code"].as_i64();
                        outcome.exit = value.clone();
                        return true;
                    }
                    Some("shell_error") if of == id => {
                        outcome.refused = value.clone();
                        return true;
                    }
                    Some("shell_closed") => {
                        self.closed = Some(value.clone());
                        outcome.closed = value.clone();
                        return false;
                    }
                    Some("shell_gap") => {
                        let at = |field: &str| value[field].as_u64().unwrap_or_default();
                        outcome.gap += at("to") - at("from");
                        return false;
                    }
                    _ => {
                        self.others.push(frame);
                        return false;
                    }
                }
            }
            Frame::Close(_) => return true,
        };
        if of == id {
            outcome.frames += 1;
            let output = if stream == 1 { &mut outcome.out } else { &mut outcome.err };
            output.extend(bytes);
        } else if of.is_empty() {
            self.background.push((stream, bytes));
        } else {
            self.others.push(frame);
        }
        false
    }

    /// Waits for `shell_closed` and returns it.
    ///
    /// # Panics
    /// When it does not arrive.
    #[track_caller]
    pub fn ended(&mut self) -> Value {
        let end = Instant::now() + SOON;
        while self.closed.is_none() {
            assert!(Instant::now() < end, "no shell_closed within {SOON:?}");
            match self.next(SOON) {
                Some(Frame::Close(code)) => panic!("closed with {code} before shell_closed"),
                Some(frame) => {
                    self.take("", &mut Outcome::default(), frame);
                }
                None => {}
            }
        }
        self.closed.clone().unwrap_or_default()
    }

    /// Waits until the background output contains `text`.
    ///
    /// # Panics
    /// When it does not.
    #[track_caller]
    pub fn wait_for_background(&mut self, text: &str) {
        let end = Instant::now() + SOON;
        loop {
            let said: Vec<u8> =
                self.background.iter().flat_map(|(_, bytes)| bytes).copied().collect();
            if String::from_utf8_lossy(&said).contains(text) {
                return;
            }
            assert!(Instant::now() < end, "no {text:?} in the background within {SOON:?}");
            match self.next(SOON) {
                Some(Frame::Close(code)) => panic!("closed with {code} before {text:?}"),
                Some(frame) => {
                    self.take("\0", &mut Outcome::default(), frame);
                }
                None => {}
            }
        }
    }

    /// Sends `shell_cancel` for a command.
    pub fn cancel(&mut self, id: &str) {
        self.send(&json!({ "type": "shell_cancel", "id": id }));
    }

    /// Drops the connection without a close frame, like a cable that is cut.
    pub fn cut(self) {
        let _ = self.socket.get_ref().shutdown(std::net::Shutdown::Both);
    }

    /// Sends a close frame and waits for the answer.
    pub fn close(mut self) {
        let _ = self.socket.close(None);
        while !matches!(self.next(SOON), None | Some(Frame::Close(_))) {}
    }
}

/// Upgrades a connection, or returns the status of the refusal (0 without an answer).
pub(crate) fn upgrade(
    http: &Http,
    path: &str,
) -> Result<(WebSocket<TcpStream>, tungstenite::handshake::client::Response), u16> {
    let request = upgrade_request(http, path).ok_or(0_u16)?;
    let stream = http.try_connect().map_err(|_| 0_u16)?;
    tungstenite::client::client(request, stream).map_err(|error| upgrade_status(&error))
}

/// The request of a WebSocket handshake; `None` when a header of the client is invalid.
pub(crate) fn upgrade_request(http: &Http, path: &str) -> Option<Request> {
    let request = format!("ws://{}:{}{path}", http.address, http.port);
    let mut request = request.into_client_request().ok()?;
    let headers = request.headers_mut();
    let bearer = http.key.iter().map(|key| ("authorization".into(), format!("Bearer {key}")));
    for (name, value) in http.headers.iter().cloned().chain(bearer) {
        let name: tungstenite::http::HeaderName = name.parse().ok()?;
        headers.insert(name, value.parse().ok()?);
    }
    Some(request)
}

/// The status of a refused handshake; 0 without an answer.
pub(crate) fn upgrade_status<R: HandshakeRole>(error: &HandshakeError<R>) -> u16 {
    match error {
        HandshakeError::Failure(Error::Http(answer)) => answer.status().as_u16(),
        _ => 0,
    }
}

/// Decodes a binary frame.
fn data(bytes: &[u8]) -> Frame {
    let length = usize::from(u16::from_be_bytes([bytes[9], bytes[10]]));
    Frame::Data {
        stream: bytes[0],
        offset: u64::from_be_bytes(bytes[1..9].try_into().expect("eight bytes")),
        id: String::from_utf8(bytes[11..11 + length].to_vec()).expect("ids are UTF-8"),
        bytes: bytes[11 + length..].to_vec(),
    }
}
