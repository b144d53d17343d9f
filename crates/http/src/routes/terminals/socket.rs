//! The terminal WebSocket: parses which terminal a client asks for, and upgrades the connection.

use crate::app::App;
use crate::auth::caller::Caller;
use crate::auth::tickets;
use crate::foundation::error::ApiError;
use crate::foundation::input::{self, PathIds};
use crate::foundation::query::{self, Query};
use crate::ws::terminal::frames::size;
use crate::ws::terminal::{self};
use crate::ws::upgrade;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{StatusCode, Uri};
use axum::response::Response;
use isolet_sandbox::service::Access;
use isolet_sandbox::{Sandbox, SandboxId, SessionId, terminal as sandbox};
use isolet_wire::terminal::{CLIENT_BYTES_MAX, Size, TerminalPosition};

/// The query parameters that may occur once, all optional.
const KNOWN: [&str; 12] = [
    "session",
    "cols",
    "rows",
    "shell",
    "mode",
    "name",
    "events",
    "terminal",
    "since",
    "record",
    "open",
    tickets::QUERY_NAME,
];
/// The query parameters that may occur repeatedly.
const LISTS: [&str; 1] = ["arg"];
/// The longest program with its arguments, in bytes.
const ARGV_BYTES_MAX: usize = 8 * 1024;
/// The longest id of a terminal.
const TERMINAL_BYTES_MAX: usize = 64;

/// The terminal that a client asks for, and its options.
#[derive(Debug, PartialEq, Eq)]
struct TerminalRequest {
    session: SessionId,
    terminal: sandbox::TerminalClientOptions,
    record: bool,
    /// `open=0`: only a running terminal is attached to, and nothing is created.
    only_running: bool,
}

impl TerminalRequest {
    /// `otherwise`: the session when the query names none.
    fn of(uri: &Uri, otherwise: SessionId) -> Result<Self, ApiError> {
        let query = Query::with_lists(uri, &KNOWN, &LISTS)?;
        let session = query.text("session")?.map(SessionId::parse).transpose();
        let view = match query.text("mode")? {
            None | Some("edit") => false,
            Some("view") => true,
            Some(_) => return Err(query::bad_parameter("mode", "must be edit or view")),
        };
        let events = query.flag("events")?;
        let since = since(&query)?;
        if since.is_some() && !events {
            return Err(query::bad_parameter(
                "since",
                "requires events=1, because only event frames contain offsets",
            ));
        }
        let only_running = query.text("open")?.is_some() && !query.flag("open")?;
        let terminal = sandbox::TerminalClientOptions {
            open: Some(argv(&query)?).filter(|_| !only_running),
            size: window(&query, view)?,
            since,
            view,
            events,
            name: name(&query)?,
        };
        let record = query.flag("record")?;
        let session = session.map_err(input::bad_id)?.unwrap_or(otherwise);
        Ok(Self { session, terminal, record, only_running })
    }
}

/// The size of the client's window. The default size applies, unless the client only watches.
fn window(query: &Query<'_>, view: bool) -> Result<Option<Size>, ApiError> {
    let side = |name: &str, usual: u16| match query.text(name)? {
        None => Ok(i64::from(usual)),
        Some(text) => text
            .parse::<i64>()
            .map_err(|_| query::bad_parameter(name, "must be a whole number, 1 or more")),
    };
    if view && query.bytes("cols").is_none() && query.bytes("rows").is_none() {
        return Ok(None);
    }
    let usual = Size::default();
    let cols = side("cols", usual.cols)?;
    let rows = side("rows", usual.rows)?;
    let size = size(cols, rows)
        .ok_or_else(|| query::bad_parameter("cols", "cols and rows must be 1 or more"))?;
    Ok(Some(size))
}

fn argv(query: &Query<'_>) -> Result<Vec<String>, ApiError> {
    let arguments = query.list("arg")?;
    let argv = match query.text("shell")? {
        None | Some("") if arguments.is_empty() => return Ok(Vec::new()),
        None | Some("") => return Err(query::bad_parameter("arg", "requires a program: ?shell=")),
        Some(program) => {
            let mut argv = vec![program.to_owned()];
            argv.extend(arguments);
            argv
        }
    };
    let bytes: usize = argv.iter().map(|part| part.len() + 1).sum();
    if bytes > ARGV_BYTES_MAX || argv.iter().any(|part| part.contains('\0')) {
        return Err(query::bad_parameter(
            "shell",
            "must have at most 8 KiB with its arguments, without NUL",
        ));
    }
    Ok(argv)
}

fn since(query: &Query<'_>) -> Result<Option<TerminalPosition>, ApiError> {
    match (query.text("terminal")?, query.text("since")?) {
        (None, None) => Ok(None),
        (Some(id), Some(offset)) => {
            if id.is_empty() || id.len() > TERMINAL_BYTES_MAX {
                return Err(query::bad_parameter(
                    "terminal",
                    "must be the value from an `at` frame",
                ));
            }
            let offset = offset
                .parse()
                .map_err(|_| query::bad_parameter("since", "must be a number of bytes"))?;
            Ok(Some(TerminalPosition { id: id.to_owned(), offset }))
        }
        _ => Err(query::bad_parameter(
            "since",
            "terminal and since must be passed together, as an `at` frame contains them",
        )),
    }
}

/// Other clients display the name in their terminals, so it contains no control characters.
fn name(query: &Query<'_>) -> Result<String, ApiError> {
    let name = query.text("name")?.unwrap_or_default();
    if name.len() > CLIENT_BYTES_MAX || name.chars().any(char::is_control) {
        return Err(query::bad_parameter(
            "name",
            "must be at most 64 bytes without control characters",
        ));
    }
    Ok(name.to_owned())
}

/// Connect to a terminal over a WebSocket
///
/// The first client opens the terminal; others attach to it. Creates the sandbox and the session if
/// they do not exist. Binary frames carry bytes: keyboard input from the client, terminal output
/// from the server. Text frames are JSON objects with a `type`:
///
/// | sent by | frames |
/// |---|---|
/// | client | `resize {cols, rows}`, `ping` |
/// | server | `ready`, `exit {code, signal?}`, `error {message}`, `pong` |
/// | server, with `events=1` | `attached`, `snapshot`, `at`, `size`, `clients` |
#[utoipa::path(
    get, path = "/v1/sandboxes/{id}/terminal", operation_id = "terminal_connect", tag = "terminals",
    security(("bearer" = []), ("ticket" = [])),
    params(
        ("id" = String, Path),
        ("session" = Option<String>, Query, description = "The session of the terminal. Defaults to `default`."),
        ("cols" = Option<u32>, Query, description = "The width of the client's window. Defaults to 80; larger values than 1000 are cut."),
        ("rows" = Option<u32>, Query, description = "The height of the client's window. Defaults to 24; larger values than 400 are cut."),
        ("shell" = Option<String>, Query, description = "The program to run instead of bash, if this client opens the terminal."),
        ("arg" = Option<Vec<String>>, Query, description = "An argument of that program. Repeatable."),
        ("mode" = Option<String>, Query, description = "`edit` (default), or `view` to watch only. A read-only key can only watch, and opens nothing."),
        ("name" = Option<String>, Query, description = "The name that other clients see for this one, at most 64 bytes."),
        ("events" = Option<bool>, Query, description = "`1`: also receive offsets, size changes and the list of clients."),
        ("terminal" = Option<String>, Query, description = "Together with `since`: continue in this terminal, as named by an `at` frame."),
        ("since" = Option<u64>, Query, description = "Continue after this offset, as given by an `at` frame. Needs `terminal` and `events=1`."),
        ("record" = Option<bool>, Query, description = "`1`: record the terminal from now on."),
        ("open" = Option<bool>, Query, description = "`0`: attach only to a running terminal. If none runs, the server closes the socket with code 4404.")
    ),
    responses(
        (status = 101, description = "The connection continues as a WebSocket.")
    )
)]
pub(crate) async fn terminal(
    State(app): State<App>,
    caller: Caller,
    ids: PathIds,
    request: Request,
) -> Result<Response, ApiError> {
    attach(app, caller, ids.sandbox, SessionId::default_session(), request).await
}

/// Attaches to a terminal. A dialect may name the session outside of the query.
pub(crate) async fn attach(
    app: App,
    caller: Caller,
    id: SandboxId,
    otherwise: SessionId,
    mut request: Request<Body>,
) -> Result<Response, ApiError> {
    let accept = upgrade::handshake(request.method(), request.headers())?;
    let TerminalRequest { session, terminal: mut wanted, record, only_running } =
        TerminalRequest::of(request.uri(), otherwise)?;
    caller.check_session(Some(&session))?;
    let mut reach = if only_running { Access::Look } else { Access::CreateIfMissing };
    if caller.read_only {
        wanted.open = None;
        wanted.view = true;
        reach = Access::Look;
    }
    let view = wanted.view;
    let events = wanted.events;
    let attached = async {
        let sandbox = app.service.reach(&caller.tenant, &id, caller.limit_reach(reach)).await?;
        caller.check_incarnation(&sandbox)?;
        let link = sandbox.terminal(&session, wanted).await?;
        Ok::<_, ApiError>((sandbox, link))
    };
    let (sandbox, link) = match attached.await {
        Ok(attached) => attached,
        // Browsers hide the response to a handshake from the page, which would retry forever.
        Err(failure) if only_running && none_runs(&failure) => {
            let longest = terminal::MESSAGE_BYTES_MAX;
            upgrade::hand_over(&mut request, longest, async move |socket| {
                terminal::refuse_none_running(socket, &failure.message).await;
            });
            return Ok(upgrade::switch(accept));
        }
        Err(failure) => return Err(failure),
    };
    let refused = if record { recorded(&sandbox, &session, &caller).await } else { None };
    let client = terminal::TerminalClient { sandbox, link, view, events, refused };
    let cancellation = app.cancellations.subscribe(&caller);
    upgrade::hand_over(&mut request, terminal::MESSAGE_BYTES_MAX, async move |socket| {
        terminal::run(socket, client, cancellation).await;
    });
    Ok(upgrade::switch(accept))
}

/// Whether the error says that no such terminal runs, rather than that this is unknown.
fn none_runs(failure: &ApiError) -> bool {
    failure.status() == StatusCode::NOT_FOUND || failure.code == "sandbox_sleeping"
}

/// Starts a recording; returns why it did not start.
async fn recorded(sandbox: &Sandbox, session: &SessionId, caller: &Caller) -> Option<String> {
    if caller.read_only {
        return Some("not recorded: a read-only client cannot start a recording".to_owned());
    }
    let error = sandbox.terminal_record(session).await.err()?;
    Some(format!("not recorded: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(query: &str) -> Result<TerminalRequest, u16> {
        let uri: Uri = format!("/terminal?{query}").parse().unwrap();
        TerminalRequest::of(&uri, SessionId::default_session())
            .map_err(|failure| failure.status().as_u16())
    }

    fn window(query: &str) -> Option<(u16, u16)> {
        of(query).unwrap().terminal.size.map(|size| (size.cols, size.rows))
    }

    #[test]
    fn a_window_is_80_by_24_by_default() {
        assert_eq!(window(""), Some((80, 24)));
        assert_eq!(window("cols=120"), Some((120, 24)));
        assert_eq!(window("cols=65535&rows=99999999"), Some((1000, 400)));
        assert_eq!(window("mode=view"), None);
        assert_eq!(window("mode=view&rows=10"), Some((80, 10)));
        for bad in ["cols=0", "rows=0", "cols=-1", "cols=x", "cols=", "cols=1.5"] {
            assert_eq!(of(bad), Err(400), "{bad}");
        }
    }

    #[test]
    fn a_program_and_its_arguments_keep_their_order() {
        let argv = |query: &str| of(query).unwrap().terminal.open.unwrap();
        assert_eq!(argv("shell=vim&arg=-R&arg=a%20b&arg="), ["vim", "-R", "a b", ""]);
        assert!(argv("").is_empty() && argv("shell=").is_empty());
        let long = format!("shell=x&arg={}", "a".repeat(9000));
        for bad in ["arg=x", "shell=a%00b", "shell=%ff", "shell=a&shell=b", &long] {
            assert_eq!(of(bad), Err(400), "{bad}");
        }
    }

    #[test]
    fn open_0_never_opens_a_terminal() {
        let wanted = of("open=0&shell=vim").unwrap();
        assert!(wanted.only_running && wanted.terminal.open.is_none());
        for opens in ["", "open=1"] {
            let wanted = of(opens).unwrap();
            assert!(!wanted.only_running && wanted.terminal.open.is_some(), "{opens}");
        }
        assert_eq!(of("open=no"), Err(400));
    }

    #[test]
    fn a_position_needs_terminal_and_offset() {
        let since = of("terminal=abc&since=7&events=1").unwrap().terminal.since;
        assert_eq!(since, Some(TerminalPosition { id: "abc".into(), offset: 7 }));
        for bad in [
            "since=7&events=1",
            "terminal=abc&events=1",
            "terminal=abc&since=7",
            "terminal=abc&since=-1&events=1",
            "terminal=&since=7&events=1",
            "mode=look",
            "nope=1",
            "events=2",
            "session=-",
            "name=a%1bb",
            &format!("name={}", "x".repeat(65)),
        ] {
            assert_eq!(of(bad), Err(400), "{bad}");
        }
    }
}
