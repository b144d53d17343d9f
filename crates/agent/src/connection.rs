//! One connection of a server: received bytes, sent frames, and its purpose.

mod follower;
pub(crate) mod shell_log;
mod terminal_client;

pub(crate) use follower::Follower;
pub(crate) use terminal_client::{ClientStage, TerminalClient};

use crate::reactor::poll::{EventSource, Poll};
use bytes::BytesMut;
use isolet_wire::frame::{self, Frame, FrameError, SERVER_FRAME_BYTES_MAX};
use isolet_wire::response::AgentResponse;
use rustix::event::epoll::EventFlags;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use shell_log::{Item, LogCursor, LogFilter, ShellLog};
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::Instant;

/// Amount of unsent data, in bytes, above which nothing more is read from the connection.
const OUT_BYTES_MAX: usize = 256 * 1024;
/// Maximum amount of a log in one system call, in bytes.
pub(crate) const SEND_BYTES: usize = 256 * 1024;
/// Maximum number of frames in one system call. Each needs two buffers, and the kernel accepts
/// 1,024.
const SEND_FRAMES: usize = 128;
/// A read buffer above this size is released when it is empty.
const IN_BYTES_KEPT: usize = 16 * 1024;

/// The purpose of a connection.
#[derive(Debug)]
pub(crate) enum Role {
    /// The greeting is missing.
    New,
    /// Greeted, without a purpose.
    Ready,
    /// A client of a shell.
    Shell(ShellClient),
    Exec(u64),
    /// A client of a terminal.
    Terminal(Box<TerminalClient>),
    Process(Follower),
    /// Runs code in a context.
    Context(u64),
    Watch,
}

/// A connection that is a client of a shell.
#[derive(Debug)]
pub(crate) struct ShellClient {
    /// The number of the shell.
    pub(crate) shell: u64,
    /// The commands that the client sees.
    pub(crate) view: LogFilter,
    /// The client's position in the log.
    pub(crate) cursor: LogCursor,
    /// Whether `Attached` was sent to the client.
    pub(crate) attach_reported: bool,
    /// This client's request opened the shell.
    pub(crate) opened_shell: bool,
    /// When the client last read bytes or had read everything.
    pub(crate) last_progress: Instant,
}

/// A connection of a server: its socket, its input, and its unsent data.
#[derive(Debug)]
pub(crate) struct Conn {
    pub(crate) fd: OwnedFd,
    /// The purpose of the connection.
    pub(crate) role: Role,
    /// The connection is being closed. Frames that were already received are still handled.
    pub(crate) closing: bool,
    /// Reading is paused until the command has read its earlier input.
    pub(crate) input_paused: bool,
    id: u64,
    /// The input may contain another complete frame.
    frame_deferred: bool,
    input: BytesMut,
    queue: Vec<u8>,
    queue_sent: usize,
    blocked: bool,
    registered: EventFlags,
}

impl Conn {
    /// A new connection, which is already registered for reading.
    #[must_use]
    pub(crate) fn new(id: u64, fd: OwnedFd) -> Self {
        Self {
            fd,
            role: Role::New,
            closing: false,
            input_paused: false,
            id,
            frame_deferred: false,
            input: BytesMut::new(),
            queue: Vec::new(),
            queue_sent: 0,
            blocked: false,
            registered: EventFlags::IN,
        }
    }

    /// Reads once. Returns `false` if the peer has disconnected.
    pub(crate) fn receive(&mut self, scratch: &mut Vec<u8>) -> bool {
        scratch.clear();
        let into = rustix::buffer::spare_capacity(scratch);
        match rustix::net::recv(&self.fd, into, RecvFlags::DONTWAIT) {
            Ok(_) if scratch.is_empty() => false,
            Ok(_) => {
                self.input.extend_from_slice(scratch);
                true
            }
            Err(Errno::AGAIN | Errno::INTR) => true,
            Err(_) => false,
        }
    }

    /// The next frame; `None` if there is none yet or reading is paused.
    ///
    /// # Errors
    /// See [`frame::next`]. The connection must be closed.
    pub(crate) fn next_frame(&mut self) -> Result<Option<Frame>, FrameError> {
        if self.input_paused || self.queued_bytes() > OUT_BYTES_MAX && !self.closing {
            self.frame_deferred = true;
            return Ok(None);
        }
        let frame = frame::next(&mut self.input, SERVER_FRAME_BYTES_MAX)?;
        if self.input.is_empty() && self.input.capacity() > IN_BYTES_KEPT {
            self.input = BytesMut::new();
        }
        Ok(frame)
    }

    /// Whether deferred frames can be handled now. Returns true once.
    pub(crate) fn take_resumable(&mut self) -> bool {
        let may = self.frame_deferred && !self.input_paused && self.queued_bytes() <= OUT_BYTES_MAX;
        self.frame_deferred &= !may;
        may
    }

    /// Takes the received and unhandled input.
    pub(crate) fn take_input(&mut self) -> BytesMut {
        std::mem::take(&mut self.input)
    }

    /// Amount of unsent data, in bytes.
    #[must_use]
    pub(crate) fn queued_bytes(&self) -> usize {
        self.queue.len() - self.queue_sent
    }

    pub(crate) fn queue_message(&mut self, message: &AgentResponse) {
        frame::put(&mut self.queue, message);
    }

    /// Queues a data frame.
    pub(crate) fn queue_data(&mut self, stream: u8, offset: u64, bytes: &[u8]) {
        frame::put_data_head(&mut self.queue, stream, offset, "", bytes.len());
        self.queue.extend_from_slice(bytes);
    }

    /// Sends a data frame as far as the socket accepts it and queues the rest. Requires an empty
    /// queue, unless the caller accounts for it.
    ///
    /// # Errors
    /// The peer has disconnected.
    pub(crate) fn send_data(&mut self, stream: u8, offset: u64, bytes: &[u8]) -> Result<(), Errno> {
        frame::put_data_head(&mut self.queue, stream, offset, "", bytes.len());
        let queued = self.queued_bytes();
        let pieces = [IoSlice::new(&self.queue[self.queue_sent..]), IoSlice::new(bytes)];
        let count = send(&self.fd, &pieces)?;
        if count < queued {
            self.queue_sent += count;
            self.queue.extend_from_slice(bytes);
        } else {
            self.queue.clear();
            self.queue_sent = 0;
            self.queue.extend_from_slice(&bytes[count - queued..]);
        }
        Ok(())
    }

    /// Sends the queue and a message with a descriptor. The peer must be reading.
    ///
    /// # Errors
    /// The peer has disconnected or does not read.
    pub(crate) fn send_with_fd(
        &mut self,
        message: &AgentResponse,
        fd: &OwnedFd,
    ) -> Result<(), Errno> {
        if !self.flush()? {
            return Err(Errno::AGAIN);
        }
        let mut bytes = Vec::new();
        frame::put(&mut bytes, message);
        let fds = [fd.as_fd()];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut rights = SendAncillaryBuffer::new(&mut space);
        rights.push(SendAncillaryMessage::ScmRights(&fds));
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        let count = rustix::net::sendmsg(&self.fd, &[IoSlice::new(&bytes)], &mut rights, flags)?;
        // A few bytes in an empty socket buffer are always accepted completely.
        if count == bytes.len() { Ok(()) } else { Err(Errno::AGAIN) }
    }

    /// Sends the queue. Returns `false` if the socket is full.
    ///
    /// # Errors
    /// The peer has disconnected.
    pub(crate) fn flush(&mut self) -> Result<bool, Errno> {
        while self.queued_bytes() > 0 {
            let count = send(&self.fd, &[IoSlice::new(&self.queue[self.queue_sent..])])?;
            self.queue_sent += count;
            if count == 0 {
                self.blocked = true;
                return Ok(false);
            }
        }
        self.queue.clear();
        self.queue_sent = 0;
        if self.queue.capacity() > OUT_BYTES_MAX {
            self.queue = Vec::new();
        }
        self.blocked = false;
        Ok(true)
    }

    /// Sends new entries of the log to this client, without copying the output.
    ///
    /// # Errors
    /// The peer has disconnected.
    pub(crate) fn pump(&mut self, log: &ShellLog, now: Instant) -> Result<(), Errno> {
        loop {
            if !matches!(&self.role, Role::Shell(client) if client.attach_reported) {
                return self.flush().map(|_| ());
            }
            if self.queued_bytes() > SEND_BYTES && !self.flush()? {
                return Ok(());
            }
            if !self.pump_once(log, now)? {
                return Ok(());
            }
        }
    }

    /// One round of [`Conn::pump`]. Returns `false` at the end of the log or if the socket is full.
    fn pump_once(&mut self, log: &ShellLog, now: Instant) -> Result<bool, Errno> {
        let Role::Shell(client) = &mut self.role else { return Ok(false) };
        let batch = Batch::take(log, client, &mut self.queue);
        if batch.frames.is_empty() && self.queue.len() == self.queue_sent {
            client.cursor = batch.end;
            client.last_progress = now;
            self.blocked = false;
            return Ok(false);
        }
        let pieces = batch.pieces(&self.queue, self.queue_sent);
        let count = send(&self.fd, &pieces)?;
        if count > 0 {
            client.last_progress = now;
        }
        self.blocked =
            batch.record_sent(count, &mut self.queue, &mut self.queue_sent, &mut client.cursor);
        Ok(!self.blocked)
    }

    /// The terminal client of this connection, if it is one.
    #[must_use]
    pub(crate) fn terminal_client(&self) -> Option<&TerminalClient> {
        match &self.role {
            Role::Terminal(client) => Some(client),
            _ => None,
        }
    }

    pub(crate) fn terminal_client_mut(&mut self) -> Option<&mut TerminalClient> {
        match &mut self.role {
            Role::Terminal(client) => Some(client),
            _ => None,
        }
    }

    /// Whether the socket was full at the last attempt.
    #[must_use]
    pub(crate) fn is_blocked(&self) -> bool {
        self.blocked
    }

    /// Sends the queue, and then data frames directly from where their bytes are, as far as the
    /// socket accepts them. Returns whether it accepted anything, and how many frames were started.
    /// The rest of the last one is queued.
    ///
    /// # Errors
    /// The peer has disconnected.
    pub(crate) fn send_frames(
        &mut self,
        stream: u8,
        frames: &[(u64, &[u8])],
    ) -> Result<(bool, usize), Errno> {
        let mut batch = Batch { queued: self.queue.len(), frames: Vec::new(), end: frames.len() };
        for (number, (offset, bytes)) in frames.iter().enumerate() {
            frame::put_data_head(&mut self.queue, stream, *offset, "", bytes.len());
            batch.frames.push(Piece { head: self.queue.len(), bytes, place: number + 1 });
        }
        let count = send(&self.fd, &batch.pieces(&self.queue, self.queue_sent))?;
        let mut begun = 0;
        self.blocked = batch.record_sent(count, &mut self.queue, &mut self.queue_sent, &mut begun);
        Ok((count > 0, begun))
    }

    /// Updates the events that the connection waits for.
    pub(crate) fn update_interest(&mut self, poll: &Poll) {
        let mut want = EventFlags::empty();
        want.set(EventFlags::IN, !self.input_paused && self.queued_bytes() <= OUT_BYTES_MAX);
        want.set(EventFlags::OUT, self.blocked || self.queued_bytes() > 0);
        if want != self.registered {
            self.registered = want;
            poll.modify(&self.fd, EventSource::Conn, self.id, want);
        }
    }
}

/// Frames on their way from a log to a socket. Headers and messages are in the connection's queue,
/// and the output stays in the log.
struct Batch<'a, P> {
    queued: usize,
    frames: Vec<Piece<'a, P>>,
    /// The client's position after all frames and after entries that it does not see.
    end: P,
}

struct Piece<'a, P> {
    /// End of its header in the queue.
    head: usize,
    bytes: &'a [u8],
    /// The client's position after it.
    place: P,
}

impl<'a> Batch<'a, LogCursor> {
    fn take(log: &'a ShellLog, client: &ShellClient, queue: &mut Vec<u8>) -> Self {
        let mut batch = Self { queued: queue.len(), frames: Vec::new(), end: client.cursor };
        let mut place = client.cursor;
        let mut total = 0;
        while total < SEND_BYTES && batch.frames.len() < SEND_FRAMES {
            let bytes = match log.next(&mut place, &client.view) {
                Some(Item::Output { stream, offset, id, bytes }) => {
                    frame::put_data_head(queue, stream, offset, &id, bytes.len());
                    bytes
                }
                Some(Item::Message(response)) => {
                    frame::put(queue, &response);
                    &[]
                }
                None => break,
            };
            total += bytes.len();
            batch.frames.push(Piece { head: queue.len(), bytes, place });
        }
        batch.end = place;
        batch
    }
}

impl<'a, P: Copy> Batch<'a, P> {
    fn pieces<'b>(&self, queue: &'b [u8], queue_sent: usize) -> Vec<IoSlice<'b>>
    where
        'a: 'b,
    {
        let mut pieces = Vec::with_capacity(self.frames.len() * 2 + 1);
        let mut from = queue_sent;
        for piece in &self.frames {
            if !piece.bytes.is_empty() {
                pieces.push(IoSlice::new(&queue[from..piece.head]));
                pieces.push(IoSlice::new(piece.bytes));
                from = piece.head;
            }
        }
        if from < queue.len() {
            pieces.push(IoSlice::new(&queue[from..]));
        }
        pieces
    }

    /// Handles a send of `count` bytes: moves the client past every started frame and queues the
    /// rest of the last one. Returns true if something was left.
    fn record_sent(
        &self,
        count: usize,
        queue: &mut Vec<u8>,
        queue_sent: &mut usize,
        place: &mut P,
    ) -> bool {
        let mut left = count;
        let mut from = *queue_sent;
        let mut rest = Vec::new();
        let old = self.queued - from;
        if left < old {
            rest.extend_from_slice(&queue[from + left..self.queued]);
            left = 0;
        } else {
            left -= old;
        }
        from = self.queued;
        let mut whole = rest.is_empty();
        for piece in &self.frames {
            let head = &queue[from..piece.head];
            let length = head.len() + piece.bytes.len();
            if !whole || left == 0 {
                whole = false;
                break;
            }
            *place = piece.place;
            if left < length {
                rest.extend_from_slice(&head[left.min(head.len())..]);
                rest.extend_from_slice(&piece.bytes[left.saturating_sub(head.len())..]);
                whole = false;
                break;
            }
            left -= length;
            from = piece.head;
        }
        if whole {
            *place = self.end;
        }
        queue.clear();
        queue.extend_from_slice(&rest);
        *queue_sent = 0;
        !whole
    }
}

/// The number of bytes that the socket accepted; 0 if it is full.
fn send(fd: &OwnedFd, pieces: &[IoSlice<'_>]) -> Result<usize, Errno> {
    let mut none = SendAncillaryBuffer::default();
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    match rustix::net::sendmsg(fd, pieces, &mut none, flags) {
        Err(Errno::AGAIN | Errno::INTR) => Ok(0),
        result => result,
    }
}
