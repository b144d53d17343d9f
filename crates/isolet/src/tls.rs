//! The certificate and the private key of the server.

mod reload;

use anyhow::{Context, Result, anyhow, bail};
use isolet_peer::tls::watched_files::WatchedFiles;
use rustix::fs::{Mode, OFlags};
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::sync::watch;
use tracing::warn;

/// The longest accepted file, in bytes: more than any chain of certificates.
const FILE_BYTES_MAX: u64 = 1024 * 1024;
/// The permission to read for users other than the owner and the group.
const READABLE_BY_OTHERS: u32 = 0o004;
/// The label of a private key that needs a passphrase.
const ENCRYPTED_LABEL: &[u8] = b"ENCRYPTED";

/// The files that hold the certificate chain and its private key, as PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TlsFiles {
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
}

impl TlsFiles {
    /// Reads both files.
    ///
    /// # Errors
    /// Which file is unusable and why, or that the two do not belong together.
    pub(crate) fn load(&self) -> Result<Arc<ServerConfig>> {
        let certificate = self.certificate.display();
        let key = self.key.display();
        let chain = certificates(&self.certificate)?;
        let private = private_key(&self.key)?;
        let private = ring::sign::any_supported_type(&private)
            .map_err(|error| anyhow!("the private key in {key} cannot be used: {error}"))?;
        let pair = rustls::sign::CertifiedKey::new(chain, private);
        pair.keys_match().map_err(|error| match error {
            rustls::Error::InconsistentKeys(_) => {
                anyhow!(
                    "the private key in {key} does not belong to the certificate in {certificate}"
                )
            }
            error => anyhow!("the certificate in {certificate} cannot be used: {error}"),
        })?;
        let resolver = rustls::sign::SingleCertAndKey::from(pair);
        let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(resolver));
        // A ticket would arrive while the client sends its first request. Clients that read in one thread and
        // write in another, as the websockets library of Python does, then lose the request at times. The
        // price is a full handshake for each connection.
        config.send_tls13_tickets = 0;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }

    /// Until when the server's own certificate, the first of the chain, is valid, in seconds since
    /// 1970.
    ///
    /// # Errors
    /// When the file is unusable.
    pub(crate) fn expires_at(&self) -> Result<i64> {
        let chain = certificates(&self.certificate)?;
        let shown = self.certificate.display();
        let own = chain.first().with_context(|| format!("{shown} contains no certificate"))?;
        let (_, own) = x509_parser::parse_x509_certificate(own)
            .map_err(|error| anyhow!("the certificate in {shown} cannot be read: {error}"))?;
        Ok(own.validity().not_after.timestamp())
    }

    /// Reads both files, and again whenever they change, as long as the receiver exists.
    ///
    /// # Errors
    /// As [`TlsFiles::load`]. Later errors are logged, and the last usable pair stays in use.
    pub(crate) fn watch(self) -> Result<watch::Receiver<Arc<ServerConfig>>> {
        let watched = WatchedFiles::new([self.certificate.as_path(), self.key.as_path()]);
        let (sender, receiver) = watch::channel(self.load()?);
        tokio::spawn(reload::keep_current(self, watched, sender));
        Ok(receiver)
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let text = read(path)?;
    let chain: Result<Vec<_>, pem::Error> = CertificateDer::pem_slice_iter(&text).collect();
    let chain = chain.map_err(|error| anyhow!("{} is not valid PEM: {error}", path.display()))?;
    if chain.is_empty() {
        bail!("{} contains no certificate (-----BEGIN CERTIFICATE-----)", path.display());
    }
    Ok(chain)
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>> {
    let text = read(path)?;
    let shown = path.display();
    if contains(&text, ENCRYPTED_LABEL) {
        bail!(
            "the private key in {shown} is encrypted; store it without a passphrase: openssl pkey -in {shown} -out NEW"
        );
    }
    let key = PrivateKeyDer::from_pem_slice(&text).map_err(|error| match error {
        pem::Error::NoItemsFound => {
            anyhow!("{shown} contains no private key (-----BEGIN PRIVATE KEY-----)")
        }
        error => anyhow!("{shown} is not valid PEM: {error}"),
    })?;
    let mode = std::fs::metadata(path).map(|file| file.permissions().mode()).unwrap_or_default();
    if mode & READABLE_BY_OTHERS != 0 {
        warn!(file = %shown, "every user of this machine can read the private key; run: chmod 600 {shown}");
    }
    Ok(key)
}

fn contains(text: &[u8], word: &[u8]) -> bool {
    text.windows(word.len()).any(|window| window == word)
}

fn read(path: &Path) -> Result<Vec<u8>> {
    let shown = path.display();
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    // A named pipe would block until something writes to it.
    let file = rustix::fs::open(path, flags, Mode::empty()).map(File::from);
    let file = file.with_context(|| format!("cannot read {shown}"))?;
    if !file.metadata().with_context(|| format!("cannot read {shown}"))?.is_file() {
        bail!("{shown} is not a regular file");
    }
    let mut text = Vec::new();
    let read = file.take(FILE_BYTES_MAX + 1).read_to_end(&mut text);
    read.with_context(|| format!("cannot read {shown}"))?;
    if text.len() as u64 > FILE_BYTES_MAX {
        bail!("{shown} is longer than {FILE_BYTES_MAX} bytes");
    }
    Ok(text)
}

#[cfg(test)]
mod tests;
