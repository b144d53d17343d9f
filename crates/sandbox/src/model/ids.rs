//! Validated ids: parsed once at the boundary and trusted everywhere else.

use serde::{Deserialize, Serialize};
use std::borrow::Borrow;
use std::fmt;
use std::str::FromStr;

/// Maximum length of an id, in bytes.
pub const ID_BYTES_MAX: usize = 128;
const LETTERS: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";

/// The text is not a valid id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{kind} id must match [A-Za-z0-9][A-Za-z0-9._-]{{0,127}}")]
pub struct BadId {
    /// The kind of id: `sandbox`, `session`, `process`, `context`, `snapshot` or `tenant`.
    pub kind: &'static str,
}

/// Whether a text is a valid id of any kind.
fn valid(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.len() <= ID_BYTES_MAX
        && bytes.first().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.iter().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'))
}

/// 128 random bits as 26 letters and digits (`[a-z2-7]`).
///
/// # Panics
/// If the kernel provides no random bytes, which cannot happen on Linux after boot.
#[must_use]
pub fn random() -> String {
    let mut bytes = [0u8; 16];
    getrandom::fill(&mut bytes).expect("random bytes");
    let mut left = u128::from_ne_bytes(bytes);
    let mut text = String::with_capacity(26);
    for _ in 0..26 {
        text.push(char::from(LETTERS[(left & 31) as usize]));
        left >>= 5;
    }
    text
}

impl SessionId {
    /// Creates a random id in the format of the Pokee dialect: `sess_` and 12 hexadecimal digits.
    ///
    /// # Panics
    /// See [`random`].
    #[must_use]
    pub fn short() -> Self {
        let mut bytes = [0u8; 6];
        getrandom::fill(&mut bytes).expect("random bytes");
        Self(format!("sess_{}", hex::encode(bytes)))
    }

    /// Whether the id has the format of [`SessionId::short`].
    #[must_use]
    pub fn is_short(&self) -> bool {
        let digits = self.as_str().strip_prefix("sess_").filter(|digits| digits.len() == 12);
        digits.is_some_and(|digits| digits.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')))
    }
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $kind:literal, $prefix:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            /// Parses an id from a client.
            ///
            /// # Errors
            /// [`BadId`] unless it matches `[A-Za-z0-9][A-Za-z0-9._-]{0,127}`.
            pub fn parse(text: &str) -> Result<Self, BadId> {
                if valid(text) { Ok(Self(text.to_owned())) } else { Err(BadId { kind: $kind }) }
            }

            /// Creates a random id: a prefix and 128 random bits.
            #[must_use]
            pub fn random() -> Self {
                Self(format!(concat!($prefix, "{}"), random()))
            }

            /// The id as text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl FromStr for $name {
            type Err = BadId;
            fn from_str(text: &str) -> Result<Self, BadId> {
                Self::parse(text)
            }
        }

        impl TryFrom<String> for $name {
            type Error = BadId;
            fn try_from(text: String) -> Result<Self, BadId> {
                if valid(&text) { Ok(Self(text)) } else { Err(BadId { kind: $kind }) }
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> Self {
                id.0
            }
        }

        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }
    };
}

id!(
    /// A sandbox's id, unique within its tenant.
    SandboxId, "sandbox", "sb_"
);
id!(
    /// A session's id, unique within its sandbox.
    SessionId, "session", "se_"
);
id!(
    /// The id of a background process, unique within its sandbox.
    ProcessId, "process", "proc_"
);
id!(
    /// A code context's id, unique within its sandbox.
    ContextId, "context", "ctx_"
);
id!(
    /// A snapshot's id, unique within its tenant.
    SnapshotId, "snapshot", "snap_"
);
id!(
    /// The owner of API keys and sandboxes.
    TenantId, "tenant", "te_"
);

/// A sandbox of a tenant.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OwnedId {
    /// The tenant.
    pub tenant: TenantId,
    /// The sandbox's id, unique within the tenant.
    pub id: SandboxId,
}

impl ProcessId {
    /// The id of a process that is started under an idempotency key. The same key always gives the
    /// same id.
    #[must_use]
    pub fn of_key(key: &str) -> Self {
        Self(of_key("proc_", key))
    }
}

impl ContextId {
    /// The id of a context that is opened under an idempotency key. The same key always gives the
    /// same id.
    #[must_use]
    pub fn of_key(key: &str) -> Self {
        Self(of_key("ctx_", key))
    }
}

fn of_key(prefix: &str, key: &str) -> String {
    use sha2::{Digest, Sha256};
    let hash = Sha256::digest(key.as_bytes());
    let letter = |byte: &u8| char::from(LETTERS[usize::from(byte % 32)]);
    format!("{prefix}{}", hash.iter().take(26).map(letter).collect::<String>())
}

impl SessionId {
    /// The id of the session that exists in every sandbox.
    #[must_use]
    pub fn default_session() -> Self {
        Self("default".to_owned())
    }

    /// Whether this is the session that cannot be deleted.
    #[must_use]
    pub fn is_default(&self) -> bool {
        self.0 == "default"
    }
}

impl TenantId {
    /// The tenant of the key in `ISOLET_API_KEY` and of the first key.
    #[must_use]
    pub fn default_tenant() -> Self {
        Self("default".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_stated_shape_is_an_id() {
        for good in ["a", "9", "A.b_c-d", &"x".repeat(128)] {
            assert!(SandboxId::parse(good).is_ok(), "{good}");
        }
        for bad in ["", ".", "..", "-a", "_a", "a/b", "a b", "a\0", "ä", "a\n", &"x".repeat(129)] {
            assert!(SandboxId::parse(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn made_ids_are_ids_and_differ() {
        let a = SandboxId::random();
        let b = SandboxId::random();
        assert_ne!(a, b);
        assert_eq!(a.as_str().len(), 29);
        assert!(SandboxId::parse(a.as_str()).is_ok());
        let name = random();
        assert!(
            name.len() == 26 && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit())
        );
    }

    #[test]
    fn json_cannot_smuggle_a_bad_id() {
        assert!(serde_json::from_str::<SessionId>("\"../x\"").is_err());
        assert_eq!(serde_json::from_str::<SessionId>("\"a\"").unwrap().as_str(), "a");
    }
}
