//! A run in a code context, and its result captured in one response.

pub(crate) use crate::stream::context_run_view::RunAnswer;

use crate::auth::cancellation::Cancellation;
use crate::foundation::error::ApiError;
use crate::limits::memory_budget::MemoryShare;
use crate::stream::captured_output::CapturedOutput;
use crate::stream::context_run_view::{FaultView, RunReport, ShownView};
use axum::http::StatusCode;
use axum::response::Response;
use isolet_sandbox::contexts::{
    Code, ContextRunConnection, ContextRunEvent, ContextSpec, Fault, SaidMemory,
};
use isolet_sandbox::{ContextId, Denials, Denied, Error, Sandbox};
use isolet_wire::context::ContextRunEnd;
use isolet_wire::frame::DataFrame;
use isolet_wire::response::RefusalReason;
use serde_json::value::{RawValue, to_raw_value};
use std::time::Duration;
use tokio::time::timeout;

/// A refusal within this time becomes an HTTP status; a later one becomes an event.
const FIRST_EVENT_WAIT: Duration = Duration::from_millis(50);
/// The most results in one response, in bytes of JSON; further results are only counted.
const RESULTS_BYTES_MAX: usize = 64 * 1024 * 1024;
/// The most results in one response.
const RESULTS_MAX: usize = 10_000;

/// Results as JSON texts, up to the limits of one response.
#[derive(Debug, Default)]
struct CapturedResults {
    texts: Vec<Box<RawValue>>,
    bytes: usize,
    /// Results that were not captured.
    lost: u64,
}

impl CapturedResults {
    /// Captures a result if the limits and the memory of `output` allow it.
    fn push(&mut self, shown: &ShownView<'_>, output: &mut CapturedOutput) {
        let text = to_raw_value(shown).ok().filter(|text| {
            self.texts.len() < RESULTS_MAX
                && self.bytes + text.get().len() <= RESULTS_BYTES_MAX
                && output.reserve_beside(self.bytes, text.get().len())
        });
        match text {
            Some(text) => {
                self.bytes += text.get().len() + usize::from(!self.texts.is_empty());
                self.texts.push(text);
            }
            None => self.lost += 1,
        }
    }
}

impl SaidMemory for MemoryShare {
    fn take(&mut self, bytes: usize) -> bool {
        self.take(bytes)
    }

    fn clear(&mut self) {
        self.clear();
    }
}

/// A run in progress.
pub(crate) struct ContextRun {
    link: Option<ContextRunConnection>,
    /// Whether the run is interrupted when this is dropped before its end.
    cancel: bool,
    first: Option<ContextRunEvent>,
    /// Whether it runs in an interpreter that replaced one that had ended.
    pub(super) fresh: bool,
    /// Whether an exception was received.
    pub(crate) fault: bool,
    denials: Denials,
    /// The end, while the denied traffic is still awaited.
    ended: Option<ContextRunEnd>,
    /// Known from the end on.
    denied: Denied,
}

impl Drop for ContextRun {
    fn drop(&mut self) {
        if self.cancel
            && let Some(link) = &mut self.link
        {
            let _ = link.cancel();
        }
    }
}

impl ContextRun {
    pub(crate) fn new(link: ContextRunConnection, denials: Denials, cancel: bool) -> Self {
        let first = None;
        let ended = None;
        let denied = Denied::default();
        Self { link: Some(link), cancel, first, fresh: false, fault: false, denials, ended, denied }
    }

    /// Waits briefly for a refusal by the agent, so that it can become an HTTP status.
    pub(crate) async fn started(mut self) -> Result<Self, Error> {
        if let Ok(event) = timeout(FIRST_EVENT_WAIT, self.next()).await {
            self.first = Some(event?);
        }
        Ok(self)
    }

    /// Waits for the next event; [`ContextRunEvent::End`] is the last one. Cancel-safe.
    pub(crate) async fn next(&mut self) -> Result<ContextRunEvent, Error> {
        if let Some(event) = self.first.take() {
            return Ok(event);
        }
        loop {
            if self.ended.is_some() {
                self.denied = self.denials.settled().await;
                let end = self.ended.take().ok_or(isolet_sandbox::AgentError::Ended)?;
                return Ok(ContextRunEvent::End(end));
            }
            let link = self.link.as_mut().ok_or(isolet_sandbox::AgentError::Ended)?;
            let event = link.next().await?;
            if let Some(event) = self.observe(event) {
                return Ok(event);
            }
        }
    }

    pub(crate) fn ready(&mut self) -> Result<Option<ContextRunEvent>, Error> {
        let Some(link) = self.link.as_mut() else { return Ok(None) };
        Ok(link.ready()?.and_then(|event| self.observe(event)))
    }

    /// Tracks the state of the run. [`Self::next`] returns the end once the denied traffic is
    /// known.
    fn observe(&mut self, event: ContextRunEvent) -> Option<ContextRunEvent> {
        match event {
            ContextRunEvent::Began(fresh) => {
                self.denials.begin();
                self.fresh = fresh;
            }
            ContextRunEvent::Fault(_) => self.fault = true,
            ContextRunEvent::End(end) => {
                if let Some(link) = self.link.take() {
                    link.park();
                }
                if self.denials.there() {
                    self.ended = Some(end);
                    return None;
                }
                return Some(ContextRunEvent::End(end));
            }
            _ => {}
        }
        Some(event)
    }

    /// Captures all events in one response.
    pub(crate) async fn finish(
        mut self,
        mut output: CapturedOutput,
        report: RunReport,
        mut cancellation: Cancellation,
    ) -> Result<Response, ApiError> {
        let mut results = CapturedResults::default();
        let mut fault = None;
        let end = loop {
            let event = tokio::select! {
                biased;
                reason = cancellation.cancelled() => return Err(reason.into()),
                event = self.next() => event.map_err(context_error)?,
            };
            match event {
                ContextRunEvent::Began(_) => {}
                ContextRunEvent::Output(DataFrame { stream, bytes, .. }) => {
                    output.push(stream, &bytes)
                }
                ContextRunEvent::Shown(shown) => {
                    results.push(&ShownView::from(&shown), &mut output)
                }
                ContextRunEvent::Fault(one) => fault = Some(one),
                ContextRunEvent::Unread => results.lost += 1,
                ContextRunEvent::End(end) => break end,
            }
        };
        let fault = fault.or_else(|| death_exception(&end));
        let text_bytes = results.bytes;
        let mut answer = RunAnswer::new(&end, self.fresh, output.fields(), self.denied(), report);
        answer.results = results.texts;
        answer.results_lost = results.lost;
        answer.exception = fault.as_ref().map(FaultView::from);
        Ok(answer.into_response(text_bytes))
    }

    /// Takes the traffic that was denied while this ran.
    pub(super) fn denied(&mut self) -> Denied {
        std::mem::take(&mut self.denied)
    }
}

/// Starts a run, whose messages take their memory out of `memory`. If there is no context of this id,
/// it is created with the settings of `default`.
///
/// # Errors
/// 404 `no_context`, and refusals by the agent.
pub(crate) async fn begin(
    sandbox: &Sandbox,
    id: &ContextId,
    code: Code,
    cancel: bool,
    default: Option<ContextSpec>,
    memory: MemoryShare,
) -> Result<ContextRun, ApiError> {
    // Asked before the run: its refusal may arrive later than `started` waits.
    if let Some(spec) = default
        && let Err(Error::Refused { reason: RefusalReason::NoShell, .. }) =
            sandbox.context(id).await
    {
        sandbox.context_open(spec, true).await.map_err(context_error)?;
    }
    let link = sandbox.context_run(id, code, Box::new(memory)).await;
    let link = link.map_err(context_error)?;
    ContextRun::new(link, sandbox.denials(), cancel).started().await.map_err(context_error)
}

/// The exception for a run whose interpreter has died.
pub(crate) fn death_exception(end: &ContextRunEnd) -> Option<Fault> {
    let died = end.died?;
    let how = match (died.code, died.signal) {
        _ if end.timed_out => "was killed because it did not stop at its timeout".to_owned(),
        _ if end.oom => "was killed because the sandbox ran out of memory".to_owned(),
        _ if end.interrupted => "was ended while this ran".to_owned(),
        (Some(code), _) => format!("exited with code {code}"),
        (_, signal) => format!("was ended by signal {}", signal.unwrap_or(0)),
    };
    let message =
        format!("the interpreter {how}; its variables are lost, and the next run starts a new one");
    Some(Fault { name: "ContextDied".into(), message, traceback: Vec::new() })
}

/// Converts an error, with a code of its own for unknown contexts.
pub(crate) fn context_error(error: Error) -> ApiError {
    match error {
        Error::Refused { reason: RefusalReason::NoShell, message } => ApiError::new(
            StatusCode::NOT_FOUND,
            "no_context",
            message,
            "create it with POST …/contexts; contexts end when their sandbox sleeps",
        ),
        other => other.into(),
    }
}
