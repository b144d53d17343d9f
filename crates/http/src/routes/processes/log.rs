//! The log of a process: all of it at once, or streamed as server-sent events.

use crate::app::App;
use crate::auth::caller::Caller;
use crate::auth::cancellation::Cancellation;
use crate::foundation::error::ApiError;
use crate::foundation::event_encoding::{EventEncoding, accepts_event_stream};
use crate::foundation::input::PathIds;
use crate::foundation::query::{self, Query};
use crate::foundation::utf8_stream::Utf8Decoder;
use crate::routes::processes::view::ProcessView;
use crate::stream::event_data::{GapEvent, write_bytes, write_text};
use crate::stream::event_stream::{EventBuffer, EventSource, EventStream, last_event_id};
use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, Uri};
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use isolet_sandbox::{AgentError, AgentEvent, ProcessConnection, ProcessId, ProcessInfo, Sandbox};
use isolet_wire::frame::DataFrame;
use isolet_wire::process::{LOG_BYTES, ProcessStatus};
use isolet_wire::response::{AgentResponse, STDOUT};
use serde::Serialize;
use std::ops::ControlFlow;
use utoipa::ToSchema;

/// A part of a log.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ProcessLog)]
pub(crate) struct LogView {
    /// The id of the process.
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

pub(crate) enum LogEvent {
    /// Output with its position in its stream, and the position after it in the log.
    Data(DataFrame, u64),
    /// Positions that are no longer available.
    Gap(u64, u64),
    /// The end of the requested part.
    End(Box<ProcessInfo>),
}

/// Reads a log by positions.
pub(crate) struct LogReader {
    link: ProcessConnection,
    id: ProcessId,
    /// The position after the data that was read.
    pub(crate) position: u64,
}

impl LogReader {
    pub(super) async fn open(
        sandbox: &Sandbox,
        id: &ProcessId,
        since: Option<u64>,
        follow: bool,
    ) -> Result<Self, ApiError> {
        let link = sandbox.process_log(id, since, follow).await?;
        Ok(Self::new(link, id.clone()))
    }

    pub(crate) fn new(link: ProcessConnection, id: ProcessId) -> Self {
        let position = link.log().position;
        Self { link, id, position }
    }

    fn info(&self, process: ProcessStatus) -> ProcessInfo {
        let session = process.session.as_deref().and_then(|id| id.parse().ok());
        let denied = isolet_sandbox::Denied::default();
        ProcessInfo { id: self.id.clone(), session, process, lost: false, denied }
    }

    /// Waits for the next event. Cancel-safe. Must not be called after the end.
    pub(crate) async fn next(&mut self) -> Result<LogEvent, ApiError> {
        let message = self.link.next().await?;
        self.classify(message)
    }

    /// Returns the next event if it has already arrived.
    pub(crate) fn ready(&mut self) -> Result<Option<LogEvent>, ApiError> {
        let message = self.link.try_next()?;
        message.map(|message| self.classify(message)).transpose()
    }

    fn classify(&mut self, message: AgentEvent) -> Result<LogEvent, ApiError> {
        match message {
            AgentEvent::Data(body) => {
                let data = DataFrame::parse(body).map_err(AgentError::from)?;
                self.position = self.position.saturating_add(data.bytes.len() as u64);
                Ok(LogEvent::Data(data, self.position))
            }
            AgentEvent::Response(AgentResponse::ProcessGap { from, to }) => {
                self.position = to;
                Ok(LogEvent::Gap(from, to))
            }
            AgentEvent::Response(AgentResponse::Process(process)) => {
                Ok(LogEvent::End(Box::new(self.info(process))))
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
    if let Some(last) = last_event_id(headers) {
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
            LogEvent::Data(data, _) if texts[0].len() + texts[1].len() <= 4 * LOG_BYTES => {
                texts[usize::from(data.stream != STDOUT)].extend_from_slice(&data.bytes);
            }
            LogEvent::Data(..) => {
                return Err(AgentError::Turn("a log that does not end").into());
            }
            LogEvent::Gap(from, to) => missed = missed.saturating_add(to.saturating_sub(from)),
            LogEvent::End(info) => break info,
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

/// The events of a log as it grows.
struct LogEvents {
    reading: LogReader,
    encoding: EventEncoding,
    decoder: Utf8Decoder,
}

fn follow(reading: LogReader, encoding: EventEncoding, cancellation: Cancellation) -> Response {
    let mut first = EventBuffer::default();
    first.comment("following");
    let events = LogEvents { reading, encoding, decoder: Utf8Decoder::default() };
    EventStream::new(Some(events), first, cancellation).into_response()
}

impl EventSource for LogEvents {
    type Item = LogEvent;

    async fn next(&mut self) -> Result<LogEvent, ApiError> {
        self.reading.next().await
    }

    fn ready(&mut self) -> Result<Option<LogEvent>, ApiError> {
        self.reading.ready()
    }

    fn write(&mut self, event: LogEvent, out: &mut EventBuffer) -> ControlFlow<()> {
        match event {
            LogEvent::Data(data, position) if self.encoding == EventEncoding::Base64 => {
                write_bytes(out, Some(position), data.stream, data.offset, &data.bytes);
            }
            LogEvent::Data(DataFrame { stream, offset, bytes, .. }, position) => {
                if let Some(chunk) = self.decoder.decode_chunk(stream, "", offset, &bytes) {
                    // While a character is incomplete there is no position to continue from.
                    let id = Some(position).filter(|_| !self.decoder.has_partial_char());
                    write_text(out, id, &chunk);
                }
            }
            LogEvent::Gap(from, to) => {
                self.decoder.close().iter().for_each(|chunk| write_text(out, None, chunk));
                out.event(Some(to), "gap", &GapEvent { from, to });
            }
            LogEvent::End(info) => {
                self.decoder.close().iter().for_each(|chunk| write_text(out, None, chunk));
                out.event(Some(self.reading.position), "exit", &ProcessView::from(*info));
                return ControlFlow::Break(());
            }
        }
        ControlFlow::Continue(())
    }
}
