//! A run in a code context as server-sent events.

use crate::{
    auth::cancellation::Until,
    foundation::{
        event_encoding::Form,
        json_text::quote,
        utf8_stream::{Piece, Texts},
    },
    stream::{
        context_run::{Running, died, json, said as refusal},
        sse::{self, KEEP_ALIVE},
    },
};
use axum::{body::Bytes, response::Response};
use base64::{Engine, engine::general_purpose::STANDARD};
use futures_util::stream;
use isolet_sandbox::{Error, contexts::Event};
use isolet_wire::{frame::Data, tell::STDOUT};
use std::convert::Infallible;
use tokio::time::{Instant, timeout_at};

/// How much goes into one piece of the body.
const PIECE_BYTES: usize = 128 * 1024;

/// A run being told.
struct Telling {
    running: Option<Running>,
    texts: Texts,
    form: Form,
    /// More fields of the last event, each with a comma before it.
    more: String,
    next: Instant,
    unread: u64,
    until: Until,
}

/// The answer: events until the run's end.
pub(crate) fn events(running: Running, form: Form, more: String, until: Until) -> Response {
    let (texts, next) = (Texts::default(), Instant::now() + KEEP_ALIVE);
    let telling = Telling { running: Some(running), texts, form, more, next, unread: 0, until };
    let first = Some(b": begun\n\n".to_vec());
    sse::response(stream::unfold((telling, first), |(mut telling, first)| async move {
        let piece = match first {
            Some(first) => first,
            None => telling.piece().await?,
        };
        Some((Ok::<_, Infallible>(Bytes::from(piece)), (telling, None)))
    }))
}

impl Telling {
    /// The next events, as many as are there; `None` after the last.
    async fn piece(&mut self) -> Option<Vec<u8>> {
        let mut running = self.running.take()?;
        let mut out = Vec::new();
        while out.is_empty() {
            let next = tokio::select! {
                biased;
                ending = self.until.ended() => {
                    sse::failed(&mut out, &ending.into());
                    return Some(out);
                }
                next = timeout_at(self.next, running.next()) => next,
            };
            let more = match next {
                Err(_) => {
                    out.extend_from_slice(b": alive\n\n");
                    true
                }
                Ok(event) => self.write_all(event.map(Some), &mut running, &mut out),
            };
            if !more {
                return Some(out);
            }
        }
        self.next = Instant::now() + KEEP_ALIVE;
        self.running = Some(running);
        Some(out)
    }

    /// Appends an event and those that have come behind it; `false` after the last.
    fn write_all(
        &mut self,
        mut event: Result<Option<Event>, Error>,
        running: &mut Running,
        out: &mut Vec<u8>,
    ) -> bool {
        loop {
            match event {
                Ok(Some(event)) => {
                    if self.write(event, running, out) {
                        return false;
                    }
                }
                Ok(None) => return true,
                Err(error) => {
                    sse::failed(out, &refusal(error));
                    return false;
                }
            }
            if out.len() > PIECE_BYTES {
                return true;
            }
            event = running.ready();
        }
    }

    /// Appends one event; `true` for the last.
    fn write(&mut self, event: Event, running: &Running, out: &mut Vec<u8>) -> bool {
        match event {
            Event::Began(_) => {}
            Event::Unread => self.unread += 1,
            Event::Output(Data { stream, offset, bytes, .. }) if self.form == Form::Base64 => {
                let (name, data) = (sse::name(stream), STANDARD.encode(&bytes));
                put(out, name, &format!("{{\"offset\":{offset},\"data_b64\":\"{data}\"}}"));
            }
            Event::Output(Data { stream, offset, bytes, .. }) => {
                if let Some(piece) = self.texts.piece(stream, "", offset, &bytes) {
                    said(out, &piece);
                }
            }
            Event::Shown(shown) => put(out, "result", &json(&shown)),
            Event::Fault(fault) => put(out, "exception", &json(&fault)),
            Event::End(end) => {
                self.texts.close().iter().for_each(|piece| said(out, piece));
                if let Some(fault) = died(&end).filter(|_| !running.fault) {
                    put(out, "exception", &json(&fault));
                }
                let (fields, more, unread) = (running.fields(&end), &self.more, self.unread);
                let bytes = format!("\"out_bytes\":{},\"err_bytes\":{}", end.out, end.err);
                put(out, "end", &format!("{{{fields},{bytes},\"results_lost\":{unread}{more}}}"));
                return true;
            }
        }
        false
    }
}

fn put(out: &mut Vec<u8>, name: &str, data: &str) {
    out.extend_from_slice(format!("event: {name}\ndata: {data}\n\n").as_bytes());
}

fn said(out: &mut Vec<u8>, piece: &Piece<'_>) {
    let name = if piece.stream == STDOUT { "stdout" } else { "stderr" };
    let head = format!("event: {name}\ndata: {{\"offset\":{},\"data\":", piece.offset);
    out.extend_from_slice(head.as_bytes());
    quote(out, &piece.text);
    out.extend_from_slice(b"}\n\n");
}
