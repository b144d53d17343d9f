//! Events of sandboxes as server-sent events, for one sandbox or for all of the caller's.

pub(crate) mod view;

use crate::app::App;
use crate::auth::caller::Caller;
use crate::foundation::error::ApiError;
use crate::foundation::input::PathIds;
use crate::stream::event_data::GapEvent;
use crate::stream::event_stream::{EventBuffer, EventSource, EventStream, last_event_id};
use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::Response;
use isolet_sandbox::SandboxId;
use isolet_sandbox::events::{EventKind, Follow, Gap, SandboxEvent, TooSlow};
use std::ops::ControlFlow;
use std::sync::Arc;
use view::SandboxEventView;

/// The header of a response with the id after which its stream continues: a client that sends it as
/// `Last-Event-ID` misses nothing.
pub(crate) const EVENT_POSITION: HeaderName = HeaderName::from_static("isolet-event-position");

/// The events that a client follows.
struct FollowedEvents {
    follow: Follow,
    /// Whether it follows one sandbox, whose deletion ends the stream.
    one: bool,
}

/// Stream the events of a sandbox
///
/// Sends server-sent events with increasing ids. Following a sandbox does not wake it. The stream
/// ends after `destroyed`. Ports and background work are watched only while a client follows.
///
/// | event | fields besides `id`, `at_ms` and `sandbox` |
/// |---|---|
/// | `created`, `running`, `paused`, `resumed`, `sleeping`, `woke`, `destroyed` | |
/// | `unreachable`, `failed` | `cause` |
/// | `session_created`, `session_deleted` | `session` |
/// | `command_started` | `session` (or `null`), `command` |
/// | `command_exited` | `session` (or `null`), `command`, `code` (or `null`) |
/// | `process_started` | `process`, `session` (or `null`) |
/// | `process_exited` | `process`, `session`, `code`, `signal` (each may be `null`) |
/// | `terminal_opened`, `terminal_ended` | `session` |
/// | `port_opened`, `port_closed` | `port` |
/// | `restored` | `snapshot` |
/// | `snapshot_taken` (without a request) | `snapshot`, `trigger`: `schedule` or `destroy` |
/// | `snapshot_failed` | `trigger`, `cause` |
/// | `network_changed` | `network` |
/// | `network_denied` (at most ten per second) | `host`, `port`, `protocol`, `rule`, `times` |
/// | `gap` | only `from` and `to`: ids of events that the server no longer holds |
/// | `error` | only `error`, `message`, `hint`: the stream ends, for example because the client reads too slowly |
#[utoipa::path(
    get, path = "/v1/sandboxes/{id}/events", operation_id = "events_stream_sandbox", tag = "events",
    params(
        ("id" = String, Path),
        ("Last-Event-ID" = Option<u64>, Header, description = "Continue after the event with this id. `0` starts with the oldest event that the server still holds. Without this header, the stream starts with the next event.")
    ),
    responses(
        (status = 200, description = "A stream of server-sent events.", content_type = "text/event-stream", body = String)
    )
)]
pub(crate) async fn of_one(
    State(app): State<App>,
    caller: Caller,
    ids: PathIds,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    answer(&app, &caller, Some(&ids.sandbox), &headers).await
}

/// Stream the events of all sandboxes
///
/// Sends the same events as `GET /v1/sandboxes/{id}/events`, for every sandbox of the caller.
/// `destroyed` does not end this stream.
///
/// In a fleet, the stream has the events of all nodes. The `id` of an event is then a text that holds
/// a position for each node, `id` in its data counts the events of its node, and `node_unreachable`
/// and `node_reachable` (`node`) say when a node stops and begins to answer.
#[utoipa::path(
    get, path = "/v1/events", operation_id = "events_stream", tag = "events",
    params(
        ("Last-Event-ID" = Option<String>, Header, description = "Continue after the event with this id. `0` starts with the oldest event that the server still holds. Without this header, the stream starts with the next event.")
    ),
    responses(
        (status = 200, description = "A stream of server-sent events.", content_type = "text/event-stream", body = String, headers(("Isolet-Event-Position" = u64, description = "The id after which the stream continues. Absent in a fleet, where the stream begins with an `id` without an event."), ("Isolet-Unreachable-Nodes" = String, description = "In a fleet: the nodes that did not answer, separated by commas.")))
    )
)]
pub(crate) async fn of_all(
    State(app): State<App>,
    caller: Caller,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    answer(&app, &caller, None, &headers).await
}

fn last(headers: &HeaderMap) -> Result<Option<u64>, ApiError> {
    let Some(id) = last_event_id(headers) else { return Ok(None) };
    let id = id.filter(|id| *id < u64::MAX);
    id.map(Some)
        .ok_or_else(|| ApiError::bad_field("Last-Event-ID", "must be the id of an event, a number"))
}

async fn answer(
    app: &App,
    caller: &Caller,
    sandbox: Option<&SandboxId>,
    headers: &HeaderMap,
) -> Result<Response, ApiError> {
    let last = last(headers)?;
    let (follow, gap) = app.service.follow(&caller.tenant, sandbox, last).await?;
    let mut first = EventBuffer::default();
    first.comment("following");
    if let Some(Gap { from, to }) = gap {
        first.event(None, "gap", &GapEvent { from, to });
    }
    let cancellation = app.cancellations.subscribe(caller);
    let position = HeaderValue::from(follow.position());
    let events = FollowedEvents { follow, one: sandbox.is_some() };
    let mut response = EventStream::new(Some(events), first, cancellation).into_response();
    response.headers_mut().insert(EVENT_POSITION, position);
    Ok(response)
}

impl EventSource for FollowedEvents {
    type Item = Vec<Arc<SandboxEvent>>;

    async fn next(&mut self) -> Result<Vec<Arc<SandboxEvent>>, ApiError> {
        self.follow.next().await.map_err(too_slow)
    }

    fn write(&mut self, events: Vec<Arc<SandboxEvent>>, out: &mut EventBuffer) -> ControlFlow<()> {
        for event in events {
            write_event(out, &event);
            let is_last = matches!(
                event.kind,
                EventKind::Destroyed
                    | EventKind::Superseded
                    | EventKind::Evicted
                    | EventKind::Moved
            );
            if self.one && is_last {
                return ControlFlow::Break(());
            }
        }
        ControlFlow::Continue(())
    }
}

fn too_slow(slow: TooSlow) -> ApiError {
    let hint = "read faster; reconnect with Last-Event-ID to continue with the events that the server still holds";
    ApiError::new(StatusCode::GONE, "too_slow", slow.to_string(), hint)
}

fn write_event(out: &mut EventBuffer, event: &SandboxEvent) {
    let (name, data) = SandboxEventView::of(event);
    out.event(Some(event.id), name, &data);
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::header;
    use isolet_sandbox::events::Command;

    #[test]
    fn events_keep_their_bytes() {
        let session: isolet_sandbox::SessionId = "s".parse().unwrap();
        let process: isolet_sandbox::ProcessId = "p".parse().unwrap();
        let command = Command { session: Some("s".into()), id: "a\"b".into() };
        let alone = Command { session: None, id: String::new() };
        let exit = isolet_sandbox::events::Exit { code: 137, signal: Some(9) };
        let refused = |port| isolet_sandbox::NetworkDenial {
            host: "a.b".into(),
            port,
            protocol: "tcp".into(),
            rule: "default".into(),
            times: 2,
        };
        for (kind, name, fields) in [
            (EventKind::Created, "created", ""),
            (EventKind::Running, "running", ""),
            (EventKind::Unreachable { cause: "a\"b".into() }, "unreachable", r#","cause":"a\"b""#),
            (EventKind::Sleeping, "sleeping", ""),
            (EventKind::Woke, "woke", ""),
            (EventKind::Restored("snap".parse().unwrap()), "restored", r#","snapshot":"snap""#),
            (EventKind::Paused, "paused", ""),
            (EventKind::Resumed, "resumed", ""),
            (EventKind::Failed { cause: "c".into() }, "failed", r#","cause":"c""#),
            (EventKind::Destroyed, "destroyed", ""),
            (EventKind::Superseded, "superseded", ""),
            (EventKind::Evicted, "evicted", ""),
            (EventKind::Moved, "moved", ""),
            (EventKind::SessionCreated(session.clone()), "session_created", r#","session":"s""#),
            (EventKind::SessionDeleted(session.clone()), "session_deleted", r#","session":"s""#),
            (
                EventKind::CommandStarted(command.clone()),
                "command_started",
                r#","session":"s","command":"a\"b""#,
            ),
            (
                EventKind::CommandExited { command, code: Some(3) },
                "command_exited",
                r#","session":"s","command":"a\"b","code":3"#,
            ),
            (
                EventKind::CommandExited { command: alone, code: None },
                "command_exited",
                r#","session":null,"command":"","code":null"#,
            ),
            (EventKind::PortOpened(80), "port_opened", r#","port":80"#),
            (EventKind::PortClosed(80), "port_closed", r#","port":80"#),
            (
                EventKind::ProcessStarted { process: process.clone(), session: None },
                "process_started",
                r#","process":"p","session":null"#,
            ),
            (
                EventKind::ProcessExited {
                    process: process.clone(),
                    session: Some(session.clone()),
                    exit: Some(exit),
                },
                "process_exited",
                r#","process":"p","session":"s","code":137,"signal":9"#,
            ),
            (
                EventKind::ProcessExited { process, session: None, exit: None },
                "process_exited",
                r#","process":"p","session":null,"code":null,"signal":null"#,
            ),
            (EventKind::TerminalOpened(session.clone()), "terminal_opened", r#","session":"s""#),
            (EventKind::TerminalEnded(session), "terminal_ended", r#","session":"s""#),
            (
                EventKind::NetworkDenied(refused(Some(443))),
                "network_denied",
                r#","host":"a.b","port":443,"protocol":"tcp","rule":"default","times":2"#,
            ),
            (
                EventKind::NetworkDenied(refused(None)),
                "network_denied",
                r#","host":"a.b","port":null,"protocol":"tcp","rule":"default","times":2"#,
            ),
        ] {
            let sandbox = SandboxId::parse("box").unwrap();
            let mut out = EventBuffer::default();
            let incarnation = "a-life".into();
            write_event(&mut out, &SandboxEvent { id: 7, at_ms: 5, sandbox, incarnation, kind });
            let data = format!(r#"{{"id":7,"at_ms":5,"sandbox":"box"{fields}}}"#);
            assert_eq!(out.as_str(), format!("id: 7\nevent: {name}\ndata: {data}\n\n"));
        }
    }

    #[test]
    fn a_last_event_is_a_number() {
        let of = |text: &'static str| {
            let value = HeaderValue::from_static(text);
            last(&HeaderMap::from_iter([(header::HeaderName::from_static("last-event-id"), value)]))
        };
        assert_eq!(of("12").ok(), Some(Some(12)));
        assert!(last(&HeaderMap::new()).unwrap().is_none());
        for bad in ["", "x", "-1", "18446744073709551615", "99999999999999999999"] {
            assert!(of(bad).is_err(), "{bad}");
        }
    }
}
