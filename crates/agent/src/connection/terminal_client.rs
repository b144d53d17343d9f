//! A client of a terminal: a place in what it has said, and nothing else.

use isolet_vt::ClientInput;
use isolet_wire::terminal::{Attach, CLIENT_BYTES_MAX, Client, Since, Size};
use std::rc::Rc;
use std::time::{Duration, Instant};

/// A client that has taken nothing for so long is not waited for.
const STALL: Duration = Duration::from_millis(50);

/// See the module's page.
#[derive(Debug)]
pub(crate) struct TerminalClient {
    /// Which terminal.
    pub(crate) terminal: u64,
    /// Counts the terminal's clients.
    pub(crate) number: u32,
    /// How others see it.
    pub(crate) name: String,
    /// It only looks.
    pub(crate) view: bool,
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
    /// How far it is.
    pub(crate) stage: Stage,
    /// `TerminalReady` is to be said when it is so far.
    pub(crate) ready: Option<u64>,
    /// The next change of size that it is to be told.
    pub(crate) mark: u64,
    /// The size that it was told last.
    pub(crate) told: Size,
    /// Which list of clients it was told last.
    pub(crate) presence: u64,
    /// When it last took bytes or needed none.
    pub(crate) moved: Instant,
    /// It needs none.
    pub(crate) idle: bool,
    /// What it is typing.
    pub(crate) input: ClientInput,
}

/// How far a client is.
#[derive(Debug)]
pub(crate) enum Stage {
    /// `TerminalAttached` was not said.
    Waiting,
    /// A snapshot is on its way.
    Drawing {
        /// All of it.
        bytes: Rc<[u8]>,
        /// How much of it went out.
        sent: usize,
        /// Where output goes on behind it.
        offset: u64,
    },
    /// It has all output before this offset.
    Live(u64),
    /// It was told the end.
    Over,
}

impl TerminalClient {
    /// Who asks to be one.
    #[must_use]
    pub(crate) fn new(terminal: u64, number: u32, attach: Attach, now: Instant) -> Self {
        let mut name = attach.client;
        name.truncate(name.floor_char_boundary(CLIENT_BYTES_MAX));
        Self {
            terminal,
            number,
            name,
            view: attach.view,
            events: attach.events,
            hidden: attach.hidden,
            size: attach.size,
            fresh: false,
            since: attach.since,
            stage: Stage::Waiting,
            ready: None,
            mark: 0,
            told: Size::default(),
            presence: 0,
            moved: now,
            idle: true,
            input: ClientInput::default(),
        }
    }

    /// The offset of the first byte of output that it does not have.
    #[must_use]
    pub(crate) fn offset(&self) -> Option<u64> {
        match &self.stage {
            Stage::Drawing { offset, .. } | Stage::Live(offset) => Some(*offset),
            Stage::Waiting | Stage::Over => None,
        }
    }

    /// It was told the end.
    #[must_use]
    pub(crate) fn over(&self) -> bool {
        matches!(self.stage, Stage::Over)
    }

    /// Until when it is waited for, while it takes nothing.
    #[must_use]
    pub(crate) fn patience(&self) -> Instant {
        self.moved + STALL
    }

    /// It may type.
    #[must_use]
    pub(crate) fn types(&self) -> bool {
        !self.view && !self.hidden
    }

    /// It may set the terminal's size.
    #[must_use]
    pub(crate) fn sizes(&self) -> bool {
        self.types() && self.size.is_some()
    }

    /// As others are told of it.
    #[must_use]
    pub(crate) fn told(&self, typing: bool) -> Client {
        Client {
            number: self.number,
            name: self.name.clone(),
            view: self.view,
            size: self.size,
            typing,
        }
    }
}
