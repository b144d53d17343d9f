//! The upstream DNS resolvers: the configured ones, or those of `/etc/resolv.conf`.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The most resolvers that are used; more are ignored, as in glibc.
const RESOLVERS_MAX: usize = 3;
/// How long the contents of `/etc/resolv.conf` are reused.
const REREAD_INTERVAL: Duration = Duration::from_secs(5);
const RESOLV_CONF: &str = "/etc/resolv.conf";

#[derive(Debug, Default)]
pub(crate) struct Resolvers {
    configured: Mutex<Arc<Vec<SocketAddr>>>,
    from_host: Mutex<Option<HostResolvers>>,
}

/// The resolvers of `/etc/resolv.conf` when it was last read.
#[derive(Debug)]
struct HostResolvers {
    read_at: Instant,
    resolvers: Arc<Vec<SocketAddr>>,
}

impl Resolvers {
    /// Replaces the configured resolvers; those of the host are used when there are none.
    pub(crate) fn set(&self, mut resolvers: Vec<SocketAddr>) {
        resolvers.truncate(RESOLVERS_MAX);
        *self.configured.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(resolvers);
    }

    pub(crate) fn get(&self) -> Arc<Vec<SocketAddr>> {
        let configured = self.configured.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if !configured.is_empty() {
            return configured;
        }
        let mut from_host = self.from_host.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        match &*from_host {
            Some(host) if now.duration_since(host.read_at) < REREAD_INTERVAL => {
                host.resolvers.clone()
            }
            _ => {
                let text = std::fs::read_to_string(RESOLV_CONF).unwrap_or_default();
                let resolvers = Arc::new(parse(&text));
                *from_host = Some(HostResolvers { read_at: now, resolvers: resolvers.clone() });
                resolvers
            }
        }
    }
}

fn parse(text: &str) -> Vec<SocketAddr> {
    let address = |line: &str| {
        let mut words = line.split_whitespace();
        (words.next()? == "nameserver").then_some(())?;
        words.next()?.parse::<IpAddr>().ok()
    };
    let all = text.lines().filter_map(address).map(|address| SocketAddr::new(address, 53));
    all.take(RESOLVERS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hosts_resolvers_are_read_and_bounded() {
        let text = "# a\nsearch x\nnameserver 127.0.0.53\n nameserver ::1 # b\nnameserver fe80::1%e\nnameserver 1.1.1.1\nnameserver 2.2.2.2\n";
        let all = parse(text).iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(all, ["127.0.0.53:53", "[::1]:53", "1.1.1.1:53"]);
    }
}
