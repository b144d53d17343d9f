//! A private certificate authority, and clients that accept only its certificates.

use crate::Http;
use crate::shell::{upgrade_request, upgrade_status};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, KeyUsagePurpose,
};
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tungstenite::WebSocket;

/// A certificate authority that no system knows.
pub struct Authority(CertifiedIssuer<'static, KeyPair>);

/// A certificate chain and its private key, as PEM.
#[derive(Debug, Clone)]
pub struct Certificate {
    /// The certificate chain, as PEM.
    pub certificate: String,
    /// The private key, as PEM.
    pub key: String,
}

impl Authority {
    /// Creates an authority.
    ///
    /// # Panics
    /// When no key can be generated.
    #[must_use]
    pub fn new() -> Self {
        let mut params = CertificateParams::new(Vec::<String>::new()).expect("no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        params.distinguished_name.push(DnType::CommonName, "a private authority");
        let key = KeyPair::generate().expect("a key");
        Self(CertifiedIssuer::self_signed(params, key).expect("an authority"))
    }

    /// The authority's own certificate, as PEM.
    #[must_use]
    pub fn pem(&self) -> String {
        self.0.pem()
    }

    /// Issues a certificate for these host names and addresses.
    ///
    /// # Panics
    /// When a name is invalid.
    #[must_use]
    pub fn issue(&self, names: &[&str]) -> Certificate {
        self.sign(certificate_for(names))
    }

    /// Like [`Authority::issue`], but the certificate expired in 2001.
    ///
    /// # Panics
    /// When a name is invalid.
    #[must_use]
    pub fn issue_expired(&self, names: &[&str]) -> Certificate {
        let mut params = certificate_for(names);
        params.not_after = rcgen::date_time_ymd(2001, 2, 3);
        self.sign(params)
    }

    fn sign(&self, params: CertificateParams) -> Certificate {
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &*self.0).expect("a certificate").pem();
        Certificate { certificate, key: key.serialize_pem() }
    }

    /// The configuration of a client that accepts only certificates of this authority.
    #[must_use]
    pub fn client(&self) -> Arc<ClientConfig> {
        trusting(&self.pem())
    }
}

impl Default for Authority {
    fn default() -> Self {
        Self::new()
    }
}

impl Certificate {
    /// Writes `cert.pem` and `key.pem` (mode 0600) into a folder, and returns their paths.
    ///
    /// # Panics
    /// When a file cannot be written.
    pub fn write(&self, folder: &Path) -> (PathBuf, PathBuf) {
        let certificate = folder.join("cert.pem");
        let key = folder.join("key.pem");
        fs::write(&certificate, &self.certificate).expect("it is written");
        fs::write(&key, &self.key).expect("it is written");
        fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).expect("its own file");
        (certificate, key)
    }

    /// The certificate in the form in which servers present it.
    ///
    /// # Panics
    /// When it is no certificate.
    #[must_use]
    pub fn der(&self) -> CertificateDer<'static> {
        CertificateDer::from_pem_slice(self.certificate.as_bytes()).expect("a certificate")
    }
}

fn certificate_for(names: &[&str]) -> CertificateParams {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let mut params = CertificateParams::new(names).expect("names");
    params.use_authority_key_identifier_extension = true;
    params
}

/// The configuration of a client that accepts only certificates of the authorities in a PEM text.
pub(crate) fn trusting(pem: &str) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
        roots.add(certificate.expect("PEM")).expect("an authority");
    }
    let provider = Arc::new(ring::default_provider());
    let config =
        ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    Arc::new(config.expect("versions").with_root_certificates(roots).with_no_client_auth())
}

/// A connection of a client, with or without TLS.
#[derive(Debug)]
pub enum Connection {
    /// A connection without TLS.
    Plain(TcpStream),
    /// A connection with TLS.
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl Connection {
    /// Performs the handshake for a server with this name or address.
    ///
    /// # Errors
    /// When it fails, for example because the certificate is not accepted.
    ///
    /// # Panics
    /// When the name is invalid.
    pub fn secure(
        mut stream: TcpStream,
        config: &Arc<ClientConfig>,
        name: &str,
    ) -> std::io::Result<Self> {
        let name = ServerName::try_from(name.to_owned()).expect("a name");
        let mut client = ClientConnection::new(Arc::clone(config), name).expect("a client");
        while client.is_handshaking() {
            client.complete_io(&mut stream)?;
        }
        Ok(Self::Tls(Box::new(StreamOwned::new(client, stream))))
    }

    /// The certificate that the server presented.
    #[must_use]
    pub fn certificate(&self) -> Option<CertificateDer<'static>> {
        let Self::Tls(tls) = self else { return None };
        tls.conn.peer_certificates()?.first().cloned().map(CertificateDer::into_owned)
    }
}

impl Read for Connection {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        match self {
            Self::Plain(tcp) => tcp.read(buffer),
            Self::Tls(tls) => tls.read(buffer),
        }
    }
}

impl Write for Connection {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        match self {
            Self::Plain(tcp) => tcp.write(bytes),
            Self::Tls(tls) => tls.write(bytes),
        }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        match self {
            Self::Plain(tcp) => tcp.flush(),
            Self::Tls(tls) => tls.flush(),
        }
    }
}

impl Http {
    /// Returns a client that speaks HTTPS with this configuration.
    #[must_use]
    pub fn over_tls(&self, config: &Arc<ClientConfig>) -> Self {
        Self { tls: Some(Arc::clone(config)), ..self.clone() }
    }

    fn host_name(&self) -> String {
        let host = self.headers.iter().find(|(name, _)| name == "host");
        let name = host.and_then(|(_, host)| host.split(':').next()).map(str::to_owned);
        name.unwrap_or_else(|| self.address.to_string())
    }

    /// Opens a WebSocket below this client's `Host`.
    ///
    /// # Errors
    /// The status of a refusal; 0 without an answer.
    pub fn web_socket(&self, path: &str) -> Result<WebSocket<Connection>, u16> {
        let request = upgrade_request(self, path).ok_or(0_u16)?;
        let stream = self.open().map_err(|_| 0_u16)?;
        let opened = tungstenite::client::client(request, stream);
        opened.map(|(socket, _)| socket).map_err(|error| upgrade_status(&error))
    }

    /// Opens a connection, and performs the TLS handshake if this client has TLS: for the name in
    /// its `Host` header, or for its address.
    ///
    /// # Errors
    /// When the connection or the handshake fails.
    pub fn open(&self) -> std::io::Result<Connection> {
        let stream = self.try_connect()?;
        match &self.tls {
            None => Ok(Connection::Plain(stream)),
            Some(config) => Connection::secure(stream, config, &self.host_name()),
        }
    }
}
