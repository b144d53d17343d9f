//! Commands on the directory of a CA: create it, issue and revoke certificates.

use crate::certificates::authority::{self, Authority};
use crate::certificates::error::CertificateError;
use crate::certificates::index::{AuthorityState, CertificateRecord, Index};
use crate::certificates::issued::{self, Issued};
use crate::certificates::serial::Serial;
use crate::certificates::{DAY_S, NODE_DAYS_MAX};
use crate::files;
use crate::parsed::lowest_list_number;
use isolet_wire::node::NodeName;
use rustix::fs::{FlockOperation, flock};
use std::fs::{File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// The directory of a CA, locked. Its methods block.
#[derive(Debug)]
pub struct Cluster {
    pub(super) directory: PathBuf,
    pub(super) index: Index,
    _lock: File,
}

/// What to revoke.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Revocation {
    /// All certificates of a node.
    Node(NodeName),
    /// One certificate.
    Certificate(Serial),
}

impl Cluster {
    /// Creates a directory with a new authority.
    ///
    /// # Errors
    /// The directory has one already, or cannot be written.
    pub fn init(directory: &Path, now_s: i64) -> Result<Self, CertificateError> {
        issued::create_directory(directory)?;
        let lock = lock(directory)?;
        // An interrupted `init` left a key at most, which has signed nothing that was given away.
        match Index::read(directory) {
            Err(CertificateError::Missing(_)) => {}
            Ok(_) => return Err(CertificateError::Exists(directory.to_owned())),
            Err(error) => return Err(error),
        }
        let first = Authority::create(directory, 1, AuthorityState::Issuing, now_s)?;
        let index = Index::new(first);
        let mut cluster = Self { directory: directory.to_owned(), index, _lock: lock };
        cluster.save(now_s)?;
        Ok(cluster)
    }

    /// Opens the directory of an authority, and completes what an interrupted command left.
    ///
    /// # Errors
    /// It has no authority, another command uses it, or a file is unusable.
    pub fn open(directory: &Path, now_s: i64) -> Result<Self, CertificateError> {
        Index::read(directory)?;
        let lock = lock(directory)?;
        let index = Index::read(directory)?;
        let mut cluster = Self { directory: directory.to_owned(), index, _lock: lock };
        cluster.remove_old_keys()?;
        if !cluster.is_saved() {
            cluster.save(now_s)?;
        }
        Ok(cluster)
    }

    /// Every authority and certificate.
    #[must_use]
    pub fn index(&self) -> &Index {
        &self.index
    }

    /// The file with the certificates of the trusted authorities.
    #[must_use]
    pub fn authorities_file(&self) -> PathBuf {
        self.directory.join("ca.pem")
    }

    /// The file with the revocation lists.
    #[must_use]
    pub fn lists_file(&self) -> PathBuf {
        self.directory.join("revoked.pem")
    }

    /// Issues a certificate with a new key to a node, whose earlier certificates stay valid, and
    /// writes its files into a directory. The certificate is valid for 1 to
    /// [`NODE_DAYS_MAX`] days, and no longer than the authority.
    ///
    /// # Errors
    /// The directory has the certificate of another node, the authority has expired, or a file
    /// cannot be written.
    pub fn issue(
        &mut self,
        node: &NodeName,
        days: u32,
        into: &Path,
        now_s: i64,
    ) -> Result<Issued, CertificateError> {
        let days = days.clamp(1, NODE_DAYS_MAX);
        let until_s = now_s.saturating_add(i64::from(days) * DAY_S);
        self.issue_until(node, until_s, into, now_s)
    }

    /// As [`Cluster::issue`], with the time when the certificate expires, in seconds since 1970.
    ///
    /// # Errors
    /// As [`Cluster::issue`].
    pub fn issue_until(
        &mut self,
        node: &NodeName,
        expires_at_s: i64,
        into: &Path,
        now_s: i64,
    ) -> Result<Issued, CertificateError> {
        issued::check_directory(into, node.as_str())?;
        let issuing = self.index.issuing().cloned();
        let issuing = issuing.ok_or_else(|| CertificateError::Missing(self.directory.clone()))?;
        if issuing.expires_at_s <= now_s {
            return Err(CertificateError::AuthorityExpired(issuing.name));
        }
        let record = CertificateRecord {
            serial: Serial::random()?,
            node: node.clone(),
            authority: issuing.id,
            issued_at_s: now_s,
            expires_at_s: expires_at_s.min(issuing.expires_at_s),
            revoked_at_s: None,
        };
        // The index first: a certificate that it does not know could not be revoked.
        self.index.add(record.clone(), now_s)?;
        let pair = Authority::open(&self.directory, &issuing)?.sign(&record)?;
        let lists = self.save(now_s)?;
        let authorities = self.authorities();
        let issued =
            Issued { record, certificate: pair.certificate, key: pair.key, authorities, lists };
        issued.write_to(into)?;
        Ok(issued)
    }

    /// Revokes certificates, and signs the lists again. Returns the certificates that were not
    /// revoked before; none if all were, which also signs the lists.
    ///
    /// # Errors
    /// Nothing matches, or a file cannot be written.
    pub fn revoke(
        &mut self,
        what: &Revocation,
        now_s: i64,
    ) -> Result<Vec<CertificateRecord>, CertificateError> {
        let mut found = false;
        let mut revoked = Vec::new();
        for record in &mut self.index.certificates {
            let matches = match what {
                Revocation::Node(node) => record.node == *node,
                Revocation::Certificate(serial) => record.serial == *serial,
            };
            found |= matches;
            if matches && record.revoked_at_s.is_none() {
                record.revoked_at_s = Some(now_s);
                revoked.push(record.clone());
            }
        }
        if !found {
            return Err(CertificateError::Unknown(match what {
                Revocation::Node(node) => node.to_string(),
                Revocation::Certificate(serial) => serial.to_string(),
            }));
        }
        self.save(now_s)?;
        Ok(revoked)
    }

    /// Signs the revocation lists again, so that they stay current.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn sign_lists(&mut self, now_s: i64) -> Result<(), CertificateError> {
        self.save(now_s).map(drop)
    }

    /// Writes the index, then the files that are made from it. Returns the revocation lists.
    pub(super) fn save(&mut self, now_s: i64) -> Result<String, CertificateError> {
        self.index.list_number += 1;
        self.index.write(&self.directory)?;
        let mut lists = String::new();
        for record in &self.index.authorities {
            let authority = Authority::open(&self.directory, record)?;
            let own = self.index.certificates.iter().filter(|one| one.authority == record.id);
            lists.push_str(&authority.sign_list(own, self.index.list_number, now_s)?);
        }
        for (path, content) in
            [(self.authorities_file(), &self.authorities()), (self.lists_file(), &lists)]
        {
            files::replace(&path, content.as_bytes()).map_err(CertificateError::file(&path))?;
        }
        Ok(lists)
    }

    /// Whether the files that are made from the index are those of this index.
    fn is_saved(&self) -> bool {
        let authorities = files::read(&self.authorities_file()).ok();
        let number = files::read(&self.lists_file()).ok().map(|lists| lowest_list_number(&lists));
        authorities.is_some_and(|text| text == self.authorities().as_bytes())
            && number == Some(Ok(Some(self.index.list_number)))
    }

    /// The certificates of the trusted authorities, as PEM.
    fn authorities(&self) -> String {
        self.index.authorities.iter().map(|record| record.certificate.as_str()).collect()
    }

    /// Removes keys of authorities before the first one of the index.
    pub(super) fn remove_old_keys(&self) -> Result<(), CertificateError> {
        let first = self.index.authorities.iter().map(|record| record.id).min().unwrap_or(0);
        for id in 1..first {
            let path = authority::key_path(&self.directory, id);
            match std::fs::remove_file(&path) {
                Ok(()) => {}
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                Err(error) => return Err(CertificateError::file(&path)(error)),
            }
            files::sync_directory(&self.directory)
                .map_err(CertificateError::file(&self.directory))?;
        }
        Ok(())
    }
}

/// Locks a directory against other commands.
fn lock(directory: &Path) -> Result<File, CertificateError> {
    let path = directory.join("lock");
    let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&path);
    let file = file.map_err(CertificateError::file(&path))?;
    flock(&file, FlockOperation::NonBlockingLockExclusive)
        .map_err(|_| CertificateError::Busy(directory.to_owned()))?;
    Ok(file)
}
