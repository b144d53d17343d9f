//! Network profiles: a change on one node holds on all.

use crate::etcd_server::EtcdServer;
use crate::etcd_server::wait_until;
use crate::node::Authority;
use crate::node::Node;
use crate::node::names;
use crate::node::wait_for_profiles;
use isolet_cluster::etcd::EtcdError;
use isolet_fleet::replication::PutRecord;
use isolet_fleet::replication::ReplicationError;
use isolet_sandbox::profiles::PROFILES_MAX;

/// Promises: FW9.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_holds_on_the_node_when_it_returns_and_soon_on_all() {
    let server = EtcdServer::start().await;
    let mut authority = Authority::new();
    let [a, b, c] = Node::three(&server, &mut authority).await;
    assert_eq!(a.put("t", "web", "one.example").await.unwrap(), PutRecord::Created);
    assert_eq!(a.profiles().await, ["t/web one.example"]);
    wait_for_profiles(&[&b, &c], &["t/web one.example"]).await;
    assert_eq!(b.put("t", "web", "two.example").await.unwrap(), PutRecord::Replaced);
    assert_eq!(b.put("u", "web", "u.example").await.unwrap(), PutRecord::Created);
    assert_eq!(b.profiles().await, ["t/web two.example", "u/web u.example"]);
    wait_for_profiles(&[&a, &c], &["t/web two.example", "u/web u.example"]).await;
    assert!(c.remove("t", "web").await.unwrap());
    assert_eq!(c.profiles().await, ["u/web u.example"]);
    assert!(!c.remove("t", "web").await.unwrap());
    assert!(!c.remove("u", "other").await.unwrap());
    wait_for_profiles(&[&a, &b], &["u/web u.example"]).await;
    for round in 0..100 {
        let host = format!("{round}.example");
        a.put("u", "web", &host).await.unwrap();
        assert_eq!(a.profiles().await, [format!("u/web {host}")]);
    }
}

#[tokio::test]
async fn the_number_of_profiles_of_a_tenant_is_bounded_in_the_fleet() {
    let server = EtcdServer::start().await;
    let mut authority = Authority::new();
    let [a, b, _c] = Node::three(&server, &mut authority).await;
    for n in 0..PROFILES_MAX {
        let node = if n % 2 == 0 { &a } else { &b };
        let put = node.put("t", &format!("p{n}"), "x.example").await.unwrap();
        assert_eq!(put, PutRecord::Created);
    }
    let max = PROFILES_MAX;
    assert_eq!(a.put("t", "more", "x.example").await.unwrap(), PutRecord::TooMany { max });
    assert_eq!(a.put("t", "p1", "y.example").await.unwrap(), PutRecord::Replaced);
    assert_eq!(a.put("u", "more", "x.example").await.unwrap(), PutRecord::Created);
}

/// Promises: FW9.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn simultaneous_changes_end_equal_on_all_nodes() {
    let server = EtcdServer::start().await;
    let mut authority = Authority::new();
    let [a, b, c] = Node::three(&server, &mut authority).await;
    let change = async |node: &Node, of: &str| {
        for round in 0..40 {
            let name = format!("p{}", round % 3);
            if round % 7 == 6 {
                node.remove("t", &name).await.unwrap();
            } else {
                let host = format!("{of}{round}.example");
                node.put("t", &name, &host).await.unwrap();
            }
        }
    };
    tokio::join!(change(&a, "a"), change(&b, "b"), change(&c, "c"));
    // What etcd has, and nothing else, is what all have.
    let all = server.client().list(&names().profiles(), None, 10, None).await.unwrap();
    let mut expected = Vec::new();
    for pair in all.pairs {
        let (tenant, name) = names().read_profile(&pair.key).unwrap();
        let value: serde_json::Value = serde_json::from_slice(&pair.value).unwrap();
        let host = value["profile"]["allow"][0].as_str().unwrap();
        expected.push(format!("{tenant}/{name} {host}"));
    }
    assert!(!expected.is_empty());
    let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
    wait_for_profiles(&[&a, &b, &c], &expected).await;
}

/// Promises: FW9.
#[tokio::test]
async fn a_first_join_adds_what_the_fleet_lacks_and_a_later_one_takes_its_state() {
    let server = EtcdServer::start().await;
    let mut authority = Authority::new();
    let a = Node::joined("a", &server, &mut authority).await;
    a.put("t", "web", "fleet.example").await.unwrap();
    let mut b = Node::new("b", &server, &mut authority).await;
    let body = |name: &str| serde_json::to_string(&crate::node::profile(name, "own.example"));
    for name in ["web", "own"] {
        b.store.put_profile("t", name, body(name).unwrap(), 9).await.unwrap();
    }
    b.join().await;
    let both = ["t/own own.example", "t/web fleet.example"];
    assert_eq!(b.profiles().await, both);
    wait_for_profiles(&[&a], &both).await;
    b.leave();
    assert!(a.remove("t", "own").await.unwrap());
    a.put("t", "web", "new.example").await.unwrap();
    a.put("t", "more", "more.example").await.unwrap();
    b.store.put_profile("t", "stray", body("stray").unwrap(), 9).await.unwrap();
    b.join().await;
    let current = ["t/more more.example", "t/web new.example"];
    assert_eq!(b.profiles().await, current);
    wait_for_profiles(&[&a], &current).await;
    // An etcd that has lost its data is filled again.
    let other = EtcdServer::start().await;
    b.use_etcd(&other).await;
    b.join().await;
    assert_eq!(b.profiles().await, current);
    let c = Node::joined("c", &other, &mut authority).await;
    assert_eq!(c.profiles().await, current);
}

/// Promises: FW9.
#[tokio::test]
async fn without_etcd_a_change_fails_and_changes_nothing() {
    let server = EtcdServer::start().await;
    let mut authority = Authority::new();
    let [a, b, _c] = Node::three(&server, &mut authority).await;
    a.put("t", "web", "one.example").await.unwrap();
    wait_for_profiles(&[&b], &["t/web one.example"]).await;
    a.relay.cut(true);
    let put = a.put("t", "web", "two.example").await;
    let removed = a.remove("t", "web").await;
    for error in [put.map(drop).unwrap_err(), removed.map(drop).unwrap_err()] {
        let is_unavailable = matches!(error, ReplicationError::Etcd(EtcdError::Unavailable { .. }));
        assert!(is_unavailable, "{error}");
    }
    assert_eq!(a.profiles().await, ["t/web one.example"]);
    assert_eq!(b.profiles().await, ["t/web one.example"]);
    let mut late = a;
    late.leave();
    assert!(late.try_join().await.is_err());
    late.relay.cut(false);
    late.join().await;
    assert_eq!(late.put("t", "web", "three.example").await.unwrap(), PutRecord::Replaced);
    wait_for_profiles(&[&b], &["t/web three.example"]).await;
}

#[tokio::test]
async fn a_profile_that_cannot_be_read_is_skipped() {
    let server = EtcdServer::start().await;
    let mut authority = Authority::new();
    let [a, mut b, _c] = Node::three(&server, &mut authority).await;
    a.put("t", "web", "one.example").await.unwrap();
    wait_for_profiles(&[&b], &["t/web one.example"]).await;
    let etcd = server.client();
    let web = names().profile("t", "web");
    for value in ["{\"v\":9}", "garbage", "{\"v\":1,\"profile\":{\"name\":\"none\"}}"] {
        etcd.put(&web, value.as_bytes()).await.unwrap();
    }
    etcd.put(b"isolet/profiles/odd", b"x").await.unwrap();
    etcd.put(b"isolet/profiles/..%2F/web", b"x").await.unwrap();
    a.put("t", "last", "last.example").await.unwrap();
    let expected = ["t/last last.example", "t/web one.example"];
    wait_for_profiles(&[&a, &b], &expected).await;
    b.leave();
    b.join().await;
    assert_eq!(b.profiles().await, expected, "its earlier state stays");
    assert_eq!(a.put("t", "web", "two.example").await.unwrap(), PutRecord::Replaced);
    wait_until(
        || "the new state".into(),
        async || b.profiles().await.contains(&"t/web two.example".to_owned()),
    )
    .await;
}
