//! Serves one client of a terminal: one task between its WebSocket and its connection to the agent.
//!
//! While the client does not read, nothing is read from the agent: each client has its own position
//! in the terminal's ring buffer and never delays another. Small chunks of output that have already
//! arrived are sent as one frame, without waiting for more.

pub(crate) mod frames;

use crate::auth::cancellation::Cancellation;
use crate::ws::connection::{CLOSE_WAIT, CloseReason, Flow, SocketEvent, WsConnection, heartbeat};
use crate::ws::upgrade::UpgradedSocket;
use bytes::BytesMut;
use frames::ClientFrame;
use isolet_sandbox::{AgentError, AgentEvent, Sandbox, TerminalConnection};
use isolet_wire::activity::CloseCause;
use isolet_wire::frame::DataFrame;
use isolet_wire::response::{AgentResponse, Closed};
use isolet_wire::terminal::{OUTPUT, SNAPSHOT, Snapshot, TYPE_BYTES_MAX};
use std::future::poll_fn;
use std::ops::ControlFlow;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::{Bytes, Message};
use tracing::debug;

/// The longest message: what is typed or pasted at once.
pub(crate) const MESSAGE_BYTES_MAX: usize = TYPE_BYTES_MAX;
/// How much output is read from the agent before it is flushed. One frame may exceed it.
const BATCH_BYTES: usize = 128 * 1024;
/// Chunks of output are merged into frames of up to this size.
const FRAME_BYTES: usize = 64 * 1024;
/// A chunk of this size is sent as a frame of its own: copying it would cost more than its header.
const LARGE_BYTES: usize = 16 * 1024;
/// How much input may wait for the program before the client is no longer read.
const INPUT_BYTES_MAX: usize = 256 * 1024;
/// Close code: the client asked for a running terminal, and none runs.
const NONE_RUNS: u16 = 4404;
/// The signal that is reported when the sandbox ended.
const KILLED: i32 = 9;

/// A client of a terminal, and the options it asked for.
pub(crate) struct TerminalClient {
    pub(crate) sandbox: Sandbox,
    /// The connection to the terminal's agent.
    pub(crate) link: TerminalConnection,
    /// Whether the client may only watch.
    pub(crate) view: bool,
    /// Whether the client receives event frames.
    pub(crate) events: bool,
    /// A part of the request that was refused; sent first.
    pub(crate) refused: Option<String>,
}

struct TerminalSocket {
    connection: WsConnection,
    client: TerminalClient,
    /// Output that is not written yet, in order of arrival.
    pending: Vec<Bytes>,
    /// The size of that output.
    pending_bytes: usize,
    /// The snapshot in progress: how many bytes are missing, and the offset at which output
    /// continues.
    snapshot: Option<Snapshot>,
    /// The offset of the next byte of output.
    offset: u64,
}

/// Serves a client until either side ends.
pub(crate) async fn run(
    socket: UpgradedSocket,
    client: TerminalClient,
    cancellation: Cancellation,
) {
    let offset = client.link.attached().offset;
    let connection = WsConnection::new(socket);
    let mut conversation = TerminalSocket {
        connection,
        client,
        pending: Vec::new(),
        pending_bytes: 0,
        snapshot: None,
        offset,
    };
    let end = match conversation.begin() {
        ControlFlow::Continue(()) => conversation.serve(cancellation).await,
        ControlFlow::Break(end) => end,
    };
    // Detach first: other clients need not see this one during the closing handshake.
    let TerminalSocket { connection, client, .. } = conversation;
    drop(client);
    connection.close(end).await;
}

/// Tells the client that no terminal runs, and closes.
pub(crate) async fn refuse_none_running(socket: UpgradedSocket, message: &str) {
    let mut connection = WsConnection::new(socket);
    let end = match connection.write(frames::error(message)) {
        ControlFlow::Continue(()) => {
            CloseReason::Close(CloseCode::Library(NONE_RUNS), "no terminal runs")
        }
        ControlFlow::Break(end) => end,
    };
    connection.close(end).await;
}

impl TerminalSocket {
    async fn serve(&mut self, mut cancellation: Cancellation) -> CloseReason {
        let mut clock = heartbeat();
        // Created once for the whole loop, so that messages cost no registration.
        let ended = async move { cancellation.cancelled().await };
        tokio::pin!(ended);
        loop {
            let connection = &mut self.connection;
            let link = &mut self.client.link;
            let unflushed = connection.has_unflushed();
            let full = link.waiting() > INPUT_BYTES_MAX;
            let flow = tokio::select! {
                biased;
                // First, because the other branches are always ready under a steady load.
                reason = &mut ended => ControlFlow::Break(reason.into()),
                event = poll_fn(|cx| connection.poll(cx, full)) => self.event(event),
                message = link.next_or_sent(INPUT_BYTES_MAX), if !unflushed => {
                    self.handle_agent(message).await
                }
                // A client whose input waits for its program is not read.
                _ = clock.tick() => self.connection.tick(full),
            };
            if let ControlFlow::Break(end) = flow {
                return end;
            }
        }
    }

    fn begin(&mut self) -> Flow {
        let attached = self.client.link.attached();
        let first = frames::attached(attached);
        let snapshot = attached.snapshot;
        self.event_frame(first)?;
        if let Some(message) = self.client.refused.take() {
            self.connection.write(frames::error(&message))?;
        }
        match snapshot {
            Some(snapshot) => self.begin_snapshot(snapshot),
            None => self.send_offset(),
        }
    }

    fn event(&mut self, event: SocketEvent) -> Flow {
        match self.connection.receive(event)? {
            Some(Message::Text(text)) => match frames::parse(&text) {
                Ok(ClientFrame::Ping) => self.connection.reply(frames::pong()),
                Ok(_) if self.client.view => ControlFlow::Continue(()),
                Ok(ClientFrame::Resize(size)) => self.push_to_agent(|link| link.resize(size)),
                Err(failure) => self.send_error(&failure.message),
            },
            Some(_) if self.client.view => {
                self.send_error("this client is read-only: its input is ignored")
            }
            Some(Message::Binary(bytes)) if !bytes.is_empty() => {
                self.push_to_agent(|link| link.type_in(&bytes))
            }
            _ => ControlFlow::Continue(()),
        }
    }

    fn push_to_agent(
        &mut self,
        push: impl FnOnce(&mut TerminalConnection) -> Result<(), AgentError>,
    ) -> Flow {
        if let Err(error) = push(&mut self.client.link) {
            // The end of the connection will say why.
            debug!(%error, "cannot send a client's request to the agent");
        }
        ControlFlow::Continue(())
    }

    fn send_error(&mut self, message: &str) -> Flow {
        self.connection.reply(frames::error(message))
    }

    async fn handle_agent(&mut self, mut message: Result<Option<AgentEvent>, AgentError>) -> Flow {
        let mut bytes = 0;
        loop {
            match message {
                Ok(None) => break,
                Ok(Some(AgentEvent::Data(body))) => {
                    bytes += body.len();
                    self.data(body)?;
                }
                Ok(Some(AgentEvent::Response(response))) => self.forward(response)?,
                Err(error) => {
                    self.flush_output()?;
                    return self.lost(&error).await;
                }
            }
            if bytes >= BATCH_BYTES {
                break;
            }
            message = self.client.link.try_next();
        }
        self.flush_output()
    }

    fn data(&mut self, body: Bytes) -> Flow {
        let Ok(DataFrame { stream, offset, bytes, .. }) = DataFrame::parse(body) else {
            return bad_agent_frame();
        };
        match (stream, self.snapshot) {
            (SNAPSHOT, Some(snapshot)) => self.snapshot_bytes(snapshot, bytes),
            (OUTPUT, None) => {
                if offset != self.offset {
                    self.flush_output()?;
                    self.offset = offset;
                    self.send_offset()?;
                }
                self.offset += bytes.len() as u64;
                self.output(bytes)
            }
            _ => bad_agent_frame(),
        }
    }

    /// Begins a snapshot; its bytes follow.
    fn begin_snapshot(&mut self, snapshot: Snapshot) -> Flow {
        self.event_frame(frames::snapshot(snapshot))?;
        self.snapshot = Some(snapshot);
        self.snapshot_bytes(snapshot, Bytes::new())
    }

    /// Handles bytes of a snapshot. After the last one, output continues at the snapshot's offset.
    fn snapshot_bytes(&mut self, mut snapshot: Snapshot, bytes: Bytes) -> Flow {
        let count = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        let Some(left) = snapshot.bytes.checked_sub(count) else { return bad_agent_frame() };
        self.output(bytes)?;
        if left > 0 {
            snapshot.bytes = left;
            self.snapshot = Some(snapshot);
            return ControlFlow::Continue(());
        }
        self.flush_output()?;
        self.snapshot = None;
        self.offset = snapshot.offset;
        self.send_offset()
    }

    fn send_offset(&mut self) -> Flow {
        let at = frames::at(&self.client.link.attached().id, self.offset);
        self.event_frame(at)
    }

    /// Holds a chunk back until no more has arrived.
    fn output(&mut self, bytes: Bytes) -> Flow {
        if self.pending_bytes + bytes.len() > FRAME_BYTES || bytes.len() >= LARGE_BYTES {
            self.flush_output()?;
        }
        self.pending_bytes += bytes.len();
        if !bytes.is_empty() {
            self.pending.push(bytes);
        }
        ControlFlow::Continue(())
    }

    /// Writes the held chunks as one frame.
    fn flush_output(&mut self) -> Flow {
        let pending_bytes = std::mem::take(&mut self.pending_bytes);
        let pending = &mut self.pending;
        let one = match pending.len() {
            0 => return ControlFlow::Continue(()),
            1 => pending.remove(0),
            _ => {
                let mut all = BytesMut::with_capacity(pending_bytes);
                pending.drain(..).for_each(|piece| all.extend_from_slice(&piece));
                all.freeze()
            }
        };
        self.connection.write(Message::Binary(one))
    }

    fn forward(&mut self, response: AgentResponse) -> Flow {
        self.flush_output()?;
        match response {
            AgentResponse::TerminalReady => self.connection.write(frames::ready()),
            AgentResponse::TerminalSnapshot(snapshot) if self.snapshot.is_none() => {
                self.begin_snapshot(snapshot)
            }
            AgentResponse::TerminalSize(size) => self.event_frame(frames::sized(size)),
            AgentResponse::TerminalClients(clients) => self.event_frame(frames::clients(&clients)),
            AgentResponse::TerminalExit(closed) => self.end(&closed),
            AgentResponse::Refused { message, .. } => self.send_error(&message),
            _ => bad_agent_frame(),
        }
    }

    fn end(&mut self, closed: &Closed) -> Flow {
        self.connection.write(frames::exit(closed))?;
        ControlFlow::Break(CloseReason::Close(CloseCode::Normal, "the terminal has ended"))
    }

    /// Sends a frame if the client receives event frames.
    fn event_frame(&mut self, message: Message) -> Flow {
        if self.client.events { self.connection.write(message) } else { ControlFlow::Continue(()) }
    }

    /// Handles a broken connection: the sandbox was deleted, or the agent failed.
    async fn lost(&mut self, error: &AgentError) -> Flow {
        if let AgentError::Departed(_) = error {
            return ControlFlow::Break(CloseReason::Close(CloseCode::Restart, "come back"));
        }
        if let AgentError::Destroyed(_) = error {
            let closed = Closed { signal: Some(KILLED), ..Closed::default() };
            self.connection.write(frames::exit(&closed))?;
            return ControlFlow::Break(CloseReason::destroyed());
        }
        if let AgentError::Slept(_) = error {
            let closed = Closed { signal: Some(KILLED), ..Closed::default() };
            self.connection.write(frames::exit(&closed))?;
            return ControlFlow::Break(CloseReason::slept());
        }
        if self.client.link.orphaned() {
            return self.end(&Closed { signal: Some(KILLED), ..Closed::default() });
        }
        let come_back = ControlFlow::Break(CloseReason::Close(CloseCode::Restart, "come back"));
        match timeout(CLOSE_WAIT, self.client.sandbox.ended()).await {
            Err(_) => {
                debug!(%error, "the agent connection of a terminal client broke");
                come_back
            }
            Ok(isolet_sandbox::Error::Stopping) => come_back,
            Ok(error) => {
                let closed = Closed {
                    code: None,
                    signal: Some(KILLED),
                    cause: CloseCause::Other(error.to_string()),
                };
                self.connection.write(frames::exit(&closed))?;
                ControlFlow::Break(CloseReason::Close(CloseCode::Away, "the sandbox has ended"))
            }
        }
    }
}

/// The agent violated the protocol.
fn bad_agent_frame() -> Flow {
    ControlFlow::Break(CloseReason::Close(CloseCode::Error, "the agent sent a bad frame"))
}
