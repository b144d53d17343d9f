//! Ports with signed links. Each has a secret of its own, which signs its links. Withdrawing the
//! port, or the end of the sandbox, removes the secret and so all its links.

use crate::model::{
    clock::now_ms,
    error::Error,
    ids::{self, SandboxId},
};
use isolet_store::Member;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Ports of one sandbox that links lead to.
pub const EXPOSED_MAX: usize = 64;
/// The longest name of one, in bytes.
pub const NAME_BYTES_MAX: usize = 128;

/// A port that links lead to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exposed {
    /// What its links are signed with. Told to nobody.
    pub secret: String,
    /// What its owner calls it.
    pub name: Option<String>,
    /// Since when, in ms since 1970.
    pub created_at_ms: i64,
}

/// All of one sandbox, by port.
pub type All = BTreeMap<u16, Exposed>;

/// What a driver changes of them.
#[derive(Debug)]
pub(crate) enum Change {
    /// Links may lead to it, under this name where one is given.
    Expose(u16, Option<String>),
    /// No link leads to it any more.
    Hide(u16),
}

impl Change {
    /// The port that links no longer lead to.
    pub(crate) fn hides(&self) -> Option<u16> {
        match self {
            Self::Expose(..) => None,
            Self::Hide(port) => Some(*port),
        }
    }
}

/// Where a record has this port: exposed again, it has another secret and is another member.
pub(crate) fn member(port: u16, exposed: &Exposed) -> Member {
    Member {
        object: "exposed".to_owned(),
        key: port.to_string(),
        field: "secret".to_owned(),
        value: exposed.secret.clone(),
    }
}

/// Applies a change; the port as it is, or was.
pub(crate) fn apply(all: &mut All, change: Change, id: &SandboxId) -> Result<Exposed, Error> {
    match change {
        Change::Hide(port) => {
            all.remove(&port).ok_or_else(|| Error::NotExposed { id: id.clone(), port })
        }
        Change::Expose(port, name) => {
            if !all.contains_key(&port) && all.len() >= EXPOSED_MAX {
                return Err(Error::TooManyExposed { max: EXPOSED_MAX });
            }
            let exposed = all.entry(port).or_insert_with(|| Exposed {
                secret: format!("{}{}", ids::random(), ids::random()),
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
    fn a_port_that_was_withdrawn_has_another_secret_when_it_comes_back() {
        let mut all = All::new();
        let id = SandboxId::parse("a").expect("an id");
        let first = apply(&mut all, Change::Expose(80, Some("web".into())), &id).expect("exposed");
        let again = apply(&mut all, Change::Expose(80, None), &id).expect("exposed");
        assert_eq!(first, again, "links made before still lead there");
        assert!(apply(&mut all, Change::Hide(80), &id).is_ok());
        assert!(matches!(apply(&mut all, Change::Hide(80), &id), Err(Error::NotExposed { .. })));
        let other = apply(&mut all, Change::Expose(80, None), &id).expect("exposed");
        assert_ne!(first.secret, other.secret);
        for port in 1..=u16::MAX {
            if apply(&mut all, Change::Expose(port, None), &id).is_err() {
                break;
            }
        }
        assert_eq!(all.len(), EXPOSED_MAX);
    }
}
