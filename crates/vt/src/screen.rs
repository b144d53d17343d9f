//! The model of one terminal, fed with its output.

#[cfg(test)]
mod tests;

use crate::csi::Csi;
use crate::model::Model;
use crate::query::{self, Query};
use crate::scan::{self, ScanResult, SequenceKind};
use crate::{Size, snapshot};
use isolet_wire::terminal::{COLS_MAX, ROWS_MAX};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Queries that may wait for [`Screen::take_queries`]; more are dropped.
const QUERIES_MAX: usize = 256;

/// The state of a terminal, and the part of its output that is not interpreted yet.
///
/// A panic in the model never reaches the caller: an empty screen replaces the broken one.
#[derive(Debug)]
pub struct Screen {
    model: Model,
    /// The beginning of an incomplete escape sequence or character.
    pending: Vec<u8>,
    /// Set while the rest of a sequence that grew too long is skipped.
    skipping: Option<SequenceKind>,
    queries: Vec<Query>,
    last_query_end: u64,
    size: Size,
}

impl Screen {
    /// Creates an empty screen. The size is clamped to 1 column by 1 row up to
    /// [`COLS_MAX`] by [`ROWS_MAX`].
    pub fn new(size: Size) -> Self {
        let size = clamp(size);
        Self {
            model: Model::new(size),
            pending: Vec::new(),
            skipping: None,
            queries: Vec::new(),
            last_query_end: 0,
            size,
        }
    }

    /// Interprets output. `offset` is the position of its first byte in the whole output; it only
    /// serves [`Screen::last_query_end`].
    pub fn feed(&mut self, bytes: &[u8], offset: u64) {
        let end = offset + bytes.len() as u64;
        if self.pending.is_empty() {
            return self.catch_panic(|screen| screen.interpret(bytes, end));
        }
        let mut all = std::mem::take(&mut self.pending);
        all.extend_from_slice(bytes);
        self.catch_panic(|screen| screen.interpret(&all, end));
    }

    /// Changes the size. The program receives `SIGWINCH` and redraws.
    pub fn resize(&mut self, size: Size) {
        let size = clamp(size);
        if size == self.size {
            return;
        }
        self.size = size;
        self.catch_panic(|screen| screen.model.resize(size));
    }

    /// The bytes that draw this screen on a terminal of the same size, whatever its state was.
    /// They begin with a full reset and contain no query. Live output may follow at once.
    pub fn snapshot(&mut self) -> Vec<u8> {
        let mut out = Vec::new();
        self.catch_panic(|screen| out = snapshot::draw(&screen.model));
        match self.skipping {
            Some(kind) => out.extend_from_slice(kind.inert_prefix()),
            None => out.extend_from_slice(&self.safe_pending()),
        }
        out
    }

    /// The pending bytes, except that a clipboard command becomes one without effect.
    fn safe_pending(&self) -> Vec<u8> {
        match scan::sequence(&self.pending) {
            ScanResult::Incomplete(SequenceKind::Osc) if self.pending[2..].starts_with(b"52;") => {
                SequenceKind::Osc.inert_prefix().to_vec()
            }
            _ => self.pending.clone(),
        }
    }

    /// The title that the program has set: at most 256 bytes, without control characters.
    pub fn title(&self) -> &str {
        &self.model.title
    }

    /// Takes the queries that were read since the last call, oldest first.
    pub fn take_queries(&mut self) -> Vec<Query> {
        std::mem::take(&mut self.queries)
    }

    /// The offset behind the last query; 0 when there was none. Output before it must not be
    /// replayed to a terminal, which would reply again.
    pub const fn last_query_end(&self) -> u64 {
        self.last_query_end
    }

    /// Runs `work`; after a panic the screen is replaced by an empty one with the same title.
    fn catch_panic(&mut self, work: impl FnOnce(&mut Self)) {
        if catch_unwind(AssertUnwindSafe(|| work(self))).is_err() {
            let title = std::mem::take(&mut self.model.title);
            self.model = Model::new(self.size);
            self.model.set_title(&title);
            self.model.text(b"[the screen was lost after an internal error]\r\n");
            self.pending.clear();
            self.skipping = None;
        }
    }

    /// Interprets bytes that begin outside of a sequence; `end` is the offset behind them.
    fn interpret(&mut self, bytes: &[u8], end: u64) {
        let mut at = 0;
        if let Some(kind) = self.skipping {
            match scan::resume(kind, bytes) {
                Some(resumed) => at = resumed,
                None => return,
            }
            self.skipping = None;
            self.model.end_cluster();
        }
        while at < bytes.len() {
            let start = scan::next(bytes, at);
            let text = &bytes[at..start];
            let rest = &bytes[start..];
            let found = if rest.is_empty() {
                ScanResult::Incomplete(SequenceKind::Escape)
            } else {
                scan::sequence(rest)
            };
            match found {
                ScanResult::Incomplete(_) => {
                    let complete =
                        if rest.is_empty() { scan::complete_len(text) } else { text.len() };
                    self.model.text(&text[..complete]);
                    self.set_pending(&bytes[at + complete..]);
                    return;
                }
                ScanResult::TooLong(kind) => {
                    self.model.text(text);
                    if !kind.is_text() {
                        self.controls(rest);
                    }
                    self.skipping = Some(kind);
                    return;
                }
                ScanResult::Aborted { end, controls } => {
                    self.model.text(text);
                    self.controls(&rest[..controls]);
                    self.model.end_cluster();
                    at = start + end;
                }
                ScanResult::Complete { kind, body, end: next } => {
                    self.model.text(text);
                    let offset = end - (bytes.len() - start - next) as u64;
                    self.controls(&rest[..if kind.is_text() { body.start } else { body.end }]);
                    self.sequence(kind, &rest[body], offset);
                    at = start + next;
                }
            }
        }
    }

    /// Stores an incomplete sequence or character. Control characters within an escape or control
    /// sequence take effect at once, as in every terminal.
    fn set_pending(&mut self, bytes: &[u8]) {
        let executes_controls = matches!(
            scan::sequence(bytes),
            ScanResult::Incomplete(SequenceKind::Escape | SequenceKind::Csi)
        );
        self.pending = bytes.to_vec();
        if executes_controls {
            self.controls(bytes);
            self.pending.retain(|byte| *byte >= 0x20 || *byte == scan::ESC);
        }
    }

    /// Executes the control characters within a sequence.
    fn controls(&mut self, bytes: &[u8]) {
        let controls = bytes.iter().filter(|byte| **byte < 0x20 && **byte != scan::ESC);
        controls.for_each(|byte| self.model.control(*byte));
    }

    /// Executes a complete sequence; `end` is the offset behind it.
    fn sequence(&mut self, kind: SequenceKind, body: &[u8], end: u64) {
        match kind {
            SequenceKind::Escape => {
                let body: Vec<u8> =
                    body.iter().copied().filter(|byte| (0x20..0x7f).contains(byte)).collect();
                if body == b"Z" {
                    return self.sequence(SequenceKind::Csi, b"c", end);
                }
                self.model.escape(&body);
            }
            SequenceKind::Csi => {
                if let Some(csi) = Csi::parse(body) {
                    self.model.csi(&csi);
                    let query = query::csi(&csi, &mut self.model);
                    self.record_queries(query, end);
                }
            }
            SequenceKind::Osc => {
                let queries = query::osc(body, &self.model);
                self.model.osc(body);
                self.record_queries(queries, end);
            }
            SequenceKind::Dcs => {
                let query = query::dcs(body);
                self.record_queries(query, end);
            }
            SequenceKind::Ignored => {}
        }
        self.model.end_cluster();
    }

    fn record_queries(&mut self, queries: impl IntoIterator<Item = Query>, end: u64) {
        for query in queries {
            self.last_query_end = end;
            if self.queries.len() < QUERIES_MAX {
                self.queries.push(query);
            }
        }
    }
}

/// A size within the limits.
fn clamp(size: Size) -> Size {
    Size { cols: size.cols.clamp(1, COLS_MAX), rows: size.rows.clamp(1, ROWS_MAX) }
}
