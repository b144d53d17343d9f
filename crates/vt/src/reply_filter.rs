//! Lets one reply to each query through to the program. Every attached terminal replies to a
//! query, and one that receives old output replies to the queries in it again. The program would
//! read the surplus replies as typed text.

use crate::query::{Query, QueryKind};
use std::collections::VecDeque;

/// Queries that may wait for a reply at the same time; a newer one replaces the oldest.
const EXPECTED_MAX: usize = 16;
/// The longest reply, in bytes. Anything longer counts as typed text.
const REPLY_BYTES_MAX: usize = 4096;

/// The state of one client's input between two calls of [`ReplyFilter::filter`].
#[derive(Debug, Default)]
pub struct ClientInput {
    /// The beginning of what may become a reply.
    partial: Vec<u8>,
    /// Whether the input is within a bracketed paste, in which nothing counts as a reply.
    in_paste: bool,
    /// Whether the last input contained anything but replies and focus reports.
    pub has_keys: bool,
}

#[cfg(test)]
impl ClientInput {
    pub(crate) fn partial(&self) -> Vec<u8> {
        self.partial.clone()
    }
}

/// The queries of one terminal that no client has replied to yet.
///
/// ```text
/// screen.feed(…);
/// for query in screen.take_queries() {
///     if a_client_may_type { filter.expect_reply(&query) } else { write(query.default_reply) }
/// }
/// let input = filter.filter(&mut client.input, typed);
/// ```
#[derive(Debug, Default)]
pub struct ReplyFilter {
    expected: VecDeque<QueryKind>,
}

/// How some input begins.
enum Typed {
    /// Typed keys, of this many bytes.
    Keys(usize),
    /// A reply of this kind and length in bytes.
    Reply(QueryKind, usize),
    /// Possibly a reply, once more input comes.
    Partial,
}

impl ReplyFilter {
    /// Records that a program sent a query to the clients.
    pub fn expect_reply(&mut self, query: &Query) {
        if self.expected.len() >= EXPECTED_MAX {
            self.expected.pop_front();
        }
        self.expected.push_back(query.kind);
    }

    /// Returns what a client typed, without replies that no query waits for. The beginning of a
    /// reply that is not complete is held back until the client sends more.
    #[must_use]
    pub fn filter(&mut self, input: &mut ClientInput, typed: &[u8]) -> Vec<u8> {
        input.has_keys = false;
        let held = std::mem::take(&mut input.partial);
        let joined;
        let mut rest = if held.is_empty() {
            typed
        } else {
            joined = [held.as_slice(), typed].concat();
            joined.as_slice()
        };
        let mut out = Vec::with_capacity(rest.len());
        while !rest.is_empty() {
            if input.in_paste {
                let end = find(rest, b"\x1b[201~").map(|at| at + 6);
                input.in_paste = end.is_none();
                input.has_keys = true;
                out.extend_from_slice(&rest[..end.unwrap_or(rest.len())]);
                rest = &rest[end.unwrap_or(rest.len())..];
                // The end marker of a paste may be incomplete.
                if input.in_paste {
                    let cut = (1..6).rev().find(|cut| out.ends_with(&b"\x1b[201~"[..*cut]));
                    input.partial = out.split_off(out.len() - cut.unwrap_or(0));
                }
                continue;
            }
            match classify(rest) {
                Typed::Keys(count) => {
                    input.in_paste = &rest[..count] == b"\x1b[200~";
                    input.has_keys |= !matches!(&rest[..count], b"\x1b[I" | b"\x1b[O");
                    out.extend_from_slice(&rest[..count]);
                    rest = &rest[count..];
                }
                Typed::Reply(kind, count) => {
                    let key = is_modified_f3(&rest[..count]);
                    let expected = self.take_expected(kind);
                    input.has_keys |= key && !expected;
                    if expected || key {
                        out.extend_from_slice(&rest[..count]);
                    }
                    rest = &rest[count..];
                }
                Typed::Partial if rest.len() > REPLY_BYTES_MAX => {
                    out.extend_from_slice(rest);
                    rest = &[];
                }
                Typed::Partial => {
                    input.partial = rest.to_vec();
                    rest = &[];
                }
            }
        }
        out
    }

    /// Removes the oldest query of this kind; whether there was one.
    fn take_expected(&mut self, kind: QueryKind) -> bool {
        let found = self.expected.iter().position(|open| *open == kind);
        found.is_some_and(|index| self.expected.remove(index).is_some())
    }
}

/// F3 with modifiers has the form of a cursor report for the first row.
fn is_modified_f3(typed: &[u8]) -> bool {
    matches!(typed, [0x1b, b'[', b'1', b';', b'2'..=b'8', b'R'])
}

fn classify(typed: &[u8]) -> Typed {
    if typed[0] != 0x1b {
        let plain = typed.iter().position(|byte| *byte == 0x1b);
        return Typed::Keys(plain.unwrap_or(typed.len()));
    }
    match typed.get(1) {
        Some(b'[') => classify_csi(typed),
        Some(b']') => classify_string(typed, osc_kind),
        Some(b'P') => classify_string(typed, dcs_kind),
        // The escape key, or a key with Alt.
        _ => Typed::Keys(1),
    }
}

fn classify_csi(typed: &[u8]) -> Typed {
    // X10 mouse reports end with three bytes of any value.
    if typed.get(2) == Some(&b'M') {
        return Typed::Keys(typed.len().min(6));
    }
    let Some(step) = typed[2..].iter().position(|byte| !(0x20..=0x3f).contains(byte)) else {
        // A bare `ESC [` is Alt+[ and is passed on at once.
        return if typed.len() > 2 && typed.len() < 64 { Typed::Partial } else { Typed::Keys(2) };
    };
    let body = &typed[2..2 + step];
    let last = typed[2 + step];
    if !(0x40..=0x7e).contains(&last) {
        return Typed::Keys(2);
    }
    let end = 3 + step;
    csi_kind(body, last).map_or(Typed::Keys(end), |kind| Typed::Reply(kind, end))
}

/// The kind of query that such a sequence replies to.
fn csi_kind(body: &[u8], last: u8) -> Option<QueryKind> {
    let plain = body.iter().all(|byte| byte.is_ascii_digit() || *byte == b';');
    let (mark, rest) = body.split_first().map_or((0, body), |(mark, rest)| (*mark, rest));
    let numbers = rest.iter().all(|byte| byte.is_ascii_digit() || *byte == b';' || *byte == b':')
        && !rest.is_empty();
    match last {
        b'R' if plain && body.contains(&b';') => Some(QueryKind::Cursor),
        b'R' if mark == b'?' && numbers => Some(QueryKind::PrivateCursor),
        b'n' if plain && matches!(body, b"0" | b"3") => Some(QueryKind::Status),
        // Colour scheme changes are also reported without a query.
        b'n' if mark == b'?' && numbers && !rest.starts_with(b"997;") => {
            Some(QueryKind::PrivateStatus)
        }
        b'c' if mark == b'?' && numbers => Some(QueryKind::Primary),
        b'c' if mark == b'>' && numbers => Some(QueryKind::Secondary),
        b'y' if body.ends_with(b"$") => Some(QueryKind::Mode),
        // 48 reports a window resize, without a query.
        b't' if plain && body.contains(&b';') && !body.starts_with(b"48;") => Some(QueryKind::Size),
        b't' if matches!(body, b"1" | b"2") => Some(QueryKind::Size),
        b'u' if mark == b'?' && numbers => Some(QueryKind::Keyboard),
        b'm' if mark == b'>' && numbers => Some(QueryKind::OtherKeys),
        b'S' if mark == b'?' && numbers => Some(QueryKind::Graphics),
        b'x' if plain && body.contains(&b';') => Some(QueryKind::Parameters),
        _ => None,
    }
}

/// Control strings end with `ESC \`, or with a bell.
fn classify_string(typed: &[u8], kind: fn(&[u8]) -> Option<QueryKind>) -> Typed {
    let stop = typed[2..].iter().position(|byte| *byte < 0x20 || *byte == 0x7f).map(|at| at + 2);
    let body = &typed[2..stop.unwrap_or(typed.len())];
    let Some(kind) = kind(body) else {
        return if stop.is_none() && may_become_reply(body) {
            Typed::Partial
        } else {
            Typed::Keys(2)
        };
    };
    match stop.map(|at| (typed[at], typed.get(at + 1), at)) {
        None => Typed::Partial,
        Some((0x07, _, at)) => Typed::Reply(kind, at + 1),
        Some((0x1b, Some(b'\\'), at)) => Typed::Reply(kind, at + 2),
        Some((0x1b, None, _)) => Typed::Partial,
        _ => Typed::Keys(2),
    }
}

/// Whether such a short string may still become a reply. An empty one is a key with Alt.
fn may_become_reply(body: &[u8]) -> bool {
    (1..=3).contains(&body.len()) && body.iter().all(|byte| b"0123456789;$+>!".contains(byte))
}

fn osc_kind(body: &[u8]) -> Option<QueryKind> {
    let number = body.iter().position(|byte| *byte == b';').map(|at| &body[..at]);
    match (number, body.first()) {
        (
            Some(
                b"4" | b"5" | b"10" | b"11" | b"12" | b"13" | b"14" | b"15" | b"16" | b"17" | b"19"
                | b"21",
            ),
            _,
        ) => Some(QueryKind::Colour),
        (Some(b"52"), _) | (_, Some(b'l' | b'L')) => Some(QueryKind::Never),
        _ => None,
    }
}

fn dcs_kind(body: &[u8]) -> Option<QueryKind> {
    match body {
        [b'>', b'|', ..] => Some(QueryKind::Version),
        [b'!', b'|', ..] => Some(QueryKind::Tertiary),
        [b'0' | b'1', b'$', b'r', ..] => Some(QueryKind::Setting),
        [b'0' | b'1', b'+', b'r', ..] => Some(QueryKind::Capability),
        [b'0'..=b'9', b'$', b'u', ..] => Some(QueryKind::Parameters),
        _ => None,
    }
}

fn find(text: &[u8], needle: &[u8]) -> Option<usize> {
    text.windows(needle.len()).position(|window| window == needle)
}

/// The ranges of all replies in some input.
#[cfg(test)]
pub(crate) fn replies(typed: &[u8]) -> Vec<std::ops::Range<usize>> {
    let mut out = Vec::new();
    let mut at = 0;
    while at < typed.len() {
        match classify(&typed[at..]) {
            Typed::Keys(count) => at += count,
            Typed::Reply(_, count) => {
                out.push(at..at + count);
                at += count;
            }
            Typed::Partial => break,
        }
    }
    out
}
