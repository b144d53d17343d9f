//! Signed links: URLs that grant access to one port of one sandbox for a limited time.
//!
//! A link contains tenant, key, sandbox, port and expiry, signed with the port's own secret, so
//! that the server stores nothing for it. It becomes invalid when it expires, when its key is
//! revoked, when the links of the port are revoked, or the sandbox is deleted. A link may contain a
//! token that its client chose instead: see [`link_token`].

use crate::auth::caller::Caller;
use crate::auth::link_token;
use crate::auth::not_found_limiter::{Network, NotFoundLimiter};
use crate::foundation::error::ApiError;
use crate::foundation::extensions::Peer;
use axum::http::StatusCode;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, Mac};
use isolet_sandbox::{SandboxId, Service, TenantId};
use sha2::{Digest, Sha256};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use subtle::ConstantTimeEq;

/// The longest lifetime: thirty days.
pub(crate) const TTL_MAX: Duration = Duration::from_secs(30 * 24 * 3600);
/// The longest token, in characters: two ids, a key's id, and fields of fixed length.
const TOKEN_LETTERS_MAX: usize = 640;
const VERSION: u8 = 1;
const MAC_BYTES: usize = 32;
/// The path prefix of links when the server has no domain for ports.
pub(crate) const PATH_PREFIX: &str = "/v1/links/";

/// What a signed token is for. A token for one purpose opens nothing of the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// A link: the program on the port.
    Program,
    /// An access token of E2B: commands and files of the sandbox.
    DataPlane,
}

impl Purpose {
    fn byte(self) -> u8 {
        match self {
            Self::Program => 0,
            Self::DataPlane => 1,
        }
    }

    fn of_byte(byte: u8) -> Option<Self> {
        [Self::Program, Self::DataPlane].into_iter().find(|purpose| purpose.byte() == byte)
    }
}

/// What a link grants access to.
#[derive(Debug, Clone)]
pub(crate) struct SignedLink {
    pub(crate) purpose: Purpose,
    /// The caller on whose behalf the link works.
    pub(crate) caller: Caller,
    pub(crate) sandbox: SandboxId,
    pub(crate) port: u16,
    /// When the link expires, in seconds since 1970.
    pub(crate) expires_s: u64,
}

impl SignedLink {
    /// The time until the link expires.
    pub(crate) fn time_left(&self) -> Duration {
        Duration::from_secs(self.expires_s).saturating_sub(since_epoch())
    }

    /// The bytes that the signature covers.
    fn signed_bytes(&self) -> Vec<u8> {
        let mut text = vec![VERSION, self.purpose.byte()];
        text.extend_from_slice(&self.expires_s.to_be_bytes());
        text.extend_from_slice(&self.port.to_be_bytes());
        let key = self.caller.key.as_deref().unwrap_or_default();
        for part in [self.caller.tenant.as_str(), key, self.sandbox.as_str()] {
            // All three are ids of at most 128 bytes.
            text.push(u8::try_from(part.len()).unwrap_or(u8::MAX));
            text.extend_from_slice(part.as_bytes());
        }
        text
    }

    fn parse(mut text: &[u8]) -> Option<Self> {
        let mut take = |count: usize| {
            let (part, rest) = text.split_at_checked(count)?;
            text = rest;
            Some(part)
        };
        if take(1)? != [VERSION] {
            return None;
        }
        let purpose = Purpose::of_byte(take(1)?[0])?;
        let expires_s = u64::from_be_bytes(take(8)?.try_into().ok()?);
        let port = u16::from_be_bytes(take(2)?.try_into().ok()?);
        let mut part = || {
            let count = usize::from(take(1)?[0]);
            std::str::from_utf8(take(count)?).ok()
        };
        let tenant = part()?;
        let key = part()?;
        let sandbox = part()?;
        let caller = Caller {
            tenant: TenantId::parse(tenant).ok()?,
            read_only: false,
            key: (!key.is_empty()).then(|| key.to_owned()),
            ticket_scope: None,
            forwarded: false,
        };
        let sandbox = SandboxId::parse(sandbox).ok()?;
        text.is_empty().then_some(Self { purpose, caller, sandbox, port, expires_s })
    }

    /// What a signed token says, before its signature is checked. It grants nothing.
    pub(crate) fn unverified(token: &str) -> Option<Self> {
        Self::parse(split(&decode(token)?)?.0)
    }

    /// The token for this incarnation of the sandbox.
    pub(crate) fn token(&self, secret: &str, life: &str) -> String {
        let mut text = self.signed_bytes();
        let mac = sign(secret, life, &text);
        text.extend_from_slice(&mac);
        URL_SAFE_NO_PAD.encode(text)
    }
}

/// Decodes a token.
fn decode(token: &str) -> Option<Vec<u8>> {
    if token.len() > TOKEN_LETTERS_MAX {
        return None;
    }
    URL_SAFE_NO_PAD.decode(token).ok()
}

/// The signed bytes and the signature of a decoded token.
fn split(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    bytes.split_at_checked(bytes.len().checked_sub(MAC_BYTES)?)
}

/// What the token of a link says, signed or chosen by a client, before it is verified.
pub(crate) fn unverified(token: &str) -> Option<SignedLink> {
    let signed = SignedLink::unverified(token).filter(|link| link.purpose == Purpose::Program);
    signed.or_else(|| link_token::unverified(token))
}

/// Checks the token of a link, signed or chosen by a client, and returns what it grants access to
/// now. A right token is always accepted. Wrong ones of the second kind count against the address of
/// the client.
///
/// # Errors
/// 429 for a wrong token of an address that has sent too many.
pub(crate) fn verify(
    service: &Service,
    guesses: &NotFoundLimiter,
    client: Option<&Peer>,
    token: &str,
) -> Result<Option<SignedLink>, ApiError> {
    let signed = verify_signed(service, Purpose::Program, token);
    if signed.is_some() || !link_token::is_chosen(token) {
        return Ok(signed);
    }
    let link = link_token::verify(service, token);
    if link.is_none() {
        guesses.record_wrong(Network::of_client(client), Instant::now())?;
    }
    Ok(link)
}

/// Checks a signed token, and returns what it grants access to now.
pub(crate) fn verify_signed(
    service: &Service,
    purpose: Purpose,
    token: &str,
) -> Option<SignedLink> {
    let bytes = decode(token)?;
    let (text, mac) = split(&bytes)?;
    let link = SignedLink::parse(text).filter(|link| link.purpose == purpose)?;
    let (life, all) = service.exposed(&link.caller.tenant, &link.sandbox).ok()?;
    let exposed = all.get(&link.port)?;
    let right = bool::from(sign(&exposed.secret, &life, text).ct_eq(mac));
    let key = link.caller.key.as_deref();
    let held = right && key.is_none_or(|key| service.keys().is_valid(key).unwrap_or(false));
    (held && link.expires_s > since_epoch().as_secs()).then_some(link)
}

/// HMAC-SHA256 (RFC 2104) of the sandbox's incarnation and the signed bytes.
fn sign(secret: &str, life: &str, text: &[u8]) -> [u8; MAC_BYTES] {
    let key = Sha256::digest(secret.as_bytes());
    let mac = Hmac::<Sha256>::new_from_slice(&key).expect("HMAC accepts a key of any length");
    // The name of an incarnation contains no NUL, so its end is unambiguous.
    mac.chain_update(life).chain_update([0]).chain_update(text).finalize().into_bytes().into()
}

/// The expiry of a link that lives until `end`, in whole seconds. Rounded up, because a link of one
/// second would otherwise mostly have expired before the client receives it.
pub(crate) fn expiry_s(end: Duration) -> u64 {
    end.as_secs() + u64::from(end.subsec_nanos() > 0)
}

pub(crate) fn since_epoch() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// The token of a path below [`PATH_PREFIX`].
pub(crate) fn token_in_path(path: &str) -> Option<&str> {
    path.strip_prefix(PATH_PREFIX)?.split('/').next()
}

/// 401: the link is unknown or no longer valid.
pub(crate) fn bad_link() -> ApiError {
    ApiError::new(
        StatusCode::UNAUTHORIZED,
        "bad_link",
        "the link is invalid, has expired, or was revoked",
        "create another with POST /v1/sandboxes/{id}/links",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link() -> SignedLink {
        let caller = Caller {
            tenant: TenantId::parse("t").unwrap(),
            read_only: false,
            key: Some("k".into()),
            ticket_scope: None,
            forwarded: false,
        };
        let sandbox = SandboxId::parse("box").unwrap();
        SignedLink { purpose: Purpose::Program, caller, sandbox, port: 80, expires_s: 7 }
    }

    /// Promises: O10.
    #[test]
    fn t16_a_link_is_bound_to_all_that_it_says() {
        let text = link().signed_bytes();
        let back = SignedLink::parse(&text).unwrap();
        assert_eq!(back.signed_bytes(), text);
        let other = SignedLink { purpose: Purpose::DataPlane, ..link() }.signed_bytes();
        assert_ne!(other, text);
        assert_eq!(SignedLink::parse(&other).unwrap().purpose, Purpose::DataPlane);
        assert!(SignedLink::parse(&[&[VERSION, 2], &text[2..]].concat()).is_none());
        assert!(
            (0..text.len()).all(|end| SignedLink::parse(&text[..end]).is_none()),
            "cut anywhere"
        );
        assert!(SignedLink::parse(&[&text[..], b"x"].concat()).is_none());
        let mac = sign("s", "life", &text);
        let others = [sign("S", "life", &text), sign("s", "lif", &text), sign("s", "life", b"")];
        assert!(others.iter().all(|other| *other != mac));
        for at in 0..text.len() {
            let mut other = text.clone();
            other[at] ^= 1;
            assert_ne!(sign("s", "life", &other), mac, "byte {at}");
        }
    }

    /// Promises: L14.
    #[test]
    fn a_link_lives_at_least_as_long_as_it_was_asked_to() {
        let second = Duration::from_secs(1);
        for made in
            [Duration::from_secs(7), Duration::from_millis(7_001), Duration::new(7, 999_999_999)]
        {
            let ends = Duration::from_secs(expiry_s(made + second));
            assert!(ends >= made + second && ends < made + 2 * second, "{made:?}: {ends:?}");
        }
    }

    /// Promises: O10.
    #[test]
    fn the_signature_is_hmac_as_others_make_it() {
        // python3 -c 'import hmac,hashlib; print(hmac.new(hashlib.sha256(b"key").digest(), b"life\0text", "sha256").hexdigest())'
        let digits = hex::encode(sign("key", "life", b"text"));
        assert_eq!(digits, "0a85f9bb49feaafa4613fafabdf9d3f22dc4fd53e1befb286c117a1986ca92fe");
    }
}
