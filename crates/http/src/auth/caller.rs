//! The caller of a request, and what it may do.

use crate::foundation::error::ApiError;
use axum::extract::FromRequestParts;
use axum::http::StatusCode;
use axum::http::request::Parts;
use isolet_sandbox::service::Access;
use isolet_sandbox::{Sandbox, SandboxId, SessionId, TenantId};
use serde::{Deserialize, Serialize};

/// The authenticated sender of a request.
#[derive(Debug, Clone)]
pub(crate) struct Caller {
    /// Owns the sandboxes that the request can reach.
    pub(crate) tenant: TenantId,
    /// Whether only requests that read are allowed.
    pub(crate) read_only: bool,
    /// The id of the key; `None` for the key from the environment.
    pub(crate) key: Option<String>,
    /// What the caller's ticket opens; `None` for a caller with a key.
    pub(crate) ticket_scope: Option<TicketScope>,
    /// Whether another node has authenticated the caller. That node ends the caller's responses when
    /// the key is revoked.
    pub(crate) forwarded: bool,
}

impl Caller {
    /// Checks that the caller may open this session; `None` stands for a shell without a session.
    ///
    /// # Errors
    /// 401 when the caller's ticket is for something else.
    pub(crate) fn check_session(&self, session: Option<&SessionId>) -> Result<(), ApiError> {
        match &self.ticket_scope {
            Some(scope) if scope.session.as_ref() != session => Err(bad_ticket()),
            _ => Ok(()),
        }
    }

    /// Refuses a caller with a ticket, which opens one session and nothing else.
    ///
    /// # Errors
    /// 401.
    pub(crate) fn check_key(&self) -> Result<(), ApiError> {
        if self.ticket_scope.is_some() { Err(bad_ticket()) } else { Ok(()) }
    }

    /// How the caller may reach a sandbox. A ticket for an existing sandbox never creates another
    /// one.
    pub(crate) fn limit_reach(&self, reach: Access) -> Access {
        let of_one = self.ticket_scope.as_ref().is_some_and(|scope| scope.incarnation.is_some());
        match reach {
            Access::CreateIfMissing if of_one => Access::MustExist,
            reach => reach,
        }
    }

    /// Checks that this is the sandbox that the ticket was made for, and not a later one with its
    /// id.
    ///
    /// # Errors
    /// 401 when the ticket is for another sandbox.
    pub(crate) fn check_incarnation(&self, sandbox: &Sandbox) -> Result<(), ApiError> {
        let of = self.ticket_scope.as_ref().and_then(|scope| scope.incarnation.as_deref());
        if of.is_none_or(|name| name == sandbox.name()) { Ok(()) } else { Err(bad_ticket()) }
    }
}

/// What a WebSocket is connected to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum SocketPurpose {
    /// The terminal of a session.
    Terminal,
    Shell,
    /// A TCP port of the sandbox.
    Port,
}

/// What a ticket opens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TicketScope {
    /// The sandbox, one of the tenant's.
    pub(crate) sandbox: SandboxId,
    /// The sandbox's incarnation. `None` when the sandbox did not exist when the ticket was made:
    /// the ticket then opens the one that is created next.
    pub(crate) incarnation: Option<String>,
    /// The session; `None` stands for a shell without a session.
    pub(crate) session: Option<SessionId>,
    pub(crate) purpose: SocketPurpose,
    /// The port, for tickets to a port.
    pub(crate) port: Option<u16>,
}

/// 403: the key is read-only.
pub(crate) fn read_only_key(hint: &str) -> ApiError {
    ApiError::new(StatusCode::FORBIDDEN, "read_only", "this key may only read", hint)
}

pub(crate) fn bad_ticket() -> ApiError {
    ApiError::new(
        StatusCode::UNAUTHORIZED,
        "bad_ticket",
        "the ticket was used, has expired, or is for another target",
        "create another with POST /v1/tickets; each ticket opens one WebSocket once",
    )
}

pub(crate) fn unauthorized() -> ApiError {
    ApiError::new(
        StatusCode::UNAUTHORIZED,
        "unauthorized",
        "the request carries no key that this server knows",
        "send `Authorization: Bearer KEY`; `isolet keys add` creates a key",
    )
}

impl<S: Sync> FromRequestParts<S> for Caller {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        parts.extensions.get::<Self>().cloned().ok_or_else(unauthorized)
    }
}
