//! Which connections are used again, and the limits of a pool.

use crate::fleet::{Fleet, Pool, get, name, pool, request, soon, text, wait_until};
use crate::server::TestServer;
use futures_util::future::join_all;
use http_body_util::{BodyExt, Full};
use isolet_peer::transport::PoolLimits;
use isolet_peer::{PeerError, PeerPool};
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::net::TcpListener;

#[tokio::test]
async fn one_connection_carries_requests_one_after_the_other() {
    let mut fleet = Fleet::new();
    let server = TestServer::start(&fleet.node("node-1")).await;
    let client = pool(&fleet.node("node-2"));
    for round in 0..50 {
        let body = Full::from(vec![b'x'; round * 1000]).map_err(|never| match never {});
        let echo = request("POST", "/echo", body.boxed_unsync());
        let answer = client.send(&name("node-1"), server.address, echo).await.unwrap();
        assert_eq!(text(answer).await.len(), round * 1000);
    }
    // Responses whose readers do not poll the end.
    for _ in 0..5 {
        let head = request("HEAD", "/who", get("/").into_body());
        drop(client.send(&name("node-1"), server.address, head).await.unwrap());
    }
    assert_eq!(server.seen.accepted.load(Ordering::SeqCst), 1);
    assert_eq!((client.in_use().idle, client.in_use().in_use), (1, 0));
}

#[tokio::test]
async fn a_connection_that_was_closed_while_idle_costs_no_request() {
    let mut fleet = Fleet::new();
    let server = TestServer::start(&fleet.node("node-1")).await;
    let client = pool(&fleet.node("node-2"));
    for round in 1..=3 {
        let post = request("POST", "/echo", get("/").into_body());
        let answer = client.send(&name("node-1"), server.address, post).await.unwrap();
        text(answer).await;
        assert_eq!(server.seen.accepted.load(Ordering::SeqCst), round);
        server.close.send_modify(|count| *count += 1);
        wait_until("all are closed", || server.close.receiver_count() == 1).await;
        // The runtime takes in what the kernel has received while no task runs.
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn idle_connections_have_limits() {
    let mut fleet = Fleet::new();
    let server = TestServer::start(&fleet.node("node-1")).await;
    let limits =
        PoolLimits { idle_per_node: 2, idle: Duration::from_secs(2), ..PoolLimits::default() };
    let client: Pool = PeerPool::new(fleet.node("node-2"), limits);
    let node = name("node-1");
    let send = || async { client.send(&node, server.address, get("/zeros/100000")).await.unwrap() };
    let answers = join_all((0..6).map(|_| send())).await;
    assert_eq!(client.in_use().in_use, 6);
    for answer in answers {
        text(answer).await;
    }
    assert_eq!((client.in_use().idle, client.in_use().in_use), (2, 0));
    wait_until("the idle time is over", || client.in_use().idle == 0).await;
}

#[tokio::test]
async fn requests_of_a_node_have_a_limit() {
    let mut fleet = Fleet::new();
    let server = TestServer::start(&fleet.node("node-1")).await;
    let limits = PoolLimits {
        requests_per_node: 2,
        connect: Duration::from_secs(2),
        ..PoolLimits::default()
    };
    let client: Pool = PeerPool::new(fleet.node("node-2"), limits);
    let node = name("node-1");
    let send = |path| client.send(&node, server.address, get(path));
    let first = soon("first", send("/zeros/100000")).await.unwrap();
    let second = soon("second", send("/zeros/100000")).await.unwrap();
    let busy = soon("busy", send("/who")).await.unwrap_err();
    assert!(matches!(busy.error, PeerError::Busy { limit: 2, .. }), "{busy}");
    assert!(busy.unsent.is_some());
    drop(first);
    assert_eq!(text(soon("third", send("/who")).await.unwrap()).await, "node-2");
    drop(second);
}

#[tokio::test]
async fn an_address_that_does_not_answer_costs_the_time_limit() {
    let mut fleet = Fleet::new();
    // It accepts connections, and no handshake.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let limits = PoolLimits { connect: Duration::from_millis(300), ..PoolLimits::default() };
    let client: Pool = PeerPool::new(fleet.node("node-2"), limits);
    let node = name("node-1");
    let address = silent.local_addr().unwrap();
    let late = soon("late", client.send(&node, address, get("/who"))).await.unwrap_err();
    assert!(matches!(late.error, PeerError::Timeout { .. }), "{late}");
    assert!(late.unsent.is_some());
    drop(silent);
    let refused = soon("refused", client.send(&node, address, get("/who"))).await.unwrap_err();
    assert!(matches!(refused.error, PeerError::Connect { .. }), "{refused}");
    assert_eq!(client.in_use().in_use, 0);
}

/// A node that comes back at another address is reached there.
#[tokio::test]
async fn a_connection_to_an_earlier_address_is_not_used() {
    let mut fleet = Fleet::new();
    let tls = fleet.node("node-1");
    let first = TestServer::start(&tls).await;
    let second = TestServer::start(&tls).await;
    let client = pool(&fleet.node("node-2"));
    let node = name("node-1");
    let addresses: [SocketAddr; 2] = [first.address, second.address];
    for address in addresses {
        text(client.send(&node, address, get("/who")).await.unwrap()).await;
    }
    assert_eq!(second.seen.accepted.load(Ordering::SeqCst), 1);
}
