//! Exposed ports: ports with signed URLs. Each port has a secret that signs its URLs. Hiding the
//! port or deleting the sandbox removes the secret and so invalidates all URLs.
//!
//! A URL may contain a token that its client chose, instead of a signature: see [`link_token`].

pub mod link_token;

use crate::model::clock::now_ms;
use crate::model::error::Error;
use crate::model::ids::{self, SandboxId};
use isolet_store::Member;
use link_token::{NewLinkToken, StoredLinkToken};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Maximum number of exposed ports of one sandbox.
pub const EXPOSED_MAX: usize = 64;
/// Maximum length of a port's name, in bytes.
pub const NAME_BYTES_MAX: usize = 128;

/// A port with signed URLs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExposedPort {
    /// The secret that signs the URLs. It never leaves the server.
    pub secret: String,
    /// The name that the client gave the port.
    pub name: Option<String>,
    /// Time when the port was exposed, in ms since 1970.
    pub created_at_ms: i64,
    /// The URLs whose tokens clients chose.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tokens: Vec<StoredLinkToken>,
}

/// The exposed ports of one sandbox.
pub type ExposedPorts = BTreeMap<u16, ExposedPort>;

/// A change of the exposed ports.
#[derive(Debug)]
pub(crate) enum ExposeChange {
    /// Expose a port, optionally with a name, and with a token that the client chose.
    Expose(u16, Option<String>, Option<NewLinkToken>),
    /// Hide a port, which invalidates its URLs.
    Hide(u16),
}

impl ExposeChange {
    /// The port that this change hides.
    pub(crate) fn hides(&self) -> Option<u16> {
        match self {
            Self::Expose(..) => None,
            Self::Hide(port) => Some(*port),
        }
    }
}

/// The secret's position in the record. A port that is exposed again has another secret.
pub(crate) fn member(port: u16, exposed: &ExposedPort) -> Member {
    Member {
        object: "exposed".to_owned(),
        key: port.to_string(),
        field: "secret".to_owned(),
        value: exposed.secret.clone(),
    }
}

/// Gives every port another secret, and forgets the tokens that clients chose.
pub(crate) fn rotate(all: &mut ExposedPorts) {
    for exposed in all.values_mut() {
        exposed.secret = secret();
        exposed.tokens.clear();
    }
}

fn secret() -> String {
    format!("{}{}", ids::random(), ids::random())
}

/// Applies a change and returns the port's new or last state. `key_is_valid` says whether a key has
/// neither expired nor been revoked.
pub(crate) fn apply(
    all: &mut ExposedPorts,
    change: ExposeChange,
    id: &SandboxId,
    key_is_valid: &dyn Fn(&str) -> bool,
) -> Result<ExposedPort, Error> {
    match change {
        ExposeChange::Hide(port) => {
            all.remove(&port).ok_or_else(|| Error::NotExposed { id: id.clone(), port })
        }
        ExposeChange::Expose(port, name, token) => {
            if let Some(token) = &token {
                link_token::check(all, port, token, key_is_valid)?;
            }
            if !all.contains_key(&port) && all.len() >= EXPOSED_MAX {
                return Err(Error::TooManyExposed { max: EXPOSED_MAX });
            }
            if token.is_some() {
                link_token::drop_ended(all, key_is_valid);
            }
            let exposed = all.entry(port).or_insert_with(|| ExposedPort {
                secret: secret(),
                name: None,
                created_at_ms: now_ms(),
                tokens: Vec::new(),
            });
            if name.is_some() {
                exposed.name = name;
            }
            if let Some(token) = token {
                exposed.put_token(token);
            }
            Ok(exposed.clone())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn apply(
        all: &mut ExposedPorts,
        change: ExposeChange,
        id: &SandboxId,
    ) -> Result<ExposedPort, Error> {
        super::apply(all, change, id, &|_| true)
    }

    /// Promises: O10.
    #[test]
    fn a_port_that_is_linked_again_has_a_new_secret() {
        let mut all = ExposedPorts::new();
        let id = SandboxId::parse("a").expect("an id");
        let first = apply(&mut all, ExposeChange::Expose(80, Some("web".into()), None), &id)
            .expect("exposed");
        let again = apply(&mut all, ExposeChange::Expose(80, None, None), &id).expect("exposed");
        assert_eq!(first, again, "links made before still lead there");
        assert!(apply(&mut all, ExposeChange::Hide(80), &id).is_ok());
        assert!(matches!(
            apply(&mut all, ExposeChange::Hide(80), &id),
            Err(Error::NotExposed { .. })
        ));
        let other = apply(&mut all, ExposeChange::Expose(80, None, None), &id).expect("exposed");
        assert_ne!(first.secret, other.secret);
        for port in 1..=u16::MAX {
            if apply(&mut all, ExposeChange::Expose(port, None, None), &id).is_err() {
                break;
            }
        }
        assert_eq!(all.len(), EXPOSED_MAX);
    }
}
