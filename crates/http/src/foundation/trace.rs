//! The trace of a request: request, authenticate, reach, command, agent, answer.
//!
//! The spans are those of the crate `tracing`, with the target [`TRACE_TARGET`]. The program that
//! exports them installs [`RequestTracing`] with [`enable_tracing`]; without it, no span is
//! created. Spans never contain commands, environments, paths, keys or tickets.

use crate::foundation::request_id::RequestId;
use axum::http::{HeaderMap, Method, StatusCode};
use isolet_sandbox::{TRACE_TARGET, TenantId};
use isolet_wire::response::CommandExit;
use std::sync::OnceLock;
use std::time::{Duration, SystemTime};
use tracing::field::Empty;
use tracing::{Span, info_span};

static TRACING: OnceLock<Box<dyn RequestTracing>> = OnceLock::new();

/// What the spans of `tracing` cannot do: decide on sampling, and know other processes.
pub trait RequestTracing: Send + Sync {
    /// Whether a request is traced: as its `traceparent` says, otherwise by chance.
    fn samples(&self, headers: &HeaderMap) -> bool;
    /// Makes the client's span the parent of a new span, if the headers name one.
    fn set_parent(&self, span: &Span, headers: &HeaderMap);
    /// Gives a span the name under which it is exported.
    fn rename(&self, span: &Span, name: String);
    /// Writes the headers `traceparent` and `tracestate`, by which others continue the trace below
    /// a span.
    fn propagate(&self, span: &Span, headers: &mut HeaderMap);
    /// Records a child of `parent` that another process has measured.
    fn record_past(&self, parent: &Span, name: &'static str, start: SystemTime, lasted: Duration);
}

/// Traces requests from now on. Only the first call in a process counts.
pub fn enable_tracing(tracing: Box<dyn RequestTracing>) {
    let _ = TRACING.set(tracing);
}

/// The installed tracing, if the span is part of a trace.
fn tracing_of(span: &Span) -> Option<&'static dyn RequestTracing> {
    let tracing = TRACING.get().filter(|_| !span.is_disabled())?;
    Some(&**tracing)
}

/// The span of a request; disabled if the request is not sampled.
pub(crate) fn request_span(method: &Method, headers: &HeaderMap, id: &RequestId) -> Span {
    let Some(tracing) = TRACING.get().filter(|tracing| tracing.samples(headers)) else {
        return Span::none();
    };
    let span = info_span!(
        target: TRACE_TARGET,
        parent: None,
        "request",
        otel.name = method.as_str(),
        otel.kind = "server",
        otel.status_code = Empty,
        http.request.method = method.as_str(),
        http.route = Empty,
        http.response.status_code = Empty,
        isolet.request_id = id.as_str(),
        isolet.tenant = Empty,
    );
    tracing.set_parent(&span, headers);
    span
}

/// Records the route in the current span: the pattern, so that no name of a tenant is part of it.
pub(crate) fn record_route(method: &Method, route: &str) {
    if TRACING.get().is_none() {
        return;
    }
    let span = Span::current();
    if let Some(tracing) = tracing_of(&span) {
        span.record("http.route", route);
        tracing.rename(&span, format!("{method} {route}"));
    }
}

/// Records the tenant in the current span.
pub(crate) fn record_tenant(tenant: &TenantId) {
    if TRACING.get().is_some() {
        Span::current().record("isolet.tenant", tenant.as_str());
    }
}

/// Records the status of the response in the span of its request.
pub(crate) fn record_status(span: &Span, status: StatusCode) {
    if span.is_disabled() {
        return;
    }
    // The layer writes unsigned numbers as text.
    span.record("http.response.status_code", i64::from(status.as_u16()));
    if status.is_server_error() {
        span.record("otel.status_code", "ERROR");
    }
}

/// Writes the trace of a span to the headers of a request to another program.
pub(crate) fn propagate(span: &Span, headers: &mut HeaderMap) {
    if let Some(tracing) = tracing_of(span) {
        tracing.propagate(span, headers);
    }
}

/// The span of a command, from its sending to its exit.
pub(crate) struct CommandSpan {
    span: Span,
    /// When the command was sent to the agent; `None` without a trace.
    sent: Option<SystemTime>,
}

impl CommandSpan {
    pub(crate) fn begin() -> Self {
        let span = info_span!(
            target: TRACE_TARGET,
            "command",
            otel.kind = "client",
            isolet.exit_code = Empty,
            isolet.timed_out = Empty,
        );
        let sent = (!span.is_disabled()).then(SystemTime::now);
        Self { span, sent }
    }

    /// The value of the variable `TRACEPARENT`, by which the command continues the trace.
    pub(crate) fn traceparent(&self) -> Option<String> {
        let tracing = tracing_of(&self.span)?;
        let mut headers = HeaderMap::new();
        tracing.propagate(&self.span, &mut headers);
        Some(headers.get("traceparent")?.to_str().ok()?.to_owned())
    }

    /// Records the exit, and the time that the agent measured: it ended just now. Time in a queue
    /// before the command lies in front of the agent's span.
    pub(crate) fn exited(&mut self, exit: &CommandExit) {
        let Some(sent) = self.sent.take() else { return };
        self.span.record("isolet.exit_code", exit.code);
        self.span.record("isolet.timed_out", exit.timed_out);
        let lasted = Duration::from_micros(exit.micros);
        let start = SystemTime::now().checked_sub(lasted).map_or(sent, |start| start.max(sent));
        if let Some(tracing) = tracing_of(&self.span) {
            tracing.record_past(&self.span, "agent", start, lasted);
        }
    }
}
