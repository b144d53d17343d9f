//! The index: every authority and certificate. The other files of the directory are made from it.

use crate::certificates::DAY_S;
use crate::certificates::error::CertificateError;
use crate::certificates::serial::Serial;
use crate::files;
use isolet_wire::node::NodeName;
use serde::{Deserialize, Serialize};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// The version of the format that this program writes.
const FORMAT: u32 = 1;
/// Maximum number of certificates: 200 bytes each, so that the file stays below its maximum size.
const CERTIFICATES_MAX: usize = 20_000;
/// How long an expired certificate stays in the index and in the revocation list, in seconds.
/// Clocks of nodes may be behind.
const EXPIRED_S: i64 = 30 * DAY_S;

/// What an authority does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AuthorityState {
    /// Trusted, but it signs no certificates of nodes before `rotate-ca switch`.
    Incoming,
    /// It signs the certificates of nodes.
    Issuing,
    /// Trusted until `rotate-ca finish`. It signs only its revocation list.
    Outgoing,
}

/// An authority that nodes trust.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AuthorityRecord {
    /// The number in the name of its key file. The next authority has the next number.
    pub id: u32,
    /// The common name in its certificate. No two authorities have the same name.
    pub name: String,
    /// What it does.
    pub state: AuthorityState,
    /// When its certificate expires, in seconds since 1970.
    pub expires_at_s: i64,
    /// Its certificate as PEM.
    pub certificate: String,
}

/// A certificate that was issued to a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CertificateRecord {
    /// Its serial number.
    pub serial: Serial,
    /// The node.
    pub node: NodeName,
    /// The authority that signed it.
    pub authority: u32,
    /// When it was issued, in seconds since 1970.
    pub issued_at_s: i64,
    /// When it expires, in seconds since 1970.
    pub expires_at_s: i64,
    /// When it was revoked, in seconds since 1970.
    pub revoked_at_s: Option<i64>,
}

/// Whether other nodes accept a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CertificateState {
    /// It is accepted, and is the newest one of its node.
    Valid,
    /// It is accepted, and the node has a newer one.
    Replaced,
    /// It is no longer accepted, because its time is over.
    Expired,
    /// It is not accepted.
    Revoked,
}

/// Every authority and certificate of a fleet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Index {
    format: u32,
    /// The number of the newest revocation lists. Each signing increases it.
    pub(super) list_number: u64,
    pub(super) authorities: Vec<AuthorityRecord>,
    pub(super) certificates: Vec<CertificateRecord>,
}

impl Index {
    pub(super) fn new(authority: AuthorityRecord) -> Self {
        Self {
            format: FORMAT,
            list_number: 0,
            authorities: vec![authority],
            certificates: Vec::new(),
        }
    }

    /// Reads the index of a directory. Blocks.
    ///
    /// # Errors
    /// The directory has no CA, or the file is unusable.
    pub fn read(directory: &Path) -> Result<Self, CertificateError> {
        let path = path(directory);
        let text = files::read(&path).map_err(|error| match error.kind() {
            ErrorKind::NotFound => CertificateError::Missing(directory.to_owned()),
            _ => CertificateError::file(&path)(error),
        })?;
        let damaged = |reason: String| CertificateError::Damaged { path: path.clone(), reason };
        let index: Self =
            serde_json::from_slice(&text).map_err(|error| damaged(error.to_string()))?;
        if index.format != FORMAT {
            let reason = format!("its format is {}, and this version reads {FORMAT}", index.format);
            return Err(damaged(reason));
        }
        let issuing = |record: &&AuthorityRecord| record.state == AuthorityState::Issuing;
        if index.authorities.iter().filter(issuing).count() != 1 {
            return Err(damaged("it does not have exactly one authority that issues".to_owned()));
        }
        Ok(index)
    }

    /// Replaces the index of a directory. Blocks.
    pub(super) fn write(&self, directory: &Path) -> Result<(), CertificateError> {
        let path = path(directory);
        let mut text = serde_json::to_vec_pretty(self).map_err(|error| {
            CertificateError::Damaged { path: path.clone(), reason: error.to_string() }
        })?;
        text.push(b'\n');
        files::replace(&path, &text).map_err(CertificateError::file(&path))
    }

    /// The trusted authorities, from the oldest to the newest.
    #[must_use]
    pub fn authorities(&self) -> &[AuthorityRecord] {
        &self.authorities
    }

    /// All certificates, from the oldest to the newest.
    #[must_use]
    pub fn certificates(&self) -> &[CertificateRecord] {
        &self.certificates
    }

    /// Whether other nodes accept a certificate at a time.
    #[must_use]
    pub fn state(&self, record: &CertificateRecord, now_s: i64) -> CertificateState {
        let newest = self.newest(&record.node).is_none_or(|newest| newest.serial == record.serial);
        if record.revoked_at_s.is_some() {
            CertificateState::Revoked
        } else if record.expires_at_s <= now_s {
            CertificateState::Expired
        } else if newest {
            CertificateState::Valid
        } else {
            CertificateState::Replaced
        }
    }

    /// The newest certificate of a node that is not revoked.
    pub(super) fn newest(&self, node: &NodeName) -> Option<&CertificateRecord> {
        let own = |record: &&CertificateRecord| record.node == *node;
        self.certificates.iter().rev().filter(own).find(|record| record.revoked_at_s.is_none())
    }

    /// Nodes whose newest certificate ends within a time, or is not of the issuing authority.
    #[must_use]
    pub fn due(&self, within_s: i64, now_s: i64) -> Vec<NodeName> {
        let issuing = self.issuing().map(|authority| authority.id);
        let mut nodes: Vec<NodeName> = Vec::new();
        for record in &self.certificates {
            let newest = self.newest(&record.node);
            let is_newest = newest.is_some_and(|newest| newest.serial == record.serial);
            let ends = record.expires_at_s.saturating_sub(now_s) <= within_s;
            if is_newest && (ends || Some(record.authority) != issuing) {
                nodes.push(record.node.clone());
            }
        }
        nodes.sort();
        nodes
    }

    /// The authority that signs certificates of nodes.
    pub(super) fn issuing(&self) -> Option<&AuthorityRecord> {
        self.authorities.iter().find(|record| record.state == AuthorityState::Issuing)
    }

    /// Adds a certificate, and forgets those that expired long ago.
    pub(super) fn add(
        &mut self,
        record: CertificateRecord,
        now_s: i64,
    ) -> Result<(), CertificateError> {
        self.certificates.retain(|record| record.expires_at_s.saturating_add(EXPIRED_S) > now_s);
        if self.certificates.len() >= CERTIFICATES_MAX {
            return Err(CertificateError::TooMany(CERTIFICATES_MAX));
        }
        self.certificates.push(record);
        Ok(())
    }
}

pub(super) fn path(directory: &Path) -> PathBuf {
    directory.join("index.json")
}
