//! The certificate authority of one sandbox. It signs certificates for the hosts that credentials
//! are injected for, when they are first needed. Its key exists only in this process, and is
//! dropped with the sandbox.

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose,
};
use rustls::ServerConfig;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::ServerSessionMemoryCache;
use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, PoisonError};

/// Hosts whose certificates are cached; above this the cache starts over.
const HOSTS_MAX: usize = 64;
/// TLS sessions that a sandbox may resume, of all hosts together: some KiB each.
const SESSIONS_MAX: usize = 256;

pub(crate) struct CertificateAuthority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    hosts: Mutex<HashMap<String, Arc<ServerConfig>>>,
    sessions: Arc<ServerSessionMemoryCache>,
}

impl std::fmt::Debug for CertificateAuthority {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("CertificateAuthority")
    }
}

impl CertificateAuthority {
    /// # Errors
    /// The kernel gives no random bytes.
    pub(crate) fn new(sandbox: Ipv4Addr) -> Result<Self, rcgen::Error> {
        let mut params = CertificateParams::new(Vec::<String>::new())?;
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let name = format!("Isolet, credentials of the sandbox at {sandbox}");
        params.distinguished_name.push(DnType::CommonName, name);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
        let sessions = ServerSessionMemoryCache::new(SESSIONS_MAX);
        Ok(Self { issuer, hosts: Mutex::default(), sessions })
    }

    /// Its certificate, as PEM.
    pub(crate) fn certificate(&self) -> String {
        self.issuer.pem()
    }

    /// The configuration to accept TLS as this host.
    ///
    /// # Errors
    /// The name cannot be written into a certificate.
    pub(crate) fn server_config(&self, name: &str) -> Result<Arc<ServerConfig>, std::io::Error> {
        let mut hosts = self.hosts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = hosts.get(name) {
            return Ok(known.clone());
        }
        let made = Arc::new(self.sign(name).map_err(std::io::Error::other)?);
        if hosts.len() >= HOSTS_MAX {
            hosts.clear();
        }
        hosts.insert(name.to_owned(), made.clone());
        Ok(made)
    }

    fn sign(&self, name: &str) -> Result<ServerConfig, Box<dyn std::error::Error + Send + Sync>> {
        let mut params = CertificateParams::new(vec![name.to_owned()])?;
        params.distinguished_name.push(DnType::CommonName, name);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &*self.issuer)?;
        let chain = vec![certificate.der().clone(), self.issuer.der().clone()];
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let mut config = ServerConfig::builder_with_provider(super::upstream_tls::provider())
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(chain, key)?;
        // Only HTTP/1.1 is supported: each `Host` is compared with the SNI.
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        // Early data can be replayed by an eavesdropper, so it is not accepted.
        config.max_early_data_size = 0;
        config.session_storage = self.sessions.clone();
        Ok(config)
    }
}
