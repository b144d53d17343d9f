//! One connection to an agent, which turns bytes into frames. [`super::connection`] defines what it
//! is used for.

use crate::agent_client::agent_version::AgentVersion;
use crate::model::activity::ActivityGuard;
use crate::model::agent_error::AgentError;
use crate::model::record::View;
use crate::model::state::State;
use bytes::{Buf, Bytes, BytesMut};
use isolet_wire::context;
use isolet_wire::frame::{self, Frame};
use isolet_wire::request::AgentRequest;
use isolet_wire::response::{AgentResponse, RefusalReason};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, recvmsg};
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::sync::watch;
use tokio::time::error::Elapsed;
use tokio::time::timeout;

/// A frame from an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AgentEvent {
    /// A message of the agent, decoded.
    Response(AgentResponse),
    /// Output in the layout of a binary frame of the shell WebSocket; see
    /// `isolet_wire::frame::DataFrame`.
    Data(Bytes),
}

/// How long a send waits for an agent that does not read.
const SEND_WAIT: Duration = Duration::from_secs(30);
/// Timeout of requests that an agent answers at once.
pub(crate) const ANSWER_WAIT: Duration = Duration::from_secs(10);
/// Number of attempts to connect while the agent's queue of connections is full.
const CONNECT_TRIES: u32 = 200;
const CONNECT_PAUSE: Duration = Duration::from_millis(5);
/// Maximum length of a path in a socket address.
const PATH_BYTES_MAX: usize = 107;
/// Initial size of the read buffer. It grows while output arrives.
const READ_SMALL: usize = 8 * 1024;
const READ_LARGE: usize = 128 * 1024;

const TORN: AgentError = AgentError::Turn("an earlier message was cut off");

/// A connection to an agent whose greeting may not be answered yet.
#[derive(Debug)]
pub(crate) struct Wire {
    stream: UnixStream,
    held: BytesMut,
    out: Vec<u8>,
    /// Bytes that were pushed and that the socket has not accepted yet.
    late: BytesMut,
    read_bytes: usize,
    greeted: bool,
    version: Arc<AgentVersion>,
    /// A send was interrupted in the middle of a frame, so no further frame can be sent.
    torn: bool,
    /// Keeps the sandbox awake while the connection serves a client.
    pub(crate) awake: Option<ActivityGuard>,
    /// The sandbox that the connection belongs to, which tells why the connection has ended.
    owner: Option<watch::Receiver<View>>,
}

/// Exit code of a program that SIGKILL ended.
const KILLED_CODE: i32 = 137;
const SIGKILL: i32 = 9;

impl Wire {
    /// Opens a connection. The greeting is sent with the first message to save a round trip, and
    /// its answer is checked before any other event is returned.
    pub(crate) async fn connect(
        directory: &Path,
        version: &Arc<AgentVersion>,
    ) -> Result<Self, AgentError> {
        let stream = dial(directory).await?;
        let mut out = Vec::with_capacity(256);
        frame::put(&mut out, &AgentRequest::Hello { version: version.get() });
        let held = BytesMut::new();
        let late = BytesMut::new();
        Ok(Self {
            stream,
            held,
            out,
            late,
            read_bytes: READ_SMALL,
            greeted: false,
            version: Arc::clone(version),
            torn: false,
            awake: None,
            owner: None,
        })
    }

    /// The version that both sides agreed on, or the offered one before the agent has answered.
    pub(crate) fn version(&self) -> u16 {
        self.version.get()
    }

    /// Shares the version with the other connections to the agent.
    pub(crate) fn share_version(&mut self, with: &Arc<AgentVersion>) {
        with.set(self.version.get());
        self.version = Arc::clone(with);
    }

    /// Sets the sandbox that the connection belongs to.
    pub(crate) fn owned(mut self, owner: watch::Receiver<View>) -> Self {
        self.owner = Some(owner);
        self
    }

    /// Why this connection has lost its sandbox. One that keeps its sandbox awake loses it to a
    /// sleep only if that is forced.
    fn lost_to(&self) -> Option<AgentError> {
        let view = self.owner.as_ref()?.borrow();
        match self.awake {
            Some(_) => view.lost_to(),
            None => view.destroyed(),
        }
    }

    /// Replaces an error by [`AgentError::Destroyed`] or [`AgentError::Slept`] while the sandbox is
    /// being deleted or sleeps.
    fn cause(&self, error: AgentError) -> AgentError {
        self.lost_to().unwrap_or(error)
    }

    /// Turns the report of a killed program into [`AgentError::Destroyed`] or
    /// [`AgentError::Slept`] while the sandbox is being deleted or sleeps.
    fn judged(&self, event: AgentEvent) -> Result<AgentEvent, AgentError> {
        match &event {
            AgentEvent::Response(response) if killed(response) => {}
            _ => return Ok(event),
        }
        match self.lost_to() {
            Some(error) => Err(error),
            None => Ok(event),
        }
    }

    /// Sends one message. Not cancel-safe.
    pub(crate) async fn send(&mut self, request: &AgentRequest) -> Result<(), AgentError> {
        self.version.knows(request)?;
        frame::put(&mut self.out, request);
        self.flush().await.map_err(|error| self.cause(error))
    }

    /// Sends a data frame with a part of a file.
    pub(crate) async fn send_data(&mut self, offset: u64, bytes: &[u8]) -> Result<(), AgentError> {
        frame::put_data_head(&mut self.out, 0, offset, "", bytes.len());
        self.out.extend_from_slice(bytes);
        self.flush().await.map_err(|error| self.cause(error))
    }

    /// Queues one message and sends what the socket accepts now. [`Wire::next`] sends the rest.
    pub(crate) fn push(&mut self, request: &AgentRequest) -> Result<(), AgentError> {
        if self.torn {
            return Err(TORN);
        }
        self.version.knows(request)?;
        frame::put(&mut self.out, request);
        self.late.extend_from_slice(&self.out);
        self.out.clear();
        self.out.shrink_to(64 * 1024);
        self.drain().map_err(|error| self.cause(error))
    }

    /// Number of queued bytes.
    pub(crate) fn waiting(&self) -> usize {
        self.late.len()
    }

    fn drain(&mut self) -> Result<(), AgentError> {
        while !self.late.is_empty() {
            match self.stream.try_write(&self.late) {
                Ok(count) => self.late.advance(count),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
        self.late = BytesMut::new();
        Ok(())
    }

    async fn flush(&mut self) -> Result<(), AgentError> {
        if std::mem::replace(&mut self.torn, true) {
            return Err(TORN);
        }
        if !self.late.is_empty() {
            let mut all = std::mem::take(&mut self.late).to_vec();
            all.append(&mut self.out);
            self.out = all;
        }
        let mut sent = 0;
        while sent < self.out.len() {
            match self.stream.try_write(&self.out[sent..]) {
                Ok(count) => sent += count,
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                    match timeout(SEND_WAIT, self.stream.writable()).await {
                        Ok(writable) => writable?,
                        Err(_) if self.is_paused() => self.resumed().await,
                        Err(_) => return Err(AgentError::Silent),
                    }
                }
                Err(error) => return Err(error.into()),
            }
        }
        self.out.clear();
        self.out.shrink_to(64 * 1024);
        self.torn = false;
        Ok(())
    }

    /// Requests a connection to a port of the sandbox. The socket comes with the answer. Not
    /// cancel-safe: after an interrupted dial, the connection must be dropped.
    pub(crate) async fn dial(
        &mut self,
        port: u16,
    ) -> Result<Result<OwnedFd, (RefusalReason, String)>, AgentError> {
        self.send(&AgentRequest::Dial { port }).await?;
        let mut found = None;
        loop {
            match self.cut()? {
                None => {
                    let received = self.receive(&mut found).await;
                    received.map_err(|error| self.cause(error))?;
                }
                Some(AgentEvent::Response(AgentResponse::Dialed)) => {
                    return found.map(Ok).ok_or(AgentError::Turn("no socket came with a dial"));
                }
                Some(AgentEvent::Response(AgentResponse::Refused { reason, message, .. })) => {
                    return Ok(Err((reason, message)));
                }
                Some(_) => return Err(AgentError::Turn("unexpected answer to a dial")),
            }
        }
    }

    /// Reads once and keeps the last descriptor that arrived. The control buffer has room for only
    /// one.
    async fn receive(&mut self, found: &mut Option<OwnedFd>) -> Result<(), AgentError> {
        let mut bytes = [0; 512];
        let read = self.stream.async_io(Interest::READABLE, || {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut rights = RecvAncillaryBuffer::new(&mut space);
            let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
            let mut pieces = [IoSliceMut::new(&mut bytes)];
            let got = recvmsg(&self.stream, &mut pieces, &mut rights, flags)?;
            for message in rights.drain() {
                if let RecvAncillaryMessage::ScmRights(fds) = message {
                    *found = fds.last();
                }
            }
            Ok((got.bytes, got.flags.contains(ReturnFlags::CTRUNC)))
        });
        match read.await? {
            (0, _) => Err(AgentError::Ended),
            // The kernel had a descriptor to pass and could not install it.
            (_, true) if found.is_none() => Err(AgentError::Short),
            (count, _) => {
                self.held.extend_from_slice(&bytes[..count]);
                Ok(())
            }
        }
    }

    /// Waits for the next event. Cancel-safe, because an incomplete frame stays in the buffer.
    pub(crate) async fn next(&mut self) -> Result<AgentEvent, AgentError> {
        loop {
            if let Some(event) = self.try_next()? {
                return Ok(event);
            }
            self.stirred().await.map_err(|error| self.cause(error))?;
        }
    }

    /// Waits for the next event, or until at most `queued` bytes wait to be sent, whichever comes
    /// first: `None`. It is not returned if no more than that waited before. Cancel-safe.
    pub(crate) async fn next_or_sent(
        &mut self,
        queued: usize,
    ) -> Result<Option<AgentEvent>, AgentError> {
        let was_over = self.waiting() > queued;
        loop {
            if let Some(event) = self.try_next()? {
                return Ok(Some(event));
            }
            if was_over && self.waiting() <= queued {
                return Ok(None);
            }
            self.stirred().await.map_err(|error| self.cause(error))?;
        }
    }

    /// Waits until bytes have arrived or more queued bytes could be sent.
    async fn stirred(&mut self) -> Result<(), AgentError> {
        if self.late.is_empty() {
            return Ok(self.stream.readable().await?);
        }
        self.stream.ready(Interest::READABLE | Interest::WRITABLE).await?;
        self.drain()
    }

    /// Returns an event that has already arrived.
    pub(crate) fn try_next(&mut self) -> Result<Option<AgentEvent>, AgentError> {
        match self.arrived() {
            Ok(event) => event.map(|event| self.judged(event)).transpose(),
            Err(error) => Err(self.cause(error)),
        }
    }

    fn arrived(&mut self) -> Result<Option<AgentEvent>, AgentError> {
        loop {
            if let Some(event) = self.cut()? {
                return Ok(Some(event));
            }
            self.held.reserve(self.read_bytes);
            match self.stream.try_read_buf(&mut self.held) {
                Ok(0) => return Err(AgentError::Ended),
                Ok(count) if count >= READ_SMALL => self.read_bytes = READ_LARGE,
                Ok(_) => self.read_bytes = READ_SMALL,
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                    if self.held.is_empty() && self.read_bytes == READ_LARGE {
                        // Releases the large buffer of a burst when no more data is waiting.
                        (self.held, self.read_bytes) = (BytesMut::new(), READ_SMALL);
                    }
                    return Ok(None);
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Whether nothing has arrived, not even the end of the stream. This asks the kernel because
    /// the runtime's view of a socket may be outdated.
    pub(crate) fn quiet(&self) -> bool {
        use rustix::net::recv;
        let look = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        self.held.is_empty()
            && recv(&self.stream, &mut [0u8][..], look) == Err(rustix::io::Errno::AGAIN)
    }

    fn cut(&mut self) -> Result<Option<AgentEvent>, AgentError> {
        let Some(frame) = frame::next(&mut self.held, frame::AGENT_FRAME_BYTES_MAX)? else {
            return Ok(None);
        };
        let event = match frame {
            Frame::Data(body) => AgentEvent::Data(body),
            Frame::Message(body) => AgentEvent::Response(frame::decode::<AgentResponse>(&body)?),
        };
        if self.greeted {
            return Ok(Some(event));
        }
        match event {
            AgentEvent::Response(AgentResponse::Hello { version }) => {
                self.version.agreed(version)?;
                self.greeted = true;
            }
            _ => return Err(AgentError::Turn("no greeting")),
        }
        self.cut()
    }

    /// Waits for the next event at most this long. While the sandbox is paused, the time does not
    /// count.
    pub(crate) async fn next_within(
        &mut self,
        limit: Duration,
    ) -> Result<Result<AgentEvent, AgentError>, Elapsed> {
        loop {
            match timeout(limit, self.next()).await {
                Err(_) if self.is_paused() => self.resumed().await,
                event => return event,
            }
        }
    }

    fn is_paused(&self) -> bool {
        self.owner.as_ref().is_some_and(|owner| owner.borrow().record.state == State::Paused)
    }

    /// Waits until the sandbox is not paused any more.
    async fn resumed(&self) {
        if let Some(owner) = &self.owner {
            let _ = owner.clone().wait_for(|view| view.record.state != State::Paused).await;
        }
    }

    /// Waits for the answer to a request that the agent answers at once.
    pub(crate) async fn answer(&mut self) -> Result<AgentResponse, AgentError> {
        let event = self.next_within(ANSWER_WAIT).await;
        match event.map_err(|_| self.cause(AgentError::Silent))?? {
            AgentEvent::Response(response) => Ok(response),
            AgentEvent::Data(_) => Err(AgentError::Turn("data where an answer was due")),
        }
    }
}

/// Whether the message reports a program or shell that SIGKILL ended.
fn killed(response: &AgentResponse) -> bool {
    match response {
        AgentResponse::Exit(exit) => exit.signal == Some(SIGKILL) || exit.code == KILLED_CODE,
        AgentResponse::Closed(closed) | AgentResponse::TerminalExit(closed) => {
            closed.signal == Some(SIGKILL) || closed.code == Some(KILLED_CODE)
        }
        AgentResponse::Context(context::ContextResponse::RunEnded(end)) => end.died.is_some(),
        AgentResponse::Process(process) => {
            process.end.as_ref().is_some_and(|end| end.signal == Some(SIGKILL))
        }
        _ => false,
    }
}

async fn dial(directory: &Path) -> Result<UnixStream, AgentError> {
    for _ in 0..CONNECT_TRIES {
        match open(directory).await {
            // The agent's queue of new connections is full.
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                tokio::time::sleep(CONNECT_PAUSE).await
            }
            done => return Ok(done?),
        }
    }
    Err(AgentError::Silent)
}

async fn open(directory: &Path) -> std::io::Result<UnixStream> {
    let plain = directory.join("agent.sock");
    if plain.as_os_str().len() <= PATH_BYTES_MAX {
        return UnixStream::connect(plain).await;
    }
    use rustix::fs::{Mode, OFlags};
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let held = rustix::fs::open(directory, flags, Mode::empty())?;
    UnixStream::connect(format!("/proc/self/fd/{}/agent.sock", held.as_raw_fd())).await
}
