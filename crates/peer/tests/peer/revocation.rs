//! Revoked and expired certificates, on connections that are open too.

use crate::fleet::{Fleet, Pool, get, name, now_s, pool, soon, text, wait_until};
use crate::server::TestServer;
use isolet_peer::certificates::Revocation;
use isolet_peer::{PeerError, PeerFiles, PeerTls, PeerTunnel};
use std::sync::atomic::Ordering;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Opens a tunnel that sends everything back.
async fn tunnel(client: &Pool, node: &str, server: &TestServer) -> PeerTunnel {
    let mut request = get("/switch");
    request.headers_mut().insert("connection", "upgrade".parse().unwrap());
    request.headers_mut().insert("upgrade", "echo".parse().unwrap());
    let answer = client.send(&name(node), server.address, request).await.unwrap();
    assert_eq!(answer.status(), 101);
    let mut tunnel = answer.into_body().into_tunnel().await.unwrap();
    tunnel.write_all(b"hello").await.unwrap();
    tunnel.flush().await.unwrap();
    let mut back = [0; 5];
    tunnel.read_exact(&mut back).await.unwrap();
    assert_eq!(&back, b"hello");
    tunnel
}

/// The issue's promise: within a minute after the node has the list. Also on a connection that is
/// used at that time, and on one that is idle.
#[tokio::test]
async fn a_revoked_client_loses_its_connections_and_gets_no_new_one() {
    let mut fleet = Fleet::new();
    let server = TestServer::start(&fleet.node("node-1")).await;
    let client = pool(&fleet.node("node-2"));
    let other = pool(&fleet.node("node-3"));
    let mut open = tunnel(&client, "node-1", &server).await;
    let mut unaffected = tunnel(&other, "node-1", &server).await;
    let first = client.send(&name("node-1"), server.address, get("/who")).await.unwrap();
    assert_eq!(text(first).await, "node-2");
    assert_eq!(client.in_use().idle, 1);
    let revoked = fleet.cluster.revoke(&Revocation::Node(name("node-2")), now_s()).unwrap();
    assert_eq!(revoked.len(), 1);
    fleet.distribute("node-1");
    // The server closes it without a byte from either side.
    let end = soon("the tunnel ends", open.read(&mut [0; 1])).await;
    assert!(matches!(end, Ok(0) | Err(_)), "{end:?}");
    wait_until("the server has dropped its side", || {
        server.seen.tunnels.load(Ordering::SeqCst) == 1
    })
    .await;
    // The idle connection may be the last one that the server closes.
    let node = name("node-1");
    let again = async { while client.send(&node, server.address, get("/who")).await.is_ok() {} };
    soon("the idle connection ends", again).await;
    let accepted = server.seen.accepted.load(Ordering::SeqCst);
    let refused = client.send(&node, server.address, get("/who")).await.unwrap_err();
    assert!(matches!(refused.error, PeerError::Lost { .. }), "{refused}");
    assert!(refused.to_string().contains("CertificateRevoked"), "{refused}");
    assert_eq!(server.seen.accepted.load(Ordering::SeqCst), accepted);
    // The others keep theirs.
    unaffected.write_all(b"still").await.unwrap();
    unaffected.flush().await.unwrap();
    let mut back = [0; 5];
    unaffected.read_exact(&mut back).await.unwrap();
    assert_eq!(&back, b"still");
}

#[tokio::test]
async fn a_client_leaves_a_revoked_server() {
    let mut fleet = Fleet::new();
    let server = TestServer::start(&fleet.node("node-1")).await;
    let tls = fleet.node("node-2");
    let client = pool(&tls);
    let mut open = tunnel(&client, "node-1", &server).await;
    let first = client.send(&name("node-1"), server.address, get("/who")).await.unwrap();
    text(first).await;
    fleet.cluster.revoke(&Revocation::Node(name("node-1")), now_s()).unwrap();
    // This time the list comes over the network.
    let lists = std::fs::read(fleet.cluster.lists_file()).unwrap();
    assert!(tls.install_revoked(&lists).unwrap());
    let end = soon("the tunnel ends", open.read(&mut [0; 1])).await.unwrap_err();
    assert_eq!(end.kind(), std::io::ErrorKind::ConnectionAborted);
    let write = open.write(b"x").await.unwrap_err();
    assert_eq!(write.kind(), std::io::ErrorKind::ConnectionAborted);
    let refused = client.send(&name("node-1"), server.address, get("/who")).await.unwrap_err();
    assert!(matches!(refused.error, PeerError::Handshake { .. }), "{refused}");
    let kept = std::fs::read(fleet.directory("node-2").join("revoked.pem")).unwrap();
    assert_eq!(kept, lists, "a restart does not forget it");
}

#[tokio::test]
async fn a_connection_ends_with_the_certificate_that_opened_it() {
    let mut fleet = Fleet::new();
    let server = TestServer::start(&fleet.node("node-1")).await;
    let short = fleet.issue_until("node-2", now_s() + 4);
    let client = pool(&PeerTls::open(short).unwrap());
    let mut open = tunnel(&client, "node-1", &server).await;
    let end = soon("the tunnel ends", open.read(&mut [0; 1])).await;
    assert!(matches!(end, Ok(0) | Err(_)), "{end:?}");
    let refused = client.send(&name("node-1"), server.address, get("/who")).await.unwrap_err();
    assert!(refused.to_string().contains("CertificateExpired"), "{refused}");
}

/// An older list would bring a revoked certificate back.
#[tokio::test]
async fn only_newer_lists_of_the_same_authority_are_installed() {
    let mut fleet = Fleet::new();
    let tls = fleet.node("node-1");
    let first = std::fs::read(fleet.cluster.lists_file()).unwrap();
    assert!(!tls.install_revoked(&first).unwrap(), "the same");
    fleet.issue("node-2");
    fleet.cluster.revoke(&Revocation::Node(name("node-2")), now_s()).unwrap();
    let second = std::fs::read(fleet.cluster.lists_file()).unwrap();
    // What else the text contains is not stored: it comes from elsewhere.
    let foreign = std::fs::read(Fleet::new().cluster.lists_file()).unwrap();
    let padded = [b"padding\n".as_slice(), &foreign, &second].concat();
    assert!(tls.install_revoked(&padded).unwrap());
    assert!(!tls.install_revoked(&first).unwrap(), "older");
    assert!(tls.install_revoked(&foreign).is_err());
    assert!(tls.install_revoked(b"garbage").is_err());
    assert_eq!(tls.revocation_lists().unwrap(), second);
}

/// Lists arrive one by one, and a rotation gives some nodes an authority that others lack.
#[tokio::test]
async fn a_list_of_one_authority_is_merged_with_those_of_others() {
    let mut fleet = Fleet::new();
    let tls = fleet.node("node-1");
    let before = tls.list_numbers();
    fleet.cluster.start_rotation(now_s()).unwrap();
    fleet.distribute("node-1");
    wait_until("both authorities", || tls.list_numbers().len() == 2).await;
    let first = tls.signed_lists().unwrap();
    fleet.issue("node-2");
    fleet.cluster.revoke(&Revocation::Node(name("node-2")), now_s()).unwrap();
    let revoking = std::fs::read(fleet.cluster.lists_file()).unwrap();
    let of_old = &before[0].authority;
    let newer = tls.number_of_list(of_old, &revoking).unwrap();
    assert!(newer > first[0].number.number);
    assert_eq!(tls.number_of_list("00", &revoking), None);
    assert_eq!(tls.number_of_list(of_old, first[1].pem.as_bytes()), None, "of the other one");
    let foreign = std::fs::read(Fleet::new().cluster.lists_file()).unwrap();
    assert_eq!(tls.number_of_list(of_old, &foreign), None);
    // Another node, which has both lists, offers that of the old authority alone.
    fleet.issue("node-3");
    fleet.distribute("node-3");
    let other = PeerTls::open(PeerFiles::in_directory(&fleet.directory("node-3"))).unwrap();
    let lists = other.signed_lists().unwrap();
    let old = lists.iter().find(|list| list.number.authority == *of_old).unwrap();
    assert!(tls.install_revoked(old.pem.as_bytes()).is_err(), "one of two");
    assert!(tls.merge_revoked(old.pem.as_bytes()).unwrap());
    assert!(!tls.merge_revoked(old.pem.as_bytes()).unwrap(), "the same");
    let now = tls.list_numbers();
    let number = |of: &str| now.iter().find(|list| list.authority == of).unwrap().number;
    assert_eq!(number(of_old), old.number.number);
    assert_eq!(number(&first[1].number.authority), first[1].number.number);
}

/// As on a machine where the directory is read-only.
#[tokio::test]
async fn lists_that_cannot_be_written_are_in_use_and_older_files_do_not_replace_them() {
    let mut fleet = Fleet::new();
    let files = fleet.issue("node-1");
    let tls = PeerTls::open(files.clone()).unwrap();
    let first = std::fs::read(&files.revoked).unwrap();
    // The name under which the file is written first.
    std::fs::create_dir(fleet.directory("node-1").join("revoked.pem.new")).unwrap();
    fleet.issue("node-2");
    fleet.cluster.revoke(&Revocation::Node(name("node-2")), now_s()).unwrap();
    let second = std::fs::read(fleet.cluster.lists_file()).unwrap();
    assert!(tls.merge_revoked(&second).unwrap());
    let installed = tls.list_numbers();
    assert_eq!(std::fs::read(&files.revoked).unwrap(), first);
    assert_eq!(tls.signed_lists().unwrap()[0].pem.as_bytes(), second);
    // Another certificate of this node makes it read all files again.
    fleet.issue("node-4");
    let serial = tls.expires_at_s();
    fleet
        .cluster
        .issue_until(&name("node-1"), serial - 60, &fleet.directory("renewed"), now_s())
        .unwrap();
    let renewed = PeerFiles::in_directory(&fleet.directory("renewed"));
    std::fs::copy(renewed.certificate, &files.certificate).unwrap();
    std::fs::copy(renewed.key, &files.key).unwrap();
    wait_until("the certificate is in use", || tls.expires_at_s() == serial - 60).await;
    assert_eq!(tls.list_numbers(), installed);
}

/// A node with unusable files continues with the previous ones.
#[tokio::test]
async fn unusable_files_do_not_replace_usable_ones() {
    let mut fleet = Fleet::new();
    let tls = fleet.node("node-1");
    let server = TestServer::start(&tls).await;
    let client = pool(&fleet.node("node-2"));
    let foreign = std::fs::read(Fleet::new().cluster.lists_file()).unwrap();
    let file = fleet.directory("node-1").join("revoked.pem");
    std::fs::write(&file, foreign).unwrap();
    fleet.cluster.revoke(&Revocation::Node(name("node-2")), now_s()).unwrap();
    let answer = client.send(&name("node-1"), server.address, get("/who")).await.unwrap();
    assert_eq!(text(answer).await, "node-2");
    // The server still reads files that come later.
    fleet.distribute("node-1");
    let refused =
        async { while client.send(&name("node-1"), server.address, get("/who")).await.is_ok() {} };
    soon("the list is in use", refused).await;
}
