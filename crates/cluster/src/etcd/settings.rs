//! Where etcd is, and how connections to it are protected.

use crate::etcd::error::EtcdError;
use http::Uri;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::path::PathBuf;
use tonic::transport::Certificate;
use tonic::transport::ClientTlsConfig;
use tonic::transport::Identity;

/// Maximum number of endpoints: etcd's documentation advises against more than seven members.
pub const ENDPOINTS_MAX: usize = 16;
/// Maximum size of a certificate or key file, in bytes.
const FILE_BYTES_MAX: u64 = 256 * 1024;

/// The endpoints of etcd and the files for TLS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EtcdSettings {
    /// URLs such as `https://10.0.0.1:2379`: all with TLS, or none.
    pub endpoints: Vec<String>,
    /// The files for TLS; present exactly if the URLs begin with `https://`.
    pub tls: Option<EtcdTlsFiles>,
}

/// The files for TLS to etcd, in PEM. The server reads them again when they change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EtcdTlsFiles {
    /// The certificates of the authorities that sign etcd's certificates.
    pub ca: PathBuf,
    /// The certificate of this node and its key. etcd's user is the common name in it, if etcd
    /// checks users.
    pub identity: Option<EtcdIdentityFiles>,
}

/// A client certificate and its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EtcdIdentityFiles {
    /// The certificate, followed by intermediate ones.
    pub certificate: PathBuf,
    /// The private key, which only its owner may read.
    pub key: PathBuf,
}

impl EtcdSettings {
    /// Checks the endpoints. Reads no file.
    ///
    /// # Errors
    /// [`EtcdError::Settings`] names the endpoint and what is wrong with it.
    pub fn check(&self) -> Result<(), EtcdError> {
        let count = self.endpoints.len();
        if count == 0 || count > ENDPOINTS_MAX {
            return Err(bad(format!("{count} endpoints; name 1 to {ENDPOINTS_MAX}")));
        }
        for endpoint in &self.endpoints {
            self.check_endpoint(endpoint)?;
        }
        Ok(())
    }

    fn check_endpoint(&self, endpoint: &str) -> Result<(), EtcdError> {
        // What stands before `@` would be a password, so this error does not repeat it.
        if endpoint.contains('@') {
            return Err(bad(
                "an endpoint contains `@`; etcd's users log in with client certificates".into(),
            ));
        }
        let uri: Uri = endpoint
            .parse()
            .map_err(|_| bad(format!("{endpoint:?} is not a URL such as https://10.0.0.1:2379")))?;
        let has_tls = match uri.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            _ => return Err(bad(format!("{endpoint} begins neither with https:// nor http://"))),
        };
        if uri.port().is_none() {
            return Err(bad(format!("{endpoint} has no port; etcd's own is 2379")));
        }
        if uri.path_and_query().is_some_and(|path| path.as_str() != "/") {
            return Err(bad(format!("{endpoint} has a path; name only host and port")));
        }
        match (has_tls, &self.tls) {
            (true, None) => Err(bad(format!("{endpoint} needs etcd_ca_file"))),
            (false, Some(_)) => Err(bad(format!(
                "{endpoint} is not encrypted although etcd_ca_file is set; begin it with https://"
            ))),
            _ => Ok(()),
        }
    }
}

impl EtcdTlsFiles {
    /// Reads the files. Blocks.
    ///
    /// # Errors
    /// [`EtcdError::Settings`] names the file that cannot be used.
    pub(super) fn read(&self) -> Result<ClientTlsConfig, EtcdError> {
        let ca = read_file(&self.ca, false)?;
        if !ca.windows(PEM_MARK.len()).any(|part| part == PEM_MARK) {
            return Err(bad(format!("{} contains no certificate in PEM", self.ca.display())));
        }
        let config = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(ca));
        let Some(files) = &self.identity else { return Ok(config) };
        let certificate = read_file(&files.certificate, false)?;
        let key = read_file(&files.key, true)?;
        Ok(config.identity(Identity::from_pem(certificate, key)))
    }

    /// The files that exist, with device, inode, size and time of change: other values mean that a
    /// file was replaced. Blocks.
    pub(super) fn stamp(&self) -> Vec<(u64, u64, u64, i64, i64)> {
        let identity = self.identity.iter().flat_map(|files| [&files.certificate, &files.key]);
        let all = std::iter::once(&self.ca).chain(identity);
        all.filter_map(|path| path.metadata().ok())
            .map(|file| (file.dev(), file.ino(), file.size(), file.mtime(), file.mtime_nsec()))
            .collect()
    }
}

const PEM_MARK: &[u8] = b"-----BEGIN CERTIFICATE-----";

fn read_file(path: &Path, is_private: bool) -> Result<Vec<u8>, EtcdError> {
    let failed = |reason: &dyn std::fmt::Display| bad(format!("{}: {reason}", path.display()));
    let file = File::open(path).map_err(|error| failed(&error))?;
    let metadata = file.metadata().map_err(|error| failed(&error))?;
    let mode = metadata.mode() & 0o777;
    if is_private && mode & 0o077 != 0 {
        return Err(failed(&format_args!("has mode {mode:04o}; run `chmod 600` on it")));
    }
    if metadata.len() > FILE_BYTES_MAX {
        return Err(failed(&format_args!("has more than {FILE_BYTES_MAX} bytes")));
    }
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX).read_to_end(&mut bytes).map_err(|error| failed(&error))?;
    Ok(bytes)
}

fn bad(what: String) -> EtcdError {
    EtcdError::Settings(what)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn settings(endpoint: &str, tls: Option<EtcdTlsFiles>) -> EtcdSettings {
        EtcdSettings { endpoints: vec![endpoint.to_owned()], tls }
    }

    #[test]
    fn endpoints_are_checked_and_passwords_are_not_repeated() {
        let tls = || Some(EtcdTlsFiles { ca: "/ca".into(), identity: None });
        assert!(settings("http://127.0.0.1:2379", None).check().is_ok());
        assert!(settings("https://etcd.example:2379", tls()).check().is_ok());
        for (endpoint, tls) in [
            ("127.0.0.1:2379", None),
            ("ftp://a:1", None),
            ("http://a", None),
            ("http://a:1/path", None),
            ("https://a:1", None),
            ("http://a:1", tls()),
            ("http://u:SECRET@a:1", None),
        ] {
            let error = settings(endpoint, tls).check().unwrap_err().to_string();
            assert!(!error.contains("SECRET"), "{error}");
        }
        let none = EtcdSettings { endpoints: Vec::new(), tls: None };
        assert!(none.check().is_err());
        let many = EtcdSettings { endpoints: vec!["http://a:1".into(); 17], tls: None };
        assert!(many.check().is_err());
    }

    #[test]
    fn a_key_that_others_can_read_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::write(path("ca"), "-----BEGIN CERTIFICATE-----\n").unwrap();
        std::fs::write(path("key"), "SECRET").unwrap();
        std::fs::set_permissions(path("key"), std::fs::Permissions::from_mode(0o640)).unwrap();
        let files = EtcdTlsFiles {
            ca: path("ca"),
            identity: Some(EtcdIdentityFiles { certificate: path("ca"), key: path("key") }),
        };
        let error = files.read().unwrap_err().to_string();
        assert!(error.contains("chmod 600") && !error.contains("SECRET"), "{error}");
        std::fs::set_permissions(path("key"), std::fs::Permissions::from_mode(0o600)).unwrap();
        assert!(files.read().is_ok());
        let before = files.stamp();
        std::fs::write(path("ca"), "-----BEGIN CERTIFICATE-----\nmore").unwrap();
        assert_ne!(before, files.stamp());
        std::fs::write(path("ca"), "").unwrap();
        assert!(files.read().unwrap_err().to_string().contains("no certificate"));
    }
}
