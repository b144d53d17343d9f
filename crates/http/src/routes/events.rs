//! Events of sandboxes as server-sent events, for one sandbox or for all of the caller's.

use crate::{
    app::App,
    auth::{caller::Caller, cancellation::Cancellation},
    foundation::{error::ApiError, input::PathIds, json_text::write_json_string},
    stream::sse,
};
use axum::{
    body::Bytes,
    extract::State,
    http::{HeaderMap, StatusCode},
    response::Response,
};
use futures_util::stream;
use isolet_sandbox::{
    SandboxId,
    events::{Event, Follow, Gap, Happened, TooSlow},
};
use std::{convert::Infallible, fmt::Write as _};
use tokio::time::timeout;

/// A client that follows events.
struct Reader {
    follow: Follow,
    cancellation: Cancellation,
    /// Whether it follows one sandbox, whose deletion ends the stream.
    one: bool,
    over: bool,
}

/// Stream the events of a sandbox
///
/// Sends server-sent events with increasing ids. Following a sandbox does not wake it. The stream
/// ends after `destroyed`. Ports and background work are watched only while a client follows.
///
/// | event | fields besides `id`, `at_ms` and `sandbox` |
/// |---|---|
/// | `created`, `running`, `sleeping`, `woke`, `destroyed` | |
/// | `unreachable`, `failed` | `cause` |
/// | `session_created`, `session_deleted` | `session` |
/// | `command_started` | `session` (or `null`), `command` |
/// | `command_exited` | `session` (or `null`), `command`, `code` (or `null`) |
/// | `process_started` | `process`, `session` (or `null`) |
/// | `process_exited` | `process`, `session`, `code`, `signal` (each may be `null`) |
/// | `terminal_opened`, `terminal_ended` | `session` |
/// | `port_opened`, `port_closed` | `port` |
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
#[utoipa::path(
    get, path = "/v1/events", operation_id = "events_stream", tag = "events",
    params(
        ("Last-Event-ID" = Option<u64>, Header, description = "Continue after the event with this id. `0` starts with the oldest event that the server still holds. Without this header, the stream starts with the next event.")
    ),
    responses(
        (status = 200, description = "A stream of server-sent events.", content_type = "text/event-stream", body = String)
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
    let Some(text) = headers.get("last-event-id") else { return Ok(None) };
    let id = text.to_str().ok().and_then(|text| text.parse::<u64>().ok());
    let id = id.filter(|id| *id < u64::MAX);
    id.map(Some).ok_or_else(|| ApiError::bad_field("Last-Event-ID", "the id of an event, a number"))
}

async fn answer(
    app: &App,
    caller: &Caller,
    sandbox: Option<&SandboxId>,
    headers: &HeaderMap,
) -> Result<Response, ApiError> {
    let last = last(headers)?;
    let (follow, gap) = app.service.follow(&caller.tenant, sandbox, last).await?;
    let mut first = ": following\n\n".to_owned();
    if let Some(Gap { from, to }) = gap {
        let _ = write!(first, "event: gap\ndata: {{\"from\":{from},\"to\":{to}}}\n\n");
    }
    let cancellation = app.cancellations.subscribe(caller);
    let one = sandbox.is_some();
    let reader = Reader { follow, cancellation, one, over: false };
    let events = stream::unfold((reader, first), |(mut reader, first)| async move {
        let chunk = if first.is_empty() { reader.next_chunk().await? } else { first };
        Some((Ok::<_, Infallible>(Bytes::from(chunk)), (reader, String::new())))
    });
    Ok(sse::response(events))
}

impl Reader {
    /// The next events; `None` after the last one. Called only when the client has read the
    /// previous ones.
    async fn next_chunk(&mut self) -> Option<String> {
        if self.over {
            return None;
        }
        let found = tokio::select! {
            biased;
            reason = self.cancellation.cancelled() => Err(reason.into()),
            found = timeout(sse::KEEP_ALIVE, self.follow.next()) => match found {
                Err(_) => return Some(": alive\n\n".to_owned()),
                Ok(found) => found.map_err(too_slow),
            },
        };
        let mut out = String::new();
        match found {
            Ok(events) => {
                for event in events {
                    write_event(&mut out, &event);
                    if self.one && event.what == Happened::Destroyed {
                        self.over = true;
                        break;
                    }
                }
            }
            Err(failure) => {
                self.over = true;
                let text = serde_json::to_string(&failure).unwrap_or_default();
                let _ = write!(out, "event: error\ndata: {text}\n\n");
            }
        }
        Some(out)
    }
}

fn too_slow(slow: TooSlow) -> ApiError {
    let hint = "read faster; come back with Last-Event-ID to go on with what is held";
    ApiError::new(StatusCode::GONE, "too_slow", slow.to_string(), hint)
}

/// The event's name, and its own fields as JSON values.
fn name_and_fields(what: &Happened) -> (&'static str, Vec<(&'static str, String)>) {
    let text = |text: &str| {
        let mut out = Vec::new();
        write_json_string(&mut out, text);
        String::from_utf8(out).unwrap_or_default()
    };
    let null = || "null".to_owned();
    match what {
        Happened::Created => ("created", vec![]),
        Happened::Running => ("running", vec![]),
        Happened::Unreachable { cause } => ("unreachable", vec![("cause", text(cause))]),
        Happened::Sleeping => ("sleeping", vec![]),
        Happened::Woke => ("woke", vec![]),
        Happened::Failed { cause } => ("failed", vec![("cause", text(cause))]),
        Happened::Destroyed => ("destroyed", vec![]),
        Happened::SessionCreated(id) => ("session_created", vec![("session", text(id.as_str()))]),
        Happened::SessionDeleted(id) => ("session_deleted", vec![("session", text(id.as_str()))]),
        Happened::CommandStarted(command) => {
            let session = command.session.as_ref().map_or_else(null, |id| text(id));
            ("command_started", vec![("session", session), ("command", text(&command.id))])
        }
        Happened::CommandExited { command, code } => {
            let session = command.session.as_ref().map_or_else(null, |id| text(id));
            let code = code.map_or_else(null, |code| code.to_string());
            let fields = vec![("session", session), ("command", text(&command.id)), ("code", code)];
            ("command_exited", fields)
        }
        Happened::PortOpened(port) => ("port_opened", vec![("port", port.to_string())]),
        Happened::PortClosed(port) => ("port_closed", vec![("port", port.to_string())]),
        Happened::ProcessStarted { process, session } => {
            let session = session.as_ref().map_or_else(null, |id| text(id.as_str()));
            ("process_started", vec![("process", text(process.as_str())), ("session", session)])
        }
        Happened::ProcessExited { process, session, exit } => {
            let session = session.as_ref().map_or_else(null, |id| text(id.as_str()));
            let code = exit.map_or_else(null, |exit| exit.code.to_string());
            let signal = exit.and_then(|exit| exit.signal);
            let signal = signal.map_or_else(null, |signal| signal.to_string());
            let own = vec![("process", text(process.as_str())), ("session", session)];
            ("process_exited", [own, vec![("code", code), ("signal", signal)]].concat())
        }
        Happened::TerminalOpened(id) => ("terminal_opened", vec![("session", text(id.as_str()))]),
        Happened::TerminalEnded(id) => ("terminal_ended", vec![("session", text(id.as_str()))]),
        Happened::NetworkChanged(mode) => ("network_changed", vec![("network", text(mode.word()))]),
        Happened::NetworkDenied(refused) => {
            let port = refused.port.map_or_else(null, |port| port.to_string());
            let about = vec![("host", text(&refused.host)), ("port", port)];
            let how = vec![("protocol", text(&refused.protocol)), ("rule", text(&refused.rule))];
            let times = vec![("times", refused.times.to_string())];
            ("network_denied", [about, how, times].concat())
        }
    }
}

fn write_event(out: &mut String, event: &Event) {
    let (name, fields) = name_and_fields(&event.what);
    let id = event.id;
    let at_ms = event.at_ms;
    let sandbox = &event.sandbox;
    let _ = write!(
        out,
        "id: {id}\nevent: {name}\ndata: {{\"id\":{id},\"at_ms\":{at_ms},\"sandbox\":\"{sandbox}\""
    );
    for (name, value) in fields {
        let _ = write!(out, ",\"{name}\":{value}");
    }
    out.push_str("}\n\n");
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::{HeaderValue, header};
    use isolet_sandbox::events::Command;

    #[test]
    fn an_event_is_one_line_of_json_under_its_name() {
        let command = Command { session: Some("s".into()), id: "a\"\nb".into() };
        let what = Happened::CommandExited { command, code: Some(3) };
        let sandbox = SandboxId::parse("box").unwrap();
        let mut out = String::new();
        let incarnation = "a-life".into();
        write_event(&mut out, &Event { id: 7, at_ms: 5, sandbox, incarnation, what });
        let data = out.strip_prefix("id: 7\nevent: command_exited\ndata: ").unwrap();
        let json: serde_json::Value =
            serde_json::from_str(data.strip_suffix("\n\n").unwrap()).unwrap();
        assert_eq!(data.matches('\n').count(), 2);
        assert_eq!((&json["command"], &json["code"]), (&"a\"\nb".into(), &3.into()), "{json}");
    }

    #[test]
    fn events_keep_their_bytes() {
        let session: isolet_sandbox::SessionId = "s".parse().unwrap();
        let process: isolet_sandbox::ProcessId = "p".parse().unwrap();
        let command = Command { session: Some("s".into()), id: "a\"b".into() };
        let alone = Command { session: None, id: String::new() };
        let exit = isolet_sandbox::events::Exit { code: 137, signal: Some(9) };
        let refused = |port| isolet_sandbox::Refused {
            host: "a.b".into(),
            port,
            protocol: "tcp".into(),
            rule: "default".into(),
            times: 2,
        };
        for (what, name, fields) in [
            (Happened::Created, "created", ""),
            (Happened::Running, "running", ""),
            (Happened::Unreachable { cause: "a\"b".into() }, "unreachable", r#","cause":"a\"b""#),
            (Happened::Sleeping, "sleeping", ""),
            (Happened::Woke, "woke", ""),
            (Happened::Failed { cause: "c".into() }, "failed", r#","cause":"c""#),
            (Happened::Destroyed, "destroyed", ""),
            (Happened::SessionCreated(session.clone()), "session_created", r#","session":"s""#),
            (Happened::SessionDeleted(session.clone()), "session_deleted", r#","session":"s""#),
            (
                Happened::CommandStarted(command.clone()),
                "command_started",
                r#","session":"s","command":"a\"b""#,
            ),
            (
                Happened::CommandExited { command, code: Some(3) },
                "command_exited",
                r#","session":"s","command":"a\"b","code":3"#,
            ),
            (
                Happened::CommandExited { command: alone, code: None },
                "command_exited",
                r#","session":null,"command":"","code":null"#,
            ),
            (Happened::PortOpened(80), "port_opened", r#","port":80"#),
            (Happened::PortClosed(80), "port_closed", r#","port":80"#),
            (
                Happened::ProcessStarted { process: process.clone(), session: None },
                "process_started",
                r#","process":"p","session":null"#,
            ),
            (
                Happened::ProcessExited {
                    process: process.clone(),
                    session: Some(session.clone()),
                    exit: Some(exit),
                },
                "process_exited",
                r#","process":"p","session":"s","code":137,"signal":9"#,
            ),
            (
                Happened::ProcessExited { process, session: None, exit: None },
                "process_exited",
                r#","process":"p","session":null,"code":null,"signal":null"#,
            ),
            (Happened::TerminalOpened(session.clone()), "terminal_opened", r#","session":"s""#),
            (Happened::TerminalEnded(session), "terminal_ended", r#","session":"s""#),
            (
                Happened::NetworkDenied(refused(Some(443))),
                "network_denied",
                r#","host":"a.b","port":443,"protocol":"tcp","rule":"default","times":2"#,
            ),
            (
                Happened::NetworkDenied(refused(None)),
                "network_denied",
                r#","host":"a.b","port":null,"protocol":"tcp","rule":"default","times":2"#,
            ),
        ] {
            let sandbox = SandboxId::parse("box").unwrap();
            let mut out = String::new();
            let incarnation = "a-life".into();
            write_event(&mut out, &Event { id: 7, at_ms: 5, sandbox, incarnation, what });
            let data = format!(r#"{{"id":7,"at_ms":5,"sandbox":"box"{fields}}}"#);
            assert_eq!(out, format!("id: 7\nevent: {name}\ndata: {data}\n\n"));
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
