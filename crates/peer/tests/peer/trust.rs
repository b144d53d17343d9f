//! Who may connect to whom.

use crate::fleet::{Fleet, get, name, now_s, pool, soon, text};
use crate::raw::{TLS12, TLS13, ask};
use crate::server::TestServer;
use isolet_peer::{PeerError, PeerFiles, PeerTls};
use std::sync::atomic::Ordering;

#[tokio::test]
async fn peers_know_each_other_by_their_certificates() {
    let mut fleet = Fleet::new();
    let server = TestServer::start(&fleet.node("node-1")).await;
    let client = pool(&fleet.node("node-2"));
    let answer = client.send(&name("node-1"), server.address, get("/who")).await.unwrap();
    assert_eq!(answer.body().node(), &name("node-1"));
    assert_eq!(text(answer).await, "node-2");
}

/// The request of such a client is never read.
#[tokio::test]
async fn a_client_without_a_valid_certificate_is_rejected() {
    let mut fleet = Fleet::new();
    let server = TestServer::start(&fleet.node("node-1")).await;
    let valid = fleet.issue("node-2");
    let mut other = Fleet::new();
    let foreign = other.issue("node-2");
    let expired = fleet.directory("node-3");
    let past = now_s() - 3600;
    fleet.cluster.issue_until(&name("node-3"), past + 1800, &expired, past).unwrap();
    let expired = PeerFiles::in_directory(&expired);
    for (who, files, versions, alert) in [
        ("no certificate", None, TLS13, "CertificateRequired"),
        ("another CA", Some(&foreign), TLS13, "UnknownCA"),
        ("expired", Some(&expired), TLS13, "CertificateExpired"),
        ("TLS 1.2", Some(&valid), TLS12, "ProtocolVersion"),
    ] {
        let refused = soon(who, ask(server.address, files, versions)).await.unwrap_err();
        assert!(format!("{refused}").contains(alert), "{who}: {refused}");
    }
    assert_eq!(server.seen.accepted.load(Ordering::SeqCst), 0);
    let accepted = soon("valid", ask(server.address, Some(&valid), TLS13)).await.unwrap();
    assert!(accepted.ends_with("node-2"), "{accepted}");
}

#[tokio::test]
async fn a_server_without_a_valid_certificate_gets_no_request() {
    let mut fleet = Fleet::new();
    let client = pool(&fleet.node("node-1"));
    let mut other = Fleet::new();
    let foreign = TestServer::start(&other.node("node-2")).await;
    let expired = fleet.directory("node-2");
    let past = now_s() - 3600;
    fleet.cluster.issue_until(&name("node-2"), past + 1800, &expired, past).unwrap();
    let expired = PeerTls::open(PeerFiles::in_directory(&expired)).unwrap();
    let expired = TestServer::start(&expired).await;
    let third = TestServer::start(&fleet.node("node-3")).await;
    for (server, reason) in
        [(&foreign, "UnknownIssuer"), (&expired, "expired"), (&third, "not valid for name")]
    {
        let refused = client.send(&name("node-2"), server.address, get("/who")).await.unwrap_err();
        assert!(matches!(refused.error, PeerError::Handshake { .. }), "{refused}");
        let shown = refused.to_string();
        assert!(shown.contains(reason), "{shown}");
        assert_eq!(refused.unsent.unwrap().uri(), "/who", "it can be sent to another node");
        assert_eq!(server.seen.accepted.load(Ordering::SeqCst), 0);
    }
}

/// A certificate that another program issued with the key of the CA does not name a node.
#[tokio::test]
async fn a_certificate_that_names_no_node_is_rejected() {
    let mut fleet = Fleet::new();
    let server = TestServer::start(&fleet.node("node-1")).await;
    let files = fleet.issue("node-2");
    let ca = std::fs::read_to_string(fleet.directory("ca").join("ca-1-key.pem")).unwrap();
    let ca = rcgen::KeyPair::from_pem(&ca).unwrap();
    for names in [
        vec!["node-2.example.org"],
        vec!["node-1.node.isolet.internal", "node-2.node.isolet.internal"],
        vec!["A.node.isolet.internal"],
    ] {
        let mut issuer = rcgen::CertificateParams::default();
        issuer.distinguished_name = rcgen::DistinguishedName::new();
        let own = &fleet.cluster.index().authorities()[0].name;
        issuer.distinguished_name.push(rcgen::DnType::CommonName, own.as_str());
        let issuer = rcgen::Issuer::new(issuer, &ca);
        let names: Vec<String> = names.into_iter().map(str::to_owned).collect();
        let params = rcgen::CertificateParams::new(names.clone()).unwrap();
        let key = rcgen::KeyPair::generate().unwrap();
        std::fs::write(&files.certificate, params.signed_by(&key, &issuer).unwrap().pem()).unwrap();
        std::fs::write(&files.key, key.serialize_pem()).unwrap();
        let closed = soon("refused", ask(server.address, Some(&files), TLS13)).await;
        assert!(closed.is_err(), "{names:?}: {closed:?}");
        assert!(PeerTls::open(files.clone()).is_err(), "{names:?}");
    }
    assert_eq!(server.seen.accepted.load(Ordering::SeqCst), 0);
}
