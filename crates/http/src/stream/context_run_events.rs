//! Streams a run in a code context as server-sent events.

use crate::{
    auth::cancellation::Cancellation,
    foundation::{
        event_encoding::EventEncoding,
        json_text::write_json_string,
        utf8_stream::{TextChunk, Utf8Decoder},
    },
    stream::{
        context_run::{ContextRun, context_error, death_exception, to_json},
        sse::{self, KEEP_ALIVE},
    },
};
use axum::{body::Bytes, response::Response};
use base64::{Engine, engine::general_purpose::STANDARD};
use futures_util::stream;
use isolet_sandbox::{Error, contexts::Event};
use isolet_wire::{frame::Data, response::STDOUT};
use std::convert::Infallible;
use tokio::time::{Instant, timeout_at};

/// The most data in one chunk of the body.
const CHUNK_BYTES: usize = 128 * 1024;

/// Streams the events of one run.
struct RunSseStream {
    run: Option<ContextRun>,
    decoder: Utf8Decoder,
    encoding: EventEncoding,
    /// Additional JSON fields of the last event, each with a comma before it.
    more: String,
    next: Instant,
    unread: u64,
    cancellation: Cancellation,
}

/// The response: events up to the end of the run.
pub(crate) fn events(
    run: ContextRun,
    encoding: EventEncoding,
    more: String,
    cancellation: Cancellation,
) -> Response {
    let decoder = Utf8Decoder::default();
    let next = Instant::now() + KEEP_ALIVE;
    let stream =
        RunSseStream { run: Some(run), decoder, encoding, more, next, unread: 0, cancellation };
    let first = Some(b": begun\n\n".to_vec());
    sse::response(stream::unfold((stream, first), |(mut stream, first)| async move {
        let chunk = match first {
            Some(first) => first,
            None => stream.next_chunk().await?,
        };
        Some((Ok::<_, Infallible>(Bytes::from(chunk)), (stream, None)))
    }))
}

impl RunSseStream {
    /// The next chunk, with all events that are available; `None` after the last.
    async fn next_chunk(&mut self) -> Option<Vec<u8>> {
        let mut run = self.run.take()?;
        let mut out = Vec::new();
        while out.is_empty() {
            let next = tokio::select! {
                biased;
                reason = self.cancellation.cancelled() => {
                    sse::write_error(&mut out, &reason.into());
                    return Some(out);
                }
                next = timeout_at(self.next, run.next()) => next,
            };
            let more = match next {
                Err(_) => {
                    out.extend_from_slice(b": alive\n\n");
                    true
                }
                Ok(event) => self.write_ready(event.map(Some), &mut run, &mut out),
            };
            if !more {
                return Some(out);
            }
        }
        self.next = Instant::now() + KEEP_ALIVE;
        self.run = Some(run);
        Some(out)
    }

    /// Appends an event and those that are already available; returns `false` after the last one.
    fn write_ready(
        &mut self,
        mut event: Result<Option<Event>, Error>,
        run: &mut ContextRun,
        out: &mut Vec<u8>,
    ) -> bool {
        loop {
            match event {
                Ok(Some(event)) => {
                    if self.write(event, run, out) {
                        return false;
                    }
                }
                Ok(None) => return true,
                Err(error) => {
                    sse::write_error(out, &context_error(error));
                    return false;
                }
            }
            if out.len() > CHUNK_BYTES {
                return true;
            }
            event = run.ready();
        }
    }

    /// Appends one event; returns `true` for the last one.
    fn write(&mut self, event: Event, run: &ContextRun, out: &mut Vec<u8>) -> bool {
        match event {
            Event::Began(_) => {}
            Event::Unread => self.unread += 1,
            Event::Output(Data { stream, offset, bytes, .. })
                if self.encoding == EventEncoding::Base64 =>
            {
                let name = sse::stream_name(stream);
                let data = STANDARD.encode(&bytes);
                write_event(out, name, &format!("{{\"offset\":{offset},\"data_b64\":\"{data}\"}}"));
            }
            Event::Output(Data { stream, offset, bytes, .. }) => {
                if let Some(chunk) = self.decoder.decode_chunk(stream, "", offset, &bytes) {
                    write_output(out, &chunk);
                }
            }
            Event::Shown(shown) => write_event(out, "result", &to_json(&shown)),
            Event::Fault(fault) => write_event(out, "exception", &to_json(&fault)),
            Event::End(end) => {
                self.decoder.close().iter().for_each(|chunk| write_output(out, chunk));
                if let Some(fault) = death_exception(&end).filter(|_| !run.fault) {
                    write_event(out, "exception", &to_json(&fault));
                }
                let fields = run.fields(&end);
                let more = &self.more;
                let unread = self.unread;
                let bytes = format!("\"out_bytes\":{},\"err_bytes\":{}", end.out, end.err);
                write_event(
                    out,
                    "end",
                    &format!("{{{fields},{bytes},\"results_lost\":{unread}{more}}}"),
                );
                return true;
            }
        }
        false
    }
}

fn write_event(out: &mut Vec<u8>, name: &str, data: &str) {
    out.extend_from_slice(format!("event: {name}\ndata: {data}\n\n").as_bytes());
}

fn write_output(out: &mut Vec<u8>, chunk: &TextChunk<'_>) {
    let name = if chunk.stream == STDOUT { "stdout" } else { "stderr" };
    let head = format!("event: {name}\ndata: {{\"offset\":{},\"data\":", chunk.offset);
    out.extend_from_slice(head.as_bytes());
    write_json_string(out, &chunk.text);
    out.extend_from_slice(b"}\n\n");
}
