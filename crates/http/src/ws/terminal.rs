//! One client of a terminal: a socket on one side, a link to the agent on the other, one task.
//!
//! While the client does not take bytes, none are read from the link: how far it is behind is its
//! own place in the terminal's ring, and nobody else's matter. Small pieces of output that have
//! already arrived go as one frame; nothing is waited for.

pub(crate) mod frames;

use crate::{
    auth::cancellation::Until,
    ws::{
        connection::{CLOSE_WAIT, End, Event, Go, Line, clock},
        upgrade::Socket,
    },
};
use bytes::BytesMut;
use frames::Said;
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

struct Talk {
    line: Line,
    client: Client,
    /// Output that is not written yet, in the order of arrival.
    pieces: Vec<Bytes>,
    /// How many bytes that is.
    held: usize,
    /// Bytes of a snapshot that are to come, and where output goes on behind it.
    snapshot: Option<Snapshot>,
    /// Where the next byte of output stands.
    offset: u64,
}

/// Serves a client until either side ends.
pub(crate) async fn run(socket: Socket, client: Client, until: Until) {
    let offset = client.link.attached().offset;
    let line = Line::new(socket);
    let mut talk = Talk { line, client, pieces: Vec::new(), held: 0, snapshot: None, offset };
    let end = match talk.begin() {
        ControlFlow::Continue(()) => talk.talk(until).await,
        ControlFlow::Break(end) => end,
    };
    // Others need not see it attached while it says goodbye.
    let Talk { line, client, .. } = talk;
    drop(client);
    line.leave(end).await;
}

/// Says that there is no terminal to attach to, and ends.
pub(crate) async fn none(socket: Socket, message: &str) {
    let mut line = Line::new(socket);
    let end = match line.write(frames::error(message)) {
        ControlFlow::Continue(()) => End::Close(CloseCode::Library(NONE_RUNS), "no terminal runs"),
        ControlFlow::Break(end) => end,
    };
    line.leave(end).await;
}

impl Talk {
    async fn talk(&mut self, mut until: Until) -> End {
        let mut clock = clock();
        // Lives as long as the loop: nothing is registered anew for each message.
        let ended = async move { until.ended().await };
        tokio::pin!(ended);
        loop {
            let (line, link) = (&mut self.line, &mut self.client.link);
            let (dirty, full) = (line.dirty(), link.waiting() > INPUT_BYTES_MAX);
            let go = tokio::select! {
                biased;
                // First: under a steady load the others are always ready.
                ending = &mut ended => ControlFlow::Break(ending.into()),
                event = poll_fn(|cx| line.poll(cx, full)) => self.event(event),
                heard = link.next(), if !dirty => self.heard(heard).await,
                // A client whose input waits for its program is not read.
                _ = clock.tick() => self.line.tick(full),
            };
            if let ControlFlow::Break(end) = go {
                return end;
            }
        }
    }

    fn begin(&mut self) -> Go {
        let attached = self.client.link.attached();
        let (first, snapshot) = (frames::attached(attached), attached.snapshot);
        self.event_frame(first)?;
        if let Some(message) = self.client.refused.take() {
            self.line.write(frames::error(&message))?;
        }
        match snapshot {
            Some(snapshot) => self.draw(snapshot),
            None => self.tell_offset(),
        }
    }

    fn event(&mut self, event: Event) -> Go {
        match self.line.hear(event)? {
            Some(Message::Text(text)) => match frames::parse(&text) {
                Ok(Said::Ping) => self.line.answer(frames::pong()),
                Ok(_) if self.client.view => ControlFlow::Continue(()),
                Ok(Said::Resize(size)) => self.pushed(|link| link.resize(size)),
                Err(failure) => self.refuse(&failure.message),
            },
            Some(_) if self.client.view => {
                self.refuse("this client only looks: what it types is not taken")
            }
            Some(Message::Binary(bytes)) if !bytes.is_empty() => {
                self.pushed(|link| link.type_in(&bytes))
            }
            _ => ControlFlow::Continue(()),
        }
    }

    fn pushed(&mut self, push: impl FnOnce(&mut TerminalLink) -> Result<(), LinkError>) -> Go {
        if let Err(error) = push(&mut self.client.link) {
            // The link's own end says why.
            debug!(%error, "the agent does not take what a client said");
        }
        ControlFlow::Continue(())
    }

    fn refuse(&mut self, message: &str) -> Go {
        self.line.answer(frames::error(message))
    }

    async fn heard(&mut self, heard: Result<Heard, LinkError>) -> Go {
        let (mut heard, mut bytes) = (heard.map(Some), 0);
        loop {
            match heard {
                Ok(None) => break,
                Ok(Some(Heard::Data(body))) => {
                    bytes += body.len();
                    self.data(body)?;
                }
                Ok(Some(Heard::Tell(tell))) => self.tell(tell)?,
                Err(error) => {
                    self.put()?;
                    return self.lost(&error).await;
                }
            }
            if bytes >= BATCH_BYTES {
                break;
            }
            heard = self.client.link.try_next();
        }
        self.put()
    }

    fn data(&mut self, body: Bytes) -> Go {
        let Ok(Data { stream, offset, bytes, .. }) = Data::parse(body) else { return faulty() };
        match (stream, self.snapshot) {
            (SNAPSHOT, Some(snapshot)) => self.drawn(snapshot, bytes),
            (OUTPUT, None) => {
                if offset != self.offset {
                    self.put()?;
                    self.offset = offset;
                    self.tell_offset()?;
                }
                self.offset += bytes.len() as u64;
                self.output(bytes)
            }
            _ => faulty(),
        }
    }

    /// A snapshot's bytes follow.
    fn draw(&mut self, snapshot: Snapshot) -> Go {
        self.event_frame(frames::snapshot(snapshot))?;
        self.snapshot = Some(snapshot);
        self.drawn(snapshot, Bytes::new())
    }

    /// Some of them; behind the last the output goes on at its offset.
    fn drawn(&mut self, mut snapshot: Snapshot, bytes: Bytes) -> Go {
        let count = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        let Some(left) = snapshot.bytes.checked_sub(count) else { return faulty() };
        self.output(bytes)?;
        if left > 0 {
            snapshot.bytes = left;
            self.snapshot = Some(snapshot);
            return ControlFlow::Continue(());
        }
        self.put()?;
        (self.snapshot, self.offset) = (None, snapshot.offset);
        self.tell_offset()
    }

    fn tell_offset(&mut self) -> Go {
        let at = frames::at(&self.client.link.attached().id, self.offset);
        self.event_frame(at)
    }

    /// Keeps a piece until no more has arrived.
    fn output(&mut self, bytes: Bytes) -> Go {
        if self.held + bytes.len() > FRAME_BYTES || bytes.len() >= LARGE_BYTES {
            self.put()?;
        }
        self.held += bytes.len();
        if !bytes.is_empty() {
            self.pieces.push(bytes);
        }
        ControlFlow::Continue(())
    }

    /// Writes what was kept, as one frame.
    fn put(&mut self) -> Go {
        let (held, pieces) = (std::mem::take(&mut self.held), &mut self.pieces);
        let one = match pieces.len() {
            0 => return ControlFlow::Continue(()),
            1 => pieces.remove(0),
            _ => {
                let mut all = BytesMut::with_capacity(held);
                pieces.drain(..).for_each(|piece| all.extend_from_slice(&piece));
                all.freeze()
            }
        };
        self.line.write(Message::Binary(one))
    }

    fn tell(&mut self, tell: Tell) -> Go {
        self.put()?;
        match tell {
            Tell::TerminalReady => self.line.write(frames::ready()),
            Tell::TerminalSnapshot(snapshot) if self.snapshot.is_none() => self.draw(snapshot),
            Tell::TerminalSize(size) => self.event_frame(frames::sized(size)),
            Tell::TerminalClients(clients) => self.event_frame(frames::clients(&clients)),
            Tell::TerminalExit(closed) => self.over(&closed),
            Tell::Refused { message, .. } => self.refuse(&message),
            _ => faulty(),
        }
    }

    fn over(&mut self, closed: &Closed) -> Go {
        self.line.write(frames::exit(closed))?;
        ControlFlow::Break(End::Close(CloseCode::Normal, "the terminal has ended"))
    }

    /// A frame that only those see who asked for events.
    fn event_frame(&mut self, message: Message) -> Go {
        if self.client.events { self.line.write(message) } else { ControlFlow::Continue(()) }
    }

    /// The link is gone: with its sandbox, or by itself.
    async fn lost(&mut self, error: &LinkError) -> Go {
        if let LinkError::Destroyed(_) = error {
            let closed = Closed { signal: Some(KILLED), ..Closed::default() };
            self.line.write(frames::exit(&closed))?;
            return ControlFlow::Break(End::destroyed());
        }
        if self.client.link.orphaned() {
            return self.over(&Closed { signal: Some(KILLED), ..Closed::default() });
        }
        let come_back = ControlFlow::Break(End::Close(CloseCode::Restart, "come back"));
        match timeout(CLOSE_WAIT, self.client.sandbox.ended()).await {
            Err(_) => {
                debug!(%error, "the link of a terminal's client broke");
                come_back
            }
            Ok(isolet_sandbox::Error::Stopping) => come_back,
            Ok(why) => {
                let closed = Closed { code: None, signal: Some(KILLED), cause: why.to_string() };
                self.line.write(frames::exit(&closed))?;
                ControlFlow::Break(End::Close(CloseCode::Away, "the sandbox has ended"))
            }
        }
    }
}

/// What the agent said belongs to no conversation.
fn faulty() -> Go {
    ControlFlow::Break(End::Close(CloseCode::Error, "the agent sent a bad frame"))
}
