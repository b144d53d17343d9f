//! All sandboxes by their addresses, and what holds for all of them.

use super::denial_log::{Denial, DenialLog};
use super::freed_memory::FreedMemory;
use super::resolvers::Resolvers;
use super::sandbox::SandboxEntry;
use crate::credentials::InjectedCredentials;
use crate::credentials::authority::CertificateAuthority;
use isolet_wire::credential::Credential;
use isolet_wire::network::{Guard, Policy, ProxyResponse};
use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, PoisonError, RwLock};

/// The state of all sandboxes, and what they share.
#[derive(Debug, Default)]
pub(crate) struct SandboxTable {
    entries: RwLock<HashMap<Ipv4Addr, Arc<SandboxEntry>>>,
    guard: RwLock<Arc<Guard>>,
    resolvers: Resolvers,
    denial_log: DenialLog,
    pub(crate) freed_memory: FreedMemory,
}

impl SandboxTable {
    pub(crate) fn find(&self, address: Ipv4Addr) -> Option<Arc<SandboxEntry>> {
        self.entries.read().unwrap_or_else(PoisonError::into_inner).get(&address).cloned()
    }

    /// The addresses that are closed for every sandbox.
    pub(crate) fn guard(&self) -> Arc<Guard> {
        self.guard.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The upstream DNS resolvers.
    pub(crate) fn resolvers(&self) -> Arc<Vec<SocketAddr>> {
        self.resolvers.get()
    }

    /// Sets the rules of a sandbox, and adds the sandbox where it is new.
    pub(crate) fn set_policy(&self, address: Ipv4Addr, policy: Policy) {
        let mut entries = self.entries.write().unwrap_or_else(PoisonError::into_inner);
        match entries.get(&address) {
            Some(sandbox) => sandbox.set_policy(policy),
            None => {
                let sandbox = SandboxEntry::new(address, policy, self.freed_memory.clone());
                entries.insert(address, Arc::new(sandbox));
            }
        }
    }

    /// Replaces the credentials of a sandbox. With `tls` the sandbox gets a certificate authority,
    /// which is made once; each call returns its certificate.
    pub(crate) fn set_credentials(
        &self,
        address: Ipv4Addr,
        credentials: Vec<Credential>,
        tls: bool,
    ) -> Option<ProxyResponse> {
        let sandbox = self.find(address)?;
        let mut current = sandbox.credentials.write().unwrap_or_else(PoisonError::into_inner);
        let authority = match (&current.authority, tls) {
            (Some(known), true) => Some(known.clone()),
            (None, true) => Some(Arc::new(CertificateAuthority::new(address).ok()?)),
            (_, false) => None,
        };
        *current = Arc::new(InjectedCredentials::new(credentials, authority.clone()));
        authority.map(|it| ProxyResponse::Authority { address, certificate: it.certificate() })
    }

    /// Removes a sandbox and ends its connections.
    pub(crate) fn remove(&self, address: Ipv4Addr) {
        let removed = self.entries.write().unwrap_or_else(PoisonError::into_inner).remove(&address);
        if let Some(sandbox) = removed {
            sandbox.close();
        }
    }

    /// Sets which addresses are closed, and which resolvers are queried.
    pub(crate) fn set_guard(&self, guard: Guard, resolvers: Vec<SocketAddr>) {
        *self.guard.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(guard);
        self.resolvers.set(resolvers);
        for sandbox in self.entries.read().unwrap_or_else(PoisonError::into_inner).values() {
            sandbox.notify_rule_change();
        }
    }

    /// Records that a connection was denied. Call this before the client gets its answer.
    pub(crate) fn log_denied_connection(
        &self,
        sandbox: &SandboxEntry,
        host: &str,
        port: u16,
        rule: &str,
    ) {
        let denial = Denial {
            host: host.to_owned(),
            port: Some(port),
            protocol: "tcp",
            rule: rule.to_owned(),
        };
        self.denial_log.record(sandbox.address, denial);
    }

    /// Records that a DNS query was denied. Call this before the client gets its answer.
    pub(crate) fn log_denied_query(&self, sandbox: &SandboxEntry, name: &str, rule: &str) {
        let denial =
            Denial { host: name.to_owned(), port: None, protocol: "dns", rule: rule.to_owned() };
        self.denial_log.record(sandbox.address, denial);
    }

    /// Takes the denials that are not reported yet.
    pub(crate) fn take_denials(&self) -> Vec<ProxyResponse> {
        self.denial_log.take()
    }

    /// Takes the bytes that each sandbox sent and received since the last call.
    pub(crate) fn take_traffic(&self) -> Vec<ProxyResponse> {
        let entries = self.entries.read().unwrap_or_else(PoisonError::into_inner);
        let traffic = entries.values().map(|sandbox| ProxyResponse::Carried {
            address: sandbox.address,
            out: sandbox.sent_bytes.swap(0, Relaxed),
            back: sandbox.received_bytes.swap(0, Relaxed),
        });
        let any = |response: &ProxyResponse| {
            !matches!(response, ProxyResponse::Carried { out: 0, back: 0, .. })
        };
        traffic.filter(any).collect()
    }
}
