//! One recording while it grows: a hidden client of the terminal, whose bytes become the events of
//! an asciicast (version 2). A task that ends with its terminal.
//!
//! It writes whole events, then a note of how far they reach and at which offset the output
//! continues, so that the next server continues there.

use crate::{
    agent_client::wire::AgentEvent,
    live::entry::{
        Entry,
        recordings::{Held, RECORDING_BYTES_MAX, Recording, read, write_note},
    },
    model::{
        agent_error::AgentError, blocking::blocking, clock::now_ms, error::Error, ids::SessionId,
        state::State,
    },
    sandbox::{
        Sandbox,
        terminal::{self, TerminalConnection},
    },
};
use isolet_wire::{
    frame::Data,
    response::AgentResponse,
    terminal::{Attach, SNAPSHOT, Since, Size},
};
use serde::Serialize;
use std::{
    fs,
    io::Write,
    sync::{Arc, PoisonError},
    time::Duration,
};
use tokio::time::{Instant, sleep_until};
use tracing::{info, warn};

/// What is gathered before it is written, and for how long at most.
const BATCH_BYTES: usize = 64 * 1024;
const BATCH_WAIT: Duration = Duration::from_millis(500);
/// Kept free at the end for the event that says why it ends.
const LAST_BYTES: u64 = 256;
/// How often a connection that broke is replaced, with this pause between.
const TRIES: u32 = 20;
const PAUSE: Duration = Duration::from_millis(100);

/// The first line of an asciicast.
#[derive(Serialize)]
struct CastHead {
    version: u32,
    width: u16,
    height: u16,
    /// Seconds since 1970.
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
enum End {
    /// With its terminal, or because somebody ended it.
    Whole,
    /// Before its terminal, for a reason that its last event says.
    Cut(&'static str),
    /// The server stops: the next one goes on.
    Left,
}

struct Recorder {
    sandbox: Sandbox,
    held: Held,
    about: Recording,
    link: TerminalConnection,
    cast: Option<fs::File>,
    /// Events that are not written yet, and since when there are some.
    events: Vec<u8>,
    since: Option<Instant>,
    text: Text,
    /// Where its time began: now, less what was recorded before.
    began: Instant,
    /// Bytes of a snapshot that are to come.
    drawing: u32,
}

impl Sandbox {
    /// A client of a session's terminal that nobody sees; it opens none, and keeps nothing awake.
    pub(crate) async fn attach_recorder(
        &self,
        session: &SessionId,
        about: Option<&Recording>,
    ) -> Result<TerminalConnection, Error> {
        self.session(session)?;
        let scope = self.running_scope(session)?;
        let since = about.map(|about| Since { id: about.terminal.clone(), offset: about.offset });
        let attach = Attach {
            since,
            view: true,
            events: true,
            hidden: true,
            ..Attach::new(terminal::key(session))
        };
        let mut wire = self.wire(scope.as_deref()).await?;
        wire.awake = None;
        TerminalConnection::open(wire, attach, Arc::clone(&self.entry), session.clone()).await
    }

    pub(crate) fn run_recorder(&self, link: TerminalConnection, cast: fs::File, held: Held) {
        // It keeps nothing awake.
        let sandbox = Self::new(Arc::clone(&self.inner), Arc::clone(&self.entry));
        let about = read(&held.about);
        let began = Instant::now();
        let passed = u64::try_from(now_ms() - about.started_at_ms).unwrap_or(0).max(about.at_ms);
        let began = began.checked_sub(Duration::from_millis(passed)).unwrap_or(began);
        let recorder = Recorder {
            sandbox,
            held,
            about,
            link,
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
    fn entry(&self) -> &Entry {
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
        if let End::Cut(why) = end {
            self.about.cut = true;
            self.event('m', why);
        }
        if !matches!(end, End::Left) {
            self.about.ended_at_ms = Some(now_ms());
        }
        if let Err(why) = self.flush().await {
            warn!(%sandbox, %session, recording = self.about.id, why, "a recording lacks its end");
        }
        self.entry().recordings.over(&self.about);
    }

    /// What comes first of a new connection: a snapshot, where one is sent.
    fn attached(&mut self) {
        let attached = self.link.attached().clone();
        if self.about.at_ms > 0 {
            self.sized(attached.size);
        }
        if let Some(snapshot) = attached.snapshot {
            (self.drawing, self.text) = (snapshot.bytes, Text::default());
        }
        self.about.offset = attached.offset;
    }

    async fn record(&mut self) -> Result<End, AgentError> {
        loop {
            let flush = self.since.map(|since| since + BATCH_WAIT);
            let late = sleep_until(flush.unwrap_or_else(Instant::now));
            let heard = tokio::select! {
                biased;
                _ = self.held.stop.wait_for(|stop| *stop) => return Ok(End::Whole),
                () = late, if flush.is_some() => None,
                heard = self.link.next() => Some(heard?),
            };
            let over = heard.is_none();
            if let Some(heard) = heard
                && let Some(end) = self.hear(heard)?
            {
                return Ok(end);
            }
            if (over || self.events.len() >= BATCH_BYTES)
                && let Err(why) = self.flush().await
            {
                return Ok(End::Cut(why));
            }
        }
    }

    fn hear(&mut self, heard: AgentEvent) -> Result<Option<End>, AgentError> {
        match heard {
            AgentEvent::Data(body) => {
                let Data { stream, offset, bytes, .. } = Data::parse(body)?;
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
            AgentEvent::Response(AgentResponse::TerminalExit(_)) => return Ok(Some(End::Whole)),
            AgentEvent::Response(_) => {}
        }
        let whole = self.about.size + self.events.len() as u64;
        Ok((whole > RECORDING_BYTES_MAX - LAST_BYTES).then(|| self.full()))
    }

    /// It is as long as it may be: the events that went beyond are taken back.
    fn full(&mut self) -> End {
        let most = RECORDING_BYTES_MAX - LAST_BYTES;
        while !self.events.is_empty() && self.about.size + self.events.len() as u64 > most {
            self.events.pop();
            let end = self.events.iter().rposition(|b| *b == b'\n').map_or(0, |at| at + 1);
            self.events.truncate(end);
        }
        End::Cut("this recording ends here: it has reached 64 MiB")
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

    /// Writes what was gathered. In the middle of a snapshot the place to go on at is not noted:
    /// nothing can go on there, so the events wait for its end.
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

    /// The connection broke: another one, where the terminal runs on.
    async fn again(&mut self, error: &AgentError) -> Result<(), End> {
        for _ in 0..TRIES {
            if self.sandbox.inner.stopping.load(std::sync::atomic::Ordering::Relaxed) {
                return Err(End::Left);
            }
            if self.entry().state() != State::Running {
                return Err(End::Whole);
            }
            match self.sandbox.attach_recorder(&self.about.session, Some(&self.about)).await {
                Ok(link) if link.attached().id == self.about.terminal => {
                    self.link = link;
                    return Ok(());
                }
                Ok(_) | Err(Error::Refused { .. } | Error::NoSession { .. }) => {
                    return Err(End::Whole);
                }
                Err(_) => tokio::time::sleep(PAUSE).await,
            }
        }
        warn!(sandbox = %self.sandbox.id(), %error, "a recorder has lost its terminal");
        Err(End::Whole)
    }
}

/// Bytes as text: a character that is cut waits for its rest, what is none becomes U+FFFD.
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
