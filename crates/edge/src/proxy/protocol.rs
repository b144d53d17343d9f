//! What is spoken, by the first bytes.

/// What the first bytes look like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spoken {
    /// TLS, from its first byte.
    Tls,
    /// HTTP/1, or what a server may take for it.
    Http,
    /// Neither.
    Other,
    /// Too few bytes to say.
    Unsaid,
}

/// Longer words in front of the first space are no method.
const METHOD_BYTES_MAX: usize = 32;
const METHODS: [&[u8]; 9] =
    [b"GET", b"HEAD", b"POST", b"PUT", b"DELETE", b"CONNECT", b"OPTIONS", b"TRACE", b"PATCH"];

/// Looks at the first bytes. `strict` is for ports that only the web uses: whatever begins with
/// a word is HTTP there; elsewhere only its methods are, since others begin with words too.
#[must_use]
pub fn spoken(head: &[u8], strict: bool) -> Spoken {
    if head.first() == Some(&0x16) {
        return Spoken::Tls;
    }
    // Servers pass over empty lines in front of a request.
    let begins = head.iter().position(|byte| !matches!(byte, b'\r' | b'\n'));
    let Some(begins) = begins else {
        return if head.len() < METHOD_BYTES_MAX { Spoken::Unsaid } else { Spoken::Other };
    };
    if begins >= METHOD_BYTES_MAX {
        return Spoken::Other;
    }
    let line = &head[begins..];
    let ends = line.iter().position(|byte| !token(*byte));
    match ends {
        None if line.len() > METHOD_BYTES_MAX => Spoken::Other,
        // An end after a word says enough: nothing of the web ends there.
        None if line.starts_with(b"SSH-") => Spoken::Other,
        None => Spoken::Unsaid,
        Some(0) => Spoken::Other,
        Some(ends) if ends > METHOD_BYTES_MAX => Spoken::Other,
        Some(ends) if !matches!(line[ends], b' ' | b'\t') => Spoken::Other,
        Some(ends) => {
            let known = METHODS.contains(&&line[..ends]);
            let ssh = line.starts_with(b"SSH-");
            if known || (strict && !ssh) { Spoken::Http } else { Spoken::Other }
        }
    }
}

fn token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_bytes_say_what_is_spoken() {
        for (head, strict, otherwise) in [
            (&b""[..], Spoken::Unsaid, Spoken::Unsaid),
            (b"\x16", Spoken::Tls, Spoken::Tls),
            (b"GE", Spoken::Unsaid, Spoken::Unsaid),
            (b"GET /", Spoken::Http, Spoken::Http),
            (b"\r\n\r\nGET /", Spoken::Http, Spoken::Http),
            (b"PROPFIND /", Spoken::Http, Spoken::Other),
            (b"PRI * HTTP/2.0\r\n", Spoken::Http, Spoken::Other),
            (b"SSH-2.0-OpenSSH_9.2p1 Debian\r\n", Spoken::Other, Spoken::Other),
            (b"SSH-", Spoken::Other, Spoken::Other),
            (b"PING\r\n", Spoken::Other, Spoken::Other),
            (b"*1\r\n$4\r\nPING\r\n", Spoken::Other, Spoken::Other),
            (b"\x80\x2e\x01\x00\x02", Spoken::Other, Spoken::Other),
            (b"\0", Spoken::Other, Spoken::Other),
        ] {
            assert_eq!(spoken(head, true), strict, "{head:?}");
            assert_eq!(spoken(head, false), otherwise, "{head:?}");
        }
        assert_eq!(spoken(&[b'a'; 100], true), Spoken::Other);
        assert_eq!(spoken(&[b'\n'; 100], true), Spoken::Other);
    }
}
