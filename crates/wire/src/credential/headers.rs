//! Which request headers may receive a credential. Both sides use this table: the server when it
//! checks a request, and the egress proxy when it rewrites headers.

/// How credentials may use a request header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeaderRole {
    /// The header controls how the request is parsed or routed, or belongs to one hop. It never
    /// receives a credential.
    Framing,
    /// Servers often repeat the header in their answers, where the sandbox could read the value. A
    /// placeholder in it is replaced only by a credential that names this header.
    Echoed,
    /// A header that a credential may set.
    Free,
}

/// See [`HeaderRole::Framing`]. The three headers of the WebSocket handshake are in the list
/// because a server answers `Sec-WebSocket-Key` with a hash of its value, and because changed
/// versions or extensions alter how the following bytes are parsed.
const FRAMING: [&str; 16] = [
    "connection",
    "content-length",
    "expect",
    "host",
    "http2-settings",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "sec-websocket-extensions",
    "sec-websocket-key",
    "sec-websocket-version",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// See [`HeaderRole::Echoed`]. CORS repeats `Origin`, redirects are built from `Referer` and proxy
/// headers, and servers return request ids and trace ids.
const ECHOED: [&str; 16] = [
    "accept",
    "baggage",
    "correlation-id",
    "forwarded",
    "origin",
    "prefer",
    "range",
    "referer",
    "request-id",
    "traceparent",
    "tracestate",
    "via",
    "x-correlation-id",
    "x-original-url",
    "x-request-id",
    "x-rewrite-url",
];

/// The same for prefixes: negotiation (`Accept-Language` returns as `Content-Language`), preflights
/// (`Access-Control-Request-Headers` as `-Allow-Headers`), descriptions of the body, validators
/// (`If-None-Match` as `ETag`), headers of browsers and WebSocket clients (`Sec-WebSocket-Protocol`
/// as the chosen protocol), and headers that contain the address for redirects.
const ECHOED_PREFIXES: [&str; 8] = [
    "accept-",
    "access-control-",
    "content-",
    "if-",
    "sec-",
    "x-amzn-trace-",
    "x-b3-",
    "x-forwarded-",
];

/// The role of a header, by its name in any case.
#[must_use]
pub fn role(name: &str) -> HeaderRole {
    let name = name.to_ascii_lowercase();
    let one_of = |list: &[&str]| list.contains(&name.as_str());
    if one_of(&FRAMING) {
        HeaderRole::Framing
    } else if one_of(&ECHOED) || ECHOED_PREFIXES.iter().any(|it| name.starts_with(it)) {
        HeaderRole::Echoed
    } else {
        HeaderRole::Free
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Promises: R11.
    #[test]
    fn headers_of_credentials_are_free_and_those_that_servers_repeat_are_not() {
        for name in ["Authorization", "Cookie", "X-Api-Key", "PRIVATE-TOKEN", "x-goog-api-key"] {
            assert_eq!(role(name), HeaderRole::Free, "{name}");
        }
        for name in ["Origin", "Sec-WebSocket-Protocol", "If-None-Match", "X-Forwarded-Host"] {
            assert_eq!(role(name), HeaderRole::Echoed, "{name}");
        }
        for name in ["Host", "UPGRADE", "Connection", "TE", "Trailer", "Sec-WebSocket-Key"] {
            assert_eq!(role(name), HeaderRole::Framing, "{name}");
        }
    }
}
