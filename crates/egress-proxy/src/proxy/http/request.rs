//! The host that a request asks for, and the headers that are not forwarded.

use crate::policy::Destination;
use hyper::body::Incoming;
use hyper::header::{
    CONNECTION, CONTENT_LENGTH, EXPECT, HOST, HeaderMap, HeaderName, HeaderValue, TE,
    TRANSFER_ENCODING, UPGRADE,
};
use hyper::http::uri::Authority;
use hyper::{Method, Request, Response, Uri};
use isolet_wire::network::{BAD_REQUEST, host};
use std::net::Ipv4Addr;

/// Hop-by-hop headers, in addition to those that `Connection` lists.
const HOP_HEADERS: [&str; 5] = [
    "keep-alive",
    "proxy-connection",
    "proxy-authorization",
    "http2-settings",
    "proxy-authenticate",
];
/// Methods whose response contains the request with all headers. Some servers accept them in any
/// case.
const ECHOING_METHODS: [&str; 2] = ["trace", "track"];
/// Headers that override the method.
const METHOD_HEADERS: [&str; 3] = ["x-http-method", "x-http-method-override", "x-method-override"];
/// Protocols that a connection must not be upgraded to: their requests would not be checked.
const DENIED_UPGRADES: [&str; 3] = ["h2c", "http", "tls"];

/// The host that a request asks for.
///
/// # Errors
/// The reason to deny it: `other host`, `no name`, or `bad request`.
pub(crate) fn destination<B>(request: &Request<B>) -> Result<Destination, &'static str> {
    if request.method() == Method::CONNECT {
        return Err(BAD_REQUEST);
    }
    let headers = request.headers();
    let lengths = headers.get_all(CONTENT_LENGTH).iter().count();
    let codings = headers.get_all(TRANSFER_ENCODING).iter().collect::<Vec<_>>();
    let chunked = |it: &[u8]| it.eq_ignore_ascii_case(b"chunked");
    let coded = codings.len() > 1 || codings.first().is_some_and(|it| !chunked(it.as_bytes()));
    if lengths + codings.len() > 1 || coded {
        return Err(BAD_REQUEST);
    }
    let mut hosts = headers.get_all(HOST).iter();
    let named = match (hosts.next(), hosts.next()) {
        (None, _) => None,
        (Some(_), Some(_)) => return Err("other host"),
        (Some(one), None) => {
            let text = one.to_str().map_err(|_| "no name")?;
            Some(text.parse::<Authority>().map_err(|_| "no name")?)
        }
    };
    let target = request.uri().authority();
    if target.is_some() && request.uri().scheme_str() != Some("http") {
        return Err(BAD_REQUEST);
    }
    match (target, named) {
        (Some(target), Some(named)) if *target != named => Err("other host"),
        (Some(target), _) => parse_authority(target),
        (None, Some(named)) => parse_authority(&named),
        (None, None) => Ok(Destination::NoName),
    }
}

/// Whether the response may contain the request.
pub(crate) fn is_echoed<B>(request: &Request<B>) -> bool {
    let one_of =
        |method: &str| ECHOING_METHODS.iter().any(|it| it.eq_ignore_ascii_case(method.trim()));
    let mut other = METHOD_HEADERS.iter().flat_map(|name| request.headers().get_all(*name));
    one_of(request.method().as_str()) || other.any(|it| it.to_str().is_ok_and(one_of))
}

/// Whether it asks for an upgrade; call this after [`strip_hop_headers`].
pub(crate) fn is_upgrade<B>(request: &Request<B>) -> bool {
    request.headers().contains_key(UPGRADE)
}

/// Asks the peer to close the connection after this message.
pub(crate) fn set_connection_close(headers: &mut HeaderMap) {
    headers.insert(CONNECTION, HeaderValue::from_static("close"));
}

fn parse_authority(authority: &Authority) -> Result<Destination, &'static str> {
    if authority.as_str().contains('@') {
        return Err("no name");
    }
    let behind = authority.as_str().strip_prefix(authority.host()).unwrap_or_default();
    let port = behind.strip_prefix(':').unwrap_or_default();
    // Rust's parser also takes a sign.
    let digits = port.bytes().all(|byte| byte.is_ascii_digit());
    if !port.is_empty() && (!digits || port.parse::<u16>().is_err()) {
        return Err(BAD_REQUEST);
    }
    if let Ok(address) = authority.host().parse::<Ipv4Addr>() {
        return Ok(Destination::Address(address));
    }
    host(authority.host()).map(Destination::Name).ok_or("no name")
}

/// Removes the headers of this hop, and rewrites an absolute target to its path.
pub(crate) fn strip_hop_headers(request: &mut Request<Incoming>) {
    let path = request.uri().path_and_query().cloned();
    if let Some(authority) = request.uri().authority().cloned()
        && let Some(path) = path
    {
        if let Ok(value) = authority.as_str().parse() {
            request.headers_mut().entry(HOST).or_insert(value);
        }
        *request.uri_mut() = Uri::from(path);
    }
    let upgrade = allowed_upgrade(request.headers());
    remove_hop_headers(request.headers_mut());
    let headers = request.headers_mut();
    headers.remove(TE);
    // The proxy has answered `Expect: 100-continue` already.
    headers.remove(EXPECT);
    headers.remove(UPGRADE);
    if let Some(upgrade) = upgrade {
        headers.insert(UPGRADE, upgrade);
        headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    }
}

/// Removes the headers of the hop to the host.
pub(crate) fn strip_response_hop_headers<B>(response: &mut Response<B>) {
    remove_hop_headers(response.headers_mut());
    response.headers_mut().remove(UPGRADE);
}

/// The protocol that the connection may be upgraded to.
fn allowed_upgrade(headers: &HeaderMap) -> Option<HeaderValue> {
    let named = headers.get_all(CONNECTION).iter().filter_map(|it| it.to_str().ok());
    named.flat_map(|it| it.split(',')).find(|it| it.trim().eq_ignore_ascii_case("upgrade"))?;
    let mut all = headers.get_all(UPGRADE).iter();
    let one = all.next()?;
    if all.next().is_some() {
        return None;
    }
    let mut kinds = one.to_str().ok()?.split(',').map(|it| it.trim().to_ascii_lowercase());
    let bad = kinds.any(|kind| {
        let name = kind.split('/').next().unwrap_or_default();
        DENIED_UPGRADES.contains(&name)
    });
    (!bad).then(|| one.clone())
}

fn remove_hop_headers(headers: &mut HeaderMap) {
    let listed = headers.get_all(CONNECTION).iter().filter_map(|it| it.to_str().ok());
    let listed = listed.flat_map(|it| it.split(','));
    let listed: Vec<_> = listed.filter_map(|it| it.trim().parse::<HeaderName>().ok()).collect();
    for name in listed {
        // These frame the body and name the host: a `Connection` header must not remove them.
        if ![HOST, CONTENT_LENGTH, TRANSFER_ENCODING].contains(&name) {
            headers.remove(name);
        }
    }
    headers.remove(CONNECTION);
    for name in HOP_HEADERS {
        headers.remove(name);
    }
}
