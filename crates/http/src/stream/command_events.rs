//! Streams a command as server-sent events: its output, then its exit.

use crate::{
    auth::cancellation::Cancellation,
    foundation::{
        denied,
        error::ApiError,
        event_encoding::EventEncoding,
        json_text::write_json_string,
        utf8_stream::{TextChunk, Utf8Decoder},
    },
    stream::{
        bridge_events,
        captured_output::exit_fields,
        command::{Command, Event},
        sse::{self, KEEP_ALIVE, stream_name},
    },
};
use axum::{body::Bytes, response::Response};
use base64::{Engine, engine::general_purpose::STANDARD};
use futures_util::stream;
use std::{convert::Infallible, time::Duration};
use tokio::time::{Instant, timeout, timeout_at};

/// A refusal within this time becomes an HTTP status; a later one becomes an event.
const FIRST_EVENT_WAIT: Duration = Duration::from_millis(50);
/// The most output in one chunk of the body.
const CHUNK_BYTES: usize = 128 * 1024;

/// Streams the events of one command.
struct SseStream {
    command: Option<Command>,
    decoder: Utf8Decoder,
    encoding: EventEncoding,
    /// Bytes of output that were no longer available.
    lost: u64,
    /// Additional JSON fields of the exit event, each with a comma before it.
    more: String,
    next: Instant,
    cancellation: Cancellation,
}

/// The response: events up to the exit of the command.
pub(crate) async fn answer(
    mut command: Command,
    encoding: EventEncoding,
    more: String,
    cancellation: Cancellation,
) -> Result<Response, ApiError> {
    let mut first = Vec::new();
    let decoder = Utf8Decoder::default();
    let next = Instant::now() + KEEP_ALIVE;
    let mut stream =
        SseStream { command: None, decoder, encoding, lost: 0, more, next, cancellation };
    let ended = match timeout(FIRST_EVENT_WAIT, command.next()).await {
        Err(_) => false,
        Ok(event) => stream.write(event?, &mut first),
    };
    if ended {
        command.park();
    } else {
        stream.command = Some(command);
    }
    first.extend_from_slice(b": begun\n\n");
    let events = stream::unfold((stream, first), |(mut stream, first)| async move {
        if !first.is_empty() {
            return Some((Ok::<_, Infallible>(Bytes::from(first)), (stream, Vec::new())));
        }
        let chunk = stream.next_chunk().await?;
        Some((Ok(Bytes::from(chunk)), (stream, Vec::new())))
    });
    Ok(sse::response(events))
}

impl SseStream {
    /// The next chunk, with all events that are available; `None` after the last.
    async fn next_chunk(&mut self) -> Option<Vec<u8>> {
        let mut command = self.command.take()?;
        let mut out = Vec::new();
        let next = tokio::select! {
            biased;
            reason = self.cancellation.cancelled() => {
                self.write_error(&mut out, &reason.into());
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
                    self.write_error(&mut out, &failure);
                    return Some(out);
                }
            }
            if out.len() > CHUNK_BYTES {
                break;
            }
            event = command.ready();
        }
        self.next = Instant::now() + KEEP_ALIVE;
        self.command = Some(command);
        Some(out)
    }

    /// Appends one event; returns `true` for the last one.
    fn write(&mut self, event: Event, out: &mut Vec<u8>) -> bool {
        match event {
            Event::Started => {}
            Event::Output { stream, bytes, .. } if self.encoding == EventEncoding::Bridge => {
                out.extend_from_slice(
                    bridge_events::output(stream_name(stream), &bytes).as_bytes(),
                );
            }
            Event::Gap { from, to, .. } if self.encoding == EventEncoding::Bridge => {
                self.lost += to.saturating_sub(from);
            }
            Event::Exit(exit, _) if self.encoding == EventEncoding::Bridge => {
                out.extend_from_slice(bridge_events::exit(&exit, self.lost).as_bytes());
                return true;
            }
            Event::Output { stream, offset, bytes } if self.encoding == EventEncoding::Base64 => {
                let name = stream_name(stream);
                let data = STANDARD.encode(&bytes);
                let text = format!(
                    "event: {name}\ndata: {{\"offset\":{offset},\"data_b64\":\"{data}\"}}\n\n"
                );
                out.extend_from_slice(text.as_bytes());
            }
            Event::Output { stream, offset, bytes } => {
                if let Some(chunk) = self.decoder.decode_chunk(stream, "", offset, &bytes) {
                    write_output(out, &chunk);
                }
            }
            Event::Gap { stream, from, to } => {
                self.decoder.gap(stream).iter().for_each(|chunk| write_output(out, chunk));
                let text = format!(
                    "event: gap\ndata: {{\"stream\":\"{}\",\"from\":{from},\"to\":{to}}}\n\n",
                    stream_name(stream)
                );
                out.extend_from_slice(text.as_bytes());
            }
            Event::Exit(exit, denied) => {
                self.decoder.close().iter().for_each(|chunk| write_output(out, chunk));
                let fields = exit_fields(&exit);
                let more = &self.more;
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

    fn write_error(&self, out: &mut Vec<u8>, failure: &ApiError) {
        let text = match self.encoding {
            EventEncoding::Bridge => bridge_events::error_event(failure),
            _ => {
                let text = serde_json::to_string(failure).unwrap_or_default();
                format!("event: error\ndata: {text}\n\n")
            }
        };
        out.extend_from_slice(text.as_bytes());
    }
}

fn write_output(out: &mut Vec<u8>, chunk: &TextChunk<'_>) {
    let head = format!(
        "event: {}\ndata: {{\"offset\":{},\"data\":",
        stream_name(chunk.stream),
        chunk.offset
    );
    out.extend_from_slice(head.as_bytes());
    write_json_string(out, &chunk.text);
    out.extend_from_slice(b"}\n\n");
}
