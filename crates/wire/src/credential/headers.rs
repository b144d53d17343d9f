//! Which request headers a credential may be put into. One table for both sides: the server, which
//! checks what callers ask for, and the egress proxy, which rewrites the requests.

/// What may happen to a request header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeaderRole {
    /// It says how the request is read or to whom it goes, or belongs to one hop: no credential
    /// is ever put into it.
    Framing,
    /// Servers often repeat it in their answers, where the sandbox would read the value. A
    /// placeholder is replaced there only by a credential that names this header.
    Echoed,
    /// Any other header.
    Free,
}

/// See [`HeaderRole::Framing`]. The three of the WebSocket handshake are here since a changed
/// `Sec-WebSocket-Key` is answered with a hash of the value, and changed versions or extensions
/// change how the bytes that follow are read.
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

/// See [`HeaderRole::Echoed`]: CORS repeats `Origin`, redirects are made of `Referer` and of what
/// proxies say about the address, and ids of requests and traces come back for correlation.
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

/// The same for families of headers: negotiation (`Accept-Language` comes back as
/// `Content-Language`), preflights (`Access-Control-Request-Headers` as `-Allow-Headers`),
/// descriptions of the body, validators (`If-None-Match` as `ETag`), what browsers and WebSocket
/// clients say (`Sec-WebSocket-Protocol` as the protocol that was chosen), and what names the
/// address for redirects.
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

/// The role of the header with this name, in whatever case.
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
