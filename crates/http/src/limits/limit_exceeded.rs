//! Why a request is over a limit, as the client reads it.

use crate::foundation::error::ApiError;
use crate::limits::kind::ConnectionKind;
use axum::http::StatusCode;
use isolet_sandbox::TenantId;
use std::sync::Arc;

/// A limit that was reached.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum LimitExceeded {
    /// The tenant's limit for one kind.
    Kind { tenant: Arc<TenantId>, kind: ConnectionKind, most: usize },
    /// The tenant's limit for all kinds.
    Tenant { tenant: Arc<TenantId>, most: usize },
    /// The server is nearly full, and the tenant already has `most` connections or more.
    Reserve { tenant: Arc<TenantId>, most: usize },
    /// The server is full.
    Server,
}

impl From<LimitExceeded> for ApiError {
    fn from(excess: LimitExceeded) -> Self {
        let (status, code) = match excess {
            LimitExceeded::Server => (StatusCode::SERVICE_UNAVAILABLE, "server_full"),
            _ => (StatusCode::TOO_MANY_REQUESTS, "too_many_connections"),
        };
        let (message, hint) = match excess {
            LimitExceeded::Kind { tenant, kind, most } => (
                format!("tenant \"{tenant}\" holds {most} {}, and may hold no more", kind.plural()),
                format!(
                    "end one of them, or wait for one to end; the operator of the server can raise \
                     [connections] {}",
                    kind.setting()
                ),
            ),
            LimitExceeded::Tenant { tenant, most } => (
                format!("tenant \"{tenant}\" holds {most} connections, and may hold no more"),
                "close event streams, sockets or commands that nobody needs; the operator of the \
                 server can raise [connections] tenant_max"
                    .to_owned(),
            ),
            LimitExceeded::Reserve { tenant, most } => (
                format!(
                    "the server's connections are nearly all in use; the last are kept for tenants \
                     with fewer than {most}, and tenant \"{tenant}\" holds more"
                ),
                "close a connection, or try again in a moment; the operator of the server can \
                 raise [connections] max"
                    .to_owned(),
            ),
            LimitExceeded::Server => (
                "all connections of the server are in use".to_owned(),
                "try again in a moment; the operator of the server can raise [connections] max"
                    .to_owned(),
            ),
        };
        Self::new(status, code, message, hint)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_names_the_tenant_the_limit_and_the_setting() {
        let tenant = || Arc::new(TenantId::parse("acme").unwrap());
        let kind =
            LimitExceeded::Kind { tenant: tenant(), kind: ConnectionKind::EventStream, most: 43 };
        let failure = ApiError::from(kind);
        assert_eq!((failure.status().as_u16(), failure.code), (429, "too_many_connections"));
        assert_eq!(failure.message, "tenant \"acme\" holds 43 event streams, and may hold no more");
        assert!(failure.hint.contains("[connections] event_streams"), "{}", failure.hint);
        let all = [
            (LimitExceeded::Tenant { tenant: tenant(), most: 1 }, 429, "tenant_max"),
            (LimitExceeded::Reserve { tenant: tenant(), most: 1 }, 429, "max"),
            (LimitExceeded::Server, 503, "max"),
        ];
        for (excess, status, setting) in all {
            let failure = ApiError::from(excess);
            assert_eq!(failure.status().as_u16(), status);
            assert!(failure.hint.contains(setting), "{}", failure.hint);
        }
    }
}
