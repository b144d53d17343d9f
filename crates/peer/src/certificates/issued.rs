//! The files of a node that a command writes.

use crate::certificates::error::CertificateError;
use crate::certificates::index::CertificateRecord;
use crate::files::{self, PeerFiles};
use crate::names;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use std::fmt;
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

/// A new certificate with its private key. The key is stored nowhere else.
pub struct Issued {
    /// The entry of the index.
    pub record: CertificateRecord,
    pub(super) certificate: String,
    pub(super) key: String,
    pub(super) authorities: String,
    pub(super) lists: String,
}

impl fmt::Debug for Issued {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Issued").field("record", &self.record).finish_non_exhaustive()
    }
}

impl Issued {
    /// Writes all four files of the node into a directory, which is created if it is missing.
    /// Blocks.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn write_to(&self, directory: &Path) -> Result<PeerFiles, CertificateError> {
        create_directory(directory)?;
        let paths = PeerFiles::in_directory(directory);
        // The key and its certificate last and close together: a server reads files that rest.
        for (path, content) in [
            (&paths.ca, &self.authorities),
            (&paths.revoked, &self.lists),
            (&paths.key, &self.key),
            (&paths.certificate, &self.certificate),
        ] {
            files::replace(path, content.as_bytes()).map_err(CertificateError::file(path))?;
        }
        Ok(paths)
    }
}

/// Creates a directory that only its owner may enter.
pub(super) fn create_directory(directory: &Path) -> Result<(), CertificateError> {
    let mut builder = DirBuilder::new();
    builder.recursive(true).mode(0o700);
    builder.create(directory).map_err(CertificateError::file(directory))
}

/// Refuses a directory with the certificate of another node, before anything is signed.
pub(super) fn check_directory(directory: &Path, node: &str) -> Result<(), CertificateError> {
    let path = PeerFiles::in_directory(directory).certificate;
    let text = match files::read(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(CertificateError::file(&path)(error)),
    };
    let found = CertificateDer::from_pem_slice(&text).ok().and_then(|certificate| {
        let (_, certificate) = x509_parser::parse_x509_certificate(&certificate).ok()?;
        names::node_of(&certificate).ok()
    });
    match found {
        Some(found) if found.as_str() == node => Ok(()),
        found => Err(CertificateError::OtherNode {
            directory: directory.to_owned(),
            found: found.map_or_else(|| "something else".to_owned(), |found| found.to_string()),
            node: node.to_owned(),
        }),
    }
}
