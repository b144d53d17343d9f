//! One reading of the files: the TLS configurations, and how certificates of peers are verified.

use crate::files::{self, PeerFiles};
use crate::names;
use crate::parsed::{self, Anchor, BadCertificate, Leaf, RevocationList};
use crate::tls::error::{ListProblem, LoadError};
use isolet_wire::node::NodeName;
use rustls::client::danger::ServerCertVerifier;
use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::version::TLS13;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use std::path::Path;
use std::sync::Arc;

/// The protocol inside, so that another service's connection ends in the handshake.
const ALPN: &[u8] = b"isolet-peer/1";

/// Which side opened a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Side {
    /// The peer is the client.
    Incoming,
    /// The peer is the server.
    Outgoing,
}

/// The content of the files at one time.
pub(crate) struct Identity {
    pub(crate) own: Leaf,
    pub(crate) anchors: Vec<Anchor>,
    /// The numbers of the revocation lists, in the order of `anchors`.
    pub(crate) list_numbers: Vec<u64>,
    pub(crate) server: Arc<ServerConfig>,
    pub(crate) client: Arc<ClientConfig>,
    chain: Vec<CertificateDer<'static>>,
    incoming: Arc<dyn ClientCertVerifier>,
    outgoing: Arc<WebPkiServerVerifier>,
}

impl Identity {
    /// Reads all files. `received` are revocation lists that came from other nodes: the newest of
    /// each authority counts. Blocks.
    pub(crate) fn load(files: &PeerFiles, received: &[u8]) -> Result<Self, LoadError> {
        let anchors = anchors(&files.ca, isolet_clock::now_ms() / 1000)?;
        let lists = lists_text(files, received)?;
        let lists =
            lists_by_authority(&anchors, &lists).map_err(|problem| problem.at(&files.revoked))?;
        let chain = certificates(&files.certificate)?;
        let pair = Arc::new(SingleCertAndKey::from(key_of(files, chain.clone())?));
        let own = own_leaf(files, &chain)?;
        let mut roots = RootCertStore::empty();
        for anchor in &anchors {
            roots.add(anchor.der.clone())?;
        }
        let roots = Arc::new(roots);
        let ders = || lists.iter().map(|list| list.der.clone());
        let provider = Arc::new(ring::default_provider());
        let incoming =
            WebPkiClientVerifier::builder_with_provider(Arc::clone(&roots), Arc::clone(&provider))
                .with_crls(ders())
                .build()?;
        let outgoing =
            WebPkiServerVerifier::builder_with_provider(Arc::clone(&roots), Arc::clone(&provider))
                .with_crls(ders())
                .build()?;
        let server = server(&provider, Arc::clone(&incoming), Arc::clone(&pair))?;
        let client = client(&provider, Arc::clone(&outgoing), pair)?;
        let list_numbers = lists.iter().map(|list| list.number).collect();
        Ok(Self { own, anchors, list_numbers, server, client, chain, incoming, outgoing })
    }

    /// Verifies the certificate of a peer now: chain, validity, revocation, usage and name.
    pub(crate) fn verify(
        &self,
        side: Side,
        node: &NodeName,
        chain: &[CertificateDer<'_>],
    ) -> Result<(), rustls::Error> {
        let Some((leaf, intermediates)) = chain.split_first() else {
            return Err(rustls::Error::NoCertificatesPresented);
        };
        let now = UnixTime::now();
        match side {
            Side::Incoming => self.incoming.verify_client_cert(leaf, intermediates, now).map(drop),
            Side::Outgoing => {
                let name = server_name(node)?;
                self.outgoing.verify_server_cert(leaf, intermediates, &name, &[], now).map(drop)
            }
        }
    }

    /// Whether other nodes with the same files accept this node, as client and as server.
    pub(crate) fn verify_own(&self) -> Result<(), rustls::Error> {
        self.verify(Side::Incoming, &self.own.node, &self.chain)?;
        self.verify(Side::Outgoing, &self.own.node, &self.chain)
    }
}

/// The name that the certificate of a node must have.
pub(crate) fn server_name(node: &NodeName) -> Result<ServerName<'static>, rustls::Error> {
    ServerName::try_from(names::dns_name(node))
        .map_err(|_| rustls::Error::General(format!("{node} is too long for a certificate")))
}

/// The newest list of each authority, in their order.
pub(crate) fn lists_by_authority(
    anchors: &[Anchor],
    text: &[u8],
) -> Result<Vec<RevocationList>, ListProblem> {
    let lists = parsed::lists_of(text).map_err(ListProblem::Invalid)?;
    let newest = |anchor: &Anchor| {
        let newest = RevocationList::newest_of(anchor, &lists).map_err(ListProblem::Invalid)?;
        newest.ok_or_else(|| ListProblem::Missing { authority: anchor.name.clone() })
    };
    anchors.iter().map(newest).collect()
}

/// The authorities of a file that have not expired. TLS libraries do not check that.
pub(crate) fn anchors(path: &Path, now_s: i64) -> Result<Vec<Anchor>, LoadError> {
    let mut anchors = Vec::new();
    for der in certificates(path)? {
        anchors.push(Anchor::parse(der).map_err(LoadError::invalid(path))?);
    }
    anchors.retain(|anchor| anchor.expires_at_s > now_s);
    if anchors.is_empty() { Err(LoadError::Expired(path.to_owned())) } else { Ok(anchors) }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, LoadError> {
    parsed::certificates_of(&read(path)?).map_err(LoadError::invalid(path))
}

fn own_leaf(files: &PeerFiles, chain: &[CertificateDer<'_>]) -> Result<Leaf, LoadError> {
    let leaf = chain.first().ok_or(BadCertificate::Empty("CERTIFICATE"));
    leaf.and_then(Leaf::parse).map_err(LoadError::invalid(&files.certificate))
}

fn key_of(
    files: &PeerFiles,
    chain: Vec<CertificateDer<'static>>,
) -> Result<CertifiedKey, LoadError> {
    let unusable = |reason: String| LoadError::Key { path: files.key.clone(), reason };
    let key = PrivateKeyDer::from_pem_slice(&read(&files.key)?)
        .map_err(|error| unusable(error.to_string()))?;
    let key = ring::sign::any_supported_type(&key).map_err(|error| unusable(error.to_string()))?;
    let pair = CertifiedKey::new(chain, key);
    match pair.keys_match() {
        Ok(()) => Ok(pair),
        Err(rustls::Error::InconsistentKeys(_)) => Err(LoadError::OtherKey {
            key: files.key.clone(),
            certificate: files.certificate.clone(),
        }),
        Err(error) => Err(error.into()),
    }
}

fn server(
    provider: &Arc<CryptoProvider>,
    verifier: Arc<dyn ClientCertVerifier>,
    pair: Arc<SingleCertAndKey>,
) -> Result<Arc<ServerConfig>, LoadError> {
    let mut config = ServerConfig::builder_with_provider(Arc::clone(provider))
        .with_protocol_versions(&[&TLS13])?
        .with_client_cert_verifier(verifier)
        .with_cert_resolver(pair);
    config.alpn_protocols = vec![ALPN.to_vec()];
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    config.max_early_data_size = 0;
    Ok(Arc::new(config))
}

fn client(
    provider: &Arc<CryptoProvider>,
    verifier: Arc<WebPkiServerVerifier>,
    pair: Arc<SingleCertAndKey>,
) -> Result<Arc<ClientConfig>, LoadError> {
    let mut config = ClientConfig::builder_with_provider(Arc::clone(provider))
        .with_protocol_versions(&[&TLS13])?
        .with_webpki_verifier(verifier)
        .with_client_cert_resolver(pair);
    config.alpn_protocols = vec![ALPN.to_vec()];
    config.resumption = Resumption::disabled();
    // A node has one certificate, so the name need not be sent in plain text.
    config.enable_sni = false;
    Ok(Arc::new(config))
}

/// The revocation lists of the file, and those that other nodes have sent.
pub(crate) fn lists_text(files: &PeerFiles, received: &[u8]) -> Result<Vec<u8>, LoadError> {
    Ok([read(&files.revoked)?.as_slice(), b"\n", received].concat())
}

fn read(path: &Path) -> Result<Vec<u8>, LoadError> {
    files::read(path).map_err(LoadError::unreadable(path))
}
