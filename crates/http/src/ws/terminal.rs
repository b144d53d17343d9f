//! One client of a terminal: a socket on one side, a link to the agent on the other, one task.
//!
//! While the client does not take bytes, none are read from the link: how far it is behind is its
//! own place in the terminal's ring, and nobody else's matter. Small pieces of output that have
//! already arrived go as one frame; nothing is waited for.

pub(crate) mod frames;

use crate::{
    auth::cancellation::Cancellation,
    ws::{
        connection::{CLOSE_WAIT, CloseReason, Event, Flow, WsConnection, heartbeat},
        upgrade::Socket,
    },
};
use bytes::BytesMut;
use frames::ClientFrame;
use isolet_sandbox::{Heard, LinkError, Sandbox, TerminalLink};
use isolet_wire::{
    frame::Data,
    tell::{Closed, Tell},
    terminal::{OUTPUT, SNAPSHOT, Snapshot, TYPE_BYTES_MAX},
};
use std::{future::poll_fn, ops::ControlFlow};
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::{Bytes, Message, protocol::frame::coding::CloseCode};
use tracing::debug;

/// The longest message: what is typed or pasted at once.
pub(crate) const MESSAGE_BYTES_MAX: usize = TYPE_BYTES_MAX;
/// Output taken from the link before it is sent on. One frame may stand above it.
const BATCH_BYTES: usize = 128 * 1024;
/// Pieces of output become one frame up to this size.
const FRAME_BYTES: usize = 64 * 1024;
/// A piece of this size is a frame by itself: copying it would cost more than its head.
const LARGE_BYTES: usize = 16 * 1024;
/// What is typed and the program does not read, until the client is not read either.
const INPUT_BYTES_MAX: usize = 256 * 1024;
/// Close code: one that runs was meant, and none does.
const NONE_RUNS: u16 = 4404;
/// Killed with its sandbox.
const KILLED: i32 = 9;

/// Who is at the other end, and what was agreed.
pub(crate) struct Client {
    /// Where the terminal is.
    pub(crate) sandbox: Sandbox,
    /// The connection to it.
    pub(crate) link: TerminalLink,
    /// It only looks.
    pub(crate) view: bool,
    /// It asked for the frames of events.
    pub(crate) events: bool,
    /// What is to be said first, where something of the request was not done.
    pub(crate) refused: Option<String>,
}

struct TerminalSocket {
    connection: WsConnection,
    client: Client,
    /// Output that is not written yet, in the order of arrival.
    pending: Vec<Bytes>,
    /// How many bytes that is.
    pending_bytes: usize,
    /// Bytes of a snapshot that are to come, and where output goes on behind it.
    snapshot: Option<Snapshot>,
    /// Where the next byte of output stands.
    offset: u64,
}

/// Serves a client until either side ends.
pub(crate) async fn run(socket: Socket, client: Client, cancellation: Cancellation) {
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
    // Others need not see it attached while it says goodbye.
    let TerminalSocket { connection, client, .. } = conversation;
    drop(client);
    connection.close(end).await;
}

/// Says that there is no terminal to attach to, and ends.
pub(crate) async fn refuse_none_running(socket: Socket, message: &str) {
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
        // Lives as long as the loop: nothing is registered anew for each message.
        let ended = async move { cancellation.cancelled().await };
        tokio::pin!(ended);
        loop {
            let connection = &mut self.connection;
            let link = &mut self.client.link;
            let unflushed = connection.has_unflushed();
            let full = link.waiting() > INPUT_BYTES_MAX;
            let go = tokio::select! {
                biased;
                // First: under a steady load the others are always ready.
                reason = &mut ended => ControlFlow::Break(reason.into()),
                event = poll_fn(|cx| connection.poll(cx, full)) => self.event(event),
                message = link.next(), if !unflushed => self.handle_agent(message).await,
                // A client whose input waits for its program is not read.
                _ = clock.tick() => self.connection.tick(full),
            };
            if let ControlFlow::Break(end) = go {
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

    fn event(&mut self, event: Event) -> Flow {
        match self.connection.receive(event)? {
            Some(Message::Text(text)) => match frames::parse(&text) {
                Ok(ClientFrame::Ping) => self.connection.reply(frames::pong()),
                Ok(_) if self.client.view => ControlFlow::Continue(()),
                Ok(ClientFrame::Resize(size)) => self.push_to_agent(|link| link.resize(size)),
                Err(failure) => self.send_error(&failure.message),
            },
            Some(_) if self.client.view => {
                self.send_error("this client only looks: what it types is not taken")
            }
            Some(Message::Binary(bytes)) if !bytes.is_empty() => {
                self.push_to_agent(|link| link.type_in(&bytes))
            }
            _ => ControlFlow::Continue(()),
        }
    }

    fn push_to_agent(
        &mut self,
        push: impl FnOnce(&mut TerminalLink) -> Result<(), LinkError>,
    ) -> Flow {
        if let Err(error) = push(&mut self.client.link) {
            // The link's own end says why.
            debug!(%error, "the agent does not take what a client said");
        }
        ControlFlow::Continue(())
    }

    fn send_error(&mut self, message: &str) -> Flow {
        self.connection.reply(frames::error(message))
    }

    async fn handle_agent(&mut self, message: Result<Heard, LinkError>) -> Flow {
        let mut message = message.map(Some);
        let mut bytes = 0;
        loop {
            match message {
                Ok(None) => break,
                Ok(Some(Heard::Data(body))) => {
                    bytes += body.len();
                    self.data(body)?;
                }
                Ok(Some(Heard::Tell(tell))) => self.forward(tell)?,
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
        let Ok(Data { stream, offset, bytes, .. }) = Data::parse(body) else {
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

    /// A snapshot's bytes follow.
    fn begin_snapshot(&mut self, snapshot: Snapshot) -> Flow {
        self.event_frame(frames::snapshot(snapshot))?;
        self.snapshot = Some(snapshot);
        self.snapshot_bytes(snapshot, Bytes::new())
    }

    /// Some of them; behind the last the output goes on at its offset.
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

    /// Keeps a piece until no more has arrived.
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

    /// Writes what was kept, as one frame.
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

    fn forward(&mut self, tell: Tell) -> Flow {
        self.flush_output()?;
        match tell {
            Tell::TerminalReady => self.connection.write(frames::ready()),
            Tell::TerminalSnapshot(snapshot) if self.snapshot.is_none() => {
                self.begin_snapshot(snapshot)
            }
            Tell::TerminalSize(size) => self.event_frame(frames::sized(size)),
            Tell::TerminalClients(clients) => self.event_frame(frames::clients(&clients)),
            Tell::TerminalExit(closed) => self.end(&closed),
            Tell::Refused { message, .. } => self.send_error(&message),
            _ => bad_agent_frame(),
        }
    }

    fn end(&mut self, closed: &Closed) -> Flow {
        self.connection.write(frames::exit(closed))?;
        ControlFlow::Break(CloseReason::Close(CloseCode::Normal, "the terminal has ended"))
    }

    /// A frame that only those see who asked for events.
    fn event_frame(&mut self, message: Message) -> Flow {
        if self.client.events { self.connection.write(message) } else { ControlFlow::Continue(()) }
    }

    /// The link is gone: with its sandbox, or by itself.
    async fn lost(&mut self, error: &LinkError) -> Flow {
        if let LinkError::Destroyed(_) = error {
            let closed = Closed { signal: Some(KILLED), ..Closed::default() };
            self.connection.write(frames::exit(&closed))?;
            return ControlFlow::Break(CloseReason::destroyed());
        }
        if self.client.link.orphaned() {
            return self.end(&Closed { signal: Some(KILLED), ..Closed::default() });
        }
        let come_back = ControlFlow::Break(CloseReason::Close(CloseCode::Restart, "come back"));
        match timeout(CLOSE_WAIT, self.client.sandbox.ended()).await {
            Err(_) => {
                debug!(%error, "the link of a terminal's client broke");
                come_back
            }
            Ok(isolet_sandbox::Error::Stopping) => come_back,
            Ok(why) => {
                let closed = Closed { code: None, signal: Some(KILLED), cause: why.to_string() };
                self.connection.write(frames::exit(&closed))?;
                ControlFlow::Break(CloseReason::Close(CloseCode::Away, "the sandbox has ended"))
            }
        }
    }
}

/// What the agent said belongs to no conversation.
fn bad_agent_frame() -> Flow {
    ControlFlow::Break(CloseReason::Close(CloseCode::Error, "the agent sent a bad frame"))
}
