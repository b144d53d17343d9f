//! Parses `X-Forwarded-*`, and `Forwarded` of RFC 7239.

use axum::http::{HeaderMap, HeaderName, header};
use std::net::{IpAddr, SocketAddr};

pub(super) const X_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
pub(super) const X_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
pub(super) const X_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
/// Every header that reports a client.
pub(super) const ALL: [HeaderName; 4] = [X_FOR, X_HOST, X_PROTO, header::FORWARDED];
/// How much of one header is read, over all its lines, in bytes from the right.
const VALUE_BYTES_MAX: usize = 4096;

/// What one proxy reports about the side that it received the request from.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct ForwardedHop<'a> {
    pub(super) address: Option<&'a str>,
    pub(super) scheme: Option<&'a str>,
    pub(super) host: Option<&'a str>,
}

/// The hops of `X-Forwarded-*`, in the order of the headers.
///
/// A proxy that appends its address often replaces the two other headers, so these may have fewer
/// entries. They are matched from the right, and the first entry stands for everything before it.
pub(super) fn x_forwarded(headers: &HeaderMap) -> Vec<ForwardedHop<'_>> {
    let addresses = list(headers, &X_FOR);
    let schemes = list(headers, &X_PROTO);
    let hosts = list(headers, &X_HOST);
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
    (0..count).map(hop).collect()
}

fn matching<'a>(list: &[&'a str], from_right: usize) -> Option<&'a str> {
    list.iter().rev().nth(from_right).or(list.first()).copied()
}

/// The comma-separated entries of a header, over all its lines.
fn list<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Vec<&'a str> {
    let lines = readable_end(headers, name);
    lines.into_iter().flat_map(|line| line.split(',').map(str::trim)).collect()
}

/// The end of a header, line by line, up to a limit of bytes or a byte that is not ASCII.
///
/// Proxies append on the right, so a client cannot hide behind a long or unreadable value: what it
/// sent itself is cut off, and what the proxies appended is read.
fn readable_end<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Vec<&'a str> {
    let mut lines = Vec::new();
    let mut left = VALUE_BYTES_MAX;
    for line in headers.get_all(name).iter().rev() {
        let line = line.as_bytes();
        let readable = |byte: &u8| matches!(byte, b'\t' | b' '..=b'~');
        let unreadable = line.iter().rposition(|byte| !readable(byte)).map_or(0, |at| at + 1);
        let start = unreadable.max(line.len().saturating_sub(left));
        let end = &line[start..];
        // The first entry of what is left is incomplete.
        let whole = if start == 0 {
            Some(end)
        } else {
            end.iter().position(|byte| *byte == b',').map(|comma| &end[comma + 1..])
        };
        lines.extend(whole.and_then(|entries| std::str::from_utf8(entries).ok()));
        if start > 0 {
            break;
        }
        left -= line.len();
    }
    lines.reverse();
    lines
}

/// The hops of `Forwarded`, in the order of the header. What stands left of a malformed element is
/// not read.
pub(super) fn forwarded(headers: &HeaderMap) -> Vec<ForwardedHop<'_>> {
    let mut hops = Vec::new();
    for line in readable_end(headers, &header::FORWARDED).into_iter().rev() {
        for element in split_from_right(line) {
            let Some(hop) = element.and_then(element_hop) else {
                hops.reverse();
                return hops;
            };
            hops.push(hop);
        }
    }
    hops.reverse();
    hops
}

/// The elements of a line from the right: split at commas outside of quotes. `None` ends the list
/// where a quote is open or a character is escaped.
fn split_from_right(line: &str) -> Vec<Option<&str>> {
    let mut quoted = false;
    let mut elements = Vec::new();
    let mut end = line.len();
    for (at, letter) in line.char_indices().rev() {
        match letter {
            '"' => quoted = !quoted,
            // No address, scheme or host needs an escape.
            '\\' => {
                elements.push(None);
                return elements;
            }
            ',' if !quoted => {
                elements.push(Some(line[at + 1..end].trim()));
                end = at;
            }
            _ => {}
        }
    }
    elements.push((!quoted).then(|| line[..end].trim()));
    elements
}

fn element_hop(element: &str) -> Option<ForwardedHop<'_>> {
    let mut hop = ForwardedHop::default();
    for pair in split_pairs(element)? {
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

/// Splits an element at semicolons outside of quotes; `None` if a quote is open at the end.
fn split_pairs(element: &str) -> Option<Vec<&str>> {
    let mut quoted = false;
    let mut pairs = Vec::new();
    let mut start = 0;
    for (at, letter) in element.char_indices() {
        match letter {
            '"' => quoted = !quoted,
            ';' if !quoted => {
                pairs.push(element[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
    }
    pairs.push(element[start..].trim());
    (!quoted).then_some(pairs)
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
