//! Issues tickets with a key, for use in the URL of a WebSocket.

use crate::app::App;
use crate::auth::caller::{Caller, SocketPurpose, TicketScope, read_only_key};
use crate::auth::tickets::{TTL_MAX, with_node};
use crate::foundation::error::ApiError;
use crate::foundation::input;
use crate::foundation::json::{self, SmallJson, not_null};
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use isolet_clock::{now_ms, rfc3339};
use isolet_sandbox::{SandboxId, SessionId};
use serde::{Deserialize, Serialize};
use std::time::Duration;
use utoipa::ToSchema;

/// The default lifetime of a ticket, in seconds.
const TTL_S: u64 = 30;

/// What a ticket opens.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
#[schema(as = CreateTicket)]
pub(crate) struct MakeTicket {
    /// The sandbox. It need not exist yet.
    #[schema(required = true)]
    sandbox: String,
    /// The session. For a terminal it defaults to `default`, for a shell to none. Not allowed for a
    /// port.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    session: Option<String>,
    /// `terminal`, `shell` or `port`.
    #[schema(required = true)]
    r#use: String,
    /// The port, 1 to 65535. Needed for `port` only.
    #[serde(deserialize_with = "json::not_null_port")]
    #[schema(nullable = false)]
    port: Option<u16>,
    /// `edit` (default), or `view` to watch a running terminal.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    mode: Option<String>,
    /// The lifetime in seconds, 1 to 300. Defaults to 30.
    #[serde(deserialize_with = "not_null")]
    #[schema(nullable = false)]
    ttl_s: Option<u64>,
}

impl MakeTicket {
    fn scope(&self) -> Result<TicketScope, ApiError> {
        let session = self.session.as_deref().map(SessionId::parse).transpose();
        let session = session.map_err(input::bad_id)?;
        let (purpose, session) = match self.r#use.as_str() {
            "terminal" => {
                (SocketPurpose::Terminal, Some(session.unwrap_or_else(SessionId::default_session)))
            }
            "shell" => (SocketPurpose::Shell, session),
            "port" if session.is_some() => {
                return Err(ApiError::bad_field(
                    "session",
                    "a port belongs to the sandbox, not to a session",
                ));
            }
            "port" => (SocketPurpose::Port, None),
            _ => return Err(ApiError::bad_field("use", "must be terminal, shell or port")),
        };
        if (purpose == SocketPurpose::Port) != self.port.is_some_and(|port| port > 0) {
            return Err(ApiError::bad_field(
                "port",
                "must be 1 to 65535, and requires use \"port\"",
            ));
        }
        let sandbox = SandboxId::parse(&self.sandbox).map_err(input::bad_id)?;
        Ok(TicketScope { sandbox, incarnation: None, session, purpose, port: self.port })
    }

    fn view(&self) -> Result<bool, ApiError> {
        match self.mode.as_deref() {
            None | Some("edit") => Ok(false),
            Some("view") if self.r#use == "terminal" => Ok(true),
            Some("view") => Err(ApiError::bad_field("mode", "view is only for terminals")),
            Some(_) => Err(ApiError::bad_field("mode", "must be edit or view")),
        }
    }

    fn ttl(&self) -> Result<Duration, ApiError> {
        let ttl = Duration::from_secs(self.ttl_s.unwrap_or(TTL_S));
        if ttl.is_zero() || ttl > TTL_MAX {
            return Err(ApiError::bad_field("ttl_s", "1 to 300"));
        }
        Ok(ttl)
    }
}

/// A ticket that opens one WebSocket once.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Ticket {
    /// The ticket. Send it as `?ticket=`, once.
    ticket: String,
    /// When it expires, as in RFC 3339.
    expires_at: String,
}

/// Create a ticket for a WebSocket
///
/// A browser cannot send a key when it opens a WebSocket; it sends a ticket as `?ticket=` instead.
/// A ticket opens one terminal, shell or port of one sandbox, once, with the rights of the key that
/// created it. It is void once that key is revoked, and does not open a later sandbox with the same
/// id. A read-only key can create tickets with `mode: "view"` only.
#[utoipa::path(
    post, path = "/v1/tickets", operation_id = "tickets_create", tag = "terminals",
    request_body(content = MakeTicket, example = json!({"sandbox": "demo", "use": "terminal", "mode": "view"})),
    responses(
        (status = 201, description = "The ticket.", body = Ticket)
    )
)]
pub(crate) async fn create(
    State(app): State<App>,
    caller: Caller,
    body: SmallJson<MakeTicket>,
) -> Result<(StatusCode, Json<Ticket>), ApiError> {
    let wanted = body.value;
    let mut scope = wanted.scope()?;
    let view = wanted.view()?;
    let ttl = wanted.ttl()?;
    scope.incarnation = app.service.incarnation(&caller.tenant, &scope.sandbox);
    if caller.read_only && !view {
        return Err(read_only_key("create a ticket with mode \"view\", or use another key"));
    }
    let mut ticket = app.tickets.issue(&caller, scope, view, ttl)?;
    if let Some(joined) = &app.fleet {
        ticket = with_node(&ticket, joined.fleet.here());
    }
    let ttl_ms = i64::try_from(ttl.as_millis()).unwrap_or(i64::MAX);
    let expires_at = rfc3339(now_ms().saturating_add(ttl_ms));
    Ok((StatusCode::CREATED, Json(Ticket { ticket, expires_at })))
}
