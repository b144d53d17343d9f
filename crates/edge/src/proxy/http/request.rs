//! What a request asks for, and what of it is not handed on.

use crate::proxy::connection::Said;
use hyper::body::Incoming;
use hyper::header::{
    CONNECTION, CONTENT_LENGTH, EXPECT, HOST, HeaderMap, HeaderName, HeaderValue, TE,
    TRANSFER_ENCODING, UPGRADE,
};
use hyper::http::uri::Authority;
use hyper::{Method, Request, Response, Uri};
use isolet_wire::network::{BAD_REQUEST, host};
use std::net::Ipv4Addr;

/// Between two neighbours only, as are those that `Connection` names.
const HOPS: [&str; 5] = [
    "keep-alive",
    "proxy-connection",
    "proxy-authorization",
    "http2-settings",
    "proxy-authenticate",
];
/// Methods whose answer is the request, with all of its headers. Some servers know them in any
/// case.
const REPEATING: [&str; 2] = ["trace", "track"];
/// Headers by which a request says that its method is another one.
const METHOD_HEADERS: [&str; 3] = ["x-http-method", "x-http-method-override", "x-method-override"];
/// What a connection must not become: the requests in it would not be seen.
const NO_UPGRADE: [&str; 3] = ["h2c", "http", "tls"];

/// The host that a request asks for.
///
/// # Errors
/// Why it is refused: `other host`, `no name`, or `bad request`.
pub(crate) fn wanted<B>(request: &Request<B>) -> Result<Said, &'static str> {
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
        (Some(target), _) => said(target),
        (None, Some(named)) => said(&named),
        (None, None) => Ok(Said::Nameless),
    }
}

/// Whether the host may answer with the request itself.
pub(crate) fn repeats<B>(request: &Request<B>) -> bool {
    let one_of = |method: &str| REPEATING.iter().any(|it| it.eq_ignore_ascii_case(method.trim()));
    let mut other = METHOD_HEADERS.iter().flat_map(|name| request.headers().get_all(*name));
    one_of(request.method().as_str()) || other.any(|it| it.to_str().is_ok_and(one_of))
}

/// Whether it asks for another protocol, as far as that is handed on.
pub(crate) fn upgrades<B>(request: &Request<B>) -> bool {
    request.headers().contains_key(UPGRADE)
}

/// Has the neighbour end the connection after this.
pub(crate) fn close(headers: &mut HeaderMap) {
    headers.insert(CONNECTION, HeaderValue::from_static("close"));
}

fn said(authority: &Authority) -> Result<Said, &'static str> {
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
        return Ok(Said::Address(address));
    }
    host(authority.host()).map(Said::Name).ok_or("no name")
}

/// Takes out what is not handed on, and asks for a path alone.
pub(crate) fn clean(request: &mut Request<Incoming>) {
    let path = request.uri().path_and_query().cloned();
    if let (Some(authority), Some(path)) = (request.uri().authority().cloned(), path) {
        if let Ok(value) = authority.as_str().parse() {
            request.headers_mut().entry(HOST).or_insert(value);
        }
        *request.uri_mut() = Uri::from(path);
    }
    let upgrade = upgrade(request.headers());
    hops(request.headers_mut());
    let headers = request.headers_mut();
    headers.remove(TE);
    // We have asked for the body ourselves.
    headers.remove(EXPECT);
    headers.remove(UPGRADE);
    if let Some(upgrade) = upgrade {
        headers.insert(UPGRADE, upgrade);
        headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    }
}

/// Takes out what is not handed back.
pub(crate) fn clean_answer<B>(response: &mut Response<B>) {
    hops(response.headers_mut());
    response.headers_mut().remove(UPGRADE);
}

/// To what a connection may be upgraded.
fn upgrade(headers: &HeaderMap) -> Option<HeaderValue> {
    let named = headers.get_all(CONNECTION).iter().filter_map(|it| it.to_str().ok());
    named.flat_map(|it| it.split(',')).find(|it| it.trim().eq_ignore_ascii_case("upgrade"))?;
    let mut all = headers.get_all(UPGRADE).iter();
    let (one, None) = (all.next()?, all.next()) else { return None };
    let mut kinds = one.to_str().ok()?.split(',').map(|it| it.trim().to_ascii_lowercase());
    let bad = kinds.any(|kind| {
        let name = kind.split('/').next().unwrap_or_default();
        NO_UPGRADE.contains(&name)
    });
    (!bad).then(|| one.clone())
}

fn hops(headers: &mut HeaderMap) {
    let listed = headers.get_all(CONNECTION).iter().filter_map(|it| it.to_str().ok());
    let listed = listed.flat_map(|it| it.split(','));
    let listed: Vec<_> = listed.filter_map(|it| it.trim().parse::<HeaderName>().ok()).collect();
    for name in listed {
        // These say how long the body is, and where it goes: nobody may have them forgotten.
        if ![HOST, CONTENT_LENGTH, TRANSFER_ENCODING].contains(&name) {
            headers.remove(name);
        }
    }
    headers.remove(CONNECTION);
    for name in HOPS {
        headers.remove(name);
    }
}
