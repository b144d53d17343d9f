//! One recording while it grows: a hidden client of the terminal, whose bytes become the events of
//! an asciicast (version 2). A task that ends with its terminal.
//!
//! It writes whole events, then a note of how far they reach and at which offset the output
//! continues, so that the next server continues there.

use crate::agent_client::wire::AgentEvent;
use crate::live::entry::SandboxEntry;
use crate::live::entry::recordings::{
    RECORDING_BYTES_MAX, Recording, RecordingSlot, read, write_note,
};
use crate::model::agent_error::AgentError;
use crate::model::blocking::blocking;
use crate::model::clock::now_ms;
use crate::model::error::Error;
use crate::model::ids::SessionId;
use crate::model::state::State;
use crate::sandbox::Sandbox;
use crate::sandbox::terminal::{self, TerminalConnection};
use isolet_wire::frame::DataFrame;
use isolet_wire::response::AgentResponse;
use isolet_wire::terminal::{AttachTerminal, SNAPSHOT, Size, TerminalPosition};
use serde::Serialize;
use std::fs;
use std::io::Write;
use std::sync::{Arc, PoisonError};
use std::time::Duration;
use tokio::time::{Instant, sleep_until};
use tracing::{info, warn};

/// Maximum size of a batch of events before it is written.
const BATCH_BYTES: usize = 64 * 1024;
const BATCH_WAIT: Duration = Duration::from_millis(500);
/// Space that is reserved for the last event, which says why the recording ends.
const LAST_BYTES: u64 = 256;
/// Number of attempts to replace a broken connection.
const TRIES: u32 = 20;
const PAUSE: Duration = Duration::from_millis(100);

/// The first line of an asciicast.
#[derive(Serialize)]
struct CastHead {
    version: u32,
    width: u16,
    height: u16,
    timestamp: i64,
    env: CastEnv,
}

#[derive(Serialize)]
struct CastEnv {
    #[serde(rename = "TERM")]
    term: &'static str,
}

/// The first line of a recording, with its end.
pub(crate) fn head(size: Size, now_ms: i64) -> Vec<u8> {
    let head = CastHead {
        version: 2,
        width: size.cols,
        height: size.rows,
        timestamp: now_ms / 1000,
        env: CastEnv { term: "xterm-256color" },
    };
    let mut line = serde_json::to_vec(&head).unwrap_or_default();
    line.push(b'\n');
    line
}

/// How a recording ends.
enum RecordingEnd {
    /// With its terminal, or on request.
    Whole,
    /// Before its terminal, for a reason that the last event contains.
    Cut(&'static str),
    /// The server stops, and the next one continues the recording.
    Left,
}

struct Recorder {
    sandbox: Sandbox,
    held: RecordingSlot,
    about: Recording,
    connection: TerminalConnection,
    cast: Option<fs::File>,
    /// Events that are not written yet.
    events: Vec<u8>,
    since: Option<Instant>,
    text: Text,
    /// Start of the recording's clock: now, minus the time that was recorded before.
    began: Instant,
    /// Remaining bytes of the current snapshot.
    drawing: u32,
}

impl Sandbox {
    /// Opens a hidden client of a session's terminal. It does not open a terminal and does not keep
    /// the sandbox awake.
    pub(crate) async fn attach_recorder(
        &self,
        session: &SessionId,
        about: Option<&Recording>,
    ) -> Result<TerminalConnection, Error> {
        self.session(session)?;
        let scope = self.running_scope(session)?;
        let since = about
            .map(|about| TerminalPosition { id: about.terminal.clone(), offset: about.offset });
        let attach = AttachTerminal {
            since,
            view: true,
            events: true,
            hidden: true,
            ..AttachTerminal::new(terminal::key(session))
        };
        let mut wire = self.wire(scope.as_deref()).await?;
        wire.awake = None;
        TerminalConnection::open(wire, attach, Arc::clone(&self.entry), session.clone()).await
    }

    pub(crate) fn run_recorder(
        &self,
        connection: TerminalConnection,
        cast: fs::File,
        held: RecordingSlot,
    ) {
        // A recorder does not keep the sandbox awake.
        let sandbox = Self::new(Arc::clone(&self.inner), Arc::clone(&self.entry));
        let about = read(&held.about);
        let began = Instant::now();
        let passed = u64::try_from(now_ms() - about.started_at_ms).unwrap_or(0).max(about.at_ms);
        let began = began.checked_sub(Duration::from_millis(passed)).unwrap_or(began);
        let recorder = Recorder {
            sandbox,
            held,
            about,
            connection,
            cast: Some(cast),
            events: Vec::new(),
            since: None,
            text: Text::default(),
            began,
            drawing: 0,
        };
        self.inner.spawn(recorder.run());
    }
}

impl Recorder {
    fn entry(&self) -> &SandboxEntry {
        &self.sandbox.entry
    }

    async fn run(mut self) {
        let sandbox = self.sandbox.id().clone();
        let session = self.about.session.clone();
        info!(%sandbox, %session, recording = self.about.id, "recording");
        self.attached();
        let end = loop {
            match self.record().await {
                Ok(end) => break end,
                Err(error) => match self.again(&error).await {
                    Ok(()) => self.attached(),
                    Err(end) => break end,
                },
            }
        };
        if let RecordingEnd::Cut(reason) = end {
            self.about.cut = true;
            self.event('m', reason);
        }
        if !matches!(end, RecordingEnd::Left) {
            self.about.ended_at_ms = Some(now_ms());
        }
        if let Err(reason) = self.flush().await {
            warn!(%sandbox, %session, recording = self.about.id, reason, "recording is incomplete");
        }
        self.entry().recordings.over(&self.about);
    }

    /// Handles the first answer of a new connection, which may announce a snapshot.
    fn attached(&mut self) {
        let attached = self.connection.attached().clone();
        if self.about.at_ms > 0 {
            self.sized(attached.size);
        }
        if let Some(snapshot) = attached.snapshot {
            (self.drawing, self.text) = (snapshot.bytes, Text::default());
        }
        self.about.offset = attached.offset;
    }

    async fn record(&mut self) -> Result<RecordingEnd, AgentError> {
        loop {
            let flush = self.since.map(|since| since + BATCH_WAIT);
            let late = sleep_until(flush.unwrap_or_else(Instant::now));
            let event = tokio::select! {
                biased;
                _ = self.held.stop.wait_for(|stop| *stop) => return Ok(RecordingEnd::Whole),
                () = late, if flush.is_some() => None,
                event = self.connection.next() => Some(event?),
            };
            let over = event.is_none();
            if let Some(event) = event
                && let Some(end) = self.on_event(event)?
            {
                return Ok(end);
            }
            if (over || self.events.len() >= BATCH_BYTES)
                && let Err(reason) = self.flush().await
            {
                return Ok(RecordingEnd::Cut(reason));
            }
        }
    }

    fn on_event(&mut self, event: AgentEvent) -> Result<Option<RecordingEnd>, AgentError> {
        match event {
            AgentEvent::Data(body) => {
                let DataFrame { stream, offset, bytes, .. } = DataFrame::parse(body)?;
                if stream == SNAPSHOT {
                    let count = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
                    self.drawing = self.drawing.saturating_sub(count);
                } else {
                    self.about.offset = offset + bytes.len() as u64;
                }
                let text = self.text.push(&bytes);
                if !text.is_empty() {
                    self.event('o', &text);
                }
            }
            AgentEvent::Response(AgentResponse::TerminalSize(size)) => self.sized(size),
            AgentEvent::Response(AgentResponse::TerminalSnapshot(snapshot)) => {
                self.text = Text::default();
                (self.drawing, self.about.offset) = (snapshot.bytes, snapshot.offset);
            }
            AgentEvent::Response(AgentResponse::TerminalExit(_)) => {
                return Ok(Some(RecordingEnd::Whole));
            }
            AgentEvent::Response(_) => {}
        }
        let whole = self.about.size + self.events.len() as u64;
        Ok((whole > RECORDING_BYTES_MAX - LAST_BYTES).then(|| self.full()))
    }

    /// The recording has reached its maximum size: removes the events beyond it.
    fn full(&mut self) -> RecordingEnd {
        let most = RECORDING_BYTES_MAX - LAST_BYTES;
        while !self.events.is_empty() && self.about.size + self.events.len() as u64 > most {
            self.events.pop();
            let end = self.events.iter().rposition(|b| *b == b'\n').map_or(0, |at| at + 1);
            self.events.truncate(end);
        }
        RecordingEnd::Cut("this recording ends here: it has reached 64 MiB")
    }

    fn sized(&mut self, size: Size) {
        self.event('r', &format!("{}x{}", size.cols, size.rows));
    }

    fn event(&mut self, kind: char, data: &str) {
        let at = self.began.elapsed();
        self.about.at_ms = u64::try_from(at.as_millis()).unwrap_or(u64::MAX);
        let quoted = serde_json::Value::from(data);
        let s = at.as_secs();
        let us = at.subsec_micros();
        let _ = writeln!(self.events, "[{s}.{us:06},\"{kind}\",{quoted}]");
        self.since.get_or_insert_with(Instant::now);
    }

    /// Writes the current batch. In the middle of a snapshot, no position to continue from exists,
    /// so the events wait for the snapshot's end.
    async fn flush(&mut self) -> Result<(), &'static str> {
        let unfinished = self.drawing > 0 && self.about.ended_at_ms.is_none();
        self.since = None;
        if unfinished && self.events.len() < 8 * BATCH_BYTES {
            return Ok(());
        }
        let about = &mut self.about;
        if about.ended_at_ms.is_none() && self.sandbox.space().check().is_err() {
            return Err("this recording ends here: the server's disk is nearly full");
        }
        let events = std::mem::take(&mut self.events);
        let Some(mut cast) = self.cast.take() else { return Err("its file is gone") };
        about.size += events.len() as u64;
        let folder = self.sandbox.entry.recordings.folder.clone();
        let noted = about.clone();
        let written = blocking(move || {
            cast.write_all(&events)?;
            write_note(&folder, &noted)?;
            Ok::<_, std::io::Error>(cast)
        });
        match written.await {
            Ok(Ok(cast)) => {
                self.cast = Some(cast);
                let mut shared = self.held.about.lock().unwrap_or_else(PoisonError::into_inner);
                shared.clone_from(&self.about);
                Ok(())
            }
            _ => Err("this recording ends here: the server's disk did not take it"),
        }
    }

    /// Replaces a broken connection if the terminal still runs.
    async fn again(&mut self, error: &AgentError) -> Result<(), RecordingEnd> {
        for _ in 0..TRIES {
            if self.sandbox.inner.stopping.load(std::sync::atomic::Ordering::Relaxed) {
                return Err(RecordingEnd::Left);
            }
            if !matches!(self.entry().state(), State::Running | State::Paused) {
                return Err(RecordingEnd::Whole);
            }
            match self.sandbox.attach_recorder(&self.about.session, Some(&self.about)).await {
                Ok(connection) if connection.attached().id == self.about.terminal => {
                    self.connection = connection;
                    return Ok(());
                }
                Ok(_) | Err(Error::Refused { .. } | Error::NoSession { .. }) => {
                    return Err(RecordingEnd::Whole);
                }
                Err(_) => tokio::time::sleep(PAUSE).await,
            }
        }
        warn!(sandbox = %self.sandbox.id(), %error, "recorder lost its terminal");
        Err(RecordingEnd::Whole)
    }
}

/// Decodes bytes as UTF-8. An incomplete character waits for the next bytes, and invalid bytes
/// become U+FFFD.
#[derive(Debug, Default)]
struct Text {
    cut: Vec<u8>,
}

impl Text {
    pub(crate) fn push(&mut self, bytes: &[u8]) -> String {
        let mut all = std::mem::take(&mut self.cut);
        all.extend_from_slice(bytes);
        let mut text = String::with_capacity(all.len());
        let mut rest = all.as_slice();
        loop {
            match std::str::from_utf8(rest) {
                Ok(whole) => {
                    text.push_str(whole);
                    return text;
                }
                Err(error) => {
                    let (good, bad) = rest.split_at(error.valid_up_to());
                    text.push_str(std::str::from_utf8(good).unwrap_or_default());
                    let Some(length) = error.error_len() else {
                        self.cut = bad.to_vec();
                        return text;
                    };
                    text.push(char::REPLACEMENT_CHARACTER);
                    rest = &bad[length..];
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn text_is_the_same_however_it_was_cut(
            bytes in proptest::collection::vec(any::<u8>(), 0..60),
            good in "\\PC{0,20}",
            cuts in proptest::collection::vec(0usize..90, 0..6),
        ) {
            let all = [good.as_bytes(), &bytes, good.as_bytes(), b"."].concat();
            let mut cuts: Vec<usize> = cuts.into_iter().filter(|cut| *cut <= all.len()).collect();
            cuts.sort_unstable();
            let mut text = Text::default();
            let mut from = 0;
            let mut said = String::new();
            for to in cuts.into_iter().chain([all.len()]) {
                said.push_str(&text.push(&all[from..to]));
                from = to;
            }
            prop_assert_eq!(said, String::from_utf8_lossy(&all));
        }
    }

    #[test]
    fn the_first_line_is_that_of_an_asciicast() {
        let line = head(Size { cols: 80, rows: 24 }, 1_700_000_000_999);
        let text = r#"{"version":2,"width":80,"height":24,"timestamp":1700000000,"env":{"TERM":"xterm-256color"}}"#;
        assert_eq!(String::from_utf8(line).unwrap(), format!("{text}\n"));
    }
}
