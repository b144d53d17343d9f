//! The model of one terminal: what it shows, kept beside the bytes, so that a client who comes
//! back, or was too slow, gets the whole screen at once. Knows nothing of clients and PTYs.
//!
//! ```text
//! bytes ─ scan ─┬─ text ──────────▶ model ── snapshot ─▶ bytes that draw it
//!               └─ sequences ─ act ─┘  └── ask ─▶ questions, and answers to them
//! ```
//!
//! All memory is bounded, whatever a program writes: lines and cells of the history, links,
//! marks, titles, sequences without an end. A fault within the model never reaches the agent.

mod act;
mod ask;
mod buffer;
mod cell;
mod csi;
mod line;
mod model;
mod modes;
mod osc;
mod pen;
pub(crate) mod questions;
mod resize;
mod scan;
mod sgr;
mod snapshot;
#[cfg(test)]
mod tests;
mod width;

pub(crate) use ask::Asked;
pub(crate) use questions::{Questions, Typist};

use csi::Csi;
use isolet_wire::terminal::{COLS_MAX, ROWS_MAX, Size};
use model::Model;
use scan::{Found, Kind};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Questions whose answers wait to be taken; more are not noted.
const ASKED_MAX: usize = 256;

/// A terminal's model.
#[derive(Debug)]
pub(crate) struct Screen {
    model: Model,
    /// What has come and does not stand in the model yet: the beginning of a sequence or of a
    /// character.
    held: Vec<u8>,
    /// The end of such a sequence is looked for; too much of it came to keep it.
    flood: Option<Kind>,
    asked: Vec<Asked>,
    last_question: u64,
    size: Size,
}

impl Screen {
    /// An empty screen.
    pub(crate) fn new(size: Size) -> Self {
        let size = cut(size);
        Self {
            model: Model::new(size),
            held: Vec::new(),
            flood: None,
            asked: Vec::new(),
            last_question: 0,
            size,
        }
    }

    /// Takes output; the first byte has the offset `at`.
    pub(crate) fn feed(&mut self, bytes: &[u8], at: u64) {
        let end = at + bytes.len() as u64;
        if self.held.is_empty() {
            return self.guard(|screen| screen.take(bytes, end));
        }
        let mut all = std::mem::take(&mut self.held);
        all.extend_from_slice(bytes);
        self.guard(|screen| screen.take(&all, end));
    }

    /// Another size. Programs hear of it by a signal and draw anew.
    pub(crate) fn resize(&mut self, size: Size) {
        let size = cut(size);
        if size == self.size {
            return;
        }
        self.size = size;
        self.guard(|screen| screen.model.resize(size));
    }

    /// The bytes that draw it on any terminal of its size; live output may follow. They begin
    /// with a full reset, and ask nothing.
    pub(crate) fn snapshot(&mut self) -> Vec<u8> {
        let mut out = Vec::new();
        self.guard(|screen| out = snapshot::draw(&screen.model));
        match self.flood {
            Some(kind) => out.extend_from_slice(kind.idle()),
            None => out.extend_from_slice(&self.tail()),
        }
        out
    }

    /// What is held, as a terminal may get it: nothing of a clipboard.
    fn tail(&self) -> Vec<u8> {
        match scan::sequence(&self.held) {
            Found::More(Kind::Osc) if self.held[2..].starts_with(b"52;") => {
                Kind::Osc.idle().to_vec()
            }
            _ => self.held.clone(),
        }
    }

    /// The title that its program has set: at most 256 bytes, without controls.
    pub(crate) fn title(&self) -> &str {
        &self.model.title
    }

    /// What was asked since the last call, in order, with the model's own answers.
    pub(crate) fn answers(&mut self) -> Vec<Asked> {
        std::mem::take(&mut self.asked)
    }

    /// The offset behind the last question; 0 when none was asked.
    pub(crate) const fn last_question(&self) -> u64 {
        self.last_question
    }

    /// Does something that must not take the agent down with it: a screen is only a picture, and
    /// an empty one is put in place of one that is broken.
    fn guard(&mut self, work: impl FnOnce(&mut Self)) {
        if catch_unwind(AssertUnwindSafe(|| work(self))).is_err() {
            let title = std::mem::take(&mut self.model.title);
            self.model = Model::new(self.size);
            self.model.set_title(&title);
            self.model.text(b"[the screen could not be kept]\r\n");
            self.held.clear();
            self.flood = None;
        }
    }

    /// Takes bytes from the beginning of something; behind the last one is the offset `end`.
    fn take(&mut self, bytes: &[u8], end: u64) {
        let mut at = 0;
        if let Some(kind) = self.flood {
            match scan::resume(kind, bytes) {
                Some(resumed) => at = resumed,
                None => return,
            }
            self.flood = None;
            self.model.part();
        }
        while at < bytes.len() {
            let start = scan::next(bytes, at);
            let (text, rest) = (&bytes[at..start], &bytes[start..]);
            let found =
                if rest.is_empty() { Found::More(Kind::Escape) } else { scan::sequence(rest) };
            match found {
                Found::More(_) => {
                    let kept = if rest.is_empty() { scan::whole(text) } else { text.len() };
                    self.model.text(&text[..kept]);
                    self.hold(&bytes[at + kept..]);
                    return;
                }
                Found::Flood(kind) => {
                    self.model.text(text);
                    if !kind.is_text() {
                        self.controls(rest);
                    }
                    self.flood = Some(kind);
                    return;
                }
                Found::Broken { end, controls } => {
                    self.model.text(text);
                    self.controls(&rest[..controls]);
                    self.model.part();
                    at = start + end;
                }
                Found::Whole { kind, body, end: next } => {
                    self.model.text(text);
                    let offset = end - (bytes.len() - start - next) as u64;
                    self.controls(&rest[..if kind.is_text() { body.start } else { body.end }]);
                    self.sequence(kind, &rest[body], offset);
                    at = start + next;
                }
            }
        }
    }

    /// Keeps what is not whole. Controls within a sequence are done at once, as terminals do.
    fn hold(&mut self, bytes: &[u8]) {
        let codes = matches!(scan::sequence(bytes), Found::More(Kind::Escape | Kind::Csi));
        self.held = bytes.to_vec();
        if codes {
            self.controls(bytes);
            self.held.retain(|byte| *byte >= 0x20 || *byte == scan::ESC);
        }
    }

    /// The control characters that stand within a sequence.
    fn controls(&mut self, bytes: &[u8]) {
        let controls = bytes.iter().filter(|byte| **byte < 0x20 && **byte != scan::ESC);
        controls.for_each(|byte| self.model.control(*byte));
    }

    /// Does what a whole sequence says; `offset` is behind it.
    fn sequence(&mut self, kind: Kind, body: &[u8], offset: u64) {
        match kind {
            Kind::Escape => {
                let body: Vec<u8> =
                    body.iter().copied().filter(|byte| (0x20..0x7f).contains(byte)).collect();
                if body == b"Z" {
                    return self.sequence(Kind::Csi, b"c", offset);
                }
                self.model.escape(&body);
            }
            Kind::Csi => {
                if let Some(csi) = Csi::read(body) {
                    self.model.csi(&csi);
                    let asked = ask::csi(&csi, &mut self.model);
                    self.note(asked, offset);
                }
            }
            Kind::Osc => {
                let asked = ask::osc(body, &self.model);
                self.model.osc(body);
                self.note(asked, offset);
            }
            Kind::Dcs => {
                let asked = ask::dcs(body);
                self.note(asked, offset);
            }
            Kind::Other => {}
        }
        self.model.part();
    }

    fn note(&mut self, asked: impl IntoIterator<Item = Asked>, offset: u64) {
        for asked in asked {
            self.last_question = offset;
            if self.asked.len() < ASKED_MAX {
                self.asked.push(asked);
            }
        }
    }
}

/// A size within the limits.
fn cut(size: Size) -> Size {
    Size { cols: size.cols.clamp(1, COLS_MAX), rows: size.rows.clamp(1, ROWS_MAX) }
}
