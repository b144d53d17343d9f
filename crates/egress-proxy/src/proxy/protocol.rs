//! Detects the protocol of a connection by its first bytes.

/// The protocol of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// TLS, from its first byte.
    Tls,
    /// HTTP/1, or what a server may take for it.
    Http,
    /// A protocol that is neither TLS nor HTTP.
    Other,
    /// Too few bytes to tell.
    Undecided,
}

/// Longer words before the first space are no method.
const METHOD_BYTES_MAX: usize = 32;
const METHODS: [&[u8]; 9] =
    [b"GET", b"HEAD", b"POST", b"PUT", b"DELETE", b"CONNECT", b"OPTIONS", b"TRACE", b"PATCH"];

/// Detects the protocol. With `strict`, whatever begins with a word counts as HTTP; otherwise only
/// known methods do, because other protocols begin with words too.
#[must_use]
pub fn detect(head: &[u8], strict: bool) -> Protocol {
    if head.first() == Some(&0x16) {
        return Protocol::Tls;
    }
    // Servers skip empty lines before a request.
    let start = head.iter().position(|byte| !matches!(byte, b'\r' | b'\n'));
    let Some(start) = start else {
        return if head.len() < METHOD_BYTES_MAX { Protocol::Undecided } else { Protocol::Other };
    };
    if start >= METHOD_BYTES_MAX {
        return Protocol::Other;
    }
    let line = &head[start..];
    let end = line.iter().position(|byte| !is_token(*byte));
    match end {
        None if line.len() > METHOD_BYTES_MAX => Protocol::Other,
        // No method begins like the banner of SSH.
        None if line.starts_with(b"SSH-") => Protocol::Other,
        None => Protocol::Undecided,
        Some(0) => Protocol::Other,
        Some(end) if end > METHOD_BYTES_MAX => Protocol::Other,
        Some(end) if !matches!(line[end], b' ' | b'\t') => Protocol::Other,
        Some(end) => {
            let known = METHODS.contains(&&line[..end]);
            let ssh = line.starts_with(b"SSH-");
            if known || (strict && !ssh) { Protocol::Http } else { Protocol::Other }
        }
    }
}

fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_bytes_show_the_protocol() {
        for (head, strict, otherwise) in [
            (&b""[..], Protocol::Undecided, Protocol::Undecided),
            (b"\x16", Protocol::Tls, Protocol::Tls),
            (b"GE", Protocol::Undecided, Protocol::Undecided),
            (b"GET /", Protocol::Http, Protocol::Http),
            (b"\r\n\r\nGET /", Protocol::Http, Protocol::Http),
            (b"PROPFIND /", Protocol::Http, Protocol::Other),
            (b"PRI * HTTP/2.0\r\n", Protocol::Http, Protocol::Other),
            (b"SSH-2.0-OpenSSH_9.2p1 Debian\r\n", Protocol::Other, Protocol::Other),
            (b"SSH-", Protocol::Other, Protocol::Other),
            (b"PING\r\n", Protocol::Other, Protocol::Other),
            (b"*1\r\n$4\r\nPING\r\n", Protocol::Other, Protocol::Other),
            (b"\x80\x2e\x01\x00\x02", Protocol::Other, Protocol::Other),
            (b"\0", Protocol::Other, Protocol::Other),
        ] {
            assert_eq!(detect(head, true), strict, "{head:?}");
            assert_eq!(detect(head, false), otherwise, "{head:?}");
        }
        assert_eq!(detect(&[b'a'; 100], true), Protocol::Other);
        assert_eq!(detect(&[b'\n'; 100], true), Protocol::Other);
    }
}
