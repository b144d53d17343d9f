//! API keys: only their SHA-256 is kept.

use crate::Error;
use std::path::Path;

/// What a key allows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// The key's id.
    pub key: String,
    /// Whose it is.
    pub tenant: String,
    /// Only reading calls.
    pub read_only: bool,
}

/// A key, as it is listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key {
    /// By which it is revoked.
    pub id: String,
    /// Whose it is.
    pub tenant: String,
    /// The owner's word for it.
    pub label: String,
    /// Only reading calls.
    pub read_only: bool,
    /// Milliseconds since 1970.
    pub created_at_ms: i64,
    /// From then on it opens nothing.
    pub expires_at_ms: Option<i64>,
    /// Since then it opens nothing.
    pub revoked_at_ms: Option<i64>,
}

/// A key to be made.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NewKey {
    /// Whose it will be.
    pub tenant: String,
    /// The owner's word for it, at most 200 bytes.
    pub label: String,
    /// Only reading calls.
    pub read_only: bool,
    /// Milliseconds since 1970; `None` never.
    pub expires_at_ms: Option<i64>,
}

/// The keys of a data directory. Works beside a running server, in another process too: a key
/// that was added or revoked counts from the next call on. Clones share one.
#[derive(Clone)]
pub struct Keys {}

impl Keys {
    /// Opens the records; makes them when they are not there. Blocks.
    ///
    /// # Errors
    /// [`Error`].
    pub fn open(file: &Path) -> Result<Self, Error> {
        let _ = file;
        todo!()
    }

    /// Makes a key; the secret is told here only. Blocks.
    ///
    /// # Errors
    /// [`Error`].
    pub fn add(&self, new: &NewKey) -> Result<(Key, String), Error> {
        let _ = new;
        todo!()
    }

    /// All keys, revoked ones too. Blocks.
    ///
    /// # Errors
    /// [`Error`].
    pub fn list(&self) -> Result<Vec<Key>, Error> {
        todo!()
    }

    /// Ends a key by its id; `false` when there is none. Blocks.
    ///
    /// # Errors
    /// [`Error`].
    pub fn revoke(&self, id: &str) -> Result<bool, Error> {
        let _ = id;
        todo!()
    }

    /// What a secret opens; `None`: nothing (unknown, revoked, expired). A few microseconds.
    ///
    /// # Errors
    /// [`Error`].
    pub fn check(&self, secret: &str) -> Result<Option<Grant>, Error> {
        let _ = secret;
        todo!()
    }
}
