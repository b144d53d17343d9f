//! Extensions of requests and responses, by which one layer informs another.

use axum::Extension;
use axum::http::Extensions;
use isolet_sandbox::{RestoredFrom, SandboxId, SandboxSpec};
use std::net::IpAddr;

/// Marks a response that a program in a sandbox sent, or that replaces such a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Proxied {
    /// The response belongs to the port's own origin.
    pub(crate) own_origin: bool,
}

/// From what the sandbox of a request was restored before its handler ran.
#[derive(Debug, Clone)]
pub(crate) struct JustRestored(pub(crate) Box<RestoredFrom>);

/// The address of the client; behind a trusted proxy, the one that the proxy reports.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Peer(pub(crate) IpAddr);

/// The scheme of the address that the client uses; behind a trusted proxy, the proxy's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scheme {
    Http,
    Https,
}

impl Scheme {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
        }
    }

    pub(crate) fn default_port(self) -> u16 {
        match self {
            Self::Http => 80,
            Self::Https => 443,
        }
    }

    /// The scheme of a request; plain HTTP unless a layer before has said otherwise.
    pub(crate) fn of(extensions: &Extensions) -> Self {
        extensions.get().copied().unwrap_or(Self::Http)
    }
}

/// The sandbox that a response is about, when neither the path nor `Location` names it.
#[derive(Debug, Clone)]
pub(crate) struct AuditedSandbox(pub(crate) SandboxId);

/// The id of the API key that a request has created, which its path does not name.
#[derive(Debug, Clone)]
pub(crate) struct AuditedKey(pub(crate) String);

/// The name that a request has given an image, which its path does not contain.
#[derive(Debug, Clone)]
pub(crate) struct AuditedImage(pub(crate) String);

/// The id of the webhook that a request has created, which its path does not name.
#[derive(Debug, Clone)]
pub(crate) struct AuditedWebhook(pub(crate) String);

/// The error code of a response, for the log.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ErrorCode(pub(crate) &'static str);

/// Marks a response whose body another node sends: it is streamed, whatever its size.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Forwarded;

/// The id of the sandbox that this request creates, if its body names none. The node owns it.
#[derive(Debug, Clone)]
pub(crate) struct ClaimedId(pub(crate) SandboxId);

impl ClaimedId {
    /// Gives a new sandbox the claimed id, if there is one and the client has named none.
    pub(crate) fn complete(claimed: Option<Extension<Self>>, mut spec: SandboxSpec) -> SandboxSpec {
        spec.id = spec.id.or_else(|| claimed.map(|Extension(claimed)| claimed.0));
        spec
    }
}
