//! Tests of reading certificates and keys.

use super::*;
use rcgen::{CertificateParams, KeyPair};
use tempfile::TempDir;

struct Pair {
    folder: TempDir,
    files: TlsFiles,
}

impl Pair {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let files = TlsFiles { certificate: at("cert.pem"), key: at("key.pem") };
        let pair = Self { folder, files };
        let (certificate, key) = made();
        pair.write(&certificate, &key);
        pair
    }

    fn write(&self, certificate: &str, key: &str) {
        std::fs::write(&self.files.certificate, certificate).unwrap();
        std::fs::write(&self.files.key, key).unwrap();
    }

    fn error(&self) -> String {
        format!("{:#}", self.files.load().unwrap_err())
    }
}

fn made() -> (String, String) {
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec!["box.example".to_owned()]).unwrap();
    (params.self_signed(&key).unwrap().pem(), key.serialize_pem())
}

#[test]
fn a_pair_is_loaded() {
    let config = Pair::new().files.load().unwrap();
    assert_eq!(config.alpn_protocols, [b"http/1.1"]);
}

#[test]
fn an_unusable_pair_is_refused_with_the_file_and_the_reason() {
    let (certificate, key) = made();
    let (_, other) = made();
    let encrypted =
        "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n";
    let garbage = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    let bad_key = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n";
    let pair = Pair::new();
    for (certificate, key, file, reason) in [
        (&*certificate, &*other, "key.pem", "does not belong to the certificate in"),
        (&key, &key, "cert.pem", "contains no certificate"),
        ("", &key, "cert.pem", "contains no certificate"),
        (garbage, &key, "cert.pem", "cannot be used"),
        (&certificate, &certificate, "key.pem", "contains no private key"),
        (&certificate, encrypted, "key.pem", "is encrypted"),
        (&certificate, bad_key, "key.pem", "cannot be used"),
        (&certificate, "-----BEGIN PRIVATE KEY-----\nAAAA", "key.pem", "not valid PEM"),
    ] {
        pair.write(certificate, key);
        let error = pair.error();
        assert!(error.contains(file) && error.contains(reason), "{reason}: {error}");
    }
    std::fs::remove_file(&pair.files.key).unwrap();
    assert!(pair.error().contains("key.pem"), "{}", pair.error());
    drop(pair.folder);
}

/// A reload that opened a named pipe waited for ever, and no later certificate was taken into use.
///
/// Promises: T21.
#[test]
fn a_named_pipe_at_the_path_of_a_file_is_an_error() {
    let pair = Pair::new();
    for path in [&pair.files.certificate, &pair.files.key] {
        let kept = std::fs::read(path).unwrap();
        std::fs::remove_file(path).unwrap();
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        assert!(pair.error().contains("is not a regular file"), "{}", pair.error());
        std::fs::remove_file(path).unwrap();
        std::fs::write(path, kept).unwrap();
    }
    assert!(pair.files.load().is_ok());
}
