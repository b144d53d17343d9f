//! The address, scheme and host of a client behind reverse proxies.
//!
//! Proxies report them in headers that every client can send too, so the headers count only when
//! the connection comes from a trusted proxy. Each proxy appends the address that it saw: from the
//! right, the first address that is not a trusted proxy is the client. What stands left of it comes
//! from the client, and proves nothing.

use crate::auth::forwarded_headers::{self, ForwardedHop};
use crate::foundation::extensions::Scheme;
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderValue, header};
use ipnet::IpNet;
use std::net::IpAddr;
use std::str::FromStr;

/// The most addresses that are read, from the right: more proxies than any path has.
const HOPS_MAX: usize = 32;
/// The longest name of a host, in bytes: 253 of the name, and a port.
const HOST_BYTES_MAX: usize = 260;

/// The addresses of reverse proxies whose headers count.
#[derive(Debug, Clone, Default)]
pub struct TrustedProxies(Vec<IpNet>);

impl TrustedProxies {
    /// Parses addresses (`10.0.0.7`) and networks (`10.0.0.0/8`).
    ///
    /// # Errors
    /// The first text that is neither.
    pub fn parse(texts: &[String]) -> Result<Self, String> {
        let network = |text: &String| {
            let address = text.parse::<IpAddr>().map(IpNet::from);
            address.or_else(|_| IpNet::from_str(text)).map_err(|_| text.clone())
        };
        texts.iter().map(network).collect::<Result<_, _>>().map(Self)
    }

    fn contain(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.0.iter().any(|network| network.contains(&address))
    }

    /// Finds the client of a request that arrived from `peer`. If the peer is a trusted proxy, the
    /// headers are rewritten to state the same: `Host` is the one that the client named, and
    /// `X-Forwarded-For` ends before the client's address.
    pub(crate) fn client_of(
        &self,
        peer: IpAddr,
        scheme: Scheme,
        headers: &mut HeaderMap,
    ) -> ClientOrigin {
        let direct = ClientOrigin { address: peer, scheme };
        if !self.contain(peer) {
            return direct;
        }
        let Some(report) = self.report(headers) else { return direct };
        let reported = ClientOrigin {
            address: report.address.unwrap_or(peer),
            scheme: report.scheme.unwrap_or(scheme),
        };
        report.write(reported, headers);
        reported
    }

    /// What the headers report; `None` if they contradict each other.
    fn report(&self, headers: &HeaderMap) -> Option<ForwardedClient> {
        let report = self.client_hop(&forwarded_headers::x_forwarded(headers));
        let other = self.client_hop(&forwarded_headers::forwarded(headers));
        // A proxy sets one of the two families of headers, and may pass on the other one from the
        // client.
        if report.address.is_some() && other.address.is_some() && report.address != other.address {
            return None;
        }
        Some(ForwardedClient {
            address: report.address.or(other.address),
            before: report.before,
            scheme: report.scheme.or(other.scheme),
            host: report.host.or(other.host),
        })
    }

    /// The entry of the proxy that the client connected to. `hops` are in the order of the header.
    fn client_hop(&self, hops: &[ForwardedHop<'_>]) -> ForwardedClient {
        let mut report = ForwardedClient::default();
        for (at, hop) in hops.iter().enumerate().rev().take(HOPS_MAX) {
            let address = hop.address.and_then(forwarded_headers::address);
            // The connection proves the last entry, whatever address it has; no entry before an
            // unreadable one is proven.
            if address.is_none() && at + 1 < hops.len() {
                break;
            }
            report.scheme = hop.scheme.and_then(scheme);
            report.host = hop.host.and_then(host);
            let Some(address) = address else { break };
            report.address = Some(address);
            let left = hops[..at].iter().filter_map(|hop| hop.address);
            report.before = left.map(str::to_owned).collect();
            if !self.contain(address) {
                break;
            }
        }
        report
    }
}

/// Where a request comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ClientOrigin {
    pub(crate) address: IpAddr,
    /// The scheme of the address that the client uses.
    pub(crate) scheme: Scheme,
}

/// What trusted proxies report. `None`: they do not say.
#[derive(Debug, Default)]
struct ForwardedClient {
    address: Option<IpAddr>,
    /// The unproven addresses left of the client's.
    before: Vec<String>,
    scheme: Option<Scheme>,
    host: Option<HeaderValue>,
}

impl ForwardedClient {
    fn write(self, client: ClientOrigin, headers: &mut HeaderMap) {
        let one_host = headers.get_all(header::HOST).iter().count() == 1;
        if let Some(host) = self.host.filter(|_| one_host) {
            headers.insert(header::HOST, host);
        }
        forwarded_headers::ALL.iter().for_each(|name| drop(headers.remove(name)));
        if let Ok(before) = HeaderValue::try_from(self.before.join(", "))
            && !before.is_empty()
        {
            headers.insert(forwarded_headers::X_FOR, before);
        }
        let scheme = HeaderValue::from_static(client.scheme.name());
        headers.insert(forwarded_headers::X_PROTO, scheme);
    }
}

/// A WebSocket has the scheme of the page that it belongs to.
fn scheme(text: &str) -> Option<Scheme> {
    match text.to_ascii_lowercase().as_str() {
        "https" | "wss" => Some(Scheme::Https),
        "http" | "ws" => Some(Scheme::Http),
        _ => None,
    }
}

fn host(text: &str) -> Option<HeaderValue> {
    let plain = text.len() <= HOST_BYTES_MAX && !text.contains('@');
    text.parse::<Authority>().ok().filter(|_| plain)?;
    HeaderValue::from_str(text).ok()
}

#[cfg(test)]
#[path = "trusted_proxies_test.rs"]
mod tests;
