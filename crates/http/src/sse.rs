//! A command as server-sent events: its output as it happens, then how it ended.

use crate::{
    command::{Command, Event},
    denied,
    dialects::cloudflare::words,
    error::Failure,
    output::exit_fields,
    text::{Piece, Texts, quote},
    until::Until,
};
use axum::{
    body::{Body, Bytes},
    http::{HeaderMap, HeaderValue, header},
    response::{IntoResponse, Response},
};
use base64::{Engine, engine::general_purpose::STANDARD};
use futures_util::stream::{self, Stream};
use isolet_wire::tell::STDOUT;
use std::{convert::Infallible, time::Duration};
use tokio::time::{Instant, timeout, timeout_at};

/// How often a silent stream is known to be alive.
pub(crate) const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// How long a refusal may take to become a status; what comes later becomes an event.
const FIRST: Duration = Duration::from_millis(50);
/// How much output goes into one piece of the body.
const PIECE_BYTES: usize = 128 * 1024;

/// How the client wants output in events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// `data`: text, in which U+FFFD stands for what is no UTF-8.
    Text,
    /// `data_b64`: exact bytes; asked for with `Accept: text/event-stream; encoding=base64`.
    Base64,
    /// In the words of Cloudflare's bridge.
    Bridge,
}

/// Whether the client asked for events.
pub(crate) fn wanted(headers: &HeaderMap) -> Option<Form> {
    let accept = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or("");
    accept.split(',').find_map(|kind| {
        let mut parts = kind.split(';').map(str::trim);
        let events = parts.next()?.eq_ignore_ascii_case("text/event-stream");
        let exact = parts.any(|part| part.eq_ignore_ascii_case("encoding=base64"));
        events.then_some(if exact { Form::Base64 } else { Form::Text })
    })
}

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
    Ok(response(events))
}

/// An answer that goes on as events, piece after piece, as the client takes them.
pub(crate) fn response(
    events: impl Stream<Item = Result<Bytes, Infallible>> + Send + 'static,
) -> Response {
    let mut response = Body::from_stream(events).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
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
                out.extend_from_slice(words::output(name(stream), &bytes).as_bytes());
            }
            Event::Gap { from, to, .. } if self.form == Form::Bridge => {
                self.lost += to.saturating_sub(from);
            }
            Event::Exit(exit, _) if self.form == Form::Bridge => {
                out.extend_from_slice(words::exit(&exit, self.lost).as_bytes());
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
            Form::Bridge => words::failed(failure),
            _ => {
                let text = serde_json::to_string(failure).unwrap_or_default();
                format!("event: error\ndata: {text}\n\n")
            }
        };
        out.extend_from_slice(text.as_bytes());
    }
}

/// A stream's event.
pub(crate) fn name(stream: u8) -> &'static str {
    if stream == STDOUT { "stdout" } else { "stderr" }
}

fn said(out: &mut Vec<u8>, piece: &Piece<'_>) {
    let head =
        format!("event: {}\ndata: {{\"offset\":{},\"data\":", name(piece.stream), piece.offset);
    out.extend_from_slice(head.as_bytes());
    quote(out, &piece.text);
    out.extend_from_slice(b"}\n\n");
}

/// Appends the last event of a stream that cannot go on.
pub(crate) fn failed(out: &mut Vec<u8>, failure: &Failure) {
    let text = serde_json::to_string(failure).unwrap_or_default();
    out.extend_from_slice(format!("event: error\ndata: {text}\n\n").as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_sent_to_who_asks_for_them() {
        let said = |accept: &'static str| {
            wanted(&HeaderMap::from_iter([(header::ACCEPT, HeaderValue::from_static(accept))]))
        };
        assert_eq!(said("text/event-stream"), Some(Form::Text));
        assert_eq!(said("application/json, text/event-stream;q=1"), Some(Form::Text));
        assert_eq!(said("text/event-stream; encoding=base64"), Some(Form::Base64));
        assert_eq!(said("application/json"), None);
        assert_eq!(said("*/*"), None);
    }
}
