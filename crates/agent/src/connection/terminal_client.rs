//! A client of a terminal: a position in its output, and nothing else.

use isolet_vt::ClientInput;
use isolet_wire::terminal::{Attach, CLIENT_BYTES_MAX, Client, Since, Size};
use std::rc::Rc;
use std::time::{Duration, Instant};

/// A client that has read nothing for this long is not waited for.
const STALL: Duration = Duration::from_millis(50);

/// A connection that is a client of a terminal: its window, and how far it has read.
#[derive(Debug)]
pub(crate) struct TerminalClient {
    /// Which terminal.
    pub(crate) terminal: u64,
    /// Counts the terminal's clients.
    pub(crate) number: u32,
    /// How others see it.
    pub(crate) name: String,
    /// It may only look.
    pub(crate) view_only: bool,
    /// It is told of sizes and of others.
    pub(crate) events: bool,
    /// Others are not told of it.
    pub(crate) hidden: bool,
    /// Its window.
    pub(crate) size: Option<Size>,
    /// The terminal was opened for it.
    pub(crate) fresh: bool,
    /// Where it wants to go on.
    pub(crate) since: Option<Since>,
    /// What it is sent at present.
    pub(crate) stage: ClientStage,
    /// The offset at which it is sent `TerminalReady`.
    pub(crate) ready_at: Option<u64>,
    /// The number of the next change of size that it is to be sent.
    pub(crate) next_resize: u64,
    /// The size that it was sent last.
    pub(crate) reported_size: Size,
    /// The version of the list of clients that it was sent last.
    pub(crate) reported_clients: u64,
    /// When it last read bytes or had read everything.
    pub(crate) last_progress: Instant,
    /// It has read everything.
    pub(crate) caught_up: bool,
    /// What it is typing.
    pub(crate) input: ClientInput,
}

/// What a client is sent.
#[derive(Debug)]
pub(crate) enum ClientStage {
    /// `TerminalAttached` was not sent yet.
    Attaching,
    /// A snapshot is on its way.
    Snapshot {
        /// All of it.
        bytes: Rc<[u8]>,
        /// Bytes of it that were sent.
        sent: usize,
        /// Where output goes on behind it.
        offset: u64,
    },
    /// It has all output before this offset.
    Live(u64),
    /// It was sent the terminal's exit.
    Ended,
}

impl TerminalClient {
    /// A client that has just asked to attach.
    #[must_use]
    pub(crate) fn new(terminal: u64, number: u32, attach: Attach, now: Instant) -> Self {
        let mut name = attach.client;
        name.truncate(name.floor_char_boundary(CLIENT_BYTES_MAX));
        Self {
            terminal,
            number,
            name,
            view_only: attach.view,
            events: attach.events,
            hidden: attach.hidden,
            size: attach.size,
            fresh: false,
            since: attach.since,
            stage: ClientStage::Attaching,
            ready_at: None,
            next_resize: 0,
            reported_size: Size::default(),
            reported_clients: 0,
            last_progress: now,
            caught_up: true,
            input: ClientInput::default(),
        }
    }

    /// The offset of the first byte of output that it does not have.
    #[must_use]
    pub(crate) fn offset(&self) -> Option<u64> {
        match &self.stage {
            ClientStage::Snapshot { offset, .. } | ClientStage::Live(offset) => Some(*offset),
            ClientStage::Attaching | ClientStage::Ended => None,
        }
    }

    /// It was told the end.
    #[must_use]
    pub(crate) fn has_ended(&self) -> bool {
        matches!(self.stage, ClientStage::Ended)
    }

    /// Until when it is waited for, while it takes nothing.
    #[must_use]
    pub(crate) fn stall_deadline(&self) -> Instant {
        self.last_progress + STALL
    }

    /// It may type.
    #[must_use]
    pub(crate) fn may_type(&self) -> bool {
        !self.view_only && !self.hidden
    }

    /// It may set the terminal's size.
    #[must_use]
    pub(crate) fn may_resize(&self) -> bool {
        self.may_type() && self.size.is_some()
    }

    /// As others are told of it.
    #[must_use]
    pub(crate) fn describe(&self, typing: bool) -> Client {
        Client {
            number: self.number,
            name: self.name.clone(),
            view: self.view_only,
            size: self.size,
            typing,
        }
    }
}
