//! Commands over the shell WebSocket, with both kinds of frames.

use crate::server::{BenchServer, Endpoint};
use anyhow::{Result, bail};
use serde::Deserialize;
use serde_json::json;
use std::borrow::Cow;
use std::net::TcpStream;
use tungstenite::client::IntoClientRequest;
use tungstenite::{Message, WebSocket};

#[derive(Deserialize)]
struct OutputFrame<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    #[serde(borrow, default)]
    data: Option<Cow<'a, str>>,
}

/// Opens a private shell.
pub(crate) struct SocketShell {
    socket: WebSocket<TcpStream>,
    count: u64,
}

impl SocketShell {
    pub(crate) fn open(server: &BenchServer, id: &str, binary: bool) -> Result<Self> {
        Self::query(server, id, if binary { "?frames=binary" } else { "" })
    }

    /// Opens the shell of a session.
    pub(crate) fn session(server: &BenchServer, id: &str, session: &str) -> Result<Self> {
        Self::query(server, id, &format!("?session={session}"))
    }

    fn query(server: &BenchServer, id: &str, query: &str) -> Result<Self> {
        Self::to(&server.endpoint(), id, query)
    }

    /// Opens a shell with a query, which begins with `?` unless it is empty.
    pub(crate) fn to(endpoint: &Endpoint, id: &str, query: &str) -> Result<Self> {
        let url = format!("ws://{}/v1/sandboxes/{id}/shell{query}", endpoint.address);
        let mut request = url.into_client_request()?;
        request.headers_mut().insert("authorization", format!("Bearer {}", endpoint.key).parse()?);
        let stream = TcpStream::connect(endpoint.address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(std::time::Duration::from_secs(120)))?;
        let (socket, _) = tungstenite::client(request, stream)?;
        let mut shell = Self { socket, count: 0 };
        shell.run(":")?;
        Ok(shell)
    }

    /// Runs one command. Returns the number of bytes of output.
    pub(crate) fn run(&mut self, text: &str) -> Result<usize> {
        self.count += 1;
        let id = format!("r{}", self.count);
        let frame = json!({ "type": "shell_run", "id": id, "command": text });
        self.socket.send(Message::text(frame.to_string()))?;
        let mut bytes = 0;
        loop {
            match self.socket.read()? {
                Message::Binary(data) if data[0] == 1 => bytes += data.len() - 11 - id.len(),
                Message::Text(text) => {
                    let frame: OutputFrame<'_> = serde_json::from_str(&text)?;
                    match frame.kind {
                        "shell_out" => bytes += frame.data.map_or(0, |data| data.len()),
                        "shell_exit" => return Ok(bytes),
                        "shell_err" => {}
                        _ => bail!("unexpected frame {text}"),
                    }
                }
                _ => {}
            }
        }
    }
}
