//! The limits of a listener.

use crate::fleet::{Fleet, get, name, pool, soon, text, wait_until};
use crate::server::TestServer;
use isolet_peer::PeerError;
use isolet_peer::transport::ListenerLimits;
use std::io::ErrorKind;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Slow handshakes take all places, and a peer still gets one.
#[tokio::test]
async fn slow_handshakes_do_not_keep_peers_out() {
    let mut fleet = Fleet::new();
    let hour = Duration::from_secs(3600);
    let limits = ListenerLimits { handshakes: 4, handshake: hour, ..ListenerLimits::default() };
    let server = TestServer::with(&fleet.node("node-1"), limits).await;
    let mut slow = Vec::new();
    for _ in 0..50 {
        let mut tcp = TcpStream::connect(server.address).await.unwrap();
        // The beginning of a TLS record.
        tcp.write_all(&[22, 3, 1, 1]).await.unwrap();
        slow.push(tcp);
    }
    let client = pool(&fleet.node("node-2"));
    let node = name("node-1");
    let sending = client.send(&node, server.address, get("/who"));
    assert_eq!(text(soon("the request", sending).await.unwrap()).await, "node-2");
    // All but four were closed, and one more for the peer.
    let is_open = |tcp: &mut TcpStream| match tcp.try_read(&mut [0; 1]) {
        Ok(count) => count > 0,
        Err(error) => error.kind() == ErrorKind::WouldBlock,
    };
    wait_until("all but three are closed", || {
        slow.retain_mut(is_open);
        slow.len() <= 3
    })
    .await;
    assert_eq!(slow.len(), 3);
}

#[tokio::test]
async fn a_handshake_has_a_time_limit() {
    let mut fleet = Fleet::new();
    let limits =
        ListenerLimits { handshake: Duration::from_millis(300), ..ListenerLimits::default() };
    let server = TestServer::with(&fleet.node("node-1"), limits).await;
    let mut silent = TcpStream::connect(server.address).await.unwrap();
    let end = soon("the silent connection is closed", silent.read(&mut [0; 1])).await;
    assert!(matches!(end, Ok(0) | Err(_)), "{end:?}");
}

#[tokio::test]
async fn garbage_ends_its_connection_only() {
    let mut fleet = Fleet::new();
    let server = TestServer::start(&fleet.node("node-1")).await;
    let long = vec![0x16; 100_000];
    for garbage in [b"GET / HTTP/1.1\r\n\r\n".as_slice(), &[0; 64], &long] {
        let mut tcp = TcpStream::connect(server.address).await.unwrap();
        let _ = tcp.write_all(garbage).await;
        let mut answer = Vec::new();
        let _ = soon("it is closed", tcp.read_to_end(&mut answer)).await;
        assert!(answer.len() < 100, "an alert at most: {answer:?}");
    }
    let client = pool(&fleet.node("node-2"));
    let answer = client.send(&name("node-1"), server.address, get("/who")).await.unwrap();
    assert_eq!(text(answer).await, "node-2");
    assert_eq!(server.seen.accepted.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn connections_of_one_node_have_a_limit() {
    let mut fleet = Fleet::new();
    let limits = ListenerLimits { connections_per_node: 2, ..ListenerLimits::default() };
    let server = TestServer::with(&fleet.node("node-1"), limits).await;
    let client = pool(&fleet.node("node-2"));
    let other = pool(&fleet.node("node-3"));
    let node = name("node-1");
    let long = "/zeros/104857600";
    let first = client.send(&node, server.address, get(long)).await.unwrap();
    let second = client.send(&node, server.address, get(long)).await.unwrap();
    let third = client.send(&node, server.address, get("/who")).await.unwrap_err();
    assert!(matches!(third.error, PeerError::Lost { .. }), "{third}");
    let answer = other.send(&node, server.address, get("/who")).await.unwrap();
    assert_eq!(text(answer).await, "node-3", "another node has places of its own");
    drop(first);
    wait_until("one is closed", || server.seen.under_way.load(Ordering::SeqCst) == 1).await;
    let again = async {
        loop {
            if let Ok(answer) = client.send(&node, server.address, get("/who")).await {
                return text(answer).await;
            }
        }
    };
    assert_eq!(soon("a place is free", again).await, "node-2");
    drop(second);
}
