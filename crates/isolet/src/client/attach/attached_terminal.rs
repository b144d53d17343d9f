//! The terminal that this client is attached to: how much of its output is drawn, and how to attach again
//! at that position.

use super::socket::TerminalSocket;
use super::tty::Tty;
use crate::client::ApiClient;
use anyhow::Result;
use bytes::Bytes;
use hyper::Method;
use serde_json::Value;
use std::fmt;

/// The terminal no longer exists, and why.
#[derive(Debug)]
pub(super) struct TerminalGone(String);

impl fmt::Display for TerminalGone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for TerminalGone {}

/// A terminal, and the position up to which it is drawn.
///
/// More than 12 fields: what the server reports of the terminal, and what an attach at the same
/// position needs.
pub(super) struct AttachedTerminal {
    id: String,
    session: String,
    /// The part of the query that each attach has: the mode and the name.
    common_query: String,
    terminal: String,
    offset: u64,
    /// Bytes of a snapshot that are still to come, and whether it has begun.
    snapshot_left: u64,
    snapshot_begun: bool,
    /// The screen shows a line of this program, so the next attach must redraw it.
    needs_redraw: bool,
    last: Option<u8>,
    size: (u16, u16),
    others: usize,
    /// This client's number among them, and whether it only looks: a key may allow no more.
    number: u64,
    view_only: bool,
}

impl AttachedTerminal {
    /// Attached for the first time, as the server says.
    pub(super) fn new(id: &str, session: &str, common_query: &str, attached: &Value) -> Self {
        let mut attached_terminal = Self {
            id: id.to_owned(),
            session: session.to_owned(),
            common_query: common_query.to_owned(),
            terminal: String::new(),
            offset: 0,
            snapshot_left: 0,
            snapshot_begun: false,
            needs_redraw: false,
            last: None,
            size: (0, 0),
            others: 0,
            number: 0,
            view_only: false,
        };
        attached_terminal.attached(attached);
        attached_terminal
    }

    /// Attached, from the first time on.
    pub(super) fn attached(&mut self, message: &Value) {
        self.terminal = text(&message["terminal"]);
        self.snapshot_left = 0;
        self.needs_redraw = false;
        self.number = message["client"].as_u64().unwrap_or(0);
        self.size = window(message);
    }

    /// The next attach must redraw the screen.
    pub(super) fn require_redraw(&mut self) {
        self.needs_redraw = true;
    }

    /// Whether the server made this client view-only.
    pub(super) fn is_view_only(&self) -> bool {
        self.view_only
    }

    /// Whether the cursor is behind printed text.
    pub(super) fn line_open(&self) -> bool {
        self.last.is_some_and(|last| last != b'\n')
    }

    /// The terminal's size, if another client set it.
    pub(super) fn foreign_size(&self, window: (u16, u16)) -> Option<(u16, u16)> {
        (self.others > 0 && self.size != window && self.size.0 > 0).then_some(self.size)
    }

    /// Handles a frame that announces the position of the following bytes.
    pub(super) fn apply(&mut self, message: &Value) {
        match message["type"].as_str().unwrap_or_default() {
            "snapshot" => {
                self.snapshot_left = message["bytes"].as_u64().unwrap_or(0);
                self.snapshot_begun = false;
            }
            "at" => {
                self.terminal = text(&message["terminal"]);
                self.offset = message["offset"].as_u64().unwrap_or(0);
            }
            "size" => self.size = window(message),
            "clients" => {
                let all = message["clients"].as_array().map(Vec::as_slice).unwrap_or_default();
                self.others = all.len().saturating_sub(1);
                let own = all.iter().find(|one| one["client"] == self.number);
                self.view_only = own.is_some_and(|own| own["mode"] == "view");
            }
            _ => {}
        }
    }

    /// Counts received bytes, and returns the bytes to draw.
    pub(super) fn output(&mut self, bytes: Bytes) -> Bytes {
        self.last = bytes.last().copied().or(self.last);
        let count = bytes.len() as u64;
        self.offset += count.saturating_sub(self.snapshot_left);
        if self.snapshot_left == 0 {
            return bytes;
        }
        self.snapshot_left = self.snapshot_left.saturating_sub(count);
        if std::mem::replace(&mut self.snapshot_begun, true) {
            return bytes;
        }
        // A full reset would also erase lines of the user's own terminal.
        match bytes.strip_prefix(b"\x1bc") {
            Some(rest) => [Tty::soft_reset().as_bytes(), rest].concat().into(),
            None => bytes,
        }
    }

    /// The query that attaches again, with a window of this size.
    pub(super) fn reattach(&self, size: (u16, u16)) -> Reattach {
        let (cols, rows) = size;
        let Self { id, session, common_query, terminal, offset, .. } = self;
        let mut query = format!("&session={session}&cols={cols}&rows={rows}{common_query}");
        // A snapshot that arrived in part was not drawn completely.
        if !self.needs_redraw && self.snapshot_left == 0 {
            query.push_str(&format!("&terminal={terminal}&since={offset}"));
        }
        Reattach { id: id.clone(), session: session.clone(), terminal: terminal.clone(), query }
    }
}

/// A request to attach again after the connection was lost.
pub(super) struct Reattach {
    id: String,
    session: String,
    terminal: String,
    query: String,
}

impl Reattach {
    /// Attaches again.
    ///
    /// # Errors
    /// [`TerminalGone`] when the terminal no longer exists: an attach would open a new one, and create a
    /// sandbox for it.
    pub(super) async fn open(self, server: &ApiClient) -> Result<(TerminalSocket, Value)> {
        let Self { id, session, terminal, query } = self;
        let path = format!("/v1/sandboxes/{id}/terminals");
        let (list, _) = server.json(Method::GET, &path).await?;
        let there = |one: &Value| one["terminal"] == *terminal;
        if !list.as_array().is_some_and(|list| list.iter().any(there)) {
            let gone = "the terminal ended while the connection was lost";
            let next = format!("isolet attach {id} --session {session}");
            return Err(TerminalGone(format!("{gone}; to open a new one: {next}")).into());
        }
        let mut socket = TerminalSocket::open(server, &id, &query).await?;
        let attached = socket.attached().await?;
        Ok((socket, attached))
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn window(message: &Value) -> (u16, u16) {
    let of = |name: &str| message[name].as_u64().and_then(|n| u16::try_from(n).ok()).unwrap_or(0);
    (of("cols"), of("rows"))
}
