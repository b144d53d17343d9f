//! Rewrites the heads of forwarded requests and responses.
//!
//! Neither side trusts the other: keys and cookies of this server never reach the program, and
//! under this server's own origin no response may turn the program's page into one of the server's
//! pages.

use crate::auth::tickets;
use crate::auth::{ACCESS_TOKEN, API_KEY, TRAFFIC_TOKEN};
use crate::foundation::error::ApiError;
use crate::foundation::extensions::{Peer, Scheme};
use crate::proxy::location::{self, Asked};
use crate::proxy::target::{COOKIE, TOKEN, Target, UrlKind};
use axum::http::uri::PathAndQuery;
use axum::http::{
    HeaderMap, HeaderName, HeaderValue, Method, Uri, Version, header, request, response,
};

/// The policy for a program's page under this server's origin: its scripts run with an opaque
/// origin.
const SANDBOX_POLICY: HeaderValue = HeaderValue::from_static(
    "sandbox allow-downloads allow-forms allow-modals allow-popups allow-scripts",
);
/// Hop-by-hop headers, which are never forwarded.
const HOP_BY_HOP: [HeaderName; 6] = [
    header::CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    header::TE,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];
/// Headers in which clients send credentials of this server. Where a link opens a host name of its own,
/// no client needs them, and programs may use the same names for credentials of theirs.
const CREDENTIALS: [HeaderName; 3] = [
    header::AUTHORIZATION,
    HeaderName::from_static(API_KEY),
    HeaderName::from_static(ACCESS_TOKEN),
];
/// Headers that are not for the program.
const STRIPPED_FROM_REQUESTS: [HeaderName; 4] = [
    HeaderName::from_static(TRAFFIC_TOKEN),
    header::PROXY_AUTHORIZATION,
    header::FORWARDED,
    // This server answers it.
    header::EXPECT,
];
/// Headers that a program may not set for an origin that is not its own.
const STRIPPED_FROM_RESPONSES: [HeaderName; 8] = [
    header::SET_COOKIE,
    header::STRICT_TRANSPORT_SECURITY,
    HeaderName::from_static("public-key-pins"),
    HeaderName::from_static("clear-site-data"),
    HeaderName::from_static("service-worker-allowed"),
    HeaderName::from_static("alt-svc"),
    HeaderName::from_static("nel"),
    HeaderName::from_static("report-to"),
];
const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
pub(super) const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const FORWARDED_PREFIX: HeaderName = HeaderName::from_static("x-forwarded-prefix");
/// The most names in a `Connection` header.
const NAMED_MAX: usize = 32;

/// Whether a request is a WebSocket handshake.
pub(crate) fn upgrades(method: &Method, headers: &HeaderMap) -> bool {
    method == Method::GET
        && words(headers, &header::UPGRADE).any(|word| word.eq_ignore_ascii_case("websocket"))
}

fn words<'a>(headers: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a str> {
    let values = headers.get_all(name).into_iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',').map(str::trim).filter(|word| !word.is_empty()))
}

/// Whether the client reads trailers.
pub(crate) fn accepts_trailers(headers: &HeaderMap) -> bool {
    words(headers, &header::TE).any(|word| word.eq_ignore_ascii_case("trailers"))
}

/// Removes hop-by-hop headers, including those that `Connection` lists.
pub(crate) fn remove_hop_by_hop(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = words(headers, &header::CONNECTION)
        .take(NAMED_MAX)
        .filter_map(|word| word.parse().ok())
        // The length of a message is never hop-by-hop.
        .filter(|name| *name != header::CONTENT_LENGTH && *name != header::HOST)
        .collect();
    named.iter().chain(&HOP_BY_HOP).for_each(|name| drop(headers.remove(name)));
}

/// The request as the program receives it.
pub(crate) fn rewrite_request(
    mut parts: request::Parts,
    target: &Target,
    upgrade: bool,
) -> Result<request::Parts, ApiError> {
    let peer = parts.extensions.get::<Peer>().copied();
    let scheme = Scheme::of(&parts.extensions);
    let trailers = accepts_trailers(&parts.headers);
    let headers = &mut parts.headers;
    let named = headers.get(header::HOST).cloned();
    remove_hop_by_hop(headers);
    STRIPPED_FROM_REQUESTS.iter().for_each(|name| drop(headers.remove(name)));
    if !matches!(target.entry, UrlKind::Host { keep_authorization: true, .. }) {
        CREDENTIALS.iter().for_each(|name| drop(headers.remove(name)));
    }
    match &target.entry {
        UrlKind::Host { .. } => remove_port_cookie(headers),
        UrlKind::Path(_) | UrlKind::Link(_) => {
            // Cookies belong to this origin and to all other ports of the host; a referrer may
            // contain a signed link.
            headers.remove(header::COOKIE);
            headers.remove(header::REFERER);
        }
    }
    add_forwarded_headers(headers, peer, scheme, named, target)?;
    if trailers {
        headers.insert(header::TE, HeaderValue::from_static("trailers"));
    }
    if upgrade {
        headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
        headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
    }
    parts.uri = rewrite_uri(&parts.uri, target)?;
    parts.version = Version::HTTP_11;
    parts.extensions.clear();
    Ok(parts)
}

/// Sets `X-Forwarded-*`, and rewrites `Host` and `Origin` to names that the program knows itself
/// by: programs that check them accept no others.
fn add_forwarded_headers(
    headers: &mut HeaderMap,
    peer: Option<Peer>,
    scheme: Scheme,
    named: Option<HeaderValue>,
    target: &Target,
) -> Result<(), ApiError> {
    let value =
        |text: String| HeaderValue::try_from(text).map_err(|_| ApiError::bad_request("a header"));
    let own = format!("localhost:{}", target.port);
    let strange = matches!(target.entry, UrlKind::Host { own_page: false, .. });
    if headers.contains_key(header::ORIGIN) && !strange {
        headers.insert(header::ORIGIN, value(format!("http://{own}"))?);
    }
    headers.insert(header::HOST, value(own)?);
    if let Some(Peer(address)) = peer {
        let before: Vec<&str> = words(headers, &FORWARDED_FOR).collect();
        let all = before.iter().map(|one| (*one).to_owned()).chain([address.to_string()]);
        headers.insert(FORWARDED_FOR, value(all.collect::<Vec<_>>().join(", "))?);
    }
    if let Some(named) = named {
        headers.insert(FORWARDED_HOST, named);
    }
    let reported = headers.get(&FORWARDED_PROTO).is_some_and(|proto| proto == "https");
    let scheme = if reported { Scheme::Https } else { scheme };
    headers.insert(FORWARDED_PROTO, HeaderValue::from_static(scheme.name()));
    headers.remove(FORWARDED_PREFIX);
    if let UrlKind::Path(prefix) = &target.entry {
        headers.insert(FORWARDED_PREFIX, value(prefix.clone())?);
    }
    Ok(())
}

/// The program's path and query, unchanged except for what was meant for this server.
fn rewrite_uri(uri: &Uri, target: &Target) -> Result<Uri, ApiError> {
    let path = uri.path().strip_prefix(target.entry.prefix()).unwrap_or(uri.path());
    let mut text = if path.is_empty() { "/".to_owned() } else { path.to_owned() };
    if let Some(query) = uri.query() {
        let kept = match target.entry {
            UrlKind::Path(_) => query_without(query, tickets::QUERY_NAME),
            UrlKind::Link(_) => query.to_owned(),
            UrlKind::Host { .. } => query_without(query, TOKEN),
        };
        if !kept.is_empty() {
            text.push('?');
            text.push_str(&kept);
        }
    }
    let path = PathAndQuery::try_from(text)
        .map_err(|_| ApiError::bad_request("the path is not valid for a request"))?;
    Ok(Uri::from(path))
}

/// Removes a parameter from a query.
pub(crate) fn query_without(query: &str, name: &str) -> String {
    let other = |pair: &&str| pair.split('=').next() != Some(name);
    query.split('&').filter(other).collect::<Vec<_>>().join("&")
}

/// Removes the cookie that opens this host; the program's own cookies are forwarded.
fn remove_port_cookie(headers: &mut HeaderMap) {
    let all: Vec<HeaderValue> = headers.get_all(header::COOKIE).iter().cloned().collect();
    headers.remove(header::COOKIE);
    let texts = all.iter().filter_map(|value| value.to_str().ok());
    let pairs = texts.flat_map(|text| text.split(';')).map(str::trim);
    let kept = pairs.filter(|pair| !pair.is_empty() && pair.split('=').next() != Some(COOKIE));
    let kept = kept.collect::<Vec<_>>().join("; ");
    if !kept.is_empty()
        && let Ok(kept) = HeaderValue::try_from(kept)
    {
        headers.insert(header::COOKIE, kept);
    }
}

/// Rewrites the response for the client; the error says why it cannot be forwarded.
pub(super) fn rewrite_response(
    head: &mut response::Parts,
    target: &Target,
    asked: &Asked,
) -> Result<(), &'static str> {
    let headers = &mut head.headers;
    let both = headers.contains_key(header::TRANSFER_ENCODING)
        && headers.contains_key(header::CONTENT_LENGTH);
    if both {
        return Err("it has two different lengths");
    }
    head.version = Version::HTTP_11;
    let switched = head.status == axum::http::StatusCode::SWITCHING_PROTOCOLS;
    if switched && !words(headers, &header::UPGRADE).any(|it| it.eq_ignore_ascii_case("websocket"))
    {
        return Err("it switched to a protocol other than WebSocket");
    }
    merge_content_length(headers);
    remove_hop_by_hop(headers);
    if switched {
        headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
    }
    location::rewrite(headers, target, asked);
    match &target.entry {
        UrlKind::Host { .. } => confine_cookies(headers),
        UrlKind::Path(_) | UrlKind::Link(_) => {
            STRIPPED_FROM_RESPONSES.iter().for_each(|name| drop(headers.remove(name)));
            // In addition to the program's own policies: all of them apply together.
            headers.append(header::CONTENT_SECURITY_POLICY, SANDBOX_POLICY);
            headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
        }
    }
    if matches!(target.entry, UrlKind::Link(_)) {
        // A page below a link has an opaque origin, and every client that knows the URL may use it.
        headers.remove(header::ACCESS_CONTROL_ALLOW_CREDENTIALS);
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
    }
    Ok(())
}

/// Merges repeated equal lengths. The parser has refused different ones.
fn merge_content_length(headers: &mut HeaderMap) {
    let length = words(headers, &header::CONTENT_LENGTH).next().map(HeaderValue::from_str);
    if let Some(Ok(length)) = length {
        headers.insert(header::CONTENT_LENGTH, length);
    }
}

/// Removes `Domain` from the program's cookies, so that only its own host receives them.
fn confine_cookies(headers: &mut HeaderMap) {
    let all: Vec<HeaderValue> = headers.get_all(header::SET_COOKIE).iter().cloned().collect();
    headers.remove(header::SET_COOKIE);
    for cookie in all {
        // An unreadable cookie cannot be restricted to its host.
        let Ok(text) = cookie.to_str() else { continue };
        let name = text.split(['=', ';']).next().unwrap_or_default().trim();
        if name.eq_ignore_ascii_case(COOKIE) {
            continue;
        }
        let wide = |part: &&str| {
            let name = part.split('=').next().unwrap_or_default();
            !name.trim().eq_ignore_ascii_case("domain")
        };
        let kept: Vec<&str> = text.split(';').filter(wide).collect();
        if let Ok(kept) = HeaderValue::try_from(kept.join(";")) {
            headers.append(header::SET_COOKIE, kept);
        }
    }
}
