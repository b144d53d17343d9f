//! Parses `X-Forwarded-*`, and `Forwarded` of RFC 7239.

use axum::http::{HeaderMap, HeaderName, header};
use std::net::{IpAddr, SocketAddr};

pub(super) const X_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
pub(super) const X_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
pub(super) const X_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
/// Every header that reports a client.
pub(super) const ALL: [HeaderName; 4] = [X_FOR, X_HOST, X_PROTO, header::FORWARDED];
/// The longest accepted value of one header, over all its lines, in bytes.
const VALUE_BYTES_MAX: usize = 4096;

/// What one proxy reports about the side that it received the request from.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct ForwardedHop<'a> {
    pub(super) address: Option<&'a str>,
    pub(super) scheme: Option<&'a str>,
    pub(super) host: Option<&'a str>,
}

/// The hops of `X-Forwarded-*`, in the order of the headers; `None` if a header is too long or not
/// ASCII.
///
/// A proxy that appends its address often replaces the two other headers, so these may have fewer
/// entries. They are matched from the right, and the first entry stands for everything before it.
pub(super) fn x_forwarded(headers: &HeaderMap) -> Option<Vec<ForwardedHop<'_>>> {
    let addresses = list(headers, &X_FOR)?;
    let schemes = list(headers, &X_PROTO)?;
    let hosts = list(headers, &X_HOST)?;
    let any = usize::from(!schemes.is_empty() || !hosts.is_empty());
    let count = addresses.len().max(any);
    let hop = |at: usize| {
        let from_right = count - 1 - at;
        ForwardedHop {
            address: addresses.get(at).copied(),
            scheme: matching(&schemes, from_right),
            host: matching(&hosts, from_right),
        }
    };
    Some((0..count).map(hop).collect())
}

fn matching<'a>(list: &[&'a str], from_right: usize) -> Option<&'a str> {
    list.iter().rev().nth(from_right).or(list.first()).copied()
}

/// The comma-separated entries of a header, over all its lines.
fn list<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<Vec<&'a str>> {
    let mut entries = Vec::new();
    for value in values(headers, name)? {
        entries.extend(value.split(',').map(str::trim));
    }
    Some(entries)
}

fn values<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<Vec<&'a str>> {
    let mut all = Vec::new();
    let mut bytes = 0;
    for value in headers.get_all(name) {
        let text = value.to_str().ok()?;
        bytes += text.len();
        all.push(text);
    }
    (bytes <= VALUE_BYTES_MAX).then_some(all)
}

/// The hops of `Forwarded`, in the order of the header; `None` if it is malformed or too long.
pub(super) fn forwarded(headers: &HeaderMap) -> Option<Vec<ForwardedHop<'_>>> {
    let mut hops = Vec::new();
    for value in values(headers, &header::FORWARDED)? {
        for element in split_unquoted(value, ',')? {
            hops.push(element_hop(element)?);
        }
    }
    Some(hops)
}

fn element_hop(element: &str) -> Option<ForwardedHop<'_>> {
    let mut hop = ForwardedHop::default();
    for pair in split_unquoted(element, ';')? {
        if pair.is_empty() {
            continue;
        }
        let (name, value) = pair.split_once('=')?;
        let value = unquoted(value)?;
        let field = match name.to_ascii_lowercase().as_str() {
            "for" => &mut hop.address,
            "proto" => &mut hop.scheme,
            "host" => &mut hop.host,
            _ => continue,
        };
        // A name may occur only once in an element.
        if field.replace(value).is_some() {
            return None;
        }
    }
    Some(hop)
}

/// Splits at a separator outside of quotes; `None` if a quote is open at the end.
fn split_unquoted(text: &str, separator: char) -> Option<Vec<&str>> {
    let mut quoted = false;
    let mut parts = Vec::new();
    let mut start = 0;
    for (at, letter) in text.char_indices() {
        match letter {
            '"' => quoted = !quoted,
            // No address, scheme or host needs an escape.
            '\\' => return None,
            _ if letter == separator && !quoted => {
                parts.push(text[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(text[start..].trim());
    (!quoted).then_some(parts)
}

fn unquoted(value: &str) -> Option<&str> {
    match value.strip_prefix('"') {
        Some(rest) => rest.strip_suffix('"').filter(|inner| !inner.contains('"')),
        None => (!value.contains('"')).then_some(value),
    }
}

/// An address with or without a port. An IPv6 address may have brackets, and needs them with a
/// port.
pub(super) fn address(text: &str) -> Option<IpAddr> {
    let bare = || text.strip_prefix('[')?.strip_suffix(']')?.parse().ok().map(IpAddr::V6);
    let with_port = || text.parse::<SocketAddr>().ok().map(|at| at.ip());
    let address = text.parse().ok().or_else(bare).or_else(with_port)?;
    Some(address.to_canonical())
}
