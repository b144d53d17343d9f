//! Tickets: a browser, which cannot send `Authorization` when it opens a WebSocket, sends a ticket
//! instead of a key. Each ticket opens one WebSocket once, within seconds.
//!
//! Only hashes are stored, in memory, so a restart invalidates all tickets.

use crate::auth::caller::{Caller, SocketPurpose, TicketScope};
use crate::foundation::error::ApiError;
use axum::http::{HeaderMap, Method, StatusCode, Uri, header};
use isolet_sandbox::{SandboxId, TenantId, ids};
use isolet_wire::node::NodeName;
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The longest lifetime of a ticket.
pub(crate) const TTL_MAX: Duration = Duration::from_secs(300);
/// The most unused tickets. One tenant may have a tenth of them, so that it cannot use up the limit
/// alone.
const TICKETS_MAX: usize = 10_000;
const TENANT_MAX: usize = 1_000;
/// How often expired tickets are removed.
const SWEEP: Duration = Duration::from_secs(1);
/// Stands between a ticket and the name of the node that issued it.
const NODE_MARK: char = '.';
/// The query parameter that holds a ticket.
pub(crate) const QUERY_NAME: &str = "ticket";

/// What an upgrade request wants to open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TicketTarget {
    pub(crate) purpose: SocketPurpose,
    sandbox: SandboxId,
    ticket: Option<String>,
    /// The request itself asks for a read-only view.
    pub(crate) view: bool,
}

impl TicketTarget {
    /// Parses an upgrade request; `None` when its route takes no tickets.
    pub(crate) fn of(method: &Method, uri: &Uri, headers: &HeaderMap) -> Option<Self> {
        if method != Method::GET || !headers.contains_key(header::UPGRADE) {
            return None;
        }
        let mut parts = uri.path().strip_prefix("/v1/")?.split('/');
        let under = parts.next()?;
        let id = parts.next()?;
        let kind = parts.next()?;
        let purpose = match (under, kind, parts.next()) {
            ("sandboxes", "terminal", None) | ("sandbox", "pty", None) => SocketPurpose::Terminal,
            ("sandboxes", "shell", None) => SocketPurpose::Shell,
            ("sandboxes", "ports" | "tcp", Some(_)) => SocketPurpose::Port,
            _ => return None,
        };
        let value = |name: &str| {
            let mut pairs = uri.query().unwrap_or("").split('&');
            pairs.find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))
        };
        Some(Self {
            purpose,
            sandbox: SandboxId::parse(id).ok()?,
            ticket: value(QUERY_NAME).map(str::to_owned),
            view: value("mode") == Some("view"),
        })
    }

    /// What a request that another node has received wants to open.
    pub(crate) fn of_socket(sandbox: SandboxId, purpose: SocketPurpose) -> Self {
        Self { purpose, sandbox, ticket: None, view: false }
    }

    pub(crate) fn sandbox(&self) -> &SandboxId {
        &self.sandbox
    }

    /// The ticket without the name of its node.
    pub(crate) fn ticket(&self) -> Option<&str> {
        let ticket = self.ticket.as_deref()?;
        Some(ticket.split_once(NODE_MARK).map_or(ticket, |(own, _)| own))
    }

    /// The node that issued the ticket, in a fleet.
    pub(crate) fn node(&self) -> Option<&str> {
        Some(self.ticket.as_deref()?.split_once(NODE_MARK)?.1)
    }
}

/// A ticket that every node of a fleet can have redeemed by the node that issued it.
pub(crate) fn with_node(ticket: &str, node: &NodeName) -> String {
    format!("{ticket}{NODE_MARK}{node}")
}

/// All tickets that were issued and not redeemed yet.
#[derive(Debug, Default)]
pub(crate) struct Tickets(Mutex<IssuedTickets>);

#[derive(Debug, Default)]
struct IssuedTickets {
    issued: HashMap<[u8; 32], IssuedTicket>,
    /// How many tickets each tenant has.
    own: HashMap<TenantId, usize>,
    /// When expired tickets were last removed.
    swept: Option<Instant>,
}

impl IssuedTickets {
    fn remove(&mut self, hash: &[u8; 32]) -> Option<IssuedTicket> {
        let issued = self.issued.remove(hash)?;
        if let Some(own) = self.own.get_mut(&issued.caller.tenant) {
            *own -= 1;
        }
        self.own.retain(|_, own| *own > 0);
        Some(issued)
    }

    /// Removes expired tickets; at most once a second, since it visits all of them.
    fn sweep(&mut self, now: Instant) {
        if self.swept.is_some_and(|swept| now.duration_since(swept) < SWEEP) {
            return;
        }
        self.swept = Some(now);
        let ended = self.issued.iter().filter(|(_, issued)| issued.expires_at <= now);
        let ended: Vec<_> = ended.map(|(hash, _)| *hash).collect();
        ended.iter().for_each(|hash| drop(self.remove(hash)));
    }
}

#[derive(Debug)]
struct IssuedTicket {
    caller: Caller,
    target: (SandboxId, SocketPurpose),
    expires_at: Instant,
}

impl Tickets {
    fn lock(&self) -> MutexGuard<'_, IssuedTickets> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Issues a ticket that opens `scope` on behalf of `maker`; with `view`, read-only.
    ///
    /// # Errors
    /// 429 while there are too many tickets.
    pub(crate) fn issue(
        &self,
        maker: &Caller,
        scope: TicketScope,
        view: bool,
        ttl: Duration,
    ) -> Result<String, ApiError> {
        let now = Instant::now();
        let mut all = self.lock();
        all.sweep(now);
        let own = all.own.get(&maker.tenant).copied().unwrap_or(0);
        if all.issued.len() >= TICKETS_MAX || own >= TENANT_MAX {
            return Err(ApiError::new(
                StatusCode::TOO_MANY_REQUESTS,
                "too_many_tickets",
                "there are too many unused tickets",
                "wait until they expire, and create a ticket only when it is needed",
            ));
        }
        // 256 bits.
        let ticket = format!("{}{}", ids::random(), ids::random());
        let target = (scope.sandbox.clone(), scope.purpose);
        let caller = Caller {
            read_only: view || maker.read_only,
            ticket_scope: Some(scope),
            // The node that redeems the ticket serves its caller.
            forwarded: false,
            ..maker.clone()
        };
        all.own.insert(maker.tenant.clone(), own + 1);
        all.issued.insert(hash(&ticket), IssuedTicket { caller, target, expires_at: now + ttl });
        Ok(ticket)
    }

    /// Redeems a ticket. A ticket with the wrong target is used up too, because it was probably
    /// stolen.
    pub(crate) fn redeem(&self, ticket: &str, target: &TicketTarget) -> Option<Caller> {
        // Looked up by hash, so that the time of the lookup reveals nothing about a ticket.
        let issued = self.lock().remove(&hash(ticket))?;
        let right = issued.target == (target.sandbox.clone(), target.purpose);
        (right && issued.expires_at > Instant::now()).then_some(issued.caller)
    }
}

fn hash(ticket: &str) -> [u8; 32] {
    Sha256::digest(ticket.as_bytes()).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;
    use isolet_sandbox::SessionId;

    fn target(uri: &str) -> Option<TicketTarget> {
        let upgrade = (header::UPGRADE, HeaderValue::from_static("websocket"));
        TicketTarget::of(&Method::GET, &uri.parse().unwrap(), &HeaderMap::from_iter([upgrade]))
    }

    fn scope() -> TicketScope {
        let session = Some(SessionId::parse("dev").unwrap());
        TicketScope {
            sandbox: SandboxId::parse("box").unwrap(),
            incarnation: None,
            session,
            purpose: SocketPurpose::Terminal,
            port: None,
        }
    }

    fn maker(tenant: &str) -> Caller {
        let tenant = TenantId::parse(tenant).unwrap();
        Caller {
            tenant,
            read_only: false,
            key: Some("k".into()),
            ticket_scope: None,
            forwarded: false,
        }
    }

    #[test]
    fn tickets_are_for_sockets_alone() {
        let found = target("/v1/sandboxes/box/terminal?ticket=abc&mode=view").unwrap();
        assert_eq!(
            (found.purpose, found.ticket(), found.view),
            (SocketPurpose::Terminal, Some("abc"), true)
        );
        assert_eq!(target("/v1/sandbox/box/pty").unwrap().purpose, SocketPurpose::Terminal);
        assert_eq!(
            target("/v1/sandboxes/box/shell?mode=edit").unwrap().purpose,
            SocketPurpose::Shell
        );
        let node = NodeName::parse("node-1").unwrap();
        let issued = with_node("abc", &node);
        let found = target(&format!("/v1/sandboxes/box/shell?ticket={issued}")).unwrap();
        assert_eq!((found.ticket(), found.node()), (Some("abc"), Some("node-1")));
        for other in [
            "/v1/sandboxes/box",
            "/v1/sandboxes/box/terminal/x",
            "/v1/runs/box/shell",
            "/v1/sandboxes//terminal",
            "/v1/sandboxes/%62ox/terminal",
            "/terminal",
            "/v1/sandboxes",
        ] {
            assert_eq!(target(&format!("{other}?ticket=abc")), None, "{other}");
        }
        let uri = "/v1/sandboxes/box/terminal?ticket=abc".parse().unwrap();
        assert_eq!(TicketTarget::of(&Method::GET, &uri, &HeaderMap::new()), None, "no upgrade");
    }

    #[test]
    fn a_ticket_opens_one_thing_once() {
        let tickets = Tickets::default();
        let target = target("/v1/sandboxes/box/terminal").unwrap();
        let make = |ttl| tickets.issue(&maker("a"), scope(), true, ttl).unwrap();
        let ticket = make(TTL_MAX);
        assert!(ticket.len() == 52);
        let caller = tickets.redeem(&ticket, &target).unwrap();
        assert!(caller.read_only && caller.ticket_scope == Some(scope()));
        assert!(tickets.redeem(&ticket, &target).is_none(), "used");
        assert!(tickets.redeem(&make(Duration::ZERO), &target).is_none(), "ended");
        let other = make(TTL_MAX);
        for wrong in ["/v1/sandboxes/other/terminal", "/v1/sandboxes/box/shell"] {
            let ticket = make(TTL_MAX);
            assert!(tickets.redeem(&ticket, &super::tests::target(wrong).unwrap()).is_none());
            assert!(tickets.redeem(&ticket, &target).is_none(), "spent at the wrong door");
        }
        assert!(tickets.redeem(&other, &target).is_some());
        let all = tickets.lock();
        assert!(all.issued.is_empty() && all.own.is_empty());
    }

    #[test]
    fn tickets_are_bounded_and_one_tenant_takes_none_from_another() {
        let tickets = Tickets::default();
        let add = |tenant: &str| tickets.issue(&maker(tenant), scope(), false, TTL_MAX).is_ok();
        assert_eq!((0..TENANT_MAX + 1).filter(|_| add("a")).count(), TENANT_MAX);
        assert!(add("b"));
        let others = (1..10).map(|n| (0..TENANT_MAX).filter(|_| add(&format!("t{n}"))).count());
        assert_eq!(others.sum::<usize>() + TENANT_MAX + 1, TICKETS_MAX);
    }
}
