//! Tokens that clients choose for URLs of ports, so that a URL stays the same when it is created
//! again.
//!
//! The record contains only a digest of a token, salted with the port's secret, so that no one can
//! read a token from it. A token belongs to the key that chose it, at one port of one sandbox.

use crate::model::clock::now_ms;
use crate::model::error::Error;
use crate::model::exposed_ports::{ExposedPort, ExposedPorts};
use crate::model::input::BadInput;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fmt;
use subtle::ConstantTimeEq;

/// Minimum length of a token. An address can try ten in a second, so a random one of this length cannot be
/// found by trial; one of words can.
pub const TOKEN_LETTERS_MIN: usize = 16;
/// Maximum length of a token.
pub const TOKEN_LETTERS_MAX: usize = 64;
/// Maximum number of tokens of one sandbox that have not expired and whose keys have not ended.
const TOKENS_MAX: usize = 64;

/// A token that a client chose. It appears in no log.
#[derive(Clone, PartialEq, Eq)]
pub struct LinkToken(String);

impl LinkToken {
    /// Parses a token.
    ///
    /// # Errors
    /// [`BadInput`], which does not repeat the token.
    pub fn parse(text: &str) -> Result<Self, BadInput> {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        let length = TOKEN_LETTERS_MIN..=TOKEN_LETTERS_MAX;
        if length.contains(&text.len()) && text.bytes().all(plain) {
            return Ok(Self(text.to_owned()));
        }
        let reason = format!(
            "must be {TOKEN_LETTERS_MIN} to {TOKEN_LETTERS_MAX} characters of A-Z, a-z, 0-9, - and _"
        );
        Err(BadInput { field: "token", reason })
    }

    /// The token as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for LinkToken {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("LinkToken(…)")
    }
}

/// A URL with a token that its client chose.
#[derive(Debug, Clone)]
pub struct NewLinkToken {
    /// The token.
    pub token: LinkToken,
    /// The key of the client; `None` if the server needs no keys.
    pub key: Option<String>,
    /// When the URL expires, in seconds since 1970.
    pub expires_s: u64,
}

/// What the record contains of such a URL.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredLinkToken {
    /// The digest of the token, in hexadecimal digits.
    digest: String,
    /// The key that chose it.
    pub key: Option<String>,
    /// When the URL expires, in seconds since 1970.
    pub expires_s: u64,
}

impl StoredLinkToken {
    fn is_over(&self) -> bool {
        self.expires_s <= now_ms().max(0) as u64 / 1000
    }

    /// Whether its URL works: neither it nor its key has ended.
    fn is_valid(&self, key_is_valid: &dyn Fn(&str) -> bool) -> bool {
        !self.is_over() && self.key.as_deref().is_none_or(key_is_valid)
    }
}

impl ExposedPort {
    /// The URL with this token, whether or not it has expired. The comparison takes the same time
    /// for every token.
    #[must_use]
    pub fn find_token(&self, token: &LinkToken) -> Option<&StoredLinkToken> {
        let digest = digest(&self.secret, token);
        let is_it =
            |one: &StoredLinkToken| bool::from(one.digest.as_bytes().ct_eq(digest.as_bytes()));
        // No early end: each is compared in full.
        self.tokens.iter().fold(None, |found, one| if is_it(one) { Some(one) } else { found })
    }

    /// Adds or renews a token.
    pub(crate) fn put_token(&mut self, new: NewLinkToken) {
        let NewLinkToken { token, key, expires_s } = new;
        let digest = digest(&self.secret, &token);
        self.tokens.retain(|one| one.digest != digest);
        self.tokens.push(StoredLinkToken { digest, key, expires_s });
    }
}

/// Drops the tokens of all ports that have ended.
pub(crate) fn drop_ended(all: &mut ExposedPorts, key_is_valid: &dyn Fn(&str) -> bool) {
    for exposed in all.values_mut() {
        exposed.tokens.retain(|one| one.is_valid(key_is_valid));
    }
}

/// Checks that the client may use a token for a port.
pub(crate) fn check(
    all: &ExposedPorts,
    port: u16,
    new: &NewLinkToken,
    key_is_valid: &dyn Fn(&str) -> bool,
) -> Result<(), Error> {
    let found = all.get(&port).and_then(|exposed| exposed.find_token(&new.token));
    if let Some(found) = found.filter(|found| found.is_valid(key_is_valid)) {
        return match found.key == new.key {
            true => Ok(()),
            false => Err(Error::LinkTokenInUse { port }),
        };
    }
    let tokens = all.values().flat_map(|exposed| &exposed.tokens);
    if tokens.filter(|one| one.is_valid(key_is_valid)).count() >= TOKENS_MAX {
        return Err(Error::TooManyLinkTokens { max: TOKENS_MAX });
    }
    Ok(())
}

fn digest(secret: &str, token: &LinkToken) -> String {
    // A secret contains no NUL, so its end is unambiguous.
    let salted = Sha256::new().chain_update(secret).chain_update([0]).chain_update(token.as_str());
    hex::encode(salted.finalize())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::exposed_ports::{ExposeChange, apply, rotate};
    use crate::model::ids::SandboxId;

    const TOKEN: &str = "preview-of_Demo-1";

    fn new(key: &str, token: &str, expires_s: u64) -> NewLinkToken {
        let token = LinkToken::parse(token).expect("a token");
        NewLinkToken { token, key: Some(key.to_owned()), expires_s }
    }

    fn expose(all: &mut ExposedPorts, port: u16, new: NewLinkToken) -> Result<ExposedPort, Error> {
        let id = SandboxId::parse("a").expect("an id");
        apply(all, ExposeChange::Expose(port, None, Some(new)), &id, &|key| key != "revoked")
    }

    fn later() -> u64 {
        now_ms() as u64 / 1000 + 100
    }

    #[test]
    fn only_the_stated_shape_is_a_token() {
        for good in [TOKEN, &"x".repeat(16), &"x".repeat(64)] {
            assert!(LinkToken::parse(good).is_ok(), "{good}");
        }
        for bad in [
            "",
            &"x".repeat(15),
            &"x".repeat(65),
            "sixteen-letters.",
            "sixteen~letters-",
            "größer-als-sechzehn",
        ] {
            let refused = LinkToken::parse(bad).expect_err(bad).to_string();
            assert!(bad.is_empty() || !refused.contains(bad), "{refused}");
        }
        assert_eq!(format!("{:?}", new("k", TOKEN, 1)).matches(TOKEN).count(), 0);
    }

    #[test]
    fn a_token_belongs_to_one_key_at_one_port() {
        let mut all = ExposedPorts::new();
        let first = expose(&mut all, 80, new("one", TOKEN, later())).expect("a token");
        let again = expose(&mut all, 80, new("one", TOKEN, later() + 50)).expect("the same token");
        assert_eq!(again.tokens.len(), 1);
        assert_eq!(again.tokens[0].expires_s, first.tokens[0].expires_s + 50, "renewed");
        let other = expose(&mut all, 80, new("two", TOKEN, later()));
        assert!(matches!(other, Err(Error::LinkTokenInUse { port: 80 })), "{other:?}");
        expose(&mut all, 81, new("two", TOKEN, later())).expect("another port");
        let token = LinkToken::parse(TOKEN).expect("a token");
        assert_eq!(all[&80].find_token(&token).expect("a token").key.as_deref(), Some("one"));
        let close = LinkToken::parse("preview-of_Demo-2").expect("a token");
        assert_eq!(all[&80].find_token(&close), None);
        rotate(&mut all);
        assert_eq!(all[&80].find_token(&token), None);
    }

    #[test]
    fn a_token_is_free_when_it_or_its_key_has_ended() {
        let mut all = ExposedPorts::new();
        expose(&mut all, 80, new("one", TOKEN, 1)).expect("a token");
        expose(&mut all, 80, new("revoked", TOKEN, later())).expect("free: it has expired");
        let last =
            expose(&mut all, 80, new("two", TOKEN, later())).expect("free: its key was revoked");
        assert_eq!(last.tokens.len(), 1);
        assert_eq!(last.tokens[0].key.as_deref(), Some("two"));
    }

    #[test]
    fn the_tokens_of_a_sandbox_are_limited() {
        let mut all = ExposedPorts::new();
        for n in 0..TOKENS_MAX {
            let port = 80 + (n % 4) as u16;
            expose(&mut all, port, new("one", &format!("{TOKEN}-{n}"), later())).expect("a token");
        }
        let more = expose(&mut all, 90, new("one", TOKEN, later()));
        assert!(matches!(more, Err(Error::TooManyLinkTokens { max: TOKENS_MAX })), "{more:?}");
        assert!(!all.contains_key(&90), "nothing changed");
        expose(&mut all, 80, new("one", &format!("{TOKEN}-0"), later())).expect("renewed");
        // Those of a key that has ended do not count, and do not stay.
        all.values_mut().flat_map(|exposed| &mut exposed.tokens).for_each(|one| {
            one.key = Some("revoked".to_owned());
        });
        expose(&mut all, 90, new("one", TOKEN, later())).expect("the other keys have ended");
        assert_eq!(all.values().map(|exposed| exposed.tokens.len()).sum::<usize>(), 1);
    }
}
