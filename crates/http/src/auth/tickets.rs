//! Tickets: what a browser gives in place of a key when it opens a WebSocket, for which it can send
//! no `Authorization`. Each opens one thing, once, within seconds.
//!
//! Only their hashes are held, in memory: a restart ends them all.

use crate::{
    auth::caller::{Bound, Caller, Use},
    foundation::error::Failure,
};
use axum::http::{HeaderMap, Method, StatusCode, Uri, header};
use isolet_sandbox::{SandboxId, TenantId, ids};
use sha2::{Digest, Sha256};
use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// The longest time to live.
pub(crate) const TTL_MAX: Duration = Duration::from_secs(300);
/// Tickets at once; of one tenant a tenth, so that none takes them from the others.
const TICKETS_MAX: usize = 10_000;
const TENANT_MAX: usize = 1_000;
/// How often those are looked for that have ended.
const SWEEP: Duration = Duration::from_secs(1);
/// What a ticket is called in a query.
pub(crate) const NAME: &str = "ticket";

/// Where an upgrade asks to go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Door {
    pub(crate) purpose: Use,
    sandbox: SandboxId,
    ticket: Option<String>,
    /// It says itself that it only looks.
    pub(crate) view: bool,
}

impl Door {
    /// The socket that a request asks for, where it asks for one that takes tickets.
    pub(crate) fn of(method: &Method, uri: &Uri, headers: &HeaderMap) -> Option<Self> {
        if method != Method::GET || !headers.contains_key(header::UPGRADE) {
            return None;
        }
        let mut parts = uri.path().strip_prefix("/v1/")?.split('/');
        let (under, id, what) = (parts.next()?, parts.next()?, parts.next()?);
        let purpose = match (under, what, parts.next()) {
            ("sandboxes", "terminal", None) | ("sandbox", "pty", None) => Use::Terminal,
            ("sandboxes", "shell", None) => Use::Shell,
            ("sandboxes", "ports" | "tcp", Some(_)) => Use::Port,
            _ => return None,
        };
        let value = |name: &str| {
            let mut pairs = uri.query().unwrap_or("").split('&');
            pairs.find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))
        };
        Some(Self {
            purpose,
            sandbox: SandboxId::parse(id).ok()?,
            ticket: value(NAME).map(str::to_owned),
            view: value("mode") == Some("view"),
        })
    }

    /// The ticket that it brings.
    pub(crate) fn ticket(&self) -> Option<&str> {
        self.ticket.as_deref()
    }
}

/// All that were made and not used yet.
#[derive(Debug, Default)]
pub(crate) struct Tickets(Mutex<All>);

#[derive(Debug, Default)]
struct All {
    held: HashMap<[u8; 32], Held>,
    /// How many of each tenant are held.
    own: HashMap<TenantId, usize>,
    /// When those were let go last that have ended.
    swept: Option<Instant>,
}

impl All {
    fn remove(&mut self, hash: &[u8; 32]) -> Option<Held> {
        let held = self.held.remove(hash)?;
        if let Some(own) = self.own.get_mut(&held.caller.tenant) {
            *own -= 1;
        }
        self.own.retain(|_, own| *own > 0);
        Some(held)
    }

    /// Lets those go that have ended; at most once a second, since it looks at all.
    fn sweep(&mut self, now: Instant) {
        if self.swept.is_some_and(|swept| now.duration_since(swept) < SWEEP) {
            return;
        }
        self.swept = Some(now);
        let ended = self.held.iter().filter(|(_, held)| held.until <= now);
        let ended: Vec<_> = ended.map(|(hash, _)| *hash).collect();
        ended.iter().for_each(|hash| drop(self.remove(hash)));
    }
}

#[derive(Debug)]
struct Held {
    caller: Caller,
    door: (SandboxId, Use),
    until: Instant,
}

impl Tickets {
    fn lock(&self) -> MutexGuard<'_, All> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One that opens `bound` as `maker` would; with `view`, to look only.
    ///
    /// # Errors
    /// 429 while there are too many.
    pub(crate) fn add(
        &self,
        maker: &Caller,
        bound: Bound,
        view: bool,
        ttl: Duration,
    ) -> Result<String, Failure> {
        let now = Instant::now();
        let mut all = self.lock();
        all.sweep(now);
        let own = all.own.get(&maker.tenant).copied().unwrap_or(0);
        if all.held.len() >= TICKETS_MAX || own >= TENANT_MAX {
            return Err(Failure::new(
                StatusCode::TOO_MANY_REQUESTS,
                "too_many_tickets",
                "too many tickets were made and not used",
                "use them, or wait until they end: make a ticket when it is needed",
            ));
        }
        // 256 bits.
        let ticket = format!("{}{}", ids::random(), ids::random());
        let door = (bound.sandbox.clone(), bound.purpose);
        let caller =
            Caller { read_only: view || maker.read_only, bound: Some(bound), ..maker.clone() };
        all.own.insert(maker.tenant.clone(), own + 1);
        all.held.insert(hash(&ticket), Held { caller, door, until: now + ttl });
        Ok(ticket)
    }

    /// Who comes with a ticket through this door. It is spent, whatever is found: one that was shown
    /// at the wrong door is in wrong hands.
    pub(crate) fn take(&self, ticket: &str, door: &Door) -> Option<Caller> {
        // Found by its hash: how long the search takes says nothing of a ticket.
        let held = self.lock().remove(&hash(ticket))?;
        let right = held.door == (door.sandbox.clone(), door.purpose);
        (right && held.until > Instant::now()).then_some(held.caller)
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

    fn door(uri: &str) -> Option<Door> {
        let upgrade = (header::UPGRADE, HeaderValue::from_static("websocket"));
        Door::of(&Method::GET, &uri.parse().unwrap(), &HeaderMap::from_iter([upgrade]))
    }

    fn bound() -> Bound {
        let session = Some(SessionId::parse("dev").unwrap());
        Bound {
            sandbox: SandboxId::parse("box").unwrap(),
            incarnation: None,
            session,
            purpose: Use::Terminal,
            port: None,
        }
    }

    fn maker(tenant: &str) -> Caller {
        let tenant = TenantId::parse(tenant).unwrap();
        Caller { tenant, read_only: false, key: Some("k".into()), bound: None }
    }

    #[test]
    fn tickets_are_for_sockets_alone() {
        let found = door("/v1/sandboxes/box/terminal?ticket=abc&mode=view").unwrap();
        assert_eq!((found.purpose, found.ticket(), found.view), (Use::Terminal, Some("abc"), true));
        assert_eq!(door("/v1/sandbox/box/pty").unwrap().purpose, Use::Terminal);
        assert_eq!(door("/v1/sandboxes/box/shell?mode=edit").unwrap().purpose, Use::Shell);
        for other in [
            "/v1/sandboxes/box",
            "/v1/sandboxes/box/terminal/x",
            "/v1/runs/box/shell",
            "/v1/sandboxes//terminal",
            "/v1/sandboxes/%62ox/terminal",
            "/terminal",
            "/v1/sandboxes",
        ] {
            assert_eq!(door(&format!("{other}?ticket=abc")), None, "{other}");
        }
        let uri = "/v1/sandboxes/box/terminal?ticket=abc".parse().unwrap();
        assert_eq!(Door::of(&Method::GET, &uri, &HeaderMap::new()), None, "no upgrade");
    }

    #[test]
    fn a_ticket_opens_one_thing_once() {
        let (tickets, door) = (Tickets::default(), door("/v1/sandboxes/box/terminal").unwrap());
        let make = |ttl| tickets.add(&maker("a"), bound(), true, ttl).unwrap();
        let ticket = make(TTL_MAX);
        assert!(ticket.len() == 52);
        let caller = tickets.take(&ticket, &door).unwrap();
        assert!(caller.read_only && caller.bound == Some(bound()));
        assert!(tickets.take(&ticket, &door).is_none(), "used");
        assert!(tickets.take(&make(Duration::ZERO), &door).is_none(), "ended");
        let other = make(TTL_MAX);
        for wrong in ["/v1/sandboxes/other/terminal", "/v1/sandboxes/box/shell"] {
            let ticket = make(TTL_MAX);
            assert!(tickets.take(&ticket, &super::tests::door(wrong).unwrap()).is_none());
            assert!(tickets.take(&ticket, &door).is_none(), "spent at the wrong door");
        }
        assert!(tickets.take(&other, &door).is_some());
        let all = tickets.lock();
        assert!(all.held.is_empty() && all.own.is_empty());
    }

    #[test]
    fn tickets_are_bounded_and_one_tenant_takes_none_from_another() {
        let tickets = Tickets::default();
        let add = |tenant: &str| tickets.add(&maker(tenant), bound(), false, TTL_MAX).is_ok();
        assert_eq!((0..TENANT_MAX + 1).filter(|_| add("a")).count(), TENANT_MAX);
        assert!(add("b"));
        let others = (1..10).map(|n| (0..TENANT_MAX).filter(|_| add(&format!("t{n}"))).count());
        assert_eq!(others.sum::<usize>() + TENANT_MAX + 1, TICKETS_MAX);
    }
}
