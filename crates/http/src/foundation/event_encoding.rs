//! Whether a client accepts server-sent events, and how output is encoded in them.

use axum::http::{HeaderMap, HeaderValue, header};

/// How output is encoded in events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EventEncoding {
    /// `data`: text in which U+FFFD replaces invalid UTF-8.
    Text,
    /// `data_b64`: exact bytes; requested by `Accept: text/event-stream; encoding=base64`.
    Base64,
    /// The format of Cloudflare's bridge.
    Bridge,
}

/// Returns the encoding when the client accepts server-sent events.
pub(crate) fn accepts_event_stream(headers: &HeaderMap) -> Option<EventEncoding> {
    let accept = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or("");
    accept.split(',').find_map(|kind| {
        let mut parts = kind.split(';').map(str::trim);
        let events = parts.next()?.eq_ignore_ascii_case("text/event-stream");
        let exact = parts.any(|part| part.eq_ignore_ascii_case("encoding=base64"));
        events.then_some(if exact { EventEncoding::Base64 } else { EventEncoding::Text })
    })
}

/// Whether an answer is a stream of events.
pub(crate) fn is_event_stream(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).map(HeaderValue::as_bytes);
    kind.is_some_and(|kind| kind.starts_with(b"text/event-stream"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_sent_to_clients_that_accept_them() {
        let said = |accept: &'static str| {
            accepts_event_stream(&HeaderMap::from_iter([(
                header::ACCEPT,
                HeaderValue::from_static(accept),
            )]))
        };
        assert_eq!(said("text/event-stream"), Some(EventEncoding::Text));
        assert_eq!(said("application/json, text/event-stream;q=1"), Some(EventEncoding::Text));
        assert_eq!(said("text/event-stream; encoding=base64"), Some(EventEncoding::Base64));
        assert_eq!(said("application/json"), None);
        assert_eq!(said("*/*"), None);
    }
}
