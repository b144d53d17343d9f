//! The log of a process: all of it at once, or streamed as server-sent events.

use crate::{
    app::App,
    auth::{caller::Caller, cancellation::Cancellation},
    foundation::{
        error::ApiError,
        event_encoding::{EventEncoding, accepts_event_stream},
        input::PathIds,
        json_text::write_json_string,
        query::{self, Query},
        utf8_stream::{TextChunk, Utf8Decoder},
    },
    routes::processes::view::ProcessView,
    stream::sse,
};
use axum::{
    Json,
    body::Bytes,
    extract::State,
    http::{HeaderMap, Uri},
    response::{IntoResponse, Response},
};
use base64::{Engine, engine::general_purpose::STANDARD};
use futures_util::stream;
use isolet_sandbox::{AgentError, AgentEvent, ProcessConnection, ProcessId, ProcessInfo, Sandbox};
use isolet_wire::{
    frame::Data,
    process::{LOG_BYTES, Process},
    response::{AgentResponse, STDOUT},
};
use serde::Serialize;
use std::{convert::Infallible, fmt::Write as _};
use tokio::time::{Instant, timeout_at};
use utoipa::ToSchema;

/// The most output in one chunk of the body.
const CHUNK_BYTES: usize = 128 * 1024;

/// A part of a log.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ProcessLog)]
pub(crate) struct LogView {
    /// The process.
    process: ProcessView,
    /// The position of the first byte of this part.
    from: u64,
    /// The position after this part. Use it as `since` of the next call.
    position: u64,
    /// Requested bytes before `from` that are no longer held.
    missed: u64,
    /// The output as text. Bytes that are not valid UTF-8 are replaced by U+FFFD.
    stdout: String,
    /// The exact bytes in base64. Present only if the text differs from them.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    stdout_b64: Option<String>,
    /// The output as text. Bytes that are not valid UTF-8 are replaced by U+FFFD.
    stderr: String,
    /// The exact bytes in base64. Present only if the text differs from them.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    stderr_b64: Option<String>,
}

pub(super) enum Event {
    /// Output with its position in its stream, and the position after it in the log.
    Data(Data, u64),
    /// Positions that are no longer available.
    Gap(u64, u64),
    /// The end of the requested part.
    End(Box<ProcessInfo>),
}

/// Reads a log by positions.
pub(super) struct LogReader {
    link: ProcessConnection,
    id: ProcessId,
    /// The position after the data that was read.
    pub(super) position: u64,
}

impl LogReader {
    pub(super) async fn open(
        sandbox: &Sandbox,
        id: &ProcessId,
        since: Option<u64>,
        follow: bool,
    ) -> Result<Self, ApiError> {
        let link = sandbox.process_log(id, since, follow).await?;
        let position = link.log().position;
        Ok(Self { link, id: id.clone(), position })
    }

    fn info(&self, process: Process) -> ProcessInfo {
        let session = process.session.as_deref().and_then(|id| id.parse().ok());
        let denied = isolet_sandbox::Denied::default();
        ProcessInfo { id: self.id.clone(), session, process, lost: false, denied }
    }

    /// Waits for the next event. Cancel-safe. Must not be called after the end.
    pub(super) async fn next(&mut self) -> Result<Event, ApiError> {
        let message = self.link.next().await?;
        self.classify(message)
    }

    /// Returns the next event if it has already arrived.
    pub(super) fn ready(&mut self) -> Result<Option<Event>, ApiError> {
        let message = self.link.try_next()?;
        message.map(|message| self.classify(message)).transpose()
    }

    fn classify(&mut self, message: AgentEvent) -> Result<Event, ApiError> {
        match message {
            AgentEvent::Data(body) => {
                let data = Data::parse(body).map_err(AgentError::from)?;
                self.position = self.position.saturating_add(data.bytes.len() as u64);
                Ok(Event::Data(data, self.position))
            }
            AgentEvent::Response(AgentResponse::ProcessGap { from, to }) => {
                self.position = to;
                Ok(Event::Gap(from, to))
            }
            AgentEvent::Response(AgentResponse::Process(process)) => {
                Ok(Event::End(Box::new(self.info(process))))
            }
            AgentEvent::Response(_) => Err(AgentError::Turn("unasked in a process's log").into()),
        }
    }
}

/// The position to continue from: the last event's id, or `?since=`; by default the beginning.
fn since(query: &Query<'_>, headers: &HeaderMap) -> Result<Option<u64>, ApiError> {
    let bad = |name| move || query::bad_parameter(name, "a position: a number, or `now`");
    let position = |text: &str| match text {
        "now" => Some(None),
        text => text.parse::<u64>().ok().map(Some),
    };
    if let Some(last) = headers.get("last-event-id") {
        let last = last.to_str().ok().and_then(position).flatten();
        return last.map(Some).ok_or_else(bad("Last-Event-ID"));
    }
    let Some(text) = query.text("since")? else { return Ok(Some(0)) };
    position(text).ok_or_else(bad("since"))
}

/// Read the log of a process
///
/// Returns the part of the log that the server holds. A *position* counts the bytes of both streams
/// in the order in which the server read them; `since` and `Last-Event-ID` are positions.
///
/// With `Accept: text/event-stream`, the server streams the log while it grows. The id of each
/// event is the position to continue from.
///
/// | event | data |
/// |---|---|
/// | `stdout`, `stderr` | `{"offset", "data"}`; with `Accept: text/event-stream; encoding=base64` exact bytes as `{"offset", "data_b64"}` |
/// | `gap` | `{"from", "to"}`: positions that are no longer held |
/// | `exit` | the process; the last event |
/// | `error` | `{"error", "message", "hint"}`; the last event |
#[utoipa::path(
    get, path = "/v1/sandboxes/{id}/processes/{process}/logs", operation_id = "processes_logs", tag = "processes",
    params(
        ("id" = String, Path),
        ("process" = String, Path),
        ("since" = Option<String>, Query, description = "Start at this position, or with `now` at the current end. Defaults to 0."),
        ("Last-Event-ID" = Option<u64>, Header, description = "Continue after the event with this id.")
    ),
    responses(
        (status = 200, description = "The log, or with `Accept: text/event-stream` a stream of it.", content((LogView = "application/json"), (String = "text/event-stream")))
    )
)]
pub(crate) async fn log(
    State(app): State<App>,
    caller: Caller,
    ids: PathIds,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let since = since(&Query::of(&uri, &["since"])?, &headers)?;
    let sandbox = app.look(&caller, &ids).await?;
    let encoding = accepts_event_stream(&headers);
    let reading = LogReader::open(&sandbox, ids.process()?, since, encoding.is_some()).await?;
    let cancellation = app.cancellations.subscribe(&caller);
    match encoding {
        Some(encoding) => Ok(follow(reading, encoding, cancellation)),
        None => whole(reading, cancellation).await,
    }
}

async fn whole(
    mut reading: LogReader,
    mut cancellation: Cancellation,
) -> Result<Response, ApiError> {
    let asked = reading.position;
    let mut texts = [Vec::new(), Vec::new()];
    let mut missed = 0_u64;
    let info = loop {
        let event = tokio::select! {
            biased;
            reason = cancellation.cancelled() => return Err(reason.into()),
            event = reading.next() => event?,
        };
        match event {
            // More than a log can hold: the agent lies.
            Event::Data(data, _) if texts[0].len() + texts[1].len() <= 4 * LOG_BYTES => {
                texts[usize::from(data.stream != STDOUT)].extend_from_slice(&data.bytes);
            }
            Event::Data(..) => return Err(AgentError::Turn("a log that does not end").into()),
            Event::Gap(from, to) => missed = missed.saturating_add(to.saturating_sub(from)),
            Event::End(info) => break info,
        }
    };
    let [out, err] = texts.map(|bytes| match String::from_utf8(bytes) {
        Ok(text) => (text, None),
        Err(error) => {
            let bytes = error.as_bytes();
            (String::from_utf8_lossy(bytes).into_owned(), Some(STANDARD.encode(bytes)))
        }
    });
    let view = LogView {
        process: (*info).into(),
        from: asked.saturating_add(missed),
        position: reading.position,
        missed,
        stdout: out.0,
        stdout_b64: out.1,
        stderr: err.0,
        stderr_b64: err.1,
    };
    Ok(Json(view).into_response())
}

/// Streams a log as server-sent events.
struct LogSseStream {
    reading: LogReader,
    encoding: EventEncoding,
    decoder: Utf8Decoder,
    cancellation: Cancellation,
    next: Instant,
    over: bool,
}

fn follow(reading: LogReader, encoding: EventEncoding, cancellation: Cancellation) -> Response {
    let next = Instant::now() + sse::KEEP_ALIVE;
    let stream = LogSseStream {
        reading,
        encoding,
        decoder: Utf8Decoder::default(),
        cancellation,
        next,
        over: false,
    };
    let first = ": following\n\n".to_owned();
    let events = stream::unfold((stream, first), |(mut stream, first)| async move {
        let chunk = if first.is_empty() { stream.next_chunk().await? } else { first };
        Some((Ok::<_, Infallible>(Bytes::from(chunk)), (stream, String::new())))
    });
    sse::response(events)
}

impl LogSseStream {
    /// The next events; `None` after the last one. Called only when the client has read the
    /// previous ones.
    async fn next_chunk(&mut self) -> Option<String> {
        if self.over {
            return None;
        }
        let mut out = String::new();
        let event = tokio::select! {
            biased;
            reason = self.cancellation.cancelled() => Err(reason.into()),
            event = timeout_at(self.next, self.reading.next()) => match event {
                Ok(event) => event,
                Err(_) => {
                    self.next = Instant::now() + sse::KEEP_ALIVE;
                    return Some(": alive\n\n".to_owned());
                }
            },
        };
        self.next = Instant::now() + sse::KEEP_ALIVE;
        let mut event = event.map(Some);
        loop {
            match event {
                Ok(Some(event)) => self.write(&mut out, event),
                Ok(None) => break,
                Err(failure) => {
                    self.over = true;
                    let text = serde_json::to_string(&failure).unwrap_or_default();
                    let _ = write!(out, "event: error\ndata: {text}\n\n");
                }
            }
            if self.over || out.len() > CHUNK_BYTES {
                break;
            }
            event = self.reading.ready();
        }
        // An empty chunk would not end the body and is no event.
        if out.is_empty() {
            out.push_str(": held\n\n");
        }
        Some(out)
    }

    fn write(&mut self, out: &mut String, event: Event) {
        match event {
            Event::Data(data, position) if self.encoding == EventEncoding::Base64 => {
                let name = stream_name(data.stream);
                let offset = data.offset;
                let bytes = STANDARD.encode(&data.bytes);
                let _ = write!(
                    out,
                    "id: {position}\nevent: {name}\ndata: {{\"offset\":{offset},\"data_b64\":\"{bytes}\"}}\n\n"
                );
            }
            Event::Data(data, position) => {
                let Data { stream, offset, bytes, .. } = data;
                if let Some(chunk) = self.decoder.decode_chunk(stream, "", offset, &bytes) {
                    let text = output_event(&chunk);
                    // While a character is incomplete there is no position to continue from.
                    if !self.decoder.has_partial_char() {
                        let _ = writeln!(out, "id: {position}");
                    }
                    out.push_str(&text);
                }
            }
            Event::Gap(from, to) => {
                self.decoder.close().iter().for_each(|chunk| out.push_str(&output_event(chunk)));
                let _ =
                    write!(out, "id: {to}\nevent: gap\ndata: {{\"from\":{from},\"to\":{to}}}\n\n");
            }
            Event::End(info) => {
                self.decoder.close().iter().for_each(|chunk| out.push_str(&output_event(chunk)));
                let text = serde_json::to_string(&ProcessView::from(*info)).unwrap_or_default();
                let position = self.reading.position;
                let _ = write!(out, "id: {position}\nevent: exit\ndata: {text}\n\n");
                self.over = true;
            }
        }
    }
}

fn stream_name(stream: u8) -> &'static str {
    if stream == STDOUT { "stdout" } else { "stderr" }
}

fn output_event(chunk: &TextChunk<'_>) -> String {
    let mut out = format!(
        "event: {}\ndata: {{\"offset\":{},\"data\":",
        stream_name(chunk.stream),
        chunk.offset
    )
    .into_bytes();
    write_json_string(&mut out, &chunk.text);
    out.extend_from_slice(b"}\n\n");
    String::from_utf8(out).unwrap_or_default()
}
