//! One line of an audit log: how it is written, signed and parsed.
//!
//! `{"seq":…,"ts":…,"sandbox_id":…,"event":…,"data":{…},"last":…,"prev":"…","hmac":"…"}`: `prev` is
//! the `hmac` of the previous line, `last` is the `seq` of the sandbox's previous line (0: there is
//! none), and `hmac` covers every byte before its own comma. A line contains visible ASCII only.

use super::AuditEntry;
use hmac::{Hmac, Mac};
use isolet_clock::rfc3339;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sha2::Sha256;
use std::borrow::Cow;
use std::fmt::Write as _;

/// The bytes before the signature.
const HMAC: &[u8] = br#","hmac":""#;
/// Length of a signature in hexadecimal digits.
const HEX: usize = 64;
/// Maximum length of a line that is read, in bytes. Written lines are much shorter.
pub(crate) const LINE_BYTES_MAX: usize = 64 * 1024;
/// Maximum size of an entry's details, in bytes. Larger ones are replaced by their size.
const DATA_BYTES_MAX: usize = 8 * 1024;

/// The key of one tenant's chain, as an HMAC-SHA256 (RFC 2104) that has absorbed it.
#[derive(Clone)]
pub(crate) struct ChainKey(Hmac<Sha256>);

impl ChainKey {
    /// Derives the key of a tenant's log, so that a line of one log is not valid in another.
    pub(crate) fn of(secret: &[u8], tenant: &str) -> Self {
        Self::new(&Self::new(secret).sign_bytes(tenant.as_bytes()))
    }

    fn new(secret: &[u8]) -> Self {
        Self(Hmac::new_from_slice(secret).expect("HMAC takes keys of any length"))
    }

    fn sign_bytes(&self, text: &[u8]) -> [u8; 32] {
        self.0.clone().chain_update(text).finalize().into_bytes().into()
    }

    /// Signs a text; the signature is in hexadecimal.
    pub(crate) fn sign(&self, text: &[u8]) -> String {
        hex::encode(self.sign_bytes(text))
    }
}

/// The position of a line in its log.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ChainPosition<'a> {
    pub(crate) seq: u64,
    /// The `seq` of the sandbox's previous line; 0: none.
    pub(crate) last: u64,
    /// The signature of the previous line; empty for the first.
    pub(crate) prev: &'a str,
}

/// The signed part of a line, in the order in which it is written.
#[derive(Serialize)]
struct SignedMembers<'a> {
    seq: u64,
    ts: String,
    sandbox_id: Option<&'a str>,
    event: &'a str,
    data: Details<'a>,
    last: u64,
    prev: &'a str,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Details<'a> {
    Complete(&'a Map<String, Value>),
    LeftOut { left_out_bytes: usize },
}

fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("members are strings, numbers and JSON values")
}

/// Appends a line with its newline, and returns its signature.
pub(crate) fn write(
    out: &mut Vec<u8>,
    key: &ChainKey,
    entry: &AuditEntry,
    place: ChainPosition<'_>,
) -> String {
    let data_bytes = json(&entry.data).len();
    let members = SignedMembers {
        seq: place.seq,
        ts: rfc3339(entry.at_ms),
        sandbox_id: entry.sandbox.as_deref(),
        event: entry.event.as_ref(),
        data: match data_bytes {
            left_out_bytes if left_out_bytes > DATA_BYTES_MAX => {
                Details::LeftOut { left_out_bytes }
            }
            _ => Details::Complete(&entry.data),
        },
        last: place.last,
        prev: place.prev,
    };
    let text = json(&members);
    // The signature follows as one more member of the object.
    let body = ascii(text.strip_suffix('}').unwrap_or(&text));
    let hmac = key.sign(body.as_bytes());
    out.extend_from_slice(body.as_bytes());
    out.extend_from_slice(HMAC);
    out.extend_from_slice(hmac.as_bytes());
    out.extend_from_slice(b"\"}\n");
    hmac
}

/// Writes all characters but visible ASCII as JSON escapes, which is valid because they occur only in
/// strings. So no text of a tenant can control a terminal, change the direction of a line or end it.
fn ascii(text: &str) -> Cow<'_, str> {
    if text.bytes().all(|byte| (0x20..0x7f).contains(&byte)) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 64);
    for letter in text.chars() {
        if (' '..='~').contains(&letter) {
            out.push(letter);
            continue;
        }
        for unit in letter.encode_utf16(&mut [0; 2]) {
            let _ = write!(out, "\\u{unit:04x}");
        }
    }
    Cow::Owned(out)
}

/// A parsed line, whose signature [`LogLine::holds`] checks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LogLine {
    pub(crate) seq: u64,
    pub(crate) sandbox: Option<String>,
    pub(crate) last: u64,
    pub(crate) prev: String,
    pub(crate) hmac: String,
    /// Length of the signed part, in bytes.
    signed: usize,
}

#[derive(Deserialize)]
struct LineMembers<'a> {
    seq: u64,
    #[serde(borrow)]
    sandbox_id: Option<Cow<'a, str>>,
    last: u64,
    #[serde(borrow)]
    prev: Cow<'a, str>,
    #[serde(borrow)]
    hmac: Cow<'a, str>,
}

impl LogLine {
    /// Parses a line without its newline; `None` if it is not a line of an audit log.
    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        let signed = bytes.len().checked_sub(HMAC.len() + HEX + 2)?;
        let tail = bytes.get(signed..)?.strip_prefix(HMAC)?;
        if bytes.len() > LINE_BYTES_MAX || !tail.ends_with(b"\"}") {
            return None;
        }
        let frame: LineMembers<'_> = serde_json::from_slice(bytes).ok()?;
        Some(Self {
            seq: frame.seq,
            sandbox: frame.sandbox_id.map(Cow::into_owned),
            last: frame.last,
            prev: frame.prev.into_owned(),
            hmac: frame.hmac.into_owned(),
            signed,
        })
    }

    /// Whether the signature is valid for these bytes, from which the line was parsed.
    pub(crate) fn holds(&self, key: &ChainKey, bytes: &[u8]) -> bool {
        bytes.get(..self.signed).is_some_and(|text| key.sign(text) == self.hmac)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(sandbox: &str, text: &str) -> AuditEntry {
        let data = [("path".to_owned(), text.into())].into_iter().collect();
        let tenant = "t".to_owned();
        let sandbox = Some(sandbox.to_owned());
        AuditEntry { tenant, sandbox, event: "file.write".into(), at_ms: 0, data }
    }

    fn written(entry: &AuditEntry) -> Vec<u8> {
        let mut out = Vec::new();
        let place = ChainPosition { seq: 7, last: 3, prev: "ab" };
        write(&mut out, &ChainKey::of(b"secret", "t"), entry, place);
        out
    }

    /// Promises: T19.
    #[test]
    fn the_signature_is_hmac_as_others_make_it() {
        // RFC 4231, cases 2 and 6.
        let two = ChainKey::new(b"Jefe").sign(b"what do ya want for nothing?");
        assert_eq!(two, "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
        let six = ChainKey::new(&[0xaa; 131])
            .sign(b"Test Using Larger Than Block-Size Key - Hash Key First");
        assert_eq!(six, "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
    }

    #[test]
    fn a_line_reads_as_it_was_written() {
        let bytes = written(&entry("box", "/a \"b\""));
        let line = LogLine::read(&bytes[..bytes.len() - 1]).unwrap();
        assert_eq!((line.seq, line.last, line.prev.as_str()), (7, 3, "ab"));
        assert_eq!(line.sandbox.as_deref(), Some("box"));
        assert!(line.holds(&ChainKey::of(b"secret", "t"), &bytes[..bytes.len() - 1]));
        assert!(
            !line.holds(&ChainKey::of(b"secret", "u"), &bytes[..bytes.len() - 1]),
            "another tenant"
        );
    }

    #[test]
    fn a_line_has_the_form_that_older_releases_wrote() {
        let mut entry = entry("box", "/a \"b\" \u{e9}");
        entry.at_ms = 951_782_399_999;
        let signed = concat!(
            r#"{"seq":7,"ts":"2000-02-28T23:59:59.999Z","sandbox_id":"box","event":"file.write","#,
            r#""data":{"path":"/a \"b\" \u00e9"},"last":3,"prev":"ab""#
        );
        let hmac = ChainKey::of(b"secret", "t").sign(signed.as_bytes());
        let line = [signed, r#","hmac":""#, &hmac, "\"}\n"].concat();
        assert_eq!(written(&entry), line.as_bytes());
        entry.sandbox = None;
        entry.data.clear();
        let line = String::from_utf8(written(&entry)).unwrap();
        assert!(line.contains(r#""sandbox_id":null,"event":"file.write","data":{},"last":3"#));
    }

    #[test]
    fn t17_no_byte_of_a_line_can_be_another() {
        let bytes = written(&entry("box", "/a"));
        let bytes = &bytes[..bytes.len() - 1];
        let key = ChainKey::of(b"secret", "t");
        for at in 0..bytes.len() {
            for with in [1, 2, 0x20] {
                let mut other = bytes.to_vec();
                other[at] ^= with;
                let line = LogLine::read(&other);
                assert!(!line.is_some_and(|line| line.holds(&key, &other)), "byte {at}");
            }
        }
    }

    /// Promises: T17.
    #[test]
    fn t17_what_a_tenant_wrote_is_one_line_of_visible_letters() {
        let text = "a\n{\"seq\":1}\r\u{1b}[2J\u{7f}\u{9b}31m\u{202e}\u{2028}\u{1f600}\0";
        let bytes = written(&entry("box", text));
        let (end, body) = bytes.split_last().unwrap();
        assert!(*end == b'\n' && body.iter().all(|byte| (0x20..0x7f).contains(byte)));
        let value: Value = serde_json::from_slice(body).unwrap();
        assert_eq!(value["data"]["path"], text, "and nothing of it is lost");
    }

    #[test]
    fn what_is_too_much_is_left_out_and_told() {
        let bytes = written(&entry("box", &"x".repeat(1 << 20)));
        assert!(bytes.len() < 400, "{}", bytes.len());
        let value: Value = serde_json::from_slice(&bytes).unwrap();
        assert!(value["data"]["left_out_bytes"].as_u64().unwrap() > 1 << 20);
    }
}
