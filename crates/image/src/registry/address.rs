//! Which registries may be contacted. A tenant chooses the name, and this server sends the request, so
//! this prevents server-side request forgery.
//!
//! Private addresses are contacted only for registries that the operator has listed. The address is
//! checked when the connection is made, so that a second DNS answer cannot bypass the check; redirects
//! and token services are checked too.

use crate::error::Error;
use reqwest::Url;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use tracing::debug;

/// Hosts that may have private addresses: `name` or `name:port`.
#[derive(Debug, Clone, Default)]
pub(crate) struct AllowedHosts(pub(crate) Arc<Vec<String>>);

impl AllowedHosts {
    fn has(&self, host: &str, port: Option<u16>) -> bool {
        let with = port.map(|port| format!("{host}:{port}"));
        self.0.iter().any(|one| one == host || Some(one) == with.as_ref())
    }

    /// Checks the name alone: the resolver does not know the port, which was checked with the URL.
    fn has_name(&self, name: &str) -> bool {
        self.0.iter().any(|one| one == name || one.rsplit_once(':').is_some_and(|(h, _)| h == name))
    }

    /// Checks that a URL may be requested.
    ///
    /// # Errors
    /// [`Error::NotAsked`].
    pub(crate) fn check(&self, url: &Url) -> Result<(), Error> {
        let host = url.host_str().unwrap_or_default().to_owned();
        let port = url.port_or_known_default();
        let refuse = |reason| {
            let registry = url.port().map_or(host.clone(), |port| format!("{host}:{port}"));
            Err(Error::NotAsked { registry, reason })
        };
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        let literal: Option<IpAddr> = bare.parse().ok();
        let local = bare == "localhost" || literal.is_some_and(|ip| ip.is_loopback());
        match url.scheme() {
            "https" => {}
            "http" if local => {}
            _ => return refuse("it uses plain HTTP, which is allowed only on this machine"),
        }
        let open = literal.map_or(bare != "localhost", public);
        if open || self.has(&host, port) {
            return Ok(());
        }
        refuse("its address is not public; add it to `registries` in [images] to allow it")
    }
}

/// Resolves names, and drops private addresses unless the host is allowed.
pub(crate) struct GuardedResolver(pub(crate) AllowedHosts);

impl Resolve for GuardedResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let named = self.0.has_name(name.as_str());
        Box::pin(async move {
            let found = tokio::net::lookup_host((name.as_str(), 0)).await;
            if named {
                return Ok(Box::new(found?.collect::<Vec<_>>().into_iter()) as Addrs);
            }
            // One error, so that a tenant cannot find out which names of the operator's network exist.
            let found = found.inspect_err(|error| debug!(%error, ?name, "registry not resolved"));
            let found = found.into_iter().flatten();
            let found: Vec<SocketAddr> = found.filter(|address| public(address.ip())).collect();
            if found.is_empty() {
                return Err(
                    "it has no public address; add it to `registries` in [images] if it is one of yours"
                        .into(),
                );
            }
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}

fn public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => public4(address),
        IpAddr::V6(address) => public6(address),
    }
}

fn public4(address: Ipv4Addr) -> bool {
    isolet_wire::network::closed(address).is_none() && !address.is_documentation()
}

fn public6(address: Ipv6Addr) -> bool {
    if let Some(inner) = address.to_ipv4_mapped() {
        return public4(inner);
    }
    let parts = address.segments();
    // Global unicast, except for documentation and addresses that contain an IPv4 address (6to4,
    // Teredo).
    (0x2000..0x4000).contains(&parts[0])
        && parts[0] != 0x2002
        && !(parts[0] == 0x2001 && (parts[1] == 0 || parts[1] == 0xdb8))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Promises: A7.
    #[test]
    fn an_address_of_our_own_is_asked_only_by_name() {
        let named = AllowedHosts(Arc::new(vec!["127.0.0.1:5000".into(), "inner.example".into()]));
        let check = |url: &str| named.check(&Url::parse(url).unwrap()).is_ok();
        for url in [
            "https://ghcr.io/v2/",
            "https://8.8.8.8/v2/",
            "http://127.0.0.1:5000/v2/",
            "https://inner.example/v2/",
            "https://[2606:4700::1]/v2/",
        ] {
            assert!(check(url), "{url}");
        }
        for url in [
            "http://ghcr.io/v2/",
            "http://127.0.0.1:5001/v2/",
            "https://127.0.0.1/v2/",
            "https://localhost:7300/",
            "https://169.254.169.254/latest",
            "https://10.1.2.3/",
            "https://[::1]:5000/",
            "https://[::ffff:10.0.0.1]/",
            "https://[fe80::1]/",
            "https://2130706433/",
            "https://0x7f.1/",
            "ftp://ghcr.io/",
            "http://inner.example/",
            "https://[2002:7f00:1::]/",
        ] {
            assert!(!check(url), "{url}");
        }
    }

    /// Promises: A7.
    #[tokio::test]
    async fn a_name_with_a_private_address_is_answered_like_one_without() {
        let resolver = GuardedResolver(AllowedHosts::default());
        // No name server is asked for either of them.
        let unknown = format!("{}.example", "x".repeat(64));
        let mut said = Vec::new();
        for name in ["localhost", &unknown] {
            let refused = resolver.resolve(name.parse::<Name>().unwrap()).await.err();
            said.push(refused.unwrap().to_string());
        }
        assert_eq!(said[0], said[1]);
    }
}
