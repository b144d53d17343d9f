//! Exposed ports: ports with signed URLs. Each port has a secret that signs its URLs. Hiding the
//! port or deleting the sandbox removes the secret and so invalidates all URLs.

use crate::model::clock::now_ms;
use crate::model::error::Error;
use crate::model::ids::{self, SandboxId};
use isolet_store::Member;
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
}

/// The exposed ports of one sandbox.
pub type ExposedPorts = BTreeMap<u16, ExposedPort>;

/// A change of the exposed ports.
#[derive(Debug)]
pub(crate) enum ExposeChange {
    /// Expose a port, optionally with a name.
    Expose(u16, Option<String>),
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

/// Gives every port another secret.
pub(crate) fn rotate(all: &mut ExposedPorts) {
    for exposed in all.values_mut() {
        exposed.secret = secret();
    }
}

fn secret() -> String {
    format!("{}{}", ids::random(), ids::random())
}

/// Applies a change and returns the port's new or last state.
pub(crate) fn apply(
    all: &mut ExposedPorts,
    change: ExposeChange,
    id: &SandboxId,
) -> Result<ExposedPort, Error> {
    match change {
        ExposeChange::Hide(port) => {
            all.remove(&port).ok_or_else(|| Error::NotExposed { id: id.clone(), port })
        }
        ExposeChange::Expose(port, name) => {
            if !all.contains_key(&port) && all.len() >= EXPOSED_MAX {
                return Err(Error::TooManyExposed { max: EXPOSED_MAX });
            }
            let exposed = all.entry(port).or_insert_with(|| ExposedPort {
                secret: secret(),
                name: None,
                created_at_ms: now_ms(),
            });
            if name.is_some() {
                exposed.name = name;
            }
            Ok(exposed.clone())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Promises: O10.
    #[test]
    fn a_port_that_is_linked_again_has_a_new_secret() {
        let mut all = ExposedPorts::new();
        let id = SandboxId::parse("a").expect("an id");
        let first =
            apply(&mut all, ExposeChange::Expose(80, Some("web".into())), &id).expect("exposed");
        let again = apply(&mut all, ExposeChange::Expose(80, None), &id).expect("exposed");
        assert_eq!(first, again, "links made before still lead there");
        assert!(apply(&mut all, ExposeChange::Hide(80), &id).is_ok());
        assert!(matches!(
            apply(&mut all, ExposeChange::Hide(80), &id),
            Err(Error::NotExposed { .. })
        ));
        let other = apply(&mut all, ExposeChange::Expose(80, None), &id).expect("exposed");
        assert_ne!(first.secret, other.secret);
        for port in 1..=u16::MAX {
            if apply(&mut all, ExposeChange::Expose(port, None), &id).is_err() {
                break;
            }
        }
        assert_eq!(all.len(), EXPOSED_MAX);
    }
}
