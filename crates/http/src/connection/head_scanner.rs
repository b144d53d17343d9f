//! Scans the heads of requests before they are parsed, and refuses heads that two servers could
//! parse differently, so that a proxy in front and this server never disagree on where a request
//! ends.
//!
//! Bodies are counted and not inspected. After a chunked body or an upgrade nothing is scanned: the
//! connection ends with that request (see `server::request`).

use axum::http::{HeaderMap, header};

/// The longest head of a request, in bytes.
pub(crate) const HEAD_BYTES_MAX: usize = 64 * 1024;
/// The most headers of a request.
pub(crate) const HEADERS_MAX: usize = 100;
/// Digits of the longest `Content-Length`: far above any accepted body, far below 2^64.
const LENGTH_DIGITS_MAX: usize = 15;

/// What the next byte belongs to.
#[derive(Debug, PartialEq, Eq)]
enum Position {
    Head,
    /// A body with this many bytes left.
    Body(u64),
    /// Data after which no request follows.
    Rest,
}

/// The facts about the current head so far.
#[derive(Debug, Default)]
struct Head {
    begun: bool,
    bytes: usize,
    headers: usize,
    length: Option<u64>,
    chunked: bool,
    upgrade: bool,
}

/// Follows the bytes of one connection.
#[derive(Debug)]
pub(crate) struct HeadScanner {
    at: Position,
    head: Head,
    /// The beginning of a line that one read did not complete.
    line: Vec<u8>,
}

/// The line is ambiguous.
#[derive(Debug)]
struct AmbiguousLine;

impl HeadScanner {
    pub(crate) fn new() -> Self {
        Self { at: Position::Head, head: Head::default(), line: Vec::new() }
    }

    /// Whether no request is in progress.
    pub(crate) fn is_between_requests(&self) -> bool {
        self.at == Position::Head && self.head.bytes == 0
    }

    /// Scans bytes that were read. The error is the number of bytes before the refused line.
    pub(crate) fn scan(&mut self, bytes: &[u8]) -> Result<(), usize> {
        let mut done = 0;
        while done < bytes.len() {
            let rest = &bytes[done..];
            done += match self.at {
                Position::Rest => return Ok(()),
                Position::Body(left) => {
                    let count = usize::try_from(left).unwrap_or(usize::MAX).min(rest.len());
                    let left = left - count as u64;
                    self.at = if left == 0 { Position::Head } else { Position::Body(left) };
                    count
                }
                Position::Head => self.head(rest).map_err(|AmbiguousLine| done)?,
            };
        }
        Ok(())
    }

    /// Scans one line of a head, or its available part, and returns the length.
    fn head(&mut self, rest: &[u8]) -> Result<usize, AmbiguousLine> {
        let end = memchr::memchr(b'\n', rest);
        let count = end.map_or(rest.len(), |end| end + 1);
        self.head.bytes += count;
        if self.head.bytes > HEAD_BYTES_MAX {
            // hyper has the same limit and answers 431.
            self.at = Position::Rest;
            return Ok(count);
        }
        if end.is_none() || !self.line.is_empty() {
            self.line.extend_from_slice(&rest[..count]);
        }
        if end.is_some() {
            let mut long = std::mem::take(&mut self.line);
            self.check_line(if long.is_empty() { &rest[..count] } else { &long })?;
            // The buffer is reused for the next line that arrives in parts.
            long.clear();
            self.line = long;
        }
        Ok(count)
    }

    fn check_line(&mut self, line: &[u8]) -> Result<(), AmbiguousLine> {
        let line = line.strip_suffix(b"\r\n").ok_or(AmbiguousLine)?;
        if memchr::memchr(b'\r', line).is_some() {
            return Err(AmbiguousLine);
        }
        match (line.is_empty(), self.head.begun) {
            // An empty line may precede a request.
            (true, false) => Ok(()),
            (true, true) => self.end(),
            (false, false) => {
                self.head.begun = true;
                Ok(())
            }
            (false, true) => self.header(line),
        }
    }

    fn header(&mut self, line: &[u8]) -> Result<(), AmbiguousLine> {
        self.head.headers += 1;
        if self.head.headers > HEADERS_MAX {
            // As above: hyper answers 431.
            self.at = Position::Rest;
            return Ok(());
        }
        if matches!(line[0], b' ' | b'\t') {
            return Err(AmbiguousLine);
        }
        // No other header affects where a request ends; the parser validates those.
        if !matches!(line[0] | 0x20, b'c' | b't' | b'u') {
            return Ok(());
        }
        let colon = memchr::memchr(b':', line).ok_or(AmbiguousLine)?;
        let name = &line[..colon];
        let value = line[colon + 1..].trim_ascii();
        if name.eq_ignore_ascii_case(b"content-length") {
            let length = length(value).ok_or(AmbiguousLine)?;
            if self.head.length.replace(length).is_some() || self.head.chunked {
                return Err(AmbiguousLine);
            }
        } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
            let twice = std::mem::replace(&mut self.head.chunked, true);
            if twice || self.head.length.is_some() || !value.eq_ignore_ascii_case(b"chunked") {
                return Err(AmbiguousLine);
            }
        } else if name.eq_ignore_ascii_case(b"upgrade") {
            self.head.upgrade |= websocket(value);
        }
        Ok(())
    }

    /// The empty line that ends a head: a body follows, if the head announces one.
    fn end(&mut self) -> Result<(), AmbiguousLine> {
        let head = std::mem::take(&mut self.head);
        let length = head.length.unwrap_or(0);
        if head.upgrade && (head.chunked || length > 0) {
            return Err(AmbiguousLine);
        }
        self.at = match length {
            _ if head.upgrade || head.chunked => Position::Rest,
            0 => Position::Head,
            length => Position::Body(length),
        };
        Ok(())
    }
}

fn length(value: &[u8]) -> Option<u64> {
    let digits = !value.is_empty() && value.iter().all(u8::is_ascii_digit);
    let value = std::str::from_utf8(value).ok()?;
    (digits && value.len() <= LENGTH_DIGITS_MAX).then(|| value.parse().ok())?
}

fn websocket(value: &[u8]) -> bool {
    let mut words = value.split(|byte| *byte == b',');
    words.any(|word| word.trim_ascii().eq_ignore_ascii_case(b"websocket"))
}

/// Whether the connection ends with this request, because nothing after it is scanned.
pub(crate) fn ends_connection(headers: &HeaderMap) -> bool {
    headers.contains_key(header::TRANSFER_ENCODING)
        || headers.get_all(header::UPGRADE).iter().any(|value| websocket(value.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn scanned(text: &str) -> Result<HeadScanner, usize> {
        let mut heads = HeadScanner::new();
        heads.scan(text.as_bytes()).map(|()| heads)
    }

    #[test]
    fn ambiguous_requests_are_refused() {
        for bad in [
            "GET / HTTP/1.1\nhost: a\r\n\r\n",
            "GET / HTTP/1.1\r\nhost: a\n\r\n",
            "GET / HTTP/1.1\r\nhost: a\r\n\n",
            "\nGET / HTTP/1.1\r\nhost: a\r\n\r\n",
            "GET / HTTP/1.1\r\na: b\rc: d\r\n\r\n",
            "GET / HTTP/1.1\r\na: b\r\n c\r\n\r\n",
            "GET / HTTP/1.1\r\n\tc: d\r\n\r\n",
            "GET / HTTP/1.1\r\nContent-Length: 1\r\ncontent-length: 1\r\n\r\n",
            "GET / HTTP/1.1\r\ncontent-length: 1, 1\r\n\r\n",
            "GET / HTTP/1.1\r\ncontent-length: +1\r\n\r\n",
            "GET / HTTP/1.1\r\ncontent-length: -1\r\n\r\n",
            "GET / HTTP/1.1\r\ncontent-length:\r\n\r\n",
            "GET / HTTP/1.1\r\ncontent-length: 18446744073709551616\r\n\r\n",
            "GET / HTTP/1.1\r\ncontent-length: 0\r\ntransfer-encoding: chunked\r\n\r\n",
            "GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\ncontent-length: 0\r\n\r\n",
            "GET / HTTP/1.1\r\ntransfer-encoding: chunked, identity\r\n\r\n",
            "GET / HTTP/1.1\r\ntransfer-encoding: gzip, chunked\r\n\r\n",
            "GET / HTTP/1.1\r\ntransfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n\r\n",
            "GET / HTTP/1.1\r\nupgrade: websocket\r\ncontent-length: 1\r\n\r\n",
        ] {
            assert!(scanned(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_request_ends_where_its_head_says() {
        let one = "POST / HTTP/1.1\r\nhost: a\r\nContent-Length: 3\r\n\r\n";
        assert!(
            scanned(&format!("{one}\n\n\nGET / HTTP/1.1\r\n\r\n")).unwrap().is_between_requests()
        );
        assert!(!scanned(&format!("{one}ab")).unwrap().is_between_requests());
        let two = format!("{one}abc");
        assert_eq!(scanned(&format!("{two}GET / HTTP/1.1\n\r\n")).unwrap_err(), two.len());
        for last in ["transfer-encoding: chunked", "upgrade: h2c, WebSocket"] {
            let heads = scanned(&format!("POST / HTTP/1.1\r\n{last}\r\n\r\n\n\n")).unwrap();
            assert_eq!(heads.at, Position::Rest);
        }
        assert!(scanned("GET / HTTP/1.1\r\nupgrade: h2c\r\n\r\n").unwrap().is_between_requests());
    }

    #[test]
    fn a_flood_is_not_buffered() {
        let mut heads = scanned("GET / HTTP/1.1\r\nx: ").unwrap();
        for _ in 0..100 {
            heads.scan(&[b'y'; 10_000]).unwrap();
        }
        assert_eq!(heads.at, Position::Rest);
        assert!(heads.line.len() <= HEAD_BYTES_MAX);
        assert_eq!(
            scanned(&format!("GET / HTTP/1.1\r\n{}", "x: y\r\n".repeat(101))).unwrap().at,
            Position::Rest
        );
    }

    proptest! {
        #[test]
        fn the_result_does_not_depend_on_the_size_of_reads(
            lines in prop::collection::vec("[a-c]: [x-z]{0,3}(\r\n|\r\n|\r\n|\n|\r)", 0..5),
            length in 0_u64..20,
            cuts in prop::collection::vec(1_usize..30, 0..40),
        ) {
            let text = format!("POST / HTTP/1.1\r\n{}content-length: {length}\r\n\r\n", lines.concat());
            let text = format!("{text}{}{text}", "\n".repeat(usize::try_from(length).unwrap()));
            let whole = scanned(&text);
            let mut parts = HeadScanner::new();
            let mut from = 0;
            let mut refused = None;
            for cut in cuts.into_iter().chain([text.len()]) {
                let to = (from + cut).min(text.len());
                if refused.is_none() {
                    refused = parts.scan(&text.as_bytes()[from..to]).err();
                }
                from = to;
            }
            prop_assert_eq!(whole.is_err(), refused.is_some());
            if let Ok(whole) = whole {
                prop_assert_eq!(whole.at, parts.at);
            }
        }
    }
}
