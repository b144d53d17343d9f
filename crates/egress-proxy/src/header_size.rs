//! How long the head of a request may be, and how long it is on the wire.

use hyper::HeaderMap;
use hyper::header::{HeaderName, HeaderValue};

/// The longest head of a request that is read, in bytes.
pub(crate) const HEAD_BYTES_MAX: usize = 64 * 1024;
/// Headers of one request or response.
pub(crate) const HEADERS_MAX: usize = 128;
/// Bytes of a header on the wire beside its name and value: `: ` and the end of the line.
const HEADER_EXTRA_BYTES: usize = 4;

/// Bytes of these headers on the wire.
pub(crate) fn header_bytes(headers: &HeaderMap) -> usize {
    let line = |(name, value): (&HeaderName, &HeaderValue)| {
        name.as_str().len() + value.len() + HEADER_EXTRA_BYTES
    };
    headers.iter().map(line).sum()
}
