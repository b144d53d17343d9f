//! Who is asked for names: those that were told, or those of the host.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// More are not asked, as in every resolver.
const RESOLVERS_MAX: usize = 3;
/// The host's file is read again after this long.
const READ_EVERY: Duration = Duration::from_secs(5);
const FILE: &str = "/etc/resolv.conf";

/// The resolvers in force.
#[derive(Debug, Default)]
pub(crate) struct Resolvers {
    told: Mutex<Arc<Vec<SocketAddr>>>,
    host: Mutex<Option<(Instant, Arc<Vec<SocketAddr>>)>>,
}

impl Resolvers {
    /// These from now on; the host's when there are none.
    pub(crate) fn set(&self, mut resolvers: Vec<SocketAddr>) {
        resolvers.truncate(RESOLVERS_MAX);
        *self.told.lock().expect("nobody panics with it") = Arc::new(resolvers);
    }

    /// Those to be asked.
    pub(crate) fn get(&self) -> Arc<Vec<SocketAddr>> {
        let told = self.told.lock().expect("nobody panics with it").clone();
        if !told.is_empty() {
            return told;
        }
        let mut host = self.host.lock().expect("nobody panics with it");
        let now = Instant::now();
        match &*host {
            Some((read, resolvers)) if now.duration_since(*read) < READ_EVERY => resolvers.clone(),
            _ => {
                let text = std::fs::read_to_string(FILE).unwrap_or_default();
                let resolvers = Arc::new(parse(&text));
                *host = Some((now, resolvers.clone()));
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
