//! The server name (SNI) of a TLS connection. rustls parses the ClientHello as strictly as it does
//! as a server. It does not report whether the real name may be hidden, so the extensions are also
//! read here; a difference between the two parsers is an error.

use rustls::server::Acceptor;

/// The longest ClientHello with its record headers, in bytes. With post-quantum key shares and a
/// session ticket it has 2 to 3 KiB.
pub const HELLO_BYTES_MAX: usize = 32 * 1024;
const HANDSHAKE: u8 = 0x16;
const CLIENT_HELLO: u8 = 1;
const SERVER_NAME: u16 = 0;
const ENCRYPTED_HELLO: u16 = 0xfe0d;
/// Numbers of the same extension in its drafts, and of its predecessor.
const ENCRYPTED_HELLO_DRAFTS: [u16; 6] = [0xfe08, 0xfe09, 0xfe0a, 0xfe0b, 0xfe0c, 0xffce];

/// What the proxy needs of a ClientHello.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientHello {
    /// The SNI, in lower case.
    pub server_name: Option<String>,
    /// It contains an encrypted ClientHello, or something like one: the host may choose by another
    /// name than the SNI.
    pub may_hide_name: bool,
}

/// The bytes are no ClientHello that this proxy understands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no ClientHello")]
pub struct InvalidHello;

/// Parses a ClientHello; `None`: it is not complete yet.
///
/// # Errors
/// [`InvalidHello`]
pub fn parse(bytes: &[u8]) -> Result<Option<ClientHello>, InvalidHello> {
    let Some(message) = handshake_message(bytes)? else { return Ok(None) };
    let mut acceptor = Acceptor::default();
    let mut rest = bytes;
    while !rest.is_empty() {
        acceptor.read_tls(&mut rest).map_err(|_| InvalidHello)?;
        if let Some(accepted) = acceptor.accept().map_err(|_| InvalidHello)? {
            let hello = accepted.client_hello();
            let name = hello.server_name().map(str::to_ascii_lowercase);
            let seen = scan_extensions(&message).ok_or(InvalidHello)?;
            // There is an SNI that rustls does not accept as a host name.
            if seen.server_name != name.is_some() {
                return Err(InvalidHello);
            }
            return Ok(Some(ClientHello {
                server_name: name,
                may_hide_name: seen.encrypted_hello,
            }));
        }
    }
    Err(InvalidHello)
}

/// Joins the handshake message out of its records.
fn handshake_message(bytes: &[u8]) -> Result<Option<Vec<u8>>, InvalidHello> {
    let mut message = Vec::new();
    let mut rest = bytes;
    loop {
        if message.first().is_some_and(|kind| *kind != CLIENT_HELLO) {
            return Err(InvalidHello);
        }
        if let [_, high, middle, low, ..] = message[..] {
            let length =
                4 + usize::from(high) * 65_536 + usize::from(middle) * 256 + usize::from(low);
            if length > HELLO_BYTES_MAX {
                return Err(InvalidHello);
            }
            if message.len() >= length {
                // No TLS version sends more unencrypted bytes here.
                return if message.len() == length { Ok(Some(message)) } else { Err(InvalidHello) };
            }
        }
        let [kind, major, _, high, low, after @ ..] = rest else {
            return if rest.first().is_some_and(|kind| *kind != HANDSHAKE) {
                Err(InvalidHello)
            } else {
                Ok(None)
            };
        };
        let length = usize::from(*high) * 256 + usize::from(*low);
        if *kind != HANDSHAKE || *major != 3 || length == 0 {
            return Err(InvalidHello);
        }
        let Some(fragment) = after.get(..length) else { return Ok(None) };
        message.extend_from_slice(fragment);
        rest = &after[length..];
    }
}

/// Which extensions a ClientHello has.
struct Extensions {
    server_name: bool,
    encrypted_hello: bool,
}

fn scan_extensions(message: &[u8]) -> Option<Extensions> {
    // Skip kind and length, version, random.
    let rest = message.get(4 + 2 + 32..)?;
    let rest = split_vector(rest, 1)?.1;
    let rest = split_vector(rest, 2)?.1;
    let rest = split_vector(rest, 1)?.1;
    let mut seen = Extensions { server_name: false, encrypted_hello: false };
    if rest.is_empty() {
        return Some(seen);
    }
    let (mut all, rest) = split_vector(rest, 2)?;
    if !rest.is_empty() {
        return None;
    }
    while let [high, low, rest @ ..] = all {
        let kind = u16::from_be_bytes([*high, *low]);
        seen.server_name |= kind == SERVER_NAME;
        seen.encrypted_hello |= kind == ENCRYPTED_HELLO || ENCRYPTED_HELLO_DRAFTS.contains(&kind);
        all = split_vector(rest, 2)?.1;
    }
    all.is_empty().then_some(seen)
}

/// Splits off a vector that begins with its length in `width` bytes.
fn split_vector(bytes: &[u8], width: usize) -> Option<(&[u8], &[u8])> {
    let length = bytes.get(..width)?.iter().fold(0, |sum, byte| sum * 256 + usize::from(*byte));
    bytes[width..].split_at_checked(length)
}
