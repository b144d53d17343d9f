//! Clients that are no peers: TLS as they please.

use isolet_peer::PeerFiles;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use rustls::{SupportedProtocolVersion, version};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// Accepts every server, as an attacker does.
#[derive(Debug)]
struct Anyone(Arc<WebPkiServerVerifier>);

impl ServerCertVerifier for Anyone {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}

pub(crate) static TLS12: &[&SupportedProtocolVersion] = &[&version::TLS12];
pub(crate) static TLS13: &[&SupportedProtocolVersion] = &[&version::TLS13];

/// Connects, with a certificate or without one, sends a request, and returns what the server does
/// then: an error is that of TLS.
pub(crate) async fn ask(
    address: SocketAddr,
    certificate: Option<&PeerFiles>,
    versions: &[&'static SupportedProtocolVersion],
) -> io::Result<String> {
    let provider = Arc::new(ring::default_provider());
    // The verifier of signatures needs some authority.
    let some = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(some.cert.der().clone()).unwrap();
    let verifier =
        WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider));
    let config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(versions)
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Anyone(verifier.build().unwrap())));
    let config = match certificate {
        None => config.with_no_client_auth(),
        Some(files) => {
            let chain = CertificateDer::pem_file_iter(&files.certificate).unwrap();
            let chain = chain.collect::<Result<_, _>>().unwrap();
            let key = PrivateKeyDer::from_pem_file(&files.key).unwrap();
            config.with_client_auth_cert(chain, key).unwrap()
        }
    };
    let tcp = TcpStream::connect(address).await?;
    let name = ServerName::try_from("localhost").unwrap();
    let mut tls = TlsConnector::from(Arc::new(config)).connect(name, tcp).await?;
    tls.write_all(b"GET /who HTTP/1.1\r\nhost: peer\r\nconnection: close\r\n\r\n").await?;
    let mut answer = String::new();
    tls.read_to_string(&mut answer).await?;
    Ok(answer)
}
