//! What one node says to another about a request and a response, in a header of each.
//!
//! Only the listener for nodes reads them. A server in a fleet refuses requests of clients that have
//! such a header, and removes it from the responses of programs.

use crate::auth::caller::{Caller, SocketPurpose, TicketScope};
use crate::foundation::error::ApiError;
use crate::foundation::extensions::{Peer, Proxied, Scheme};
use axum::http::{Extensions, HeaderMap, HeaderName, HeaderValue, StatusCode};
use isolet_sandbox::{SandboxId, SessionId, TenantId};
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, Ipv4Addr};

/// The header of a request from another node: a [`PeerHead`] as JSON.
pub(crate) const PEER_HEAD: HeaderName = HeaderName::from_static("isolet-peer");
/// The header of a response to another node: an [`AnswerKind`].
pub(crate) const PEER_ANSWER: HeaderName = HeaderName::from_static("isolet-peer-answer");

/// What the node that received a request says about it. Members that a newer version adds are
/// ignored by an older one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PeerHead {
    /// Who may do what; `None` for a signed link, which the owner checks.
    pub(crate) caller: Option<PeerCaller>,
    /// The sandbox that the request is for.
    pub(crate) target: Option<PeerTarget>,
    /// The first label of the host name of a port, if the request came by one.
    pub(crate) port_label: Option<String>,
    /// The address of the client.
    pub(crate) client: IpAddr,
    /// Whether the client uses TLS.
    pub(crate) tls: bool,
}

/// A sandbox, and the epoch at which its owner owns it as far as the sender knows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PeerTarget {
    pub(crate) tenant: TenantId,
    pub(crate) sandbox: SandboxId,
    pub(crate) epoch: u64,
}

/// The caller of a request, without its key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PeerCaller {
    tenant: TenantId,
    read_only: bool,
    /// The id of the key.
    key: Option<String>,
    ticket: Option<PeerTicket>,
}

/// What the caller's ticket opens.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct PeerTicket {
    sandbox: SandboxId,
    incarnation: Option<String>,
    session: Option<SessionId>,
    purpose: SocketPurpose,
    port: Option<u16>,
}

impl PeerHead {
    /// A head with what the extensions of a request say about its client.
    pub(crate) fn of(extensions: &Extensions, caller: Option<&Caller>) -> Self {
        let client = extensions.get::<Peer>().map(|peer| peer.0);
        Self {
            caller: caller.map(PeerCaller::from),
            target: None,
            port_label: None,
            client: client.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED)),
            tls: Scheme::of(extensions) == Scheme::Https,
        }
    }

    /// Reads the head of a request from another node, and removes it.
    ///
    /// # Errors
    /// 400: the sender does not speak this protocol.
    pub(crate) fn take(headers: &mut HeaderMap) -> Result<Self, ApiError> {
        let value = headers.remove(&PEER_HEAD).ok_or_else(bad_head)?;
        serde_json::from_slice(value.as_bytes()).map_err(|_| bad_head())
    }

    /// Writes the head into the headers of a request.
    pub(crate) fn write(&self, headers: &mut HeaderMap) {
        // All members are ids in ASCII.
        let text = serde_json::to_string(self).unwrap_or_default();
        if let Ok(value) = HeaderValue::try_from(text) {
            headers.insert(PEER_HEAD, value);
        }
    }

    pub(crate) fn scheme(&self) -> Scheme {
        if self.tls { Scheme::Https } else { Scheme::Http }
    }
}

impl PeerCaller {
    /// Whether a ticket stands for the caller.
    pub(crate) fn has_ticket(&self) -> bool {
        self.ticket.is_some()
    }
}

impl From<&Caller> for PeerCaller {
    fn from(caller: &Caller) -> Self {
        let Caller { tenant, read_only, key, ticket_scope, forwarded: _ } = caller.clone();
        let ticket = ticket_scope.map(|scope| PeerTicket {
            sandbox: scope.sandbox,
            incarnation: scope.incarnation,
            session: scope.session,
            purpose: scope.purpose,
            port: scope.port,
        });
        Self { tenant, read_only, key, ticket }
    }
}

impl From<PeerCaller> for Caller {
    fn from(caller: PeerCaller) -> Self {
        let ticket_scope = caller.ticket.map(|ticket| TicketScope {
            sandbox: ticket.sandbox,
            incarnation: ticket.incarnation,
            session: ticket.session,
            purpose: ticket.purpose,
            port: ticket.port,
        });
        Self {
            tenant: caller.tenant,
            read_only: caller.read_only,
            key: caller.key,
            ticket_scope,
            forwarded: true,
        }
    }
}

/// Who answered a forwarded request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AnswerKind {
    /// The node itself.
    Node,
    /// A program in a sandbox.
    Program(Proxied),
    /// The node, which does not own the sandbox at the epoch of the request. Nothing was done.
    NotOwner,
}

impl AnswerKind {
    const ALL: [(&'static str, Self); 4] = [
        ("node", Self::Node),
        ("program", Self::Program(Proxied { own_origin: false })),
        ("program-of-own-origin", Self::Program(Proxied { own_origin: true })),
        ("not-owner", Self::NotOwner),
    ];

    /// Writes the kind into the headers of a response. A program cannot forge it.
    pub(crate) fn write(self, headers: &mut HeaderMap) {
        let name =
            Self::ALL.iter().find(|(_, kind)| *kind == self).map_or("node", |(name, _)| name);
        headers.insert(PEER_ANSWER, HeaderValue::from_static(name));
    }

    /// Reads the kind, and removes it; `None` when another program than a node has answered.
    pub(crate) fn take(headers: &mut HeaderMap) -> Option<Self> {
        let name = headers.remove(&PEER_ANSWER)?;
        Self::ALL.iter().find(|(known, _)| name == *known).map(|(_, kind)| *kind)
    }
}

/// 400: a client sends a header that only nodes send.
pub(crate) fn reserved_header() -> ApiError {
    let message = format!("{PEER_HEAD}: only nodes of the fleet send this header");
    ApiError::new(StatusCode::BAD_REQUEST, "bad_field", message, "leave the header out")
}

fn bad_head() -> ApiError {
    let hint = "let all nodes of the fleet run versions that work together";
    let message = "the request of another node has no head that this version knows";
    ApiError::new(StatusCode::BAD_REQUEST, "bad_request", message, hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caller() -> Caller {
        Caller {
            tenant: TenantId::parse("acme").unwrap(),
            read_only: true,
            key: Some("key_1".into()),
            ticket_scope: Some(TicketScope {
                sandbox: SandboxId::parse("box").unwrap(),
                incarnation: Some("box-1".into()),
                session: None,
                purpose: SocketPurpose::Port,
                port: Some(80),
            }),
            forwarded: false,
        }
    }

    #[test]
    fn the_owner_gets_the_callers_rights_and_no_others() {
        let mut extensions = Extensions::new();
        extensions.insert(Peer("192.0.2.7".parse().unwrap()));
        extensions.insert(Scheme::Https);
        let mut head = PeerHead::of(&extensions, Some(&caller()));
        head.target = Some(PeerTarget {
            tenant: TenantId::parse("acme").unwrap(),
            sandbox: SandboxId::parse("box").unwrap(),
            epoch: u64::MAX,
        });
        let mut headers = HeaderMap::new();
        head.write(&mut headers);
        let back = PeerHead::take(&mut headers).unwrap();
        assert_eq!(back, head);
        assert!(headers.is_empty());
        assert_eq!(back.scheme(), Scheme::Https);
        let arrived = Caller::from(back.caller.unwrap());
        assert!(arrived.read_only && arrived.forwarded);
        assert_eq!(arrived.ticket_scope, caller().ticket_scope);
        assert_eq!(arrived.key, caller().key);
    }

    #[test]
    fn an_unknown_head_is_refused_and_a_new_member_is_not() {
        let taken = |text: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(PEER_HEAD, HeaderValue::from_static(text));
            PeerHead::take(&mut headers)
        };
        assert!(PeerHead::take(&mut HeaderMap::new()).is_err());
        for bad in ["", "{}", "[]", r#"{"client":"192.0.2.7","tls":1}"#] {
            assert!(taken(bad).is_err(), "{bad}");
        }
        let text =
            r#"{"caller":null,"target":null,"port_label":null,"client":"::1","tls":false,"new":1}"#;
        assert!(taken(text).is_ok());
    }

    #[test]
    fn a_kind_of_answer_is_read_once() {
        for (_, kind) in AnswerKind::ALL {
            let mut headers = HeaderMap::new();
            kind.write(&mut headers);
            assert_eq!(AnswerKind::take(&mut headers), Some(kind));
            assert_eq!(AnswerKind::take(&mut headers), None);
        }
    }
}
