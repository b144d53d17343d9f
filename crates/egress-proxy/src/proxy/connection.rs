//! One connection of a sandbox: which host it may reach, and for how long.

use crate::credentials::authority::CertificateAuthority;
use crate::dns::resolve::{self, ResolveError};
use crate::policy::{Decision, Destination};
use crate::sockets::set_keepalive;
use crate::state::sandbox::SandboxEntry;
use crate::state::table::SandboxTable;
use std::future::Future;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::timeout;

/// How long a host may take to accept a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Addresses of one name that are tried.
const ADDRESSES_TRIED_MAX: usize = 4;

/// Why a host was not dialled.
#[derive(Debug)]
pub(crate) enum DialError {
    /// The rule, or the reason, that denies it. The denial is logged.
    Denied(String),
    /// The host cannot be reached or does not answer.
    Failed(std::io::Error),
}

/// The host that a connection is forwarded to at the moment.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    pub(crate) destination: Destination,
    pub(crate) address: SocketAddrV4,
}

/// A host that was dialled.
pub(crate) struct Dialed {
    pub(crate) stream: TcpStream,
    pub(crate) address: SocketAddrV4,
}

/// A host for which TLS is terminated here.
pub(crate) struct TlsHost {
    pub(crate) name: String,
    pub(crate) authority: Arc<CertificateAuthority>,
}

/// A connection of a sandbox, and the address that the sandbox connected to.
#[derive(Debug, Clone)]
pub(crate) struct SandboxConnection {
    pub(crate) sandboxes: Arc<SandboxTable>,
    pub(crate) sandbox: Arc<SandboxEntry>,
    pub(crate) original: SocketAddrV4,
}

impl SandboxConnection {
    /// The host as denials name it.
    pub(crate) fn host(&self, destination: &Destination) -> String {
        match destination {
            Destination::Name(name) | Destination::HiddenName(Some(name)) => name.clone(),
            // A request for an address is denied as that address, whatever names it has.
            Destination::Address(_) => self.original.ip().to_string(),
            _ => {
                let name = self.sandbox.names_of(*self.original.ip()).into_iter().next();
                name.unwrap_or_else(|| self.original.ip().to_string())
            }
        }
    }

    pub(crate) fn log_denied(&self, destination: &Destination, rule: &str) {
        let host = self.host(destination);
        self.sandboxes.log_denied_connection(&self.sandbox, &host, self.original.port(), rule);
    }

    /// Why an address is closed whatever the rules say: by the guard, or because it is another
    /// sandbox's.
    pub(crate) fn closed(&self, address: Ipv4Addr) -> Option<&'static str> {
        let other_sandbox = || self.sandboxes.find(address).map(|_| "private");
        self.sandboxes.guard().closed(address).or_else(other_sandbox)
    }

    /// The rule that forbids a connection to `address`, if any.
    fn forbidden_by(&self, destination: &Destination, address: SocketAddrV4) -> Option<String> {
        if let Some(reason) = self.closed(*address.ip()) {
            return Some(reason.to_owned());
        }
        match self.sandbox.decide(address, destination) {
            Decision::Deny(rule) => Some(rule),
            Decision::DialOriginal | Decision::DialName(_) => None,
        }
    }

    /// The host whose TLS is to be terminated here: it may be reached, and credentials are injected
    /// into its requests.
    pub(crate) fn tls_host(&self, destination: &Destination) -> Option<TlsHost> {
        let Destination::Name(name) = destination else { return None };
        let credentials = self.sandbox.credentials();
        let port = self.original.port();
        let authority = credentials.authority.clone();
        let authority = authority.filter(|_| credentials.apply_to(name, port, true))?;
        let decision = self.sandbox.decide(self.original, destination);
        let denied = matches!(decision, Decision::Deny(_));
        (!denied).then(|| TlsHost { name: name.clone(), authority })
    }

    /// Whether a request may be sent to the address that an earlier one was sent to.
    pub(crate) fn may_reuse(&self, destination: &Destination, address: SocketAddrV4) -> bool {
        // Credentials may be newer than the upstream connection. They belong to the host, not to
        // an address that the sandbox has chosen for it.
        let right_host = match destination {
            Destination::Name(name) if self.has_credentials(destination) => {
                self.sandbox.was_resolved_to(name, *address.ip())
            }
            _ => true,
        };
        right_host && self.forbidden_by(destination, address).is_none()
    }

    /// Decides, and dials the host. A denial is logged.
    pub(crate) async fn dial(&self, destination: &Destination) -> Result<Dialed, DialError> {
        let dialed = self.try_dial(destination).await;
        if let Err(DialError::Denied(rule)) = &dialed {
            self.log_denied(destination, rule);
        }
        dialed
    }

    async fn try_dial(&self, destination: &Destination) -> Result<Dialed, DialError> {
        let mut error = DialError::Failed(std::io::ErrorKind::HostUnreachable.into());
        let addresses = self.addresses_to_dial(destination).await?;
        for ip in addresses.into_iter().take(ADDRESSES_TRIED_MAX) {
            let address = SocketAddrV4::new(ip, self.original.port());
            if let Some(rule) = self.forbidden_by(destination, address) {
                error = DialError::Denied(rule);
                continue;
            }
            match timeout(CONNECT_TIMEOUT, TcpStream::connect(address)).await {
                Ok(Ok(stream)) => {
                    set_keepalive(&stream);
                    return Ok(Dialed { stream, address });
                }
                Ok(Err(failed)) => error = DialError::Failed(failed),
                Err(_) => error = DialError::Failed(std::io::ErrorKind::TimedOut.into()),
            }
        }
        Err(error)
    }

    async fn addresses_to_dial(
        &self,
        destination: &Destination,
    ) -> Result<Vec<Ipv4Addr>, DialError> {
        let original = *self.original.ip();
        let name = match self.sandbox.decide(self.original, destination) {
            Decision::Deny(rule) => return Err(DialError::Denied(rule)),
            Decision::DialName(name) => Some(name),
            // Rules that allow any address would let the sandbox choose which machine gets the
            // credentials of this host.
            Decision::DialOriginal if self.has_credentials(destination) => match destination {
                Destination::Name(name) => Some(name.clone()),
                _ => None,
            },
            Decision::DialOriginal => None,
        };
        match name {
            Some(name) if !self.sandbox.was_resolved_to(&name, original) => {
                self.resolve(&name).await
            }
            _ => Ok(vec![original]),
        }
    }

    /// Whether the sandbox has credentials for the host, by TLS or plain HTTP.
    fn has_credentials(&self, destination: &Destination) -> bool {
        let Destination::Name(name) = destination else { return false };
        let credentials = self.sandbox.credentials();
        let port = self.original.port();
        [false, true].into_iter().any(|tls| credentials.apply_to(name, port, tls))
    }

    async fn resolve(&self, name: &str) -> Result<Vec<Ipv4Addr>, DialError> {
        match resolve::addresses(&self.sandboxes, &self.sandbox, name).await {
            Ok(answer) => Ok(answer.addresses),
            Err(ResolveError::Closed(reason)) => Err(DialError::Denied(reason.to_owned())),
            Err(ResolveError::TooMany) => Err(DialError::Denied("limit".to_owned())),
            Err(error) => Err(DialError::Failed(std::io::Error::other(error))),
        }
    }

    /// Runs `work` while the rules allow it; `None`: a change of rules ended it. `target` says
    /// where the connection goes at the moment.
    pub(crate) async fn run_while_allowed<T>(
        &self,
        rule_changes: &mut watch::Receiver<u64>,
        target: impl Fn() -> Option<Target>,
        work: impl Future<Output = T>,
    ) -> Option<T> {
        tokio::pin!(work);
        loop {
            tokio::select! {
                done = &mut work => return Some(done),
                changed = rule_changes.changed() => {
                    changed.ok()?;
                    let Some(Target { destination, address }) = target() else { continue };
                    if let Some(rule) = self.forbidden_by(&destination, address) {
                        self.log_denied(&destination, &rule);
                        return None;
                    }
                }
            }
        }
    }
}
