//! One connection of a sandbox, from where it came to where it may go.

use crate::credentials::authority::Authority;
use crate::dns::resolve;
use crate::policy::{Shown, Way};
use crate::sockets::kept_alive;
use crate::state::sandbox::Link;
use crate::state::table::Links;
use std::future::Future;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::timeout;

/// How long a host has to take a connection.
const CONNECT: Duration = Duration::from_secs(10);
/// Addresses of a name that are tried.
const TRIED_MAX: usize = 4;

/// What a connection has shown, kept to be judged again when rules change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Said {
    Name(String),
    Nameless,
    Hidden(Option<String>),
    Address(Ipv4Addr),
    Nothing,
}

impl Said {
    fn shown(&self) -> Shown<'_> {
        match self {
            Self::Name(name) => Shown::Name(name),
            Self::Nameless => Shown::Nameless,
            Self::Hidden(_) => Shown::Hidden,
            Self::Address(address) => Shown::Address(*address),
            Self::Nothing => Shown::Nothing,
        }
    }
}

/// Why nothing was dialled.
#[derive(Debug)]
pub(crate) enum Undialled {
    /// By this rule or for this reason; it is noted.
    Refused(String),
    /// The host is not there, or does not answer.
    Failed(std::io::Error),
}

/// Where a connection goes at the moment.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    pub(crate) said: Said,
    pub(crate) address: SocketAddrV4,
}

/// Who comes, and to where.
#[derive(Debug, Clone)]
pub(crate) struct Visit {
    pub(crate) links: Arc<Links>,
    pub(crate) link: Arc<Link>,
    /// The address that was asked for.
    pub(crate) to: SocketAddrV4,
}

impl Visit {
    /// How a refusal names the host.
    pub(crate) fn host(&self, said: &Said) -> String {
        match said {
            Said::Name(name) | Said::Hidden(Some(name)) => name.clone(),
            // Who asks for an address is told of that: a name that it has is another matter.
            Said::Address(_) => self.to.ip().to_string(),
            _ => {
                let name = self.link.names(*self.to.ip()).into_iter().next();
                name.unwrap_or_else(|| self.to.ip().to_string())
            }
        }
    }

    /// Notes a refusal.
    pub(crate) fn refuse(&self, said: &Said, rule: &str) {
        self.links.refused(&self.link, &self.host(said), self.to.port(), rule);
    }

    /// Why an address is closed whatever rules say: by the guard, or since it is another link's.
    pub(crate) fn closed(&self, address: Ipv4Addr) -> Option<&'static str> {
        let sandbox = || self.links.find(address).map(|_| "private");
        self.links.guard().closed(address).or_else(sandbox)
    }

    /// Whether a connection to `at` still stands with the rules; `None`: it does.
    fn against(&self, said: &Said, at: SocketAddrV4) -> Option<String> {
        if let Some(why) = self.closed(*at.ip()) {
            return Some(why.to_owned());
        }
        match self.link.judge(at, said.shown()) {
            Way::Refuse(rule) => Some(rule),
            Way::Straight | Way::ByName(_) => None,
        }
    }

    /// The host's name, and who speaks as it, where TLS is to end here: there is something to put
    /// into its requests, and it may be reached.
    pub(crate) fn ends(&self, said: &Said) -> Option<(String, Arc<Authority>)> {
        let Said::Name(name) = said else { return None };
        let lent = self.link.lent();
        let authority = lent.authority.clone().filter(|_| lent.to(name, self.to.port(), true))?;
        let refused = matches!(self.link.judge(self.to, said.shown()), Way::Refuse(_));
        (!refused).then(|| (name.clone(), authority))
    }

    /// Whether a request may go on to where an earlier one went.
    pub(crate) fn still(&self, said: &Said, at: SocketAddrV4) -> bool {
        // What is lent since then is for the host, not for whom the sandbox took for it.
        let its_own = match said {
            Said::Name(name) if self.lent(said) => self.link.stands(name, *at.ip()),
            _ => true,
        };
        its_own && self.against(said, at).is_none()
    }

    /// Judges, and dials where it may go. A refusal is noted.
    pub(crate) async fn dial(&self, said: &Said) -> Result<(TcpStream, SocketAddrV4), Undialled> {
        match self.dialled(said).await {
            Err(Undialled::Refused(rule)) => {
                self.refuse(said, &rule);
                Err(Undialled::Refused(rule))
            }
            other => other,
        }
    }

    async fn dialled(&self, said: &Said) -> Result<(TcpStream, SocketAddrV4), Undialled> {
        let addresses = match self.link.judge(self.to, said.shown()) {
            Way::Refuse(rule) => return Err(Undialled::Refused(rule)),
            Way::ByName(name) if !self.link.stands(&name, *self.to.ip()) => {
                self.resolved(&name).await?
            }
            // Rules that allow any address let the sandbox choose who is to be this host.
            Way::Straight if self.lent(said) => match said {
                Said::Name(name) if !self.link.stands(name, *self.to.ip()) => {
                    self.resolved(name).await?
                }
                _ => vec![*self.to.ip()],
            },
            Way::Straight | Way::ByName(_) => vec![*self.to.ip()],
        };
        let gone = std::io::Error::from(std::io::ErrorKind::HostUnreachable);
        let mut failed = Undialled::Failed(gone);
        for address in addresses.into_iter().take(TRIED_MAX) {
            let at = SocketAddrV4::new(address, self.to.port());
            if let Some(rule) = self.against(said, at) {
                failed = Undialled::Refused(rule);
                continue;
            }
            match timeout(CONNECT, TcpStream::connect(at)).await {
                Ok(Ok(stream)) => {
                    kept_alive(&stream);
                    return Ok((stream, at));
                }
                Ok(Err(error)) => failed = Undialled::Failed(error),
                Err(_) => failed = Undialled::Failed(std::io::ErrorKind::TimedOut.into()),
            }
        }
        Err(failed)
    }

    /// Whether something is lent for the host that it has named.
    fn lent(&self, said: &Said) -> bool {
        let Said::Name(name) = said else { return false };
        let (lent, port) = (self.link.lent(), self.to.port());
        [false, true].into_iter().any(|tls| lent.to(name, port, tls))
    }

    async fn resolved(&self, name: &str) -> Result<Vec<Ipv4Addr>, Undialled> {
        match resolve::addresses(&self.links, &self.link, name).await {
            Ok((addresses, _)) => Ok(addresses),
            Err(resolve::Unresolved::Closed(why)) => Err(Undialled::Refused(why.to_owned())),
            Err(resolve::Unresolved::TooMany) => Err(Undialled::Refused("limit".to_owned())),
            Err(error) => Err(Undialled::Failed(std::io::Error::other(error))),
        }
    }

    /// Works on something as long as the rules let it; `None`: it was cut. `now` says what is
    /// carried at the moment.
    pub(crate) async fn hold<T>(
        &self,
        changes: &mut watch::Receiver<u64>,
        now: impl Fn() -> Option<Target>,
        work: impl Future<Output = T>,
    ) -> Option<T> {
        tokio::pin!(work);
        loop {
            tokio::select! {
                done = &mut work => return Some(done),
                changed = changes.changed() => {
                    changed.ok()?;
                    let Some(target) = now() else { continue };
                    if let Some(rule) = self.against(&target.said, target.address) {
                        self.refuse(&target.said, &rule);
                        return None;
                    }
                }
            }
        }
    }
}
