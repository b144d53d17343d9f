//! Terminals over WebSockets: Isolet's and ttyd's.

use crate::server::BenchServer;
use crate::terminal::BenchTerminal;
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tungstenite::client::IntoClientRequest;
use tungstenite::{Bytes, Message, WebSocket};

/// The longest wait for a message.
const READ: Duration = Duration::from_secs(120);

/// A client of one of Isolet's terminals.
pub(crate) struct Attached {
    socket: WebSocket<TcpStream>,
    last: Bytes,
    /// Bytes that arrived before `ready`.
    pub(crate) drawn: usize,
    /// Bytes that the server reported as skipped.
    pub(crate) missed: u64,
}

impl Attached {
    /// Attaches and reads until `ready`.
    pub(crate) fn open(server: &BenchServer, id: &str, query: &str) -> Result<Self> {
        let mut attached = Self::begin(server, id, query)?;
        loop {
            match attached.next()? {
                Message::Text(text) if kind(&text)?["type"] == "ready" => return Ok(attached),
                Message::Binary(bytes) => attached.drawn += bytes.len(),
                _ => {}
            }
        }
    }

    /// Attaches a client that reads nothing.
    pub(crate) fn begin(server: &BenchServer, id: &str, query: &str) -> Result<Self> {
        let port = server.port;
        let url = format!("ws://127.0.0.1:{port}/v1/sandboxes/{id}/terminal?events=1{query}");
        let mut request = url.into_client_request()?;
        request.headers_mut().insert("authorization", format!("Bearer {}", server.key).parse()?);
        let (socket, _) = tungstenite::client(request, connected(port)?)?;
        Ok(Self { socket, last: Bytes::new(), drawn: 0, missed: 0 })
    }

    fn next(&mut self) -> Result<Message> {
        Ok(self.socket.read()?)
    }
}

impl BenchTerminal for Attached {
    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        Ok(self.socket.send(Message::binary(bytes.to_vec()))?)
    }

    fn read(&mut self) -> Result<&[u8]> {
        loop {
            match self.next()? {
                Message::Binary(bytes) => {
                    self.last = bytes;
                    return Ok(&self.last);
                }
                Message::Text(text) => {
                    let said = kind(&text)?;
                    match said["type"].as_str() {
                        Some("snapshot") => self.missed += said["missed"].as_u64().unwrap_or(0),
                        Some("exit" | "error") => bail!("the terminal says {said}"),
                        _ => {}
                    }
                }
                Message::Close(_) => bail!("the terminal is closed"),
                _ => {}
            }
        }
    }
}

fn kind(text: &str) -> Result<Value> {
    serde_json::from_str(text).context("text frames are JSON")
}

fn connected(port: u16) -> Result<TcpStream> {
    let stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(READ))?;
    Ok(stream)
}

/// A ttyd process with one client.
pub(crate) struct Ttyd {
    process: Child,
    socket: WebSocket<TcpStream>,
    last: Bytes,
}

impl Ttyd {
    pub(crate) fn open(program: &Path) -> Result<Self> {
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let process = Command::new(program)
            .args(["--interface", "127.0.0.1", "--writable", "--debug", "0", "--port"])
            .arg(port.to_string())
            .args(["bash", "--norc"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let until = Instant::now() + Duration::from_secs(10);
        let stream = loop {
            match connected(port) {
                Ok(stream) => break stream,
                Err(error) if Instant::now() > until => return Err(error),
                Err(_) => std::thread::sleep(Duration::from_millis(5)),
            }
        };
        let mut request = format!("ws://127.0.0.1:{port}/ws").into_client_request()?;
        request.headers_mut().insert("sec-websocket-protocol", "tty".parse()?);
        let (mut socket, _) = tungstenite::client(request, stream)?;
        socket.send(Message::text(r#"{"AuthToken":"","columns":80,"rows":24}"#))?;
        Ok(Self { process, socket, last: Bytes::new() })
    }
}

impl BenchTerminal for Ttyd {
    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        Ok(self.socket.send(Message::binary([b"0", bytes].concat()))?)
    }

    fn read(&mut self) -> Result<&[u8]> {
        loop {
            match self.socket.read()? {
                Message::Binary(bytes) if bytes.first() == Some(&b'0') => {
                    self.last = bytes;
                    return Ok(&self.last[1..]);
                }
                Message::Close(_) => bail!("ttyd is closed"),
                _ => {}
            }
        }
    }
}

impl Drop for Ttyd {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
