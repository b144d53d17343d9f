//! Connections of the client commands to the server, with and without TLS.

use anyhow::{Context, Result, anyhow};
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_util::either::Either;

/// The bytes of a connection to the server.
pub(crate) type ServerStream = Either<TcpStream, Box<TlsStream<TcpStream>>>;

/// The value of `--ca` or `ISOLET_CA`.
static CA_FILE: OnceLock<PathBuf> = OnceLock::new();

/// Sets the file with the certificate authorities that server certificates must come from.
pub(crate) fn set_ca_file(path: PathBuf) {
    let _ = CA_FILE.set(path);
}

/// Verifies the certificates of one server.
pub(crate) struct ServerVerifier {
    connector: TlsConnector,
    name: ServerName<'static>,
}

impl ServerVerifier {
    /// `host` is the name or address in the URL, without the port.
    ///
    /// # Errors
    /// When the host is neither a name nor an address, or no certificate authority can be read.
    pub(crate) fn new(host: &str) -> Result<Self> {
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let name = ServerName::try_from(bare.to_owned());
        let name = name.with_context(|| format!("ISOLET_URL: {host:?} is not a host name"))?;
        let mut roots = RootCertStore::empty();
        match CA_FILE.get() {
            Some(path) => add_file(&mut roots, path)?,
            None => add_system(&mut roots)?,
        }
        let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self { connector: TlsConnector::from(Arc::new(config)), name })
    }

    /// Performs the handshake.
    ///
    /// # Errors
    /// With a hint when the certificate is not accepted.
    pub(crate) async fn connect(&self, stream: TcpStream) -> Result<Box<TlsStream<TcpStream>>> {
        let connected = self.connector.connect(self.name.clone(), stream).await;
        connected.map(Box::new).map_err(|error| explain(&error))
    }
}

fn add_file(roots: &mut RootCertStore, path: &Path) -> Result<()> {
    let shown = path.display();
    let text = std::fs::read(path).with_context(|| format!("--ca: cannot read {shown}"))?;
    for certificate in CertificateDer::pem_slice_iter(&text) {
        let certificate = certificate.map_err(|error| anyhow!("--ca: {shown}: {error}"))?;
        roots.add(certificate).with_context(|| format!("--ca: {shown}"))?;
    }
    if roots.is_empty() {
        return Err(anyhow!("--ca: {shown} contains no certificate"));
    }
    Ok(())
}

fn add_system(roots: &mut RootCertStore) -> Result<()> {
    let found = rustls_native_certs::load_native_certs();
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        return Err(anyhow!(
            "this system has no certificate authorities (Debian: install ca-certificates); name a file with --ca or ISOLET_CA"
        ));
    }
    Ok(())
}

fn explain(error: &io::Error) -> anyhow::Error {
    let cause = error.get_ref().and_then(|cause| cause.downcast_ref::<rustls::Error>());
    match cause {
        Some(rustls::Error::InvalidCertificate(reason)) => anyhow!(
            "the certificate of the server is not accepted: {reason}; name the file of a private certificate authority with --ca or ISOLET_CA"
        ),
        Some(rustls::Error::InvalidMessage(_)) => {
            anyhow!("the server does not speak HTTPS; use http:// in ISOLET_URL")
        }
        _ => anyhow!("the TLS handshake failed: {error}"),
    }
}
