//! A client of a terminal, which is only a position in its output.

use isolet_vt::ClientInput;
use isolet_wire::terminal::{
    AttachTerminal, CLIENT_BYTES_MAX, Size, TerminalClientInfo, TerminalPosition,
};
use std::rc::Rc;
use std::time::{Duration, Instant};

/// A client that has read nothing for this long is not waited for.
const STALL: Duration = Duration::from_millis(50);

/// A connection that is a client of a terminal: its window and its position. It has many fields
/// because each kind of message to the client needs the last value that was sent.
#[derive(Debug)]
pub(crate) struct TerminalClient {
    /// The number of the terminal.
    pub(crate) terminal: u64,
    /// Number of the client in its terminal.
    pub(crate) number: u32,
    /// The name that other clients see.
    pub(crate) name: String,
    /// The client may only watch.
    pub(crate) view_only: bool,
    /// The client receives an event when the size or the set of attached clients changes.
    pub(crate) events: bool,
    /// Other clients do not see this client.
    pub(crate) hidden: bool,
    /// The size of the client's window.
    pub(crate) size: Option<Size>,
    /// This client's request opened the terminal.
    pub(crate) fresh: bool,
    /// Where the client stopped reading.
    pub(crate) since: Option<TerminalPosition>,
    /// What the client currently receives.
    pub(crate) stage: ClientStage,
    /// The offset at which the client receives `TerminalReady`.
    pub(crate) ready_at: Option<u64>,
    /// The number of the next size change to send.
    pub(crate) next_resize: u64,
    /// The size that was sent last.
    pub(crate) reported_size: Size,
    /// The version of the list of clients that was sent last.
    pub(crate) reported_clients: u64,
    /// When the client last read bytes or had read everything.
    pub(crate) last_progress: Instant,
    /// The client has read everything.
    pub(crate) caught_up: bool,
    /// Parses the client's input.
    pub(crate) input: ClientInput,
}

/// What a client currently receives.
#[derive(Debug)]
pub(crate) enum ClientStage {
    /// `TerminalAttached` has not been sent yet.
    Attaching,
    Snapshot {
        bytes: Rc<[u8]>,
        /// Number of bytes that were sent.
        sent: usize,
        /// Offset at which the output continues.
        offset: u64,
    },
    /// Output from this offset on.
    Live(u64),
    /// The client has received the terminal's exit.
    Ended,
}

impl TerminalClient {
    /// A client that has just requested to attach.
    #[must_use]
    pub(crate) fn new(terminal: u64, number: u32, attach: AttachTerminal, now: Instant) -> Self {
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

    /// Offset of the first byte of output that the client lacks.
    #[must_use]
    pub(crate) fn offset(&self) -> Option<u64> {
        match &self.stage {
            ClientStage::Snapshot { offset, .. } | ClientStage::Live(offset) => Some(*offset),
            ClientStage::Attaching | ClientStage::Ended => None,
        }
    }

    /// Whether the client has received the terminal's exit.
    #[must_use]
    pub(crate) fn has_ended(&self) -> bool {
        matches!(self.stage, ClientStage::Ended)
    }

    /// Until when a client that reads nothing is waited for.
    #[must_use]
    pub(crate) fn stall_deadline(&self) -> Instant {
        self.last_progress + STALL
    }

    /// Whether the client may type.
    #[must_use]
    pub(crate) fn may_type(&self) -> bool {
        !self.view_only && !self.hidden
    }

    /// Whether the client may determine the terminal's size.
    #[must_use]
    pub(crate) fn may_resize(&self) -> bool {
        self.may_type() && self.size.is_some()
    }

    /// The description for other clients.
    #[must_use]
    pub(crate) fn describe(&self, typing: bool) -> TerminalClientInfo {
        TerminalClientInfo {
            number: self.number,
            name: self.name.clone(),
            view: self.view_only,
            size: self.size,
            typing,
        }
    }
}
