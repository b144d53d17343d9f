//! A client of a terminal: its output by offset, and the control frames.

use crate::shell::upgrade;
use crate::{Http, LONG, SOON, Sandbox, Value, json};
use std::collections::VecDeque;
use std::io::ErrorKind;
use std::net::TcpStream;
use std::time::{Duration, Instant};
use tungstenite::{Error, Message, WebSocket};

/// One WebSocket of a terminal.
#[derive(Debug)]
pub struct Terminal {
    socket: WebSocket<TcpStream>,
    /// Text frames that no call has consumed yet, in order.
    pub frames: VecDeque<Value>,
    /// The output since the last `at` frame that did not continue it (without events: all output).
    pub output: Vec<u8>,
    /// Offset of the first byte of `output`.
    pub base: u64,
    /// The last snapshot; complete when `drawing` is 0.
    pub snapshot: Vec<u8>,
    /// Bytes of the snapshot that have not arrived yet.
    pub drawing: u64,
    /// How often an `at` frame did not continue the output.
    pub jumps: usize,
    /// The terminal's id from the `at` frames.
    pub id: String,
    /// The close code, once it arrived; 1006 for a connection that broke.
    pub closed: Option<u16>,
    /// The number of binary frames so far.
    pub binary: usize,
}

impl Sandbox {
    /// Attaches to a session's terminal with this query and `events=1`.
    ///
    /// # Panics
    /// When the server refuses.
    #[track_caller]
    #[must_use]
    pub fn terminal(&self, query: &str) -> Terminal {
        match self.try_terminal(&format!("events=1&{query}")) {
            Ok(mut terminal) => {
                terminal.frame("ready");
                terminal
            }
            Err(status) => panic!("terminal of {} with {query:?}: status {status}", self.id),
        }
    }

    /// Attaches with exactly this query.
    ///
    /// # Errors
    /// The status of a refusal; 0 without an answer.
    pub fn try_terminal(&self, query: &str) -> Result<Terminal, u16> {
        Terminal::open(&self.http, &self.path(&format!("/terminal?{query}")))
    }
}

impl Terminal {
    /// Opens the WebSocket.
    ///
    /// # Errors
    /// The status of a refusal; 0 without an answer.
    pub fn open(http: &Http, path: &str) -> Result<Self, u16> {
        let (socket, _) = upgrade(http, path)?;
        Ok(Self {
            socket,
            frames: VecDeque::new(),
            output: Vec::new(),
            base: 0,
            snapshot: Vec::new(),
            drawing: 0,
            jumps: 0,
            id: String::new(),
            closed: None,
            binary: 0,
        })
    }

    /// The underlying TCP stream, to write, or stop reading, what no client should.
    pub fn stream(&mut self) -> &mut TcpStream {
        self.socket.get_mut()
    }

    /// Sends any message.
    ///
    /// # Errors
    /// When the socket is closed or does not accept more.
    pub fn send(&mut self, message: Message) -> Result<(), Error> {
        self.socket.send(message)
    }

    /// Types text.
    ///
    /// # Panics
    /// When the server does not accept it.
    #[track_caller]
    pub fn type_in(&mut self, text: &str) {
        self.send(Message::binary(text.as_bytes().to_vec())).expect("the socket takes a frame");
    }

    /// Sends a text frame.
    ///
    /// # Panics
    /// As for `type_in`.
    #[track_caller]
    pub fn say(&mut self, frame: &Value) {
        self.send(Message::text(frame.to_string())).expect("the socket takes a frame");
    }

    /// Reports a new window size.
    ///
    /// # Panics
    /// As for `type_in`.
    #[track_caller]
    pub fn resize(&mut self, cols: i64, rows: i64) {
        self.say(&json!({"type": "resize", "cols": cols, "rows": rows}));
    }

    /// Reads one message, if one arrives in time; false when none did.
    pub fn step(&mut self, within: Duration) -> bool {
        if self.closed.is_some() {
            return false;
        }
        let end = Instant::now() + within;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            let _ = self.socket.get_ref().set_read_timeout(Some(left));
            match self.socket.read() {
                Ok(Message::Text(text)) => self.text(&text),
                Ok(Message::Binary(bytes)) => self.bytes(&bytes),
                Ok(Message::Close(close)) => {
                    self.closed = Some(close.map_or(1005, |close| close.code.into()));
                    // The answer to the server's close frame.
                    let _ = self.socket.flush();
                }
                Ok(_) => continue,
                Err(Error::Io(error))
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) =>
                {
                    continue;
                }
                Err(_) => self.closed = Some(1006),
            }
            return true;
        }
    }

    fn text(&mut self, text: &str) {
        let frame: Value = serde_json::from_str(text).expect("text frames are JSON");
        match frame["type"].as_str() {
            Some("snapshot") => {
                assert_eq!(self.drawing, 0, "a snapshot within a snapshot");
                self.drawing = frame["bytes"].as_u64().expect("a snapshot has a length");
                self.snapshot.clear();
            }
            Some("at") => {
                assert_eq!(self.drawing, 0, "an offset within a snapshot");
                let offset = frame["offset"].as_u64().expect("an offset");
                let id = frame["terminal"].as_str().expect("an id").to_owned();
                if id != self.id || offset != self.base + self.output.len() as u64 {
                    self.jumps += 1;
                    (self.id, self.base) = (id, offset);
                    self.output.clear();
                }
            }
            _ => {}
        }
        self.frames.push_back(frame);
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.binary += 1;
        if self.drawing == 0 {
            self.output.extend_from_slice(bytes);
            return;
        }
        self.drawing =
            self.drawing.checked_sub(bytes.len() as u64).expect("no more than announced");
        self.snapshot.extend_from_slice(bytes);
    }

    /// The offset after the last byte that was received.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.base + self.output.len() as u64
    }

    /// The query with which another client continues after this one.
    #[must_use]
    pub fn place(&self) -> String {
        format!("terminal={}&since={}", self.id, self.offset())
    }

    /// The next frame of this type; earlier frames are dropped.
    ///
    /// # Panics
    /// When none arrives, or the socket closes first.
    #[track_caller]
    pub fn frame(&mut self, kind: &str) -> Value {
        let end = Instant::now() + SOON;
        loop {
            while let Some(frame) = self.frames.pop_front() {
                if frame["type"] == kind {
                    return frame;
                }
            }
            assert!(self.closed.is_none(), "closed with {:?} before {kind}", self.closed);
            assert!(Instant::now() < end, "no {kind} within {SOON:?}; shown: {}", self.shown());
            self.step(SOON);
        }
    }

    /// Reads until the output after index `from` of `output` contains `text`, and returns the index
    /// after it.
    ///
    /// # Panics
    /// When nothing is shown for `SOON`, or other output for `LONG`.
    #[track_caller]
    pub fn sees_after(&mut self, from: usize, text: &str) -> usize {
        let end = Instant::now() + LONG;
        let mut looked = from;
        loop {
            let found = self.output.get(looked..).and_then(|rest| find(rest, text.as_bytes()));
            if let Some(at) = found {
                return looked + at + text.len();
            }
            looked = looked.max((self.output.len() + 1).saturating_sub(text.len()));
            assert!(self.closed.is_none(), "closed with {:?} before {text:?}", self.closed);
            assert!(Instant::now() < end, "no {text:?} within {LONG:?}: {}", self.shown());
            assert!(self.step(SOON), "no {text:?}, and nothing for {SOON:?}: {}", self.shown());
        }
    }

    /// Reads until the whole output contains `text`, and returns the index after it.
    ///
    /// # Panics
    /// When the text does not appear.
    #[track_caller]
    pub fn sees(&mut self, text: &str) -> usize {
        self.sees_after(0, text)
    }

    /// Types a line and reads until `appears` is shown.
    ///
    /// # Panics
    /// When the text does not appear.
    #[track_caller]
    pub fn line(&mut self, line: &str, appears: &str) {
        let from = self.output.len();
        self.type_in(&format!("{line}\r"));
        self.sees_after(from, appears);
    }

    /// Reads until the socket is closed and returns the close code.
    ///
    /// # Panics
    /// When the socket stays open.
    #[track_caller]
    pub fn end(&mut self) -> u16 {
        let end = Instant::now() + LONG;
        while self.closed.is_none() {
            assert!(Instant::now() < end, "not closed; shown: {}", self.shown());
            self.step(SOON);
        }
        self.closed.unwrap_or_default()
    }

    /// The end of the output, for assertion messages.
    #[must_use]
    pub fn shown(&self) -> String {
        let from = self.output.len().saturating_sub(2000);
        String::from_utf8_lossy(&self.output[from..]).into_owned()
    }

    /// Drops the connection without a close frame, like a cable that is cut.
    pub fn cut(self) {
        let _ = self.socket.get_ref().shutdown(std::net::Shutdown::Both);
    }

    /// Sends a close frame and waits for the answer.
    pub fn close(mut self) {
        let _ = self.socket.close(None);
        while self.closed.is_none() && self.step(SOON) {}
    }
}

fn find(all: &[u8], part: &[u8]) -> Option<usize> {
    if part.is_empty() {
        return Some(0);
    }
    all.windows(part.len()).position(|window| window[0] == part[0] && window == part)
}
