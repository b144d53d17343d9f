//! TLS to hosts on behalf of a sandbox, verified with the root certificates of this machine.

use rustls::crypto::CryptoProvider;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use std::io::{Error, Result};
use std::sync::{Arc, OnceLock};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// Chosen explicitly, because another crate of the build may enable a second provider.
pub(crate) fn provider() -> Arc<CryptoProvider> {
    static PROVIDER: OnceLock<Arc<CryptoProvider>> = OnceLock::new();
    PROVIDER.get_or_init(|| Arc::new(rustls::crypto::ring::default_provider())).clone()
}

fn config() -> Result<Arc<ClientConfig>> {
    static CONFIG: OnceLock<Arc<ClientConfig>> = OnceLock::new();
    if let Some(config) = CONFIG.get() {
        return Ok(config.clone());
    }
    let mut roots = RootCertStore::empty();
    let found = rustls_native_certs::load_native_certs();
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        return Err(Error::other("this machine has no root certificates: install ca-certificates"));
    }
    let mut config = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(Error::other)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(CONFIG.get_or_init(|| Arc::new(config)).clone())
}

/// Performs the handshake, and verifies the certificate of the host.
///
/// # Errors
/// The handshake or the verification fails.
pub(crate) async fn connect(name: &str, stream: TcpStream) -> Result<TlsStream<TcpStream>> {
    let name = ServerName::try_from(name.to_owned()).map_err(Error::other)?;
    TlsConnector::from(config()?).connect(name, stream).await
}
