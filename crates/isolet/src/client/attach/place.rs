//! Which terminal somebody is attached to, how much of it is drawn, and how to come back to that.

use super::{link::Link, tty::Tty};
use crate::client::Server;
use anyhow::Result;
use bytes::Bytes;
use hyper::Method;
use serde_json::Value;
use std::fmt;

/// There is nothing to come back to, and why.
#[derive(Debug)]
pub(super) struct Gone(String);

impl fmt::Display for Gone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Gone {}

/// A terminal, and what of it stands on the screen.
pub(super) struct Place {
    id: String,
    session: String,
    /// What every attach asks for: the mode, the name.
    always: String,
    terminal: String,
    offset: u64,
    /// Bytes of a snapshot that are still to come, and whether it has begun.
    snapshot: u64,
    begun: bool,
    /// The screen shows something that the terminal did not say.
    spoiled: bool,
    last: Option<u8>,
    size: (u16, u16),
    others: usize,
    /// This client's number among them, and whether it only looks: a key may allow no more.
    number: u64,
    views: bool,
}

impl Place {
    /// Attached for the first time, as the server says.
    pub(super) fn new(id: &str, session: &str, always: &str, attached: &Value) -> Self {
        let mut place = Self {
            id: id.to_owned(),
            session: session.to_owned(),
            always: always.to_owned(),
            terminal: String::new(),
            offset: 0,
            snapshot: 0,
            begun: false,
            spoiled: false,
            last: None,
            size: (0, 0),
            others: 0,
            number: 0,
            views: false,
        };
        place.attached(attached);
        place
    }

    /// Attached, from the first time on.
    pub(super) fn attached(&mut self, said: &Value) {
        self.terminal = text(&said["terminal"]);
        (self.snapshot, self.spoiled) = (0, false);
        self.number = said["client"].as_u64().unwrap_or(0);
        self.size = window(said);
    }

    /// The screen must be drawn anew at the next attach.
    pub(super) fn spoil(&mut self) {
        self.spoiled = true;
    }

    /// Whether the server lets this client look only.
    pub(super) fn views(&self) -> bool {
        self.views
    }

    /// Whether the cursor stands behind something.
    pub(super) fn line_open(&self) -> bool {
        self.last.is_some_and(|last| last != b'\n')
    }

    /// The terminal's size, where it is another client's and not this window's.
    pub(super) fn foreign(&self, window: (u16, u16)) -> Option<(u16, u16)> {
        (self.others > 0 && self.size != window && self.size.0 > 0).then_some(self.size)
    }

    /// Takes a frame that says where the bytes after it belong.
    pub(super) fn said(&mut self, said: &Value) {
        match said["type"].as_str().unwrap_or_default() {
            "snapshot" => {
                self.snapshot = said["bytes"].as_u64().unwrap_or(0);
                self.begun = false;
            }
            "at" => {
                self.terminal = text(&said["terminal"]);
                self.offset = said["offset"].as_u64().unwrap_or(0);
            }
            "size" => self.size = window(said),
            "clients" => {
                let all = said["clients"].as_array().map(Vec::as_slice).unwrap_or_default();
                self.others = all.len().saturating_sub(1);
                let own = all.iter().find(|one| one["client"] == self.number);
                self.views = own.is_some_and(|own| own["mode"] == "view");
            }
            _ => {}
        }
    }

    /// Counts what came, and gives what is to be drawn for it.
    pub(super) fn bytes(&mut self, bytes: Bytes) -> Bytes {
        self.last = bytes.last().copied().or(self.last);
        let count = bytes.len() as u64;
        self.offset += count.saturating_sub(self.snapshot);
        if self.snapshot == 0 {
            return bytes;
        }
        self.snapshot = self.snapshot.saturating_sub(count);
        if std::mem::replace(&mut self.begun, true) {
            return bytes;
        }
        // Only its own lines are a terminal's to take away.
        match bytes.strip_prefix(b"\x1bc") {
            Some(rest) => [Tty::anew().as_bytes(), rest].concat().into(),
            None => bytes,
        }
    }

    /// How to come back to it, with a window of this size.
    pub(super) fn back(&self, (cols, rows): (u16, u16)) -> Back {
        let Self { id, session, always, terminal, offset, .. } = self;
        let mut query = format!("&session={session}&cols={cols}&rows={rows}{always}");
        // Within a snapshot nothing is drawn to the end.
        if !self.spoiled && self.snapshot == 0 {
            query.push_str(&format!("&terminal={terminal}&since={offset}"));
        }
        Back { id: id.clone(), session: session.clone(), terminal: terminal.clone(), query }
    }
}

/// The way back to a terminal that was lost.
pub(super) struct Back {
    id: String,
    session: String,
    terminal: String,
    query: String,
}

impl Back {
    /// Attaches again.
    ///
    /// # Errors
    /// [`Gone`] when the terminal is no more: an attach would make a fresh one, and a sandbox for
    /// it, which nobody asked for.
    pub(super) async fn open(self, server: &Server) -> Result<(Link, Value)> {
        let Self { id, session, terminal, query } = self;
        let path = format!("/v1/sandboxes/{id}/terminals");
        let (list, _) = server.json(Method::GET, &path).await?;
        let there = |one: &Value| one["terminal"] == *terminal;
        if !list.as_array().is_some_and(|list| list.iter().any(there)) {
            let gone = "the terminal has ended while the connection was lost";
            let next = format!("isolet attach {id} --session {session}");
            return Err(Gone(format!("{gone}; a fresh one: {next}")).into());
        }
        let mut link = Link::open(server, &id, &query).await?;
        let attached = link.attached().await?;
        Ok((link, attached))
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// Columns and rows.
fn window(said: &Value) -> (u16, u16) {
    let of = |name: &str| said[name].as_u64().and_then(|n| u16::try_from(n).ok()).unwrap_or(0);
    (of("cols"), of("rows"))
}
