//! A run in a code context, and its result captured in one response.

use crate::{
    auth::cancellation::Cancellation,
    foundation::{
        denied::{self, DeniedView},
        error::ApiError,
    },
    stream::captured_output::{CapturedOutput, Truncated, ms},
};
use axum::{
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use isolet_sandbox::{
    Denials, Denied, Error,
    contexts::{Event, Fault, RunLink},
};
use isolet_wire::{context::End, frame::Data, response::RefusalReason};
use serde::Serialize;
use std::time::Duration;
use tokio::time::timeout;
use utoipa::ToSchema;

/// A refusal within this time becomes an HTTP status; a later one becomes an event.
const FIRST_EVENT_WAIT: Duration = Duration::from_millis(50);
/// The most results in one response, in bytes of JSON; further results are only counted.
const RESULTS_BYTES_MAX: usize = 64 * 1024 * 1024;
/// The most results in one response.
const RESULTS_MAX: usize = 10_000;

/// The result of a run.
#[derive(Debug, Serialize, ToSchema)]
#[allow(dead_code)] // Written by hand: outputs are large.
#[schema(as = CodeRunResult)]
pub(crate) struct RunAnswer {
    /// The context.
    context: String,
    /// The number of this run in the context, from 1.
    run: u64,
    /// What the code displayed, in order. The value of the last expression comes last, with kind
    /// `result`.
    results: Vec<ShownView>,
    /// The exception that ended the run, if any.
    #[schema(required = true)]
    exception: Option<FaultView>,
    /// The output as text. Bytes that are not valid UTF-8 are replaced by U+FFFD.
    stdout: String,
    /// The exact bytes in base64. Present only if the text differs from them.
    #[schema(nullable = false)]
    stdout_b64: Option<String>,
    /// The output as text. Bytes that are not valid UTF-8 are replaced by U+FFFD.
    stderr: String,
    /// The exact bytes in base64. Present only if the text differs from them.
    #[schema(nullable = false)]
    stderr_b64: Option<String>,
    /// How much output the answer leaves out.
    #[schema(required = true)]
    truncated: Option<Truncated>,
    /// The number of results that were too large, too many or unreadable.
    results_lost: u64,
    /// Bytes of output that were written since the previous run and are no longer held.
    late_lost: u64,
    /// Whether the timeout ended the run.
    timed_out: bool,
    /// Whether a client interrupted the run, or restarted or deleted its context.
    interrupted: bool,
    /// Whether the kernel killed a process of the sandbox for lack of memory while the code ran.
    oom: bool,
    /// How the interpreter ended, if it ended with this run. All variables are lost, and the next
    /// run uses a new interpreter.
    #[schema(required = true)]
    died: Option<DiedView>,
    /// Whether the interpreter was started because an earlier one had ended.
    fresh: bool,
    /// The running time, in milliseconds.
    duration_ms: f64,
    /// What the last sleep ended: any of `shells`, `processes`, `files`, `shell_state`, `terminals`
    /// and others. Present only in the first answer after the sandbox woke.
    #[schema(nullable = false)]
    lost: Option<Vec<String>>,
    /// What the sandbox was denied while this ran, whoever tried it; at most 64 entries. Absent if
    /// nothing was denied. To allow it, send `{"allow_add": denied}` to `PATCH
    /// /v1/sandboxes/{id}/network`.
    #[schema(nullable = false)]
    denied: Option<Vec<DeniedView>>,
    /// The number of further entries that `denied` leaves out.
    #[schema(nullable = false)]
    denied_lost: Option<u64>,
}

/// A value that a run displayed.
#[derive(Debug, Serialize, ToSchema)]
#[allow(dead_code)]
#[schema(as = DisplayedValue)]
pub(crate) struct ShownView {
    /// `result` for the value of the last expression, `display` for what the code displayed.
    kind: String,
    /// The value by media type: text, JSON values, or images in base64.
    data: serde_json::Map<String, serde_json::Value>,
    /// The metadata that the code gave.
    metadata: serde_json::Map<String, serde_json::Value>,
    /// The size in bytes of representations that were too large, by media type.
    #[schema(nullable = false)]
    cut: Option<std::collections::BTreeMap<String, u64>>,
}

/// An exception.
#[derive(Debug, Serialize, ToSchema)]
#[allow(dead_code)]
#[schema(as = CodeException)]
pub(crate) struct FaultView {
    /// The class of the exception, such as `ValueError`. `ContextDied` if the interpreter ended.
    name: String,
    /// The message of the exception.
    message: String,
    /// The traceback, line by line.
    traceback: Vec<String>,
}

/// How an interpreter ended.
#[derive(Debug, Serialize, ToSchema)]
#[allow(dead_code)]
#[schema(as = InterpreterExit)]
pub(crate) struct DiedView {
    /// The exit code, if it exited.
    #[schema(required = true)]
    code: Option<i32>,
    /// The number of the signal that ended it.
    #[schema(required = true)]
    signal: Option<i32>,
}

/// A run in progress.
pub(crate) struct ContextRun {
    link: Option<RunLink>,
    /// Whether the run is interrupted when this is dropped before its end.
    cancel: bool,
    first: Option<Event>,
    fresh: bool,
    pub(super) fault: bool,
    denials: Denials,
    /// The end, while the denied traffic is still awaited.
    ended: Option<End>,
    denied: Denied,
}

impl Drop for ContextRun {
    fn drop(&mut self) {
        if let (Some(link), true) = (&mut self.link, self.cancel) {
            let _ = link.cancel();
        }
    }
}

impl ContextRun {
    pub(crate) fn new(link: RunLink, denials: Denials, cancel: bool) -> Self {
        let first = None;
        let ended = None;
        let denied = Denied::default();
        Self { link: Some(link), cancel, first, fresh: false, fault: false, denials, ended, denied }
    }

    /// Waits a moment for a refusal.
    pub(crate) async fn started(mut self) -> Result<Self, Error> {
        if let Ok(event) = timeout(FIRST_EVENT_WAIT, self.next()).await {
            self.first = Some(event?);
        }
        Ok(self)
    }

    /// Waits for the next event; [`Event::End`] is the last one. Cancel-safe.
    pub(super) async fn next(&mut self) -> Result<Event, Error> {
        if let Some(event) = self.first.take() {
            return Ok(event);
        }
        loop {
            if self.ended.is_some() {
                self.denied = self.denials.told().await;
                let end = self.ended.take().ok_or(isolet_sandbox::AgentError::Ended)?;
                return Ok(Event::End(end));
            }
            let link = self.link.as_mut().ok_or(isolet_sandbox::AgentError::Ended)?;
            let event = link.next().await?;
            if let Some(event) = self.observe(event) {
                return Ok(event);
            }
        }
    }

    pub(super) fn ready(&mut self) -> Result<Option<Event>, Error> {
        let Some(link) = self.link.as_mut() else { return Ok(None) };
        Ok(link.ready()?.and_then(|event| self.observe(event)))
    }

    /// Tracks the state of the run. [`Self::next`] returns the end once the denied traffic is
    /// known.
    fn observe(&mut self, event: Event) -> Option<Event> {
        match event {
            Event::Began(fresh) => {
                self.denials.begin();
                self.fresh = fresh;
            }
            Event::Fault(_) => self.fault = true,
            Event::End(end) => {
                if let Some(link) = self.link.take() {
                    link.park();
                }
                if self.denials.there() {
                    self.ended = Some(end);
                    return None;
                }
                return Some(Event::End(end));
            }
            _ => {}
        }
        Some(event)
    }

    /// Captures all events in one response.
    pub(crate) async fn finish(
        mut self,
        mut output: CapturedOutput,
        more: &str,
        mut cancellation: Cancellation,
    ) -> Result<Response, ApiError> {
        let mut results = String::new();
        let mut count = 0;
        let mut unread = 0_u64;
        let mut fault = None;
        let end = loop {
            let event = tokio::select! {
                biased;
                reason = cancellation.cancelled() => return Err(reason.into()),
                event = self.next() => event.map_err(context_error)?,
            };
            match event {
                Event::Began(_) => {}
                Event::Output(Data { stream, bytes, .. }) => output.push(stream, &bytes),
                Event::Shown(shown) => {
                    let text = to_json(&shown);
                    let large = results.len() + text.len() > RESULTS_BYTES_MAX;
                    if count >= RESULTS_MAX
                        || large
                        || !output.reserve_beside(results.len(), text.len())
                    {
                        unread += 1;
                        continue;
                    }
                    results.push_str(if count > 0 { "," } else { "" });
                    results.push_str(&text);
                    count += 1;
                }
                Event::Fault(one) => fault = Some(one),
                Event::Unread => unread += 1,
                Event::End(end) => break end,
            }
        };
        let fault = fault.or_else(|| death_exception(&end));
        let mut text =
            format!("{{\"results\":[{results}],\"exception\":{}", to_json(&fault)).into_bytes();
        output.write(&mut text);
        let fields = self.fields(&end);
        text.extend_from_slice(format!(",\"results_lost\":{unread},{fields}{more}}}").as_bytes());
        let mut response = text.into_response();
        let kind = HeaderValue::from_static("application/json");
        response.headers_mut().insert(header::CONTENT_TYPE, kind);
        Ok(response)
    }

    /// The JSON fields that say how the run ended, without braces.
    pub(super) fn fields(&self, end: &End) -> String {
        let died = match end.died {
            None => "null".to_owned(),
            Some(died) => to_json(&DiedView { code: died.code, signal: died.signal }),
        };
        format!(
            "\"run\":{},\"late_lost\":{},\"timed_out\":{},\"interrupted\":{},\"oom\":{},\"died\":{died},\"fresh\":{},\"duration_ms\":{}{}",
            end.number,
            end.lost,
            end.timed_out,
            end.interrupted,
            end.oom,
            self.fresh,
            ms(end.micros),
            denied::fields(&self.denied)
        )
    }
}

/// The exception for a run whose interpreter has died.
pub(super) fn death_exception(end: &End) -> Option<Fault> {
    let died = end.died?;
    let how = match (died.code, died.signal) {
        _ if end.timed_out => "was killed: it did not heed its timeout".to_owned(),
        _ if end.oom => "was killed for memory".to_owned(),
        _ if end.interrupted => "was ended while this ran".to_owned(),
        (Some(code), _) => format!("has exited with code {code}"),
        (_, signal) => format!("was ended by signal {}", signal.unwrap_or(0)),
    };
    let message =
        format!("the interpreter {how}; its variables are lost, and the next run begins anew");
    Some(Fault { name: "ContextDied".into(), message, traceback: Vec::new() })
}

pub(super) fn to_json(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_else(|_| "null".to_owned())
}

/// Converts an error, with a code of its own for unknown contexts.
pub(crate) fn context_error(error: Error) -> ApiError {
    match error {
        Error::Refused { why: RefusalReason::NoShell, message } => ApiError::new(
            StatusCode::NOT_FOUND,
            "no_context",
            message,
            "make it with POST …/contexts; contexts end when their sandbox sleeps",
        ),
        other => other.into(),
    }
}
