//! The name that a TLS connection asks for. rustls reads the ClientHello, as strictly as it does
//! as a server; what it does not tell (whether the real name may be hidden) is looked up in the
//! same bytes, and a difference between the two is a refusal.

use rustls::server::Acceptor;

/// The longest ClientHello, with what comes in front of and behind it: with keys of post-quantum
/// exchanges and a ticket they have 2 to 3 KiB.
pub const HELLO_BYTES_MAX: usize = 32 * 1024;
const HANDSHAKE: u8 = 0x16;
const CLIENT_HELLO: u8 = 1;
const SERVER_NAME: u16 = 0;
const ENCRYPTED_HELLO: u16 = 0xfe0d;
/// Names of the same extension in its drafts, and of the one before it.
const ENCRYPTED_EARLIER: [u16; 6] = [0xfe08, 0xfe09, 0xfe0a, 0xfe0b, 0xfe0c, 0xffce];

/// What a ClientHello says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hello {
    /// The host, in lower case.
    pub name: Option<String>,
    /// It has an encrypted ClientHello within, or looks as if: the name that counts may be
    /// another.
    pub hidden: bool,
}

/// No TLS, or none that we understand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no ClientHello")]
pub struct NoHello;

/// Reads a ClientHello out of what came until now; `None`: there is more to come.
///
/// # Errors
/// [`NoHello`]
pub fn read(bytes: &[u8]) -> Result<Option<Hello>, NoHello> {
    let Some(message) = message(bytes)? else { return Ok(None) };
    let mut acceptor = Acceptor::default();
    let mut rest = bytes;
    while !rest.is_empty() {
        acceptor.read_tls(&mut rest).map_err(|_| NoHello)?;
        if let Some(accepted) = acceptor.accept().map_err(|_| NoHello)? {
            let hello = accepted.client_hello();
            let name = hello.server_name().map(str::to_ascii_lowercase);
            let seen = extensions(&message).ok_or(NoHello)?;
            // It names somebody, whom rustls does not take for a host.
            if seen.named != name.is_some() {
                return Err(NoHello);
            }
            return Ok(Some(Hello { name, hidden: seen.hidden }));
        }
    }
    Err(NoHello)
}

/// The handshake message that the first records hold.
fn message(bytes: &[u8]) -> Result<Option<Vec<u8>>, NoHello> {
    let mut message = Vec::new();
    let mut rest = bytes;
    loop {
        if message.first().is_some_and(|kind| *kind != CLIENT_HELLO) {
            return Err(NoHello);
        }
        if let [_, high, middle, low, ..] = message[..] {
            let length =
                4 + usize::from(high) * 65_536 + usize::from(middle) * 256 + usize::from(low);
            if length > HELLO_BYTES_MAX {
                return Err(NoHello);
            }
            if message.len() >= length {
                // Something behind it that is not encrypted is no part of any TLS.
                return if message.len() == length { Ok(Some(message)) } else { Err(NoHello) };
            }
        }
        let [kind, major, _, high, low, after @ ..] = rest else {
            return if rest.first().is_some_and(|kind| *kind != HANDSHAKE) {
                Err(NoHello)
            } else {
                Ok(None)
            };
        };
        let length = usize::from(*high) * 256 + usize::from(*low);
        if *kind != HANDSHAKE || *major != 3 || length == 0 {
            return Err(NoHello);
        }
        let Some(fragment) = after.get(..length) else { return Ok(None) };
        message.extend_from_slice(fragment);
        rest = &after[length..];
    }
}

struct Seen {
    named: bool,
    hidden: bool,
}

/// The kinds of its extensions.
fn extensions(message: &[u8]) -> Option<Seen> {
    // Kind and length, version, random.
    let rest = message.get(4 + 2 + 32..)?;
    let rest = behind(rest, 1)?.1;
    let rest = behind(rest, 2)?.1;
    let rest = behind(rest, 1)?.1;
    let mut seen = Seen { named: false, hidden: false };
    if rest.is_empty() {
        return Some(seen);
    }
    let (mut all, rest) = behind(rest, 2)?;
    if !rest.is_empty() {
        return None;
    }
    while let [high, low, rest @ ..] = all {
        let kind = u16::from_be_bytes([*high, *low]);
        seen.named |= kind == SERVER_NAME;
        seen.hidden |= kind == ENCRYPTED_HELLO || ENCRYPTED_EARLIER.contains(&kind);
        all = behind(rest, 2)?.1;
    }
    all.is_empty().then_some(seen)
}

/// A vector with a length of so many bytes in front, and what is behind it.
fn behind(bytes: &[u8], width: usize) -> Option<(&[u8], &[u8])> {
    let length = bytes.get(..width)?.iter().fold(0, |sum, byte| sum * 256 + usize::from(*byte));
    bytes[width..].split_at_checked(length)
}
