//! An authority of one link: certificates for the hosts that it is lent credentials for, made
//! when they are asked for. Its key is in this process alone, and goes with the link.

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose,
};
use rustls::ServerConfig;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::ServerSessionMemoryCache;
use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex};

/// Hosts whose certificates are kept; made again when there are more.
const HOSTS_MAX: usize = 64;
/// Sessions of TLS that a sandbox may resume, of all hosts together: some KiB each.
const SESSIONS_MAX: usize = 256;

/// An authority.
pub(crate) struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    hosts: Mutex<HashMap<String, Arc<ServerConfig>>>,
    sessions: Arc<ServerSessionMemoryCache>,
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("Authority")
    }
}

impl Authority {
    /// A new one.
    ///
    /// # Errors
    /// No randomness.
    pub(crate) fn new(link: Ipv4Addr) -> Result<Self, rcgen::Error> {
        let mut params = CertificateParams::new(Vec::<String>::new())?;
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let name = format!("Isolet, credentials of the sandbox at {link}");
        params.distinguished_name.push(DnType::CommonName, name);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
        let sessions = ServerSessionMemoryCache::new(SESSIONS_MAX);
        Ok(Self { issuer, hosts: Mutex::default(), sessions })
    }

    /// Its certificate, as PEM.
    pub(crate) fn certificate(&self) -> String {
        self.issuer.pem()
    }

    /// What is needed to speak TLS as this host.
    ///
    /// # Errors
    /// What cannot stand in a certificate.
    pub(crate) fn host(&self, name: &str) -> Result<Arc<ServerConfig>, std::io::Error> {
        let mut hosts = self.hosts.lock().expect("nobody panics with it");
        if let Some(known) = hosts.get(name) {
            return Ok(known.clone());
        }
        let made = Arc::new(self.make(name).map_err(std::io::Error::other)?);
        if hosts.len() >= HOSTS_MAX {
            hosts.clear();
        }
        hosts.insert(name.to_owned(), made.clone());
        Ok(made)
    }

    fn make(&self, name: &str) -> Result<ServerConfig, Box<dyn std::error::Error + Send + Sync>> {
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
        // Requests are read as HTTP/1.1 alone: their `Host` is held to the name of TLS.
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        // Early data can be repeated by whoever has seen it, and is not taken.
        config.max_early_data_size = 0;
        config.session_storage = self.sessions.clone();
        Ok(config)
    }
}
