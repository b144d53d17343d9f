//! The shell WebSocket: parses which shell a client asks for, and upgrades the connection.

use crate::app::App;
use crate::auth::caller::Caller;
use crate::auth::tickets;
use crate::foundation::error::ApiError;
use crate::foundation::input::{self, PathIds};
use crate::foundation::query::{self, Query};
use crate::ws::{shell, upgrade};
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderName, HeaderValue, Uri};
use axum::response::Response;
use isolet_sandbox::sandbox::{ShellClientOptions, ShellName};
use isolet_sandbox::service::Access;
use isolet_sandbox::{Sandbox, SessionId, ids};
use isolet_wire::request::ShellPosition;

/// The query parameters, all optional.
const KNOWN: [&str; 8] =
    ["session", "resume", "since", "watch", "starts", "opened", "frames", tickets::QUERY_NAME];
/// The length of generated ids, of private shells and of owners.
const MADE_LETTERS: usize = 26;

/// The shell that a client asks for, and its options.
#[derive(Debug, PartialEq, Eq)]
struct ShellRequest {
    session: Option<SessionId>,
    /// The shell's id and the owner of its commands, from an `Isolet-Shell` header or a
    /// `shell_opened` frame.
    resume: Option<(String, Option<String>)>,
    since: Option<ShellPosition>,
    watch: bool,
    starts: bool,
    /// Whether the first frame repeats the headers of the response.
    opened: bool,
    binary: bool,
}

impl ShellRequest {
    fn of(uri: &Uri) -> Result<Self, ApiError> {
        let query = Query::of(uri, &KNOWN)?;
        let session = query.text("session")?.map(SessionId::parse).transpose();
        let binary = match query.text("frames")? {
            None | Some("text" | "json") => false,
            Some("binary") => true,
            Some(_) => return Err(query::bad_parameter("frames", "must be text or binary")),
        };
        Ok(Self {
            session: session.map_err(input::bad_id)?,
            resume: query.text("resume")?.map(resume).transpose()?,
            since: query.text("since")?.map(since).transpose()?,
            watch: query.flag("watch")?,
            starts: query.flag("starts")?,
            opened: query.flag("opened")?,
            binary,
        })
    }

    /// The shell's name and the owner of the commands.
    fn shell(&self, sandbox: &Sandbox) -> Result<(ShellName, String), ApiError> {
        let owner = |owner: &Option<String>| owner.clone().unwrap_or_else(ids::random);
        match (&self.session, &self.resume) {
            (Some(session), None) => Ok((ShellName::Session(session.clone()), ids::random())),
            (None, None) => Ok((ShellName::Private, ids::random())),
            (Some(session), Some((shell, of))) if session.as_str() == shell => {
                Ok((ShellName::Session(session.clone()), owner(of)))
            }
            (Some(_), Some(_)) => {
                Err(query::bad_parameter("resume", "is a shell of another session"))
            }
            (None, Some((shell, of))) => {
                let session = SessionId::parse(shell).ok();
                let session = session.filter(|id| sandbox.session(id).is_ok());
                let name =
                    session.map_or_else(|| ShellName::Resume(shell.clone()), ShellName::Session);
                Ok((name, owner(of)))
            }
        }
    }
}

/// Parses `SHELL` or `SHELL.OWNER`, as in the `Isolet-Shell` header.
fn resume(text: &str) -> Result<(String, Option<String>), ApiError> {
    let made = |text: &str| {
        text.len() == MADE_LETTERS
            && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit())
    };
    let (shell, owner) = match text.rsplit_once('.') {
        Some((shell, owner)) if made(owner) => (shell, Some(owner.to_owned())),
        _ => (text, None),
    };
    // Session ids allow all characters of shell ids.
    SessionId::parse(shell).map_err(|_| {
        query::bad_parameter("resume", "must be the value of an Isolet-Shell header")
    })?;
    Ok((shell.to_owned(), owner))
}

/// Parses `OUT[,ERR[,SEQ]]`: bytes seen of each stream, and the last exit seen.
fn since(text: &str) -> Result<ShellPosition, ApiError> {
    let wrong = || {
        query::bad_parameter(
            "since",
            "must be OUT,ERR or OUT,ERR,SEQ: the bytes of each stream and the last exit",
        )
    };
    let mut numbers = text.split(',').map(str::parse::<u64>);
    let mut next = || numbers.next().unwrap_or(Ok(0)).map_err(|_| wrong());
    let since = ShellPosition { out: next()?, err: next()?, seq: next()? };
    if numbers.next().is_some() { Err(wrong()) } else { Ok(since) }
}

/// Connect to a shell over a WebSocket
///
/// Starts a shell, or attaches to the shell of a session. Without `session` and `resume`, the shell
/// belongs to this client alone. Creates the sandbox if it does not exist. Text frames are JSON
/// objects with a `type`; output arrives as binary frames with `frames=binary`.
///
/// | client frame | fields |
/// |---|---|
/// | `shell_run` | `id`, `command`, `timeout_ms`?, `cwd`?, `env`?, `stdin`?, `merge`? |
/// | `shell_stdin` | `id`, and `data`, `data_b64` or `eof` |
/// | `shell_signal` | `id`, `signal` |
/// | `shell_cancel` | `id` |
///
/// | server frame | fields |
/// |---|---|
/// | `shell_opened` | `shell`, `at`; the first frame with `opened=1` |
/// | `shell_start` | `id`, `command`; with `watch=1&starts=1` |
/// | `shell_out`, `shell_err` | `id` (empty for a background job), `data`, `offset` |
/// | `shell_exit` | `id`, `code`, `seq`, `duration_ms`, and further fields of `ExecResult` |
/// | `shell_gap` | `stream`, `from`, `to` |
/// | `shell_error` | `id`?, `error`, `message`, `hint` |
/// | `shell_closed` | `code`, `signal` or `error`, and `cause` |
///
/// When the sandbox or session is deleted, the server sends `shell_closed` with `sandbox_destroyed`
/// or `session_ended` and closes the socket with code 1001.
#[utoipa::path(
    get, path = "/v1/sandboxes/{id}/shell", operation_id = "shell_connect", tag = "commands",
    security(("bearer" = []), ("ticket" = [])),
    params(
        ("id" = String, Path),
        ("session" = Option<String>, Query, description = "Attach to the shell of this session, which outlives the socket. Without it, the shell belongs to this client."),
        ("resume" = Option<String>, Query, description = "Reconnect to this shell, as named by the `Isolet-Shell` header of the earlier connection."),
        ("since" = Option<String>, Query, description = "Continue after this position: `OUT,ERR[,SEQ]`, the number of bytes of each stream and of the last exit."),
        ("watch" = Option<bool>, Query, description = "`1`: also receive the output of other clients' commands, with `owner/id` as the id."),
        ("starts" = Option<bool>, Query, description = "`1`, together with `watch`: also receive `shell_start` when a command begins."),
        ("opened" = Option<bool>, Query, description = "`1`: the first frame is `shell_opened`, for clients that cannot read response headers."),
        ("frames" = Option<String>, Query, description = "`binary`: output arrives as binary frames: u8 stream, u64 offset, u16 id length, id, bytes.")
    ),
    responses(
        (status = 101, description = "The connection continues as a WebSocket.", headers(("Isolet-Shell" = String, description = "Names the shell and this client; pass it as `resume` to reconnect."), ("Isolet-At" = String, description = "The position of the shell as `OUT,ERR,SEQ`; pass it as `since` to reconnect.")))
    )
)]
pub(crate) async fn shell(
    State(app): State<App>,
    caller: Caller,
    ids: PathIds,
    request: Request,
) -> Result<Response, ApiError> {
    attach(app, caller, ids, Access::CreateIfMissing, request).await
}

/// Attaches to a shell. A dialect may forbid to create the sandbox.
pub(crate) async fn attach(
    app: App,
    caller: Caller,
    ids: PathIds,
    reach: Access,
    mut request: Request<Body>,
) -> Result<Response, ApiError> {
    let accept = upgrade::handshake(request.method(), request.headers())?;
    let wanted = ShellRequest::of(request.uri())?;
    let reach = caller.limit_reach(reach);
    let sandbox = app.service.reach(&caller.tenant, &ids.sandbox, reach).await?;
    caller.check_incarnation(&sandbox)?;
    let (shell, owner) = wanted.shell(&sandbox)?;
    let session = match &shell {
        ShellName::Session(session) => Some(session.clone()),
        _ => None,
    };
    caller.check_session(session.as_ref())?;
    let attach = ShellClientOptions {
        shell,
        owner: owner.clone(),
        watch: wanted.watch,
        since: wanted.since,
    };
    let link = sandbox.shell(attach).await?;
    let timeout_ms = session
        .as_ref()
        .and_then(|session| sandbox.session(session).ok())
        .map_or(0, |session| session.command_timeout_ms);
    let mut response = upgrade::switch(accept);
    let name = format!("{}.{owner}", link.shell_id());
    let at = link.at();
    let at = format!("{},{},{}", at.out, at.err, at.seq);
    for (header, value) in [("isolet-shell", &name), ("isolet-at", &at)] {
        if let Ok(value) = HeaderValue::try_from(value) {
            response.headers_mut().insert(HeaderName::from_static(header), value);
        }
    }
    let private = session.is_none();
    let client = shell::AttachedShellClient {
        sandbox,
        link,
        owner,
        private,
        resumed: wanted.resume.is_some(),
        binary: wanted.binary,
        starts: wanted.starts,
        opened: wanted.opened.then_some((name, at)),
        timeout_ms,
    };
    let cancellation = app.cancellations.subscribe(&caller);
    upgrade::hand_over(&mut request, shell::MESSAGE_BYTES_MAX, async move |socket| {
        shell::run(socket, client, cancellation).await;
    });
    Ok(response)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(query: &str) -> Result<ShellRequest, u16> {
        let uri: Uri = format!("/shell?{query}").parse().unwrap();
        ShellRequest::of(&uri).map_err(|failure| failure.status().as_u16())
    }

    #[test]
    fn positions_have_one_to_three_numbers() {
        let at = |out, err, seq| Some(ShellPosition { out, err, seq });
        assert_eq!(of("since=5").unwrap().since, at(5, 0, 0));
        assert_eq!(of("since=5,6").unwrap().since, at(5, 6, 0));
        assert_eq!(of("since=5,6,7").unwrap().since, at(5, 6, 7));
        for bad in [
            "since=",
            "since=-1",
            "since=1,2,3,4",
            "since=a",
            "since=1,,2",
            "since=99999999999999999999",
        ] {
            assert_eq!(of(bad), Err(400), "{bad}");
        }
    }

    #[test]
    fn a_shell_is_named_as_its_header_said() {
        let owner = "abcdefghijklmnopqrstuvwxyz";
        assert_eq!(
            of(&format!("resume=v1.2.{owner}")).unwrap().resume,
            Some(("v1.2".into(), Some(owner.into())))
        );
        assert_eq!(of("resume=v1.2").unwrap().resume, Some(("v1.2".into(), None)));
        for bad in [
            "resume=",
            "resume=../x",
            "session=-",
            "frames=x",
            "watch=2",
            "starts=2",
            "opened=2",
            "nope=1",
        ] {
            assert_eq!(of(bad), Err(400), "{bad}");
        }
    }
}
