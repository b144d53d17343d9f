//! Renewed certificates and a rotated CA, while requests are under way.

use crate::fleet::{Fleet, Pool, get, name, now_s, pool, soon, text, wait_until};
use crate::server::TestServer;
use http_body_util::BodyExt;
use isolet_peer::certificates::{CertificateError, Revocation, RotationError};
use isolet_peer::transport::PoolLimits;
use isolet_peer::{PeerError, PeerPool, PeerTls};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::task::JoinHandle;

const DAY_S: i64 = 86_400;

/// Requests one after the other; each must succeed.
struct Load {
    done: Arc<AtomicUsize>,
    running: JoinHandle<()>,
}

impl Load {
    fn start(tls: &PeerTls, server: &TestServer) -> Self {
        let limits = PoolLimits { age: Duration::from_millis(500), ..PoolLimits::default() };
        let client: Pool = PeerPool::new(tls.clone(), limits);
        let address = server.address;
        let done = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&done);
        let running = tokio::spawn(async move {
            loop {
                let answer = client.send(&name("node-1"), address, get("/who")).await.unwrap();
                assert_eq!(text(answer).await, "node-2");
                counter.fetch_add(1, Ordering::SeqCst);
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        });
        Self { done, running }
    }

    /// Waits until a connection has been made after now, and a request on it.
    async fn continues(&self, server: &TestServer) {
        let accepted = server.seen.accepted.load(Ordering::SeqCst);
        wait_until("another connection", || {
            assert!(!self.running.is_finished(), "a request failed");
            server.seen.accepted.load(Ordering::SeqCst) > accepted
        })
        .await;
        let done = self.done.load(Ordering::SeqCst);
        wait_until("another request", || self.done.load(Ordering::SeqCst) > done + 1).await;
    }

    async fn stop(self) {
        self.running.abort();
        let ended = self.running.await.unwrap_err();
        assert!(ended.is_cancelled(), "a request failed: {ended}");
    }
}

#[tokio::test]
async fn certificates_are_renewed_without_losing_a_request() {
    let mut fleet = Fleet::new();
    let one = fleet.node("node-1");
    let two = fleet.node("node-2");
    let server = TestServer::start(&one).await;
    let load = Load::start(&two, &server);
    let client = pool(&two);
    let length = 64 * 1024 * 1024;
    let path = format!("/zeros/{length}");
    let long = client.send(&name("node-1"), server.address, get(&path)).await.unwrap();
    let mut long = long.into_body();
    let mut received = long.frame().await.unwrap().unwrap().into_data().unwrap().len();
    load.continues(&server).await;
    let until = now_s() + 50 * DAY_S;
    fleet.issue_until("node-1", until);
    fleet.issue_until("node-2", until + 1);
    wait_until("both have read their files", || {
        one.expires_at_s() == until && two.expires_at_s() == until + 1
    })
    .await;
    load.continues(&server).await;
    load.stop().await;
    while let Some(frame) = long.frame().await {
        received += frame.unwrap().into_data().unwrap().len();
    }
    assert_eq!(received, length, "the download that began before");
}

#[tokio::test]
async fn the_ca_is_rotated_without_losing_a_request() {
    let mut fleet = Fleet::new();
    let one = fleet.node("node-1");
    let two = fleet.node("node-2");
    let server = TestServer::start(&one).await;
    let load = Load::start(&two, &server);
    let lists = |tls: &PeerTls| tls.authorities();
    fleet.cluster.start_rotation(now_s()).unwrap();
    for node in ["node-1", "node-2"] {
        fleet.distribute(node);
    }
    wait_until("both trust both", || lists(&one) == 2 && lists(&two) == 2).await;
    load.continues(&server).await;
    assert!(matches!(
        fleet.cluster.finish_rotation(now_s()),
        Err(CertificateError::Rotation(RotationError::NotSwitched))
    ));
    fleet.cluster.switch_rotation(now_s()).unwrap();
    let due = fleet.cluster.index().due(0, now_s());
    assert_eq!(due, [name("node-1"), name("node-2")]);
    // One node has a certificate of the old authority while the other one has a new one.
    let until = now_s() + 50 * DAY_S;
    fleet.issue_until("node-1", until);
    wait_until("node-1 is renewed", || one.expires_at_s() == until).await;
    load.continues(&server).await;
    let Err(CertificateError::Rotation(RotationError::StillUsed(nodes))) =
        fleet.cluster.finish_rotation(now_s())
    else {
        panic!("node-2 has a certificate of the old authority");
    };
    assert_eq!(nodes, [name("node-2")]);
    fleet.issue_until("node-2", until);
    wait_until("node-2 is renewed", || two.expires_at_s() == until).await;
    load.continues(&server).await;
    let old = fleet.cluster.index().authorities()[0].id;
    fleet.cluster.finish_rotation(now_s()).unwrap();
    assert!(!fleet.directory("ca").join(format!("ca-{old}-key.pem")).try_exists().unwrap());
    fleet.distribute("node-1");
    wait_until("node-1 trusts the new one only", || lists(&one) == 1).await;
    load.continues(&server).await;
    fleet.distribute("node-2");
    wait_until("node-2 trusts the new one only", || lists(&two) == 1).await;
    load.continues(&server).await;
    load.stop().await;
}

/// A certificate of the old CA is worth nothing after the rotation, on open connections too.
#[tokio::test]
async fn the_old_ca_is_not_trusted_after_the_rotation() {
    let mut fleet = Fleet::new();
    let one = fleet.node("node-1");
    let server = TestServer::start(&one).await;
    let client = pool(&PeerTls::open(fleet.issue("node-2")).unwrap());
    let node = name("node-1");
    let open = client.send(&node, server.address, get("/hang"));
    let rotated = async {
        wait_until("the request has begun", || server.seen.under_way.load(Ordering::SeqCst) == 1)
            .await;
        fleet.cluster.start_rotation(now_s()).unwrap();
        fleet.cluster.switch_rotation(now_s()).unwrap();
        fleet.issue("node-1");
        fleet.cluster.revoke(&Revocation::Node(name("node-2")), now_s()).unwrap();
        fleet.cluster.finish_rotation(now_s()).unwrap();
        fleet.distribute("node-1");
    };
    let (open, ()) = soon("the request ends", async { tokio::join!(open, rotated) }).await;
    assert!(matches!(open.unwrap_err().error, PeerError::Lost { .. }));
    let refused = client.send(&node, server.address, get("/who")).await.unwrap_err();
    assert!(matches!(refused.error, PeerError::Handshake { .. }), "{refused}");
}
