//! All sandboxes by their addresses, and what holds for all of them.

use super::denial_log::{Tells, What};
use super::freed_memory::Freed;
use super::resolvers::Resolvers;
use super::sandbox::Link;
use crate::credentials::{Lent, authority::Authority};
use isolet_wire::lend::Credential;
use isolet_wire::network::{EdgeTell, Guard, Policy};
use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, RwLock};

/// All links, and what holds for all of them.
#[derive(Debug, Default)]
pub(crate) struct Links {
    all: RwLock<HashMap<Ipv4Addr, Arc<Link>>>,
    guard: RwLock<Arc<Guard>>,
    resolvers: Resolvers,
    tells: Tells,
    pub(crate) freed: Freed,
}

impl Links {
    /// The link with this address.
    #[must_use]
    pub(crate) fn find(&self, address: Ipv4Addr) -> Option<Arc<Link>> {
        self.all.read().expect("nobody panics with it").get(&address).cloned()
    }

    /// What is closed for all.
    #[must_use]
    pub(crate) fn guard(&self) -> Arc<Guard> {
        self.guard.read().expect("nobody panics with it").clone()
    }

    /// Who is asked for names.
    #[must_use]
    pub(crate) fn resolvers(&self) -> Arc<Vec<SocketAddr>> {
        self.resolvers.get()
    }

    /// Rules of a link, new or changed.
    pub(crate) fn set(&self, address: Ipv4Addr, policy: Policy) {
        let mut all = self.all.write().expect("nobody panics with it");
        match all.get(&address) {
            Some(link) => {
                *link.policy.write().expect("nobody panics with it") = Arc::new(policy);
                link.changed();
            }
            None => {
                all.insert(address, Arc::new(Link::new(address, policy, self.freed.clone())));
            }
        }
    }

    /// Credentials of a link, in place of those that it had. Its authority, where it has one, is
    /// made once; it is told each time.
    pub(crate) fn lend(
        &self,
        address: Ipv4Addr,
        credentials: Vec<Credential>,
        tls: bool,
    ) -> Option<EdgeTell> {
        let link = self.find(address)?;
        let mut lent = link.lent.write().expect("nobody panics with it");
        let authority = match (&lent.authority, tls) {
            (Some(known), true) => Some(known.clone()),
            (None, true) => Some(Arc::new(Authority::new(address).ok()?)),
            (_, false) => None,
        };
        *lent = Arc::new(Lent::new(credentials, authority.clone()));
        authority.map(|it| EdgeTell::Authority { address, certificate: it.certificate() })
    }

    /// A link is gone.
    pub(crate) fn forget(&self, address: Ipv4Addr) {
        if let Some(link) = self.all.write().expect("nobody panics with it").remove(&address) {
            link.end();
        }
    }

    /// What is closed, and who is asked for names.
    pub(crate) fn guarded(&self, guard: Guard, resolvers: Vec<SocketAddr>) {
        *self.guard.write().expect("nobody panics with it") = Arc::new(guard);
        self.resolvers.set(resolvers);
        for link in self.all.read().expect("nobody panics with it").values() {
            link.changed();
        }
    }

    /// Notes that a connection was refused; called before whoever asked is answered.
    pub(crate) fn refused(&self, link: &Link, host: &str, port: u16, rule: &str) {
        let what = What {
            host: host.to_owned(),
            port: Some(port),
            protocol: "tcp",
            rule: rule.to_owned(),
        };
        self.tells.note(link.address, what);
    }

    /// Notes that a name was not answered.
    pub(crate) fn unnamed(&self, link: &Link, host: &str, rule: &str) {
        let what =
            What { host: host.to_owned(), port: None, protocol: "dns", rule: rule.to_owned() };
        self.tells.note(link.address, what);
    }

    /// Refusals that are to be told.
    #[must_use]
    pub(crate) fn tells(&self) -> Vec<EdgeTell> {
        self.tells.take()
    }

    /// Bytes that were carried since the last call.
    #[must_use]
    pub(crate) fn carried(&self) -> Vec<EdgeTell> {
        let all = self.all.read().expect("nobody panics with it");
        let each = all.values().map(|link| EdgeTell::Carried {
            address: link.address,
            out: link.out.swap(0, Relaxed),
            back: link.back.swap(0, Relaxed),
        });
        let some = |tell: &EdgeTell| !matches!(tell, EdgeTell::Carried { out: 0, back: 0, .. });
        each.filter(some).collect()
    }
}
