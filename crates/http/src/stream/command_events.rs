//! A command as server-sent events: its output as it happens, then how it ended.

use crate::{
    auth::cancellation::Until,
    foundation::{
        denied,
        error::Failure,
        event_encoding::Form,
        json_text::quote,
        utf8_stream::{Piece, Texts},
    },
    stream::{
        bridge_events,
        captured_output::exit_fields,
        command::{Command, Event},
        sse::{self, KEEP_ALIVE, name},
    },
};
use axum::{body::Bytes, response::Response};
use base64::{Engine, engine::general_purpose::STANDARD};
use futures_util::stream;
use std::{convert::Infallible, time::Duration};
use tokio::time::{Instant, timeout, timeout_at};

/// How long a refusal may take to become a status; what comes later becomes an event.
const FIRST: Duration = Duration::from_millis(50);
/// How much output goes into one piece of the body.
const PIECE_BYTES: usize = 128 * 1024;

/// A command being told.
struct Telling {
    command: Option<Command>,
    texts: Texts,
    form: Form,
    /// Bytes that were no longer held.
    lost: u64,
    /// More fields of the exit event, each with a comma before it.
    more: String,
    next: Instant,
    until: Until,
}

/// The answer: events until the command's exit.
pub(crate) async fn answer(
    mut command: Command,
    form: Form,
    more: String,
    until: Until,
) -> Result<Response, Failure> {
    let mut first = Vec::new();
    let (texts, next) = (Texts::default(), Instant::now() + KEEP_ALIVE);
    let mut telling = Telling { command: None, texts, form, lost: 0, more, next, until };
    let ended = match timeout(FIRST, command.next()).await {
        Err(_) => false,
        Ok(event) => telling.write(event?, &mut first),
    };
    if ended {
        command.park();
    } else {
        telling.command = Some(command);
    }
    first.extend_from_slice(b": begun\n\n");
    let events = stream::unfold((telling, first), |(mut telling, first)| async move {
        if !first.is_empty() {
            return Some((Ok::<_, Infallible>(Bytes::from(first)), (telling, Vec::new())));
        }
        let piece = telling.piece().await?;
        Some((Ok(Bytes::from(piece)), (telling, Vec::new())))
    });
    Ok(sse::response(events))
}

impl Telling {
    /// The next events, as many as are there; `None` after the last.
    async fn piece(&mut self) -> Option<Vec<u8>> {
        let mut command = self.command.take()?;
        let mut out = Vec::new();
        let next = tokio::select! {
            biased;
            ending = self.until.ended() => {
                self.failed(&mut out, &ending.into());
                return Some(out);
            }
            next = timeout_at(self.next, command.next()) => next,
        };
        let Ok(mut event) = next.map(|event| event.map(Some)) else {
            self.next = Instant::now() + KEEP_ALIVE;
            self.command = Some(command);
            return Some(b": alive\n\n".to_vec());
        };
        loop {
            match event {
                Ok(Some(event)) => {
                    if self.write(event, &mut out) {
                        command.park();
                        return Some(out);
                    }
                }
                Ok(None) => break,
                Err(failure) => {
                    self.failed(&mut out, &failure);
                    return Some(out);
                }
            }
            if out.len() > PIECE_BYTES {
                break;
            }
            event = command.ready();
        }
        self.next = Instant::now() + KEEP_ALIVE;
        self.command = Some(command);
        Some(out)
    }

    /// Appends one event; `true` for the last.
    fn write(&mut self, event: Event, out: &mut Vec<u8>) -> bool {
        match event {
            Event::Started => {}
            Event::Output { stream, bytes, .. } if self.form == Form::Bridge => {
                out.extend_from_slice(bridge_events::output(name(stream), &bytes).as_bytes());
            }
            Event::Gap { from, to, .. } if self.form == Form::Bridge => {
                self.lost += to.saturating_sub(from);
            }
            Event::Exit(exit, _) if self.form == Form::Bridge => {
                out.extend_from_slice(bridge_events::exit(&exit, self.lost).as_bytes());
                return true;
            }
            Event::Output { stream, offset, bytes } if self.form == Form::Base64 => {
                let (name, data) = (name(stream), STANDARD.encode(&bytes));
                let text = format!(
                    "event: {name}\ndata: {{\"offset\":{offset},\"data_b64\":\"{data}\"}}\n\n"
                );
                out.extend_from_slice(text.as_bytes());
            }
            Event::Output { stream, offset, bytes } => {
                if let Some(piece) = self.texts.piece(stream, "", offset, &bytes) {
                    said(out, &piece);
                }
            }
            Event::Gap { stream, from, to } => {
                self.texts.gap(stream).iter().for_each(|piece| said(out, piece));
                let text = format!(
                    "event: gap\ndata: {{\"stream\":\"{}\",\"from\":{from},\"to\":{to}}}\n\n",
                    name(stream)
                );
                out.extend_from_slice(text.as_bytes());
            }
            Event::Exit(exit, denied) => {
                self.texts.close().iter().for_each(|piece| said(out, piece));
                let (fields, more) = (exit_fields(&exit), &self.more);
                let fresh = if exit.fresh { ",\"fresh\":true" } else { "" };
                let bytes = format!(",\"out_bytes\":{},\"err_bytes\":{}", exit.out, exit.err);
                let denied = denied::fields(&denied);
                let text =
                    format!("event: exit\ndata: {{{fields}{bytes}{fresh}{more}{denied}}}\n\n");
                out.extend_from_slice(text.as_bytes());
                return true;
            }
        }
        false
    }

    fn failed(&self, out: &mut Vec<u8>, failure: &Failure) {
        let text = match self.form {
            Form::Bridge => bridge_events::failed(failure),
            _ => {
                let text = serde_json::to_string(failure).unwrap_or_default();
                format!("event: error\ndata: {text}\n\n")
            }
        };
        out.extend_from_slice(text.as_bytes());
    }
}

fn said(out: &mut Vec<u8>, piece: &Piece<'_>) {
    let head =
        format!("event: {}\ndata: {{\"offset\":{},\"data\":", name(piece.stream), piece.offset);
    out.extend_from_slice(head.as_bytes());
    quote(out, &piece.text);
    out.extend_from_slice(b"}\n\n");
}
