//! Who calls, and what a call may do on its behalf.

use crate::foundation::error::ApiError;
use axum::{
    extract::FromRequestParts,
    http::{StatusCode, request::Parts},
};
use isolet_sandbox::{Sandbox, SandboxId, SessionId, TenantId, service::Reach};

/// Who calls.
#[derive(Debug, Clone)]
pub(crate) struct Caller {
    /// Whose sandboxes these are.
    pub(crate) tenant: TenantId,
    /// Only reading calls.
    pub(crate) read_only: bool,
    /// The id of the key; `None` for the environment's own.
    pub(crate) key: Option<String>,
    /// It came with a ticket, which opens this alone.
    pub(crate) ticket_scope: Option<TicketScope>,
}

impl Caller {
    /// Whether it may enter a session; `None`: a shell without one.
    ///
    /// # Errors
    /// 401 for a ticket to another.
    pub(crate) fn check_session(&self, session: Option<&SessionId>) -> Result<(), ApiError> {
        match &self.ticket_scope {
            Some(bound) if bound.session.as_ref() != session => Err(bad_ticket()),
            _ => Ok(()),
        }
    }

    /// How it may reach the sandbox that it names: a ticket to one that there was makes no other.
    pub(crate) fn limit_reach(&self, reach: Reach) -> Reach {
        let of_one = self.ticket_scope.as_ref().is_some_and(|bound| bound.incarnation.is_some());
        match reach {
            Reach::CreateIfMissing if of_one => Reach::MustExist,
            reach => reach,
        }
    }

    /// Whether this is the sandbox that its ticket was made for, and not a later one with its id.
    ///
    /// # Errors
    /// 401 for a ticket to another.
    pub(crate) fn check_incarnation(&self, sandbox: &Sandbox) -> Result<(), ApiError> {
        let of = self.ticket_scope.as_ref().and_then(|bound| bound.incarnation.as_deref());
        if of.is_none_or(|name| name == sandbox.name()) { Ok(()) } else { Err(bad_ticket()) }
    }
}

/// What a socket is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SocketPurpose {
    /// A session's terminal.
    Terminal,
    /// A shell.
    Shell,
    /// A port.
    Port,
}

/// What a ticket opens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TicketScope {
    /// Which of its maker's sandboxes.
    pub(crate) sandbox: SandboxId,
    /// Which life of it, by the server's own name; `None`: there was none when the ticket was made,
    /// and it opens the one that is made next.
    pub(crate) incarnation: Option<String>,
    /// Which session; `None`: a shell without one.
    pub(crate) session: Option<SessionId>,
    /// For what.
    pub(crate) purpose: SocketPurpose,
    /// Which port, of a ticket to one.
    pub(crate) port: Option<u16>,
}

/// 403: the caller may only read.
pub(crate) fn read_only_key(hint: &str) -> ApiError {
    ApiError::new(StatusCode::FORBIDDEN, "read_only", "this key may only read", hint)
}

pub(crate) fn bad_ticket() -> ApiError {
    ApiError::new(
        StatusCode::UNAUTHORIZED,
        "bad_ticket",
        "the ticket was used, has ended, or is for something else",
        "make another with POST /v1/tickets; each opens one thing, once",
    )
}

pub(crate) fn unauthorized() -> ApiError {
    ApiError::new(
        StatusCode::UNAUTHORIZED,
        "unauthorized",
        "the request carries no key that this server knows",
        "send `Authorization: Bearer KEY`; `isolet keys add` makes one",
    )
}

impl<S: Sync> FromRequestParts<S> for Caller {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        parts.extensions.get::<Self>().cloned().ok_or_else(unauthorized)
    }
}
