//! Checks that a request is meant for this server, by its `Host` and `Origin` headers.
//!
//! A page of another site can make a browser send requests to this server, either under a host name
//! that now resolves to loopback (then `Host` is wrong) or from its own origin (then `Origin` is
//! wrong).

use crate::foundation::error::ApiError;
use crate::foundation::extensions::Scheme;
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use std::net::{IpAddr, SocketAddr};

/// The names of this server besides loopback and the address that a connection came to.
#[derive(Debug, Clone, Default)]
pub struct ServerNames {
    /// `name` (any port) or `name:port`.
    pub hosts: Vec<String>,
    /// Origins whose pages may call this server: `https://console.example`.
    pub origins: Vec<String>,
}

/// Where a request arrived.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Arrival {
    /// The server's side of the connection.
    pub(crate) local: SocketAddr,
    pub(crate) scheme: Scheme,
}

/// Checks `Host`, `Origin`, and the request target when it names a host.
pub(crate) fn check(
    names: &ServerNames,
    at: Arrival,
    uri: &Uri,
    headers: &HeaderMap,
) -> Result<(), ApiError> {
    let host = host(names, at, uri, headers)?;
    page(names, at.scheme, &host, headers)
}

/// Checks `Host`, and the request target when it names a host.
pub(crate) fn host(
    names: &ServerNames,
    at: Arrival,
    uri: &Uri,
    headers: &HeaderMap,
) -> Result<Authority, ApiError> {
    let Some(host) = single_host(headers) else {
        return Err(ApiError::bad_request("the request must have exactly one Host header"));
    };
    let host = authority(host).filter(|host| is_ours(names, at, host)).ok_or_else(misdirected)?;
    let other = |target: &Authority| target.as_str().contains('@') || !is_ours(names, at, target);
    if uri.authority().is_some_and(other) {
        return Err(misdirected());
    }
    Ok(host)
}

/// The `Host` header; `None` unless the request has exactly one.
pub(crate) fn single_host(headers: &HeaderMap) -> Option<&HeaderValue> {
    let mut hosts = headers.get_all(header::HOST).iter();
    let host = hosts.next()?;
    hosts.next().is_none().then_some(host)
}

/// Refuses a request that a page of another origin sent, according to its `Origin` header.
fn page(
    names: &ServerNames,
    scheme: Scheme,
    host: &Authority,
    headers: &HeaderMap,
) -> Result<(), ApiError> {
    let mut origins = headers.get_all(header::ORIGIN).iter();
    match (origins.next(), origins.next()) {
        (None, _) => Ok(()),
        (Some(origin), None) if may_call(names, scheme, host, origin) => Ok(()),
        _ => Err(bad_origin()),
    }
}

/// 403: pages of this origin may not call this server.
pub(crate) fn bad_origin() -> ApiError {
    ApiError::new(
        StatusCode::FORBIDDEN,
        "bad_origin",
        "pages of this origin may not call this server",
        "the operator of this server can add the origin to `origins` in the configuration",
    )
}

/// 421: the request is meant for another server.
pub(crate) fn misdirected() -> ApiError {
    ApiError::new(
        StatusCode::MISDIRECTED_REQUEST,
        "bad_host",
        "the Host header does not name this server",
        "use the address of this server, or ask its operator to add the host to `hosts` in the configuration",
    )
}

/// Parses a `Host` header.
pub(crate) fn authority(value: &HeaderValue) -> Option<Authority> {
    let text = value.to_str().ok()?;
    // An authority may contain user information; a `Host` header may not.
    if text.contains('@') { None } else { text.parse().ok() }
}

fn is_ours(names: &ServerNames, at: Arrival, host: &Authority) -> bool {
    let name = host.host();
    let named = names
        .hosts
        .iter()
        .any(|ours| ours.eq_ignore_ascii_case(name) || ours.eq_ignore_ascii_case(host.as_str()));
    if named {
        return true;
    }
    // Without a port, `Host` means the scheme's default port.
    if host.port_u16().unwrap_or(at.scheme.default_port()) != at.local.port() {
        return false;
    }
    let bare = name.trim_start_matches('[').trim_end_matches(']');
    match bare.parse::<IpAddr>() {
        Ok(ip) => ip.is_loopback() || ip.to_canonical() == at.local.ip().to_canonical(),
        Err(_) => bare.eq_ignore_ascii_case("localhost"),
    }
}

fn may_call(names: &ServerNames, scheme: Scheme, host: &Authority, origin: &HeaderValue) -> bool {
    let Ok(origin) = origin.to_str() else { return false };
    if names.origins.iter().any(|known| known.eq_ignore_ascii_case(origin)) {
        return true;
    }
    is_of_host(origin, scheme, host.as_str())
}

/// Whether an `Origin` is that of the host's own pages. A request without TLS may come through a
/// proxy that has TLS and is not a trusted one.
pub(crate) fn is_of_host(origin: &str, scheme: Scheme, host: &str) -> bool {
    let own = match (origin.strip_prefix("https://"), scheme) {
        (Some(own), _) => Some(own),
        (None, Scheme::Http) => origin.strip_prefix("http://"),
        (None, Scheme::Https) => None,
    };
    own.is_some_and(|own| own.eq_ignore_ascii_case(host))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at() -> Arrival {
        Arrival { local: "127.0.0.1:7300".parse().unwrap(), scheme: Scheme::Http }
    }

    #[test]
    fn pages_without_tls_may_not_call_a_server_with_tls() {
        let of_host = |origin, scheme| is_of_host(origin, scheme, "box.example");
        assert!(of_host("https://box.example", Scheme::Https));
        assert!(!of_host("http://box.example", Scheme::Https));
        assert!(of_host("http://box.example", Scheme::Http));
        assert!(of_host("https://box.example", Scheme::Http), "an unknown proxy may have TLS");
    }

    #[test]
    fn a_host_without_a_port_means_the_port_of_its_scheme() {
        let names = ServerNames::default();
        let headers = HeaderMap::from_iter([(header::HOST, HeaderValue::from_static("localhost"))]);
        let found = |port: u16, scheme| {
            let at = Arrival { local: SocketAddr::from(([127, 0, 0, 1], port)), scheme };
            check(&names, at, &Uri::from_static("/"), &headers).is_ok()
        };
        assert!(found(443, Scheme::Https) && found(80, Scheme::Http));
        assert!(!found(80, Scheme::Https) && !found(443, Scheme::Http));
    }

    fn said(host: &str, origin: Option<&str>) -> Result<(), u16> {
        let names = ServerNames {
            hosts: vec!["box.example".into(), "tunnel.example:443".into()],
            origins: vec!["https://console.example".into()],
        };
        let mut headers = HeaderMap::new();
        headers.insert(header::HOST, host.parse().unwrap());
        if let Some(origin) = origin {
            headers.insert(header::ORIGIN, origin.parse().unwrap());
        }
        check(&names, at(), &Uri::from_static("/"), &headers).map_err(|f| f.status().as_u16())
    }

    #[test]
    fn only_our_names_are_answered() {
        let ours = [
            "127.0.0.1:7300",
            "localhost:7300",
            "LOCALHOST:7300",
            "[::1]:7300",
            "127.9.9.9:7300",
            "box.example",
            "box.example:9",
            "tunnel.example:443",
        ];
        for host in ours {
            assert_eq!(said(host, None), Ok(()), "{host}");
        }
        let others = [
            "attacker.example",
            "attacker.example:7300",
            "127.0.0.1",
            "127.0.0.1:80",
            "10.0.0.1:7300",
            "localhost.attacker.example:7300",
            "box.example.evil",
            "tunnel.example",
            "user@localhost:7300",
            "",
        ];
        for host in others {
            assert_eq!(said(host, None), Err(421), "{host}");
        }
    }

    #[test]
    fn only_our_pages_may_call() {
        for origin in ["http://localhost:7300", "https://console.example"] {
            assert_eq!(said("localhost:7300", Some(origin)), Ok(()), "{origin}");
        }
        let others = [
            "null",
            "https://evil.example",
            "https://console.example.evil",
            "http://localhost:7301",
            "http://127.0.0.1:7300",
            "http://localhost",
            "https://console.example:444",
            "",
        ];
        for origin in others {
            assert_eq!(said("localhost:7300", Some(origin)), Err(403), "{origin}");
        }
    }

    #[test]
    fn a_request_names_its_host_once() {
        let names = ServerNames::default();
        let local = at();
        let mut headers = HeaderMap::new();
        assert!(check(&names, local, &Uri::from_static("/"), &headers).is_err());
        headers.append(header::HOST, HeaderValue::from_static("localhost:7300"));
        assert!(check(&names, local, &Uri::from_static("/"), &headers).is_ok());
        assert!(check(&names, local, &Uri::from_static("http://evil.example/"), &headers).is_err());
        headers.append(header::HOST, HeaderValue::from_static("localhost:7300"));
        assert!(check(&names, local, &Uri::from_static("/"), &headers).is_err());
    }
}
