//! TLS to etcd, with client certificates.

use crate::etcd_server::EtcdServer;
use crate::etcd_server::ServerTls;
use isolet_cluster::etcd::Etcd;
use isolet_cluster::etcd::EtcdIdentityFiles;
use isolet_cluster::etcd::EtcdTlsFiles;
use rcgen::BasicConstraints;
use rcgen::CertificateParams;
use rcgen::DnType;
use rcgen::ExtendedKeyUsagePurpose;
use rcgen::IsCa;
use rcgen::Issuer;
use rcgen::KeyPair;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::path::PathBuf;
use std::time::Duration;
use tempfile::TempDir;

/// An authority and its certificates, as files.
struct Authority {
    folder: TempDir,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "authority");
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("ca.pem"), certificate.pem()).unwrap();
        Self { folder, issuer: Issuer::new(params, key) }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes a certificate and its key to files with this name.
    fn issue(&self, name: &str) -> EtcdIdentityFiles {
        let names = vec!["127.0.0.1".to_owned(), "localhost".to_owned()];
        let mut params = CertificateParams::new(names).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let files = EtcdIdentityFiles {
            certificate: self.path(&format!("{name}.pem")),
            key: self.path(&format!("{name}.key")),
        };
        replace(&files.certificate, &certificate.pem());
        replace(&files.key, &key.serialize_pem());
        files
    }

    fn tls(&self, identity: Option<EtcdIdentityFiles>) -> EtcdTlsFiles {
        EtcdTlsFiles { ca: self.path("ca.pem"), identity }
    }
}

/// Replaces a file as operators should: by a rename.
fn replace(path: &Path, text: &str) {
    let new = path.with_extension("new");
    std::fs::write(&new, text).unwrap();
    std::fs::set_permissions(&new, std::fs::Permissions::from_mode(0o600)).unwrap();
    std::fs::rename(&new, path).unwrap();
}

async fn start(authority: &Authority) -> EtcdServer {
    let EtcdIdentityFiles { certificate, key } = authority.issue("server");
    let ca = authority.path("ca.pem");
    EtcdServer::start_with(Some(ServerTls { certificate, key, ca })).await
}

fn client(server: &EtcdServer, tls: EtcdTlsFiles) -> Etcd {
    server.client_with(Some(tls)).unwrap().with_timeout(Duration::from_secs(3))
}

#[tokio::test]
async fn only_a_client_with_a_certificate_of_the_authority_is_served() {
    let authority = Authority::new();
    let stranger = Authority::new();
    let server = start(&authority).await;
    let node = client(&server, authority.tls(Some(authority.issue("node"))));
    node.put(b"a", b"1").await.unwrap();
    let without = client(&server, authority.tls(None));
    let error = without.get(b"a").await.unwrap_err().to_string();
    assert!(error.contains(&server.url()), "{error}");
    let foreign = client(&server, authority.tls(Some(stranger.issue("node"))));
    assert!(foreign.get(b"a").await.is_err());
    let deceived = client(&server, stranger.tls(Some(authority.issue("other"))));
    let error = deceived.get(b"a").await.unwrap_err().to_string();
    assert!(error.contains("certificate"), "the authority of the server is unknown: {error}");
}

#[tokio::test]
async fn a_certificate_that_was_replaced_is_used_without_a_restart() {
    let authority = Authority::new();
    let stranger = Authority::new();
    let server = start(&authority).await;
    let files = authority.issue("node");
    let foreign = stranger.issue("node");
    let good = [&files.certificate, &files.key].map(|path| std::fs::read_to_string(path).unwrap());
    replace(&files.certificate, &std::fs::read_to_string(&foreign.certificate).unwrap());
    replace(&files.key, &std::fs::read_to_string(&foreign.key).unwrap());
    let node = client(&server, authority.tls(Some(files.clone())));
    assert!(node.get(b"a").await.is_err());
    assert!(!node.reload_tls().await.unwrap(), "nothing was replaced");
    replace(&files.certificate, &good[0]);
    replace(&files.key, &good[1]);
    assert!(node.reload_tls().await.unwrap());
    node.put(b"a", b"1").await.unwrap();
    replace(&files.key, "not a key");
    assert!(node.reload_tls().await.is_err());
    assert!(node.get(b"a").await.unwrap().is_some(), "the connections before stay");
}
